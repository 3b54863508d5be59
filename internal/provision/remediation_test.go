package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/pgtest"
	"github.com/zopday/provisioner/internal/schedule"
)

// An office is the use cases on a ledger, with a clock of its own and no worker.
type office struct {
	*Service
	t   *testing.T
	ctx context.Context
	now time.Time
}

const officeOrg = "org1"

func newOffice(t *testing.T, dsn string) *office {
	t.Helper()
	d, err := db.Open(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := &office{t: t, now: time.Date(2026, 11, 30, 7, 0, 0, 0, time.UTC)} // a Monday
	o.Service = New(Config{Ledger: ledger.New(d, ledger.Options{}), Now: func() time.Time { return o.now },
		Clock: func(context.Context, db.Q) (time.Time, error) { return o.now, nil }})
	o.ctx = access.With(t.Context(), access.Of(officeOrg, "ed", access.Editor))
	return o
}

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m)) }

func onBothDatabases(t *testing.T, test func(*testing.T, *office)) {
	t.Run("sqlite", func(t *testing.T) { test(t, newOffice(t, filepath.Join(t.TempDir(), "ledger.db"))) })
	t.Run("postgres", func(t *testing.T) { test(t, newOffice(t, pgtest.Database(t))) })
}

// finished is a job that has run, as the ledger has it.
func (o *office) finished(rt job.ResourceType, name string, change ...func(*job.Job)) *job.Job {
	o.t.Helper()
	subject := subjectTypes[rt]
	j := &job.Job{
		ID: job.NewID("job"), OrgID: officeOrg, Kind: job.Provisioning, ResourceType: rt, Provider: job.AWS, Mode: job.ModeCreate, Name: name,
		CloudAccountID: "default", Region: "us-east-1", SubjectType: subject.name, SubjectID: job.NewID(subject.prefix),
		Status: job.Completed, Phase: job.PhaseProvision, Run: 1, CreatedBy: "ed", Config: job.Config{Spec: json.RawMessage(`{"pool":{"mode":"fixed","count":10}}`)},
	}
	j.Config.InfraConfig.InstanceType = "t3.medium"
	for i := range 10 {
		j.Config.InfraConfig.VMs = append(j.Config.InfraConfig.VMs, job.VMInfo{Name: fmt.Sprint("vm-", i), InstanceID: fmt.Sprintf("i-%017d", i)})
	}
	for _, f := range change {
		f(j)
	}
	if err := o.Ledger.Insert(o.ctx, o.Ledger.DB(), j); err != nil {
		o.t.Fatal(err)
	}
	return j
}

func (o *office) remediate(action job.RemediationAction, ref string, more string) (*JobView, error) {
	spec := fmt.Sprintf(`{"action":%q,"jobId":%q%s}`, action, ref, more)
	v, _, err := o.Create(o.ctx, CreateRequest{Kind: job.Remediation, Config: ConfigRequest{Spec: json.RawMessage(spec)}, Submit: true}, "")
	return v, err
}

// carryOut ends a queued remediation job as a worker would.
func (o *office) carryOut(id string, end job.Status) {
	o.t.Helper()
	_, err := o.Ledger.Change(o.ctx, nil, officeOrg, id, func(j *job.Job, _ ledger.Standing) error {
		j.Status = end
		now := o.now
		info := j.Config.InfraConfig.Remediation
		info.BeganAt, info.Pools = &now, []job.PoolChange{{PoolRef: job.PoolRef{Kind: job.PoolEC2Instances, Name: job.VMPoolName}}}
		if end == job.Completed {
			info.VerifiedAt = &now
		}
		return nil
	})
	if err != nil {
		o.t.Fatal(err)
	}
}

func kindOfRefusal(err error) Kind {
	var r *Refusal
	if errors.As(err, &r) {
		return r.Kind
	}
	return ""
}

