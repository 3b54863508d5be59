package gcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/api/container/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/pipeline"
)

// clusterParent is where the job's clusters are: in the region, so that the
// control plane has replicas in several zones ("Regional clusters").
func (p *Provider) clusterParent() string {
	return "projects/" + p.project + "/locations/" + p.region
}

// awaitCluster remembers an operation of Kubernetes Engine on a cluster or a node
// pool, as await does for Compute Engine.
func (p *Provider) awaitCluster(r *pipeline.Run, id string, op *container.Operation) {
	if op == nil || op.Name == "" {
		return
	}
	r.Remember(underwayKey(id), underway{link: p.clusterParent() + "/operations/" + base(op.Name), verb: clusterVerb(op.OperationType)})
}

// clusterVerb is an operation's type in the words that those of Compute Engine have.
func clusterVerb(operationType string) string {
	switch {
	case strings.HasPrefix(operationType, "CREATE_"):
		return verbInsert
	case strings.HasPrefix(operationType, "DELETE_"):
		return verbDelete
	}
	return strings.ToLower(operationType)
}

const (
	verbInsert = "insert"
	verbDelete = "delete"
)

// setCluster is set for changes that Kubernetes Engine carries out.
func (p *Provider) setCluster(r *pipeline.Run, id string, call func(context.Context) (*container.Operation, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := p.pending(ctx, r, id); err != nil {
			return err
		}
		op, err := call(ctx)
		if err != nil {
			return inTurn(r, id, err)
		}
		p.awaitCluster(r, id, op)
		return nil
	}
}

// turnPatience is how long another change of a cluster is waited for: a
// control plane's upgrade takes half an hour and more.
const turnPatience = 2 * time.Hour

// inTurn turns the refusal of a change while another one is under way, which may
// be an upgrade that GKE began by itself, into a wait. Past the bound the refusal
// is what it is.
func inTurn(r *pipeline.Run, id string, err error) error {
	key := "turn at " + id
	if !pipeline.Is(err, pipeline.Busy) || r.Mode != pipeline.Apply || r.WaitedFor(key) > turnPatience {
		return err
	}
	var ce *pipeline.CloudError
	errors.As(err, &ce)
	return pipeline.Wait(15*time.Second, "another change of %s to end (%s)", base(id), ce.Message)
}

// clusterOperationError is what an operation failed with, classified as the same
// refusal would be; nil if it is under way or did what it should. Done does not
// mean that it worked, and the text of an error may be empty (failure kinds I5,
// I11).
func clusterOperationError(op *container.Operation) error {
	if op.Status != operationDone || op.Error == nil && op.StatusMessage == "" {
		return nil
	}
	var codes, messages []string
	say := func(text string) {
		if text = strings.TrimSpace(text); text != "" && !slices.Contains(messages, text) {
			messages = append(messages, text)
		}
	}
	for _, c := range slices.Concat(op.ClusterConditions, op.NodepoolConditions) {
		codes = append(codes, cmp.Or(c.Code, c.CanonicalCode))
		say(c.Message)
	}
	if op.Error != nil {
		codes = append(codes, rpcCode(op.Error.Code))
		say(op.Error.Message)
	}
	say(op.StatusMessage)
	if len(messages) == 0 {
		messages = []string{fmt.Sprintf("operation %s (%s) failed without a text", op.Name, strings.Join(slices.Concat([]string{op.OperationType}, codes), ", "))}
	}
	codes = slices.DeleteFunc(codes, func(c string) bool { return c == "" || c == "UNKNOWN" })
	collection := "clusters"
	if strings.Contains(op.TargetLink, "/nodePools/") {
		collection = "nodePools"
	}
	ce := &pipeline.CloudError{
		Service: serviceContainer, Op: collection + "." + clusterVerb(op.OperationType), Message: strings.Join(messages, "; "), RequestID: op.Name, Sent: true,
	}
	ce.Class, ce.Code = classOf(ce.Op, 0, ce.Message, codes)
	return ce
}

// lastOnCluster is the newest operation on a cluster or node pool, whoever began
// it; nil if none is known. Operations name their target by the project's number.
func (p *Provider) lastOnCluster(ctx context.Context, id string) (*container.Operation, error) {
	all, err := lookup.Once(ctx, "cluster operations", func(ctx context.Context) ([]*container.Operation, error) {
		out, err := send(ctx, p.container.Projects.Locations.Operations.List(p.clusterParent()))
		if err != nil {
			return nil, err
		}
		return out.Operations, nil
	})
	if err != nil {
		return nil, err
	}
	_, target, _ := strings.Cut(id, "/clusters/")
	all = slices.DeleteFunc(slices.Clone(all), func(op *container.Operation) bool {
		_, of, ok := strings.Cut(op.TargetLink, "/clusters/")
		return !ok || of != target
	})
	if len(all) == 0 {
		return nil, nil
	}
	return slices.MaxFunc(all, func(a, b *container.Operation) int { return begunAt(a).Compare(begunAt(b)) }), nil
}

func begunAt(op *container.Operation) time.Time {
	t, err := time.Parse(time.RFC3339Nano, op.StartTime)
	if err != nil {
		return time.Time{}
	}
	return t
}
