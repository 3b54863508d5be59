package aws

import (
	"testing"

	"github.com/zopday/provisioner/internal/job"
)

func TestCandidates(t *testing.T) {
	for _, c := range []struct {
		size job.Size
		want string // the first candidate
	}{
		{job.Size{VCPUs: 1, MemoryGiB: 1, Arch: "amd64"}, "t3.micro"},
		{job.Size{VCPUs: 2, MemoryGiB: 4, Arch: "amd64"}, "t3.medium"},
		{job.Size{VCPUs: 2, MemoryGiB: 4, Arch: "arm64"}, "t4g.medium"},
		{job.Size{VCPUs: 1, MemoryGiB: 4, Arch: "arm64"}, "m7g.medium"},
		{job.Size{VCPUs: 2, MemoryGiB: 6, Arch: "amd64"}, "t3.large"},
		{job.Size{VCPUs: 2, MemoryGiB: 16, Arch: "amd64"}, "r7i.large"},
		{job.Size{VCPUs: 4, MemoryGiB: 8, Arch: "amd64"}, "c7i.xlarge"},
		{job.Size{VCPUs: 4, MemoryGiB: 16, Arch: "amd64"}, "t3.xlarge"},
		{job.Size{VCPUs: 16, MemoryGiB: 64, Arch: "arm64"}, "m7g.4xlarge"},
		{job.Size{VCPUs: 96, MemoryGiB: 192, Arch: "arm64"}, "c8g.24xlarge"},
		{job.Size{VCPUs: 192, MemoryGiB: 1536, Arch: "amd64"}, "r7i.48xlarge"},
		{job.Size{VCPUs: 192, MemoryGiB: 1536, Arch: "arm64"}, "r8g.48xlarge"},
	} {
		got := candidates(c.size)
		if len(got) == 0 || got[0].name != c.want {
			t.Errorf("%+v: got %v, want %s first", c.size, got, c.want)
		}
		for _, g := range got {
			if g.vcpus < c.size.VCPUs || g.memoryGiB < c.size.MemoryGiB {
				t.Errorf("%+v: %s has less than asked for", c.size, g.name)
			}
			if size, arch, ok := typeOf(g.name); !ok || arch != c.size.Arch || size != g.typeSize {
				t.Errorf("typeOf(%s) = %v, %s, %v", g.name, size, arch, ok)
			}
		}
	}
	// Everything that a request may ask for has a type.
	for _, arch := range []string{"amd64", "arm64"} {
		for _, vcpus := range []int{1, 3, 64, 65, 192} {
			if got := candidates(job.Size{VCPUs: vcpus, MemoryGiB: 1536, Arch: arch}); len(got) == 0 {
				t.Errorf("no type for %d vCPUs and 1536 GiB on %s", vcpus, arch)
			}
		}
	}
}

func TestChoose(t *testing.T) {
	wanted := []candidate{{name: "t3.medium"}, {name: "c7i.large"}}
	offers := map[string]map[string]bool{
		"t3.medium": {"z1": true},
		"c7i.large": {"z1": true, "z3": true, "z2": true},
	}
	got, in := choose(wanted, []string{"z3", "z1", "z2"}, offers, 2)
	if got.name != "c7i.large" || len(in) != 3 || in[0] != "z3" {
		t.Errorf("got %s in %v", got.name, in)
	}
	if got, _ := choose(wanted, []string{"z1"}, offers, 2); got.name != "" {
		t.Errorf("one zone was taken for two: %s", got.name)
	}
}

func TestStandard(t *testing.T) {
	for name, want := range map[string]bool{
		"t3.medium": true, "t4g.small": true, "m7i-flex.large": true, "c7i.large": true, "im4gn.large": true, "z1d.large": true,
		"inf2.xlarge": false, "trn1.2xlarge": false, "g5.xlarge": false, "p5.48xlarge": false, "x2idn.16xlarge": false, "u-6tb1.metal": false, "mac2.metal": false,
	} {
		if standard(name) != want {
			t.Errorf("standard(%s) = %v", name, !want)
		}
	}
}
