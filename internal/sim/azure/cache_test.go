package azure

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/monitor/armmonitor"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/privatedns/armprivatedns"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/redis/armredis/v3"

	"github.com/zopday/provisioner/internal/sim"
)

const cachePath = "/subscriptions/" + DefaultSubscription + "/resourceGroups/rg/providers/Microsoft.Cache/"

// settle steps until a resource is in a state.
func (p *replayer) settle(path, state string) doc {
	p.g.t.Helper()
	for range 300 {
		_, _, body := p.code("GET", path, nil)
		if body.str("properties.provisioningState") == state {
			return body
		}
		p.g.world.Step(5 * time.Second)
	}
	p.g.t.Fatalf("%s does not become %s", path, state)
	return nil
}

func managedBody(sku string) doc {
	return doc{"location": "westus2", "tags": map[string]any{"owner": "job"}, "sku": map[string]any{"name": sku}, "properties": map[string]any{"minimumTlsVersion": "1.2", "publicNetworkAccess": "Disabled", "highAvailability": "Enabled"}}
}

func TestManagedRedis(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	held := g.withServers()
	g.group("rg")
	g.vnet("net", "10.0.0.0/16", "10.0.1.0/24")
	p := g.raw()
	const v = "?api-version=2025-07-01"
	cluster, db := cachePath+"redisEnterprise/cache1", cachePath+"redisEnterprise/cache1/databases/default"
	if s, code, _ := p.code("PUT", cluster+v, managedBody("Balanced_B1")); s != 201 || code != "" {
		t.Fatalf("PUT cluster: %d %s", s, code)
	}
	if s, code, _ := p.code("PUT", db+v, doc{"properties": map[string]any{}}); s != 409 || code != "Conflict" {
		t.Errorf("a database in a cluster that is made: %d %s", s, code)
	}
	made := p.settle(cluster+v, "Succeeded")
	if made.str("properties.resourceState") != "Running" || made.str("properties.redundancyMode") != "ZR" {
		t.Errorf("made %v", made)
	}
	if s, code, _ := p.code("PUT", cachePath+"redisEnterprise/cache1/databases/other"+v, doc{"properties": map[string]any{}}); s != 400 || code != "InvalidResourceName" {
		t.Errorf("a database of another name: %d %s", s, code)
	}
	if s, code, body := p.code("PUT", db+v, doc{"properties": map[string]any{"clientProtocol": "Encrypted", "port": 10000}}); s != 201 || code != "" {
		t.Fatalf("PUT database: %d %s", s, text(body))
	}
	got := p.settle(db+v, "Succeeded")
	if got.str("properties.accessKeysAuthentication") != "Disabled" || got.num("properties.port") != 40001 {
		t.Errorf("the database %v", got)
	}
	said, ok := held.of(db)
	if !ok || said.Engine != "redis" || said.Password != "" || !said.RequireTLS || said.Names[0] != "cache1.westus2.redis.azure.net" {
		t.Errorf("opened %v %+v", ok, said.Names)
	}
	if said.Admits(sim.KubeCaller{Inside: true}) {
		t.Error("somebody gets to a private cache without an endpoint")
	}
	if s, code, _ := p.code("POST", db+"/listKeys"+v, doc{}); s != 400 || code != "BadRequest" {
		t.Errorf("keys that are off: %d %s", s, code)
	}
	if s, _, _ := p.code("PATCH", db+v, doc{"properties": map[string]any{"accessKeysAuthentication": "Enabled"}}); s != 200 {
		t.Errorf("PATCH: %d", s)
	}
	p.settle(db+v, "Succeeded")
	_, _, keys := p.code("POST", db+"/listKeys"+v, doc{})
	if said, _ := held.of(db); keys.str("primaryKey") == "" || said.Password != keys.str("primaryKey") {
		t.Error("the key is not the password")
	}
	t.Run("endpoint", func(t *testing.T) { g.redisEndpoint(t, p, cluster, db, held) })
	t.Run("removal", func(t *testing.T) { g.redisRemoval(t, p, cluster, db, held) })
}

