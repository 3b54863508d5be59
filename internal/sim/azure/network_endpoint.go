package azure

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"
)

const (
	privateEndpointType = "Microsoft.Network/privateEndpoints"
	zoneGroupType       = privateEndpointType + "/privateDnsZoneGroups"
)

// addPrivateEndpoints adds private endpoints to managed services, and the groups of zones that name them.
func (c *Cloud) addPrivateEndpoints() {
	c.addKind(c.networkKind(&kind{typ: privateEndpointType, title: "PrivateEndpoints", model: func() any { return &armnetwork.PrivateEndpoint{} },
		put: c.putEndpoint, removed: c.endpointRemoved,
		remove: func(_ *request, res *Resource) (outcome, error) {
			return c.leaving(res, 10, 10*time.Second, 40*time.Second)
		}}))
	c.addKind(c.networkKind(&kind{typ: zoneGroupType, title: "PrivateDnsZoneGroups", model: func() any { return &armnetwork.PrivateDNSZoneGroup{} },
		put: c.putZoneGroup, removed: c.zoneGroupRemoved, guard: c.endpointIdle,
		remove: func(_ *request, res *Resource) (outcome, error) {
			return c.leaving(res, 10, 5*time.Second, 15*time.Second)
		}}))
}

// A linkTarget is what a private endpoint can lead to: its group and the private zone for it ("Azure Private Endpoint private DNS
// zone values").
type linkTarget struct{ group, zone string }

var linkTargets = map[string]linkTarget{
	key(managedRedisType): {"redisEnterprise", managedZone},
	key(oldCacheType):     {"redisCache", "privatelink.redis.cache.windows.net"},
	key(postgresType):     {"postgresqlServer", "privatelink." + flexPostgres.suffix},
	key(mysqlType):        {"mysqlServer", "privatelink." + flexMySQL.suffix},
	key(vaultType):        {"vault", "privatelink.vaultcore.azure.net"},
}

// hostOf is the host name that a private endpoint answers for, and its record in the private zone.
func hostOf(target *Resource) (host, record string) {
	name := strings.ToLower(target.Name)
	switch key(target.Type) {
	case key(managedRedisType):
		return managedHost(target), name + "." + target.Location
	case key(oldCacheType):
		return name + ".redis.cache.windows.net", name
	case key(vaultType):
		return name + ".vault.azure.net", name
	}
	return name + "." + flexOf(target.Type).suffix, name
}

// connectionsOf are the connections that an endpoint asks for, approved by itself or by hand.
func connectionsOf(endpoint *Resource) []doc {
	return append(endpoint.Properties.docs("privateLinkServiceConnections"), endpoint.Properties.docs("manualPrivateLinkServiceConnections")...)
}

// putEndpoint makes a private endpoint with its network interface.
func (c *Cloud) putEndpoint(r *request, now, old *Resource) (outcome, error) {
	p := now.Properties
	for _, name := range []string{"networkInterfaces", "customDnsConfigs"} {
		delete(p, name)
	}
	subnet := c.find(p.ref("subnet"))
	if subnet == nil || subnet.Type != subnetType || c.locationOf(subnet) != now.Location {
		return outcome{}, refuseNetwork(http.StatusBadRequest, "InvalidResourceReference",
			"Resource %s referenced by resource %s was not found. Please make sure that the referenced resource exists, and that both resources are in the same region.", p.ref("subnet"), now.ID)
	}
	conns := connectionsOf(now)
	if len(conns) != 1 {
		return outcome{}, refuseNetwork(http.StatusBadRequest, "PrivateEndpointMustHaveOneConnection", "Private endpoint %s must have exactly one private link service connection.", now.ID)
	}
	target, err := c.linked(r, now, conns[0])
	if err != nil {
		return outcome{}, err
	}
	host, _ := hostOf(target)
	conn := conns[0]
	conn["id"], conn["type"] = now.ID+"/privateLinkServiceConnections/"+conn.str("name"), privateEndpointType+"/privateLinkServiceConnections"
	props := conn.sub("properties")
	props["provisioningState"] = stateSucceeded
	props["privateLinkServiceConnectionState"] = map[string]any{"status": "Approved", "description": "Auto-Approved", "actionsRequired": "None"}
	p.def("manualPrivateLinkServiceConnections", []any{})
	p.def("ipConfigurations", []any{})
	if old != nil {
		p["networkInterfaces"], p["customDnsConfigs"] = old.Properties["networkInterfaces"], old.Properties["customDnsConfigs"]
		if !strings.EqualFold(old.Properties.ref("subnet"), p.ref("subnet")) {
			return outcome{}, refuseNetwork(http.StatusBadRequest, "PropertyChangeNotAllowed", "The subnet of private endpoint %s cannot be changed.", now.ID)
		}
		if unchanged(now, old) {
			return nothingToDo, nil
		}
		return c.writing(now, 3, 5*time.Second, 15*time.Second)
	}
	free := c.freeAddresses(subnet, 1)
	if len(free) == 0 {
		return outcome{}, refuseNetwork(http.StatusBadRequest, "SubnetIsFull", "Subnet %s with address prefix %s does not have enough capacity for 1 IP addresses.", subnet.Name, subnetPrefixes(subnet)[0])
	}
	nic := c.endpointInterface(now, subnet, free[0])
	p["networkInterfaces"] = []any{map[string]any{"id": nic.ID}}
	p["customDnsConfigs"] = []any{map[string]any{"fqdn": host, "ipAddresses": []any{free[0]}}}
	return c.writing(now, 3, 20*time.Second, 60*time.Second)
}

