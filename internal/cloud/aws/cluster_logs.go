package aws

import (
	"context"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	logstypes "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"

	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	clusterLogKey = "cluster-log-group"

	// clusterLogs is what the names of the log groups of all EKS clusters begin with
	// ("Send control plane logs to CloudWatch Logs").
	clusterLogs = "/aws/eks/"
)

func clusterLogName(cluster string) string { return clusterLogs + cluster + "/cluster" }

// clusterLogGroup is where the control plane's logs go. The job makes it before the
// cluster, so that it has its retention from the first line on; EKS would make one
// that keeps everything for ever. It makes one again, without marks, when the
// control plane still writes while the group is deleted (failure kind B8): one of
// just this name, which has the job's hash in it, is the job's.
func (p *Provider) clusterLogGroup(r *pipeline.Run) pipeline.Resource {
	groupName := clusterLogName(clusterNameOf(r.Job))
	x := p.logGroupOf(r, clusterLogKey, groupName)
	get := x.Get
	x.Get = func(ctx context.Context, id string) (pipeline.Seen, error) {
		s, err := get(ctx, id)
		if err != nil || s.Owner != "" || !p.wroteLogs(r) {
			return s, err
		}
		s.Owner = r.Job.ID
		if madeID(r, kindLogGroup, clusterLogKey) != "" && !r.Down {
			return s, nil
		}
		marks := tags(r, clusterLogKey, groupName)
		s.Aspects = append(s.Aspects, pipeline.Aspect{Name: "tags", Wanted: "the job's", Seen: "none", Set: func(ctx context.Context) error {
			return p.tagLogGroup(ctx, groupName, marks)
		}})
		return s, nil
	}
	x.Find = byName(r, x)
	return x
}

// wroteLogs reports whether the job has, or had, a cluster that may have made the group.
func (p *Provider) wroteLogs(r *pipeline.Run) bool {
	_, known := r.Object(kindCluster, clusterKey)
	return known
}

func (p *Provider) tagLogGroup(ctx context.Context, groupName string, marks map[string]string) error {
	g, err := p.readLogGroup(ctx, groupName)
	if err != nil {
		return plain(err)
	}
	arn := or(aws.ToString(g.LogGroupArn), trimStar(aws.ToString(g.Arn)))
	_, err = p.logs.TagResource(ctx, &cloudwatchlogs.TagResourceInput{ResourceArn: aws.String(arn), Tags: marks})
	return plain(err)
}

// sweepLogs deletes a log group that the control plane has made again after its
// deletion. It is looked for late, once nothing writes any more.
func (p *Provider) sweepLogs(ctx context.Context, r *pipeline.Run) error {
	if !isCluster(r.Job) || !p.wroteLogs(r) {
		return nil
	}
	groupName := clusterLogName(clusterNameOf(r.Job))
	all, err := p.logGroupsNamed(ctx, groupName)
	if err != nil {
		return plain(err)
	}
	at := slices.IndexFunc(all, func(g logstypes.LogGroup) bool { return aws.ToString(g.LogGroupName) == groupName })
	if at < 0 {
		return nil
	}
	owner, err := p.logGroupOwner(ctx, all[at])
	if err != nil || owner != "" && owner != r.Job.ID {
		return pipeline.Unless(plain(err), pipeline.NotFound)
	}
	if _, err := p.logs.DeleteLogGroup(ctx, &cloudwatchlogs.DeleteLogGroupInput{LogGroupName: aws.String(groupName)}); err != nil {
		return pipeline.Unless(plain(err), pipeline.NotFound)
	}
	return r.Event(ctx, "object.swept", "log group %s, which the control plane made again after its deletion, was deleted", groupName)
}
