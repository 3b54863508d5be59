package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// typeFacts are what a check needs to know of an instance type.
type typeFacts struct {
	typeSize
	arch       string
	spot       bool
	interfaces int // that a machine may have
	addresses  int // that an interface may have
}

// A poolWish is what may serve a pool.
type poolWish struct {
	spec   job.NodePool
	field  string
	wanted []candidate
}

// placePools resolves the zones and every pool's instance type: a zone counts first
// if it offers something to every pool, and of the types that fit a pool the first
// that all zones offer is taken, or else most of them.
func (k *clusterChecker) placePools(ctx context.Context) ([]cloud.Check, error) {
	const check = "node pools"
	if k.poolsPlaced() {
		return []cloud.Check{passes(check, "as resolved before")}, nil
	}
	wishes, bad := k.wishes()
	if len(bad) > 0 {
		return bad, nil
	}
	zones, bad, err := k.usableZones(ctx)
	if err != nil || bad != nil {
		return bad, err
	}
	var all []candidate
	for _, w := range wishes {
		all = append(all, w.wanted...)
	}
	offers, err := k.offerings(ctx, all)
	bySize := func(n job.NodePool) bool { return n.InstanceType == "" }
	if err == nil && len(offers) == 0 && k.foreignEndpoint() && slices.ContainsFunc(k.cluster.NodePools, bySize) {
		err = absent("EC2", "DescribeInstanceTypeOfferings", "an offer of any type")
	}
	var out []cloud.Check
	known := err == nil
	if err != nil {
		if stops(ctx, err) {
			return nil, err
		}
		out = append(out, unchecked("instance types in zones", "config.spec.nodePools", err))
	}
	if k.r.Job.Mode == job.ModeCreate && !k.zonesKept() {
		zones = bestZones(zones, wishes, offers)
		zones = zones[:min(len(zones), k.cluster.Network.Zones)]
		k.ic.Zones = slices.Clone(zones)
	}
	for _, w := range wishes {
		chosen, in := w.wanted[0], zones
		if known {
			chosen, in = chooseFor(w, zones, offers)
		}
		if chosen.name == "" {
			out = append(out, fails(check, w.field, fmt.Sprintf("pool %s: none of %s offers %s", w.spec.Name, strings.Join(zones, ", "), namesOf(w.wanted)), "Name another instanceType or size, or another region."))
			continue
		}
		k.settlePool(w.spec, chosen, in)
	}
	more, err := k.describePools(ctx, wishes)
	return append(out, more...), err
}

// poolsPlaced reports whether every pool was resolved and steps have built on it.
func (k *clusterChecker) poolsPlaced() bool {
	if k.r.Mode == pipeline.Verify {
		return true
	}
	if !k.made(kindCluster, clusterKey) || len(k.ic.Zones) == 0 {
		return false
	}
	return !slices.ContainsFunc(k.cluster.NodePools, func(n job.NodePool) bool {
		at := k.info.Pool(n.Name)
		return at == nil || at.InstanceType == "" || n.InstanceType != "" && n.InstanceType != at.InstanceType
	})
}

// wishes are the types that fit each pool.
func (k *clusterChecker) wishes() (out []poolWish, bad []cloud.Check) {
	for i, n := range k.cluster.NodePools {
		w := poolWish{spec: n, field: fmt.Sprintf("config.spec.nodePools[%d].size", i)}
		switch at := k.info.Pool(n.Name); {
		case at != nil && at.InstanceType != "" && k.made(kindNodegroup, poolPrefix+n.Name):
			size, _, _ := typeOf(at.InstanceType) // a pool keeps the type that it was made with
			w.wanted = []candidate{{name: at.InstanceType, typeSize: size}}
		case n.InstanceType != "":
			w.field = fmt.Sprintf("config.spec.nodePools[%d].instanceType", i)
			size, _, _ := typeOf(n.InstanceType)
			w.wanted = []candidate{{name: n.InstanceType, typeSize: size}}
		default:
			if w.wanted = candidates(*n.Size); len(w.wanted) == 0 {
				bad = append(bad, fails("node pools", w.field, fmt.Sprintf("pool %s: no current instance type has %d vCPUs and %d GiB on %s", n.Name, n.Size.VCPUs, n.Size.MemoryGiB, n.Size.Arch), "Ask for less, or name an instanceType."))
			}
		}
		out = append(out, w)
	}
	return out, bad
}

// bestZones puts the zones first that offer something to every pool, in the order of
// their IDs otherwise.
func bestZones(zones []string, wishes []poolWish, offers map[string]map[string]bool) []string {
	serves := func(zone string) bool {
		return !slices.ContainsFunc(wishes, func(w poolWish) bool {
			return !slices.ContainsFunc(w.wanted, func(c candidate) bool { return offers[c.name][zone] })
		})
	}
	out := slices.Clone(zones)
	slices.SortStableFunc(out, func(a, b string) int {
		switch good, other := serves(a), serves(b); {
		case good == other:
			return 0
		case good:
			return -1
		}
		return 1
	})
	return out
}

