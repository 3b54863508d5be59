package aws

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	// mostFinalNames is how many names are tried for a final snapshot.
	mostFinalNames = 20
	// finalFresh is how old, in cloud time, what a final snapshot holds may be when the
	// datastore goes without another: as long as a deletion is given.
	finalFresh = time.Hour
)

// A finalSeen is what the cloud shows under the name of a final snapshot.
type finalSeen struct {
	id, status string
	own        bool // of the job's datastore
}

// finalSnapshot is the name of the snapshot that the deletion takes; "" for none. It
// was chosen when the datastore was made, or by the teardown when that name was taken.
func (b *dataBuild) finalSnapshot() string {
	if b.spec.SkipFinalSnapshot {
		return ""
	}
	return or(b.info.FinalSnapshot, b.r.Job.ResourceName("final", 200))
}

func (b *dataBuild) readFinal(ctx context.Context, name string) (finalSeen, error) {
	if b.cached() {
		s, err := b.readCacheSnapshot(ctx, name)
		return finalSeen{id: aws.ToString(s.ARN), status: aws.ToString(s.SnapshotStatus), own: aws.ToString(s.ReplicationGroupId) == b.name()}, err
	}
	s, err := b.readSnapshot(ctx, name)
	return finalSeen{id: aws.ToString(s.DBSnapshotArn), status: aws.ToString(s.Status), own: b.ownSnapshot(s)}, err
}

func (b *dataBuild) snapshotKind() string {
	if b.cached() {
		return kindCacheSnapshot
	}
	return kindDBSnapshot
}

// finalToTake is the name of the snapshot that the deletion has to take; "" if this
// teardown has taken it. Only what stands under a name that this teardown has asked for
// is its own: the name was free when that was committed. Whatever else has the name, a
// snapshot of weeks ago or one that failed, holds the data of another day or none; it
// stays, and another name is taken.
func (b *dataBuild) finalToTake(ctx context.Context) (string, error) {
	name := b.finalSnapshot()
	s, err := b.readFinal(ctx, name)
	switch {
	case pipeline.Is(err, pipeline.NotFound):
		return name, nil
	case err != nil:
		return "", err
	case b.info.SnapshotAskedAt == nil || !s.own:
	case s.status == "failed":
		return "", pipeline.Fatal("snapshot-failed", fmt.Sprintf("the final snapshot %s of %s failed, so nothing was deleted", name, b.name()),
			"Delete that snapshot, then retry: it is taken again; or say that the data may go: PATCH config.spec.skipFinalSnapshot to true, then retry.").On("config.spec.skipFinalSnapshot")
	case s.status != "available":
		return "", pipeline.Wait(10*time.Second, "the final snapshot %s to become available (%s) before %s is deleted", name, s.status, b.name())
	case b.r.Pace.Cloud(b.r.Now().Sub(*b.info.SnapshotAskedAt)) <= finalFresh:
		return "", nil
	default:
		if err := b.r.KeepOther(ctx, b.snapshotKind(), s.id, name, "a final snapshot whose deletion did not come about; a later one was taken, and this one is billed until it is deleted"); err != nil {
			return "", err
		}
	}
	return b.freeFinal(ctx, name)
}

// freeFinal is a name for the final snapshot that nothing has.
func (b *dataBuild) freeFinal(ctx context.Context, taken string) (string, error) {
	first := b.r.Job.ResourceName("final", 200)
	for n := 2; n <= mostFinalNames; n++ {
		name := fmt.Sprintf("%s-%d", first, n)
		_, err := b.readFinal(ctx, name)
		if pipeline.Is(err, pipeline.NotFound) {
			return name, nil
		}
		if err != nil {
			return "", err
		}
	}
	return "", pipeline.Fatal("name-taken", fmt.Sprintf("the snapshot %s exists already and is not of this teardown, and so are %s-2 to -%d; nothing was deleted", taken, first, mostFinalNames), "Rename or remove one of them, then retry.")
}

// askFinal commits under which name, and when, this teardown asks for its final
// snapshot: before the call, whose reply can be lost.
func (b *dataBuild) askFinal(ctx context.Context, name string) error {
	before, now := *b.info, b.r.Now()
	if other := b.finalSnapshot(); name != other {
		if err := b.r.Event(ctx, "snapshot.renamed", "the snapshot %s was there before, and is not what this teardown has taken: it stays, and the final snapshot is %s", other, name); err != nil {
			return err
		}
	}
	b.info.FinalSnapshot, b.info.SnapshotAskedAt = name, &now
	if err := b.r.Save(ctx); err != nil {
		*b.info = before
		return err
	}
	return nil
}

// finalRefused reads what a deletion that takes a snapshot was answered. Where the cloud
// has a snapshot of that name after all, one that showed late, that one is not this
// teardown's: the name is looked at afresh. A deletion that has begun goes on.
func (b *dataBuild) finalRefused(ctx context.Context, name string, err error) error {
	if name == "" || !pipeline.Is(err, pipeline.Exists) {
		return err
	}
	b.info.SnapshotAskedAt = nil
	if err := b.r.Save(ctx); err != nil {
		return err
	}
	return pipeline.Wait(5*time.Second, "another look at the snapshot %s, which the cloud has already", name)
}
