package aws

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/acm"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// everything is the ID of all that exists.
func (g vmRig) everything() []string { return slices.Sorted(maps.Keys(g.world.Snapshot())) }

// A load balancer comes to a finished job and goes again, and the VMs are the
// same ones all along.
func TestAttachAndDetach(t *testing.T) {
	t.Parallel()
	for _, spec := range []string{fixedSpec, groupSpec} {
		t.Run(spec, func(t *testing.T) {
			t.Parallel()
			g := newVMs(t, sim.Options{}, spec)
			g.zoned("example.test")
			g.create()
			bare := g.everything()
			vms := append([]job.VMInfo(nil), g.infra().VMs...)
			with := strings.TrimSuffix(spec, "}") + `,"loadBalancer":{"plainHTTP":true,"dns":{"zone":"example.test","record":"shop"}}}`
			for range 2 { // the second time, every object is one that was removed before
				g.job.Config.Spec = json.RawMessage(with)
				g.another()
				g.must(job.PhaseUpdate, job.AttachLB)
				if g.infra().LoadBalancerHost == "" || len(g.infra().Targets) != 2 || g.infra().DNSRecord != "shop.example.test" {
					t.Fatalf("attached: %+v", g.infra())
				}
				g.asAsked()
				g.another()
				since := g.mark()
				g.must(job.PhaseUpdate, job.DetachLB)
				_, changes := g.calls(since)
				if changes["TerminateInstances"]+changes["RunInstances"] > 0 {
					t.Errorf("a detach changed %v", changes)
				}
			}
			if d := cmp.Diff(vms, g.infra().VMs); d != "" {
				t.Errorf("the VMs changed: %s", d)
			}
			if d := cmp.Diff(bare, g.everything()); d != "" {
				t.Errorf("after the detach: %s", d)
			}
			g.asAsked()
		})
	}
}

func TestHTTPSListener(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, fixedSpec)
	out, err := g.p.acm.RequestCertificate(anything(t.Context()), &acm.RequestCertificateInput{DomainName: aws.String("shop.example.test")})
	if err != nil {
		t.Fatal(err)
	}
	arn := aws.ToString(out.CertificateArn)
	g.fault(sim.Fault{Kind: sim.FaultTransition, Match: arn, State: "ISSUED"})
	g.world.Step(30 * time.Second)
	g.job.Config.Spec = json.RawMessage(strings.TrimSuffix(fixedSpec, "}") + fmt.Sprintf(`,"loadBalancer":{"certificate":%q}}`, arn))
	g.create()
	g.world.Step(30 * time.Second) // until lists show them
	listeners, err := g.p.listenersAt(t.Context(), g.infra().LoadBalancerID)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, l := range listeners {
		got[fmt.Sprintf("%s %d", l.Protocol, aws.ToInt32(l.Port))] = strings.SplitN(actionText(l.DefaultActions), " arn:", 2)[0] + " " + aws.ToString(l.SslPolicy)
	}
	want := map[string]string{"HTTP 80": "redirect to HTTPS 443 ", "HTTPS 443": "forward to " + tlsPolicy}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for _, row := range g.infra().Report {
		if strings.HasPrefix(row.ID, "LBA-") && !row.Met {
			t.Errorf("control %+v", row)
		}
	}
	g.asAsked()
}

// Targets that stay unhealthy stop the job in bounded time, with path, port and
// what the check saw.
func TestUnhealthyTargets(t *testing.T) {
	t.Parallel()
	spec := `{"pool":{"count":2,"instanceType":"t3.medium"},"loadBalancer":{"plainHTTP":true,"healthCheck":{"path":"/nowhere"}}}`
	t.Run("nginx", func(t *testing.T) {
		t.Parallel()
		g := newVMs(t, sim.Options{}, spec)
		before := g.world.Snapshot()
		step, err := g.play(job.PhaseProvision, "")
		if fatalCode(err) != "targets-unhealthy" || step != "stepCreateListener" {
			t.Fatalf("%s ended with %v", step, err)
		}
		for _, part := range []string{"/nowhere", "port 80", "404", g.infra().VMs[0].InstanceID} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not say %s", err, part)
			}
		}
		g.job.Config.Spec = json.RawMessage(fixedLBSpec) // what a PATCH of the health check leaves
		g.another()
		g.create()
		g.asAsked()
		g.teardown()
		g.equal(before)
	})
	t.Run("bare metal", func(t *testing.T) {
		t.Parallel()
		g := newVMs(t, sim.Options{}, strings.Replace(spec, "{", `{"bootstrap":"bare_metal",`, 1))
		g.create()
		if len(g.infra().Warnings) != 1 || !strings.Contains(g.infra().Warnings[0], "/nowhere") {
			t.Errorf("warnings: %q", g.infra().Warnings)
		}
		g.asAsked()
	})
}

