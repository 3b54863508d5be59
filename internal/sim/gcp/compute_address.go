package gcp

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

func (e *Compute) addressKind() *kind {
	return &kind{
		collection: "addresses", noun: "address", schema: "Address", resources: map[string]string{"": "globalAddresses", "regions": "addresses"}, labels: true,
		takes:   map[string]time.Duration{"insert": 7 * time.Second, "delete": 7 * time.Second},
		prepare: e.prepareAddress, show: e.showAddress, users: e.addressUsers,
		refuseDelete: e.refuseAddressDelete,
		parents:      func(res *Resource) []string { return []string{e.networkOf(res)} },
		quota: func(res *Resource) map[string]float64 {
			metric := "STATIC_ADDRESSES"
			if res.Default {
				metric = "IN_USE_ADDRESSES"
			}
			if str(res.Doc, "addressType") == "INTERNAL" {
				metric = "INTERNAL_ADDRESSES"
				if res.scope() == "global" {
					metric = "GLOBAL_INTERNAL_ADDRESSES"
				}
			}
			return map[string]float64{metric: 1}
		},
	}
}

func (e *Compute) prepareAddress(r *request, path string, doc Doc) error {
	global := scopeOf(path) == "global"
	delete(doc, "labels") // "can only be added or modified by the setLabels method" (Addresses)
	setDefault(doc, "addressType", "EXTERNAL")
	setDefault(doc, "description", "")
	doc["status"] = "RESERVED"
	delete(doc, "users")
	switch str(doc, "addressType") {
	case "EXTERNAL":
		setDefault(doc, "networkTier", "PREMIUM")
		if given := str(doc, "address"); given != "" {
			return invalidField("resource.address", given, "Specified IP address cannot be reserved: it is not in use in this project.")
		}
		if n := str(doc, "network") + str(doc, "subnetwork"); n != "" {
			return invalidField("resource.network", n, "A network may only be specified for an INTERNAL address.")
		}
		doc["address"] = e.freeExternal()
		if str(doc, "ipVersion") == "IPV6" {
			doc["address"] = "2600:1901:0:" + e.cloud.World.Hex("", 4) + "::"
		}
		return nil
	case "INTERNAL":
		if global {
			return e.prepareGlobalInternal(r, doc)
		}
		return e.prepareInternal(r, doc)
	}
	return invalidField("resource.addressType", str(doc, "addressType"), "")
}

// prepareGlobalInternal is for ranges that are set aside for peered services ("Configure private services access", VPC) and for
// endpoints of Private Service Connect.
func (e *Compute) prepareGlobalInternal(r *request, doc Doc) error {
	purpose := str(doc, "purpose")
	if purpose != "VPC_PEERING" && purpose != "PRIVATE_SERVICE_CONNECT" {
		return invalidField("resource.purpose", purpose, "The purpose of a global internal address must be VPC_PEERING or PRIVATE_SERVICE_CONNECT.")
	}
	if str(doc, "network") == "" {
		return refuse(400, "required", "Required field 'resource.network' not specified")
	}
	net, err := e.link(r.Project.ID, "resource.network", str(doc, "network"), "networks")
	if err != nil {
		return err
	}
	setDefault(doc, "networkTier", "PREMIUM")
	doc["network"] = selfLink(net.Path)
	if purpose == "PRIVATE_SERVICE_CONNECT" {
		if str(doc, "address") == "" {
			return refuse(400, "required", "Required field 'resource.address' not specified")
		}
		return e.checkFreeRange(net, str(doc, "address"), netip.PrefixFrom(parseAddr(str(doc, "address")), 32))
	}
	bits := int(num(doc, "prefixLength"))
	if bits < 8 || bits > 30 {
		return invalidField("resource.prefixLength", bits, "Must be between 8 and 30.")
	}
	if given := str(doc, "address"); given != "" {
		addr, err := netip.ParseAddr(given)
		if err != nil || !addr.Is4() {
			return invalidField("resource.address", given, "Must be a valid IP address.")
		}
		return e.checkFreeRange(net, given, netip.PrefixFrom(addr, bits).Masked())
	}
	p, ok := e.freeRange(net, bits)
	if !ok {
		return refuse(400, "invalid", "Invalid value for field 'resource.prefixLength': '%d'. Couldn't find free blocks in the network '%s'.", bits, net.Path)
	}
	doc["address"] = p.Addr().String()
	return nil
}

