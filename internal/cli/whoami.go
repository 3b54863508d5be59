package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
)

func (a *app) whoamiCmd() *cobra.Command {
	return &cobra.Command{
		Use: "whoami", Short: "See who the server takes you for, and what you may do", Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return asked(a, cmd, func(ctx context.Context, c *client.Client) (*client.Response, client.WhoAmI, error) {
				return c.WhoAmI(ctx)
			}, func(w io.Writer, me client.WhoAmI) {
				fields(w, "Actor", me.Actor, "Organisation", me.Organisation.Name+" ("+me.Organisation.ID+")")
				if len(me.Permissions) == 0 {
					fmt.Fprintln(w, "No role is assigned: you may do nothing.")
					return
				}
				fmt.Fprintln(w)
				a.permissionTable(w, me.Permissions)
			})
		},
	}
}

var few = url.Values{"limit": {"200"}}

// completeFlag completes the value of a flag from what the server has.
func (a *app) completeFlag(cmd *cobra.Command, flag string, from completer) {
	complete := a.completeAt(from)
	err := cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, text string) ([]string, cobra.ShellCompDirective) {
		return complete(cmd, nil, text)
	})
	if err != nil {
		panic(err) // a programming error: no such flag
	}
}

func (a *app) tokenNames(ctx context.Context, c *client.Client) ([]string, error) {
	_, all, _, err := c.ListTokens(ctx, few)
	var out []string
	for _, k := range all {
		if k.State != "revoked" {
			out = append(out, clean(k.Name)+"\t"+clean(grantsText(k.Grants)))
		}
	}
	return out, err
}

func (a *app) roleNames(ctx context.Context, c *client.Client) ([]string, error) {
	_, all, _, err := c.ListRoles(ctx, few)
	var out []string
	for _, r := range all {
		out = append(out, clean(r.Name)+"\t"+clean(r.Description))
	}
	return out, err
}

func (a *app) policyNames(ctx context.Context, c *client.Client) ([]string, error) {
	_, all, err := c.ListPolicies(ctx)
	var out []string
	for _, p := range all {
		out = append(out, clean(p.Policy)+"\t"+clean(p.Description))
	}
	return out, err
}

func (a *app) teamNames(ctx context.Context, c *client.Client) ([]string, error) {
	_, all, _, err := c.ListTeams(ctx, few)
	var out []string
	for _, t := range all {
		out = append(out, clean(t.Name)+"\t"+clean(t.ID))
	}
	return out, err
}

func (a *app) scopeNames(ctx context.Context, c *client.Client) ([]string, error) {
	teams, err := a.teamNames(ctx, c)
	out := []string{"org\tthe whole organisation"}
	for _, t := range teams {
		out = append(out, "team:"+t)
	}
	return out, err
}

func (a *app) subjectNames(ctx context.Context, c *client.Client) ([]string, error) {
	tokens, err := a.tokenNames(ctx, c)
	out := []string{"user:\ta verified e-mail address", "group:\ta group of the issuer"}
	for _, t := range tokens {
		out = append(out, "token:"+t)
	}
	return out, err
}

func (a *app) assignmentIDs(ctx context.Context, c *client.Client) ([]string, error) {
	_, all, _, err := c.ListAssignments(ctx, few)
	var out []string
	for _, x := range all {
		out = append(out, clean(x.ID)+"\t"+clean(x.Subject.Kind+":"+x.Subject.ID+" "+x.Role+" "+scopeText(x.Scope)))
	}
	return out, err
}
