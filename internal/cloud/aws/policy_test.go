package aws

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// iamPrefix is how IAM calls the service behind each client of a Provider.
var iamPrefix = map[string]string{
	"ec2": "ec2", "iam": "iam", "sts": "sts", "ssm": "ssm", "quotas": "servicequotas", "r53": "route53",
	"acm": "acm", "asg": "autoscaling", "elb": "elasticloadbalancing", "clb": "elasticloadbalancing", "logs": "logs", "s3": "s3",
	"eks": "eks", "kms": "kms", "rds": "rds", "cache": "elasticache", "secrets": "secretsmanager", "metrics": "cloudwatch",
}

// called is how IAM calls an operation of S3 where it does so by another name
// ("Required permissions for Amazon S3 API operations").
var called = map[string]string{
	"s3:GetBucketEncryption": "s3:GetEncryptionConfiguration", "s3:PutBucketEncryption": "s3:PutEncryptionConfiguration",
	"s3:GetPublicAccessBlock": "s3:GetBucketPublicAccessBlock", "s3:PutPublicAccessBlock": "s3:PutBucketPublicAccessBlock",
	"s3:GetBucketLifecycleConfiguration": "s3:GetLifecycleConfiguration", "s3:PutBucketLifecycleConfiguration": "s3:PutLifecycleConfiguration",
	"s3:ListObjectsV2": "s3:ListBucket", "s3:DeleteObjects": "s3:DeleteObject", "s3:ListBuckets": "s3:ListAllMyBuckets",
}

// implied are the permissions that a call needs besides its own, as the Service
// Authorization Reference lists them under dependent actions and conditions.
var implied = map[string][]string{
	"ec2:CreateVpc":                           {"ec2:CreateTags"},              // tags in the create
	"ec2:RunInstances":                        {"iam:PassRole"},                // the role in the instance profile
	"elasticloadbalancing:CreateLoadBalancer": {"iam:CreateServiceLinkedRole"}, // the first in an account
	"elasticloadbalancing:CreateTargetGroup":  {"elasticloadbalancing:AddTags"},
	"autoscaling:CreateAutoScalingGroup":      {"autoscaling:CreateOrUpdateTags"},
	"ec2:CreateFlowLogs":                      {"logs:CreateLogDelivery", "logs:DeleteLogDelivery"},
	"logs:CreateLogGroup":                     {"logs:TagResource"},
	"s3:CreateBucket":                         {"s3:TagResource"},
	"iam:CreateRole":                          {"iam:TagRole"},
	"iam:CreateOpenIDConnectProvider":         {"iam:TagOpenIDConnectProvider"},
	"eks:CreateCluster":                       {"eks:TagResource", "iam:PassRole", "kms:CreateGrant"}, // the control plane's role; EKS uses the key by a grant
	"eks:CreateAddon":                         {"eks:CreatePodIdentityAssociation", "iam:GetRole", "iam:PassRole"},
	"eks:UpdateAddon":                         {"eks:UpdatePodIdentityAssociation"},
	"kms:CreateKey":                           {"kms:TagResource"},
	"iam:CreateInstanceProfile":               {"iam:TagInstanceProfile"},
	"rds:CreateDBInstance":                    {"rds:AddTagsToResource", "secretsmanager:CreateSecret", "secretsmanager:TagResource"}, // the administrator's password
	"rds:DeleteDBInstance":                    {"rds:CreateDBSnapshot"},                                                               // the final one
	"elasticache:CreateReplicationGroup":      {"elasticache:AddTagsToResource", "ec2:CreateNetworkInterface"},
	"elasticache:DeleteReplicationGroup":      {"elasticache:CreateSnapshot"},
}

// calls are the AWS operations that this package can make, read from its source.
func calls(t *testing.T) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || name == "emulated.go" { // what only emulators are asked for
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			op, ok := n.(*ast.SelectorExpr)
			if !ok || !ast.IsExported(op.Sel.Name) {
				return true
			}
			client, ok := op.X.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if prefix, ok := iamPrefix[client.Sel.Name]; ok && op.Sel.Name != "Options" { // how a client is set up
				action := prefix + ":" + op.Sel.Name
				if other, ok := called[action]; ok {
					action = other
				}
				found[action] = true
			}
			return true
		})
	}
	return found
}

// TestPolicyHoldsWhatIsCalled keeps docs/aws-iam-policy.json equal to what the
// package can call: an action too few is a job that fails, one too many is a
// permission that nobody needs.
func TestPolicyHoldsWhatIsCalled(t *testing.T) {
	want := calls(t)
	if len(want) < 60 {
		t.Fatalf("only %d calls were found in the source", len(want))
	}
	for call := range maps.Clone(want) {
		for _, more := range implied[call] {
			want[more] = true
		}
	}
	b, err := os.ReadFile("../../../docs/aws-iam-policy.json")
	if err != nil {
		t.Fatal(err)
	}
	var policy struct {
		Statement []struct {
			Effect string
			Action []string
		}
	}
	if err := json.Unmarshal(b, &policy); err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, s := range policy.Statement {
		for _, a := range s.Action {
			if s.Effect != "Allow" || strings.Contains(a, "*") || have[a] {
				t.Errorf("%s %s: the policy names each action once and allows it", s.Effect, a)
			}
			have[a] = true
		}
	}
	if d := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(have))); d != "" {
		t.Errorf("docs/aws-iam-policy.json (-called +allowed):\n%s", d)
	}
}
