package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// allLogs are the control plane's logs, in EKS's order.
var allLogs = []ekstypes.LogType{
	ekstypes.LogTypeApi, ekstypes.LogTypeAudit, ekstypes.LogTypeAuthenticator, ekstypes.LogTypeControllerManager, ekstypes.LogTypeScheduler,
}

// readCluster reads a cluster by its name, once a pass.
func (p *Provider) readCluster(ctx context.Context, name string) (ekstypes.Cluster, error) {
	return lookup.Once(ctx, kindCluster+" "+name, func(ctx context.Context) (ekstypes.Cluster, error) {
		out, err := p.eks.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: aws.String(name)})
		if err != nil {
			return ekstypes.Cluster{}, err
		}
		if out.Cluster == nil {
			return ekstypes.Cluster{}, absent("EKS", "DescribeCluster", "cluster "+name)
		}
		return *out.Cluster, nil
	})
}

// cluster is the control plane.
func (p *Provider) cluster(r *pipeline.Run, spec job.ClusterSpec) pipeline.Resource {
	in := clusterInput(r, spec)
	x := pipeline.Resource{Kind: kindCluster, Key: clusterKey, Name: aws.ToString(in.Name), Args: in, Tokened: true, Slow: true, Patience: 30 * time.Minute}
	x.Get = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		c, err := p.readCluster(ctx, x.Name)
		if err != nil {
			return pipeline.Seen{}, err
		}
		return p.seeCluster(r, c, in), nil
	}
	x.Find = eksNamed(r, x)
	x.Create = func(ctx context.Context, token string) (pipeline.Seen, error) {
		c, err := p.createCluster(ctx, r, *in, token)
		if err != nil || c == nil {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: aws.ToString(c.Arn), Owner: r.Job.ID, Status: pipeline.Pending, Reason: string(c.Status)}, nil
	}
	x.Delete = func(ctx context.Context, _ string) error {
		if err := p.unprotect(ctx, r, x.Name); err != nil {
			return err
		}
		_, err := p.eks.DeleteCluster(ctx, &eks.DeleteClusterInput{Name: aws.String(x.Name)})
		return err
	}
	x.Blockers = func(ctx context.Context, _ string) (string, error) {
		r.Remember(noForeignPools, nil)
		return p.clusterBlockers(ctx, x.Name)
	}
	return tidy(x)
}

// unprotect lifts the deletion protection that the job gave its cluster, as an act of
// its own that stands in the job's history (control EKS-13). It binds an active cluster
// alone: one that came up failed has none to lift.
func (p *Provider) unprotect(ctx context.Context, r *pipeline.Run, clusterName string) error {
	c, err := p.readCluster(ctx, clusterName)
	if err != nil || !aws.ToBool(c.DeletionProtection) || c.Status == ekstypes.ClusterStatusFailed || c.Status == ekstypes.ClusterStatusDeleting {
		return plain(err)
	}
	if c.Status != ekstypes.ClusterStatusActive {
		return pipeline.Wait(10*time.Second, "cluster %s to take changes (%s)", clusterName, c.Status)
	}
	const lifted = "protection lifted"
	if r.Recall(lifted) == nil {
		if err := r.Event(ctx, "protection.lifted", "the deletion protection of cluster %s, which this job gave it, is lifted", clusterName); err != nil {
			return err
		}
		r.Remember(lifted, true)
	}
	u := updates{Provider: p, r: r, cluster: clusterName}
	return u.set("deletion protection", &eks.UpdateClusterConfigInput{DeletionProtection: aws.Bool(false)})(ctx)
}

// clusterInput is everything that a cluster is made with.
func clusterInput(r *pipeline.Run, spec job.ClusterSpec) *eks.CreateClusterInput {
	ic := r.Job.Config.InfraConfig
	clusterName := clusterNameOf(r.Job)
	in := &eks.CreateClusterInput{
		Name: aws.String(clusterName), RoleArn: aws.String(ic.Cluster.RoleID), Tags: tags(r, clusterKey, clusterName),
		ResourcesVpcConfig: endpointOf(ic.Cluster),
		// Nobody gets in but by an access entry, the maker of the cluster neither.
		AccessConfig: &ekstypes.CreateAccessConfigRequest{
			AuthenticationMode: ekstypes.AuthenticationModeApi, BootstrapClusterCreatorAdminPermissions: aws.Bool(false),
		},
		BootstrapSelfManagedAddons: aws.Bool(false), DeletionProtection: aws.Bool(true),
		EncryptionConfig:        []ekstypes.EncryptionConfig{{Provider: &ekstypes.Provider{KeyArn: aws.String(ic.Cluster.KMSKeyID)}, Resources: []string{"secrets"}}},
		KubernetesNetworkConfig: &ekstypes.KubernetesNetworkConfigRequest{IpFamily: ekstypes.IpFamilyIpv4},
		Logging:                 &ekstypes.Logging{ClusterLogging: []ekstypes.LogSetup{{Enabled: aws.Bool(true), Types: allLogs}}},
		UpgradePolicy:           &ekstypes.UpgradePolicyRequest{SupportType: supportType(spec, ic.Cluster)},
	}
	in.ResourcesVpcConfig.SubnetIds = ic.PrivateSubnetIDs
	if ic.Cluster.Version != "" {
		in.Version = aws.String(ic.Cluster.Version)
	}
	if ic.Cluster.ServiceCIDR != "" {
		in.KubernetesNetworkConfig.ServiceIpv4Cidr = aws.String(ic.Cluster.ServiceCIDR)
	}
	return in
}

