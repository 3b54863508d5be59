package azure

import (
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The network that a cluster makes for itself when none is brought along.
const (
	ownNetwork = "10.224.0.0/12"
	ownSubnet  = "10.224.0.0/16"
)

// clusterAfter schedules the next look at a cluster; takes is how long its operation lasts at least, counted from now.
func (c *Cloud) clusterAfter(d time.Duration, cluster *Resource, takes time.Duration) {
	c.after(d, clusterService, "cluster", cluster.ID+"|"+strconv.FormatInt(c.World.Now().Add(takes).UnixMilli(), 10))
}

func (c *Cloud) poolAfter(d time.Duration, pool *Resource, takes time.Duration) {
	c.after(d, clusterService, "pool", pool.ID+"|"+strconv.FormatInt(c.World.Now().Add(takes).UnixMilli(), 10))
}

// underway finds what an event is about, its operation, and how long that has to last still.
func (c *Cloud) underway(key string) (res *Resource, op *Operation, left time.Duration) {
	id, at, _ := strings.Cut(key, "|")
	res = c.find(id)
	if res == nil {
		return nil, nil, 0
	}
	ms, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return nil, nil, 0
	}
	return res, c.shelves[clusterService].state.Operations[res.Operation], time.UnixMilli(ms).Sub(c.World.Now())
}

// clusterEvent takes the operation on a cluster one step further: the node resource group, then the machines, then the end.
func (c *Cloud) clusterEvent(key string) {
	cluster, op, left := c.underway(key)
	if cluster == nil || op == nil || op.Verb == "delete" {
		return
	}
	elapsed := c.World.Now().Sub(op.Started)
	if elapsed >= groupAfter || op.Verb != "put" {
		if e := c.ensureNodeGroup(cluster); e != nil {
			c.failCluster(cluster, e)
			return
		}
	}
	if elapsed < poolsAfter && !c.everStarted(cluster) {
		next := groupAfter - elapsed
		if elapsed >= groupAfter {
			next = poolsAfter - elapsed
		}
		c.clusterAfter(max(next, time.Second), cluster, left)
		return
	}
	ready := true
	for _, p := range c.poolsOf(cluster) {
		ok, e := c.ensureSet(cluster, p)
		if e != nil {
			p.State = stateFailed
			c.failCluster(cluster, e)
			return
		}
		ready = ready && ok
	}
	switch {
	case ready && left <= 0:
		op.Ends = c.World.Now()
		c.finish(c.shelves[clusterService], op.ID)
	case ready:
		c.clusterAfter(left, cluster, left)
	default:
		c.clusterAfter(10*time.Second, cluster, left)
	}
}

// everStarted says whether a cluster has machines already.
func (c *Cloud) everStarted(cluster *Resource) bool {
	for _, p := range c.poolsOf(cluster) {
		if c.find(c.setID(cluster, p)) != nil {
			return true
		}
	}
	return false
}

// failCluster ends the operation on a cluster badly. The cluster stays, in the state Failed, and can be written again or deleted.
func (c *Cloud) failCluster(cluster *Resource, e *Error) {
	// The cluster is there: it was just found.
	_ = c.shelves[clusterService].SetState(cluster.ID, stateFailed, e.Code, e.Message)
}

// poolEvent takes the operation on a pool further.
func (c *Cloud) poolEvent(key string) {
	pool, op, left := c.underway(key)
	if pool == nil || op == nil || op.Verb == "delete" {
		return
	}
	s := c.shelves[clusterService]
	cluster := c.clusterOf(pool)
	if e := c.ensureNodeGroup(cluster); e != nil {
		_ = s.SetState(pool.ID, stateFailed, e.Code, e.Message) // it was just found
		return
	}
	ready, e := c.ensureSet(cluster, pool)
	switch {
	case e != nil:
		_ = s.SetState(pool.ID, stateFailed, e.Code, e.Message) // it was just found
	case ready && left <= 0:
		op.Ends = c.World.Now()
		c.finish(s, op.ID)
	case ready:
		c.poolAfter(left, pool, left)
	default:
		c.poolAfter(10*time.Second, pool, left)
	}
}

