package aws

import (
	"fmt"
	"slices"
	"strings"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	asgtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
)

// How long the parts of a node group's life take, as a rule.
const (
	launchTime   = 20 * time.Second // until its Auto Scaling group is there
	groupTime    = 150 * time.Second
	busyTick     = 10 * time.Second // how often a node group in motion is looked at
	quietTick    = 30 * time.Second
	launchLimit  = 5 * time.Minute  // until failed launches fail the node group
	joinLimit    = 20 * time.Minute // until nodes that do not join fail it
	drainTime    = 45 * time.Second // until the nodes are drained and the instances go
	groupEndTime = 150 * time.Second
)

const (
	leakInterfaces   = "LEAK_INTERFACES"
	leakedInterfaces = 2
)

// profileName is what the instance profile and the launch template of a node group are called.
func (n *EKSNodegroup) profileName() string { return "eks-" + n.UID }

// makeProfile makes the instance profile through which the nodes get their role. It is in the way of deleting the role.
func (s *eksService) makeProfile(c *reqCtx, n *EKSNodegroup) {
	a := s.cloud.platform.iam.state.account(c.account)
	r := s.cloud.platform.iam.roleByARN(n.RoleARN)
	a.Profiles[n.profileName()] = &IAMProfile{Name: n.profileName(), Path: "/", ID: c.uniqueID("AIPA"), ARN: c.iamARN("instance-profile/" + n.profileName()),
		Created: c.second(), Role: strings.ToLower(r.Name), RoleAt: c.now, Tags: []Tag{}}
}

// tickGroup lets a node group take one look at itself.
func (s *eksService) tickGroup(k *EKSCluster, n *EKSNodegroup) {
	next := busyTick
	switch {
	case n.Status == "DELETING":
		if s.endGroup(k, n) {
			return
		}
	case n.Group == "" && n.Status == "CREATING":
		s.launchGroup(k, n)
	default:
		s.meetNodes(k, n)
		s.judgeGroup(k, n)
	}
	if n.Status != "CREATING" && n.Status != "UPDATING" && n.Status != "DELETING" {
		next = quietTick
	}
	s.look(k, "nodegroup", n.UID, next)
}

// launchGroup makes the launch template and the Auto Scaling group. A fresh instance profile is waited for.
func (s *eksService) launchGroup(k *EKSCluster, n *EKSNodegroup) {
	now := s.cloud.World.Now()
	if err := s.tryLaunch(k, n); err != nil && now.Sub(n.Created) > launchLimit {
		code := "AutoScalingGroupInvalidConfiguration"
		if strings.Contains(err.Error(), "nstance Profile") {
			code = "IamInstanceProfileNotFound"
		}
		n.fail(EKSIssue{Code: code, Message: err.Error(), Resources: []string{n.groupName()}})
	}
}

func (n *EKSNodegroup) groupName() string { return "eks-" + n.Name + "-" + n.UID }

func (n *EKSNodegroup) fail(issues ...EKSIssue) {
	n.Status, n.Issues = "CREATE_FAILED", issues
}

func (s *eksService) tryLaunch(k *EKSCluster, n *EKSNodegroup) error {
	data, err := s.nodeData(k, n)
	if err != nil {
		return err
	}
	c := s.cloud.onBehalf(k.scope(), "autoscaling", "CreateAutoScalingGroup")
	ec2 := s.cloud.ec2
	sc := ec2.in(k.scope())
	t := sc.Templates[n.Template]
	if t == nil {
		t = &LaunchTemplate{TemplateID: "lt-" + s.cloud.hex17(""), TemplateName: n.profileName(), CreatedBy: c.request.principal(), meta: ec2.fresh(k.ownTags(n))}
		t.CreateTime, t.Default = t.Created.Truncate(time.Second), 1
		t.add(c.request, "", data, t.CreateTime)
		t.meta.Default = true // it goes with its node group
		sc.Templates[t.TemplateID], n.Template = t, t.TemplateID
	}
	in := &autoscaling.CreateAutoScalingGroupInput{AutoScalingGroupName: new(n.groupName()), MinSize: new(n.Min), MaxSize: new(n.Max), DesiredCapacity: new(n.Desired),
		VPCZoneIdentifier: new(strings.Join(n.Subnets, ",")), LaunchTemplate: &asgtypes.LaunchTemplateSpecification{LaunchTemplateId: new(t.TemplateID), Version: new("1")},
		TerminationPolicies: []string{"AllocationStrategy", "OldestLaunchTemplate", "OldestInstance"}, HealthCheckGracePeriod: awssdk.Int32(15), CapacityRebalance: awssdk.Bool(true)}
	for _, tag := range k.groupTags(n) {
		in.Tags = append(in.Tags, asgtypes.Tag{Key: new(tag.Key), Value: new(tag.Value), PropagateAtLaunch: awssdk.Bool(true)})
	}
	if _, err := s.cloud.platform.asg.createGroup(c, in); err != nil {
		return err
	}
	n.Group = n.groupName()
	return nil
}

