package server

import (
	"context"
	"strings"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/secrets"
)

// openSecrets opens the secret store. A key that is not the database's stops the
// start: it would be found at the first secret that does not open otherwise. It
// returns nil when there is no key to be had.
func openSecrets(ctx context.Context, d *db.DB, c Config) (*secrets.Store, error) {
	src := keySource(c.DB)
	if src == (secrets.Source{}) {
		c.Log.WarnContext(ctx, "the secret store is closed until a key is given; processes that share a database need the same one", "variable", secrets.EnvKey)
		return nil, nil
	}
	return secrets.Open(ctx, d, src)
}

// keySource says where the key is: in the environment, or else in a file beside
// an SQLite file. Beside a PostgreSQL server there is no such place: each process
// would make a key of its own on its own disk.
func keySource(dsn string) secrets.Source {
	if db.IsPostgres(dsn) {
		return secrets.FromEnv("")
	}
	return secrets.FromEnv(strings.TrimPrefix(dsn, "sqlite:") + ".key")
}
