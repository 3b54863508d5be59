package gcp

import (
	"strings"
	"time"
)

// networkKinds are the kinds of objects that networks are made of.
func (e *Compute) networkKinds() []*kind {
	return []*kind{e.networkKind()}
}

func (e *Compute) networkKind() *kind {
	return &kind{
		collection: "networks", noun: "network", schema: "Network", resources: map[string]string{"": "networks"},
		takes:   map[string]time.Duration{"insert": 15 * time.Second, "delete": 12 * time.Second},
		prepare: e.prepareNetwork, show: e.showNetwork, lateInUse: true,
		uses:  func(*Resource) []string { return nil },
		quota: func(*Resource) map[string]float64 { return map[string]float64{"NETWORKS": 1} },
	}
}

func (e *Compute) prepareNetwork(_ *request, path string, doc Doc) error {
	if _, said := doc["autoCreateSubnetworks"]; !said || str(doc, "IPv4Range") != "" {
		return refuse(400, "invalid", "Legacy networks are no longer supported. Set 'autoCreateSubnetworks' to create a VPC network.")
	}
	if mtu, said := doc["mtu"]; said && (num(doc, "mtu") < 1300 || num(doc, "mtu") > 8896) {
		return invalidField("resource.mtu", mtu, "Must be greater than or equal to 1300 and less than or equal to 8896.")
	}
	routing := sub(doc, "routingConfig")
	if routing == nil {
		routing = Doc{}
		doc["routingConfig"] = routing
	}
	setDefault(routing, "routingMode", "REGIONAL")
	setDefault(routing, "bgpBestPathSelectionMode", "LEGACY")
	setDefault(doc, "networkFirewallPolicyEnforcementOrder", "AFTER_CLASSIC_FIREWALL")
	doc["selfLinkWithId"] = selfLink(path)
	return nil
}

// showNetwork adds the subnetworks, which lie beside the network.
func (e *Compute) showNetwork(res *Resource, doc Doc) {
	links := []any{}
	for _, s := range e.ofKind(res.project(), "subnetworks") {
		if e.cloud.pathOfLink(res.project(), str(s.Doc, "network")) == res.Path {
			links = append(links, str(s.Doc, "selfLink"))
		}
	}
	if len(links) > 0 {
		doc["subnetworks"] = links
	}
	doc["selfLinkWithId"] = strings.TrimSuffix(selfLink(res.Path), res.name()) + res.ID
}

func (e *Compute) networkMethods(a *api) {}

func (e *Compute) furnishNetwork(p Project) {}
