package kube

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// metadata is what we need of ObjectMeta.
type metadata struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace,omitempty"`
	UID               string            `json:"uid,omitempty"`
	ResourceVersion   string            `json:"resourceVersion,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	Finalizers        []string          `json:"finalizers,omitempty"`
	DeletionTimestamp string            `json:"deletionTimestamp,omitempty"`
}

// A list is what GET on a collection answers.
type list[T any] struct {
	Metadata metadata `json:"metadata"`
	Items    []T      `json:"items"`
}

// A store holds the objects of one kind as they are at the API server, kept up by a watch.
type store[T any] struct {
	path string // of the collection
	meta func(*T) *metadata

	mu      sync.Mutex
	items   map[string]T // by UID
	changed chan struct{}
}

func newStore[T any](path string, changed chan struct{}, meta func(*T) *metadata) *store[T] {
	return &store[T]{path: path, meta: meta, items: map[string]T{}, changed: changed}
}

// all lists what is there.
func (s *store[T]) all() []T {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := make([]T, 0, len(s.items))
	for _, item := range s.items {
		items = append(items, item)
	}
	return items
}

func (s *store[T]) change(f func(items map[string]T)) {
	s.mu.Lock()
	f(s.items)
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// follow keeps the store up until the context ends.
func (s *store[T]) follow(ctx context.Context, c *client) {
	for ctx.Err() == nil {
		var l list[T]
		err := c.call(ctx, http.MethodGet, s.path, nil, &l)
		if err == nil {
			s.change(func(items map[string]T) {
				clear(items)
				for _, item := range l.Items {
					items[s.meta(&item).UID] = item
				}
			})
			s.watch(ctx, c, l.Metadata.ResourceVersion)
		}
		sleep(ctx, retryEvery)
	}
}

// watch follows the changes after a version until the server ends it, or it fails: then
// everything is listed anew.
func (s *store[T]) watch(ctx context.Context, c *client, version string) {
	res, err := c.open(ctx, http.MethodGet, s.path+"?watch=1&resourceVersion="+url.QueryEscape(version), "", nil)
	if err != nil {
		return
	}
	defer func() { _ = res.Body.Close() }()
	for events := json.NewDecoder(res.Body); ; {
		var e struct {
			Type   string `json:"type"`
			Object T      `json:"object"`
		}
		if err := events.Decode(&e); err != nil || e.Type == "ERROR" {
			return
		}
		s.change(func(items map[string]T) {
			if e.Type == "DELETED" {
				delete(items, s.meta(&e.Object).UID)
			} else {
				items[s.meta(&e.Object).UID] = e.Object
			}
		})
	}
}

// retryEvery is the pause after something failed or was not done yet.
const retryEvery = 200 * time.Millisecond

// sleep pauses, and reports whether the context lives on.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
