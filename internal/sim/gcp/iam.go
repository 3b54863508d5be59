package gcp

import (
	"encoding/base64"
	"fmt"
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
	Keys                     map[string]*accountKey // by ID
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
	s.keyMethods(ops)
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

// memberAccount is the account, perhaps a deleted one, that a member of a policy stands for.
func (s *iamService) memberAccount(member string) *account {
	if _, uid, ok := strings.Cut(member, "?uid="); ok {
		return s.st.Accounts[uid]
	}
	if email, ok := strings.CutPrefix(member, "serviceAccount:"); ok {
		return s.live(email)
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
	for _, a := range s.inOrder("") {
		for _, id := range keysOf(a.Keys) {
			k := a.Keys[id]
			out = append(out, sim.Object{Account: a.Project, Kind: "service-account-key", ID: k.Name, Name: id, Parents: []string{a.path()}, Gone: !a.Deleted.IsZero(), Data: &k.Doc})
		}
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
		if key := segmentAfter(id, "keys"); key != "" && a.Keys[key] != nil {
			delete(a.Keys, key)
			return nil
		}
	}
	return fmt.Errorf("no object %s", id)
}
