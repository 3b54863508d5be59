package azure

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/postgresql/armpostgresqlflexibleservers/v5"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/privatedns/armprivatedns"

	"github.com/zopday/provisioner/internal/sim"
)

// heldServers notes what a cloud asks of its servers, and has databases as they would.
type heldServers struct {
	mu      sync.Mutex
	open    map[string]sim.DatabaseServer
	opened  int
	stopped map[string]bool
	names   map[string][]string
	users   map[string][]sim.DatabaseUser
}

func newHeldServers() *heldServers {
	return &heldServers{open: map[string]sim.DatabaseServer{}, stopped: map[string]bool{}, names: map[string][]string{}, users: map[string][]sim.DatabaseUser{}}
}

func (h *heldServers) Open(d sim.DatabaseServer) sim.DatabaseEndpoint {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.open[d.ID]; !ok {
		h.names[d.ID] = []string{"postgres"}
	}
	h.open[d.ID] = d
	h.opened++
	return sim.DatabaseEndpoint{Host: "127.0.0.1", Port: 40000 + len(h.open)}
}

func (h *heldServers) Close(id string) { h.mu.Lock(); defer h.mu.Unlock(); delete(h.open, id) }
func (h *heldServers) Stop(id string)  { h.mu.Lock(); defer h.mu.Unlock(); h.stopped[id] = true }
func (h *heldServers) Start(id string) { h.mu.Lock(); defer h.mu.Unlock(); h.stopped[id] = false }

func (h *heldServers) CreateDatabase(id, name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Contains(h.names[id], name) {
		h.names[id] = append(h.names[id], name)
	}
}

func (h *heldServers) DropDatabase(id, name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.names[id] = slices.DeleteFunc(h.names[id], func(n string) bool { return n == name })
}

func (h *heldServers) SetUser(id string, u sim.DatabaseUser) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.users[id] = append(h.users[id], u)
}

func (h *heldServers) DropUser(id, name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.users[id] = slices.DeleteFunc(h.users[id], func(u sim.DatabaseUser) bool { return u.Name == name })
}

func (h *heldServers) Query(context.Context, string, string, string, string, string) ([]string, [][]string, error) {
	return nil, nil, nil
}

func (h *heldServers) Names(id string) ([]string, []string, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.names[id]), nil, true
}

func (h *heldServers) Ready(string) (bool, error) { return true, nil }
func (h *heldServers) CA() []byte                 { return []byte("ca") }

func (h *heldServers) of(id string) (sim.DatabaseServer, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, at := range slices.Sorted(maps.Keys(h.open)) {
		if strings.EqualFold(at, id) {
			return h.open[at], true
		}
	}
	return sim.DatabaseServer{}, false
}

// withServers gives a rig servers.
func (g *rig) withServers() *heldServers {
	h := newHeldServers()
	g.cloud.opt.Databases, g.cloud.databases.lag = h, 0
	return h
}

const testPassword = "Str0ng-enough!"

// pgClients are those of PostgreSQL.
func (g *rig) pg() *armpostgresqlflexibleservers.ClientFactory {
	cred, opt := g.arm()
	return must(armpostgresqlflexibleservers.NewClientFactory(DefaultSubscription, cred, opt))(g.t)
}

func pgServer(change ...func(*armpostgresqlflexibleservers.Server)) armpostgresqlflexibleservers.Server {
	s := armpostgresqlflexibleservers.Server{Location: new("westus2"), Tags: map[string]*string{"owner": new("job")},
		SKU: &armpostgresqlflexibleservers.SKU{Name: new("Standard_D2ds_v5"), Tier: new(armpostgresqlflexibleservers.SKUTierGeneralPurpose)},
		Properties: &armpostgresqlflexibleservers.ServerProperties{AdministratorLogin: new("zopadmin"), AdministratorLoginPassword: new(testPassword),
			Version: new(armpostgresqlflexibleservers.PostgresMajorVersion("17")), Storage: &armpostgresqlflexibleservers.Storage{StorageSizeGB: new(int32(64))}}}
	for _, f := range change {
		f(&s)
	}
	return s
}

// databaseSubnet makes a network with a subnet for servers of a type, and a private zone.
func (g *rig) databaseSubnet(typ, prefix, zone string) (subnetID, zoneID string) {
	g.t.Helper()
	cred, opt := g.arm()
	nets := must(armnetwork.NewVirtualNetworksClient(DefaultSubscription, cred, opt))(g.t)
	p, err := nets.BeginCreateOrUpdate(g.ctx, "rg", "net", armnetwork.VirtualNetwork{Location: new("westus2"), Properties: &armnetwork.VirtualNetworkPropertiesFormat{
		AddressSpace: &armnetwork.AddressSpace{AddressPrefixes: []*string{new("10.0.0.0/16")}},
		Subnets: []*armnetwork.Subnet{{Name: new("db"), Properties: &armnetwork.SubnetPropertiesFormat{AddressPrefix: &prefix, Delegations: []*armnetwork.Delegation{
			{Name: new("d"), Properties: &armnetwork.ServiceDelegationPropertiesFormat{ServiceName: &typ}}}}}}}}, nil)
	done(g, p, err)
	zones := must(armprivatedns.NewPrivateZonesClient(DefaultSubscription, cred, opt))(g.t)
	z, err := zones.BeginCreateOrUpdate(g.ctx, "rg", zone, armprivatedns.PrivateZone{Location: new("global")}, nil)
	done(g, z, err)
	return groupPath("rg") + "virtualNetworks/net/subnets/db", groupPath("rg") + "privateDnsZones/" + zone
}

