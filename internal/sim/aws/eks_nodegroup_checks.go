package aws

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
)

// placeGroup checks the subnets of a node group.
func (s *eksService) placeGroup(c *reqCtx, k *EKSCluster, n *EKSNodegroup, subnets []string) error {
	if len(subnets) == 0 {
		return invalidParameter(k.Name, "Subnets can not be empty.")
	}
	for _, id := range subnets {
		sub, ok := s.cloud.subnet(c.scope(), id)
		if !ok {
			return invalidParameter(k.Name, "The subnet ID '%s' does not exist", id)
		}
		if sub.VpcID != k.VpcID {
			return invalidParameter(k.Name, "Subnet %s is not in the VPC %s of the cluster", id, k.VpcID)
		}
		if !slices.Contains(n.Subnets, id) {
			n.Subnets = append(n.Subnets, id)
		}
	}
	return nil
}

// checkNodeRole refuses a role that EC2 could not give to the nodes.
func (s *eksService) checkNodeRole(c *reqCtx, k *EKSCluster, n *EKSNodegroup) error {
	name, ok := strings.CutPrefix(n.RoleARN, "arn:aws:iam::"+c.account+":role/")
	if !ok {
		return invalidParameter(k.Name, "The role ARN %s is invalid.", n.RoleARN)
	}
	name = name[strings.LastIndex(name, "/")+1:]
	iam := s.cloud.platform.iam
	r := iam.roleByARN(n.RoleARN)
	if r == nil || c.now.Sub(r.Created) < iam.propagation(r.ARN) {
		return invalidParameter(k.Name, "The role with name %s cannot be found.", name)
	}
	if !r.trusts("ec2.amazonaws.com", c.account) {
		return invalidParameter(k.Name, "The trust policy of the role %s must allow the service ec2.amazonaws.com to assume it.", name)
	}
	return nil
}

// scale takes a size over.
func (s *eksService) scale(k *EKSCluster, n *EKSNodegroup, in *types.NodegroupScalingConfig) error {
	low, high, want := n.Min, n.Max, n.Desired
	if in != nil {
		low, high, want = orDefault(in.MinSize, low), orDefault(in.MaxSize, high), orDefault(in.DesiredSize, want)
	}
	switch limit := s.cloud.quota(k.scope(), "eks", quotaNodesPerGroup); {
	case low < 0 || want < 0:
		return invalidParameter(k.Name, "Minimum and desired size must not be negative")
	case high < 1:
		return invalidParameter(k.Name, "Maximum size must be at least 1")
	case low > want:
		return invalidParameter(k.Name, "Minimum capacity %d can't be greater than desired size %d", low, want)
	case want > high:
		return invalidParameter(k.Name, "desired capacity %d can't be greater than max size %d", want, high)
	case float64(high) > limit:
		return limitExceeded(k.Name, "The maximum number of nodes in a node group is %d", int(limit))
	}
	n.Min, n.Max, n.Desired = low, high, want
	return nil
}

// chooseTemplate checks the customer's launch template against what EKS allows in one ("Customize managed nodes with launch
// templates", Amazon EKS user guide), and settles instance types and disk size.
func (s *eksService) chooseTemplate(c *reqCtx, k *EKSCluster, n *EKSNodegroup, in *eks.CreateNodegroupInput) (*launchData, error) {
	data := &launchData{}
	if in.LaunchTemplate != nil {
		var err error
		if data, err = s.customTemplate(k, n, in.LaunchTemplate); err != nil {
			return nil, err
		}
		switch {
		case in.DiskSize != nil:
			return nil, invalidParameter(k.Name, "Disk size must be specified within the launch template.")
		case in.RemoteAccess != nil:
			return nil, invalidParameter(k.Name, "Remote access configuration cannot be specified with a launch template.")
		case data.InstanceType != "" && len(n.Types) > 0:
			return nil, invalidParameter(k.Name, "Instance types must be specified either in the launch template or in the request, not in both.")
		}
	} else {
		n.DiskSize = orDefault(in.DiskSize, 20)
		if n.DiskSize < 1 || n.DiskSize > 16384 {
			return nil, invalidParameter(k.Name, "The disk size %d is invalid.", n.DiskSize)
		}
	}
	if in.RemoteAccess != nil {
		n.SSHKey = deref(in.RemoteAccess.Ec2SshKey)
		if s.cloud.ec2.in(c.scope()).keyPair(n.SSHKey) == nil {
			return nil, invalidParameter(k.Name, "The key pair '%s' does not exist", n.SSHKey)
		}
	}
	var unknown []string
	for _, t := range n.Types {
		if _, ok := instanceTypes[t]; !ok {
			unknown = append(unknown, t)
		}
	}
	if len(unknown) > 0 {
		return nil, invalidParameter(k.Name, "The following supplied instance types do not exist: [%s]", strings.Join(unknown, ", "))
	}
	return data, nil
}

