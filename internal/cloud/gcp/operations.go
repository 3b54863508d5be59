package gcp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// An underway is the operation that was begun last on an object, as this worker
// remembers it. A crash forgets it: then the object's own operations are listed
// where its absence has to be explained, and a change that comes too early is
// refused as busy.
type underway struct {
	link string // of the operation
	verb string // insert, delete, patch, …
}

func underwayKey(id string) string { return "operation on " + id }

// await remembers an operation on an object: looking at the object looks at the
// operation until it is done. One that was never begun is no operation.
func (p *Provider) await(r *pipeline.Run, id string, op *compute.Operation) {
	if op == nil || op.SelfLink == "" && op.Name == "" {
		return
	}
	link := rel(op.SelfLink)
	if link == "" || link == op.SelfLink && !strings.HasPrefix(link, "projects/") {
		link = operationLink(id, op.Name)
	}
	r.Remember(underwayKey(id), underway{link: link, verb: op.OperationType})
}

// operationLink is where the operations on an object are: in its own scope.
func operationLink(id, name string) string {
	scope := id[:strings.LastIndexByte(id, '/')]
	return scope[:strings.LastIndexByte(scope, '/')] + "/operations/" + name
}

// begun is the operation that this worker began on an object and has not seen done.
func begun(r *pipeline.Run, id string) (underway, bool) {
	u, ok := r.Recall(underwayKey(id)).(underway)
	return u, ok && u.link != ""
}

func forget(r *pipeline.Run, id string) { r.Remember(underwayKey(id), nil) }

// outcome reads an operation that was begun on an object. Done is reported once,
// with its error if it failed; what is still running is not an error.
func (p *Provider) outcome(ctx context.Context, r *pipeline.Run, id string, u underway) (done bool, err error) {
	done, failed, err := p.carriedOut(ctx, u.link)
	switch {
	case pipeline.Is(err, pipeline.NotFound):
		forget(r, id) // operations are kept for two weeks: this one never was
		return true, nil
	case err != nil:
		return false, err
	case !done:
		return false, nil
	}
	forget(r, id)
	return true, failed
}

// carriedOut reads an operation of Compute Engine or of Kubernetes Engine:
// whether it is done, and what it failed with.
func (p *Provider) carriedOut(ctx context.Context, link string) (done bool, failed, err error) {
	if service, name, ok := strings.Cut(link, managedMark); ok {
		op, err := p.managedOperation(ctx, service, name)
		return op.done, op.failed, err
	}
	if part(link, "locations") != "" {
		op, err := send(ctx, p.container.Projects.Locations.Operations.Get(link))
		if err != nil {
			return false, nil, err
		}
		return op.Status == operationDone, clusterOperationError(op), nil
	}
	op, err := p.readOperation(ctx, link)
	if err != nil {
		return false, nil, err
	}
	return op.Status == operationDone, operationError(op), nil
}

// operationDone is the status of an operation that has ended, well or not.
const operationDone = "DONE"

// pending waits for the operation that was begun last on an object; nil once it
// is done, or its error.
func (p *Provider) pending(ctx context.Context, r *pipeline.Run, id string) error {
	u, ok := begun(r, id)
	if !ok || r.Mode != pipeline.Apply {
		return nil
	}
	done, err := p.outcome(ctx, r, id, u)
	if err != nil || done {
		return err
	}
	often := 2 * time.Second
	if part(u.link, "locations") != "" {
		often = 5 * time.Second // changes of a cluster take a minute and more
	}
	return pipeline.Wait(often, "%s of %s to be carried out", u.verb, base(id))
}

// set is how an aspect is put right by a call that answers with an operation on
// the object. What is still under way on it is waited for first: most objects
// take one change at a time.
func (p *Provider) set(r *pipeline.Run, id string, call func(context.Context) (*compute.Operation, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := p.pending(ctx, r, id); err != nil {
			return err
		}
		op, err := call(ctx)
		if err != nil {
			return err
		}
		p.await(r, id, op)
		return nil
	}
}

