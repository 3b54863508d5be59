package azure

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	aks "github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/containerservice/armcontainerservice/v9"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

var (
	_ cloud.ClusterFamily = (*Provider)(nil)
	_ cloud.RemovalGuard  = (*Provider)(nil)
)

// Removable refuses the teardown of a cluster that a lock would stop in the middle,
// before anything in it is touched. It only reads.
func (p *Provider) Removable(ctx context.Context, r *pipeline.Run) error {
	return p.unlocked(view(ctx, r), r)
}

// EnsureCluster makes the cluster with its system pool, and then side by side who
// administers it, where its audit log goes, when it upgrades, and the other pools.
func (p *Provider) EnsureCluster(ctx context.Context, r *pipeline.Run) error {
	if r.Job.Mode == job.ModeAdopt {
		return nil
	}
	ctx = view(ctx, r)
	d, err := p.design(ctx, r)
	if err != nil {
		return err
	}
	pools, err := p.nodePools(ctx, r, d)
	if err != nil {
		return err
	}
	if err := p.ensureControlPlane(ctx, r, d, pools); err != nil {
		return err
	}
	access, err := p.accessRoles(ctx, r, d.spec)
	if err != nil {
		return err
	}
	parts := []func(context.Context) error{
		func(ctx context.Context) error { return p.ensureWindows(ctx, r) },
		func(ctx context.Context) error {
			_, err := r.Ensure(ctx, p.diagnostic(r).resource())
			return err
		},
	}
	for _, g := range access {
		parts = append(parts, func(ctx context.Context) error {
			_, err := r.Ensure(ctx, p.role(r, g).resource())
			return err
		})
	}
	for _, n := range pools {
		parts = append(parts, func(ctx context.Context) error { return p.ensurePool(ctx, r, n) })
	}
	if err := pipeline.All(ctx, parts...); err != nil {
		return err
	}
	return p.mended(ctx, r)
}

// ensureControlPlane makes the cluster itself.
func (p *Provider) ensureControlPlane(ctx context.Context, r *pipeline.Run, d design, pools []poolDesign) error {
	var system []*aks.ManagedClusterAgentPoolProfile
	for _, n := range pools {
		if !n.spec.System(job.Azure) {
			continue
		}
		x, err := profileOf(n.spec.Name, n.properties(r.Job))
		if err != nil {
			return err
		}
		system = append(system, x)
	}
	nodes, err := p.kubeletProfile(ctx, r)
	if err != nil {
		return err
	}
	x := steady(r, p.cluster(r, d, system, nodes).resource(), clusterPatience, func() bool { return wasUp(r.Job) })
	if _, err := r.Ensure(ctx, x); err != nil {
		return rolesUnknown(r, err)
	}
	return p.learnCluster(ctx, r)
}

// rolesUnknown turns a refusal for want of a role that the control plane was given
// moments ago into a wait: roles take up to minutes to count everywhere
// ("Troubleshoot Azure RBAC": role assignment changes are not being detected).
func rolesUnknown(r *pipeline.Run, err error) error {
	var ce *pipeline.CloudError
	if !errors.As(err, &ce) {
		return err
	}
	text := strings.ToLower(ce.Code + " " + ce.Message)
	for _, sign := range []string{"missingpermission", "linkedauthorizationfailed", "identitynotfound", "principalnotfound", strings.ToLower(lastName(r.Job.Config.InfraConfig.Cluster.RoleID))} {
		if sign != "" && strings.Contains(text, sign) {
			return r.AwaitKnown("the roles of the control plane", ce)
		}
	}
	return err
}

// ensureWindows makes the windows one after another: a cluster takes one write of
// them at a time.
func (p *Provider) ensureWindows(ctx context.Context, r *pipeline.Run) error {
	for _, w := range windows {
		if _, err := r.Ensure(ctx, p.maintenance(r, w.key, w.name, w.day).resource()); err != nil {
			return err
		}
	}
	return nil
}

func (p *Provider) ensurePool(ctx context.Context, r *pipeline.Run, n poolDesign) error {
	_, err := r.Ensure(ctx, steady(r, p.nodePool(r, n).resource(), poolPatience, func() bool {
		info := r.Job.Config.InfraConfig.Cluster.Pool(n.spec.Name)
		return info != nil && info.State == poolUp
	}))
	if pipeline.Is(err, pipeline.Busy) && r.Mode == pipeline.Apply {
		// Another pool, or an upgrade: the cluster takes one such change at a time.
		return pipeline.Wait(settling*5, "pool %s, since another change of the cluster is under way (%v)", n.spec.Name, err)
	}
	if err != nil {
		return rolesUnknown(r, err)
	}
	return p.learnPool(ctx, r, n)
}

