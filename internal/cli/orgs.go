package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
)

// An Org is an organisation, as the database has it.
type Org struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"createdAt"`
}

func (a *app) orgsCmd() *cobra.Command {
	return nounCmd("orgs", "Make and list organisations, on the database itself", a.orgsCreate(), a.orgsList())
}

const orgsHelp = `

It needs no server and no token: whoever can write to the database can do this. An
SQLite file belongs to the server that runs on it; stop that first.`

func (a *app) orgsCreate() *cobra.Command {
	var dsn string
	const short = "Make an organisation; its first admin token is printed once, alone on the standard output"
	cmd := &cobra.Command{
		Use: "create NAME", Short: short, Args: args(1, 1, "a name for the organisation"),
		Long: withExamples(short, "  zopday orgs create acme --db zopday.db > token") + orgsHelp,
		RunE: func(cmd *cobra.Command, args []string) error {
			db, err := a.database(dsn)
			if err != nil {
				return err
			}
			o, secret, err := a.back.CreateOrg(cmd.Context(), db, args[0])
			if err != nil {
				return err
			}
			if a.machine() {
				return a.data(struct {
					Org
					Token string `json:"token"`
				}{o, secret})
			}
			if err := a.write([]byte(secret + "\n")); err != nil {
				return err
			}
			a.say("The organisation %s (%s) is made. Its first token, admin, does not expire and is shown this once: keep it now.", clean(o.Name), o.ID)
			return nil
		},
	}
	databaseFlag(cmd, &dsn)
	return cmd
}

func (a *app) orgsList() *cobra.Command {
	var dsn string
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List organisations", Args: args(0, 0, ""), Long: "List organisations" + orgsHelp,
		RunE: func(cmd *cobra.Command, _ []string) error {
			db, err := a.database(dsn)
			if err != nil {
				return err
			}
			all, err := a.back.ListOrgs(cmd.Context(), db)
			if err != nil {
				return err
			}
			if a.machine() || a.cfg.Output.Value == "name" {
				return a.data(all)
			}
			var b bytes.Buffer
			t := table{head: []string{"NAME", "AGE", "ID"}}
			for _, o := range all {
				t.add(o.Name, age(o.CreatedAt, a.now()), o.ID)
			}
			t.write(&b, a.tableTerm())
			return a.write([]byte(a.outTerm.text(b.String())))
		},
	}
	databaseFlag(cmd, &dsn)
	return cmd
}

// data prints something that no server answered as if one had.
func (a *app) data(v any) error {
	body, err := json.Marshal(map[string]any{"data": v})
	if err != nil {
		return fmt.Errorf("output: %w", err)
	}
	return a.print(&client.Response{Body: body}, func(io.Writer) {})
}
