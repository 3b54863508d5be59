package azure

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// computedByPool are the properties that a pool computes.
var computedByPool = []string{"provisioningState", "powerState", "currentOrchestratorVersion", "nodeImageVersion", "eTag", "status"}

// putPool makes an agent pool, or changes one.
func (c *Cloud) putPool(r *request, now, old *Resource) (outcome, error) {
	cluster := c.clusterOf(now)
	if cluster.Properties.str("powerState.code") == "Stopped" {
		return outcome{}, refuseCluster(http.StatusBadRequest, "OperationNotAllowed", "", "Agentpool operation is not allowed because the managed cluster %s is stopped. Please start it before.", cluster.Name)
	}
	limit := 100
	if old == nil && len(c.poolsOf(cluster)) >= limit {
		return outcome{}, refuseCluster(http.StatusBadRequest, "QuotaExceeded", "agentPoolProfiles", "A cluster can have %d agent pools.", limit)
	}
	if e := c.judgePool(r, now, old, cluster); e != nil {
		return outcome{}, e
	}
	out := outcome{state: stateCreating, takes: clusterLimit, style: asyncHeader}
	takes := c.pace(100*time.Second, 150*time.Second, now.ID)
	if old != nil {
		p, was := now.Properties, old.Properties
		switch {
		case p.str("currentOrchestratorVersion") != was.str("currentOrchestratorVersion"):
			out.state, takes = "Upgrading", time.Duration(p.num("count")+1)*time.Minute
		case p.num("count") != was.num("count"):
			out.state, takes = "Scaling", c.pace(50*time.Second, 90*time.Second, "scale "+now.ID)
		default:
			out.state, takes = stateUpdating, c.pace(8*time.Second, 15*time.Second, "update "+now.ID)
		}
		if old.State == stateFailed {
			takes += time.Minute
		}
	}
	c.poolAfter(5*time.Second, now, takes)
	return out, nil
}

// judgePool completes and checks what a pool is to be, as part of its cluster or by itself.
func (c *Cloud) judgePool(r *request, now, old, cluster *Resource) *Error {
	p := now.Properties
	dropNulls(map[string]any(p))
	for _, name := range computedByPool {
		delete(p, name)
	}
	if old != nil {
		inheritDoc(p, old.Properties.clone())
		if e := frozenPool(now, old); e != nil {
			return e
		}
	}
	size, e := c.checkPool(r, now, cluster)
	if e != nil {
		return e
	}
	asked, full, e := poolVersion(now, old, cluster)
	if e != nil {
		return e
	}
	p["orchestratorVersion"], p["currentOrchestratorVersion"] = asked, full
	fillPool(r, now, cluster, size)
	if e := checkPoolDisk(now, size); e != nil {
		return e
	}
	if e := c.checkPoolSubnet(r, now, old, cluster); e != nil {
		return e
	}
	was := 0
	if old != nil {
		was = int(old.Properties.num("count"))
	}
	more := int(p.num("count")) - was
	if more <= 0 {
		return nil
	}
	if e := c.checkNodeQuota(r, now, cluster.Location, size, more); e != nil {
		return e
	}
	return c.checkCapacity(r, now, cluster, size)
}

// frozenPool refuses to change what is fixed when a pool is made ("Manage node pools").
func frozenPool(now, old *Resource) *Error {
	for _, name := range []string{"vmSize", "osDiskSizeGB", "osDiskType", "osType", "kubeletDiskType", "maxPods", "vnetSubnetID", "podSubnetID", "type", "scaleSetPriority", "scaleSetEvictionPolicy",
		"enableEncryptionAtHost", "enableUltraSSD", "enableNodePublicIP", "availabilityZones", "nodePublicIPPrefixID", "proximityPlacementGroupID"} {
		was, is := old.Properties[name], now.Properties[name]
		if name == "osDiskSizeGB" && now.Properties.num(name) == 0 {
			now.Properties[name] = was
			continue
		}
		if was == nil && (is == false || is == "Regular" || is == "" || is == "Delete") {
			continue
		}
		if name == "availabilityZones" {
			a, b := now.Properties.strs(name), old.Properties.strs(name)
			slices.Sort(a)
			slices.Sort(b)
			if !slices.Equal(a, b) {
				return frozenProperty("properties." + name)
			}
			continue
		}
		if !strings.EqualFold(text(was), text(is)) {
			return frozenProperty("properties." + name)
		}
	}
	return nil
}

// fillPool adds what a pool has though nobody said it.
func fillPool(r *request, now, cluster *Resource, size *vmSize) {
	p := now.Properties
	p["vmSize"] = size.Name
	if p.num("osDiskSizeGB") == 0 {
		p["osDiskSizeGB"] = float64(defaultDisk)
	}
	if p["osDiskType"] == nil {
		p["osDiskType"] = "Managed"
		if ephemeralSpace(size) >= p.num("osDiskSizeGB") {
			p["osDiskType"] = "Ephemeral" // where it fits ("Ephemeral OS disks: default OS disk sizing")
		}
	}
	p.def("kubeletDiskType", "OS")
	p.def("type", "VirtualMachineScaleSets")
	p.def("mode", "User")
	p.def("osType", "Linux")
	p.def("osSKU", "Ubuntu")
	p.def("count", 3.0)
	p.def("powerState", map[string]any{"code": "Running"})
	p.def("enableFIPS", false)
	p.def("scaleDownMode", "Delete")
	p.def("maxPods", float64(podsOf(cluster.Properties.sub("networkProfile"))))
	p.def("nodeImageVersion", nodeImage(p.str("osSKU"), size))
	fillUpgrades(r, p)
	if r.version >= etagSince {
		if p.sub("securityProfile") == nil {
			p["securityProfile"] = map[string]any{}
		}
		sec := p.sub("securityProfile")
		sec.def("sshAccess", "LocalUser")
		if strings.EqualFold(sec.str("sshAccess"), "localuser") {
			sec["sshAccess"] = "LocalUser"
		}
		sec.def("enableVTPM", false)
		sec.def("enableSecureBoot", false)
	}
	if p.str("scaleSetPriority") == "Spot" {
		p.def("scaleSetEvictionPolicy", "Delete")
		p.def("spotMaxPrice", -1.0)
		spot(p)
		return
	}
	// What is so anyway is not shown.
	for _, name := range []string{"scaleSetPriority", "scaleSetEvictionPolicy", "spotMaxPrice"} {
		delete(p, name)
	}
}

