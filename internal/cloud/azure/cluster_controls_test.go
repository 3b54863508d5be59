package azure

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// defaultOn are the rows that every cluster's report has, but for those that only
// the Kubernetes API can answer.
var defaultOn = []string{"AKS-01", "AKS-03", "AKS-04", "AKS-05", "AKS-06", "AKS-07", "AKS-08", "AKS-09", "AKS-10", "AKS-11", "AKS-12", "AKS-13", "AKS-14", "AKS-15", "AKS-18", "AKS-20",
	"AKS-23", "AKS-24", "AKS-25", "AKS-26", "AKS-27", "AKS-28", "AKS-29", "AKS-30", "AKS-31", "AKS-33", "AKS-34", "AKS-35", "AKS-36", "AKS-37", "AKS-38", "AKS-39", "AKS-40", "AKS-41", "AKS-42", "AKS-46"}

// report is the job's report, read afresh.
func (g *rig) report() []job.Control {
	g.Helper()
	g.another()
	rows, err := g.p.Controls(pipeline.WithGate(g.Context(), pipeline.ReadOnly), g.run(pipeline.Apply))
	if err != nil {
		g.Fatal(err)
	}
	return rows
}

// unmet are the rows that do not hold, each once.
func unmet(rows []job.Control) []string {
	var out []string
	for _, c := range rows {
		if !c.Met && c.ID != "NETZ-13" { // the simulation's region has no watcher unless one was made
			out = append(out, c.ID)
		}
	}
	return slices.Compact(out)
}

// tamper changes what the simulation has of an object, and returns how to undo it.
func (g *rig) tamper(id string, change func(properties, top map[string]any)) (undo func()) {
	g.Helper()
	found := g.world.Objects(sim.ObjectFilter{ID: id, All: true})
	if len(found) != 1 {
		g.Fatalf("%s is there %d times", id, len(found))
	}
	text, err := json.Marshal(found[0].Data)
	if err != nil {
		g.Fatal(err)
	}
	var was, is struct {
		Properties map[string]any `json:"properties"`
		Top        map[string]any `json:"top"`
	}
	for _, v := range []any{&was, &is} {
		if err := json.Unmarshal(text, v); err != nil {
			g.Fatal(err)
		}
	}
	if is.Top == nil {
		is.Top = map[string]any{}
	}
	change(is.Properties, is.Top)
	set := func(properties, top map[string]any, beside map[string]any) {
		for k := range beside { // what is gone
			if _, ok := properties[k]; !ok {
				properties[k] = nil
			}
		}
		patch, err := json.Marshal(map[string]any{"properties": properties, "top": top})
		if err != nil {
			g.Fatal(err)
		}
		if _, err := g.world.PatchObject(id, patch); err != nil {
			g.Fatal(err)
		}
	}
	now := maps.Clone(is.Properties)
	set(is.Properties, is.Top, was.Properties)
	return func() { set(was.Properties, was.Top, now) }
}

// at sets a value by its path; nil takes it away.
func at(path string, v any) func(properties, top map[string]any) {
	return func(properties, _ map[string]any) { setAt(properties, path, v) }
}

func setAt(m map[string]any, path string, v any) {
	first, rest, more := strings.Cut(path, ".")
	if !more {
		m[first] = v
		return
	}
	in, ok := m[first].(map[string]any)
	if !ok {
		in = map[string]any{}
		m[first] = in
	}
	setAt(in, rest, v)
}

