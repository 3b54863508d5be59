package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
)

func (a *app) tokensCmd() *cobra.Command {
	return nounCmd("tokens", "Make, rotate and revoke API tokens",
		a.tokensCreate(), a.tokensList(), a.tokensGet(), a.tokensRotate(), a.tokensRevoke(), a.tokensRecover())
}

// scopeOf reads a scope as a person writes it.
func scopeOf(text string) (client.Scope, error) {
	kind, id, named := strings.Cut(text, ":")
	switch {
	case text == "" || text == "org":
		return client.Scope{Kind: "org"}, nil
	case kind == "team" && named && id != "":
		return client.Scope{Kind: "team", ID: id}, nil
	case strings.HasPrefix(text, "job_"), strings.HasPrefix(text, "spc_"), strings.HasPrefix(text, "ca_"):
		return client.Scope{Kind: "resource", ID: text}, nil
	}
	return client.Scope{}, &usageError{msg: fmt.Sprintf("%q is no scope", text), hint: "use org, team:NAME, or the ID of a job, space or cloud account"}
}

func scopeText(s client.Scope) string {
	switch s.Kind {
	case "team":
		return "team:" + s.ID
	case "resource":
		return s.ID
	}
	return "org"
}

// grantOf reads ROLE or ROLE@SCOPE.
func grantOf(text string) (client.Grant, error) {
	role, at, _ := strings.Cut(text, "@")
	scope, err := scopeOf(at)
	return client.Grant{Role: role, Scope: scope}, err
}

func grantsText(all []client.Grant) string {
	parts := make([]string, len(all))
	for i, g := range all {
		parts[i] = g.Role + "@" + scopeText(g.Scope)
	}
	return strings.Join(parts, ", ")
}

func whenOf(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return t.Format(time.RFC3339)
}

// pageFlags are those of a list.
func pageFlags(cmd *cobra.Command, limit *int, cursor *string) {
	cmd.Flags().IntVar(limit, "limit", 0, "how many a page, 1 to 500")
	cmd.Flags().StringVar(cursor, "cursor", "", "where the next page begins")
}

// listCmd is a command that shows one page of a list.
func listCmd[T any](a *app, short, none string, get func(*client.Client) func(context.Context, url.Values) (*client.Response, []T, string, error), filter func(url.Values), table func(io.Writer, []T)) *cobra.Command {
	var (
		limit  int
		cursor string
	)
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: short, Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			q := url.Values{}
			if limit != 0 {
				q.Set("limit", fmt.Sprint(limit))
			}
			if cursor != "" {
				q.Set("cursor", cursor)
			}
			filter(q)
			c, err := a.connect()
			if err != nil {
				return err
			}
			ctx, cancel := a.request(cmd.Context())
			defer cancel()
			resp, items, next, err := get(c)(ctx, q)
			if err != nil {
				return err
			}
			err = a.print(resp, func(w io.Writer) {
				if len(items) > 0 {
					table(w, items)
				}
			})
			switch {
			case err != nil || a.machine():
			case len(items) == 0:
				a.say("%s", none)
			case next != "":
				a.say("There are more: --cursor %s", next)
			}
			return err
		},
	}
	pageFlags(cmd, &limit, &cursor)
	return cmd
}

func noFilter(url.Values) {}

// asked runs a command that asks one thing of the server and prints the answer.
func asked[T any](a *app, cmd *cobra.Command, ask func(context.Context, *client.Client) (*client.Response, T, error), show func(io.Writer, T)) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	ctx, cancel := a.request(cmd.Context())
	defer cancel()
	resp, v, err := ask(ctx, c)
	if err != nil {
		return err
	}
	return a.print(resp, func(w io.Writer) { show(w, v) })
}

func (a *app) tokensList() *cobra.Command {
	return listCmd(a, "List API tokens, the newest first", "No tokens that you manage: zopday tokens create makes one.",
		func(c *client.Client) func(context.Context, url.Values) (*client.Response, []client.Token, string, error) {
			return c.ListTokens
		}, noFilter, a.tokenTable)
}

