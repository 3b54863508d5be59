package kube

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const namespacesPath = "/api/v1/namespaces"

// places say whose the namespaces of a shared control plane are: a namespace is that of the
// cluster through whose endpoint it was created. One that was there before, such as default, is
// that of the cluster that last changed something in it, as far as the cloud's controllers go.
type places struct {
	owner map[string]string // cluster's ID by namespace
	last  map[string]string
	// gone are those of closed clusters that are being deleted; closed when they are.
	gone map[string]chan struct{}
}

func (p *places) of(namespace string) (clusterID string, known bool) {
	if id, ok := p.owner[namespace]; ok {
		return id, true
	}
	id, ok := p.last[namespace]
	return id, ok
}

// learn sees from an answer whose a namespace is.
func (f *front) learn(res *http.Response) error {
	if !f.cluster.kube.opt.Shared || res.StatusCode >= http.StatusMultipleChoices {
		return nil
	}
	r := res.Request
	fwd := r.Context().Value(forwardKey{}).(*forward)
	f.cluster.backend.learn(f.cluster.id(), r, fwd.namespace, res.StatusCode == http.StatusCreated)
	return nil
}

func (b *backend) learn(clusterID string, r *http.Request, namespace string, created bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := &b.places
	if p.owner == nil {
		p.owner, p.last, p.gone = map[string]string{}, map[string]string{}, map[string]chan struct{}{}
	}
	if namespace != "" {
		if created {
			p.owner[namespace] = clusterID
		}
		return
	}
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		if in := namespaceOf(r.URL.Path); in != "" {
			p.last[in] = clusterID
		}
	}
}

// namespaceOf is the namespace in a path of the API; empty if there is none.
func namespaceOf(path string) string {
	_, rest, found := strings.Cut(path, "/namespaces/")
	if !found {
		return ""
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}

// awaitPlace waits while a namespace is being deleted for a cluster that is closed: to whoever
// comes after it, it never was.
func (b *backend) awaitPlace(ctx context.Context, name string) error {
	b.mu.Lock()
	gone := b.places.gone[name]
	b.mu.Unlock()
	if gone == nil {
		return nil
	}
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// clearWithin bounds how long it may take until what a cluster left behind is gone.
const clearWithin = time.Minute

// clear removes a closed cluster's namespaces and nodes from the control plane that others go on using.
func (b *backend) clear(c *cluster) {
	id := c.current().ID
	b.mu.Lock()
	waiting := map[string]chan struct{}{}
	for namespace, owner := range b.places.owner {
		if owner == id {
			waiting[namespace] = make(chan struct{})
			b.places.gone[namespace] = waiting[namespace]
		}
	}
	for namespace, last := range b.places.last {
		if last == id {
			delete(b.places.last, namespace)
		}
	}
	b.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), clearWithin)
	defer cancel()
	if api, err := b.await(ctx); err == nil {
		err := api.call(ctx, http.MethodDelete, nodesPath+"?labelSelector="+url.QueryEscape(c.nodeSelector()), nil, nil)
		for namespace := range waiting {
			if err == nil {
				err = removeNamespace(ctx, api, namespace)
			}
		}
		if err != nil {
			b.kube.opt.Log.Error("simulated Kubernetes: remove what a cluster left behind", "cluster", id, "error", err)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for namespace, gone := range waiting {
		delete(b.places.owner, namespace)
		delete(b.places.last, namespace)
		delete(b.places.gone, namespace)
		close(gone)
	}
}

// removeNamespace deletes a namespace and waits until it is gone.
func removeNamespace(ctx context.Context, api *client, name string) error {
	for {
		err := api.call(ctx, http.MethodDelete, namespacesPath+"/"+name, nil, nil)
		if isCode(err, http.StatusNotFound) {
			return nil
		}
		if err != nil && !isCode(err, http.StatusConflict) {
			return err
		}
		if !sleep(ctx, retryEvery) {
			return ctx.Err()
		}
	}
}
