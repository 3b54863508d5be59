package job

import (
	"crypto/rand"
	"math/big"
	"strings"
)

// The letters of passwords: what every engine and cloud takes in one, and what
// needs no quoting in SQL, in a shell or in a URL. RDS refuses / @ " and space,
// Azure wants three of upper case, lower case, digits and others.
const (
	lowerCase = "abcdefghijklmnopqrstuvwxyz"
	upperCase = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits    = "0123456789"

	passwordLength = 32
)

// NewPassword makes a password of 32 letters and digits, beginning with a letter, with
// some of each kind: 190 bits of chance.
func NewPassword() string {
	for {
		var b strings.Builder
		b.WriteByte(pick(lowerCase + upperCase))
		for b.Len() < passwordLength {
			b.WriteByte(pick(lowerCase + upperCase + digits))
		}
		if p := b.String(); strings.ContainsAny(p, lowerCase) && strings.ContainsAny(p, upperCase) && strings.ContainsAny(p, digits) {
			return p
		}
	}
}

func pick(from string) byte {
	n, err := rand.Int(rand.Reader, big.NewInt(int64(len(from))))
	if err != nil {
		panic(err) // crypto/rand never fails
	}
	return from[n.Int64()]
}
