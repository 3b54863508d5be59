package gcp

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// managedGroup is what is kept of a managed instance group besides its document.
type managedGroup struct {
	Instances []*managedInstance
	Errors    []managedError // newest first
	Ticking   bool
	Deleting  bool
}

// managedInstance is an instance as its group sees it.
type managedInstance struct {
	Name, Zone, Path string
	// Action is what the group does with it: CREATING, RECREATING, VERIFYING, RESTARTING, REFRESHING, ABANDONING, DELETING or NONE.
	Action   string
	Template string // path of the template that it is made from
	Version  string // name of the version
	Made     bool   // its instance has been placed
	Again    bool   // of RECREATING: the old instance is gone, the new one is being made
	// Until is when what is under way ends: a start, a deletion, the pause before the next try.
	Until    time.Time
	Since    time.Time // when it came to run
	Failures int
	Last     *managedError
	Health   probed // by the group's own health check
}

// managedError is why an instance could not be made.
type managedError struct {
	Code, Message, Action, Instance, Template, Version string
	Time                                               time.Time
}

func (e *Compute) managerKind() *kind {
	return &kind{collection: "instanceGroupManagers", noun: "instance_group_manager", schema: "InstanceGroupManager",
		resources: map[string]string{"zones": "instanceGroupManagers", "regions": "regionInstanceGroupManagers"},
		takes:     map[string]time.Duration{"insert": setTakes, "delete": deleteTakes + 25*time.Second},
		loose:     []string{"instanceGroup", "status", "currentActions", "distributionPolicy"},
		prepare:   e.prepareManager, made: e.madeManager, show: e.showManager, refuseDelete: e.refuseManagerDelete,
		dropping: func(res *Resource) { e.managed(res).Deleting = true; e.poke(res.Path) },
		dropped:  e.managerGone,
		failed: func(_ *Operation, res *Resource) {
			e.managed(res).Deleting = false
			e.poke(res.Path)
		},
		tags: func(res *Resource) map[string]string { // what it makes has the labels of its template
			if t := e.st.Resources[e.cloud.pathOfLink(res.project(), str(res.Doc, "instanceTemplate"))]; t != nil {
				return labelsOf(sub(t.Doc, "properties"))
			}
			return nil
		},
		quota: func(res *Resource) map[string]float64 {
			if segmentAfter(res.Path, "regions") != "" {
				return map[string]float64{"REGIONAL_INSTANCE_GROUP_MANAGERS": 1}
			}
			return map[string]float64{"INSTANCE_GROUP_MANAGERS": 1}
		},
	}
}

func (e *Compute) managed(res *Resource) *managedGroup {
	g := e.st.VM.Groups[res.Path]
	if g == nil {
		g = &managedGroup{}
		e.st.VM.Groups[res.Path] = g
	}
	return g
}

// prepareManager checks a managed group and fills it up ("Method: regionInstanceGroupManagers.insert").
func (e *Compute) prepareManager(r *request, path string, doc Doc) error {
	if e.st.Resources[strings.Replace(path, "/instanceGroupManagers/", "/instanceGroups/", 1)] != nil {
		return refuse(409, "alreadyExists", "The resource '%s' already exists", strings.Replace(path, "/instanceGroupManagers/", "/instanceGroups/", 1))
	}
	if str(doc, "baseInstanceName") == "" {
		base := lastPart(path)
		doc["baseInstanceName"] = strings.TrimRight(base[:min(len(base), 54)], "-")
	}
	if base := str(doc, "baseInstanceName"); !networkTag.MatchString(base) || len(base) > 58 {
		return invalidField("resource.baseInstanceName", base, "Must be a match of regex '[a-z]([-a-z0-9]{0,57})'")
	}
	if segmentAfter(path, "regions") != "" {
		if err := e.prepareZones(r, path, doc); err != nil {
			return err
		}
	}
	policy := subOf(doc, "updatePolicy")
	for k, v := range map[string]any{"type": "OPPORTUNISTIC", "minimalAction": "REPLACE", "replacementMethod": "SUBSTITUTE"} {
		setDefault(policy, k, v)
	}
	setDefault(policy, "maxSurge", Doc{"fixed": float64(len(e.zonesOf(path, doc)))})
	setDefault(policy, "maxUnavailable", Doc{"fixed": float64(len(e.zonesOf(path, doc)))})
	if segmentAfter(path, "regions") != "" {
		setDefault(policy, "instanceRedistributionType", "PROACTIVE")
	}
	setDefault(doc, "listManagedInstancesResults", "PAGELESS")
	setDefault(doc, "targetSize", float64(0))
	e.st.Seq++
	doc["fingerprint"] = fingerprint([]any{path, e.st.Seq})
	return e.checkManager(r.Project.ID, path, doc)
}

