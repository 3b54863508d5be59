package azure

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/sim"
)

const publicIPType = "Microsoft.Network/publicIPAddresses"

func (c *Cloud) addPublicAddresses() {
	// The Basic SKU was retired in September 2025 ("Upgrade a Basic public IP address to Standard SKU"); a world that needs one
	// raises this quota.
	c.World.DefineQuota(sim.Quota{Cloud: "azure", Service: "network", Code: "IPv4BasicSkuPublicIpAddresses", Name: "Public IPv4 Addresses - Basic", Unit: "Count", Adjustable: true})
	c.addKind(c.networkKind(&kind{
		typ: publicIPType, zonal: true, model: func() any { return &armnetwork.PublicIPAddress{} },
		put: c.putPublicIP, remove: c.removePublicIP,
		settled: func(_ *Operation, res *Resource) {
			if res.Properties.str("publicIPAllocationMethod") == "Static" {
				c.assignAddress(res)
			}
		},
		show: c.showPublicIP,
	}))
}

// assignAddress gives a public IP its address, for good.
func (c *Cloud) assignAddress(res *Resource) {
	if res.Properties.has("ipAddress") {
		return
	}
	if res.Properties.str("publicIPAddressVersion") == "IPv6" {
		res.Properties["ipAddress"] = fmt.Sprintf("2603:1030:%s:%s::%s", c.World.Hex("", 3), c.World.Hex("", 3), c.World.Hex("", 3))
		return
	}
	h := c.World.ID("", 6, "0123456789")
	res.Properties["ipAddress"] = fmt.Sprintf("20.%d.%d.%d", int(h[0]-'0')*25+int(h[1]-'0')+1, int(h[2]-'0')*25+int(h[3]-'0'), int(h[4]-'0')*25+int(h[5]-'0')+1)
}

func (c *Cloud) putPublicIP(_ *request, now, old *Resource) (outcome, error) {
	p := now.Properties
	for _, name := range []string{"ipConfiguration", "natGateway", "ipAddress", "resourceGuid"} {
		delete(p, name)
	}
	sku := now.Top.str("sku.name")
	if sku == "" {
		sku = "Basic"
	}
	tier := now.Top.str("sku.tier")
	if tier == "" {
		tier = "Regional"
	}
	now.Top["sku"] = map[string]any{"name": sku, "tier": tier}
	p.def("publicIPAddressVersion", "IPv4")
	p.def("publicIPAllocationMethod", "Dynamic")
	p.def("idleTimeoutInMinutes", 4.0)
	p.def("ipTags", []any{})
	if err := c.checkPublicIP(now, old, sku); err != nil {
		return outcome{}, err
	}
	if err := c.labelDNS(now); err != nil {
		return outcome{}, err
	}
	c.identify(now, old)
	if old != nil && old.Properties.has("ipAddress") {
		p["ipAddress"] = old.Properties["ipAddress"]
	}
	if unchanged(now, old) {
		return nothingToDo, nil
	}
	return c.writing(now, 1, 2*time.Second, 5*time.Second)
}

func (c *Cloud) checkPublicIP(now, old *Resource, sku string) error {
	p := now.Properties
	if n := p.num("idleTimeoutInMinutes"); n < 4 || n > 30 {
		return refuseNetwork(http.StatusBadRequest, "InvalidIdleTimeout", "Idle timeout %v minutes of public IP address %s is not valid. It must be between 4 and 30.", n, now.ID)
	}
	if sku != "Basic" && p.str("publicIPAllocationMethod") != "Static" {
		return refuseNetwork(http.StatusBadRequest, "StandardSkuPublicIPAddressMustBeStatic", "%s sku publicIp %s must have AllocationMethod set to Static.", sku, now.ID)
	}
	if err := c.checkZones(now, old); err != nil {
		return err
	}
	if old != nil {
		if was := old.Top.str("sku.name"); was != sku {
			return refuseNetwork(http.StatusBadRequest, "SkuPropertyCannotBeUpdated", "Sku property of resource %s cannot be changed from %s to %s.", now.ID, was, sku)
		}
		return nil
	}
	if sku == "Basic" {
		limit, _ := c.World.QuotaValue("azure", "network", "IPv4BasicSkuPublicIpAddresses", subscriptionOf(now.ID), now.Location)
		if float64(c.countSKU("Basic", subscriptionOf(now.ID), now.Location)) >= limit {
			return refuseNetwork(http.StatusBadRequest, "IPv4BasicSkuPublicIpCountLimitReached",
				"Cannot create more than %d IPv4 Basic SKU public IP addresses for this subscription in this region.", int(limit))
		}
	}
	if err := c.withinQuota(now, old, "StandardSkuPublicIpAddresses", "PublicIPCountLimitReached", "Cannot create more than %d public IP addresses for this subscription in this region."); err != nil {
		return err
	}
	return c.withinQuota(now, old, "PublicIPAddresses", "PublicIPCountLimitReached", "Cannot create more than %d public IP addresses for this subscription in this region.")
}

