package azure

import (
	"context"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
)

// own are the job's objects of one kind, by their IDs.
func (c *controls) own(kind string) []string {
	var ids []string
	for _, o := range c.r.Objects() {
		if o.Kind == kind && o.State == job.ObjectCreated {
			ids = append(ids, o.ID)
		}
	}
	return ids
}

// subnets reads back that each subnet has its group and no way out by default.
func (c *controls) subnets(ctx context.Context) error {
	var bareOnes, open, let []string
	ids := c.own(kindSubnet)
	for _, id := range ids {
		x, err := read[armnetwork.Subnet](ctx, c.p, id)
		if err != nil {
			return err
		}
		f := value(x.is.Properties)
		if f.NetworkSecurityGroup == nil {
			bareOnes = append(bareOnes, x.Name)
		}
		if f.DefaultOutboundAccess == nil || *f.DefaultOutboundAccess {
			open = append(open, x.Name)
		}
		if f.NatGateway != nil {
			let = append(let, x.Name)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	c.same("NETZ-01", "subnets without a network security group", "none", agreed(bareOnes), "CKV2_AZURE_31, CIS Azure 7.11")
	c.same("NETZ-02", "subnets with default outbound access", "none", agreed(open), "Azure.VNET.PrivateSubnet")
	if len(c.infra.NATGatewayIDs) > 0 {
		c.add("NETZ-02", "subnets let out by a NAT gateway", "the private one", agreed(let), len(let) == len(c.infra.PrivateSubnetIDs), "Azure.VNET.PrivateSubnet")
	}
	return nil
}

// groups reads the rules of the job's security groups.
func (c *controls) groups(ctx context.Context) error {
	ids := c.own(kindNSG)
	if len(ids) == 0 {
		return nil
	}
	seen := map[string][]string{}
	var denied []string
	for _, id := range ids {
		x, err := read[armnetwork.SecurityGroup](ctx, c.p, id)
		if err != nil {
			return err
		}
		for _, o := range openRules(x.is) {
			if o.control == "NETZ-06" && (c.p.madeRule(c.r, id, o.rule) || c.r.Job.ResourceType == job.Cluster && o.rule == webRule) {
				continue // the load balancer's own, or for those of a cluster's Services
			}
			seen[o.control] = append(seen[o.control], x.Name+": "+o.text)
		}
		if deniesEverything(x.is) {
			denied = append(denied, x.Name)
		}
	}
	c.same("NETZ-03", "rules that admit 22 from the internet", "none", agreed(seen["NETZ-03"]), "CKV_AZURE_10, CIS Azure 7.2")
	c.same("NETZ-04", "rules that admit 3389 from the internet", "none", agreed(seen["NETZ-04"]), "CKV_AZURE_9, CIS Azure 7.1")
	c.same("NETZ-05", "rules that admit UDP from the internet", "none", agreed(seen["NETZ-05"]), "CKV_AZURE_77, CIS Azure 7.3")
	c.same("NETZ-06", "rules that admit 80 or 443 from the internet, but for the load balancer's", "none", agreed(seen["NETZ-06"]), "CKV_AZURE_160, CIS Azure 7.4")
	c.same("NETZ-07", "inbound rules from any source", "none", agreed(seen["NETZ-07"]), "AZU-0047, Azure.NSG.AnyInboundSource")
	c.same("NETZ-09", "groups that deny the platform's own inbound traffic", "none", agreed(denied), "Azure.NSG.DenyAllInbound")
	return nil
}

// deniesEverything reports whether a group shuts out the load balancer's probes
// and the network itself.
func deniesEverything(x armnetwork.SecurityGroup) bool {
	return slices.ContainsFunc(value(x.Properties).SecurityRules, func(rule *armnetwork.SecurityRule) bool {
		f := value(rule.Properties)
		return value(f.Access) == armnetwork.SecurityRuleAccessDeny && value(f.Direction) == armnetwork.SecurityRuleDirectionInbound &&
			slices.Contains(both(f.SourceAddressPrefix, f.SourceAddressPrefixes), "*") && slices.Contains(both(f.DestinationPortRange, f.DestinationPortRanges), "*")
	})
}

// vnet reads the network itself, and whether the region watches its networks.
func (c *controls) vnet(ctx context.Context) error {
	if c.infra.NetworkID == "" {
		return nil
	}
	x, err := read[armnetwork.VirtualNetwork](ctx, c.p, c.infra.NetworkID)
	if err != nil {
		return err
	}
	servers := dnsServers(x.is)
	c.add("NETZ-15", "DNS servers", "the platform's", servers, servers == "the platform's" || strings.Contains(servers, ","), "CKV_AZURE_182, Azure.VNET.SingleDNS")
	watchers, err := lookup.Once(ctx, "network watchers", func(ctx context.Context) ([]meta, error) {
		return list[meta](ctx, c.p, managementPrefix+c.p.subscription+"/providers/Microsoft.Network/networkWatchers")
	})
	if err != nil {
		return err
	}
	var here []string
	for _, w := range watchers {
		if regionName(w.Location) == regionName(c.p.region) {
			here = append(here, w.Name)
		}
	}
	c.add("NETZ-13", "Network Watcher of the region", "one", agreed(here), len(here) > 0, "network_watcher_enabled, CIS Azure 7.6")
	return nil
}

// peerings reads both sides of every peering.
func (c *controls) peerings(ctx context.Context) error {
	ids := c.own(kindPeering)
	if len(ids) == 0 {
		return nil
	}
	spec, err := c.r.Job.NetworkJob()
	if err != nil {
		return err
	}
	var states, through []string
	for _, id := range ids {
		by := c.p
		for _, peer := range spec.Peerings {
			other, err := c.p.holding(ctx, c.r.Job, peer)
			if err != nil {
				return err
			}
			if same(other.subscription, segment(id, "subscriptions")) && !same(c.p.subscription, other.subscription) {
				by = other
			}
		}
		x, err := read[armnetwork.VirtualNetworkPeering](ctx, by, id)
		if err != nil {
			return err
		}
		f := value(x.is.Properties)
		states = append(states, string(value(f.PeeringState)))
		if value(f.AllowForwardedTraffic) || value(f.AllowGatewayTransit) || value(f.UseRemoteGateways) {
			through = append(through, x.Name)
		}
	}
	c.same("NETZ-16", "state of the peerings, both sides", "Connected", agreed(states), "Azure.VNET.PeerState")
	c.same("NETZ-16", "peerings that let forwarded traffic or gateways through", "none", agreed(through), "Azure.VNET.PeerState")
	return nil
}

// addresses reads the public addresses: their SKU, their zones, and that each is
// in use.
func (c *controls) addresses(ctx context.Context) error {
	ids := c.own(kindPublicIP)
	var skus, zones, idle []string
	for _, id := range ids {
		x, err := read[armnetwork.PublicIPAddress](ctx, c.p, id)
		if err != nil {
			return err
		}
		if x.is.SKU != nil {
			skus = append(skus, string(value(x.is.SKU.Name)))
		}
		zones = append(zones, sorted(x.Zones))
		if f := value(x.is.Properties); f.IPConfiguration == nil && f.NatGateway == nil {
			idle = append(idle, x.Name)
		}
	}
	if len(ids) > 0 {
		standard := !slices.ContainsFunc(skus, func(s string) bool { return !strings.HasPrefix(s, "Standard") })
		c.add("NETZ-19", "SKU of public addresses", "Standard or StandardV2", agreed(skus), standard, "Azure.PublicIP.StandardSKU")
		if zonal(c.r) {
			c.same("NETZ-19", "zones of public addresses", sorted(allZones), agreed(zones), "Azure.PublicIP.AvailabilityZone")
		}
	}
	unused, err := c.idleGroups(ctx)
	if err != nil || len(ids)+len(c.own(kindNSG)) == 0 {
		return err
	}
	c.same("NETZ-20", "public addresses and security groups that nothing uses", "none", agreed(append(idle, unused...)), "Azure.PublicIP.IsAttached, Azure.NSG.Associated")
	return nil
}

func (c *controls) idleGroups(ctx context.Context) ([]string, error) {
	var idle []string
	for _, id := range c.own(kindNSG) {
		x, err := read[armnetwork.SecurityGroup](ctx, c.p, id)
		if err != nil {
			return nil, err
		}
		// The interfaces of a uniform set are the set's, and not on the group's list.
		ofSet := c.infra.ScalingGroupID != "" && same(id, c.infra.VMSecurityGroupID)
		if f := value(x.is.Properties); len(f.Subnets)+len(f.NetworkInterfaces) == 0 && !ofSet {
			idle = append(idle, x.Name)
		}
	}
	return idle, nil
}
