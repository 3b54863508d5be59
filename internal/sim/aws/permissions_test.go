package aws

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/sim"
)

// Every operation says which action it needs, and no table speaks of an operation that is not there.
func TestEveryOperationHasItsAction(t *testing.T) {
	t.Parallel()
	c := New(sim.New(sim.Options{}), Options{})
	known := map[string]map[string]bool{}
	for _, first := range c.apis {
		for a := first; a != nil; a = a.other {
			y := a.authority()
			if y == nil {
				t.Errorf("%s has no table", a.service)
				continue
			}
			if known[a.service] == nil {
				known[a.service] = map[string]bool{}
			}
			for op := range a.ops {
				known[a.service][op] = true
				if action, ok := y.action(op); !ok || action != "" && strings.Count(action, ":") != 1 {
					t.Errorf("%s %s has action %q, %v", a.service, op, action, ok)
				}
			}
		}
	}
	for service, y := range authorities {
		ops := strings.Fields(y.same)
		for op := range y.other {
			ops = append(ops, op)
		}
		for op := range y.more {
			ops = append(ops, op)
		}
		for op := range y.linked {
			ops = append(ops, op)
		}
		for _, op := range ops {
			if !known[service][op] {
				t.Errorf("%s has no operation %s", service, op)
			}
		}
		for op := range strings.FieldsSeq(y.same) {
			if _, twice := y.other[op]; twice {
				t.Errorf("%s %s has two actions", service, op)
			}
		}
	}
}

const testKey = "AKIAIOSFODNN7EXAMPLE"

// What a caller may not do is refused in the service's own words, which name action and caller, and is not done.
func TestGrantsAreHeldTo(t *testing.T) {
	t.Parallel()
	r := newRig(t, immediate)
	caller := "arn:aws:iam::" + testAccount + ":user/operator"
	ec2c := ec2.NewFromConfig(r.cfg)
	vpc := must(ec2c.CreateVpc(r.ctx(), &ec2.CreateVpcInput{CidrBlock: awssdk.String("10.0.0.0/16")}))(t).Vpc.VpcId
	r.w.SetGrants("aws", testKey, []string{"ec2:Describe*", "ec2:CreateSubnet", "iam:CreateRole", "servicequotas:*", "rds:CreateDBInstance"})
	tagged := []types.TagSpecification{{ResourceType: types.ResourceTypeSubnet, Tags: []types.Tag{{Key: awssdk.String("a"), Value: awssdk.String("b")}}}}
	before := r.w.Snapshot()
	for _, c := range []struct {
		code, action string
		call         func(ctx context.Context) error
	}{
		{"UnauthorizedOperation", "ec2:CreateVpc", func(ctx context.Context) error {
			_, err := ec2c.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: awssdk.String("10.1.0.0/16")})
			return err
		}},
		{"UnauthorizedOperation", "ec2:CreateTags", func(ctx context.Context) error {
			_, err := ec2c.CreateSubnet(ctx, &ec2.CreateSubnetInput{VpcId: vpc, CidrBlock: awssdk.String("10.0.1.0/24"), TagSpecifications: tagged})
			return err
		}},
		{"AccessDenied", "iam:ListRoles", func(ctx context.Context) error {
			_, err := iam.NewFromConfig(r.cfg).ListRoles(ctx, nil)
			return err
		}},
		{"AccessDenied", "autoscaling:DescribeAutoScalingGroups", func(ctx context.Context) error {
			_, err := autoscaling.NewFromConfig(r.cfg).DescribeAutoScalingGroups(ctx, nil)
			return err
		}},
		{"AccessDeniedException", "eks:ListClusters", func(ctx context.Context) error {
			_, err := eks.NewFromConfig(r.cfg).ListClusters(ctx, nil)
			return err
		}},
		{"AccessDeniedException", "kms:CreateKey", func(ctx context.Context) error {
			_, err := kms.NewFromConfig(r.cfg).CreateKey(ctx, nil)
			return err
		}},
		{"AccessDenied", "route53:ListHostedZones", func(ctx context.Context) error {
			_, err := route53.NewFromConfig(r.cfg).ListHostedZones(ctx, nil)
			return err
		}},
		{"AccessDenied", "s3:ListAllMyBuckets", func(ctx context.Context) error {
			_, err := s3.NewFromConfig(r.cfg, func(o *s3.Options) { o.UsePathStyle = true }).ListBuckets(ctx, nil)
			return err
		}},
		{"DependencyAccessDeniedException", "elasticloadbalancing:DescribeAccountLimits", func(ctx context.Context) error {
			_, err := servicequotas.NewFromConfig(r.cfg).GetServiceQuota(ctx, &servicequotas.GetServiceQuotaInput{ServiceCode: awssdk.String("elasticloadbalancing"), QuotaCode: awssdk.String("L-53DA6B97")})
			return err
		}},
		{"AccessDenied", "secretsmanager:CreateSecret", func(ctx context.Context) error {
			_, err := rds.NewFromConfig(r.cfg).CreateDBInstance(ctx, &rds.CreateDBInstanceInput{DBInstanceIdentifier: awssdk.String("a"), Engine: awssdk.String("postgres"), DBInstanceClass: awssdk.String("db.t3.micro"),
				ManageMasterUserPassword: awssdk.Bool(true), MasterUsername: awssdk.String("root"), AllocatedStorage: awssdk.Int32(20)})
			return err
		}},
	} {
		err := c.call(r.ctx())
		wantCode(t, err, c.code)
		if err == nil || !strings.Contains(err.Error(), c.action) || !strings.Contains(err.Error(), caller) {
			t.Errorf("%s: %v", c.action, err)
		}
		last := r.w.Books(sim.BookFilter{Limit: 1})[0]
		if last.Code != c.code || last.Done || !slices.Contains(last.Actions, c.action) || last.Caller != testKey {
			t.Errorf("the books have %+v", last)
		}
	}
	if d := cmp.Diff(before, r.w.Snapshot()); d != "" {
		t.Errorf("something was done:\n%s", d)
	}
	// Who one is may always be asked, and what is granted works.
	must(sts.NewFromConfig(r.cfg).GetCallerIdentity(r.ctx(), nil))(t)
	must(ec2c.CreateSubnet(r.ctx(), &ec2.CreateSubnetInput{VpcId: vpc, CidrBlock: awssdk.String("10.0.1.0/24")}))(t)
	r.w.SetGrants("aws", testKey, nil)
	must(ec2c.CreateVpc(r.ctx(), &ec2.CreateVpcInput{CidrBlock: awssdk.String("10.1.0.0/16")}))(t)
}