// redisRemoval: a cluster goes with its database and whom it admits.
func (g *rig) redisRemoval(t *testing.T, p *replayer, cluster, db string, held *heldServers) {
	const v = "?api-version=2025-07-01"
	if s, code, _ := p.code("PUT", db+"/accessPolicyAssignments/app"+v, doc{"properties": map[string]any{"accessPolicyName": "default", "user": map[string]any{"objectId": "11111111-1111-4111-8111-111111111111"}}}); s != 201 {
		t.Errorf("access policy: %d %s", s, code)
	}
	g.world.Step(time.Minute)
	if s, _, _ := p.code("DELETE", cluster+v, nil); s != 202 {
		t.Fatalf("DELETE: %d", s)
	}
	g.world.Step(10 * time.Minute)
	if s, _, _ := p.code("GET", cluster+v, nil); s != 404 {
		t.Errorf("GET after: %d", s)
	}
	if _, ok := held.of(db); ok {
		t.Error("the server goes on")
	}
}

// redisEndpoint: a private endpoint gets an address in a subnet and a record in a zone; the subnet is held by it.
func (g *rig) redisEndpoint(t *testing.T, p *replayer, cluster, db string, held *heldServers) {
	cred, opt := g.arm()
	zones := must(armprivatedns.NewPrivateZonesClient(DefaultSubscription, cred, opt))(t)
	z, err := zones.BeginCreateOrUpdate(g.ctx, "rg", managedZone, armprivatedns.PrivateZone{Location: new("global")}, nil)
	done(g, z, err)
	endpoints := must(armnetwork.NewPrivateEndpointsClient(DefaultSubscription, cred, opt))(t)
	body := func(group string) armnetwork.PrivateEndpoint {
		return armnetwork.PrivateEndpoint{Location: new("westus2"), Properties: &armnetwork.PrivateEndpointProperties{
			Subnet: &armnetwork.Subnet{ID: new(groupPath("rg") + "virtualNetworks/net/subnets/a")},
			PrivateLinkServiceConnections: []*armnetwork.PrivateLinkServiceConnection{{Name: new("c"), Properties: &armnetwork.PrivateLinkServiceConnectionProperties{
				PrivateLinkServiceID: &cluster, GroupIDs: []*string{&group}}}}}}
	}
	_, err = endpoints.BeginCreateOrUpdate(g.ctx, "rg", "pe", body("redisCache"), nil)
	refused(t, err, 400, "PrivateEndpointGroupIdInvalid")
	pe, err := endpoints.BeginCreateOrUpdate(g.ctx, "rg", "pe", body("redisEnterprise"), nil)
	made := done(g, pe, err)
	if len(made.Properties.NetworkInterfaces) != 1 || *made.Properties.CustomDNSConfigs[0].Fqdn != "cache1.westus2.redis.azure.net" {
		t.Errorf("endpoint %+v", made.Properties)
	}
	if said, _ := held.of(db); !said.Admits(sim.KubeCaller{Inside: true}) || said.Admits(sim.KubeCaller{}) {
		t.Error("the endpoint lets in whoever is inside, and nobody else")
	}
	groups := must(armnetwork.NewPrivateDNSZoneGroupsClient(DefaultSubscription, cred, opt))(t)
	zg, err := groups.BeginCreateOrUpdate(g.ctx, "rg", "pe", "default", armnetwork.PrivateDNSZoneGroup{Properties: &armnetwork.PrivateDNSZoneGroupPropertiesFormat{
		PrivateDNSZoneConfigs: []*armnetwork.PrivateDNSZoneConfig{{Name: new("redis"), Properties: &armnetwork.PrivateDNSZonePropertiesFormat{PrivateDNSZoneID: new(groupPath("rg") + "privateDnsZones/" + managedZone)}}}}}, nil)
	done(g, zg, err)
	_, _, rec := p.code("GET", groupPath("rg")+"privateDnsZones/"+managedZone+"/A/cache1.westus2?api-version=2024-06-01", nil)
	if a := rec.docs("properties.aRecords"); len(a) != 1 || a[0].str("ipv4Address") != "10.0.1.4" {
		t.Errorf("the record %v", rec)
	}
	nics := must(armnetwork.NewInterfacesClient(DefaultSubscription, cred, opt))(t)
	_, err = nics.BeginDelete(g.ctx, "rg", lastOf(*made.Properties.NetworkInterfaces[0].ID), nil)
	refused(t, err, 400, "NicInUse")
	subnets := must(armnetwork.NewSubnetsClient(DefaultSubscription, cred, opt))(t)
	_, err = subnets.BeginDelete(g.ctx, "rg", "net", "a", nil)
	refused(t, err, 400, "InUseSubnetCannotBeDeleted")
	d, err := endpoints.BeginDelete(g.ctx, "rg", "pe", nil)
	done(g, d, err)
	if s, _, _ := p.code("GET", groupPath("rg")+"privateDnsZones/"+managedZone+"/A/cache1.westus2?api-version=2024-06-01", nil); s != 404 {
		t.Errorf("the record is still there: %d", s)
	}
	s, err := subnets.BeginDelete(g.ctx, "rg", "net", "a", nil)
	done(g, s, err)
}