func parseAddr(s string) netip.Addr { a, _ := netip.ParseAddr(s); return a }

func (e *Compute) checkFreeRange(net *Resource, given string, p netip.Prefix) error {
	for _, u := range e.rangesIn(net.Path) {
		if u.prefix.Overlaps(p) {
			return invalidField("resource.address", given, fmt.Sprintf("Requested range conflicts with other resources: %s.", u.what))
		}
	}
	return nil
}

// freeRange finds a range in 10.0.0.0/8 that nothing in the network has, from the top down.
func (e *Compute) freeRange(net *Resource, bits int) (netip.Prefix, bool) {
	used := e.rangesIn(net.Path)
	size := uint32(1) << (32 - bits)
	for at := uint32(0x0b000000) - size; at >= 0x0a000000; at -= size {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(at >> 24), byte(at >> 16), byte(at >> 8), byte(at)}), bits)
		if !slices.ContainsFunc(used, func(u usedRange) bool { return u.prefix.Overlaps(p) }) {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// prepareInternal is for one address in a subnetwork.
func (e *Compute) prepareInternal(r *request, doc Doc) error {
	link := str(doc, "subnetwork")
	if link == "" {
		link = "projects/" + r.Project.ID + "/regions/" + r.Region + "/subnetworks/default"
	}
	subnet, err := e.link(r.Project.ID, "resource.subnetwork", link, "subnetworks")
	if err != nil {
		return err
	}
	doc["subnetwork"] = selfLink(subnet.Path)
	setDefault(doc, "purpose", "GCE_ENDPOINT")
	setDefault(doc, "networkTier", "PREMIUM")
	given := str(doc, "address")
	if given == "" {
		doc["address"], err = e.freeInternal(subnet)
		return err
	}
	if !netip.MustParsePrefix(str(subnet.Doc, "ipCidrRange")).Contains(parseAddr(given)) {
		return invalidField("resource.address", given, fmt.Sprintf("Requested internal IP address %s is outside of the subnetwork's range %s.", given, str(subnet.Doc, "ipCidrRange")))
	}
	if e.internalTaken(e.networkOf(subnet))[given] {
		return refuse(409, "alreadyExists", "IP address %s is already in use or reserved.", given)
	}
	return nil
}

// showAddress says who uses the address now. A range of peered services never counts as in use.
func (e *Compute) showAddress(res *Resource, doc Doc) {
	if str(doc, "purpose") == natAuto {
		return
	}
	users := e.addressUsers(res)
	for _, other := range e.inOrder(func(o *Resource) bool { return o != res }) {
		if slices.Contains(e.usedBy(other), res.Path) && !slices.Contains(users, other.Path) {
			users = append(users, other.Path)
		}
	}
	if len(users) == 0 || str(doc, "purpose") == "VPC_PEERING" {
		return
	}
	links := []any{}
	for _, u := range users {
		links = append(links, selfLink(u))
	}
	doc["status"], doc["users"] = "IN_USE", links
}

// addressUsers are the objects that have the address as a number, not as a link.
func (e *Compute) addressUsers(res *Resource) []string {
	ip := str(res.Doc, "address")
	var out []string
	for _, other := range e.inOrder(nil) {
		switch other.Collection {
		case "forwardingRules":
			if str(other.Doc, "IPAddress") == ip {
				out = append(out, other.Path)
			}
		case "instances":
			for _, nic := range docs(other.Doc, "networkInterfaces") {
				external := slices.ContainsFunc(docs(nic, "accessConfigs"), func(a Doc) bool { return str(a, "natIP") == ip })
				if external || (str(nic, "networkIP") == ip && strings.HasPrefix(str(res.Doc, "subnetwork"), apiRoot) && str(nic, "subnetwork") == str(res.Doc, "subnetwork")) {
					out = append(out, other.Path)
				}
			}
		}
	}
	return out
}

// refuseAddressDelete keeps a range that a private connection uses: the connection would be left without addresses.
func (e *Compute) refuseAddressDelete(_ *request, res *Resource) error {
	if router := res.Inner["router"]; router != "" {
		return inUse(e.kinds["addresses"], res.Path, router)
	}
	if str(res.Doc, "purpose") != "VPC_PEERING" || e.cloud.hooks.rangeUsers == nil {
		return nil
	}
	if user := e.cloud.hooks.rangeUsers(e.networkOf(res), res.name()); user != "" {
		return inUse(e.kinds["addresses"], res.Path, user)
	}
	return nil
}
