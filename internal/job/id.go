package job

import (
	"crypto/sha256"
	"encoding/base32"
	"regexp"
	"strings"

	"github.com/google/uuid"
)

// crockford is base 32 without the letters that read like digits, lower case.
var crockford = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

// NewID mints an ID: a prefix such as "job" or "spc", an underscore, and a
// UUIDv7 (RFC 9562) in base 32, so that IDs sort by the time they were made.
func NewID(prefix string) string {
	u := uuid.Must(uuid.NewV7())
	return prefix + "_" + crockford.EncodeToString(u[:])
}

var idRE = regexp.MustCompile(`^(?i:[a-z]{1,16}_[0-9a-hjkmnp-tv-z]{26})$`)

// LooksLikeID reports whether a text has the form of what [NewID] mints, whatever
// its prefix. Nothing may be named so: where a name and an ID may be given in the
// same place, the name would stand for something else once there is such an ID.
func LooksLikeID(s string) bool { return idRE.MatchString(s) }

// shortHash is n characters of the hash of s: lower-case letters and digits,
// starting with a letter. The front of a UUIDv7 is time, so a suffix is always
// taken from a hash of the whole ID, never cut from the ID.
func shortHash(s string, n int) string {
	sum := sha256.Sum256([]byte(s))
	h := strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:]))
	return string('a'+sum[31]%26) + h[:n-1]
}

// Token derives the idempotency token of one create from what makes it that
// create: the job, the object, its generation and the arguments. The same
// arguments give the same token after any crash; other arguments give another,
// so that a cloud never answers "same token, different parameters".
// It is 32 characters of hexadecimal-like text, which every cloud accepts.
func Token(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return "z" + crockford.EncodeToString(sum[:])[:31]
}
