package aws

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
)

func (s *eksService) createCluster(c *reqCtx, in *eks.CreateClusterInput) (*eks.CreateClusterOutput, error) {
	name := deref(in.Name)
	if !clusterName.MatchString(name) {
		return nil, invalidParameter("", "The name %q is invalid. Cluster names have up to 100 characters: letters, digits, hyphens and underscores, and begin with a letter or digit.", name)
	}
	all := s.in(c.scope()).Clusters
	id, err := s.repeated(c, "", in.ClientRequestToken, in)
	if err != nil {
		return nil, err
	}
	if old := all[id]; id != "" && old != nil {
		c.Touch(old.ARN)
		return &eks.CreateClusterOutput{Cluster: new(s.sdkCluster(old))}, nil
	}
	if all[name] != nil {
		return nil, inUse(name, "Cluster already exists with name: %s", name)
	}
	if float64(len(all)) >= s.cloud.quota(c.scope(), "eks", quotaClusters) {
		return nil, limitExceeded(name, "Cluster limit exceeded for account.")
	}
	k := &EKSCluster{Account: c.account, Region: c.region, Name: name, ARN: c.regionalARN("eks", "cluster/"+name), Created: c.now, Status: "CREATING",
		RoleARN: deref(in.RoleArn), Creator: s.principal(c.caller()), Protected: deref(in.DeletionProtection), SelfManaged: orDefault(in.BootstrapSelfManagedAddons, true),
		Token: deref(in.ClientRequestToken), Tags: copyTags(in.Tags), Issues: []EKSIssue{}, Interfaces: []string{}, Logging: []string{},
		Nodegroups: map[string]*EKSNodegroup{}, Addons: map[string]*EKSAddon{}, Entries: map[string]*EKSAccessEntry{}, Associations: map[string]*EKSPodIdentity{}, Updates: map[string]*EKSUpdate{}}
	if err := s.configure(c, k, in); err != nil {
		return nil, err
	}
	k.ID = strings.ToUpper(c.w.Hex("", 32))
	all[name] = k
	s.remember(c, "", in.ClientRequestToken, in, name)
	c.Make(k.ARN)
	s.serviceRole(c, "eks.amazonaws.com")
	s.grantKey(c, k)
	s.cloud.after(networkTime, "eks", "network", k.key())
	s.cloud.after(createTime(c.w, k), "eks", "ready", k.key())
	out := s.sdkCluster(k)
	out.AccessConfig.BootstrapClusterCreatorAdminPermissions = new(orDefault(k.BootstrapAdmin, true)) // only this answer shows it
	return &eks.CreateClusterOutput{Cluster: &out}, nil
}

// configure checks the settings of a new cluster and takes them over.
func (s *eksService) configure(c *reqCtx, k *EKSCluster, in *eks.CreateClusterInput) error {
	if in.OutpostConfig != nil || in.RemoteNetworkConfig != nil || in.ComputeConfig != nil && deref(in.ComputeConfig.Enabled) {
		return invalidParameter(k.Name, "Outposts, hybrid nodes and Auto Mode are not simulated.")
	}
	if err := checkEKSTags(k.Name, in.Tags); err != nil {
		return err
	}
	version, err := s.creatable(k.Name, deref(in.Version))
	if err != nil {
		return err
	}
	k.Version, k.Platform = version.Version, version.platform()
	if in.ResourcesVpcConfig == nil {
		return invalidParameter(k.Name, "resourcesVpcConfig can not be empty.")
	}
	if err := s.placeCluster(c, k, in.ResourcesVpcConfig); err != nil {
		return err
	}
	if err := k.setAccess(in.ResourcesVpcConfig, s.cidrLimit(c)); err != nil {
		return err
	}
	if err := s.checkClusterRole(c, k); err != nil {
		return err
	}
	if k.Logging, err = k.logging(in.Logging); err != nil {
		return err
	}
	if err := k.setNetwork(s.cloud.ec2.in(c.scope()).Vpcs[k.VpcID], in.KubernetesNetworkConfig); err != nil {
		return err
	}
	if k.KeyARN, err = s.encryptionKey(c, k, in.EncryptionConfig); err != nil {
		return err
	}
	k.SupportType = "EXTENDED"
	if in.UpgradePolicy != nil && in.UpgradePolicy.SupportType != "" {
		k.SupportType = string(in.UpgradePolicy.SupportType)
	}
	if k.SupportType != "EXTENDED" && k.SupportType != "STANDARD" {
		return invalidParameter(k.Name, "The support type %s is invalid. Valid values: STANDARD, EXTENDED", k.SupportType)
	}
	// A version past its standard support is not taken under the policy that would upgrade it at once.
	if k.SupportType == "STANDARD" && version.status(c.now) != "STANDARD_SUPPORT" {
		return invalidParameter(k.Name, "Kubernetes version %s is in extended support. Clusters with the support type STANDARD need a version in standard support.", k.Version)
	}
	k.ZonalShift = in.ZonalShiftConfig != nil && deref(in.ZonalShiftConfig.Enabled)
	return s.setAuthentication(c, k, in.AccessConfig)
}

