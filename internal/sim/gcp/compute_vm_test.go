package gcp

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/api/compute/v1"
	"google.golang.org/api/osconfig/v1"

	"github.com/zopday/provisioner/internal/sim"
)

const (
	testZone   = "us-central1-a"
	testRegion = "us-central1"
	ubuntu     = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2404-lts-amd64"
)

// publish is user data that ends with a guest attribute.
const publish = "#!/bin/sh\nset -eu\napt-get update\napt-get install -y docker.io\ndocker network create web\n" +
	"mkdir -p /etc/web\nprintf 'server { listen 80; location = /healthz { return 200; } location / { return 200; } }' >/etc/web/default.conf\n" +
	"docker run -d --name web --network web -p 80:80 -v /etc/web:/etc/nginx/conf.d:ro nginx:1.30\n" +
	"curl -fsS -X PUT --data complete -H 'Metadata-Flavor: Google' http://metadata.google.internal/computeMetadata/v1/instance/guest-attributes/app/state\n"

// vpc makes a network with one subnetwork, a firewall rule for health checks and, unless it is to be cut off, a Cloud NAT.
func (g *rig) vpc(cidr string, nat bool) {
	g.t.Helper()
	s := g.compute()
	g.fine(s.Networks.Insert(testProject, &compute.Network{Name: "shop", ForceSendFields: []string{"AutoCreateSubnetworks"}}).Do())
	g.fine(s.Subnetworks.Insert(testProject, testRegion, &compute.Subnetwork{Name: "shop", Network: "global/networks/shop", IpCidrRange: cidr}).Do())
	if nat {
		g.fine(s.Routers.Insert(testProject, testRegion, &compute.Router{Name: "shop", Network: "global/networks/shop", Nats: []*compute.RouterNat{{
			Name: "shop", NatIpAllocateOption: "AUTO_ONLY", SourceSubnetworkIpRangesToNat: "ALL_SUBNETWORKS_ALL_IP_RANGES"}}}).Do())
	}
}

func (g *rig) admitProbes() {
	g.t.Helper()
	g.fine(g.compute().Firewalls.Insert(testProject, &compute.Firewall{Name: "probes", Network: "global/networks/shop", SourceRanges: []string{"130.211.0.0/22", "35.191.0.0/16"},
		Allowed: []*compute.FirewallAllowed{{IPProtocol: "tcp", Ports: []string{"80"}}}, TargetTags: []string{"web"}}).Do())
}

// vm is an instance of the test's network without an external address.
func vm(name string, change ...func(*compute.Instance)) *compute.Instance {
	i := &compute.Instance{Name: name, MachineType: "zones/" + testZone + "/machineTypes/e2-medium",
		Disks:             []*compute.AttachedDisk{{Boot: true, AutoDelete: true, InitializeParams: &compute.AttachedDiskInitializeParams{SourceImage: ubuntu, DiskSizeGb: 20, Labels: map[string]string{"owner": "job"}}}},
		NetworkInterfaces: []*compute.NetworkInterface{{Subnetwork: "regions/" + testRegion + "/subnetworks/shop"}},
		Metadata:          metadata("enable-guest-attributes", "TRUE", "user-data", publish),
		Tags:              &compute.Tags{Items: []string{"web"}}, Labels: map[string]string{"owner": "job"}}
	for _, f := range change {
		f(i)
	}
	return i
}

func metadata(pairs ...string) *compute.Metadata {
	m := &compute.Metadata{}
	for p := range slices.Chunk(pairs, 2) {
		m.Items = append(m.Items, &compute.MetadataItems{Key: p[0], Value: &p[1]})
	}
	return m
}

