package gcp

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// dnsService is the simulated Cloud DNS.
type dnsService struct {
	cloud *Cloud
	st    dnsState
}

type dnsState struct {
	Seq   int
	Zones map[string]*dnsZone // by path: projects/p/managedZones/z
	// Policies are by path: projects/p/policies/n.
	Policies map[string]*dnsPolicy
}

// A dnsZone is a managed zone with its records.
type dnsZone struct {
	Path    string
	Project string
	Created time.Time
	Seq     int
	Doc     Doc
	Records map[string]*dnsRecord // by recordKey
	Changes []*dnsChange
	// Operations are the changes of the zone itself, by ID.
	Operations map[string]Doc
}

// A dnsRecord is a resource record set.
type dnsRecord struct {
	Created time.Time
	Doc     Doc
}

// A dnsChange is a change of records. It is carried out at once; done means that all name servers know it.
type dnsChange struct {
	ID   string
	Doc  Doc
	Held bool
}

func newDNS(c *Cloud) *dnsService {
	d := &dnsService{cloud: c}
	c.World.Register(d)
	ops := map[string]operation{
		"managedZones.create": d.createZone, "managedZones.get": d.getZone, "managedZones.list": d.listZones, "managedZones.delete": d.deleteZone,
		"managedZones.patch": d.changeZone(false), "managedZones.update": d.changeZone(true),
		"managedZoneOperations.get": d.getOperation, "managedZoneOperations.list": d.listOperations,
		"changes.create": d.createChange, "changes.get": d.getChange, "changes.list": d.listChanges,
		"resourceRecordSets.list": d.listRecords, "resourceRecordSets.get": d.getRecord, "resourceRecordSets.create": d.createRecord,
		"resourceRecordSets.patch": d.patchRecord, "resourceRecordSets.delete": d.deleteRecord,
		"projects.get": d.project,
	}
	d.policyMethods(ops)
	for _, version := range []string{"dns/v1", "dns/v1beta2"} {
		c.add(version, &api{service: "dns", listErrors: true, ops: ops, bodyField: snake})
	}
	return d
}

func (d *dnsService) Cloud() string { return cloudName }
func (d *dnsService) Name() string  { return "dns" }
func (d *dnsService) State() any    { return &d.st }
func (d *dnsService) Reset() {
	d.st = dnsState{Zones: map[string]*dnsZone{}, Policies: map[string]*dnsPolicy{}}
}

// Event ends a change.
func (d *dnsService) Event(kind, key string) {
	if kind != "change-done" {
		return
	}
	if ch := d.change(key); ch != nil && !ch.Held {
		ch.Doc["status"] = "done"
	}
}

// change finds a change by zone path and ID: projects/p/managedZones/z/changes/1.
func (d *dnsService) change(path string) *dnsChange {
	zone, id, _ := strings.Cut(path, "/changes/")
	if z := d.st.Zones[zone]; z != nil {
		for _, ch := range z.Changes {
			if ch.ID == id {
				return ch
			}
		}
	}
	return nil
}

func (d *dnsService) inOrder() []*dnsZone {
	var out []*dnsZone
	for _, z := range d.st.Zones {
		out = append(out, z)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Seq < out[j].Seq })
	return out
}

// Objects lists zones and records. The records that every zone has belong to it.
func (d *dnsService) Objects() []sim.Object {
	var out []sim.Object
	for _, z := range d.inOrder() {
		var parents []string
		for _, n := range docs(sub(z.Doc, "privateVisibilityConfig"), "networks") {
			parents = append(parents, d.cloud.pathOfLink(z.Project, str(n, "networkUrl")))
		}
		out = append(out, sim.Object{Account: z.Project, Kind: "managed-zone", ID: z.Path, Name: str(z.Doc, "name"), Tags: labelsOf(z.Doc),
			Description: str(z.Doc, "description"), Parents: parents, Data: &z.Doc})
		for _, key := range keysOf(z.Records) {
			rec := z.Records[key]
			out = append(out, sim.Object{Account: z.Project, Kind: "record-set", ID: z.recordPath(rec.Doc), Name: str(rec.Doc, "name"), Parents: []string{z.Path},
				Default: z.apex(rec.Doc), Pristine: z.apex(rec.Doc), Data: &rec.Doc})
		}
	}
	for _, path := range keysOf(d.st.Policies) {
		p := d.st.Policies[path]
		out = append(out, sim.Object{Account: p.Project, Kind: "dns-policy", ID: path, Name: str(p.Doc, "name"), Description: str(p.Doc, "description"), Data: &p.Doc})
	}
	return out
}

// SetState holds a change at a state, or lets it end.
func (d *dnsService) SetState(id, state, _, _ string) error {
	ch := d.change(id)
	if ch == nil {
		return fmt.Errorf("%s has no states; changes have: <zone>/changes/<id>", id)
	}
	if state == "" {
		return fmt.Errorf("a change of records does not fail once it is accepted")
	}
	ch.Doc["status"], ch.Held = strings.ToLower(state), true
	return nil
}

