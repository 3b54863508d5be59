package azure

import (
	"net/http"
	"regexp"
	"strings"
)

var (
	labelValue = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`)
	labelKey   = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
)

// checkPool judges a pool by itself, and answers the size of its machines.
func (c *Cloud) checkPool(r *request, now, cluster *Resource) (*vmSize, *Error) {
	p := now.Properties
	if typ := p.str("type"); typ != "" && typ != "VirtualMachineScaleSets" {
		return nil, badParameter("agentPoolProfile.type", "The agent pool type %s is not offered: availability sets were retired on September 30, 2025, and pools of single machines are not simulated.", typ)
	}
	if strings.EqualFold(p.str("osType"), "Windows") {
		return nil, badParameter("agentPoolProfile.osType", "Windows agent pools are not simulated.")
	}
	size, e := c.checkPoolSize(now, cluster)
	if e != nil {
		return nil, e
	}
	if e := checkMode(p, size); e != nil {
		return nil, e
	}
	if e := checkCount(p); e != nil {
		return nil, e
	}
	if e := checkMarks(p); e != nil {
		return nil, e
	}
	if n := p.num("maxPods"); p.has("maxPods") && (n < 10 || n > 250) {
		return nil, badParameter("agentPoolProfile.maxPods", "The value of parameter agentPoolProfile.maxPods is invalid. It must be between 10 and 250.")
	}
	if p.flag("enableEncryptionAtHost") {
		if c.feature(r.subscription) != "Registered" {
			return nil, refuseCluster(http.StatusBadRequest, "SubscriptionNotEnabledEncryptionAtHost", "", "Subscription does not enable EncryptionAtHost.")
		}
		if size.Series.NoHostCrypt {
			return nil, badParameter("agentPoolProfile.enableEncryptionAtHost", "VM size %s does not support encryption at host.", size.Name)
		}
	}
	return size, nil
}

// checkPoolSize finds the size of a pool's machines, sold here and in the zones that are asked for.
func (c *Cloud) checkPoolSize(now, cluster *Resource) (*vmSize, *Error) {
	p := now.Properties
	if p.str("vmSize") == "" {
		p["vmSize"] = "Standard_D4ds_v5" // AKS picks one
	}
	size := findSize(p.str("vmSize"))
	if size == nil || size.Series.Restricted {
		return nil, refuseCluster(http.StatusBadRequest, "BadRequest", "", "The VM size of %s is not allowed in your subscription in location '%s'. The available VM sizes are '%s'. For more details, please visit https://aka.ms/cpu-quota", p.str("vmSize"), cluster.Location, strings.ToLower(strings.Join(vmSizeNames, ",")))
	}
	if e := checkZones(now.ID, "agentPool", cluster.Location, p.strs("availabilityZones")); e != nil {
		return nil, refuseCluster(http.StatusBadRequest, "AvailabilityZoneNotSupported", "", "Preflight validation check for resource(s) for container service %s in resource group %s failed. Message: %s. Details: ", cluster.Name, groupOf(cluster.ID), e.Message)
	}
	return size, nil
}

// checkCapacity asks whether there is room for more machines: what is not sold is refused at once, what is short is found later.
func (c *Cloud) checkCapacity(r *request, now, cluster *Resource, size *vmSize) *Error {
	zones := now.Properties.strs("availabilityZones")
	f := c.shortage(r.Call, cluster.Location, first(zones), now.ID, size.Name)
	if f == nil {
		return nil
	}
	if f.Code == "SkuNotAvailable" {
		return refuseCluster(http.StatusBadRequest, "SkuNotAvailable", "", "The requested VM size %s for resource '%s' is currently not available in location '%s' zones '%s' for subscription '%s'.", size.Name, now.ID, cluster.Location, strings.Join(zones, ","), r.subscription)
	}
	now.Top[doom] = map[string]any{"code": f.Code, "message": f.Message}
	return nil
}

// doom is the member of a pool that says how the making of its machines will end; it is never shown.
const doom = "doom"

// checkMode: what a system pool needs and may not have ("Use system node pools").
func checkMode(p doc, size *vmSize) *Error {
	if p.str("mode") == "ManagedSystem" {
		return badParameter("agentPoolProfile.mode", "Agent pools of mode ManagedSystem are not simulated.")
	}
	if p.str("mode") != "System" {
		return nil
	}
	switch {
	case p.str("scaleSetPriority") == "Spot":
		return badParameter("agentPoolProfile.scaleSetPriority", "A spot node pool cannot be a system node pool.")
	case size.CPUs < 2 || size.Memory < 4:
		return refuseCluster(http.StatusBadRequest, "SystemPoolSkuTooLow", "", "VM size %s is too small: a system agent pool needs a VM size of at least 2 vCPUs and 4GB memory. Please refer to https://aka.ms/aks-system-pool for details", size.Name)
	case p.has("count") && p.num("count") < 1 || p.flag("enableAutoScaling") && p.num("minCount") < 1:
		return badParameter("agentPoolProfile.count", "System node pool must have at least one node.")
	}
	for _, t := range append(p.strs("nodeTaints"), p.strs("nodeInitializationTaints")...) {
		if !strings.HasSuffix(t, ":PreferNoSchedule") && !strings.HasPrefix(t, "CriticalAddonsOnly=") {
			return refuseCluster(http.StatusBadRequest, "SystemPoolHasRestrictedTaint", "agentPoolProfile.nodeTaints", "Placing custom taints on system pool is not supported(except 'CriticalAddonsOnly' taint or taint effect is 'PreferNoSchedule'). Please refer to https://aka.ms/aks/system-taints for detail")
		}
	}
	return nil
}

// checkCount: how many nodes a pool may have, and between which limits the autoscaler moves.
func checkCount(p doc) *Error {
	n, low, high := p.num("count"), p.num("minCount"), p.num("maxCount")
	if n < 0 || n > maxMembers {
		return badParameter("agentPoolProfile.count", "The value of parameter agentPoolProfile.count is invalid. It must be between 0 and %d.", maxMembers)
	}
	if !p.flag("enableAutoScaling") {
		delete(p, "minCount")
		delete(p, "maxCount")
		return nil
	}
	switch {
	case !p.has("maxCount"):
		return badParameter("agentPoolProfile.maxCount", "Required parameter agentPoolProfile.maxCount is missing (null): autoscaling is enabled.")
	case !p.has("minCount"):
		return badParameter("agentPoolProfile.minCount", "Required parameter agentPoolProfile.minCount is missing (null): autoscaling is enabled.")
	case low > high || high > maxMembers || high < 1:
		return badParameter("agentPoolProfile.maxCount", "The value of parameter agentPoolProfile.maxCount is invalid. minCount must not be greater than maxCount, and maxCount at most %d.", maxMembers)
	}
	if !p.has("count") {
		p["count"] = max(low, 1)
	}
	if n := p.num("count"); n < low || n > high {
		return badParameter("agentPoolProfile.count", "The value of parameter agentPoolProfile.count is invalid. The count %v must be between minCount %v and maxCount %v.", n, low, high)
	}
	return nil
}

// checkMarks judges labels and taints.
func checkMarks(p doc) *Error {
	labels := p.sub("nodeLabels")
	for _, k := range sortedKeys(labels) {
		v, ok := labels[k].(string)
		if !ok || !labelKey.MatchString(k) || !labelValue.MatchString(v) {
			return badParameter("agentPoolProfile.nodeLabels", "The label %s=%v of parameter agentPoolProfile.nodeLabels is invalid.", k, labels[k])
		}
		if domain, _, _ := strings.Cut(k, "/"); k != spotMark && (domain == "kubernetes.azure.com" || domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") && domain != "node-restriction.kubernetes.io") {
			return badParameter("agentPoolProfile.nodeLabels", "The label key %s of parameter agentPoolProfile.nodeLabels is invalid: its prefix is reserved. Please refer to https://aka.ms/aks/custom-labels for details.", k)
		}
	}
	for _, t := range p.strs("nodeTaints") {
		taint, ok := parseTaint(t)
		if !ok || !labelKey.MatchString(taint.Key) || !labelValue.MatchString(taint.Value) {
			return badParameter("agentPoolProfile.nodeTaints", "The taint %s of parameter agentPoolProfile.nodeTaints is invalid. It must be of the form key=value:effect.", t)
		}
	}
	return nil
}

// checkPoolDisk judges the OS disk of a pool's machines.
func checkPoolDisk(now *Resource, size *vmSize) *Error {
	p := now.Properties
	gib := p.num("osDiskSizeGB")
	if gib < 30 || gib > 2048 {
		return badParameter("agentPoolProfile.osDiskSizeGB", "The value of parameter agentPoolProfile.osDiskSizeGB is invalid. It must be between 30 and 2048.")
	}
	if space := ephemeralSpace(size); p.str("osDiskType") == "Ephemeral" && space < gib {
		return refuseCluster(http.StatusBadRequest, "VMCacheSizeTooSmall", "", "The virtual machine size %s has a cache size of %d bytes, but the OS disk requires %d bytes. Use a VM size with larger cache or disable ephemeral OS.", size.Name, int64(space*(1<<30)), int64(gib*(1<<30)))
	}
	return nil
}

// checkPoolSubnet judges the subnet that a pool's machines are to be in.
func (c *Cloud) checkPoolSubnet(r *request, now, old, cluster *Resource) *Error {
	p := now.Properties
	id := p.str("vnetSubnetID")
	if id == "" {
		if old == nil && c.vnetOf(cluster) != nil {
			return badParameter("agentPoolProfile.vnetSubnetID", "All agent pools of a cluster must be in the same virtual network: parameter agentPoolProfile.vnetSubnetID is missing.")
		}
		return nil
	}
	if parsed, ok := parseID(id); !ok || !c.owns(r.who, parsed.Subscription) {
		return asRefusal(c.linkedRefusal(r, now, id))
	}
	subnet := c.find(id)
	if subnet == nil || subnet.Type != subnetType || c.locationOf(subnet) != cluster.Location {
		return subnetMissing("agentPoolProfile.vnetSubnetID", id)
	}
	if other := c.vnetOf(cluster); other != nil && !strings.EqualFold(other.ID, parentOf(subnet.ID)) {
		return badParameter("agentPoolProfile.vnetSubnetID", "All or none of the agentpools should set subnet, and all of them must be in the same virtual network.")
	}
	if len(subnet.Properties.docs("delegations")) > 0 {
		return badParameter("agentPoolProfile.vnetSubnetID", "The subnet %s is delegated and cannot be used for nodes.", id)
	}
	if e := c.checkJoin(cluster, subnet); e != nil {
		return e
	}
	return c.checkRoom(now, old, cluster, subnet)
}

// checkRoom refuses a subnet without addresses enough: one a node, and one for each of its pods unless they have a network of their own
// ("Configure Azure CNI networking: plan IP addressing").
func (c *Cloud) checkRoom(now, old, cluster, subnet *Resource) *Error {
	p, n := now.Properties, cluster.Properties.sub("networkProfile")
	nodes := int(max(p.num("count"), p.num("maxCount")))
	if old != nil {
		nodes -= int(max(old.Properties.num("count"), old.Properties.num("maxCount")))
	} else {
		nodes++ // one more while nodes are replaced
	}
	each := 1
	if n.str("networkPlugin") == "azure" && !strings.EqualFold(n.str("networkPluginMode"), "overlay") && p.str("podSubnetID") == "" {
		each += int(p.num("maxPods"))
	}
	free := len(c.freeAddresses(subnet, max(0, nodes*each)))
	if nodes > 0 && free < nodes*each {
		return refuseCluster(http.StatusBadRequest, "InsufficientSubnetSize", "agentPoolProfile.vnetSubnetID", "Pre-allocated IPs %d exceeds IPs available %d in Subnet Cidr %s, Subnet Name %s. If Autoscaler is enabled, it will reserve (maxPods * max-node-count) IPs. http://aka.ms/aks/insufficientsubnetsize", nodes*each, free, subnet.Properties.str("addressPrefix"), subnet.Name)
	}
	return nil
}

// checkNodeQuota refuses more vCPUs than the subscription may have, before anything is made.
func (c *Cloud) checkNodeQuota(r *request, now *Resource, location string, size *vmSize, more int) *Error {
	total, families, _, _ := c.coresUsed(r.subscription, location)
	for _, pool := range c.shelves[clusterService].sorted() { // those whose machines have not been asked for yet count as well
		if pool.Type != poolType || key(pool.ID) == key(now.ID) || c.locationOf(pool) != location || !strings.EqualFold(subscriptionOf(pool.ID), r.subscription) {
			continue
		}
		if s := findSize(pool.Properties.str("vmSize")); c.find(c.setID(c.clusterOf(pool), pool)) == nil && s != nil {
			n := int(pool.Properties.num("count")) * s.CPUs
			total, families[s.Series.Family] = total+n, families[s.Series.Family]+n
		}
	}
	need := more * size.CPUs
	left := func(code string, used int) int {
		limit, ok := c.World.QuotaValue("azure", computeService, code, r.subscription, location)
		if !ok {
			return need
		}
		return max(0, int(limit)-used)
	}
	if n := left(quotaCode, total); n < need {
		return refuseCluster(http.StatusBadRequest, "ErrCode_InsufficientVCPUQuota", "", "Insufficient regional vcpu quota left for location %s. left regional vcpu quota %d, requested quota %d. If you want to increase the quota, please follow this instruction: https://learn.microsoft.com/en-us/azure/quotas/view-quotas. Surge nodes would also consume vcpu quota, please consider use smaller maxSurge or use maxUnavailable to proceed upgrade without surge nodes.", location, n, need)
	}
	if n := left(size.Series.Family, families[size.Series.Family]); n < need {
		return refuseCluster(http.StatusBadRequest, "ErrCode_InsufficientVCPUQuota", "", "Insufficient vcpu quota requested %d, remaining %d for family %s for region %s. If you want to increase the quota, please follow this instruction: https://learn.microsoft.com/en-us/azure/quotas/view-quotas.", need, n, size.Series.Family, location)
	}
	return nil
}
