package spaces

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	configv1 "github.com/zopday/provisioner/internal/spaces/configv1"
	"github.com/zopday/provisioner/internal/spaces/configv1/configv1connect"
)

// A Client registers spaces over gRPC.
type Client struct {
	config    configv1connect.ConfigServiceClient
	discovery configv1connect.DiscoveryServiceClient
}

// Dial talks to an external config service: an http:// address means gRPC
// without TLS, https:// with it.
func Dial(address string) *Client {
	return newClient(&http.Client{Transport: h2Transport(nil), Timeout: 15 * time.Second}, strings.TrimSuffix(address, "/"))
}

// BuiltIn serves the registry on a pipe inside this process and talks gRPC to
// it: the same wire as an external service, reachable by nobody else. Close
// ends the server.
func BuiltIn(g *Registry) (client *Client, closeServer func() error) {
	mux := http.NewServeMux()
	mux.Handle(configv1connect.NewConfigServiceHandler(g))
	mux.Handle(configv1connect.NewDiscoveryServiceHandler(g))
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: mux, Protocols: h2cOnly(), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }() // ends with ErrServerClosed when closed below
	c := newClient(&http.Client{Transport: h2Transport(l.dial), Timeout: 15 * time.Second}, "http://built-in")
	return c, server.Close
}

func newClient(h *http.Client, base string) *Client {
	return &Client{
		config:    configv1connect.NewConfigServiceClient(h, base, connect.WithGRPC()),
		discovery: configv1connect.NewDiscoveryServiceClient(h, base, connect.WithGRPC()),
	}
}

func h2cOnly() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

func h2Transport(dial func(context.Context, string, string) (net.Conn, error)) *http.Transport {
	p := h2cOnly()
	p.SetHTTP2(true)
	return &http.Transport{Protocols: p, DialContext: dial, IdleConnTimeout: time.Minute}
}

// Register makes a space known and asks the discoverer to look at it. Both may be
// repeated: a space is registered once for its subject, however often a lost reply
// makes the caller ask again.
func (c *Client) Register(ctx context.Context, s *configv1.Space) (string, error) {
	res, err := c.config.RegisterSpace(ctx, connect.NewRequest(&configv1.RegisterSpaceRequest{Space: s}))
	if err != nil {
		return "", fmt.Errorf("config service: %w", err)
	}
	if _, err := c.discovery.Sync(ctx, connect.NewRequest(&configv1.SyncRequest{OrgId: s.GetOrgId(), SpaceId: res.Msg.GetId()})); err != nil {
		return "", fmt.Errorf("discovery service: %w", err)
	}
	return res.Msg.GetId(), nil
}

// Deregister forgets a space.
func (c *Client) Deregister(ctx context.Context, org, id string) error {
	if _, err := c.config.DeregisterSpace(ctx, connect.NewRequest(&configv1.DeregisterSpaceRequest{OrgId: org, Id: id})); err != nil {
		return fmt.Errorf("config service: %w", err)
	}
	return nil
}

// List lists an organisation's spaces, the newest first, from a page token on.
func (c *Client) List(ctx context.Context, org string, size int, token string) (page []*configv1.Space, next string, err error) {
	res, err := c.config.ListSpaces(ctx, connect.NewRequest(&configv1.ListSpacesRequest{OrgId: org, PageSize: int32(min(size, pageMost)), PageToken: token})) //nolint:gosec // bounded
	if err != nil {
		return nil, "", fmt.Errorf("config service: %w", err)
	}
	return res.Msg.GetSpaces(), res.Msg.GetNextPageToken(), nil
}

// Get reads one space; nil if the organisation has none of that ID.
func (c *Client) Get(ctx context.Context, org, id string) (*configv1.Space, error) {
	res, err := c.config.GetSpace(ctx, connect.NewRequest(&configv1.GetSpaceRequest{OrgId: org, Id: id}))
	if connect.CodeOf(err) == connect.CodeNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("config service: %w", err)
	}
	return res.Msg.GetSpace(), nil
}

// pipeListener accepts connections that its own dial makes.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "built-in" }
