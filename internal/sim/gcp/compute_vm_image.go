package gcp

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"
)

// imageProjects are the projects whose images everybody may read.
var imageProjects = []string{"debian-cloud", "ubuntu-os-cloud"}

// publicRead says whether a request reads images of a project that is everybody's.
func publicRead(r *request, project string) bool {
	return r.method.API.Name == "compute" && strings.HasPrefix(r.method.ID, "images.") && !r.Mutating && slices.Contains(imageProjects, project)
}

// imageKind is the images of a project's own.
func (e *Compute) imageKind() *kind {
	return &kind{collection: "images", noun: "image", schema: "Image", resources: map[string]string{"": "images"}, labels: true,
		takes: map[string]time.Duration{"insert": 20 * time.Second, "delete": setTakes},
		loose: []string{"sourceDisk", "sourceImage", "licenses"}, prepare: e.prepareImage,
		ready: func(res *Resource) { res.Doc["status"] = "READY" },
		quota: func(*Resource) map[string]float64 { return map[string]float64{"IMAGES": 1} },
	}
}

// prepareImage makes an image of a disk ("Method: images.insert").
func (e *Compute) prepareImage(r *request, path string, doc Doc) error {
	source := str(doc, "sourceDisk")
	if source == "" {
		return invalidField("resource.sourceDisk", "", "An image needs a source.")
	}
	disk, err := e.link(r.Project.ID, "resource.sourceDisk", source, "disks")
	if err != nil {
		return err
	}
	if user := e.attachedTo(disk.Path); user != "" && r.Query.Get("forceCreate") != "true" {
		return refuse(400, "resourceInUseByAnotherResource", "The disk resource '%s' is already being used by '%s'", disk.Path, user)
	}
	for _, k := range []string{"architecture", "licenses", "licenseCodes", "guestOsFeatures"} {
		if v, ok := disk.Doc[k]; ok {
			setDefault(doc, k, v)
		}
	}
	doc["sourceDisk"], doc["sourceDiskId"], doc["sourceType"], doc["status"] = selfLink(disk.Path), disk.ID, "RAW", "PENDING"
	doc["diskSizeGb"] = str(disk.Doc, "sizeGb")
	setDefault(doc, "storageLocations", []any{"us"})
	return nil
}

// steadyID is an identifier that is always the same for a name.
func steadyID(name string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // a hash takes everything
	return strconv.FormatUint(h.Sum64()%9e18+1e17, 10)
}

func (p publicImage) path() string { return "projects/" + p.project + "/global/images/" + p.name }

// doc is a public image as GET answers it.
func (p publicImage) doc() Doc {
	version := p.name[strings.LastIndex(p.name, "-v")+2:]
	created := version[:4] + "-" + version[4:6] + "-" + version[6:] + "T04:30:00.000-08:00"
	license := strings.TrimSuffix(strings.TrimSuffix(p.family, "-arm64"), "-amd64")
	d := Doc{"kind": "compute#image", "id": steadyID(p.name), "creationTimestamp": created, "name": p.name, "family": p.family, "status": "READY", "sourceType": "RAW",
		"description": fmt.Sprintf("%s, %s, built on %s", p.system(), strings.ToLower(p.arch()), version), "diskSizeGb": "10", "archiveSizeBytes": "901234560",
		"architecture": p.arch(), "selfLink": selfLink(p.path()), "labelFingerprint": fingerprint(nil), "storageLocations": []any{"us"},
		"rawDisk": Doc{"source": "", "containerType": "TAR"}, "licenses": []any{selfLink("projects/" + p.project + "/global/licenses/" + license)},
		"licenseCodes": []any{steadyID(license)}, "enableConfidentialCompute": false,
		"guestOsFeatures": []any{Doc{"type": "VIRTIO_SCSI_MULTIQUEUE"}, Doc{"type": "UEFI_COMPATIBLE"}, Doc{"type": "GVNIC"}}}
	if p.deprecated {
		newest, _ := publicImageBy(p.project, "", p.family) // every family has a newest image
		d["deprecated"] = Doc{"state": "DEPRECATED", "replacement": selfLink(newest.path()), "deprecated": str(newest.doc(), "creationTimestamp")}
	}
	return d
}

// imageProject is the project that the request's path names, which need not be one of the caller's.
func imageProject(r *request) string {
	if r.Project.ID != "" {
		return r.Project.ID
	}
	return r.Path["project"]
}

