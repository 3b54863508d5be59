package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// check resolves zones, image and type, as stepValidate does.
func (g vmRig) check(ctx context.Context, r *pipeline.Run) error {
	g.infra().Account = "123456789012"
	_, err := g.p.Check(ctx, r)
	return err
}

// launch goes as far as running VMs, before anything looks into them.
func (g vmRig) launch() error {
	g.Helper()
	if err := g.try(false, g.check, g.p.EnsureNetwork, g.p.EnsureIdentity); err != nil {
		return err
	}
	g.world.Step(time.Minute) // IAM's objects are visible to EC2
	return g.try(false, g.p.EnsureLaunchTemplate, g.p.EnsureVMs)
}

func (g vmRig) launched() {
	g.Helper()
	if err := g.launch(); err != nil {
		g.Fatalf("launch: %v\n%s", err, g.books(30))
	}
}

func (g vmRig) removed() {
	g.Helper()
	g.another()
	if err := g.try(true, g.p.RemoveVMs, g.p.RemoveLaunchTemplate, g.p.RemoveIdentity, g.p.RemoveNetwork); err != nil {
		g.Fatalf("remove: %v\n%s", err, g.books(30))
	}
}

// instances is every instance of ours that has not ended, by state.
func (g vmRig) instances() map[string]int {
	out := map[string]int{}
	for _, o := range g.world.Objects(sim.ObjectFilter{Kind: "instance"}) {
		if o.State != "terminated" {
			out[o.State]++
		}
	}
	return out
}

func (g vmRig) zones() (out []string) {
	for _, vm := range g.infra().VMs {
		out = append(out, vm.Zone)
	}
	return out
}

// twoZones are the zones that the check has chosen.
func (g vmRig) twoZones() (first, second string) {
	g.Helper()
	if err := g.try(false, g.check); err != nil || len(g.infra().Zones) != 2 {
		g.Fatalf("zones %v, %v", g.infra().Zones, err)
	}
	return g.infra().Zones[0], g.infra().Zones[1]
}

var twoRunning = map[string]int{"running": 2}

func TestLaunchFixed(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, fixedSpec)
	before := g.world.Snapshot()
	g.launched()
	if d := cmp.Diff(twoRunning, g.instances()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(g.infra().Zones, g.zones()); d != "" {
		t.Error(d)
	}
	changes := map[string]int{} // those that did something
	for _, e := range g.world.Books(sim.BookFilter{Limit: 100000}) {
		if e.Mutating && e.Done && e.Status == 200 {
			changes[e.Operation]++
		}
	}
	for op, want := range map[string]int{"CreateSecurityGroup": 1, "AuthorizeSecurityGroupIngress": 0, "CreateLaunchTemplate": 1, "CreateLaunchTemplateVersion": 0, "RunInstances": 2} {
		if changes[op] != want {
			t.Errorf("%s was called %d times, want %d", op, changes[op], want)
		}
	}
	g.removed()
	g.equal(before)
}

// A zone without room is no reason to stop while another one has some, and a
// launch that is tried elsewhere never rides on a used token (G4, A14).
func TestLaunchMovesOnToAnotherZone(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, fixedSpec)
	full, free := g.twoZones()
	g.fault(sim.Fault{Service: "ec2", Operation: "RunInstances", Kind: sim.FaultCapacity, Match: full, Count: -1})
	g.launched()
	if d := cmp.Diff(twoRunning, g.instances()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{free, free}, g.zones()); d != "" {
		t.Error(d)
	}
}

// Room that comes back within the patience is waited for; none at all stops the
// job in bounded time, with the cloud's words (G4, G5).
func TestLaunchWaitsForRoom(t *testing.T) {
	t.Parallel()
	t.Run("comes back", func(t *testing.T) {
		t.Parallel()
		g := newVMs(t, sim.Options{}, fixedSpec)
		g.fault(sim.Fault{Service: "ec2", Operation: "RunInstances", Kind: sim.FaultCapacity, Count: 12})
		g.launched()
		if d := cmp.Diff(twoRunning, g.instances()); d != "" {
			t.Error(d)
		}
	})
	t.Run("never", func(t *testing.T) {
		t.Parallel()
		g := newVMs(t, sim.Options{}, fixedSpec)
		g.fault(sim.Fault{Service: "ec2", Operation: "RunInstances", Kind: sim.FaultCapacity, Count: -1})
		err := g.launch()
		if fatalCode(err) != "no-capacity" || !strings.Contains(err.Error(), "t3.medium") {
			t.Fatalf("launch ended with %v, want no-capacity that names the type", err)
		}
		if len(g.instances()) > 0 {
			t.Errorf("instances: %v", g.instances())
		}
		g.world.ClearFaults("")
		g.another()
		g.launched()
	})
}

