package gcp

import (
	"context"
	"strings"

	"google.golang.org/api/sqladmin/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/pipeline"
)

// sqlOutcome is how far an operation of Cloud SQL is. Done does not mean that it
// worked (failure kind I5).
func sqlOutcome(op *sqladmin.Operation) outcome {
	o := outcome{verb: sqlVerb(op.OperationType), done: op.Status == operationDone, begun: op.InsertTime}
	if o.done {
		o.failed = sqlOperationError(op)
	}
	return o
}

// sqlVerb is an operation's type in the words that those of Compute Engine have.
func sqlVerb(operationType string) string {
	switch operationType {
	case "CREATE":
		return verbInsert
	case "DELETE":
		return verbDelete
	}
	return strings.ToLower(operationType)
}

// sqlOperationError is what an operation failed with, classified as the same
// refusal would be; nil if it did what it should.
func sqlOperationError(op *sqladmin.Operation) error {
	if op.Error == nil || len(op.Error.Errors) == 0 {
		return nil
	}
	var codes, messages []string
	for _, e := range op.Error.Errors {
		codes = append(codes, e.Code)
		if e.Message != "" {
			messages = append(messages, e.Message)
		}
	}
	collection, verb := "instances", sqlVerb(op.OperationType)
	if kind, what, ok := strings.Cut(op.OperationType, "_"); ok && (what == "USER" || what == "DATABASE") {
		collection, verb = strings.ToLower(what)+"s", map[string]string{"CREATE": verbInsert}[kind]
		verb = or(verb, strings.ToLower(kind))
	}
	ce := &pipeline.CloudError{Service: serviceSQL, Op: collection + "." + verb, Message: strings.Join(messages, "; "), RequestID: op.Name, Sent: true}
	if ce.Message == "" {
		ce.Message = "operation " + op.Name + " (" + op.OperationType + ") failed without a text"
	}
	ce.Class, ce.Code = classOf(ce.Op, 0, ce.Message, codes)
	return ce
}

// sqlOperationName is how an operation is remembered.
func (p *Provider) sqlOperationName(op *sqladmin.Operation) string {
	if op == nil || op.Name == "" {
		return ""
	}
	return "projects/" + p.project + "/operations/" + op.Name
}

// lastOnInstance is the newest operation that made or removed an instance.
func (p *Provider) lastOnInstance(ctx context.Context, id string) (outcome, error) {
	all, err := lookup.Once(ctx, "operations on "+id, func(ctx context.Context) ([]*sqladmin.Operation, error) {
		return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]*sqladmin.Operation, *string, error) {
			out, err := send(ctx, p.data.sql.Operations.List(projectOf(id)).Instance(base(id)).MaxResults(100).PageToken(text(token)))
			if err != nil {
				return nil, nil, err
			}
			return out.Items, &out.NextPageToken, nil
		})
	})
	if err != nil {
		return outcome{}, err
	}
	var last outcome
	for _, op := range all {
		if o := sqlOutcome(op); (o.verb == verbInsert || o.verb == verbDelete) && o.begun >= last.begun {
			last = o
		}
	}
	return last, nil
}
