package gcp

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"sync"
	"time"
)

// An accountKey is a key of a service account.
type accountKey struct {
	Name    string
	Created time.Time
	Doc     Doc // as GET answers it
}

// maxKeys is how many keys an account may have ("Quotas and limits", IAM).
const maxKeys = 10

// privateKey is the private half of every key that is given out: signatures are not verified, so one is as good as another.
var privateKey = sync.OnceValues(func() (string, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return "", err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", err
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), nil
})

// keyMethods adds the methods of keys.
func (s *iamService) keyMethods(ops map[string]operation) {
	const keys = "projects.serviceAccounts.keys."
	ops[keys+"create"], ops[keys+"get"], ops[keys+"list"], ops[keys+"delete"] = s.createKey, s.getKey, s.listKeys, s.deleteKey
}

// createKey answers the private key, this once.
func (s *iamService) createKey(r *request) (any, error) {
	a, err := s.account(r)
	if err != nil {
		return nil, err
	}
	if len(a.Keys) >= maxKeys {
		return nil, &Error{HTTP: 429, Reason: "rateLimitExceeded", Message: "Maximum number of keys on account reached."}
	}
	now := s.cloud.World.Now().UTC()
	id := s.cloud.World.Hex("", 40)
	doc := Doc{"name": a.path() + "/keys/" + id, "keyAlgorithm": orText(str(r.Body, "keyAlgorithm"), "KEY_ALG_RSA_2048"), "keyOrigin": "GOOGLE_PROVIDED",
		"keyType": "USER_MANAGED", "validAfterTime": now.Format(time.RFC3339), "validBeforeTime": "9999-12-31T23:59:59Z"}
	secret, err := privateKey()
	if err != nil {
		return nil, fmt.Errorf("key of %s: %w", a.Email, err)
	}
	file, err := json.Marshal(map[string]string{"type": "service_account", "project_id": a.Project, "private_key_id": id, "private_key": secret, "client_email": a.Email,
		"client_id": a.UniqueID, "token_uri": tokenURI(r), "universe_domain": "googleapis.com"})
	if err != nil {
		return nil, fmt.Errorf("key file of %s: %w", a.Email, err)
	}
	if a.Keys == nil {
		a.Keys = map[string]*accountKey{}
	}
	a.Keys[id] = &accountKey{Name: str(doc, "name"), Created: now, Doc: doc}
	r.Make(str(doc, "name"))
	out := clone(doc)
	out["privateKeyType"], out["privateKeyData"] = orText(str(r.Body, "privateKeyType"), "TYPE_GOOGLE_CREDENTIALS_FILE"), base64.StdEncoding.EncodeToString(file)
	return out, nil
}

// tokenURI is where the simulation changes assertions into tokens, by the host that the caller reached it by; Google's own for a key that
// the control API has made, which does not know.
func tokenURI(r *request) string {
	if r.HTTP == nil {
		return "https://oauth2.googleapis.com/token"
	}
	return "http://" + r.HTTP.Host + tokenPath
}

// key finds the key that the request's path names.
func (s *iamService) key(r *request) (*account, string, error) {
	a, err := s.account(r)
	if err != nil {
		return nil, "", err
	}
	id := segmentAfter(r.Path["name"], "keys")
	if a.Keys[id] == nil {
		return nil, "", refuse(404, "notFound", "Service account key %s does not exist.", id)
	}
	r.Touch(a.Keys[id].Name)
	return a, id, nil
}

func (s *iamService) getKey(r *request) (any, error) {
	a, id, err := s.key(r)
	if err != nil {
		return nil, err
	}
	return a.Keys[id].Doc, nil
}

func (s *iamService) listKeys(r *request) (any, error) {
	a, err := s.account(r)
	if err != nil {
		return nil, err
	}
	var items []any
	types := strings.Join(r.Query["keyTypes"], " ")
	for _, id := range keysOf(a.Keys) {
		if types == "" || strings.Contains(types, "USER_MANAGED") {
			items = append(items, a.Keys[id].Doc)
		}
	}
	if items == nil {
		return Doc{}, nil
	}
	return Doc{"keys": items}, nil
}

func (s *iamService) deleteKey(r *request) (any, error) {
	a, id, err := s.key(r)
	if err != nil {
		return nil, err
	}
	delete(a.Keys, id)
	return Doc{}, nil
}
