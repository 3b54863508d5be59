package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// An authority signs the certificates of all fronts of one instance.
type authority struct {
	pem  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// caFile and caKeyFile are where the authority is kept in a state folder, so that kubeconfigs
// handed out in an earlier run stay good.
const (
	caFile    = "kube-ca.pem"
	caKeyFile = "kube-ca-key.pem"
)

// newAuthority makes one, or takes up what is in the folder, if there is a folder.
func newAuthority(dir string) (*authority, error) {
	if dir != "" {
		a, err := readAuthority(dir)
		if err == nil || !errors.Is(err, fs.ErrNotExist) {
			return a, err
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Simulated Kubernetes CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	a := &authority{pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key: key}
	if a.cert, err = x509.ParseCertificate(der); err != nil || dir == "" {
		return a, err
	}
	return a, a.write(dir)
}

func (a *authority) write(dir string) error {
	der, err := x509.MarshalECPrivateKey(a.key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	key := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	return errors.Join(os.WriteFile(filepath.Join(dir, caKeyFile), key, 0o600), os.WriteFile(filepath.Join(dir, caFile), a.pem, 0o600))
}

func readAuthority(dir string) (*authority, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, caFile), filepath.Join(dir, caKeyFile))
	if err != nil {
		return nil, fmt.Errorf("certificate authority of the simulated clusters: %w", err)
	}
	key, ok := pair.PrivateKey.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("certificate authority of the simulated clusters in %s: not an ECDSA key", dir)
	}
	return &authority{
		pem:  pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}),
		cert: pair.Leaf, key: key,
	}, nil
}

// config serves whatever name a client asks for, beside 127.0.0.1 and localhost: the real names
// of clusters' endpoints are made by the cloud and resolve nowhere.
func (a *authority) config() *tls.Config {
	var (
		mu     sync.Mutex
		issued = map[string]*tls.Certificate{}
	)
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			mu.Lock()
			defer mu.Unlock()
			if c := issued[hello.ServerName]; c != nil {
				return c, nil
			}
			c, err := a.issue(hello.ServerName)
			if err == nil {
				issued[hello.ServerName] = c
			}
			return c, err
		},
	}
}

func (a *authority) issue(name string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "kube-apiserver"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if name != "" && name != "localhost" {
		template.DNSNames = append(template.DNSNames, name)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
