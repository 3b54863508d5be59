package gcp

import (
	"net/netip"
	"slices"
	"strings"
)

// checkFeatures checks the parts of a cluster that stand for themselves.
func (s *container) checkFeatures(_ *request, c *cluster) error {
	d := c.Doc
	if truth(sub(d, "autopilot"), "enabled") {
		return s.containerInvalid("Autopilot clusters are not simulated.")
	}
	if err := s.checkResourceLabels(sub(d, "resourceLabels")); err != nil {
		return err
	}
	if pool := str(sub(d, "workloadIdentityConfig"), "workloadPool"); pool != "" && pool != c.project()+".svc.id.goog" {
		return s.containerInvalid("Workload Identity Config %q is invalid: the workload pool must be %q.", pool, c.project()+".svc.id.goog")
	}
	if str(sub(d, "networkConfig"), "datapathProvider") == "ADVANCED_DATAPATH" && truth(sub(d, "networkPolicy"), "enabled") {
		return s.containerInvalid("Enabling NetworkPolicy for clusters with DatapathProvider=ADVANCED_DATAPATH is not allowed.")
	}
	if n := sub(sub(d, "notificationConfig"), "pubsub"); truth(n, "enabled") && str(n, "topic") == "" {
		return s.containerInvalid("NotificationConfig.pubsub.topic must be specified if notifications are enabled.")
	}
	if str(sub(d, "masterAuth"), "username") != "" {
		return s.containerInvalid("Basic authentication was removed in 1.19: MasterAuth.username must not be set.")
	}
	if g := sub(d, "authenticatorGroupsConfig"); truth(g, "enabled") && str(g, "securityGroup") == "" {
		return s.containerInvalid("AuthenticatorGroupsConfig.security_group must be specified if it is enabled.")
	}
	return s.checkMaintenance(sub(d, "maintenancePolicy"))
}

// checkResourceLabels checks the labels of a cluster or a node pool.
func (s *container) checkResourceLabels(labels Doc) error {
	err := checkLabels(Doc{"labels": labels})
	if refused, ok := asRefusal(err); ok {
		return s.containerInvalid("%s", refused.Message)
	}
	for k := range labels {
		if strings.HasPrefix(k, "goog-") {
			return s.containerInvalid("Label keys with the prefix \"goog-\" are reserved: %q.", k)
		}
	}
	return nil
}

// checkMaintenance checks a maintenance policy: a window is daily or recurring, and opens for 48 hours in 32 days at least
// ("Maintenance windows and exclusions").
func (s *container) checkMaintenance(policy Doc) error {
	window := sub(policy, "window")
	recurring := sub(window, "recurringWindow")
	if recurring == nil {
		return nil
	}
	if sub(window, "dailyMaintenanceWindow") != nil {
		return s.containerInvalid("Only one of MaintenancePolicy.window.daily_maintenance_window and recurring_window may be specified.")
	}
	if str(recurring, "recurrence") == "" || str(sub(recurring, "window"), "startTime") == "" || str(sub(recurring, "window"), "endTime") == "" {
		return s.containerInvalid("MaintenancePolicy.window.recurring_window needs a recurrence, a start and an end.")
	}
	if !strings.HasPrefix(str(recurring, "recurrence"), "FREQ=") {
		return s.containerInvalid("MaintenancePolicy.window.recurring_window.recurrence %q is no recurrence of RFC 5545.", str(recurring, "recurrence"))
	}
	return nil
}

// settleLocations chooses the zones of the nodes: three of a region, or the zone of the cluster.
func (s *container) settleLocations(_ *request, c *cluster) error {
	zones := texts(c.Doc, "locations")
	location := c.location()
	if len(zones) == 0 {
		if zones = []string{location}; regionExists(location) {
			all := zoneNames(location)
			zones = all[:min(3, len(all))]
		}
	}
	for _, z := range zones {
		if !zoneExists(z) || regionOf(z) != c.region() {
			return s.containerInvalid("Cluster.locations: the zone %q is not in the region %q.", z, c.region())
		}
	}
	if zoneExists(location) && !slices.Contains(zones, location) {
		return s.containerInvalid("Cluster.locations must contain the zone of the cluster, %q.", location)
	}
	c.Doc["locations"] = anys(zones)
	return nil
}

// robot is the account that GKE acts as in a project ("Service agents").
func (s *container) robot(project string) string {
	return "service-" + s.cloud.number(project) + "@container-engine-robot.iam.gserviceaccount.com"
}

// checkEncryption checks the key that encrypts the cluster's secrets: it has to be in the cluster's region, and GKE's own account
// has to be allowed to use it ("Encrypt secrets at the application layer").
func (s *container) checkEncryption(_ *request, c *cluster) error {
	return s.checkDatabaseKey(c, sub(c.Doc, "databaseEncryption"))
}

