package provision

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/access"
)

// One walk through an audit log at a time: whoever waits can leave, and another
// organisation does not wait.
func TestWalksOfTheAuditLog(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	done, err := b.walks.take(b.ctx, "org1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(b.ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := b.VerifyAudit(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("who waits cannot leave: %v", err)
	}
	if _, err := b.Ledger.DB().Exec(b.ctx, `INSERT INTO organisations (id, name, created_at) VALUES ('org2', 'org2', $1)`, time.Now().UnixMicro()); err != nil {
		t.Fatal(err)
	}
	other := access.With(t.Context(), access.Of("org2", "olga", access.Admin))
	if check, err := b.VerifyAudit(other); err != nil || !check.Whole {
		t.Errorf("another organisation: %+v, %v", check, err)
	}
	walked := make(chan error, 1)
	go func() {
		_, err := b.VerifyAudit(b.ctx)
		walked <- err
	}()
	select {
	case err := <-walked:
		t.Errorf("two walks at a time: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	done()
	if err := <-walked; err != nil {
		t.Errorf("the next walk: %v", err)
	}
	if n := len(b.walks.of); n != 0 {
		t.Errorf("%d turns are left", n)
	}
}
