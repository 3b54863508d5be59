package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
)

// A Migration is what zopday migrate has done to a database.
type Migration struct {
	Schema       int64    `json:"schema"`       // number of the newest migration
	ServiceRoles []string `json:"serviceRoles"` // that have their rights now
}

func (a *app) migrateCmd() *cobra.Command {
	var dsn, role string
	cmd := &cobra.Command{
		Use: "migrate", Short: "Bring a database's schema up to date, and give the server's role its rights", Args: args(0, 0, ""),
		Long: withExamples("Bring a database's schema up to date, with row-level security on every table, and give the role that the server connects as the rights that it needs",
			"  zopday migrate --db postgres://zopday_owner@db1/zopday --service-role zopday_service\n  zopday serve   --db postgres://zopday_service@db1/zopday --migrate=false") + `

On PostgreSQL it connects as the role that owns the tables, or is to own them; no superuser is
needed. The service role has to exist. It gets the rights to read and write rows, to add entries to
the audit log and seal them, and none to change the schema; a role that was named once keeps its
rights with later migrations. docs/postgresql.md has the whole of it.

A server of the old version may run on while it does: it needs nothing that a migration takes away.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.flagsFromEnv(cmd); err != nil {
				return err
			}
			m, err := a.back.Migrate(cmd.Context(), dsn, role)
			if err != nil {
				return err
			}
			resp, err := client.Wrap([]Migration{m})
			if err != nil {
				return err
			}
			return a.print(resp, func(w io.Writer) {
				fmt.Fprintf(w, "The schema is at %d.\n", m.Schema)
				if len(m.ServiceRoles) > 0 {
					fmt.Fprintf(w, "Has its rights: %s.\n", clean(strings.Join(m.ServiceRoles, ", ")))
				}
			})
		},
	}
	cmd.Flags().StringVar(&dsn, "db", "zopday.db", "`path` of an SQLite file, or a postgres:// DSN; ZOPDAY_DB keeps a password out of the arguments")
	cmd.Flags().StringVar(&role, "service-role", "", "`role` of PostgreSQL that the server connects as: it gets its rights")
	return cmd
}
