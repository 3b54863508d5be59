package azure

import (
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/mysql/armmysqlflexibleservers/v2"
	pg "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/postgresql/armpostgresqlflexibleservers/v5"

	"github.com/zopday/provisioner/internal/sim"
)

// makePG makes a server of PostgreSQL, or says why not.
func (g *rig) makePG(name string, change ...func(*pg.Server)) (pg.ServersClientCreateOrUpdateResponse, error) {
	g.t.Helper()
	p, err := g.pg().NewServersClient().BeginCreateOrUpdate(g.ctx, "rg", name, pgServer(change...), nil)
	return wait(g, p, err)
}

func TestPostgresRefusals(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	props := func(f func(*pg.ServerProperties)) func(*pg.Server) { return func(s *pg.Server) { f(s.Properties) } }
	ha := &pg.HighAvailability{Mode: new(pg.HighAvailabilityModeZoneRedundant)}
	for _, c := range []struct {
		name, code string
		status     int
		change     func(*pg.Server)
	}{
		{"Upper", "InvalidServerName", 400, func(*pg.Server) {}},
		{"a", "InvalidServerName", 400, func(*pg.Server) {}},
		{"login", "InvalidParameterValue", 400, props(func(p *pg.ServerProperties) { p.AdministratorLogin = new("azure_superuser") })},
		{"login2", "InvalidParameterValue", 400, props(func(p *pg.ServerProperties) { p.AdministratorLogin = new("pg_boss") })},
		{"nologin", "MissingRequiredParameter", 400, props(func(p *pg.ServerProperties) { p.AdministratorLogin = nil })},
		{"short", "PasswordNotComplex", 400, props(func(p *pg.ServerProperties) { p.AdministratorLoginPassword = new("Sh0rt!") })},
		{"plain", "PasswordNotComplex", 400, props(func(p *pg.ServerProperties) { p.AdministratorLoginPassword = new("alllowercase") })},
		{"named", "PasswordNotComplex", 400, props(func(p *pg.ServerProperties) { p.AdministratorLoginPassword = new("xZopAdmin-123") })},
		{"version", "InvalidParameterValue", 400, props(func(p *pg.ServerProperties) { p.Version = new(pg.PostgresMajorVersion("21")) })},
		{"sku", "InvalidParameterValue", 400, func(s *pg.Server) { s.SKU.Name = new("Standard_D3ds_v5") }},
		{"tier", "InvalidParameterValue", 400, func(s *pg.Server) { s.SKU.Tier = new(pg.SKUTierBurstable) }},
		{"disk", "InvalidParameterValue", 400, props(func(p *pg.ServerProperties) { p.Storage.StorageSizeGB = new(int32(100)) })},
		{"retention", "InvalidParameterValue", 400, props(func(p *pg.ServerProperties) { p.Backup = &pg.Backup{BackupRetentionDays: new(int32(3))} })},
		{"burst-ha", "HighAvailabilityNotSupportedForBurstable", 400, func(s *pg.Server) {
			s.SKU = &pg.SKU{Name: new("Standard_B1ms"), Tier: new(pg.SKUTierBurstable)}
			s.Properties.HighAvailability = ha
		}},
		{"no-zones", "ZoneRedundantHANotSupportedInRegion", 400, func(s *pg.Server) { s.Location = new("westus"); s.Properties.HighAvailability = ha }},
		{"zone-only", "ConflictingPublicNetworkAccessAndVirtualNetworkConfiguration", 400, props(func(p *pg.ServerProperties) {
			p.Network = &pg.Network{PrivateDNSZoneArmResourceID: new(groupPath("rg") + "privateDnsZones/x")}
		})},
	} {
		_, err := g.makePG(c.name, c.change)
		if re := refused(t, err, c.status, c.code); strings.Contains(re.Error(), testPassword) {
			t.Errorf("%s: a password in the refusal", c.name)
		}
	}
}

