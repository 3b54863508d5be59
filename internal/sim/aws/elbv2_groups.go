package aws

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
)

func notFoundGroup(what string) error {
	return fail(400, "TargetGroupNotFound", "Target groups '%s' not found", what)
}

var groupARN = regexp.MustCompile(`^arn:aws:elasticloadbalancing:[a-z0-9-]+:\d{12}:targetgroup/[^/]+/[0-9a-f]{16}$`)

func (s *elbService) group(c *reqCtx, arn *string) (*TargetGroup, error) {
	if arn == nil {
		return nil, failMissing("targetGroupArn")
	}
	if !groupARN.MatchString(*arn) {
		return nil, failValidation("'%s' is not a valid target group ARN", *arn)
	}
	g := s.state.in(c.scope()).Groups[*arn]
	if g == nil || !c.visible(g.ARN, g.Created, false, "target-group", g.Name, tagValues(g.Tags)) {
		return nil, notFoundGroup(*arn)
	}
	c.Touch(g.ARN)
	return g, nil
}

func (g *TargetGroup) overHTTP() bool { return g.Protocol == "HTTP" || g.Protocol == "HTTPS" }

// checkDefaults are the health check settings that a target group has if none are given ("CreateTargetGroup", ELB API
// reference).
func checkDefaults(protocol string) ELBHealthCheck {
	if protocol == "HTTP" || protocol == "HTTPS" {
		return ELBHealthCheck{Protocol: "HTTP", Port: "traffic-port", Path: "/", Matcher: "200", Interval: 30, Timeout: 5, Healthy: 5, Unhealthy: 2, Enabled: true}
	}
	return ELBHealthCheck{Protocol: "TCP", Port: "traffic-port", Interval: 30, Timeout: 10, Healthy: 5, Unhealthy: 2, Enabled: true}
}

// checkFields are the health check members that creation and modification share.
type checkFields struct {
	protocol                              types.ProtocolEnum
	port, path                            *string
	interval, timeout, healthy, unhealthy *int32
	matcher                               *types.Matcher
	enabled                               *bool
}

func (h ELBHealthCheck) with(f checkFields) (ELBHealthCheck, error) {
	if f.protocol != "" && string(f.protocol) != h.Protocol {
		h.Protocol = string(f.protocol)
		switch h.Protocol {
		case "HTTP", "HTTPS":
			if h.Path == "" {
				h.Path, h.Matcher, h.Timeout = "/", "200-399", 6
			}
		case "TCP":
			h.Path, h.Matcher = "", ""
		default:
			return h, failValidation("Health check protocol '%s' is not supported for target groups", h.Protocol)
		}
	}
	if h.Protocol == "TCP" && (f.path != nil || f.matcher != nil && deref(f.matcher.HttpCode) != "") {
		return h, failValidation("Health check path and matcher are not supported for health checks with protocol TCP")
	}
	if f.path != nil {
		if !strings.HasPrefix(*f.path, "/") || len(*f.path) > 1024 {
			return h, failValidation("Health check path '%s' must begin with a '/' character, and can only contain printable ASCII characters, without spaces", *f.path)
		}
		h.Path = *f.path
	}
	if f.port != nil {
		if n, err := strconv.Atoi(*f.port); *f.port != "traffic-port" && (err != nil || n < 1 || n > 65535) {
			return h, failValidation("Health check port '%s' must be either 'traffic-port' or between '1' and '65535' inclusive", *f.port)
		}
		h.Port = *f.port
	}
	for _, n := range []struct {
		name     string
		from     *int32
		to       *int32
		min, max int32
	}{
		{"Health check interval", f.interval, &h.Interval, 5, 300}, {"Health check timeout", f.timeout, &h.Timeout, 2, 120},
		{"Healthy threshold count", f.healthy, &h.Healthy, 2, 10}, {"Unhealthy threshold count", f.unhealthy, &h.Unhealthy, 2, 10},
	} {
		if n.from == nil {
			continue
		}
		if *n.from < n.min || *n.from > n.max {
			return h, failValidation("%s '%d' not in range '%d' to '%d'", n.name, *n.from, n.min, n.max)
		}
		*n.to = *n.from
	}
	if h.Timeout >= h.Interval {
		// The real service accepts equal values for network load balancers only.
		if h.Protocol != "TCP" || h.Timeout > h.Interval {
			return h, failValidation("Health check timeout '%d' must be smaller than the interval '%d'", h.Timeout, h.Interval)
		}
	}
	if f.matcher != nil && f.matcher.HttpCode != nil {
		if _, err := parseMatcher(*f.matcher.HttpCode); err != nil {
			return h, failValidation("Health check matcher HTTP code '%s' must be within '200-499' inclusive", *f.matcher.HttpCode)
		}
		h.Matcher = *f.matcher.HttpCode
	}
	if f.enabled != nil {
		h.Enabled = *f.enabled
	}
	return h, nil
}

