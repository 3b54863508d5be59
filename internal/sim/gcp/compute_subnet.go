package gcp

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

func (e *Compute) subnetKind() *kind {
	return &kind{
		collection: "subnetworks", noun: "subnetwork", schema: "Subnetwork", resources: map[string]string{"regions": "subnetworks"}, status: "state",
		takes:   map[string]time.Duration{"insert": 12 * time.Second, "delete": 12 * time.Second},
		prepare: e.prepareSubnet, ready: e.subnetReady, changed: e.subnetChanged, dropped: e.subnetDropped,
		refuseDelete: func(_ *request, res *Resource) error {
			if res.Default {
				return refuse(400, "invalid", "Invalid resource usage: 'Cannot delete auto subnetwork: %s.'.", res.Path)
			}
			return nil
		},
		parents: func(res *Resource) []string { return []string{e.networkOf(res)} },
		quota:   func(*Resource) map[string]float64 { return map[string]float64{"SUBNETWORKS": 1} },
	}
}

// proxyOnly are the purposes of subnetworks that hold no machines.
var proxyOnly = []string{"REGIONAL_MANAGED_PROXY", "GLOBAL_MANAGED_PROXY", "INTERNAL_HTTPS_LOAD_BALANCER"}

func (e *Compute) prepareSubnet(r *request, _ string, doc Doc) error {
	if str(doc, "network") == "" {
		return refuse(400, "required", "Required field 'resource.network' not specified")
	}
	net, err := e.link(r.Project.ID, "resource.network", str(doc, "network"), "networks")
	if err != nil {
		return err
	}
	if truth(net.Doc, "autoCreateSubnetworks") && e.st.Resources["projects/"+r.Project.ID+"/regions/"+r.Region+"/subnetworks/"+net.name()] == nil {
		return refuse(400, "invalid", "Invalid value for field 'resource.network': '%s'. The network is in auto mode.", str(doc, "network"))
	}
	doc["network"] = selfLink(net.Path)
	if reg := str(doc, "region"); reg != "" && lastPart(reg) != r.Region {
		return invalidField("resource.region", reg, "Must match the region of the request.")
	}
	if str(doc, "ipCidrRange") == "" {
		return refuse(400, "required", "Required field 'resource.ipCidrRange' not specified")
	}
	delete(doc, "fingerprint")
	e.fillSubnet(doc)
	if err := e.checkPurpose(r, net, doc); err != nil {
		return err
	}
	return e.checkRanges(net, doc, "")
}

// fillSubnet adds what a subnetwork has when nothing else is said.
func (e *Compute) fillSubnet(doc Doc) {
	setDefault(doc, "privateIpGoogleAccess", false)
	setDefault(doc, "privateIpv6GoogleAccess", "DISABLE_GOOGLE_ACCESS")
	setDefault(doc, "purpose", "PRIVATE")
	setDefault(doc, "stackType", "IPV4_ONLY")
	setDefault(doc, "allowSubnetCidrRoutesOverlap", false)
	if slices.Contains(proxyOnly, str(doc, "purpose")) {
		doc["state"] = "READY" // others have none ("Subnetworks": state)
	}
	if p, err := netip.ParsePrefix(str(doc, "ipCidrRange")); err == nil && !slices.Contains(proxyOnly, str(doc, "purpose")) {
		doc["gatewayAddress"] = p.Masked().Addr().Next().String()
	}
	fillFlowLogs(doc)
	doc["fingerprint"] = fingerprint(doc)
}

// fillFlowLogs completes the settings of VPC flow logs, which count only when they are on.
func fillFlowLogs(doc Doc) {
	logs := sub(doc, "logConfig")
	if logs == nil {
		if truth(doc, "enableFlowLogs") {
			logs = Doc{"enable": true}
			doc["logConfig"] = logs
		} else {
			doc["enableFlowLogs"] = false
			return
		}
	}
	if !truth(logs, "enable") {
		logs["enable"], doc["enableFlowLogs"] = false, false
		return
	}
	setDefault(logs, "aggregationInterval", "INTERVAL_5_SEC")
	setDefault(logs, "flowSampling", 0.5)
	setDefault(logs, "metadata", "EXCLUDE_ALL_METADATA")
	doc["enableFlowLogs"] = true
}

