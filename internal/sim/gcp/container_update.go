package gcp

import (
	"maps"
	"slices"
	"strings"
)

// updateMethods adds the methods that change clusters and node pools.
func (s *container) updateMethods(ops map[string]operation) {
	const clusters, pools = "projects.locations.clusters.", "projects.locations.clusters.nodePools."
	ops[clusters+"update"] = s.updateCluster
	ops[clusters+"setResourceLabels"] = s.setLabels
	ops[clusters+"setMaintenancePolicy"] = s.setMaintenance
	// The older methods are updates of one field each.
	for verb, from := range map[string]func(body Doc) Doc{
		"setAddons":     func(b Doc) Doc { return Doc{"desiredAddonsConfig": b["addonsConfig"]} },
		"setLocations":  func(b Doc) Doc { return Doc{"desiredLocations": b["locations"]} },
		"setLogging":    func(b Doc) Doc { return Doc{"desiredLoggingService": b["loggingService"]} },
		"setMonitoring": func(b Doc) Doc { return Doc{"desiredMonitoringService": b["monitoringService"]} },
		"updateMaster":  func(b Doc) Doc { return Doc{"desiredMasterVersion": b["masterVersion"]} },
	} {
		ops[clusters+verb] = func(r *request) (any, error) {
			c, err := s.changing(r)
			if err != nil {
				return nil, err
			}
			return s.update(r, c, from(r.Body))
		}
	}
	ops[clusters+"setLegacyAbac"] = func(r *request) (any, error) {
		c, err := s.changing(r)
		if err != nil {
			return nil, err
		}
		abac := Doc{}
		if truth(r.Body, "enabled") {
			abac["enabled"] = true
		}
		return s.begun(r, c, "UPDATE_CLUSTER", "update", Doc{"legacyAbac": abac}), nil
	}
	ops[pools+"setAutoscaling"], ops[pools+"setManagement"] = s.setAutoscaling, s.setManagement
	ops[pools+"setSize"], ops[pools+"update"] = s.setSize, s.updatePool
}

// changing finds the cluster that is to be changed, if it can be.
func (s *container) changing(r *request) (*cluster, error) {
	c, err := s.change(r)
	if err != nil {
		return nil, err
	}
	return c, s.running(c)
}

// begun begins an operation that replaces fields of the cluster when it is done.
func (s *container) begun(r *request, c *cluster, opType, action string, set Doc) Doc {
	if action == "update" && c.status() == "RUNNING" {
		c.Doc["status"] = "RECONCILING"
	}
	return s.start(r, opType, action, c, c.Path, Doc{"set": set})
}

func (s *container) updateCluster(r *request) (any, error) {
	c, err := s.changing(r)
	if err != nil {
		return nil, err
	}
	return s.update(r, c, sub(r.Body, "update"))
}

// together are the fields of an update that go with another one; otherwise an update changes one thing ("ClusterUpdate": at most
// one field can be provided).
var together = []string{"desiredNodePoolId", "desiredImageType", "desiredImage", "desiredImageProject", "desiredMonitoringService", "desiredMonitoringConfig", "etag"}

func (s *container) update(r *request, c *cluster, update Doc) (any, error) {
	var main []string
	for _, k := range keysOf(update) {
		if !slices.Contains(together, k) {
			main = append(main, k)
		}
	}
	if len(main) == 0 {
		for _, k := range []string{"desiredMonitoringService", "desiredMonitoringConfig"} {
			if _, ok := update[k]; ok {
				main = append(main, k)
			}
		}
	}
	switch {
	case len(main) == 0:
		return nil, s.containerInvalid("Must specify a field to update.")
	case len(main) > 1:
		return nil, s.containerInvalid("Only one update can be applied to a cluster with each request: %s.", strings.Join(main, ", "))
	}
	switch main[0] {
	case "desiredMasterVersion":
		return s.upgradeMaster(r, c, str(update, main[0]))
	case "desiredNodeVersion":
		return s.upgradePool(r, c, str(update, "desiredNodePoolId"), str(update, main[0]))
	case "desiredNodePoolAutoscaling":
		return s.scalePool(r, c, str(update, "desiredNodePoolId"), sub(update, main[0]))
	}
	set := Doc{}
	for _, k := range keysOf(update) {
		if k == "etag" || k == "desiredNodePoolId" {
			continue
		}
		if err := s.applyUpdate(c, set, k, update[k]); err != nil {
			return nil, err
		}
	}
	return s.begun(r, c, "UPDATE_CLUSTER", "update", set), nil
}

