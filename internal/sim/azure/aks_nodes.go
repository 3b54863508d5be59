package azure

import (
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/zopday/provisioner/internal/sim"
)

// ensureSet brings the scale set of a pool to what the pool says. It answers true when all machines are there.
func (c *Cloud) ensureSet(cluster, pool *Resource) (ready bool, e *Error) {
	if d, ok := asDoc(pool.Top[doom]); ok {
		delete(pool.Top, doom)
		return false, refuse(http.StatusConflict, d.str("code"), "%s", d.str("message"))
	}
	set := c.find(c.setID(cluster, pool))
	want := int(pool.Properties.num("count"))
	if op := c.shelves[clusterService].state.Operations[cluster.Operation]; op != nil && op.Verb == "stop" {
		want = 0
	}
	switch {
	case set != nil && set.Operation != "":
		return false, nil
	case set != nil && set.State == stateFailed && c.keptOf(set).Failed != nil:
		e := *c.keptOf(set).Failed
		c.keptOf(set).Failed = nil // a further write tries again
		return false, &e
	case set != nil && len(c.membersOf(set)) == want && capacityOf(set) == want:
		return true, nil
	}
	_, e = c.provide(c.setID(cluster, pool), setType, cluster, c.setTags(cluster, pool), c.setTop(pool, want), c.setProperties(cluster, pool), true)
	return false, e
}

// setID is the ID of the scale set of a pool.
func (c *Cloud) setID(cluster, pool *Resource) string {
	return inNodeGroup(cluster, setType, "aks-"+pool.Name+"-"+clusterNumber(c, cluster)+"-vmss")
}

// setTags are the tags of a pool's machines: its own, and those by which AKS knows them; the cluster's do not go down to machines ("Use
// Azure tags in AKS").
func (c *Cloud) setTags(cluster, pool *Resource) map[string]string {
	tags := map[string]string{"aks-managed-poolName": pool.Name, "aks-managed-orchestrator": "Kubernetes:" + pool.Properties.str("currentOrchestratorVersion"),
		"aks-managed-kubeletIdentityClientID": cluster.Properties.str("identityProfile.kubeletidentity.clientId")}
	given := pool.Properties.sub("tags")
	for k := range given {
		if v, ok := given[k].(string); ok {
			tags[k] = v
		}
	}
	return tags
}

func (c *Cloud) setTop(pool *Resource, capacity int) doc {
	top := doc{"sku": map[string]any{"name": pool.Properties.str("vmSize"), "tier": "Standard", "capacity": float64(capacity)}}
	if zones := pool.Properties.list("availabilityZones"); len(zones) > 0 {
		top["zones"] = zones
	}
	return top
}

// nodeKey is the public half of a key that nobody has: AKS sets one for nodes whose cluster brings none.
const nodeKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK5YELT/shabC8le2lgFBPuuwJ9JXikMTky586AmTMy1 nodes"

// setProperties is the model of a pool's machines.
func (c *Cloud) setProperties(cluster, pool *Resource) doc {
	p := pool.Properties
	size := findSize(p.str("vmSize"))
	sku := "server"
	switch {
	case size.Series.Arch == "Arm64":
		sku = "server-arm64"
	case !strings.Contains(size.Series.Gens, "V2"):
		sku = "server-gen1"
	}
	disk := map[string]any{"createOption": "FromImage", "diskSizeGB": p.num("osDiskSizeGB"), "caching": "ReadWrite"}
	if p.str("osDiskType") == "Ephemeral" {
		disk["caching"] = "ReadOnly"
		disk["diffDiskSettings"] = map[string]any{"option": "Local"}
	}
	ip := map[string]any{"primary": true, "subnet": map[string]any{"id": c.nodeSubnet(cluster, pool)}}
	if lb := inNodeGroup(cluster, loadBalancerType, "kubernetes"); c.find(lb) != nil {
		ip["loadBalancerBackendAddressPools"] = []any{map[string]any{"id": lb + "/" + lbPools + "/" + nodesPool}}
	}
	name := lastOf(c.setID(cluster, pool))
	admin, keyData := "azureuser", nodeKey
	if a := cluster.Properties.str("linuxProfile.adminUsername"); a != "" {
		admin = a
	}
	nsg := inNodeGroup(cluster, "Microsoft.Network/networkSecurityGroups", "aks-agentpool-"+clusterNumber(c, cluster)+"-nsg")
	profile := map[string]any{
		"osProfile": map[string]any{"computerNamePrefix": name, "adminUsername": admin, "linuxConfiguration": map[string]any{"disablePasswordAuthentication": true,
			"ssh": map[string]any{"publicKeys": []any{map[string]any{"path": "/home/" + admin + "/.ssh/authorized_keys", "keyData": keyData}}}}},
		"storageProfile": map[string]any{"imageReference": map[string]any{"publisher": "Canonical", "offer": "ubuntu-24_04-lts", "sku": sku, "version": "latest"}, "osDisk": disk},
		"networkProfile": map[string]any{"networkInterfaceConfigurations": []any{map[string]any{"name": name, "properties": map[string]any{"primary": true,
			"enableAcceleratedNetworking": size.accelerated(), "networkSecurityGroup": map[string]any{"id": nsg}, "ipConfigurations": []any{map[string]any{"name": "ipconfig1", "properties": ip}}}}}},
	}
	if p.flag("enableEncryptionAtHost") {
		profile["securityProfile"] = map[string]any{"encryptionAtHost": true}
	}
	if p.str("scaleSetPriority") == "Spot" {
		profile["priority"], profile["evictionPolicy"] = "Spot", p.str("scaleSetEvictionPolicy")
	}
	return doc{"orchestrationMode": "Uniform", "overprovision": false, "upgradePolicy": map[string]any{"mode": "Manual"}, "virtualMachineProfile": profile}
}

