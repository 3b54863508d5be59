package gcp

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/pipeline"
)

// guard stands between a service's client and the wire, below everything else:
// what an account may not do never leaves, whatever the layers above think of it.
type guard struct {
	service string
	refuse  func(service, op string) *pipeline.FatalError
	next    http.RoundTripper
}

// postReads are the methods that change nothing although they are sent by POST,
// by service and method; what is regional has the name of what is not. Nothing else that is not a GET counts as a read: a new
// method has to be put down here.
var postReads = map[string][]string{
	serviceCompute: {"instanceGroupManagers.listManagedInstances", "instanceGroups.listInstances", "backendServices.getHealth"},
	serviceCRM:     {"projects.getIamPolicy", "projects.testIamPermissions"},
}

// reads reports whether a request is one that is known to change nothing. A
// statement of SQL is, if who sends it has looked at it.
func reads(service string, req *http.Request) (op string, ok bool) {
	op, _ = operation(service, req.Method, req.URL.Path)
	switch {
	case req.Method == http.MethodGet, req.Method == http.MethodHead:
		return op, true
	case req.Method != http.MethodPost:
		return op, false
	case service == serviceSQL && op == "instances.executeSql":
		return op, req.Context().Value(onlyReads{}) != nil
	}
	return op, slices.Contains(postReads[service], op)
}

// RoundTrip lets reads pass, and refuses everything else.
func (g guard) RoundTrip(req *http.Request) (*http.Response, error) {
	op, ok := reads(g.service, req)
	if ok {
		return g.next.RoundTrip(req)
	}
	if req.Body != nil {
		_ = req.Body.Close() // a RoundTripper has to; nothing was read
	}
	refused := g.refuse(g.service, op)
	return nil, &pipeline.CloudError{Class: pipeline.Refused, Service: g.service, Op: op, Message: refused.Error(), Err: refused}
}

// guarded puts what an account may not do before a wire.
func guarded(service string, a cloud.Account, project string, next http.RoundTripper) http.RoundTripper {
	switch {
	case a.Holder != "" && a.Holder != project:
		return guard{service, func(service, op string) *pipeline.FatalError { return notTheHolder(a, project, service, op) }, next}
	case a.ReadOnly:
		return guard{service, func(service, op string) *pipeline.FatalError { return readOnlyAccount(a, service, op) }, next}
	}
	return next
}

func readOnlyAccount(a cloud.Account, service, op string) *pipeline.FatalError {
	return pipeline.Fatal("read-only-account", fmt.Sprintf("cloud account %s is read-only, and %s %s changes something: it was not sent", a.ID, service, op),
		"Give the account the permission level read_write, or name another account in the job; then retry.").On("cloudAccountId")
}

// notTheHolder is for credentials that are another project's by now (failure kind F5).
func notTheHolder(a cloud.Account, project, service, op string) *pipeline.FatalError {
	return pipeline.Fatal("wrong-account",
		fmt.Sprintf("cloud account %s was verified to be project %s, and its credentials are used in project %s now: %s %s was not sent", a.ID, a.Holder, project, service, op),
		fmt.Sprintf("Restore the credentials of %s, or verify the account again; then retry.", a.Holder)).On("cloudAccountId")
}
