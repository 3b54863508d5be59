package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// checked is a cloud whose checks are told; nothing else is asked of it.
type checked struct {
	cloud.Provider
	checks []cloud.Check
}

func (checked) Caller(context.Context) (string, error) { return "acct", nil }
func (c checked) Check(context.Context, *pipeline.Run) ([]cloud.Check, error) {
	return c.checks, nil
}

// told is components whose outcomes are told.
type told struct {
	unknown  map[string]bool  // not in the catalogue
	examine  map[string]error // by component
	install  func(spec job.ComponentSpec) (job.ComponentInfo, error)
	stuck    error // what every uninstall answers
	mu       sync.Mutex
	removed  []string
	examined []job.ComponentSpec
}

func (c *told) Order(specs []job.ComponentSpec) ([][]job.ComponentSpec, error) {
	inv := &job.Invalid{}
	for i, s := range specs {
		if c.unknown[s.Name] {
			inv.Fields = append(inv.Fields, job.FieldError{Field: fmt.Sprintf("[%d].name", i), Message: s.Name + " is not in the catalogue", Fix: "use one that is"})
		}
	}
	if len(inv.Fields) > 0 {
		return nil, inv
	}
	out := slices.Clone(specs)
	for i := range out {
		out[i].Namespace = "ns-" + out[i].Name
	}
	return [][]job.ComponentSpec{out}, nil
}

func (c *told) Filled(_ *job.Job, spec job.ComponentSpec) (job.ComponentSpec, error) {
	spec.Values = []byte(`{"filled":true}`)
	return spec, nil
}

func (c *told) Examine(_ context.Context, spec job.ComponentSpec, _ string, _ job.Provider) error {
	c.examined = append(c.examined, spec)
	return c.examine[spec.Name]
}

func (c *told) Install(_ context.Context, _ *pipeline.Run, _ cloud.KubeAccess, spec job.ComponentSpec, _ string) (job.ComponentInfo, error) {
	return c.install(spec)
}

func (c *told) Uninstall(_ context.Context, _ *pipeline.Run, _ cloud.KubeAccess, spec job.ComponentSpec) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removed = append(c.removed, spec.Namespace+"/"+spec.Release)
	return c.stuck
}

func componentJob(spec string) *job.Job {
	j := &job.Job{ID: "job_1", ResourceType: job.Component, Kind: job.Provisioning, Mode: job.ModeCreate, Provider: job.AWS, Region: "us-east-1", Phase: job.PhaseProvision}
	j.Config.Spec = []byte(spec)
	return j
}

// pass is one pass over a job that knows its cluster's version.
func pass(j *job.Job, mode pipeline.Mode, rows ...job.Object) *pipeline.Run {
	r := pipeline.NewRun(j, mode, rows, nobody{}, nil, time.Now, 1)
	r.Remember("kube version", "v1.36.2")
	return r
}

