package provision

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
)

// overdue is a schedule of a subject that was paused at 20:00 on Monday and is busy
// still at 08:10 on Tuesday: its resume is due and waits.
func overdue(t *testing.T, o *office) (s *ScheduleView, pause string) {
	t.Helper()
	o.finished(job.VM, "shop")
	s, err := o.CreateSchedule(o.ctx, ScheduleRequest{JobID: "shop", TimeZone: "UTC", PauseCron: "0 20 * * *", ResumeCron: "0 8 * * *"}, false)
	if err != nil {
		t.Fatal(err)
	}
	o.now = time.Date(2026, 11, 30, 20, 0, 0, 0, time.UTC)
	o.run(t)
	pause = o.last(t, s.ID).JobID
	o.now = time.Date(2026, 12, 1, 8, 10, 0, 0, time.UTC)
	o.run(t)
	return s, pause
}

// TestPatchKeepsDueResume: whatever is changed of a schedule, a resume that waits for
// its subject is made, once.
func TestPatchKeepsDueResume(t *testing.T) {
	for name, patch := range map[string]SchedulePatch{
		"other times":            {PauseCron: new("0 22 * * *")},
		"a pause since":          {PauseCron: new("5 8 * * *")},
		"another time of resume": {ResumeCron: new("0 10 * * *")},
	} {
		t.Run(name, func(t *testing.T) {
			onBothDatabases(t, func(t *testing.T, o *office) {
				s, pause := overdue(t, o)
				v, err := o.PatchSchedule(o.ctx, s.ID, patch)
				if err != nil || v.NextAction != job.ActionResume || v.NextAt.After(o.now) {
					t.Fatalf("the resume that is due is gone: %+v %v", v, err)
				}
				o.carryOut(pause, job.Completed)
				o.now = o.now.Add(10 * time.Minute)
				o.run(t)
				run := o.last(t, s.ID)
				if jobs := o.remediations(t); run.Action != job.ActionResume || run.Outcome != job.RunCreated || len(jobs) != 2 {
					t.Errorf("%d jobs; %+v", len(jobs), run)
				}
				if v, err := o.GetSchedule(o.ctx, s.ID); err != nil || !v.NextAt.After(o.now) {
					t.Errorf("then: %+v %v", v, err)
				}
			})
		})
	}
}

// TestPatchRecordsWhatItPassesOver: what is due of a schedule that is turned off, and
// a pause that is due of one that is changed, is in the record with the reason.
func TestPatchRecordsWhatItPassesOver(t *testing.T) {
	o := newOffice(t, filepath.Join(t.TempDir(), "ledger.db"))
	s, pause := overdue(t, o)
	if _, err := o.PatchSchedule(o.ctx, s.ID, SchedulePatch{Enabled: new(false)}); err != nil {
		t.Fatal(err)
	}
	if run := o.last(t, s.ID); run.Action != job.ActionResume || run.Outcome != job.RunSkipped || !strings.Contains(run.Reason, "turned off") {
		t.Errorf("%+v", run)
	}
	o.carryOut(pause, job.Completed)
	if v, err := o.PatchSchedule(o.ctx, s.ID, SchedulePatch{Enabled: new(true)}); err != nil || v.NextAt == nil || !v.NextAt.After(o.now) {
		t.Fatalf("%+v %v", v, err)
	}
	o.now = time.Date(2026, 12, 1, 20, 0, 1, 0, time.UTC)
	v, err := o.PatchSchedule(o.ctx, s.ID, SchedulePatch{PauseCron: new("0 22 * * *")})
	if err != nil || v.NextAt.Format(time.RFC3339) != "2026-12-01T22:00:00Z" {
		t.Fatalf("%+v %v", v, err)
	}
	if run := o.last(t, s.ID); run.Action != job.ActionPause || run.Outcome != job.RunSkipped || !strings.Contains(run.Reason, "changed") {
		t.Errorf("%+v", run)
	}
}

