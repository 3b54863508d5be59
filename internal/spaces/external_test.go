package spaces

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pgtest"
	"github.com/zopday/provisioner/internal/pipeline"
	configv1 "github.com/zopday/provisioner/internal/spaces/configv1"
	"github.com/zopday/provisioner/internal/spaces/configv1/configv1connect"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// An elsewhere is a config service in another process, as far as the client can
// tell: a server of its own on a port, with a registry of its own.
type elsewhere struct {
	t        *testing.T
	server   *httptest.Server
	registry *Registry

	mu    sync.Mutex
	calls []string                                          // procedures, in order
	spoil func(w http.ResponseWriter, r *http.Request) bool // answers instead
	lose  map[string]int                                    // by procedure: so many replies are lost, after the service has done its work
}

func registryOn(t *testing.T, dsn string) *Registry {
	t.Helper()
	d, err := db.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return NewRegistry(d)
}

func newElsewhere(t *testing.T, start func(*httptest.Server)) *elsewhere {
	t.Helper()
	e := &elsewhere{t: t, registry: registryOn(t, filepath.Join(t.TempDir(), "other.db")), lose: map[string]int{}}
	mux := http.NewServeMux()
	mux.Handle(configv1connect.NewConfigServiceHandler(e.registry))
	mux.Handle(configv1connect.NewDiscoveryServiceHandler(e.registry))
	e.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { e.serve(mux, w, r) }))
	start(e.server)
	t.Cleanup(e.server.Close)
	return e
}

func plainHTTP2(s *httptest.Server) {
	s.Config.Protocols = h2cOnly()
	s.Start()
}

func overTLS(s *httptest.Server) {
	s.EnableHTTP2 = true
	s.StartTLS()
}

func (e *elsewhere) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	procedure := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	e.mu.Lock()
	e.calls = append(e.calls, procedure)
	spoil := e.spoil
	lost := e.lose[procedure] > 0
	if lost {
		e.lose[procedure]--
	}
	e.mu.Unlock()
	switch {
	case r.ProtoMajor != 2:
		e.t.Errorf("gRPC over %s", r.Proto)
	case spoil != nil && spoil(w, r):
	case lost:
		next.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	default:
		next.ServeHTTP(w, r)
	}
}

func (e *elsewhere) set(spoil func(w http.ResponseWriter, r *http.Request) bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.spoil = spoil
}

func (e *elsewhere) called(procedure string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(slices.DeleteFunc(slices.Clone(e.calls), func(c string) bool { return c != procedure }))
}

// known are the spaces that the service has.
func (e *elsewhere) known() []*configv1.Space {
	e.t.Helper()
	res, err := e.registry.ListSpaces(e.t.Context(), connect.NewRequest(&configv1.ListSpacesRequest{OrgId: "org_1"}))
	if err != nil {
		e.t.Fatal(err)
	}
	return res.Msg.GetSpaces()
}

func aSpace(name, subject string) *configv1.Space {
	return &configv1.Space{OrgId: "org_1", Name: name, JobId: "job_1", SubjectType: "cluster", SubjectId: subject, Provider: "azure", Region: "westeurope",
		SpaceType: job.SpaceKubernetes, Config: map[string]string{"region": "westeurope", "cluster": name}}
}

