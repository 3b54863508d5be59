package audit_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func conform(t *testing.T, test func(t *testing.T, d *db.DB)) {
	for name, dsn := range map[string]func(t testing.TB) string{
		"sqlite":   func(t testing.TB) string { return filepath.Join(t.TempDir(), "zopday.db") },
		"postgres": pgtest.Database,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, openOn(t, dsn(t)))
		})
	}
}

func openOn(t testing.TB, dsn string) *db.DB {
	t.Helper()
	d, err := db.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

func add(t testing.TB, d *db.DB, entries ...audit.Entry) {
	t.Helper()
	err := d.InTx(context.Background(), func(ctx context.Context, tx db.Q) error { return audit.Append(ctx, tx, entries...) })
	if err != nil {
		t.Fatal(err)
	}
}

func entry(n int) audit.Entry {
	return audit.Entry{
		Org: "o1", Scope: "org", Actor: "ada", Action: "provisioning-job:create", ResourceType: "vm", ResourceID: fmt.Sprintf("job_%d", n),
		Outcome: audit.Allowed, RequestID: fmt.Sprintf("req_%d", n), Detail: map[string]any{"name": "<shop> & co", "n": "1", "a": []any{"x"}},
	}
}

// seal seals what there is, which has to be n entries.
func seal(t testing.TB, d *db.DB, n int) {
	t.Helper()
	if got, err := audit.Seal(t.Context(), d); err != nil || got != n {
		t.Fatalf("%d entries sealed, %v; want %d", got, err, n)
	}
}

// unguard takes away what keeps the tables from being tampered with.
func unguard(t testing.TB, d *db.DB) {
	t.Helper()
	statements := []string{`ALTER TABLE audit_log DISABLE TRIGGER USER`, `ALTER TABLE audit_heads DISABLE TRIGGER USER`}
	if d.Dialect() == db.SQLite {
		statements = []string{`DROP TRIGGER audit_log_insert`, `DROP TRIGGER audit_log_update`, `DROP TRIGGER audit_log_delete`, `DROP TRIGGER audit_heads_update`, `DROP TRIGGER audit_heads_delete`}
	}
	for _, s := range statements {
		if _, err := d.Exec(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

// requests are the request IDs of entries.
func requests(entries []audit.Entry) (ids []string) {
	for _, e := range entries {
		ids = append(ids, e.RequestID)
	}
	return ids
}

func TestAppendAndList(t *testing.T) {
	conform(t, func(t *testing.T, d *db.DB) {
		refused := audit.Entry{Org: "o1", Actor: "bob", Action: "provisioning-job:delete", Outcome: audit.Refused, RequestID: "r"}
		other := audit.Entry{Org: "o2", Actor: "ada", Action: "token:manage", Outcome: audit.Allowed}
		add(t, d, entry(1), refused, other, entry(2))
		add(t, d, entry(3))
		now := time.Now()
		for _, sealed := range []bool{false, true} {
			if sealed {
				seal(t, d, 5)
			}
			for name, tc := range map[string]struct {
				f    audit.Filter
				want []string
			}{
				"all":           {audit.Filter{}, []string{"req_3", "req_2", "r", "req_1"}},
				"actor":         {audit.Filter{Actor: "bob"}, []string{"r"}},
				"action":        {audit.Filter{Action: "provisioning-job:create"}, []string{"req_3", "req_2", "req_1"}},
				"scope":         {audit.Filter{Scope: "org", Limit: 2}, []string{"req_3", "req_2"}},
				"resource type": {audit.Filter{ResourceType: "vm"}, []string{"req_3", "req_2", "req_1"}},
				"resource":      {audit.Filter{ResourceID: "job_2"}, []string{"req_2"}},
				"request":       {audit.Filter{RequestID: "req_2"}, []string{"req_2"}},
				"outcome":       {audit.Filter{Outcome: audit.Refused}, []string{"r"}},
				"future":        {audit.Filter{From: now.Add(time.Hour)}, nil},
				"past":          {audit.Filter{To: now.Add(-time.Hour)}, nil},
				"range":         {audit.Filter{From: now.Add(-time.Hour), To: now.Add(time.Hour), Actor: "ada"}, []string{"req_3", "req_2", "req_1"}},
			} {
				got, next, err := audit.List(t.Context(), d, "o1", tc.f)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if diff := cmp.Diff(tc.want, requests(got)); diff != "" {
					t.Errorf("%s, sealed %t (-want +got):\n%s", name, sealed, diff)
				}
				if (next != "") != (name == "scope") {
					t.Errorf("%s: next %q", name, next)
				}
				if next != "" {
					tc.f.Cursor = next
					rest, end, err := audit.List(t.Context(), d, "o1", tc.f)
					if err != nil || end != "" || !cmp.Equal(requests(rest), []string{"req_1"}) {
						t.Errorf("%s: the next page is %v, %q, %v", name, requests(rest), end, err)
					}
				}
			}
			got, _, err := audit.List(t.Context(), d, "o1", audit.Filter{ResourceID: "job_3"})
			if err != nil || len(got) != 1 {
				t.Fatalf("%v, %v", got, err)
			}
			if diff := cmp.Diff(entry(3), got[0], cmpopts.IgnoreFields(audit.Entry{}, "ID", "Seq", "Time", "Hash")); diff != "" {
				t.Errorf("read back (-want +got):\n%s", diff)
			}
			if got[0].ID == "" || (got[0].Hash != "") != sealed || (got[0].Seq == 4) != sealed || time.Since(got[0].Time) > time.Hour {
				t.Errorf("read back, sealed %t: %+v", sealed, got[0])
			}
		}
		for _, org := range []string{"o1", "o2", "o3"} {
			if _, err := audit.Verify(t.Context(), d, org); err != nil {
				t.Errorf("Verify: %v", err)
			}
		}
		if orgs, err := audit.Orgs(t.Context(), d); err != nil || !cmp.Equal(orgs, []string{"default", "o1", "o2"}) {
			t.Errorf("Orgs: %v, %v", orgs, err)
		}
		for _, bad := range []audit.Entry{{Actor: "a", Action: "b", Outcome: "c"}, {Org: "a", Action: "b", Outcome: "c"}, {Org: "a", Actor: "a", Outcome: "c"}, {Org: "a", Actor: "a", Action: "b"}} {
			err := d.InTx(t.Context(), func(ctx context.Context, tx db.Q) error { return audit.Append(ctx, tx, bad) })
			if err == nil {
				t.Errorf("%+v was taken", bad)
			}
		}
	})
}

// Pages neither repeat nor leave out what was there when the first was read,
// whatever is written and sealed meanwhile.
func TestPagesHold(t *testing.T) {
	conform(t, func(t *testing.T, d *db.DB) {
		want := map[string]bool{}
		for i := range 30 {
			add(t, d, entry(i), entry(i+100))
			want[fmt.Sprintf("req_%d", i)], want[fmt.Sprintf("req_%d", i+100)] = true, true
		}
		f := audit.Filter{Limit: 7}
		seen := map[string]int{}
		for page := 0; ; page++ {
			got, next, err := audit.List(t.Context(), d, "o1", f)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range requests(got) {
				seen[id]++
			}
			if next == "" {
				break
			}
			f.Cursor = next
			add(t, d, entry(1000+page))
			if page%2 == 0 {
				if _, err := audit.Seal(t.Context(), d); err != nil {
					t.Fatal(err)
				}
			}
		}
		for id := range want {
			if seen[id] != 1 {
				t.Errorf("%s was listed %d times", id, seen[id])
			}
		}
		var n int
		err := audit.Each(t.Context(), d, "o1", audit.Filter{From: time.Now().Add(-time.Hour), Limit: 3}, func(audit.Entry) error { n++; return nil })
		if err != nil || n != len(want)+8 {
			t.Errorf("Each: %d entries, %v", n, err)
		}
		boom := errors.New("boom")
		if err := audit.Each(t.Context(), d, "o1", audit.Filter{}, func(audit.Entry) error { return boom }); !errors.Is(err, boom) {
			t.Errorf("Each: %v", err)
		}
	})
}

// An entry is there with the change it speaks of, or not at all.
func TestAppendIsPartOfTheTransaction(t *testing.T) {
	conform(t, func(t *testing.T, d *db.DB) {
		boom := errors.New("boom")
		add(t, d, entry(1))
		err := d.InTx(t.Context(), func(ctx context.Context, tx db.Q) error {
			if err := audit.Append(ctx, tx, entry(2)); err != nil {
				return err
			}
			return boom
		})
		if !errors.Is(err, boom) {
			t.Fatal(err)
		}
		// Many at once, and several sealers at once, make one chain.
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() { add(t, d, entry(i), entry(i+100)) })
			wg.Go(func() {
				if _, err := audit.Seal(context.Background(), d); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if _, err := audit.Seal(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		r, err := audit.Verify(t.Context(), d, "o1")
		if err != nil || r.Seq != 41 || r.Unsealed != 0 {
			t.Errorf("%+v, %v; want 41 entries", r, err)
		}
	})
}

// A transaction that commits late with an early time takes its place at the end
// of the chain, and nobody waits for it.
func TestWritersDoNotQueue(t *testing.T) {
	d := openOn(t, pgtest.Database(t))
	holding, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		err := d.InTx(t.Context(), func(ctx context.Context, tx db.Q) error {
			err := audit.Append(ctx, tx, entry(1))
			close(holding)
			<-release
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-holding
	done := make(chan struct{})
	go func() {
		defer close(done)
		add(t, d, entry(2))
		seal(t, d, 1)
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("a writer waits for another one's transaction")
	}
	if r, err := audit.Verify(t.Context(), d, "o1"); err != nil || r.Seq != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	close(release)
	wg.Wait()
	seal(t, d, 1)
	if r, err := audit.Verify(t.Context(), d, "o1"); err != nil || r.Seq != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	got, _, err := audit.List(t.Context(), d, "o1", audit.Filter{})
	if err != nil || len(got) != 2 || got[0].RequestID != "req_2" || got[0].Seq != 1 || got[1].Seq != 2 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestVerifyFindsTampering(t *testing.T) {
	const entries = 6
	for name, tc := range map[string]struct {
		statements []string
		seq        int64
	}{
		"changed actor":            {[]string{`UPDATE audit_log SET actor = 'eve' WHERE seq = 3`}, 3},
		"changed outcome":          {[]string{`UPDATE audit_log SET outcome = 'refused' WHERE seq = 1`}, 1},
		"changed time":             {[]string{`UPDATE audit_log SET time = time - 1 WHERE seq = 4`}, 4},
		"changed ID":               {[]string{`UPDATE audit_log SET id = 'log_x' WHERE seq = 4`}, 4},
		"changed scope":            {[]string{`UPDATE audit_log SET scope = 'team:x' WHERE seq = 4`}, 4},
		"changed request":          {[]string{`UPDATE audit_log SET request_id = '' WHERE seq = 4`}, 4},
		"changed resource":         {[]string{`UPDATE audit_log SET resource_id = 'x' WHERE seq = 4`}, 4},
		"moved between fields":     {[]string{`UPDATE audit_log SET resource_type = 'v', resource_id = 'm' || resource_id WHERE seq = 4`}, 4},
		"changed detail":           {[]string{`UPDATE audit_log SET detail = '{"n":"2"}' WHERE seq = 2`}, 2},
		"removed detail":           {[]string{`UPDATE audit_log SET detail = NULL WHERE seq = 2`}, 2},
		"removed in the middle":    {[]string{`DELETE FROM audit_log WHERE seq = 3`}, 3},
		"removed and closed up":    {[]string{`DELETE FROM audit_log WHERE seq = 3`, `UPDATE audit_log SET seq = seq - 1 WHERE seq = 4`, `UPDATE audit_log SET seq = seq - 1 WHERE seq = 5`, `UPDATE audit_log SET seq = seq - 1 WHERE seq = 6`}, 3},
		"removed first":            {[]string{`DELETE FROM audit_log WHERE seq = 1`}, 1},
		"cut off the end":          {[]string{`DELETE FROM audit_log WHERE seq > 4`}, 5},
		"cut off, head adjusted":   {[]string{`DELETE FROM audit_log WHERE seq > 4`, `UPDATE audit_heads SET seq = 4`}, 4},
		"all removed":              {[]string{`DELETE FROM audit_log`}, 1},
		"head removed":             {[]string{`DELETE FROM audit_heads`}, entries},
		"two changed places":       {[]string{`UPDATE audit_log SET seq = 99 WHERE seq = 2`, `UPDATE audit_log SET seq = 2 WHERE seq = 3`, `UPDATE audit_log SET seq = 3 WHERE seq = 99`}, 2},
		"hash recomputed for one":  {[]string{`UPDATE audit_log SET actor = 'eve', hash = '00' WHERE seq = 3`}, 3},
		"one put in at the end":    {[]string{`INSERT INTO audit_log (org_id, seq, id, time, actor, action, outcome, prev_hash, hash) VALUES ('o1', 7, 'x', 1, 'a', 'b', 'allowed', '', '00')`}, 7},
		"one put in at the front":  {[]string{`INSERT INTO audit_log (org_id, seq, id, time, actor, action, outcome, prev_hash, hash) VALUES ('o1', 0, 'x', 1, 'a', 'b', 'allowed', '', '00')`}, 1},
		"moved to another account": {[]string{`UPDATE audit_log SET org_id = 'o2' WHERE seq = 6`}, 6},
		"put back to be sealed":    {[]string{`UPDATE audit_log SET actor = 'eve', seq = NULL, prev_hash = NULL, hash = NULL WHERE seq = 6`}, 6},
	} {
		t.Run(name, func(t *testing.T) {
			conform(t, func(t *testing.T, d *db.DB) {
				for i := range entries {
					add(t, d, entry(i))
				}
				seal(t, d, entries)
				if _, err := audit.Verify(t.Context(), d, "o1"); err != nil {
					t.Fatal(err)
				}
				for i, s := range tc.statements {
					_, err := d.Exec(t.Context(), s)
					if i == 0 {
						// The table itself takes none of it.
						if err == nil || !strings.Contains(err.Error(), "the audit log") {
							t.Fatalf("before the triggers were taken away: %v", err)
						}
						unguard(t, d)
						_, err = d.Exec(t.Context(), s)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				_, err := audit.Verify(t.Context(), d, "o1")
				var broken *audit.BrokenError
				if !errors.As(err, &broken) || broken.Seq != tc.seq || broken.Org != "o1" {
					t.Errorf("Verify: %v, want it broken at %d", err, tc.seq)
				}
			})
		})
	}
}

// What is not sealed yet is kept by the table alone.
func TestUnsealedIsGuarded(t *testing.T) {
	conform(t, func(t *testing.T, d *db.DB) {
		add(t, d, entry(1))
		for _, s := range []string{
			`UPDATE audit_log SET actor = 'eve'`,
			`UPDATE audit_log SET detail = NULL`,
			`UPDATE audit_log SET time = time - 1`,
			`UPDATE audit_log SET org_id = 'o2'`,
			`UPDATE audit_log SET seq = 1`,
			`UPDATE audit_log SET actor = 'eve', seq = 1, prev_hash = '', hash = ''`,
			`DELETE FROM audit_log`,
			`UPDATE audit_heads SET seq = 0`,
		} {
			n, err := d.Exec(t.Context(), s)
			if err == nil && n > 0 {
				t.Errorf("%s was carried out", s)
			}
		}
		if d.Dialect() == db.Postgres {
			for _, s := range []string{`TRUNCATE audit_log`, `TRUNCATE audit_heads`} {
				if _, err := d.Exec(t.Context(), s); err == nil {
					t.Errorf("%s was carried out", s)
				}
			}
		}
		r, err := audit.Verify(t.Context(), d, "o1")
		if err != nil || r.Seq != 0 || r.Unsealed != 1 || r.Stalled() {
			t.Errorf("%+v, %v", r, err)
		}
		// An old one says that nobody seals.
		unguard(t, d)
		if _, err := d.Exec(t.Context(), `UPDATE audit_log SET time = time - 61000000`); err != nil {
			t.Fatal(err)
		}
		if r, err := audit.Verify(t.Context(), d, "o1"); err != nil || !r.Stalled() || r.Oldest < time.Minute {
			t.Errorf("%+v, %v", r, err)
		}
		if all, err := audit.TailOf(t.Context(), d, ""); err != nil || all.Unsealed != 1 {
			t.Errorf("%+v, %v", all, err)
		}
		seal(t, d, 1)
		if r, err := audit.Verify(t.Context(), d, "o1"); err != nil || r.Stalled() || r.Seq != 1 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// Whatever a caller puts into a header or a name: the chain holds.
func TestHostileText(t *testing.T) {
	conform(t, func(t *testing.T, d *db.DB) {
		for _, text := range []string{"nul \x00 here", "\xff\xfe", "\u2028<&>\u2029", "\"'\\", "𝔘ñ\u0301", "\ufffd"} {
			add(t, d, audit.Entry{Org: "o1", Scope: text, Actor: "a" + text, Action: "b" + text, ResourceType: text, ResourceID: text, RequestID: text,
				Outcome: audit.Refused, Detail: map[string]any{text: text, "nested": []any{map[string]any{"x": text}}}})
		}
		seal(t, d, 6)
		head, err := audit.Verify(t.Context(), d, "o1")
		if err != nil || head.Seq != 6 {
			t.Errorf("%d entries, %v", head.Seq, err)
		}
		for _, text := range []string{"\x00", "\xff", "'; DROP TABLE audit_log; --"} {
			if got, _, err := audit.List(t.Context(), d, "o1", audit.Filter{Actor: text}); err != nil || len(got) != 0 {
				t.Errorf("List of %q: %v, %v", text, got, err)
			}
			if _, _, err := audit.List(t.Context(), d, "o1", audit.Filter{Cursor: text}); !errors.Is(err, audit.ErrBadCursor) {
				t.Errorf("List from the cursor %q: %v", text, err)
			}
		}
	})
}
