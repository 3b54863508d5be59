package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/job"
)

// in is a request of somebody with a role in one scope.
func (b *bench) in(actor, role string, kind access.ScopeKind, id string) context.Context {
	p := access.Principal{OrgID: "org1", Actor: actor, Grants: []access.Grant{{Role: role, Scope: access.Scope{Kind: kind, ID: id}, Policies: access.BuiltIn(role)}}}
	return access.With(b.t.Context(), p)
}

// team makes a team.
func (b *bench) team(name string) string {
	b.t.Helper()
	id := job.NewID("team")
	if _, err := b.Ledger.DB().Exec(b.t.Context(), `INSERT INTO teams (id, org_id, name, created_by, created_at) VALUES ($1, 'org1', $2, 'ana', 1)`, id, name); err != nil {
		b.t.Fatal(err)
	}
	return id
}

// patchBy sends one change of a job by somebody.
func (b *bench) patchBy(ctx context.Context, id, body string) (*JobView, error) {
	was := b.ctx
	defer func() { b.ctx = was }()
	b.ctx = ctx
	return b.patch(id, body)
}

// refusalIn is the refusal in an error.
func refusalIn(err error) (*Refusal, bool) {
	var r *Refusal
	return r, errors.As(err, &r)
}

func vmRequest(name, team string) CreateRequest {
	return CreateRequest{ResourceType: job.VM, Provider: job.AWS, Name: name, Region: "us-east-1", Team: team, Config: ConfigRequest{Spec: json.RawMessage(`{}`)}}
}

// TestTeamsAreApart: whoever holds roles in one team sees and changes what is that
// team's, and what is another's is not there.
func TestTeamsAreApart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	shop, bank := b.team("shop"), b.team("bank")
	editor, viewer := b.in("eve", access.Editor, access.TeamScope, shop), b.in("vic", access.Viewer, access.TeamScope, shop)

	// A new job is the only team's, or the one that is named, if one may.
	mine, _, err := b.Create(editor, vmRequest("mine", ""), "")
	if err != nil || mine.TeamID != shop {
		t.Fatalf("team %q, %v", mine.TeamID, err)
	}
	theirs, _, err := b.Create(b.ctx, vmRequest("theirs", "bank"), "")
	if err != nil || theirs.TeamID != bank {
		t.Fatalf("team %q, %v", theirs.TeamID, err)
	}
	free, _, err := b.Create(b.ctx, vmRequest("free", ""), "")
	if err != nil || free.TeamID != "" {
		t.Fatalf("team %q, %v", free.TeamID, err)
	}
	_, _, err = b.Create(editor, vmRequest("x", "bank"), "")
	b.refused(err, Invalid, "team") // as one that is not there
	_, _, err = b.Create(editor, vmRequest("x", "nowhere"), "")
	b.refused(err, Invalid, "team")
	_, _, err = b.Create(viewer, vmRequest("x", ""), "")
	b.refused(err, Forbidden)
	_, err = b.PlanRequest(editor, vmRequest("x", "bank"))
	b.refused(err, Invalid, "team")

	for who, ctx := range map[string]context.Context{"editor": editor, "viewer": viewer, "one job": b.in("ida", access.Editor, access.ResourceScope, mine.ID)} {
		items, _, err := b.List(ctx, ListQuery{})
		if err != nil || len(items) != 1 || items[0].ID != mine.ID {
			t.Errorf("%s lists %d jobs, %v", who, len(items), err)
		}
		for _, ref := range []string{mine.ID, mine.Name} {
			if _, err := b.Get(ctx, ref); err != nil {
				t.Errorf("%s: %v", who, err)
			}
		}
		for _, j := range []*JobView{theirs, free} {
			for _, ref := range []string{j.ID, j.Name, j.ID[:20]} {
				_, err := b.Get(ctx, ref)
				same := b.refused(err, NotFound)
				_, err = b.Get(ctx, "job_00000000000000000000000000")
				if none := b.refused(err, NotFound); same.Message != none.Message || same.Hint != none.Hint || same.Job != none.Job {
					t.Errorf("%s: another team's job answers %+v, one that never was %+v", who, same, none)
				}
			}
			_, err := b.patchBy(ctx, j.ID, `{"status":"queued"}`)
			kind := NotFound
			if who == "viewer" {
				kind = Forbidden // who may change nothing at all is told so first
			}
			b.refused(err, kind)
			_, _, err = b.Delete(ctx, j.ID, "", nil)
			b.refused(err, kind)
		}
	}
	_, err = b.patchBy(viewer, mine.ID, `{"status":"queued"}`)
	b.refused(err, Forbidden)

	// A viewer of the whole organisation who edits in one team sees all, and is told no.
	mixed := b.in("mia", access.Editor, access.TeamScope, shop)
	p, _ := access.From(mixed)
	p.Grants = append(p.Grants, access.Of("org1", "mia", access.Viewer).Grants...)
	mixed = access.With(t.Context(), p)
	if _, err := b.Get(mixed, theirs.ID); err != nil {
		t.Error(err)
	}
	_, err = b.patchBy(mixed, theirs.ID, `{"status":"queued"}`)
	if r := b.refused(err, Forbidden); !strings.Contains(r.Message, "theirs") {
		t.Errorf("it does not say over what: %s", r.Message)
	}
	if _, err = b.patchBy(mixed, mine.ID, `{"status":"queued"}`); err != nil {
		t.Error(err)
	}
	entries, _, err := audit.List(t.Context(), b.Ledger.DB(), "org1", audit.Filter{Actor: "eve", Scope: "team:" + shop, Outcome: audit.Allowed})
	if err != nil || len(entries) == 0 {
		t.Errorf("%d entries of eve in her team, %v", len(entries), err)
	}
}