// TestHistoryOfRevisions: each revision is remembered once it is ready, however
// many passes that takes, with what it was made of; and no more than ten.
func TestHistoryOfRevisions(t *testing.T) {
	t.Parallel()
	c := &told{}
	s := Set{Components: c}
	j := componentJob(`{"spaceId":"s","component":{"name":"app"}}`)
	at := func(revision int, err error) {
		c.install = func(spec job.ComponentSpec) (job.ComponentInfo, error) {
			return job.ComponentInfo{Name: spec.Name, Release: spec.Release, Version: spec.Version, Revision: revision, Status: "installing"}, err
		}
	}
	install := func(version, values string) error {
		return s.install(t.Context(), pass(j, pipeline.Apply), cloud.KubeAccess{}, []job.ComponentSpec{{Name: "app", Release: "app", Version: version, Values: []byte(values)}})
	}
	wait := pipeline.Wait(time.Second, "pods")
	at(1, wait)
	if err := install("1.0.0", `{"a":1}`); !pipeline.IsWait(err) {
		t.Fatal(err)
	}
	info := j.Config.InfraConfig.Component("app")
	if info.Status != "installing" || info.Waiting == "" || len(info.History) != 0 {
		t.Errorf("%+v", info)
	}
	at(1, nil)
	for range 2 { // and once more, as after a crash
		if err := install("1.0.0", `{"a":1}`); err != nil {
			t.Fatal(err)
		}
	}
	at(2, errors.New("no"))
	if err := install("2.0.0", `{"a":2}`); err == nil {
		t.Fatal("no error")
	}
	if info = j.Config.InfraConfig.Component("app"); info.Status != "failed" || info.LastError != "no" || info.Revision != 2 || len(info.History) != 1 {
		t.Errorf("%+v", info)
	}
	at(2, nil) // it came up after all
	if err := install("2.0.0", `{"a":2}`); err != nil {
		t.Fatal(err)
	}
	info = j.Config.InfraConfig.Component("app")
	if len(info.History) != 2 || info.History[0].Version != "1.0.0" || string(info.History[0].Values) != `{"a":1}` || info.History[1].Revision != 2 || info.LastError != "" || info.Status != "ready" {
		t.Errorf("%+v", info)
	}
	for n := 3; n <= 14; n++ {
		at(n, nil)
		if err := install(fmt.Sprintf("%d.0.0", n), ``); err != nil {
			t.Fatal(err)
		}
	}
	if info = j.Config.InfraConfig.Component("app"); len(info.History) != 10 || info.History[0].Revision != 5 || info.History[9].Revision != 14 || len(j.Config.InfraConfig.Components) != 1 {
		t.Errorf("%+v", info.History)
	}
}

// TestWhereAComponentIsWrong: a fault names its place in the job's own spec.
func TestWhereAComponentIsWrong(t *testing.T) {
	t.Parallel()
	bad := &job.Invalid{Fields: []job.FieldError{{Field: "values.replicas", Message: "is of type string", Fix: "give an integer"}}}
	c := &told{examine: map[string]error{"b": bad}}
	s := Set{Components: c, Cloud: checked{checks: []cloud.Check{{Name: "x", Status: cloud.CheckOK}}}}
	cluster := &job.Job{ID: "job_2", ResourceType: job.Cluster, Kind: job.Provisioning, Mode: job.ModeCreate, Provider: job.AWS, Region: "us-east-1", Name: "c"}
	cluster.Config.Spec = []byte(`{"components":[{"name":"a"},{"name":"b","release":"b2"}]}`)
	fatal := func(err error, field string) *pipeline.FatalError {
		t.Helper()
		var f *pipeline.FatalError
		if !errors.As(err, &f) || f.Problem.Code != "invalid" || f.Problem.Field != field || !strings.Contains(f.Problem.Message, field+": ") || strings.Count(f.Problem.Message, field) != 1 || strings.Count(f.Problem.Hint, "Then retry.") != 1 {
			t.Errorf("%+v", err)
		}
		return f
	}
	// A cluster's components are looked at before anything is made, as they will be installed.
	fatal(s.validate(t.Context(), pass(cluster, pipeline.Apply)), "config.spec.components[1].values.replicas")
	if len(c.examined) != 2 || string(c.examined[0].Values) != `{"filled":true}` {
		t.Errorf("%+v", c.examined)
	}
	c.examine["b"] = &pipeline.CloudError{Class: pipeline.Unavailable, Service: "Charts", Op: "get", Message: "away"}
	if err := s.validate(t.Context(), pass(cluster, pipeline.Apply)); !pipeline.Is(err, pipeline.Unavailable) {
		t.Errorf("a chart source that is away: %v", err)
	}
	checks, err := s.questions(t.Context(), pass(cluster, pipeline.Plan))
	if err != nil || len(checks) != 3 || checks[2].Status != cloud.CheckUnchecked || checks[1].Status != cloud.CheckOK {
		t.Errorf("%+v, %v", checks, err)
	}
	c.examine["b"] = nil
	if err := s.validate(t.Context(), pass(cluster, pipeline.Apply)); err != nil {
		t.Error(err)
	}
	c.unknown = map[string]bool{"b": true}
	_, err = s.order(cluster, []job.ComponentSpec{{Name: "a"}, {Name: "b"}})
	fatal(err, "config.spec.components[1].name")
	_, err = s.order(componentJob(`{}`), []job.ComponentSpec{{Name: "b"}})
	fatal(err, "config.spec.component.name")
	c.unknown = nil
	c.install = func(job.ComponentSpec) (job.ComponentInfo, error) { return job.ComponentInfo{}, bad }
	spec, err := cluster.ClusterSpec()
	if err != nil {
		t.Fatal(err)
	}
	fatal(s.install(t.Context(), pass(cluster, pipeline.Apply), cloud.KubeAccess{}, spec.Components[1:]), "config.spec.components[1].values.replicas")
	j := componentJob(`{"spaceId":"s","component":{"name":"app"}}`)
	fatal(s.install(t.Context(), pass(j, pipeline.Apply), cloud.KubeAccess{}, []job.ComponentSpec{{Name: "app", Release: "app"}}), "config.spec.component.values.replicas")
	none := Set{}
	if err := none.examine(t.Context(), pass(j, pipeline.Apply), job.ComponentSpec{Name: "app"}, ""); err == nil || !strings.Contains(err.Error(), "no component catalogue") {
		t.Errorf("%v", err)
	}
}

