package aws

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	kindFlowLog = "ec2:flow-log"

	flowLogKey  = "flow-log"
	flowRoleKey = "flow-log-role"
)

// logging makes what the flow log writes to and with; it does not need the VPC.
func (b *build) logging(ctx context.Context) error {
	if !b.own || b.spec.FlowLogs == job.FlowLogsNone {
		return nil
	}
	return pipeline.All(ctx,
		func(ctx context.Context) error {
			_, err := b.ensureExtra(ctx, b.r, b.logGroup(b.r))
			return err
		},
		func(ctx context.Context) error {
			role := b.flowRole(b.r)
			if id, err := b.ensureExtra(ctx, b.r, role); err != nil || id == "" {
				return err
			}
			return confirmOnce(ctx, b.r, role)
		})
}

// ensureFlowLog logs the traffic of the job's own VPC (control NETA-02). A
// network that is only named is its owner's to log.
func (b *build) ensureFlowLog(ctx context.Context) error {
	if !b.own || b.spec.FlowLogs == job.FlowLogsNone {
		return nil
	}
	if b.r.Mode == pipeline.Apply && (madeID(b.r, kindLogGroup, logGroupKey) == "" || madeID(b.r, kindRole, flowRoleKey) == "") {
		return nil // what it needs was left out
	}
	x, err := b.flowLog(ctx, b.r, b.ic.NetworkID, b.spec.FlowLogs)
	if err != nil {
		return err
	}
	id, err := b.ensureExtra(ctx, b.r, x)
	learn(b.r, &b.ic.FlowLogID, id)
	return visible(b.r, "the role of the flow log", err)
}

func (p *Provider) flowLogs() lookup.Kind[ec2types.FlowLog] {
	page := func(ctx context.Context, f []ec2types.Filter, ids []string, token *string) ([]ec2types.FlowLog, *string, error) {
		out, err := p.ec2.DescribeFlowLogs(ctx, &ec2.DescribeFlowLogsInput{Filter: f, FlowLogIds: ids, NextToken: token})
		if err != nil {
			return nil, nil, err
		}
		return out.FlowLogs, out.NextToken, nil
	}
	return ec2Kind(kindFlowLog, page,
		func(x ec2types.FlowLog) *string { return x.FlowLogId },
		func(x ec2types.FlowLog) []ec2types.Tag { return x.Tags })
}

// flowLog is the log of a VPC's traffic; it cannot be changed, only made anew.
func (p *Provider) flowLog(ctx context.Context, r *pipeline.Run, vpcID, which string) (pipeline.Resource, error) {
	traffic := ec2types.TrafficTypeReject
	if which == job.FlowLogsAll {
		traffic = ec2types.TrafficTypeAll
	}
	group := p.logGroupName(r)
	o := object[ec2types.FlowLog]{kind: p.flowLogs(), key: flowLogKey, name: name(r, "flow-log", 128)}
	o.see = func(_ context.Context, x ec2types.FlowLog) (pipeline.Seen, error) {
		s := pipeline.Seen{Status: pipeline.Ready, Reason: aws.ToString(x.FlowLogStatus)}
		if r.Mode != pipeline.Verify {
			return s, nil
		}
		s.Aspects = []pipeline.Aspect{
			{Name: "traffic", Wanted: string(traffic), Seen: string(x.TrafficType)},
			{Name: "VPC", Wanted: vpcID, Seen: aws.ToString(x.ResourceId)},
			{Name: "log group", Wanted: group, Seen: or(aws.ToString(x.LogGroupName), group)},
			// Nothing is said of the delivery before the first one.
			{Name: "delivery", Wanted: "SUCCESS", Seen: or(aws.ToString(x.DeliverLogsStatus), "SUCCESS")},
		}
		return s, nil
	}
	x := o.resource()
	var role string
	if r.Mode != pipeline.Plan && !r.Down {
		account, err := p.Caller(ctx)
		if err != nil {
			return x, err
		}
		role = fmt.Sprintf("arn:%s:iam::%s:role/%s", partition(p.region), account, p.flowRole(r).Name)
	}
	x.Args = []string{vpcID, string(traffic), group, role}
	x.Create = func(ctx context.Context, token string) (pipeline.Seen, error) {
		out, err := p.ec2.CreateFlowLogs(ctx, &ec2.CreateFlowLogsInput{
			ResourceIds: []string{vpcID}, ResourceType: ec2types.FlowLogsResourceTypeVpc, TrafficType: traffic,
			LogDestinationType: ec2types.LogDestinationTypeCloudWatchLogs, LogGroupName: aws.String(group), DeliverLogsPermissionArn: aws.String(role),
			MaxAggregationInterval: aws.Int32(600), ClientToken: aws.String(token),
			TagSpecifications: ec2Specs(tags(r, x.Key, x.Name), ec2types.ResourceTypeVpcFlowLog),
		})
		if err != nil {
			return pipeline.Seen{}, err
		}
		if err := unsuccessful("CreateFlowLogs", out.Unsuccessful); err != nil || len(out.FlowLogIds) == 0 {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: out.FlowLogIds[0], Status: pipeline.Ready}, nil
	}
	x.Delete = func(ctx context.Context, id string) error {
		out, err := p.ec2.DeleteFlowLogs(ctx, &ec2.DeleteFlowLogsInput{FlowLogIds: []string{id}})
		if err != nil {
			return err
		}
		return unsuccessful("DeleteFlowLogs", out.Unsuccessful)
	}
	return tidy(x), nil
}

