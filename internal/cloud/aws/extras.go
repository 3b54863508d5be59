package aws

import (
	"context"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// An extra is an object that makes an environment safer and that it works
// without: a flow log, an access log, an endpoint. Where the cloud does not have
// the call at all, as in an emulator or a young region, the job goes on without it
// and says so; any other error is the job's.

// lacking reports whether the cloud does not have what an extra needs.
func lacking(err error) bool { return lacksCall(err) || speechless(err) }

// ensureExtra is Ensure for an extra; the ID is "" for one that was left out.
func (p *Provider) ensureExtra(ctx context.Context, r *pipeline.Run, x pipeline.Resource) (string, error) {
	leftOut := "left out " + x.Kind + " " + x.Key
	if r.Recall(leftOut) != nil {
		return "", nil
	}
	if rec, ok := r.Object(x.Kind, x.Key); r.Mode == pipeline.Verify && p.foreignEndpoint() && (!ok || rec.State != job.ObjectCreated) {
		return "", nil // it was left out then
	}
	id, err := r.Ensure(ctx, x)
	if lacking(err) {
		r.Remember(leftOut, true)
		r.Note("%s was left out, since the cloud does not offer it here (%v)", x, plain(err))
		return "", nil
	}
	return id, err
}

// removeExtra is Remove for an extra: one that could not be made cannot be
// looked for either.
func (p *Provider) removeExtra(ctx context.Context, r *pipeline.Run, x pipeline.Resource) error {
	err := r.Remove(ctx, x)
	if rec, ok := r.Object(x.Kind, x.Key); lacking(err) && (!ok || rec.State != job.ObjectCreated) {
		return nil
	}
	return err
}

// madeID is the ID of an object that the job has made; "" if it has not.
func madeID(r *pipeline.Run, kind, key string) string {
	if rec, ok := r.Object(kind, key); ok && rec.State == job.ObjectCreated {
		return rec.ID
	}
	return ""
}
