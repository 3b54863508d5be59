package ledger

import (
	"context"

	"github.com/zopday/provisioner/internal/job"
)

// remediationsKept is how far back a subject's remediation jobs are read: a pool
// that is paused was paused by one of the last of them.
const remediationsKept = 200

// Remediations are the remediation jobs of a subject, the newest first.
func (l *Ledger) Remediations(ctx context.Context, org, subjectID string) ([]job.Job, error) {
	return l.selectJobs(ctx, `org_id = $1 AND subject_id = $2 AND kind = 'remediation' ORDER BY created_at DESC, id DESC LIMIT $3`, org, subjectID, int64(remediationsKept))
}
