package components

import (
	"context"
	"errors"
	"fmt"
	"time"

	helmkube "helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/zopday/provisioner/internal/kube"
)

// hookRuns is a hook that still works when an operation's time is over.
type hookRuns struct{ what string }

func (e *hookRuns) Error() string { return "hook " + e.what + " still works" }

// hookFailed is a hook that did not do its work.
type hookFailed struct{ what string }

func (e *hookFailed) Error() string { return "hook " + e.what }

// A waiter waits for hooks alone: for the rest, and for what a removal leaves,
// the objects are read by whoever asked for the operation.
type waiter struct{ op *operation }

func (w *waiter) Wait(helmkube.ResourceList, time.Duration) error         { return nil }
func (w *waiter) WaitWithJobs(helmkube.ResourceList, time.Duration) error { return nil }

// WaitForDelete waits until a hook of an earlier time is gone, so that the next
// one of its name is not taken for it.
func (w *waiter) WaitForDelete(list helmkube.ResourceList, _ time.Duration) error {
	if w.op.removing {
		return nil // read back afterwards, object by object
	}
	for _, r := range list {
		if w.op.done[r.Mapping.GroupVersionKind.Kind+"/"+r.Name] {
			continue
		}
		o := object(r)
		err := w.op.poll(func() (bool, error) {
			live, err := w.op.cluster.get(w.op.ctx, o)
			return live == nil, err
		})
		if err != nil {
			return fmt.Errorf("%s of an earlier time is not gone: %w", name(o), err)
		}
	}
	return nil
}

// WatchUntilReady waits for Jobs and Pods to end.
func (w *waiter) WatchUntilReady(list helmkube.ResourceList, _ time.Duration) error {
	for _, r := range list {
		kind := r.Mapping.GroupVersionKind.Kind
		if kind != "Job" && kind != "Pod" || w.op.done[kind+"/"+r.Name] {
			continue
		}
		if err := w.op.awaitHook(object(r)); err != nil {
			return err
		}
	}
	return nil
}

func object(r *resource.Info) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	if u, ok := r.Object.(*unstructured.Unstructured); ok {
		o = u.DeepCopy()
	}
	o.SetGroupVersionKind(r.Mapping.GroupVersionKind)
	o.SetNamespace(r.Namespace)
	o.SetName(r.Name)
	return o
}

// poll asks again and again until something is so, or the time for it is over.
func (o *operation) poll(so func() (bool, error)) error {
	for pause := 200 * time.Millisecond; ; pause = min(pause*3/2, 3*time.Second) {
		ok, err := so()
		if ok || err != nil {
			return err
		}
		if time.Now().Add(pause).After(o.deadline) {
			return context.DeadlineExceeded
		}
		select {
		case <-o.ctx.Done():
			return o.ctx.Err()
		case <-time.After(pause):
		}
	}
}

// awaitHook waits for a hook to end. One that is removed meanwhile has ended, if
// its end removes it; how it ended is then in its events (failure N8).
func (o *operation) awaitHook(hook *unstructured.Unstructured) error {
	why := ""
	err := o.poll(func() (bool, error) {
		live, err := o.cluster.get(o.ctx, hook)
		if err != nil {
			return false, err
		}
		if live == nil || hook.GetUID() != "" && live.GetUID() != hook.GetUID() {
			return true, o.cluster.outcome(o.ctx, hook)
		}
		v, err := o.cluster.judgeHook(o.ctx, live)
		if err == nil && v.failed {
			err = &hookFailed{name(hook) + " " + shorten(v.why)}
		}
		why = v.why
		return v.ready, err
	})
	if errors.Is(err, context.DeadlineExceeded) && o.ctx.Err() == nil {
		return &hookRuns{name(hook) + " (" + shorten(why) + ")"}
	}
	return err
}

// judgeHook says whether a hook has ended. A Pod has to end, not to be ready.
func (c *cluster) judgeHook(ctx context.Context, o *unstructured.Unstructured) (judgement, error) {
	v, err := c.judge(ctx, o)
	if phase, _, _ := unstructured.NestedString(o.Object, "status", "phase"); o.GetKind() == "Pod" && v.ready && phase != "Succeeded" {
		return notYet("runs"), err
	}
	return v, err
}

