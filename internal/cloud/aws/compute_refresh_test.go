package aws

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// The observer follows what happens to VMs, and only reads.
func TestRefreshVMs(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, fixedSpec)
	g.create()
	one, two := g.infra().VMs[0].InstanceID, g.infra().VMs[1].InstanceID
	states := func() []job.VMState {
		t.Helper()
		if err := g.p.RefreshVMs(pipeline.WithGate(t.Context(), pipeline.ReadOnly), g.job); err != nil {
			t.Fatal(err)
		}
		return []job.VMState{g.infra().VMs[0].State, g.infra().VMs[1].State}
	}
	if d := cmp.Diff([]job.VMState{job.VMReady, job.VMReady}, states()); d != "" {
		t.Error(d)
	}
	g.invoke("ec2", "StopInstances", map[string]any{"InstanceId": []any{one}})
	g.invoke("ec2", "TerminateInstances", map[string]any{"InstanceId": []any{two}})
	if d := cmp.Diff([]job.VMState{job.VMStopped, job.VMTerminating}, states()); d != "" {
		t.Error(d)
	}
	g.world.Step(3 * minute)
	if d := cmp.Diff([]job.VMState{job.VMStopped, job.VMTerminated}, states()); d != "" {
		t.Error(d)
	}
	if g.infra().VMs[1].LastError == "" {
		t.Error("the terminated VM has no reason")
	}
	drift, _ := g.verify()
	kinds := map[string]bool{}
	for _, d := range drift {
		kinds[d.Kind+" "+d.Key+" "+d.Attr] = true
	}
	for _, want := range []string{"ec2:instance vm-1 state", "ec2:instance vm-2 exists"} {
		if !kinds[want] {
			t.Errorf("the drift %v has no %s", drift, want)
		}
	}
	g.invoke("ec2", "StartInstances", map[string]any{"InstanceId": []any{one}})
	g.world.Step(3 * minute)
	if d := cmp.Diff([]job.VMState{job.VMReady, job.VMTerminated}, states()); d != "" {
		t.Error(d)
	}
}

// A scaling group's members come and go, and the list follows.
func TestRefreshGroup(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, groupLBSpec)
	g.create()
	was := g.infra().VMs
	g.invoke("ec2", "TerminateInstances", map[string]any{"InstanceId": []any{was[0].InstanceID}})
	for range 40 {
		g.world.Step(minute)
	}
	ctx := pipeline.WithGate(t.Context(), pipeline.ReadOnly)
	if err := g.p.RefreshVMs(ctx, g.job); err != nil {
		t.Fatal(err)
	}
	if n := len(g.infra().VMs); n != 2 {
		t.Fatalf("%d VMs: %+v", n, g.infra().VMs)
	}
	for _, vm := range g.infra().VMs {
		if vm.InstanceID == was[0].InstanceID || vm.State != job.VMReady {
			t.Errorf("VM is %+v", vm)
		}
	}
	health, err := g.p.TargetHealth(ctx, g.job)
	if err != nil || len(health) != 2 {
		t.Errorf("targets %v, %v", health, err)
	}
}

// adopting is a second job that points at what the first has, or at something
// else.
func (g vmRig) adopting(spec string) vmRig {
	g.Helper()
	a := vmRig{&rig{TB: g.TB, world: g.world, cloud: g.cloud, p: g.p, objects: map[string]job.Object{}, memory: pipeline.NewMemory()}}
	a.job = &job.Job{ID: job.NewID("job"), OrgID: "org_1", Kind: job.Provisioning, ResourceType: job.VM, Provider: job.AWS, Mode: job.ModeAdopt,
		Name: "old-shop", CloudAccountID: "default", Region: "us-east-1", Config: job.Config{Spec: json.RawMessage(spec)}}
	if err := a.job.Validate(); err != nil {
		g.Fatal(err)
	}
	return a
}