// imageMethods adds the methods of images that go beyond those of every kind.
func (e *Compute) imageMethods(a *api) {
	own, ownList := a.ops["images.get"], a.ops["images.list"]
	a.ops["images.get"] = func(r *request) (any, error) {
		if r.Project.ID != "" {
			return own(r)
		}
		p, ok := publicImageBy(imageProject(r), r.Path["image"], "")
		if !ok {
			return nil, e.kinds["images"].notFound("projects/" + imageProject(r) + "/global/images/" + r.Path["image"])
		}
		return p.doc(), nil
	}
	a.ops["images.list"] = func(r *request) (any, error) {
		if r.Project.ID != "" {
			return ownList(r)
		}
		return e.listPublicImages(r)
	}
	a.ops["images.getFromFamily"] = e.imageFromFamily
	a.ops["images.deprecate"] = e.deprecateImage
}

func (e *Compute) listPublicImages(r *request) (any, error) {
	match, err := parseFilter(r.Query.Get("filter"))
	if err != nil {
		return nil, err
	}
	var items []Doc
	for _, p := range publicImages {
		if d := p.doc(); p.project == imageProject(r) && match(d) {
			items = append(items, d)
		}
	}
	order(items, r.Query.Get("orderBy"))
	return r.listAnswer(items, "compute#imageList", "projects/"+imageProject(r)+"/global/images")
}

// imageFromFamily answers the newest image of a family that is not deprecated.
func (e *Compute) imageFromFamily(r *request) (any, error) {
	project, family := imageProject(r), r.Path["family"]
	if p, ok := publicImageBy(project, "", family); ok {
		return p.doc(), nil
	}
	if res := e.newestOf(project, family); res != nil && e.visible(r, res, false) {
		return e.shown(res), nil
	}
	return nil, refuse(404, "notFound", "The resource 'projects/%s/global/images/family/%s' was not found", project, family)
}

func (e *Compute) newestOf(project, family string) *Resource {
	images := e.ofKind(project, "images")
	slices.Reverse(images)
	for _, res := range images {
		if str(res.Doc, "family") == family && sub(res.Doc, "deprecated") == nil && !res.Making {
			return res
		}
	}
	return nil
}

func (e *Compute) deprecateImage(r *request) (any, error) {
	res, err := e.change(r, e.kinds["images"])
	if err != nil {
		return nil, err
	}
	doc := clone(res.Doc)
	delete(doc, "deprecated")
	if state := str(r.Body, "state"); state != "" && state != "ACTIVE" {
		doc["deprecated"] = r.Body
	}
	return e.start(r, change{Type: "deprecate", Target: res, Takes: setTakes, Action: actReplace, Doc: doc}), nil
}

// image finds the image that a field links to: by name, by family, in a public project or in the caller's own.
func (e *Compute) image(project, field, link string) (Doc, error) {
	missing := refuse(400, "invalid", "Invalid value for field '%s': '%s'. The referenced image resource cannot be found.", field, link)
	path := e.cloud.pathOfLink(project, link)
	owner := segmentAfter(path, "projects")
	name, family := segmentAfter(path, "images"), segmentAfter(path, "family")
	if family != "" {
		name = ""
	}
	if path == "" || name == "" && family == "" {
		return nil, invalidField(field, link, "The URL is malformed.")
	}
	if p, ok := publicImageBy(owner, name, family); ok {
		return p.doc(), nil
	}
	if family != "" {
		if res := e.newestOf(owner, family); res != nil {
			return e.shown(res), nil
		}
		return nil, missing
	}
	res := e.st.Resources["projects/"+owner+"/global/images/"+name]
	if res == nil || owner != project {
		return nil, missing
	}
	if res.Making {
		return nil, notReady(res.Path)
	}
	// Deprecated images can still be used, obsolete and deleted ones cannot ("Deprecate a custom image").
	if state := str(sub(res.Doc, "deprecated"), "state"); state == "OBSOLETE" || state == "DELETED" {
		return nil, invalidField(field, link, "The referenced image resource is "+strings.ToLower(state)+" and cannot be used.")
	}
	return e.shown(res), nil
}