func TestPostgresLife(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	held := g.withServers()
	g.group("rg")
	subnet, zone := g.databaseSubnet(postgresType, "10.0.1.0/28", "db1.private.postgres.database.azure.com")
	servers := g.pg().NewServersClient()
	p, err := servers.BeginCreateOrUpdate(g.ctx, "rg", "db1", pgServer(func(s *armpostgresqlflexibleservers.Server) {
		s.Properties.Network = &armpostgresqlflexibleservers.Network{DelegatedSubnetResourceID: &subnet, PrivateDNSZoneArmResourceID: &zone}
		s.Properties.HighAvailability = &armpostgresqlflexibleservers.HighAvailability{Mode: new(armpostgresqlflexibleservers.HighAvailabilityModeZoneRedundant)}
	}), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := must(servers.Get(g.ctx, "rg", "db1", nil))(t); *got.Properties.State != "Provisioning" {
		t.Errorf("state %s while it is made", *got.Properties.State)
	}
	_, err = servers.BeginDelete(g.ctx, "rg", "db1", nil)
	refused(t, err, 409, "ServerIsBusy")
	done(g, p, nil)
	got := must(servers.Get(g.ctx, "rg", "db1", nil))(t)
	id := *got.ID
	if *got.Properties.State != "Ready" || !strings.HasPrefix(*got.Properties.FullyQualifiedDomainName, "127.0.0.1:4000") || *got.Properties.HighAvailability.State != "Healthy" || got.Properties.AdministratorLoginPassword != nil {
		t.Errorf("made %+v", got.Properties)
	}
	said, ok := held.of(id)
	if !ok || said.Password != testPassword || said.Admin != "zopadmin" || said.AdminRole != "azure_pg_admin" || !said.RequireTLS || said.Names[0] != "db1.postgres.database.azure.com" {
		t.Errorf("opened %v", ok)
	}
	if !said.Admits(sim.KubeCaller{Inside: true}) || said.Admits(sim.KubeCaller{}) {
		t.Error("a server in a network lets in whoever is inside, and nobody else")
	}
	t.Run("settings", func(t *testing.T) { g.pgSettings(t, held, id) })
	t.Run("databases", func(t *testing.T) { g.pgDatabases(t, held, id) })
	t.Run("containment", func(t *testing.T) { g.pgContainment(t, held, id, subnet) })
}

// pgSettings: a dynamic parameter holds at once, a static one after a restart.
func (g *rig) pgSettings(t *testing.T, held *heldServers, id string) {
	settings := g.pg().NewConfigurationsClient()
	put := func(name, value string) error {
		p, err := settings.BeginPut(g.ctx, "rg", "db1", name, armpostgresqlflexibleservers.ConfigurationForUpdate{
			Properties: &armpostgresqlflexibleservers.ConfigurationProperties{Value: &value, Source: new("user-override")}}, nil)
		_, err = wait(g, p, err)
		return err
	}
	g.world.Step(time.Minute)
	for _, c := range []struct{ name, value string }{{"require_secure_transport", "off"}, {"shared_preload_libraries", "pg_stat_statements,pgaudit"}} {
		if err := put(c.name, c.value); err != nil {
			t.Fatal(err)
		}
	}
	if said, _ := held.of(id); said.RequireTLS {
		t.Error("TLS is still required")
	}
	libs := must(settings.Get(g.ctx, "rg", "db1", "shared_preload_libraries", nil))(t)
	if !*libs.Properties.IsConfigPendingRestart || *libs.Properties.IsDynamicConfig {
		t.Errorf("a static parameter %+v", libs.Properties)
	}
	p, err := g.pg().NewServersClient().BeginRestart(g.ctx, "rg", "db1", nil)
	done(g, p, err)
	libs = must(settings.Get(g.ctx, "rg", "db1", "shared_preload_libraries", nil))(t)
	if *libs.Properties.IsConfigPendingRestart || *libs.Properties.Value != "pg_stat_statements,pgaudit" {
		t.Errorf("after a restart %+v", libs.Properties)
	}
	g.world.Step(time.Minute)
	refused(t, put("no_such_thing", "on"), 404, "ResourceNotFound")
	busy, err := g.pg().NewDatabasesClient().BeginCreate(g.ctx, "rg", "db1", "side", armpostgresqlflexibleservers.Database{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = settings.BeginPut(g.ctx, "rg", "db1", "log_statement", armpostgresqlflexibleservers.ConfigurationForUpdate{
		Properties: &armpostgresqlflexibleservers.ConfigurationProperties{Value: new("ddl"), Source: new("user-override")}}, nil)
	refused(t, err, 409, "ServerIsBusy")
	done(g, busy, nil)
	refused(t, put("log_connections", "maybe"), 400, "InvalidParameterValue")
	n := 0
	for pages := settings.NewListByServerPager("rg", "db1", nil); pages.More(); {
		n += len(must(pages.NextPage(g.ctx))(t).Value)
	}
	if n < 20 {
		t.Errorf("%d parameters", n)
	}
}

// pgDatabases: the control plane makes databases in the server, and lists what SQL has made.
func (g *rig) pgDatabases(t *testing.T, held *heldServers, id string) {
	dbs := g.pg().NewDatabasesClient()
	p, err := dbs.BeginCreate(g.ctx, "rg", "db1", "orders", armpostgresqlflexibleservers.Database{}, nil)
	done(g, p, err)
	held.mu.Lock()
	at := slices.Collect(maps.Keys(held.names))[0]
	held.mu.Unlock()
	if names, _, _ := held.Names(at); !slices.Contains(names, "orders") {
		t.Errorf("in the server: %v", names)
	}
	held.CreateDatabase(at, "by_sql")
	list := func() (names []string) {
		for pages := dbs.NewListByServerPager("rg", "db1", nil); pages.More(); {
			for _, d := range must(pages.NextPage(g.ctx))(t).Value {
				names = append(names, *d.Name)
			}
		}
		return names
	}
	if got := list(); !slices.Contains(got, "by_sql") || !slices.Contains(got, "orders") || !slices.Contains(got, "azure_sys") {
		t.Errorf("listed %v", got)
	}
	held.DropDatabase(at, "orders")
	if got := list(); slices.Contains(got, "orders") {
		t.Errorf("listed %v after it was dropped", got)
	}
	_, err = dbs.BeginDelete(g.ctx, "rg", "db1", "azure_maintenance", nil)
	refused(t, err, 400, "SystemDatabaseCannotBeDropped")
	_, err = dbs.BeginCreate(g.ctx, "rg", "db1", "template1", armpostgresqlflexibleservers.Database{}, nil)
	refused(t, err, 400, "InvalidDatabaseName")
}

// pgContainment: subnet and zone are held while the server is there, and for a while after.
func (g *rig) pgContainment(t *testing.T, held *heldServers, id, subnet string) {
	cred, opt := g.arm()
	subnets := must(armnetwork.NewSubnetsClient(DefaultSubscription, cred, opt))(t)
	zones := must(armprivatedns.NewPrivateZonesClient(DefaultSubscription, cred, opt))(t)
	held1 := func(when string) {
		t.Helper()
		_, err := subnets.BeginDelete(g.ctx, "rg", "net", "db", nil)
		refused(t, err, 400, "InUseSubnetCannotBeDeleted")
		_, err = zones.BeginDelete(g.ctx, "rg", "db1.private.postgres.database.azure.com", nil)
		refused(t, err, 409, "CannotDeleteResource")
	}
	held1("while it is there")
	got := must(subnets.Get(g.ctx, "rg", "net", "db", nil))(t)
	if len(got.Properties.ServiceAssociationLinks) != 1 || len(got.Properties.IPConfigurations) != 0 {
		t.Errorf("the subnet shows %d links and %d addresses", len(got.Properties.ServiceAssociationLinks), len(got.Properties.IPConfigurations))
	}
	p, err := g.pg().NewServersClient().BeginDelete(g.ctx, "rg", "db1", nil)
	done(g, p, err)
	if _, ok := held.of(id); ok {
		t.Error("the server goes on")
	}
	_, err = g.pg().NewServersClient().Get(g.ctx, "rg", "db1", nil)
	refused(t, err, 404, "ResourceNotFound")
	held1("right after")
	g.world.Step(5 * time.Minute)
	s, err := subnets.BeginDelete(g.ctx, "rg", "net", "db", nil)
	done(g, s, err)
	z, err := zones.BeginDelete(g.ctx, "rg", "db1.private.postgres.database.azure.com", nil)
	done(g, z, err)
}

// caller is somebody at a public address.
func caller(ip string) sim.KubeCaller { return sim.KubeCaller{IP: netip.MustParseAddr(ip)} }

// TestServersAreResumed: a simulation that takes up saved state opens its servers again.
func TestServersAreResumed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := newRig(t)
	g.withServers()
	stop := must(g.world.Persist(t.Context(), dir))(t)
	g.group("rg")
	made, err := g.makePG("db1")
	if err != nil {
		t.Fatal(err)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	again := newRig(t)
	held := again.withServers()
	stop = must(again.world.Persist(t.Context(), dir))(t)
	defer func() { _ = stop() }()
	if said, ok := held.of(*made.ID); !ok || said.Password != testPassword {
		t.Errorf("opened again: %v", ok)
	}
}
