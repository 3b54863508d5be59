package azure

import (
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/monitor/armmonitor"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/operationalinsights/armoperationalinsights/v2"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources/v4"
)

func (g *rig) workspaces() *armoperationalinsights.WorkspacesClient {
	cred, opt := g.arm()
	return must(armoperationalinsights.NewWorkspacesClient(DefaultSubscription, cred, opt))(g.t)
}

func (g *rig) diagnostics() *armmonitor.DiagnosticSettingsClient {
	cred, opt := g.arm()
	return must(armmonitor.NewDiagnosticSettingsClient(cred, opt))(g.t)
}

// workspace makes a workspace in the group rg.
func (g *rig) workspace(name string) armoperationalinsights.Workspace {
	g.t.Helper()
	p, err := g.workspaces().BeginCreateOrUpdate(g.ctx, "rg", name, armoperationalinsights.Workspace{Location: new("westus2"), Tags: map[string]*string{"owner": new("job_1")},
		Properties: &armoperationalinsights.WorkspaceProperties{RetentionInDays: new(int32(90))}}, nil)
	return done(g, p, err).Workspace
}

func TestWorkspace(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	made := g.workspace("logs")
	if *made.Properties.ProvisioningState != "Succeeded" || *made.Properties.RetentionInDays != 90 || made.Properties.CustomerID == nil || *made.Properties.SKU.Name != "pergb2018" || made.Etag == nil {
		t.Errorf("made %s", text(made))
	}
	remove := func(force bool) {
		t.Helper()
		p, err := g.workspaces().BeginDelete(g.ctx, "rg", "logs", &armoperationalinsights.WorkspacesClientBeginDeleteOptions{Force: &force})
		done(g, p, err)
		_, err = g.workspaces().Get(g.ctx, "rg", "logs", nil)
		refused(t, err, 404, "ResourceNotFound")
	}
	g.world.Lock()
	g.cloud.shelves[workspaceService].state.Extra = nil // as in a world that was taken up again
	g.world.Unlock()
	remove(false)
	if left := g.world.Residue("job_1"); len(left) != 0 {
		t.Errorf("left %v", left)
	}
	// The name is taken for two weeks: elsewhere it is refused, in its place the workspace comes back.
	must(g.groups().CreateOrUpdate(g.ctx, "other", armresources.ResourceGroup{Location: new("westus2")}, nil))(t)
	ask := armoperationalinsights.Workspace{Location: new("westus2")}
	_, err := g.workspaces().BeginCreateOrUpdate(g.ctx, "other", "logs", ask, nil)
	refused(t, err, 409, "Conflict")
	ask.Location = new("eastus")
	_, err = g.workspaces().BeginCreateOrUpdate(g.ctx, "rg", "logs", ask, nil)
	refused(t, err, 409, "Conflict")
	if back := g.workspace("logs"); *back.Properties.CustomerID != *made.Properties.CustomerID {
		t.Error("the workspace that came back is another one")
	}
	remove(true)
	if again := g.workspace("logs"); *again.Properties.CustomerID == *made.Properties.CustomerID {
		t.Error("a workspace that was deleted for good came back")
	}
	remove(false)
	g.world.Step(15 * 24 * time.Hour)
	p, err := g.workspaces().BeginCreateOrUpdate(g.ctx, "other", "logs", ask, nil)
	done(g, p, err)
	ask.Properties = &armoperationalinsights.WorkspaceProperties{RetentionInDays: new(int32(7))}
	_, err = g.workspaces().BeginCreateOrUpdate(g.ctx, "other", "logs", ask, nil)
	refused(t, err, 400, "InvalidParameter")
	_, err = g.workspaces().BeginCreateOrUpdate(g.ctx, "rg", "x", armoperationalinsights.Workspace{Location: new("westus2")}, nil)
	refused(t, err, 400, "InvalidResourceName")
	cred, opt := g.arm()
	keys := must(must(armoperationalinsights.NewSharedKeysClient(DefaultSubscription, cred, opt))(t).GetSharedKeys(g.ctx, "other", "logs", nil))(t)
	if keys.PrimarySharedKey == nil || *keys.PrimarySharedKey == *keys.SecondarySharedKey {
		t.Error("keys are missing")
	}
}

