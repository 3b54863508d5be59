package gcp

import (
	"fmt"
	"slices"
	"time"
)

func (e *Compute) routerKind() *kind {
	return &kind{
		collection: "routers", noun: "router", schema: "Router", resources: map[string]string{"regions": "routers"},
		takes:   map[string]time.Duration{"insert": 8 * time.Second, "delete": 10 * time.Second},
		prepare: e.prepareRouter, ready: e.allocateNatAddresses, changed: e.allocateNatAddresses, dropped: e.releaseNatAddresses, loose: []string{"bgp", "region"},
		parents: func(res *Resource) []string { return []string{e.networkOf(res)} },
		quota:   func(*Resource) map[string]float64 { return map[string]float64{"ROUTERS": 1} },
	}
}

func (e *Compute) prepareRouter(r *request, path string, doc Doc) error {
	net, err := e.link(r.Project.ID, "resource.network", str(doc, "network"), "networks")
	if err != nil {
		return err
	}
	doc["network"] = selfLink(net.Path)
	setDefault(doc, "encryptedInterconnectRouter", false)
	return e.fillNats(r.Project.ID, net.Path, r.Region, path, doc)
}

// changeRouter is patch or update. A patch replaces the lists that it names; the network and region that it names are kept as
// they were written, even when they are only a part of the link.
func (e *Compute) changeRouter(opType string) operation {
	return func(r *request) (any, error) {
		res, err := e.change(r, e.kinds["routers"])
		if err != nil {
			return nil, err
		}
		if given := str(r.Body, "network"); given != "" && e.cloud.pathOfLink(r.Project.ID, given) != e.networkOf(res) {
			return nil, invalidField("resource.network", given, "The network of a router cannot be changed.")
		}
		doc := clone(res.Doc)
		if opType == "update" {
			for _, f := range []string{"nats", "bgp", "bgpPeers", "interfaces", "description"} {
				delete(doc, f)
			}
		}
		merge(doc, r.Body)
		if err := e.fillNats(r.Project.ID, e.networkOf(res), res.region(), res.Path, doc); err != nil {
			return nil, err
		}
		if err := e.checkReferences(e.kinds["routers"], res.Path, doc); err != nil {
			return nil, err
		}
		return e.start(r, change{Type: opType, Target: res, Takes: 9 * time.Second, Action: actReplace, Doc: doc}), nil
	}
}

// The values of sourceSubnetworkIpRangesToNat.
const (
	natAllRanges  = "ALL_SUBNETWORKS_ALL_IP_RANGES"
	natAllPrimary = "ALL_SUBNETWORKS_ALL_PRIMARY_IP_RANGES"
	natListed     = "LIST_OF_SUBNETWORKS"
)

// fillNats completes and checks the Cloud NAT gateways of a router ("Cloud NAT product overview" and "Method: routers.patch").
func (e *Compute) fillNats(project, network, region, router string, doc Doc) error {
	if len(list(doc, "nats")) == 0 {
		delete(doc, "nats")
		return nil
	}
	names := map[string]bool{}
	for i, nat := range docs(doc, "nats") {
		at := fmt.Sprintf("resource.nats[%d]", i)
		name := str(nat, "name")
		switch {
		case name == "":
			return refuse(400, "required", "Required field '%s.name' not specified", at)
		case !tagPattern.MatchString(name):
			return invalidField(at+".name", name, "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'")
		case names[name]:
			return invalidField(at+".name", name, "Duplicate NAT name.")
		}
		names[name] = true
		setDefault(nat, "natIpAllocateOption", "AUTO_ONLY")
		setDefault(nat, "sourceSubnetworkIpRangesToNat", natAllRanges)
		setDefault(nat, "autoNetworkTier", "PREMIUM")
		setDefault(nat, "effectiveTcpTimeWaitTimeoutSec", orNumber(nat, "tcpTimeWaitTimeoutSec", 120))
		setDefault(nat, "enableEndpointIndependentMapping", false)
		setDefault(nat, "endpointTypes", []any{"ENDPOINT_TYPE_VM"})
		setDefault(nat, "type", "PUBLIC")
		if err := checkNat(at, nat); err != nil {
			return err
		}
	}
	return e.checkNatOverlap(project, network, region, router, doc)
}

func orNumber(d Doc, key string, otherwise float64) float64 {
	if _, ok := d[key]; ok {
		return num(d, key)
	}
	return otherwise
}

