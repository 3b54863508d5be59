package azure

import (
	"context"
	"time"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/pipeline"
)

// settling is how long a change takes to show.
const settling = 3 * time.Second

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

// view gives the context the view of the run's pass.
func view(ctx context.Context, r *pipeline.Run) context.Context { return lookup.With(ctx, r) }

// learn records what a step made; a verify keeps what was recorded.
func learn(r *pipeline.Run, field *string, value string) {
	if r.Mode != pipeline.Verify || *field == "" {
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

// unseen turns a not-found for something that was made just now into a wait.
func unseen(err error, what string) error {
	if pipeline.Is(err, pipeline.NotFound) {
		return pipeline.Wait(2*time.Second, "%s to become visible", what)
	}
	return err
}
