package azure

import (
	"net/http"
	"slices"
	"strings"
	"time"
)

// serviceLinkType is what stands in a delegated subnet while a service is in it.
const serviceLinkType = subnetType + "/serviceAssociationLinks"

func (c *Cloud) addServiceLinks() {
	c.addKind(c.networkKind(&kind{typ: serviceLinkType, noCreate: true, stateless: true,
		remove: func(r *request, res *Resource) (outcome, error) {
			return outcome{}, refuseNetwork(http.StatusBadRequest, "UnauthorizedClientApplication", "The service association link %s can be deleted only by the service that made it.", res.ID)
		}}))
}

// checkServerNetwork judges where a server is to stand ("Networking overview for Azure Database for PostgreSQL/MySQL with private access").
func (c *Cloud) checkServerNetwork(e *flexEngine, now, old *Resource) error {
	n := now.Properties.sub("network")
	subnetID, zoneID := n.str("delegatedSubnetResourceId"), n.str(e.zoneMember)
	if old != nil && strings.EqualFold(old.Properties.str("network.delegatedSubnetResourceId"), subnetID) && strings.EqualFold(old.Properties.str("network."+e.zoneMember), zoneID) {
		if subnetID != "" && strings.EqualFold(n.str("publicNetworkAccess"), "Enabled") {
			return conflictingAccess()
		}
		return nil
	}
	switch {
	case subnetID == "" && zoneID != "", subnetID != "" && strings.EqualFold(n.str("publicNetworkAccess"), "Enabled"):
		return conflictingAccess()
	case subnetID == "":
		return nil
	case zoneID == "" && e == flexPostgres:
		return refuse(http.StatusBadRequest, "EmptyPrivateDnsZoneArguments", "The private DNS zone arguments cannot be empty when a server is made in a virtual network.")
	}
	subnet := c.find(subnetID)
	if subnet == nil || subnet.Type != subnetType {
		return refuse(http.StatusBadRequest, "VNetSubnetNotFound", "The subnet '%s' was not found.", subnetID)
	}
	if at := c.locationOf(subnet); at != now.Location {
		return refuse(http.StatusBadRequest, "InvalidVNetLocation", "The virtual network of subnet '%s' is in %s, the server in %s; they must be in the same region.", subnetID, at, now.Location)
	}
	if err := c.fitsSubnet(e, now, subnet); err != nil {
		return err
	}
	if zone := c.find(zoneID); zoneID != "" && (zone == nil || zone.Type != privateZoneType) {
		return refuse(http.StatusBadRequest, "PrivateDnsZoneNotFound", "The private DNS zone '%s' was not found.", zoneID)
	}
	return nil
}

func conflictingAccess() *Error {
	return refuse(http.StatusBadRequest, "ConflictingPublicNetworkAccessAndVirtualNetworkConfiguration",
		"Conflicting configuration is detected between Public Network Access and Virtual Network arguments. Public Network Access is not supported along with Virtual Network feature.")
}

// fitsSubnet: the subnet is delegated to the engine, big enough, free of others, and has addresses left.
func (c *Cloud) fitsSubnet(e *flexEngine, now, subnet *Resource) error {
	if !slices.ContainsFunc(subnet.Properties.docs("delegations"), func(d doc) bool { return strings.EqualFold(d.str("properties.serviceName"), e.typ) }) {
		return refuse(http.StatusBadRequest, "SubnetMissingRequiredDelegation", "Subnet %s requires any of the following delegation(s) [%s] to reference service association link %s/serviceAssociationLinks/%s.",
			subnet.ID, e.typ, subnet.ID, e.linkName())
	}
	space, taken := 0, 0
	for _, p := range subnetPrefixes(subnet) {
		if p.Bits() > e.smallest {
			return refuse(http.StatusBadRequest, "DelegatedSubnetTooSmall", "The subnet %s (%s) is too small for %s: /%d is the smallest.", subnet.ID, p, e.title, e.smallest)
		}
		space += 1<<(32-p.Bits()) - 5
	}
	for _, id := range c.usersAt(subnet.ID) {
		other := c.find(id)
		if other == nil || other.Type != e.typ {
			return refuse(http.StatusBadRequest, "SubnetInUse", "The subnet %s is in use by %s. A delegated subnet is for servers of %s alone.", subnet.ID, id, e.title)
		}
		taken += addressesOf(other)
	}
	if addressesOf(now)+taken > space {
		return refuse(http.StatusBadRequest, "SubnetIsFull", "Subnet %s does not have enough capacity for %d IP addresses.", subnet.ID, addressesOf(now))
	}
	return nil
}

