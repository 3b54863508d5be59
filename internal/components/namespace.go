package components

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/kube"
	"github.com/zopday/provisioner/internal/pipeline"
)

// Namespace is a namespace that the job makes, as an object of the pipeline. Its
// pods are held to the baseline profile by warnings and audit, not by refusal:
// charts that were not written for it would stop working.
func (e *Engine) Namespace(r *pipeline.Run, access cloud.KubeAccess, name string) pipeline.Resource {
	get := func(ctx context.Context, _ string) (pipeline.Seen, error) {
		c, err := e.open(ctx, access, name)
		if err != nil {
			return pipeline.Seen{}, err
		}
		ns, err := c.core.Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return pipeline.Seen{}, kube.Classify("get namespace "+name, err)
		}
		return seeNamespace(ns), nil
	}
	return pipeline.Resource{
		Kind: KindNamespace, Key: name, Name: name, Args: name,
		Get: get,
		Find: func(ctx context.Context) ([]pipeline.Seen, error) {
			s, err := get(ctx, name)
			if pipeline.Is(err, pipeline.NotFound) {
				return nil, nil
			}
			return []pipeline.Seen{s}, err
		},
		Create: func(ctx context.Context, _ string) (pipeline.Seen, error) {
			return e.createNamespace(ctx, r, access, name)
		},
		Tokened: true,
		Delete: func(ctx context.Context, _ string) error {
			c, err := e.open(ctx, access, name)
			if err != nil {
				return err
			}
			return kube.Classify("delete namespace "+name, c.core.Namespaces().Delete(ctx, name, metav1.DeleteOptions{}))
		},
		Slow: true,
	}
}

func seeNamespace(ns *corev1.Namespace) pipeline.Seen {
	seen := pipeline.Seen{ID: ns.Name, Owner: ns.Labels[labelOwner], Status: pipeline.Ready}
	if seen.Owner == "" {
		seen.Owner = pipeline.Unmarked
	}
	if ns.Status.Phase == corev1.NamespaceTerminating {
		seen.Status, seen.Reason = pipeline.Pending, "terminating"
		for _, c := range ns.Status.Conditions {
			if c.Status == corev1.ConditionTrue && c.Message != "" {
				seen.Reason = c.Message
			}
		}
	}
	return seen
}

func (e *Engine) createNamespace(ctx context.Context, r *pipeline.Run, access cloud.KubeAccess, name string) (pipeline.Seen, error) {
	c, err := e.open(ctx, access, name)
	if err != nil {
		return pipeline.Seen{}, err
	}
	labels := maps.Clone(kube.PodSecurity)
	labels[labelOwner], labels["app.kubernetes.io/managed-by"] = r.Job.ID, "zopday"
	ns, err := c.core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		have, gerr := c.core.Namespaces().Get(ctx, name, metav1.GetOptions{})
		if gerr == nil && have.Labels[labelOwner] == r.Job.ID {
			return seeNamespace(have), nil // an earlier create of ours, whose reply was lost
		}
	}
	if err != nil {
		return pipeline.Seen{}, kube.Classify("create namespace "+name, err)
	}
	seen := seeNamespace(ns)
	seen.Status = pipeline.Ready
	return seen, nil
}

// ensureNamespace makes a namespace unless somebody else has.
func (e *Engine) ensureNamespace(ctx context.Context, r *pipeline.Run, access cloud.KubeAccess, name string) error {
	x := e.Namespace(r, access, name)
	rec, known := r.Object(KindNamespace, name)
	if r.Mode == pipeline.Plan || known && rec.State == job.ObjectCreated {
		_, err := r.Ensure(ctx, x)
		return err
	}
	if there, _ := r.Recall("namespace " + name).(bool); there {
		return nil
	}
	seen, err := x.Get(ctx, name)
	switch {
	case pipeline.Is(err, pipeline.NotFound):
	case err != nil:
		return err
	case seen.Status == pipeline.Pending:
		return pipeline.Wait(kube.Pause(e.pace, 2*time.Second), "the namespace %s to be gone, so that it can be made anew (%s)", name, seen.Reason)
	case seen.Owner != r.Job.ID:
		r.Remember("namespace "+name, true)
		return nil
	}
	if r.Mode == pipeline.Verify {
		return nil // what is missing with it is told by the release
	}
	_, err = r.Ensure(ctx, x)
	var fatal *pipeline.FatalError
	if errors.As(err, &fatal) && fatal.Problem.Code == "name-taken" {
		return nil // another job was faster; it is as good as ours
	}
	return err
}

// removeNamespace removes a namespace that this job made, once nothing of it or
// of anybody else is in it.
func (e *Engine) removeNamespace(ctx context.Context, r *pipeline.Run, access cloud.KubeAccess, name string) error {
	rec, known := r.Object(KindNamespace, name)
	if !known || rec.State == job.ObjectRemoved || rec.State == job.ObjectAbsent || r.Mode != pipeline.Apply {
		return nil
	}
	for _, o := range r.Objects() {
		if o.Kind == KindRelease && strings.HasPrefix(o.ID, name+"/") && o.State == job.ObjectCreated {
			return nil // the last one takes the namespace along
		}
	}
	if rec.Reason == "" && rec.State == job.ObjectCreated {
		left, err := e.contents(ctx, access, name)
		if err != nil && !pipeline.Is(err, pipeline.NotFound) {
			return err
		}
		if len(left) > 0 {
			r.Note("the namespace %s stays: it holds %s", name, firstFew(left))
			return r.Keep(ctx, KindNamespace, name, "it holds "+firstFew(left))
		}
	}
	return r.Remove(ctx, e.Namespace(r, access, name))
}

// ordinary are things that every namespace has, or that come and go by themselves.
var ordinary = map[string]bool{
	"events": true, "endpoints": true, "endpointslices": true, "leases": true, "controllerrevisions": true, "bindings": true,
	"ConfigMap kube-root-ca.crt": true, "ServiceAccount default": true, "ResourceQuota " + kube.TeardownQuota: true,
}

// contents lists what is in a namespace that is not gone with something else.
func (e *Engine) contents(ctx context.Context, access cloud.KubeAccess, name string) ([]string, error) {
	c, err := e.open(ctx, access, name)
	if err != nil {
		return nil, err
	}
	lists, err := c.disco.ServerPreferredNamespacedResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, kube.Classify("list kinds", err)
	}
	var out []string
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil || gv.Group == "metrics.k8s.io" {
			continue
		}
		for _, k := range l.APIResources {
			if ordinary[k.Name] || !slices.Contains(k.Verbs, "list") || !slices.Contains(k.Verbs, "delete") {
				continue
			}
			items, err := c.meta.Resource(gv.WithResource(k.Name)).Namespace(name).List(ctx, metav1.ListOptions{Limit: 20})
			if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
				continue
			}
			if err != nil {
				return nil, kube.Classify("list "+k.Name, err)
			}
			for _, o := range items.Items {
				if len(o.OwnerReferences) == 0 && o.DeletionTimestamp == nil && !ordinary[k.Kind+" "+o.Name] {
					out = append(out, fmt.Sprintf("%s %s", k.Kind, o.Name))
				}
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
