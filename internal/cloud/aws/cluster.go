package aws

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// The kinds of a cluster job as the ledger names them.
const (
	kindCluster     = "eks:cluster"
	kindNodegroup   = "eks:nodegroup"
	kindAddon       = "eks:addon"
	kindAccessEntry = "eks:access-entry"
	kindKey         = "kms:key"
	kindAlias       = "kms:alias"
	kindOIDC        = "iam:oidc-provider"
)

// The keys of a cluster job's objects; pools, add-ons and access entries have
// their names behind a prefix.
const (
	clusterKey = "cluster"
	oidcKey    = "oidc-provider"
	poolPrefix = "pool-"
	addonPref  = "addon-"
	accessPref = "access-"
)

// clusterNameOf is the name of a job's cluster. It ends in a hash of the job's ID,
// so that what carries it is this job's.
func clusterNameOf(j *job.Job) string { return j.ResourceName("", 63) }

// A clusterBuild is a cluster as it is put together.
type clusterBuild struct {
	*Provider
	r    *pipeline.Run
	ic   *job.InfraConfig
	spec job.ClusterSpec
	name string
}

func (p *Provider) newClusterBuild(r *pipeline.Run) (*clusterBuild, error) {
	spec, err := r.Job.ClusterSpec()
	return &clusterBuild{Provider: p, r: r, ic: &r.Job.Config.InfraConfig, spec: spec, name: clusterNameOf(r.Job)}, err
}

// EnsureCluster makes the control plane; then who may administer it and what
// nodes need to come up; then the pools side by side; then what needs nodes.
func (p *Provider) EnsureCluster(ctx context.Context, r *pipeline.Run) error {
	ctx = lookup.With(ctx, r)
	b, err := p.newClusterBuild(r)
	if err != nil {
		return err
	}
	for _, stage := range []func(context.Context) error{b.controlPlane, b.beforeNodes, b.pools, b.afterNodes} {
		if err := stage(ctx); err != nil {
			return err
		}
	}
	return b.learnPools(ctx)
}

func (b *clusterBuild) controlPlane(ctx context.Context) error {
	learn(b.r, &b.ic.Cluster.Name, b.name)
	id, err := b.r.Ensure(ctx, b.cluster(b.r, b.spec))
	learn(b.r, &b.ic.Cluster.ID, id)
	if err != nil {
		return visible(b.r, "the roles or the key of the cluster", err)
	}
	const recorded = "cluster recorded"
	if b.r.Mode != pipeline.Apply || b.r.Recall(recorded) != nil {
		return nil
	}
	c, err := b.readCluster(ctx, b.name)
	if err != nil {
		return pipeline.Unseen(plain(err), "cluster "+b.name)
	}
	recordCluster(&b.ic.Cluster, c)
	b.r.Remember(recorded, true)
	return b.r.Save(ctx)
}

// recordCluster keeps what EKS says of an active cluster.
func recordCluster(into *job.ClusterInfo, c ekstypes.Cluster) {
	into.Name, into.ID, into.Endpoint, into.Version = aws.ToString(c.Name), aws.ToString(c.Arn), aws.ToString(c.Endpoint), aws.ToString(c.Version)
	into.RoleID = aws.ToString(c.RoleArn)
	if c.Identity != nil && c.Identity.Oidc != nil {
		into.OIDCIssuer = aws.ToString(c.Identity.Oidc.Issuer)
	}
	if c.ResourcesVpcConfig != nil {
		into.SecurityGroupID = aws.ToString(c.ResourcesVpcConfig.ClusterSecurityGroupId)
	}
	if c.KubernetesNetworkConfig != nil {
		into.ServiceCIDR = aws.ToString(c.KubernetesNetworkConfig.ServiceIpv4Cidr)
	}
}

// beforeNodes makes what a node needs to become ready, and lets people in. Without
// a network plugin no node ever is.
func (b *clusterBuild) beforeNodes(ctx context.Context) error {
	parts := []func(context.Context) error{b.access, func(ctx context.Context) error {
		_, err := b.r.Ensure(ctx, b.oidcProvider(b.r))
		return err
	}}
	return pipeline.All(ctx, append(parts, b.addons(false)...)...)
}