// A role is held to its own grants under every key that it is given, and is simulated by them.
func TestGrantsOfRoles(t *testing.T) {
	t.Parallel()
	r := newRig(t, immediate)
	c := iam.NewFromConfig(r.cfg)
	trust := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::` + testAccount + `:root"},"Action":"sts:AssumeRole","Condition":{"StringEquals":{"sts:ExternalId":["one","two"]}}}]}`
	role := *must(c.CreateRole(r.ctx(), &iam.CreateRoleInput{RoleName: awssdk.String("deploy"), Path: awssdk.String("/team/"), AssumeRolePolicyDocument: &trust}))(t).Role.Arn
	r.w.Step(time.Minute)
	for _, id := range []*string{nil, awssdk.String("three")} {
		_, err := sts.NewFromConfig(r.cfg).AssumeRole(r.ctx(), &sts.AssumeRoleInput{RoleArn: &role, RoleSessionName: awssdk.String("job"), ExternalId: id})
		wantCode(t, err, "AccessDenied")
	}
	r.w.SetGrants("aws", role, []string{"ec2:DescribeVpcs", "iam:SimulatePrincipalPolicy"})
	for range 2 {
		got := must(sts.NewFromConfig(r.cfg).AssumeRole(r.ctx(), &sts.AssumeRoleInput{RoleArn: &role, RoleSessionName: awssdk.String("job"), ExternalId: awssdk.String("two")}))(t).Credentials
		as := r.cfg.Copy()
		as.Credentials = credentials.NewStaticCredentialsProvider(*got.AccessKeyId, *got.SecretAccessKey, *got.SessionToken)
		must(ec2.NewFromConfig(as).DescribeVpcs(r.ctx(), nil))(t)
		_, err := ec2.NewFromConfig(as).DescribeSubnets(r.ctx(), nil)
		wantCode(t, err, "UnauthorizedOperation")
		if err == nil || !strings.Contains(err.Error(), ":assumed-role/deploy/job is not authorized to perform: ec2:DescribeSubnets") {
			t.Errorf("got %v", err)
		}
		if last := r.w.Books(sim.BookFilter{Limit: 1})[0]; last.Caller != role {
			t.Errorf("the books name %s", last.Caller)
		}
		out := must(iam.NewFromConfig(as).SimulatePrincipalPolicy(r.ctx(), &iam.SimulatePrincipalPolicyInput{PolicySourceArn: &role, ActionNames: []string{"ec2:DescribeVpcs", "ec2:DescribeSubnets"}}))(t)
		if len(out.EvaluationResults) != 2 || out.EvaluationResults[0].EvalDecision != "allowed" || out.EvaluationResults[1].EvalDecision != "implicitDeny" {
			t.Errorf("simulated: %+v", out.EvaluationResults)
		}
		_, err = iam.NewFromConfig(as).SimulatePrincipalPolicy(r.ctx(), &iam.SimulatePrincipalPolicyInput{PolicySourceArn: awssdk.String("arn:aws:sts::" + testAccount + ":assumed-role/deploy/job"), ActionNames: []string{"ec2:DescribeVpcs"}})
		wantCode(t, err, "InvalidInput")
	}
}

// The first of a service's things in an account makes its service-linked role, and asks for the right to.
func TestServiceLinkedRolesAreAskedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t, immediate)
	create := func() error {
		_, err := rds.NewFromConfig(r.cfg).CreateDBInstance(r.ctx(), &rds.CreateDBInstanceInput{DBInstanceIdentifier: awssdk.String("a"), Engine: awssdk.String("postgres"), DBInstanceClass: awssdk.String("db.t3.micro"),
			MasterUserPassword: awssdk.String("a-long-password"), MasterUsername: awssdk.String("root"), AllocatedStorage: awssdk.Int32(20)})
		return err
	}
	role := "arn:aws:iam::" + testAccount + ":role/aws-service-role/rds.amazonaws.com/AWSServiceRoleForRDS"
	if _, err := r.w.RemoveObject(role); err != nil {
		t.Fatal(err)
	}
	r.w.SetGrants("aws", testKey, []string{"rds:*"})
	wantCode(t, create(), "AccessDenied")
	r.w.SetGrants("aws", testKey, []string{"rds:*", "iam:CreateServiceLinkedRole"})
	if err := create(); err != nil {
		t.Fatal(err)
	}
	if len(r.w.Objects(sim.ObjectFilter{ID: role})) != 1 {
		t.Error("there is no service-linked role")
	}
}
