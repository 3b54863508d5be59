package aws

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// toPoint runs the way up until the ledger has an object.
func (g clusterRig) toPoint(kind, key string) string {
	g.Helper()
	ctx := anything(g.Context())
	if err := g.try(false, g.check, g.p.EnsureNetwork, g.p.EnsureIdentity); err != nil {
		g.Fatal(err)
	}
	for range 500 {
		if o, ok := g.objects[kind+"/"+key]; ok && o.ID != "" {
			return o.ID
		}
		d := pipeline.Judge(g.p.EnsureCluster(ctx, g.run(pipeline.Apply)), 0)
		if d.Action == pipeline.Stop {
			g.Fatal(d.Problem)
		}
		g.world.Step(min(d.After, 5*time.Second))
	}
	g.Fatalf("%s %s was never made", kind, key)
	return ""
}

// What comes up failed stops the job with EKS's reason, stays until a person has read
// it, and a retry replaces it; a teardown gets rid of it as well (failure kinds A7, A8, I11).
func TestFailedPartsOfACluster(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind, key, state, code, message string
		says                            []string
	}{
		"cluster":                {kindCluster, clusterKey, "FAILED", "InsufficientFreeAddresses", "the subnets are full", []string{"InsufficientFreeAddresses", "the subnets are full"}},
		"cluster without a word": {kindCluster, clusterKey, "FAILED", "", "", []string{"FAILED"}},
		"node group":             {kindNodegroup, "pool-workers", "CREATE_FAILED", "NodeCreationFailure", "Instances failed to join the kubernetes cluster", []string{"NodeCreationFailure", "failed to join"}},
		"add-on":                 {kindAddon, "addon-coredns", "CREATE_FAILED", "AccessDenied", "no", []string{"AccessDenied: no"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
			before := g.world.Snapshot()
			id := g.toPoint(c.kind, c.key)
			if _, err := g.world.SetObjectState(id, c.state, c.code, c.message); err != nil {
				t.Fatal(err)
			}
			err := g.try(false, g.p.EnsureCluster)
			if fatalCode(err) != "object-failed" || !containsAll(err.Error(), c.says) {
				t.Fatalf("it ended with %v", err)
			}
			if !g.exists(id) {
				t.Error("the failed object is gone before anybody has seen it")
			}
			g.another()
			g.create() // a retry
			if got := g.id(c.kind, c.key); c.kind == kindNodegroup && got == id {
				t.Errorf("%s was not replaced", id)
			}
			for _, d := range g.verify() {
				t.Errorf("drift: %+v", d)
			}
			g.teardown()
			g.equal(before)
		})
	}
	t.Run("teardown", func(t *testing.T) {
		t.Parallel()
		g := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
		before := g.world.Snapshot()
		id := g.toPoint(kindCluster, clusterKey)
		if _, err := g.world.SetObjectState(id, "FAILED", "IamRoleNotFound", "the role is gone"); err != nil {
			t.Fatal(err)
		}
		if err := g.try(false, g.p.EnsureCluster); fatalCode(err) != "object-failed" {
			t.Fatalf("it ended with %v", err)
		}
		g.teardown()
		g.equal(before)
	})
}

