package ledger

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/zopday/provisioner/internal/db"
)

// flushTimeout bounds one transaction of the gatherer. It is its own, not a
// caller's: one caller that gives up must not take its neighbours' writes with
// it. A commit can hang for good: on an old primary that waits for its standby,
// after that one was promoted.
const flushTimeout = 10 * time.Second

// insistFor is how long a write is sent again when the database is away, before
// its caller is told. A restart or a failover is over in less.
const insistFor = 8 * time.Second

// slowAfter is when a transaction no longer keeps the next one from leaving. It
// may be waiting for a row that a person's change holds locked, and those behind
// it have nothing to do with that row.
const slowAfter = 50 * time.Millisecond

// crowd is how many writes leave without waiting for the transaction in flight: a
// group of that size has about all that there is to gain from going together.
const crowd = 16

// A gatherer commits in groups. A write that comes while no transaction is in
// flight leaves at once; what arrives in the meantime leaves together as soon as
// that one is done, or when it is a crowd, or when the one in flight is slow. So
// a lone write waits for nobody, and under load the number of commits is set by
// the disk, not by the number of writers.
type gatherer struct {
	max, batch int
	flush      func(ctx context.Context, ws []*write) // sets err of each

	mu     sync.Mutex
	queue  []*write
	flying map[string]bool // jobs with a write in flight: a job's writes keep their order
	total  int             // transactions in flight
	swift  int             // those of them that are not slow
}

func newGatherer(max, batch int, flush func(context.Context, []*write)) *gatherer {
	return &gatherer{max: max, batch: batch, flush: flush, flying: make(map[string]bool)}
}

// submit writes w with whatever goes along and returns w's own outcome. A
// context that ends before w has left takes it back; after that the outcome is
// waited for, since it may be that it was written.
func (g *gatherer) submit(ctx context.Context, w *write) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	g.mu.Lock()
	g.queue = append(g.queue, w)
	g.start()
	g.mu.Unlock()
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
	}
	g.mu.Lock()
	if i := slices.Index(g.queue, w); i >= 0 {
		g.queue = slices.Delete(g.queue, i, i+1)
		g.mu.Unlock()
		return context.Cause(ctx)
	}
	g.mu.Unlock()
	<-w.done
	return w.err
}

// start sends off as many groups as may fly. It is called with the lock held.
func (g *gatherer) start() {
	for g.total < g.max && (g.swift == 0 || len(g.queue) >= crowd) {
		ws := g.take()
		if len(ws) == 0 {
			return
		}
		g.total++
		g.swift++
		go g.fly(ws)
	}
}

// take removes the next group from the queue: the oldest writes, at most one of
// each job, none of a job that has one in flight.
func (g *gatherer) take() []*write {
	var ws []*write
	rest := g.queue[:0]
	for _, w := range g.queue {
		if len(ws) < g.batch && !g.flying[w.fields.id] {
			g.flying[w.fields.id] = true
			ws = append(ws, w)
		} else {
			rest = append(rest, w)
		}
	}
	clear(g.queue[len(rest):])
	g.queue = rest
	return ws
}

func (g *gatherer) fly(ws []*write) {
	// In the order of their IDs, so that the groups of several processes lock
	// rows in one order.
	slices.SortFunc(ws, func(a, b *write) int {
		switch {
		case a.fields.id < b.fields.id:
			return -1
		case a.fields.id > b.fields.id:
			return 1
		}
		return 0
	})
	ended, slow := false, false
	timer := time.AfterFunc(slowAfter, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if !ended {
			slow = true
			g.swift--
			g.start()
		}
	})
	g.insist(ws)
	timer.Stop()
	g.mu.Lock()
	ended = true
	g.total--
	if !slow {
		g.swift--
	}
	for _, w := range ws {
		delete(g.flying, w.fields.id)
	}
	g.start()
	g.mu.Unlock()
	for _, w := range ws {
		close(w.done)
	}
}

// insist flushes, and flushes again what failed for a reason that may pass. The
// jobs stay in flight meanwhile, so that no later write of a job overtakes it.
func (g *gatherer) insist(ws []*write) {
	var firstFailure time.Time
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		ctx, cancel := context.WithTimeout(db.System(context.Background()), flushTimeout) // jobs of all organisations go together
		g.flush(ctx, ws)
		cancel()
		ws = slices.DeleteFunc(slices.Clone(ws), func(w *write) bool { return !db.Transient(w.err) })
		if len(ws) == 0 {
			return
		}
		if firstFailure.IsZero() {
			firstFailure = time.Now()
		}
		if time.Since(firstFailure)+pause > insistFor {
			return
		}
		time.Sleep(pause/2 + rand.N(pause/2))
		for _, w := range ws {
			w.err = nil
		}
	}
}

// side runs fn for each write, a few at a time.
func side(ws []*write, fn func(*write)) {
	const atOnce = 4
	var wg sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, w := range ws {
		slots <- struct{}{}
		wg.Go(func() {
			fn(w)
			<-slots
		})
	}
	wg.Wait()
}
