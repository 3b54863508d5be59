package gcp

import (
	"errors"
	"strings"
)

// The endpoints that managed services make by a service connection policy: an address and a forwarding rule in the customer's project,
// with names of the service's own and without labels. The address keeps its subnetwork, and that its network, from being deleted.

// makeEndpoint makes one for an instance, in the first subnetwork of a policy that has a free address, and answers the address's path.
func (c *Cloud) makeEndpoint(p *connectionPolicy, producer string) (string, error) {
	id := c.World.UUID()
	for _, path := range texts(sub(p.Doc, "pscConfig"), "subnetworks") {
		subnet := c.compute.at(path)
		if subnet == nil {
			continue
		}
		ip, err := c.compute.freeInternal(subnet)
		if err != nil {
			continue
		}
		base := "projects/" + subnet.project() + "/regions/" + subnet.region()
		address, rule := base+"/addresses/sca-auto-addr-"+id, base+"/forwardingRules/sca-auto-fr-"+id
		a := c.compute.make(address, "addresses", Doc{"address": ip, "addressType": "INTERNAL", "purpose": "GCE_ENDPOINT", "description": "", "networkTier": "PREMIUM", "status": "IN_USE",
			"subnetwork": selfLink(path), "users": []any{selfLink(rule)}})
		a.inner("policy", p.Name)
		a.inner("producer", producer)
		c.compute.make(rule, "forwardingRules", Doc{"IPAddress": ip, "loadBalancingScheme": "", "network": selfLink(str(p.Doc, "network")), "subnetwork": selfLink(path), "networkTier": "PREMIUM",
			"description": "", "target": selfLink(base + "/serviceAttachments/gcp-memorystore-auto-" + id), "pscConnectionId": c.numericID(), "pscConnectionStatus": "ACCEPTED"})
		return address, nil
	}
	return "", errors.New("there is no free IP address in the subnetworks of the service connection policy '" + p.Name + "'")
}

// ruleOf is the forwarding rule that goes with an endpoint's address.
func ruleOf(address string) string {
	return strings.Replace(address, "/addresses/sca-auto-addr-", "/forwardingRules/sca-auto-fr-", 1)
}

// removeEndpoint takes an endpoint away.
func (c *Cloud) removeEndpoint(address string) {
	for _, path := range []string{ruleOf(address), address} {
		if res := c.compute.at(path); res != nil {
			c.compute.drop(res)
		}
	}
}
