package steps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/kube"
	"github.com/zopday/provisioner/internal/pipeline"
)

func (s Set) cluster() pipeline.Pipeline {
	return pipeline.Pipeline{
		{Name: Validate, Title: "Check account, versions, ranges and reach", Ensure: s.validate, Remove: s.proveGone},
		{Name: CreateNetwork, Title: "Network", Ensure: owned(s.on(cloud.Provider.EnsureNetwork)), Remove: owned(s.on(cloud.Provider.RemoveNetwork))},
		{Name: CreateIAM, Title: "Identities and keys", Ensure: owned(s.on(cloud.Provider.EnsureIdentity)), Remove: owned(s.on(cloud.Provider.RemoveIdentity))},
		{Name: CreateCluster, Title: "Cluster and node pools", Ensure: s.ensureCluster, Remove: owned(s.onClusters(cloud.ClusterFamily.RemoveCluster))},
		{Name: BootstrapComponents, Title: "Nodes ready, components", Ensure: owned(s.bootstrapComponents), Remove: owned(s.drainCluster)},
		{Name: RegisterSpace, Title: "Register space", Ensure: s.registerSpace, Remove: s.deregisterSpace},
		{Name: Finalize, Title: "Read back and report", Ensure: s.finalize},
	}
}

// clusters is the part of the job's cloud that makes clusters.
func (s Set) clusters(r *pipeline.Run) (cloud.ClusterFamily, error) {
	c, ok := s.Cloud.(cloud.ClusterFamily)
	if !ok {
		return nil, pipeline.Fatal("not-offered", fmt.Sprintf("clusters are not offered at %s", r.Job.Provider), "Make the cluster at another cloud.").On("provider")
	}
	return c, nil
}

// onClusters is a step that is all the cloud's own, as on.
func (s Set) onClusters(method func(cloud.ClusterFamily, context.Context, *pipeline.Run) error) pipeline.Func {
	return func(ctx context.Context, r *pipeline.Run) error {
		c, err := s.clusters(r)
		if err != nil {
			return err
		}
		return method(c, ctx, r)
	}
}

// ensureCluster makes the cluster, or reads the one that is adopted.
func (s Set) ensureCluster(ctx context.Context, r *pipeline.Run) error {
	if r.Job.Owns() {
		return s.onClusters(cloud.ClusterFamily.EnsureCluster)(ctx, r)
	}
	if r.Mode == pipeline.Plan {
		return nil
	}
	if err := s.onClusters(cloud.ClusterFamily.AdoptCluster)(ctx, r); err != nil {
		return err
	}
	for _, note := range r.Job.Config.InfraConfig.Cluster.RiskNotes {
		if w := &r.Job.Config.InfraConfig.Warnings; !slices.Contains(*w, note) {
			*w = append(*w, note)
		}
	}
	return r.Save(ctx)
}

// access is how the API server of the job's cluster is reached.
func (s Set) access(ctx context.Context, r *pipeline.Run) (cloud.KubeAccess, error) {
	c, err := s.clusters(r)
	if err != nil {
		return cloud.KubeAccess{}, err
	}
	return c.KubeAccess(ctx, r.Job.ClusterRef())
}

// How long, in cloud time, nodes may take to be Ready once the cloud has them, an
// API server to answer, and components to be uninstalled from a cluster that goes.
const (
	uninstallPatience = 15 * time.Minute

	nodesPatience     = 20 * time.Minute
	apiServerPatience = 10 * time.Minute
)

// bootstrapComponents waits for the nodes, gives the cluster what every cluster
// of ours has, and installs the components of the spec.
func (s Set) bootstrapComponents(ctx context.Context, r *pipeline.Run) error {
	spec, err := r.Job.ClusterSpec()
	if err != nil {
		return err
	}
	if r.Mode == pipeline.Plan {
		return s.install(ctx, r, cloud.KubeAccess{}, spec.Components)
	}
	access, err := s.access(ctx, r)
	if err != nil {
		return err
	}
	client, err := kube.Client(ctx, access)
	if err != nil {
		return err
	}
	if err := awaitServer(r, client); err != nil {
		return err
	}
	if err := awaitNodes(ctx, r, client, spec); err != nil {
		return err
	}
	if err := kube.Baseline(ctx, r, client); err != nil {
		return err
	}
	if err := s.uninstallDropped(ctx, r, access, spec.Components); err != nil {
		return err
	}
	if err := s.install(ctx, r, access, spec.Components); err != nil || r.Mode == pipeline.Verify {
		return err
	}
	return kube.LabelNamespaces(ctx, r, client) // those that the charts made
}

