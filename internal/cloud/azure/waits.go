package azure

import (
	"context"
	"time"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/pipeline"
)

// settling is how long a change takes to show.
const settling = 3 * time.Second

// view gives the context the view of the run's pass.
func view(ctx context.Context, r *pipeline.Run) context.Context { return lookup.With(ctx, r) }

// learn records what a step made; a verify keeps what was recorded.
func learn(r *pipeline.Run, field *string, value string) {
	if r.Mode != pipeline.Verify || *field == "" {
		*field = value
	}
}
