package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

func (p *Provider) readNodegroup(ctx context.Context, cluster, group string) (ekstypes.Nodegroup, error) {
	return lookup.Once(ctx, kindNodegroup+" "+cluster+"/"+group, func(ctx context.Context) (ekstypes.Nodegroup, error) {
		out, err := p.eks.DescribeNodegroup(ctx, &eks.DescribeNodegroupInput{ClusterName: aws.String(cluster), NodegroupName: aws.String(group)})
		if err != nil {
			return ekstypes.Nodegroup{}, err
		}
		if out.Nodegroup == nil {
			return ekstypes.Nodegroup{}, absent("EKS", "DescribeNodegroup", "node group "+group)
		}
		return *out.Nodegroup, nil
	})
}

func (p *Provider) nodegroupNames(ctx context.Context, cluster string) ([]string, error) {
	return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]string, *string, error) {
		out, err := p.eks.ListNodegroups(ctx, &eks.ListNodegroupsInput{ClusterName: aws.String(cluster), NextToken: token})
		if err != nil {
			return nil, nil, err
		}
		return out.Nodegroups, out.NextToken, nil
	})
}

func (p *Provider) fargateProfiles(ctx context.Context, cluster string) ([]string, error) {
	return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]string, *string, error) {
		out, err := p.eks.ListFargateProfiles(ctx, &eks.ListFargateProfilesInput{ClusterName: aws.String(cluster), NextToken: token})
		if err != nil {
			return nil, nil, err
		}
		return out.FargateProfileNames, out.NextToken, nil
	})
}

// nodeTemplate is what the nodes of a pool start from.
func (p *Provider) nodeTemplate(r *pipeline.Run, n job.NodePool) pipeline.Resource {
	key := poolPrefix + n.Name
	return p.launchTemplateOf(r, key, name(r, n.Name, 125), nodeTemplateData(r, n))
}

// nodeTemplateData is what EKS is not to choose by itself: encrypted gp3 disks,
// instance metadata by session tokens with a hop limit of 1, no public address. The
// image and the user data are EKS's ("Customize managed nodes with launch templates").
// The group has to be named where an interface is.
func nodeTemplateData(r *pipeline.Run, n job.NodePool) *ec2types.RequestLaunchTemplateData {
	node := ec2Tags(tagsFor(r.Job, poolPrefix+n.Name, name(r, n.Name, 63)))
	disk := func(device string, gib *int32) ec2types.LaunchTemplateBlockDeviceMappingRequest {
		return ec2types.LaunchTemplateBlockDeviceMappingRequest{DeviceName: aws.String(device), Ebs: &ec2types.LaunchTemplateEbsBlockDeviceRequest{
			VolumeType: ec2types.VolumeTypeGp3, VolumeSize: gib, Encrypted: aws.Bool(true), DeleteOnTermination: aws.Bool(true),
		}}
	}
	disks := []ec2types.LaunchTemplateBlockDeviceMappingRequest{disk("/dev/xvda", aws.Int32(int32(n.DiskGiB)))}
	if n.OS == job.OSBottlerocket {
		// Its first disk holds the system alone, as large as the image says; images and
		// pods live on the second.
		disks = []ec2types.LaunchTemplateBlockDeviceMappingRequest{disk("/dev/xvda", nil), disk("/dev/xvdb", aws.Int32(int32(n.DiskGiB)))}
	}
	return &ec2types.RequestLaunchTemplateData{
		BlockDeviceMappings: disks,
		MetadataOptions: &ec2types.LaunchTemplateInstanceMetadataOptionsRequest{
			HttpEndpoint:            ec2types.LaunchTemplateInstanceMetadataEndpointStateEnabled,
			HttpTokens:              ec2types.LaunchTemplateHttpTokensStateRequired,
			HttpPutResponseHopLimit: aws.Int32(1),
		},
		NetworkInterfaces: []ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{{
			DeviceIndex: aws.Int32(0), AssociatePublicIpAddress: aws.Bool(false), DeleteOnTermination: aws.Bool(true),
			Groups: []string{r.Job.Config.InfraConfig.Cluster.SecurityGroupID},
		}},
		TagSpecifications: []ec2types.LaunchTemplateTagSpecificationRequest{
			{ResourceType: ec2types.ResourceTypeInstance, Tags: node},
			{ResourceType: ec2types.ResourceTypeVolume, Tags: node},
			{ResourceType: ec2types.ResourceTypeNetworkInterface, Tags: node},
		},
	}
}

// amiType is the image of a pool's nodes as EKS names it; the GPU and Neuron
// variants are chosen by instance type alone.
func amiType(os, arch string) ekstypes.AMITypes {
	switch {
	case os == job.OSBottlerocket && arch == "arm64":
		return ekstypes.AMITypesBottlerocketArm64
	case os == job.OSBottlerocket:
		return ekstypes.AMITypesBottlerocketX8664
	case arch == "arm64":
		return ekstypes.AMITypesAl2023Arm64Standard
	}
	return ekstypes.AMITypesAl2023X8664Standard
}