// mendings is how often a run asks a failed cluster for its state again.
const mendings = 3

// mended puts a cluster right that was up and says now that it has failed, such as
// over a pool that had no room: the same state is asked for once more ("Troubleshoot
// Azure Kubernetes Service clusters or nodes in a failed state").
func (p *Provider) mended(ctx context.Context, r *pipeline.Run) error {
	if r.Mode != pipeline.Apply {
		return nil
	}
	id := p.clusterID(r)
	x, err := read[aks.ManagedCluster](ctx, p, id)
	if err != nil {
		return pipeline.Unseen(err, "the cluster")
	}
	switch state := x.Properties.ProvisioningState; statusOf(state) {
	case pipeline.Ready:
		return nil
	case pipeline.Pending:
		return pipeline.Wait(settling*3, "the cluster to settle (%s)", state)
	}
	const key = "mendings of the cluster"
	n, _ := r.Recall(key).(int)
	if n >= mendings {
		_, why, err := p.outcome(ctx, lastOperation(r, id))
		if err != nil {
			return err
		}
		return pipeline.Fatal("cluster-failed", "the cluster is in state Failed, and asking for its state again does not mend it: "+cmp.Or(why, "the activity log of its resource group says why"),
			"Put right what the reason names, then retry; the cluster is kept.")
	}
	_, op, err := put[struct{}](ctx, p, id, writable(x.is), http.Header{"If-Match": {x.Etag}})
	if err != nil {
		return err
	}
	op.remember(r, id)
	r.Remember(key, n+1)
	return pipeline.Wait(settling*3, "the cluster to be mended")
}

// RemoveCluster removes what hangs on the cluster, then the cluster, which takes
// its pools along, also those that somebody has added; then what AKS made for it
// and left behind. Without a cluster there is still the rest.
func (p *Provider) RemoveCluster(ctx context.Context, r *pipeline.Run) error {
	if r.Job.Mode == job.ModeAdopt {
		return nil
	}
	ctx = view(ctx, r)
	if err := p.unlocked(ctx, r); err != nil {
		return err
	}
	d, err := p.design(ctx, r)
	if err != nil {
		return err
	}
	access, err := p.accessRoles(ctx, r, d.spec)
	if err != nil {
		return err
	}
	// The setting goes first: one that outlives its cluster is in force again for a namesake.
	parts := []func(context.Context) error{func(ctx context.Context) error { return r.Remove(ctx, p.diagnostic(r).resource()) }}
	for _, g := range access {
		parts = append(parts, func(ctx context.Context) error { return r.Remove(ctx, p.role(r, g).resource()) })
	}
	if err := pipeline.All(ctx, parts...); err != nil {
		return err
	}
	if err := p.noteForeignPools(ctx, r); err != nil {
		return err
	}
	if err := r.Remove(ctx, p.cluster(r, d, nil, aks.UserAssignedIdentity{}).resource()); err != nil {
		return err
	}
	return p.removeRemains(ctx, r, d)
}

// removeRemains sees that what the cluster held went with it.
func (p *Provider) removeRemains(ctx context.Context, r *pipeline.Run, d design) error {
	parts := []func(context.Context) error{func(ctx context.Context) error { return r.Remove(ctx, p.nodeGroupObject(r).resource()) }}
	for _, w := range windows {
		parts = append(parts, func(ctx context.Context) error {
			return r.Remove(ctx, p.maintenance(r, w.key, w.name, w.day).resource())
		})
	}
	pools, err := p.nodePools(ctx, r, d)
	if err != nil {
		return err
	}
	for _, n := range pools {
		parts = append(parts, func(ctx context.Context) error { return r.Remove(ctx, p.nodePool(r, n).resource()) })
	}
	return pipeline.All(ctx, parts...)
}

// noteForeignPools says which pools that the job did not make go with the cluster.
func (p *Provider) noteForeignPools(ctx context.Context, r *pipeline.Run) error {
	const said = "pools of others were named"
	if r.Recall(said) != nil || r.Mode != pipeline.Apply {
		return nil
	}
	if rec, ok := r.Object(kindCluster, "cluster"); !ok || rec.State != job.ObjectCreated {
		return nil
	}
	all, err := list[resource[aks.AgentPool]](ctx, p, p.clusterID(r)+"/agentPools")
	if err != nil {
		return pipeline.Unless(err, pipeline.NotFound, pipeline.Denied)
	}
	r.Remember(said, true)
	var names []string
	for _, x := range all {
		if value(value(x.is.Properties).Tags[job.MarkOwner]) != r.Job.ID {
			names = append(names, x.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return r.Event(ctx, "note", "the cluster takes pools along that this job did not make: %s", strings.Join(names, ", "))
}
