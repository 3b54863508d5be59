package aws

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// tick lets a group take one look at itself: new instances come into service, old ones go, unhealthy ones are replaced,
// and the number is brought to the desired capacity.
func (s *asgService) tick(in scope, sc *ASGScope, g *ScalingGroup) {
	for _, i := range slices.Clone(g.Instances) {
		s.advance(in, g, i)
	}
	s.attach(g)
	if g.Deleting {
		s.finishDelete(in, sc, g)
		return
	}
	s.checkHealth(in, g)
	s.replaceUnhealthy(in, g)
	s.refresh(in, g)
	s.balance(in, g)
}

func (g *ScalingGroup) suspended(process string) bool { return slices.Contains(g.Suspended, process) }

// when is a time as causes spell it.
func (s *asgService) when() string { return s.cloud.World.Now().UTC().Format("2006-01-02T15:04:05Z") }

// begin adds an activity to the history.
func (s *asgService) begin(g *ScalingGroup, description, cause string, details map[string]string) *ScalingActivity {
	text, _ := json.Marshal(details) // a map of strings always encodes
	a := &ScalingActivity{ID: s.cloud.World.UUID(), Description: description, Cause: cause, Status: "InProgress", Started: s.cloud.World.Now(), Progress: 50, Details: string(text)}
	g.Activities = slices.Insert(g.Activities, 0, a)
	if len(g.Activities) > 200 {
		g.Activities = g.Activities[:200]
	}
	return a
}

func (s *asgService) end(a *ScalingActivity, status, message string) {
	if a == nil {
		return
	}
	a.Status, a.Message, a.Progress, a.Ended = status, message, 100, s.cloud.World.Now()
}

// advance follows what has become of one instance.
func (s *asgService) advance(in scope, g *ScalingGroup, i *ScalingInstance) {
	m, known := s.cloud.machine(in, i.ID)
	switch i.State {
	case "Pending":
		switch {
		case !known || m.gone():
			why := "Instance failed to complete user's Lifecycle Action"
			if ec2 := s.cloud.ec2.in(in).Instances[i.ID]; ec2 != nil && ec2.StateReason != nil {
				why = ec2.StateReason.Message
			}
			s.end(g.activity(i.Activity), "Failed", "Instance became unhealthy while waiting for instance to be in InService state. Termination Reason: "+why)
			s.remove(g, i)
			s.backOff(g)
		case m.State == "running":
			i.State, i.InService = "InService", s.cloud.World.Now()
			s.end(g.activity(i.Activity), "Successful", "")
			g.Failures = 0
			s.register(in, g, i)
		}
	case "Terminating":
		if !known || m.State == "terminated" {
			s.end(g.activity(i.Activity), "Successful", "")
			s.remove(g, i)
		}
	}
}

func (s *asgService) remove(g *ScalingGroup, i *ScalingInstance) {
	g.Instances = slices.DeleteFunc(g.Instances, func(x *ScalingInstance) bool { return x == i })
}

// backOff waits longer after every launch that failed.
func (s *asgService) backOff(g *ScalingGroup) {
	g.Failures++
	wait := min(time.Duration(g.Failures)*20*time.Second, 5*time.Minute)
	g.NextLaunch = s.cloud.World.Now().Add(wait)
}

// register adds an instance to the target groups of its group.
func (s *asgService) register(in scope, g *ScalingGroup, i *ScalingInstance) {
	if g.suspended("AddToLoadBalancer") {
		return
	}
	elb := s.cloud.platform.elb
	for _, arn := range g.targetARNs() {
		if tg := elb.state.in(in).Groups[arn]; tg != nil {
			elb.register(in, tg, i.ID, tg.Port, "")
		}
	}
}

func (s *asgService) deregister(in scope, g *ScalingGroup, i *ScalingInstance) {
	elb := s.cloud.platform.elb
	sc := elb.state.in(in)
	for _, arn := range g.targetARNs() {
		s.leave(in, sc, arn, i.ID)
	}
}