// provide makes something that a cluster needs in its node resource group, through the provider whose kind it is, and at once; what is
// there already stays. wait leaves the making to the provider's own pace.
func (c *Cloud) provide(id, typ string, cluster *Resource, tags map[string]string, top, props doc, wait bool) (*Resource, *Error) {
	old := c.find(id)
	k := c.kindOf(typ)
	r := c.background(subscriptionOf(cluster.ID), k.title+"_CreateOrUpdate")
	r.Service, r.method, r.path, r.kind, r.Region = k.service, http.MethodPut, id, k, cluster.Location
	r.id, _ = parseID(id)
	r.version = k.versions[len(k.versions)-1]
	now := &Resource{ID: id, Type: typ, Name: lastOf(id), Tags: maps.Clone(tags), Top: top.clone(), Properties: props.clone()}
	if k.tracked {
		now.Location = cluster.Location
		if k.global {
			now.Location = "global"
		}
	}
	if old != nil {
		now.ID, now.Created = old.ID, old.Created
	}
	if _, err := c.store(r, k, now, old); err != nil {
		return nil, asRefusal(err)
	}
	made := c.find(id)
	if made.Operation != "" && !wait {
		c.finish(c.shelves[k.service], made.Operation)
	}
	return made, nil
}

// clusterNumber is the number that the names of a cluster's things have in them.
func clusterNumber(c *Cloud, cluster *Resource) string {
	return fmt.Sprintf("%08d", int(c.World.Fraction("aks", key(cluster.ID))*1e8))
}

// inNodeGroup is the ID of something in the node resource group.
func inNodeGroup(cluster *Resource, typ, name string) string {
	return nodeGroup(cluster) + "/providers/" + typ + "/" + name
}

// ensureNodeGroup makes the node resource group and what is in it besides machines.
func (c *Cloud) ensureNodeGroup(cluster *Resource) *Error {
	group := nodeGroup(cluster)
	if c.find(group) == nil {
		c.keep(&Resource{ID: group, Type: groupType, Name: lastOf(group), Location: cluster.Location, Tags: maps.Clone(cluster.Tags), Top: doc{"managedBy": cluster.ID}, Properties: doc{},
			State: stateSucceeded, Created: c.World.Now(), Changed: c.World.Now()})
	}
	for _, make := range []func(*Resource) *Error{c.ensureIdentities, c.ensureNetwork, c.ensureEgress, c.ensurePrivateEndpoint} {
		if e := make(cluster); e != nil {
			return e
		}
	}
	return nil
}

// ensureIdentities makes the identities of the kubelets and of the add-ons.
func (c *Cloud) ensureIdentities(cluster *Resource) *Error {
	p := cluster.Properties
	if p.sub("identityProfile") == nil {
		p["identityProfile"] = map[string]any{}
	}
	kubelet := p.str("identityProfile.kubeletidentity.resourceId")
	if kubelet == "" {
		kubelet = inNodeGroup(cluster, identityType, cluster.Name+"-agentpool")
	}
	id, e := c.ensureIdentity(cluster, kubelet)
	if e != nil {
		return e
	}
	p.sub("identityProfile")["kubeletidentity"] = id
	all := p.sub("addonProfiles")
	for _, name := range sortedKeys(all) {
		switch strings.ToLower(name) {
		case "azurepolicy", "azurekeyvaultsecretsprovider", "omsagent", "ingressapplicationgateway":
			if !all.sub(name).flag("enabled") {
				delete(all.sub(name), "identity")
				continue
			}
			if all.sub(name)["identity"], e = c.ensureIdentity(cluster, inNodeGroup(cluster, identityType, strings.ToLower(name)+"-"+cluster.Name)); e != nil {
				return e
			}
		}
	}
	return nil
}

