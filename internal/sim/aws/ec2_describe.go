package aws

import (
	"encoding/base64"
	"encoding/json"
	"reflect"
	"regexp"
	"sort"
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
	var at position
	if p.NextToken != "" {
		var err error
		if at, err = parseToken(p.NextToken); err != nil {
			return nil, "", refuse("InvalidNextToken", "The token '%s' is invalid", p.NextToken)
		}
	}
	order := seqs(items)
	start := at.in(len(items), order)
	if f := c.World.Take(r.Call, sim.FaultPage, ""); f != nil {
		if f.Mode == "repeat" {
			end := min(len(items), max(size, 1))
			return items[:end], position{Empty: 1}.token(), nil
		}
		at.Empty++
		return nil, at.token(), nil
	}
	chance := opt.EmptyPages
	if chance > 0 && p.MaxResults != nil && at.Empty == 0 && c.World.Fraction("page", r.Operation, strconv.Itoa(start), strconv.Itoa(len(items))) < chance {
		at.Empty++
		return nil, at.token(), nil
	}
	end := start + size
	if end >= len(items) {
		return items[start:], "", nil
	}
	next := position{Offset: end}
	if order != nil && end > 0 {
		next.Seq = &order[end-1]
	}
	return items[start:end], next.token(), nil
}

// position is where the next page of a list begins, and how many empty pages were sent for it.
type position struct {
	Offset int  `json:"o"`
	Seq    *int `json:"s,omitempty"` // of the last object before it, in a list that is in order
	Empty  int  `json:"e"`
}

// in finds the position in the list as it is now. A list changes between two of its pages: objects go, and begin to show.
// No token becomes invalid by that, and no object that was there all the time is left out.
func (p position) in(n int, order []int) int {
	if p.Seq == nil || order == nil {
		return min(p.Offset, n)
	}
	return sort.Search(n, func(i int) bool { return order[i] > *p.Seq })
}

// seqs are the numbers of a list's objects; nil if they have none, or are not in that order.
func seqs[T any](items []T) []int {
	var out []int
	for i, x := range items {
		o, ok := any(x).(thing)
		if !ok || i > 0 && o.head().Seq <= out[i-1] {
			return nil
		}
		out = append(out, o.head().Seq)
	}
	return out
}

// token hides a position.
func (p position) token() string {
	b, _ := json.Marshal(p) // numbers can always be written
	return base64.StdEncoding.EncodeToString(b)
}

func parseToken(token string) (p position, err error) {
	b, err := base64.StdEncoding.DecodeString(token)
	if err != nil {
		return p, err
	}
	if err = json.Unmarshal(b, &p); err == nil && p.Offset < 0 {
		err = errBadToken
	}
	return p, err
}

// blank makes an empty object of a kind.
func blank[T thing](t T) T {
	return reflect.New(reflect.TypeOf(t).Elem()).Interface().(T)
}
