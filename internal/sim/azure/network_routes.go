package azure

import (
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"
)

const (
	routeTableType = "Microsoft.Network/routeTables"
	routeType      = routeTableType + "/routes"
)

var tableRoutes = nested{property: "routes", typ: routeType}

func (c *Cloud) addRouteTables() {
	c.addKind(c.networkKind(&kind{
		typ: routeTableType, model: func() any { return &armnetwork.RouteTable{} },
		put: c.putRouteTable,
		remove: func(_ *request, res *Resource) (outcome, error) {
			if users := c.usersAt(res.ID); len(users) > 0 {
				return outcome{}, refuseNetwork(http.StatusBadRequest, "InUseRouteTableCannotBeDeleted",
					"Route table %s is in use and cannot be deleted. It is used by: %s.", res.ID, strings.Join(users, ", "))
			}
			return c.leaving(res, 2, 2*time.Second, 6*time.Second)
		},
		settled: func(_ *Operation, res *Resource) { c.settleTree(res) },
		show: func(r *request, res *Resource, body doc) {
			c.showNested(r, res, body, tableRoutes)
			if l := c.usersAt(res.ID, subnetType); len(l) > 0 {
				body.sub("properties")["subnets"] = refList(l)
			}
		},
	}))
	c.addKind(c.networkKind(&kind{
		typ: routeType, model: func() any { return &armnetwork.Route{} }, put: c.putRoute,
		remove: func(_ *request, res *Resource) (outcome, error) {
			return c.leaving(res, 2, 2*time.Second, 5*time.Second)
		},
		settled: func(_ *Operation, res *Resource) { c.settleTree(res) },
	}))
}

func (c *Cloud) putRouteTable(r *request, now, old *Resource) (outcome, error) {
	if err := c.withinQuota(now, old, "RouteTables", "RouteTableCountLimitReached", "Cannot create more than %d route tables for this subscription in this region."); err != nil {
		return outcome{}, err
	}
	for _, p := range readOnly {
		delete(now.Properties, p)
	}
	now.Properties.def("disableBgpRoutePropagation", false)
	c.identify(now, old)
	was := c.treeText(now.ID)
	c.keep(now)
	if err := c.putNested(r, now, tableRoutes); err != nil {
		return outcome{}, err
	}
	if unchanged(now, old) && was == c.treeText(now.ID) {
		c.settleTree(now)
		return nothingToDo, nil
	}
	return c.writing(now, 2, 2*time.Second, 6*time.Second)
}

func (c *Cloud) putRoute(_ *request, now, old *Resource) (outcome, error) {
	p := now.Properties
	if err := required(p, "nextHopType", "addressPrefix"); err != nil {
		return outcome{}, err
	}
	prefix := p.str("addressPrefix")
	if strings.Contains(prefix, "/") {
		if parsed, err := netip.ParsePrefix(prefix); err != nil || parsed.Masked() != parsed {
			return outcome{}, refuseNetwork(http.StatusBadRequest, "InvalidAddressPrefixFormat", "Address prefix %s of resource %s is not formatted correctly. It should follow CIDR notation, for example 10.0.0.0/24.", prefix, now.ID)
		}
	}
	hop := p.str("nextHopIpAddress")
	switch appliance := strings.HasPrefix(p.str("nextHopType"), "VirtualAppliance"); {
	case appliance && hop == "" && !p.has("nextHop"):
		return outcome{}, refuseNetwork(http.StatusBadRequest, "RouteNextHopIpAddressMissing", "Route %s has no next hop IP address; the next hop type VirtualAppliance needs one.", now.ID)
	case !appliance && hop != "":
		return outcome{}, refuseNetwork(http.StatusBadRequest, "RouteNextHopIpAddressNotAllowed", "Route %s has a next hop IP address, which the next hop type %s does not take.", now.ID, p.str("nextHopType"))
	}
	for _, other := range c.children(parentOf(now.ID), routeType) {
		if !strings.EqualFold(other.ID, now.ID) && other.Properties.str("addressPrefix") == prefix {
			return outcome{}, refuseNetwork(http.StatusBadRequest, "RouteConflict", "Route %s conflicts with route %s. Routes cannot have the same AddressPrefix.", now.Name, other.Name)
		}
	}
	p.def("hasBgpOverride", false)
	if unchanged(now, old) {
		return nothingToDo, nil
	}
	return c.writing(now, 2, 2*time.Second, 5*time.Second)
}
