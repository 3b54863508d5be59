package databases

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/zopday/provisioner/internal/sim"
)

// Options set up an instance.
type Options struct {
	// StateDir keeps what is in the servers, their ports and the certificate authority beyond
	// the life of the instance; a datastore that is opened under the same ID finds it there.
	// Empty: nothing is kept.
	StateDir string
	// Caller is where connections come from until SetCaller says otherwise. The zero value
	// means 203.0.113.7, outside.
	Caller sim.KubeCaller
	// Log takes what went wrong; nil discards it.
	Log *slog.Logger
}

// Databases is an instance of [sim.Databases]. It has to be ended with Shutdown.
type Databases struct {
	opt    Options
	ca     *authority
	temp   string        // sockets, and the data that is not kept
	starts chan struct{} // how many servers may start at once

	mu      sync.Mutex
	servers map[string]*server
	leaving map[string]chan struct{} // of servers that were closed, by ID
	caller  sim.KubeCaller
	down    bool
	ending  sync.WaitGroup
}

var _ sim.Databases = (*Databases)(nil)

// startsAtOnce keeps a world of many datastores from taking the whole machine.
const startsAtOnce = 2

// New makes an instance. It starts nothing before a datastore is opened.
func New(o Options) (*Databases, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if !o.Caller.IP.IsValid() {
		o.Caller.IP = netip.MustParseAddr("203.0.113.7")
	}
	removeLeftovers()
	if o.StateDir != "" {
		o.StateDir = filepath.Join(o.StateDir, "databases")
		if err := os.MkdirAll(o.StateDir, 0o700); err != nil {
			return nil, fmt.Errorf("simulated datastores: %w", err)
		}
	}
	ca, err := newAuthority(o.StateDir)
	if err != nil {
		return nil, fmt.Errorf("simulated datastores: %w", err)
	}
	temp, err := tempDir()
	if err != nil {
		return nil, fmt.Errorf("simulated datastores: %w", err)
	}
	holdTemplates()
	return &Databases{
		opt: o, ca: ca, temp: temp, starts: make(chan struct{}, startsAtOnce),
		servers: map[string]*server{}, leaving: map[string]chan struct{}{}, caller: o.Caller,
	}, nil
}

// CA signs every server's certificate.
func (d *Databases) CA() []byte { return d.ca.pem }

// Down says why an engine has no server on this machine: an error that wraps
// [sim.ErrNoServer], with what to install. nil if it has one.
func (d *Databases) Down(engine string) error {
	_, err := binaryOf(engine)
	return err
}

// Open makes a datastore's endpoint answer. Connections that come while its server starts wait
// for it.
func (d *Databases) Open(spec sim.DatabaseServer) sim.DatabaseEndpoint {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.servers[spec.ID]; s != nil {
		s.reopen(spec)
		return s.front.endpoint()
	}
	dead := sim.DatabaseEndpoint{Host: "127.0.0.1"} // nobody listens there
	if d.down {
		return dead
	}
	s, err := newServer(d, spec, d.leaving[spec.ID])
	if err != nil {
		d.opt.Log.Error("simulated datastore: open", "datastore", spec.ID, "error", err)
		return dead
	}
	d.servers[spec.ID] = s
	return s.front.endpoint()
}

// Close ends a datastore. Its endpoint refuses connections at once; the process ends in the
// background, and then its data goes.
func (d *Databases) Close(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.servers[id]; s != nil {
		delete(d.servers, id)
		d.leaving[id] = s.left
		d.ending.Go(func() { s.end(false) })
		s.front.close()
	}
}

// Reset closes every datastore, and waits until they are gone.
func (d *Databases) Reset() { d.endAll(false, false) }

// Shutdown closes every endpoint, ends every process and waits for their ends. What
// Options.StateDir keeps is kept.
func (d *Databases) Shutdown() {
	d.mu.Lock()
	first := !d.down
	d.mu.Unlock()
	d.endAll(true, true)
	if first {
		_ = os.RemoveAll(d.temp) // of a dead process, which the next New tries again
		releaseTemplates()
	}
}

func (d *Databases) endAll(keep, down bool) {
	d.mu.Lock()
	servers := d.servers
	d.servers = map[string]*server{}
	for id, s := range servers {
		d.leaving[id] = s.left
	}
	d.down = d.down || down
	d.mu.Unlock()
	for _, s := range servers {
		s.front.close()
		d.ending.Go(func() { s.end(keep) })
	}
	d.ending.Wait()
}

// SetCaller says where every connection comes from, open ones too: those that are not let in from
// there are closed.
func (d *Databases) SetCaller(caller sim.KubeCaller) {
	d.mu.Lock()
	d.caller = caller
	servers := make([]*server, 0, len(d.servers))
	for _, s := range d.servers {
		servers = append(servers, s)
	}
	d.mu.Unlock()
	for _, s := range servers {
		s.front.recheck()
	}
}

func (d *Databases) from() sim.KubeCaller {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.caller
}

func (d *Databases) server(id string) *server {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.servers[id]
}

// Stop ends a datastore's process and keeps its data.
func (d *Databases) Stop(id string) {
	if s := d.server(id); s != nil {
		s.setStopped(true)
	}
}

// Start starts one that was stopped.
func (d *Databases) Start(id string) {
	if s := d.server(id); s != nil {
		s.setStopped(false)
	}
}

// CreateDatabase makes a database that belongs to the cloud's administrators.
func (d *Databases) CreateDatabase(id, name string) {
	d.change(id, "create database "+name, func(ctx context.Context, e engine, spec sim.DatabaseServer) error {
		return e.createDatabase(ctx, spec, name)
	})
}

// DropDatabase ends what is connected to a database and drops it.
func (d *Databases) DropDatabase(id, name string) {
	d.change(id, "drop database "+name, func(ctx context.Context, e engine, _ sim.DatabaseServer) error {
		return e.dropDatabase(ctx, name)
	})
}

// SetUser makes a user, or changes one.
func (d *Databases) SetUser(id string, u sim.DatabaseUser) {
	d.change(id, "set user "+u.Name, func(ctx context.Context, e engine, spec sim.DatabaseServer) error {
		return e.setUser(ctx, spec, u)
	})
}

// DropUser ends a user's sessions and drops it; what it owns goes to the administrator.
func (d *Databases) DropUser(id, name string) {
	d.change(id, "drop user "+name, func(ctx context.Context, e engine, spec sim.DatabaseServer) error {
		return e.dropUser(ctx, spec, name)
	})
}

func (d *Databases) change(id, what string, do func(context.Context, engine, sim.DatabaseServer) error) {
	if s := d.server(id); s != nil {
		s.enqueue(what, do)
	}
}

// errNotOpen is of a datastore that was never opened, or was closed.
var errNotOpen = errors.New("no such datastore is open")

// Query runs statements and returns the rows of the last one.
func (d *Databases) Query(ctx context.Context, id, database, user, password, statements string) (columns []string, rows [][]string, err error) {
	s := d.server(id)
	if s == nil {
		return nil, nil, errNotOpen
	}
	return s.query(ctx, database, user, password, statements)
}

// Names lists what is in a server now.
func (d *Databases) Names(id string) (databases, users []string, ok bool) {
	s := d.server(id)
	if s == nil {
		return nil, nil, false
	}
	return s.names()
}

// Ready reports whether the server answers and has done all that was asked for.
func (d *Databases) Ready(id string) (ready bool, err error) {
	s := d.server(id)
	if s == nil {
		return false, errNotOpen
	}
	return s.ready()
}

// keyOf is a datastore's ID as a folder's name.
func keyOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])[:12]
}
