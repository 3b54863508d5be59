package aws

import (
	"context"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/cloud/lookup"
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

// made reads every object of a kind that the job has made, by their IDs: a list by
// mark does not show what was made a moment ago. What is not there is left out.
func made[T any](ctx context.Context, r *pipeline.Run, k lookup.Kind[T]) ([]T, error) {
	records := slices.DeleteFunc(r.Objects(), func(o job.Object) bool { return o.Kind != k.Name || o.State != job.ObjectCreated })
	slices.SortFunc(records, func(a, b job.Object) int { return strings.Compare(a.Key, b.Key) })
	var out []T
	for _, o := range records {
		x, err := k.Get(ctx, o.ID)
		if pipeline.Is(err, pipeline.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, x)
	}
	return out, nil
}
