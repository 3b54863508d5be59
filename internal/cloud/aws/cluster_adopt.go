package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// adoptedCluster is the name of the cluster to adopt; an ARN names it as well.
func adoptedCluster(j *job.Job) (string, error) {
	spec, err := j.ClusterSpec()
	switch {
	case err != nil:
		return "", err
	case spec.Adopt == nil || spec.Adopt.Name == "" && len(spec.Adopt.IDs) == 0:
		return "", fmt.Errorf("the request does not say what to adopt")
	case spec.Adopt.Name != "":
		return spec.Adopt.Name, nil
	}
	id := spec.Adopt.IDs[0]
	return id[strings.LastIndexByte(id, '/')+1:], nil
}

// AdoptCluster reads the cluster that the job points at, its pools and its network,
// and notes where it falls short of what a cluster of our own has. It changes nothing.
func (p *Provider) AdoptCluster(ctx context.Context, r *pipeline.Run) error {
	if r.Mode == pipeline.Plan {
		return nil
	}
	ctx = lookup.With(ctx, r)
	clusterName, err := adoptedCluster(r.Job)
	if err != nil {
		return err
	}
	c, err := p.readCluster(ctx, clusterName)
	switch err = plain(err); {
	case pipeline.Is(err, pipeline.NotFound) && r.Mode == pipeline.Verify:
		r.AddDrift(pipeline.Drift{Kind: kindCluster, Key: "adopted", ID: r.Job.Config.InfraConfig.Cluster.ID, Attr: "exists", Wanted: "yes", Seen: "no"})
		return nil
	case pipeline.Is(err, pipeline.NotFound):
		return pipeline.Fatal("cluster-not-found", fmt.Sprintf("there is no cluster %s in %s: %v", clusterName, p.region, err), "Name a cluster of this account and region, then retry.").On("config.spec.adopt.name").From(err)
	case err != nil:
		return err
	}
	switch {
	case r.Mode == pipeline.Verify:
		if c.Status != ekstypes.ClusterStatusActive {
			r.AddDrift(pipeline.Drift{Kind: kindCluster, Key: "adopted", ID: aws.ToString(c.Arn), Attr: "state", Wanted: "ready", Seen: clusterIssues(c)})
		}
		return nil
	case c.Status == ekstypes.ClusterStatusFailed || c.Status == ekstypes.ClusterStatusDeleting:
		return pipeline.Fatal("cluster-not-usable", fmt.Sprintf("cluster %s is %s", clusterName, clusterIssues(c)), "Adopt a cluster that is active.").On("config.spec.adopt.name")
	}
	return p.recordAdopted(ctx, r, c)
}

func (p *Provider) recordAdopted(ctx context.Context, r *pipeline.Run, c ekstypes.Cluster) error {
	ic := &r.Job.Config.InfraConfig
	info := job.ClusterInfo{}
	recordCluster(&info, c)
	if v := c.ResourcesVpcConfig; v != nil {
		ic.NetworkID, ic.PrivateSubnetIDs = aws.ToString(v.VpcId), slices.Sorted(slices.Values(v.SubnetIds))
		info.Public = v.EndpointPublicAccess
		if v.EndpointPublicAccess {
			info.PublicCIDRs = v.PublicAccessCidrs
		}
	}
	if key := secretsKey(c); key != "none" {
		info.KMSKeyID = key
	}
	if len(loggedBy(c)) > 0 {
		info.LogGroup = clusterLogName(info.Name)
	}
	versions, err := p.clusterVersions(ctx)
	if err := pipeline.Unless(plain(err), pipeline.Denied, pipeline.Invalid); err != nil {
		return err
	}
	for _, v := range versions {
		if v.version == info.Version {
			info.SupportUntil, info.Extended = v.until, !v.standard
		}
	}
	groups, err := p.allNodegroups(ctx, info.Name)
	if err := pipeline.Unless(plain(err), pipeline.Denied); err != nil {
		return err
	}
	for _, g := range groups {
		pool := job.NodePoolInfo{}
		recordPool(&pool, g)
		pool.InstanceType, pool.Arch = strings.Join(g.InstanceTypes, ", "), archOf(g.AmiType)
		info.NodePools = append(info.NodePools, pool)
	}
	rotates, rerr := false, error(nil)
	if info.KMSKeyID != "" {
		rotates, rerr = p.rotates(ctx, info.KMSKeyID)
	}
	info.RiskNotes = clusterRisks(c, groups, info.Extended)
	if info.KMSKeyID != "" && rerr == nil && !rotates {
		info.RiskNotes = append(info.RiskNotes, "the key of the secrets is not rotated (EKS-09)")
	}
	if err != nil {
		info.RiskNotes = append(info.RiskNotes, "the node groups were not looked into, for want of permission")
	}
	ic.Cluster, ic.Warnings = info, info.RiskNotes
	return r.Save(ctx)
}

