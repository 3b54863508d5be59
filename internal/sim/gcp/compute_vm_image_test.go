package gcp

import (
	"strings"
	"testing"

	"google.golang.org/api/compute/v1"
)

func TestImages(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s := g.compute()
	newest, err := s.Images.GetFromFamily("ubuntu-os-cloud", "ubuntu-2404-lts-arm64").Do()
	if err != nil || newest.Architecture != "ARM64" || newest.Deprecated != nil || newest.Status != "READY" {
		t.Fatalf("image %+v, %v", newest, err)
	}
	all, err := s.Images.List("debian-cloud").Filter("family=debian-12").Do()
	if err != nil || len(all.Items) != 2 {
		t.Fatalf("images %+v, %v", all, err)
	}
	deprecated := 0
	for _, i := range all.Items {
		if i.Deprecated != nil && i.Deprecated.State == "DEPRECATED" && strings.HasPrefix(i.Deprecated.Replacement, apiRoot+"projects/debian-cloud/") {
			deprecated++
		}
	}
	if deprecated != 1 {
		t.Errorf("%d of 2 deprecated", deprecated)
	}
	_, err = s.Images.Get("debian-cloud", "debian-12").Do()
	if e := refused(t, err, 404, "notFound"); e.Message != "The resource 'projects/debian-cloud/global/images/debian-12' was not found" {
		t.Errorf("message %q", e.Message)
	}
	_, err = s.Images.Get("nobodys-project", "x").Do()
	refused(t, err, 403, "forbidden")

	// An image of one's own, made of a disk; obsolete ones cannot be booted from.
	g.vpc("10.40.0.0/24", true)
	g.fine(s.Disks.Insert(testProject, testZone, &compute.Disk{Name: "base", SourceImage: ubuntu}).Do())
	g.fine(s.Images.Insert(testProject, &compute.Image{Name: "own", Family: "own", SourceDisk: "zones/us-central1-a/disks/base"}).Do())
	boot := func(i *compute.Instance) { i.Disks[0].InitializeParams.SourceImage = "global/images/family/own" }
	g.fine(s.Instances.Insert(testProject, testZone, vm("web-1", boot)).Do())
	g.fine(s.Images.Deprecate(testProject, "own", &compute.DeprecationStatus{State: "OBSOLETE"}).Do())
	_, err = s.Images.GetFromFamily(testProject, "own").Do()
	refused(t, err, 404, "notFound")
	_, err = s.Instances.Insert(testProject, testZone, vm("web-2", func(i *compute.Instance) { i.Disks[0].InitializeParams.SourceImage = "global/images/own" })).Do()
	refused(t, err, 400, "invalid")
}

func TestMachineTypes(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s := g.compute()
	for name, want := range map[string]compute.MachineType{
		"e2-medium":      {GuestCpus: 2, MemoryMb: 4096, Architecture: "X86_64", IsSharedCpu: true},
		"n2-standard-4":  {GuestCpus: 4, MemoryMb: 16384, Architecture: "X86_64"},
		"c4-standard-8":  {GuestCpus: 8, MemoryMb: 30720, Architecture: "X86_64"},
		"t2a-standard-2": {GuestCpus: 2, MemoryMb: 8192, Architecture: "ARM64"},
		"c4a-highcpu-4":  {GuestCpus: 4, MemoryMb: 8192, Architecture: "ARM64"},
	} {
		got, err := s.MachineTypes.Get(testProject, testZone, name).Do()
		if err != nil || got.GuestCpus != want.GuestCpus || got.MemoryMb != want.MemoryMb || got.Architecture != want.Architecture || got.IsSharedCpu != want.IsSharedCpu {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	_, err := s.MachineTypes.Get(testProject, "us-west2-a", "t2a-standard-2").Do()
	refused(t, err, 404, "notFound")
	n := 0
	err = s.MachineTypes.List(testProject, testZone).Filter("guestCpus=4").Pages(t.Context(), func(l *compute.MachineTypeList) error {
		n += len(l.Items)
		return nil
	})
	if err != nil || n < 10 {
		t.Errorf("%d types with 4 vCPUs, %v", n, err)
	}
	d, err := s.DiskTypes.Get(testProject, testZone, "hyperdisk-balanced").Do()
	if err != nil || d.ValidDiskSize != "4GB-65536GB" {
		t.Errorf("disk type %+v, %v", d, err)
	}
}