func TestInstanceLife(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.vpc("10.40.0.0/24", true)
	s := g.compute()
	op, err := s.Instances.Insert(testProject, testZone, vm("web-1")).Do()
	if err != nil {
		t.Fatal(err)
	}
	status := func() string {
		i, err := s.Instances.Get(testProject, testZone, "web-1").Do()
		if err != nil {
			t.Fatal(err)
		}
		return i.Status
	}
	seen := []string{status()}
	g.world.Step(4 * time.Second)
	seen = append(seen, status())
	g.fine(op, nil)
	seen = append(seen, status())
	if want := []string{"PROVISIONING", "STAGING", "RUNNING"}; !slices.Equal(seen, want) {
		t.Errorf("states %v, want %v", seen, want)
	}
	i, err := s.Instances.Get(testProject, testZone, "web-1").Do()
	if err != nil {
		t.Fatal(err)
	}
	if nic := i.NetworkInterfaces[0]; nic.NetworkIP != "10.40.0.2" || len(nic.AccessConfigs) != 0 || nic.Network != apiRoot+"projects/example-project/global/networks/shop" {
		t.Errorf("interface %+v", nic)
	}
	if d := i.Disks[0]; d.DiskSizeGb != 20 || d.Source != apiRoot+"projects/example-project/zones/us-central1-a/disks/web-1" || d.InitializeParams != nil {
		t.Errorf("disk %+v", d)
	}
	if sh := i.ShieldedInstanceConfig; sh == nil || !sh.EnableVtpm || !sh.EnableIntegrityMonitoring {
		t.Errorf("shielded %+v", sh)
	}
	_, err = s.Instances.GetGuestAttributes(testProject, testZone, "web-1").QueryPath("app/").Do()
	if e := refused(t, err, 404, "notFound"); e.Message != "The resource 'app/' of type 'Guest Attribute' was not found." {
		t.Errorf("message %q", e.Message)
	}
	g.world.Step(10 * time.Minute)
	a, err := s.Instances.GetGuestAttributes(testProject, testZone, "web-1").QueryPath("app/").Do()
	if err != nil || len(a.QueryValue.Items) != 1 || a.QueryValue.Items[0].Value != "complete" {
		out, _ := s.Instances.GetSerialPortOutput(testProject, testZone, "web-1").Do()
		t.Fatalf("guest attributes %+v, %v\n%s", a, err, out.Contents)
	}
	one, err := s.Instances.GetGuestAttributes(testProject, testZone, "web-1").VariableKey("app/state").Do()
	if err != nil || one.VariableValue != "complete" {
		t.Errorf("one attribute %+v, %v", one, err)
	}
	g.fine(s.Instances.Stop(testProject, testZone, "web-1").Do())
	if status() != "TERMINATED" {
		t.Errorf("after stop: %s", status())
	}
	g.fine(s.Instances.Start(testProject, testZone, "web-1").Do())
	g.fine(s.Instances.SetDeletionProtection(testProject, testZone, "web-1").DeletionProtection(true).Do())
	_, err = s.Instances.Delete(testProject, testZone, "web-1").Do()
	refused(t, err, 400, "invalidUsage")
	g.fine(s.Instances.SetDeletionProtection(testProject, testZone, "web-1").DeletionProtection(false).Do())
	_, err = s.Subnetworks.Delete(testProject, testRegion, "shop").Do()
	if e := refused(t, err, 400, "resourceInUseByAnotherResource"); !strings.Contains(e.Message, "already being used by 'projects/example-project/zones/us-central1-a/instances/web-1'") {
		t.Errorf("message %q", e.Message)
	}
	_, err = s.Disks.Delete(testProject, testZone, "web-1").Do()
	refused(t, err, 400, "resourceInUseByAnotherResource")
	g.fine(s.Instances.Delete(testProject, testZone, "web-1").Do())
	_, err = s.Disks.Get(testProject, testZone, "web-1").Do()
	refused(t, err, 404, "notFound")
	g.fine(s.Subnetworks.Delete(testProject, testRegion, "shop").Do())
	if left := g.world.Residue("job"); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// What goes wrong when an instance is made: some of it at once, some only in the operation.
func TestInstanceRefusals(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.vpc("10.40.0.0/29", true)
	g.fine(g.compute().Instances.Insert(testProject, testZone, vm("there")).Do())
	big := strings.Repeat("x", 256<<10+1)
	for _, tc := range []struct {
		name   string
		change func(*compute.Instance)
		status int
		reason string
		text   string
	}{
		{"a name that exists", func(i *compute.Instance) { i.Name = "there" }, 409, "alreadyExists", "already exists"},
		{"a name in capitals", func(i *compute.Instance) { i.Name = "Web" }, 400, "invalid", "resource.name"},
		{"an unknown machine type", func(i *compute.Instance) { i.MachineType = "zones/us-central1-a/machineTypes/e9-huge" }, 400, "invalid",
			"Machine type with name 'e9-huge' does not exist in zone 'us-central1-a'."},
		{"a machine type of another zone", func(i *compute.Instance) { i.MachineType = "zones/us-central1-b/machineTypes/e2-medium" }, 400, "invalid", "machineType"},
		{"an unknown image", func(i *compute.Instance) {
			i.Disks[0].InitializeParams.SourceImage = "projects/ubuntu-os-cloud/global/images/family/none"
		}, 400, "invalid",
			"The referenced image resource cannot be found."},
		{"an image for other processors", func(i *compute.Instance) { i.MachineType = "zones/us-central1-a/machineTypes/t2a-standard-1" }, 400, "badRequest", "architecture"},
		{"a disk that the type does not take", func(i *compute.Instance) {
			i.MachineType, i.Disks[0].InitializeParams.DiskType = "zones/us-central1-a/machineTypes/n4-standard-2", "zones/us-central1-a/diskTypes/pd-balanced"
		}, 400, "badRequest", "pd-balanced disk type cannot be used by n4-standard-2 machine type."},
		{"a disk smaller than the image", func(i *compute.Instance) { i.Disks[0].InitializeParams.DiskSizeGb = 5 }, 400, "invalid", "smaller than the image size (10 GB)"},
		{"no disk", func(i *compute.Instance) { i.Disks = nil }, 400, "invalid", "No disks"},
		{"no subnetwork in a custom mode network", func(i *compute.Instance) {
			i.NetworkInterfaces = []*compute.NetworkInterface{{Network: "global/networks/shop"}}
		}, 400, "invalid", "Subnetwork should be specified for custom subnetmode network"},
		{"a subnetwork that is not there", func(i *compute.Instance) { i.NetworkInterfaces[0].Subnetwork = "regions/us-central1/subnetworks/none" }, 404, "notFound", "was not found"},
		{"a label in capitals", func(i *compute.Instance) { i.Labels = map[string]string{"env": "Prod"} }, 400, "invalid", "Label value 'Prod' violates format constraints."},
		{"metadata that is too long", func(i *compute.Instance) { i.Metadata = metadata("user-data", big) }, 400, "invalid", "262144"},
		{"an invalid tag", func(i *compute.Instance) { i.Tags = &compute.Tags{Items: []string{"Web!"}} }, 400, "invalid", "tags"},
		{"two service accounts", func(i *compute.Instance) {
			i.ServiceAccounts = []*compute.ServiceAccount{{Email: "a@b", Scopes: []string{"x"}}, {Email: "b@b", Scopes: []string{"x"}}}
		}, 400, "invalid", "Only one service account"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := g.compute().Instances.Insert(testProject, testZone, vm("web-1", tc.change)).Do()
			if e := refused(t, err, tc.status, tc.reason); !strings.Contains(e.Message, tc.text) {
				t.Errorf("message %q, want %q in it", e.Message, tc.text)
			}
		})
	}
	_, err := g.compute().Instances.Insert(testProject, "us-east1-b", vm("web-1", func(i *compute.Instance) { i.MachineType = "zones/us-east1-b/machineTypes/e2-medium" })).Do()
	refused(t, err, 400, "invalid")
}

