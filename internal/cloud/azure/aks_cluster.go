package azure

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	aks "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v9"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// How long a cluster and a pool may take to come up. A cluster takes some
// minutes; one whose nodes cannot reach the API server shows it after half an hour.
const (
	clusterPatience = 40 * time.Minute
	poolPatience    = 30 * time.Minute
)

// kubeletIdentity is how the profile of identities calls that of the nodes.
const kubeletIdentity = "kubeletidentity"

// cluster is the cluster itself, with the system pool: there is none without.
func (p *Provider) cluster(r *pipeline.Run, d design, system []*aks.ManagedClusterAgentPoolProfile, kubelet aks.UserAssignedIdentity) object[aks.ManagedCluster] {
	id := p.clusterID(r)
	return object[aks.ManagedCluster]{
		p: p, r: r, kind: kindCluster, key: "cluster", id: id, onlyIfNew: true,
		body: func() any {
			info := &r.Job.Config.InfraConfig.Cluster
			info.Endpoint, info.OIDCIssuer = "", "" // of one that is gone
			c := aks.ManagedCluster{
				Location: &p.region, Tags: tagsFor(r.Job, "cluster"),
				Identity: &aks.ManagedClusterIdentity{
					Type:                   new(aks.ResourceIdentityTypeUserAssigned),
					UserAssignedIdentities: map[string]*aks.ManagedServiceIdentityUserAssignedIdentitiesValue{d.info.RoleID: {}},
				},
				Properties: &aks.ManagedClusterProperties{
					KubernetesVersion: &d.info.Version, DNSPrefix: new(r.Job.ResourceName("", longestDNSPrefix)), NodeResourceGroup: new(nodeGroup(r.Job)),
					IdentityProfile: map[string]*aks.UserAssignedIdentity{kubeletIdentity: &kubelet}, AgentPoolProfiles: system,
				},
			}
			for _, s := range d.settings() {
				s.set(&c)
			}
			return c
		},
		see: func(_ context.Context, x resource[aks.ManagedCluster]) ([]pipeline.Aspect, error) {
			return p.clusterAspects(r, d, x), nil
		},
		state: func(x resource[aks.ManagedCluster]) (pipeline.Status, string) {
			state := x.Properties.ProvisioningState
			if state == "Failed" && !r.Down && wasUp(r.Job) {
				// A change of it failed, or a pool: the workloads in it run on.
				return pipeline.Ready, state
			}
			return statusOf(state), state
		},
	}
}

// wasUp reports whether the job has seen its cluster up: what fails then is
// mended, and never replaced.
func wasUp(j *job.Job) bool { return j.Config.InfraConfig.Cluster.Endpoint != "" }

// steady is a resource that changes while it is in use, by channels, people and the
// job itself: once it was up, what is under way may take as long as it may since it
// was met, and not since the resource was made.
func steady(r *pipeline.Run, x pipeline.Resource, patience time.Duration, up func() bool) pipeline.Resource {
	x.Patience = patience
	read := x.Get
	x.Get = func(ctx context.Context, id string) (pipeline.Seen, error) {
		s, err := read(ctx, id)
		if err != nil || r.Mode != pipeline.Apply || r.Down {
			return s, err
		}
		what := "change of " + x.String()
		if s.Status != pipeline.Pending || !up() {
			r.WaitOver(what)
			return s, nil
		}
		if r.WaitedFor(what) > patience {
			return s, pipeline.Fatal("timed-out", fmt.Sprintf("%s (%s) is still %s after %s", x, id, s.Reason, patience), "Look at it in the portal; retry goes on waiting.")
		}
		return s, pipeline.Wait(settling*3, "a change of %s to end (%s)", x, s.Reason)
	}
	return x
}

