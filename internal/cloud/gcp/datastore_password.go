package gcp

import (
	"crypto/rand"
	"math/big"
)

// newPassword is a password of 32 letters and digits, which no shell, URL or
// engine reads as anything else: 190 bits.
func newPassword() string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	out := make([]byte, 32)
	for i := range out {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(letters))))
		if err != nil {
			panic(err) // crypto/rand does not fail
		}
		out[i] = letters[n.Int64()]
	}
	return string(out)
}
