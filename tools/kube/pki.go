package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// A pki is the keys and certificates of one control plane. All but the service accounts' key are
// made anew at every start; that one is kept, or the tokens already handed out would be void.
type pki struct {
	dir        string
	caPEM      []byte
	token      string // of the administrator
	kubeconfig string // path; written once the server's port is known
}

const (
	administrator = "system:admin"
	masters       = "system:masters"
	// A sandbox does not live for a year.
	certificateLife = 365 * 24 * time.Hour
)

func (p *pki) path(name string) string { return filepath.Join(p.dir, name) }

// makePKI writes the certificate authority, the API server's certificate, the service accounts'
// key and the administrator's token into dir.
func makePKI(dir string) (*pki, error) {
	p := &pki{dir: filepath.Join(dir, "pki"), kubeconfig: filepath.Join(dir, "kubeconfig")}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, err
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	ca := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "kube-sandbox"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	if p.caPEM, err = p.issue("ca", ca, caKey, ca, caKey); err != nil {
		return nil, err
	}
	serverKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	server := &x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if _, err := p.issue("server", server, serverKey, ca, caKey); err != nil {
		return nil, err
	}
	if err := p.keepKey("service-accounts.key"); err != nil {
		return nil, err
	}
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	p.token = hex.EncodeToString(secret)
	line := fmt.Sprintf("%s,%s,%s,%s\n", p.token, administrator, administrator, masters)
	return p, os.WriteFile(p.path("tokens.csv"), []byte(line), 0o600)
}

// issue signs a certificate and writes it and its key as name.crt and name.key.
func (p *pki) issue(name string, c *x509.Certificate, key *ecdsa.PrivateKey, parent *x509.Certificate, signer crypto.Signer) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	c.SerialNumber = serial
	c.NotBefore = time.Now().Add(-time.Hour)
	c.NotAfter = time.Now().Add(certificateLife)
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(p.path(name+".crt"), text, 0o600); err != nil {
		return nil, err
	}
	return text, p.writeKey(name+".key", key)
}

func (p *pki) keepKey(name string) error {
	if _, err := os.Stat(p.path(name)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return p.writeKey(name, key)
}

func (p *pki) writeKey(name string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(p.path(name), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

// writeKubeconfig writes the administrator's kubeconfig for a server.
func (p *pki) writeKubeconfig(server string) error {
	const name = "kube-sandbox"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: p.caPEM}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: p.token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return clientcmd.WriteToFile(*config, p.kubeconfig) // with mode 0600
}
