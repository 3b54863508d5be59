package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
)

// paths are the two ways in which a checkpoint is written: in a group, and by
// itself, as it is when it has audit entries.
var paths = map[string][]audit.Entry{
	"in a group": nil,
	"by itself":  {{Org: org, Actor: "system", Action: "provisioning-job:run", Outcome: audit.Allowed}},
}

func TestCheckpointRoundTrip(t *testing.T) {
	for name, entries := range paths {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conform(t, func(t *testing.T, e *env) {
				e.register(t, "a")
				e.insert(t)
				c := e.claim(t, "a")
				at := time.Date(2026, 11, 30, 10, 0, 0, 123000, time.UTC)
				j := c.Job
				j.Status, j.Phase, j.Run, j.VMOp = job.Running, job.PhaseUpdate, 2, job.DetachLB
				j.CurrentStep, j.WaitingFor, j.Attempts = "stepCreateVMs", "vm-1: booting", 3
				j.Error = &job.Error{Code: "x", Message: "y"}
				j.Config.InfraConfig.NetworkID = "vpc-1"
				j.Outputs = map[string]string{"a": "b"}
				steps := []job.StepState{
					{Run: 2, Name: "stepValidate", Direction: job.Up, Status: job.StepDone, Attempts: 1, Note: "n", StartedAt: &at, FinishedAt: &at},
					{Run: 2, Name: "stepCreateVMs", Direction: job.Up, Status: job.StepWaiting, WaitingFor: "vm-1: booting"},
				}
				objs := []job.Object{
					{JobID: j.ID, Cloud: job.AWS, Account: "1", Region: "r", Kind: "ec2:vpc", Key: "vpc", ID: "vpc-1", Name: "n", Step: "stepCreateNetwork", State: job.ObjectKept, Generation: 2, Reason: "because", CreatedAt: &at, IntentAt: &at},
				}
				e.checkpoint(t, c.Lease, ledger.Checkpoint{
					Job: j, Config: true, Outputs: true, Objects: objs, Audit: entries,
					// The later row of one step is the one that counts.
					Steps:  append([]job.StepState{{Run: 2, Name: "stepValidate", Direction: job.Up, Status: job.StepRunning}}, steps...),
					Events: []job.Event{{Type: "step.done", Step: "stepValidate", Run: 2, Attempt: 1, Message: "m"}, {Type: "note"}},
				})
				got := e.record(t, j.ID)
				if diff := cmp.Diff(j, got.Job, cmpopts.IgnoreFields(job.Job{}, "Version", "UpdatedAt")); diff != "" {
					t.Errorf("job (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(steps, got.Steps, cmpopts.SortSlices(func(a, b job.StepState) bool { return a.Name < b.Name })); diff != "" {
					t.Errorf("steps (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(objs, got.Objects); diff != "" {
					t.Errorf("objects (-want +got):\n%s", diff)
				}
				events := []job.Event{
					{Seq: 1, JobID: j.ID, Type: "step.done", Step: "stepValidate", Run: 2, Attempt: 1, Message: "m"},
					{Seq: 2, JobID: j.ID, Type: "note"},
				}
				if diff := cmp.Diff(events, got.Events, cmpopts.IgnoreFields(job.Event{}, "Time")); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				for _, ev := range got.Events {
					if !ev.Time.Equal(got.Job.UpdatedAt) {
						t.Errorf("event %d is of %s, the write of %s", ev.Seq, ev.Time, got.Job.UpdatedAt)
					}
				}
				// What did not change is left alone, even if the worker's copy differs.
				j.Config.InfraConfig.NetworkID, j.Outputs, j.Error = "vpc-2", nil, nil
				e.checkpoint(t, c.Lease, ledger.Checkpoint{Job: j, Audit: entries})
				after := e.get(t, j.ID)
				if after.Config.InfraConfig.NetworkID != "vpc-1" || after.Outputs["a"] != "b" || after.Error != nil {
					t.Errorf("after a checkpoint without documents: %q, %v, %v", after.Config.InfraConfig.NetworkID, after.Outputs, after.Error)
				}
				e.checkpoint(t, c.Lease, ledger.Checkpoint{Job: j, Outputs: true, Audit: entries})
				if after = e.get(t, j.ID); len(after.Outputs) != 0 {
					t.Errorf("outputs that were taken away: %v", after.Outputs)
				}
			})
		})
	}
}

