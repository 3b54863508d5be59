package aws

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// RemoveCluster removes the pools, those of others too; add-ons, entries and the
// trust in the cluster's issuer; the cluster, failed or not; and then what its
// controllers left behind. A part that is already gone is passed over (failure
// kinds E10, E11, E13).
func (p *Provider) RemoveCluster(ctx context.Context, r *pipeline.Run) error {
	if r.Mode != pipeline.Apply || !r.Job.Owns() {
		return nil
	}
	ctx = lookup.With(ctx, r)
	b, err := p.newClusterBuild(r)
	if err != nil {
		return err
	}
	owner, err := b.clusterOwner(ctx)
	if err != nil {
		return err
	}
	stages := []func(context.Context) error{b.poolsGone, b.foreignPoolsGone, b.templatesGone, b.fittingsGone, b.clusterGone, b.sweep}
	if owner != "" && owner != r.Job.ID {
		// Somebody else's, of just the job's name: neither it nor what it made is the job's.
		r.Note("cluster %s does not carry this job's mark, and was not touched", b.name)
		stages = []func(context.Context) error{b.templatesGone}
	}
	for _, stage := range stages {
		if err := stage(ctx); err != nil {
			return err
		}
	}
	return nil
}

// clusterOwner is whose mark the cluster of the job's name carries; "" if there is none.
func (b *clusterBuild) clusterOwner(ctx context.Context) (string, error) {
	c, err := b.readCluster(ctx, b.name)
	if err != nil {
		return "", pipeline.Unless(plain(err), pipeline.NotFound)
	}
	return eksMark(c.Tags), nil
}

// named are the names that the ledger or the spec has of a kind with a prefix.
func (b *clusterBuild) named(kind, prefix string, asked ...string) []string {
	for _, o := range b.r.Objects() {
		if n, ok := strings.CutPrefix(o.Key, prefix); ok && o.Kind == kind && !slices.Contains(asked, n) {
			asked = append(asked, n)
		}
	}
	return asked
}

func (b *clusterBuild) poolNames() []string {
	var asked []string
	for _, n := range b.spec.NodePools {
		asked = append(asked, n.Name)
	}
	return b.named(kindNodegroup, poolPrefix, asked...)
}

// poolOf is a pool as far as removing it needs.
func poolOf(name string) job.NodePool {
	none := 0
	return job.NodePool{Name: name, Min: &none, Desired: &none, Max: &none}
}

func (b *clusterBuild) poolsGone(ctx context.Context) error {
	var parts []func(context.Context) error
	for _, n := range b.poolNames() {
		parts = append(parts, func(ctx context.Context) error { return b.r.Remove(ctx, b.nodegroup(b.r, poolOf(n), "")) })
	}
	return pipeline.All(ctx, parts...)
}

// foreignPoolsGone removes node groups and Fargate profiles that others have added
// to the job's cluster: it cannot be deleted with them (failure kind E10).
func (b *clusterBuild) foreignPoolsGone(ctx context.Context) error {
	if b.r.Recall(noForeignPools) != nil {
		return nil
	}
	groups, err := b.nodegroupNames(ctx, b.name)
	if err != nil {
		return pipeline.Unless(plain(err), pipeline.NotFound)
	}
	profiles, err := b.fargateProfiles(ctx, b.name)
	if err != nil {
		return pipeline.Unless(plain(err), pipeline.NotFound)
	}
	for _, g := range groups {
		if err := b.foreignGone(ctx, "node group "+g, func(ctx context.Context) error {
			_, err := b.eks.DeleteNodegroup(ctx, &eks.DeleteNodegroupInput{ClusterName: aws.String(b.name), NodegroupName: aws.String(g)})
			return err
		}); err != nil {
			return err
		}
	}
	// EKS deletes one profile of a cluster at a time.
	for _, f := range profiles[:min(len(profiles), 1)] {
		if err := b.foreignGone(ctx, "Fargate profile "+f, func(ctx context.Context) error {
			_, err := b.eks.DeleteFargateProfile(ctx, &eks.DeleteFargateProfileInput{ClusterName: aws.String(b.name), FargateProfileName: aws.String(f)})
			return err
		}); err != nil {
			return err
		}
	}
	if left := append(groups, profiles...); len(left) > 0 {
		if b.r.WaitedFor("pools of others") > lingering {
			return pipeline.Fatal("blocked", "cluster "+b.name+" still has "+strings.Join(left, ", ")+", which others have added and EKS does not get rid of", "Remove them, then retry.")
		}
		return pipeline.Wait(15*time.Second, "%s, which others have added to the cluster, to be deleted", strings.Join(left, ", "))
	}
	b.r.WaitOver("pools of others")
	b.r.Remember(noForeignPools, true) // until EKS says otherwise
	return nil
}

const noForeignPools = "no pools of others"

// foreignGone asks once in a while for the deletion of what is not the job's and
// goes with its cluster, and says so.
func (b *clusterBuild) foreignGone(ctx context.Context, what string, remove func(context.Context) error) error {
	key := "asked for the deletion of " + what
	if b.r.Recall(key) != nil && b.r.WaitedFor(key) < 2*time.Minute {
		return nil
	}
	err := plain(remove(ctx))
	if err := pipeline.Unless(err, pipeline.NotFound, pipeline.Busy); err != nil {
		return err
	}
	if b.r.Recall(key) == nil && err == nil {
		if err := b.r.Event(ctx, "object.swept", "%s, which others have added to cluster %s, is deleted with it", what, b.name); err != nil {
			return err
		}
	}
	b.r.Remember(key, true)
	b.r.WaitOver(key)
	b.r.WaitedFor(key)
	return nil
}

func (b *clusterBuild) templatesGone(ctx context.Context) error {
	var parts []func(context.Context) error
	for _, n := range b.named(kindLaunchTemplate, poolPrefix, b.poolNames()...) {
		parts = append(parts, func(ctx context.Context) error {
			return b.r.Remove(ctx, b.launchTemplateOf(b.r, poolPrefix+n, name(b.r, n, 125), nil))
		})
	}
	return pipeline.All(ctx, parts...)
}

// fittingsGone removes add-ons, access entries and the trust in the issuer.
func (b *clusterBuild) fittingsGone(ctx context.Context) error {
	parts := []func(context.Context) error{func(ctx context.Context) error { return b.r.Remove(ctx, b.oidcProvider(b.r)) }}
	for _, a := range addons {
		parts = append(parts, func(ctx context.Context) error { return b.r.Remove(ctx, b.addon(b.r, a)) })
	}
	for _, o := range b.r.Objects() {
		if o.Kind == kindAccessEntry {
			parts = append(parts, func(ctx context.Context) error { return b.r.Remove(ctx, b.accessEntry(b.r, o.Key, o.Name)) })
		}
	}
	return pipeline.All(ctx, parts...)
}

func (b *clusterBuild) clusterGone(ctx context.Context) error {
	return b.r.Remove(ctx, b.cluster(b.r, b.spec))
}
