package api

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/zopday/provisioner/internal/access"
)

// Health is the answer of the health endpoints.
type Health struct {
	Status string `json:"status" enum:"ok,unavailable"`
}

func (s *server) opsRoutes() {
	type health struct {
		Status int
		Body   Data[Health]
	}
	public := []access.Policy{access.Public}
	tags := []string{"Operation"}
	route(s, huma.Operation{
		OperationID: "healthz", Method: http.MethodGet, Path: "/healthz", Tags: tags, Summary: "Is the process alive?",
	}, public, func(context.Context, *struct{}) (*health, error) {
		return &health{http.StatusOK, Data[Health]{Data: Health{"ok"}}}, nil
	})
	route(s, huma.Operation{
		OperationID: "readyz", Method: http.MethodGet, Path: "/readyz", Tags: tags, Summary: "Can it do its work?",
		Description: "Database reachable, migrations current. The reason why not is in the log.", Errors: []int{503},
	}, public, func(ctx context.Context, _ *struct{}) (*health, error) {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		if err := s.Ready(ctx); err != nil {
			s.Log.WarnContext(ctx, "not ready", "error", err)
			return nil, newProblem(unavailable, "the database does not answer, or its schema is not current", "The reason is in the server's log.")
		}
		return &health{http.StatusOK, Data[Health]{Data: Health{"ok"}}}, nil
	})
	type version struct{ Body Data[Version] }
	route(s, huma.Operation{
		OperationID: "version", Method: http.MethodGet, Path: "/version", Tags: tags, Summary: "What is running",
		Description: tokenFromAfar, Errors: []int{401, 403}, Middlewares: s.tokenFromAfar(),
	}, public, func(context.Context, *struct{}) (*version, error) {
		return &version{Data[Version]{Data: s.Version}}, nil
	})
	s.metricsRoute(tags)
}

const tokenFromAfar = "Needs a token, except from the loopback interface of this machine without a proxy in between." //nolint:gosec // words, no credential

// tokenFromAfar lets through whoever may view jobs, and without a token whoever is
// on this machine. What came through a proxy is not from here.
func (s *server) tokenFromAfar() huma.Middlewares {
	return huma.Middlewares{func(hc huma.Context, next func(huma.Context)) {
		r, _ := humago.Unwrap(hc)
		if fromHere(r) {
			next(hc)
			return
		}
		s.guard([]access.Policy{access.JobView})(hc, next)
	}}
}

// metricsRoute serves the numbers, also to a scraper on this machine.
func (s *server) metricsRoute(tags []string) {
	type out struct{ Body func(huma.Context) }
	handler := s.Metrics.Handler()
	route(s, huma.Operation{
		OperationID: "metrics", Method: http.MethodGet, Path: "/metrics", Tags: tags, Summary: "Prometheus metrics",
		Description: tokenFromAfar,
		Errors:      []int{401, 403},
		Responses:   map[string]*huma.Response{"200": {Description: "Text format", Content: map[string]*huma.MediaType{"text/plain": {Schema: &huma.Schema{Type: huma.TypeString}}}}},
		Middlewares: s.tokenFromAfar(),
	}, []access.Policy{access.Public}, func(context.Context, *struct{}) (*out, error) {
		return &out{func(hc huma.Context) {
			r, w := humago.Unwrap(hc)
			w.Header().Del("Content-Type")
			handler.ServeHTTP(w, r)
		}}, nil
	})
}

// fromHere reports whether a request comes from this machine itself.
func fromHere(r *http.Request) bool {
	for _, h := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip", "Via"} {
		if r.Header.Get(h) != "" {
			return false
		}
	}
	// The name that was asked for counts too: a page in a browser on this machine
	// can make a name of its own point here.
	host := r.Host
	if h, _, err := net.SplitHostPort(r.Host); err == nil {
		host = h
	}
	return loopback(peer(r)) && (host == "localhost" || loopback(host))
}

func loopback(host string) bool {
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return ip != nil && ip.IsLoopback()
}
