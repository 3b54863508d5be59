package gcp

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// vmState is what is kept of instances and their groups besides their documents.
type vmState struct {
	Guests map[string]*guestState   // by path of the instance
	Groups map[string]*managedGroup // by path of the instance group manager
	Health map[string]*probed       // by backend service and instance, see healthKey
}

func newVMState() vmState {
	return vmState{Guests: map[string]*guestState{}, Groups: map[string]*managedGroup{}, Health: map[string]*probed{}}
}

// How long instances take to change state, as a rule.
const (
	stagingAfter = 3 * time.Second  // PROVISIONING until then
	runningAfter = 8 * time.Second  // STAGING until then; the operation is done
	stopTakes    = 20 * time.Second // STOPPING
	deleteTakes  = 25 * time.Second
	suspendTakes = 15 * time.Second
	setTakes     = 6 * time.Second // setLabels, setTags and the like; a fault lets an operation fail after 5 s, so that it must run longer
)

func (e *Compute) instanceKind() *kind {
	return &kind{collection: "instances", noun: "instance", schema: "Instance", resources: map[string]string{"zones": "instances"}, labels: true,
		takes:        map[string]time.Duration{"delete": deleteTakes, "setLabels": setTakes},
		loose:        []string{"metadata", "serviceAccounts", "scheduling"},
		show:         e.showInstance,
		refuseDelete: e.refuseInstanceDelete,
		dropping:     e.stoppingInstance,
		dropped:      e.instanceGone,
		failed:       e.instanceKept,
		setState:     e.setInstanceState,
		parents:      instanceParents,
		quota:        instanceQuota,
	}
}

// instanceQuota is what an instance counts towards.
func instanceQuota(res *Resource) map[string]float64 {
	q := map[string]float64{"INSTANCES": 1}
	if t, ok := machineTypes[lastPart(str(res.Doc, "machineType"))]; ok && str(res.Doc, "status") != "TERMINATED" {
		q[t.family.quota] = float64(t.cpus)
	}
	for _, n := range docs(res.Doc, "networkInterfaces") {
		q["IN_USE_ADDRESSES"] += float64(len(docs(n, "accessConfigs")))
	}
	if q["IN_USE_ADDRESSES"] == 0 {
		delete(q, "IN_USE_ADDRESSES")
	}
	return q
}

// instanceParents are the network and the subnetwork of an instance.
func instanceParents(res *Resource) []string {
	var out []string
	for _, n := range docs(res.Doc, "networkInterfaces") {
		out = append(out, strings.TrimPrefix(str(n, "subnetwork"), apiRoot), strings.TrimPrefix(str(n, "network"), apiRoot))
	}
	return out
}

// insertInstance begins an instance for a caller.
func (e *Compute) insertInstance(r *request) (any, error) {
	if err := e.checkScope(r); err != nil {
		return nil, err
	}
	doc := clone(r.Body)
	if from := r.Query.Get("sourceInstanceTemplate"); from != "" {
		var err error
		if doc, err = e.fromTemplate(r.Project.ID, r.Path["zone"], from, doc); err != nil {
			return nil, err
		}
	}
	res, err := e.placeInstance(r.Project.ID, r.Path["zone"], doc)
	if err != nil {
		return nil, err
	}
	ch := change{Type: "insert", Target: res, Takes: runningAfter, Action: "vm-insert"}
	if failed := e.placement(r.Call, res); failed != nil {
		ch.Takes, ch.Args = stagingAfter+time.Second, map[string]string{"code": failed.Reason, "message": failed.Message}
	}
	return e.start(r, ch), nil
}

// placeInstance checks an instance's document, fills it up and puts the instance there, in state PROVISIONING.
func (e *Compute) placeInstance(project, zone string, doc Doc) (*Resource, error) {
	path := "projects/" + project + "/zones/" + zone + "/instances/" + str(doc, "name")
	if e.st.Resources[path] != nil {
		return nil, refuse(409, "alreadyExists", "The resource '%s' already exists", path)
	}
	if err := checkLabels(doc); err != nil {
		return nil, err
	}
	if err := e.prepareInstance(project, zone, doc); err != nil {
		return nil, err
	}
	if err := e.checkReferences(e.kinds["instances"], path, withoutNewDisks(doc)); err != nil {
		return nil, err
	}
	doc["status"] = "PROVISIONING"
	disks, err := e.bootDisks(project, zone, path, doc)
	if err != nil {
		return nil, err
	}
	res := e.make(path, "instances", doc)
	if err = e.checkQuota(e.kinds["instances"], res); err == nil {
		err = e.connect(res)
	}
	if err != nil {
		delete(e.st.Resources, path)
		for _, d := range disks {
			e.drop(d)
		}
		return nil, err
	}
	res.Making = true
	doc["fingerprint"] = fingerprint([]any{res.ID, 0})
	e.later(stagingAfter, "vm-state", path+"|STAGING|"+res.ID)
	return res, nil
}

