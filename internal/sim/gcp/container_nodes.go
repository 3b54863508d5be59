package gcp

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// clipped is the beginning of a name, as names of what GKE makes have it.
func clipped(name string, n int) string { return strings.TrimRight(name[:min(len(name), n)], "-") }

// nodeTag is the network tag of a cluster's nodes.
func (c *cluster) nodeTag() string { return "gke-" + clipped(c.name(), 40) + "-" + c.Hash + "-node" }

// compute carries out a method of Compute Engine as GKE, at once.
func (s *container) invoke(op string, c *cluster, region string, params map[string]any) error {
	_, err := s.cloud.Invoke("compute", op, c.project(), region, params)
	return err
}

// makeClusterParts makes what a cluster has besides its nodes: the address of its private endpoint in the subnetwork, and its
// firewall rules ("Automatically created firewall rules", GKE).
func (s *container) makeClusterParts(c *cluster) error {
	base := "projects/" + c.project() + "/"
	address := "gke-" + clipped(c.name(), 20) + "-" + c.Hash + "-pe"
	if err := s.invoke("addresses.insert", c, c.region(), map[string]any{"body": Doc{"name": address, "addressType": "INTERNAL", "subnetwork": selfLink(s.subnetPath(c)),
		"purpose": "GCE_ENDPOINT", "description": "Private endpoint of the GKE cluster " + c.name() + "."}}); err != nil {
		return err
	}
	c.Made = append(c.Made, base+"regions/"+c.region()+"/addresses/"+address)
	if truth(sub(c.Doc, "networkConfig"), "defaultEnablePrivateNodes") { // so that private nodes reach Google's APIs ("Private Google Access in private clusters")
		if subnet := s.cloud.compute.at(s.subnetPath(c)); subnet != nil {
			subnet.Doc["privateIpGoogleAccess"] = true
			delete(subnet.Doc, "fingerprint")
			subnet.Doc["fingerprint"] = fingerprint(subnet.Doc)
		}
	}
	for name, rule := range s.firewallRules(c) {
		rule["name"] = "gke-" + clipped(c.name(), 40) + "-" + c.Hash + "-" + name
		rule["network"] = selfLink(s.networkPath(c))
		if err := s.invoke("firewalls.insert", c, "", map[string]any{"body": rule}); err != nil {
			return err
		}
		c.Made = append(c.Made, base+"global/firewalls/"+str(rule, "name"))
	}
	slices.Sort(c.Made)
	return nil
}

// firewallRules are the rules of a cluster, by the end of their names.
func (s *container) firewallRules(c *cluster) map[string]Doc {
	subnet := s.cloud.compute.at(s.subnetPath(c))
	nodes, pods := str(subnet.Doc, "ipCidrRange"), str(c.Doc, "clusterIpv4Cidr")
	protocols := func(ports ...string) []any {
		var out []any
		for _, p := range []string{"tcp", "udp"} {
			d := Doc{"IPProtocol": p}
			if len(ports) > 0 {
				d["ports"] = anys(ports)
			}
			out = append(out, d)
		}
		return append(out, Doc{"IPProtocol": "icmp"})
	}
	tag := []any{c.nodeTag()}
	rules := map[string]Doc{
		"all": {"sourceRanges": []any{pods}, "targetTags": tag, "priority": 1000.0,
			"allowed": append(protocols(), Doc{"IPProtocol": "esp"}, Doc{"IPProtocol": "ah"}, Doc{"IPProtocol": "sctp"})},
		"vms":       {"sourceRanges": []any{nodes}, "targetTags": tag, "priority": 1000.0, "allowed": protocols("1-65535")},
		"inkubelet": {"sourceRanges": []any{pods}, "sourceTags": tag, "targetTags": tag, "priority": 999.0, "allowed": []any{Doc{"IPProtocol": "tcp", "ports": []any{"10255"}}}},
		"exkubelet": {"sourceRanges": []any{"0.0.0.0/0"}, "targetTags": tag, "priority": 1000.0, "denied": []any{Doc{"IPProtocol": "tcp", "ports": []any{"10255"}}}},
	}
	return rules
}

func (s *container) dropClusterParts(c *cluster) {
	for _, path := range c.Made {
		if res := s.cloud.compute.at(path); res != nil {
			s.cloud.compute.drop(res)
		}
	}
	s.dropPodRange(c)
}

