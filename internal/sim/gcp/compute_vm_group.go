package gcp

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// groupKind is instance groups: those that people fill themselves, and those behind managed groups, which alone may be regional.
func (e *Compute) groupKind() *kind {
	return &kind{collection: "instanceGroups", noun: "instance_group", schema: "InstanceGroup",
		resources: map[string]string{"zones": "instanceGroups", "regions": "regionInstanceGroups"},
		takes:     map[string]time.Duration{"insert": setTakes, "delete": setTakes},
		prepare:   e.prepareGroup, show: e.showGroup, refuseDelete: e.refuseGroupDelete,
		parents: func(res *Resource) []string { return []string{strings.TrimPrefix(str(res.Doc, "network"), apiRoot)} },
		quota: func(res *Resource) map[string]float64 {
			if res.Default {
				return nil
			}
			return map[string]float64{"INSTANCE_GROUPS": 1}
		},
	}
}

func (e *Compute) groupMethods(a *api) {
	e.actions["group-members"] = e.changeMembers
	a.ops["instanceGroups.addInstances"] = e.addInstances
	a.ops["instanceGroups.removeInstances"] = e.removeInstances
	for _, resource := range []string{"instanceGroups", "regionInstanceGroups"} {
		a.ops[resource+".setNamedPorts"] = e.setNamedPorts
		a.ops[resource+".listInstances"] = e.listGroupInstances
	}
}

func (e *Compute) prepareGroup(r *request, _ string, doc Doc) error {
	if err := checkNamedPorts(doc); err != nil {
		return err
	}
	if link := str(doc, "network"); link != "" {
		network, err := e.link(r.Project.ID, "resource.network", link, "networks")
		if err != nil {
			return err
		}
		doc["network"] = selfLink(network.Path)
	}
	doc["fingerprint"] = fingerprint([]any{doc["namedPorts"], e.st.Seq})
	return nil
}

func checkNamedPorts(doc Doc) error {
	for n, p := range docs(doc, "namedPorts") {
		field := fmt.Sprintf("resource.namedPorts[%d]", n)
		if !networkTag.MatchString(str(p, "name")) {
			return invalidField(field+".name", str(p, "name"), "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'")
		}
		if port := num(p, "port"); port < 1 || port > 65535 {
			return invalidField(field+".port", port, "Must be between 1 and 65535, inclusive.")
		}
	}
	return nil
}

// members are the paths of a group's instances.
func (e *Compute) members(group *Resource) []string {
	if m := e.st.VM.Groups[managerOf(group.Path)]; m != nil {
		var out []string
		for _, i := range m.Instances {
			if e.st.Resources[i.Path] != nil && i.Action != "DELETING" {
				out = append(out, i.Path)
			}
		}
		return out
	}
	return strings.Fields(group.Inner["members"])
}

// managerOf is the path of the managed group that a group would belong to.
func managerOf(group string) string {
	return strings.Replace(group, "/instanceGroups/", "/instanceGroupManagers/", 1)
}

func (e *Compute) showGroup(res *Resource, doc Doc) { doc["size"] = float64(len(e.members(res))) }

// refuseGroupDelete refuses to delete the group of a managed one by itself.
func (e *Compute) refuseGroupDelete(_ *request, res *Resource) error {
	if manager := managerOf(res.Path); e.st.Resources[manager] != nil {
		return inUse(e.kinds["instanceGroups"], res.Path, manager)
	}
	return nil
}

// unmanaged finds the group of a request that adds or removes instances.
func (e *Compute) unmanaged(r *request) (*Resource, error) {
	if err := e.checkScope(r); err != nil {
		return nil, err
	}
	group, err := e.change(r, e.kinds["instanceGroups"])
	if err == nil && e.st.Resources[managerOf(group.Path)] != nil {
		return nil, refuse(400, "invalidUsage", "Invalid resource usage: 'Instances cannot be added to or removed from the managed instance group %s.'", group.Path)
	}
	return group, err
}

func (e *Compute) addInstances(r *request) (any, error) {
	group, err := e.unmanaged(r)
	if err != nil {
		return nil, err
	}
	var paths []string
	for n, ref := range docs(r.Body, "instances") {
		field, link := fmt.Sprintf("instances[%d].instance", n), str(ref, "instance")
		vm, err := e.link(r.Project.ID, field, link, "instances")
		if err != nil {
			return nil, err
		}
		network := str(docs(vm.Doc, "networkInterfaces")[0], "network") // every instance has an interface
		switch {
		case vm.scope() != group.scope():
			return nil, invalidField(field, link, "The instance must be in the same zone as the instance group.")
		case slices.Contains(e.members(group), vm.Path) || slices.Contains(paths, vm.Path):
			return nil, refuse(400, "memberAlreadyExists", "Resource '%s' is already a member of '%s'", vm.Path, group.Path)
		case str(group.Doc, "network") != "" && str(group.Doc, "network") != network:
			return nil, invalidField(field, link, "The instance must have a network interface in the network of the instance group.")
		}
		paths = append(paths, vm.Path)
	}
	if len(paths) == 0 {
		return nil, refuse(400, "required", "Required field 'instances' not specified")
	}
	return e.start(r, change{Type: "addInstances", Target: group, Takes: setTakes, Action: "group-members", Args: map[string]string{"add": strings.Join(paths, " ")}}), nil
}

