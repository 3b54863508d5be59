package gcp

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// A role is a custom role of a project.
type role struct {
	Doc     Doc
	Deleted time.Time
}

var (
	roleID     = regexp.MustCompile(`^[a-zA-Z0-9_.]{3,64}$`)
	permission = regexp.MustCompile(`^[a-z][a-zA-Z0-9]*\.[a-zA-Z0-9]+\.[a-zA-Z0-9]+$`)
)

// roleServices are the first parts of the predefined roles' names.
var roleServices = []string{"accessapproval", "artifactregistry", "autoscaling", "automl", "billing", "bigquery", "certificatemanager", "cloudasset", "cloudbuild", "cloudfunctions",
	"cloudkms", "cloudsql", "cloudtrace", "compute", "connectgateway", "container", "containeranalysis", "dns", "errorreporting", "gkehub", "iam", "iap", "logging", "memcache",
	"monitoring", "networkconnectivity", "networkmanagement", "opsconfigmonitoring", "osconfig", "oslogin", "pubsub", "redis", "resourcemanager", "run", "secretmanager",
	"securitycenter", "servicedirectory", "servicemanagement", "servicenetworking", "serviceusage", "stackdriver", "storage", "trafficdirector", "vpcaccess", "workstations"}

// predefinedExists says whether a name may be that of a predefined role: a basic one, or one of a known service.
func predefinedExists(name string) bool {
	short, ok := strings.CutPrefix(name, "roles/")
	if !ok {
		return false
	}
	if slices.Contains([]string{"owner", "editor", "viewer", "browser", "admin", "writer", "reader"}, short) {
		return true
	}
	service, rest, ok := strings.Cut(short, ".")
	return ok && rest != "" && slices.Contains(roleServices, service)
}

func (s *iamService) getPredefined(r *request) (any, error) {
	name := r.Path["name"]
	if !predefinedExists(name) {
		return nil, refuse(404, "notFound", "The role named %s was not found.", name)
	}
	return Doc{"name": name, "title": strings.TrimPrefix(name, "roles/"), "stage": "GA", "etag": "AA=="}, nil
}

func (s *iamService) listPredefined(r *request) (any, error) {
	var items []Doc
	for _, n := range []string{"roles/browser", "roles/editor", "roles/owner", "roles/viewer"} {
		items = append(items, Doc{"name": n, "title": strings.TrimPrefix(n, "roles/"), "stage": "GA", "etag": "AA=="})
	}
	return r.page(items, "roles", 1000)
}

// checkPermissions refuses what is no permission.
func checkPermissions(doc Doc) error {
	for _, p := range texts(doc, "includedPermissions") {
		if !permission.MatchString(p) {
			return badArgument("Permission %s is not valid.", p)
		}
	}
	return nil
}

func (s *iamService) createRole(r *request) (any, error) {
	id := str(r.Body, "roleId")
	if !roleID.MatchString(id) {
		return nil, badArgument("The role ID %s is invalid: it must match [a-zA-Z0-9_\\.]{3,64}.", id)
	}
	name := r.Path["parent"] + "/roles/" + id
	if old := s.st.Roles[name]; old != nil {
		if truth(old.Doc, "deleted") {
			return nil, &Error{HTTP: 400, Reason: "failedPrecondition", Status: "FAILED_PRECONDITION", Message: "You can't create a role with the same ID as a role that was deleted lately (" + name + "); undelete it."}
		}
		return nil, refuse(409, "alreadyExists", "A role named %s in %s already exists.", id, r.Path["parent"])
	}
	doc := clone(sub(r.Body, "role"))
	if doc == nil {
		doc = Doc{}
	}
	if err := checkPermissions(doc); err != nil {
		return nil, err
	}
	doc["name"] = name
	setDefault(doc, "stage", "ALPHA")
	s.tagRole(doc)
	s.st.Roles[name] = &role{Doc: doc}
	r.Make(name)
	return doc, nil
}

func (s *iamService) tagRole(doc Doc) {
	delete(doc, "etag")
	doc["etag"] = etag(fingerprint([]any{doc, s.cloud.World.Now()}))
}

func (s *iamService) role(r *request) (*role, error) {
	ro := s.st.Roles[r.Path["name"]]
	if ro == nil {
		return nil, refuse(404, "notFound", "The role named %s was not found.", r.Path["name"])
	}
	r.Touch(r.Path["name"])
	return ro, nil
}

func (s *iamService) getRole(r *request) (any, error) {
	ro, err := s.role(r)
	if err != nil {
		return nil, err
	}
	return ro.Doc, nil
}

func (s *iamService) listRoles(r *request) (any, error) {
	var items []Doc
	for _, name := range keysOf(s.st.Roles) {
		doc := s.st.Roles[name].Doc
		if strings.HasPrefix(name, r.Path["parent"]+"/") && (!truth(doc, "deleted") || r.Query.Get("showDeleted") == "true") {
			shown := clone(doc)
			if r.Query.Get("view") != "FULL" {
				delete(shown, "includedPermissions")
			}
			items = append(items, shown)
		}
	}
	return r.page(items, "roles", 1000)
}

func (s *iamService) patchRole(r *request) (any, error) {
	ro, err := s.role(r)
	if err != nil {
		return nil, err
	}
	if tag := str(r.Body, "etag"); tag != "" && tag != str(ro.Doc, "etag") {
		return nil, &Error{HTTP: 409, Reason: "aborted", Status: "ABORTED", Message: "There were concurrent changes of the role " + r.Path["name"] + "."}
	}
	if err := checkPermissions(r.Body); err != nil {
		return nil, err
	}
	mask := r.Query.Get("updateMask")
	for _, f := range []string{"title", "description", "includedPermissions", "stage"} {
		if v, said := r.Body[f]; said && (mask == "" || strings.Contains(snake(mask), snake(f))) {
			ro.Doc[f] = v
		}
	}
	s.tagRole(ro.Doc)
	return ro.Doc, nil
}

// deleteRole marks a role as deleted; it is gone for good 44 days later and its ID is held until then ("Deleting a custom role").
func (s *iamService) deleteRole(r *request) (any, error) {
	ro, err := s.role(r)
	if err != nil {
		return nil, err
	}
	ro.Doc["deleted"], ro.Deleted = true, s.cloud.World.Now()
	s.tagRole(ro.Doc)
	return ro.Doc, nil
}

func (s *iamService) undeleteRole(r *request) (any, error) {
	ro, err := s.role(r)
	if err != nil {
		return nil, err
	}
	if !truth(ro.Doc, "deleted") {
		return nil, badArgument("The role named %s is not deleted.", r.Path["name"])
	}
	delete(ro.Doc, "deleted")
	ro.Deleted = time.Time{}
	s.tagRole(ro.Doc)
	return ro.Doc, nil
}
