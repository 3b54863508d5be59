package gcp

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/zopday/provisioner/internal/sim"
)

// visible says whether a read sees an object now.
func (e *Compute) visible(r *request, res *Resource, byList bool) bool {
	if res.First != "" || res.Default || r.HTTP == nil {
		return true
	}
	by := sim.ByID
	if byList {
		by = sim.ByList
	}
	words := []string{res.name(), e.kinds[res.Collection].noun, res.Collection, str(res.Doc, "description")}
	labels := labelsOf(res.Doc)
	for _, k := range keysOf(labels) {
		words = append(words, labels[k])
	}
	return e.cloud.World.Visible(r.Call, res.Path, res.Created, by, strings.Join(words, " "))
}

// listed are the objects of a collection in a scope that a list shows; an empty scope means all.
func (e *Compute) listed(r *request, k *kind, scope string) ([]Doc, error) {
	match, err := parseFilter(r.Query.Get("filter"))
	if err != nil {
		return nil, err
	}
	var out []Doc
	for _, res := range e.ofKind(r.Project.ID, k.collection) {
		if (scope != "" && res.scope() != scope) || !e.visible(r, res, true) {
			continue
		}
		if doc := e.shown(res); match(doc) {
			out = append(out, doc)
		}
	}
	order(out, r.Query.Get("orderBy"))
	return out, nil
}

// order sorts a list: by name, or as orderBy asks.
func order(items []Doc, by string) {
	sort.SliceStable(items, func(i, j int) bool {
		if by == "creationTimestamp desc" {
			return str(items[i], "creationTimestamp") > str(items[j], "creationTimestamp")
		}
		return str(items[i], "name") < str(items[j], "name")
	})
}

func (e *Compute) list(k *kind) operation {
	return func(r *request) (any, error) {
		if err := e.checkScope(r); err != nil {
			return nil, err
		}
		items, err := e.listed(r, k, scopeIn(r))
		if err != nil {
			return nil, err
		}
		return r.listAnswer(items, k.kindName()+"List", "projects/"+r.Project.ID+"/"+scopeIn(r)+"/"+k.collection)
	}
}

// listAnswer is one page of a list of Compute Engine.
func (r *request) listAnswer(items []Doc, kindName, path string) (any, error) {
	page, next, err := pageOf(r, items, "maxResults", 500)
	if err != nil {
		return nil, err
	}
	d := Doc{"kind": kindName, "id": path, "selfLink": selfLink(path)}
	if len(page) > 0 {
		d["items"] = page
	}
	if next != "" {
		d["nextPageToken"] = next
	}
	return d, nil
}

func (e *Compute) aggregated(k *kind) operation {
	return func(r *request) (any, error) {
		items, err := e.listed(r, k, "")
		if err != nil {
			return nil, err
		}
		return e.aggregatedAnswer(r, k.collection, k.kindName()+"AggregatedList", scopesOf(k), items)
	}
}

// scopesOf are the scopes in which objects of a kind may be.
func scopesOf(k *kind) []string {
	var out []string
	for _, s := range keysOf(k.resources) {
		switch s {
		case "":
			out = append(out, "global")
		case "regions":
			for _, reg := range regionNames() {
				out = append(out, "regions/"+reg)
			}
		case "zones":
			for _, z := range zoneNames() {
				out = append(out, "zones/"+z)
			}
		}
	}
	return out
}

// aggregatedAnswer is one page of an aggregated list: by scope, those without objects with a warning.
func (e *Compute) aggregatedAnswer(r *request, collection, kindName string, scopes []string, items []Doc) (any, error) {
	page, next, err := pageOf(r, items, "maxResults", 500)
	if err != nil {
		return nil, err
	}
	byScope := Doc{}
	for _, doc := range page {
		scope := scopeOf(strings.TrimPrefix(str(doc, "selfLink"), apiRoot))
		in, _ := byScope[scope].(Doc)
		if in == nil {
			in = Doc{}
			byScope[scope] = in
		}
		held, _ := in[collection].([]any)
		in[collection] = append(held, doc)
	}
	for _, scope := range scopes {
		if byScope[scope] == nil {
			byScope[scope] = Doc{"warning": Doc{"code": "NO_RESULTS_ON_PAGE", "message": fmt.Sprintf("There are no results for scope '%s' on this page.", scope),
				"data": []any{Doc{"key": "scope", "value": scope}}}}
		}
	}
	path := "projects/" + r.Project.ID + "/aggregated/" + collection
	d := Doc{"kind": kindName, "id": path, "selfLink": selfLink(path), "items": byScope}
	if next != "" {
		d["nextPageToken"] = next
	}
	return d, nil
}

