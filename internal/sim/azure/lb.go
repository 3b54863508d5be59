package azure

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/sim"
)

// The lists in a load balancer, each of sub-resources with an ID.
const (
	lbFrontends     = "frontendIPConfigurations"
	lbPools         = "backendAddressPools"
	lbRules         = "loadBalancingRules"
	lbProbes        = "probes"
	lbNATRules      = "inboundNatRules"
	lbNATPools      = "inboundNatPools"
	lbOutboundRules = "outboundRules"
)

var lbLists = []string{lbFrontends, lbPools, lbRules, lbProbes, lbNATRules, lbOutboundRules, lbNATPools}

// basicBalancers is the quota of Basic load balancers, which cannot be made any more. A world that needs one raises it.
const basicBalancers = "BasicLoadBalancers"

func (c *Cloud) addBalancers() {
	c.World.DefineQuota(sim.Quota{Cloud: "azure", Service: "network", Code: basicBalancers, Name: "Load Balancers - Basic", Unit: "Count", Adjustable: true})
	allow(armnetwork.PossibleLoadBalancerSKUNameValues())
	allow(armnetwork.PossibleProbeProtocolValues())
	allow(armnetwork.PossibleTransportProtocolValues())
	allow(armnetwork.PossibleLoadDistributionValues())
	allow(armnetwork.PossibleLoadBalancerOutboundRuleProtocolValues())
	c.addKind(c.networkKind(&kind{typ: loadBalancerType, zonal: true, model: func() any { return &armnetwork.LoadBalancer{} },
		put: c.putBalancer, remove: c.removeBalancer, show: c.showBalancer, removed: c.balancerRemoved}))
	c.addBalancerParts()
	c.addInsights()
}

// putBalancer makes a load balancer, or replaces everything in it.
func (c *Cloud) putBalancer(r *request, now, old *Resource) (outcome, error) {
	sku := now.Top.str("sku.name")
	if old != nil && sku == "" {
		sku = old.Top.str("sku.name")
	}
	if sku == "" || strings.EqualFold(sku, "Basic") {
		sku = "Basic"
		if limit, _ := c.World.QuotaValue("azure", "network", basicBalancers, subscriptionOf(now.ID), now.Location); limit == 0 {
			// Retired on 30 September 2025, and the default of a body without a SKU ("Upgrading from basic Load Balancer").
			return outcome{}, refuseNetwork(http.StatusBadRequest, "BasicSkuLoadBalancerNotSupported", "Load balancer %s cannot be created with the sku Basic: Basic Load Balancer has been retired on September 30, 2025. Use the sku Standard.", now.ID)
		}
	}
	tier := now.Top.str("sku.tier")
	if tier == "" {
		tier = "Regional"
	}
	now.Top["sku"] = map[string]any{"name": sku, "tier": tier}
	if err := c.references(r, now, now.Location); err != nil {
		return outcome{}, err
	}
	for _, list := range lbLists {
		if err := c.nameParts(now, list); err != nil {
			return outcome{}, err
		}
	}
	if err := c.completeFrontends(now, old); err != nil {
		return outcome{}, err
	}
	if err := c.checkParts(now); err != nil {
		return outcome{}, err
	}
	if err := c.poolsStillUsed(now, old); err != nil {
		return outcome{}, err
	}
	delete(now.Properties, "resourceGuid")
	c.identify(now, old)
	if unchanged(now, old) {
		return nothingToDo, nil
	}
	return outcome{style: asyncHeader}, nil
}

// nameParts gives the sub-resources of a list their IDs, and takes away what only answers show.
func (c *Cloud) nameParts(now *Resource, list string) error {
	seen := []string{}
	now.Properties.def(list, []any{})
	for _, d := range now.Properties.docs(list) {
		name := d.str("name")
		if !networkName.pattern.MatchString(name) {
			return refuseNetwork(http.StatusBadRequest, "InvalidResourceName", "Resource name %s is invalid. %s", name, networkName.text)
		}
		if containsText(seen, name) {
			return refuseNetwork(http.StatusBadRequest, "DuplicateResourceName", "Resource %s has two child resources with the same name (%s).", now.ID, name)
		}
		seen = append(seen, name)
		p := d.sub("properties")
		if p == nil {
			p = doc{}
		}
		for _, computed := range []string{"provisioningState", "backendIPConfigurations", "backendIPConfiguration", "inboundNatRules", "inboundNatPools", "outboundRules", "loadBalancingRules"} {
			delete(p, computed)
		}
		if list == lbPools {
			keepAddresses(p)
		}
		delete(d, "etag")
		d["id"], d["type"], d["properties"] = now.ID+"/"+list+"/"+name, loadBalancerType+"/"+list, map[string]any(p)
		fillPart(list, p)
	}
	return nil
}

// keepAddresses leaves in a pool only the members that it names itself by address: those by interface are computed.
func keepAddresses(pool doc) {
	kept := []any{}
	for _, a := range pool.docs("loadBalancerBackendAddresses") {
		if !a.has("properties.networkInterfaceIPConfiguration") {
			kept = append(kept, map[string]any(a))
		}
	}
	delete(pool, "loadBalancerBackendAddresses")
	if len(kept) > 0 {
		pool["loadBalancerBackendAddresses"] = kept
	}
}

