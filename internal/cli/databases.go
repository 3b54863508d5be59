package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/job"
)

func (a *app) databasesCmd() *cobra.Command {
	return nounCmd("databases", "Make logical databases in a datastore", a.databasesList(), a.databasesCreate(), a.databasesDelete(), a.databasesPresets(), a.databasesRecommend())
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
				a.say("No databases.%s", ifTaken(j, " zopday databases create %s NAME makes one."))
			}
			return err
		})
}

// ifTaken is how to make one, of a datastore in which something can be made.
func ifTaken(j client.Job, how string) string {
	if !j.Owns() || j.Phase == job.PhaseTeardown || j.Status == job.Cancelled {
		return ""
	}
	return fmt.Sprintf(how, clean(j.Name))
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

// gone waits until something that is being deleted is no longer there.
func gone(ctx context.Context, a *app, what string, look func(context.Context) (job.LogicalStatus, *job.Error, error)) error {
	var problem *job.Error
	_, _, err := settle(ctx, a, func(ctx context.Context) (*client.Response, struct{}, job.LogicalStatus, error) {
		status, failed, err := look(ctx)
		problem = failed
		return nil, struct{}{}, status, err
	})
	var p *client.Problem
	switch {
	case errors.As(err, &p) && p.Status == http.StatusNotFound:
		a.say("The %s is gone.", clean(what))
		return nil
	case err != nil:
		return err
	}
	return &unmade{what: "the deletion of " + what, problem: problem}
}

func (a *app) databasesDelete() *cobra.Command {
	var confirm string
	var wait bool
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
			if wait {
				return gone(ctx, a, "database "+d.Name, func(ctx context.Context) (job.LogicalStatus, *job.Error, error) {
					_, d, err := c.Database(ctx, j.ID, d.ID)
					return d.Status, d.Error, err
				})
			}
			return a.print(resp, func(w io.Writer) { a.databaseTable(w, []job.LogicalDatabase{d}) })
		})
	waitFlag(cmd, &wait)
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
				if len(all) > 0 {
					fmt.Fprintf(w, "\nAll of them: %s\n", clean(all[0].Always))
				}
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
