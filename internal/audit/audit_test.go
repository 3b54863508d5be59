package audit_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
			d, err := db.Open(t.Context(), dsn(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Close() })
			if err := d.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			test(t, d)
		})
	}
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

func TestAppendAndList(t *testing.T) {
	conform(t, func(t *testing.T, d *db.DB) {
		refused := audit.Entry{Org: "o1", Actor: "bob", Action: "provisioning-job:delete", Outcome: audit.Refused}
		other := audit.Entry{Org: "o2", Actor: "ada", Action: "token:manage", Outcome: audit.Allowed}
		add(t, d, entry(1), refused, other, entry(2))
		add(t, d, entry(3))
		for name, tc := range map[string]struct {
			f    audit.Filter
			want []int64
		}{
			"all":           {audit.Filter{}, []int64{4, 3, 2, 1}},
			"actor":         {audit.Filter{Actor: "bob"}, []int64{2}},
			"action":        {audit.Filter{Action: "provisioning-job:create"}, []int64{4, 3, 1}},
			"scope":         {audit.Filter{Scope: "org", Limit: 2}, []int64{4, 3}},
			"resource type": {audit.Filter{ResourceType: "vm"}, []int64{4, 3, 1}},
			"resource":      {audit.Filter{ResourceID: "job_2"}, []int64{3}},
			"outcome":       {audit.Filter{Outcome: audit.Refused}, []int64{2}},
			"before":        {audit.Filter{Before: 3}, []int64{2, 1}},
			"future":        {audit.Filter{From: time.Now().Add(time.Hour)}, nil},
			"past":          {audit.Filter{To: time.Now().Add(-time.Hour)}, nil},
			"range":         {audit.Filter{From: time.Now().Add(-time.Hour), To: time.Now().Add(time.Hour), Actor: "ada"}, []int64{4, 3, 1}},
		} {
			got, next, err := audit.List(t.Context(), d, "o1", tc.f)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			var seqs []int64
			for _, e := range got {
				seqs = append(seqs, e.Seq)
			}
			if diff := cmp.Diff(tc.want, seqs); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
			if more := name == "scope"; (next != 0) != more || more && next != 3 {
				t.Errorf("%s: next %d", name, next)
			}
		}
		got, _, err := audit.List(t.Context(), d, "o1", audit.Filter{ResourceID: "job_3"})
		if err != nil || len(got) != 1 {
			t.Fatalf("%v, %v", got, err)
		}
		if diff := cmp.Diff(entry(3), got[0], cmpopts.IgnoreFields(audit.Entry{}, "ID", "Seq", "Time", "Hash")); diff != "" {
			t.Errorf("read back (-want +got):\n%s", diff)
		}
		if got[0].ID == "" || got[0].Hash == "" || time.Since(got[0].Time) > time.Hour {
			t.Errorf("read back %+v", got[0])
		}
		for _, org := range []string{"o1", "o2", "o3"} {
			if _, err := audit.Verify(t.Context(), d, org); err != nil {
				t.Errorf("Verify: %v", err)
			}
		}
		for _, bad := range []audit.Entry{{Actor: "a", Action: "b", Outcome: "c"}, {Org: "a", Action: "b", Outcome: "c"}, {Org: "a", Actor: "a", Outcome: "c"}, {Org: "a", Actor: "a", Action: "b"}} {
			err := d.InTx(t.Context(), func(ctx context.Context, tx db.Q) error { return audit.Append(ctx, tx, bad) })
			if err == nil {
				t.Errorf("%+v was taken", bad)
			}
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
		// Many at once make one chain.
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() { add(t, d, entry(i), entry(i+100)) })
		}
		wg.Wait()
		head, err := audit.Verify(t.Context(), d, "o1")
		if err != nil || head.Seq != 41 {
			t.Errorf("%d entries, %v; want 41", head.Seq, err)
		}
	})
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
	} {
		t.Run(name, func(t *testing.T) {
			conform(t, func(t *testing.T, d *db.DB) {
				for i := range entries {
					add(t, d, entry(i))
				}
				if _, err := audit.Verify(t.Context(), d, "o1"); err != nil {
					t.Fatal(err)
				}
				for _, s := range tc.statements {
					if _, err := d.Exec(t.Context(), s); err != nil {
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

// Whatever a caller puts into a header or a name: the chain holds.
func TestHostileText(t *testing.T) {
	conform(t, func(t *testing.T, d *db.DB) {
		for _, text := range []string{"nul \x00 here", "\xff\xfe", "\u2028<&>\u2029", "\"'\\", "𝔘ñ\u0301", "\ufffd"} {
			add(t, d, audit.Entry{Org: "o1", Scope: text, Actor: "a" + text, Action: "b" + text, ResourceType: text, ResourceID: text, RequestID: text,
				Outcome: audit.Refused, Detail: map[string]any{text: text, "nested": []any{map[string]any{"x": text}}}})
		}
		head, err := audit.Verify(t.Context(), d, "o1")
		if err != nil || head.Seq != 6 {
			t.Errorf("%d entries, %v", head.Seq, err)
		}
		for _, text := range []string{"\x00", "\xff", "'; DROP TABLE audit_log; --"} {
			if got, _, err := audit.List(t.Context(), d, "o1", audit.Filter{Actor: text}); err != nil || len(got) != 0 {
				t.Errorf("List of %q: %v, %v", text, got, err)
			}
		}
	})
}
