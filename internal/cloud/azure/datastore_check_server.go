package azure

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/postgresql/armpostgresqlflexibleservers/v5"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// server resolves version, class, storage and zones of a flexible server against
// what the region offers now, and asks whether its name is free.
func (c *checker) server(ctx context.Context) ([]cloud.Check, error) {
	if c.r.Mode == pipeline.Verify || c.storeBegun() && c.ic.Datastore.Class != "" {
		return nil, nil // it is resolved for good
	}
	f := flavourOf(c.store.Engine)
	info := &c.ic.Datastore
	info.Engine, info.AdminUser = c.store.Engine, c.store.AdminUser
	o, err := c.offers(ctx, f)
	if err != nil {
		return c.need(ctx, "version", "config.spec.version", err)
	}
	out := c.serverVersion(o)
	out = append(out, c.serverClass(o)...)
	if info.Class != "" {
		out = append(out, c.serverStorage(o)...)
		out = append(out, c.standby(o)...)
	}
	names, err := c.serverName(ctx, f)
	if err != nil {
		return nil, err
	}
	info.Name = tried(c.r.Job, "", longestServer)
	quota, err := c.serverQuota(ctx)
	return append(append(out, names...), quota...), err
}

func (c *checker) serverVersion(o offers) []cloud.Check {
	const check, field = "version", "config.spec.version"
	today := c.r.Now().UTC().Format("2006-01-02")
	engine := c.store.Engine
	want := c.store.Version
	if want == "" {
		want = o.newest(engine, today)
	}
	short := shortVersion(engine, want)
	if short == "" || !slices.Contains(o.versions, short) {
		return []cloud.Check{fails(check, field, fmt.Sprintf("%s %s is not offered in %s", engine.Title(), want, c.region), "Use one of "+strings.Join(o.versions, ", ")+", or leave it out.")}
	}
	c.ic.Datastore.Version = short
	in, until := supported(engine, short, today)
	var out []cloud.Check
	if short != want {
		out = append(out, warns(check, field, fmt.Sprintf("the cloud chooses the minor version itself: %s becomes %s and whatever is current of it", want, short), "Use "+short+"."))
	}
	switch {
	case !in && until == "":
		return append(out, warns(check, field, fmt.Sprintf("%s %s is a release of innovation, which ends when the next one comes", engine.Title(), short), "Use "+o.newest(engine, today)+"."))
	case !in:
		return append(out, warns(check, field, fmt.Sprintf("the standard support of %s %s ended on %s; extended support is billed", engine.Title(), short, until), "Use "+o.newest(engine, today)+"."))
	case until == "":
		return append(out, passes(check, "%s %s", engine.Title(), short))
	}
	return append(out, passes(check, "%s %s, in standard support until %s", engine.Title(), short, until))
}

func (c *checker) serverClass(o offers) []cloud.Check {
	const check = "class"
	info := &c.ic.Datastore
	info.Class = ""
	var got dataClass
	if name := c.store.InstanceType; name != "" {
		found, ok := o.class(name)
		if !ok {
			return []cloud.Check{fails(check, "config.spec.instanceType", fmt.Sprintf("%s is not a class that %s offers in %s", name, c.store.Engine.Title(), c.region), "Use one such as "+o.like(name)+".")}
		}
		got = found
	} else if c.store.Size != nil {
		found, ok := o.smallest(*c.store.Size, c.store.HA())
		if !ok {
			return []cloud.Check{fails(check, "config.spec.size", fmt.Sprintf("no class in %s has %d vCPUs and %d GiB%s", c.region, c.store.Size.VCPUs, c.store.Size.MemoryGiB, withStandby(c.store.HA())), "Ask for a smaller size, or another region.")}
		}
		got = found
	}
	info.Class, info.VCPUs, info.MemoryGiB = got.name, got.vcpus, got.memoryGiB
	if c.store.HA() && !got.standby {
		return []cloud.Check{fails(check, "config.spec.instanceType", fmt.Sprintf("%s takes no standby in another zone in %s", got.name, c.region), "Use a class of the tiers GeneralPurpose or MemoryOptimized, or set highAvailability to false.")}
	}
	return []cloud.Check{passes(check, "%s: %d vCPUs, %g GiB, %s", got.name, got.vcpus, got.memoryGiB, got.tier)}
}