// wholes are the fields of an update that replace a field of the cluster.
var wholes = map[string]string{"desiredAnonymousAuthenticationConfig": "anonymousAuthenticationConfig", "desiredAuthenticatorGroupsConfig": "authenticatorGroupsConfig",
	"desiredBinaryAuthorization": "binaryAuthorization", "desiredCostManagementConfig": "costManagementConfig", "desiredNotificationConfig": "notificationConfig",
	"desiredRbacBindingConfig": "rbacBindingConfig", "desiredSecurityPostureConfig": "securityPostureConfig", "desiredShieldedNodes": "shieldedNodes",
	"desiredVerticalPodAutoscaling": "verticalPodAutoscaling", "desiredWorkloadIdentityConfig": "workloadIdentityConfig", "desiredResourceUsageExportConfig": "resourceUsageExportConfig",
	"desiredIdentityServiceConfig": "identityServiceConfig", "desiredMeshCertificates": "meshCertificates", "desiredFleet": "fleet", "desiredPodAutoscaling": "podAutoscaling",
	"desiredSecretManagerConfig": "secretManagerConfig", "desiredCompliancePostureConfig": "compliancePostureConfig", "desiredClusterAutoscaling": "autoscaling",
	"desiredLoggingConfig": "loggingConfig", "desiredMonitoringConfig": "monitoringConfig", "desiredLoggingService": "loggingService", "desiredMonitoringService": "monitoringService",
	"gkeAutoUpgradeConfig": "gkeAutoUpgradeConfig", "desiredUserManagedKeysConfig": "userManagedKeysConfig"}

// networked are those that replace a field of the network configuration.
var networked = map[string]string{"desiredDefaultEnablePrivateNodes": "defaultEnablePrivateNodes", "desiredDefaultSnatStatus": "defaultSnatStatus", "desiredDnsConfig": "dnsConfig",
	"desiredGatewayApiConfig": "gatewayApiConfig", "desiredServiceExternalIpsConfig": "serviceExternalIpsConfig", "desiredEnableFqdnNetworkPolicy": "enableFqdnNetworkPolicy",
	"desiredEnableCiliumClusterwideNetworkPolicy": "enableCiliumClusterwideNetworkPolicy", "desiredInTransitEncryptionConfig": "inTransitEncryptionConfig",
	"desiredPrivateIpv6GoogleAccess": "privateIpv6GoogleAccess"}

// field is a field of the cluster as the update leaves it.
func (c *cluster) field(set Doc, name string) Doc {
	if d := sub(set, name); d != nil {
		return d
	}
	d := clone(sub(c.Doc, name))
	if d == nil {
		d = Doc{}
	}
	set[name] = d
	return d
}

// applyUpdate puts what one field of an update asks for into the fields that will be set.
func (s *container) applyUpdate(c *cluster, set Doc, k string, v any) error {
	d, _ := v.(map[string]any)
	if to := wholes[k]; to != "" {
		set[to] = v
		return nil
	}
	if to := networked[k]; to != "" {
		c.field(set, "networkConfig")[to] = v
		return nil
	}
	switch k {
	case "desiredIntraNodeVisibilityConfig":
		c.field(set, "networkConfig")["enableIntraNodeVisibility"] = truth(d, "enabled")
	case "desiredL4ilbSubsettingConfig":
		c.field(set, "networkConfig")["enableL4ilbSubsetting"] = truth(d, "enabled")
	case "desiredAddonsConfig":
		merge(c.field(set, "addonsConfig"), d)
	case "desiredNodeKubeletConfig":
		merge(subOf(subOf(c.field(set, "nodePoolDefaults"), "nodeConfigDefaults"), "nodeKubeletConfig"), d)
	case "desiredNodePoolAutoConfigKubeletConfig":
		merge(subOf(c.field(set, "nodePoolAutoConfig"), "nodeKubeletConfig"), d)
	case "desiredNodePoolLoggingConfig":
		subOf(c.field(set, "nodePoolDefaults"), "nodeConfigDefaults")["loggingConfig"] = d
	case "desiredControlPlaneEndpointsConfig":
		merge(c.field(set, "controlPlaneEndpointsConfig"), d)
		return s.settleAuthorized(subOf(sub(set, "controlPlaneEndpointsConfig"), "ipEndpointsConfig"))
	case "desiredMasterAuthorizedNetworksConfig":
		ip := subOf(c.field(set, "controlPlaneEndpointsConfig"), "ipEndpointsConfig")
		ip["authorizedNetworksConfig"] = d
		return s.settleAuthorized(ip)
	case "desiredEnablePrivateEndpoint":
		subOf(c.field(set, "controlPlaneEndpointsConfig"), "ipEndpointsConfig")["enablePublicEndpoint"] = v != true
	case "desiredDatabaseEncryption":
		set["databaseEncryption"] = d
		return s.checkDatabaseKey(c, d)
	case "desiredReleaseChannel":
		return s.changeChannel(c, set, str(d, "channel"))
	case "desiredLocations":
		probe := &cluster{Path: c.Path, Doc: Doc{"locations": v}}
		set["locations"] = v
		return s.settleLocations(nil, probe)
	default:
		return s.containerInvalid("The update of %s is not supported for this cluster.", k)
	}
	return nil
}

