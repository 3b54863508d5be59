package azure

import (
	"net/http"
	"strings"
)

const lockType = "Microsoft.Authorization/locks"

var lockVersions = []string{"2016-09-01", "2017-04-01", "2020-05-01"}

// addLocks adds management locks ("Lock your Azure resources to protect your infrastructure").
func (c *Cloud) addLocks() {
	c.newShelf("locks")
	c.addKind(&kind{
		typ: lockType, service: "locks", title: "ManagementLocks", versions: lockVersions, extension: true, stateless: true, noEtag: true,
		put: func(_ *request, now, old *Resource) (outcome, error) {
			level := now.Properties.str("level")
			if level != "CanNotDelete" && level != "ReadOnly" && level != "NotSpecified" {
				return outcome{}, refuse(http.StatusBadRequest, "LockLevelInvalid", "The lock level '%s' is invalid; it must be CanNotDelete or ReadOnly.", level)
			}
			if old != nil && old.Properties.str("level") != level {
				now.Properties["level"] = level
			}
			return outcome{}, nil
		},
	})
	const list = "/providers/Microsoft.Authorization/locks"
	for _, prefix := range []string{"/subscriptions/{subscription}", "/subscriptions/{subscription}/resourceGroups/{group}",
		"/subscriptions/{subscription}/resourceGroups/{group}/providers/{namespace}/{type}/{name}",
		"/subscriptions/{subscription}/resourceGroups/{group}/providers/{namespace}/{type}/{name}/{type2}/{name2}"} {
		c.handle(route{method: "GET", pattern: prefix + list, service: "locks", operation: "ManagementLocks_List", kind: lockType, versions: lockVersions, serve: c.listLocks})
	}
}

// listLocks answers the locks at a scope, above it and below it.
func (c *Cloud) listLocks(r *request) (answer, error) {
	scope := strings.TrimSuffix(key(r.path), key("/providers/"+lockType))
	atScope := strings.ReplaceAll(r.query.Get("$filter"), " ", "") == "atScope()"
	var all []any
	for _, l := range c.shelves["locks"].sorted() {
		at := key(scopeOf(l.ID))
		above := at == scope || strings.HasPrefix(scope, at+"/")
		below := strings.HasPrefix(at, scope+"/")
		if above || (below && !atScope) {
			all = append(all, c.render(r, l))
		}
	}
	return r.page(all, "$skiptoken")
}

// scopeOf is what an extension resource is attached to.
func scopeOf(id string) string {
	i := strings.LastIndex(key(id), "/providers/")
	if i < 0 {
		return ""
	}
	return id[:i]
}

// unlocked refuses a write that a lock at the resource or above it forbids.
func (c *Cloud) unlocked(r *request, id string) error {
	if r.kind != nil && r.kind.typ == lockType {
		return nil
	}
	for _, l := range c.shelves["locks"].sorted() {
		at := scopeOf(l.ID)
		if key(id) != key(at) && !strings.HasPrefix(key(id), key(at)+"/") {
			continue
		}
		level := l.Properties.str("level")
		switch {
		case r.method == http.MethodDelete:
			return refuseARM(http.StatusConflict, "ScopeLocked",
				"The scope '%s' cannot perform delete operation because following scope(s) are locked: '%s'. Please remove the lock and try again.", id, at)
		case level == "ReadOnly":
			return refuseARM(http.StatusConflict, "ScopeLocked",
				"The scope '%s' cannot perform write operation because following scope(s) are locked: '%s'. Please remove the lock and try again.", id, at)
		}
	}
	return nil
}

// permissionVersions are those of the list of what a caller may do.
var permissionVersions = []string{"2015-07-01", "2018-01-01-preview", "2018-07-01", "2022-04-01"}

// addPermissions answers what the caller may do in a subscription or group: everything, as its owner, or else a refusal.
func (c *Cloud) addPermissions() {
	for _, scope := range []string{"/subscriptions/{subscription}", "/subscriptions/{subscription}/resourceGroups/{group}"} {
		c.handle(route{method: "GET", pattern: scope + "/providers/Microsoft.Authorization/permissions", service: "locks", operation: "Permissions_List",
			versions: permissionVersions, serve: func(r *request) (answer, error) {
				if g := r.vars["group"]; g != "" && c.find(groupID(r.subscription, g)) == nil {
					return answer{}, groupNotFound(g)
				}
				return plain(map[string]any{"value": []any{c.roleOf(r)}}), nil
			}})
	}
}