// flips are the controls turned over one by one, each on the cluster or on a pool.
var flips = []struct {
	id, on string
	change func(properties, top map[string]any)
	with   []string // further rows that fall with it
}{
	{"AKS-01", "", at("apiServerAccessProfile.authorizedIPRanges", nil), nil},
	{"AKS-01", "", at("apiServerAccessProfile.authorizedIPRanges", []any{"203.0.113.7/32", "0.0.0.0/0"}), nil},
	{"AKS-03", "", at("apiServerAccessProfile.disableRunCommand", false), nil},
	{"AKS-04", "", at("enableRBAC", false), nil},
	{"AKS-05", "", at("aadProfile.managed", false), nil},
	{"AKS-06", "", at("aadProfile.enableAzureRBAC", false), nil},
	{"AKS-07", "", at("disableLocalAccounts", false), nil},
	{"AKS-08", "", at("servicePrincipalProfile.clientId", theirAdmins), nil},
	{"AKS-09", "", at("oidcIssuerProfile.enabled", false), nil},
	{"AKS-09", "", at("securityProfile.workloadIdentity.enabled", false), nil},
	{"AKS-09", "", at("podIdentityProfile", map[string]any{"enabled": true}), nil},
	{"AKS-10", "", at("networkProfile.networkPolicy", "none"), nil},
	{"AKS-11", "", at("networkProfile.networkPlugin", "kubenet"), nil},
	{"AKS-12", "", at("networkProfile.loadBalancerSku", "basic"), nil},
	{"AKS-13", "workers", at("enableNodePublicIP", true), nil},
	{"AKS-14", "arm", at("enableEncryptionAtHost", false), nil},
	{"AKS-15", "workers", at("osDiskType", "Managed"), nil},
	{"AKS-18", "", at("addonProfiles.azurepolicy.enabled", false), nil},
	{"AKS-23", "", at("addonProfiles.azureKeyvaultSecretsProvider.enabled", false), []string{"AKS-24"}},
	{"AKS-24", "", at("addonProfiles.azureKeyvaultSecretsProvider.config.enableSecretRotation", "false"), nil},
	{"AKS-25", "", at("addonProfiles.httpApplicationRouting", map[string]any{"enabled": true}), nil},
	{"AKS-26", "", at("autoUpgradeProfile.upgradeChannel", "none"), nil},
	{"AKS-27", "", at("autoUpgradeProfile.nodeOSUpgradeChannel", "Unmanaged"), nil},
	{"AKS-29", "workers", at("currentOrchestratorVersion", "1.34.7"), nil},
	{"AKS-30", "workers", at("type", "AvailabilitySet"), nil},
	{"AKS-31", "workers", at("availabilityZones", []any{"1"}), nil},
	{"AKS-33", "arm", at("enableAutoScaling", false), nil},
	{"AKS-34", "system", at("nodeTaints", nil), nil},
	{"AKS-35", "system", at("maxPods", 30), nil},
	{"AKS-37", "", func(_, top map[string]any) { setAt(top, "sku.tier", "Free") }, nil},
	{"AKS-38", "", at("securityProfile.imageCleaner.enabled", false), nil},
	{"AKS-39", "workers", at("securityProfile.sshAccess", "LocalUser"), nil},
	{"AKS-40", "", at("storageProfile.fileCSIDriver.enabled", false), nil},
	{"AKS-46", "", at("dnsPrefix", "-shop"), nil},
}

// The report is complete and all of it holds; and each control that somebody turns
// over in the cloud makes its row fall, and no other.
func TestClusterControls(t *testing.T) {
	t.Parallel()
	g := clusters(t, clusterSpec)
	g.up()
	rows := g.report()
	for _, id := range defaultOn {
		i := slices.IndexFunc(rows, func(c job.Control) bool { return c.ID == id })
		if i < 0 {
			t.Errorf("there is no row %s", id)
		} else if c := rows[i]; c.Name == "" || c.Wanted == "" || c.Seen == "" || c.Source == "" || c.Unchecked {
			t.Errorf("row %+v", c)
		}
	}
	if bad := unmet(rows); len(bad) > 0 {
		t.Fatalf("not met: %v\n%v", bad, rows)
	}
	info := g.job.Config.InfraConfig.Cluster
	for _, f := range flips {
		id := info.ID
		if f.on != "" {
			id = info.Pool(f.on).ID
		}
		g.expectUnmet(f.id+" on "+f.on, append([]string{f.id}, f.with...), g.tamper(id, f.change))
	}
	if bad := unmet(g.report()); len(bad) > 0 {
		t.Errorf("afterwards not met: %v", bad)
	}
}

// expectUnmet reads the report while something is turned over, and turns it back.
func (g *rig) expectUnmet(what string, want []string, undo func()) {
	g.Helper()
	if got := unmet(g.report()); !slices.Equal(got, want) {
		g.Errorf("%s: not met are %v, want %v", what, got, want)
	}
	undo()
}