// A load balancer's record is made only where there is none, and removed only
// while it points to us.
func TestRecordsOfOthers(t *testing.T) {
	t.Parallel()
	set := func(g vmRig, zone string, action r53types.ChangeAction, value string) {
		g.Helper()
		_, err := g.p.r53.ChangeResourceRecordSets(anything(g.Context()), &route53.ChangeResourceRecordSetsInput{HostedZoneId: aws.String(zone),
			ChangeBatch: &r53types.ChangeBatch{Changes: []r53types.Change{{Action: action, ResourceRecordSet: &r53types.ResourceRecordSet{
				Name: aws.String("shop.example.test"), Type: r53types.RRTypeA, TTL: aws.Int64(60), ResourceRecords: []r53types.ResourceRecord{{Value: aws.String(value)}},
			}}}}})
		if err != nil {
			g.Fatal(err)
		}
	}
	t.Run("taken", func(t *testing.T) {
		t.Parallel()
		g := newVMs(t, sim.Options{}, fixedDNSSpec)
		zone := g.zoned("example.test")
		g.infra().DNSZoneID, g.infra().DNSRecord, g.infra().LoadBalancerHost = zone, "shop.example.test", "lb.example.test"
		set(g, zone, r53types.ChangeActionCreate, "203.0.113.7")
		g.world.Step(30 * time.Second) // until lists show it
		since := g.mark()
		err := g.try(false, g.p.EnsureRecord)
		if fatalCode(err) != "name-taken" || !strings.Contains(err.Error(), "203.0.113.7") {
			t.Errorf("ended with %v", err)
		}
		if err := g.try(true, g.p.RemoveRecord); err != nil {
			t.Error(err)
		}
		if _, changes := g.calls(since); sum(changes) > 0 {
			t.Errorf("changed %v", changes)
		}
	})
	t.Run("pointed elsewhere", func(t *testing.T) {
		t.Parallel()
		g := newVMs(t, sim.Options{}, fixedDNSSpec)
		zone := g.zoned("example.test")
		g.create()
		set(g, zone, r53types.ChangeActionUpsert, "203.0.113.7")
		drift, _ := g.verify()
		if len(drift) != 1 || drift[0].Kind != kindRecord || drift[0].Seen != "203.0.113.7" {
			t.Errorf("drift: %+v", drift)
		}
		g.teardown()
		found, err := g.p.recordsAt(t.Context(), zone, "shop.example.test")
		if err != nil || len(found) != 1 {
			t.Errorf("records after teardown: %v, %v", found, err)
		}
		if left := g.world.Residue(g.job.ID); len(left) > 0 {
			t.Errorf("left over: %v", left)
		}
	})
}

// What is changed at the cloud behind the product's back is found, attribute by
// attribute, and not put right by a verify.
func TestLoadBalancerDrift(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, fixedLBSpec)
	g.create()
	if err := g.p.setAttributes(anything(t.Context()), g.infra().LoadBalancerID, map[string]string{dropInvalidHeaders: "false"}); err != nil {
		t.Fatal(err)
	}
	drift, _ := g.verify()
	var got []string
	for _, d := range drift {
		got = append(got, d.Kind+" "+d.Key+": "+d.Wanted+" is "+d.Seen)
	}
	want := []string{"control LBA-06: true is false", kindLoadBalancer + " lb: true is false"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// A load balancer that comes up failed is kept with its reason until a retry,
// which replaces it (A7, A8, A10).
func TestLoadBalancerFails(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, fixedLBSpec)
	before := g.world.Snapshot()
	g.fault(sim.Fault{Kind: sim.FaultOpFailed, Operation: "CreateLoadBalancer", Message: "no address left in the subnet"})
	step, err := g.play(job.PhaseProvision, "")
	if fatalCode(err) != "object-failed" || !strings.Contains(err.Error(), "no address left") {
		t.Fatalf("%s ended with %v", step, err)
	}
	failed := g.infra().LoadBalancerID
	g.another()
	g.create()
	if g.infra().LoadBalancerID == failed || g.exists(failed) {
		t.Errorf("the failed load balancer %s was not replaced", failed)
	}
	g.asAsked()
	g.teardown()
	g.equal(before)
}