var taintEffects = map[string]ekstypes.TaintEffect{
	"NoSchedule": ekstypes.TaintEffectNoSchedule, "NoExecute": ekstypes.TaintEffectNoExecute, "PreferNoSchedule": ekstypes.TaintEffectPreferNoSchedule,
}

func nodeTaints(n job.NodePool) []ekstypes.Taint {
	var out []ekstypes.Taint
	for _, t := range n.Taints {
		taint := ekstypes.Taint{Key: aws.String(t.Key), Effect: taintEffects[t.Effect]}
		if t.Value != "" {
			taint.Value = aws.String(t.Value)
		}
		out = append(out, taint)
	}
	return out
}

// nodegroupInput is everything that a pool is made with.
func nodegroupInput(r *pipeline.Run, n job.NodePool, template string) *eks.CreateNodegroupInput {
	ic := r.Job.Config.InfraConfig
	info := job.NodePoolInfo{}
	if at := ic.Cluster.Pool(n.Name); at != nil {
		info = *at
	}
	in := &eks.CreateNodegroupInput{
		ClusterName: aws.String(clusterNameOf(r.Job)), NodegroupName: aws.String(n.Name), NodeRole: aws.String(ic.Cluster.NodeRoleID),
		Subnets: poolSubnets(ic, info.Zones), AmiType: amiType(n.OS, info.Arch), CapacityType: ekstypes.CapacityTypesOnDemand,
		ScalingConfig:  &ekstypes.NodegroupScalingConfig{MinSize: aws.Int32(int32(*n.Min)), MaxSize: aws.Int32(int32(*n.Max)), DesiredSize: aws.Int32(int32(*n.Desired))},
		LaunchTemplate: &ekstypes.LaunchTemplateSpecification{Id: aws.String(template)},
		UpdateConfig:   &ekstypes.NodegroupUpdateConfig{MaxUnavailable: aws.Int32(1)},
		Labels:         n.Labels, Taints: nodeTaints(n), Tags: tags(r, poolPrefix+n.Name, n.Name),
	}
	if info.InstanceType != "" {
		in.InstanceTypes = []string{info.InstanceType}
	}
	if n.Spot {
		in.CapacityType = ekstypes.CapacityTypesSpot
	}
	return in
}

// poolSubnets are the private subnets of the zones that have a pool's type.
func poolSubnets(ic job.InfraConfig, zones []string) []string {
	var out []string
	for i, id := range ic.PrivateSubnetIDs {
		if len(zones) == 0 || i < len(ic.Zones) && slices.Contains(zones, ic.Zones[i]) {
			out = append(out, id)
		}
	}
	return out
}

// nodegroup is one node pool: a managed node group. EKS waits by itself for
// capacity, and gives up by itself: why stands in its health.
func (p *Provider) nodegroup(r *pipeline.Run, n job.NodePool, template string) pipeline.Resource {
	cluster := clusterNameOf(r.Job)
	in := nodegroupInput(r, n, template)
	x := pipeline.Resource{Kind: kindNodegroup, Key: poolPrefix + n.Name, Name: n.Name, Args: in, Tokened: true, Slow: true, Patience: 40 * time.Minute}
	x.Get = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		g, err := p.readNodegroup(ctx, cluster, n.Name)
		if err != nil {
			return pipeline.Seen{}, err
		}
		return p.seeNodegroup(ctx, r, g, n, template)
	}
	x.Find = eksNamed(r, x)
	x.Create = func(ctx context.Context, token string) (pipeline.Seen, error) {
		req := *in
		req.ClientRequestToken = aws.String(token)
		out, err := p.eks.CreateNodegroup(ctx, &req)
		if err != nil || out.Nodegroup == nil {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: aws.ToString(out.Nodegroup.NodegroupArn), Owner: r.Job.ID, Status: pipeline.Pending, Reason: string(out.Nodegroup.Status)}, nil
	}
	x.Delete = func(ctx context.Context, _ string) error {
		_, err := p.eks.DeleteNodegroup(ctx, &eks.DeleteNodegroupInput{ClusterName: aws.String(cluster), NodegroupName: aws.String(n.Name)})
		return err
	}
	return tidy(x)
}

