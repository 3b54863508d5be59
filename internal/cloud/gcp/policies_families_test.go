package gcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// lives are those of every family: all modes, and all operations.
func lives() []life {
	var all []life
	for _, of := range []func() []life{networkLives, vmLives, clusterLives, dataLives} {
		all = append(all, of()...)
	}
	return all
}

func networkLives() []life {
	hub := func(g liveRig) { g.hub(testProject, "10.40.0.0/16") }
	return []life{
		{name: "network", family: job.Network, mode: job.ModeCreate, spec: fullSpec, furnish: hub, ups: networkUps, downs: networkDowns},
		{name: "network in an existing one", family: job.Network, mode: job.ModeCreateInExisting, furnish: hub, ups: networkUps, downs: networkDowns,
			spec: `{"existing":{"networkId":"hub"},"network":{"subnets":["private"],"privateServices":{}}}`},
		{name: "adopted network", family: job.Network, mode: job.ModeAdopt, spec: `{"adopt":{"ids":["hub"]}}`, furnish: hub,
			adopt: func(p *Provider) func(context.Context, *pipeline.Run) error { return p.AdoptNetwork }},
	}
}

func vmLives() []life {
	vm := func(name, spec string) life {
		return life{name: name, family: job.VM, mode: job.ModeCreate, spec: spec, furnish: func(g liveRig) { g.vmRig.furnish() }, ups: vmUps, downs: vmDowns, reads: seesVMs, more: pausesVMs}
	}
	all := []life{
		vm("VMs", fixedDNSSpec), vm("VMs with a certificate", fixedTLSSpec), vm("VMs, internal", internalSpec), vm("VMs, TCP", tcpSpec), vm("VMs, TCP internal", tcpInternalSpec),
		vm("group", groupLBSpec), vm("group, TCP internal", `{"pool":{"mode":"asg","min":2,"desired":2,"max":4},"loadBalancer":{"type":"tcp","scheme":"internal"}}`),
		{name: "adopted VMs", family: job.VM, mode: job.ModeAdopt, spec: `{"adopt":{"ids":["theirs"]}}`, furnish: func(g liveRig) { g.vmRig.theirs("theirs", "us-central1-a") },
			adopt: func(p *Provider) func(context.Context, *pipeline.Run) error { return p.AdoptVMs }},
	}
	within := vm("VMs in an existing network", `{"pool":{"count":2},"existing":{"networkId":"theirs","subnetIds":["inner"]}}`)
	within.mode, within.furnish = job.ModeCreateInExisting, func(g liveRig) {
		network := "projects/" + testProject + "/global/networks/theirs"
		g.place("compute", "networks.insert", map[string]any{"name": "theirs", "autoCreateSubnetworks": false})
		g.place("compute", "subnetworks.insert", map[string]any{"region": testRegion, "name": "inner", "network": network, "ipCidrRange": "10.9.0.0/24"})
		g.place("compute", "routers.insert", map[string]any{"region": testRegion, "name": "way-out", "network": network, "nats": []any{
			map[string]any{"name": "nat", "natIpAllocateOption": "AUTO_ONLY", "sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES"}}})
	}
	return append(all, within)
}

// seesVMs is what is read of VMs between jobs.
func seesVMs(g liveRig) error {
	if err := g.p.RefreshVMs(g.Context(), g.job); err != nil {
		return err
	}
	if len(g.lbUps()) == 0 {
		return nil
	}
	targets, err := g.p.TargetHealth(g.Context(), g.job)
	if err == nil && len(targets) != 2 {
		err = fmt.Errorf("targets: %+v", targets)
	}
	return err
}

// pausesVMs empties the pool and fills it, and takes the load balancer off and puts
// it on again.
func pausesVMs(g liveRig) error {
	ref := job.PoolRef{Kind: job.PoolGCEInstances, Name: job.VMPoolName}
	for _, vm := range g.infra().VMs {
		ref.Instances = append(ref.Instances, vm.InstanceID)
	}
	if id := g.infra().ScalingGroupID; id != "" {
		ref = job.PoolRef{Kind: job.PoolManagedGroup, Name: job.VMPoolName, ID: id}
	}
	if err := g.pausedAndBack(ref); err != nil || len(g.lbUps()) == 0 {
		return err
	}
	if err := g.try(true, g.p.RemoveRecord, g.p.RemoveListener, g.p.RemoveTargetGroup, g.p.RemoveLoadBalancer); err != nil {
		return err
	}
	g.infra().ForgetLoadBalancer()
	g.another()
	return g.try(false, g.lbUps()...)
}