// endpointOf is who reaches the API server: the network itself, and the ranges that
// are named.
func endpointOf(c job.ClusterInfo) *ekstypes.VpcConfigRequest {
	e := &ekstypes.VpcConfigRequest{EndpointPrivateAccess: aws.Bool(true), EndpointPublicAccess: aws.Bool(c.Public)}
	if c.Public {
		e.PublicAccessCidrs = c.PublicCIDRs
	}
	return e
}

// supportType keeps a cluster out of extended support, which is billed extra, unless
// the spec asks for it: EKS upgrades it at the end of the standard one instead.
func supportType(spec job.ClusterSpec, c job.ClusterInfo) ekstypes.SupportType {
	if spec.ExtendedSupport && c.Extended {
		return ekstypes.SupportTypeExtended
	}
	return ekstypes.SupportTypeStandard
}

// createCluster makes the cluster. A zone in which EKS has no room for a control
// plane is left out, if two others are left: EKS says which it takes (failure J1).
func (p *Provider) createCluster(ctx context.Context, r *pipeline.Run, in eks.CreateClusterInput, token string) (*ekstypes.Cluster, error) {
	in.ClientRequestToken = aws.String(token)
	out, err := p.eks.CreateCluster(ctx, &in)
	var refused *ekstypes.UnsupportedAvailabilityZoneException
	if err == nil {
		return out.Cluster, nil
	}
	if !errors.As(err, &refused) {
		return nil, err
	}
	ic := r.Job.Config.InfraConfig
	var subnets, left []string
	for i, z := range ic.Zones {
		if slices.Contains(refused.ValidZones, z) && i < len(ic.PrivateSubnetIDs) {
			subnets = append(subnets, ic.PrivateSubnetIDs[i])
		} else {
			left = append(left, z)
		}
	}
	if len(subnets) < 2 || len(left) == 0 {
		return nil, pipeline.Fatal("zone-not-supported", fmt.Sprintf("Amazon EKS has no room for a control plane in %s; it takes %s", strings.Join(left, ", "), or(strings.Join(refused.ValidZones, ", "), "zones that it does not name")),
			"Use a network with subnets in two of those zones, or another region, then retry.").On("config.spec.network.zones").From(plain(err))
	}
	vpc := *in.ResourcesVpcConfig
	vpc.SubnetIds = subnets
	// The token has been used with other subnets; the name keeps the cluster single.
	in.ResourcesVpcConfig, in.ClientRequestToken = &vpc, aws.String(job.Token(token, strings.Join(subnets, ",")))
	if out, err = p.eks.CreateCluster(ctx, &in); err != nil {
		return nil, err
	}
	return out.Cluster, r.Event(ctx, "zone.left-out", "the control plane stands outside of %s, where Amazon EKS has no room for one", strings.Join(left, ", "))
}

