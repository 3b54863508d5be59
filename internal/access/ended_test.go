package access

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/db"
)

// inTx runs a change of the first organisation.
func inTx(t *testing.T, d *db.DB, fn func(ctx context.Context, tx db.Q) error) {
	t.Helper()
	if err := d.InTx(db.WithOrg(t.Context(), DefaultOrg), fn); err != nil {
		t.Fatal(err)
	}
}

func countOf(t *testing.T, d *db.DB, query string, args ...any) (n int64) {
	t.Helper()
	if err := d.QueryRow(sys(t), query, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A token's text that is replaced or revoked takes the sessions along that it opened,
// and those of no other token.
func TestSessionsEndWithTheirToken(t *testing.T) { onBoth(t, testSessionsEndWithTheirToken) }

func testSessionsEndWithTheirToken(t *testing.T, d *db.DB) {
	const own = "own-token-of-the-operator"
	if _, err := Bootstrap(t.Context(), d, own); err != nil {
		t.Fatal(err)
	}
	tokens := tokensOf(t, d)
	_, other := addToken(t, d, DefaultOrg, "other", nil)
	enter := func(text string) string {
		t.Helper()
		secret, _, err := tokens.Enter(t.Context(), text, "req")
		if err != nil {
			t.Fatal(err)
		}
		return secret
	}
	bystander := enter(other)
	tok, err := FindToken(sys(t), d, DefaultOrg, "bootstrap")
	if err != nil {
		t.Fatal(err)
	}
	text := own
	for _, tc := range []struct {
		name string
		end  func()
	}{
		{"rotated", func() {
			text = NewSecret()
			inTx(t, d, func(ctx context.Context, tx db.Q) error { return RotateToken(ctx, tx, tok, text) })
		}},
		{"replaced by the environment", func() {
			text = own + "-2"
			if _, err := Bootstrap(t.Context(), d, text); err != nil {
				t.Fatal(err)
			}
		}},
		{"revoked", func() {
			inTx(t, d, func(ctx context.Context, tx db.Q) error { return RevokeToken(ctx, tx, DefaultOrg, tok.ID, "ana") })
		}},
	} {
		one, two := enter(text), enter(text)
		tc.end()
		for _, secret := range []string{one, two} {
			if _, _, err := tokens.Session(t.Context(), secret); !errors.Is(err, ErrUnauthenticated) {
				t.Errorf("%s: a session goes on: %v", tc.name, err)
			}
		}
		if n := countOf(t, d, `SELECT count(*) FROM sessions WHERE user_id = $1`, tok.ID); n != 0 {
			t.Errorf("%s: %d sessions are left", tc.name, n)
		}
		if _, _, err := tokens.Session(t.Context(), bystander); err != nil {
			t.Errorf("%s: another token's session ended: %v", tc.name, err)
		}
	}
}

// Sessions and their audit entries are written together, or not at all.
func TestSessionsAreNoted(t *testing.T) { onBoth(t, testSessionsAreNoted) }

func testSessionsAreNoted(t *testing.T, d *db.DB) {
	const own = "own-token-of-the-operator"
	if _, err := Bootstrap(t.Context(), d, own); err != nil {
		t.Fatal(err)
	}
	tokens := tokensOf(t, d)
	noted := func(action string) int64 {
		return countOf(t, d, `SELECT count(*) FROM audit_log WHERE action = $1 AND actor = 'token:bootstrap' AND outcome = 'allowed' AND request_id = 'req'`, action)
	}
	secret, p, err := tokens.Enter(t.Context(), own, "req")
	if err != nil || noted("session:create") != 1 || p.Session == "" {
		t.Fatalf("%d entries, %v", noted("session:create"), err)
	}
	for range 2 { // the second time there is nothing to end, and to note
		if err := tokens.Leave(t.Context(), secret, "req"); err != nil || noted("session:delete") != 1 {
			t.Errorf("%d entries, %v", noted("session:delete"), err)
		}
	}

	// The log takes no entry: nobody comes in, and nobody goes out.
	if d.Dialect() == db.Postgres {
		return // where the service may not change the table
	}
	if secret, _, err = tokens.Enter(t.Context(), own, "req"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Exec(sys(t), `CREATE TRIGGER full_log BEFORE INSERT ON audit_log BEGIN SELECT RAISE(ABORT, 'the log is full'); END`); err != nil {
		t.Fatal(err)
	}
	if _, _, err := tokens.Enter(t.Context(), own, "req"); err == nil {
		t.Error("somebody came in without an entry")
	}
	if err := tokens.Leave(t.Context(), secret, "req"); err == nil {
		t.Error("somebody went out without an entry")
	}
	if n := countOf(t, d, `SELECT count(*) FROM sessions`); n != 1 {
		t.Errorf("%d sessions, want the one that was there", n)
	}
}

// The environment's text is applied once: what becomes of the token after that is the
// organisation's own doing, and outlives a start.
func TestBootstrapIsAppliedOnce(t *testing.T) { onBoth(t, testBootstrapIsAppliedOnce) }

func testBootstrapIsAppliedOnce(t *testing.T, d *db.DB) {
	const own, later = "own-token-of-the-operator", "another-text-of-the-operator"
	start := func(text string) {
		t.Helper()
		if shown, err := Bootstrap(t.Context(), d, text); err != nil || shown != "" {
			t.Fatalf("a token is shown, or %v", err)
		}
	}
	tokens := tokensOf(t, d)
	start(own)
	tok, err := FindToken(sys(t), d, DefaultOrg, "bootstrap")
	if err != nil {
		t.Fatal(err)
	}
	rotated := NewSecret()
	inTx(t, d, func(ctx context.Context, tx db.Q) error { return RotateToken(ctx, tx, tok, rotated) })
	start(own)
	mayNot(t, tokens, "the text before the rotation, after a start", own)
	if _, err := tokens.Authenticate(t.Context(), rotated); err != nil {
		t.Errorf("the rotated token after a start: %v", err)
	}
	inTx(t, d, func(ctx context.Context, tx db.Q) error { return RevokeToken(ctx, tx, DefaultOrg, tok.ID, "ana") })
	start(own)
	mayNot(t, tokens, "the environment's text, revoked after a rotation", own)
	mayNot(t, tokens, "the rotated text, revoked", rotated)
	start("") // a start without a text is none that forgets
	start(own)
	mayNot(t, tokens, "the environment's text after a start without", own)
	start(later)
	if _, err := tokens.Authenticate(t.Context(), later); err != nil {
		t.Errorf("another text: %v", err)
	}
	if n := countOf(t, d, `SELECT count(*) FROM settings WHERE value IN ($1, $2)`, own, later); n != 0 {
		t.Error("a setting has the token itself")
	}
}

// Whoever could not come in any more carries nothing out.
func TestRenewLooksAgain(t *testing.T) { onBoth(t, testRenewLooksAgain) }

func testRenewLooksAgain(t *testing.T, d *db.DB) {
	const own = "own-token-of-the-operator"
	if _, err := Bootstrap(t.Context(), d, own); err != nil {
		t.Fatal(err)
	}
	sessions, tokens := NewSessions(d), tokensOf(t, d)
	var (
		u      User
		secret string
	)
	inTx(t, d, func(ctx context.Context, tx db.Q) (err error) {
		if u, err = sessions.Enter(ctx, tx, User{OrgID: DefaultOrg, Issuer: "https://id.example.com", Subject: "ada", Email: "ada@example.com"}); err == nil {
			secret, err = sessions.Start(ctx, tx, u)
		}
		return err
	})
	got, err := sessions.Find(t.Context(), secret)
	if err != nil || got.Hash == "" {
		t.Fatalf("%+v, %v", got, err)
	}
	person := Principal{OrgID: DefaultOrg, Actor: u.Actor(), Subjects: u.Subjects(), Session: got.Hash}
	machine := Principal{OrgID: DefaultOrg, Actor: "machine:id/robot", Subjects: []Subject{{SubjectUser, "machine:id/robot"}}}
	door, byToken, err := tokens.Enter(t.Context(), own, "req")
	if err != nil {
		t.Fatal(err)
	}
	gone := person
	gone.Subjects, gone.Session = []Subject{{SubjectUser, "usr_nobody"}}, ""
	check := func(what string, p Principal, want error) {
		t.Helper()
		inTx(t, d, func(ctx context.Context, tx db.Q) error {
			if _, err := Renew(ctx, tx, p); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
			return nil
		})
	}
	check("a person", person, nil)
	check("a machine", machine, nil)
	check("a token's session", byToken, nil)
	check("nobody", gone, ErrUnauthenticated)
	if err := tokens.Leave(t.Context(), door, "req"); err != nil {
		t.Fatal(err)
	}
	check("a token's session that has ended", byToken, ErrUnauthenticated)
	inTx(t, d, func(ctx context.Context, tx db.Q) error { return sessions.End(ctx, tx, DefaultOrg, secret) })
	check("a person's session that has ended", person, ErrUnauthenticated)
	person.Session = ""
	check("a person without a session", person, nil)
	inTx(t, d, func(ctx context.Context, tx db.Q) error {
		_, err := Disable(ctx, tx, DefaultOrg, u.ID, true)
		return err
	})
	check("a disabled person", person, ErrUnauthenticated)
}

// A token's life is kept beside its end.
func TestTokenLife(t *testing.T) { onBoth(t, testTokenLife) }

func testTokenLife(t *testing.T, d *db.DB) {
	if _, err := Bootstrap(t.Context(), d, ""); err != nil {
		t.Fatal(err)
	}
	end := time.Now().Add(10 * time.Hour)
	inTx(t, d, func(ctx context.Context, tx db.Q) error {
		return AddToken(ctx, tx, &Token{ID: "tok_a", OrgID: DefaultOrg, Name: "a", CreatedBy: "ana", ExpiresAt: &end, Life: 30 * time.Hour}, NewSecret())
	})
	life := func() time.Duration {
		t.Helper()
		tok, err := FindToken(sys(t), d, DefaultOrg, "a")
		if err != nil {
			t.Fatal(err)
		}
		return tok.Life
	}
	if got := life(); got != 30*time.Hour {
		t.Errorf("life %s", got)
	}
	// A token from before lives were written down: from when it was made to its end.
	if _, err := d.Exec(sys(t), `UPDATE tokens SET life = NULL, created_at = expires_at - 7200000000 WHERE id = 'tok_a'`); err != nil {
		t.Fatal(err)
	}
	if got := life(); got != 2*time.Hour {
		t.Errorf("life %s", got)
	}
	if _, err := d.Exec(sys(t), `UPDATE tokens SET expires_at = NULL WHERE id = 'tok_a'`); err != nil {
		t.Fatal(err)
	}
	if got := life(); got != 0 {
		t.Errorf("life %s of a token that does not end", got)
	}
}