// placement is why an instance cannot be placed, which shows only when its operation has ended ("Troubleshooting resource
// availability errors"): a zone without capacity, a service account that does not exist, a subnetwork without free addresses.
func (e *Compute) placement(call *sim.Call, res *Resource) *Error {
	zone := segmentAfter(res.Path, "zones")
	if f := e.cloud.World.Take(call, sim.FaultCapacity, zone+" "+lastPart(str(res.Doc, "machineType"))+" "+res.Path); f != nil {
		return refuse(503, orText(f.Code, "ZONE_RESOURCE_POOL_EXHAUSTED"), "%s", orText(f.Message, fmt.Sprintf(
			"The zone 'projects/%s/zones/%s' does not have enough resources available to fulfill the request.  Try a different zone, or try again later.", res.project(), zone)))
	}
	for _, sa := range docs(res.Doc, "serviceAccounts") {
		email := str(sa, "email")
		if e.cloud.hooks.serviceAccount == nil || email == e.defaultAccount(res.project()) {
			continue
		}
		if found, ok := e.cloud.hooks.serviceAccount(email); !ok || found.Disabled {
			return refuse(404, "EXTERNAL_RESOURCE_NOT_FOUND", "The resource '%s' of type 'serviceAccount' was not found.", email)
		}
	}
	if full := res.Inner["full"]; full != "" {
		return refuse(400, "IP_SPACE_EXHAUSTED", "IP space of '%s' is exhausted.", full)
	}
	return nil
}

// defaultAccount is the service account that Compute Engine makes for itself in every project.
func (e *Compute) defaultAccount(project string) string {
	return e.cloud.number(project) + "-compute@developer.gserviceaccount.com"
}

// doneInsert ends the insert of an instance: it runs, or it is gone with all that was made for it.
func (e *Compute) doneInsert(op *Operation, res *Resource) error {
	if code := op.Args["code"]; code != "" {
		e.drop(res)
		return refuse(0, code, "%s", op.Args["message"])
	}
	e.running(res)
	return nil
}

// prepareInstance checks an instance's document and fills in what the caller has left out ("Method: instances.insert").
func (e *Compute) prepareInstance(project, zone string, doc Doc) error {
	base := "projects/" + project + "/zones/" + zone
	t, err := e.checkMachineType(project, zone, doc)
	if err != nil {
		return err
	}
	doc["machineType"] = selfLink(base + "/machineTypes/" + t.name)
	if err := e.prepareDisks(project, zone, t, doc); err != nil {
		return err
	}
	if err := e.prepareInterfaces(project, zone, doc); err != nil {
		return err
	}
	if err := checkMetadata(doc); err != nil {
		return err
	}
	if err := checkTags(doc); err != nil {
		return err
	}
	if err := e.prepareAccounts(project, doc); err != nil {
		return err
	}
	fillInstance(doc)
	delete(doc, "params")
	return nil
}

func fillInstance(doc Doc) {
	for k, v := range map[string]any{"description": "", "canIpForward": false, "startRestricted": false, "deletionProtection": false,
		"cpuPlatform": "Unknown CPU Platform", "shieldedInstanceIntegrityPolicy": Doc{"updateAutoLearnPolicy": true}, "displayDevice": Doc{"enableDisplay": false},
		"reservationAffinity": Doc{"consumeReservationType": "ANY_RESERVATION"}} {
		setDefault(doc, k, v)
	}
	s := subOf(doc, "scheduling")
	setDefault(s, "provisioningModel", "STANDARD")
	fillScheduling(s)
	sh := subOf(doc, "shieldedInstanceConfig")
	setDefault(sh, "enableSecureBoot", false)
	setDefault(sh, "enableVtpm", true)
	setDefault(sh, "enableIntegrityMonitoring", true)
	m := subOf(doc, "metadata")
	m["kind"], m["fingerprint"] = "compute#metadata", fingerprint(m["items"])
	tags := subOf(doc, "tags")
	tags["fingerprint"] = fingerprint(tags["items"])
}

// fillScheduling fills in what follows from whether a machine may be taken away at any time.
func fillScheduling(s Doc) {
	spot := str(s, "provisioningModel") == "SPOT" || truth(s, "preemptible")
	setDefault(s, "preemptible", spot)
	setDefault(s, "automaticRestart", !spot)
	setDefault(s, "onHostMaintenance", map[bool]string{true: "TERMINATE", false: "MIGRATE"}[spot])
}

