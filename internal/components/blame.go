package components

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/zopday/provisioner/internal/kube"
)

// blame says what keeps a workload's pods from running: the first of them that
// is in trouble, or why there is none.
func (c *cluster) blame(ctx context.Context, o *unstructured.Unstructured, selector *metav1.LabelSelector) (string, error) {
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		return "", fmt.Errorf("%s: %w", name(o), err)
	}
	if s.Empty() {
		return "", nil
	}
	pods, err := c.core.Pods(o.GetNamespace()).List(ctx, metav1.ListOptions{LabelSelector: s.String(), Limit: 100})
	if err != nil {
		return "", kube.Classify("list pods", err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.DeletionTimestamp != nil {
			continue
		}
		if why := troubled(p); why != "" {
			return "pod " + p.Name + ": " + why, nil
		}
	}
	if len(pods.Items) == 0 {
		return c.lastWarning(ctx, o)
	}
	return "", nil
}

// starting are what containers wait for at first, which is no trouble.
var starting = map[string]bool{"": true, "ContainerCreating": true, "PodInitializing": true}

// troubled says what is wrong with a pod that does not run; "" if nothing is to
// be seen yet.
func troubled(p *corev1.Pod) string {
	for _, s := range append(append([]corev1.ContainerStatus{}, p.Status.InitContainerStatuses...), p.Status.ContainerStatuses...) {
		if w := s.State.Waiting; w != nil && !starting[w.Reason] {
			why := strings.TrimSuffix(fmt.Sprintf("container %s: %s: %s", s.Name, w.Reason, w.Message), ": ")
			if t := s.LastTerminationState.Terminated; t != nil {
				why += fmt.Sprintf(" (ended with code %d, %s)", t.ExitCode, t.Reason)
			}
			return why
		}
		if t := s.State.Terminated; t != nil && t.ExitCode != 0 {
			return strings.TrimSuffix(fmt.Sprintf("container %s ended with code %d: %s %s", s.Name, t.ExitCode, t.Reason, t.Message), " ")
		}
	}
	for _, cond := range p.Status.Conditions {
		if cond.Type == corev1.PodScheduled && cond.Status == corev1.ConditionFalse {
			return "not scheduled: " + cond.Message
		}
	}
	if p.Status.Phase == corev1.PodFailed {
		return strings.TrimSpace(p.Status.Reason + " " + p.Status.Message)
	}
	return ""
}

// lastWarning is the newest warning that was given about an object, such as why
// its pods cannot be made.
func (c *cluster) lastWarning(ctx context.Context, o *unstructured.Unstructured) (string, error) {
	events, err := c.core.Events(o.GetNamespace()).List(ctx, metav1.ListOptions{
		FieldSelector: fmt.Sprintf("type=Warning,involvedObject.uid=%s", o.GetUID()), Limit: 50,
	})
	if err != nil {
		return "", kube.Classify("list events", err)
	}
	newest, text := metav1.Time{}, ""
	for _, e := range events.Items {
		if at := e.LastTimestamp; text == "" || newest.Before(&at) {
			newest, text = at, strings.TrimSpace(e.Reason+": "+e.Message)
		}
	}
	return text, nil
}
