package gcp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (e *Compute) diskKind() *kind {
	return &kind{collection: "disks", noun: "disk", schema: "Disk", resources: map[string]string{"zones": "disks"}, labels: true,
		takes:   map[string]time.Duration{"insert": setTakes, "delete": setTakes, "setLabels": setTakes},
		loose:   []string{"users", "sourceImage", "sourceDisk", "type", "licenses"},
		prepare: e.prepareDisk,
		show:    e.showDisk,
		ready:   func(res *Resource) { res.Doc["status"] = "READY" },
		quota: func(res *Resource) map[string]float64 {
			gb, _ := strconv.ParseFloat(str(res.Doc, "sizeGb"), 64) // written by fillDisk
			switch lastPart(str(res.Doc, "type")) {
			case "pd-standard":
				return map[string]float64{"DISKS_TOTAL_GB": gb}
			case "pd-balanced", "pd-ssd", "pd-extreme":
				return map[string]float64{"SSD_TOTAL_GB": gb}
			}
			return nil // Hyperdisks have limits of their own, which are not simulated
		},
	}
}

// prepareDisk checks a disk's document and fills it up ("Method: disks.insert").
func (e *Compute) prepareDisk(r *request, path string, doc Doc) error {
	project, zone := segmentAfter(path, "projects"), segmentAfter(path, "zones")
	if from := r.Query.Get("sourceImage"); from != "" {
		doc["sourceImage"] = from
	}
	return e.fillDisk(project, zone, "resource", doc)
}

// fillDisk fills up a disk: its type, size, source image and what it takes over from that.
func (e *Compute) fillDisk(project, zone, field string, doc Doc) error {
	typeName := lastPart(str(doc, "type"))
	if typeName == "" {
		typeName = "pd-standard"
	}
	t, ok := diskTypes[typeName]
	if !ok {
		return invalidField(field+".type", str(doc, "type"), "The referenced disk type cannot be found.")
	}
	doc["type"] = selfLink("projects/" + project + "/zones/" + zone + "/diskTypes/" + typeName)
	size := t.size
	if link := str(doc, "sourceImage"); link != "" {
		img, err := e.image(project, field+".sourceImage", link)
		if err != nil {
			return err
		}
		doc["sourceImage"], doc["sourceImageId"] = str(img, "selfLink"), str(img, "id")
		for _, k := range []string{"architecture", "licenses", "licenseCodes", "guestOsFeatures"} {
			if v, ok := img[k]; ok {
				setDefault(doc, k, v)
			}
		}
		least, _ := strconv.Atoi(str(img, "diskSizeGb")) // every image has a size
		size = least
		if given := str(doc, "sizeGb"); given != "" {
			if n, _ := strconv.Atoi(given); n < least {
				return invalidField(field+".diskSizeGb", given, fmt.Sprintf("Requested disk size cannot be smaller than the image size (%d GB)", least))
			}
		}
	}
	if given := str(doc, "sizeGb"); given != "" {
		size, _ = strconv.Atoi(given) // the schema says that it is a number
	}
	size = max(size, min(t.least, 10))
	if size > t.most || size < t.least && str(doc, "sourceImage") == "" {
		return invalidField(field+".sizeGb", size, fmt.Sprintf("Disk size must be between %d GB and %d GB.", t.least, t.most))
	}
	doc["sizeGb"], doc["status"] = strconv.Itoa(size), "CREATING"
	setDefault(doc, "physicalBlockSizeBytes", "4096")
	setDefault(doc, "enableConfidentialCompute", false)
	return nil
}

// showDisk adds the instances that a disk is attached to.
func (e *Compute) showDisk(res *Resource, doc Doc) {
	var users []any
	for _, i := range e.ofKind(res.project(), "instances") {
		for _, d := range docs(i.Doc, "disks") {
			if e.cloud.pathOfLink(res.project(), str(d, "source")) == res.Path {
				users = append(users, selfLink(i.Path))
			}
		}
	}
	if len(users) > 0 {
		doc["users"] = users
	}
}

