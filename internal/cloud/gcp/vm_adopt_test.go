package gcp

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// theirs makes a VM of somebody else's, with everything that is risky.
func (g vmRig) theirs(name, zone string) string {
	g.Helper()
	g.place("compute", "instances.insert", map[string]any{
		"zone": zone, "name": name, "machineType": "zones/" + zone + "/machineTypes/e2-small", "canIpForward": true,
		"disks":             []any{map[string]any{"boot": true, "initializeParams": map[string]any{"sourceImage": "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"}}},
		"networkInterfaces": []any{map[string]any{"network": "global/networks/default", "accessConfigs": []any{map[string]any{"type": "ONE_TO_ONE_NAT"}}}},
	})
	return "projects/" + testProject + "/zones/" + zone + "/instances/" + name
}

// An adopt job reads what it is pointed at, whatever it is named by, notes what
// is risky about it, and changes nothing, up and down.
func TestAdoptVMs(t *testing.T) {
	t.Parallel()
	for name, ids := range map[string]string{
		"by name":          `["theirs"]`,
		"by zone and name": `["us-central1-a/theirs"]`,
		"by link":          `["https://www.googleapis.com/compute/v1/projects/example-project/zones/us-central1-a/instances/theirs"]`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newVMsIn(t, sim.Options{}, job.ModeAdopt, fmt.Sprintf(`{"adopt":{"ids":%s}}`, ids))
			id := g.theirs("theirs", "us-central1-a")
			before, since := g.world.Snapshot(), g.mark()
			g.create()
			if len(g.infra().VMs) != 1 {
				t.Fatalf("VMs: %+v", g.infra().VMs)
			}
			if vm := g.infra().VMs[0]; vm.InstanceID != id || vm.State != job.VMReady || vm.ExecMode != job.ExecOSConfig || vm.Zone != "us-central1-a" {
				t.Errorf("VM is %+v", vm)
			}
			for _, risk := range []string{"external address", "forward packets", "OS Login", "SSH keys of the project"} {
				if !slices.ContainsFunc(g.infra().Warnings, func(w string) bool { return strings.Contains(w, risk) }) {
					t.Errorf("no warning of %q in %v", risk, g.infra().Warnings)
				}
			}
			g.teardown()
			if _, changes := g.calls(since); sum(changes) > 0 {
				t.Errorf("an adopt job changed %v", changes)
			}
			g.equalTo(before)
		})
	}
}

// What is not there, is ambiguous, is elsewhere or is another job's is refused by
// name (F4).
func TestAdoptRefusals(t *testing.T) {
	t.Parallel()
	g := newVMsIn(t, sim.Options{}, job.ModeAdopt, `{"adopt":{"ids":["theirs"]}}`)
	g.theirs("theirs", "us-central1-a")
	g.theirs("theirs", "us-central1-b")
	g.theirs("far", "europe-west1-b")
	for ids, code := range map[string]string{
		`{"ids":["theirs"]}`:               "ambiguous",
		`{"ids":["nobody"]}`:               "not-found",
		`{"ids":["far"]}`:                  "not-found",
		`{"ids":["europe-west1-b/far"]}`:   "wrong-region",
		`{"ids":["us-central1-c/theirs"]}`: "not-found",
		`{"ids":["projects/other-project/zones/us-central1-a/instances/x"]}`: "wrong-account",
		`{"name":"nobody"}`: "not-found",
	} {
		g.job.Config.Spec = []byte(`{"adopt":` + ids + `}`)
		if err := g.try(false, g.p.AdoptVMs); fatalCode(err) != code {
			t.Errorf("%s: verdict %v, want %s", ids, err, code)
		}
	}
}

