package api

import (
	"context"
	"testing"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/access/oidctest"
	"github.com/zopday/provisioner/internal/db"
)

// Whoever is kept out is out at once, everywhere; the last admin stays in, and nobody
// lets in who holds more than they do.
func TestUsers(t *testing.T) {
	t.Parallel()
	s := newSignInRig(t)
	s.service.SignIn = true
	ada, phone, boss := s.browser(), s.browser(), s.browser()
	ada.do("GET", "/auth/login", "")
	phone.do("GET", "/auth/login", "")
	s.issuer.Set(func(st *oidctest.State) {
		st.Person = map[string]any{"sub": "boss-1", "name": "Ada", "email": "boss@example.com", "email_verified": true, "groups": "admins"}
	})
	boss.do("GET", "/auth/login", "")
	id := func(b *browser) string {
		var me SignedIn
		b.do("GET", "/auth/session", "").into(t, &me)
		return me.Session.UserID
	}
	adaID, bossID := id(ada), id(boss)
	give := func(kind access.SubjectKind, subject, role string) {
		t.Helper()
		err := s.db.InTx(db.WithOrg(t.Context(), "org1"), func(ctx context.Context, tx db.Q) error {
			_, _, err := access.AddAssignment(ctx, tx, access.Assignment{
				OrgID: "org1", Subject: access.Subject{Kind: kind, ID: subject}, RoleID: role, Scope: access.Scope{Kind: access.OrgScope}, CreatedBy: "test",
			})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	give(access.SubjectGroup, "admins", access.Admin)
	give(access.SubjectUser, adaID, access.Editor)
	patch := func(who, body string, header ...string) int {
		t.Helper()
		return boss.do("PATCH", "/users/"+who, body, append(header, "Sec-Fetch-Site", ownPage)...).status
	}
	// A role that may manage roles, and nothing else.
	var role struct{ ID string }
	boss.do("POST", "/roles", `{"name":"gatekeeper","policies":["role:manage"]}`, "Sec-Fetch-Site", ownPage).into(t, &role)
	give(access.SubjectGroup, "gatekeepers", role.ID)
	keeper := []string{"Authorization", "Bearer " + s.issuer.Sign(s.machine("gatekeepers"), nil)}

	var people []access.Person
	boss.do("GET", "/users", "").into(t, &people)
	if len(people) != 2 || people[1].ID != adaID || people[1].Actor != "user:ada@example.com" || people[1].Disabled || people[0].Subject != "boss-1" {
		t.Errorf("people: %+v", people)
	}
	for _, path := range []string{"/users", "/users/" + bossID} {
		if a := ada.do("GET", path, ""); a.status != 403 {
			t.Errorf("%s by an editor: %d", path, a.status)
		}
	}
	for body, want := range map[string]int{`{}`: 422, `{"disabled":null}`: 422, `{"disabled":"yes"}`: 422, `{"name":"x"}`: 422, `{`: 400} {
		if got := patch(adaID, body); got != want {
			t.Errorf("%s: %d, want %d", body, got, want)
		}
	}
	for _, who := range []string{"usr_none", "ada@example.com", "%2e%2e"} {
		if got := patch(who, `{"disabled":true}`); got != 404 {
			t.Errorf("%s: %d", who, got)
		}
	}
	if got := patch(adaID, `{"disabled":true}`, keeper...); got != 200 {
		t.Fatalf("kept out: %d", got)
	}
	for _, b := range []*browser{ada, phone} {
		if a := b.do("GET", "/auth/session", ""); a.status != 401 {
			t.Errorf("kept out, and in: %d", a.status)
		}
	}
	if got := patch(adaID, `{"disabled":false}`, keeper...); got != 403 {
		t.Errorf("let in by who holds less: %d", got)
	}
	if got := patch(adaID, `{"disabled":false}`); got != 200 {
		t.Errorf("let in: %d", got)
	}
	if a := ada.do("GET", "/auth/session", ""); a.status != 401 {
		t.Errorf("the old session is alive again: %d", a.status)
	}
	if got := patch(bossID, `{"disabled":true}`); got != 409 {
		t.Errorf("the last admin kept out: %d", got)
	}
	if a := boss.do("GET", "/auth/session", ""); a.status != 200 {
		t.Errorf("the last admin is out after a refusal: %d", a.status)
	}
	var n int
	if err := s.db.QueryRow(db.System(t.Context()), `SELECT count(*) FROM audit_log WHERE org_id = 'org1' AND action = 'user:update' AND outcome = 'allowed' AND resource_id = $1`, adaID).Scan(&n); err != nil || n != 2 {
		t.Errorf("%d entries, %v", n, err)
	}
}
