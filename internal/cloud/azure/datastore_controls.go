package azure

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/postgresql/armpostgresqlflexibleservers/v5"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// datastore reads the hardening controls of the job's server back.
func (c *controls) datastore(ctx context.Context) error {
	if c.r.Job.Mode == job.ModeAdopt {
		return nil // an adoption notes what is risky, and asks for nothing
	}
	spec, err := c.r.Job.DatastoreSpec()
	if err != nil {
		return err
	}
	f := flavourOf(spec.Engine)
	id := c.p.serverID(c.r, f)
	x, err := read[flexible](ctx, c.p, id)
	if pipeline.Is(err, pipeline.Denied, pipeline.NotFound) {
		c.unread("AZDB-01", "hardening of the server", err)
		return nil
	}
	if err != nil {
		return err
	}
	c.reachOfServer(x)
	c.upkeepOfServer(spec, x)
	for _, part := range []struct {
		id, name string
		read     func(context.Context, job.DatastoreSpec, flavour, string) error
	}{
		{"AZDB-03", "firewall rules", c.firewall}, {map[job.Engine]string{job.Postgres: "AZDB-06", job.MySQL: "AZDB-07"}[spec.Engine], "server parameters", c.parameters},
		{"AZDB-10", "Entra administrator", c.entra}, {"AZDB-29", "lock against deletion", c.protection},
	} {
		err := part.read(ctx, spec, f, id)
		switch {
		case pipeline.Is(err, pipeline.Denied, pipeline.NotFound, pipeline.Invalid):
			c.unread(part.id, part.name, err)
		case err != nil:
			return err
		}
	}
	return nil
}

// reachOfServer is who gets to the server at all.
func (c *controls) reachOfServer(x resource[flexible]) {
	f := x.is.Properties
	c.same("AZDB-01", "access from the internet", "Disabled", f.Network.Public, "CKV_AZURE_68, Azure Policy: public access disabled")
	inside := "neither subnet nor private endpoint"
	if slices.ContainsFunc(f.PrivateEndpoints, func(e struct {
		Properties struct {
			State struct {
				Status string `json:"status"`
			} `json:"privateLinkServiceConnectionState"`
		} `json:"properties"`
	}) bool {
		return e.Properties.State.Status == "Approved"
	}) {
		inside = "a private endpoint"
	}
	if f.Network.Subnet != "" {
		inside = "a subnet of its own"
	}
	c.add("AZDB-02", "where it stands in the network", "a subnet of its own, or an approved private endpoint", inside, !strings.HasPrefix(inside, "neither"), "CKV2_AZURE_56, CKV2_AZURE_57")
}

// upkeepOfServer is backups, standby, window and names.
func (c *controls) upkeepOfServer(spec job.DatastoreSpec, x resource[flexible]) {
	f := x.is.Properties
	c.add("AZDB-13", "days for which backups are kept", "7 or more", fmt.Sprint(f.Backup.Days), f.Backup.Days >= 7, "mirrors RDS.11")
	if spec.HA() {
		c.same("AZDB-15", "standby", "ZoneRedundant", f.HighAvailability.Mode, "Azure.PostgreSQL.ZoneRedundantHA, Azure.MySQL.ZoneRedundantHA")
	}
	custom := windowSeen(x.is)
	c.add("AZDB-27", "maintenance window", "one that was chosen", custom, strings.EqualFold(f.MaintenanceWindow.Custom, "Enabled"), "Azure.PostgreSQL.MaintenanceWindow, Azure.MySQL.MaintenanceWindow")
	c.add("AZDB-28", "product", "flexible server", lastName(x.Type), strings.EqualFold(lastName(x.Type), "flexibleServers"), "Azure.MySQL.UseFlexible")
	c.add("AZDB-31", "tags and names", "tags, and a valid name", fmt.Sprintf("%d tags, %s", len(x.Tags), x.Name), len(x.Tags) > 0 && validServer.MatchString(x.Name), "Azure.Resource.UseTags, Azure.PostgreSQL.ServerName")
}

// wide reports whether a range from one address to another is that of many: more
// than 65536 addresses.
func wide(from, to string) bool {
	a, errA := netip.ParseAddr(from)
	b, errB := netip.ParseAddr(to)
	if errA != nil || errB != nil || !a.Is4() || !b.Is4() {
		return false
	}
	lo, hi := a.As4(), b.As4()
	return binary.BigEndian.Uint32(hi[:])-binary.BigEndian.Uint32(lo[:]) > 1<<16
}

const mostFirewallRules = 10

