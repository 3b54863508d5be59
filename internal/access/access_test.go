package access

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	adminOnly := map[Policy]bool{CloudAccountManage: true, RoleManage: true, TokenManage: true, WebhookManage: true}
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
