package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// FaultKind says what goes wrong.
type FaultKind string

// The kinds of faults. docs/simulation.md has an example of each.
const (
	FaultError      FaultKind = "error"      // refused before anything happened
	FaultLostReply  FaultKind = "lost_reply" // carried out, then the connection is cut
	FaultThrottle   FaultKind = "throttle"   // refused with the service's own throttling code
	FaultDelay      FaultKind = "delay"      // answered late, by real seconds
	FaultHang       FaultKind = "hang"       // never answered
	FaultOpFailed   FaultKind = "op_failed"  // accepted, then the object ends in its failed state
	FaultCapacity   FaultKind = "capacity"   // no capacity for what is asked
	FaultHidden     FaultKind = "hidden"     // an object is not visible to reads for a while
	FaultSwallow    FaultKind = "swallow"    // accepted, never done
	FaultPage       FaultKind = "page"       // empty pages, or the same page for ever
	FaultGuest      FaultKind = "guest"      // the machine does not come up as it should
	FaultTransition FaultKind = "transition" // an object goes to a given state
	FaultRaw        FaultKind = "raw"        // this status and this body
	FaultNameHeld   FaultKind = "name_held"  // the name of a deleted object stays taken
)

var faultKinds = []FaultKind{FaultError, FaultLostReply, FaultThrottle, FaultDelay, FaultHang, FaultOpFailed, FaultCapacity,
	FaultHidden, FaultSwallow, FaultPage, FaultGuest, FaultTransition, FaultRaw, FaultNameHeld}

// A Fault is an order to misbehave. Cloud, Service and Operation are patterns in which * stands for anything; empty means
// all. Match is a substring of the request's parameters or of the objects it names.
type Fault struct {
	ID        string    `json:"id"`
	Cloud     string    `json:"cloud,omitempty"`
	Service   string    `json:"service,omitempty"`
	Operation string    `json:"operation,omitempty"`
	Match     string    `json:"match,omitempty"`
	Account   string    `json:"account,omitempty"`
	Region    string    `json:"region,omitempty"`
	Mutating  *bool     `json:"mutating,omitempty"` // only requests that change something, or only reads
	After     int       `json:"after,omitempty"`    // let so many matching requests pass first
	Count     int       `json:"count,omitempty"`    // hit so many requests; 0 means 1, negative means for ever
	Percent   float64   `json:"percent,omitempty"`  // hit only so many of a hundred, picked by the seed
	Kind      FaultKind `json:"kind"`
	// Mode refines the kind: page "empty" or "repeat"; hang and delay "after" (the change happens first); guest "boot",
	// "agent", "cloud_init", "sentinel", "health", "slow", "degraded", "no_egress", "apt_lock".
	Mode    string `json:"mode,omitempty"`
	Code    string `json:"code,omitempty"`
	Status  int    `json:"status,omitempty"`
	Message string `json:"message,omitempty"`
	// Seconds is how long: for delay and hang in real time, how late; for transition, op_failed and guest in simulated
	// time, how late; for all others how long after it was placed the fault goes on hitting, in simulated time.
	Seconds  float64 `json:"seconds,omitempty"`
	State    string  `json:"state,omitempty"` // transition: the state to go to
	Body     string  `json:"body,omitempty"`  // raw
	ExitCode int     `json:"exitCode,omitempty"`
	Log      string  `json:"log,omitempty"` // guest: what the cloud-init log ends with
	// ContentType and RetryAfter go out as headers; an empty RetryAfter leaves the service's own.
	ContentType string `json:"contentType,omitempty"`
	RetryAfter  string `json:"retryAfter,omitempty"`

	Placed time.Time `json:"placed"` // simulated
	Seen   int       `json:"seen"`
	Hits   int       `json:"hits"`
}

// Duration is Seconds as a duration.
func (f *Fault) Duration() time.Duration { return time.Duration(f.Seconds * float64(time.Second)) }