// chooseFor takes the first type that all zones offer, or else that most of them do:
// a pool may stand in fewer zones than the cluster.
func chooseFor(w poolWish, zones []string, offers map[string]map[string]bool) (candidate, []string) {
	for need := len(zones); need > 0; need-- {
		if c, in := choose(w.wanted, zones, offers, need); c.name != "" {
			return c, in
		}
	}
	return candidate{}, nil
}

func namesOf(all []candidate) string {
	var out []string
	for _, c := range all {
		out = append(out, c.name)
	}
	return strings.Join(out, ", ")
}

func (k *clusterChecker) settlePool(n job.NodePool, c candidate, zones []string) {
	at := k.info.Pool(n.Name)
	if at == nil {
		k.info.NodePools = append(k.info.NodePools, job.NodePoolInfo{Name: n.Name})
		at = k.info.Pool(n.Name)
	}
	at.InstanceType, at.Zones, at.Spot = c.name, slices.Clone(zones), n.Spot
	at.Min, at.Max, at.Desired = *n.Min, *n.Max, *n.Desired
	_, arch, _ := typeOf(c.name)
	at.Arch = or(arch, "amd64")
	if n.Size != nil && n.InstanceType == "" {
		at.Arch = n.Size.Arch
	}
	k.types[c.name] = typeFacts{typeSize: c.typeSize, arch: at.Arch, spot: true}
}

// describePools confirms what the chosen types are.
func (k *clusterChecker) describePools(ctx context.Context, wishes []poolWish) ([]cloud.Check, error) {
	const check = "node pools"
	in := &ec2.DescribeInstanceTypesInput{}
	for _, n := range k.info.NodePools {
		if t := ec2types.InstanceType(n.InstanceType); t != "" && !slices.Contains(in.InstanceTypes, t) {
			in.InstanceTypes = append(in.InstanceTypes, t)
		}
	}
	if len(in.InstanceTypes) == 0 {
		return nil, nil
	}
	out, err := k.ec2.DescribeInstanceTypes(ctx, in)
	if err != nil {
		if stops(ctx, err) {
			return nil, err
		}
		if bad := unknownTypes(wishes, err); len(bad) > 0 {
			return bad, nil
		}
		return []cloud.Check{unchecked("instance types' size", "config.spec.nodePools", err)}, nil
	}
	for _, info := range out.InstanceTypes {
		k.types[string(info.InstanceType)] = factsOf(info)
	}
	var checks []cloud.Check
	for _, w := range wishes {
		at := k.info.Pool(w.spec.Name)
		if at == nil || at.InstanceType == "" {
			continue
		}
		facts := k.types[at.InstanceType]
		at.Arch = or(facts.arch, at.Arch)
		s := w.spec.Size
		switch {
		case w.spec.Spot && !facts.spot:
			checks = append(checks, fails(check, w.field, fmt.Sprintf("pool %s: %s cannot be had as spot capacity", w.spec.Name, at.InstanceType), "Name another instanceType, or leave spot out."))
		case s != nil && w.spec.InstanceType == "" && (facts.vcpus < s.VCPUs || facts.memoryGiB < s.MemoryGiB):
			checks = append(checks, fails(check, w.field, fmt.Sprintf("pool %s: %s has %d vCPUs and %d GiB, which is less than asked for", w.spec.Name, at.InstanceType, facts.vcpus, facts.memoryGiB), "Name an instanceType."))
		default:
			checks = append(checks, passes(check, "%s: %s (%d vCPUs, %d GiB, %s) in %s", w.spec.Name, at.InstanceType, facts.vcpus, facts.memoryGiB, at.Arch, strings.Join(at.Zones, ", ")))
		}
	}
	return checks, nil
}

// unknownTypes are the types that a request names and EC2 does not know.
func unknownTypes(wishes []poolWish, err error) (out []cloud.Check) {
	if !pipeline.Is(err, pipeline.Invalid) || lacksCall(plain(err)) {
		return nil
	}
	for _, w := range wishes {
		if t := w.spec.InstanceType; t != "" && strings.Contains(plain(err).Error(), t) {
			out = append(out, fails("node pools", w.field, fmt.Sprintf("pool %s: there is no instance type %s", w.spec.Name, t), "Name an instance type that exists."))
		}
	}
	return out
}

func factsOf(info ec2types.InstanceTypeInfo) typeFacts {
	f := typeFacts{spot: len(info.SupportedUsageClasses) == 0 || slices.Contains(info.SupportedUsageClasses, ec2types.UsageClassTypeSpot)}
	if info.VCpuInfo != nil {
		f.vcpus = int(aws.ToInt32(info.VCpuInfo.DefaultVCpus))
	}
	if info.MemoryInfo != nil {
		f.memoryGiB = int(aws.ToInt64(info.MemoryInfo.SizeInMiB) / 1024)
	}
	if info.ProcessorInfo != nil {
		for _, a := range info.ProcessorInfo.SupportedArchitectures {
			switch a {
			case ec2types.ArchitectureTypeX8664:
				f.arch = "amd64"
			case ec2types.ArchitectureTypeArm64:
				f.arch = "arm64"
			}
		}
	}
	if n := info.NetworkInfo; n != nil {
		f.interfaces, f.addresses = int(aws.ToInt32(n.MaximumNetworkInterfaces)), int(aws.ToInt32(n.Ipv4AddressesPerInterface))
	}
	return f
}
