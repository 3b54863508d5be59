package azure

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	simazure "github.com/zopday/provisioner/internal/sim/azure"
)

// A cluster in somebody's network: nothing of it is written, and all of it is there
// afterwards, with its security group and its NAT gateway (failure kinds F1, F2).
func TestClusterInANetworkOfOthers(t *testing.T) {
	for name, named := range map[string]bool{"in the subnet that is named": true, "in the only one that will do": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := network(t, `{"network":{"subnets":["public","private"]}}`)
			g.p.reach = fromHere
			g.up()
			made := g.job.Config.InfraConfig
			subnets := ""
			if named {
				subnets = fmt.Sprintf(`,"subnetIds":[%q]`, path.Base(made.PrivateSubnetIDs[0]))
			}
			g.next(job.Cluster, job.ModeCreateInExisting, fmt.Sprintf(`{"nodePools":[{"name":"workers","min":1,"desired":1,"max":2}],"existing":{"networkId":%q%s}}`, made.NetworkID, subnets))
			before, since := g.world.Snapshot(), g.mark()
			g.up()
			g.foreignUntouched(since)
			ic := g.job.Config.InfraConfig
			if !slices.Equal(ic.EgressIPs, made.EgressIPs) || len(ic.PrivateSubnetIDs) != 1 || !same(ic.PrivateSubnetIDs[0], made.PrivateSubnetIDs[0]) {
				t.Errorf("learned %+v", ic)
			}
			if got := rangesSeen(g); !slices.Contains(got, made.EgressIPs[0]+"/32") || !slices.Contains(got, "203.0.113.7/32") {
				t.Errorf("the API server lets in %v", got)
			}
			if d := g.drift(); len(d) > 0 {
				t.Errorf("drift at once: %v", d)
			}
			if bad := unmet(g.report()); len(bad) > 0 {
				t.Errorf("not met: %v", bad)
			}
			since = g.mark()
			g.down()
			g.foreignUntouched(since)
			g.equal(before)
		})
	}
}

// foreignUntouched fails on every call that changed a part of somebody's network.
func (g *rig) foreignUntouched(since int) {
	g.Helper()
	_, changes := g.calls(since)
	for op := range changes {
		for _, kind := range []string{"Subnets", "VirtualNetworks", "NatGateways", "NetworkSecurityGroups", "SecurityRules", "RouteTables", "PublicIPAddresses"} {
			if strings.HasPrefix(op, kind) {
				g.Errorf("%s: the network of others was written", op)
			}
		}
	}
}

// rangesSeen are the ranges that the cloud says may reach the API server.
func rangesSeen(g *rig) []string {
	g.Helper()
	access := g.read(g.job.Config.InfraConfig.Cluster.ID)["properties"].(map[string]any)["apiServerAccessProfile"].(map[string]any)
	var out []string
	for _, r := range access["authorizedIPRanges"].([]any) {
		out = append(out, fmt.Sprint(r))
	}
	return out
}

// routed makes somebody's network whose subnet gets out through a route table, and
// returns the subnet's ID.
func (g *rig) routed(prefix, hop string) string {
	g.Helper()
	vnet := g.theirVNet("hub", "10.90.0.0/16", "10.90.1.0/24")
	table, group := theirs+"/providers/Microsoft.Network/routeTables/out", theirs+"/providers/"+typeGroupRules+"/nodes"
	g.put(table, map[string]any{"location": "eastus2", "properties": map[string]any{"routes": []any{
		map[string]any{"name": "out", "properties": map[string]any{"addressPrefix": prefix, "nextHopType": hop, "nextHopIpAddress": "10.90.9.4"}}}}})
	g.put(group, map[string]any{"location": "eastus2"})
	subnet := vnet + "/subnets/nodes"
	g.put(subnet, map[string]any{"properties": map[string]any{"addressPrefix": "10.90.16.0/20", "defaultOutboundAccess": false,
		"routeTable": map[string]any{"id": table}, "networkSecurityGroup": map[string]any{"id": group}}})
	g.world.Step(5 * time.Minute)
	return subnet
}

