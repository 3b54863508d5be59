package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/job"
)

func (a *app) jobsCreate() *cobra.Command {
	var f struct {
		files, sets                   []string
		draft, dryRun, detailed, wait bool
		key                           string
	}
	cmd := &cobra.Command{
		Use: "create -f FILE", Short: "Make a job of a job file", Args: args(0, 0, ""),
		Long: withExamples("Make a job of a job file, in YAML or JSON; it is queued at once",
			"  zopday jobs create -f shop.yaml --wait\n  zopday jobs create -f shop.yaml --set name=shop-test --set pool.count=1 --dry-run"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			docs, err := a.readDocuments(f.files, f.sets)
			if err != nil {
				return err
			}
			switch {
			case f.dryRun && (f.wait || f.draft):
				return usagef("--dry-run makes nothing, so it goes with neither --wait nor --draft")
			case f.draft && f.wait:
				return usagef("a draft never ends by itself; leave out --wait or --draft")
			case f.key != "" && len(docs) > 1:
				return usagef("--idempotency-key stands for one job, and there are %d", len(docs))
			case f.detailed && !f.dryRun:
				return usagef("--detailed-exit-code goes with --dry-run")
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			if f.dryRun {
				return a.planDocuments(cmd.Context(), c, docs, f.detailed)
			}
			return a.createAll(cmd.Context(), c, docs, f.draft, f.wait, f.key)
		},
	}
	fl := cmd.Flags()
	fl.StringArrayVarP(&f.files, "file", "f", nil, "job `file`, - for the standard input; repeatable")
	fl.StringArrayVar(&f.sets, "set", nil, "`key=value` to put into every job, such as pool.count=3 or name=shop-test; repeatable")
	fl.BoolVar(&f.draft, "draft", false, "leave the job a draft")
	fl.BoolVar(&f.dryRun, "dry-run", false, "show the plan and make nothing")
	fl.BoolVar(&f.detailed, "detailed-exit-code", false, "with --dry-run: exit with 10 when there is something to make")
	fl.BoolVar(&f.wait, "wait", false, "watch the job to its end")
	fl.StringVar(&f.key, "idempotency-key", "", "the same `key` with the same job makes no second one")
	return cmd
}

// createAll makes the jobs one after another, and watches them afterwards.
func (a *app) createAll(ctx context.Context, c *client.Client, docs []document, draft, wait bool, key string) error {
	var made []client.Job
	var answers []*client.Response
	for _, d := range docs {
		body, err := d.json(map[string]any{"submit": !draft})
		if err != nil {
			return err
		}
		k := key
		if k == "" {
			k = client.NewKey()
		}
		rctx, cancel := a.request(ctx)
		resp, j, err := c.CreateJob(rctx, body, k)
		cancel()
		if err != nil {
			if len(docs) > 1 {
				a.warn("%s was not made; %d before it were.", d.from, len(made))
			}
			return err
		}
		made, answers = append(made, j), append(answers, resp)
		if !wait {
			if err := a.printMade(resp, &j); err != nil {
				return err
			}
			continue
		}
		a.say("%s is %s: %s", j.Name, j.Status, j.ID)
	}
	if !wait {
		return nil
	}
	for i, j := range made {
		if err := a.waitAndPrint(ctx, c, j, 0, answers[i]); err != nil {
			return err
		}
	}
	return nil
}

// printMade is the result of a create: the ID, and on the side what to type next.
func (a *app) printMade(resp *client.Response, j *client.Job) error {
	if err := a.print(resp, func(w io.Writer) {
		if a.cfg.Quiet.yes() {
			fmt.Fprintln(w, j.ID)
			return
		}
		fmt.Fprintf(w, "%s  %s  %s\n", j.ID, clean(j.Name), j.Status)
	}); err != nil {
		return err
	}
	if j.Status == job.Draft {
		a.say("Submit  %s", a.again("jobs", "submit", j.ID))
	} else {
		a.say("Watch   %s", a.again("jobs", "watch", j.ID))
	}
	return nil
}

// waitAndPrint follows a job and prints what became of it: the API's body of
// the finished job for programs, its outputs for a person.
func (a *app) waitAndPrint(ctx context.Context, c *client.Client, j client.Job, since int64, _ *client.Response) error {
	last, err := a.wait(ctx, c, j, since, false)
	if err != nil {
		return err
	}
	if a.cfg.Output.Value == "jsonl" {
		return nil // the stream's last line is the result
	}
	rctx, cancel := a.request(ctx)
	defer cancel()
	resp, last, err := c.GetJob(rctx, last.ID)
	if err != nil {
		return err
	}
	return a.print(resp, func(w io.Writer) {
		_, word, _ := a.outTerm.badge(&last)
		fmt.Fprintf(w, "%s  %s  %s\n", last.ID, clean(last.Name), word)
		a.showOutputs(w, last.Outputs, "")
	})
}

// lastSeq is the number of the newest event of a job, so that a watch of what
// was just asked for does not tell the whole history first.
func (a *app) lastSeq(ctx context.Context, c *client.Client, id string) int64 {
	rctx, cancel := a.request(ctx)
	defer cancel()
	_, events, err := c.Events(rctx, id, 0)
	if err != nil || len(events) == 0 {
		return 0
	}
	return events[len(events)-1].Seq
}

func (a *app) jobsSubmit() *cobra.Command {
	var wait bool
	cmd := a.jobCmd("submit", "Queue a draft", "  zopday jobs submit shop-prod --wait",
		func(ctx context.Context, c *client.Client, j client.Job, _ *client.Response) error {
			return a.act(ctx, c, j, wait, func(ctx context.Context) (*client.Response, client.Job, error) {
				return c.PatchJob(ctx, j.ID, map[string]string{"status": "queued"}, "")
			})
		})
	waitFlag(cmd, &wait)
	return cmd
}

func waitFlag(cmd *cobra.Command, wait *bool) {
	cmd.Flags().BoolVar(wait, "wait", false, "watch the job to its end")
}

// act asks for something on a job, and follows it or says how to.
func (a *app) act(ctx context.Context, c *client.Client, j client.Job, wait bool, do func(context.Context) (*client.Response, client.Job, error)) error {
	var since int64
	if wait {
		since = a.lastSeq(ctx, c, j.ID)
	}
	rctx, cancel := a.request(ctx)
	resp, now, err := do(rctx)
	cancel()
	if err != nil {
		return err
	}
	for _, w := range resp.Warnings() {
		a.warn("%s", clean(w))
	}
	if !wait {
		return a.printMade(resp, &now)
	}
	return a.waitAndPrint(ctx, c, now, since, resp)
}

func (a *app) jobsRetry() *cobra.Command {
	var wait bool
	cmd := a.jobCmd("retry", "Let a failed job go on from the first step that is not done", "  zopday jobs retry shop-prod --wait",
		func(ctx context.Context, c *client.Client, j client.Job, _ *client.Response) error {
			return a.act(ctx, c, j, wait, func(ctx context.Context) (*client.Response, client.Job, error) {
				return c.RetryJob(ctx, j.ID)
			})
		})
	waitFlag(cmd, &wait)
	return cmd
}

func (a *app) jobsUpdate() *cobra.Command {
	var f struct {
		files, sets []string
		ifMatch     string
	}
	cmd := a.jobCmd("update", "Change what a job asks for: a draft, a failed job, or a health check",
		"  zopday jobs update shop-prod --set pool.count=3\n  zopday jobs update shop-prod --set loadBalancer.healthCheck.path=/ready",
		func(ctx context.Context, c *client.Client, j client.Job, _ *client.Response) error {
			patch := document{body: map[string]any{}}
			if len(f.files) == 0 && len(f.sets) == 0 {
				return usagef("nothing to change is named; give --set key=value or -f FILE")
			}
			if len(f.files) > 0 {
				docs, err := a.readDocuments(f.files, nil)
				if err != nil {
					return err
				}
				if len(docs) != 1 {
					return usagef("one change at a time, and there are %d documents", len(docs))
				}
				patch = docs[0]
			}
			for _, s := range f.sets {
				if err := patch.assign(s, inSpec, true); err != nil {
					return err
				}
			}
			rctx, cancel := a.request(ctx)
			defer cancel()
			resp, now, err := c.PatchJob(rctx, j.ID, patch.body, f.ifMatch)
			if err != nil {
				return err
			}
			return a.print(resp, func(w io.Writer) {
				fmt.Fprintf(w, "%s  %s  changed, revision %d\n", now.ID, clean(now.Name), now.SpecRevision)
			})
		})
	cmd.Flags().StringArrayVarP(&f.files, "file", "f", nil, "`file` with the changed fields; - for the standard input")
	cmd.Flags().StringArrayVar(&f.sets, "set", nil, "`key=value`, such as pool.count=3; null takes a field away; repeatable")
	cmd.Flags().StringVar(&f.ifMatch, "if-match", "", "only if the job still has this `ETag`")
	return cmd
}

func (a *app) jobsVerify() *cobra.Command {
	return a.jobCmd("verify", "Compare a finished job with the cloud; nothing is changed",
		"  zopday jobs verify shop-prod          exits with 10 when there is drift",
		func(ctx context.Context, c *client.Client, j client.Job, _ *client.Response) error {
			rctx, cancel := a.slowRequest(ctx)
			defer cancel()
			resp, v, err := c.Verify(rctx, j.ID)
			if err != nil {
				return err
			}
			if err := a.print(resp, func(w io.Writer) { a.showDrift(w, &j, v) }); err != nil {
				return err
			}
			if len(v.Drift) > 0 {
				return quietExit(exitChanges)
			}
			return nil
		})
}

func (a *app) showDrift(w io.Writer, j *client.Job, v client.Verification) {
	if len(v.Drift) == 0 {
		fmt.Fprintf(w, "%s is as asked.\n", clean(j.Name))
		return
	}
	fmt.Fprintf(w, "%s is not as asked: %s.\n\n", clean(j.Name), plurals(len(v.Drift), "difference", "differences"))
	t := table{head: []string{"OBJECT", "ID", "ATTRIBUTE", "WANTED", "SEEN"}}
	for _, d := range v.Drift {
		t.add(d.Kind+" "+d.Key, d.ID, d.Attr, d.Wanted, d.Seen)
	}
	t.write(w, a.tableTerm())
}