// Failures that only the operation shows. What was made for the instance is gone with it.
func TestInstanceOperationErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		fault  *sim.Fault
		change func(*compute.Instance)
		code   string
	}{
		{"no capacity", &sim.Fault{Kind: sim.FaultCapacity, Match: testZone, Count: -1}, func(*compute.Instance) {}, "ZONE_RESOURCE_POOL_EXHAUSTED"},
		{"a service account that is not there", nil, func(i *compute.Instance) {
			i.ServiceAccounts = []*compute.ServiceAccount{{Email: "none@example-project.iam.gserviceaccount.com", Scopes: []string{"https://www.googleapis.com/auth/cloud-platform"}}}
		}, "EXTERNAL_RESOURCE_NOT_FOUND"},
		{"a full subnetwork", nil, func(i *compute.Instance) { i.NetworkInterfaces[0].Subnetwork = "regions/us-central1/subnetworks/shop" }, "IP_SPACE_EXHAUSTED"},
		{"an operation that fails", &sim.Fault{Kind: sim.FaultOpFailed, Operation: "instances.insert", Code: "INTERNAL_ERROR", Message: "Internal error."}, func(*compute.Instance) {}, "INTERNAL_ERROR"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			g.vpc("10.40.0.0/29", true)
			s := g.compute()
			if tc.code == "IP_SPACE_EXHAUSTED" {
				for _, n := range []string{"a", "b", "c", "d"} {
					g.fine(s.Instances.Insert(testProject, testZone, vm(n)).Do())
				}
			}
			if tc.fault != nil {
				if _, err := g.world.AddFault(*tc.fault); err != nil {
					t.Fatal(err)
				}
			}
			op := g.done(s.Instances.Insert(testProject, testZone, vm("web-1", tc.change)).Do())
			if op.Error == nil || op.Error.Errors[0].Code != tc.code || op.HttpErrorStatusCode == 0 {
				t.Fatalf("operation %+v", op)
			}
			_, err := s.Instances.Get(testProject, testZone, "web-1").Do()
			refused(t, err, 404, "notFound")
			_, err = s.Disks.Get(testProject, testZone, "web-1").Do()
			refused(t, err, 404, "notFound")
		})
	}
}

