package azure

import (
	"context"
	"math/rand/v2"
	"time"

	"golang.org/x/time/rate"

	"github.com/zopday/provisioner/internal/pipeline"
)

// limits are the client's own rate limits, shared by all jobs of one account.
// Resource Manager gives a caller a bucket of 250 reads, refilled by 25 a
// second, and one of 200 writes, refilled by 10 ("Understand how Azure Resource
// Manager throttles requests"); some of it is left to others.
type limits struct {
	reads, writes *rate.Limiter
}

func newLimits(pace pipeline.Pace) *limits {
	faster := rate.Limit(max(float64(pace), 1))
	return &limits{reads: rate.NewLimiter(20*faster, 100), writes: rate.NewLimiter(8*faster, 60)}
}

func (l *limits) wait(ctx context.Context, mutating bool) error {
	if mutating {
		return l.writes.Wait(ctx)
	}
	return l.reads.Wait(ctx)
}

// The bounds of one call's own tries; the pipeline has its own above them.
const (
	maxAttempts  = 5
	maxBackoff   = 20 * time.Second
	baseBackoff  = 200 * time.Millisecond
	baseThrottle = time.Second
)

// backoff is exponential with jitter, but never shorter than what the cloud
// asked for, in cloud time.
func backoff(attempt int, ce *pipeline.CloudError) time.Duration {
	base := baseBackoff
	if ce.Class == pipeline.Throttled {
		base = baseThrottle
	}
	d := min(base<<min(attempt-1, 10), maxBackoff)
	return max(d/2+rand.N(d/2), ce.RetryAfter)
}