// linked checks what a connection leads to: it is there, does nothing else at the moment, and has the group that is asked for.
func (c *Cloud) linked(r *request, now *Resource, conn doc) (*Resource, error) {
	ref := conn.str("properties.privateLinkServiceId")
	target := c.find(ref)
	id, _ := parseID(ref)
	known, ok := linkTarget{}, false
	if target != nil {
		known, ok = linkTargets[key(target.Type)]
	}
	switch {
	case target != nil && !c.owns(r.who, id.Subscription):
		return nil, c.linkedRefusal(r, now, ref)
	case !ok:
		return nil, refuseNetwork(http.StatusBadRequest, "PrivateLinkServiceIdNotFound", "Private link service id %s of private endpoint %s was not found, or does not support private endpoints.", ref, now.ID)
	case !slices.ContainsFunc(conn.strs("properties.groupIds"), func(g string) bool { return strings.EqualFold(g, known.group) }):
		return nil, refuseNetwork(http.StatusBadRequest, "PrivateEndpointGroupIdInvalid", "Private endpoint %s has the group IDs %v; the resource %s knows %s.", now.ID, conn.strs("properties.groupIds"), ref, known.group)
	case flexOf(target.Type) != nil && target.Properties.str("network.delegatedSubnetResourceId") != "":
		return nil, refuseNetwork(http.StatusBadRequest, "PrivateEndpointNotSupported", "Private endpoints are not supported for the server %s: it is in a virtual network.", ref)
	case target.busy():
		return nil, retryable("ReferencedResourceNotProvisioned", "Cannot proceed with operation because resource %s used by resource %s is not in Succeeded state. Resource is in %s state and the last operation that updated/is updating the resource is %s.",
			target.ID, now.ID, target.State, c.lastOperation(target))
	}
	return target, nil
}

// endpointInterface makes the network interface of an endpoint.
func (c *Cloud) endpointInterface(endpoint, subnet *Resource, address string) *Resource {
	name := endpoint.Properties.str("customNetworkInterfaceName")
	if name == "" {
		name = endpoint.Name + ".nic." + c.World.UUID()
	}
	id := groupID(subscriptionOf(endpoint.ID), groupOf(endpoint.ID)) + "/providers/" + nicType + "/" + name
	nic := &Resource{ID: id, Type: nicType, Name: name, Location: endpoint.Location, State: stateSucceeded, Etag: c.newEtag(), Created: c.World.Now(), Changed: c.World.Now(), Top: doc{}, Default: true,
		Properties: doc{"privateEndpoint": map[string]any{"id": endpoint.ID}, "resourceGuid": c.World.UUID(), "enableIPForwarding": false, "dnsSettings": map[string]any{"dnsServers": []any{}, "appliedDnsServers": []any{}},
			"ipConfigurations": []any{map[string]any{"id": id + "/ipConfigurations/privateEndpointIpConfig", "name": "privateEndpointIpConfig", "properties": map[string]any{
				"privateIPAddress": address, "privateIPAllocationMethod": "Dynamic", "primary": true, "provisioningState": stateSucceeded, "privateIPAddressVersion": "IPv4", "subnet": map[string]any{"id": subnet.ID}}}}}}
	c.keep(nic)
	return nic
}

// endpointRemoved takes the network interface of an endpoint away with it.
func (c *Cloud) endpointRemoved(res *Resource) {
	for _, ref := range res.Properties.docs("networkInterfaces") {
		if nic := c.find(ref.str("id")); nic != nil {
			c.drop(nic)
		}
	}
}

// endpointIdle refuses to write a group of zones while something is at work on its endpoint.
func (c *Cloud) endpointIdle(_ *request, id string) error {
	if endpoint := c.find(parentOf(id)); endpoint != nil && endpoint.busy() {
		return retryable("RetryableErrorDueToAnotherOperation", "Operation %s (%s) is updating resource %s. The call can be retried in 12 seconds.", c.lastOperation(endpoint), endpoint.Operation, endpoint.ID).header("Retry-After", "12")
	}
	return nil
}

