package ledger_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/pgtest"
)

// A webhook that is switched off and removed at the same moment: both take its row
// before its messages, so neither is the victim of a deadlock.
func TestWebhooksAreLockedInOneOrder(t *testing.T) {
	t.Parallel()
	e := open(t, pgtest.ServiceDatabase(t))
	w := &job.Webhook{ID: "wh_1", OrgID: org, Name: "ops", URL: "https://ops.example.com", Enabled: true, CreatedBy: "ada"}
	if err := e.AddWebhook(e.ctx, e.d, w); err != nil {
		t.Fatal(err)
	}
	for _, random := range []string{"a", "b"} {
		if _, err := e.AddDelivery(e.ctx, e.d, org, w.ID, "test", "{}", time.Now(), random); err != nil {
			t.Fatal(err)
		}
	}
	removed := make(chan error, 1)
	err := e.d.InTx(e.ctx, func(ctx context.Context, tx db.Q) error {
		_, err := e.ChangeWebhook(ctx, tx, org, w.ID, func(w *job.Webhook) error {
			go func() {
				removed <- e.d.InTx(e.ctx, func(ctx context.Context, tx db.Q) error { return e.DeleteWebhook(ctx, tx, org, w.ID) })
			}()
			for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
				var waiting int
				if err := e.d.QueryRow(e.ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting); err != nil {
					return err
				}
				if waiting > 0 {
					break
				}
				if time.Now().After(end) {
					return errors.New("the removal does not wait")
				}
			}
			w.Enabled = false
			return nil
		})
		return err
	})
	if err != nil {
		t.Errorf("switched off: %v", err)
	}
	if err := <-removed; err != nil {
		t.Errorf("removed: %v", err)
	}
	if _, err := e.Webhook(e.ctx, e.d, org, w.ID); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("after the removal: %v", err)
	}
	if left, err := e.Deliveries(e.ctx, org, w.ID, "", "", 10); err != nil || len(left) > 0 {
		t.Errorf("%d messages are left, %v", len(left), err)
	}
	if err := e.DeleteWebhook(e.ctx, e.d, org, w.ID); err != nil {
		t.Errorf("removed twice: %v", err)
	}
}
