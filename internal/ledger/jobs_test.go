package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
)

func TestJobRoundTrip(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		at := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
		want := e.insert(t, func(j *job.Job) {
			j.Labels = map[string]string{"team": "shop", "cost.center/id": "a b"}
			j.Config = job.Config{
				Spec:        []byte(`{"pool": {"count": 2},  "bootstrap":"docker_nginx"}`), // kept byte by byte
				InfraConfig: job.InfraConfig{Account: "123456789012", Zones: []string{"a", "b"}, VMs: []job.VMInfo{{Name: "vm-1", State: job.VMReady, LaunchedAt: &at}}},
			}
			j.Outputs = map[string]string{"host": "h"}
			j.Error = &job.Error{Code: "quota-exceeded", Message: "no", Hint: "ask"}
			j.Status, j.Phase, j.VMOp, j.Run = job.Failed, job.PhaseUpdate, job.AttachLB, 3
			j.CurrentStep, j.WaitingFor, j.Attempts, j.Cancelling = "stepCreateVMs", "vm-1", 2, true
		})
		if want.Version != 1 || want.SpecRevision != 1 || want.CreatedAt.IsZero() || want.NextRunAt != nil {
			t.Errorf("after Insert: version %d, revision %d, created %s, next run %v", want.Version, want.SpecRevision, want.CreatedAt, want.NextRunAt)
		}
		if diff := cmp.Diff(want, e.get(t, want.ID)); diff != "" {
			t.Errorf("read back (-want +got):\n%s", diff)
		}
	})
}

// Nobody reads or writes a job of another organisation.
func TestOrganisationsAreApart(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		e.register(t, "a")
		mine := e.insert(t)
		c := e.claim(t, "a")
		e.checkpoint(t, c.Lease, full(c.Job, 1))
		const other = "org_2"
		if _, err := e.Get(e.ctx, other, mine.ID); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("Get: %v", err)
		}
		for _, ref := range []string{mine.ID, mine.Name, mine.ID[:20]} {
			if _, err := e.Resolve(e.ctx, other, job.Everything, ref); !errors.Is(err, ledger.ErrNotFound) {
				t.Errorf("Resolve %s: %v", ref, err)
			}
		}
		if jobs, _, err := e.List(e.ctx, other, job.Everything, ledger.Filter{}); err != nil || len(jobs) != 0 {
			t.Errorf("List: %d jobs, %v", len(jobs), err)
		}
		_, err := e.Change(e.ctx, nil, other, mine.ID, func(*job.Job, ledger.Standing) error { t.Error("fn was called"); return nil })
		if !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("Change: %v", err)
		}
		if err := e.AddEvents(e.ctx, nil, other, mine.ID, job.Event{Type: "note"}); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("AddEvents: %v", err)
		}
		steps, err1 := e.Steps(e.ctx, other, mine.ID)
		events, err2 := e.Events(e.ctx, other, mine.ID, 0, 10)
		objs, err3 := e.Objects(e.ctx, other, mine.ID)
		if len(steps)+len(events)+len(objs) > 0 || err1 != nil || err2 != nil || err3 != nil {
			t.Errorf("steps %v, events %v, objects %v; %v %v %v", steps, events, objs, err1, err2, err3)
		}
		// The same name and key are free there.
		e.insert(t, func(j *job.Job) { j.OrgID, j.Name = other, mine.Name })
	})
}

func TestNamesAreUniqueAmongLiveJobs(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		first := e.insert(t, func(j *job.Job) { j.Name, j.Status = "web", job.Draft })
		err := e.d.InTx(e.ctx, func(ctx context.Context, tx db.Q) error {
			var taken *ledger.NameTakenError
			if err := e.Insert(ctx, tx, e.job(func(j *job.Job) { j.Name = "web" })); !errors.As(err, &taken) || taken.HolderID != first.ID {
				t.Errorf("second %q: %v, want it taken by %s", "web", err, first.ID)
			}
			// The transaction is still good for something.
			return e.Insert(ctx, tx, e.job(func(j *job.Job) { j.Name, j.ResourceType = "web", job.Cluster }))
		})
		must(t, err)
		other := e.insert(t, func(j *job.Job) { j.Status = job.Draft })
		var taken *ledger.NameTakenError
		_, err = e.Change(e.ctx, nil, org, other.ID, func(j *job.Job, _ ledger.Standing) error { j.Name = "web"; return nil })
		if !errors.As(err, &taken) || taken.HolderID != first.ID {
			t.Errorf("rename to a taken name: %v", err)
		}
		_, err = e.Change(e.ctx, nil, org, first.ID, func(j *job.Job, _ ledger.Standing) error { j.Status = job.Cancelled; return nil })
		must(t, err)
		e.insert(t, func(j *job.Job) { j.Name = "web" })

		var (
			wg   sync.WaitGroup
			errs [8]error
		)
		for i := range errs {
			j := e.job(func(j *job.Job) { j.Name = "race" })
			wg.Go(func() { errs[i] = e.Insert(e.ctx, e.d, j) })
		}
		wg.Wait()
		passed := 0
		for _, err := range errs {
			if err == nil {
				passed++
			} else if !errors.As(err, &taken) {
				t.Errorf("racing insert: %v", err)
			}
		}
		if passed != 1 {
			t.Errorf("%d of %d racing inserts of one name passed", passed, len(errs))
		}
	})
}