func archOf(t ekstypes.AMITypes) string {
	switch {
	case strings.Contains(string(t), "ARM_64"):
		return "arm64"
	case t == "" || t == ekstypes.AMITypesCustom:
		return ""
	}
	return "amd64"
}

// allNodegroups reads every node group of a cluster.
func (p *Provider) allNodegroups(ctx context.Context, cluster string) ([]ekstypes.Nodegroup, error) {
	names, err := p.nodegroupNames(ctx, cluster)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	var out []ekstypes.Nodegroup
	for _, n := range names {
		g, err := p.readNodegroup(ctx, cluster, n)
		if pipeline.Is(err, pipeline.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, g)
	}
	return out, nil
}

// clusterRisks is what of a cluster falls short of what a cluster of our own has.
func clusterRisks(c ekstypes.Cluster, groups []ekstypes.Nodegroup, extended bool) []string {
	var out []string
	note := func(short bool, format string, args ...any) {
		if short {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	if v := c.ResourcesVpcConfig; v != nil {
		open := slices.Contains(v.PublicAccessCidrs, anywhere) || slices.Contains(v.PublicAccessCidrs, "::/0") || len(v.PublicAccessCidrs) == 0
		note(v.EndpointPublicAccess && open, "the API server is open to the whole internet (EKS-01)")
		note(!v.EndpointPrivateAccess, "the API server is not reached from inside of the network: nodes leave it to get there (EKS-03)")
	}
	var missing []string
	for _, t := range allLogs {
		if !slices.Contains(loggedBy(c), t) {
			missing = append(missing, string(t))
		}
	}
	note(len(missing) > 0, "these logs of the control plane are off: %s (EKS-04, EKS-05)", strings.Join(missing, ", "))
	note(secretsKey(c) == "none", "secrets are not encrypted with a customer's key (EKS-08)")
	note(extended, "Kubernetes %s is past its standard support (EKS-10)", aws.ToString(c.Version))
	note(supportOf(c) == string(ekstypes.SupportTypeExtended), "the cluster goes into extended support by itself, which is billed extra (EKS-11)")
	note(!aws.ToBool(c.DeletionProtection), "the cluster is not protected from deletion (EKS-13)")
	note(authMode(c) != string(ekstypes.AuthenticationModeApi), "who may do what is read from the aws-auth map: the authentication mode is %s (EKS-14)", authMode(c))
	for _, g := range groups {
		group := aws.ToString(g.NodegroupName)
		note(g.Status != ekstypes.NodegroupStatusActive, "node group %s is %s", group, nodegroupIssues(g))
		note(strings.HasPrefix(string(g.AmiType), "AL2_"), "node group %s runs Amazon Linux 2, which gets no more images (EKS-28)", group)
		note(g.RemoteAccess != nil && len(g.RemoteAccess.SourceSecurityGroups) == 0, "node group %s lets SSH in from everywhere (EKS-21)", group)
		note(aws.ToString(g.Version) != "" && aws.ToString(g.Version) != aws.ToString(c.Version), "node group %s runs Kubernetes %s, and the control plane %s (EKS-12)", group, aws.ToString(g.Version), aws.ToString(c.Version))
	}
	return out
}
