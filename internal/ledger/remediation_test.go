package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
)

// TestLastChanges: a pool's last change is found behind any number of another
// pool's, and is the one that began last, whenever its job was made.
func TestLastChanges(t *testing.T) {
	conform(t, func(t *testing.T, e *env) {
		began := time.Now().UTC().Add(-time.Hour)
		change := func(action job.RemediationAction, at time.Time, pools ...string) *job.Job {
			return e.insert(t, func(j *job.Job) {
				j.Kind, j.Status, j.SubjectID, j.Name = job.Remediation, job.Completed, "cls_1", fmt.Sprint("change-", j.ID)
				info := &job.RemediationInfo{Action: action, BeganAt: &at, VerifiedAt: &at}
				for _, p := range pools {
					info.Pools = append(info.Pools, job.PoolChange{PoolRef: job.PoolRef{Name: p}})
				}
				j.Config.InfraConfig.Remediation = info
			})
		}
		pauseA := change(job.ActionPause, began, "a")
		var last *job.Job
		for i := range 210 {
			last = change([]job.RemediationAction{job.ActionPause, job.ActionResume}[i%2], began.Add(time.Duration(i+1)*time.Second), "b")
		}
		change(job.ActionPause, began.Add(-time.Minute), "b") // written after, and begun before
		changes, err := e.LastChanges(e.ctx, org, "cls_1", "", []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		if a := changes["a"]; a.Job == nil || a.Job.ID != pauseA.ID || !a.Open() {
			t.Errorf("the pause of pool a is forgotten: %+v", a)
		}
		if b := changes["b"]; b.Job == nil || b.Job.ID != last.ID || b.Open() {
			t.Errorf("pool b: %+v, want job %s", b, last.Name)
		}
		changes, err = e.LastChanges(e.ctx, org, "cls_1", pauseA.ID, []string{"a"})
		if _, found := changes["a"]; found || err != nil {
			t.Errorf("a job is its own predecessor (%v)", err)
		}
	})
}
