package gcp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/pipeline"
)

// served is a provider before a server that answers by hand.
func served(t *testing.T, h http.HandlerFunc) *Provider {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return at(t, s.URL, Options{Pace: 10000})
}

// A read is repeated until the answer can be read; a change only where nothing
// can have happened.
func TestWhatIsSentAgain(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		body   string
		reads  int32 // how often a read is sent
		writes int32 // how often a create is
		class  pipeline.Class
	}{
		{"empty", 200, "", 5, 1, pipeline.Unavailable},
		{"half", 200, `{"name":"n`, 5, 1, pipeline.Unavailable},
		{"a page", 200, "<html></html>", 5, 1, pipeline.Unavailable},
		{"cloud falters", 503, `{"error":{"code":503,"message":"x","errors":[{"reason":"backendError"}]}}`, 5, 1, pipeline.Unavailable},
		{"throttled", 429, `{"error":{"code":429,"message":"x","errors":[{"reason":"rateLimitExceeded"}]}}`, 5, 5, pipeline.Throttled},
		{"refused", 400, `{"error":{"code":400,"message":"x","errors":[{"reason":"invalid"}]}}`, 1, 1, pipeline.Invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var n atomic.Int32
			p := served(t, func(w http.ResponseWriter, _ *http.Request) {
				n.Add(1)
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.body))
			})
			ctx := anything(t.Context())
			_, err := p.networks().get(ctx, p.global("networks", "n"))
			if !pipeline.Is(err, c.class) || n.Load() != c.reads {
				t.Errorf("read: sent %d times, %v", n.Load(), err)
			}
			n.Store(0)
			_, err = p.networks().insert(ctx, requestID("t"), &compute.Network{Name: "n"})
			if !pipeline.Is(err, c.class) || n.Load() != c.writes {
				t.Errorf("create: sent %d times, %v", n.Load(), err)
			}
			if strings.Contains(err.Error(), "http://") || strings.Contains(err.Error(), testToken) {
				t.Errorf("the error is not for people: %v", err)
			}
		})
	}
}

// A wait that the cloud asks for and that is too long to hold a worker is handed up.
func TestLongWaitIsHandedUp(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	p := served(t, func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	_, err := p.networks().get(anything(t.Context()), p.global("networks", "n"))
	var ce *pipeline.CloudError
	if !errors.As(err, &ce) || ce.Class != pipeline.Throttled || ce.RetryAfter != time.Minute || n.Load() != 1 {
		t.Errorf("sent %d times, %+v", n.Load(), ce)
	}
}

// What a repeated request says is what the first one said.
func TestBodyIsSentAgain(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	p := served(t, func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 200)
		k, _ := r.Body.Read(body)
		if !strings.Contains(string(body[:k]), `"name":"shop"`) || r.Header.Get("Authorization") != "Bearer "+testToken || r.URL.Query().Has("filter") {
			t.Errorf("sent %s with %v", body[:k], r.URL)
		}
		if n.Add(1) == 1 {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		_, _ = w.Write([]byte(`{"name":"op","status":"RUNNING"}`))
	})
	op, err := p.networks().insert(anything(t.Context()), requestID("t"), &compute.Network{Name: "shop"})
	if err != nil || op.Name != "op" || n.Load() != 2 {
		t.Errorf("sent %d times: %+v, %v", n.Load(), op, err)
	}
}

// The gate stands before every request, and again once the credentials are
// there; without one, only reads pass.
func TestGate(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	p := served(t, func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		_, _ = w.Write([]byte(`{"name":"n"}`))
	})
	create := func(ctx context.Context) error {
		_, err := p.networks().insert(ctx, requestID("t"), &compute.Network{Name: "n"})
		return err
	}
	if err := create(t.Context()); !pipeline.Is(err, pipeline.Refused) || !errors.Is(err, pipeline.ErrReadOnly) || n.Load() != 0 {
		t.Errorf("without a gate: %v", err)
	}
	if _, err := p.networks().get(t.Context(), p.global("networks", "n")); err != nil {
		t.Errorf("a read: %v", err)
	}
	asked := 0
	lost := pipeline.WithGate(t.Context(), func(_ context.Context, c pipeline.Call) error {
		if asked++; c.Service != "compute" || c.Op != "networks.insert" || !c.Mutating {
			t.Errorf("asked for %+v", c)
		}
		if asked == 2 {
			return pipeline.ErrLeaseLost
		}
		return nil
	})
	n.Store(0)
	err := create(lost)
	var ce *pipeline.CloudError
	if !errors.As(err, &ce) || ce.Class != pipeline.Refused || ce.Sent || n.Load() != 0 {
		t.Errorf("a lease that was lost meanwhile: %v, sent %d", err, n.Load())
	}
}