// TestSpacesOfTeams: a space is its job's team's, and so is what is installed in it.
func TestSpacesOfTeams(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	shop, bank := b.team("shop"), b.team("bank")
	job1, space1 := b.cluster("one", job.AWS, "us-east-1", "eks-1")
	job2, space2 := b.cluster("two", job.AWS, "us-east-1", "eks-2")
	for id, team := range map[string]string{job1.ID: shop, job2.ID: bank} {
		if _, err := b.Ledger.DB().Exec(t.Context(), `UPDATE provisioning_jobs SET team_id = $1 WHERE id = $2`, team, id); err != nil {
			t.Fatal(err)
		}
	}
	eve := b.in("eve", access.Editor, access.TeamScope, shop)
	items, _, err := b.ListSpaces(eve, 10, "")
	if err != nil || len(items) != 1 || items[0].ID != space1 {
		t.Errorf("%+v, %v", items, err)
	}
	for _, ref := range []string{space2, "two"} {
		_, err := b.GetSpace(eve, ref)
		b.refused(err, NotFound)
		_, err = b.Namespaces(eve, ref)
		b.refused(err, NotFound)
		b.refused(b.DeleteSpace(eve, ref), NotFound)
		_, _, err = b.InstallComponent(eve, InstallRequest{SpaceID: ref, Component: "traefik"}, "")
		b.refused(err, NotFound)
	}
	v, _, err := b.InstallComponent(eve, InstallRequest{SpaceID: "one", Component: "traefik"}, "")
	if err != nil || v.TeamID != shop {
		t.Fatalf("team %q, %v", v.TeamID, err)
	}
	// Who may only look at the space installs nothing there.
	vic := b.in("vic", access.Viewer, access.TeamScope, shop)
	p, _ := access.From(vic)
	p.Grants = append(p.Grants, access.Grant{Role: access.Editor, Scope: access.Scope{Kind: access.TeamScope, ID: bank}, Policies: access.BuiltIn(access.Editor)})
	_, _, err = b.InstallComponent(access.With(t.Context(), p), InstallRequest{SpaceID: "one", Component: "keda"}, "")
	b.refused(err, Forbidden)
	// A cluster that no job made is the organisation's.
	_, _, err = b.RegisterSpace(eve, SpaceRequest{Name: "free", Provider: job.AWS, Config: SpaceConfig{Region: "us-east-1", Cluster: "eks-2"}})
	b.refused(err, Forbidden)
	b.refused(b.ClusterAccess(b.in("eve", access.Admin, access.TeamScope, shop), "default", "us-east-1", "eks-1", AccessRequest{Provider: job.AWS}, false), Forbidden) // it may be used for jobs, so it is seen
}

// TestSchedulesOfTeams: a schedule is its subject's team's.
func TestSchedulesOfTeams(t *testing.T) { onBothDatabases(t, testSchedulesOfTeams) }

