package aws

import (
	"cmp"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/job"
)

// family is one generation of instance types of one shape.
type family struct {
	name  string
	arch  string // amd64 or arm64
	sizes []typeSize
}

type typeSize struct {
	name      string
	vcpus     int
	memoryGiB int
}

// families are the current-generation types that a size resolves to, in order
// of preference where two are equally large: burstable, then the newest
// generation that regions widely have, then the one before it. As of
// 2026-11-30, from "Amazon EC2 instance type specifications". Which of them a
// region really offers is asked of the region.
var families = []family{
	{"t3", "amd64", burstable},
	{"m7i", "amd64", intel(4)},
	{"c7i", "amd64", intel(2)},
	{"r7i", "amd64", intel(8)},
	{"m6i", "amd64", upTo(intel(4), 128)},
	{"c6i", "amd64", upTo(intel(2), 128)},
	{"r6i", "amd64", upTo(intel(8), 128)},
	{"m5", "amd64", upTo(intel(4), 96)},
	{"t4g", "arm64", burstable},
	{"m7g", "arm64", graviton(4, 64)},
	{"c7g", "arm64", graviton(2, 64)},
	{"r7g", "arm64", graviton(8, 64)},
	{"m8g", "arm64", graviton(4, 192)},
	{"c8g", "arm64", graviton(2, 192)},
	{"r8g", "arm64", graviton(8, 192)},
	{"m6g", "arm64", graviton(4, 64)},
}

var burstable = []typeSize{{"micro", 2, 1}, {"small", 2, 2}, {"medium", 2, 4}, {"large", 2, 8}, {"xlarge", 4, 16}, {"2xlarge", 8, 32}}

// intel is the sizes of a family with so many GiB a vCPU.
func intel(gib int) []typeSize {
	return shaped(gib, []typeSize{{name: "large", vcpus: 2}, {name: "xlarge", vcpus: 4}, {name: "2xlarge", vcpus: 8}, {name: "4xlarge", vcpus: 16},
		{name: "8xlarge", vcpus: 32}, {name: "12xlarge", vcpus: 48}, {name: "16xlarge", vcpus: 64}, {name: "24xlarge", vcpus: 96}, {name: "32xlarge", vcpus: 128}, {name: "48xlarge", vcpus: 192}})
}

func graviton(gib, most int) []typeSize {
	return shaped(gib, upTo([]typeSize{{name: "medium", vcpus: 1}, {name: "large", vcpus: 2}, {name: "xlarge", vcpus: 4}, {name: "2xlarge", vcpus: 8}, {name: "4xlarge", vcpus: 16},
		{name: "8xlarge", vcpus: 32}, {name: "12xlarge", vcpus: 48}, {name: "16xlarge", vcpus: 64}, {name: "24xlarge", vcpus: 96}, {name: "48xlarge", vcpus: 192}}, most))
}

func shaped(gib int, sizes []typeSize) []typeSize {
	for i := range sizes {
		sizes[i].memoryGiB = gib * sizes[i].vcpus
	}
	return sizes
}

func upTo(sizes []typeSize, vcpus int) []typeSize {
	return slices.DeleteFunc(sizes, func(s typeSize) bool { return s.vcpus > vcpus })
}

// candidate is an instance type that has what a size asks for.
type candidate struct {
	name string
	typeSize
	rank int
}

// candidates are the types that have at least what is asked for, the smallest
// first. No more than a dozen: one call asks where all of them are offered.
func candidates(want job.Size) []candidate {
	var out []candidate
	for rank, f := range families {
		if f.arch != want.Arch {
			continue
		}
		for _, s := range f.sizes {
			if s.vcpus >= want.VCPUs && s.memoryGiB >= want.MemoryGiB {
				out = append(out, candidate{name: f.name + "." + s.name, typeSize: s, rank: rank})
			}
		}
	}
	slices.SortFunc(out, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.vcpus, b.vcpus), cmp.Compare(a.memoryGiB, b.memoryGiB), cmp.Compare(a.rank, b.rank))
	})
	return out[:min(len(out), 12)]
}

// typeOf is what the table knows of a type; false if it is not in it.
func typeOf(name string) (size typeSize, arch string, ok bool) {
	fam, sz, _ := strings.Cut(name, ".")
	for _, f := range families {
		if f.name != fam {
			continue
		}
		for _, s := range f.sizes {
			if s.name == sz {
				return s, f.arch, true
			}
		}
	}
	return typeSize{}, "", false
}
