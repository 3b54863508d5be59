package azure

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// An index is ARM's own list of resources, which follows the providers at a distance: what was just made, tagged or
// deleted shows there a little later.
type index struct{ cloud *Cloud }

// An indexEntry is what the list knows of a resource.
type indexEntry struct {
	ID       string            `json:"id"`
	Type     string            `json:"type"`
	Location string            `json:"location"`
	Tags     map[string]string `json:"tags,omitempty"`
	Top      doc               `json:"top,omitempty"`
	State    string            `json:"state,omitempty"`
	Changed  time.Time         `json:"changed"`
	Created  time.Time         `json:"created"`
	Gone     bool              `json:"gone,omitempty"`
	// Old is what the list shows until it has noticed the change.
	Old *indexEntry `json:"old,omitempty"`
}

func (x *index) entries() map[string]*indexEntry {
	s := x.cloud.shelves["resources"]
	if s.state.Index == nil {
		s.state.Index = map[string]*indexEntry{}
	}
	return s.state.Index
}

// put notes that a tracked resource was made or changed.
func (x *index) put(r *Resource) {
	// Groups have a list of their own.
	if k := x.cloud.kindOf(r.Type); !k.tracked || r.Type == groupType || strings.Count(r.Type, "/") > 1 && !k.listed {
		return
	}
	if old := x.entries()[key(r.ID)]; old != nil && !old.Gone && maps.Equal(old.Tags, r.Tags) && sameJSON(old.Top, r.Top) {
		old.State = r.State
		return
	}
	e := &indexEntry{ID: r.ID, Type: r.Type, Location: r.Location, Tags: r.Tags, Top: r.Top, State: r.State, Changed: x.cloud.World.Now(), Created: r.Created}
	x.replace(e)
}

// gone notes that a resource is no more.
func (x *index) gone(r *Resource) {
	if old := x.entries()[key(r.ID)]; old != nil {
		e := *old
		e.Gone, e.Changed, e.Old = true, x.cloud.World.Now(), nil
		x.replace(&e)
	}
}

func (x *index) replace(e *indexEntry) {
	if old := x.entries()[key(e.ID)]; old != nil {
		o := *old
		o.Old = nil
		e.Old = &o
	}
	x.entries()[key(e.ID)] = e
}

// catchUp notes what has come about without a request: what a provider made together with something else, and what was
// changed from outside.
func (x *index) catchUp() {
	live := map[string]bool{}
	for _, s := range x.cloud.shelves {
		for k, r := range s.state.Resources {
			live[k] = true
			if e := x.entries()[k]; e == nil || e.Gone {
				x.put(r)
				if e := x.entries()[k]; e != nil {
					e.Changed = r.Created
				}
			} else {
				x.put(r)
			}
		}
	}
	for k, e := range x.entries() {
		if !live[k] && !e.Gone {
			x.gone(&Resource{ID: e.ID})
		}
	}
}

// shown lists what the index shows of a subscription now, by ID.
func (x *index) shown(r *request, prefix string) []*indexEntry {
	x.catchUp()
	var out []*indexEntry
	all := x.entries()
	for _, k := range sortedKeys(all) {
		e := all[k]
		if !strings.HasPrefix(k, key(prefix)+"/") {
			continue
		}
		text := e.Type + " " + lastOf(e.Type) + " " + lastOf(e.ID) + " " + strings.Join(slices.Collect(maps.Values(e.Tags)), " ")
		if !x.cloud.World.Visible(r.Call, e.ID, e.Changed, lookupByList, text) {
			// A fault that hides the resource hides its former self as well; freshness does not.
			if e = e.Old; e == nil || !x.cloud.World.Visible(r.Call, e.ID, e.Created.Add(-time.Hour), lookupByList, text) {
				continue
			}
		}
		if !e.Gone {
			out = append(out, e)
		}
	}
	return out
}