func withStandby(ha bool) string {
	if ha {
		return " and takes a standby in another zone"
	}
	return ""
}

func (c *checker) serverStorage(o offers) []cloud.Check {
	const check, field = "storage", "config.spec.storageGiB"
	info := &c.ic.Datastore
	tier := flavourOf(c.store.Engine).tierOfClass(info.Class)
	if got, ok := o.class(info.Class); ok {
		tier = got.tier
	}
	gib, offered := o.room(tier, c.store.StorageGiB)
	if gib == 0 {
		return []cloud.Check{fails(check, field, fmt.Sprintf("%d GiB are more than %s takes: %s", c.store.StorageGiB, info.Class, offered), "Ask for less.")}
	}
	info.StorageGiB = gib
	if gib != c.store.StorageGiB {
		return []cloud.Check{passes(check, "%d GiB, the next that is offered above %d; it grows by itself", gib, c.store.StorageGiB)}
	}
	return []cloud.Check{passes(check, "%d GiB; it grows by itself", gib)}
}

// standby chooses the zones of a server and its standby.
func (c *checker) standby(o offers) []cloud.Check {
	const check, field = "high availability", "config.spec.highAvailability"
	info := &c.ic.Datastore
	info.HighAvailability, info.Zones = c.store.HA(), nil
	if !c.store.HA() {
		return nil
	}
	got, _ := o.class(info.Class)
	zones := slices.DeleteFunc(slices.Clone(c.ic.Zones), func(z string) bool {
		return len(got.zones) > 0 && !slices.Contains(got.zones, z)
	})
	if !o.zonal || len(zones) < 2 {
		info.HighAvailability = false
		return []cloud.Check{fails(check, field, fmt.Sprintf("%s has no two zones for %s and its standby", c.region, info.Class), "Choose a region with zones or another class, or set highAvailability to false.")}
	}
	info.Zones = zones[:2]
	return []cloud.Check{passes(check, "zones %s", strings.Join(info.Zones, " and "))}
}

var familyRE = regexp.MustCompile(`^Standard_([A-Z]+)[0-9]+([a-z]*)(_v([0-9]+))?$`)

// familyOf is the quota that a class counts against, as usage names it.
func familyOf(class string) string {
	m := familyRE.FindStringSubmatch(class)
	switch {
	case m == nil:
		return ""
	case m[1] == "B" && m[4] == "":
		return "standardBSFamily"
	case m[4] == "":
		return "standard" + m[1] + strings.ToUpper(m[2]) + "Family"
	}
	return "standard" + m[1] + strings.ToUpper(m[2]) + "v" + m[4] + "Family"
}

// serverQuota compares the server's vCPUs with what is left of them ("Quota Usages -
// List"); MySQL has no such call.
func (c *checker) serverQuota(ctx context.Context) ([]cloud.Check, error) {
	const check = "vCPU quota"
	info := c.ic.Datastore
	if c.store.Engine != job.Postgres || info.Class == "" {
		return nil, nil
	}
	usages, err := list[armpostgresqlflexibleservers.QuotaUsage](ctx, c.Provider, managementPrefix+c.subscription+"/providers/Microsoft.DBforPostgreSQL/locations/"+regionName(c.region)+"/resourceType/flexibleServers/usages")
	if err != nil {
		return c.or(ctx, check, "config.spec.size", err)
	}
	need := int64(info.VCPUs)
	if info.HighAvailability {
		need *= 2
	}
	var out []cloud.Check
	for _, u := range usages {
		name := value(value(u.Name).Value)
		if !slices.ContainsFunc([]string{"cores", "vCores", familyOf(info.Class)}, func(n string) bool { return same(n, name) }) {
			continue
		}
		used, limit := value(u.CurrentValue), value(u.Limit)
		if used+need > limit {
			out = append(out, fails(check, "config.spec.size", fmt.Sprintf("%s in %s: %d of %d are used, and the server takes %d", name, c.region, used, limit, need), "Ask for a higher limit (portal: Azure Database for PostgreSQL, Quotas), or for a smaller size."))
			continue
		}
		out = append(out, passes(check, "%s: %d of %d are used, and the server takes %d", name, used, limit, need))
	}
	return out, nil
}