func (s *container) changeChannel(c *cluster, set Doc, channel string) error {
	versions, ok := channelOf(channel)
	if !ok {
		return s.containerInvalid("Clusters must be enrolled in a release channel: the channel %q is not supported.", channel)
	}
	if now := str(c.Doc, "currentMasterVersion"); compareVersions(now, versions.valid[0]) > 0 {
		return s.containerInvalid("The cluster's version %q is newer than any of the release channel %s.", now, channel)
	}
	set["releaseChannel"] = Doc{"channel": channel}
	return nil
}

// updated puts the fields in place that an operation is about.
func (s *container) updated(op *clusterOperation, c *cluster) {
	maps.Copy(c.Doc, sub(op.Args, "set"))
	dropFalse(c.Doc)
	if c.status() == "RECONCILING" {
		c.Doc["status"] = "RUNNING"
	}
	s.fillCluster(c)
	if op.Action == "labels" {
		s.relabel(c)
	}
}

// relabel gives the nodes the labels of their cluster.
func (s *container) relabel(c *cluster) {
	for _, p := range c.Pools {
		labels, _ := s.nodeProperties(c, p)["labels"].(map[string]any)
		for _, vm := range s.nodesOf(p) {
			vm.Doc["labels"] = clone(labels)
			vm.Doc["labelFingerprint"] = fingerprint(labels)
		}
	}
}

func (s *container) updateFailed(_ *clusterOperation, c *cluster) {
	if c.status() == "RECONCILING" {
		c.Doc["status"] = "RUNNING"
	}
}

// setLabels replaces the labels of a cluster; it wants the fingerprint of those that are there.
func (s *container) setLabels(r *request) (any, error) {
	c, err := s.changing(r)
	if err != nil {
		return nil, err
	}
	if given, now := str(r.Body, "labelFingerprint"), str(c.Doc, "labelFingerprint"); given != now {
		e := preconditionFailed("Labels could not be set due to fingerprint mismatch; try again with the proper fingerprint: incorrect fingerprint supplied was %q, the expected one is %q.", given, now)
		e.Details = []any{s.requestInfo()}
		return nil, e
	}
	labels := sub(r.Body, "resourceLabels")
	if err := s.checkResourceLabels(labels); err != nil {
		return nil, err
	}
	if labels == nil {
		labels = Doc{}
	}
	return s.begun(r, c, "UPDATE_CLUSTER", "labels", Doc{"resourceLabels": labels}), nil
}

// setMaintenance replaces the maintenance policy; it wants the resource version of the one that is there, if there is one.
func (s *container) setMaintenance(r *request) (any, error) {
	c, err := s.changing(r)
	if err != nil {
		return nil, err
	}
	policy := clone(sub(r.Body, "maintenancePolicy"))
	if policy == nil {
		policy = Doc{}
	}
	if given, now := str(policy, "resourceVersion"), str(sub(c.Doc, "maintenancePolicy"), "resourceVersion"); given != "" && given != now || given == "" && sub(sub(c.Doc, "maintenancePolicy"), "window") != nil {
		e := preconditionFailed("Maintenance policy could not be set due to a resource version mismatch: supplied was %q, the expected one is %q.", given, now)
		e.Details = []any{s.requestInfo()}
		return nil, e
	}
	if err := s.checkMaintenance(policy); err != nil {
		return nil, err
	}
	return s.begun(r, c, "SET_MAINTENANCE_POLICY", "labels", Doc{"maintenancePolicy": policy}), nil
}

// upgradeMaster upgrades the control plane: by one minor version at a time, and never down by one.
func (s *container) upgradeMaster(r *request, c *cluster, asked string) (any, error) {
	versions, _ := channelOf(str(sub(c.Doc, "releaseChannel"), "channel")) // set with the cluster
	version, ok := resolveVersion(versions, asked)
	now := str(c.Doc, "currentMasterVersion")
	if !ok {
		return nil, s.containerInvalid("Master version %q is unsupported.", asked)
	}
	if from, to := atoi(lastPart(strings.ReplaceAll(minor(now), ".", "/"))), atoi(lastPart(strings.ReplaceAll(minor(version), ".", "/"))); to < from || to > from+1 {
		return nil, s.containerInvalid("Master cannot be upgraded from %q to %q: only one minor version at a time.", now, version)
	}
	c.Doc["status"] = "RECONCILING"
	return s.start(r, "UPGRADE_MASTER", "upgrade", c, c.Path, Doc{"version": version}), nil
}

// upgraded ends an upgrade of the control plane; without a version it was one of GKE's own that changed nothing that shows.
func (s *container) upgraded(op *clusterOperation, c *cluster) {
	if v := str(op.Args, "version"); v != "" {
		c.Doc["currentMasterVersion"] = v
	}
	c.Doc["status"] = "RUNNING"
}