func (p *Provider) seeNodegroup(ctx context.Context, r *pipeline.Run, g ekstypes.Nodegroup, n job.NodePool, template string) (pipeline.Seen, error) {
	s := pipeline.Seen{ID: aws.ToString(g.NodegroupArn), Owner: eksMark(g.Tags), Status: pipeline.Pending, Reason: nodegroupIssues(g)}
	switch g.Status {
	case ekstypes.NodegroupStatusActive:
		s.Status = pipeline.Ready
	case ekstypes.NodegroupStatusCreateFailed, ekstypes.NodegroupStatusDeleteFailed:
		s.Status = pipeline.Broken
	}
	if s.Status != pipeline.Ready || r.Down {
		return s, nil
	}
	s.Aspects = p.poolAspects(r, g, n)
	version, err := p.defaultVersion(ctx, template)
	if err != nil || g.LaunchTemplate == nil {
		return s, pipeline.Unless(plain(err), pipeline.NotFound, pipeline.Invalid) // the template's own row tells
	}
	u := updates{Provider: p, r: r, cluster: aws.ToString(g.ClusterName), nodegroup: n.Name}
	want := fmt.Sprint(aws.ToInt64(version.VersionNumber))
	s.Aspects = append(s.Aspects, pipeline.Aspect{Name: "launch template", Wanted: template + " version " + want, Seen: aws.ToString(g.LaunchTemplate.Id) + " version " + aws.ToString(g.LaunchTemplate.Version),
		Set: u.change("launch template", func(ctx context.Context) (*ekstypes.Update, error) {
			out, err := p.eks.UpdateNodegroupVersion(ctx, &eks.UpdateNodegroupVersionInput{
				ClusterName: g.ClusterName, NodegroupName: g.NodegroupName, LaunchTemplate: &ekstypes.LaunchTemplateSpecification{Id: aws.String(template), Version: aws.String(want)},
			})
			if err != nil {
				return nil, err
			}
			return out.Update, nil
		})})
	return s, nil
}

// poolAspects compares bounds, labels and taints. The number of nodes in between is
// the autoscaler's.
func (p *Provider) poolAspects(r *pipeline.Run, g ekstypes.Nodegroup, n job.NodePool) []pipeline.Aspect {
	u := updates{Provider: p, r: r, cluster: aws.ToString(g.ClusterName), nodegroup: n.Name}
	set := func(what string, in *eks.UpdateNodegroupConfigInput) func(context.Context) error {
		in.ClusterName, in.NodegroupName = g.ClusterName, g.NodegroupName
		return u.change(what, func(ctx context.Context) (*ekstypes.Update, error) {
			out, err := p.eks.UpdateNodegroupConfig(ctx, in)
			if err != nil {
				return nil, err
			}
			return out.Update, nil
		})
	}
	bounds := "not said"
	nodes := *n.Desired
	if s := g.ScalingConfig; s != nil {
		bounds = fmt.Sprintf("min %d, max %d", aws.ToInt32(s.MinSize), aws.ToInt32(s.MaxSize))
		nodes = min(max(int(aws.ToInt32(s.DesiredSize)), *n.Min), *n.Max)
	}
	var stale []string
	for k := range g.Labels {
		if _, ok := n.Labels[k]; !ok {
			stale = append(stale, k)
		}
	}
	want := nodeTaints(n)
	gone := slices.DeleteFunc(slices.Clone(g.Taints), func(t ekstypes.Taint) bool {
		return slices.ContainsFunc(want, func(w ekstypes.Taint) bool { return w.Effect == t.Effect && aws.ToString(w.Key) == aws.ToString(t.Key) })
	})
	return []pipeline.Aspect{
		{Name: "size", Wanted: fmt.Sprintf("min %d, max %d", *n.Min, *n.Max), Seen: bounds, Set: set("size", &eks.UpdateNodegroupConfigInput{
			ScalingConfig: &ekstypes.NodegroupScalingConfig{MinSize: aws.Int32(int32(*n.Min)), MaxSize: aws.Int32(int32(*n.Max)), DesiredSize: aws.Int32(int32(nodes))},
		})},
		{Name: "labels", Wanted: sortedPairs(n.Labels), Seen: sortedPairs(g.Labels), Set: set("labels", &eks.UpdateNodegroupConfigInput{
			Labels: &ekstypes.UpdateLabelsPayload{AddOrUpdateLabels: n.Labels, RemoveLabels: stale},
		})},
		{Name: "taints", Wanted: taintText(want), Seen: taintText(g.Taints), Set: set("taints", &eks.UpdateNodegroupConfigInput{
			Taints: &ekstypes.UpdateTaintsPayload{AddOrUpdateTaints: want, RemoveTaints: gone},
		})},
	}
}

func taintText(taints []ekstypes.Taint) string {
	var out []string
	for _, t := range taints {
		out = append(out, fmt.Sprintf("%s=%s:%s", aws.ToString(t.Key), aws.ToString(t.Value), t.Effect))
	}
	return or(strings.Join(slices.Sorted(slices.Values(out)), ", "), "none")
}

// nodegroupIssues is a node group's state with the reasons for it.
func nodegroupIssues(g ekstypes.Nodegroup) string {
	var all []string
	if g.Health != nil {
		for _, i := range g.Health.Issues {
			all = append(all, string(i.Code)+": "+aws.ToString(i.Message))
		}
	}
	return issueText(string(g.Status), all...)
}
