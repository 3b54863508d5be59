package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/provision"
)

// What a request may bring along besides its body. What is larger than the whole
// header may be, net/http refuses itself with 431.
const (
	maxHeaderFields = 100
	maxQuery        = 8 << 10 // bytes
	maxQueryValues  = 100
	// maxBuffered is what all bodies that are read at one moment may hold together.
	maxBuffered = 256 << 20
)

// The kinds of problems that only the way in has.
const (
	queryTooLong    provision.Kind = "query-too-long"
	tooManyHeaders  provision.Kind = "too-many-headers"
	tooManyRequests provision.Kind = "too-many-requests"
)

// onlyOnce are the header fields that mean something here and must not be there
// twice: which of the two counts, a proxy in front may see otherwise.
var onlyOnce = []string{"Authorization", "Content-Encoding", "Content-Length", "Content-Type", "Idempotency-Key", "If-Match", "Last-Event-Id", "Origin", "X-Request-Id", "X-Forwarded-Proto"}

// A caller is what is known of who sends a request, as it goes on.
type caller struct {
	from  string // the address, as rates are counted
	known bool   // the request had a valid token
}

type callerKey struct{}

// callerOfRequest is the caller of a request's context.
func callerOfRequest(ctx context.Context) *caller {
	if c, ok := ctx.Value(callerKey{}).(*caller); ok {
		return c
	}
	return &caller{}
}

// admit refuses a request for what shows before it is read: how many its caller has
// sent, and a header or query of absurd size. Nothing has been looked up by then.
func (s *server) admit(w http.ResponseWriter, r *http.Request, who *caller) *Problem {
	if p, bound := s.limits.arrives(w.Header(), r, who.from); p != nil {
		s.Metrics.RateLimited(bound)
		return p
	}
	fields := 0
	for _, vs := range r.Header {
		fields += len(vs)
	}
	if fields > maxHeaderFields {
		return newProblem(tooManyHeaders, fmt.Sprintf("the request has %d header fields", fields), fmt.Sprintf("Send %d at most.", maxHeaderFields))
	}
	for _, name := range onlyOnce {
		if len(r.Header[name]) > 1 {
			return newProblem(provision.Malformed, "the header "+name+" is there more than once", "Send it once.")
		}
	}
	query := r.URL.RawQuery
	if values := 1 + strings.Count(query, "&"); len(query) > maxQuery || values > maxQueryValues {
		return newProblem(queryTooLong, fmt.Sprintf("the query has %d bytes and %d values", len(query), values),
			fmt.Sprintf("Send %d bytes and %d values at most; ask several times for more.", maxQuery, maxQueryValues))
	}
	return nil
}

// spend takes one of what a caller who is known may ask.
func (s *server) spend(ctx context.Context, h http.Header, p access.Principal) error {
	callerOfRequest(ctx).known = true
	left, limited := s.limits.principal(p)
	if !limited {
		return nil
	}
	left.show(h, "token")
	if left.wait == 0 {
		return nil
	}
	s.Metrics.RateLimited("token")
	return tooMany("your token sends more requests than this server takes", left)
}

// buffered counts what is held of bodies that are being read.
var buffered atomic.Int64

// counted notes what is read through it.
type counted struct {
	io.Reader
	n int64
}

var errBusy = errors.New("more is being read than this server holds at once")

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	if buffered.Add(int64(n)) > maxBuffered {
		return n, errBusy
	}
	return n, err
}

// readBody bounds a request's body and reads it whole, so that a refusal can be
// answered before anything is done. The function it returns is called when the
// request is over.
func (s *server) readBody(w http.ResponseWriter, r *http.Request) (p *Problem, done func()) {
	done = func() {}
	if r.Body == nil || r.Body == http.NoBody {
		return nil, done
	}
	const tooBig, smaller = "the body is larger than 1 MiB", "Send a smaller document."
	if r.ContentLength > maxBody {
		return newProblem(tooLarge, tooBig, smaller), done
	}
	in := &counted{Reader: http.MaxBytesReader(w, r.Body, maxBody)}
	body, err := io.ReadAll(in)
	done = func() { buffered.Add(-in.n) }
	var big *http.MaxBytesError
	switch {
	case errors.As(err, &big):
		return newProblem(tooLarge, tooBig, smaller), done
	case errors.Is(err, errBusy):
		p := newProblem(unavailable, errBusy.Error(), "Send the request again in a few seconds.")
		p.header = http.Header{"Retry-After": {"5"}}
		return p, done
	case err != nil:
		return newProblem(provision.Malformed, "the body could not be read to its end", "Send the whole body, in good time."), done
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if len(body) == 0 || r.Method == http.MethodGet || r.Method == http.MethodHead {
		return nil, done
	}
	if isPage(r.URL.Path) && isForm(r.Header) {
		return nil, done
	}
	return mediaProblem(r.Header), done
}

// isForm reports whether a body is what a page's form sends.
func isForm(h http.Header) bool {
	media, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	return err == nil && media == "application/x-www-form-urlencoded" && h.Get("Content-Encoding") == ""
}

// mediaProblem refuses a body that is not said to be plain JSON.
func mediaProblem(h http.Header) *Problem {
	if enc := h.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return newProblem(unsupportedMedia, "the body is encoded, and the server takes it plain alone", "Send it without Content-Encoding.")
	}
	media, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	charset := params["charset"]
	if err != nil || (media != "application/json" && media != "application/merge-patch+json") || charset != "" && !strings.EqualFold(charset, "utf-8") {
		return newProblem(unsupportedMedia, "the body is not said to be application/json", "Send the header Content-Type: application/json.")
	}
	return nil
}