func clusterLives() []life {
	return []life{
		{name: "cluster", family: job.Cluster, mode: job.ModeCreate, spec: twoPoolsSpec, ups: clusterUps, downs: clusterDowns, reads: reachesCluster, more: usesCluster},
		{name: "cluster in an existing network", family: job.Cluster, mode: job.ModeCreateInExisting, spec: existingClusterSpec,
			furnish: func(g liveRig) { g.office(theirPods, theirServices) }, ups: clusterUps, downs: clusterDowns},
		{name: "adopted cluster", family: job.Cluster, mode: job.ModeAdopt, spec: `{"adopt":{"name":"theirs"}}`,
			furnish: func(g liveRig) { g.hub(testProject, "10.80.0.0/16"); g.theirCluster("theirs") },
			adopt:   func(p *Provider) func(context.Context, *pipeline.Run) error { return p.AdoptCluster }},
	}
}

func reachesCluster(g liveRig) error {
	_, err := g.p.KubeAccess(g.Context(), g.ref())
	return err
}

// usesCluster lets somebody in and out, and empties a pool and fills it.
func usesCluster(g liveRig) error {
	const ann = "user:ann@example.com"
	err := g.again(func(ctx context.Context) error {
		return g.p.GrantAccess(ctx, g.ref(), cloud.AccessGrant{Principal: ann, Level: cloud.AccessView})
	})
	if err == nil {
		err = g.again(func(ctx context.Context) error { return g.p.RevokeAccess(ctx, g.ref(), ann) })
	}
	if err != nil {
		return err
	}
	ref := g.ref()
	if err := g.pausedAndBack(job.PoolRef{Kind: job.PoolGKENodes, Name: "workers", Cluster: &ref}); err != nil {
		return err
	}
	// What the cluster's controllers made, and leave for the teardown.
	g.leftBehind("a1", g.cluster().Name)
	g.ingress("x1y2z3w4", g.cluster().Name)
	return nil
}

func dataLives() []life {
	data := func(name string, family job.ResourceType, spec string) life {
		return life{name: name, family: family, mode: job.ModeCreate, spec: spec, ups: dataUps, downs: dataDowns, reads: recommends}
	}
	postgres, mysql := data("PostgreSQL", job.Datastore, productionSpec), data("MySQL", job.Datastore, mysqlSpec)
	mysql.more = usesMySQL
	adopt := func(p *Provider) func(context.Context, *pipeline.Run) error { return p.AdoptDatastore }
	return []life{
		postgres, mysql,
		{name: "adopted instance", family: job.Datastore, mode: job.ModeAdopt, spec: `{"adopt":{"name":"legacy"}}`, adopt: adopt, furnish: func(g liveRig) { g.dataRig.theirs("legacy", 0) }},
		data("Redis", job.Cache, redisThreeSpec), data("Valkey", job.Cache, valkeySpec),
		{name: "adopted cache", family: job.Cache, mode: job.ModeAdopt, spec: `{"adopt":{"name":"legacy"}}`, adopt: adopt, furnish: theirRedis},
	}
}

func theirRedis(g liveRig) {
	g.invoke(testProject, "redis", "projects.locations.instances.create", map[string]any{"parent": "projects/" + testProject + "/locations/" + testRegion, "instanceId": "legacy",
		"body": map[string]any{"tier": "BASIC", "memorySizeGb": 1}})
	g.world.Step(time.Hour)
}

func recommends(g liveRig) error {
	all, err := g.p.Recommend(pipeline.WithGate(g.Context(), pipeline.ReadOnly), g.run(pipeline.Apply))
	if err != nil {
		return err
	}
	for _, r := range all {
		*g.unread = append(*g.unread, unreadIn([]string{r.Reason})...)
	}
	if g.store().Engine == job.Redis {
		_, err = g.p.EnsureCacheUser(g.Context(), g.job, "", "", job.ReadWrite)
	}
	return err
}

// usesMySQL makes a logical database and a user, asks as it, and takes both away.
func usesMySQL(g liveRig) error {
	access, err := g.p.SQLAccess(g.Context(), g.job)
	if err != nil {
		return err
	}
	for _, do := range []func(ctx context.Context) error{
		func(ctx context.Context) error { return access.CreateDatabase(ctx, "orders") },
		func(ctx context.Context) error { return access.SetUser(ctx, "orders_rw", "first") },
		func(ctx context.Context) error { return serverless(access.Query(ctx, "orders", "SELECT 1")) },
		func(ctx context.Context) error { return access.DropUser(ctx, "orders_rw") },
		func(ctx context.Context) error { return access.DropDatabase(ctx, "orders") },
	} {
		if err := g.again(do); err != nil {
			return err
		}
	}
	return nil
}

// serverless is what became of a statement to an instance that has no server in
// these tests: that it got as far as to it is all that is asked.
func serverless(_ [][]string, err error) error {
	if err != nil && strings.Contains(err.Error(), "there is no database server behind it") {
		return nil
	}
	return err
}
