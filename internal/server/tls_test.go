package server

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// A pair is a certificate for this machine and its key, as files.
type pair struct{ cert, key string }

// write makes a new certificate, signed by itself, that ends after a while.
func (p pair) write(t *testing.T, serial int64, lasts time.Duration) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "zopday"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(lasts),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	for file, content := range map[string][]byte{p.cert: chain, p.key: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(chain)
	return pool
}

func newPair(t *testing.T) pair {
	dir := t.TempDir()
	return pair{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")}
}

func (p pair) open(t *testing.T, log *slog.Logger) *keyPair {
	t.Helper()
	k, err := openKeyPair(p.cert, p.key, log)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *keyPair) serial() int64 { return k.current.Load().Leaf.SerialNumber.Int64() }

// logTo is a log that a test reads.
func logTo() (*slog.Logger, *sharedBuffer) {
	b := &sharedBuffer{}
	return slog.New(slog.NewTextHandler(b, nil)), b
}

type sharedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *sharedBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *sharedBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// TestTLS speaks to a server by TLS and HTTP/2, changes the certificate under an
// open connection, and finds the new one on the next.
func TestTLS(t *testing.T) {
	p := newPair(t)
	roots := p.write(t, 1, time.Hour)
	s := start(t, func(c *Config) { c.Workers, c.Edges.TLSCert, c.Edges.TLSKey = 0, p.cert, p.key })
	if !strings.HasPrefix(s.URL(), "https://") {
		t.Fatalf("address %s", s.URL())
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	ask := func() *http.Response {
		t.Helper()
		resp, err := client.Get(s.URL() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || !strings.Contains(string(body), "zopday_tls_certificate_not_after_seconds") {
			t.Fatalf("%d %v %.200s", resp.StatusCode, err, body)
		}
		return resp
	}
	first := ask()
	if first.ProtoMajor != 2 || first.TLS.PeerCertificates[0].SerialNumber.Int64() != 1 {
		t.Errorf("HTTP/%d with the certificate %v", first.ProtoMajor, first.TLS.PeerCertificates[0].SerialNumber)
	}
	if got := first.Header.Get("Strict-Transport-Security"); !strings.Contains(got, "max-age=") {
		t.Errorf("Strict-Transport-Security %q", got)
	}

	second := p.write(t, 2, time.Hour)
	s.keys.reload(t.Context())
	if again := ask(); again.TLS.PeerCertificates[0].SerialNumber.Int64() != 1 {
		t.Error("the connection that stood was dropped")
	}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(s.URL(), "https://"), &tls.Config{RootCAs: second})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(); got != 2 {
		t.Errorf("a new connection has the certificate %d", got)
	}

	// Old versions are refused, and so is plain HTTP.
	if c, err := tls.Dial("tcp", strings.TrimPrefix(s.URL(), "https://"), &tls.Config{RootCAs: second, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}); err == nil {
		_ = c.Close()
		t.Error("TLS 1.1 is spoken")
	}
	if resp, err := http.Get(strings.Replace(s.URL(), "https:", "http:", 1) + "/healthz"); err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("plain HTTP is answered with %d", resp.StatusCode)
		}
	}
}

// TestCertificateWatch: what changes is taken over by itself.
func TestCertificateWatch(t *testing.T) {
	p := newPair(t)
	p.write(t, 1, time.Hour)
	k := p.open(t, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); k.watch(ctx, 5*time.Millisecond) }()
	p.write(t, 2, 2*time.Hour)
	for begun := time.Now(); k.serial() != 2; time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > 10*time.Second {
			t.Fatal("the new certificate is not in use")
		}
	}
	cancel()
	<-done
	if left := time.Until(k.notAfter()); left < 90*time.Minute {
		t.Errorf("it ends in %s", left)
	}
}

// TestBrokenCertificates leave the one before in place, are said once, and the next
// good one is taken.
func TestBrokenCertificates(t *testing.T) {
	for name, breakIt := range map[string]func(t *testing.T, p pair){
		"an empty certificate": func(t *testing.T, p pair) { overwrite(t, p.cert, "", 0o600) },
		"no certificate": func(t *testing.T, p pair) {
			overwrite(t, p.cert, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", 0o600)
		},
		"a key that everybody reads": func(t *testing.T, p pair) {
			if err := os.Chmod(p.key, 0o644); err != nil {
				t.Fatal(err)
			}
		},
		"the certificate of another key": func(t *testing.T, p pair) {
			other := newPair(t)
			other.write(t, 9, time.Hour)
			b, err := os.ReadFile(other.cert)
			if err != nil {
				t.Fatal(err)
			}
			overwrite(t, p.cert, string(b), 0o600)
		},
		"one that has expired": func(t *testing.T, p pair) { p.write(t, 9, -time.Minute) },
		"no file": func(t *testing.T, p pair) {
			if err := os.Remove(p.key); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t)
			p.write(t, 1, time.Hour)
			log, said := logTo()
			k := p.open(t, log)
			breakIt(t, p)
			for range 3 {
				k.reload(t.Context())
			}
			if k.serial() != 1 {
				t.Errorf("the certificate %d is in use", k.serial())
			}
			if n := strings.Count(said.String(), "level=ERROR"); n != 1 {
				t.Errorf("it is said %d times: %s", n, said)
			}
			if strings.Contains(said.String(), "BEGIN") || strings.Contains(said.String(), "AAAA") {
				t.Errorf("the log shows what is in the files: %s", said)
			}
			_ = os.Remove(p.key)
			p.write(t, 3, time.Hour)
			k.reload(t.Context())
			if k.serial() != 3 {
				t.Errorf("after a good one the certificate %d is in use", k.serial())
			}
		})
	}
}

func overwrite(t *testing.T, file, content string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

// TestNoCertificateNoStart: what cannot work ends the start, with what to do.
func TestNoCertificateNoStart(t *testing.T) {
	good, open := newPair(t), newPair(t)
	good.write(t, 1, time.Hour)
	open.write(t, 1, time.Hour)
	if err := os.Chmod(open.key, 0o604); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ cert, key, says string }{
		"a certificate alone":        {good.cert, "", "go together"},
		"a key alone":                {"", good.key, "go together"},
		"no such certificate":        {good.cert + "x", good.key, "--tls-cert"},
		"no such key":                {good.cert, good.key + "x", "--tls-key"},
		"a key that everybody reads": {open.cert, open.key, "chmod 600"},
		"a key of another":           {good.cert, strings.Replace(open.key, "tls.key", "x.key", 1), "cannot be used"},
		"the two the wrong way":      {good.key, good.cert, "cannot be used"},
	} {
		if strings.HasSuffix(tc.key, "x.key") {
			b, err := os.ReadFile(open.key)
			if err != nil {
				t.Fatal(err)
			}
			overwrite(t, tc.key, string(b), 0o600)
		}
		_, err := Start(t.Context(), Config{Listen: "127.0.0.1:0", DB: filepath.Join(t.TempDir(), "a.db"), Token: token, Edges: Edges{TLSCert: tc.cert, TLSKey: tc.key}})
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		} else if strings.Contains(err.Error(), "BEGIN") {
			t.Errorf("%s: the error shows what is in the file: %v", name, err)
		}
	}
}