// ownTags are the tags on what EKS makes for a node group.
func (k *EKSCluster) ownTags(n *EKSNodegroup) []Tag {
	return []Tag{{"eks:cluster-name", k.Name}, {"eks:nodegroup-name", n.Name}}
}

// groupTags are those of the Auto Scaling group and its instances.
func (k *EKSCluster) groupTags(n *EKSNodegroup) []Tag {
	return append(k.ownTags(n), Tag{"k8s.io/cluster-autoscaler/enabled", "true"}, Tag{"k8s.io/cluster-autoscaler/" + k.Name, "owned"}, Tag{"kubernetes.io/cluster/" + k.Name, "owned"})
}

// nodeData is what the nodes are launched with: the customer's launch template over what EKS gives by itself.
func (s *eksService) nodeData(k *EKSCluster, n *EKSNodegroup) (launchData, error) {
	sc := s.cloud.ec2.in(k.scope())
	base := launchData{Metadata: &launchMetadata{Tokens: "required", HopLimit: awssdk.Int(2)}, KeyName: n.SSHKey}
	var custom launchData
	if n.TemplateID != "" {
		t := sc.Templates[n.TemplateID]
		if t == nil {
			return base, refuse("Ec2LaunchTemplateNotFound", "Launch template with ID %s was not found", n.TemplateID)
		}
		v, err := t.version(n.TemplateVersion)
		if err != nil {
			return base, err
		}
		custom = v.Data
	}
	typeName := custom.InstanceType
	if len(n.Types) > 0 {
		typeName = n.Types[0]
	}
	image := custom.ImageID
	if image == "" {
		id, ok := s.cloud.ec2.publicImage(k.Region, "al2023", "2023", instanceTypes[typeName].arch)
		if !ok {
			return base, refuse("AmiIdNotFound", "No image for %s", n.AMIType)
		}
		image = id
	}
	if n.TemplateID == "" {
		size, gp3 := int(n.DiskSize), "gp3"
		base.BlockDevices = []launchDevice{{DeviceName: "/dev/xvda", Ebs: &launchEbs{Size: &size, Type: gp3}}}
	}
	out := custom.over(base)
	if n.Capacity == "SPOT" {
		out.Market = &launchMarket{Type: "spot"}
	}
	out.ImageID, out.InstanceType, out.Profile = image, typeName, &launchProfile{Name: n.profileName()}
	if n.AMIType != "CUSTOM" {
		out.UserData = "" // EKS merges its own into it; what the machine does with it is the node's business here
	}
	if len(out.Interfaces) > 0 {
		out.Interfaces = slices.Clone(out.Interfaces)
		if len(out.Interfaces[0].GroupIDs) == 0 {
			out.Interfaces[0].GroupIDs = []string{k.ClusterGroup}
		}
	} else if len(out.GroupIDs) == 0 {
		out.GroupIDs = []string{k.ClusterGroup}
	}
	return out, nil
}

// judgeGroup looks at the nodes and moves the state of a node group on.
func (s *eksService) judgeGroup(k *EKSCluster, n *EKSNodegroup) {
	now, ready := s.cloud.World.Now(), n.ready()
	switch n.Status {
	case "CREATING":
		switch {
		case ready >= int(n.Desired) && now.Sub(n.Created) >= groupTime:
			n.Status, n.Issues, n.Modified = "ACTIVE", []EKSIssue{}, now
		case now.Sub(n.Created) > joinLimit:
			n.fail(n.notJoined()...)
		case now.Sub(n.Created) > launchLimit:
			if failed := s.launchFailure(k, n); failed != nil && len(n.Nodes) < int(n.Desired) {
				n.fail(*failed)
			}
		}
	case "ACTIVE", "DEGRADED":
		if n.Held {
			return
		}
		if g := s.cloud.platform.asg.state.in(k.scope()).Groups[n.Group]; g != nil {
			n.Desired = g.Desired // an autoscaler changes it there
		}
		n.Issues = s.groupIssues(k, n)
		n.Status = "ACTIVE"
		if len(n.Issues) > 0 {
			n.Status = "DEGRADED"
		}
	}
}

// notJoined says which instances are no nodes, or no healthy ones.
func (n *EKSNodegroup) notJoined() []EKSIssue {
	var missing, sick []string
	for _, id := range sortedKeys(n.Nodes) {
		switch node := n.Nodes[id]; {
		case node.Registered.IsZero():
			missing = append(missing, id)
		case !node.Ready:
			sick = append(sick, id)
		}
	}
	if len(missing) == 0 && len(sick) > 0 {
		return []EKSIssue{{Code: "NodeCreationFailure", Message: "Unhealthy nodes in the kubernetes cluster", Resources: sick}}
	}
	return []EKSIssue{{Code: "NodeCreationFailure", Message: "Instances failed to join the kubernetes cluster", Resources: missing}}
}

