package server

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/secrets"
	"github.com/zopday/provisioner/internal/secrets/kms"
)

// openSecrets opens the secret store. A key that is not the database's stops the
// start: it would be found at the first secret that does not open otherwise. It
// returns nil when there is no key to be had.
func openSecrets(ctx context.Context, d *db.DB, c Config) (*secrets.Store, error) {
	src := KeySource(c.DB, c.SecretKey)
	if !src.Given() {
		c.Log.WarnContext(ctx, "the secret store is closed until a key is given; processes that share a database need the same one", "variable", secrets.EnvKey)
		return nil, nil
	}
	return secrets.Open(ctx, d, src)
}

// KeySource says where the key of a database's secrets is: where given says, which
// is a key file or the URI of a key in a KMS; or else in the environment; or else in
// a file beside an SQLite file. Beside a PostgreSQL server there is no such place:
// each process would make a key of its own on its own disk. A key itself is never
// given by given: it would stand in the process's arguments.
func KeySource(dsn, given string) secrets.Source {
	if given != "" {
		return GivenKey(given)
	}
	src := secrets.FromEnv("")
	if !db.IsPostgres(dsn) {
		src.File = strings.TrimPrefix(dsn, "sqlite:") + ".key"
	}
	src.KMS = kms.Open
	return src
}

// GivenKey is a key file, or the URI of a key in a KMS.
func GivenKey(given string) secrets.Source {
	if strings.Contains(given, "://") {
		return secrets.Source{Text: given, Name: "--secret-key", KMS: kms.Open}
	}
	return secrets.Source{File: given}
}

// refreshTick is how often a process looks whether another one has rotated the keys
// of the secrets. A secret that comes with a new key is read before that, too.
const refreshTick = 5 * time.Second

// refreshSecrets takes over what other processes did to the keyset, until the
// context ends.
func refreshSecrets(ctx context.Context, d *db.DB, s *secrets.Store, log *slog.Logger) {
	tick := time.NewTicker(refreshTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.Refresh(db.System(ctx), d); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "the keys of the secrets have changed, and this process cannot take the new ones over", "error", err)
		}
	}
}
