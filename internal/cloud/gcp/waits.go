package gcp

import (
	"context"
	"time"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/pipeline"
)

// view gives the context the view of the run's pass.
func view(ctx context.Context, r *pipeline.Run) context.Context { return lookup.With(ctx, r) }

// name is the name of one of the job's objects, within the 63 characters that
// RFC 1035 leaves a label.
func name(r *pipeline.Run, use string) string { return r.Job.ResourceName(use, 63) }

// learn records what a step made. A verify compares with what was recorded, and
// must not replace that by a placeholder.
func learn(r *pipeline.Run, field *string, value string) {
	if value != "" && r.Mode != pipeline.Verify {
		*field = value
	}
}

// learnAll records what a step made, each in its place; a verify keeps what was
// recorded unless nothing is.
func learnAll(r *pipeline.Run, field *[]string, values []string) {
	if r.Mode != pipeline.Verify || len(*field) != len(values) {
		*field = values
	}
}

// waited is for how long, in cloud time, this worker has been waiting for
// something; the first call starts the clock. A crash starts it afresh.
func waited(r *pipeline.Run, what string) time.Duration {
	since, ok := r.Recall("since " + what).(time.Time)
	if !ok {
		since = r.Now()
		r.Remember("since "+what, since)
	}
	return r.Pace.Cloud(r.Now().Sub(since))
}

// noLonger stops the clock of waited.
func noLonger(r *pipeline.Run, what string) { r.Remember("since "+what, nil) }

// visible turns a not-found for something that the job made moments ago into a
// wait: a fresh service account, for one, is not known everywhere at once
// (failure kinds D5, D8). Past the bound the error is what it is.
func visible(r *pipeline.Run, what string, err error) error {
	if !pipeline.Is(err, pipeline.NotFound) || r.Mode != pipeline.Apply {
		return err
	}
	if waited(r, what+" visible") > 10*time.Minute {
		return err
	}
	if waited(r, "doubt about "+what) > 2*time.Minute {
		noLonger(r, "doubt about "+what)
		r.Doubt() // perhaps it will never know: is all of it still there?
	}
	return pipeline.Wait(5*time.Second, "%s: the cloud does not know yet what it depends on (%v)", what, err)
}

// unless is nil for an error of one of the classes.
func unless(err error, classes ...pipeline.Class) error {
	if pipeline.Is(err, classes...) {
		return nil
	}
	return err
}