func (s *asgService) leave(in scope, sc *ELBScope, arn, id string) {
	tg := sc.Groups[arn]
	if tg == nil {
		return
	}
	for _, t := range slices.Clone(tg.Targets) {
		if t.ID == id {
			s.cloud.platform.elb.deregister(in, sc, tg, t)
		}
	}
}

// attach moves the states of target groups on: Adding, Added, InService; Removing, gone ("DescribeLoadBalancerTargetGroups").
func (s *asgService) attach(g *ScalingGroup) {
	now := s.cloud.World.Now()
	for _, t := range slices.Clone(g.Attached) {
		old := now.Sub(t.Since) >= 10*time.Second
		switch {
		case t.State == "Adding" && old:
			t.State, t.Since = "Added", now
		case t.State == "Added" && slices.ContainsFunc(g.Instances, func(i *ScalingInstance) bool { return i.State == "InService" }):
			t.State, t.Since = "InService", now
		case t.State == "Removing" && old:
			g.Attached = slices.DeleteFunc(g.Attached, func(x *ASGTarget) bool { return x == t })
		}
	}
}

// checkHealth judges the instances in service: by EC2 always, by their load balancers if the group asks for it and the
// grace period is over ("Health checks for instances in an Auto Scaling group").
func (s *asgService) checkHealth(in scope, g *ScalingGroup) {
	if g.suspended("HealthCheck") {
		return
	}
	elb := s.cloud.platform.elb
	sc := elb.state.in(in)
	for _, i := range g.Instances {
		if i.State != "InService" || i.Health == "Unhealthy" {
			continue
		}
		if m, ok := s.cloud.machine(in, i.ID); !ok || m.State != "running" && m.State != "pending" {
			i.Health, i.Reason = "Unhealthy", "an EC2 health check indicating it has been terminated or stopped"
			continue
		}
		if g.HealthType != "ELB" || s.cloud.World.Now().Sub(i.InService) < time.Duration(g.Grace)*time.Second {
			continue
		}
		for _, arn := range g.targetARNs() {
			tg := sc.Groups[arn]
			if tg == nil {
				continue
			}
			if t := tg.target(i.ID, tg.Port); t != nil && elb.health(in, sc, tg, t).State == "unhealthy" {
				i.Health, i.Reason = "Unhealthy", "an ELB system health check failure"
			}
		}
	}
}

func (s *asgService) replaceUnhealthy(in scope, g *ScalingGroup) {
	if g.suspended("ReplaceUnhealthy") || g.suspended("Terminate") {
		return
	}
	for _, i := range slices.Clone(g.Instances) {
		if i.State == "InService" && i.Health == "Unhealthy" {
			s.terminate(in, g, i, fmt.Sprintf("At %s an instance was taken out of service in response to %s.", s.when(), i.Reason))
		}
	}
}

// terminate takes an instance out of the group and ends it.
func (s *asgService) terminate(in scope, g *ScalingGroup, i *ScalingInstance, cause string) *ScalingActivity {
	if i.State == "Terminating" {
		return g.activity(i.Activity)
	}
	s.end(g.activity(i.Activity), "Cancelled", "")
	a := s.begin(g, "Terminating EC2 instance: "+i.ID, cause, map[string]string{"Subnet ID": i.Subnet, "Availability Zone": i.AZ})
	i.State, i.Activity = "Terminating", a.ID
	s.deregister(in, g, i)
	sc := s.cloud.ec2.in(in)
	if ec2 := sc.Instances[i.ID]; ec2 != nil {
		s.cloud.ec2.terminate(sc, ec2, "Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown")
	}
	return a
}

