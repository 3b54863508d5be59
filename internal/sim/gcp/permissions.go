package gcp

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"
)

//go:embed permissions.txt
var permissionsText string

// A needs is what a caller needs for one method.
type needs struct {
	always []string    // permissions
	fields []fieldNeed // by what the body says
}

type fieldNeed struct {
	path       string // such as disks[].initializeParams
	permission string // "" is to use what the field links to
}

// permissionTable is the needs of every method, by service and method: "compute networks.insert".
var permissionTable = sync.OnceValue(func() map[string]needs {
	table := map[string]needs{}
	for n, line := range strings.Split(permissionsText, "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(line, "#") {
			continue
		}
		if err := readNeeds(table, words); err != nil {
			panic(fmt.Sprintf("permissions.txt, line %d: %v", n+1, err))
		}
	}
	return table
})

func readNeeds(table map[string]needs, words []string) error {
	if len(words) < 3 {
		return fmt.Errorf("too short")
	}
	service, resource := words[0], words[1]
	if words[2] == "<" {
		key := service + " " + resource
		have, ok := table[key]
		if !ok {
			return fmt.Errorf("%s is not there yet", key)
		}
		kind := resource[:strings.LastIndex(resource, ".")]
		for _, w := range words[3:] {
			if path, uses := strings.CutSuffix(w, "*"); uses {
				have.fields = append(have.fields, fieldNeed{path: path})
				continue
			}
			path, p, ok := strings.Cut(w, ":")
			if !ok {
				return fmt.Errorf("%q says no permission", w)
			}
			have.fields = append(have.fields, fieldNeed{path, fullPermission(service, kind, p)})
		}
		table[key] = have
		return nil
	}
	for _, w := range words[2:] {
		verb, said, given := strings.Cut(w, "=")
		if !given {
			said = verb
		}
		var n needs
		if said != "-" {
			for p := range strings.SplitSeq(said, "+") {
				n.always = append(n.always, fullPermission(service, resource, p))
			}
		}
		table[service+" "+resource+"."+verb] = n
	}
	return nil
}

func fullPermission(service, resource, p string) string {
	if strings.Contains(p, ".") {
		return p
	}
	return service + "." + resource[strings.LastIndex(resource, ".")+1:] + "." + p
}

