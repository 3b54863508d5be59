package secrets

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
)

// Until the keyset came, each secret had a key of its own, wrapped by one derived
// from the master key. Such rows stay readable until a rotation rewrites them.

func legacyAEAD(k []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(k)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

func (k kek) openLegacy(org, id string, wrapped, sealed []byte) ([]byte, error) {
	if k.wrap == nil {
		return nil, errors.New("it was written before there was a keyset, with another master key")
	}
	dek, err := k.wrap.Open(nil, nil, wrapped, bound("key", org, id))
	if err != nil {
		return nil, errors.New("its key does not open: the row was changed")
	}
	data, err := legacyAEAD(dek)
	if err != nil {
		return nil, err
	}
	plain, err := data.Open(nil, nil, sealed, bound("data", org, id))
	if err != nil {
		return nil, errors.New("it does not open: the row was changed")
	}
	return plain, nil
}

// bound is what a ciphertext is bound to. The lengths keep two pairs of strings
// from reading alike.
func bound(what, org, id string) []byte {
	return fmt.Appendf(nil, "zopday %s/%d:%s/%d:%s", what, len(org), org, len(id), id)
}