func TestOneActiveJobPerSubject(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		running := e.insert(t)
		same := func(j *job.Job) { j.SubjectID, j.Kind = running.SubjectID, job.Remediation }
		var busy *ledger.SubjectBusyError
		if err := e.Insert(e.ctx, e.d, e.job(same)); !errors.As(err, &busy) || busy.HolderID != running.ID {
			t.Errorf("second active job: %v, want the subject busy with %s", err, running.ID)
		}
		draft := e.insert(t, same, func(j *job.Job) { j.Status = job.Draft })
		submit := func(j *job.Job, _ ledger.Standing) error { j.Status = job.Queued; return nil }
		if _, err := e.Change(e.ctx, nil, org, draft.ID, submit); !errors.As(err, &busy) || busy.HolderID != running.ID {
			t.Errorf("submit of a second job: %v", err)
		}
		e.sql(t, `UPDATE provisioning_jobs SET status = 'completed', next_run_at = NULL WHERE id = $1`, running.ID)
		got, err := e.Change(e.ctx, nil, org, draft.ID, submit)
		must(t, err)
		if got.NextRunAt == nil || got.Version != 2 {
			t.Errorf("submitted: next run %v, version %d", got.NextRunAt, got.Version)
		}
	})
}

func TestChange(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		e.register(t, "a")
		j := e.insert(t)
		refused := errors.New("no")
		if _, err := e.Change(e.ctx, nil, org, j.ID, func(j *job.Job, _ ledger.Standing) error { j.Name = "x"; return refused }); !errors.Is(err, refused) {
			t.Errorf("Change: %v, want fn's error", err)
		}
		if diff := cmp.Diff(j, e.get(t, j.ID)); diff != "" {
			t.Errorf("a refused change wrote (-before +after):\n%s", diff)
		}
		if _, err := e.Change(e.ctx, nil, org, j.ID, func(j *job.Job, _ ledger.Standing) error { j.SubjectID = "x"; return nil }); err == nil {
			t.Error("the subject could be changed")
		}
		got, err := e.Change(e.ctx, nil, org, j.ID, func(j *job.Job, s ledger.Standing) error {
			if s.Leased || s.EverClaimed {
				t.Errorf("a job that nobody claimed stands %+v", s)
			}
			j.Labels = map[string]string{"a": "b"}
			j.Config.Spec = []byte(`{"pool":{"count":3}}`)
			j.SpecRevision++
			return nil
		})
		must(t, err)
		if diff := cmp.Diff(got, e.get(t, j.ID)); diff != "" {
			t.Errorf("returned and stored differ (-returned +stored):\n%s", diff)
		}
		if got.Version != 2 || got.SpecRevision != 2 || !got.NextRunAt.Equal(*j.NextRunAt) {
			t.Errorf("version %d, revision %d, next run %s (was %s)", got.Version, got.SpecRevision, got.NextRunAt, j.NextRunAt)
		}

		// A parked job is free: its state may be changed, and it is due at once.
		c := e.claim(t, "a")
		e.checkpoint(t, c.Lease, ledger.Checkpoint{Job: c.Job, Release: true, NextIn: time.Hour})
		_, err = e.Change(e.ctx, nil, org, j.ID, func(j *job.Job, s ledger.Standing) error {
			if s.Leased || !s.EverClaimed {
				t.Errorf("a parked job stands %+v", s)
			}
			j.Status, j.Phase, j.Run = job.Queued, job.PhaseTeardown, 2
			return nil
		})
		must(t, err)
		if c := e.claim(t, "a"); c.Job.ID != j.ID || c.Job.Phase != job.PhaseTeardown || c.Job.Run != 2 {
			t.Errorf("claimed %s %s run %d", c.Job.ID, c.Job.Phase, c.Job.Run)
		}

		// A leased job is the worker's: only what people own may be changed.
		if _, err := e.Change(e.ctx, nil, org, j.ID, func(j *job.Job, s ledger.Standing) error {
			if !s.Leased || s.Worker != "a" {
				t.Errorf("a claimed job stands %+v", s)
			}
			j.WaitingFor = "x"
			return nil
		}); !errors.Is(err, ledger.ErrLeased) {
			t.Errorf("edit of the engine's fields under a lease: %v", err)
		}
	})
}

