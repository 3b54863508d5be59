package gcp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ruleKind is forwarding rules: the addresses and ports of load balancers.
func (e *Compute) ruleKind() *kind {
	return &kind{collection: "forwardingRules", noun: "forwarding_rule", schema: "ForwardingRule", labels: true,
		resources: map[string]string{"": "globalForwardingRules", "regions": "forwardingRules"}, takes: lbTakes, prepare: e.prepareRule,
		loose: []string{"IPAddress"}, uses: e.ruleUses, ready: e.watch, dropped: e.watch, quota: globally("FORWARDING_RULES"),
		show: func(res *Resource, doc Doc) {
			doc["selfLinkWithId"] = strings.TrimSuffix(selfLink(res.Path), res.name()) + res.ID
		},
		parents: func(res *Resource) []string {
			return []string{strings.TrimPrefix(str(res.Doc, "subnetwork"), apiRoot), strings.TrimPrefix(str(res.Doc, "network"), apiRoot)}
		}}
}

func (e *Compute) ruleMethods(a *api) {
	for _, resource := range []string{"globalForwardingRules", "forwardingRules"} {
		a.ops[resource+".setTarget"] = e.setTarget
		a.ops[resource+".patch"] = e.patchRule
	}
}

// ruleUses are what a rule links to, and the proxy-only subnetwork that it needs.
func (e *Compute) ruleUses(res *Resource) []string {
	out := e.linksIn(res.project(), res.Doc, []string{"IPAddress"})
	if managedScheme(str(res.Doc, "loadBalancingScheme")) && res.region() != "" {
		if s := e.proxySubnet(res.project(), res.region(), e.cloud.pathOfLink(res.project(), str(res.Doc, "network"))); s != nil {
			out = append(out, s.Path)
		}
	}
	return out
}

func managedScheme(scheme string) bool {
	return scheme == "INTERNAL_MANAGED" || scheme == "EXTERNAL_MANAGED"
}

// proxySubnet is the active proxy-only subnetwork of a region and network ("Proxy-only subnets for Envoy-based load balancers").
func (e *Compute) proxySubnet(project, region, network string) *Resource {
	for _, s := range e.ofKind(project, "subnetworks") {
		if purpose := str(s.Doc, "purpose"); s.region() == region && !s.Making && str(s.Doc, "role") == "ACTIVE" &&
			(purpose == "REGIONAL_MANAGED_PROXY" || purpose == "INTERNAL_HTTPS_LOAD_BALANCER") && e.cloud.pathOfLink(project, str(s.Doc, "network")) == network {
			return s
		}
	}
	return nil
}

// targets are the kinds of what a rule may lead to besides a backend service.
var targets = []string{"targetHttpProxies", "targetHttpsProxies", "targetTcpProxies", "targetSslProxies"}

// prepareRule checks a forwarding rule and fills it up ("Method: globalForwardingRules.insert").
func (e *Compute) prepareRule(r *request, path string, doc Doc) error {
	region := segmentAfter(path, "regions")
	delete(doc, "labels") // only setLabels can set them, whatever an insert says (ForwardingRule.labels in the reference)
	for k, v := range map[string]any{"loadBalancingScheme": "EXTERNAL", "IPProtocol": "TCP", "description": "", "networkTier": "PREMIUM"} {
		setDefault(doc, k, v)
	}
	service, err := e.ruleTarget(r, path, doc)
	if err != nil {
		return err
	}
	scheme := str(doc, "loadBalancingScheme")
	if service != nil && str(service.Doc, "loadBalancingScheme") != scheme {
		return invalidField("resource.loadBalancingScheme", scheme, fmt.Sprintf("The load balancing scheme of the forwarding rule must be that of the backend service, %s.",
			str(service.Doc, "loadBalancingScheme")))
	}
	if err := rulePorts(doc); err != nil {
		return err
	}
	if err := e.ruleNetwork(r, region, scheme, doc); err != nil {
		return err
	}
	if err := e.ruleAddress(r, path, region, scheme, doc); err != nil {
		return err
	}
	e.print(doc)
	return nil
}

// ruleTarget checks where a rule leads, and answers the backend service behind it.
func (e *Compute) ruleTarget(r *request, path string, doc Doc) (*Resource, error) {
	target, direct := str(doc, "target"), str(doc, "backendService")
	switch {
	case (target == "") == (direct == ""):
		return nil, invalidField("resource.target", target, "Exactly one of target and backendService must be given.")
	case direct != "" && segmentAfter(path, "regions") == "":
		return nil, invalidField("resource.backendService", direct, "A global forwarding rule needs a target proxy.")
	case direct != "":
		return e.reference(r, path, doc, "backendService", "backendServices")
	}
	collection := collectionOf(e.cloud.pathOfLink(r.Project.ID, target))
	if !slices.Contains(targets, collection) {
		return nil, invalidField("resource.target", target, "The URL is malformed. Must be a valid target proxy URL.")
	}
	proxy, err := e.reference(r, path, doc, "target", collection)
	if err != nil {
		return nil, err
	}
	for _, p := range e.usedBy(proxy) {
		if res := e.st.Resources[p]; res != nil && res.Collection == "urlMaps" {
			for _, s := range e.usedBy(res) {
				if service := e.st.Resources[s]; service != nil && service.Collection == "backendServices" {
					return service, nil
				}
			}
		} else if res != nil && res.Collection == "backendServices" {
			return res, nil
		}
	}
	return nil, nil // a URL map that only redirects has none
}

