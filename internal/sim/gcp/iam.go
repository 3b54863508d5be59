package gcp

import (
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// iamService is the simulated IAM: service accounts, their policies, and custom roles.
type iamService struct {
	cloud *Cloud
	st    iamState
}

type iamState struct {
	Seq       int
	Accounts  map[string]*account // by unique ID, deleted ones too
	Roles     map[string]*role    // custom ones, by name: projects/p/roles/r
	Furnished bool
}

// An account is a service account.
type account struct {
	Email, UniqueID, Project string
	Created                  time.Time
	Seq                      int
	Doc                      Doc
	Policy                   *policy
	// First is the hash of the document of an account that was there from the start.
	First string
	// Deleted is when it was deleted; it can be brought back for 30 days ("Undelete a service account").
	Deleted time.Time
}

func (a *account) path() string { return "projects/" + a.Project + "/serviceAccounts/" + a.Email }

const undeleteWindow = 30 * 24 * time.Hour

// maxAccounts is how many service accounts a project may have ("Quotas and limits", IAM).
const maxAccounts = 100

func newIAM(c *Cloud) *iamService {
	s := &iamService{cloud: c}
	c.World.DefineQuota(sim.Quota{Cloud: cloudName, Service: "iam", Code: "service-accounts-per-project", Name: "Service accounts per project", Default: maxAccounts,
		Unit: "Count", Adjustable: true, Global: true})
	c.World.Register(s)
	const sa = "projects.serviceAccounts."
	ops := map[string]operation{
		sa + "create": s.create, sa + "get": s.get, sa + "list": s.list, sa + "delete": s.delete, sa + "undelete": s.undelete, sa + "patch": s.patch,
		sa + "enable": s.able(false), sa + "disable": s.able(true), sa + "getIamPolicy": s.getPolicy, sa + "setIamPolicy": s.setPolicy,
		sa + "testIamPermissions": testPermissions,
		"projects.roles.create":   s.createRole, "projects.roles.get": s.getRole, "projects.roles.list": s.listRoles, "projects.roles.patch": s.patchRole,
		"projects.roles.delete": s.deleteRole, "projects.roles.undelete": s.undeleteRole, "roles.get": s.getPredefined, "roles.list": s.listPredefined,
	}
	for id, op := range ops {
		ops[id] = func(r *request) (any, error) {
			s.furnish()
			return op(r)
		}
	}
	c.add("iam/v1", &api{service: "iam", listErrors: true, ops: ops, denied: iamDenied})
	c.hooks.serviceAccount = s.usable
	c.policyMember = s.checkMember
	return s
}

// iamDenied: accounts are looked up by e-mail whatever the project, so that one in a foreign project is simply not there.
func iamDenied(r *request, _ string) *Error {
	if strings.Contains(r.Path["name"], "/serviceAccounts/") && !r.Mutating {
		return refuse(404, "notFound", "Unknown service account")
	}
	return &Error{HTTP: 403, Reason: "forbidden", Message: fmt.Sprintf("Permission 'iam.%s' denied on resource (or it may not exist).", strings.TrimPrefix(r.method.ID, "projects."))}
}

func (s *iamService) Cloud() string        { return cloudName }
func (s *iamService) Name() string         { return "iam" }
func (s *iamService) State() any           { return &s.st }
func (s *iamService) Event(string, string) {}

// Reset starts afresh.
func (s *iamService) Reset() {
	s.st = iamState{Accounts: map[string]*account{}, Roles: map[string]*role{}}
}

// furnish makes the accounts that projects have from the start: the one that machines run as by default, and one for a caller
// with a key file.
func (s *iamService) furnish() {
	if s.st.Furnished {
		return
	}
	s.st.Furnished = true
	for _, p := range s.cloud.opt.Projects {
		for _, a := range []struct{ email, name string }{
			{p.Number + "-compute@developer.gserviceaccount.com", "Compute Engine default service account"},
			{AdminAccount + "@" + p.ID + ".iam.gserviceaccount.com", "Administrator"},
		} {
			acc := s.make(p.ID, a.email, Doc{"displayName": a.name})
			acc.First, acc.Created = unchanged(acc.Doc), acc.Created.Add(-24*time.Hour)
		}
	}
}

func (s *iamService) make(project, email string, doc Doc) *account {
	s.st.Seq++
	id := "1" + s.cloud.World.ID("", 20, "0123456789")
	a := &account{Email: email, UniqueID: id, Project: project, Created: s.cloud.World.Now(), Seq: s.st.Seq, Doc: doc}
	doc["name"], doc["projectId"], doc["uniqueId"], doc["email"], doc["oauth2ClientId"] = a.path(), project, id, email, id
	a.touch()
	s.st.Accounts[id] = a
	return a
}

// touch gives an account a new etag.
func (a *account) touch() {
	delete(a.Doc, "etag")
	a.Doc["etag"] = etag(fingerprint(a.Doc))
}

func etag(v string) string { return base64.StdEncoding.EncodeToString([]byte(v))[:11] + "=" }

// live finds an account that exists by e-mail or unique ID.
func (s *iamService) live(key string) *account {
	if a := s.st.Accounts[key]; a != nil && a.Deleted.IsZero() {
		return a
	}
	for _, a := range s.st.Accounts {
		if a.Email == key && a.Deleted.IsZero() {
			return a
		}
	}
	return nil
}

// usable is how the rest of GCP finds an account: a fresh one is not there for some seconds ("Creating service accounts: you
// might have to wait"). A fault of kind hidden on service iam, operation ResolveServiceAccount, hides one from others alone.
func (s *iamService) usable(email string) (ServiceAccount, bool) {
	s.furnish()
	a := s.live(email)
	if a == nil {
		return ServiceAccount{}, false
	}
	call := &sim.Call{Cloud: cloudName, Service: "iam", Operation: "ResolveServiceAccount", Account: a.Project}
	if a.First == "" && !s.cloud.World.Visible(call, a.path(), a.Created, sim.ByList, "service-account "+a.Email) {
		return ServiceAccount{}, false
	}
	disabled := truth(a.Doc, "disabled")
	return ServiceAccount{Project: a.Project, Email: a.Email, UniqueID: a.UniqueID, Disabled: disabled}, true
}

// checkMember refuses a member of a policy that does not exist.
func (s *iamService) checkMember(member string) *Error {
	kind, name, ok := strings.Cut(member, ":")
	switch {
	case member == "allUsers", member == "allAuthenticatedUsers", kind == "principal", kind == "principalSet", kind == "deleted":
		return nil
	case !ok || !slices.Contains([]string{"user", "serviceAccount", "group", "domain", "projectOwner", "projectEditor", "projectViewer"}, kind):
		return &Error{HTTP: 400, Reason: "badRequest", Message: fmt.Sprintf("The member %s is of an unknown type. Please set a valid type prefix for the member.", member)}
	case kind == "serviceAccount" && strings.HasSuffix(name, ".iam.gserviceaccount.com") && !strings.HasPrefix(name, "service-"):
		domain := strings.TrimSuffix(name[strings.Index(name, "@")+1:], ".iam.gserviceaccount.com")
		if _, ours := s.cloud.project(domain); !ours {
			return nil // agents of Google's services
		}
		if _, found := s.usable(name); !found {
			return &Error{HTTP: 400, Reason: "badRequest", Message: fmt.Sprintf("Service account %s does not exist.", name)}
		}
	}
	return nil
}

// Objects lists accounts and custom roles; deleted ones are gone.
func (s *iamService) Objects() []sim.Object {
	var out []sim.Object
	for _, a := range s.inOrder("") {
		state := "ENABLED"
		if truth(a.Doc, "disabled") {
			state = "DISABLED"
		}
		out = append(out, sim.Object{Account: a.Project, Kind: "service-account", ID: a.path(), ARN: a.UniqueID, Name: a.Email, State: state,
			Description: str(a.Doc, "description") + " " + str(a.Doc, "displayName"), Pristine: a.First != "" && a.First == unchanged(a.Doc) && a.Policy == nil, Gone: !a.Deleted.IsZero(), Data: &a.Doc})
	}
	for _, name := range keysOf(s.st.Roles) {
		r := s.st.Roles[name]
		out = append(out, sim.Object{Account: segmentAfter(name, "projects"), Kind: "role", ID: name, Name: lastPart(name), State: str(r.Doc, "stage"),
			Description: str(r.Doc, "description") + " " + str(r.Doc, "title"), Gone: truth(r.Doc, "deleted"), Data: &r.Doc})
	}
	return out
}

// inOrder lists accounts of a project, or of all; deleted ones too.
func (s *iamService) inOrder(project string) []*account {
	var out []*account
	for _, a := range s.st.Accounts {
		if project == "" || a.Project == project {
			out = append(out, a)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Seq < out[j].Seq })
	return out
}

// SetState enables or disables an account.
func (s *iamService) SetState(id, state, _, _ string) error {
	for _, a := range s.inOrder("") {
		if a.path() == id && a.Deleted.IsZero() {
			switch state {
			case "DISABLED":
				a.Doc["disabled"] = true
			case "ENABLED":
				delete(a.Doc, "disabled")
			default:
				return fmt.Errorf("a service account is ENABLED or DISABLED, not %q", state)
			}
			a.touch()
			return nil
		}
	}
	return fmt.Errorf("no service account %s", id)
}

// Remove takes an account or role away for good.
func (s *iamService) Remove(id string) error {
	if _, ok := s.st.Roles[id]; ok {
		delete(s.st.Roles, id)
		return nil
	}
	for _, a := range s.inOrder("") {
		if a.path() == id && a.Deleted.IsZero() {
			delete(s.st.Accounts, a.UniqueID)
			return nil
		}
	}
	return fmt.Errorf("no object %s", id)
}

var accountID = regexp.MustCompile(`^[a-z]([-a-z0-9]*[a-z0-9])$`)

func badArgument(format string, args ...any) *Error {
	return &Error{HTTP: 400, Reason: "badRequest", Message: fmt.Sprintf(format, args...)}
}

func (s *iamService) create(r *request) (any, error) {
	id := str(r.Body, "accountId")
	switch {
	case len(id) < 6 || len(id) > 30:
		return nil, badArgument("The account ID \"%s\" does not have a length between 6 and 30.", id)
	case !accountID.MatchString(id):
		return nil, badArgument("The account ID \"%s\" is invalid: it must match [a-z]([-a-z0-9]*[a-z0-9]).", id)
	}
	in := sub(r.Body, "serviceAccount")
	if len(str(in, "displayName")) > 100 {
		return nil, badArgument("The display name must be at most 100 bytes long.")
	}
	if len(str(in, "description")) > 256 {
		return nil, badArgument("The description must be at most 256 bytes long.")
	}
	email := id + "@" + r.Project.ID + ".iam.gserviceaccount.com"
	path := "projects/" + r.Project.ID + "/serviceAccounts/" + email
	if s.live(email) != nil {
		return nil, &Error{HTTP: 409, Reason: "alreadyExists", Message: fmt.Sprintf("Service account %s already exists within project projects/%s.", id, r.Project.ID),
			Details: []any{Doc{"@type": "type.googleapis.com/google.rpc.ResourceInfo", "resourceName": path}}}
	}
	live := 0
	for _, a := range s.inOrder(r.Project.ID) {
		if a.Deleted.IsZero() && a.First == "" {
			live++
		}
	}
	if float64(live) >= s.cloud.quota("iam", "service-accounts-per-project", r.Project.ID, "") {
		return nil, &Error{HTTP: 429, Reason: "rateLimitExceeded", Message: "Maximum number of service accounts on project reached."}
	}
	doc := Doc{}
	for _, f := range []string{"displayName", "description"} {
		if v := str(in, f); v != "" {
			doc[f] = v
		}
	}
	a := s.make(r.Project.ID, email, doc)
	r.Make(a.path())
	return a.Doc, nil
}

// account finds the account that the request's path names; the project may be a dash.
func (s *iamService) account(r *request) (*account, error) {
	name := r.Path["name"] + r.Path["resource"]
	key := segmentAfter(name, "serviceAccounts")
	a := s.live(key)
	if a == nil || (segmentAfter(name, "projects") != "-" && a.Project != r.Project.ID) || (!r.Mutating && r.HTTP != nil && a.First == "" &&
		!s.cloud.World.Visible(r.Call, a.path(), a.Created, sim.ByID, "service-account "+a.Email)) {
		return nil, refuse(404, "notFound", "Unknown service account")
	}
	r.Touch(a.path())
	return a, nil
}

func (s *iamService) get(r *request) (any, error) {
	a, err := s.account(r)
	if err != nil {
		return nil, err
	}
	return a.Doc, nil
}

func (s *iamService) list(r *request) (any, error) {
	var items []Doc
	for _, a := range s.inOrder(r.Project.ID) {
		if a.Deleted.IsZero() && (a.First != "" || r.HTTP == nil || s.cloud.World.Visible(r.Call, a.path(), a.Created, sim.ByList, "service-account "+a.Email)) {
			items = append(items, a.Doc)
		}
	}
	return r.page(items, "accounts", 100)
}

// page is one page of a list as the younger APIs have it: pageSize and nextPageToken.
func (r *request) page(items []Doc, field string, limit int) (any, error) {
	page, next, err := pageOf(r, items, "pageSize", limit)
	if err != nil {
		return nil, badArgument("Invalid page token.")
	}
	out := Doc{}
	if len(page) > 0 {
		out[field] = page
	}
	if next != "" {
		out["nextPageToken"] = next
	}
	return out, nil
}

func (s *iamService) delete(r *request) (any, error) {
	a, err := s.account(r)
	if err != nil {
		return nil, err
	}
	a.Deleted = s.cloud.World.Now()
	for _, tell := range s.cloud.hooks.accountGone {
		tell(ServiceAccount{Project: a.Project, Email: a.Email, UniqueID: a.UniqueID})
	}
	return Doc{}, nil
}

// undelete brings an account back by its unique ID, unless another of its name has been made since.
func (s *iamService) undelete(r *request) (any, error) {
	key := segmentAfter(r.Path["name"], "serviceAccounts")
	a := s.st.Accounts[key]
	switch {
	case a == nil || a.Deleted.IsZero() || s.cloud.World.Now().After(a.Deleted.Add(undeleteWindow)):
		return nil, refuse(404, "notFound", "Service account with the unique ID %s was not found.", key)
	case s.live(a.Email) != nil:
		return nil, &Error{HTTP: 400, Reason: "failedPrecondition", Status: "FAILED_PRECONDITION", Message: "A service account with the same e-mail address exists: " + a.Email + "."}
	}
	a.Deleted = time.Time{}
	r.Make(a.path())
	return Doc{"restoredAccount": a.Doc}, nil
}

// patch changes what updateMask names. The answer holds only the name and what was changed.
func (s *iamService) patch(r *request) (any, error) {
	a, err := s.account(r)
	if err != nil {
		return nil, err
	}
	in := sub(r.Body, "serviceAccount")
	out := Doc{"name": a.path()}
	for f := range strings.SplitSeq(str(r.Body, "updateMask"), ",") {
		field := map[string]string{"display_name": "displayName", "displayName": "displayName", "description": "description"}[strings.TrimSpace(f)]
		if field == "" {
			if strings.TrimSpace(f) == "etag" {
				continue
			}
			return nil, badArgument("Invalid update mask: %s.", str(r.Body, "updateMask"))
		}
		if v := str(in, field); v != "" {
			a.Doc[field], out[field] = v, v
		} else {
			delete(a.Doc, field)
		}
	}
	a.touch()
	return out, nil
}

func (s *iamService) able(off bool) operation {
	return func(r *request) (any, error) {
		a, err := s.account(r)
		if err != nil {
			return nil, err
		}
		if delete(a.Doc, "disabled"); off {
			a.Doc["disabled"] = true
		}
		a.touch()
		return Doc{}, nil
	}
}

func (s *iamService) getPolicy(r *request) (any, error) {
	a, err := s.account(r)
	if err != nil {
		return nil, err
	}
	return a.Policy.shown(), nil
}

func (s *iamService) setPolicy(r *request) (any, error) {
	a, err := s.account(r)
	if err != nil {
		return nil, err
	}
	next, err := s.cloud.changePolicy(r, a.Policy)
	if err != nil {
		return nil, err
	}
	a.Policy = next
	return next.shown(), nil
}
