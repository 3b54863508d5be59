package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/job"
)

func (a *app) componentsCmd() *cobra.Command {
	return nounCmd("components", "Install what platform teams want in a cluster",
		a.componentsList(), a.componentsGet(), a.componentsInstall(), a.componentsUpgrade(), a.componentsRollback(), a.componentsDiff())
}

func (a *app) componentsList() *cobra.Command {
	var search, category, provider, version string
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the catalogue", Args: args(0, 0, ""),
		Long: withExamples("List the components that can be installed", "  zopday components list --search ingress\n  zopday components list --provider aws --kube-version 1.36"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			q := url.Values{}
			for k, v := range map[string]string{"search": search, "category": category, "provider": provider, "kubeVersion": version} {
				if v != "" {
					q.Set(k, v)
				}
			}
			ctx, cancel := a.request(cmd.Context())
			defer cancel()
			resp, all, err := c.Components(ctx, q)
			if err != nil {
				return err
			}
			err = a.print(resp, func(w io.Writer) { a.componentTable(w, all) })
			if err == nil && len(all) == 0 && !a.machine() {
				a.say("No component matches.")
			}
			return err
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&search, "search", "", "`words` of name, title, description or category")
	fl.StringVar(&category, "category", "", "one category")
	fl.StringVar(&provider, "provider", "", "components for this cloud")
	fl.StringVar(&version, "kube-version", "", "components that support this `version`, such as 1.36")
	completeFixed(cmd, "provider", "aws", "gcp", "azure")
	return cmd
}

func (a *app) componentTable(w io.Writer, all []client.Component) {
	if len(all) == 0 {
		return
	}
	t := table{head: []string{"NAME", "CATEGORY", "CHART", "APP", "LICENCE", "KUBERNETES", "TITLE"}}
	for _, c := range all {
		title := c.Title
		if c.AdoptOnly {
			title += " (not installed any more)"
		}
		t.add(c.Name, c.Category, c.Version, c.AppVersion, c.License, c.KubeVersion, title)
	}
	t.write(w, a.tableTerm())
}

func (a *app) componentsGet() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show one component; -o json has the schema of its values", Args: args(1, 1, "a component's name"),
		ValidArgsFunction: a.completeAt(a.componentNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			ctx, cancel := a.slowRequest(cmd.Context()) // the schema is in the chart, which may have to be fetched
			defer cancel()
			resp, e, err := c.GetComponent(ctx, args[0])
			if err != nil {
				return err
			}
			return a.print(resp, func(w io.Writer) {
				fmt.Fprintf(w, "%s  %s\n", clean(e.Name), clean(e.Title))
				if e.Description != "" {
					fmt.Fprintln(w, clean(e.Description))
				}
				fmt.Fprintln(w)
				clouds := "all"
				if len(e.Providers) > 0 {
					var names []string
					for _, p := range e.Providers {
						names = append(names, string(p))
					}
					clouds = strings.Join(names, ", ")
				}
				for _, r := range [][2]string{
					{"Chart", strings.TrimSuffix(e.Chart.Repository, "/") + "/" + e.Chart.Name + " " + e.Version}, {"App", e.AppVersion}, {"Licence", e.License}, {"Source", e.Source}, {"Kubernetes", e.KubeVersion}, {"Namespace", e.Namespace},
					{"Clouds", clouds}, {"After", strings.Join(e.DependsOn, ", ")}, {"Needs", strings.Join(e.Needs, "; ")}, {"Not installed", e.Reason},
				} {
					if r[1] != "" {
						fmt.Fprintf(w, "%-13s %s\n", r[0], clean(r[1]))
					}
				}
			})
		},
	}
}

// valuesFlags are the Helm values of a command.
type valuesFlags struct{ files, sets []string }

func (f *valuesFlags) bind(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&f.files, "values", "f", nil, "`file` with Helm values, - for the standard input; of several, a later one wins")
	cmd.Flags().StringArrayVar(&f.sets, "set", nil, "`key=value` of the Helm values, such as replicas=2; null takes one away; repeatable")
}

// given reports whether there are any.
func (f *valuesFlags) given() bool { return len(f.files)+len(f.sets) > 0 }

// values reads them, as Helm does: a file over the one before it, and what is set
// over all of them. They are nil if there are none.
func (a *app) values(f valuesFlags) (map[string]any, error) {
	if !f.given() {
		return nil, nil
	}
	all := document{body: map[string]any{}}
	if len(f.files) > 0 {
		docs, err := a.readDocuments(f.files, nil)
		if err != nil {
			return nil, err
		}
		for _, d := range docs {
			all.body = overlay(all.body, d.body)
		}
	}
	for _, s := range f.sets {
		if err := all.assign(s, nil, true); err != nil {
			return nil, err
		}
	}
	return all.body, nil
}

// overlay lays one object over another: objects are merged, all else is replaced.
func overlay(under, over map[string]any) map[string]any {
	for k, v := range over {
		a, both := under[k].(map[string]any)
		if b, ok := v.(map[string]any); both && ok {
			v = overlay(a, b)
		}
		under[k] = v
	}
	return under
}

