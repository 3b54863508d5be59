package server

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
)

const (
	// sealTick is how often a process seals what was written to the audit log.
	sealTick = time.Second
	// sealWithin bounds one round, and the last one at the end of a process.
	sealWithin = 30 * time.Second
	// sealComplaint is how often a log that is not being sealed is complained of.
	sealComplaint = time.Minute
)

// A sealer seals the audit log. Every process runs one; of several, one at a time
// does the work.
type sealer struct {
	db     *db.DB
	log    *slog.Logger
	oldest atomic.Int64 // nanoseconds that the oldest unsealed entry has waited, as of the last round
}

func (s *sealer) age() time.Duration { return time.Duration(s.oldest.Load()) }

// run seals until the context ends, and once more then.
func (s *sealer) run(ctx context.Context) {
	tick := time.NewTicker(sealTick)
	defer tick.Stop()
	var complained time.Time
	for last := false; !last; {
		select {
		case <-ctx.Done():
			last = true
		case <-tick.C:
		}
		tail, err := s.round(ctx)
		if (err != nil || tail.Stalled()) && time.Since(complained) >= sealComplaint {
			complained = time.Now()
			s.log.ErrorContext(ctx, "entries of the audit log are not being sealed; until they are, nothing shows whether they are whole",
				"unsealed", tail.Unsealed, "oldest", tail.Oldest.Round(time.Second).String(), "error", err)
		}
	}
}

// round seals what there is, and says what is left. The end of the context, which
// calls for the last round, does not cut it off.
func (s *sealer) round(ctx context.Context) (audit.Tail, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sealWithin)
	defer cancel()
	_, err := audit.Seal(ctx, s.db)
	tail, terr := audit.TailOf(ctx, s.db, "")
	if terr == nil {
		s.oldest.Store(int64(tail.Oldest))
	}
	return tail, errors.Join(err, terr)
}
