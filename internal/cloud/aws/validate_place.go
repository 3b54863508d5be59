package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

type instance = ec2types.Instance

func deref(s *string) string { return aws.ToString(s) }

// place resolves the zones and the instance type together: a zone counts only
// if it offers the type, and a type only if enough zones offer it (failure
// kinds J1, J2).
func (c *checker) place(ctx context.Context) ([]cloud.Check, error) {
	if c.placed() || c.r.Mode == pipeline.Verify {
		c.size, c.arch, _ = typeOf(c.ic.InstanceType)
		return []cloud.Check{passes("zones and instance type", "%s in %s", c.ic.InstanceType, strings.Join(c.ic.Zones, ", "))}, nil
	}
	zones, bad, err := c.usableZones(ctx)
	if err != nil || bad != nil {
		return bad, err
	}
	field := "config.spec.pool.size"
	var wanted []candidate
	if t := c.spec.Pool.InstanceType; t != "" {
		field = "config.spec.pool.instanceType"
		size, _, _ := typeOf(t)
		wanted = []candidate{{name: t, typeSize: size}}
	} else if wanted = candidates(*c.spec.Pool.Size); len(wanted) == 0 {
		s := *c.spec.Pool.Size
		return []cloud.Check{fails("instance type", field, fmt.Sprintf("no current instance type has %d vCPUs and %d GiB on %s", s.VCPUs, s.MemoryGiB, s.Arch), "Ask for less, or name an instanceType.")}, nil
	}
	offers, err := c.offerings(ctx, wanted)
	out := []cloud.Check{}
	switch {
	case err != nil && stops(ctx, err):
		return nil, err
	case err == nil && len(offers) == 0 && c.spec.Pool.InstanceType == "" && c.foreignEndpoint():
		err = absent("EC2", "DescribeInstanceTypeOfferings", "an offer of any current type")
		fallthrough
	case err != nil:
		// Nothing is known of the offers: the first candidate, and any zones.
		out = append(out, unchecked("instance type in zones", field, err))
		c.settle(wanted[0], zones)
	default:
		chosen, in := choose(wanted, zones, offers, c.zonesNeeded())
		if chosen.name == "" {
			return append(out, c.notOffered(field, wanted, offers)), nil
		}
		c.settle(chosen, in)
		out = append(out, passes("instance type", "%s, offered in %s", chosen.name, strings.Join(in, ", ")))
	}
	more, err := c.describeType(ctx, field)
	return append(out, more...), err
}

// placed reports whether steps have built on zones and type already.
func (c *checker) placed() bool {
	return c.ic.InstanceType != "" && len(c.ic.Zones) > 0 && c.made(kindLaunchTemplate, "vm")
}

// zonesKept reports whether subnets sit in the recorded zones.
func (c *checker) zonesKept() bool {
	if len(c.ic.Zones) == 0 {
		return false
	}
	for _, k := range zoneKeys {
		if c.made(kindSubnet, "private-"+k) || c.made(kindSubnet, "public-"+k) || c.made(kindSubnet, "database-"+k) {
			return true
		}
	}
	return false
}

func (c *checker) zonesNeeded() int {
	switch {
	case c.r.Job.Mode == job.ModeCreate && !c.zonesKept():
		return c.spec.Network.Zones
	case c.zonesKept():
		return len(c.ic.Zones)
	}
	return max(len(c.existingZones), 1)
}

// settle records zones and type. In a network that exists the zones are those
// of its subnets, and zones with subnets in them are kept.
func (c *checker) settle(t candidate, zones []string) {
	c.ic.InstanceType, c.size = t.name, t.typeSize
	if _, arch, ok := typeOf(t.name); ok {
		c.arch = arch
	}
	if c.r.Job.Mode == job.ModeCreate && !c.zonesKept() {
		c.ic.Zones = slices.Clone(zones[:min(len(zones), c.spec.Network.Zones)])
	}
}

// availableZones are the region's zones that the account may use, in the order of
// their IDs, which is the same for every account and every call.
func (c *checker) availableZones(ctx context.Context) (zones []string, bad []cloud.Check, err error) {
	const check = "region"
	out, err := c.ec2.DescribeAvailabilityZones(ctx, &ec2.DescribeAvailabilityZonesInput{})
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return nil, []cloud.Check{fails(check, "region", fmt.Sprintf("there is no EC2 endpoint for %q: it is no region, or this machine cannot resolve AWS names", c.region), "Name a region that exists.")}, nil
	case err != nil:
		return nil, nil, err
	}
	all := slices.DeleteFunc(out.AvailabilityZones, func(z ec2types.AvailabilityZone) bool {
		return z.State != "" && z.State != ec2types.AvailabilityZoneStateAvailable ||
			deref(z.ZoneType) != "" && deref(z.ZoneType) != "availability-zone" ||
			z.OptInStatus == ec2types.AvailabilityZoneOptInStatusNotOptedIn ||
			isCluster(c.r.Job) && slices.Contains(noControlPlane, deref(z.ZoneId)) ||
			deref(z.RegionName) != "" && deref(z.RegionName) != c.region
	})
	slices.SortFunc(all, func(a, b ec2types.AvailabilityZone) int {
		return cmp.Or(cmp.Compare(deref(a.ZoneId), deref(b.ZoneId)), cmp.Compare(deref(a.ZoneName), deref(b.ZoneName)))
	})
	for _, z := range all {
		zones = append(zones, deref(z.ZoneName))
	}
	return zones, nil, nil
}

