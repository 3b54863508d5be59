package aws

import (
	"slices"
	"strconv"
	"strings"

	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
)

// attribute is one setting of a load balancer, target group or listener, with its default. A value must be one of want, or
// a number between min and max, unless neither is given.
type attribute struct {
	key, def string
	want     []string
	min, max int
}

var (
	boolean     = []string{"true", "false"}
	balancerAll = []attribute{
		{key: "access_logs.s3.enabled", def: "false", want: boolean}, {key: "access_logs.s3.bucket"}, {key: "access_logs.s3.prefix"},
		{key: "deletion_protection.enabled", def: "false", want: boolean},
		{key: "ipv6.deny_all_igw_traffic", def: "false", want: boolean},
		{key: "zonal_shift.config.enabled", def: "false", want: boolean},
	}
	// "Load balancer attributes", user guide for application load balancers.
	applicationOnly = []attribute{
		{key: "idle_timeout.timeout_seconds", def: "60", min: 1, max: 4000},
		{key: "client_keep_alive.seconds", def: "3600", min: 60, max: 604800},
		{key: "connection_logs.s3.enabled", def: "false", want: boolean}, {key: "connection_logs.s3.bucket"}, {key: "connection_logs.s3.prefix"},
		{key: "load_balancing.cross_zone.enabled", def: "true", want: []string{"true"}},
		{key: "routing.http.desync_mitigation_mode", def: "defensive", want: []string{"monitor", "defensive", "strictest"}},
		{key: "routing.http.drop_invalid_header_fields.enabled", def: "false", want: boolean},
		{key: "routing.http.preserve_host_header.enabled", def: "false", want: boolean},
		{key: "routing.http.x_amzn_tls_version_and_cipher_suite.enabled", def: "false", want: boolean},
		{key: "routing.http.xff_client_port.enabled", def: "false", want: boolean},
		{key: "routing.http.xff_header_processing.mode", def: "append", want: []string{"append", "preserve", "remove"}},
		{key: "routing.http2.enabled", def: "true", want: boolean},
		{key: "waf.fail_open.enabled", def: "false", want: boolean},
	}
	// "Load balancer attributes", user guide for network load balancers.
	networkOnly = []attribute{
		{key: "dns_record.client_routing_policy", def: "any_availability_zone", want: []string{"availability_zone_affinity", "partial_availability_zone_affinity", "any_availability_zone"}},
		{key: "load_balancing.cross_zone.enabled", def: "false", want: boolean},
		{key: "secondary_ips.auto_assigned.per_subnet", def: "0", min: 0, max: 7},
	}
	groupAll = []attribute{
		{key: "deregistration_delay.timeout_seconds", def: "300", min: 0, max: 3600},
		{key: "stickiness.enabled", def: "false", want: boolean},
		{key: "load_balancing.cross_zone.enabled", def: "use_load_balancer_configuration", want: []string{"true", "false", "use_load_balancer_configuration"}},
		{key: "target_group_health.dns_failover.minimum_healthy_targets.count", def: "1"},
		{key: "target_group_health.dns_failover.minimum_healthy_targets.percentage", def: "off"},
		{key: "target_group_health.unhealthy_state_routing.minimum_healthy_targets.count", def: "1"},
		{key: "target_group_health.unhealthy_state_routing.minimum_healthy_targets.percentage", def: "off"},
	}
	// "Target group attributes", user guide for application load balancers.
	groupHTTP = []attribute{
		{key: "load_balancing.algorithm.type", def: "round_robin", want: []string{"round_robin", "least_outstanding_requests", "weighted_random"}},
		{key: "load_balancing.algorithm.anomaly_mitigation", def: "off", want: []string{"on", "off"}},
		{key: "slow_start.duration_seconds", def: "0", min: 0, max: 900},
		{key: "stickiness.type", def: "lb_cookie", want: []string{"lb_cookie", "app_cookie"}},
		{key: "stickiness.lb_cookie.duration_seconds", def: "86400", min: 1, max: 604800},
		{key: "stickiness.app_cookie.duration_seconds", def: "86400", min: 1, max: 604800},
		{key: "stickiness.app_cookie.cookie_name"},
	}
	// "Target group attributes", user guide for network load balancers.
	groupTCP = []attribute{
		{key: "deregistration_delay.connection_termination.enabled", def: "false", want: boolean},
		{key: "preserve_client_ip.enabled", def: "true", want: boolean},
		{key: "proxy_protocol_v2.enabled", def: "false", want: boolean},
		{key: "stickiness.type", def: "source_ip", want: []string{"source_ip"}},
		{key: "target_health_state.unhealthy.connection_termination.enabled", def: "true", want: boolean},
		{key: "target_health_state.unhealthy.draining_interval_seconds", def: "0", min: 0, max: 360000},
	}
)

