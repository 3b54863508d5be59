package gcp

import (
	"net/netip"
	"time"
)

func (e *Compute) routeKind() *kind {
	return &kind{
		collection: "routes", noun: "route", schema: "Route", resources: map[string]string{"": "routes"}, status: "routeStatus",
		takes:   map[string]time.Duration{"insert": 10 * time.Second, "delete": 10 * time.Second},
		prepare: e.prepareRoute,
		refuseDelete: func(_ *request, res *Resource) error {
			if res.Inner["subnet"] != "" {
				return refuse(400, "invalid", "Invalid value for field 'route': '%s'. The local route of a subnetwork cannot be deleted.", res.name())
			}
			return nil
		},
		parents: func(res *Resource) []string { return []string{e.networkOf(res)} },
		quota: func(res *Resource) map[string]float64 {
			if res.Default {
				return nil
			}
			return map[string]float64{"ROUTES": 1}
		},
	}
}

var nextHops = []string{"nextHopGateway", "nextHopInstance", "nextHopIp", "nextHopVpnTunnel", "nextHopIlb"}

func (e *Compute) prepareRoute(r *request, _ string, doc Doc) error {
	net, err := e.link(r.Project.ID, "resource.network", str(doc, "network"), "networks")
	if err != nil {
		return err
	}
	doc["network"] = selfLink(net.Path)
	p, err := netip.ParsePrefix(str(doc, "destRange"))
	if err != nil || p.Masked() != p {
		return invalidField("resource.destRange", str(doc, "destRange"), "Must be a valid CIDR range.")
	}
	for _, u := range e.rangesIn(net.Path) {
		// "Interactions with subnet routes", VPC: a static route may be wider than a subnet route, not the same or narrower.
		if u.prefix.Bits() <= p.Bits() && u.prefix.Contains(p.Addr()) && e.st.Resources[u.path].Collection == "subnetworks" {
			return refuse(400, "invalid", "Invalid value for field 'resource.destRange': '%s'. Route hides %s.", p, u.what)
		}
	}
	setDefault(doc, "priority", float64(1000))
	if n := num(doc, "priority"); n < 0 || n > 65535 {
		return invalidField("resource.priority", n, "Must be between 0 and 65535.")
	}
	hops := 0
	for _, f := range nextHops {
		if str(doc, f) != "" {
			hops++
		}
	}
	if hops != 1 {
		return invalidField("resource.nextHopIp", str(doc, "nextHopIp"), "Exactly one next hop must be specified.")
	}
	if gw := str(doc, "nextHopGateway"); gw != "" {
		if lastPart(gw) != "default-internet-gateway" {
			return invalidField("resource.nextHopGateway", gw, "The only gateway is default-internet-gateway.")
		}
		doc["nextHopGateway"] = selfLink("projects/" + r.Project.ID + "/global/gateways/default-internet-gateway")
	}
	return nil
}

// systemRoute adds a route that the cloud makes by itself.
func (e *Compute) systemRoute(net *Resource, description string, doc Doc) *Resource {
	doc["network"], doc["description"] = selfLink(net.Path), description
	name := "default-route-" + e.cloud.World.Hex("", 16)
	if _, local := doc["nextHopNetwork"]; local {
		name = "default-route-r-" + e.cloud.World.Hex("", 16)
	}
	route := e.make("projects/"+net.project()+"/global/routes/"+name, "routes", doc)
	route.Default = true
	return route
}
