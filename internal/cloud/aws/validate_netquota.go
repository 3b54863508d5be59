package aws

import (
	"context"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// networkQuotas compares what a network job will draw with what is left.
func (c *checker) networkQuotas(ctx context.Context) ([]cloud.Check, error) {
	if c.r.Mode == pipeline.Verify {
		return nil, nil
	}
	spec, err := c.r.Job.NetworkJob()
	if err != nil {
		return nil, err
	}
	var limits []limit
	add := func(l limit) { limits = append(limits, l) }
	own := c.r.Job.Mode == job.ModeCreate
	if own && !c.made(kindVPC, "vpc") {
		add(limit{name: "VPC quota", field: "region", service: "vpc", code: "L-F678F1CE", want: 1, used: c.usedVPCs,
			fix: "Ask AWS for more VPCs in the region, remove one, or build in an existing network."})
	}
	if nats := c.natCount(); nats > 0 && !c.made(kindNATGateway, "nat-"+zoneKeys[nats-1]) {
		fewer := "single or none"
		if nats == 1 {
			fewer = "none"
		}
		add(limit{name: "elastic IP quota", field: "config.spec.network.nat", service: "ec2", code: "L-0263D0A3", want: nats, used: c.usedAddresses,
			fix: "Ask AWS for more elastic IPs, release one, or use nat: " + fewer + "."})
		add(limit{name: "NAT gateways per zone quota", field: "config.spec.network.nat", service: "vpc", code: "L-FE5A380F", want: 1, used: c.usedNATs,
			fix: "Ask AWS for more NAT gateways in a zone, or use nat: none."})
	}
	if c.wantsGatewayEndpoints() && !c.made(kindEndpoint, endpointGateway+gatewayServices[0]) {
		add(limit{name: "gateway endpoint quota", field: "region", service: "vpc", code: "L-1B52E74A", want: len(gatewayServices), used: c.usedGatewayEndpoints,
			fix: "Ask AWS for more gateway endpoints in the region, or remove some."})
	}
	if services := askedEndpoints(spec.Network); len(services) > 0 && !c.made(kindEndpoint, endpointGateway+services[0]) {
		add(limit{name: "interface endpoint quota", field: "config.spec.network.interfaceEndpoints", service: "vpc", code: "L-29B6F2EB", want: len(services), used: c.usedInterfaceEndpoints,
			fix: "Ask AWS for more interface endpoints in a VPC, or leave interfaceEndpoints out."})
	}
	if n := len(spec.Peerings); n > 0 && !c.made(kindPeering, peeringKey(spec.Peerings[0])) {
		add(limit{name: "peerings per VPC quota", field: "config.spec.peerings", service: "vpc", code: "L-7E9ECCDB", want: n, used: c.usedPeerings,
			fix: "Ask AWS for more peering connections of a VPC, or peer with fewer networks."})
	}
	out := make([]cloud.Check, len(limits))
	var parts []func(context.Context) error
	for i, l := range limits {
		parts = append(parts, func(ctx context.Context) (err error) {
			out[i], err = c.compare(ctx, l)
			return err
		})
	}
	return out, pipeline.All(ctx, parts...)
}

// natCount is how many NAT gateways the job makes.
func (c *checker) natCount() int {
	b := build{r: c.r, spec: c.spec.Network, plan: c.ic.NetworkPlan}
	if b.plan == nil {
		return 0
	}
	return len(b.nats())
}

func (c *checker) wantsGatewayEndpoints() bool {
	return c.ic.NetworkPlan != nil && len(c.ic.NetworkPlan.Tier(job.TierPrivate))+len(c.ic.NetworkPlan.Tier(job.TierDatabase)) > 0
}

// usedNATs is the most that others have in one zone that the job uses.
func (c *checker) usedNATs(ctx context.Context) (int, error) {
	all, err := ec2Page[ec2types.NatGateway](c.natPage).all(ctx, filter("state", "pending", "available"))
	if err != nil {
		return 0, err
	}
	subnets, err := ec2Page[ec2types.Subnet](c.subnetPage).all(ctx)
	if err != nil {
		return 0, err
	}
	zone, counts, most := map[string]string{}, map[string]int{}, 0
	for _, s := range subnets {
		zone[deref(s.SubnetId)] = deref(s.AvailabilityZone)
	}
	for _, n := range all {
		if owner, _ := ec2Mark(n.Tags); owner == c.r.Job.ID {
			continue
		}
		counts[zone[deref(n.SubnetId)]]++
	}
	for _, z := range c.ic.Zones {
		most = max(most, counts[z])
	}
	return most, nil
}

func (c *checker) usedGatewayEndpoints(ctx context.Context) (int, error) {
	return c.usedEndpoints(ctx, filter("vpc-endpoint-type", "Gateway"))
}

// usedInterfaceEndpoints counts those of the network: a new one has none.
func (c *checker) usedInterfaceEndpoints(ctx context.Context) (int, error) {
	if c.ic.NetworkID == "" {
		return 0, nil
	}
	return c.usedEndpoints(ctx, filter("vpc-endpoint-type", "Interface"), filter("vpc-id", c.ic.NetworkID))
}

func (c *checker) usedEndpoints(ctx context.Context, filters ...ec2types.Filter) (int, error) {
	all, err := c.endpointsBy(ctx, filters...)
	return others(c.r.Job.ID, all, func(e ec2types.VpcEndpoint) []ec2types.Tag { return e.Tags }), err
}

func (c *checker) usedPeerings(ctx context.Context) (int, error) {
	if c.ic.NetworkID == "" {
		return 0, nil
	}
	all, err := c.peerings(ctx)
	n := 0
	for _, pc := range all {
		owner, _ := ec2Mark(pc.Tags)
		for _, side := range []*ec2types.VpcPeeringConnectionVpcInfo{pc.RequesterVpcInfo, pc.AccepterVpcInfo} {
			if side != nil && deref(side.VpcId) == c.ic.NetworkID && owner != c.r.Job.ID {
				n++
			}
		}
	}
	return n, err
}
