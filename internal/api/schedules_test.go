package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/provision"
)

// TestRemediationOverREST: a remediation job is created as any other, databases are
// refused for what they are, and a schedule goes through its life, on both databases.
func TestRemediationOverREST(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		v := r.create(vmJob("shop"))
		r.set(v.ID, func(j *job.Job) {
			j.Status = job.Completed
			j.Config.InfraConfig.VMs = []job.VMInfo{{Name: "vm-1", InstanceID: "i-1"}, {Name: "vm-2", InstanceID: "i-2"}}
			j.Config.InfraConfig.InstanceType = "t3.medium"
		})
		for what, c := range map[string]struct {
			body, code, field string
			status            int
		}{
			"a cache":      {`{"kind":"remediation","resourceType":"cache","config":{"spec":{"action":"pause","jobId":"shop"}}}`, "customer-database", "resourceType", 422},
			"a name":       {`{"kind":"remediation","config":{"spec":{"action":"pause","jobId":"elasti-cache_1"}}}`, "customer-database", "config.spec.jobId", 422},
			"nobody":       {`{"kind":"remediation","config":{"spec":{"action":"pause","jobId":"nobody"}}}`, "not-found", "config.spec.jobId", 404},
			"another word": {`{"kind":"remediation","config":{"spec":{"action":"pause","jobId":"shop","size":0}}}`, "invalid", "config.spec.size", 422},
			"a region":     {`{"kind":"remediation","region":"eu-west-1","config":{"spec":{"action":"pause","jobId":"shop"}}}`, "invalid", "region", 422},
		} {
			a := r.do(editorToken, "POST", "/provisioning-jobs", c.body)
			if p := a.problem(t); a.status != c.status || p.Code != c.code || len(p.Errors) == 0 || p.Errors[0].Field != c.field {
				t.Errorf("%s: %d %s", what, a.status, a.body)
			}
		}
		const pause = `{"kind":"remediation","submit":true,"config":{"spec":{"action":"pause","jobId":"shop"}}}`
		if a := r.do(viewerToken, "POST", "/provisioning-jobs", pause); a.status != 403 {
			t.Errorf("a viewer: %d", a.status)
		}
		if a := r.do(otherToken, "POST", "/provisioning-jobs", pause); a.status != 404 {
			t.Errorf("another organisation: %d", a.status)
		}
		first := r.do(editorToken, "POST", "/provisioning-jobs", pause, "Idempotency-Key", "night")
		again := r.do(editorToken, "POST", "/provisioning-jobs", pause, "Idempotency-Key", "night")
		if first.status != 201 || again.status != 200 || first.job(t).ID != again.job(t).ID || first.job(t).Kind != job.Remediation {
			t.Errorf("%d %s, then %d %s", first.status, first.body, again.status, again.body)
		}
		if a := r.do(editorToken, "POST", "/provisioning-jobs", pause); a.status != 409 || a.problem(t).Code != "wrong-state" {
			t.Errorf("a busy subject: %d %s", a.status, a.body)
		}
		if a := r.do(editorToken, "PATCH", "/provisioning-jobs/"+first.job(t).ID, `{"config":{"spec":{"reason":"other"}}}`); a.status != 409 {
			t.Errorf("edited: %d %s", a.status, a.body)
		}
		if a := r.do(editorToken, "DELETE", "/provisioning-jobs/"+first.job(t).ID, ""); a.status != 200 || a.job(t).Status != job.Cancelled {
			t.Errorf("not begun, and not cancelled at once: %d %s", a.status, a.body)
		}
		schedulesOverREST(t, r)
	})
}

func schedulesOverREST(t *testing.T, r *rig) {
	t.Helper()
	view := func(a answer) (v provision.ScheduleView) {
		t.Helper()
		var body struct{ Data *provision.ScheduleView }
		body.Data = &v
		if err := json.Unmarshal(a.body, &body); err != nil {
			t.Fatalf("%v: %s", err, a.body)
		}
		return v
	}
	const window = `{"jobId":"shop","window":{"days":["mon","tue","wed","thu","fri"],"from":"08:00","to":"20:00"},"timeZone":"Europe/Berlin"}`
	dry := r.do(editorToken, "POST", "/schedules?dryRun=true", window)
	if v := view(dry); dry.status != 200 || *v.Estimate.HoursOffPerWeek != 108 || !strings.Contains(v.Estimate.Arithmetic, "64 %") {
		t.Errorf("dry: %d %s", dry.status, dry.body)
	}
	made := r.do(editorToken, "POST", "/schedules", window)
	v := view(made)
	if made.status != 201 || v.NextAt == nil || made.header.Get("Location") != "/schedules/"+v.ID {
		t.Fatalf("%d %s", made.status, made.body)
	}
	for what, c := range map[string]struct{ method, path, body, field string }{
		"an unknown field": {"POST", "/schedules", `{"jobId":"shop","cron":"0 1 * * *","timeZone":"UTC"}`, "cron"},
		"a zone":           {"PATCH", "/schedules/" + v.ID, `{"timeZone":"Mars"}`, "timeZone"},
		"a line":           {"PATCH", "/schedules/" + v.ID, `{"pauseCron":"often"}`, "pauseCron"},
		"nothing":          {"PATCH", "/schedules/" + v.ID, `{}`, "body"},
	} {
		a := r.do(editorToken, c.method, c.path, c.body)
		if p := a.problem(t); a.status != 422 || p.Errors[0].Field != c.field || p.Errors[0].Fix == "" {
			t.Errorf("%s: %d %s", what, a.status, a.body)
		}
	}
	if a := r.do(editorToken, "POST", "/schedules", window); a.status != 409 {
		t.Errorf("a second one: %d %s", a.status, a.body)
	}
	if a := r.do(editorToken, "PATCH", "/schedules/"+v.ID, `{"enabled":false}`); a.status != 200 || view(a).NextAt != nil {
		t.Errorf("turned off: %d %s", a.status, a.body)
	}
	list := r.do(viewerToken, "GET", "/schedules?jobId=shop", "")
	if list.status != 200 || !strings.Contains(string(list.body), v.ID) {
		t.Errorf("listed: %d %s", list.status, list.body)
	}
	if a := r.do(otherToken, "GET", "/schedules/"+v.ID, ""); a.status != 404 {
		t.Errorf("another organisation: %d", a.status)
	}
	if a := r.do(editorToken, "DELETE", "/schedules/"+v.ID, ""); a.status != 204 {
		t.Errorf("deleted: %d %s", a.status, a.body)
	}
	if a := r.do(viewerToken, "GET", "/schedules/"+v.ID, ""); a.status != 404 {
		t.Errorf("deleted, and yet: %d", a.status)
	}
	if log := r.do(viewerToken, "GET", "/audit-logs?resourceType=schedule", ""); strings.Count(string(log.body), `"action":"schedule:`) != 3 {
		t.Errorf("audit: %s", log.body)
	}
}