// subOf is an object in a document, made if it is not there.
func subOf(d Doc, key string) Doc {
	m, ok := d[key].(map[string]any)
	if !ok {
		m = Doc{}
		d[key] = m
	}
	return m
}

// checkMachineType reads and checks an instance's machine type: a full or partial link to one of its zone, or its name alone.
func (e *Compute) checkMachineType(project, zone string, doc Doc) (machineType, error) {
	const field = "resource.machineType"
	value := str(doc, "machineType")
	if value == "" {
		return machineType{}, invalidField(field, "", "The URL is malformed.")
	}
	if path := e.cloud.pathOfLink(project, value); path != "" {
		if collectionOf(path) != "machineTypes" {
			return machineType{}, invalidField(field, value, "The URL is malformed. Must be a valid machine type URL.")
		}
		if z := segmentAfter(path, "zones"); z != zone {
			return machineType{}, invalidField(field, value, fmt.Sprintf("Machine type specified '%s' is not in the zone '%s' of the instance.", path, zone))
		}
	} else if strings.Contains(value, "/") && !strings.HasPrefix(value, "machineTypes/") {
		return machineType{}, invalidField(field, value, "The URL is malformed.")
	}
	t, ok := machineTypeIn(zone, lastPart(value))
	if !ok {
		return machineType{}, invalidField(field, value, fmt.Sprintf("Machine type with name '%s' does not exist in zone '%s'.", lastPart(value), zone))
	}
	return t, nil
}

// prepareAccounts checks an instance's service accounts: one at most, "default" standing for Compute Engine's own.
func (e *Compute) prepareAccounts(project string, doc Doc) error {
	accounts := docs(doc, "serviceAccounts")
	if len(accounts) > 1 {
		return invalidField("resource.serviceAccounts", len(accounts), "Only one service account per VM is supported.")
	}
	for _, sa := range accounts {
		email := str(sa, "email")
		if email == "default" || email == "" {
			sa["email"] = e.defaultAccount(project)
		} else if !strings.Contains(email, "@") {
			return invalidField("resource.serviceAccounts[0].email", email, "The service account email is invalid.")
		}
		if len(texts(sa, "scopes")) == 0 {
			return invalidField("resource.serviceAccounts[0].scopes", "", "At least one scope is required.")
		}
	}
	return nil
}

// Limits on metadata and tags ("Set and remove custom metadata", "Add network tags").
const (
	maxMetadataValue = 256 << 10
	maxMetadata      = 512 << 10
	maxTags          = 64
)

var (
	metadataKey = regexp.MustCompile(`^[a-zA-Z0-9-_]{1,128}$`)
	networkTag  = regexp.MustCompile(`^[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?$`)
)

func checkMetadata(doc Doc) error {
	seen, total := map[string]bool{}, 0
	for i, item := range docs(sub(doc, "metadata"), "items") {
		key, value := str(item, "key"), str(item, "value")
		field := fmt.Sprintf("resource.metadata.items[%d]", i)
		switch {
		case !metadataKey.MatchString(key):
			return invalidField(field+".key", key, "Must be a match of regex '[a-zA-Z0-9-_]{1,128}'")
		case seen[key]:
			return invalidField(field+".key", key, "Duplicate metadata key.")
		case len(value) > maxMetadataValue:
			return invalidField(field+".value", value[:40]+"...", fmt.Sprintf("Metadata value must be less than or equal to %d characters.", maxMetadataValue))
		}
		seen[key] = true
		total += len(key) + len(value)
	}
	if total > maxMetadata {
		return invalidField("resource.metadata", "", fmt.Sprintf("Metadata is too large: %d bytes, the limit is %d.", total, maxMetadata))
	}
	return nil
}

func checkTags(doc Doc) error {
	items := texts(sub(doc, "tags"), "items")
	if len(items) > maxTags {
		return invalidField("resource.tags", len(items), "The number of tags must not exceed "+strconv.Itoa(maxTags)+".")
	}
	for i, t := range items {
		if !networkTag.MatchString(t) {
			return invalidField(fmt.Sprintf("resource.tags.items[%d]", i), t, "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'")
		}
	}
	if len(items) > 0 {
		sorted := slices.Clone(items)
		slices.Sort(sorted)
		sub(doc, "tags")["items"] = anys(slices.Compact(sorted))
	}
	return nil
}

// asRefusal is an error as the refusal that it is.
func asRefusal(err error) (*Error, bool) {
	var refused *Error
	ok := errors.As(err, &refused)
	return refused, ok
}
