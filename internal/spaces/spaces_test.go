package spaces

import (
	"errors"
	"path/filepath"
	"testing"

	"connectrpc.com/connect"

	"github.com/zopday/provisioner/internal/db"
	configv1 "github.com/zopday/provisioner/internal/spaces/configv1"
)

func TestBuiltInServiceOverGRPC(t *testing.T) {
	ctx := t.Context()
	d, err := db.Open(ctx, filepath.Join(t.TempDir(), "zopday.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if err := d.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	reg := NewRegistry(d)
	c, closeServer := BuiltIn(reg)
	t.Cleanup(func() { _ = closeServer() })

	space := &configv1.Space{OrgId: "org_1", Name: "shop", JobId: "job_1", SubjectType: "vm_pool", SubjectId: "vmp_1", Provider: "aws", Region: "us-east-1", ExecMode: "SSM"}
	id, err := c.Register(ctx, space)
	if err != nil || id == "" {
		t.Fatalf("Register = %q, %v", id, err)
	}
	again, err := c.Register(ctx, space)
	if err != nil || again != id {
		t.Fatalf("the same subject again gave %q, %v; want %q", again, err, id)
	}
	got, err := reg.Get(ctx, "org_1", id)
	if err != nil || got.GetName() != "shop" || got.GetExecMode() != "SSM" {
		t.Fatalf("Get = %v, %v", got, err)
	}
	if _, err := reg.Get(ctx, "org_2", id); !errors.Is(err, db.ErrNoRows) {
		t.Fatalf("another organisation sees the space: %v", err)
	}
	if _, err := c.Register(ctx, &configv1.Space{OrgId: "org_1"}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Fatalf("an incomplete space gave %v", err)
	}
	for range 2 { // forgetting twice is no error
		if err := c.Deregister(ctx, "org_1", id); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := reg.Get(ctx, "org_1", id); !errors.Is(err, db.ErrNoRows) {
		t.Fatalf("the space is still there: %v", err)
	}
}
