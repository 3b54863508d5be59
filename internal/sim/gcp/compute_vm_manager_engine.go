package gcp

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// tickEvery is how often a managed group looks at itself while it has something to do.
const tickEvery = 2 * time.Second

// poke lets a managed group look at itself soon.
func (e *Compute) poke(path string) {
	if g := e.st.VM.Groups[path]; g != nil && !g.Ticking {
		g.Ticking = true
		e.later(time.Second, "vm-group", path)
	}
}

// instanceChanged tells the group of an instance, and the services that asked for it, that something has happened to it.
func (e *Compute) instanceChanged(path string) {
	for _, tell := range e.cloud.hooks.instanceChanged {
		tell(path)
	}
	for manager, g := range e.st.VM.Groups {
		if slices.ContainsFunc(g.Instances, func(i *managedInstance) bool { return i.Path == path }) {
			e.poke(manager)
		}
	}
}

// tick is one look of a managed group at itself: it carries on with what is under way, mends, updates, and brings the number of
// its instances to the target size.
func (e *Compute) tick(path string) {
	res, g := e.st.Resources[path], e.st.VM.Groups[path]
	if res == nil || g == nil {
		return
	}
	g.Ticking = false
	for _, i := range slices.Clone(g.Instances) {
		e.advance(res, g, i)
	}
	if g.Deleting {
		for _, i := range g.Instances {
			if i.Action != "DELETING" {
				i.Action, i.Until = "DELETING", time.Time{}
			}
		}
	} else {
		e.rollOut(res, g)
		e.balance(res, g)
	}
	healing := len(docs(res.Doc, "autoHealingPolicies")) > 0 && len(g.Instances) > 0
	if !e.stable(res, g) || healing {
		wait := tickEvery
		if e.stable(res, g) {
			wait = 10 * time.Second
		}
		g.Ticking = true
		e.later(wait, "vm-group", path)
	}
}

// advance carries on with one instance.
func (e *Compute) advance(res *Resource, g *managedGroup, i *managedInstance) {
	vm, now := e.st.Resources[i.Path], e.cloud.World.Now()
	switch i.Action {
	case "CREATING":
		e.create(res, g, i)
	case "DELETING", "RECREATING":
		switch {
		case i.Again && i.Action == "RECREATING":
			e.create(res, g, i)
		case vm == nil && i.Action == "RECREATING":
			i.Made, i.Again, i.Template, i.Until = false, true, "", time.Time{}
			e.create(res, g, i)
		case vm == nil || !i.Made:
			g.Instances = slices.DeleteFunc(g.Instances, func(x *managedInstance) bool { return x == i })
		case i.Until.IsZero():
			i.Until = now.Add(deleteTakes)
			e.stoppingInstance(vm)
		case !now.Before(i.Until):
			i.Until = time.Time{}
			e.drop(vm)
		}
	case "ABANDONING":
		g.Instances = slices.DeleteFunc(g.Instances, func(x *managedInstance) bool { return x == i })
	case "VERIFYING":
		e.checkManaged(res, i, vm)
		policy := docs(res.Doc, "autoHealingPolicies")
		if i.Health.State == "HEALTHY" || len(policy) == 0 || now.Sub(i.Since) >= time.Duration(num(policy[0], "initialDelaySec"))*time.Second {
			i.Action = "NONE"
		}
	case "NONE":
		e.mend(res, i, vm)
	}
}

// mend recreates an instance that somebody deleted or stopped, or that does not pass the group's health check ("About repairing
// VMs in a MIG").
func (e *Compute) mend(res *Resource, i *managedInstance, vm *Resource) {
	e.checkManaged(res, i, vm)
	policy, bad := docs(res.Doc, "autoHealingPolicies"), vm == nil
	if vm != nil && vm.Busy == "" {
		s := str(vm.Doc, "status")
		bad = s == "TERMINATED" || s == "STOPPED"
	}
	if len(policy) > 0 && i.Health.State == "UNHEALTHY" && e.cloud.World.Now().Sub(i.Since) >= time.Duration(num(policy[0], "initialDelaySec"))*time.Second {
		bad = true
	}
	if bad {
		i.Action, i.Until, i.Again, i.Health = "RECREATING", time.Time{}, false, probed{}
	}
}

