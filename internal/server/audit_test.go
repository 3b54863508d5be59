package server

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/observe"
	"github.com/zopday/provisioner/internal/pgtest"
)

// Fifty writers at once: everything they wrote is sealed within five seconds of
// the last of it, by two processes that seal beside one another.
func TestSealerKeepsUp(t *testing.T) {
	const (
		writers = 50
		each    = 40
		within  = 5 * time.Second
	)
	for name, dsn := range map[string]func(testing.TB) string{
		"sqlite":   func(t testing.TB) string { return filepath.Join(t.TempDir(), "zopday.db") },
		"postgres": pgtest.ServiceDatabase,
	} {
		t.Run(name, func(t *testing.T) {
			d, err := db.Open(t.Context(), dsn(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Close() })
			ctx := db.System(t.Context())
			if d.Dialect() == db.SQLite {
				if err := d.Migrate(ctx); err != nil {
					t.Fatal(err)
				}
			}
			sctx, stop := context.WithCancel(ctx)
			var sealers, work sync.WaitGroup
			for range 2 {
				s := &sealer{db: d, log: slog.New(slog.DiscardHandler)}
				sealers.Go(func() { s.run(sctx) })
			}
			defer sealers.Wait()
			defer stop()
			for w := range writers {
				work.Go(func() {
					for i := range each {
						org := fmt.Sprint("o", i%3)
						err := d.InTx(db.WithOrg(ctx, org), func(ctx context.Context, tx db.Q) error {
							return audit.Append(ctx, tx, audit.Entry{Org: org, Actor: fmt.Sprint("w", w), Action: "a:b", Outcome: audit.Allowed})
						})
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
			began := time.Now()
			work.Wait()
			took, last := time.Since(began), time.Now()
			for {
				tail, err := audit.TailOf(ctx, d, "")
				if err != nil {
					t.Fatal(err)
				}
				if tail.Unsealed == 0 {
					break
				}
				if time.Since(last) > within {
					t.Fatalf("%d entries are not sealed %s after the last was written", tail.Unsealed, within)
				}
				time.Sleep(20 * time.Millisecond)
			}
			t.Logf("%d entries written in %s, sealed %s after the last", writers*each, took.Round(time.Millisecond), time.Since(last).Round(time.Millisecond))
			var sum int64
			for i := range 3 {
				r, err := audit.Verify(ctx, d, fmt.Sprint("o", i))
				if err != nil {
					t.Error(err)
				}
				sum += r.Seq
			}
			if sum != writers*each {
				t.Errorf("%d entries in the chains, want %d", sum, writers*each)
			}
		})
	}
}

// A log that is not being sealed is complained of, and shows in the numbers.
func TestSealerThatCannotIsHeard(t *testing.T) {
	d, err := db.Open(t.Context(), filepath.Join(t.TempDir(), "zopday.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	ctx := t.Context()
	if err := d.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	if err := audit.Append(ctx, d, audit.Entry{Org: "o", Actor: "a", Action: "b:c", Outcome: audit.Allowed}); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{
		`CREATE TRIGGER stuck BEFORE UPDATE ON audit_log BEGIN SELECT RAISE(ABORT, 'stuck'); END`, `DROP TRIGGER audit_log_update`,
	} {
		if _, err := d.Exec(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	var said strings.Builder
	s := &sealer{db: d, log: observe.NewLogger(&said, slog.LevelError, true)}
	rctx, stop := context.WithCancel(ctx)
	stop() // one round, as at the end of a process
	s.run(rctx)
	if !strings.Contains(said.String(), "not being sealed") || !strings.Contains(said.String(), "stuck") {
		t.Errorf("the log says %q", said.String())
	}
	m := observe.NewMetrics()
	m.WatchAudit(s.age)
	if s.age() <= 0 || s.age() > time.Minute {
		t.Errorf("the oldest has been waiting for %s", s.age())
	}
}
