package sim

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sort"
	"sync"
	"sync/atomic"
	"time"
)

// Options set up a World. The zero value is a world at real pace without latency.
type Options struct {
	// Seed makes IDs, delays and page breaks reproducible.
	Seed uint64
	// TimeScale is the number of simulated seconds in a real one; 0 means 1.
	TimeScale float64
	// ReadLatency and WriteLatency are real time added to every request.
	ReadLatency, WriteLatency time.Duration
	// Consistency bounds, in simulated time, how long a fresh object stays invisible. Negative values mean none; zero
	// values mean the defaults, 1 s by ID and 4 s by list or tag.
	ConsistencyByID, ConsistencyByList time.Duration
	// PageSize caps the pages of list operations; 0 leaves every API its own page size.
	PageSize int
	// EmptyPages is the chance, 0 to 1, that a page of a paginated list is empty and carries only a token. 0 means the
	// default of 0.1, a negative value none.
	EmptyPages float64
}

// A Service is one simulated API: its state, its events and the objects in it. All methods are called with the world
// locked.
type Service interface {
	// Cloud and Name say which API this is: "aws", "ec2".
	Cloud() string
	Name() string
	// State points to a struct of exported fields that survives a round trip through JSON. It must be the same pointer
	// every time.
	State() any
	// Reset puts the state back to that of a fresh account.
	Reset()
	// Event carries out what After scheduled; it ignores keys it does not know.
	Event(kind, key string)
	// Objects lists everything that exists, in a stable order.
	Objects() []Object
	// SetState drives an object to a state, as the faults transition and op_failed ask. An empty state means the one in
	// which the kind ends when its creation fails.
	SetState(id, state, code, message string) error
	// Remove takes an object away behind the product's back, whatever uses it.
	Remove(id string) error
}

// Restored is implemented by a service that has something to do, with the world
// locked, when its state was taken up again: servers behind its objects to open.
type Restored interface{ Restored() }

// Standalone is implemented by a front end that can carry out an operation on the control API's behalf.
type Standalone interface {
	// Invoke runs an operation as account in region with params, outside of the books and untouched by faults.
	Invoke(service, operation, account, region string, params map[string]any) (any, error)
}

// A World is one simulated universe: some clouds that share a clock, the books and the faults.
type World struct {
	Clock *Clock
	optMu sync.RWMutex
	opt   Options
	seed  uint64

	mu       sync.Mutex // guards everything below, and the state of all services
	rng      *rand.Rand
	pcg      *rand.PCG
	services []Service
	fronts   map[string]Standalone
	events   eventQueue
	eventSeq int
	eventNow time.Time // time of the event being carried out; zero outside
	faults   []*Fault
	faultSeq int
	quotas   quotaBook
	metrics  []Metric

	grantMu sync.RWMutex
	grants  map[grantee][]string // by caller; one that is missing may do everything

	bookMu sync.Mutex
	books  []Entry
	seq    int

	changes atomic.Int64 // counts everything that may have changed the world

	hookMu sync.RWMutex
	hook   Hook
}

// New makes an empty world. Clouds are added by their own packages.
func New(opt Options) *World {
	if opt.EmptyPages == 0 {
		opt.EmptyPages = 0.1
	}
	w := &World{Clock: NewClock(opt.TimeScale), opt: opt, seed: opt.Seed, fronts: map[string]Standalone{}}
	w.reseed()
	w.quotas.reset()
	return w
}

func (w *World) reseed() {
	w.pcg = rand.NewPCG(w.seed, 0x9e3779b97f4a7c15)
	w.rng = rand.New(w.pcg)
}

// Options are those the world works with now.
func (w *World) Options() Options {
	w.optMu.RLock()
	defer w.optMu.RUnlock()
	return w.opt
}

// SetOptions changes latency, consistency and paging; seed and time scale stay.
func (w *World) SetOptions(change func(*Options)) {
	w.optMu.Lock()
	defer w.optMu.Unlock()
	seed, scale := w.opt.Seed, w.opt.TimeScale
	change(&w.opt)
	w.opt.Seed, w.opt.TimeScale = seed, scale
}

