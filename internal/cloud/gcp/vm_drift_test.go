package gcp

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

// A tampering is something that a person changes at the cloud, and the drift by
// which a verify names it.
type tampering struct {
	drift string // kind/key attribute
	seen  string // part of what is seen
	do    func(context.Context, vmRig) error
}

// done is only the error of a call that answers with an operation.
func done(_ *compute.Operation, err error) error { return err }

// What a person changes at the cloud is named, attribute by attribute, and a
// further run puts right what can be put right.
func TestVMDrift(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec      string
		tampering []tampering
	}{
		"fixed": {fixedTLSSpec, []tampering{
			{"compute:instance/vm-1 deletion protection", "no", func(ctx context.Context, g vmRig) error {
				return done(send(ctx, g.p.compute.Instances.SetDeletionProtection(testProject, g.infra().VMs[0].Zone, g.infra().VMs[0].Name).DeletionProtection(false)))
			}},
			{"compute:instance/vm-2 metadata", "enable-oslogin=UNSET", func(ctx context.Context, g vmRig) error {
				vm := g.infra().VMs[1]
				i, err := send(ctx, g.p.compute.Instances.Get(testProject, vm.Zone, vm.Name))
				if err != nil {
					return err
				}
				i.Metadata.Items = slices.DeleteFunc(i.Metadata.Items, func(x *compute.MetadataItems) bool { return x.Key == "enable-oslogin" })
				i.Metadata.Items = append(i.Metadata.Items, &compute.MetadataItems{Key: "theirs", Value: new("kept")})
				return done(send(ctx, g.p.compute.Instances.SetMetadata(testProject, vm.Zone, vm.Name, i.Metadata)))
			}},
			{"compute:firewall/vm-closed disabled", "true", func(ctx context.Context, g vmRig) error {
				return done(send(ctx, g.p.compute.Firewalls.Patch(testProject, base(g.infra().VMSecurityGroupID), &compute.Firewall{Disabled: true})))
			}},
			{"compute:firewall/vm-iap sources", "0.0.0.0/0", func(ctx context.Context, g vmRig) error {
				return done(send(ctx, g.p.compute.Firewalls.Patch(testProject, g.job.ResourceName("vm-iap", 63), &compute.Firewall{SourceRanges: []string{"0.0.0.0/0"}})))
			}},
			{"compute:health-check/check health check", "GET / on port 80", func(ctx context.Context, g vmRig) error {
				return done(send(ctx, g.p.compute.HealthChecks.Patch(testProject, g.job.ResourceName(healthCheckKey, 63), &compute.HealthCheck{HttpHealthCheck: &compute.HTTPHealthCheck{RequestPath: "/"}})))
			}},
			{"compute:backend-service/backend logging", "off", func(ctx context.Context, g vmRig) error {
				return done(send(ctx, g.p.compute.BackendServices.Patch(testProject, base(g.infra().TargetGroupID),
					&compute.BackendService{LogConfig: &compute.BackendServiceLogConfig{Enable: false, ForceSendFields: []string{"Enable"}}})))
			}},
			{"compute:ssl-policy/tls profile", "COMPATIBLE", func(ctx context.Context, g vmRig) error {
				name := g.job.ResourceName(tlsPolicyKey, 63)
				s, err := send(ctx, g.p.compute.SslPolicies.Get(testProject, name))
				if err != nil {
					return err
				}
				return done(send(ctx, g.p.compute.SslPolicies.Patch(testProject, name, &compute.SslPolicy{Profile: "COMPATIBLE", MinTlsVersion: "TLS_1_0", Fingerprint: s.Fingerprint})))
			}},
			{"compute:address/lb labels", "team=other", func(ctx context.Context, g vmRig) error {
				a, err := send(ctx, g.p.compute.GlobalAddresses.Get(testProject, base(g.infra().LoadBalancerID)))
				if err != nil {
					return err
				}
				a.Labels["team"] = "other"
				return done(send(ctx, g.p.compute.GlobalAddresses.SetLabels(testProject, a.Name, &compute.GlobalSetLabelsRequest{Labels: a.Labels, LabelFingerprint: a.LabelFingerprint})))
			}},
			{"compute:instance-group/group-us-central1-a VMs", "", func(ctx context.Context, g vmRig) error {
				vm := g.infra().VMs[0]
				return done(send(ctx, g.p.compute.InstanceGroups.RemoveInstances(testProject, vm.Zone, g.job.ResourceName(groupPrefix+vm.Zone, 63),
					&compute.InstanceGroupsRemoveInstancesRequest{Instances: []*compute.InstanceReference{{Instance: vm.InstanceID}}})))
			}},
		}},
		"group": {groupLBSpec, []tampering{
			{"compute:autoscaler/autoscaler size", "max 9", func(ctx context.Context, g vmRig) error {
				change := &compute.Autoscaler{AutoscalingPolicy: &compute.AutoscalingPolicy{MaxNumReplicas: 9}}
				return done(send(ctx, g.p.compute.RegionAutoscalers.Patch(testProject, testRegion, change).Autoscaler(g.job.ResourceName(groupKey, 63))))
			}},
			{"compute:instance-group-manager/mig update policy", "proactive", func(ctx context.Context, g vmRig) error {
				return done(send(ctx, g.p.compute.RegionInstanceGroupManagers.Patch(testProject, testRegion, base(g.infra().ScalingGroupID),
					&compute.InstanceGroupManager{UpdatePolicy: &compute.InstanceGroupManagerUpdatePolicy{Type: "PROACTIVE"}})))
			}},
			{"compute:instance-group-manager/mig named port", "none", func(ctx context.Context, g vmRig) error {
				g.world.Step(time.Minute)
				return done(send(ctx, g.p.compute.RegionInstanceGroupManagers.Patch(testProject, testRegion, base(g.infra().ScalingGroupID),
					&compute.InstanceGroupManager{ForceSendFields: []string{"NamedPorts", "AutoHealingPolicies"}})))
			}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newVMs(t, sim.Options{}, c.spec)
			g.furnish()
			g.create()
			for _, x := range c.tampering {
				if err := x.do(anything(t.Context()), g); err != nil {
					t.Fatalf("%s: %v", x.drift, err)
				}
			}
			g.world.Step(time.Minute)
			drift, _ := g.verify()
			found := map[string]string{}
			for _, d := range drift {
				key := strings.Replace(d.Kind, "global-", "", 1) + "/" + d.Key + " " + d.Attr
				found[key] = d.Seen
			}
			for _, x := range c.tampering {
				if seen, ok := found[x.drift]; !ok || !strings.Contains(seen, x.seen) {
					t.Errorf("no drift %q with %q in %v", x.drift, x.seen, slices.Sorted(maps.Keys(found)))
				}
			}
			g.another()
			g.create()
			g.asAsked()
			if name == "fixed" {
				vm := g.infra().VMs[1]
				i, err := send(t.Context(), g.p.compute.Instances.Get(testProject, vm.Zone, vm.Name))
				if err != nil || metadataOf(i.Metadata)["theirs"] != "kept" {
					t.Errorf("somebody's own metadata is gone: %v", err)
				}
			}
		})
	}
}