// parseMatcher reads the codes that count as healthy: "200", "200,202" or "200-299".
func parseMatcher(text string) (func(int) bool, error) {
	type span struct{ from, to int }
	var spans []span
	for part := range strings.SplitSeq(text, ",") {
		lo, hi, ranged := strings.Cut(strings.TrimSpace(part), "-")
		if !ranged {
			hi = lo
		}
		from, err := strconv.Atoi(lo)
		if err != nil {
			return nil, err
		}
		to, err := strconv.Atoi(hi)
		if err != nil {
			return nil, err
		}
		if from < 200 || to > 599 || from > to {
			return nil, fmt.Errorf("%s: out of range", part)
		}
		spans = append(spans, span{from, to})
	}
	return func(code int) bool {
		return slices.ContainsFunc(spans, func(s span) bool { return code >= s.from && code <= s.to })
	}, nil
}

func checkGroupShape(in *elb.CreateTargetGroupInput) error {
	protocol, kind := string(in.Protocol), orText(string(in.TargetType), "instance")
	if !slices.Contains([]string{"instance", "ip", "alb"}, kind) {
		return failValidation("Target type '%s' must be one of 'instance, ip, lambda, alb'", kind)
	}
	if protocol == "" {
		return failValidation("A protocol must be specified")
	}
	if !slices.Contains([]string{"HTTP", "HTTPS", "TCP", "TLS", "UDP", "TCP_UDP"}, protocol) {
		return failValidation("1 validation error detected: Value '%s' at 'protocol' failed to satisfy constraint: Member must satisfy enum value set: [HTTP, HTTPS, TCP, TLS, UDP, TCP_UDP, GENEVE, QUIC, TCP_QUIC]", protocol)
	}
	if in.Port == nil {
		return failValidation("A port must be specified")
	}
	if *in.Port < 1 || *in.Port > 65535 {
		return failValidation("1 validation error detected: Value '%d' at 'port' failed to satisfy constraint: Member must have value less than or equal to 65535", *in.Port)
	}
	if in.VpcId == nil {
		return failValidation("A VPC ID must be specified")
	}
	return nil
}

func (s *elbService) createTargetGroup(c *reqCtx, in *elb.CreateTargetGroupInput) (*elb.CreateTargetGroupOutput, error) {
	name := deref(in.Name)
	if err := checkELBName("Target group name", name); err != nil {
		return nil, err
	}
	if err := checkGroupShape(in); err != nil {
		return nil, err
	}
	if !s.cloud.vpcExists(c.scope(), *in.VpcId) {
		return nil, failValidation("The VPC ID '%s' is not found", *in.VpcId)
	}
	tags, err := checkELBTags(nil, in.Tags)
	if err != nil {
		return nil, err
	}
	health, err := checkDefaults(string(in.Protocol)).with(checkFields{in.HealthCheckProtocol, in.HealthCheckPort, in.HealthCheckPath,
		in.HealthCheckIntervalSeconds, in.HealthCheckTimeoutSeconds, in.HealthyThresholdCount, in.UnhealthyThresholdCount, in.Matcher, in.HealthCheckEnabled})
	if err != nil {
		return nil, err
	}
	g := &TargetGroup{Name: name, Protocol: string(in.Protocol), Port: *in.Port, VpcID: *in.VpcId, TargetType: orText(string(in.TargetType), "instance"),
		IPType: orText(string(in.IpAddressType), "ipv4"), Health: health, Created: c.now, Attributes: map[string]string{}, Tags: tags, Targets: []*ELBTarget{}}
	if g.overHTTP() {
		g.ProtocolVersion = orDefault(in.ProtocolVersion, "HTTP1")
	}
	sc := s.state.in(c.scope())
	for _, old := range sc.Groups {
		if old.Name != name {
			continue
		}
		if !old.sameAs(g) {
			return nil, fail(400, "DuplicateTargetGroupName", "A target group with the same name '%s' exists, but with different settings", name)
		}
		c.Touch(old.ARN)
		return &elb.CreateTargetGroupOutput{TargetGroups: []types.TargetGroup{s.sdkGroup(sc, old)}}, nil
	}
	if float64(len(sc.Groups)) >= s.cloud.quota(c.scope(), elbName, quotaTargetGroups) {
		return nil, fail(400, "TooManyTargetGroups", "The maximum number of target groups has been reached")
	}
	g.ARN = c.regionalARN(elbName, "targetgroup/"+name+"/"+c.w.Hex("", 16))
	sc.Groups[g.ARN] = g
	c.Make(g.ARN)
	return &elb.CreateTargetGroupOutput{TargetGroups: []types.TargetGroup{s.sdkGroup(sc, g)}}, nil
}

