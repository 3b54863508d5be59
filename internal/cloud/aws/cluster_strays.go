package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	classicelb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// instances are nodes that something else than EKS has launched, such as Karpenter.
func (s *clusterSweep) instances(ctx context.Context) ([]stray, error) {
	all, err := ec2Page[instance](s.instancePage).all(ctx, filter("vpc-id", s.vpc), filter("tag-key", "kubernetes.io/cluster/"+s.name),
		filter("instance-state-name", "pending", "running", "stopping", "stopped"))
	var out []stray
	for _, i := range all {
		if aws.ToString(i.VpcId) != s.vpc || !s.marked(tagMap(i.Tags)) {
			continue
		}
		out = append(out, stray{"instance " + aws.ToString(i.InstanceId), func(ctx context.Context) error {
			_, err := s.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{aws.ToString(i.InstanceId)}})
			return err
		}})
	}
	return out, err
}

// elbTags are the tags of load balancers or target groups, by ARN.
func (p *Provider) elbTags(ctx context.Context, arns []string) (map[string]map[string]string, error) {
	out := map[string]map[string]string{}
	for part := range slices.Chunk(arns, 20) { // DescribeTags takes 20
		got, err := p.elb.DescribeTags(ctx, &elb.DescribeTagsInput{ResourceArns: part})
		if pipeline.Is(err, pipeline.NotFound) && len(part) > 1 {
			// One that went meanwhile makes the call fail for all.
			for _, arn := range part {
				one, err := p.elbTags(ctx, []string{arn})
				if err := pipeline.Unless(plain(err), pipeline.NotFound); err != nil {
					return nil, err
				}
				if one[arn] != nil {
					out[arn] = one[arn]
				}
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, d := range got.TagDescriptions {
			tags := map[string]string{}
			for _, t := range d.Tags {
				tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
			}
			out[aws.ToString(d.ResourceArn)] = tags
		}
	}
	return out, nil
}

// ownBalancers are the cluster's load balancers in its network.
func (s *clusterSweep) ownBalancers(ctx context.Context) ([]string, error) {
	all, err := s.allBalancers(ctx)
	if err != nil {
		return nil, err
	}
	var arns []string
	for _, l := range all {
		if aws.ToString(l.VpcId) == s.vpc {
			arns = append(arns, aws.ToString(l.LoadBalancerArn))
		}
	}
	tags, err := s.elbTags(ctx, arns)
	return slices.DeleteFunc(arns, func(arn string) bool { return !s.marked(tags[arn]) }), err
}

// Removable says whether somebody has protected a load balancer of the cluster from
// deletion, before anything in it is drained: with one left the network cannot go
// (failure kind K7). A datastore may be protected itself, or have replicas.
func (p *Provider) Removable(ctx context.Context, r *pipeline.Run) error {
	const looked = "no load balancer is protected"
	if r.Job.ResourceType == job.Datastore && r.Mode == pipeline.Apply && r.Job.Owns() {
		return p.datastoreRemovable(ctx, r)
	}
	if r.Mode != pipeline.Apply || !r.Job.Owns() || !isCluster(r.Job) || r.Recall(looked) != nil {
		return nil
	}
	ctx = lookup.With(ctx, r)
	b, err := p.newClusterBuild(r)
	if err != nil {
		return err
	}
	s := b.newSweep()
	if s.vpc == "" {
		return nil
	}
	arns, err := s.ownBalancers(ctx)
	if err != nil {
		return pipeline.Unless(plain(err), pipeline.Invalid)
	}
	for _, arn := range arns {
		attrs, err := p.lbAttributes(ctx, arn)
		if err := pipeline.Unless(plain(err), pipeline.NotFound); err != nil {
			return err
		}
		if attrs[deletionProtection] == "true" {
			return pipeline.Fatal("protected", fmt.Sprintf("load balancer %s, which cluster %s has made, is protected from deletion; nothing was removed", arn, s.name),
				"Lift its protection, or remove the Service or Ingress that it is for, then retry.")
		}
	}
	r.Remember(looked, true)
	return nil
}

func (s *clusterSweep) loadBalancers(ctx context.Context) ([]stray, error) {
	arns, err := s.ownBalancers(ctx)
	var out []stray
	for _, arn := range arns {
		out = append(out, stray{"load balancer " + arn, func(ctx context.Context) error {
			_, err := s.elb.DeleteLoadBalancer(ctx, &elb.DeleteLoadBalancerInput{LoadBalancerArn: aws.String(arn)})
			if err = plain(err); pipeline.Is(err, pipeline.Denied) && strings.Contains(err.Error(), "OperationNotPermitted") {
				return &pipeline.BlockedError{What: "load balancer " + arn, Err: err, By: "somebody has protected it from deletion; lift that, or remove what it is for"}
			}
			return err
		}})
	}
	return out, err
}

// classic are Classic Load Balancers, which the cluster's own controller makes for a
// Service without annotations.
func (s *clusterSweep) classic(ctx context.Context) ([]stray, error) {
	names, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]string, *string, error) {
		out, err := s.clb.DescribeLoadBalancers(ctx, &classicelb.DescribeLoadBalancersInput{Marker: token})
		if err != nil {
			return nil, nil, err
		}
		var names []string
		for _, l := range out.LoadBalancerDescriptions {
			if aws.ToString(l.VPCId) == s.vpc {
				names = append(names, aws.ToString(l.LoadBalancerName))
			}
		}
		return names, out.NextMarker, nil
	})
	var found []stray
	for part := range slices.Chunk(names, 20) { // DescribeTags takes 20
		got, err := s.clb.DescribeTags(ctx, &classicelb.DescribeTagsInput{LoadBalancerNames: part})
		if err != nil {
			return nil, err
		}
		for _, d := range got.TagDescriptions {
			tags := map[string]string{}
			for _, t := range d.Tags {
				tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
			}
			if s.marked(tags) {
				found = append(found, stray{"classic load balancer " + aws.ToString(d.LoadBalancerName), func(ctx context.Context) error {
					_, err := s.clb.DeleteLoadBalancer(ctx, &classicelb.DeleteLoadBalancerInput{LoadBalancerName: d.LoadBalancerName})
					return err
				}})
			}
		}
	}
	return found, err
}

