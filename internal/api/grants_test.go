package api

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/provision"
)

// TestNobodyGivesWhatTheyDoNotHold: not by a token, a role, a role's change, an
// assignment or another's token's rotation; not beyond a team, and not to oneself.
func TestNobodyGivesWhatTheyDoNotHold(t *testing.T) { onBoth(t, testNobodyGives) }

func testNobodyGives(t *testing.T, r *rig) {
	r.withTokens()
	shop, bank := r.made(adminToken, "/teams", `{"name":"shop"}`), r.made(adminToken, "/teams", `{"name":"bank"}`)
	mine, theirs := r.create(vmJob("mine")), r.create(vmJob("theirs"))
	for id, team := range map[string]string{mine.ID: shop, theirs.ID: bank} {
		if _, err := r.db.Exec(db.System(t.Context()), `UPDATE provisioning_jobs SET team_id = $1 WHERE id = $2`, team, id); err != nil {
			t.Fatal(err)
		}
	}
	r.made(adminToken, "/roles", `{"name":"keeper","policies":["role:manage","token:manage","provisioning-job:view"]}`)
	admin := r.token(adminToken, `{"name":"root","role":"Admin",`+orgWide+`}`)
	keeper := r.token(adminToken, `{"name":"keeper","role":"keeper",`+orgWide+`}`).Secret
	lead := r.token(adminToken, `{"name":"lead","role":"Admin","scope":{"kind":"team","id":"shop"}}`).Secret

	forbidden := func(what, by, method, path, body string) {
		t.Helper()
		r.do(by, method, path, body).fails(t, what, 403, "forbidden", "")
	}
	// For the whole organisation: what one holds, and no more.
	r.token(keeper, `{"name":"k1","role":"keeper",`+orgWide+`}`)
	r.token(keeper, `{"name":"k2","role":"keeper","scope":{"kind":"team","id":"shop"}}`)
	forbidden("a token beyond", keeper, "POST", "/tokens", `{"name":"k3","role":"Viewer",`+orgWide+`}`)
	forbidden("a second grant beyond", keeper, "POST", "/tokens", `{"name":"k3","role":"keeper",`+orgWide+`,"grants":[{"role":"Admin","scope":{"kind":"team","id":"shop"}}]}`)
	forbidden("a role beyond", keeper, "POST", "/roles", `{"name":"r","policies":["provisioning-job:view","vm:operate"]}`)
	forbidden("an assignment beyond", keeper, "POST", "/assignments", `{"subject":{"kind":"token","id":"keeper"},"role":"Admin",`+orgWide+`}`)
	forbidden("an assignment beyond, on one job", keeper, "POST", "/assignments", `{"subject":{"kind":"token","id":"keeper"},"role":"Editor","scope":{"kind":"resource","id":"`+mine.ID+`"}}`)
	forbidden("one's own role's change", keeper, "PATCH", "/roles/keeper", `{"policies":["role:manage","token:manage","provisioning-job:write"]}`)
	forbidden("an admin's token rotated", keeper, "POST", "/tokens/root/rotate", ``)
	r.made(keeper, "/roles", `{"name":"looker","policies":["provisioning-job:read"]}`)
	if a := r.do(keeper, "PATCH", "/roles/looker", `{"policies":["provisioning-job:view","token:manage"]}`); a.status != 200 {
		t.Errorf("what is held is added: %d %s", a.status, a.body)
	}

	// Within a team: its admin is one there alone.
	r.token(lead, `{"name":"l1","role":"Editor","scope":{"kind":"team","id":"shop"}}`)
	r.token(lead, `{"name":"l2","role":"Editor","scope":{"kind":"resource","id":"`+mine.ID+`"}}`)
	forbidden("beyond the team", lead, "POST", "/tokens", `{"name":"l3","role":"Viewer",`+orgWide+`}`)
	r.do(lead, "POST", "/tokens", `{"name":"l3","role":"Viewer","scope":{"kind":"team","id":"bank"}}`).fails(t, "another team", 422, "invalid", "scope.id")
	r.do(lead, "POST", "/tokens", `{"name":"l3","role":"Viewer","scope":{"kind":"resource","id":"`+theirs.ID+`"}}`).fails(t, "another team's job", 422, "invalid", "scope.id")
	forbidden("a role of everybody's", lead, "POST", "/roles", `{"name":"r","policies":["provisioning-job:view"]}`)
	forbidden("a role of everybody's", lead, "DELETE", "/roles/keeper", "")
	forbidden("a team", lead, "POST", "/teams", `{"name":"x"}`)
	for _, name := range []string{"root", "keeper", "k1"} {
		r.do(lead, "DELETE", "/tokens/"+name, "").fails(t, "a token beyond the team", 404, "not-found", "")
		r.do(lead, "GET", "/tokens/"+name, "").fails(t, "a token beyond the team", 404, "not-found", "")
	}
	var tokens []provision.TokenView
	if r.do(lead, "GET", "/tokens", "").into(t, &tokens); len(tokens) != 4 { // lead, k2, l1, l2
		t.Errorf("the team's admin lists %d tokens: %+v", len(tokens), tokens)
	}
	var all []access.Assignment
	if r.do(lead, "GET", "/assignments", "").into(t, &all); len(all) != 4 {
		t.Errorf("the team's admin lists %d assignments", len(all))
	}
	r.do(lead, "DELETE", "/assignments/"+admin.Grants[0].Assignment, "").fails(t, "an assignment beyond the team", 404, "not-found", "")
	if a := r.do(lead, "DELETE", "/tokens/l1", ""); a.status != 204 {
		t.Errorf("the team's own token: %d", a.status)
	}
	// What is not forbidden by a look but by the moment: see TestRightsAreLookedAtAgain.
	if a := r.do(adminToken, "DELETE", "/roles/keeper", ""); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	forbidden("after the role's end", keeper, "GET", "/tokens", "")
}