// A managed group is adopted with its members.
func TestAdoptGroup(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, groupSpec)
	g.create()
	other := vmRig{&rig{TB: t, world: g.world, cloud: g.cloud, p: g.p, objects: map[string]job.Object{}, memory: pipeline.NewMemory()}}
	j := *g.job
	j.ID, j.Mode, j.Config = job.NewID("job"), job.ModeAdopt, job.Config{Spec: []byte(`{"adopt":{"name":"` + base(g.infra().ScalingGroupID) + `"}}`)}
	other.job = &j
	if err := other.try(false, other.p.AdoptVMs); fatalCode(err) != "owned-by-another-job" {
		t.Errorf("verdict %v", err)
	}
	// Somebody else's has no mark.
	set := `{"description":"theirs"}`
	if _, err := g.world.PatchObject(g.infra().ScalingGroupID, []byte(set)); err != nil {
		t.Fatal(err)
	}
	for _, vm := range g.infra().VMs {
		if _, err := g.world.PatchObject(vm.InstanceID, []byte(`{"labels":{}}`)); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.try(false, other.p.AdoptVMs); err != nil {
		t.Fatal(err)
	}
	if got := other.infra(); got.ScalingGroupID != g.infra().ScalingGroupID || len(got.VMs) != 2 || got.VMs[0].State != job.VMReady {
		t.Errorf("adopted %+v", got.VMs)
	}
}

// In somebody's own network everything else is made, and the network is as it
// was, up and down (F1, F2, F10).
func TestVMsInExistingNetwork(t *testing.T) {
	t.Parallel()
	const spec = `{"pool":{"count":2},"existing":{"networkId":"theirs","subnetIds":["inner"]},"loadBalancer":{"scheme":"internal","plainHTTP":true}}`
	g := newVMsIn(t, sim.Options{}, job.ModeCreateInExisting, spec)
	network := "projects/" + testProject + "/global/networks/theirs"
	g.place("compute", "networks.insert", map[string]any{"name": "theirs", "autoCreateSubnetworks": false})
	g.place("compute", "subnetworks.insert", map[string]any{"region": testRegion, "name": "inner", "network": network, "ipCidrRange": "10.9.0.0/24"})
	g.place("compute", "routers.insert", map[string]any{"region": testRegion, "name": "way-out", "network": network, "nats": []any{
		map[string]any{"name": "nat", "natIpAllocateOption": "AUTO_ONLY", "sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES"}}})
	failed := slices.DeleteFunc(g.rig.check(), func(c cloud.Check) bool { return c.Status != cloud.CheckFails })
	if len(failed) != 1 || !strings.Contains(failed[0].Fix, "REGIONAL_MANAGED_PROXY") {
		t.Errorf("checks without a subnet for proxies: %+v", failed)
	}
	g.place("compute", "subnetworks.insert", map[string]any{"region": testRegion, "name": "proxies", "network": network, "ipCidrRange": "10.9.8.0/26", "purpose": "REGIONAL_MANAGED_PROXY", "role": "ACTIVE"})
	g.place("compute", "firewalls.insert", map[string]any{"name": "open-ssh", "network": network, "direction": "INGRESS", "priority": 1000, "sourceRanges": []any{"0.0.0.0/0"},
		"allowed": []any{map[string]any{"IPProtocol": "tcp", "ports": []any{"22"}}}})
	before, began := g.world.Snapshot(), g.mark()
	*g.infra() = job.InfraConfig{}
	g.create()
	if len(g.infra().VMs) != 2 || len(g.infra().Targets) != 2 {
		t.Errorf("VMs %+v, targets %+v", g.infra().VMs, g.infra().Targets)
	}
	for _, e := range g.world.Books(sim.BookFilter{Since: began, Limit: 100000}) {
		if e.Mutating && (strings.HasPrefix(e.Operation, "networks.") || strings.HasPrefix(e.Operation, "subnetworks.") || strings.HasPrefix(e.Operation, "routers.")) {
			t.Errorf("%s changed their network", e.Operation)
		}
	}
	g.asAsked()
	g.teardown()
	if d := cmp.Diff(before, g.world.Snapshot()); d != "" {
		t.Error(d)
	}
}