func (s *container) checkDatabaseKey(c *cluster, d Doc) error {
	state, name := str(d, "state"), str(d, "keyName")
	if state == "" || state == "DECRYPTED" || state == "UNKNOWN" {
		if name != "" {
			return s.containerInvalid("DatabaseEncryption.key_name may only be specified if the state is ENCRYPTED.")
		}
		return nil
	}
	return s.checkClusterKey(c, "DatabaseEncryption.key_name", name, s.robot(c.project()))
}

// checkClusterKey checks a key that something of the cluster is to be encrypted with by an account.
func (s *container) checkClusterKey(c *cluster, field, name, account string) error {
	if p, ok := s.cloud.project(segmentAfter(name, "projects")); ok {
		name = strings.Replace(name, "projects/"+segmentAfter(name, "projects")+"/", "projects/"+p.ID+"/", 1)
	}
	if segmentAfter(name, "cryptoKeys") == "" {
		return s.containerInvalid("%s %q is invalid: it must have the form projects/{project}/locations/{location}/keyRings/{ring}/cryptoKeys/{key}.", field, name)
	}
	if l := segmentAfter(name, "locations"); l != c.region() {
		return s.containerInvalid("%s %q is invalid: the key must be in the region of the cluster, %q.", field, name, c.region())
	}
	state, purpose := s.cloud.kms.usable(name)
	switch {
	case state == "" || !s.cloud.kms.mayEncrypt(name, "serviceAccount:"+account):
		return preconditionFailed("Cloud KMS key %q cannot be used by %s: Permission 'cloudkms.cryptoKeyVersions.useToEncrypt' denied on resource '%s' (or it may not exist).", name, account, name)
	case purpose != "ENCRYPT_DECRYPT" || state != "ENABLED":
		return preconditionFailed("Cloud KMS key %q cannot be used: its purpose is %s and its primary version is %s.", name, purpose, state)
	}
	return nil
}

// settleEndpoints reads how the control plane is to be reached: the newer fields, or the older ones that mean the same
// ("ControlPlaneEndpointsConfig", "PrivateClusterConfig").
func (s *container) settleEndpoints(_ *request, c *cluster) error {
	d := c.Doc
	private, old := sub(d, "privateClusterConfig"), sub(d, "masterAuthorizedNetworksConfig")
	config := subOf(d, "controlPlaneEndpointsConfig")
	_, newer := sub(d, "networkConfig")["defaultEnablePrivateNodes"]
	if _, older := private["enablePrivateNodes"]; older && newer {
		return s.containerInvalid("NetworkConfig.default_enable_private_nodes and PrivateClusterConfig.enable_private_nodes may not be specified together.")
	}
	ip, dns := subOf(config, "ipEndpointsConfig"), subOf(config, "dnsEndpointConfig")
	if v, ok := private["enablePrivateNodes"]; ok {
		subOf(d, "networkConfig")["defaultEnablePrivateNodes"] = v
	}
	if v, ok := private["enablePrivateEndpoint"].(bool); ok {
		setDefault(ip, "enablePublicEndpoint", !v)
	}
	if _, given := ip["authorizedNetworksConfig"]; !given && old != nil {
		ip["authorizedNetworksConfig"] = clone(old)
	}
	setDefault(ip, "enabled", true)
	setDefault(ip, "enablePublicEndpoint", true)
	for _, k := range []string{"allowExternalTraffic", "enableK8sTokensViaDns", "enableK8sCertsViaDns"} {
		setDefault(dns, k, false)
	}
	return s.settleAuthorized(ip)
}

// settleAuthorized checks the networks that may reach the IP endpoints.
func (s *container) settleAuthorized(ip Doc) error {
	authorized := subOf(ip, "authorizedNetworksConfig")
	setDefault(authorized, "gcpPublicCidrsAccessEnabled", !truth(authorized, "enabled"))
	blocks := docs(authorized, "cidrBlocks")
	if len(blocks) > 100 {
		return s.containerInvalid("AuthorizedNetworksConfig may hold at most 100 CIDR blocks.")
	}
	for _, b := range blocks {
		p, err := netip.ParsePrefix(str(b, "cidrBlock"))
		if err != nil || p.Masked() != p {
			return s.containerInvalid("AuthorizedNetworksConfig.cidr_blocks: %q is not a valid CIDR block.", str(b, "cidrBlock"))
		}
	}
	if len(blocks) > 0 && !truth(authorized, "enabled") {
		return s.containerInvalid("AuthorizedNetworksConfig.cidr_blocks may only be specified if authorized networks are enabled.")
	}
	return nil
}
