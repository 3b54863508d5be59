package azure

import (
	"net/http"
	"regexp"
	"strings"
)

const assignmentType = "Microsoft.Authorization/roleAssignments"

var assignmentVersions = []string{"2015-07-01", "2018-01-01-preview", "2018-09-01-preview", "2020-03-01-preview", "2020-04-01-preview", "2020-08-01-preview", "2020-10-01-preview", "2022-04-01"}

var guidPattern = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// roleScopes are the patterns of the scopes that roles are listed at.
var roleScopes = []string{"/subscriptions/{subscription}", "/subscriptions/{subscription}/resourceGroups/{group}",
	"/subscriptions/{subscription}/resourceGroups/{group}/providers/{namespace}/{type}/{name}",
	"/subscriptions/{subscription}/resourceGroups/{group}/providers/{namespace}/{type}/{name}/{type2}/{name2}"}

// addRoles registers role assignments and role definitions.
func (c *Cloud) addRoles() {
	c.newShelf(authorizationService)
	c.addKind(&kind{typ: assignmentType, service: authorizationService, versions: assignmentVersions, extension: true, stateless: true, noEtag: true,
		name: &nameRule{regexp.MustCompile(guidPattern.String()), ""}, says: roleDialect,
		put: c.putAssignment, remove: c.removeAssignment, show: showAssignment, missing: missingAssignment})
	c.addKind(&kind{typ: definitionType, service: authorizationService, versions: assignmentVersions, extension: true, stateless: true, noEtag: true,
		put: c.putDefinition, remove: c.removeDefinition, show: showDefinition, missing: missingDefinition})
	for _, scope := range roleScopes {
		c.handle(
			route{method: "GET", pattern: scope + "/providers/" + assignmentType, service: authorizationService, operation: "RoleAssignments_List",
				kind: assignmentType, versions: assignmentVersions, serve: c.listAssignments},
			route{method: "GET", pattern: scope + "/providers/" + definitionType, service: authorizationService, operation: "RoleDefinitions_List",
				kind: definitionType, versions: assignmentVersions, serve: c.listDefinitions},
			route{method: "GET", pattern: scope + "/providers/" + definitionType + "/{role}", service: authorizationService, operation: "RoleDefinitions_Get",
				kind: definitionType, versions: assignmentVersions, serve: c.getDefinition},
		)
	}
	// The definitions of the directory itself have no scope before them.
	c.handle(route{method: "GET", pattern: "/providers/" + definitionType + "/{role}", service: authorizationService, operation: "RoleDefinitions_Get",
		kind: definitionType, versions: assignmentVersions, serve: c.getDefinition})
}

// roleDialect words what role assignments refuse in a way of their own.
var roleDialect = func() *dialect {
	d := *armDialect
	d.badName = func(r *request, _ *nameRule) *Error {
		return refuse(http.StatusBadRequest, "InvalidRoleAssignmentId", "The role assignment ID '%s' is not valid. The role assignment ID must be a GUID.", r.id.name())
	}
	return &d
}()

func missingAssignment(r *request) *Error {
	return refuse(http.StatusNotFound, "RoleAssignmentNotFound", "The role assignment '%s' is not found.", r.id.name())
}

// putAssignment gives somebody a role at a scope ("Troubleshoot Azure RBAC").
func (c *Cloud) putAssignment(r *request, now, old *Resource) (outcome, error) {
	p := now.Properties
	who, role := p.str("principalId"), p.str("roleDefinitionId")
	if !guidPattern.MatchString(who) {
		return outcome{}, refuse(http.StatusBadRequest, "InvalidPrincipalId", "The Principal ID '%s' is not valid. Principal ID must be a GUID.", who)
	}
	def, ok := c.definition(r, role)
	if !ok {
		return outcome{}, refuse(http.StatusBadRequest, "RoleDefinitionDoesNotExist", "The specified role definition with ID '%s' does not exist.", strings.ReplaceAll(lastOf(role), "-", ""))
	}
	if old != nil && (!strings.EqualFold(old.Properties.str("principalId"), who) || !strings.EqualFold(lastOf(old.Properties.str("roleDefinitionId")), lastOf(role))) {
		return outcome{}, refuse(http.StatusBadRequest, "RoleAssignmentUpdateNotPermitted", "Tenant ID, application ID, principal ID, and scope are not allowed to be updated.")
	}
	kind, err := c.principalKind(r, who, p.str("principalType"))
	if err != nil {
		return outcome{}, err
	}
	if err := c.alreadyAssigned(now, who, role); err != nil {
		return outcome{}, err
	}
	stamped := stamp(c.World.Now())
	created := any(stamped)
	if old != nil {
		created = old.Properties.get("createdOn")
	}
	now.Properties = doc{"roleDefinitionId": def, "principalId": who, "principalType": kind, "scope": scopeOf(now.ID),
		"condition": p.get("condition"), "conditionVersion": p.get("conditionVersion"), "description": p.get("description"),
		"delegatedManagedIdentityResourceId": p.get("delegatedManagedIdentityResourceId"),
		"createdOn":                          created, "updatedOn": stamped, "createdBy": r.who.ObjectID, "updatedBy": r.who.ObjectID}
	out := outcome{status: madeStatus(old)}
	if old == nil { // the answer to a create does not know who made it yet
		now.Created = c.World.Now()
		body := c.render(r, now)
		body.sub("properties")["createdBy"] = nil
		out.body = body
	}
	return out, nil
}

