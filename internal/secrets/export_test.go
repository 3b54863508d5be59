package secrets

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"testing"

	"github.com/zopday/provisioner/internal/db"
)

// Older makes a database one of a version before the keyset, with secrets written
// with a master key in that version's format, and returns the key's text.
func Older(t *testing.T, d *db.DB, secrets map[[2]string]string) string {
	t.Helper()
	ctx := context.Background()
	master := make([]byte, keySize)
	rand.Read(master)
	k, err := local(master, "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := db.PutSetting(ctx, d, checkSetting, k.check); err != nil {
		t.Fatal(err)
	}
	for at, plain := range secrets {
		dek := make([]byte, keySize)
		rand.Read(dek)
		data, err := legacyAEAD(dek)
		if err != nil {
			t.Fatal(err)
		}
		_, err = d.Exec(ctx, `INSERT INTO secrets (org_id, id, key_id, wrapped_key, ciphertext, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, 1, 1)`,
			at[0], at[1], k.check[:8], k.wrap.Seal(nil, nil, dek, bound("key", at[0], at[1])), data.Seal(nil, nil, []byte(plain), bound("data", at[0], at[1])))
		if err != nil {
			t.Fatal(err)
		}
	}
	return hex.EncodeToString(master)
}