func TestResolve(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		gone := e.insert(t, func(j *job.Job) { j.Name, j.Status = "web", job.Cancelled })
		live := e.insert(t, func(j *job.Job) { j.Name = "web" })
		cluster := e.insert(t, func(j *job.Job) { j.Name, j.ResourceType = "web", job.Cluster })
		old := e.insert(t, func(j *job.Job) { j.Name, j.Status = "old", job.Cancelled })
		for _, tc := range []struct {
			ref  string
			want []string
		}{
			{live.ID, []string{live.ID}},
			{gone.ID, []string{gone.ID}},
			{"web", []string{cluster.ID, live.ID}},
			{"old", []string{old.ID}},
			{live.ID[:len(live.ID)-1], []string{live.ID}},
			{strings.TrimPrefix(live.ID, "job_"), []string{live.ID}},
			{live.ID[:8], []string{old.ID, cluster.ID, live.ID, gone.ID}},
			{"we", nil}, {"", nil}, {"%", nil}, {"job_~", nil},
		} {
			jobs, err := e.Resolve(e.ctx, org, job.Everything, tc.ref)
			var got []string
			for _, j := range jobs {
				got = append(got, j.ID)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || (err != nil) != (len(tc.want) == 0) {
				t.Errorf("Resolve(%q): %v (-want +got):\n%s", tc.ref, err, diff)
			}
		}
	})
}

func TestListFilters(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		a := e.insert(t, func(j *job.Job) { j.Name, j.Labels = "alpha", map[string]string{"team": "shop", "a.b/c": "1"} })
		b := e.insert(t, func(j *job.Job) {
			j.Name, j.Status, j.Phase, j.Provider, j.Labels = "beta_x", job.Failed, job.PhaseTeardown, job.GCP, map[string]string{"team": "core"}
		})
		c := e.insert(t, func(j *job.Job) {
			j.Name, j.Kind, j.ResourceType, j.Mode = "gamma%", job.Remediation, job.Cluster, job.ModeAdopt
		})
		for name, tc := range map[string]struct {
			f    ledger.Filter
			want []*job.Job
		}{
			"all":            {ledger.Filter{}, []*job.Job{c, b, a}},
			"status":         {ledger.Filter{Status: []job.Status{job.Failed, job.Draft}}, []*job.Job{b}},
			"two statuses":   {ledger.Filter{Status: []job.Status{job.Failed, job.Queued}, Sort: ledger.SortName}, []*job.Job{a, b, c}},
			"phase":          {ledger.Filter{Phase: job.PhaseTeardown}, []*job.Job{b}},
			"kind":           {ledger.Filter{Kind: job.Remediation}, []*job.Job{c}},
			"resource type":  {ledger.Filter{ResourceType: job.VM, Order: ledger.Asc}, []*job.Job{a, b}},
			"provider":       {ledger.Filter{Provider: job.GCP}, []*job.Job{b}},
			"mode":           {ledger.Filter{Mode: job.ModeAdopt}, []*job.Job{c}},
			"subject":        {ledger.Filter{Subject: a.SubjectID}, []*job.Job{a}},
			"part of a name": {ledger.Filter{Name: "ETA"}, []*job.Job{b}},
			"no wild cards":  {ledger.Filter{Name: "%"}, []*job.Job{c}},
			"underscore":     {ledger.Filter{Name: "a_"}, []*job.Job{b}},
			"label":          {ledger.Filter{Labels: map[string]string{"team": "shop"}}, []*job.Job{a}},
			"odd label":      {ledger.Filter{Labels: map[string]string{"team": "shop", "a.b/c": "1"}}, []*job.Job{a}},
			"no such label":  {ledger.Filter{Labels: map[string]string{"team": "shop", "a": "1"}}, nil},
			"from":           {ledger.Filter{CreatedFrom: b.CreatedAt}, []*job.Job{c, b}},
			"to":             {ledger.Filter{CreatedTo: b.CreatedAt}, []*job.Job{a}},
			"together":       {ledger.Filter{Name: "a", Provider: job.AWS, ResourceType: job.VM}, []*job.Job{a}},
		} {
			// SQLite's clock ticks in milliseconds, so the three may share one.
			if e.d.Dialect() == db.SQLite && (name == "from" || name == "to") && (a.CreatedAt.Equal(b.CreatedAt) || b.CreatedAt.Equal(c.CreatedAt)) {
				e.sql(t, `UPDATE provisioning_jobs SET created_at = created_at - 1000 WHERE id = $1`, a.ID)
			}
			jobs, next, err := e.List(e.ctx, org, job.Everything, tc.f)
			if err != nil || next != "" {
				t.Errorf("%s: next %q, %v", name, next, err)
			}
			var got, want []string
			for _, j := range jobs {
				got = append(got, j.Name)
			}
			for _, j := range tc.want {
				want = append(want, j.Name)
			}
			if tc.f.Sort == "" && tc.f.Order == "" {
				slices.Sort(got) // ties of the clock are broken by ID, which tests of cursors look at
				slices.Sort(want)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	})
}

