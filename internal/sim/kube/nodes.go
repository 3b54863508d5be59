package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/sim"
)

const (
	nodesPath = "/api/v1/nodes"
	// clusterLabel says, in a control plane of several clusters, whose a node is.
	clusterLabel = "sandbox/cluster"
	// notReadyAnnotation is heeded by the control plane's kubelets.
	notReadyAnnotation = "sandbox/not-ready"
)

// What a node has if the cloud does not say.
const (
	defaultCPUs      = 4
	defaultMemoryMiB = 16 << 10
	defaultPods      = 110
)

type taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
}

type nodeSpec struct {
	ProviderID string  `json:"providerID,omitempty"`
	Taints     []taint `json:"taints,omitempty"`
}

// node is what we write and read of a Node.
type node struct {
	APIVersion string         `json:"apiVersion,omitempty"`
	Kind       string         `json:"kind,omitempty"`
	Metadata   metadata       `json:"metadata"`
	Spec       nodeSpec       `json:"spec"`
	Status     map[string]any `json:"status,omitempty"`
}

// syncNodes makes the cluster's Node objects just those.
func (c *cluster) syncNodes(ctx context.Context, api *client, want []sim.KubeNode) error {
	query := ""
	if c.kube.opt.Shared {
		query = "?labelSelector=" + url.QueryEscape(c.nodeSelector())
	}
	var have list[node]
	if err := api.call(ctx, http.MethodGet, nodesPath+query, nil, &have); err != nil {
		return err
	}
	there := map[string]node{}
	for _, n := range have.Items {
		there[n.Metadata.Name] = n
	}
	var errs []error
	for _, w := range want {
		n, ok := there[w.Name]
		delete(there, w.Name)
		// Another machine under the name of one that is gone is another node.
		if ok && n.Spec.ProviderID != w.ProviderID && n.Spec.ProviderID != "" {
			errs = append(errs, deleteNode(ctx, api, w.Name))
			ok = false
		}
		if ok {
			errs = append(errs, c.updateNode(ctx, api, n, w))
		} else {
			errs = append(errs, api.call(ctx, http.MethodPost, nodesPath, c.newNode(w), nil))
		}
	}
	for name := range there {
		errs = append(errs, deleteNode(ctx, api, name))
	}
	return errors.Join(errs...)
}

func deleteNode(ctx context.Context, api *client, name string) error {
	err := api.call(ctx, http.MethodDelete, nodesPath+"/"+name, nil, nil)
	if isCode(err, http.StatusNotFound) {
		return nil
	}
	return err
}

func (c *cluster) nodeSelector() string { return clusterLabel + "=" + c.key }

// labels are those that a kubelet and a cloud's node controller set (Kubernetes documentation,
// "Well-Known Labels, Annotations and Taints"), and the cloud's own.
func (c *cluster) labels(w sim.KubeNode) map[string]string {
	labels := map[string]string{"kubernetes.io/hostname": w.Name, "kubernetes.io/os": "linux"}
	for key, value := range map[string]string{
		"kubernetes.io/arch":               w.Arch,
		"topology.kubernetes.io/zone":      w.Zone,
		"topology.kubernetes.io/region":    w.Region,
		"node.kubernetes.io/instance-type": w.Type,
	} {
		if value != "" {
			labels[key] = value
		}
	}
	maps.Copy(labels, w.Labels)
	if c.kube.opt.Shared {
		labels[clusterLabel] = c.key
	}
	return labels
}

func annotations(w sim.KubeNode) map[string]string {
	if !w.NotReady {
		return nil
	}
	return map[string]string{notReadyAnnotation: "true"}
}

func (c *cluster) newNode(w sim.KubeNode) node {
	n := node{
		APIVersion: "v1", Kind: "Node",
		Metadata: metadata{Name: w.Name, Labels: c.labels(w), Annotations: annotations(w)},
		Spec:     nodeSpec{ProviderID: w.ProviderID, Taints: taints(w, nil)},
	}
	capacity := map[string]string{
		"cpu":               fmt.Sprint(or(w.CPUs, defaultCPUs)),
		"memory":            fmt.Sprintf("%dMi", or(w.MemoryMiB, defaultMemoryMiB)),
		"pods":              fmt.Sprint(or(w.Pods, defaultPods)),
		"ephemeral-storage": "100Gi",
	}
	n.Status = map[string]any{
		"capacity": capacity, "allocatable": capacity,
		"nodeInfo": map[string]string{
			"machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "6.12.0", "osImage": "Linux", "containerRuntimeVersion": "containerd://2.1.5",
			"kubeletVersion": w.Kubelet, "kubeProxyVersion": "", "operatingSystem": "linux", "architecture": w.Arch,
		},
	}
	if w.IP != "" {
		n.Status["addresses"] = []map[string]string{{"type": "InternalIP", "address": w.IP}, {"type": "Hostname", "address": w.Name}}
	}
	return n
}

func or(n, otherwise int) int {
	if n > 0 {
		return n
	}
	return otherwise
}

// taints are the wanted ones, with those of Kubernetes itself that are there.
func taints(w sim.KubeNode, there []taint) []taint {
	all := []taint{}
	for _, t := range w.Taints {
		all = append(all, taint(t))
	}
	for _, t := range there {
		if strings.HasPrefix(t.Key, "node.kubernetes.io/") && !slices.ContainsFunc(all, func(a taint) bool { return a.Key == t.Key && a.Effect == t.Effect }) {
			all = append(all, t)
		}
	}
	return all
}

// updateNode changes what differs of a node. Labels that somebody else put there stay.
func (c *cluster) updateNode(ctx context.Context, api *client, n node, w sim.KubeNode) error {
	labels := map[string]any{}
	for key, value := range c.labels(w) {
		if n.Metadata.Labels[key] != value {
			labels[key] = value
		}
	}
	change := map[string]any{}
	if len(labels) > 0 {
		change["labels"] = labels
	}
	if ready := n.Metadata.Annotations[notReadyAnnotation] != "true"; ready == w.NotReady {
		var value any // null takes it away
		if w.NotReady {
			value = "true"
		}
		change["annotations"] = map[string]any{notReadyAnnotation: value}
	}
	patch := map[string]any{}
	if len(change) > 0 {
		patch["metadata"] = change
	}
	if wanted := taints(w, n.Spec.Taints); !sameTaints(wanted, n.Spec.Taints) {
		patch["spec"] = map[string]any{"taints": wanted}
		change["resourceVersion"] = n.Metadata.ResourceVersion // the node controller writes the same list
		patch["metadata"] = change
	}
	if len(patch) == 0 {
		return nil
	}
	return api.patch(ctx, nodesPath+"/"+n.Metadata.Name, patch)
}

func sameTaints(a, b []taint) bool {
	if len(a) != len(b) {
		return false
	}
	return !slices.ContainsFunc(a, func(t taint) bool { return !slices.Contains(b, t) })
}
