// Package client speaks the provisioner's own REST API. The command line uses
// it, and nothing in it knows a terminal: it returns typed answers beside the
// bodies as they came, so that a caller can pass those on unchanged.
package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Options say which server is spoken to, and as whom.
type Options struct {
	Server    string // base address, such as http://127.0.0.1:5087
	Token     string // sent as a bearer token; it never appears in an error
	UserAgent string
	HTTP      *http.Client // nil: one of its own
	// Trace is told of every request that was answered, or not; nil for none.
	Trace func(method, path string, status int, took time.Duration)
}

// A Client speaks to one server.
type Client struct {
	opt  Options
	base *url.URL
	http *http.Client
}

// New makes a client. The server's address is checked, not the server.
func New(opt Options) (*Client, error) {
	u, err := url.Parse(strings.TrimRight(opt.Server, "/"))
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("server %q is not an address; use one such as http://127.0.0.1:5087", opt.Server)
	}
	if u.User != nil {
		return nil, fmt.Errorf("server %s: credentials do not belong into an address; use a token", u.Redacted())
	}
	h := opt.HTTP
	if h == nil {
		h = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	}
	return &Client{opt: opt, base: u, http: h}, nil
}

// Server is the base address.
func (c *Client) Server() string { return c.base.String() }

// A Response is an answer as it came.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// RequestID is the server's name for the request.
func (r *Response) RequestID() string { return r.Header.Get("X-Request-Id") }

// ETag is the revision of what was answered, for If-Match.
func (r *Response) ETag() string { return r.Header.Get("ETag") }

// Data decodes what the body holds under "data".
func (r *Response) Data(into any) error {
	var envelope struct {
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(r.Body, &envelope); err != nil {
		return fmt.Errorf("the server's answer is no JSON: %w", err)
	}
	if envelope.Data == nil {
		return errors.New("the server's answer has no data; is this a ZopDay provisioner?")
	}
	if err := json.Unmarshal(envelope.Data, into); err != nil {
		return fmt.Errorf("the server's answer is not what this version expects: %w", err)
	}
	return nil
}

// An Unreachable error means that no answer came: what the request asked for
// may or may not have been done.
type Unreachable struct {
	Server string
	Err    error
}

func (e *Unreachable) Error() string {
	err := e.Err
	var ue *url.Error
	if errors.As(err, &ue) {
		err = ue.Err // the address is named once
	}
	return fmt.Sprintf("no answer from %s: %v", e.Server, err)
}

func (e *Unreachable) Unwrap() error { return e.Err }

// maxBody bounds what is read of an answer.
const maxBody = 64 << 20

// Do sends one request and reads the answer. A status of 400 and above is a
// *Problem, no answer at all an *Unreachable.
func (c *Client) Do(ctx context.Context, method, path string, query url.Values, body []byte, header http.Header) (*Response, error) {
	resp, err := c.send(ctx, method, path, query, body, header)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	r := &Response{Status: resp.StatusCode, Header: resp.Header, Body: b}
	if r.Status >= 400 {
		return r, parseProblem(r)
	}
	return r, nil
}

func (c *Client) send(ctx context.Context, method, path string, query url.Values, body []byte, header http.Header) (*http.Response, error) {
	u := c.base.JoinPath(path)
	u.RawQuery = query.Encode()
	var rd io.Reader
	if body != nil {
		rd = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), rd)
	if err != nil {
		return nil, err
	}
	for k, vs := range header {
		req.Header[http.CanonicalHeaderKey(k)] = vs
	}
	if body != nil && req.Header.Get("Content-Type") == "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if req.Header.Get("Accept") == "" {
		req.Header.Set("Accept", "application/json, application/problem+json")
	}
	if c.opt.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.opt.Token)
	}
	if c.opt.UserAgent != "" {
		req.Header.Set("User-Agent", c.opt.UserAgent)
	}
	start := time.Now()
	resp, err := c.http.Do(req)
	if c.opt.Trace != nil {
		status := 0
		if resp != nil {
			status = resp.StatusCode
		}
		c.opt.Trace(method, path, status, time.Since(start))
	}
	if err != nil {
		return nil, c.unreachable(ctx, err)
	}
	return resp, nil
}

func (c *Client) unreachable(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return &Unreachable{Server: c.Server(), Err: err}
}

// NewKey makes an idempotency key: one for each thing that a person asks for,
// kept when the request has to be sent again.
func NewKey() string { return rand.Text() }

// Warnings are what the server did and the caller may not have meant.
func (r *Response) Warnings() []string {
	var doc struct{ Meta struct{ Warnings []string } }
	if json.Unmarshal(r.Body, &doc) != nil {
		return nil
	}
	return doc.Meta.Warnings
}
