package kube

import (
	"context"
	"os"
	"sync"

	"github.com/zopday/provisioner/internal/sim"
)

// A backend is a control plane, of one cluster or of all.
type backend struct {
	kube *Kube
	name string

	mu       sync.Mutex
	dir      string
	keep     bool
	run      *run  // nil: stopped, or it could not be started
	err      error // why it could not be started
	clusters map[string]*cluster
	places   places
}

// A run is the time from one start of a control plane to its end.
type run struct {
	process *process
	cancel  context.CancelFunc
}

func newBackend(k *Kube, name string) *backend {
	b := &backend{kube: k, name: name, clusters: map[string]*cluster{}, places: newPlaces()}
	b.start()
	return b
}

// start starts the control plane, unless it runs.
func (b *backend) start() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.run != nil {
		return
	}
	if b.dir == "" {
		if b.dir, b.keep, b.err = b.kube.dirOf(b.name); b.err != nil {
			return
		}
	}
	p, err := startProcess(b.kube.opt.Binary, b.dir, b.kube.opt.Bare, b.keep)
	b.err = err
	if err != nil {
		b.kube.opt.Log.Error("simulated Kubernetes", "error", err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.run = &run{process: p, cancel: cancel}
	go b.control(ctx, p)
	for _, c := range b.clusters {
		c.touch()
	}
}

// control runs the cloud's controllers while the process lives.
func (b *backend) control(ctx context.Context, p *process) {
	c, err := p.await(ctx)
	if err != nil {
		if ctx.Err() == nil {
			b.kube.opt.Log.Error("simulated Kubernetes", "error", err)
		}
		return
	}
	newBalancers(b).run(ctx, c)
	newVolumes(b).run(ctx, c)
}

// await waits until the API server is ready.
func (b *backend) await(ctx context.Context) (*client, error) {
	b.mu.Lock()
	r, err := b.run, b.err
	b.mu.Unlock()
	switch {
	case r != nil:
		return r.process.await(ctx)
	case err != nil:
		return nil, err
	default:
		return nil, errStopped
	}
}

// stop kills the control plane; what was in it stays.
func (b *backend) stop() {
	if r := b.take(); r != nil {
		r.process.kill()
	}
}

// end lets the control plane end, and removes what was in it unless that is to be kept.
func (b *backend) end() {
	if r := b.take(); r != nil {
		r.process.end()
	}
	if !b.keep {
		b.remove()
	}
}

func (b *backend) remove() {
	if err := os.RemoveAll(b.dir); err != nil {
		b.kube.opt.Log.Error("simulated Kubernetes", "error", err)
	}
}

func (b *backend) take() *run {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.run
	b.run = nil
	if r != nil {
		r.cancel()
	}
	return r
}

func (b *backend) join(c *cluster) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clusters[c.id()] = c
}

// part takes a cluster out, and reports whether the backend was its alone.
func (b *backend) part(c *cluster) (alone bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.clusters, c.id())
	return !b.kube.opt.Shared
}

// cloudOf is the cloud behind the objects in a namespace; ours is false if the namespace belongs
// to a cluster that is closed, so that nobody is to be asked.
func (b *backend) cloudOf(namespace string) (cloud sim.KubeCloud, ours bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	owner, known := b.places.of(namespace)
	if !known {
		// With one cluster alone, or before anybody touched the namespace, it is anyone's.
		for _, c := range b.clusters {
			return c.cloud(), true
		}
		return nil, false
	}
	c := b.clusters[owner]
	if c == nil {
		return nil, false
	}
	return c.cloud(), true
}
