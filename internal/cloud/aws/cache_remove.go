package aws

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/elasticache"
	ectypes "github.com/aws/aws-sdk-go-v2/service/elasticache/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/pipeline"
)

func (b *dataBuild) cacheGone(ctx context.Context) error {
	return b.r.Remove(ctx, b.replicationGroup())
}

// deleteCache deletes the cache with its nodes, and has ElastiCache take the final
// snapshot. ElastiCache has no deletion protection of its own.
func (b *dataBuild) deleteCache(ctx context.Context, id string) error {
	g, err := b.readCacheGroup(ctx, id)
	if err != nil {
		return err
	}
	status := aws.ToString(g.Status)
	if status == "deleting" {
		return nil
	}
	if x := g.GlobalReplicationGroupInfo; x != nil && aws.ToString(x.GlobalReplicationGroupId) != "" {
		return pipeline.Fatal("blocked", fmt.Sprintf("%s is in the global datastore %s, which this job did not make; nothing was removed", id, aws.ToString(x.GlobalReplicationGroupId)), "Take it out of there, then retry.")
	}
	in := &elasticache.DeleteReplicationGroupInput{ReplicationGroupId: aws.String(id), RetainPrimaryCluster: aws.Bool(false)}
	snapshot, err := b.takeCacheSnapshot(ctx, id, status)
	if err != nil {
		return err
	}
	if snapshot != "" {
		in.FinalSnapshotIdentifier = aws.String(snapshot)
	}
	_, err = b.cache.DeleteReplicationGroup(ctx, in)
	return b.finalRefused(ctx, snapshot, err)
}

// takeCacheSnapshot is the name of the snapshot that the deletion has to take, which is
// committed; "" for none: not of a cache that never came up, and not a second one.
func (b *dataBuild) takeCacheSnapshot(ctx context.Context, id, status string) (string, error) {
	if b.spec.SkipFinalSnapshot {
		return "", nil
	}
	if status == "creating" || status == "create-failed" {
		b.r.Note("no final snapshot: %s never became available (%s), so there is nothing in it", id, status)
		return "", nil
	}
	name, err := b.finalToTake(ctx)
	if err != nil || name == "" {
		return "", err
	}
	if status != "available" {
		return "", pipeline.Wait(10*time.Second, "%s to become available (%s), so that its final snapshot can be taken", id, status)
	}
	return name, b.askFinal(ctx, name)
}

func (p *Provider) readCacheSnapshot(ctx context.Context, snapshot string) (ectypes.Snapshot, error) {
	return lookup.Once(ctx, kindCacheSnapshot+" "+snapshot, func(ctx context.Context) (ectypes.Snapshot, error) {
		out, err := p.cache.DescribeSnapshots(ctx, &elasticache.DescribeSnapshotsInput{SnapshotName: aws.String(snapshot)})
		if err != nil {
			return ectypes.Snapshot{}, err
		}
		if len(out.Snapshots) == 0 {
			return ectypes.Snapshot{}, absent("ElastiCache", "DescribeSnapshots", "snapshot "+snapshot)
		}
		return out.Snapshots[0], nil
	})
}

// cacheSnapshotKept waits until the final snapshot can be restored, and records that
// it stays.
func (b *dataBuild) cacheSnapshotKept(ctx context.Context) error {
	snapshot := b.finalSnapshot()
	if snapshot == "" {
		return nil
	}
	s, err := b.readCacheSnapshot(ctx, snapshot)
	if err != nil {
		return pipeline.Unless(plain(err), pipeline.NotFound)
	}
	id := aws.ToString(s.ARN)
	if aws.ToString(s.ReplicationGroupId) != b.name() || b.r.Kept(kindCacheSnapshot, id) {
		return nil
	}
	switch status := aws.ToString(s.SnapshotStatus); status {
	case "available":
	case "failed":
		return pipeline.Fatal("snapshot-failed", fmt.Sprintf("the final snapshot %s failed, and the cache is gone", snapshot), "Look at it in the cloud's console, and ask AWS's support about it at once.")
	default:
		return pipeline.Wait(10*time.Second, "the final snapshot %s to become available (%s)", snapshot, status)
	}
	return b.r.KeepOther(ctx, kindCacheSnapshot, id, snapshot,
		"the final snapshot, which is billed until it is deleted; restore it with: aws elasticache create-replication-group --replication-group-id NEW-NAME --replication-group-description NEW-NAME --snapshot-name "+snapshot)
}