func TestPostgresNetworkRefusals(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	subnet, zone := g.databaseSubnet(postgresType, "10.0.1.0/29", "db1.postgres.database.azure.com")
	in := func(subnet, zone string) func(*pg.Server) {
		return func(s *pg.Server) {
			s.Properties.Network = &pg.Network{DelegatedSubnetResourceID: &subnet, PrivateDNSZoneArmResourceID: &zone}
		}
	}
	p := g.raw()
	put := func(name, prefix, service string) string {
		id := groupPath("rg") + "virtualNetworks/net/subnets/" + name
		body := doc{"addressPrefix": prefix}
		if service != "" {
			body["delegations"] = []any{map[string]any{"name": "d", "properties": map[string]any{"serviceName": service}}}
		}
		p.put(id, map[string]any{"properties": map[string]any(body)})
		return id
	}
	good, plain, mysql := put("good", "10.0.2.0/28", postgresType), put("plain", "10.0.3.0/24", ""), put("mysql", "10.0.4.0/24", mysqlType)
	for _, c := range []struct{ subnet, zone, code string }{
		{subnet, zone, "DelegatedSubnetTooSmall"}, {plain, zone, "SubnetMissingRequiredDelegation"}, {mysql, zone, "SubnetMissingRequiredDelegation"},
		{good + "x", zone, "VNetSubnetNotFound"}, {good, zone + "x", "PrivateDnsZoneNotFound"}, {good, "", "EmptyPrivateDnsZoneArguments"},
	} {
		_, err := g.makePG("db9", in(c.subnet, c.zone))
		refused(t, err, 400, c.code)
	}
	_, err := g.makePG("db9", in(good, zone), func(s *pg.Server) {
		s.Properties.Network.PublicNetworkAccess = new(pg.ServerPublicNetworkAccessStateEnabled)
	})
	refused(t, err, 400, "ConflictingPublicNetworkAccessAndVirtualNetworkConfiguration")
	// A zone with the server's own name is found to be wrong after a minute.
	began := g.world.Clock.Now()
	_, err = g.makePG("db1", in(good, zone))
	if err == nil || !strings.Contains(err.Error(), "PrivateDnsZoneNameNotValid") || g.world.Clock.Now().Sub(began) < time.Minute {
		t.Errorf("after %v: %v", g.world.Clock.Now().Sub(began), err)
	}
	_, err = g.pg().NewServersClient().Get(g.ctx, "rg", "db1", nil)
	refused(t, err, 404, "ResourceNotFound")
	if _, err = g.makePG("db2", in(good, zone)); err != nil {
		t.Fatal(err)
	}
	if _, err = g.makePG("db3", in(good, zone)); err != nil {
		t.Errorf("a second server in the subnet: %v", err)
	}
}

func TestPostgresChanges(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	held := g.withServers()
	g.group("rg")
	servers := g.pg().NewServersClient()
	made, err := g.makePG("db1")
	if err != nil {
		t.Fatal(err)
	}
	patch := func(s pg.ServerForPatch) error {
		p, err := servers.BeginUpdate(g.ctx, "rg", "db1", s, nil)
		_, err = wait(g, p, err)
		return err
	}
	refused(t, patch(pg.ServerForPatch{Properties: &pg.ServerPropertiesForPatch{Storage: &pg.Storage{StorageSizeGB: new(int32(32))}}}), 400, "StorageSizeCannotBeDecreased")
	refused(t, patch(pg.ServerForPatch{Properties: &pg.ServerPropertiesForPatch{AdministratorLogin: new("other")}}), 400, "PropertyCannotBeUpdated")
	if err := patch(pg.ServerForPatch{Tags: map[string]*string{"k": new("v")}, Properties: &pg.ServerPropertiesForPatch{AdministratorLoginPassword: new("An0ther-one!")}}); err != nil {
		t.Fatal(err)
	}
	if said, _ := held.of(*made.ID); said.Password != "An0ther-one!" || said.Admin != "zopadmin" {
		t.Error("the server did not get the new password")
	}
	// Public servers let in whom their firewall rules name.
	rules := g.pg().NewFirewallRulesClient()
	rp, err := rules.BeginCreateOrUpdate(g.ctx, "rg", "db1", "office", pg.FirewallRule{Properties: &pg.FirewallRuleProperties{StartIPAddress: new("203.0.113.0"), EndIPAddress: new("203.0.113.255")}}, nil)
	done(g, rp, err)
	said, _ := held.of(*made.ID)
	if !said.Admits(caller("203.0.113.7")) || said.Admits(caller("198.51.100.1")) {
		t.Error("the firewall rule does not decide")
	}
	_, err = rules.BeginCreateOrUpdate(g.ctx, "rg", "db1", "bad", pg.FirewallRule{Properties: &pg.FirewallRuleProperties{StartIPAddress: new("9.9.9.9"), EndIPAddress: new("1.1.1.1")}}, nil)
	refused(t, err, 400, "InvalidParameterValue")
	_, err = g.pg().NewAdministratorsMicrosoftEntraClient().BeginCreateOrUpdate(g.ctx, "rg", "db1", "11111111-1111-4111-8111-111111111111", pg.AdministratorMicrosoftEntraAdd{
		Properties: &pg.AdministratorMicrosoftEntraPropertiesForAdd{PrincipalName: new("team"), PrincipalType: new(pg.PrincipalTypeGroup), TenantID: new(DefaultTenant)}}, nil)
	refused(t, err, 400, "AadAuthIsNotEnabled")
	sp, err := servers.BeginStop(g.ctx, "rg", "db1", nil)
	done(g, sp, err)
	if !held.stopped[*made.ID] {
		t.Error("the server goes on")
	}
	_, err = servers.BeginRestart(g.ctx, "rg", "db1", nil)
	refused(t, err, 409, "ServerIsNotReady")
	st, err := servers.BeginStart(g.ctx, "rg", "db1", nil)
	done(g, st, err)
	if held.stopped[*made.ID] {
		t.Error("the server does not start")
	}
	// A lock holds a server, and nothing of it is touched.
	lock := *made.ID + "/providers/Microsoft.Authorization/locks/keep"
	g.raw().put(lock, map[string]any{"properties": map[string]any{"level": "CanNotDelete"}})
	_, err = servers.BeginDelete(g.ctx, "rg", "db1", nil)
	refused(t, err, 409, "ScopeLocked")
}

