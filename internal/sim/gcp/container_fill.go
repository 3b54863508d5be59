package gcp

import (
	"slices"
)

// oauthScopes are the scopes of nodes when nothing is said ("Access scopes in GKE").
var oauthScopes = []string{"https://www.googleapis.com/auth/devstorage.read_only", "https://www.googleapis.com/auth/logging.write", "https://www.googleapis.com/auth/monitoring",
	"https://www.googleapis.com/auth/service.management.readonly", "https://www.googleapis.com/auth/servicecontrol", "https://www.googleapis.com/auth/trace.append"}

// monitored are the components whose metrics are collected when nothing is said.
var monitored = []string{"SYSTEM_COMPONENTS", "DAEMONSET", "DEPLOYMENT", "STATEFULSET", "JOBSET", "STORAGE", "HPA", "POD", "CADVISOR", "KUBELET", "DCGM"}

// fillCluster fills in what the caller left out, as clusters of the API show it: what hardens a cluster is off unless it was asked
// for.
func (s *container) fillCluster(c *cluster) {
	d := c.Doc
	dropFalse(d)
	for _, k := range []string{"autopilot", "binaryAuthorization", "legacyAbac", "userManagedKeysConfig"} {
		subOf(d, k)
	}
	if n := sub(d, "networkPolicy"); n != nil && len(n) == 0 {
		delete(d, "networkPolicy")
	}
	// The recordings of July 2026, with 1.36, have LIMITED where those before have ENABLED.
	anonymous := "ENABLED"
	if compareVersions(str(d, "initialClusterVersion"), "1.36") >= 0 {
		anonymous = "LIMITED"
	}
	fillIn(d, Doc{
		"anonymousAuthenticationConfig": Doc{"mode": anonymous}, "databaseEncryption": Doc{"state": "DECRYPTED"}, "defaultMaxPodsConstraint": Doc{"maxPodsPerNode": "110"},
		"controlPlaneEgress": Doc{"mode": "VIA_CONTROL_PLANE"}, "nodeCreationConfig": Doc{"nodeCreationMode": "VIA_KUBELET"},
		"autoscaling": Doc{"autoscalingProfile": "BALANCED", "autoprovisioningNodePoolDefaults": Doc{"imageType": "COS_CONTAINERD", "management": Doc{"autoRepair": true, "autoUpgrade": true},
			"oauthScopes": anys(oauthScopes), "serviceAccount": "default"}},
		"enterpriseConfig": Doc{"clusterTier": "STANDARD"}, "loggingConfig": Doc{"componentConfig": Doc{"enableComponents": []any{"SYSTEM_COMPONENTS", "WORKLOADS"}}},
		"addonsConfig": Doc{"gcePersistentDiskCsiDriverConfig": Doc{"enabled": true}, "kubernetesDashboard": Doc{"disabled": true}, "networkPolicyConfig": Doc{"disabled": true},
			"nodeReadinessConfig": Doc{}},
		"monitoringConfig": Doc{"advancedDatapathObservabilityConfig": Doc{}, "componentConfig": Doc{"enableComponents": anys(monitored)}, "managedPrometheusConfig": Doc{"enabled": true}},
		"networkConfig":    Doc{"defaultSnatStatus": Doc{}, "serviceExternalIpsConfig": Doc{}}, "masterAuth": Doc{"clientCertificateConfig": Doc{}},
		"nodePoolAutoConfig": Doc{"nodeKubeletConfig": Doc{"insecureKubeletReadonlyPortEnabled": false}},
		"nodePoolDefaults": Doc{"nodeConfigDefaults": Doc{"loggingConfig": Doc{"variantConfig": Doc{"variant": "DEFAULT"}},
			"nodeKubeletConfig": Doc{"insecureKubeletReadonlyPortEnabled": false}}},
		"notificationConfig": Doc{"pubsub": Doc{}}, "podAutoscaling": Doc{"hpaProfile": "PERFORMANCE"},
		"rbacBindingConfig":     Doc{"enableInsecureBindingSystemAuthenticated": true, "enableInsecureBindingSystemUnauthenticated": true},
		"securityPostureConfig": Doc{"mode": "BASIC", "vulnerabilityMode": "VULNERABILITY_MODE_UNSPECIFIED"}, "shieldedNodes": Doc{"enabled": true},
		"ipAllocationPolicy": Doc{"podCidrOverprovisionConfig": Doc{}, "networkTierConfig": Doc{"networkTier": "NETWORK_TIER_DEFAULT"}}, "maintenancePolicy": Doc{},
	})
	s.fillServices(d)
	encrypted := "CURRENT_STATE_DECRYPTED"
	if str(sub(d, "databaseEncryption"), "state") == "ENCRYPTED" {
		encrypted = "CURRENT_STATE_ENCRYPTED"
	}
	sub(d, "databaseEncryption")["currentState"] = encrypted
	policy := sub(d, "maintenancePolicy")
	delete(policy, "resourceVersion")
	policy["resourceVersion"] = fingerprint(policy)[:8]
	d["labelFingerprint"] = fingerprint(d["resourceLabels"])[:8]
	delete(d, "privateClusterConfig") // it follows from the endpoints
	delete(d, "masterAuthorizedNetworksConfig")
	if str(d, "id") == "" {
		d["id"] = s.cloud.World.Hex("", 64)
	}
	d["name"], d["location"], d["zone"], d["selfLink"] = c.name(), c.location(), c.location(), containerLink(c.Path)
	d["createTime"] = c.Created.UTC().Format("2006-01-02T15:04:05+00:00")
	setDefault(d, "status", "PROVISIONING")
}