// ensureIdentity makes an identity, and answers it as clusters show it.
func (c *Cloud) ensureIdentity(cluster *Resource, id string) (map[string]any, *Error) {
	res := c.find(id)
	if res == nil {
		var e *Error
		if res, e = c.provide(id, identityType, cluster, cluster.Tags, nil, nil, false); e != nil {
			return nil, e
		}
	}
	return map[string]any{"resourceId": lowerGroup(res.ID), "clientId": res.Properties.str("clientId"), "objectId": res.Properties.str("principalId")}, nil
}

// ensureNetwork makes the security group of the nodes and, for a cluster that brings none, their network.
func (c *Cloud) ensureNetwork(cluster *Resource) *Error {
	nsg := inNodeGroup(cluster, "Microsoft.Network/networkSecurityGroups", "aks-agentpool-"+clusterNumber(c, cluster)+"-nsg")
	if c.find(nsg) == nil {
		if _, e := c.provide(nsg, "Microsoft.Network/networkSecurityGroups", cluster, cluster.Tags, nil, nil, false); e != nil {
			return e
		}
	}
	vnet := inNodeGroup(cluster, vnetType, "aks-vnet-"+clusterNumber(c, cluster))
	if c.vnetOf(cluster) != nil || c.find(vnet) != nil {
		return nil
	}
	props := map[string]any{"addressPrefix": ownSubnet, "networkSecurityGroup": map[string]any{"id": nsg}}
	if cluster.Properties.str("networkProfile.outboundType") == "managedNATGateway" {
		nat, e := c.ensureGateway(cluster)
		if e != nil {
			return e
		}
		props["natGateway"] = map[string]any{"id": nat}
	}
	_, e := c.provide(vnet, vnetType, cluster, cluster.Tags, nil, doc{"addressSpace": map[string]any{"addressPrefixes": []any{ownNetwork}},
		"subnets": []any{map[string]any{"name": "aks-subnet", "properties": props}}}, false)
	return e
}

// ensureGateway makes the NAT gateway of a cluster whose way out AKS manages.
func (c *Cloud) ensureGateway(cluster *Resource) (string, *Error) {
	ip, e := c.ensurePublicIP(cluster, "aks-natgateway-"+clusterNumber(c, cluster)+"-pip0", nil)
	if e != nil {
		return "", e
	}
	id := inNodeGroup(cluster, natType, "aks-natgateway-"+clusterNumber(c, cluster))
	_, e = c.provide(id, natType, cluster, cluster.Tags, doc{"sku": map[string]any{"name": "Standard"}}, doc{"publicIpAddresses": []any{map[string]any{"id": ip.ID}}, "idleTimeoutInMinutes": 4.0}, false)
	return id, e
}

// ensurePublicIP makes a public address in the node resource group; tags come on top of the cluster's.
func (c *Cloud) ensurePublicIP(cluster *Resource, name string, tags map[string]string) (*Resource, *Error) {
	id := inNodeGroup(cluster, publicIPType, name)
	if ip := c.find(id); ip != nil {
		return ip, nil
	}
	all := map[string]string{}
	maps.Copy(all, cluster.Tags)
	maps.Copy(all, tags)
	return c.provide(id, publicIPType, cluster, all, doc{"sku": map[string]any{"name": "Standard"}}, doc{"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4", "idleTimeoutInMinutes": 30.0}, false)
}

