package access

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func openAt(t *testing.T, dsn string) *db.DB {
	t.Helper()
	d, err := db.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if d.Dialect() == db.SQLite { // pgtest's are there already, and not the service's to change
		if err := d.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// onBoth runs a test on both databases.
func onBoth(t *testing.T, test func(t *testing.T, d *db.DB)) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) { test(t, openAt(t, filepath.Join(t.TempDir(), "test.db"))) })
	t.Run("postgres", func(t *testing.T) { test(t, openAt(t, pgtest.ServiceDatabase(t))) })
}

// sys is the context of a test that looks across organisations.
func sys(t *testing.T) context.Context { return db.System(t.Context()) }

func tokensOf(t *testing.T, d *db.DB) *Tokens {
	t.Helper()
	tokens := NewTokens(d, nil)
	t.Cleanup(tokens.Wait)
	return tokens
}

// mayNot checks that a text opens nothing, and that the error says no more.
func mayNot(t *testing.T, tokens *Tokens, what, text string) {
	t.Helper()
	p, err := tokens.Authenticate(t.Context(), text)
	if !errors.Is(err, ErrUnauthenticated) || err.Error() != ErrUnauthenticated.Error() || p.OrgID != "" || p.Grants != nil {
		t.Errorf("%s: %+v, %v", what, p, err)
	}
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	re := regexp.MustCompile(TokenPattern)
	seen := map[string]bool{}
	for range 1000 {
		s := NewSecret()
		if len(s) != 50 || !Genuine(s) || re.FindString("key="+s+";") != s || seen[s] {
			t.Fatalf("a token of %d characters is not as it should be", len(s))
		}
		seen[s] = true
	}
	// The checksum is stable: scanners elsewhere compute it too.
	if got := checksum("zop_" + strings.Repeat("a", 40)); got != "t6ubtb" {
		t.Errorf("checksum %q", got)
	}
	s := NewSecret()
	missed := 0
	for i := len(TokenPrefix); i < len(s); i++ {
		for _, c := range "a7q" {
			if changed := s[:i] + string(c) + s[i+1:]; changed != s && Genuine(changed) {
				missed++
			}
		}
	}
	if missed > 0 {
		t.Errorf("%d changes of one character do not show", missed)
	}
	for _, bad := range []string{"", "zop_", s[:49], s + "a", strings.ToUpper(s), "zop-" + s[4:], s[:20] + "1" + s[21:], s + "\n"} {
		if Genuine(bad) {
			t.Errorf("%d characters of something else are genuine", len(bad))
		}
	}
}

