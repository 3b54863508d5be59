package aws

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A clusterSweep finds what a cluster's controllers made outside of it and left
// behind, by the marks that they put on it, and only in the cluster's own network.
type clusterSweep struct {
	*clusterBuild
	vpc string
	own bool // the network is the job's: what stands in it belongs to no other cluster
}

// A stray is something that was left behind.
type stray struct {
	what   string // such as "load balancer", with its ID
	remove func(context.Context) error
}

func (b *clusterBuild) newSweep() *clusterSweep {
	return &clusterSweep{clusterBuild: b, vpc: b.ic.NetworkID, own: b.r.Job.Mode == job.ModeCreate}
}

// sweep removes what was left behind, in the order in which it can go: instances
// and load balancers hold interfaces, those hold security groups. It looks again until nothing
// is found, since what was accepted for deletion lingers (failure kinds E1, E2, E4, E7).
func (b *clusterBuild) sweep(ctx context.Context) error {
	s := b.newSweep()
	if s.vpc == "" {
		return nil // there was no network yet, so there was no cluster
	}
	for _, stage := range [][]func(context.Context) error{
		{s.part("instances", s.instances), s.part("load balancers", s.loadBalancers), s.part("classic load balancers", s.classic)},
		{s.part("target groups", s.targetGroups), s.part("interfaces", s.interfaces), s.part("volumes", s.volumes), s.part("launch templates", s.templates)},
		{s.part("security groups", s.groups)},
	} {
		if err := pipeline.All(ctx, stage...); err != nil {
			return err
		}
	}
	return nil
}

// marked reports whether the tags are those of the cluster. What several clusters
// share is none of theirs.
func (s *clusterSweep) marked(tags map[string]string) bool {
	if tags["kubernetes.io/cluster/"+s.name] == "owned" {
		return true
	}
	for _, key := range []string{"elbv2.k8s.aws/cluster", "KubernetesCluster", "cluster.k8s.amazonaws.com/name", "aws:eks:cluster-name", "eks:cluster-name", "eks:eks-cluster-name", "karpenter.k8s.aws/cluster"} {
		if tags[key] == s.name {
			return true
		}
	}
	return false
}

func tagMap(tags []ec2types.Tag) map[string]string {
	m := map[string]string{}
	for _, t := range tags {
		m[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	return m
}

// part removes all that one kind of list shows, and is done when it shows nothing.
func (s *clusterSweep) part(kind string, list func(context.Context) ([]stray, error)) func(context.Context) error {
	clock := "sweep of " + kind
	return func(ctx context.Context) error {
		found, err := list(ctx)
		if err = plain(err); lacksCall(err) {
			return nil // the cloud does not have the kind at all
		}
		if err != nil || len(found) == 0 {
			if err == nil {
				s.r.WaitOver(clock)
			}
			return err
		}
		var left []string
		var refusals []error
		for _, x := range found {
			refusal, err := s.removeStray(ctx, x)
			if err != nil {
				return err
			}
			left, refusals = append(left, x.what), append(refusals, refusal)
		}
		refusal := errors.Join(refusals...)
		if s.r.WaitedFor(clock) > lingering {
			why := "the cloud accepts their deletion and does not carry it out"
			if refusal != nil {
				why = refusal.Error()
			}
			return pipeline.Fatal("blocked", "cluster "+s.name+" left "+strings.Join(left, ", ")+" behind, which cannot be deleted: "+why, "Free what blocks it, then retry; the job goes on where it was.")
		}
		var blocked *pipeline.BlockedError
		if errors.As(refusal, &blocked) {
			return blocked
		}
		return pipeline.Wait(5*time.Second, "%s, which cluster %s left behind, to be deleted", strings.Join(left, ", "), s.name)
	}
}

// removeStray asks for one deletion, and tells of it the first time. refusal is why
// it has to be asked for again.
func (s *clusterSweep) removeStray(ctx context.Context, x stray) (refusal, err error) {
	key := "swept " + x.what
	err = plain(x.remove(ctx))
	var blocked *pipeline.BlockedError
	var wait *pipeline.WaitError
	switch {
	case pipeline.Is(err, pipeline.NotFound):
		return nil, nil
	case errors.As(err, &blocked), errors.As(err, &wait), pipeline.Is(err, pipeline.Busy):
		return err, nil
	case err != nil:
		return nil, err
	case s.r.Recall(key) != nil:
		return nil, nil
	}
	s.r.Remember(key, true)
	return nil, s.r.Event(ctx, "object.swept", "%s, which cluster %s left behind, is deleted", x.what, s.name)
}