func checkNat(at string, nat Doc) error {
	ips, option := texts(nat, "natIps"), str(nat, "natIpAllocateOption")
	switch {
	case option == "MANUAL_ONLY" && len(ips) == 0 && str(nat, "type") == "PUBLIC":
		return invalidField(at+".natIps", "", "At least one NAT IP must be specified when natIpAllocateOption is MANUAL_ONLY.")
	case option == "AUTO_ONLY" && len(ips) > 0:
		return invalidField(at+".natIps", ips[0], "NAT IPs may only be specified when natIpAllocateOption is MANUAL_ONLY.")
	}
	subnets, ranges := docs(nat, "subnetworks"), str(nat, "sourceSubnetworkIpRangesToNat")
	switch {
	case ranges == natListed && len(subnets) == 0:
		return invalidField(at+".subnetworks", "", "At least one subnetwork must be specified when sourceSubnetworkIpRangesToNat is LIST_OF_SUBNETWORKS.")
	case ranges != natListed && len(subnets) > 0:
		return invalidField(at+".subnetworks", "", "Subnetworks may only be specified when sourceSubnetworkIpRangesToNat is LIST_OF_SUBNETWORKS.")
	}
	if truth(nat, "enableDynamicPortAllocation") && truth(nat, "enableEndpointIndependentMapping") {
		return invalidField(at+".enableEndpointIndependentMapping", true, "Endpoint-independent mapping and dynamic port allocation cannot both be enabled.")
	}
	if n, said := nat["minPortsPerVm"]; said && truth(nat, "enableDynamicPortAllocation") && (num(nat, "minPortsPerVm") < 32 || int(num(nat, "minPortsPerVm"))&(int(num(nat, "minPortsPerVm"))-1) != 0) {
		return invalidField(at+".minPortsPerVm", n, "Must be a power of two of at least 32 when dynamic port allocation is enabled.")
	}
	if logs := sub(nat, "logConfig"); logs != nil {
		setDefault(logs, "enable", false)
		setDefault(logs, "filter", "ALL")
	}
	return nil
}

// checkNatOverlap refuses a second gateway for the same subnetwork: each has one at most ("Cloud NAT rules: Subnet ranges").
func (e *Compute) checkNatOverlap(project, network, region, router string, doc Doc) error {
	type gateway struct {
		at      string
		all     bool
		subnets []string
	}
	var seen []gateway
	collect := func(owner string, d Doc) {
		for i, nat := range docs(d, "nats") {
			g := gateway{at: fmt.Sprintf("%s/nats[%d]", owner, i), all: str(nat, "sourceSubnetworkIpRangesToNat") != natListed}
			for _, s := range docs(nat, "subnetworks") {
				g.subnets = append(g.subnets, e.cloud.pathOfLink(project, str(s, "name")))
			}
			seen = append(seen, g)
		}
	}
	for _, other := range e.ofKind(project, "routers") {
		if other.Path != router && other.region() == region && e.networkOf(other) == network {
			collect(other.Path, other.Doc)
		}
	}
	collect(router, doc)
	for i, a := range seen {
		for _, b := range seen[:i] {
			shared := slices.ContainsFunc(a.subnets, func(s string) bool { return slices.Contains(b.subnets, s) })
			if a.all || b.all || shared {
				return refuse(400, "invalid", "Invalid value for field 'resource.nats': ''. Subnetworks in network '%s' and region '%s' are already covered by the NAT gateway '%s'; "+
					"a subnetwork may be covered by only one.", network, region, b.at)
			}
		}
	}
	return nil
}

// natFor says whether a Cloud NAT gateway covers a subnetwork.
func (e *Compute) natFor(subnet *Resource) bool {
	for _, router := range e.ofKind(subnet.project(), "routers") {
		if router.region() != subnet.region() || e.networkOf(router) != e.networkOf(subnet) {
			continue
		}
		for _, nat := range docs(router.Doc, "nats") {
			if str(nat, "sourceSubnetworkIpRangesToNat") != natListed {
				return true
			}
			for _, s := range docs(nat, "subnetworks") {
				if e.cloud.pathOfLink(subnet.project(), str(s, "name")) == subnet.Path {
					return true
				}
			}
		}
	}
	return false
}

func (e *Compute) routerStatus(r *request) (any, error) {
	res, err := e.find(r, e.kinds["routers"])
	if err != nil {
		return nil, err
	}
	result := Doc{"network": selfLink(e.networkOf(res))}
	var status []any
	for _, nat := range docs(res.Doc, "nats") {
		s := Doc{"name": nat["name"], "minExtraNatIpsNeeded": 0, "numVmEndpointsWithNatMappings": 0}
		if ips := texts(nat, "natIps"); len(ips) > 0 {
			var addresses, links []any
			for _, link := range ips {
				if a := e.st.Resources[e.cloud.pathOfLink(res.project(), link)]; a != nil {
					addresses, links = append(addresses, str(a.Doc, "address")), append(links, selfLink(a.Path))
				}
			}
			s["userAllocatedNatIps"], s["userAllocatedNatIpResources"] = addresses, links
		}
		for _, a := range e.autoAddresses(res) {
			if a.Inner["nat"] == str(nat, "name") {
				s["autoAllocatedNatIps"] = []any{str(a.Doc, "address")}
			}
		}
		status = append(status, s)
	}
	if status != nil {
		result["natStatus"] = status
	}
	return Doc{"kind": "compute#routerStatusResponse", "result": result}, nil
}

func (e *Compute) natMappings(r *request) (any, error) {
	res, err := e.find(r, e.kinds["routers"])
	if err != nil {
		return nil, err
	}
	path := res.Path + "/getNatMappingInfo"
	return Doc{"kind": "compute#vmEndpointNatMappingsList", "id": path, "selfLink": selfLink(path)}, nil
}
