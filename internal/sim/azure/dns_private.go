package azure

import (
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/privatedns/armprivatedns"
)

const (
	privateZoneType = "Microsoft.Network/privateDnsZones"
	zoneLinkType    = privateZoneType + "/virtualNetworkLinks"
)

var privateDNSVersions = []string{"2018-09-01", "2020-01-01", "2020-06-01", "2024-06-01"}

// privateKind completes a kind whose writes are answered with 202 and an empty object, as those of private zones are.
func privateKind(k *kind) *kind {
	k.service, k.versions, k.tracked, k.global, k.poll202 = "privatedns", privateDNSVersions, true, true, true
	k.says, k.deleted, k.mergePatch, k.patchModel = privateDialect, http.StatusOK, true, k.model
	k.polling = func(op *Operation) (string, string) {
		base := groupID(subscriptionOf(op.Target), groupOf(op.Target)) + "/providers/Microsoft.Network/privateDnsOperation"
		return base + "Statuses/" + op.ID, base + "Results/" + op.ID
	}
	return k
}

// privateDialect is that of public zones, but that ARM itself words what is missing.
var privateDialect = func() *dialect {
	d := *zoneDialect
	d.absent = func(r *request) *Error { return notFoundARM(r.id) }
	d.orphan = func(r *request, parent armID) *Error {
		return refuseARM(http.StatusNotFound, "ParentResourceNotFound", "Failed to perform '%s' on resource(s) of type '%s', because the parent resource '%s' could not be found.",
			lastOf(actionOf(r.method, r.path)), strings.Join(r.id.Types, "/"), parent)
	}
	return &d
}()

// privateRecordDialect is that of the record sets in them.
var privateRecordDialect = func() *dialect {
	d := *zoneDialect
	d.orphan = privateDialect.orphan
	return &d
}()

func (c *Cloud) addPrivateDNS() {
	c.newShelf("privatedns")
	c.addKind(privateKind(&kind{
		typ: privateZoneType, title: "PrivateZones", name: zoneName, etag: dnsEtag, model: func() any { return &armprivatedns.PrivateZone{} },
		put: c.putPrivateZone, remove: c.removePrivateZone,
		show: func(_ *request, res *Resource, body doc) {
			p := body.sub("properties")
			links := c.children(res.ID, zoneLinkType)
			registering := 0
			for _, l := range links {
				if l.Properties.flag("registrationEnabled") {
					registering++
				}
			}
			p["maxNumberOfRecordSets"], p["maxNumberOfVirtualNetworkLinks"], p["maxNumberOfVirtualNetworkLinksWithRegistration"] = 25000, 1000, 100
			p["numberOfRecordSets"] = len(c.recordSets(res.ID)) + len(c.registeredRecords(res.ID))
			p["numberOfVirtualNetworkLinks"], p["numberOfVirtualNetworkLinksWithRegistration"] = len(links), registering
		},
		views: map[string]func(*request, *Resource) (answer, error){"all": c.listPrivateRecords, "recordsets": c.listPrivateRecords},
	}))
	c.addKind(privateKind(&kind{
		typ: zoneLinkType, title: "VirtualNetworkLinks", listed: true, name: networkName, etag: func(c *Cloud) string { return `"` + c.World.UUID() + `"` },
		model:  func() any { return &armprivatedns.VirtualNetworkLink{} },
		put:    c.putZoneLink,
		remove: func(_ *request, res *Resource) (outcome, error) { return c.unlinking(res) },
		show: func(_ *request, res *Resource, body doc) {
			body.sub("properties")["virtualNetworkLinkState"] = "Completed"
			if res.busy() {
				body.sub("properties")["virtualNetworkLinkState"] = "InProgress"
			}
		},
	}))
	for typ, prop := range recordProperty {
		if prop.private != "" {
			c.addRecordKind(privateZoneType, "privatedns", typ, prop.private, privateDNSVersions, privateRecordDialect, func() any { return &armprivatedns.RecordSet{} })
		}
	}
	c.kindOf(privateZoneType + "/A").computed = c.registeredRecord
}

// accepted is how private zones and links answer a write.
func (c *Cloud) accepted(res *Resource, what, state string, from, to time.Duration) outcome {
	return outcome{status: http.StatusAccepted, takes: c.pace(from, to, what+res.ID), style: asyncLocation, retryAfter: 30, state: state, body: map[string]any{}}
}

func (c *Cloud) putPrivateZone(_ *request, now, old *Resource) (outcome, error) {
	now.Properties = doc{"maxNumberOfRecordSets": 25000}
	if old == nil {
		c.apex(now, "SOA", doc{"ttl": 3600, "soaRecord": map[string]any{"email": "azureprivatedns-host.microsoft.com", "expireTime": 2419200, "host": "azureprivatedns.net",
			"minimumTtl": 10, "refreshTime": 3600, "retryTime": 300, "serialNumber": 1}})
		return c.accepted(now, "", stateCreating, 8*time.Second, 32*time.Second), nil
	}
	return c.accepted(now, "", stateUpdating, 4*time.Second, 12*time.Second), nil
}

