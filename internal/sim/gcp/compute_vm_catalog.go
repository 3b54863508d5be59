package gcp

import (
	"fmt"
	"slices"
	"strings"
)

// A machineFamily is a series of predefined machine types ("Machine families resource and comparison guide").
type machineFamily struct {
	name  string
	arm   bool
	cpus  []int
	perMB map[string]int // class (standard, highmem, highcpu) to memory in MiB a vCPU
	disks []string       // disk types that its machines can boot from; nil: every persistent disk
	// regions are where the family is offered; nil: everywhere.
	regions []string
	quota   string // the quota of vCPUs that it counts against
	cpu     string // its CPU platform
}

var (
	persistentDisks = []string{"pd-standard", "pd-balanced", "pd-ssd", "pd-extreme"}
	// C3 machines take no standard persistent disk, and C4, C4A and N4 none at all ("Choose a disk type").
	c3Disks    = []string{"pd-balanced", "pd-ssd", "hyperdisk-balanced", "hyperdisk-extreme", "hyperdisk-throughput"}
	hyperdisks = []string{"hyperdisk-balanced", "hyperdisk-extreme", "hyperdisk-throughput"}
)

var machineFamilies = []machineFamily{
	{name: "e2", cpus: []int{2, 4, 8, 16, 32}, perMB: map[string]int{"standard": 4096, "highmem": 8192, "highcpu": 1024}, quota: "CPUS", cpu: "Intel Broadwell"},
	{name: "n1", cpus: []int{1, 2, 4, 8, 16, 32, 64, 96}, perMB: map[string]int{"standard": 3840, "highmem": 6656, "highcpu": 922}, quota: "CPUS", cpu: "Intel Haswell"},
	{name: "n2", cpus: []int{2, 4, 8, 16, 32, 48, 64, 80, 96, 128}, perMB: map[string]int{"standard": 4096, "highmem": 8192, "highcpu": 1024}, quota: "N2_CPUS", cpu: "Intel Cascade Lake"},
	{name: "n4", cpus: []int{2, 4, 8, 16, 32, 48, 64, 80}, perMB: map[string]int{"standard": 4096, "highmem": 8192, "highcpu": 2048}, disks: hyperdisks, quota: "CPUS",
		cpu: "Intel Emerald Rapids"},
	{name: "c3", cpus: []int{4, 8, 22, 44, 88, 176}, perMB: map[string]int{"standard": 4096, "highmem": 8192, "highcpu": 2048}, disks: c3Disks, quota: "CPUS",
		cpu: "Intel Sapphire Rapids"},
	{name: "c4", cpus: []int{2, 4, 8, 16, 24, 32, 48, 96, 144, 192}, perMB: map[string]int{"standard": 3840, "highmem": 7936, "highcpu": 2048}, disks: hyperdisks, quota: "CPUS",
		cpu: "Intel Emerald Rapids"},
	{name: "t2a", arm: true, cpus: []int{1, 2, 4, 8, 16, 32, 48}, perMB: map[string]int{"standard": 4096}, quota: "T2A_CPUS", cpu: "Ampere Altra",
		regions: []string{"us-central1", "europe-west4", "asia-southeast1"}},
	{name: "c4a", arm: true, cpus: []int{1, 2, 4, 8, 16, 32, 48, 64, 72}, perMB: map[string]int{"standard": 4096, "highmem": 8192, "highcpu": 2048}, disks: hyperdisks, quota: "CPUS",
		cpu: "Google Axion", regions: []string{"us-central1", "us-east1", "us-east4", "us-west1", "europe-west1", "europe-west2", "europe-west3", "europe-west4", "asia-southeast1",
			"asia-east1", "asia-northeast1", "asia-south1", "australia-southeast2"}},
}

// A machineType is one size of machine.
type machineType struct {
	name         string
	family       *machineFamily
	cpus, memory int // memory in MiB
	shared       bool
}

func (t machineType) arch() string {
	if t.family.arm {
		return "ARM64"
	}
	return "X86_64"
}

// takes says whether machines of this type can have disks of a type.
func (t machineType) takes(diskType string) bool {
	if t.family.disks == nil {
		return slices.Contains(persistentDisks, diskType)
	}
	return slices.Contains(t.family.disks, diskType)
}

// machineTypes are all sizes, by name. Shared-core sizes show the vCPUs that they may burst to.
var machineTypes = func() map[string]machineType {
	all := map[string]machineType{}
	for i := range machineFamilies {
		f := &machineFamilies[i]
		for class, per := range f.perMB {
			for _, n := range f.cpus {
				if class == "highcpu" && n < 2 {
					continue
				}
				t := machineType{name: fmt.Sprintf("%s-%s-%d", f.name, class, n), family: f, cpus: n, memory: n * per}
				all[t.name] = t
			}
		}
	}
	shared := func(family int, name string, cpus, memory int) {
		all[name] = machineType{name: name, family: &machineFamilies[family], cpus: cpus, memory: memory, shared: true}
	}
	shared(0, "e2-micro", 2, 1024)
	shared(0, "e2-small", 2, 2048)
	shared(0, "e2-medium", 2, 4096)
	shared(1, "f1-micro", 1, 614)
	shared(1, "g1-small", 1, 1740)
	return all
}()