// A create whose call got no answer is found, and made once (failure kind I7); EKS is
// asked again while it does not know the roles yet, or is busy with another change
// (failure kinds D4, H10, E11).
func TestClusterAgainstAFalteringCloud(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		down   bool
		faults []sim.Fault
	}{
		"no answer":        {faults: []sim.Fault{{Kind: sim.FaultLostReply, Operation: "CreateCluster", Count: 1}, {Kind: sim.FaultLostReply, Operation: "CreateNodegroup", Count: 1}}},
		"role unknown":     {faults: []sim.Fault{{Kind: sim.FaultError, Operation: "CreateCluster", Count: 3, Code: "InvalidParameterException", Status: 400, Message: "Role with arn: arn:aws:iam::123456789012:role/x, could not be assumed because it does not exist or the trusted entity is not correct"}}},
		"policies unknown": {faults: []sim.Fault{{Kind: sim.FaultError, Operation: "CreateNodegroup", Count: 3, Code: "InvalidParameterException", Status: 400, Message: "The provided role doesn't have the Amazon EKS Managed Policies associated with it."}}},
		"throttled":        {faults: []sim.Fault{{Kind: sim.FaultError, Service: "eks", Percent: 30, Count: 40, Code: "ThrottlingException", Status: 429, Message: "Rate exceeded"}}},
		"busy":             {down: true, faults: []sim.Fault{{Kind: sim.FaultError, Operation: "DeleteCluster", Count: 6, Code: "ResourceInUseException", Status: 409, Message: "Cluster has an update in progress"}}},
		"protection busy":  {down: true, faults: []sim.Fault{{Kind: sim.FaultError, Operation: "UpdateClusterConfig", Count: 2, Code: "ResourceInUseException", Status: 409, Message: "Cannot UpdateClusterConfig because cluster currently has update in progress"}}},
		"silent":           {down: true, faults: []sim.Fault{{Kind: sim.FaultError, Operation: "DescribeCluster", Count: 10, Code: "ServerException", Status: 500, Message: "try later"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
			before := g.world.Snapshot()
			put := func() {
				for _, f := range c.faults {
					g.fault(f)
				}
			}
			if !c.down {
				put()
			}
			g.create()
			if c.down {
				put()
			}
			g.teardown()
			g.hit()
			g.equal(before)
		})
	}
}

// A node pool that takes longer than the job waits ends it with a reason, and a retry
// does what is left to do (failure kind I8).
func TestLateNodegroup(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
	id := g.toPoint(kindNodegroup, "pool-workers")
	g.world.Step(10 * time.Minute) // its nodes have joined by then
	if _, err := g.world.SetObjectState(id, "UPDATING", "AsgInstanceLaunchFailures", "no capacity now"); err != nil {
		t.Fatal(err)
	}
	err := g.try(false, g.p.EnsureCluster)
	if fatalCode(err) != "timed-out" || !strings.Contains(err.Error(), "no capacity now") {
		t.Fatalf("it ended with %v", err)
	}
	if _, err := g.world.PatchObject(id, []byte(`{"Status":"ACTIVE","Issues":[],"Held":false}`)); err != nil {
		t.Fatal(err)
	}
	g.another()
	g.create()
	g.id(kindAddon, "addon-aws-ebs-csi-driver")
}

