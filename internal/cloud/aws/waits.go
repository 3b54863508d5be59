package aws

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/pipeline"
)

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

// fleetSeen is under which key a pass remembers when it last saw the pool as it
// should be: a doubt makes it look again.
func fleetSeen(r *pipeline.Run) string { return fmt.Sprintf("fleet seen after %d doubts", r.Doubts()) }

// visible turns a not-found for something that the job made moments ago into a
// wait: IAM and EC2 take up to minutes to show a fresh object to each other
// (failure kind D5). Past the bound the error is what it is.
func visible(r *pipeline.Run, what string, err error) error {
	var ce *pipeline.CloudError
	// Load balancing's word for a group that it does not see yet.
	unknownGroup := errors.As(err, &ce) && ce.Code == "InvalidSecurityGroup"
	if !pipeline.Is(err, pipeline.NotFound) && !unknownGroup || r.Mode != pipeline.Apply {
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

// view gives the context the view of the run's pass.
func view(ctx context.Context, r *pipeline.Run) context.Context { return lookup.With(ctx, r) }
