package gcp

import (
	"slices"
	"strings"
	"time"
)

// networkKinds are the kinds of objects that networks are made of.
func (e *Compute) networkKinds() []*kind {
	return []*kind{e.networkKind(), e.subnetKind(), e.routeKind(), e.firewallKind(), e.routerKind(), e.addressKind()}
}

// networkMethods adds the methods that these kinds have besides the common ones.
func (e *Compute) networkMethods(a *api) {
	a.ops["networks.patch"] = e.patchNetwork
	a.ops["networks.getEffectiveFirewalls"] = e.effectiveFirewalls
	a.ops["networks.addPeering"] = e.addPeering
	a.ops["networks.updatePeering"] = e.updatePeering
	a.ops["networks.removePeering"] = e.removePeering
	a.ops["networks.listPeeringRoutes"] = e.listPeeringRoutes
	a.ops["subnetworks.patch"] = e.patchSubnet
	a.ops["subnetworks.expandIpCidrRange"] = e.expandSubnet
	a.ops["subnetworks.setPrivateIpGoogleAccess"] = e.setPrivateAccess
	a.ops["subnetworks.listUsable"] = e.listUsable
	a.ops["firewalls.patch"] = e.changeFirewall("compute.firewalls.patch")
	a.ops["firewalls.update"] = e.changeFirewall("update")
	a.ops["routers.patch"] = e.changeRouter("patch")
	a.ops["routers.update"] = e.changeRouter("update")
	a.ops["routers.getRouterStatus"] = e.routerStatus
	a.ops["routers.getNatMappingInfo"] = e.natMappings
	e.actions[actPeering] = e.peered
}

func (e *Compute) networkKind() *kind {
	return &kind{
		collection: "networks", noun: "network", schema: "Network", resources: map[string]string{"": "networks"},
		takes:   map[string]time.Duration{"insert": 15 * time.Second, "delete": 12 * time.Second},
		prepare: e.prepareNetwork, ready: e.networkReady, dropped: e.networkDropped, show: e.showNetwork, lateInUse: true,
		uses: func(*Resource) []string { return nil }, loose: []string{"peerings", "subnetworks", "networkProfile"}, users: e.networkUsers,
		quota: func(*Resource) map[string]float64 { return map[string]float64{"NETWORKS": 1} },
	}
}

func (e *Compute) prepareNetwork(r *request, path string, doc Doc) error {
	if _, said := doc["autoCreateSubnetworks"]; !said || str(doc, "IPv4Range") != "" {
		return refuse(400, "invalid", "Invalid value for field 'resource.IPv4Range': ''. Legacy networks are no longer supported: set 'autoCreateSubnetworks' to create a VPC network.")
	}
	if err := checkMTU(doc); err != nil {
		return err
	}
	if profile := str(doc, "networkProfile"); profile != "" {
		doc["networkProfile"] = selfLink(e.cloud.pathOfLink(r.Project.ID, profile))
	}
	if truth(doc, "enableUlaInternalIpv6") {
		setDefault(doc, "internalIpv6Range", e.ulaRange())
	} else {
		delete(doc, "enableUlaInternalIpv6")
	}
	delete(doc, "peerings")
	delete(doc, "subnetworks")
	setDefault(doc, "routingConfig", Doc{})
	setDefault(sub(doc, "routingConfig"), "routingMode", "REGIONAL")
	setDefault(sub(doc, "routingConfig"), "bgpBestPathSelectionMode", "LEGACY")
	setDefault(doc, "networkFirewallPolicyEnforcementOrder", "AFTER_CLASSIC_FIREWALL")
	return nil
}

// ulaRange is a range of unique local IPv6 addresses for a network.
func (e *Compute) ulaRange() string {
	return "fd20:" + e.cloud.World.Hex("", 3) + ":" + e.cloud.World.Hex("", 3) + ":0:0:0:0:0/48"
}

func checkMTU(doc Doc) error {
	if mtu, said := doc["mtu"]; said && (num(doc, "mtu") < 1300 || num(doc, "mtu") > 8896) {
		return invalidField("resource.mtu", mtu, "Must be greater than or equal to 1300 and less than or equal to 8896.")
	}
	return nil
}

// networkReady makes what comes with a network: the default route to the internet and, in auto mode, a subnetwork in every
// region.
func (e *Compute) networkReady(res *Resource) {
	e.systemRoute(res, "Default route to the Internet.", Doc{"destRange": "0.0.0.0/0", "priority": float64(1000),
		"nextHopGateway": selfLink("projects/" + res.project() + "/global/gateways/default-internet-gateway")})
	if !truth(res.Doc, "autoCreateSubnetworks") {
		return
	}
	for _, region := range regionNames() {
		doc := Doc{"ipCidrRange": regions[region].auto, "network": selfLink(res.Path)}
		path := "projects/" + res.project() + "/regions/" + region + "/subnetworks/" + res.name()
		e.fillSubnet(doc)
		s := e.make(path, "subnetworks", doc)
		s.Default = true
		e.subnetReady(s)
	}
}

