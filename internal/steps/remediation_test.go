package steps

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/remediation"
)

// A landscape is a subject with its pools at a cloud that does at once what it is
// told, unless it is out of order, and the ledger of what was done to them.
type landscape struct {
	cloud.Provider
	subject *job.Job
	pools   map[string]job.PoolState
	told    int
	refuse  error
	jobs    []*job.Job
}

func (*landscape) Caller(context.Context) (string, error) { return "123456789012", nil }

func (l *landscape) Pool(_ context.Context, ref job.PoolRef) (job.PoolState, error) {
	return l.pools[ref.Name], nil
}

func (l *landscape) SetPool(_ context.Context, _ *pipeline.Run, ref job.PoolRef, _, want job.PoolState) error {
	l.told++
	if l.refuse != nil {
		return l.refuse
	}
	l.pools[ref.Name] = want
	return nil
}

func (l *landscape) Get(context.Context, string, string) (*job.Job, error) { return l.subject, nil }

func (l *landscape) LastChanges(_ context.Context, _, _, except string, _ []string) (job.LastChanges, error) {
	out := job.LastChanges{}
	for _, j := range l.jobs {
		if j.ID != except {
			out.Add(j)
		}
	}
	return out, nil
}

func newLandscape(names ...string) *landscape {
	l := &landscape{pools: map[string]job.PoolState{}, subject: &job.Job{ID: "job_shop", Kind: job.Provisioning, ResourceType: job.Cluster, Provider: job.AWS,
		Mode: job.ModeCreate, Name: "shop", SubjectID: "cls_1", Status: job.Completed, Phase: job.PhaseProvision}}
	for _, name := range names {
		l.pools[name] = job.PoolState{Min: 1, Max: 4, Desired: 2}
		c := &l.subject.Config.InfraConfig.Cluster
		c.NodePools = append(c.NodePools, job.NodePoolInfo{Name: name, ID: name})
	}
	return l
}

func (l *landscape) job(id string, action job.RemediationAction) *job.Job {
	spec, _ := json.Marshal(job.RemediationSpec{Action: action, JobID: l.subject.ID})
	j := &job.Job{ID: id, Kind: job.Remediation, ResourceType: job.Cluster, Provider: job.AWS, Name: id, SubjectID: l.subject.SubjectID, Config: job.Config{Spec: spec}}
	j.Config.InfraConfig.Remediation = &job.RemediationInfo{SubjectJob: l.subject.ID, SubjectName: l.subject.Name}
	l.jobs = append(l.jobs, j)
	return j
}

// carry runs a job until it ends.
func (l *landscape) carry(t *testing.T, j *job.Job, now func() time.Time) (*pipeline.Run, error) {
	t.Helper()
	pausers, err := remediation.Default()
	if err != nil {
		t.Fatal(err)
	}
	s := Set{Cloud: l, Pausers: pausers, Past: l}
	r := pipeline.NewRun(j, pipeline.Apply, nil, nobody{}, nil, now, 1)
	for _, step := range s.remediation() {
		for n := 0; ; n++ {
			err := step.Ensure(openTo(t), r)
			if err == nil {
				break
			}
			if n == 5 || !pipeline.IsWait(err) {
				return r, err
			}
		}
	}
	return r, nil
}

func code(err error) string {
	var e *pipeline.FatalError
	if errors.As(err, &e) {
		return e.Problem.Code
	}
	return ""
}

