package azure

import (
	"net/http"
	"strings"
)

// references checks what a resource refers to: it has to exist, in the same region and, unless the caller owns the other
// subscription, in the same subscription; and nothing may be at work on it.
func (c *Cloud) references(r *request, now *Resource, location string) error {
	var err error
	now.refs(func(ref, _, path string) {
		if err == nil && !strings.HasPrefix(key(ref), key(now.ID)) {
			err = c.reference(r, now, ref, path, location)
		}
	})
	return err
}

func (c *Cloud) reference(r *request, now *Resource, ref, path, location string) error {
	id, ok := parseID(ref)
	if !ok || !id.item() {
		return refuse(http.StatusBadRequest, "InvalidRequestFormat", "Cannot parse the request.").
			with(refuse(0, "InvalidJsonReferenceFormat", "Reference Id %s is not formatted correctly. Path %s.", ref, path))
	}
	if !c.owns(r.who, id.Subscription) {
		return c.linkedRefusal(r, now, ref)
	}
	target := c.find(ref)
	if target == nil {
		if target = c.holder(ref); target == nil {
			return refuse(http.StatusBadRequest, "InvalidResourceReference",
				"Resource %s referenced by resource %s was not found. Please make sure that the referenced resource exists, and that both resources are in the same region.", ref, now.ID).
				with(refuse(0, "NotFound", "Resource %s not found.", ref))
		}
	}
	if at := c.locationOf(target); location != "" && at != location && at != "global" && !crossRegion(path) {
		return refuseNetwork(http.StatusBadRequest, "InvalidResourceReference",
			"Resource %s referenced by resource %s was not found. Please make sure that the referenced resource exists, and that both resources are in the same region.", ref, now.ID)
	}
	if target.State != stateSucceeded && target.State != "" && target.State != stateFailed {
		return retryable("ReferencedResourceNotProvisioned",
			"Cannot proceed with operation because resource %s used by resource %s is not in Succeeded state. Resource is in %s state and the last operation that updated/is updating the resource is %s.",
			target.ID, now.ID, target.State, c.lastOperation(target))
	}
	return nil
}

// crossRegion: what peerings and private zones refer to may be anywhere.
func crossRegion(path string) bool {
	return strings.HasSuffix(path, "remoteVirtualNetwork") || strings.HasSuffix(path, "virtualNetwork")
}

// holder finds the resource in which a sub-resource with this ID stands: a backend pool in its load balancer.
func (c *Cloud) holder(ref string) *Resource {
	for id := parentOf(ref); id != ""; id = parentOf(id) {
		res := c.find(id)
		if res == nil {
			continue
		}
		found := false
		walkIDs(map[string]any(res.Properties), func(sub string) { found = found || strings.EqualFold(sub, ref) })
		if found {
			return res
		}
		return nil
	}
	return nil
}

func walkIDs(v any, f func(id string)) {
	switch m := v.(type) {
	case []any:
		for _, e := range m {
			walkIDs(e, f)
		}
	case doc:
		walkIDs(map[string]any(m), f)
	case map[string]any:
		if id, ok := m["id"].(string); ok && len(m) > 1 {
			f(id)
		}
		for _, e := range m {
			walkIDs(e, f)
		}
	}
}

func (c *Cloud) lastOperation(res *Resource) string {
	for id := res.ID; id != ""; id = parentOf(id) {
		if at := c.find(id); at != nil {
			if op := c.shelves[c.kindOf(at.Type).service].state.Operations[at.Operation]; op != nil {
				return op.Name
			}
		}
	}
	return operationTitle("put", c.kindOf(res.Type))
}

// linkedRefusal is what happens when a resource refers to one that the caller may not use.
func (c *Cloud) linkedRefusal(r *request, now *Resource, ref string) error {
	return refuseARM(http.StatusForbidden, "LinkedAuthorizationFailed",
		"The client '%s' with object id '%s' has permission to perform action '%s/write' on scope '%s'; however, it does not have permission to perform action(s) '%s' on the linked scope(s) '%s' (respectively) or the linked scope(s) are invalid.",
		r.who.ID, r.who.ObjectID, now.Type, now.ID, linkedAction(ref), ref)
}

func linkedAction(ref string) string {
	id, _ := parseID(ref)
	if strings.EqualFold(id.typ(), vnetType) {
		return vnetType + "/peer/action"
	}
	return id.typ() + "/join/action"
}
