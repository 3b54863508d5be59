package provision

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/job"
)

// patch sends one change of a job, as a body.
func (b *bench) patch(id, body string) (*JobView, error) {
	var p PatchRequest
	if err := Decode([]byte(body), &p); err != nil {
		return nil, err
	}
	v, _, err := b.Patch(b.ctx, id, p, nil)
	return v, err
}

func upgradeTo(component string) string {
	return `{"componentOp":"upgrade","config":{"spec":{"component":` + component + `}}}`
}

const rollBack = `{"componentOp":"rollback"}`

func TestUpgradeComponent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, space := b.cluster("platform", job.AWS, "us-east-1", "eks-1")
	v := b.install(InstallRequest{SpaceID: space, Component: "traefik", Values: json.RawMessage(`{"a":{"b":1,"c":2}}`)}, job.ComponentRevision{Revision: 1, Version: "41.3.0", Values: json.RawMessage(`{"a":{"b":1,"c":2}}`)})
	up, err := b.patch(v.ID, upgradeTo(`{"version":"41.4.0","values":{"a":{"c":null,"d":3}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if up.Status != job.Queued || up.Phase != job.PhaseUpdate || up.VMOp != job.UpgradeComponent || up.Run != 2 || up.SpecRevision != 2 || len(up.Steps) != 3 || up.Steps[0].Status != job.StepPending {
		t.Errorf("%+v", up.Job)
	}
	if spec, err := up.ComponentJob(); err != nil || spec.Component.Version != "41.4.0" || string(spec.Component.Values) != `{"a":{"b":1,"d":3}}` || spec.SpaceID != space {
		t.Errorf("%s, %v", up.Config.Spec, err)
	}
	b.audits("ana component:install allowed "+v.ID, `"componentOp":"upgrade"`, "config.spec.component.values.a.d")
	if last := b.audited()[len(b.audited())-1]; strings.Contains(last, ":3") {
		t.Errorf("a value is in the audit log: %s", last)
	}
	// What is at work is not upgraded once more, nor rolled back.
	for _, body := range []string{upgradeTo(`{"version":"41.5.0"}`), rollBack} {
		if r := b.refusedAfter(func() error { _, err := b.patch(v.ID, body); return err }, WrongState); !strings.Contains(r.Hint, "DELETE") {
			t.Errorf("%s: %s", body, r.Hint)
		}
	}
	// One that failed goes on as it is, or to something else: by an upgrade, not by an edit.
	b.set(v.ID, func(j *job.Job) { j.Status = job.Failed })
	if r := b.refusedAfter(func() error {
		_, err := b.patch(v.ID, `{"config":{"spec":{"component":{"version":"41.5.0"}}}}`)
		return err
	}, WrongState); !strings.Contains(r.Hint, "rollback") {
		t.Errorf("%s", r.Hint)
	}
	if again, err := b.patch(v.ID, upgradeTo(`{"version":"41.4.0"}`)); err != nil || again.Status != job.Queued || again.Run != 3 {
		t.Errorf("the same upgrade after a failure: %v", err)
	}
}

func TestUpgradeRefusals(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	cluster, space := b.cluster("platform", job.AWS, "us-east-1", "eks-1")
	v := b.install(InstallRequest{SpaceID: space, Component: "traefik", Version: "41.3.0"})
	for _, tc := range []struct {
		name, body string
		kind       Kind
		fields     []string
	}{
		{"no operation", `{"componentOp":"downgrade"}`, Invalid, []string{"componentOp"}},
		{"nothing to go to", `{"componentOp":"upgrade"}`, Invalid, []string{"config.spec.component"}},
		{"an empty config", `{"componentOp":"upgrade","config":{}}`, Invalid, []string{"config.spec.component"}},
		{"no change", upgradeTo(`{"version":"41.3.0"}`), Invalid, []string{"config.spec.component"}},
		{"no change in values", upgradeTo(`{"values":{}}`), Invalid, []string{"config.spec.component"}},
		{"another component", upgradeTo(`{"name":"keda"}`), Invalid, []string{"config.spec.component.name"}},
		{"another place", upgradeTo(`{"namespace":"edge","release":"t2","version":"41.4.0"}`), Invalid, []string{"config.spec.component.namespace", "config.spec.component.release"}},
		{"another space", `{"componentOp":"upgrade","config":{"spec":{"spaceId":"x"}}}`, Invalid, []string{"config.spec.spaceId"}},
		{"no version", upgradeTo(`{"version":"newest"}`), Invalid, []string{"config.spec.component.version"}},
		{"values that are none", upgradeTo(`{"values":[1]}`), Invalid, []string{"config.spec.component.values"}},
		{"an unknown field", upgradeTo(`{"chart":"x"}`), Invalid, []string{"config.spec.component.chart"}},
		{"with a name", `{"componentOp":"upgrade","name":"x","config":{"spec":{"component":{"version":"41.4.0"}}}}`, Invalid, []string{"componentOp"}},
		{"with a status", `{"componentOp":"upgrade","status":"queued"}`, Invalid, []string{"componentOp"}},
		{"with a vmOp", `{"componentOp":"upgrade","vmOp":"attach_lb"}`, Invalid, []string{"vmOp"}},
		{"with a revision", `{"componentOp":"upgrade","revision":1,"config":{"spec":{"component":{"version":"41.4.0"}}}}`, Invalid, []string{"revision"}},
		{"a rollback with settings", `{"componentOp":"rollback","config":{"spec":{}}}`, Invalid, []string{"config"}},
		{"a revision without an operation", `{"revision":1}`, Invalid, []string{"revision"}},
		{"a rollback to nowhere", rollBack, WrongState, nil},
		{"an edit", `{"config":{"spec":{"component":{"version":"41.4.0"}}}}`, WrongState, nil},
	} {
		r := b.refusedAfter(func() error {
			_, err := b.patch(v.ID, tc.body)
			if err != nil && tc.name == "values that are none" { // found when the merged spec is read
				return err
			}
			return err
		}, tc.kind, tc.fields...)
		if r.Error() == "" {
			t.Errorf("%s: says nothing", tc.name)
		}
	}
	b.refusedAfter(func() error { _, err := b.patch(cluster.ID, upgradeTo(`{"version":"1.0.0"}`)); return err }, Invalid, "componentOp")
	b.refusedAfter(func() error { _, err := b.patch(v.ID, `{"vmOp":"attach_lb"}`); return err }, Invalid, "vmOp")
	got := b.get(v.ID)
	if got.Version != v.Version || got.SpecRevision != 1 || got.Status != job.Completed {
		t.Errorf("a refused operation changed the job: %+v", got.Job)
	}
	_, _, err := b.Patch(b.as("org1", access.Viewer), v.ID, PatchRequest{ComponentOp: new(job.UpgradeComponent)}, nil)
	b.refused(err, Forbidden)
	_, _, err = b.Patch(b.as("org2", access.Admin), v.ID, PatchRequest{ComponentOp: new(job.RollBackComponent)}, nil)
	b.refused(err, NotFound)
	stale := int64(7)
	_, _, err = b.Patch(b.ctx, v.ID, PatchRequest{ComponentOp: new(job.RollBackComponent)}, &stale)
	b.refused(err, PreconditionFailed)
}

// TestOperationsByState: an operation needs an installed component.
func TestOperationsByState(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, space := b.cluster("platform", job.AWS, "us-east-1", "eks-1")
	history := []job.ComponentRevision{{Revision: 1, Version: "41.2.0"}, {Revision: 2, Version: "41.3.0"}}
	for i, tc := range []struct {
		status job.Status
		phase  job.Phase
		taken  bool
	}{
		{job.Queued, job.PhaseProvision, false}, {job.Running, job.PhaseProvision, false}, {job.Failed, job.PhaseProvision, false}, {job.Completed, job.PhaseProvision, true},
		{job.Queued, job.PhaseUpdate, false}, {job.Running, job.PhaseUpdate, false}, {job.Failed, job.PhaseUpdate, true}, {job.Completed, job.PhaseUpdate, true},
		{job.Running, job.PhaseTeardown, false}, {job.Failed, job.PhaseTeardown, false}, {job.Cancelled, job.PhaseTeardown, false},
	} {
		for n, body := range []string{upgradeTo(`{"version":"41.5.0"}`), rollBack} {
			v := b.install(InstallRequest{SpaceID: space, Component: "traefik", Name: fmt.Sprintf("t-%d-%d", i, n)}, history...)
			b.set(v.ID, func(j *job.Job) { j.Status, j.Phase = tc.status, tc.phase })
			_, err := b.patch(v.ID, body)
			if (err == nil) != tc.taken {
				t.Errorf("%s/%s %s: %v", tc.status, tc.phase, body, err)
			}
			if err != nil {
				if r := b.refused(err, WrongState); strings.Contains(r.Error()+r.Hint, "vmOp") {
					t.Errorf("%s/%s: %s %s", tc.status, tc.phase, r.Error(), r.Hint)
				}
			}
		}
	}
}

func TestRollBackComponent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, space := b.cluster("platform", job.AWS, "us-east-1", "eks-1")
	rev := func(n int, version, values string) job.ComponentRevision {
		return job.ComponentRevision{Revision: n, Version: version, Values: json.RawMessage(values)}
	}
	pinned, _ := b.engine.Catalogue().Get("envoy-gateway")
	for _, tc := range []struct {
		name      string
		component string // of the catalogue
		version   string // of the spec, as it is now
		values    string
		status    job.Status
		history   []job.ComponentRevision
		body      string
		want      job.ComponentRevision // Revision 0: refused
		kind      Kind
		fields    []string
	}{
		{"to the one before", "traefik", "41.3.0", ``, job.Completed, []job.ComponentRevision{rev(1, "41.2.0", `{"a":1}`), rev(2, "41.3.0", ``)}, rollBack, rev(1, "41.2.0", `{"a":1}`), "", nil},
		{"values alone", "traefik", "41.3.0", `{"a":2}`, job.Completed, []job.ComponentRevision{rev(1, "41.3.0", `{"a":1}`), rev(2, "41.3.0", `{"a":2}`)}, rollBack, rev(1, "41.3.0", `{"a":1}`), "", nil},
		{"to one that is named", "traefik", "41.3.0", ``, job.Completed, []job.ComponentRevision{rev(1, "41.1.0", ``), rev(2, "41.2.0", ``), rev(3, "41.3.0", ``)}, `{"componentOp":"rollback","revision":1}`, rev(1, "41.1.0", ``), "", nil},
		{"past a repair, which changed nothing", "traefik", "41.3.0", `{"a":{"x":1,"y":2}}`, job.Completed, []job.ComponentRevision{rev(1, "41.2.0", ``), rev(2, "41.3.0", `{"a":{"y":2,"x":1}}`), rev(3, "41.3.0", `{"a":{"y":2,"x":1}}`)}, rollBack, rev(1, "41.2.0", ``), "", nil},
		{"after an upgrade that failed", "traefik", "41.4.0", ``, job.Failed, []job.ComponentRevision{rev(1, "41.2.0", ``), rev(2, "41.3.0", ``)}, rollBack, rev(2, "41.3.0", ``), "", nil},
		{"to what a failed rollback was going to", "traefik", "41.3.0", ``, job.Failed, []job.ComponentRevision{rev(1, "41.2.0", ``), rev(2, "41.3.0", ``)}, `{"componentOp":"rollback","revision":2}`, rev(2, "41.3.0", ``), "", nil},
		{"of the pinned version, which the spec does not name", "envoy-gateway", "", ``, job.Completed, []job.ComponentRevision{rev(1, "v1.8.0", ``), rev(2, pinned.Version, ``)}, rollBack, rev(1, "v1.8.0", ``), "", nil},
		{"empty values are none", "traefik", "41.3.0", `{}`, job.Completed, []job.ComponentRevision{rev(1, "41.3.0", ``)}, rollBack, rev(0, "", ``), WrongState, nil},
		{"nowhere", "traefik", "41.3.0", ``, job.Completed, []job.ComponentRevision{rev(1, "41.3.0", ``)}, rollBack, rev(0, "", ``), WrongState, nil},
		{"without a history", "traefik", "41.3.0", ``, job.Completed, nil, rollBack, rev(0, "", ``), WrongState, nil},
		{"to the present one", "traefik", "41.3.0", ``, job.Completed, []job.ComponentRevision{rev(1, "41.2.0", ``), rev(2, "41.3.0", ``)}, `{"componentOp":"rollback","revision":2}`, rev(0, "", ``), Invalid, []string{"revision"}},
		{"to an unknown one", "traefik", "41.3.0", ``, job.Completed, []job.ComponentRevision{rev(4, "41.2.0", ``), rev(5, "41.3.0", ``)}, `{"componentOp":"rollback","revision":1}`, rev(0, "", ``), Invalid, []string{"revision"}},
		{"to a negative one", "traefik", "41.3.0", ``, job.Completed, []job.ComponentRevision{rev(4, "41.2.0", ``), rev(5, "41.3.0", ``)}, `{"componentOp":"rollback","revision":-1}`, rev(0, "", ``), Invalid, []string{"revision"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := b.install(InstallRequest{SpaceID: space, Component: tc.component, Version: tc.version, Values: json.RawMessage(tc.values), Name: "c-" + strings.Trim(job.NewID("c")[20:], "-")}, tc.history...)
			b.set(v.ID, func(j *job.Job) {
				if j.Status = tc.status; tc.status == job.Failed {
					j.Phase = job.PhaseUpdate
				}
			})
			if tc.want.Revision == 0 {
				r := b.refusedAfter(func() error { _, err := b.patch(v.ID, tc.body); return err }, tc.kind, tc.fields...)
				if tc.kind == Invalid && len(tc.history) > 1 && !strings.Contains(r.Fields[0].Fix, fmt.Sprint(tc.history[0].Revision)) {
					t.Errorf("the fix names no revision: %s", r.Fields[0].Fix)
				}
				return
			}
			got, err := b.patch(v.ID, tc.body)
			if err != nil {
				t.Fatal(err)
			}
			spec, err := got.ComponentJob()
			if err != nil || spec.Component.Version != tc.want.Version || string(spec.Component.Values) != string(tc.want.Values) || spec.Component.Name != tc.component || spec.SpaceID != space {
				t.Errorf("%s, %v", got.Config.Spec, err)
			}
			if got.VMOp != job.RollBackComponent || got.Phase != job.PhaseUpdate || got.Status != job.Queued || got.SpecRevision != 2 {
				t.Errorf("%+v", got.Job)
			}
			b.audits("component:install allowed", `"componentOp":"rollback"`, fmt.Sprintf(`"revision":%d`, tc.want.Revision))
			if x, err := b.Explain(b.ctx, v.ID); err != nil || x.Events[len(x.Events)-1].Message != "rollback asked for by ana" {
				t.Errorf("%+v, %v", x.Events, err)
			}
		})
	}
}

func TestNextActsOfAComponent(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, space := b.cluster("platform", job.AWS, "us-east-1", "eks-1")
	v := b.install(InstallRequest{SpaceID: space, Component: "traefik"}, job.ComponentRevision{Revision: 1, Version: "41.2.0"}, job.ComponentRevision{Revision: 2, Version: "41.3.0"})
	x, err := b.Explain(b.ctx, v.ID)
	if err != nil {
		t.Fatal(err)
	}
	var what []string
	for _, n := range x.Next {
		what = append(what, n.What)
	}
	if got := strings.Join(what, "; "); got != "Upgrade it; Roll it back; Compare it with the cloud; Uninstall it" {
		t.Errorf("%s", got)
	}
}