func (s *clusterSweep) targetGroups(ctx context.Context) ([]stray, error) {
	all, err := s.allTargetGroups(ctx)
	if err != nil {
		return nil, err
	}
	var arns []string
	for _, g := range all {
		if aws.ToString(g.VpcId) == s.vpc {
			arns = append(arns, aws.ToString(g.TargetGroupArn))
		}
	}
	tags, err := s.elbTags(ctx, arns)
	var out []stray
	for _, arn := range arns {
		if s.marked(tags[arn]) {
			out = append(out, stray{"target group " + arn, func(ctx context.Context) error {
				_, err := s.elb.DeleteTargetGroup(ctx, &elb.DeleteTargetGroupInput{TargetGroupArn: aws.String(arn)})
				return err
			}})
		}
	}
	return out, err
}

// interfaces are what the network plugin made for pods and did not give back: its
// own sweep dies with the nodes (amazon-vpc-cni-k8s, README; failure kind E1).
func (s *clusterSweep) interfaces(ctx context.Context) ([]stray, error) {
	all, err := ec2Page[ec2types.NetworkInterface](s.interfacePage).all(ctx, filter("vpc-id", s.vpc), filter("status", string(ec2types.NetworkInterfaceStatusAvailable)))
	var out []stray
	for _, n := range all {
		tags := tagMap(n.TagSet)
		_, nodes := tags["node.k8s.amazonaws.com/instance_id"]
		inGroup := slices.ContainsFunc(n.Groups, func(g ec2types.GroupIdentifier) bool {
			return s.ic.Cluster.SecurityGroupID != "" && aws.ToString(g.GroupId) == s.ic.Cluster.SecurityGroupID
		})
		if aws.ToString(n.VpcId) != s.vpc || n.Status != ec2types.NetworkInterfaceStatusAvailable || !s.marked(tags) && !(nodes && (s.own || inGroup)) {
			continue
		}
		out = append(out, stray{"interface " + aws.ToString(n.NetworkInterfaceId), func(ctx context.Context) error {
			_, err := s.ec2.DeleteNetworkInterface(ctx, &ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: n.NetworkInterfaceId})
			return err
		}})
	}
	return out, err
}

