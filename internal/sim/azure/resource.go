package azure

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// The provisioning states that the core sets.
const (
	stateSucceeded = "Succeeded"
	stateFailed    = "Failed"
	stateCreating  = "Creating"
	stateUpdating  = "Updating"
	stateDeleting  = "Deleting"
)

// A Resource is anything with an ARM ID.
type Resource struct {
	ID       string            `json:"id"`
	Type     string            `json:"type"`
	Name     string            `json:"name"`
	Location string            `json:"location,omitempty"`
	Tags     map[string]string `json:"tags,omitempty"`
	// Top is what stands beside properties: sku, zones, identity, kind.
	Top        doc `json:"top,omitempty"`
	Properties doc `json:"properties"`
	// State is the provisioningState; empty for kinds without one.
	State string `json:"state,omitempty"`
	Etag  string `json:"etag,omitempty"`
	// Operation is the asynchronous operation at work on it.
	Operation string    `json:"operation,omitempty"`
	Created   time.Time `json:"created"`
	Changed   time.Time `json:"changed"`
	// Default: the cloud made it together with its parent.
	Default bool `json:"default,omitempty"`
	// Hold keeps the resource from being deleted for so many seconds longer than usual.
	Hold float64 `json:"hold,omitempty"`
}

func (r *Resource) clone() *Resource {
	b, err := json.Marshal(r)
	out := &Resource{}
	if err == nil {
		err = json.Unmarshal(b, out)
	}
	if err != nil {
		panic(err) // plain data
	}
	if out.Properties == nil {
		out.Properties = doc{}
	}
	return out
}

// busy says whether an operation is at work on the resource.
func (r *Resource) busy() bool { return r.Operation != "" }

// A shelf holds the resources of one service and the operations on them. It is the sim.Service of all providers.
type shelf struct {
	cloud *Cloud
	name  string
	state shelfState
	// fresh fills the shelf of a fresh account.
	fresh func()
	// on carries out events that are not the core's own.
	on map[string]func(key string)
	// restored is told that saved state was taken up.
	restored func()
	// drive is asked first when something is to be put into a state from outside; it answers false for what it leaves to
	// the core.
	drive func(res *Resource, state, code, message string) (bool, error)
}

type shelfState struct {
	Resources  map[string]*Resource  `json:"resources"`
	Operations map[string]*Operation `json:"operations"`
	// Index is ARM's own list of resources; only the service "resources" keeps one.
	Index map[string]*indexEntry `json:"index,omitempty"`
	// Extra is what a service keeps besides resources, as plain JSON.
	Extra map[string]json.RawMessage `json:"extra,omitempty"`
}

// newShelf registers a service.
func (c *Cloud) newShelf(name string) *shelf {
	s := &shelf{cloud: c, name: name, on: map[string]func(string){}}
	c.shelves[name] = s
	c.World.Register(s)
	return s
}

func (s *shelf) Cloud() string { return "azure" }
func (s *shelf) Name() string  { return s.name }
func (s *shelf) State() any    { return &s.state }

func (s *shelf) Reset() {
	s.state = shelfState{Resources: map[string]*Resource{}, Operations: map[string]*Operation{}, Extra: map[string]json.RawMessage{}}
	if s.fresh != nil {
		s.fresh()
	}
}

// Restored is called after saved state was taken up, with the world locked.
func (s *shelf) Restored() {
	if s.restored != nil {
		s.restored()
	}
}

func (s *shelf) Event(kind, key string) {
	switch kind {
	case "operation":
		s.cloud.finish(s, key)
	case "forget":
		delete(s.state.Operations, key)
	default:
		if f := s.on[kind]; f != nil {
			f(key)
		}
	}
}