// outcome is how a hook ended that is gone; nil: well.
func (c *cluster) outcome(ctx context.Context, hook *unstructured.Unstructured) error {
	events, err := c.core.Events(hook.GetNamespace()).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + hook.GetName()})
	if err != nil {
		return kube.Classify("list events", err)
	}
	for _, e := range events.Items {
		if uid := hook.GetUID(); uid != "" && e.InvolvedObject.UID != uid || e.InvolvedObject.Kind != hook.GetKind() {
			continue
		}
		switch e.Reason {
		case "Completed":
			return nil
		case "BackoffLimitExceeded", "DeadlineExceeded", "PodFailurePolicy", "FailedIndexes", "MaxFailedIndexesExceeded":
			return &hookFailed{name(hook) + " failed: " + e.Reason + " " + e.Message}
		}
	}
	if endsByItself(hook) {
		return nil // only what has ended is removed so, and nothing tells that it failed
	}
	return &hookFailed{name(hook) + " was deleted while it worked"}
}

// hookStates is where the hooks of a release stand that its last operation ran.
type hookStates struct {
	active string          // one that still works, and what it does
	done   map[string]bool // those that did their work: kind/name
	failed string          // one that failed
}

// first are those that did their work before the objects were made.
func (h *hookStates) first(r *release.Release) map[string]bool {
	out := map[string]bool{}
	for _, hook := range r.Hooks {
		before, after := false, false
		for _, e := range hook.Events {
			before = before || e == release.HookPreInstall || e == release.HookPreUpgrade
			after = after || e == release.HookPostInstall || e == release.HookPostUpgrade
		}
		if key := hook.Kind + "/" + hook.Name; before && !after && h.done[key] && (hook.Kind == "Job" || hook.Kind == "Pod") {
			out[key] = true
		}
	}
	return out
}

// hooksOf reads the Jobs and Pods of a release's hooks that have been started.
func (c *cluster) hooksOf(ctx context.Context, r *release.Release) (*hookStates, error) {
	out := &hookStates{done: map[string]bool{}}
	for _, h := range r.Hooks {
		if h.LastRun.StartedAt.IsZero() {
			continue
		}
		key := h.Kind + "/" + h.Name
		if h.Kind != "Job" && h.Kind != "Pod" {
			out.done[key] = h.LastRun.Phase != release.HookPhaseFailed
			continue
		}
		objects, err := parseManifest(h.Manifest, r.Namespace)
		if err != nil || len(objects) != 1 {
			continue
		}
		live, err := c.get(ctx, objects[0])
		if err != nil {
			return nil, err
		}
		switch {
		case live == nil:
			out.done[key] = h.LastRun.Phase == release.HookPhaseSucceeded
			continue
		case live.GetCreationTimestamp().Add(2 * time.Second).Before(h.LastRun.StartedAt):
			continue // the one of an earlier operation
		}
		v, err := c.judgeHook(ctx, live)
		switch {
		case err != nil:
			return nil, err
		case v.failed:
			out.failed = name(live) + " " + shorten(v.why)
		case v.ready:
			out.done[key] = true
		case out.active == "":
			out.active = name(live) + ": " + shorten(v.why)
		}
	}
	return out, nil
}

// removeHooks deletes the Jobs and Pods that a release's hooks left, so that none
// of an abandoned operation is taken for one of the next.
func (c *cluster) removeHooks(ctx context.Context, r *release.Release) error {
	for _, h := range r.Hooks {
		if h.Kind != "Job" && h.Kind != "Pod" {
			continue
		}
		objects, err := parseManifest(h.Manifest, r.Namespace)
		if err != nil {
			continue
		}
		for _, o := range objects {
			if err := c.delete(ctx, o, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// delete deletes an object, with what depends on it; uid, if given, says which.
func (c *cluster) delete(ctx context.Context, o *unstructured.Unstructured, uid types.UID) error {
	client, err := c.at(o)
	if err != nil || client == nil {
		return err
	}
	background := metav1.DeletePropagationBackground
	opts := metav1.DeleteOptions{PropagationPolicy: &background}
	if uid != "" {
		opts.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	return notFoundIsFine(kube.Classify("delete "+name(o), client.Delete(ctx, o.GetName(), opts)))
}
