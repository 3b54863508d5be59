package gcp

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/sim"
)

// template makes an instance template of the test's network.
func (g *rig) template(name, machineType string) {
	g.t.Helper()
	in := vm("none")
	g.fine(g.compute().InstanceTemplates.Insert(testProject, &compute.InstanceTemplate{Name: name, Properties: &compute.InstanceProperties{MachineType: machineType,
		Disks: in.Disks, NetworkInterfaces: in.NetworkInterfaces, Metadata: in.Metadata, Tags: in.Tags, Labels: in.Labels}}).Do())
}

// pool makes a regional managed group.
func (g *rig) pool(size int64, change ...func(*compute.InstanceGroupManager)) {
	g.t.Helper()
	m := &compute.InstanceGroupManager{Name: "pool", BaseInstanceName: "pool", InstanceTemplate: "global/instanceTemplates/t1", TargetSize: size,
		NamedPorts: []*compute.NamedPort{{Name: "http", Port: 80}}}
	for _, f := range change {
		f(m)
	}
	g.fine(g.compute().RegionInstanceGroupManagers.Insert(testProject, testRegion, m).Do())
}

func (g *rig) managed() []*compute.ManagedInstance {
	g.t.Helper()
	l, err := g.compute().RegionInstanceGroupManagers.ListManagedInstances(testProject, testRegion, "pool").Do()
	if err != nil {
		g.t.Fatal(err)
	}
	return l.ManagedInstances
}

func (g *rig) manager() *compute.InstanceGroupManager {
	g.t.Helper()
	m, err := g.compute().RegionInstanceGroupManagers.Get(testProject, testRegion, "pool").Do()
	if err != nil {
		g.t.Fatal(err)
	}
	return m
}

// settle steps the clock until the group is stable.
func (g *rig) settle() *compute.InstanceGroupManager {
	g.t.Helper()
	for range 200 {
		if m := g.manager(); m.Status.IsStable {
			return m
		}
		g.world.Step(10 * time.Second)
	}
	g.t.Fatalf("the group does not become stable: %+v", g.manager().CurrentActions)
	return nil
}

func managedGroupRig(t *testing.T) *rig {
	t.Helper()
	g := newRig(t)
	g.vpc("10.40.0.0/24", true)
	g.admitProbes()
	g.template("t1", "e2-medium")
	return g
}

func TestManagedGroupLife(t *testing.T) {
	t.Parallel()
	g := managedGroupRig(t)
	s := g.compute()
	g.pool(3)
	if m := g.manager(); m.Status.IsStable || m.CurrentActions.Creating == 0 {
		t.Errorf("fresh group: %+v %+v", m.Status, m.CurrentActions)
	}
	g.settle()
	zones := map[string]bool{}
	for _, i := range g.managed() {
		if i.CurrentAction != "NONE" || i.InstanceStatus != "RUNNING" || !strings.HasPrefix(i.Name, "pool-") || i.Version.InstanceTemplate != apiRoot+"projects/example-project/global/instanceTemplates/t1" {
			t.Errorf("instance %+v", i)
		}
		zones[strings.Split(i.Instance, "/")[8]] = true
	}
	if len(zones) != 3 {
		t.Errorf("spread over %v", zones)
	}
	group, err := s.RegionInstanceGroups.Get(testProject, testRegion, "pool").Do()
	if err != nil || group.Size != 3 || len(group.NamedPorts) != 1 {
		t.Errorf("group %+v, %v", group, err)
	}
	_, err = s.InstanceTemplates.Delete(testProject, "t1").Do()
	if e := refused(t, err, 400, "resourceInUseByAnotherResource"); e.Message != "The instance_template resource 'projects/example-project/global/instanceTemplates/t1' is already being used by "+
		"'projects/example-project/regions/us-central1/instanceGroupManagers/pool'" {
		t.Errorf("message %q", e.Message)
	}
	g.fine(s.RegionInstanceGroupManagers.Resize(testProject, testRegion, "pool", 1).Do())
	g.settle()
	if got := g.managed(); len(got) != 1 {
		t.Errorf("%d instances after the resize", len(got))
	}
	// Somebody deletes the instance: the group makes one of the same name again.
	was := g.managed()[0]
	zone := strings.Split(was.Instance, "/")[8]
	g.fine(s.Instances.Delete(testProject, zone, was.Name).Do())
	g.world.Step(3 * time.Second)
	g.settle()
	if now := g.managed()[0]; now.Name != was.Name || now.Id == was.Id {
		t.Errorf("repaired %+v, was %+v", now, was)
	}
	g.fine(s.RegionInstanceGroupManagers.Delete(testProject, testRegion, "pool").Do())
	if left := g.world.Objects(sim.ObjectFilter{Kind: "instance"}); len(left) != 0 {
		t.Errorf("left: %d instances", len(left))
	}
	if left := g.world.Objects(sim.ObjectFilter{Kind: "disk"}); len(left) != 0 {
		t.Errorf("left: %d disks", len(left))
	}
	g.fine(s.InstanceTemplates.Delete(testProject, "t1").Do())
}