// fillServices keeps the older names of the logging and monitoring services in step with the components.
func (s *container) fillServices(d Doc) {
	for _, f := range []struct{ config, service, name string }{{"loggingConfig", "loggingService", "logging"}, {"monitoringConfig", "monitoringService", "monitoring"}} {
		if str(d, f.service) == "none" {
			continue
		}
		d[f.service] = f.name + ".googleapis.com/kubernetes"
		if components := list(sub(sub(d, f.config), "componentConfig"), "enableComponents"); len(components) == 0 {
			d[f.service] = "none"
		}
	}
}

// fillIn sets what is not there, at any depth; lists and values that are there stay. A flag that is not optional is off in a message
// that was given without it, whatever it is when the whole message is left out.
func fillIn(d, defaults Doc) {
	for k, v := range defaults {
		have, ok := d[k]
		m, isDoc := v.(map[string]any)
		_, flag := v.(bool)
		switch inner, _ := have.(map[string]any); {
		case !ok && isDoc:
			d[k] = clone(m)
		case !ok && (!flag || slices.Contains(kept, k)):
			d[k] = v
		case isDoc && inner != nil:
			fillIn(inner, m)
		}
	}
}

// kept are the fields that show false: they are optional in the API's messages, so that false is not the same as nothing.
var kept = []string{"allowExternalTraffic", "enableK8sTokensViaDns", "enableK8sCertsViaDns", "enablePublicEndpoint", "gcpPublicCidrsAccessEnabled",
	"insecureKubeletReadonlyPortEnabled", "enablePrivateNodes", "enableInsecureBindingSystemAuthenticated", "enableInsecureBindingSystemUnauthenticated"}

// dropFalse takes away what is false, zero or empty, as the API does not show it. A list that is empty stays: it may mean none.
func dropFalse(d Doc) {
	for k, v := range d {
		switch x := v.(type) {
		case bool:
			if !x && !slices.Contains(kept, k) {
				delete(d, k)
			}
		case string:
			if x == "" {
				delete(d, k)
			}
		case float64:
			if x == 0 {
				delete(d, k)
			}
		case map[string]any:
			dropFalse(x)
			if k == "window" && len(x) == 0 {
				delete(d, k)
			}
		case []any:
			for _, item := range x {
				if m, ok := item.(map[string]any); ok {
					dropFalse(m)
				}
			}
		case nil:
			delete(d, k)
		}
	}
}