// rulePorts checks the ports: a range for proxies, up to five ports or all for a backend service.
func rulePorts(doc Doc) error {
	if str(doc, "backendService") != "" {
		ports := texts(doc, "ports")
		if len(ports) == 0 && !truth(doc, "allPorts") && str(doc, "portRange") == "" || len(ports) > 5 {
			return invalidField("resource.ports", len(ports), "Between 1 and 5 ports, or allPorts, must be given.")
		}
		for n, p := range ports {
			if v, err := strconv.Atoi(p); err != nil || v < 1 || v > 65535 {
				return invalidField(fmt.Sprintf("resource.ports[%d]", n), p, "Must be between 1 and 65535, inclusive.")
			}
		}
		return nil
	}
	text := str(doc, "portRange")
	if ports := texts(doc, "ports"); text == "" && len(ports) == 1 {
		text = ports[0]
		delete(doc, "ports")
	}
	low, high, ranged := strings.Cut(text, "-")
	if !ranged {
		high = low
	}
	a, errA := strconv.Atoi(low)
	b, errB := strconv.Atoi(high)
	if errA != nil || errB != nil || a < 1 || b > 65535 || a > b {
		return invalidField("resource.portRange", text, "The port range is invalid or missing.")
	}
	target := collectionOf(strings.TrimPrefix(str(doc, "target"), apiRoot))
	if a != b && (target == "targetHttpProxies" || target == "targetHttpsProxies") {
		return invalidField("resource.portRange", text, "A forwarding rule of an HTTP(S) proxy must have exactly one port.")
	}
	if classic := str(doc, "loadBalancingScheme") == "EXTERNAL"; classic && (target == "targetHttpProxies" && a != 80 && a != 8080 || target == "targetHttpsProxies" && a != 443) {
		return invalidField("resource.portRange", text, "Invalid port for the target proxy of a classic load balancer.")
	}
	doc["portRange"] = fmt.Sprintf("%d-%d", a, b)
	return nil
}

// ruleNetwork settles the network and subnetwork of a regional rule. What Envoy proxies serve needs a proxy-only subnetwork.
func (e *Compute) ruleNetwork(r *request, region, scheme string, doc Doc) error {
	if link := str(doc, "network"); region == "" || scheme == "EXTERNAL" {
		if p := e.cloud.pathOfLink(r.Project.ID, link); p != "" {
			doc["network"] = selfLink(p)
		}
		return nil
	}
	if link := str(doc, "subnetwork"); link != "" {
		subnet, err := e.link(r.Project.ID, "resource.subnetwork", link, "subnetworks")
		if err != nil {
			return err
		}
		if subnet.region() != region {
			return invalidField("resource.subnetwork", link, "The subnetwork must be in the region of the forwarding rule.")
		}
		network := selfLink(e.cloud.pathOfLink(r.Project.ID, str(subnet.Doc, "network")))
		if given := str(doc, "network"); given != "" && selfLink(e.cloud.pathOfLink(r.Project.ID, given)) != network {
			return refuse(400, "badRequest", "Subnetwork \"%s\" is not valid for Network \"%s\".", subnet.Path, lastPart(given))
		}
		doc["subnetwork"], doc["network"] = selfLink(subnet.Path), network
	}
	setDefault(doc, "network", "global/networks/default")
	network, err := e.link(r.Project.ID, "resource.network", str(doc, "network"), "networks")
	if err != nil {
		return err
	}
	doc["network"] = selfLink(network.Path)
	if managedScheme(scheme) && e.proxySubnet(r.Project.ID, region, network.Path) == nil {
		return invalidField("resource.target", str(doc, "target"), "An active proxy-only subnetwork is required in the same region and VPC as the forwarding rule.")
	}
	if strings.HasPrefix(scheme, "INTERNAL") && str(doc, "subnetwork") == "" {
		for _, s := range e.ofKind(r.Project.ID, "subnetworks") {
			if truth(network.Doc, "autoCreateSubnetworks") && s.region() == region && e.cloud.pathOfLink(r.Project.ID, str(s.Doc, "network")) == network.Path {
				doc["subnetwork"] = selfLink(s.Path)
				return nil
			}
		}
		return invalidField("resource.subnetwork", "", "Subnetwork must be provided for internal load balancing in a network of custom subnet mode.")
	}
	return nil
}

