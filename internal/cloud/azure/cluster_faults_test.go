package azure

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// A lock anywhere that would stop the teardown in the middle stops it before its
// first delete: above the cluster, on it, on something in it, and in the group that
// AKS made (failure kind E19).
func TestLockedCluster(t *testing.T) {
	t.Parallel()
	g := clusters(t, smallCluster)
	before := g.world.Snapshot()
	g.up()
	ic := g.job.Config.InfraConfig
	for _, scope := range []string{"/subscriptions/" + g.p.subscription, g.p.groupID(ic.ResourceGroup), ic.Cluster.ID, ic.Cluster.Pool("workers").ID, g.p.groupID(ic.Cluster.NodeGroup), managedGroup(g), ic.PrivateSubnetIDs[0], ic.Cluster.LogGroup} {
		lock := scope + "/providers/Microsoft.Authorization/locks/keep"
		g.put(lock, map[string]any{"properties": map[string]any{"level": "CanNotDelete"}})
		since := g.mark()
		g.another()
		// The guard is asked before anything inside of the cluster is deleted, and only reads.
		guard := g.p.Removable(pipeline.WithGate(t.Context(), pipeline.ReadOnly), g.run(pipeline.Apply))
		for _, err := range []error{guard, g.try(true, g.p.RemoveCluster)} {
			if f := fatal(err); f == nil || f.Problem.Code != "locked" || !strings.Contains(strings.ToLower(f.Problem.Message), strings.ToLower(scope)) {
				t.Errorf("%s: %v", scope, err)
			}
		}
		if _, changes := g.calls(since); sum(changes) > 0 {
			t.Errorf("%s: it changed %v", scope, changes)
		}
		g.invoke("DELETE", lock, nil)
	}
	g.another()
	if err := g.p.Removable(pipeline.WithGate(t.Context(), pipeline.ReadOnly), g.run(pipeline.Apply)); err != nil {
		t.Errorf("without a lock: %v", err)
	}
	g.down()
	g.equal(before)
}

// A cluster or a pool that was accepted and failed later is named with its error,
// stays, and is replaced by a retry; so does one that fails without a word (failure
// kinds A7, A8, I11).
func TestClusterThatFails(t *testing.T) {
	for _, op := range []string{"ManagedClusters_CreateOrUpdate", "AgentPools_CreateOrUpdate"} {
		for _, message := range []string{"The control plane did not come up.", ""} {
			t.Run(op+" "+message, func(t *testing.T) {
				t.Parallel()
				g := clusters(t, smallCluster)
				before := g.world.Snapshot()
				g.fault(sim.Fault{Kind: sim.FaultOpFailed, Operation: op, Seconds: 30, Code: "InternalOperationError", Message: message})
				err := g.try(false, g.steps(false)...)
				f := fatal(err)
				if f == nil || f.Problem.Code != "object-failed" || !strings.Contains(f.Problem.Message, "failed: ") || !strings.Contains(f.Problem.Message, message) {
					t.Fatalf("%v\n%s", err, g.books(12))
				}
				g.hit()
				g.another() // a retry
				g.up()
				if d := g.drift(); len(d) > 0 {
					t.Errorf("drift: %v", d)
				}
				g.down()
				g.equal(before)
			})
		}
	}
}

// A failed cluster that nobody retries is torn down all the same (failure kind A7).
func TestFailedClusterIsTornDown(t *testing.T) {
	t.Parallel()
	g := clusters(t, smallCluster)
	before := g.world.Snapshot()
	g.fault(sim.Fault{Kind: sim.FaultOpFailed, Operation: "ManagedClusters_CreateOrUpdate", Seconds: 30, Code: "InternalOperationError"})
	if err := g.try(false, g.steps(false)...); err == nil {
		t.Fatal("it came up")
	}
	g.hit()
	g.another()
	g.down()
	g.equal(before)
}

// A cluster that was up and whose change fails is asked for its state again, and
// never replaced: its workloads run on (failure kind G10).
func TestClusterThatWasUpIsMended(t *testing.T) {
	t.Parallel()
	g := clusters(t, smallCluster)
	before := g.world.Snapshot()
	g.up()
	id := g.job.Config.InfraConfig.Cluster.ID
	if _, err := g.world.SetObjectState(id, "Failed", "OverlaymgrReconcileError", "an add-on did not come up"); err != nil {
		t.Fatal(err)
	}
	if d := g.drift(); !slices.ContainsFunc(d, func(d pipeline.Drift) bool { return d.Attr == "state" && d.Seen == "Failed" }) {
		t.Errorf("the drift is %v", d)
	}
	since := g.mark()
	g.another()
	g.up()
	_, changes := g.calls(since)
	if changes["ManagedClusters_CreateOrUpdate"] != 1 || changes["ManagedClusters_Delete"] > 0 {
		t.Errorf("it changed %v", changes)
	}
	if d := g.drift(); len(d) > 0 {
		t.Errorf("afterwards: %v", d)
	}
	// What cannot be mended stops the job with the cloud's reason, and stays.
	if _, err := g.world.SetObjectState(id, "Failed", "x", "y"); err != nil {
		t.Fatal(err)
	}
	g.fault(sim.Fault{Kind: sim.FaultOpFailed, Operation: "ManagedClusters_CreateOrUpdate", Seconds: 5, Code: "OverlaymgrReconcileError", Message: "an add-on did not come up", Count: -1})
	g.another()
	err := g.try(false, g.steps(false)...)
	if f := fatal(err); f == nil || f.Problem.Code != "cluster-failed" || !strings.Contains(f.Problem.Message, "does not mend it: ") || !g.exists(id) {
		t.Errorf("the verdict is %v", err)
	}
	g.world.ClearFaults("")
	g.another()
	g.down()
	g.equal(before)
}

