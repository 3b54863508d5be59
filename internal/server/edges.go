package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/zopday/provisioner/internal/api"
	"github.com/zopday/provisioner/internal/observe"
)

// How many connections a process holds at most, and of these how many of one
// address: slow ones are cut off after some seconds, and take that many at most.
const (
	maxConns           = 4096
	maxConnsPerAddress = 256
)

// Edges are how a process meets the network.
type Edges struct {
	TLSCert, TLSKey string         // PEM files of the certificate chain and its key; both or none
	InsecureBind    bool           // listen beyond this machine without TLS
	TrustedProxies  []netip.Prefix // whose X-Forwarded-For is believed
	TrustUnix       bool           // and that of whoever connects to a Unix socket
	PerToken        float64        // requests a second that one token may send for long; 0: no bound
	PerAddress      float64        // likewise of one address
	WebhookAllow    []string       // ranges and hosts that webhooks may be at besides the Internet
}

func (e Edges) limits() api.Limits {
	return api.Limits{PerToken: e.PerToken, PerAddress: e.PerAddress, TrustedProxies: e.TrustedProxies, TrustUnix: e.TrustUnix}
}

// unixPrefix begins an address that is the path of a Unix socket.
const unixPrefix = "unix:"

// listen opens the address. Beyond this machine it refuses to speak plainly, since
// every request carries a token.
func listen(ctx context.Context, address string, e Edges) (net.Listener, error) {
	if (e.TLSCert == "") != (e.TLSKey == "") {
		return nil, errors.New("--tls-cert and --tls-key go together; name both files, or neither")
	}
	if path, ok := strings.CutPrefix(address, unixPrefix); ok {
		return listenUnix(ctx, path)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if tcp, ok := l.Addr().(*net.TCPAddr); (!ok || !tcp.IP.IsLoopback()) && e.TLSCert == "" && !e.InsecureBind {
		_ = l.Close() // nothing was answered yet
		return nil, &insecureError{address: address}
	}
	return l, nil
}

// An insecureError is an address beyond this machine without TLS.
type insecureError struct{ address string }

func (e *insecureError) Error() string {
	return fmt.Sprintf("%s can be reached from other machines, and without TLS everybody on the way could read the tokens: "+
		"give --tls-cert and --tls-key, or listen on 127.0.0.1 behind a proxy that speaks TLS, or, where nobody listens in between, give --insecure-bind", e.address)
}

// listenUnix listens on a path, for its owner and group. What a process that is gone
// has left there is taken away.
func listenUnix(ctx context.Context, path string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if errors.Is(err, syscall.EADDRINUSE) && abandoned(ctx, path) {
		if err = os.Remove(path); err == nil {
			l, err = lc.Listen(ctx, "unix", path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	if err := os.Chmod(path, 0o660); err != nil { //nolint:gosec // the group is the proxy's
		return nil, errors.Join(fmt.Errorf("listen: %w", err), l.Close())
	}
	return l, nil
}

// abandoned reports whether a path is a socket at which nobody listens.
func abandoned(ctx context.Context, path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSocket == 0 {
		return false
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		_ = c.Close() // somebody does
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// addressOf is where a client finds the server.
func addressOf(l net.Listener, secure bool) string {
	switch {
	case l.Addr().Network() == "unix":
		return unixPrefix + l.Addr().String()
	case secure:
		return "https://" + reachable(l.Addr())
	}
	return "http://" + reachable(l.Addr())
}

// openEdges listens, behind the bound on connections, and reads the certificate.
func (s *Server) openEdges(ctx context.Context, c Config) error {
	l, err := listen(ctx, c.Listen, c.Edges)
	if err != nil {
		return err
	}
	s.closeAll = append(s.closeAll, func() error { return ignoreClosed(l.Close()) })
	s.url = addressOf(l, c.Edges.TLSCert != "")
	s.listener = &bounded{Listener: l, all: maxConns, each: maxConnsPerAddress, proxies: c.Edges.TrustedProxies, held: map[netip.Addr]int{}}
	if c.Edges.TLSCert != "" {
		if s.keys, err = openKeyPair(c.Edges.TLSCert, c.Edges.TLSKey, c.Log); err != nil {
			return err
		}
	} else if l.Addr().Network() != "unix" && c.Edges.InsecureBind {
		c.Log.WarnContext(ctx, "listening without TLS, as --insecure-bind says: whoever is on the way reads the tokens", "address", l.Addr().String())
	}
	return nil
}

// serve answers on the listener until the server is shut.
func (s *Server) serve(wctx context.Context, m *observe.Metrics) {
	s.listener.refused = m.ConnectionRefused
	s.http.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 128}
	run := func() error { return s.http.Serve(s.listener) }
	if s.keys != nil {
		m.WatchCertificate(s.keys.notAfter)
		s.http.TLSConfig = s.keys.config()
		s.work.Go(func() { s.keys.watch(wctx, certificateTick) })
		run = func() error { return s.http.ServeTLS(s.listener, "", "") }
	}
	s.work.Go(func() {
		if err := run(); !errors.Is(err, http.ErrServerClosed) {
			s.fail(fmt.Errorf("serve: %w", err))
		}
	})
}

// bounded is a listener that closes connections beyond a number at once: of all, and
// of one address that is neither this machine's nor a trusted proxy's.
type bounded struct {
	net.Listener
	all, each int
	proxies   []netip.Prefix
	refused   func(bound string)

	mu    sync.Mutex
	total int
	held  map[netip.Addr]int
}

func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := b.addressOf(c)
		bound := b.take(from)
		if bound == "" {
			return &held{Conn: c, give: func() { b.give(from) }}, nil
		}
		if b.refused != nil {
			b.refused(bound)
		}
		_ = c.Close() // it was never taken
	}
}

// addressOf is what a connection is counted under; invalid for one that counts as
// one of all alone.
func (b *bounded) addressOf(c net.Conn) netip.Addr {
	tcp, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	a := tcp.AddrPort().Addr().Unmap().WithZone("")
	if a.IsLoopback() {
		return netip.Addr{}
	}
	for _, p := range b.proxies {
		if p.Contains(a) {
			return netip.Addr{}
		}
	}
	return a
}

func (b *bounded) take(from netip.Addr) (bound string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.total >= b.all:
		return "all"
	case from.IsValid() && b.held[from] >= b.each:
		return "address"
	}
	b.total++
	if from.IsValid() {
		b.held[from]++
	}
	return ""
}

func (b *bounded) give(from netip.Addr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total--
	if !from.IsValid() {
		return
	}
	if b.held[from]--; b.held[from] <= 0 {
		delete(b.held, from)
	}
}

// held is a connection that gives its place back when it is closed.
type held struct {
	net.Conn
	give func()
	once sync.Once
}

func (h *held) Close() error {
	h.once.Do(h.give)
	return h.Conn.Close()
}
