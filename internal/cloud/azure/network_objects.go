package azure

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/resources/armresources/v4"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// group is the job's own resource group.
func (p *Provider) group(r *pipeline.Run) object[armresources.ResourceGroup] {
	return object[armresources.ResourceGroup]{
		p: p, r: r, kind: kindGroup, key: "group", id: p.groupID(groupOf(r.Job)),
		body: func() any {
			return armresources.ResourceGroup{Location: &p.region, Tags: tagsFor(r.Job, "group")}
		},
		see: func(_ context.Context, x resource[armresources.ResourceGroup]) ([]pipeline.Aspect, error) {
			return []pipeline.Aspect{{Name: "location", Wanted: regionName(p.region), Seen: regionName(x.Location)}}, nil
		},
		inside: p.inGroup,
	}
}

// regionName is a region's name as the API takes it: "East US" is eastus.
func regionName(region string) string {
	return strings.ToLower(strings.ReplaceAll(region, " ", ""))
}

func (p *Provider) vnetID(r *pipeline.Run) string {
	return p.idIn(r, typeVNet, r.Job.ResourceName("vnet", longestVNet))
}

// vnet is the network itself. It is put once: a later PUT would take away every
// subnet and peering that it does not name.
func (p *Provider) vnet(r *pipeline.Run, plan job.NetworkPlan) object[armnetwork.VirtualNetwork] {
	ranges := append([]string{plan.CIDR}, plan.SecondaryCIDRs...)
	return object[armnetwork.VirtualNetwork]{
		p: p, r: r, kind: kindVNet, key: "vnet", id: p.vnetID(r),
		body: func() any {
			return armnetwork.VirtualNetwork{
				Location: &p.region, Tags: tagsFor(r.Job, "vnet"),
				Properties: &armnetwork.VirtualNetworkPropertiesFormat{AddressSpace: &armnetwork.AddressSpace{AddressPrefixes: to.SliceOfPtrs(ranges...)}},
			}
		},
		see: func(_ context.Context, x resource[armnetwork.VirtualNetwork]) ([]pipeline.Aspect, error) {
			seen := addressSpace(x.is)
			if r.Mode != pipeline.Verify { // what a person has added is left alone
				seen = slices.DeleteFunc(seen, func(c string) bool { return !slices.Contains(ranges, c) })
			}
			return append([]pipeline.Aspect{{Name: "address space", Wanted: sorted(ranges), Seen: sorted(seen)}},
				watched(r, pipeline.Aspect{Name: "DNS servers", Wanted: "the platform's", Seen: dnsServers(x.is)})...), nil
		},
		inside: func(ctx context.Context, id string) ([]string, error) { return p.inVNet(ctx, r, id) },
	}
}

func addressSpace(v armnetwork.VirtualNetwork) []string {
	if v.Properties == nil || v.Properties.AddressSpace == nil {
		return nil
	}
	return values(v.Properties.AddressSpace.AddressPrefixes)
}

func dnsServers(v armnetwork.VirtualNetwork) string {
	if v.Properties == nil || v.Properties.DhcpOptions == nil || len(v.Properties.DhcpOptions.DNSServers) == 0 {
		return "the platform's"
	}
	return sorted(values(v.Properties.DhcpOptions.DNSServers))
}

// values are what a list of pointers points to.
func values[T any](all []*T) []T {
	var out []T
	for _, v := range all {
		if v != nil {
			out = append(out, *v)
		}
	}
	return out
}

func value[T any](v *T) T {
	if v == nil {
		var zero T
		return zero
	}
	return *v
}

func sorted(all []string) string {
	all = slices.Clone(all)
	sort.Strings(all)
	return strings.Join(all, ", ")
}

// allZones are a region's availability zones by the names that every
// subscription has for them.
var allZones = []string{"1", "2", "3"}

// zonal reports whether the job's region has availability zones.
func zonal(r *pipeline.Run) bool { return len(r.Job.Config.InfraConfig.Zones) > 0 }

// zonesIf are all zones in a region that has some: whatever stands in all of
// them outlives the loss of one.
func zonesIf(r *pipeline.Run) []*string {
	if !zonal(r) {
		return nil
	}
	return to.SliceOfPtrs(allZones...)
}

// addressSKU is that of an address for the NAT gateway. StandardV2 gateways
// stand in all zones at once and only take addresses of their own SKU ("What is
// Azure NAT Gateway?"); where there are no zones, Standard does.
func addressSKU(r *pipeline.Run, key string) armnetwork.PublicIPAddressSKUName {
	if key == "nat-ip" && zonal(r) {
		return armnetwork.PublicIPAddressSKUNameStandardV2
	}
	return armnetwork.PublicIPAddressSKUNameStandard
}

