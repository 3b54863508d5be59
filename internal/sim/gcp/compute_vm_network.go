package gcp

import (
	"fmt"
	"net/netip"
	"strings"
)

// prepareInterfaces checks the network interfaces of an instance and fills in networks and subnetworks.
func (e *Compute) prepareInterfaces(project, zone string, doc Doc) error {
	interfaces := docs(doc, "networkInterfaces")
	if len(interfaces) == 0 {
		return invalidField("resource.networkInterfaces", "", "At least one network interface is required.")
	}
	used := map[string]bool{}
	for n, i := range interfaces {
		field := fmt.Sprintf("resource.networkInterfaces[%d]", n)
		if err := e.prepareInterface(project, zone, field, i); err != nil {
			return err
		}
		if used[str(i, "network")] {
			return invalidField(field, str(i, "network"), "Two interfaces of an instance cannot be in the same network.")
		}
		used[str(i, "network")] = true
		i["kind"], i["name"] = "compute#networkInterface", fmt.Sprintf("nic%d", n)
		setDefault(i, "stackType", "IPV4_ONLY")
	}
	return nil
}

// prepareInterface finds the subnetwork of an interface: as given, or that of an auto mode network in the instance's region.
func (e *Compute) prepareInterface(project, zone, field string, i Doc) error {
	region := regionOf(zone)
	if link := str(i, "subnetwork"); link != "" {
		subnet, err := e.link(project, field+".subnetwork", link, "subnetworks")
		if err != nil {
			return err
		}
		if subnet.region() != region {
			return invalidField(field+".subnetwork", link, fmt.Sprintf("The subnetwork must be in the region of the instance, '%s'.", region))
		}
		if p := str(subnet.Doc, "purpose"); p != "" && p != "PRIVATE" {
			return invalidField(field+".subnetwork", link, fmt.Sprintf("Subnetwork with purpose %s cannot be used for instances.", p))
		}
		network := str(subnet.Doc, "network")
		if given := str(i, "network"); given != "" && e.cloud.pathOfLink(project, given) != e.cloud.pathOfLink(project, network) {
			return refuse(400, "badRequest", "Subnetwork \"%s\" is not valid for Network \"%s\".", subnet.Path, lastPart(given))
		}
		i["subnetwork"], i["network"] = selfLink(subnet.Path), selfLink(e.cloud.pathOfLink(project, network))
		return prepareAccess(field, i)
	}
	link := str(i, "network")
	if link == "" {
		link = "global/networks/default"
	}
	network, err := e.link(project, field+".network", link, "networks")
	if err != nil {
		return err
	}
	i["network"] = selfLink(network.Path)
	for _, s := range e.ofKind(project, "subnetworks") {
		if truth(network.Doc, "autoCreateSubnetworks") && s.region() == region && e.cloud.pathOfLink(project, str(s.Doc, "network")) == network.Path {
			i["subnetwork"] = selfLink(s.Path)
			return prepareAccess(field, i)
		}
	}
	return invalidField(field, "{  \"network\": \""+link+"\"}", "Subnetwork should be specified for custom subnetmode network")
}

// prepareAccess checks what gives an interface an external address. Without any it has none.
func prepareAccess(field string, i Doc) error {
	access := docs(i, "accessConfigs")
	if len(access) > 1 {
		return invalidField(field+".accessConfigs", len(access), "At most one access config currently supported.")
	}
	for _, a := range access {
		a["kind"] = "compute#accessConfig"
		for k, v := range map[string]any{"type": "ONE_TO_ONE_NAT", "name": "External NAT", "networkTier": "PREMIUM"} {
			setDefault(a, k, v)
		}
	}
	return nil
}

// connect gives the interfaces of an instance their addresses. A subnetwork without free addresses is remembered: that shows
// when the operation ends.
func (e *Compute) connect(res *Resource) error {
	for n, i := range docs(res.Doc, "networkInterfaces") {
		field := fmt.Sprintf("resource.networkInterfaces[%d]", n)
		subnet := e.st.Resources[strings.TrimPrefix(str(i, "subnetwork"), apiRoot)]
		ip, err := e.takeInternal(subnet, field+".networkIP", str(i, "networkIP"))
		if err != nil {
			return err
		}
		if ip == "" {
			res.inner("full", subnet.Path)
			continue
		}
		i["networkIP"] = ip
		for _, a := range docs(i, "accessConfigs") {
			if a["natIP"], err = e.takeExternal(res.project(), res.region(), field+".accessConfigs[0].natIP", str(a, "natIP")); err != nil {
				return err
			}
		}
		i["fingerprint"] = fingerprint([]any{res.ID, ip, i["accessConfigs"]})
	}
	return nil
}

// probeRanges are where health checks of load balancers and of managed groups come from ("Health checks overview", probe IP
// ranges and firewall rules).
var probeRanges = []netip.Prefix{netip.MustParsePrefix("35.191.0.0/16"), netip.MustParsePrefix("130.211.0.0/22")}

// admitted says whether firewall rules let TCP from everywhere in some ranges reach a port of an instance.
func (e *Compute) admitted(res *Resource, from []netip.Prefix, port int) bool {
	nic := docs(res.Doc, "networkInterfaces")
	if len(nic) == 0 {
		return false
	}
	for _, p := range from {
		if !e.admits(e.cloud.pathOfLink(res.project(), str(nic[0], "network")), res, packet{"INGRESS", p, "tcp", port}) {
			return false
		}
	}
	return true
}

// reachesGoogle says whether an instance reaches Google's APIs: by any way out, or by Private Google Access of its subnetwork.
func (e *Compute) reachesGoogle(res *Resource) bool {
	if e.hasEgress(res) {
		return true
	}
	for _, i := range docs(res.Doc, "networkInterfaces") {
		if s := e.st.Resources[strings.TrimPrefix(str(i, "subnetwork"), apiRoot)]; s != nil && truth(s.Doc, "privateIpGoogleAccess") {
			return true
		}
	}
	return false
}

// hasExternal says whether an interface has an external address of its own.
func hasExternal(res *Resource) bool {
	for _, i := range docs(res.Doc, "networkInterfaces") {
		for _, a := range docs(i, "accessConfigs") {
			if str(a, "natIP") != "" {
				return true
			}
		}
	}
	return false
}
