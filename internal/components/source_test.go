package components

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim/charts"
)

// A mirror stands in for every source, as a repository with or without an index,
// and as a registry.
func TestMirror(t *testing.T) {
	s := charts.New(append(charts.StandIns(), small("1.0.0"))...)
	srv := serve(t, s)
	plainFiles := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "index.yaml") {
			http.NotFound(w, r)
			return
		}
		s.ServeHTTP(w, r)
	}))
	indexOnly := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/direct/") {
			http.NotFound(w, r)
			return
		}
		if strings.HasSuffix(r.URL.Path, "index.yaml") {
			fmt.Fprintf(w, "entries:\n  small:\n  - {version: v1.0.0, urls: [../elsewhere/small-1.0.0.tgz]}\n  - {version: nonsense}\n")
			return
		}
		s.ServeHTTP(w, r)
	}))
	for name, mirror := range map[string]string{"repository": srv.URL + "/m", "files": plainFiles.URL + "/m/", "registry": oci(srv), "index": indexOnly.URL + "/m"} {
		e := engineAt(t, "https://charts.example.invalid", Options{Mirror: mirror})
		if _, err := e.Resolve(t.Context(), job.ComponentSpec{Name: "small"}, "", ""); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range []string{"charts.example.com", "ftp://x", "https://u:p@x"} {
		if _, err := New(Options{Mirror: bad}); err == nil || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestSourceFaults(t *testing.T) {
	s := charts.New(small("1.0.0"))
	status := http.StatusOK
	srv := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status != http.StatusOK {
			w.WriteHeader(status)
			return
		}
		s.ServeHTTP(w, r)
	}))
	gone := httptest.NewServer(s)
	gone.Close()
	for _, scheme := range []string{"http", "oci"} {
		at := func(srv *httptest.Server) string {
			if scheme == "oci" {
				return oci(srv)
			}
			return srv.URL
		}
		resolve := func(repository string) error {
			_, err := engineAt(t, repository, Options{}).Resolve(t.Context(), job.ComponentSpec{Name: "small"}, "", "")
			return err
		}
		err := resolve(at(gone))
		if !pipeline.Is(err, pipeline.Unavailable) || !strings.Contains(err.Error(), strings.TrimPrefix(gone.URL, "http://")) || !strings.Contains(err.Error(), "mirror") {
			t.Errorf("%s, unreachable: %v", scheme, err)
		}
		for code, class := range map[int]pipeline.Class{503: pipeline.Unavailable, 429: pipeline.Throttled} {
			status = code
			if scheme == "oci" && code == 429 {
				continue // the same path
			}
			if err := resolve(at(srv)); !pipeline.Is(err, class) {
				t.Errorf("%s, %d: %v", scheme, code, err)
			}
		}
		for _, code := range []int{401, 403} {
			status = code
			var fatal *pipeline.FatalError
			if err := resolve(at(srv)); !errors.As(err, &fatal) || fatal.Problem.Code != "chart-source-denied" {
				t.Errorf("%s, %d: %v", scheme, code, err)
			}
		}
		status = 404
		want(t, resolve(at(srv)), "version")
		status = 200
	}
}

// An archive that is not what was asked for is not used.
func TestSourceIsVerified(t *testing.T) {
	good := small("1.0.0")
	e := engineAt(t, "http://charts.example.invalid", Options{})
	entry, _ := e.catalogue.Get("small")
	entry.Chart.Digest = newArchive(small("1.0.1").Archive()).digest
	srv := serve(t, charts.New(good))
	entry.Chart.Repository = srv.URL
	e.catalogue.entries["small"] = entry
	var fatal *pipeline.FatalError
	if _, err := e.Resolve(t.Context(), job.ComponentSpec{Name: "small"}, "", ""); !errors.As(err, &fatal) || fatal.Problem.Code != "chart-altered" {
		t.Errorf("digest: %v", err)
	}
	for name, body := range map[string]string{"no chart": "hello", "another chart": string(charts.Chart{Name: "other", Version: "1.0.0"}.Archive()), "another version": string(small("3.0.0").Archive())} {
		srv := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, ".yaml") {
				fmt.Fprint(w, "entries: {small: [{version: 1.0.0, urls: [x.tgz]}]}")
				return
			}
			fmt.Fprint(w, body)
		}))
		if _, err := engineAt(t, srv.URL, Options{}).Resolve(t.Context(), job.ComponentSpec{Name: "small"}, "", ""); !errors.As(err, &fatal) || fatal.Problem.Code != "chart-unusable" {
			t.Errorf("%s: %v", name, err)
		}
	}
	wrong := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".yaml") {
			fmt.Fprintf(w, "entries: {small: [{version: 1.0.0, urls: [x.tgz], digest: %q}]}", strings.Repeat("0", 64))
			return
		}
		_, _ = w.Write(good.Archive())
	}))
	if _, err := engineAt(t, wrong.URL, Options{}).Resolve(t.Context(), job.ComponentSpec{Name: "small"}, "", ""); !pipeline.Is(err, pipeline.Unavailable) {
		t.Errorf("digest of the index: %v", err)
	}
}

// A login goes to its host alone, over TLS that the given roots vouch for.
func TestLoginAndRoots(t *testing.T) {
	s := charts.New(small("1.0.0"))
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte("me:word")) {
			w.Header().Set("WWW-Authenticate", `Basic realm="charts"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	host := strings.TrimPrefix(srv.URL, "https://")
	roots := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	login := func(h string) (string, string) {
		if h == host {
			return "me", "word"
		}
		return "", ""
	}
	for _, repository := range []string{srv.URL, "oci://" + host + "/x"} {
		c, err := load(t).With([]byte(strings.ReplaceAll(smallEntry, "REPO", repository)))
		if err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			o  Options
			ok bool
		}{{Options{Roots: roots, Login: login}, true}, {Options{Roots: roots}, false}, {Options{Login: login}, false}} {
			tc.o.Catalogue = c
			e, err := New(tc.o)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := e.Resolve(t.Context(), job.ComponentSpec{Name: "small"}, "", ""); (err == nil) != tc.ok || err != nil && strings.Contains(err.Error(), "word") {
				t.Errorf("%s with roots %v and login %v: %v", repository, tc.o.Roots != nil, tc.o.Login != nil, err)
			}
		}
	}
	if _, err := New(Options{Roots: []byte("x")}); err == nil {
		t.Error("roots that are none were taken")
	}
}

// A restart finds its charts in the folder, unless somebody has spoilt them.
func TestCacheFolder(t *testing.T) {
	dir := t.TempDir()
	srv := httptest.NewServer(charts.New(small("1.0.0")))
	resolve := func() error {
		_, err := engineAt(t, srv.URL, Options{CacheDir: dir}).Resolve(t.Context(), job.ComponentSpec{Name: "small"}, "", "")
		return err
	}
	if err := resolve(); err != nil {
		t.Fatal(err)
	}
	srv.Close()
	if err := resolve(); err != nil {
		t.Errorf("after a restart, offline: %v", err)
	}
	found, err := filepath.Glob(dir + "/*.tgz")
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	if err := os.WriteFile(found[0], []byte("spoilt"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := resolve(); !pipeline.Is(err, pipeline.Unavailable) {
		t.Errorf("a spoilt chart: %v", err)
	}
}
