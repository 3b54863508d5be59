package aws

import (
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"

	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
)

// elbZones are the hosted zones of load balancers' names, by region: application first, then network ("Elastic Load
// Balancing endpoints and quotas", AWS General Reference).
var elbZones = map[string][2]string{
	"us-east-1": {"Z35SXDOTRQ7X7K", "Z26RNL4JYFTOTI"}, "us-east-2": {"Z3AADJGX6KTTL2", "ZLMOA37VPKANP"},
	"us-west-1": {"Z368ELLRRE2KJ0", "Z24FKFUX50B4VW"}, "us-west-2": {"Z1H1FL5HABSF5", "Z18D5FSROUN65G"},
	"ca-central-1": {"ZQSVJUPU6J1EY", "Z2EPGBW3API2WT"}, "eu-west-1": {"Z32O12XQLNTSW2", "Z2IFOLAFXWLO4F"},
	"eu-west-2": {"ZHURV8PSTC4K8", "ZD4D7Y8KGAS4G"}, "eu-west-3": {"Z3Q77PNBQS71R4", "Z1CMS0P5QUZ6D5"},
	"eu-central-1": {"Z215JYRZR1TBD5", "Z3F0SRJ5LGBH90"}, "eu-north-1": {"Z23TAZ6LKFMNIO", "Z1UDT6IFJ4EJM"},
	"ap-south-1": {"ZP97RAFLXTNZK", "ZVDDRBQ08TROA"}, "ap-southeast-1": {"Z1LMS91P8CMLE5", "ZKVM4W9LS7TM"},
	"ap-southeast-2": {"Z1GM3OXH4ZPM65", "ZCT6FZBF4DROD"}, "ap-northeast-1": {"Z14GRHDCWA56QT", "Z31USIVHYNEOWT"},
	"ap-northeast-2": {"ZWKZPGTI48KDX", "ZIBE1TIR4HY56"}, "ap-northeast-3": {"Z5LXEXXYW11ES", "Z1GWIQ4HH19I5X"},
	"sa-east-1": {"Z2P70J7HTTTPLU", "ZTK26PT1VY4CU"},
}

var elbNamePattern = regexp.MustCompile(`^[a-zA-Z0-9-]+$`)

// checkELBName refuses names that break the rules ("CreateLoadBalancer", "CreateTargetGroup", ELB API reference).
func checkELBName(what, name string) error {
	switch {
	case len(name) > 32:
		return failValidation("%s '%s' cannot be longer than '32' characters", what, name)
	case !elbNamePattern.MatchString(name):
		return failValidation("%s '%s' can only contain characters that are alphanumeric characters and hyphens(-)", what, name)
	case strings.HasPrefix(name, "-") || strings.HasSuffix(name, "-"):
		return failValidation("%s '%s' cannot begin or end with a hyphen(-)", what, name)
	}
	return nil
}

func notFoundBalancer(arn string) error {
	return fail(400, "LoadBalancerNotFound", "Load balancer '%s' not found", arn)
}

var balancerARN = regexp.MustCompile(`^arn:aws:elasticloadbalancing:[a-z0-9-]+:\d{12}:loadbalancer/(app|net|gwy)/[^/]+/[0-9a-f]{16}$`)

// balancer finds a load balancer by ARN.
func (s *elbService) balancer(c *reqCtx, arn *string) (*LoadBalancer, error) {
	if arn == nil {
		return nil, failMissing("loadBalancerArn")
	}
	if !balancerARN.MatchString(*arn) {
		return nil, failValidation("'%s' is not a valid load balancer ARN", *arn)
	}
	b := s.state.in(c.scope()).Balancers[*arn]
	if b == nil || !c.visible(b.ARN, b.Created, false, "load-balancer", b.Name, tagValues(b.Tags)) {
		return nil, notFoundBalancer(*arn)
	}
	c.Touch(b.ARN)
	return b, nil
}

