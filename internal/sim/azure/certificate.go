package azure

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
	"time"
)

// A Certificate is what the simulation is served with: Azure's SDK sends no token over plain HTTP.
type Certificate struct {
	// CA is the certificate that a client has to trust, as PEM.
	CA []byte
	// Config serves 127.0.0.1, ::1 and localhost, and any names that were asked for.
	Config *tls.Config
}

// CAFile is the name under which KeepCertificate leaves the root certificate.
const CAFile = "azure-ca.pem"

// NewCertificate makes a CA and a server certificate for this machine and for the given names. They last ten years.
func NewCertificate(names ...string) (*Certificate, error) {
	ca, caPEM, caKey, err := newCA()
	if err != nil {
		return nil, fmt.Errorf("certificate of the simulated Azure: %w", err)
	}
	pair, err := issue(ca, caKey, names)
	if err != nil {
		return nil, fmt.Errorf("certificate of the simulated Azure: %w", err)
	}
	return &Certificate{CA: caPEM, Config: serving(pair)}, nil
}

// KeepCertificate takes up the certificate that an earlier run left in a directory, or makes one and leaves it there, so
// that clients may go on trusting the same CA.
func KeepCertificate(dir string) (*Certificate, error) {
	files := []string{CAFile, "azure-server.pem", "azure-server-key.pem"}
	var parts [3][]byte
	for i, name := range files {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return keepNew(dir, files)
		}
		if err != nil {
			return nil, fmt.Errorf("certificate of the simulated Azure: %w", err)
		}
		parts[i] = b
	}
	pair, err := tls.X509KeyPair(parts[1], parts[2])
	if err != nil {
		return nil, fmt.Errorf("certificate of the simulated Azure in %s: %w; remove azure-*.pem there to have new ones made", dir, err)
	}
	return &Certificate{CA: parts[0], Config: serving(pair)}, nil
}

func keepNew(dir string, files []string) (*Certificate, error) {
	c, err := NewCertificate()
	if err != nil {
		return nil, err
	}
	pair := c.Config.Certificates[0]
	keyDER, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("certificate of the simulated Azure: %w", err)
	}
	parts := [][]byte{c.CA, encodePEM("CERTIFICATE", pair.Certificate[0]), encodePEM("PRIVATE KEY", keyDER)}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("certificate of the simulated Azure: %w", err)
	}
	for i, name := range files {
		if err := os.WriteFile(filepath.Join(dir, name), parts[i], 0o600); err != nil {
			return nil, fmt.Errorf("certificate of the simulated Azure: %w", err)
		}
	}
	return c, nil
}

func serving(pair tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
}

func newCA() (*x509.Certificate, []byte, *ecdsa.PrivateKey, error) {
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, nil, err
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Simulated Azure CA"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().AddDate(10, 0, 0), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, priv.Public(), priv)
	if err != nil {
		return nil, nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return cert, encodePEM("CERTIFICATE", der), priv, err
}

func issue(ca *x509.Certificate, caKey *ecdsa.PrivateKey, names []string) (tls.Certificate, error) {
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().AddDate(10, 0, 0), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: append([]string{"localhost"}, names...), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, ca, priv.Public(), caKey)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: priv}, nil
}

func encodePEM(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
