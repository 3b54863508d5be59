package gcp

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/api/container/v1"

	"github.com/zopday/provisioner/internal/pipeline"
)

// A setting is one property of a cluster. The same text is read from the cluster
// as it is wanted and as it is: once to put it right, once to report on it.
type setting struct {
	id     string // its hardening control; "": none
	name   string
	source string // the rules that ask for it
	text   func(*container.Cluster) string

	// fine accepts other texts than the wanted one in the report; nil: none.
	fine func(seen string) bool

	// change is how GKE is told of it; nil: it cannot be changed in place.
	change func(want *container.Cluster) *container.ClusterUpdate
}

// clusterSettings are the properties that one update each can put right, and
// those that nothing can.
var clusterSettings = []setting{
	{id: "GKE-01", name: "control plane on the internet by IP address", source: "CKV_GCP_25, CIS GKE 5.6.4", text: publicEndpointText, change: changeEndpoints},
	{id: "GKE-02", name: "authorised networks of the control plane", source: "GCP-0061, GCP-0053, CKV_GCP_20, CIS GKE 5.6.3", text: authorizedText, change: changeEndpoints},
	{name: "DNS endpoint of the control plane", text: dnsEndpointText, change: changeEndpoints},
	{id: "GKE-03", name: "nodes have no external addresses", source: "GCP-0059, CKV_GCP_64, CIS GKE 5.6.5", text: func(c *container.Cluster) string {
		return onOff(c.NetworkConfig != nil && c.NetworkConfig.DefaultEnablePrivateNodes || c.PrivateClusterConfig != nil && c.PrivateClusterConfig.EnablePrivateNodes)
	}, change: func(*container.Cluster) *container.ClusterUpdate {
		return &container.ClusterUpdate{DesiredDefaultEnablePrivateNodes: true}
	}},
	{id: "GKE-04", name: "client certificates and passwords", source: "GCP-0064, CKV_GCP_13, CIS GKE 5.8.1", text: legacyAuthText},
	{id: "GKE-06", name: "Workload Identity", source: "CIS GKE 5.2.2", text: func(c *container.Cluster) string {
		if c.WorkloadIdentityConfig == nil {
			return ""
		}
		return c.WorkloadIdentityConfig.WorkloadPool
	}, change: func(want *container.Cluster) *container.ClusterUpdate {
		return &container.ClusterUpdate{DesiredWorkloadIdentityConfig: want.WorkloadIdentityConfig}
	}},
	{id: "GKE-10", name: "shielded nodes", source: "GCP-0055, CKV_GCP_71, CIS GKE 5.5.5", text: func(c *container.Cluster) string {
		return onOff(c.ShieldedNodes != nil && c.ShieldedNodes.Enabled)
	}, change: func(want *container.Cluster) *container.ClusterUpdate {
		return &container.ClusterUpdate{DesiredShieldedNodes: want.ShieldedNodes}
	}},
	{id: "GKE-13", name: "secrets encrypted with a key of the customer's", source: "CIS GKE 5.3.1", text: encryptionText,
		change: func(want *container.Cluster) *container.ClusterUpdate {
			return &container.ClusterUpdate{DesiredDatabaseEncryption: want.DatabaseEncryption}
		}},
	{id: "GKE-14", name: "Dataplane V2", source: "GCP-0056, CKV_GCP_12, CIS GKE 4.3.1", text: func(c *container.Cluster) string {
		if c.NetworkConfig == nil {
			return ""
		}
		return c.NetworkConfig.DatapathProvider
	}},
	{id: "GKE-15", name: "intranode visibility", source: "CKV_GCP_61, CIS GKE 5.6.1", text: func(c *container.Cluster) string {
		return onOff(c.NetworkConfig != nil && c.NetworkConfig.EnableIntraNodeVisibility)
	}, change: func(*container.Cluster) *container.ClusterUpdate {
		return &container.ClusterUpdate{DesiredIntraNodeVisibilityConfig: &container.IntraNodeVisibilityConfig{Enabled: true}}
	}},
	{id: "GKE-17", name: "VPC-native addresses", source: "GCP-0049, CKV_GCP_23, CIS GKE 5.6.2", text: func(c *container.Cluster) string {
		return onOff(c.IpAllocationPolicy != nil && c.IpAllocationPolicy.UseIpAliases)
	}},
	{id: "GKE-18", name: "release channel", source: "CKV_GCP_70, CIS GKE 5.5.4", text: func(c *container.Cluster) string {
		if c.ReleaseChannel == nil {
			return ""
		}
		return c.ReleaseChannel.Channel
	}, fine: func(seen string) bool {
		return slices.Contains([]string{"RAPID", "REGULAR", "STABLE", "EXTENDED"}, seen)
	},
		change: func(want *container.Cluster) *container.ClusterUpdate {
			return &container.ClusterUpdate{DesiredReleaseChannel: want.ReleaseChannel}
		}},
	{id: "GKE-22", name: "logs of the system and of workloads", source: "GCP-0060, CKV_GCP_1, CIS GKE 5.7.1", text: func(c *container.Cluster) string {
		if c.LoggingConfig == nil || c.LoggingConfig.ComponentConfig == nil {
			return ""
		}
		return among(c.LoggingConfig.ComponentConfig.EnableComponents, componentSystem, componentWorkloads)
	}, change: func(want *container.Cluster) *container.ClusterUpdate {
		return &container.ClusterUpdate{DesiredLoggingConfig: want.LoggingConfig}
	}},
	{id: "GKE-23", name: "metrics of the system", source: "GCP-0052, CKV_GCP_8, CIS GKE 5.7.1", text: func(c *container.Cluster) string {
		if c.MonitoringConfig == nil || c.MonitoringConfig.ComponentConfig == nil {
			return ""
		}
		return among(c.MonitoringConfig.ComponentConfig.EnableComponents, componentSystem)
	}, change: changeMonitoring},
	{id: "GKE-27", name: "security posture dashboard", source: "CIS GKE 5.10.4", text: func(c *container.Cluster) string {
		if c.SecurityPostureConfig == nil {
			return ""
		}
		return c.SecurityPostureConfig.Mode
	}, change: func(want *container.Cluster) *container.ClusterUpdate {
		return &container.ClusterUpdate{DesiredSecurityPostureConfig: want.SecurityPostureConfig}
	}},
	{id: "GKE-28", name: "kubelet's read-only port, for new pools", source: "CIS GKE 1.6 3.2.4", text: func(c *container.Cluster) string {
		if c.NodePoolDefaults == nil || c.NodePoolDefaults.NodeConfigDefaults == nil {
			return "unknown"
		}
		return readOnlyPortText(c.NodePoolDefaults.NodeConfigDefaults.NodeKubeletConfig)
	}, change: func(*container.Cluster) *container.ClusterUpdate {
		return &container.ClusterUpdate{DesiredNodeKubeletConfig: closedKubelet()}
	}},
	{id: "GKE-29", name: "anonymous requests", source: "CIS GKE 4.1.8", text: func(c *container.Cluster) string {
		if c.AnonymousAuthenticationConfig == nil {
			return ""
		}
		return c.AnonymousAuthenticationConfig.Mode
	}, change: func(want *container.Cluster) *container.ClusterUpdate {
		return &container.ClusterUpdate{DesiredAnonymousAuthenticationConfig: want.AnonymousAuthenticationConfig}
	}},
	{id: "GKE-30", name: "bindings to everybody", source: "CIS GKE 4.1.9, CIS GKE 4.1.10", text: everybodyText, change: func(want *container.Cluster) *container.ClusterUpdate {
		return &container.ClusterUpdate{DesiredRbacBindingConfig: want.RbacBindingConfig}
	}},
	{id: "GKE-32", name: "Kubernetes dashboard", source: "CIS GKE 5.10.1", text: func(c *container.Cluster) string {
		return onOff(c.AddonsConfig != nil && c.AddonsConfig.KubernetesDashboard != nil && !c.AddonsConfig.KubernetesDashboard.Disabled)
	}, change: func(want *container.Cluster) *container.ClusterUpdate {
		return &container.ClusterUpdate{DesiredAddonsConfig: &container.AddonsConfig{KubernetesDashboard: want.AddonsConfig.KubernetesDashboard}}
	}},
	{id: "GKE-33", name: "alpha features", source: "CKV2_GCP_19, CIS GKE 5.10.2", text: func(c *container.Cluster) string { return onOff(c.EnableKubernetesAlpha) }},
	{id: "GKE-46", name: "managed Prometheus", source: "GKE: managed collection", text: func(c *container.Cluster) string {
		return onOff(c.MonitoringConfig != nil && c.MonitoringConfig.ManagedPrometheusConfig != nil && c.MonitoringConfig.ManagedPrometheusConfig.Enabled)
	}, change: changeMonitoring},
	{id: "GKE-47", name: "cost allocation", source: "GKE: cost allocations", text: func(c *container.Cluster) string {
		return onOff(c.CostManagementConfig != nil && c.CostManagementConfig.Enabled)
	}, change: func(want *container.Cluster) *container.ClusterUpdate {
		return &container.ClusterUpdate{DesiredCostManagementConfig: want.CostManagementConfig}
	}},
	{name: "network", text: func(c *container.Cluster) string { return base(c.Network) }},
	{name: "subnet", text: func(c *container.Cluster) string { return base(c.Subnetwork) }},
	{name: "ranges of pods and Services", text: func(c *container.Cluster) string {
		if c.IpAllocationPolicy == nil {
			return ""
		}
		return c.IpAllocationPolicy.ClusterSecondaryRangeName + ", " + c.IpAllocationPolicy.ServicesSecondaryRangeName
	}},
	{name: "zones", text: func(c *container.Cluster) string { return sorted(c.Locations) }, change: func(want *container.Cluster) *container.ClusterUpdate {
		return &container.ClusterUpdate{DesiredLocations: want.Locations}
	}},
}

