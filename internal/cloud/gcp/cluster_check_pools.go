package gcp

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// pools resolves each pool's machine type and zones, and how many nodes it starts
// with.
func (k *clusterChecker) pools(ctx context.Context) error {
	const check = "node pools"
	if len(k.ic.Zones) == 0 {
		return nil // the check of the region says why
	}
	resolved := make([]job.NodePoolInfo, len(k.spec.NodePools))
	asked := map[string]map[string][]*compute.MachineType{}
	for i, n := range k.spec.NodePools {
		names := nodeTypes(n)
		key := strings.Join(names, " ")
		if asked[key] == nil && len(names) > 0 {
			offers, err := k.offers(ctx, names)
			if pipeline.Is(err, pipeline.Denied) && k.r.Mode == pipeline.Apply && k.r.Job.Owns() && len(k.info.NodePools) == 0 {
				k.fails(check, "config.spec.nodePools", fmt.Sprintf("the machine types of %s cannot be read, and the nodes are made of them: %v", k.p.region, err),
					"Grant the credentials compute.machineTypes.list, then retry.")
				return nil
			}
			if err != nil {
				return k.unchecked(ctx, check, "config.spec.nodePools", err)
			}
			asked[key] = offers
		}
		info, ok := k.pool(i, n, names, asked[key])
		if !ok {
			return nil
		}
		resolved[i] = info
	}
	if k.r.Mode != pipeline.Verify {
		k.info.NodePools = resolved
	}
	var words []string
	for _, n := range resolved {
		words = append(words, fmt.Sprintf("%s: %d %s in %s", n.Name, n.Desired, n.InstanceType, strings.Join(n.Zones, ", ")))
	}
	k.ok(check, "%s", strings.Join(words, "; "))
	return nil
}

// least is the memory in GiB below which a machine is no node: the system's own
// pods would fill it ("Plan GKE Standard node sizes").
const leastNodeMemory = 4

// nodeTypes are the machine types that a pool may have, best first.
func nodeTypes(n job.NodePool) []string {
	if n.InstanceType != "" {
		return []string{n.InstanceType}
	}
	want := *n.Size
	want.MemoryGiB = max(want.MemoryGiB, leastNodeMemory)
	var names []string
	for _, m := range candidates(want) {
		names = append(names, m.name)
	}
	return names
}

// pool resolves one pool: the smallest type that all zones offer, or else that
// some do. What has been made stays.
func (k *clusterChecker) pool(i int, n job.NodePool, names []string, offers map[string][]*compute.MachineType) (job.NodePoolInfo, bool) {
	check, field := "node pool "+n.Name, fmt.Sprintf("config.spec.nodePools[%d].size", i)
	if n.InstanceType != "" {
		field = fmt.Sprintf("config.spec.nodePools[%d].instanceType", i)
	}
	had := k.info.Pool(n.Name)
	if had != nil && had.InstanceType != "" && (k.settled() || made(k.r, kindNodePool, poolKey(n.Name))) {
		names = []string{had.InstanceType}
	}
	best, zones := "", []string(nil)
	for _, name := range names {
		if in := k.offered(offers[name]); len(in) > len(zones) {
			best, zones = name, in
		}
		if len(zones) == len(k.ic.Zones) {
			break
		}
	}
	if best == "" {
		k.fails(check, field, fmt.Sprintf("none of the zones %s offers a machine type that fits (%s)", strings.Join(k.ic.Zones, ", "), or(strings.Join(names, ", "), "no current type is as large")),
			"Name another instanceType or size, or another region.")
		return job.NodePoolInfo{}, false
	}
	machine := offers[best][0]
	if machine.MemoryMb > 0 && machine.MemoryMb < leastNodeMemory*1024 {
		k.fails(check, field, fmt.Sprintf("%s has %d MiB, and a node needs %d GiB", best, machine.MemoryMb, leastNodeMemory), "Name a larger one.")
		return job.NodePoolInfo{}, false
	}
	if len(zones) < len(k.ic.Zones) {
		k.warn(check, field, fmt.Sprintf("%s is offered in %s alone, so pool %s has no nodes in the other zones", best, strings.Join(zones, ", "), n.Name), "Name an instanceType that all zones have.")
	}
	k.vcpus[n.Name] = float64(machine.GuestCpus)
	info := job.NodePoolInfo{Name: n.Name, InstanceType: best, Arch: archOfType(machine), Spot: n.Spot, Min: *n.Min, Max: *n.Max}
	info.Zones, info.Desired = spread(*n.Desired, *n.Max, zones)
	if info.Desired != *n.Desired {
		k.warn(check, fmt.Sprintf("config.spec.nodePools[%d].desired", i), fmt.Sprintf("GKE starts every zone with as many nodes as the next, so pool %s starts with %d nodes in %d zones instead of %d", n.Name, info.Desired, len(info.Zones), *n.Desired),
			fmt.Sprintf("Ask for a multiple of %d.", len(info.Zones)))
	}
	if had != nil {
		info.ID, info.State, info.Ready, info.Joined = had.ID, had.State, had.Ready, had.Joined
		if k.settled() || made(k.r, kindNodePool, poolKey(n.Name)) {
			info.Zones, info.Desired = had.Zones, had.Desired
		}
	}
	return info, true
}