// ensureEgress makes the load balancer through which nodes reach the internet, if that is their way out.
func (c *Cloud) ensureEgress(cluster *Resource) *Error {
	n := cluster.Properties.sub("networkProfile")
	lb := inNodeGroup(cluster, loadBalancerType, "kubernetes")
	if n.str("outboundType") != "loadBalancer" {
		return nil
	}
	profile := n.sub("loadBalancerProfile")
	if has := c.find(lb); has != nil {
		for _, rule := range has.Properties.docs(lbOutboundRules) {
			for _, f := range rule.docs("properties.frontendIPConfigurations") {
				if front := c.partOf(f.str("id")); front != nil {
					profile["effectiveOutboundIPs"] = []any{map[string]any{"id": front.ref("publicIPAddress")}}
				}
			}
		}
		return nil
	}
	name := c.World.UUID()
	ip, e := c.ensurePublicIP(cluster, name, nil)
	if e != nil {
		return e
	}
	front := map[string]any{"id": lb + "/" + lbFrontends + "/" + name}
	_, e = c.provide(lb, loadBalancerType, cluster, cluster.Tags, doc{"sku": map[string]any{"name": "Standard"}}, doc{
		lbFrontends: []any{map[string]any{"name": name, "properties": map[string]any{"publicIPAddress": map[string]any{"id": ip.ID}}}},
		lbPools:     []any{map[string]any{"name": nodesPool}, map[string]any{"name": "aksOutboundBackendPool"}},
		lbOutboundRules: []any{map[string]any{"name": "aksOutboundRule", "properties": map[string]any{"protocol": "All", "idleTimeoutInMinutes": 30.0, "enableTcpReset": true, "allocatedOutboundPorts": 0.0,
			"frontendIPConfigurations": []any{front}, "backendAddressPool": map[string]any{"id": lb + "/" + lbPools + "/aksOutboundBackendPool"}}}}}, false)
	if e != nil {
		return e
	}
	profile["effectiveOutboundIPs"] = []any{map[string]any{"id": ip.ID}}
	n["loadBalancerSku"] = "standard"
	return nil
}

// nodesPool is the pool of a cluster's load balancers in which its nodes are.
const nodesPool = "kubernetes"

// nodeSubnet is the subnet of a pool's machines.
func (c *Cloud) nodeSubnet(cluster, pool *Resource) string {
	if id := pool.Properties.str("vnetSubnetID"); id != "" {
		return id
	}
	return inNodeGroup(cluster, vnetType, "aks-vnet-"+clusterNumber(c, cluster)) + "/subnets/aks-subnet"
}

// ensurePrivateEndpoint makes what a private API server shows in the network: its interface, and the zone with its name.
func (c *Cloud) ensurePrivateEndpoint(cluster *Resource) *Error {
	access := cluster.Properties.sub("apiServerAccessProfile")
	pools := c.poolsOf(cluster)
	if len(pools) == 0 {
		return nil
	}
	subnet := c.nodeSubnet(cluster, pools[0])
	if access.flag("enableVnetIntegration") {
		return c.ensureIntegration(cluster, access.str("subnetId"))
	}
	if !access.flag("enablePrivateCluster") {
		return nil
	}
	nic := inNodeGroup(cluster, nicType, "kube-apiserver.nic."+cluster.Properties.str("resourceUID"))
	if c.find(nic) == nil {
		if _, e := c.provide(nic, nicType, cluster, cluster.Tags, nil, doc{"ipConfigurations": []any{map[string]any{"name": "privateEndpointIpConfig", "properties": map[string]any{"subnet": map[string]any{"id": subnet}}}}}, false); e != nil {
			return e
		}
	}
	if !strings.EqualFold(access.str("privateDNSZone"), "system") {
		return nil
	}
	_, name, _ := strings.Cut(cluster.Properties.str("privateFQDN"), ".")
	zone := inNodeGroup(cluster, privateZoneType, name)
	if c.find(zone) != nil {
		return nil
	}
	if _, e := c.provide(zone, privateZoneType, cluster, cluster.Tags, nil, nil, false); e != nil {
		return e
	}
	_, e := c.provide(zone+"/virtualNetworkLinks/"+cluster.Name, zoneLinkType, cluster, cluster.Tags, nil, doc{"registrationEnabled": false, "virtualNetwork": map[string]any{"id": parentOf(subnet)}}, false)
	return e
}

// ensureIntegration makes the internal load balancer behind which an API server stands in the network.
func (c *Cloud) ensureIntegration(cluster *Resource, subnet string) *Error {
	lb := inNodeGroup(cluster, loadBalancerType, "kube-apiserver")
	if subnet == "" || c.find(lb) != nil {
		return nil
	}
	_, e := c.provide(lb, loadBalancerType, cluster, cluster.Tags, doc{"sku": map[string]any{"name": "Standard"}}, doc{
		lbFrontends: []any{map[string]any{"name": "kube-apiserver-frontend", "properties": map[string]any{"subnet": map[string]any{"id": subnet}}}}}, false)
	return e
}
