package aws

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/rds"
	rdstypes "github.com/aws/aws-sdk-go-v2/service/rds/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// RemoveDatastore takes the final snapshot, deletes the datastore, and then what RDS
// or ElastiCache leave of it: retained backups, which are billed, and log groups.
func (p *Provider) RemoveDatastore(ctx context.Context, r *pipeline.Run) error {
	if r.Mode != pipeline.Apply || !r.Job.Owns() {
		return nil
	}
	ctx = lookup.With(ctx, r)
	b, err := p.newDataBuild(r)
	if err != nil {
		return err
	}
	stages := []func(context.Context) error{b.lookFirst, b.instanceGone, b.snapshotKept, b.backupsGone, b.logsGone}
	if b.cached() {
		stages = []func(context.Context) error{b.cacheGone, b.cacheSnapshotKept}
	}
	for _, stage := range stages {
		if err := stage(ctx); err != nil {
			return plain(err)
		}
	}
	return nil
}

// lookFirst refuses a teardown that would end half-way, before anything of it is
// deleted: protection that this job did not set, and replicas of others (failure kinds
// O4, O5, K7).
func (b *dataBuild) lookFirst(ctx context.Context) error {
	const looked = "the datastore was looked at"
	if b.r.Recall(looked) != nil {
		return nil
	}
	i, err := b.readInstance(ctx, b.name())
	if err != nil {
		return pipeline.Unless(plain(err), pipeline.NotFound)
	}
	if eksMark(rdsMarks(i.TagList)) != b.r.Job.ID {
		return nil // not the job's: it is not touched
	}
	if by := replicaBlockers(i); by != "" {
		return pipeline.Fatal("blocked", fmt.Sprintf("%s cannot be deleted: %s; nothing was removed", b.name(), by), "Promote or delete the replicas, then retry.")
	}
	if aws.ToBool(i.DeletionProtection) && !b.spec.Protected() {
		return pipeline.Fatal("blocked", fmt.Sprintf("%s is protected from deletion, and this job did not protect it; nothing was removed", b.name()),
			"Whoever protected it wants it kept. Lift the protection there (aws rds modify-db-instance --db-instance-identifier "+b.name()+" --no-deletion-protection), then retry.")
	}
	b.r.Remember(looked, true)
	return nil
}

// datastoreRemovable names what stands in the way of a datastore's teardown, before
// the first part of it, such as the secrets of its connections, is taken away.
func (p *Provider) datastoreRemovable(ctx context.Context, r *pipeline.Run) error {
	b, err := p.newDataBuild(r)
	if err != nil {
		return err
	}
	return plain(b.lookFirst(lookup.With(ctx, r)))
}

func (b *dataBuild) instanceGone(ctx context.Context) error { return b.r.Remove(ctx, b.instance()) }

// deleteInstance lifts the protection that the job gave, and deletes the instance with
// its automated backups. One that never came up has nothing to take a snapshot of.
func (b *dataBuild) deleteInstance(ctx context.Context, identifier string) error {
	i, err := b.readInstance(ctx, identifier)
	if err != nil {
		return err
	}
	status := aws.ToString(i.DBInstanceStatus)
	if status == dbDeleting {
		return nil
	}
	in := &rds.DeleteDBInstanceInput{DBInstanceIdentifier: aws.String(identifier), DeleteAutomatedBackups: aws.Bool(true), SkipFinalSnapshot: aws.Bool(true)}
	snapshot, err := b.takeSnapshot(ctx, i)
	if err != nil {
		return err
	}
	if snapshot != "" {
		in.SkipFinalSnapshot, in.FinalDBSnapshotIdentifier = aws.Bool(false), aws.String(snapshot)
	}
	if aws.ToBool(i.DeletionProtection) {
		if status != dbAvailable && status != "stopped" && !dbBroken(status) {
			return pipeline.Wait(10*time.Second, "%s to take changes (%s), so that its protection can be lifted", identifier, status)
		}
		if err := b.liftProtection(ctx, identifier); err != nil {
			return err
		}
	}
	_, err = b.rds.DeleteDBInstance(ctx, in)
	return b.finalRefused(ctx, snapshot, err)
}

// takeSnapshot is the name of the snapshot that the deletion has to take, which is
// committed; "" if it has to take none, or none any more.
func (b *dataBuild) takeSnapshot(ctx context.Context, i rdstypes.DBInstance) (string, error) {
	if b.spec.SkipFinalSnapshot {
		return "", nil
	}
	status := aws.ToString(i.DBInstanceStatus)
	switch {
	case status == dbCreating, dbBroken(status) && i.LatestRestorableTime == nil && b.info.Host == "":
		b.r.Note("no final snapshot: %s never became available (%s), so there is no data in it", aws.ToString(i.DBInstanceIdentifier), status)
		return "", nil
	case dbBroken(status):
		return "", pipeline.Fatal("blocked", fmt.Sprintf("no final snapshot can be taken of %s, which is %s; nothing was removed", aws.ToString(i.DBInstanceIdentifier), instanceReason(i)),
			"Repair it or restore its last backup elsewhere, then retry; or say that its data may go: PATCH config.spec.skipFinalSnapshot to true, then retry.").On("config.spec.skipFinalSnapshot")
	}
	name, err := b.finalToTake(ctx)
	if err != nil || name == "" {
		return "", err
	}
	if status != dbAvailable && status != "stopped" {
		return "", pipeline.Wait(10*time.Second, "%s to become available (%s), so that its final snapshot can be taken", aws.ToString(i.DBInstanceIdentifier), status)
	}
	return name, b.askFinal(ctx, name)
}