// networkDropped takes along what came with the network.
func (e *Compute) networkDropped(res *Resource) {
	for _, other := range e.inOrder(func(o *Resource) bool { return o.Default && e.networkOf(o) == res.Path }) {
		delete(e.st.Resources, other.Path)
	}
}

// networkOf is the path of the network that an object lies in.
func (e *Compute) networkOf(res *Resource) string {
	return e.cloud.pathOfLink(res.project(), str(res.Doc, "network"))
}

// networkUsers are what uses a network without a link of its own: the networks that it is peered with.
func (e *Compute) networkUsers(res *Resource) []string {
	var out []string
	for _, p := range docs(res.Doc, "peerings") {
		out = append(out, e.cloud.pathOfLink(res.project(), str(p, "network")))
	}
	return out
}

// showNetwork adds the subnetworks, which lie beside the network, and how the peerings stand.
func (e *Compute) showNetwork(res *Resource, doc Doc) {
	links := []any{}
	for _, s := range e.ofKind(res.project(), "subnetworks") {
		if e.networkOf(s) == res.Path && !s.Making {
			links = append(links, str(s.Doc, "selfLink"))
		}
	}
	if len(links) > 0 {
		doc["subnetworks"] = links
	}
	doc["selfLinkWithId"] = strings.TrimSuffix(selfLink(res.Path), res.name()) + res.ID
	for _, p := range docs(doc, "peerings") {
		e.showPeering(res, p)
	}
}

// patchNetwork changes what of a network can be changed ("Method: networks.patch").
func (e *Compute) patchNetwork(r *request) (any, error) {
	res, err := e.change(r, e.kinds["networks"])
	if err != nil {
		return nil, err
	}
	for _, f := range keysOf(r.Body) {
		same := fingerprint(r.Body[f]) == fingerprint(res.Doc[f])
		if !same && !slices.Contains([]string{"routingConfig", "mtu", "networkFirewallPolicyEnforcementOrder", "enableUlaInternalIpv6", "internalIpv6Range"}, f) {
			return nil, invalidField("resource."+f, text(r.Body[f]), "Field cannot be changed by this method.")
		}
	}
	if err := checkMTU(r.Body); err != nil {
		return nil, err
	}
	doc := clone(res.Doc)
	merge(doc, r.Body)
	if truth(doc, "enableUlaInternalIpv6") {
		setDefault(doc, "internalIpv6Range", e.ulaRange())
	}
	return e.start(r, change{Type: "updateNetwork", Target: res, Action: actReplace, Doc: doc}), nil
}

func (e *Compute) effectiveFirewalls(r *request) (any, error) {
	res, err := e.find(r, e.kinds["networks"])
	if err != nil {
		return nil, err
	}
	rules := []any{}
	for _, f := range e.ofKind(res.project(), "firewalls") {
		if e.networkOf(f) == res.Path {
			rules = append(rules, e.shown(f))
		}
	}
	return Doc{"firewalls": rules}, nil
}

// furnishNetwork makes the network that every project has from the start, and its firewall rules ("Default network", VPC).
func (e *Compute) furnishNetwork(p Project) {
	path := "projects/" + p.ID + "/global/networks/default"
	net := e.make(path, "networks", Doc{"autoCreateSubnetworks": true, "description": "Default network for the project",
		"networkFirewallPolicyEnforcementOrder": "AFTER_CLASSIC_FIREWALL"})
	e.networkReady(net)
	for _, f := range []struct{ name, text, source, proto, port string }{
		{"default-allow-icmp", "Allow ICMP from anywhere", "0.0.0.0/0", "icmp", ""},
		{"default-allow-internal", "Allow internal traffic on the default network", "10.128.0.0/9", "all", ""},
		{"default-allow-rdp", "Allow RDP from anywhere", "0.0.0.0/0", "tcp", "3389"},
		{"default-allow-ssh", "Allow SSH from anywhere", "0.0.0.0/0", "tcp", "22"},
	} {
		allowed := Doc{"IPProtocol": f.proto}
		if f.port != "" {
			allowed["ports"] = []any{f.port}
		}
		e.make("projects/"+p.ID+"/global/firewalls/"+f.name, "firewalls", Doc{"description": f.text, "network": selfLink(path), "priority": float64(65534),
			"sourceRanges": []any{f.source}, "allowed": []any{allowed}, "direction": "INGRESS", "disabled": false, "logConfig": Doc{"enable": false}})
	}
}
