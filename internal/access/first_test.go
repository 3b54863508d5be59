package access

import (
	"testing"

	"github.com/zopday/provisioner/internal/db"
)

// Every organisation has an entry from its beginning on, and gets none later: a log
// that was taken away stays away, for its check to find.
func TestFirstEntries(t *testing.T) { onBoth(t, testFirstEntries) }

func testFirstEntries(t *testing.T, d *db.DB) {
	first := func(want int64) {
		t.Helper()
		if err := FirstEntries(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		if n := countOf(t, d, `SELECT count(*) FROM audit_log WHERE org_id = $1 AND action = 'organisation:create' AND resource_id = $1`, DefaultOrg); n != want {
			t.Errorf("%d entries of how the first organisation was made, want %d", n, want)
		}
	}
	first(1)
	first(1)
	if _, _, err := CreateOrg(t.Context(), d, "second", "test"); err != nil {
		t.Fatal(err)
	}
	before := countOf(t, d, `SELECT count(*) FROM audit_log`)
	first(1)
	if n := countOf(t, d, `SELECT count(*) FROM audit_log`); n != before {
		t.Errorf("%d entries, want the %d of before: the second organisation has its own", n, before)
	}
	if d.Dialect() != db.SQLite {
		return // its triggers are the owner's
	}
	if _, err := Bootstrap(t.Context(), d, ""); err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{`DROP TRIGGER audit_log_delete`, `DELETE FROM audit_log`} {
		if _, err := d.Exec(sys(t), s); err != nil {
			t.Fatal(err)
		}
	}
	first(0)
}
