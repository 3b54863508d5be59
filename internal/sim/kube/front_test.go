package kube

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/sim"
)

func TestWithoutBinary(t *testing.T) {
	k := instance(t, Options{})
	asked := make(chan sim.KubeCaller, 10)
	spec := sim.KubeCluster{ID: "one", Authenticate: authenticate, Admits: func(from sim.KubeCaller) bool {
		asked <- from
		return true
	}}
	e := k.Open(spec)
	k.SetNodes(spec.ID, testNodes)
	err := as(t, e, adminToken).call(t.Context(), http.MethodGet, nodesPath, nil, nil)
	var s *status
	if !errors.As(err, &s) || s.Code != http.StatusServiceUnavailable || s.Reason != "ServiceUnavailable" ||
		!strings.Contains(s.Message, "without Kubernetes") || !strings.Contains(s.Message, "`make kube`") || !strings.Contains(s.Message, "`zopday sandbox --kube`") {
		t.Errorf("answer: %+v", err)
	}
	if from := <-asked; from != (sim.KubeCaller{IP: netip.MustParseAddr("203.0.113.7")}) {
		t.Errorf("a connection comes from %+v", from)
	}
	if got := k.Requests(); len(got) != 1 || got[0] != (Request{Cluster: "one", Method: http.MethodGet, Path: nodesPath, Count: 1}) || got[0].Mutating() {
		t.Errorf("books: %+v", got)
	}
	if again := k.Open(spec); again.Address != e.Address {
		t.Errorf("opened again at %s, was at %s", again.Address, e.Address)
	}
	k.Stop("one")
	k.Start("one")
	k.Hold("none such", true)
	k.Close("none such")
	k.Close("one")
	if k.Open(spec); k.cluster("one") == nil {
		t.Error("a closed cluster does not open again")
	}
	k.Shutdown()
	if e := k.Open(spec); e.Address != "127.0.0.1:0" {
		t.Errorf("opened at %s after the end", e.Address)
	}
}

// The certificate is good for whatever the cloud calls its endpoint, and not for anybody's CA.
func TestCertificate(t *testing.T) {
	dir := t.TempDir()
	k := instance(t, Options{StateDir: dir})
	e := k.Open(sim.KubeCluster{ID: "one"})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(k.CA())
	dial := func(roots *x509.CertPool, name string) error {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", e.Address)
		if err != nil {
			return err
		}
		defer conn.Close()
		return tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: name}).HandshakeContext(t.Context())
	}
	for _, name := range []string{"127.0.0.1", "localhost", "0F1E2D3C.gr7.eu-west-1.eks.amazonaws.com", "x-1234.hcp.westeurope.azmk8s.io"} {
		if err := dial(roots, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if dial(x509.NewCertPool(), "localhost") == nil {
		t.Error("nobody's CA is trusted")
	}
	again := instance(t, Options{StateDir: dir})
	if string(again.CA()) != string(k.CA()) {
		t.Error("a kept instance has another CA")
	}
	info, err := os.Stat(filepath.Join(dir, caKeyFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key of the CA: %v %v", info, err)
	}
	if err := os.WriteFile(filepath.Join(dir, caKeyFile), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{StateDir: dir}); err == nil {
		t.Error("a broken CA is taken for none")
	}
}

// TestForward sends requests to a server that tells what came through.
func TestForward(t *testing.T) {
	var seen *http.Request
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r
		if r.Header.Get("Upgrade") == "" {
			return
		}
		conn, buf, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = conn.Write([]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"))
		line, _ := buf.ReadString('\n')
		_, _ = conn.Write([]byte("heard " + line))
	}))
	t.Cleanup(server.Close)
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	behind, err := newClient(announcement{Server: server.URL, CA: ca, Token: "the-real-one"})
	if err != nil {
		t.Fatal(err)
	}
	k := instance(t, Options{})
	one := newCluster(k, sim.KubeCluster{ID: "one", Authenticate: authenticate})
	one.backend = &backend{kube: k, run: &run{cancel: func() {}, process: &process{ready: closed(), client: behind}}}
	if one.front, err = newFront(one); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(one.front.close)
	e := sim.KubeEndpoint{Address: one.front.address(), CA: k.CA()}
	c := as(t, e, nobodyToken)

	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+e.Address+"/api/v1/pods?watch=1&x=a%2Fb", nil)
	r.Header.Set("Authorization", "bearer "+nobodyToken)
	r.Header.Set("Impersonate-Uid", "1")
	r.Header["impersonate-extra-scopes"] = []string{"all"}
	res, err := c.http.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if seen.RequestURI != "/api/v1/pods?watch=1&x=a%2Fb" || seen.Header.Get("Authorization") != "Bearer the-real-one" {
		t.Errorf("came through as %s, authorization of %d characters", seen.RequestURI, len(seen.Header.Get("Authorization")))
	}
	for name, values := range seen.Header {
		if strings.HasPrefix(name, "Impersonate-") && name != "Impersonate-User" && name != "Impersonate-Group" {
			t.Errorf("%s: %v came through", name, values)
		}
	}
	if seen.Header.Get("Impersonate-User") != "bob" || strings.Join(seen.Header.Values("Impersonate-Group"), " ") != "readers" {
		t.Errorf("came through as %v", seen.Header)
	}

	// An upgraded connection, such as kubectl exec has, goes both ways.
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(e.CA)
	conn, err := (&tls.Dialer{Config: &tls.Config{RootCAs: roots}}).DialContext(t.Context(), "tcp", e.Address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "POST /exec HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+nobodyToken+"\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
	in := bufio.NewReader(conn)
	upgraded, err := http.ReadResponse(in, nil)
	if err != nil || upgraded.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("upgrade: %v %v", upgraded, err)
	}
	_, _ = io.WriteString(conn, "hello\n")
	if line, err := in.ReadString('\n'); line != "heard hello\n" {
		t.Errorf("%q came back: %v", line, err)
	}

	// A control plane that ended by itself says so, and does not hang.
	one.backend.mu.Lock()
	one.backend.run = &run{cancel: func() {}, process: &process{ready: make(chan struct{}), done: closed(), err: errors.New("out of memory")}}
	one.backend.mu.Unlock()
	err = c.call(t.Context(), http.MethodGet, "/version", nil, nil)
	if !isCode(err, http.StatusServiceUnavailable) || !strings.Contains(err.Error(), "out of memory") {
		t.Errorf("a control plane that ended: %v", err)
	}
}