// Nodes that get out through a firewall: the route table that leads there stays.
func TestClusterBehindARouteTable(t *testing.T) {
	t.Parallel()
	g := clustersIn(t, job.ModeCreateInExisting, `{"nodePools":[{"name":"workers","min":1,"desired":1,"max":2}],"endpoint":{"publicCidrs":["198.51.100.8/32"]},"existing":{"networkId":"`+theirs+"/providers/"+typeVNet+`/hub"}}`)
	subnet := g.routed("0.0.0.0/0", "VirtualAppliance")
	before := g.world.Snapshot()
	g.up()
	g.foreignUntouched(0)
	if n := g.read(g.job.Config.InfraConfig.Cluster.ID)["properties"].(map[string]any)["networkProfile"].(map[string]any); n["outboundType"] != "userDefinedRouting" {
		t.Errorf("it gets out by %v", n["outboundType"])
	}
	if ids := g.job.Config.InfraConfig.PrivateSubnetIDs; len(ids) != 1 || !same(ids[0], subnet) {
		t.Errorf("the nodes are in %v", ids)
	}
	g.down()
	g.equal(before)
}

// An adoption reads, says what does not meet the defaults, and changes nothing.
func TestAdoptedClusterIsOnlyRead(t *testing.T) {
	t.Parallel()
	g := clusters(t, smallCluster)
	g.up()
	id := g.job.Config.InfraConfig.Cluster.ID
	g.put(theirs, map[string]any{"location": "eastus2"})
	legacy := theirs + "/providers/" + typeCluster + "/legacy"
	g.put(legacy, map[string]any{"location": "eastus2", "identity": map[string]any{"type": "SystemAssigned"}, "properties": map[string]any{"dnsPrefix": "legacy",
		"agentPoolProfiles": []any{map[string]any{"name": "pool1", "mode": "System", "count": 2, "vmSize": "Standard_D2ds_v5"}}}})
	for _, c := range []struct {
		spec    string
		risks   []string
		without []string
	}{
		{`{"adopt":{"name":"legacy"}}`, []string{"AKS-01", "AKS-07", "AKS-20", "AKS-33", "AKS-37", "AKS-39"}, []string{"AKS-04", "AKS-12", "AKS-30"}},
		{`{"adopt":{"ids":["` + id + `"]}}`, nil, []string{"AKS"}},
	} {
		g.next(job.Cluster, job.ModeAdopt, c.spec)
		before, since := g.world.Snapshot(), g.mark()
		r := g.run(pipeline.Apply)
		ctx := pipeline.WithGate(t.Context(), pipeline.ReadOnly)
		for _, f := range []step{g.check, g.p.AdoptCluster} {
			if err := f(ctx, r); err != nil {
				t.Fatal(err)
			}
		}
		info := g.job.Config.InfraConfig.Cluster
		if info.ID == "" || info.Endpoint == "" || info.Version != "1.35" || info.SupportUntil == "" || !info.Public || info.NodeGroup == "" || len(info.NodePools) == 0 || g.job.Config.InfraConfig.ResourceGroup == "" {
			t.Errorf("learned %+v", info)
		}
		for _, n := range info.NodePools {
			if n.Arch != "amd64" || n.Desired < 1 || n.InstanceType == "" {
				t.Errorf("pool %+v", n)
			}
		}
		for _, id := range append(slices.Clone(c.risks), c.without...) {
			noted := slices.ContainsFunc(info.RiskNotes, func(s string) bool { return strings.HasPrefix(s, id) })
			if noted != slices.Contains(c.risks, id) {
				t.Errorf("%s is noted: %v: %v", id, noted, info.RiskNotes)
			}
		}
		if _, err := g.p.KubeAccess(ctx, g.clusterRef()); err != nil {
			t.Error(err)
		}
		if rows := g.report(); slices.ContainsFunc(rows, func(c job.Control) bool { return strings.HasPrefix(c.ID, "AKS") }) {
			t.Errorf("an adoption is judged by %v", rows)
		}
		if err := g.try(true, g.p.RemoveCluster); err != nil {
			t.Error(err)
		}
		if _, changes := g.calls(since); sum(changes) > 0 {
			t.Errorf("an adoption changed %v", changes)
		}
		g.equal(before)
	}
}

