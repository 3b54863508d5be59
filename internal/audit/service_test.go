package audit_test

import (
	"testing"

	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/pgtest"
)

// As the role that a service connects as: an organisation writes, reads and checks
// its own log, the system seals all, and nobody takes anything away.
func TestAsServiceRole(t *testing.T) {
	d, err := db.Open(t.Context(), pgtest.ServiceDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	one, two, system := db.WithOrg(t.Context(), "o1"), db.WithOrg(t.Context(), "o2"), db.System(t.Context())
	if err := audit.Append(one, d, entry(1), entry(2)); err != nil {
		t.Fatal(err)
	}
	if err := audit.Append(two, d, entry(3)); err == nil {
		t.Error("an organisation wrote into another one's log")
	}
	if n, err := audit.Seal(system, d); err != nil || n != 2 {
		t.Fatalf("%d entries sealed, %v", n, err)
	}
	if err := audit.Append(one, d, entry(4)); err != nil {
		t.Fatal(err)
	}
	if r, err := audit.Verify(one, d, "o1"); err != nil || r.Seq != 2 || r.Unsealed != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if got, _, err := audit.List(two, d, "o1", audit.Filter{}); err != nil || len(got) != 0 {
		t.Errorf("another organisation reads %v, %v", got, err)
	}
	for _, s := range []string{
		`DELETE FROM audit_log`, `DELETE FROM audit_heads`, `TRUNCATE audit_log`,
		`UPDATE audit_log SET actor = 'eve'`, `UPDATE audit_log SET actor = 'eve' WHERE seq IS NULL`,
		`UPDATE audit_log SET seq = NULL, prev_hash = NULL, hash = NULL WHERE seq = 2`, `UPDATE audit_log SET hash = 'x' WHERE seq = 2`,
		`UPDATE audit_heads SET seq = 1`,
		`INSERT INTO audit_log (org_id, seq, id, time, actor, action, outcome, prev_hash, hash) VALUES ('o1', 3, 'x', 1, 'a', 'b', 'allowed', '', '00')`,
		`ALTER TABLE audit_log DISABLE TRIGGER USER`, `DROP TRIGGER audit_log_guard ON audit_log`,
		`SET session_replication_role = replica`, `CREATE OR REPLACE FUNCTION audit_log_guard() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'`,
	} {
		if n, err := d.Exec(system, s); err == nil {
			t.Errorf("%s was carried out, on %d rows", s, n)
		}
	}
	if r, err := audit.Verify(one, d, "o1"); err != nil || r.Seq != 2 || r.Unsealed != 1 {
		t.Errorf("after all that: %+v, %v", r, err)
	}
}
