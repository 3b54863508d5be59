package azure

import (
	"net/http"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/zopday/provisioner/internal/pipeline"
)

// readOnly is the way out of an account that may only read. It stands below
// everything else, so that no part of the program can send past it: whatever is
// not known to read does not leave.
type readOnly struct {
	policy.Transporter
	account string
}

// codeReadOnly is how a job stops that would change something in such an account.
const codeReadOnly = "read-only-account"

// Do sends a request that reads.
func (t readOnly) Do(req *http.Request) (*http.Response, error) {
	service, op := action(req.Method, req.URL.Path)
	if reads(req.Method, service, op) {
		return t.Transporter.Do(req)
	}
	return nil, &pipeline.CloudError{
		Class: pipeline.Refused, Service: service, Op: op, Code: codeReadOnly,
		Message: "cloud account " + t.account + " is read-only, and this call changes something: it was not sent",
	}
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