// kubeNodes are the nodes of a cluster: the machines of its pools that run.
func (c *Cloud) kubeNodes(cluster *Resource) []sim.KubeNode {
	var out []sim.KubeNode
	for _, pool := range c.poolsOf(cluster) {
		set := c.find(c.setID(cluster, pool))
		if set == nil {
			continue
		}
		for _, vm := range c.membersOf(set) {
			if m := c.guests.of(vm.ID); vm.State == stateSucceeded && m != nil && m.Power == "running" {
				out = append(out, c.kubeNode(cluster, pool, vm, m.Host))
			}
		}
	}
	return out
}

// kubeNode is a machine as its kubelet registers it ("Reserved system labels").
func (c *Cloud) kubeNode(cluster, pool, vm *Resource, host string) sim.KubeNode {
	p := pool.Properties
	size := findSize(p.str("vmSize"))
	n := sim.KubeNode{Name: strings.ToLower(host), Region: cluster.Location, Type: size.Name, Arch: "amd64", CPUs: size.CPUs, MemoryMiB: int(size.Memory * 1024), Pods: int(p.num("maxPods")),
		Kubelet:    "v" + p.str("currentOrchestratorVersion"),
		ProviderID: "azure://" + strings.Replace(strings.Replace(vm.ID, groupOf(vm.ID), strings.ToLower(groupOf(vm.ID)), 1), "resourcegroups", "resourceGroups", 1)}
	if size.Series.Arch == "Arm64" {
		n.Arch = "arm64"
	}
	for _, nic := range c.nicsOf(vm) {
		for _, cfg := range nic.Properties.docs("ipConfigurations") {
			n.IP = cfg.str("properties.privateIPAddress")
		}
	}
	if z := first(vm.Top.strs("zones")); z != "" {
		n.Zone = fmt.Sprintf("%s-%s", cluster.Location, z)
	}
	n.Labels = map[string]string{"agentpool": pool.Name, "kubernetes.azure.com/agentpool": pool.Name, "kubernetes.azure.com/mode": strings.ToLower(p.str("mode")),
		"kubernetes.azure.com/role": "agent", "kubernetes.azure.com/cluster": cluster.Properties.str("nodeResourceGroup"), "kubernetes.azure.com/os-sku": p.str("osSKU"),
		"kubernetes.azure.com/node-image-version": p.str("nodeImageVersion"), "kubernetes.azure.com/storageprofile": "managed"}
	labels := map[string]string{}
	given := p.sub("nodeLabels")
	for k := range given {
		if v, ok := given[k].(string); ok {
			labels[k] = v
		}
	}
	maps.Copy(n.Labels, labels)
	for _, t := range p.strs("nodeTaints") {
		if taint, ok := parseTaint(t); ok {
			n.Taints = append(n.Taints, taint)
		}
	}
	return n
}

// parseTaint reads key=value:effect.
func parseTaint(text string) (sim.KubeTaint, bool) {
	kv, effect, ok := strings.Cut(text, ":")
	k, v, _ := strings.Cut(kv, "=")
	return sim.KubeTaint{Key: k, Value: v, Effect: effect}, ok && (effect == "NoSchedule" || effect == "PreferNoSchedule" || effect == "NoExecute")
}
