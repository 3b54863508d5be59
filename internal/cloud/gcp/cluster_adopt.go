package gcp

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/api/container/v1"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// adoptedCluster is the cluster that an adopt job names.
func adoptedCluster(j *job.Job) (job.ClusterRef, error) {
	spec, err := j.ClusterSpec()
	if err != nil {
		return job.ClusterRef{}, err
	}
	a := spec.Adopt
	if a == nil || a.Name == "" && len(a.IDs) != 1 {
		return job.ClusterRef{}, pipeline.Fatal("invalid", "the job does not say what to adopt", "Give the cluster's name in spec.adopt.name.").On("config.spec.adopt")
	}
	ref := job.ClusterRef{Region: j.Region, Name: a.Name}
	if len(a.IDs) == 1 {
		ref.Name = a.IDs[0]
	}
	return ref, nil
}

// AdoptCluster reads the cluster that the job points at, and notes what of it does
// not meet the defaults. Nothing of it is changed, now or later.
func (p *Provider) AdoptCluster(ctx context.Context, r *pipeline.Run) error {
	if r.Mode == pipeline.Plan {
		return nil
	}
	ctx = view(ctx, r)
	ref, err := adoptedCluster(r.Job)
	if err != nil {
		return err
	}
	id := p.clusterNamed(ref)
	c, err := p.readCluster(ctx, id)
	switch {
	case pipeline.Is(err, pipeline.NotFound) && r.Mode == pipeline.Verify:
		r.AddDrift(pipeline.Drift{Kind: kindCluster, Key: "adopted", ID: id, Attr: "exists", Wanted: "yes", Seen: "no"})
		return nil
	case pipeline.Is(err, pipeline.NotFound):
		return pipeline.Fatal("not-found", fmt.Sprintf("there is no cluster %s", id), "Name a cluster of this project and region; gcloud container clusters list shows all.").On("config.spec.adopt").From(err)
	case err != nil:
		return err
	}
	if owner, _ := labelMark(c.ResourceLabels); owner != "" && owner != r.Job.ID {
		return pipeline.Fatal("owned", fmt.Sprintf("cluster %s belongs to job %s", id, owner), "Use that job, or delete it first.").On("config.spec.adopt")
	}
	if elsewhere := p.elsewhere(id); elsewhere != "" {
		return pipeline.Fatal("wrong-region", elsewhere, "Make the job in the cluster's region and project.").On("config.spec.adopt")
	}
	seen := p.clusterInfo(id, c)
	infra := &r.Job.Config.InfraConfig
	if r.Mode == pipeline.Verify {
		adoptedClusterDrift(r, id, infra.Cluster, seen)
		return nil
	}
	seen.RiskNotes = p.clusterRisks(c)
	infra.Cluster = seen
	infra.Zones = c.Locations
	if c.NetworkConfig != nil {
		infra.NetworkID, infra.NetworkName = rel(c.NetworkConfig.Network), base(c.NetworkConfig.Network)
		infra.PrivateSubnetIDs = []string{rel(c.NetworkConfig.Subnetwork)}
	}
	infra.Warnings = append(infra.Warnings, seen.RiskNotes...)
	return nil
}

// elsewhere says where a cluster is that is not in the job's project and region; ""
// if it is (failure kind F4).
func (p *Provider) elsewhere(id string) string {
	location := part(id, "locations")
	if projectOf(id) == p.project && (location == p.region || regionOfZone(location) == p.region) {
		return ""
	}
	return fmt.Sprintf("cluster %s is in %s of project %s, and the job is in %s of %s", base(id), location, projectOf(id), p.region, p.project)
}

// regionOfZone is the region of a zone such as us-central1-a.
func regionOfZone(zone string) string {
	if i := len(zone) - 2; i > 0 && zone[i] == '-' {
		return zone[:i]
	}
	return ""
}

// clusterInfo is what the cloud says of a cluster.
func (p *Provider) clusterInfo(id string, c *container.Cluster) job.ClusterInfo {
	info := job.ClusterInfo{
		Name: c.Name, ID: id, Endpoint: p.endpointOf(c), Version: minorOf(c.CurrentMasterVersion),
		PodCIDR: c.ClusterIpv4Cidr, ServiceCIDR: c.ServicesIpv4Cidr,
	}
	info.SupportUntil = standardSupport[info.Version]
	info.Public = publicEndpointText(c) == onOff(true)
	if e := c.ControlPlaneEndpointsConfig; e != nil && e.IpEndpointsConfig != nil && e.IpEndpointsConfig.AuthorizedNetworksConfig != nil {
		for _, b := range e.IpEndpointsConfig.AuthorizedNetworksConfig.CidrBlocks {
			info.PublicCIDRs = append(info.PublicCIDRs, b.CidrBlock)
		}
	}
	if c.WorkloadIdentityConfig != nil && c.WorkloadIdentityConfig.WorkloadPool != "" {
		info.OIDCIssuer = issuerOf(id)
	}
	if c.DatabaseEncryption != nil {
		info.KMSKeyID = c.DatabaseEncryption.KeyName
	}
	for _, n := range c.NodePools {
		info.NodePools = append(info.NodePools, poolInfo(id, n))
		if n.Config != nil {
			info.NodeRoleID = or(info.NodeRoleID, n.Config.ServiceAccount)
		}
	}
	return info
}