// offered are the job's zones in which a type is offered.
func (k *clusterChecker) offered(all []*compute.MachineType) []string {
	return slices.DeleteFunc(slices.Clone(k.ic.Zones), func(zone string) bool {
		return !slices.ContainsFunc(all, func(t *compute.MachineType) bool {
			return base(t.Zone) == zone && (t.Deprecated == nil || t.Deprecated.State == "" || t.Deprecated.State == "ACTIVE" || t.Deprecated.State == "DEPRECATED")
		})
	})
}

// archOfType is a machine type's architecture in the job's words.
func archOfType(t *compute.MachineType) string {
	switch t.Architecture {
	case "X86_64":
		return "amd64"
	case "ARM64":
		return "arm64"
	}
	s, _ := seriesOf(t.Name)
	return s.arch
}

// spread is in which of the zones a pool starts, and with how many nodes: as many
// in one zone as in the next, as GKE counts them, in as many zones as there are
// nodes for, and never more than most.
func spread(desired, most int, zones []string) ([]string, int) {
	if desired == 0 {
		return zones, 0
	}
	for n := min(desired, len(zones)); n > 1; n-- {
		if all := (desired + n - 1) / n * n; all <= most {
			return zones[:n], all
		}
	}
	return zones[:1], desired
}

// limits compares what the pools will take with what the project has left: what
// they start with has to fit, what they may grow to should.
func (k *clusterChecker) limits(ctx context.Context) error {
	const check = "quotas for nodes"
	if k.r.Mode == pipeline.Verify || len(k.info.NodePools) != len(k.spec.NodePools) {
		return nil
	}
	project, err := send(ctx, k.p.compute.Projects.Get(k.p.project))
	if err != nil {
		return k.unchecked(ctx, check, "", err)
	}
	region, err := k.p.regionInfo(ctx)
	if err != nil {
		return k.unchecked(ctx, check, "", err)
	}
	short := func(count func(job.NodePoolInfo) int) []need {
		global, regional := k.wants(count)
		return slices.Concat(lacking(project.Quotas, global, "project "+k.p.project), lacking(region.Quotas, regional, "region "+k.p.region))
	}
	start := short(func(n job.NodePoolInfo) int { return n.Desired })
	for _, s := range start {
		k.fails(check, s.field, s.metric, "Ask for a higher quota in the console (IAM & Admin, Quotas), or use fewer or smaller nodes.")
	}
	if len(start) > 0 {
		return nil
	}
	grown := short(func(n job.NodePoolInfo) int { return n.Max })
	for _, s := range grown {
		k.warn(check, s.field, s.metric+" if all pools grow to their max", "Ask for a higher quota in the console (IAM & Admin, Quotas), or lower max.")
	}
	if len(grown) == 0 {
		k.ok(check, "enough for all pools at their max")
	}
	return nil
}

// wants is what the pools have yet to take of what is limited, all together.
func (k *clusterChecker) wants(count func(job.NodePoolInfo) int) (global, regional []need) {
	const field = "config.spec.nodePools"
	var metrics []string
	sums := map[string]float64{}
	add := func(metric string, n float64) {
		if _, known := sums[metric]; !known {
			metrics = append(metrics, metric)
		}
		sums[metric] += n
	}
	all := 0.0
	for i, n := range k.info.NodePools {
		if made(k.r, kindNodePool, poolKey(n.Name)) {
			continue
		}
		nodes := float64(count(n))
		all += nodes * k.vcpus[n.Name]
		add(or(quotaOf(n.InstanceType), "CPUS"), nodes*k.vcpus[n.Name])
		add("INSTANCES", nodes)
		disk := "SSD_TOTAL_GB"
		if bootDiskOf(n.InstanceType) == hyperdisk {
			disk = "HDB_TOTAL_GB"
		}
		add(disk, nodes*float64(k.spec.NodePools[i].DiskGiB))
	}
	for _, m := range metrics {
		regional = append(regional, need{m, sums[m], field})
	}
	return []need{{"CPUS_ALL_REGIONS", all, field}}, regional
}
