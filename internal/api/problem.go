package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/access/oidc"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/provision"
)

// A Problem is an RFC 9457 problem document.
type Problem struct {
	Type      string           `json:"type" format:"uri-reference" doc:"Stable name of the kind of problem; a page that explains it"`
	Code      string           `json:"code" doc:"The last part of type"`
	Title     string           `json:"title" doc:"The kind of problem in words"`
	Status    int              `json:"status" doc:"The HTTP status"`
	Detail    string           `json:"detail" doc:"What is wrong this time"`
	Hint      string           `json:"hint,omitempty" doc:"What to do about it"`
	Errors    []job.FieldError `json:"errors,omitempty" doc:"Each field at fault, and its fix"`
	Job       string           `json:"job,omitempty" doc:"The job that stands in the way"`
	Instance  string           `json:"instance,omitempty" format:"uri-reference" doc:"The request's path"`
	RequestID string           `json:"requestId,omitempty" doc:"Names this request in the server's log"`

	header http.Header
}

func (p *Problem) Error() string { return p.Detail }

// GetStatus is the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders are further headers of the answer.
func (p *Problem) GetHeaders() http.Header { return p.header }

// ContentType is the media type of problem documents.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// A kind says how a kind of problem is answered and explained.
type kind struct {
	status int
	title  string
	help   string // for the page that type points to
}

// The kinds that only HTTP has.
const (
	tooLarge         provision.Kind = "too-large"
	unsupportedMedia provision.Kind = "unsupported-media-type"
	methodNotAllowed provision.Kind = "method-not-allowed"
	tooManyStreams   provision.Kind = "too-many-streams"
	timedOut         provision.Kind = "timed-out"
	unavailable      provision.Kind = "unavailable"
	internal         provision.Kind = "internal"
	noSuchPath       provision.Kind = "no-such-path"
)

var kinds = map[provision.Kind]kind{
	provision.Invalid:            {422, "Invalid request", "A field of the request is wrong. errors names each one, with what to put instead."},
	provision.Malformed:          {400, "Malformed request", "The body is not a JSON document that can be read. detail says where it goes wrong."},
	provision.CustomerDatabase:   {422, "Customer database", "The provisioner never changes a datastore, even one that it created. hint has the cloud's own command."},
	provision.NotFound:           {404, "Not found", "There is no such thing in your organisation, or not under this ID or name."},
	provision.Ambiguous:          {409, "Ambiguous", "What was given fits several jobs or spaces. Use the whole ID."},
	provision.NameTaken:          {409, "Name taken", "Something of the same kind has the name: another live job of the resource type (job says which), a space, a namespace."},
	provision.WrongState:         {409, "Wrong state", "The state of the job, or of what it is about, does not take this. detail says what the state is, hint what it takes."},
	provision.KeyReused:          {409, "Idempotency key used", "The idempotency key stands for a request with another body. A new request needs a new key."},
	provision.ConfirmationNeeded: {409, "Confirmation needed", "The act takes something that is protected. Repeat it with ?confirm= and the job's name."},
	provision.PreconditionFailed: {412, "Precondition failed", "The job changed since you read it: If-Match does not name its present revision."},
	provision.Forbidden:          {403, "Forbidden", "Your roles do not have the policy that this needs; hint says which roles do."},
	provision.Unauthenticated:    {401, "Not signed in", "The request needs the header Authorization: Bearer with a valid token."},
	provision.CloudNotAvailable:  {503, "Cloud not available", "The cloud could not be asked: it does not answer, or it refuses the credentials of the cloud account."},
	tooLarge:                     {413, "Body too large", "A request body has 1 MiB at most."},
	unsupportedMedia:             {415, "Unsupported media type", "Send the body as application/json."},
	methodNotAllowed:             {405, "Method not allowed", "The path exists, and does not take this method. The header Allow lists those that it takes."},
	tooManyStreams:               {429, "Too many event streams", "This server has as many event streams open as it takes. Close some, or poll the events as JSON."},
	tooManyRequests:              {429, "Too many requests", "The address, or the token, sends more than this server takes. Retry-After says for how long to wait; the RateLimit headers say beforehand what is left."},
	tooManyHeaders:               {431, "Too many header fields", "A request has 100 header fields at most."},
	queryTooLong:                 {414, "Query too long", "A query has 8 KiB and 100 values at most. Ask several times instead of once for everything."},
	timedOut:                     {504, "Timed out", "The answer took longer than the server waits. A change may or may not have been made: look before you repeat it."},
	unavailable:                  {503, "Not available now", "The database, or an issuer of tokens, does not answer at this moment. The same request may well pass a little later."},
	internal:                     {500, "Internal error", "Something went wrong here. The request ID finds it in the server's log."},
	noSuchPath:                   {404, "No such path", "There is nothing under this path. /docs lists what there is."},
}

