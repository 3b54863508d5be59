package gcp

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/api/compute/v1"
	"google.golang.org/api/container/v1"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// EnsureCluster makes the cluster with its first node pool, then the other pools,
// and lets the spec's administrators in.
func (p *Provider) EnsureCluster(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	spec, err := r.Job.ClusterSpec()
	if err != nil {
		return err
	}
	ranges, err := p.rangeNames(ctx, r)
	if err != nil {
		return err
	}
	id, err := p.ensure(ctx, r, p.cluster(r, p.clusterWant(r, spec, ranges)))
	if err != nil {
		// Kubernetes Engine may not know yet of the account, the key or the role that
		// were made moments ago (failure kinds D5, D8).
		return visible(r, "what the cluster is built on", err)
	}
	if err := p.learnCluster(ctx, r, id); err != nil {
		return err
	}
	if err := pipeline.All(ctx,
		func(ctx context.Context) error { return p.ensurePools(ctx, r, spec) },
		func(ctx context.Context) error { return p.ensureAdmins(ctx, r, spec) },
	); err != nil {
		return err
	}
	return p.learnPools(ctx, r)
}

// ensurePools makes the node pools. Where GKE takes one change of a cluster at a
// time, as it says by refusing a second one, they are made one after another.
func (p *Provider) ensurePools(ctx context.Context, r *pipeline.Run, spec job.ClusterSpec) error {
	const oneAtATime = "cluster takes one change at a time"
	order := append([]job.NodePool{spec.NodePools[firstPool(spec.NodePools)]}, slices.Delete(slices.Clone(spec.NodePools), firstPool(spec.NodePools), firstPool(spec.NodePools)+1)...)
	var verdicts []error
	under := false
	for _, n := range order {
		if under && r.Recall(oneAtATime) == true && !made(r, kindNodePool, poolKey(n.Name)) {
			continue // its turn comes once the one under way is done
		}
		id, err := p.ensure(ctx, r, p.pool(r, n.Name, p.poolWant(r, n)))
		if pipeline.Is(err, pipeline.Busy) {
			r.Remember(oneAtATime, true)
			err = inTurn(r, p.clusterID(r), err)
		}
		if err != nil {
			err = visible(r, "what node pool "+n.Name+" is built on", err)
		}
		verdicts = append(verdicts, err)
		if _, running := begun(r, or(id, p.clusterID(r)+"/nodePools/"+n.Name)); running {
			under = true
		}
	}
	return pipeline.Gravest(verdicts...)
}

// ensureAdmins lets the spec's administrators do everything in this one cluster.
func (p *Provider) ensureAdmins(ctx context.Context, r *pipeline.Run, spec job.ClusterSpec) error {
	for _, g := range p.adminGrants(r, spec) {
		if _, err := p.ensure(ctx, r, p.binding(r, g)); err != nil {
			return err
		}
	}
	return nil
}

func (p *Provider) adminGrants(r *pipeline.Run, spec job.ClusterSpec) []projectGrant {
	var out []projectGrant
	for _, a := range spec.Admins {
		out = append(out, projectGrant{key: "admin " + a, role: accessRoles[cloud.AccessAdmin], member: a, cluster: p.clusterID(r)})
	}
	return out
}

// rangeNames are the names of the secondary ranges that the pods and the Services
// take their addresses from.
type rangeNames struct{ pods, services string }