// Interfaces of a deleted load balancer that stay for three quarters of an hour
// are waited out, by whichever worker, and named meanwhile (E4, E5).
func TestLoadBalancerLingers(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, fixedLBSpec)
	before := g.world.Snapshot()
	if err := g.try(false, g.built()...); err != nil {
		t.Fatal(err)
	}
	if _, err := g.world.PatchObject(g.infra().LoadBalancerID, json.RawMessage(`{"LingerSeconds":2700}`)); err != nil {
		t.Fatal(err)
	}
	start := g.world.Clock.Now()
	g.another()
	g.until(true, g.p.RemoveRecord, g.p.RemoveListener, g.p.RemoveTargetGroup)
	for g.world.Clock.Now().Sub(start) < 20*minute {
		r := g.run(pipeline.Apply)
		r.Down = true
		err := g.p.RemoveLoadBalancer(anything(t.Context()), r)
		var wait *pipeline.WaitError
		if !errors.As(err, &wait) {
			t.Fatalf("after %s: %v", g.world.Clock.Now().Sub(start), err)
		}
		if g.world.Clock.Now().Sub(start) > minute && !strings.Contains(wait.For, "ELB app/shop-prod-lb-") {
			t.Errorf("it does not say what it waits for: %s", wait.For)
		}
		g.world.Step(wait.After)
	}
	g.all(true, g.gone()...)
	g.equal(before)
	if took := g.world.Clock.Now().Sub(start); took < 45*minute || took > 60*minute {
		t.Errorf("the teardown took %s", took)
	}
}

// A VM that ends while it boots shows why, and one retry makes another.
func TestVMEndsWhileItBoots(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, fixedSpec)
	g.fault(sim.Fault{Kind: sim.FaultGuest, Mode: "agent", Seconds: 600, Count: -1})
	if err := g.launch(); err != nil {
		t.Fatal(err)
	}
	g.invoke("ec2", "TerminateInstances", map[string]any{"InstanceId": []any{g.infra().VMs[1].InstanceID}})
	_, err := g.play(job.PhaseProvision, "")
	if fatalCode(err) != "vm-ended" || !strings.Contains(err.Error(), "vm-2") {
		t.Fatalf("ended with %v", err)
	}
	g.world.ClearFaults("")
	g.another()
	g.create()
	if d := cmp.Diff(twoRunning, g.instances()); d != "" {
		t.Error(d)
	}
}

func TestScanFindsEverything(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, groupLBSpec)
	g.create()
	found, _, err := g.p.Scan(t.Context(), g.job.ID)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, l := range found {
		kinds[l.Kind]++
	}
	want := map[string]int{
		kindVPC: 1, kindSubnet: 4, kindInternetGateway: 1, kindNATGateway: 1, kindAddress: 1, kindRouteTable: 2, kindNetworkACL: 1, kindSecurityGroup: 2, kindLaunchTemplate: 1,
		kindInstance: 2, kindVolume: 2, kindScalingGroup: 1, kindLoadBalancer: 1, kindTargetGroup: 1, kindRole: 2, kindInstanceProfile: 1,
		kindEndpoint: 2, kindFlowLog: 1, kindLogGroup: 1, kindBucket: 1,
	}
	if d := cmp.Diff(want, kinds); d != "" {
		t.Error(d)
	}
	if other, _, err := g.p.Scan(t.Context(), job.NewID("job")); err != nil || len(other) > 0 {
		t.Errorf("a scan for somebody else found %v, %v", other, err)
	}
}