// placement resolves the subnets of a new load balancer.
func (s *elbService) placement(c *reqCtx, kind, scheme string, in *elb.CreateLoadBalancerInput) (vpc string, zones []ELBZone, err error) {
	type wanted struct{ subnet, allocation string }
	var want []wanted
	for _, id := range in.Subnets {
		want = append(want, wanted{id, ""})
	}
	for _, m := range in.SubnetMappings {
		want = append(want, wanted{deref(m.SubnetId), deref(m.AllocationId)})
	}
	if len(in.Subnets) > 0 && len(in.SubnetMappings) > 0 {
		return "", nil, failValidation("You must specify either subnets or subnet mappings, but not both")
	}
	seen := map[string]bool{}
	for _, w := range want {
		sub, ok := s.cloud.subnet(c.scope(), w.subnet)
		if !ok {
			return "", nil, fail(400, "SubnetNotFound", "The subnet ID '%s' does not exist", w.subnet)
		}
		if vpc != "" && sub.VpcID != vpc {
			return "", nil, fail(400, "InvalidConfigurationRequest", "All subnets must belong to the same VPC")
		}
		if seen[sub.AZ] {
			return "", nil, fail(400, "InvalidConfigurationRequest", "A load balancer cannot be attached to multiple subnets in the same Availability Zone")
		}
		if kind == "application" && sub.Free < 8 {
			return "", nil, fail(400, "InvalidSubnet", "Not enough IP space available in %s. ELB requires at least 8 free IP addresses in each subnet.", w.subnet)
		}
		vpc, seen[sub.AZ] = sub.VpcID, true
		zones = append(zones, ELBZone{Name: sub.AZ, SubnetID: w.subnet, AllocationID: w.allocation})
	}
	if kind == "application" && len(zones) < 2 {
		return "", nil, failValidation("At least two subnets in two different Availability Zones must be specified")
	}
	if len(zones) == 0 {
		return "", nil, failValidation("At least one subnet must be specified")
	}
	if scheme == "internet-facing" && !s.cloud.vpcHasGateway(c.scope(), vpc) {
		return "", nil, fail(400, "InvalidSubnet", "VPC %s has no internet gateway", vpc)
	}
	sort.Slice(zones, func(i, j int) bool { return zones[i].Name < zones[j].Name })
	return vpc, zones, nil
}

// groupsOf checks the security groups of a load balancer. An application load balancer without any gets the VPC's default.
func (s *elbService) groupsOf(c *reqCtx, kind, vpc string, ids []string) ([]string, error) {
	if len(ids) == 0 {
		if kind != "application" {
			return nil, nil
		}
		return []string{s.cloud.defaultGroup(c.scope(), vpc)}, nil
	}
	if len(ids) > 5 {
		return nil, fail(400, "InvalidConfigurationRequest", "The maximum number of security groups for a load balancer is 5")
	}
	for _, id := range ids {
		if in, ok := s.cloud.groupVPC(c.scope(), id); !ok || in != vpc {
			return nil, fail(400, "InvalidSecurityGroup", "One or more security groups are invalid")
		}
	}
	return ids, nil
}