func (f *Fault) validate() error {
	if !slices.Contains(faultKinds, f.Kind) {
		return fmt.Errorf("kind: unknown fault kind %q, want one of %s", f.Kind, joinKinds())
	}
	if f.After < 0 {
		return fmt.Errorf("after: must not be negative")
	}
	if f.Seconds < 0 {
		return fmt.Errorf("seconds: must not be negative")
	}
	if f.Percent < 0 || f.Percent > 100 {
		return fmt.Errorf("percent: must be from 0 to 100")
	}
	if f.Status != 0 && (f.Status < 100 || f.Status > 599) {
		return fmt.Errorf("status: %d is no HTTP status", f.Status)
	}
	modes := map[FaultKind][]string{
		FaultPage:  {"", "empty", "repeat"},
		FaultHang:  {"", "after"},
		FaultDelay: {"", "after"},
		FaultGuest: {"", "boot", "agent", "cloud_init", "sentinel", "health", "slow", "degraded", "no_egress", "apt_lock"},
	}
	if want, ok := modes[f.Kind]; ok {
		if !slices.Contains(want, f.Mode) {
			return fmt.Errorf("mode: unknown mode %q of %s, want one of %s", f.Mode, f.Kind, strings.Join(want[1:], ", "))
		}
	} else if f.Mode != "" {
		return fmt.Errorf("mode: the kind %s has no modes", f.Kind)
	}
	switch f.Kind {
	case FaultTransition:
		if f.State == "" {
			return fmt.Errorf("state: a transition needs the state to go to")
		}
		if f.Operation == "" && f.Match == "" {
			return fmt.Errorf("match: a transition needs an object (match) or an operation")
		}
	case FaultHidden:
		if f.Seconds == 0 && f.Count == 0 {
			return fmt.Errorf("seconds: a hidden object needs seconds or a count of reads")
		}
	}
	return nil
}

func joinKinds() string {
	var s []string
	for _, k := range faultKinds {
		s = append(s, string(k))
	}
	return strings.Join(s, ", ")
}

// AddFault places a fault. It takes effect with the next request; a transition that names an object but no operation
// happens by itself, after Seconds.
func (w *World) AddFault(f Fault) (Fault, error) {
	if err := f.validate(); err != nil {
		return Fault{}, err
	}
	w.Lock()
	defer w.Unlock()
	w.faultSeq++
	f.ID = "fault-" + strconv.Itoa(w.faultSeq)
	f.Placed = w.Now()
	f.Seen, f.Hits = 0, 0
	if f.Kind == FaultTransition && f.Operation == "" {
		n := 0
		for _, o := range w.objects() {
			if matchObject(&f, o) {
				n++
				w.schedule(event{At: w.Now().Add(f.Duration()), Cloud: o.Cloud, Service: o.Service, Kind: kindTransition,
					Key: o.ID, State: f.State, Code: f.Code, Message: f.Message})
			}
		}
		if n == 0 {
			return Fault{}, fmt.Errorf("match: no object matches %q", f.Match)
		}
		f.Hits = n
		w.settle()
		return f, nil
	}
	w.faults = append(w.faults, &f)
	return f, nil
}

func matchObject(f *Fault, o Object) bool {
	if !patternOK(f.Cloud, o.Cloud) || !patternOK(f.Service, o.Service) || !patternOK(f.Account, o.Account) || !patternOK(f.Region, o.Region) {
		return false
	}
	if o.ID == f.Match || o.ARN == f.Match || o.Name == f.Match || o.Kind == f.Match {
		return true
	}
	for _, v := range o.Tags {
		if v == f.Match {
			return true
		}
	}
	return false
}

// Faults lists the faults that were placed and not cleared, used up or not.
func (w *World) Faults() []Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := []Fault{}
	for _, f := range w.faults {
		out = append(out, *f)
	}
	return out
}

// ClearFaults removes one fault, or all when id is empty. It answers how many it removed.
func (w *World) ClearFaults(id string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := len(w.faults)
	w.faults = slices.DeleteFunc(w.faults, func(f *Fault) bool { return id == "" || f.ID == id })
	return before - len(w.faults)
}

