package azure

import (
	"strings"
)

// A route is a path that is no plain resource or collection: subscriptions, resource groups, what a location offers.
type route struct {
	method, pattern string // segments in braces are variables
	service         string
	operation       string
	// kind is the resource type that the route is about, if any; it is what permissions and throttling name.
	kind     string
	versions []string // empty: any
	// read: a POST that changes nothing.
	read  bool
	serve func(r *request) (answer, error)
}

// handle registers routes.
func (c *Cloud) handle(routes ...route) { c.routes = append(c.routes, routes...) }

// match says whether a request is for the route, and notes the variables.
func (rt *route) match(r *request) bool {
	if rt.method != r.method {
		return false
	}
	want, got := strings.Split(rt.pattern[1:], "/"), strings.Split(r.path[1:], "/")
	if len(want) != len(got) {
		return false
	}
	vars := map[string]string{}
	for i, w := range want {
		if name, ok := strings.CutPrefix(w, "{"); ok {
			vars[strings.TrimSuffix(name, "}")] = got[i]
		} else if !strings.EqualFold(w, got[i]) {
			return false
		}
	}
	r.vars = vars
	return true
}
