package azure

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// A kubernetesVersion is a minor version that AKS offers ("Supported Kubernetes versions in AKS").
type kubernetesVersion struct {
	Minor   string
	Patches []string // oldest first
	// Default is what a cluster gets that asks for none; LongTerm: only with the support plan AKSLongTermSupport.
	Default, LongTerm bool
}

// kubernetesVersions are those of late 2026: 1.34 to 1.36 are in community support, 1.33 in long-term support.
var kubernetesVersions = []kubernetesVersion{
	{Minor: "1.33", Patches: []string{"1.33.11", "1.33.12"}, LongTerm: true},
	{Minor: "1.34", Patches: []string{"1.34.7", "1.34.8"}},
	{Minor: "1.35", Patches: []string{"1.35.4", "1.35.5"}, Default: true},
	{Minor: "1.36", Patches: []string{"1.36.1", "1.36.2"}},
}

const (
	officialSupport = "KubernetesOfficial"
	longTermSupport = "AKSLongTermSupport"
)

// findKubernetes finds a version by its minor or full name, and the patch that it stands for; an empty name is the default.
func findKubernetes(name string) (v kubernetesVersion, patch string, ok bool) {
	for _, v := range kubernetesVersions {
		newest := v.Patches[len(v.Patches)-1]
		switch {
		case name == "" && v.Default, name == v.Minor:
			return v, newest, true
		case slices.Contains(v.Patches, name):
			return v, name, true
		}
	}
	return kubernetesVersion{}, "", false
}

// minorOf is the second number of a version: 35 of 1.35.4.
func minorOf(version string) int {
	parts := strings.Split(version, ".")
	if len(parts) < 2 {
		return -1
	}
	n, err := strconv.Atoi(parts[1])
	if err != nil {
		return -1
	}
	return n
}

// patchOf is the third number of a version.
func patchOf(version string) int {
	parts := strings.Split(version, ".")
	if len(parts) < 3 {
		return 0
	}
	n, err := strconv.Atoi(parts[2])
	if err != nil {
		return 0
	}
	return n
}

// upgradesOf are the full versions to which one can be upgraded: newer patches, and those of the next minor.
func upgradesOf(version string) []string {
	out := []string{}
	for _, v := range kubernetesVersions {
		for _, p := range v.Patches {
			if minorOf(p) == minorOf(version) && patchOf(p) > patchOf(version) || minorOf(p) == minorOf(version)+1 {
				out = append(out, p)
			}
		}
	}
	return out
}

func notOffered(code, version string) *Error {
	return refuseCluster(http.StatusBadRequest, code, "", "Version %s is not supported in this region. Please use [az aks get-versions] command to get the supported version list in this region. For more information, please check https://aka.ms/supported-version-list", version)
}

// clusterVersion is the version that a cluster is to have, short as it was asked for and in full.
func clusterVersion(now, old *Resource) (asked, full string, e *Error) {
	asked = now.Properties.str("kubernetesVersion")
	if old != nil {
		was := old.Properties.str("currentKubernetesVersion")
		if asked == "" || asked == old.Properties.str("kubernetesVersion") || asked == was {
			if asked == "" {
				asked = old.Properties.str("kubernetesVersion")
			}
			return asked, was, nil
		}
	}
	v, full, ok := findKubernetes(asked)
	if !ok {
		return "", "", refuseCluster(http.StatusBadRequest, "K8sVersionNotSupported", "", "Managed cluster %s is on version %s which is not supported in this region. Please use [az aks get-versions] command to get the supported version list in this region. For more information, please check https://aka.ms/supported-version-list", now.Name, asked)
	}
	if asked == "" {
		asked = v.Minor
	}
	plan := now.Properties.str("supportPlan")
	if v.LongTerm && plan != longTermSupport {
		return "", "", refuseCluster(http.StatusBadRequest, "K8sVersionNotSupported", "", "Managed cluster %s is on version %s, which is only available for Long-Term Support (LTS). If you intend to onboard to LTS, please ensure the cluster is in Premium tier and LTS support plan. Otherwise, use [az aks get-versions] command to get the supported version list in this region. For more information, please check https://aka.ms/supported-version-list", now.Name, full)
	}
	if old != nil {
		was := old.Properties.str("currentKubernetesVersion")
		if !slices.Contains(upgradesOf(was), full) {
			return "", "", refuseCluster(http.StatusBadRequest, "OperationNotAllowed", "", "Upgrading Kubernetes version %s to %s is not allowed. Available upgrades: %v. Please see https://aka.ms/aks-supported-k8s-ver for version details.", was, full, upgradesOf(was))
		}
	}
	return asked, full, nil
}