// A lost answer is repeated with its token, in the zone where it was lost,
// however often a worker dies on it (A1, A2).
func TestLaunchWithLostAnswers(t *testing.T) {
	t.Parallel()
	for n := range 3 {
		t.Run(fmt.Sprintf("after %d", n), func(t *testing.T) {
			t.Parallel()
			g := newVMs(t, sim.Options{}, fixedSpec)
			full, _ := g.twoZones()
			g.fault(sim.Fault{Service: "ec2", Operation: "RunInstances", Kind: sim.FaultCapacity, Match: full, Count: -1})
			g.fault(sim.Fault{Service: "ec2", Operation: "RunInstances", Kind: sim.FaultLostReply, After: n, Count: 4})
			g.fault(sim.Fault{Service: "ec2", Operation: "DescribeInstances", Kind: sim.FaultHidden, Seconds: 30})
			g.launched()
			if d := cmp.Diff(twoRunning, g.instances()); d != "" {
				t.Errorf("%s\n%s", d, g.books(40))
			}
			g.hit()
			if got := g.created(kindInstance); got != 2 {
				t.Errorf("the ledger has %d VMs", got)
			}
		})
	}
}

// A VM that ends by itself before it runs shows the cloud's reason at once, and
// a retry launches another (I10).
func TestLaunchEndsByItself(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, fixedSpec)
	g.fault(sim.Fault{Service: "ec2", Operation: "RunInstances", Kind: sim.FaultOpFailed, Code: "Client.VolumeLimitExceeded", Message: "Client.VolumeLimitExceeded: Volume limit exceeded"})
	err := g.launch()
	if fatalCode(err) != "object-ended" || !strings.Contains(err.Error(), "VolumeLimitExceeded") {
		t.Fatalf("launch ended with %v, want the state reason", err)
	}
	g.another()
	g.launched()
	if d := cmp.Diff(twoRunning, g.instances()); d != "" {
		t.Error(d)
	}
}

// One read that does not show a VM, or many for a while, launches nothing (D1, D2).
func TestLaunchHiddenInstances(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, fixedSpec)
	g.fault(sim.Fault{Service: "ec2", Operation: "DescribeInstances", Kind: sim.FaultHidden, Count: 6})
	g.launched()
	g.another()
	g.fault(sim.Fault{Service: "ec2", Operation: "DescribeInstances", Kind: sim.FaultHidden, Count: 3})
	g.launched()
	if d := cmp.Diff(twoRunning, g.instances()); d != "" {
		t.Error(d)
	}
	g.hit()
	if _, changes := g.calls(0); changes["RunInstances"] != 2 {
		t.Errorf("RunInstances was called %d times", changes["RunInstances"])
	}
}

// IAM's fresh profile is invalid to EC2 for minutes (D5).
func TestLaunchBeforeProfileIsVisible(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, fixedSpec)
	g.fault(sim.Fault{Service: "ec2", Operation: "RunInstances", Kind: sim.FaultError, Status: 400, Count: 30,
		Code: "InvalidParameterValue", Message: "Value (shop) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"})
	g.launched()
	if d := cmp.Diff(twoRunning, g.instances()); d != "" {
		t.Error(d)
	}
}

// A smaller pool after a failure gives back what it no longer asks for.
func TestLaunchSmallerPool(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, `{"pool":{"count":3,"instanceType":"t3.medium"}}`)
	before := g.world.Snapshot()
	g.launched()
	g.job.Config.Spec = []byte(fixedSpec)
	g.another()
	g.launched()
	if d := cmp.Diff(twoRunning, g.instances()); d != "" {
		t.Error(d)
	}
	if n := len(g.infra().VMs); n != 2 {
		t.Errorf("%d VMs are recorded", n)
	}
	g.removed()
	g.equal(before)
}