func dial(t *testing.T, address string) *Client {
	t.Helper()
	c, err := Dial(address)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// again registers as the engine does: it asks again for as long as the error says
// that this may help.
func again(ctx context.Context, c *Client, s *configv1.Space, most int) (id string, tries int, err error) {
	for tries = 1; tries <= most; tries++ {
		if id, err = c.Register(ctx, s); !pipeline.Is(err, pipeline.Registry) {
			return id, tries, err
		}
	}
	return "", most, err
}

func TestLostRepliesRegisterOnce(t *testing.T) {
	t.Parallel()
	e := newElsewhere(t, plainHTTP2)
	c := dial(t, e.server.URL+"/")
	e.lose["RegisterSpace"], e.lose["Sync"] = 2, 2
	id, tries, err := again(t.Context(), c, aSpace("platform", "clu_1"), 10)
	if err != nil || tries != 5 {
		t.Fatalf("%q after %d tries, %v", id, tries, err)
	}
	if got := e.known(); len(got) != 1 || got[0].GetId() != id || got[0].GetStatus() != "synced" {
		t.Errorf("registered %d times: %v", len(got), got)
	}
	e.lose["DeregisterSpace"] = 1
	if err := c.Deregister(t.Context(), "org_1", id); !pipeline.Is(err, pipeline.Registry) {
		t.Errorf("a lost reply of Deregister is %v", err)
	}
	if err := c.Deregister(t.Context(), "org_1", id); err != nil || len(e.known()) != 0 {
		t.Errorf("asked again: %v, %v", err, e.known())
	}
}

// Many register the same at the same moment, replies being lost meanwhile.
func TestManyRegisterTheSameOnce(t *testing.T) {
	t.Parallel()
	e := newElsewhere(t, plainHTTP2)
	c := dial(t, e.server.URL)
	e.lose["RegisterSpace"] = 8
	var wg sync.WaitGroup
	ids := make([]string, 16)
	for i := range ids {
		wg.Go(func() {
			var err error
			if ids[i], _, err = again(t.Context(), c, aSpace("platform", "clu_1"), 20); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := e.known(); len(got) != 1 || len(slices.Compact(ids)) != 1 || ids[0] != got[0].GetId() {
		t.Errorf("IDs %q, spaces %v", slices.Compact(ids), got)
	}
}

func TestErrorsOfAnExternalService(t *testing.T) {
	t.Parallel()
	e := newElsewhere(t, plainHTTP2)
	c := dial(t, e.server.URL)
	fail := func(code connect.Code, at string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, at) {
				return false
			}
			_ = connect.NewErrorWriter().Write(w, r, connect.NewError(code, context.DeadlineExceeded))
			return true
		}
	}
	for _, tc := range []struct {
		name  string
		spoil func(http.ResponseWriter, *http.Request) bool
		want  pipeline.Class
		names string
	}{
		{"unavailable", fail(connect.CodeUnavailable, "RegisterSpace"), pipeline.Registry, "config service RegisterSpace"},
		{"overloaded", fail(connect.CodeResourceExhausted, "RegisterSpace"), pipeline.Registry, "resource_exhausted"},
		{"an error of its own", fail(connect.CodeInternal, "RegisterSpace"), pipeline.Registry, "internal"},
		{"the discoverer is down", fail(connect.CodeUnavailable, "Sync"), pipeline.Registry, "discovery service Sync"},
		{"the discoverer lags behind", fail(connect.CodeNotFound, "Sync"), pipeline.Registry, "does not know the space"},
		{"not allowed", fail(connect.CodePermissionDenied, "RegisterSpace"), pipeline.Denied, "permission_denied"},
		{"not signed in", fail(connect.CodeUnauthenticated, "RegisterSpace"), pipeline.Expired, "unauthenticated"},
		{"refused", fail(connect.CodeInvalidArgument, "RegisterSpace"), pipeline.Invalid, "invalid_argument"},
		{"something else at this address", func(w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, "no", http.StatusNotFound)
			return true
		}, pipeline.Invalid, "unimplemented"},
		{"a proxy without a backend", func(w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, "no", http.StatusServiceUnavailable)
			return true
		}, pipeline.Registry, "unavailable"},
		{"a page of HTML", func(w http.ResponseWriter, _ *http.Request) bool { _, _ = w.Write([]byte("<html>")); return true }, pipeline.Registry, "config service"},
	} {
		e.set(tc.spoil)
		_, err := c.Register(t.Context(), aSpace("platform", "clu_1"))
		if !pipeline.Is(err, tc.want) || !strings.Contains(err.Error(), tc.names) {
			t.Errorf("%s: class %s, %v", tc.name, pipeline.ClassOf(err), err)
		}
	}
	e.set(nil)
	if _, err := c.Register(t.Context(), &configv1.Space{OrgId: "org_1"}); !pipeline.Is(err, pipeline.Invalid) || !strings.Contains(err.Error(), "space.") {
		t.Errorf("an incomplete space: %v", err)
	}
	// A config service that has no discoverer beside it is asked for nothing more.
	e.set(fail(connect.CodeUnimplemented, "Sync"))
	if id, err := c.Register(t.Context(), aSpace("platform", "clu_1")); err != nil || id == "" {
		t.Errorf("without a discoverer: %q, %v", id, err)
	}
	// Gone, then back at the same place: nothing has to be started anew.
	e.set(nil)
	address := e.server.Listener.Addr().String()
	e.server.Close()
	if _, err := c.Register(t.Context(), aSpace("platform", "clu_1")); !pipeline.Is(err, pipeline.Registry) {
		t.Errorf("nobody there: %v", err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("the port is taken by now: %v", err)
	}
	back := newElsewhere(t, func(s *httptest.Server) {
		_ = s.Listener.Close()
		s.Listener = l
		plainHTTP2(s)
	})
	if id, err := c.Register(t.Context(), aSpace("platform", "clu_1")); err != nil || len(back.known()) != 1 {
		t.Errorf("back again: %q, %v", id, err)
	}
}

// A service that takes a call and says nothing is given up on in time.
func TestSilentService(t *testing.T) {
	t.Parallel()
	e := newElsewhere(t, plainHTTP2)
	over := make(chan struct{})
	t.Cleanup(func() { close(over) }) // before the server is closed, which waits for its handlers
	e.set(func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-over:
		case <-r.Context().Done():
		}
		return true
	})
	c := dial(t, e.server.URL)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := c.Register(ctx, aSpace("platform", "clu_1")); !pipeline.Is(err, pipeline.Registry) || !strings.Contains(err.Error(), "deadline_exceeded") {
		t.Errorf("%v", err)
	}
	if n := e.called("RegisterSpace"); n != 1 {
		t.Errorf("called %d times: a call is repeated by the engine alone", n)
	}
}

