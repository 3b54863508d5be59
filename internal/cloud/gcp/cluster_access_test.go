package gcp

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
	simgcp "github.com/zopday/provisioner/internal/sim/gcp"
	"github.com/zopday/provisioner/internal/sim/kube"
)

func (g clusterRig) ref() job.ClusterRef {
	return job.ClusterRef{Region: testRegion, Name: g.cluster().Name}
}

// The control plane is reached as the provisioner's reach says, and is open to no
// more than that and what the spec names.
func TestClusterReach(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, reach, endpoint, spec string
		dns, external               bool
		networks                    string
	}{
		{"over the internet", "", ".gke.goog", oneClusterSpec, true, false, "on: none besides its own"},
		{"from ranges of its own", "public:198.51.100.0/24", ".gke.goog", oneClusterSpec, true, false, "on: none besides its own"},
		{"through a tunnel", "tunnel", ".gke.goog", oneClusterSpec, true, false, "on: none besides its own"},
		{"from inside", "direct", "https://10.", oneClusterSpec, false, false, "on: none besides its own"},
		{"with clients of the user's", "", ".gke.goog", `{"endpoint":{"publicCidrs":["203.0.113.0/24"]},"nodePools":[{"name":"workers"}],"network":{"zones":2}}`, true, true, "on: 203.0.113.0/24"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newCluster(t, sim.Options{}, job.ModeCreate, c.spec)
			reach, err := job.ParseReach(c.reach)
			if err != nil {
				t.Fatal(err)
			}
			g.p.reach = reach
			g.up()
			got, err := send(t.Context(), g.p.container.Projects.Locations.Clusters.Get(g.cluster().ID))
			if err != nil {
				t.Fatal(err)
			}
			if dns := dnsEndpoint(got) != ""; dns != c.dns || publicEndpointText(got) != onOff(c.external) || authorizedText(got) != c.networks {
				t.Errorf("DNS endpoint open %v, external address %s, networks %s", dns, publicEndpointText(got), authorizedText(got))
			}
			access, err := g.p.KubeAccess(t.Context(), g.ref())
			if err != nil || !strings.Contains(access.Server, c.endpoint) || access.Server != g.cluster().Endpoint {
				t.Errorf("reached at %s (recorded %s): %v", access.Server, g.cluster().Endpoint, err)
			}
			if byName := access.CA == nil; byName != c.dns {
				t.Errorf("a certificate of the cluster's own authority: %v", !byName)
			}
			if token, err := access.Token(t.Context()); err != nil || token != testToken {
				t.Errorf("token %q, %v", token, err)
			}
			for id, row := range g.report() {
				if !row.Met {
					t.Errorf("%s: %+v", id, row)
				}
			}
		})
	}
}