// Somebody else's group that refers to ours is named and left alone; one of
// our own is freed (E7).
func TestRemoveGroupInUse(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, fixedSpec)
	g.launched()
	vm := g.infra().VMSecurityGroupID
	g.place("ec2", "CreateSecurityGroup", map[string]any{"GroupName": "theirs", "GroupDescription": "theirs", "VpcId": g.infra().NetworkID,
		"TagSpecification": []any{map[string]any{"ResourceType": "security-group", "Tag": []any{map[string]any{"Key": "Name", "Value": "theirs"}}}}})
	theirs := ""
	for _, o := range g.world.Objects(sim.ObjectFilter{}) {
		if o.Name == "theirs" && strings.HasPrefix(o.ID, "sg-") {
			theirs = o.ID
		}
	}
	rule := map[string]any{"GroupId": theirs, "IpPermissions": []any{map[string]any{"IpProtocol": "tcp", "FromPort": 80, "ToPort": 80, "Groups": []any{map[string]any{"GroupId": vm}}}}}
	g.place("ec2", "AuthorizeSecurityGroupIngress", rule)
	g.another()
	err := g.try(true, g.p.RemoveVMs, g.p.RemoveLaunchTemplate)
	if err == nil || !strings.Contains(err.Error(), theirs) {
		t.Fatalf("removal ended with %v, want one that names %s", err, theirs)
	}
	for _, e := range g.world.Books(sim.BookFilter{Limit: 100000}) {
		if e.Mutating && slices.Contains(e.Resources, theirs) && e.Caller != "" && e.Operation != "CreateSecurityGroup" && e.Operation != "AuthorizeSecurityGroupIngress" {
			t.Errorf("%s touched %s", e.Operation, theirs)
		}
	}
	g.place("ec2", "RevokeSecurityGroupIngress", rule)
	if err := g.try(true, g.p.RemoveLaunchTemplate); err != nil {
		t.Errorf("once the rule is gone: %v", err)
	}
}

// What can drift is found attribute by attribute.
func TestTemplateDrift(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, fixedSpec)
	g.launched()
	g.place("ec2", "AuthorizeSecurityGroupIngress", map[string]any{"GroupId": g.infra().VMSecurityGroupID,
		"IpPermissions": []any{map[string]any{"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": []any{map[string]any{"CidrIp": "0.0.0.0/0"}}}}})
	g.another()
	r := g.run(pipeline.Verify)
	ctx := pipeline.WithGate(t.Context(), pipeline.ReadOnly)
	if err := g.p.EnsureLaunchTemplate(ctx, r); err != nil {
		t.Fatal(err)
	}
	want := []pipeline.Drift{{Kind: kindSecurityGroup, Key: "vm", ID: g.infra().VMSecurityGroupID, Attr: "ingress", Wanted: "none", Seen: "tcp 22 0.0.0.0/0"}}
	if d := cmp.Diff(want, r.Drift()); d != "" {
		t.Error(d)
	}
}

func TestPlanAsksNothing(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{fixedDNSSpec, groupLBSpec} {
		g := newVMs(t, sim.Options{}, spec)
		r := g.run(pipeline.Plan)
		ctx := t.Context()
		for _, f := range []step{g.p.EnsureNetwork, g.p.EnsureIdentity, g.p.EnsureLaunchTemplate, g.p.EnsureVMs, g.p.EnsureLoadBalancer, g.p.EnsureTargetGroup, g.p.EnsureListener, g.p.EnsureRecord} {
			if err := f(ctx, r); err != nil {
				t.Fatal(err)
			}
		}
		if calls := g.mark(); calls > 0 {
			t.Errorf("a plan made %d calls\n%s", calls, g.books(20))
		}
		kinds := map[string]int{}
		for _, o := range r.Planned() {
			kinds[o.Kind]++
		}
		want := map[string]int{kindSecurityGroup: 2, kindLaunchTemplate: 1, kindLoadBalancer: 1, kindTargetGroup: 1, kindListener: 1}
		if spec == groupLBSpec {
			want[kindScalingGroup] = 1
		} else {
			want[kindInstance], want[kindRecord] = 2, 1
		}
		for k, n := range want {
			if kinds[k] != n {
				t.Errorf("the plan has %d of %s, want %d", kinds[k], k, n)
			}
		}
	}
}
