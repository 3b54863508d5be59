package azure

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// assertionAudience is whom another issuer's token has to be for ("Workload identity federation").
const assertionAudience = "api://AzureADTokenExchange"

// A Federation is another issuer's subject whose tokens stand for an application's secret ("federated identity credentials").
type Federation struct {
	Issuer  string `json:"issuer"`
	Subject string `json:"subject"`
	// Key is the issuer's RSA public key, PKIX in DER: the simulation fetches no keys.
	Key []byte `json:"key"`
}

// An Issuer signs tokens as an OpenID provider outside of Azure does, such as a cluster's or a CI service's.
type Issuer struct {
	URL string
	key *rsa.PrivateKey
}

// NewIssuer makes an issuer with a key of its own.
func NewIssuer(url string) (*Issuer, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	return &Issuer{URL: url, key: key}, nil
}

// Federation is the trust in one of the issuer's subjects.
func (i *Issuer) Federation(subject string) (Federation, error) {
	der, err := x509.MarshalPKIXPublicKey(&i.key.PublicKey)
	return Federation{Issuer: i.URL, Subject: subject, Key: der}, err
}

// Token is a token of a subject for Azure, good for so long in real time.
func (i *Issuer) Token(subject string, life time.Duration) (string, error) {
	now := time.Now()
	header, _ := json.Marshal(map[string]any{"typ": "JWT", "alg": "RS256"})
	claims, _ := json.Marshal(map[string]any{"iss": i.URL, "sub": subject, "aud": assertionAudience, "iat": now.Unix(), "exp": now.Add(life).Unix()})
	text := b64(header) + "." + b64(claims)
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, sum[:])
	return text + "." + b64(sig), err
}

// asserted says whether an assertion stands for a client, and refuses it as the authority does.
func (cl Client) asserted(assertion string) *loginError {
	deny := func(code int, format string, args ...any) *loginError {
		return &loginError{http.StatusUnauthorized, "invalid_client", code, fmt.Sprintf(format, args...)}
	}
	var claims struct {
		Issuer   string `json:"iss"`
		Subject  string `json:"sub"`
		Audience string `json:"aud"`
		Exp      int64  `json:"exp"`
	}
	var header struct {
		Alg string `json:"alg"`
	}
	parts := strings.Split(assertion, ".")
	read := func(part string, into any) bool {
		raw, err := base64.RawURLEncoding.DecodeString(part)
		return err == nil && json.Unmarshal(raw, into) == nil
	}
	if len(parts) != 3 || !read(parts[0], &header) || !read(parts[1], &claims) {
		return deny(50027, "JWT token is invalid or malformed.")
	}
	i := slices.IndexFunc(cl.Federated, func(f Federation) bool { return f.Issuer == claims.Issuer && f.Subject == claims.Subject })
	if i < 0 || claims.Audience != assertionAudience {
		return deny(70021, "No matching federated identity record found for presented assertion. Assertion Issuer: '%s'. Assertion Subject: '%s'. Assertion Audience: '%s'. https://docs.microsoft.com/azure/active-directory/develop/workload-identity-federation",
			claims.Issuer, claims.Subject, claims.Audience)
	}
	key, err := x509.ParsePKIXPublicKey(cl.Federated[i].Key)
	public, ok := key.(*rsa.PublicKey)
	sig, sigErr := base64.RawURLEncoding.DecodeString(parts[2])
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if err != nil || sigErr != nil || !ok || header.Alg != "RS256" || rsa.VerifyPKCS1v15(public, crypto.SHA256, sum[:], sig) != nil {
		return deny(700027, "The certificate with identifier used to sign the client assertion is not registered on application. [Reason - The key was not found.]")
	}
	if now := time.Now(); now.Unix() >= claims.Exp {
		return deny(700024, "Client assertion is not within its valid time range. Current time: %s, assertion valid until %s.",
			now.UTC().Format(time.RFC3339), time.Unix(claims.Exp, 0).UTC().Format(time.RFC3339))
	}
	return nil
}
