package azure

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// actionOf names what a request asks for as roles do ("Azure permissions"): the provider, the types on the path, and what is done.
// A word at the end that has no name behind it is a list, a view or, in a POST, the action.
func actionOf(method, path string) string {
	verb := map[string]string{http.MethodGet: "read", http.MethodHead: "read", http.MethodDelete: "delete", http.MethodPost: "action"}[method]
	if verb == "" {
		verb = "write"
	}
	segs := strings.Split(strings.Trim(path, "/"), "/")
	namespace, rest := "Microsoft.Resources", segs
	last := -1
	for i, s := range segs {
		if strings.EqualFold(s, "providers") && i+2 < len(segs) {
			last = i
		}
	}
	switch {
	case last > 1 && strings.EqualFold(segs[last-1], "Microsoft.Features"):
		namespace, rest = segs[last-1], segs[last:]
	case last >= 0:
		namespace, rest = segs[last+1], segs[last+2:]
	case len(segs) > 4 && strings.EqualFold(segs[2], "resourceGroups"): // what is in a group, of all providers
		rest = append([]string{"subscriptions", "", "resourceGroups", ""}, segs[4:]...)
	}
	var types []string
	for i, s := range rest {
		if i%2 == 0 || i == len(rest)-1 && method == http.MethodPost {
			types = append(types, s)
		}
	}
	name := strings.Join(append(append([]string{namespace}, types...), verb), "/")
	if known, ok := spelling[strings.ToLower(name)]; ok {
		return known
	}
	return name
}

// spelling is how the vendor spells an action, by its lower-case form; for some it is another word than the path has.
var spelling = func() map[string]string {
	out := map[string]string{}
	for _, provider := range permissionTables {
		for typ, done := range provider.types {
			for verb := range strings.FieldsSeq(done) {
				name := provider.namespace + "/" + typ + "/" + verb
				out[strings.ToLower(name)] = name
			}
		}
		for path, name := range provider.named {
			out[strings.ToLower(provider.namespace+"/"+path)] = provider.namespace + "/" + name
		}
	}
	return out
}()

// permissionsFor are the actions that a request needs: its own, and those on what its body refers to.
func (c *Cloud) permissionsFor(r *request) (actions []string, scopes []string) {
	actions, scopes = []string{actionOf(r.method, r.path)}, []string{r.path}
	if r.method != http.MethodPut && r.method != http.MethodPatch {
		return actions, scopes
	}
	var body any
	if json.Unmarshal(r.body, &body) != nil {
		return actions, scopes
	}
	own := key(r.path)
	target := ""
	if id, ok := parseID(r.path); ok {
		target = id.typ()
	}
	eachReference(body, "", func(member, id string) {
		parsed, ok := parseID(id)
		if !ok || !parsed.item() || key(id) == own || strings.HasPrefix(key(id), own+"/") {
			return
		}
		for _, l := range linkedActions {
			if strings.EqualFold(l.refers, parsed.typ()) && strings.EqualFold(l.member, member) && (l.target == "" || strings.EqualFold(l.target, target)) && !slices.Contains(actions, l.action) {
				actions, scopes = append(actions, l.action), append(scopes, id)
			}
		}
	})
	return actions, scopes
}

// eachReference calls f for every ARM ID in a document with the member that it is in: {"subnet": {"id": …}} and "subnetId": … alike.
func eachReference(v any, member string, f func(member, id string)) {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			at := k
			if strings.EqualFold(k, "id") {
				at = member
			}
			if strings.EqualFold(member, "userAssignedIdentities") {
				f(member, k)
			}
			eachReference(v[k], at, f)
		}
	case []any:
		for _, e := range v {
			eachReference(e, member, f)
		}
	case string:
		if strings.HasPrefix(key(v), "/subscriptions/") {
			f(member, v)
		}
	}
}

// granted refuses what the caller has not been given, as ARM does: its own action, or one on what the body refers to
// ("Troubleshoot Azure RBAC", "linked scopes").
func (c *Cloud) granted(r *request, scopes []string) *Error {
	missing := c.World.Denied(r.Call)
	if missing == "" {
		return nil
	}
	if i := slices.Index(r.Actions, missing); i > 0 {
		return refuseARM(http.StatusForbidden, "LinkedAuthorizationFailed",
			"The client '%s' with object id '%s' has permission to perform action '%s' on scope '%s'; however, it does not have permission to perform action(s) '%s' on the linked scope(s) '%s' (respectively) or the linked scope(s) are invalid.",
			r.who.ID, r.who.ObjectID, r.Actions[0], scopes[0], missing, scopes[i])
	}
	return c.unauthorized(r, missing)
}

func (c *Cloud) unauthorized(r *request, action string) *Error {
	return refuseARM(http.StatusForbidden, "AuthorizationFailed",
		"The client '%s' with object id '%s' does not have authorization to perform action '%s' over scope '%s' or the scope is invalid. If access was recently granted, please refresh your credentials.",
		r.who.ID, r.who.ObjectID, action, r.path)
}

// roleOf is what the caller may do, as the list of its permissions says: everything, as an owner, or what it was limited to. What a role
// gives on data is listed apart.
func (c *Cloud) roleOf(r *request) map[string]any {
	actions, data := []string{"*"}, []string{}
	if limits, limited := c.World.Grants("azure")[r.who.ID]; limited {
		actions = []string{}
		for _, a := range limits {
			if dataAction(a) {
				data = append(data, a)
			} else {
				actions = append(actions, a)
			}
		}
	}
	return map[string]any{"actions": actions, "notActions": []string{}, "dataActions": data, "notDataActions": []string{}}
}

// dataAction says whether an action is on data: those on secrets in vaults are the only ones here.
func dataAction(action string) bool {
	return strings.HasPrefix(strings.ToLower(action), "microsoft.keyvault/vaults/secrets/") && strings.Count(action, "/") > 3
}

// limitedTo says whether a caller that is limited has an action among what it was limited to: a role on the whole subscription may
// give actions on data, too.
func (c *Cloud) limitedTo(who Client, action string) bool {
	_, limited := c.World.Grants("azure")[who.ID]
	return limited && c.World.Granted("azure", who.ID, action)
}