// Where nothing listens, nothing can have happened; without credentials,
// nothing is sent.
func TestNeverSent(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.NotFoundHandler())
	s.Close()
	p := at(t, s.URL, Options{Pace: 10000})
	_, err := p.networks().insert(anything(t.Context()), requestID("t"), &compute.Network{Name: "n"})
	var ce *pipeline.CloudError
	if !errors.As(err, &ce) || ce.Class != pipeline.Unavailable || ce.Sent {
		t.Errorf("got %+v", err)
	}

	cfg := Config{Project: testProject, Endpoint: s.URL, Token: func(context.Context) (string, error) { return "", errors.New("could not find default credentials") }}
	q, err := New(Options{LoadConfig: func(context.Context, string, string) (Config, error) { return cfg, nil }}).provider(t.Context(), ambientAccount, testRegion)
	if err != nil {
		t.Fatal(err)
	}
	_, err = q.Caller(t.Context())
	if !errors.As(err, &ce) || ce.Class != pipeline.Expired || ce.Sent || !strings.Contains(err.Error(), "default credentials") {
		t.Errorf("got %v", err)
	}
}

// Observers hear of every call once, with its class.
func TestObserve(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"error":{"code":403,"message":"no","errors":[{"reason":"forbidden"}]}}`))
	}))
	t.Cleanup(s.Close)
	var told []string
	p := at(t, s.URL, Options{Observe: func(service, op string, mutating bool, class pipeline.Class, _ time.Duration) {
		told = append(told, service+" "+op+" "+string(class))
		if mutating {
			t.Error("a read counts as a change")
		}
	}})
	if _, err := p.Caller(t.Context()); !pipeline.Is(err, pipeline.Denied) {
		t.Errorf("got %v", err)
	}
	if len(told) != 1 || told[0] != "compute projects.get denied" {
		t.Errorf("told %v", told)
	}
}

// The environment says where and as whom.
func TestFromEnvironment(t *testing.T) {
	for k, v := range map[string]string{
		"GOOGLE_CLOUD_PROJECT": "shop", "ZOPDAY_GCP_ENDPOINT": "http://127.0.0.1:1/", "ZOPDAY_GCP_ENDPOINT_DNS": "http://127.0.0.1:2",
		"ZOPDAY_GCP_ACCESS_TOKEN": "any", "GOOGLE_CLOUD_QUOTA_PROJECT": "bill",
	} {
		t.Setenv(k, v)
	}
	cfg, err := FromEnvironment(t.Context(), "default", testRegion)
	if err != nil {
		t.Fatal(err)
	}
	token, err := cfg.Token(t.Context())
	if cfg.Project != "shop" || cfg.QuotaProject != "bill" || token != "any" || err != nil {
		t.Errorf("got %+v, token %q, %v", cfg, token, err)
	}
	for service, want := range map[string]string{serviceCompute: "http://127.0.0.1:1/compute/v1/", serviceDNS: "http://127.0.0.1:2/", serviceIAM: "http://127.0.0.1:1/"} {
		if got := cfg.endpoint(service); got != want {
			t.Errorf("%s at %q, want %q", service, got, want)
		}
	}
}

// Another project is another provider, and credentials that were refused are
// looked for afresh; otherwise clients are kept.
func TestClientsAreKept(t *testing.T) {
	t.Parallel()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer good" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(`{"name":"` + base(r.URL.Path) + `"}`))
	}))
	t.Cleanup(s.Close)
	project, token := "one", "good"
	c := New(Options{LoadConfig: func(ctx context.Context, account, region string) (Config, error) {
		return Static(s.URL, project, token)(ctx, account, region)
	}})
	open := func() *Provider {
		t.Helper()
		p, err := c.provider(t.Context(), ambientAccount, testRegion)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := open()
	if who, err := first.Caller(t.Context()); who != "one" || err != nil || open() != first {
		t.Errorf("%q, %v", who, err)
	}
	project, token = "two", "bad"
	second := open()
	if _, err := second.Caller(t.Context()); !pipeline.Is(err, pipeline.Expired) {
		t.Errorf("got %v", err)
	}
	token = "good"
	if who, err := open().Caller(t.Context()); who != "two" || err != nil {
		t.Errorf("after the credentials were renewed: %q, %v", who, err)
	}
}

// textAnswer is an answer with a body.
func textAnswer(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}
