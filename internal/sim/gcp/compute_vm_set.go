package gcp

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// vmKinds are the kinds of objects that have to do with instances.
func (e *Compute) vmKinds() []*kind {
	return []*kind{e.instanceKind(), e.diskKind(), e.imageKind(), e.templateKind(), e.groupKind(), e.managerKind(), e.autoscalerKind()}
}

// vmMethods adds the methods of instances and their groups that go beyond those of every kind.
func (e *Compute) vmMethods(a *api) {
	a.ops["instances.insert"], a.ops["instanceTemplates.insert"] = e.insertInstance, e.insertTemplate
	e.actions["vm-insert"], e.actions["vm-power"], e.actions["vm-set"] = e.doneInsert, e.donePower, e.doneSet
	e.events["vm-state"], e.events["vm-guest"] = e.vmStateEvent, e.guestEvent
	for verb := range powers {
		a.ops["instances."+verb] = e.switchInstance(verb)
	}
	for verb, set := range instanceSetters {
		a.ops["instances."+verb] = e.setInstance(verb, set)
	}
	a.ops["instances.attachDisk"], a.ops["instances.detachDisk"] = e.attachDisk, e.detachDisk
	a.ops["instances.getGuestAttributes"], a.ops["instances.getSerialPortOutput"] = e.guestAttributes, e.serialPort
	a.ops["instances.listReferrers"] = e.listReferrers
	a.ops["disks.resize"] = e.resizeDisk
	for _, add := range []func(*api){e.imageMethods, e.typeMethods, e.groupMethods, e.managerMethods, e.autoscalerMethods} {
		add(a)
	}
}

// A setter changes an instance's document as one of its set methods asks.
type setter func(e *Compute, r *request, res *Resource, doc Doc) error

var instanceSetters = map[string]setter{
	"setDeletionProtection": func(_ *Compute, r *request, _ *Resource, doc Doc) error {
		doc["deletionProtection"] = r.Query.Get("deletionProtection") != "false"
		return nil
	},
	"setLabels":                          setInstanceLabels,
	"setMetadata":                        setMetadata,
	"setTags":                            setTags,
	"setMachineType":                     setMachineType,
	"setServiceAccount":                  setServiceAccount,
	"setDiskAutoDelete":                  setDiskAutoDelete,
	"setMinCpuPlatform":                  whenStopped("minCpuPlatform"),
	"setScheduling":                      setScheduling,
	"setShieldedInstanceIntegrityPolicy": setIntegrityPolicy,
	"updateShieldedInstanceConfig":       setShielded,
	"addAccessConfig":                    addAccess,
	"deleteAccessConfig":                 deleteAccess,
	"update":                             updateInstance,
}

// setInstance carries one of the set methods out.
func (e *Compute) setInstance(verb string, set setter) operation {
	return func(r *request) (any, error) {
		res, err := e.change(r, e.kinds["instances"])
		if err != nil {
			return nil, err
		}
		doc := clone(res.Doc)
		if err := set(e, r, res, doc); err != nil {
			return nil, err
		}
		e.st.Seq++
		doc["fingerprint"] = fingerprint([]any{res.ID, e.st.Seq})
		return e.start(r, change{Type: verb, Target: res, Takes: setTakes, Action: "vm-set", Doc: doc}), nil
	}
}

// doneSet puts a changed document in place; what has happened to the instance meanwhile stays.
func (e *Compute) doneSet(op *Operation, res *Resource) error {
	for _, k := range []string{"status", "statusMessage", "lastStartTimestamp", "lastStopTimestamp", "lastSuspendedTimestamp", "cpuPlatform"} {
		if v, ok := res.Doc[k]; ok {
			op.Doc[k] = v
		}
	}
	res.Doc = op.Doc
	return nil
}

// takeOver sets a field as another document has it, or takes it away.
func takeOver(doc, from Doc, field string) {
	if v, ok := from[field]; ok && v != nil {
		doc[field] = v
	} else {
		delete(doc, field)
	}
}

