package azure

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/privatedns/armprivatedns"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

var cacheClassRE = regexp.MustCompile(`^(Balanced_B|MemoryOptimized_M|ComputeOptimized_X|FlashOptimized_A)[0-9]+$`)

// cache resolves a cache's size, and says what of the spec the service cannot do.
func (c *checker) cache(ctx context.Context) ([]cloud.Check, error) {
	if c.r.Mode == pipeline.Verify || c.storeBegun() && c.ic.Datastore.Class != "" {
		return nil, nil
	}
	info := &c.ic.Datastore
	info.Engine, info.HighAvailability, info.Name = job.Redis, c.store.ReplicaCount() > 0, tried(c.r.Job, "", longestCache)
	out := c.cacheClass()
	if v := c.store.Version; v != "" {
		out = append(out, warns("version", "config.spec.version", fmt.Sprintf("Managed Redis runs the version that the service chooses, and keeps it current; %s cannot be asked for", v), "Leave it out."))
	}
	if n := c.store.ReplicaCount(); n > 1 {
		out = append(out, warns("replicas", "config.spec.replicas", fmt.Sprintf("Managed Redis has one replica of everything, in another zone, and %d are asked for", n), "Use 1."))
	}
	if !c.store.AccessKeys && len(c.store.Principals) == 0 {
		out = append(out, warns("who may use it", "config.spec.principals", "no principal is named and access keys are off, so nobody can use the cache", "Name the object IDs of the identities that are to use it, or set accessKeys for clients that cannot use Entra."))
	}
	if !c.store.SkipFinalSnapshot {
		out = append(out, warns("final snapshot", "config.spec.skipFinalSnapshot", "Managed Redis has no snapshot that outlives it: what is in it is gone with it", "Export it to a storage account before you delete the job (az redisenterprise database export), or set skipFinalSnapshot."))
	}
	zone, err := c.linkedZone(ctx)
	if err != nil {
		more, err := c.or(ctx, "private zone", "config.spec.existing.networkId", err)
		return append(out, more...), err
	}
	return append(out, zone...), nil
}

func (c *checker) cacheClass() []cloud.Check {
	const check = "class"
	info := &c.ic.Datastore
	info.Class = ""
	if name := c.store.InstanceType; name != "" {
		if !cacheClassRE.MatchString(name) {
			return []cloud.Check{fails(check, "config.spec.instanceType", name+" is not a SKU of Managed Redis", "Use one such as "+cacheSizes()+".")}
		}
		info.Class, info.MemoryGiB = name, memoryOf(name)
		return []cloud.Check{passes(check, "%s", name)}
	}
	gib := 1
	if c.store.Size != nil {
		gib = c.store.Size.MemoryGiB
	}
	name, ok := cacheSKU(gib)
	if !ok {
		return []cloud.Check{fails(check, "config.spec.size.memoryGiB", fmt.Sprintf("no SKU has %d GiB", gib), "Use one of "+cacheSizes()+".")}
	}
	info.Class, info.MemoryGiB = name, memoryOf(name)
	return []cloud.Check{passes(check, "%s: %g GiB", name, info.MemoryGiB)}
}

// linkedZone looks whether a named network finds such names in a zone that it is
// linked to already: it can be linked to one zone of a name alone.
func (c *checker) linkedZone(ctx context.Context) ([]cloud.Check, error) {
	if c.r.Job.Mode != job.ModeCreateInExisting {
		return nil, nil
	}
	e, err := c.r.Job.Existing()
	if err != nil || e == nil {
		return nil, err
	}
	vnet, err := c.vnetCalled(ctx, e.NetworkID, e.ResourceGroup)
	if err != nil {
		return nil, pipeline.Unless(err, pipeline.NotFound) // network says so
	}
	zones, err := list[meta](ctx, c.Provider, managementPrefix+c.subscription+"/providers/"+typePrivateZone)
	if err != nil {
		return nil, err
	}
	for _, z := range zones {
		if !same(z.Name, cacheZone) || z.Tags[job.MarkOwner] == c.r.Job.ID {
			continue
		}
		links, err := list[resource[armprivatedns.VirtualNetworkLink]](ctx, c.Provider, z.ID+"/virtualNetworkLinks")
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(links, func(l resource[armprivatedns.VirtualNetworkLink]) bool {
			f := value(l.is.Properties)
			return f.VirtualNetwork != nil && same(value(f.VirtualNetwork.ID), vnet)
		}) {
			c.ic.Datastore.PrivateZoneID = z.ID
			return []cloud.Check{warns("private zone", "config.spec.existing.networkId", fmt.Sprintf("the network is linked to the zone %s of resource group %s, so the cache's address goes there, and away with it", z.Name, segment(z.ID, "resourceGroups")), "")}, nil
		}
		if strings.EqualFold(z.ID, c.idIn(c.r, typePrivateZone, cacheZone)) {
			return []cloud.Check{fails("private zone", "config.spec.existing.resourceGroup", fmt.Sprintf("resource group %s has a zone %s that is somebody else's and not linked to the network", groupOf(c.r.Job), z.Name), "Link it to the network, or name another resource group.")}, nil
		}
	}
	return nil, nil
}