func TestOverTLS(t *testing.T) {
	t.Parallel()
	e := newElsewhere(t, overTLS)
	if _, err := dial(t, e.server.URL).Register(t.Context(), aSpace("platform", "clu_1")); !pipeline.Is(err, pipeline.Registry) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("an authority that nobody knows: %v", err)
	}
	if n := len(e.known()); n != 0 {
		t.Errorf("%d spaces were told to a server that is not trusted", n)
	}
	roots := x509.NewCertPool()
	roots.AddCert(e.server.Certificate())
	transport := h2Transport(nil)
	transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	c := newClient(&http.Client{Transport: transport, Timeout: patience}, e.server.URL)
	e.lose["RegisterSpace"] = 1
	if id, tries, err := again(t.Context(), c, aSpace("platform", "clu_1"), 5); err != nil || tries != 2 || len(e.known()) != 1 {
		t.Errorf("%q after %d tries, %v", id, tries, err)
	}
	// An address without TLS does not reach a server that has it.
	if _, err := dial(t, strings.Replace(e.server.URL, "https:", "http:", 1)).Register(t.Context(), aSpace("p", "clu_2")); !pipeline.Is(err, pipeline.Registry) {
		t.Errorf("plain text to a TLS server: %v", err)
	}
}

func TestDialRefusesWhatIsNoAddress(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "config.example.com:443", "ftp://config.example.com", "https://", "https://user:secret@config.example.com", "https://config.example.com?x=1", "://"} {
		c, err := Dial(bad)
		if c != nil || err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// The registry is the same on both databases: pages, tokens, subjects.
func TestRegistryOnBothDatabases(t *testing.T) {
	t.Parallel()
	for name, dsn := range map[string]func(*testing.T) string{
		"sqlite":   func(t *testing.T) string { return filepath.Join(t.TempDir(), "zopday.db") },
		"postgres": func(t *testing.T) string { return pgtest.Database(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, stop := BuiltIn(registryOn(t, dsn(t)))
			t.Cleanup(func() { _ = stop() })
			var made []string
			for _, subject := range []string{"clu_1", "clu_2", "clu_3", "clu_4", "clu_5"} {
				id, err := c.Register(t.Context(), aSpace("space-"+subject[4:], subject))
				if err != nil {
					t.Fatal(err)
				}
				made = append(made, id)
			}
			var seen []string
			for token := ""; ; {
				page, next, err := c.List(t.Context(), "org_1", 2, token)
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range page {
					seen = append(seen, s.GetId())
				}
				if token = next; next == "" {
					break
				}
			}
			slices.Reverse(made)
			if !slices.Equal(seen, made) {
				t.Errorf("pages gave %q, want %q", seen, made)
			}
			for _, bad := range []string{"~", "zzz", "spc_", "' OR 1=1 --", "job_1", "\x00"} {
				if page, _, err := c.List(t.Context(), "org_1", 2, bad); !pipeline.Is(err, pipeline.Invalid) {
					t.Errorf("token %q: %d spaces, %v", bad, len(page), err)
				}
			}
			// Renamed and moved: the subject is what a space is known by.
			s := aSpace("renamed", "clu_3")
			s.Region, s.Config["region"] = "northeurope", "northeurope"
			id, err := c.Register(t.Context(), s)
			got, gerr := c.Get(t.Context(), "org_1", id)
			if err != nil || gerr != nil || id != made[2] || got.GetName() != "renamed" || got.GetConfig()["region"] != "northeurope" {
				t.Errorf("registered again: %q, %v, %v, %v", id, got, err, gerr)
			}
			other := aSpace("renamed", "clu_3")
			other.OrgId = "org_2"
			if theirs, err := c.Register(t.Context(), other); err != nil || theirs == id {
				t.Errorf("another organisation's subject of this name: %q, %v", theirs, err)
			}
			if err := c.Deregister(t.Context(), "org_2", id); err != nil {
				t.Error(err)
			}
			if got, err := c.Get(t.Context(), "org_1", id); err != nil || got == nil {
				t.Errorf("another organisation forgot it: %v, %v", got, err)
			}
		})
	}
}
