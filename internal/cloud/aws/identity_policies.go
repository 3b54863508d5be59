package aws

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/pipeline"
)

// policies is what a role may do: by attached policies, and by its own.
type policies struct{ attached, inline []string }

func (have policies) String() string {
	return strings.Join(slices.Concat(have.attached, have.inline), ", ")
}

// policyAspect wants what the Systems Manager agent needs and nothing more.
func (p *Provider) policyAspect(role string, have policies) pipeline.Aspect {
	arn := ssmPolicy(p.region)
	a := pipeline.Aspect{Name: "policies", Wanted: arn, Seen: have.String()}
	if a.Seen == inlinePolicyName {
		a.Wanted = inlinePolicyName
	}
	a.Set = func(ctx context.Context) error {
		err := p.allowSSM(ctx, role, arn, have)
		if err != nil {
			return err
		}
		extra := func(s string) bool { return s == arn || s == inlinePolicyName }
		if err := p.detachPolicies(ctx, role, slices.DeleteFunc(slices.Clone(have.attached), extra)); err != nil {
			return err
		}
		return p.deleteInline(ctx, role, slices.DeleteFunc(slices.Clone(have.inline), extra))
	}
	return a
}

// allowSSM attaches AWS's policy. Where that policy does not exist, as in some
// isolated partitions and in emulators, the role gets the same statements as a
// policy of its own.
func (p *Provider) allowSSM(ctx context.Context, role, arn string, have policies) error {
	if slices.Contains(have.attached, arn) || slices.Contains(have.inline, inlinePolicyName) {
		return nil
	}
	_, err := p.iam.AttachRolePolicy(ctx, &iam.AttachRolePolicyInput{RoleName: aws.String(role), PolicyArn: aws.String(arn)})
	var ce *pipeline.CloudError
	if !errors.As(err, &ce) || ce.Class != pipeline.NotFound || !strings.Contains(ce.Message, arn) {
		return err
	}
	_, err = p.iam.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: aws.String(role), PolicyName: aws.String(inlinePolicyName), PolicyDocument: aws.String(ssmStatements)})
	return err
}

const inlinePolicyName = "zopday-systems-manager"

// ssmStatements is what the agent calls: "Session Manager: create a custom IAM
// role" and "ec2messages, ssmmessages, and other API operations".
const ssmStatements = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Resource":"*","Action":[` +
	`"ssm:UpdateInstanceInformation","ssm:ListAssociations","ssm:ListInstanceAssociations","ssm:UpdateInstanceAssociationStatus","ssm:UpdateAssociationStatus",` +
	`"ssm:DescribeAssociation","ssm:GetDocument","ssm:DescribeDocument","ssm:GetManifest","ssm:PutInventory","ssm:PutComplianceItems","ssm:PutConfigurePackageResult",` +
	`"ssmmessages:CreateControlChannel","ssmmessages:CreateDataChannel","ssmmessages:OpenControlChannel","ssmmessages:OpenDataChannel",` +
	`"ec2messages:AcknowledgeMessage","ec2messages:DeleteMessage","ec2messages:FailMessage","ec2messages:GetEndpoint","ec2messages:GetMessages","ec2messages:SendReply"]}]}`

func (p *Provider) attachedPolicies(ctx context.Context, role string) ([]string, error) {
	return lookup.Once(ctx, "attached "+role, func(ctx context.Context) ([]string, error) {
		arns, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]string, *string, error) {
			out, err := p.iam.ListAttachedRolePolicies(ctx, &iam.ListAttachedRolePoliciesInput{RoleName: aws.String(role), Marker: token})
			if err != nil {
				return nil, nil, err
			}
			var arns []string
			for _, a := range out.AttachedPolicies {
				arns = append(arns, aws.ToString(a.PolicyArn))
			}
			return arns, out.Marker, nil
		})
		slices.Sort(arns)
		return arns, err
	})
}

func (p *Provider) inlinePolicies(ctx context.Context, role string) ([]string, error) {
	return lookup.Once(ctx, "inline "+role, func(ctx context.Context) ([]string, error) {
		names, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]string, *string, error) {
			out, err := p.iam.ListRolePolicies(ctx, &iam.ListRolePoliciesInput{RoleName: aws.String(role), Marker: token})
			if err != nil {
				return nil, nil, err
			}
			return out.PolicyNames, out.Marker, nil
		})
		slices.Sort(names)
		return names, err
	})
}

func (p *Provider) detachPolicies(ctx context.Context, role string, arns []string) error {
	for _, arn := range arns {
		_, err := p.iam.DetachRolePolicy(ctx, &iam.DetachRolePolicyInput{RoleName: aws.String(role), PolicyArn: aws.String(arn)})
		if err := pipeline.Unless(err, pipeline.NotFound); err != nil {
			return err
		}
	}
	return nil
}

func (p *Provider) deleteInline(ctx context.Context, role string, names []string) error {
	for _, n := range names {
		_, err := p.iam.DeleteRolePolicy(ctx, &iam.DeleteRolePolicyInput{RoleName: aws.String(role), PolicyName: aws.String(n)})
		if err := pipeline.Unless(err, pipeline.NotFound); err != nil {
			return err
		}
	}
	return nil
}
