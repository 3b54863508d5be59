package azure

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
	simazure "github.com/zopday/provisioner/internal/sim/azure"
)

func (g *rig) clusterRef() job.ClusterRef {
	ic := g.job.Config.InfraConfig
	return job.ClusterRef{Region: g.job.Region, Name: ic.Cluster.Name, ResourceGroup: ic.ResourceGroup}
}

// The API server is reached with a token of the directory, minted for it; the
// provisioner is let in by its role, and through a read-only gate too.
func TestKubeAccess(t *testing.T) {
	t.Parallel()
	g, kube := kubeClusters(t, smallCluster)
	g.up()
	ctx := pipeline.WithGate(t.Context(), pipeline.ReadOnly)
	for _, ref := range []job.ClusterRef{g.clusterRef(), {Region: g.job.Region, Name: g.job.Config.InfraConfig.Cluster.Name}} {
		access, err := g.p.KubeAccess(ctx, ref)
		if err != nil {
			t.Fatal(err)
		}
		token, err := access.Token(ctx)
		if err != nil || access.Server != "https://127.0.0.1:6443" || !strings.Contains(string(access.CA), "BEGIN CERTIFICATE") {
			t.Errorf("%+v, %v", access, err)
		}
		var claims struct {
			Audience string `json:"aud"`
		}
		text, _ := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
		if json.Unmarshal(text, &claims) != nil || !strings.HasPrefix(clusterScope, claims.Audience+"/") || claims.Audience == "" {
			t.Errorf("the token is for %q", claims.Audience)
		}
		g.world.Step(time.Minute) // a fresh role takes a while to count
		user, ok := kube.of(t, g.job.Config.InfraConfig.Cluster.ID).Authenticate(token)
		if !ok || !slices.Contains(user.Groups, "system:masters") {
			t.Errorf("it is taken for %+v, %v", user, ok)
		}
	}
	if _, err := g.p.KubeAccess(ctx, job.ClusterRef{Region: g.job.Region, Name: "nowhere", ResourceGroup: g.job.Config.InfraConfig.ResourceGroup}); !pipeline.Is(err, pipeline.NotFound) {
		t.Errorf("a cluster that is not there: %v", err)
	}
	if _, err := g.p.KubeAccess(ctx, job.ClusterRef{Region: g.job.Region, Name: "nowhere"}); !pipeline.Is(err, pipeline.NotFound) {
		t.Errorf("a cluster that is nowhere: %v", err)
	}
	// A cluster that does not use the directory hands out a token of its own.
	undo := g.tamper(g.job.Config.InfraConfig.Cluster.ID, func(p, _ map[string]any) { p["aadProfile"], p["disableLocalAccounts"] = nil, false })
	access, err := g.p.KubeAccess(ctx, g.clusterRef())
	if err != nil {
		t.Fatal(err)
	}
	token, err := access.Token(ctx)
	if user, ok := kube.of(t, g.job.Config.InfraConfig.Cluster.ID).Authenticate(token); err != nil || !ok || !slices.Contains(user.Groups, "system:masters") {
		t.Errorf("a local account: %+v, %v, %v", user, ok, err)
	}
	undo()
	// No token without an authority.
	g.p.credential = refusing{}
	if access, err = g.p.KubeAccess(ctx, g.clusterRef()); err == nil {
		if _, err = access.Token(ctx); !pipeline.Is(err, pipeline.Expired) || !g.p.refused.Load() {
			t.Errorf("without credentials: %v", err)
		}
	}
}

// rolesOf are the roles that a principal has on the job's cluster.
func (g *rig) rolesOf(who string) []string {
	g.Helper()
	var out []string
	for _, o := range g.world.Objects(sim.ObjectFilter{Service: "authorization"}) {
		text, err := json.Marshal(o.Data)
		if err != nil {
			g.Fatal(err)
		}
		if at := strings.ToLower(o.ID); strings.HasPrefix(at, strings.ToLower(g.job.Config.InfraConfig.Cluster.ID)+"/") && strings.Contains(string(text), who) {
			for level, role := range levelRoles {
				if strings.Contains(string(text), role) {
					out = append(out, string(level))
				}
			}
		}
	}
	slices.Sort(out)
	return out
}

// Access is a role on the cluster: one level at a time, granted and revoked as often
// as one likes, and what others gave stays.
func TestGrantAccess(t *testing.T) {
	t.Parallel()
	g := clusters(t, smallCluster)
	before := g.world.Snapshot()
	g.up()
	ctx, ref := anything(t.Context()), g.clusterRef()
	for range 2 {
		for _, level := range []cloud.AccessLevel{cloud.AccessView, cloud.AccessAdmin, cloud.AccessEdit} {
			if err := g.p.GrantAccess(ctx, ref, cloud.AccessGrant{Principal: simClient, Level: level}); err != nil {
				t.Fatal(err)
			}
			if got := g.rolesOf(simClient); !slices.Equal(got, []string{string(level)}) {
				t.Errorf("after %s: %v", level, got)
			}
		}
	}
	for range 2 {
		if err := g.p.RevokeAccess(ctx, ref, simClient); err != nil {
			t.Fatal(err)
		}
	}
	if got := g.rolesOf(simClient); len(got) > 0 {
		t.Errorf("afterwards: %v", got)
	}
	// The provisioner has its own role already, under another name: nothing to do, and revoking leaves that.
	me, err := g.p.whoami(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{g.p.GrantAccess(ctx, ref, cloud.AccessGrant{Level: cloud.AccessAdmin}), g.p.RevokeAccess(ctx, ref, "")} {
		if err != nil {
			t.Error(err)
		}
	}
	if got := g.rolesOf(me.id); !slices.Equal(got, []string{"admin"}) {
		t.Errorf("the provisioner has %v", got)
	}
	var fatal *pipeline.FatalError
	if err := g.p.GrantAccess(ctx, ref, cloud.AccessGrant{Principal: simClient, Level: "root"}); !errors.As(err, &fatal) {
		t.Errorf("a level that is none: %v", err)
	}
	undo := g.tamper(g.job.Config.InfraConfig.Cluster.ID, at("aadProfile.enableAzureRBAC", false))
	if err := g.p.GrantAccess(ctx, ref, cloud.AccessGrant{Principal: simClient, Level: cloud.AccessView}); !errors.As(err, &fatal) || fatal.Problem.Code != "no-azure-rbac" {
		t.Errorf("a cluster that does not go by roles: %v", err)
	}
	undo()
	g.down()
	g.equal(before)
}

// simClient is a principal that the simulated directory has: somebody else.
var simClient = simazure.DefaultClients()[1].ObjectID
