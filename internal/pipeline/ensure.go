package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/zopday/provisioner/internal/job"
)

// Ensure makes an object so and returns its ID. The protocol, the same for
// every object of every family at every cloud:
//
//  1. An ID in the ledger is asked for. Not-found is not believed within the
//     consistency window, nor on one miss alone.
//  2. Without one, an intent is committed before the create leaves. A create
//     with a token is repeated with the same token until its outcome is known.
//     One without a token, whose outcome is unknown, is looked up by mark for
//     the whole window before it is sent again.
//  3. A namesake without our mark is somebody else's, and so is an object that
//     carries another's mark by now: fatal, never touched.
//  4. The ID is saved the moment it is known, before anything is waited for.
//     A create in flight is not abandoned when the job is cancelled.
//  5. Aspects that differ are set (Apply) or reported as drift (Verify).
//  6. What came up broken stays, and stays recorded, until a person has read
//     why; a retry replaces it. So does a run that finds an object half removed.
func (r *Run) Ensure(ctx context.Context, x Resource) (string, error) {
	switch r.Mode {
	case Plan:
		r.mu.Lock()
		r.planned = append(r.planned, Planned{Step: r.Step, Kind: x.Kind, Key: x.Key, Name: x.Name})
		r.mu.Unlock()
		return "(" + x.Key + ")", nil
	case Verify:
		return r.verify(ctx, x)
	}
	rec, known := r.Object(x.Kind, x.Key)
	if known && rec.State == job.ObjectCreated && rec.Reason != "" {
		if err := r.replace(ctx, x, rec); err != nil {
			return "", err
		}
		rec, _ = r.Object(x.Kind, x.Key)
	}
	if known && rec.State == job.ObjectCreated {
		if r.isSettled(rec) {
			return rec.ID, nil
		}
		seen, err := x.Get(ctx, rec.ID)
		switch {
		case Is(err, NotFound):
			if err := r.missed(ctx, x, &rec); err != nil {
				return "", err
			}
		case err != nil:
			return "", err
		case seen.Status == Gone:
			return "", r.lost(ctx, x, rec, seen.Reason)
		case seen.Owner != "" && seen.Owner != r.Job.ID:
			return "", notOurs(x, rec, seen)
		default:
			r.sawAgain(rec)
			return rec.ID, r.settle(ctx, x, rec, seen)
		}
	}
	return r.create(ctx, x, rec, known)
}

// create brings an object into being that the ledger has no ID for.
func (r *Run) create(ctx context.Context, x Resource, rec job.Object, known bool) (string, error) {
	unresolved := known && rec.State == job.ObjectIntended
	sameName := rec.Name == x.Name // an earlier intent may have been for another one
	if !unresolved || !x.Tokened || rec.Reason == tokenUsed {
		ours, err := r.find(ctx, x)
		if err != nil {
			return "", err
		}
		if ours != nil {
			return r.take(ctx, x, rec, *ours)
		}
		if age := r.Pace.Cloud(r.Now().Sub(deref(rec.IntentAt))); unresolved && age < r.Consistency {
			return "", Wait(min(5*time.Second, r.Consistency/8), "%s: an earlier create may still show", x)
		}
	}
	if err := ctx.Err(); err != nil {
		return "", err // a safe point: nothing new is begun once the job is being cancelled
	}
	now := r.Now()
	if !unresolved {
		generation := rec.Generation
		if rec.State == job.ObjectRemoved {
			generation++ // the token of what was removed would bring that back
		}
		rec = job.Object{
			JobID: r.Job.ID, Cloud: r.Job.Provider, Account: r.Job.Config.InfraConfig.Account, Region: r.Job.Region,
			Kind: x.Kind, Key: x.Key, Generation: generation,
		}
	}
	rec.Name, rec.Step, rec.State, rec.IntentAt, rec.Reason = x.Name, r.Step, job.ObjectIntended, &now, ""
	if err := r.put(ctx, nil, rec); err != nil {
		return "", err
	}
	// From here on the job's cancellation no longer reaches the call: it ends
	// by its own deadline, and what it made is recorded.
	cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
	defer cancel()
	seen, err := x.Create(cctx, r.token(x, rec.Generation))
	switch {
	case err == nil && seen.ID == "":
		return "", &CloudError{Class: Unknown, Op: "create " + x.Kind, Message: "the answer held no ID", Sent: true}
	case err == nil:
		return r.take(ctx, x, rec, seen)
	case Is(err, Exists):
		ours, ferr := r.find(ctx, x)
		if ferr != nil {
			return "", ferr
		}
		if ours != nil {
			return r.take(ctx, x, rec, *ours)
		}
		if what := "the " + x.String() + " of an earlier create"; unresolved && sameName && r.WaitedFor(what) < longLook*r.Consistency {
			return "", Wait(max(r.Consistency/8, time.Second), "%s to show: the cloud says that there is one of that name", what)
		}
		return "", err
	case Is(err, Mismatch):
		// The token was used with other arguments, so something may have been
		// made with it: that is looked for before a new token is used.
		rec.Generation++
		rec.Reason = tokenUsed
		if perr := r.put(ctx, nil, rec); perr != nil {
			return "", perr
		}
		return "", err
	case !happened(err):
		rec.State = job.ObjectAbsent
		if perr := r.put(ctx, nil, rec); perr != nil {
			return "", perr
		}
	}
	return "", err
}

