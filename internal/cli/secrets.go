package cli

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
)

const secretKeyFlag = "secret-key"

// addSecretKey is the flag that says where the key of a database's secrets is.
func addSecretKey(cmd *cobra.Command, v *string) {
	cmd.Flags().StringVar(v, secretKeyFlag, "", "key `file`, or aws-kms://arn:…, gcp-kms://projects/…, azure-kv://vault/key; ZOPDAY_SECRET_KEY holds a key or such a URI; else a file beside an SQLite file")
}

// checkSecretKey refuses a key where the place of one is wanted: arguments can be
// read by everybody on the machine.
func checkSecretKey(v string) error {
	if v == "" || strings.Contains(v, "://") {
		return nil
	}
	if _, err := os.Stat(v); err == nil {
		return nil
	}
	text := strings.TrimSpace(v)
	_, herr := hex.DecodeString(text)
	for _, e := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if b, err := e.DecodeString(text); err == nil && len(b) == 32 || herr == nil && len(text) == 64 {
			return usagef("this looks like a key, and arguments can be read by everybody on this machine: put it into a file (mode 0600) and name that, or into ZOPDAY_SECRET_KEY; and take this one out of use")
		}
	}
	return nil
}

// A Keeping is what works on the secrets of a database without any server. Key says
// where the key is, as --secret-key does.
type Keeping struct {
	Status func(ctx context.Context, dsn string) (client.SecretsStatus, error)
	Rotate func(ctx context.Context, dsn, key string) (client.Rotation, error)
	Rekey  func(ctx context.Context, dsn, key, newKey string) (client.SecretsStatus, error)
}

func (a *app) secretsCmd() *cobra.Command {
	return nounCmd("secrets", "See and rotate the keys of secrets at rest", a.secretsStatus(), a.secretsRotate(), a.secretsRekey())
}

// secretsDatabase names a database to work on without a server.
func secretsDatabase(cmd *cobra.Command, v *string) {
	cmd.Flags().StringVar(v, "db", "", "`path` of the SQLite file or postgres:// DSN to work on without a server; ZOPDAY_SECRETS_DB keeps a password out of the arguments")
}

func (a *app) secretsDB(flag string) string {
	if flag == "" {
		return a.getenv("ZOPDAY_SECRETS_DB")
	}
	return flag
}

func (a *app) secretsStatus() *cobra.Command {
	var dsn string
	cmd := &cobra.Command{
		Use: "status", Short: "Show which keys the secrets are encrypted with", Args: args(0, 0, ""),
		Long: withExamples("Show which keys the secrets are encrypted with, by their IDs", "  zopday secrets status\n  zopday secrets status --db zopday.db"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if at := a.secretsDB(dsn); at != "" {
				st, err := a.back.Keeping.Status(cmd.Context(), at)
				if err != nil {
					return err
				}
				return a.showSecrets(nil, st)
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			ctx, cancel := a.request(cmd.Context())
			defer cancel()
			resp, st, err := c.Secrets(ctx)
			if err != nil {
				return err
			}
			return a.showSecrets(resp, st)
		},
	}
	secretsDatabase(cmd, &dsn)
	return cmd
}

func (a *app) showSecrets(resp *client.Response, st client.SecretsStatus) (err error) {
	if resp == nil {
		if resp, err = client.Wrap(st); err != nil {
			return err
		}
	}
	return a.print(resp, func(w io.Writer) {
		if st.KEK == "" {
			fmt.Fprintln(w, "No key has been used yet.")
		} else {
			fmt.Fprintf(w, "The keyset is encrypted with %s. New secrets get the key %s.\n", clean(st.KEK), clean(st.Key))
		}
		for _, k := range sortedKeys(st.Secrets) {
			fmt.Fprintf(w, "  %s  %s\n", clean(k), plurals(st.Secrets[k], "secret", "secrets"))
		}
		if st.Rotating {
			fmt.Fprintln(w, "A rotation was begun and has not come to its end: zopday secrets rotate finishes it.")
		}
	})
}

func (a *app) secretsRotate() *cobra.Command {
	var dsn, key string
	cmd := &cobra.Command{
		Use: "rotate", Short: "Make a new data key and write every secret anew with it", Args: args(0, 0, ""),
		Long: withExamples("Make a new data key and write every secret of every organisation anew with it", "  zopday secrets rotate\n  zopday secrets rotate --db zopday.db      without a server") + `

Every secret can be read meanwhile, and servers that run take the new key over by themselves.
A rotation that is cut off is brought to its end by the next.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if at := a.secretsDB(dsn); at != "" {
				if err := checkSecretKey(key); err != nil {
					return err
				}
				r, err := a.back.Keeping.Rotate(cmd.Context(), at, key)
				if err != nil {
					return err
				}
				return a.showRotation(nil, r)
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			ctx, cancel := a.slowRequest(cmd.Context())
			defer cancel()
			resp, r, err := c.RotateSecrets(ctx)
			if err != nil {
				return err
			}
			return a.showRotation(resp, r)
		},
	}
	secretsDatabase(cmd, &dsn)
	addSecretKey(cmd, &key)
	return cmd
}

func (a *app) showRotation(resp *client.Response, r client.Rotation) (err error) {
	if resp == nil {
		if resp, err = client.Wrap(r); err != nil {
			return err
		}
	}
	return a.print(resp, func(w io.Writer) {
		what := "Rotated"
		if r.Resumed {
			what = "Finished the rotation that had been cut off"
		}
		fmt.Fprintf(w, "%s: every secret has the key %s; %s written anew.\n", what, clean(r.Key), plurals(r.Rewritten, "was", "were"))
	})
}

func (a *app) secretsRekey() *cobra.Command {
	var dsn, key, newKey string
	cmd := &cobra.Command{
		Use: "rekey", Short: "Put the secrets under another master key", Args: args(0, 0, ""),
		Long: withExamples("Put the keyset of the secrets under another master key: a file, or a key in a KMS", "  zopday secrets rekey --db zopday.db --new-key new.key\n  zopday secrets rekey --new-key aws-kms://arn:aws:kms:eu-west-1:111122223333:key/…") + `

It works on the database itself, so stop the servers of an SQLite file first. From then on
the database needs the new key: start the servers with it. Keep the old one as long as you keep
backups that need it. Rotate as well when the old key may have leaked.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at := a.secretsDB(dsn)
			switch {
			case at == "":
				return usagef("zopday secrets rekey needs --db, the database to work on")
			case newKey == "":
				return usagef("zopday secrets rekey needs --new-key, a file or the URI of a key in a KMS")
			}
			for _, k := range []string{key, newKey} {
				if err := checkSecretKey(k); err != nil {
					return err
				}
			}
			st, err := a.back.Keeping.Rekey(cmd.Context(), at, key, newKey)
			if err != nil {
				return err
			}
			return a.showSecrets(nil, st)
		},
	}
	secretsDatabase(cmd, &dsn)
	addSecretKey(cmd, &key)
	cmd.Flags().StringVar(&newKey, "new-key", "", "key `file`, which is made if it does not exist, or URI of a key in a KMS")
	return cmd
}

