package aws

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"
	logstypes "github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	kindLogGroup = "logs:log-group"
	logGroupKey  = "flow-log-group"

	// logGroups is what the names of all log groups of jobs begin with.
	logGroups = "/zopday/"

	// retentionDays is how long records are kept.
	retentionDays = 90
)

func (p *Provider) logGroupName(r *pipeline.Run) string { return logGroups + name(r, "flow", 128) }

// readLogGroup reads one group by its name.
func (p *Provider) readLogGroup(ctx context.Context, name string) (logstypes.LogGroup, error) {
	return lookup.Once(ctx, kindLogGroup+" "+name, func(ctx context.Context) (logstypes.LogGroup, error) {
		all, err := p.logGroupsNamed(ctx, name)
		if err != nil {
			return logstypes.LogGroup{}, err
		}
		for _, g := range all {
			if aws.ToString(g.LogGroupName) == name {
				return g, nil
			}
		}
		return logstypes.LogGroup{}, absent("CloudWatch Logs", "DescribeLogGroups", "log group "+name)
	})
}

func (p *Provider) logGroupsNamed(ctx context.Context, prefix string) ([]logstypes.LogGroup, error) {
	return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]logstypes.LogGroup, *string, error) {
		out, err := p.logs.DescribeLogGroups(ctx, &cloudwatchlogs.DescribeLogGroupsInput{LogGroupNamePrefix: aws.String(prefix), NextToken: token})
		if err != nil {
			return nil, nil, err
		}
		return out.LogGroups, out.NextToken, nil
	})
}

// logGroupOwner is whose mark a group carries.
func (p *Provider) logGroupOwner(ctx context.Context, g logstypes.LogGroup) (string, error) {
	// LogGroupArn is the ARN that tags take; Arn has ":*" at its end.
	arn := aws.ToString(g.LogGroupArn)
	if arn == "" {
		arn = trimStar(aws.ToString(g.Arn))
	}
	return lookup.Once(ctx, "tags of "+arn, func(ctx context.Context) (string, error) {
		out, err := p.logs.ListTagsForResource(ctx, &cloudwatchlogs.ListTagsForResourceInput{ResourceArn: aws.String(arn)})
		if err != nil {
			return "", err
		}
		return out.Tags[job.MarkOwner], nil
	})
}

func trimStar(arn string) string {
	if n := len(arn); n > 2 && arn[n-2:] == ":*" {
		return arn[:n-2]
	}
	return arn
}

// logGroup is where the flow log goes.
func (p *Provider) logGroup(r *pipeline.Run) pipeline.Resource {
	return p.logGroupOf(r, logGroupKey, p.logGroupName(r))
}

func (p *Provider) logGroupOf(r *pipeline.Run, key, groupName string) pipeline.Resource {
	x := pipeline.Resource{Kind: kindLogGroup, Key: key, Name: groupName}
	retention := func(days int32) pipeline.Aspect {
		return pipeline.Aspect{Name: "retention", Wanted: retentionText(retentionDays), Seen: retentionText(days), Set: func(ctx context.Context) error {
			_, err := p.logs.PutRetentionPolicy(ctx, &cloudwatchlogs.PutRetentionPolicyInput{LogGroupName: aws.String(x.Name), RetentionInDays: aws.Int32(retentionDays)})
			return err
		}}
	}
	x.Get = func(ctx context.Context, id string) (pipeline.Seen, error) {
		g, err := p.readLogGroup(ctx, id)
		if err != nil {
			return pipeline.Seen{}, err
		}
		s := pipeline.Seen{ID: id, Status: pipeline.Ready, Aspects: []pipeline.Aspect{retention(aws.ToInt32(g.RetentionInDays))}}
		if madeID(r, kindLogGroup, key) == id && !r.Down {
			return s, nil // known to be the job's
		}
		s.Owner, err = p.logGroupOwner(ctx, g)
		return s, err
	}
	x.Find = byName(r, x)
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		_, err := p.logs.CreateLogGroup(ctx, &cloudwatchlogs.CreateLogGroupInput{LogGroupName: aws.String(x.Name), Tags: tags(r, x.Key, x.Name)})
		if err != nil {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: x.Name, Status: pipeline.Ready, Aspects: []pipeline.Aspect{retention(0)}}, nil
	}
	x.Delete = func(ctx context.Context, id string) error {
		_, err := p.logs.DeleteLogGroup(ctx, &cloudwatchlogs.DeleteLogGroupInput{LogGroupName: aws.String(id)})
		return err
	}
	return tidy(x)
}

func retentionText(days int32) string {
	if days > 0 {
		return fmt.Sprintf("%d days", days)
	}
	return "for ever"
}
