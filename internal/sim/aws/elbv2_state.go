package aws

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// ELBState is everything that Elastic Load Balancing keeps, by account and region.
type ELBState struct {
	Scopes map[string]*ELBScope
}

// ELBScope is Elastic Load Balancing in one account and region. Everything is keyed by ARN.
type ELBScope struct {
	Balancers map[string]*LoadBalancer
	Groups    map[string]*TargetGroup
	Listeners map[string]*ELBListener
	Rules     map[string]*ELBRule
	// Lingering are network interfaces of deleted load balancers.
	Lingering map[string]string
	// Classic are the load balancers of the older API, by name.
	Classic map[string]*ClassicBalancer
}

// LoadBalancer is an application or network load balancer.
type LoadBalancer struct {
	ARN, Name, Type, Scheme, IPType, DNSName, ZoneID, VpcID string
	Zones                                                   []ELBZone
	Groups                                                  []string
	Created                                                 time.Time
	State, Reason                                           string
	Attributes                                              map[string]string
	Tags                                                    []Tag
	// Held keeps the state that somebody gave it from outside.
	Held bool
	// LingerSeconds is how long the network interfaces stay after the deletion; 0 means the usual half a minute.
	LingerSeconds float64
}

// ELBZone is a zone that a load balancer is in, with its network interface there.
type ELBZone struct{ Name, SubnetID, InterfaceID, IP, AllocationID string }

// TargetGroup is a target group with its targets.
type TargetGroup struct {
	ARN, Name, Protocol, ProtocolVersion, VpcID, TargetType, IPType string
	Port                                                            int32
	Health                                                          ELBHealthCheck
	Created                                                         time.Time
	Attributes                                                      map[string]string
	Tags                                                            []Tag
	Targets                                                         []*ELBTarget
	// Checking says that a chain of health check events is under way.
	Checking bool
}

// ELBHealthCheck is how a target group looks after its targets.
type ELBHealthCheck struct {
	Protocol, Port, Path, Matcher, GRPC   string
	Interval, Timeout, Healthy, Unhealthy int32
	Enabled                               bool
}

// ELBTarget is a registered target.
type ELBTarget struct {
	ID         string
	Port       int32
	AZ         string
	Registered time.Time
	State      string // initial, healthy, unhealthy, draining
	Reason     string
	Details    string
	Good, Bad  int32 // consecutive checks
	Checked    bool
	Until      time.Time // end of draining
}

// ELBListener is a listener of a load balancer.
type ELBListener struct {
	ARN, Balancer, Protocol, Policy string
	Port                            int32
	Certificates                    []string
	Alpn                            []string
	Actions                         []ELBAction
	Created                         time.Time
	Tags                            []Tag
}

// ELBAction is what a listener or rule does with a request.
type ELBAction struct {
	Type     string
	Order    int32
	Groups   []ELBWeighted
	Simple   string // the target group, if given as the one of the action
	Sticky   *bool
	Duration *int32
	Redirect map[string]string
	Fixed    map[string]string
}

// ELBWeighted is a target group of a forward action.
type ELBWeighted struct {
	ARN    string
	Weight int32
}

// ELBRule is a rule of a listener, other than its default.
type ELBRule struct {
	ARN, Listener string
	Priority      int
	Conditions    []ELBCondition
	Actions       []ELBAction
	Created       time.Time
	Tags          []Tag
}

// ELBCondition is one condition of a rule.
type ELBCondition struct {
	Field  string
	Values []string
}

func (st *ELBState) in(sc scope) *ELBScope {
	s := st.Scopes[sc.key()]
	if s == nil {
		s = &ELBScope{Balancers: map[string]*LoadBalancer{}, Groups: map[string]*TargetGroup{}, Listeners: map[string]*ELBListener{},
			Rules: map[string]*ELBRule{}, Lingering: map[string]string{}}
		st.Scopes[sc.key()] = s
	}
	return s
}

