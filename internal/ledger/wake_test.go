package ledger_test

import (
	"context"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/pgtest"
)

// woken reports whether a word arrives within d.
func woken(c <-chan struct{}, d time.Duration) bool {
	select {
	case <-c:
		return true
	case <-time.After(d):
		return false
	}
}

func TestNotifyWakes(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		ctx, cancel := context.WithCancel(e.ctx)
		defer cancel()
		// On PostgreSQL the waiter is another process.
		waiter := e.Ledger
		if e.d.Dialect() == db.Postgres {
			waiter = ledger.New(e.d, ledger.Options{})
		}
		c := waiter.Wakeups(ctx)
		if e.d.Dialect() == db.Postgres && !woken(c, 30*time.Second) {
			t.Fatal("no word when listening began")
		}
		if woken(c, 50*time.Millisecond) {
			t.Fatal("a word without a cause")
		}
		for range 3 {
			must(t, e.Notify(e.ctx))
			if !woken(c, 30*time.Second) {
				t.Fatal("no word after Notify")
			}
		}
		other := waiter.Wakeups(e.ctx)
		if e.d.Dialect() == db.Postgres {
			woken(other, 30*time.Second)
		}
		must(t, e.Notify(e.ctx))
		if !woken(c, 30*time.Second) || !woken(other, 30*time.Second) {
			t.Error("of two that wait not both were woken")
		}
		cancel()
		time.Sleep(20 * time.Millisecond)
		must(t, e.Notify(e.ctx))
		if !woken(other, 30*time.Second) {
			t.Error("the one that still waits was not woken")
		}
	})
}

func TestWakeupsComeBackAfterARestart(t *testing.T) {
	s := pgtest.Start(t)
	dsn := s.Database(t)
	e := open(t, dsn)
	c := ledger.New(e.d, ledger.Options{}).Wakeups(e.ctx) // another process's, so that a word takes the way over the server
	if !woken(c, 30*time.Second) {
		t.Fatal("no word when listening began")
	}
	s.Restart(t)
	if !woken(c, 30*time.Second) {
		t.Fatal("no word when listening began again")
	}
	deadline := time.Now().Add(20 * time.Second)
	for err := e.Notify(e.ctx); err != nil; err = e.Notify(e.ctx) {
		if !db.Transient(err) || time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if !woken(c, 30*time.Second) {
		t.Error("no word after Notify")
	}
}
