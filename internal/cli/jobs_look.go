package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/job"
)

func (a *app) jobsWatch() *cobra.Command {
	var since int64
	cmd := a.jobCmd("watch", "Watch a job to its end; Ctrl-C detaches and the job goes on",
		"  zopday jobs watch shop-prod\n  zopday jobs watch shop-prod -o jsonl > shop.log",
		func(ctx context.Context, c *client.Client, j client.Job, _ *client.Response) error {
			if j.Status == job.Draft {
				return &unstarted{j}
			}
			f := &follow{app: a, api: c, id: j.ID, since: since, sink: a.sinkFor(true)}
			last, err := f.run(ctx)
			if err != nil {
				return err
			}
			expect := j.Phase
			if j.Cancelling || j.Status == job.Cancelled {
				expect = job.PhaseTeardown
			}
			if err := a.outcome(last, expect); err != nil {
				return err // the standard output has no result then
			}
			return a.watchResult(ctx, c, last)
		})
	cmd.Flags().Int64Var(&since, "since", 0, "only events after this `number`")
	return cmd
}

// watchResult prints the finished job for those formats whose stream it is not.
func (a *app) watchResult(ctx context.Context, c *client.Client, j client.Job) error {
	switch a.cfg.Output.Value {
	case "json", "yaml", "name":
		rctx, cancel := a.request(ctx)
		defer cancel()
		resp, _, err := c.GetJob(rctx, j.ID)
		if err != nil {
			return err
		}
		return a.print(resp, nil)
	case "jsonl":
		return nil
	}
	if j.Status == job.Completed && len(j.Outputs) > 0 && !a.cfg.Quiet.yes() && a.outTerm.tty {
		var b strings.Builder
		fmt.Fprintln(&b)
		a.showOutputs(&b, j.Outputs, "")
		return a.write([]byte(a.outTerm.text(b.String())))
	}
	return nil
}

func (a *app) jobsEvents() *cobra.Command {
	var f struct {
		since  int64
		follow bool
		step   string
	}
	cmd := a.jobCmd("events", "List what happened to a job", "  zopday jobs events shop-prod\n  zopday jobs events shop-prod --step stepCreateVMs -o jsonl",
		func(ctx context.Context, c *client.Client, j client.Job, _ *client.Response) error {
			if f.follow {
				fo := &follow{app: a, api: c, id: j.ID, since: f.since, sink: a.streamSink()}
				_, err := fo.run(ctx)
				return err
			}
			rctx, cancel := a.request(ctx)
			defer cancel()
			resp, events, err := c.Events(rctx, j.ID, f.since)
			if err != nil {
				return err
			}
			if f.step != "" {
				kept := []job.Event{}
				for _, ev := range events {
					if ev.Step == f.step {
						kept = append(kept, ev)
					}
				}
				events = kept
				if resp, err = client.Wrap(events); err != nil {
					return err
				}
			}
			return a.print(resp, func(w io.Writer) { a.eventTable(w, events) })
		})
	cmd.Flags().Int64Var(&f.since, "since", 0, "only events after this `number`")
	cmd.Flags().BoolVar(&f.follow, "follow", false, "go on until the job ends")
	cmd.Flags().StringVar(&f.step, "step", "", "only those of this `step`, such as stepCreateVMs")
	return cmd
}

// streamSink is one event a line on the standard output, on a terminal too.
func (a *app) streamSink() sink {
	if a.cfg.Output.Value == "jsonl" || a.cfg.Output.Value == "json" {
		return &jsonSink{w: a.stdout}
	}
	return &lineSink{w: a.stdout, term: a.outTerm, now: a.now}
}

func (a *app) eventTable(w io.Writer, events []job.Event) {
	for _, ev := range events {
		fmt.Fprintf(w, "%6d  %s  %s\n", ev.Seq, ev.Time.UTC().Format(time.RFC3339), clean(eventText(ev)))
	}
}