// makePoolParts makes a template and a managed instance group for every zone of a pool.
func (s *container) makePoolParts(op *clusterOperation, c *cluster, p *nodePool) *opFailure {
	call := &sim.Call{Cloud: cloudName, Service: "container", Operation: op.Method, Account: c.project(), Region: c.region(), Mutating: true, Params: c.Path + " " + p.Name}
	for _, zone := range texts(p.Doc, "locations") {
		if f := s.cloud.World.Take(call, sim.FaultCapacity, zone+" "+str(sub(p.Doc, "config"), "machineType")); f != nil {
			return &opFailure{rpcCodes["RESOURCE_EXHAUSTED"], orText(f.Code, "GCE_STOCKOUT"), orText(f.Message,
				"Try a different location, or try again later: Google Compute Engine does not have enough resources available to fulfill request: "+zone+".")}
		}
		if err := s.makeGroup(c, p, zone); err != nil {
			return computeFailure(err)
		}
	}
	return nil
}

func (s *container) makeGroup(c *cluster, p *nodePool, zone string) error {
	base := "gke-" + clipped(c.name(), 20) + "-" + clipped(p.Name, 20) + "-" + s.cloud.World.Hex("", 8)
	if err := s.invoke("regionInstanceTemplates.insert", c, c.region(), map[string]any{"body": Doc{"name": base, "properties": s.nodeProperties(c, p)}}); err != nil {
		return err
	}
	template := "projects/" + c.project() + "/regions/" + c.region() + "/instanceTemplates/" + base
	p.Templates = append(p.Templates, template)
	size := p.zoneSize(zone)
	if err := s.invoke("instanceGroupManagers.insert", c, "", map[string]any{"zone": zone, "body": Doc{"name": base + "-grp", "baseInstanceName": base,
		"instanceTemplate": selfLink(template), "targetSize": float64(size), "updatePolicy": Doc{"type": "OPPORTUNISTIC"}}}); err != nil {
		return err
	}
	p.Groups = append(p.Groups, "projects/"+c.project()+"/zones/"+zone+"/instanceGroupManagers/"+base+"-grp")
	return nil
}

// zoneSize is how many nodes a pool has in a zone: its size, or its share of a total.
func (p *nodePool) zoneSize(zone string) int {
	a := sub(p.Doc, "autoscaling")
	zones := texts(p.Doc, "locations")
	total := int(num(a, "totalMinNodeCount"))
	if num(a, "totalMaxNodeCount") == 0 || p.Size > 0 || total == 0 {
		return p.Size
	}
	n := total / len(zones)
	if slices.Index(zones, zone) < total%len(zones) {
		n++
	}
	return n
}

// nodeProperties are the properties of a pool's template.
func (s *container) nodeProperties(c *cluster, p *nodePool) Doc {
	config := sub(p.Doc, "config")
	labels := Doc{"goog-k8s-cluster-name": c.name(), "goog-k8s-cluster-location": c.location(), "goog-k8s-node-pool-name": p.Name, "goog-gke-node": ""}
	for _, of := range []Doc{c.Doc, config} {
		for k, v := range resourceLabels(of) {
			labels[k] = v
		}
	}
	network := sub(p.Doc, "networkConfig")
	nic := Doc{"network": selfLink(s.networkPath(c)), "subnetwork": selfLink(s.subnetPath(c)),
		"aliasIpRanges": []any{Doc{"ipCidrRange": fmt.Sprintf("/%.0f", num(p.Doc, "podIpv4CidrSize")), "subnetworkRangeName": str(network, "podRange")}}}
	if !truth(network, "enablePrivateNodes") {
		nic["accessConfigs"] = []any{Doc{"name": "external-nat", "type": "ONE_TO_ONE_NAT"}}
	}
	metadata := []any{Doc{"key": "cluster-name", "value": c.name()}, Doc{"key": "cluster-location", "value": c.location()}, Doc{"key": "cluster-uid", "value": str(c.Doc, "id")},
		Doc{"key": "enable-oslogin", "value": "false"}}
	given := sub(config, "metadata")
	for _, k := range keysOf(given) {
		metadata = append(metadata, Doc{"key": k, "value": given[k]})
	}
	t := machineTypes[str(config, "machineType")]
	return Doc{"machineType": t.name, "labels": labels, "tags": Doc{"items": append([]any{c.nodeTag()}, list(config, "tags")...)}, "networkInterfaces": []any{nic},
		"metadata": Doc{"items": metadata}, "serviceAccounts": []any{Doc{"email": s.nodeAccount(c, p), "scopes": config["oauthScopes"]}},
		"shieldedInstanceConfig": Doc{"enableSecureBoot": truth(sub(config, "shieldedInstanceConfig"), "enableSecureBoot"), "enableVtpm": true,
			"enableIntegrityMonitoring": truth(sub(config, "shieldedInstanceConfig"), "enableIntegrityMonitoring")},
		"scheduling": Doc{"preemptible": truth(config, "spot") || truth(config, "preemptible")},
		"disks": []any{Doc{"boot": true, "autoDelete": true, "initializeParams": Doc{"diskSizeGb": text(num(config, "diskSizeGb")), "diskType": str(config, "diskType"),
			"sourceImage": selfLink(nodeImageFor(t.family.arm)), "labels": clone(labels)}}}}
}

