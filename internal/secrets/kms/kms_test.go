package kms

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/security/keyvault/azkeys"
	"github.com/aws/aws-sdk-go-v2/credentials"
	awskms "github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/tink-crypto/tink-go/v2/aead/subtle"
	"github.com/tink-crypto/tink-go/v2/tink"
	"google.golang.org/api/option"
)

// roundTrip demands of a key what its users rely on: what it encrypted it decrypts,
// bound to the associated data, and what was changed it refuses.
func roundTrip(t *testing.T, k tink.AEADWithContext) {
	t.Helper()
	plain, bound := []byte("the keyset, of some length: "+strings.Repeat("x", 500)), []byte("binding")
	sealed, err := k.EncryptWithContext(t.Context(), plain, bound)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(sealed, plain[:20]) {
		t.Error("the ciphertext holds the plaintext")
	}
	got, err := k.DecryptWithContext(t.Context(), sealed, bound)
	if err != nil || !bytes.Equal(got, plain) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := k.DecryptWithContext(t.Context(), sealed, []byte("other")); err == nil {
		t.Error("it opens under another binding")
	}
	sealed[len(sealed)/2] ^= 1
	if _, err := k.DecryptWithContext(t.Context(), sealed, bound); err == nil {
		t.Error("a changed ciphertext opens")
	}
}

// far encrypts as a service behind HTTP would.
func far(t *testing.T) *subtle.AESGCM {
	t.Helper()
	a, err := subtle.NewAESGCM(bytes.Repeat([]byte{3}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func TestAWS(t *testing.T) {
	const key = "arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
	a, denied := far(t), false
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			KeyID                     string `json:"KeyId"`
			Plaintext, CiphertextBlob []byte
			EncryptionContext         map[string]string
		}
		err := json.NewDecoder(r.Body).Decode(&in)
		switch {
		case err != nil || in.KeyID != key || len(in.EncryptionContext) != 1 || !strings.Contains(r.Header.Get("Authorization"), "/eu-west-1/kms/aws4_request"):
			reply(w, 400, map[string]string{"__type": "ValidationException", "message": "unexpected request"})
		case denied:
			reply(w, 400, map[string]string{"__type": "AccessDeniedException", "message": "not authorized to perform kms:Decrypt"})
		case r.Header.Get("X-Amz-Target") == "TrentService.Encrypt":
			c, _ := a.Encrypt(in.Plaintext, []byte(in.EncryptionContext["zopday"]))
			reply(w, 200, map[string]any{"CiphertextBlob": c, "KeyId": key})
		default:
			p, err := a.Decrypt(in.CiphertextBlob, []byte(in.EncryptionContext["zopday"]))
			if err != nil {
				reply(w, 400, map[string]string{"__type": "InvalidCiphertextException"})
				return
			}
			reply(w, 200, map[string]any{"Plaintext": p, "KeyId": key})
		}
	}))
	t.Cleanup(srv.Close)
	o := Options{AWS: func(o *awskms.Options) {
		o.BaseEndpoint = &srv.URL
		o.Credentials = credentials.NewStaticCredentialsProvider("AKIA", "secret", "")
		o.RetryMaxAttempts = 1
	}}
	k, err := o.Open(t.Context(), "aws-kms://"+key)
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, k)
	denied = true
	if _, err := k.DecryptWithContext(t.Context(), []byte("x"), nil); err == nil || !strings.Contains(err.Error(), "AccessDenied") {
		t.Errorf("denied: %v", err)
	}
}

