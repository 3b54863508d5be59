package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"syscall"
	"time"
)

const (
	// attemptWithin bounds one attempt, from the name's look-up to the answer's end.
	attemptWithin = 15 * time.Second
	// maxAnswer is what of an answer's body is read, so that the connection can be
	// used again; nothing of it is kept.
	maxAnswer = 4 << 10
)

// A Sender delivers messages.
type Sender struct {
	allow  Allow
	client *http.Client
	agent  string
}

// Options are what a sender may do besides.
type Options struct {
	Allow     Allow
	UserAgent string
	TLS       *tls.Config // nil: the system's certificates
}

// NewSender makes a sender. It goes through no proxy, since a proxy would choose the
// address, and follows no redirect.
func NewSender(o Options) *Sender {
	s := &Sender{allow: o.Allow, agent: o.UserAgent}
	s.client = &http.Client{
		Timeout:       attemptWithin,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: s.dial, TLSClientConfig: o.TLS, TLSHandshakeTimeout: 5 * time.Second, ResponseHeaderTimeout: 10 * time.Second,
			MaxResponseHeaderBytes: 16 << 10, ForceAttemptHTTP2: true, MaxIdleConns: 64, MaxIdleConnsPerHost: 2, IdleConnTimeout: 30 * time.Second,
			DisableCompression: true, // what is not read need not be unpacked
		},
	}
	return s
}

// Allow is what the sender may send to besides the Internet.
func (s *Sender) Allow() Allow { return s.allow }

// schemeKey is where a request's scheme is for the dialler, which does not see it.
type schemeKey struct{}

// dial connects to a receiver. Whether it may is asked of the very address that the
// system is about to connect to, after the name was looked up: a name that points
// elsewhere the second time gains nothing.
func (s *Sender) dial(ctx context.Context, network, target string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: 5 * time.Second}
	if !s.allow.host(host) {
		plain := ctx.Value(schemeKey{}) == "http"
		d.Control = func(_, address string, _ syscall.RawConn) error { return s.permit(address, plain) }
	}
	return d.DialContext(ctx, network, target)
}

// errAddress is a receiver at an address that nothing is sent to.
var errAddress = errors.New("the receiver's address is not one on the Internet; the server's --webhook-allow can name it")

var errPlain = errors.New("messages go by TLS alone; use https://, or have the server's --webhook-allow name the host")

func (s *Sender) permit(address string, plain bool) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return errAddress
	}
	ip := ap.Addr().Unmap().WithZone("")
	switch {
	case s.allow.address(ip):
		return nil
	case plain:
		return errPlain
	case !public(ip):
		return errAddress
	}
	return nil
}

// A Message is what is delivered.
type Message struct {
	ID      string // the same at every attempt
	URL     string
	Body    []byte
	Secrets []string // signed with each of them
}

// Send delivers a message once. It returns the status of the answer, 0 if there was
// none; err says why the attempt does not count as delivered, in words that hold
// nothing of the address, the answer or the secrets.
func (s *Sender) Send(ctx context.Context, m Message, now time.Time) (status int, err error) {
	signature, err := Sign(m.ID, now, m.Body, m.Secrets...)
	if err != nil {
		return 0, err
	}
	if fault, _ := s.allow.Check(m.URL); fault != "" {
		return 0, errors.New("the address " + fault)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL, bytes.NewReader(m.Body))
	if err != nil {
		return 0, errors.New("the address is not one")
	}
	req = req.WithContext(context.WithValue(req.Context(), schemeKey{}, req.URL.Scheme))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", s.agent)
	req.Header.Set(HeaderID, m.ID)
	req.Header.Set(HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
	req.Header.Set(HeaderSignature, signature)
	resp, err := s.client.Do(req)
	if err != nil {
		return 0, plainly(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer)) // its status is the answer
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		return resp.StatusCode, nil
	case resp.StatusCode >= 300 && resp.StatusCode < 400:
		return resp.StatusCode, fmt.Errorf("the receiver answered %d, and redirects are not followed", resp.StatusCode)
	}
	return resp.StatusCode, fmt.Errorf("the receiver answered %d", resp.StatusCode)
}

// plainly says why there was no answer, without the address.
func plainly(err error) error {
	var (
		ue   *url.Error
		dns  *net.DNSError
		cert *tls.CertificateVerificationError
		op   *net.OpError
		rec  tls.RecordHeaderError
	)
	if errors.As(err, &ue) {
		err = ue.Err
	}
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, errAddress):
		return errAddress
	case errors.Is(err, errPlain):
		return errPlain
	case errors.As(err, &dns):
		return errors.New("the receiver's name could not be looked up")
	case errors.As(err, &cert):
		return errors.New("the receiver's certificate is not one that is trusted")
	case errors.As(err, &rec):
		return errors.New("the receiver does not speak TLS")
	case errors.Is(err, syscall.ECONNREFUSED):
		return errors.New("nobody listens at the receiver's address")
	case errors.As(err, &timeout) && timeout.Timeout():
		return errors.New("the receiver took too long to answer")
	case errors.As(err, &op):
		return errors.New("the connection to the receiver broke off")
	}
	return errors.New("no answer came from the receiver")
}
