package server

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestBind: beyond this machine a server speaks TLS, or does not start.
func TestBind(t *testing.T) {
	p := newPair(t)
	p.write(t, 1, time.Hour)
	secure := Edges{TLSCert: p.cert, TLSKey: p.key}
	for _, tc := range []struct {
		listen string
		edges  Edges
		starts bool
	}{
		{"127.0.0.1:0", Edges{}, true},
		{"localhost:0", Edges{}, true},
		{"127.3.4.5:0", Edges{}, true},
		{"0.0.0.0:0", Edges{}, false},
		{":0", Edges{}, false},
		{"[::]:0", Edges{}, false},
		{"0.0.0.0:0", secure, true},
		{"0.0.0.0:0", Edges{InsecureBind: true}, true},
		{"unix:" + filepath.Join(t.TempDir(), "s"), Edges{}, true},
	} {
		l, err := listen(t.Context(), tc.listen, tc.edges)
		if err == nil {
			_ = l.Close()
		}
		if (err == nil) != tc.starts {
			t.Errorf("%s with %+v: %v", tc.listen, tc.edges, err)
		}
		if !tc.starts && err != nil {
			for _, says := range []string{"--tls-cert", "--insecure-bind", "127.0.0.1"} {
				if !strings.Contains(err.Error(), says) {
					t.Errorf("%s: the message does not name %s: %v", tc.listen, says, err)
				}
			}
		}
	}
	// The whole start refuses too, before anything is written.
	db := filepath.Join(t.TempDir(), "a.db")
	if _, err := Start(t.Context(), Config{Listen: "0.0.0.0:0", DB: db, Token: token}); err == nil {
		t.Error("it starts")
	}
	if files, _ := filepath.Glob(db + "*"); len(files) > 0 {
		t.Errorf("the refused start left %s", files)
	}
}

// TestUnixSocket serves on a path, also on one that a process which is gone has left.
func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "zopday.sock")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	if _, err := listen(t.Context(), "unix:"+path, Edges{}); err == nil {
		t.Error("a socket at which somebody listens is taken over")
	}
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	s := start(t, func(c *Config) { c.Workers, c.Listen = 0, "unix:"+path })
	if s.URL() != "unix:"+path {
		t.Errorf("address %s", s.URL())
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}}
	for url, want := range map[string]int{"http://zopday/healthz": 200, "http://zopday/metrics": 401, "http://localhost/metrics": 401} {
		resp, err := client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", url, resp.StatusCode, want)
		}
	}
}

// from is a connection of an address.
type from struct {
	net.Conn
	addr   string
	closed bool
}

func (f *from) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.addr))
}

func (f *from) Close() error { f.closed = true; return nil }

// script is a listener that hands out what it is given.
type script struct {
	net.Listener
	conns chan net.Conn
}

func (s script) Accept() (net.Conn, error) {
	select {
	case c := <-s.conns:
		return c, nil
	default:
		return nil, io.EOF
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	in := script{conns: make(chan net.Conn, 100)}
	refused := map[string]int{}
	b := &bounded{Listener: in, all: 10, each: 3, proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, held: map[netip.Addr]int{}, refused: func(bound string) { refused[bound]++ }}
	var open []net.Conn
	accept := func(addr string, n int) (taken int) {
		for range n {
			in.conns <- &from{addr: addr}
		}
		for {
			c, err := b.Accept()
			if err != nil {
				return taken
			}
			open = append(open, c)
			taken++
		}
	}
	for _, tc := range []struct {
		addr    string
		n, want int
	}{
		{"192.0.2.1:1000", 5, 3},          // one address
		{"[::ffff:192.0.2.1]:1000", 2, 0}, // the same one, as IPv6 writes it
		{"10.1.2.3:1000", 4, 4},           // a proxy stands for many
		{"127.0.0.1:1000", 2, 2},          // this machine
		{"192.0.2.2:1000", 3, 1},          // all together
		{"127.0.0.1:1001", 1, 0},
	} {
		if got := accept(tc.addr, tc.n); got != tc.want {
			t.Errorf("%d of %d connections of %s are taken, want %d", got, tc.n, tc.addr, tc.want)
		}
	}
	if fmt.Sprint(refused) != "map[address:4 all:3]" {
		t.Errorf("refused %v", refused)
	}
	for _, c := range open {
		_ = c.Close()
		_ = c.Close() // twice gives one place back
	}
	if b.total != 0 || len(b.held) != 0 {
		t.Errorf("after all are closed: %d, %v", b.total, b.held)
	}
	if got := accept("192.0.2.1:1000", 5); got != 3 {
		t.Errorf("afterwards %d are taken", got)
	}
}