func (c *Cloud) removePrivateZone(_ *request, res *Resource) (outcome, error) {
	if links := c.children(res.ID, zoneLinkType); len(links) > 0 {
		_, nested, _ := strings.Cut(links[0].ID, "/providers/")
		return outcome{}, refuseARM(http.StatusConflict, "CannotDeleteResource",
			"Cannot delete resource while nested resources exist. Some existing nested resource IDs include: '%s'. Please delete all nested resources before deleting this resource.", nested)
	}
	if err := c.zoneFree(res); err != nil {
		return outcome{}, err
	}
	out := c.accepted(res, "delete ", stateDeleting, 6*time.Second, 24*time.Second)
	out.body = nil
	return out, nil
}

func (c *Cloud) unlinking(res *Resource) (outcome, error) {
	out := c.accepted(res, "delete ", stateDeleting, 10*time.Second, 40*time.Second)
	out.body = nil
	return out, nil
}

// putZoneLink links a network to a zone ("What is a virtual network link?": a network is linked to a zone once, to zones whose
// names overlap never, and registers its machines in one zone only).
func (c *Cloud) putZoneLink(r *request, now, old *Resource) (outcome, error) {
	p := now.Properties
	delete(p, "virtualNetworkLinkState")
	p.def("registrationEnabled", false)
	vnet := p.ref("virtualNetwork")
	if vnet == "" {
		return outcome{}, refuse(http.StatusBadRequest, "BadRequest", "The virtual network of the link '%s' is missing.", now.Name)
	}
	id, _ := parseID(vnet)
	if !c.owns(r.who, id.Subscription) {
		return outcome{}, c.linkedRefusal(r, now, vnet)
	}
	if c.find(vnet) == nil {
		return outcome{}, refuse(http.StatusBadRequest, "BadRequest", "The virtual network '%s' of the link '%s' does not exist.", vnet, now.Name)
	}
	if old != nil && !strings.EqualFold(old.Properties.ref("virtualNetwork"), vnet) {
		return outcome{}, refuse(http.StatusBadRequest, "BadRequest", "The virtual network of the link '%s' can not be changed.", now.Name)
	}
	zone := parentOf(now.ID)
	for _, other := range c.shelves["privatedns"].sorted() {
		if other.Type != zoneLinkType || strings.EqualFold(other.ID, now.ID) || !strings.EqualFold(other.Properties.ref("virtualNetwork"), vnet) {
			continue
		}
		theirs := parentOf(other.ID)
		if strings.EqualFold(theirs, zone) || strings.EqualFold(lastOf(theirs), lastOf(zone)) {
			return outcome{}, refuse(http.StatusConflict, "Conflict",
				"A virtual network cannot be linked to multiple zones with overlapping namespaces. You tried to link virtual network with '%s' and '%s' zones.", lastOf(zone), lastOf(theirs))
		}
		if p.flag("registrationEnabled") && other.Properties.flag("registrationEnabled") {
			return outcome{}, refuse(http.StatusConflict, "Conflict",
				"The virtual network '%s' is linked to the zone '%s' with registration enabled already; a virtual network registers in one zone only.", vnet, lastOf(theirs))
		}
	}
	state := stateCreating
	if old != nil {
		state = stateUpdating
	}
	return c.accepted(now, "", state, 10*time.Second, 45*time.Second), nil
}

// registeredRecords are the records of machines in networks that register themselves in a zone.
func (c *Cloud) registeredRecords(zone string) []*Resource {
	var out []*Resource
	for _, l := range c.children(zone, zoneLinkType) {
		if !l.Properties.flag("registrationEnabled") || l.State != stateSucceeded {
			continue
		}
		vnet := key(l.Properties.ref("virtualNetwork")) + "/"
		for _, nic := range c.shelves["network"].sorted() {
			cfgs := nic.Properties.docs("ipConfigurations")
			if nic.Type != nicType || len(cfgs) == 0 || !strings.HasPrefix(key(cfgs[0].ref("properties.subnet")), vnet) {
				continue
			}
			for _, vm := range c.machinesOf(nic.ID) {
				name := strings.ToLower(vm.Name)
				out = append(out, &Resource{ID: zone + "/A/" + name, Type: privateZoneType + "/A", Name: name, Top: doc{}, Created: vm.Created, Changed: vm.Changed, Default: true,
					Properties: doc{"ttl": 10, "isAutoRegistered": true, "aRecords": []any{map[string]any{"ipv4Address": cfgs[0].str("properties.privateIPAddress")}}}})
			}
		}
	}
	return out
}

// registeredRecord finds a registered machine's record set by its ID.
func (c *Cloud) registeredRecord(id string) *Resource {
	for _, rec := range c.registeredRecords(parentOf(id)) {
		if strings.EqualFold(rec.ID, id) {
			return rec
		}
	}
	return nil
}

func (c *Cloud) listPrivateRecords(r *request, zone *Resource) (answer, error) {
	var all []any
	for _, rec := range append(c.recordSets(zone.ID), c.registeredRecords(zone.ID)...) {
		if r.visible(rec, true) {
			all = append(all, c.render(r, rec))
		}
	}
	return r.page(all, "$skiptoken")
}
