package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/components"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim/charts"
	"github.com/zopday/provisioner/internal/spaces"
	"github.com/zopday/provisioner/internal/spaces/configv1"
)

// A bench is the use cases on a real ledger and registry, with a cloud that is
// only as much as is asked of it, and no worker: nothing happens but what a
// request does.
type bench struct {
	*Service
	t        *testing.T
	ctx      context.Context // ana, admin of org1
	registry *spaces.Client
	cloud    *fakeCloud
	engine   *fakeEngine
	log      *strings.Builder
}

// A fakeCloud has the clusters that it is given.
type fakeCloud struct {
	cloud.Provider // nothing else is asked of it
	mu             sync.Mutex
	clusters       map[string]bool // region/name
	fail           error           // of every call
	grants         []string
	api            *fakeAPIServer
}

func (c *fakeCloud) Open(context.Context, *job.Job) (cloud.Provider, error) { return c, nil }

func (c *fakeCloud) Caller(context.Context) (string, error) { return "sub-1", nil }

func (c *fakeCloud) EnsureCluster(context.Context, *pipeline.Run) error { panic("not asked here") }
func (c *fakeCloud) RemoveCluster(context.Context, *pipeline.Run) error { panic("not asked here") }
func (c *fakeCloud) AdoptCluster(context.Context, *pipeline.Run) error  { panic("not asked here") }

func (c *fakeCloud) there(op string, ref job.ClusterRef) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail != nil {
		return c.fail
	}
	if !c.clusters[ref.Region+"/"+ref.Name] {
		return &pipeline.CloudError{Class: pipeline.NotFound, Service: "Fake", Op: op, Message: "no such cluster", Sent: true}
	}
	return nil
}

func (c *fakeCloud) KubeAccess(ctx context.Context, ref job.ClusterRef) (cloud.KubeAccess, error) {
	if err := c.there("GetCluster", ref); err != nil {
		return cloud.KubeAccess{}, err
	}
	if err := pipeline.Allow(ctx, pipeline.Call{Service: "Fake", Op: "GetCluster", Mutating: true}); !errors.Is(err, pipeline.ErrReadOnly) {
		return cloud.KubeAccess{}, fmt.Errorf("a look is not read only: %w", err)
	}
	return c.api.access(), nil
}

func (c *fakeCloud) GrantAccess(ctx context.Context, ref job.ClusterRef, g cloud.AccessGrant) error {
	return c.changeAccess(ctx, ref, fmt.Sprintf("grant %s %q", g.Level, g.Principal), g.Principal)
}

func (c *fakeCloud) RevokeAccess(ctx context.Context, ref job.ClusterRef, principal string) error {
	return c.changeAccess(ctx, ref, fmt.Sprintf("revoke %q", principal), principal)
}