// awaitServer waits until the API server answers: one that the cloud calls
// active may take a while, and a private one never answers from outside.
func awaitServer(r *pipeline.Run, c kube.Interface) error {
	_, err := kube.Version(c)
	if err == nil {
		r.WaitOver("API server")
		return nil
	}
	if !pipeline.Is(err, pipeline.Unavailable) || r.Mode != pipeline.Apply {
		return err
	}
	if kube.Overdue(r, "API server", apiServerPatience) {
		r.WaitOver("API server")
		return pipeline.Fatal("api-server-unreachable", fmt.Sprintf("the API server of %s at %s does not answer: %v", r.Job.Config.InfraConfig.Cluster.Name, r.Job.Config.InfraConfig.Cluster.Endpoint, err),
			"Check that this server reaches the endpoint (a private one answers inside its network alone), then retry.").From(err)
	}
	return pipeline.Wait(kube.Pause(r.Pace, 5*time.Second), "the API server to answer (%v)", err)
}

// awaitNodes waits until every pool's nodes are Ready, as the cluster sees it:
// a node that runs at the cloud and never joins is what this is for (failures I8, J11).
func awaitNodes(ctx context.Context, r *pipeline.Run, c kube.Interface, spec job.ClusterSpec) error {
	ready, lacking, err := kube.Ready(ctx, c, r.Job.Provider)
	if pipeline.Is(err, pipeline.Denied) {
		// A role that was given moments ago counts in the cluster after minutes at times.
		return r.AwaitKnown("the provisioner's access to the cluster", err)
	}
	if err != nil {
		return err
	}
	infra := &r.Job.Config.InfraConfig.Cluster
	var waiting []string
	learned := false
	for _, n := range spec.NodePools {
		pool := infra.Pool(n.Name)
		if pool == nil {
			continue // the cloud's own step has not recorded it: it says why
		}
		pool.Ready = ready[cmp.Or(pool.NodeLabel, pool.Name)]
		want := pool.Desired
		if r.Mode == pipeline.Verify || pool.Joined {
			want = pool.Min // autoscaling moves between the bounds
		}
		if pool.Ready >= want {
			learned = learned || !pool.Joined
			pool.Joined = true
			continue
		}
		waiting = append(waiting, fmt.Sprintf("pool %s: %d of %d nodes are Ready", n.Name, pool.Ready, want))
		if r.Mode == pipeline.Verify {
			r.AddDrift(pipeline.Drift{Kind: "node pool", Key: n.Name, Attr: "ready nodes", Wanted: fmt.Sprintf("%d or more", want), Seen: fmt.Sprint(pool.Ready)})
		}
	}
	if learned {
		if err := r.Save(ctx); err != nil {
			return err
		}
	}
	if len(waiting) == 0 || r.Mode == pipeline.Verify {
		r.WaitOver("nodes")
		return nil
	}
	slices.Sort(lacking)
	text := strings.Join(append(waiting, lacking[:min(3, len(lacking))]...), "; ")
	if kube.Overdue(r, "nodes", nodesPatience) {
		r.WaitOver("nodes")
		return pipeline.Fatal("nodes-not-ready", fmt.Sprintf("after %s, %s", nodesPatience, text),
			"Nodes that do not join lack egress, a role or a route to the API server most often: look at the machines in the cloud's console, put it right, then retry.")
	}
	return pipeline.Wait(kube.Pause(r.Pace, 5*time.Second), "%s", text)
}

// drainCluster takes off the cluster what it made outside of itself, then its
// components. A cluster that is gone, or never came up, does not stand in the
// way: what it left behind is swept at the cloud by the step that removes it.
func (s Set) drainCluster(ctx context.Context, r *pipeline.Run) error {
	if r.Mode != pipeline.Apply {
		return nil
	}
	if guard, ok := s.Cloud.(cloud.RemovalGuard); ok {
		if err := guard.Removable(ctx, r); err != nil {
			return err
		}
	}
	spec, err := r.Job.ClusterSpec()
	if err != nil {
		return err
	}
	access, err := s.drainable(ctx, r)
	var why *unreachable
	switch {
	case errors.As(err, &why):
		r.Note("not drained: %s", why.text)
		return s.forgetReleases(ctx, r)
	case err != nil:
		return err
	}
	if err := s.emptied(ctx, r, access, spec.Components); err != nil {
		if pipeline.Is(err, pipeline.Unavailable, pipeline.Denied, pipeline.Expired) {
			return s.undrained(ctx, r, err)
		}
		if pipeline.IsWait(err) {
			r.WaitOver("drainable") // it answers
		}
		return err
	}
	r.WaitOver("drainable")
	return nil
}

// emptied drains a cluster that answers and uninstalls its components. What is to
// outlive it is known before the first deletion.
func (s Set) emptied(ctx context.Context, r *pipeline.Run, access cloud.KubeAccess, specs []job.ComponentSpec) error {
	client, err := kube.Client(ctx, access)
	if err != nil {
		return err
	}
	retained, err := kube.Retained(ctx, client)
	if err != nil {
		return err
	}
	if err := keepVolumes(ctx, r, retained); err != nil {
		return err
	}
	if err := kube.Drain(ctx, r, access); err != nil {
		return err
	}
	overdue := kube.Overdue(r, "uninstall", uninstallPatience)
	err = s.uninstall(ctx, r, access, specs)
	var blocked *pipeline.BlockedError
	if overdue && (pipeline.IsWait(err) || errors.As(err, &blocked)) {
		// Such as a finalizer whose controller is gone: nothing of it lies outside.
		r.Note("not uninstalled within %s, and gone with the cluster: %v", uninstallPatience, err)
		return s.forgetReleases(ctx, r)
	}
	return err
}

