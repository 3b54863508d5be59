package ledger_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
)

// datastore is a finished datastore job.
func (e *env) datastore(t *testing.T) *job.Job {
	return e.insert(t, func(j *job.Job) {
		j.ResourceType, j.SubjectType, j.Status = job.Datastore, "datastore", job.Completed
	})
}

func (e *env) addDatabase(t *testing.T, j *job.Job, name string) (job.LogicalDatabase, bool) {
	t.Helper()
	id := job.NewID("db")
	d := job.LogicalDatabase{ID: id, JobID: j.ID, Name: name, OwnerRole: job.RoleName(name, id), Status: job.LogicalPending, CreatedBy: "ada"}
	var added bool
	err := e.d.InTx(e.ctx, func(ctx context.Context, tx db.Q) error {
		var err error
		d, added, err = e.AddDatabase(ctx, tx, org, d)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return d, added
}

// TestLogicalRaceEndsAsOne lets many ask for the same database at once.
func TestLogicalRaceEndsAsOne(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		j := e.datastore(t)
		var mu sync.Mutex
		ids, made := map[string]bool{}, 0
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				d, added := e.addDatabase(t, j, "orders")
				mu.Lock()
				defer mu.Unlock()
				ids[d.ID] = true
				if added {
					made++
				}
			})
		}
		wg.Wait()
		all, err := e.Databases(e.ctx, org, j.ID)
		if err != nil || len(all) != 1 || len(ids) != 1 || made != 1 {
			t.Errorf("%d rows, %d IDs, %d made, error %v", len(all), len(ids), made, err)
		}
	})
}

// TestLogicalDeletionIsNotLost lets a person ask for a deletion while a worker is about to
// write that the thing is ready.
func TestLogicalDeletionIsNotLost(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		j := e.datastore(t)
		d, _ := e.addDatabase(t, j, "orders")
		if n, err := e.WakeLogical(e.ctx, 10); err != nil || n != 1 {
			t.Fatalf("%d jobs taken up, error %v", n, err)
		}
		if got := e.get(t, j.ID); got.State() != (job.State{Status: job.Queued, Phase: job.PhaseUpdate}) || got.VMOp != job.SyncDatabases || got.Run != 2 {
			t.Fatalf("the job is %s, %s, run %d", got.State(), got.VMOp, got.Run)
		}
		e.register(t, "w1")
		c := e.claim(t, "w1")
		ask := func(f func(ctx context.Context, tx db.Q) error) {
			t.Helper()
			if err := e.d.InTx(e.ctx, f); err != nil {
				t.Fatal(err)
			}
		}
		ask(func(ctx context.Context, tx db.Q) error { return e.AskDatabase(ctx, tx, org, d.ID, ledger.AskDelete) })
		d.Status, d.Secret = job.LogicalReady, 1
		if err := e.PutLogical(e.ctx, c.Lease, []job.LogicalDatabase{d}, nil); err != nil {
			t.Fatal(err)
		}
		all, err := e.Databases(e.ctx, org, j.ID)
		if err != nil || len(all) != 1 || all[0].Status != job.LogicalDeleting || all[0].Secret != 1 {
			t.Fatalf("%+v, error %v", all, err)
		}
		// Its creation that fails takes the request with it as little; its deletion does.
		d.Status = job.LogicalFailed
		if err := e.PutLogical(e.ctx, c.Lease, []job.LogicalDatabase{d}, nil); err != nil {
			t.Fatal(err)
		}
		if all, _ = e.Databases(e.ctx, org, j.ID); all[0].Status != job.LogicalDeleting {
			t.Errorf("after a failed creation it is %s", all[0].Status)
		}
		d.Dropping, d.Error = true, &job.Error{Code: "denied", Message: "no"}
		if err := e.PutLogical(e.ctx, c.Lease, []job.LogicalDatabase{d}, nil); err != nil {
			t.Fatal(err)
		}
		if all, _ = e.Databases(e.ctx, org, j.ID); all[0].Status != job.LogicalFailed || all[0].Error.Code != "denied" {
			t.Errorf("after a failed deletion it is %s: %+v", all[0].Status, all[0].Error)
		}
	})
}

// TestLogicalNeedsTheLease refuses the rows of a worker that was overtaken.
func TestLogicalNeedsTheLease(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		j := e.datastore(t)
		d, _ := e.addDatabase(t, j, "orders")
		if _, err := e.WakeLogical(e.ctx, 10); err != nil {
			t.Fatal(err)
		}
		e.register(t, "w1", "w2")
		old := e.claim(t, "w1")
		e.expire(t, j.ID)
		e.claim(t, "w2")
		d.Status = job.LogicalReady
		if err := e.PutLogical(e.ctx, old.Lease, []job.LogicalDatabase{d}, nil); !errors.Is(err, ledger.ErrLeaseLost) {
			t.Errorf("the overtaken worker's row: %v", err)
		}
		if all, _ := e.Databases(e.ctx, org, j.ID); all[0].Status != job.LogicalPending {
			t.Errorf("the row is %s", all[0].Status)
		}
	})
}

// TestRotation says that a rotation is carried out once, and shown once more.
func TestRotation(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		j := e.datastore(t)
		id := job.NewID("con")
		con := job.Connection{ID: id, JobID: j.ID, DatabaseID: "db_1", Service: "checkout", Access: job.ReadOnly, Role: "checkout_1", Status: job.LogicalPending, CreatedBy: "ada"}
		ask := func(asks ...ledger.Ask) {
			t.Helper()
			for _, a := range asks {
				if err := e.d.InTx(e.ctx, func(ctx context.Context, tx db.Q) error { return e.AskConnection(ctx, tx, org, id, "bob", a) }); err != nil {
					t.Fatal(err)
				}
			}
		}
		one := func() job.Connection {
			t.Helper()
			all, err := e.Connections(e.ctx, org, j.ID)
			if err != nil || len(all) != 1 {
				t.Fatalf("%+v, error %v", all, err)
			}
			return all[0]
		}
		if err := e.d.InTx(e.ctx, func(ctx context.Context, tx db.Q) error { _, _, err := e.AddConnection(ctx, tx, org, con); return err }); err != nil {
			t.Fatal(err)
		}
		if _, err := e.WakeLogical(e.ctx, 10); err != nil {
			t.Fatal(err)
		}
		e.register(t, "w1")
		lease := e.claim(t, "w1").Lease
		con = one()
		con.Status, con.Secret, con.Begun = job.LogicalReady, 1, true
		if err := e.PutLogical(e.ctx, lease, nil, []job.Connection{con}); err != nil {
			t.Fatal(err)
		}
		ask(ledger.AskReveal)
		if got := one(); got.RevealedAt == nil || got.RevealedBy != "bob" || got.Status != job.LogicalReady {
			t.Errorf("revealed: %+v", got)
		}
		ask(ledger.AskRotate, ledger.AskRotate)
		if got := one(); got.Status != job.LogicalRotating || got.Wanted != 2 || got.RevealedAt != nil || got.RotatedAt == nil {
			t.Errorf("rotating: %+v", got)
		}
		con = one()
		con.Secret = 2
		if err := e.PutLogical(e.ctx, lease, nil, []job.Connection{con}); err != nil {
			t.Fatal(err)
		}
		if got := one(); got.Status != job.LogicalReady || got.Secret != 2 {
			t.Errorf("rotated: %+v", got)
		}
	})
}
