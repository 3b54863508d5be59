package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/job"
)

// A sink shows how a job goes on: on a terminal, in a pipe, or to a program.
type sink interface {
	event(ev job.Event)
	state(j *client.Job)
	tick()
	lost(err error)
	back()
	end(j *client.Job) // nil: the watch ended before the job did
}

// A gaveUp is the end of the waiting, not of the job.
type gaveUp struct {
	job   client.Job
	after time.Duration
}

func (e *gaveUp) Error() string {
	return fmt.Sprintf("gave up waiting for %s after %s; the job goes on", e.job.Name, e.after)
}
func (e *gaveUp) exitCode() int { return exitGaveUp }

func (e *gaveUp) layout(a *app) failure {
	f := failure{what: e.Error(), code: "gave-up-waiting"}
	f.rows = append(f.rows, row{"Now", e.job.Verdict.Sentence},
		row{"Do", "go on watching: " + a.again("jobs", "watch", e.job.ID)})
	return f
}

// A detached watch was interrupted by Ctrl-C; the job goes on.
type detached struct{ job client.Job }

func (e *detached) Error() string { return "interrupted; the job goes on" }
func (e *detached) exitCode() int { return exitInterrupted }

func (e *detached) layout(a *app) failure {
	f := failure{what: "interrupted; the job goes on.", rows: []row{{"Watch", a.again("jobs", "watch", e.job.ID)}}}
	if e.job.Phase != job.PhaseTeardown {
		f.rows = append(f.rows, row{"Cancel", a.again("jobs", "cancel", e.job.ID)})
	}
	return f
}

// outage is how long a server may be away before a watch gives up on it.
const outage = 5 * time.Minute

// A follow is one watch of one job.
type follow struct {
	app    *app
	api    *client.Client
	id     string
	since  int64 // events up to this one are known already
	sink   sink
	events chan job.Event
	line   chan error    // the line dropped, or nil: it stands again
	stream chan error    // the stream's end
	job    client.Job    // as last read
	gone   time.Time     // since when the server does not answer; zero: it does
	cut    bool          // the stream dropped and does not stand again yet
	away   bool          // the sink was told that the line dropped
	pause  time.Duration // between two reads of the job
}

// run watches until the job has come to rest.
func (f *follow) run(ctx context.Context) (client.Job, error) {
	a := f.app
	if d := a.timeout(); d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	if f.pause == 0 {
		f.pause = 2 * time.Second
	}
	f.events, f.line, f.stream = make(chan job.Event, 64), make(chan error, 4), make(chan error, 1)
	sctx, stop := context.WithCancel(ctx)
	defer stop()
	go f.listen(sctx)
	if err := f.read(ctx); err != nil {
		return f.job, f.verdict(ctx, err)
	}
	err := f.loop(ctx)
	if err != nil {
		f.sink.end(nil)
		return f.job, f.verdict(ctx, err)
	}
	f.sink.end(&f.job)
	return f.job, nil
}

func (f *follow) listen(ctx context.Context) {
	send := func(err error) {
		select {
		case f.line <- err:
		case <-ctx.Done():
		}
	}
	f.stream <- f.api.Stream(ctx, f.id, f.since, client.StreamHandler{
		Event: func(ev job.Event) {
			select {
			case f.events <- ev:
			case <-ctx.Done():
			}
		},
		Lost: send,
		Back: func() { send(nil) },
	})
}

// loop shows what comes in. Events say that something changed; the job itself
// is read soon after, and from time to time without any.
func (f *follow) loop(ctx context.Context) error {
	frame := time.NewTicker(100 * time.Millisecond)
	defer frame.Stop()
	reread := time.NewTimer(f.pause)
	defer reread.Stop()
	var quiet <-chan time.Time // set once the job has ended: when to stop waiting for its last events
	if ended(f.job.Status) {
		quiet = time.After(time.Second)
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case ev := <-f.events:
			f.sink.event(ev)
			if quiet == nil {
				reread.Reset(50 * time.Millisecond)
			}
		case err := <-f.line:
			f.cut = err != nil
			f.tellLine(err)
		case err := <-f.stream:
			var refused *client.Problem
			if errors.As(err, &refused) {
				return err
			}
			f.drain()
			if ended(f.job.Status) {
				return nil
			}
			f.stream = nil // the server ended the stream early; reading goes on
			reread.Reset(50 * time.Millisecond)
		case <-quiet:
			f.drain()
			return nil
		case <-reread.C:
			if err := f.read(ctx); err != nil {
				return err
			}
			reread.Reset(f.pause)
			if ended(f.job.Status) && quiet == nil {
				if f.stream == nil {
					return nil
				}
				quiet = time.After(time.Second)
			}
		case <-frame.C:
			f.sink.tick()
		}
	}
}