func TestPostgresNames(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	servers, names := g.pg().NewServersClient(), g.pg().NewNameAvailabilityClient()
	free := func(name string) bool {
		got := must(names.CheckWithLocation(g.ctx, "westus2", pg.CheckNameAvailabilityRequest{Name: &name, Type: new(postgresType)}, nil))(t)
		return *got.NameAvailable
	}
	if _, err := g.makePG("db1"); err != nil {
		t.Fatal(err)
	}
	g.raw().put(groupID(OtherSubscription, "theirs"), map[string]any{"location": "westus2"})
	g.raw().put(groupID(OtherSubscription, "theirs")+"/providers/"+postgresType+"/taken", map[string]any{"location": "westus2", "sku": map[string]any{"name": "Standard_B1ms", "tier": "Burstable"},
		"properties": map[string]any{"administratorLogin": "someone", "administratorLoginPassword": testPassword, "version": "16"}})
	_, err := g.makePG("taken")
	refused(t, err, 409, "ServerNameAlreadyExists")
	if free("db1") || free("taken") || !free("db2") || free("Not-Valid-") {
		t.Error("availability of names")
	}
	d, err := servers.BeginDelete(g.ctx, "rg", "db1", nil)
	done(g, d, err)
	g.world.SetQuota("azure", "postgresql", "NameHoldDays", "", "", 5)
	_, err = g.makePG("db1")
	refused(t, err, 409, "ServerNameAlreadyExists")
	g.world.Step(5 * 24 * time.Hour)
	g.fault(sim.Fault{Kind: sim.FaultNameHeld, Service: "postgresql"})
	_, err = g.makePG("db1")
	refused(t, err, 409, "ServerNameAlreadyExists")
	if _, err := g.makePG("db1"); err != nil {
		t.Errorf("the name is not free again: %v", err)
	}
}

func TestPostgresFailures(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	held := g.withServers()
	g.group("rg")
	servers := g.pg().NewServersClient()
	g.fault(sim.Fault{Kind: sim.FaultOpFailed, Service: "postgresql", Code: "ProvisioningServerBusy", Message: "Server db1 is busy with other operations. Please try later"})
	_, err := g.makePG("db1")
	if err == nil || !strings.Contains(err.Error(), "ProvisioningServerBusy") {
		t.Errorf("the failed operation: %v", err)
	}
	got := must(servers.Get(g.ctx, "rg", "db1", nil))(t)
	if _, ok := held.of(*got.ID); ok || *got.Properties.State != "Disabled" {
		t.Errorf("after the failure: %s", *got.Properties.State)
	}
	if again, err := g.makePG("db1"); err != nil || *again.Properties.State != "Ready" {
		t.Errorf("again: %v", err)
	}
	g.fault(sim.Fault{Kind: sim.FaultCapacity, Service: "postgresql"})
	_, err = g.makePG("db2")
	refused(t, err, 400, "LocationIsOfferRestricted")
	g.world.SetQuota("azure", "postgresql", "vCores", "", "", 3)
	_, err = g.makePG("db2")
	refused(t, err, 400, "QuotaExceeded")
	// A server that somebody breaks shows it, and the world can put it right again.
	if _, err := g.world.AddFault(sim.Fault{Kind: sim.FaultTransition, Match: "db1", State: "Inaccessible"}); err != nil {
		t.Fatal(err)
	}
	g.world.Step(time.Second)
	if got := must(servers.Get(g.ctx, "rg", "db1", nil))(t); *got.Properties.State != "Inaccessible" {
		t.Errorf("state %s", *got.Properties.State)
	}
}

