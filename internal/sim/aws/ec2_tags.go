package aws

import (
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/zopday/provisioner/internal/sim"
)

// tagSpec is a TagSpecification parameter.
type tagSpec struct {
	ResourceType string
	Tag          []Tag
}

// maxTags is the limit of tags on an object ("Tag restrictions", Amazon EC2 user guide).
const maxTags = 50

func checkTags(tags []Tag) error {
	seen := map[string]bool{}
	for _, t := range tags {
		switch {
		case t.Key == "":
			return refuse("InvalidParameterValue", "Tag key cannot be empty.")
		case utf8.RuneCountInString(t.Key) > 128:
			return refuse("InvalidParameterValue", "Tag key exceeds the maximum length of 128 characters")
		case utf8.RuneCountInString(t.Value) > 256:
			return refuse("InvalidParameterValue", "Tag value exceeds the maximum length of 256 characters")
		case strings.HasPrefix(strings.ToLower(t.Key), "aws:"):
			return refuse("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use")
		case seen[t.Key]:
			return refuse("InvalidParameterValue", "Duplicate tag key '%s' specified.", t.Key)
		}
		seen[t.Key] = true
	}
	if len(tags) > maxTags {
		return refuse("TagLimitExceeded", "The maximum number of tags for a resource has been reached.")
	}
	return nil
}

// tagsFor picks the tags for a resource type out of the specifications of a create call. Other types are refused.
func tagsFor(specs []tagSpec, kind string) ([]Tag, error) {
	var tags []Tag
	for _, s := range specs {
		switch s.ResourceType {
		case kind:
			tags = append(tags, s.Tag...)
		case "":
			return nil, refuse("InvalidParameterValue", "Tag specification must have a resource type")
		default:
			return nil, refuse("InvalidParameterValue", "'%s' is not a valid taggable resource type for this operation.", s.ResourceType)
		}
	}
	return tags, checkTags(tags)
}

type createTagsIn struct {
	ResourceID []string `q:"ResourceId|Resources"`
	Tag        []Tag
}

// taggable finds the objects of a tag call.
func (e *EC2) taggable(r *request, ids []string) ([]thing, error) {
	if len(ids) == 0 {
		return nil, missing("resourceIdSet")
	}
	sc := e.in(r.scope())
	var found []thing
	for _, id := range ids {
		t := sc.thingByID(id)
		// A fresh object may not be known to the tagging service yet.
		if t == nil || !e.seen(r.Call, t, sim.ByID) {
			return nil, notFoundByPrefix(id)
		}
		found = append(found, t)
	}
	r.Touch(ids...)
	return found, nil
}

func (e *EC2) createTags(r *request, in createTagsIn) (any, error) {
	if len(in.Tag) == 0 {
		return nil, missing("tagSet")
	}
	found, err := e.taggable(r, in.ResourceID)
	if err != nil {
		return nil, err
	}
	if err := checkTags(in.Tag); err != nil {
		return nil, err
	}
	for _, t := range found {
		merged := mergeTags(t.head().Tags, in.Tag)
		if len(merged) > maxTags {
			return nil, refuse("TagLimitExceeded", "The maximum number of tags for a resource has been reached.")
		}
	}
	for _, t := range found {
		t.head().Tags = mergeTags(t.head().Tags, in.Tag)
	}
	return returned{true}, nil
}

// mergeTags puts tags over others with the same key.
func mergeTags(old, put []Tag) []Tag {
	out := append([]Tag{}, old...)
next:
	for _, t := range put {
		for i := range out {
			if out[i].Key == t.Key {
				out[i].Value = t.Value
				continue next
			}
		}
		out = append(out, t)
	}
	return out
}

// deleteTagsIn tells an absent value (delete whatever it is) from an empty one (delete only if empty).
type deleteTagsIn struct {
	ResourceID []string `q:"ResourceId|Resources"`
	Tag        []struct {
		Key   string
		Value *string
	}
}

func (e *EC2) deleteTags(r *request, in deleteTagsIn) (any, error) {
	found, err := e.taggable(r, in.ResourceID)
	if err != nil {
		return nil, err
	}
	for _, t := range found {
		kept := []Tag{}
		for _, have := range t.head().Tags {
			drop := len(in.Tag) == 0
			for _, d := range in.Tag {
				drop = drop || (d.Key == have.Key && (d.Value == nil || *d.Value == have.Value))
			}
			if !drop || strings.HasPrefix(have.Key, "aws:") {
				kept = append(kept, have)
			}
		}
		t.head().Tags = kept
	}
	return returned{true}, nil
}

type tagDescription struct {
	ResourceID   string `ec2:"resourceId"`
	ResourceType string `ec2:"resourceType"`
	Key          string `ec2:"key"`
	Value        string `ec2:"value"`
}

func (e *EC2) describeTags(r *request, in page) (any, error) {
	var out []tagDescription
	for _, t := range e.in(r.scope()).all() {
		for _, tag := range t.head().Tags {
			hit := true
			for _, f := range in.Filter {
				var v string
				switch f.Name {
				case "key":
					v = tag.Key
				case "value":
					v = tag.Value
				case "resource-id":
					v = t.ident()
				case "resource-type":
					v = t.kind()
				default:
					if k, ok := strings.CutPrefix(f.Name, "tag:"); !ok {
						return nil, refuse("InvalidParameterValue", "The filter '%s' is invalid", f.Name)
					} else if k == tag.Key {
						v = tag.Value
					} else {
						hit = false
					}
				}
				hit = hit && anyMatch(f.Value, []string{v})
			}
			if hit && e.seen(r.Call, t, sim.ByList) {
				out = append(out, tagDescription{t.ident(), t.kind(), tag.Key, tag.Value})
			}
		}
	}
	sort.SliceStable(out, func(i, j int) bool {
		if out[i].ResourceID != out[j].ResourceID {
			return out[i].ResourceID < out[j].ResourceID
		}
		return out[i].Key < out[j].Key
	})
	items, next, err := paginate(e.cloud, r, out, in, 5, 1000)
	return struct {
		Tags []tagDescription `ec2:"tagSet"`
		Next string           `ec2:"nextToken,omitempty"`
	}{items, next}, err
}