// take records the ID of an object that is ours.
func (r *Run) take(ctx context.Context, x Resource, rec job.Object, seen Seen) (string, error) {
	now := r.Now()
	rec.JobID, rec.Cloud, rec.Account, rec.Region = r.Job.ID, r.Job.Provider, r.Job.Config.InfraConfig.Account, r.Job.Region
	rec.Kind, rec.Key, rec.Name, rec.Step = x.Kind, x.Key, x.Name, r.Step
	rec.ID, rec.State, rec.CreatedAt, rec.RemovedAt, rec.Reason = seen.ID, job.ObjectCreated, &now, nil, ""
	ev := job.Event{Type: "object.created", Step: r.Step, Message: fmt.Sprintf("%s %s is %s", x.Kind, x.Name, seen.ID)}
	if seen.ID == x.Name {
		ev.Message = fmt.Sprintf("%s %s is there", x.Kind, x.Name)
	}
	if err := r.put(ctx, []job.Event{ev}, rec); err != nil {
		return "", err
	}
	if seen.Status == Ready && len(seen.Aspects) == 0 {
		r.markSettled(rec)
		return rec.ID, nil
	}
	if seen.Status != Ready {
		s, err := x.Get(ctx, rec.ID)
		if Is(err, NotFound) {
			return "", Wait(2*time.Second, "%s to become visible", x)
		}
		if err != nil {
			return "", err
		}
		seen = s
	}
	return rec.ID, r.settle(ctx, x, rec, seen)
}

// find looks an object up and tells ours from somebody else's.
func (r *Run) find(ctx context.Context, x Resource) (*Seen, error) {
	if x.Find == nil {
		return nil, nil
	}
	all, err := x.Find(ctx)
	if err != nil && !Is(err, NotFound) {
		return nil, err
	}
	var ours, foreign *Seen
	for i, s := range all {
		switch {
		case s.Status == Gone:
		case s.Owner != r.Job.ID:
			foreign = &all[i]
		case ours != nil:
			return nil, Fatal("duplicate-object",
				fmt.Sprintf("%s exists twice, as %s and %s, both with this job's mark", x, ours.ID, s.ID),
				"Remove the one that is not in use, then retry.")
		default:
			ours = &all[i]
		}
	}
	if ours == nil && foreign != nil {
		return nil, Fatal("name-taken",
			fmt.Sprintf("%s exists already as %s and does not carry this job's mark, so it is somebody else's and was not touched", x, foreign.ID),
			"Rename or remove it, or give the job another name, then retry.")
	}
	return ours, nil
}