// Jobs that come while a list is paged through neither repeat nor hide others.
func TestCursorsAreStable(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		for _, sort := range []ledger.SortKey{ledger.SortCreated, ledger.SortUpdated, ledger.SortName} {
			for _, order := range []ledger.Order{ledger.Asc, ledger.Desc} {
				owner := fmt.Sprintf("org_%s_%s", sort, order)
				put := func(name string) string {
					return e.insert(t, func(j *job.Job) { j.OrgID, j.Name, j.Status = owner, name, job.Draft }).ID
				}
				there := make(map[string]bool)
				for i := range 23 {
					there[put(fmt.Sprintf("job-%02d", i*7%23))] = true
				}
				// Half of them at the same time: ties have to be broken.
				e.sql(t, `UPDATE provisioning_jobs SET created_at = 1000, updated_at = 2000 WHERE org_id = $1 AND name < 'job-11'`, owner)
				var got []job.Job
				f := ledger.Filter{Sort: sort, Order: order, Limit: 5}
				for page := 0; ; page++ {
					jobs, next, err := e.List(e.ctx, owner, job.Everything, f)
					must(t, err)
					got = append(got, jobs...)
					if f.Cursor = next; next == "" {
						break
					}
					put(fmt.Sprintf("aaa-%d", page))
					put(fmt.Sprintf("job-11-%d", page))
					put(fmt.Sprintf("zzz-%d", page))
				}
				seen := make(map[string]bool)
				for i, j := range got {
					if seen[j.ID] {
						t.Errorf("%s %s: %s came twice", sort, order, j.ID)
					}
					seen[j.ID] = true
					delete(there, j.ID)
					if i == 0 {
						continue
					}
					if key := sortKey(sort, &j); order == ledger.Asc && key < sortKey(sort, &got[i-1]) || order == ledger.Desc && key > sortKey(sort, &got[i-1]) {
						t.Errorf("%s %s: out of order at %d: %s", sort, order, i, key)
					}
				}
				if len(there) > 0 {
					t.Errorf("%s %s: %d jobs were hidden", sort, order, len(there))
				}
			}
		}
		for _, bad := range []string{"x", "e30", "!"} {
			if _, _, err := e.List(e.ctx, org, job.Everything, ledger.Filter{Cursor: bad}); !errors.Is(err, ledger.ErrBadCursor) {
				t.Errorf("cursor %q: %v", bad, err)
			}
		}
		e.insert(t)
		e.insert(t)
		_, next, err := e.List(e.ctx, org, job.Everything, ledger.Filter{Limit: 1})
		must(t, err)
		if _, _, err := e.List(e.ctx, org, job.Everything, ledger.Filter{Limit: 1, Cursor: next, Sort: ledger.SortName}); !errors.Is(err, ledger.ErrBadCursor) {
			t.Errorf("cursor of another sorting: %v", err)
		}
	})
}

func sortKey(s ledger.SortKey, j *job.Job) string {
	switch s {
	case ledger.SortName:
		return j.Name + "\x00" + j.ID
	case ledger.SortUpdated:
		return fmt.Sprintf("%020d", j.UpdatedAt.UnixMicro()) + j.ID
	}
	return fmt.Sprintf("%020d", j.CreatedAt.UnixMicro()) + j.ID
}

