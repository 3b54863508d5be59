package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// legacy is a cluster that somebody else has made, of whom little was asked.
func (g clusterRig) legacy(ctx context.Context) theirs {
	g.Helper()
	n := g.theirs(ctx)
	g.named(n)
	for role, policies := range map[string][]string{"eks": {"AmazonEKSClusterPolicy"}, "nodes": {"AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly", "AmazonEKS_CNI_Policy"}} {
		service := map[string]string{"eks": "eks.amazonaws.com", "nodes": "ec2.amazonaws.com"}[role]
		g.place("iam", "CreateRole", map[string]any{"RoleName": role, "AssumeRolePolicyDocument": serviceRole{service: service}.trust()})
		for _, p := range policies {
			g.place("iam", "AttachRolePolicy", map[string]any{"RoleName": role, "PolicyArn": "arn:aws:iam::aws:policy/" + p})
		}
	}
	g.world.Step(5 * time.Minute)
	_, err := g.p.eks.CreateCluster(ctx, &eks.CreateClusterInput{Name: aws.String("legacy"), RoleArn: aws.String("arn:aws:iam::123456789012:role/eks"), Version: aws.String("1.33"),
		ResourcesVpcConfig: &ekstypes.VpcConfigRequest{SubnetIds: []string{n.privateA, n.privateB}}})
	if err != nil {
		g.Fatal(err)
	}
	g.world.Step(20 * time.Minute)
	_, err = g.p.eks.CreateNodegroup(ctx, &eks.CreateNodegroupInput{ClusterName: aws.String("legacy"), NodegroupName: aws.String("general"), NodeRole: aws.String("arn:aws:iam::123456789012:role/nodes"),
		Subnets: []string{n.privateA, n.privateB}, AmiType: ekstypes.AMITypesBottlerocketArm64, InstanceTypes: []string{"t4g.large"}, ScalingConfig: &ekstypes.NodegroupScalingConfig{MinSize: aws.Int32(1), MaxSize: aws.Int32(4), DesiredSize: aws.Int32(2)}})
	if err != nil {
		g.Fatal(err)
	}
	g.world.Step(20 * time.Minute)
	return n
}

// An adopt job reads a cluster that somebody else has made, says where it falls short,
// and changes nothing, up and down.
func TestAdoptCluster(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeAdopt, `{"adopt":{"name":"legacy"}}`)
	ctx := anything(t.Context())
	n := g.legacy(ctx)
	before, since := g.world.Snapshot(), g.mark()
	if got := g.look(`{"adopt":{"name":"legacy"}}`); !has(got, cloud.CheckOK, "adopted cluster", "1.33") {
		t.Errorf("got\n%s", show(got))
	}
	adopt := func(mode pipeline.Mode) []pipeline.Drift {
		t.Helper()
		g.another()
		r := g.run(mode)
		if err := g.p.AdoptCluster(pipeline.WithGate(t.Context(), pipeline.ReadOnly), r); err != nil {
			t.Fatal(err)
		}
		return r.Drift()
	}
	adopt(pipeline.Apply)
	c := g.info()
	if c.Name != "legacy" || !strings.HasSuffix(c.ID, ":cluster/legacy") || c.Endpoint == "" || c.Version != "1.33" || c.SupportUntil == "" || !c.Extended || !c.Public || g.infra().NetworkID != n.vpc {
		t.Errorf("the cluster is %+v", c)
	}
	if len(c.NodePools) != 1 || c.NodePools[0].Name != "general" || c.NodePools[0].InstanceType != "t4g.large" || c.NodePools[0].Arch != "arm64" || c.NodePools[0].Desired != 2 || c.NodePools[0].Max != 4 {
		t.Errorf("the pools are %+v", c.NodePools)
	}
	for _, id := range []string{"EKS-01", "EKS-03", "EKS-05", "EKS-08", "EKS-10", "EKS-11", "EKS-13", "EKS-14"} {
		if !slices.ContainsFunc(c.RiskNotes, func(s string) bool { return strings.Contains(s, id) }) {
			t.Errorf("no note of %s in %q", id, c.RiskNotes)
		}
	}
	if d := adopt(pipeline.Verify); len(d) > 0 {
		t.Errorf("drift: %+v", d)
	}
	for _, f := range []step{g.p.RemoveCluster, g.p.RemoveIdentity, g.p.RemoveNetwork} {
		r := g.run(pipeline.Apply)
		r.Down = true
		if err := f(pipeline.WithGate(t.Context(), pipeline.ReadOnly), r); err != nil {
			t.Error(err)
		}
	}
	if _, changes := g.calls(since); len(changes) > 0 {
		t.Errorf("the job changed %v", changes)
	}
	if fmt.Sprint(before) != fmt.Sprint(g.world.Snapshot()) {
		t.Error("the account is not as it was")
	}
	if got := g.look(`{"adopt":{"name":"nobody"}}`); !has(got, cloud.CheckFails, "config.spec.adopt.name", "no cluster nobody") {
		t.Errorf("got\n%s", show(got))
	}
	g.another()
	if err := g.p.AdoptCluster(anything(t.Context()), g.run(pipeline.Apply)); fatalCode(err) != "cluster-not-found" {
		t.Errorf("it ended with %v", err)
	}
}
