package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// An Object is something that exists in a simulated cloud.
type Object struct {
	Cloud   string            `json:"cloud"`
	Service string            `json:"service"`
	Account string            `json:"account"`
	Region  string            `json:"region,omitempty"`
	Kind    string            `json:"kind"`
	ID      string            `json:"id"`
	ARN     string            `json:"arn,omitempty"`
	Name    string            `json:"name,omitempty"`
	State   string            `json:"state,omitempty"`
	Tags    map[string]string `json:"tags,omitempty"`
	// Description is a free text on the object, for kinds without tags: it may name the owner.
	Description string `json:"description,omitempty"`
	// Parents are the IDs of the objects that contain this one.
	Parents []string `json:"parents,omitempty"`
	// Default: the cloud made it by itself and it goes with its parent (a main route table); it is no residue.
	Default bool `json:"default,omitempty"`
	// Gone: it no longer exists and is only still listed (a terminated instance); it is neither residue nor part of a
	// snapshot.
	Gone bool `json:"gone,omitempty"`
	// Pristine: it is exactly as in a fresh account; snapshots leave it out.
	Pristine bool `json:"-"`
	// Data points at the live object; its JSON is the snapshot, and the control API changes it in place.
	Data any `json:"data,omitempty"`
}

func (w *World) objects() []Object {
	var all []Object
	for _, s := range w.services {
		for _, o := range s.Objects() {
			o.Cloud, o.Service = s.Cloud(), s.Name()
			all = append(all, o)
		}
	}
	return all
}

// An ObjectFilter selects objects; zero fields select everything.
type ObjectFilter struct {
	Cloud, Service, Account, Region, Kind, ID string
	// Owner selects by a tag value or a name in the description.
	Owner string
	// All includes the objects of a fresh account and those that are gone.
	All bool
}

func (f ObjectFilter) match(o Object) bool {
	return patternOK(f.Cloud, o.Cloud) && patternOK(f.Service, o.Service) && patternOK(f.Account, o.Account) &&
		patternOK(f.Region, o.Region) && patternOK(f.Kind, o.Kind) && patternOK(f.ID, o.ID) &&
		(f.Owner == "" || owned(o, f.Owner)) && (f.All || (!o.Pristine && !o.Gone))
}

// owned says whether a tag value is the owner or the description names it.
func owned(o Object, owner string) bool {
	for _, v := range o.Tags {
		if v == owner {
			return true
		}
	}
	return names(o.Description, owner)
}

// names says whether a text holds a name as a word of its own.
func names(text, name string) bool {
	inWord := func(r rune) bool { return r == '_' || r == '-' || unicode.IsLetter(r) || unicode.IsDigit(r) }
	for from := 0; name != ""; {
		i := strings.Index(text[from:], name)
		if i < 0 {
			return false
		}
		start, end := from+i, from+i+len(name)
		before, _ := utf8.DecodeLastRuneInString(text[:start])
		after, _ := utf8.DecodeRuneInString(text[end:])
		if (start == 0 || !inWord(before)) && (end == len(text) || !inWord(after)) {
			return true
		}
		from = end
	}
	return false
}

// Objects lists what exists. Data is copied, so that it stays as it was.
func (w *World) Objects(f ObjectFilter) []Object {
	w.Lock()
	defer w.Unlock()
	out := []Object{}
	for _, o := range w.objects() {
		if f.match(o) {
			o.Data = frozen(o.Data)
			out = append(out, o)
		}
	}
	return out
}

func frozen(data any) any {
	b, err := json.Marshal(data)
	if err != nil {
		return fmt.Sprintf("%+v", data)
	}
	return json.RawMessage(b)
}

// Residue lists what is left of an owner: everything that carries the owner as a tag value or in
// its description, and what lies inside such
// objects, but for what the cloud itself makes and removes with its parent.
func (w *World) Residue(owner string) []Object {
	w.Lock()
	defer w.Unlock()
	all := w.objects()
	in := map[string]bool{}
	var left []Object
	// Containment can be several levels deep, so the pass is repeated until it finds nothing new.
	for again := true; again; {
		again = false
		for _, o := range all {
			key := o.Service + "/" + o.Account + "/" + o.Region + "/" + o.ID
			if in[key] || o.Gone || o.Default || owner == "" {
				continue
			}
			inside := slices.ContainsFunc(left, func(p Object) bool {
				return p.Account == o.Account && (slices.Contains(o.Parents, p.ID) || (p.ARN != "" && slices.Contains(o.Parents, p.ARN)))
			})
			if owned(o, owner) || inside {
				in[key], again = true, true
				o.Data = frozen(o.Data)
				left = append(left, o)
			}
		}
	}
	if left == nil {
		left = []Object{}
	}
	return left
}

