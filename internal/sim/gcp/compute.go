package gcp

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
	"github.com/zopday/provisioner/internal/sim/gcp/schema"
)

// Compute is the simulated Compute Engine of all projects: every object is a [Resource], every change an [Operation].
type Compute struct {
	cloud   *Cloud
	st      computeState
	kinds   map[string]*kind // by collection: networks
	actions map[string]action
	events  map[string]func(key string)
}

type computeState struct {
	Seq        int
	Resources  map[string]*Resource  // by path: projects/p/global/networks/n
	Operations map[string]*Operation // by path
	Requests   map[string]*requestID // by project and request ID
	Furnished  map[string]bool       // projects that have what a fresh one has
	VM         vmState
}

// A Resource is any object of Compute Engine.
type Resource struct {
	Path       string // projects/p/regions/r/subnetworks/s
	Collection string // subnetworks
	ID         string // digits
	Created    time.Time
	Seq        int
	// Doc is the object as GET answers it, but for what its kind's show adds.
	Doc Doc
	// Busy is the path of the operation that changes the object; Making and Dropping say that it is its creation or deletion.
	Busy             string
	Making, Dropping bool
	// Default: the cloud made it. First is the hash of its document if it was there from the start: as long as it is the same
	// again, the object is as in a fresh project.
	Default bool
	First   string
	// Inner is what a service remembers of the object and no answer shows. It must survive JSON.
	Inner map[string]string
}

func (res *Resource) project() string { return segmentAfter(res.Path, "projects") }
func (res *Resource) name() string    { return res.Path[strings.LastIndex(res.Path, "/")+1:] }

// scope is the part of the path between project and collection: global, regions/r or zones/z.
func (res *Resource) scope() string { return scopeOf(res.Path) }

func (res *Resource) region() string {
	if r := segmentAfter(res.Path, "regions"); r != "" {
		return r
	}
	if z := segmentAfter(res.Path, "zones"); z != "" {
		return regionOf(z)
	}
	return ""
}

// unchanged is the hash of a document without its fingerprints.
func unchanged(doc Doc) string {
	d := clone(doc)
	for _, k := range keysOf(d) {
		if strings.HasSuffix(strings.ToLower(k), "fingerprint") || k == "etag" {
			delete(d, k)
		}
	}
	return fingerprint(d)
}

func (res *Resource) inner(key, value string) {
	if res.Inner == nil {
		res.Inner = map[string]string{}
	}
	res.Inner[key] = value
}

func newCompute(c *Cloud) *Compute {
	e := &Compute{cloud: c, kinds: map[string]*kind{}, actions: map[string]action{}, events: map[string]func(string){}}
	a := &api{service: "compute", ops: map[string]operation{}, noStatus: true, listErrors: true, ownTexts: true,
		bodyField: func(name string) string { return snake(name) + "_resource" }, denied: computeDenied}
	e.addOperations(a)
	for _, k := range e.allKinds() {
		e.register(a, k)
	}
	e.addMethods(a)
	for id, op := range a.ops {
		a.ops[id] = e.idempotent(e.furnished(op))
	}
	c.add("compute/v1", a)
	e.declareQuotas()
	c.World.Register(e)
	return e
}

// computeDenied names the permission that is missing ("Access control", Compute Engine).
func computeDenied(r *request, project string) *Error {
	collection, verb, _ := strings.Cut(r.method.ID, ".")
	switch verb {
	case "insert":
		verb = "create"
	case "patch":
		verb = "update"
	case "aggregatedList":
		verb = "list"
	}
	collection = strings.TrimPrefix(collection, "region")
	return refuse(403, "forbidden", "Required 'compute.%s.%s' permission for 'projects/%s'", strings.ToLower(collection[:1])+collection[1:], verb, project)
}

// Cloud, Name, State, Reset and the like are those of sim.Service.
func (e *Compute) Cloud() string { return cloudName }

// Name is the service's name in faults and books.
func (e *Compute) Name() string { return "compute" }

// State is the live state.
func (e *Compute) State() any { return &e.st }

// Reset starts afresh: what a project has from the start is made when it is first looked at.
func (e *Compute) Reset() {
	e.st = computeState{Resources: map[string]*Resource{}, Operations: map[string]*Operation{}, Requests: map[string]*requestID{}, Furnished: map[string]bool{}, VM: newVMState()}
}

// furnished makes what a fresh project has before an operation looks at it.
func (e *Compute) furnished(op operation) operation {
	return func(r *request) (any, error) {
		e.furnish(r.Project)
		return op(r)
	}
}

// Event carries out what was scheduled with later.
func (e *Compute) Event(kind, key string) {
	if f := e.events[kind]; f != nil {
		f(key)
	}
}

// later schedules an event of this service; its carrier is in events.
func (e *Compute) later(d time.Duration, kind, key string) { e.cloud.after(d, "compute", kind, key) }

