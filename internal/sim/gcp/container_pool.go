package gcp

import (
	"slices"
	"strings"
)

func (s *container) createPool(r *request) (any, error) {
	c, err := s.change(r)
	if err != nil {
		return nil, err
	}
	if err := s.running(c); err != nil {
		return nil, err
	}
	in := sub(r.Body, "nodePool")
	if in == nil {
		return nil, s.containerInvalid("NodePool must be specified.")
	}
	name := str(in, "name")
	if c.pool(name) != nil {
		return nil, refuse(409, "alreadyExists", "Already exists: %s/nodePools/%s.", zonal(c.Path), name)
	}
	if len(c.Pools) >= maxNodePools {
		return nil, refuse(403, "quotaExceeded", "A cluster may have at most %d node pools.", maxNodePools)
	}
	p, err := s.preparePool(c, clone(in))
	if err != nil {
		return nil, err
	}
	if err := s.checkCapacity(c, []*nodePool{p}); err != nil {
		return nil, err
	}
	s.fillPoolNetwork(c, p)
	c.Pools = append(c.Pools, p)
	return s.start(r, "CREATE_NODE_POOL", "createPool", c, c.Path+"/nodePools/"+name, Doc{"pool": name}), nil
}

// preparePool checks a node pool and fills it up ("REST Resource: projects.locations.clusters.nodePools").
func (s *container) preparePool(c *cluster, d Doc) (*nodePool, error) {
	name := str(d, "name")
	if !clusterName.MatchString(name) {
		return nil, s.containerInvalid("Invalid value for field \"node_pool.name\": %q. Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,38}[a-z0-9])?)'.", name)
	}
	if c.pool(name) != nil {
		return nil, s.containerInvalid("Node pool name %q is used twice.", name)
	}
	p := &nodePool{Name: name, Created: s.cloud.World.Now(), Doc: d}
	dropFalse(d)
	for _, check := range []func(*cluster, Doc) error{s.poolVersion, s.poolPlace, s.poolScaling, s.poolManagement} {
		if err := check(c, d); err != nil {
			return nil, err
		}
	}
	p.Size = int(num(d, "initialNodeCount"))
	if err := s.fillPool(c, d); err != nil {
		return nil, err
	}
	if err := s.poolConfig(c, p, sub(d, "config")); err != nil {
		return nil, err
	}
	d["status"] = "PROVISIONING"
	return p, nil
}

func (s *container) poolVersion(c *cluster, d Doc) error {
	master := orText(str(c.Doc, "currentMasterVersion"), str(c.Doc, "initialClusterVersion"))
	asked := str(d, "version")
	if asked == "" || asked == "-" || asked == master {
		d["version"] = master
		return nil
	}
	versions, _ := channelOf(str(sub(c.Doc, "releaseChannel"), "channel")) // set with the cluster
	version, ok := resolveVersion(channelVersions{valid: versions.valid, byDefault: master}, asked)
	if !ok {
		return s.containerInvalid("Node version %q is unsupported.", asked)
	}
	if compareVersions(version, master) > 0 {
		return s.containerInvalid("Node version %q must not have a greater version than the control plane, %q.", version, master)
	}
	d["version"] = version
	return nil
}

func (s *container) poolPlace(c *cluster, d Doc) error {
	zones := texts(d, "locations")
	if len(zones) == 0 {
		zones = texts(c.Doc, "locations")
	}
	for _, z := range zones {
		if !zoneExists(z) || regionOf(z) != c.region() {
			return s.containerInvalid("NodePool.locations: the zone %q is not in the region %q.", z, c.region())
		}
	}
	d["locations"] = anys(zones)
	if m := str(sub(d, "maxPodsConstraint"), "maxPodsPerNode"); m != "" && (atoi(m) < 8 || atoi(m) > 256) {
		return s.containerInvalid("NodePool.max_pods_constraint.max_pods_per_node must be between 8 and 256.")
	}
	return nil
}