// volumes are disks of claims. One that the ledger has as kept was to outlive its
// claim, and does.
func (s *clusterSweep) volumes(ctx context.Context) ([]stray, error) {
	seen := map[string]bool{}
	for _, o := range s.r.Objects() {
		if o.State == job.ObjectKept {
			seen[o.ID] = true
		}
	}
	var out []stray
	for _, by := range []ec2types.Filter{filter("tag:kubernetes.io/cluster/"+s.name, "owned"), filter("tag:KubernetesCluster", s.name)} {
		all, err := ec2Page[ec2types.Volume](s.volumePage).all(ctx, by)
		if err != nil {
			return nil, err
		}
		for _, v := range all {
			id := aws.ToString(v.VolumeId)
			if seen[id] || !s.marked(tagMap(v.Tags)) || v.State == ec2types.VolumeStateDeleting || v.State == ec2types.VolumeStateDeleted {
				continue
			}
			seen[id] = true
			if s.r.Job.Config.InfraConfig.Cluster.Undrained {
				if err := s.r.KeepOther(ctx, kindVolume, id, id, "the cluster could not be asked whether its data was to be retained"); err != nil {
					return nil, err
				}
				continue
			}
			out = append(out, stray{"volume " + id, func(ctx context.Context) error {
				_, err := s.ec2.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: aws.String(id)})
				return err
			}})
		}
	}
	return out, nil
}

// templates are launch templates of Karpenter.
func (s *clusterSweep) templates(ctx context.Context) ([]stray, error) {
	all, err := ec2Page[ec2types.LaunchTemplate](s.templatePage).all(ctx, filter("tag:karpenter.k8s.aws/cluster", s.name))
	var out []stray
	for _, t := range all {
		if !s.marked(tagMap(t.Tags)) {
			continue
		}
		out = append(out, stray{"launch template " + aws.ToString(t.LaunchTemplateId), func(ctx context.Context) error {
			_, err := s.ec2.DeleteLaunchTemplate(ctx, &ec2.DeleteLaunchTemplateInput{LaunchTemplateId: t.LaunchTemplateId})
			return err
		}})
	}
	return out, err
}

// groups are security groups of load balancers, and the cluster's own where EKS
// could not delete it. Such groups refer to each other: those lines go first. A line
// in somebody else's group stays and is named (failure kind E7).
func (s *clusterSweep) groups(ctx context.Context) ([]stray, error) {
	all, err := ec2Page[ec2types.SecurityGroup](s.groupPage).all(ctx, filter("vpc-id", s.vpc))
	if err != nil {
		return nil, err
	}
	var ours, others []ec2types.SecurityGroup
	for _, g := range all {
		if aws.ToString(g.VpcId) == s.vpc && aws.ToString(g.GroupName) != "default" && s.marked(tagMap(g.Tags)) {
			ours = append(ours, g)
		} else {
			others = append(others, g)
		}
	}
	var out []stray
	for _, g := range ours {
		out = append(out, stray{fmt.Sprintf("security group %s (%s)", aws.ToString(g.GroupId), aws.ToString(g.GroupName)), func(ctx context.Context) error {
			return s.removeGroup(ctx, g, ours, others)
		}})
	}
	return out, nil
}

func (s *clusterSweep) removeGroup(ctx context.Context, g ec2types.SecurityGroup, ours, others []ec2types.SecurityGroup) error {
	id := aws.ToString(g.GroupId)
	for _, other := range ours {
		if aws.ToString(other.GroupId) == id {
			continue
		}
		if err := s.disallow(ctx, aws.ToString(other.GroupId), ingress, linesTo(linesOf(other.IpPermissions), id)); err != nil {
			return err
		}
		if err := s.disallow(ctx, aws.ToString(other.GroupId), egress, linesTo(linesOf(other.IpPermissionsEgress), id)); err != nil {
			return err
		}
	}
	_, err := s.ec2.DeleteSecurityGroup(ctx, &ec2.DeleteSecurityGroupInput{GroupId: aws.String(id)})
	if err = plain(err); !pipeline.Is(err, pipeline.Busy) {
		return err
	}
	var foreign []string
	for _, other := range others {
		if len(linesTo(linesOf(other.IpPermissions), id))+len(linesTo(linesOf(other.IpPermissionsEgress), id)) > 0 {
			foreign = append(foreign, fmt.Sprintf("%s (%s)", aws.ToString(other.GroupId), aws.ToString(other.GroupName)))
		}
	}
	if len(foreign) > 0 {
		return &pipeline.BlockedError{What: "security group " + id, Err: err, By: "rules of " + strings.Join(foreign, ", ") + " refer to it, which this job did not make: remove those rules there"}
	}
	by, berr := s.interfaceBlockers(ctx, s.r, "it", filter("group-id", id))
	if berr != nil {
		return berr
	}
	if by != "" {
		return &pipeline.BlockedError{What: "security group " + id, By: by, Err: err}
	}
	return err
}