func (e *Compute) checkPurpose(r *request, net *Resource, doc Doc) error {
	purpose, role := str(doc, "purpose"), str(doc, "role")
	if !slices.Contains(proxyOnly, purpose) {
		if role != "" {
			return invalidField("resource.role", role, "The role can only be set for proxy-only subnetworks.")
		}
		return nil
	}
	if role == "" {
		return refuse(400, "required", "Required field 'resource.role' not specified")
	}
	if len(list(doc, "secondaryIpRanges")) > 0 || sub(doc, "logConfig") != nil && truth(sub(doc, "logConfig"), "enable") {
		return invalidField("resource.purpose", purpose, "Secondary ranges and flow logs are not supported on this subnetwork.")
	}
	for _, s := range e.ofKind(r.Project.ID, "subnetworks") {
		if role == "ACTIVE" && e.networkOf(s) == net.Path && s.region() == r.Region && str(s.Doc, "purpose") == purpose && str(s.Doc, "role") == "ACTIVE" {
			return invalidField("resource.role", role, fmt.Sprintf("An ACTIVE subnetwork with the purpose %s already exists in this region and network: '%s'.", purpose, s.Path))
		}
	}
	return nil
}

// subnetReady makes the routes to a subnetwork.
func (e *Compute) subnetReady(res *Resource) {
	net := e.st.Resources[e.networkOf(res)]
	if net == nil || slices.Contains(proxyOnly, str(res.Doc, "purpose")) {
		return
	}
	for _, cidr := range rangesOf(res) {
		if slices.ContainsFunc(e.routesTo(res), func(r *Resource) bool { return str(r.Doc, "destRange") == cidr }) {
			continue
		}
		route := e.systemRoute(net, "Default local route to the subnetwork "+cidr+".", Doc{"destRange": cidr, "priority": float64(0), "nextHopNetwork": selfLink(net.Path)})
		route.inner("subnet", res.Path)
	}
}

// rangesOf are the primary and secondary ranges of a subnetwork.
func rangesOf(res *Resource) []string {
	ranges := []string{str(res.Doc, "ipCidrRange")}
	for _, s := range docs(res.Doc, "secondaryIpRanges") {
		ranges = append(ranges, str(s, "ipCidrRange"))
	}
	return ranges
}

// routesTo are the routes that were made for a subnetwork.
func (e *Compute) routesTo(res *Resource) []*Resource {
	return e.inOrder(func(o *Resource) bool { return o.Collection == "routes" && o.Inner["subnet"] == res.Path })
}

// subnetChanged makes the routes fit the ranges, which may be others now.
func (e *Compute) subnetChanged(res *Resource) {
	for _, route := range e.routesTo(res) {
		if !slices.Contains(rangesOf(res), str(route.Doc, "destRange")) {
			delete(e.st.Resources, route.Path)
		}
	}
	e.subnetReady(res)
}

// subnetDropped takes the routes to a subnetwork away.
func (e *Compute) subnetDropped(res *Resource) {
	for _, route := range e.routesTo(res) {
		delete(e.st.Resources, route.Path)
	}
}

// patchSubnet changes what of a subnetwork can be changed; it wants the fingerprint ("Method: subnetworks.patch").
func (e *Compute) patchSubnet(r *request) (any, error) {
	res, err := e.change(r, e.kinds["subnetworks"])
	if err != nil {
		return nil, err
	}
	switch given := str(r.Body, "fingerprint"); {
	case given == "":
		return nil, refuse(400, "required", "Required field 'resource.fingerprint' not specified")
	case given != str(res.Doc, "fingerprint"):
		return nil, refuse(412, "conditionNotMet", "Invalid fingerprint.")
	}
	doc := clone(res.Doc)
	for _, f := range keysOf(r.Body) {
		switch {
		case slices.Contains([]string{"secondaryIpRanges", "logConfig", "role", "stackType", "privateIpGoogleAccess", "privateIpv6GoogleAccess", "enableFlowLogs", "purpose"}, f):
		case f != "fingerprint" && fingerprint(r.Body[f]) != fingerprint(res.Doc[f]):
			return nil, invalidField("resource."+f, text(r.Body[f]), "Field cannot be changed by this method.")
		}
	}
	merge(doc, r.Body)
	fillFlowLogs(doc)
	if err := e.keepsUsedRanges(res, doc); err != nil {
		return nil, err
	}
	net := e.st.Resources[e.networkOf(res)]
	if err := e.checkRanges(net, doc, res.Path); err != nil {
		return nil, err
	}
	return e.replaceSubnet(r, res, doc, "compute.subnetworks.patch"), nil
}

