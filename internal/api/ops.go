package api

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/provision"
)

// auditIn is the query of the audit log.
type auditIn struct {
	Scope        string    `query:"scope" maxLength:"200" doc:"What the actor's role was bound to"`
	Action       string    `query:"action" maxLength:"200" doc:"As the policies spell it, such as provisioning-job:create"`
	Actor        string    `query:"actor" maxLength:"200"`
	ResourceType string    `query:"resourceType" maxLength:"200"`
	ResourceID   string    `query:"resourceId" maxLength:"200"`
	Outcome      string    `query:"outcome" enum:"allowed,refused,failed"`
	From         time.Time `query:"from" doc:"RFC 3339; included"`
	To           time.Time `query:"to" doc:"RFC 3339; not included"`
	Limit        int       `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	Cursor       string    `query:"cursor" pattern:"^[0-9]{1,18}$" doc:"nextCursor of the page before"`
}

func (s *server) auditRoutes() {
	type out struct{ Body List[audit.Entry] }
	route(s, huma.Operation{
		OperationID: "list-audit-logs", Method: http.MethodGet, Path: "/audit-logs", Tags: []string{"Audit"},
		Summary: "Read the audit log", Description: "Every mutation, allowed or refused, newest first. Each entry hashes the one before it.", Errors: []int{422},
	}, []access.Policy{access.AuditView}, func(ctx context.Context, in *auditIn) (*out, error) {
		if err := plainText(in.Scope, in.Action, in.Actor, in.ResourceType, in.ResourceID); err != nil {
			return nil, err
		}
		f := audit.Filter{
			Scope: in.Scope, Action: in.Action, Actor: in.Actor, ResourceType: in.ResourceType, ResourceID: in.ResourceID,
			Outcome: audit.Outcome(in.Outcome), From: in.From, To: in.To, Limit: in.Limit,
		}
		if in.Cursor != "" {
			n, err := strconv.ParseInt(in.Cursor, 10, 64)
			if err != nil {
				return nil, badField("cursor", "is not a cursor of this list", "use nextCursor of the page before, or leave it out")
			}
			f.Before = n
		}
		entries, next, err := s.Service.AuditLog(ctx, f)
		if err != nil {
			return nil, err
		}
		cursor := ""
		if next > 0 {
			cursor = strconv.FormatInt(next, 10)
		}
		return &out{listOf(entries, cursor)}, nil
	})
	s.auditVerifyRoute()
}

func (s *server) auditVerifyRoute() {
	type out struct{ Body Data[*provision.AuditCheck] }
	route(s, huma.Operation{
		OperationID: "verify-audit-logs", Method: http.MethodGet, Path: "/audit-logs/verify", Tags: []string{"Audit"},
		Summary: "Check the audit log", Description: "Walks the whole log: a missing, changed or added entry shows.",
	}, []access.Policy{access.AuditView}, func(ctx context.Context, _ *struct{}) (*out, error) {
		check, err := s.Service.VerifyAudit(ctx)
		if err != nil {
			return nil, err
		}
		return &out{Data[*provision.AuditCheck]{Data: check}}, nil
	})
}

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
