package kube

import (
	"net/http"
	"slices"
	"strings"
	"sync"
)

// A Request counts how often a cluster's endpoint was asked one thing.
type Request struct {
	Cluster string // ID
	Method  string // as in HTTP
	Path    string // without the query
	DryRun  bool   // it was to change nothing
	Count   int
}

// Mutating reports whether the request changes what is in the cluster. A review is created, but not kept.
func (r Request) Mutating() bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return !r.DryRun && !strings.HasPrefix(r.Path, "/apis/authorization.k8s.io/") && !strings.HasPrefix(r.Path, "/apis/authentication.k8s.io/")
}

// books count the requests.
type books struct {
	mu    sync.Mutex
	lines []Request // in the order of their first
	index map[Request]int
}

func (b *books) note(r Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i, ok := b.index[r]; ok {
		b.lines[i].Count++
		return
	}
	if b.index == nil {
		b.index = map[Request]int{}
	}
	b.index[r] = len(b.lines)
	r.Count = 1
	b.lines = append(b.lines, r)
}

// Requests lists what the endpoints of all clusters were asked since the start or ForgetRequests,
// in the order in which each thing was first asked. What came from nobody that was let in is not
// among it.
func (k *Kube) Requests() []Request {
	k.books.mu.Lock()
	defer k.books.mu.Unlock()
	return slices.Clone(k.books.lines)
}

// ForgetRequests starts the count anew.
func (k *Kube) ForgetRequests() {
	k.books.mu.Lock()
	defer k.books.mu.Unlock()
	k.books.lines, k.books.index = nil, nil
}
