package ledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
)

func vpc(key, id string, state job.ObjectStatus) job.Object {
	return job.Object{Cloud: job.AWS, Account: "1", Region: "us-east-1", Kind: "ec2:vpc", Key: key, ID: id, State: state}
}

// One thing at a cloud is one job's (A13).
func TestObjectHasOneOwner(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		e.register(t, "w")
		e.insert(t)
		a := e.claim(t, "w")
		e.insert(t)
		b := e.claim(t, "w")
		e.insert(t, func(j *job.Job) { j.OrgID = "org_2" })
		foreign := e.claim(t, "w")
		must(t, e.PutObjects(e.ctx, a.Lease, vpc("vpc", "vpc-1", job.ObjectCreated)))
		must(t, e.PutObjects(e.ctx, a.Lease, vpc("vpc", "vpc-1", job.ObjectCreated))) // the same again is the same

		var owned *ledger.OwnedElsewhereError
		err := e.PutObjects(e.ctx, b.Lease, vpc("other", "vpc-2", job.ObjectCreated), vpc("vpc", "vpc-1", job.ObjectCreated))
		if !errors.As(err, &owned) || owned.JobID != a.Job.ID {
			t.Errorf("another job's object: %v", err)
		}
		if objs, err := e.Objects(e.ctx, org, b.Job.ID); err != nil || len(objs) != 0 {
			t.Errorf("the refused write left %v, %v", objs, err)
		}
		if err := e.PutObjects(e.ctx, foreign.Lease, vpc("vpc", "vpc-1", job.ObjectKept)); !errors.As(err, &owned) || owned.JobID != "" {
			t.Errorf("an object of another organisation: %v; its job must not be named", err)
		}
		if err := e.PutObjects(e.ctx, a.Lease, vpc("second", "vpc-1", job.ObjectCreated)); err == nil || errors.As(err, &owned) {
			t.Errorf("one object under two keys: %v", err)
		}
		// Another region's or kind's namesake is another thing, and an intent owns nothing yet.
		west := vpc("vpc", "vpc-1", job.ObjectCreated)
		west.Region = "us-west-2"
		must(t, e.PutObjects(e.ctx, b.Lease, west, vpc("intent", "", job.ObjectIntended)))
		must(t, e.PutObjects(e.ctx, foreign.Lease, vpc("intent", "", job.ObjectIntended)))
		// What is removed is nobody's.
		must(t, e.PutObjects(e.ctx, a.Lease, vpc("vpc", "vpc-1", job.ObjectRemoved)))
		must(t, e.PutObjects(e.ctx, b.Lease, vpc("again", "vpc-1", job.ObjectCreated)))
	})
}

func TestObjectTimes(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		e.register(t, "w")
		e.insert(t)
		c := e.claim(t, "w")
		one := func() job.Object {
			t.Helper()
			objs, err := e.Objects(e.ctx, org, c.Job.ID)
			must(t, err)
			if len(objs) != 1 {
				t.Fatalf("%d objects", len(objs))
			}
			return objs[0]
		}
		given := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		o := vpc("vpc", "", job.ObjectIntended)
		o.IntentAt = &given
		must(t, e.PutObjects(e.ctx, c.Lease, o))
		if got := one(); !got.IntentAt.Equal(given) || got.CreatedAt != nil || got.RemovedAt != nil {
			t.Errorf("intended: %+v", got)
		}
		// The create is sent again: its window of doubt is its own.
		must(t, e.PutObjects(e.ctx, c.Lease, vpc("vpc", "", job.ObjectAbsent)))
		given = given.Add(time.Hour)
		o.IntentAt = &given
		must(t, e.PutObjects(e.ctx, c.Lease, o))
		if got := one(); !got.IntentAt.Equal(given) {
			t.Errorf("intended again: at %s, want %s", got.IntentAt, given)
		}
		must(t, e.PutObjects(e.ctx, c.Lease, vpc("vpc", "vpc-1", job.ObjectCreated)))
		created := one()
		if !created.IntentAt.Equal(given) || created.CreatedAt == nil || created.RemovedAt != nil {
			t.Errorf("created: %+v", created)
		}
		must(t, e.PutObjects(e.ctx, c.Lease, vpc("vpc", "vpc-1", job.ObjectKept)))
		if got := one(); !got.CreatedAt.Equal(*created.CreatedAt) {
			t.Errorf("kept: created at %s, before %s", got.CreatedAt, created.CreatedAt)
		}
		must(t, e.PutObjects(e.ctx, c.Lease, vpc("vpc", "vpc-1", job.ObjectRemoved)))
		if got := one(); got.RemovedAt == nil || !got.CreatedAt.Equal(*created.CreatedAt) {
			t.Errorf("removed: %+v", got)
		}
		o = vpc("vpc", "", job.ObjectIntended)
		o.Generation = 1
		must(t, e.PutObjects(e.ctx, c.Lease, o))
		if got := one(); got.IntentAt.Equal(given) || got.CreatedAt != nil || got.RemovedAt != nil {
			t.Errorf("intended anew: %+v", got)
		}
	})
}
