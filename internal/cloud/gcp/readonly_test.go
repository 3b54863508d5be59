package gcp

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
	"github.com/zopday/provisioner/internal/sim/gcp/schema"
)

// wireFunc is a wire that is a function.
type wireFunc func(*http.Request) (*http.Response, error)

func (f wireFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var pathParam = regexp.MustCompile(`\{\+?[a-zA-Z]+\}`)

// readOnly is an account that may only look.
var readOnly = cloud.Account{ID: "ca_look", OrgID: "org_1", Provider: job.GCP, Method: cloud.MethodAmbient, ReadOnly: true}

// at another account: a provider that speaks to the rig's cloud as another one.
func (g *rig) as(a cloud.Account, token string) *Provider {
	g.Helper()
	o := Options{Pace: pipeline.Pace(g.world.Options().TimeScale), LookupNS: nowhere, LoadConfig: Static(g.url, testProject, token)}
	p, err := New(o).provider(g.Context(), a, testRegion)
	if err != nil {
		g.Fatal(err)
	}
	return p
}

// Of every method that is simulated, a read-only account sends those alone that
// are known to change nothing.
func TestReadOnlyAccount(t *testing.T) {
	t.Parallel()
	// What Google sends by POST or PUT although it only asks.
	asks := []string{
		"cloudresourcemanager projects.getIamPolicy", "cloudresourcemanager projects.testIamPermissions", "compute backendServices.getHealth",
		"compute regionBackendServices.getHealth", "compute instanceGroupManagers.listManagedInstances", "compute regionInstanceGroupManagers.listManagedInstances",
		"compute instanceGroups.listInstances", "compute regionInstanceGroups.listInstances",
	}
	reached, tried, seen := false, 0, map[string]bool{}
	wire := wireFunc(func(*http.Request) (*http.Response, error) { reached = true; return nil, errors.New("reached") })
	for _, api := range schema.APIs() {
		service := api.Name
		guard := guarded(service, readOnly, testProject, wire)
		for _, m := range api.Methods {
			path := api.Base + pathParam.ReplaceAllStringFunc(m.Path, func(p string) string {
				pattern := strings.Trim(m.Params[strings.Trim(p, "{+}")].Pattern, "^$")
				if !strings.Contains(p, "+") || pattern == "" {
					return "x"
				}
				return strings.ReplaceAll(pattern, "[^/]+", "x")
			})
			req, err := http.NewRequestWithContext(t.Context(), m.HTTP, "http://localhost/"+strings.TrimPrefix(path, "/"), http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			reached = false
			_, err = guard.RoundTrip(req)
			id := service + " " + m.ID
			may := m.HTTP == http.MethodGet || slices.Contains(asks, id)
			if seen[id] = reached; reached && !may {
				t.Errorf("%s %s was sent", m.HTTP, id)
			}
			var fatal *pipeline.FatalError
			if !may {
				tried++
				if !errors.As(err, &fatal) || fatal.Problem.Code != "read-only-account" || !strings.Contains(fatal.Problem.Message, readOnly.ID) {
					t.Errorf("%s: %v", id, err)
				}
			}
		}
	}
	if tried < 150 {
		t.Errorf("%d methods that change something are too few to prove anything", tried)
	}
	for _, id := range asks {
		if !seen[id] {
			t.Errorf("%s is refused, or not simulated", id)
		}
	}
}

// What passes the gates of a job still does not leave a read-only account, and the
// error says whose account it is; statements that only read do.
func TestReadOnlyAccountOverGates(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreate, `{}`)
	g.p = g.as(readOnly, testToken)
	since := g.mark()
	for _, f := range g.ups()[:1] {
		err := g.try(false, f)
		if d := pipeline.Judge(err, 0); d.Action != pipeline.Stop || d.Problem.Code != "read-only-account" || d.Problem.Field != "cloudAccountId" || !strings.Contains(d.Problem.Message, readOnly.ID) {
			t.Errorf("the job ends with %+v (%v)", d, err)
		}
	}
	if _, changes := g.calls(since); sum(changes) > 0 {
		t.Errorf("changes arrived: %v", changes)
	}
	for statement, want := range map[string]bool{"SELECT 1": true, "DROP DATABASE shop": false, "SELECT pg_terminate_backend(1)": false} {
		a := sqlAccess{p: g.p, instance: "legacy", admin: "a", secret: "s", engine: job.Postgres}
		_, err := a.query(anything(t.Context()), "postgres", statement)
		if refused := fatalCode(err) == "read-only-account"; refused == want {
			t.Errorf("%s: %v", statement, err)
		}
	}
}

// A plan and a verify of each family, and the adoption of what is there, need no
// client that can change anything.
func TestReadOnlyAccountLooks(t *testing.T) {
	t.Parallel()
	t.Run("network", func(t *testing.T) {
		t.Parallel()
		g := newRig(t, sim.Options{}, job.ModeCreate, `{"network":{"zones":2}}`)
		if bad := g.check(); len(bad) > 0 {
			t.Fatalf("checks: %+v", bad)
		}
		g.up()
		g.p = g.as(readOnly, testToken)
		if d := g.drift(); len(d) > 0 {
			t.Errorf("drift: %v", d)
		}
		// That nothing can be made with it is all that there is to say.
		if bad := g.check(); len(bad) != 1 || bad[0].Status != cloud.CheckWarning || !strings.Contains(bad[0].Message, readOnly.ID+" is read-only") {
			t.Errorf("checks: %+v", bad)
		}
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		g := newCluster(t, sim.Options{}, job.ModeCreate, oneClusterSpec)
		g.up()
		g.p = g.as(readOnly, testToken)
		if d := g.differs(); len(d) > 0 {
			t.Errorf("drift: %v", d)
		}
		for id, c := range g.report() {
			if !c.Met {
				t.Errorf("%s: wanted %s, seen %s", id, c.Wanted, c.Seen)
			}
		}
	})
	t.Run("vm", func(t *testing.T) {
		t.Parallel()
		g := newVMs(t, sim.Options{}, fixedLBSpec)
		g.create()
		g.p = g.as(readOnly, testToken)
		g.asAsked()
	})
	for family, spec := range map[job.ResourceType]string{job.Datastore: postgresSpec, job.Cache: valkeySpec} {
		t.Run(string(family), func(t *testing.T) {
			t.Parallel()
			g := newData(t, family, job.ModeCreate, spec)
			g.up()
			g.p = g.as(readOnly, testToken)
			if d := g.differs(); len(d) > 0 {
				t.Errorf("drift: %v", d)
			}
			for _, f := range g.findings() {
				if f.Status == cloud.CheckFails {
					t.Errorf("check: %+v", f)
				}
			}
		})
	}
	t.Run("adopt", func(t *testing.T) {
		t.Parallel()
		g := newData(t, job.Datastore, job.ModeAdopt, `{"adopt":{"name":"legacy"}}`)
		g.theirs("legacy", 0)
		g.p = g.as(readOnly, testToken)
		if err := g.p.AdoptDatastore(anything(context.WithoutCancel(t.Context())), g.run(pipeline.Apply)); err != nil {
			t.Error(err)
		}
	})
}