// launchFailure is why the Auto Scaling group cannot launch, by the newest line of its history.
func (s *eksService) launchFailure(k *EKSCluster, n *EKSNodegroup) *EKSIssue {
	g := s.cloud.platform.asg.state.in(k.scope()).Groups[n.Group]
	if g == nil || len(g.Activities) == 0 || g.Activities[0].Status != "Failed" {
		return nil
	}
	a := g.Activities[0]
	code, kind := "AsgInstanceLaunchFailures", "On-Demand"
	if strings.Contains(a.Message, "not enough free addresses") {
		code = "InsufficientFreeAddresses"
	}
	if n.Capacity == "SPOT" {
		kind = "Spot"
	}
	return &EKSIssue{Code: code, Message: fmt.Sprintf("Could not launch %s Instances. %s", kind, a.Message), Resources: []string{n.Group}}
}

// groupIssues are the health issues of a node group that is up.
func (s *eksService) groupIssues(k *EKSCluster, n *EKSNodegroup) []EKSIssue {
	out := []EKSIssue{}
	g := s.cloud.platform.asg.state.in(k.scope()).Groups[n.Group]
	switch {
	case g == nil:
		return append(out, EKSIssue{Code: "AutoScalingGroupNotFound", Message: "We couldn't find the Auto Scaling group associated with the managed node group", Resources: []string{n.Group}})
	case s.cloud.ec2.in(k.scope()).Templates[n.Template] == nil:
		out = append(out, EKSIssue{Code: "Ec2LaunchTemplateNotFound", Message: "We couldn't find the Amazon EC2 launch template for your managed node group", Resources: []string{n.Template}})
	case s.cloud.platform.iam.roleByARN(n.RoleARN) == nil:
		out = append(out, EKSIssue{Code: "IamNodeRoleNotFound", Message: "The node IAM role of the managed node group was not found", Resources: []string{n.RoleARN}})
	}
	if int32(len(g.counted())) < g.Desired {
		if failed := s.launchFailure(k, n); failed != nil {
			out = append(out, *failed)
		}
	}
	return out
}

// endGroup carries a deletion on, and says whether the node group is gone.
func (s *eksService) endGroup(k *EKSCluster, n *EKSNodegroup) bool {
	spent := s.cloud.World.Now().Sub(n.Deleting)
	asg := s.cloud.platform.asg
	g := asg.state.in(k.scope()).Groups[n.Group]
	if g != nil && !g.Deleting && spent >= drainTime {
		s.leak(k, n, g)
		c := s.cloud.onBehalf(k.scope(), "autoscaling", "DeleteAutoScalingGroup")
		if _, err := asg.deleteGroup(c, &autoscaling.DeleteAutoScalingGroupInput{AutoScalingGroupName: new(n.Group), ForceDelete: awssdk.Bool(true)}); err != nil {
			n.Status = "DELETE_FAILED"
			n.Issues = []EKSIssue{{Code: "AccessDenied", Message: err.Error(), Resources: []string{n.Group}}}
			return false
		}
	}
	for id := range n.Nodes {
		if spent >= drainTime {
			delete(n.Nodes, id)
		}
	}
	if g != nil || spent < groupEndTime {
		return false
	}
	s.dropGroup(k, n)
	return true
}

// leak leaves network interfaces of a node behind, as the CNI plugin does when its node goes away under it
// (https://github.com/terraform-aws-modules/terraform-aws-eks/issues/2004). Nothing but a person or a tool removes them.
func (s *eksService) leak(k *EKSCluster, n *EKSNodegroup, g *ScalingGroup) {
	ec2 := s.cloud.ec2
	sc := ec2.in(k.scope())
	for _, i := range g.Instances {
		inst := sc.Instances[i.ID]
		if inst == nil || sc.Subnets[inst.SubnetID] == nil {
			continue
		}
		for ; n.Leaks > 0; n.Leaks-- {
			e, err := ec2.newInterface(sc, sc.Subnets[inst.SubnetID], slices.Clone(inst.Groups), "aws-K8S-"+i.ID, "interface")
			if err != nil {
				return
			}
			e.Tags = []Tag{{"cluster.k8s.amazonaws.com/name", k.Name}, {"node.k8s.amazonaws.com/instance_id", i.ID}, {"eks:eni:owner", "amazon-vpc-cni"}}
		}
	}
}

// dropGroup takes away a node group and what EKS made for it.
func (s *eksService) dropGroup(k *EKSCluster, n *EKSNodegroup) {
	asg := s.cloud.platform.asg
	if g := asg.state.in(k.scope()).Groups[n.Group]; g != nil && !g.Deleting {
		c := s.cloud.onBehalf(k.scope(), "autoscaling", "DeleteAutoScalingGroup")
		// It exists and is deleted by force; deletion protection, which would refuse, is not set by EKS.
		_, _ = asg.deleteGroup(c, &autoscaling.DeleteAutoScalingGroupInput{AutoScalingGroupName: new(n.Group), ForceDelete: awssdk.Bool(true)})
	}
	delete(s.cloud.ec2.in(k.scope()).Templates, n.Template)
	delete(s.cloud.platform.iam.state.account(k.Account).Profiles, n.profileName())
	delete(k.Nodegroups, n.Name)
	delete(s.in(k.scope()).Looks, n.UID)
	for _, other := range k.Nodegroups {
		if other.RoleARN == n.RoleARN {
			return
		}
	}
	if e := k.Entries[n.RoleARN]; e != nil && e.Service {
		delete(k.Entries, n.RoleARN)
	}
}