// What an adopt job points at has to be there, and once.
func TestAdoptionOfNothing(t *testing.T) {
	t.Parallel()
	g := clustersIn(t, job.ModeAdopt, `{"adopt":{"name":"legacy"}}`)
	if f := fatal(g.try(false, g.check)); f == nil || !strings.Contains(f.Problem.Message, "adopt.name") {
		t.Errorf("the verdict is %v", f)
	}
	if f := fatal(g.try(false, g.p.AdoptCluster)); f == nil || f.Problem.Code != "not-found" || f.Problem.Field != "config.spec.adopt.name" {
		t.Errorf("the verdict is %v", f)
	}
	for _, group := range []string{"theirs", "others"} {
		at := strings.TrimSuffix(theirs, "theirs") + group
		g.put(at, map[string]any{"location": "eastus2"})
		g.put(at+"/providers/"+typeCluster+"/legacy", map[string]any{"location": "eastus2", "identity": map[string]any{"type": "SystemAssigned"}, "properties": map[string]any{"dnsPrefix": "legacy", "nodeResourceGroup": "nodes-" + group,
			"agentPoolProfiles": []any{map[string]any{"name": "pool1", "mode": "System", "count": 1, "vmSize": "Standard_D2ds_v5"}}}})
	}
	g.world.Step(5 * time.Minute)
	if f := fatal(g.try(false, g.p.AdoptCluster)); f == nil || f.Problem.Code != "ambiguous" {
		t.Errorf("the verdict is %v", f)
	}
}

// The examples say what works: each is furnished as its sandbox file says, and comes
// and goes.
func TestClusterExamples(t *testing.T) {
	for _, name := range []string{"cluster-azure", "cluster-azure-existing", "cluster-azure-adopt"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var example struct {
				Mode   job.Mode   `json:"mode"`
				Region string     `json:"region"`
				Config job.Config `json:"config"`
			}
			example.Mode = job.ModeCreate
			fromYAML(t, name+".yaml", &example)
			g := clustersIn(t, example.Mode, string(example.Config.Spec))
			g.job.Region, g.p.region = example.Region, example.Region
			g.furnish(name + ".sandbox.yaml")
			before := g.world.Snapshot()
			if example.Mode == job.ModeAdopt {
				if err := g.try(false, g.check, g.p.AdoptCluster); err != nil {
					t.Fatal(err)
				}
				g.equal(before)
				return
			}
			g.up()
			if bad := unmet(g.report()); len(bad) > 0 {
				t.Errorf("not met: %v", bad)
			}
			if n := len(g.job.Config.InfraConfig.Cluster.NodePools); n < 2 {
				t.Errorf("there are %d pools", n)
			}
			g.down()
			g.equal(before)
		})
	}
}

func fromYAML(t testing.TB, name string, v any) {
	t.Helper()
	text, err := os.ReadFile("../../../examples/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, v); err != nil {
		t.Fatal(err)
	}
}

// furnish makes what a sandbox file says; without one there is nothing to make.
func (g *rig) furnish(name string) {
	g.Helper()
	if _, err := os.Stat("../../../examples/" + name); errors.Is(err, fs.ErrNotExist) {
		return
	}
	var file struct {
		Objects []struct {
			Service   string         `json:"service"`
			Operation string         `json:"operation"`
			Params    map[string]any `json:"params"`
			After     string         `json:"after"`
		} `json:"objects"`
	}
	fromYAML(g, name, &file)
	for _, o := range file.Objects {
		if o.After != "" {
			d, err := time.ParseDuration(o.After)
			if err != nil {
				g.Fatal(err)
			}
			g.world.Step(d)
			continue
		}
		text, err := json.Marshal(o.Params)
		if err != nil {
			g.Fatal(err)
		}
		var params map[string]any
		if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), "{subscriptionId}", simazure.DefaultSubscription)), &params); err != nil {
			g.Fatal(err)
		}
		if _, err := g.world.Invoke("azure", o.Service, o.Operation, simazure.DefaultSubscription, "", params); err != nil {
			g.Fatal(err)
		}
	}
}

// A scan finds everything of a cluster job that could be left: what has tags, and
// roles, which have none and may stand in somebody else's network.
func TestScanOfACluster(t *testing.T) {
	t.Parallel()
	g := clusters(t, smallCluster)
	g.up()
	left, _, err := g.p.Scan(pipeline.WithGate(t.Context(), pipeline.ReadOnly), g.job.ID)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, l := range left {
		found[l.Kind]++
	}
	for kind, n := range map[string]int{kindCluster: 1, kindIdentity: 2, kindWorkspace: 1, kindRole: 3, kindVNet: 1, kindNAT: 1} {
		if found[kind] < n {
			t.Errorf("%d of %s are found, want %d: %v", found[kind], kind, n, found)
		}
	}
	if other, _, err := g.p.Scan(t.Context(), job.NewID("job")); err != nil || len(other) > 0 {
		t.Errorf("of another job: %v, %v", other, err)
	}
}