// unsuccessful is the error in an answer that says with status 200 that nothing
// was done.
func unsuccessful(op string, items []ec2types.UnsuccessfulItem) error {
	for _, u := range items {
		if u.Error == nil {
			continue
		}
		code, message := aws.ToString(u.Error.Code), aws.ToString(u.Error.Message)
		return &pipeline.CloudError{Class: classOf(op, code, message, 400), Service: "EC2", Op: op, Code: code, Message: or(message, aws.ToString(u.ResourceId)), Sent: true}
	}
	return nil
}

// flowTrust lets the flow logs of this account assume the role, and nobody
// else's ("IAM role for publishing flow logs to CloudWatch Logs").
func flowTrust(account string) string {
	condition := ""
	if account != "" {
		condition = `,"Condition":{"StringEquals":{"aws:SourceAccount":"` + account + `"}}`
	}
	return `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"vpc-flow-logs.amazonaws.com"},"Action":"sts:AssumeRole"` + condition + `}]}`
}

const flowPolicyName = "write-flow-logs"

// flowPolicy is what writing into the one log group takes. Making groups is not
// part of it: a late record must not bring a deleted group back (failure kind B8).
func (p *Provider) flowPolicy(r *pipeline.Run) string {
	group := fmt.Sprintf("arn:%s:logs:%s:%s:log-group:%s:*", partition(p.region), p.region, r.Job.Config.InfraConfig.Account, p.logGroupName(r))
	doc, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": []any{
		map[string]any{"Effect": "Allow", "Action": []string{"logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"}, "Resource": group},
		map[string]any{"Effect": "Allow", "Action": "logs:DescribeLogGroups", "Resource": "*"},
	}})
	if err != nil {
		panic(err) // strings always encode
	}
	return string(doc)
}

// flowRole is what the flow log writes with.
func (p *Provider) flowRole(r *pipeline.Run) pipeline.Resource {
	account := r.Job.Config.InfraConfig.Account
	trust := flowTrust(account)
	x := pipeline.Resource{Kind: kindRole, Key: flowRoleKey, Name: name(r, "flow", 64)}
	x.Get = func(ctx context.Context, id string) (pipeline.Seen, error) {
		got, err := p.readRole(ctx, id)
		if err != nil {
			return pipeline.Seen{}, err
		}
		s := pipeline.Seen{ID: id, Owner: iamMark(got.Tags), Status: pipeline.Ready}
		if r.Down {
			return s, nil
		}
		seen, err := p.rolePolicy(ctx, id, flowPolicyName)
		s.Aspects = []pipeline.Aspect{
			{Name: "trust policy", Wanted: canonicalPolicy(trust), Seen: canonicalPolicy(aws.ToString(got.AssumeRolePolicyDocument)), Set: func(ctx context.Context) error {
				_, err := p.iam.UpdateAssumeRolePolicy(ctx, &iam.UpdateAssumeRolePolicyInput{RoleName: aws.String(id), PolicyDocument: aws.String(trust)})
				return err
			}},
			p.flowPolicyAspect(r, id, seen),
		}
		return s, err
	}
	x.Find = byName(r, x)
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		out, err := p.iam.CreateRole(ctx, &iam.CreateRoleInput{
			RoleName: aws.String(x.Name), AssumeRolePolicyDocument: aws.String(trust),
			Description: aws.String("Flow log of provisioning job " + r.Job.ID), Tags: iamTags(tags(r, x.Key, x.Name)),
		})
		if err != nil || out.Role == nil {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: x.Name, Status: pipeline.Ready, Aspects: []pipeline.Aspect{p.flowPolicyAspect(r, x.Name, "")}}, nil
	}
	x.Delete = p.deleteRole
	x.Blockers = p.roleBlockers
	return tidy(x)
}

// rolePolicy is one of a role's own policies in its canonical form; "" if the
// role does not have it.
func (p *Provider) rolePolicy(ctx context.Context, role, policy string) (string, error) {
	return lookup.Once(ctx, "policy "+policy+" of "+role, func(ctx context.Context) (string, error) {
		out, err := p.iam.GetRolePolicy(ctx, &iam.GetRolePolicyInput{RoleName: aws.String(role), PolicyName: aws.String(policy)})
		if err != nil {
			return "", pipeline.Unless(err, pipeline.NotFound)
		}
		return canonicalPolicy(aws.ToString(out.PolicyDocument)), nil
	})
}

// flowPolicyAspect puts the role's policy right. Other policies are whoever's gave
// them to the role.
func (p *Provider) flowPolicyAspect(r *pipeline.Run, role, seen string) pipeline.Aspect {
	want := p.flowPolicy(r)
	a := pipeline.Aspect{Name: "policy", Wanted: canonicalPolicy(want), Seen: seen}
	a.Set = func(ctx context.Context) error {
		_, err := p.iam.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: aws.String(role), PolicyName: aws.String(flowPolicyName), PolicyDocument: aws.String(want)})
		return err
	}
	return a
}
