package aws

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// swept reports whether the history tells of a sweep.
func (g clusterRig) swept(what string) bool {
	for _, e := range g.history() {
		if e.Type == "object.swept" && strings.Contains(e.Message, what) {
			return true
		}
	}
	return false
}

// strays is what controllers and nodes of a cluster leave behind.
type strays struct{ balancer, targets, groupA, groupB, volume, card string }

func (g clusterRig) group(ctx context.Context, vpc, name string, tags map[string]string) string {
	g.Helper()
	in := &ec2.CreateSecurityGroupInput{GroupName: aws.String(name), Description: aws.String("made by a controller"), VpcId: aws.String(vpc)}
	if tags != nil {
		in.TagSpecifications = ec2Specs(tags, ec2types.ResourceTypeSecurityGroup)
	}
	out, err := g.p.ec2.CreateSecurityGroup(ctx, in)
	if err != nil {
		g.Fatal(err)
	}
	return *out.GroupId
}

// leave makes what a cluster of a name leaves in a VPC.
func (g clusterRig) leave(cluster, vpc string, subnets []string) (s strays) {
	g.Helper()
	ctx := anything(g.Context())
	must := func(err error) {
		g.Helper()
		if err != nil {
			g.Fatal(err)
		}
	}
	owned := map[string]string{"kubernetes.io/cluster/" + cluster: "owned"}
	s.groupA, s.groupB = g.group(ctx, vpc, "k8s-elb-a-"+cluster, owned), g.group(ctx, vpc, "k8s-elb-b-"+cluster, map[string]string{"elbv2.k8s.aws/cluster": cluster})
	must(g.p.allow(ctx, s.groupA, ingress, []line{{proto: "tcp", from: 80, to: 80, peer: s.groupB}}))
	must(g.p.allow(ctx, s.groupB, ingress, []line{{proto: "tcp", from: 80, to: 80, peer: s.groupA}, {proto: "tcp", from: 81, to: 81, peer: s.groupB}}))
	lb, err := g.p.elb.CreateLoadBalancer(ctx, &elb.CreateLoadBalancerInput{Name: aws.String("svc-" + cluster), Type: elbtypes.LoadBalancerTypeEnumNetwork, Scheme: elbtypes.LoadBalancerSchemeEnumInternal,
		Subnets: subnets, SecurityGroups: []string{s.groupA}, Tags: []elbtypes.Tag{{Key: aws.String("kubernetes.io/cluster/" + cluster), Value: aws.String("owned")}}})
	must(err)
	s.balancer = *lb.LoadBalancers[0].LoadBalancerArn
	tg, err := g.p.elb.CreateTargetGroup(ctx, &elb.CreateTargetGroupInput{Name: aws.String("tg-" + cluster), Protocol: elbtypes.ProtocolEnumTcp, Port: aws.Int32(80), VpcId: aws.String(vpc),
		TargetType: elbtypes.TargetTypeEnumIp, Tags: []elbtypes.Tag{{Key: aws.String("elbv2.k8s.aws/cluster"), Value: aws.String(cluster)}}})
	must(err)
	s.targets = *tg.TargetGroups[0].TargetGroupArn
	vol, err := g.p.ec2.CreateVolume(ctx, &ec2.CreateVolumeInput{AvailabilityZone: aws.String(g.infra().Zones[0]), Size: aws.Int32(8), VolumeType: ec2types.VolumeTypeGp3, TagSpecifications: ec2Specs(owned, ec2types.ResourceTypeVolume)})
	must(err)
	s.volume = *vol.VolumeId
	card, err := g.p.ec2.CreateNetworkInterface(ctx, &ec2.CreateNetworkInterfaceInput{SubnetId: aws.String(subnets[0]), Description: aws.String("aws-K8S-i-0123456789abcdef0"),
		TagSpecifications: ec2Specs(map[string]string{"node.k8s.amazonaws.com/instance_id": "i-0123456789abcdef0", "cluster.k8s.amazonaws.com/name": cluster}, ec2types.ResourceTypeNetworkInterface)})
	must(err)
	s.card = *card.NetworkInterface.NetworkInterfaceId
	return s
}