// A Snapshot is the whole simulated account as text, one entry an object, for comparing before and after. It leaves out
// the books, objects that are gone, what is exactly as in a fresh account, and etags and fingerprints, which count changes
// that were undone as well.
type Snapshot map[string]string

// Snapshot dumps every object of every service.
func (w *World) Snapshot() Snapshot {
	w.Lock()
	defer w.Unlock()
	snap := Snapshot{}
	for _, o := range w.objects() {
		if o.Gone || o.Pristine {
			continue
		}
		b, err := json.MarshalIndent(withoutTags(o.Data), "", " ")
		if err != nil {
			b = fmt.Appendf(nil, "%+v", o.Data)
		}
		snap[strings.Join([]string{o.Cloud, o.Service, o.Account, o.Region, o.Kind, o.ID}, "/")] = string(b)
	}
	return snap
}

// withoutTags is data without its etags and fingerprints, at any depth, and with
// empty lists as null.
func withoutTags(data any) any {
	b, err := json.Marshal(data)
	var doc any
	if err != nil || json.Unmarshal(b, &doc) != nil {
		return data
	}
	var walk func(v any)
	walk = func(v any) {
		switch x := v.(type) {
		case map[string]any:
			for k, item := range x {
				list, isList := item.([]any)
				switch low := strings.ToLower(k); {
				case low == "etag" || strings.HasSuffix(low, "fingerprint"):
					delete(x, k)
				case isList && len(list) == 0: // a list that was emptied is one that was never filled
					x[k] = nil
				default:
					walk(item)
				}
			}
		case []any:
			for _, item := range x {
				walk(item)
			}
		}
	}
	walk(doc)
	return doc
}

// find looks an object up by ID, ARN or, if that is unique, by name.
func (w *World) find(cloud, service, id string) (Object, error) {
	var named []Object
	for _, o := range w.objects() {
		if (cloud != "" && o.Cloud != cloud) || (service != "" && o.Service != service) {
			continue
		}
		if o.ID == id || (o.ARN != "" && o.ARN == id) {
			return o, nil
		}
		if o.Name == id && id != "" {
			named = append(named, o)
		}
	}
	switch len(named) {
	case 0:
		return Object{}, fmt.Errorf("id: no object %q", id)
	case 1:
		return named[0], nil
	}
	return Object{}, fmt.Errorf("id: %q is the name of %d objects, give an ID", id, len(named))
}

// SetObjectState drives an object to a state, behind the product's back.
func (w *World) SetObjectState(id, state, code, message string) (Object, error) {
	return w.alter("", "", id, func(s Service, o Object) error { return s.SetState(o.ID, state, code, message) })
}

// RemoveObject takes an object away behind the product's back, whatever uses it.
func (w *World) RemoveObject(id string) (Object, error) {
	return w.alter("", "", id, func(s Service, o Object) error { return s.Remove(o.ID) })
}

// PatchObject merges JSON into an object's data (as GET /_sim/objects shows it), behind the product's back.
func (w *World) PatchObject(id string, patch json.RawMessage) (Object, error) {
	return w.alter("", "", id, func(_ Service, o Object) error {
		if err := json.Unmarshal(patch, o.Data); err != nil {
			return fmt.Errorf("set: %w", err)
		}
		return nil
	})
}

func (w *World) alter(cloud, service, id string, change func(Service, Object) error) (Object, error) {
	w.Lock()
	defer w.Unlock()
	o, err := w.find(cloud, service, id)
	if err != nil {
		return Object{}, err
	}
	if err := change(w.service(o.Cloud, o.Service), o); err != nil {
		return Object{}, err
	}
	if now, err := w.find(o.Cloud, o.Service, o.ID); err == nil {
		o = now
	} else {
		o.Gone = true
	}
	o.Data = frozen(o.Data)
	return o, nil
}

// Invoke carries out an operation of a cloud without any request: how somebody else's object gets there.
func (w *World) Invoke(cloud, service, operation, account, region string, params map[string]any) (any, error) {
	w.Lock()
	defer w.Unlock()
	f, ok := w.fronts[cloud]
	if !ok {
		return nil, fmt.Errorf("cloud: no simulated cloud %q", cloud)
	}
	return f.Invoke(service, operation, account, region, params)
}
