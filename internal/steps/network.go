package steps

import (
	"context"
	"fmt"
	"strings"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

func (s Set) network() pipeline.Pipeline {
	return pipeline.Pipeline{
		{Name: Validate, Title: "Check account, ranges and names", Ensure: s.validate, Remove: s.proveGone},
		{Name: CreateNetwork, Title: "Network", Ensure: s.ensureNetwork, Remove: owned(s.on(cloud.Provider.RemoveNetwork))},
		{Name: CreatePeering, Title: "Peerings", When: hasPeerings, Ensure: s.onNetwork(cloud.NetworkFamily.EnsurePeerings), Remove: s.onNetwork(cloud.NetworkFamily.RemovePeerings)},
		{Name: CreateDNSZone, Title: "DNS zones", When: hasDNSZones, Ensure: s.onNetwork(cloud.NetworkFamily.EnsureDNSZones), Remove: s.onNetwork(cloud.NetworkFamily.RemoveDNSZones)},
		{Name: Finalize, Title: "Read back and report", Ensure: s.finalize},
	}
}

// ensureNetwork makes the network, or reads the one that is adopted.
func (s Set) ensureNetwork(ctx context.Context, r *pipeline.Run) error {
	if r.Job.Owns() {
		return s.on(cloud.Provider.EnsureNetwork)(ctx, r)
	}
	if r.Mode == pipeline.Plan {
		return nil
	}
	if err := s.onNetwork(cloud.NetworkFamily.AdoptNetwork)(ctx, r); err != nil {
		return err
	}
	return r.Save(ctx)
}

// onNetwork is a step that is all the cloud's own, as on.
func (s Set) onNetwork(method func(cloud.NetworkFamily, context.Context, *pipeline.Run) error) pipeline.Func {
	return func(ctx context.Context, r *pipeline.Run) error {
		c, ok := s.Cloud.(cloud.NetworkFamily)
		if !ok {
			return pipeline.Fatal("not-offered", fmt.Sprintf("network jobs are not offered at %s", r.Job.Provider), "Make the network at another cloud.").On("provider")
		}
		return method(c, ctx, r)
	}
}

func hasPeerings(j *job.Job) bool {
	s, err := j.NetworkJob()
	return err == nil && len(s.Peerings) > 0
}

func hasDNSZones(j *job.Job) bool {
	s, err := j.NetworkJob()
	return err == nil && len(s.DNSZones) > 0
}

// networkOutputs is what a finished network job tells its user.
func networkOutputs(infra job.InfraConfig, set func(k, v string)) {
	set("networkCidr", infra.NetworkCIDR)
	set("resourceGroup", infra.ResourceGroup)
	set("publicSubnetIds", strings.Join(infra.PublicSubnetIDs, ", "))
	set("privateSubnetIds", strings.Join(infra.PrivateSubnetIDs, ", "))
	set("databaseSubnetIds", strings.Join(infra.DatabaseSubnetIDs, ", "))
	for _, p := range infra.Peerings {
		set("peering."+p.NetworkID, p.ID)
	}
	for _, z := range infra.DNSZones {
		set("dnsZone."+z.Name, z.ID)
		if z.Visibility == job.ZonePublic {
			set("nameServers."+z.Name, strings.Join(z.NameServers, ", "))
			set("delegation."+z.Name, z.Delegation)
		}
	}
}
