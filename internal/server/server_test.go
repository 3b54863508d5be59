package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const token = "zop_0123456789abcdef"

func start(t *testing.T, change func(*Config)) *Server {
	t.Helper()
	c := Config{Listen: "127.0.0.1:0", DB: filepath.Join(t.TempDir(), "zopday.db"), Workers: 2, DeadAfter: time.Second, Token: token,
		AWS: &AWS{Endpoint: "http://127.0.0.1:1", AccessKey: "a", SecretKey: "b"}}
	if change != nil {
		change(&c)
	}
	s, err := Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestServerAnswers: everything that a process serves beside jobs.
func TestServerAnswers(t *testing.T) {
	s := start(t, nil)
	for path, says := range map[string]string{
		"/healthz": "ok", "/readyz": "ok", "/openapi.json": `"openapi":"3.1.0"`, "/docs": "<html", "/metrics": "zopday_queue_age_seconds",
	} {
		status, body := get(t, s.URL()+path)
		if status != http.StatusOK || !strings.Contains(body, says) {
			t.Errorf("%s answers %d without %q: %.200s", path, status, says, body)
		}
	}
	if status, _ := get(t, s.URL()+"/provisioning-jobs"); status != http.StatusUnauthorized {
		t.Errorf("jobs without a token: %d", status)
	}
	if s.FreshToken() != "" {
		t.Error("a token is made although one was given")
	}
}

// TestCloseEndsStreams: an open event stream does not hold the end up.
func TestCloseEndsStreams(t *testing.T) {
	s := start(t, func(c *Config) { c.Workers = 0 })
	c, err := client.New(client.Options{Server: s.URL(), Token: token})
	if err != nil {
		t.Fatal(err)
	}
	_, j, err := c.CreateJob(t.Context(), []byte(`{"resourceType":"vm","provider":"aws","name":"shop","region":"us-east-1","submit":true}`), "k")
	if err != nil {
		t.Fatal(err)
	}
	opened := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_ = c.Stream(ctx, j.ID, 0, client.StreamHandler{Event: func(job.Event) {
			select {
			case opened <- struct{}{}:
			default:
			}
		}})
	}()
	<-opened
	began := time.Now()
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the end took %s", took)
	}
	select {
	case <-s.Done():
	default:
		t.Error("the server is closed and not done")
	}
	if s.Err() != nil {
		t.Error(s.Err())
	}
}

// TestStartRefuses what cannot work, and leaves nothing open behind.
func TestStartRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]Config{
		"a directory":      {Listen: "127.0.0.1:0", DB: dir},
		"no such database": {Listen: "127.0.0.1:0", DB: "postgres://nobody@127.0.0.1:1/none?connect_timeout=1"},
		"no address":       {Listen: "127.0.0.1:99999", DB: filepath.Join(dir, "a.db")},
		"a short token":    {Listen: "127.0.0.1:0", DB: filepath.Join(dir, "b.db"), Token: "short"},
	} {
		s, err := Start(t.Context(), c)
		if err == nil {
			t.Errorf("%s: it starts", name)
			_ = s.Close(t.Context())
		}
	}
	// The file is free again after the refusal.
	s, err := Start(t.Context(), Config{Listen: "127.0.0.1:0", DB: filepath.Join(dir, "b.db")})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(s.FreshToken(), "zop_") {
		t.Errorf("token %q", s.FreshToken())
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestUnknownCloud is refused for good, with what to do.
func TestUnknownCloud(t *testing.T) {
	_, err := byProvider{}.Open(t.Context(), &job.Job{Provider: job.Azure})
	var fatal *pipeline.FatalError
	if !errors.As(err, &fatal) || fatal.Problem.Code != "no-such-cloud" || fatal.Problem.Hint == "" {
		t.Errorf("error %v", err)
	}
}

// TestConfigServiceAddress: an address that is none stops the start; one where
// nobody answers does not, and is named when a space is asked for.
func TestConfigServiceAddress(t *testing.T) {
	_, err := Start(t.Context(), Config{Listen: "127.0.0.1:0", DB: filepath.Join(t.TempDir(), "zopday.db"), Token: token, ConfigService: "config.example.com:443"})
	if err == nil || !strings.Contains(err.Error(), "https://HOST:PORT") {
		t.Errorf("%v", err)
	}
	s := start(t, func(c *Config) { c.Workers, c.ConfigService = 0, "http://127.0.0.1:1" })
	c, err := client.New(client.Options{Server: s.URL(), Token: token})
	if err != nil {
		t.Fatal(err)
	}
	_, _, _, err = c.ListSpaces(t.Context(), nil)
	var p *client.Problem
	if !errors.As(err, &p) || p.Status != http.StatusServiceUnavailable || !strings.Contains(p.Hint, "--config-service") {
		t.Errorf("%v", err)
	}
}