// seeCluster is where the cluster stands, and what of it can differ from what is wanted.
func (p *Provider) seeCluster(r *pipeline.Run, c ekstypes.Cluster, want *eks.CreateClusterInput) pipeline.Seen {
	s := pipeline.Seen{ID: aws.ToString(c.Arn), Owner: eksMark(c.Tags), Status: pipeline.Pending, Reason: string(c.Status)}
	switch c.Status {
	case ekstypes.ClusterStatusActive:
		s.Status = pipeline.Ready
	case ekstypes.ClusterStatusFailed:
		s.Status, s.Reason = pipeline.Broken, clusterIssues(c)
	}
	if s.Status != pipeline.Ready || r.Down {
		return s
	}
	u := updates{Provider: p, r: r, cluster: aws.ToString(c.Name)}
	s.Aspects = []pipeline.Aspect{
		{Name: "API server's endpoint", Wanted: endpointText(want.ResourcesVpcConfig.EndpointPublicAccess, want.ResourcesVpcConfig.EndpointPrivateAccess, want.ResourcesVpcConfig.PublicAccessCidrs), Seen: seenEndpoint(c),
			Set: u.set("endpoint", &eks.UpdateClusterConfigInput{ResourcesVpcConfig: endpointOf(r.Job.Config.InfraConfig.Cluster)})},
		{Name: "logs", Wanted: logText(allLogs), Seen: logText(loggedBy(c)), Set: u.set("logs", &eks.UpdateClusterConfigInput{Logging: want.Logging})},
		{Name: "support", Wanted: string(want.UpgradePolicy.SupportType), Seen: supportOf(c), Set: u.set("support", &eks.UpdateClusterConfigInput{UpgradePolicy: want.UpgradePolicy})},
		{Name: "deletion protection", Wanted: "on", Seen: onOff(aws.ToBool(c.DeletionProtection)), Set: u.set("deletion protection", &eks.UpdateClusterConfigInput{DeletionProtection: aws.Bool(true)})},
		{Name: "authentication", Wanted: string(want.AccessConfig.AuthenticationMode), Seen: authMode(c), Set: u.set("authentication", &eks.UpdateClusterConfigInput{AccessConfig: &ekstypes.UpdateAccessConfigRequest{AuthenticationMode: want.AccessConfig.AuthenticationMode}})},
		{Name: "key of the secrets", Wanted: aws.ToString(want.EncryptionConfig[0].Provider.KeyArn), Seen: secretsKey(c)},
	}
	if r.Mode == pipeline.Verify && want.Version != nil {
		// An upgrade that somebody made, or EKS at the end of support, is told and not undone.
		s.Aspects = append(s.Aspects, pipeline.Aspect{Name: "version", Wanted: *want.Version, Seen: aws.ToString(c.Version)})
	}
	return s
}

// clusterIssues is why a cluster failed.
func clusterIssues(c ekstypes.Cluster) string {
	var all []string
	if c.Health != nil {
		for _, i := range c.Health.Issues {
			all = append(all, string(i.Code)+": "+aws.ToString(i.Message))
		}
	}
	return issueText(string(c.Status), all...)
}

func endpointText(public, private *bool, cidrs []string) string {
	text := "private " + onOff(aws.ToBool(private))
	if aws.ToBool(public) {
		return text + ", public from " + or(sortedList(cidrs), "everywhere")
	}
	return text + ", public off"
}

func seenEndpoint(c ekstypes.Cluster) string {
	v := c.ResourcesVpcConfig
	if v == nil {
		return unknown
	}
	return endpointText(&v.EndpointPublicAccess, &v.EndpointPrivateAccess, v.PublicAccessCidrs)
}

func loggedBy(c ekstypes.Cluster) []ekstypes.LogType {
	var out []ekstypes.LogType
	if c.Logging != nil {
		for _, l := range c.Logging.ClusterLogging {
			if aws.ToBool(l.Enabled) {
				out = append(out, l.Types...)
			}
		}
	}
	return out
}

func logText(types []ekstypes.LogType) string {
	var out []string
	for _, t := range types {
		out = append(out, string(t))
	}
	return or(sortedList(out), "none")
}

func supportOf(c ekstypes.Cluster) string {
	if c.UpgradePolicy == nil {
		return unknown
	}
	return string(c.UpgradePolicy.SupportType)
}

func authMode(c ekstypes.Cluster) string {
	if c.AccessConfig == nil {
		return unknown
	}
	return string(c.AccessConfig.AuthenticationMode)
}

// secretsKey is the customer's key that the secrets are encrypted with, as all else that
// the API server keeps.
func secretsKey(c ekstypes.Cluster) string {
	for _, e := range c.EncryptionConfig {
		if e.Provider != nil {
			return aws.ToString(e.Provider.KeyArn)
		}
	}
	return "none"
}

// clusterBlockers names what is still in a cluster that EKS refuses to delete.
func (p *Provider) clusterBlockers(ctx context.Context, name string) (string, error) {
	groups, err := p.nodegroupNames(ctx, name)
	if err != nil {
		return "", pipeline.Unless(plain(err), pipeline.NotFound)
	}
	profiles, err := p.fargateProfiles(ctx, name)
	if err != nil {
		return "", pipeline.Unless(plain(err), pipeline.NotFound)
	}
	var held []string
	for _, g := range groups {
		held = append(held, "node group "+g)
	}
	for _, f := range profiles {
		held = append(held, "Fargate profile "+f)
	}
	if len(held) == 0 {
		return "", nil
	}
	return "it still has " + strings.Join(held, ", ") + "; they are removed first", nil
}