// forwards says whether an action sends requests to the target group.
func forwards(actions []ELBAction, group string) bool {
	for _, a := range actions {
		for _, g := range a.Groups {
			if g.ARN == group {
				return true
			}
		}
	}
	return false
}

// balancersOf are the load balancers that send requests to a target group.
func (s *ELBScope) balancersOf(group string) []*LoadBalancer {
	var out []*LoadBalancer
	add := func(l *ELBListener) {
		if l == nil {
			return
		}
		if b := s.Balancers[l.Balancer]; b != nil && !slices.Contains(out, b) {
			out = append(out, b)
		}
	}
	for _, arn := range sortedKeys(s.Listeners) {
		if l := s.Listeners[arn]; forwards(l.Actions, group) {
			add(l)
		}
	}
	for _, arn := range sortedKeys(s.Rules) {
		if r := s.Rules[arn]; forwards(r.Actions, group) {
			add(s.Listeners[r.Listener])
		}
	}
	return out
}

func (g *TargetGroup) target(id string, port int32) *ELBTarget {
	for _, t := range g.Targets {
		if t.ID == id && t.Port == port {
			return t
		}
	}
	return nil
}

// elbService is Elastic Load Balancing, version 2: application and network load balancers.
type elbService struct {
	cloud *Cloud
	state *ELBState
}

const elbName = "elasticloadbalancing"

// Cloud implements sim.Service.
func (s *elbService) Cloud() string { return "aws" }

// Name implements sim.Service.
func (s *elbService) Name() string { return elbName }

// State implements sim.Service.
func (s *elbService) State() any { return s.state }

// Reset implements sim.Service.
func (s *elbService) Reset() { s.state.Scopes = map[string]*ELBScope{} }

// Objects implements sim.Service.
func (s *elbService) Objects() []sim.Object {
	var out []sim.Object
	for _, key := range sortedKeys(s.state.Scopes) {
		sc, in := s.state.Scopes[key], parseScopeKey(key)
		add := func(o sim.Object) {
			o.Account, o.Region = in.Account, in.Region
			out = append(out, o)
		}
		for _, id := range sortedKeys(sc.Balancers) {
			b := sc.Balancers[id]
			parents := []string{b.VpcID}
			for _, z := range b.Zones {
				parents = append(parents, z.SubnetID)
			}
			add(sim.Object{Kind: "load-balancer", ID: id, ARN: id, Name: b.Name, State: b.State, Tags: tagMap(b.Tags), Parents: parents, Data: b})
		}
		for _, o := range sc.classicObjects() {
			add(o)
		}
		for _, id := range sortedKeys(sc.Groups) {
			g := sc.Groups[id]
			add(sim.Object{Kind: "target-group", ID: id, ARN: id, Name: g.Name, Tags: tagMap(g.Tags), Parents: []string{g.VpcID}, Data: g})
			for _, t := range g.Targets {
				add(sim.Object{Kind: "target", ID: targetID(g, t), Name: t.ID, State: t.State, Parents: []string{id}, Default: true, Data: t})
			}
		}
		for _, id := range sortedKeys(sc.Listeners) {
			l := sc.Listeners[id]
			add(sim.Object{Kind: "listener", ID: id, ARN: id, Name: fmt.Sprint(l.Port), Tags: tagMap(l.Tags), Parents: []string{l.Balancer}, Data: l})
		}
		for _, id := range sortedKeys(sc.Rules) {
			r := sc.Rules[id]
			add(sim.Object{Kind: "listener-rule", ID: id, ARN: id, Tags: tagMap(r.Tags), Parents: []string{r.Listener}, Data: r})
		}
	}
	return out
}

func targetID(g *TargetGroup, t *ELBTarget) string {
	return fmt.Sprintf("%s/%s:%d", g.ARN, t.ID, t.Port)
}

