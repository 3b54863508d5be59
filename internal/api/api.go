// Package api is the REST interface: the job endpoints, the audit log, health,
// metrics and the documentation, on net/http with Huma, which writes the OpenAPI
// document from the same types.
//
// A success is {"data": …}, a list has "meta" beside it, and everything else is
// an RFC 9457 problem document with a stable type, the field at fault and what to
// do. Every route declares its policy; one without it does not start.
package api

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/access/oidc"
	"github.com/zopday/provisioner/internal/observe"
	"github.com/zopday/provisioner/internal/provision"
)

// An Authenticator says who a bearer token belongs to.
type Authenticator interface {
	Authenticate(ctx context.Context, token string) (access.Principal, error)
}

// Version names what is running.
type Version struct {
	Version string `json:"version" doc:"Version of the provisioner"`
	Commit  string `json:"commit,omitempty" doc:"Commit that it was built from"`
	Date    string `json:"date,omitempty" doc:"When it was built"`
}

// Deps is what the API stands on.
type Deps struct {
	Service   *provision.Service
	Access    Authenticator
	SignIn    *oidc.SignIn                // nil: nobody signs in with a browser
	Metrics   *observe.Metrics            // nil: none are kept, and /metrics is empty
	Log       *slog.Logger                // nil: silence
	Ready     func(context.Context) error // nil error: database reachable, migrations current
	Version   Version
	Stop      <-chan struct{}             // closed when the server shuts down: ends event streams; may be nil
	Poll      time.Duration               // how often an event stream looks at the ledger; 300 ms if 0
	PublicURL string                      // where browsers find the server; "": where the request says that it went
	Pages     func(PageHost) http.Handler // the web pages, below PagesPath; nil: there are none
	Limits    Limits                      // what one caller may ask; the zero value bounds event streams alone
}

// maxBody is the largest request body, beyond which it is refused with 413.
const maxBody = 1 << 20

type server struct {
	Deps
	mux     *http.ServeMux
	api     huma.API
	streams chan struct{} // one slot an open event stream
	limits  *limits

	askAnew, streamLife time.Duration // see the constants of these names
}

// New builds the handler of the whole interface.
func New(d Deps) http.Handler {
	s := build(d)
	return s.outer(s.mux)
}

func build(d Deps) *server {
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	if d.Metrics == nil {
		d.Metrics = observe.NewMetrics()
	}
	if d.Ready == nil {
		d.Ready = func(context.Context) error { return nil }
	}
	if d.Poll == 0 {
		d.Poll = 300 * time.Millisecond
	}
	s := &server{Deps: d, mux: http.NewServeMux(), streams: make(chan struct{}, maxStreams), limits: newLimits(d.Limits), askAnew: askAnew, streamLife: streamLife}
	s.api = humago.New(s.mux, huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{
				Title:   "ZopDay provisioner",
				Version: d.Version.Version,
				Description: "Every piece of infrastructure is one job in one ledger: created, shown step by step, changed, retried and torn down. " +
					"A success is {\"data\": …}; everything else is an RFC 9457 problem document.",
				License: &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
			},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", schemaName),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					"token":   {Type: "http", Scheme: "bearer", Description: "A token of this installation, or a JSON Web Token by one of its issuers"},
					"session": {Type: "apiKey", In: "cookie", Name: "__Host-" + sessionCookie, Description: "The cookie of a person who has signed in"},
				},
			},
		},
		Formats:                      huma.DefaultFormats,
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
	})
	s.routes()
	return s
}

func (s *server) routes() {
	s.jobRoutes()
	s.readRoutes()
	s.eventRoutes()
	s.auditRoutes()
	s.keepingRoutes()
	s.opsRoutes()
	s.spaceRoutes()
	s.componentRoutes()
	s.databaseRoutes()
	s.scheduleRoutes()
	s.webhookRoutes()
	s.accountRoutes()
	s.identityRoutes()
	s.signInRoutes()
	s.pageRoutes()
	s.docRoutes()
}

// Data is the body of every success.
type Data[T any] struct {
	Data T     `json:"data"`
	Meta *Meta `json:"meta,omitempty"`
}

// Meta is what stands beside the data.
type Meta struct {
	NextCursor string   `json:"nextCursor,omitempty" doc:"The cursor of the next page; absent on the last"`
	Warnings   []string `json:"warnings,omitempty" doc:"What was done, and may not be what you meant"`
}

// List is the body of a list.
type List[T any] struct {
	Data []T      `json:"data"`
	Meta ListMeta `json:"meta"`
}

// ListMeta is what stands beside a list.
type ListMeta struct {
	NextCursor *string `json:"nextCursor" doc:"The cursor of the next page; null on the last"`
}

func listOf[T any](items []T, next string) List[T] {
	l := List[T]{Data: items}
	if l.Data == nil {
		l.Data = []T{}
	}
	if next != "" {
		l.Meta.NextCursor = &next
	}
	return l
}

// policyKey is where an operation keeps its policies, also in the OpenAPI document.
const policyKey = "x-policy"

// route registers an operation with the policies of which a caller needs one.
// There is no way around it: an operation without a policy stops the program.
func route[I, O any](s *server, op huma.Operation, policies []access.Policy, fn func(context.Context, *I) (*O, error)) {
	if len(policies) == 0 {
		panic("route " + op.OperationID + " declares no policy")
	}
	if op.Extensions == nil {
		op.Extensions = map[string]any{}
	}
	op.Extensions[policyKey] = policies
	op.Errors = append(op.Errors, 400, 429)
	if policies[0] != access.Public {
		op.Security = []map[string][]string{{"token": {}}, {"session": {}}}
		op.Errors = append(op.Errors, 401, 403)
	}
	op.SkipValidateBody = true // the bodies are read by provision.Decode, which is stricter
	op.MaxBodyBytes = -1       // the outer handler has bounded it already
	op.Middlewares = append(huma.Middlewares{s.guard(policies)}, op.Middlewares...)
	huma.Register(s.api, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := fn(ctx, in)
		if err != nil {
			return nil, s.problem(ctx, err)
		}
		return out, nil
	})
}

// guard lets a caller through who has one of the policies.
func (s *server) guard(policies []access.Policy) func(huma.Context, func(huma.Context)) {
	return func(hc huma.Context, next func(huma.Context)) {
		if policies[0] == access.Public {
			next(hc)
			return
		}
		ctx, p, err := s.caller(hc, policies[0])
		if err == nil {
			ctx = access.With(ctx, p)
			hc = huma.WithContext(hc, ctx)
			_, w := humago.Unwrap(hc)
			err = s.spend(ctx, w.Header(), p)
		}
		if err == nil && policies[0] != access.Authenticated {
			err = s.Service.Permit(ctx, hc.Param("id"), policies...)
		}
		if err != nil {
			writeProblem(hc, s.problem(ctx, err))
			return
		}
		next(hc)
	}
}

// Server is an HTTP server with the time-outs that the API wants. Answers have
// their own deadlines, since an event stream has none.
func Server(addr string, h http.Handler) *http.Server {
	return &http.Server{
		Addr: addr, Handler: h,
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10,
	}
}