// clusterDrifts are changes that somebody makes, and the attribute in which a verify
// tells of each.
var clusterDrifts = map[string]struct {
	change func(ctx context.Context, g clusterRig) error
	attr   string
}{
	"endpoint": {func(ctx context.Context, g clusterRig) error {
		_, err := g.p.eks.UpdateClusterConfig(ctx, &eks.UpdateClusterConfigInput{Name: aws.String(g.info().Name), ResourcesVpcConfig: &ekstypes.VpcConfigRequest{PublicAccessCidrs: []string{anywhere}}})
		return err
	}, "API server's endpoint"},
	"logs": {func(ctx context.Context, g clusterRig) error {
		_, err := g.p.eks.UpdateClusterConfig(ctx, &eks.UpdateClusterConfigInput{Name: aws.String(g.info().Name),
			Logging: &ekstypes.Logging{ClusterLogging: []ekstypes.LogSetup{{Enabled: aws.Bool(false), Types: allLogs[:2]}}}})
		return err
	}, "logs"},
	"protection": {func(ctx context.Context, g clusterRig) error {
		_, err := g.p.eks.UpdateClusterConfig(ctx, &eks.UpdateClusterConfigInput{Name: aws.String(g.info().Name), DeletionProtection: aws.Bool(false)})
		return err
	}, "deletion protection"},
	"bounds": {func(ctx context.Context, g clusterRig) error {
		_, err := g.p.eks.UpdateNodegroupConfig(ctx, &eks.UpdateNodegroupConfigInput{ClusterName: aws.String(g.info().Name), NodegroupName: aws.String("workers"),
			ScalingConfig: &ekstypes.NodegroupScalingConfig{MinSize: aws.Int32(1), MaxSize: aws.Int32(9), DesiredSize: aws.Int32(3)}})
		return err
	}, "size"},
	"labels": {func(ctx context.Context, g clusterRig) error {
		_, err := g.p.eks.UpdateNodegroupConfig(ctx, &eks.UpdateNodegroupConfigInput{ClusterName: aws.String(g.info().Name), NodegroupName: aws.String("arm"),
			Labels: &ekstypes.UpdateLabelsPayload{AddOrUpdateLabels: map[string]string{"team": "other", "extra": "yes"}}})
		return err
	}, "labels"},
	"taints": {func(ctx context.Context, g clusterRig) error {
		_, err := g.p.eks.UpdateNodegroupConfig(ctx, &eks.UpdateNodegroupConfigInput{ClusterName: aws.String(g.info().Name), NodegroupName: aws.String("arm"),
			Taints: &ekstypes.UpdateTaintsPayload{RemoveTaints: []ekstypes.Taint{{Key: aws.String("arm"), Value: aws.String("only"), Effect: ekstypes.TaintEffectNoSchedule}}}})
		return err
	}, "taints"},
	"add-on": {func(ctx context.Context, g clusterRig) error {
		_, err := g.p.eks.UpdateAddon(ctx, &eks.UpdateAddonInput{ClusterName: aws.String(g.info().Name), AddonName: aws.String("vpc-cni"), ConfigurationValues: aws.String(`{"enableNetworkPolicy":"false"}`)})
		return err
	}, "configuration"},
	"access": {func(ctx context.Context, g clusterRig) error {
		_, err := g.p.eks.DisassociateAccessPolicy(ctx, &eks.DisassociateAccessPolicyInput{ClusterName: aws.String(g.info().Name), PrincipalArn: aws.String("arn:aws:iam::123456789012:role/platform"), PolicyArn: aws.String(accessPolicy("us-east-1", "admin"))})
		return err
	}, "policy"},
	"retention": {func(ctx context.Context, g clusterRig) error {
		_, err := g.p.logs.PutRetentionPolicy(ctx, &cloudwatchlogs.PutRetentionPolicyInput{LogGroupName: aws.String(g.info().LogGroup), RetentionInDays: aws.Int32(7)})
		return err
	}, "retention"},
}

// What somebody changes is told by a verify, thing by thing, and put right by a run.
func TestClusterDrift(t *testing.T) {
	t.Parallel()
	for name, c := range clusterDrifts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newCluster(t, sim.Options{}, job.ModeCreate, mixedSpec)
			g.create()
			if err := c.change(anything(t.Context()), g); err != nil {
				t.Fatal(err)
			}
			g.world.Step(10 * time.Minute)
			drift := g.verify()
			if len(drift) != 1 || drift[0].Attr != c.attr || drift[0].Wanted == drift[0].Seen {
				t.Errorf("drift: %+v", drift)
			}
			g.another()
			g.create()
			if drift := g.verify(); len(drift) > 0 {
				t.Errorf("after a run: %+v", drift)
			}
		})
	}
}

// A change that EKS accepts and lets fail later ends the job with its reason.
func TestFailedClusterUpdate(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
	g.create()
	ctx := anything(t.Context())
	if _, err := g.p.eks.UpdateClusterConfig(ctx, &eks.UpdateClusterConfigInput{Name: aws.String(g.info().Name), DeletionProtection: aws.Bool(false)}); err != nil {
		t.Fatal(err)
	}
	g.world.Step(5 * time.Minute)
	g.another()
	if err := g.p.EnsureCluster(ctx, g.run(pipeline.Apply)); pipeline.Judge(err, 0).Action != pipeline.Park {
		t.Fatalf("the change was not begun: %v", err)
	}
	out, err := g.p.eks.ListUpdates(ctx, &eks.ListUpdatesInput{Name: aws.String(g.info().Name)})
	if err != nil {
		t.Fatal(err)
	}
	failed := false
	for _, id := range out.UpdateIds {
		u, err := g.p.eks.DescribeUpdate(ctx, &eks.DescribeUpdateInput{Name: aws.String(g.info().Name), UpdateId: aws.String(id)})
		if err != nil {
			t.Fatal(err)
		}
		if u.Update.Status == ekstypes.UpdateStatusInProgress {
			g.tamper(g.id(kindCluster, clusterKey), func(m map[string]any) {
				update := m["Updates"].(map[string]any)[id].(map[string]any)
				update["Status"], update["Errors"] = "Failed", []any{map[string]any{"Code": "OperationNotPermitted", "Message": "somebody forbids it"}}
				m["Status"] = "ACTIVE"
			})
			failed = true
		}
	}
	if !failed {
		t.Fatal("no update is under way")
	}
	err = g.try(false, g.p.EnsureCluster)
	if fatalCode(err) != "update-failed" || !strings.Contains(err.Error(), "somebody forbids it") {
		t.Errorf("it ended with %v", err)
	}
}

