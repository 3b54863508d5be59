package gcp

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A datastoreChecker asks what a datastore or cache job's own steps depend on,
// beside its network, and leaves in InfraConfig.Datastore what it resolved.
type datastoreChecker struct {
	*checker
	spec job.DatastoreSpec
	info *job.DatastoreInfo
}

// forDatastore checks a datastore or cache job.
func (c *checker) forDatastore(ctx context.Context) error {
	spec, err := c.r.Job.DatastoreSpec()
	if err != nil {
		c.fails("request", "config.spec", err.Error(), "Put the request right.")
		return nil
	}
	k := &datastoreChecker{checker: c, spec: spec, info: &c.ic.Datastore}
	if c.r.Job.Mode == job.ModeAdopt {
		return k.adopt(ctx)
	}
	c.labels()
	c.names("", "private", "database", "firewall-deny", keyServicesRange, adminKey)
	k.name()
	if err := c.place(ctx); err != nil {
		return err
	}
	k.zones()
	k.kept()
	parts := []func(context.Context) error{k.access}
	switch k.info.Engine {
	case job.Redis:
		parts = append(parts, k.redisVersion)
		k.redisSize()
	case job.Valkey:
		parts = append(parts, k.valkeyVersion)
		k.valkeySize()
	default:
		parts = append(parts, k.version, k.class)
	}
	if c.r.Job.Mode == job.ModeCreate {
		parts = append(parts, c.network, c.quotas)
	} else {
		parts = append(parts, k.named)
	}
	return c.side(ctx, parts...)
}

// settled reports whether what was resolved has been used: it stays then.
func (k *datastoreChecker) settled() bool {
	made := func(kind string) bool { return made(k.r, kind, datastoreKey) }
	return k.r.Mode == pipeline.Verify || k.info.Version != "" && (made(kindSQL) || made(kindRedis) || made(kindValkey))
}

// name settles what the datastore is called, and proves that the service takes it:
// Cloud SQL counts the project's ID too (failure kind C7).
func (k *datastoreChecker) name() {
	const check = "datastore name"
	if !k.settled() {
		settleName(k.r, k.spec)
		k.info.AdminUser = k.spec.AdminUser
	}
	if all := k.p.project + ":" + k.info.Name; !k.info.Engine.Cache() && len(all) > 98 {
		k.fails(check, "name", fmt.Sprintf("%s has %d characters, and Cloud SQL takes 98 for project and instance", all, len(all)), "Give the job a shorter name.")
		return
	}
	k.ok(check, "%s", k.info.Name)
}

// zones says whether there is a second zone for a standby (failure kind J2).
func (k *datastoreChecker) zones() {
	const check = "zones for a standby"
	if len(k.ic.Zones) == 0 {
		return // the check of the region says why
	}
	switch {
	case !k.spec.HA() && k.spec.ReplicaCount() == 0:
	case len(k.ic.Zones) < 2:
		k.fails(check, "config.spec.highAvailability", fmt.Sprintf("%s has %d zone that is up, and a standby needs a second one", k.p.region, len(k.ic.Zones)), "Set highAvailability to false, or use another region.")
	default:
		k.ok(check, "%s", strings.Join(k.ic.Zones, ", "))
	}
}

// kept says what the service keeps otherwise than the spec's words suggest.
func (k *datastoreChecker) kept() {
	const check = "what is kept"
	switch {
	case k.info.Engine == job.Redis:
		k.warn(check, "config.spec.backupRetentionDays", "Memorystore for Redis keeps one snapshot of memory, to restart from, and no history: nothing is left of it after a deletion", "Export it to a bucket before a deletion (gcloud redis instances export), if its content matters.")
	case k.info.Engine == job.Valkey || k.spec.BackupRetentionDays <= 7:
	default:
		k.warn(check, "config.spec.backupRetentionDays", fmt.Sprintf("backups are kept for %d days; to any second of the last 7 alone can an instance of the Enterprise edition be restored", k.spec.BackupRetentionDays), "")
	}
	if len(k.spec.Access) > 0 {
		k.warn("who may connect", "config.spec.access", "Google's managed datastores are reached from the whole network that they are connected to: the ranges of access neither narrow nor widen that",
			"Leave it out; a range behind a VPN or a peering needs its routes exported over the services' peering.")
	}
}