// afterNodes makes the add-ons whose pods need a node to run on.
func (b *clusterBuild) afterNodes(ctx context.Context) error {
	return pipeline.All(ctx, b.addons(true)...)
}

func (b *clusterBuild) addons(onNodes bool) []func(context.Context) error {
	var parts []func(context.Context) error
	for _, a := range addons {
		if a.onNodes != onNodes {
			continue
		}
		parts = append(parts, func(ctx context.Context) error {
			_, err := b.r.Ensure(ctx, b.addon(b.r, a))
			return visible(b.r, "the role of add-on "+a.name, err)
		})
	}
	return parts
}

// pools makes the node pools, and the launch template of each.
func (b *clusterBuild) pools(ctx context.Context) error {
	var parts []func(context.Context) error
	for _, n := range b.spec.NodePools {
		parts = append(parts, func(ctx context.Context) error { return b.pool(ctx, n) })
	}
	return pipeline.All(ctx, parts...)
}

func (b *clusterBuild) pool(ctx context.Context, n job.NodePool) error {
	template, err := b.r.Ensure(ctx, b.nodeTemplate(b.r, n))
	if err != nil {
		return visible(b.r, "the security group of the nodes", err)
	}
	_, err = b.r.Ensure(ctx, b.nodegroup(b.r, n, template))
	return visible(b.r, "the role of the nodes", err)
}

// learnPools records where the pools stand.
func (b *clusterBuild) learnPools(ctx context.Context) error {
	if b.r.Mode != pipeline.Apply {
		return nil
	}
	for _, n := range b.spec.NodePools {
		g, err := b.readNodegroup(ctx, b.name, n.Name)
		if err != nil {
			return pipeline.Unseen(plain(err), "node group "+n.Name)
		}
		recordPool(b.ic.Cluster.Pool(n.Name), g)
	}
	return nil
}

// recordPool keeps what EKS says of a node group.
func recordPool(into *job.NodePoolInfo, g ekstypes.Nodegroup) {
	if into == nil {
		return
	}
	into.Name, into.ID, into.State = aws.ToString(g.NodegroupName), aws.ToString(g.NodegroupArn), string(g.Status)
	into.Spot = g.CapacityType == ekstypes.CapacityTypesSpot
	if s := g.ScalingConfig; s != nil {
		into.Min, into.Max, into.Desired = int(aws.ToInt32(s.MinSize)), int(aws.ToInt32(s.MaxSize)), int(aws.ToInt32(s.DesiredSize))
	}
}

// eksMark is whose mark the tags of an object of EKS carry. Its names are its
// identity, so one without a mark is what somebody else has made under the name.
func eksMark(tags map[string]string) string {
	return or(tags[job.MarkOwner], pipeline.Unmarked)
}

// eksNamed finds an object of EKS by its name. EKS answers for what it has made at
// once, with its tags; an endpoint that shows tags late is given the time.
func eksNamed(r *pipeline.Run, x pipeline.Resource) func(context.Context) ([]pipeline.Seen, error) {
	return func(ctx context.Context) ([]pipeline.Seen, error) {
		s, err := x.Get(ctx, "")
		if err != nil {
			return nil, pipeline.Unless(err, pipeline.NotFound)
		}
		owner := s.Owner
		if owner == pipeline.Unmarked {
			owner = ""
		}
		return []pipeline.Seen{s}, intendedTagsLate(r, x.Kind, x.Key, owner)
	}
}

// issueText is the reasons that EKS gives for a state, each with its code; never
// empty (failure kind I11).
func issueText(status string, issues ...string) string {
	issues = slices.DeleteFunc(issues, func(s string) bool { return strings.Trim(s, ": ") == "" })
	if len(issues) == 0 {
		return status
	}
	slices.Sort(issues)
	return status + " (" + strings.Join(slices.Compact(issues), "; ") + ")"
}

// sortedPairs is a map in words that compare equal.
func sortedPairs(m map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+"="+m[k])
	}
	return or(strings.Join(out, ", "), "none")
}
