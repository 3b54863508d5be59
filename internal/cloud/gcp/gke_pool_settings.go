package gcp

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/api/container/v1"

	"github.com/zopday/provisioner/internal/pipeline"
)

// A poolSetting is one property of a node pool, read alike from the pool as it is
// wanted and as it is.
type poolSetting struct {
	id     string // its hardening control; "": none
	name   string
	source string
	text   func(*container.NodePool) string
	change func(ctx context.Context, p *Provider, id string, want *container.NodePool) (*container.Operation, error) // nil: not in place
}

// poolSettings are the properties of node pools that the defaults decide.
var poolSettings = []poolSetting{
	{id: "GKE-03", name: "nodes have no external addresses", source: "GCP-0059, CKV_GCP_64, CIS GKE 5.6.5", text: func(n *container.NodePool) string {
		return onOff(n.NetworkConfig != nil && n.NetworkConfig.EnablePrivateNodes)
	}, change: updatePool(func(want *container.NodePool) *container.UpdateNodePoolRequest {
		return &container.UpdateNodePoolRequest{NodeNetworkConfig: &container.NodeNetworkConfig{EnablePrivateNodes: true}}
	})},
	{id: "GKE-07", name: "GKE metadata server", source: "GCP-0057, CKV_GCP_69, CIS GKE 5.4.1", text: func(n *container.NodePool) string {
		if n.Config == nil || n.Config.WorkloadMetadataConfig == nil {
			return ""
		}
		return n.Config.WorkloadMetadataConfig.Mode
	}, change: updatePool(func(want *container.NodePool) *container.UpdateNodePoolRequest {
		return &container.UpdateNodePoolRequest{WorkloadMetadataConfig: want.Config.WorkloadMetadataConfig}
	})},
	{id: "GKE-08", name: "account of the nodes", source: "GCP-0050, CKV2_GCP_1, CIS GKE 5.2.1", text: func(n *container.NodePool) string {
		if n.Config == nil {
			return ""
		}
		return n.Config.ServiceAccount
	}},
	{id: "GKE-11", name: "integrity monitoring", source: "GCP-0055, CKV_GCP_72, CIS GKE 5.5.6", text: func(n *container.NodePool) string {
		return onOff(n.Config != nil && n.Config.ShieldedInstanceConfig != nil && n.Config.ShieldedInstanceConfig.EnableIntegrityMonitoring)
	}},
	{id: "GKE-12", name: "secure boot", source: "CKV_GCP_68, CIS GKE 5.5.7", text: func(n *container.NodePool) string {
		return onOff(n.Config != nil && n.Config.ShieldedInstanceConfig != nil && n.Config.ShieldedInstanceConfig.EnableSecureBoot)
	}},
	{id: "GKE-19", name: "automatic upgrades of nodes", source: "GCP-0058, CKV_GCP_10, CIS GKE 5.5.3", text: func(n *container.NodePool) string {
		return onOff(n.Management != nil && n.Management.AutoUpgrade)
	}, change: managePool},
	{id: "GKE-20", name: "automatic repair of nodes", source: "GCP-0063, CKV_GCP_9, CIS GKE 5.5.2", text: func(n *container.NodePool) string {
		return onOff(n.Management != nil && n.Management.AutoRepair)
	}, change: managePool},
	{id: "GKE-21", name: "node image", source: "GCP-0054, CKV_GCP_22, CIS GKE 5.5.1", text: func(n *container.NodePool) string {
		if n.Config == nil {
			return ""
		}
		return strings.ToUpper(n.Config.ImageType)
	}, change: updatePool(func(want *container.NodePool) *container.UpdateNodePoolRequest {
		return &container.UpdateNodePoolRequest{ImageType: want.Config.ImageType}
	})},
	{id: "GKE-28", name: "kubelet's read-only port", source: "CIS GKE 1.6 3.2.4", text: func(n *container.NodePool) string {
		if n.Config == nil {
			return "unknown"
		}
		return readOnlyPortText(n.Config.KubeletConfig)
	}, change: updatePool(func(want *container.NodePool) *container.UpdateNodePoolRequest {
		return &container.UpdateNodePoolRequest{KubeletConfig: want.Config.KubeletConfig}
	})},
	{id: "GKE-31", name: "legacy metadata endpoints", source: "GCP-0048", text: func(n *container.NodePool) string {
		return onOff(n.Config == nil || n.Config.Metadata["disable-legacy-endpoints"] != "true")
	}},
	{name: "machine type", text: func(n *container.NodePool) string { return n.Config.MachineType }},
	{name: "zones", text: func(n *container.NodePool) string { return sorted(n.Locations) }, change: updatePool(func(want *container.NodePool) *container.UpdateNodePoolRequest {
		return &container.UpdateNodePoolRequest{Locations: want.Locations}
	})},
	{name: "spot", text: func(n *container.NodePool) string { return onOff(n.Config.Spot) }},
	{name: "autoscaling", text: autoscalingText, change: func(ctx context.Context, p *Provider, id string, want *container.NodePool) (*container.Operation, error) {
		a := *want.Autoscaling
		a.ForceSendFields = []string{"TotalMinNodeCount"}
		return send(ctx, p.container.Projects.Locations.Clusters.NodePools.SetAutoscaling(id, &container.SetNodePoolAutoscalingRequest{Autoscaling: &a}))
	}},
}

