package cli

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/job"
)

func (a *app) databasesCmd() *cobra.Command {
	return nounCmd("databases", "Make logical databases in a datastore", a.databasesList(), a.databasesCreate(), a.databasesDelete(), a.databasesPresets(), a.databasesRecommend())
}

func (a *app) connectionsCmd() *cobra.Command {
	return nounCmd("connections", "Let services use a datastore or cache",
		a.connectionsList(), a.connectionsCreate(), a.connectionsRotate(), a.connectionsReveal(), a.connectionsDelete())
}

func (a *app) databasesList() *cobra.Command {
	return a.jobCmd("list", "List the logical databases of a datastore", "  zopday databases list shop-db",
		func(ctx context.Context, c *client.Client, j client.Job, _ *client.Response) error {
			rctx, cancel := a.request(ctx)
			defer cancel()
			resp, all, err := c.Databases(rctx, j.ID)
			if err != nil {
				return err
			}
			err = a.print(resp, func(w io.Writer) { a.databaseTable(w, all) })
			if err == nil && len(all) == 0 && !a.machine() {
				a.say("No databases yet. zopday databases create %s NAME makes one.", clean(j.Name))
			}
			return err
		})
}

func (a *app) databaseTable(w io.Writer, all []job.LogicalDatabase) {
	if len(all) == 0 {
		return
	}
	now := a.now()
	t := table{head: []string{"NAME", "OWNER", "STATUS", "AGE", "ID", "WHY"}}
	for _, d := range all {
		t.add(d.Name, d.OwnerRole, string(d.Status), age(d.CreatedAt, now), d.ID, why(d.Error))
	}
	t.write(w, a.tableTerm())
}

func why(e *job.Error) string {
	if e == nil {
		return ""
	}
	return e.Message
}

// jobAnd is a command about a job and one thing of it.
func (a *app) jobAnd(use, what, short, example string, run func(ctx context.Context, c *client.Client, j client.Job, thing string) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: withExamples(short, example), Args: args(2, 2, "a job and "+what), ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			rctx, cancel := a.request(cmd.Context())
			_, j, err := a.resolve(rctx, c, args[0])
			cancel()
			if err != nil {
				return err
			}
			return run(cmd.Context(), c, j, args[1])
		},
	}
}

func (a *app) databasesCreate() *cobra.Command {
	var wait bool
	cmd := a.jobAnd("create JOB NAME", "a name", "Make a logical database with an owner of its own", "  zopday databases create shop-db orders --wait",
		func(ctx context.Context, c *client.Client, j client.Job, name string) error {
			rctx, cancel := a.slowRequest(ctx)
			defer cancel()
			resp, d, err := c.CreateDatabase(rctx, j.ID, name)
			if err != nil {
				return err
			}
			if wait {
				resp, d, err = settle(ctx, a, func(ctx context.Context) (*client.Response, job.LogicalDatabase, job.LogicalStatus, error) {
					resp, d, err := c.Database(ctx, j.ID, d.ID)
					return resp, d, d.Status, err
				})
				if err == nil && d.Status == job.LogicalFailed {
					err = &unmade{what: "database " + d.Name, problem: d.Error}
				}
				if err != nil {
					return err
				}
			}
			return a.print(resp, func(w io.Writer) { a.databaseTable(w, []job.LogicalDatabase{d}) })
		})
	waitFlag(cmd, &wait)
	return cmd
}

// unmade is something that was asked for and could not be made.
type unmade struct {
	what    string
	problem *job.Error
}

func (e *unmade) Error() string { return e.what + " failed: " + why(e.problem) }
func (e *unmade) exitCode() int { return exitJobFailed }
func (e *unmade) layout(*app) failure {
	f := failure{what: e.Error()}
	if e.problem != nil {
		f.rows = append(f.rows, row{"Fix", e.problem.Hint})
	}
	return f
}