// usableZones are the zones that the job may spread over.
func (c *checker) usableZones(ctx context.Context) (zones []string, bad []cloud.Check, err error) {
	zones, bad, err = c.availableZones(ctx)
	if err != nil || bad != nil {
		return nil, bad, err
	}
	if c.zonesKept() {
		return c.ic.Zones, nil, nil
	}
	if c.r.Job.Mode == job.ModeCreateInExisting {
		// Where the VMs go is the user's choice, and so are the zones. What is
		// wrong with the choice is said by the check of the network.
		net, err := c.existing(ctx, *c.spec.Existing)
		if err == nil {
			if in, _, _ := net.spread(); len(in) > 0 {
				c.existingZones = in
				return in, nil, nil
			}
		}
		return zones, nil, nil
	}
	return zones, c.enough(zones), nil
}

// enough refuses a region with fewer zones than the job wants.
func (c *checker) enough(zones []string) []cloud.Check {
	if need := c.zonesNeeded(); len(zones) < need {
		return []cloud.Check{fails("zones", "config.spec.network.zones", fmt.Sprintf("%s has %d zones that this account can use (%s), and the job wants %d", c.region, len(zones), strings.Join(zones, ", "), need), "Ask for fewer zones, or another region.")}
	}
	return nil
}

// offerings says where each candidate is offered.
func (c *checker) offerings(ctx context.Context, wanted []candidate) (map[string]map[string]bool, error) {
	names := make([]string, len(wanted))
	for i, w := range wanted {
		names[i] = w.name
	}
	list, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]ec2types.InstanceTypeOffering, *string, error) {
		out, err := c.ec2.DescribeInstanceTypeOfferings(ctx, &ec2.DescribeInstanceTypeOfferingsInput{
			LocationType: ec2types.LocationTypeAvailabilityZone, Filters: []ec2types.Filter{filter("instance-type", names...)}, NextToken: token,
		})
		if err != nil {
			return nil, nil, err
		}
		return out.InstanceTypeOfferings, out.NextToken, nil
	})
	offers := map[string]map[string]bool{}
	for _, o := range list {
		t := string(o.InstanceType)
		if offers[t] == nil {
			offers[t] = map[string]bool{}
		}
		offers[t][deref(o.Location)] = true
	}
	return offers, err
}

// choose takes the first candidate that enough zones offer, and those zones.
func choose(wanted []candidate, zones []string, offers map[string]map[string]bool, need int) (candidate, []string) {
	for _, w := range wanted {
		var in []string
		for _, z := range zones {
			if offers[w.name][z] {
				in = append(in, z)
			}
		}
		if len(in) >= need {
			return w, in
		}
	}
	return candidate{}, nil
}

func (c *checker) notOffered(field string, wanted []candidate, offers map[string]map[string]bool) cloud.Check {
	var where []string
	for _, w := range wanted {
		var in []string
		for z := range offers[w.name] {
			in = append(in, z)
		}
		slices.Sort(in)
		if len(in) == 0 {
			in = []string{"no zone"}
		}
		where = append(where, w.name+" in "+strings.Join(in, ", "))
	}
	return fails("instance type", field, fmt.Sprintf("%d zones of %s have to offer it; there is %s", c.zonesNeeded(), c.region, strings.Join(where, "; ")),
		"Name another instanceType, fewer zones or another region.")
}

// describeType confirms what the chosen type is.
func (c *checker) describeType(ctx context.Context, field string) ([]cloud.Check, error) {
	const check = "instance type's size"
	out, err := c.ec2.DescribeInstanceTypes(ctx, &ec2.DescribeInstanceTypesInput{InstanceTypes: []ec2types.InstanceType{ec2types.InstanceType(c.ic.InstanceType)}})
	switch {
	case err != nil && stops(ctx, err):
		return nil, err
	case pipeline.Is(err, pipeline.Invalid) && c.spec.Pool.InstanceType != "" && !strings.Contains(plain(err).Error(), "InvalidAction"):
		return []cloud.Check{fails("instance type", field, plain(err).Error(), "Name an instance type that exists.")}, nil
	case err != nil:
		return []cloud.Check{unchecked(check, field, err)}, nil
	case len(out.InstanceTypes) == 0:
		return []cloud.Check{{Name: check, Status: cloud.CheckUnchecked, Field: field, Message: "the region does not describe " + c.ic.InstanceType}}, nil
	}
	info := out.InstanceTypes[0]
	if info.VCpuInfo != nil {
		c.size.vcpus = int(aws.ToInt32(info.VCpuInfo.DefaultVCpus))
	}
	if info.MemoryInfo != nil {
		c.size.memoryGiB = int(aws.ToInt64(info.MemoryInfo.SizeInMiB) / 1024)
	}
	if info.ProcessorInfo != nil {
		for _, a := range info.ProcessorInfo.SupportedArchitectures {
			switch a {
			case ec2types.ArchitectureTypeX8664:
				c.arch = "amd64"
			case ec2types.ArchitectureTypeArm64:
				c.arch = "arm64"
			}
		}
	}
	if s := c.spec.Pool.Size; s != nil && (c.size.vcpus < s.VCPUs || c.size.memoryGiB < s.MemoryGiB) {
		return []cloud.Check{fails(check, field, fmt.Sprintf("%s has %d vCPUs and %d GiB, which is less than asked for", c.ic.InstanceType, c.size.vcpus, c.size.memoryGiB), "Name an instanceType.")}, nil
	}
	return []cloud.Check{passes(check, "%s has %d vCPUs, %d GiB, %s", c.ic.InstanceType, c.size.vcpus, c.size.memoryGiB, c.arch)}, nil
}
