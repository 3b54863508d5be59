package access

import (
	"errors"
	"testing"

	"github.com/zopday/provisioner/internal/db"
)

// A session of a token is the token, for as long as both last.
func TestTokenSessions(t *testing.T) { onBoth(t, testTokenSessions) }

func testTokenSessions(t *testing.T, d *db.DB) {
	ctx := sys(t)
	const own = "own-token-of-the-operator"
	if _, err := Bootstrap(ctx, d, own); err != nil {
		t.Fatal(err)
	}
	tokens := NewTokens(d, nil)
	t.Cleanup(tokens.Wait)
	for _, bad := range []string{"", "wrong-token-of-nobody", own + "x", "eyJhbGciOiJub25lIn0.e30.x"} {
		if _, _, err := tokens.Enter(ctx, bad, "req"); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("%q enters: %v", bad, err)
		}
	}
	open := func() string {
		t.Helper()
		secret, p, err := tokens.Enter(ctx, own, "req")
		if err != nil || p.OrgID != DefaultOrg {
			t.Fatalf("%+v, %v", p, err)
		}
		return secret
	}
	out := func(what, secret string) {
		t.Helper()
		if _, _, err := tokens.Session(ctx, secret); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("%s: %v", what, err)
		}
	}
	one, two := open(), open()
	_, p, err := tokens.Session(ctx, one)
	if err != nil || p.Actor != "token:bootstrap" || !p.Over(TokenManage).All {
		t.Fatalf("%+v, %v", p, err)
	}
	if one == two || one == own {
		t.Error("two sessions share a secret, or hold the token")
	}
	out("nothing", "")
	out("the token itself", own)
	out("another secret", NewCookie())
	if err := tokens.Leave(ctx, one, "req"); err != nil {
		t.Fatal(err)
	}
	out("after leaving", one)
	if _, _, err := tokens.Session(ctx, two); err != nil {
		t.Errorf("the other session ended too: %v", err)
	}
	for what, change := range map[string]string{
		"idle":    `UPDATE sessions SET seen_at = seen_at - 28800000001`,
		"expired": `UPDATE sessions SET expires_at = created_at`,
	} {
		secret := open()
		if _, err := d.Exec(ctx, change); err != nil {
			t.Fatal(err)
		}
		out(what, secret)
		if n, err := tokens.Sweep(ctx); err != nil || n == 0 {
			t.Errorf("%s: swept %d, %v", what, n, err)
		}
	}
	last := open()
	if _, err := d.Exec(ctx, `UPDATE tokens SET revoked_at = 1`); err != nil {
		t.Fatal(err)
	}
	out("a revoked token", last)
}