// readOperation reads an operation in its own scope.
func (p *Provider) readOperation(ctx context.Context, link string) (*compute.Operation, error) {
	project, name := projectOf(link), base(link)
	switch {
	case zoneOf(link) != "":
		return send(ctx, p.compute.ZoneOperations.Get(project, zoneOf(link), name))
	case regionOf(link) != "":
		return send(ctx, p.compute.RegionOperations.Get(project, regionOf(link), name))
	}
	return send(ctx, p.compute.GlobalOperations.Get(project, name))
}

// lastOn is the newest operation of an object, whoever began it; nil if none is
// known. It explains why something is not there that was asked for.
func (p *Provider) lastOn(ctx context.Context, id string) (*compute.Operation, error) {
	filter := fmt.Sprintf("targetLink eq %q", ".*/"+id)
	project, region, zone := projectOf(id), regionOf(id), zoneOf(id)
	all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]*compute.Operation, *string, error) {
		var out *compute.OperationList
		var err error
		switch {
		case zone != "":
			out, err = send(ctx, p.compute.ZoneOperations.List(project, zone).Filter(filter).PageToken(text(token)))
		case region != "":
			out, err = send(ctx, p.compute.RegionOperations.List(project, region).Filter(filter).PageToken(text(token)))
		default:
			out, err = send(ctx, p.compute.GlobalOperations.List(project).Filter(filter).PageToken(text(token)))
		}
		if err != nil {
			return nil, nil, err
		}
		return out.Items, &out.NextPageToken, nil
	})
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(op *compute.Operation) bool {
		return rel(op.TargetLink) != id
	})
	if len(all) == 0 {
		return nil, nil
	}
	return slices.MaxFunc(all, func(a, b *compute.Operation) int { return insertedAt(a).Compare(insertedAt(b)) }), nil
}

// insertedAt is when an operation was asked for; times differ in zone and digits.
func insertedAt(op *compute.Operation) time.Time {
	t, err := time.Parse(time.RFC3339Nano, op.InsertTime)
	if err != nil {
		return time.Time{}
	}
	return t
}

// operationError is what an operation failed with, classified as the same
// refusal would be; nil if it is under way or did what it should.
func operationError(op *compute.Operation) error {
	if op.Status != operationDone || op.Error == nil || len(op.Error.Errors) == 0 {
		return nil
	}
	var messages []string
	var codes []string
	for _, e := range op.Error.Errors {
		if e.Message != "" && !slices.Contains(messages, e.Message) {
			messages = append(messages, e.Message)
		}
		codes = append(codes, e.Code)
	}
	id := rel(op.TargetLink)
	collection, _, _ := target(serviceCompute, id)
	name := collection + "." + op.OperationType
	ce := &pipeline.CloudError{
		Service: serviceCompute, Op: name, Message: strings.Join(messages, "; "), RequestID: op.Name, Sent: true,
	}
	ce.Class, ce.Code = classOf(name, int(op.HttpErrorStatusCode), ce.Message, codes)
	return ce
}

// requestID is the pipeline's token as the UUID that a request is known again by
// for an hour: a create that is repeated with it gives the first one's operation
// ("Idempotent requests" of each insert method).
func requestID(token string) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, []byte("zopday:"+token)).String()
}

