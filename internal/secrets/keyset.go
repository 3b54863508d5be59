package secrets

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/zopday/provisioner/internal/db"
)

// The settings of the installation that speak of its keys.
const (
	keysetSetting = "secrets.keyset"    // a record
	checkSetting  = "secrets.key_check" // how versions before the keyset told a wrong key
)

// keysetLock is the advisory lock of PostgreSQL that whoever writes a secret holds
// together with others, and whoever changes the keyset alone: no secret is written
// with a key that is on its way out.
const keysetLock = 0x7a6f706461750002

// A record is the installation's keyset as it is stored, encrypted by the key
// encryption key. What stands beside it is no secret.
type record struct {
	KEK     string   `json:"kek"`     // ID of the key that it is encrypted with
	Primary uint32   `json:"primary"` // the data key that new secrets get
	Keys    []uint32 `json:"keys"`    // all data keys; more than one while a rotation is under way
	Keyset  []byte   `json:"keyset"`

	text string // as it is stored
}

var keysetBinding = []byte("zopday keyset")

// readRecord is the stored keyset; false if there is none yet.
func readRecord(ctx context.Context, q db.Q) (r record, ok bool, err error) {
	text, ok, err := db.Setting(ctx, q, keysetSetting)
	if err != nil || !ok {
		return r, false, err
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil || r.KEK == "" || len(r.Keys) == 0 {
		return r, false, errors.New("the keyset of this database's secrets is damaged; restore the database from its backup")
	}
	r.text = text
	return r, true, nil
}

// A ring is the keyset, opened.
type ring struct {
	handle  *keyset.Handle
	aead    tink.AEAD
	primary uint32
	keys    map[uint32]bool
}

// open decrypts the keyset.
func (r record) open(ctx context.Context, k kek) (*ring, error) {
	if r.KEK != k.id {
		return nil, &wrongKeyError{want: r.KEK, have: k.id, from: k.from}
	}
	h, err := keyset.ReadWithContext(ctx, keyset.NewBinaryReader(bytes.NewReader(r.Keyset)), k.aead, keysetBinding)
	if err != nil {
		if k.check != "" {
			return nil, &wrongKeyError{want: r.KEK, have: k.id, from: k.from, damaged: true}
		}
		return nil, fmt.Errorf("secret key %s: %s did not open the keyset of this database: %w", k.from, k.id, err)
	}
	return newRing(h)
}

func newRing(h *keyset.Handle) (*ring, error) {
	primary, err := h.Primary()
	if err != nil {
		return nil, err
	}
	a, err := aead.New(h)
	if err != nil {
		return nil, err
	}
	out := &ring{handle: h, aead: a, primary: primary.KeyID(), keys: map[uint32]bool{}}
	for i := range h.Len() {
		e, err := h.Entry(i)
		if err != nil {
			return nil, err
		}
		out.keys[e.KeyID()] = true
	}
	return out, nil
}

// seal is the record of a keyset under a key encryption key. It proves that it can
// be opened again before anybody depends on it.
func (r *ring) seal(ctx context.Context, k kek) (record, error) {
	var b bytes.Buffer
	if err := r.handle.WriteWithContext(ctx, keyset.NewBinaryWriter(&b), k.aead, keysetBinding); err != nil {
		return record{}, fmt.Errorf("secret key %s: %s did not encrypt the keyset: %w", k.from, k.id, err)
	}
	rec := record{KEK: k.id, Primary: r.primary, Keyset: b.Bytes()}
	for i := range r.handle.Len() {
		e, err := r.handle.Entry(i)
		if err != nil {
			return record{}, err
		}
		rec.Keys = append(rec.Keys, e.KeyID())
	}
	if _, err := rec.open(ctx, k); err != nil {
		return record{}, err
	}
	text, err := json.Marshal(rec)
	rec.text = string(text)
	return rec, err
}

// newKeyset is a keyset with one key, AES-256 in GCM.
func newKeyset() (*ring, error) {
	h, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, err
	}
	return newRing(h)
}

// withNewKey is the keyset with one more key, which new secrets get.
func (r *ring) withNewKey() (*ring, error) {
	m := keyset.NewManagerFromHandle(r.handle)
	id, err := m.Add(aead.AES256GCMKeyTemplate())
	if err == nil {
		err = m.SetPrimary(id)
	}
	return managed(m, err)
}

// primaryOnly is the keyset without the keys that no secret needs any more.
func (r *ring) primaryOnly() (*ring, error) {
	m := keyset.NewManagerFromHandle(r.handle)
	for id := range r.keys {
		if id == r.primary {
			continue
		}
		if err := m.Delete(id); err != nil {
			return nil, err
		}
	}
	return managed(m, nil)
}

func managed(m *keyset.Manager, err error) (*ring, error) {
	if err != nil {
		return nil, err
	}
	h, err := m.Handle()
	if err != nil {
		return nil, err
	}
	return newRing(h)
}

// keyOf is the ID of the data key that a ciphertext was written with, which Tink
// puts before it (Tink Wire Format: a byte 1 and the ID in four).
func keyOf(ciphertext []byte) (id uint32, ok bool) {
	if len(ciphertext) < 5 || ciphertext[0] != 1 {
		return 0, false
	}
	return binary.BigEndian.Uint32(ciphertext[1:5]), true
}

func keyName(id uint32) string { return fmt.Sprintf("%08x", id) }

// ErrWrongKey is a master key that is not the one of this database.
var ErrWrongKey = errors.New("it is not the key that this database's secrets were written with")

type wrongKeyError struct {
	want, have, from string
	damaged          bool // the IDs are the same, and yet the keyset does not open
}

func (e *wrongKeyError) Error() string {
	if e.damaged {
		return fmt.Sprintf("secret key %s: the keyset of this database does not open with %s, which it names: the database was changed, or the key is another one; restore both from one backup", e.from, e.have)
	}
	return fmt.Sprintf("secret key %s: this is %s, and %s: these need %s; give that key by %s or --secret-key, restored from its backup", e.from, e.have, ErrWrongKey, e.want, EnvKey)
}

func (e *wrongKeyError) Unwrap() error { return ErrWrongKey }
