package aws

import (
	"context"
	"errors"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/pipeline"
)

// visible turns a not-found for something that the job made moments ago into a
// wait: IAM and EC2 take up to minutes to show a fresh object to each other
// (failure kind D5). Past the bound the error is what it is.
func visible(r *pipeline.Run, what string, err error) error {
	var ce *pipeline.CloudError
	// Load balancing's word for a group that it does not see yet.
	unknownGroup := errors.As(err, &ce) && ce.Code == "InvalidSecurityGroup"
	if !pipeline.Is(err, pipeline.NotFound) && !unknownGroup {
		return err
	}
	return r.AwaitKnown(what, err)
}

// view gives the context the view of the run's pass.
func view(ctx context.Context, r *pipeline.Run) context.Context { return lookup.With(ctx, r) }
