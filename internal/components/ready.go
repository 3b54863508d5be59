package components

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A survey is what became of a release's objects.
type survey struct {
	missing []string // those that are not there
	waiting string   // the first that is not ready, and why
	failed  string   // one that will never be, and why
	live    []*unstructured.Unstructured
}

// survey reads every object of a release. Helm's word counts for nothing: its
// waits know neither load balancers nor Jobs that end, and can end early.
func (c *cluster) survey(ctx context.Context, objects []*unstructured.Unstructured) (*survey, error) {
	live, err := c.readAll(ctx, objects)
	if err != nil {
		return nil, err
	}
	out := &survey{live: live}
	for i, o := range live {
		switch {
		case o == nil && endsByItself(objects[i]):
		case o == nil && objects[i].GetName() == "": // its name was made up by the API server
		case o == nil:
			out.missing = append(out.missing, name(objects[i]))
		default:
			v, err := c.judge(ctx, o)
			if err != nil {
				return nil, err
			}
			text := ""
			if v.why != "" {
				text = name(o) + ": " + shorten(v.why)
			}
			if v.failed && out.failed == "" {
				out.failed = text
			}
			if !v.ready && out.waiting == "" {
				out.waiting = text
			}
		}
	}
	return out, nil
}

// endsByItself reports whether an object may be gone because it is done: a Job
// that is removed some time after its end (failure N7).
func endsByItself(o *unstructured.Unstructured) bool {
	_, ttl, err := unstructured.NestedFieldNoCopy(o.Object, "spec", "ttlSecondsAfterFinished")
	return err == nil && ttl && o.GroupVersionKind().GroupKind() == schema.GroupKind{Group: "batch", Kind: "Job"}
}

// shorten keeps a reason to a line's length.
func shorten(s string) string {
	const most = 300
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// A judgement says whether an object does what it is there for.
type judgement struct {
	ready  bool
	failed bool // and never will
	why    string
}

var good = judgement{ready: true}

func notYet(format string, args ...any) judgement {
	return judgement{why: fmt.Sprintf(format, args...)}
}

// judge looks at an object by the rules of its kind. One whose kind has no rule
// does what it is there for by being there.
func (c *cluster) judge(ctx context.Context, o *unstructured.Unstructured) (judgement, error) {
	if o.GetDeletionTimestamp() != nil {
		return notYet("is being deleted"), nil
	}
	gvk := o.GroupVersionKind()
	var v judgement
	var selector *metav1.LabelSelector
	var err error
	switch gvk.Group + "/" + gvk.Kind {
	case "apps/Deployment":
		v, selector, err = typed(o, deployment)
	case "apps/StatefulSet":
		v, selector, err = typed(o, statefulSet)
	case "apps/DaemonSet":
		v, selector, err = typed(o, daemonSet)
	case "apps/ReplicaSet":
		v, selector, err = typed(o, replicaSet)
	case "batch/Job":
		v, selector, err = typed(o, oneJob)
	case "/Pod":
		v, _, err = typed(o, onePod)
	case "/Service":
		v, _, err = typed(o, service)
	case "/PersistentVolumeClaim":
		return c.claim(ctx, o)
	case "/Namespace":
		if phase, _, _ := unstructured.NestedString(o.Object, "status", "phase"); phase != "Active" {
			return notYet("is %s", phase), nil
		}
		return good, nil
	case "apiextensions.k8s.io/CustomResourceDefinition":
		return condition(o, "Established", "is not established yet"), nil
	case "apiregistration.k8s.io/APIService":
		return condition(o, "Available", "is not available"), nil
	default:
		return good, nil
	}
	if err != nil || v.ready || selector == nil {
		return v, err
	}
	why, err := c.blame(ctx, o, selector)
	if why != "" {
		v.why += "; " + why
	}
	return v, err
}

// typed looks at an object as its Go type.
func typed[T any](o *unstructured.Unstructured, look func(*T) (judgement, *metav1.LabelSelector)) (judgement, *metav1.LabelSelector, error) {
	var x T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &x); err != nil {
		return judgement{}, nil, fmt.Errorf("%s: %w", name(o), err)
	}
	v, selector := look(&x)
	return v, selector, nil
}

func orOne(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

func deployment(d *appsv1.Deployment) (judgement, *metav1.LabelSelector) {
	want := orOne(d.Spec.Replicas)
	s := d.Status
	switch {
	case d.Spec.Paused:
		return good, nil
	case s.ObservedGeneration < d.Generation:
		return notYet("its controller has not seen it yet"), nil
	case s.UpdatedReplicas < want || s.AvailableReplicas < want:
		refused := ""
		for _, c := range d.Status.Conditions {
			if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
				refused = "; " + c.Message
			}
		}
		return notYet("%d of %d replicas are up to date and available%s", min(s.UpdatedReplicas, s.AvailableReplicas), want, refused), d.Spec.Selector
	case s.Replicas > s.UpdatedReplicas:
		return notYet("%d replicas of the old kind are still there", s.Replicas-s.UpdatedReplicas), nil
	}
	return good, nil
}

