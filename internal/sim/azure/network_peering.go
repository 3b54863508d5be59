package azure

import (
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"
)

const peeringType = vnetType + "/virtualNetworkPeerings"

// The states of a peering ("Virtual network peering": both sides have to be made, and one that lost the other is of no use).
const (
	peeringInitiated    = "Initiated"
	peeringConnected    = "Connected"
	peeringDisconnected = "Disconnected"
)

func (c *Cloud) addPeerings() {
	c.addKind(c.networkKind(&kind{
		typ: peeringType, model: func() any { return &armnetwork.VirtualNetworkPeering{} },
		put: c.putPeering, guard: c.vnetIdle,
		remove: func(_ *request, res *Resource) (outcome, error) {
			return c.leaving(res, 10, 4*time.Second, 10*time.Second)
		},
		settled: func(_ *Operation, res *Resource) {
			c.connect(res)
			c.settleTree(res)
		},
		removed: c.disconnect,
		show:    c.showPeering,
	}))
}

func (c *Cloud) putPeering(r *request, now, old *Resource) (outcome, error) {
	p := now.Properties
	for _, name := range readOnly {
		delete(p, name)
	}
	for _, name := range []string{"remoteVirtualNetworkAddressSpace", "localAddressSpace", "localVirtualNetworkAddressSpace"} {
		delete(p, name)
	}
	remoteID := p.ref("remoteVirtualNetwork")
	vnet := c.find(parentOf(now.ID))
	if remoteID == "" {
		return outcome{}, refuse(http.StatusBadRequest, "InvalidRequestFormat", "Cannot parse the request.").
			with(refuse(0, "MissingJsonRequiredProperty", "Required property 'remoteVirtualNetwork' not found in JSON. Path 'properties'."))
	}
	if err := c.references(r, now, ""); err != nil {
		return outcome{}, err
	}
	remote := c.find(remoteID)
	if err := c.peerable(now, vnet, remote); err != nil {
		return outcome{}, err
	}
	for name, v := range map[string]bool{"allowVirtualNetworkAccess": true, "allowForwardedTraffic": false, "allowGatewayTransit": false, "useRemoteGateways": false, "doNotVerifyRemoteGateways": false} {
		p.def(name, v)
	}
	if p.flag("useRemoteGateways") {
		return outcome{}, refuseNetwork(http.StatusBadRequest, "RemoteVnetHasNoGateways",
			"Peering %s cannot have UseRemoteGateways flag set to true because remote virtual network %s referenced by the peering has no gateways.", now.ID, remote.ID)
	}
	p["remoteVirtualNetwork"] = map[string]any{"id": remote.ID}
	p["peeringState"] = peeringInitiated
	p["remoteAddressSpace"] = map[string]any(remote.Properties.sub("addressSpace").clone())
	c.identify(now, old)
	if old != nil && strings.EqualFold(old.Properties.ref("remoteVirtualNetwork"), remote.ID) {
		if old.Properties.str("peeringState") == peeringConnected {
			p["peeringState"] = peeringConnected
		}
		if r.query.Get("syncRemoteAddressSpace") != "true" {
			p["remoteAddressSpace"] = old.Properties["remoteAddressSpace"]
		}
	}
	if unchanged(now, old) {
		return nothingToDo, nil
	}
	return c.writing(now, 10, 4*time.Second, 10*time.Second)
}

// peerable says why two virtual networks cannot be peered.
func (c *Cloud) peerable(now, vnet, remote *Resource) error {
	if strings.EqualFold(vnet.ID, remote.ID) {
		return refuseNetwork(http.StatusBadRequest, "InvalidVnetPeering", "Peering %s cannot reference its own virtual network.", now.ID)
	}
	for _, other := range c.children(vnet.ID, peeringType) {
		if strings.EqualFold(other.ID, now.ID) {
			continue
		}
		if strings.EqualFold(other.Properties.ref("remoteVirtualNetwork"), remote.ID) {
			return refuseNetwork(http.StatusBadRequest, "AnotherPeeringAlreadyReferencesRemoteVnet",
				"Peering %s cannot be created because virtual network %s already has a peering %s referencing remote virtual network %s.", now.ID, vnet.ID, other.ID, remote.ID)
		}
		if third := c.find(other.Properties.ref("remoteVirtualNetwork")); third != nil {
			if over := overlapping(remote, third); over != "" {
				return refuseNetwork(http.StatusBadRequest, "VnetAddressSpaceOverlapsWithAlreadyPeeredVnet",
					"Cannot create or update peering %s. Virtual networks %s and %s cannot be peered because address space of the second virtual network overlaps with address space of virtual network %s already peered with the first virtual network. Overlapping address prefixes: %s.",
					now.ID, vnet.ID, remote.ID, third.ID, over)
			}
		}
	}
	if over := overlapping(vnet, remote); over != "" {
		return refuseNetwork(http.StatusBadRequest, "VnetAddressSpacesOverlap",
			"Cannot create or update peering %s. Virtual networks %s and %s cannot be peered because their address spaces overlap. Overlapping address prefixes: %s.", now.ID, vnet.ID, remote.ID, over)
	}
	if back := c.otherSide(now); back != nil && back.Properties.str("peeringState") == peeringDisconnected {
		return refuseNetwork(http.StatusBadRequest, "RemotePeeringIsDisconnected",
			"Cannot create or update peering %s because remote peering %s referencing parent virtual network %s is in Disconnected state. Update or re-create the remote peering to get it back to Initiated state. Peering gets Disconnected when remote vnet or remote peering is deleted and re-created.",
			now.ID, back.ID, vnet.ID)
	}
	return nil
}