func TestManagedRedisRefusals(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	p := g.raw()
	const v = "?api-version=2025-07-01"
	without := func(name string) doc {
		b := managedBody("Balanced_B1")
		delete(b.sub("properties"), name)
		return b
	}
	odd := managedBody("Balanced_B1")
	odd.sub("properties")["enableNonSslPort"] = true
	for _, c := range []struct {
		name, code string
		status     int
		body       doc
	}{
		{"double--hyphen", "InvalidResourceName", 400, managedBody("Balanced_B1")}, {"ent", "BadRequest", 400, managedBody("Enterprise_E10")}, {"odd", "InvalidRequestBody", 400, managedBody("Balanced_B2")},
		{"access", "InvalidRequestBody", 400, without("publicNetworkAccess")}, {"member", "InvalidRequestBody", 400, odd},
	} {
		if s, code, _ := p.code("PUT", cachePath+"redisEnterprise/"+c.name+v, c.body); s != c.status || code != c.code {
			t.Errorf("%s: %d %s, want %d %s", c.name, s, code, c.status, c.code)
		}
	}
	// Room is looked for after the request was accepted; the cluster stays, Failed, and can be asked for again.
	g.fault(sim.Fault{Kind: sim.FaultCapacity, Service: cacheService})
	full := cachePath + "redisEnterprise/full"
	sent := p.send("PUT", g.url+full+v, managedBody("Balanced_B1"), nil)
	g.world.Step(time.Minute)
	poll := p.send("GET", sent.Headers["azure-asyncoperation"], nil, nil)
	if b, _ := asDoc(poll.Body); b.str("status") != "Failed" {
		t.Errorf("the operation %v", poll.Body)
	}
	if _, _, b := p.code("GET", full+v, nil); b.str("properties.provisioningState") != "Failed" || b.str("properties.resourceState") != "CreateFailed" {
		t.Errorf("the cluster %v", b)
	}
	if s, code, _ := p.code("PUT", full+v, managedBody("Balanced_B1")); s != 200 || code != "" {
		t.Errorf("again: %d %s", s, code)
	}
	p.settle(full+v, "Succeeded")
	// A held name.
	p.code("DELETE", full+v, nil)
	g.world.Step(10 * time.Minute)
	g.fault(sim.Fault{Kind: sim.FaultNameHeld, Service: cacheService})
	if s, code, _ := p.code("PUT", full+v, managedBody("Balanced_B1")); s != 409 || code != "NameNotAvailable" {
		t.Errorf("a held name: %d %s", s, code)
	}
}

