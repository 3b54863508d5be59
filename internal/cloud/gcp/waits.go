package gcp

import (
	"context"

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

// visible turns a not-found for something that the job made moments ago into a
// wait: a fresh service account, for one, is not known everywhere at once
// (failure kinds D5, D8). Past the bound the error is what it is.
func visible(r *pipeline.Run, what string, err error) error {
	if !pipeline.Is(err, pipeline.NotFound) {
		return err
	}
	return r.AwaitKnown(what, err)
}