func (e *Compute) removeInstances(r *request) (any, error) {
	group, err := e.unmanaged(r)
	if err != nil {
		return nil, err
	}
	var paths []string
	for n, ref := range docs(r.Body, "instances") {
		path := e.cloud.pathOfLink(r.Project.ID, str(ref, "instance"))
		if path == "" {
			return nil, invalidField(fmt.Sprintf("instances[%d].instance", n), str(ref, "instance"), "The URL is malformed.")
		}
		if !slices.Contains(e.members(group), path) {
			return nil, refuse(400, "memberNotFound", "Resource '%s' is not a member of '%s'", path, group.Path)
		}
		paths = append(paths, path)
	}
	return e.start(r, change{Type: "removeInstances", Target: group, Takes: setTakes, Action: "group-members", Args: map[string]string{"remove": strings.Join(paths, " ")}}), nil
}

// changeMembers ends an addition or removal. An instance that is gone by now is not added.
func (e *Compute) changeMembers(op *Operation, group *Resource) error {
	members := without(strings.Fields(group.Inner["members"]), strings.Fields(op.Args["remove"]))
	for path := range strings.FieldsSeq(op.Args["add"]) {
		vm := e.st.Resources[path]
		if vm == nil {
			return refuse(404, "notFound", "The resource '%s' was not found", path)
		}
		members = append(members, path)
		setDefault(group.Doc, "network", str(docs(vm.Doc, "networkInterfaces")[0], "network"))
	}
	group.inner("members", strings.Join(members, " "))
	return nil
}

// leaveGroups takes an instance that is gone out of the groups it was in.
func (e *Compute) leaveGroups(path string) {
	for _, res := range e.st.Resources {
		if res.Collection == "instanceGroups" && res.Inner["members"] != "" {
			res.inner("members", strings.Join(without(strings.Fields(res.Inner["members"]), []string{path}), " "))
		}
	}
}

func (e *Compute) setNamedPorts(r *request) (any, error) {
	group, err := e.change(r, e.kinds["instanceGroups"])
	if err != nil {
		return nil, err
	}
	if given := str(r.Body, "fingerprint"); given != "" && given != str(group.Doc, "fingerprint") {
		return nil, stale("resource")
	}
	if err := checkNamedPorts(r.Body); err != nil {
		return nil, err
	}
	doc := clone(group.Doc)
	takeOver(doc, r.Body, "namedPorts")
	e.st.Seq++
	doc["fingerprint"] = fingerprint([]any{doc["namedPorts"], e.st.Seq})
	return e.start(r, change{Type: "setNamedPorts", Target: group, Takes: setTakes, Action: actReplace, Doc: doc}), nil
}

func (e *Compute) listGroupInstances(r *request) (any, error) {
	group, err := e.find(r, e.kinds["instanceGroups"])
	if err != nil {
		return nil, err
	}
	var items []Doc
	for _, path := range e.members(group) {
		vm := e.st.Resources[path]
		if vm == nil || str(r.Body, "instanceState") == "RUNNING" && str(vm.Doc, "status") != "RUNNING" || !e.visible(r, vm, true) {
			continue
		}
		d := Doc{"instance": selfLink(path), "status": str(vm.Doc, "status")}
		if ports, ok := group.Doc["namedPorts"]; ok {
			d["namedPorts"] = ports
		}
		items = append(items, d)
	}
	kindName := "compute#instanceGroupsListInstances"
	if group.region() != "" && segmentAfter(group.Path, "regions") != "" {
		kindName = "compute#regionInstanceGroupsListInstances"
	}
	page, next, err := pageOf(r, items, "maxResults", 500)
	if err != nil {
		return nil, err
	}
	answer := Doc{"kind": kindName, "id": group.Path}
	if len(page) > 0 {
		answer["items"] = page
	}
	if next != "" {
		answer["nextPageToken"] = next
	}
	return answer, nil
}

// listReferrers lists the groups that an instance is in.
func (e *Compute) listReferrers(r *request) (any, error) {
	if r.Path["instance"] == "-" {
		return r.listAnswer(nil, "compute#instanceListReferrers", "projects/"+r.Project.ID+"/zones/"+r.Path["zone"]+"/instances/-/referrers")
	}
	vm, err := e.find(r, e.kinds["instances"])
	if err != nil {
		return nil, err
	}
	var items []Doc
	for _, group := range e.ofKind(r.Project.ID, "instanceGroups") {
		if !slices.Contains(e.members(group), vm.Path) {
			continue
		}
		items = append(items, Doc{"kind": "compute#reference", "referenceType": "MEMBER_OF", "referrer": selfLink(group.Path), "target": selfLink(vm.Path)})
	}
	return r.listAnswer(items, "compute#instanceListReferrers", vm.Path+"/referrers")
}
