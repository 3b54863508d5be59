package aws

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/job"
)

// flowLog reads back what is logged of the network's traffic.
func (c *controls) flowLog(ctx context.Context) error {
	if c.r.Job.Mode != job.ModeCreate || c.infra.NetworkID == "" {
		return nil
	}
	if madeID(c.r, kindFlowLog, flowLogKey) == "" && c.net.FlowLogs != job.FlowLogsNone && c.p.foreignEndpoint() {
		return nil // left out, as a warning says
	}
	all, err := made(ctx, c.r, c.p.flowLogs())
	if err != nil {
		return err
	}
	var seen []string
	met := false
	for _, f := range all {
		seen = append(seen, fmt.Sprintf("%s %s", f.TrafficType, aws.ToString(f.FlowLogStatus)))
		met = met || f.TrafficType != ec2types.TrafficTypeAccept && strings.EqualFold(aws.ToString(f.FlowLogStatus), "ACTIVE")
	}
	c.add("NETA-02", "flow log of the VPC", "REJECT or ALL, active", or(agreed(seen), "none"), met, "EC2.6, CIS AWS 4.7")
	return nil
}

// networkACL reads back what the network ACLs of private and database subnets let
// in from the internet.
func (c *controls) networkACL(ctx context.Context) error {
	inner := slices.Concat(c.infra.PrivateSubnetIDs, c.infra.DatabaseSubnetIDs)
	if !c.builds() || len(inner) == 0 || madeID(c.r, kindNetworkACL, aclKey) == "" && c.p.foreignEndpoint() {
		return nil
	}
	all, err := made(ctx, c.r, c.p.networkACLs())
	if err != nil {
		return err
	}
	var open []string
	guarded := associations(all...)
	for _, id := range inner {
		if guarded[id] == "" {
			open = append(open, id+" has another network ACL")
		}
	}
	for _, a := range all {
		for _, what := range admitted(rulesOf(a), c.inside()) {
			open = append(open, aws.ToString(a.NetworkAclId)+" admits "+what)
		}
	}
	c.same("NETA-07", "network ACLs of private subnets that admit 20, 21, 22, 3389 or all ports from the internet", "none", or(strings.Join(open, ", "), "none"), "EC2.21, CIS AWS 6.2")
	return nil
}

// inside are the ranges that are not the internet: private ones, and those of the
// network and its peers.
func (c *controls) inside() []netip.Prefix {
	out := slices.Clone(privateBlocks)
	ranges := append(peerRangesOf(c.infra), c.infra.NetworkCIDR)
	if plan := c.infra.NetworkPlan; plan != nil {
		ranges = append(append(ranges, plan.CIDR), plan.SecondaryCIDRs...)
	}
	for _, text := range ranges {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// endpoints reads back where the traffic to AWS's own services goes.
func (c *controls) endpoints(ctx context.Context) error {
	if !c.builds() || len(c.infra.EndpointIDs) == 0 && c.p.foreignEndpoint() {
		return nil
	}
	all, err := made(ctx, c.r, c.p.endpointKind())
	if err != nil {
		return err
	}
	tables, err := made(ctx, c.r, c.p.routeTables())
	if err != nil {
		return err
	}
	var inward []string
	for _, t := range tables {
		if _, key := ec2Mark(t.Tags); key != "routes-public" {
			inward = append(inward, aws.ToString(t.RouteTableId))
		}
	}
	var gateways, interfaces, open []string
	met := true
	for _, service := range gatewayServices {
		i := slices.IndexFunc(all, func(e ec2types.VpcEndpoint) bool { return strings.HasSuffix(aws.ToString(e.ServiceName), "."+service) })
		if i < 0 || len(subtract(inward, all[i].RouteTableIds)) > 0 {
			met = false
			continue
		}
		gateways = append(gateways, service)
	}
	account := c.r.Job.Config.InfraConfig.Account
	for _, e := range all {
		name := aws.ToString(e.ServiceName)
		if e.VpcEndpointType == ec2types.VpcEndpointTypeInterface {
			interfaces = append(interfaces, fmt.Sprintf("%s %s", name[strings.LastIndex(name, ".")+1:], strings.ToLower(string(e.State))))
		}
		if doc := aws.ToString(e.PolicyDocument); account != "" && !strings.Contains(doc, account) {
			open = append(open, name)
		}
	}
	c.add("NETA-13", "gateway endpoints in every private route table", "s3, dynamodb", or(strings.Join(gateways, ", "), "none"), met, "CIS AWS 6.8")
	c.same("NETA-15", "endpoints that are open to other accounts", "none", or(agreed(open), "none"), "vpc_endpoint_connections_trust_boundaries")
	if services := askedEndpoints(c.net); len(services) > 0 {
		var wanted []string
		for _, s := range services {
			wanted = append(wanted, s+" available")
		}
		c.same("NETA-14", "interface endpoints of Systems Manager", agreed(wanted), agreed(interfaces), "EC2.57")
	}
	if c.net.NAT == job.NATPerZone {
		c.add("NETA-11", "NAT gateways", "one a zone", fmt.Sprint(len(c.infra.NATGatewayIDs)), len(c.infra.NATGatewayIDs) == len(c.infra.Zones), "WA REL10-BP01")
	}
	return nil
}

// peerings reads back that no route gives a peer more than its ranges.
func (c *controls) peerings(ctx context.Context) error {
	if c.r.Job.ResourceType != job.Network || !peeringAsked(c.r.Job) {
		return nil
	}
	tables, err := made(ctx, c.r, c.p.routeTables())
	if err != nil {
		return err
	}
	routes := routedByPeering(tables)
	c.add("NETA-12", "routes through peerings", "the peers' ranges, not "+anywhere, or(agreed(routes), "none"), !slices.Contains(routes, anywhere), "CIS AWS 6.6")
	return nil
}