// A run that ends gives the lease back, and the job is nobody's to claim.
func TestFinalCheckpointReleases(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		e.register(t, "a")
		e.insert(t)
		c := e.claim(t, "a")
		c.Job.Status = job.Failed
		e.checkpoint(t, c.Lease, ledger.Checkpoint{Job: c.Job, NextIn: time.Hour})
		s, err := e.Standing(e.ctx, org, c.Job.ID)
		must(t, err)
		if s.Leased || !s.EverClaimed || e.get(t, c.Job.ID).NextRunAt != nil || len(e.tryClaim(t, "a")) != 0 {
			t.Errorf("a failed job stands %+v", s)
		}
	})
}

// Deletion that is asked for while a worker finishes is not lost.
func TestDeletionIsNotLost(t *testing.T) {
	for name, entries := range paths {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conform(t, func(t *testing.T, e *env) {
				e.register(t, "a")
				e.insert(t)
				c := e.claim(t, "a")
				_, err := e.Change(e.ctx, nil, org, c.Job.ID, func(j *job.Job, s ledger.Standing) error { j.Cancelling = true; return nil })
				must(t, err)
				if !e.checkpoint(t, c.Lease, ledger.Checkpoint{Job: c.Job, Audit: entries}) {
					t.Error("a checkpoint did not say that deletion was asked for")
				}
				before := e.record(t, c.Job.ID)
				c.Job.Status = job.Completed
				last := ledger.Checkpoint{Job: c.Job, Events: []job.Event{{Type: "job.status"}}, Audit: entries}
				if _, err := e.Checkpoint(e.ctx, c.Lease, last); !errors.Is(err, ledger.ErrCancelRequested) {
					t.Fatalf("finish: %v, want ErrCancelRequested", err)
				}
				if diff := cmp.Diff(before, e.record(t, c.Job.ID)); diff != "" {
					t.Errorf("the refused finish wrote (-before +after):\n%s", diff)
				}
				c.Job.Status, c.Job.Phase, c.Job.Run = job.Queued, job.PhaseTeardown, 2
				last.ClearCancel, last.Release = true, true
				e.checkpoint(t, c.Lease, last)
				again := e.claim(t, "a")
				if again.Job.Cancelling || again.Job.Phase != job.PhaseTeardown {
					t.Errorf("after the yield: cancelling %t, phase %s", again.Job.Cancelling, again.Job.Phase)
				}
				// A teardown is what deletion asks for: it may end.
				_, err = e.Change(e.ctx, nil, org, c.Job.ID, func(j *job.Job, s ledger.Standing) error { j.Cancelling = true; return nil })
				must(t, err)
				again.Job.Status = job.Cancelled
				e.checkpoint(t, again.Lease, ledger.Checkpoint{Job: again.Job, Audit: entries})
			})
		})
	}
}

