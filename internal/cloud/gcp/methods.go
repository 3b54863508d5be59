package gcp

import (
	"net/http"
	"slices"
	"strings"
)

// scopes are the elements of a path that say where an object is, not what it is.
var scopes = []string{"projects", "global", "regions", "zones", "locations", "aggregated"}

// readVerbs are how custom methods are named that change nothing though they
// are sent by POST, such as listManagedInstances and getIamPolicy.
var readVerbs = []string{"get", "list", "test", "query", "search", "lookup", "validate", "preview", "batchGet"}

// sqlVerbs are the custom methods of Cloud SQL, which stand where a collection
// would.
var sqlVerbs = []string{"executeSql", "failover", "restart", "clone", "export", "import"}

// operation names the method that a request calls, such as "networks.insert",
// and says whether it changes something. What is not known to be a read counts
// as a change.
func operation(service, method, path string) (op string, mutating bool) {
	collection, verb, item := target(service, path)
	aggregated := strings.Contains(path, "/aggregated/")
	mutating = method != http.MethodGet && method != http.MethodHead
	if verb != "" {
		reads := slices.ContainsFunc(readVerbs, func(p string) bool { return strings.HasPrefix(verb, p) })
		return collection + "." + verb, mutating && !reads
	}
	switch {
	case method == http.MethodGet && aggregated:
		verb = "aggregatedList"
	case method == http.MethodGet && item:
		verb = "get"
	case method == http.MethodGet:
		verb = "list"
	case method == http.MethodPost && item && service == serviceNetworking:
		verb = "deleteConnection"
	case method == http.MethodPost && (service == serviceCompute || service == serviceSQL):
		verb = "insert"
	case method == http.MethodPost:
		verb = "create"
	case method == http.MethodPut:
		verb = "update"
	default:
		verb = strings.ToLower(method)
	}
	return collection + "." + verb, mutating
}

// target is what a path names: a collection, whether one item of it, and a verb
// of its own if there is one.
func target(service, path string) (collection, verb string, item bool) {
	elements := strings.Split(strings.Trim(path, "/"), "/")
	for i, e := range elements {
		if len(e) > 1 && e[0] == 'v' && e[1] >= '0' && e[1] <= '9' {
			elements = elements[i+1:] // past the version
			break
		}
	}
	if last := len(elements) - 1; last >= 0 {
		elements[last], verb, _ = strings.Cut(elements[last], ":")
	}
	for i := 0; i < len(elements); i++ {
		e := elements[i]
		switch {
		case e == "global" || e == "aggregated":
			continue
		case i+1 < len(elements):
			collection, item = e, true
			i++
		case service == serviceSQL && slices.Contains(sqlVerbs, e):
			verb = e
		case collection == "" || item && slices.Contains(scopes, collection) || service != serviceCompute:
			collection, item = e, false
		default:
			verb = e // such as networks/n/addPeering
		}
	}
	return collection, verb, item
}