func (b *LoadBalancer) attributes() []attribute {
	if b.Type == "network" {
		return slices.Concat(balancerAll, networkOnly)
	}
	return slices.Concat(balancerAll, applicationOnly)
}

func (g *TargetGroup) attributes() []attribute {
	if g.overHTTP() {
		return slices.Concat(groupAll, groupHTTP)
	}
	return slices.Concat(groupAll, groupTCP)
}

// attributeValue is the value that holds.
func attributeValue(defs []attribute, set map[string]string, key string) string {
	if v, ok := set[key]; ok {
		return v
	}
	for _, a := range defs {
		if a.key == key {
			return a.def
		}
	}
	return ""
}

func checkAttribute(defs []attribute, what, key, value string) error {
	i := slices.IndexFunc(defs, func(a attribute) bool { return a.key == key })
	if i < 0 {
		return failValidation("%s attribute key '%s' is not recognized", what, key)
	}
	a := defs[i]
	if len(a.want) > 0 && !slices.Contains(a.want, value) {
		return failValidation("%s attribute key '%s' has value '%s', must be one of '[%s]'", what, key, value, strings.Join(a.want, ", "))
	}
	if a.max > 0 {
		if n, err := strconv.Atoi(value); err != nil || n < a.min || n > a.max {
			return failValidation("'%s' must be between '%d' and '%d' inclusive", key, a.min, a.max)
		}
	}
	return nil
}

func (s *elbService) describeLoadBalancerAttributes(c *reqCtx, in *elb.DescribeLoadBalancerAttributesInput) (*elb.DescribeLoadBalancerAttributesOutput, error) {
	b, err := s.balancer(c, in.LoadBalancerArn)
	if err != nil {
		return nil, err
	}
	return &elb.DescribeLoadBalancerAttributesOutput{Attributes: b.sdkAttributes()}, nil
}

func (b *LoadBalancer) sdkAttributes() []types.LoadBalancerAttribute {
	out := []types.LoadBalancerAttribute{}
	for _, a := range b.attributes() {
		out = append(out, types.LoadBalancerAttribute{Key: new(a.key), Value: new(attributeValue(b.attributes(), b.Attributes, a.key))})
	}
	return out
}

func (s *elbService) modifyLoadBalancerAttributes(c *reqCtx, in *elb.ModifyLoadBalancerAttributesInput) (*elb.ModifyLoadBalancerAttributesOutput, error) {
	b, err := s.balancer(c, in.LoadBalancerArn)
	if err != nil {
		return nil, err
	}
	for _, a := range in.Attributes {
		if err := checkAttribute(b.attributes(), "Load balancer", deref(a.Key), deref(a.Value)); err != nil {
			return nil, err
		}
	}
	if err := s.checkLogs(c, b, in.Attributes); err != nil {
		return nil, err
	}
	for _, a := range in.Attributes {
		b.Attributes[*a.Key] = deref(a.Value)
	}
	return &elb.ModifyLoadBalancerAttributesOutput{Attributes: b.sdkAttributes()}, nil
}

func (g *TargetGroup) sdkAttributes() []types.TargetGroupAttribute {
	out := []types.TargetGroupAttribute{}
	for _, a := range g.attributes() {
		out = append(out, types.TargetGroupAttribute{Key: new(a.key), Value: new(attributeValue(g.attributes(), g.Attributes, a.key))})
	}
	return out
}

