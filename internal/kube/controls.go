package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/zopday/provisioner/internal/job"
)

// rows are the hardening controls that only the API server can answer for, as
// each cloud's list numbers them.
var rows = map[job.Provider]struct{ storage, security, kubelet, storageSource, securitySource, kubeletSource string }{
	job.AWS:   {"EKS-29", "EKS-26", "EKS-27", "", "CIS EKS 4.2.1–4.2.5", "CIS EKS 3.2.1–3.2.9"},
	job.GCP:   {"", "GKE-41", "", "", "CIS GKE 4.2.1", ""},
	job.Azure: {"", "AKS-43", "AKS-44", "", "CIS AKS 4.2.1–4.2.5", "CIS AKS 3.2.1–3.2.9"},
}

// Controls reads the hardening controls of a cluster that its API server answers for.
func Controls(ctx context.Context, c Interface, p job.Provider) ([]job.Control, error) {
	row := rows[p]
	var out []job.Control
	if row.storage != "" {
		control, err := storageControl(ctx, c, p, row.storage, row.storageSource)
		if err != nil {
			return nil, err
		}
		out = append(out, control)
	}
	security, err := securityControl(ctx, c, row.security, row.securitySource)
	if err != nil {
		return nil, err
	}
	out = append(out, security)
	if row.kubelet != "" {
		kubelet, err := kubeletControl(ctx, c, row.kubelet, row.kubeletSource)
		if err != nil {
			return nil, err
		}
		out = append(out, kubelet)
	}
	return out, nil
}

func storageControl(ctx context.Context, c Interface, p job.Provider, id, source string) (job.Control, error) {
	out := job.Control{ID: id, Name: "default storage class encrypts", Wanted: "encrypted: true", Source: source}
	list, err := c.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return out, Classify("list storage classes", err)
	}
	out.Seen = "no default class"
	for _, s := range list.Items {
		if s.Annotations[defaultClass] != "true" {
			continue
		}
		out.Met = encrypted(p, s)
		out.Seen = fmt.Sprintf("%s encrypted: %t", s.Name, out.Met)
		if !out.Met {
			break // of several defaults, the worst counts
		}
	}
	return out, nil
}

func securityControl(ctx context.Context, c Interface, id, source string) (job.Control, error) {
	out := job.Control{ID: id, Name: "pod security labels on namespaces", Wanted: "warn and audit at baseline or stricter", Source: source}
	all, err := Namespaces(ctx, c)
	if err != nil {
		return out, err
	}
	var without []string
	for _, ns := range all {
		if systemNamespace(ns.Name) || ns.Status != "Active" {
			continue
		}
		for _, k := range []string{"warn", "audit"} {
			if v := ns.Labels["pod-security.kubernetes.io/"+k]; v != "baseline" && v != "restricted" {
				without = append(without, ns.Name)
				break
			}
		}
	}
	out.Met, out.Seen = len(without) == 0, "on every namespace"
	if !out.Met {
		out.Seen = "not on " + strings.Join(without, ", ")
	}
	return out, nil
}

// systemNamespace reports whether a namespace is the cluster's own.
func systemNamespace(name string) bool {
	return strings.HasPrefix(name, "kube-") || strings.HasPrefix(name, "gke-") || strings.HasPrefix(name, "gmp-") ||
		name == "amazon-guardduty" || name == "gatekeeper-system" || name == "app-routing-system"
}

// kubeletControl reads one node's kubelet configuration back through the API
// server ("configz" of the kubelet).
func kubeletControl(ctx context.Context, c Interface, id, source string) (job.Control, error) {
	out := job.Control{
		ID: id, Name: "kubelet configuration", Source: source,
		Wanted: "anonymous auth off, webhook authorization, read-only port 0, client CA set, certificate rotation on",
	}
	nodes, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return out, Classify("list nodes", err)
	}
	unread := func(why string) (job.Control, error) {
		out.Unchecked, out.Seen = true, "not read: "+why
		return out, nil
	}
	if len(nodes.Items) == 0 {
		return unread("the cluster has no node now")
	}
	name := nodes.Items[0].Name
	raw, err := c.CoreV1().RESTClient().Get().Resource("nodes").Name(name).SubResource("proxy").Suffix("configz").DoRaw(ctx)
	if err != nil {
		return unread(fmt.Sprintf("the kubelet of %s does not answer for its configuration (%v)", name, err))
	}
	var z struct {
		Config struct {
			Authentication struct {
				Anonymous struct{ Enabled *bool }
				X509      struct{ ClientCAFile string }
			}
			Authorization      struct{ Mode string }
			ReadOnlyPort       int
			RotateCertificates bool
			ServerTLSBootstrap bool
		} `json:"kubeletconfig"`
	}
	if err := json.Unmarshal(raw, &z); err != nil {
		return unread("the kubelet's answer is not JSON")
	}
	k := z.Config
	var faults []string
	for _, f := range []struct {
		fault string
		is    bool
	}{
		{"anonymous auth on", k.Authentication.Anonymous.Enabled == nil || *k.Authentication.Anonymous.Enabled},
		{"authorization not by webhook", k.Authorization.Mode != "Webhook"},
		{"read-only port open", k.ReadOnlyPort != 0},
		{"no client CA", k.Authentication.X509.ClientCAFile == ""},
		// A kubelet that identifies itself by the cloud's credentials, as at EKS, has no
		// client certificate to rotate, and rotates the one that it serves with.
		{"certificate rotation off", !k.RotateCertificates && !k.ServerTLSBootstrap},
	} {
		if f.is {
			faults = append(faults, f.fault)
		}
	}
	out.Met, out.Seen = len(faults) == 0, out.Wanted
	if !out.Met {
		out.Seen = strings.Join(faults, ", ")
	}
	return out, nil
}