func (a *app) componentsInstall() *cobra.Command {
	var f struct {
		valuesFlags
		version, namespace, release, name, key string
		wait                                   bool
	}
	cmd := &cobra.Command{
		Use: "install SPACE COMPONENT", Short: "Install a component onto a space", Args: args(2, 2, "a space and a component"),
		ValidArgsFunction: a.completeAt(a.spaceNames, a.componentNames),
		Long: withExamples("Install a component onto a space, as a job; zopday jobs delete uninstalls it",
			"  zopday components install platform cert-manager --wait\n  zopday components install platform traefik --set deployment.replicas=2 --wait"),
		RunE: func(cmd *cobra.Command, args []string) error {
			values, err := a.values(f.valuesFlags)
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			request := map[string]any{"spaceId": args[0], "component": args[1]}
			for k, v := range map[string]string{"version": f.version, "namespace": f.namespace, "release": f.release, "name": f.name} {
				if v != "" {
					request[k] = v
				}
			}
			if values != nil {
				request["values"] = values
			}
			key := f.key
			if key == "" {
				key = client.NewKey()
			}
			rctx, cancel := a.request(cmd.Context())
			resp, j, err := c.InstallComponent(rctx, request, key)
			cancel()
			if err != nil {
				return err
			}
			if !f.wait {
				return a.printMade(resp, &j)
			}
			return a.waitAndPrint(cmd.Context(), c, j, 0, resp)
		},
	}
	f.bind(cmd)
	waitFlag(cmd, &f.wait)
	fl := cmd.Flags()
	fl.StringVar(&f.version, "version", "", "chart `version`; the catalogue's pinned one if left out")
	fl.StringVar(&f.namespace, "namespace", "", "`namespace`; the catalogue's if left out")
	fl.StringVar(&f.release, "release", "", "`name` of the Helm release; the component's if left out")
	fl.StringVar(&f.name, "name", "", "`name` of the job; made of release and space if left out")
	fl.StringVar(&f.key, "idempotency-key", "", "the same `key` with the same request makes no second job")
	return cmd
}

// upgrade is what an upgrade brings.
func (a *app) upgrade(version string, f valuesFlags) (map[string]any, error) {
	component := map[string]any{}
	if version != "" {
		component["version"] = version
	}
	values, err := a.values(f)
	if err != nil {
		return nil, err
	}
	if values != nil {
		component["values"] = values
	}
	return map[string]any{"spec": map[string]any{"component": component}}, nil
}

func (a *app) componentsUpgrade() *cobra.Command {
	var f struct {
		valuesFlags
		version string
		wait    bool
	}
	cmd := a.jobCmd("upgrade", "Upgrade a component to another version or other values",
		"  zopday components upgrade traefik-on-platform --version 41.4.0 --wait\n  zopday components upgrade traefik-on-platform --set deployment.replicas=3",
		func(ctx context.Context, c *client.Client, j client.Job, _ *client.Response) error {
			if f.version == "" && !f.given() {
				return usagef("nothing to change is named; give --version, --set key=value or -f FILE")
			}
			config, err := a.upgrade(f.version, f.valuesFlags)
			if err != nil {
				return err
			}
			return a.act(ctx, c, j, f.wait, func(ctx context.Context) (*client.Response, client.Job, error) {
				return c.PatchJob(ctx, j.ID, map[string]any{"componentOp": job.UpgradeComponent, "config": config}, "")
			})
		})
	f.bind(cmd)
	waitFlag(cmd, &f.wait)
	cmd.Flags().StringVar(&f.version, "version", "", "chart `version` to go to")
	return cmd
}

func (a *app) componentsRollback() *cobra.Command {
	var revision int
	var wait bool
	var given func() bool
	cmd := a.jobCmd("rollback", "Roll a component back to an earlier revision",
		"  zopday components rollback traefik-on-platform --wait\n  zopday components rollback traefik-on-platform --revision 2",
		func(ctx context.Context, c *client.Client, j client.Job, _ *client.Response) error {
			patch := map[string]any{"componentOp": job.RollBackComponent}
			if given() {
				patch["revision"] = revision
			}
			return a.act(ctx, c, j, wait, func(ctx context.Context) (*client.Response, client.Job, error) {
				return c.PatchJob(ctx, j.ID, patch, "")
			})
		})
	waitFlag(cmd, &wait)
	cmd.Flags().IntVar(&revision, "revision", 0, "the `revision` to go back to; the newest that differs if left out")
	given = func() bool { return cmd.Flags().Changed("revision") }
	return cmd
}

func (a *app) componentsDiff() *cobra.Command {
	var f struct {
		valuesFlags
		version string
	}
	cmd := a.jobCmd("diff", "Show what an upgrade would change in the cluster", "  zopday components diff traefik-on-platform --version 41.4.0",
		func(ctx context.Context, c *client.Client, j client.Job, _ *client.Response) error {
			config, err := a.upgrade(f.version, f.valuesFlags)
			if err != nil {
				return err
			}
			if f.version == "" && !f.given() {
				config = map[string]any{} // with the spec as it is
			}
			rctx, cancel := a.slowRequest(ctx)
			defer cancel()
			resp, changes, err := c.DiffComponent(rctx, j.ID, config)
			if err != nil {
				return err
			}
			err = a.print(resp, func(w io.Writer) {
				for _, ch := range changes {
					name := ch.Name
					if ch.Namespace != "" {
						name = ch.Namespace + "/" + ch.Name
					}
					fmt.Fprintf(w, "%s %s %s\n", clean(ch.Action), clean(ch.Kind), clean(name))
					for l := range strings.Lines(ch.Diff) {
						fmt.Fprintf(w, "  %s\n", clean(strings.TrimRight(l, "\n")))
					}
				}
			})
			if err == nil && len(changes) == 0 && !a.machine() {
				a.say("Nothing would change.")
			}
			return err
		})
	f.bind(cmd)
	cmd.Flags().StringVar(&f.version, "version", "", "chart `version` to compare with")
	return cmd
}
