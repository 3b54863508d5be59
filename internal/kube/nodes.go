package kube

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/zopday/provisioner/internal/job"
)

// poolLabels are the labels by which each cloud's nodes name their pool.
var poolLabels = map[job.Provider]string{
	job.AWS: "eks.amazonaws.com/nodegroup", job.GCP: "cloud.google.com/gke-nodepool", job.Azure: "agentpool",
}

// Ready counts the nodes of a cluster that are Ready by pool, by the cloud's
// name of the pool, and says of those that are not what they lack.
func Ready(ctx context.Context, c Interface, p job.Provider) (ready map[string]int, lacking []string, err error) {
	ready = map[string]int{}
	opts := metav1.ListOptions{Limit: 250}
	for {
		page, err := c.CoreV1().Nodes().List(ctx, opts)
		if err != nil {
			return nil, nil, Classify("list nodes", err)
		}
		for _, n := range page.Items {
			if why := notReady(n); why != "" {
				lacking = append(lacking, n.Name+": "+why)
			} else {
				ready[n.Labels[poolLabels[p]]]++
			}
		}
		if opts.Continue = page.Continue; opts.Continue == "" {
			return ready, lacking, nil
		}
	}
}

func notReady(n corev1.Node) string {
	for _, cond := range n.Status.Conditions {
		if cond.Type != corev1.NodeReady {
			continue
		}
		if cond.Status == corev1.ConditionTrue {
			return ""
		}
		return strings.TrimSpace(fmt.Sprintf("%s %s", cond.Reason, cond.Message))
	}
	return "its kubelet has not reported yet"
}
