package reconciler

import (
	"context"
	"errors"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
)

// observeBatch is how many finished jobs one round looks at.
const observeBatch = 50

// observeLoop keeps the VM states and the target health of finished jobs
// current, so that a job page does not go stale. It only reads the clouds.
func (r *Reconciler) observeLoop(ctx context.Context) {
	every := max(r.Pace.Real(r.Observe), 250*time.Millisecond)
	tick := time.NewTicker(max(every/4, 100*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		jobs, err := r.Ledger.Observable(ctx, job.VM, every, observeBatch)
		if err != nil {
			if ctx.Err() == nil {
				r.Log.WarnContext(ctx, "looking for jobs to observe", "error", err)
			}
			continue
		}
		for i := range jobs {
			if ctx.Err() != nil {
				return
			}
			r.observeOne(ctx, &jobs[i])
		}
	}
}

// observeOne looks at one finished job. A failure is noted in the ledger, so
// that a job that cannot be looked at does not stand before the others.
func (r *Reconciler) observeOne(ctx context.Context, j *job.Job) {
	octx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	version := j.Version
	err := r.observe(octx, j)
	if err == nil || ctx.Err() != nil {
		return
	}
	r.Log.WarnContext(ctx, "observing", "job", j.ID, "error", err)
	fctx, done := context.WithTimeout(ctx, ledgerPatience)
	defer done()
	if err := r.Ledger.ObserveFailed(fctx, j.ID, version); err != nil {
		r.Log.WarnContext(ctx, "noting a failed observation", "job", j.ID, "error", err)
	}
}

// observe looks at one finished job. That the job has moved on meanwhile is
// no error: its own run knows better.
func (r *Reconciler) observe(ctx context.Context, j *job.Job) error {
	version := j.Version
	provider, err := r.Clouds.Open(ctx, j)
	if err != nil {
		return err
	}
	set := r.steps(provider)
	if err := set.SameCaller(ctx, j); err != nil {
		return err
	}
	if err := set.Observe(ctx, j, time.Now().UTC()); err != nil {
		return err
	}
	err = r.Ledger.Observe(ctx, j.ID, version, j.Config.InfraConfig)
	if errors.Is(err, ledger.ErrConflict) {
		return nil
	}
	return err
}