// People and a worker write one job at once: nothing of either is lost, and the
// history has no gaps.
func TestChangeAndCheckpointSideBySide(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		const rounds, people = 40, 3
		e.register(t, "a")
		e.insert(t)
		c := e.claim(t, "a")
		var wg sync.WaitGroup
		for p := range people {
			wg.Go(func() {
				for i := range rounds {
					err := e.d.InTx(e.ctx, func(ctx context.Context, tx db.Q) error {
						_, err := e.Change(ctx, tx, org, c.Job.ID, func(j *job.Job, s ledger.Standing) error {
							if j.Labels == nil {
								j.Labels = make(map[string]string)
							}
							j.Labels[fmt.Sprintf("p%d-%d", p, i)] = "x"
							j.SpecRevision++
							j.Config.Spec = fmt.Appendf(nil, `{"revision":%d}`, j.SpecRevision)
							return nil
						})
						if err != nil {
							return err
						}
						return e.AddEvents(ctx, tx, org, c.Job.ID, job.Event{Type: "note", Message: "a person"})
					})
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Go(func() {
			for i := range rounds {
				if _, err := e.Checkpoint(e.ctx, c.Lease, full(c.Job, i+1)); err != nil {
					t.Error(err)
					return
				}
			}
		})
		wg.Wait()
		r := e.record(t, c.Job.ID)
		if len(r.Job.Labels) != people*rounds || r.Job.SpecRevision != 1+people*rounds || string(r.Job.Config.Spec) != fmt.Sprintf(`{"revision":%d}`, 1+people*rounds) {
			t.Errorf("%d labels, revision %d, spec %s", len(r.Job.Labels), r.Job.SpecRevision, r.Job.Config.Spec)
		}
		if r.Job.Attempts != rounds || r.Job.Config.InfraConfig.NetworkID != fmt.Sprintf("vpc-%d", rounds) || len(r.Steps) != rounds {
			t.Errorf("attempts %d, network %s, %d steps", r.Job.Attempts, r.Job.Config.InfraConfig.NetworkID, len(r.Steps))
		}
		// Inserted, claimed, and every write of both.
		if want := int64(2 + people*rounds + rounds); r.Job.Version != want {
			t.Errorf("version %d, want %d", r.Job.Version, want)
		}
		gapless(t, r.Events, people*rounds+2*rounds)
	})
}

func gapless(t *testing.T, events []job.Event, want int) {
	t.Helper()
	if len(events) != want {
		t.Errorf("%d events, want %d", len(events), want)
	}
	for i, ev := range events {
		if ev.Seq != int64(i+1) {
			t.Fatalf("event %d has number %d", i+1, ev.Seq)
		}
	}
}

// Checkpoints of many jobs share transactions, and each is told its own outcome:
// one that breaks an index, one whose lease is lost, one whose deletion was asked
// for leave their neighbours alone.
func TestCheckpointsTogether(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		const jobs, rounds = 24, 6
		e.register(t, "a", "b")
		taken := e.insert(t)
		holder := e.claim(t, "a")
		e.checkpoint(t, holder.Lease, full(holder.Job, 1)) // has the object with its own ID
		var cs []ledger.Claimed
		for range jobs {
			e.insert(t)
			cs = append(cs, e.claim(t, "a"))
		}
		want := make([]error, jobs)
		for i, c := range cs {
			switch i % 8 {
			case 3:
				want[i] = &ledger.OwnedElsewhereError{}
			case 5:
				want[i] = ledger.ErrLeaseLost
				e.expire(t, c.Job.ID)
			case 6:
				want[i] = ledger.ErrCancelRequested
				_, err := e.Change(e.ctx, nil, org, c.Job.ID, func(j *job.Job, s ledger.Standing) error { j.Cancelling = true; return nil })
				must(t, err)
			}
		}
		var wg sync.WaitGroup
		for i, c := range cs {
			wg.Go(func() {
				for n := range rounds {
					cp := full(c.Job, n+1)
					switch i % 8 {
					case 3:
						cp.Objects[0].ID = taken.ID
					case 6:
						c.Job.Status = job.Completed
					case 7:
						cp.Audit = paths["by itself"]
					}
					_, err := e.Checkpoint(e.ctx, c.Lease, cp)
					var owned *ledger.OwnedElsewhereError
					switch {
					case i%8 == 3:
						if !errors.As(err, &owned) || owned.JobID != taken.ID || owned.Object.ID != taken.ID {
							t.Errorf("job %d: %v, want the object owned by %s", i, err, taken.ID)
						}
					case !errors.Is(err, want[i]):
						t.Errorf("job %d: %v, want %v", i, err, want[i])
					}
				}
			})
		}
		wg.Wait()
		for i, c := range cs {
			r := e.record(t, c.Job.ID)
			n := rounds
			if want[i] != nil {
				n = 0
			}
			if len(r.Steps) != n || r.Job.Attempts != n {
				t.Errorf("job %d: %d steps, attempts %d, want %d", i, len(r.Steps), r.Job.Attempts, n)
			}
			gapless(t, r.Events, 2*n)
		}
		if _, err := audit.Seal(e.ctx, e.d); err != nil {
			t.Fatal(err)
		}
		head, err := audit.Verify(e.ctx, e.d, org)
		if err != nil || head.Seq != jobs/8*rounds {
			t.Errorf("audit log: %d entries, %v", head.Seq, err)
		}
	})
}

// A caller that gives up before its checkpoint has left takes it back; one that
// gives up later still learns the outcome.
func TestCheckpointAndContext(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		e.register(t, "a")
		e.insert(t)
		c := e.claim(t, "a")
		ctx, cancel := context.WithCancelCause(e.ctx)
		why := errors.New("shutting down")
		cancel(why)
		if _, err := e.Checkpoint(ctx, c.Lease, full(c.Job, 1)); !errors.Is(err, why) {
			t.Errorf("with an ended context: %v", err)
		}
		if r := e.record(t, c.Job.ID); len(r.Events) != 0 {
			t.Errorf("with an ended context %d events were written", len(r.Events))
		}
		for i := range 40 {
			ctx, cancel := context.WithCancel(e.ctx)
			go func() {
				time.Sleep(time.Duration(i) * 50 * time.Microsecond)
				cancel()
			}()
			before := len(e.record(t, c.Job.ID).Events)
			_, err := e.Checkpoint(ctx, c.Lease, full(c.Job, i))
			wrote := len(e.record(t, c.Job.ID).Events) - before
			if err == nil && wrote != 2 || err != nil && (wrote != 0 || !errors.Is(err, context.Canceled)) {
				t.Errorf("round %d: %v, and %d events were written", i, err, wrote)
			}
			cancel()
		}
	})
}

