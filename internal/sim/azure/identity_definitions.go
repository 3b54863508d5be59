package azure

import (
	"net/http"
	"strings"
)

const definitionType = "Microsoft.Authorization/roleDefinitions"

// roleByID finds a role, built in or custom, by its GUID.
func (c *Cloud) roleByID(guid string) (builtInRole, bool) {
	for _, b := range builtInRoles {
		if strings.EqualFold(b.GUID, guid) {
			return b, true
		}
	}
	for _, res := range c.shelves[authorizationService].sorted() {
		if res.Type == definitionType && strings.EqualFold(res.Name, guid) {
			return builtInRole{GUID: res.Name, Name: res.Properties.str("roleName"), Description: res.Properties.str("description")}, true
		}
	}
	return builtInRole{}, false
}

// definition is the full ID of the role that an assignment names, as assignments show it. A fresh custom role is not seen
// at once.
func (c *Cloud) definition(r *request, id string) (string, bool) {
	d, ok := c.roleByID(lastOf(id))
	if !ok || !strings.Contains(key(id), key("/providers/"+definitionType+"/")) {
		return "", false
	}
	for _, res := range c.shelves[authorizationService].sorted() {
		if res.Type == definitionType && res.Name == d.GUID && !r.visible(res, false) {
			return "", false
		}
	}
	return "/subscriptions/" + r.subscription + "/providers/" + definitionType + "/" + d.GUID, true
}

// renderRole shows a built-in role.
func renderRole(b builtInRole, subscription string) map[string]any {
	list := func(of []string) []any {
		out := []any{}
		for _, s := range of {
			out = append(out, s)
		}
		return out
	}
	id := "/providers/" + definitionType + "/" + b.GUID
	if subscription != "" {
		id = "/subscriptions/" + subscription + id
	}
	return map[string]any{"id": id, "type": definitionType, "name": b.GUID, "properties": map[string]any{
		"roleName": b.Name, "type": "BuiltInRole", "description": b.Description, "assignableScopes": []any{"/"},
		"permissions": []any{map[string]any{"actions": list(b.Actions), "notActions": list(b.NotActions), "dataActions": list(b.DataActions), "notDataActions": list(b.NotDataActions)}},
		"createdOn":   "2015-02-02T21:55:09.8806423Z", "updatedOn": "2024-05-30T15:02:17.0000000Z", "createdBy": nil, "updatedBy": nil}}
}

func missingDefinition(r *request) *Error {
	name := r.vars["role"]
	if name == "" {
		name = r.id.name()
	}
	return refuse(http.StatusNotFound, "RoleDefinitionDoesNotExist", "The specified role definition with ID '%s' does not exist.", strings.ReplaceAll(name, "-", ""))
}

func (c *Cloud) getDefinition(r *request) (answer, error) {
	for _, b := range builtInRoles {
		if strings.EqualFold(b.GUID, r.vars["role"]) {
			return plain(renderRole(b, r.subscription)), nil
		}
	}
	for _, res := range c.customRoles(r) {
		if strings.EqualFold(res.Name, r.vars["role"]) && r.visible(res, false) {
			return plain(c.render(r, res)), nil
		}
	}
	return answer{}, missingDefinition(r)
}

// customRoles are those that can be assigned in the subscription of a request.
func (c *Cloud) customRoles(r *request) []*Resource {
	var out []*Resource
	for _, res := range c.shelves[authorizationService].sorted() {
		if res.Type == definitionType && strings.EqualFold(subscriptionOf(res.ID), r.subscription) {
			out = append(out, res)
		}
	}
	return out
}

// listDefinitions answers the roles of a scope; the filters are roleName eq and type eq.
func (c *Cloud) listDefinitions(r *request) (answer, error) {
	filter := r.query.Get("$filter")
	name, typ := between(filter, "roleName eq '", "'"), between(filter, "type eq '", "'")
	fits := func(roleName, roleType string) bool {
		return (name == "" || strings.EqualFold(name, roleName)) && (typ == "" || strings.EqualFold(typ, roleType))
	}
	var all []any
	for _, b := range builtInRoles {
		if fits(b.Name, "BuiltInRole") {
			all = append(all, renderRole(b, r.subscription))
		}
	}
	for _, res := range c.customRoles(r) {
		if fits(res.Properties.str("roleName"), "CustomRole") && r.visible(res, true) {
			all = append(all, c.render(r, res))
		}
	}
	return r.page(all, "$skipToken")
}

// putDefinition makes a custom role ("Azure custom roles").
func (c *Cloud) putDefinition(r *request, now, old *Resource) (outcome, error) {
	p := now.Properties
	name := p.str("roleName")
	switch {
	case !guidPattern.MatchString(now.Name):
		return outcome{}, refuse(http.StatusBadRequest, "RoleDefinitionIdInvalid", "The role definition ID '%s' is not valid. The role definition ID must be a GUID.", now.Name)
	case name == "":
		return outcome{}, refuse(http.StatusBadRequest, "InvalidRoleDefinitionName", "The role definition name must not be empty.")
	case len(p.strs("assignableScopes")) == 0:
		return outcome{}, refuse(http.StatusBadRequest, "MissingAssignableScopes", "The role definition must have at least one assignable scope.")
	case len(p.docs("permissions")) == 0:
		return outcome{}, refuse(http.StatusBadRequest, "MissingPermissions", "The role definition must have permissions.")
	}
	taken := false
	for _, b := range builtInRoles {
		taken = taken || strings.EqualFold(b.Name, name) || strings.EqualFold(b.GUID, now.Name)
	}
	for _, res := range c.shelves[authorizationService].sorted() {
		taken = taken || res.Type == definitionType && res.Name != now.Name && strings.EqualFold(res.Properties.str("roleName"), name)
	}
	if taken {
		return outcome{}, refuse(http.StatusConflict, "RoleDefinitionWithSameNameExists", "A custom role with the same name already exists in this directory. Use a different name.")
	}
	now.ID = "/subscriptions/" + r.subscription + "/providers/" + definitionType + "/" + now.Name
	stamped := stamp(c.World.Now())
	p["type"], p["updatedOn"], p["updatedBy"] = "CustomRole", stamped, r.who.ObjectID
	p["createdOn"], p["createdBy"] = stamped, r.who.ObjectID
	if old != nil {
		p["createdOn"], p["createdBy"] = old.Properties["createdOn"], old.Properties["createdBy"]
	}
	for _, perm := range p.docs("permissions") {
		for _, list := range []string{"actions", "notActions", "dataActions", "notDataActions"} {
			perm.def(list, []any{})
		}
	}
	return outcome{status: http.StatusCreated}, nil
}

func (c *Cloud) removeDefinition(r *request, res *Resource) (outcome, error) {
	for _, a := range c.shelves[authorizationService].sorted() {
		if a.Type == assignmentType && strings.EqualFold(lastOf(a.Properties.str("roleDefinitionId")), res.Name) {
			return outcome{}, refuse(http.StatusBadRequest, "RoleDefinitionHasAssignments", "There are existing role assignments referencing role (code: RoleDefinitionHasAssignments)")
		}
	}
	return outcome{status: http.StatusOK, body: c.render(r, res)}, nil
}

func showDefinition(_ *request, _ *Resource, body doc) {
	body.sub("properties").def("description", "")
}
