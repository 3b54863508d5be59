package aws

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
)

// EKSNodegroup is a managed node group: EKS makes a launch template, an instance profile and an Auto Scaling group for it.
type EKSNodegroup struct {
	Name, ARN, UID           string
	Created, Modified        time.Time
	Status                   string
	Version, Release         string
	RoleARN                  string
	AMIType, Capacity        string
	Types                    []string
	Subnets                  []string
	DiskSize                 int32
	Min, Max, Desired        int32
	Labels                   map[string]string
	Taints                   []EKSTaint
	TemplateID, TemplateName string // the customer's
	TemplateVersion          string
	SSHKey                   string
	MaxUnavailable           int32
	MaxUnavailablePercent    int32
	Repair                   bool
	Tags                     map[string]string
	Issues                   []EKSIssue
	Held                     bool   // keeps the state that somebody gave it from outside
	Group, Template          string // Auto Scaling group and launch template that EKS made
	Nodes                    map[string]*EKSNode
	Leaks                    int // network interfaces to leave behind
	Deleting                 time.Time
}

// EKSTaint is a taint of a node group, with the effect as EKS spells it.
type EKSTaint struct{ Key, Value, Effect string }

// EKSNode is what is known of an instance as a node.
type EKSNode struct {
	Registered time.Time // zero: not, or not yet
	Missed     bool      // it has given up joining
	Ready      bool
}

var (
	nodegroupName = regexp.MustCompile(`^[0-9A-Za-z][A-Za-z0-9\-_]{0,62}$`)
	labelKey      = regexp.MustCompile(`^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)
	labelValue    = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$`)
)

// nodegroup finds a node group and its cluster.
func (s *eksService) nodegroup(c *reqCtx, cluster, name *string) (*EKSCluster, *EKSNodegroup, error) {
	k, err := s.cluster(c, cluster)
	if err != nil {
		return nil, nil, err
	}
	n := k.Nodegroups[deref(name)]
	if n == nil || !c.visible(n.ARN, n.Created, false, "nodegroup", n.Name, mapValues(n.Tags)) {
		return nil, nil, noResource(k.Name, "No node group found for name: %s.", deref(name))
	}
	c.Touch(n.ARN)
	return k, n, nil
}

func (s *eksService) createNodegroup(c *reqCtx, in *eks.CreateNodegroupInput) (*eks.CreateNodegroupOutput, error) {
	k, err := s.cluster(c, in.ClusterName)
	if err != nil {
		return nil, err
	}
	name := deref(in.NodegroupName)
	if !nodegroupName.MatchString(name) {
		return nil, invalidParameter(k.Name, "The node group name %q is invalid. It has up to 63 characters: letters, digits, hyphens and underscores, and begins with a letter or digit.", name)
	}
	id, err := s.repeated(c, k.Name, in.ClientRequestToken, in)
	if err != nil {
		return nil, err
	}
	if old := k.Nodegroups[name]; old != nil {
		if old.ARN != id {
			return nil, inUse(k.Name, "NodeGroup already exists with name %s and cluster name %s", name, k.Name)
		}
		c.Touch(old.ARN)
		return &eks.CreateNodegroupOutput{Nodegroup: new(k.sdkNodegroup(old))}, nil
	}
	if !k.running() {
		return nil, invalidRequest(k.Name, "Cluster '%s' is not in ACTIVE status", k.Name)
	}
	if float64(len(k.Nodegroups)) >= s.cloud.quota(c.scope(), "eks", quotaNodegroups) {
		return nil, limitExceeded(k.Name, "Nodegroup limit exceeded for cluster %s.", k.Name)
	}
	uid := c.w.UUID()
	n := &EKSNodegroup{Name: name, UID: uid, ARN: c.regionalARN("eks", "nodegroup/"+k.Name+"/"+name+"/"+uid), Created: c.now, Modified: c.now, Status: "CREATING",
		RoleARN: deref(in.NodeRole), Capacity: orText(string(in.CapacityType), "ON_DEMAND"), Types: slices.Clone(in.InstanceTypes), Tags: copyTags(in.Tags),
		Issues: []EKSIssue{}, Nodes: map[string]*EKSNode{}, Leaks: s.cloud.opt.LeakedInterfaces}
	if err := s.configureGroup(c, k, n, in); err != nil {
		return nil, err
	}
	k.Nodegroups[name] = n
	s.remember(c, k.Name, in.ClientRequestToken, in, n.ARN)
	c.Make(n.ARN)
	s.serviceRole(c, "eks-nodegroup.amazonaws.com")
	s.nodeEntry(c, k, n.RoleARN)
	s.makeProfile(c, n)
	s.look(k, "nodegroup", n.UID, launchTime)
	return &eks.CreateNodegroupOutput{Nodegroup: new(k.sdkNodegroup(n))}, nil
}