func (a *app) tokenTable(w io.Writer, all []client.Token) {
	t := table{head: []string{"NAME", "STATE", "GRANTS", "EXPIRES", "LAST USED", "HINT", "BY", "ID"}}
	for _, k := range all {
		t.add(k.Name, k.State, grantsText(k.Grants), whenOf(k.ExpiresAt), whenOf(k.LastUsedAt), k.Hint, k.CreatedBy, k.ID)
	}
	t.write(w, a.tableTerm())
}

func showToken(w io.Writer, k client.Token) {
	revoked := ""
	if k.RevokedAt != nil {
		revoked = k.RevokedAt.Format(time.RFC3339) + " by " + k.RevokedBy
	}
	fields(w, "Token", k.Name, "ID", k.ID, "State", k.State, "Hint", k.Hint, "Grants", grantsText(k.Grants), "Expires", whenOf(k.ExpiresAt), "Last used", whenOf(k.LastUsedAt),
		"Made", k.CreatedAt.Format(time.RFC3339)+" by "+k.CreatedBy, "Revoked", revoked)
}

func (a *app) tokensGet() *cobra.Command {
	return &cobra.Command{
		Use: "get TOKEN", Short: "Show an API token: what it may do and when it was used", Args: args(1, 1, "a token: its ID or its name"), ValidArgsFunction: a.completeAt(a.tokenNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return asked(a, cmd, func(ctx context.Context, c *client.Client) (*client.Response, client.Token, error) {
				return c.GetToken(ctx, args[0])
			}, showToken)
		},
	}
}

// showSecret prints a token that has just been made, alone on the standard output
// so that it can be piped, and what is to be known of it on the standard error.
func (a *app) showSecret(resp *client.Response, k client.Token) error {
	if a.machine() {
		return a.print(resp, func(io.Writer) {})
	}
	if err := a.write([]byte(clean(k.Secret) + "\n")); err != nil {
		return err
	}
	a.say("The token %s (%s): %s; expires: %s.\nIt is shown this once: keep it now. zopday tokens revoke %s ends it.", clean(k.Name), k.ID, clean(grantsText(k.Grants)), whenOf(k.ExpiresAt), clean(k.Name))
	return nil
}

func lifeFlags(cmd *cobra.Command, in, at *string) {
	cmd.Flags().StringVar(in, "expires-in", "", "`time` until it ends, such as 12h, 90d or 52w; never for one that does not")
	cmd.Flags().StringVar(at, "expires-at", "", "instead: RFC 3339 `time` at which it ends")
	completeFixed(cmd, "expires-in", "1d", "7d", "30d", "90d", "52w", "never")
}

func life(request map[string]any, in, at string) {
	for k, v := range map[string]string{"expiresIn": in, "expiresAt": at} {
		if v != "" {
			request[k] = v
		}
	}
}

func (a *app) tokensCreate() *cobra.Command {
	var f struct {
		role, scope, in, at string
		grants              []string
	}
	const short = "Make an API token; it is printed once, alone on the standard output"
	cmd := &cobra.Command{
		Use: "create NAME", Short: short, Args: args(1, 1, "a name for the token"),
		Long: withExamples(short, "  zopday tokens create ci --role Editor --scope team:shop --expires-in 30d > token\n"+
			"  zopday tokens create deploy --grant Viewer --grant Editor@job_06g… --expires-in never"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request := map[string]any{"name": args[0]}
			grants := []client.Grant{}
			if f.role != "" || f.scope != "" {
				scope, err := scopeOf(f.scope)
				if err != nil {
					return err
				}
				grants = append(grants, client.Grant{Role: f.role, Scope: scope})
			}
			for _, g := range f.grants {
				grant, err := grantOf(g)
				if err != nil {
					return err
				}
				grants = append(grants, grant)
			}
			if len(grants) == 0 {
				return &usageError{msg: "the token is to have no role", hint: "add --role, such as --role Viewer"}
			}
			request["grants"] = grants
			life(request, f.in, f.at)
			return a.secret(cmd, func(ctx context.Context, c *client.Client) (*client.Response, client.Token, error) {
				return c.CreateToken(ctx, request)
			})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.role, "role", "", "`role` by its name or ID, such as Viewer")
	fl.StringVar(&f.scope, "scope", "", "what the role is for: org (default), team:NAME, or the ID of a job, space or cloud account")
	fl.StringArrayVar(&f.grants, "grant", nil, "further role, as `ROLE` or ROLE@SCOPE; can be repeated")
	lifeFlags(cmd, &f.in, &f.at)
	a.completeFlag(cmd, "role", a.roleNames)
	a.completeFlag(cmd, "grant", a.roleNames)
	a.completeFlag(cmd, "scope", a.scopeNames)
	return cmd
}

func (a *app) secret(cmd *cobra.Command, ask func(context.Context, *client.Client) (*client.Response, client.Token, error)) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	ctx, cancel := a.request(cmd.Context())
	defer cancel()
	resp, k, err := ask(ctx, c)
	if err != nil {
		return err
	}
	return a.showSecret(resp, k)
}