// SetState implements sim.Service: the states of a load balancer, which then keeps it; or "healthy", "unhealthy" and the
// like for a target or all the targets of a target group, until their health checks find otherwise.
func (s *elbService) SetState(id, state, code, message string) error {
	for _, sc := range s.state.Scopes {
		if b := sc.Balancers[id]; b != nil {
			b.State, b.Reason, b.Held = orText(state, "failed"), message, true
			return nil
		}
		for _, g := range sc.Groups {
			for _, t := range g.Targets {
				if g.ARN == id || targetID(g, t) == id {
					t.State, t.Reason, t.Details, t.Good, t.Bad = orText(state, "unhealthy"), code, message, 0, 0
				}
			}
			if g.ARN == id || strings.HasPrefix(id, g.ARN+"/") {
				return nil
			}
		}
	}
	return fmt.Errorf("%s: no such load balancer, target group or target", id)
}

// Remove implements sim.Service.
func (s *elbService) Remove(id string) error {
	for key, sc := range s.state.Scopes {
		for _, b := range sc.classics() {
			if b.ARN == id {
				s.dropClassic(parseScopeKey(key), sc, b)
				return nil
			}
		}
		switch {
		case sc.Balancers[id] != nil:
			s.drop(parseScopeKey(key), sc, sc.Balancers[id])
		case sc.Groups[id] != nil:
			delete(sc.Groups, id)
		case sc.Listeners[id] != nil:
			s.dropListener(sc, id)
		case sc.Rules[id] != nil:
			delete(sc.Rules, id)
		case sc.dropTarget(id):
		default:
			continue
		}
		return nil
	}
	return fmt.Errorf("%s: no such load balancer, listener, rule or target group", id)
}

// dropTarget takes a target away at once.
func (s *ELBScope) dropTarget(id string) bool {
	for _, g := range s.Groups {
		if i := slices.IndexFunc(g.Targets, func(t *ELBTarget) bool { return targetID(g, t) == id }); i >= 0 {
			g.Targets = slices.Delete(g.Targets, i, i+1)
			return true
		}
	}
	return false
}

// drop deletes a load balancer with its listeners and rules. Its network interfaces stay for a while, and with them the
// claim on its subnets and security groups: deleting those is refused meanwhile
// (https://github.com/kubernetes/cloud-provider-aws/issues/566).
func (s *elbService) drop(in scope, sc *ELBScope, b *LoadBalancer) {
	delete(sc.Balancers, b.ARN)
	for arn, l := range sc.Listeners {
		if l.Balancer == b.ARN {
			s.dropListener(sc, arn)
		}
	}
	for i, z := range b.Zones {
		if z.InterfaceID == "" {
			continue
		}
		sc.Lingering[z.InterfaceID] = b.Name
		wait := 20*time.Second + time.Duration(s.cloud.World.Fraction("linger", b.ARN, fmt.Sprint(i))*float64(25*time.Second))
		if b.LingerSeconds > 0 {
			wait = time.Duration(b.LingerSeconds * float64(time.Second))
		}
		s.cloud.after(wait, elbName, "interface-gone", in.key()+"|"+z.InterfaceID)
	}
}

func (s *elbService) dropListener(sc *ELBScope, arn string) {
	delete(sc.Listeners, arn)
	for id, r := range sc.Rules {
		if r.Listener == arn {
			delete(sc.Rules, id)
		}
	}
}

// Event implements sim.Service.
func (s *elbService) Event(kind, key string) {
	in, id, _ := strings.Cut(key, "|")
	sc := s.state.Scopes[in]
	if sc == nil {
		return
	}
	switch kind {
	case "provisioned":
		if b := sc.Balancers[id]; b != nil && b.State == "provisioning" && !b.Held {
			b.State = "active"
		}
	case "interface-gone":
		if _, ok := sc.Lingering[id]; ok {
			delete(sc.Lingering, id)
			s.cloud.dropServiceInterface(parseScopeKey(in), id)
		}
	case "check":
		s.check(parseScopeKey(in), sc, id)
	case "drained":
		if g := sc.Groups[id]; g != nil {
			now := s.cloud.World.Now()
			g.Targets = slices.DeleteFunc(g.Targets, func(t *ELBTarget) bool { return t.State == "draining" && !now.Before(t.Until) })
		}
	}
}
