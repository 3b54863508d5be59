package aws

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	kindEndpoint    = "ec2:vpc-endpoint"
	endpointsKey    = "endpoints" // of the interface endpoints' security group
	endpointGateway = "endpoint-" // and the service: of a gateway endpoint
)

// gatewayServices are those that have gateway endpoints; these cost nothing.
var gatewayServices = []string{"s3", "dynamodb"}

// interfaceServices are the services behind a word of interfaceEndpoints.
var interfaceServices = map[string][]string{"ssm": {"ssm", "ssmmessages", "ec2messages"}}

// endpoints makes the gateway endpoints of every table that does not lead to the
// internet directly (control NETA-13), and the interface endpoints that are asked for.
func (b *build) endpoints(ctx context.Context) error {
	var wanted []pipeline.Resource
	if len(b.inward) > 0 {
		for _, service := range gatewayServices {
			x, err := b.gatewayEndpoint(ctx, b.r, service, b.ic.NetworkID, b.inward)
			if err != nil {
				return err
			}
			wanted = append(wanted, x)
		}
	}
	more, err := b.interfaceEndpoints(ctx)
	if err != nil {
		return err
	}
	wanted = append(wanted, more...)
	ids := make([]string, len(wanted))
	var parts []func(context.Context) error
	for i, x := range wanted {
		parts = append(parts, func(ctx context.Context) (err error) {
			ids[i], err = b.ensureExtra(ctx, b.r, x)
			return err
		})
	}
	err = pipeline.All(ctx, parts...)
	ids = slices.DeleteFunc(ids, func(id string) bool { return id == "" })
	b.r.LearnAll(&b.ic.EndpointIDs, ids)
	return err
}

// askedEndpoints are the services that interfaceEndpoints asks for.
func askedEndpoints(spec job.NetworkSpec) []string {
	var out []string
	for _, word := range spec.InterfaceEndpoints {
		out = append(out, interfaceServices[word]...)
	}
	return out
}