func (s *elbService) createLoadBalancer(c *reqCtx, in *elb.CreateLoadBalancerInput) (*elb.CreateLoadBalancerOutput, error) {
	name, kind, scheme := deref(in.Name), orText(string(in.Type), "application"), orText(string(in.Scheme), "internet-facing")
	if err := checkELBName("The load balancer name", name); err != nil {
		return nil, err
	}
	if strings.HasPrefix(name, "internal-") {
		return nil, failValidation("The load balancer name '%s' cannot begin with 'internal-'", name)
	}
	if kind != "application" && kind != "network" {
		return nil, failValidation("Load balancer type '%s' must be one of 'application, network, gateway'", kind)
	}
	if scheme != "internet-facing" && scheme != "internal" {
		return nil, failValidation("1 validation error detected: Value '%s' at 'scheme' failed to satisfy constraint: Member must satisfy enum value set: [internet-facing, internal]", scheme)
	}
	tags, err := checkELBTags(nil, in.Tags)
	if err != nil {
		return nil, err
	}
	vpc, zones, err := s.placement(c, kind, scheme, in)
	if err != nil {
		return nil, err
	}
	groups, err := s.groupsOf(c, kind, vpc, in.SecurityGroups)
	if err != nil {
		return nil, err
	}
	b := &LoadBalancer{Name: name, Type: kind, Scheme: scheme, IPType: orText(string(in.IpAddressType), "ipv4"), VpcID: vpc, Zones: zones,
		Groups: groups, Created: c.now, State: "provisioning", Attributes: map[string]string{}, Tags: tags}
	sc := s.state.in(c.scope())
	for _, old := range sc.Balancers {
		if old.Name != name {
			continue
		}
		if !old.sameAs(b) {
			return nil, fail(400, "DuplicateLoadBalancerName", "A load balancer with the same name '%s' exists, but with different settings", name)
		}
		c.Touch(old.ARN)
		return &elb.CreateLoadBalancerOutput{LoadBalancers: []types.LoadBalancer{old.sdk()}}, nil
	}
	if err := s.balancerQuota(c, sc, kind); err != nil {
		return nil, err
	}
	s.identify(c, b)
	for i := range b.Zones {
		z := &b.Zones[i]
		if z.InterfaceID, z.IP, err = s.cloud.serviceInterface(c.scope(), z.SubnetID, b, z.AllocationID); err != nil {
			for _, made := range b.Zones[:i] {
				s.cloud.dropServiceInterface(c.scope(), made.InterfaceID)
			}
			return nil, err
		}
	}
	sc.Balancers[b.ARN] = b
	c.Make(b.ARN)
	wait := time.Duration((60 + 60*c.w.Fraction("provision", b.ARN)) * float64(time.Second))
	s.cloud.after(wait, elbName, "provisioned", c.scope().key()+"|"+b.ARN)
	return &elb.CreateLoadBalancerOutput{LoadBalancers: []types.LoadBalancer{b.sdk()}}, nil
}

// identify gives a new load balancer its ARN and names.
func (s *elbService) identify(c *reqCtx, b *LoadBalancer) {
	id, zones := c.w.Hex("", 16), elbZones[c.region]
	prefix := ""
	if b.Scheme == "internal" {
		prefix = "internal-"
	}
	if b.Type == "network" {
		b.ARN, b.ZoneID = c.regionalARN(elbName, "loadbalancer/net/"+b.Name+"/"+id), zones[1]
		b.DNSName = fmt.Sprintf("%s-%s.elb.%s.amazonaws.com", b.Name, id, c.region)
		return
	}
	b.ARN, b.ZoneID = c.regionalARN(elbName, "loadbalancer/app/"+b.Name+"/"+id), zones[0]
	b.DNSName = fmt.Sprintf("%s%s-%s.%s.elb.amazonaws.com", prefix, b.Name, c.w.ID("", 1, "123456789")+c.w.ID("", 9, "0123456789"), c.region)
}

// sameAs says whether a request to create other would make what there is already.
func (b *LoadBalancer) sameAs(other *LoadBalancer) bool {
	subnets := func(b *LoadBalancer) (ids []string) {
		for _, z := range b.Zones {
			ids = append(ids, z.SubnetID)
		}
		sort.Strings(ids)
		return ids
	}
	groups := func(b *LoadBalancer) []string { g := slices.Clone(b.Groups); sort.Strings(g); return g }
	return b.Type == other.Type && b.Scheme == other.Scheme && b.IPType == other.IPType && b.VpcID == other.VpcID &&
		slices.Equal(subnets(b), subnets(other)) && slices.Equal(groups(b), groups(other)) && sameTags(b.Tags, other.Tags)
}

func sameTags(a, b []Tag) bool {
	x, y := tagMap(a), tagMap(b)
	if len(x) != len(y) {
		return false
	}
	for k, v := range x {
		if w, ok := y[k]; !ok || v != w {
			return false
		}
	}
	return true
}