// putZoneGroup writes the records of an endpoint into private zones.
func (c *Cloud) putZoneGroup(_ *request, now, old *Resource) (outcome, error) {
	endpoint := c.find(parentOf(now.ID))
	configs := now.Properties.docs("privateDnsZoneConfigs")
	if len(c.children(endpoint.ID, zoneGroupType)) > 0 && old == nil {
		return outcome{}, refuseNetwork(http.StatusBadRequest, "PrivateEndpointDnsZoneGroupLimitReached", "Private endpoint %s has a private DNS zone group already.", endpoint.ID)
	}
	if len(configs) == 0 {
		return outcome{}, refuseNetwork(http.StatusBadRequest, "MissingPrivateDnsZoneConfigs", "Private DNS zone group %s has no zone configuration.", now.ID)
	}
	target := c.find(connectionsOf(endpoint)[0].str("properties.privateLinkServiceId"))
	for _, cfg := range configs {
		zone := c.find(cfg.str("properties.privateDnsZoneId"))
		if zone == nil || zone.Type != privateZoneType {
			return outcome{}, refuseNetwork(http.StatusBadRequest, "InvalidPrivateDnsZoneIds", "Private Dns Zone group %s has invalid private dns zone ids %s.", now.ID, cfg.str("properties.privateDnsZoneId"))
		}
		records := []any{}
		if target != nil && strings.EqualFold(zone.Name, linkTargets[key(target.Type)].zone) {
			_, record := hostOf(target)
			ips := endpoint.Properties.docs("customDnsConfigs")[0].list("ipAddresses")
			records = append(records, map[string]any{"recordType": "A", "recordSetName": record, "fqdn": record + "." + zone.Name, "ttl": 10, "ipAddresses": ips, "provisioningState": stateSucceeded})
			c.endpointRecord(endpoint, zone, record, ips)
		}
		cfg["id"] = now.ID + "/privateDnsZoneConfigs/" + cfg.str("name")
		cfg.sub("properties")["recordSets"], cfg.sub("properties")["provisioningState"] = records, stateSucceeded
	}
	if unchanged(now, old) {
		return nothingToDo, nil
	}
	return c.writing(now, 3, 5*time.Second, 15*time.Second)
}

func (c *Cloud) endpointRecord(endpoint, zone *Resource, record string, ips []any) {
	var addresses []any
	for _, ip := range ips {
		addresses = append(addresses, map[string]any{"ipv4Address": ip})
	}
	c.keep(&Resource{ID: zone.ID + "/A/" + record, Type: privateZoneType + "/A", Name: record, Top: doc{}, Created: c.World.Now(), Changed: c.World.Now(), Etag: c.World.UUID(), Default: true,
		Properties: doc{"ttl": 10, "isAutoRegistered": false, "metadata": map[string]any{"creator": "created by private endpoint " + endpoint.Name}, "aRecords": addresses}})
}

// zoneGroupRemoved takes the records of a group out of its zones.
func (c *Cloud) zoneGroupRemoved(res *Resource) {
	for _, cfg := range res.Properties.docs("privateDnsZoneConfigs") {
		for _, set := range cfg.docs("properties.recordSets") {
			if rec := c.find(cfg.str("properties.privateDnsZoneId") + "/A/" + set.str("recordSetName")); rec != nil {
				c.drop(rec)
			}
		}
	}
}

// endpointsTo are the private endpoints whose connection leads to a resource.
func (c *Cloud) endpointsTo(id string) []*Resource {
	var out []*Resource
	for _, res := range c.shelves["network"].sorted() {
		if res.Type == privateEndpointType && slices.ContainsFunc(connectionsOf(res), func(d doc) bool { return key(d.str("properties.privateLinkServiceId")) == key(id) }) {
			out = append(out, res)
		}
	}
	return out
}

// endpointTo says whether a private endpoint that works leads to a resource.
func (c *Cloud) endpointTo(id string) bool {
	return slices.ContainsFunc(c.endpointsTo(id), func(res *Resource) bool { return res.State == stateSucceeded })
}

// connectionsTo are a resource's private endpoint connections, as it shows them.
func (c *Cloud) connectionsTo(id string) []any {
	out := []any{}
	for _, res := range c.endpointsTo(id) {
		target := c.find(id)
		out = append(out, map[string]any{"id": target.ID + "/privateEndpointConnections/" + res.Name, "name": res.Name, "type": target.Type + "/privateEndpointConnections",
			"properties": map[string]any{"provisioningState": stateSucceeded, "privateEndpoint": map[string]any{"id": res.ID}, "groupIds": []any{linkTargets[key(target.Type)].group},
				"privateLinkServiceConnectionState": map[string]any{"status": "Approved", "description": "Auto-Approved", "actionsRequired": "None"}}})
	}
	return out
}
