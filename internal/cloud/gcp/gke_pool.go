package gcp

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/api/compute/v1"
	"google.golang.org/api/container/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	poolPrefix   = "pool-"
	poolPatience = 45 * time.Minute

	nodeImage = "COS_CONTAINERD"

	// What GKE writes on the machines of a cluster, and on disks and load
	// balancers that its controllers make ("GKE cluster and node pool labels").
	labelClusterName     = "goog-k8s-cluster-name"
	labelClusterLocation = "goog-k8s-cluster-location"
	labelPoolName        = "goog-k8s-node-pool-name"
)

// poolKey is a node pool's place in the job.
func poolKey(name string) string { return poolPrefix + name }

// firstPool is the pool whose nodes the cluster starts with: one that takes what
// GKE itself runs, so without taints, and rather not of spare capacity.
func firstPool(pools []job.NodePool) int {
	best, rank := 0, -1
	for i, n := range pools {
		score := 0
		if !slices.ContainsFunc(n.Taints, func(t job.Taint) bool { return t.Effect != "PreferNoSchedule" }) && *n.Desired > 0 {
			score += 2
		}
		if !n.Spot {
			score++
		}
		if score > rank {
			best, rank = i, score
		}
	}
	return best
}

// poolWant is a node pool as the create says it. GKE counts the first nodes by
// zone, and the bounds of the autoscaler for all zones together.
func (p *Provider) poolWant(r *pipeline.Run, n job.NodePool) *container.NodePool {
	infra := &r.Job.Config.InfraConfig
	info := infra.Cluster.Pool(n.Name)
	if info == nil { // nothing was resolved: a plan of a job that was never checked
		info = &job.NodePoolInfo{Name: n.Name, InstanceType: n.InstanceType, Zones: infra.Zones, Min: *n.Min, Max: *n.Max, Desired: *n.Desired}
	}
	policy := "BALANCED"
	if n.Spot {
		policy = "ANY" // where there is capacity to spare
	}
	want := &container.NodePool{
		Name: n.Name, Locations: info.Zones, InitialNodeCount: int64(info.Desired / max(len(info.Zones), 1)),
		Autoscaling: &container.NodePoolAutoscaling{
			Enabled: true, TotalMinNodeCount: int64(info.Min), TotalMaxNodeCount: int64(info.Max), LocationPolicy: policy,
		},
		Management:      &container.NodeManagement{AutoRepair: true, AutoUpgrade: true},
		UpgradeSettings: &container.UpgradeSettings{Strategy: "SURGE", MaxSurge: 1},
		NetworkConfig:   &container.NodeNetworkConfig{EnablePrivateNodes: true},
		Config: &container.NodeConfig{
			MachineType: info.InstanceType, DiskType: bootDiskOf(info.InstanceType), DiskSizeGb: int64(n.DiskGiB), ImageType: nodeImage,
			ServiceAccount: infra.Cluster.NodeRoleID, OauthScopes: []string{cloudPlatform}, Spot: n.Spot,
			ShieldedInstanceConfig: &container.ShieldedInstanceConfig{EnableSecureBoot: true, EnableIntegrityMonitoring: true},
			WorkloadMetadataConfig: &container.WorkloadMetadataConfig{Mode: "GKE_METADATA"},
			KubeletConfig:          closedKubelet(),
			Metadata:               map[string]string{"disable-legacy-endpoints": "true"},
			Labels:                 n.Labels, ResourceLabels: labelsFor(r.Job, poolKey(n.Name)),
		},
	}
	for _, t := range n.Taints {
		want.Config.Taints = append(want.Config.Taints, &container.NodeTaint{Key: t.Key, Value: t.Value, Effect: taintEffects[t.Effect]})
	}
	return want
}

