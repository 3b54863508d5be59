package azure

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	aks "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v9"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// AdoptCluster reads the cluster that an adopt job points at, with its pools, and
// notes which of the defaults it does not meet. It only reads.
func (p *Provider) AdoptCluster(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	x, err := p.adoptedCluster(ctx, r)
	if err != nil {
		return err
	}
	ic := &r.Job.Config.InfraConfig
	f := value(x.is.Properties)
	ic.ResourceGroup = segment(x.ID, "resourceGroups")
	info := job.ClusterInfo{
		Name: x.Name, ID: x.ID, Endpoint: apiServer(x.is), Public: endpointOf(x.is) == "public",
		Version: minorOf(cmp.Or(value(f.CurrentKubernetesVersion), value(f.KubernetesVersion))), Extended: value(f.SupportPlan) == aks.KubernetesSupportPlanAKSLongTermSupport,
		PublicCIDRs: values(value(f.APIServerAccessProfile).AuthorizedIPRanges), PodCIDR: value(value(f.NetworkProfile).PodCidr), ServiceCIDR: value(value(f.NetworkProfile).ServiceCidr),
		NodeRoleID: value(value(f.IdentityProfile[kubeletIdentity]).ResourceID), OIDCIssuer: value(value(f.OidcIssuerProfile).IssuerURL), NodeGroup: value(f.NodeResourceGroup),
	}
	info.SupportUntil = supportEnds[info.Version]
	for id := range value(x.is.Identity).UserAssignedIdentities {
		info.RoleID = id
	}
	sizes, err := p.sizes(ctx)
	if err := pipeline.Unless(err, pipeline.Denied); err != nil {
		return err
	}
	for _, pool := range f.AgentPoolProfiles {
		info.NodePools = append(info.NodePools, poolInfo(x.ID, value(pool), sizes))
	}
	rows, err := p.clusterControls(ctx, r, x)
	if err != nil {
		return err
	}
	for _, c := range rows {
		if !c.Met && !c.Unchecked {
			info.RiskNotes = append(info.RiskNotes, fmt.Sprintf("%s: %s: %s, wanted %s", c.ID, c.Name, c.Seen, c.Wanted))
		}
	}
	ic.Cluster = info
	return nil
}

func poolInfo(cluster string, n aks.ManagedClusterAgentPoolProfile, sizes []size) job.NodePoolInfo {
	count := int(value(n.Count))
	out := job.NodePoolInfo{
		Name: value(n.Name), ID: cluster + "/agentPools/" + value(n.Name), InstanceType: value(n.VMSize), Spot: value(n.ScaleSetPriority) == aks.ScaleSetPrioritySpot,
		Zones: values(n.AvailabilityZones), Min: count, Max: count, Desired: count, State: value(n.ProvisioningState),
	}
	if value(n.EnableAutoScaling) {
		out.Min, out.Max = int(value(n.MinCount)), int(value(n.MaxCount))
	}
	for _, s := range sizes {
		if same(s.name, out.InstanceType) {
			out.Arch = s.arch
		}
	}
	return out
}

// adoptedCluster is the cluster that an adopt job names.
func (p *Provider) adoptedCluster(ctx context.Context, r *pipeline.Run) (resource[aks.ManagedCluster], error) {
	const field = "config.spec.adopt.name"
	var x resource[aks.ManagedCluster]
	spec, err := r.Job.ClusterSpec()
	if err != nil {
		return x, err
	}
	if spec.Adopt == nil {
		return x, pipeline.Fatal("nothing-to-adopt", "the request does not say what to adopt", "Name a cluster in adopt, then retry.").On(field)
	}
	called := spec.Adopt.Name
	if len(spec.Adopt.IDs) > 0 {
		called = spec.Adopt.IDs[0]
	}
	id, err := p.clusterNamed(ctx, called, "")
	if err == nil {
		x, err = read[aks.ManagedCluster](ctx, p, id)
	}
	var fatal *pipeline.FatalError
	switch {
	case pipeline.Is(err, pipeline.NotFound):
		return x, pipeline.Fatal("not-found", fmt.Sprintf("there is no cluster %s that these credentials can see in %s: %v", called, p.region, err), "Name one that exists, then retry.").On(field).From(err)
	case errors.As(err, &fatal) && fatal.Problem.Field == "":
		return x, fatal.On(field)
	case err == nil && regionName(x.Location) != regionName(p.region):
		return x, pipeline.Fatal("other-region", fmt.Sprintf("cluster %s is in %s, and the job in %s", x.Name, x.Location, p.region), "Use the cluster's region.").On("region")
	}
	return x, err
}
