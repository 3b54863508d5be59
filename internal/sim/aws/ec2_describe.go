package aws

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"

	"github.com/zopday/provisioner/internal/sim"
)

// Filter is a filter of a Describe operation.
type Filter struct {
	Name  string
	Value []string
}

// page is the part of a Describe request that all of them share.
type page struct {
	Filter     []Filter
	MaxResults *int
	NextToken  string
}

// wildcard matches a filter value, in which * and ? are wildcards and a backslash escapes them ("Filter wildcards",
// Amazon EC2 user guide).
func wildcard(pattern, s string) bool {
	if !strings.ContainsAny(pattern, `*?\`) {
		return pattern == s
	}
	var b strings.Builder
	b.WriteString("(?s)^")
	for i := 0; i < len(pattern); i++ {
		switch c := pattern[i]; {
		case c == '*':
			b.WriteString(".*")
		case c == '?':
			b.WriteString(".")
		case c == '\\' && i+1 < len(pattern):
			i++
			b.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		default:
			b.WriteString(regexp.QuoteMeta(string(c)))
		}
	}
	re, err := regexp.Compile(b.String() + "$")
	return err == nil && re.MatchString(s)
}

func anyMatch(patterns, values []string) bool {
	for _, p := range patterns {
		for _, v := range values {
			if wildcard(p, v) {
				return true
			}
		}
	}
	return false
}

// matches applies filters: all of them must hold, each with any of its values.
func matches(t thing, filters []Filter) (bool, error) {
	for _, f := range filters {
		var got []string
		switch {
		case strings.HasPrefix(f.Name, "tag:"):
			for _, tag := range t.head().Tags {
				if tag.Key == f.Name[len("tag:"):] {
					got = append(got, tag.Value)
				}
			}
		case f.Name == "tag-key":
			for _, tag := range t.head().Tags {
				got = append(got, tag.Key)
			}
		case f.Name == "tag-value":
			for _, tag := range t.head().Tags {
				got = append(got, tag.Value)
			}
		default:
			v, ok := t.attr(f.Name)
			if !ok {
				return false, refuse("InvalidParameterValue", "The filter '%s' is invalid", f.Name)
			}
			got = v
		}
		if !anyMatch(f.Value, got) {
			return false, nil
		}
	}
	return true, nil
}

// seen says whether a read sees an object yet.
func (e *EC2) seen(c *sim.Call, t thing, by sim.Lookup) bool {
	h := t.head()
	if h.Seq <= 0 { // part of a fresh account
		return true
	}
	words := []string{t.kind()}
	for _, tag := range h.Tags {
		words = append(words, tag.Value)
	}
	return e.cloud.World.Visible(c, t.ident(), h.Created, by, strings.Join(words, " "))
}

// find picks objects for a Describe: the named ones (a missing one is an error), or all that match the filters.
func find[T thing](e *EC2, r *request, all map[string]T, ids []string, filters []Filter, notFound func(id string) *Error) ([]T, error) {
	var out []T
	if len(ids) > 0 {
		done := map[string]bool{}
		for _, id := range ids {
			o, ok := all[id]
			if !ok || !e.seen(r.Call, o, sim.ByID) {
				return nil, notFound(id)
			}
			hit, err := matches(o, filters)
			if err != nil {
				return nil, err
			}
			if hit && !done[id] {
				done[id] = true
				out = append(out, o)
			}
		}
		return out, nil
	}
	// A filter by the object's own ID reads the same index as a lookup by ID does.
	for _, o := range inOrder(all) {
		hit, err := matches(o, filters)
		if err != nil {
			return nil, err
		}
		if hit && e.seen(r.Call, o, sim.ByList) {
			out = append(out, o)
		}
	}
	// A filter that the kind does not have is refused even when there is nothing to filter.
	if len(all) == 0 {
		var none T
		if _, err := matches(blank(none), filters); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// paginate cuts a list into pages. AWS may answer an empty page together with a token ("Pagination", Amazon EC2 API
// reference: continue until NextToken is null); the world's options decide how often that happens here.
func paginate[T any](c *Cloud, r *request, items []T, p page, lowest, most int) ([]T, string, error) {
	size := len(items)
	if p.MaxResults != nil {
		size = *p.MaxResults
		if size < lowest {
			return nil, "", refuse("InvalidParameterValue", "Value ( %d ) for parameter maxResults is invalid. Expecting a value greater than or equal to %d.", size, lowest)
		}
		if size > most {
			size = most
		}
	}
	opt := c.World.Options()
	if opt.PageSize > 0 && size > opt.PageSize {
		size = opt.PageSize
	}
	start, n := 0, 0
	if p.NextToken != "" {
		var err error
		if start, n, err = parseToken(p.NextToken); err != nil || start > len(items) {
			return nil, "", refuse("InvalidNextToken", "The token '%s' is invalid", p.NextToken)
		}
	}
	if f := c.World.Take(r.Call, sim.FaultPage, ""); f != nil {
		if f.Mode == "repeat" {
			end := min(len(items), max(size, 1))
			return items[:end], pageToken(0, 1), nil
		}
		return nil, pageToken(start, n+1), nil
	}
	chance := opt.EmptyPages
	if chance > 0 && p.MaxResults != nil && n == 0 && c.World.Fraction("page", r.Operation, strconv.Itoa(start), strconv.Itoa(len(items))) < chance {
		return nil, pageToken(start, n+1), nil
	}
	end := start + size
	if end >= len(items) {
		return items[start:], "", nil
	}
	return items[start:end], pageToken(end, 0), nil
}

// pageToken hides an offset, and how many empty pages were sent for it.
func pageToken(start, empty int) string {
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, `{"v":1,"o":%d,"e":%d,"pad":"eyJ2IjoiMSJ9"}`, start, empty))
}

func parseToken(token string) (start, empty int, err error) {
	b, err := base64.StdEncoding.DecodeString(token)
	if err != nil {
		return 0, 0, err
	}
	_, err = fmt.Sscanf(string(b), `{"v":1,"o":%d,"e":%d,`, &start, &empty)
	return start, empty, err
}

// blank makes an empty object of a kind.
func blank[T thing](t T) T {
	return reflect.New(reflect.TypeOf(t).Elem()).Interface().(T)
}
