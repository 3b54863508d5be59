package gcp

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/pipeline"
)

// An answer is what a service says when it refuses: the envelopes of all of
// them, which differ ("Errors", API design guide; "Troubleshooting API errors",
// Compute Engine).
type answer struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Status  string `json:"status"`
	Errors  []struct {
		Reason  string `json:"reason"`
		Message string `json:"message"`
	} `json:"errors"`
	Details []struct {
		Type     string          `json:"@type"`
		Reason   string          `json:"reason"`
		Metadata json.RawMessage `json:"metadata"`
	} `json:"details"`
}

// codes are the words that the answer gives for what went wrong, the most exact first.
func (a answer) codes() []string {
	var out []string
	for _, d := range a.Details {
		if d.Reason != "" {
			out = append(out, d.Reason)
		}
	}
	for _, e := range a.Errors {
		if e.Reason != "" {
			out = append(out, e.Reason)
		}
	}
	if a.Status != "" {
		out = append(out, a.Status)
	}
	return out
}

// parseAnswer reads an error envelope; false if the body is none.
func parseAnswer(body []byte) (answer, bool) {
	type envelope struct {
		Error json.RawMessage `json:"error"`
		About string          `json:"error_description"` // of the OAuth service
	}
	var e envelope
	if json.Unmarshal(body, &e) != nil {
		var several []envelope
		if json.Unmarshal(body, &several) != nil || len(several) == 0 {
			return answer{}, false
		}
		e = several[0]
	}
	var a answer
	var code string
	switch {
	case json.Unmarshal(e.Error, &a) == nil:
	case json.Unmarshal(e.Error, &code) == nil:
		a = answer{Status: code, Message: e.About}
	default:
		return answer{}, false
	}
	if a.Message == "" && len(a.Errors) > 0 {
		a.Message = a.Errors[0].Message
	}
	return a, a.Message != "" || len(a.codes()) > 0
}

// classifyAnswer turns a refusal into the one error that the rest of the program
// knows.
func classifyAnswer(service, op string, req *http.Request, resp *http.Response, body []byte) *pipeline.CloudError {
	ce := &pipeline.CloudError{
		Service: service, Op: op, Sent: true, RetryAfter: retryAfter(resp.Header),
		RequestID: resp.Header.Get("X-Goog-Request-Id"),
	}
	a, readable := parseAnswer(body)
	if !readable {
		ce.Class = classOfStatus(resp.StatusCode)
		ce.Message = "HTTP status " + strconv.Itoa(resp.StatusCode) + " without an error that can be read"
		return ce
	}
	ce.Message = a.Message
	ce.Class, ce.Code = classOf(op, resp.StatusCode, a.Message, a.codes())
	if ce.Class == pipeline.Denied {
		ce.Message = a.named(service, op)
	}
	if ce.Class == pipeline.NotFound && req != nil && missesParent(req, a.Message) {
		ce.Class = pipeline.Invalid
	}
	return ce
}

// missesParent reports whether a not-found is about something that the object
// asked for would lie in, such as the project. It proves nothing of the object:
// taken for its absence, it would end a teardown that has not begun.
func missesParent(req *http.Request, message string) bool {
	if req.Method != http.MethodGet && req.Method != http.MethodDelete {
		return false
	}
	_, rest, ok := strings.Cut(message, "The resource 'projects/")
	if !ok {
		return false
	}
	named, _, ok := strings.Cut(rest, "'")
	return ok && base("/"+named) != base(req.URL.Path)
}

// classifyTransport is the meaning of a request that was not answered.
func classifyTransport(service, op string, sent bool, err error) *pipeline.CloudError {
	ce := &pipeline.CloudError{Class: pipeline.Unavailable, Service: service, Op: op, Sent: sent, Err: err}
	var ne net.Error
	switch {
	case errors.Is(err, context.Canceled):
		ce.Message = "the call was cancelled"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &ne) && ne.Timeout():
		ce.Message = "no answer in time"
	default:
		ce.Message = innermost(err)
	}
	return ce
}

// neverLeft reports whether the connection was never made, so that nothing can
// have happened.
func neverLeft(err error) bool {
	var oe *net.OpError
	var dns *net.DNSError
	return errors.As(err, &dns) || errors.As(err, &oe) && oe.Op == "dial"
}

// innermost is the text at the root of an error, without the wrapping.
func innermost(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err.Error()
		}
		err = next
	}
}

// retryAfter is what the cloud asked for, in seconds or as a date.
func retryAfter(h http.Header) time.Duration {
	v := h.Get("Retry-After")
	if s, err := strconv.Atoi(v); err == nil && s > 0 {
		return time.Duration(s) * time.Second
	}
	if at, err := http.ParseTime(v); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}

// absent is the error for an object that a list did not hold.
func absent(service, op, what string) error {
	return &pipeline.CloudError{Class: pipeline.NotFound, Service: service, Op: op, Message: what + " is not there", Sent: true}
}

// explained is a refusal for want of rights with what to do about it: who may not
// is told by the permission's name, and an organisation's policy or a missing
// billing account are no matter of permissions.
func explained(err error) error {
	var ce *pipeline.CloudError
	var fatal *pipeline.FatalError
	if errors.As(err, &fatal) || !errors.As(err, &ce) || ce.Class != pipeline.Denied {
		return err
	}
	hint := "Grant the credentials of this cloud account a role that allows " + ce.Service + " " + ce.Op + ", then retry."
	lower := strings.ToLower(ce.Message)
	switch p := permissionIn(ce.Message); {
	case p != "":
		hint = "Grant the credentials of this cloud account a role with " + p + " (gcloud projects add-iam-policy-binding), then retry."
	case strings.Contains(lower, "constraint"):
		hint = "Have the administrator of the organisation's policies allow it for this project, then retry."
	case strings.Contains(lower, "billing"):
		hint = "Link the project to a billing account that is open, then retry."
	}
	return pipeline.Fatal("permission-denied", ce.Error(), hint).From(ce)
}