// rangeNames are the job's own ranges, or those of the subnet that it names.
func (p *Provider) rangeNames(ctx context.Context, r *pipeline.Run) (rangeNames, error) {
	infra := &r.Job.Config.InfraConfig
	if r.Job.Mode == job.ModeCreate || r.Mode == pipeline.Plan || len(infra.PrivateSubnetIDs) == 0 {
		return rangeNames{job.PodRange, job.ServiceRange}, nil
	}
	subnet, err := p.subnets().lookup().Get(ctx, infra.PrivateSubnetIDs[0])
	if err != nil {
		return rangeNames{}, err
	}
	names, ok := namesOf(subnet, infra.Cluster)
	if !ok && r.Mode != pipeline.Verify {
		return names, pipeline.Fatal("ranges-gone",
			fmt.Sprintf("subnet %s has no secondary ranges %s and %s any more, which the cluster was to take its addresses from", subnet.Name, infra.Cluster.PodCIDR, infra.Cluster.ServiceCIDR),
			"Add them again, then retry.").On("config.spec.existing.subnetIds")
	}
	return names, nil
}

// namesOf finds the ranges that were chosen in a subnet.
func namesOf(subnet *compute.Subnetwork, info job.ClusterInfo) (rangeNames, bool) {
	var names rangeNames
	for _, x := range subnet.SecondaryIpRanges {
		switch x.IpCidrRange {
		case info.PodCIDR:
			names.pods = x.RangeName
		case info.ServiceCIDR:
			names.services = x.RangeName
		}
	}
	return names, names.pods != "" && names.services != ""
}

// learnCluster records what the cluster is.
func (p *Provider) learnCluster(ctx context.Context, r *pipeline.Run, id string) error {
	info := &r.Job.Config.InfraConfig.Cluster
	switch r.Mode {
	case pipeline.Plan:
		info.Name = base(p.clusterID(r))
		return nil
	case pipeline.Verify:
		return nil
	}
	c, err := p.readCluster(ctx, id)
	if err != nil {
		return err
	}
	info.Name, info.ID = c.Name, id
	info.Endpoint = p.endpointOf(c)
	info.OIDCIssuer = issuerOf(id)
	info.Public = publicEndpointText(c) == onOff(true)
	if now := minorOf(c.CurrentMasterVersion); now != "" && now != info.Version {
		info.Version, info.SupportUntil = now, standardSupport[now] // GKE upgrades by itself
	}
	return r.Save(ctx)
}

// issuerOf is who signs the tokens of a cluster's service accounts ("Workload
// Identity Federation").
func issuerOf(id string) string { return "https://container.googleapis.com/v1/" + id }

// learnPools records where the pools stand.
func (p *Provider) learnPools(ctx context.Context, r *pipeline.Run) error {
	if r.Mode != pipeline.Apply {
		return nil
	}
	c, err := p.readCluster(ctx, p.clusterID(r))
	if err != nil {
		return err
	}
	pools := r.Job.Config.InfraConfig.Cluster.NodePools
	for i := range pools {
		got := poolOf(c, pools[i].Name)
		if got == nil {
			continue
		}
		pools[i].ID, pools[i].State = p.clusterID(r)+"/nodePools/"+got.Name, got.Status
	}
	return r.Save(ctx)
}

// minorOf is the minor version of one such as 1.35.8-gke.1036000; "" if it is none.
func minorOf(version string) string {
	var major, minor int
	if n, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil || n != 2 {
		return ""
	}
	return fmt.Sprintf("%d.%d", major, minor)
}

// RemoveCluster removes the cluster with all its node pools, and what its
// controllers left behind.
func (p *Provider) RemoveCluster(ctx context.Context, r *pipeline.Run) error {
	if r.Mode == pipeline.Plan || r.Job.Mode == job.ModeAdopt {
		return nil
	}
	ctx = view(ctx, r)
	spec, err := r.Job.ClusterSpec()
	if err != nil {
		return err
	}
	id := p.clusterID(r)
	if err := p.liftGuard(ctx, r, id); err != nil {
		return err
	}
	if err := r.Remove(ctx, p.cluster(r, nil)); err != nil {
		return inTurn(r, id, err)
	}
	for _, name := range poolNames(r, spec) {
		if err := r.Remove(ctx, p.pool(r, name, nil)); err != nil {
			return err
		}
	}
	for _, g := range p.adminGrants(r, spec) {
		if err := r.Remove(ctx, p.binding(r, g)); err != nil {
			return err
		}
	}
	// What is there under the name by now is somebody else's, and so is what it made.
	if _, err := p.readCluster(ctx, id); !pipeline.Is(err, pipeline.NotFound) {
		return err
	}
	if err := p.revokeAll(ctx, r, id); err != nil {
		return err
	}
	return p.sweepCluster(ctx, r, id)
}

