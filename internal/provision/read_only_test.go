package provision

import (
	"context"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/accounts"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// TestReadOnlyAccounts: once an account is read_only, nothing that would change what a
// job made is taken, to fail later; what needs no change still is.
func TestReadOnlyAccounts(t *testing.T) {
	t.Parallel()
	o := newOffice(t, filepath.Join(t.TempDir(), "zopday.db"))
	o.withAccounts(t)
	a, err := o.CreateAccount(o.ctx, keysOf("prod"))
	if err != nil {
		t.Fatal(err)
	}
	in := func(j *job.Job) { j.CloudAccountID = a.ID }
	failed := func(j *job.Job) {
		j.Status, j.Error = job.Failed, &job.Error{Code: "x", Message: "y", Step: "create_vm"}
	}
	adopted := func(j *job.Job) {
		j.Mode, j.Config.Spec = job.ModeAdopt, json.RawMessage(`{"adopt":{"ids":["i-0123456789abcdef0"]}}`)
	}
	vm, broken := o.finished(job.VM, "shop", in), o.finished(job.VM, "broken", in, failed)
	unmade, seen := o.finished(job.VM, "unmade", in, failed), o.finished(job.VM, "seen", in, adopted)
	store := o.finished(job.Datastore, "orders", in, func(j *job.Job) { j.Config.Spec = json.RawMessage(`{"engine":"postgres"}`) })
	release := o.finished(job.Component, "ingress", in, func(j *job.Job) {
		j.Config.Spec = json.RawMessage(`{"component":{"name":"ingress-nginx"}}`)
	})
	r := vmRequest("draft", "")
	r.CloudAccountID = a.Name
	draft, _, err := o.Create(o.ctx, r, "")
	if err != nil {
		t.Fatal(err)
	}
	op, queued := job.AttachLB, job.Queued
	level := func(l accounts.Level) {
		t.Helper()
		if _, err := o.PatchAccount(o.ctx, a.ID, AccountPatch{Level: &l}); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(id string) error { _, _, err := o.Delete(o.ctx, id, "", nil); return err }
	patch := func(id string, p PatchRequest) error { _, _, err := o.Patch(o.ctx, id, p, nil); return err }
	logical := func() error {
		return o.changeLogical(o.ctx, access.DatabaseCreate, store, func(context.Context, db.Q, access.Principal) (bool, audit.Entry, error) {
			return true, audit.Entry{ResourceType: "database", ResourceID: "db"}, nil
		})
	}
	changes := map[string]func() error{
		"vmOp":       func() error { return patch(vm.ID, PatchRequest{VMOp: &op}) },
		"retry":      func() error { _, err := o.Retry(o.ctx, broken.ID); return err },
		"delete":     func() error { return remove(vm.ID) },
		"uninstall":  func() error { return remove(release.ID) },
		"a database": logical,
		"submit":     func() error { return patch(draft.ID, PatchRequest{Status: &queued}) },
		"pause":      func() error { _, err := o.remediate(job.ActionPause, vm.ID, ""); return err },
	}
	level(accounts.ReadOnly)
	for name, change := range changes {
		if r, ok := refusalIn(change()); !ok || r.Kind != WrongState && r.Kind != Invalid || r.Hint == "" && (len(r.Fields) == 0 || r.Fields[0].Fix == "") {
			t.Errorf("%s with a read_only account: %+v", name, r)
		}
	}
	for _, j := range []*job.Job{vm, broken, store, release} {
		if now, err := o.Ledger.Get(o.ctx, officeOrg, j.ID); err != nil || now.State() != j.State() || now.Run != j.Run {
			t.Errorf("%s is changed after a refusal: %+v, %v", j.Name, now.State(), err)
		}
	}
	for name, change := range map[string]func() error{
		"disconnecting":         func() error { return remove(seen.ID) },
		"one that made nothing": func() error { return remove(unmade.ID) },
		"a draft's end":         func() error { return remove(draft.ID) },
	} {
		if err := change(); err != nil {
			t.Errorf("%s with a read_only account: %v", name, err)
		}
	}
	level(accounts.ReadWrite)
	delete(changes, "submit")
	for _, name := range []string{"retry", "a database", "vmOp"} {
		if err := changes[name](); err != nil {
			t.Errorf("%s with a read_write account: %v", name, err)
		}
	}
}
