package azure

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// nodeSeries are the series that a pool's size resolves to, in order of preference
// where two are equally large: general purpose, then those with more or less
// memory, the newest first. Burstable ones are not among them: a node is busy all
// day ("Use system node pools in AKS", "Sizes for virtual machines in Azure").
var nodeSeries = []*regexp.Regexp{
	regexp.MustCompile(`^Standard_D\d+p?l?d?s_v6$`),
	regexp.MustCompile(`^Standard_D\d+p?l?d?s_v5$`),
	regexp.MustCompile(`^Standard_D\d+al?d?s_v[56]$`),
	regexp.MustCompile(`^Standard_[EF]\d+[ap]?d?s_v[256]$`),
}

// The least that a node has ("Quotas, VM size restrictions and region availability
// in AKS").
const (
	leastVCPUs     = 2
	leastMemoryGiB = 4
)

// smallestNode is the smallest current size for a pool, one that holds the OS disk
// itself before one that does not; false if there is none.
func smallestNode(all []size, n job.NodePool, zones []string) (size, bool) {
	rank := func(s size) int {
		return slices.IndexFunc(nodeSeries, func(re *regexp.Regexp) bool { return re.MatchString(s.name) })
	}
	vcpus, memory := max(n.Size.VCPUs, leastVCPUs), max(n.Size.MemoryGiB, leastMemoryGiB)
	fit := slices.DeleteFunc(slices.Clone(all), func(s size) bool {
		return rank(s) < 0 || s.refused != "" || len(missingZones(s, zones)) > 0 || n.Spot && !s.spot || s.arch != n.Size.Arch || s.vcpus < vcpus || s.memoryGiB < float64(memory)
	})
	if len(fit) == 0 {
		return size{}, false
	}
	inside := func(s size) int {
		if s.holds(n.DiskGiB) {
			return 0
		}
		return 1
	}
	return slices.MinFunc(fit, func(a, b size) int {
		return cmp.Or(cmp.Compare(a.vcpus, b.vcpus), cmp.Compare(a.memoryGiB, b.memoryGiB), cmp.Compare(inside(a), inside(b)), cmp.Compare(rank(a), rank(b)), cmp.Compare(a.name, b.name))
	}), true
}

// missingZones are those of the zones in which a size is not offered.
func missingZones(s size, zones []string) []string {
	return slices.DeleteFunc(slices.Clone(zones), func(z string) bool { return slices.Contains(s.zones, z) })
}

