package spaces

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/zopday/provisioner/internal/pipeline"
	configv1 "github.com/zopday/provisioner/internal/spaces/configv1"
	"github.com/zopday/provisioner/internal/spaces/configv1/configv1connect"
)

// The services, as errors name them.
const (
	configService    = "config service"
	discoveryService = "discovery service"
)

// A Client registers spaces over gRPC. Its errors are *pipeline.CloudError: what
// is worth another try has the class Registry.
type Client struct {
	config    configv1connect.ConfigServiceClient
	discovery configv1connect.DiscoveryServiceClient
}

// patience bounds one call.
const patience = 15 * time.Second

// Dial talks to an external config service: an http:// address means gRPC
// without TLS, https:// with it, checked by the system's root certificates.
// Nothing is asked before the first call.
func Dial(address string) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the config service's address is not one: use https://HOST:PORT, or http://HOST:PORT without TLS")
	}
	return newClient(&http.Client{Transport: h2Transport(nil), Timeout: patience}, strings.TrimSuffix(address, "/")), nil
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
	c := newClient(&http.Client{Transport: h2Transport(l.dial), Timeout: patience}, "http://built-in")
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
	return &http.Transport{
		Protocols: p, DialContext: dial, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 10 * time.Second,
		// A connection whose other end is silently gone is found out, and left:
		// otherwise every call would be sent into it until its time is over.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 5 * time.Second, PingTimeout: 5 * time.Second},
	}
}

// classes says what a code of gRPC means for what was asked. All others, those of
// a service that fails or cannot be reached among them, are worth another try.
var classes = map[connect.Code]pipeline.Class{
	connect.CodeInvalidArgument:    pipeline.Invalid,
	connect.CodeFailedPrecondition: pipeline.Invalid,
	connect.CodeOutOfRange:         pipeline.Invalid,
	connect.CodeUnimplemented:      pipeline.Invalid,
	connect.CodeNotFound:           pipeline.NotFound,
	connect.CodeAlreadyExists:      pipeline.Exists,
	connect.CodePermissionDenied:   pipeline.Denied,
	connect.CodeUnauthenticated:    pipeline.Expired,
}

// classify gives an error of one of the services its meaning.
func classify(service, op string, err error) error {
	out := &pipeline.CloudError{Class: pipeline.Registry, Service: service, Op: op, Code: connect.CodeOf(err).String(), Message: err.Error(), Sent: true, Err: err}
	if c, ok := classes[connect.CodeOf(err)]; ok {
		out.Class = c
	}
	var ce *connect.Error
	if errors.As(err, &ce) {
		out.Message = ce.Message()
	}
	return out
}

// Register makes a space known and asks the discoverer to look at it. Both may be
// repeated: a space is registered once for its subject, however often a lost reply
// makes the caller ask again.
func (c *Client) Register(ctx context.Context, s *configv1.Space) (string, error) {
	res, err := c.config.RegisterSpace(ctx, connect.NewRequest(&configv1.RegisterSpaceRequest{Space: s}))
	if err != nil {
		return "", classify(configService, "RegisterSpace", err)
	}
	id := res.Msg.GetId()
	if id == "" {
		return "", &pipeline.CloudError{Class: pipeline.Registry, Service: configService, Op: "RegisterSpace", Message: "the answer has no ID", Sent: true}
	}
	_, err = c.discovery.Sync(ctx, connect.NewRequest(&configv1.SyncRequest{OrgId: s.GetOrgId(), SpaceId: id}))
	switch connect.CodeOf(err) {
	case connect.CodeUnimplemented: // a config service without a discoverer beside it
		return id, nil
	case connect.CodeNotFound: // it has not heard of the space yet
		return "", &pipeline.CloudError{Class: pipeline.Registry, Service: discoveryService, Op: "Sync", Code: "not_found", Message: fmt.Sprintf("it does not know the space %s yet", id), Sent: true, Err: err}
	}
	if err != nil {
		return "", classify(discoveryService, "Sync", err)
	}
	return id, nil
}

// Deregister forgets a space; one that is not known is no error.
func (c *Client) Deregister(ctx context.Context, org, id string) error {
	_, err := c.config.DeregisterSpace(ctx, connect.NewRequest(&configv1.DeregisterSpaceRequest{OrgId: org, Id: id}))
	if err != nil && connect.CodeOf(err) != connect.CodeNotFound {
		return classify(configService, "DeregisterSpace", err)
	}
	return nil
}

// List lists an organisation's spaces, the newest first, from a page token on; the
// error of a token that is none has the class Invalid.
func (c *Client) List(ctx context.Context, org string, size int, token string) (page []*configv1.Space, next string, err error) {
	res, err := c.config.ListSpaces(ctx, connect.NewRequest(&configv1.ListSpacesRequest{OrgId: org, PageSize: int32(min(size, pageMost)), PageToken: token}))
	if err != nil {
		return nil, "", classify(configService, "ListSpaces", err)
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
		return nil, classify(configService, "GetSpace", err)
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
