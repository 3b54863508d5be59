package server

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"sync/atomic"
	"time"
)

// certificateTick is how often the files of the certificate are read again. A
// certificate that was renewed is in use that much later, at most; connections that
// stand keep the one that they began with.
const certificateTick = 5 * time.Second

// A keyPair is the certificate that the API is served with, read again when its
// files change. A new pair that cannot be used leaves the old one in place.
type keyPair struct {
	certFile, keyFile string
	log               *slog.Logger
	now               func() time.Time

	current atomic.Pointer[tls.Certificate]
	seen    [sha256.Size]byte // of the files as they were last read, usable or not
	said    string            // what was last logged to be wrong with them
}

// openKeyPair reads a certificate chain and its key, both PEM. The error says what
// is wrong with which file and never shows what is in it.
func openKeyPair(certFile, keyFile string, log *slog.Logger) (*keyPair, error) {
	k := &keyPair{certFile: certFile, keyFile: keyFile, log: log, now: time.Now}
	cert, _, err := k.read()
	if err != nil {
		return nil, err
	}
	if end := cert.Leaf.NotAfter; end.Before(k.now()) {
		log.Warn("the certificate has expired, and clients will refuse it; put a new one into its file", "file", certFile, "expired", end)
	}
	k.current.Store(cert)
	return k, nil
}

// read returns the pair that the files hold; changed is false if they are as before.
func (k *keyPair) read() (cert *tls.Certificate, changed bool, err error) {
	key, err := readPrivate(k.keyFile)
	if err != nil {
		return nil, false, err
	}
	chain, err := os.ReadFile(k.certFile)
	if err != nil {
		return nil, false, fmt.Errorf("--tls-cert: %w", err)
	}
	sum := sha256.Sum256(append(append(append([]byte{}, chain...), 0), key...))
	if sum == k.seen {
		return nil, false, nil
	}
	k.seen = sum
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, true, fmt.Errorf("the certificate in %s and the key in %s cannot be used: %w", k.certFile, k.keyFile, err)
	}
	return &pair, true, nil
}

// readPrivate reads a key that only its owner, or its group, can read.
func readPrivate(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("--tls-key: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("--tls-key: %w", err)
	}
	// The modes of Windows say nothing of who may read.
	if mode := info.Mode().Perm(); mode&0o007 != 0 && runtime.GOOS != "windows" {
		return nil, fmt.Errorf("--tls-key: everybody on this machine may read or change %s (mode %04o); run chmod 600 on it, or set defaultMode: 0400 where Kubernetes mounts it", file, mode)
	}
	key, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return nil, fmt.Errorf("--tls-key: %w", err)
	}
	return key, nil
}

// reload takes over what the files hold now, if that can be used.
func (k *keyPair) reload(ctx context.Context) {
	cert, changed, err := k.read()
	old := k.current.Load()
	if err == nil && changed && cert.Leaf.NotAfter.Before(k.now()) && old.Leaf.NotAfter.After(k.now()) {
		err = fmt.Errorf("the certificate in %s has expired", k.certFile)
	}
	switch {
	case err == nil && changed:
		k.current.Store(cert)
		k.log.InfoContext(ctx, "a new certificate is in use", "file", k.certFile, "expires", cert.Leaf.NotAfter, "names", cert.Leaf.DNSNames)
		k.said = ""
	case err != nil && err.Error() != k.said:
		k.said = err.Error() // once, not at every look
		k.log.ErrorContext(ctx, "the new certificate is not used; the one before stays", "error", err, "expires", old.Leaf.NotAfter)
	}
}

// watch looks at the files until the context ends.
func (k *keyPair) watch(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			k.reload(ctx)
		}
	}
}

func (k *keyPair) notAfter() time.Time { return k.current.Load().Leaf.NotAfter }

// config is that of the server: TLS 1.2 and up with Go's own choice of ciphers, and
// HTTP/2.
func (k *keyPair) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return k.current.Load(), nil
		},
	}
}