func TestPostgresBackups(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	backups, servers := g.pg().NewBackupsAutomaticAndOnDemandClient(), g.pg().NewServersClient()
	made, err := g.makePG("db1")
	if err != nil {
		t.Fatal(err)
	}
	g.world.Step(10 * 24 * time.Hour)
	list := func() (automatic, demanded int) {
		for pages := backups.NewListByServerPager("rg", "db1", nil); pages.More(); {
			for _, b := range must(pages.NextPage(g.ctx))(t).Value {
				if *b.Properties.BackupType == pg.BackupTypeFull {
					automatic++
				} else {
					demanded++
				}
			}
		}
		return automatic, demanded
	}
	b, err := backups.BeginCreate(g.ctx, "rg", "db1", "final", nil)
	done(g, b, err)
	if automatic, demanded := list(); automatic < 7 || automatic > 8 || demanded != 1 {
		t.Errorf("%d automatic, %d on demand", automatic, demanded)
	}
	_, err = backups.BeginCreate(g.ctx, "rg", "db1", "final", nil)
	refused(t, err, 409, "BackupAlreadyExists")
	replica, err := g.makePG("db1r", func(s *pg.Server) {
		s.Properties = &pg.ServerProperties{CreateMode: new(pg.CreateModeReplica), SourceServerResourceID: made.ID}
	})
	if err != nil || *replica.Properties.ReplicationRole != pg.ReplicationRoleAsyncReplica {
		t.Fatalf("replica: %v", err)
	}
	if page := must(g.pg().NewReplicasClient().NewListByServerPager("rg", "db1", nil).NextPage(g.ctx))(t); len(page.Value) != 1 {
		t.Errorf("%d replicas", len(page.Value))
	}
	_, err = servers.BeginDelete(g.ctx, "rg", "db1", nil)
	refused(t, err, 409, "OperationNotAllowed")
	for _, name := range []string{"db1r", "db1"} {
		d, err := servers.BeginDelete(g.ctx, "rg", name, nil)
		done(g, d, err)
	}
	revive := func(name string) error {
		_, err := g.makePG(name, func(s *pg.Server) {
			s.SKU = nil
			s.Properties = &pg.ServerProperties{CreateMode: new(pg.CreateModeReviveDropped), SourceServerResourceID: made.ID}
		})
		return err
	}
	if err := revive("back"); err != nil {
		t.Errorf("a dropped server is not revived: %v", err)
	}
	g.world.Step(6 * 24 * time.Hour)
	refused(t, revive("late"), 404, "SourceServerNotFound")
}