// computeFailure is the error of an operation that Compute Engine refused something of.
func computeFailure(err error) *opFailure {
	f := &opFailure{rpcInternal, "UNKNOWN", "Google Compute Engine: " + err.Error()}
	if refused, ok := asRefusal(err); ok {
		f.message = "Google Compute Engine: " + refused.Message
		f.condition, f.rpc = conditionOf(operationCode(refused.Reason))
	}
	return f
}

// conditionOf is how GKE calls a failure of Compute Engine.
func conditionOf(code string) (condition string, rpc int) {
	switch {
	case strings.HasPrefix(code, "ZONE_RESOURCE_POOL_EXHAUSTED"):
		return "GCE_STOCKOUT", rpcCodes["RESOURCE_EXHAUSTED"]
	case code == "QUOTA_EXCEEDED":
		return "GCE_QUOTA_EXCEEDED", rpcCodes["RESOURCE_EXHAUSTED"]
	case code == "EXTERNAL_RESOURCE_NOT_FOUND":
		return "GKE_SERVICE_ACCOUNT_DELETED", rpcFailedPrecondition
	}
	return "UNKNOWN", rpcInternal
}

// poolUp says whether all nodes of a pool are there. Those that Compute Engine cannot make are waited for, though not for ever.
func (s *container) poolUp(op *clusterOperation, p *nodePool) (bool, *opFailure) {
	waited := s.cloud.World.Now().Sub(op.Begun)
	for _, path := range p.Groups {
		res := s.cloud.compute.at(path)
		if res == nil {
			return false, &opFailure{rpcFailedPrecondition, "UNKNOWN", "Google Compute Engine: The resource '" + path + "' was not found."}
		}
		want, up := int(num(res.Doc, "targetSize")), 0
		var last *managedError
		for _, i := range s.cloud.compute.managed(res).Instances {
			if vm := s.cloud.compute.at(i.Path); vm != nil && str(vm.Doc, "status") == "RUNNING" {
				up++
			}
			if i.Last != nil {
				last = i.Last
			}
		}
		if up >= want {
			continue
		}
		if last != nil && waited >= readyWithin {
			condition, rpc := conditionOf(last.Code)
			text := condition
			if text == "UNKNOWN" {
				text = last.Code
			}
			return false, &opFailure{rpc, condition, fmt.Sprintf("Google Compute Engine: Not all instances running in IGM after %s. Expected %d, running %d, transitioning %d. Current errors: [%s]: %s",
				waited.Truncate(time.Second), want, up, want-up, text, last.Message)}
		}
		return false, nil
	}
	return s.registered(p, waited)
}

// registered says whether the nodes of a pool have come to the control plane: firewall rules of the project may keep them from it.
func (s *container) registered(p *nodePool, waited time.Duration) (bool, *opFailure) {
	all, joined := 0, len(s.nodesOf(p))
	for _, path := range p.Groups {
		if res := s.cloud.compute.at(path); res != nil {
			all += int(num(res.Doc, "targetSize"))
		}
	}
	switch {
	case joined >= all:
		return true, nil
	case waited < readyWithin:
		return false, nil
	}
	return false, &opFailure{rpcFailedPrecondition, "UNKNOWN", fmt.Sprintf("All cluster resources were brought up, but: only %d nodes out of %d have registered; this is likely due to Nodes "+
		"failing to start correctly; try re-creating your cluster or contact support if that doesn't work.", joined, all)}
}

// nodesOf are the instances of a pool that have joined the cluster.
func (s *container) nodesOf(p *nodePool) []*Resource {
	var out []*Resource
	for _, path := range p.Groups {
		res := s.cloud.compute.st.Resources[path]
		if res == nil {
			continue
		}
		for _, i := range s.cloud.compute.managed(res).Instances {
			vm := s.cloud.compute.st.Resources[i.Path]
			if vm != nil && str(vm.Doc, "status") == "RUNNING" && s.joins(vm) {
				out = append(out, vm)
			}
		}
	}
	return out
}