// taintEffects are the effects of taints as GKE spells them.
var taintEffects = map[string]string{"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}

// pool is one node pool of the job's cluster. want is nil for a removal.
func (p *Provider) pool(r *pipeline.Run, poolName string, want *container.NodePool) pipeline.Resource {
	cluster := p.clusterID(r)
	id := cluster + "/nodePools/" + poolName
	api := p.container.Projects.Locations.Clusters.NodePools
	return clusterObject{
		kind: kindNodePool, key: poolKey(poolName), id: id, args: want, patience: poolPatience,
		read: func(ctx context.Context) (pipeline.Seen, error) {
			c, err := p.readCluster(ctx, cluster)
			if err != nil {
				return pipeline.Seen{}, err
			}
			got := poolOf(c, poolName)
			if got == nil {
				return pipeline.Seen{}, absent(serviceContainer, "clusters.get", "node pool "+poolName)
			}
			return p.poolSeen(ctx, r, id, want, got)
		},
		create: func(ctx context.Context) (*container.Operation, error) {
			return send(ctx, api.Create(cluster, &container.CreateNodePoolRequest{NodePool: want}))
		},
		remove: func(ctx context.Context) (*container.Operation, error) { return send(ctx, api.Delete(id)) },
	}.resource(p, r)
}

func poolOf(c *container.Cluster, name string) *container.NodePool {
	i := slices.IndexFunc(c.NodePools, func(n *container.NodePool) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	return c.NodePools[i]
}

// poolSeen is a pool's status. RUNNING is believed once its machines run: an
// operation may be done and have made none (failure kind I5).
func (p *Provider) poolSeen(ctx context.Context, r *pipeline.Run, id string, want, got *container.NodePool) (pipeline.Seen, error) {
	s := pipeline.Seen{ID: id, Owner: pipeline.Unmarked, Reason: cmp.Or(conditionsText(got.Conditions, got.StatusMessage), got.Status)}
	if got.Config == nil {
		got.Config = &container.NodeConfig{}
	}
	if owner, _ := labelMark(got.Config.ResourceLabels); owner != "" {
		s.Owner = owner
	}
	switch got.Status {
	case "RUNNING", "RECONCILING":
	case "ERROR":
		s.Status, s.Reason = pipeline.Broken, conditionsText(got.Conditions, got.StatusMessage)
		return s, nil
	default: // PROVISIONING, STOPPING, RUNNING_WITH_ERROR
		s.Status = pipeline.Pending
		if s.Reason != got.Status {
			s.Reason = got.Status + ": " + s.Reason
		}
		return s, nil
	}
	if want == nil {
		return s, nil
	}
	running, err := p.nodesOf(ctx, r, got.Name)
	if err != nil {
		return s, err
	}
	if least := leastNodes(r, got.Name); running < least {
		s.Status, s.Reason = pipeline.Pending, fmt.Sprintf("%d of %d nodes run", running, least)
		return s, nil
	}
	s.Aspects = p.poolAspects(r, id, want, got)
	return s, nil
}

// leastNodes is how many machines a pool has to have: at first all that it starts
// with, later what the autoscaler leaves.
func leastNodes(r *pipeline.Run, poolName string) int {
	info := r.Job.Config.InfraConfig.Cluster.Pool(poolName)
	switch {
	case info == nil:
		return 0
	case info.State == "":
		return info.Desired
	}
	return info.Min
}

// nodesOf counts the machines of a pool that run.
func (p *Provider) nodesOf(ctx context.Context, r *pipeline.Run, poolName string) (int, error) {
	all, err := p.nodes(ctx, base(p.clusterID(r)))
	running := 0
	for _, x := range all {
		if x.Labels[labelPoolName] == poolName && x.Status == "RUNNING" {
			running++
		}
	}
	return running, err
}

// nodes are the machines of a cluster of the region.
func (p *Provider) nodes(ctx context.Context, cluster string) ([]*compute.Instance, error) {
	return lookup.Once(ctx, "nodes of "+cluster, func(ctx context.Context) ([]*compute.Instance, error) {
		all, err := p.instances("").all(ctx, fmt.Sprintf("labels.%s = %q", labelClusterName, cluster))
		return slices.DeleteFunc(all, func(x *compute.Instance) bool {
			return x.Labels[labelClusterName] != cluster || x.Labels[labelClusterLocation] != "" && x.Labels[labelClusterLocation] != p.region
		}), err
	})
}
