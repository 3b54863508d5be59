package reconciler

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/pipeline"
)

// The causes for which a step's context is cancelled.
var (
	errCancelRequested = errors.New("the job is to be deleted")
	errShutdown        = errors.New("this worker is shutting down")
)

// A hold is one job under this worker's lease.
type hold struct {
	r      *Reconciler
	job    *job.Job // the pass's own, which changes it
	lease  ledger.Lease
	cancel context.CancelCauseFunc

	family      job.ResourceType
	mode        job.Mode
	tearingDown bool

	mu      sync.Mutex
	lost    bool
	expires time.Time // monotonic: when the lease runs out at the latest
}

// good reports whether the lease can still be relied on.
func (h *hold) good() error {
	now := time.Now()
	h.mu.Lock()
	lost := h.lost || !now.Before(h.expires)
	h.mu.Unlock()
	if lost || !h.r.alive(now) {
		h.lose()
		return pipeline.ErrLeaseLost
	}
	return nil
}

// lose shuts the gate for good.
func (h *hold) lose() {
	h.mu.Lock()
	was := h.lost
	h.lost = true
	h.mu.Unlock()
	if !was {
		h.r.Hooks.LeaseLost(h.family)
	}
	h.cancel(pipeline.ErrLeaseLost)
}

// gate stands before every cloud call of the job.
func (h *hold) gate(_ context.Context, c pipeline.Call) error {
	if c.Mutating && h.mode == job.ModeAdopt {
		return pipeline.ErrReadOnly
	}
	return h.good()
}

// nothingChanges is the gate of a job whose cloud account is read-only: what its
// clusters and databases hold is no more changed than the account itself.
func nothingChanges(j *job.Job) pipeline.Gate {
	return func(_ context.Context, c pipeline.Call) error {
		if !c.Mutating || j.Mode == job.ModeAdopt {
			return nil
		}
		return pipeline.Fatal("read-only-account", fmt.Sprintf("the cloud account %s is read-only, so %s %s was not sent", j.CloudAccountID, c.Service, c.Op),
			"Give the account permissionLevel read_write, then retry.").On("cloudAccountId")
	}
}

// Record writes in the middle of a step, under the lease. The ledger being
// away for a moment is waited out: an ID that is known must not be lost.
func (h *hold) Record(ctx context.Context, d pipeline.Delta) error {
	for i := range d.Events {
		d.Events[i].Run, d.Events[i].Attempt = h.job.Run, h.job.Attempts
	}
	if len(d.Databases)+len(d.Connections) > 0 {
		return h.putLogical(ctx, d)
	}
	return h.checkpoint(ctx, ledger.Checkpoint{Job: h.job, Objects: d.Objects, Events: d.Events, Config: d.Config})
}

// putLogical writes rows of logical databases and connections under the lease.
func (h *hold) putLogical(ctx context.Context, d pipeline.Delta) error {
	var err error
	for attempt := range 6 {
		if err = h.good(); err != nil {
			return err
		}
		if err = h.r.Ledger.PutLogical(ctx, h.lease, d.Databases, d.Connections); err == nil {
			return nil
		}
		if errors.Is(err, ledger.ErrLeaseLost) {
			h.lose()
			return pipeline.ErrLeaseLost
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Duration(50<<attempt) * time.Millisecond):
		}
	}
	return err
}

func (h *hold) checkpoint(ctx context.Context, c ledger.Checkpoint) error {
	var err error
	for attempt := range 6 {
		if err = h.good(); err != nil {
			return err
		}
		var cancelled bool
		cancelled, err = h.r.Ledger.Checkpoint(ctx, h.lease, c)
		var elsewhere *ledger.OwnedElsewhereError
		switch {
		case err == nil:
			if cancelled && !c.ClearCancel {
				h.cancel(errCancelRequested)
			}
			return nil
		case errors.Is(err, ledger.ErrLeaseLost):
			h.lose()
			return pipeline.ErrLeaseLost
		case errors.Is(err, ledger.ErrCancelRequested):
			return err
		case errors.As(err, &elsewhere):
			return pipeline.Fatal("owned-elsewhere", "another job, "+elsewhere.JobID+", has this object in its inventory already: "+elsewhere.Error(),
				"One object belongs to one job. Tear one of the jobs down, or adopt the object.")
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Duration(50<<attempt) * time.Millisecond):
		}
	}
	return err
}

// take takes a job in hand. It reports whether the worker was silent for too
// long since it sent the claim: the job may be somebody else's by now, and the
// heartbeat that ended the silence could not know of this hold.
func (r *Reconciler) take(h *hold, claimed time.Time) (broken bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held[h.job.ID] = h
	return !claimed.After(r.brokenAt)
}

// giveBack releases the lease after a pass that could not commit, or that fenced
// itself after a silence: nobody may have taken the job over, and it must not
// stand still until the lease runs out. The release names the token, so it does
// nothing to a job that is somebody else's by now.
func (h *hold) giveBack(ctx context.Context) {
	const pause = 500 * time.Millisecond
	for tries := 0; ; tries++ {
		rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		err := h.r.Ledger.ReleaseAll(rctx, h.r.Worker, h.lease)
		cancel()
		if err == nil || errors.Is(err, ledger.ErrLeaseLost) || ctx.Err() != nil && tries >= 5 || time.Duration(tries)*pause > h.lease.TTL {
			h.r.poke()
			return
		}
		time.Sleep(pause)
	}
}

// renewHeld lengthens the leases of the jobs at work and learns which of them
// are to be cancelled.
func (r *Reconciler) renewHeld(ctx context.Context) {
	r.mu.Lock()
	held := make([]*hold, 0, len(r.held))
	for _, h := range r.held {
		held = append(held, h)
	}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, r.DeadAfter/2)
	defer cancel()
	for _, h := range held {
		ttl := ttlOf(h.family)
		start := time.Now()
		cancelled, err := r.Ledger.Renew(ctx, h.lease, ttl)
		switch {
		case errors.Is(err, ledger.ErrLeaseLost):
			h.lose()
		case err == nil:
			h.mu.Lock()
			h.expires = start.Add(ttl)
			h.mu.Unlock()
			if cancelled && !h.tearingDown {
				h.cancel(errCancelRequested)
			}
		}
	}
}

// loseAll lets go of everything that was claimed before now.
func (r *Reconciler) loseAll() {
	r.mu.Lock()
	r.brokenAt = time.Now()
	held := make([]*hold, 0, len(r.held))
	for _, h := range r.held {
		held = append(held, h)
	}
	r.mu.Unlock()
	for _, h := range held {
		h.lose()
	}
}

func ttlOf(family job.ResourceType) time.Duration {
	if d, ok := TTL[family]; ok {
		return d
	}
	return defaultTTL
}