// placed is somebody else's VM with everything that a risk note is about.
func (g vmRig) placed() (instance string) {
	g.Helper()
	vpc := g.invoke("ec2", "CreateVpc", map[string]any{"CidrBlock": "10.99.0.0/16"})
	subnet := g.invoke("ec2", "CreateSubnet", map[string]any{"VpcId": vpc, "CidrBlock": "10.99.1.0/24", "AvailabilityZone": "us-east-1a"})
	group := g.invoke("ec2", "CreateSecurityGroup", map[string]any{"GroupName": "legacy", "GroupDescription": "legacy", "VpcId": vpc})
	g.invoke("ec2", "AuthorizeSecurityGroupIngress", map[string]any{"GroupId": group,
		"IpPermissions": []any{map[string]any{"IpProtocol": "tcp", "FromPort": 20, "ToPort": 25, "IpRanges": []any{map[string]any{"CidrIp": "0.0.0.0/0"}}}}})
	image := ""
	for _, e := range g.world.Books(sim.BookFilter{Operation: "DescribeImages", Limit: 1}) {
		image = e.Resources[0]
	}
	out, err := g.cloud.Invoke("ec2", "RunInstances", "123456789012", "us-east-1", map[string]any{"ImageId": image, "InstanceType": "t3.micro", "MinCount": 1, "MaxCount": 1,
		"SubnetId": subnet, "SecurityGroupId": []any{group}, "MetadataOptions": map[string]any{"HttpTokens": "optional"}})
	if err != nil {
		g.Fatal(err)
	}
	text, err := json.Marshal(out)
	if err != nil {
		g.Fatal(err)
	}
	for _, o := range g.world.Objects(sim.ObjectFilter{Kind: "instance"}) {
		if strings.Contains(string(text), o.ID) {
			instance = o.ID
		}
	}
	g.world.Step(2 * minute)
	return instance
}

// An adopt job reads, notes risks and changes nothing, not even when it goes.
func TestAdoptVMs(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, fixedSpec)
	if err := g.try(false, g.check); err != nil {
		t.Fatal(err)
	}
	id := g.placed()
	a := g.adopting(fmt.Sprintf(`{"adopt":{"ids":[%q]}}`, id))
	since := g.mark()
	a.create()
	if len(a.infra().VMs) != 1 || a.infra().VMs[0].InstanceID != id || a.infra().VMs[0].State != job.VMReady {
		t.Errorf("VMs: %+v", a.infra().VMs)
	}
	notes := strings.Join(a.infra().Warnings, "\n")
	for _, want := range []string{"IMDSv1", "is not encrypted", "opens port 22 to 0.0.0.0/0", "not registered with Systems Manager"} {
		if !strings.Contains(notes, want) {
			t.Errorf("no note says %q in:\n%s", want, notes)
		}
	}
	a.asAsked()
	a.teardown()
	if _, changes := g.calls(since); len(changes) > 0 {
		t.Errorf("the adopt job changed %v", changes)
	}
}

// What is not there, is another job's, or is in another account is refused.
func TestAdoptRefusals(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, groupSpec)
	g.create()
	for name, spec := range map[string]string{
		"not-found":            `{"adopt":{"ids":["i-0123456789abcdef0"]}}`,
		"owned-by-another-job": fmt.Sprintf(`{"adopt":{"name":%q}}`, g.infra().ScalingGroupID),
		"wrong-account":        `{"adopt":{"ids":["arn:aws:ec2:us-east-1:111122223333:instance/i-0123456789abcdef0"]}}`,
	} {
		a := g.adopting(spec)
		a.infra().Account = "123456789012"
		if err := a.try(false, a.p.AdoptVMs); fatalCode(err) != name {
			t.Errorf("%s: ended with %v", name, err)
		}
	}
	a := g.adopting(fmt.Sprintf(`{"adopt":{"ids":[%q]}}`, g.infra().VMs[0].InstanceID))
	if err := a.try(false, a.p.AdoptVMs); fatalCode(err) != "owned-by-another-job" {
		t.Errorf("another job's instance: ended with %v", err)
	}
}
