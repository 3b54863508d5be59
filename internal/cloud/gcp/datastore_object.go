package gcp

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A managedObject is one that Cloud SQL or Memorystore makes for the job: known by
// its name, since these APIs take no token, and made and deleted by operations.
type managedObject struct {
	kind, key string
	id        string // the relative resource name that it has or will have
	name      string
	args      any // what the create says, without secrets
	patience  time.Duration
	service   string

	// read is the object as it is now; the error has class NotFound if there is none.
	read   func(ctx context.Context) (pipeline.Seen, error)
	create func(ctx context.Context) (operation string, err error)
	remove func(ctx context.Context) (operation string, err error)
	// blockers names what keeps a delete from going through; nil if not known.
	blockers func(ctx context.Context, id string) (string, error)
}

// resource is the object as the pipeline makes, checks and removes it.
func (o managedObject) resource(p *Provider, r *pipeline.Run) pipeline.Resource {
	x := pipeline.Resource{Kind: o.kind, Key: o.key, Name: o.name, Args: o.args, Slow: true, Precious: o.key == datastoreKey, Patience: o.patience, Blockers: o.blockers}
	x.Get = func(ctx context.Context, _ string) (pipeline.Seen, error) {
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
		awaitManaged(r, o.id, o.service, op, verbInsert)
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
		awaitManaged(r, id, o.service, op, verbDelete)
		return nil
	}
	return x
}

// underWay looks at the operation that this worker began on the object, before the
// object itself. A create that was accepted and failed leaves the object as FAILED,
// which is the job's own all the same, or leaves nothing (failure kind A7).
func (o managedObject) underWay(ctx context.Context, p *Provider, r *pipeline.Run, x pipeline.Resource) (pipeline.Seen, bool, error) {
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
func (o managedObject) absence(ctx context.Context, p *Provider, r *pipeline.Run, x pipeline.Resource, missing error) (pipeline.Seen, error) {
	if rec, ok := r.Object(x.Kind, x.Key); ok && rec.State != job.ObjectCreated {
		return pipeline.Seen{}, missing
	}
	op, err := p.lastManaged(ctx, o.service, o.id)
	switch {
	case pipeline.Is(err, pipeline.Denied, pipeline.Invalid, pipeline.NotFound):
		// The consistency window decides.
		if pipeline.Is(err, pipeline.Denied) {
			r.Note("why %s does not show was not checked: %v", base(o.id), err)
		}
		return pipeline.Seen{}, missing
	case err != nil:
		return pipeline.Seen{}, err
	case op.verb != verbInsert:
		return pipeline.Seen{}, missing
	case !op.done:
		return pipeline.Seen{ID: o.id, Status: pipeline.Pending, Reason: "create under way"}, nil
	}
	var failed *pipeline.CloudError
	if errors.As(op.failed, &failed) {
		return p.failedToCome(r, x, o.id, failed), nil
	}
	return pipeline.Seen{}, missing
}

// reason is why an object is broken: what it says itself, or what its last
// operation failed with.
func (o managedObject) reason(ctx context.Context, p *Provider, said string) string {
	op, err := p.lastManaged(ctx, o.service, o.id)
	var failed *pipeline.CloudError
	if err == nil && errors.As(op.failed, &failed) {
		return failed.Message
	}
	if said != "" {
		return said
	}
	return "it is FAILED, and " + o.service + " gives no reason"
}

// managedMark stands between the service and the name of an operation of Cloud SQL
// or Memorystore.
const managedMark = "!"

// awaitManaged remembers an operation, as await does for Compute Engine.
func awaitManaged(r *pipeline.Run, id, service, operation, verb string) {
	if operation != "" {
		r.Remember(underwayKey(id), underway{link: service + managedMark + operation, verb: verb})
	}
}

// An outcome is how far an operation is.
type outcome struct {
	verb   string // insert, delete or another
	done   bool
	failed error // nil while it is under way, or if it did what it should
	begun  string
}

// managedOperation reads an operation of one of the services.
func (p *Provider) managedOperation(ctx context.Context, service, name string) (outcome, error) {
	if service == serviceSQL {
		op, err := send(ctx, p.data.sql.Operations.Get(projectOf(name), base(name)))
		if err != nil {
			return outcome{}, err
		}
		return sqlOutcome(op), nil
	}
	op, err := p.longRunning(ctx, service, name)
	if err != nil {
		return outcome{}, err
	}
	return op.outcome(service), nil
}

// lastManaged is the newest operation on an object, whoever began it.
func (p *Provider) lastManaged(ctx context.Context, service, id string) (outcome, error) {
	if service == serviceSQL {
		return p.lastOnInstance(ctx, id)
	}
	all, err := p.longRunningOn(ctx, service)
	if err != nil {
		return outcome{}, err
	}
	var last outcome
	for _, op := range all {
		if o := op.outcome(service); rel(op.Metadata.Target) == id && o.begun >= last.begun {
			last = o
		}
	}
	return last, nil
}

// longRunning is an operation in the common form of newer services
// ("google.longrunning.Operation").
type longRunning struct {
	Name     string `json:"name"`
	Done     bool   `json:"done"`
	Metadata struct {
		Target     string `json:"target"`
		Verb       string `json:"verb"`
		CreateTime string `json:"createTime"`
	} `json:"metadata"`
	Error *struct {
		Code    int64  `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

func (l longRunning) outcome(service string) outcome {
	o := outcome{verb: strings.ToLower(l.Metadata.Verb), done: l.Done, begun: l.Metadata.CreateTime}
	if o.verb == "create" {
		o.verb = verbInsert
	}
	if !l.Done || l.Error == nil {
		return o
	}
	ce := &pipeline.CloudError{Service: service, Op: "instances." + strings.ToLower(l.Metadata.Verb), Message: l.Error.Message, RequestID: l.Name, Sent: true}
	if ce.Message == "" {
		ce.Message = "operation " + base(l.Name) + " failed without a text"
	}
	ce.Class, ce.Code = classOf(ce.Op, 0, ce.Message, []string{rpcCode(l.Error.Code)})
	o.failed = ce
	return o
}
