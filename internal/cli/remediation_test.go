package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/job"
)

const scheduleAnswer = `{"data":{"id":"sch_1","orgId":"o","jobId":"job_one","subjectName":"shop-prod","window":{"days":["mon","fri"],"from":"08:00","to":"20:00"},"timeZone":"Europe/Berlin","enabled":true,
	"nextAt":"2026-12-01T07:00:00Z","nextAction":"resume","createdBy":"ed","createdAt":"2026-11-30T10:00:00Z","updatedAt":"2026-11-30T10:00:00Z",
	"estimate":{"hoursOffPerWeek":108,"hoursPerWeek":168,"savedPercent":64.29,"machines":10,"arithmetic":"60 of 168 hours on","price":"not priced: no prices of Azure","note":"Machines alone."},
	"runs":[{"dueAt":"2026-11-30T19:00:00Z","action":"pause","outcome":"skipped","reason":"shop-prod is \u001b[31mbusy","at":"2026-11-30T19:00:01Z"}]}}`

// withSchedules is a server with a schedule, which takes remediation jobs.
func withSchedules(t *testing.T) *fakeAPI {
	t.Helper()
	f := newFake(t)
	f.addJob(aJob(job.Completed, job.PhaseProvision))
	for _, what := range []string{"POST /schedules", "GET /schedules/sch_1", "PATCH /schedules/sch_1"} {
		f.answers[what] = scheduleAnswer
	}
	f.answers["DELETE /schedules/sch_1"] = ""
	var one struct {
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal([]byte(scheduleAnswer), &one); err != nil {
		t.Fatal(err)
	}
	f.answers["GET /schedules"] = `{"data":[` + string(one.Data) + `],"meta":{"nextCursor":"sch_1"}}`
	return f
}

// TestRemediateSends: each verb asks for its action, with what is given and no more.
func TestRemediateSends(t *testing.T) {
	for args, want := range map[string]string{
		"pause shop-prod": `{"config":{"spec":{"action":"pause","jobId":"shop-prod"}},"kind":"remediation","submit":true}`,
		"resume shop-prod --force --reason morning":              `{"config":{"spec":{"action":"resume","force":true,"jobId":"shop-prod","reason":"morning"}},"kind":"remediation","submit":true}`,
		"scale-to-zero platform --pool workers --type cluster":   `{"config":{"spec":{"action":"scale_to_zero","jobId":"platform","pool":"workers"}},"kind":"remediation","resourceType":"cluster","submit":true}`,
		"restore platform --allow-adopted --name back-to-normal": `{"config":{"spec":{"action":"restore","allowAdopted":true,"jobId":"platform"}},"kind":"remediation","name":"back-to-normal","submit":true}`,
	} {
		f := withSchedules(t)
		if got := run(t, f).do(append([]string{"remediate"}, strings.Fields(args)...)...); got.code != exitDone || f.sentBody("POST /provisioning-jobs") != want {
			t.Errorf("%s: %+v sent %s", args, got, f.sentBody("POST /provisioning-jobs"))
		}
	}
	f := withSchedules(t)
	if got := run(t, f).do("remediate", "pause", "shop-prod", "--force"); got.code != exitUsage || f.sent("POST") != 0 {
		t.Errorf("pause takes no --force: %+v", got)
	}
	f.refuse["POST /provisioning-jobs"] = client.Problem{Code: "customer-database", Status: 422, Detail: "job orders is a datastore: never", Hint: "In the cloud's own console."}
	if got := run(t, f).do("remediate", "pause", "orders"); got.code == exitDone || !strings.Contains(got.err, "customer-database") {
		t.Errorf("a datastore: %+v", got)
	}
}

func TestSchedulesCommands(t *testing.T) {
	f := withSchedules(t)
	r := run(t, f)
	got := r.do("schedules", "create", "shop-prod", "--days", "mon,fri", "--from", "08:00", "--to", "20:00", "--time-zone", "Europe/Berlin")
	if want := `{"jobId":"shop-prod","timeZone":"Europe/Berlin","window":{"days":["mon","fri"],"from":"08:00","to":"20:00"}}`; got.code != exitDone || f.sentBody("POST /schedules") != want {
		t.Errorf("%+v sent %s", got, f.sentBody("POST /schedules"))
	}
	for _, want := range []string{"resume at Tue 2026-12-01 08:00 CET", "60 of 168 hours on", "not priced", "skipped"} {
		if !strings.Contains(got.out, want) {
			t.Errorf("%q is not shown: %s", want, got.out)
		}
	}
	if strings.Contains(got.out, "\x1b[31m") {
		t.Error("a server's text reaches the terminal as it is")
	}
	r.do("schedules", "create", "shop-prod", "--pause-cron", "0 20 * * *", "--time-zone", "UTC", "--disabled")
	if want := `{"enabled":false,"jobId":"shop-prod","pauseCron":"0 20 * * *","timeZone":"UTC"}`; f.sentBody("POST /schedules") != want {
		t.Errorf("sent %s", f.sentBody("POST /schedules"))
	}
	if got := r.do("schedules", "list"); got.code != exitDone || !strings.Contains(got.out, "sch_1") || !strings.Contains(got.err, "--cursor sch_1") {
		t.Errorf("%+v", got)
	}
	for verb, want := range map[string]string{"pause": `{"enabled":false}`, "resume": `{"enabled":true}`} {
		if got := r.do("schedules", verb, "sch_1"); got.code != exitDone || f.sentBody("PATCH /schedules/sch_1") != want {
			t.Errorf("%s: %+v sent %s", verb, got, f.sentBody("PATCH /schedules/sch_1"))
		}
	}
	if got := r.do("schedules", "get", "sch_1", "-o", "json"); got.code != exitDone || !json.Valid([]byte(got.out)) {
		t.Errorf("%+v", got)
	}
	if got := r.do("schedules", "delete", "sch_1"); got.code != exitDone || f.sent("DELETE /schedules/sch_1") != 1 || !strings.Contains(got.err, "stays paused") {
		t.Errorf("%+v", got)
	}
}
