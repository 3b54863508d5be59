package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zopday/provisioner/internal/job"
)

// Remove removes an object, and is done only when the cloud says that it is
// gone: a delete that was accepted and never carried out is sent again. What the
// ledger never heard of, or has for gone, is looked up by mark all the same,
// since a step that died midway may have made it, and a create or a delete whose
// outcome was mistaken may show late.
func (r *Run) Remove(ctx context.Context, x Resource) error {
	if r.Mode == Plan {
		return nil
	}
	rec, known := r.Object(x.Kind, x.Key)
	switch {
	case known && rec.State == job.ObjectCreated:
		return r.removeOne(ctx, x, rec)
	case known && (rec.State == job.ObjectKept || r.sawGone(rec)):
		return nil
	}
	ours, err := r.find(ctx, x)
	var fatal *FatalError
	switch {
	case errors.As(err, &fatal) && fatal.Problem.Code == "name-taken":
		return nil // somebody else's: not ours to remove, and nothing of ours is there
	case err != nil:
		return err
	case ours != nil:
		now := r.Now()
		rec = job.Object{
			JobID: r.Job.ID, Cloud: r.Job.Provider, Account: r.Job.Config.InfraConfig.Account, Region: r.Job.Region,
			Kind: x.Kind, Key: x.Key, Name: x.Name, Step: r.Step, ID: ours.ID, State: job.ObjectCreated,
			CreatedAt: &now, IntentAt: rec.IntentAt, Generation: rec.Generation,
		}
		if err := r.put(ctx, nil, rec); err != nil {
			return err
		}
		return r.removeOne(ctx, x, rec)
	case !known || rec.State != job.ObjectIntended:
		return nil
	}
	// An intent without an object: the create may still show.
	if age := r.Pace.Cloud(r.Now().Sub(deref(rec.IntentAt))); age < r.Consistency {
		return Wait(min(5*time.Second, r.Consistency/8), "%s: an earlier create may still show", x)
	}
	rec.State = job.ObjectAbsent
	return r.put(ctx, nil, rec)
}

// How long a delete may take before the job stops with a reason, and how long
// before one that had no effect is sent again; both in cloud time.
const (
	deletePatience = time.Hour
	deleteAgain    = 20 * time.Second
)

func (r *Run) removeOne(ctx context.Context, x Resource, rec job.Object) error {
	seen, err := x.Get(ctx, rec.ID)
	switch {
	case Is(err, NotFound):
		// What nobody of ours has deleted is not gone because of one read: it stays, and
		// is billed, when that read was stale.
		if rec.Reason != deleteSent && !r.missing(x, rec) {
			return Wait(max(r.Consistency/10, time.Second), "%s (%s) to become visible", x, rec.ID)
		}
		return r.removed(ctx, x, rec)
	case err != nil:
		return err
	case seen.Status == Gone:
		return r.removed(ctx, x, rec)
	case seen.Owner != "" && seen.Owner != r.Job.ID:
		return notOurs(x, rec, seen)
	}
	r.sawAgain(rec)
	if first, last := r.deletes(rec); rec.Reason == deleteSent && !first.IsZero() {
		age := r.Pace.Cloud(r.Now().Sub(first))
		switch {
		case age > deletePatience:
			return r.givenUp(ctx, x, rec, seen)
		case x.Slow && seen.Status == Pending, r.Pace.Cloud(r.Now().Sub(last)) < deleteAgain:
			return Wait(pollAfter(age), "%s (%s) to be deleted (%s)", x, rec.ID, cmp.Or(seen.Reason, "deleting"))
		}
	}
	if rec.Reason != deleteSent {
		rec.Reason = deleteSent
		if err := r.put(ctx, nil, rec); err != nil {
			return err
		}
	}
	return r.sendDelete(ctx, x, rec, seen)
}

// givenUp says why an object is still there, as far as that can be known: a
// cloud that accepts a deletion and lets it fail later never refuses it.
func (r *Run) givenUp(ctx context.Context, x Resource, rec job.Object, seen Seen) error {
	if x.Blockers != nil {
		who, err := x.Blockers(ctx, rec.ID)
		if err != nil {
			return err
		}
		if who != "" {
			blocked := &BlockedError{What: x.String() + " (" + rec.ID + ")", By: who}
			return Fatal(codeBlocked, blocked.Error(), hintBlocked)
		}
	}
	said := cmp.Or(r.lastRefusal(rec), seen.Reason, "it looks untouched")
	return Fatal("timed-out", fmt.Sprintf("%s (%s) is still there %s after its deletion was asked for (%s)", x, rec.ID, deletePatience, said),
		"Look at it in the cloud's console for what holds it; retry asks again.")
}

// notOurs is an object that somebody else has made under a recorded ID, or has
// taken over: IDs that are names outlive what they named.
func notOurs(x Resource, rec job.Object, seen Seen) error {
	carries := "now carries the mark of " + seen.Owner
	if seen.Owner == Unmarked {
		carries = "carries this job's mark no more, and may be somebody else's under the same name"
	}
	return Fatal("not-ours", fmt.Sprintf("%s (%s) %s, so it was not touched", x, rec.ID, carries),
		fmt.Sprintf("If it is this job's, give it the mark %s=%s again; if not, remove or rename it. Then retry.", job.MarkOwner, rec.JobID))
}