// configureGroup checks the settings of a new node group and takes them over.
func (s *eksService) configureGroup(c *reqCtx, k *EKSCluster, n *EKSNodegroup, in *eks.CreateNodegroupInput) error {
	if err := checkEKSTags(k.Name, in.Tags); err != nil {
		return err
	}
	if n.Capacity != "ON_DEMAND" && n.Capacity != "SPOT" {
		return invalidParameter(k.Name, "The capacity type %s is not supported.", n.Capacity)
	}
	if err := s.placeGroup(c, k, n, in.Subnets); err != nil {
		return err
	}
	if err := s.checkNodeRole(c, k, n); err != nil {
		return err
	}
	n.Min, n.Max, n.Desired = 1, 2, 2
	if err := s.scale(k, n, in.ScalingConfig); err != nil {
		return err
	}
	template, err := s.chooseTemplate(c, k, n, in)
	if err != nil {
		return err
	}
	if err := s.chooseImage(k, n, string(in.AmiType), template); err != nil {
		return err
	}
	if err := s.chooseVersion(k, n, deref(in.Version), deref(in.ReleaseVersion)); err != nil {
		return err
	}
	if err := n.relabel(k, &types.UpdateLabelsPayload{AddOrUpdateLabels: in.Labels}); err != nil {
		return err
	}
	if err := n.taint(k, &types.UpdateTaintsPayload{AddOrUpdateTaints: in.Taints}); err != nil {
		return err
	}
	n.MaxUnavailable = 1
	if in.NodeRepairConfig != nil {
		n.Repair = deref(in.NodeRepairConfig.Enabled)
	}
	return n.setUpdateConfig(k, in.UpdateConfig)
}

func (n *EKSNodegroup) setUpdateConfig(k *EKSCluster, in *types.NodegroupUpdateConfig) error {
	if in == nil {
		return nil
	}
	if in.MaxUnavailable != nil && in.MaxUnavailablePercentage != nil {
		return invalidParameter(k.Name, "Only one of maxUnavailable and maxUnavailablePercentage can be given.")
	}
	if v := orDefault(in.MaxUnavailable, 1); v < 1 || v > 100 {
		return invalidParameter(k.Name, "maxUnavailable must be between 1 and 100.")
	}
	if v := orDefault(in.MaxUnavailablePercentage, 1); v < 1 || v > 100 {
		return invalidParameter(k.Name, "maxUnavailablePercentage must be between 1 and 100.")
	}
	n.MaxUnavailable, n.MaxUnavailablePercent = deref(in.MaxUnavailable), deref(in.MaxUnavailablePercentage)
	if n.MaxUnavailable == 0 && n.MaxUnavailablePercent == 0 {
		n.MaxUnavailable = 1
	}
	return nil
}

func (k *EKSCluster) sdkNodegroup(n *EKSNodegroup) types.Nodegroup {
	out := types.Nodegroup{NodegroupName: new(n.Name), NodegroupArn: new(n.ARN), ClusterName: new(k.Name), Version: new(n.Version), ReleaseVersion: new(n.Release),
		CreatedAt: new(n.Created), ModifiedAt: new(n.Modified), Status: types.NodegroupStatus(n.Status), CapacityType: types.CapacityTypes(n.Capacity),
		ScalingConfig: &types.NodegroupScalingConfig{MinSize: new(n.Min), MaxSize: new(n.Max), DesiredSize: new(n.Desired)}, Subnets: slices.Clone(n.Subnets),
		AmiType: types.AMITypes(n.AMIType), NodeRole: new(n.RoleARN), Labels: copyTags(n.Labels), Health: &types.NodegroupHealth{Issues: []types.Issue{}},
		Tags: copyTags(n.Tags), UpdateConfig: &types.NodegroupUpdateConfig{}, NodeRepairConfig: &types.NodeRepairConfig{Enabled: new(n.Repair)}}
	if len(n.Types) > 0 {
		out.InstanceTypes = slices.Clone(n.Types)
	}
	if n.DiskSize > 0 {
		out.DiskSize = new(n.DiskSize)
	}
	if n.TemplateID != "" {
		out.LaunchTemplate = &types.LaunchTemplateSpecification{Id: new(n.TemplateID), Name: new(n.TemplateName), Version: new(n.TemplateVersion)}
	}
	for _, t := range n.Taints {
		out.Taints = append(out.Taints, types.Taint{Key: new(t.Key), Value: new(t.Value), Effect: types.TaintEffect(t.Effect)})
	}
	for _, i := range n.Issues {
		out.Health.Issues = append(out.Health.Issues, types.Issue{Code: types.NodegroupIssueCode(i.Code), Message: new(i.Message), ResourceIds: i.Resources})
	}
	if n.MaxUnavailablePercent > 0 {
		out.UpdateConfig.MaxUnavailablePercentage = new(n.MaxUnavailablePercent)
	} else {
		out.UpdateConfig.MaxUnavailable = new(n.MaxUnavailable)
	}
	if n.Group != "" {
		out.Resources = &types.NodegroupResources{AutoScalingGroups: []types.AutoScalingGroup{{Name: new(n.Group)}}}
	}
	if n.SSHKey != "" {
		out.RemoteAccess = &types.RemoteAccessConfig{Ec2SshKey: new(n.SSHKey)}
	}
	return out
}