// A group whose instances cannot be made says why, and goes on trying.
func TestManagedGroupErrors(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, code string }{{"no capacity", "ZONE_RESOURCE_POOL_EXHAUSTED"}, {"no quota", "QUOTA_EXCEEDED"}, {"no addresses", "IP_SPACE_EXHAUSTED"}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t)
			cidr := "10.40.0.0/24"
			if tc.code == "IP_SPACE_EXHAUSTED" {
				cidr = "10.40.0.0/29"
			}
			g.vpc(cidr, true)
			g.template("t1", "e2-medium")
			switch tc.code {
			case "QUOTA_EXCEEDED":
				g.world.SetQuota("gcp", "compute", quotaCode("CPUS", false), testProject, testRegion, 8)
			case "ZONE_RESOURCE_POOL_EXHAUSTED":
				if _, err := g.world.AddFault(sim.Fault{Kind: sim.FaultCapacity, Match: "us-central1-b", Count: -1}); err != nil {
					t.Fatal(err)
				}
			}
			g.pool(6)
			g.world.Step(2 * time.Minute)
			m := g.manager()
			if m.Status.IsStable || m.CurrentActions.Creating == 0 || m.CurrentActions.None < 4 {
				t.Errorf("%+v %+v", m.Status, m.CurrentActions)
			}
			var codes []string
			for _, i := range g.managed() {
				if i.LastAttempt != nil && i.LastAttempt.Errors != nil {
					codes = append(codes, i.LastAttempt.Errors.Errors[0].Code)
				}
			}
			if !slices.Contains(codes, tc.code) {
				t.Errorf("last attempts %v", codes)
			}
			errs, err := g.compute().RegionInstanceGroupManagers.ListErrors(testProject, testRegion, "pool").Do()
			if err != nil || len(errs.Items) == 0 || errs.Items[0].Error.Code != tc.code || !strings.HasPrefix(errs.Items[0].Error.Message, "Instance 'pool-") ||
				errs.Items[0].InstanceActionDetails.Action != "CREATING" {
				t.Errorf("errors %+v, %v", errs, err)
			}
			g.world.ClearFaults("")
			g.world.SetQuota("gcp", "compute", quotaCode("CPUS", false), testProject, testRegion, 72)
			if tc.code != "IP_SPACE_EXHAUSTED" {
				g.settle()
			}
		})
	}
}

// An instance that does not pass the group's health check is made again.
func TestAutohealing(t *testing.T) {
	t.Parallel()
	g := managedGroupRig(t)
	s := g.compute()
	g.fine(s.HealthChecks.Insert(testProject, &compute.HealthCheck{Name: "heal", Type: "HTTP", CheckIntervalSec: 10, HttpHealthCheck: &compute.HTTPHealthCheck{Port: 80, RequestPath: "/healthz"}}).Do())
	if _, err := g.world.AddFault(sim.Fault{Kind: sim.FaultGuest, Mode: "health", Match: "pool-"}); err != nil {
		t.Fatal(err)
	}
	g.pool(1, func(m *compute.InstanceGroupManager) {
		m.AutoHealingPolicies = []*compute.InstanceGroupManagerAutoHealingPolicy{{HealthCheck: "global/healthChecks/heal", InitialDelaySec: 300}}
	})
	g.world.Step(time.Minute)
	sick := g.managed()[0]
	if sick.CurrentAction != "VERIFYING" {
		t.Errorf("within the initial delay: %s", sick.CurrentAction)
	}
	if _, err := s.HealthChecks.Delete(testProject, "heal").Do(); err == nil {
		t.Error("the health check of a managed group was deleted")
	}
	g.world.Step(20 * time.Minute)
	g.settle()
	now := g.managed()[0]
	if now.Id == sick.Id || now.Name != sick.Name || len(now.InstanceHealth) != 1 || now.InstanceHealth[0].DetailedHealthState != "HEALTHY" {
		t.Errorf("after healing: %+v, was %d", now, sick.Id)
	}
}