func (r *Run) sendDelete(ctx context.Context, x Resource, rec job.Object, seen Seen) error {
	err := x.Delete(ctx, rec.ID)
	r.noteRefusal(rec, err)
	switch {
	case Is(err, NotFound):
		return r.removed(ctx, x, rec)
	case Is(err, Busy) && x.Blockers != nil:
		who, berr := x.Blockers(ctx, rec.ID)
		if berr != nil {
			return berr
		}
		if who != "" {
			return &BlockedError{What: x.String() + " (" + rec.ID + ")", By: who, Err: err}
		}
		return err
	case err != nil:
		return err
	}
	r.noteDelete(rec)
	if !x.Slow {
		// Accepted is not done: it is read back.
		switch seen, err = x.Get(ctx, rec.ID); {
		case Is(err, NotFound), err == nil && seen.Status == Gone:
			return r.removed(ctx, x, rec)
		case err != nil:
			return err
		}
	}
	return Wait(pollAfter(0), "%s (%s) to be deleted (%s)", x, rec.ID, cmp.Or(seen.Reason, "deleting"))
}

// deletes says when this worker first and last asked for an object's deletion.
func (r *Run) deletes(rec job.Object) (first, last time.Time) {
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	d := r.memory.deletes[rec.Kind+"/"+rec.Key+"/"+rec.ID]
	return d[0], d[1]
}

func (r *Run) noteDelete(rec job.Object) {
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	key, now := rec.Kind+"/"+rec.Key+"/"+rec.ID, r.Now()
	d := r.memory.deletes[key]
	if d[0].IsZero() {
		d[0] = now
	}
	d[1] = now
	r.memory.deletes[key] = d
}

// noteRefusal keeps what a cloud said against a deletion: it often names what
// the blockers that are looked for do not cover.
func (r *Run) noteRefusal(rec job.Object, err error) {
	var ce *CloudError
	if !errors.As(err, &ce) {
		return
	}
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	r.memory.refusal[rec.Kind+"/"+rec.Key+"/"+rec.ID] = ce.Error()
}

func (r *Run) lastRefusal(rec job.Object) string {
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	return r.memory.refusal[rec.Kind+"/"+rec.Key+"/"+rec.ID]
}

// sawGone reports whether this worker has seen in this run that the object is gone.
func (r *Run) sawGone(rec job.Object) bool {
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	return rec.State == job.ObjectRemoved && r.memory.gone[rec.Kind+"/"+rec.Key+"/"+rec.ID]
}

func (r *Run) removed(ctx context.Context, x Resource, rec job.Object) error {
	now := r.Now()
	rec.State, rec.RemovedAt, rec.Reason = job.ObjectRemoved, &now, ""
	ev := job.Event{Type: "object.removed", Step: r.Step, Message: fmt.Sprintf("%s %s (%s) is gone", x.Kind, x.Name, rec.ID)}
	if err := r.put(ctx, []job.Event{ev}, rec); err != nil {
		return err
	}
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	r.memory.gone[rec.Kind+"/"+rec.Key+"/"+rec.ID] = true
	return nil
}

// Forget records an object as gone without asking for it: what it was a part of
// is gone, such as a release's cluster, so nobody could answer. Every other
// removal is [Run.Remove], which is done only when the cloud says so.
func (r *Run) Forget(ctx context.Context, kind, key, why string) error {
	rec, known := r.Object(kind, key)
	if !known || r.Mode != Apply || rec.State != job.ObjectCreated && rec.State != job.ObjectIntended {
		return nil
	}
	now := r.Now()
	rec.State, rec.RemovedAt, rec.Reason = job.ObjectRemoved, &now, why
	ev := job.Event{Type: "object.removed", Step: r.Step, Message: fmt.Sprintf("%s %s %s", kind, rec.Name, why)}
	return r.put(ctx, []job.Event{ev}, rec)
}

// Keep leaves an object of the job in place on purpose, such as a namespace that
// somebody else has put things into: its row says why, and Remove no longer
// touches it.
func (r *Run) Keep(ctx context.Context, kind, key, why string) error {
	rec, known := r.Object(kind, key)
	if !known || r.Mode != Apply || rec.State != job.ObjectCreated {
		return nil
	}
	rec.State, rec.Reason = job.ObjectKept, why
	ev := job.Event{Type: "object.kept", Step: r.Step, Message: fmt.Sprintf("%s %s stays: %s", kind, rec.Name, why)}
	return r.put(ctx, []job.Event{ev}, rec)
}

// KeepOther records something that was made on the job's account by something
// that it made, and that stays on purpose, such as a volume that was to outlive
// its cluster: the receipt names it, and no sweep takes it.
func (r *Run) KeepOther(ctx context.Context, kind, id, name, why string) error {
	if _, known := r.Object(kind, id); known || r.Mode != Apply {
		return nil
	}
	now := r.Now()
	rec := job.Object{
		JobID: r.Job.ID, Cloud: r.Job.Provider, Account: r.Job.Config.InfraConfig.Account, Region: r.Job.Region,
		Kind: kind, Key: id, ID: id, Name: name, Step: r.Step, State: job.ObjectKept, Reason: why, CreatedAt: &now,
	}
	ev := job.Event{Type: "object.kept", Step: r.Step, Message: fmt.Sprintf("%s %s stays: %s", kind, name, why)}
	return r.put(ctx, []job.Event{ev}, rec)
}

// Kept reports whether something stays on purpose, by its kind and ID.
func (r *Run) Kept(kind, id string) bool {
	rec, known := r.Object(kind, id)
	return known && rec.State == job.ObjectKept
}

// How a job stops that something of others stands in the way of.
const (
	codeBlocked = "blocked"
	hintBlocked = "Free what blocks it, then retry; the job goes on where it was."
)

// A BlockedError is a delete that something else stands in the way of.
type BlockedError struct {
	What string // the object that cannot be deleted
	By   string // who blocks it, and how to free it
	Err  error
}

func (e *BlockedError) Error() string {
	return fmt.Sprintf("%s cannot be deleted: %s", e.What, e.By)
}
func (e *BlockedError) Unwrap() error { return e.Err }