func (f *follow) drain() {
	for {
		select {
		case ev := <-f.events:
			f.sink.event(ev)
		default:
			return
		}
	}
}

// read reads the job. A server that is away for a while is waited for, once
// it has answered.
func (f *follow) read(ctx context.Context) error {
	rctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	_, j, err := f.api.GetJob(rctx, f.id)
	var away *client.Unreachable
	var prob *client.Problem
	if errors.As(err, &away) || errors.As(err, &prob) && prob.Status >= 500 {
		if f.job.ID == "" || ctx.Err() != nil {
			return err
		}
		if f.gone.IsZero() {
			f.gone = time.Now()
			f.tellLine(err)
		}
		if time.Since(f.gone) > outage {
			return err
		}
		return nil
	}
	if err != nil {
		return err
	}
	f.gone = time.Time{}
	f.tellLine(nil)
	f.job = j
	f.sink.state(&f.job)
	return nil
}

// tellLine tells the sink that the line dropped, or stands again, once: stream
// and reads notice it separately.
func (f *follow) tellLine(err error) {
	down := f.cut || !f.gone.IsZero()
	switch {
	case down && !f.away && err != nil:
		f.away = true
		f.sink.lost(err)
	case !down && f.away:
		f.away = false
		f.sink.back()
	}
}

// verdict tells Ctrl-C from a time-out from everything else.
func (f *follow) verdict(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded) && f.job.ID != "":
		return &gaveUp{f.job, f.app.timeout()}
	case errors.Is(ctx.Err(), context.Canceled) && f.job.ID != "":
		return &detached{f.job}
	}
	return err
}

// sinkFor picks how a job's progress is shown: on w, which is the standard
// output where the progress is the result, and the standard error elsewhere.
func (a *app) sinkFor(result bool) sink {
	w, t := a.stderr, a.errTerm
	if result {
		w, t = a.stdout, a.outTerm
	}
	switch {
	case a.cfg.Output.Value == "jsonl":
		return &jsonSink{w: a.stdout}
	case a.cfg.Output.Value == "json", a.cfg.Output.Value == "yaml", a.cfg.Output.Value == "name":
		// The result alone goes to the standard output.
		w, t = a.stderr, a.errTerm
		if a.cfg.Quiet.yes() {
			return silent{}
		}
	case a.cfg.Quiet.yes():
		return silent{}
	}
	if t.tty {
		return &liveSink{screen: screen{w: w, term: t}, now: a.now, ctrlC: "Ctrl-C detaches"}
	}
	return &lineSink{w: w, term: t, now: a.now}
}

// wait follows a job to its end and turns the end into the command's outcome.
func (a *app) wait(ctx context.Context, c *client.Client, j client.Job, since int64, result bool) (client.Job, error) {
	f := &follow{app: a, api: c, id: j.ID, since: since, sink: a.sinkFor(result)}
	last, err := f.run(ctx)
	if err != nil {
		return last, err
	}
	return last, a.outcome(last, j.Phase)
}

// outcome is how a job's end ends the command. A teardown that was asked for
// ends cancelled; a job that was waited for and ends so was cancelled by
// somebody.
func (a *app) outcome(j client.Job, expected job.Phase) error {
	switch {
	case j.Status == job.Failed:
		return &jobFailed{j}
	case j.Status == job.Cancelled && expected != job.PhaseTeardown:
		return &cancelledElsewhere{j}
	}
	return nil
}

// A cancelledElsewhere job was cancelled while it was waited for.
type cancelledElsewhere struct{ job client.Job }

func (e *cancelledElsewhere) Error() string {
	return fmt.Sprintf("%s was cancelled by somebody while it was waited for", e.job.Name)
}
func (e *cancelledElsewhere) exitCode() int { return exitCancelled }

func (e *cancelledElsewhere) layout(a *app) failure {
	return failure{what: e.Error(), code: "job-cancelled", rows: []row{
		{"Now", e.job.Verdict.Sentence}, {"Do", a.again("audit", "list", "--resource", e.job.ID) + " tells by whom"},
	}}
}