// poolScaling checks how a pool grows and shrinks ("About GKE cluster autoscaling").
func (s *container) poolScaling(_ *cluster, d Doc) error {
	a := sub(d, "autoscaling")
	if !truth(a, "enabled") {
		delete(d, "autoscaling")
		return s.poolCount(num(d, "initialNodeCount"))
	}
	least, most := num(a, "minNodeCount"), num(a, "maxNodeCount")
	total := num(a, "totalMaxNodeCount") > 0
	if total && (most > 0 || least > 0) {
		return s.containerInvalid("NodePool.autoscaling: limits per zone and total limits may not be specified together.")
	}
	if total {
		least, most = num(a, "totalMinNodeCount"), num(a, "totalMaxNodeCount")
	}
	if most < 1 || least > most || least < 0 {
		return s.containerInvalid("NodePool.autoscaling: the minimum node count must be between 0 and the maximum, and the maximum at least 1.")
	}
	if _, given := d["initialNodeCount"]; !given && !total && least > 0 {
		d["initialNodeCount"] = least
	}
	if n := num(d, "initialNodeCount"); !total && (n < least || n > most) {
		return s.containerInvalid("NodePool.initial_node_count must be between the minimum and the maximum of autoscaling.")
	}
	return nil
}

func (s *container) poolCount(n float64) error {
	if n < 0 || n > 1000 {
		return s.containerInvalid("NodePool.initial_node_count must be between 0 and 1000.")
	}
	return nil
}

// poolManagement: in a release channel GKE repairs and upgrades nodes by itself; that cannot be turned off ("Release channels").
func (s *container) poolManagement(c *cluster, d Doc) error {
	m, given := d["management"].(map[string]any)
	if given && len(m) > 0 && (!truth(m, "autoUpgrade") || !truth(m, "autoRepair")) {
		return s.containerInvalid("Auto_upgrade and auto_repair cannot be false when release_channel %s is set.", str(sub(c.Doc, "releaseChannel"), "channel"))
	}
	d["management"] = Doc{"autoRepair": true, "autoUpgrade": true}
	return nil
}

// fillPool fills in what the caller left out of a pool.
func (s *container) fillPool(c *cluster, d Doc) error {
	config := subOf(d, "config")
	disk := sub(config, "bootDisk")
	machine := orText(str(config, "machineType"), "e2-medium")
	t, ok := machineTypes[machine]
	if !ok {
		return s.containerInvalid("Machine type with name %q does not exist.", machine)
	}
	diskType := orText(orText(str(config, "diskType"), str(disk, "diskType")), "pd-balanced")
	if str(config, "diskType")+str(disk, "diskType") == "" && !t.takes(diskType) {
		diskType = "hyperdisk-balanced"
	}
	size := num(config, "diskSizeGb")
	if size == 0 {
		if size = float64(atoi(str(disk, "sizeGb"))); size == 0 {
			size = 100
		}
	}
	config["machineType"], config["diskType"], config["diskSizeGb"] = machine, diskType, size
	config["bootDisk"] = Doc{"diskType": diskType, "sizeGb": text(size)}
	readOnlyPort := sub(sub(sub(c.Doc, "nodePoolDefaults"), "nodeConfigDefaults"), "nodeKubeletConfig")["insecureKubeletReadonlyPortEnabled"]
	fillIn(config, Doc{"imageType": "COS_CONTAINERD", "oauthScopes": anys(oauthScopes), "serviceAccount": "default", "metadata": Doc{"disable-legacy-endpoints": "true"},
		"effectiveCgroupMode": "EFFECTIVE_CGROUP_MODE_V2", "windowsNodeConfig": Doc{}, "kubeletConfig": Doc{"insecureKubeletReadonlyPortEnabled": readOnlyPort, "maxParallelImagePulls": 2.0}})
	if sub(config, "shieldedInstanceConfig") == nil { // a given one is taken as it is: what it leaves out is off
		config["shieldedInstanceConfig"] = Doc{"enableIntegrityMonitoring": true}
	}
	model := "on-demand"
	if truth(config, "spot") || truth(config, "preemptible") {
		model = "spot"
	}
	subOf(config, "resourceLabels")["goog-gke-node-pool-provisioning-model"] = model
	if str(sub(c.Doc, "workloadIdentityConfig"), "workloadPool") != "" {
		fillIn(config, Doc{"workloadMetadataConfig": Doc{"mode": "GKE_METADATA"}})
	}
	fillIn(d, Doc{"maxPodsConstraint": Doc{"maxPodsPerNode": orText(str(sub(c.Doc, "defaultMaxPodsConstraint"), "maxPodsPerNode"), "110")},
		"upgradeSettings": Doc{"maxSurge": 1.0, "strategy": "SURGE"}, "networkConfig": Doc{}})
	d["podIpv4CidrSize"] = float64(podCIDRBits(atoi(str(sub(d, "maxPodsConstraint"), "maxPodsPerNode"))))
	return nil
}