// joins says whether a node reaches the control plane, as far as firewall rules go: it has to get out to port 443 of the private
// endpoint, and of Google's APIs.
func (s *container) joins(vm *Resource) bool {
	nics := docs(vm.Doc, "networkInterfaces")
	if len(nics) == 0 {
		return false
	}
	ip, err := netip.ParseAddr(str(nics[0], "networkIP"))
	if err != nil {
		return false
	}
	// The control plane's address is in the subnetwork of the nodes, so that what stands for it is the node's own.
	network := s.cloud.pathOfLink(vm.project(), str(nics[0], "network"))
	return s.cloud.compute.admits(network, vm, packet{"EGRESS", netip.PrefixFrom(ip, 32), "tcp", 443})
}

// stopPool lets the instances of a pool go.
func (s *container) stopPool(p *nodePool) {
	for _, path := range p.Groups {
		if res := s.cloud.compute.at(path); res != nil {
			s.cloud.compute.managed(res).Deleting = true
			s.cloud.compute.poke(path)
		}
	}
}

// dropPool takes a pool away with its groups and templates.
func (s *container) dropPool(c *cluster, p *nodePool) {
	for _, path := range slices.Concat(p.Groups, p.Templates) {
		if res := s.cloud.compute.at(path); res != nil {
			s.cloud.compute.drop(res)
		}
	}
	c.Pools = slices.DeleteFunc(c.Pools, func(o *nodePool) bool { return o == p })
	s.syncKube()
}

// checkCapacity refuses pools that the project's limits, or the range of pods, have no room for.
func (s *container) checkCapacity(c *cluster, pools []*nodePool) error {
	need := map[string]float64{}
	nodes, blocks := 0.0, 0.0
	for _, p := range pools {
		config := sub(p.Doc, "config")
		n := 0.0
		for _, z := range texts(p.Doc, "locations") {
			n += float64(p.zoneSize(z))
		}
		t := machineTypes[str(config, "machineType")]
		need[t.family.quota] += n * float64(t.cpus)
		need["INSTANCES"] += n
		switch str(config, "diskType") {
		case "pd-standard":
			need["DISKS_TOTAL_GB"] += n * num(config, "diskSizeGb")
		case "pd-balanced", "pd-ssd", "pd-extreme":
			need["SSD_TOTAL_GB"] += n * num(config, "diskSizeGb")
		}
		private, said := sub(p.Doc, "networkConfig")["enablePrivateNodes"].(bool)
		if said && !private || !said && !truth(sub(c.Doc, "networkConfig"), "defaultEnablePrivateNodes") {
			need["IN_USE_ADDRESSES"] += n
		}
		nodes += n
		blocks += n * float64(int(1)<<(32-int(num(p.Doc, "podIpv4CidrSize"))))
	}
	for _, metric := range keysOf(need) {
		limit, used := s.cloud.compute.limit(metric, c.project(), c.region()), s.cloud.compute.usage(metric, c.project(), c.region())
		if need[metric] > limit-used {
			return refuse(403, "forbidden", "Insufficient regional quota to satisfy request: resource \"%s\": request requires '%.1f' and is short '%.1f'. project has a quota of '%.1f' with '%.1f' available. "+
				"View and manage quotas at https://console.cloud.google.com/iam-admin/quotas?usage=USED&project=%s.", metric, need[metric], need[metric]-(limit-used), limit, limit-used, c.project())
		}
	}
	return s.checkPodSpace(c, nodes, blocks)
}

// podsUsed is how much of the range of pods the nodes of some pools take, as a fraction.
func (s *container) podsUsed(c *cluster, pools []*nodePool) float64 {
	p, err := netip.ParsePrefix(str(c.Doc, "clusterIpv4Cidr"))
	if err != nil {
		return 0
	}
	taken := 0.0
	for _, pool := range pools {
		taken += float64(len(s.nodesOf(pool)) * (1 << (32 - int(num(pool.Doc, "podIpv4CidrSize")))))
	}
	return math.Round(1e4*taken/float64(int(1)<<(32-p.Bits()))) / 1e4
}

// checkPodSpace refuses nodes whose pods do not fit into the cluster's range, which every node takes a block of.
func (s *container) checkPodSpace(c *cluster, nodes, addresses float64) error {
	p, err := netip.ParsePrefix(str(c.Doc, "clusterIpv4Cidr"))
	if err != nil {
		return err
	}
	for _, other := range c.Pools {
		if len(other.Groups) > 0 {
			for _, z := range texts(other.Doc, "locations") {
				addresses += float64(other.zoneSize(z) * (1 << (32 - int(num(other.Doc, "podIpv4CidrSize")))))
			}
		}
	}
	if room := float64(int(1) << (32 - p.Bits())); addresses > room {
		return s.containerInvalid("The pod range %s has not enough free IP space for %s more nodes: make it larger, or lower the maximum of pods per node.", p, strconv.Itoa(int(nodes)))
	}
	return nil
}
