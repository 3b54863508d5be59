package gcp

import (
	"fmt"
	"net/netip"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// propagation is how long the name servers take to learn of a change.
const propagation = 5 * time.Second

func recordKey(name, kind string) string { return strings.ToLower(name) + " " + kind }

func (z *dnsZone) recordPath(rec Doc) string {
	return z.Path + "/rrsets/" + str(rec, "name") + "/" + str(rec, "type")
}

// apex says whether a record set is one of the two that every zone has.
func (z *dnsZone) apex(rec Doc) bool {
	return str(rec, "name") == str(z.Doc, "dnsName") && (str(rec, "type") == "NS" || str(rec, "type") == "SOA")
}

func (z *dnsZone) put(d *dnsService, rec Doc) Doc {
	rec["kind"] = "dns#resourceRecordSet"
	z.Records[recordKey(str(rec, "name"), str(rec, "type"))] = &dnsRecord{Created: d.cloud.World.Now(), Doc: rec}
	return rec
}

// createChange adds and deletes record sets, all or nothing. A deletion has to be exactly what is there.
func (d *dnsService) createChange(r *request) (any, error) {
	z, err := d.zone(r)
	if err != nil {
		return nil, err
	}
	additions, deletions := docs(r.Body, "additions"), docs(r.Body, "deletions")
	if len(additions)+len(deletions) == 0 {
		return nil, refuse(400, "required", "The 'entity.change' parameter is required but was missing.")
	}
	gone := map[string]bool{}
	for i, del := range deletions {
		at := fmt.Sprintf("entity.change.deletions[%d]", i)
		key := recordKey(str(del, "name"), str(del, "type"))
		have := z.Records[key]
		if have == nil {
			return nil, dnsMissing(at, recordName(del))
		}
		if !sameRecord(have.Doc, del) {
			return nil, refuse(412, "conditionNotMet", "Precondition not met for '%s'", at)
		}
		gone[key] = true
	}
	for i, add := range additions {
		at := fmt.Sprintf("entity.change.additions[%d]", i)
		if err := z.check(add, at, gone); err != nil {
			return nil, err
		}
	}
	if err := z.keepsApex(deletions, additions); err != nil {
		return nil, err
	}
	for key := range gone {
		delete(z.Records, key)
	}
	for _, add := range additions {
		z.put(d, clone(add))
		r.Touch(z.recordPath(add))
	}
	for _, del := range deletions {
		r.Touch(z.recordPath(del))
	}
	return d.note(r, z, additions, deletions), nil
}

// note records a change and raises the zone's serial number.
func (d *dnsService) note(r *request, z *dnsZone, additions, deletions []Doc) Doc {
	id := z.nextChange()
	doc := Doc{"kind": "dns#change", "id": id, "startTime": d.cloud.World.Now().UTC().Format("2006-01-02T15:04:05.000Z"), "status": "pending"}
	if len(additions) > 0 {
		doc["additions"] = normal(additions)
	}
	if len(deletions) > 0 {
		doc["deletions"] = normal(deletions)
	}
	z.Changes = append(z.Changes, &dnsChange{ID: id, Doc: doc})
	if soa := z.Records[recordKey(str(z.Doc, "dnsName"), "SOA")]; soa != nil {
		words := strings.Fields(texts(soa.Doc, "rrdatas")[0])
		if serial, err := strconv.Atoi(words[2]); err == nil {
			words[2] = strconv.Itoa(serial + 1)
			soa.Doc["rrdatas"] = []any{strings.Join(words, " ")}
		}
	}
	path := z.Path + "/changes/" + id
	r.Make(path)
	d.cloud.after(propagation, "dns", "change-done", path)
	return doc
}

func recordName(rec Doc) string { return str(rec, "name") + " (" + str(rec, "type") + ")" }

func sameRecord(a, b Doc) bool {
	if num(a, "ttl") != num(b, "ttl") {
		return false
	}
	x, y := texts(a, "rrdatas"), texts(b, "rrdatas")
	sort.Strings(x)
	sort.Strings(y)
	return strings.Join(x, "\n") == strings.Join(y, "\n")
}

// keepsApex refuses to leave a zone without its own NS and SOA records.
func (z *dnsZone) keepsApex(deletions, additions []Doc) error {
	for i, del := range deletions {
		if !z.apex(del) {
			continue
		}
		again := false
		for _, add := range additions {
			again = again || (z.apex(add) && str(add, "type") == str(del, "type"))
		}
		if !again {
			return refuse(400, "invalidZoneApex", "The resource record set 'entity.change.deletions[%d]' is invalid because a zone must contain exactly one resource record set of type '%s' at the apex.",
				i, str(del, "type"))
		}
	}
	return nil
}

// check refuses a record set that cannot be added to the zone; gone are those that go in the same change.
func (z *dnsZone) check(rec Doc, at string, gone map[string]bool) error {
	name, kind := strings.ToLower(str(rec, "name")), str(rec, "type")
	if name == "" || kind == "" {
		return refuse(400, "required", "The '%s.name' parameter is required but was missing.", at)
	}
	if !dnsName.MatchString(name) || (name != str(z.Doc, "dnsName") && !strings.HasSuffix(name, "."+str(z.Doc, "dnsName"))) {
		return dnsInvalid(at+".name", str(rec, "name"))
	}
	if z.Records[recordKey(name, kind)] != nil && !gone[recordKey(name, kind)] {
		return refuse(409, "alreadyExists", "The resource '%s' named '%s' already exists", at, recordName(rec))
	}
	for key, other := range z.Records {
		if gone[key] || str(other.Doc, "name") != name || str(other.Doc, "type") == kind {
			continue
		}
		if kind == "CNAME" || str(other.Doc, "type") == "CNAME" {
			return refuse(400, "cnameResourceRecordSetConflict", "The resource record set '%s' is invalid because the DNS name '%s' may have either one CNAME resource record set or resource record sets "+
				"of other types, but not both.", at, name)
		}
	}
	return checkData(rec, at)
}

func checkData(rec Doc, at string) error {
	data := texts(rec, "rrdatas")
	if len(data) == 0 && rec["routingPolicy"] == nil {
		return refuse(400, "required", "The '%s.rrdatas' parameter is required but was missing.", at)
	}
	for i, v := range data {
		where := fmt.Sprintf("%s.rrdata[%d]", at, i)
		addr, err := netip.ParseAddr(v)
		switch str(rec, "type") {
		case "A":
			if err != nil || !addr.Is4() {
				return dnsInvalid(where, v)
			}
		case "AAAA":
			if err != nil || !addr.Is6() {
				return dnsInvalid(where, v)
			}
		case "CNAME", "NS", "PTR":
			if !dnsName.MatchString(strings.ToLower(v)) {
				return dnsInvalid(where, v)
			}
		case "TXT", "MX", "SOA", "SRV", "CAA", "DS", "SPF", "NAPTR", "TLSA", "SSHFP", "HTTPS", "SVCB", "ALIAS":
		default:
			return dnsInvalid(at+".type", str(rec, "type"))
		}
	}
	if str(rec, "type") == "CNAME" && len(data) > 1 {
		return refuse(400, "invalid", "Invalid value for '%s.rrdata': a CNAME resource record set must have exactly one record.", at)
	}
	return nil
}

func (d *dnsService) listRecords(r *request) (any, error) {
	z, err := d.zone(r)
	if err != nil {
		return nil, err
	}
	name, kind := strings.ToLower(r.Query.Get("name")), r.Query.Get("type")
	if kind != "" && name == "" {
		return nil, refuse(400, "required", "The 'parameters.name' parameter is required but was missing.")
	}
	var items []Doc
	for _, key := range z.order() {
		rec := z.Records[key]
		if (name == "" || str(rec.Doc, "name") == name) && (kind == "" || str(rec.Doc, "type") == kind) && d.sees(r, z, rec, sim.ByList) {
			items = append(items, rec.Doc)
		}
	}
	return r.dnsPage(items, "rrsets", "dns#resourceRecordSetsListResponse")
}

// order is the order of a zone's records in a list: the apex first.
func (z *dnsZone) order() []string {
	keys := keysOf(z.Records)
	sort.SliceStable(keys, func(i, j int) bool {
		a, b := str(z.Records[keys[i]].Doc, "name") == str(z.Doc, "dnsName"), str(z.Records[keys[j]].Doc, "name") == str(z.Doc, "dnsName")
		return a && !b
	})
	return keys
}

func (d *dnsService) sees(r *request, z *dnsZone, rec *dnsRecord, by sim.Lookup) bool {
	return r.HTTP == nil || z.apex(rec.Doc) || d.cloud.World.Visible(r.Call, z.recordPath(rec.Doc), rec.Created, by, "record-set "+str(rec.Doc, "name"))
}

// record finds the record set that the request's path names.
func (d *dnsService) record(r *request) (*dnsZone, *dnsRecord, error) {
	z, err := d.zone(r)
	if err != nil {
		return nil, nil, err
	}
	rec := z.Records[recordKey(r.Path["name"], r.Path["type"])]
	if rec == nil || (!r.Mutating && !d.sees(r, z, rec, sim.ByID)) {
		return nil, nil, dnsMissing("parameters.name", r.Path["name"]+" ("+r.Path["type"]+")")
	}
	r.Touch(z.recordPath(rec.Doc))
	return z, rec, nil
}

func (d *dnsService) getRecord(r *request) (any, error) {
	_, rec, err := d.record(r)
	if err != nil {
		return nil, err
	}
	return rec.Doc, nil
}

func (d *dnsService) createRecord(r *request) (any, error) {
	z, err := d.zone(r)
	if err != nil {
		return nil, err
	}
	if err := z.check(r.Body, "entity.resourceRecordSet", nil); err != nil {
		return nil, err
	}
	rec := z.put(d, clone(r.Body))
	d.note(r, z, []Doc{rec}, nil)
	r.Touch(z.recordPath(rec))
	return rec, nil
}

func (d *dnsService) patchRecord(r *request) (any, error) {
	z, rec, err := d.record(r)
	if err != nil {
		return nil, err
	}
	doc := clone(rec.Doc)
	merge(doc, r.Body)
	key := recordKey(str(rec.Doc, "name"), str(rec.Doc, "type"))
	if err := z.check(doc, "entity.resourceRecordSet", map[string]bool{key: true}); err != nil {
		return nil, err
	}
	old := rec.Doc
	delete(z.Records, key)
	doc = z.put(d, doc)
	d.note(r, z, []Doc{doc}, []Doc{old})
	return doc, nil
}

func (d *dnsService) deleteRecord(r *request) (any, error) {
	z, rec, err := d.record(r)
	if err != nil {
		return nil, err
	}
	if err := z.keepsApex([]Doc{rec.Doc}, nil); err != nil {
		return nil, err
	}
	delete(z.Records, recordKey(str(rec.Doc, "name"), str(rec.Doc, "type")))
	d.note(r, z, nil, []Doc{rec.Doc})
	return Doc{}, nil
}