// What controllers made outside of the cluster, what the network plugin forgot and what
// others added to the cluster goes with it; what nodes of others left does not (failure
// kinds E1, E2, E4, E7, E10).
func TestClusterLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
	before := g.world.Snapshot()
	g.create()
	ctx := anything(t.Context())
	s := g.leave(g.info().Name, g.infra().NetworkID, g.infra().PrivateSubnetIDs)
	if _, err := g.world.SetObjectState(g.id(kindNodegroup, "pool-workers"), "LEAK_INTERFACES", "", ""); err != nil {
		t.Fatal(err)
	}
	_, err := g.p.eks.CreateNodegroup(ctx, &eks.CreateNodegroupInput{ClusterName: aws.String(g.info().Name), NodegroupName: aws.String("by-hand"), NodeRole: aws.String(g.info().NodeRoleID),
		Subnets: g.infra().PrivateSubnetIDs, ScalingConfig: &ekstypes.NodegroupScalingConfig{MinSize: aws.Int32(1), MaxSize: aws.Int32(1), DesiredSize: aws.Int32(1)}})
	if err != nil {
		t.Fatal(err)
	}
	g.world.Step(10 * time.Minute)
	g.teardown()
	for _, what := range []string{"node group by-hand", s.balancer, s.targets, s.groupA, s.groupB, s.volume, s.card} {
		if !g.swept(what) {
			t.Errorf("the history does not tell of %s", what)
		}
	}
	g.equal(before)
}

// A disk that was to outlive its claim stays.
func TestKeptVolumeStays(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
	g.create()
	s := g.leave(g.info().Name, g.infra().NetworkID, g.infra().PrivateSubnetIDs)
	g.objects[kindVolume+"/data"] = job.Object{JobID: g.job.ID, Kind: kindVolume, Key: "data", ID: s.volume, State: job.ObjectKept}
	g.teardown()
	if !g.exists(s.volume) {
		t.Error("a disk that is kept was deleted")
	}
}

// A rule of somebody else's group that names one of the cluster's stands in the way,
// is named, and is left alone (failure kind E7).
func TestForeignRuleBlocksTheSweep(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
	g.create()
	ctx := anything(t.Context())
	s := g.leave(g.info().Name, g.infra().NetworkID, g.infra().PrivateSubnetIDs)
	theirs := g.group(ctx, g.infra().NetworkID, "theirs", nil)
	if err := g.p.allow(ctx, theirs, ingress, []line{{proto: "tcp", from: 443, to: 443, peer: s.groupA}}); err != nil {
		t.Fatal(err)
	}
	g.another()
	err := g.try(true, g.gone()...)
	f := fatal(err)
	if f == nil && blockedBy(err) == nil || !strings.Contains(err.Error(), theirs) || !strings.Contains(err.Error(), s.groupA) {
		t.Fatalf("the teardown ended with %v", err)
	}
	if _, err := g.p.ec2.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: &theirs}); err != nil {
		t.Fatal(err)
	}
	g.teardown()
}

// In a network of others only what carries the cluster's own mark goes: another
// cluster's things there, and all that is nobody's, stay (failure kinds F1, F2).
func TestClusterInExistingNetwork(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreateInExisting, existingClusterPlaceholder)
	n := g.theirs(anything(t.Context()))
	g.job.Config.Spec = []byte(fmt.Sprintf(`{"existing":{"networkId":%q,"subnetIds":[%q,%q]},"nodePools":[{"name":"workers","desired":2}]}`, n.vpc, n.privateA, n.privateB))
	g.named(n)
	g.infra().Zones = []string{"us-east-1a"}
	g.world.Step(5 * time.Minute)
	theirs := g.leave("another", n.vpc, []string{n.privateA, n.privateB})
	loose := g.group(anything(t.Context()), n.vpc, "k8s-loose", nil)
	g.world.Step(5 * time.Minute)
	before, began := g.world.Snapshot(), g.world.Clock.Now()
	g.create()
	for _, c := range g.report() {
		if !c.Met {
			t.Errorf("%+v", c)
		}
	}
	ours := g.leave(g.info().Name, n.vpc, []string{n.privateA, n.privateB})
	g.teardown()
	for _, id := range []string{theirs.balancer, theirs.targets, theirs.groupA, theirs.groupB, theirs.volume, theirs.card, loose} {
		if !g.exists(id) {
			t.Errorf("%s, which is another's, is gone", id)
		}
	}
	for _, id := range []string{ours.balancer, ours.targets, ours.groupA, ours.groupB, ours.volume, ours.card} {
		if g.exists(id) {
			t.Errorf("%s is still there", id)
		}
	}
	for _, e := range g.world.Books(sim.BookFilter{Limit: 100000}) {
		switch e.Operation {
		case "ModifyVpcAttribute", "ModifySubnetAttribute", "CreateRoute", "AssociateRouteTable", "DeleteSubnet", "DeleteVpc", "CreateTags":
			if e.Time.After(began) {
				t.Errorf("%s changed their network", e.Operation)
			}
		}
	}
	if d := cmp.Diff(before, g.world.Snapshot()); d != "" {
		t.Error(d)
	}
}

