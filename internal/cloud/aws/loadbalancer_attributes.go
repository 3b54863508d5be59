package aws

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/pipeline"
)

// The attributes that every load balancer is given ("Load balancer attributes"
// in the guides of the two types).
const (
	deletionProtection = "deletion_protection.enabled"
	dropInvalidHeaders = "routing.http.drop_invalid_header_fields.enabled"
	desyncMitigation   = "routing.http.desync_mitigation_mode"

	accessLogs       = "access_logs.s3." // what the three begin with: they only make sense together
	accessLogsOn     = accessLogs + "enabled"
	accessLogsBucket = accessLogs + "bucket"
)

// wantedAttributes are those of a type: a network load balancer knows no HTTP.
// Without a bucket for them there are no access logs.
func wantedAttributes(t elbtypes.LoadBalancerTypeEnum, bucket string) map[string]string {
	out := map[string]string{deletionProtection: "true"}
	if t == elbtypes.LoadBalancerTypeEnumApplication {
		out[dropInvalidHeaders], out[desyncMitigation] = "true", "defensive"
		if bucket != "" {
			out[accessLogsOn], out[accessLogsBucket] = "true", bucket
		}
	}
	return out
}

func (p *Provider) lbAttributes(ctx context.Context, arn string) (map[string]string, error) {
	return lookup.Once(ctx, "elbv2 attributes "+arn, func(ctx context.Context) (map[string]string, error) {
		out, err := p.elb.DescribeLoadBalancerAttributes(ctx, &elb.DescribeLoadBalancerAttributesInput{LoadBalancerArn: aws.String(arn)})
		if lacksCall(err) {
			return map[string]string{}, nil // it lists none, so none is compared
		}
		if err != nil {
			return nil, err
		}
		attrs := map[string]string{}
		for _, a := range out.Attributes {
			attrs[aws.ToString(a.Key)] = aws.ToString(a.Value)
		}
		return attrs, nil
	})
}

// setAttributes sets attributes with one call. A cloud that does not know one
// of them gets them one by one, and keeps those that it knows.
func (p *Provider) setAttributes(ctx context.Context, arn string, want map[string]string) error {
	var attrs []elbtypes.LoadBalancerAttribute
	for _, k := range slices.Sorted(maps.Keys(want)) {
		attrs = append(attrs, elbtypes.LoadBalancerAttribute{Key: aws.String(k), Value: aws.String(want[k])})
	}
	_, err := p.elb.ModifyLoadBalancerAttributes(ctx, &elb.ModifyLoadBalancerAttributesInput{LoadBalancerArn: aws.String(arn), Attributes: attrs})
	if !pipeline.Is(err, pipeline.Invalid) {
		return err
	}
	units := attributeUnits(want)
	if len(units) == 1 {
		p.log.WarnContext(ctx, "the cloud does not take a load balancer attribute", "attribute", aws.ToString(attrs[0].Key), "error", err)
		return nil
	}
	for _, unit := range units {
		if err := p.setAttributes(ctx, arn, unit); err != nil {
			return err
		}
	}
	return nil
}

// attributeUnits takes attributes apart into what can be set by itself.
func attributeUnits(want map[string]string) []map[string]string {
	var units []map[string]string
	logs := map[string]string{}
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if strings.HasPrefix(k, accessLogs) {
			logs[k] = want[k]
			continue
		}
		units = append(units, map[string]string{k: want[k]})
	}
	if len(logs) > 0 {
		units = append(units, logs)
	}
	return units
}

// lbAspects compares what a load balancer was made with and its attributes. An
// attribute that the cloud does not list is one that it does not have.
func (p *Provider) lbAspects(ctx context.Context, r *pipeline.Run, l elbtypes.LoadBalancer, want *elb.CreateLoadBalancerInput) ([]pipeline.Aspect, error) {
	arn := aws.ToString(l.LoadBalancerArn)
	have, err := p.lbAttributes(ctx, arn)
	if err != nil {
		return nil, err
	}
	wanted := wantedAttributes(want.Type, madeID(r, kindBucket, logBucketKey))
	differ := map[string]string{}
	for k, v := range wanted {
		if have[k] != v {
			differ[k] = v
		}
	}
	done := false
	set := func(ctx context.Context) error { // one call puts all of them right
		if done {
			return nil
		}
		err := p.setAttributes(ctx, arn, differ)
		done = err == nil
		return err
	}
	var out []pipeline.Aspect
	for _, k := range slices.Sorted(maps.Keys(wanted)) {
		if _, listed := have[k]; !listed && r.Mode == pipeline.Verify {
			continue
		}
		out = append(out, pipeline.Aspect{Name: k, Wanted: wanted[k], Seen: have[k], Set: set})
	}
	if r.Mode != pipeline.Verify {
		return out, nil
	}
	var subnets []string
	for _, z := range l.AvailabilityZones {
		subnets = append(subnets, aws.ToString(z.SubnetId))
	}
	for _, a := range []pipeline.Aspect{
		{Name: "scheme", Wanted: string(want.Scheme), Seen: string(l.Scheme)},
		{Name: "type", Wanted: string(want.Type), Seen: string(l.Type)},
		{Name: "security groups", Wanted: strings.Join(want.SecurityGroups, ", "), Seen: sortedList(l.SecurityGroups)},
		{Name: "subnets", Wanted: sortedList(want.Subnets), Seen: sortedList(subnets)},
	} {
		if a.Seen != "" { // else the answer does not carry it: no load balancer is without any of them
			out = append(out, a)
		}
	}
	return out, nil
}
