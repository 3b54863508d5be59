package gcp

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/zopday/provisioner/internal/job"
)

// A series is a series of predefined machine types.
type series struct {
	name  string
	arch  string // amd64 or arm64
	disk  string // the disk type that its machines boot from
	quota string // the region's quota that its vCPUs count against
	types []machine
}

// A machine is one predefined machine type.
type machine struct {
	name      string
	vcpus     int
	memoryGiB int
}

// Hyperdisk is the only disk of the newer series ("Choose a disk type").
const (
	persistentDisk = "pd-balanced"
	hyperdisk      = "hyperdisk-balanced"
)

// allSeries are the general-purpose series that a size resolves to, in order of
// preference where two are equally large: the cheapest first, then the newest. As
// of 2026-11-30, from "Machine families resource and comparison guide". Which of
// them a zone really offers is asked of the zone.
var allSeries = []series{
	{"e2", "amd64", persistentDisk, "CPUS", slices.Concat(
		[]machine{{"e2-micro", 2, 1}, {"e2-small", 2, 2}, {"e2-medium", 2, 4}},
		shaped("e2-standard", 4, 2, 4, 8, 16, 32), shaped("e2-highmem", 8, 2, 4, 8, 16), shaped("e2-highcpu", 1, 2, 4, 8, 16, 32))},
	{"n4", "amd64", hyperdisk, "N4_CPUS", slices.Concat(
		shaped("n4-standard", 4, 2, 4, 8, 16, 32, 48, 64, 80), shaped("n4-highmem", 8, 2, 4, 8, 16, 32, 48, 64, 80), shaped("n4-highcpu", 2, 2, 4, 8, 16, 32, 48, 64, 80))},
	{"n2", "amd64", persistentDisk, "N2_CPUS", slices.Concat(
		shaped("n2-standard", 4, 2, 4, 8, 16, 32, 48, 64, 80, 96, 128), shaped("n2-highmem", 8, 2, 4, 8, 16, 32, 48, 64, 80), shaped("n2-highcpu", 1, 2, 4, 8, 16, 32, 48, 64, 80, 96))},
	{"c3", "amd64", persistentDisk, "C3_CPUS", slices.Concat(
		shaped("c3-standard", 4, 4, 8, 22, 44, 88, 176), shaped("c3-highmem", 8, 4, 8, 22, 44, 88, 176), shaped("c3-highcpu", 2, 4, 8, 22, 44, 88, 176))},
	{"c4a", "arm64", hyperdisk, "C4A_CPUS", slices.Concat(
		shaped("c4a-standard", 4, 1, 2, 4, 8, 16, 32, 48, 64, 72), shaped("c4a-highmem", 8, 1, 2, 4, 8, 16, 32, 48, 64, 72), shaped("c4a-highcpu", 2, 1, 2, 4, 8, 16, 32, 48, 64, 72))},
	{"t2a", "arm64", persistentDisk, "T2A_CPUS", shaped("t2a-standard", 4, 1, 2, 4, 8, 16, 32, 48)},
}

// shaped is the machine types of a class with so many GiB a vCPU.
func shaped(class string, gib int, vcpus ...int) []machine {
	out := make([]machine, len(vcpus))
	for i, n := range vcpus {
		out[i] = machine{class + "-" + strconv.Itoa(n), n, gib * n}
	}
	return out
}

// candidates are the machine types that have at least what is asked for, the
// smallest first. No more than a dozen: one call asks where all of them are offered.
func candidates(want job.Size) []machine {
	type ranked struct {
		machine
		rank int
	}
	var fit []ranked
	for rank, s := range allSeries {
		for _, m := range s.types {
			if s.arch == want.Arch && m.vcpus >= want.VCPUs && m.memoryGiB >= want.MemoryGiB {
				fit = append(fit, ranked{m, rank})
			}
		}
	}
	slices.SortFunc(fit, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.vcpus, b.vcpus), cmp.Compare(a.memoryGiB, b.memoryGiB), cmp.Compare(a.rank, b.rank))
	})
	out := make([]machine, min(len(fit), 12))
	for i := range out {
		out[i] = fit[i].machine
	}
	return out
}

// seriesOf is what the table knows of a machine type's series.
func seriesOf(machineType string) (series, bool) {
	prefix, _, _ := strings.Cut(machineType, "-")
	i := slices.IndexFunc(allSeries, func(s series) bool { return s.name == prefix })
	if i < 0 {
		return series{}, false
	}
	return allSeries[i], true
}

// onlyHyperdisk are the series beside those of the table that boot from nothing
// else ("Choose a disk type").
var onlyHyperdisk = []string{"c4", "c4d", "n4d", "n4a", "h4d", "x4", "a4", "a4x", "g4", "z4d", "m4"}

// bootDiskOf is the type of disk that a machine type boots from.
func bootDiskOf(machineType string) string {
	if s, ok := seriesOf(machineType); ok {
		return s.disk
	}
	prefix, _, _ := strings.Cut(machineType, "-")
	if slices.Contains(onlyHyperdisk, prefix) {
		return hyperdisk
	}
	return persistentDisk
}

// notMigrated are the series whose machines are not moved to another host during
// maintenance: those with GPUs, bare metal and local disks by the dozen ("Live
// migration process during maintenance events").
var notMigrated = []string{"a2", "a3", "a4", "a4x", "g2", "g4", "h3", "h4d", "x4", "z3"}

// maintenanceOf is what happens to a machine during host maintenance.
func maintenanceOf(machineType string) string {
	prefix, _, _ := strings.Cut(machineType, "-")
	if slices.Contains(notMigrated, prefix) || strings.HasSuffix(machineType, "-metal") {
		return "TERMINATE"
	}
	return "MIGRATE"
}

// quotaOf is the region's quota that a machine type's vCPUs count against; "" if
// it is not known.
func quotaOf(machineType string) string {
	if s, ok := seriesOf(machineType); ok {
		return s.quota
	}
	switch prefix, _, _ := strings.Cut(machineType, "-"); prefix {
	case "n1", "f1", "g1", "t2d":
		return "CPUS"
	case "n2d", "c2", "c2d", "c3d", "c4", "c4d", "n4d", "n4a":
		return strings.ToUpper(prefix) + "_CPUS"
	}
	return ""
}
