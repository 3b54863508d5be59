package databases

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// An engine is one datastore's server. Its methods are called one at a time, but for query and
// names.
type engine interface {
	// start starts the process, on data that it makes if there are none, waits until it answers,
	// and says where clients of a front connect.
	start(ctx context.Context, spec sim.DatabaseServer) (*process, error)
	// address is where the front connects to for a client whose first byte it is.
	address(requireTLS bool, first byte) (network, address string)
	// speaksFirst says that clients wait for the server's greeting.
	speaksFirst() bool
	// apply brings a server that runs into line with what its cloud says.
	apply(ctx context.Context, spec sim.DatabaseServer) error

	createDatabase(ctx context.Context, spec sim.DatabaseServer, name string) error
	dropDatabase(ctx context.Context, name string) error
	setUser(ctx context.Context, spec sim.DatabaseServer, u sim.DatabaseUser) error
	dropUser(ctx context.Context, spec sim.DatabaseServer, name string) error
	query(ctx context.Context, database, user, password, statements string) (columns []string, rows [][]string, err error)
	names(ctx context.Context) (databases, users []string, err error)
}

// A change is work for a server, done in the order in which it was asked for.
type change struct {
	what string
	do   func(context.Context, engine, sim.DatabaseServer) error
}

// A server is one datastore: its front, its process and the changes that wait for it.
type server struct {
	all    *Databases
	key    string
	front  *front
	engine engine // nil: this machine has none
	dir    string // of its data
	kept   bool   // the folder outlives the instance
	ctx    context.Context
	cancel context.CancelFunc
	gone   chan struct{} // closed when the worker has ended
	after  chan struct{} // closed when the one before it, of the same ID, has left; nil: there was none
	left   chan struct{} // closed when this one has, its folder too

	mu      sync.Mutex
	spec    sim.DatabaseServer
	queue   []change
	busy    bool // a change is under way
	stopped bool
	process *process      // nil: does not run
	open    bool          // since its start it was brought into line, so clients may come
	failed  error         // why it is not ready, until it is opened anew
	restart int           // how often it died by itself
	moved   chan struct{} // closed at the next move of any of these

	view struct {
		sync.Mutex
		at               time.Time
		databases, users []string
		ok               bool
	}
}

const (
	startLimit  = time.Minute      // for a start, with the making of data
	changeLimit = 30 * time.Second // for one change
	changeTries = 4
	startTries  = 3
	maxRestarts = 5
	viewAge     = 500 * time.Millisecond
)

func newServer(d *Databases, spec sim.DatabaseServer, after chan struct{}) (*server, error) {
	s := &server{all: d, key: keyOf(spec.ID), spec: spec, after: after, gone: make(chan struct{}), left: make(chan struct{}), moved: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.dir, s.kept = filepath.Join(d.temp, s.key), false
	if d.opt.StateDir != "" {
		s.dir, s.kept = filepath.Join(d.opt.StateDir, s.key), true
	}
	var err error
	if s.front, err = newFront(s); err != nil {
		return nil, err
	}
	if binary, err := binaryOf(spec.Engine); err != nil {
		s.failed = err
	} else {
		s.engine = newEngine(spec.Engine, home{
			data: filepath.Join(s.dir, "data"), run: filepath.Join(d.temp, s.key+"-run"),
			binary: binary, ca: d.ca, keep: s.kept, names: spec.Names,
			ours: []string{s.dir, d.opt.StateDir, filepath.Dir(d.opt.StateDir)},
		})
	}
	go s.work()
	return s, nil
}

var applySpec = change{"settings", func(ctx context.Context, e engine, spec sim.DatabaseServer) error { return e.apply(ctx, spec) }}

func (s *server) current() sim.DatabaseServer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spec
}

// move does something under the lock, and wakes whoever waits for a move.
func (s *server) move(do func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do()
	close(s.moved)
	s.moved = make(chan struct{})
}

func (s *server) reopen(spec sim.DatabaseServer) {
	s.move(func() {
		s.spec = spec
		s.queue = append(s.queue, applySpec)
		if s.engine != nil {
			s.failed, s.restart = nil, 0
		}
	})
	// Elsewhere, because Admits may be the cloud's own question, and this its answer.
	go s.front.recheck()
}

func (s *server) enqueue(what string, do func(context.Context, engine, sim.DatabaseServer) error) {
	s.move(func() { s.queue = append(s.queue, change{what, do}) })
}

func (s *server) setStopped(stopped bool) {
	s.move(func() { s.stopped = stopped })
	if stopped {
		s.front.cut()
	}
}

// work carries out what is asked of the server until it ends.
func (s *server) work() {
	defer close(s.gone)
	if s.after != nil {
		select {
		case <-s.after:
		case <-s.ctx.Done():
			return
		}
	}
	if err := s.settle(); err != nil {
		s.move(func() { s.failed = err })
	}
	for {
		s.mu.Lock()
		process, stopped, moved := s.process, s.stopped, s.moved
		blocked := s.engine == nil || s.failed != nil
		waiting := len(s.queue) > 0
		s.mu.Unlock()
		switch {
		case s.ctx.Err() != nil:
			return
		case stopped && process != nil:
			s.halt(process, true)
		case stopped || blocked:
			s.wait(moved, nil)
		case process == nil:
			s.start()
		case waiting:
			s.next()
		default:
			s.wait(moved, process.done)
		}
	}
}

// settle makes the folder, and keeps the port in it.
func (s *server) settle() error {
	if err := os.MkdirAll(s.dir, 0o755); err != nil { //nolint:gosec // another user's process has to get through; what is in it is closed
		return err
	}
	if !s.kept {
		return nil
	}
	return os.WriteFile(filepath.Join(s.dir, portFile), []byte(strconv.Itoa(s.front.port)+"\n"), 0o600)
}

