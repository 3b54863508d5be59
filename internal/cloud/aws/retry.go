package aws

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/zopday/provisioner/internal/pipeline"
)

// retryer is the SDK's retry policy. What may be repeated is decided by the
// attempt middleware. There is no bucket of retry tokens: one that runs dry
// fails calls which the cloud would have answered (failure kind H2).
type retryer struct{ pace pipeline.Pace }

const (
	maxAttempts  = 5
	maxBackoff   = 20 * time.Second
	baseBackoff  = 100 * time.Millisecond
	baseThrottle = 500 * time.Millisecond
)

// IsErrorRetryable is the attempt's own decision, or that of the SDK's clock
// skew correction: a signature that was refused for its time did nothing.
func (r retryer) IsErrorRetryable(err error) bool {
	var skew interface{ RetryableError() bool }
	if errors.As(err, &skew) && skew.RetryableError() {
		return true
	}
	var ae *attemptError
	return errors.As(err, &ae) && ae.retry
}

// MaxAttempts bounds the tries of one call; the pipeline has its own above it.
func (r retryer) MaxAttempts() int { return maxAttempts }

// RetryDelay is exponential with full jitter, but never shorter than what the
// cloud asked for.
func (r retryer) RetryDelay(attempt int, err error) (time.Duration, error) {
	base := baseBackoff
	var floor time.Duration
	var ae *attemptError
	if errors.As(err, &ae) {
		floor = ae.after
		if ae.err.Class == pipeline.Throttled {
			base = baseThrottle
		}
	}
	d := min(base<<min(attempt-1, 10), maxBackoff)
	d = d/2 + rand.N(d/2)
	return r.pace.Real(max(d, floor)), nil
}

// GetRetryToken never runs out.
func (r retryer) GetRetryToken(context.Context, error) (func(error) error, error) {
	return func(error) error { return nil }, nil
}

// GetInitialToken never runs out.
func (r retryer) GetInitialToken() func(error) error { return func(error) error { return nil } }

// limits are the client's own rate limits, one a service, shared by all jobs of
// one account and region.
type limits struct {
	pace pipeline.Pace

	mu  sync.Mutex
	all map[string]*rate.Limiter
}

// perSecond and burst are set below what the services allow an account, so that
// other users of the account keep their share: "Request throttling for the
// Amazon EC2 API", "Amazon Route 53 quotas", and the pages of the others.
var perSecond = map[string]struct {
	rate  rate.Limit
	burst int
}{
	"EC2":                       {20, 60},
	"IAM":                       {10, 20},
	"STS":                       {10, 20},
	"SSM":                       {10, 20},
	"Route 53":                  {4, 5},
	"Elastic Load Balancing v2": {10, 30},
	"Auto Scaling":              {10, 30},
	"EKS":                       {8, 30},
	"KMS":                       {10, 20},
	"Service Quotas":            {8, 16},
	"ACM":                       {5, 10},
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