func (c *fakeCloud) changeAccess(ctx context.Context, ref job.ClusterRef, what, principal string) error {
	if err := pipeline.Allow(ctx, pipeline.Call{Service: "Fake", Op: "PutAccess", Mutating: true}); err != nil {
		return err
	}
	if err := c.there("PutAccess", ref); err != nil {
		return err
	}
	if principal == "nobody" {
		return &pipeline.CloudError{Class: pipeline.Invalid, Service: "Fake", Op: "PutAccess", Code: "InvalidPrincipal", Message: "there is nobody of this name", Sent: true}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grants = append(c.grants, what+" on "+ref.Region+"/"+ref.Name+" "+ref.ResourceGroup)
	return nil
}

// A fakeEngine is the real catalogue and charts, with a diff that is told.
type fakeEngine struct {
	*components.Engine
	diff  []components.Change
	err   error
	asked []job.ComponentSpec
}

func (e *fakeEngine) Diff(ctx context.Context, _ cloud.KubeAccess, spec job.ComponentSpec, _ string, _ job.Provider) ([]components.Change, error) {
	if err := pipeline.Allow(ctx, pipeline.Call{Service: "Kubernetes", Op: "PATCH", Mutating: true}); err == nil {
		return nil, errors.New("a diff may change the cluster")
	}
	e.asked = append(e.asked, spec)
	return e.diff, e.err
}

func newBench(t *testing.T) *bench {
	t.Helper()
	d, err := db.Open(t.Context(), filepath.Join(t.TempDir(), "zopday.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	registry, stop := spaces.BuiltIn(spaces.NewRegistry(d))
	t.Cleanup(func() { _ = stop() })
	source := httptest.NewServer(charts.New(charts.StandIns()...))
	t.Cleanup(source.Close)
	engine, err := components.New(components.Options{Mirror: source.URL})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, registry: registry, engine: &fakeEngine{Engine: engine}, log: &strings.Builder{},
		cloud: &fakeCloud{clusters: map[string]bool{"westeurope/aks-1": true, "us-east-1/eks-1": true, "us-east-1/eks-2": true}, api: newFakeAPIServer(t)}}
	b.Service = New(Config{Ledger: ledger.New(d, ledger.Options{}), Clouds: b.cloud, Spaces: registry, Components: b.engine, Log: slog.New(slog.NewTextHandler(b.log, nil))})
	b.ctx = b.as("org1", access.Admin)
	return b
}

// as is a request of somebody with roles.
func (b *bench) as(org string, roles ...string) context.Context {
	return access.With(b.t.Context(), access.Of(org, "ana", roles...))
}

// addSpace registers a space as a job would.
func (b *bench) addSpace(org, name, spaceType string, p job.Provider, region, cluster, jobID string) string {
	b.t.Helper()
	config := map[string]string{"region": region}
	if cluster != "" {
		config["cluster"] = cluster
	}
	id, err := b.registry.Register(b.t.Context(), &configv1.Space{OrgId: org, Name: name, JobId: jobID, SubjectType: "cluster", SubjectId: job.NewID("clu"), Provider: string(p),
		Region: region, SpaceType: spaceType, CloudAccountId: "default", Config: config})
	if err != nil {
		b.t.Fatal(err)
	}
	return id
}

// set writes the engine's part of a job as a worker would have left it.
func (b *bench) set(id string, edit func(j *job.Job)) {
	b.t.Helper()
	if _, err := b.Ledger.Change(b.t.Context(), nil, "org1", id, func(j *job.Job, _ ledger.Standing) error {
		edit(j)
		return nil
	}); err != nil {
		b.t.Fatal(err)
	}
}

// install makes an installed component of a request.
func (b *bench) install(r InstallRequest, history ...job.ComponentRevision) *JobView {
	b.t.Helper()
	v, _, err := b.InstallComponent(b.ctx, r, "")
	if err != nil {
		b.t.Fatal(err)
	}
	b.set(v.ID, func(j *job.Job) {
		j.Status = job.Completed
		e, _ := b.engine.Catalogue().Get(r.Component)
		info := job.ComponentInfo{Name: r.Component, Release: b.engine.Catalogue().Place(job.ComponentSpec{Name: r.Component, Release: r.Release}).Release,
			Namespace: e.Namespace, Version: e.Version, Status: "ready", History: history}
		if len(history) > 0 {
			info.Revision = history[len(history)-1].Revision
		}
		j.Config.InfraConfig.Components = []job.ComponentInfo{info}
	})
	return b.get(v.ID)
}

// cluster makes a finished cluster job with its space.
func (b *bench) cluster(name string, p job.Provider, region, at string) (*JobView, string) {
	b.t.Helper()
	v, _, err := b.Create(b.ctx, CreateRequest{ResourceType: job.Cluster, Provider: p, Name: name, Region: region, Submit: true}, "")
	if err != nil {
		b.t.Fatal(err)
	}
	space := b.addSpace("org1", name, job.SpaceKubernetes, p, region, at, v.ID)
	b.set(v.ID, func(j *job.Job) {
		j.Status = job.Completed
		infra := &j.Config.InfraConfig
		infra.Cluster.Name, infra.Cluster.ID, infra.Cluster.Endpoint, infra.SpaceID, infra.NetworkID = at, "id-of-"+at, "https://"+at, space, "net-of-"+at
	})
	return b.get(v.ID), space
}

func (b *bench) get(id string) *JobView {
	b.t.Helper()
	v, err := b.Get(b.ctx, id)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// jobs is how many jobs there are, in all organisations that a test has.
func (b *bench) jobs() int {
	b.t.Helper()
	n := 0
	for _, org := range []string{"org1", "org2"} {
		all, _, err := b.List(b.as(org, access.Admin), ListQuery{Filter: ledger.Filter{Limit: 500}})
		if err != nil {
			b.t.Fatal(err)
		}
		n += len(all)
	}
	return n
}

// audited are the entries of the audit log, the oldest first.
func (b *bench) audited() []string {
	b.t.Helper()
	entries, _, err := audit.List(b.t.Context(), b.Ledger.DB(), "org1", audit.Filter{Limit: 500})
	if err != nil {
		b.t.Fatal(err)
	}
	slices.Reverse(entries)
	var out []string
	for _, e := range entries {
		detail, err := json.Marshal(e.Detail)
		if err != nil {
			b.t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%s %s %s %s %s", e.Actor, e.Action, e.Outcome, e.ResourceID, detail))
	}
	return out
}

// audits checks that the audit log's last entry has all of some texts.
func (b *bench) audits(texts ...string) {
	b.t.Helper()
	all := b.audited()
	if len(all) == 0 {
		b.t.Fatal("nothing is audited")
	}
	for _, text := range texts {
		if last := all[len(all)-1]; !strings.Contains(last, text) {
			b.t.Errorf("the audit log ends with %s; want %s in it", last, text)
		}
	}
}

// refused checks that an error is a whole refusal: a kind, words, a way out, and
// for each field its fix.
func (b *bench) refused(err error, kind Kind, fields ...string) *Refusal {
	b.t.Helper()
	var r *Refusal
	if !errors.As(err, &r) {
		b.t.Fatalf("not refused: %v", err)
	}
	var got []string
	for _, f := range r.Fields {
		got = append(got, f.Field)
		if f.Message == "" || f.Fix == "" {
			b.t.Errorf("a field without message or fix: %+v", f)
		}
	}
	if r.Kind != kind || r.Error() == "" || r.Hint == "" {
		b.t.Errorf("refused as %s: %q, hint %q; want %s", r.Kind, r.Error(), r.Hint, kind)
	}
	if fields != nil && !slices.Equal(got, fields) {
		b.t.Errorf("fields %q of %q; want %q", got, r.Error(), fields)
	}
	return r
}
