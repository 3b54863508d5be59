package azure

import (
	"fmt"
	"path"
	"time"

	"github.com/zopday/provisioner/internal/job"
)

const recordLB = `"loadBalancer":{"type":"http","plainHTTP":true,"dns":{"zone":"example.test","record":"shop"}}`

// theirZone is a public zone in which records are made.
func theirZone(w *liver) {
	w.put(theirs, map[string]any{"location": "eastus2"})
	w.put(theirs+"/providers/"+typeDNSZone+"/example.test", map[string]any{"location": "global"})
}

// lives are those by which the policies of each family are found: its modes, and
// what can be asked of a job once it is there.
var lives = []life{
	{name: "network", family: job.Network, before: theirHub,
		spec: `{"network":{"subnets":["public","private","database"]},"peerings":[{"networkId":"hub","resourceGroup":"theirs"}],"dnsZones":[{"name":"shop.internal"},{"name":"shop.example.com","visibility":"public"}]}`},
	{name: "network in one of others", family: job.Network, mode: job.ModeCreateInExisting, before: theirHub,
		spec: `{"existing":{"networkId":"hub","resourceGroup":"theirs"},"network":{"subnets":["private","database"]}}`},
	{name: "adopted network", family: job.Network, mode: job.ModeAdopt, before: theirHub, live: (*liver).adopted, spec: `{"adopt":{"ids":["hub"]}}`},

	{name: "adopted network with all of its parts", family: job.Network, live: (*liver).adopted, spec: `{}`, before: func(w *liver) {
		if err := w.pass(false, w.steps(false)[1:]...); err != nil {
			w.Fatal(err)
		}
		w.next(job.Network, job.ModeAdopt, fmt.Sprintf(`{"adopt":{"ids":[%q]}}`, w.job.Config.InfraConfig.NetworkID))
	}},

	{name: "fixed VMs", family: job.VM, before: theirZone, spec: `{"pool":{"mode":"fixed","count":2},` + recordLB + `}`,
		live: func(w *liver) error { return inTurn(w.made, w.looked, w.reattached, w.paused, w.ended) }},
	{name: "scale set", family: job.VM, spec: setLB},
	{name: "VMs in a network of others", family: job.VM, spec: fixedSpec,
		before: theirNetwork(job.VM, `{"pool":{"mode":"fixed","count":1},"loadBalancer":{"type":"tcp","scheme":"internal"},"existing":{"networkId":"VNET","subnetIds":["PRIVATE"]}}`)},
	{name: "adopted scale set", family: job.VM, spec: setSpec, before: legacySet, live: (*liver).adopted},
	{name: "adopted VMs", family: job.VM, spec: fixedSpec, before: legacyVMs, live: (*liver).adopted},

	{name: "cluster", family: job.Cluster, spec: `{"network":{"zones":3},"admins":["` + theirAdmins + `"],"nodePools":[{"name":"workers","min":1,"desired":1,"max":2}]}`,
		live: func(w *liver) error { return inTurn(w.made, w.looked, w.admitted, w.paused, w.ended) }},
	{name: "cluster in a network of others", family: job.Cluster, spec: smallCluster,
		before: theirNetwork(job.Cluster, `{"nodePools":[{"name":"workers","min":1,"desired":1,"max":2}],"existing":{"networkId":"VNET","subnetIds":["PRIVATE"]}}`)},
	{name: "private cluster", family: job.Cluster, spec: smallCluster, direct: true},
	{name: "cluster behind a route table", family: job.Cluster, mode: job.ModeCreateInExisting, before: func(w *liver) { w.routed("0.0.0.0/0", "VirtualAppliance") },
		spec: `{"nodePools":[{"name":"workers","min":1,"desired":1,"max":2}],"endpoint":{"publicCidrs":["198.51.100.8/32"]},"existing":{"networkId":"` + theirs + "/providers/" + typeVNet + `/hub"}}`},
	{name: "adopted cluster", family: job.Cluster, mode: job.ModeAdopt, spec: `{"adopt":{"name":"legacy"}}`, before: legacyCluster, live: (*liver).adopted},

	{name: "PostgreSQL", family: job.Datastore, spec: stores["postgres ha"].spec},
	{name: "MySQL", family: job.Datastore, spec: stores["mysql ha"].spec},
	{name: "PostgreSQL in a network of others", family: job.Datastore, spec: stores["postgres"].spec,
		before: func(w *liver) {
			theirSubnet("10.90.2.0/28", typePostgres)(w.rig)
			w.next(job.Datastore, job.ModeCreateInExisting, `{"engine":"postgres",`+inData+`}`)
		}},
	{name: "adopted PostgreSQL", family: job.Datastore, mode: job.ModeAdopt, spec: `{"adopt":{"name":"legacy"}}`, live: (*liver).adopted, before: func(w *liver) { w.theirServer(typePostgres, "legacy") }},
	{name: "adopted MySQL", family: job.Datastore, mode: job.ModeAdopt, spec: `{"engine":"mysql","adopt":{"name":"legacy"}}`, live: (*liver).adopted, before: func(w *liver) { w.theirServer(typeMySQL, "legacy") }},

	{name: "cache", family: job.Cache, spec: stores["redis"].spec},
	{name: "cache with keys", family: job.Cache, spec: stores["redis keys"].spec, live: func(w *liver) error {
		return inTurn(w.made, w.looked, func() error {
			_, err := w.p.EnsureCacheUser(w.ctx, w.job, "", "", job.ReadWrite)
			return err
		}, w.ended)
	}},
	{name: "cache in a network of others", family: job.Cache, spec: stores["redis keys"].spec,
		before: theirNetwork(job.Cache, `{"preset":"dev","accessKeys":true,"existing":{"networkId":"VNET","subnetIds":["PRIVATE"]}}`)},
	{name: "adopted cache", family: job.Cache, mode: job.ModeAdopt, spec: `{"adopt":{"name":"legacy"}}`, before: legacyCaches, live: (*liver).adopted},
	{name: "adopted older cache", family: job.Cache, mode: job.ModeAdopt, spec: `{"adopt":{"name":"older"}}`, before: legacyCaches, live: (*liver).adopted},
}

