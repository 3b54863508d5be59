package kube

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// A cluster is one that a cloud opened.
type cluster struct {
	kube    *Kube
	key     string
	front   *front
	backend *backend // nil: there is no Kubernetes

	ctx    context.Context // the life of the cluster, which no single call spans
	cancel context.CancelFunc
	dirty  chan struct{} // its nodes or objects are to be looked at

	mu    sync.Mutex
	spec  sim.KubeCluster
	nodes []sim.KubeNode
	given bool          // somebody said what its nodes are
	held  chan struct{} // closed when requests may go on; nil: they may
}

func newCluster(k *Kube, spec sim.KubeCluster) *cluster {
	c := &cluster{kube: k, key: keyOf(spec.ID), spec: spec, dirty: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.touch()
	return c
}

func (c *cluster) current() sim.KubeCluster {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spec
}

// id never changes.
func (c *cluster) id() string { return c.current().ID }

func (c *cluster) cloud() sim.KubeCloud { return c.current().Cloud }

func (c *cluster) reopen(spec sim.KubeCluster) {
	c.mu.Lock()
	c.spec = spec
	c.mu.Unlock()
	c.touch()
	// The rules may keep out whom they let in before. Admits may ask a world that our caller holds.
	go c.front.recheck()
}

func (c *cluster) setNodes(nodes []sim.KubeNode) {
	c.mu.Lock()
	c.nodes, c.given = slices.Clone(nodes), true
	c.mu.Unlock()
	c.touch()
}

func (c *cluster) touch() {
	select {
	case c.dirty <- struct{}{}:
	default:
	}
}

func (c *cluster) hold(held bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case held && c.held == nil:
		c.held = make(chan struct{})
	case !held && c.held != nil:
		close(c.held)
		c.held = nil
	}
}

// awaitRelease waits while requests are held.
func (c *cluster) awaitRelease(ctx context.Context) error {
	c.mu.Lock()
	held := c.held
	c.mu.Unlock()
	if held == nil {
		return nil
	}
	select {
	case <-held:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

func (c *cluster) end() { c.cancel() }

// leave ends what the cluster has: its control plane, or its part of the one that all share.
func (c *cluster) leave() {
	c.end()
	if c.backend == nil {
		return
	}
	if c.backend.part(c) {
		c.backend.end()
		c.backend.remove()
		return
	}
	c.backend.clear(c)
}

// furnish keeps the cluster's nodes and the cloud's objects what they are to be.
func (c *cluster) furnish() {
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.dirty:
		}
		if c.backend == nil {
			continue
		}
		for {
			err := c.furnishOnce()
			if err == nil || c.ctx.Err() != nil {
				break
			}
			c.kube.opt.Log.Debug("simulated Kubernetes: nodes", "cluster", c.id(), "error", err)
			if !sleep(c.ctx, retryEvery) {
				return
			}
		}
	}
}

func (c *cluster) furnishOnce() error {
	ctx, cancel := context.WithTimeout(c.ctx, time.Minute)
	defer cancel()
	client, err := c.backend.await(ctx)
	if err != nil {
		return err
	}
	for _, o := range c.current().Objects {
		if err := client.call(ctx, http.MethodPost, o.Path, o.JSON, nil); err != nil && !isCode(err, http.StatusConflict) {
			return err
		}
	}
	c.mu.Lock()
	nodes, given := c.nodes, c.given
	c.mu.Unlock()
	if !given {
		return nil
	}
	return c.syncNodes(ctx, client, nodes)
}
