package gcp

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

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
