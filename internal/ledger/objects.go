package ledger

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// objectNames are the placeholders of an inventory row, with their types on
// PostgreSQL. The times may be missing.
var objectNames = []struct{ name, pgType string }{
	{"job_id", "text"}, {"kind", "text"}, {"key", "text"}, {"cloud", "text"}, {"account", "text"}, {"region", "text"}, {"cloud_id", "text"},
	{"name", "text"}, {"step", "text"}, {"state", "text"}, {"generation", "bigint"}, {"reason", "text"},
	{"intent_at", "bigint"}, {"created_at", "bigint"}, {"removed_at", "bigint"},
}

func objectArgs(id string, o *job.Object) []any {
	return []any{id, o.Kind, o.Key, string(o.Cloud), o.Account, o.Region, o.ID, o.Name, o.Step, string(o.State), int64(o.Generation), o.Reason,
		micros(o.IntentAt), micros(o.CreatedAt), micros(o.RemovedAt)}
}

// objectInto and objectValues make an inventory row of what the worker gave.
// A time that it left out is the database's when the row enters the state that
// the time belongs to, and within one generation the first one stays. An intent's
// time is that of the last create that was about to be sent: it starts the window
// in which a look-up that finds nothing proves nothing.
const (
	objectInto = `INSERT INTO inventory (job_id, kind, key, org_id, cloud, account, region, cloud_id, name, step, state, generation, reason,
		intent_at, created_at, removed_at)`
	objectValues = `{job_id}, {kind}, {key}, {org_id}, {cloud}, {account}, {region}, {cloud_id}, {name}, {step}, {state}, {generation}, {reason},
		coalesce({intent_at}, CASE WHEN {state} = 'intended' THEN {now} END),
		coalesce({created_at}, CASE WHEN {state} IN ('created', 'kept') THEN {now} END),
		coalesce({removed_at}, CASE WHEN {state} = 'removed' THEN {now} END)`
	objectConflict = ` ON CONFLICT (job_id, kind, key) DO UPDATE SET cloud = excluded.cloud, account = excluded.account, region = excluded.region,
		cloud_id = excluded.cloud_id, name = excluded.name, step = excluded.step, state = excluded.state, generation = excluded.generation,
		reason = excluded.reason,
		intent_at = CASE WHEN inventory.generation = excluded.generation AND excluded.state <> 'intended'
			THEN coalesce(inventory.intent_at, excluded.intent_at) ELSE excluded.intent_at END,
		created_at = CASE WHEN inventory.generation = excluded.generation THEN coalesce(inventory.created_at, excluded.created_at) ELSE excluded.created_at END,
		removed_at = excluded.removed_at`
)

// composeObject is the statement that writes one inventory row; its last
// placeholder is the organisation.
func composeObject(now string) string {
	pairs := []string{"{now}", now, "{org_id}", fmt.Sprintf("$%d", len(objectNames)+1)}
	for i, f := range objectNames {
		pairs = append(pairs, "{"+f.name+"}", fmt.Sprintf("CAST($%d AS %s)", i+1, f.pgType))
	}
	return strings.NewReplacer(pairs...).Replace(objectInto + ` VALUES (` + objectValues + `)` + objectConflict)
}

func (l *Ledger) upsertObjects(ctx context.Context, tx db.Q, org, id string, objs []job.Object) error {
	for i := range objs {
		if _, err := tx.Exec(ctx, l.sql.object, append(objectArgs(id, &objs[i]), org)...); err != nil {
			return fmt.Errorf("inventory %s %s: %w", objs[i].Kind, objs[i].Key, err)
		}
	}
	return nil
}

// PutObjects writes inventory rows under a lease, in the midst of a step: an
// intent before the create that takes no token, an ID the moment it is known.
// ErrLeaseLost means that nothing was written. An object that another job has
// is an *OwnedElsewhereError: to tear down the one job would take it from the
// other (failure kind A13).
func (l *Ledger) PutObjects(ctx context.Context, lease Lease, objs ...job.Object) error {
	if len(objs) == 0 {
		return nil
	}
	objs = lastOfEach(objs, func(o job.Object) [4]string { return [4]string{o.Kind, o.Key} })
	err := l.d.InTx(ctx, func(ctx context.Context, tx db.Q) error {
		// The lock keeps the lease from being taken over until the rows are in.
		var org string
		err := tx.QueryRow(ctx, `SELECT org_id FROM provisioning_jobs WHERE `+l.held()+db.ForUpdate(tx.Dialect()), lease.JobID, lease.Token).Scan(&org)
		if errors.Is(err, db.ErrNoRows) {
			return ErrLeaseLost
		}
		if err != nil {
			return err
		}
		return l.upsertObjects(ctx, tx, org, lease.JobID, objs)
	})
	if db.Unique(err) {
		if owned := l.whoOwns(ctx, lease.OrgID, lease.JobID, objs); owned != nil {
			err = owned
		}
	}
	if err != nil {
		return fmt.Errorf("job %s: %w", lease.JobID, err)
	}
	return nil
}

// whoOwns finds the first of a job's objects that the inventory has as another
// job's; nil if there is none.
func (l *Ledger) whoOwns(ctx context.Context, org, id string, objs []job.Object) error {
	for _, o := range objs {
		if o.ID == "" || o.State != job.ObjectCreated && o.State != job.ObjectKept {
			continue
		}
		var holder, holderOrg, key string
		err := l.d.QueryRow(ctx, `SELECT job_id, org_id, key FROM inventory WHERE cloud = $1 AND account = $2 AND region = $3 AND kind = $4 AND cloud_id = $5
			AND state IN ('created', 'kept') AND NOT (job_id = $6 AND key = $7)`,
			string(o.Cloud), o.Account, o.Region, o.Kind, o.ID, id, o.Key).Scan(&holder, &holderOrg, &key)
		if errors.Is(err, db.ErrNoRows) {
			continue
		}
		if err != nil {
			return err
		}
		if holder == id {
			return fmt.Errorf("%s %s is in the job's inventory already, as %s", o.Kind, o.ID, key)
		}
		if holderOrg != org {
			holder = ""
		}
		return &OwnedElsewhereError{JobID: holder, Object: o}
	}
	return nil
}