func testSchedulesOfTeams(t *testing.T, o *office) {
	mine := o.finished(job.VM, "mine", func(j *job.Job) { j.TeamID = "team_shop" })
	theirs := o.finished(job.VM, "theirs", func(j *job.Job) { j.TeamID = "team_bank" })
	ids := map[string]string{}
	for _, j := range []*job.Job{mine, theirs} {
		v, err := o.CreateSchedule(o.ctx, ScheduleRequest{JobID: j.ID, PauseCron: "0 20 * * *", ResumeCron: "0 8 * * *", TimeZone: "UTC"}, false)
		if err != nil {
			t.Fatal(err)
		}
		ids[j.Name] = v.ID
	}
	eve := access.With(t.Context(), access.Principal{OrgID: officeOrg, Actor: "eve", Grants: []access.Grant{
		{Role: access.Editor, Scope: access.Scope{Kind: access.TeamScope, ID: "team_shop"}, Policies: access.BuiltIn(access.Editor)}}})
	items, _, err := o.ListSchedules(eve, "", 10, "")
	if err != nil || len(items) != 1 || items[0].ID != ids["mine"] {
		t.Errorf("%+v, %v", items, err)
	}
	if _, err := o.GetSchedule(eve, ids["mine"]); err != nil {
		t.Error(err)
	}
	off := false
	for what, do := range map[string]func(id string) error{
		"get":    func(id string) error { _, err := o.GetSchedule(eve, id); return err },
		"patch":  func(id string) error { _, err := o.PatchSchedule(eve, id, SchedulePatch{Enabled: &off}); return err },
		"delete": func(id string) error { return o.DeleteSchedule(eve, id) },
		"list":   func(string) error { _, _, err := o.ListSchedules(eve, theirs.ID, 10, ""); return err },
		"pause": func(string) error {
			_, _, err := o.Create(eve, CreateRequest{Kind: job.Remediation, Config: ConfigRequest{Spec: json.RawMessage(fmt.Sprintf(`{"action":"pause","jobId":%q}`, theirs.ID))}}, "")
			return err
		},
	} {
		if r, ok := refusalIn(do(ids["theirs"])); !ok || r.Kind != NotFound {
			t.Errorf("%s of another team's: %+v", what, r)
		}
	}
	if err := o.DeleteSchedule(eve, ids["mine"]); err != nil {
		t.Error(err)
	}
}

// TestIdempotencyKeysOfTeams: a key that another team's request has used gives nothing away.
func TestIdempotencyKeysOfTeams(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.team("shop")
	bank := b.team("bank")
	theirs, _, err := b.Create(b.ctx, vmRequest("theirs", "shop"), "key-1")
	if err != nil {
		t.Fatal(err)
	}
	eve := b.in("eve", access.Editor, access.TeamScope, bank)
	for _, r := range []CreateRequest{vmRequest("theirs", "shop"), vmRequest("other", "")} {
		_, _, err := b.Create(eve, r, "key-1")
		refused, ok := refusalIn(err)
		if !ok || !slices.Contains([]Kind{KeyReused, Invalid}, refused.Kind) || refused.Job != "" || strings.Contains(fmt.Sprint(refused), theirs.ID) {
			t.Errorf("%s: %+v", r.Name, refused)
		}
	}
}

// TestWhatIsTheOrganisations: the audit log, and what concerns the installation, are no team's.
func TestWhatIsTheOrganisations(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	shop := b.team("shop")
	for what, ctx := range map[string]context.Context{"a team's admin": b.in("eve", access.Admin, access.TeamScope, shop), "an admin of one job": b.in("ida", access.Admin, access.ResourceScope, "job_x")} {
		_, _, err := b.AuditLog(ctx, audit.Filter{})
		b.refused(err, Forbidden)
		_, err = b.VerifyAudit(ctx)
		b.refused(err, Forbidden)
		b.refused(b.ExportAudit(ctx, audit.Filter{}, func(audit.Entry) error { t.Errorf("%s exports the audit log", what); return nil }), Forbidden)
		b.refused(b.operator(ctx, "backup"), Forbidden)
	}
	only := access.Principal{OrgID: access.DefaultOrg, Actor: "kim", Grants: []access.Grant{{Role: "keeper", Scope: access.Scope{Kind: access.OrgScope}, Policies: []access.Policy{access.TokenManage, access.RoleManage}}}}
	b.refused(b.operator(access.With(t.Context(), only), "backup"), Forbidden)
	b.refused(b.operator(b.ctx, "backup"), Forbidden) // an admin of another organisation than the first
	if err := b.operator(access.With(t.Context(), access.Of(access.DefaultOrg, "root", access.Admin)), "backup"); err == nil || strings.Contains(err.Error(), "role Admin") {
		t.Errorf("the installation's admin: %v", err)
	}
}
