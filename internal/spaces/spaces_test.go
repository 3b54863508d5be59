package spaces

import (
	"path/filepath"
	"testing"

	"connectrpc.com/connect"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
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

	space := &configv1.Space{OrgId: "org_1", Name: "shop", JobId: "job_1", SubjectType: "vm_pool", SubjectId: "vmp_1", Provider: "aws", Region: "us-east-1", ExecMode: "SSM",
		SpaceType: job.SpaceVM, Config: map[string]string{"region": "us-east-1"}}
	id, err := c.Register(ctx, space)
	if err != nil || id == "" {
		t.Fatalf("Register = %q, %v", id, err)
	}
	again, err := c.Register(ctx, space)
	if err != nil || again != id {
		t.Fatalf("the same subject again gave %q, %v; want %q", again, err, id)
	}
	got, err := c.Get(ctx, "org_1", id)
	if err != nil || got.GetName() != "shop" || got.GetExecMode() != "SSM" || got.GetStatus() != "synced" || got.GetConfig()["region"] != "us-east-1" || got.GetCreatedAt() == 0 {
		t.Fatalf("Get = %v, %v", got, err)
	}
	if got, err := c.Get(ctx, "org_2", id); got != nil || err != nil {
		t.Fatalf("another organisation sees the space: %v, %v", got, err)
	}
	second, err := c.Register(ctx, &configv1.Space{OrgId: "org_1", Name: "k", JobId: "job_2", SubjectType: "cluster", SubjectId: "clu_1", Provider: "gcp", Region: "r", SpaceType: job.SpaceKubernetes})
	if err != nil {
		t.Fatal(err)
	}
	page, next, err := c.List(ctx, "org_1", 1, "")
	if err != nil || len(page) != 1 || page[0].GetId() != second || next == "" {
		t.Fatalf("the first page = %v, %q, %v", page, next, err)
	}
	page, next, err = c.List(ctx, "org_1", 1, next)
	if err != nil || len(page) != 1 || page[0].GetId() != id || next != "" {
		t.Fatalf("the second page = %v, %q, %v", page, next, err)
	}
	if _, err := c.Register(ctx, &configv1.Space{OrgId: "org_1"}); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Fatalf("an incomplete space gave %v", err)
	}
	for range 2 { // forgetting twice is no error
		if err := c.Deregister(ctx, "org_1", id); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := c.Get(ctx, "org_1", id); got != nil || err != nil {
		t.Fatalf("the space is still there: %v, %v", got, err)
	}
}
