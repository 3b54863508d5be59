package cloud

import (
	"context"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// Pausable is what remediation jobs ask of a cloud: the machines of a VM pool or a
// node pool, stopped and given back. Nothing else can be reached through it: a
// pool of a kind that is not one of job.PoolKind's is refused.
type Pausable interface {
	// Pool reads how a pool stands. It only reads; the error has class NotFound if
	// there is none.
	Pool(ctx context.Context, ref job.PoolRef) (job.PoolState, error)

	// SetPool asks the cloud for one step from the state in which the pool was just
	// read towards the wanted one, by calls that say absolute values: after a lost
	// answer the same may be asked for again. What would change the size by itself is
	// turned off before the pool is emptied, and on after it is filled.
	SetPool(ctx context.Context, r *pipeline.Run, ref job.PoolRef, have, want job.PoolState) error
}
