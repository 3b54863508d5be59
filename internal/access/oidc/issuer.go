package oidc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	rp "github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"
	"golang.org/x/oauth2"
	"golang.org/x/sync/singleflight"
)

const (
	metadataFresh = time.Hour        // older metadata is read again; if that fails, it is still used
	askWithin     = 10 * time.Second // for each request to an issuer
)

// An UnavailableError is an issuer that does not answer, or not with what it should.
// It says nothing of the token or the person.
type UnavailableError struct {
	Issuer string // its name in the configuration
	err    error
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("the sign-in service %s does not answer as it should", e.Issuer)
}
func (e *UnavailableError) Unwrap() error { return e.err }

// metadata is what an issuer says of itself (OpenID Connect Discovery 1.0).
type metadata struct {
	oauth2.Endpoint
	algs       []jose.SignatureAlgorithm
	endSession string
	namesSelf  bool // sends iss with every answer (RFC 9207)
	keys       *keySet
}

// An issuer is one that is configured, with what is known of it.
type issuer struct {
	Issuer
	org    string // the organisation's ID
	client *http.Client
	now    func() time.Time
	log    *slog.Logger

	flight singleflight.Group
	mu     sync.Mutex
	meta   *metadata
	read   time.Time
	tried  time.Time
	err    error
}

// known is the issuer's metadata, read when it is first needed and then every hour.
// Its error is an [UnavailableError].
func (i *issuer) known(ctx context.Context) (*metadata, error) {
	i.mu.Lock()
	meta, age := i.meta, i.now().Sub(i.read)
	i.mu.Unlock()
	if meta != nil && age <= metadataFresh {
		return meta, nil
	}
	done := i.flight.DoChan("metadata", func() (any, error) { return nil, i.refresh(context.WithoutCancel(ctx)) })
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-done:
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.meta == nil {
		return nil, &UnavailableError{Issuer: i.Name, err: i.err}
	}
	return i.meta, nil
}

func (i *issuer) refresh(ctx context.Context) error {
	i.mu.Lock()
	now := i.now()
	if !i.tried.IsZero() && now.Sub(i.tried) < retryGap {
		defer i.mu.Unlock()
		return i.err
	}
	i.tried = now
	old := i.meta
	i.mu.Unlock()

	meta, err := i.discover(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.err = err; err != nil {
		i.log.WarnContext(ctx, "the issuer does not answer as it should", "issuer", i.URL, "error", clip(err.Error(), 300))
		return err
	}
	if old != nil && old.keys.url == meta.keys.url {
		meta.keys = old.keys
	}
	i.meta, i.read = meta, now
	return nil
}

func (i *issuer) discover(ctx context.Context) (*metadata, error) {
	p, err := rp.NewProvider(rp.ClientContext(ctx, i.client), i.URL)
	if err != nil {
		return nil, err
	}
	var doc struct {
		Keys        string   `json:"jwks_uri"`
		Algs        []string `json:"id_token_signing_alg_values_supported"`
		EndSession  string   `json:"end_session_endpoint"`
		AuthMethods []string `json:"token_endpoint_auth_methods_supported"`
		NamesSelf   bool     `json:"authorization_response_iss_parameter_supported"`
	}
	if err := p.Claims(&doc); err != nil {
		return nil, err
	}
	m := &metadata{Endpoint: p.Endpoint(), endSession: doc.EndSession, namesSelf: doc.NamesSelf}
	needed := map[string]string{"jwks_uri": doc.Keys}
	if i.ClientID != "" {
		needed["authorization_endpoint"], needed["token_endpoint"] = m.AuthURL, m.TokenURL
	}
	if m.endSession != "" {
		needed["end_session_endpoint"] = m.endSession
	}
	for name, at := range needed {
		if err := safeURL(at); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if len(doc.Algs) == 0 {
		doc.Algs = []string{string(jose.RS256)} // which every issuer has to offer
	}
	for _, a := range algorithms {
		if slices.Contains(doc.Algs, string(a)) {
			m.algs = append(m.algs, a)
		}
	}
	if len(m.algs) == 0 {
		return nil, errors.New("it signs with no algorithm that is taken here (RS, PS or ES with 256, 384 or 512, or EdDSA)")
	}
	// Said outright: trying out which way is taken would send the code twice.
	m.AuthStyle = oauth2.AuthStyleInHeader
	if i.Secret == "" || !slices.Contains(doc.AuthMethods, "client_secret_basic") && slices.Contains(doc.AuthMethods, "client_secret_post") {
		m.AuthStyle = oauth2.AuthStyleInParams
	}
	m.keys = &keySet{name: i.Name, url: doc.Keys, client: i.client, now: i.now}
	return m, nil
}

// safeURL refuses an address of an issuer over which others could listen in.
func safeURL(at string) error {
	u, err := url.Parse(at)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Fragment != "":
		return errors.New("it is not a whole address such as https://login.example.com")
	case u.Scheme == "https":
		return nil
	case u.Scheme == "http" && loopback(u.Hostname()):
		return nil
	}
	return errors.New("it does not begin with https://, so it could be read and changed on the way")
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// client is how issuers are asked: within bounds of time and size, and never
// somewhere else than was configured or discovered.
func client(base http.RoundTripper) *http.Client {
	return &http.Client{
		Timeout:   askWithin,
		Transport: bounded{base},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return errors.New("the issuer answers with a redirect, which is not followed")
		},
	}
}

type bounded struct{ base http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.base.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxDocument)
	}
	return resp, err
}

func get(ctx context.Context, c *http.Client, at string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", at, resp.Status)
	}
	return body, nil
}
