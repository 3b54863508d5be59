package access

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/db"
)

func TestBootstrap(t *testing.T) { onBoth(t, testBootstrap) }

func testBootstrap(t *testing.T, d *db.DB) {
	tokens := tokensOf(t, d)
	mayNot(t, tokens, "an empty token before there is any", "")
	fresh, err := Bootstrap(t.Context(), d, "")
	if err != nil {
		t.Fatal(err)
	}
	if !Genuine(fresh) {
		t.Fatalf("the fresh token has %d characters and the wrong form", len(fresh))
	}
	again, err := Bootstrap(t.Context(), d, "")
	if err != nil || again != "" {
		t.Fatalf("a second start shows a token or fails: %v", err)
	}
	p, err := tokens.Authenticate(t.Context(), fresh)
	if err != nil {
		t.Fatal(err)
	}
	if p.OrgID != DefaultOrg || p.Actor != "token:bootstrap" || len(p.Grants) != 1 || p.Grants[0].Role != Admin || p.Grants[0].Scope != (Scope{Kind: OrgScope}) {
		t.Errorf("principal %+v", p)
	}
	if diff := cmp.Diff(BuiltIn(Admin), p.Grants[0].Policies); diff != "" {
		t.Error(diff)
	}
	for _, wrong := range []string{"", fresh[:len(fresh)-1], fresh + "x", strings.ToUpper(fresh), NewSecret(), strings.Repeat("x", 600), "eyJhbGciOiJub25lIn0.e30."} {
		mayNot(t, tokens, fmt.Sprintf("a wrong token of %d characters", len(wrong)), wrong)
	}
	const own = "own-token-of-the-operator"
	if shown, err := Bootstrap(t.Context(), d, own); err != nil || shown != "" {
		t.Fatalf("a token from the environment is shown or refused: %v", err)
	}
	if _, err := tokens.Authenticate(t.Context(), own); err != nil {
		t.Error(err)
	}
	mayNot(t, tokens, "the replaced token", fresh)
	tok, err := FindToken(sys(t), d, DefaultOrg, "bootstrap")
	if err != nil {
		t.Fatal(err)
	}
	if tok.Hint != "" {
		t.Error("a hint gives a part of the operator's own token away")
	}

	// The environment does not bring back the very token that was revoked; another does.
	if err := RevokeToken(sys(t), d, DefaultOrg, tok.ID, "ana"); err != nil {
		t.Fatal(err)
	}
	if _, err := Bootstrap(t.Context(), d, own); err != nil {
		t.Fatal(err)
	}
	mayNot(t, tokens, "the revoked token after another start", own)
	if _, err := Bootstrap(t.Context(), d, own+"-2"); err != nil {
		t.Fatal(err)
	}
	if p, err := tokens.Authenticate(t.Context(), own+"-2"); err != nil || len(p.Grants) != 1 {
		t.Errorf("another token from the environment: %v", err)
	}
	mayNot(t, tokens, "the revoked token", own)
}

// TestBootstrapMoves: the token of an installation from before there was a table of
// tokens goes on to work.
func TestBootstrapMoves(t *testing.T) {
	onBoth(t, func(t *testing.T, d *db.DB) {
		const old = "zop_abcdefghijklmnopqrstuvwxyz234567abcdefghijklmnopqrst" // of the old form, 52 characters
		sum := sha256.Sum256([]byte(old))
		if err := db.PutSetting(sys(t), d, bootstrapSetting, hex.EncodeToString(sum[:])); err != nil {
			t.Fatal(err)
		}
		if fresh, err := Bootstrap(t.Context(), d, ""); fresh != "" || err != nil {
			t.Fatalf("a token is shown, or %v", err)
		}
		if p, err := tokensOf(t, d).Authenticate(t.Context(), old); err != nil || p.Actor != "token:bootstrap" || len(p.Grants) != 1 {
			t.Errorf("%+v, %v", p, err)
		}
		if _, ok, err := db.Setting(sys(t), d, bootstrapSetting); ok || err != nil {
			t.Errorf("the setting stays: %v", err)
		}
	})
}

func TestBootstrapAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, d *db.DB) {
		var (
			wg    sync.WaitGroup
			mu    sync.Mutex
			shown []string
		)
		for range 8 {
			wg.Go(func() {
				fresh, err := Bootstrap(t.Context(), d, "")
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				if fresh != "" {
					shown = append(shown, fresh)
				}
			})
		}
		wg.Wait()
		if len(shown) != 1 {
			t.Errorf("%d of 8 starts show a token", len(shown))
		}
	})
}

func TestBootstrapRefusesBadTokens(t *testing.T) {
	t.Parallel()
	d := openAt(t, filepath.Join(t.TempDir(), "test.db"))
	wrongSum := NewSecret()
	wrongSum = wrongSum[:10] + string("ab"[(wrongSum[10]-'a'+1)%2&1]) + wrongSum[11:]
	for _, bad := range []string{"short", "has a space in the middle", "umlaut-ä-in-the-middle", "line\nbreak-in-the-middle", strings.Repeat("x", 513), "eyJhbGciOiJub25lIn0.e30.signature", wrongSum} {
		if bad == wrongSum && Genuine(bad) {
			continue // the changed character is the one that was there
		}
		_, err := Bootstrap(t.Context(), d, bad)
		if err == nil {
			t.Errorf("%q was taken", bad)
		} else if strings.Contains(err.Error(), bad) {
			t.Errorf("the error repeats the token: %v", err)
		}
	}
}