func (c *Cloud) countSKU(sku, subscription, location string) int {
	n := 0
	for _, res := range c.shelves["network"].state.Resources {
		if res.Type == publicIPType && res.Top.str("sku.name") == sku && strings.EqualFold(subscriptionOf(res.ID), subscription) && res.Location == location {
			n++
		}
	}
	return n
}

// checkZones refuses zones that the region does not have, and the change of those that a resource has.
func (c *Cloud) checkZones(now, old *Resource) error {
	zones := now.Top.strs("zones")
	l, _ := findLocation(now.Location)
	for _, z := range zones {
		if l.zones == 0 {
			return refuseNetwork(http.StatusBadRequest, "LocationDoesNotSupportAvailabilityZones",
				"The zone(s) '%s' for resource '%s' is not supported. The location '%s' does not support availability zones.", strings.Join(zones, ","), now.ID, now.Location)
		}
		if z != "1" && z != "2" && z != "3" {
			return refuseNetwork(http.StatusBadRequest, "InvalidAvailabilityZone",
				"The zone(s) '%s' for resource '%s' is not supported. The supported zones for location '%s' are '1,2,3'.", z, now.ID, now.Location)
		}
	}
	if old == nil {
		return nil
	}
	was := old.Top.strs("zones")
	slices.Sort(was)
	slices.Sort(zones)
	if !slices.Equal(was, zones) {
		return refuseNetwork(http.StatusBadRequest, "ResourceAvailabilityZonesCannotBeModified",
			"Resource %s has an existing availability zone constraint %s and the request has availability zone constraint %s, which do not match. Zones cannot be added/updated/removed once the resource is created. The resource cannot be updated from regional to zonal or vice-versa.",
			now.ID, orNone(was), orNone(zones))
	}
	return nil
}

func orNone(s []string) string {
	if len(s) == 0 {
		return "NoZone"
	}
	return strings.Join(s, ",")
}

var dnsLabel = regexp.MustCompile(`^[a-z][a-z0-9-]{1,61}[a-z0-9]$`)

// labelDNS gives a public IP its name in the cloud's own domain; it is unique in the region.
func (c *Cloud) labelDNS(now *Resource) error {
	label := now.Properties.str("dnsSettings.domainNameLabel")
	if label == "" {
		return nil
	}
	if !dnsLabel.MatchString(label) {
		return refuseNetwork(http.StatusBadRequest, "InvalidDomainNameLabel", "The domain name label %s is invalid. It must conform to the following regular expression: %s.", label, dnsLabel)
	}
	fqdn := label + "." + now.Location + ".cloudapp.azure.com"
	for _, other := range c.shelves["network"].sorted() {
		if other.Type == publicIPType && !strings.EqualFold(other.ID, now.ID) && other.Properties.str("dnsSettings.fqdn") == fqdn {
			return refuseNetwork(http.StatusBadRequest, "DnsRecordInUse", "DNS record %s is already used by another public IP.", fqdn)
		}
	}
	now.Properties.sub("dnsSettings")["fqdn"] = fqdn
	return nil
}