// principalKind says what the directory takes an object ID for. Whoever names the type vouches for the principal: then a
// directory that lags behind is not asked.
func (c *Cloud) principalKind(r *request, id, given string) (string, error) {
	p, known := c.principalOf(id)
	if given != "" {
		if known && !strings.EqualFold(p.Kind, given) {
			return "", refuse(http.StatusBadRequest, "UnmatchedPrincipalType", "The PrincipalId '%s' has type '%s' , which is different from specified PrinciaplType '%s'.", strings.ReplaceAll(id, "-", ""), p.Kind, given)
		}
		return given, nil
	}
	if known && c.replicated(r, p) {
		return p.Kind, nil
	}
	text := "Principal %s does not exist in the directory %s."
	if r.version >= "2018-09-01-preview" {
		text += " Check that you have the correct principal ID. If you are creating this principal and then immediately assigning a role, this error might be related to a replication delay. In this case, set the role assignment principalType property to a value, such as ServicePrincipal, User, or Group.  See https://aka.ms/docs-principaltype"
	}
	return "", refuse(http.StatusBadRequest, "PrincipalNotFound", text, strings.ReplaceAll(id, "-", ""), c.opt.Tenant)
}

// alreadyAssigned refuses the same assignment under another name.
func (c *Cloud) alreadyAssigned(now *Resource, who, role string) error {
	scope := key(scopeOf(now.ID))
	for _, res := range c.shelves[authorizationService].sorted() {
		if res.Type == assignmentType && key(res.ID) != key(now.ID) && key(scopeOf(res.ID)) == scope &&
			strings.EqualFold(res.Properties.str("principalId"), who) && strings.EqualFold(lastOf(res.Properties.str("roleDefinitionId")), lastOf(role)) {
			return refuse(http.StatusConflict, "RoleAssignmentExists", "The role assignment already exists.")
		}
	}
	return nil
}

func (c *Cloud) removeAssignment(r *request, res *Resource) (outcome, error) {
	return outcome{status: http.StatusOK, body: c.render(r, res)}, nil
}

func showAssignment(r *request, _ *Resource, body doc) {
	p := body.sub("properties")
	for _, name := range []string{"condition", "conditionVersion", "delegatedManagedIdentityResourceId", "description"} {
		if _, ok := p[name]; !ok {
			p[name] = nil
		}
		if r.version < "2020-03-01-preview" {
			delete(p, name)
		}
	}
}

// listAssignments answers what is assigned at a scope, above it and below it.
func (c *Cloud) listAssignments(r *request) (answer, error) {
	scope := strings.TrimSuffix(key(r.path), key("/providers/"+assignmentType))
	filter := strings.ReplaceAll(r.query.Get("$filter"), " ", "")
	who := between(filter, "principalIdeq'", "'")
	if who == "" {
		who = between(filter, "assignedTo('", "')")
	}
	if filter != "" && who == "" && !strings.EqualFold(filter, "atScope()") {
		return answer{}, refuse(http.StatusBadRequest, "InvalidFilter", "The filter '%s' is not supported. Supported filters are either 'atScope()' or 'principalId eq '{value}' or assignedTo('{value}')'.", r.query.Get("$filter"))
	}
	var all []any
	for _, a := range c.shelves[authorizationService].sorted() {
		at := key(scopeOf(a.ID))
		above := at == scope || strings.HasPrefix(scope, at+"/")
		below := strings.HasPrefix(at, scope+"/") && !strings.Contains(strings.ToLower(filter), "atscope()")
		if a.Type == assignmentType && (above || below) && (who == "" || strings.EqualFold(who, a.Properties.str("principalId"))) && r.visible(a, true) {
			all = append(all, c.render(r, a))
		}
	}
	return r.page(all, "$skipToken")
}

// between is what stands between two marks in a text.
func between(text, from, to string) string {
	_, rest, ok := strings.Cut(text, from)
	if !ok {
		return ""
	}
	value, _, _ := strings.Cut(rest, to)
	return value
}
