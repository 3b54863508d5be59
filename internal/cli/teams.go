package cli

import (
	"context"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
)

func (a *app) teamsCmd() *cobra.Command {
	return nounCmd("teams", "Divide an organisation into teams", a.teamsList(), a.teamsCreate(), a.teamsRename(), a.teamsDelete())
}

func (a *app) teamTable(w io.Writer, all []client.Team) {
	t := table{head: []string{"NAME", "AGE", "BY", "ID"}}
	for _, x := range all {
		t.add(x.Name, age(x.CreatedAt, a.now()), x.CreatedBy, x.ID)
	}
	t.write(w, a.tableTerm())
}

func (a *app) teamsList() *cobra.Command {
	return listCmd(a, "List teams by name", "No teams that you see: zopday teams create makes one.",
		func(c *client.Client) func(context.Context, url.Values) (*client.Response, []client.Team, string, error) {
			return c.ListTeams
		}, noFilter, a.teamTable)
}

func (a *app) teamsCreate() *cobra.Command {
	return &cobra.Command{
		Use: "create NAME", Short: "Make a team", Args: args(1, 1, "a name for the team"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return asked(a, cmd, func(ctx context.Context, c *client.Client) (*client.Response, client.Team, error) {
				return c.CreateTeam(ctx, args[0])
			}, a.oneTeam)
		},
	}
}

func (a *app) oneTeam(w io.Writer, t client.Team) { a.teamTable(w, []client.Team{t}) }

func (a *app) teamsRename() *cobra.Command {
	return &cobra.Command{
		Use: "rename TEAM NAME", Short: "Give a team another name", Args: args(2, 2, "a team and a name"), ValidArgsFunction: a.completeAt(a.teamNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return asked(a, cmd, func(ctx context.Context, c *client.Client) (*client.Response, client.Team, error) {
				return c.RenameTeam(ctx, args[0], args[1])
			}, a.oneTeam)
		},
	}
}

func (a *app) teamsDelete() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "delete TEAM", Short: "Delete a team to which nothing belongs any more", Args: args(1, 1, "a team: its ID or its name"), ValidArgsFunction: a.completeAt(a.teamNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.confirm(cmd.Context(), consent{verb: "delete the team " + args[0], level: 2, yes: yes, effect: []string{"the roles that were given in it go with it"}}); err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			ctx, cancel := a.request(cmd.Context())
			defer cancel()
			if _, err := c.DeleteTeam(ctx, args[0]); err != nil {
				return err
			}
			a.say("Deleted.")
			return nil
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
