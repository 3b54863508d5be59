package kube

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/version"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/pipeline"
)

// apiServer answers for its version alone, over HTTP/2, and counts the
// connections to it and the tokens that it was shown.
type apiServer struct {
	*httptest.Server
	connections atomic.Int32

	mu     sync.Mutex
	tokens map[string]int
}

func newAPIServer(t *testing.T) *apiServer {
	t.Helper()
	s := &apiServer{tokens: map[string]int{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.tokens[r.Header.Get("Authorization")]++
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"major":"1","minor":"36","gitVersion":"v1.36.2"}`)
	}))
	s.EnableHTTP2 = true
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			s.connections.Add(1)
		}
	}
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

func (s *apiServer) access(token string) cloud.KubeAccess {
	return cloud.KubeAccess{
		Server: s.URL, CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
		Token: func(context.Context) (string, error) { return token, nil },
	}
}

// TestConnectionsAreShared between the clients of all passes, and neither tokens
// nor gates are.
func TestConnectionsAreShared(t *testing.T) {
	s := newAPIServer(t)
	open := pipeline.WithGate(t.Context(), func(context.Context, pipeline.Call) error { return nil })
	const passes = 30
	for i := range passes {
		access := s.access(fmt.Sprintf("token-%d", i))
		c, err := Client(open, access)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Version(c); err != nil {
			t.Fatal(err)
		}
		g, err := NewGetter(open, access, "default")
		if err != nil {
			t.Fatal(err)
		}
		d, err := g.ToDiscoveryClient()
		if err != nil {
			t.Fatal(err)
		}
		var v *version.Info
		if v, err = d.ServerVersion(); err != nil || v.GitVersion != "v1.36.2" {
			t.Fatalf("version %v, %v", v, err)
		}
	}
	if n := s.connections.Load(); n != 1 {
		t.Errorf("%d connections for %d clients", n, 2*passes)
	}
	for i := range passes {
		if n := s.tokens[fmt.Sprintf("Bearer token-%d", i)]; n != 2 {
			t.Errorf("token %d came with %d requests", i, n)
		}
	}
	closed := pipeline.WithGate(t.Context(), func(context.Context, pipeline.Call) error { return pipeline.ErrReadOnly })
	c, err := Client(closed, s.access("token"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Version(c); !pipeline.Is(err, pipeline.Refused) {
		t.Errorf("a closed gate let a call through: %v", err)
	}
}

// TestTransportsAreKeptApart by what they trust, and not for ever.
func TestTransportsAreKeptApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pool
		one, err := newAuthority()
		if err != nil {
			t.Fatal(err)
		}
		other, err := newAuthority()
		if err != nil {
			t.Fatal(err)
		}
		get := func(access cloud.KubeAccess) *http.Transport {
			t.Helper()
			tr, err := p.get(access)
			if err != nil {
				t.Fatal(err)
			}
			return tr
		}
		first := get(cloud.KubeAccess{Server: "https://a", CA: one})
		seen := map[*http.Transport]string{first: "an authority"}
		for name, access := range map[string]cloud.KubeAccess{
			"another authority": {Server: "https://a", CA: other}, "the same as an extra root": {Server: "https://a", Roots: one}, "the system's": {Server: "https://a"},
		} {
			tr := get(access)
			if with := seen[tr]; with != "" {
				t.Errorf("%s has the transport of %s", name, with)
			}
			seen[tr] = name
		}
		if get(cloud.KubeAccess{Server: "https://a", CA: one}) != first {
			t.Error("the same authority has another transport")
		}
		for _, bad := range []cloud.KubeAccess{{Server: "https://a", CA: []byte{}}, {Server: "https://a", Roots: []byte("x")}} {
			if _, err := p.get(bad); err == nil {
				t.Errorf("no PEM is taken: %v", bad)
			}
		}
		time.Sleep(keptFor - time.Second)
		get(cloud.KubeAccess{Server: "https://a", CA: one})
		time.Sleep(2 * time.Second)
		third, err := newAuthority()
		if err != nil {
			t.Fatal(err)
		}
		get(cloud.KubeAccess{Server: "https://b", CA: third})
		if len(p.kept) != 2 || get(cloud.KubeAccess{Server: "https://a", CA: one}) != first {
			t.Errorf("%d transports are kept, of which two were used of late", len(p.kept))
		}
	})
}

// newAuthority is a certificate authority of its own, as PEM.
func newAuthority() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}

// TestDeadConnection: one whose other end is gone without a word is found out,
// and the next call has another.
func TestDeadConnection(t *testing.T) {
	s := newAPIServer(t)
	access := s.access("token")
	between := newWire(t, s.Listener.Addr().String())
	access.Server = "https://" + between.Addr().String()
	tr, err := transports.get(access)
	if err != nil {
		t.Fatal(err)
	}
	if tr.HTTP2.SendPingTimeout <= 0 || tr.HTTP2.PingTimeout <= 0 {
		t.Fatal("connections are not watched")
	}
	tr.HTTP2.SendPingTimeout, tr.HTTP2.PingTimeout = 100*time.Millisecond, 200*time.Millisecond
	c, err := Client(pipeline.WithGate(t.Context(), pipeline.ReadOnly), access)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Version(c); err != nil {
		t.Fatal(err)
	}
	between.cut()
	start := time.Now()
	_, err = Version(c)
	if err != nil && !pipeline.Is(err, pipeline.Unavailable) {
		t.Errorf("the call on a dead connection: %v", err)
	}
	if _, err := Version(c); err != nil {
		t.Errorf("the call after: %v", err)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}

// A wire passes bytes on between its own address and another, until it is cut:
// then what is connected stays so and hears nothing more.
type wire struct {
	net.Listener
	mu    sync.Mutex
	dead  chan struct{}
	conns []net.Conn
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{Listener: l, dead: make(chan struct{})}
	t.Cleanup(func() {
		_ = l.Close()
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, c := range w.conns {
			_ = c.Close()
		}
	})
	go w.connect(to)
	return w
}

func (w *wire) connect(to string) {
	for {
		in, err := w.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", to)
		if err != nil {
			_ = in.Close()
			return
		}
		w.mu.Lock()
		w.conns = append(w.conns, in, out)
		dead := w.dead
		w.mu.Unlock()
		go pass(out, in, dead)
		go pass(in, out, dead)
	}
}

func pass(to io.Writer, from io.Reader, dead chan struct{}) {
	b := make([]byte, 4<<10)
	for {
		n, err := from.Read(b)
		select {
		case <-dead:
			return
		default:
		}
		if err != nil {
			return
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
	}
}

func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.dead)
	w.dead = make(chan struct{})
}