func TestOldCache(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	held := g.withServers()
	g.group("rg")
	cred, opt := g.arm()
	caches := must(armredis.NewClient(DefaultSubscription, cred, opt))(t)
	body := armredis.CreateParameters{Location: new("westus2"), Properties: &armredis.CreateProperties{SKU: &armredis.SKU{Name: new(armredis.SKUNameStandard), Family: new(armredis.SKUFamilyC), Capacity: new(int32(1))}}}
	_, err := caches.BeginCreate(g.ctx, "rg", "old", body, nil)
	refused(t, err, 400, "BadRequest")
	if _, err := g.world.Invoke("azure", cacheService, "PUT", DefaultSubscription, "", map[string]any{"id": cachePath + "redis/theirs", "body": map[string]any{"location": "westus2",
		"properties": map[string]any{"sku": map[string]any{"name": "Standard", "family": "C", "capacity": 1}, "enableNonSslPort": true}}}); err != nil {
		t.Fatal(err)
	}
	got := must(caches.Get(g.ctx, "rg", "theirs", nil))(t)
	if *got.Properties.ProvisioningState != armredis.ProvisioningStateSucceeded || !*got.Properties.EnableNonSSLPort || *got.Properties.HostName != "127.0.0.1" {
		t.Errorf("placed %+v", got.Properties)
	}
	if said, ok := held.of(cachePath + "redis/theirs"); !ok || said.RequireTLS {
		t.Errorf("opened %v", ok)
	}
	if b, err := got.MarshalJSON(); err != nil || strings.Contains(string(b), "primaryKey") {
		t.Errorf("keys in a GET: %s %v", b, err)
	}
	if keys := must(caches.ListKeys(g.ctx, "rg", "theirs", nil))(t); len(*keys.PrimaryKey) != 44 {
		t.Errorf("key %s", *keys.PrimaryKey)
	}
	// A tenant that has one can make more.
	p, err := caches.BeginCreate(g.ctx, "rg", "old", body, nil)
	done(g, p, err)
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	p := g.raw()
	id := cachePath + "redisEnterprise/c"
	p.code("PUT", id+"?api-version=2025-07-01", managedBody("Balanced_B1"))
	g.world.Step(48 * time.Hour)
	g.world.SetMetric(sim.Metric{Cloud: "azure", Resource: id, Name: "usedmemorypercentage", Base: 20, Peak: 90})
	cred, opt := g.arm()
	metrics := must(armmonitor.NewMetricsClient(DefaultSubscription, cred, opt))(t)
	now := g.world.Clock.Now().UTC()
	list := func(names string) (armmonitor.MetricsClientListResponse, error) {
		return metrics.List(g.ctx, id, &armmonitor.MetricsClientListOptions{Metricnames: &names, Interval: new("PT1H"), Aggregation: new("Average,Maximum"),
			Timespan: new(now.Add(-72*time.Hour).Format(time.RFC3339) + "/" + now.Format(time.RFC3339))})
	}
	got := must(list("usedmemorypercentage,percentProcessorTime"))(t)
	data := got.Value[0].Timeseries[0].Data
	high := slices.MaxFunc(data, func(a, b *armmonitor.MetricValue) int { return int(*a.Maximum - *b.Maximum) })
	if len(data) < 72 || *high.Maximum < 88 || *data[30].Average < 15 {
		t.Errorf("%d points, the highest %v", len(data), *high.Maximum)
	}
	// Where nothing was said there is a load since the cache was made, and none before.
	cpu := got.Value[1].Timeseries[0].Data
	if cpu[0].Average != nil || cpu[len(cpu)-1].Average == nil || *cpu[len(cpu)-1].Average <= 0 {
		t.Errorf("cpu %v … %v", cpu[0].Average, cpu[len(cpu)-1].Average)
	}
	_, err := list("nonsense")
	refused(t, err, 400, "BadRequest")
}