func (a *app) tokensRotate() *cobra.Command {
	var in, at string
	const short = "Give an API token another text, which is printed once; the old one works no more"
	cmd := &cobra.Command{
		Use: "rotate TOKEN", Short: short, Args: args(1, 1, "a token: its ID or its name"), ValidArgsFunction: a.completeAt(a.tokenNames),
		Long: withExamples(short, "  zopday tokens rotate ci --expires-in 30d > token"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request := map[string]any{}
			life(request, in, at)
			return a.secret(cmd, func(ctx context.Context, c *client.Client) (*client.Response, client.Token, error) {
				return c.RotateToken(ctx, args[0], request)
			})
		},
	}
	lifeFlags(cmd, &in, &at)
	return cmd
}

func (a *app) tokensRevoke() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "revoke TOKEN", Short: "End an API token, at once and for good", Args: args(1, 1, "a token: its ID or its name"), ValidArgsFunction: a.completeAt(a.tokenNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			rctx, cancel := a.request(cmd.Context())
			_, k, err := c.GetToken(rctx, args[0])
			cancel()
			if err != nil {
				return err
			}
			effect := []string{"whatever uses it is refused from the next request on", "it was last used: " + whenOf(k.LastUsedAt)}
			if err := a.confirm(cmd.Context(), consent{verb: "revoke the token " + k.Name + " (" + k.ID + ")", level: 2, yes: yes, effect: effect}); err != nil {
				return err
			}
			ctx, cancel := a.request(cmd.Context())
			defer cancel()
			if _, err := c.RevokeToken(ctx, k.ID); err != nil {
				return err
			}
			a.say("The token %s is revoked.", clean(k.Name))
			return nil
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (a *app) tokensRecover() *cobra.Command {
	var dsn, org string
	const short = "Make an admin token on the database itself, for an organisation that has lost its own"
	cmd := &cobra.Command{
		Use: "recover", Short: short, Args: args(0, 0, ""),
		Long: withExamples(short, "  zopday tokens recover --db zopday.db\n  ZOPDAY_DB=postgres://… zopday tokens recover --org acme") + `

It needs no server and no token: whoever can write to the database can do this. An
SQLite file belongs to the server that runs on it; stop that first.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			db, err := a.database(dsn)
			if err != nil {
				return err
			}
			name, secret, err := a.back.RecoverToken(cmd.Context(), db, cmp.Or(org, "default"))
			if err != nil {
				return err
			}
			if err := a.write([]byte(secret + "\n")); err != nil {
				return err
			}
			a.say("The token %s is an admin of %s, and does not expire. It is shown this once. Revoke it when it has done its work.", name, clean(cmp.Or(org, "default")))
			return nil
		},
	}
	databaseFlag(cmd, &dsn)
	cmd.Flags().StringVar(&org, "org", "", "`organisation`, by its ID or its name; default if left out")
	return cmd
}

// databaseFlag is --db of a command that works on the database itself.
func databaseFlag(cmd *cobra.Command, dsn *string) {
	cmd.Flags().StringVar(dsn, "db", "", "`path` of an SQLite file, or a postgres:// DSN; ZOPDAY_DB keeps a password out of the arguments")
}

func (a *app) database(dsn string) (string, error) {
	if dsn = cmp.Or(dsn, a.getenv("ZOPDAY_DB")); dsn == "" {
		return "", &usageError{msg: "no database is named", hint: "add --db, or set ZOPDAY_DB, as for zopday serve"}
	}
	return dsn, nil
}
