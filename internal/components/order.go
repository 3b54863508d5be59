package components

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/job"
)

// Order puts components into levels: those of one level do not depend on each
// other, and depend on earlier levels alone. What a component depends on and
// nobody asks for is taken to be there. Within a level the request's order is
// kept. Fields of an error are relative to the list, such as [2].name; [At] puts
// the list's place before them.
func Order(specs []job.ComponentSpec, c *Catalogue) ([][]job.ComponentSpec, error) {
	inv := &job.Invalid{}
	releases, places := map[string]int{}, map[string]int{}
	for i, s := range specs {
		if _, ok := c.Get(s.Name); !ok {
			inv.Fields = append(inv.Fields, unknownComponent(fmt.Sprintf("[%d].name", i), s.Name, c))
			continue
		}
		release := c.Place(s).Release
		if first, taken := releases[release]; taken {
			inv.Fields = append(inv.Fields, job.FieldError{
				Field: fmt.Sprintf("[%d].release", i), Message: fmt.Sprintf("[%d] has a release %s already", first, release),
				Fix: "give it a release name of its own",
			})
			continue
		}
		releases[release] = i
		if _, twice := places[s.Name]; !twice {
			places[s.Name] = i
		}
	}
	if len(inv.Fields) > 0 {
		return nil, inv
	}
	// Two releases of one component share its dependencies, and both come before
	// what depends on the component.
	var names []string
	for name := range places {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(places[a], places[b]) })
	byLevel, circle := levels(names, c.dependencies)
	if circle != nil {
		inv.Fields = append(inv.Fields, job.FieldError{
			Field: fmt.Sprintf("[%d].name", places[circle[0]]), Message: "depends on itself: " + strings.Join(circle, " → "),
			Fix: "put the catalogue's dependsOn right",
		})
		return nil, inv
	}
	var out [][]job.ComponentSpec
	for _, level := range byLevel {
		var specsOf []job.ComponentSpec
		for _, s := range specs {
			if slices.Contains(level, s.Name) {
				specsOf = append(specsOf, s)
			}
		}
		out = append(out, specsOf)
	}
	return out, nil
}

// levels sorts names by their dependencies among each other; circle is one that
// cannot be sorted, its first name repeated at its end.
func levels(names []string, of func(string) []string) (out [][]string, circle []string) {
	depth, listed := map[string]int{}, map[string]bool{}
	for _, name := range names {
		listed[name] = true
	}
	var visit func(name string, above []string) []string
	visit = func(name string, above []string) []string {
		if i := slices.Index(above, name); i >= 0 {
			return append(slices.Clone(above[i:]), name)
		}
		if _, done := depth[name]; done {
			return nil
		}
		d, path := 0, append(slices.Clone(above), name)
		for _, on := range of(name) {
			if c := visit(on, path); c != nil {
				return c
			}
			// A dependency that is not in the list passes on what it depends on itself.
			after := depth[on]
			if listed[on] {
				after++
			}
			d = max(d, after)
		}
		depth[name] = d
		return nil
	}
	byDepth := map[int][]string{}
	deepest := -1
	for _, name := range names {
		if c := visit(name, nil); c != nil {
			return nil, c
		}
		byDepth[depth[name]] = append(byDepth[depth[name]], name)
		deepest = max(deepest, depth[name])
	}
	for d := range deepest + 1 {
		if len(byDepth[d]) > 0 {
			out = append(out, byDepth[d])
		}
	}
	return out, nil
}

// unknownComponent says that the catalogue has no such component, and what it
// has that is near.
func unknownComponent(field, name string, c *Catalogue) job.FieldError {
	fix := "use a name from GET /catalog/components"
	for _, e := range c.List(Query{}) {
		if strings.Contains(e.Name, name) && name != "" || strings.Contains(name, e.Name) {
			fix = fmt.Sprintf("%s, such as %s", fix, e.Name)
			break
		}
	}
	return job.FieldError{Field: field, Message: fmt.Sprintf("the catalogue has no component %.60q", name), Fix: fix}
}

// A Place is where a release is in a cluster.
type Place struct {
	Namespace string `json:"namespace"`
	Release   string `json:"release"`
}

// ID is the release's ID in the inventory.
func (p Place) ID() string { return p.Namespace + "/" + p.Release }

// Place is where a component goes: as the request says, else as the catalogue does.
func (c *Catalogue) Place(s job.ComponentSpec) Place {
	e := c.entries[s.Name]
	p := Place{Namespace: cmp.Or(s.Namespace, e.Namespace), Release: s.Release}
	if p.Release == "" || p.Release == s.Name {
		p.Release = cmp.Or(e.Release, s.Name)
	}
	return p
}

// At puts a place before the fields of an Invalid, such as
// config.spec.components[2]; another error stays as it is.
func At(place string, err error) error {
	inv := asInvalid(err)
	if inv == nil {
		return err
	}
	out := &job.Invalid{}
	for _, f := range inv.Fields {
		if strings.HasPrefix(f.Field, "[") {
			f.Field = place + f.Field
		} else {
			f.Field = place + "." + f.Field
		}
		out.Fields = append(out.Fields, f)
	}
	return out
}
