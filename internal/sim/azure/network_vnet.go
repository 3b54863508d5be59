package azure

import (
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"
)

const vnetType = "Microsoft.Network/virtualNetworks"

var (
	// A virtual network that is written without its subnets keeps them ("Update a virtual network without the subnet
	// property").
	vnetSubnets  = nested{property: "subnets", typ: subnetType, keep: true}
	vnetPeerings = nested{property: "virtualNetworkPeerings", typ: peeringType, keep: true}
)

func (c *Cloud) addVirtualNetworks() {
	c.addKind(c.networkKind(&kind{
		typ: vnetType, model: func() any { return &armnetwork.VirtualNetwork{} },
		put: c.putVNet, remove: c.removeVNet, guard: c.vnetIdle,
		settled: func(_ *Operation, res *Resource) { c.settleTree(res) },
		show: func(r *request, res *Resource, body doc) {
			c.showNested(r, res, body, vnetSubnets)
			c.showNested(r, res, body, vnetPeerings)
			body.sub("properties").def("enableDdosProtection", false)
			if c.treeBusy(res) {
				body.sub("properties")["provisioningState"] = stateUpdating
			}
		},
		views: map[string]func(*request, *Resource) (answer, error){"checkipaddressavailability": c.checkAddress},
	}))
}

// treeBusy says whether something is at work on a virtual network or anything in it: all of it shows Updating then.
func (c *Cloud) treeBusy(res *Resource) bool {
	root := c.rootOf(res)
	if root.State != stateSucceeded && root.State != stateUpdating {
		return false
	}
	for _, in := range append(c.inside(root.ID), root) {
		if in.busy() {
			return true
		}
	}
	return false
}

// vnetIdle refuses a write in a virtual network in which another one is under way: 409 as a rule, 429 while a peering is
// written.
func (c *Cloud) vnetIdle(r *request, id string) error {
	parsed, _ := parseID(id)
	if p, ok := parsed.parent(); ok {
		parsed = p
	}
	root := c.find(parsed.String())
	if root == nil {
		return nil
	}
	for _, in := range append(c.inside(root.ID), root) {
		op := c.shelves["network"].state.Operations[in.Operation]
		if op == nil {
			continue
		}
		if in.Type == peeringType && op.Verb == "put" {
			return retryable("RetryableErrorDueToAnotherOperation",
				"Operation %s (%s) is updating resource %s. The call can be retried in 12 seconds.", op.Name, op.ID, root.ID).header("Retry-After", "12")
		}
		async, _ := c.kindOf(op.Type).pollPaths(op)
		return refuseNetwork(http.StatusConflict, "AnotherOperationInProgress",
			"Another operation on this or dependent resource is in progress. To retrieve status of the operation use uri: %s%s?api-version=%s.", r.base, async, op.Version)
	}
	return nil
}

func (c *Cloud) putVNet(r *request, now, old *Resource) (outcome, error) {
	if err := c.withinQuota(now, old, "VirtualNetworks", "VirtualNetworkCountLimitReached", "Cannot create more than %d virtual networks for this subscription in this region."); err != nil {
		return outcome{}, err
	}
	for _, p := range readOnly {
		if p != "subnets" {
			delete(now.Properties, p)
		}
	}
	prefixes, err := addressSpace(now)
	if err != nil {
		return outcome{}, err
	}
	c.watch(now)
	c.identify(now, old)
	was := c.treeText(now.ID)
	// Nested resources look their parent up.
	if old == nil {
		now.State = stateUpdating
	}
	c.keep(now)
	for _, n := range []nested{vnetSubnets, vnetPeerings} {
		if err := c.putNested(r, now, n); err != nil {
			return outcome{}, err
		}
	}
	for _, s := range c.children(now.ID, subnetType) {
		if err := c.fitsIn(s, now, prefixes); err != nil {
			return outcome{}, err
		}
		if err := c.clearOfOthers(s, now); err != nil {
			return outcome{}, err
		}
	}
	if err := c.peersStillFit(now, old); err != nil {
		return outcome{}, err
	}
	if unchanged(now, old) && was == c.treeText(now.ID) {
		c.settleTree(now)
		return nothingToDo, nil
	}
	return c.writing(now, 3, 3*time.Second, 12*time.Second)
}

// treeText is what lies in a resource, for telling whether a write changes anything.
func (c *Cloud) treeText(id string) string {
	var b strings.Builder
	for _, in := range c.inside(id) {
		d := in.Properties.clone()
		b.WriteString(in.ID)
		for _, k := range sortedKeys(d) {
			b.WriteString(k)
			b.WriteString(text(d[k]))
		}
	}
	return b.String()
}

// addressSpace reads the prefixes of a virtual network.
func addressSpace(res *Resource) ([]netip.Prefix, error) {
	given := res.Properties.strs("addressSpace.addressPrefixes")
	if len(given) == 0 && !res.Properties.has("addressSpace.ipamPoolPrefixAllocations") {
		return nil, refuseNetwork(http.StatusBadRequest, "MissingAddressSpace", "Address space of virtual network %s has no address prefixes.", res.ID)
	}
	var out []netip.Prefix
	for _, g := range given {
		p, err := netip.ParsePrefix(g)
		if err != nil {
			return nil, refuseNetwork(http.StatusBadRequest, "InvalidAddressPrefixFormat", "Address prefix %s of resource %s is not formatted correctly. It should follow CIDR notation, for example 10.0.0.0/24.", g, res.ID)
		}
		if p.Masked() != p {
			return nil, refuseNetwork(http.StatusBadRequest, "InvalidCIDRNotation", "The address prefix %s in resource %s has an invalid CIDR notation. For the given prefix length, the address prefix should be %s.", g, res.ID, p.Masked())
		}
		for _, other := range out {
			if other.Overlaps(p) {
				return nil, refuseNetwork(http.StatusBadRequest, "NetcfgOverlappingAddressPrefixes", "Address prefixes %s and %s of virtual network '%s' overlap.", other, p, res.Name)
			}
		}
		out = append(out, p)
	}
	return out, nil
}

func (c *Cloud) removeVNet(_ *request, res *Resource) (outcome, error) {
	for _, s := range c.children(res.ID, subnetType) {
		if err := c.subnetFree(s); err != nil {
			return outcome{}, err
		}
	}
	return c.leaving(res, 10, 5*time.Second, 12*time.Second)
}

// checkAddress says whether an address in a virtual network is free.
func (c *Cloud) checkAddress(r *request, res *Resource) (answer, error) {
	addr, err := netip.ParseAddr(r.query.Get("ipAddress"))
	if err != nil {
		return answer{}, refuseNetwork(http.StatusBadRequest, "InvalidIPAddressFormat", "IP address %s is invalid.", r.query.Get("ipAddress"))
	}
	for _, s := range c.children(res.ID, subnetType) {
		for _, p := range subnetPrefixes(s) {
			if p.Contains(addr) {
				used := c.usedAddresses(s)
				free := !used[addr] && !reservedAddress(p, addr)
				body := map[string]any{"available": free, "isPlatformReserved": reservedAddress(p, addr)}
				if !free {
					body["availableIPAddresses"] = c.freeAddresses(s, 5)
				}
				return plain(body), nil
			}
		}
	}
	return answer{}, refuseNetwork(http.StatusBadRequest, "PrivateIPAddressNotInAnySubnet",
		"Private static IP address %s does not belong to the range of any subnet in the virtual network %s.", addr, res.ID)
}