// TestOvertaken: a job that failed midway does not go on once another one has acted
// on its pool, however that went, and says which; the pool stays as that left it.
func TestOvertaken(t *testing.T) {
	broken := pipeline.Fatal("broken", "the cloud is out of order", "Wait.")
	for name, c := range map[string]struct {
		before       []job.RemediationAction // what was carried out before
		failed, next job.RemediationAction
		fails        bool // the next one fails too
	}{
		"a pause, by a resume":             {nil, job.ActionPause, job.ActionResume, false},
		"a pause, by a resume that failed": {nil, job.ActionPause, job.ActionResume, true},
		"a resume, by another resume":      {[]job.RemediationAction{job.ActionPause}, job.ActionResume, job.ActionResume, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLandscape("workers")
			for i, action := range c.before {
				if _, err := l.carry(t, l.job("before"+string(rune('0'+i)), action), time.Now); err != nil {
					t.Fatal(err)
				}
			}
			old := l.job("old", c.failed)
			l.refuse = broken
			if _, err := l.carry(t, old, time.Now); code(err) != "broken" {
				t.Fatal(err)
			}
			l.pools["workers"] = old.Config.InfraConfig.Remediation.Pools[0].After // the answer was lost
			if !c.fails {
				l.refuse = nil
			}
			newer := l.job("newer", c.next)
			// A worker whose clock is behind: it began later all the same.
			if _, err := l.carry(t, newer, func() time.Time { return time.Now().Add(-time.Minute) }); (code(err) == "broken") != c.fails || err != nil && !c.fails {
				t.Fatal(err)
			}
			l.refuse = nil
			was, told := maps.Clone(l.pools), l.told
			_, err := l.carry(t, old, time.Now)
			var e *pipeline.FatalError
			if !errors.As(err, &e) || e.Problem.Code != "overtaken" || !strings.Contains(e.Error(), "newer") || !strings.Contains(e.Problem.Hint, "shop") {
				t.Errorf("the old job went on: %v", err)
			}
			if l.told != told || l.pools["workers"].Desired != was["workers"].Desired {
				t.Errorf("the pool was changed: %+v", l.pools)
			}
			if _, err := l.carry(t, newer, time.Now); err != nil {
				t.Errorf("the newest job does not go on: %v", err)
			}
			last, _ := l.LastChanges(t.Context(), "", "", "", nil)
			if last["workers"].Job != newer {
				t.Errorf("the last change is that of %s", last["workers"].Job.Name)
			}
		})
	}
}

// TestOldResumeOvertakenByPause: a resume that failed does not start what was paused
// again since.
func TestOldResumeOvertakenByPause(t *testing.T) {
	l := newLandscape("workers")
	now := time.Now()
	for _, step := range []struct {
		id     string
		action job.RemediationAction
	}{{"pause1", job.ActionPause}, {"resume1", job.ActionResume}, {"resume2", job.ActionResume}, {"pause2", job.ActionPause}} {
		j := l.job(step.id, step.action)
		l.refuse = nil
		if step.id == "resume1" {
			l.refuse = pipeline.Fatal("broken", "the cloud is out of order", "Wait.")
		}
		if _, err := l.carry(t, j, func() time.Time { return now }); (err != nil) != (l.refuse != nil) {
			t.Fatalf("%s: %v", step.id, err)
		}
		l.refuse = nil
	}
	if _, err := l.carry(t, l.jobs[1], time.Now); code(err) != "overtaken" || l.pools["workers"].Desired != 0 {
		t.Errorf("%v; %+v", err, l.pools)
	}
}

// TestProtectedPoolPassedOver: one node pool that is named like a cache does not keep
// a whole cluster running; named, or alone, it is refused.
func TestProtectedPoolPassedOver(t *testing.T) {
	l := newLandscape("redis-nodes", "workers")
	j := l.job("pause", job.ActionPause)
	if _, err := l.carry(t, j, time.Now); err != nil {
		t.Fatal(err)
	}
	if l.pools["workers"].Desired != 0 || l.pools["redis-nodes"].Desired != 2 {
		t.Errorf("%+v", l.pools)
	}
	info := j.Config.InfraConfig.Remediation
	if len(info.Pools) != 1 || info.Pools[0].Name != "workers" {
		t.Errorf("%+v", info.Pools)
	}
	if _, err := l.carry(t, l.job("again", job.ActionPause), time.Now); code(err) != "already-paused" {
		t.Errorf("paused twice: %v", err)
	}
	if _, err := l.carry(t, l.job("resume", job.ActionResume), time.Now); err != nil || l.pools["workers"].Desired != 2 {
		t.Errorf("%v; %+v", err, l.pools)
	}
	named := l.job("named", job.ActionPause)
	named.Config.Spec = json.RawMessage(`{"action":"pause","jobId":"job_shop","pool":"redis-nodes"}`)
	if _, err := l.carry(t, named, time.Now); code(err) != protectedPool {
		t.Errorf("named: %v", err)
	}
	alone := newLandscape("redis-nodes")
	if _, err := alone.carry(t, alone.job("pause", job.ActionPause), time.Now); code(err) != protectedPool || alone.told != 0 {
		t.Errorf("alone: %v", err)
	}
}
