package e2e

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/server"
	"github.com/zopday/provisioner/internal/sim"
	"github.com/zopday/provisioner/internal/spaces"
)

// A backup is taken in the middle of a job, the job goes on to its end, and the
// backup is restored: a worker on the restored ledger takes the job over once its
// lease has run out, finds what was made after the backup, and makes nothing twice.
func TestRestoreInTheMiddleOfAJob(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Seed: 11})
	before := r.world.Snapshot()
	if err := access.FirstEntries(t.Context(), r.d); err != nil { // as every server does when it starts
		t.Fatal(err)
	}
	first := r.start()
	r.vm("shop-prod", plain)
	r.until(func(j *job.Job) bool { return len(r.objects()) >= 3 }, "it made no three objects")
	dir := t.TempDir()
	backup := filepath.Join(dir, "backup.db")
	if err := r.d.Copy(t.Context(), backup); err != nil {
		t.Fatal(err)
	}
	r.await(job.Completed)
	first.stop()
	<-first.done
	made := len(r.objects())

	restored := filepath.Join(dir, "restored.db")
	if _, err := server.Restore(t.Context(), server.RestoreOptions{In: backup, DB: restored, NoKey: true}); err != nil {
		t.Fatal(err)
	}
	d, err := db.Open(t.Context(), restored)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	client, closeSpaces := spaces.BuiltIn(spaces.NewRegistry(d))
	t.Cleanup(func() { _ = closeSpaces() })
	r.d, r.file, r.ledger, r.spaces = d, restored, ledger.New(d, ledger.Options{}), client
	if known := len(r.objects()); known >= made {
		t.Fatalf("the backup knows %d of %d objects: it was not taken in the middle", known, made)
	}
	since := time.Now()
	r.start()
	r.await(job.Completed)
	t.Logf("restored with the job under way, completed after %s", time.Since(since).Round(time.Second))
	if again := len(r.objects()); again != made {
		t.Errorf("%d objects after the restore, %d before", again, made)
	}
	r.checkBooks(t)
	r.move(job.Delete, "")
	r.await(job.Cancelled)
	r.checkGone(t, before)
}