// The control plane makes its log group again when that is deleted under it; what it
// has made so is the job's, and goes with it (failure kind B8).
func TestLogGroupMadeAgain(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
	before := g.world.Snapshot()
	g.create()
	ctx := anything(t.Context())
	if _, err := g.p.logs.DeleteLogGroup(ctx, &cloudwatchlogs.DeleteLogGroupInput{LogGroupName: aws.String(g.info().LogGroup)}); err != nil {
		t.Fatal(err)
	}
	g.world.Step(10 * time.Minute)
	if !g.exists(g.info().LogGroup) {
		t.Fatal("the control plane did not make its log group again")
	}
	if drift := g.verify(); len(drift) == 0 {
		t.Error("nothing is said of the group's retention")
	}
	g.another()
	g.create()
	if drift := g.verify(); len(drift) > 0 {
		t.Errorf("after a run: %+v", drift)
	}
	g.all(true, g.p.RemoveCluster, g.p.RemoveIdentity)
	// A straggler, after everything that could write is gone.
	if _, err := g.p.logs.CreateLogGroup(ctx, &cloudwatchlogs.CreateLogGroupInput{LogGroupName: aws.String(g.info().LogGroup)}); err != nil {
		t.Fatal(err)
	}
	g.world.Step(time.Minute)
	left, _, err := g.p.Scan(t.Context(), g.job.ID)
	if err != nil || len(left) == 0 {
		t.Errorf("the scan finds %v, %v", left, err)
	}
	if err := g.try(true, g.p.RemoveNetwork); err != nil {
		t.Fatal(err)
	}
	g.equal(before)
}

// A cluster of just the job's name that somebody else has made is not touched.
func TestForeignClusterOfTheSameName(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
	g.all(false, g.check, g.p.EnsureNetwork, g.p.EnsureIdentity)
	g.world.Step(time.Minute)
	_, err := g.p.eks.CreateCluster(anything(t.Context()), &eks.CreateClusterInput{Name: aws.String(clusterNameOf(g.job)), RoleArn: aws.String(g.info().RoleID), ResourcesVpcConfig: &ekstypes.VpcConfigRequest{SubnetIds: g.infra().PrivateSubnetIDs}})
	if err != nil {
		t.Fatal(err)
	}
	g.world.Step(20 * time.Minute)
	if err := g.try(false, g.p.EnsureCluster); fatalCode(err) != "name-taken" {
		t.Fatalf("it ended with %v", err)
	}
	since := g.mark()
	if err := g.try(true, g.p.RemoveCluster); err != nil {
		t.Fatal(err)
	}
	if _, changes := g.calls(since); sum(changes) > 0 {
		t.Errorf("the teardown changed %v", changes)
	}
}

// A node group whose deletion failed is asked for again (failure kind E14).
func TestNodegroupThatWouldNotGo(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
	before := g.world.Snapshot()
	g.create()
	id := g.id(kindNodegroup, "pool-workers")
	g.another()
	ctx, r := anything(t.Context()), g.run(pipeline.Apply)
	r.Down = true
	if err := g.p.RemoveCluster(ctx, r); pipeline.Judge(err, 0).Action != pipeline.Park {
		t.Fatal(err)
	}
	if _, err := g.world.SetObjectState(id, "DELETE_FAILED", "NodeTerminationFailure", "a pod would not be evicted"); err != nil {
		t.Fatal(err)
	}
	if _, err := g.world.PatchObject(id, []byte(`{"Held":false}`)); err != nil {
		t.Fatal(err)
	}
	g.teardown()
	g.equal(before)
}
