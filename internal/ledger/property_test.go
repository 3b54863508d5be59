package ledger_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
)

// model is what one job must look like after every interleaving.
type model struct {
	id                    string
	active, due, teardown bool
	queued                bool   // not claimed since it was made, changed or yielded
	holder, token         string // token is empty when nobody holds the job
	expired               bool
	cancel                bool
	labels, events, marks int // marks: applied checkpoints, which the job's attempts count
}

// machine drives the ledger with random claims, deaths, commits and changes,
// under live and under dead leases, and a model that says what each must do.
type machine struct {
	e      *env
	t      testing.TB
	jobs   []*model
	leases []ledger.Lease // every lease that was ever handed out
	alive  map[string]bool
}

var machineWorkers = []string{"a", "b", "c"}

func (m *machine) held(j *model) bool { return j.token != "" && !j.expired }

func (m *machine) claimable(j *model) bool {
	return j.active && j.due && (!m.held(j) || !m.alive[j.holder])
}

func (m *machine) byID(id string) *model {
	for _, j := range m.jobs {
		if j.id == id {
			return j
		}
	}
	return nil
}

func (m *machine) insert(r *rapid.T) {
	if len(m.jobs) >= 4 {
		r.Skip("enough jobs")
	}
	j := m.e.insert(m.t)
	m.jobs = append(m.jobs, &model{id: j.ID, active: true, due: true, queued: true})
}

func (m *machine) claim(r *rapid.T) {
	w := rapid.SampledFrom(machineWorkers).Draw(r, "worker")
	n := rapid.IntRange(1, 3).Draw(r, "n")
	free := 0
	for _, j := range m.jobs {
		if m.claimable(j) {
			free++
		}
	}
	cs, err := m.e.Claim(m.e.ctx, w, n, ledger.ClaimOptions{})
	if err != nil {
		r.Fatal(err)
	}
	if len(cs) != min(n, free) {
		r.Fatalf("claimed %d of %d claimable jobs, asked for %d", len(cs), free, n)
	}
	for _, c := range cs {
		j := m.byID(c.Job.ID)
		if j == nil || !m.claimable(j) {
			r.Fatalf("%s was claimed: %+v", c.Job.ID, j)
		}
		if from := c.TakenFrom; (j.token == "") != (from == "") || j.token != "" && from != j.holder {
			r.Fatalf("%s was taken from %q, and held by %q", j.id, from, j.holder)
		}
		j.holder, j.token, j.expired, j.queued = w, c.Lease.Token, false, false
		m.leases = append(m.leases, c.Lease)
	}
}

func (m *machine) anyLease(r *rapid.T) (ledger.Lease, *model) {
	if len(m.leases) == 0 {
		r.Skip("no lease yet")
	}
	l := m.leases[len(m.leases)-1-rapid.IntRange(0, min(5, len(m.leases)-1)).Draw(r, "lease")]
	return l, m.byID(l.JobID)
}

func (m *machine) valid(l ledger.Lease, j *model) bool { return j.token == l.Token && m.held(j) }

func (m *machine) checkpoint(r *rapid.T) {
	l, j := m.anyLease(r)
	kind := rapid.SampledFrom([]string{"progress", "park", "finish", "yield"}).Draw(r, "kind")
	row := &job.Job{ID: j.id, OrgID: org, Status: job.Running, Phase: job.PhaseProvision, Run: 1, Attempts: j.marks + 1}
	if j.teardown {
		row.Phase = job.PhaseTeardown
	}
	c := ledger.Checkpoint{Job: row, Events: []job.Event{{Type: "note"}, {Type: "note"}},
		Steps: []job.StepState{{Run: 1, Name: fmt.Sprint(j.marks), Direction: job.Up, Status: job.StepDone}}}
	switch kind {
	case "park":
		c.Release, c.NextIn = true, time.Hour
	case "finish":
		row.Status = job.Completed
	case "yield":
		row.Status, row.Phase, c.Release, c.ClearCancel = job.Queued, job.PhaseTeardown, true, true
	}
	var want error
	switch {
	case !m.valid(l, j):
		want = ledger.ErrLeaseLost
	case kind == "finish" && j.cancel && !j.teardown:
		want = ledger.ErrCancelRequested
	}
	cancel, err := m.e.Checkpoint(m.e.ctx, l, c)
	if !errors.Is(err, want) || err == nil && cancel != (j.cancel && !c.ClearCancel) {
		r.Fatalf("%s under %s: %v, cancel %t; want %v; %+v", kind, l.Token, err, cancel, want, j)
	}
	if err != nil {
		return
	}
	j.marks++
	j.events += 2
	switch kind {
	case "park":
		j.token, j.due = "", false
	case "finish":
		j.token, j.active = "", false
	case "yield":
		j.token, j.teardown, j.cancel, j.due, j.queued = "", true, false, true, true
	}
}