// watched are the lives of a read-only account besides those that adopt: jobs that
// were made with other credentials are planned and verified.
var lookedAt = []life{
	seen("network", job.Network, fullSpec), seen("fixed VMs", job.VM, fixedLB), seen("scale set", job.VM, setLB), seen("cluster", job.Cluster, smallCluster),
	seen("PostgreSQL", job.Datastore, stores["postgres ha"].spec), seen("MySQL", job.Datastore, stores["mysql ha"].spec), seen("cache", job.Cache, stores["redis"].spec),
}

func seen(name string, family job.ResourceType, spec string) life {
	return life{name: name + ", looked at", family: family, spec: spec, live: (*liver).looked, before: func(w *liver) {
		if err := w.made(); err != nil {
			w.Fatal(err)
		}
	}}
}

// legacyVMs are VMs that are nobody's, and a job that adopts one.
func legacyVMs(w *liver) {
	if err := w.made(); err != nil {
		w.Fatal(err)
	}
	id := w.job.Config.InfraConfig.VMs[0].InstanceID
	vm := w.read(id)
	delete(vm, "tags")
	w.put(id, vm)
	w.next(job.VM, job.ModeAdopt, fmt.Sprintf(`{"adopt":{"ids":[%q]}}`, path.Base(id)))
}

// legacySet is a scale set that is nobody's, and a job that adopts it.
func legacySet(w *liver) {
	if err := w.made(); err != nil {
		w.Fatal(err)
	}
	id := parentOf(w.job.Config.InfraConfig.VMs[0].InstanceID)
	set := w.read(id)
	delete(set, "tags")
	w.put(id, set)
	w.next(job.VM, job.ModeAdopt, fmt.Sprintf(`{"adopt":{"name":%q}}`, path.Base(id)))
}

func legacyCluster(w *liver) {
	w.put(theirs, map[string]any{"location": "eastus2"})
	w.put(theirs+"/providers/"+typeCluster+"/legacy", map[string]any{"location": "eastus2", "identity": map[string]any{"type": "SystemAssigned"}, "properties": map[string]any{"dnsPrefix": "legacy",
		"agentPoolProfiles": []any{map[string]any{"name": "pool1", "mode": "System", "count": 2, "vmSize": "Standard_D2ds_v5"}}}})
}

func legacyCaches(w *liver) {
	w.put(theirs, map[string]any{"location": "eastus2"})
	id := theirs + "/providers/" + typeCache + "/legacy"
	w.put(id, map[string]any{"location": "eastus2", "sku": map[string]any{"name": "Balanced_B5"}, "properties": map[string]any{"minimumTlsVersion": "1.2", "publicNetworkAccess": "Enabled"}})
	w.world.Step(40 * time.Minute)
	w.put(id+"/databases/default", map[string]any{"properties": map[string]any{"clientProtocol": "Encrypted", "port": 10000, "accessKeysAuthentication": "Enabled"}})
	w.put(theirs+"/providers/"+typeOldCache+"/older", map[string]any{"location": "eastus2", "properties": map[string]any{"sku": map[string]any{"name": "Standard", "family": "C", "capacity": 1}, "enableNonSslPort": true, "minimumTlsVersion": "1.2"}})
	w.world.Step(40 * time.Minute)
}