// settle looks until what was asked for is made, failed or gone.
func settle[T any](ctx context.Context, a *app, look func(context.Context) (*client.Response, T, job.LogicalStatus, error)) (*client.Response, T, error) {
	for {
		rctx, cancel := a.request(ctx)
		resp, v, status, err := look(rctx)
		cancel()
		if err != nil || !status.Due() {
			return resp, v, err
		}
		select {
		case <-ctx.Done():
			return resp, v, errInterrupted
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func (a *app) databasesDelete() *cobra.Command {
	var confirm string
	cmd := a.jobAnd("delete JOB NAME", "a database", "Drop a logical database and everything in it", "  zopday databases delete shop-db orders --confirm orders",
		func(ctx context.Context, c *client.Client, j client.Job, name string) error {
			rctx, cancel := a.request(ctx)
			_, d, err := c.Database(rctx, j.ID, name)
			cancel()
			if err != nil {
				return err
			}
			effect := []string{"everything in it would be gone; only a backup of the whole datastore has it then"}
			if err := a.confirm(ctx, consent{verb: "drop the database " + d.Name + " of " + j.Name, level: 3, name: d.Name, confirm: confirm, effect: effect}); err != nil {
				return err
			}
			rctx, cancel = a.request(ctx)
			defer cancel()
			resp, d, err := c.DeleteDatabase(rctx, j.ID, d.ID, d.Name)
			if err != nil {
				return err
			}
			return a.print(resp, func(w io.Writer) { a.databaseTable(w, []job.LogicalDatabase{d}) })
		})
	cmd.Flags().StringVar(&confirm, "confirm", "", "the database's `name`, instead of typing it")
	return cmd
}

func (a *app) databasesPresets() *cobra.Command {
	var cache bool
	cmd := &cobra.Command{
		Use: "presets", Short: "Show what the presets of datastores and caches mean", Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			t := job.Datastore
			if cache {
				t = job.Cache
			}
			ctx, cancel := a.request(cmd.Context())
			defer cancel()
			resp, all, err := c.Presets(ctx, t)
			if err != nil {
				return err
			}
			return a.print(resp, func(w io.Writer) {
				tab := table{head: []string{"PRESET", "VCPUS", "MEMORY", "DISK", "REPLICAS", "STANDBY", "BACKUPS", "WHAT"}}
				for _, p := range all {
					tab.add(p.Name, count(p.VCPUs, ""), count(p.MemoryGiB, " GiB"), count(p.StorageGiB, " GiB"), count(p.Replicas, ""), strconv.FormatBool(p.HighAvailability), count(p.BackupRetentionDays, " days"), p.What)
				}
				tab.write(w, a.tableTerm())
			})
		},
	}
	cmd.Flags().BoolVar(&cache, "cache", false, "those of caches")
	return cmd
}

func (a *app) databasesRecommend() *cobra.Command {
	return a.jobCmd("recommend", "Say which size a datastore or cache should have; nothing is applied", "  zopday databases recommend shop-db",
		func(ctx context.Context, c *client.Client, j client.Job, _ *client.Response) error {
			rctx, cancel := a.slowRequest(ctx)
			defer cancel()
			resp, all, err := c.Recommendations(rctx, j.ID)
			if err != nil {
				return err
			}
			return a.print(resp, func(w io.Writer) {
				for _, r := range all {
					fmt.Fprintf(w, "%s: %s %s", clean(r.What), clean(r.Advice), clean(r.From))
					if r.To != r.From {
						fmt.Fprintf(w, " to %s", clean(r.To))
					}
					fmt.Fprintf(w, "\n  %s\n", clean(r.Reason))
					if r.Command != "" {
						fmt.Fprintf(w, "  %s\n", clean(r.Command))
					}
				}
			})
		})
}

func count(n int, unit string) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n) + unit
}

func (a *app) connectionsList() *cobra.Command {
	return a.jobCmd("list", "List who may use a datastore or cache", "  zopday connections list shop-db",
		func(ctx context.Context, c *client.Client, j client.Job, _ *client.Response) error {
			rctx, cancel := a.request(ctx)
			defer cancel()
			resp, all, err := c.Connections(rctx, j.ID)
			if err != nil {
				return err
			}
			err = a.print(resp, func(w io.Writer) { a.connectionTable(w, all) })
			if err == nil && len(all) == 0 && !a.machine() {
				a.say("No connections yet. zopday connections create %s SERVICE makes one.", clean(j.Name))
			}
			return err
		})
}

func (a *app) connectionTable(w io.Writer, all []job.Connection) {
	if len(all) == 0 {
		return
	}
	now := a.now()
	t := table{head: []string{"SERVICE", "ACCESS", "ROLE", "DATABASE", "SECRET", "STATUS", "REVEALED", "AGE", "ID", "WHY"}}
	for _, c := range all {
		secret := ""
		if c.SpaceID != "" {
			secret = c.Namespace + "/" + c.SecretName
		}
		revealed := "no"
		if c.RevealedAt != nil {
			revealed = "by " + c.RevealedBy
		}
		t.add(c.Service, string(c.Access), c.Role, c.DatabaseID, secret, string(c.Status), revealed, age(c.CreatedAt, now), c.ID, why(c.Error))
	}
	t.write(w, a.tableTerm())
}

