package aws

import (
	"context"
	"slices"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// RemoveNetwork removes the network if the job made it, or the parts that a
// network job added to somebody else's. A network that a VM job was only told to
// build in is not touched.
func (p *Provider) RemoveNetwork(ctx context.Context, r *pipeline.Run) error {
	own := r.Job.Mode == job.ModeCreate
	if r.Mode == pipeline.Plan {
		return nil
	}
	ctx = lookup.With(ctx, r)
	if !own && (r.Job.Mode != job.ModeCreateInExisting || r.Job.ResourceType != job.Network) {
		return p.sweepLogs(ctx, r)
	}
	spec, err := r.Job.Network()
	if err != nil {
		return err
	}
	d := demolition{Provider: p, r: r, spec: spec, own: own, vpcID: madeID(r, kindVPC, "vpc")}
	if !own {
		d.vpcID = r.Job.Config.InfraConfig.NetworkID
	}
	for _, stage := range d.stages() {
		if err := pipeline.All(ctx, stage...); err != nil {
			return err
		}
	}
	return p.sweepLogs(ctx, r)
}

// A demolition is a network as it is taken down.
type demolition struct {
	*Provider
	r     *pipeline.Run
	spec  job.NetworkSpec
	own   bool
	vpcID string
}

// stages is everything that may have been made, in the order in which it can go:
// interface endpoints sit in the private subnets; a NAT gateway holds its address
// and sits in a public subnet; the internet gateway stays while an address is
// mapped; a route table and a network ACL stay while a subnet uses them; and the
// VPC goes last.
func (d *demolition) stages() [][]func(context.Context) error {
	r, vpc := d.r, d.vpcID
	subnets := func(tier string) []func(context.Context) error {
		return d.eachZone(slices.Contains(d.spec.Subnets, tier), func(z string) pipeline.Resource { return d.subnet(r, tier+"-"+z, vpc, "", "") })
	}
	nat := d.spec.NAT != job.NATNone
	nats := d.eachZone(nat, func(z string) pipeline.Resource { return d.natGateway(r, "nat-"+z, "", "") })
	addresses := d.eachZone(nat, func(z string) pipeline.Resource { return d.address(r, "nat-address-"+z) })
	tables := d.eachZone(slices.Contains(d.spec.Subnets, job.TierPrivate), func(z string) pipeline.Resource {
		return d.routeTable(r, "routes-private-"+z, vpc, "", nil)
	})
	tables = append(tables,
		d.maybe(slices.Contains(d.spec.Subnets, job.TierPublic), d.routeTable(r, "routes-public", vpc, "", nil)),
		d.maybe(slices.Contains(d.spec.Subnets, job.TierDatabase), d.routeTable(r, "routes-database", vpc, "", nil)),
		d.maybe(slices.Contains(d.spec.Subnets, job.TierPublic), d.internetGateway(r, vpc)),
		d.maybe(len(d.spec.InterfaceEndpoints) > 0, d.endpointGroup(r, nil)),
		d.aclGone,
	)
	stages := [][]func(context.Context) error{
		append(d.endpoints(len(d.spec.InterfaceEndpoints) > 0, interfaceServices["ssm"]), d.flowLogGone),
		slices.Concat(nats, subnets(job.TierPrivate), subnets(job.TierDatabase), d.endpoints(true, gatewayServices)),
		slices.Concat(addresses, subnets(job.TierPublic), d.loggingGone()),
		tables,
	}
	if !d.own {
		return stages
	}
	return append(stages,
		[]func(context.Context) error{func(ctx context.Context) error { return d.removeLeftBehind(ctx, r, vpc) }},
		[]func(context.Context) error{func(ctx context.Context) error { return r.Remove(ctx, d.Provider.vpc(r, nil, true)) }},
	)
}

// maybe removes an object that the request asks for, or of which the ledger knows
// from before the request was changed.
func (d *demolition) maybe(asked bool, x pipeline.Resource) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, known := d.r.Object(x.Kind, x.Key); !known && !asked {
			return nil
		}
		return d.r.Remove(ctx, x)
	}
}

// eachZone is maybe for an object of each zone.
func (d *demolition) eachZone(asked bool, one func(zone string) pipeline.Resource) []func(context.Context) error {
	var parts []func(context.Context) error
	for i, z := range zoneKeys {
		parts = append(parts, d.maybe(asked && i < d.spec.Zones, one(z)))
	}
	return parts
}

func (d *demolition) endpoints(asked bool, services []string) []func(context.Context) error {
	var parts []func(context.Context) error
	for _, service := range services {
		x := tidy(d.endpoint(d.r, endpointGateway+service, nil))
		if _, known := d.r.Object(x.Kind, x.Key); known || asked {
			parts = append(parts, func(ctx context.Context) error { return d.removeExtra(ctx, d.r, x) })
		}
	}
	return parts
}

func (d *demolition) aclGone(ctx context.Context) error {
	x := d.networkACL(d.r, d.vpcID, nil, nil)
	inner := slices.Contains(d.spec.Subnets, job.TierPrivate) || slices.Contains(d.spec.Subnets, job.TierDatabase)
	if _, known := d.r.Object(x.Kind, x.Key); !known && !inner {
		return nil
	}
	return d.removeExtra(ctx, d.r, x)
}

// logged reports whether the job may have a flow log.
func (d *demolition) logged() bool { return d.own && d.spec.FlowLogs != job.FlowLogsNone }

func (d *demolition) flowLogGone(ctx context.Context) error {
	x, err := d.flowLog(ctx, d.r, d.vpcID, d.spec.FlowLogs)
	if err != nil {
		return err
	}
	if _, known := d.r.Object(x.Kind, x.Key); !known && !d.logged() {
		return nil
	}
	return d.removeExtra(ctx, d.r, x)
}

// loggingGone removes what the flow log wrote to and with, after the flow log.
func (d *demolition) loggingGone() []func(context.Context) error {
	var parts []func(context.Context) error
	for _, x := range []pipeline.Resource{d.logGroup(d.r), d.flowRole(d.r)} {
		if _, known := d.r.Object(x.Kind, x.Key); known || d.logged() {
			parts = append(parts, func(ctx context.Context) error { return d.removeExtra(ctx, d.r, x) })
		}
	}
	return parts
}