func (s *elbService) balancerQuota(c *reqCtx, sc *ELBScope, kind string) error {
	code, n := quotaALBs, 0
	if kind == "network" {
		code = quotaNLBs
	}
	for _, b := range sc.Balancers {
		if b.Type == kind {
			n++
		}
	}
	if float64(n) >= s.cloud.quota(c.scope(), elbName, code) {
		return fail(400, "TooManyLoadBalancers", "The maximum number of load balancers has been reached")
	}
	return nil
}

func (b *LoadBalancer) sdk() types.LoadBalancer {
	out := types.LoadBalancer{
		LoadBalancerArn: &b.ARN, DNSName: &b.DNSName, CanonicalHostedZoneId: &b.ZoneID, CreatedTime: &b.Created, LoadBalancerName: &b.Name,
		Scheme: types.LoadBalancerSchemeEnum(b.Scheme), VpcId: &b.VpcID, State: &types.LoadBalancerState{Code: types.LoadBalancerStateEnum(b.State)},
		Type: types.LoadBalancerTypeEnum(b.Type), IpAddressType: types.IpAddressType(b.IPType), AvailabilityZones: []types.AvailabilityZone{},
		EnablePrefixForIpv6SourceNat: types.EnablePrefixForIpv6SourceNatEnumOff,
	}
	if b.Reason != "" {
		out.State.Reason = &b.Reason
	}
	for _, z := range b.Zones {
		az := types.AvailabilityZone{ZoneName: new(z.Name), SubnetId: new(z.SubnetID), LoadBalancerAddresses: []types.LoadBalancerAddress{}}
		if z.AllocationID != "" {
			az.LoadBalancerAddresses = append(az.LoadBalancerAddresses, types.LoadBalancerAddress{AllocationId: new(z.AllocationID)})
		}
		out.AvailabilityZones = append(out.AvailabilityZones, az)
	}
	if len(b.Groups) > 0 {
		out.SecurityGroups = slices.Clone(b.Groups)
	}
	return out
}

func (s *elbService) describeLoadBalancers(c *reqCtx, in *elb.DescribeLoadBalancersInput) (*elb.DescribeLoadBalancersOutput, error) {
	sc, all := s.state.in(c.scope()), []types.LoadBalancer{}
	seen := func(b *LoadBalancer, list bool) bool {
		return b != nil && c.visible(b.ARN, b.Created, list, "load-balancer", b.Name, tagValues(b.Tags))
	}
	switch {
	case len(in.LoadBalancerArns) > 0:
		for _, arn := range in.LoadBalancerArns {
			b, err := s.balancer(c, &arn)
			if isCode(err, "LoadBalancerNotFound") {
				return nil, fail(400, "LoadBalancerNotFound", "One or more load balancers not found")
			}
			if err != nil {
				return nil, err
			}
			all = append(all, b.sdk())
		}
	case len(in.Names) > 0:
		for _, name := range in.Names {
			var found *LoadBalancer
			for _, b := range sc.Balancers {
				if b.Name == name && seen(b, false) {
					found = b
				}
			}
			if found == nil {
				return nil, fail(400, "LoadBalancerNotFound", "Load balancers '[%s]' not found", name)
			}
			c.Touch(found.ARN)
			all = append(all, found.sdk())
		}
	default:
		for _, arn := range sortedKeys(sc.Balancers) {
			if b := sc.Balancers[arn]; seen(b, true) {
				all = append(all, b.sdk())
			}
		}
	}
	page, next, err := elbPage(c, all, in.Marker, in.PageSize)
	return &elb.DescribeLoadBalancersOutput{LoadBalancers: page, NextMarker: next}, err
}