// balance launches what is missing and ends what is too much.
func (s *asgService) balance(in scope, g *ScalingGroup) {
	have := len(g.counted())
	switch want := int(g.Desired); {
	case have < want && !g.suspended("Launch") && !s.cloud.World.Now().Before(g.NextLaunch):
		for n := have; n < want; n++ {
			if !s.launchOne(in, g, n, want) {
				break
			}
		}
	case have > want && !g.suspended("Terminate"):
		for _, i := range s.surplus(in, g, have-want) {
			cause := orText(g.Cause, fmt.Sprintf("At %s a difference between desired and actual capacity changing the desired capacity, decreasing the capacity from %d to %d.", s.when(), have, want))
			s.terminate(in, g, i, fmt.Sprintf("%s  At %s instance %s was selected for termination.", cause, s.when(), i.ID))
		}
		g.Cause = ""
	default:
		g.Cause = ""
	}
}

// surplus chooses instances to end: from the zone with the most, first those of another template version, then the
// oldest; protected ones never ("Default termination policy").
func (s *asgService) surplus(in scope, g *ScalingGroup, n int) []*ScalingInstance {
	var out []*ScalingInstance
	left := slices.DeleteFunc(g.counted(), func(i *ScalingInstance) bool { return i.Protected })
	current := s.resolve(in, g)
	for len(out) < n && len(left) > 0 {
		perZone := map[string]int{}
		for _, i := range left {
			perZone[i.AZ]++
		}
		sort.SliceStable(left, func(a, b int) bool {
			x, y := left[a], left[b]
			if perZone[x.AZ] != perZone[y.AZ] {
				return perZone[x.AZ] > perZone[y.AZ]
			}
			if (x.Version == current) != (y.Version == current) {
				return x.Version != current
			}
			return x.Launched.Before(y.Launched)
		})
		out, left = append(out, left[0]), left[1:]
	}
	return out
}

// resolve is the number of the template version that the group launches now.
func (s *asgService) resolve(in scope, g *ScalingGroup) string {
	t := s.cloud.ec2.in(in).Templates[g.TemplateID]
	if t == nil {
		return g.Version
	}
	v, err := t.version(g.Version)
	if err != nil {
		return g.Version
	}
	return strconv.Itoa(v.Number)
}

// subnetsByNeed orders the subnets of a group: the emptiest zone first.
func (s *asgService) subnetsByNeed(g *ScalingGroup, in scope) []zoneSubnet {
	var out []zoneSubnet
	for _, id := range g.Subnets {
		if sub, ok := s.cloud.subnet(in, id); ok {
			out = append(out, sub)
		}
	}
	perZone := map[string]int{}
	for _, i := range g.counted() {
		perZone[i.AZ]++
	}
	sort.SliceStable(out, func(a, b int) bool { return perZone[out[a].AZ] < perZone[out[b].AZ] })
	return out
}

// launchOne starts one instance, in another zone if the first has no capacity. A launch that fails shows only in the
// history of the group ("Troubleshoot Amazon EC2 Auto Scaling").
func (s *asgService) launchOne(in scope, g *ScalingGroup, have, want int) bool {
	cause := orText(g.Cause, fmt.Sprintf("At %s an instance was launched in response to an unhealthy instance needing to be replaced.", s.when()))
	cause = fmt.Sprintf("%s  At %s an instance was started in response to a difference between desired and actual capacity, increasing the capacity from %d to %d.", cause, s.when(), have, want)
	for _, sub := range s.subnetsByNeed(g, in) {
		i, err := s.launch(in, g, sub)
		if err == nil {
			a := s.begin(g, "Launching a new EC2 instance: "+i.ID, cause, map[string]string{"Subnet ID": sub.ID, "Availability Zone": sub.AZ})
			i.Activity = a.ID
			g.Instances = append(g.Instances, i)
			return true
		}
		var e *Error
		if !errors.As(err, &e) {
			e = refuse("InternalError", "%s", err)
		}
		a := s.begin(g, "Launching a new EC2 instance.  Status Reason: "+e.Message+" Launching EC2 instance failed.", cause, map[string]string{"Subnet ID": sub.ID, "Availability Zone": sub.AZ})
		s.end(a, "Failed", e.Message+" Launching EC2 instance failed.")
		if e.Code != "InsufficientInstanceCapacity" && e.Code != "Unsupported" && e.Code != "InsufficientFreeAddressesInSubnet" {
			break // another zone would not help
		}
	}
	s.backOff(g)
	return false
}

