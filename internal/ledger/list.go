package ledger

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/job"
)

// A SortKey is what a list of jobs is sorted by.
type SortKey string

// The sort keys. Ties are broken by ID.
const (
	SortCreated SortKey = "createdAt"
	SortUpdated SortKey = "updatedAt"
	SortName    SortKey = "name"
)

// An Order is a direction of sorting.
type Order string

// The orders.
const (
	Asc  Order = "asc"
	Desc Order = "desc"
)

// A Filter chooses jobs and says in which order they come; an empty field
// chooses all.
type Filter struct {
	Status                 []job.Status
	Phase                  job.Phase
	Kind                   job.Kind
	ResourceType           job.ResourceType
	Provider               job.Provider
	Mode                   job.Mode
	Subject                string            // subject ID
	Name                   string            // part of the name, in any case
	Labels                 map[string]string // all of them
	CreatedFrom, CreatedTo time.Time         // From is included, To is not
	Sort                   SortKey           // createdAt by default
	Order                  Order             // by default desc for times, asc for names
	Limit                  int               // 50 by default, 500 at most
	Cursor                 string            // next of the page before
}

// A cursor is the place after the last job of a page: its sort value and ID, so
// that jobs which come or go meanwhile neither repeat nor hide others.
type cursor struct {
	Sort  SortKey `json:"s"`
	Order Order   `json:"o"`
	Num   int64   `json:"n,omitempty"`
	Text  string  `json:"t,omitempty"`
	ID    string  `json:"i"`
}

func (c cursor) encode() string {
	b, _ := json.Marshal(c) // strings and numbers only
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeCursor(s string) (c cursor, err error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil {
		return c, ErrBadCursor
	}
	if err := json.Unmarshal(b, &c); err != nil || c.ID == "" {
		return c, ErrBadCursor
	}
	return c, nil
}

// conditions builds a WHERE clause with numbered placeholders.
type conditions struct {
	where []string
	args  []any
}

// add appends a condition, in which each ? stands for the next value.
func (c *conditions) add(cond string, values ...any) {
	for _, v := range values {
		c.args = append(c.args, v)
		cond = strings.Replace(cond, "?", fmt.Sprintf("$%d", len(c.args)), 1)
	}
	c.where = append(c.where, cond)
}

func (c *conditions) String() string { return strings.Join(c.where, " AND ") }

// see leaves the jobs that a caller may see.
func (c *conditions) see(v job.Visible) {
	if v.All {
		return
	}
	var either []string
	var values []any
	for _, by := range []struct {
		column string
		ids    []string
	}{{"team_id", v.Teams}, {"id", v.IDs}} {
		ids := slices.DeleteFunc(slices.Clone(by.ids), func(id string) bool { return id == "" })
		if len(ids) == 0 {
			continue
		}
		either = append(either, by.column+" IN ("+strings.TrimSuffix(strings.Repeat("?, ", len(ids)), ", ")+")")
		for _, id := range ids {
			values = append(values, id)
		}
	}
	if len(either) == 0 {
		either = []string{"1 = 0"}
	}
	c.add("("+strings.Join(either, " OR ")+")", values...)
}

// List returns a page of those of an organisation's jobs that the caller may see.
// next is the Cursor of the page after it, empty if there is none.
func (l *Ledger) List(ctx context.Context, org string, see job.Visible, f Filter) (jobs []job.Job, next string, err error) {
	if f.Sort == "" {
		f.Sort = SortCreated
	}
	if f.Order == "" {
		f.Order = Desc
		if f.Sort == SortName {
			f.Order = Asc
		}
	}
	if f.Limit <= 0 {
		f.Limit = 50
	}
	f.Limit = min(f.Limit, 500)
	column, ok := map[SortKey]string{SortCreated: "created_at", SortUpdated: "updated_at", SortName: "name"}[f.Sort]
	if !ok || f.Order != Asc && f.Order != Desc {
		return nil, "", fmt.Errorf("jobs: cannot sort by %q %q", f.Sort, f.Order)
	}
	c := f.conditions(org)
	c.see(see)
	if f.Cursor != "" {
		cur, err := decodeCursor(f.Cursor)
		if err != nil {
			return nil, "", err
		}
		if cur.Sort != f.Sort || cur.Order != f.Order {
			return nil, "", fmt.Errorf("%w: it is of a list sorted by %s %s", ErrBadCursor, cur.Sort, cur.Order)
		}
		var value any = cur.Num
		if f.Sort == SortName {
			value = cur.Text
		}
		op := ">"
		if f.Order == Desc {
			op = "<"
		}
		c.add("("+column+", id) "+op+" (?, ?)", value, cur.ID)
	}
	c.args = append(c.args, f.Limit+1)
	jobs, err = l.selectJobs(ctx, fmt.Sprintf(`%s ORDER BY %s %s, id %s LIMIT $%d`, &c, column, f.Order, f.Order, len(c.args)), c.args...)
	if err != nil {
		return nil, "", err
	}
	if len(jobs) > f.Limit {
		jobs = jobs[:f.Limit]
		last := &jobs[f.Limit-1]
		cur := cursor{Sort: f.Sort, Order: f.Order, ID: last.ID}
		switch f.Sort {
		case SortName:
			cur.Text = last.Name
		case SortUpdated:
			cur.Num = last.UpdatedAt.UnixMicro()
		default:
			cur.Num = last.CreatedAt.UnixMicro()
		}
		next = cur.encode()
	}
	return jobs, next, nil
}

func (f *Filter) conditions(org string) conditions {
	var c conditions
	c.add("org_id = ?", org)
	if len(f.Status) > 0 {
		marks := strings.TrimSuffix(strings.Repeat("?, ", len(f.Status)), ", ")
		var values []any
		for _, s := range f.Status {
			values = append(values, string(s))
		}
		c.add("status IN ("+marks+")", values...)
	}
	for _, e := range []struct{ column, value string }{
		{"phase", string(f.Phase)}, {"kind", string(f.Kind)}, {"resource_type", string(f.ResourceType)},
		{"provider", string(f.Provider)}, {"mode", string(f.Mode)}, {"subject_id", f.Subject},
	} {
		if e.value != "" {
			c.add(e.column+" = ?", e.value)
		}
	}
	if f.Name != "" {
		esc := strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(strings.ToLower(f.Name))
		c.add(`lower(name) LIKE ? ESCAPE '\'`, "%"+esc+"%")
	}
	for _, k := range sortedKeys(f.Labels) {
		c.add("labels ->> CAST(? AS text) = ?", k, f.Labels[k])
	}
	if !f.CreatedFrom.IsZero() {
		c.add("created_at >= ?", f.CreatedFrom.UnixMicro())
	}
	if !f.CreatedTo.IsZero() {
		c.add("created_at < ?", f.CreatedTo.UnixMicro())
	}
	return c
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
