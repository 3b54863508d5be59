// Package lookup answers questions about a job's objects from as few reads of
// a cloud as possible.
//
// A pass over a job asks for every object by its ID, or looks it up by its
// mark. Asked one by one, that is a read an object, each time; and a cloud that
// hosts many jobs throttles. But all objects of one kind that carry one job's
// mark come with a single list. So a [Kind] lists once, and answers every Get
// and Find of the same pass from what it saw.
//
// What was seen is kept by a view, which belongs to one pass of one run and
// travels in the context. A call that changes something makes the view forget
// ([Changed]), so that nobody is told what was so before. It is the client's
// middleware that calls Changed: no code that mutates can forget to.
//
// A list by mark is never proof of absence: somebody may have taken the mark
// off. A Get that finds nothing in the list asks for the ID by itself.
package lookup

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/zopday/provisioner/internal/pipeline"
)

// A Kind says how the objects of one kind are listed at a cloud, and how one of
// them is read.
type Kind[T any] struct {
	Name string // such as "ec2:subnet"

	// List returns everything that carries the owner's mark, from every page.
	List func(ctx context.Context, owner string) ([]T, error)

	// One reads one object by its ID; the error has class NotFound if there is none.
	One func(ctx context.Context, id string) (T, error)

	// ID is an object's ID.
	ID func(T) string

	// Mark is what an object's marks say: whose it is, and what it is there.
	Mark func(T) (owner, object string)
}

// Owned returns every object of the kind that carries the job's mark.
func (k Kind[T]) Owned(ctx context.Context) ([]T, error) {
	v := from(ctx)
	if v == nil {
		return nil, fmt.Errorf("%s: the context belongs to no run", k.Name)
	}
	return shared(ctx, v, k.Name, func(ctx context.Context) ([]T, error) { return k.List(ctx, v.owner) })
}

// Get reads an object by its ID.
func (k Kind[T]) Get(ctx context.Context, id string) (T, error) {
	var zero T
	all, err := k.Owned(ctx)
	if err != nil {
		return zero, err
	}
	for _, x := range all {
		if k.ID(x) == id {
			return x, nil
		}
	}
	return shared(ctx, from(ctx), k.Name+" "+id, func(ctx context.Context) (T, error) { return k.One(ctx, id) })
}

// Find returns the job's objects that are marked as the one with the key.
func (k Kind[T]) Find(ctx context.Context, key string) ([]T, error) {
	all, err := k.Owned(ctx)
	if err != nil {
		return nil, err
	}
	var out []T
	for _, x := range all {
		if _, object := k.Mark(x); object == key {
			out = append(out, x)
		}
	}
	return out, nil
}

// Once reads something that is no object, at most once a pass and for all who
// ask, until something changes.
func Once[T any](ctx context.Context, key string, read func(context.Context) (T, error)) (T, error) {
	v := from(ctx)
	if v == nil {
		return read(ctx)
	}
	return shared(ctx, v, "once "+key, read)
}

// A view is what one pass has seen.
type view struct {
	run   *pipeline.Run
	notes *notes // nil outside of a run
	owner string

	mu    sync.Mutex
	age   int // raised by every change: what was read before is forgotten
	reads map[string]*read
}

type read struct {
	done  chan struct{}
	value any
	err   error
}

type viewKey struct{}

const memoryKey = "lookup.view"

// With gives the context the view of the run's pass. Every method that is
// handed a run begins with it.
func With(ctx context.Context, r *pipeline.Run) context.Context {
	if v := from(ctx); v != nil && v.run == r {
		return ctx
	}
	v, ok := r.Recall(memoryKey).(*view)
	if !ok || v.run != r {
		v = &view{run: r, notes: &notes{run: r, said: map[string]bool{}}, owner: r.Job.ID, reads: map[string]*read{}}
		r.Remember(memoryKey, v)
	}
	return context.WithValue(ctx, viewKey{}, v)
}

// For gives the context a view of its own for an owner; what is seen there is not
// shared with a run.
func For(ctx context.Context, owner string) context.Context {
	v := &view{owner: owner, reads: map[string]*read{}}
	if outer := from(ctx); outer != nil {
		v.notes = outer.notes
	}
	return context.WithValue(ctx, viewKey{}, v)
}

// notes is what was learnt on the way, noted once for each step of a pass.
type notes struct {
	run *pipeline.Run

	mu   sync.Mutex
	said map[string]bool
}

// Note notes beside the step that the context's reads are made for what was learnt
// on the way about what: once a pass. Outside of a run nobody is told.
func Note(ctx context.Context, what, text string) {
	v := from(ctx)
	if v == nil || v.notes == nil {
		return
	}
	n := v.notes
	n.mu.Lock()
	defer n.mu.Unlock()
	if key := n.run.Step + " " + what; !n.said[key] {
		n.said[key] = true
		n.run.Note("%s", text)
	}
}

// Changed makes the context's view forget what it has seen. A read that is
// under way is still answered to those who asked before the change, and to
// nobody after it.
func Changed(ctx context.Context) {
	v := from(ctx)
	if v == nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.age++
	clear(v.reads)
}

func from(ctx context.Context) *view {
	v, _ := ctx.Value(viewKey{}).(*view)
	return v
}

// shared answers from the view, or reads once for everyone who asks meanwhile.
// An error is answered to those who waited for it, and not kept.
func shared[T any](ctx context.Context, v *view, key string, fn func(context.Context) (T, error)) (T, error) {
	for {
		v.mu.Lock()
		r, ok := v.reads[key]
		if !ok {
			r = &read{done: make(chan struct{})}
			v.reads[key] = r
			v.mu.Unlock()
			return lead(ctx, v, key, r, fn)
		}
		v.mu.Unlock()
		select {
		case <-ctx.Done():
			var zero T
			return zero, ctx.Err()
		case <-r.done:
		}
		// The one who read may have given up for a reason of its own.
		if errors.Is(r.err, context.Canceled) && ctx.Err() == nil {
			continue
		}
		value, _ := r.value.(T)
		return value, r.err
	}
}

func lead[T any](ctx context.Context, v *view, key string, r *read, fn func(context.Context) (T, error)) (T, error) {
	r.err = context.Canceled // what those who wait are told if fn panics
	defer func() {
		v.mu.Lock()
		if r.err != nil && v.reads[key] == r {
			delete(v.reads, key)
		}
		v.mu.Unlock()
		close(r.done)
	}()
	value, err := fn(ctx)
	r.value, r.err = value, err
	return value, err
}

// The bounds of a listing.
const maxPages = 1000

// Pages collects every page of a list. An empty page with a token is not the
// end; a token that comes a second time is an error, since it would never end
// (failure kinds Q1, Q2, Q4).
func Pages[T any](ctx context.Context, page func(ctx context.Context, token *string) (items []T, next *string, err error)) ([]T, error) {
	var out []T
	var token *string
	used := map[string]bool{}
	for range maxPages {
		items, next, err := page(ctx, token)
		if err != nil {
			return nil, err
		}
		out = append(out, items...)
		if next == nil || *next == "" {
			return out, nil
		}
		if used[*next] {
			return nil, fmt.Errorf("the cloud answers with the same page token %.40q again, so the list cannot be read to its end", *next)
		}
		used[*next] = true
		token = next
	}
	return nil, fmt.Errorf("the list has more than %d pages", maxPages)
}