// customTemplate resolves the customer's launch template.
func (s *eksService) customTemplate(k *EKSCluster, n *EKSNodegroup, ref *types.LaunchTemplateSpecification) (*launchData, error) {
	sc := s.cloud.ec2.in(k.scope())
	t, err := sc.template(templateRef{deref(ref.Id), deref(ref.Name)})
	if err != nil {
		return nil, invalidParameter(k.Name, "Launch template %s%s was not found.", deref(ref.Id), deref(ref.Name))
	}
	v, err := t.version(deref(ref.Version))
	if err != nil {
		return nil, invalidParameter(k.Name, "Launch template version %s was not found.", deref(ref.Version))
	}
	d := v.Data
	switch {
	case d.Profile != nil:
		return nil, invalidParameter(k.Name, "Launch template should not specify an instance profile. The noderole in your request will be used to construct an instance profile.")
	case len(d.Interfaces) > 0 && d.Interfaces[0].SubnetID != "":
		return nil, invalidParameter(k.Name, "Launch template should not specify subnets; the node group's own are used.")
	case d.ShutdownBehavior != "":
		return nil, invalidParameter(k.Name, "Launch template should not specify the shutdown behavior.")
	case d.UserData != "" && d.ImageID == "" && !multipart(d.UserData):
		return nil, invalidRequest(k.Name, "Ec2LaunchTemplateInvalidConfiguration: User data was not in the MIME multipart format.")
	}
	n.TemplateID, n.TemplateName, n.TemplateVersion = t.TemplateID, t.TemplateName, strconv.Itoa(v.Number)
	return &d, nil
}

// multipart says whether user data can be merged with that of EKS. Bottlerocket's is TOML instead, which is merged by keys.
func multipart(userData string) bool {
	raw, err := base64.StdEncoding.DecodeString(userData)
	text := strings.TrimSpace(string(raw))
	return err == nil && (strings.HasPrefix(text, "MIME-Version:") || strings.HasPrefix(text, "Content-Type: multipart/") || strings.HasPrefix(text, "[settings"))
}

// amiTypes are the kinds of node images, with their architecture ("CreateNodegroup"). Those of Amazon Linux 2 ended with 1.32.
var amiTypes = map[string]string{
	"AL2_x86_64": "x86_64", "AL2_ARM_64": "arm64", "AL2023_x86_64_STANDARD": "x86_64", "AL2023_ARM_64_STANDARD": "arm64",
	"BOTTLEROCKET_x86_64": "x86_64", "BOTTLEROCKET_ARM_64": "arm64", "BOTTLEROCKET_x86_64_FIPS": "x86_64", "BOTTLEROCKET_ARM_64_FIPS": "arm64",
}

// chooseImage settles the kind of image and the instance types, which must be of its architecture.
func (s *eksService) chooseImage(k *EKSCluster, n *EKSNodegroup, amiType string, t *launchData) error {
	if t.ImageID != "" {
		if amiType != "" && amiType != "CUSTOM" {
			return invalidParameter(k.Name, "AMI type must not be given with a launch template that specifies an image.")
		}
		if s.cloud.ec2.publicImages(k.Region)[t.ImageID] == nil {
			return invalidParameter(k.Name, "The image id '[%s]' does not exist", t.ImageID)
		}
		n.AMIType = "CUSTOM"
	}
	if len(n.Types) == 0 && t.InstanceType == "" {
		n.Types = []string{"t3.medium"}
		if amiTypes[amiType] == "arm64" {
			n.Types = []string{"t4g.medium"}
		}
	}
	if n.AMIType == "CUSTOM" {
		return nil
	}
	types := n.Types
	if len(types) == 0 {
		types = []string{t.InstanceType}
	}
	n.AMIType = orText(amiType, map[string]string{"x86_64": "AL2023_x86_64_STANDARD", "arm64": "AL2023_ARM_64_STANDARD"}[instanceTypes[types[0]].arch])
	arch, ok := amiTypes[n.AMIType]
	if !ok {
		return invalidParameter(k.Name, "AMI type %s is not supported.", n.AMIType)
	}
	for _, name := range types {
		if instanceTypes[name].arch != arch {
			return invalidParameter(k.Name, "[%s] is not a valid instance type for requested amiType %s", name, n.AMIType)
		}
	}
	return nil
}

// chooseVersion settles the version of Kubernetes on the nodes: the cluster's, or up to three minor versions less.
func (s *eksService) chooseVersion(k *EKSCluster, n *EKSNodegroup, version, release string) error {
	own, _ := findVersion(k.Version)
	v := own
	if version != "" {
		var err error
		if v, err = s.creatable(k.Name, version); err != nil {
			return err
		}
	}
	if v.minor() > own.minor() || own.minor()-v.minor() > 3 {
		return invalidParameter(k.Name, "Nodegroup Kubernetes version %s is not compatible with version %s of the cluster", v.Version, own.Version)
	}
	if strings.HasPrefix(n.AMIType, "AL2_") && v.minor() > 32 {
		return invalidParameter(k.Name, "AMI Type %s is only supported for kubernetes versions 1.32 or earlier", n.AMIType)
	}
	if n.AMIType == "CUSTOM" {
		n.Version = v.Version
		return nil
	}
	if release != "" && release != v.release(n.AMIType) {
		return invalidParameter(k.Name, "Requested release version %s is not valid for kubernetes version %s.", release, v.Version)
	}
	n.Version, n.Release = v.Version, v.release(n.AMIType)
	return nil
}