// stale refuses a change that was made on an older state of something.
func stale(what string) *Error {
	return refuse(412, "conditionNotMet", "Supplied fingerprint does not match current %s fingerprint.", what)
}

func setInstanceLabels(e *Compute, r *request, _ *Resource, doc Doc) error {
	if err := e.checkFingerprint(str(r.Body, "labelFingerprint"), str(doc, "labelFingerprint")); err != nil {
		return err
	}
	takeOver(doc, r.Body, "labels")
	doc["labelFingerprint"] = fingerprint(doc["labels"])
	return checkLabels(doc)
}

func setMetadata(_ *Compute, r *request, _ *Resource, doc Doc) error {
	if given := str(r.Body, "fingerprint"); given != "" && given != str(sub(doc, "metadata"), "fingerprint") {
		return stale("metadata")
	}
	doc["metadata"] = Doc{"kind": "compute#metadata", "fingerprint": fingerprint(r.Body["items"])}
	if items, ok := r.Body["items"]; ok {
		sub(doc, "metadata")["items"] = items
	}
	return checkMetadata(doc)
}

func setTags(_ *Compute, r *request, _ *Resource, doc Doc) error {
	if given := str(r.Body, "fingerprint"); given != str(sub(doc, "tags"), "fingerprint") {
		return stale("tags")
	}
	doc["tags"] = Doc{}
	if items, ok := r.Body["items"]; ok {
		sub(doc, "tags")["items"] = items
	}
	if err := checkTags(doc); err != nil {
		return err
	}
	sub(doc, "tags")["fingerprint"] = fingerprint(sub(doc, "tags")["items"])
	return nil
}

// mustBeStopped refuses what only a stopped instance lets change ("Edit the machine type of a compute instance").
func mustBeStopped(res *Resource) error {
	if str(res.Doc, "status") != "TERMINATED" {
		return refuse(400, "badRequest", "The instance '%s' must be stopped before this can be changed.", res.Path)
	}
	return nil
}

func setMachineType(e *Compute, r *request, res *Resource, doc Doc) error {
	if err := mustBeStopped(res); err != nil {
		return err
	}
	zone := segmentAfter(res.Path, "zones")
	t, err := e.checkMachineType(res.project(), zone, r.Body)
	if err != nil {
		return err
	}
	doc["machineType"] = selfLink("projects/" + res.project() + "/zones/" + zone + "/machineTypes/" + t.name)
	return nil
}

func setServiceAccount(e *Compute, r *request, res *Resource, doc Doc) error {
	if err := mustBeStopped(res); err != nil {
		return err
	}
	delete(doc, "serviceAccounts")
	if email := str(r.Body, "email"); email != "" {
		doc["serviceAccounts"] = []any{Doc{"email": email, "scopes": r.Body["scopes"]}}
	}
	return e.prepareAccounts(res.project(), doc)
}

func setDiskAutoDelete(_ *Compute, r *request, _ *Resource, doc Doc) error {
	name := r.Query.Get("deviceName")
	for _, d := range docs(doc, "disks") {
		if str(d, "deviceName") == name {
			d["autoDelete"] = r.Query.Get("autoDelete") == "true"
			return nil
		}
	}
	return invalidField("deviceName", name, "No attached disk found with device name '"+name+"'.")
}

func whenStopped(field string) setter {
	return func(_ *Compute, r *request, res *Resource, doc Doc) error {
		takeOver(doc, r.Body, field)
		return mustBeStopped(res)
	}
}

func setScheduling(_ *Compute, r *request, _ *Resource, doc Doc) error {
	merge(subOf(doc, "scheduling"), r.Body)
	return nil
}

func setIntegrityPolicy(_ *Compute, r *request, _ *Resource, doc Doc) error {
	merge(subOf(doc, "shieldedInstanceIntegrityPolicy"), r.Body)
	return nil
}

func setShielded(_ *Compute, r *request, res *Resource, doc Doc) error {
	merge(subOf(doc, "shieldedInstanceConfig"), r.Body)
	return mustBeStopped(res)
}