func (g *TargetGroup) sameAs(other *TargetGroup) bool {
	return g.Protocol == other.Protocol && g.Port == other.Port && g.VpcID == other.VpcID && g.TargetType == other.TargetType &&
		g.ProtocolVersion == other.ProtocolVersion && g.IPType == other.IPType && g.Health == other.Health && sameTags(g.Tags, other.Tags)
}

func (s *elbService) sdkGroup(sc *ELBScope, g *TargetGroup) types.TargetGroup {
	h := g.Health
	out := types.TargetGroup{
		TargetGroupArn: &g.ARN, TargetGroupName: &g.Name, Protocol: types.ProtocolEnum(g.Protocol), Port: &g.Port, VpcId: &g.VpcID,
		HealthCheckProtocol: types.ProtocolEnum(h.Protocol), HealthCheckPort: new(h.Port), HealthCheckEnabled: new(h.Enabled),
		HealthCheckIntervalSeconds: new(h.Interval), HealthCheckTimeoutSeconds: new(h.Timeout), HealthyThresholdCount: new(h.Healthy),
		UnhealthyThresholdCount: new(h.Unhealthy), LoadBalancerArns: []string{}, TargetType: types.TargetTypeEnum(g.TargetType),
		IpAddressType: types.TargetGroupIpAddressTypeEnum(g.IPType),
	}
	if h.Path != "" {
		out.HealthCheckPath, out.Matcher = new(h.Path), &types.Matcher{HttpCode: new(h.Matcher)}
	}
	if g.ProtocolVersion != "" {
		out.ProtocolVersion = new(g.ProtocolVersion)
	}
	for _, b := range sc.balancersOf(g.ARN) {
		out.LoadBalancerArns = append(out.LoadBalancerArns, b.ARN)
	}
	return out
}

func (s *elbService) describeTargetGroups(c *reqCtx, in *elb.DescribeTargetGroupsInput) (*elb.DescribeTargetGroupsOutput, error) {
	sc, all := s.state.in(c.scope()), []types.TargetGroup{}
	switch {
	case len(in.TargetGroupArns) > 0:
		for _, arn := range in.TargetGroupArns {
			g, err := s.group(c, &arn)
			if isCode(err, "TargetGroupNotFound") {
				return nil, fail(400, "TargetGroupNotFound", "One or more target groups not found")
			}
			if err != nil {
				return nil, err
			}
			all = append(all, s.sdkGroup(sc, g))
		}
	case len(in.Names) > 0:
		for _, name := range in.Names {
			var found *TargetGroup
			for _, g := range sc.Groups {
				if g.Name == name && c.visible(g.ARN, g.Created, false, "target-group", g.Name, tagValues(g.Tags)) {
					found = g
				}
			}
			if found == nil {
				return nil, fail(400, "TargetGroupNotFound", "One or more target groups not found")
			}
			c.Touch(found.ARN)
			all = append(all, s.sdkGroup(sc, found))
		}
	default:
		var of []string
		if in.LoadBalancerArn != nil {
			b, err := s.balancer(c, in.LoadBalancerArn)
			if err != nil {
				return nil, err
			}
			of = append(of, b.ARN)
		}
		for _, arn := range sortedKeys(sc.Groups) {
			g := sc.Groups[arn]
			out := s.sdkGroup(sc, g)
			if (len(of) == 0 || slices.Contains(out.LoadBalancerArns, of[0])) && c.visible(g.ARN, g.Created, true, "target-group", g.Name, tagValues(g.Tags)) {
				all = append(all, out)
			}
		}
	}
	page, next, err := elbPage(c, all, in.Marker, in.PageSize)
	return &elb.DescribeTargetGroupsOutput{TargetGroups: page, NextMarker: next}, err
}

func (s *elbService) modifyTargetGroup(c *reqCtx, in *elb.ModifyTargetGroupInput) (*elb.ModifyTargetGroupOutput, error) {
	g, err := s.group(c, in.TargetGroupArn)
	if err != nil {
		return nil, err
	}
	h, err := g.Health.with(checkFields{in.HealthCheckProtocol, in.HealthCheckPort, in.HealthCheckPath, in.HealthCheckIntervalSeconds,
		in.HealthCheckTimeoutSeconds, in.HealthyThresholdCount, in.UnhealthyThresholdCount, in.Matcher, in.HealthCheckEnabled})
	if err != nil {
		return nil, err
	}
	g.Health = h
	return &elb.ModifyTargetGroupOutput{TargetGroups: []types.TargetGroup{s.sdkGroup(s.state.in(c.scope()), g)}}, nil
}