func TestMySQLLife(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	held := g.withServers()
	g.group("rg")
	subnet, zone := g.databaseSubnet(mysqlType, "10.0.1.0/29", "private.mysql.database.azure.com")
	cred, opt := g.arm()
	f := must(armmysqlflexibleservers.NewClientFactory(DefaultSubscription, cred, opt))(t)
	servers, settings := f.NewServersClient(), f.NewConfigurationsClient()
	body := armmysqlflexibleservers.Server{Location: new("westus2"), SKU: &armmysqlflexibleservers.MySQLServerSKU{Name: new("Standard_D2ads_v5"), Tier: new(armmysqlflexibleservers.ServerSKUTierGeneralPurpose)},
		Properties: &armmysqlflexibleservers.ServerProperties{AdministratorLogin: new("zopadmin"), AdministratorLoginPassword: new(testPassword), Version: new(armmysqlflexibleservers.ServerVersion("8.4")),
			Storage: &armmysqlflexibleservers.Storage{StorageSizeGB: new(int32(40)), AutoGrow: new(armmysqlflexibleservers.EnableStatusEnumEnabled)},
			Network: &armmysqlflexibleservers.Network{DelegatedSubnetResourceID: &subnet, PrivateDNSZoneResourceID: &zone}}}
	p, err := servers.BeginCreate(g.ctx, "rg", "my1", body, nil)
	made := done(g, p, err)
	if *made.Properties.State != armmysqlflexibleservers.ServerStateReady || *made.Properties.DatabasePort != 40001 || *made.Properties.FullVersion != "8.4.6" {
		t.Errorf("made %+v", made.Properties)
	}
	said, ok := held.of(*made.ID)
	if !ok || said.Engine != "mysql" || said.Names[0] != "my1.mysql.database.azure.com" || !said.RequireTLS {
		t.Errorf("opened %v", ok)
	}
	g.world.Step(time.Minute)
	batch, err := settings.BeginBatchUpdate(g.ctx, "rg", "my1", armmysqlflexibleservers.ConfigurationListForBatchUpdate{Value: []*armmysqlflexibleservers.ConfigurationForBatchUpdate{
		{Name: new("audit_log_enabled"), Properties: &armmysqlflexibleservers.ConfigurationForBatchUpdateProperties{Value: new("ON"), Source: new("user-override")}},
		{Name: new("tls_version"), Properties: &armmysqlflexibleservers.ConfigurationForBatchUpdateProperties{Value: new("TLSv1.3"), Source: new("user-override")}}}}, nil)
	done(g, batch, err)
	audit, tls := must(settings.Get(g.ctx, "rg", "my1", "audit_log_enabled", nil))(t), must(settings.Get(g.ctx, "rg", "my1", "tls_version", nil))(t)
	if *audit.Properties.CurrentValue != "ON" || *tls.Properties.CurrentValue != "TLSv1.2" || *tls.Properties.IsConfigPendingRestart != armmysqlflexibleservers.IsConfigPendingRestartTrue {
		t.Errorf("audit %s, tls %s %s", *audit.Properties.CurrentValue, *tls.Properties.CurrentValue, *tls.Properties.IsConfigPendingRestart)
	}
	dbs := f.NewDatabasesClient()
	dp, err := dbs.BeginCreateOrUpdate(g.ctx, "rg", "my1", "orders", armmysqlflexibleservers.Database{Properties: &armmysqlflexibleservers.DatabaseProperties{}}, nil)
	if db := done(g, dp, err); *db.Properties.Charset != "utf8mb4" {
		t.Errorf("charset %s", *db.Properties.Charset)
	}
	if b := must(f.NewBackupsClient().Put(g.ctx, "rg", "my1", "final", nil))(t); *b.Name != "final" {
		t.Errorf("backup %+v", b)
	}
	dropped, err := dbs.BeginDelete(g.ctx, "rg", "my1", "orders", nil)
	done(g, dropped, err)
	for id, names := range held.names {
		if strings.Contains(strings.Join(names, " "), "orders") {
			t.Errorf("%s still has %v", id, names)
		}
	}
	dl, err := servers.BeginDelete(g.ctx, "rg", "my1", nil)
	done(g, dl, err)
	if _, ok := held.of(*made.ID); ok {
		t.Error("the server goes on")
	}
}

func TestFlexCapabilities(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	cred, opt := g.arm()
	got := must(g.pg().NewCapabilitiesByLocationClient().NewListPager("westus2", nil).NextPage(g.ctx))(t).Value[0]
	if len(got.SupportedServerEditions) != 3 || *got.Restricted != pg.LocationRestrictedDisabled || *got.SupportedServerEditions[1].SupportedServerSKUs[0].SupportedMemoryPerVcoreMb != 4096 {
		t.Errorf("PostgreSQL: %+v", got)
	}
	available := 0
	for _, v := range got.SupportedServerVersions {
		if *v.Status == pg.CapabilityStatusAvailable || *v.Status == pg.CapabilityStatusDefault {
			available++
		}
	}
	if available != 4 {
		t.Errorf("%d versions of PostgreSQL are available", available)
	}
	f := must(armmysqlflexibleservers.NewClientFactory(DefaultSubscription, cred, opt))(t)
	set := must(f.NewLocationBasedCapabilitySetClient().Get(g.ctx, "westus2", "default", nil))(t)
	if n := len(set.Properties.SupportedServerVersions); n != 3 || *set.Properties.SupportedFlexibleServerEditions[0].SupportedSKUs[0].Name != "Standard_B1ms" {
		t.Errorf("MySQL: %d versions", n)
	}
	if page := must(f.NewLocationBasedCapabilitiesClient().NewListPager("westus2", nil).NextPage(g.ctx))(t); len(page.Value) != 4 {
		t.Errorf("MySQL: %d zones", len(page.Value))
	}
	if u := must(g.pg().NewQuotaUsagesClient().NewListPager("westus2", nil).NextPage(g.ctx))(t); *u.Value[0].Limit != 200 {
		t.Errorf("usages %+v", u.Value[0])
	}
	_, err := g.pg().NewCapabilitiesByLocationClient().NewListPager("nowhere", nil).NextPage(g.ctx)
	refused(t, err, 400, "LocationNotAvailableForResourceType")
}