// permissions are what the caller of a request needs. It is called without the world's lock.
func (c *Cloud) permissions(r *request) []string {
	n := permissionTable()[r.api.service+" "+r.method.ID]
	var out []string
	if project := projectIn(r.Path); project == "" || !publicRead(r, project) {
		out = slices.Clone(n.always)
	}
	c.World.Lock()
	defer c.World.Unlock()
	for _, f := range n.fields {
		for _, v := range fieldValues(r.Body, f.path) {
			p := f.permission
			if p == "" {
				link, _ := v.(string)
				p = c.usePermission(r.Project.ID, link)
			}
			if p != "" && !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	if r.api.service == "compute" {
		out = append(out, c.compute.morePermissions(r)...)
	}
	if r.HTTP != nil && r.HTTP.Header.Get("X-Goog-User-Project") != "" {
		out = append(out, "serviceusage.services.use") // "Set the quota project"
	}
	return out
}

// fieldValues are the values in a document at a path, those that are empty left away.
func fieldValues(v any, path string) []any {
	if path == "" {
		switch x := v.(type) {
		case nil:
			return nil
		case string:
			if x == "" {
				return nil
			}
		case bool:
			if !x {
				return nil
			}
		case map[string]any:
			if len(x) == 0 {
				return nil
			}
		}
		return []any{v}
	}
	first, rest, _ := strings.Cut(path, ".")
	name, list := strings.CutSuffix(first, "[]")
	d, _ := v.(map[string]any)
	if !list {
		return fieldValues(d[name], rest)
	}
	var out []any
	items, _ := d[name].([]any)
	for _, item := range items {
		out = append(out, fieldValues(item, rest)...)
	}
	return out
}

// uses are how a permission to use an object of Compute Engine is called where it is not use.
var uses = map[string]string{"healthChecks": "useReadOnly", "images": "useReadOnly", "instanceTemplates": "useReadOnly", "sslCertificates": "get"}

// regionalKinds have permissions of their own where they are regional.
var regionalKinds = []string{"backendServices", "healthChecks", "sslCertificates", "sslPolicies", "targetHttpProxies", "targetHttpsProxies", "targetTcpProxies", "urlMaps"}

// usePermission is what is needed to use what a link names; "" for what everybody may use.
func (c *Cloud) usePermission(project, link string) string {
	path := c.pathOfLink(project, link)
	if path == "" {
		path = c.compute.addressAt(project, link)
	}
	parts := strings.Split(path, "/")
	if len(parts) < 4 || slices.Contains(imageProjects, parts[1]) {
		return ""
	}
	kind := parts[3]
	if parts[2] == "regions" || parts[2] == "zones" {
		if len(parts) < 6 {
			return ""
		}
		kind = parts[4]
	}
	verb := uses[kind]
	if verb == "" {
		verb = "use"
	}
	switch {
	case parts[2] == "regions" && slices.Contains(regionalKinds, kind):
		kind = "region" + strings.ToUpper(kind[:1]) + kind[1:]
	case parts[2] == "global" && kind == "addresses":
		kind = "globalAddresses"
	case kind == "addresses" && c.compute.internalAddress(path):
		verb = "useInternal"
	}
	return "compute." + kind + "." + verb
}

// addressAt is the path of the address that a project has reserved; "" if it has not.
func (e *Compute) addressAt(project, ip string) string {
	for path, res := range e.st.Resources {
		if (res.Collection == "addresses" || res.Collection == "globalAddresses") && res.project() == project && ip != "" && str(res.Doc, "address") == ip {
			return path
		}
	}
	return ""
}

func (e *Compute) internalAddress(path string) bool {
	res := e.st.Resources[path]
	return res != nil && str(res.Doc, "addressType") == "INTERNAL"
}

// morePermissions are those that hang on what the object is: internal addresses have permissions of their own ("Compute Engine IAM
// roles and permissions"), and whoever changes the metadata of a machine can act as its service account.
func (e *Compute) morePermissions(r *request) []string {
	collection, verb, _ := strings.Cut(r.method.ID, ".")
	switch {
	case (collection == "addresses" || collection == "globalAddresses") && verb == "insert":
		if str(r.Body, "addressType") == "INTERNAL" {
			return []string{"compute." + collection + ".createInternal"}
		}
		return []string{"compute." + collection + ".create"}
	case (collection == "addresses" || collection == "globalAddresses") && verb == "delete":
		if e.internalAddress(named(r.match())[0]) {
			return []string{"compute." + collection + ".deleteInternal"}
		}
		return []string{"compute." + collection + ".delete"}
	case r.method.ID == "instances.setMetadata":
		if res := e.st.Resources[named(r.match())[0]]; res != nil && len(list(res.Doc, "serviceAccounts")) > 0 {
			return []string{"iam.serviceAccounts.actAs"}
		}
	}
	return nil
}

// missingPermission refuses a caller who lacks one, in the words of the service, if there is one that the caller lacks.
func (c *Cloud) missingPermission(r *request) *Error {
	p := c.World.Denied(r.Call)
	if p == "" {
		return nil
	}
	resource := "projects/" + r.Project.ID
	for _, n := range []string{"name", "parent", "resource"} {
		if v := r.Path[n]; strings.Contains(v, "/") {
			resource = v
		}
	}
	info := []any{Doc{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "IAM_PERMISSION_DENIED", "domain": r.host(),
		"metadata": Doc{"permission": p, "resource": resource}}}
	deny := func(format string, args ...any) *Error {
		return &Error{HTTP: 403, Reason: "forbidden", Status: "PERMISSION_DENIED", Message: fmt.Sprintf(format, args...), Details: info}
	}
	switch r.api.service {
	case "compute":
		if at := named(r.match()); len(at) > 0 && !strings.HasSuffix(r.method.ID, ".list") {
			resource = at[0]
		}
		return refuse(403, "forbidden", "Required '%s' permission for '%s'", p, resource)
	case "container":
		return deny("Required %q permission(s) for \"projects/%s\".", p, r.Project.ID)
	case "sqladmin":
		return sqlDenied(r, r.Project.ID)
	case "dns":
		return refuse(403, "forbidden", "Forbidden")
	case "redis", "memorystore":
		return deny("Permission '%s' denied on '%s'.", p, resource)
	case "secretmanager":
		return deny("Permission '%s' denied for resource '%s' (or it may not exist).", p, resource)
	case "monitoring":
		return deny("Permission %s denied (or the resource may not exist).", p)
	case "cloudresourcemanager":
		return deny("The caller does not have permission")
	}
	return deny("Permission '%s' denied on resource '%s' (or it may not exist).", p, resource)
}