// TestUninstallGoesByTheInventory: what was installed is taken off where it is, also
// when the spec or the catalogue does not name it any more.
func TestUninstallGoesByTheInventory(t *testing.T) {
	t.Parallel()
	row := func(name string, state job.ObjectStatus) job.Object {
		_, release, _ := strings.Cut(name, "/")
		return job.Object{Kind: KindRelease, Key: release, Name: name, State: state}
	}
	rows := []job.Object{row("old-home/a", job.ObjectCreated), row("x/dropped", job.ObjectCreated), row("y/gone", job.ObjectRemoved), row("z/never", job.ObjectAbsent), row("w/maybe", job.ObjectIntended),
		{Kind: KindNamespace, Key: "x", Name: "x", State: job.ObjectCreated}}
	specs := []job.ComponentSpec{{Name: "a", Release: "a"}, {Name: "b", Release: "b"}}
	for name, tc := range map[string]struct {
		unknown map[string]bool
		want    []string
	}{
		"known":                      {nil, []string{"ns-b/b", "old-home/a", "w/maybe", "x/dropped"}},
		"the catalogue has lost one": {map[string]bool{"b": true}, []string{"old-home/a", "w/maybe", "x/dropped"}},
	} {
		c := &told{unknown: tc.unknown}
		j := componentJob(`{}`)
		j.Config.InfraConfig.Components = []job.ComponentInfo{{Release: "a", Status: "ready", Waiting: "x"}, {Release: "dropped", Status: "failed", LastError: "x"}}
		s := Set{Components: c}
		if err := s.uninstall(t.Context(), pass(j, pipeline.Apply, rows...), cloud.KubeAccess{}, specs); err != nil {
			t.Fatal(err)
		}
		got := slices.Sorted(slices.Values(c.removed))
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
		for _, info := range j.Config.InfraConfig.Components {
			if info.Status != "removed" || info.Waiting+info.LastError != "" {
				t.Errorf("%s: %+v", name, info)
			}
		}
	}
	none := Set{}
	if err := none.uninstall(t.Context(), pass(componentJob(`{}`), pipeline.Apply, rows...), cloud.KubeAccess{}, specs); err == nil {
		t.Error("without a catalogue something is called removed")
	}
	if err := none.uninstall(t.Context(), pass(componentJob(`{}`), pipeline.Apply), cloud.KubeAccess{}, nil); err != nil {
		t.Errorf("nothing to remove: %v", err)
	}
}
