package azure

import (
	"fmt"
	"net/http"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/dns/armdns"
)

// Public zones are spelled in lower case by their provider, whatever the request says.
const zoneType = "Microsoft.Network/dnszones"

var dnsVersions = []string{"2016-04-01", "2017-09-01", "2017-10-01", "2018-03-01-preview", "2018-05-01", "2023-07-01-preview"}

// zoneDialect words refusals as Azure DNS does: without `error` around them.
var zoneDialect = &dialect{
	absent: func(r *request) *Error {
		return bare(http.StatusNotFound, "NotFound", "The resource record '%s' does not exist in resource group '%s' of subscription '%s'.", r.id.name(), r.id.Group, r.id.Subscription)
	},
	orphan: func(_ *request, parent armID) *Error { return parentNotFound(parent) },
	mismatch: func(res *Resource, _ string) *Error {
		return bare(http.StatusPreconditionFailed, "PreconditionFailed", "The %s %s has been modified (etag mismatch).", zoneNoun(res), res.Name)
	},
	taken: func(res *Resource) *Error {
		return bare(http.StatusPreconditionFailed, "PreconditionFailed", "The %s %s exists already and hence cannot be created again.", zoneNoun(res), res.Name)
	},
	badBody: func(p bodyProblem) *Error {
		return bare(http.StatusBadRequest, "BadRequest", "The request content was invalid: %s", p.text)
	},
	badName: func(r *request, rule *nameRule) *Error {
		return bare(http.StatusBadRequest, "BadRequest", "The name '%s' is not valid. %s", r.id.name(), rule.text)
	},
}

func zoneNoun(res *Resource) string {
	if strings.Count(res.Type, "/") == 1 {
		return "Zone"
	}
	return "Record set"
}

func bare(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...), Bare: true}
}

var (
	zoneName = &nameRule{regexp.MustCompile(`(?i)^([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)+[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`),
		"A zone name has two to 34 labels of letters, digits, '_' and '-', separated by dots."}
	recordName = &nameRule{regexp.MustCompile(`(?i)^(@|\*|(\*\.)?[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*)$`),
		"A record set name is '@', '*', or labels of letters, digits, '_' and '-', separated by dots."}
)

// recordProperty is the property that holds the records of each type: public zones spell it in one way, private ones in another.
var recordProperty = map[string]struct{ public, private string }{
	"A": {"ARecords", "aRecords"}, "AAAA": {"AAAARecords", "aaaaRecords"}, "CAA": {"caaRecords", ""}, "CNAME": {"CNAMERecord", "cnameRecord"},
	"DS": {"DSRecords", ""}, "MX": {"MXRecords", "mxRecords"}, "NAPTR": {"NAPTRRecords", ""}, "NS": {"NSRecords", ""}, "PTR": {"PTRRecords", "ptrRecords"},
	"SOA": {"SOARecord", "soaRecord"}, "SRV": {"SRVRecords", "srvRecords"}, "TLSA": {"TLSARecords", ""}, "TXT": {"TXTRecords", "txtRecords"},
}

// dnsEtag is an etag of Azure DNS: a bare GUID.
func dnsEtag(c *Cloud) string { return c.World.UUID() }

func (c *Cloud) addDNS() {
	c.newShelf("dns")
	zone := &kind{
		typ: zoneType, service: "dns", title: "Zones", versions: dnsVersions, tracked: true, global: true, stateless: true, says: zoneDialect, bareErrors: true,
		name: zoneName, etag: dnsEtag, etagOnPut: true, model: func() any { return &armdns.Zone{} }, patchModel: func() any { return &armdns.ZoneUpdate{} },
		put: c.putZone,
		remove: func(_ *request, res *Resource) (outcome, error) {
			return outcome{status: http.StatusAccepted, takes: leastWork + c.pace(time.Second, 9*time.Second, "delete "+res.ID), style: asyncLocation, retryAfter: 3, empty: true}, nil
		},
		deleted: http.StatusOK,
		polling: func(op *Operation) (string, string) {
			base := groupID(subscriptionOf(op.Target), groupOf(op.Target)) + "/providers/Microsoft.Network/dnsOperation"
			return base + "Statuses/" + op.ID, base + "Results/" + op.ID
		},
		missing: func(r *request) *Error {
			return bare(http.StatusNotFound, "NotFound", "The zone '%s' does not exist in resource group '%s' of subscription '%s'.", r.id.name(), r.id.Group, r.id.Subscription)
		},
		show: func(_ *request, res *Resource, body doc) {
			body.def("tags", map[string]any{})
			p := body.sub("properties")
			p["maxNumberOfRecordsPerRecordSet"] = nil
			p["numberOfRecordSets"] = len(c.recordSets(res.ID))
			if p.str("zoneType") == "Private" {
				p["nameServers"], p["registrationVirtualNetworks"], p["resolutionVirtualNetworks"] = nil, []any{}, []any{}
			}
		},
		views: map[string]func(*request, *Resource) (answer, error){"recordsets": c.listRecords, "all": c.listRecords},
	}
	c.addKind(zone)
	for typ, prop := range recordProperty {
		c.addRecordKind(zoneType, "dns", typ, prop.public, dnsVersions, zoneDialect, func() any { return &armdns.RecordSet{} })
	}
}