func changeEndpoints(want *container.Cluster) *container.ClusterUpdate {
	return &container.ClusterUpdate{DesiredControlPlaneEndpointsConfig: want.ControlPlaneEndpointsConfig}
}

func changeMonitoring(want *container.Cluster) *container.ClusterUpdate {
	return &container.ClusterUpdate{DesiredMonitoringConfig: want.MonitoringConfig}
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// among is which of the words are in a list; what else is in it is nobody's harm.
func among(list []string, words ...string) string {
	return sorted(slices.DeleteFunc(slices.Clone(words), func(w string) bool { return !slices.Contains(list, w) }))
}

func publicEndpointText(c *container.Cluster) string {
	e := c.ControlPlaneEndpointsConfig
	return onOff(e != nil && e.IpEndpointsConfig != nil && e.IpEndpointsConfig.EnablePublicEndpoint)
}

func authorizedText(c *container.Cluster) string {
	e := c.ControlPlaneEndpointsConfig
	if e == nil || e.IpEndpointsConfig == nil || e.IpEndpointsConfig.AuthorizedNetworksConfig == nil || !e.IpEndpointsConfig.AuthorizedNetworksConfig.Enabled {
		return "off"
	}
	a := e.IpEndpointsConfig.AuthorizedNetworksConfig
	var blocks []string
	for _, b := range a.CidrBlocks {
		blocks = append(blocks, b.CidrBlock)
	}
	text := "on: " + cmp.Or(sorted(blocks), "none besides its own")
	if a.GcpPublicCidrsAccessEnabled {
		text += ", and all of Google Cloud"
	}
	return text
}

func dnsEndpointText(c *container.Cluster) string {
	e := c.ControlPlaneEndpointsConfig
	return "open to users: " + yesNo(e != nil && e.DnsEndpointConfig != nil && e.DnsEndpointConfig.AllowExternalTraffic)
}

func legacyAuthText(c *container.Cluster) string {
	a := c.MasterAuth
	if a == nil {
		return "none"
	}
	var words []string
	if a.ClientCertificateConfig != nil && a.ClientCertificateConfig.IssueClientCertificate || a.ClientCertificate != "" {
		words = append(words, "client certificate")
	}
	if a.Username != "" {
		words = append(words, "password of "+a.Username)
	}
	return cmp.Or(strings.Join(words, ", "), "none")
}

func encryptionText(c *container.Cluster) string {
	if c.DatabaseEncryption == nil {
		return ""
	}
	return strings.TrimSpace(c.DatabaseEncryption.State + " " + c.DatabaseEncryption.KeyName)
}

func readOnlyPortText(k *container.NodeKubeletConfig) string {
	return onOff(k == nil || k.InsecureKubeletReadonlyPortEnabled)
}

func everybodyText(c *container.Cluster) string {
	b := c.RbacBindingConfig
	if b == nil {
		return "authenticated allowed, unauthenticated allowed"
	}
	word := map[bool]string{true: "allowed", false: "refused"}
	return fmt.Sprintf("authenticated %s, unauthenticated %s", word[b.EnableInsecureBindingSystemAuthenticated], word[b.EnableInsecureBindingSystemUnauthenticated])
}

func maintenanceText(c *container.Cluster) string {
	if c.MaintenancePolicy == nil || c.MaintenancePolicy.Window == nil {
		return ""
	}
	switch w := c.MaintenancePolicy.Window; {
	case w.RecurringWindow != nil && w.RecurringWindow.Window != nil && w.RecurringWindow.Recurrence != "":
		return fmt.Sprintf("%s from %s to %s", w.RecurringWindow.Recurrence, clockOf(w.RecurringWindow.Window.StartTime), clockOf(w.RecurringWindow.Window.EndTime))
	case w.DailyMaintenanceWindow != nil:
		return "daily from " + w.DailyMaintenanceWindow.StartTime
	}
	return ""
}

// clockOf is the time of day of a timestamp.
func clockOf(timestamp string) string {
	_, clock, _ := strings.Cut(timestamp, "T")
	return clock
}

func abacText(c *container.Cluster) string { return onOff(c.LegacyAbac != nil && c.LegacyAbac.Enabled) }

// labelsKept is which of the wanted labels a cluster carries.
func labelsKept(want, got map[string]string) string {
	n := 0
	for k, v := range want {
		if got[k] == v {
			n++
		}
	}
	return strconv.Itoa(n) + " of " + strconv.Itoa(len(want))
}

// clusterAspects compares a cluster with what is wanted. GKE takes one change of
// a cluster at a time, and one field in each.
func (p *Provider) clusterAspects(r *pipeline.Run, id string, want, got *container.Cluster) []pipeline.Aspect {
	api := p.container.Projects.Locations.Clusters
	labels := maps.Clone(want.ResourceLabels)
	if held := got.ResourceLabels[labelGuard]; held != "" {
		labels[labelGuard] = held // somebody's own hold stays
	}
	var out []pipeline.Aspect
	for _, s := range clusterSettings {
		a := pipeline.Aspect{Name: s.name, Wanted: s.text(want), Seen: s.text(got)}
		if s.change != nil {
			a.Set = p.setCluster(r, id, func(ctx context.Context) (*container.Operation, error) {
				return send(ctx, api.Update(id, &container.UpdateClusterRequest{Update: s.change(want)}))
			})
		}
		out = append(out, a)
	}
	return append(out,
		pipeline.Aspect{Name: "attribute-based access", Wanted: "off", Seen: abacText(got), Set: p.setCluster(r, id, func(ctx context.Context) (*container.Operation, error) {
			return send(ctx, api.SetLegacyAbac(id, &container.SetLegacyAbacRequest{ForceSendFields: []string{"Enabled"}}))
		})},
		pipeline.Aspect{Name: "maintenance window", Wanted: maintenanceText(want), Seen: maintenanceText(got), Set: p.setCluster(r, id, func(ctx context.Context) (*container.Operation, error) {
			policy := *want.MaintenancePolicy
			if got.MaintenancePolicy != nil {
				policy.ResourceVersion = got.MaintenancePolicy.ResourceVersion
			}
			return send(ctx, api.SetMaintenancePolicy(id, &container.SetMaintenancePolicyRequest{MaintenancePolicy: &policy}))
		})},
		pipeline.Aspect{Name: "labels", Wanted: labelsKept(labels, labels), Seen: labelsKept(labels, got.ResourceLabels),
			Set: p.setCluster(r, id, func(ctx context.Context) (*container.Operation, error) { return p.setLabels(ctx, id, got, labels) })},
	)
}
