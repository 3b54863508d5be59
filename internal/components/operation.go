package components

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"helm.sh/helm/v4/pkg/action"
	helmkube "helm.sh/helm/v4/pkg/kube"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/kube"
	"github.com/zopday/provisioner/internal/pipeline"
)

// fieldManager is who the objects' fields are applied as, whatever the binary is
// called: a server-side apply under another name would fight with the one before.
const fieldManager = "zopday"

func init() { helmkube.ManagedFieldsManager = fieldManager }

// How long an operation on a release may take, in real time. A create has two
// minutes; a hook that works longer goes on by itself and is looked at again.
const (
	operationTime = 105 * time.Second
	recordReserve = 20 * time.Second // of it, to store how it ended
)

// revisionsKept is how many revisions of a release its cluster keeps.
const revisionsKept = 10

// An operation is one of Helm's actions on a release. It ends by its own
// deadline; neither cancel nor shutdown reaches into it, as into any create.
type operation struct {
	ctx      context.Context
	cluster  *cluster
	config   *action.Configuration
	at       Place
	values   map[string]any  // for what must not be told of them
	deadline time.Time       // of waits for hooks
	done     map[string]bool // hooks that have done their work in an earlier try of the same
	removing bool
	goneBy   time.Time // until when a removal waits for objects to go
	keepCRDs bool

	mu       sync.Mutex
	failures []error // that Helm swallows
}

// enter takes a place among the operations at work, which bounds the memory that
// charts take. Where there is none the job is parked: a worker is not held, and
// the time of the operation does not run yet.
func (e *Engine) enter(ctx context.Context) (leave func(), err error) {
	select {
	case e.operating <- struct{}{}:
		return func() { <-e.operating }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(2 * time.Second):
		return nil, pipeline.Wait(kube.Pause(e.pace, 3*time.Second), "one of %d releases at work to be done", cap(e.operating))
	}
}

// begin starts an operation. The end function has to be called.
func (e *Engine) begin(ctx context.Context, access cloud.KubeAccess, at Place, values map[string]any) (*operation, func(), error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err // a safe point: nothing new is begun once the job is being cancelled
	}
	ends := time.Now().Add(e.operation)
	if d, ok := ctx.Deadline(); ok && d.Before(ends) {
		ends = d
	}
	octx, cancel := context.WithDeadline(context.WithoutCancel(ctx), ends)
	c, err := e.open(octx, access, at.Namespace)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	o := &operation{ctx: octx, cluster: c, at: at, values: values, deadline: ends.Add(-min(recordReserve, e.operation/4)), done: map[string]bool{}, keepCRDs: true}
	o.config = action.NewConfiguration(action.ConfigurationSetLogger(e.log))
	if err := o.config.Init(&mapped{Getter: c.getter}, at.Namespace, "secret"); err != nil {
		cancel()
		return nil, nil, err
	}
	inner, ok := o.config.KubeClient.(*helmkube.Client)
	if !ok {
		cancel()
		return nil, nil, fmt.Errorf("helm made a client of type %T", o.config.KubeClient)
	}
	o.config.KubeClient = &client{Client: inner, op: o}
	return o, cancel, nil
}

// mapped keeps one mapper of kinds for an operation. Helm asks for it with every
// manifest and hook, and it is made of all that the cluster serves.
type mapped struct {
	*kube.Getter
	once   sync.Once
	mapper meta.RESTMapper
	err    error
}

// ToRESTMapper is the mapper, first made when the chart's kinds are there.
func (m *mapped) ToRESTMapper() (meta.RESTMapper, error) {
	m.once.Do(func() { m.mapper, m.err = m.Getter.ToRESTMapper() })
	return m.mapper, m.err
}

// A client is Helm's client of a cluster, with what it lacks: waits that know
// how Jobs end, kinds that are never deleted, and errors that are not swallowed.
type client struct {
	*helmkube.Client
	op *operation
}

var (
	_ helmkube.Interface            = (*client)(nil)
	_ helmkube.InterfaceWaitOptions = (*client)(nil)
)

// IsReachable is found out by the first call that matters.
func (c *client) IsReachable() error { return nil }

// Build leaves validation to the API server, which does it on every apply: the
// documents it takes on this side are tens of megabytes.
func (c *client) Build(r io.Reader, _ bool) (helmkube.ResourceList, error) {
	out, err := c.Client.Build(r, false)
	if err != nil {
		c.op.note(err)
	}
	return out, err
}