func patternOK(pattern, s string) bool { return pattern == "" || globMatch(pattern, s) }

// concerns says whether a fault is about a call; text is what Match is looked for in.
func (f *Fault) concerns(c *Call, text string) bool {
	return patternOK(f.Cloud, c.Cloud) && patternOK(f.Service, c.Service) && patternOK(f.Operation, c.Operation) &&
		patternOK(f.Account, c.Account) && patternOK(f.Region, c.Region) &&
		(f.Mutating == nil || *f.Mutating == c.Mutating) &&
		(f.Match == "" || strings.Contains(text, f.Match))
}

// lasting are the kinds whose Seconds say how long they go on; without a count they then hit every time.
var lasting = []FaultKind{FaultError, FaultThrottle, FaultRaw, FaultLostReply, FaultSwallow, FaultCapacity, FaultPage, FaultNameHeld}

// use counts a matching request and says whether the fault hits it.
func (w *World) use(f *Fault) bool {
	f.Seen++
	limit := f.Count
	if f.Seconds > 0 && slices.Contains(lasting, f.Kind) {
		if w.Now().After(f.Placed.Add(f.Duration())) {
			return false
		}
		if limit == 0 {
			limit = -1
		}
	}
	if limit == 0 {
		limit = 1
	}
	if f.Seen <= f.After || (limit > 0 && f.Hits >= limit) {
		return false
	}
	if f.Percent > 0 && w.Fraction("fault", f.ID, strconv.Itoa(f.Seen))*100 >= f.Percent {
		return false
	}
	f.Hits++
	return true
}

// Take answers the first fault of a kind that concerns a call and hits it now, or nil. Text is added to what Match is
// looked for in: a service names the objects, zones and types at stake. The world must be locked.
func (w *World) Take(c *Call, kind FaultKind, text string) *Fault {
	for _, f := range w.faults {
		if f.Kind == kind && f.concerns(c, c.Params+" "+strings.Join(c.Resources, " ")+" "+text) && w.use(f) {
			c.noteFault(f)
			return f
		}
	}
	return nil
}

// A Lookup says by what a read finds an object.
type Lookup int

// The ways to look an object up. A fresh object is seen later by list than by ID.
const (
	ByID Lookup = iota
	ByList
)

// Visible says whether a read sees an object: false while it is fresh, as far as the world simulates eventual
// consistency, or while a fault hides it. Text names the object for the fault's Match: ID, name, kind, tag values. A
// count-limited fault hides any number of objects from so many reads. The world must be locked.
func (w *World) Visible(c *Call, id string, created time.Time, by Lookup, text string) bool {
	age := w.Now().Sub(created)
	if d := w.consistency(by); age < d && age < time.Duration(w.Fraction("visible", id)*float64(d)) {
		return false
	}
	for _, f := range w.faults {
		if f.Kind != FaultHidden || !f.concerns(c, id+" "+text+" "+c.Params) {
			continue
		}
		if f.Seconds > 0 {
			from := f.Placed
			if created.After(from) {
				from = created
			}
			if w.Now().Before(from.Add(f.Duration())) {
				f.Hits++
				c.noteFault(f)
				return false
			}
			continue
		}
		if hit, asked := c.memo[f.ID]; asked {
			if hit {
				return false
			}
			continue
		}
		hit := w.use(f)
		if c.memo == nil {
			c.memo = map[string]bool{}
		}
		c.memo[f.ID] = hit
		if hit {
			c.noteFault(f)
			return false
		}
	}
	return true
}

func (w *World) consistency(by Lookup) time.Duration {
	opt := w.Options()
	d, def := opt.ConsistencyByID, time.Second
	if by == ByList {
		d, def = opt.ConsistencyByList, 4*time.Second
	}
	switch {
	case d < 0:
		return 0
	case d == 0:
		return def
	}
	return d
}