func TestCPUQuota(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.vpc("10.40.0.0/24", true)
	g.world.SetQuota("gcp", "compute", quotaCode("CPUS", false), testProject, testRegion, 3)
	s := g.compute()
	g.fine(s.Instances.Insert(testProject, testZone, vm("web-1")).Do())
	_, err := s.Instances.Insert(testProject, testZone, vm("web-2")).Do()
	if e := refused(t, err, 403, "quotaExceeded"); e.Message != "Quota 'CPUS' exceeded.  Limit: 3.0 in region us-central1." {
		t.Errorf("message %q", e.Message)
	}
	if left := g.world.Objects(sim.ObjectFilter{Kind: "disk"}); len(left) != 1 {
		t.Errorf("%d disks, want the one of web-1", len(left))
	}
}

func TestSetters(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.vpc("10.40.0.0/24", true)
	s := g.compute()
	g.fine(s.Instances.Insert(testProject, testZone, vm("web-1")).Do())
	i, err := s.Instances.Get(testProject, testZone, "web-1").Do()
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Instances.SetMetadata(testProject, testZone, "web-1", &compute.Metadata{Fingerprint: "AAAA"}).Do()
	refused(t, err, 412, "conditionNotMet")
	m := metadata("a", "b")
	m.Fingerprint = i.Metadata.Fingerprint
	g.fine(s.Instances.SetMetadata(testProject, testZone, "web-1", m).Do())
	_, err = s.Instances.SetTags(testProject, testZone, "web-1", &compute.Tags{Items: []string{"x"}, Fingerprint: "AAAA"}).Do()
	refused(t, err, 412, "conditionNotMet")
	g.fine(s.Instances.SetTags(testProject, testZone, "web-1", &compute.Tags{Items: []string{"x"}, Fingerprint: i.Tags.Fingerprint}).Do())
	_, err = s.Instances.SetLabels(testProject, testZone, "web-1", &compute.InstancesSetLabelsRequest{Labels: map[string]string{"a": "b"}, LabelFingerprint: "AAAA"}).Do()
	refused(t, err, 412, "conditionNotMet")
	g.fine(s.Instances.SetLabels(testProject, testZone, "web-1", &compute.InstancesSetLabelsRequest{Labels: map[string]string{"a": "b"}, LabelFingerprint: i.LabelFingerprint}).Do())
	_, err = s.Instances.SetMachineType(testProject, testZone, "web-1", &compute.InstancesSetMachineTypeRequest{MachineType: "zones/us-central1-a/machineTypes/e2-standard-4"}).Do()
	refused(t, err, 400, "badRequest")
	i, err = s.Instances.Get(testProject, testZone, "web-1").Do()
	if err != nil || len(i.Metadata.Items) != 1 || !slices.Equal(i.Tags.Items, []string{"x"}) || i.Labels["a"] != "b" || i.Status != "RUNNING" {
		t.Errorf("instance %+v, %v", i, err)
	}
	list, err := s.Instances.List(testProject, testZone).Filter("labels.a=b").Do()
	if err != nil || len(list.Items) != 1 {
		t.Errorf("by label: %v, %v", list, err)
	}
	n := 0
	err = s.Instances.AggregatedList(testProject).Filter("labels.a=b").Pages(context.Background(), func(l *compute.InstanceAggregatedList) error {
		for _, in := range l.Items {
			n += len(in.Instances)
		}
		return nil
	})
	if err != nil || n != 1 {
		t.Errorf("aggregated: %d, %v", n, err)
	}
}

