package components

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/action"
	helmkube "helm.sh/helm/v4/pkg/kube"
	rcommon "helm.sh/helm/v4/pkg/release/common"
	"helm.sh/helm/v4/pkg/storage/driver"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/pipeline"
)

// Of an operation's time, what a removal waits for hooks before the objects go,
// and for the objects to be gone before the job is parked.
const (
	hooksBeforeRemoval = 45 * time.Second
	goneWithin         = 12 * time.Second
)

// Removal is a release to be removed, for the run's Remove. It needs no chart:
// what there is of the release is stored in its cluster.
func (e *Engine) Removal(r *pipeline.Run, access cloud.KubeAccess, at Place) pipeline.Resource {
	look := func(ctx context.Context) (pipeline.Seen, error) { return e.lookAtRemoval(ctx, access, at) }
	return pipeline.Resource{
		Kind: KindRelease, Key: at.Release, Name: at.ID(),
		Get: func(ctx context.Context, _ string) (pipeline.Seen, error) { return look(ctx) },
		Find: func(ctx context.Context) ([]pipeline.Seen, error) {
			s, err := look(ctx)
			if pipeline.Is(err, pipeline.NotFound) {
				return nil, nil
			}
			return []pipeline.Seen{s}, err
		},
		Delete:   func(ctx context.Context, _ string) error { return e.delete(ctx, r, access, at) },
		Blockers: func(ctx context.Context, _ string) (string, error) { return e.blockers(ctx, access, at) },
	}
}

// lookAtRemoval is a release as a removal sees it: it is there as long as its
// record is, and its record as long as any of its objects.
func (e *Engine) lookAtRemoval(ctx context.Context, access cloud.KubeAccess, at Place) (pipeline.Seen, error) {
	c, err := e.open(ctx, access, at.Namespace)
	if err != nil {
		return pipeline.Seen{}, err
	}
	rec, err := c.record(ctx, at)
	if err != nil {
		return pipeline.Seen{}, err
	}
	if rec == nil {
		return pipeline.Seen{}, noRelease(at)
	}
	seen := pipeline.Seen{ID: at.ID(), Owner: rec.owner, Status: pipeline.Ready, Reason: string(rec.last.Info.Status)}
	if rec.last.Info.Status == rcommon.StatusUninstalled {
		objects, err := objectsOf(rec, at)
		if err != nil {
			return seen, err
		}
		rest, err := c.remaining(ctx, objects, at)
		if err != nil {
			return seen, err
		}
		seen.Status, seen.Reason = pipeline.Pending, "its record is left"
		if len(rest) > 0 {
			seen.Reason = describeLeft(rest)
		}
	}
	return seen, nil
}

// remaining are those objects of a release that are still there. Kinds, and what
// the chart says to keep, stay by design; what belongs to another release by now
// is no longer this one's.
func (c *cluster) remaining(ctx context.Context, objects []*unstructured.Unstructured, at Place) ([]*unstructured.Unstructured, error) {
	live, err := c.readAll(ctx, objects)
	if err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for i, l := range live {
		switch {
		case l == nil, !ofRelease(l, at):
		case l.GetKind() == "CustomResourceDefinition":
		case keeps(l), keeps(objects[i]):
		default:
			out = append(out, l)
		}
	}
	return out, nil
}

func keeps(o *unstructured.Unstructured) bool {
	return strings.EqualFold(strings.TrimSpace(o.GetAnnotations()[helmkube.ResourcePolicyAnno]), helmkube.KeepPolicy)
}

// describeLeft names what is left, with what holds it.
func describeLeft(rest []*unstructured.Unstructured) string {
	var names []string
	for _, o := range rest {
		n := name(o)
		switch {
		case o.GetDeletionTimestamp() == nil:
			n += " (not being deleted)"
		case len(o.GetFinalizers()) > 0:
			n += " (held by the finalizer " + strings.Join(o.GetFinalizers(), ", ") + ")"
		}
		names = append(names, n)
	}
	return firstFew(names) + " still there"
}

// delete removes a release: its objects, then, once none of them is left, its
// records. It may be asked for again at any point.
func (e *Engine) delete(ctx context.Context, r *pipeline.Run, access cloud.KubeAccess, at Place) error {
	o, end, err := e.begin(ctx, access, at, nil)
	if err != nil {
		return err
	}
	defer end()
	rec, err := o.cluster.record(o.ctx, at)
	if err != nil {
		return err
	}
	if rec == nil {
		return noRelease(at)
	}
	if rec.owner != r.Job.ID {
		return pipeline.Fatal("not-ours", fmt.Sprintf("the release %s now carries the mark of %s, so it was not touched", at.ID(), rec.owner), "Remove it by hand if it is to go.")
	}
	o.values = rec.last.Config
	left, err := o.uninstall(rec, true)
	if err != nil || left != "" {
		return err
	}
	if err := o.cluster.removeHooks(o.ctx, rec.last); err != nil {
		return err
	}
	return o.purge(at)
}

// blockers names the objects of a release that do not go.
func (e *Engine) blockers(ctx context.Context, access cloud.KubeAccess, at Place) (string, error) {
	seen, err := e.lookAtRemoval(ctx, access, at)
	if pipeline.Is(err, pipeline.NotFound) || err == nil && seen.Status != pipeline.Pending {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return seen.Reason + "; if what works on a finalizer is gone, take the finalizer off", nil
}

// runUninstall is Helm's uninstall, which keeps the record. errHooks: hooks did
// not do their work, and nothing was removed.
func (o *operation) runUninstall(hooks bool) error {
	was := o.deadline
	if until := time.Now().Add(hooksBeforeRemoval); until.Before(o.deadline) {
		o.deadline = until
	}
	defer func() { o.deadline = was }()
	un := action.NewUninstall(o.config)
	un.DisableHooks, un.KeepHistory, un.DeletionPropagation = !hooks, true, "background"
	un.Timeout, un.WaitStrategy = longest, helmkube.HookOnlyStrategy
	_, err := un.Run(o.at.Release)
	var failed *hookFailed
	var runs *hookRuns
	switch {
	case errors.Is(err, driver.ErrReleaseNotFound):
		return nil // somebody was faster
	case errors.As(err, &failed), errors.As(err, &runs):
		return fmt.Errorf("%w: %w", errHooks, err)
	case err != nil:
		return o.verdict("uninstall", o.describe(err))
	}
	return nil
}

// pauseForGone waits a moment for objects to go; false: it has been long enough.
func (o *operation) pauseForGone() bool {
	if o.goneBy.IsZero() {
		o.goneBy = time.Now().Add(goneWithin)
	}
	if time.Now().After(o.goneBy) || o.ctx.Err() != nil {
		return false
	}
	select {
	case <-o.ctx.Done():
		return false
	case <-time.After(500 * time.Millisecond):
		return true
	}
}

// Remove removes a release and everything of it; then its namespace, if this job
// made it and nobody else has anything in it.
func (e *Engine) Remove(ctx context.Context, r *pipeline.Run, access cloud.KubeAccess, at Place) error {
	if err := r.Remove(ctx, e.Removal(r, access, at)); err != nil {
		return err
	}
	return e.removeNamespace(ctx, r, access, at.Namespace)
}
