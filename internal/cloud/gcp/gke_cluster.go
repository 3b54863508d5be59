package gcp

import (
	"cmp"
	"context"
	"maps"
	"time"

	"google.golang.org/api/container/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	clusterKey = "cluster"

	// clusterPatience is how long a control plane and its first nodes may take to
	// come up: GKE itself gives up on nodes after 35 minutes.
	clusterPatience = 50 * time.Minute

	// clusterNameMax is how long the name of a cluster may be.
	clusterNameMax = 40
)

// clusterID is the relative resource name of the job's cluster.
func (p *Provider) clusterID(r *pipeline.Run) string {
	return p.clusterParent() + "/clusters/" + r.Job.ResourceName("", clusterNameMax)
}

// readCluster is a cluster with its node pools, read once a pass.
func (p *Provider) readCluster(ctx context.Context, id string) (*container.Cluster, error) {
	return lookup.Once(ctx, kindCluster+" "+id, func(ctx context.Context) (*container.Cluster, error) {
		return send(ctx, p.container.Projects.Locations.Clusters.Get(id))
	})
}

// clusters are the clusters of the region that are not on their way out.
func (p *Provider) clusters() lookup.Kind[*container.Cluster] {
	mark := func(c *container.Cluster) (string, string) { return labelMark(c.ResourceLabels) }
	return lookup.Kind[*container.Cluster]{
		Name: kindCluster, Mark: mark, One: p.readCluster,
		ID: func(c *container.Cluster) string { return p.clusterParent() + "/clusters/" + c.Name },
		List: func(ctx context.Context, owner string) ([]*container.Cluster, error) {
			out, err := send(ctx, p.container.Projects.Locations.Clusters.List(p.clusterParent()))
			if err != nil {
				return nil, err
			}
			var all []*container.Cluster
			for _, c := range out.Clusters {
				if who, _ := mark(c); who == owner && c.Status != "STOPPING" {
					all = append(all, c)
				}
			}
			return all, nil
		},
	}
}

// cluster is the job's cluster. want is nil for a removal, which knows only its name.
func (p *Provider) cluster(r *pipeline.Run, want *container.Cluster) pipeline.Resource {
	id := p.clusterID(r)
	return clusterObject{
		kind: kindCluster, key: clusterKey, id: id, args: want, patience: clusterPatience,
		read: func(ctx context.Context) (pipeline.Seen, error) {
			got, err := p.readCluster(ctx, id)
			if err != nil {
				return pipeline.Seen{}, err
			}
			owner, _ := labelMark(got.ResourceLabels)
			s := clusterSeen(got)
			s.ID, s.Owner = id, cmp.Or(owner, pipeline.Unmarked)
			if want != nil && s.Status == pipeline.Ready {
				s.Aspects = p.clusterAspects(r, id, want, got)
			}
			return s, nil
		},
		create: func(ctx context.Context) (*container.Operation, error) {
			return send(ctx, p.container.Projects.Locations.Clusters.Create(p.clusterParent(), &container.CreateClusterRequest{Cluster: want}))
		},
		remove: func(ctx context.Context) (*container.Operation, error) {
			return send(ctx, p.container.Projects.Locations.Clusters.Delete(id))
		},
	}.resource(p, r)
}

// clusterSeen is a cluster's status. RECONCILING is a cluster at work that GKE
// changes, such as when it makes a node pool; DEGRADED is one that a person has
// to look at, and may well recover ("Cluster: Status").
func clusterSeen(c *container.Cluster) pipeline.Seen {
	s := pipeline.Seen{Reason: cmp.Or(conditionsText(c.Conditions, c.StatusMessage), c.Status)}
	switch c.Status {
	case "RUNNING", "RECONCILING":
	case "ERROR":
		s.Status, s.Reason = pipeline.Broken, conditionsText(c.Conditions, c.StatusMessage)
	default: // PROVISIONING, STOPPING, DEGRADED
		s.Status = pipeline.Pending
		if s.Reason != c.Status {
			s.Reason = c.Status + ": " + s.Reason
		}
	}
	return s
}

// clusterWant is the cluster as the create says it: hardened as far as that costs
// nothing and breaks nothing ("Harden your cluster's security", and CIS GKE
// Benchmark). Its first nodes come with it, so that there is no initial pool to
// be removed; all other pools are objects of their own.
func (p *Provider) clusterWant(r *pipeline.Run, spec job.ClusterSpec, ranges rangeNames) *container.Cluster {
	infra := &r.Job.Config.InfraConfig
	want := p.hardened(infra.Cluster)
	want.Name, want.Description = base(p.clusterID(r)), r.Job.MarkText(clusterKey)
	want.ResourceLabels = labelsFor(r.Job, clusterKey)
	want.ResourceLabels[labelGuard] = guardedByJob
	want.InitialClusterVersion = infra.Cluster.Version
	if infra.Cluster.Extended {
		want.ReleaseChannel.Channel = channelExtended
	}
	want.Locations = infra.Zones
	want.Network = infra.NetworkID
	if len(infra.PrivateSubnetIDs) > 0 {
		want.Subnetwork = infra.PrivateSubnetIDs[0]
	}
	want.IpAllocationPolicy.ClusterSecondaryRangeName = ranges.pods
	want.IpAllocationPolicy.ServicesSecondaryRangeName = ranges.services
	want.DatabaseEncryption.KeyName = infra.Cluster.KMSKeyID
	first := firstPool(spec.NodePools)
	want.NodePools = []*container.NodePool{p.poolWant(r, spec.NodePools[first])}
	return want
}