// setAuthentication takes the authentication mode over: CONFIG_MAP unless said otherwise. The creator becomes an
// administrator unless said otherwise: by an access entry where the mode knows them, invisibly where it does not.
func (s *eksService) setAuthentication(c *reqCtx, k *EKSCluster, in *types.CreateAccessConfigRequest) error {
	k.AuthMode = "CONFIG_MAP"
	if in != nil {
		k.AuthMode, k.BootstrapAdmin = orText(string(in.AuthenticationMode), k.AuthMode), in.BootstrapClusterCreatorAdminPermissions
	}
	switch k.AuthMode {
	case "CONFIG_MAP":
		if k.BootstrapAdmin != nil && !*k.BootstrapAdmin {
			return invalidParameter(k.Name, "bootstrapClusterCreatorAdminPermissions must be true if cluster authentication mode is set to CONFIG_MAP")
		}
	case "API", "API_AND_CONFIG_MAP":
		s.firstEntries(c, k)
	default:
		return invalidParameter(k.Name, "The authentication mode %s is invalid. Valid values: API, API_AND_CONFIG_MAP, CONFIG_MAP", k.AuthMode)
	}
	return nil
}

func (s *eksService) sdkCluster(k *EKSCluster) types.Cluster {
	out := types.Cluster{Name: new(k.Name), Arn: new(k.ARN), CreatedAt: new(k.Created), Version: new(k.Version), RoleArn: new(k.RoleARN), Status: types.ClusterStatus(k.Status),
		PlatformVersion: new(k.Platform), Tags: copyTags(k.Tags), CertificateAuthority: &types.Certificate{}, Health: clusterIssues(s.healthOf(k)),
		ResourcesVpcConfig: &types.VpcConfigResponse{SubnetIds: slices.Clone(k.Subnets), SecurityGroupIds: slices.Clone(k.Groups), VpcId: new(k.VpcID),
			EndpointPublicAccess: k.Public, EndpointPrivateAccess: k.Private, PublicAccessCidrs: slices.Clone(k.PublicCIDRs)},
		KubernetesNetworkConfig: &types.KubernetesNetworkConfigResponse{IpFamily: types.IpFamily(k.IPFamily), ServiceIpv4Cidr: new(k.ServiceCIDR),
			ElasticLoadBalancing: &types.ElasticLoadBalancing{Enabled: new(false)}},
		Logging: sdkLogging(k.Logging), DeletionProtection: new(k.Protected), UpgradePolicy: &types.UpgradePolicyResponse{SupportType: types.SupportType(k.SupportType)},
		AccessConfig:     &types.AccessConfigResponse{AuthenticationMode: types.AuthenticationMode(k.AuthMode)},
		ZonalShiftConfig: &types.ZonalShiftConfigResponse{Enabled: new(k.ZonalShift)}, ComputeConfig: &types.ComputeConfigResponse{Enabled: new(false), NodePools: []string{}},
		ControlPlaneScalingConfig: &types.ControlPlaneScalingConfig{Tier: types.ProvisionedControlPlaneTierStandard},
		StorageConfig:             &types.StorageConfigResponse{BlockStorage: &types.BlockStorage{Enabled: new(false)}}}
	if k.Token != "" {
		out.ClientRequestToken = new(k.Token)
	}
	if k.ClusterGroup != "" {
		out.ResourcesVpcConfig.ClusterSecurityGroupId = new(k.ClusterGroup)
		out.Identity = &types.Identity{Oidc: &types.OIDC{Issuer: new(k.issuer())}}
	}
	if k.Endpoint != "" && k.Status != "CREATING" {
		out.Endpoint, out.CertificateAuthority.Data = new(k.Endpoint), new(k.CA)
	}
	if k.KeyARN != "" {
		out.EncryptionConfig = []types.EncryptionConfig{{Resources: []string{"secrets"}, Provider: &types.Provider{KeyArn: new(k.KeyARN)}}}
	}
	return out
}