const existingClusterPlaceholder = `{"existing":{"networkId":"vpc-0123456789abcdef0","subnetIds":["subnet-0123456789abcdef0","subnet-0123456789abcdef1"]}}`

// A cluster that somebody has deleted, or that never was, does not stand in the way
// (failure kind E13).
func TestTeardownWithoutItsCluster(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
	before := g.world.Snapshot()
	g.create()
	s := g.leave(g.info().Name, g.infra().NetworkID, g.infra().PrivateSubnetIDs)
	if _, err := g.world.RemoveObject(g.id(kindCluster, clusterKey)); err != nil {
		t.Fatal(err)
	}
	g.teardown()
	if !g.swept(s.balancer) {
		t.Error("the sweep did not go on without the cluster")
	}
	g.equal(before)

	never := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
	before = never.world.Snapshot()
	never.fault(sim.Fault{Kind: sim.FaultError, Operation: "CreateCluster", Code: "ResourceLimitExceededException", Message: "Cluster limit exceeded for account", Status: 400, Count: 1})
	err := never.try(false, never.built()...)
	if d := pipeline.Judge(err, 0); d.Problem.Code != "quota-exceeded" || !strings.Contains(d.Problem.Message, "limit exceeded") {
		t.Errorf("the create ended with %v", err)
	}
	never.teardown()
	never.equal(before)
}

// A load balancer that somebody has protected stops the teardown before it begins
// (failure kind K7).
func TestProtectedLoadBalancer(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
	g.create()
	ctx := anything(t.Context())
	s := g.leave(g.info().Name, g.infra().NetworkID, g.infra().PrivateSubnetIDs)
	protect := func(on string) {
		t.Helper()
		if _, err := g.p.elb.ModifyLoadBalancerAttributes(ctx, &elb.ModifyLoadBalancerAttributesInput{LoadBalancerArn: &s.balancer,
			Attributes: []elbtypes.LoadBalancerAttribute{{Key: aws.String(deletionProtection), Value: &on}}}); err != nil {
			t.Fatal(err)
		}
	}
	protect("true")
	g.world.Step(time.Minute) // until lists show it
	read := pipeline.WithGate(t.Context(), pipeline.ReadOnly)
	g.another()
	if err := g.p.Removable(read, g.run(pipeline.Apply)); fatalCode(err) != "protected" || !strings.Contains(err.Error(), s.balancer) {
		t.Errorf("the verdict is %v", err)
	}
	protect("false")
	g.another()
	if err := g.p.Removable(read, g.run(pipeline.Apply)); err != nil {
		t.Errorf("without protection: %v", err)
	}
	g.teardown()
}

// Disks of a cluster that could not be asked stay, and are named.
func TestUndrainedVolumesStay(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
	g.create()
	s := g.leave(g.info().Name, g.infra().NetworkID, g.infra().PrivateSubnetIDs)
	g.info().Undrained = true
	g.teardown()
	if kept := g.objects[kindVolume+"/"+s.volume]; !g.exists(s.volume) || kept.State != job.ObjectKept || kept.Reason == "" {
		t.Errorf("the disk is there: %v, and in the ledger as %+v", g.exists(s.volume), kept)
	}
}
