package aws

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/eks/types"
)

var clusterName = regexp.MustCompile(`^[0-9A-Za-z][A-Za-z0-9\-_]{0,99}$`)

// unsupportedZones are the zones that EKS has no capacity for control planes in, by zone ID ("View Amazon EKS networking
// requirements for VPC and subnets").
var unsupportedZones = []string{"use1-az3", "usw1-az2", "cac1-az3"}

// placeCluster checks the subnets and security groups of a new cluster.
func (s *eksService) placeCluster(c *reqCtx, k *EKSCluster, in *types.VpcConfigRequest) error {
	sc := s.cloud.ec2.in(c.scope())
	if len(in.SubnetIds) == 0 {
		return invalidParameter(k.Name, "Subnets can not be empty.")
	}
	zones := map[string]bool{}
	for _, id := range in.SubnetIds {
		sub := sc.Subnets[id]
		if sub == nil {
			return invalidParameter(k.Name, "The subnet ID '%s' does not exist", id)
		}
		if k.VpcID != "" && sub.VpcID != k.VpcID {
			return invalidParameter(k.Name, "Subnets must all belong to the same VPC: %s", strings.Join(in.SubnetIds, ","))
		}
		if slices.Contains(unsupportedZones, sub.ZoneID) {
			return k.zoneRefusal(sub)
		}
		k.VpcID, zones[sub.Zone] = sub.VpcID, true
		if !slices.Contains(k.Subnets, id) {
			k.Subnets = append(k.Subnets, id)
		}
	}
	if len(zones) < 2 {
		return invalidParameter(k.Name, "Subnets specified must be in at least two different AZs")
	}
	k.Groups = []string{}
	if len(in.SecurityGroupIds) > 5 {
		return invalidParameter(k.Name, "A maximum of 5 security groups can be given.")
	}
	for _, id := range in.SecurityGroupIds {
		vpc, ok := s.cloud.groupVPC(c.scope(), id)
		if !ok {
			return invalidParameter(k.Name, "The security group '%s' does not exist", id)
		}
		if vpc != k.VpcID {
			return invalidParameter(k.Name, "Security group(s) [%s] are not in the same VPC as the subnets.", id)
		}
		k.Groups = append(k.Groups, id)
	}
	return s.checkSpace(sc, k)
}

// checkSpace refuses subnets that have no room for the interfaces of the control plane: six addresses each are asked for
// ("View Amazon EKS networking requirements for VPC and subnets").
func (s *eksService) checkSpace(sc *ec2Scope, k *EKSCluster) error {
	for _, id := range k.Subnets {
		if free := sc.freeAddresses(sc.Subnets[id]); free < 6 {
			return invalidParameter(k.Name, "Subnet %s does not have enough free IP addresses: %d, at least 6 are needed", id, free)
		}
	}
	return nil
}

// zoneRefusal names the zones that would do.
func (k *EKSCluster) zoneRefusal(sub *Subnet) error {
	var valid []string
	for _, z := range zonesOf(k.Region) {
		if !slices.Contains(unsupportedZones, z.ID) {
			valid = append(valid, z.Name)
		}
	}
	e := refuse("UnsupportedAvailabilityZoneException", "Cannot create cluster '%s' because %s, the targeted availability zone, does not currently have sufficient capacity to support the cluster. Retry and choose from these availability zones: %s",
		k.Name, sub.Zone, strings.Join(valid, ", "))
	e.Members = map[string]any{"clusterName": k.Name, "validZones": valid}
	return e
}

func (s *eksService) cidrLimit(c *reqCtx) int {
	return int(s.cloud.quota(c.scope(), "eks", quotaAccessCIDRs))
}

// setAccess takes over who reaches the API server: public and not private unless said otherwise.
func (k *EKSCluster) setAccess(in *types.VpcConfigRequest, limit int) error {
	public, private := orDefault(in.EndpointPublicAccess, true), orDefault(in.EndpointPrivateAccess, false)
	cidrs := in.PublicAccessCidrs
	if !public && !private {
		return invalidParameter(k.Name, "Private and public endpoint access cannot be false")
	}
	if !public && len(cidrs) > 0 {
		return invalidParameter(k.Name, "publicAccessCidrs cannot be specified when endpointPublicAccess is false")
	}
	if len(cidrs) > limit {
		return invalidParameter(k.Name, "The number of publicAccessCidrs %d exceeds the limit of %d", len(cidrs), limit)
	}
	var wrong []string
	for _, text := range cidrs {
		p, err := netip.ParsePrefix(text)
		if err != nil || p != p.Masked() || p.Addr().IsPrivate() || p.Addr().IsLoopback() || p.Addr().IsLinkLocalUnicast() {
			wrong = append(wrong, text)
		}
	}
	if len(wrong) > 0 {
		return invalidParameter(k.Name, "The following CIDRs are invalid in publicAccessCidrs: [%s]", strings.Join(wrong, ", "))
	}
	k.Public, k.Private, k.PublicCIDRs = public, private, append([]string{}, cidrs...)
	if public && len(cidrs) == 0 {
		k.PublicCIDRs = []string{"0.0.0.0/0"}
	}
	return nil
}