func newProblem(k provision.Kind, detail, hint string) *Problem {
	is, ok := kinds[k]
	if !ok {
		k, is = internal, kinds[internal]
	}
	p := &Problem{Type: "/problems/" + string(k), Code: string(k), Title: is.title, Status: is.status, Detail: detail, Hint: hint}
	if k == provision.Unauthenticated {
		p.header = http.Header{"Www-Authenticate": {`Bearer realm="zopday"`}}
	}
	return p
}

// problem puts an error into a problem document. What is not for the caller
// goes to the log, under the request's ID.
func (s *server) problem(ctx context.Context, err error) *Problem {
	var (
		p    *Problem
		r    *provision.Refusal
		down *oidc.UnavailableError
	)
	switch {
	case errors.As(err, &p):
	case errors.As(err, &r):
		if r.Kind == provision.Unauthenticated {
			s.Metrics.Unauthenticated()
		}
		p = newProblem(r.Kind, r.Error(), r.Hint)
		p.Errors, p.Job = r.Fields, r.Job
		if r.Cause != nil {
			s.Log.DebugContext(ctx, "request refused", "request", provision.RequestID(ctx), "kind", string(r.Kind), "cause", redacted(r.Cause))
		}
	case errors.As(err, &down):
		s.Log.WarnContext(ctx, "an issuer does not answer", "request", provision.RequestID(ctx), "issuer", down.Issuer, "error", redacted(down.Unwrap()))
		p = newProblem(unavailable, down.Error(), "Send the request again in a minute; the server's log says what is wrong.")
		p.header = http.Header{"Retry-After": {"30"}}
	case errors.Is(err, access.ErrUnauthenticated):
		s.Metrics.Unauthenticated()
		p = newProblem(provision.Unauthenticated, err.Error(), "Send the header Authorization: Bearer with a valid token.")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		p = newProblem(timedOut, "the answer took too long", "Look at what happened before you send it again.")
	case db.Transient(err):
		s.Log.WarnContext(ctx, "database not available", "request", provision.RequestID(ctx), "error", redacted(err))
		p = newProblem(unavailable, "the database does not answer at this moment", "Send the request again in a few seconds.")
		p.header = http.Header{"Retry-After": {"5"}}
	default:
		s.Log.ErrorContext(ctx, "request failed", "request", provision.RequestID(ctx), "error", redacted(err))
		p = newProblem(internal, "something went wrong here", "The request ID finds it in the server's log.")
	}
	about, _ := ctx.Value(pathKey{}).(string)
	p.RequestID, p.Instance = provision.RequestID(ctx), about
	return p
}

// redacted is an error's text for the log. What failed may name what a caller wrote,
// such as a part of the path, and that may be a token in the wrong place.
func redacted(err error) string {
	if err == nil {
		return ""
	}
	return access.Redact(err.Error())
}

type pathKey struct{}

// writeProblem answers before Huma's own machinery does.
func writeProblem(hc huma.Context, p *Problem) {
	for k, vs := range p.header {
		for _, v := range vs {
			hc.AppendHeader(k, v)
		}
	}
	hc.SetHeader("Content-Type", p.ContentType(""))
	hc.SetStatus(p.Status)
	_ = json.NewEncoder(hc.BodyWriter()).Encode(p) // the caller has gone: nobody is left to tell
}

func init() {
	// Huma keeps one constructor of errors for the process, and one word on
	// whether a list may be null; this package is its only user in the binary.
	huma.DefaultArrayNullable = false
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		return fromHuma(context.Background(), status, msg, errs...)
	}
	huma.NewErrorWithContext = func(hc huma.Context, status int, msg string, errs ...error) huma.StatusError {
		return fromHuma(hc.Context(), status, msg, errs...)
	}
}

// fromHuma turns what Huma finds wrong with parameters into a Problem. Values
// are left out: they may be what nobody should read.
func fromHuma(ctx context.Context, status int, msg string, errs ...error) *Problem {
	k := internal
	switch status {
	case 400:
		k = provision.Malformed
	case 413:
		k = tooLarge
	case 415:
		k = unsupportedMedia
	case 422:
		k = provision.Invalid
	}
	p := newProblem(k, msg, kinds[k].help)
	if k == internal {
		p.Detail = "something went wrong here"
	}
	for _, err := range errs {
		var d huma.ErrorDetailer
		if !errors.As(err, &d) {
			continue
		}
		detail := d.ErrorDetail()
		_, field, _ := strings.Cut(detail.Location, ".")
		p.Errors = append(p.Errors, job.FieldError{Field: clip(field, 120), Message: clip(detail.Message, 300), Fix: "see /docs for what it takes, or leave it out"})
	}
	if k == provision.Invalid && len(p.Errors) > 0 {
		p.Detail = p.Errors[0].Field + ": " + p.Errors[0].Message
	}
	about, _ := ctx.Value(pathKey{}).(string)
	p.RequestID, p.Instance = provision.RequestID(ctx), about
	return p
}

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
