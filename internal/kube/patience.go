package kube

import (
	"time"

	"github.com/zopday/provisioner/internal/pipeline"
)

// An API server is real even where the cloud around it is simulated and its time
// runs faster: what is waited for in a cluster takes its real time. So each wait
// for one has a least real time besides its bound in cloud time, and looks again
// no sooner than a real fraction of a second.
const (
	leastPatience = 90 * time.Second
	leastPause    = 250 * time.Millisecond
)

// Overdue reports whether the run has waited for something in a cluster longer
// than patience, in cloud time; the first call starts the clock.
func Overdue(r *pipeline.Run, what string, patience time.Duration) bool {
	waited := r.WaitedFor(what)
	return waited > patience && r.Pace.Real(waited) > leastPatience
}

// Patience is a bound in cloud time for something in a cluster that takes up to d,
// and at least its least real time.
func Patience(p pipeline.Pace, d time.Duration) time.Duration { return max(d, p.Cloud(leastPatience)) }

// Pause is when to look again at something in a cluster, in cloud time: d, and at
// least a real fraction of a second.
func Pause(p pipeline.Pace, d time.Duration) time.Duration { return max(d, p.Cloud(leastPause)) }