// hardened is what every cluster has, whatever else it is.
func (p *Provider) hardened(info job.ClusterInfo) *container.Cluster {
	return &container.Cluster{
		ControlPlaneEndpointsConfig: p.endpoints(info.PublicCIDRs),
		NetworkConfig: &container.NetworkConfig{
			DatapathProvider: "ADVANCED_DATAPATH", DefaultEnablePrivateNodes: true, EnableIntraNodeVisibility: true,
		},
		IpAllocationPolicy:     &container.IPAllocationPolicy{UseIpAliases: true, StackType: "IPV4"},
		ReleaseChannel:         &container.ReleaseChannel{Channel: channelRegular},
		WorkloadIdentityConfig: &container.WorkloadIdentityConfig{WorkloadPool: p.project + ".svc.id.goog"},
		ShieldedNodes:          &container.ShieldedNodes{Enabled: true},
		DatabaseEncryption:     &container.DatabaseEncryption{State: "ENCRYPTED", KeyName: info.KMSKeyID},
		MasterAuth:             &container.MasterAuth{ClientCertificateConfig: &container.ClientCertificateConfig{ForceSendFields: []string{"IssueClientCertificate"}}},
		LegacyAbac:             &container.LegacyAbac{ForceSendFields: []string{"Enabled"}},
		LoggingConfig:          &container.LoggingConfig{ComponentConfig: &container.LoggingComponentConfig{EnableComponents: []string{componentSystem, componentWorkloads}}},
		MonitoringConfig: &container.MonitoringConfig{
			ComponentConfig:         &container.MonitoringComponentConfig{EnableComponents: []string{componentSystem}},
			ManagedPrometheusConfig: &container.ManagedPrometheusConfig{Enabled: true},
		},
		CostManagementConfig:          &container.CostManagementConfig{Enabled: true},
		SecurityPostureConfig:         &container.SecurityPostureConfig{Mode: "BASIC"},
		AnonymousAuthenticationConfig: &container.AnonymousAuthenticationConfig{Mode: "LIMITED"},
		RbacBindingConfig: &container.RBACBindingConfig{
			ForceSendFields: []string{"EnableInsecureBindingSystemAuthenticated", "EnableInsecureBindingSystemUnauthenticated"},
		},
		NodePoolDefaults: &container.NodePoolDefaults{NodeConfigDefaults: &container.NodeConfigDefaults{NodeKubeletConfig: closedKubelet()}},
		AddonsConfig: &container.AddonsConfig{
			KubernetesDashboard:              &container.KubernetesDashboard{Disabled: true},
			GcePersistentDiskCsiDriverConfig: &container.GcePersistentDiskCsiDriverConfig{Enabled: true},
		},
		MaintenancePolicy: &container.MaintenancePolicy{Window: &container.MaintenanceWindow{RecurringWindow: weekends()}},
	}
}

// The release channels and the components that log and are watched.
const (
	channelRegular  = "REGULAR"
	channelExtended = "EXTENDED"

	componentSystem    = "SYSTEM_COMPONENTS"
	componentWorkloads = "WORKLOADS"
)

// closedKubelet is a kubelet whose read-only port, which asks nobody who they
// are, is off.
func closedKubelet() *container.NodeKubeletConfig {
	return &container.NodeKubeletConfig{ForceSendFields: []string{"InsecureKubeletReadonlyPortEnabled"}}
}

// weekends is when GKE may upgrade: Saturdays and Sundays from midnight to eight,
// UTC. It has to leave 48 hours in any 32 days ("Maintenance windows").
func weekends() *container.RecurringTimeWindow {
	return &container.RecurringTimeWindow{
		Window:     &container.TimeWindow{StartTime: "2026-01-03T00:00:00Z", EndTime: "2026-01-03T08:00:00Z"},
		Recurrence: "FREQ=WEEKLY;BYDAY=SA,SU",
	}
}

// endpoints is who gets to the control plane: through the DNS endpoint, where IAM
// decides and no range is needed, unless the provisioner is inside; by its internal
// address from inside; by an external one only from ranges that were asked for
// ("About network isolation in GKE").
func (p *Provider) endpoints(public []string) *container.ControlPlaneEndpointsConfig {
	allowed := &container.MasterAuthorizedNetworksConfig{Enabled: true, ForceSendFields: []string{"GcpPublicCidrsAccessEnabled"}}
	for _, c := range public {
		allowed.CidrBlocks = append(allowed.CidrBlocks, &container.CidrBlock{CidrBlock: c})
	}
	inside := p.reach.Mode == job.ReachDirect
	return &container.ControlPlaneEndpointsConfig{
		DnsEndpointConfig: &container.DNSEndpointConfig{AllowExternalTraffic: !inside, ForceSendFields: []string{"AllowExternalTraffic"}},
		IpEndpointsConfig: &container.IPEndpointsConfig{
			Enabled: true, EnablePublicEndpoint: len(public) > 0, GlobalAccess: inside, AuthorizedNetworksConfig: allowed,
			ForceSendFields: []string{"EnablePublicEndpoint", "GlobalAccess"},
		},
	}
}

// The label that keeps a cluster from being deleted: GKE has no protection of its
// own. What this job wrote it lifts itself; any other word is somebody's hold.
const (
	labelGuard   = "zopday-delete-guard"
	guardedByJob = "job"
)

// setLabels replaces the labels of a cluster by its own and the job's.
func (p *Provider) setLabels(ctx context.Context, id string, got *container.Cluster, ours map[string]string) (*container.Operation, error) {
	all := maps.Clone(got.ResourceLabels)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, ours)
	return send(ctx, p.container.Projects.Locations.Clusters.SetResourceLabels(id, &container.SetLabelsRequest{
		ResourceLabels: all, LabelFingerprint: got.LabelFingerprint,
	}))
}
