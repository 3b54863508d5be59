package gcp

import "strings"

// newOSConfig adds the OS Config API as far as it tells whether the agent of an instance is up: the OS inventory is there once
// the agent has reported ("View operating system details").
func newOSConfig(c *Cloud) {
	e := c.compute
	c.add("osconfig/v1", &api{service: "osconfig", ops: map[string]operation{
		"projects.locations.instances.inventories.get":  e.getInventory,
		"projects.locations.instances.inventories.list": e.listInventories,
	}})
}

func noEntity() *Error { return refuse(404, "notFound", "Requested entity was not found.") }

// inventory is the OS inventory of an instance, or nothing when its agent has not reported.
func (e *Compute) inventory(res *Resource, full bool) Doc {
	since, up := e.agentUp(res)
	g := e.st.VM.Guests[res.Path]
	if !up || g == nil {
		return nil
	}
	d := Doc{"name": "projects/" + e.cloud.number(res.project()) + "/locations/" + segmentAfter(res.Path, "zones") + "/instances/" + res.ID + "/inventory",
		"updateTime": zuluTime(since), "osInfo": Doc{"hostname": res.name(), "longName": g.Image.system(), "shortName": g.Image.Distro, "version": g.Image.Release,
			"architecture": g.Machine.Arch, "kernelVersion": "#1-gcp SMP", "kernelRelease": g.Image.Kernel, "osconfigAgentVersion": agentVersion}}
	if full {
		items := Doc{}
		for _, p := range keysOf(g.Machine.Packages) {
			items["installedPackage-"+p] = Doc{"id": "installedPackage-" + p, "originType": "INVENTORY_REPORT", "type": "INSTALLED_PACKAGE",
				"installedPackage": Doc{"aptPackage": Doc{"packageName": p, "architecture": g.Machine.Arch, "version": "1.0"}}}
		}
		d["items"] = items
	}
	return d
}

func (e *Compute) getInventory(r *request) (any, error) {
	name := r.Path["name"]
	zone, instance := segmentAfter(name, "locations"), segmentAfter(name, "instances")
	for _, res := range e.ofKind(r.Project.ID, "instances") {
		if segmentAfter(res.Path, "zones") != zone || res.name() != instance && res.ID != instance || !e.visible(r, res, false) {
			continue
		}
		r.Touch(res.Path)
		if d := e.inventory(res, strings.EqualFold(r.Query.Get("view"), "FULL")); d != nil {
			return d, nil
		}
	}
	return nil, noEntity()
}

func (e *Compute) listInventories(r *request) (any, error) {
	parent := r.Path["parent"]
	zone, instance := segmentAfter(parent, "locations"), segmentAfter(parent, "instances")
	var items []Doc
	for _, res := range e.ofKind(r.Project.ID, "instances") {
		if segmentAfter(res.Path, "zones") != zone || instance != "-" && res.name() != instance && res.ID != instance {
			continue
		}
		if d := e.inventory(res, strings.EqualFold(r.Query.Get("view"), "FULL")); d != nil {
			items = append(items, d)
		}
	}
	page, next, err := pageOf(r, items, "pageSize", 100)
	if err != nil {
		return nil, err
	}
	answer := Doc{}
	if len(page) > 0 {
		answer["inventories"] = page
	}
	if next != "" {
		answer["nextPageToken"] = next
	}
	return answer, nil
}
