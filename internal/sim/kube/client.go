package kube

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// A client speaks to a real API server as its administrator.
type client struct {
	server *url.URL
	token  string
	http   *http.Client
}

// answersWithin bounds every call but a watch.
const answersWithin = 10 * time.Second

// A status is an API server's answer that is an error.
type status struct {
	Code    int
	Reason  string
	Message string
}

func (s *status) Error() string { return fmt.Sprintf("%s (%d %s)", s.Message, s.Code, s.Reason) }

// isCode reports whether an error is an API server's answer with the given code.
func isCode(err error, code int) bool {
	var s *status
	return errors.As(err, &s) && s.Code == code
}

func newClient(a announcement) (*client, error) {
	server, err := url.Parse(a.Server)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(a.CA)) {
		return nil, errors.New("no certificate in the control plane's CA")
	}
	return &client{server: server, token: a.Token, http: &http.Client{Transport: &http.Transport{
		// HTTP/1.1: an upgraded connection has no other way through.
		TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
		MaxIdleConnsPerHost: 64,
		DisableCompression:  true,
	}}}, nil
}

func (c *client) open(ctx context.Context, method, path, contentType string, body any) (*http.Response, error) {
	var reader io.Reader
	if body != nil {
		raw, ok := body.([]byte)
		if !ok {
			var err error
			if raw, err = json.Marshal(body); err != nil {
				return nil, err
			}
		}
		reader = bytes.NewReader(raw)
	}
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.server.String(), "/")+path, reader)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "cloud-controller-manager")
	if body != nil {
		r.Header.Set("Content-Type", contentType)
	}
	res, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	if res.StatusCode < http.StatusBadRequest {
		return res, nil
	}
	defer func() { _ = res.Body.Close() }()
	s := &status{}
	if err := json.NewDecoder(res.Body).Decode(s); err != nil {
		s.Message = method + " " + path
	}
	s.Code = res.StatusCode
	return nil, s
}

// call sends a request and reads the answer into out, unless that is nil.
func (c *client) call(ctx context.Context, method, path string, body, out any) error {
	return c.send(ctx, method, path, "application/json", body, out)
}

// patch merges a change into an object, as RFC 7386 says.
func (c *client) patch(ctx context.Context, path string, change any) error {
	return c.send(ctx, http.MethodPatch, path, "application/merge-patch+json", change, nil)
}

func (c *client) send(ctx context.Context, method, path, contentType string, body, out any) error {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	res, err := c.open(ctx, method, path, contentType, body)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if out == nil {
		_, err = io.Copy(io.Discard, res.Body)
		return err
	}
	return json.NewDecoder(res.Body).Decode(out)
}