// addToken makes a token with grants, past its use case.
func addToken(t *testing.T, d *db.DB, org, name string, expires *time.Time, grants ...Grant) (Token, string) {
	t.Helper()
	tok, secret := Token{ID: job.NewID("tok"), OrgID: org, Name: name, CreatedBy: "ana", ExpiresAt: expires}, NewSecret()
	err := d.InTx(sys(t), func(ctx context.Context, tx db.Q) error {
		if err := AddToken(ctx, tx, &tok, secret); err != nil {
			return err
		}
		for _, g := range grants {
			_, _, err := AddAssignment(ctx, tx, Assignment{OrgID: org, Subject: Subject{SubjectToken, tok.ID}, RoleID: g.Role, Scope: g.Scope, CreatedBy: "ana"})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tok, secret
}

func TestAuthenticate(t *testing.T) { onBoth(t, testAuthenticate) }

func testAuthenticate(t *testing.T, d *db.DB) {
	ctx, tokens := sys(t), tokensOf(t, d)
	soon, past := time.Now().Add(time.Hour), time.Now().Add(-time.Second)
	role := Role{OrgID: DefaultOrg, Name: "runner", Policies: []Policy{JobRetry, JobView, JobRetry}, CreatedBy: "ana"}
	if err := d.InTx(ctx, func(ctx context.Context, tx db.Q) error { return AddRole(ctx, tx, &role) }); err != nil {
		t.Fatal(err)
	}
	team := Scope{Kind: TeamScope, ID: "team_1"}
	live, secret := addToken(t, d, DefaultOrg, "ci", &soon, Grant{Role: Viewer, Scope: Scope{Kind: OrgScope}}, Grant{Role: role.ID, Scope: team})
	_, expired := addToken(t, d, DefaultOrg, "old", &past, Grant{Role: Admin, Scope: Scope{Kind: OrgScope}})
	revoked, gone := addToken(t, d, DefaultOrg, "lost", nil, Grant{Role: Admin, Scope: Scope{Kind: OrgScope}})

	p, err := tokens.Authenticate(ctx, secret)
	if err != nil {
		t.Fatal(err)
	}
	if p.Actor != "token:ci" || len(p.Grants) != 2 || p.Grants[1].Role != "runner" || p.Grants[1].Scope != team || !cmp.Equal(p.Grants[1].Policies, []Policy{JobRetry, JobView}) {
		t.Errorf("%+v", p)
	}
	if over := p.Over(JobRetry); over.All || !cmp.Equal(over.Teams, []string{"team_1"}) {
		t.Errorf("retries over %+v", over)
	}
	mayNot(t, tokens, "an expired token", expired)
	if _, err := tokens.Authenticate(ctx, gone); err != nil {
		t.Fatal(err)
	}
	if err := RevokeToken(ctx, d, DefaultOrg, revoked.ID, "ana"); err != nil {
		t.Fatal(err)
	}
	mayNot(t, tokens, "a revoked token", gone)
	mayNot(t, tokensOf(t, d), "a revoked token in another process", gone)

	// A role that is changed or deleted is so at once.
	role.Policies = []Policy{JobView}
	if err := d.InTx(ctx, func(ctx context.Context, tx db.Q) error { return UpdateRole(ctx, tx, &role) }); err != nil {
		t.Fatal(err)
	}
	if p, err = tokens.Authenticate(ctx, secret); err != nil || !p.Over(JobRetry).Nothing() {
		t.Errorf("after the role's change: %+v, %v", p, err)
	}
	var n int64
	if err := d.InTx(ctx, func(ctx context.Context, tx db.Q) (err error) {
		n, err = DeleteRole(ctx, tx, DefaultOrg, role.ID)
		return err
	}); err != nil || n != 1 {
		t.Fatalf("%d assignments, %v", n, err)
	}
	if p, err = tokens.Authenticate(ctx, secret); err != nil || len(p.Grants) != 1 {
		t.Errorf("after the role's end: %+v, %v", p, err)
	}

	// A rotated token's old text is worth nothing.
	next := NewSecret()
	if err := RotateToken(ctx, d, &live, next); err != nil {
		t.Fatal(err)
	}
	mayNot(t, tokens, "the text before the rotation", secret)
	if _, err := tokens.Authenticate(ctx, next); err != nil {
		t.Error(err)
	}
}

// TestLastUsed: the use of a token is written down, once a minute at most.
func TestLastUsed(t *testing.T) {
	onBoth(t, func(t *testing.T, d *db.DB) {
		tokens := tokensOf(t, d)
		tok, secret := addToken(t, d, DefaultOrg, "ci", nil)
		used := func() time.Time {
			t.Helper()
			for range 20 {
				if _, err := tokens.Authenticate(t.Context(), secret); err != nil {
					t.Fatal(err)
				}
			}
			tokens.Wait()
			got, err := FindToken(sys(t), d, DefaultOrg, tok.ID)
			if err != nil || got.LastUsedAt == nil {
				t.Fatalf("not written down: %v", err)
			}
			return *got.LastUsedAt
		}
		first := used()
		if second := used(); !second.Equal(first) {
			t.Errorf("written again after %v", second.Sub(first))
		}
		if _, err := d.Exec(sys(t), `UPDATE tokens SET last_used_at = last_used_at - 61000000 WHERE id = $1`, tok.ID); err != nil {
			t.Fatal(err)
		}
		if third := used(); third.Before(first) {
			t.Error("not written again after a minute")
		}
	})
}

func TestGrantsOfManyGroups(t *testing.T) {
	onBoth(t, func(t *testing.T, d *db.DB) {
		subjects := []Subject{{SubjectUser, "usr_1"}, {SubjectUser, ""}}
		for i := range 1200 {
			subjects = append(subjects, Subject{SubjectGroup, fmt.Sprint("group-", i)})
		}
		err := d.InTx(sys(t), func(ctx context.Context, tx db.Q) error {
			for _, a := range []Assignment{
				{OrgID: DefaultOrg, Subject: Subject{SubjectGroup, "group-1199"}, RoleID: Editor, Scope: Scope{Kind: OrgScope}},
				{OrgID: DefaultOrg, Subject: Subject{SubjectUser, "usr_1"}, RoleID: Viewer, Scope: Scope{Kind: OrgScope}},
				{OrgID: DefaultOrg, Subject: Subject{SubjectUser, "group-1"}, RoleID: Admin, Scope: Scope{Kind: OrgScope}}, // a user of a group's name
				{OrgID: "org_other", Subject: Subject{SubjectUser, "usr_1"}, RoleID: Admin, Scope: Scope{Kind: OrgScope}},
			} {
				if _, made, err := AddAssignment(ctx, tx, a); err != nil || !made {
					return fmt.Errorf("made: %v, %w", made, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := Grants(sys(t), d, DefaultOrg, subjects)
		if err != nil {
			t.Fatal(err)
		}
		var roles []string
		for _, g := range got {
			roles = append(roles, g.Role)
		}
		if !cmp.Equal(roles, []string{Viewer, Editor}) {
			t.Errorf("roles %v", roles)
		}
	})
}

func TestOrganisations(t *testing.T) { onBoth(t, testOrganisations) }

func testOrganisations(t *testing.T, d *db.DB) {
	ctx, tokens := sys(t), tokensOf(t, d)
	o, secret, err := CreateOrg(ctx, d, "acme", "system:operator")
	if err != nil {
		t.Fatal(err)
	}
	p, err := tokens.Authenticate(ctx, secret)
	if err != nil || p.OrgID != o.ID || p.Actor != "token:admin" || !p.Over(RoleManage).All {
		t.Errorf("%+v, %v", p, err)
	}
	if _, _, err := CreateOrg(ctx, d, "acme", "system:operator"); !errors.Is(err, ErrTaken) {
		t.Errorf("the name again: %v", err)
	}
	for _, bad := range []string{"", "a b", "-x", strings.Repeat("x", 64), "a\x00"} {
		if _, _, err := CreateOrg(ctx, d, bad, "system:operator"); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	for _, ref := range []string{"acme", o.ID} {
		tok, back, err := Recover(ctx, d, ref, "system:operator")
		if err != nil || tok.State != TokenLive {
			t.Fatalf("%+v, %v", tok, err)
		}
		if p, err := tokens.Authenticate(ctx, back); err != nil || p.OrgID != o.ID || !p.Over(RoleManage).All {
			t.Errorf("%+v, %v", p, err)
		}
	}
	if _, _, err := Recover(ctx, d, "nobody", "system:operator"); !errors.Is(err, ErrNoOrg) {
		t.Error(err)
	}
	all, err := ListOrgs(ctx, d)
	if err != nil || len(all) != 2 || all[0].ID != DefaultOrg || all[1].Name != "acme" {
		t.Errorf("%+v, %v", all, err)
	}
	// No table keeps a token's text.
	var entries int64
	if err := d.QueryRow(ctx, `SELECT count(*) FROM audit_log WHERE org_id = $1 AND action IN ('organisation:create', 'token:create')`, o.ID).Scan(&entries); err != nil || entries != 4 {
		t.Errorf("%d entries of what was made, want 4; %v", entries, err)
	}
}