// TestEndOfDueTimeLeavesPatch: a process that acts on a due time while the schedule is
// changed records what it did, and overwrites nothing of the change.
func TestEndOfDueTimeLeavesPatch(t *testing.T) {
	o := newOffice(t, filepath.Join(t.TempDir(), "ledger.db"))
	s, _ := overdue(t, o)
	row, err := o.Ledger.Schedule(o.ctx, officeOrg, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	plan := mustPlan(t, row)
	if _, err := o.PatchSchedule(o.ctx, s.ID, SchedulePatch{Enabled: new(false)}); err != nil {
		t.Fatal(err)
	}
	made := job.ScheduleRun{DueAt: *row.NextAt, Action: job.ActionResume, Outcome: job.RunCreated, JobID: "job_made"}
	if err := o.endSchedule(o.ctx, row, made, plan, true, o.now); err != nil {
		t.Fatal(err)
	}
	v, err := o.GetSchedule(o.ctx, s.ID)
	if err != nil || v.Enabled || v.NextAt != nil {
		t.Errorf("turned on again: %+v %v", v, err)
	}
	if run := v.Runs[0]; run.Outcome != job.RunCreated || run.JobID != "job_made" {
		t.Errorf("the job is not in the record: %+v", run)
	}

	// Changed, and not turned off: the due time stands, and is ended by the new lines.
	o.now = time.Date(2026, 12, 2, 8, 10, 0, 0, time.UTC)
	other := overdueAgain(t, o, s.ID)
	if _, err := o.PatchSchedule(o.ctx, s.ID, SchedulePatch{PauseCron: new("0 9 * * *")}); err != nil {
		t.Fatal(err)
	}
	made.DueAt = *other.NextAt
	if err := o.endSchedule(o.ctx, other, made, plan, true, o.now); err != nil {
		t.Fatal(err)
	}
	if v, err := o.GetSchedule(o.ctx, s.ID); err != nil || v.NextAction != job.ActionResume || !v.NextAt.Equal(made.DueAt) {
		t.Errorf("the old lines have moved it on: %s at %s (%v)", v.NextAction, v.NextAt, err)
	}
}

// overdueAgain turns a schedule on an hour before now, so that its resume is due.
func overdueAgain(t *testing.T, o *office, id string) *job.Schedule {
	t.Helper()
	now := o.now
	o.now = now.Add(-time.Hour)
	if _, err := o.PatchSchedule(o.ctx, id, SchedulePatch{Enabled: new(true)}); err != nil {
		t.Fatal(err)
	}
	o.now = now
	row, err := o.Ledger.Schedule(o.ctx, officeOrg, id)
	if err != nil || row.NextAction != job.ActionResume || row.NextAt.After(o.now) {
		t.Fatalf("%+v %v", row, err)
	}
	return row
}

func cluster(pools ...string) func(*job.Job) {
	return func(j *job.Job) {
		j.Config.InfraConfig.VMs = nil
		for _, p := range pools {
			j.Config.InfraConfig.Cluster.NodePools = append(j.Config.InfraConfig.Cluster.NodePools, job.NodePoolInfo{Name: p, ID: p})
		}
	}
}

// TestOverlappingSchedulesAtOnce: of one for all pools and one for each, posted
// together, no two stand that act on the same pool.
func TestOverlappingSchedulesAtOnce(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, o *office) {
		for round := range 8 {
			subject := o.finished(job.Cluster, fmt.Sprint("shop-", round), cluster("workers"))
			var all sync.WaitGroup
			for _, pool := range []string{"", "workers"} {
				request := officeHours(subject.ID)
				request.Pool = pool
				all.Go(func() {
					if _, err := o.CreateSchedule(o.ctx, request, false); err != nil && kindOfRefusal(err) != WrongState {
						t.Error(err)
					}
				})
			}
			all.Wait()
			if items, _, err := o.ListSchedules(o.ctx, subject.ID, 10, ""); err != nil || len(items) != 1 {
				t.Fatalf("%d schedules stand (%v)", len(items), err)
			}
		}
	})
}

// TestOverlapSeenInTransaction: the request that looked before another one's schedule
// was there sees it when it writes its own.
func TestOverlapSeenInTransaction(t *testing.T) {
	o := newOffice(t, filepath.Join(t.TempDir(), "ledger.db"))
	subject := o.finished(job.Cluster, "shop", cluster("workers"))
	add := o.Clock // asked after the first look, and before the transaction
	o.Clock = func(ctx context.Context, q db.Q) (time.Time, error) {
		o.Clock = add
		request := officeHours(subject.ID)
		request.Pool = "workers"
		if _, err := o.CreateSchedule(o.ctx, request, false); err != nil {
			t.Error(err)
		}
		return add(ctx, q)
	}
	if _, err := o.CreateSchedule(o.ctx, officeHours(subject.ID), false); kindOfRefusal(err) != WrongState || !strings.Contains(err.Error(), "workers") {
		t.Errorf("both stand: %v", err)
	}
}

// TestProtectedNodePool: a cluster is acted on although one of its pools is named like
// a cache; that pool is refused by its name, and a cluster that has no other.
func TestProtectedNodePool(t *testing.T) {
	o := newOffice(t, filepath.Join(t.TempDir(), "ledger.db"))
	o.finished(job.Cluster, "shop", cluster("redis-nodes", "workers"))
	o.finished(job.Cluster, "caches", cluster("redis-nodes"))
	if _, err := o.remediate(job.ActionPause, "shop", `,"pool":"redis-nodes"`); kindOfRefusal(err) != CustomerDatabase {
		t.Errorf("by name: %v", err)
	}
	if _, err := o.remediate(job.ActionPause, "caches", ""); kindOfRefusal(err) != CustomerDatabase {
		t.Errorf("no other pool: %v", err)
	}
	v, err := o.remediate(job.ActionPause, "shop", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.Ledger.Change(o.ctx, nil, officeOrg, v.ID, func(j *job.Job, _ ledger.Standing) error {
		j.Status = job.Completed
		info, now := j.Config.InfraConfig.Remediation, o.now
		info.BeganAt, info.VerifiedAt = &now, &now
		info.Pools = []job.PoolChange{{PoolRef: job.PoolRef{Kind: job.PoolEKSNodes, Name: "workers"}}}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := o.remediate(job.ActionPause, "shop", ""); kindOfRefusal(err) != WrongState || !strings.Contains(err.Error(), "paused already") {
		t.Errorf("all that may be paused is: %v", err)
	}
}

// TestDueByDatabaseClock: a process whose own clock is wrong acts when the database
// says that it is time.
func TestDueByDatabaseClock(t *testing.T) {
	onBothDatabases(t, func(t *testing.T, o *office) {
		wrong := New(Config{Ledger: o.Ledger, Now: func() time.Time { return time.Now().AddDate(1, 0, 0) }})
		o.finished(job.VM, "shop")
		s, err := wrong.CreateSchedule(o.ctx, officeHours("shop"), false)
		if err != nil {
			t.Fatal(err)
		}
		if s.NextAt.After(time.Now().AddDate(0, 0, 7)) {
			t.Errorf("next at %s", s.NextAt)
		}
		if err := wrong.RunSchedules(o.ctx); err != nil {
			t.Fatal(err)
		}
		if v, err := wrong.GetSchedule(o.ctx, s.ID); err != nil || len(v.Runs) != 0 {
			t.Errorf("acted before its time: %+v %v", v.Runs, err)
		}
	})
}