func (a *app) jobsExplain() *cobra.Command {
	return a.jobCmd("explain", "Tell in one answer why a job is where it is, and what to do", "  zopday jobs explain shop-prod",
		func(ctx context.Context, c *client.Client, j client.Job, _ *client.Response) error {
			rctx, cancel := a.request(ctx)
			defer cancel()
			resp, x, err := c.Explain(rctx, j.ID)
			if err != nil {
				return err
			}
			return a.print(resp, func(w io.Writer) { a.showExplained(w, &j, x) })
		})
}

// explainObjects bounds the list of objects in an explanation.
const explainObjects = 50

func (a *app) showExplained(w io.Writer, j *client.Job, x client.Explanation) {
	t, now := a.outTerm, a.now()
	j.Verdict = x.Verdict
	sign, word, p := t.badge(j)
	fmt.Fprintf(w, "%s  %s  step %s\n%s\n", t.paint(bold, clean(j.Name)), t.paint(p, sign+" "+word), counts(j), clean(x.Verdict.Sentence))
	switch {
	case x.Error != nil:
		fmt.Fprintln(w)
		fields(w, "What", x.Error.Message, "Code", x.Error.Code, "Step", x.Error.Step, "Field", x.Error.Field, "Do", asCommands.Replace(x.Error.Hint), "Request", x.Error.Request)
	case x.Step != nil:
		fmt.Fprintln(w)
		fields(w, "Step", x.Step.Name, "For", elapsed(x.Step, now), "Waiting", x.Step.WaitingFor, "Retries", retries(x.Step.Attempts))
	}
	if x.Worker != nil {
		held := x.Worker.ID
		if x.Worker.LastSign != nil {
			held += ", last heard " + ago(*x.Worker.LastSign, now)
		}
		if x.Worker.TakenFrom != "" {
			held += "; taken over from " + x.Worker.TakenFrom + ", which fell silent"
		}
		fields(w, "Worker", held)
	}
	section := func(title string, n int) {
		if n > 0 {
			fmt.Fprintf(w, "\n%s\n", t.paint(bold, title))
		}
	}
	section("Attempts", len(x.Attempts))
	a.attemptTable(w, x.Attempts)
	section("Warnings", len(x.Warnings))
	for _, s := range x.Warnings {
		fmt.Fprintf(w, "  %s\n", clean(s))
	}
	section(fmt.Sprintf("Last %s", plurals(len(x.Events), "event", "events")), len(x.Events))
	a.eventTable(w, x.Events)
	section(fmt.Sprintf("Exists now (%d)", len(x.Objects)), len(x.Objects))
	a.objectTable(w, x.Objects[:min(len(x.Objects), explainObjects)])
	if more := len(x.Objects) - explainObjects; more > 0 {
		fmt.Fprintf(w, "and %d more: %s\n", more, a.again("jobs", "objects", j.ID))
	}
	section("Next", len(x.Next))
	next := table{}
	for _, n := range x.Next {
		next.add("  "+n.What, n.Command)
	}
	next.write(w, terminal{size: t.size})
}

func (a *app) attemptTable(w io.Writer, rows []job.StepState) {
	if len(rows) == 0 {
		return
	}
	t := table{head: []string{"  RUN", "STEP", "DIRECTION", "STATUS", "TRIES", "BEGAN", "TOOK", "NOTE"}}
	for _, r := range rows {
		began := ""
		if r.StartedAt != nil {
			began = r.StartedAt.UTC().Format(time.RFC3339)
		}
		t.add(fmt.Sprintf("  %d", r.Run), r.Name, string(r.Direction), string(r.Status), fmt.Sprint(r.Attempts), began, elapsed(&client.Step{StepState: r}, a.now()), cmp.Or(r.Note, r.WaitingFor))
	}
	t.write(w, a.tableTerm())
}

