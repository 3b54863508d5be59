package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// Change is a person's write: it locks the job's row, lets fn edit the job, and
// writes it back with its version raised. q is a transaction, so that events and
// audit entries go with it; if it is nil, Change makes one.
//
// What people own (name, mode, provider, region, cloud account, labels, spec,
// spec revision, cancelling) may be edited at any time. What the engine owns
// (status, phase, run, vmOp, step, waiting, attempts, infraConfig, outputs,
// error) may be edited only while no worker holds the job: with Standing.Leased,
// an edit of it is ErrLeased, and a deletion is asked for by Cancelling instead.
// The two sets are disjoint columns, so a checkpoint and a Change never
// overwrite each other. A job that becomes active, or changes its state while
// active, is due at once. fn raises SpecRevision itself where that is meant.
func (l *Ledger) Change(ctx context.Context, q db.Q, org, id string, fn func(j *job.Job, s Standing) error) (*job.Job, error) {
	var out *job.Job
	err := l.inTx(ctx, q, func(ctx context.Context, tx db.Q) error {
		var (
			s       Standing
			expires int64
		)
		j, err := l.get(ctx, tx, org, id, db.ForUpdate(tx.Dialect()), s.dest(&expires)...)
		if err != nil {
			return err
		}
		s.settle(expires)
		before := *j
		before.Labels = maps.Clone(j.Labels)
		engineBefore, err := encodeEngine(j)
		if err != nil {
			return err
		}
		if err := fn(j, s); err != nil {
			return err
		}
		engine, err := encodeEngine(j)
		if err != nil {
			return err
		}
		if fixed(&before) != fixed(j) {
			return fmt.Errorf("job %s: its ID, organisation, kind, resource type, subject and creator are fixed", id)
		}
		if s.Leased && (scalars(&before) != scalars(j) || !reflect.DeepEqual(engineBefore, engine)) {
			return fmt.Errorf("job %s: %w", id, ErrLeased)
		}
		if err := l.checkUnique(ctx, tx, &before, j); err != nil {
			return err
		}
		if err := l.writeChange(ctx, tx, &before, j, s, engine); err != nil {
			return err
		}
		out = j
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// fixed are the fields that no write changes.
func fixed(j *job.Job) [8]string {
	return [8]string{j.ID, j.OrgID, string(j.Kind), string(j.ResourceType), j.SubjectType, j.SubjectID, j.CreatedBy, j.CreatedAt.String()}
}

// scalars are the engine's fields that are no documents.
func scalars(j *job.Job) [8]any {
	return [8]any{j.Status, j.Phase, j.Run, j.VMOp, j.CurrentStep, j.WaitingFor, j.Attempts}
}

// checkUnique names the holder of what the change would take, while the
// transaction is still usable.
func (l *Ledger) checkUnique(ctx context.Context, tx db.Q, before, j *job.Job) error {
	if j.State().Live() && (before.Name != j.Name || !before.State().Live()) {
		if holder, err := l.nameHolder(ctx, tx, j); err != nil {
			return err
		} else if holder != "" {
			return &NameTakenError{holder}
		}
	}
	if j.State().Active() && !before.State().Active() {
		if holder, err := l.subjectHolder(ctx, tx, j); err != nil {
			return err
		} else if holder != "" {
			return &SubjectBusyError{holder}
		}
	}
	return nil
}

func (l *Ledger) writeChange(ctx context.Context, tx db.Q, before, j *job.Job, s Standing, engine engineJSON) error {
	labels, err := json.Marshal(j.Labels)
	if err != nil {
		return fmt.Errorf("job %s: labels: %w", j.ID, err)
	}
	if j.Labels == nil {
		labels = []byte("{}")
	}
	args := []any{j.OrgID, j.ID, j.Name, string(j.Mode), string(j.Provider), j.Region, j.CloudAccountID, string(labels), j.SpecRevision, j.Cancelling}
	set := []string{"name = $3", "mode = $4", "provider = $5", "region = $6", "cloud_account_id = $7", "labels = $8", "spec_revision = $9", "cancel_requested = $10"}
	add := func(column string, v any) {
		args = append(args, v)
		set = append(set, fmt.Sprintf("%s = $%d", column, len(args)))
	}
	if !bytes.Equal(before.Config.Spec, j.Config.Spec) {
		add("spec", specText(j))
	}
	if !s.Leased {
		add("status", string(j.Status))
		add("phase", string(j.Phase))
		add("run", int64(j.Run))
		add("vm_op", string(j.VMOp))
		add("current_step", j.CurrentStep)
		add("waiting_for", j.WaitingFor)
		add("attempts", int64(j.Attempts))
		add("infra_config", engine.infra)
		add("outputs", engine.outputs)
		add("error", engine.failure)
		// A lease that ran out is taken away, so that its holder stays out even
		// if the database's clock is set back.
		set = append(set, "lease_owner = ''", "lease_token = NULL", "lease_expires_at = NULL")
		switch {
		case !j.State().Active():
			set = append(set, "next_run_at = NULL")
		case j.State() != before.State():
			set = append(set, "next_run_at = "+l.now)
		case j.NextRunAt != nil && (before.NextRunAt == nil || !j.NextRunAt.Equal(*before.NextRunAt)):
			add("next_run_at", j.NextRunAt.UnixMicro())
		}
	}
	var (
		updated int64
		next    *int64
	)
	err = tx.QueryRow(ctx, `UPDATE provisioning_jobs SET `+strings.Join(set, ", ")+`, version = version + 1, updated_at = `+l.now+`
		WHERE org_id = $1 AND id = $2 RETURNING version, updated_at, next_run_at`, args...).Scan(&j.Version, &updated, &next)
	if db.Unique(err) {
		// Somebody else came between the check and the write; nothing more can
		// be asked in this transaction on PostgreSQL.
		if j.State().Active() && !before.State().Active() {
			return &SubjectBusyError{}
		}
		return &NameTakenError{}
	}
	if err != nil {
		return fmt.Errorf("job %s: %w", j.ID, err)
	}
	j.UpdatedAt, j.NextRunAt = fromMicros(updated), timePtr(next)
	return nil
}