// resizeDisk makes a disk larger; it never shrinks.
func (e *Compute) resizeDisk(r *request) (any, error) {
	res, err := e.change(r, e.kinds["disks"])
	if err != nil {
		return nil, err
	}
	old, _ := strconv.Atoi(str(res.Doc, "sizeGb")) // written by fillDisk
	size, _ := strconv.Atoi(str(r.Body, "sizeGb")) // the schema says that it is a number
	if size <= old {
		return nil, invalidField("sizeGb", str(r.Body, "sizeGb"), fmt.Sprintf("New disk size '%d' must be larger than existing size '%d'.", size, old))
	}
	doc := clone(res.Doc)
	doc["sizeGb"] = strconv.Itoa(size)
	return e.start(r, change{Type: "resizeDisk", Target: res, Takes: setTakes, Action: actReplace, Doc: doc}), nil
}

// prepareDisks checks the disks of an instance: exactly one to boot from, each with a source or with what to make it of.
func (e *Compute) prepareDisks(project, zone string, t machineType, doc Doc) error {
	disks := docs(doc, "disks")
	if len(disks) == 0 {
		return invalidField("resource.disks", "", "No disks are specified.")
	}
	boots := 0
	for n, d := range disks {
		field := fmt.Sprintf("resource.disks[%d]", n)
		if truth(d, "boot") {
			boots++
		}
		for k, v := range map[string]any{"kind": "compute#attachedDisk", "type": "PERSISTENT", "mode": "READ_WRITE", "boot": false, "autoDelete": false, "interface": "SCSI",
			"index": n, "deviceName": "persistent-disk-" + strconv.Itoa(n)} {
			setDefault(d, k, v)
		}
		if err := e.prepareDiskOf(project, zone, field, t, d); err != nil {
			return err
		}
	}
	if boots != 1 || !truth(disks[0], "boot") {
		return invalidField("resource.disks", len(disks), "Boot disk must be the first disk attached to the instance.")
	}
	return nil
}

func (e *Compute) prepareDiskOf(project, zone, field string, t machineType, d Doc) error {
	params := sub(d, "initializeParams")
	switch source := str(d, "source"); {
	case source != "" && params != nil:
		return invalidField(field, source, "Cannot specify both source and initializeParams.")
	case source != "":
		if e.cloud.pathOfLink(project, source) == "" {
			source = "zones/" + zone + "/disks/" + source
		}
		disk, err := e.link(project, field+".source", source, "disks")
		if err != nil {
			return err
		}
		if segmentAfter(disk.Path, "zones") != zone {
			return invalidField(field+".source", source, "Disk must be in the same zone as the instance.")
		}
		if user := e.attachedTo(disk.Path); user != "" && str(d, "mode") == "READ_WRITE" {
			return refuse(400, "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", "The disk resource '%s' is already being used by '%s'", disk.Path, user)
		}
		d["source"], d["diskSizeGb"] = selfLink(disk.Path), str(disk.Doc, "sizeGb")
		return archFits(t, str(disk.Doc, "architecture"), truth(d, "boot"))
	case params == nil:
		return invalidField(field, "", "Disk must have a source or initializeParams.")
	}
	if truth(d, "boot") && str(params, "sourceImage") == "" && str(params, "sourceSnapshot") == "" {
		return invalidField(field+".initializeParams.sourceImage", "", "Boot disk must have a source image.")
	}
	typeName := lastPart(str(params, "diskType"))
	if typeName == "" {
		typeName = "pd-standard"
		if t.family.disks != nil {
			typeName = t.family.disks[0]
		}
		params["diskType"] = typeName
	}
	if _, known := diskTypes[typeName]; known && !t.takes(typeName) {
		// "Choose a disk type" says which series take which.
		return refuse(400, "badRequest", "[%s] features are not compatible for creating instance. %[1]s disk type cannot be used by %s machine type.", typeName, t.name)
	}
	disk, err := e.diskFor(project, zone, field, d)
	if err != nil {
		return err
	}
	return archFits(t, str(disk, "architecture"), truth(d, "boot"))
}