// publicIP is a static public address in all zones.
func (p *Provider) publicIP(r *pipeline.Run, key string) object[armnetwork.PublicIPAddress] {
	sku := addressSKU(r, key)
	return object[armnetwork.PublicIPAddress]{
		p: p, r: r, kind: kindPublicIP, key: key, id: p.idIn(r, typePublicIP, r.Job.ResourceName(key, longestName)),
		body: func() any {
			return armnetwork.PublicIPAddress{
				Location: &p.region, Tags: tagsFor(r.Job, key), Zones: zonesIf(r),
				SKU: &armnetwork.PublicIPAddressSKU{Name: &sku, Tier: new(armnetwork.PublicIPAddressSKUTierRegional)},
				Properties: &armnetwork.PublicIPAddressPropertiesFormat{
					PublicIPAllocationMethod: new(armnetwork.IPAllocationMethodStatic), PublicIPAddressVersion: new(armnetwork.IPVersionIPv4),
				},
			}
		},
		see: func(_ context.Context, x resource[armnetwork.PublicIPAddress]) ([]pipeline.Aspect, error) {
			seen := ""
			if x.is.SKU != nil {
				seen = string(value(x.is.SKU.Name))
			}
			return []pipeline.Aspect{{Name: "sku", Wanted: string(sku), Seen: seen}}, nil
		},
		blockers: func(ctx context.Context, id string) ([]string, error) {
			x, err := read[armnetwork.PublicIPAddress](ctx, p, id)
			if err != nil || x.is.Properties == nil {
				return nil, err
			}
			switch props := x.is.Properties; {
			case props.IPConfiguration != nil:
				return []string{value(props.IPConfiguration.ID)}, nil
			case props.NatGateway != nil:
				return []string{value(props.NatGateway.ID)}, nil
			}
			return nil, nil
		},
	}
}

// natGateway lets the private subnet out.
func (p *Provider) natGateway(r *pipeline.Run) object[armnetwork.NatGateway] {
	sku := armnetwork.NatGatewaySKUNameStandard
	if zonal(r) {
		sku = armnetwork.NatGatewaySKUNameStandardV2
	}
	address := p.publicIP(r, "nat-ip").id
	return object[armnetwork.NatGateway]{
		p: p, r: r, kind: kindNAT, key: "nat", id: p.idIn(r, typeNAT, r.Job.ResourceName("nat", longestName)),
		body: func() any {
			return armnetwork.NatGateway{
				Location: &p.region, Tags: tagsFor(r.Job, "nat"), Zones: zonesIf(r), SKU: &armnetwork.NatGatewaySKU{Name: &sku},
				Properties: &armnetwork.NatGatewayPropertiesFormat{PublicIPAddresses: []*armnetwork.SubResource{{ID: &address}}},
			}
		},
		see: func(_ context.Context, x resource[armnetwork.NatGateway]) ([]pipeline.Aspect, error) {
			seen, kind := []string{}, ""
			if x.is.Properties != nil {
				for _, a := range x.is.Properties.PublicIPAddresses {
					seen = append(seen, strings.ToLower(lastName(value(a.ID))))
				}
			}
			if x.is.SKU != nil {
				kind = string(value(x.is.SKU.Name))
			}
			return []pipeline.Aspect{
				{Name: "sku", Wanted: string(sku), Seen: kind},
				{Name: "address", Wanted: strings.ToLower(lastName(address)), Seen: sorted(seen), Set: func(ctx context.Context) error {
					if x.is.Properties == nil {
						return nil
					}
					fixed := x.is
					fixed.Properties.PublicIPAddresses = []*armnetwork.SubResource{{ID: &address}}
					return p.update(ctx, r, x.meta, fixed)
				}},
			}, nil
		},
		blockers: func(ctx context.Context, id string) ([]string, error) {
			x, err := read[armnetwork.NatGateway](ctx, p, id)
			if err != nil || x.is.Properties == nil {
				return nil, err
			}
			var names []string
			for _, s := range x.is.Properties.Subnets {
				names = append(names, "subnet "+value(s.ID))
			}
			return names, nil
		},
	}
}

// update writes a resource back as it was read, but for what was put right in
// it; it fails if somebody else has changed it meanwhile.
func (p *Provider) update(ctx context.Context, r *pipeline.Run, m meta, fixed any) error {
	header := http.Header{}
	if m.Etag != "" {
		header.Set("If-Match", m.Etag)
	}
	_, op, err := put[struct{}](ctx, p, m.ID, fixed, header)
	if err != nil {
		return err
	}
	op.remember(r, m.ID)
	return changed(r, m.Name)
}

