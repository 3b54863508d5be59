package sim

import (
	"sync"
	"time"
)

// A Clock tells simulated time: it starts at the wall clock's time, runs Scale times as fast, and can be stopped and
// stepped. The zero scale means 1.
type Clock struct {
	mu      sync.Mutex
	scale   float64
	stopped bool
	sim     time.Time // simulated time at wall
	wall    time.Time
}

// NewClock starts a clock at the present time.
func NewClock(scale float64) *Clock {
	if scale <= 0 {
		scale = 1
	}
	now := time.Now()
	return &Clock{scale: scale, sim: now.UTC().Round(0), wall: now}
}

// Now is the simulated time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now()
}

func (c *Clock) now() time.Time {
	if c.stopped {
		return c.sim
	}
	return c.sim.Add(time.Duration(float64(time.Since(c.wall)) * c.scale))
}

func (c *Clock) rebase() {
	c.sim = c.now()
	c.wall = time.Now()
}

// Step moves the clock forward. A negative step is ignored: simulated time never runs backwards.
func (c *Clock) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rebase()
	if d > 0 {
		c.sim = c.sim.Add(d)
	}
}

// Stop freezes the clock; only Step moves it then.
func (c *Clock) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rebase()
	c.stopped = true
}

// Start lets a stopped clock run again.
func (c *Clock) Start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		c.wall = time.Now()
		c.stopped = false
	}
}

// SetScale changes the pace from now on.
func (c *Clock) SetScale(scale float64) {
	if scale <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rebase()
	c.scale = scale
}

// Scale is the number of simulated seconds in a real one.
func (c *Clock) Scale() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.scale
}

// Stopped says whether the clock is frozen.
func (c *Clock) Stopped() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stopped
}
