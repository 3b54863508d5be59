package aws

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
)

// probeAnswer is what came of a health check.
type probeAnswer struct {
	// reached: the packets got through the security groups and something answered them.
	reached bool
	// refused: something answered, but nothing listens on the port.
	refused bool
	status  int // of HTTP
}

// startChecks lets the health checks of a target group begin, if they are not under way.
func (s *elbService) startChecks(in scope, g *TargetGroup) {
	if g.Checking || len(g.Targets) == 0 {
		return
	}
	g.Checking = true
	s.cloud.after(time.Duration((2+3*s.cloud.World.Fraction("first-check", g.ARN))*float64(time.Second)), elbName, "check", in.key()+"|"+g.ARN)
}

// check carries out one round of health checks of a target group, and plans the next.
func (s *elbService) check(in scope, sc *ELBScope, arn string) {
	g := sc.Groups[arn]
	if g == nil {
		return
	}
	balancers := sc.balancersOf(arn)
	if len(g.Targets) == 0 || len(balancers) == 0 {
		// Nobody checks targets that get no traffic; they begin afresh when they do.
		g.Checking = false
		for _, t := range g.Targets {
			if t.State != "draining" {
				t.State, t.Reason, t.Details, t.Good, t.Bad, t.Checked = "initial", "", "", 0, 0, false
			}
		}
		return
	}
	if b := balancers[0]; b.State == "active" && g.Health.Enabled {
		for _, t := range g.Targets {
			if t.State != "draining" {
				s.checkOne(in, b, g, t)
			}
		}
	}
	s.cloud.after(time.Duration(g.Health.Interval)*time.Second, elbName, "check", in.key()+"|"+g.ARN)
}

// checkOne checks one target. A fresh target is healthy after the first check that it passes; after that the thresholds
// count ("Health checks for your target groups", user guide for application load balancers).
func (s *elbService) checkOne(in scope, b *LoadBalancer, g *TargetGroup, t *ELBTarget) {
	if _, _, unused := s.unused(in, b, g, t); unused {
		t.State, t.Good, t.Bad, t.Checked = "initial", 0, 0, false
		return
	}
	ok, reason, details := s.probeTarget(in, b, g, t)
	first := !t.Checked
	t.Checked = true
	if ok {
		t.Good, t.Bad = t.Good+1, 0
		if t.State == "initial" || t.Good >= g.Health.Healthy {
			t.State, t.Reason, t.Details = "healthy", "", ""
		}
		return
	}
	t.Good, t.Bad = 0, t.Bad+1
	if t.State == "initial" && first && g.Health.Unhealthy > 1 {
		return
	}
	if t.Bad >= g.Health.Unhealthy || t.State == "unhealthy" {
		t.State, t.Reason, t.Details = "unhealthy", reason, details
	}
}

// probeTarget asks a target from where the load balancer stands.
func (s *elbService) probeTarget(in scope, b *LoadBalancer, g *TargetGroup, t *ELBTarget) (ok bool, reason, details string) {
	port := int(t.Port)
	if g.Health.Port != "traffic-port" {
		port, _ = strconv.Atoi(g.Health.Port) // checked when it was set
	}
	var from []string
	for _, z := range b.Zones {
		from = append(from, z.IP)
	}
	a := s.cloud.probe(in, b.Groups, from, t.ID, port, g.Health.Path)
	switch {
	case !a.reached:
		return false, "Target.Timeout", "Request timed out"
	case a.refused:
		return false, "Target.FailedHealthChecks", "Health checks failed"
	case g.Health.Protocol == "TCP":
		return true, "", ""
	}
	match, err := parseMatcher(g.Health.Matcher)
	if err != nil || !match(a.status) {
		return false, "Target.ResponseCodeMismatch", fmt.Sprintf("Health checks failed with these codes: [%d]", a.status)
	}
	return true, "", ""
}

// unused says whether a target gets no traffic at all, and why.
func (s *elbService) unused(in scope, b *LoadBalancer, g *TargetGroup, t *ELBTarget) (reason, details string, unused bool) {
	if b == nil {
		return "Target.NotInUse", "Target group is not configured to receive traffic from the load balancer", true
	}
	if g.TargetType != "instance" {
		return "", "", false
	}
	m, ok := s.cloud.machine(in, t.ID)
	switch {
	case !ok:
		return "Target.InvalidState", "Target is in the terminated state", true
	case m.State != "running":
		return "Target.InvalidState", fmt.Sprintf("Target is in the %s state", m.State), true
	case !slices.ContainsFunc(b.Zones, func(z ELBZone) bool { return z.Name == m.AZ }):
		return "Target.NotInUse", "Target is in an Availability Zone that is not enabled for the load balancer", true
	}
	return "", "", false
}

