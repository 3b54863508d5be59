package secrets

import (
	"context"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/tink-crypto/tink-go/v2/aead/subtle"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// EnvKey is the environment variable that may hold the key.
const EnvKey = "ZOPDAY_SECRET_KEY"

const keySize = 32

// Source says where the key is. Text wins over File.
type Source struct {
	Text string // 32 bytes in base64 or hex, or the URI of a key in a KMS, as from EnvKey
	Name string // where Text was given, for messages; EnvKey if empty
	File string // holds the same; written, for its owner only, when neither it nor any secret exists

	// KMS opens the key that a URI names. Nothing is sent before the key is used. nil:
	// URIs are refused.
	KMS func(ctx context.Context, uri string) (tink.AEADWithContext, error)
}

// FromEnv takes the key from the environment, or else from a file.
func FromEnv(file string) Source { return Source{Text: os.Getenv(EnvKey), File: file} }

// Given reports whether the source names a key at all.
func (s Source) Given() bool { return s.Text != "" || s.File != "" }

func (s Source) where() string {
	switch {
	case s.Text == "":
		return s.File
	case s.Name != "":
		return s.Name
	}
	return EnvKey
}

// Format shows where the key is and never the key.
func (s Source) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "secrets.Source(%s)", s.where()) }

// LogValue is the same for structured logs.
func (s Source) LogValue() slog.Value { return slog.StringValue("secrets.Source(" + s.where() + ")") }

// MarshalText is the same for JSON.
func (s Source) MarshalText() ([]byte, error) {
	return []byte("secrets.Source(" + s.where() + ")"), nil
}

// A kek is the key encryption key: the installation's master key, or one that does
// not leave a KMS. It encrypts the keyset, and nothing else.
type kek struct {
	id   string // "local:" and a part of its check value, or the URI; no secret
	from string
	aead tink.AEADWithContext

	// Of a local key alone: how versions before the keyset wrapped the key of each
	// secret, and told a wrong key.
	wrap  cipher.AEAD
	check string
}

const localPrefix = "local:"

// Format shows which key it is and never the key.
func (k kek) Format(f fmt.State, _ rune) { fmt.Fprint(f, k.id) }

// local derives what is needed from a master key, which encrypts nothing by itself.
func local(master []byte, from string) (kek, error) {
	derive := func(purpose string, size int) ([]byte, error) {
		return hkdf.Key(sha256.New, master, nil, purpose, size)
	}
	wrap, err := derive("zopday secrets: wrap data keys", keySize)
	if err != nil {
		return kek{}, err
	}
	keyset, err := derive("zopday secrets: encrypt the keyset", keySize)
	if err != nil {
		return kek{}, err
	}
	check, err := derive("zopday secrets: key check value", 16)
	if err != nil {
		return kek{}, err
	}
	k := kek{from: from, check: hex.EncodeToString(check)}
	k.id = localPrefix + k.check[:8]
	if k.wrap, err = legacyAEAD(wrap); err != nil {
		return kek{}, err
	}
	gcm, err := subtle.NewAESGCM(keyset)
	if err != nil {
		return kek{}, err
	}
	k.aead = withContext{gcm}
	return k, nil
}

// withContext is an AEAD that asks nobody, as one that might.
type withContext struct{ tink.AEAD }

func (a withContext) EncryptWithContext(_ context.Context, plaintext, associated []byte) ([]byte, error) {
	return a.Encrypt(plaintext, associated)
}

func (a withContext) DecryptWithContext(_ context.Context, ciphertext, associated []byte) ([]byte, error) {
	return a.Decrypt(ciphertext, associated)
}

func parseKey(text string) ([]byte, error) {
	text = strings.TrimSpace(text)
	if b, err := hex.DecodeString(text); err == nil && len(b) == keySize {
		return b, nil
	}
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if b, err := enc.DecodeString(text); err == nil && len(b) == keySize {
			return b, nil
		}
	}
	// The text is not quoted: it may be a key with one character too many.
	return nil, errors.New("it is neither 32 bytes in base64 or hex nor the URI of a key in a KMS; make one with: openssl rand -base64 32")
}

// load reads the key, or makes one if it may. want is the ID of the database's key,
// for messages; "" if that is not known.
func (s Source) load(ctx context.Context, mayCreate bool, want string) (kek, error) {
	var (
		master []byte
		err    error
	)
	switch {
	case strings.Contains(s.Text, "://"):
		return s.inKMS(ctx, strings.TrimSpace(s.Text))
	case s.Text != "":
		master, err = parseKey(s.Text)
	case s.File == "":
		return kek{}, fmt.Errorf("secret key: none is given%s; set %s, or name a key file with --secret-key", expected(want), EnvKey)
	default:
		master, err = readKeyFile(s.File)
		if errors.Is(err, fs.ErrNotExist) {
			if !mayCreate {
				return kek{}, fmt.Errorf("secret key %s: the file is gone, and this database holds secrets written with it%s; restore it from the backup, name it with --secret-key, or set %s", s.File, expected(want), EnvKey)
			}
			master, err = createKeyFile(s.File)
		}
	}
	if err != nil {
		return kek{}, fmt.Errorf("secret key %s: %w", s.where(), err)
	}
	return local(master, s.where())
}

func expected(id string) string {
	if id == "" {
		return ""
	}
	return " (the key that is wanted is " + id + ")"
}

func (s Source) inKMS(ctx context.Context, uri string) (kek, error) {
	scheme, _, _ := strings.Cut(uri, "://")
	if s.KMS == nil {
		return kek{}, fmt.Errorf("secret key %s: it is a URI (%s), and keys of a KMS are not to be had here", s.where(), scheme)
	}
	a, err := s.KMS(ctx, uri)
	if err != nil {
		return kek{}, fmt.Errorf("secret key %s: %w", s.where(), err)
	}
	return kek{id: uri, from: s.where(), aead: a}, nil
}

func readKeyFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("others can read the file (mode %04o); run: chmod 600 %s", info.Mode().Perm(), path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseKey(string(text))
}

// createKeyFile writes a new key whole or not at all, and never over another:
// of two processes that start at once both read what the first one wrote.
func createKeyFile(path string) ([]byte, error) {
	master := make([]byte, keySize)
	rand.Read(master)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".key-*") // mode 0600
	if err != nil {
		return nil, err
	}
	defer os.Remove(tmp.Name())
	_, err = fmt.Fprintln(tmp, base64.StdEncoding.EncodeToString(master))
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return nil, err
	}
	if err := os.Link(tmp.Name(), path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return readKeyFile(path)
		}
		return nil, err
	}
	if dir, err := os.Open(filepath.Dir(path)); err == nil {
		dir.Sync() //nolint:errcheck // not every file system can; the file itself is on disk
		dir.Close()
	}
	return master, nil
}