// Create passes over hooks that have done their work already.
func (c *client) Create(resources helmkube.ResourceList, options ...helmkube.ClientCreateOption) (*helmkube.Result, error) {
	if c.op.allDone(resources) {
		return &helmkube.Result{Created: resources}, nil
	}
	return c.Client.Create(resources, options...)
}

// Delete keeps kinds, and with them everything of those kinds that people have
// made; and hooks that have done their work.
func (c *client) Delete(resources helmkube.ResourceList, policy metav1.DeletionPropagation) (*helmkube.Result, []error) {
	var list helmkube.ResourceList
	for _, r := range resources {
		if c.op.keepCRDs && r.Mapping.GroupVersionKind.Kind == "CustomResourceDefinition" || c.op.done[r.Mapping.GroupVersionKind.Kind+"/"+r.Name] {
			continue
		}
		list = append(list, r)
	}
	if len(list) == 0 {
		return &helmkube.Result{}, nil
	}
	out, errs := c.Client.Delete(list, policy)
	c.op.note(errs...)
	return out, errs
}

// Update knows of every object that is there what it was: Helm makes a noise of
// those that the revision before did not have, as after a recovery.
func (c *client) Update(original, target helmkube.ResourceList, options ...helmkube.ClientUpdateOption) (*helmkube.Result, error) {
	for _, t := range target {
		if original.Get(t) == nil {
			same := *t
			original.Append(&same)
		}
	}
	return c.Client.Update(original, target, options...)
}

// note keeps what went wrong: an uninstall says no more than that something did.
func (o *operation) note(errs ...error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failures = append(o.failures, errs...)
}

func (c *client) GetWaiter(s helmkube.WaitStrategy) (helmkube.Waiter, error) {
	return c.GetWaiterWithOptions(s)
}

func (c *client) GetWaiterWithOptions(helmkube.WaitStrategy, ...helmkube.WaitOption) (helmkube.Waiter, error) {
	return &waiter{op: c.op}, nil
}

func (o *operation) allDone(resources helmkube.ResourceList) bool {
	for _, r := range resources {
		if !o.done[r.Mapping.GroupVersionKind.Kind+"/"+r.Name] {
			return false
		}
	}
	return len(resources) > 0
}

// verdict gives an error of one of Helm's actions its meaning. what was being
// done, such as "install".
func (o *operation) verdict(what string, err error) error {
	if err == nil {
		return nil
	}
	var runs *hookRuns
	var hook *hookFailed
	var missing *meta.NoKindMatchError
	var status apierrors.APIStatus
	op := what + " the release " + o.at.ID()
	text := shorten(hide(err.Error(), o.values))
	switch {
	case errors.As(err, &runs):
		return runs
	case errors.As(err, &hook):
		return pipeline.Fatal("hook-failed", fmt.Sprintf("cannot %s: %s", op, shorten(hide(hook.Error(), o.values))),
			"Put right what the message names, then retry.").From(err)
	case errors.As(err, &missing), strings.Contains(err.Error(), "no matches for kind"):
		return pipeline.Fatal("kind-missing", fmt.Sprintf("cannot %s: %s", op, text),
			"Install the component that brings the kind along first, or turn the part that needs it off in the values, then retry.").From(err)
	case strings.Contains(err.Error(), "cannot be imported into the current release"):
		return pipeline.Fatal("name-taken", fmt.Sprintf("cannot %s: %s", op, text),
			"It is somebody else's and was not touched. Remove or rename it, or give the release another name, then retry.").From(err)
	case strings.Contains(err.Error(), "execution error at ("), strings.Contains(err.Error(), "chart requires kubeVersion"):
		return pipeline.Fatal("chart-refused", fmt.Sprintf("cannot %s: %s", op, text), "Put right what the message names, then retry.").From(err)
	case errors.As(err, &status), transport(err):
		out := kube.Classify(op, err)
		var ce *pipeline.CloudError
		if errors.As(out, &ce) {
			ce.Message = shorten(hide(ce.Message, o.values))
		}
		return out
	}
	return &pipeline.CloudError{Class: pipeline.Unknown, Service: "Helm", Op: op, Message: text, Sent: true, Err: err}
}

// transport reports whether a call did not get its answer, or was not let out.
func transport(err error) bool {
	var ce *pipeline.CloudError
	var timeout interface{ Timeout() bool }
	return errors.As(err, &ce) || errors.As(err, &timeout) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
