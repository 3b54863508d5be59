package azure

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// known top-level members of a body that are no part of Resource.Top.
var reserved = []string{"id", "name", "type", "location", "tags", "properties", "etag", "systemData"}

// input decodes a body and checks it against the kind's model.
func (r *request) input(says *dialect, model func() any) (doc, error) {
	body := doc{}
	if err := json.Unmarshal(r.body, &body); err != nil {
		if len(r.body) == 0 {
			return nil, refuseARM(http.StatusBadRequest, "MissingRequestBody", "A request body is required for this operation.")
		}
		return nil, refuseARM(http.StatusBadRequest, "InvalidRequestContent", "The request content was invalid and could not be deserialized: '%s'.", err)
	}
	if model == nil {
		return body, nil
	}
	if p, bad := checkBody(r.body, body, model()); bad {
		return nil, says.badBody(p)
	}
	return body, nil
}

// intended is the resource as the body of a PUT wants it.
func (c *Cloud) intended(r *request, k *kind, body doc, old *Resource) (*Resource, error) {
	id := r.id.canonical(k)
	// What it lies in keeps the spelling with which it was made.
	if in := parentOf(id); in != "" {
		id = c.spelled(in) + id[len(in):]
	}
	now := &Resource{ID: id, Type: k.typ, Name: r.id.name(), Properties: doc{}, Top: doc{}}
	if old != nil {
		was := old.clone()
		now.ID, now.Name, now.Created, now.Hold, now.Default = was.ID, was.Name, was.Created, was.Hold, was.Default
	}
	if p := body.sub("properties"); p != nil {
		now.Properties = p.clone()
	}
	delete(now.Properties, "provisioningState")
	for name, v := range body {
		if !slices.Contains(reserved, name) && v != nil {
			now.Top[name] = v
		}
	}
	if !k.tracked {
		return now, nil
	}
	if err := c.place(r, k, now, old, body.str("location")); err != nil {
		return nil, err
	}
	var err error
	now.Tags, err = tagsOf(body.sub("tags"))
	return now, err
}

// canonical is the ID with the types as the provider spells them.
func (id armID) canonical(k *kind) string {
	segs := strings.Split(k.typ, "/")
	id.Namespace, id.Types = segs[0], segs[1:]
	if id.Scope != "" && !k.extension {
		id.Scope = ""
	}
	return id.String()
}

// place checks and sets the location of a tracked resource.
func (c *Cloud) place(r *request, k *kind, now, old *Resource, given string) error {
	location := normalLocation(given)
	switch {
	case location == "":
		return refuseARM(http.StatusBadRequest, "LocationRequired", "The location property is required for this definition.")
	case k.global && location != "global", !k.global && !isLocation(location):
		available := strings.Join(locationNames(), ",")
		if k.global {
			available = "global"
		}
		return refuseARM(http.StatusBadRequest, "LocationNotAvailableForResourceType",
			"The provided location '%s' is not available for resource type '%s'. List of available regions for the resource type is '%s'.", given, k.typ, available)
	case old != nil && old.Location != location:
		return refuseARM(http.StatusConflict, "InvalidResourceLocation",
			"The resource '%s' already exists in location '%s' in resource group '%s'. A resource with the same name cannot be created in location '%s'. Please select a new resource name.",
			now.Name, old.Location, r.id.Group, location)
	}
	now.Location = location
	return nil
}

func normalLocation(s string) string { return strings.ToLower(strings.ReplaceAll(s, " ", "")) }

// tagsOf reads tags and holds them against ARM's limits ("Use tags to organize your Azure resources").
func tagsOf(d doc) (map[string]string, error) {
	if d == nil {
		return nil, nil
	}
	tags := map[string]string{}
	for name, v := range d {
		value, ok := v.(string)
		switch {
		case !ok:
			return nil, refuseARM(http.StatusBadRequest, "InvalidRequestContent", "The request content was invalid and could not be deserialized: 'Unexpected value for tag '%s'.'.", name)
		case strings.ContainsAny(name, `<>%&\?/`):
			return nil, refuseARM(http.StatusBadRequest, "InvalidTagNameCharacters",
				`The tag names '%s' have reserved characters '<,>,%%,&,\,?,/' or control characters.`, name)
		case len(name) > 512:
			return nil, refuseARM(http.StatusBadRequest, "InvalidTagNameLength",
				"Tag name too large. Following tag name '%s' exceeded the maximum length. Maximum allowed length for tag name - '512' characters.", name)
		case len(value) > 256:
			return nil, refuseARM(http.StatusBadRequest, "InvalidTagValueLength",
				"Tag value too large. Following tag value '%s' exceeded the maximum length. Maximum allowed length for tag value - '256' characters.", value)
		}
		for other := range tags {
			if strings.EqualFold(other, name) {
				return nil, refuseARM(http.StatusBadRequest, "InvalidTagName", "The tag name '%s' is given more than once; tag names compare without case.", name)
			}
		}
		tags[name] = value
	}
	if len(tags) > 50 {
		return nil, refuseARM(http.StatusBadRequest, "InvalidTagsCount", "The number of tags '%d' exceeds the maximum of '50' for a resource.", len(tags))
	}
	return tags, nil
}

func (c *Cloud) patch(r *request, k *kind) (answer, error) {
	if err := c.writable(r, k); err != nil {
		return answer{}, err
	}
	res := c.find(r.id.String())
	if res == nil {
		return answer{}, c.missing(r, k)
	}
	body, err := r.input(k.says, k.modelOf(r.version, k.patchModel))
	if err != nil {
		return answer{}, err
	}
	if err := c.conditions(r, k, res); err != nil {
		return answer{}, err
	}
	switch {
	case k.patch != nil:
		return k.patch(r, res, body)
	case k.mergePatch:
		whole := doc{"properties": res.Properties.clone(), "location": res.Location, "tags": tagDoc(res.Tags)}
		maps.Copy(whole, res.Top.clone())
		now, err := c.intended(r, k, merge(whole, body), res)
		if err != nil {
			return answer{}, err
		}
		return c.store(r, k, now, res)
	}
	if k.guard != nil {
		if err := k.guard(r, res.ID); err != nil {
			return answer{}, err
		}
	}
	tags, err := tagsOf(body.sub("tags"))
	if err != nil {
		return answer{}, err
	}
	res.Tags = tags
	c.touch(res)
	c.index.put(res)
	r.Make(res.ID)
	return answer{status: http.StatusOK, header: http.Header{}, body: c.render(r, res)}, nil
}

func tagDoc(tags map[string]string) doc {
	d := doc{}
	for k, v := range tags {
		d[k] = v
	}
	return d
}

// merge lays a JSON merge patch (RFC 7386) over a document.
func merge(into, patch doc) doc {
	for k, v := range patch {
		if v == nil {
			delete(into, k)
			continue
		}
		sub, isDoc := asDoc(v)
		old, wasDoc := asDoc(into[k])
		if isDoc && wasDoc && k != "tags" {
			into[k] = merge(old, sub)
		} else {
			into[k] = v
		}
	}
	return into
}