// nodePools resolves every pool's size, and checks what they need together: the
// quota of cores, and encryption on the host.
func (c *checker) nodePools(ctx context.Context) ([]cloud.Check, error) {
	spec, err := c.r.Job.ClusterSpec()
	if err != nil {
		return nil, err
	}
	all, err := c.sizes(ctx)
	if err != nil {
		return c.need(ctx, "node size", "config.spec.nodePools", err)
	}
	var out []cloud.Check
	var infos []job.NodePoolInfo
	var chosen []size
	for i, n := range spec.NodePools {
		s, bad := c.nodeSize(i, n, all)
		if bad != nil {
			out = append(out, *bad)
			continue
		}
		info := job.NodePoolInfo{Name: n.Name}
		if have := c.ic.Cluster.Pool(n.Name); have != nil {
			info = *have
		}
		if !c.made(kindNodePool, "pool-"+n.Name) {
			info.InstanceType, info.Arch, info.Spot, info.Zones = s.name, s.arch, n.Spot, c.ic.Zones
		}
		info.Min, info.Max, info.Desired = *n.Min, *n.Max, *n.Desired
		infos, chosen = append(infos, info), append(chosen, s)
		out = append(out, passes("node size", "pool %s: %s: %d vCPUs, %g GiB, %s", n.Name, s.name, s.vcpus, s.memoryGiB, s.arch))
	}
	if len(chosen) < len(spec.NodePools) {
		return out, nil
	}
	if c.r.Mode != pipeline.Verify {
		c.ic.Cluster.NodePools = infos
	}
	for _, more := range []func(context.Context, job.ClusterSpec, []size) ([]cloud.Check, error){c.nodeEncryption, c.nodeCores} {
		found, err := more(ctx, spec, chosen)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

// nodeSize resolves one pool's size, or checks the one that is named.
func (c *checker) nodeSize(i int, n job.NodePool, all []size) (size, *cloud.Check) {
	const check = "node size"
	field := fmt.Sprintf("config.spec.nodePools[%d].", i)
	bad := func(what, message, fix string) (size, *cloud.Check) {
		x := fails(check, field+what, "pool "+n.Name+": "+message, fix)
		return size{}, &x
	}
	name := n.InstanceType
	if have := c.ic.Cluster.Pool(n.Name); have != nil && c.made(kindNodePool, "pool-"+n.Name) {
		name = have.InstanceType
	}
	if name == "" {
		s, ok := smallestNode(all, n, c.ic.Zones)
		if !ok {
			return bad("size", fmt.Sprintf("no current size with %d vCPUs and %d GiB (%s) is offered to this subscription in %s in zones %s", n.Size.VCPUs, n.Size.MemoryGiB, n.Size.Arch, c.region, strings.Join(c.ic.Zones, ", ")),
				"Ask for another size, instanceType or region.")
		}
		return s, nil
	}
	at := slices.IndexFunc(all, func(s size) bool { return strings.EqualFold(s.name, name) })
	if at < 0 {
		return bad("instanceType", fmt.Sprintf("%s is not a size of %s", name, c.region), "Use one of the region's (az vm list-skus --location "+regionName(c.region)+").")
	}
	s := all[at]
	switch missing := missingZones(s, c.ic.Zones); {
	case s.refused != "":
		return bad("instanceType", fmt.Sprintf("%s is not offered to this subscription in %s (%s)", name, c.region, s.refused), "Use another size or region, or ask Azure to offer it.")
	case len(missing) > 0:
		return bad("instanceType", fmt.Sprintf("%s is not offered in zone %s of %s", s.name, strings.Join(missing, ", "), c.region), "Use another size or fewer zones.")
	case s.vcpus < leastVCPUs || s.memoryGiB < leastMemoryGiB:
		return bad("instanceType", fmt.Sprintf("%s has %d vCPUs and %g GiB, and AKS takes nodes of %d and %d at least", s.name, s.vcpus, s.memoryGiB, leastVCPUs, leastMemoryGiB), "Use a larger size.")
	case n.Spot && !s.spot:
		return bad("spot", fmt.Sprintf("%s is not offered as spot capacity", s.name), "Use another size, or leave spot out.")
	}
	return s, nil
}

// nodeEncryption checks that disks can be encrypted on the host: it cannot be
// turned on for a pool later, and the report would find it off.
func (c *checker) nodeEncryption(ctx context.Context, spec job.ClusterSpec, chosen []size) ([]cloud.Check, error) {
	const check, control = "encryption at host", "AKS-14"
	if c.r.Mode == pipeline.Verify || c.clusterBegun() {
		return nil, nil
	}
	on, err := c.hostEncryption(ctx)
	if err != nil {
		return c.need(ctx, check, "config.spec.waive", err)
	}
	message, fix := "the subscription does not have the feature EncryptionAtHost, so the nodes' caches and temporary disks would not be encrypted on the host",
		"Register it (az feature register --namespace Microsoft.Compute --name EncryptionAtHost), or waive "+control+"."
	if on {
		message = ""
		for _, s := range chosen {
			if !s.traits.encrypted {
				message, fix = s.name+" cannot be encrypted on the host", "Use another size, or waive "+control+"."
			}
		}
	}
	switch {
	case message == "":
		return nil, nil
	case waived(spec, control):
		return []cloud.Check{warns(check, "config.spec.waive", message, "")}, nil
	}
	return []cloud.Check{fails(check, "config.spec.waive", message, fix)}, nil
}

// nodeCores compares the pools with the quotas of cores, of the region, of each
// size's family, and of spot capacity: what they start with has to fit, and what
// they may grow to should.
func (c *checker) nodeCores(ctx context.Context, spec job.ClusterSpec, chosen []size) ([]cloud.Check, error) {
	const check = "quota of vCPUs"
	if c.r.Mode == pipeline.Verify {
		return nil, nil
	}
	usages, err := list[armcompute.Usage](ctx, c.Provider, managementPrefix+c.subscription+"/providers/Microsoft.Compute/locations/"+regionName(c.region)+"/usages")
	if err != nil {
		return c.or(ctx, check, "region", err)
	}
	desired, most := map[string]int64{}, map[string]int64{}
	for i, n := range spec.NodePools {
		if c.made(kindNodePool, "pool-"+n.Name) {
			continue
		}
		quotas := []string{"cores", strings.ToLower(chosen[i].family)}
		if n.Spot {
			quotas = []string{"lowprioritycores"}
		}
		for _, q := range quotas {
			desired[q] += int64(chosen[i].vcpus * *n.Desired)
			most[q] += int64(chosen[i].vcpus * *n.Max)
		}
	}
	var out []cloud.Check
	var fine []string
	for _, u := range usages {
		if u.Name == nil || most[strings.ToLower(value(u.Name.Value))] == 0 {
			continue
		}
		q := strings.ToLower(value(u.Name.Value))
		used, limit, title := int64(value(u.CurrentValue)), value(u.Limit), value(u.Name.LocalizedValue)
		switch {
		case used+desired[q] > limit:
			out = append(out, fails(check, "config.spec.nodePools", fmt.Sprintf("%s in %s: %d of %d are used, and the pools start with %d", title, c.region, used, limit, desired[q]),
				"Ask for a higher limit in the portal (Quotas), use fewer or smaller nodes, or another region."))
		case used+most[q] > limit:
			out = append(out, warns(check, "config.spec.nodePools", fmt.Sprintf("%s in %s: %d of %d are used, and the pools may grow to %d", title, c.region, used, limit, most[q]), "Ask for a higher limit in the portal (Quotas)."))
		default:
			fine = append(fine, fmt.Sprintf("%s %d of %d", title, used, limit))
		}
	}
	if len(out) == 0 {
		out = append(out, passes(check, "%s", strings.Join(fine, ", ")))
	}
	return out, nil
}