// The load balancer comes and goes on a finished job, and the VMs are not touched.
func TestAttachAndDetach(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]string{"fixed": fixedSpec, "group": groupSpec} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newVMs(t, sim.Options{}, spec)
			before := g.world.Snapshot()
			g.create()
			machines := func() map[string]string {
				out := map[string]string{}
				for _, o := range g.world.Objects(sim.ObjectFilter{Kind: "instance"}) {
					out[o.ID] = o.State
				}
				return out
			}
			was, without := machines(), g.world.Snapshot()
			since := g.mark()
			g.must(job.PhaseUpdate, job.AttachLB)
			if g.infra().LoadBalancerHost == "" || len(g.infra().Targets) != len(g.infra().VMs) {
				t.Errorf("host %q, targets %v", g.infra().LoadBalancerHost, g.infra().Targets)
			}
			g.must(job.PhaseUpdate, job.DetachLB)
			for _, e := range g.world.Books(sim.BookFilter{Since: since, Limit: 100000}) {
				if e.Mutating && strings.HasPrefix(e.Operation, "instances.") {
					t.Errorf("%s touched the VMs", e.Operation)
				}
			}
			if got := machines(); !maps.Equal(was, got) {
				t.Errorf("the VMs are %v, and were %v", got, was)
			}
			if name == "fixed" { // a managed group counts its own changes
				g.equalTo(without)
			}
			g.teardown()
			g.equal(before)
		})
	}
}