// An API server answers with what KubeAccess says, and nobody else with less: a real
// one, where it is built.
func TestKubeAccess(t *testing.T) {
	t.Parallel()
	binary, err := kube.Binary()
	if err != nil {
		t.Fatal(err) // make kube builds it
	}
	servers, err := kube.New(kube.Options{Binary: binary, Bare: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(servers.Shutdown)
	w := sim.New(sim.Options{TimeScale: quick})
	front := simgcp.New(w, simgcp.Options{Kubernetes: servers})
	s := httptest.NewServer(front)
	t.Cleanup(s.Close)
	g := newCluster(t, sim.Options{}, job.ModeCreate, oneClusterSpec)
	g.world, g.cloud = w, front
	g.p = at(t, s.URL, Options{Roots: servers.CA(), LookupNS: nowhere})
	w.Clock.Stop()
	g.up()
	access, err := g.p.KubeAccess(t.Context(), g.ref())
	if err != nil {
		t.Fatal(err)
	}
	token, err := access.Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(access.Roots) || access.CA != nil {
		t.Fatal("no roots for the DNS endpoint")
	}
	ask := func(path, token string, roots *x509.CertPool) (int, string, error) {
		client := &http.Client{Timeout: 90 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
		defer client.CloseIdleConnections()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, access.Server+path, nil)
		if err != nil {
			return 0, "", err
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(req)
		if err != nil {
			return 0, "", err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return resp.StatusCode, string(body), err
	}
	if status, body, err := ask("/api/v1/nodes", token, roots); err != nil || status != http.StatusOK || !strings.Contains(body, `"NodeList"`) {
		t.Errorf("nodes: %d %.200s, %v", status, body, err)
	}
	if status, _, err := ask("/api/v1/nodes", "ya29.nobody", roots); err != nil || status != http.StatusUnauthorized {
		t.Errorf("a stranger: %d, %v", status, err)
	}
	if _, _, err := ask("/api/v1/nodes", token, x509.NewCertPool()); err == nil {
		t.Error("a certificate was taken that nobody vouches for")
	}
	g.down()
}

// A cluster that does not let its users come by any way is told with what to do.
func TestUnreachableCluster(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, oneClusterSpec)
	g.up()
	g.patch(g.cluster().ID, `{"controlPlaneEndpointsConfig":{"dnsEndpointConfig":{"allowExternalTraffic":false}}}`)
	if _, err := g.p.KubeAccess(t.Context(), g.ref()); fatalCode(err) != "unreachable" {
		t.Errorf("the verdict is %v", err)
	}
	if _, err := g.p.KubeAccess(t.Context(), job.ClusterRef{Region: testRegion, Name: "nowhere"}); !pipeline.Is(err, pipeline.NotFound) {
		t.Errorf("a cluster that is not there: %v", err)
	}
}

// Somebody is let into one cluster, at one level, and out again; nobody else's roles
// change. With the cluster all of that goes.
func TestClusterGrants(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, twoPoolsSpec)
	before := g.world.Snapshot()
	g.up()
	ctx := anything(t.Context())
	const ann = "user:ann@example.com"
	roles := func() []string {
		policy, err := g.p.readPolicy(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, b := range policy.Bindings {
			if slices.Contains(b.Members, ann) {
				if b.Condition == nil || !strings.Contains(b.Condition.Expression, g.cluster().ID) {
					t.Errorf("%s holds for more than the cluster", b.Role)
				}
				out = append(out, b.Role)
			}
		}
		return out
	}
	for range 2 { // repeated
		for level, role := range accessRoles {
			if err := g.p.GrantAccess(ctx, g.ref(), cloud.AccessGrant{Principal: ann, Level: level}); err != nil {
				t.Fatal(err)
			}
			if got := roles(); !slices.Equal(got, []string{role}) {
				t.Errorf("as %s she has %v", level, got)
			}
		}
	}
	for range 2 {
		if err := g.p.RevokeAccess(ctx, g.ref(), ann); err != nil {
			t.Fatal(err)
		}
	}
	if got := roles(); len(got) > 0 {
		t.Errorf("she has %v", got)
	}
	if err := g.p.RevokeAccess(ctx, g.ref(), ""); fatalCode(err) != "invalid" {
		t.Errorf("the provisioner's own access, which is no grant: %v", err)
	}
	for principal, level := range map[string]cloud.AccessLevel{"allUsers": cloud.AccessView, "ann": cloud.AccessView, ann: "root"} {
		if err := g.p.GrantAccess(ctx, g.ref(), cloud.AccessGrant{Principal: principal, Level: level}); fatalCode(err) != "invalid" {
			t.Errorf("%s as %s: %v", principal, level, err)
		}
	}
	if err := g.p.GrantAccess(ctx, job.ClusterRef{Region: testRegion, Name: "nowhere"}, cloud.AccessGrant{Principal: ann, Level: cloud.AccessView}); !pipeline.Is(err, pipeline.NotFound) {
		t.Errorf("a cluster that is not there: %v", err)
	}
	if err := g.p.GrantAccess(ctx, g.ref(), cloud.AccessGrant{Level: cloud.AccessAdmin}); err != nil {
		t.Errorf("the provisioner itself: %v", err)
	}
	if err := g.p.GrantAccess(ctx, g.ref(), cloud.AccessGrant{Principal: ann, Level: cloud.AccessEdit}); err != nil {
		t.Fatal(err)
	}
	g.down()
	g.equal(before)
	if e := g.event("access.revoked"); !strings.Contains(e, ann) {
		t.Errorf("the event says %q", e)
	}
}

// Adopting reads, notes what does not meet the defaults, and never changes anything.
func TestAdoptCluster(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeAdopt, `{"adopt":{"name":"theirs"}}`)
	g.hub(testProject, "10.80.0.0/16")
	id := g.theirCluster("theirs")
	readOnly := pipeline.WithGate(t.Context(), pipeline.ReadOnly)
	before, since := g.world.Snapshot(), g.mark()
	for _, f := range g.findings() {
		if f.Status == cloud.CheckFails {
			t.Errorf("check: %+v", f)
		}
	}
	steps := []step{g.p.AdoptCluster, g.p.RemoveCluster, g.p.RemoveIdentity, g.p.RemoveNetwork}
	for _, f := range steps {
		if err := f(readOnly, g.run(pipeline.Apply)); err != nil {
			t.Fatal(err)
		}
	}
	info := g.cluster()
	if info.ID != id || info.Version == "" || len(info.NodePools) != 1 || info.NodePools[0].InstanceType == "" || info.NodePools[0].Max != 1 || info.PodCIDR == "" {
		t.Errorf("what was learned: %+v", info)
	}
	notes := strings.Join(info.RiskNotes, "\n")
	for _, want := range []string{"GKE-01", "GKE-02", "GKE-03", "GKE-06", "GKE-08", "GKE-12", "GKE-13", "GKE-14", "GKE-15", "GKE-29", "GKE-30"} {
		if !strings.Contains(notes, want+":") {
			t.Errorf("no note is about %s:\n%s", want, notes)
		}
	}
	if _, changes := g.calls(since); sum(changes) > 0 {
		t.Errorf("changed %v", changes)
	}
	g.equal(before)
	drift := func() []pipeline.Drift {
		r := g.run(pipeline.Verify)
		if err := g.p.AdoptCluster(readOnly, r); err != nil {
			t.Fatal(err)
		}
		return r.Drift()
	}
	if d := drift(); len(d) > 0 {
		t.Errorf("drift at once: %v", d)
	}
	g.place("container", poolCreate, map[string]any{"parent": id, "body": map[string]any{"nodePool": map[string]any{"name": "more", "initialNodeCount": 1}}})
	if d := drift(); len(d) != 1 || d[0].Key != "more" {
		t.Errorf("drift: %v", d)
	}
	if _, err := g.world.RemoveObject(id); err != nil {
		t.Fatal(err)
	}
	if d := drift(); len(d) != 1 || d[0].Attr != "exists" {
		t.Errorf("drift: %v", d)
	}
}

// What another job owns is not adopted.
func TestAdoptOwnedCluster(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, oneClusterSpec)
	g.up()
	name := g.cluster().Name
	g.job = &job.Job{ID: job.NewID("job"), Provider: job.GCP, ResourceType: job.Cluster, Mode: job.ModeAdopt, Region: testRegion, Config: job.Config{Spec: []byte(`{"adopt":{"name":"` + name + `"}}`)}}
	g.another()
	if err := g.p.AdoptCluster(t.Context(), g.run(pipeline.Apply)); fatalCode(err) != "owned" {
		t.Errorf("the verdict is %v", err)
	}
}