// health is what DescribeTargetHealth says of a target.
func (s *elbService) health(in scope, sc *ELBScope, g *TargetGroup, t *ELBTarget) types.TargetHealth {
	say := func(state, reason, details string) types.TargetHealth {
		h := types.TargetHealth{State: types.TargetHealthStateEnum(state)}
		if reason != "" {
			h.Reason, h.Description = types.TargetHealthReasonEnum(reason), new(details)
		}
		return h
	}
	if t.State == "draining" {
		return say("draining", "Target.DeregistrationInProgress", "Target deregistration is in progress")
	}
	var b *LoadBalancer
	if bs := sc.balancersOf(g.ARN); len(bs) > 0 {
		b = bs[0]
	}
	if reason, details, unused := s.unused(in, b, g, t); unused {
		return say("unused", reason, details)
	}
	switch {
	case t.State != "initial":
		return say(t.State, t.Reason, t.Details)
	case t.Checked:
		return say("initial", "Elb.InitialHealthChecking", "Initial health checks in progress")
	}
	return say("initial", "Elb.RegistrationInProgress", "Target registration is in progress")
}

func (s *elbService) describeTargetHealth(c *reqCtx, in *elb.DescribeTargetHealthInput) (*elb.DescribeTargetHealthOutput, error) {
	g, err := s.group(c, in.TargetGroupArn)
	if err != nil {
		return nil, err
	}
	sc, out := s.state.in(c.scope()), &elb.DescribeTargetHealthOutput{TargetHealthDescriptions: []types.TargetHealthDescription{}}
	add := func(t *ELBTarget, h types.TargetHealth) {
		port := strconv.Itoa(int(t.Port))
		if g.Health.Port != "traffic-port" {
			port = g.Health.Port
		}
		d := types.TargetHealthDescription{Target: &types.TargetDescription{Id: new(t.ID), Port: new(t.Port)}, HealthCheckPort: new(port), TargetHealth: &h}
		if t.AZ != "" {
			d.Target.AvailabilityZone = new(t.AZ)
		}
		if g.overHTTP() && h.State != types.TargetHealthStateEnumUnused {
			d.AdministrativeOverride = &types.AdministrativeOverride{State: types.TargetAdministrativeOverrideStateEnumNoOverride,
				Reason: types.TargetAdministrativeOverrideReasonEnumNoOverrideEngaged, Description: new("No override is currently active on target")}
		}
		out.TargetHealthDescriptions = append(out.TargetHealthDescriptions, d)
	}
	if len(in.Targets) == 0 {
		for _, t := range g.Targets {
			if c.visible(g.ARN+"|"+t.ID, t.Registered, false, "target", t.ID) {
				add(t, s.health(c.scope(), sc, g, t))
			}
		}
		return out, nil
	}
	for _, want := range in.Targets {
		t := g.target(deref(want.Id), orDefault(want.Port, g.Port))
		if t == nil {
			add(&ELBTarget{ID: deref(want.Id), Port: orDefault(want.Port, g.Port)}, types.TargetHealth{State: types.TargetHealthStateEnumUnused,
				Reason: types.TargetHealthReasonEnumNotRegistered, Description: new("Target is not registered to the target group")})
			continue
		}
		add(t, s.health(c.scope(), sc, g, t))
	}
	return out, nil
}

// machineGone deregisters an instance that has been terminated ("If you terminate an instance, it is automatically
// deregistered", register targets with your target group).
func (s *elbService) machineGone(in scope, id string) {
	m, ok := s.cloud.machine(in, id)
	if ok && !m.gone() {
		return
	}
	sc := s.state.Scopes[in.key()]
	if sc == nil {
		return
	}
	for _, arn := range sortedKeys(sc.Groups) {
		g := sc.Groups[arn]
		for _, t := range slices.Clone(g.Targets) {
			if t.ID == id {
				s.deregister(in, sc, g, t)
			}
		}
	}
}
