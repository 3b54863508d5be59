package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
)

func (a *app) rolesCmd() *cobra.Command {
	return nounCmd("roles", "See and make roles, and what they allow", a.rolesList(), a.rolesGet(), a.rolesCreate(), a.rolesUpdate(), a.rolesDelete(), a.rolesPolicies())
}

func (a *app) rolesList() *cobra.Command {
	return listCmd(a, "List roles: the built-in ones first", "No roles.",
		func(c *client.Client) func(context.Context, url.Values) (*client.Response, []client.Role, string, error) {
			return c.ListRoles
		}, noFilter, func(w io.Writer, all []client.Role) {
			t := table{head: []string{"NAME", "KIND", "POLICIES", "ID", "DESCRIPTION"}}
			for _, r := range all {
				kind := "own"
				if r.BuiltIn {
					kind = "built in"
				}
				t.add(r.Name, kind, fmt.Sprint(len(r.Policies)), r.ID, r.Description)
			}
			t.write(w, a.tableTerm())
		})
}

func showRole(w io.Writer, r client.Role) {
	fields(w, "Role", r.Name, "ID", r.ID, "Description", r.Description)
	for _, p := range r.Policies {
		fmt.Fprintln(w, "  "+clean(p))
	}
}

func (a *app) rolesGet() *cobra.Command {
	return &cobra.Command{
		Use: "get ROLE", Short: "Show a role: what it allows", Args: args(1, 1, "a role: its ID or its name"), ValidArgsFunction: a.completeAt(a.roleNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			return asked(a, cmd, func(ctx context.Context, c *client.Client) (*client.Response, client.Role, error) {
				return c.GetRole(ctx, args[0])
			}, showRole)
		},
	}
}

func (a *app) rolesCreate() *cobra.Command {
	var f struct {
		policies    []string
		description string
	}
	const short = "Make a role of what you hold yourself"
	cmd := &cobra.Command{
		Use: "create NAME", Short: short, Args: args(1, 1, "a name for the role"),
		Long: withExamples(short, "  zopday roles create operator --policy provisioning-job:read --policy vm:operate"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request := map[string]any{"name": args[0], "policies": append([]string{}, f.policies...)}
			if f.description != "" {
				request["description"] = f.description
			}
			return asked(a, cmd, func(ctx context.Context, c *client.Client) (*client.Response, client.Role, error) {
				return c.CreateRole(ctx, request)
			}, showRole)
		},
	}
	roleFlags(a, cmd, &f.policies, &f.description)
	return cmd
}

func roleFlags(a *app, cmd *cobra.Command, policies *[]string, description *string) {
	cmd.Flags().StringArrayVar(policies, "policy", nil, "`policy` that it holds; x:write and x:read stand for several; can be repeated")
	cmd.Flags().StringVar(description, "description", "", "what it is for")
	a.completeFlag(cmd, "policy", a.policyNames)
}

func (a *app) rolesUpdate() *cobra.Command {
	var f struct {
		policies          []string
		description, name string
	}
	cmd := &cobra.Command{
		Use: "update ROLE", Short: "Change a role, for everybody who has it", Args: args(1, 1, "a role: its ID or its name"), ValidArgsFunction: a.completeAt(a.roleNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			change := map[string]any{}
			if cmd.Flags().Changed("policy") {
				change["policies"] = f.policies
			}
			if cmd.Flags().Changed("description") {
				change["description"] = f.description
			}
			if f.name != "" {
				change["name"] = f.name
			}
			return asked(a, cmd, func(ctx context.Context, c *client.Client) (*client.Response, client.Role, error) {
				return c.PatchRole(ctx, args[0], change)
			}, showRole)
		},
	}
	roleFlags(a, cmd, &f.policies, &f.description)
	cmd.Flags().StringVar(&f.name, "name", "", "another `name`")
	return cmd
}

func (a *app) rolesDelete() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "delete ROLE", Short: "Delete a role, with all its assignments", Args: args(1, 1, "a role: its ID or its name"), ValidArgsFunction: a.completeAt(a.roleNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.confirm(cmd.Context(), consent{verb: "delete the role " + args[0], level: 2, yes: yes, effect: []string{"whoever has it loses what it allows"}}); err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			ctx, cancel := a.request(cmd.Context())
			defer cancel()
			resp, n, err := c.DeleteRole(ctx, args[0])
			if err != nil {
				return err
			}
			a.say("The role is deleted, and %d of its assignments with it.", n)
			if a.machine() {
				return a.print(resp, func(io.Writer) {})
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}

func (a *app) rolesPolicies() *cobra.Command {
	return &cobra.Command{
		Use: "policies", Short: "List everything that a role can allow", Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return asked(a, cmd, func(ctx context.Context, c *client.Client) (*client.Response, []client.Policy, error) {
				return c.ListPolicies(ctx)
			}, func(w io.Writer, all []client.Policy) {
				t := table{head: []string{"POLICY", "ROLES", "ALLOWS"}}
				for _, p := range all {
					t.add(p.Policy, strings.Join(p.Roles, ", "), p.Description)
				}
				t.write(w, a.tableTerm())
			})
		},
	}
}

func (a *app) assignmentsCmd() *cobra.Command {
	return nounCmd("assignments", "See who holds which role where, give roles and take them", a.assignmentsList(), a.assignmentsCreate(), a.assignmentsDelete(), a.assignmentsCheck())
}

// subjectOf reads KIND:ID.
func subjectOf(text string) (client.Subject, error) {
	kind, id, ok := strings.Cut(text, ":")
	if !ok || id == "" || kind != "token" && kind != "user" && kind != "group" {
		return client.Subject{}, &usageError{msg: fmt.Sprintf("%q names nobody", text), hint: "use token:NAME, user:ADDRESS or group:NAME"}
	}
	return client.Subject{Kind: kind, ID: id}, nil
}

