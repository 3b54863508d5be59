package gcp

import (
	"net/netip"
	"slices"
	"strings"
)

// takeInternal finds an address in a subnetwork: the one that is wanted, by number or by the link to a reserved one, else the
// lowest free one. It answers nothing when the subnetwork is full.
func (e *Compute) takeInternal(subnet *Resource, field, wanted string) (string, error) {
	if wanted == "" {
		ip, err := e.freeInternal(subnet)
		if refused, ok := asRefusal(err); ok && refused.Reason == "IP_SPACE_EXHAUSTED" {
			return "", nil
		}
		return ip, err
	}
	if path := e.cloud.pathOfLink(subnet.project(), wanted); path != "" {
		address, err := e.link(subnet.project(), field, wanted, "addresses")
		if err != nil {
			return "", err
		}
		wanted = str(address.Doc, "address")
	}
	prefix, err := netip.ParsePrefix(str(subnet.Doc, "ipCidrRange"))
	ip, errIP := netip.ParseAddr(wanted)
	if err != nil || errIP != nil || !prefix.Contains(ip) {
		return "", invalidField(field, wanted, "Requested internal IP address is outside the network/subnetwork range.")
	}
	if user := e.userOfInternal(e.networkOf(subnet), wanted); user != "" {
		return "", refuse(400, "IP_IN_USE_BY_ANOTHER_RESOURCE", "IP '%s' is already being used by another resource.", wanted)
	}
	return wanted, nil
}

// userOfInternal is what has an address of a network, but for its reservation.
func (e *Compute) userOfInternal(network, ip string) string {
	for _, res := range e.st.Resources {
		switch res.Collection {
		case "instances":
			for _, n := range docs(res.Doc, "networkInterfaces") {
				if str(n, "networkIP") == ip && str(n, "network") == selfLink(network) {
					return res.Path
				}
			}
		case "forwardingRules":
			if str(res.Doc, "IPAddress") == ip && e.networkOf(res) == network {
				return res.Path
			}
		}
	}
	return ""
}

// takeExternal finds an external address: a reserved one of the region (or, without a region, a global one) by its link or
// number, else an ephemeral one.
func (e *Compute) takeExternal(project, region, field, wanted string) (string, error) {
	if wanted == "" {
		return e.freeExternal(), nil
	}
	scope := "global"
	if region != "" {
		scope = "regions/" + region
	}
	for _, a := range e.ofKind(project, "addresses") {
		if a.Path != e.cloud.pathOfLink(project, wanted) && str(a.Doc, "address") != wanted {
			continue
		}
		switch {
		case a.scope() != scope:
			return "", invalidField(field, wanted, "Specified IP address is in the wrong region or scope.")
		case a.Making || a.Dropping:
			return "", notReady(a.Path)
		case e.instanceWith(str(a.Doc, "address")) != "":
			return "", refuse(400, "IP_IN_USE_BY_ANOTHER_RESOURCE", "External IP address: %s is already in-use.", str(a.Doc, "address"))
		}
		return str(a.Doc, "address"), nil
	}
	if path := e.cloud.pathOfLink(project, wanted); path != "" {
		return "", e.kinds["addresses"].notFound(path)
	}
	return "", invalidField(field, wanted, "The specified external IP address '"+wanted+"' was not found in region or scope '"+strings.TrimPrefix(scope, "regions/")+"'.")
}

// instanceWith is the instance that has an external address.
func (e *Compute) instanceWith(ip string) string {
	for _, res := range e.st.Resources {
		for _, n := range docs(res.Doc, "networkInterfaces") {
			if slices.ContainsFunc(docs(n, "accessConfigs"), func(a Doc) bool { return str(a, "natIP") == ip }) {
				return res.Path
			}
		}
	}
	return ""
}

// dropExternal takes the external addresses of an instance that does not run, but for reserved ones ("IP addresses", ephemeral
// external addresses).
func (e *Compute) dropExternal(res *Resource) {
	for _, n := range docs(res.Doc, "networkInterfaces") {
		for _, a := range docs(n, "accessConfigs") {
			ip := str(a, "natIP")
			if !slices.ContainsFunc(e.ofKind(res.project(), "addresses"), func(r *Resource) bool { return str(r.Doc, "address") == ip }) {
				delete(a, "natIP")
			}
		}
	}
}

// renewExternal gives an instance that starts the external addresses that it lacks.
func (e *Compute) renewExternal(res *Resource) {
	for _, n := range docs(res.Doc, "networkInterfaces") {
		for _, a := range docs(n, "accessConfigs") {
			if str(a, "natIP") == "" {
				a["natIP"] = e.freeExternal()
			}
		}
	}
}
