package gcp

import (
	"slices"
	"strconv"
)

// natAuto is the purpose of the addresses that Cloud NAT takes by itself. They are listed like any other, but nobody can delete
// them; they go with the gateway ("Public NAT: automatic NAT IP address allocation").
const natAuto = "NAT_AUTO"

// autoAddresses are those of a router.
func (e *Compute) autoAddresses(router *Resource) []*Resource {
	return e.inOrder(func(o *Resource) bool { return o.Collection == "addresses" && o.Inner["router"] == router.Path })
}

// allocateNatAddresses gives each gateway of a router that allocates automatically one address, and takes back those of gateways
// that are gone. A real gateway takes more when many machines need ports.
func (e *Compute) allocateNatAddresses(router *Resource) {
	var wanted []string
	for _, nat := range docs(router.Doc, "nats") {
		if str(nat, "natIpAllocateOption") == "AUTO_ONLY" && str(nat, "type") == "PUBLIC" {
			wanted = append(wanted, str(nat, "name"))
		}
	}
	var have []string
	for _, a := range e.autoAddresses(router) {
		if slices.Contains(wanted, a.Inner["nat"]) {
			have = append(have, a.Inner["nat"])
		} else {
			delete(e.st.Resources, a.Path)
		}
	}
	for _, nat := range without(wanted, have) {
		now := e.cloud.World.Now()
		name := "nat-auto-ip-" + e.cloud.World.ID("", 7, "0123456789") + "-0-" + strconv.FormatInt(now.Unix(), 10)
		doc := Doc{"address": e.freeExternal(), "addressType": "EXTERNAL", "purpose": natAuto, "description": "", "networkTier": "PREMIUM", "status": "IN_USE",
			"users": []any{selfLink(router.Path)}}
		a := e.make("projects/"+router.project()+"/regions/"+router.region()+"/addresses/"+name, "addresses", doc)
		a.Default = true
		a.inner("router", router.Path)
		a.inner("nat", nat)
	}
}

func (e *Compute) releaseNatAddresses(router *Resource) {
	for _, a := range e.autoAddresses(router) {
		delete(e.st.Resources, a.Path)
	}
}
