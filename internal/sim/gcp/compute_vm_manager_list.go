package gcp

import (
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// listManaged lists a group's instances with what is done to them.
func (e *Compute) listManaged(r *request) (any, error) {
	if err := e.checkScope(r); err != nil {
		return nil, err
	}
	res, err := e.find(r, e.kinds["instanceGroupManagers"])
	if err != nil {
		return nil, err
	}
	var items []Doc
	for _, i := range e.managed(res).Instances {
		// A group knows its own instances at once; only a fault hides them.
		if e.cloud.World.Visible(r.Call, i.Path, e.cloud.World.Now().Add(-time.Hour), sim.ByList, "group-instance "+i.Name) {
			items = append(items, e.managedDoc(res, i))
		}
	}
	items, err = filtered(r, items)
	if err != nil {
		return nil, err
	}
	// Without PAGINATED a group answers all at once, whatever maxResults says ("listManagedInstancesResults").
	page, next := items, ""
	if str(res.Doc, "listManagedInstancesResults") == "PAGINATED" {
		if page, next, err = pageOf(r, items, "maxResults", 500); err != nil {
			return nil, err
		}
	}
	answer := Doc{}
	if len(page) > 0 {
		answer["managedInstances"] = page
	}
	if next != "" {
		answer["nextPageToken"] = next
	}
	return answer, nil
}

func (e *Compute) managedDoc(res *Resource, i *managedInstance) Doc {
	d := Doc{"instance": selfLink(i.Path), "name": i.Name, "currentAction": i.Action, "id": "0"}
	if i.Template != "" {
		v := Doc{"instanceTemplate": selfLink(i.Template)}
		if i.Version != "" {
			v["name"] = i.Version
		}
		d["version"] = v
	}
	if vm := e.st.Resources[i.Path]; vm != nil && i.Made {
		d["id"], d["instanceStatus"] = vm.ID, str(vm.Doc, "status")
	}
	if i.Last != nil {
		d["lastAttempt"] = Doc{"errors": Doc{"errors": []any{Doc{"code": i.Last.Code, "message": i.Last.Message}}}}
	}
	for _, h := range docs(res.Doc, "autoHealingPolicies") {
		state := i.Health.State
		if state == "" {
			state = "UNKNOWN"
		}
		if link := str(h, "healthCheck"); link != "" {
			d["instanceHealth"] = []any{Doc{"healthCheck": link, "detailedHealthState": state}}
		}
	}
	return d
}

// listManagedErrors lists why instances could not be made, the newest first.
func (e *Compute) listManagedErrors(r *request) (any, error) {
	res, err := e.find(r, e.kinds["instanceGroupManagers"])
	if err != nil {
		return nil, err
	}
	var items []Doc
	for _, m := range e.managed(res).Errors {
		action := Doc{"action": m.Action, "instance": selfLink(m.Instance)}
		if m.Template != "" {
			action["version"] = Doc{"instanceTemplate": selfLink(m.Template)}
		}
		items = append(items, Doc{"error": Doc{"code": m.Code, "message": m.Message}, "instanceActionDetails": action, "timestamp": m.Time.UTC().Format(time.RFC3339)})
	}
	page, next, err := pageOf(r, items, "maxResults", 500)
	if err != nil {
		return nil, err
	}
	answer := Doc{}
	if len(page) > 0 {
		answer["items"] = page
	}
	if next != "" {
		answer["nextPageToken"] = next
	}
	return answer, nil
}