// keepsUsedRanges refuses to take a secondary range away, or to change it, that something uses.
func (e *Compute) keepsUsedRanges(res *Resource, doc Doc) error {
	if e.cloud.hooks.subnetRangeUser == nil {
		return nil
	}
	after := map[string]string{}
	for _, s := range docs(doc, "secondaryIpRanges") {
		after[str(s, "rangeName")] = str(s, "ipCidrRange")
	}
	for _, s := range docs(res.Doc, "secondaryIpRanges") {
		name := str(s, "rangeName")
		if user := e.cloud.hooks.subnetRangeUser(res.Path, name); user != "" && after[name] != str(s, "ipCidrRange") {
			return refuse(400, "resourceInUseByAnotherResource", "The secondary range '%s' of the subnetwork resource '%s' is already being used by '%s'", name, res.Path, user)
		}
	}
	return nil
}

func (e *Compute) replaceSubnet(r *request, res *Resource, doc Doc, opType string) Doc {
	delete(doc, "fingerprint")
	doc["fingerprint"] = fingerprint(doc)
	return e.start(r, change{Type: opType, Target: res, Action: actReplace, Doc: doc})
}

// expandSubnet widens the primary range; it can never be narrowed.
func (e *Compute) expandSubnet(r *request) (any, error) {
	res, err := e.change(r, e.kinds["subnetworks"])
	if err != nil {
		return nil, err
	}
	wide, err := readRange("ipCidrRange", str(r.Body, "ipCidrRange"))
	if err != nil {
		return nil, err
	}
	now := netip.MustParsePrefix(str(res.Doc, "ipCidrRange"))
	if wide.Bits() >= now.Bits() || !wide.Contains(now.Addr()) {
		return nil, invalidField("ipCidrRange", wide, "New IPCidrRange must be a superset of the current range "+now.String()+".")
	}
	doc := clone(res.Doc)
	doc["ipCidrRange"] = wide.String()
	if err := e.checkRanges(e.st.Resources[e.networkOf(res)], doc, res.Path); err != nil {
		return nil, err
	}
	return e.replaceSubnet(r, res, doc, "expandIpCidrRange"), nil
}

func (e *Compute) setPrivateAccess(r *request) (any, error) {
	res, err := e.change(r, e.kinds["subnetworks"])
	if err != nil {
		return nil, err
	}
	doc := clone(res.Doc)
	doc["privateIpGoogleAccess"] = truth(r.Body, "privateIpGoogleAccess")
	return e.replaceSubnet(r, res, doc, "setPrivateIpGoogleAccess"), nil
}

// listUsable lists the subnetworks in which the caller may put something: all.
func (e *Compute) listUsable(r *request) (any, error) {
	match, err := parseFilter(r.Query.Get("filter"))
	if err != nil {
		return nil, err
	}
	var items []Doc
	for _, s := range e.ofKind(r.Project.ID, "subnetworks") {
		if !e.visible(r, s, true) || !match(s.Doc) {
			continue
		}
		d := Doc{"subnetwork": selfLink(s.Path), "network": s.Doc["network"], "ipCidrRange": s.Doc["ipCidrRange"], "purpose": s.Doc["purpose"], "stackType": s.Doc["stackType"]}
		if second := docs(s.Doc, "secondaryIpRanges"); len(second) > 0 {
			d["secondaryIpRanges"] = second
		}
		items = append(items, d)
	}
	out, err := r.listAnswer(items, "compute#usableSubnetworksAggregatedList", "projects/"+r.Project.ID+"/aggregated/subnetworks/listUsable")
	return out, err
}
