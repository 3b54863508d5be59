package aws

import (
	"context"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatchlogs"

	"github.com/zopday/provisioner/internal/pipeline"
)

// instanceLogs is what the names of the log groups of all RDS instances begin with
// ("Publishing database logs to Amazon CloudWatch Logs").
const instanceLogs = "/aws/rds/instance/"

// instanceLogGroup is where one of the instance's logs goes. The job makes it before
// the instance, so that it has its retention from the first line on; RDS would make one
// that keeps everything for ever. It makes one again, without marks, while it still
// writes (failure kind B8): one of just this name, which has the job's hash in it, is
// the job's.
func (b *dataBuild) instanceLogGroup(identifier, log string) pipeline.Resource {
	key := datastoreLogPref + log
	if b.info.NameTries > 0 {
		key += fmt.Sprintf("-%d", b.info.NameTries)
	}
	return b.logGroupNamed(key, instanceLogs+identifier+"/"+log)
}

func (b *dataBuild) logGroupNamed(key, groupName string) pipeline.Resource {
	x := b.logGroupOf(b.r, key, groupName)
	get := x.Get
	x.Get = func(ctx context.Context, id string) (pipeline.Seen, error) {
		s, err := get(ctx, id)
		if err != nil || s.Owner != "" {
			return s, err
		}
		s.Owner = b.r.Job.ID
		if madeID(b.r, kindLogGroup, key) != "" {
			return s, nil
		}
		marks := tags(b.r, key, groupName)
		s.Aspects = append(s.Aspects, pipeline.Aspect{Name: "tags", Wanted: "the job's", Seen: "none", Set: func(ctx context.Context) error {
			return b.tagLogGroup(ctx, groupName, marks)
		}})
		return s, nil
	}
	x.Find = byName(b.r, x)
	return x
}

func (b *dataBuild) ensureLogs(ctx context.Context) error {
	var parts []func(context.Context) error
	for _, log := range exportsOf(b.spec.Engine) {
		parts = append(parts, func(ctx context.Context) error {
			_, err := b.r.Ensure(ctx, b.instanceLogGroup(b.name(), log))
			return err
		})
	}
	return pipeline.All(ctx, parts...)
}

// logsGone removes the instance's log groups once nothing writes any more: those that
// the job has made, and any that RDS made by itself.
func (b *dataBuild) logsGone(ctx context.Context) error {
	var parts []func(context.Context) error
	for _, o := range b.r.Objects() {
		if o.Kind == kindLogGroup && strings.HasPrefix(o.Key, datastoreLogPref) {
			parts = append(parts, func(ctx context.Context) error { return b.r.Remove(ctx, b.logGroupNamed(o.Key, o.Name)) })
		}
	}
	if err := pipeline.All(ctx, parts...); err != nil {
		return err
	}
	if _, known := b.r.Object(kindDBInstance, datastoreKey); !known {
		return nil
	}
	all, err := b.logGroupsNamed(ctx, instanceLogs+b.name()+"/")
	if err != nil {
		return pipeline.Unless(plain(err), pipeline.Denied)
	}
	for _, g := range all {
		groupName := aws.ToString(g.LogGroupName)
		owner, err := b.logGroupOwner(ctx, g)
		if err := pipeline.Unless(plain(err), pipeline.NotFound); err != nil {
			return err
		}
		if owner != "" && owner != b.r.Job.ID {
			continue
		}
		if _, err := b.logs.DeleteLogGroup(ctx, &cloudwatchlogs.DeleteLogGroupInput{LogGroupName: aws.String(groupName)}); err != nil {
			if err := pipeline.Unless(plain(err), pipeline.NotFound); err != nil {
				return err
			}
			continue
		}
		if err := b.r.Event(ctx, "object.swept", "log group %s, which RDS has made, was deleted", groupName); err != nil {
			return err
		}
	}
	return nil
}
