package gcp

import "strings"

// nouns are how refusals call kinds of Compute Engine whose missing objects are `noun "path" not found`.
var nouns = map[string]string{"backendBuckets": "BackendBucket", "externalVpnGateways": "ExternalVpnGateway", "targetSslProxies": "targetSslProxy", "disks": "disk",
	"targetVpnGateways": "targetVpnGateway", "vpnGateways": "vpnGateway", "nodeGroups": "nodeGroup", "policies": "policy", "responsePolicies": "responsePolicy"}

// firstSegment is what the books call the service of a path that is not simulated.
func firstSegment(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return first
}

// unserved refuses a request for what is not simulated. An object of a kind that is not simulated cannot exist, so to read one
// finds none, in the words of its service; everything else says that it is not simulated.
func unserved(method, path string) (*api, *Error) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	last := len(parts) - 1
	missing := func(prefix int) *Error {
		object := strings.Join(parts[prefix:], "/")
		if noun := nouns[parts[last-1]]; noun != "" {
			return refuse(404, "notFound", "%s \"%s\" not found", noun, object)
		}
		return refuse(404, "notFound", "The resource '%s' was not found", object)
	}
	inProject := len(parts) > 5 && parts[2] == "projects" && method == "GET"
	switch {
	case inProject && parts[0] == "compute" && len(parts) >= 7 && (parts[4] == "global" || len(parts) >= 8):
		return &api{noStatus: true, listErrors: true}, missing(2)
	case inProject && parts[0] == "dns" && len(parts) == 6:
		return &api{listErrors: true}, missing(2)
	case method == "GET" && len(parts) == 3 && strings.HasPrefix(parts[1], "tag") && parts[0] == "v3":
		name := strings.Join(parts[1:], "/")
		return &api{}, &Error{HTTP: 403, Message: "Permission denied on resource '" + name + "' (or it may not exist)."}
	}
	return &api{listErrors: true}, refuse(404, "notFound", "The requested URL %s was not found on this server: it is not simulated.", path)
}