// addRecordKind adds the record sets of one type, of public or of private zones.
func (c *Cloud) addRecordKind(zone, service, typ, property string, versions []string, says *dialect, model func() any) {
	c.addKind(&kind{
		typ: zone + "/" + typ, service: service, title: "RecordSets", versions: versions, stateless: true, says: says, bareErrors: true, name: recordName, etag: dnsEtag, etagOnPut: true,
		model: model, patchModel: model, mergePatch: true,
		put: func(_ *request, now, old *Resource) (outcome, error) {
			return outcome{}, c.putRecord(now, old, typ, property)
		},
		remove: func(_ *request, res *Resource) (outcome, error) {
			if typ == "SOA" || typ == "NS" && res.Name == "@" {
				return outcome{}, bare(http.StatusBadRequest, "BadRequest", "The record set '%s' of type '%s' cannot be deleted.", res.Name, typ)
			}
			return outcome{status: http.StatusOK}, nil
		},
		show: func(r *request, res *Resource, body doc) {
			p := body.sub("properties")
			p["fqdn"] = fqdnOf(res)
			switch {
			case service == "privatedns":
				p.def("isAutoRegistered", false)
			case !strings.HasSuffix(r.version, "-preview"):
				p.def("targetResource", map[string]any{})
				p["provisioningState"] = stateSucceeded
			}
		},
	})
}

func fqdnOf(record *Resource) string {
	zone := lastOf(parentOf(record.ID))
	if record.Name == "@" {
		return zone + "."
	}
	return record.Name + "." + zone + "."
}

// recordSets lists everything in a zone, the apex first.
func (c *Cloud) recordSets(zone string) []*Resource {
	var out []*Resource
	for _, in := range c.inside(zone) {
		if _, isRecord := recordProperty[lastOf(in.Type)]; isRecord && strings.Count(in.Type, "/") == 2 {
			out = append(out, in)
		}
	}
	slices.SortStableFunc(out, func(a, b *Resource) int {
		return strings.Compare(strings.ReplaceAll(a.Name, "@", "")+" "+a.Type, strings.ReplaceAll(b.Name, "@", "")+" "+b.Type)
	})
	return out
}

func (c *Cloud) listRecords(r *request, zone *Resource) (answer, error) {
	suffix := strings.ToLower(r.query.Get("$recordsetnamesuffix"))
	var all []any
	for _, rec := range c.recordSets(zone.ID) {
		if r.visible(rec, true) && strings.HasSuffix(strings.ToLower(rec.Name), suffix) {
			all = append(all, c.render(r, rec))
		}
	}
	return r.page(all, "$skipToken")
}

// putZone makes a zone with its SOA and NS records, on one of the sets of name servers.
func (c *Cloud) putZone(r *request, now, old *Resource) (outcome, error) {
	p := now.Properties
	kind := p.str("zoneType")
	for k := range p {
		delete(p, k)
	}
	if kind == "" {
		kind = "Public"
	}
	// Private zones were of this type in one preview.
	if kind == "Private" && r.version != "2018-03-01-preview" {
		return outcome{}, bare(http.StatusBadRequest, "BadRequest", "The zone type 'Private' is not supported; private zones are of the type %s.", privateZoneType)
	}
	p["zoneType"], p["maxNumberOfRecordSets"] = kind, 10000
	if old != nil {
		p["nameServers"] = old.Properties["nameServers"]
		return outcome{}, nil
	}
	if taken := c.zonesNamed(now.Name); taken >= 4 {
		return outcome{}, bare(http.StatusConflict, "Conflict", "The zone '%s' exists too often: all name servers that could host it do so already.", now.Name)
	}
	// Zones with the same name are never on the same name servers.
	pool := (int(c.World.Fraction("dns", strings.ToLower(now.Name))*10)+c.zonesNamed(now.Name))%10 + 1
	var servers, records []any
	for i, tld := range []string{"com", "net", "org", "info"} {
		ns := fmt.Sprintf("ns%d-%02d.azure-dns.%s.", i+1, pool, tld)
		servers = append(servers, ns)
		records = append(records, map[string]any{"nsdname": ns})
	}
	p["nameServers"] = servers
	c.apex(now, "SOA", doc{"TTL": 3600, "SOARecord": map[string]any{"email": "azuredns-hostmaster.microsoft.com", "expireTime": 2419200, "host": servers[0],
		"minimumTTL": 300, "refreshTime": 3600, "retryTime": 300, "serialNumber": 1}})
	if kind == "Public" {
		c.apex(now, "NS", doc{"TTL": 172800, "NSRecords": records})
	}
	return outcome{}, nil
}