// poolNames are the pools of the spec, and those of the ledger from before it was
// changed.
func poolNames(r *pipeline.Run, spec job.ClusterSpec) []string {
	var names []string
	for _, n := range spec.NodePools {
		names = append(names, n.Name)
	}
	for _, o := range r.Objects() {
		if o.Kind == kindNodePool && !slices.Contains(names, base(o.Name)) {
			names = append(names, o.Name)
		}
	}
	return names
}

// liftGuard lifts the guard that this job set, and says which pools of others go
// with the cluster (failure kind E10). A word of somebody else's is a hold.
func (p *Provider) liftGuard(ctx context.Context, r *pipeline.Run, id string) error {
	const said = "delete guard lifted"
	if rec, ok := r.Object(kindCluster, clusterKey); !ok || rec.State != job.ObjectCreated || r.Recall(said) != nil {
		return nil
	}
	c, err := p.ownCluster(ctx, r, id)
	if err != nil || c == nil {
		return err
	}
	if err := p.held(c); err != nil {
		return err
	}
	var foreign []string
	for _, n := range c.NodePools {
		if _, ours := r.Object(kindNodePool, poolKey(n.Name)); !ours {
			foreign = append(foreign, n.Name)
		}
	}
	r.Remember(said, true)
	if err := r.Event(ctx, "protection.lifted", "the delete guard of cluster %s bears this job's own word, so it does not hold the cluster", c.Name); err != nil {
		return err
	}
	if len(foreign) == 0 {
		return nil
	}
	return r.Event(ctx, "pools.foreign", "node pools that others added to cluster %s go with it: %s", c.Name, sorted(foreign))
}

// ownCluster is the job's cluster as it is; nil if it is gone, on its way out, or
// somebody else's by now, as the removal itself will say.
func (p *Provider) ownCluster(ctx context.Context, r *pipeline.Run, id string) (*container.Cluster, error) {
	c, err := p.readCluster(ctx, id)
	if err != nil {
		return nil, pipeline.Unless(err, pipeline.NotFound)
	}
	if owner, _ := labelMark(c.ResourceLabels); owner != r.Job.ID || c.Status == "STOPPING" {
		return nil, nil
	}
	return c, nil
}

// held refuses to remove a cluster on which somebody has put a hold.
func (p *Provider) held(c *container.Cluster) error {
	word := c.ResourceLabels[labelGuard]
	if word == "" || word == guardedByJob {
		return nil
	}
	return pipeline.Fatal("protected", fmt.Sprintf("cluster %s is protected: somebody has set its label %s to %q, and this job's word is %q", c.Name, labelGuard, word, guardedByJob),
		fmt.Sprintf("Have whoever set it agree, then run gcloud container clusters update %s --location %s --update-labels %s=%s and retry.", c.Name, p.region, labelGuard, guardedByJob))
}

// Removable says whether somebody has put a hold on the job's cluster or datastore,
// before anything of it is taken away.
func (p *Provider) Removable(ctx context.Context, r *pipeline.Run) error {
	if r.Mode == pipeline.Plan || r.Job.Mode == job.ModeAdopt || r.Job.ResourceType == job.Cache {
		return nil
	}
	if r.Job.ResourceType == job.Datastore {
		return p.instanceRemovable(view(ctx, r), r)
	}
	c, err := p.ownCluster(view(ctx, r), r, p.clusterID(r))
	if err != nil || c == nil {
		return err
	}
	return p.held(c)
}