// poolVersion is the version of a pool; it may lag behind its cluster's but not be ahead of it.
func poolVersion(now, old, cluster *Resource) (asked, full string, e *Error) {
	plane := cluster.Properties.str("currentKubernetesVersion")
	asked = now.Properties.str("orchestratorVersion")
	if old != nil && (asked == "" || asked == old.Properties.str("orchestratorVersion")) {
		return old.Properties.str("orchestratorVersion"), old.Properties.str("currentOrchestratorVersion"), nil
	}
	if asked == "" || asked == cluster.Properties.str("kubernetesVersion") || asked == plane {
		if asked == "" {
			asked = cluster.Properties.str("kubernetesVersion")
		}
		return asked, plane, nil
	}
	_, full, ok := findKubernetes(asked)
	if !ok {
		return "", "", notOffered("AgentPoolK8sVersionNotSupported", asked)
	}
	if minorOf(full) > minorOf(plane) || minorOf(full) == minorOf(plane) && patchOf(full) > patchOf(plane) || minorOf(full) < minorOf(plane)-3 {
		return "", "", refuseCluster(http.StatusBadRequest, "NodePoolMcVersionIncompatible", "", "Node pool version %s and control plane version %s are incompatible. Minor version of node pool version %d is bigger than control plane version %d. For more information, please check https://aka.ms/aks/UpgradeVersionRules",
			full, plane, minorOf(full), minorOf(plane))
	}
	return asked, full, nil
}

// addClusterVersions registers what a location offers, and the upgrades of clusters and pools.
func (c *Cloud) addClusterVersions() {
	const cluster = "/subscriptions/{subscription}/resourceGroups/{group}/providers/" + clusterType + "/{cluster}"
	c.handle(
		route{method: "GET", pattern: "/subscriptions/{subscription}/providers/Microsoft.ContainerService/locations/{location}/kubernetesVersions", service: clusterService,
			operation: "ManagedClusters_ListKubernetesVersions", kind: clusterType, versions: clusterVersions, serve: c.listKubernetesVersions},
		route{method: "GET", pattern: cluster + "/upgradeProfiles/default", service: clusterService, operation: "ManagedClusters_GetUpgradeProfile", kind: clusterType,
			versions: clusterVersions, serve: c.clusterUpgrades},
		route{method: "GET", pattern: cluster + "/agentPools/{pool}/upgradeProfiles/default", service: clusterService, operation: "AgentPools_GetUpgradeProfile", kind: poolType,
			versions: clusterVersions, serve: c.poolUpgrades})
}

func (c *Cloud) listKubernetesVersions(r *request) (answer, error) {
	if !isLocation(r.vars["location"]) {
		return answer{}, noRegistered(r, "locations/kubernetesVersions")
	}
	values := []any{}
	for _, v := range kubernetesVersions {
		plans := []any{officialSupport, longTermSupport}
		if v.LongTerm {
			plans = []any{longTermSupport}
		}
		patches := map[string]any{}
		for _, p := range v.Patches {
			patches[p] = map[string]any{"upgrades": upgradesOf(p)}
		}
		one := map[string]any{"version": v.Minor, "capabilities": map[string]any{"supportPlan": plans}, "patchVersions": patches}
		if v.Default {
			one["isDefault"] = true
		}
		values = append(values, one)
	}
	return plain(map[string]any{"values": values}), nil
}

func upgradeList(version string) []any {
	out := []any{}
	for _, u := range upgradesOf(version) {
		out = append(out, map[string]any{"kubernetesVersion": u})
	}
	return out
}

// routed is the cluster or pool that a route's path is about, without what follows it.
func (c *Cloud) routed(r *request, suffix string) (*Resource, error) {
	path := r.path[:len(r.path)-len(suffix)]
	res := c.find(path)
	if res == nil {
		id, _ := parseID(path)
		r.id = id
		return nil, c.missing(r, r.kind)
	}
	r.Touch(res.ID)
	return res, nil
}

func (c *Cloud) clusterUpgrades(r *request) (answer, error) {
	cluster, err := c.routed(r, "/upgradeProfiles/default")
	if err != nil {
		return answer{}, err
	}
	plane := cluster.Properties.str("currentKubernetesVersion")
	pools := []any{}
	for _, p := range c.poolsOf(cluster) {
		pools = append(pools, map[string]any{"name": p.Name, "osType": "Linux", "kubernetesVersion": p.Properties.str("currentOrchestratorVersion"), "upgrades": upgradeList(p.Properties.str("currentOrchestratorVersion"))})
	}
	return plain(map[string]any{"id": lowerGroup(cluster.ID) + "/upgradeprofiles/default", "name": "default", "type": clusterType + "/upgradeprofiles",
		"properties": map[string]any{"controlPlaneProfile": map[string]any{"kubernetesVersion": plane, "osType": "Linux", "upgrades": upgradeList(plane)}, "agentPoolProfiles": pools}}), nil
}

func (c *Cloud) poolUpgrades(r *request) (answer, error) {
	pool, err := c.routed(r, "/upgradeProfiles/default")
	if err != nil {
		return answer{}, err
	}
	props := map[string]any{"kubernetesVersion": pool.Properties.str("currentOrchestratorVersion"), "osType": "Linux", "latestNodeImageVersion": pool.Properties.str("nodeImageVersion")}
	cluster, all := c.clusterOf(pool), []any{}
	for _, u := range upgradesOf(pool.Properties.str("currentOrchestratorVersion")) {
		if plane := cluster.Properties.str("currentKubernetesVersion"); minorOf(u) < minorOf(plane) || minorOf(u) == minorOf(plane) && patchOf(u) <= patchOf(plane) {
			all = append(all, map[string]any{"kubernetesVersion": u})
		}
	}
	if len(all) > 0 {
		props["upgrades"] = all
	}
	return plain(map[string]any{"id": lowerGroup(pool.ID) + "/upgradeProfiles/default", "name": "default", "type": poolType + "/upgradeProfiles", "properties": props}), nil
}