// prepareZones settles the zones over which a regional group spreads: three of the region unless it says otherwise.
func (e *Compute) prepareZones(r *request, path string, doc Doc) error {
	region := segmentAfter(path, "regions")
	d := subOf(doc, "distributionPolicy")
	setDefault(d, "targetShape", "EVEN")
	zones := docs(d, "zones")
	if len(zones) == 0 {
		for _, z := range zoneNames(region)[:3] {
			zones = append(zones, Doc{"zone": z})
		}
	}
	for n, z := range zones {
		name := lastPart(str(z, "zone"))
		if !zoneExists(name) || regionOf(name) != region {
			return invalidField(fmt.Sprintf("resource.distributionPolicy.zones[%d].zone", n), str(z, "zone"), "The zone is not in the region '"+region+"'.")
		}
		z["zone"] = selfLink("projects/" + r.Project.ID + "/zones/" + name)
	}
	d["zones"] = anys(zones)
	return nil
}

// zonesOf are the zones in which a group makes its instances.
func (e *Compute) zonesOf(path string, doc Doc) []string {
	if z := segmentAfter(path, "zones"); z != "" {
		return []string{z}
	}
	var out []string
	for _, z := range docs(sub(doc, "distributionPolicy"), "zones") {
		out = append(out, lastPart(str(z, "zone")))
	}
	return out
}

// checkManager checks what an insert and a patch can set alike.
func (e *Compute) checkManager(project, path string, doc Doc) error {
	region := orText(segmentAfter(path, "regions"), regionOf(segmentAfter(path, "zones")))
	versions := docs(doc, "versions")
	if len(versions) == 0 {
		versions = []Doc{{"instanceTemplate": str(doc, "instanceTemplate")}}
		doc["versions"] = anys(versions)
	}
	for n, v := range versions {
		t, err := e.template(project, fmt.Sprintf("resource.versions[%d].instanceTemplate", n), str(v, "instanceTemplate"), region)
		if err != nil {
			return err
		}
		v["instanceTemplate"] = selfLink(t.Path)
	}
	doc["instanceTemplate"] = str(versions[len(versions)-1], "instanceTemplate")
	if size := num(doc, "targetSize"); size < 0 || size > 2000 {
		return invalidField("resource.targetSize", size, "Must be between 0 and 2000, inclusive.")
	}
	for n, h := range docs(doc, "autoHealingPolicies") {
		field := fmt.Sprintf("resource.autoHealingPolicies[%d]", n)
		if link := str(h, "healthCheck"); link != "" {
			hc, err := e.link(project, field+".healthCheck", link, "healthChecks")
			if err != nil {
				return err
			}
			h["healthCheck"] = selfLink(hc.Path)
		}
		if d := num(h, "initialDelaySec"); d < 0 || d > 3600 {
			return invalidField(field+".initialDelaySec", d, "Must be between 0 and 3600, inclusive.")
		}
	}
	if len(docs(doc, "autoHealingPolicies")) > 1 {
		return invalidField("resource.autoHealingPolicies", len(docs(doc, "autoHealingPolicies")), "At most one auto healing policy is supported.")
	}
	if err := checkNamedPorts(doc); err != nil {
		return err
	}
	return checkRollout(path, doc, len(e.zonesOf(path, doc)))
}

// checkRollout checks how a group is to be updated.
func checkRollout(path string, doc Doc, zones int) error {
	policy, both := sub(doc, "updatePolicy"), 0.0
	for _, k := range []string{"maxSurge", "maxUnavailable"} {
		amount := sub(policy, k)
		n, fixed := amount["fixed"].(float64)
		both += n + num(amount, "percent")
		if fixed && segmentAfter(path, "regions") != "" && n != 0 && n < float64(zones) {
			return invalidField("resource.updatePolicy."+k+".fixed", n, fmt.Sprintf(
				"Fixed updatePolicy.%s for regional managed instance group has to be either 0 or at least equal to the number of zones.", k))
		}
	}
	if both == 0 {
		return invalidField("resource.updatePolicy.maxUnavailable.fixed", 0, "Both maxSurge and maxUnavailable cannot be set to 0.")
	}
	if str(policy, "replacementMethod") == "RECREATE" && num(sub(policy, "maxSurge"), "fixed") != 0 {
		return invalidField("resource.updatePolicy.maxSurge.fixed", num(sub(policy, "maxSurge"), "fixed"), "maxSurge must be 0 when replacement method is set to RECREATE.")
	}
	return nil
}