func (m *machine) renew(r *rapid.T) {
	l, j := m.anyLease(r)
	cancel, err := m.e.Renew(m.e.ctx, l, time.Hour)
	if (err == nil) != m.valid(l, j) || err == nil && cancel != j.cancel {
		r.Fatalf("renew of %s: cancel %t, %v; %+v", l.Token, cancel, err, j)
	}
}

func (m *machine) release(r *rapid.T) {
	l, j := m.anyLease(r)
	if err := m.e.ReleaseAll(m.e.ctx, l.Worker, l); err != nil {
		r.Fatal(err)
	}
	if j.token == l.Token {
		j.token, j.expired = "", false
	}
}

func (m *machine) change(r *rapid.T) {
	if len(m.jobs) == 0 {
		r.Skip("no job")
	}
	j := rapid.SampledFrom(m.jobs).Draw(r, "job")
	del := rapid.Bool().Draw(r, "delete")
	_, err := m.e.Change(m.e.ctx, nil, org, j.id, func(row *job.Job, s ledger.Standing) error {
		if s.Leased != m.held(j) {
			r.Fatalf("%s stands %+v; %+v", j.id, s, j)
		}
		switch {
		case del && s.Leased:
			row.Cancelling = true
		case del && row.State().Active():
			row.Status, row.Phase, row.Run, row.Cancelling = job.Queued, job.PhaseTeardown, row.Run+1, false
		}
		if row.Labels == nil {
			row.Labels = make(map[string]string)
		}
		row.Labels[fmt.Sprint(len(row.Labels))] = "x"
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
	j.labels++
	if m.held(j) {
		j.cancel = j.cancel || del
		return
	}
	j.token, j.expired = "", false
	if del && j.active {
		// What was queued for teardown already stays where it was.
		j.due = j.due || !j.queued || !j.teardown
		j.queued, j.teardown, j.cancel = true, true, false
	}
}

func (m *machine) time(r *rapid.T) {
	switch rapid.SampledFrom([]string{"silent", "beat", "expire", "due"}).Draw(r, "what") {
	case "silent":
		w := rapid.SampledFrom(machineWorkers).Draw(r, "worker")
		m.e.silent(m.t, w, time.Minute)
		m.alive[w] = false
	case "beat":
		w := rapid.SampledFrom(machineWorkers).Draw(r, "worker")
		m.e.register(m.t, w)
		m.alive[w] = true
	case "expire":
		_, j := m.anyLease(r)
		m.e.expire(m.t, j.id)
		j.expired = true
	case "due":
		m.e.sql(m.t, `UPDATE provisioning_jobs SET next_run_at = 1 WHERE next_run_at IS NOT NULL`)
		for _, j := range m.jobs {
			j.due = true
		}
	}
}

// check compares every job with its model.
func (m *machine) check(r *rapid.T) {
	for _, j := range m.jobs {
		row := m.e.get(m.t, j.id)
		if row.State().Active() != j.active || (row.Phase == job.PhaseTeardown) != j.teardown || row.Cancelling != j.cancel ||
			len(row.Labels) != j.labels || row.Attempts != j.marks {
			r.Fatalf("%s is %s, cancelling %t, %d labels, attempts %d; want %+v", j.id, row.State(), row.Cancelling, len(row.Labels), row.Attempts, j)
		}
		events, err := m.e.Events(m.e.ctx, org, j.id, 0, 1000)
		if err != nil {
			r.Fatal(err)
		}
		if len(events) != j.events || len(events) > 0 && events[len(events)-1].Seq != int64(j.events) {
			r.Fatalf("%s has %d events, want %d", j.id, len(events), j.events)
		}
		steps, err := m.e.Steps(m.e.ctx, org, j.id)
		if err != nil || len(steps) != j.marks {
			r.Fatalf("%s has %d steps, want %d; %v", j.id, len(steps), j.marks, err)
		}
	}
}

// Whatever the order of claims, deaths, commits and changes: one holder a job,
// no write under a lease that is gone, no write lost, no gap in the history.
func TestInterleavings(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		rapid.Check(t, func(r *rapid.T) {
			m := &machine{e: e, t: t, alive: make(map[string]bool)}
			for _, w := range machineWorkers {
				e.register(t, w)
				m.alive[w] = true
			}
			defer e.sql(t, `UPDATE provisioning_jobs SET status = 'cancelled', next_run_at = NULL, lease_token = NULL`)
			r.Repeat(map[string]func(*rapid.T){
				"insert": m.insert, "claim": m.claim, "claim again": m.claim, "checkpoint": m.checkpoint, "checkpoint again": m.checkpoint,
				"renew": m.renew, "release": m.release, "change": m.change, "time": m.time, "": m.check,
			})
		})
	})
}
