package access

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"regexp"
	"strings"
)

// TokenPrefix starts every token that we make, so that a scanner for leaked
// secrets can recognise one.
const TokenPrefix = "zop_"

// TokenPattern is the regular expression of a token: the prefix, 40 random
// characters of base 32 (200 bits) and a checksum of 6. The checksum is the lower
// 30 bits of the CRC-32 (IEEE 802.3) of all that stands before it, in the same
// alphabet, the most significant character first; so a scanner can tell a token
// from a text that only looks like one without asking anybody.
const TokenPattern = `\bzop_[a-z2-7]{46}\b` //nolint:gosec // the form of a token, and none

const (
	alphabet    = "abcdefghijklmnopqrstuvwxyz234567"
	randomChars = 40
	sumChars    = 6
	hintChars   = 8
	minToken    = 16
	maxToken    = 512
)

var (
	base    = base32.NewEncoding(alphabet).WithPadding(base32.NoPadding)
	tokenRE = regexp.MustCompile(`^zop_[a-z2-7]{46}$`)
)

// NewSecret makes the text of a token. Only its hash is ever stored.
func NewSecret() string {
	var b [randomChars * 5 / 8]byte
	_, _ = rand.Read(b[:]) // it ends the program rather than fail
	front := TokenPrefix + base.EncodeToString(b[:])
	return front + checksum(front)
}

func checksum(front string) string {
	sum := crc32.ChecksumIEEE([]byte(front))
	var out [sumChars]byte
	for i := range out {
		out[sumChars-1-i] = alphabet[sum>>(5*i)&31]
	}
	return string(out[:])
}

// Genuine reports whether a text has the form of a token of ours and its checksum
// holds. Whether there is such a token, only the database knows.
func Genuine(text string) bool {
	return tokenRE.MatchString(text) && checksum(text[:len(text)-sumChars]) == text[len(text)-sumChars:]
}

var tokenInText = regexp.MustCompile(TokenPattern)

// Redact is a text without the tokens in it, for what is kept or logged of what a
// caller wrote: a token may be pasted where its name belongs.
func Redact(text string) string {
	return tokenInText.ReplaceAllString(text, TokenPrefix+"[redacted]")
}

// hintOf is the part of a token by which a person knows it again; "" for one that
// we did not make, of which nothing may be given away.
func hintOf(secret string) string {
	if !Genuine(secret) {
		return ""
	}
	return secret[len(TokenPrefix) : len(TokenPrefix)+hintChars]
}

// checkOwn refuses a token of an operator's own that could not be sent, or not be
// told from something else.
func checkOwn(t string) error {
	if len(t) < minToken || len(t) > maxToken {
		return fmt.Errorf("the token has %d characters; use %d to %d", len(t), minToken, maxToken)
	}
	for _, r := range t {
		if r <= ' ' || r > '~' {
			return errors.New("the token has characters that a header cannot carry; use printable ASCII without spaces")
		}
	}
	if tokenRE.MatchString(t) && !Genuine(t) {
		return errors.New("the token looks like one of ours, but its checksum is wrong: it was cut or mistyped")
	}
	if isJWT(t) {
		return errors.New("the token looks like a JSON web token; use one of another form")
	}
	return nil
}

// isJWT reports whether a bearer token has the form of a JSON web token: three
// parts, the first an object in base 64.
func isJWT(bearer string) bool {
	return strings.HasPrefix(bearer, "eyJ") && strings.Count(bearer, ".") == 2
}

// hash is what is stored of a token. A token is 200 random bits, so that one plain
// round of SHA-256 is enough: there is no dictionary of tokens to try.
func hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// Bearer takes the token out of an Authorization header; "" if there is none.
func Bearer(header string) string {
	scheme, token, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}