// archFits refuses to boot a system that is made for other processors.
func archFits(t machineType, arch string, boot bool) error {
	if boot && arch != "" && arch != t.arch() {
		return refuse(400, "badRequest", "Requested boot disk architecture (%s) is not compatible with machine type architecture (%s).", arch, t.arch())
	}
	return nil
}

// diskFor is the document of the disk that an instance's initializeParams ask for.
func (e *Compute) diskFor(project, zone, field string, d Doc) (Doc, error) {
	params := sub(d, "initializeParams")
	disk := Doc{"type": str(params, "diskType")}
	for from, to := range map[string]string{"sourceImage": "sourceImage", "diskSizeGb": "sizeGb", "description": "description", "labels": "labels",
		"provisionedIops": "provisionedIops", "provisionedThroughput": "provisionedThroughput"} {
		if v, ok := params[from]; ok {
			disk[to] = v
		}
	}
	if err := checkLabels(disk); err != nil {
		return nil, err
	}
	err := e.fillDisk(project, zone, field+".initializeParams", disk)
	return disk, err
}

// withoutNewDisks leaves out the disks that are yet to be made, for checking references.
func withoutNewDisks(doc Doc) Doc {
	out := Doc{}
	for k, v := range doc {
		if k != "disks" {
			out[k] = v
		}
	}
	return out
}

// bootDisks makes the disks that an instance asks for and puts links to them into its document.
func (e *Compute) bootDisks(project, zone, instance string, doc Doc) ([]*Resource, error) {
	base := "projects/" + project + "/zones/" + zone + "/disks/"
	var made []*Resource
	for n, d := range docs(doc, "disks") {
		params := sub(d, "initializeParams")
		if params != nil {
			name := str(params, "diskName")
			if name == "" {
				name = lastPart(instance)
				if n > 0 {
					name += "-" + strconv.Itoa(n)
				}
			}
			res, err := e.newDisk(base+name, fmt.Sprintf("resource.disks[%d]", n), d)
			if err != nil {
				for _, m := range made {
					e.drop(m)
				}
				return nil, err
			}
			made = append(made, res)
			delete(d, "initializeParams")
			d["source"] = selfLink(res.Path)
		}
		if disk := e.st.Resources[strings.TrimPrefix(str(d, "source"), apiRoot)]; disk != nil {
			d["diskSizeGb"] = str(disk.Doc, "sizeGb")
			for _, k := range []string{"licenses", "guestOsFeatures", "architecture"} {
				if v, ok := disk.Doc[k]; ok {
					d[k] = v
				}
			}
		}
	}
	return made, nil
}

func (e *Compute) newDisk(path, field string, d Doc) (*Resource, error) {
	if e.st.Resources[path] != nil {
		return nil, refuse(409, "alreadyExists", "The resource '%s' already exists", path)
	}
	disk, err := e.diskFor(segmentAfter(path, "projects"), segmentAfter(path, "zones"), field, d)
	if err != nil {
		return nil, err
	}
	disk["status"] = "READY"
	res := e.make(path, "disks", disk)
	if err := e.checkQuota(e.kinds["disks"], res); err != nil {
		delete(e.st.Resources, path)
		return nil, err
	}
	return res, nil
}

// attachedTo is the instance that a disk is attached to, if any.
func (e *Compute) attachedTo(disk string) string {
	for _, i := range e.ofKind(segmentAfter(disk, "projects"), "instances") {
		if slices.ContainsFunc(docs(i.Doc, "disks"), func(d Doc) bool { return str(d, "source") == selfLink(disk) }) {
			return i.Path
		}
	}
	return ""
}

// dropDisks takes away the disks that go with an instance.
func (e *Compute) dropDisks(instance *Resource) {
	for _, d := range docs(instance.Doc, "disks") {
		if disk := e.st.Resources[strings.TrimPrefix(str(d, "source"), apiRoot)]; disk != nil && truth(d, "autoDelete") {
			e.drop(disk)
		}
	}
}