// overlapping lists what the address spaces of two networks have in common.
func overlapping(a, b *Resource) string {
	var over []string
	for _, p := range prefixesOf(a) {
		for _, q := range prefixesOf(b) {
			if p.Overlaps(q) {
				over = append(over, p.String(), q.String())
			}
		}
	}
	return strings.Join(over, ", ")
}

func prefixesOf(vnet *Resource) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range vnet.Properties.strs("addressSpace.addressPrefixes") {
		if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// otherSide is the peering that leads back.
func (c *Cloud) otherSide(peering *Resource) *Resource {
	for _, back := range c.children(peering.Properties.ref("remoteVirtualNetwork"), peeringType) {
		if strings.EqualFold(back.Properties.ref("remoteVirtualNetwork"), parentOf(peering.ID)) {
			return back
		}
	}
	return nil
}

// connect joins the two sides when both are there.
func (c *Cloud) connect(res *Resource) {
	if back := c.otherSide(res); back != nil && back.Properties.str("peeringState") != peeringDisconnected {
		res.Properties["peeringState"] = peeringConnected
		back.Properties["peeringState"] = peeringConnected
		c.touch(back)
	}
}

// disconnect is what the other side sees when one is gone.
func (c *Cloud) disconnect(res *Resource) {
	if back := c.otherSide(res); back != nil {
		back.Properties["peeringState"] = peeringDisconnected
		c.touch(back)
	}
}

// showPeering adds what is computed: both address spaces as they are now, and whether they are those that were exchanged.
func (c *Cloud) showPeering(r *request, res *Resource, body doc) {
	p := body.sub("properties")
	p["routeServiceVips"] = map[string]any{}
	if r.version < "2021-02-01" {
		return
	}
	delete(p, "routeServiceVips")
	p.def("peerCompleteVnets", true)
	level := "FullyInSync"
	remote, vnet, back := c.find(p.ref("remoteVirtualNetwork")), c.find(parentOf(res.ID)), c.otherSide(res)
	if remote != nil {
		p["remoteVirtualNetworkAddressSpace"] = map[string]any(remote.Properties.sub("addressSpace").clone())
	}
	localOld := remote != nil && !sameJSON(p.sub("remoteAddressSpace"), remote.Properties.sub("addressSpace"))
	remoteOld := back != nil && vnet != nil && !sameJSON(back.Properties.sub("remoteAddressSpace"), vnet.Properties.sub("addressSpace"))
	switch {
	case localOld && remoteOld:
		level = "LocalAndRemoteNotInSync"
	case localOld:
		level = "LocalNotInSync"
	case remoteOld, back == nil:
		level = "RemoteNotInSync"
	}
	p["peeringSyncLevel"] = level
}

// peersStillFit refuses an address space that overlaps with that of a peered network.
func (c *Cloud) peersStillFit(now, old *Resource) error {
	if old == nil || sameJSON(now.Properties.sub("addressSpace"), old.Properties.sub("addressSpace")) {
		return nil
	}
	for _, peering := range c.children(now.ID, peeringType) {
		remote := c.find(peering.Properties.ref("remoteVirtualNetwork"))
		if remote == nil {
			continue
		}
		if over := overlapping(now, remote); over != "" {
			return refuseNetwork(http.StatusBadRequest, "VnetAddressSpacesOverlap",
				"Cannot update the address space of virtual network %s: it overlaps with that of virtual network %s, which it is peered with. Overlapping address prefixes: %s.", now.ID, remote.ID, over)
		}
	}
	return nil
}