func (c *Cloud) removePublicIP(_ *request, res *Resource) (outcome, error) {
	if users := c.usersAt(res.ID); len(users) > 0 {
		return outcome{}, refuseNetwork(http.StatusBadRequest, "PublicIPAddressCannotBeDeleted",
			"Public IP address %s can not be deleted since it is still allocated to resource %s. In order to delete the public IP, disassociate/detach the Public IP address from the resource.  To learn how to do this, see aka.ms/deletepublicip.",
			res.ID, users[0])
	}
	return c.leaving(res, 10, 5*time.Second, 14*time.Second)
}

// showPublicIP adds who has the address.
func (c *Cloud) showPublicIP(_ *request, res *Resource, body doc) {
	p := body.sub("properties")
	for _, u := range c.usesOf(res.ID) {
		if strings.HasPrefix(u.by.Type, zoneType+"/") {
			continue
		}
		if u.by.Type == natType {
			p["natGateway"] = map[string]any{"id": u.by.ID}
		} else {
			p["ipConfiguration"] = map[string]any{"id": u.at}
		}
	}
}

// addressFree refuses a public IP that somebody else has.
func (c *Cloud) addressFree(now *Resource, publicIP string) error {
	for _, u := range c.usesOf(publicIP) {
		if !strings.EqualFold(u.by.ID, now.ID) && !strings.HasPrefix(u.by.Type, zoneType+"/") {
			return refuseNetwork(http.StatusBadRequest, "PublicIPAddressInUse",
				"Resource %s is referencing public IP address %s that is already allocated to resource %s.", now.ID, publicIP, u.at)
		}
	}
	return nil
}

const prefixType = "Microsoft.Network/publicIPPrefixes"

// addPublicPrefixes adds ranges of public addresses, as NAT gateways take them.
func (c *Cloud) addPublicPrefixes() {
	c.addKind(c.networkKind(&kind{
		typ: prefixType, zonal: true, model: func() any { return &armnetwork.PublicIPPrefix{} },
		put: c.putPublicPrefix,
		remove: func(_ *request, res *Resource) (outcome, error) {
			if users := c.usersAt(res.ID); len(users) > 0 {
				return outcome{}, refuseNetwork(http.StatusBadRequest, "InUsePrefixCannotBeDeleted", "Prefix %s is in use by resource %s and cannot be deleted.", res.ID, users[0])
			}
			return c.leaving(res, 10, 2*time.Second, 6*time.Second)
		},
		settled: func(_ *Operation, res *Resource) {
			if !res.Properties.has("ipPrefix") {
				h := c.World.ID("", 4, "0123456789")
				res.Properties["ipPrefix"] = fmt.Sprintf("20.%d.%d.0/%d", 200+int(h[0]-'0'), int(h[1]-'0')*25+int(h[2]-'0'), int(res.Properties.num("prefixLength")))
			}
		},
	}))
}

func (c *Cloud) putPublicPrefix(_ *request, now, old *Resource) (outcome, error) {
	p := now.Properties
	for _, name := range []string{"ipPrefix", "resourceGuid", "publicIPAddresses"} {
		delete(p, name)
	}
	if now.Top.str("sku.name") == "" {
		now.Top["sku"] = map[string]any{"name": "Standard", "tier": "Regional"}
	}
	now.Top.sub("sku").def("tier", "Regional")
	p.def("publicIPAddressVersion", "IPv4")
	p.def("ipTags", []any{})
	if n := p.num("prefixLength"); p.str("publicIPAddressVersion") == "IPv4" && (n < 28 || n > 31) {
		return outcome{}, refuseNetwork(http.StatusBadRequest, "InvalidPublicIPPrefixLength", "Prefix length %v of public IP prefix %s is not valid. It must be between 28 and 31.", n, now.ID)
	}
	if err := c.checkZones(now, old); err != nil {
		return outcome{}, err
	}
	c.identify(now, old)
	if old != nil {
		if old.Properties.num("prefixLength") != p.num("prefixLength") {
			return outcome{}, refuseNetwork(http.StatusBadRequest, "PublicIPPrefixLengthCannotBeChanged", "The prefix length of public IP prefix %s cannot be changed.", now.ID)
		}
		p["ipPrefix"] = old.Properties["ipPrefix"]
	}
	if unchanged(now, old) {
		return nothingToDo, nil
	}
	return c.writing(now, 1, 2*time.Second, 5*time.Second)
}