func (s *elbService) deleteLoadBalancer(c *reqCtx, in *elb.DeleteLoadBalancerInput) (*elb.DeleteLoadBalancerOutput, error) {
	if !balancerARN.MatchString(deref(in.LoadBalancerArn)) {
		return nil, failValidation("'%s' is not a valid load balancer ARN", deref(in.LoadBalancerArn))
	}
	sc := s.state.in(c.scope())
	b := sc.Balancers[*in.LoadBalancerArn]
	if b == nil {
		// "If the load balancer does not exist or has already been deleted, the call succeeds."
		return &elb.DeleteLoadBalancerOutput{}, nil
	}
	c.Touch(b.ARN)
	if b.Attributes["deletion_protection.enabled"] == "true" {
		return nil, fail(400, "OperationNotPermitted", "Load balancer '%s' cannot be deleted because deletion protection is enabled", b.ARN)
	}
	s.drop(c.scope(), sc, b)
	return &elb.DeleteLoadBalancerOutput{}, nil
}

func (s *elbService) setSecurityGroups(c *reqCtx, in *elb.SetSecurityGroupsInput) (*elb.SetSecurityGroupsOutput, error) {
	b, err := s.balancer(c, in.LoadBalancerArn)
	if err != nil {
		return nil, err
	}
	if b.Type == "network" && len(b.Groups) == 0 {
		// "You can't associate security groups with a network load balancer if you didn't at creation" (ELB user guide).
		return nil, fail(400, "InvalidConfigurationRequest", "You cannot set security groups on a network load balancer that was created without any")
	}
	groups, err := s.groupsOf(c, b.Type, b.VpcID, in.SecurityGroups)
	if err != nil {
		return nil, err
	}
	b.Groups = groups
	for _, z := range b.Zones {
		s.cloud.setInterfaceGroups(c.scope(), z.InterfaceID, groups)
	}
	return &elb.SetSecurityGroupsOutput{SecurityGroupIds: slices.Clone(groups)}, nil
}

// elbPage cuts a page; a page has 400 items at most ("DescribeLoadBalancers", ELB API reference).
func elbPage[T any](c *reqCtx, all []T, marker *string, size *int32) ([]T, *string, error) {
	limit := int(orDefault(size, 400))
	if limit < 1 || limit > 400 {
		return nil, nil, failValidation("1 validation error detected: Value '%d' at 'pageSize' failed to satisfy constraint: Member must have value less than or equal to 400", limit)
	}
	page, next, err := pageOf(c, all, marker, limit)
	if err != nil {
		return nil, nil, failValidation("Invalid marker")
	}
	return page, next, nil
}

var elbTagPattern = regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$`)

// checkELBTags merges added tags into those there are, after the rules of ELB ("Tags for your load balancer").
func checkELBTags(have []Tag, added []types.Tag) ([]Tag, error) {
	out, seen := append([]Tag{}, have...), map[string]bool{}
	for _, t := range added {
		key, value := deref(t.Key), deref(t.Value)
		switch {
		case key == "" || len([]rune(key)) > 128 || !elbTagPattern.MatchString(key):
			return nil, failValidation("1 validation error detected: Value '%s' at 'tags.1.member.key' failed to satisfy constraint: Member must have length between 1 and 128 and satisfy regular expression pattern: ^([\\p{L}\\p{Z}\\p{N}_.:/=+\\-@]*)$", key)
		case len([]rune(value)) > 256 || !elbTagPattern.MatchString(value):
			return nil, failValidation("1 validation error detected: Value '%s' at 'tags.1.member.value' failed to satisfy constraint: Member must have length less than or equal to 256", value)
		case strings.HasPrefix(strings.ToLower(key), "aws:"):
			return nil, failValidation("Tag keys cannot begin with 'aws:', which is reserved for AWS use")
		case seen[key]:
			return nil, fail(400, "DuplicateTagKeys", "A tag key was specified more than once")
		}
		seen[key] = true
		out = setTag(out, key, value)
	}
	if len(out) > 50 {
		return nil, fail(400, "TooManyTags", "You've reached the limit on the number of tags per load balancer")
	}
	return out, nil
}
