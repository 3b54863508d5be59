package aws

import (
	"context"
	"fmt"
	"slices"

	"github.com/aws/smithy-go/middleware"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"

	"github.com/zopday/provisioner/internal/pipeline"
)

// guard lets nothing leave for a read-only account that is not known to be a
// read. It is below everything else that touches a call, and holds whatever the
// job's gates say.
func (p *Provider) guard(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
	service, op := awsmiddleware.GetServiceID(ctx), awsmiddleware.GetOperationName(ctx)
	if !isRead(service, op) {
		if f := flightOf(ctx); f != nil {
			f.sent = false
		}
		return middleware.DeserializeOutput{}, middleware.Metadata{}, &pipeline.CloudError{
			Class: pipeline.Refused, Service: service, Op: op, Message: "the account is read-only", Err: p.readOnly(service, op),
		}
	}
	return next.HandleDeserialize(ctx, in)
}

// readOnly is the refusal of a change, for a person.
func (p *Provider) readOnly(service, op string) error {
	return pipeline.Fatal("read-only-account", fmt.Sprintf("the cloud account %s is read-only, so %s %s was not sent", accountName(p.account), service, op),
		"Use a cloud account with the permission level read_write for jobs that change something; a read-only one is for adopt, plan and verify.").On("cloudAccountId")
}

// isRead reports whether an operation is one of those that the package reads
// with. The list is closed: an operation that a new version of the SDK or of this
// package brings is refused until it is written down.
func isRead(service, op string) bool { return slices.Contains(reads[service], op) }

// reads are the operations that the package reads with, by the SDK's name of the
// service. A secret's value is not among them: it lets its reader change what it
// opens.
var reads = map[string][]string{
	"ACM": {
		"DescribeCertificate",
	},
	"Auto Scaling": {
		"DescribeAutoScalingGroups", "DescribeScalingActivities",
	},
	"CloudWatch": {
		"GetMetricData",
	},
	"CloudWatch Logs": {
		"DescribeLogGroups", "ListTagsForResource",
	},
	"EC2": {
		"DescribeAddresses", "DescribeAvailabilityZones", "DescribeFlowLogs", "DescribeImages", "DescribeInstanceTypeOfferings",
		"DescribeInstanceTypes", "DescribeInstances", "DescribeInternetGateways", "DescribeLaunchTemplateVersions",
		"DescribeLaunchTemplates", "DescribeNatGateways", "DescribeNetworkAcls", "DescribeNetworkInterfaces", "DescribeRegions",
		"DescribeRouteTables", "DescribeSecurityGroups", "DescribeSubnets", "DescribeVolumes", "DescribeVpcAttribute",
		"DescribeVpcEndpoints", "DescribeVpcPeeringConnections", "DescribeVpcs",
	},
	"EKS": {
		"DescribeAccessEntry", "DescribeAddon", "DescribeCluster", "DescribeClusterVersions", "DescribeNodegroup",
		"DescribePodIdentityAssociation", "DescribeUpdate", "ListAccessEntries", "ListAssociatedAccessPolicies", "ListClusters",
		"ListFargateProfiles", "ListNodegroups",
	},
	"ElastiCache": {
		"DescribeCacheClusters", "DescribeCacheEngineVersions", "DescribeCacheSubnetGroups", "DescribeReplicationGroups",
		"DescribeReservedCacheNodesOfferings", "DescribeSnapshots", "DescribeUserGroups", "DescribeUsers", "ListTagsForResource",
	},
	"Elastic Load Balancing": {
		"DescribeLoadBalancers", "DescribeTags",
	},
	"Elastic Load Balancing v2": {
		"DescribeListeners", "DescribeLoadBalancerAttributes", "DescribeLoadBalancers", "DescribeTags", "DescribeTargetGroups",
		"DescribeTargetHealth",
	},
	"IAM": {
		"GetInstanceProfile", "GetOpenIDConnectProvider", "GetRole", "GetRolePolicy", "ListAccountAliases", "ListAttachedRolePolicies",
		"ListInstanceProfiles", "ListInstanceProfilesForRole", "ListOpenIDConnectProviders", "ListRolePolicies", "ListRoles",
		"SimulatePrincipalPolicy",
	},
	"KMS": {
		"DescribeKey", "GetKeyRotationStatus", "ListAliases", "ListKeys", "ListResourceTags",
	},
	"RDS": {
		"DescribeAccountAttributes", "DescribeDBEngineVersions", "DescribeDBInstanceAutomatedBackups", "DescribeDBInstances",
		"DescribeDBMajorEngineVersions", "DescribeDBParameterGroups", "DescribeDBParameters", "DescribeDBSnapshotAttributes",
		"DescribeDBSnapshots", "DescribeDBSubnetGroups", "DescribeOrderableDBInstanceOptions", "ListTagsForResource",
	},
	"Route 53": {
		"GetChange", "GetHostedZone", "ListHostedZones", "ListResourceRecordSets", "ListTagsForResource",
	},
	"S3": {
		"GetBucketEncryption", "GetBucketLifecycleConfiguration", "GetBucketPolicy", "GetBucketTagging", "GetPublicAccessBlock",
		"ListBuckets", "ListObjectsV2",
	},
	"SSM": {
		"DescribeInstanceInformation", "GetCommandInvocation", "GetParameter", "ListCommandInvocations",
	},
	"STS": {
		"GetCallerIdentity",
	},
	"Service Quotas": {
		"GetAWSDefaultServiceQuota", "GetServiceQuota",
	},
}