// checkManaged lets the group's own health check look at an instance.
func (e *Compute) checkManaged(res *Resource, i *managedInstance, vm *Resource) {
	for _, h := range docs(res.Doc, "autoHealingPolicies") {
		check := e.st.Resources[strings.TrimPrefix(str(h, "healthCheck"), apiRoot)]
		if check == nil || vm == nil {
			return
		}
		every := time.Duration(num(check.Doc, "checkIntervalSec")) * time.Second
		if now := e.cloud.World.Now(); now.Sub(i.Health.At) >= every {
			i.Health.note(check.Doc, now, e.probe(check.Doc, vm, nil))
		}
	}
}

// create makes an instance: its name is fixed, its document comes from the template. Failures are noted and tried again, later
// every time.
func (e *Compute) create(res *Resource, g *managedGroup, i *managedInstance) {
	vm, now := e.st.Resources[i.Path], e.cloud.World.Now()
	switch {
	case i.Made && vm == nil: // it was there and is gone
		i.Made = false
	case i.Made && vm.Making && !now.Before(i.Until):
		e.running(vm)
		i.Since, i.Until, i.Failures, i.Last, i.Health, i.Again = now, time.Time{}, 0, nil, probed{}, false
		i.Action = "NONE"
		if len(docs(res.Doc, "autoHealingPolicies")) > 0 {
			i.Action = "VERIFYING"
		}
	case !i.Made && !now.Before(i.Until):
		if i.Template == "" {
			i.Template = e.wantedTemplate(res)
			versions := docs(res.Doc, "versions")
			i.Version = str(versions[len(versions)-1], "name")
		}
		made, err := e.instanceFor(res, i)
		if err != nil {
			e.failed(g, i, err)
			return
		}
		i.Made, i.Until = true, now.Add(runningAfter)
		launch := bootCall(made)
		launch.Operation = "instances.insert"
		if refused := e.placement(launch, made); refused != nil {
			e.drop(made)
			i.Made = false
			e.failed(g, i, refused)
		}
	}
}

// instanceFor places the instance of a managed group. Its metadata says who made it and from what, as Google's do.
func (e *Compute) instanceFor(res *Resource, i *managedInstance) (*Resource, error) {
	t := e.st.Resources[i.Template]
	if t == nil {
		return nil, e.kinds["instanceTemplates"].notFound(i.Template)
	}
	doc := clone(sub(t.Doc, "properties"))
	doc["name"] = i.Name
	number := e.cloud.number(res.project())
	byNumber := func(path string) string {
		return strings.Replace(path, "projects/"+res.project()+"/", "projects/"+number+"/", 1)
	}
	m := subOf(doc, "metadata")
	m["items"] = append(list(m, "items"), Doc{"key": "instance-template", "value": byNumber(t.Path)}, Doc{"key": "created-by", "value": byNumber(res.Path)})
	return e.placeInstance(res.project(), i.Zone, doc)
}

// failed notes why an instance could not be made.
func (e *Compute) failed(g *managedGroup, i *managedInstance, err error) {
	now := e.cloud.World.Now()
	code, message := "INTERNAL_ERROR", err.Error()
	if refused, ok := asRefusal(err); ok {
		code, message = operationCode(refused.Reason), refused.Message
	}
	m := managedError{Code: code, Message: fmt.Sprintf("Instance '%s' creation failed: %s", i.Name, message), Action: i.Action, Instance: i.Path, Template: i.Template,
		Version: i.Version, Time: now}
	i.Last = &m
	i.Failures++
	i.Until = now.Add(min(time.Duration(i.Failures)*10*time.Second, 5*time.Minute))
	i.Template = ""
	g.Errors = slices.Insert(g.Errors, 0, m)
	g.Errors = g.Errors[:min(len(g.Errors), 100)]
}

// staying are the instances that a group means to keep.
func (g *managedGroup) staying() []*managedInstance {
	return slices.DeleteFunc(slices.Clone(g.Instances), func(i *managedInstance) bool { return i.Action == "DELETING" || i.Action == "ABANDONING" })
}

