package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

var _ cloud.AccountChecker = (*Provider)(nil)

// CallerIdentity asks STS who the credentials are, and, if it may, IAM what the
// account is called and EC2 which regions it can use. What may not be asked is left
// out.
func (p *Provider) CallerIdentity(ctx context.Context) (cloud.CallerIdentity, error) {
	out, err := p.sts.GetCallerIdentity(ctx, &sts.GetCallerIdentityInput{})
	if err != nil {
		return cloud.CallerIdentity{}, p.orRegion(plain(err))
	}
	who := cloud.CallerIdentity{Principal: aws.ToString(out.Arn), Holder: aws.ToString(out.Account)}
	if who.Holder == "" {
		return who, &pipeline.CloudError{Class: pipeline.Unknown, Service: "STS", Op: "GetCallerIdentity", Message: "the answer names no account", Sent: true}
	}
	aliases, err := p.iam.ListAccountAliases(ctx, &iam.ListAccountAliasesInput{})
	switch {
	case err == nil && len(aliases.AccountAliases) > 0:
		who.Name = aliases.AccountAliases[0] // an account has one at most
	case err != nil && !unasked(err):
		return who, plain(err)
	}
	regions, err := p.ec2.DescribeRegions(ctx, &ec2.DescribeRegionsInput{})
	switch {
	case err == nil:
		for _, r := range regions.Regions {
			who.Regions = append(who.Regions, aws.ToString(r.RegionName))
		}
		slices.Sort(who.Regions)
	case !unasked(err):
		return who, plain(err)
	}
	return who, nil
}

// unasked reports whether a question may not be asked, or is not known here.
func unasked(err error) bool { return pipeline.Is(err, pipeline.Denied) || lacksCall(err) }

// actionsAtOnce is how many actions one question is about.
const actionsAtOnce = 50

// Permissions asks IAM to simulate the caller's own policies ("SimulatePrincipalPolicy").
// What it does not see are policies of resources, and limits that an organisation
// puts on its accounts it does.
func (p *Provider) Permissions(ctx context.Context, family job.ResourceType, readOnly bool) (cloud.PermissionReport, error) {
	report := cloud.PermissionReport{Family: family}
	policy, ok := PolicyOf(family, readOnly)
	if !ok {
		report.Unknown = fmt.Sprintf("there is no policy for %s jobs at AWS", family)
		return report, nil
	}
	principal, err := p.principal(ctx)
	switch fatal := asFatal(err); {
	case fatal != nil: // neither a role nor a user
		report.Unknown = "the permissions of a session that is neither of a role nor of a user cannot be simulated"
		return report, nil //nolint:nilerr // the report says it
	case err != nil:
		return report, err
	case strings.HasSuffix(principal, ":root"):
		report.Unknown = "the permissions of the account's root user cannot be simulated; use a role or a user"
		return report, nil
	}
	denied, err := p.simulated(ctx, principal, slices.Concat(policy.Required, policy.Checks))
	var ce *pipeline.CloudError
	switch {
	case errors.As(err, &ce) && unasked(err):
		report.Unknown = fmt.Sprintf("the caller may not ask for its own permissions (iam:SimulatePrincipalPolicy on %s): %s", principal, cmp.Or(ce.Message, ce.Code))
		return report, nil
	case errors.As(err, &ce) && (ce.Class == pipeline.NotFound || ce.Code == "InvalidInput"):
		report.Unknown = fmt.Sprintf("IAM cannot simulate %s: %s", principal, cmp.Or(ce.Message, ce.Code))
		return report, nil
	case err != nil:
		return report, plain(err)
	}
	for _, a := range denied {
		if slices.Contains(policy.Required, a) {
			report.Missing = append(report.Missing, a)
		} else {
			report.Checks = append(report.Checks, a)
		}
	}
	return report, nil
}

// simulated are the actions that a principal may not do.
func (p *Provider) simulated(ctx context.Context, principal string, actions []string) ([]string, error) {
	var denied []string
	for part := range slices.Chunk(actions, actionsAtOnce) {
		in := &iam.SimulatePrincipalPolicyInput{PolicySourceArn: aws.String(principal), ActionNames: part}
		answered := 0
		for {
			out, err := p.iam.SimulatePrincipalPolicy(ctx, in)
			if err != nil {
				return nil, err
			}
			for _, r := range out.EvaluationResults {
				answered++
				if r.EvalDecision != iamtypes.PolicyEvaluationDecisionTypeAllowed {
					denied = append(denied, aws.ToString(r.EvalActionName))
				}
			}
			if !out.IsTruncated {
				break
			}
			if aws.ToString(out.Marker) == "" || aws.ToString(out.Marker) == aws.ToString(in.Marker) {
				return nil, &pipeline.CloudError{Class: pipeline.Unavailable, Service: "IAM", Op: "SimulatePrincipalPolicy", Sent: true, Message: "the pages of the answer do not end"}
			}
			in.Marker = out.Marker
		}
		if answered < len(part) {
			return nil, &pipeline.CloudError{Class: pipeline.Unavailable, Service: "IAM", Op: "SimulatePrincipalPolicy", Sent: true, Message: "the answer leaves actions out"}
		}
	}
	return denied, nil
}

// launchNeeds are the actions that Auto Scaling and EKS check of whoever uses a
// launch template, and do not name when one is missing ("Control Amazon EC2 launch
// template usage in Auto Scaling groups").
const launchNeeds = "it takes ec2:RunInstances, ec2:CreateTags and iam:PassRole"

// explainDenied adds to a refusal what it does not name.
func explainDenied(ce *pipeline.CloudError) {
	if ce.Class == pipeline.Denied && strings.Contains(ce.Message, "launch template") && !strings.Contains(ce.Message, "ec2:RunInstances") {
		ce.Message = strings.TrimSuffix(ce.Message, ".") + "; " + launchNeeds
	}
}
