package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/zopday/provisioner/internal/job"
)

// clocksApart is how far the time at which a job says that it began may be ahead of
// the database's, at the very most.
const clocksApart = 10 * time.Minute

// LastChanges are the last changes of a subject's pools, by remediation jobs other
// than except, however many have come since. Jobs are read from the one that was
// written last, until no older one can have begun after those that were found.
func (l *Ledger) LastChanges(ctx context.Context, org, subjectID, except string, pools []string) (job.LastChanges, error) {
	rows, err := l.d.Query(ctx, `SELECT `+jobColumns+` FROM provisioning_jobs
		WHERE org_id = $1 AND subject_id = $2 AND kind = 'remediation' AND id <> $3 ORDER BY updated_at DESC, id DESC`, org, subjectID, except)
	if err != nil {
		return nil, fmt.Errorf("remediation jobs of %s: %w", subjectID, err)
	}
	defer rows.Close()
	out := job.LastChanges{}
	for rows.Next() {
		j, err := scanJob(rows)
		if err != nil {
			return nil, fmt.Errorf("remediation jobs of %s: %w", subjectID, err)
		}
		if since, all := out.Since(pools); all && j.UpdatedAt.Add(clocksApart).Before(since) {
			break // a job is written when it begins, and this one was not since
		}
		out.Add(j)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("remediation jobs of %s: %w", subjectID, err)
	}
	return out, nil
}
