package gcp

import (
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim/gcp/schema"
)

// A kind is what one sort of object has of its own; get, list, aggregatedList, insert, delete and setLabels are the same for all.
type kind struct {
	collection string // in paths: networks
	noun       string // in texts: network; with underscores where several words
	schema     string // Network
	// resources are the names of its methods' resource, by scope: "" for global, "regions", "zones". A kind may live in several
	// scopes: {"": "globalAddresses", "regions": "addresses"}.
	resources map[string]string
	// labels: it has labels and a label fingerprint.
	labels bool
	// shortNotFound: a missing one is `noun "path" not found` instead of "The resource 'path' was not found".
	shortNotFound bool
	// takes is how long its operations run, by verb; insert, delete and anything else, in simulated time. Zero means 8 s.
	takes map[string]time.Duration
	// prepare checks the document of an insert and fills it up. The object does not exist yet; path is where it will be.
	prepare func(r *request, path string, doc Doc) error
	// made is called when the object has been placed, while its insert still runs; ready when the insert is done.
	made, ready func(res *Resource)
	// changed is called when the document has been replaced.
	changed func(res *Resource)
	// show adds to an answer what is not kept in the document.
	show func(res *Resource, doc Doc)
	// refuseDelete says why the object cannot be deleted, beside being used.
	refuseDelete func(r *request, res *Resource) error
	// dropping is called when a delete has been accepted; dropped when the object is gone, for whatever reason.
	dropping, dropped func(res *Resource)
	// failed is called when an operation on the object, other than its insert, has failed from outside.
	failed func(op *Operation, res *Resource)
	// uses are the paths of the objects that this one uses, so that they cannot be deleted; nil means every link in its
	// document but those in fields of loose.
	uses  func(res *Resource) []string
	loose []string
	// users are the paths of the objects that use this one without a link to it.
	users func(res *Resource) []string
	// lateInUse: that it is used shows when the delete operation ends, not when it is asked for.
	lateInUse bool
	// fixed: objects of the kind cannot be made or deleted (zones, machine types).
	fixed bool
	// parents are the paths of the objects that contain one, for residue.
	parents func(res *Resource) []string
	// tags are what the owner may be read from besides labels and description.
	tags func(res *Resource) map[string]string
	// status is the field with the state; empty means "status". setState drives an object to a state from outside.
	status   string
	setState func(res *Resource, state, code, message string) error
	// quota is what the object counts towards limits, by metric: of its region or, for global objects, of the project.
	quota func(res *Resource) map[string]float64
}

func (k *kind) kindName() string {
	return "compute#" + strings.ToLower(k.schema[:1]) + k.schema[1:]
}

func (k *kind) stateField() string {
	if k.status != "" {
		return k.status
	}
	return "status"
}

func (k *kind) state(res *Resource) string {
	if res.Making {
		return "MAKING"
	}
	if res.Dropping {
		return "DELETING"
	}
	return str(res.Doc, k.stateField())
}

func (k *kind) duration(verb string) time.Duration {
	if d := k.takes[verb]; d > 0 {
		return d
	}
	return 8 * time.Second
}

// register adds a kind and those of its common methods that the API has.
func (e *Compute) register(a *api, k *kind) {
	e.kinds[k.collection] = k
	methods := schema.APIs()["compute/v1"].Methods
	for _, resource := range k.resources {
		for verb, op := range map[string]operation{"get": e.get(k), "list": e.list(k), "aggregatedList": e.aggregated(k), "insert": e.insert(k),
			"delete": e.delete(k), "setLabels": e.setLabels(k)} {
			id := resource + "." + verb
			if methods[id] == nil || (k.fixed && (verb == "insert" || verb == "delete")) || (verb == "setLabels" && !k.labels) {
				continue
			}
			a.ops[id] = op
		}
	}
}

// notFound is the refusal of a path that does not exist.
func (k *kind) notFound(path string) *Error {
	if k.shortNotFound {
		return refuse(404, "notFound", "%s \"%s\" not found", k.noun, path)
	}
	return refuse(404, "notFound", "The resource '%s' was not found", path)
}

func notReady(path string) *Error {
	return refuse(400, "resourceNotReady", "The resource '%s' is not ready", path)
}

// inUse is the refusal to delete what something else uses.
func inUse(k *kind, path, user string) *Error {
	return refuse(400, "resourceInUseByAnotherResource", "The %s resource '%s' is already being used by '%s'", k.noun, path, user)
}

// find finds the object that the request's path names, by name or numeric ID; whatever changes it always sees it.
func (e *Compute) find(r *request, k *kind) (*Resource, error) {
	path := e.pathOf(r, k)
	res := e.st.Resources[path]
	if res == nil {
		id := path[strings.LastIndex(path, "/")+1:]
		prefix := strings.TrimSuffix(path, id)
		for _, other := range e.st.Resources {
			if other.ID == id && strings.HasPrefix(other.Path, prefix) {
				res = other
			}
		}
	}
	if res == nil || (!r.Mutating && !e.visible(r, res, false)) {
		return nil, k.notFound(path)
	}
	r.Touch(res.Path)
	return res, nil
}

