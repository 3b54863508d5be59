package oidc

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/access/oidctest"
	"github.com/zopday/provisioner/internal/db"
)

func TestPeople(t *testing.T) { onBoth(t, testPeople) }

// What a person may do follows the last sign-in; and two people never look alike.
func testPeople(t *testing.T, r *rig) {
	ctx := t.Context()
	ada := r.enter()
	r.issuer.Set(func(s *oidctest.State) { s.Person["groups"] = "staff" })
	again := r.enter()
	for _, s := range []string{ada, again} {
		got, p, err := r.signIn.Session(ctx, s)
		if err != nil || len(p.Grants) != 0 || !slices.Equal(got.User.Groups, []string{"staff"}) {
			t.Errorf("out of the group and still %+v, %v", p.Grants, err)
		}
	}
	// Somebody else is given the address, with another name for it at the issuer.
	r.issuer.Set(func(s *oidctest.State) { s.Person["sub"] = "ada-2" })
	heir := r.enter()
	got, p, err := r.signIn.Session(ctx, heir)
	if err != nil || got.User.Email != "" || p.Actor != "user:"+got.User.ID {
		t.Errorf("the heir of an address is %q, %v", p.Actor, err)
	}
	for _, s := range p.Subjects {
		if s.ID == "ada@example.com" {
			t.Error("the heir of an address has the rights of whoever had it before")
		}
	}
	// An address that is not verified, or made of other letters, is nobody's.
	for n, edit := range []map[string]any{
		{"email": "bob@example.com", "email_verified": false}, {"email": "bob@example.com", "email_verified": nil}, {"email": "bob@example.com", "email_verified": 1},
		{"email": "bоb@example.com", "email_verified": true}, {"email": "bob@example.com\n", "email_verified": true}, {"email": "\"bob b\"@example.com", "email_verified": true}, //nolint:gosmopolitan // a Cyrillic о
		{"email": []string{"bob@example.com"}, "email_verified": true}, {"email": nil, "email_verified": true}, {"email": "usr_x", "email_verified": true},
	} {
		r.issuer.Set(func(s *oidctest.State) {
			s.Person["sub"], s.Person["email"], s.Person["email_verified"] = "bob-"+string(rune('a'+n)), edit["email"], edit["email_verified"]
		})
		got, p, err := r.signIn.Session(ctx, r.enter())
		if err != nil || p.Actor != "user:"+got.User.ID {
			t.Errorf("%v: the actor is %q, %v", edit, p.Actor, err)
		}
	}
	// Whoever is disabled is out at once, and does not come back.
	err = r.db.InTx(db.WithOrg(ctx, access.DefaultOrg), func(ctx context.Context, tx db.Q) error {
		_, err := tx.Exec(ctx, `UPDATE users SET disabled = $1 WHERE subject = 'ada-1' AND org_id = 'default'`, true)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.signIn.Session(ctx, ada); !errors.Is(err, access.ErrUnauthenticated) {
		t.Errorf("disabled, and in: %v", err)
	}
	if _, _, err := r.signIn.Session(ctx, heir); err != nil {
		t.Errorf("somebody else was disabled: %v", err)
	}
	r.issuer.Set(func(s *oidctest.State) { s.Person["sub"] = "ada-1" })
	var f *Failure
	if _, err := r.tryEnter(nil); !errors.As(err, &f) || f.Status != http.StatusForbidden || !errors.Is(err, access.ErrDisabled) {
		t.Errorf("disabled, and signed in: %v", err)
	}
	if log := r.audit(); log[len(log)-1] != "user:test/ada-1 session:create refused" {
		t.Errorf("the audit log ends with %q", log[len(log)-1])
	}
}

// Two people with one address who come at once: one has it.
func TestOneAddressAtOnce(t *testing.T) { onBoth(t, testOneAddressAtOnce) }

func testOneAddressAtOnce(t *testing.T, r *rig) {
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			u := access.User{OrgID: access.DefaultOrg, Issuer: r.issuer.URL, Subject: "twin-" + string(rune('a'+n)), Email: "twin@example.com"}
			if _, err := r.signIn.enter(t.Context(), r.signIn.issuers[0], u, "", ""); err != nil {
				t.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
	var n, with int
	if err := r.db.QueryRow(db.System(t.Context()), `SELECT count(*), sum(CASE WHEN email <> '' THEN 1 ELSE 0 END) FROM users`).Scan(&n, &with); err != nil || n != 8 || with != 1 {
		t.Errorf("%d people, %d with the address, %v", n, with, err)
	}
}

func TestAllowedDomains(t *testing.T) {
	t.Parallel()
	r := newRigWith(t, func(i *Issuer) { i.AllowedDomains = []string{"example.com"} })
	r.enter()
	for _, person := range []map[string]any{
		{"email": "eve@evil.com", "email_verified": true}, {"email": "eve@example.com", "email_verified": false}, {"email": nil, "email_verified": true},
		{"email": "eve@example.com.evil.com", "email_verified": true}, {"email": "eve@sub.example.com", "email_verified": true}, {"email": "eve@evil.com@example.com", "email_verified": true},
	} {
		r.issuer.Set(func(s *oidctest.State) {
			s.Person["sub"], s.Person["email"], s.Person["email_verified"] = "eve", person["email"], person["email_verified"]
		})
		var f *Failure
		if _, err := r.tryEnter(nil); !errors.As(err, &f) || f.Status != http.StatusForbidden {
			t.Errorf("%v: %v", person, err)
		}
	}
}

// An issuer that is taken out of the configuration, or given to another
// organisation, takes its people's sessions with it.
func TestIssuerTakenOut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.enter()
	is := r.signIn.issuers[0]
	without, err := New(t.Context(), Options{PublicURL: "https://zopday.example.com", DB: r.db})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := without.Session(t.Context(), s); !errors.Is(err, access.ErrUnauthenticated) {
		t.Errorf("%v", err)
	}
	is.org = "another"
	if _, _, err := r.signIn.Session(t.Context(), s); !errors.Is(err, access.ErrUnauthenticated) {
		t.Errorf("%v", err)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, at := range []string{"", "zopday.example.com", "http://zopday.example.com", "https://", "https://zopday.example.com/sub", "ftp://zopday.example.com", "https://a:b@zopday.example.com", "https://zopday.example.com/?x=1"} {
		if _, err := New(t.Context(), Options{PublicURL: at, DB: r.db}); err == nil || !strings.Contains(err.Error(), "--public-url") {
			t.Errorf("%q: %v", at, err)
		}
	}
	for _, at := range []string{"https://zopday.example.com", "https://zopday.example.com:8443/", "http://127.0.0.1:5087", "http://localhost:5087", "http://[::1]:5087"} {
		if _, err := New(t.Context(), Options{PublicURL: at, DB: r.db}); err != nil {
			t.Errorf("%q: %v", at, err)
		}
	}
	_, err := New(t.Context(), Options{Config: Config{Issuers: []Issuer{{URL: "https://x.example.com", Organisation: "nobody"}}}, PublicURL: "https://zopday.example.com", DB: r.db})
	if err == nil || !strings.Contains(err.Error(), "nobody") || !strings.Contains(err.Error(), "zopday orgs create") {
		t.Errorf("%v", err)
	}
}

func TestLocalPath(t *testing.T) {
	t.Parallel()
	for _, next := range []string{
		"", "evil", "//evil.com", "///evil.com", `/\evil.com`, `\\evil.com`, "/%2fevil.com", "/%2Fevil.com", "%2f%2fevil.com", "/%5cevil.com", "/%255cevil.com", "/%252fevil.com",
		"javascript:alert(1)", "JaVaScRiPt:alert(1)", "data:text/html,x", "https://evil.com", "http:/evil.com", "https:evil.com", " //evil.com", "\t//evil.com", "/\t/evil.com", "/\n/evil.com", "/\r\nX: y",
		"/%0d%0aX:%20y", "/%00", "/é", "/auth/login", "/auth/callback?x=y", "/auth", "/%61uth/login", "/x/../auth/login", "/.//x", "/x//y", "/%zz", "/" + strings.Repeat("a", maxNext),
	} {
		if got := LocalPath(next); got != start {
			t.Errorf("%q goes to %q", next, got)
		}
	}
	for _, next := range []string{"/", "/zopday", "/zopday/jobs/job_1?tab=log&x=%2Fy", "/zopday/a%20b", "/authors"} {
		if got := LocalPath(next); got != next {
			t.Errorf("%q goes to %q", next, got)
		}
	}
}