func updatePool(request func(want *container.NodePool) *container.UpdateNodePoolRequest) func(context.Context, *Provider, string, *container.NodePool) (*container.Operation, error) {
	return func(ctx context.Context, p *Provider, id string, want *container.NodePool) (*container.Operation, error) {
		return send(ctx, p.container.Projects.Locations.Clusters.NodePools.Update(id, request(want)))
	}
}

func managePool(ctx context.Context, p *Provider, id string, want *container.NodePool) (*container.Operation, error) {
	return send(ctx, p.container.Projects.Locations.Clusters.NodePools.SetManagement(id, &container.SetNodePoolManagementRequest{Management: want.Management}))
}

func autoscalingText(n *container.NodePool) string {
	a := n.Autoscaling
	if a == nil || !a.Enabled {
		return "off"
	}
	if a.MaxNodeCount > 0 {
		return fmt.Sprintf("%d to %d a zone", a.MinNodeCount, a.MaxNodeCount)
	}
	return fmt.Sprintf("%d to %d", a.TotalMinNodeCount, a.TotalMaxNodeCount)
}

// poolAspects compares a pool with what is wanted. Of labels and taints only the
// spec's own are compared: GKE adds some.
func (p *Provider) poolAspects(r *pipeline.Run, id string, want, got *container.NodePool) []pipeline.Aspect {
	var out []pipeline.Aspect
	for _, s := range poolSettings {
		a := pipeline.Aspect{Name: s.name, Wanted: s.text(want), Seen: s.text(got)}
		if s.change != nil {
			a.Set = p.setCluster(r, id, func(ctx context.Context) (*container.Operation, error) { return s.change(ctx, p, id, want) })
		}
		out = append(out, a)
	}
	api := p.container.Projects.Locations.Clusters.NodePools
	labels := maps.Clone(got.Config.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, want.Config.Labels)
	return append(out,
		pipeline.Aspect{Name: "labels of nodes", Wanted: labelsKept(want.Config.Labels, want.Config.Labels), Seen: labelsKept(want.Config.Labels, got.Config.Labels),
			Set: p.setCluster(r, id, func(ctx context.Context) (*container.Operation, error) {
				return send(ctx, api.Update(id, &container.UpdateNodePoolRequest{Labels: &container.NodeLabels{Labels: labels}}))
			})},
		pipeline.Aspect{Name: "taints of nodes", Wanted: taintsText(want.Config.Taints, want.Config.Taints), Seen: taintsText(want.Config.Taints, got.Config.Taints),
			Set: p.setCluster(r, id, func(ctx context.Context) (*container.Operation, error) {
				return send(ctx, api.Update(id, &container.UpdateNodePoolRequest{Taints: &container.NodeTaints{Taints: joinedTaints(want.Config.Taints, got.Config.Taints)}}))
			})},
	)
}

func sameTaint(t *container.NodeTaint) func(*container.NodeTaint) bool {
	return func(o *container.NodeTaint) bool { return o.Key == t.Key && o.Effect == t.Effect }
}

// taintsText is which of the wanted taints are there, with their values.
func taintsText(want, got []*container.NodeTaint) string {
	var words []string
	for _, t := range want {
		if i := slices.IndexFunc(got, sameTaint(t)); i >= 0 {
			words = append(words, fmt.Sprintf("%s=%s:%s", got[i].Key, got[i].Value, got[i].Effect))
		}
	}
	return sorted(words)
}

func joinedTaints(want, got []*container.NodeTaint) []*container.NodeTaint {
	out := slices.Clone(want)
	for _, t := range got {
		if !slices.ContainsFunc(want, sameTaint(t)) {
			out = append(out, t)
		}
	}
	return out
}
