package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const namespacesPath = "/api/v1/namespaces"

// places say whose the things in a shared control plane are: what was created through a cluster's
// endpoint is the cluster's, and so is all in its namespaces.
type places struct {
	owner map[string]string // cluster's ID by namespace
	// last is who last changed something in a namespace that is nobody's, such as default: its
	// cloud is asked for what is in there.
	last map[string]string
	made map[string][]string      // paths of objects by cluster's ID, in the order of their creation
	gone map[string]chan struct{} // paths of what is being removed for a closed cluster; closed when it is
}

func newPlaces() places {
	return places{owner: map[string]string{}, last: map[string]string{}, made: map[string][]string{}, gone: map[string]chan struct{}{}}
}

func (p *places) of(namespace string) (clusterID string, known bool) {
	if id, ok := p.owner[namespace]; ok {
		return id, true
	}
	id, ok := p.last[namespace]
	return id, ok
}

// maxObject bounds what is read of an object that is to be created; API servers take 3 MiB.
const maxObject = 4 << 20

// objectToBe is the path of the object that a request creates if there is none, empty if it creates
// nothing. It leaves the request as it is.
func objectToBe(r *http.Request) (string, error) {
	switch {
	case r.URL.Query().Has("dryRun"):
		return "", nil
	case r.Method == http.MethodPatch || r.Method == http.MethodPut:
		return r.URL.Path, nil
	case r.Method != http.MethodPost:
		return "", nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxObject))
	if err != nil {
		return "", err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var object struct {
		Metadata metadata `json:"metadata"`
	}
	// Another encoding than JSON, or no name yet: then it is nobody's.
	if json.Unmarshal(body, &object) != nil || object.Metadata.Name == "" {
		return "", nil
	}
	return strings.TrimSuffix(r.URL.Path, "/") + "/" + object.Metadata.Name, nil
}

// learn sees from an answer whose a thing is.
func (f *front) learn(res *http.Response) error {
	if !f.cluster.kube.opt.Shared || res.StatusCode >= http.StatusMultipleChoices {
		return nil
	}
	if object := res.Request.Context().Value(forwardKey{}).(*forward).object; object != "" {
		f.cluster.backend.learn(f.cluster.id(), object, res.StatusCode == http.StatusCreated)
	}
	return nil
}

func (b *backend) learn(clusterID, object string, created bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p, in := &b.places, namespaceOf(object)
	switch {
	case in == "":
	case object == namespacesPath+"/"+in:
		if created {
			p.owner[in] = clusterID
		}
	case p.owner[in] != "":
		return // it goes with its namespace
	default:
		p.last[in] = clusterID
	}
	if created {
		p.made[clusterID] = append(p.made[clusterID], object)
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

// awaitPlace waits while an object, or its namespace, is being removed for a cluster that is
// closed: to whoever comes after it, it never was.
func (b *backend) awaitPlace(ctx context.Context, object string) error {
	b.mu.Lock()
	going := []chan struct{}{b.places.gone[object], b.places.gone[namespacesPath+"/"+namespaceOf(object)]}
	b.mu.Unlock()
	for _, gone := range going {
		if gone == nil {
			continue
		}
		select {
		case <-gone:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// clearWithin bounds how long it may take until what a cluster left behind is gone.
const clearWithin = time.Minute

// clear removes a closed cluster's nodes and objects from the control plane that others go on using.
func (b *backend) clear(c *cluster) {
	id := c.current().ID
	b.mu.Lock()
	p := &b.places
	objects := p.made[id]
	delete(p.made, id)
	slices.Reverse(objects)
	spaces := map[string]bool{}
	for _, object := range objects {
		if p.gone[object] == nil {
			p.gone[object] = make(chan struct{})
		}
	}
	for namespace, owner := range p.owner {
		spaces[namespace] = owner == id
	}
	b.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), clearWithin)
	defer cancel()
	if err := b.removeAll(ctx, c, objects, spaces); err != nil {
		b.kube.opt.Log.Error("simulated Kubernetes: remove what a cluster left behind", "cluster", id, "error", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, object := range objects {
		if gone := p.gone[object]; gone != nil {
			close(gone)
			delete(p.gone, object)
		}
	}
	isIts := func(_, cluster string) bool { return cluster == id }
	maps.DeleteFunc(p.owner, isIts)
	maps.DeleteFunc(p.last, isIts)
}

// removeAll deletes the nodes, the objects and the volumes of the namespaces, and waits until they are gone.
func (b *backend) removeAll(ctx context.Context, c *cluster, objects []string, spaces map[string]bool) error {
	api, err := b.await(ctx)
	if err != nil {
		return err
	}
	if err := api.call(ctx, http.MethodDelete, nodesPath+"?labelSelector="+url.QueryEscape(c.nodeSelector()), nil, nil); err != nil {
		return err
	}
	for _, object := range objects {
		if err := api.call(ctx, http.MethodDelete, object, nil, nil); err != nil && !refused(err) {
			return err
		}
	}
	for _, object := range objects {
		if err := awaitGone(ctx, api, object); err != nil {
			return err
		}
	}
	for {
		var all list[volume]
		if err := api.call(ctx, http.MethodGet, volumesPath, nil, &all); err != nil {
			return err
		}
		left := false
		for _, v := range all.Items {
			if !spaces[v.Spec.ClaimRef.Namespace] {
				continue
			}
			left = true
			if err := api.call(ctx, http.MethodDelete, v.path(), nil, nil); err != nil && !refused(err) {
				return err
			}
		}
		if !left {
			return nil
		}
		if !sleep(ctx, retryEvery) {
			return ctx.Err()
		}
	}
}

// refused reports whether there is nothing to delete: it is gone, or never was an object but a
// request, such as an eviction.
func refused(err error) bool {
	var s *status
	return errors.As(err, &s) && s.Code < http.StatusInternalServerError
}

func awaitGone(ctx context.Context, api *client, path string) error {
	for {
		err := api.call(ctx, http.MethodGet, path, nil, nil)
		if refused(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if !sleep(ctx, retryEvery) {
			return fmt.Errorf("%s is still there: %w", path, ctx.Err())
		}
	}
}