// machineTypeIn finds a machine type as a zone offers it.
func machineTypeIn(zone, name string) (machineType, bool) {
	t, ok := machineTypes[name]
	if !ok || t.family.regions != nil && !slices.Contains(t.family.regions, regionOf(zone)) {
		return machineType{}, false
	}
	return t, true
}

// diskTypes are the types of disks, with their smallest and largest size in GB.
var diskTypes = map[string]struct {
	description string
	least, most int
	size        int // if nothing is said
}{
	"pd-standard":          {"Standard Persistent Disk", 10, 65536, 500},
	"pd-balanced":          {"Balanced Persistent Disk", 10, 65536, 100},
	"pd-ssd":               {"SSD Persistent Disk", 10, 65536, 100},
	"pd-extreme":           {"Extreme Persistent Disk", 500, 65536, 1000},
	"hyperdisk-balanced":   {"Hyperdisk Balanced Persistent Disk", 4, 65536, 100},
	"hyperdisk-extreme":    {"Hyperdisk Extreme Persistent Disk", 64, 65536, 1000},
	"hyperdisk-throughput": {"Hyperdisk Throughput Persistent Disk", 2048, 32768, 2048},
}

// A systemImage is what an image has in it.
type systemImage struct {
	Distro, Release, Kernel string
	Arm                     bool
}

// system is what the image's system calls itself.
func (p systemImage) system() string {
	switch p.Distro {
	case "debian":
		return "Debian GNU/Linux " + p.Release
	case "cos":
		return "Container-Optimized OS from Google " + p.Release
	}
	return "Ubuntu " + p.Release + " LTS"
}

func (p systemImage) arch() string {
	if p.Arm {
		return "ARM64"
	}
	return "X86_64"
}

// A publicImage is an image that a distributor offers ("Operating system details").
type publicImage struct {
	systemImage
	project, name, family string
	deprecated            bool
}

// imageVersion is the newest version of the images, and olderVersion the one before it, which is deprecated.
const imageVersion, olderVersion = "v20261112", "v20261008"

// publicImages are the images of the public projects.
var publicImages = func() []publicImage {
	var all []publicImage
	add := func(project, base, family, distro, release, kernel string, arm bool) {
		for _, v := range []string{olderVersion, imageVersion} {
			all = append(all, publicImage{systemImage{distro, release, kernel, arm}, project, base + "-" + v, family, v == olderVersion})
		}
	}
	const ubuntu, debian = "ubuntu-os-cloud", "debian-cloud"
	add(ubuntu, "ubuntu-2204-jammy", "ubuntu-2204-lts", "ubuntu", "22.04", "6.8.0-1044-gcp", false)
	add(ubuntu, "ubuntu-2204-jammy-arm64", "ubuntu-2204-lts-arm64", "ubuntu", "22.04", "6.8.0-1044-gcp", true)
	add(ubuntu, "ubuntu-2404-noble-amd64", "ubuntu-2404-lts-amd64", "ubuntu", "24.04", "6.14.0-1021-gcp", false)
	add(ubuntu, "ubuntu-2404-noble-arm64", "ubuntu-2404-lts-arm64", "ubuntu", "24.04", "6.14.0-1021-gcp", true)
	add(ubuntu, "ubuntu-2604-resolute-amd64", "ubuntu-2604-lts-amd64", "ubuntu", "26.04", "7.0.0-1008-gcp", false)
	add(ubuntu, "ubuntu-2604-resolute-arm64", "ubuntu-2604-lts-arm64", "ubuntu", "26.04", "7.0.0-1008-gcp", true)
	add(debian, "debian-11-bullseye", "debian-11", "debian", "11", "5.10.0-36-cloud-amd64", false)
	add(debian, "debian-12-bookworm", "debian-12", "debian", "12", "6.1.0-41-cloud-amd64", false)
	add(debian, "debian-12-bookworm-arm64", "debian-12-arm64", "debian", "12", "6.1.0-41-cloud-arm64", true)
	add(debian, "debian-13-trixie", "debian-13", "debian", "13", "6.12.57+deb13-cloud-amd64", false)
	add(debian, "debian-13-trixie-arm64", "debian-13-arm64", "debian", "13", "6.12.57+deb13-cloud-arm64", true)
	for _, arm := range []bool{false, true} {
		name := "gke-" + nodeImage + "-cos-125-19216-104-74-c-pre"
		if arm {
			name = strings.Replace(name, "cos-", "cos-arm64-", 1)
		}
		all = append(all, publicImage{systemImage{"cos", "125", "6.12.46+", arm}, nodeImageProject, name + "-" + imageVersion, "gke-cos", false})
	}
	return all
}()

// Nodes of clusters run an image of GKE's own ("Node images"), which nobody else lists.
const nodeImageProject, nodeImage = "gke-node-images", "1358-gke1036000"

// nodeImageFor is the image of nodes of an architecture.
func nodeImageFor(arm bool) string {
	i := slices.IndexFunc(publicImages, func(p publicImage) bool { return p.project == nodeImageProject && p.Arm == arm })
	return publicImages[i].path()
}

// publicImageBy finds an image of a public project by name, or the newest one of a family that is not deprecated.
func publicImageBy(project, name, family string) (publicImage, bool) {
	for _, p := range slices.Backward(publicImages) {
		if p.project == project && (name != "" && p.name == name || family != "" && p.family == family && !p.deprecated) {
			return p, true
		}
	}
	return publicImage{}, false
}