func (s *eksService) describeNodegroup(c *reqCtx, in *eks.DescribeNodegroupInput) (*eks.DescribeNodegroupOutput, error) {
	k, n, err := s.nodegroup(c, in.ClusterName, in.NodegroupName)
	if err != nil {
		return nil, err
	}
	return &eks.DescribeNodegroupOutput{Nodegroup: new(k.sdkNodegroup(n))}, nil
}

func (s *eksService) listNodegroups(c *reqCtx, in *eks.ListNodegroupsInput) (*eks.ListNodegroupsOutput, error) {
	k, err := s.cluster(c, in.ClusterName)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, name := range sortedKeys(k.Nodegroups) {
		if n := k.Nodegroups[name]; c.visible(n.ARN, n.Created, true, "nodegroup", name, mapValues(n.Tags)) {
			names = append(names, name)
		}
	}
	page, next, err := eksPage(c, names, in.NextToken, in.MaxResults)
	return &eks.ListNodegroupsOutput{Nodegroups: page, NextToken: next}, err
}

func (s *eksService) deleteNodegroup(c *reqCtx, in *eks.DeleteNodegroupInput) (*eks.DeleteNodegroupOutput, error) {
	k, n, err := s.nodegroup(c, in.ClusterName, in.NodegroupName)
	if err != nil {
		return nil, err
	}
	switch n.Status {
	case "DELETING":
		return &eks.DeleteNodegroupOutput{Nodegroup: new(k.sdkNodegroup(n))}, nil
	case "CREATING", "UPDATING":
		return nil, inUse(k.Name, "Nodegroup %s cannot be deleted while it is in the status %s", n.Name, n.Status)
	}
	n.Status, n.Modified, n.Deleting, n.Held = "DELETING", c.now, c.now, false
	c.Make(n.ARN)
	s.look(k, "nodegroup", n.UID, 0)
	return &eks.DeleteNodegroupOutput{Nodegroup: new(k.sdkNodegroup(n))}, nil
}

// relabel changes the Kubernetes labels.
func (n *EKSNodegroup) relabel(k *EKSCluster, in *types.UpdateLabelsPayload) error {
	out := copyTags(n.Labels)
	if in != nil {
		for _, key := range in.RemoveLabels {
			delete(out, key)
		}
		for key, value := range in.AddOrUpdateLabels {
			if len(key) > 317 || !labelKey.MatchString(key) || !labelValue.MatchString(value) {
				return invalidParameter(k.Name, "Label cannot contain invalid characters: %s=%s", key, value)
			}
			if prefix, _, ok := strings.Cut(key, "/"); ok && (prefix == "eks.amazonaws.com" || strings.HasSuffix(prefix, "kubernetes.io") || strings.HasSuffix(prefix, "k8s.io")) {
				return invalidParameter(k.Name, "Label cannot contain reserved prefixes [kubernetes.io/, k8s.io/, eks.amazonaws.com/]: %s", key)
			}
			out[key] = value
		}
	}
	if len(out) > 50 {
		return invalidParameter(k.Name, "A node group can have up to 50 labels.")
	}
	n.Labels = out
	return nil
}

// taint changes the taints; a taint is known by its key and effect.
func (n *EKSNodegroup) taint(k *EKSCluster, in *types.UpdateTaintsPayload) error {
	if in == nil {
		return nil
	}
	out := slices.Clone(n.Taints)
	drop := func(t types.Taint) {
		out = slices.DeleteFunc(out, func(o EKSTaint) bool { return o.Key == deref(t.Key) && o.Effect == string(t.Effect) })
	}
	for _, t := range in.RemoveTaints {
		drop(t)
	}
	for _, t := range in.AddOrUpdateTaints {
		switch t.Effect {
		case types.TaintEffectNoSchedule, types.TaintEffectNoExecute, types.TaintEffectPreferNoSchedule:
		default:
			return invalidParameter(k.Name, "The taint effect %s is invalid.", t.Effect)
		}
		if !labelKey.MatchString(deref(t.Key)) || !labelValue.MatchString(deref(t.Value)) {
			return invalidParameter(k.Name, "Taint cannot contain invalid characters: %s=%s", deref(t.Key), deref(t.Value))
		}
		drop(t)
		out = append(out, EKSTaint{deref(t.Key), deref(t.Value), string(t.Effect)})
	}
	if len(out) > 50 {
		return invalidParameter(k.Name, "A node group can have up to 50 taints.")
	}
	n.Taints = out
	return nil
}