func (a *app) connectionsCreate() *cobra.Command {
	var f struct {
		database, access, space, namespace, secret, variable string
		wait                                                 bool
	}
	cmd := a.jobAnd("create JOB SERVICE", "a service", "Let a service use a datastore or cache",
		"  zopday connections create shop-db checkout --database orders --wait\n  zopday connections create shop-db checkout --database orders --space platform --namespace shop --variable DATABASE_URL",
		func(ctx context.Context, c *client.Client, j client.Job, service string) error {
			request := map[string]string{"service": service}
			for k, v := range map[string]string{"databaseId": f.database, "access": f.access, "spaceId": f.space, "namespace": f.namespace, "secretName": f.secret, "variable": f.variable} {
				if v != "" {
					request[k] = v
				}
			}
			rctx, cancel := a.slowRequest(ctx)
			defer cancel()
			resp, made, err := c.CreateConnection(rctx, j.ID, request)
			if err != nil {
				return err
			}
			return a.connectionDone(ctx, c, j, resp, made, f.wait)
		})
	waitFlag(cmd, &f.wait)
	fl := cmd.Flags()
	fl.StringVar(&f.database, "database", "", "the logical `database`, by its name or ID")
	fl.StringVar(&f.access, "access", "", "read_write (default), read_only or owner")
	fl.StringVar(&f.space, "space", "", "a `space` in which a Secret is kept")
	fl.StringVar(&f.namespace, "namespace", "", "`namespace` of the Secret; default if left out")
	fl.StringVar(&f.secret, "secret-name", "", "`name` of the Secret; made of service and database if left out")
	fl.StringVar(&f.variable, "variable", "", "a `key` of the Secret that holds the whole URL, such as DATABASE_URL")
	completeFixed(cmd, "access", "read_write", "read_only", "owner")
	return cmd
}

// connectionDone waits for a connection, if that is wanted, and shows it.
func (a *app) connectionDone(ctx context.Context, c *client.Client, j client.Job, resp *client.Response, made job.Connection, wait bool) error {
	if wait {
		var err error
		resp, made, err = settle(ctx, a, func(ctx context.Context) (*client.Response, job.Connection, job.LogicalStatus, error) {
			resp, got, err := c.Connection(ctx, j.ID, made.ID)
			return resp, got, got.Status, err
		})
		if err == nil && made.Status == job.LogicalFailed {
			err = &unmade{what: "connection of " + made.Service, problem: made.Error}
		}
		if err != nil {
			return err
		}
	}
	return a.print(resp, func(w io.Writer) { a.connectionTable(w, []job.Connection{made}) })
}

func (a *app) connectionsRotate() *cobra.Command {
	var wait bool
	cmd := a.jobAnd("rotate JOB CONNECTION", "a connection", "Give a connection another password", "  zopday connections rotate shop-db checkout --wait",
		func(ctx context.Context, c *client.Client, j client.Job, connection string) error {
			rctx, cancel := a.slowRequest(ctx)
			defer cancel()
			resp, made, err := c.RotateConnection(rctx, j.ID, connection)
			if err != nil {
				return err
			}
			return a.connectionDone(ctx, c, j, resp, made, wait)
		})
	waitFlag(cmd, &wait)
	return cmd
}

func (a *app) connectionsReveal() *cobra.Command {
	return a.jobAnd("reveal JOB CONNECTION", "a connection", "Show the secret behind a connection, once", "  zopday connections reveal shop-db checkout",
		func(ctx context.Context, c *client.Client, j client.Job, connection string) error {
			rctx, cancel := a.request(ctx)
			defer cancel()
			resp, v, err := c.Reveal(rctx, j.ID, connection)
			if err != nil {
				return err
			}
			err = a.print(resp, func(w io.Writer) {
				for _, k := range slices.Sorted(maps.Keys(v.Credentials)) {
					fmt.Fprintf(w, "%s=%s\n", k, v.Credentials[k])
				}
			})
			if err == nil && !a.machine() {
				a.say("It is not shown again; zopday connections rotate makes a new one.")
			}
			return err
		})
}

func (a *app) connectionsDelete() *cobra.Command {
	var yes bool
	cmd := a.jobAnd("delete JOB CONNECTION", "a connection", "End a connection: its role is dropped, its secret removed", "  zopday connections delete shop-db checkout --yes",
		func(ctx context.Context, c *client.Client, j client.Job, connection string) error {
			rctx, cancel := a.request(ctx)
			_, got, err := c.Connection(rctx, j.ID, connection)
			cancel()
			if err != nil {
				return err
			}
			effect := []string{"the role " + got.Role + " is dropped, so " + got.Service + " can no longer use it"}
			if got.SpaceID != "" {
				effect = append(effect, "the Secret "+got.Namespace+"/"+got.SecretName+" is removed from its space")
			}
			if err := a.confirm(ctx, consent{verb: "end the connection of " + got.Service + " to " + j.Name, level: 2, yes: yes, effect: effect}); err != nil {
				return err
			}
			rctx, cancel = a.request(ctx)
			defer cancel()
			resp, got, err := c.DeleteConnection(rctx, j.ID, got.ID)
			if err != nil {
				return err
			}
			return a.print(resp, func(w io.Writer) { a.connectionTable(w, []job.Connection{got}) })
		})
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
