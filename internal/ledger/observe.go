package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// unheld are the jobs that an observer may write: finished, as it has read them,
// and nobody works on them.
const unheld = `id = $1 AND version = $2 AND status = 'completed' AND lease_token IS NULL`

// Observe records what an observer saw of a finished job: its infraConfig, if
// the job's row still has the version that the observer read and nobody works on
// it. It raises the version and leaves the spec's revision and UpdatedAt alone.
// An observation that differs from what is stored by its time alone writes that
// time and nothing else, and the version stays. ErrConflict means that the job
// has moved on.
func (l *Ledger) Observe(ctx context.Context, id string, version int64, infra job.InfraConfig) error {
	text, err := jsonText(infra, false)
	if err != nil {
		return fmt.Errorf("job %s: infraConfig: %w", id, err)
	}
	same, err := l.sawTheSame(ctx, id, version, infra)
	if err != nil {
		return fmt.Errorf("job %s: observe: %w", id, err)
	}
	set, args := `observed_at = `+l.now+`, looked_at = `+l.now, []any{id, version}
	if !same {
		set, args = set+`, infra_config = $3, version = version + 1`, append(args, *text)
	}
	n, err := l.d.Exec(ctx, `UPDATE provisioning_jobs SET `+set+` WHERE `+unheld, args...)
	if err != nil {
		return fmt.Errorf("job %s: observe: %w", id, err)
	}
	if n == 0 {
		return fmt.Errorf("job %s: %w", id, ErrConflict)
	}
	return nil
}

// sawTheSame reports whether infra is what is stored, but for its time.
func (l *Ledger) sawTheSame(ctx context.Context, id string, version int64, infra job.InfraConfig) (bool, error) {
	var text []byte
	err := l.d.QueryRow(ctx, `SELECT infra_config FROM provisioning_jobs WHERE `+unheld, id, version).Scan(&text)
	if errors.Is(err, db.ErrNoRows) {
		return false, nil // the update finds the same, and says so
	}
	if err != nil {
		return false, err
	}
	var stored job.InfraConfig
	if err := json.Unmarshal(text, &stored); err != nil {
		return false, fmt.Errorf("infra_config: %w", err)
	}
	if stored.ObservedAt == nil {
		return false, nil // the first observation is written whole
	}
	stored.ObservedAt, infra.ObservedAt = nil, nil
	before, err := json.Marshal(stored)
	if err != nil {
		return false, err
	}
	after, err := json.Marshal(infra)
	if err != nil {
		return false, err
	}
	return bytes.Equal(before, after), nil
}

// ObserveFailed records that an observer tried to look at a finished job and
// could not: others come first then, as after an observation. What is known of
// the job, its version and the time of its last observation stay. A job that has
// moved on meanwhile is left alone, without an error.
func (l *Ledger) ObserveFailed(ctx context.Context, id string, version int64) error {
	if _, err := l.d.Exec(ctx, `UPDATE provisioning_jobs SET looked_at = `+l.now+` WHERE `+unheld, id, version); err != nil {
		return fmt.Errorf("job %s: observe: %w", id, err)
	}
	return nil
}

// Observable returns up to n completed jobs of a family, of all organisations,
// that no observer has looked at for every, those that wait longest first.
func (l *Ledger) Observable(ctx context.Context, rt job.ResourceType, every time.Duration, n int) ([]job.Job, error) {
	return l.selectJobs(ctx, `status = 'completed' AND kind = 'provisioning' AND resource_type = $1 AND (looked_at IS NULL OR looked_at <= `+l.now+` - $2)
		ORDER BY coalesce(looked_at, 0), id LIMIT $3`, string(rt), every.Microseconds(), n)
}