// interfaceEndpoints are the interface endpoints that are asked for, with a
// security group of their own that lets the network in.
func (b *build) interfaceEndpoints(ctx context.Context) ([]pipeline.Resource, error) {
	services := askedEndpoints(b.spec)
	if len(services) == 0 {
		return nil, nil
	}
	subnets := b.ic.PrivateSubnetIDs
	if len(subnets) == 0 {
		subnets = b.ic.DatabaseSubnetIDs
	}
	ranges := append([]string{b.plan.CIDR}, b.plan.SecondaryCIDRs...)
	if !b.own { // the private names lead everybody in the VPC here
		ranges = []string{b.ic.NetworkCIDR}
	}
	group := b.endpointGroup(b.r, ranges)
	id, err := b.r.Ensure(ctx, group)
	if err != nil {
		return nil, visible(b.r, "the endpoints' security group", err)
	}
	if err := confirmOnce(ctx, b.r, group); err != nil {
		return nil, err
	}
	var out []pipeline.Resource
	for _, service := range services {
		x, err := b.interfaceEndpoint(ctx, b.r, service, b.ic.NetworkID, id, subnets)
		if err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return out, nil
}

// endpointGroup lets HTTPS in from the network's ranges, and nothing out: an
// endpoint only answers.
func (p *Provider) endpointGroup(r *pipeline.Run, ranges []string) pipeline.Resource {
	var in []line
	for _, block := range ranges {
		in = append(in, line{proto: "tcp", from: 443, to: 443, peer: block, about: "HTTPS from the network"})
	}
	return p.securityGroup(r, endpointsKey, "Interface endpoints of "+r.Job.Name, func(_ context.Context, g ec2types.SecurityGroup) (pipeline.Seen, error) {
		s := pipeline.Seen{Status: pipeline.Ready}
		if r.Down {
			return s, nil
		}
		id := aws.ToString(g.GroupId)
		s.Aspects = []pipeline.Aspect{
			p.lineAspect(r.Mode, ingress, id, ingress, in, linesOf(g.IpPermissions)),
			p.lineAspect(r.Mode, egress, id, egress, nil, linesOf(g.IpPermissionsEgress)),
		}
		return s, nil
	})
}

func (p *Provider) endpointKind() lookup.Kind[ec2types.VpcEndpoint] {
	page := func(ctx context.Context, f []ec2types.Filter, ids []string, token *string) ([]ec2types.VpcEndpoint, *string, error) {
		out, err := p.ec2.DescribeVpcEndpoints(ctx, &ec2.DescribeVpcEndpointsInput{Filters: f, VpcEndpointIds: ids, NextToken: token})
		if err != nil {
			return nil, nil, err
		}
		return out.VpcEndpoints, out.NextToken, nil
	}
	return ec2Kind(kindEndpoint, page,
		func(x ec2types.VpcEndpoint) *string { return x.VpcEndpointId },
		func(x ec2types.VpcEndpoint) []ec2types.Tag { return x.Tags })
}

// endpoint is what gateway and interface endpoints have in common. The state
// comes in lower or upper case, depending on who answers.
func (p *Provider) endpoint(r *pipeline.Run, key string, aspects func(ec2types.VpcEndpoint) []pipeline.Aspect) pipeline.Resource {
	o := object[ec2types.VpcEndpoint]{kind: p.endpointKind(), key: key, name: name(r, key, 128)}
	o.see = func(_ context.Context, x ec2types.VpcEndpoint) (pipeline.Seen, error) {
		s := pipeline.Seen{Status: pipeline.Ready, Reason: string(x.State)}
		switch strings.ToLower(string(x.State)) {
		case "pending", "partial":
			s.Status = pipeline.Pending
		case "deleting":
			s.Status = pipeline.Pending
		case "deleted":
			s.Status = pipeline.Gone
		case "failed", "rejected", "expired":
			s.Status = pipeline.Broken
			if x.LastError != nil {
				s.Reason += ": " + aws.ToString(x.LastError.Message)
			}
		}
		if s.Status == pipeline.Ready && !r.Down {
			s.Aspects = aspects(x)
		}
		return s, nil
	}
	x := o.resource()
	x.Slow = true
	x.Delete = func(ctx context.Context, id string) error {
		out, err := p.ec2.DeleteVpcEndpoints(ctx, &ec2.DeleteVpcEndpointsInput{VpcEndpointIds: []string{id}})
		if err != nil {
			return err
		}
		return unsuccessful("DeleteVpcEndpoints", out.Unsuccessful)
	}
	return x
}

// createEndpoint makes an endpoint.
func (p *Provider) createEndpoint(ctx context.Context, r *pipeline.Run, x pipeline.Resource, token string, in ec2.CreateVpcEndpointInput) (pipeline.Seen, error) {
	in.ClientToken = aws.String(token)
	in.TagSpecifications = ec2Specs(tags(r, x.Key, x.Name), ec2types.ResourceTypeVpcEndpoint)
	out, err := p.ec2.CreateVpcEndpoint(ctx, &in)
	if err != nil || out.VpcEndpoint == nil {
		return pipeline.Seen{}, err
	}
	s := pipeline.Seen{ID: aws.ToString(out.VpcEndpoint.VpcEndpointId), Status: pipeline.Pending}
	if in.VpcEndpointType == ec2types.VpcEndpointTypeGateway && strings.EqualFold(string(out.VpcEndpoint.State), "available") {
		s.Status = pipeline.Ready // all of it was in the call
	}
	return s, nil
}

func (p *Provider) serviceName(service string) string {
	prefix := "com.amazonaws."
	if partition(p.region) == "aws-cn" && !slices.Contains(gatewayServices, service) {
		prefix = "cn.com.amazonaws."
	}
	return prefix + p.region + "." + service
}

// gatewayEndpoint leads the tables' traffic to a service past NAT.
func (p *Provider) gatewayEndpoint(ctx context.Context, r *pipeline.Run, service, vpcID string, tables []string) (pipeline.Resource, error) {
	policy, err := p.endpointPolicy(ctx, r, service)
	if err != nil {
		return pipeline.Resource{}, err
	}
	x := p.endpoint(r, endpointGateway+service, func(e ec2types.VpcEndpoint) []pipeline.Aspect {
		return []pipeline.Aspect{p.endpointTables(e, tables), p.policyOf(e, policy)}
	})
	x.Args = []any{vpcID, service, tables, policy}
	x.Create = func(ctx context.Context, token string) (pipeline.Seen, error) {
		return p.createEndpoint(ctx, r, x, token, ec2.CreateVpcEndpointInput{
			VpcId: aws.String(vpcID), VpcEndpointType: ec2types.VpcEndpointTypeGateway, ServiceName: aws.String(p.serviceName(service)),
			RouteTableIds: tables, PolicyDocument: aws.String(policy),
		})
	}
	return tidy(x), nil
}

// interfaceEndpoint is a service's own interface in each of the subnets, under
// the service's usual names.
func (p *Provider) interfaceEndpoint(ctx context.Context, r *pipeline.Run, service, vpcID, group string, subnets []string) (pipeline.Resource, error) {
	policy, err := p.endpointPolicy(ctx, r, service)
	if err != nil {
		return pipeline.Resource{}, err
	}
	x := p.endpoint(r, endpointGateway+service, func(e ec2types.VpcEndpoint) []pipeline.Aspect {
		return []pipeline.Aspect{
			p.policyOf(e, policy),
			{Name: "private names", Wanted: "on", Seen: onOff(aws.ToBool(e.PrivateDnsEnabled)), Set: func(ctx context.Context) error {
				_, err := p.ec2.ModifyVpcEndpoint(ctx, &ec2.ModifyVpcEndpointInput{VpcEndpointId: e.VpcEndpointId, PrivateDnsEnabled: aws.Bool(true)})
				return err
			}},
			p.endpointSubnets(e, subnets),
		}
	})
	x.Args = []any{vpcID, service, group, subnets, policy}
	x.Create = func(ctx context.Context, token string) (pipeline.Seen, error) {
		return p.createEndpoint(ctx, r, x, token, ec2.CreateVpcEndpointInput{
			VpcId: aws.String(vpcID), VpcEndpointType: ec2types.VpcEndpointTypeInterface, ServiceName: aws.String(p.serviceName(service)),
			SubnetIds: subnets, SecurityGroupIds: []string{group}, PrivateDnsEnabled: aws.Bool(true), PolicyDocument: aws.String(policy),
		})
	}
	return tidy(x), nil
}

func (p *Provider) endpointTables(e ec2types.VpcEndpoint, tables []string) pipeline.Aspect {
	return pipeline.Aspect{Name: "route tables", Wanted: sortedList(tables), Seen: sortedList(e.RouteTableIds), Lane: "tables", Set: func(ctx context.Context) error {
		add, remove := subtract(tables, e.RouteTableIds), subtract(e.RouteTableIds, tables)
		_, err := p.ec2.ModifyVpcEndpoint(ctx, &ec2.ModifyVpcEndpointInput{VpcEndpointId: e.VpcEndpointId, AddRouteTableIds: add, RemoveRouteTableIds: remove})
		return err
	}}
}

func (p *Provider) endpointSubnets(e ec2types.VpcEndpoint, subnets []string) pipeline.Aspect {
	return pipeline.Aspect{Name: "subnets", Wanted: sortedList(subnets), Seen: sortedList(e.SubnetIds), Set: func(ctx context.Context) error {
		add, remove := subtract(subnets, e.SubnetIds), subtract(e.SubnetIds, subnets)
		_, err := p.ec2.ModifyVpcEndpoint(ctx, &ec2.ModifyVpcEndpointInput{VpcEndpointId: e.VpcEndpointId, AddSubnetIds: add, RemoveSubnetIds: remove})
		return err
	}}
}

// subtract is what is in a and not in b.
func subtract(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

// policyOf wants an endpoint's policy. One that the cloud does not show is not compared.
func (p *Provider) policyOf(e ec2types.VpcEndpoint, policy string) pipeline.Aspect {
	want := canonicalPolicy(policy)
	a := pipeline.Aspect{Name: "policy", Wanted: want, Seen: canonicalPolicy(aws.ToString(e.PolicyDocument)), Lane: "policy", Set: func(ctx context.Context) error {
		_, err := p.ec2.ModifyVpcEndpoint(ctx, &ec2.ModifyVpcEndpointInput{VpcEndpointId: e.VpcEndpointId, PolicyDocument: aws.String(policy)})
		return err
	}}
	if a.Seen == "" && p.foreignEndpoint() {
		a.Seen = want
	}
	return a
}

// endpointPolicy lets through what belongs to this account alone (control
// NETA-15), and for S3 the buckets from which AWS hands out packages, agents and
// image layers, without which machines could not install anything ("Gateway
// endpoints for Amazon S3"; "AWS managed S3 buckets" of the Systems Manager guide).
func (p *Provider) endpointPolicy(ctx context.Context, r *pipeline.Run, service string) (string, error) {
	account := r.Job.Config.InfraConfig.Account
	if account == "" && r.Mode != pipeline.Plan {
		var err error
		if account, err = p.Caller(ctx); err != nil {
			return "", err
		}
	}
	own := map[string]any{"aws:PrincipalAccount": account}
	if service == "s3" || service == "dynamodb" {
		own["aws:ResourceAccount"] = account
	}
	statements := []any{map[string]any{
		"Sid": "OwnAccount", "Effect": "Allow", "Principal": "*", "Action": "*", "Resource": "*", "Condition": map[string]any{"StringEquals": own},
	}}
	if service == "s3" {
		var packages []string
		for _, bucket := range []string{
			"al2023-repos-%-de612dc2", "amazonlinux-2-repos-%", "aws-ssm-%", "amazon-ssm-%", "amazon-ssm-packages-%", "aws-ssm-distributor-file-%",
			"aws-ssm-document-attachments-%", "patch-baseline-snapshot-%", "%-birdwatcher-prod", "prod-%-starport-layer-bucket", "%.ec2.archive.ubuntu.com",
		} {
			packages = append(packages, "arn:"+partition(p.region)+":s3:::"+strings.ReplaceAll(bucket, "%", p.region)+"/*")
		}
		statements = append(statements, map[string]any{"Sid": "Packages", "Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": packages})
	}
	doc, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": statements})
	return string(doc), err
}
