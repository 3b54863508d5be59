package provision

import (
	"fmt"
	"strings"

	"github.com/zopday/provisioner/internal/job"
)

// Kind is the stable name of a reason for which a request is refused.
type Kind string

// The kinds of refusal.
const (
	Invalid             Kind = "invalid"              // a field is wrong; Fields names it
	Malformed           Kind = "malformed"            // the body is not what it says it is
	CustomerDatabase    Kind = "customer-database"    // the provisioner never changes a datastore
	NotFound            Kind = "not-found"            // there is no such thing in the caller's organisation
	Ambiguous           Kind = "ambiguous"            // a prefix or a name fits several jobs
	NameTaken           Kind = "name-taken"           // a live job has the name
	WrongState          Kind = "wrong-state"          // the job's state does not take this
	KeyReused           Kind = "idempotency-key-used" // the idempotency key stands for another body
	ConfirmationNeeded  Kind = "confirmation-needed"  // the act needs the job's name, typed
	PreconditionFailed  Kind = "precondition-failed"  // If-Match does not name the current revision
	Forbidden           Kind = "forbidden"            // the caller lacks a policy
	Unauthenticated     Kind = "unauthenticated"      // the caller has no valid token
	CloudNotAvailable   Kind = "cloud-unavailable"    // the cloud does not answer, or refuses the credentials
	NothingProvisioning Kind = "not-available"        // this server has no cloud to ask
)

// A Refusal is a request that was understood and is not carried out, with the
// reason and what to do about it.
type Refusal struct {
	Kind    Kind
	Message string           // what is wrong
	Hint    string           // what to do
	Fields  []job.FieldError // the fields at fault
	Job     string           // the job that stands in the way, if one does
	Cause   error            // for the log
}

func (e *Refusal) Error() string {
	if e.Message != "" || len(e.Fields) == 0 {
		return e.Message
	}
	parts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		parts[i] = f.Field + ": " + f.Message
	}
	return strings.Join(parts, "; ")
}

func (e *Refusal) Unwrap() error { return e.Cause }

func refuse(kind Kind, hint, format string, args ...any) *Refusal {
	return &Refusal{Kind: kind, Message: fmt.Sprintf(format, args...), Hint: hint}
}

// invalid refuses a request for its fields.
func invalid(fields ...job.FieldError) *Refusal {
	r := &Refusal{Kind: Invalid, Fields: fields}
	switch len(fields) {
	case 0:
	case 1:
		r.Message = sentence(fields[0])
		r.Hint = fields[0].Fix
	default:
		r.Message = fmt.Sprintf("%d fields are wrong; the first is %s", len(fields), sentence(fields[0]))
		r.Hint = "Put each of them right as its fix says, and send the request again."
	}
	return r
}

func sentence(f job.FieldError) string { return f.Field + ": " + f.Message }