func TestGCP(t *testing.T) {
	const key = "projects/p/locations/europe-west1/keyRings/r/cryptoKeys/k"
	a := far(t)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Plaintext, Ciphertext, AdditionalAuthenticatedData []byte }
		err := json.NewDecoder(r.Body).Decode(&in)
		switch {
		case err == nil && r.URL.Path == "/v1/"+key+":encrypt":
			c, _ := a.Encrypt(in.Plaintext, in.AdditionalAuthenticatedData)
			reply(w, 200, map[string]string{"ciphertext": base64.StdEncoding.EncodeToString(c), "name": key + "/cryptoKeyVersions/1"})
		case err == nil && r.URL.Path == "/v1/"+key+":decrypt":
			p, err := a.Decrypt(in.Ciphertext, in.AdditionalAuthenticatedData)
			if err != nil {
				reply(w, 400, map[string]any{"error": map[string]any{"code": 400, "message": "Decryption failed", "status": "INVALID_ARGUMENT"}})
				return
			}
			reply(w, 200, map[string]string{"plaintext": base64.StdEncoding.EncodeToString(p)})
		default:
			reply(w, 404, map[string]any{"error": map[string]any{"code": 404, "message": r.URL.Path}})
		}
	}))
	t.Cleanup(srv.Close)
	k, err := Options{GCP: []option.ClientOption{option.WithEndpoint(srv.URL), option.WithoutAuthentication()}}.Open(t.Context(), "gcp-kms://"+key)
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, k)
}

type credential struct{}

func (credential) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "t", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func TestAzure(t *testing.T) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	var host string
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer t" {
			w.Header().Set("WWW-Authenticate", `Bearer authorization="https://login.microsoftonline.com/t", resource="https://vault.azure.net"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		var in struct{ Alg, Value string }
		_ = json.NewDecoder(r.Body).Decode(&in)
		value, err := base64.RawURLEncoding.DecodeString(in.Value)
		var out []byte
		switch {
		case err != nil || in.Alg != "RSA-OAEP-256":
			err = http.ErrNotSupported
		case r.URL.Path == "/keys/zopday/wrapkey" || r.URL.Path == "/keys/zopday//wrapkey":
			out, err = rsa.EncryptOAEP(sha256.New(), rand.Reader, &private.PublicKey, value, nil)
		case r.URL.Path == "/keys/zopday/v7/unwrapkey":
			out, err = rsa.DecryptOAEP(sha256.New(), nil, private, value, nil)
		default:
			err = http.ErrNotSupported
		}
		if err != nil {
			reply(w, 400, map[string]any{"error": map[string]string{"code": "BadParameter", "message": r.URL.Path + ": " + err.Error()}})
			return
		}
		reply(w, 200, map[string]string{"kid": "https://" + host + "/keys/zopday/v7", "value": base64.RawURLEncoding.EncodeToString(out)})
	}))
	t.Cleanup(srv.Close)
	host = strings.TrimPrefix(srv.URL, "https://")
	o := Options{AzureCredential: credential{}, Azure: &azkeys.ClientOptions{DisableChallengeResourceVerification: true}}
	o.Azure.Transport = transport{srv}
	k, err := o.Open(t.Context(), "azure-kv://company/zopday")
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, k)
	if _, err := k.DecryptWithContext(t.Context(), []byte(`{"version":"../x","wrapped":"","sealed":""}`), nil); err == nil {
		t.Error("a version that is a path was taken")
	}
}

// transport sends what is meant for the vault to the test's server.
type transport struct{ srv *httptest.Server }

func (tr transport) Do(r *http.Request) (*http.Response, error) {
	if r.URL.Host != "company.vault.azure.net" {
		return nil, http.ErrNotSupported
	}
	r = r.Clone(r.Context())
	r.URL.Host = strings.TrimPrefix(tr.srv.URL, "https://")
	return tr.srv.Client().Do(r)
}

func TestNames(t *testing.T) {
	for _, uri := range []string{
		"", "x://y", "aws-kms://", "aws-kms://key/1", "aws-kms://arn:aws:s3:eu-west-1:1:key/x", "gcp-kms://", "gcp-kms://projects/p", "gcp-kms://projects/p/locations/l/keyRings/r/cryptoKeys/k/x",
		"azure-kv://vault", "azure-kv://vault/key/../x", "azure-kv://va ult/key", "azure-kv://user@vault/key",
	} {
		if _, err := Open(t.Context(), uri); err == nil {
			t.Errorf("%q was taken", uri)
		}
	}
}