// TestTheLastAdminStays: of many admins that are removed at once, in every way there
// is, one stays.
func TestTheLastAdminStays(t *testing.T) { onBoth(t, testTheLastAdminStays) }

func testTheLastAdminStays(t *testing.T, r *rig) {
	r.withTokens()
	const n = 20
	tokens := make([]provision.NewToken, n)
	for i := range tokens {
		tokens[i] = r.token(adminToken, fmt.Sprintf(`{"name":"a%d","role":"Admin",`+orgWide+`}`, i))
	}
	// A group, an expired token and a disabled user are no admins.
	r.made(adminToken, "/assignments", `{"subject":{"kind":"group","id":"root"},"role":"Admin",`+orgWide+`}`)
	r.token(adminToken, `{"name":"late","role":"Admin",`+orgWide+`}`)
	if _, err := r.db.Exec(db.System(t.Context()), `UPDATE tokens SET expires_at = 1 WHERE name = 'late'`); err != nil {
		t.Fatal(err)
	}
	var (
		wg            sync.WaitGroup
		removed, kept atomic.Int64
	)
	for i := range n {
		wg.Go(func() { // each removes the next, all at the same moment
			victim := tokens[(i+1)%n]
			path := "/tokens/" + victim.ID
			if i%2 == 1 {
				path = "/assignments/" + victim.Grants[0].Assignment
			}
			switch a := r.do(tokens[i].Secret, "DELETE", path, ""); a.status {
			case 204:
				removed.Add(1)
			case 409, 401, 403: // the last one; or removed itself a moment before
				kept.Add(1)
			default:
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	wg.Wait()
	live := 0
	for _, tok := range tokens {
		if r.do(tok.Secret, "GET", "/tokens", "").status == 200 {
			live++
		}
	}
	if live == 0 || int64(live) != n-removed.Load() {
		t.Fatalf("%d admins are left, %d were removed and %d not", live, removed.Load(), kept.Load())
	}
	// Whoever else removes them all fails at the last.
	for i, tok := range tokens {
		a := r.do(adminToken, "DELETE", "/tokens/"+tok.ID, "")
		if a.status != 204 && a.status != 409 {
			t.Errorf("token %d: %d %s", i, a.status, a.body)
		}
	}
	live = 0
	for _, tok := range tokens {
		if a := r.do(tok.Secret, "GET", "/tokens", ""); a.status == 200 {
			live++
			r.do(adminToken, "DELETE", "/assignments/"+tok.Grants[0].Assignment, "").fails(t, "the last one's assignment", 409, "wrong-state", "")
			r.do(tok.Secret, "DELETE", "/tokens/"+tok.ID, "").fails(t, "the last one by itself", 409, "wrong-state", "")
		}
	}
	if live != 1 {
		t.Errorf("%d admins are left, want 1", live)
	}
}

// TestTwentyRemovalsOfTwo: two admins, removed twenty times over from all sides, over
// and over.
func TestTwentyRemovalsOfTwo(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.withTokens()
		for round := range 5 {
			a, b := r.token(adminToken, fmt.Sprintf(`{"name":"a%d","role":"Admin",`+orgWide+`}`, round)), r.token(adminToken, fmt.Sprintf(`{"name":"b%d","role":"Admin",`+orgWide+`}`, round))
			// Those of the rounds before are not in the way.
			if _, err := r.db.Exec(db.System(t.Context()), `UPDATE tokens SET revoked_at = 1 WHERE org_id = 'org1' AND id NOT IN ($1, $2)`, a.ID, b.ID); err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for i := range 20 {
				by, of := a, b
				if i%2 == 1 {
					by, of = b, a
				}
				wg.Go(func() {
					path := "/tokens/" + of.ID
					if i%4 > 1 {
						path = "/assignments/" + of.Grants[0].Assignment
					}
					r.do(by.Secret, "DELETE", path, "")
				})
			}
			wg.Wait()
			live := 0
			for _, tok := range []provision.NewToken{a, b} {
				if r.do(tok.Secret, "GET", "/tokens", "").status == 200 {
					live++
				}
			}
			if live != 1 {
				t.Errorf("round %d: %d admins are left, want 1", round, live)
			}
		}
	})
}

// TestRightsAreLookedAtAgain: a change goes by what its caller holds when it is
// made, not when the request was let in.
func TestRightsAreLookedAtAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.withTokens()
		r.token(adminToken, `{"name":"stays","role":"Admin",`+orgWide+`}`)
		for name, take := range map[string]func(provision.NewToken) (method, path string){
			"revoked":    func(v provision.NewToken) (string, string) { return "DELETE", "/tokens/" + v.ID },
			"unassigned": func(v provision.NewToken) (string, string) { return "DELETE", "/assignments/" + v.Grants[0].Assignment },
		} {
			v := r.token(adminToken, `{"name":"`+name+`","role":"Admin",`+orgWide+`}`)
			p, err := r.api.Access.Authenticate(t.Context(), v.Secret)
			if err != nil {
				t.Fatal(err)
			}
			ctx := access.With(t.Context(), p)
			method, path := take(v)
			if a := r.do(adminToken, method, path, ""); a.status != 204 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			_, err = r.service.CreateToken(ctx, provision.TokenRequest{Name: name + "-after", Role: "Viewer", Scope: &access.Scope{Kind: access.OrgScope}})
			var refused *provision.Refusal
			if !errors.As(err, &refused) || refused.Kind != provision.Forbidden && refused.Kind != provision.Unauthenticated {
				t.Errorf("%s meanwhile: %v", name, err)
			}
		}
	})
}

// TestRoleRemovedWhileItIsGiven: no assignment of a role is left that is gone.
func TestRoleRemovedWhileItIsGiven(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		r.withTokens()
		for round := range 4 {
			role := r.made(adminToken, "/roles", fmt.Sprintf(`{"name":"r%d","policies":["vm:operate"]}`, round))
			var wg sync.WaitGroup
			for i := range 12 {
				wg.Go(func() {
					if i == 6 {
						r.do(adminToken, "DELETE", "/roles/"+role, "")
						return
					}
					r.do(adminToken, "POST", "/assignments", fmt.Sprintf(`{"subject":{"kind":"group","id":"g%d"},"role":"%s",`+orgWide+`}`, i, role))
				})
			}
			wg.Wait()
		}
		var left int64
		err := r.db.QueryRow(db.System(context.WithoutCancel(t.Context())), `SELECT count(*) FROM assignments`).Scan(&left)
		if err != nil || left != 0 {
			t.Errorf("%d assignments of roles that are gone, %v", left, err)
		}
	})
}