// launch starts one instance in a subnet through EC2.
func (s *asgService) launch(in scope, g *ScalingGroup, sub zoneSubnet) (*ScalingInstance, error) {
	req, version, err := s.launchRequest(in, g, sub.ID)
	if err != nil {
		return nil, err
	}
	ec2 := s.cloud.ec2
	own := &sim.Call{Cloud: "aws", Service: "autoscaling", Operation: "Launch", Account: in.Account, Region: in.Region, Mutating: true}
	if f := s.cloud.World.Take(own, sim.FaultCapacity, strings.Join([]string{g.Name, sub.AZ, req.data.InstanceType, sub.ID}, " ")); f != nil {
		p, err := ec2.prepare(ec2.in(in), req)
		if err != nil {
			return nil, err
		}
		return nil, noCapacity(f, p)
	}
	call := &sim.Call{Cloud: "aws", Service: "ec2", Operation: "RunInstances", Account: in.Account, Region: in.Region, Mutating: true}
	res, err := ec2.launch(call, req)
	if err != nil {
		return nil, err
	}
	i := res.Instances[0]
	return &ScalingInstance{ID: i.InstanceID, Type: i.InstanceType, AZ: i.Placement.Zone, Subnet: sub.ID, State: "Pending", Health: "Healthy", Version: version,
		Protected: g.Protect, Launched: s.cloud.World.Now()}, nil
}

// launchRequest is what the group asks of EC2.
func (s *asgService) launchRequest(in scope, g *ScalingGroup, subnet string) (launchRequest, string, error) {
	t := s.cloud.ec2.in(in).Templates[g.TemplateID]
	if t == nil {
		return launchRequest{}, "", refuse("InvalidLaunchTemplateId.NotFound", "The specified launch template, with template ID %s, does not exist.", g.TemplateID)
	}
	v, err := t.version(g.Version)
	if err != nil {
		return launchRequest{}, "", err
	}
	var tags []Tag
	for _, x := range g.Tags {
		if x.Propagate {
			tags = append(tags, Tag{Key: x.Key, Value: x.Value})
		}
	}
	version := strconv.Itoa(v.Number)
	data := launchData{Tags: []launchTags{{ResourceType: "instance", Tag: tags}}}.over(v.Data)
	return launchRequest{scope: in, data: data, subnetID: subnet, min: 1, max: 1, requester: "226008221399", tags: []Tag{
		{Key: "aws:autoscaling:groupName", Value: g.Name}, {Key: "aws:ec2launchtemplate:id", Value: g.TemplateID}, {Key: "aws:ec2launchtemplate:version", Value: version},
	}}, version, nil
}

// finishDelete removes a group once its instances are gone.
func (s *asgService) finishDelete(in scope, sc *ASGScope, g *ScalingGroup) {
	for _, i := range slices.Clone(g.Instances) {
		s.terminate(in, g, i, fmt.Sprintf("At %s a user request deleted the AutoScalingGroup, changing the desired capacity to 0.", s.when()))
	}
	if len(g.Instances) == 0 {
		delete(sc.Groups, g.Name)
	}
}

// instanceGone lets the groups of an instance look after themselves at once.
func (s *asgService) instanceGone(in scope, id string) {
	sc := s.state.Scopes[in.key()]
	if sc == nil {
		return
	}
	for _, name := range sortedKeys(sc.Groups) {
		if i := sc.Groups[name].instance(id); i != nil && i.State == "InService" {
			i.Health, i.Reason = "Unhealthy", "an EC2 health check indicating it has been terminated or stopped"
		}
	}
}
