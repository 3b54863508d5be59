package gcp

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// regionInfo is the job's region with its zones and quotas, read once a pass.
func (p *Provider) regionInfo(ctx context.Context) (*compute.Region, error) {
	return lookup.Once(ctx, "region "+p.region, func(ctx context.Context) (*compute.Region, error) {
		return send(ctx, p.compute.Regions.Get(p.project, p.region))
	})
}

// place proves that the region is there and settles the zones: the first ones
// that are up, in the order of their names.
func (c *checker) place(ctx context.Context) error {
	const check = "region"
	region, err := c.p.regionInfo(ctx)
	switch {
	case pipeline.Is(err, pipeline.NotFound, pipeline.Invalid):
		c.fails(check, "region", fmt.Sprintf("%s is not a region of Google Cloud that project %s can use", c.p.region, c.p.project), "Use one such as us-central1; gcloud compute regions list shows all.")
		return nil
	case pipeline.Is(err, pipeline.Denied) && c.placesMachines():
		c.fails(check, "region", fmt.Sprintf("the zones of %s cannot be read, and the job's machines are placed in them: %v", c.p.region, err), "Grant the credentials compute.regions.get, then retry.")
		return nil
	case err != nil:
		return c.unchecked(ctx, check, "region", err)
	}
	var zones []string
	for _, z := range region.Zones {
		zones = append(zones, base(z))
	}
	down, err := c.zonesDown(ctx)
	if err != nil {
		return err
	}
	zones = slices.DeleteFunc(zones, func(z string) bool { return down[z] || !ordinary(z) })
	slices.Sort(zones)
	if len(zones) < c.spec.Zones {
		c.fails("zones", "config.spec.network.zones", fmt.Sprintf("%s has %d zones that are up, and the job asks for %d", c.p.region, len(zones), c.spec.Zones), "Ask for fewer, or use another region.")
		return nil
	}
	if len(c.ic.Zones) == 0 {
		c.ic.Zones = zones[:c.spec.Zones]
	}
	c.ok(check, "%s, zones %s", c.p.region, strings.Join(c.ic.Zones, ", "))
	return nil
}

// placesMachines reports whether the job cannot be begun without zones.
func (c *checker) placesMachines() bool {
	family := c.r.Job.ResourceType
	return c.r.Mode == pipeline.Apply && len(c.ic.Zones) == 0 && c.r.Job.Owns() && (family == job.VM || family == job.Cluster)
}

// ordinary reports whether a zone is for everything. Those for AI alone, such as
// us-south1-ai1b, have neither common machine types nor most services ("AI zones").
func ordinary(zone string) bool { return len(zone)-strings.LastIndexByte(zone, '-') == 2 }

// zonesDown are the zones that are not up now.
func (c *checker) zonesDown(ctx context.Context) (map[string]bool, error) {
	down := map[string]bool{}
	all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]*compute.Zone, *string, error) {
		out, err := send(ctx, c.p.compute.Zones.List(c.p.project).PageToken(text(token)))
		if err != nil {
			return nil, nil, err
		}
		return out.Items, &out.NextPageToken, nil
	})
	if err != nil {
		return down, c.unchecked(ctx, "zones", "", err)
	}
	for _, z := range all {
		down[z.Name] = z.Status == "DOWN"
	}
	return down, nil
}

// A need is how much of a quota the job will take.
type need struct {
	metric string
	count  float64
	field  string
}

// quotas compares what the job will make with what the project has left.
func (c *checker) quotas(ctx context.Context) error {
	const check = "quotas"
	project, err := send(ctx, c.p.compute.Projects.Get(c.p.project))
	if err != nil {
		return c.unchecked(ctx, check, "", err)
	}
	region, err := c.p.regionInfo(ctx)
	if err != nil {
		return c.unchecked(ctx, check, "", err)
	}
	global, regional := c.needs()
	short := slices.Concat(lacking(project.Quotas, global, "project "+c.p.project), lacking(region.Quotas, regional, "region "+c.p.region))
	for _, s := range short {
		c.fails(check, s.field, s.metric, "Ask for a higher quota in the console (IAM & Admin, Quotas), or free some of it.")
	}
	if len(short) == 0 {
		c.ok(check, "enough of %s", strings.Join(metrics(slices.Concat(global, regional)), ", "))
	}
	return nil
}

// needs is what the job has yet to make of what is limited.
func (c *checker) needs() (global, regional []need) {
	const at = "config.spec.network"
	yet := func(kind, key string) float64 {
		if made(c.r, kind, key) {
			return 0
		}
		return 1
	}
	if c.r.Job.Mode == job.ModeCreate {
		global = append(global, need{"NETWORKS", yet(kindNetwork, "network"), at}, need{"FIREWALLS", yet(kindFirewall, "firewall-deny"), at})
	}
	subnets := need{"SUBNETWORKS", 0, at + ".subnets"}
	for _, tier := range c.spec.Subnets {
		subnets.count += yet(kindSubnet, tier)
	}
	global = append(global, subnets)
	if c.spec.NAT != job.NATNone {
		global = append(global, need{"ROUTERS", yet(kindRouter, "router"), at + ".nat"})
		regional = append(regional, need{"STATIC_ADDRESSES", yet(kindAddress, "nat-address"), at + ".nat"})
	}
	return global, regional
}

// lacking are the needs that a quota does not leave room for, their metric told
// as a sentence. A quota that is not listed is not compared.
func lacking(quotas []*compute.Quota, needs []need, where string) []need {
	var out []need
	for _, n := range needs {
		for _, q := range quotas {
			if q.Metric == n.metric && q.Usage+n.count > q.Limit && n.count > 0 {
				out = append(out, need{fmt.Sprintf("quota %s of %s: %g of %g are in use, and the job needs %g more", q.Metric, where, q.Usage, q.Limit, n.count), n.count, n.field})
			}
		}
	}
	return out
}

func metrics(needs []need) []string {
	var out []string
	for _, n := range needs {
		out = append(out, n.metric)
	}
	return out
}