// sorted lists the resources by ID.
func (s *shelf) sorted() []*Resource {
	keys := make([]string, 0, len(s.state.Resources))
	for k := range s.state.Resources {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	out := make([]*Resource, len(keys))
	for i, k := range keys {
		out[i] = s.state.Resources[k]
	}
	return out
}

func (s *shelf) Objects() []sim.Object {
	var out []sim.Object
	for _, r := range s.sorted() {
		o := sim.Object{Account: subscriptionOf(r.ID), Region: r.Location, Kind: lastOf(r.Type), ID: r.ID, Name: r.Name, State: r.State,
			Tags: r.Tags, Default: r.Default, Pristine: r.Default && r.Created.IsZero(), Data: r}
		if p := parentOf(r.ID); p != "" {
			o.Parents = []string{s.cloud.spelled(p)}
		}
		out = append(out, o)
	}
	return out
}

// SetState drives a resource into a provisioning state; the operation at work on it ends accordingly.
func (s *shelf) SetState(id, state, code, message string) error {
	r := s.state.Resources[key(id)]
	if r == nil {
		return fmt.Errorf("no resource %s", id)
	}
	if state == "deleted" {
		return s.Remove(id)
	}
	if s.cloud.kindOf(r.Type).stateless {
		return fmt.Errorf("%s has no provisioning state", id)
	}
	if s.drive != nil {
		if done, err := s.drive(r, state, code, message); done || err != nil {
			return err
		}
	}
	if state == "" {
		state = stateFailed
	}
	op := s.state.Operations[r.Operation]
	r.State, r.Operation = state, ""
	s.cloud.touch(r)
	if op == nil {
		return nil
	}
	op.Status = statusSucceeded
	if state == stateFailed || state == "Canceled" {
		op.Status = state
		if code == "" {
			code = "InternalServerError"
		}
		if message == "" {
			message = "An error occurred."
		}
		op.Error = &Error{Status: 500, Code: code, Message: message}
	}
	return nil
}

// Remove takes a resource away with all that lies in it, whatever uses it.
func (s *shelf) Remove(id string) error {
	r := s.state.Resources[key(id)]
	if r == nil {
		return fmt.Errorf("no resource %s", id)
	}
	if op := s.state.Operations[r.Operation]; op != nil {
		op.Status = statusSucceeded
	}
	s.cloud.drop(r)
	return nil
}

// find looks a resource up by ID, in every service.
func (c *Cloud) find(id string) *Resource {
	k := key(id)
	for _, s := range c.shelves {
		if r := s.state.Resources[k]; r != nil {
			return r
		}
	}
	return nil
}

// spelled is an ID as it was written when the resource was made; IDs of nothing stay as they are.
func (c *Cloud) spelled(id string) string {
	if r := c.find(id); r != nil {
		return r.ID
	}
	return id
}

// each calls f for every resource, in the order of IDs within a service.
func (c *Cloud) each(f func(*Resource)) {
	for _, name := range c.shelfNames() {
		for _, r := range c.shelves[name].sorted() {
			f(r)
		}
	}
}

func (c *Cloud) shelfNames() []string {
	names := make([]string, 0, len(c.shelves))
	for n := range c.shelves {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// inside lists what lies in a resource or group, extension resources included, the deepest first.
func (c *Cloud) inside(id string) []*Resource {
	var out []*Resource
	prefix := key(id) + "/"
	for _, s := range c.shelves {
		for k, r := range s.state.Resources {
			if strings.HasPrefix(k, prefix) {
				out = append(out, r)
			}
		}
	}
	slices.SortFunc(out, func(a, b *Resource) int {
		return cmp.Or(strings.Count(b.ID, "/")-strings.Count(a.ID, "/"), strings.Compare(a.ID, b.ID))
	})
	return out
}

// children lists the resources of one type right below another.
func (c *Cloud) children(id, typ string) []*Resource {
	k := c.kindOf(typ)
	if k == nil {
		return nil
	}
	prefix := key(id + "/" + lastOf(typ) + "/")
	var out []*Resource
	for at, r := range c.shelves[k.service].state.Resources {
		if strings.HasPrefix(at, prefix) && strings.EqualFold(r.Type, typ) {
			out = append(out, r)
		}
	}
	// Lists come in the order of making, as the provider's do.
	slices.SortFunc(out, func(a, b *Resource) int { return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID)) })
	return out
}

// keep puts a resource on its shelf.
func (c *Cloud) keep(r *Resource) {
	c.shelves[c.kindOf(r.Type).service].state.Resources[key(r.ID)] = r
	c.servers.changed(r.Type)
}

// drop takes a resource off its shelf, and everything in it; the kinds hear of it.
func (c *Cloud) drop(r *Resource) {
	for _, in := range append(c.inside(r.ID), r) {
		k := c.kindOf(in.Type)
		if k.outlives && in != r {
			continue
		}
		delete(c.shelves[k.service].state.Resources, key(in.ID))
		c.index.gone(in)
		c.servers.changed(in.Type)
		if k.removed != nil {
			k.removed(in)
		}
	}
}

// touch gives a resource a new etag.
func (c *Cloud) touch(r *Resource) {
	r.Changed = c.World.Now()
	c.index.put(r)
	c.servers.changed(r.Type)
	if r.Etag != "" {
		r.Etag = c.kindOf(r.Type).newEtag(c)
	}
}

func (k *kind) newEtag(c *Cloud) string {
	if k.etag != nil {
		return k.etag(c)
	}
	return c.newEtag()
}

// newEtag makes a weak etag, as most providers use.
func (c *Cloud) newEtag() string { return `W/"` + c.World.UUID() + `"` }

// remember notes which resources there are; undo puts them back. Resources are replaced rather than changed by writes.
func (c *Cloud) remember() (undo func()) {
	was := map[string]map[string]*Resource{}
	for name, s := range c.shelves {
		was[name] = maps.Clone(s.state.Resources)
	}
	return func() {
		for name, s := range c.shelves {
			s.state.Resources = was[name]
		}
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
