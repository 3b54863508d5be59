// Package webhook signs messages to receivers of other people and delivers them.
// Signatures are those of the Standard Webhooks specification; what a message may be
// sent to is decided on the address that is really connected to.
package webhook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The header fields of a message, as the specification names them.
const (
	HeaderID        = "webhook-id"
	HeaderTimestamp = "webhook-timestamp"
	HeaderSignature = "webhook-signature"
)

// SecretPrefix begins the text of every secret; base64 of the key follows.
const SecretPrefix = "whsec_"

// Tolerance is how far a receiver lets a message's time be from its own clock.
const Tolerance = 5 * time.Minute

// The bounds of a key, in bytes, as the specification has them.
const minKey, maxKey, newKey = 24, 64, 32

// NewSecret makes the secret of a webhook: whsec_ and 32 random bytes in base64.
func NewSecret() string {
	key := make([]byte, newKey)
	rand.Read(key)
	return SecretPrefix + base64.StdEncoding.EncodeToString(key)
}

// ErrSecret is a text that is no secret of a webhook. It does not repeat it.
var ErrSecret = errors.New("it is not whsec_ and base64 of 24 to 64 bytes")

func keyOf(secret string) ([]byte, error) {
	text, ok := strings.CutPrefix(secret, SecretPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) < minKey || len(key) > maxKey {
		return nil, ErrSecret
	}
	return key, nil
}

// Sign is the value of the header webhook-signature: "v1," and the HMAC-SHA256 over
// id.timestamp.body, one for each secret, separated by blanks.
func Sign(id string, at time.Time, body []byte, secrets ...string) (string, error) {
	signatures := make([]string, len(secrets))
	for i, s := range secrets {
		key, err := keyOf(s)
		if err != nil {
			return "", err
		}
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac(key, id, strconv.FormatInt(at.Unix(), 10), body))
	}
	return strings.Join(signatures, " "), nil
}

func mac(key []byte, id, timestamp string, body []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(id + "." + timestamp + "."))
	h.Write(body)
	return h.Sum(nil)
}

// ErrNotGenuine is a message that is not from whom it says, or not from now.
var ErrNotGenuine = errors.New("the message's signature or time is not right")

// Verify is what a receiver does with a message before it believes it: the signature
// has to be one of its secret over these very bytes, and the time within [Tolerance]
// of now. To be safe from replays within that time, a receiver remembers webhook-id.
func Verify(h http.Header, body []byte, secret string, now time.Time) error {
	key, err := keyOf(secret)
	if err != nil {
		return err
	}
	id, timestamp := h.Get(HeaderID), h.Get(HeaderTimestamp)
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || id == "" || now.Sub(time.Unix(seconds, 0)).Abs() > Tolerance {
		return ErrNotGenuine
	}
	want := mac(key, id, timestamp, body)
	for signature := range strings.FieldsSeq(h.Get(HeaderSignature)) {
		text, v1 := strings.CutPrefix(signature, "v1,")
		if got, err := base64.StdEncoding.DecodeString(text); v1 && err == nil && hmac.Equal(got, want) {
			return nil
		}
	}
	return ErrNotGenuine
}
