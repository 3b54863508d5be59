package pipeline

import (
	"time"

	"github.com/zopday/provisioner/internal/job"
)

// WaitedFor is for how long, in cloud time, this worker has been waiting for
// something; the first call starts the clock. A crash starts it afresh.
func (r *Run) WaitedFor(what string) time.Duration {
	since, ok := r.Recall("since " + what).(time.Time)
	if !ok {
		since = r.Now()
		r.Remember("since "+what, since)
	}
	return r.Pace.Cloud(r.Now().Sub(since))
}

// WaitOver stops the clock of WaitedFor.
func (r *Run) WaitOver(what string) { r.Remember("since "+what, nil) }

// How long a cloud may take to know of what a step builds on, and how often the
// run doubts meanwhile that all of it is still there.
const (
	knownPatience = 10 * time.Minute
	doubtAfter    = 2 * time.Minute
)

// AwaitKnown turns a cloud's word that it does not know what something is built
// on, which the job made moments ago, into a wait: the services of a cloud take up
// to minutes to show a fresh object to each other (failure kinds D5, D8). Past the
// bound, and in a plan or a verify, the error is what it is.
func (r *Run) AwaitKnown(what string, err error) error {
	if r.Mode != Apply || r.WaitedFor(what+" visible") > knownPatience {
		return err
	}
	if doubt := "doubt about " + what; r.WaitedFor(doubt) > doubtAfter {
		r.WaitOver(doubt)
		r.Doubt() // perhaps it will never know: is all of it still there?
	}
	return Wait(5*time.Second, "%s: the cloud does not know yet what it depends on (%v)", what, err)
}

// LearnAll records what a step made, each in its place; a verify keeps what was
// recorded unless nothing is.
func (r *Run) LearnAll(field *[]string, values []string) {
	if r.Mode != Verify || len(*field) != len(values) {
		*field = values
	}
}

// Unless drops an error of one of the classes: what was asked for is so already.
func Unless(err error, classes ...Class) error {
	if Is(err, classes...) {
		return nil
	}
	return err
}

// Unseen turns a not-found for something that was made just now into a wait.
func Unseen(err error, what string) error {
	if Is(err, NotFound) {
		return Wait(2*time.Second, "%s to become visible", what)
	}
	return err
}

// pendingSince is when the present wait for an object began, as far as is known: when
// it was made, or, for an older one that an update has set to work, when the step at
// work began in this run, which its row keeps through a crash, or when this worker
// last saw it at rest, if that is later. A retry begins the step anew, and waits anew.
func (r *Run) pendingSince(rec job.Object) time.Time {
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	since := deref(rec.CreatedAt)
	for _, at := range []time.Time{r.From, r.memory.sound[rec.Kind+"/"+rec.Key+"/"+rec.ID]} {
		if at.After(since) {
			since = at
		}
	}
	return since
}

// sawSound notes that an object is not pending: what sets it to work comes later.
func (r *Run) sawSound(rec job.Object) {
	r.memory.mu.Lock()
	defer r.memory.mu.Unlock()
	r.memory.sound[rec.Kind+"/"+rec.Key+"/"+rec.ID] = r.Now()
}