func (a *app) assignmentTable(w io.Writer, all []client.Assignment) {
	t := table{head: []string{"SUBJECT", "ROLE", "SCOPE", "AGE", "BY", "ID"}}
	for _, x := range all {
		t.add(x.Subject.Kind+":"+x.Subject.ID, x.Role, scopeText(x.Scope), age(x.CreatedAt, a.now()), x.CreatedBy, x.ID)
	}
	t.write(w, a.tableTerm())
}

func (a *app) assignmentsList() *cobra.Command {
	var subject, role, scope string
	var bad error
	cmd := listCmd(a, "List who holds which role where, the newest first", "No assignments that you manage: zopday assignments create makes one.",
		func(c *client.Client) func(context.Context, url.Values) (*client.Response, []client.Assignment, string, error) {
			return c.ListAssignments
		}, func(q url.Values) {
			if s, err := subjectOf(subject); err == nil {
				q.Set("subjectKind", s.Kind)
				q.Set("subject", s.ID)
			}
			if role != "" {
				q.Set("role", role)
			}
			if s, err := scopeOf(scope); err == nil && scope != "" {
				q.Set("scopeKind", s.Kind)
				if s.ID != "" {
					q.Set("scopeId", s.ID)
				}
			}
		}, a.assignmentTable)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if subject != "" {
			_, bad = subjectOf(subject)
		}
		if bad == nil && scope != "" {
			_, bad = scopeOf(scope)
		}
		return bad
	}
	assignmentFlags(a, cmd, &subject, &role, &scope)
	return cmd
}

func assignmentFlags(a *app, cmd *cobra.Command, subject, role, scope *string) {
	cmd.Flags().StringVar(subject, "subject", "", "who: `token:NAME`, user:ADDRESS or group:NAME")
	cmd.Flags().StringVar(role, "role", "", "`role` by its name or ID, such as Viewer")
	cmd.Flags().StringVar(scope, "scope", "", "what the role is for: org, team:NAME, or the ID of a job, space or cloud account")
	a.completeFlag(cmd, "subject", a.subjectNames)
	a.completeFlag(cmd, "role", a.roleNames)
	a.completeFlag(cmd, "scope", a.scopeNames)
}

func (a *app) assignmentsCreate() *cobra.Command {
	var who, role, at string
	const short = "Give somebody a role that you hold yourself"
	cmd := &cobra.Command{
		Use: "create", Short: short, Args: args(0, 0, ""),
		Long: withExamples(short, "  zopday assignments create --subject group:platform --role Editor --scope team:shop\n  zopday assignments create --subject user:ada@example.com --role Viewer --scope org"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			subject, err := subjectOf(who)
			if err != nil {
				return err
			}
			if at == "" {
				return &usageError{msg: "it is not said what the role is for", hint: "add --scope org, --scope team:NAME, or --scope with an ID"}
			}
			scope, err := scopeOf(at)
			if err != nil {
				return err
			}
			request := map[string]any{"subject": subject, "role": role, "scope": scope}
			return asked(a, cmd, func(ctx context.Context, c *client.Client) (*client.Response, client.Assignment, error) {
				return c.CreateAssignment(ctx, request)
			}, func(w io.Writer, x client.Assignment) { a.assignmentTable(w, []client.Assignment{x}) })
		},
	}
	assignmentFlags(a, cmd, &who, &role, &at)
	return cmd
}

func (a *app) assignmentsDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete ASSIGNMENT", Short: "Take a role from somebody, from the next request on", Args: args(1, 1, "an assignment's ID"), ValidArgsFunction: a.completeAt(a.assignmentIDs),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			ctx, cancel := a.request(cmd.Context())
			defer cancel()
			if _, err := c.DeleteAssignment(ctx, args[0]); err != nil {
				return err
			}
			a.say("Deleted.")
			return nil
		},
	}
}

func (a *app) assignmentsCheck() *cobra.Command {
	var resource string
	const short = "See what somebody may do, and through which assignments"
	cmd := &cobra.Command{
		Use: "check SUBJECT", Short: short, Args: args(1, 1, "somebody: token:NAME, user:ADDRESS or group:NAME"), ValidArgsFunction: a.completeAt(a.subjectNames),
		Long: withExamples(short, "  zopday assignments check token:ci\n  zopday assignments check user:ada@example.com --resource job_06g…"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := subjectOf(args[0]); err != nil {
				return err
			}
			return asked(a, cmd, func(ctx context.Context, c *client.Client) (*client.Response, client.Permissions, error) {
				return c.EffectivePermissions(ctx, args[0], resource)
			}, func(w io.Writer, p client.Permissions) {
				if !p.Works {
					a.warn("%s cannot come in: revoked, expired or disabled.", clean(p.Subject))
				}
				if len(p.Permissions) == 0 {
					fmt.Fprintf(w, "%s holds nothing there, of what you manage.\n", clean(p.Subject))
					return
				}
				a.permissionTable(w, p.Permissions)
			})
		},
	}
	cmd.Flags().StringVar(&resource, "resource", "", "resource `ID`, such as a job's")
	return cmd
}

func (a *app) permissionTable(w io.Writer, all []client.Permission) {
	t := table{head: []string{"POLICY", "WHERE", "THROUGH"}}
	for _, p := range all {
		where, through := make([]string, len(p.Held)), make([]string, len(p.Held))
		for i, h := range p.Held {
			where[i], through[i] = scopeText(h.Scope), strings.TrimSpace(h.Role+" "+h.Assignment)
		}
		t.add(p.Policy, strings.Join(where, ", "), strings.Join(through, ", "))
	}
	t.write(w, a.tableTerm())
}
