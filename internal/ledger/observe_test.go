package ledger_test

import (
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
)

// completed makes a finished job, as an observer reads it.
func completed(t *testing.T, e *env) job.Job {
	t.Helper()
	e.insert(t)
	c := e.claim(t, "a")
	c.Job.Status = job.Completed
	e.checkpoint(t, c.Lease, ledger.Checkpoint{Job: c.Job})
	return *e.get(t, c.Job.ID)
}

// A job that cannot be observed does not keep the others from their turn.
func TestObserveFailed(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		e.register(t, "a")
		one := completed(t, e)
		two := completed(t, e)
		next := func(want ...string) {
			t.Helper()
			due, err := e.Observable(e.ctx, job.VM, 0, 10)
			must(t, err)
			var got []string
			for _, j := range due {
				got = append(got, j.ID)
			}
			if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] {
				t.Errorf("observable: %v, want %v", got, want)
			}
		}
		first, second := one, two
		if second.ID < first.ID {
			first, second = second, first
		}
		next(first.ID, second.ID)
		must(t, e.ObserveFailed(e.ctx, first.ID, first.Version))
		next(second.ID, first.ID)
		after := e.get(t, first.ID)
		if after.Version != first.Version || after.Config.InfraConfig.ObservedAt != nil || !after.UpdatedAt.Equal(first.UpdatedAt) {
			t.Errorf("after: version %d, observed %v, updated %s", after.Version, after.Config.InfraConfig.ObservedAt, after.UpdatedAt)
		}
		must(t, e.ObserveFailed(e.ctx, second.ID, second.Version+1)) // the job has moved on
		next(second.ID, first.ID)
		if due, err := e.Observable(e.ctx, job.VM, time.Minute, 10); err != nil || len(due) != 1 || due[0].ID != second.ID {
			t.Errorf("observable within the minute: %v, %v", due, err)
		}
	})
}

// An observation without news writes its time alone.
func TestObserveNothingNew(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		e.register(t, "a")
		j := completed(t, e)
		before := time.Now().UTC().Add(-time.Hour).Truncate(time.Microsecond)
		seen := job.InfraConfig{VMs: []job.VMInfo{{Name: "vm-1", State: job.VMStopped}}, ObservedAt: &before}
		must(t, e.Observe(e.ctx, j.ID, j.Version, seen))
		now := before.Add(time.Minute)
		seen.ObservedAt = &now
		must(t, e.Observe(e.ctx, j.ID, j.Version+1, seen))
		after := e.get(t, j.ID)
		if after.Version != j.Version+1 {
			t.Errorf("version %d after an observation without news, want %d", after.Version, j.Version+1)
		}
		if at := after.Config.InfraConfig.ObservedAt; at == nil || !at.After(now) {
			t.Errorf("observed at %v, want the time of the second observation", at)
		}
		if due, err := e.Observable(e.ctx, job.VM, time.Minute, 10); err != nil || len(due) != 0 {
			t.Errorf("observable at once again: %v, %v", due, err)
		}
		// The failure of a later one is not an observation.
		was := *after.Config.InfraConfig.ObservedAt
		must(t, e.ObserveFailed(e.ctx, j.ID, after.Version))
		if at := e.get(t, j.ID).Config.InfraConfig.ObservedAt; !at.Equal(was) {
			t.Errorf("observed at %s after a failure, want %s", at, was)
		}
		seen.VMs[0].State = job.VMReady
		must(t, e.Observe(e.ctx, j.ID, after.Version, seen))
		if after = e.get(t, j.ID); after.Version != j.Version+2 || after.Config.InfraConfig.VMs[0].State != job.VMReady {
			t.Errorf("with news: version %d, VMs %v", after.Version, after.Config.InfraConfig.VMs)
		}
	})
}
