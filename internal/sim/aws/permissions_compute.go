package aws

import (
	"maps"
	"strings"
)

// authorities are the services' own, by their names in signatures: from each service's "Actions, resources, and condition
// keys" (Service Authorization Reference), the dependent actions among them, and the pages named beside a row.
var authorities = map[string]*authority{}

func init() {
	for _, table := range []map[string]*authority{computeAuthorities, storeAuthorities} {
		maps.Copy(authorities, table)
	}
}

var computeAuthorities = map[string]*authority{
	"ec2": {
		prefix: "ec2",
		same: `
			AcceptVpcPeeringConnection AllocateAddress AssociateAddress AssociateIamInstanceProfile AssociateRouteTable
			AssociateVpcCidrBlock AttachInternetGateway AttachVolume AuthorizeSecurityGroupEgress AuthorizeSecurityGroupIngress
			CreateFlowLogs CreateInternetGateway CreateLaunchTemplate CreateLaunchTemplateVersion CreateNatGateway CreateNetworkAcl
			CreateNetworkAclEntry CreateNetworkInterface CreateRoute CreateRouteTable CreateSecurityGroup CreateSnapshot
			CreateSubnet CreateTags CreateVolume CreateVpc CreateVpcEndpoint CreateVpcPeeringConnection DeleteFlowLogs
			DeleteInternetGateway DeleteKeyPair DeleteLaunchTemplate DeleteLaunchTemplateVersions DeleteNatGateway DeleteNetworkAcl
			DeleteNetworkAclEntry DeleteNetworkInterface DeleteRoute DeleteRouteTable DeleteSecurityGroup DeleteSnapshot
			DeleteSubnet DeleteTags DeleteVolume DeleteVpc DeleteVpcEndpoints DeleteVpcPeeringConnection DescribeAccountAttributes
			DescribeAddresses DescribeAvailabilityZones DescribeDhcpOptions DescribeFlowLogs DescribeIamInstanceProfileAssociations
			DescribeImages DescribeInstanceAttribute DescribeInstanceStatus DescribeInstanceTypeOfferings DescribeInstanceTypes
			DescribeInstances DescribeInternetGateways DescribeKeyPairs DescribeLaunchTemplateVersions DescribeLaunchTemplates
			DescribeNatGateways DescribeNetworkAcls DescribeNetworkInterfaces DescribePrefixLists DescribeRegions
			DescribeRouteTables DescribeSecurityGroupRules DescribeSecurityGroups DescribeSnapshots DescribeSubnets DescribeTags
			DescribeVolumes DescribeVpcAttribute DescribeVpcEndpointServices DescribeVpcEndpoints DescribeVpcPeeringConnections
			DescribeVpcs DetachInternetGateway DetachNetworkInterface DetachVolume DisableEbsEncryptionByDefault DisassociateAddress
			DisassociateIamInstanceProfile DisassociateRouteTable DisassociateVpcCidrBlock EnableEbsEncryptionByDefault
			GetConsoleOutput GetEbsDefaultKmsKeyId GetEbsEncryptionByDefault GetInstanceMetadataDefaults GetSecurityGroupsForVpc
			ImportKeyPair ModifyEbsDefaultKmsKeyId ModifyInstanceAttribute ModifyInstanceMetadataDefaults
			ModifyInstanceMetadataOptions ModifyLaunchTemplate ModifyNetworkInterfaceAttribute ModifySecurityGroupRules
			ModifySubnetAttribute ModifyVolume ModifyVpcAttribute ModifyVpcEndpoint ModifyVpcPeeringConnectionOptions
			RebootInstances RejectVpcPeeringConnection ReleaseAddress ReplaceIamInstanceProfileAssociation
			ReplaceNetworkAclAssociation ReplaceNetworkAclEntry ReplaceRoute ReplaceRouteTableAssociation ResetEbsDefaultKmsKeyId
			RevokeSecurityGroupEgress RevokeSecurityGroupIngress RunInstances StartInstances StopInstances TerminateInstances`,
		more: map[string][]need{
			"AllocateAddress":                      {also("ec2:CreateTags", "TagSpecification")},
			"AssociateIamInstanceProfile":          {also("iam:PassRole")},
			"AuthorizeSecurityGroupEgress":         {also("ec2:CreateTags", "TagSpecification")},
			"AuthorizeSecurityGroupIngress":        {also("ec2:CreateTags", "TagSpecification")},
			"CreateFlowLogs":                       {also("ec2:CreateTags", "TagSpecification"), also("iam:PassRole", "DeliverLogsPermissionArn"), toBucket("logs:CreateLogDelivery"), toBucket("logs:DeleteLogDelivery")},
			"CreateInternetGateway":                {also("ec2:CreateTags", "TagSpecification")},
			"CreateLaunchTemplate":                 {also("ec2:CreateTags", "TagSpecification")},
			"CreateNatGateway":                     {also("ec2:CreateTags", "TagSpecification")},
			"CreateNetworkAcl":                     {also("ec2:CreateTags", "TagSpecification")},
			"CreateNetworkInterface":               {also("ec2:CreateTags", "TagSpecification")},
			"CreateRouteTable":                     {also("ec2:CreateTags", "TagSpecification")},
			"CreateSecurityGroup":                  {also("ec2:CreateTags", "TagSpecification")},
			"CreateSnapshot":                       {also("ec2:CreateTags", "TagSpecification")},
			"CreateSubnet":                         {also("ec2:CreateTags", "TagSpecification")},
			"CreateVolume":                         {also("ec2:CreateTags", "TagSpecification")},
			"CreateVpc":                            {also("ec2:CreateTags", "TagSpecification")},
			"CreateVpcEndpoint":                    {also("ec2:CreateTags", "TagSpecification"), {"route53:AssociateVPCWithHostedZone", privateNames}},
			"CreateVpcPeeringConnection":           {also("ec2:CreateTags", "TagSpecification")},
			"ImportKeyPair":                        {also("ec2:CreateTags", "TagSpecification")},
			"ReplaceIamInstanceProfileAssociation": {also("iam:PassRole")},
			"RunInstances":                         append([]need{also("ec2:CreateTags", "TagSpecification"), also("iam:PassRole", "IamInstanceProfile")}, launching(true)...),
		},
	},
	"iam": {
		prefix: "iam",
		same: `
			AddClientIDToOpenIDConnectProvider AddRoleToInstanceProfile AttachRolePolicy AttachUserPolicy CreateInstanceProfile
			CreateOpenIDConnectProvider CreatePolicy CreateRole CreateServiceLinkedRole CreateUser DeleteInstanceProfile
			DeleteOpenIDConnectProvider DeletePolicy DeleteRole DeleteRolePermissionsBoundary DeleteRolePolicy
			DeleteServiceLinkedRole DeleteUser DeleteUserPermissionsBoundary DeleteUserPolicy DetachRolePolicy DetachUserPolicy
			GetInstanceProfile GetOpenIDConnectProvider GetPolicy GetPolicyVersion GetRole GetRolePolicy
			GetServiceLinkedRoleDeletionStatus GetUser GetUserPolicy ListAccountAliases ListAttachedRolePolicies
			ListAttachedUserPolicies ListEntitiesForPolicy ListInstanceProfileTags ListInstanceProfiles ListInstanceProfilesForRole
			ListOpenIDConnectProviderTags ListOpenIDConnectProviders ListPolicies ListPolicyVersions ListRolePolicies ListRoleTags
			ListRoles ListUserPolicies ListUserTags ListUsers PutRolePermissionsBoundary PutRolePolicy PutUserPermissionsBoundary
			PutUserPolicy RemoveClientIDFromOpenIDConnectProvider RemoveRoleFromInstanceProfile SimulatePrincipalPolicy
			TagInstanceProfile TagOpenIDConnectProvider TagRole TagUser UntagInstanceProfile UntagOpenIDConnectProvider UntagRole
			UntagUser UpdateAssumeRolePolicy UpdateOpenIDConnectProviderThumbprint UpdateRole`,
		more: map[string][]need{
			"AddRoleToInstanceProfile":    {also("iam:PassRole")},
			"CreateInstanceProfile":       {also("iam:TagInstanceProfile", "Tags")},
			"CreateOpenIDConnectProvider": {also("iam:TagOpenIDConnectProvider", "Tags")},
			"CreatePolicy":                {also("iam:TagPolicy", "Tags")},
			"CreateRole":                  {also("iam:TagRole", "Tags")},
			"CreateUser":                  {also("iam:TagUser", "Tags")},
		},
	},
	"sts": {
		prefix: "sts",
		same: `
			AssumeRole GetAccessKeyInfo GetFederationToken`,
		other: map[string]string{
			"GetCallerIdentity": "",
			"GetSessionToken":   "",
		},
		more: map[string][]need{
			"AssumeRole": {also("sts:TagSession", "Tags")},
		},
	},
	"autoscaling": {
		prefix: "autoscaling",
		same: `
			AttachLoadBalancerTargetGroups AttachTrafficSources CancelInstanceRefresh CreateAutoScalingGroup CreateOrUpdateTags
			DeleteAutoScalingGroup DeleteTags DescribeAccountLimits DescribeAutoScalingGroups DescribeAutoScalingInstances
			DescribeInstanceRefreshes DescribeLaunchConfigurations DescribeLifecycleHooks DescribeLoadBalancerTargetGroups
			DescribePolicies DescribeScalingActivities DescribeScheduledActions DescribeTags DescribeTrafficSources DetachInstances
			DetachLoadBalancerTargetGroups DetachTrafficSources ResumeProcesses SetDesiredCapacity SetInstanceHealth
			SetInstanceProtection StartInstanceRefresh SuspendProcesses TerminateInstanceInAutoScalingGroup UpdateAutoScalingGroup`,
		more: map[string][]need{
			"CreateAutoScalingGroup": append([]need{also("autoscaling:CreateOrUpdateTags", "Tags")}, launching(false)...),
			"UpdateAutoScalingGroup": launching(false),
		},
		linked: map[string]string{"CreateAutoScalingGroup": "autoscaling.amazonaws.com"},
	},
	"elasticloadbalancing": {
		prefix: "elasticloadbalancing",
		same: `
			AddTags CreateListener CreateLoadBalancer CreateRule CreateTargetGroup DeleteListener DeleteLoadBalancer DeleteRule
			DeleteTargetGroup DeregisterTargets DescribeAccountLimits DescribeListenerAttributes DescribeListenerCertificates
			DescribeListeners DescribeLoadBalancerAttributes DescribeLoadBalancers DescribeRules DescribeSSLPolicies DescribeTags
			DescribeTargetGroupAttributes DescribeTargetGroups DescribeTargetHealth ModifyListener ModifyLoadBalancerAttributes
			ModifyTargetGroup ModifyTargetGroupAttributes RegisterTargets RemoveTags SetSecurityGroups`,
		more: map[string][]need{
			"CreateListener":     {also("elasticloadbalancing:AddTags", "Tags")},
			"CreateLoadBalancer": {also("elasticloadbalancing:AddTags", "Tags")},
			"CreateRule":         {also("elasticloadbalancing:AddTags", "Tags")},
			"CreateTargetGroup":  {also("elasticloadbalancing:AddTags", "Tags")},
		},
		linked: map[string]string{"CreateLoadBalancer": "elasticloadbalancing.amazonaws.com"},
	},
}

// toBucket is a need of flow logs that go to S3 ("Publish flow logs to Amazon S3").
func toBucket(action string) need {
	return need{action, func(r *request) bool { return r.Form.Get("LogDestinationType") == "s3" }}
}

// privateNames says whether an endpoint gets a private hosted zone ("CreateVpcEndpoint").
func privateNames(r *request) bool {
	return strings.EqualFold(r.Form.Get("VpcEndpointType"), "Interface") && r.Form.Get("PrivateDnsEnabled") != "false"
}