func nicOf(r *request, doc Doc) (Doc, error) {
	name := r.Query.Get("networkInterface")
	for _, n := range docs(doc, "networkInterfaces") {
		if str(n, "name") == name {
			return n, nil
		}
	}
	return nil, invalidField("networkInterface", name, "The referenced network interface cannot be found.")
}

func addAccess(e *Compute, r *request, res *Resource, doc Doc) error {
	nic, err := nicOf(r, doc)
	if err != nil {
		return err
	}
	if len(docs(nic, "accessConfigs")) > 0 {
		return refuse(400, "invalid", "At most one access config currently supported.")
	}
	access := clone(r.Body)
	nic["accessConfigs"] = []any{access}
	if err := prepareAccess("resource", nic); err != nil {
		return err
	}
	access["natIP"], err = e.takeExternal(res.project(), res.region(), "resource.natIP", str(access, "natIP"))
	return err
}

func deleteAccess(_ *Compute, r *request, _ *Resource, doc Doc) error {
	nic, err := nicOf(r, doc)
	if err != nil {
		return err
	}
	if len(docs(nic, "accessConfigs")) == 0 {
		return invalidField("accessConfig", r.Query.Get("accessConfig"), "The specified access config does not exist.")
	}
	delete(nic, "accessConfigs")
	return nil
}

// updateInstance takes over what can be changed by update without a restart.
func updateInstance(e *Compute, r *request, res *Resource, doc Doc) error {
	if given := str(r.Body, "fingerprint"); given != "" && given != str(res.Doc, "fingerprint") {
		return stale("resource")
	}
	for _, k := range []string{"labels", "tags", "metadata", "deletionProtection", "scheduling", "shieldedInstanceConfig", "description", "canIpForward"} {
		if v, ok := r.Body[k]; ok {
			doc[k] = v
		}
	}
	if err := checkLabels(doc); err != nil {
		return err
	}
	if err := checkMetadata(doc); err != nil {
		return err
	}
	if err := checkTags(doc); err != nil {
		return err
	}
	doc["labelFingerprint"] = fingerprint(doc["labels"])
	fillInstance(doc)
	return nil
}

// attachDisk gives an instance one more disk.
func (e *Compute) attachDisk(r *request) (any, error) {
	res, err := e.change(r, e.kinds["instances"])
	if err != nil {
		return nil, err
	}
	doc, zone := clone(res.Doc), segmentAfter(res.Path, "zones")
	t, err := e.checkMachineType(res.project(), zone, doc)
	if err != nil {
		return nil, err
	}
	d, disks := clone(r.Body), list(doc, "disks")
	for k, v := range map[string]any{"kind": "compute#attachedDisk", "type": "PERSISTENT", "mode": "READ_WRITE", "boot": false, "autoDelete": false, "interface": "SCSI",
		"index": float64(len(disks)), "deviceName": fmt.Sprintf("persistent-disk-%d", len(disks))} {
		setDefault(d, k, v)
	}
	if err := e.prepareDiskOf(res.project(), zone, "resource", t, d); err != nil {
		return nil, err
	}
	doc["disks"] = append(disks, d)
	return e.start(r, change{Type: "attachDisk", Target: res, Takes: setTakes, Action: "vm-set", Doc: doc}), nil
}

// detachDisk takes a disk from an instance; the one that it boots from only while it is stopped.
func (e *Compute) detachDisk(r *request) (any, error) {
	res, err := e.change(r, e.kinds["instances"])
	if err != nil {
		return nil, err
	}
	doc, name := clone(res.Doc), r.Query.Get("deviceName")
	at := slices.IndexFunc(docs(doc, "disks"), func(d Doc) bool { return str(d, "deviceName") == name })
	if at < 0 {
		return nil, invalidField("deviceName", name, "No attached disk found with device name '"+name+"'.")
	}
	if truth(docs(doc, "disks")[at], "boot") && str(doc, "status") != "TERMINATED" {
		return nil, refuse(400, "badRequest", "The boot disk of a running instance cannot be detached.")
	}
	doc["disks"] = slices.Delete(list(doc, "disks"), at, at+1)
	return e.start(r, change{Type: "detachDisk", Target: res, Takes: setTakes, Action: "vm-set", Doc: doc}), nil
}

