package access

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/db"
)

func TestRequireDeniesByDefault(t *testing.T) {
	t.Parallel()
	viewer := With(t.Context(), Of("o", "a", Viewer))
	for _, tc := range []struct {
		name   string
		ctx    context.Context
		policy Policy
		want   string
	}{
		{"no principal", t.Context(), JobView, "unauthenticated"},
		{"a principal without an organisation", With(t.Context(), Of("", "a", Admin)), JobView, "unauthenticated"},
		{"no role", With(t.Context(), Principal{OrgID: "o", Actor: "a"}), JobView, "denied"},
		{"unknown role", With(t.Context(), Of("o", "a", "admin")), JobView, "denied"},
		{"viewer views", viewer, JobView, ""},
		{"viewer creates", viewer, JobCreate, "denied"},
		{"an unknown policy", With(t.Context(), Of("o", "a", Admin)), "job:fly", "denied"},
		{"the empty policy", With(t.Context(), Of("o", "a", Admin)), "", "denied"},
		{"public is no grant", With(t.Context(), Of("o", "a", Admin)), Public, "denied"},
		{"one of two roles", With(t.Context(), Of("o", "a", Viewer, Editor)), JobDelete, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := Require(tc.ctx, tc.policy)
			var denied *DeniedError
			got := ""
			switch {
			case errors.Is(err, ErrUnauthenticated):
				got = "unauthenticated"
			case errors.As(err, &denied):
				got = "denied"
			case err != nil:
				t.Fatal(err)
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestPolicyTable(t *testing.T) {
	t.Parallel()
	adminOnly := map[Policy]bool{CloudAccountManage: true, RoleManage: true, TokenManage: true}
	for _, p := range Policies() {
		_, action, _ := strings.Cut(string(p), ":")
		if !slices.Contains(BuiltIn(Admin), p) {
			t.Errorf("Admin lacks %s", p)
		}
		if got, want := slices.Contains(BuiltIn(Editor), p), !adminOnly[p]; got != want {
			t.Errorf("Editor %s: %v, want %v", p, got, want)
		}
		if got, want := slices.Contains(BuiltIn(Viewer), p), action == "view"; got != want {
			t.Errorf("Viewer %s: %v, want %v", p, got, want)
		}
	}
}

func TestExpand(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]Policy{
		"provisioning-job:write": {JobCreate, JobUpdate, JobDelete},
		"database:write":         {DatabaseCreate, DatabaseDelete},
		"space:read":             {SpaceView},
		"vm:operate":             {VMOperate},
		"vm:fly":                 nil,
		"":                       nil,
	} {
		if diff := cmp.Diff(want, Expand(name)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", name, diff)
		}
	}
}

func openDB(t *testing.T) *db.DB {
	t.Helper()
	d, err := db.Open(t.Context(), filepath.Join(t.TempDir(), "test.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestBootstrapToken(t *testing.T) {
	t.Parallel()
	d := openDB(t)
	tokens := NewTokens(d)
	if _, err := tokens.Authenticate(t.Context(), ""); !errors.Is(err, ErrUnauthenticated) {
		t.Fatalf("an empty token before there is any: %v", err)
	}
	fresh, err := Bootstrap(t.Context(), d.Writer(), "")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(fresh, TokenPrefix) || len(fresh) < 40 {
		t.Fatalf("the fresh token has %d characters and the wrong front", len(fresh))
	}
	again, err := Bootstrap(t.Context(), d.Writer(), "")
	if err != nil || again != "" {
		t.Fatalf("a second start shows a token or fails: %v", err)
	}
	p, err := tokens.Authenticate(t.Context(), fresh)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Of(DefaultOrg, "token:bootstrap", Admin), p); diff != "" {
		t.Error(diff)
	}
	for _, wrong := range []string{"", fresh[:len(fresh)-1], fresh + "x", strings.ToUpper(fresh)} {
		if _, err := tokens.Authenticate(t.Context(), wrong); !errors.Is(err, ErrUnauthenticated) {
			t.Errorf("a wrong token of %d characters: %v", len(wrong), err)
		}
	}

	// The database holds the hash alone.
	if stored, _, _ := db.Setting(t.Context(), d, bootstrapSetting); strings.Contains(stored, fresh) || len(stored) != 64 {
		t.Error("the setting is not a hash")
	}

	const own = "own-token-of-the-operator"
	if shown, err := Bootstrap(t.Context(), d.Writer(), own); err != nil || shown != "" {
		t.Fatalf("a token from the environment is shown or refused: %v", err)
	}
	if _, err := tokens.Authenticate(t.Context(), own); err != nil {
		t.Error(err)
	}
	if _, err := tokens.Authenticate(t.Context(), fresh); !errors.Is(err, ErrUnauthenticated) {
		t.Error("the replaced token still works")
	}
}

func TestBootstrapRefusesBadTokens(t *testing.T) {
	t.Parallel()
	d := openDB(t)
	for _, bad := range []string{"short", "has a space in the middle", "umlaut-ä-in-the-middle", "line\nbreak-in-the-middle", strings.Repeat("x", 513)} {
		_, err := Bootstrap(t.Context(), d.Writer(), bad)
		if err == nil {
			t.Errorf("%q was taken", bad)
		} else if strings.Contains(err.Error(), bad) {
			t.Errorf("the error repeats the token: %v", err)
		}
	}
}

func TestBearer(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		"Bearer zop_x": "zop_x", "bearer zop_x": "zop_x", "Basic zop_x": "", "zop_x": "", "": "", "Bearer": "", "Bearer ": "",
	} {
		if got := Bearer(header); got != want {
			t.Errorf("%q: %q, want %q", header, got, want)
		}
	}
}