func retries(tries int) string {
	if tries <= 1 {
		return "" // the first try is no retry
	}
	return fmt.Sprint(tries - 1)
}

func (a *app) jobsReceipt() *cobra.Command {
	cmd := a.jobCmd("receipt", "Show what a job made, what was removed, what is left and why", "  zopday jobs receipt shop-prod\n  zopday jobs receipt shop-prod -o json",
		func(ctx context.Context, c *client.Client, j client.Job, _ *client.Response) error {
			return a.showReceiptOf(ctx, c, j)
		})
	return cmd
}

func (a *app) showReceiptOf(ctx context.Context, c *client.Client, j client.Job) error {
	rctx, cancel := a.request(ctx)
	defer cancel()
	resp, r, err := c.Receipt(rctx, j.ID)
	if err != nil {
		return err
	}
	return a.print(resp, func(w io.Writer) { a.showReceipt(w, r) })
}

// showReceipt is a receipt for a person.
func (a *app) showReceipt(w io.Writer, r client.Receipt) {
	t := a.outTerm
	left := "not known: the cloud could not be asked"
	if r.Scan != nil && len(r.Scan.NotScanned) > 0 {
		left = "not known: the cloud was not asked for everything that the job had"
	}
	if r.Left != nil {
		left = fmt.Sprint(*r.Left)
	}
	fmt.Fprintf(w, "%s  %s\n", t.paint(bold, clean(r.Name)), clean(r.Summary))
	fields(w, "Made", fmt.Sprint(r.Created), "Removed", fmt.Sprint(r.Removed), "Kept", fmt.Sprint(r.Kept), "Left", left,
		"Asked by", r.RequestedBy, "Asked at", stampPtr(r.RequestedAt), "Finished", stampPtr(r.FinishedAt), "Audit", r.AuditID)
	if r.Scan != nil {
		of := ""
		if len(r.Scan.NotScanned) > 0 {
			of = " of what could be listed"
		}
		fields(w, "Scan by owner mark", fmt.Sprintf("%d found%s at %s; %s", r.Scan.Found, of, r.Scan.At.UTC().Format(time.TimeOnly), r.Scan.Note))
		for _, u := range r.Scan.NotScanned {
			fields(w, "Not scanned", u.Kind+"; the credentials lack "+u.Permission)
		}
	}
	if len(r.Objects) > 0 {
		fmt.Fprintln(w)
		tab := table{head: []string{"", "KIND", "NAME", "ID", "MADE", "SEEN GONE", "NOTE"}}
		for _, o := range r.Objects {
			tab.add(t.glyph(objectSigns[o.State])+" "+objectWords[o.State], o.Kind, o.Name, o.ID, clock(o.CreatedAt), clock(o.RemovedAt), o.Reason)
		}
		tab.write(w, a.tableTerm())
	}
	for _, l := range r.Leftovers {
		fmt.Fprintf(w, "%s left  %s  %s  %s\n", t.glyph(glyphFailed), clean(l.Kind), clean(l.Name), clean(l.ID))
	}
	if len(r.LeftAlone) > 0 {
		fmt.Fprintln(w, "\nLeft alone")
		for _, l := range r.LeftAlone {
			fmt.Fprintf(w, "  %s  (%s)\n", clean(l.What), clean(l.Why))
		}
	}
}

// What became of an object, as a receipt says it.
var (
	objectWords = map[job.ObjectStatus]string{
		job.ObjectCreated: "exists", job.ObjectIntended: "may exist", job.ObjectKept: "kept", job.ObjectRemoved: "removed", job.ObjectAbsent: "never made",
	}
	objectSigns = map[job.ObjectStatus]glyph{
		job.ObjectCreated: glyphRunning, job.ObjectIntended: {"?", "?"}, job.ObjectKept: glyphDown, job.ObjectRemoved: glyphDone, job.ObjectAbsent: glyphGone,
	}
)

func clock(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.TimeOnly)
}

func stampPtr(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
