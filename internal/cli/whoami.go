package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
)

func (a *app) whoamiCmd() *cobra.Command {
	return &cobra.Command{
		Use: "whoami", Short: "See who the server takes you for, and what you may do", Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			teams := map[string]string{}
			return asked(a, cmd, func(ctx context.Context, c *client.Client) (*client.Response, client.WhoAmI, error) {
				resp, me, err := c.WhoAmI(ctx)
				if err == nil && !a.machine() {
					teams = a.teamsOf(ctx, c, me.Permissions)
				}
				return resp, me, err
			}, func(w io.Writer, me client.WhoAmI) {
				fields(w, "Actor", me.Actor, "Organisation", me.Organisation.Name+" ("+me.Organisation.ID+")")
				if len(me.Permissions) == 0 {
					fmt.Fprintln(w, "No role is assigned: you may do nothing.")
					return
				}
				a.showHeld(w, me.Permissions, teams)
			})
		},
	}
}

// teamsOf are the names of the teams in which something is held, by their IDs. A team
// whose name cannot be had keeps its ID.
func (a *app) teamsOf(ctx context.Context, c *client.Client, held []client.Permission) map[string]string {
	names := map[string]string{}
	inTeam := func(g client.Grant) bool { return g.Scope.Kind == "team" }
	if !slices.ContainsFunc(held, func(p client.Permission) bool { return slices.ContainsFunc(p.Held, inTeam) }) {
		return names
	}
	q := url.Values{"limit": few["limit"]}
	for {
		_, all, next, err := c.ListTeams(ctx, q)
		for _, t := range all {
			names[t.ID] = t.Name
		}
		if err != nil || next == "" {
			return names
		}
		q.Set("cursor", next)
	}
}

// showHeld shows what is held assignment by assignment, in the order in which they
// first come.
func (a *app) showHeld(w io.Writer, all []client.Permission, teams map[string]string) {
	var order []client.Grant
	policies := map[client.Grant][]string{}
	for _, p := range all {
		for _, g := range p.Held {
			if policies[g] == nil {
				order = append(order, g)
			}
			policies[g] = append(policies[g], clean(p.Policy))
		}
	}
	cols, _ := a.outTerm.size()
	for _, g := range order {
		where := "the whole organisation"
		switch name := teams[g.Scope.ID]; {
		case g.Scope.Kind == "team" && name != "":
			where = "the team " + name
		case g.Scope.Kind == "team":
			where = "the team " + g.Scope.ID
		case g.Scope.Kind == "resource":
			where = g.Scope.ID
		}
		through := g.Assignment
		if through == "" {
			through = "by the configuration of sign-in"
		}
		fmt.Fprintf(w, "\n%s for %s (%s)\n", clean(g.Role), clean(where), clean(through))
		for _, line := range wrap(strings.Join(policies[g], ", "), max(cols-2, 40)) {
			fmt.Fprintf(w, "  %s\n", line)
		}
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