func (e *Compute) operationsIn(r *request, scope string) ([]Doc, error) {
	match, err := parseFilter(r.Query.Get("filter"))
	if err != nil {
		return nil, err
	}
	var out []Doc
	for _, path := range keysOf(e.st.Operations) {
		op := e.st.Operations[path]
		if op.Project == r.Project.ID && (scope == "" || scopeOf(path) == scope) {
			if doc := op.shown(); match(doc) {
				out = append(out, doc)
			}
		}
	}
	order(out, r.Query.Get("orderBy"))
	return out, nil
}

func (e *Compute) listOperations(r *request) (any, error) {
	if err := e.checkScope(r); err != nil {
		return nil, err
	}
	items, err := e.operationsIn(r, scopeIn(r))
	if err != nil {
		return nil, err
	}
	return r.listAnswer(items, "compute#operationList", "projects/"+r.Project.ID+"/"+scopeIn(r)+"/operations")
}

func (e *Compute) aggregatedOperations(r *request) (any, error) {
	items, err := e.operationsIn(r, "")
	if err != nil {
		return nil, err
	}
	return e.aggregatedAnswer(r, "operations", "compute#operationAggregatedList", []string{"global"}, items)
}

// pageOf cuts one page from a list; limit is the page size that is used when the parameter does not say another, and the
// greatest. Faults of kind page and the world's options make pages small, empty or endlessly the same, as clients have met
// in the wild.
func pageOf[T any](r *request, all []T, sizeParam string, limit int) (page []T, next string, err error) {
	if s := r.Query.Get(sizeParam); s != "" {
		n, _ := strconv.Atoi(s) // the schema has checked that it is a number
		if n < 0 || (sizeParam == "maxResults" && n > limit) {
			return nil, "", invalidField(sizeParam, s, fmt.Sprintf("Must be between 0 and %d.", limit))
		}
		if n > 0 {
			limit = min(n, limit)
		}
	}
	w := r.cloud.World
	if size := w.Options().PageSize; size > 0 {
		limit = min(limit, size)
	}
	start, wasEmpty := 0, false
	if token := r.Query.Get("pageToken"); token != "" {
		var ok bool
		if start, wasEmpty, ok = readToken(token); !ok || start > len(all) {
			return nil, "", invalidField("pageToken", token, "")
		}
	}
	end := min(start+limit, len(all))
	if f := w.Take(r.Call, sim.FaultPage, ""); f != nil {
		if f.Mode == "repeat" {
			return all[start:end], pageToken(start, false), nil
		}
		return nil, pageToken(start, true), nil
	}
	if p := w.Options().EmptyPages; p > 0 && end < len(all) && !wasEmpty &&
		w.Fraction("page", r.Operation, strconv.Itoa(start), strconv.Itoa(len(all))) < p {
		return nil, pageToken(start, true), nil
	}
	if end < len(all) {
		next = pageToken(end, false)
	}
	return all[start:end], next, nil
}

// pageToken names the position where the next page starts; after an empty page it says so, so that the next one is not.
func pageToken(pos int, empty bool) string {
	t := fmt.Sprintf("CgwI%06x", pos)
	if empty {
		t += "EgA"
	}
	return t + "="
}

func readToken(token string) (pos int, empty, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimSuffix(token, "="), "CgwI")
	rest, empty = strings.CutSuffix(rest, "EgA")
	n, err := strconv.ParseInt(rest, 16, 32)
	return int(n), empty, ok && err == nil
}

// without are those of a list that are not in another.
func without(all, gone []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(gone, s) })
}
