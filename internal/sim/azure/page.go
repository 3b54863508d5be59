package azure

import (
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/zopday/provisioner/internal/sim"
)

// pageSize is how many items a page has when the caller does not say.
const pageSize = 100

// list answers a collection: below a resource, in a group, or in a subscription.
func (c *Cloud) list(r *request, k *kind) (answer, error) {
	parent, nested := r.id.parent()
	prefix := r.id.prefix()
	if nested {
		prefix = parent.String()
		if c.find(prefix) == nil {
			return answer{}, k.says.orphan(r, parent)
		}
	} else if err := c.enclosing(r, k); err != nil {
		return answer{}, err
	}
	var all []any
	for _, res := range c.shelves[k.service].sorted() {
		if strings.EqualFold(res.Type, k.typ) && strings.HasPrefix(key(res.ID), key(prefix)+"/") && r.visible(res, true) {
			all = append(all, c.render(r, res))
		}
	}
	return r.page(all, "$skiptoken")
}

// The marks of a page token: the position where the page starts, and whether the page before it was empty.
const (
	tokenPrefix = "eyJv"
	emptyMark   = "-e"
)

// page cuts one page from all and says where the next one is. Faults of kind page and the world's options make pages
// small, empty, or endlessly the same.
func (r *request) page(all []any, tokenName string) (answer, error) {
	start, given := 0, r.query.Get(tokenName)
	if given != "" {
		rest, ok := strings.CutPrefix(strings.TrimSuffix(given, emptyMark), tokenPrefix)
		n, err := strconv.Atoi(rest)
		if !ok || err != nil || n < 0 {
			return answer{}, refuse(http.StatusBadRequest, "InvalidSkipToken", "The skip token '%s' is invalid.", given)
		}
		start = min(n, len(all))
	}
	size := pageSize
	if n, err := strconv.Atoi(r.query.Get("$top")); err == nil && n > 0 {
		size = n
	}
	opt := r.cloud.World.Options()
	if opt.PageSize > 0 {
		size = min(size, opt.PageSize)
	}
	end := min(len(all), start+size)
	next := ""
	if end < len(all) {
		next = tokenPrefix + strconv.Itoa(end)
	}
	if f := r.cloud.World.Take(r.Call, sim.FaultPage, ""); f != nil {
		next = tokenPrefix + strconv.Itoa(start)
		if f.Mode != "repeat" {
			end = start
		}
	} else if p := opt.EmptyPages; p > 0 && end < len(all) && !strings.HasSuffix(given, emptyMark) &&
		r.cloud.World.Fraction("page", r.Operation, strconv.Itoa(start), strconv.Itoa(len(all))) < p {
		end, next = start, tokenPrefix+strconv.Itoa(start)+emptyMark
	}
	value := append([]any{}, all[start:end]...)
	body := map[string]any{"value": value}
	if next != "" {
		q := url.Values{}
		maps.Copy(q, r.query)
		q.Set(tokenName, next)
		body["nextLink"] = r.base + r.path + "?" + q.Encode()
	}
	return answer{status: http.StatusOK, header: http.Header{}, body: body}, nil
}