// What hangs on the cluster, or stands beside it, counts as much.
func TestControlsBesideTheCluster(t *testing.T) {
	t.Parallel()
	g := clusters(t, smallCluster)
	g.up()
	info, run := g.job.Config.InfraConfig.Cluster, g.run(pipeline.Verify)
	setting := g.p.diagnostic(run).id
	g.expectUnmet("the audit log without a category", []string{"AKS-20"}, g.tamper(setting, func(p, _ map[string]any) {
		p["logs"] = []any{map[string]any{"category": "guard", "enabled": true}}
	}))
	g.expectUnmet("a window that is gone", []string{"AKS-28"}, g.without(g.p.maintenanceID(run, windows[1].name)))
	g.expectUnmet("a version that is past its support", []string{"AKS-29"}, g.tampers(map[string]func(p, top map[string]any){
		info.ID: at("currentKubernetesVersion", "1.33.12"), info.Pool("workers").ID: at("currentOrchestratorVersion", "1.33.12"), info.Pool("system").ID: at("currentOrchestratorVersion", "1.33.12")}))
	g.expectUnmet("a subnet without a group", []string{"AKS-41", "NETZ-01", "NETZ-20"}, g.tamper(g.job.Config.InfraConfig.PrivateSubnetIDs[0], at("networkSecurityGroup", nil)))
	g.expectUnmet("pods in a small subnet", []string{"AKS-11", "AKS-36"}, g.tampers(map[string]func(p, top map[string]any){
		info.ID: at("networkProfile.networkPluginMode", nil), g.job.Config.InfraConfig.PrivateSubnetIDs[0]: at("addressPrefix", "10.40.0.0/24")}))
	identity := g.read(info.NodeRoleID)["properties"].(map[string]any)["principalId"]
	role := g.p.groupID(groupOf(g.job)) + "/providers/" + typeRole + "/" + theirAdmins
	g.put(role, map[string]any{"properties": map[string]any{"principalId": identity, "principalType": "ServicePrincipal", "roleDefinitionId": g.p.roleDefinition(roleNetwork)}})
	g.expectUnmet("a role for the nodes", []string{"AKS-42"}, func() { g.invoke("DELETE", role, nil) })
	group := managedGroup(g)
	g.put(group+"/securityRules/open", map[string]any{"properties": map[string]any{"priority": 200, "access": "Allow", "direction": "Inbound", "protocol": "Tcp",
		"sourceAddressPrefix": "10.0.0.0/8", "sourcePortRange": "*", "destinationAddressPrefix": "*", "destinationPortRange": "8080"}})
	g.expectUnmet("a rule in the managed group", []string{"AKS-41"}, func() { g.invoke("DELETE", group+"/securityRules/open", nil) })
	if bad := unmet(g.report()); len(bad) > 0 {
		t.Errorf("afterwards not met: %v", bad)
	}
}

func (g *rig) tampers(all map[string]func(p, top map[string]any)) (undo func()) {
	g.Helper()
	var undos []func()
	for _, id := range slices.Sorted(maps.Keys(all)) {
		undos = append(undos, g.tamper(id, all[id]))
	}
	return func() {
		for _, f := range undos {
			f()
		}
	}
}

// without removes something behind the job's back; undone, it is made again.
func (g *rig) without(id string) (undo func()) {
	g.Helper()
	was := g.read(id)
	g.invoke("DELETE", id, nil)
	return func() { g.put(id, map[string]any{"properties": was["properties"]}) }
}

// managedGroup is the security group that AKS manages.
func managedGroup(g *rig) string {
	g.Helper()
	for _, o := range g.world.Objects(sim.ObjectFilter{All: true}) {
		if o.Kind == lastName(typeGroupRules) && strings.Contains(o.ID, "/"+g.job.Config.InfraConfig.Cluster.NodeGroup+"/") {
			return o.ID
		}
	}
	g.Fatal("AKS manages no security group")
	return ""
}

// A private cluster is asked for by itself: reach decides.
func TestPrivateCluster(t *testing.T) {
	t.Parallel()
	g := clusters(t, smallCluster)
	g.p.reach = job.Reach{Mode: job.ReachDirect}
	before := g.world.Snapshot()
	g.up()
	if info := g.job.Config.InfraConfig.Cluster; info.Public || len(info.PublicCIDRs) > 0 {
		t.Errorf("learned %+v", info)
	}
	rows := g.report()
	if bad := unmet(rows); len(bad) > 0 {
		t.Errorf("not met: %v", bad)
	}
	if !slices.ContainsFunc(rows, func(c job.Control) bool { return c.ID == "AKS-02" && c.Met }) {
		t.Error("there is no row AKS-02")
	}
	if d := g.drift(); len(d) > 0 {
		t.Errorf("drift at once: %v", d)
	}
	g.expectUnmet("a public one", []string{"AKS-01", "AKS-02"}, g.tamper(g.job.Config.InfraConfig.Cluster.ID, at("apiServerAccessProfile.enablePrivateCluster", false)))
	g.down()
	g.equal(before)
}

// What may not be read is told, and is neither met nor a fault.
func TestUnreadControls(t *testing.T) {
	t.Parallel()
	g := clusters(t, smallCluster)
	g.up()
	for op, id := range map[string]string{"DiagnosticSettings_List": "AKS-20", "MaintenanceConfigurations_List": "AKS-28", "RoleAssignments_List": "AKS-42", "ManagedClusters_Get": "AKS-07"} {
		g.fault(sim.Fault{Kind: sim.FaultError, Operation: op, Code: "AuthorizationFailed", Status: 403, Count: -1, Message: "may not"})
		rows := g.report()
		i := slices.IndexFunc(rows, func(c job.Control) bool { return c.ID == id })
		if i < 0 || !rows[i].Unchecked || rows[i].Met || !strings.Contains(rows[i].Seen, "may not") {
			t.Errorf("%s: %s", op, fmt.Sprint(rows))
		}
		g.world.ClearFaults("")
	}
}