// podsOf is how many pods a node may have when nobody says ("Configure maximum pods").
func podsOf(network doc) int {
	switch {
	case strings.EqualFold(network.str("networkPluginMode"), "overlay") || network.str("networkDataplane") == "cilium":
		return 250
	case network.str("networkPlugin") == "kubenet":
		return 110
	}
	return 30
}

// nodeImage is the name of the image that nodes are made from.
func nodeImage(osSKU string, size *vmSize) string {
	image := "AKSUbuntu-2404gen2containerd-202611.10.0"
	if size.Series.Arch == "Arm64" {
		image = "AKSUbuntu-2404gen2arm64containerd-202611.10.0"
	}
	if strings.HasPrefix(osSKU, "AzureLinux") {
		return strings.Replace(image, "AKSUbuntu-2404", "AKSAzureLinux-V3", 1)
	}
	return image
}

// fillUpgrades says how many nodes are replaced at a time: the pools that come with a cluster have another default than those that are
// added.
func fillUpgrades(r *request, p doc) {
	if p.sub("upgradeSettings") == nil {
		if r.version < etagSince && !r.nesting {
			return
		}
		p["upgradeSettings"] = map[string]any{}
	}
	s := p.sub("upgradeSettings")
	if r.nesting && r.version > "2023-09-01" && !s.has("maxUnavailable") {
		s.def("maxSurge", "10%")
	}
	if r.version >= etagSince {
		s.def("maxUnavailable", "0")
	}
}

const (
	spotMark = "kubernetes.azure.com/scalesetpriority"
	// defaultDisk is the size of an OS disk in GiB when nobody says another.
	defaultDisk = 128
)

// spot marks the nodes of a pool of spot machines ("Add an Azure Spot node pool").
func spot(p doc) {
	if p.sub("nodeLabels") == nil {
		p["nodeLabels"] = map[string]any{}
	}
	p.sub("nodeLabels")[spotMark] = "spot"
	taint := spotMark + "=spot:NoSchedule"
	if !slices.Contains(p.strs("nodeTaints"), taint) {
		p["nodeTaints"] = append(p.list("nodeTaints"), taint)
	}
}

// ephemeralSpace is how many GiB an ephemeral OS disk may have on a size of machine.
func ephemeralSpace(size *vmSize) float64 { return max(size.cache(), size.temp()) }

func (c *Cloud) removePool(_ *request, pool *Resource) (outcome, error) {
	pools := c.poolsOf(c.clusterOf(pool))
	system := 0
	for _, p := range pools {
		if p.Properties.str("mode") == "System" && p.State != stateDeleting {
			system++
		}
	}
	switch {
	case len(pools) == 1:
		return outcome{}, refuseCluster(http.StatusBadRequest, "OperationNotAllowed", "", "There has to be at least one agent pool.")
	case pool.Properties.str("mode") == "System" && system == 1:
		return outcome{}, refuseCluster(http.StatusBadRequest, "OperationNotAllowed", "", "There has to be at least one system agent pool.")
	}
	if op := c.shelves[clusterService].state.Operations[pool.Operation]; op != nil {
		preempt(op)
	}
	return outcome{status: http.StatusAccepted, state: stateDeleting, takes: c.pace(80*time.Second, 130*time.Second, "delete "+pool.ID), style: asyncLocation, empty: true}, nil
}

// poolRemoved takes the machines of a pool along.
func (c *Cloud) poolRemoved(pool *Resource) {
	cluster := c.clusterOf(pool)
	if cluster == nil {
		return
	}
	if set := c.find(c.setID(cluster, pool)); set != nil {
		c.drop(set)
	}
}

// showAgentPool writes a pool as the provider does.
func (c *Cloud) showAgentPool(r *request, pool *Resource, body doc) {
	body["id"] = lowerGroup(pool.ID)
	delete(body, doom)
	props := body.sub("properties")
	c.trimPool(r, pool, props)
	if r.version < etagSince {
		props["scaleDownMode"] = pool.Properties["scaleDownMode"]
	}
	delete(props, "name")
}

// trimPool leaves out of a pool what an api-version does not show.
func (c *Cloud) trimPool(r *request, pool *Resource, p doc) {
	if r.version >= etagSince && (p["name"] == nil || pool.State != stateCreating) {
		p["eTag"] = pool.Etag
	}
	if r.version < etagSince {
		delete(p, "scaleDownMode")
		if p.sub("upgradeSettings") != nil {
			delete(p.sub("upgradeSettings"), "maxUnavailable")
		}
		delete(p, "securityProfile")
	}
	for _, name := range []string{"nodeLabels", "nodeTaints", "tags"} {
		empty := len(p.sub(name)) == 0 && len(p.list(name)) == 0
		if empty && (name != "nodeLabels" || r.method != http.MethodPut) {
			delete(p, name)
		}
	}
}
