package aws

import "encoding/json"

var storeAuthorities = map[string]*authority{
	"acm": {
		prefix: "acm",
		same: `
			AddTagsToCertificate DeleteCertificate DescribeCertificate ListCertificates ListTagsForCertificate
			RemoveTagsFromCertificate RequestCertificate`,
		more: map[string][]need{
			"RequestCertificate": {also("acm:AddTagsToCertificate", "Tags")},
		},
	},
	"eks": {
		prefix: "eks",
		same: `
			AssociateAccessPolicy AssociateEncryptionConfig CreateAccessEntry CreateAddon CreateCluster CreateNodegroup
			CreatePodIdentityAssociation DeleteAccessEntry DeleteAddon DeleteCluster DeleteNodegroup DeletePodIdentityAssociation
			DescribeAccessEntry DescribeAddon DescribeAddonConfiguration DescribeAddonVersions DescribeCluster
			DescribeClusterVersions DescribeFargateProfile DescribeNodegroup DescribePodIdentityAssociation DescribeUpdate
			DisassociateAccessPolicy ListAccessEntries ListAccessPolicies ListAddons ListAssociatedAccessPolicies ListClusters
			ListFargateProfiles ListIdentityProviderConfigs ListInsights ListNodegroups ListPodIdentityAssociations
			ListTagsForResource ListUpdates TagResource UntagResource UpdateAccessEntry UpdateAddon UpdateClusterConfig
			UpdateClusterVersion UpdateNodegroupConfig UpdateNodegroupVersion UpdatePodIdentityAssociation`,
		more: map[string][]need{
			"AssociateEncryptionConfig":    {also("kms:DescribeKey"), also("kms:CreateGrant")},
			"CreateAccessEntry":            {also("eks:TagResource", "tags")},
			"CreateAddon":                  {also("eks:TagResource", "tags"), also("eks:CreatePodIdentityAssociation", "podIdentityAssociations"), also("iam:GetRole", "podIdentityAssociations"), also("iam:PassRole", "podIdentityAssociations", "serviceAccountRoleArn")},
			"CreateCluster":                {also("eks:TagResource", "tags"), also("iam:PassRole"), also("kms:DescribeKey", "encryptionConfig"), also("kms:CreateGrant", "encryptionConfig")},
			"CreateNodegroup":              append([]need{also("eks:TagResource", "tags"), also("iam:PassRole")}, launching(false)...),
			"CreatePodIdentityAssociation": {also("eks:TagResource", "tags"), also("iam:GetRole"), also("iam:PassRole")},
			"UpdateAddon":                  {also("eks:UpdatePodIdentityAssociation", "podIdentityAssociations"), also("iam:GetRole", "podIdentityAssociations"), also("iam:PassRole", "podIdentityAssociations", "serviceAccountRoleArn")},
			"UpdateNodegroupVersion":       launching(false),
			"UpdatePodIdentityAssociation": {also("iam:GetRole", "roleArn"), also("iam:PassRole", "roleArn")},
		},
		linked: map[string]string{"CreateCluster": "eks.amazonaws.com", "CreateNodegroup": "eks-nodegroup.amazonaws.com"},
	},
	"elasticache": {
		prefix: "elasticache",
		same: `
			AddTagsToResource CreateCacheParameterGroup CreateCacheSubnetGroup CreateReplicationGroup CreateSnapshot CreateUser
			CreateUserGroup DeleteCacheCluster DeleteCacheParameterGroup DeleteCacheSubnetGroup DeleteReplicationGroup
			DeleteSnapshot DeleteUser DeleteUserGroup DescribeCacheClusters DescribeCacheEngineVersions DescribeCacheParameterGroups
			DescribeCacheParameters DescribeCacheSubnetGroups DescribeReplicationGroups DescribeReservedCacheNodesOfferings
			DescribeServiceUpdates DescribeSnapshots DescribeUserGroups DescribeUsers ListAllowedNodeTypeModifications
			ListTagsForResource ModifyCacheParameterGroup ModifyReplicationGroup ModifyUser ModifyUserGroup RemoveTagsFromResource`,
		more: map[string][]need{
			"CreateCacheParameterGroup": {also("elasticache:AddTagsToResource", "Tags")},
			"CreateCacheSubnetGroup":    {also("elasticache:AddTagsToResource", "Tags")},
			"CreateReplicationGroup":    append([]need{also("elasticache:AddTagsToResource", "Tags"), also("kms:CreateGrant", "KmsKeyId"), also("kms:DescribeKey", "KmsKeyId"), also("s3:GetObject", "SnapshotArns")}, inNetwork...),
			"CreateSnapshot":            {also("elasticache:AddTagsToResource", "Tags")},
			"CreateUser":                {also("elasticache:AddTagsToResource", "Tags")},
			"CreateUserGroup":           {also("elasticache:AddTagsToResource", "Tags")},
			"DeleteCacheCluster":        append([]need{also("elasticache:CreateSnapshot", "FinalSnapshotIdentifier")}, inNetwork...),
			"DeleteCacheSubnetGroup":    inNetwork,
			"DeleteReplicationGroup":    append([]need{also("elasticache:CreateSnapshot", "FinalSnapshotIdentifier")}, inNetwork...),
			"ModifyReplicationGroup":    inNetwork,
		},
		linked: map[string]string{"CreateReplicationGroup": "elasticache.amazonaws.com"},
	},
	"kms": {
		prefix: "kms",
		same: `
			CancelKeyDeletion CreateAlias CreateGrant CreateKey DeleteAlias DescribeKey DisableKey DisableKeyRotation EnableKey
			EnableKeyRotation GetKeyPolicy GetKeyRotationStatus ListAliases ListGrants ListKeyPolicies ListKeys ListResourceTags
			PutKeyPolicy RevokeGrant ScheduleKeyDeletion TagResource UntagResource UpdateAlias UpdateKeyDescription`,
		more: map[string][]need{
			"CreateKey": {also("kms:TagResource", "Tags"), also("kms:PutKeyPolicy", "Policy")},
		},
	},
	"logs": {
		prefix: "logs",
		same: `
			AssociateKmsKey CreateLogGroup DeleteLogGroup DeleteRetentionPolicy DescribeLogGroups DescribeLogStreams
			DisassociateKmsKey ListTagsForResource PutRetentionPolicy TagResource UntagResource`,
		more: map[string][]need{
			"CreateLogGroup": {also("logs:TagResource", "tags")},
		},
	},
	"monitoring": {
		prefix: "cloudwatch",
		same: `
			GetMetricData GetMetricStatistics ListMetrics`,
	},
	"rds": {
		prefix: "rds",
		same: `
			AddTagsToResource CreateDBInstance CreateDBInstanceReadReplica CreateDBParameterGroup CreateDBSnapshot
			CreateDBSubnetGroup DeleteDBInstance DeleteDBInstanceAutomatedBackup DeleteDBParameterGroup DeleteDBSnapshot
			DeleteDBSubnetGroup DescribeAccountAttributes DescribeCertificates DescribeDBEngineVersions
			DescribeDBInstanceAutomatedBackups DescribeDBInstances DescribeDBMajorEngineVersions DescribeDBParameterGroups
			DescribeDBParameters DescribeDBSnapshotAttributes DescribeDBSnapshots DescribeDBSubnetGroups
			DescribeOrderableDBInstanceOptions DescribePendingMaintenanceActions ListTagsForResource ModifyDBInstance
			ModifyDBParameterGroup ModifyDBSnapshotAttribute PromoteReadReplica RebootDBInstance RemoveTagsFromResource
			StartDBInstance StopDBInstance`,
		more: map[string][]need{
			"CreateDBInstance":            {also("rds:AddTagsToResource", "Tags"), also("iam:PassRole", "MonitoringRoleArn"), also("secretsmanager:CreateSecret", "ManageMasterUserPassword"), also("secretsmanager:TagResource", "ManageMasterUserPassword"), also("kms:DescribeKey", "ManageMasterUserPassword", "KmsKeyId"), also("kms:CreateGrant", "KmsKeyId", "MasterUserSecretKmsKeyId"), also("kms:Decrypt", "MasterUserSecretKmsKeyId"), also("kms:GenerateDataKey", "MasterUserSecretKmsKeyId")},
			"CreateDBInstanceReadReplica": {also("rds:AddTagsToResource", "Tags")},
			"CreateDBParameterGroup":      {also("rds:AddTagsToResource", "Tags")},
			"CreateDBSnapshot":            {also("rds:AddTagsToResource", "Tags")},
			"CreateDBSubnetGroup":         {also("rds:AddTagsToResource", "Tags")},
			"DeleteDBInstance":            {also("rds:CreateDBSnapshot", "FinalDBSnapshotIdentifier")},
			"ModifyDBInstance":            {also("iam:PassRole", "MonitoringRoleArn"), also("secretsmanager:CreateSecret", "ManageMasterUserPassword"), also("secretsmanager:TagResource", "ManageMasterUserPassword"), also("kms:DescribeKey", "ManageMasterUserPassword", "KmsKeyId"), also("kms:CreateGrant", "KmsKeyId", "MasterUserSecretKmsKeyId"), also("kms:Decrypt", "MasterUserSecretKmsKeyId"), also("kms:GenerateDataKey", "MasterUserSecretKmsKeyId"), also("secretsmanager:RotateSecret", "RotateMasterUserPassword")},
		},
		linked: map[string]string{"CreateDBInstance": "rds.amazonaws.com"},
	},
	"route53": {
		prefix: "route53",
		same: `
			AssociateVPCWithHostedZone ChangeResourceRecordSets ChangeTagsForResource CreateHostedZone DeleteHostedZone
			DisassociateVPCFromHostedZone GetChange GetHostedZone GetHostedZoneCount ListHostedZones ListHostedZonesByName
			ListHostedZonesByVPC ListQueryLoggingConfigs ListResourceRecordSets ListTagsForResource ListTagsForResources
			UpdateHostedZoneComment`,
		more: map[string][]need{
			"AssociateVPCWithHostedZone":    {also("ec2:DescribeVpcs")},
			"CreateHostedZone":              {also("ec2:DescribeVpcs", "VPC")},
			"DisassociateVPCFromHostedZone": {also("ec2:DescribeVpcs")},
			"ListHostedZonesByVPC":          {also("ec2:DescribeVpcs")},
		},
	},
	"s3": {
		prefix: "s3",
		same: `
			CreateBucket DeleteBucket DeleteBucketPolicy DeleteObject GetBucketLocation GetBucketPolicy GetBucketTagging GetObject
			PutBucketPolicy PutBucketTagging PutObject`,
		other: map[string]string{
			"DeleteBucketEncryption":          "s3:PutEncryptionConfiguration",
			"DeleteBucketLifecycle":           "s3:PutLifecycleConfiguration",
			"DeleteBucketTagging":             "s3:PutBucketTagging",
			"DeleteObjects":                   "s3:DeleteObject",
			"DeletePublicAccessBlock":         "s3:PutBucketPublicAccessBlock",
			"GetBucketEncryption":             "s3:GetEncryptionConfiguration",
			"GetBucketLifecycleConfiguration": "s3:GetLifecycleConfiguration",
			"GetPublicAccessBlock":            "s3:GetBucketPublicAccessBlock",
			"HeadBucket":                      "s3:ListBucket",
			"HeadObject":                      "s3:GetObject",
			"ListBuckets":                     "s3:ListAllMyBuckets",
			"ListObjectVersions":              "s3:ListBucketVersions",
			"ListObjects":                     "s3:ListBucket",
			"ListObjectsV2":                   "s3:ListBucket",
			"PutBucketEncryption":             "s3:PutEncryptionConfiguration",
			"PutBucketLifecycleConfiguration": "s3:PutLifecycleConfiguration",
			"PutPublicAccessBlock":            "s3:PutBucketPublicAccessBlock",
		},
		more: map[string][]need{
			"CreateBucket": {also("s3:TagResource", "Tags")},
		},
	},
	"secretsmanager": {
		prefix: "secretsmanager",
		same: `
			CreateSecret DeleteSecret DescribeSecret GetResourcePolicy GetSecretValue ListSecretVersionIds ListSecrets
			PutSecretValue RestoreSecret RotateSecret TagResource UntagResource UpdateSecret UpdateSecretVersionStage`,
		more: map[string][]need{
			"CreateSecret": {also("secretsmanager:TagResource", "Tags"), also("kms:GenerateDataKey", "KmsKeyId"), also("kms:Decrypt", "KmsKeyId")},
		},
	},
	"servicequotas": {
		prefix: "servicequotas",
		same: `
			GetAWSDefaultServiceQuota GetServiceQuota ListAWSDefaultServiceQuotas ListServiceQuotas ListServices`,
		more: map[string][]need{
			"GetServiceQuota":   quotaNeeds,
			"ListServiceQuotas": quotaNeeds,
		},
	},
	"ssm": {
		prefix: "ssm",
		same: `
			CancelCommand DeleteParameter DeleteParameters DescribeInstanceInformation DescribeParameters DescribeSessions
			GetCommandInvocation GetConnectionStatus GetDocument GetParameter GetParameters GetParametersByPath
			ListCommandInvocations ListCommands ListDocuments PutParameter SendCommand`,
	},
}

// inNetwork are what the nodes of a cache need in their network.
var inNetwork = []need{
	also("ec2:CreateNetworkInterface"), also("ec2:DeleteNetworkInterface"), also("ec2:DescribeNetworkInterfaces"), also("ec2:DescribeSubnets"), also("ec2:DescribeVpcs"),
}

// quotaNeeds are what Service Quotas asks the service itself for, in the caller's name.
var quotaNeeds = []need{
	ofService("autoscaling", "autoscaling:DescribeAccountLimits"), ofService("elasticloadbalancing", "elasticloadbalancing:DescribeAccountLimits"),
	ofService("iam", "iam:GetAccountSummary"), ofService("rds", "rds:DescribeAccountAttributes"), ofService("route53", "route53:GetAccountLimit"),
}

func ofService(code, action string) need {
	return need{action, func(r *request) bool {
		var in struct{ ServiceCode string }
		return json.Unmarshal(r.Body, &in) == nil && in.ServiceCode == code
	}}
}