// podCIDRBits is the size of the range of pods of a node: at least twice as many addresses as pods ("Optimizing IP address
// allocation").
func podCIDRBits(pods int) int {
	bits := 32
	for n := 1; n < 2*pods; n *= 2 {
		bits--
	}
	return bits
}

// taintEffects are the effects of taints as Kubernetes calls them.
var taintEffects = map[string]string{"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}

// poolConfig checks the configuration of a pool's nodes.
func (s *container) poolConfig(c *cluster, p *nodePool, config Doc) error {
	machine := str(config, "machineType")
	for _, z := range texts(p.Doc, "locations") {
		if _, ok := machineTypeIn(z, machine); !ok {
			return s.containerInvalid("Machine type with name %q does not exist in zone %q.", machine, z)
		}
	}
	t, diskType := machineTypes[machine], str(config, "diskType")
	if _, known := diskTypes[diskType]; !known || !t.takes(diskType) {
		return s.containerInvalid("[%s] features are not compatible for creating instance: the machine type %q cannot boot from it.", diskType, machine)
	}
	if size := num(config, "diskSizeGb"); size < 10 || size > 65536 {
		return s.containerInvalid("Invalid disk size %.0f: it must be between 10 and 65536 GB.", size)
	}
	if !slices.Contains(imageTypes, strings.ToUpper(str(config, "imageType"))) {
		return s.containerInvalid("Image type %q is invalid. It must be one of %s.", str(config, "imageType"), strings.Join(imageTypes, ", "))
	}
	for _, taint := range docs(config, "taints") {
		if taintEffects[str(taint, "effect")] == "" || str(taint, "key") == "" {
			return s.containerInvalid("Taint %q with the effect %q is invalid.", str(taint, "key"), str(taint, "effect"))
		}
	}
	for k := range sub(config, "labels") {
		if strings.Contains(k, "kubernetes.io/") || strings.HasPrefix(k, "cloud.google.com/") {
			return s.containerInvalid("Node label key %q is reserved.", k)
		}
	}
	labels := clone(sub(config, "resourceLabels"))
	delete(labels, "goog-gke-node-pool-provisioning-model")
	if err := s.checkResourceLabels(labels); err != nil {
		return err
	}
	if key := str(config, "bootDiskKmsKey"); key != "" {
		if err := s.checkClusterKey(c, "NodeConfig.boot_disk_kms_key", key, "service-"+s.cloud.number(c.project())+"@compute-system.iam.gserviceaccount.com"); err != nil {
			return err
		}
	}
	account := s.nodeAccount(c, p)
	if a, ok := s.cloud.hooks.serviceAccount(account); !ok || a.Disabled {
		return s.containerInvalid("Service account %q does not exist or is disabled.", account)
	}
	return nil
}

// nodeAccount is the service account of a pool's nodes: Compute Engine's default one unless another was named.
func (s *container) nodeAccount(c *cluster, p *nodePool) string {
	account := str(sub(p.Doc, "config"), "serviceAccount")
	if account == "" || account == "default" {
		return s.cloud.compute.defaultAccount(c.project())
	}
	return account
}

// nodeRoles says whether an account may do what nodes have to: write logs and metrics ("Use least privilege service accounts").
func (s *container) nodeRoles(project, account string) bool {
	roles := s.cloud.rolesOf(project, "serviceAccount:"+account)
	has := func(any ...string) bool {
		return slices.ContainsFunc(any, func(r string) bool { return slices.Contains(roles, r) })
	}
	return has("roles/container.defaultNodeServiceAccount", "roles/container.nodeServiceAccount", "roles/owner", "roles/editor") ||
		has("roles/logging.logWriter", "roles/logging.admin") && has("roles/monitoring.metricWriter", "roles/monitoring.admin", "roles/monitoring.editor")
}

// fillPoolNetwork says which ranges the nodes and pods of a pool are in.
func (s *container) fillPoolNetwork(c *cluster, p *nodePool) {
	n := subOf(p.Doc, "networkConfig")
	policy := sub(c.Doc, "ipAllocationPolicy")
	setDefault(n, "podRange", str(policy, "clusterSecondaryRangeName"))
	setDefault(n, "podIpv4CidrBlock", str(policy, "clusterIpv4CidrBlock"))
	setDefault(n, "networkTierConfig", Doc{"networkTier": "NETWORK_TIER_DEFAULT"})
	if truth(sub(c.Doc, "networkConfig"), "defaultEnablePrivateNodes") {
		setDefault(n, "enablePrivateNodes", true)
	}
	n["subnetwork"] = s.subnetPath(c)
}

// findPool finds the node pool that the request's path names.
func (s *container) findPool(r *request, c *cluster) (*nodePool, error) {
	p := c.pool(segmentAfter(r.Path["name"], "nodePools"))
	if p == nil {
		return nil, refuse(404, "notFound", "Not found: node pool %q not found.", segmentAfter(r.Path["name"], "nodePools"))
	}
	r.Touch(c.Path + "/nodePools/" + p.Name)
	return p, nil
}

func (s *container) getPool(r *request) (any, error) {
	c, err := s.find(r)
	if err != nil {
		return nil, err
	}
	p, err := s.findPool(r, c)
	if err != nil {
		return nil, err
	}
	return s.shownPool(c, p), nil
}

func (s *container) listPools(r *request) (any, error) {
	c, err := s.find(r)
	if err != nil {
		return nil, err
	}
	out := Doc{}
	for _, p := range c.Pools {
		out["nodePools"] = append(list(out, "nodePools"), s.shownPool(c, p))
	}
	return out, nil
}

func (s *container) deletePool(r *request) (any, error) {
	c, err := s.change(r)
	if err != nil {
		return nil, err
	}
	p, err := s.findPool(r, c)
	if err != nil {
		return nil, err
	}
	p.Doc["status"] = "STOPPING"
	return s.start(r, "DELETE_NODE_POOL", "deletePool", c, c.Path+"/nodePools/"+p.Name, Doc{"pool": p.Name}), nil
}

// shownPool is a node pool as GET answers it.
func (s *container) shownPool(c *cluster, p *nodePool) Doc {
	d := clone(p.Doc)
	var groups []any
	for _, g := range p.Groups {
		groups = append(groups, selfLink(g))
	}
	if len(groups) > 0 {
		d["instanceGroupUrls"] = groups
	}
	if used := s.podsUsed(c, []*nodePool{p}); used > 0 {
		subOf(d, "networkConfig")["podIpv4RangeUtilization"] = used
	}
	image := nodeImageFor(machineTypes[str(sub(d, "config"), "machineType")].family.arm)
	subOf(d, "config")["nodeImageConfig"] = Doc{"image": lastPart(image), "imageProject": nodeImageProject}
	d["selfLink"] = containerLink(c.Path + "/nodePools/" + p.Name)
	if p.FaultText != "" || p.Fault != "" {
		d["statusMessage"] = p.FaultText
		d["conditions"] = []any{Doc{"code": conditionCode(p.Fault), "message": p.FaultText}}
	}
	d["etag"] = fingerprint(d)
	return d
}