func (s *elbService) deleteTargetGroup(c *reqCtx, in *elb.DeleteTargetGroupInput) (*elb.DeleteTargetGroupOutput, error) {
	if !groupARN.MatchString(deref(in.TargetGroupArn)) {
		return nil, failValidation("'%s' is not a valid target group ARN", deref(in.TargetGroupArn))
	}
	sc := s.state.in(c.scope())
	c.Touch(*in.TargetGroupArn)
	if sc.Groups[*in.TargetGroupArn] != nil && len(sc.balancersOf(*in.TargetGroupArn)) > 0 {
		return nil, fail(400, "ResourceInUse", "Target group '%s' is currently in use by a listener or a rule", *in.TargetGroupArn)
	}
	delete(sc.Groups, *in.TargetGroupArn)
	return &elb.DeleteTargetGroupOutput{}, nil
}

func (s *elbService) registerTargets(c *reqCtx, in *elb.RegisterTargetsInput) (*elb.RegisterTargetsOutput, error) {
	g, err := s.group(c, in.TargetGroupArn)
	if err != nil {
		return nil, err
	}
	if len(in.Targets) == 0 {
		return nil, failValidation("At least one target must be specified")
	}
	for _, t := range in.Targets {
		if err := s.checkTarget(c, g, deref(t.Id)); err != nil {
			return nil, err
		}
	}
	if float64(len(g.Targets)+len(in.Targets)) > s.cloud.quota(c.scope(), elbName, quotaTargetsPerGroup) {
		return nil, fail(400, "TooManyTargets", "The maximum number of targets for target group '%s' has been reached", g.ARN)
	}
	for _, t := range in.Targets {
		s.register(c.scope(), g, deref(t.Id), orDefault(t.Port, g.Port), deref(t.AvailabilityZone))
	}
	return &elb.RegisterTargetsOutput{}, nil
}

func (s *elbService) checkTarget(c *reqCtx, g *TargetGroup, id string) error {
	if g.TargetType != "instance" {
		return nil
	}
	if !strings.HasPrefix(id, "i-") {
		return failValidation("Instance ID '%s' is not valid", id)
	}
	m, ok := s.cloud.machine(c.scope(), id)
	if !ok {
		return fail(400, "InvalidTarget", "The following targets are not valid instances: '%s'", id)
	}
	if m.State != "running" {
		return fail(400, "InvalidTarget", "The following targets are not in a running state and cannot be registered: '%s'", id)
	}
	if m.VpcID != g.VpcID {
		return fail(400, "InvalidTarget", "The following targets are not in the target group VPC '%s': '%s'", g.VpcID, id)
	}
	return nil
}

// register adds a target, or takes one back that is draining. Registering a target twice changes nothing.
func (s *elbService) register(in scope, g *TargetGroup, id string, port int32, az string) {
	now := s.cloud.World.Now()
	t := g.target(id, port)
	if t != nil && t.State != "draining" {
		return
	}
	if t == nil {
		t = &ELBTarget{ID: id, Port: port, AZ: az}
		g.Targets = append(g.Targets, t)
	}
	t.Registered, t.State, t.Reason, t.Details, t.Good, t.Bad, t.Checked, t.Until = now, "initial", "", "", 0, 0, false, time.Time{}
	s.startChecks(in, g)
}

// deregister lets a target drain. Its status stays "draining" until the delay is over, even if it has no connections
// ("Deregistration delay", user guide for application load balancers).
func (s *elbService) deregister(in scope, sc *ELBScope, g *TargetGroup, t *ELBTarget) {
	delay, _ := strconv.Atoi(attributeValue(g.attributes(), g.Attributes, "deregistration_delay.timeout_seconds")) // checked when it was set
	if len(sc.balancersOf(g.ARN)) == 0 || delay == 0 {
		g.Targets = slices.DeleteFunc(g.Targets, func(x *ELBTarget) bool { return x == t })
		return
	}
	if t.State == "draining" {
		return
	}
	t.State, t.Until = "draining", s.cloud.World.Now().Add(time.Duration(delay)*time.Second)
	s.cloud.after(time.Duration(delay)*time.Second, elbName, "drained", in.key()+"|"+g.ARN)
}

func (s *elbService) deregisterTargets(c *reqCtx, in *elb.DeregisterTargetsInput) (*elb.DeregisterTargetsOutput, error) {
	g, err := s.group(c, in.TargetGroupArn)
	if err != nil {
		return nil, err
	}
	sc := s.state.in(c.scope())
	for _, want := range in.Targets {
		for _, t := range slices.Clone(g.Targets) {
			if t.ID == deref(want.Id) && (want.Port == nil || *want.Port == t.Port) {
				s.deregister(c.scope(), sc, g, t)
			}
		}
	}
	return &elb.DeregisterTargetsOutput{}, nil
}
