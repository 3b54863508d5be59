package kube

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
)

// transports are those of all clients of this process. A client is made for
// every pass of a step and ends with it: with a transport of its own it would
// shake hands each time, and leave connections behind that nobody uses again.
var transports pool

// A pool keeps one transport for each set of certificate authorities, and with it
// the connections to the API servers that they vouch for. Tokens are put on
// requests, not on connections, so jobs may share them.
type pool struct {
	mu   sync.Mutex
	kept map[[sha256.Size]byte]*pooled
}

type pooled struct {
	*http.Transport
	used time.Time // when it was last asked for
}

// keptFor is how long a transport is kept that nobody asks for. Its connections
// end sooner.
const keptFor = 10 * time.Minute

// get is the transport for a cluster.
func (p *pool) get(access cloud.KubeAccess) (*http.Transport, error) {
	key := keyOf(access)
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.kept[key]; t != nil {
		t.used = time.Now()
		return t.Transport, nil
	}
	t, err := newTransport(access)
	if err != nil {
		return nil, err
	}
	for k, old := range p.kept {
		if time.Since(old.used) > keptFor {
			delete(p.kept, k) // whoever still has it goes on with it
		}
	}
	if p.kept == nil {
		p.kept = map[[sha256.Size]byte]*pooled{}
	}
	p.kept[key] = &pooled{t, time.Now()}
	return t, nil
}

// keyOf tells transports apart, by what they trust.
func keyOf(access cloud.KubeAccess) [sha256.Size]byte {
	h := sha256.New()
	for _, pem := range [][]byte{access.CA, access.Roots} {
		size := int64(len(pem))
		if pem == nil {
			size = -1 // none is not the same as an empty one
		}
		_ = binary.Write(h, binary.BigEndian, size) // a hash takes everything
		_, _ = h.Write(pem)
	}
	return [sha256.Size]byte(h.Sum(nil))
}

func newTransport(access cloud.KubeAccess) (*http.Transport, error) {
	var roots *x509.CertPool
	switch {
	case access.CA != nil:
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM(access.CA) {
			return nil, fmt.Errorf("the certificate authority of %s is not PEM", access.Server)
		}
	case access.Roots != nil:
		var err error
		if roots, err = x509.SystemCertPool(); err != nil {
			roots = x509.NewCertPool()
		}
		if !roots.AppendCertsFromPEM(access.Roots) {
			return nil, errors.New("the extra root certificates are not PEM")
		}
	}
	return &http.Transport{
		TLSClientConfig:       &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DialContext:           (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout:   10 * time.Second,
		ResponseHeaderTimeout: 40 * time.Second,
		IdleConnTimeout:       20 * time.Second,
		MaxIdleConnsPerHost:   8,
		ForceAttemptHTTP2:     true,
		// A connection whose other end is gone without a word is not used again by the next pass.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
	}, nil
}
