package gcp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// managerMethods adds the methods of managed groups, which are the same in zones and regions.
func (e *Compute) managerMethods(a *api) {
	e.events["vm-group"] = e.tick
	e.actions["manager-size"] = func(op *Operation, res *Resource) error {
		size, _ := strconv.Atoi(op.Args["size"]) // written by resizeManager
		res.Doc["targetSize"] = float64(size)
		e.poke(res.Path)
		return nil
	}
	e.actions["manager-patch"] = func(op *Operation, res *Resource) error {
		res.Doc = op.Doc
		if group := e.st.Resources[strings.TrimPrefix(str(res.Doc, "instanceGroup"), apiRoot)]; group != nil && res.Doc["namedPorts"] != nil {
			group.Doc["namedPorts"] = res.Doc["namedPorts"]
		}
		e.poke(res.Path)
		return nil
	}
	e.actions["manager-instances"] = e.doneInstances
	for _, resource := range []string{"instanceGroupManagers", "regionInstanceGroupManagers"} {
		a.ops[resource+".resize"] = e.resizeManager
		a.ops[resource+".patch"] = e.patchManager
		a.ops[resource+".setInstanceTemplate"] = e.patchManager
		a.ops[resource+".listManagedInstances"] = e.listManaged
		a.ops[resource+".listErrors"] = e.listManagedErrors
		for verb, action := range map[string]string{"deleteInstances": "DELETING", "recreateInstances": "RECREATING", "abandonInstances": "ABANDONING",
			"applyUpdatesToInstances": "RECREATING"} {
			a.ops[resource+"."+verb] = e.actOnInstances(verb, action)
		}
		a.ops[resource+".createInstances"] = e.createInstances
	}
}

// autoscaled refuses to set the size of a group that an autoscaler sizes.
func (e *Compute) autoscaled(res *Resource) error {
	if a := e.autoscalerOf(res.Path); a != nil && str(sub(a.Doc, "autoscalingPolicy"), "mode") != "OFF" {
		return refuse(400, "invalidUsage", "Invalid resource usage: 'The managed instance group %s is autoscaled by %s; its size cannot be set.'.", res.Path, a.Path)
	}
	return nil
}

func (e *Compute) resizeManager(r *request) (any, error) {
	res, err := e.change(r, e.kinds["instanceGroupManagers"])
	if err != nil {
		return nil, err
	}
	if err := e.autoscaled(res); err != nil {
		return nil, err
	}
	size, err := strconv.Atoi(r.Query.Get("size"))
	if err != nil || size < 0 || size > 2000 {
		return nil, invalidField("size", r.Query.Get("size"), "Must be between 0 and 2000, inclusive.")
	}
	return e.start(r, change{Type: "compute.instanceGroupManagers.resize", Target: res, Takes: setTakes, Action: "manager-size", Args: map[string]string{"size": strconv.Itoa(size)}}), nil
}

// patchManager changes a group's policies and templates, and its size unless it is autoscaled.
func (e *Compute) patchManager(r *request) (any, error) {
	res, err := e.change(r, e.kinds["instanceGroupManagers"])
	if err != nil {
		return nil, err
	}
	if given := str(r.Body, "fingerprint"); given != "" && given != str(res.Doc, "fingerprint") {
		return nil, stale("resource")
	}
	if size, said := r.Body["targetSize"]; said && size != res.Doc["targetSize"] {
		if err := e.autoscaled(res); err != nil {
			return nil, err
		}
	}
	doc := clone(res.Doc)
	if _, said := r.Body["instanceTemplate"]; said {
		delete(doc, "versions")
	}
	merge(doc, r.Body)
	if err := e.checkManager(r.Project.ID, res.Path, doc); err != nil {
		return nil, err
	}
	if err := e.checkReferences(e.kinds["instanceGroupManagers"], res.Path, doc); err != nil {
		return nil, err
	}
	e.st.Seq++
	doc["fingerprint"] = fingerprint([]any{res.Path, e.st.Seq})
	verb := "patch"
	if strings.HasSuffix(r.method.ID, "setInstanceTemplate") {
		verb = "compute.instanceGroupManagers.setInstanceTemplate"
	}
	return e.start(r, change{Type: verb, Target: res, Takes: setTakes, Action: "manager-patch", Doc: doc}), nil
}

// actOnInstances lets a group delete, recreate or let go of some of its instances.
func (e *Compute) actOnInstances(verb, action string) operation {
	return func(r *request) (any, error) {
		res, err := e.change(r, e.kinds["instanceGroupManagers"])
		if err != nil {
			return nil, err
		}
		var paths []string
		for n, link := range texts(r.Body, "instances") {
			path := e.cloud.pathOfLink(r.Project.ID, link)
			known := slices.ContainsFunc(e.managed(res).Instances, func(i *managedInstance) bool { return i.Path == path })
			if !known && !truth(r.Body, "skipInstancesOnValidationError") {
				return nil, invalidField(fmt.Sprintf("instances[%d]", n), link, fmt.Sprintf("Instance '%s' is not a member of the managed instance group '%s'.", lastPart(link), res.Path))
			}
			paths = append(paths, path)
		}
		return e.start(r, change{Type: "compute.instanceGroupManagers." + verb, Target: res, Takes: setTakes, Action: "manager-instances",
			Args: map[string]string{"action": action, "instances": strings.Join(paths, " ")}}), nil
	}
}

// doneInstances sets the action of some instances. Deleted and abandoned ones reduce the group's size.
func (e *Compute) doneInstances(op *Operation, res *Resource) error {
	named := strings.Fields(op.Args["instances"])
	for _, i := range e.managed(res).Instances {
		if !slices.Contains(named, i.Path) || i.Action == "DELETING" || i.Action == "ABANDONING" {
			continue
		}
		action := op.Args["action"]
		if action == "RECREATING" && op.Type == "compute.instanceGroupManagers.applyUpdatesToInstances" && i.Template == e.wantedTemplate(res) {
			continue
		}
		i.Action, i.Until = action, time.Time{}
		if action != "RECREATING" {
			res.Doc["targetSize"] = max(0, num(res.Doc, "targetSize")-1)
		}
	}
	e.poke(res.Path)
	return nil
}

// createInstances makes instances with given names, by which the group grows.
func (e *Compute) createInstances(r *request) (any, error) {
	res, err := e.change(r, e.kinds["instanceGroupManagers"])
	if err != nil {
		return nil, err
	}
	g := e.managed(res)
	for _, want := range docs(r.Body, "instances") {
		zone := e.nextZone(res, g)
		i := &managedInstance{Name: str(want, "name"), Zone: zone, Action: "CREATING", Path: "projects/" + res.project() + "/zones/" + zone + "/instances/" + str(want, "name")}
		if !networkTag.MatchString(i.Name) || e.st.Resources[i.Path] != nil {
			return nil, invalidField("instances[0].name", i.Name, "The instance name is invalid or already used.")
		}
		g.Instances = append(g.Instances, i)
		res.Doc["targetSize"] = num(res.Doc, "targetSize") + 1
	}
	e.poke(res.Path)
	return e.start(r, change{Type: "compute.instanceGroupManagers.createInstances", Target: res, Takes: setTakes, Action: actNothing}), nil
}
