package secrets

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// EnvKey is the environment variable that may hold the key.
const EnvKey = "ZOPDAY_SECRET_KEY"

const keySize = 32

// Source says where the key is. Text wins over File.
type Source struct {
	Text string // 32 bytes in base64 or hex, as from EnvKey
	File string // holds the same; written, for its owner only, when neither it nor any secret exists
}

// FromEnv takes the key from the environment, or else from a file.
func FromEnv(file string) Source { return Source{Text: os.Getenv(EnvKey), File: file} }

func (s Source) where() string {
	if s.Text != "" {
		return EnvKey
	}
	return s.File
}

// A key is the installation's master key. It encrypts nothing by itself: what
// wraps the data keys and what tells a wrong key are derived from it.
type key struct {
	wrap  []byte
	check string
}

func derive(master []byte) (key, error) {
	wrap, err := hkdf.Key(sha256.New, master, nil, "zopday secrets: wrap data keys", keySize)
	if err != nil {
		return key{}, err
	}
	check, err := hkdf.Key(sha256.New, master, nil, "zopday secrets: key check value", 16)
	if err != nil {
		return key{}, err
	}
	return key{wrap, hex.EncodeToString(check)}, nil
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
	return nil, errors.New("it is not 32 bytes in base64 or hex; make one with: openssl rand -base64 32")
}

// load reads the key, or makes one if it may.
func (s Source) load(mayCreate bool) (key, error) {
	var (
		master []byte
		err    error
	)
	switch {
	case s.Text != "":
		master, err = parseKey(s.Text)
	case s.File == "":
		return key{}, fmt.Errorf("secret key: none is given; set %s, or name a key file", EnvKey)
	default:
		master, err = readKeyFile(s.File)
		if errors.Is(err, fs.ErrNotExist) {
			if !mayCreate {
				return key{}, fmt.Errorf("secret key %s: the file is gone, and this database holds secrets written with it; restore it, or set %s", s.File, EnvKey)
			}
			master, err = createKeyFile(s.File)
		}
	}
	if err != nil {
		return key{}, fmt.Errorf("secret key %s: %w", s.where(), err)
	}
	return derive(master)
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