func TestIdempotencyKeys(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		if _, err := e.IdempotencyGet(e.ctx, e.d, org, "k"); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("a key that nobody took: %v", err)
		}
		// Of many at once one takes the key, and the others see whose it is.
		const n = 8
		var (
			wg   sync.WaitGroup
			recs [n]*ledger.IdempotencyRecord
			errs [n]error
		)
		for i := range n {
			wg.Go(func() {
				errs[i] = e.d.InTx(e.ctx, func(ctx context.Context, tx db.Q) error {
					var err error
					recs[i], err = e.IdempotencyPut(ctx, tx, org, "k", fmt.Sprintf("hash-%d", i), fmt.Sprintf("job-%d", i))
					return err
				})
			})
		}
		wg.Wait()
		own := 0
		for i := range n {
			must(t, errs[i])
			if recs[i].JobID == fmt.Sprintf("job-%d", i) {
				own++
			}
			if diff := cmp.Diff(recs[0], recs[i]); diff != "" {
				t.Errorf("two requests saw two records:\n%s", diff)
			}
		}
		if own != 1 {
			t.Errorf("%d requests took one key", own)
		}
		if _, err := e.IdempotencyGet(e.ctx, e.d, "org_2", "k"); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("the key in another organisation: %v", err)
		}
		e.sql(t, `UPDATE idempotency_keys SET created_at = created_at - 86400000000`)
		rec, err := e.IdempotencyPut(e.ctx, e.d, org, "k", "new", "job-new")
		if err != nil || rec.JobID != "job-new" {
			t.Errorf("an old key: %+v, %v", rec, err)
		}
	})
}

func TestStats(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		e.register(t, "a")
		parked := e.insert(t)
		c := e.claim(t, "a")
		e.checkpoint(t, c.Lease, ledger.Checkpoint{Job: c.Job, Release: true, NextIn: time.Hour})
		e.insert(t)
		e.claim(t, "a")
		due := e.insert(t, func(j *job.Job) { j.ResourceType = job.Cluster })
		e.sql(t, `UPDATE provisioning_jobs SET next_run_at = next_run_at - 60000000 WHERE id = $1`, due.ID)
		s, err := e.Stats(e.ctx)
		must(t, err)
		want := []ledger.Count{{job.Cluster, job.Queued, job.PhaseProvision, 1}, {job.VM, job.Running, job.PhaseProvision, 2}}
		if diff := cmp.Diff(want, s.Counts); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
		if s.Parked != 1 || s.Leased != 1 || s.Workers != 1 || s.QueueAge < time.Minute || s.QueueAge > 2*time.Minute {
			t.Errorf("%+v; parked is %s", s, parked.ID)
		}
	})
}

// What clouds and callers put into texts is stored, or not found, but never an
// error of the database.
func TestHostileText(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		e.register(t, "a")
		e.insert(t)
		c := e.claim(t, "a")
		for _, text := range []string{"nul \x00 here", "\xff\xfe broken", "quote ' \" \\ %s $1", "{\"a\":1}", "\u2028 𝔘"} {
			c.Job.WaitingFor, c.Job.Error = text, &job.Error{Code: "x", Message: text}
			c.Job.Outputs = map[string]string{text: text}
			for _, entries := range paths {
				e.checkpoint(t, c.Lease, ledger.Checkpoint{
					Job: c.Job, Outputs: true, Audit: entries,
					Steps:   []job.StepState{{Run: 1, Name: "s", Direction: job.Up, Status: job.StepFailed, Note: text, WaitingFor: text}},
					Events:  []job.Event{{Type: "note", Message: text}},
					Objects: []job.Object{{Cloud: job.AWS, Kind: "k", Key: text, Name: text, ID: text, State: job.ObjectCreated, Reason: text}},
				})
				r := e.record(t, c.Job.ID)
				if want := db.Clean(text); r.Job.WaitingFor != want || r.Steps[0].Note != want || r.Events[len(r.Events)-1].Message != want {
					t.Errorf("%q was stored as %q, %q", text, r.Job.WaitingFor, r.Steps[0].Note)
				}
			}
			if _, err := e.Get(e.ctx, org, text); !errors.Is(err, ledger.ErrNotFound) {
				t.Errorf("Get %q: %v", text, err)
			}
			if _, err := e.Resolve(e.ctx, org, job.Everything, text); !errors.Is(err, ledger.ErrNotFound) {
				t.Errorf("Resolve %q: %v", text, err)
			}
			f := ledger.Filter{Name: text, Subject: text, Labels: map[string]string{text: text}}
			if jobs, _, err := e.List(e.ctx, org, job.Everything, f); err != nil || len(jobs) != 0 {
				t.Errorf("List by %q: %d jobs, %v", text, len(jobs), err)
			}
			if _, err := e.IdempotencyPut(e.ctx, e.d, org, strings.Repeat(text, 500), "h", "job"); err != nil {
				t.Errorf("IdempotencyPut: %v", err)
			}
		}
	})
}