// Whatever passes by itself is waited out: an operation of others on the cluster, a
// token that ends, a refusal of a deletion, throttling (failure kinds E11, H, I1).
func TestClusterGoesOn(t *testing.T) {
	busy := "Operation is not allowed because there's an in progress update managed cluster operation on the managed cluster. Please wait for it to finish before starting a new operation."
	for name, f := range map[string]sim.Fault{
		"a pool that has to wait":        {Kind: sim.FaultError, Operation: "AgentPools_CreateOrUpdate", Code: "OperationNotAllowed", Status: 409, Message: busy, Count: 5},
		"a token that ends while asking": {Kind: sim.FaultError, Operation: "ManagedClusters_Get", After: 3, Code: "ExpiredAuthenticationToken", Status: 401, Message: "The access token expiry UTC time is earlier than current UTC time.", Count: 4},
		"a deletion that has to wait":    {Kind: sim.FaultError, Operation: "ManagedClusters_Delete", Code: "OperationNotAllowed", Status: 409, Message: busy, Count: 5},
		"throttling":                     {Kind: sim.FaultThrottle, Service: "containerservice", Count: 6},
		"identities of a busy directory": {Kind: sim.FaultError, Operation: "ManagedClusters_CreateOrUpdate", Code: "FailedIdentityOperation", Status: 429, Message: "Request is temporarily throttled because the tenant has issued too many requests.", Count: 3},
		"a directory that lags behind":   {Kind: sim.FaultError, Operation: "RoleAssignments_CreateOrUpdate", Code: "PrincipalNotFound", Status: 400, Message: "Principal does not exist in the directory.", Count: 3},
		"a cluster that is slow to show": {Kind: sim.FaultHidden, Operation: "ManagedClusters_Get", Count: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := clusters(t, smallCluster)
			before := g.world.Snapshot()
			g.fault(f)
			g.up()
			g.down()
			g.hit()
			g.equal(before)
		})
	}
}

