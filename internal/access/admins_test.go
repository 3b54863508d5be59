package access

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/db"
)

// TestKeepAdmin: who counts as an admin, by token and by sign-in.
func TestKeepAdmin(t *testing.T) { onBoth(t, testKeepAdmin) }

func testKeepAdmin(t *testing.T, d *db.DB) {
	ctx := sys(t)
	wide, past := Scope{Kind: OrgScope}, time.Now().Add(-time.Minute)
	check := func(what string, signIn, want bool) {
		t.Helper()
		err := d.InTx(ctx, func(ctx context.Context, tx db.Q) error {
			if err := LockOrg(ctx, tx, DefaultOrg); err != nil {
				return err
			}
			return KeepAdmin(ctx, tx, DefaultOrg, signIn)
		})
		if want && err != nil || !want && !errors.Is(err, ErrLastAdmin) {
			t.Errorf("%s: %v", what, err)
		}
	}
	give := func(sub Subject, role string, scope Scope) {
		t.Helper()
		if _, _, err := AddAssignment(ctx, d.Writer(), Assignment{OrgID: DefaultOrg, Subject: sub, RoleID: role, Scope: scope}); err != nil {
			t.Fatal(err)
		}
	}
	exec := func(query string, args ...any) {
		t.Helper()
		if _, err := d.Exec(ctx, query, args...); err != nil {
			t.Fatal(err)
		}
	}
	const user = `INSERT INTO users (id, org_id, issuer, subject, email, groups, disabled, created_at, seen_at) VALUES ($1, $2, 'https://id.example.com', $1, $3, $4, $5, 0, 0)`

	check("nobody", true, false)
	addToken(t, d, DefaultOrg, "old", &past, Grant{Role: Admin, Scope: wide})
	addToken(t, d, DefaultOrg, "team", nil, Grant{Role: Admin, Scope: Scope{Kind: TeamScope, ID: "team_1"}})
	addToken(t, d, DefaultOrg, "editor", nil, Grant{Role: Editor, Scope: wide})
	addToken(t, d, "org_other", "theirs", nil, Grant{Role: Admin, Scope: wide})
	check("an expired token, a team's admin, an editor and another organisation's admin", true, false)

	give(Subject{SubjectGroup, "root"}, Admin, wide)
	give(Subject{SubjectUser, "ada@example.com"}, Admin, wide)
	check("a group and an address that nobody known has", true, false)
	exec(user, "usr_1", DefaultOrg, "bob@example.com", `["staff"]`, false)
	exec(user, "usr_2", DefaultOrg, "", `["root"]`, true)
	exec(user, "usr_3", "org_other", "ada@example.com", `["root"]`, false)
	check("a disabled user in the group, and another organisation's", true, false)
	exec(`UPDATE users SET groups = '["staff", "root"]' WHERE id = 'usr_1'`)
	check("a user in the group", true, true)
	check("the same where nobody can sign in", false, false)
	exec(`UPDATE users SET groups = '[]', email = 'Ada@Example.com' WHERE id = 'usr_1'`)
	check("a user with the address", true, true)
	exec(`UPDATE users SET email = '' WHERE id = 'usr_1'`)
	give(Subject{SubjectUser, "usr_1"}, Admin, wide)
	check("a user by ID", true, true)
	exec(`UPDATE users SET disabled = true WHERE id = 'usr_1'`)
	check("the same, disabled", true, false)

	tok, _ := addToken(t, d, DefaultOrg, "root", nil, Grant{Role: Admin, Scope: wide})
	check("a token", false, true)
	if err := RevokeToken(ctx, d, DefaultOrg, tok.ID, "ana"); err != nil {
		t.Fatal(err)
	}
	check("the token, revoked", false, false)
	if err := d.InTx(ctx, func(ctx context.Context, tx db.Q) error { return LockOrg(ctx, tx, "org_none") }); !errors.Is(err, ErrNoOrg) {
		t.Errorf("no organisation: %v", err)
	}
}