// TestRemediationOfDatabasesRefused: by resource type, by a job's ID and name, and
// by a subject's name, whatever the caller may do.
func TestRemediationOfDatabasesRefused(t *testing.T) {
	o := newOffice(t, filepath.Join(t.TempDir(), "ledger.db"))
	o.ctx = access.With(t.Context(), access.Of(officeOrg, "ana", access.Admin))
	orders := o.finished(job.Datastore, "orders")
	sessions := o.finished(job.Cache, "sessions")
	o.finished(job.VM, "shop-redis")
	o.finished(job.VM, "dashboards")
	for name, r := range map[string]CreateRequest{
		"a datastore":        {ResourceType: job.Datastore, Config: spec(`{"action":"pause","jobId":"shop"}`)},
		"a cache":            {ResourceType: job.Cache, Config: spec(`{"action":"pause","jobId":"shop"}`)},
		"a type":             {ResourceType: "RDS_instance", Config: spec(`{"action":"pause","jobId":"shop"}`)},
		"a datastore's name": {Config: spec(`{"action":"pause","jobId":"orders"}`)},
		"a datastore's ID":   {ResourceType: job.VM, Config: spec(`{"action":"resume","jobId":"` + orders.ID + `"}`)},
		"a cache's ID":       {ResourceType: job.Cluster, Config: spec(`{"action":"scale_to_zero","jobId":"` + sessions.ID + `"}`)},
		"a subject's name":   {Config: spec(`{"action":"pause","jobId":"rds:orders"}`)},
		"a VM job's name":    {ResourceType: job.VM, Config: spec(`{"action":"pause","jobId":"shop-redis"}`)},
		"nothing of ours":    {Config: spec(`{"action":"pause","jobId":"cloud_sql-main"}`)},
		"a pool's name":      {Config: spec(`{"action":"pause","jobId":"dashboards","pool":"postgres1"}`)},
	} {
		r.Kind, r.Submit = job.Remediation, true
		_, _, err := o.Create(o.ctx, r, "")
		var refusal *Refusal
		if !errors.As(err, &refusal) || refusal.Kind != CustomerDatabase || refusal.Hint == "" || len(refusal.Fields) == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	jobs, _, err := o.Ledger.List(o.ctx, officeOrg, job.Everything, ledger.Filter{Kind: job.Remediation})
	if err != nil || len(jobs) > 0 {
		t.Errorf("%d jobs were made (%v)", len(jobs), err)
	}
	if _, err := o.remediate(job.ActionPause, "dashboards", ""); err != nil {
		t.Errorf("dashboards are no database: %v", err)
	}
	if _, err := o.CreateSchedule(o.ctx, ScheduleRequest{JobID: "orders", PauseCron: "0 20 * * *", TimeZone: "UTC"}, false); kindOfRefusal(err) != CustomerDatabase {
		t.Errorf("a schedule of a datastore: %v", err)
	}
	entries, _, err := audit.List(o.ctx, o.Ledger.DB(), officeOrg, audit.Filter{Outcome: audit.Refused, Action: string(access.VMOperate), Limit: 100})
	if err != nil || len(entries) != 11 {
		t.Errorf("%d refusals are in the audit log (%v), want 11", len(entries), err)
	}
}

func spec(s string) ConfigRequest { return ConfigRequest{Spec: json.RawMessage(s)} }

func TestRemediationRequest(t *testing.T) {
	o := newOffice(t, filepath.Join(t.TempDir(), "ledger.db"))
	subject := o.finished(job.VM, "shop")
	v, err := o.remediate(job.ActionPause, "shop", "")
	if err != nil {
		t.Fatal(err)
	}
	if v.SubjectID != subject.SubjectID || v.SubjectType != "vm_pool" || v.Provider != job.AWS || v.Region != "us-east-1" || v.ResourceType != job.VM || !strings.HasPrefix(v.Name, "pause-shop-") {
		t.Errorf("derived: %+v", v.Job)
	}
	if len(v.Steps) != 4 || v.Steps[1].Name != "stepApplyRemediation" || v.Steps[2].Name != "stepVerify" {
		t.Errorf("steps: %+v", v.Steps)
	}
	if _, err := o.remediate(job.ActionPause, "shop", ""); kindOfRefusal(err) != WrongState {
		t.Errorf("a busy subject: %v", err)
	}
	o.carryOut(v.ID, job.Completed)
	if _, err := o.remediate(job.ActionPause, "shop", ""); kindOfRefusal(err) != WrongState || !strings.Contains(err.Error(), "paused already") {
		t.Errorf("paused twice: %v", err)
	}
	if got, err := o.Get(o.ctx, v.ID); err != nil || got.Verdict.Word != "Paused" {
		t.Errorf("verdict: %+v, %v", got.Verdict, err)
	}
	v, done, err := o.Delete(o.ctx, v.ID, "", nil)
	if err != nil || done || v.Phase != job.PhaseTeardown {
		t.Errorf("deleted: %v %+v", err, v)
	}
	for name, r := range map[string]CreateRequest{
		"another region":  {Region: "eu-west-1", Config: spec(`{"action":"resume","jobId":"shop"}`)},
		"another cloud":   {Provider: job.GCP, Config: spec(`{"action":"resume","jobId":"shop"}`)},
		"no action":       {Config: spec(`{"jobId":"shop"}`)},
		"another action":  {Config: spec(`{"action":"delete","jobId":"shop"}`)},
		"an unknown word": {Config: spec(`{"action":"resume","jobId":"shop","now":true}`)},
		"a pool of a VM":  {Config: spec(`{"action":"pause","jobId":"shop","pool":"workers"}`)},
		"zero by name":    {Config: spec(`{"action":"scale_to_zero","jobId":"shop"}`)},
	} {
		r.Kind = job.Remediation
		if _, _, err := o.Create(o.ctx, r, ""); kindOfRefusal(err) != Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	o.finished(job.VM, "theirs", func(j *job.Job) { j.Mode = job.ModeAdopt })
	if _, err := o.remediate(job.ActionPause, "theirs", ""); kindOfRefusal(err) != Invalid || !strings.Contains(err.Error(), "allowAdopted") {
		t.Errorf("adopted: %v", err)
	}
	if _, err := o.remediate(job.ActionPause, "theirs", `,"allowAdopted":true`); err != nil {
		t.Errorf("adopted, and allowed: %v", err)
	}
	viewer := access.With(t.Context(), access.Of(officeOrg, "vera", access.Viewer))
	if _, _, err := o.Create(viewer, CreateRequest{Kind: job.Remediation, Config: spec(`{"action":"resume","jobId":"shop"}`)}, ""); kindOfRefusal(err) != Forbidden {
		t.Errorf("a viewer: %v", err)
	}
}

func officeHours(ref string) ScheduleRequest {
	return ScheduleRequest{JobID: ref, TimeZone: "UTC", Window: &job.Window{Days: []string{"mon", "tue", "wed", "thu", "fri"}, From: "08:00", To: "20:00"}}
}

// TestScheduleExactlyOnce: however many processes look at once, a due time makes
// one job.
func TestScheduleExactlyOnce(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, o *office) {
		o.finished(job.VM, "shop")
		s, err := o.CreateSchedule(o.ctx, officeHours("shop"), false)
		if err != nil {
			t.Fatal(err)
		}
		if s.NextAt.Format(time.RFC3339) != "2026-11-30T08:00:00Z" || s.NextAction != job.ActionResume {
			t.Errorf("next %s at %s", s.NextAction, s.NextAt)
		}
		o.run(t) // not due yet
		o.now = time.Date(2026, 11, 30, 8, 0, 1, 0, time.UTC)
		o.run(t) // it runs: there is nothing to resume
		if run := o.last(t, s.ID); run.Outcome != job.RunSkipped || !strings.Contains(run.Reason, "not paused") {
			t.Errorf("resumed what runs: %+v", run)
		}
		o.now = time.Date(2026, 11, 30, 20, 0, 0, 0, time.UTC)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				if err := o.RunSchedules(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		run := o.last(t, s.ID)
		jobs := o.remediations(t)
		if run.Outcome != job.RunCreated || len(jobs) != 1 || jobs[0].ID != run.JobID || jobs[0].CreatedBy != ScheduleActor || jobs[0].Config.InfraConfig.Remediation.Schedule != s.ID {
			t.Fatalf("%d jobs: %+v\n%+v", len(jobs), run, jobs)
		}
		v, err := o.GetSchedule(o.ctx, s.ID)
		if err != nil || v.NextAt.Format(time.RFC3339) != "2026-12-01T08:00:00Z" || v.NextAction != job.ActionResume {
			t.Errorf("next: %+v, %v", v, err)
		}
		entries, _, err := audit.List(o.ctx, o.Ledger.DB(), officeOrg, audit.Filter{Actor: ScheduleActor, Limit: 100})
		if err != nil || len(entries) != 4 { // refused and skipped; created and run
			t.Errorf("%d entries of the schedule in the audit log, want 4 (%v)", len(entries), err)
		}
	})
}

func (o *office) run(t *testing.T) {
	t.Helper()
	if err := o.RunSchedules(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (o *office) last(t *testing.T, id string) job.ScheduleRun {
	t.Helper()
	v, err := o.GetSchedule(o.ctx, id)
	if err != nil || len(v.Runs) == 0 {
		t.Fatalf("no run: %v", err)
	}
	return v.Runs[0]
}

func (o *office) remediations(t *testing.T) []job.Job {
	t.Helper()
	jobs, _, err := o.Ledger.List(o.ctx, officeOrg, job.Everything, ledger.Filter{Kind: job.Remediation})
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

// TestScheduleSurvives: a process that dies after it made the job is followed by one
// that finds the same job; what was missed while nobody looked is passed over, but
// for the latest; what is not safe is skipped, with the reason.
func TestScheduleSurvives(t *testing.T) {
	o := newOffice(t, filepath.Join(t.TempDir(), "ledger.db"))
	subject := o.finished(job.VM, "shop")
	s, err := o.CreateSchedule(o.ctx, officeHours("shop"), false)
	if err != nil {
		t.Fatal(err)
	}
	at := func(day, hour, minute int) { o.now = time.Date(2026, 11, day, hour, minute, 0, 0, time.UTC) }

	// Down from Monday morning to Monday night: the resume was missed.
	at(30, 23, 0)
	row, err := o.Ledger.Schedule(o.ctx, officeOrg, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	dead, cancel := context.WithCancel(o.ctx)
	if held, err := o.Ledger.HoldSchedule(dead, row, o.now, o.now.Add(scheduleHold)); err != nil || !held {
		t.Fatalf("%v %v", held, err)
	}
	plan := mustPlan(t, row)
	due, missed := plan.Latest(transitionOf(row), o.now)
	request, err := requestOf(row, due)
	if err != nil {
		t.Fatal(err)
	}
	system := access.With(dead, access.Of(officeOrg, ScheduleActor, access.Editor))
	v, created, err := o.create(system, access.VMOperate, request, fmt.Sprintf("%s-%s-%d", row.ID, due.Action, due.At.Unix()))
	if err != nil || !created || missed != 1 {
		t.Fatalf("created %v, %d missed: %v", created, missed, err)
	}
	cancel() // and dies
	o.run(t) // the hold stands
	if v, err := o.GetSchedule(o.ctx, s.ID); err != nil || len(v.Runs) != 0 {
		t.Fatalf("another process went on at once: %+v %v", v.Runs, err)
	}
	o.now = o.now.Add(scheduleHold + time.Second)
	o.run(t)
	if run := o.last(t, s.ID); run.JobID != v.ID || run.Outcome != job.RunCreated || run.Missed != 1 || len(o.remediations(t)) != 1 {
		t.Errorf("%+v, %d jobs", run, len(o.remediations(t)))
	}

	// Still busy at eight: the resume waits for longer than the slowest pause takes,
	// and not for ever.
	for _, later := range []time.Duration{0, 31 * time.Minute, 80 * time.Minute, 3 * time.Hour} {
		o.now = time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC).Add(later)
		o.run(t)
		if run := o.last(t, s.ID); run.Action != job.ActionPause {
			t.Fatalf("after %s a resume did not wait for its subject: %+v", later, run)
		}
	}
	o.now = time.Date(2026, 12, 1, 14, 0, 0, 0, time.UTC)
	o.run(t)
	if run := o.last(t, s.ID); run.Outcome != job.RunSkipped || run.Action != job.ActionResume || run.Reason == "" {
		t.Errorf("busy: %+v", run)
	}
	o.carryOut(v.ID, job.Completed)

	// Paused already: skipped.
	o.now = time.Date(2026, 12, 1, 20, 0, 0, 0, time.UTC)
	o.run(t)
	if run := o.last(t, s.ID); run.Outcome != job.RunSkipped || !strings.Contains(run.Reason, "paused already") {
		t.Errorf("paused twice: %+v", run)
	}
	// Turned off: nothing.
	if _, err := o.PatchSchedule(o.ctx, s.ID, SchedulePatch{Enabled: new(false)}); err != nil {
		t.Fatal(err)
	}
	o.now = time.Date(2026, 12, 2, 8, 0, 0, 0, time.UTC)
	o.run(t)
	if run := o.last(t, s.ID); run.Action != job.ActionPause {
		t.Errorf("turned off, and yet: %+v", run)
	}
	if _, err := o.PatchSchedule(o.ctx, s.ID, SchedulePatch{Enabled: new(true)}); err != nil {
		t.Fatal(err)
	}
	// Torn down: skipped, and over.
	if _, err := o.Ledger.Change(o.ctx, nil, officeOrg, subject.ID, func(j *job.Job, _ ledger.Standing) error {
		j.Status, j.Phase = job.Cancelled, job.PhaseTeardown
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	o.now = time.Date(2026, 12, 2, 20, 0, 0, 0, time.UTC)
	o.run(t)
	got, err := o.GetSchedule(o.ctx, s.ID)
	if err != nil || got.Enabled || got.NextAt != nil || got.Runs[0].Outcome != job.RunSkipped || !strings.Contains(got.Runs[0].Reason, "torn down") {
		t.Errorf("torn down: %+v %v", got, err)
	}
	if err := o.DeleteSchedule(o.ctx, s.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := o.GetSchedule(o.ctx, s.ID); kindOfRefusal(err) != NotFound {
		t.Errorf("deleted: %v", err)
	}
}

func TestScheduleRequest(t *testing.T) {
	o := newOffice(t, filepath.Join(t.TempDir(), "ledger.db"))
	o.finished(job.VM, "shop")
	dry, err := o.CreateSchedule(o.ctx, officeHours("shop"), true)
	if err != nil {
		t.Fatal(err)
	}
	e := dry.Estimate
	if *e.HoursOffPerWeek != 108 || *e.SavedPercent != 64.29 || e.Machines != 10 || !strings.Contains(e.Arithmetic, "60 of 168 hours on") || !strings.Contains(e.Arithmetic, "64 %") {
		t.Errorf("%+v", e)
	}
	// 10 × 0.0416 $ × 108 h × 730/168
	if e.SavedPerMonth == nil || *e.SavedPerMonth != 195.22 || !strings.Contains(e.Price, "2026") {
		t.Errorf("money: %+v", e)
	}
	if items, _, err := o.ListSchedules(o.ctx, "", 10, ""); err != nil || len(items) != 0 {
		t.Errorf("a dry run saved %d (%v)", len(items), err)
	}
	s, err := o.CreateSchedule(o.ctx, officeHours("shop"), false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.CreateSchedule(o.ctx, officeHours("shop"), false); kindOfRefusal(err) != WrongState {
		t.Errorf("a second one: %v", err)
	}
	bad := officeHours("shop")
	bad.TimeZone = "Nowhere"
	if _, err := o.CreateSchedule(o.ctx, bad, true); kindOfRefusal(err) != WrongState && kindOfRefusal(err) != Invalid {
		t.Errorf("no zone: %v", err)
	}
	v, err := o.PatchSchedule(o.ctx, s.ID, SchedulePatch{PauseCron: new("0 22 * * *"), ResumeCron: new("0 6 * * *"), TimeZone: new("Asia/Kolkata")})
	if err != nil || v.Window != nil || v.NextAt.Format(time.RFC3339) != "2026-11-30T16:30:00Z" || *v.Estimate.HoursOffPerWeek != 56 {
		t.Errorf("patched: %+v %v", v, err)
	}
	if _, err := o.PatchSchedule(o.ctx, s.ID, SchedulePatch{}); kindOfRefusal(err) != Invalid {
		t.Errorf("an empty patch: %v", err)
	}
	gcp := o.finished(job.VM, "far", func(j *job.Job) { j.Provider, j.Region = job.GCP, "us-central1" })
	if v, err := o.CreateSchedule(o.ctx, officeHours(gcp.ID), true); err != nil || v.Estimate.SavedPerMonth != nil || !strings.HasPrefix(v.Estimate.Price, "not priced") {
		t.Errorf("no price: %+v %v", v, err)
	}
	other := access.With(t.Context(), access.Of("org2", "otto", access.Admin))
	if _, err := o.GetSchedule(other, s.ID); kindOfRefusal(err) != NotFound {
		t.Errorf("another organisation: %v", err)
	}
	if err := o.DeleteSchedule(other, s.ID); kindOfRefusal(err) != NotFound {
		t.Errorf("another organisation deletes: %v", err)
	}
}

func mustPlan(t *testing.T, row *job.Schedule) *schedule.Plan {
	t.Helper()
	p, err := schedule.Parse(row.ScheduleSpec)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func transitionOf(row *job.Schedule) schedule.Transition {
	return schedule.Transition{At: *row.NextAt, Action: row.NextAction}
}