func (s *elbService) describeTargetGroupAttributes(c *reqCtx, in *elb.DescribeTargetGroupAttributesInput) (*elb.DescribeTargetGroupAttributesOutput, error) {
	g, err := s.group(c, in.TargetGroupArn)
	if err != nil {
		return nil, err
	}
	return &elb.DescribeTargetGroupAttributesOutput{Attributes: g.sdkAttributes()}, nil
}

func (s *elbService) modifyTargetGroupAttributes(c *reqCtx, in *elb.ModifyTargetGroupAttributesInput) (*elb.ModifyTargetGroupAttributesOutput, error) {
	g, err := s.group(c, in.TargetGroupArn)
	if err != nil {
		return nil, err
	}
	for _, a := range in.Attributes {
		if err := checkAttribute(g.attributes(), "Target group", deref(a.Key), deref(a.Value)); err != nil {
			return nil, err
		}
	}
	for _, a := range in.Attributes {
		g.Attributes[*a.Key] = deref(a.Value)
	}
	return &elb.ModifyTargetGroupAttributesOutput{Attributes: g.sdkAttributes()}, nil
}

// taggable finds the tags of any resource of ELB.
func (s *elbService) taggable(c *reqCtx, arn string) (*[]Tag, error) {
	sc := s.state.in(c.scope())
	kind, _, _ := strings.Cut(strings.TrimPrefix(arn, c.regionalARN(elbName, "")), "/")
	switch kind {
	case "loadbalancer":
		if b := sc.Balancers[arn]; b != nil && c.visible(b.ARN, b.Created, false, "load-balancer", b.Name, tagValues(b.Tags)) {
			return &b.Tags, nil
		}
		return nil, notFoundBalancer(arn)
	case "targetgroup":
		if g := sc.Groups[arn]; g != nil && c.visible(g.ARN, g.Created, false, "target-group", g.Name, tagValues(g.Tags)) {
			return &g.Tags, nil
		}
		return nil, notFoundGroup(arn)
	case "listener":
		if l := sc.Listeners[arn]; l != nil {
			return &l.Tags, nil
		}
		return nil, notFoundListener(arn)
	case "listener-rule":
		if r := sc.Rules[arn]; r != nil {
			return &r.Tags, nil
		}
		return nil, fail(400, "RuleNotFound", "One or more rules not found")
	}
	return nil, failValidation("'%s' is not a valid ARN of a load balancer, target group, listener or rule", arn)
}

func (s *elbService) describeTags(c *reqCtx, in *elb.DescribeTagsInput) (*elb.DescribeTagsOutput, error) {
	if len(in.ResourceArns) > 20 {
		return nil, failValidation("1 validation error detected: Value at 'resourceArns' failed to satisfy constraint: Member must have length less than or equal to 20")
	}
	out := &elb.DescribeTagsOutput{TagDescriptions: []types.TagDescription{}}
	for _, arn := range in.ResourceArns {
		tags, err := s.taggable(c, arn)
		if err != nil {
			return nil, err
		}
		d := types.TagDescription{ResourceArn: new(arn), Tags: []types.Tag{}}
		for _, t := range *tags {
			d.Tags = append(d.Tags, types.Tag{Key: new(t.Key), Value: new(t.Value)})
		}
		out.TagDescriptions = append(out.TagDescriptions, d)
	}
	return out, nil
}

func (s *elbService) addTags(c *reqCtx, in *elb.AddTagsInput) (*elb.AddTagsOutput, error) {
	for _, arn := range in.ResourceArns {
		tags, err := s.taggable(c, arn)
		if err != nil {
			return nil, err
		}
		if *tags, err = checkELBTags(*tags, in.Tags); err != nil {
			return nil, err
		}
		c.Touch(arn)
	}
	return &elb.AddTagsOutput{}, nil
}

func (s *elbService) removeTags(c *reqCtx, in *elb.RemoveTagsInput) (*elb.RemoveTagsOutput, error) {
	for _, arn := range in.ResourceArns {
		tags, err := s.taggable(c, arn)
		if err != nil {
			return nil, err
		}
		*tags = dropTags(*tags, in.TagKeys)
		c.Touch(arn)
	}
	return &elb.RemoveTagsOutput{}, nil
}