// liftProtection lifts the deletion protection that the job gave its datastore, as an
// act of its own that stands in the job's history.
func (b *dataBuild) liftProtection(ctx context.Context, identifier string) error {
	const lifted = "protection lifted"
	if b.r.Recall(lifted) == nil {
		if err := b.r.Event(ctx, "protection.lifted", "the deletion protection of %s, which this job gave it, is lifted", identifier); err != nil {
			return err
		}
		b.r.Remember(lifted, true)
	}
	_, err := b.rds.ModifyDBInstance(ctx, &rds.ModifyDBInstanceInput{DBInstanceIdentifier: aws.String(identifier), DeletionProtection: aws.Bool(false), ApplyImmediately: aws.Bool(true)})
	return err
}

func (p *Provider) readSnapshot(ctx context.Context, snapshot string) (rdstypes.DBSnapshot, error) {
	return lookup.Once(ctx, kindDBSnapshot+" "+snapshot, func(ctx context.Context) (rdstypes.DBSnapshot, error) {
		out, err := p.rds.DescribeDBSnapshots(ctx, &rds.DescribeDBSnapshotsInput{DBSnapshotIdentifier: aws.String(snapshot)})
		if err != nil {
			return rdstypes.DBSnapshot{}, err
		}
		if len(out.DBSnapshots) == 0 {
			return rdstypes.DBSnapshot{}, absent("RDS", "DescribeDBSnapshots", "snapshot "+snapshot)
		}
		return out.DBSnapshots[0], nil
	})
}

// ownSnapshot reports whether a snapshot is of the job's datastore: by the mark that
// RDS has copied to it, or by the name of its source, which has the job's hash in it.
func (b *dataBuild) ownSnapshot(s rdstypes.DBSnapshot) bool {
	return rdsMarks(s.TagList)[job.MarkOwner] == b.r.Job.ID || aws.ToString(s.DBInstanceIdentifier) == b.name()
}

// snapshotKept waits until the final snapshot can be restored, and records that it
// stays. It is looked for after every teardown: a crash may have come in between.
func (b *dataBuild) snapshotKept(ctx context.Context) error {
	snapshot := b.finalSnapshot()
	if snapshot == "" {
		return nil
	}
	s, err := b.readSnapshot(ctx, snapshot)
	if err != nil {
		return pipeline.Unless(plain(err), pipeline.NotFound)
	}
	if !b.ownSnapshot(s) || b.r.Kept(kindDBSnapshot, aws.ToString(s.DBSnapshotArn)) {
		return nil
	}
	switch status := aws.ToString(s.Status); status {
	case dbAvailable:
	case "failed":
		return pipeline.Fatal("snapshot-failed", fmt.Sprintf("the final snapshot %s failed, and the datastore is gone", snapshot), "Look at it in the cloud's console, and ask AWS's support about it at once.")
	default:
		return pipeline.Wait(10*time.Second, "the final snapshot %s to become available (%s, %d%%)", snapshot, status, aws.ToInt32(s.PercentProgress))
	}
	return b.r.KeepOther(ctx, kindDBSnapshot, aws.ToString(s.DBSnapshotArn), snapshot,
		"the final snapshot, which is billed until it is deleted; restore it with: aws rds restore-db-instance-from-db-snapshot --db-instance-identifier NEW-NAME --db-snapshot-identifier "+snapshot)
}

// backupsGone removes automated backups that outlived the instance: they are billed.
func (b *dataBuild) backupsGone(ctx context.Context) error {
	if _, known := b.r.Object(kindDBInstance, datastoreKey); !known {
		return nil
	}
	backups, err := b.retainedBackups(ctx, b.name())
	if err != nil {
		return pipeline.Unless(plain(err), pipeline.NotFound, pipeline.Invalid, pipeline.Denied)
	}
	for _, x := range backups {
		_, err := b.rds.DeleteDBInstanceAutomatedBackup(ctx, &rds.DeleteDBInstanceAutomatedBackupInput{DbiResourceId: x.DbiResourceId})
		if err := pipeline.Unless(plain(err), pipeline.NotFound); err != nil {
			return err
		}
		if err := b.r.Event(ctx, "object.swept", "the automated backups of %s, which were kept beyond it, were deleted", b.name()); err != nil {
			return err
		}
	}
	return nil
}

// retainedBackups are the automated backups of an instance that is gone.
func (p *Provider) retainedBackups(ctx context.Context, identifier string) ([]rdstypes.DBInstanceAutomatedBackup, error) {
	all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]rdstypes.DBInstanceAutomatedBackup, *string, error) {
		out, err := p.rds.DescribeDBInstanceAutomatedBackups(ctx, &rds.DescribeDBInstanceAutomatedBackupsInput{DBInstanceIdentifier: aws.String(identifier), Marker: token})
		if err != nil {
			return nil, nil, err
		}
		return out.DBInstanceAutomatedBackups, out.Marker, nil
	})
	return slices.DeleteFunc(all, func(x rdstypes.DBInstanceAutomatedBackup) bool {
		return aws.ToString(x.DBInstanceIdentifier) != identifier || aws.ToString(x.Status) != "retained"
	}), err
}
