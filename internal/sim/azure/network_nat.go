package azure

import (
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"
)

const natType = "Microsoft.Network/natGateways"

func (c *Cloud) addNATGateways() {
	c.addKind(c.networkKind(&kind{
		typ: natType, zonal: true, model: func() any { return &armnetwork.NatGateway{} },
		put: c.putNAT,
		remove: func(_ *request, res *Resource) (outcome, error) {
			if users := c.usersAt(res.ID); len(users) > 0 {
				return outcome{}, refuseNetwork(http.StatusBadRequest, "InUseNatGatewayCannotBeDeleted",
					"Nat Gateway %s cannot be deleted because it is in use by the following resources: %s. In order to delete the Nat Gateway, remove the association with the resource(s).",
					res.ID, strings.Join(users, ", "))
			}
			return c.leaving(res, 10, 8*time.Second, 20*time.Second)
		},
		show: func(_ *request, res *Resource, body doc) {
			if l := c.usersAt(res.ID, subnetType); len(l) > 0 {
				body.sub("properties")["subnets"] = refList(l)
			}
		},
	}))
}

func (c *Cloud) putNAT(r *request, now, old *Resource) (outcome, error) {
	if err := c.withinQuota(now, old, "NatGateways", "NatGatewayCountLimitReached", "Cannot create more than %d NAT gateways for this subscription in this region."); err != nil {
		return outcome{}, err
	}
	p := now.Properties
	for _, name := range readOnly {
		delete(p, name)
	}
	sku := now.Top.str("sku.name")
	if sku == "" {
		sku = "Standard"
	}
	now.Top["sku"] = map[string]any{"name": sku, "tier": "Regional"}
	p.def("idleTimeoutInMinutes", 4.0)
	if n := p.num("idleTimeoutInMinutes"); n < 4 || n > 120 {
		return outcome{}, refuseNetwork(http.StatusBadRequest, "InvalidIdleTimeout", "Idle timeout %v minutes of NAT gateway %s is not valid. It must be between 4 and 120.", n, now.ID)
	}
	if err := c.checkNAT(r, now, old, sku); err != nil {
		return outcome{}, err
	}
	c.identify(now, old)
	if unchanged(now, old) {
		return nothingToDo, nil
	}
	return c.writing(now, 10, 8*time.Second, 24*time.Second)
}

// checkNAT holds a gateway against its zones and addresses ("Azure NAT Gateway SKUs": a Standard gateway is in one zone at
// most, a StandardV2 gateway spans them all, and each takes only addresses of its own SKU).
func (c *Cloud) checkNAT(r *request, now, old *Resource, sku string) error {
	if err := c.checkZones(now, old); err != nil {
		return err
	}
	if old != nil && old.Top.str("sku.name") != sku {
		return refuseNetwork(http.StatusBadRequest, "SkuPropertyCannotBeUpdated", "Sku property of resource %s cannot be changed from %s to %s.", now.ID, old.Top.str("sku.name"), sku)
	}
	zones := now.Top.strs("zones")
	if sku == "Standard" && len(zones) > 1 {
		return refuseNetwork(http.StatusBadRequest, "NatGatewayMultipleZonesNotSupported", "NAT gateway %s with sku Standard can be in one zone only, not in %s.", now.ID, strings.Join(zones, ","))
	}
	if sku == "StandardV2" && len(zones) > 0 && len(zones) < 3 {
		return refuseNetwork(http.StatusBadRequest, "NatGatewayZonesNotSupported", "NAT gateway %s with sku StandardV2 is zone-redundant and can not be put into the zones %s.", now.ID, strings.Join(zones, ","))
	}
	if err := c.references(r, now, now.Location); err != nil {
		return err
	}
	for _, list := range []string{"publicIpAddresses", "publicIpAddressesV6"} {
		for _, ref := range now.Properties.docs(list) {
			pip := c.find(ref.str("id"))
			if pip == nil {
				continue
			}
			if got := pip.Top.str("sku.name"); got != sku {
				return refuseNetwork(http.StatusBadRequest, "NatGatewayAndPublicIpSkuDoNotMatch",
					"Public IP address %s with sku %s can not be attached to NAT gateway %s with sku %s. Their skus must be the same.", pip.ID, got, now.ID, sku)
			}
			if err := c.addressFree(now, pip.ID); err != nil {
				return err
			}
		}
	}
	return nil
}