// access asks whether the services are on and the credentials allowed what the
// steps do.
func (k *datastoreChecker) access(ctx context.Context) error {
	apis := []string{"compute.googleapis.com", "cloudresourcemanager.googleapis.com"}
	var want []string
	each := func(collection string, verbs ...string) {
		for _, v := range verbs {
			want = append(want, collection+"."+v)
		}
	}
	switch k.info.Engine {
	case job.Redis:
		apis = append(apis, "redis.googleapis.com", "servicenetworking.googleapis.com")
		each("redis.instances", "create", "delete", "get", "list", "getAuthString")
		each("redis.operations", "get", "list")
	case job.Valkey:
		apis = append(apis, "memorystore.googleapis.com", "networkconnectivity.googleapis.com")
		each("memorystore.instances", "create", "delete", "get", "list", "update")
		each("memorystore.operations", "get", "list")
		each("networkconnectivity.serviceConnectionPolicies", "create", "delete", "get", "list")
	default:
		apis = append(apis, "sqladmin.googleapis.com", "servicenetworking.googleapis.com", "secretmanager.googleapis.com")
		each("cloudsql.instances", "create", "delete", "get", "list", "update", "executeSql")
		each("cloudsql.users", "create", "delete", "list", "update")
		each("cloudsql.databases", "create", "delete", "list")
		each("secretmanager.secrets", "create", "delete", "get", "list")
		each("secretmanager.versions", "access", "add", "get", "list")
	}
	parts := []func(context.Context) error{
		func(ctx context.Context) error { return k.enabled(ctx, apis) },
		func(ctx context.Context) error { return k.permitted(ctx, "permissions for the datastore", want) },
	}
	if k.r.Job.Mode == job.ModeCreate {
		parts = append(parts, k.permissions)
	}
	return k.side(ctx, parts...)
}

// named checks the network that the job builds in: that it is there, and connected
// to Google's services already, since nothing of it is changed.
func (k *datastoreChecker) named(ctx context.Context) error {
	const check, field = "named network", "config.spec.existing"
	named, err := k.r.Job.Existing()
	if err != nil {
		return err
	}
	id := k.p.networkID(named.NetworkID)
	if projectOf(id) != k.p.project {
		k.fails(check, field+".networkId", fmt.Sprintf("%s is in project %s, and the job is in %s", named.NetworkID, projectOf(id), k.p.project), "Make the job in the project that holds the network.")
		return nil
	}
	net, err := k.p.existing(ctx, named.NetworkID)
	switch {
	case pipeline.Is(err, pipeline.NotFound):
		k.fails(check, field+".networkId", fmt.Sprintf("network %s does not exist in project %s", named.NetworkID, k.p.project), "Name a network that exists.")
		return nil
	case err != nil:
		return k.unchecked(ctx, check, field, err)
	}
	if mode := subnetMode(net.network); mode == "legacy" || net.network.Name == "default" {
		k.fails(check, field+".networkId", fmt.Sprintf("network %s is the default one or a legacy one, where everything reaches everything (MS-07)", net.network.Name), "Name a VPC network of its own.")
		return nil
	}
	_, faults := net.named(k.p, named.SubnetIDs)
	for _, f := range faults {
		k.fails(check, field+".subnetIds", f, "Name subnets of that network in "+k.p.region+", or leave them out: the datastore is in none of them.")
	}
	if k.info.Engine == job.Valkey {
		return k.valkeyPolicy(ctx, id, named.SubnetIDs)
	}
	return k.privateServices(ctx, id)
}

// privateServices is the check of the network's own connection.
func (k *datastoreChecker) privateServices(ctx context.Context, network string) error {
	const check, field = "private services access", "config.spec.existing.networkId"
	all, err := k.p.connections(ctx, network)
	if err != nil {
		return k.unchecked(ctx, check, field, err)
	}
	var given []string
	for _, c := range all {
		given = append(given, c.ReservedPeeringRanges...)
	}
	if len(given) == 0 {
		k.fails(check, field, fmt.Sprintf("network %s has no private services access, by which %s is reached", base(network), k.info.Engine.Title()), connectCommands(network)+".")
		return nil
	}
	k.ok(check, "%s", sorted(given))
	return nil
}

// nearest are the versions next to one that is not offered, for a person to choose
// from (failure kind O7).
func nearest(offered []string, want string) string {
	all := slices.Clone(offered)
	slices.SortFunc(all, compareVersions)
	at, _ := slices.BinarySearchFunc(all, want, compareVersions)
	return strings.Join(all[max(at-2, 0):min(at+2, len(all))], ", ")
}

// pickVersion is the newest version that is offered of a major one, such as 8.4 of
// 8; what is offered as it is stays so.
func pickVersion(offered []string, want string) string {
	if slices.Contains(offered, want) {
		return want
	}
	best := want
	for _, v := range offered {
		if strings.HasPrefix(v, want+".") && (best == want || compareVersions(v, best) > 0) && strings.Count(v, ".") == 1 {
			best = v
		}
	}
	return best
}

// compareVersions compares versions such as 8.4 and 17 number by number.
func compareVersions(a, b string) int {
	x, y := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(x), len(y)) {
		if d := number(x, i) - number(y, i); d != 0 {
			return d
		}
	}
	return 0
}

func number(parts []string, i int) int {
	n := 0
	if i < len(parts) {
		for _, c := range parts[i] {
			if c >= '0' && c <= '9' {
				n = n*10 + int(c-'0')
			}
		}
	}
	return n
}
