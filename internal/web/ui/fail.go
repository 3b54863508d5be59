package ui

import (
	"context"
	"errors"
	"net/http"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/provision"
)

// A Failure is what went wrong, for a person.
type Failure struct {
	Status  int
	Title   string
	Message string
	Hint    string
	Fields  []job.FieldError
	Job     string // the job that stands in the way
	Request string // finds it in the server's log
}

var statuses = map[provision.Kind]int{
	provision.Invalid: 422, provision.Malformed: 400, provision.CustomerDatabase: 422, provision.NotFound: 404, provision.Ambiguous: 409, provision.NameTaken: 409,
	provision.WrongState: 409, provision.KeyReused: 409, provision.ConfirmationNeeded: 409, provision.PreconditionFailed: 412, provision.Forbidden: 403,
	provision.Unauthenticated: 401, provision.CloudNotAvailable: 503,
	"too-many-requests": 429, // the API's own kind: too many wrong tokens
}

var titles = map[int]string{
	400: "That could not be read", 403: "You may not do this", 404: "Nothing is here", 409: "Not now", 412: "It was changed meanwhile", 422: "Something has to be put right",
	429: "Too many requests", 500: "Something went wrong here", 503: "Not available now", 504: "That took too long",
}

// Explain puts an error into words.
func Explain(ctx context.Context, err error) Failure {
	f := Failure{Status: http.StatusInternalServerError, Message: "This page could not be made.", Hint: "Try again. If it stays so, the request ID finds the reason in the server's log.", Request: provision.RequestID(ctx)}
	var r *provision.Refusal
	switch {
	case errors.As(err, &r):
		f.Message, f.Hint, f.Fields, f.Job = r.Error(), r.Hint, r.Fields, r.Job
		if f.Status = statuses[r.Kind]; f.Status == 0 {
			f.Status = http.StatusConflict
		}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		f.Status, f.Message, f.Hint = http.StatusGatewayTimeout, "The answer took longer than the server waits.", "Look at what happened before you send it again."
	case db.Transient(err):
		f.Status, f.Message, f.Hint = http.StatusServiceUnavailable, "The database does not answer at this moment.", "Try again in a few seconds."
	}
	f.Title = titles[f.Status]
	return f
}

// Refused reports whether an error is one that its form can show at its fields, and
// what it says.
func Refused(ctx context.Context, err error) (Failure, bool) {
	var r *provision.Refusal
	if !errors.As(err, &r) || r.Kind == provision.Forbidden || r.Kind == provision.NotFound || r.Kind == provision.Unauthenticated {
		return Failure{}, false
	}
	return Explain(ctx, err), true
}

// At is what is wrong with one field; "" if nothing is.
func (f Failure) At(field string) string {
	for _, e := range f.Fields {
		if e.Field == field {
			return e.Message + ": " + e.Fix
		}
	}
	return ""
}

// Fail tells on a page what went wrong.
func (m *Mux) Fail(p *Page, err error) {
	f := Explain(p.Ctx(), err)
	if f.Status >= 500 {
		m.d.Log.ErrorContext(p.Ctx(), "page failed", "request", f.Request, "path", p.R.URL.Path, "error", err)
	}
	var failed error
	if p.Partial() {
		failed = p.write(f.Status, failureCard(f))
	} else {
		failed = p.ShowAs(f.Status, Frame{Title: f.Title}, failureCard(f))
	}
	if failed != nil {
		m.d.Log.ErrorContext(p.Ctx(), "error page failed", "error", failed)
		http.Error(p.W, f.Message, f.Status)
	}
}