// A row that somebody holds locked does not hold up the checkpoints of others.
func TestSlowCheckpointDoesNotBlockOthers(t *testing.T) {
	e := open(t, dialects[db.Postgres](t))
	e.register(t, "a")
	e.insert(t)
	e.insert(t)
	stuck, free := e.claim(t, "a"), e.claim(t, "a")
	locked, done := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		err := e.d.InTx(e.ctx, func(ctx context.Context, tx db.Q) error {
			_, err := e.Change(ctx, tx, org, stuck.Job.ID, func(j *job.Job, s ledger.Standing) error { j.Labels = map[string]string{"a": "b"}; return nil })
			close(locked)
			<-done
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-locked
	var stuckDone time.Time
	wg.Go(func() {
		if _, err := e.Checkpoint(e.ctx, stuck.Lease, full(stuck.Job, 1)); err != nil {
			t.Error(err)
		}
		stuckDone = time.Now()
	})
	time.Sleep(20 * time.Millisecond)
	for i := range 10 {
		e.checkpoint(t, free.Lease, full(free.Job, i))
	}
	freeDone := time.Now()
	close(done)
	wg.Wait()
	if freeDone.After(stuckDone) {
		t.Error("the other job's checkpoints waited for the locked row")
	}
}

func TestObserve(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		e.register(t, "a")
		e.insert(t)
		c := e.claim(t, "a")
		seen := job.InfraConfig{VMs: []job.VMInfo{{Name: "vm-1", State: job.VMStopped}}}
		if err := e.Observe(e.ctx, c.Job.ID, c.Job.Version, seen); !errors.Is(err, ledger.ErrConflict) {
			t.Errorf("of a job that runs: %v", err)
		}
		c.Job.Status = job.Completed
		e.checkpoint(t, c.Lease, ledger.Checkpoint{Job: c.Job})
		due, err := e.Observable(e.ctx, job.VM, time.Minute, 10)
		must(t, err)
		if len(due) != 1 || due[0].ID != c.Job.ID {
			t.Fatalf("observable: %v", due)
		}
		j := due[0]
		must(t, e.Observe(e.ctx, j.ID, j.Version, seen))
		if err := e.Observe(e.ctx, j.ID, j.Version, seen); !errors.Is(err, ledger.ErrConflict) {
			t.Errorf("with an old version: %v", err)
		}
		after := e.get(t, j.ID)
		if after.SpecRevision != j.SpecRevision || after.Version != j.Version+1 || !after.UpdatedAt.Equal(j.UpdatedAt) || after.Config.InfraConfig.VMs[0].State != job.VMStopped {
			t.Errorf("after: revision %d, version %d, updated %s, VMs %v", after.SpecRevision, after.Version, after.UpdatedAt, after.Config.InfraConfig.VMs)
		}
		if due, err = e.Observable(e.ctx, job.VM, time.Minute, 10); err != nil || len(due) != 0 {
			t.Errorf("observable at once again: %v, %v", due, err)
		}
		if due, err = e.Observable(e.ctx, job.VM, 0, 10); err != nil || len(due) != 1 {
			t.Errorf("observable when its time has come: %v, %v", due, err)
		}
	})
}

// Parts of a step that run side by side write one job at once: each is written,
// in the order in which they came.
func TestCheckpointsOfOneJob(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		const writers, rounds = 10, 8
		e.register(t, "a")
		e.insert(t)
		c := e.claim(t, "a")
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for i := range rounds {
					name := fmt.Sprintf("%d-%d", w, i)
					cp := ledger.Checkpoint{Job: c.Job, Objects: []job.Object{vpc(name, name, job.ObjectCreated)}}
					if w == 0 { // two in one statement would show as a double number
						cp.Events = []job.Event{{Type: "object.created", Message: name}}
					}
					if _, err := e.Checkpoint(e.ctx, c.Lease, cp); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		r := e.record(t, c.Job.ID)
		gapless(t, r.Events, rounds)
		if want := int64(2 + writers*rounds); len(r.Objects) != writers*rounds || r.Job.Version != want {
			t.Errorf("%d objects, want %d; version %d, want %d", len(r.Objects), writers*rounds, r.Job.Version, want)
		}
		next := make(map[string]int)
		for _, ev := range r.Events {
			var w string
			var i int
			fmt.Sscanf(strings.Replace(ev.Message, "-", " ", 1), "%s %d", &w, &i)
			if next[w] != i {
				t.Errorf("writer %s: %d was written before %d", w, i, next[w])
			}
			next[w]++
		}
	})
}