// settle brings the aspects into line and waits until the object is ready.
func (r *Run) settle(ctx context.Context, x Resource, rec job.Object, seen Seen) error {
	switch seen.Status {
	case Broken:
		if rec.Reason != cameUpBroken {
			rec.Reason = cameUpBroken
			if err := r.put(ctx, nil, rec); err != nil {
				return err
			}
		}
		return Fatal("object-failed", fmt.Sprintf("%s (%s) failed: %s", x, rec.ID, cmp.Or(seen.Reason, "the cloud gives no reason")),
			"Put right what the reason names, then retry: the failed object is kept until then, and replaced.")
	case Gone:
		return r.lost(ctx, x, rec, seen.Reason)
	case Pending:
		patience := x.Patience
		if patience == 0 {
			patience = 30 * time.Minute
		}
		age := r.Pace.Cloud(r.Now().Sub(r.pendingSince(rec)))
		if age > patience {
			return Fatal("timed-out", fmt.Sprintf("%s (%s) is still %s after %s", x, rec.ID, cmp.Or(seen.Reason, "pending"), patience),
				"Look at it in the cloud's console; retry goes on waiting.")
		}
		return Wait(pollAfter(age), "%s to become ready (%s)", x, cmp.Or(seen.Reason, "pending"))
	}
	r.sawSound(rec)
	lanes := map[string][]Aspect{}
	for _, a := range seen.Aspects {
		if a.Wanted == a.Seen {
			continue
		}
		if a.Set == nil {
			return Fatal("not-as-asked", fmt.Sprintf("%s (%s): %s is %q and should be %q, and cannot be changed in place", x, rec.ID, a.Name, a.Seen, a.Wanted),
				"Remove it, then retry.")
		}
		lanes[a.Lane] = append(lanes[a.Lane], a)
	}
	var parts []func(context.Context) error
	for _, lane := range lanes {
		parts = append(parts, func(ctx context.Context) error {
			for _, a := range lane {
				if err := ctx.Err(); err != nil {
					return err
				}
				if err := a.Set(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := All(ctx, parts...); err != nil {
		return err
	}
	r.markSettled(rec)
	return nil
}

// pollAfter looks often at first, and less the longer it takes (failure H4).
func pollAfter(age time.Duration) time.Duration {
	return min(max(age/4, 3*time.Second), 30*time.Second)
}

// longLook is how many windows of consistency something that holds data may stay
// hidden before its absence is believed.
const longLook = 15

// missing reports whether the cloud has not shown an object on any read for the
// whole window, since this worker first missed it.
func (r *Run) missing(x Resource, rec job.Object) bool {
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	key := rec.Kind + "/" + rec.Key + "/" + rec.ID
	since, again := r.memory.missing[key]
	if !again {
		since = r.Now()
		r.memory.missing[key] = since
	}
	window := r.Consistency
	if x.Precious {
		window *= longLook
	}
	return again && r.Pace.Cloud(r.Now().Sub(since)) >= window
}

// missed decides what a not-found for a recorded ID means.
func (r *Run) missed(ctx context.Context, x Resource, rec *job.Object) error {
	if !r.missing(x, *rec) {
		return Wait(max(r.Consistency/10, time.Second), "%s (%s), which the cloud does not show", x, rec.ID)
	}
	if x.Precious {
		return Fatal("object-lost", fmt.Sprintf("%s (%s) was made, and the cloud has not shown it for %s; it is not made again, since an empty one in its place would hide that its data is gone", x, rec.ID, longLook*r.Consistency),
			"If somebody deleted it, restore it from its backups at the cloud under the same name, or tear the job down. If the cloud shows it again, retry goes on.")
	}
	// Missing on every read for the whole window: somebody deleted it, or the
	// cloud never made what it acknowledged.
	if n := r.losses(rec.Kind + "/" + rec.Key); n > tolerated {
		return Fatal("object-lost", fmt.Sprintf("%s (%s) was made %d times in this run, and each time it was gone a while later", x, rec.ID, n),
			"Find out who or what deletes it (the cloud's audit log says), then retry: it is made again.")
	}
	now := r.Now()
	rec.State, rec.RemovedAt, rec.Reason = job.ObjectRemoved, &now, "deleted outside of this job"
	rec.Generation++
	ev := job.Event{Type: "object.lost", Step: r.Step, Message: fmt.Sprintf("%s %s (%s) is gone, and this job did not remove it; it is made again", x.Kind, x.Name, rec.ID)}
	return r.put(ctx, []job.Event{ev}, *rec)
}

// tolerated is how many losses of one object a run makes good by itself.
const tolerated = 3

// losses counts a loss of an object in this run.
func (r *Run) losses(object string) int {
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	r.memory.lost[object]++
	return r.memory.lost[object]
}

// sawAgain forgets an earlier miss.
func (r *Run) sawAgain(rec job.Object) {
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	delete(r.memory.missing, rec.Kind+"/"+rec.Key+"/"+rec.ID)
}

// lost stops the job because an object of it ended by itself; a retry makes a
// new one, under a new token.
func (r *Run) lost(ctx context.Context, x Resource, rec job.Object, reason string) error {
	now := r.Now()
	rec.State, rec.RemovedAt, rec.Reason = job.ObjectRemoved, &now, cmp.Or(reason, "ended outside of this job")
	rec.Generation++
	if err := r.put(ctx, nil, rec); err != nil {
		return err
	}
	return Fatal("object-ended", fmt.Sprintf("%s (%s) ended: %s", x, rec.ID, cmp.Or(reason, "the cloud gives no reason")),
		"Put right what the reason names, then retry: a new one is made.")
}

// verify compares and changes nothing.
func (r *Run) verify(ctx context.Context, x Resource) (string, error) {
	rec, known := r.Object(x.Kind, x.Key)
	id := rec.ID
	if !known || rec.State != job.ObjectCreated {
		id = ""
	}
	drift := func(attr, wanted, seen string) {
		r.AddDrift(Drift{Kind: x.Kind, Key: x.Key, ID: id, Attr: attr, Wanted: wanted, Seen: seen})
	}
	if id == "" {
		drift("exists", "yes", "no")
		return "(" + x.Key + ")", nil
	}
	seen, err := x.Get(ctx, id)
	switch {
	case Is(err, NotFound), err == nil && seen.Status == Gone:
		drift("exists", "yes", "no")
		return id, nil
	case err != nil:
		return "", err
	}
	if seen.Status != Ready {
		drift("state", "ready", cmp.Or(seen.Reason, "not ready"))
	}
	if seen.Owner != "" && seen.Owner != r.Job.ID {
		drift("owner", r.Job.ID, seen.Owner)
	}
	for _, a := range seen.Aspects {
		if a.Wanted != a.Seen {
			drift(a.Name, a.Wanted, a.Seen)
		}
	}
	return id, nil
}

// What Reason says of a row that is not as it should be.
const (
	deleteSent   = "being deleted" // from here on not-found is the expected answer
	cameUpBroken = "came up failed"
	tokenUsed    = "its token was used with other arguments"
	condemned    = "to be replaced"
)

// Condemn marks an object of the job, by its ID, to be removed and made anew by
// the next Ensure: the cloud calls it sound, and a step knows better. It is
// called for what a person has been told of and has retried since. False: the
// job has no such object of its own.
func (r *Run) Condemn(ctx context.Context, id, why string) (bool, error) {
	for _, rec := range r.Objects() {
		if rec.ID != id || rec.State != job.ObjectCreated {
			continue
		}
		rec.Reason = condemned
		r.Unsettle()
		ev := job.Event{Type: "object.condemned", Step: r.Step, Message: fmt.Sprintf("%s %s (%s) is replaced: %s", rec.Kind, rec.Name, rec.ID, why)}
		return true, r.put(ctx, []job.Event{ev}, rec)
	}
	return false, nil
}

// replace removes an object that came up broken, or that a removal had begun
// on, so that Ensure can make it anew. One that has recovered stays.
func (r *Run) replace(ctx context.Context, x Resource, rec job.Object) error {
	if rec.Reason == cameUpBroken {
		seen, err := x.Get(ctx, rec.ID)
		if err != nil && !Is(err, NotFound) {
			return err
		}
		if err == nil && (seen.Status == Ready || seen.Status == Pending) {
			rec.Reason = ""
			return r.put(ctx, nil, rec)
		}
	}
	return r.removeOne(ctx, x, rec)
}

func (r *Run) token(x Resource, generation int) string {
	args, err := json.Marshal(x.Args)
	if err != nil {
		panic(fmt.Sprintf("arguments of %s are no JSON: %v", x, err)) // a programming error: Args is plain data
	}
	return job.Token(r.Job.ID, x.Kind, x.Key, strconv.Itoa(generation), string(args))
}

func (r *Run) isSettled(rec job.Object) bool {
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	return r.memory.settled[rec.Kind+"/"+rec.Key+"/"+rec.ID]
}

func (r *Run) markSettled(rec job.Object) {
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	r.memory.settled[rec.Kind+"/"+rec.Key+"/"+rec.ID] = true
}

func deref(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