// apex makes a record set that comes with its zone.
func (c *Cloud) apex(zone *Resource, typ string, p doc) {
	c.keep(&Resource{ID: zone.ID + "/" + typ + "/@", Type: zone.Type + "/" + typ, Name: "@", Properties: p, Top: doc{}, Etag: c.World.UUID(),
		Created: c.World.Now(), Changed: c.World.Now(), Default: true})
}

func (c *Cloud) zonesNamed(name string) int {
	n := 0
	for _, z := range c.shelves["dns"].state.Resources {
		if z.Type == zoneType && strings.EqualFold(z.Name, name) {
			n++
		}
	}
	return n
}

// putRecord checks a record set.
func (c *Cloud) putRecord(now, old *Resource, typ, property string) error {
	// Names are kept in lower case.
	now.Name = strings.ToLower(now.Name)
	now.ID = parentOf(now.ID) + "/" + typ + "/" + now.Name
	p := now.Properties
	delete(p, "fqdn")
	ttl := "TTL"
	if strings.HasPrefix(now.Type, privateZoneType) {
		ttl = "ttl"
		p["isAutoRegistered"] = false
	}
	alias := p.ref("targetResource")
	if alias == "" {
		delete(p, "targetResource")
	}
	if n := p.num(ttl); (n < 1 && alias == "") || n > 2147483647 {
		return bare(http.StatusBadRequest, "BadRequest", "The TTL '%v' of record set '%s' is not valid. It must be between 1 and 2147483647.", p.get(ttl), now.Name)
	}
	if alias != "" {
		if !slices.Contains([]string{"A", "AAAA", "CNAME"}, typ) || c.find(alias) == nil {
			return bare(http.StatusBadRequest, "BadRequest", "The target resource '%s' of record set '%s' does not exist or can not be the target of a record set of type '%s'.", alias, now.Name, typ)
		}
	} else if err := checkRecords(now, typ, property); err != nil {
		return err
	}
	for _, other := range recordProperty {
		for _, name := range []string{other.public, other.private} {
			if name != property && name != "" && p.has(name) {
				return bare(http.StatusBadRequest, "BadRequest", "The record set '%s' of type '%s' has records of another type: '%s'.", now.Name, typ, name)
			}
		}
	}
	if typ == "SOA" && (old == nil || now.Name != "@") {
		return bare(http.StatusBadRequest, "BadRequest", "A record set of type SOA exists at the zone apex only and can not be created.")
	}
	return c.coexists(now, old, typ)
}

func checkRecords(now *Resource, typ, property string) error {
	p := now.Properties
	if typ == "CNAME" || typ == "SOA" {
		if p.sub(property) == nil {
			return bare(http.StatusBadRequest, "BadRequest", "The record set '%s' of type '%s' has no record.", now.Name, typ)
		}
		return nil
	}
	records := p.docs(property)
	if len(records) == 0 {
		p[property] = []any{}
	}
	for _, rec := range records {
		for field, want4 := range map[string]bool{"ipv4Address": true, "ipv6Address": false} {
			if s := rec.str(field); s != "" {
				if a, err := netip.ParseAddr(s); err != nil || a.Is4() != want4 {
					return bare(http.StatusBadRequest, "BadRequest", "The value '%s' of record set '%s' is not a valid IP address of type %s.", s, now.Name, typ)
				}
			}
		}
	}
	return nil
}

// coexists: a CNAME stands alone at its name, and never at the apex.
func (c *Cloud) coexists(now, old *Resource, typ string) error {
	if old != nil {
		return nil
	}
	zone := c.find(parentOf(now.ID))
	if typ == "CNAME" && now.Name == "@" {
		return bare(http.StatusBadRequest, "BadRequest", "The domain name '%s' is invalid. A record set of type CNAME can not be at the zone apex.", zone.Name)
	}
	sets := c.recordSets(zone.ID)
	if limit := int(zone.Properties.num("maxNumberOfRecordSets")); limit > 0 && len(sets) >= limit {
		return bare(http.StatusBadRequest, "BadRequest", "The zone '%s' has the maximum of %d record sets already.", zone.Name, limit)
	}
	for _, other := range sets {
		if other.Name == now.Name && !strings.EqualFold(other.ID, now.ID) && (typ == "CNAME" || lastOf(other.Type) == "CNAME") {
			return bare(http.StatusBadRequest, "BadRequest", "A record set of type CNAME can not be at the name '%s' together with other record sets.", now.Name)
		}
	}
	return nil
}