// fillPart adds the defaults of a sub-resource.
func fillPart(list string, p doc) {
	p["provisioningState"] = stateSucceeded
	switch list {
	case lbRules, lbNATRules, lbNATPools:
		p.def("idleTimeoutInMinutes", 4.0)
		p.def("enableFloatingIP", false)
		p.def("enableDestinationServiceEndpoint", false)
		p.def("enableTcpReset", false)
		p.def("allowBackendPortConflict", false)
		p.def("protocol", "Tcp")
	case lbProbes:
		p.def("intervalInSeconds", 15.0)
		p.def("numberOfProbes", 2.0)
		p.def("probeThreshold", 1.0)
		p.def("noHealthyBackendsBehavior", "AllProbedDown")
	case lbOutboundRules:
		p.def("idleTimeoutInMinutes", 4.0)
		p.def("enableTcpReset", false)
		p.def("allocatedOutboundPorts", 0.0)
	}
	if list != lbRules {
		return
	}
	p.def("loadDistribution", "Default")
	p.def("disableOutboundSnat", false)
	if pool := p.ref("backendAddressPool"); pool != "" && !p.has("backendAddressPools") {
		p["backendAddressPools"] = []any{map[string]any{"id": pool}}
	} else if all := p.docs("backendAddressPools"); pool == "" && len(all) == 1 {
		p["backendAddressPool"] = map[string]any{"id": all[0].str("id")}
	}
}

// completeFrontends gives every frontend its address: a public one, or one of a subnet.
func (c *Cloud) completeFrontends(now, old *Resource) error {
	for _, f := range now.Properties.docs(lbFrontends) {
		p := f.sub("properties")
		public, subnet := p.ref("publicIPAddress"), p.ref("subnet")
		if (public == "") == (subnet == "") && !p.has("publicIPPrefix") {
			return refuseNetwork(http.StatusBadRequest, "InvalidLoadBalancerFrontendIPConfiguration", "Frontend IP configuration %s must reference either a subnet or a public IP address.", f.str("id"))
		}
		p.def("privateIPAllocationMethod", "Dynamic")
		if public != "" {
			p["publicIPAddress"] = map[string]any{"id": public}
			if err := c.addressFree(now, public); err != nil {
				return err
			}
			if pip := c.find(public); pip != nil {
				c.assignAddress(pip)
			}
			continue
		}
		if subnet == "" {
			continue
		}
		p["subnet"] = map[string]any{"id": subnet}
		p.def("privateIPAddressVersion", "IPv4")
		if err := c.frontendAddress(f, p, old); err != nil {
			return err
		}
	}
	return nil
}

// frontendAddress takes an address of a subnet for a frontend, or keeps the one that it has.
func (c *Cloud) frontendAddress(f, p doc, old *Resource) error {
	wanted, subnet := p.str("privateIPAddress"), p.ref("subnet")
	if old != nil {
		for _, was := range old.Properties.docs(lbFrontends) {
			if strings.EqualFold(was.str("name"), f.str("name")) && strings.EqualFold(was.ref("properties.subnet"), subnet) {
				has := was.str("properties.privateIPAddress")
				if wanted == "" || wanted == has {
					p["privateIPAddress"] = has
					return nil
				}
			}
		}
	}
	addr, err := c.takeAddress(subnet, wanted, f.str("id"))
	if err != nil {
		return err
	}
	p["privateIPAddress"] = addr
	return nil
}

// poolsStillUsed refuses to take away a pool, NAT pool or frontend that something else refers to.
func (c *Cloud) poolsStillUsed(now, old *Resource) error {
	if old == nil {
		return nil
	}
	for _, list := range lbLists {
		for _, d := range old.Properties.docs(list) {
			gone := !slices.ContainsFunc(now.Properties.docs(list), func(n doc) bool { return strings.EqualFold(n.str("name"), d.str("name")) })
			if !gone {
				continue
			}
			for _, u := range c.usesOf(d.str("id")) {
				return badReference(d.str("id"), u.at)
			}
		}
	}
	return nil
}

// removeBalancer refuses to delete what a scale set sends its machines to; interfaces of single machines are let go.
func (c *Cloud) removeBalancer(_ *request, lb *Resource) (outcome, error) {
	for _, list := range []string{lbPools, lbNATPools, lbNATRules} {
		for _, d := range lb.Properties.docs(list) {
			for _, u := range c.usesOf(d.str("id")) {
				set := u.by.ID
				if u.by.Type == instanceNICType {
					set = parentOf(parentOf(u.by.ID))
				} else if u.by.Type != setType {
					continue
				}
				return outcome{}, refuseNetwork(http.StatusBadRequest, "LoadBalancerInUseByVirtualMachineScaleSet", "Cannot delete load balancer %s since its child resources %s are in use by virtual machine scale set %s.", lb.ID, d.str("name"), set)
			}
		}
	}
	return c.leaving(lb, 10, 3*time.Second, 8*time.Second)
}

// balancerRemoved takes the pools of a deleted load balancer out of the interfaces that were in them.
func (c *Cloud) balancerRemoved(lb *Resource) {
	for _, nic := range c.shelves["network"].sorted() {
		if nic.Type != nicType {
			continue
		}
		for _, cfg := range nic.Properties.docs("ipConfigurations") {
			for _, list := range []string{"loadBalancerBackendAddressPools", "loadBalancerInboundNatRules"} {
				kept := []any{}
				for _, ref := range cfg.docs("properties." + list) {
					if !strings.HasPrefix(key(ref.str("id")), key(lb.ID)+"/") {
						kept = append(kept, map[string]any(ref))
					}
				}
				if len(cfg.docs("properties."+list)) != len(kept) {
					cfg.sub("properties")[list] = kept
				}
			}
		}
	}
}
