package azure

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A guard is the way out of an account in which nothing may be changed. It stands
// below everything else, so that no part of the program can send past it: whatever
// is not known to read does not leave.
type guard struct {
	policy.Transporter
	code, why string
}

// The codes by which a job stops that would change something there.
const (
	codeReadOnly = "read-only-account"
	codeHolder   = "wrong-account"
)

// guarded is the way out of an account: free, for reads alone, or for reads alone
// because its credentials are another subscription's by now (failure kind F5).
func guarded(next policy.Transporter, a cloud.Account, subscription string) policy.Transporter {
	switch {
	case a.ReadOnly:
		return guard{next, codeReadOnly, "cloud account " + called(a) + " is read-only, and this call changes something: it was not sent"}
	case a.Holder != "" && !same(a.Holder, subscription):
		return guard{next, codeHolder, fmt.Sprintf("cloud account %s was verified to be subscription %s, and is used in subscription %s now: the call was not sent", called(a), a.Holder, subscription)}
	}
	return next
}

// Do sends a request that reads.
func (t guard) Do(req *http.Request) (*http.Response, error) {
	service, op := action(req.Method, req.URL.Path)
	if reads(req.Method, service, op) {
		return t.Transporter.Do(req)
	}
	return nil, &pipeline.CloudError{Class: pipeline.Refused, Service: service, Op: op, Code: t.code, Message: t.why}
}

// reads reports whether a request is known to change nothing.
func reads(method, service, op string) bool {
	switch method {
	case http.MethodGet, http.MethodHead:
		return true
	case http.MethodPost:
		return slices.ContainsFunc(readByPost, func(known string) bool { return same(known, service+"/"+op) })
	}
	return false
}
