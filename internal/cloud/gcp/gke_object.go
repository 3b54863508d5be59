package gcp

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/api/container/v1"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// The kinds of Kubernetes Engine as the ledger names them.
const (
	kindCluster  = "container:cluster"
	kindNodePool = "container:node-pool"
)

// A clusterObject is a cluster or a node pool of the job: made, changed and
// deleted by operations of Kubernetes Engine, and known by its name, since the
// API takes no token.
type clusterObject struct {
	kind, key string
	id        string // the relative resource name that it has or will have
	args      any    // what the create says
	patience  time.Duration

	// read is the object as it is now; the error has class NotFound if there is none.
	read   func(ctx context.Context) (pipeline.Seen, error)
	create func(ctx context.Context) (*container.Operation, error)
	remove func(ctx context.Context) (*container.Operation, error)
}

// resource is the object as the pipeline makes, checks and removes it.
func (o clusterObject) resource(p *Provider, r *pipeline.Run) pipeline.Resource {
	x := pipeline.Resource{Kind: o.kind, Key: o.key, Name: base(o.id), Args: o.args, Slow: true, Patience: o.patience}
	x.Get = func(ctx context.Context, id string) (pipeline.Seen, error) {
		if s, running, err := o.underWay(ctx, p, r, x); running || err != nil {
			return s, err
		}
		seen, err := o.read(ctx)
		if pipeline.Is(err, pipeline.NotFound) {
			return o.absence(ctx, p, r, x, err)
		}
		if err == nil && seen.Status == pipeline.Broken {
			seen.Reason = o.reason(ctx, p, seen.Reason)
		}
		return seen, err
	}
	x.Find = func(ctx context.Context) ([]pipeline.Seen, error) { return found(o.read(ctx)) }
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		op, err := o.create(ctx)
		if err != nil {
			return pipeline.Seen{}, err
		}
		p.awaitCluster(r, o.id, op)
		return pipeline.Seen{ID: o.id, Status: pipeline.Pending}, nil
	}
	x.Delete = func(ctx context.Context, id string) error {
		if u, ok := begun(r, id); ok && u.verb == verbDelete {
			if done, err := p.outcome(ctx, r, id, u); err != nil || !done {
				return err
			}
		}
		op, err := o.remove(ctx)
		if err != nil {
			return inTurn(r, id, err)
		}
		p.awaitCluster(r, id, op)
		return nil
	}
	return x
}

// underWay looks at the operation that this worker began on the object, before
// the object itself. A create that was accepted and failed leaves the object in
// ERROR, or nothing: the first is told as broken, and deleted by a retry or a
// teardown ("Troubleshoot cluster creation").
func (o clusterObject) underWay(ctx context.Context, p *Provider, r *pipeline.Run, x pipeline.Resource) (pipeline.Seen, bool, error) {
	u, ok := begun(r, o.id)
	if !ok || r.Mode != pipeline.Apply || u.verb == verbDelete {
		return pipeline.Seen{}, false, nil
	}
	done, err := p.outcome(ctx, r, o.id, u)
	var failed *pipeline.CloudError
	switch {
	case err == nil && done:
		return pipeline.Seen{}, false, nil
	case err == nil:
		return pipeline.Seen{ID: o.id, Owner: r.Job.ID, Status: pipeline.Pending, Reason: u.verb + " under way"}, true, nil
	case !done || u.verb != verbInsert || !errors.As(err, &failed):
		return pipeline.Seen{}, false, err
	}
	seen, err := o.read(ctx)
	switch {
	case pipeline.Is(err, pipeline.NotFound):
		return p.failedToCome(r, x, o.id, failed), true, nil
	case err != nil:
		return pipeline.Seen{}, false, err
	case seen.Owner != r.Job.ID:
		return p.failedToCome(r, x, o.id, failed), true, nil
	}
	return pipeline.Seen{ID: o.id, Owner: seen.Owner, Status: pipeline.Broken, Reason: failed.Message}, true, nil
}

// absence explains why an object does not show, by its last operation.
func (o clusterObject) absence(ctx context.Context, p *Provider, r *pipeline.Run, x pipeline.Resource, missing error) (pipeline.Seen, error) {
	if rec, ok := r.Object(x.Kind, x.Key); ok && rec.State != job.ObjectCreated {
		return pipeline.Seen{}, missing
	}
	op, err := p.lastOnCluster(ctx, o.id)
	switch {
	case pipeline.Is(err, pipeline.Denied, pipeline.Invalid, pipeline.NotFound):
		// The consistency window decides.
		if pipeline.Is(err, pipeline.Denied) {
			r.Note("why %s does not show was not checked: %v", base(o.id), err)
		}
		return pipeline.Seen{}, missing
	case err != nil:
		return pipeline.Seen{}, err
	case op == nil || clusterVerb(op.OperationType) != verbInsert:
		return pipeline.Seen{}, missing
	case op.Status != operationDone:
		return pipeline.Seen{ID: o.id, Status: pipeline.Pending, Reason: "create " + strings.ToLower(op.Status)}, nil
	}
	var failed *pipeline.CloudError
	if errors.As(clusterOperationError(op), &failed) {
		return p.failedToCome(r, x, o.id, failed), nil
	}
	return pipeline.Seen{}, missing
}

// reason is why an object is broken: what it says itself, or what its last
// operation failed with.
func (o clusterObject) reason(ctx context.Context, p *Provider, said string) string {
	if said != "" {
		return said
	}
	op, err := p.lastOnCluster(ctx, o.id)
	if err != nil || op == nil {
		return "ERROR, and Kubernetes Engine gives no reason"
	}
	var failed *pipeline.CloudError
	if errors.As(clusterOperationError(op), &failed) {
		return failed.Message
	}
	return "ERROR, and operation " + op.Name + " gives no reason"
}

// conditionsText is what the conditions of a cluster or node pool say.
func conditionsText(conditions []*container.StatusCondition, message string) string {
	var words []string
	for _, c := range conditions {
		if about := strings.TrimSpace(c.Message); about != "" {
			words = append(words, strings.TrimPrefix(c.Code+": "+about, ": "))
		}
	}
	if len(words) == 0 {
		return strings.TrimSpace(message)
	}
	return strings.Join(words, "; ")
}