func poolInfo(cluster string, n *container.NodePool) job.NodePoolInfo {
	info := job.NodePoolInfo{Name: n.Name, ID: cluster + "/nodePools/" + n.Name, Zones: n.Locations, State: n.Status}
	if n.Config != nil {
		info.InstanceType, info.Spot = n.Config.MachineType, n.Config.Spot || n.Config.Preemptible
		s, _ := seriesOf(n.Config.MachineType)
		info.Arch = s.arch
	}
	zones := len(n.Locations)
	info.Desired = int(n.InitialNodeCount) * zones
	info.Min, info.Max = info.Desired, info.Desired
	if a := n.Autoscaling; a != nil && a.Enabled {
		info.Min, info.Max = int(a.TotalMinNodeCount), int(a.TotalMaxNodeCount)
		if a.MaxNodeCount > 0 {
			info.Min, info.Max = int(a.MinNodeCount)*zones, int(a.MaxNodeCount)*zones
		}
	}
	return info
}

// clusterRisks is which of the hardening defaults a cluster that somebody else made
// does not meet.
func (p *Provider) clusterRisks(c *container.Cluster) []string {
	want := p.hardened(job.ClusterInfo{})
	var out []string
	if c.Status != "RUNNING" && c.Status != "RECONCILING" {
		out = append(out, "cluster "+c.Name+" is "+clusterSeen(c).Reason)
	}
	for _, s := range clusterSettings {
		if s.id == "" || s.id == "GKE-13" {
			continue
		}
		wanted, seen := s.text(want), s.text(c)
		if seen != wanted && (s.fine == nil || !s.fine(seen)) {
			out = append(out, fmt.Sprintf("%s: %s is %s, and the default is %s", s.id, s.name, or(seen, "not set"), wanted))
		}
	}
	if c.DatabaseEncryption == nil || c.DatabaseEncryption.State != "ENCRYPTED" {
		out = append(out, "GKE-13: secrets are not encrypted with a key of yours")
	}
	if abacText(c) == onOff(true) {
		out = append(out, "GKE-05: attribute-based access is on: accounts may do more than RBAC says")
	}
	for _, n := range c.NodePools {
		out = append(out, poolRisks(n)...)
	}
	return out
}

func poolRisks(n *container.NodePool) []string {
	want := &container.NodePool{
		Config: &container.NodeConfig{
			ShieldedInstanceConfig: &container.ShieldedInstanceConfig{EnableSecureBoot: true, EnableIntegrityMonitoring: true},
			WorkloadMetadataConfig: &container.WorkloadMetadataConfig{Mode: "GKE_METADATA"}, KubeletConfig: closedKubelet(), ImageType: nodeImage,
			Metadata: map[string]string{"disable-legacy-endpoints": "true"},
		},
		Management:    &container.NodeManagement{AutoRepair: true, AutoUpgrade: true},
		NetworkConfig: &container.NodeNetworkConfig{EnablePrivateNodes: true},
	}
	var out []string
	for _, s := range poolSettings {
		if s.id == "" || s.id == "GKE-08" {
			continue
		}
		if seen := s.text(n); seen != s.text(want) {
			out = append(out, fmt.Sprintf("%s: %s of node pool %s is %s, and the default is %s", s.id, s.name, n.Name, or(seen, "not set"), s.text(want)))
		}
	}
	if n.Config != nil && defaultAccount(n.Config.ServiceAccount) {
		out = append(out, fmt.Sprintf("GKE-08: node pool %s runs as the project's default account", n.Name))
	}
	return out
}

// adoptedClusterDrift tells what has changed of an adopted cluster since it was read.
func adoptedClusterDrift(r *pipeline.Run, id string, was, is job.ClusterInfo) {
	compare := func(key, attr, wanted, seen string) {
		if wanted != seen {
			r.AddDrift(pipeline.Drift{Kind: kindCluster, Key: key, ID: id, Attr: attr, Wanted: wanted, Seen: seen})
		}
	}
	compare("adopted", "version", was.Version, is.Version)
	compare("adopted", "endpoint", was.Endpoint, is.Endpoint)
	compare("adopted", "on the internet", strconv.FormatBool(was.Public), strconv.FormatBool(is.Public))
	names := map[string]bool{}
	for _, n := range slices.Concat(was.NodePools, is.NodePools) {
		if names[n.Name] {
			continue
		}
		names[n.Name] = true
		compare(n.Name, "node pool", poolText(was.Pool(n.Name)), poolText(is.Pool(n.Name)))
	}
}

func poolText(n *job.NodePoolInfo) string {
	if n == nil {
		return "not there"
	}
	return fmt.Sprintf("%s, %d to %d nodes", n.InstanceType, n.Min, n.Max)
}