// What cannot work is said before anything is made.
func TestVMChecks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec, check, says string
	}{
		"machine type":           {`{"pool":{"count":2,"instanceType":"e2-gigantic"}}`, "machine type", "no zone"},
		"size":                   {`{"pool":{"count":2,"size":{"vcpus":190,"memoryGiB":8}}}`, "machine type", "no current machine type"},
		"arm":                    {`{"pool":{"count":2,"size":{"vcpus":2,"memoryGiB":4,"arch":"arm64"}}}`, "", ""},
		"image":                  {`{"pool":{"count":2,"image":"projects/example-project/global/images/nothing"}}`, "image", "nothing"},
		"image of another arch":  {`{"pool":{"count":2,"image":"projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-arm64"}}`, "image", "arm64"},
		"small disk":             {`{"pool":{"count":2,"diskGiB":8}}`, "image", "disk of 10 GB"},
		"group that may be none": {`{"pool":{"mode":"asg","min":0,"desired":1,"max":2}}`, "group's size", "empty group"},
		"no certificate":         {`{"pool":{"count":2},"loadBalancer":{"certificate":"nothing"}}`, "certificate", "no certificate"},
		"certificate without an end": {`{"pool":{"count":2},"loadBalancer":{"type":"tcp","scheme":"internal","certificate":"shop"}}`,
			"certificate", "TLS cannot end"},
		"no room for proxies": {`{"pool":{"count":2},"network":{"cidr":"10.40.0.0/24"},"loadBalancer":{"scheme":"internal","plainHTTP":true}}`, "proxies' subnet", "/26"},
		"no zone":             {`{"pool":{"count":2},"loadBalancer":{"plainHTTP":true,"dns":{"zone":"nowhere.test","record":"shop"}}}`, "DNS zone", "nowhere.test"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newVMs(t, sim.Options{}, c.spec)
			failed := slices.DeleteFunc(g.rig.check(), func(c cloud.Check) bool { return c.Status != cloud.CheckFails })
			switch {
			case c.check == "" && len(failed) > 0:
				t.Errorf("checks: %+v", failed)
			case c.check != "" && (len(failed) != 1 || failed[0].Name != c.check || !strings.Contains(failed[0].Message, c.says) || failed[0].Fix == ""):
				t.Errorf("checks: %+v, want %s to say %q", failed, c.check, c.says)
			}
			if _, changes := g.calls(0); sum(changes) > 0 {
				t.Errorf("a check changed %v", changes)
			}
		})
	}
}

// A VM that reports nothing is looked at through its console.
func TestConsole(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]cloud.ProbeState{
		"boot\nzopday bootstrap complete\nlogin:":                                                  cloud.ProbeReady,
		"zopday bootstrap complete\nboot\nzopday bootstrap failed: step extra, exit 3 (log: /x)\n": cloud.ProbeFailed,
		"zopday bootstrap failed: step extra, exit 3\nboot\nzopday bootstrap complete\n":           cloud.ProbeReady,
		"Cloud-init v. 25.2 finished at Mon, 30 Nov 2026 14:00:00 +0000\n":                         cloud.ProbeFailed,
		"[FAILED] Failed to start cloud-final.service - Cloud-init: Final Stage.\n":                cloud.ProbeFailed,
		"\x1b[32mbooting\x1b[0m password=hunter2\n":                                                cloud.ProbeRunning,
	} {
		got := judgeConsole(text, "silent")
		if got.State != want || strings.Contains(got.Detail, "hunter2") || strings.Contains(got.Detail, "\x1b") {
			t.Errorf("%q: %+v, want %s", text, got, want)
		}
	}
}

func TestExecCommand(t *testing.T) {
	t.Parallel()
	p := &Provider{project: testProject}
	got := p.ExecCommand(nil, job.VMInfo{InstanceID: "projects/p-1/zones/us-central1-a/instances/web-1", Zone: "us-central1-a"})
	if want := "gcloud compute ssh web-1 --zone us-central1-a --tunnel-through-iap --project p-1"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The smallest current machine type that has what is asked for.
func TestCandidates(t *testing.T) {
	t.Parallel()
	for size, want := range map[job.Size]string{
		{VCPUs: 2, MemoryGiB: 4, Arch: "amd64"}:    "e2-medium",
		{VCPUs: 1, MemoryGiB: 1, Arch: "amd64"}:    "e2-micro",
		{VCPUs: 4, MemoryGiB: 16, Arch: "amd64"}:   "e2-standard-4",
		{VCPUs: 64, MemoryGiB: 200, Arch: "amd64"}: "n4-standard-64",
		{VCPUs: 1, MemoryGiB: 2, Arch: "arm64"}:    "c4a-highcpu-1",
		{VCPUs: 2, MemoryGiB: 8, Arch: "arm64"}:    "c4a-standard-2",
	} {
		if got := candidates(size); len(got) == 0 || got[0].name != want || len(got) > 12 {
			t.Errorf("%+v: %v, want %s first", size, got, want)
		}
	}
	if got := maintenanceOf("a3-highgpu-8g"); got != "TERMINATE" {
		t.Errorf("a machine with GPUs: %s", got)
	}
}