// diskKinds are what the clouds' disks are in the inventory.
var diskKinds = map[job.Provider]string{job.AWS: "ec2:volume", job.GCP: "compute:disk", job.Azure: "compute:disk"}

// keepVolumes records the volumes that were to outlive the cluster. AKS deletes
// the group of its nodes with everything in it, so volumes in there stop the
// teardown before anything is deleted.
func keepVolumes(ctx context.Context, r *pipeline.Run, retained []kube.Volume) error {
	group := r.Job.Config.InfraConfig.Cluster.NodeGroup
	var doomed []string
	for _, v := range retained {
		if r.Job.Provider == job.Azure && group != "" && strings.Contains(strings.ToLower(v.Handle)+"/", "/resourcegroups/"+strings.ToLower(group)+"/") {
			doomed = append(doomed, v.Name)
			continue
		}
		if err := r.KeepOther(ctx, diskKinds[r.Job.Provider], v.Handle, v.Name, "its policy is Retain: it was to outlive the cluster"); err != nil {
			return err
		}
	}
	if len(doomed) > 0 {
		return pipeline.Fatal("blocked", fmt.Sprintf("volumes with the policy Retain lie in the resource group %s, which AKS deletes with the cluster: %s", group, strings.Join(doomed, ", ")),
			"Move or snapshot their disks and delete the PersistentVolumes, or give them the policy Delete, then retry.")
	}
	return nil
}

// unreachable says why a cluster cannot be drained.
type unreachable struct{ text string }

func (e *unreachable) Error() string { return e.text }

// drainable is the way to a cluster that can be drained; an *unreachable error if
// there is none.
func (s Set) drainable(ctx context.Context, r *pipeline.Run) (cloud.KubeAccess, error) {
	infra := r.Job.Config.InfraConfig.Cluster
	if infra.Name == "" || infra.Endpoint == "" {
		return cloud.KubeAccess{}, &unreachable{"the cluster never came up"}
	}
	access, err := s.access(ctx, r)
	if pipeline.Is(err, pipeline.NotFound) {
		r.Job.Config.InfraConfig.Cluster.Undrained = true
		return access, &unreachable{"the cluster is gone"}
	}
	return access, err
}

// undrained goes on without a drain once the API server has been out of reach, or
// has refused, for long enough: what it holds goes with the cluster, and what it
// made outside is swept at the cloud.
func (s Set) undrained(ctx context.Context, r *pipeline.Run, err error) error {
	if !kube.Overdue(r, "drainable", apiServerPatience) {
		return pipeline.Wait(kube.Pause(r.Pace, 10*time.Second), "the cluster to let itself be drained (%v)", err)
	}
	r.WaitOver("drainable")
	r.Job.Config.InfraConfig.Cluster.Undrained = true
	r.Note("not drained: the cluster has not let itself be drained for %s (%v)", apiServerPatience, err)
	return s.forgetReleases(ctx, r)
}

// clusterOutputs is what a finished cluster job tells its user.
func clusterOutputs(j *job.Job, set func(k, v string)) {
	c := j.Config.InfraConfig.Cluster
	set("cluster", c.Name)
	set("endpoint", c.Endpoint)
	set("kubernetesVersion", c.Version)
	set("standardSupportUntil", c.SupportUntil)
	set("oidcIssuer", c.OIDCIssuer)
	if c.Name != "" {
		set("kubeconfig", kubeconfigCommand(j))
	}
	for _, info := range j.Config.InfraConfig.Components {
		componentOutputs(info, set)
	}
}

func componentOutputs(info job.ComponentInfo, set func(k, v string)) {
	if info.Status == "ready" {
		set("component."+info.Release, fmt.Sprintf("%s %s in namespace %s, revision %d", info.Name, info.Version, info.Namespace, info.Revision))
	}
}

// kubeconfigCommand is what a person types to use the cluster with kubectl.
func kubeconfigCommand(j *job.Job) string {
	ref, infra := j.ClusterRef(), j.Config.InfraConfig
	switch j.Provider {
	case job.GCP:
		cmd := fmt.Sprintf("gcloud container clusters get-credentials %s --region %s --project %s", ref.Name, ref.Region, infra.Account)
		switch host, _ := url.Parse(infra.Cluster.Endpoint); {
		case infra.Cluster.Public: // the external address is the default
		case host != nil && net.ParseIP(host.Hostname()) != nil:
			cmd += " --internal-ip"
		default:
			cmd += " --dns-endpoint"
		}
		return cmd
	case job.Azure:
		return fmt.Sprintf("az aks get-credentials --resource-group %s --name %s --subscription %s && kubelogin convert-kubeconfig -l azurecli", ref.ResourceGroup, ref.Name, infra.Account)
	}
	return fmt.Sprintf("aws eks update-kubeconfig --name %s --region %s", ref.Name, ref.Region)
}
