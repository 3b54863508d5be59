package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"slices"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/job"
)

type endFlags struct {
	wait, yes bool
	confirm   string
}

func (f *endFlags) bind(cmd *cobra.Command) {
	waitFlag(cmd, &f.wait)
	cmd.Flags().BoolVar(&f.yes, "yes", false, "do not ask where nothing that was made is lost")
	cmd.Flags().StringVar(&f.confirm, "confirm", "", "the job's `name`, as consent to remove what it made")
}

func (a *app) jobsCancel() *cobra.Command {
	var f endFlags
	cmd := a.jobCmd("cancel", "Stop a job that has not finished, and remove what it made so far",
		"  zopday jobs cancel shop-prod --wait\n  zopday jobs cancel shop-prod --confirm shop-prod",
		func(ctx context.Context, c *client.Client, j client.Job, _ *client.Response) error {
			if j.Status == job.Completed {
				return &conflict{what: j.Name + " is finished; there is nothing to cancel", hint: "to tear it down: " + a.again("jobs", "delete", j.ID)}
			}
			return a.end(ctx, c, j, f, "cancel "+j.Name+" and remove what it made")
		})
	f.bind(cmd)
	return cmd
}

func (a *app) jobsDelete() *cobra.Command {
	var f endFlags
	cmd := a.jobCmd("delete", "Tear down what a job made; an adopted resource is only disconnected",
		"  zopday jobs delete shop-prod --dry-run\n  zopday jobs delete shop-prod --confirm shop-prod --wait", nil)
	var dryRun bool
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := a.connect()
		if err != nil {
			return err
		}
		ctx := cmd.Context()
		rctx, cancel := a.request(ctx)
		resp, j, err := a.resolve(rctx, c, args[0])
		cancel()
		if err != nil {
			return err
		}
		verb := "tear down " + j.Name
		if j.Mode == job.ModeAdopt {
			verb = "disconnect " + j.Name
		}
		if dryRun {
			list, _, err := a.whatGoes(ctx, c, &j)
			if err != nil {
				return err
			}
			return a.print(resp, func(w io.Writer) {
				for _, l := range list {
					fmt.Fprintln(w, clean(l))
				}
			})
		}
		return a.end(ctx, c, j, f, verb)
	}
	f.bind(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "show what would be removed and what left alone")
	cmd.Aliases = []string{"teardown"}
	return cmd
}

// conflict is something that the job's state does not take.
type conflict struct{ what, hint string }

func (e *conflict) Error() string { return e.what }
func (e *conflict) exitCode() int { return exitConflict }
func (e *conflict) layout(*app) failure {
	return failure{what: e.what, code: "wrong-state", rows: []row{{"Do", e.hint}}}
}

// end shows what goes, gets consent, and has it removed.
func (a *app) end(ctx context.Context, c *client.Client, j client.Job, f endFlags, verb string) error {
	if j.Status == job.Cancelled {
		return &conflict{what: j.Name + " is over already", hint: a.again("jobs", "receipt", j.ID) + " tells what became of it"}
	}
	list, level, err := a.whatGoes(ctx, c, &j)
	if err != nil {
		return err
	}
	if err := a.confirm(ctx, consent{verb: verb, effect: list, level: level, name: j.Name, yes: f.yes || f.confirm == j.Name, confirm: f.confirm}); err != nil {
		return err
	}
	var since int64
	if f.wait {
		since = a.lastSeq(ctx, c, j.ID)
	}
	confirm := ""
	if level == 3 {
		confirm = j.Name // consent was given for what is there
	}
	rctx, cancel := a.request(ctx)
	resp, now, err := c.DeleteJob(rctx, j.ID, confirm)
	cancel()
	if err != nil {
		return err
	}
	if !f.wait || now.Status == job.Cancelled {
		if err := a.print(resp, func(w io.Writer) {
			_, word, _ := a.outTerm.badge(&now)
			fmt.Fprintf(w, "%s  %s  %s\n", now.ID, clean(now.Name), word)
		}); err != nil {
			return err
		}
		if now.Status != job.Cancelled {
			a.say("Watch    %s", a.again("jobs", "watch", now.ID))
			a.say("Receipt  %s", a.again("jobs", "receipt", now.ID))
		}
		return nil
	}
	// Expected: a teardown, whatever phase the answer still shows.
	expect := now
	expect.Phase = job.PhaseTeardown
	last, err := a.wait(ctx, c, expect, since, false)
	if err != nil {
		return err
	}
	if a.cfg.Output.Value == "jsonl" {
		return nil
	}
	return a.showReceiptOf(ctx, c, last)
}