// systemOf is what the boot disk of an instance has on it.
func (e *Compute) systemOf(instance *Resource) systemImage {
	link := ""
	for _, d := range docs(instance.Doc, "disks") {
		if disk := e.st.Resources[strings.TrimPrefix(str(d, "source"), apiRoot)]; disk != nil && truth(d, "boot") {
			link = str(disk.Doc, "sourceImage")
		}
	}
	path := strings.TrimPrefix(link, apiRoot)
	for range 8 { // an image may have been made of a disk of another image
		if p, ok := publicImageBy(segmentAfter(path, "projects"), lastPart(path), ""); ok {
			return p.systemImage
		}
		own := e.st.Resources[path]
		if own == nil {
			break
		}
		disk := e.st.Resources[strings.TrimPrefix(str(own.Doc, "sourceDisk"), apiRoot)]
		if disk == nil {
			break
		}
		path = strings.TrimPrefix(str(disk.Doc, "sourceImage"), apiRoot)
	}
	return systemImage{Distro: "debian", Release: "12", Kernel: "6.1.0-41-cloud-amd64"}
}

// typeMethods adds machine types and disk types, which nobody makes.
func (e *Compute) typeMethods(a *api) {
	for _, c := range []struct {
		collection, kind string
		docs             func(project, zone string) []Doc
	}{{"machineTypes", "machineType", machineTypeDocs}, {"diskTypes", "diskType", diskTypeDocs}} {
		a.ops[c.collection+".get"] = func(r *request) (any, error) {
			if err := e.checkScope(r); err != nil {
				return nil, err
			}
			for _, d := range c.docs(r.Project.ID, r.Path["zone"]) {
				if str(d, "name") == r.Path[c.kind] {
					return d, nil
				}
			}
			return nil, refuse(404, "notFound", "The resource 'projects/%s/zones/%s/%s/%s' was not found", r.Project.ID, r.Path["zone"], c.collection, r.Path[c.kind])
		}
		a.ops[c.collection+".list"] = func(r *request) (any, error) {
			if err := e.checkScope(r); err != nil {
				return nil, err
			}
			items, err := filtered(r, c.docs(r.Project.ID, r.Path["zone"]))
			if err != nil {
				return nil, err
			}
			return r.listAnswer(items, "compute#"+c.kind+"List", "projects/"+r.Project.ID+"/zones/"+r.Path["zone"]+"/"+c.collection)
		}
		a.ops[c.collection+".aggregatedList"] = func(r *request) (any, error) {
			var all []Doc
			scopes := []string{}
			for _, z := range zoneNames() {
				all, scopes = append(all, c.docs(r.Project.ID, z)...), append(scopes, "zones/"+z)
			}
			items, err := filtered(r, all)
			if err != nil {
				return nil, err
			}
			return e.aggregatedAnswer(r, c.collection, "compute#"+c.kind+"AggregatedList", scopes, items)
		}
	}
}

// filtered are the documents that the request's filter selects, in its order.
func filtered(r *request, all []Doc) ([]Doc, error) {
	match, err := parseFilter(r.Query.Get("filter"))
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(d Doc) bool { return !match(d) })
	order(all, r.Query.Get("orderBy"))
	return all, nil
}

func machineTypeDocs(project, zone string) []Doc {
	var out []Doc
	for _, name := range keysOf(machineTypes) {
		t, ok := machineTypeIn(zone, name)
		if !ok {
			continue
		}
		disks, most := 128, "263168"
		if t.shared {
			disks, most = 16, "3072"
		}
		out = append(out, normal(Doc{"kind": "compute#machineType", "id": steadyID(name), "creationTimestamp": placesCreated, "name": name, "zone": zone,
			"description": fmt.Sprintf("%d vCPUs, %g GB RAM", t.cpus, float64(t.memory)/1024), "guestCpus": t.cpus, "memoryMb": t.memory, "imageSpaceGb": 0,
			"maximumPersistentDisks": disks, "maximumPersistentDisksSizeGb": most, "isSharedCpu": t.shared, "architecture": t.arch(),
			"selfLink": selfLink("projects/" + project + "/zones/" + zone + "/machineTypes/" + name)}).(Doc))
	}
	return out
}

func diskTypeDocs(project, zone string) []Doc {
	var out []Doc
	for _, name := range keysOf(diskTypes) {
		t := diskTypes[name]
		out = append(out, Doc{"kind": "compute#diskType", "id": steadyID(name), "creationTimestamp": placesCreated, "name": name, "description": t.description,
			"validDiskSize": fmt.Sprintf("%dGB-%dGB", t.least, t.most), "defaultDiskSizeGb": strconv.Itoa(t.size),
			"zone": selfLink("projects/" + project + "/zones/" + zone), "selfLink": selfLink("projects/" + project + "/zones/" + zone + "/diskTypes/" + name)})
	}
	return out
}
