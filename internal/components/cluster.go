package components

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/kube"
)

// A cluster is a cluster's API server for the length of one look or operation.
type cluster struct {
	getter *kube.Getter
	core   *corev1.CoreV1Client
	dyn    dynamic.Interface
	meta   metadata.Interface
	disco  *discovery.DiscoveryClient
	cfg    *rest.Config
	kinds  *kinds
	key    string // of the cluster, in kinds
}

// open makes the clients of a cluster. ctx bounds the life of every call made
// with them, Helm's included, and its gates stand before them.
func (e *Engine) open(ctx context.Context, access cloud.KubeAccess, namespace string) (*cluster, error) {
	getter, err := kube.NewGetter(ctx, access, namespace)
	if err != nil {
		return nil, err
	}
	cfg, err := getter.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(append([]byte(access.Server+"\x00"), access.CA...))
	c := &cluster{getter: getter, cfg: cfg, kinds: &e.kinds, key: hex.EncodeToString(sum[:8])}
	if c.core, err = corev1.NewForConfigAndClient(cfg, client); err != nil {
		return nil, err
	}
	if c.dyn, err = dynamic.NewForConfigAndClient(cfg, client); err != nil {
		return nil, err
	}
	if c.meta, err = metadata.NewForConfigAndClient(metadata.ConfigFor(cfg), client); err != nil {
		return nil, err
	}
	if c.disco, err = discovery.NewDiscoveryClientForConfigAndClient(cfg, client); err != nil {
		return nil, err
	}
	return c, nil
}

// kinds remembers under which name clusters serve kinds. It does not change while
// a kind is served, and asking for all of them each time is megabytes.
type kinds struct {
	mu  sync.Mutex
	has map[string]served
}

type served struct {
	resource   schema.GroupVersionResource
	namespaced bool
}

const mostKinds = 8192

// serves says under which name a kind is served; false: it is not.
func (c *cluster) serves(gvk schema.GroupVersionKind) (served, bool, error) {
	key := c.key + " " + gvk.String()
	c.kinds.mu.Lock()
	s, ok := c.kinds.has[key]
	c.kinds.mu.Unlock()
	if ok {
		return s, true, nil
	}
	list, err := c.disco.ServerResourcesForGroupVersion(gvk.GroupVersion().String())
	if apierrors.IsNotFound(err) {
		return served{}, false, nil
	}
	if err != nil {
		return served{}, false, kube.Classify("list the kinds of "+gvk.GroupVersion().String(), err)
	}
	for _, r := range list.APIResources {
		if r.Kind != gvk.Kind || strings.Contains(r.Name, "/") {
			continue
		}
		s = served{resource: gvk.GroupVersion().WithResource(r.Name), namespaced: r.Namespaced}
		c.kinds.mu.Lock()
		defer c.kinds.mu.Unlock()
		if c.kinds.has == nil || len(c.kinds.has) >= mostKinds {
			c.kinds.has = map[string]served{}
		}
		c.kinds.has[key] = s
		return s, true, nil
	}
	return served{}, false, nil
}

// at is the client for an object; nil if its kind is not served.
func (c *cluster) at(o *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	s, ok, err := c.serves(o.GroupVersionKind())
	if err != nil || !ok {
		return nil, err
	}
	if s.namespaced {
		return c.dyn.Resource(s.resource).Namespace(o.GetNamespace()), nil
	}
	return c.dyn.Resource(s.resource), nil
}

// get reads an object; nil if it is not there, or its kind is not served.
func (c *cluster) get(ctx context.Context, o *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	client, err := c.at(o)
	if err != nil || client == nil {
		return nil, err
	}
	live, err := client.Get(ctx, o.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, kube.Classify("get "+name(o), err)
	}
	return live, nil
}

// readAll reads objects, several at a time, in the given order; nil where there is none.
func (c *cluster) readAll(ctx context.Context, objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	out, errs := make([]*unstructured.Unstructured, len(objects)), make([]error, len(objects))
	slots := make(chan struct{}, 6)
	var wg sync.WaitGroup
	for i, o := range objects {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if ctx.Err() == nil {
				out[i], errs[i] = c.get(ctx, o)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read objects: %w", err)
	}
	return out, nil
}