// whatGoes lists what a DELETE of the job removes and leaves alone, as of now,
// and how grave that is.
func (a *app) whatGoes(ctx context.Context, c *client.Client, j *client.Job) (list []string, level int, err error) {
	if j.Status == job.Draft {
		return []string{"the draft is thrown away; nothing has been made"}, 1, nil
	}
	if j.Mode == job.ModeAdopt {
		for _, vm := range j.Config.InfraConfig.VMs {
			list = append(list, "left alone   "+cmp.Or(vm.Name, vm.InstanceID)+"  "+vm.InstanceID)
		}
		return append([]string{"forgotten    the pointer to what was adopted; it runs on untouched"}, list...), 2, nil
	}
	rctx, cancel := a.request(ctx)
	defer cancel()
	_, x, err := c.Explain(rctx, j.ID)
	if err != nil {
		return nil, 0, err
	}
	for _, o := range slices.Backward(x.Objects) {
		switch o.State {
		case job.ObjectCreated:
			list = append(list, fmt.Sprintf("deleted      %s  %s  %s", o.Kind, o.Name, o.ID))
		case job.ObjectIntended:
			list = append(list, fmt.Sprintf("looked for   %s  %s  (its create may have happened)", o.Kind, o.Name))
		case job.ObjectKept:
			list = append(list, fmt.Sprintf("left alone   %s  %s  %s  (%s)", o.Kind, o.Name, o.ID, cmp.Or(o.Reason, "kept")))
		}
	}
	if list, err = a.dataGoes(rctx, c, j, list); err != nil {
		return nil, 0, err
	}
	along, err := a.goesAlong(ctx, c, j)
	if err != nil {
		return nil, 0, err
	}
	list = append(along, list...)
	if e, eerr := j.Existing(); eerr == nil && e != nil {
		list = append(list, "left alone   the network "+e.NetworkID+" and its subnets, which you named")
	}
	switch {
	case len(list) == 0 && j.Status == job.Running:
		return []string{"the job is stopped at a safe point, and what it made by then is removed"}, 2, nil
	case len(list) == 0:
		return []string{"the job is cancelled; nothing has been made"}, 2, nil
	}
	return list, 3, nil
}

// dataGoes puts what becomes of the data in a datastore before the list of objects.
func (a *app) dataGoes(ctx context.Context, c *client.Client, j *client.Job, list []string) ([]string, error) {
	if len(list) == 0 || j.ResourceType != job.Datastore && j.ResourceType != job.Cache {
		return list, nil
	}
	spec, err := j.DatastoreSpec()
	if err != nil {
		return nil, err
	}
	var out []string
	switch name := j.Config.InfraConfig.Datastore.FinalSnapshot; {
	case spec.SkipFinalSnapshot:
		out = append(out, "lost         all data: the spec says skipFinalSnapshot, so nothing of it is kept")
	case name != "":
		out = append(out, "kept         a final snapshot or backup, "+name)
	case j.ResourceType == job.Cache:
		out = append(out, "lost         all data: the cloud takes no final snapshot of this cache")
	}
	if spec.Protected() {
		out = append(out, "lifted       the deletion protection that the job set")
	}
	if j.ResourceType == job.Datastore {
		_, all, err := c.Databases(ctx, j.ID)
		if err != nil {
			return nil, err
		}
		for _, d := range all {
			out = append(out, "goes with it the database "+d.Name)
		}
	}
	_, all, err := c.Connections(ctx, j.ID)
	if err != nil {
		return nil, err
	}
	for _, x := range all {
		out = append(out, "stops working the connection of "+x.Service)
	}
	return append(out, list...), nil
}

// goesAlong lists the component jobs on a cluster that goes: they are deleted with it.
func (a *app) goesAlong(ctx context.Context, c *client.Client, j *client.Job) (list []string, err error) {
	at := j.Config.InfraConfig.Cluster.Name
	if j.ResourceType != job.Cluster || at == "" {
		return nil, nil
	}
	q := url.Values{"resourceType": {string(job.Component)}, "provider": {string(j.Provider)}, "limit": {"200"}}
	for {
		rctx, cancel := a.request(ctx)
		_, page, next, err := c.ListJobs(rctx, q)
		cancel()
		if err != nil {
			return nil, err
		}
		for _, o := range page {
			if o.Region == j.Region && o.Config.InfraConfig.Cluster.Name == at && o.Status != job.Cancelled {
				list = append(list, fmt.Sprintf("deleted      job  %s  %s  (on this cluster)", o.Name, o.ID))
			}
		}
		if next == "" {
			return list, nil
		}
		q.Set("cursor", next)
	}
}
