package server

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/pgtest"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/secrets"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

// aKey is 32 bytes in hex.
func aKey(digit string) string { return strings.Repeat(digit, 64) }

// TestSecretStoreOpens with a key file of its own beside the SQLite file, or with
// the key of the environment, and not with another one.
func TestSecretStoreOpens(t *testing.T) {
	for _, c := range []struct {
		name, first, then string
		file              bool
		refused           bool
	}{
		{name: "the file", file: true},
		{name: "the variable", first: aKey("a"), then: aKey("a")},
		{name: "another key", first: aKey("a"), then: aKey("b"), refused: true},
		{name: "another than the file's", then: aKey("b"), file: true, refused: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "zopday.db")
			config := func(c *Config) { c.DB, c.Workers = path, 0 }
			t.Setenv(secrets.EnvKey, c.first)
			s := start(t, config)
			if s.secrets == nil {
				t.Error("the store is closed")
			}
			info, err := os.Stat(path + ".key")
			if c.file != (err == nil) || err == nil && info.Mode().Perm() != 0o600 {
				t.Errorf("key file: %v, %v", info, err)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Setenv(secrets.EnvKey, c.then)
			if !c.refused {
				if start(t, config).secrets == nil {
					t.Error("the store is closed the second time")
				}
				return
			}
			again, err := Start(t.Context(), Config{Listen: "127.0.0.1:0", DB: path, Token: token})
			if err == nil {
				_ = again.Close(t.Context())
			}
			if !errors.Is(err, secrets.ErrWrongKey) || !strings.Contains(err.Error(), secrets.EnvKey) || strings.Contains(err.Error(), c.then) {
				t.Errorf("the start with a wrong key: %v", err)
			}
		})
	}
}

// TestSecretStoreOnPostgres stays closed without a key, and says so once; with
// one it opens, and another one stops the start.
func TestSecretStoreOnPostgres(t *testing.T) {
	var log bytes.Buffer
	dsn := pgtest.Database(t)
	config := func(c *Config) {
		c.DB, c.Workers, c.Log = dsn, 0, slog.New(slog.NewTextHandler(&log, nil))
	}
	t.Setenv(secrets.EnvKey, "")
	closed := start(t, config)
	if closed.secrets != nil {
		t.Error("the store is open without a key")
	}
	if err := closed.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if strings.Count(log.String(), "the secret store is closed") != 1 || !strings.Contains(log.String(), secrets.EnvKey) {
		t.Errorf("log: %s", log.String())
	}
	t.Setenv(secrets.EnvKey, aKey("a"))
	if start(t, config).secrets == nil {
		t.Error("the store is closed although a key is given")
	}
	t.Setenv(secrets.EnvKey, aKey("b"))
	again, err := Start(t.Context(), Config{Listen: "127.0.0.1:0", DB: dsn, Token: token})
	if err == nil {
		_ = again.Close(t.Context())
	}
	if !errors.Is(err, secrets.ErrWrongKey) {
		t.Errorf("the start with a wrong key: %v", err)
	}
}

// TestClosedStoreStillForgets says that without the key nothing is kept and nothing
// read, but what a teardown forgets is gone all the same.
func TestClosedStoreStillForgets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "zopday.db")
	d, err := db.Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	open, err := secrets.Open(t.Context(), d, secrets.Source{Text: aKey("a")})
	if err != nil {
		t.Fatal(err)
	}
	with, without := logical{db: d, secrets: open}, logical{db: d}
	if _, err := with.Password(t.Context(), "org", "con_1/v1"); err != nil {
		t.Fatal(err)
	}
	var fatal *pipeline.FatalError
	if _, err := without.Password(t.Context(), "org", "con_2/v1"); !errors.As(err, &fatal) || fatal.Problem.Code != "no-secret-store" {
		t.Errorf("a password was made: %v", err)
	}
	if err := without.Keep(t.Context(), "org", "con_2/v1", "x"); !errors.As(err, &fatal) {
		t.Errorf("a secret was kept: %v", err)
	}
	if err := without.Forget(t.Context(), "org", "con_1/v1"); err != nil {
		t.Fatal(err)
	}
	if _, err := with.Secret(t.Context(), "org", "con_1/v1"); !errors.Is(err, secrets.ErrNotFound) {
		t.Errorf("it is still there: %v", err)
	}
}
