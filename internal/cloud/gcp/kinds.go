package gcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A kind is a kind of Compute Engine object, by its calls. T is the generated
// client's type, a pointer.
type kind[T any] struct {
	name string // as the ledger names it: service and type, such as "compute:subnet"

	// list is one page of everything in the place that fits the filter.
	list func(ctx context.Context, filter, token string) (items []T, next string, err error)

	get    func(ctx context.Context, id string) (T, error)
	insert func(ctx context.Context, requestID string, x T) (*compute.Operation, error)
	remove func(ctx context.Context, id string) (*compute.Operation, error)

	link func(T) string                     // its self link
	mark func(T) (owner, object string)     // what its marks say
	by   func(owner string) (filter string) // how a job's are listed
}

// lookup is the kind as package lookup asks for it.
func (k kind[T]) lookup() lookup.Kind[T] {
	return lookup.Kind[T]{
		Name: k.name,
		List: func(ctx context.Context, owner string) ([]T, error) {
			all, err := k.all(ctx, k.by(owner))
			// An endpoint that does not know the filter answers with everybody's.
			return slices.DeleteFunc(all, func(x T) bool {
				who, _ := k.mark(x)
				return who != owner
			}), err
		},
		One:  k.get,
		ID:   func(x T) string { return rel(k.link(x)) },
		Mark: k.mark,
	}
}

// all is every page of what fits a filter.
func (k kind[T]) all(ctx context.Context, filter string) ([]T, error) {
	return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]T, *string, error) {
		items, next, err := k.list(ctx, filter, text(token))
		return items, &next, err
	})
}

// An object is one of a job's objects at Compute Engine.
type object[T any] struct {
	kind kind[T]
	key  string // its place in the job
	id   string // the relative resource name that it has or will have
	want T      // as the create says it

	// see is its status and its aspects; ID and owner are filled in. nil: there
	// is nothing to compare.
	see func(ctx context.Context, x T) (pipeline.Seen, error)

	// blockers names what keeps a delete from going through; nil if not known.
	blockers func(ctx context.Context, id string) (string, error)
}

// resource is the object as the pipeline makes, checks and removes it.
func (o object[T]) resource(p *Provider, r *pipeline.Run) pipeline.Resource {
	k := o.kind.lookup()
	x := pipeline.Resource{
		Kind: o.kind.name, Key: o.key, Name: base(o.id), Args: o.want, Tokened: true, Slow: true, Blockers: o.blockers,
	}
	seen := func(ctx context.Context, found T) (pipeline.Seen, error) {
		var s pipeline.Seen
		var err error
		if o.see != nil {
			s, err = o.see(ctx, found)
		}
		s.ID = k.ID(found)
		owner, _ := o.kind.mark(found)
		s.Owner = cmp.Or(owner, pipeline.Unmarked)
		return s, err
	}
	x.Get = func(ctx context.Context, id string) (pipeline.Seen, error) {
		if s, running, err := o.underWay(ctx, p, r, x, id); running || err != nil {
			return s, err
		}
		found, err := k.Get(ctx, id)
		if pipeline.Is(err, pipeline.NotFound) {
			return p.absence(ctx, r, x, id, err)
		}
		if err != nil {
			return pipeline.Seen{}, err
		}
		return seen(ctx, found)
	}
	x.Find = func(ctx context.Context) ([]pipeline.Seen, error) {
		found, err := k.Find(ctx, o.key)
		if err != nil {
			return nil, err
		}
		var out []pipeline.Seen
		for _, f := range found {
			s, err := seen(ctx, f)
			if err != nil {
				return nil, err
			}
			out = append(out, s)
		}
		return out, nil
	}
	x.Create = func(ctx context.Context, token string) (pipeline.Seen, error) {
		op, err := o.kind.insert(ctx, requestID(token), o.want)
		if pipeline.Is(err, pipeline.Exists) {
			return pipeline.Seen{}, o.taken(ctx, r, x, err)
		}
		if err != nil {
			return pipeline.Seen{}, err
		}
		p.await(r, o.id, op)
		return pipeline.Seen{ID: o.id, Status: pipeline.Pending}, nil
	}
	x.Delete = func(ctx context.Context, id string) error { return o.delete(ctx, p, r, x, id) }
	return x
}

// underWay looks at the operation that this worker began on the object, before
// the object itself: while it is being made or changed, nothing else is asked.
func (o object[T]) underWay(ctx context.Context, p *Provider, r *pipeline.Run, x pipeline.Resource, id string) (pipeline.Seen, bool, error) {
	u, ok := begun(r, id)
	if !ok || r.Mode != pipeline.Apply || u.verb == "delete" {
		return pipeline.Seen{}, false, nil
	}
	done, err := p.outcome(ctx, r, id, u)
	var failed *pipeline.CloudError
	switch {
	case err == nil && done:
		return pipeline.Seen{}, false, nil
	case err == nil:
		return pipeline.Seen{ID: id, Owner: r.Job.ID, Status: pipeline.Pending, Reason: u.verb + " under way"}, true, nil
	case !done || u.verb != "insert" || !errors.As(err, &failed):
		return pipeline.Seen{}, false, err
	}
	there, err := o.kind.get(ctx, id)
	if err != nil && !pipeline.Is(err, pipeline.NotFound) {
		return pipeline.Seen{}, false, err
	}
	if err == nil {
		if owner, _ := o.kind.mark(there); owner == r.Job.ID {
			return pipeline.Seen{ID: id, Owner: owner, Status: pipeline.Broken, Reason: failed.Message}, true, nil
		}
	}
	// It is not there, or somebody else was faster to take the name.
	return p.failedToCome(r, x, id, failed), true, nil
}

// taken tells a namesake of ours from somebody else's, who is never touched
// (failure kind B5).
func (o object[T]) taken(ctx context.Context, r *pipeline.Run, x pipeline.Resource, exists error) error {
	found, err := o.kind.get(ctx, o.id)
	if err != nil {
		return exists
	}
	if owner, _ := o.kind.mark(found); owner == r.Job.ID {
		return exists
	}
	return pipeline.Fatal("name-taken",
		fmt.Sprintf("%s exists already and does not carry this job's mark, so it is somebody else's and was not touched", x),
		"Rename or remove it, or give the job another name, then retry.").From(exists)
}

// delete asks for the object's deletion. What became of an earlier one is told
// first: a deletion can be accepted and fail later, such as of a network that a
// firewall rule still names.
func (o object[T]) delete(ctx context.Context, p *Provider, r *pipeline.Run, x pipeline.Resource, id string) error {
	if u, ok := begun(r, id); ok && u.verb == "delete" {
		if done, err := p.outcome(ctx, r, id, u); err != nil || !done {
			return err
		}
	}
	op, err := o.kind.remove(ctx, id)
	if pipeline.Is(err, pipeline.NotFound) {
		// Gone, or still being made: its insert may show later.
		if s, aerr := p.absence(ctx, r, x, id, err); aerr == nil && s.Status == pipeline.Pending {
			return pipeline.Wait(2*time.Second, "%s to show, so that it can be deleted (%s)", x, s.Reason)
		}
	}
	if err != nil {
		return err
	}
	p.await(r, id, op)
	return nil
}

// made reports whether the job has an object already.
func made(r *pipeline.Run, kind, key string) bool {
	rec, ok := r.Object(kind, key)
	return ok && rec.State == job.ObjectCreated
}
