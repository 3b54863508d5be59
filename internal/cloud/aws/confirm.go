package aws

import (
	"context"
	"fmt"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// confirmWaits is how long a change may take to show before it is made again:
// IAM needs several seconds ("Changes that I make are not always immediately
// visible"), and now and then a change is acknowledged and lost (failure J11).
var confirmWaits = []time.Duration{2 * time.Second, 4 * time.Second, 6 * time.Second, 8 * time.Second}

// confirm reads objects back after they were set, and is done when the cloud
// shows every aspect as it was set. What does not show after a while is set
// again; what never shows is fatal.
func confirm(ctx context.Context, r *pipeline.Run, xs ...pipeline.Resource) error {
	if r.Mode != pipeline.Apply {
		return nil
	}
	for _, x := range xs {
		rec, ok := r.Object(x.Kind, x.Key)
		if !ok || rec.State != job.ObjectCreated {
			continue
		}
		seen, err := x.Get(ctx, rec.ID)
		if pipeline.Is(err, pipeline.NotFound) {
			r.Unsettle() // the next pass finds out whether it was made at all
		}
		if err != nil {
			return pipeline.Unseen(err, x.String())
		}
		for _, a := range seen.Aspects {
			if a.Seen == a.Wanted {
				continue
			}
			return unconfirmed(ctx, r, x, a)
		}
	}
	return nil
}

func unconfirmed(ctx context.Context, r *pipeline.Run, x pipeline.Resource, a pipeline.Aspect) error {
	key := fmt.Sprintf("unconfirmed %s %s %s", x.Kind, x.Key, a.Name)
	n, _ := r.Recall(key).(int)
	r.Remember(key, n+1)
	round := len(confirmWaits) + 1 // the waits, then one more try
	switch {
	case n >= 3*round:
		return pipeline.Fatal("change-lost", fmt.Sprintf("%s: the cloud acknowledges the change and does not keep it: %s is %q and should be %q", x, a.Name, a.Seen, a.Wanted),
			"Look at it in the cloud's console, then retry.")
	case n%round == round-1 && a.Set != nil:
		if err := a.Set(ctx); err != nil {
			return err
		}
	}
	return pipeline.Wait(confirmWaits[min(n%round, len(confirmWaits)-1)], "%s: %s to show as %s", x, a.Name, a.Wanted)
}