// balance brings the number of instances to the target size, with room for those that a rollout makes first.
func (e *Compute) balance(res *Resource, g *managedGroup) {
	want := int(num(res.Doc, "targetSize"))
	if e.rolling(res, g) {
		want += e.surge(res, g)
	}
	for len(g.staying()) < want {
		zone := e.nextZone(res, g)
		name := ""
		for name == "" || e.st.Resources["projects/"+res.project()+"/zones/"+zone+"/instances/"+name] != nil {
			name = str(res.Doc, "baseInstanceName") + "-" + e.cloud.World.ID("", 4, "0123456789bcdfghjklmnpqrstvwxz")
		}
		g.Instances = append(g.Instances, &managedInstance{Name: name, Zone: zone, Action: "CREATING", Path: "projects/" + res.project() + "/zones/" + zone + "/instances/" + name})
	}
	for surplus := len(g.staying()) - want; surplus > 0; surplus-- {
		i := e.dispensable(res, g)
		i.Action, i.Until = "DELETING", time.Time{}
	}
}

// nextZone is the zone with the fewest instances of a group.
func (e *Compute) nextZone(res *Resource, g *managedGroup) string {
	zones := e.zonesOf(res.Path, res.Doc)
	count := map[string]int{}
	for _, i := range g.staying() {
		count[i.Zone]++
	}
	best := zones[0]
	for _, z := range zones[1:] {
		if count[z] < count[best] {
			best = z
		}
	}
	return best
}

// dispensable is the instance that a group that shrinks gives up first: one that is not up yet, then one of an old version, then
// one of the fullest zone.
func (e *Compute) dispensable(res *Resource, g *managedGroup) *managedInstance {
	count := map[string]int{}
	for _, i := range g.staying() {
		count[i.Zone]++
	}
	score := func(i *managedInstance) int {
		s := count[i.Zone]
		if i.Template != e.wantedTemplate(res) && i.Made {
			s += 100
		}
		if i.Action == "CREATING" || i.Action == "RECREATING" {
			s += 1000
		}
		return s
	}
	staying := g.staying()
	best := staying[len(staying)-1]
	for _, i := range staying {
		if score(i) > score(best) {
			best = i
		}
	}
	return best
}

// outdated says whether an instance is of another template than new ones are.
func (e *Compute) outdated(res *Resource, i *managedInstance) bool {
	return i.Template != "" && i.Template != e.wantedTemplate(res) && i.Action != "DELETING" && i.Action != "ABANDONING" && i.Action != "RECREATING"
}

// rolling says whether a group is replacing its instances.
func (e *Compute) rolling(res *Resource, g *managedGroup) bool {
	return str(sub(res.Doc, "updatePolicy"), "type") == "PROACTIVE" && slices.ContainsFunc(g.Instances, func(i *managedInstance) bool { return e.outdated(res, i) })
}

// surge is by how many instances a rollout may go beyond the size.
func (e *Compute) surge(res *Resource, g *managedGroup) int {
	old := 0
	for _, i := range g.Instances {
		if e.outdated(res, i) {
			old++
		}
	}
	return min(old, amountOf(sub(sub(res.Doc, "updatePolicy"), "maxSurge"), int(num(res.Doc, "targetSize"))))
}

// rollOut replaces outdated instances, as many at a time as the policy lets be unavailable: what is up and of the new version
// counts as available ("Automatically apply VM configuration updates in a MIG").
func (e *Compute) rollOut(res *Resource, g *managedGroup) {
	if !e.rolling(res, g) {
		return
	}
	policy, size := sub(res.Doc, "updatePolicy"), int(num(res.Doc, "targetSize"))
	available := 0
	for _, i := range g.Instances {
		if i.Action == "NONE" {
			available++
		}
	}
	for _, i := range g.Instances {
		if !e.outdated(res, i) {
			continue
		}
		if i.Action == "NONE" {
			if available <= size-amountOf(sub(policy, "maxUnavailable"), size) {
				continue
			}
			available--
		}
		i.Action, i.Until = "DELETING", time.Time{}
		if str(policy, "replacementMethod") == "RECREATE" {
			i.Action = "RECREATING"
		}
	}
}
