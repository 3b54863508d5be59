package ledger

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pgtest"
)

// A checkpoint whose reply was lost is sent again: it is written once, and the
// second answer is the first one's.
func TestCheckpointSentAgain(t *testing.T) {
	for dialect, dsn := range map[db.Dialect]func(testing.TB) string{
		db.SQLite:   func(t testing.TB) string { return filepath.Join(t.TempDir(), "zopday.db") },
		db.Postgres: pgtest.ServiceDatabase,
	} {
		for name, c := range map[string]Checkpoint{
			"progress":  {},
			"parked":    {Release: true, NextIn: time.Hour},
			"finished":  {Job: &job.Job{Status: job.Completed, Phase: job.PhaseProvision}},
			"by itself": {Release: true, Audit: []audit.Entry{{Org: "o", Actor: "a", Action: "b", Outcome: audit.Allowed}}},
		} {
			t.Run(string(dialect)+"/"+name, func(t *testing.T) {
				t.Parallel()
				ctx := db.System(t.Context())
				d, err := db.Open(ctx, dsn(t))
				if err != nil {
					t.Fatal(err)
				}
				defer d.Close()
				if err := d.Migrate(ctx); err != nil {
					t.Fatal(err)
				}
				l := New(d, Options{})
				j := &job.Job{ID: job.NewID("job"), OrgID: "o", Name: "n", SubjectID: "s", Status: job.Queued, Phase: job.PhaseProvision}
				if err := l.Insert(ctx, d, j); err != nil {
					t.Fatal(err)
				}
				if err := l.Register(ctx, Worker{ID: "w"}); err != nil {
					t.Fatal(err)
				}
				cs, err := l.Claim(ctx, "w", 1, ClaimOptions{})
				if err != nil || len(cs) != 1 {
					t.Fatal(cs, err)
				}
				if c.Job == nil {
					c.Job = cs[0].Job
				}
				c.Job.ID = j.ID
				c.Events = []job.Event{{Type: "note"}, {Type: "note"}}
				w, err := newWrite(cs[0].Lease, c)
				if err != nil {
					t.Fatal(err)
				}
				var version int64
				for i := range 3 {
					w.err = nil
					l.gather.flush(db.System(context.Background()), []*write{w})
					if w.err != nil {
						t.Fatalf("time %d: %v", i+1, w.err)
					}
					events, err := l.Events(ctx, "o", j.ID, 0, 100)
					if err != nil || len(events) != 2 {
						t.Fatalf("time %d: %d events, %v", i+1, len(events), err)
					}
					now, err := l.Get(ctx, "o", j.ID)
					if err != nil {
						t.Fatal(err)
					}
					if version == 0 {
						version = now.Version
					} else if now.Version != version {
						t.Errorf("time %d: version %d, want %d", i+1, now.Version, version)
					}
				}
				if _, err := audit.Seal(ctx, d); err != nil {
					t.Fatal(err)
				}
				if head, err := audit.Verify(ctx, d, "o"); err != nil || head.Seq != int64(len(c.Audit)) {
					t.Errorf("%d audit entries, %v", head.Seq, err)
				}
				// Another write under the same lease is another write.
				second, err := newWrite(cs[0].Lease, c)
				if err != nil {
					t.Fatal(err)
				}
				l.gather.flush(db.System(context.Background()), []*write{second})
				if lost := second.err != nil; lost != (c.Release || !c.Job.State().Active()) {
					t.Errorf("another write: %v", second.err)
				}
			})
		}
	}
}
