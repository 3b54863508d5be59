package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// worksFor is how long a pod that is to end works.
	worksFor = 300 * time.Millisecond
	// crashesEvery is how long a container runs that crashes; an API server keeps full seconds.
	crashesEvery = time.Second
	// looksAgain is after what time a pod that waits for something is looked at again.
	looksAgain = 500 * time.Millisecond
	// endsWithin is how long a container takes to heed SIGTERM.
	endsWithin = 200 * time.Millisecond
	// terminatedExit is what a container that SIGTERM ended ends with.
	terminatedExit = 128 + 15
)

// syncPod brings a pod that is bound to a node a step further.
func (k *kubelets) syncPod(ctx context.Context, pod *core.Pod) (again time.Duration, err error) {
	node, err := k.nodes.Get(pod.Spec.NodeName)
	if apierrors.IsNotFound(err) {
		return k.orphan(ctx, pod)
	}
	if err != nil {
		return 0, err
	}
	if pod.DeletionTimestamp != nil {
		return k.terminate(ctx, pod)
	}
	switch pod.Status.Phase {
	case core.PodPending, "":
		reason, message, err := k.obstacle(ctx, pod)
		if err != nil {
			return 0, err
		}
		if reason != "" {
			return looksAgain, k.keepWaiting(ctx, pod, reason, message)
		}
		return 0, k.setStatus(ctx, pod, k.running(pod, node))
	case core.PodRunning:
		code := exitCode(pod)
		if pod.Spec.RestartPolicy == core.RestartPolicyAlways && code == 0 {
			return 0, nil
		}
		restarts := code != 0 && pod.Spec.RestartPolicy != core.RestartPolicyNever
		runs := worksFor
		if restarts {
			runs = crashesEvery
		}
		if left := runs - time.Since(lastStart(pod)); left > 0 {
			return left, nil
		}
		if restarts {
			return crashesEvery, k.setStatus(ctx, pod, crashed(pod, code))
		}
		return 0, k.setStatus(ctx, pod, ended(pod, code))
	}
	return 0, nil
}

// orphan removes a pod whose node is no more, as a cluster's garbage collection would in time.
func (k *kubelets) orphan(ctx context.Context, pod *core.Pod) (time.Duration, error) {
	// What was listed may be older than the pod.
	_, err := k.client.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, meta.GetOptions{})
	if err == nil {
		return looksAgain, nil
	}
	if !apierrors.IsNotFound(err) {
		return 0, err
	}
	return 0, k.remove(ctx, pod)
}

// terminate ends a pod that is to be deleted: its containers heed SIGTERM, then it is removed.
func (k *kubelets) terminate(ctx context.Context, pod *core.Pod) (time.Duration, error) {
	grace := endsWithin
	if s := pod.DeletionGracePeriodSeconds; s != nil {
		grace = min(grace, time.Duration(*s)*time.Second)
		// The time stamp is when the grace ends.
		if left := grace - time.Since(pod.DeletionTimestamp.Add(-time.Duration(*s)*time.Second)); left > 0 {
			return left, nil
		}
	}
	if pod.Status.Phase == core.PodRunning && pod.Spec.RestartPolicy != core.RestartPolicyAlways {
		// A Job counts the pods that end.
		if err := k.setStatus(ctx, pod, ended(pod, terminatedExit)); err != nil {
			return 0, err
		}
	}
	return 0, k.remove(ctx, pod)
}

func (k *kubelets) remove(ctx context.Context, pod *core.Pod) error {
	var now int64
	err := k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, meta.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &meta.Preconditions{UID: &pod.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // gone, or another of that name
	}
	return err
}

func (k *kubelets) setStatus(ctx context.Context, pod *core.Pod, status core.PodStatus) error {
	pod = pod.DeepCopy()
	pod.Status = status
	pod.Status.ObservedGeneration = pod.Generation
	_, err := k.client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, meta.UpdateOptions{})
	return err
}

func exitCode(pod *core.Pod) int32 {
	code, err := strconv.ParseInt(pod.Annotations[exitCodeAnnotation], 10, 32)
	if err != nil {
		return 0
	}
	return int32(code)
}

// lastStart is when a pod's containers last started, or ended to be started again.
func lastStart(pod *core.Pod) time.Time {
	var last time.Time
	for _, s := range pod.Status.ContainerStatuses {
		if r := s.State.Running; r != nil && r.StartedAt.After(last) {
			last = r.StartedAt.Time
		}
		if t := s.LastTerminationState.Terminated; t != nil && t.FinishedAt.After(last) {
			last = t.FinishedAt.Time
		}
	}
	return last
}

// obstacle says why a pod's containers cannot start, as a kubelet does.
func (k *kubelets) obstacle(ctx context.Context, pod *core.Pod) (reason, message string, err error) {
	for _, c := range containers(pod) {
		// Names below .invalid do not resolve (RFC 2606).
		if host, _, _ := strings.Cut(c.Image, "/"); strings.HasSuffix(host, ".invalid") {
			return "ImagePullBackOff", fmt.Sprintf("Back-off pulling image %q", c.Image), nil
		}
	}
	for _, need := range needs(pod) {
		var err error
		if need.kind == "secret" {
			_, err = k.client.CoreV1().Secrets(pod.Namespace).Get(ctx, need.name, meta.GetOptions{})
		} else {
			_, err = k.client.CoreV1().ConfigMaps(pod.Namespace).Get(ctx, need.name, meta.GetOptions{})
		}
		if apierrors.IsNotFound(err) {
			return need.reason, fmt.Sprintf("%s %q not found", need.kind, need.name), nil
		}
		if err != nil {
			return "", "", err
		}
	}
	return "", "", nil
}

// keepWaiting says why a pod waits, once.
func (k *kubelets) keepWaiting(ctx context.Context, pod *core.Pod, reason, message string) error {
	if s := pod.Status.ContainerStatuses; len(s) > 0 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == reason && s[0].State.Waiting.Message == message {
		return nil
	}
	status := *pod.Status.DeepCopy()
	status.Phase = core.PodPending
	status.ContainerStatuses = nil
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, core.ContainerStatus{
			Name: c.Name, Image: c.Image, State: core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: reason, Message: message}},
		})
	}
	setReady(&status, core.ConditionFalse, "ContainersNotReady")
	return k.setStatus(ctx, pod, status)
}