func TestRollingUpdate(t *testing.T) {
	t.Parallel()
	g := managedGroupRig(t)
	g.template("t2", "e2-small")
	g.pool(3)
	g.settle()
	m := g.manager()
	g.fine(g.compute().RegionInstanceGroupManagers.Patch(testProject, testRegion, "pool", &compute.InstanceGroupManager{InstanceTemplate: "global/instanceTemplates/t2", Fingerprint: m.Fingerprint,
		UpdatePolicy: &compute.InstanceGroupManagerUpdatePolicy{Type: "PROACTIVE", MaxSurge: &compute.FixedOrPercent{Fixed: 3}, MaxUnavailable: &compute.FixedOrPercent{Fixed: 0, ForceSendFields: []string{"Fixed"}}}}).Do())
	if m := g.manager(); m.Status.VersionTarget.IsReached || m.Status.IsStable {
		t.Errorf("at the start of the update: %+v", m.Status)
	}
	m = g.settle()
	if !m.Status.VersionTarget.IsReached || len(g.managed()) != 3 {
		t.Errorf("after the update: %+v, %d instances", m.Status, len(g.managed()))
	}
	for _, i := range g.managed() {
		if !strings.HasSuffix(i.Version.InstanceTemplate, "/t2") {
			t.Errorf("instance of %s", i.Version.InstanceTemplate)
		}
	}
	_, err := g.compute().RegionInstanceGroupManagers.Patch(testProject, testRegion, "pool", &compute.InstanceGroupManager{
		UpdatePolicy: &compute.InstanceGroupManagerUpdatePolicy{MaxSurge: &compute.FixedOrPercent{Fixed: 1}}}).Do()
	if e := refused(t, err, 400, "invalid"); !strings.Contains(e.Message, "either 0 or at least equal to the number of zones") {
		t.Errorf("message %q", e.Message)
	}
}

func TestAutoscaler(t *testing.T) {
	t.Parallel()
	g := managedGroupRig(t)
	s := g.compute()
	g.pool(1)
	a := &compute.Autoscaler{Name: "pool", Target: "regions/us-central1/instanceGroupManagers/pool", AutoscalingPolicy: &compute.AutoscalingPolicy{MinNumReplicas: 2, MaxNumReplicas: 4}}
	g.fine(s.RegionAutoscalers.Insert(testProject, testRegion, a).Do())
	if m := g.settle(); m.TargetSize != 2 || m.Status.Autoscaler != apiRoot+"projects/example-project/regions/us-central1/autoscalers/pool" {
		t.Errorf("group %+v", m)
	}
	_, err := s.RegionInstanceGroupManagers.Resize(testProject, testRegion, "pool", 3).Do()
	refused(t, err, 400, "invalidUsage")
	_, err = s.RegionInstanceGroupManagers.Delete(testProject, testRegion, "pool").Do()
	refused(t, err, 400, "resourceInUseByAnotherResource")
	second := *a
	second.Name = "second"
	_, err = s.RegionAutoscalers.Insert(testProject, testRegion, &second).Do()
	refused(t, err, 400, "invalid")
	g.fine(s.RegionAutoscalers.Patch(testProject, testRegion, &compute.Autoscaler{AutoscalingPolicy: &compute.AutoscalingPolicy{MinNumReplicas: 3, MaxNumReplicas: 4}}).Autoscaler("pool").Do())
	if m := g.settle(); m.TargetSize != 3 {
		t.Errorf("size %d after the minimum was raised", m.TargetSize)
	}
	got, err := s.RegionAutoscalers.Get(testProject, testRegion, "pool").Do()
	if err != nil || got.Status != "ACTIVE" || got.AutoscalingPolicy.CpuUtilization == nil || got.RecommendedSize != 3 {
		t.Errorf("autoscaler %+v, %v", got, err)
	}
	g.fine(s.RegionAutoscalers.Delete(testProject, testRegion, "pool").Do())
	g.fine(s.RegionInstanceGroupManagers.Delete(testProject, testRegion, "pool").Do())
}

// A managed group behind a load balancer: its instances get healthy, and it cannot be deleted before the backend service.
func TestManagedGroupBehindBalancer(t *testing.T) {
	t.Parallel()
	g := managedGroupRig(t)
	g.pool(2)
	group := "regions/" + testRegion + "/instanceGroups/pool"
	g.balancer(group)
	g.frontEnd()
	g.world.Step(10 * time.Minute)
	if got := g.health(group); !slices.Equal(got, []string{"HEALTHY", "HEALTHY"}) {
		t.Errorf("health %v", got)
	}
	_, err := g.compute().RegionInstanceGroupManagers.Delete(testProject, testRegion, "pool").Do()
	if e := refused(t, err, 400, "resourceInUseByAnotherResource"); !strings.HasPrefix(e.Message, "The instance_group_manager resource ") || !strings.HasSuffix(e.Message, "global/backendServices/web'") {
		t.Errorf("message %q", e.Message)
	}
}