// shown is a cluster as GET answers it.
func (s *container) shown(c *cluster) Doc {
	d := clone(c.Doc)
	var pools, groups []any
	nodes := 0
	for _, p := range c.Pools {
		shown := s.shownPool(c, p)
		pools = append(pools, shown)
		groups = append(groups, list(shown, "instanceGroupUrls")...)
		nodes += len(s.nodesOf(p))
		setDefault(d, "nodeConfig", clone(sub(shown, "config")))
		setDefault(d, "currentNodeVersion", str(shown, "version"))
	}
	if len(pools) > 0 {
		d["nodePools"] = pools
	}
	if len(groups) > 0 {
		d["instanceGroupUrls"] = groups
	}
	if nodes > 0 {
		d["currentNodeCount"] = float64(nodes)
	}
	if used := s.podsUsed(c, c.Pools); used > 0 {
		sub(d, "ipAllocationPolicy")["defaultPodIpv4RangeUtilization"] = used
	}
	s.showEndpoints(c, d)
	if conditions := s.conditions(c); len(conditions) > 0 {
		d["conditions"] = conditions
	}
	if c.FaultText != "" {
		d["statusMessage"] = c.FaultText
	}
	d["etag"] = fingerprint(d)
	return d
}

// conditions are what is wrong with a cluster.
func (s *container) conditions(c *cluster) []any {
	var out []any
	if c.Fault != "" {
		out = append(out, Doc{"code": conditionCode(c.Fault), "message": c.FaultText})
	}
	for _, p := range c.Pools {
		account := s.nodeAccount(c, p)
		if _, ok := s.cloud.hooks.serviceAccount(account); !ok {
			out = append(out, Doc{"code": "GKE_SERVICE_ACCOUNT_DELETED", "canonicalCode": "NOT_FOUND", "message": "The node service account " + account + " does not exist."})
		} else if !s.nodeRoles(c.project(), account) {
			out = append(out, Doc{"code": "NODE_SERVICE_ACCOUNT_MISSING_PERMISSIONS", "canonicalCode": "PERMISSION_DENIED",
				"message": "The node service account " + account + " is missing permissions: grant it roles/container.defaultNodeServiceAccount."})
		}
	}
	if key := str(sub(c.Doc, "databaseEncryption"), "keyName"); key != "" && str(sub(c.Doc, "databaseEncryption"), "state") == "ENCRYPTED" {
		switch state, _ := s.cloud.kms.usable(key); state {
		case "ENABLED":
		case "DESTROYED", "":
			out = append(out, Doc{"code": "CLOUD_KMS_KEY_DESTROYED", "canonicalCode": "FAILED_PRECONDITION", "message": "The Cloud KMS key " + key + " was destroyed."})
		default:
			out = append(out, Doc{"code": "CLOUD_KMS_KEY_ERROR", "canonicalCode": "FAILED_PRECONDITION", "message": "The Cloud KMS key " + key + " cannot be used: it is " + state + "."})
		}
	}
	return out
}

// conditionCode is the code of a condition, UNKNOWN for one that is none.
func conditionCode(code string) string {
	if slices.Contains([]string{"GCE_STOCKOUT", "GKE_SERVICE_ACCOUNT_DELETED", "GCE_QUOTA_EXCEEDED", "SET_BY_OPERATOR", "CLOUD_KMS_KEY_ERROR", "CA_EXPIRING",
		"NODE_SERVICE_ACCOUNT_MISSING_PERMISSIONS", "CLOUD_KMS_KEY_DESTROYED"}, code) {
		return code
	}
	return "UNKNOWN"
}