// wait waits for a move, or for the process to end by itself.
func (s *server) wait(moved, died <-chan struct{}) {
	select {
	case <-moved:
	case <-s.ctx.Done():
	case <-died:
		s.died()
	}
}

// died starts a server again that ended by itself, as a cloud does.
func (s *server) died() {
	s.front.cut()
	s.move(func() {
		said := s.process.said()
		s.process = nil
		if s.restart++; s.restart > maxRestarts {
			s.failed = fmt.Errorf("the server ended by itself %d times: %s", s.restart, said)
		}
		s.all.opt.Log.Warn("simulated datastore: the server ended by itself", "datastore", s.spec.ID, "said", said)
	})
}

func (s *server) start() {
	select {
	case s.all.starts <- struct{}{}:
		defer func() { <-s.all.starts }()
	case <-s.ctx.Done():
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, startLimit)
	defer cancel()
	p, err := s.engine.start(ctx, s.current())
	for try := 1; err != nil && try < startTries && ctx.Err() == nil; try++ {
		s.all.opt.Log.Warn("simulated datastore: start", "datastore", s.spec.ID, "try", try, "error", err)
		p, err = s.engine.start(ctx, s.current())
	}
	if err != nil && s.ctx.Err() == nil {
		s.all.opt.Log.Error("simulated datastore: start", "datastore", s.spec.ID, "error", err)
	}
	s.move(func() {
		s.process, s.failed, s.open = p, err, false
		s.queue = append([]change{applySpec}, s.queue...)
	})
}

// next carries out the first change that waits.
func (s *server) next() {
	var c change
	var spec sim.DatabaseServer
	var process *process
	s.move(func() {
		c, s.queue = s.queue[0], s.queue[1:]
		s.busy, spec, process = true, s.spec, s.process
	})
	ctx, cancel := context.WithTimeout(s.ctx, changeLimit)
	defer cancel()
	err := c.do(ctx, s.engine, spec)
	for try := 1; err != nil && try < changeTries && !process.ended() && ctx.Err() == nil; try++ {
		// Somebody else may be at the same thing; every change can be said again.
		time.Sleep(time.Duration(try) * 50 * time.Millisecond)
		err = c.do(ctx, s.engine, spec)
	}
	s.move(func() {
		s.busy = false
		switch {
		case err == nil:
			s.open = true // the settings are the first change after a start
		case s.ctx.Err() != nil:
		case process.ended() || s.stopped: // it comes back, and so does the change, settings or not
			s.queue = append([]change{c}, s.queue...)
		default:
			s.failed = fmt.Errorf("%s: %w", c.what, err)
			s.all.opt.Log.Error("simulated datastore: "+c.what, "datastore", spec.ID, "error", err)
		}
	})
	if process.ended() {
		s.wait(nil, process.done)
	}
	s.view.Lock()
	s.view.at = time.Time{}
	s.view.Unlock()
}

// halt ends the process; gently, when what it holds is needed again.
func (s *server) halt(p *process, gently bool) {
	s.move(func() { s.process = nil }) // before its end, which takes a moment
	s.front.cut()
	p.end(gently)
}

// end ends the server for good. Unless it is to be kept, its folder goes.
func (s *server) end(keep bool) {
	s.cancel()
	<-s.gone
	s.mu.Lock()
	p := s.process
	s.mu.Unlock()
	if p != nil {
		s.halt(p, keep && s.kept)
	}
	if s.after != nil {
		<-s.after
	}
	defer close(s.left)
	if !keep || !s.kept {
		_ = os.RemoveAll(s.dir) // in the temporary folder what is left goes with it
	}
}

func (s *server) ready() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed == nil && s.process != nil && !s.stopped && len(s.queue) == 0 && !s.busy && !s.process.ended(), s.failed
}

var errStopped = errors.New("the datastore is stopped")

// await waits until the server answers; settled: also until nothing is left to do.
func (s *server) await(ctx context.Context, settled bool) error {
	for {
		s.mu.Lock()
		running := s.process != nil && s.open && !s.process.ended()
		idle := len(s.queue) == 0 && !s.busy
		stopped, failed, moved := s.stopped, s.failed, s.moved
		s.mu.Unlock()
		switch {
		case running && failed != nil && !settled: // a change failed: the server answers all the same
			return nil
		case failed != nil:
			return failed
		case stopped:
			return errStopped
		case running && (idle || !settled):
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ctx.Done():
			return errNotOpen
		}
	}
}

func (s *server) query(ctx context.Context, database, user, password, statements string) (columns []string, rows [][]string, err error) {
	if err := s.await(ctx, true); err != nil {
		return nil, nil, err
	}
	if spec := s.current(); user == "" || user == spec.Admin && password == "" {
		user, password = spec.Admin, spec.Password
	}
	return s.engine.query(ctx, database, user, password, statements)
}

func (s *server) names() (databases, users []string, ok bool) {
	if ready, _ := s.ready(); !ready {
		return nil, nil, false
	}
	v := &s.view
	v.Lock()
	defer v.Unlock()
	if time.Since(v.at) > viewAge {
		ctx, cancel := context.WithTimeout(s.ctx, 5*time.Second)
		defer cancel()
		var err error
		v.databases, v.users, err = s.engine.names(ctx)
		v.at, v.ok = time.Now(), err == nil
	}
	return slices.Clone(v.databases), slices.Clone(v.users), v.ok
}