// madeManager makes the instance group behind a managed one.
func (e *Compute) madeManager(res *Resource) {
	path := strings.Replace(res.Path, "/instanceGroupManagers/", "/instanceGroups/", 1)
	doc := Doc{"description": "This instance group is controlled by Instance Group Manager '" + res.name() + "'. To modify instances in this group, use the Instance Group Manager API.",
		"fingerprint": fingerprint(path)}
	if ports, ok := res.Doc["namedPorts"]; ok {
		doc["namedPorts"] = ports
	}
	t := e.st.Resources[e.cloud.pathOfLink(res.project(), str(res.Doc, "instanceTemplate"))]
	if nics := docs(sub(t.Doc, "properties"), "networkInterfaces"); len(nics) > 0 {
		for _, k := range []string{"network", "subnetwork"} {
			if v := str(nics[0], k); v != "" {
				doc[k] = v
			}
		}
	}
	e.make(path, "instanceGroups", doc).Default = true
	res.Doc["instanceGroup"] = selfLink(path)
	e.managed(res)
	e.poke(res.Path)
}

// refuseManagerDelete refuses to delete what serves a load balancer.
func (e *Compute) refuseManagerDelete(_ *request, res *Resource) error {
	group := e.st.Resources[strings.TrimPrefix(str(res.Doc, "instanceGroup"), apiRoot)]
	if group == nil {
		return nil
	}
	if user := e.userOf(group); user != "" {
		return inUse(e.kinds["instanceGroupManagers"], res.Path, user)
	}
	return nil
}

func (e *Compute) managerGone(res *Resource) {
	for _, i := range e.managed(res).Instances {
		if vm := e.st.Resources[i.Path]; vm != nil && i.Made {
			e.drop(vm)
		}
	}
	if group := e.st.Resources[strings.TrimPrefix(str(res.Doc, "instanceGroup"), apiRoot)]; group != nil {
		e.drop(group)
	}
	delete(e.st.VM.Groups, res.Path)
}

// actionField are the names of actions in currentActions.
var actionField = map[string]string{"NONE": "none", "CREATING": "creating", "RECREATING": "recreating", "VERIFYING": "verifying", "RESTARTING": "restarting",
	"REFRESHING": "refreshing", "ABANDONING": "abandoning", "DELETING": "deleting"}

// showManager adds what the group is doing.
func (e *Compute) showManager(res *Resource, doc Doc) {
	g, counts := e.managed(res), Doc{"creatingWithoutRetries": 0.0, "starting": 0.0, "stopping": 0.0, "suspending": 0.0, "resuming": 0.0}
	for _, f := range actionField {
		counts[f] = 0.0
	}
	for _, i := range g.Instances {
		counts[actionField[i.Action]] = num(counts, actionField[i.Action]) + 1
	}
	reached := !slices.ContainsFunc(g.Instances, func(i *managedInstance) bool { return i.Template != e.wantedTemplate(res) })
	status := Doc{"isStable": e.stable(res, g), "versionTarget": Doc{"isReached": reached}, "stateful": Doc{"hasStatefulConfig": false,
		"perInstanceConfigs": Doc{"allEffective": true}}, "allInstancesConfig": Doc{"effective": true}}
	if a := e.autoscalerOf(res.Path); a != nil {
		status["autoscaler"] = selfLink(a.Path)
	}
	doc["currentActions"], doc["status"] = counts, status
}

// stable says whether a group has nothing to do.
func (e *Compute) stable(res *Resource, g *managedGroup) bool {
	return !g.Deleting && len(g.Instances) == int(num(res.Doc, "targetSize")) &&
		!slices.ContainsFunc(g.Instances, func(i *managedInstance) bool { return i.Action != "NONE" }) && !e.rolling(res, g)
}

// wantedTemplate is the path of the template of new instances.
func (e *Compute) wantedTemplate(res *Resource) string {
	return e.cloud.pathOfLink(res.project(), str(res.Doc, "instanceTemplate"))
}

// amountOf is a number or a percentage of the group's size.
func amountOf(d Doc, size int) int {
	if p, ok := d["percent"].(float64); ok {
		return int(math.Ceil(p * float64(size) / 100))
	}
	return int(num(d, "fixed"))
}