// ensure is Run.Ensure for objects that an operation makes. An operation that
// was accepted and failed is the create's error, come late: the object is not
// there, its row is free again under a new token, and what follows is what would
// have followed on a refusal. After several such failures the job stops.
func (p *Provider) ensure(ctx context.Context, r *pipeline.Run, x pipeline.Resource) (string, error) {
	id, err := r.Ensure(ctx, x)
	if err != nil {
		return id, p.lateFailure(r, x, err)
	}
	if _, ok := begun(r, id); !ok || r.Mode != pipeline.Apply {
		return id, nil
	}
	// Something was set just now: it counts once the operation is done and the
	// object shows it.
	if err := p.pending(ctx, r, id); err != nil {
		return id, err
	}
	key := "sets of " + x.Kind + " " + x.Key
	n, _ := r.Recall(key).(int)
	most := setsTolerated
	if x.Kind == kindCluster || x.Kind == kindNodePool {
		most = len(clusterSettings) + setsTolerated // one field at a time
	}
	if n++; n > most {
		return id, pipeline.Fatal("change-lost", fmt.Sprintf("%s: the cloud acknowledges a change and does not keep it", x),
			"Look at it in the cloud's console, then retry.")
	}
	r.Remember(key, n)
	r.Unsettle()
	return id, pipeline.Wait(time.Second, "%s to show what was set", x)
}

const (
	setsTolerated     = 6
	failuresTolerated = 5
)

func failureKey(x pipeline.Resource) string { return "failed operation of " + x.Kind + " " + x.Key }

// lateFailure is the operation's own error in place of the pipeline's word for an
// object that ended by itself.
func (p *Provider) lateFailure(r *pipeline.Run, x pipeline.Resource, err error) error {
	var fatal *pipeline.FatalError
	ce, ok := r.Recall(failureKey(x)).(*pipeline.CloudError)
	if !ok || ce == nil || !errors.As(err, &fatal) || fatal.Problem.Code != "object-ended" {
		return explained(err)
	}
	r.Remember(failureKey(x), (*pipeline.CloudError)(nil))
	if ce.Class == pipeline.Capacity {
		return ce // who asks for machines looks for them elsewhere, and knows for how long
	}
	key := "failures of " + x.Kind + " " + x.Key
	n, _ := r.Recall(key).(int)
	r.Remember(key, n+1)
	if ce.Class == pipeline.Denied {
		return explained(ce)
	}
	if n >= failuresTolerated {
		d := pipeline.Judge(ce, 1000) // its budget is spent: what it stops with
		d.Problem.Message = fmt.Sprintf("%s; made anew %d times", ce.Error(), n)
		return &pipeline.FatalError{Problem: d.Problem, Cause: ce}
	}
	return ce
}

// absence explains why an object does not show. Still being made: pending. Its
// create failed: gone, with the operation's reason. Otherwise not-found is the
// answer.
func (p *Provider) absence(ctx context.Context, r *pipeline.Run, x pipeline.Resource, id string, missing error) (pipeline.Seen, error) {
	if rec, ok := r.Object(x.Kind, x.Key); ok && rec.State != job.ObjectCreated {
		return pipeline.Seen{}, missing
	}
	op, err := lookup.Once(ctx, "last operation on "+id, func(ctx context.Context) (*compute.Operation, error) { return p.lastOn(ctx, id) })
	switch {
	case pipeline.Is(err, pipeline.Denied, pipeline.Invalid):
		// The consistency window decides.
		if pipeline.Is(err, pipeline.Denied) {
			r.Note("why %s does not show was not checked: %v", base(id), err)
		}
		return pipeline.Seen{}, missing
	case err != nil:
		return pipeline.Seen{}, err
	case op == nil || op.OperationType == "delete":
		return pipeline.Seen{}, missing
	case op.Status != operationDone:
		return pipeline.Seen{ID: id, Status: pipeline.Pending, Reason: op.OperationType + " " + strings.ToLower(op.Status)}, nil
	}
	var failed *pipeline.CloudError
	if op.OperationType == "insert" && errors.As(operationError(op), &failed) {
		return p.failedToCome(r, x, id, failed), nil
	}
	return pipeline.Seen{}, missing
}

// failedToCome is an object whose create was accepted and failed.
func (p *Provider) failedToCome(r *pipeline.Run, x pipeline.Resource, id string, failed *pipeline.CloudError) pipeline.Seen {
	r.Remember(failureKey(x), failed)
	return pipeline.Seen{ID: id, Status: pipeline.Gone, Reason: failed.Message}
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