// Register adds a service. It is called while a cloud is being set up, before the first request.
func (w *World) Register(s Service) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.services = append(w.services, s)
	s.Reset()
}

// RegisterFront says who carries out operations of a cloud for the control API.
func (w *World) RegisterFront(cloud string, f Standalone) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fronts[cloud] = f
}

// Lock takes the world's lock, after carrying out the events that are due. Front ends do not need it (exec already
// runs locked); tests that look into a service do.
func (w *World) Lock() {
	w.mu.Lock()
	settled := false
	defer func() {
		if !settled { // a service panicked in an event; the world must not stay locked for ever
			w.eventNow = time.Time{}
			w.mu.Unlock()
		}
	}()
	w.settle()
	settled = true
}

// Unlock releases the lock. Whoever held it may have changed something.
func (w *World) Unlock() {
	w.changes.Add(1)
	w.mu.Unlock()
}

// Now is the simulated time; within an event it is the time the event was due.
func (w *World) Now() time.Time {
	if !w.eventNow.IsZero() {
		return w.eventNow
	}
	return w.Clock.Now().Truncate(time.Millisecond)
}

// Reset empties the world: every service starts afresh; events, faults, quotas set from outside and books are dropped. The
// clock runs on.
func (w *World) Reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events, w.faults, w.eventSeq, w.faultSeq = nil, nil, 0, 0
	w.reseed()
	w.quotas.overrides, w.metrics = map[string]float64{}, nil
	for _, s := range w.services {
		s.Reset()
	}
	w.bookMu.Lock()
	w.books, w.seq = nil, 0
	w.bookMu.Unlock()
}

// ID makes an identifier: prefix and n characters drawn from alphabet.
func (w *World) ID(prefix string, n int, alphabet string) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = alphabet[w.rng.IntN(len(alphabet))]
	}
	return prefix + string(b)
}

// Hex makes an identifier of n hexadecimal digits, as most of AWS does.
func (w *World) Hex(prefix string, n int) string { return w.ID(prefix, n, "0123456789abcdef") }

// UUID makes a random-looking UUID.
func (w *World) UUID() string {
	h := w.Hex("", 32)
	return h[:8] + "-" + h[8:12] + "-4" + h[13:16] + "-a" + h[17:20] + "-" + h[20:]
}

// Fraction is a number in [0,1) that depends only on the seed and the parts: a delay that is the same in every run.
func (w *World) Fraction(parts ...string) float64 {
	h := sha256.New()
	_ = binary.Write(h, binary.BigEndian, w.seed)
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return float64(binary.BigEndian.Uint64(h.Sum(nil))>>11) / (1 << 53)
}

// cloneStates copies the state of every service of a cloud; restore puts it back.
func (w *World) cloneStates(cloud string) (restore func(), err error) {
	type saved struct{ live, copy reflect.Value }
	var all []saved
	for _, s := range w.services {
		if s.Cloud() != cloud {
			continue
		}
		live := reflect.ValueOf(s.State())
		b, err := json.Marshal(s.State())
		if err != nil {
			return nil, fmt.Errorf("copy state of %s: %w", s.Name(), err)
		}
		cp := reflect.New(live.Type().Elem())
		if err := json.Unmarshal(b, cp.Interface()); err != nil {
			return nil, fmt.Errorf("copy state of %s: %w", s.Name(), err)
		}
		all = append(all, saved{live, cp})
	}
	events, seq := append(eventQueue(nil), w.events...), w.eventSeq
	return func() {
		for _, s := range all {
			s.live.Elem().Set(s.copy.Elem())
		}
		w.events, w.eventSeq = events, seq
	}, nil
}

// Services lists the names of the registered services of a cloud.
func (w *World) Services(cloud string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for _, s := range w.services {
		if s.Cloud() == cloud {
			names = append(names, s.Name())
		}
	}
	sort.Strings(names)
	return names
}

func (w *World) service(cloud, name string) Service {
	for _, s := range w.services {
		if (cloud == "" || s.Cloud() == cloud) && s.Name() == name {
			return s
		}
	}
	return nil
}
