package sim

import (
	"slices"
	"strings"
	"time"
)

// An Entry is one line of the books: a request as the simulated cloud saw it.
type Entry struct {
	Seq       int       `json:"seq"`
	Time      time.Time `json:"time"`     // simulated
	WallTime  time.Time `json:"wallTime"` // real
	Cloud     string    `json:"cloud"`
	Service   string    `json:"service"`
	Operation string    `json:"operation"`
	Mutating  bool      `json:"mutating"`
	Resources []string  `json:"resources,omitempty"`
	Account   string    `json:"account,omitempty"`
	Caller    string    `json:"caller,omitempty"` // access key or principal
	Region    string    `json:"region,omitempty"`
	Status    int       `json:"status"` // 0: no answer was sent
	Code      string    `json:"code,omitempty"`
	Actions   []string  `json:"actions,omitempty"` // what the caller needs for it, in the cloud's own words
	Fault     string    `json:"fault,omitempty"`   // kind of the fault that hit, if any
	FaultID   string    `json:"faultId,omitempty"`
	// Done says that the operation was carried out, whether or not the answer arrived.
	Done bool `json:"done"`
}

// A BookFilter selects entries; zero fields select everything.
type BookFilter struct {
	Cloud, Service, Operation, Account, Caller, Region string
	Resource                                           string // substring of one of the resources
	Mutating                                           *bool
	Status                                             int
	Fault                                              string // a kind, or "any"
	Since                                              int    // only entries with a greater Seq
	Limit                                              int    // the newest so many
}

func (f BookFilter) match(e Entry) bool {
	eq := func(want, got string) bool { return want == "" || globMatch(want, got) }
	return eq(f.Cloud, e.Cloud) && eq(f.Service, e.Service) && eq(f.Operation, e.Operation) && eq(f.Account, e.Account) &&
		eq(f.Caller, e.Caller) && eq(f.Region, e.Region) && e.Seq > f.Since &&
		(f.Mutating == nil || *f.Mutating == e.Mutating) &&
		(f.Status == 0 || f.Status == e.Status) &&
		(f.Fault == "" || f.Fault == e.Fault || (f.Fault == "any" && e.Fault != "")) &&
		(f.Resource == "" || slices.ContainsFunc(e.Resources, func(r string) bool { return strings.Contains(r, f.Resource) }))
}

// Books answers the recorded requests that a filter selects, oldest first.
func (w *World) Books(f BookFilter) []Entry {
	w.bookMu.Lock()
	defer w.bookMu.Unlock()
	out := []Entry{}
	for _, e := range w.books {
		if f.match(e) {
			out = append(out, e)
		}
	}
	if f.Limit > 0 && len(out) > f.Limit {
		out = out[len(out)-f.Limit:]
	}
	return out
}

// record writes one entry.
func (w *World) record(e Entry) {
	w.bookMu.Lock()
	defer w.bookMu.Unlock()
	w.seq++
	e.Seq = w.seq
	if len(w.books) >= maxBooks {
		w.books = slices.Delete(w.books, 0, maxBooks/4)
	}
	w.books = append(w.books, e)
}

// maxBooks bounds the books of a simulation that runs for weeks: the oldest quarter goes when it is reached.
const maxBooks = 200000

// globMatch matches a pattern in which * stands for any run of characters; case does not count.
func globMatch(pattern, s string) bool {
	pattern, s = strings.ToLower(pattern), strings.ToLower(s)
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == s
	}
	if !strings.HasPrefix(s, parts[0]) {
		return false
	}
	s = s[len(parts[0]):]
	last := parts[len(parts)-1]
	for _, p := range parts[1 : len(parts)-1] {
		i := strings.Index(s, p)
		if i < 0 {
			return false
		}
		s = s[i+len(p):]
	}
	return strings.HasSuffix(s, last)
}