// The OS inventory tells whether the agent is up: it needs metadata, a service account and a way to Google's APIs.
func TestInventory(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		change func(*compute.Instance)
		fault  string
		late   float64
		up     bool
	}{
		{"enabled", func(*compute.Instance) {}, "", 0, true},
		{"not enabled", func(i *compute.Instance) { i.Metadata = metadata("enable-osconfig", "FALSE") }, "", 0, false},
		{"without a service account", func(i *compute.Instance) { i.ServiceAccounts = nil }, "", 0, false},
		{"an agent that never comes", func(*compute.Instance) {}, "agent", 0, false},
		{"a late agent", func(*compute.Instance) {}, "agent", 120, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			g.vpc("10.40.0.0/24", true)
			if tc.fault != "" {
				if _, err := g.world.AddFault(sim.Fault{Kind: sim.FaultGuest, Mode: tc.fault, Match: "web-1", Seconds: tc.late}); err != nil {
					t.Fatal(err)
				}
			}
			g.fine(g.compute().Instances.Insert(testProject, testZone, vm("web-1", func(i *compute.Instance) {
				i.Metadata = metadata("enable-osconfig", "TRUE")
				i.ServiceAccounts = []*compute.ServiceAccount{{Email: "default", Scopes: []string{"https://www.googleapis.com/auth/cloud-platform"}}}
				tc.change(i)
			})).Do())
			s, err := osconfig.NewService(context.Background(), g.options("/")...)
			if err != nil {
				t.Fatal(err)
			}
			name := "projects/" + testProject + "/locations/" + testZone + "/instances/web-1/inventory"
			_, err = s.Projects.Locations.Instances.Inventories.Get(name).Do()
			refused(t, err, 404, "")
			g.world.Step(time.Minute)
			if tc.late > 0 {
				_, err = s.Projects.Locations.Instances.Inventories.Get(name).Do()
				refused(t, err, 404, "")
			}
			g.world.Step(5 * time.Minute)
			inv, err := s.Projects.Locations.Instances.Inventories.Get(name).Do()
			if up := err == nil; up != tc.up {
				t.Fatalf("inventory %+v, %v", inv, err)
			}
			if tc.up && (inv.OsInfo.ShortName != "ubuntu" || inv.OsInfo.OsconfigAgentVersion == "") {
				t.Errorf("inventory %+v", inv.OsInfo)
			}
		})
	}
}

// However a boot ends, cloud-init says so on the console; one that hangs says nothing.
func TestConsole(t *testing.T) {
	t.Parallel()
	const finished, failed = "Datasource DataSourceGCELocal.", "[FAILED] Failed to start cloud-final.service"
	for _, tc := range []struct {
		mode             string
		finished, failed bool
		text             string
	}{
		{"", true, false, " finished at "},
		{"cloud_init", true, true, "E: Unable to locate package docker-ce"},
		{"no_egress", true, true, "Failed to run part-001"},
		{"sentinel", false, false, "running 'modules:final'"},
		{"boot", false, false, "Kernel panic"},
	} {
		t.Run(tc.mode, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			g.vpc("10.40.0.0/24", true)
			if tc.mode != "" {
				g.fault(sim.Fault{Kind: sim.FaultGuest, Mode: tc.mode, Match: "web-1", Log: "E: Unable to locate package docker-ce"})
			}
			g.fine(g.compute().Instances.Insert(testProject, testZone, vm("web-1")).Do())
			g.world.Step(30 * time.Minute)
			out, err := g.compute().Instances.GetSerialPortOutput(testProject, testZone, "web-1").Do()
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(out.Contents, finished) != tc.finished || strings.Contains(out.Contents, failed) != tc.failed || !strings.Contains(out.Contents, tc.text) {
				t.Errorf("console:\n%s", out.Contents)
			}
			rest, err := g.compute().Instances.GetSerialPortOutput(testProject, testZone, "web-1").Start(out.Next).Do()
			if err != nil || rest.Contents != "" {
				t.Errorf("from the end on: %q, %v", rest.Contents, err)
			}
		})
	}
}
