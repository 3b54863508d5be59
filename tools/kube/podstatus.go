package main

import (
	"fmt"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// running is the status of a pod whose containers all run; its init containers did their work.
func (k *kubelets) running(pod *core.Pod, node *core.Node) core.PodStatus {
	now := meta.Now()
	status := *pod.Status.DeepCopy()
	status.Phase = core.PodRunning
	status.StartTime = &now
	for _, a := range node.Status.Addresses {
		if a.Type == core.NodeInternalIP && status.HostIP == "" {
			status.HostIP = a.Address
			status.HostIPs = []core.HostIP{{IP: a.Address}}
		}
	}
	status.PodIP = status.HostIP
	if !pod.Spec.HostNetwork {
		status.PodIP = k.address(podNet)
	}
	status.PodIPs = []core.PodIP{{IP: status.PodIP}}
	status.InitContainerStatuses, status.ContainerStatuses = nil, nil
	for _, c := range pod.Spec.InitContainers {
		s := started(pod, c, now)
		if c.RestartPolicy == nil || *c.RestartPolicy != core.ContainerRestartPolicyAlways {
			done := false
			s.Started = &done
			s.State = core.ContainerState{Terminated: &core.ContainerStateTerminated{
				Reason: "Completed", StartedAt: now, FinishedAt: now, ContainerID: s.ContainerID,
			}}
		}
		status.InitContainerStatuses = append(status.InitContainerStatuses, s)
	}
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, started(pod, c, now))
	}
	setCondition(&status, core.PodReadyToStartContainers, core.ConditionTrue, "")
	setCondition(&status, core.PodInitialized, core.ConditionTrue, "")
	setReady(&status, core.ConditionTrue, "")
	for _, gate := range pod.Spec.ReadinessGates {
		if !isTrue(status.Conditions, gate.ConditionType) {
			setCondition(&status, core.PodReady, core.ConditionFalse, "ReadinessGatesNotReady")
		}
	}
	return status
}

func started(pod *core.Pod, c core.Container, now meta.Time) core.ContainerStatus {
	yes := true
	return core.ContainerStatus{
		Name: c.Name, Image: c.Image, ImageID: "sandbox://" + c.Image,
		ContainerID: fmt.Sprintf("sandbox://%s/%s", pod.UID, c.Name),
		Ready:       true, Started: &yes,
		State: core.ContainerState{Running: &core.ContainerStateRunning{StartedAt: now}},
	}
}

// ended is the status of a pod whose containers ended for good.
func ended(pod *core.Pod, code int32) core.PodStatus {
	status := *pod.Status.DeepCopy()
	status.Phase = core.PodSucceeded
	if code != 0 {
		status.Phase = core.PodFailed
	}
	endContainers(&status, code)
	reason := "PodCompleted"
	if code != 0 {
		reason = "PodFailed"
	}
	setReady(&status, core.ConditionFalse, reason)
	return status
}

// crashed is the status of a pod whose containers ended and will be started again: here they only
// ever wait for it, and each wait counts as a start.
func crashed(pod *core.Pod, code int32) core.PodStatus {
	status := *pod.Status.DeepCopy()
	endContainers(&status, code)
	for i := range status.ContainerStatuses {
		s := &status.ContainerStatuses[i]
		if s.State.Terminated != nil {
			s.LastTerminationState = s.State
		}
		s.RestartCount++
		s.State = core.ContainerState{Waiting: &core.ContainerStateWaiting{
			Reason: "CrashLoopBackOff", Message: fmt.Sprintf("back-off restarting failed container=%s pod=%s_%s", s.Name, pod.Name, pod.Namespace),
		}}
	}
	setReady(&status, core.ConditionFalse, "ContainersNotReady")
	return status
}

func endContainers(status *core.PodStatus, code int32) {
	now, no := meta.Now(), false
	reason := "Completed"
	if code != 0 {
		reason = "Error"
	}
	for i := range status.ContainerStatuses {
		s := &status.ContainerStatuses[i]
		s.Ready, s.Started = false, &no
		if s.State.Running == nil {
			continue
		}
		s.State = core.ContainerState{Terminated: &core.ContainerStateTerminated{
			ExitCode: code, Reason: reason, StartedAt: s.State.Running.StartedAt, FinishedAt: now, ContainerID: s.ContainerID,
		}}
	}
}

func setReady(status *core.PodStatus, ready core.ConditionStatus, reason string) {
	setCondition(status, core.ContainersReady, ready, reason)
	setCondition(status, core.PodReady, ready, reason)
}

func setCondition(status *core.PodStatus, kind core.PodConditionType, value core.ConditionStatus, reason string) {
	condition := core.PodCondition{Type: kind, Status: value, Reason: reason, LastTransitionTime: meta.Now()}
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Type == kind {
			if c.Status == value {
				condition.LastTransitionTime = c.LastTransitionTime
			}
			*c = condition
			return
		}
	}
	status.Conditions = append(status.Conditions, condition)
}

func isTrue(conditions []core.PodCondition, kind core.PodConditionType) bool {
	for _, c := range conditions {
		if c.Type == kind {
			return c.Status == core.ConditionTrue
		}
	}
	return false
}

func containers(pod *core.Pod) []core.Container {
	return append(append([]core.Container{}, pod.Spec.InitContainers...), pod.Spec.Containers...)
}

// A need is an object without which a pod's containers do not start.
type need struct {
	kind, name string // kind: secret or configmap
	reason     string // what its absence is called
}

// needs lists the Secrets and ConfigMaps that a pod refers to and cannot do without.
func needs(pod *core.Pod) []need {
	var all []need
	add := func(kind, name, reason string, optional *bool) {
		if name != "" && (optional == nil || !*optional) {
			all = append(all, need{kind, name, reason})
		}
	}
	const mount, config = "ContainerCreating", "CreateContainerConfigError"
	for _, v := range pod.Spec.Volumes {
		if s := v.Secret; s != nil {
			add("secret", s.SecretName, mount, s.Optional)
		}
		if c := v.ConfigMap; c != nil {
			add("configmap", c.Name, mount, c.Optional)
		}
		if v.Projected == nil {
			continue
		}
		for _, p := range v.Projected.Sources {
			if s := p.Secret; s != nil {
				add("secret", s.Name, mount, s.Optional)
			}
			if c := p.ConfigMap; c != nil {
				add("configmap", c.Name, mount, c.Optional)
			}
		}
	}
	for _, c := range containers(pod) {
		for _, e := range c.EnvFrom {
			if s := e.SecretRef; s != nil {
				add("secret", s.Name, config, s.Optional)
			}
			if m := e.ConfigMapRef; m != nil {
				add("configmap", m.Name, config, m.Optional)
			}
		}
		for _, e := range c.Env {
			if e.ValueFrom == nil {
				continue
			}
			if s := e.ValueFrom.SecretKeyRef; s != nil {
				add("secret", s.Name, config, s.Optional)
			}
			if m := e.ValueFrom.ConfigMapKeyRef; m != nil {
				add("configmap", m.Name, config, m.Optional)
			}
		}
	}
	return all
}
