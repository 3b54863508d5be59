package audit_test

import (
	"errors"
	"testing"

	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
)

// A log that is gone as a whole, with its head, shows, and so does one whose
// organisation is gone.
func TestCheckWholeLogs(t *testing.T) {
	conform(t, func(t *testing.T, d *db.DB) {
		do := func(statements ...string) {
			t.Helper()
			for _, s := range statements {
				if _, err := d.Exec(t.Context(), s); err != nil {
					t.Fatal(s, err)
				}
			}
		}
		check := func(org string, seq int64) {
			t.Helper()
			_, err := audit.Check(t.Context(), d, org)
			var broken *audit.BrokenError
			switch {
			case seq == 0 && err != nil:
				t.Errorf("%s: %v", org, err)
			case seq > 0 && (!errors.As(err, &broken) || broken.Org != org || broken.Seq != seq):
				t.Errorf("%s: %v, want a break at %d", org, err, seq)
			}
		}
		check("default", 0) // made just now
		do(`INSERT INTO organisations (id, name, created_at) VALUES ('o1', 'o1', 0)`)
		check("o1", 1)
		add(t, d, entry(1))
		check("o1", 0) // what is not sealed yet is there
		seal(t, d, 1)
		check("o1", 0)
		unguard(t, d)
		do(`DELETE FROM audit_log WHERE org_id = 'o1'`, `DELETE FROM audit_heads WHERE org_id = 'o1'`)
		if _, err := audit.Verify(t.Context(), d, "o1"); err != nil {
			t.Errorf("the chain itself, which is empty: %v", err)
		}
		check("o1", 1)
		if orgs, err := audit.Orgs(t.Context(), d); err != nil || len(orgs) != 2 || orgs[1] != "o1" {
			t.Errorf("the organisation is not looked at: %v, %v", orgs, err)
		}
		add(t, d, entry(1), entry(2))
		seal(t, d, 2)
		do(`DELETE FROM organisations WHERE id = 'o1'`)
		check("o1", 2)
	})
}