// clusterAspects compares the settings one by one. Whatever can be set is put
// right by one write: each takes minutes.
func (p *Provider) clusterAspects(r *pipeline.Run, d design, x resource[aks.ManagedCluster]) []pipeline.Aspect {
	put := func(ctx context.Context) error {
		fixed, at := writable(x.is), x.meta
		at.ID = p.clusterID(r) // AKS writes IDs in a case of its own
		for _, s := range d.settings() {
			if !s.fixed {
				s.set(&fixed)
			}
		}
		return p.update(ctx, r, at, fixed)
	}
	var out []pipeline.Aspect
	for _, s := range d.settings() {
		var wanted aks.ManagedCluster
		s.set(&wanted)
		a := pipeline.Aspect{Name: s.name, Wanted: s.seen(wanted), Seen: s.seen(x.is)}
		if !s.fixed {
			a.Set = put
		}
		out = append(out, a)
	}
	f := value(x.is.Properties)
	return append(out, watched(r,
		// Channels and people bring it on; patches are not told.
		pipeline.Aspect{Name: "version", Wanted: d.info.Version, Seen: minorOf(value(f.KubernetesVersion))},
		pipeline.Aspect{Name: "power", Wanted: string(aks.CodeRunning), Seen: cmp.Or(string(value(value(f.PowerState).Code)), string(aks.CodeRunning))},
		pipeline.Aspect{Name: "state", Wanted: "Succeeded", Seen: cmp.Or(x.Properties.ProvisioningState, "Succeeded")})...)
}

// writable is a cluster as it was read without what only the cloud says of it.
func writable(c aks.ManagedCluster) aks.ManagedCluster {
	c.ID, c.Name, c.Type, c.ETag, c.SystemData = nil, nil, nil, nil, nil
	f := value(c.Properties)
	f.ProvisioningState, f.CurrentKubernetesVersion, f.Fqdn, f.PrivateFQDN, f.AzurePortalFQDN = nil, nil, nil, nil, nil
	f.PowerState, f.MaxAgentPools, f.ResourceUID, f.Status = nil, nil, nil, nil
	pools := make([]*aks.ManagedClusterAgentPoolProfile, 0, len(f.AgentPoolProfiles))
	for _, pool := range f.AgentPoolProfiles {
		n := value(pool)
		n.ProvisioningState, n.CurrentOrchestratorVersion, n.ETag, n.Status, n.PowerState = nil, nil, nil, nil, nil
		pools = append(pools, &n)
	}
	f.AgentPoolProfiles = pools
	c.Properties = &f
	return c
}

// profileOf is a pool as a cluster's create takes it: the same fields, with its
// name among them.
func profileOf(name string, f aks.ManagedClusterAgentPoolProfileProperties) (*aks.ManagedClusterAgentPoolProfile, error) {
	text, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	var out aks.ManagedClusterAgentPoolProfile
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, err
	}
	out.Name = &name
	return &out, nil
}

// apiServer is the address that a cluster's API server answers at.
func apiServer(c aks.ManagedCluster) string {
	f := value(c.Properties)
	host := cmp.Or(value(f.Fqdn), value(f.PrivateFQDN))
	if host == "" {
		return ""
	}
	return "https://" + host + ":443"
}

// learnCluster records what is known of a cluster once it is up.
func (p *Provider) learnCluster(ctx context.Context, r *pipeline.Run) error {
	info := &r.Job.Config.InfraConfig.Cluster
	name := clusterName(r.Job)
	learn(r, &info.Name, name)
	learn(r, &info.ID, p.clusterID(r))
	learn(r, &info.NodeGroup, nodeGroup(r.Job))
	const learned = "the cluster is known"
	if r.Mode != pipeline.Apply || wasUp(r.Job) && r.Recall(learned) != nil {
		return nil
	}
	x, err := read[aks.ManagedCluster](ctx, p, p.clusterID(r))
	if err != nil {
		return pipeline.Unseen(err, "the cluster")
	}
	f := value(x.is.Properties)
	info.Endpoint, info.OIDCIssuer = apiServer(x.is), value(value(f.OidcIssuerProfile).IssuerURL)
	info.NodeGroup = cmp.Or(value(f.NodeResourceGroup), info.NodeGroup)
	r.Remember(learned, true)
	return r.Save(ctx)
}