// firewall reads the server's own rules, which count once it is public.
func (c *controls) firewall(ctx context.Context, _ job.DatastoreSpec, _ flavour, id string) error {
	rules, err := list[firewallRule](ctx, c.p, id+"/firewallRules")
	if err != nil && !pipeline.Is(err, pipeline.Invalid) { // a server in a subnet may have none at all, and says so
		return err
	}
	var open, tenants []string
	for _, x := range rules {
		if f := x.Properties; f.From == "0.0.0.0" && f.To == "0.0.0.0" {
			tenants = append(tenants, x.Name)
		} else if wide(f.From, f.To) {
			open = append(open, x.Name+": "+f.From+" to "+f.To)
		}
	}
	c.same("AZDB-03", "firewall rules for the internet", "none", agreed(open), "CKV2_AZURE_26, AZU-0029")
	c.same("AZDB-04", "firewall rules for every tenant of Azure", "none", agreed(tenants), "Azure.PostgreSQL.AllowAzureAccess, CIS Azure 5.2.5")
	c.add("AZDB-05", "number of firewall rules", fmt.Sprintf("%d at most", mostFirewallRules), fmt.Sprint(len(rules)), len(rules) <= mostFirewallRules, "Azure.PostgreSQL.FirewallRuleCount")
	return nil
}

// parameters reads the server parameters: as they are in force, so that one that
// waits for a restart does not count yet.
func (c *controls) parameters(ctx context.Context, spec job.DatastoreSpec, f flavour, id string) error {
	now, err := c.p.settings(ctx, id)
	if err != nil {
		return err
	}
	version := cmp.Or(c.infra.Datastore.Version, spec.Version)
	for _, x := range parameters(f.engine, version) {
		s, there := now[x.name]
		seen := s.Properties.Value
		switch {
		case !there:
			seen = "not there"
		case s.pending():
			seen += ", after a restart"
		}
		c.add(x.control, "parameter "+x.name, x.wanted, seen, there && !s.pending() && x.met(s.Properties.Value), x.source)
	}
	return nil
}

// entra reads who of the directory administers a PostgreSQL server.
func (c *controls) entra(ctx context.Context, _ job.DatastoreSpec, f flavour, id string) error {
	if f.engine != job.Postgres {
		return nil
	}
	x, err := read[flexible](ctx, c.p, id)
	if err != nil {
		return err
	}
	admins, err := list[resource[armpostgresqlflexibleservers.AdministratorMicrosoftEntra]](ctx, c.p, id+"/administrators")
	if err != nil {
		return err
	}
	auth := cmp.Or(x.is.Properties.AuthConfig.Entra, "Disabled")
	c.add("AZDB-10", "Entra authentication, with an administrator", "Enabled, one or more", fmt.Sprintf("%s, %d", auth, len(admins)), auth == "Enabled" && len(admins) > 0, "Azure.PostgreSQL.AAD")
	return nil
}

// protection reads the lock, where the job could make one: it is the only protection
// that there is, and takes rights that not every account gives.
func (c *controls) protection(ctx context.Context, spec job.DatastoreSpec, f flavour, id string) error {
	return c.lockRow(ctx, "AZDB-29", spec, id)
}

func (c *controls) lockRow(ctx context.Context, row string, spec job.DatastoreSpec, id string) error {
	if !spec.Protected() {
		return nil
	}
	if rec, ok := c.r.Object(kindLock, "datastore"); !ok || rec.State != job.ObjectCreated {
		c.rows = append(c.rows, job.Control{ID: row, Name: "lock against deletion", Wanted: lockLevel, Seen: "none: these credentials may not make one ('" + typeLock + "/write')", Unchecked: true, Source: "CIS Azure 6.2"})
		return nil
	}
	locked, err := c.p.lockedAgainstDeletion(ctx, id)
	if err != nil {
		return err
	}
	c.add(row, "lock against deletion", lockLevel, map[bool]string{true: lockLevel, false: "none"}[locked], locked, "CIS Azure 6.2")
	return nil
}