func (s *eksService) describeCluster(c *reqCtx, in *eks.DescribeClusterInput) (*eks.DescribeClusterOutput, error) {
	k, err := s.cluster(c, in.Name)
	if err != nil {
		return nil, err
	}
	return &eks.DescribeClusterOutput{Cluster: new(s.sdkCluster(k))}, nil
}

func (s *eksService) listClusters(c *reqCtx, in *eks.ListClustersInput) (*eks.ListClustersOutput, error) {
	all, names := s.in(c.scope()).Clusters, []string{}
	for _, name := range sortedKeys(all) {
		if k := all[name]; c.visible(k.ARN, k.Created, true, "cluster", name, mapValues(k.Tags)) {
			names = append(names, name)
		}
	}
	page, next, err := eksPage(c, names, in.NextToken, in.MaxResults)
	return &eks.ListClustersOutput{Clusters: page, NextToken: next}, err
}

// deleteCluster refuses while the cluster is protected, is being changed, or has node groups. What its Services and volume
// claims made in the account stays there ("Delete a cluster", Amazon EKS user guide).
func (s *eksService) deleteCluster(c *reqCtx, in *eks.DeleteClusterInput) (*eks.DeleteClusterOutput, error) {
	k, err := s.cluster(c, in.Name)
	if err != nil {
		return nil, err
	}
	switch {
	case k.Status == "DELETING":
		return &eks.DeleteClusterOutput{Cluster: new(s.sdkCluster(k))}, nil
	case k.Protected && k.running(): // "This setting only applies to clusters in an active state" (API reference, Cluster)
		return nil, invalidRequest(k.Name, "Cannot delete cluster %s because deletion protection is enabled. Disable deletion protection and try again.", k.Name)
	case k.Status == "CREATING":
		return nil, inUse(k.Name, "Cannot delete because cluster %s currently has an operation in progress: CREATING", k.Name)
	case k.Status == "UPDATING" || k.updating("", "") != nil:
		return nil, inUse(k.Name, "Cannot delete because cluster %s currently has an update in progress", k.Name)
	case len(k.Nodegroups) > 0:
		err := inUse(k.Name, "Cluster has nodegroups attached")
		err.(*Error).Members["nodegroupName"] = sortedKeys(k.Nodegroups)[0] //nolint:errorlint // made in the line before
		return nil, err
	}
	k.Status, k.Deleted = "DELETING", c.now
	c.Make(k.ARN)
	s.cloud.after(deleteTime, "eks", "gone", k.key())
	return &eks.DeleteClusterOutput{Cluster: new(s.sdkCluster(k))}, nil
}