// change finds the object that the request's path names and that is about to be changed.
func (e *Compute) change(r *request, k *kind) (*Resource, error) {
	res, err := e.find(r, k)
	if err != nil {
		return nil, err
	}
	if res.Busy != "" {
		return nil, notReady(res.Path)
	}
	return res, nil
}

// pathOf is the path of the object that the request names, or, for an insert, its name in the body.
func (e *Compute) pathOf(r *request, k *kind) string {
	name := ""
	for n, v := range r.Path {
		if n != "project" && n != "region" && n != "zone" {
			name = v
		}
	}
	if name == "" {
		name = str(r.Body, "name")
	}
	return "projects/" + r.Project.ID + "/" + scopeIn(r) + "/" + k.collection + "/" + name
}

// scopeIn is the scope that the request's path names.
func scopeIn(r *request) string {
	if z := r.Path["zone"]; z != "" {
		return "zones/" + z
	}
	if reg := r.Path["region"]; reg != "" {
		return "regions/" + reg
	}
	return "global"
}

// checkScope refuses regions and zones that do not exist.
func (e *Compute) checkScope(r *request) error {
	if z := r.Path["zone"]; z != "" && !zoneExists(z) {
		return unknownPlace("zone", z)
	}
	if reg := r.Path["region"]; reg != "" && !regionExists(reg) {
		return unknownPlace("region", reg)
	}
	return nil
}

func unknownPlace(what, name string) *Error {
	return refuse(400, "invalid", "Invalid value for field '%s': '%s'. Unknown %s.", what, name, what)
}

func (e *Compute) get(k *kind) operation {
	return func(r *request) (any, error) {
		if err := e.checkScope(r); err != nil {
			return nil, err
		}
		res, err := e.find(r, k)
		if err != nil {
			return nil, err
		}
		return e.shown(res), nil
	}
}

func (e *Compute) insert(k *kind) operation {
	return func(r *request) (any, error) {
		if err := e.checkScope(r); err != nil {
			return nil, err
		}
		path := e.pathOf(r, k)
		if old := e.st.Resources[path]; old != nil {
			return nil, refuse(409, "alreadyExists", "The resource '%s' already exists", path)
		}
		doc := clone(r.Body)
		if k.labels {
			if err := checkLabels(doc); err != nil {
				return nil, err
			}
		}
		if k.prepare != nil {
			if err := k.prepare(r, path, doc); err != nil {
				return nil, err
			}
		}
		if err := e.checkReferences(k, path, doc); err != nil {
			return nil, err
		}
		res := e.make(path, k.collection, doc)
		if err := e.checkQuota(k, res); err != nil {
			delete(e.st.Resources, path)
			return nil, err
		}
		if k.made != nil {
			k.made(res)
		}
		res.Making = true
		return e.start(r, change{Type: "insert", Target: res, Takes: k.duration("insert"), Action: actInsert}), nil
	}
}

func (e *Compute) delete(k *kind) operation {
	return func(r *request) (any, error) {
		if err := e.checkScope(r); err != nil {
			return nil, err
		}
		res, err := e.change(r, k)
		if err != nil {
			return nil, err
		}
		if k.refuseDelete != nil {
			if err := k.refuseDelete(r, res); err != nil {
				return nil, err
			}
		}
		if !k.lateInUse {
			if user := e.userOf(res); user != "" {
				return nil, inUse(k, res.Path, user)
			}
		}
		res.Dropping = true
		if k.dropping != nil {
			k.dropping(res)
		}
		return e.start(r, change{Type: "delete", Target: res, Takes: k.duration("delete"), Action: actDelete}), nil
	}
}

func (e *Compute) setLabels(k *kind) operation {
	return func(r *request) (any, error) {
		res, err := e.change(r, k)
		if err != nil {
			return nil, err
		}
		if err := e.checkFingerprint(str(r.Body, "labelFingerprint"), str(res.Doc, "labelFingerprint")); err != nil {
			return nil, err
		}
		if err := checkLabels(r.Body); err != nil {
			return nil, err
		}
		doc := clone(res.Doc)
		doc["labels"] = sub(r.Body, "labels")
		doc["labelFingerprint"] = fingerprint(doc["labels"])
		return e.start(r, change{Type: "setLabels", Target: res, Takes: atOnce, Action: actReplace, Doc: doc}), nil
	}
}

// checkFingerprint refuses a change that was made on an older state of the object.
func (e *Compute) checkFingerprint(given, now string) error {
	if given != now {
		return refuse(412, "conditionNotMet", "Labels fingerprint either invalid or resource labels have changed")
	}
	return nil
}

// userOf is the path of an object that uses this one, or nothing.
func (e *Compute) userOf(res *Resource) string {
	for _, other := range e.inOrder(func(o *Resource) bool { return o != res }) {
		if !other.Default && slices.Contains(e.usedBy(other), res.Path) {
			return other.Path
		}
	}
	if k := e.kinds[res.Collection]; k.users != nil {
		for _, user := range k.users(res) {
			return user
		}
	}
	return ""
}

// usedBy are the paths of the objects that one uses.
func (e *Compute) usedBy(res *Resource) []string {
	k := e.kinds[res.Collection]
	if k.uses != nil {
		return k.uses(res)
	}
	return e.linksIn(res.project(), res.Doc, k.loose)
}