// addressesOf is how many addresses a server takes: one, and another for a standby.
func addressesOf(server *Resource) int {
	if mode := server.Properties.str("highAvailability.mode"); mode != "" && mode != "Disabled" {
		return 2
	}
	return 1
}

// linkName is how the engine's service association link is called.
func (e *flexEngine) linkName() string {
	return map[bool]string{true: "PostgreSQL", false: "MySQL"}[e == flexPostgres] + "ServiceAssociationLink"
}

// occupy notes a server in its subnet, and in its private zone.
func (c *Cloud) occupy(e *flexEngine, res *Resource) {
	if subnet := c.find(res.Properties.str("network.delegatedSubnetResourceId")); subnet != nil {
		id := subnet.ID + "/serviceAssociationLinks/" + e.linkName()
		if c.find(id) == nil {
			c.keep(&Resource{ID: id, Type: serviceLinkType, Name: e.linkName(), Default: true, Top: doc{}, Created: c.World.Now(), Changed: c.World.Now(), Properties: doc{
				"linkedResourceType": e.typ, "link": "", "allowDelete": false, "enabledForArmDeployments": false, "provisioningState": stateSucceeded, "locations": []any{}}})
		}
		if zone := c.find(res.Properties.str("network." + e.zoneMember)); zone != nil {
			address := "10.0.0.4"
			if free := c.freeAddresses(subnet, 1); len(free) > 0 {
				address = free[0]
			}
			c.keep(&Resource{ID: c.recordOf(res, zone.ID), Type: privateZoneType + "/A", Name: lastOf(c.recordOf(res, zone.ID)), Top: doc{}, Created: c.World.Now(), Changed: c.World.Now(), Etag: c.World.UUID(), Default: true,
				Properties: doc{"ttl": 30, "isAutoRegistered": false, "metadata": map[string]any{"creator": "created by " + e.title + " flexible server " + res.Name}, "aRecords": []any{map[string]any{"ipv4Address": address}}}})
		}
	}
}

// recordOf is the ID of a server's record in its private zone: the name is drawn, not the server's.
func (c *Cloud) recordOf(res *Resource, zone string) string {
	const hex = "0123456789abcdef"
	var name strings.Builder
	for i := range 12 {
		name.WriteByte(hex[int(c.World.Fraction("record", res.ID, string(rune('a'+i)))*16)])
	}
	return zone + "/A/" + name.String()
}

// lingering is how long a deleted server still holds its subnet and zone.
const lingering = 90 * time.Second

// vacate gives a server's place in the network back, a while after it has gone.
func (c *Cloud) vacate(e *flexEngine, res *Resource) {
	subnet, zone := res.Properties.str("network.delegatedSubnetResourceId"), res.Properties.str("network."+e.zoneMember)
	if subnet == "" {
		return
	}
	record := ""
	if zone != "" {
		record = c.recordOf(res, c.spelled(zone))
	}
	c.after(lingering, e.service, "released", c.spelled(subnet)+"|"+record)
}

// subnetReleased takes away what a deleted server has left in its network.
func (c *Cloud) subnetReleased(at string) {
	subnet, record, _ := strings.Cut(at, "|")
	if rec := c.find(record); rec != nil {
		c.drop(rec)
	}
	for _, link := range c.children(subnet, serviceLinkType) {
		if len(c.usersAt(subnet, link.Properties.str("linkedResourceType"))) == 0 {
			c.drop(link)
		}
	}
}

// zoneFree refuses to delete a private zone in which a service keeps a record.
func (c *Cloud) zoneFree(zone *Resource) error {
	users := c.usersAt(zone.ID, postgresType, mysqlType)
	for _, rec := range c.recordSets(zone.ID) {
		if strings.Contains(rec.Properties.str("metadata.creator"), " flexible server ") {
			users = append(users, rec.ID)
		}
	}
	if len(users) == 0 {
		return nil
	}
	return refuseARM(http.StatusConflict, "CannotDeleteResource", "Cannot delete the private DNS zone '%s' while it is used by '%s'.", zone.Name, users[0])
}