// setting sends categories of logs to a workspace.
func setting(workspace *string, categories ...string) armmonitor.DiagnosticSettingsResource {
	s := armmonitor.DiagnosticSettingsResource{Properties: &armmonitor.DiagnosticSettings{WorkspaceID: workspace}}
	for _, c := range categories {
		s.Properties.Logs = append(s.Properties.Logs, &armmonitor.LogSettings{Category: &c, Enabled: new(true)})
	}
	return s
}

// refuseSettings tries what a cluster that sends guard to a workspace is refused.
func (g *rig) refuseSettings(id string, workspace *string) {
	g.t.Helper()
	t, client := g.t, g.diagnostics()
	mixed := setting(workspace, "guard")
	mixed.Properties.Logs = append(mixed.Properties.Logs, &armmonitor.LogSettings{CategoryGroup: new("audit"), Enabled: new(true)})
	for name, c := range map[string]struct {
		s      armmonitor.DiagnosticSettingsResource
		status int
		code   string
	}{
		"no destination":        {setting(nil, "guard"), 400, "BadRequest"},
		"unknown workspace":     {setting(new(*workspace+"x"), "guard"), 400, "BadRequest"},
		"unknown category":      {setting(workspace, "AuditEvent"), 400, "BadRequest"},
		"nothing on":            {setting(workspace), 400, "BadRequest"},
		"category and group":    {mixed, 400, "BadRequest"},
		"a destination in use":  {setting(workspace, "guard"), 409, "Conflict"},
		"its ID in other words": {setting(new("/SUBSCRIPTIONS/"+(*workspace)[len("/subscriptions/"):]), "guard"), 409, "Conflict"},
	} {
		_, err := client.CreateOrUpdate(g.ctx, id, "second", c.s, nil)
		if err == nil {
			t.Errorf("%s is taken", name)
			continue
		}
		refused(t, err, c.status, c.code)
	}
}

func TestDiagnosticSettings(t *testing.T) {
	t.Parallel()
	g, _ := kubeRig(t)
	ws, other := g.workspace("logs"), g.workspace("more-logs")
	id := *g.cluster(clusterModel()).ID
	client := g.diagnostics()
	made := must(client.CreateOrUpdate(g.ctx, id, "audit", setting(ws.ID, "kube-audit-admin", "guard"), nil))(t)
	if len(made.Properties.Logs) != 2 || *made.Properties.WorkspaceID != *ws.ID || *made.Name != "audit" {
		t.Errorf("made %s", text(made))
	}
	g.refuseSettings(id, ws.ID)
	must(client.CreateOrUpdate(g.ctx, id, "second", setting(other.ID, "guard"), nil))(t)
	list := func() int {
		t.Helper()
		return len(must(client.NewListPager(id, nil).NextPage(g.ctx))(t).Value)
	}
	if n := list(); n != 2 {
		t.Errorf("%d settings", n)
	}
	must(client.Delete(g.ctx, id, "second", nil))(t)
	must(client.Delete(g.ctx, id, "second", nil))(t)
	_, err := client.Get(g.ctx, id, "second", nil)
	refused(t, err, 404, "ResourceNotFound")

	// They belong to the cluster's ID: unseen without it, and back with it.
	p, err := g.containers().NewManagedClustersClient().BeginDelete(g.ctx, "rg", "shop", nil)
	done(g, p, err)
	_, err = client.Get(g.ctx, id, "audit", nil)
	refused(t, err, 404, "ResourceNotFound")
	g.cluster(clusterModel())
	if n := list(); n != 1 {
		t.Errorf("%d settings of the new cluster", n)
	}
	_, err = client.CreateOrUpdate(g.ctx, groupPath("rg")+"routeTables/none", "audit", setting(ws.ID, "guard"), nil)
	refused(t, err, 404, "ResourceNotFound")
}