// checkClusterRole refuses a role that EKS cannot assume (yet).
func (s *eksService) checkClusterRole(c *reqCtx, k *EKSCluster) error {
	if !strings.HasPrefix(k.RoleARN, "arn:aws:iam::"+c.account+":role/") {
		return invalidParameter(k.Name, "The role ARN %s is invalid.", k.RoleARN)
	}
	if !s.cloud.platform.iam.assumableBy(c.account, k.RoleARN, "eks.amazonaws.com") {
		return invalidParameter(k.Name, "Role with arn: %s, could not be assumed because it does not exist or the trusted entity is not correct", k.RoleARN)
	}
	return nil
}

// logTypes are the logs of a control plane.
var logTypes = []string{"api", "audit", "authenticator", "controllerManager", "scheduler"}

// logging answers the log types that are on after a change.
func (k *EKSCluster) logging(in *types.Logging) ([]string, error) {
	on := map[string]bool{}
	for _, t := range k.Logging {
		on[t] = true
	}
	if in != nil {
		for _, set := range in.ClusterLogging {
			for _, t := range set.Types {
				if !slices.Contains(logTypes, string(t)) {
					return nil, invalidParameter(k.Name, "The log type %s is invalid.", t)
				}
				on[string(t)] = deref(set.Enabled)
			}
		}
	}
	out := []string{}
	for _, t := range logTypes {
		if on[t] {
			out = append(out, t)
		}
	}
	return out, nil
}

// sdkLogging shows what is on and what is off in two sets.
func sdkLogging(on []string) *types.Logging {
	out := &types.Logging{}
	for _, enabled := range []bool{true, false} {
		set := types.LogSetup{Enabled: new(enabled)}
		for _, t := range logTypes {
			if slices.Contains(on, t) == enabled {
				set.Types = append(set.Types, types.LogType(t))
			}
		}
		if len(set.Types) > 0 {
			out.ClusterLogging = append(out.ClusterLogging, set)
		}
	}
	return out
}

// setNetwork takes the Service network over. Unless said otherwise it is away from the VPC's range; it must be private, from
// /24 to /12, and not overlap the VPC (KubernetesNetworkConfigRequest, Amazon EKS API reference).
func (k *EKSCluster) setNetwork(v *Vpc, in *types.KubernetesNetworkConfigRequest) error {
	k.IPFamily, k.ServiceCIDR = "ipv4", "10.100.0.0/16"
	if strings.HasPrefix(v.CidrBlock, "10.") {
		k.ServiceCIDR = "172.20.0.0/16"
	}
	if in == nil {
		return nil
	}
	if in.IpFamily == types.IpFamilyIpv6 {
		return invalidParameter(k.Name, "Clusters with the IP family ipv6 are not simulated.")
	}
	if in.ServiceIpv4Cidr == nil {
		return nil
	}
	p, err := netip.ParsePrefix(*in.ServiceIpv4Cidr)
	if err != nil || p != p.Masked() || !p.Addr().Is4() || !p.Addr().IsPrivate() || p.Bits() < 12 || p.Bits() > 24 {
		return invalidParameter(k.Name, "The specified serviceIpv4Cidr is invalid: %s. It must be within 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16, with a prefix from /24 to /12.", *in.ServiceIpv4Cidr)
	}
	if slices.ContainsFunc(v.blocks(), p.Overlaps) {
		return invalidParameter(k.Name, "The specified serviceIpv4Cidr %s overlaps the VPC %s.", p, k.VpcID)
	}
	k.ServiceCIDR = p.String()
	return nil
}

// encryptionKey checks the key for the cluster's secrets.
func (s *eksService) encryptionKey(c *reqCtx, k *EKSCluster, in []types.EncryptionConfig) (string, error) {
	if len(in) == 0 {
		return "", nil
	}
	if len(in) > 1 {
		return "", invalidParameter(k.Name, "Only one encryptionConfig can be given.")
	}
	for _, r := range in[0].Resources { //nolint:staticcheck // deprecated in the model; what is given is still checked
		if r != "secrets" {
			return "", invalidParameter(k.Name, "Encryption config only supports the resource 'secrets'.")
		}
	}
	ref := ""
	if in[0].Provider != nil {
		ref = deref(in[0].Provider.KeyArn)
	}
	key := s.cloud.platform.kms.lookup(c.scope(), ref)
	switch {
	case key == nil || !strings.HasPrefix(ref, "arn:"):
		return "", invalidParameter(k.Name, "The keyArn for encryptionConfig is invalid.")
	case key.State == keyPendingDeletion:
		return "", invalidParameter(k.Name, "The keyArn for encryptionConfig is invalid: %s is pending deletion.", key.ARN)
	case key.State != keyEnabled:
		return "", invalidParameter(k.Name, "The keyArn for encryptionConfig is invalid: %s is disabled.", key.ARN)
	}
	return key.ARN, nil
}