// guestAttributes answers what the guest has published ("Set and query guest attributes"): one value by variableKey, or all of a
// namespace by queryPath.
func (e *Compute) guestAttributes(r *request) (any, error) {
	if err := e.checkScope(r); err != nil {
		return nil, err
	}
	res, err := e.find(r, e.kinds["instances"])
	if err != nil {
		return nil, err
	}
	query, key := r.Query.Get("queryPath"), r.Query.Get("variableKey")
	asked := orText(query, key)
	values := e.published(res)
	answer := Doc{"kind": "compute#guestAttributes", "selfLink": selfLink(res.Path) + "/guestAttributes/" + asked}
	if key != "" && query == "" {
		v, ok := values[key]
		if !ok {
			return nil, noAttribute(key)
		}
		answer["variableKey"], answer["variableValue"] = key, v
		return answer, nil
	}
	items := []any{}
	prefix := strings.TrimSuffix(query, "/")
	for _, k := range keysOf(values) {
		space, name, _ := strings.Cut(k, "/")
		if prefix == "" || k == prefix || space == prefix {
			items = append(items, Doc{"namespace": space, "key": name, "value": values[k]})
		}
	}
	if len(items) == 0 {
		return nil, noAttribute(asked)
	}
	answer["queryPath"], answer["queryValue"] = query, Doc{"items": items}
	return answer, nil
}

func noAttribute(name string) *Error {
	return refuse(404, "notFound", "The resource '%s' of type 'Guest Attribute' was not found.", name)
}

// published are the guest attributes that the API shows: what the guest has written itself, and what its agents write at boot,
// the host keys and the OS inventory.
func (e *Compute) published(res *Resource) map[string]string {
	out := map[string]string{}
	g := e.st.VM.Guests[res.Path]
	if g == nil || !enabledBy(attributes(res), "enable-guest-attributes") {
		return out
	}
	maps.Copy(out, g.Machine.GuestAttributes)
	if g.Dead {
		return out
	}
	if !e.cloud.World.Now().Before(g.Since.Add(initStart)) {
		out["hostkeys/ssh-ed25519"] = "AAAAC3NzaC1lZDI1NTE5AAAAI" + strings.ToUpper(strings.TrimRight(fingerprint(res.ID), "="))
	}
	if since, up := e.agentUp(res); up {
		for k, v := range inventoryOf(g, res, since) {
			out["guestInventory/"+k] = v
		}
	}
	return out
}

const agentVersion = "20261020.00-g1"

// inventoryOf is what the OS Config agent says of the system.
func inventoryOf(g *guestState, res *Resource, since time.Time) map[string]string {
	return map[string]string{"Hostname": res.name(), "LongName": g.Image.system(), "ShortName": g.Image.Distro, "Version": g.Image.Release, "KernelRelease": g.Image.Kernel,
		"Architecture": strings.ToLower(g.Image.arch()), "OSConfigAgentVersion": agentVersion, "LastUpdated": since.UTC().Format("2006-01-02T15:04:05Z")}
}

// serialPort answers what an instance has written to its console.
func (e *Compute) serialPort(r *request) (any, error) {
	res, err := e.find(r, e.kinds["instances"])
	if err != nil {
		return nil, err
	}
	if s := str(res.Doc, "status"); s != "RUNNING" && s != "STOPPING" && s != "TERMINATED" {
		return nil, notReady(res.Path)
	}
	text := e.console(res)
	if p := r.Query.Get("port"); p != "" && p != "1" {
		text = ""
	}
	start := 0
	if s := r.Query.Get("start"); s != "" {
		_, _ = fmt.Sscanf(s, "%d", &start) // the schema has checked that it is a number
	}
	if start < 0 {
		start = max(0, len(text)+start)
	}
	start = min(start, len(text))
	return Doc{"kind": "compute#serialPortOutput", "contents": text[start:], "start": fmt.Sprint(start), "next": fmt.Sprint(len(text)),
		"selfLink": selfLink(res.Path) + "/serialPort"}, nil
}