// subnet is one subnet, with its security group, and with the NAT gateway if it
// is let out.
func (p *Provider) subnet(r *pipeline.Run, at layout, s job.SubnetPlan) object[armnetwork.Subnet] {
	key := s.Key
	rules := p.securityGroup(r, s).id
	gateway := ""
	if at.nat && s.Tier == job.TierPrivate {
		gateway = p.natGateway(r).id
	}
	fill := func(f *armnetwork.SubnetPropertiesFormat) {
		f.DefaultOutboundAccess = new(false)
		f.NetworkSecurityGroup = &armnetwork.SecurityGroup{ID: &rules}
		f.NatGateway = nil
		if gateway != "" {
			f.NatGateway = &armnetwork.SubResource{ID: &gateway}
		}
		fillDataSubnet(r.Job, s.Tier, f)
	}
	return object[armnetwork.Subnet]{
		p: p, r: r, kind: kindSubnet, key: key, id: at.vnet + "/subnets/" + r.Job.ResourceName(key, longestName),
		body: func() any {
			f := &armnetwork.SubnetPropertiesFormat{AddressPrefix: new(s.CIDR)}
			fill(f)
			return armnetwork.Subnet{Properties: f}
		},
		see: func(_ context.Context, x resource[armnetwork.Subnet]) ([]pipeline.Aspect, error) {
			set := func(ctx context.Context) error {
				fixed := x.is
				fill(fixed.Properties)
				return p.update(ctx, r, x.meta, fixed)
			}
			aspects, f := subnetAspects(x.is, s.CIDR, rules, gateway, set), value(x.is.Properties)
			if service := delegation(r.Job, s.Tier); service != "" {
				aspects = append(aspects, pipeline.Aspect{Name: "delegation", Wanted: service, Seen: delegatedTo(f), Set: set})
			} else if forData(r.Job, s.Tier) {
				aspects = append(aspects, pipeline.Aspect{Name: "security group counts for private endpoints", Wanted: "yes", Seen: yesNo(groupCounts(f)), Set: set})
			}
			return aspects, nil
		},
		owner: func(ctx context.Context, x resource[armnetwork.Subnet]) (string, error) {
			return p.subnetOwner(ctx, r, x, rules)
		},
		blockers: func(ctx context.Context, id string) ([]string, error) { return p.usersOfSubnet(ctx, id) },
	}
}

func subnetAspects(x armnetwork.Subnet, cidr, rules, gateway string, set func(context.Context) error) []pipeline.Aspect {
	f := value(x.Properties)
	group, nat := "", ""
	if f.NetworkSecurityGroup != nil {
		group = value(f.NetworkSecurityGroup.ID)
	}
	if f.NatGateway != nil {
		nat = value(f.NatGateway.ID)
	}
	outbound := "on" // what the platform takes it for where it is not said
	if f.DefaultOutboundAccess != nil && !*f.DefaultOutboundAccess {
		outbound = "off"
	}
	return []pipeline.Aspect{
		{Name: "cidr", Wanted: cidr, Seen: prefixesOf(f)},
		{Name: "security group", Wanted: strings.ToLower(lastName(rules)), Seen: strings.ToLower(lastName(group)), Set: set},
		{Name: "NAT gateway", Wanted: strings.ToLower(lastName(gateway)), Seen: strings.ToLower(lastName(nat)), Set: set},
		{Name: "default outbound access", Wanted: "off", Seen: outbound, Set: set},
	}
}

// prefixesOf are a subnet's ranges: in either of the fields that Azure has for them.
func prefixesOf(f armnetwork.SubnetPropertiesFormat) string {
	if f.AddressPrefix != nil && *f.AddressPrefix != "" {
		return *f.AddressPrefix
	}
	return sorted(values(f.AddressPrefixes))
}

// subnetOwner: a subnet has no tags. In the job's own network it is the job's if
// it has the exact name; in somebody else's it also has to use the security
// group that the job made for it.
func (p *Provider) subnetOwner(ctx context.Context, r *pipeline.Run, x resource[armnetwork.Subnet], rules string) (string, error) {
	f := value(x.is.Properties)
	if f.NetworkSecurityGroup != nil && same(value(f.NetworkSecurityGroup.ID), rules) {
		return r.Job.ID, nil
	}
	parent, err := read[armnetwork.VirtualNetwork](ctx, p, parentOf(x.ID))
	if err != nil {
		return "", err
	}
	if r.Job.Mode == job.ModeCreate {
		return cmp.Or(parent.Tags[job.MarkOwner], pipeline.Unmarked), nil
	}
	return parent.Tags[job.MarkOwner], nil
}

func describe(what, id string) string { return fmt.Sprintf("%s %s", what, id) }