// Pools that others added go with the cluster, named; and so does what ran in it
// made in the cloud, whose load balancer stands in a subnet (failure kinds E2, E10,
// E20).
func TestClusterTakesAlongWhatIsInIt(t *testing.T) {
	t.Parallel()
	g, kube := kubeClusters(t, smallCluster)
	before := g.world.Snapshot()
	g.up()
	info := g.job.Config.InfraConfig.Cluster
	g.put(info.ID+"/agentPools/gpu", map[string]any{"properties": map[string]any{"count": 1, "mode": "User", "vmSize": "Standard_D2ds_v5", "vnetSubnetID": g.job.Config.InfraConfig.PrivateSubnetIDs[0]}})
	inside := kube.of(t, info.ID).Cloud
	for _, s := range []sim.KubeService{
		{Namespace: "shop", Name: "web", UID: "0a1b2c3d-0000-4000-8000-000000000001", Ports: []int{443}},
		{Namespace: "shop", Name: "inner", UID: "0a1b2c3d-0000-4000-8000-000000000002", Ports: []int{80}, Annotations: map[string]string{"service.beta.kubernetes.io/azure-load-balancer-internal": "true"}},
	} {
		for range 50 {
			if _, ip, err := inside.EnsureLoadBalancer(t.Context(), s); err != nil {
				t.Fatal(err)
			} else if ip != "" {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	if _, err := inside.EnsureDisk(t.Context(), sim.KubeVolume{Namespace: "shop", Name: "data", UID: "0a1b2c3d-0000-4000-8000-000000000003", GiB: 8}); err != nil {
		t.Fatal(err)
	}
	if bad := unmet(g.report()); slices.Contains(bad, "AKS-41") {
		t.Errorf("rules of Services count as somebody's: %v", bad)
	}
	var said []string
	g.events = func(e job.Event) { said = append(said, e.Message) }
	g.another()
	g.down()
	g.equal(before)
	if !slices.ContainsFunc(said, func(s string) bool { return strings.Contains(s, "gpu") }) {
		t.Errorf("the pool of others is not named among %v", said)
	}
}

// A cluster that somebody deleted does not block the teardown, nor does one whose
// group AKS left behind; a group that another cluster manages is not touched.
func TestClusterThatIsGone(t *testing.T) {
	for name, managedByIt := range map[string]bool{"with its group left behind": true, "with its group's name taken": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := clusters(t, smallCluster)
			before := g.world.Snapshot()
			g.up()
			info := g.job.Config.InfraConfig.Cluster
			g.invoke("DELETE", info.ID, nil)
			by := info.ID
			if !managedByIt {
				by = theirs + "/providers/" + typeCluster + "/theirs"
			}
			group := g.p.groupID(info.NodeGroup)
			g.put(group, map[string]any{"location": "eastus2", "managedBy": by})
			g.put(group+"/providers/"+typePublicIP+"/kubernetes-a1", map[string]any{"location": "eastus2", "sku": map[string]any{"name": "Standard"}, "properties": map[string]any{"publicIPAllocationMethod": "Static"}})
			g.world.Step(5 * time.Minute)
			g.another()
			g.down()
			if got := g.exists(group); got == managedByIt {
				t.Errorf("the group is there: %v", got)
			}
			if !managedByIt {
				g.invoke("DELETE", group, nil)
			}
			g.equal(before)
		})
	}
}

// A namesake of the cluster that is somebody else's is refused, and never touched.
func TestClusterNamesake(t *testing.T) {
	t.Parallel()
	g := clusters(t, smallCluster)
	if err := g.try(false, g.check, g.p.EnsureNetwork, g.p.EnsureIdentity); err != nil {
		t.Fatal(err)
	}
	id := g.p.clusterID(g.run(pipeline.Verify))
	g.put(id, map[string]any{"location": "eastus2", "identity": map[string]any{"type": "SystemAssigned"}, "properties": map[string]any{"dnsPrefix": "theirs",
		"agentPoolProfiles": []any{map[string]any{"name": "theirs", "mode": "System", "count": 1, "vmSize": "Standard_D2ds_v5"}}}})
	g.world.Step(5 * time.Minute)
	since := g.mark()
	for _, down := range []bool{false, true} {
		steps := []step{g.p.EnsureCluster}
		if down {
			steps = []step{g.p.RemoveCluster}
		}
		err := g.try(down, steps...)
		if f := fatal(err); !down && (f == nil || f.Problem.Code != "name-taken") || down && err != nil {
			t.Errorf("down %v: %v", down, err)
		}
	}
	if _, changes := g.calls(since); sum(changes) > 0 || !g.exists(id) {
		t.Errorf("it changed %v", changes)
	}
}

// Settings that somebody changed are shown by a verify, which changes nothing, and
// put right by a run.
func TestClusterDrift(t *testing.T) {
	t.Parallel()
	g := clusters(t, clusterSpec)
	g.up()
	info := g.job.Config.InfraConfig.Cluster
	arm, setting := info.Pool("arm").ID, g.p.diagnostic(g.run(pipeline.Verify)).id
	for _, c := range []struct {
		attr, id string
		change   func(properties, top map[string]any)
	}{
		{"run command", info.ID, at("apiServerAccessProfile.disableRunCommand", false)},
		{"authorised ranges", info.ID, at("apiServerAccessProfile.authorizedIPRanges", []any{"198.51.100.0/24"})},
		{"local accounts", info.ID, at("disableLocalAccounts", false)},
		{"upgrade channel", info.ID, at("autoUpgradeProfile.upgradeChannel", "none")},
		{"tier", info.ID, func(_, top map[string]any) { setAt(top, "sku.tier", "Free") }},
		{"Key Vault secrets provider", info.ID, at("addonProfiles.azureKeyvaultSecretsProvider.config.enableSecretRotation", "false")},
		{"labels", arm, at("nodeLabels", map[string]any{"tier": "web", "kubernetes.azure.com/scalesetpriority": "spot"})},
		{"taints", arm, at("nodeTaints", []any{"kubernetes.azure.com/scalesetpriority=spot:NoSchedule"})},
		{"autoscaling", arm, at("maxCount", 9)},
		{"categories", setting, at("logs", []any{map[string]any{"category": "guard", "enabled": true}})},
		{"retention in days", info.LogGroup, at("retentionInDays", 30)},
	} {
		g.tamper(c.id, c.change)
		since := g.mark()
		if d := g.drift(); !slices.ContainsFunc(d, func(d pipeline.Drift) bool { return d.Attr == c.attr }) {
			t.Errorf("%s is not among %v", c.attr, d)
		}
		if _, changes := g.calls(since); sum(changes) > 0 {
			t.Errorf("a verify changed %v", changes)
		}
	}
	since := g.mark()
	g.another()
	g.up()
	if d := g.drift(); len(d) > 0 {
		t.Errorf("after a run: %v", d)
	}
	if _, changes := g.calls(since); changes["ManagedClusters_CreateOrUpdate"] != 1 || changes["AgentPools_CreateOrUpdate"] != 1 {
		t.Errorf("it took %v", changes)
	}
}