// RestoreOptions say what is restored where.
type RestoreOptions struct {
	In, DB, SecretKey string
	NoKey             bool
}

// A Restored is what was found in a backup.
type Restored struct {
	Schema  int64 `json:"schema"`
	Entries int64 `json:"entries"`
	Secrets int   `json:"secrets"`
}

func (a *app) backupCmd() *cobra.Command {
	var dsn, out string
	cmd := &cobra.Command{
		Use: "backup", Short: "Back the database up", Args: args(0, 0, ""),
		Long: withExamples("Write the database, as it is at this moment, to a file", "  zopday backup --out zopday-backup.db                  by the server that runs\n  zopday backup --db zopday.db --out zopday-backup.db   without a server") + `

Secrets are in it encrypted, and their key is not: back that up as well, and elsewhere.
A PostgreSQL database is backed up with pg_dump (docs/backup.md).`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" {
				return usagef("zopday backup needs --out, the file to write")
			}
			if dsn != "" {
				if _, err := os.Stat(out); err == nil {
					return usagef("%s exists already; name another file, or remove it first", out)
				}
				if err := a.back.Backup(cmd.Context(), dsn, out); err != nil {
					return err
				}
				a.say("Wrote %s.", out)
				return nil
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			ctx, cancel := a.within(cmd.Context(), 30*time.Minute)
			defer cancel()
			n, err := writeNew(out, func(w io.Writer) (int64, error) { return c.Backup(ctx, w) })
			if err != nil {
				return err
			}
			a.say("Wrote %s (%d bytes). The key of its secrets is not in it: back that up as well.", out, n)
			return nil
		},
	}
	cmd.Flags().StringVar(&dsn, "db", "", "`path` of an SQLite file that no server has open; left out, the server writes the backup")
	cmd.Flags().StringVar(&out, "out", "", "`file` to write, which must not exist")
	return cmd
}

func (a *app) restoreCmd() *cobra.Command {
	var o RestoreOptions
	cmd := &cobra.Command{
		Use: "restore", Short: "Restore the database from a backup", Args: args(0, 0, ""),
		Long: withExamples("Restore an SQLite database from a backup, after a look at it", "  zopday restore --in zopday-backup.db --db zopday.db") + `

Refused are a database that exists, a damaged file, a schema newer than this program, an
audit log that is not whole, and a key that does not open the secrets.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case o.In == "":
				return usagef("zopday restore needs --in, the backup")
			case o.DB == "":
				return usagef("zopday restore needs --db, the database to write")
			}
			if err := checkSecretKey(o.SecretKey); err != nil {
				return err
			}
			r, err := a.back.Restore(cmd.Context(), o)
			if err != nil {
				return err
			}
			resp, err := client.Wrap(r)
			if err != nil {
				return err
			}
			return a.print(resp, func(w io.Writer) {
				fmt.Fprintf(w, "Restored %s: schema %d, %s in a whole audit log, %s.\n", o.DB, r.Schema, plurals(int(r.Entries), "entry", "entries"), plurals(r.Secrets, "secret that opens", "secrets that open"))
			})
		},
	}
	cmd.Flags().StringVar(&o.In, "in", "", "`file` that zopday backup wrote")
	cmd.Flags().StringVar(&o.DB, "db", "", "`path` of the SQLite file to write, which must not exist")
	addSecretKey(cmd, &o.SecretKey)
	cmd.Flags().BoolVar(&o.NoKey, "without-key", false, "the key is not here: do not look whether the secrets open")
	return cmd
}
