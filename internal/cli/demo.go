package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/job"
)

// demoToken is the token of a demo's own server, which nobody else can reach
// in time: it is drawn anew for each.
func demoToken() string { return "demo-" + client.NewKey() }

func (a *app) demoCmd() *cobra.Command {
	var f struct {
		files, sets  []string
		all          bool
		dir, latency string
		reach        string
	}
	var so SimOptions
	cmd := &cobra.Command{
		Use: "demo -f FILE | --all", Short: "Take a job file through its whole life on a simulated cloud", Args: args(0, 0, ""),
		Long: withExamples("Take a job file through its whole life in a fresh sandbox: create, the same again, teardown, receipt",
			"  zopday demo -f examples/vm-aws-fixed-lb.yaml\n  zopday demo -f examples/datastore-postgres-aws.yaml --set 'databases=[{name: orders}]' --reach direct\n  zopday demo --all") + `

CALLS counts what each stretch asked of the cloud, in all and changing something. The last
line is RECEIPT created=N removed=N kept=N left=0. The exit code is 0 only if
that holds: the same again made no mutating call and found nothing amiss, and the whole
simulated account is afterwards as it was before.

<name>.sandbox.yaml beside a job file says what has to exist beforehand.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if so.ReadLatency, so.WriteLatency, err = parseLatency(f.latency); err != nil {
				return err
			}
			if f.reach != "" && f.reach != "direct" {
				return usagef("--reach %s: use direct, or leave it out: the product then stands outside of every network", f.reach)
			}
			so.Inside = f.reach == "direct"
			if so.TimeScale <= 0 {
				return usagef("--time-scale is %v; use a number above 0", so.TimeScale)
			}
			files := f.files
			if f.all {
				if len(files) > 0 {
					return usagef("give -f FILE or --all, not both")
				}
				if files, err = exampleFiles(f.dir); err != nil {
					return err
				}
			}
			if len(files) == 0 {
				return &usageError{msg: "no job file is named", hint: "give one with -f FILE, or --all for every example"}
			}
			return a.demos(cmd.Context(), files, f.sets, so)
		},
	}
	cmd.Flags().StringArrayVarP(&f.files, "file", "f", nil, "job `file`; repeatable")
	cmd.Flags().StringArrayVar(&f.sets, "set", nil, "`key=value` to put into every job; repeatable")
	cmd.Flags().BoolVar(&f.all, "all", false, "every job file in the directory of examples")
	cmd.Flags().StringVar(&f.dir, "dir", "examples", "the `directory` of --all")
	cmd.Flags().StringVar(&f.reach, "reach", "", "direct: the product stands in the network of what it makes, as logical databases at AWS and Azure need")
	simFlags(cmd, &so, &f.latency, 60)
	return cmd
}

// exampleFiles are the job files of a directory.
func exampleFiles(dir string) ([]string, error) {
	all, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, usagef("--dir %q: %v", dir, err)
	}
	all = slices.DeleteFunc(all, func(f string) bool {
		return strings.HasSuffix(f, ".sandbox.yaml") || strings.HasPrefix(filepath.Base(f), ".")
	})
	if len(all) == 0 {
		return nil, &usageError{msg: fmt.Sprintf("there is no job file in the directory %s", dir), hint: "name the directory of the examples with --dir"}
	}
	return all, nil
}

// demos runs each file in a sandbox of its own and adds the tallies up.
func (a *app) demos(ctx context.Context, files, sets []string, so SimOptions) error {
	docs, err := a.readDocuments(files, sets)
	if err != nil {
		return err
	}
	var sum tally
	var firstErr error
	for i, d := range docs {
		if i > 0 {
			a.tell("")
		}
		t, err := a.demo(ctx, d, so)
		if ctx.Err() != nil {
			return &sandboxGone{}
		}
		if err != nil {
			a.tell("\n%s", a.outTerm.paint(red, "What went wrong with "+d.from+":"))
			for l := range strings.Lines(err.Error()) {
				a.tell("  %s", clean(strings.TrimRight(l, "\n")))
			}
			if firstErr == nil {
				firstErr = err
			}
		}
		sum = tally{sum.created + t.created, sum.removed + t.removed, sum.kept + t.kept, sum.left + t.left}
		if len(docs) > 1 {
			verdict := "ok"
			if err != nil {
				verdict = "FAILED"
			}
			a.tell("%s: %s (%s)", d.from, verdict, strings.TrimPrefix(t.String(), "RECEIPT "))
		}
	}
	if len(docs) > 1 {
		a.tell("\n%d job files", len(docs))
	}
	a.tell("%s", sum)
	if firstErr != nil {
		return quietExit(max(exitCode(firstErr), exitUnexpected))
	}
	return nil
}

// sandboxGone is a demo that Ctrl-C ended.
type sandboxGone struct{}

func (*sandboxGone) Error() string { return "interrupted; the sandbox and everything in it is gone" }

func (*sandboxGone) exitCode() int { return exitInterrupted }

// tell is a line of the demo's own story: its result.
func (a *app) tell(format string, args ...any) {
	fmt.Fprintln(a.stdout, a.outTerm.text(fmt.Sprintf(format, args...)))
}

func (a *app) chapter(format string, args ...any) {
	a.tell("\n%s", a.outTerm.paint(bold, "== "+fmt.Sprintf(format, args...)))
}

// A stage is one demo's sandbox.
type stage struct {
	sim    Simulation
	client *client.Client
	before map[string]string // the whole account, before the job
	since  int               // the place in the books, before the job
	calls  []string          // what each stretch asked of the cloud
}

// asked notes what was asked of the cloud since a place in its books.
func (st *stage) asked(what string, since int) Traffic {
	tr := st.sim.Since(since)
	st.calls = append(st.calls, fmt.Sprintf("%s=%d/%d", what, tr.Reads+len(tr.Mutating), len(tr.Mutating)))
	return tr
}

func (a *app) demo(ctx context.Context, d document, so SimOptions) (t tally, err error) {
	st, closeStage, err := a.raise(ctx, &d, so)
	if err != nil {
		return t, err
	}
	defer func() {
		if cerr := closeStage(); cerr != nil && err == nil {
			err = cerr
		}
	}()
	for _, c := range st.sim.Clouds() {
		if c.Provider == d.text("provider") {
			a.tell("A simulated %s at %s and a provisioner at %s, both new.", c.Title, c.URL, st.client.Server())
		}
	}
	a.tell("Simulated time runs %g times as fast; nothing leaves this machine.", so.TimeScale)
	a.chapter("Create %s   %s", d.text("name"), d.from)
	j, createErr := a.demoCreate(ctx, st, d)
	if j.ID == "" {
		return t, createErr
	}
	var againErr error
	if createErr == nil {
		againErr = a.demoAgain(ctx, st, d, j)
	}
	if ctx.Err() != nil {
		return t, ctx.Err()
	}
	t, endErr := a.demoEnd(ctx, st, j)
	a.tell("CALLS %s   all/mutating", strings.Join(st.calls, " "))
	return t, errors.Join(createErr, againErr, endErr)
}

// raise starts a simulated cloud with what has to exist beforehand, and a
// server of its own beside it.
func (a *app) raise(ctx context.Context, d *document, so SimOptions) (*stage, func() error, error) {
	const anywhere = "127.0.0.1:0"
	so.Control, so.AWS, so.GCP, so.Azure, so.Charts = anywhere, anywhere, anywhere, anywhere, anywhere
	so.Kube = so.Kube || slices.Contains([]string{string(job.Cluster), string(job.Component)}, d.text("resourceType"))
	s, err := a.simulate(ctx, so)
	if err != nil {
		return nil, nil, err
	}
	closers := []func(context.Context) error{s.Close}
	closeAll := func() error {
		cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWithin)
		defer cancel()
		var errs []error
		for _, end := range slices.Backward(closers) {
			errs = append(errs, end(cctx))
		}
		return errors.Join(errs...)
	}
	fail := func(err error) (*stage, func() error, error) { return nil, nil, errors.Join(err, closeAll()) }
	var b beforehand
	if d.path != "" {
		if b, err = readBeforehand(sandboxFile(d.path)); err != nil {
			return fail(err)
		}
		if err := b.prepare(s, d); err != nil {
			return fail(err)
		}
	}
	dir, err := os.MkdirTemp("", "zopday-demo-")
	if err != nil {
		return fail(fmt.Errorf("demo: %w", err))
	}
	closers = append(closers, func(context.Context) error { return os.RemoveAll(dir) })
	token := demoToken()
	level, log := "error", io.Discard
	if a.cfg.Verbose.yes() {
		level, log = "debug", a.stderr
	}
	srv, err := a.start(ctx, ServeOptions{
		Listen: "127.0.0.1:0", DB: filepath.Join(dir, "zopday.db"), DeadAfter: 10 * time.Second, Workers: 4,
		TimeScale: so.TimeScale, LogLevel: level, Log: log, Token: token, Clouds: s.Clouds(), FeatureGates: b.FeatureGates,
		Reach: s.Reach(), ChartMirror: s.ChartMirror(),
	})
	if err != nil {
		return fail(err)
	}
	closers = append(closers, srv.Close)
	c, err := client.New(client.Options{Server: srv.URL(), Token: token, UserAgent: "zopday-demo/" + Version()})
	if err != nil {
		return fail(err)
	}
	if err := b.register(ctx, c); err != nil {
		return fail(err)
	}
	return &stage{sim: s, client: c, before: s.Snapshot(), since: s.Mark()}, closeAll, nil
}

func (a *app) demoCreate(ctx context.Context, st *stage, d document) (client.Job, error) {
	body, err := d.json(map[string]any{"submit": true})
	if err != nil {
		return client.Job{}, err
	}
	began := time.Now()
	_, j, err := st.client.CreateJob(ctx, body, client.NewKey())
	if err != nil {
		return client.Job{}, err
	}
	f := &follow{app: a, api: st.client, id: j.ID, sink: a.showSink()}
	last, err := f.run(ctx)
	if err == nil {
		err = a.outcome(last, job.PhaseProvision)
	}
	if err != nil {
		return j, err
	}
	tr := st.asked("create", st.since)
	a.tell("\nOutputs")
	var b strings.Builder
	a.showOutputs(&b, last.Outputs, "  ")
	a.tell("%s", strings.TrimRight(b.String(), "\n"))
	a.tell("\nMade in %s with %d calls to the cloud, %d of them changing something.", span(time.Since(began)), tr.Reads+len(tr.Mutating), len(tr.Mutating))
	return last, nil
}

// showSink is how a demo shows a job: that is its result.
func (a *app) showSink() sink {
	if a.outTerm.tty {
		return &liveSink{screen: screen{w: a.stdout, term: a.outTerm}, now: a.now, ctrlC: "Ctrl-C ends the demo"}
	}
	return &lineSink{w: a.stdout, term: a.outTerm, now: a.now}
}

// A notTheSame is a repetition that was none.
type notTheSame struct{ what string }

func (e *notTheSame) Error() string { return "the same again: " + e.what }

// demoAgain asks for the same again: the comparison with the cloud must find
// nothing, and the simulation's books no call that changes anything. A second
// job of the same name must be refused.
func (a *app) demoAgain(ctx context.Context, st *stage, d document, j client.Job) error {
	a.chapter("The same again")
	mark := st.sim.Mark()
	_, v, err := st.client.Verify(ctx, j.ID)
	if err != nil {
		return err
	}
	tr := st.asked("again", mark)
	var b strings.Builder
	a.showDrift(&b, &j, v)
	a.tell("%s", strings.TrimRight(b.String(), "\n"))
	a.tell("%d reads, %d calls that change something.", tr.Reads, len(tr.Mutating))
	body, err := d.json(map[string]any{"submit": true})
	if err != nil {
		return err
	}
	_, _, err = st.client.CreateJob(ctx, body, client.NewKey())
	var refused *client.Problem
	switch {
	case len(v.Drift) > 0:
		return &notTheSame{plurals(len(v.Drift), "attribute is", "attributes are") + " not as asked"}
	case len(tr.Mutating) > 0:
		return &notTheSame{"it made mutating calls: " + strings.Join(tr.Mutating, ", ")}
	case !errors.As(err, &refused) || refused.Status != 409:
		return &notTheSame{fmt.Sprintf("a second job of the same name was not refused (%v)", err)}
	}
	a.tell("A second job of that name is refused: %s", clean(refused.Error()))
	return nil
}

// demoEnd tears the job down and draws up the receipt.
func (a *app) demoEnd(ctx context.Context, st *stage, j client.Job) (tally, error) {
	var t tally
	a.chapter("Tear down %s", j.Name)
	began, since, mark := time.Now(), a.lastSeq(ctx, st.client, j.ID), st.sim.Mark()
	if _, _, err := st.client.DeleteJob(ctx, j.ID, j.Name); err != nil {
		return t, err
	}
	f := &follow{app: a, api: st.client, id: j.ID, since: since, sink: a.showSink()}
	last, err := f.run(ctx)
	if err == nil {
		err = a.outcome(last, job.PhaseTeardown)
	}
	if ctx.Err() != nil {
		return t, ctx.Err()
	}
	failed := err
	st.asked("teardown", mark)
	a.tell("\nRemoved in %s.", span(time.Since(began)))
	_, r, err := st.client.Receipt(ctx, j.ID)
	if err != nil {
		return t, errors.Join(failed, err)
	}
	a.chapter("Receipt")
	var b strings.Builder
	a.showReceipt(&b, r)
	a.tell("%s", strings.TrimRight(b.String(), "\n"))
	t, err = a.balance(st, j.ID, r)
	return t, errors.Join(failed, err)
}