// ruleAddress gives a rule its address: the reserved one that it names, or an ephemeral one. An address may serve several rules of
// different ports.
func (e *Compute) ruleAddress(r *request, path, region, scheme string, doc Doc) error {
	const field = "resource.IPAddress"
	wanted := str(doc, "IPAddress")
	var ip string
	var err error
	switch {
	case scheme == "INTERNAL_SELF_MANAGED":
		ip = wanted // an address that nobody routes
	case strings.HasPrefix(scheme, "INTERNAL"):
		if e.shared(path, doc, wanted) {
			return nil
		}
		subnet := e.st.Resources[strings.TrimPrefix(str(doc, "subnetwork"), apiRoot)]
		if ip, err = e.takeInternal(subnet, field, wanted); err == nil && ip == "" {
			err = refuse(400, "IP_SPACE_EXHAUSTED", "IP space of '%s' is exhausted.", subnet.Path)
		}
	default:
		ip, err = e.takeExternal(r.Project.ID, region, field, wanted)
	}
	if err != nil {
		return err
	}
	doc["IPAddress"] = ip
	for _, other := range e.ofKind(r.Project.ID, "forwardingRules") {
		if other.Path != path && other.scope() == scopeOf(path) && str(other.Doc, "IPAddress") == ip && overlap(other.Doc, doc) {
			return invalidField(field, ip, "Specified IP address is in-use and would result in a conflict.")
		}
	}
	return nil
}

// shared says whether a rule takes the address of a reservation made for several internal load balancers.
func (e *Compute) shared(path string, doc Doc, wanted string) bool {
	for _, a := range e.ofKind(segmentAfter(path, "projects"), "addresses") {
		if (a.Path == e.cloud.pathOfLink(a.project(), wanted) || wanted != "" && str(a.Doc, "address") == wanted) && str(a.Doc, "purpose") == "SHARED_LOADBALANCER_VIP" {
			doc["IPAddress"] = str(a.Doc, "address")
			return true
		}
	}
	return false
}

// overlap says whether two rules of one address would take the same traffic.
func overlap(a, b Doc) bool {
	if str(a, "IPProtocol") != str(b, "IPProtocol") {
		return false
	}
	if truth(a, "allPorts") || truth(b, "allPorts") {
		return true
	}
	ranges := func(d Doc) []string {
		if r := str(d, "portRange"); r != "" {
			return []string{r}
		}
		return texts(d, "ports")
	}
	for _, x := range ranges(a) {
		for _, y := range ranges(b) {
			low, _, _ := strings.Cut(y, "-")
			first, _ := strconv.Atoi(low) // checked by rulePorts
			low, _, _ = strings.Cut(x, "-")
			other, _ := strconv.Atoi(low)
			if portIn(x, first) || portIn(y, other) {
				return true
			}
		}
	}
	return false
}

func (e *Compute) setTarget(r *request) (any, error) {
	k := e.kinds["forwardingRules"]
	res, err := e.change(r, k)
	if err != nil {
		return nil, err
	}
	doc := clone(res.Doc)
	doc["target"] = str(r.Body, "target")
	if _, err := e.ruleTarget(r, res.Path, doc); err != nil {
		return nil, err
	}
	e.print(doc)
	return e.start(r, change{Type: "SetTarget", Target: res, Takes: k.duration("patch"), Action: "lb-replace", Doc: doc}), nil
}

// patchRule changes what can be changed of a rule.
func (e *Compute) patchRule(r *request) (any, error) {
	k := e.kinds["forwardingRules"]
	res, err := e.change(r, k)
	if err != nil {
		return nil, err
	}
	doc := clone(res.Doc)
	for f, v := range r.Body {
		if !slices.Contains([]string{"allowGlobalAccess", "description", "networkTier", "sourceIpRanges", "target", "fingerprint", "name", "labels"}, f) && fmt.Sprint(res.Doc[f]) != fmt.Sprint(v) {
			return nil, invalidField("resource."+f, v, "The field cannot be changed.")
		}
		doc[f] = v
	}
	if given := str(r.Body, "fingerprint"); given != "" && given != str(res.Doc, "fingerprint") {
		return nil, refuse(412, "conditionNotMet", "Invalid fingerprint.")
	}
	if str(doc, "target") != str(res.Doc, "target") {
		if _, err := e.ruleTarget(r, res.Path, doc); err != nil {
			return nil, err
		}
	}
	e.print(doc)
	return e.start(r, change{Type: "patch", Target: res, Takes: k.duration("patch"), Action: "lb-replace", Doc: doc}), nil
}
