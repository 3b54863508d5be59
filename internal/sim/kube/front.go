package kube

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// startWait is how long a request waits for an API server that starts. Longer, and it gets 503
// with Retry-After, which Kubernetes' own clients heed.
const startWait = 15 * time.Second

// serviceAccountIssuer is the issuer of the tokens that the control plane makes itself.
const serviceAccountIssuer = "https://kubernetes.default.svc.cluster.local"

// A front is the endpoint of a cluster.
type front struct {
	cluster  *cluster
	listener net.Listener
	server   *http.Server
	proxy    *httputil.ReverseProxy

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newFront(c *cluster) (*front, error) {
	listener, err := new(net.ListenConfig).Listen(c.ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	f := &front{cluster: c, listener: listener, conns: map[net.Conn]bool{}}
	silent := log.New(io.Discard, "", 0)
	f.server = &http.Server{
		Handler: f, ErrorLog: silent, ReadHeaderTimeout: time.Minute,
		ConnState: f.follow,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, conn)
		},
	}
	f.proxy = &httputil.ReverseProxy{
		Rewrite: f.rewrite, Transport: through{}, FlushInterval: -1, ErrorLog: silent,
		ModifyResponse: f.learn,
		// The API server is gone, or the client is: there is nothing to say.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	go func() { _ = f.server.Serve(tls.NewListener(&gate{listener, f}, c.kube.ca.config())) }()
	return f, nil
}

func (f *front) address() string { return f.listener.Addr().String() }

// close refuses new connections and ends those there are.
func (f *front) close() { _ = f.server.Close() }

type (
	connKey    struct{} // of a request's connection
	forwardKey struct{} // of a *forward
)

// A forward is what was found out of a request on its way to the API server.
type forward struct {
	client *client
	user   sim.KubeUser
	own    bool   // it has a token of the API server's own
	object string // the path of what it may create; in a shared control plane alone
}

// A gate lets connections through that the cloud admits; the others it closes without a word.
type gate struct {
	net.Listener
	front *front
}

func (g *gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil || g.front.admits(g.front.cluster.kube.from()) {
			return conn, err
		}
		_ = conn.Close()
	}
}

func (f *front) admits(from sim.KubeCaller) bool {
	admits := f.cluster.current().Admits
	return admits == nil || admits(from)
}

func (f *front) follow(conn net.Conn, state http.ConnState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch state {
	case http.StateNew:
		f.conns[conn] = true
	case http.StateClosed:
		delete(f.conns, conn)
	}
}

// recheck closes the connections of those that are no longer let in.
func (f *front) recheck() { f.closeConns(f.admits) }

func (f *front) closeConns(unless func(sim.KubeCaller) bool) {
	if unless(f.cluster.kube.from()) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for conn := range f.conns {
		_ = conn.Close()
	}
}

// cut ends a request and its connection without an answer.
func cut(r *http.Request) {
	if conn, ok := r.Context().Value(connKey{}).(net.Conn); ok {
		_ = conn.Close()
	}
	panic(http.ErrAbortHandler)
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := f.cluster
	if !f.admits(c.kube.from()) {
		cut(r)
	}
	c.kube.books.note(Request{Cluster: c.id(), Method: r.Method, Path: r.URL.Path, DryRun: r.URL.Query().Has("dryRun")})
	if c.awaitRelease(r.Context()) != nil {
		cut(r)
	}
	if c.backend == nil {
		writeStatus(w, http.StatusServiceUnavailable, "ServiceUnavailable", noKubernetes)
		return
	}
	fwd := &forward{}
	if !f.authenticate(r, fwd) {
		writeStatus(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
		return
	}
	var err error
	if c.kube.opt.Shared {
		if fwd.object, err = objectToBe(r); err != nil {
			writeStatus(w, http.StatusBadRequest, "BadRequest", err.Error())
			return
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), startWait)
	if fwd.client, err = c.backend.await(ctx); err == nil {
		err = c.backend.awaitPlace(ctx, cmp.Or(fwd.object, r.URL.Path))
	}
	cancel()
	switch {
	case err == nil:
	case errors.Is(err, errStopped) || r.Context().Err() != nil:
		cut(r)
	case errors.Is(err, context.DeadlineExceeded):
		w.Header().Set("Retry-After", "2")
		writeStatus(w, http.StatusServiceUnavailable, "ServiceUnavailable", "the API server is starting")
		return
	default:
		writeStatus(w, http.StatusServiceUnavailable, "ServiceUnavailable", err.Error())
		return
	}
	f.proxy.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), forwardKey{}, fwd)))
}

const noKubernetes = "this sandbox runs without Kubernetes: its clusters have no API server. " +
	"Build the control plane with `make kube`, and start with it: `zopday sandbox --kube`"

// authenticate finds out who asks: the bearer of one of the cloud's tokens, of one of the control
// plane's own, or anybody, whom every cluster tells its health and version (role
// system:public-info-viewer).
func (f *front) authenticate(r *http.Request, fwd *forward) bool {
	header := r.Header.Get("Authorization")
	if header == "" && public(r.URL.Path) {
		fwd.user = sim.KubeUser{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}
		return true
	}
	kind, token, _ := strings.Cut(header, " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(kind, "Bearer") || token == "" {
		return false
	}
	if authenticate := f.cluster.current().Authenticate; authenticate != nil {
		if user, ok := authenticate(token); ok {
			fwd.user = user
			return true
		}
	}
	fwd.own = issuer(token) == serviceAccountIssuer
	return fwd.own
}

func public(path string) bool {
	switch path {
	case "/healthz", "/livez", "/readyz", "/version", "/version/":
		return true
	}
	return false
}

// issuer reads who issued a token, without belief in it; empty if it is no JSON web token.
func issuer(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(raw, &claims) != nil {
		return ""
	}
	return claims.Issuer
}

// rewrite sends a request on as the user that the cloud says it is of.
func (f *front) rewrite(p *httputil.ProxyRequest) {
	fwd := p.In.Context().Value(forwardKey{}).(*forward)
	p.SetURL(fwd.client.server)
	p.Out.Host = ""
	for name := range p.Out.Header {
		if strings.HasPrefix(strings.ToLower(name), "impersonate-") && !fwd.own {
			delete(p.Out.Header, name)
		}
	}
	if c := f.cluster; c.kube.opt.Shared && p.In.Method == http.MethodGet && p.In.URL.Path == nodesPath {
		p.Out.URL.RawQuery = withSelector(p.In.URL.Query(), c.nodeSelector())
	}
	if fwd.own {
		return
	}
	p.Out.Header.Set("Authorization", "Bearer "+fwd.client.token)
	p.Out.Header.Set("Impersonate-User", fwd.user.Name)
	for _, group := range fwd.user.Groups {
		p.Out.Header.Add("Impersonate-Group", group)
	}
}

func withSelector(query url.Values, selector string) string {
	if asked := query.Get("labelSelector"); asked != "" {
		selector = asked + "," + selector
	}
	query.Set("labelSelector", selector)
	return query.Encode()
}

// through sends a request to the API server that was found for it.
type through struct{}

func (through) RoundTrip(r *http.Request) (*http.Response, error) {
	return r.Context().Value(forwardKey{}).(*forward).client.http.Transport.RoundTrip(r)
}

// writeStatus answers as an API server does that refuses.
func writeStatus(w http.ResponseWriter, code int, reason, message string) {
	body, err := json.Marshal(map[string]any{
		"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure",
		"message": message, "reason": reason, "code": code,
	})
	if err != nil {
		panic(err) // a map of strings and numbers
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body)
}