// make puts a new object there.
func (e *Compute) make(path, collection string, doc Doc) *Resource {
	e.st.Seq++
	res := &Resource{Path: path, Collection: collection, ID: e.cloud.numericID(), Created: e.cloud.World.Now(), Seq: e.st.Seq, Doc: doc}
	k := e.kinds[collection]
	doc["kind"], doc["id"], doc["selfLink"] = k.kindName(), res.ID, selfLink(path)
	doc["name"], doc["creationTimestamp"] = res.name(), computeTime(res.Created)
	if r := segmentAfter(path, "regions"); r != "" {
		doc["region"] = selfLink("projects/" + res.project() + "/regions/" + r)
	}
	if z := segmentAfter(path, "zones"); z != "" {
		doc["zone"] = selfLink("projects/" + res.project() + "/zones/" + z)
	}
	if k.labels {
		doc["labelFingerprint"] = fingerprint(doc["labels"])
	}
	e.st.Resources[path] = res
	return res
}

// drop takes an object away, and lets its kind know.
func (e *Compute) drop(res *Resource) {
	delete(e.st.Resources, res.Path)
	if k := e.kinds[res.Collection]; k.dropped != nil {
		k.dropped(res)
	}
}

// inOrder lists objects as they were made; a nil filter selects all.
func (e *Compute) inOrder(filter func(*Resource) bool) []*Resource {
	var out []*Resource
	for _, res := range e.st.Resources {
		if filter == nil || filter(res) {
			out = append(out, res)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Seq < out[j].Seq })
	return out
}

// at is the object of a path, as another service finds it.
func (e *Compute) at(path string) *Resource {
	if p, ok := e.cloud.project(segmentAfter(path, "projects")); ok {
		e.furnish(p)
	}
	return e.st.Resources[path]
}

// ofKind lists the objects of a collection in a project.
func (e *Compute) ofKind(project, collection string) []*Resource {
	return e.inOrder(func(res *Resource) bool { return res.Collection == collection && res.project() == project })
}

// shown is an object as GET answers it.
func (e *Compute) shown(res *Resource) Doc {
	doc := clone(res.Doc)
	if k := e.kinds[res.Collection]; k.show != nil {
		k.show(res, doc)
	}
	return doc
}

// Objects lists everything that exists.
func (e *Compute) Objects() []sim.Object {
	var out []sim.Object
	for _, res := range e.inOrder(nil) {
		k := e.kinds[res.Collection]
		o := sim.Object{Account: res.project(), Region: res.region(), Kind: k.noun, ID: res.Path, ARN: str(res.Doc, "selfLink"), Name: res.name(),
			State: k.state(res), Tags: labelsOf(res.Doc), Description: str(res.Doc, "description"), Default: res.Default, Pristine: res.First != "" && res.First == unchanged(res.Doc),
			Parents: e.parents(res), Data: &res.Doc}
		if k.tags != nil {
			maps.Copy(o.Tags, k.tags(res))
		}
		out = append(out, o)
	}
	for _, path := range keysOf(e.st.Operations) {
		op := e.st.Operations[path]
		out = append(out, sim.Object{Account: op.Project, Region: segmentAfter(path, "regions"), Kind: "operation", ID: path, ARN: selfLink(path), Name: op.Name,
			State: op.Status, Parents: []string{op.Target}, Default: true, Gone: op.Status == opDone, Data: op})
	}
	return out
}

// SetState drives an object to a state. On an operation, DONE, RUNNING and PENDING are its own states, the empty state makes it
// fail, and any other is for the object that it works on.
func (e *Compute) SetState(id, state, code, message string) error {
	if op := e.st.Operations[id]; op != nil {
		switch state {
		case "":
			e.fail(op, code, message)
			return nil
		case opDone:
			e.finish(op)
			return nil
		case opPending, opRunning:
			op.Status, op.Held = state, true
			return nil
		}
		id = op.Target
	}
	res := e.st.Resources[id]
	if res == nil {
		return fmt.Errorf("no object %s", id)
	}
	k := e.kinds[res.Collection]
	if state == "deleted" {
		e.drop(res)
		return nil
	}
	if k.setState != nil {
		return k.setState(res, state, code, message)
	}
	if state == "" {
		return fmt.Errorf("a %s has no state in which it fails; its operation fails", k.noun)
	}
	field := schema.APIs()["compute/v1"].Schemas[k.schema].Fields[k.stateField()]
	switch {
	case field == nil:
		return fmt.Errorf("a %s has no states", k.noun)
	case len(field.Enum) > 0 && !slices.Contains(field.Enum, state):
		return fmt.Errorf("a %s is one of %s, not %q", k.noun, strings.Join(field.Enum, ", "), state)
	}
	res.Doc[k.stateField()] = state
	return nil
}

// Remove takes an object away, whatever uses it.
func (e *Compute) Remove(id string) error {
	if res := e.st.Resources[id]; res != nil {
		e.drop(res)
		return nil
	}
	if e.st.Operations[id] != nil {
		delete(e.st.Operations, id)
		return nil
	}
	return fmt.Errorf("no object %s", id)
}

// parents are the paths of the objects that contain one.
func (e *Compute) parents(res *Resource) []string {
	k := e.kinds[res.Collection]
	if k.parents == nil {
		return nil
	}
	return slices.DeleteFunc(k.parents(res), func(p string) bool { return p == "" })
}