// Remove takes a zone, a record or a policy away.
func (d *dnsService) Remove(id string) error {
	if _, ok := d.st.Zones[id]; ok {
		delete(d.st.Zones, id)
		return nil
	}
	if _, ok := d.st.Policies[id]; ok {
		delete(d.st.Policies, id)
		return nil
	}
	for _, z := range d.st.Zones {
		for key, rec := range z.Records {
			if z.recordPath(rec.Doc) == id {
				delete(z.Records, key)
				return nil
			}
		}
	}
	return fmt.Errorf("no object %s", id)
}

// missing is how DNS says that something in a request is not there.
func dnsMissing(what, name string) *Error {
	return refuse(404, "notFound", "The '%s' resource named '%s' does not exist.", what, name)
}

func dnsInvalid(field string, value any) *Error {
	return refuse(400, "invalid", "Invalid value for '%s': '%v'", field, value)
}

// zone finds the zone that the request's path names, by name or ID.
func (d *dnsService) zone(r *request) (*dnsZone, error) {
	name := r.Path["managedZone"]
	path := "projects/" + r.Project.ID + "/managedZones/" + name
	z := d.st.Zones[path]
	if z == nil {
		for _, other := range d.st.Zones {
			if other.Project == r.Project.ID && str(other.Doc, "id") == name {
				z = other
			}
		}
	}
	if z == nil || (!r.Mutating && !d.visible(r, z, sim.ByID)) {
		return nil, refuse(404, "notFound", "managedZone \"%s\" not found", path)
	}
	r.Touch(z.Path)
	return z, nil
}

func (d *dnsService) visible(r *request, z *dnsZone, by sim.Lookup) bool {
	return r.HTTP == nil || d.cloud.World.Visible(r.Call, z.Path, z.Created, by, strings.Join([]string{"managed-zone", str(z.Doc, "name"), str(z.Doc, "dnsName")}, " "))
}

func (d *dnsService) getZone(r *request) (any, error) {
	z, err := d.zone(r)
	if err != nil {
		return nil, err
	}
	return z.Doc, nil
}

func (d *dnsService) listZones(r *request) (any, error) {
	var items []Doc
	for _, z := range d.inOrder() {
		if z.Project == r.Project.ID && d.visible(r, z, sim.ByList) && (r.Query.Get("dnsName") == "" || r.Query.Get("dnsName") == str(z.Doc, "dnsName")) {
			items = append(items, z.Doc)
		}
	}
	return r.dnsPage(items, "managedZones", "dns#managedZonesListResponse")
}

// dnsPage is one page of a list of Cloud DNS.
func (r *request) dnsPage(items []Doc, field, kindName string) (any, error) {
	page, next, err := pageOf(r, items, "maxResults", 1000)
	if err != nil {
		return nil, err
	}
	out := Doc{"kind": kindName}
	if len(page) > 0 {
		out[field] = page
	}
	if next != "" {
		out["nextPageToken"] = next
	}
	return out, nil
}

func (d *dnsService) project(r *request) (any, error) {
	return Doc{"kind": "dns#project", "id": r.Project.ID, "number": r.Project.Number, "quota": Doc{"kind": "dns#quota", "managedZones": 10000,
		"rrsetsPerManagedZone": 10000, "rrsetAdditionsPerChange": 1000, "rrsetDeletionsPerChange": 1000, "resourceRecordsPerRrset": 1000, "totalRrdataSizePerChange": 100000}}, nil
}

// deleteZone refuses a zone with records of its own.
func (d *dnsService) deleteZone(r *request) (any, error) {
	z, err := d.zone(r)
	if err != nil {
		return nil, err
	}
	for _, rec := range z.Records {
		if !z.apex(rec.Doc) {
			return nil, refuse(400, "containerNotEmpty", "The resource named '%s' cannot be deleted because it contains one or more 'resource records'.", str(z.Doc, "name"))
		}
	}
	delete(d.st.Zones, z.Path)
	return Doc{}, nil
}

func (d *dnsService) getOperation(r *request) (any, error) {
	z, err := d.zone(r)
	if err != nil {
		return nil, err
	}
	if op := z.Operations[r.Path["operation"]]; op != nil {
		return op, nil
	}
	return nil, dnsMissing("parameters.operation", r.Path["operation"])
}

func (d *dnsService) listOperations(r *request) (any, error) {
	z, err := d.zone(r)
	if err != nil {
		return nil, err
	}
	var items []Doc
	for _, id := range keysOf(z.Operations) {
		items = append(items, z.Operations[id])
	}
	return r.dnsPage(items, "operations", "dns#managedZoneOperationsListResponse")
}

func (d *dnsService) getChange(r *request) (any, error) {
	z, err := d.zone(r)
	if err != nil {
		return nil, err
	}
	ch := d.change(z.Path + "/changes/" + r.Path["changeId"])
	if ch == nil {
		return nil, dnsMissing("parameters.changeId", r.Path["changeId"])
	}
	return ch.Doc, nil
}

func (d *dnsService) listChanges(r *request) (any, error) {
	z, err := d.zone(r)
	if err != nil {
		return nil, err
	}
	var items []Doc
	for _, ch := range z.Changes {
		items = append(items, ch.Doc)
	}
	slices.Reverse(items) // newest first
	return r.dnsPage(items, "changes", "dns#changesListResponse")
}

// nextChange is the number of a zone's next change.
func (z *dnsZone) nextChange() string { return strconv.Itoa(len(z.Changes)) }
