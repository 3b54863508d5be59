package gcp

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/zopday/provisioner/internal/pipeline"
)

// The bounds of repeating one request; the pipeline has its own above it.
const (
	maxAttempts  = 5
	maxBackoff   = 20 * time.Second
	baseBackoff  = 100 * time.Millisecond
	baseThrottle = 500 * time.Millisecond
)

// backoff is how long to wait before a request is sent again, in cloud time:
// exponential with jitter, but never shorter than what the cloud asked for.
func backoff(attempt int, err *pipeline.CloudError) time.Duration {
	from := baseBackoff
	if err.Class == pipeline.Throttled {
		from = baseThrottle
	}
	d := min(from<<min(attempt-1, 10), maxBackoff)
	return max(d/2+rand.N(d/2), err.RetryAfter)
}

// repeatable reports whether the same request may be sent again. A read may
// always be repeated when the cloud faltered; a change only if the answer
// proves that nothing happened.
func repeatable(err *pipeline.CloudError, mutating bool) bool {
	switch err.Class {
	case pipeline.Throttled:
		return true
	case pipeline.Unavailable:
		return !mutating || !err.Sent
	}
	return false
}

// limits are the client's own rate limits, one a service, shared by all jobs of
// one cloud account.
type limits struct {
	pace pipeline.Pace

	mu  sync.Mutex
	all map[string]*rate.Limiter
}

// perSecond and burst are set below what the services allow a project, so that
// its other users keep their share: "Compute Engine API rate quotas", "Cloud DNS
// quotas and limits", "IAM quotas and limits", and the pages of the others.
var perSecond = map[string]struct {
	rate  rate.Limit
	burst int
}{
	serviceCompute:    {15, 50},
	serviceDNS:        {8, 20},
	serviceIAM:        {8, 20},
	serviceCRM:        {5, 10},
	serviceUsage:      {5, 10},
	serviceNetworking: {3, 10},
	serviceContainer:  {8, 20},
	serviceKMS:        {5, 20},

	serviceSQL:          {3, 20},
	serviceRedis:        {3, 20},
	serviceMemorystore:  {3, 20},
	serviceSecrets:      {5, 20},
	serviceMonitoring:   {5, 20},
	serviceConnectivity: {3, 10},
}

func newLimits(pace pipeline.Pace) *limits {
	return &limits{pace: pace, all: map[string]*rate.Limiter{}}
}

func (l *limits) wait(ctx context.Context, service string) error {
	l.mu.Lock()
	lim, ok := l.all[service]
	if !ok {
		set, known := perSecond[service]
		if !known {
			set.rate, set.burst = 5, 10
		}
		lim = rate.NewLimiter(set.rate*rate.Limit(max(float64(l.pace), 1)), set.burst)
		l.all[service] = lim
	}
	l.mu.Unlock()
	return lim.Wait(ctx)
}
