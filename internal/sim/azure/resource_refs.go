package azure

import (
	"cmp"
	"slices"
	"strings"
)

// A use is a place in a resource that refers to another one.
type use struct {
	by *Resource
	// at is the ID of the innermost sub-resource that holds the reference: an ipConfiguration of a network interface.
	at string
	// path is where the reference stands: "properties.ipConfigurations.properties.subnet".
	path string
}

// usesOf lists who refers to an ID. What lies in the resource itself does not count.
func (c *Cloud) usesOf(id string) []use {
	var out []use
	own := key(id)
	for _, s := range c.shelves {
		for k, r := range s.state.Resources {
			if k == own || strings.HasPrefix(k, own+"/") {
				continue
			}
			r.refs(func(ref, at, path string) {
				if strings.EqualFold(ref, id) {
					out = append(out, use{by: r, at: at, path: path})
				}
			})
		}
	}
	slices.SortFunc(out, func(a, b use) int { return cmp.Or(strings.Compare(a.at, b.at), strings.Compare(a.path, b.path)) })
	return out
}

// walkRefs calls f for every reference in a resource that is written as v: an {"id": …} of something that is not inside the
// resource itself, or an ID in a member such as delegatedSubnetResourceId. at is the innermost sub-resource around it.
func walkRefs(v any, root, at, path string, f func(ref, at, path string)) {
	switch m := v.(type) {
	case []any:
		for _, e := range m {
			walkRefs(e, root, at, path, f)
		}
	case doc:
		walkRefs(map[string]any(m), root, at, path, f)
	case map[string]any:
		if id, ok := m["id"].(string); ok {
			if strings.HasPrefix(key(id), key(root)+"/") && len(m) > 1 {
				at = id
			} else {
				f(id, at, path)
			}
		}
		for _, k := range sortedKeys(m) {
			next := strings.TrimPrefix(path+"."+k, ".")
			if id, ok := m[k].(string); ok && len(k) > 2 && strings.EqualFold(k[len(k)-2:], "id") && strings.HasPrefix(id, "/subscriptions/") {
				f(id, at, next)
				continue
			}
			walkRefs(m[k], root, at, next, f)
		}
	}
}

// refs calls f for every reference in a resource by which it uses something. Where logs are sent to is not used, and of what a cluster
// names only the subnets that it is in are.
func (r *Resource) refs(f func(ref, at, path string)) {
	switch {
	case r.Type == diagnosticType:
		return
	case kindNamespace(r.Type) == "Microsoft.ContainerService":
		all := f
		f = func(ref, at, path string) {
			if strings.HasSuffix(key(path), "subnetid") {
				all(ref, at, path)
			}
		}
	}
	walkRefs(map[string]any{"properties": r.Properties, "top": r.Top}, r.ID, r.ID, "", f)
}