// cache reads the hardening controls of the job's cache back.
func (c *controls) cache(ctx context.Context) error {
	if c.r.Job.Mode == job.ModeAdopt {
		return nil
	}
	spec, err := c.r.Job.DatastoreSpec()
	if err != nil {
		return err
	}
	id := c.p.cacheID(c.r)
	x, err := read[managedRedis](ctx, c.p, id)
	if err == nil {
		err = c.cacheDatabase(ctx, spec)
	}
	if pipeline.Is(err, pipeline.Denied, pipeline.NotFound) {
		c.unread("AMR-01", "hardening of the cache", err)
		return nil
	}
	if err != nil {
		return err
	}
	f := x.is.Properties
	c.same("AMR-01", "access from the internet", "Disabled", f.Public, "CKV_AZURE_89, Azure.Redis.PublicNetworkAccess")
	var approved []string
	for _, e := range f.Endpoints {
		if e.Properties.State.Status == "Approved" {
			approved = append(approved, lastName(cmp.Or(e.Properties.Endpoint.ID, e.ID)))
		}
	}
	c.add("AMR-02", "approved private endpoints", "one or more", agreed(approved), len(approved) > 0, "Azure Policy: private link")
	c.add("AMR-04", "least TLS", "1.2", f.MinimumTLS, f.MinimumTLS == "1.2" || f.MinimumTLS == "1.3", "Azure.RedisEnterprise.MinTLS")
	if spec.ReplicaCount() > 0 {
		c.same("AMR-07", "high availability", "Enabled", f.HighAvailability, "CKV_AZURE_230, Azure.Redis.MinSKU")
		if zonal(c.r) {
			seen, met := agreed(x.Zones), len(x.Zones) > 1
			if f.Mode != "" { // the service's own word, whatever zones were asked for
				seen, met = "redundancy "+f.Mode, f.Mode == "ZR"
			}
			c.add("AMR-08", "zones", "two or more, redundancy ZR", seen, met, "Azure.RedisEnterprise.Zones")
		}
	}
	c.add("AMR-11", "product", "Managed Redis", x.is.SKU.Name, cacheClassRE.MatchString(x.is.SKU.Name), "Azure.Redis.MigrateAMR")
	c.add("AMR-16", "tags and names", "tags, and a valid name", fmt.Sprintf("%d tags, %s", len(x.Tags), x.Name), len(x.Tags) > 0 && validServer.MatchString(x.Name), "Azure.RedisEnterprise.Naming")
	if err := c.endpointSubnet(ctx); err != nil {
		return err
	}
	return c.lockRow(ctx, "AMR-15", spec, id)
}

func (c *controls) cacheDatabase(ctx context.Context, spec job.DatastoreSpec) error {
	id := databaseOf(c.p.cacheID(c.r))
	db, err := read[redisDatabase](ctx, c.p, id)
	if err != nil {
		return err
	}
	d := db.is.Properties
	c.same("AMR-03", "protocol of clients", "Encrypted", d.Protocol, "CKV_AZURE_91, Azure.Redis.NonSslPort")
	if !spec.AccessKeys {
		c.same("AMR-05", "access keys", "Disabled", cmp.Or(d.AccessKeys, "Disabled"), "Azure.Redis.LocalAuth")
	}
	c.add("AMR-10", "upgrades", "not deferred", fmt.Sprintf("%s, version %s", cmp.Or(d.Defer, "NotDeferred"), cmp.Or(d.Version, "of the service's choice")), d.Defer != "Deferred", "Azure.Redis.Version")
	if len(spec.Principals) == 0 {
		return nil
	}
	all, err := list[resource[redisAssignment]](ctx, c.p, id+"/accessPolicyAssignments")
	if err != nil {
		return err
	}
	var missing []string
	for _, who := range spec.Principals {
		if !slices.ContainsFunc(all, func(a resource[redisAssignment]) bool { return same(a.is.Properties.User.ObjectID, who) }) {
			missing = append(missing, who)
		}
	}
	c.same("AMR-06", "named principals without access", "none", agreed(missing), "Azure.Redis.EntraID")
	return nil
}

// endpointSubnet reads whether the subnet of the private endpoint has a group.
func (c *controls) endpointSubnet(ctx context.Context) error {
	subnet := dataSubnet(c.r.Job)
	if subnet == "" || c.r.Job.Mode != job.ModeCreate {
		return nil // somebody else's, of which Check has warned
	}
	x, err := read[armnetwork.Subnet](ctx, c.p, subnet)
	if err != nil {
		return err
	}
	f := value(x.is.Properties)
	seen := "none"
	if f.NetworkSecurityGroup != nil {
		seen = lastName(value(f.NetworkSecurityGroup.ID)) + ", counting for endpoints: " + yesNo(groupCounts(f))
	}
	c.add("AMR-12", "security group of the endpoint's subnet", "one that counts for endpoints", seen, f.NetworkSecurityGroup != nil && groupCounts(f), "CKV2_AZURE_31, Azure.VNET.UseNSGs")
	return nil
}