func statefulSet(d *appsv1.StatefulSet) (judgement, *metav1.LabelSelector) {
	want := orOne(d.Spec.Replicas)
	s := d.Status
	onDelete := d.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType
	partition := int32(0)
	if u := d.Spec.UpdateStrategy.RollingUpdate; u != nil && u.Partition != nil {
		partition = min(*u.Partition, want)
	}
	switch {
	case s.ObservedGeneration < d.Generation:
		return notYet("its controller has not seen it yet"), nil
	case s.ReadyReplicas < want:
		return notYet("%d of %d replicas are ready", s.ReadyReplicas, want), d.Spec.Selector
	case !onDelete && s.UpdateRevision != s.CurrentRevision && s.UpdatedReplicas < want-partition:
		return notYet("%d of %d replicas are up to date", s.UpdatedReplicas, want-partition), d.Spec.Selector
	}
	return good, nil
}

func daemonSet(d *appsv1.DaemonSet) (judgement, *metav1.LabelSelector) {
	s := d.Status
	up := s.NumberAvailable
	if d.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType {
		up = min(up, s.UpdatedNumberScheduled)
	}
	switch {
	case s.ObservedGeneration < d.Generation:
		return notYet("its controller has not seen it yet"), nil
	case up < s.DesiredNumberScheduled:
		return notYet("%d of %d pods are up to date and available", up, s.DesiredNumberScheduled), d.Spec.Selector
	}
	return good, nil
}

func replicaSet(d *appsv1.ReplicaSet) (judgement, *metav1.LabelSelector) {
	if want := orOne(d.Spec.Replicas); d.Status.ReadyReplicas < want || d.Status.ObservedGeneration < d.Generation {
		return notYet("%d of %d replicas are ready", d.Status.ReadyReplicas, want), d.Spec.Selector
	}
	return good, nil
}

func oneJob(j *batchv1.Job) (judgement, *metav1.LabelSelector) {
	for _, c := range j.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobComplete, c.Type == batchv1.JobSuspended:
			return good, nil
		case c.Type == batchv1.JobFailed:
			return judgement{failed: true, why: "failed: " + c.Reason + " " + c.Message}, j.Spec.Selector
		}
	}
	return notYet("has not completed (%d active, %d failed)", j.Status.Active, j.Status.Failed), j.Spec.Selector
}

func onePod(p *corev1.Pod) (judgement, *metav1.LabelSelector) {
	if p.Status.Phase == corev1.PodSucceeded {
		return good, nil
	}
	if p.Status.Phase == corev1.PodFailed {
		return judgement{failed: true, why: "failed: " + troubled(p)}, nil
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return good, nil
		}
	}
	return notYet("is not ready: %s", troubled(p)), nil
}

// service waits for a load balancer's address, which Helm's waits do not.
func service(s *corev1.Service) (judgement, *metav1.LabelSelector) {
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0 {
		return notYet("the cloud has not given it a load balancer yet"), nil
	}
	return good, nil
}

func condition(o *unstructured.Unstructured, kind, why string) judgement {
	all, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range all {
		m, ok := c.(map[string]any)
		if !ok || m["type"] != kind {
			continue
		}
		if m["status"] == "True" {
			return good
		}
		if text, _ := m["message"].(string); text != "" {
			why += ": " + text
		}
	}
	return notYet("%s", why)
}

// claim is ready when it is bound. One whose class waits for the pod that uses
// it is judged by that pod.
func (c *cluster) claim(ctx context.Context, o *unstructured.Unstructured) (judgement, error) {
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	if phase == string(corev1.ClaimBound) {
		return good, nil
	}
	class, _, _ := unstructured.NestedString(o.Object, "spec", "storageClassName")
	if class == "" {
		return notYet("is %s, and the cluster has no default storage class", phase), nil
	}
	live, err := c.get(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": map[string]any{"name": class},
	}})
	if err != nil {
		return judgement{}, err
	}
	if live == nil {
		return notYet("is %s: there is no storage class %s", phase, class), nil
	}
	if mode, _, _ := unstructured.NestedString(live.Object, "volumeBindingMode"); mode == string(storagev1.VolumeBindingWaitForFirstConsumer) {
		return good, nil
	}
	return notYet("is %s, not bound to a volume of class %s", phase, class), nil
}