func closed() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func TestMutating(t *testing.T) {
	for _, c := range []struct {
		r    Request
		want bool
	}{
		{Request{Method: http.MethodGet, Path: "/api/v1/pods"}, false},
		{Request{Method: http.MethodPost, Path: "/api/v1/namespaces"}, true},
		{Request{Method: http.MethodPost, Path: "/api/v1/namespaces", DryRun: true}, false},
		{Request{Method: http.MethodPost, Path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"}, false},
		{Request{Method: http.MethodDelete, Path: "/api/v1/namespaces/x"}, true},
		{Request{Method: http.MethodPatch, Path: "/apis/apps/v1/namespaces/x/deployments/y"}, true},
	} {
		if got := c.r.Mutating(); got != c.want {
			t.Errorf("%+v: %v", c.r, got)
		}
	}
}

func TestGibibytes(t *testing.T) {
	for quantity, want := range map[string]int{"8Gi": 8, "8500Mi": 9, "1Ti": 1024, "10G": 10, "1073741824": 1, "1073741825": 2, "1e10": 10, "500M": 1} {
		if got, err := gibibytes(quantity); got != want || err != nil {
			t.Errorf("%s is %d GiB, %v; want %d", quantity, got, err, want)
		}
	}
	for _, quantity := range []string{"", "Gi", "-1Gi", "many"} {
		if got, err := gibibytes(quantity); err == nil {
			t.Errorf("%q is %d GiB", quantity, got)
		}
	}
}

func TestBinary(t *testing.T) {
	t.Setenv(BinaryVariable, filepath.Join(t.TempDir(), "none"))
	if path, err := Binary(); err == nil {
		t.Errorf("found %s", path)
	}
	t.Setenv(BinaryVariable, "")
	t.Chdir(t.TempDir())
	if path, err := Binary(); !errors.Is(err, ErrNoBinary) || !strings.Contains(err.Error(), "make kube") {
		t.Errorf("found %q, %v", path, err)
	}
	if err := os.MkdirAll("tools/kube", 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"main.go": "package main\n", "go.mod": "module m\n", "go.sum": ""} {
		if err := os.WriteFile(filepath.Join("tools/kube", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// cat go.mod go.sum ./*.go | sha256sum | cut -c1-16
	const hash = "517db5c98e48b118"
	built := filepath.Join(".cache", "kube", hash)
	if err := os.MkdirAll(built, 0o700); err != nil {
		t.Fatal(err)
	}
	if path, err := Binary(); !errors.Is(err, ErrNoBinary) {
		t.Errorf("found %q, %v", path, err)
	}
	if err := os.WriteFile(filepath.Join(built, binaryName), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if path, err := Binary(); err != nil || !strings.HasSuffix(path, filepath.Join(built, binaryName)) {
		t.Errorf("found %q, %v", path, err)
	}
}

// A start that comes to nothing is told, with what the program said.
func TestStartFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kube-sandbox")
	if err := os.WriteFile(path, []byte("#!/bin/sh\necho no space left >&2\nexit 3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	k := instance(t, Options{Binary: path})
	e := k.Open(sim.KubeCluster{ID: "one", Authenticate: authenticate})
	err := as(t, e, adminToken).call(context.Background(), http.MethodGet, "/version", nil, nil)
	if !isCode(err, http.StatusServiceUnavailable) || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("answer: %v", err)
	}
}
