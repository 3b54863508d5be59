package main

import (
	"context"
	"errors"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/namespace/deletion"
)

// The namespace controller of Kubernetes waits 5 s before it looks at a namespace, for the sake of
// several API servers, and half a pod's grace before it looks again. With one API server and pods
// that are gone at once that is time spent for nothing, at the end of every environment; so this
// one calls the same deleter at a pace of its own.
const (
	namespaceGrace = 200 * time.Millisecond
	namespaceRetry = 300 * time.Millisecond
)

// startNamespaces begins to empty and remove the namespaces that are to be deleted.
func startNamespaces(ctx context.Context, config *rest.Config, client *kubernetes.Clientset) error {
	meta, err := metadata.NewForConfig(config)
	if err != nil {
		return err
	}
	deleter := deletion.NewNamespacedResourcesDeleter(ctx, client.CoreV1().Namespaces(), meta, client.CoreV1(),
		client.Discovery().ServerPreferredNamespacedResources, core.FinalizerKubernetes)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](namespaceRetry, 5*time.Second))
	factory := informers.NewSharedInformerFactory(client, 0)
	look := func(o any) {
		if namespace, ok := o.(*core.Namespace); ok && namespace.DeletionTimestamp != nil {
			queue.AddAfter(namespace.Name, namespaceGrace)
		}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, o any) { look(o) }}
	if _, err := factory.Core().V1().Namespaces().Informer().AddEventHandler(handler); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	context.AfterFunc(ctx, queue.ShutDown)
	for range 2 {
		go emptyNamespaces(ctx, deleter, queue)
	}
	return nil
}

func emptyNamespaces(ctx context.Context, deleter deletion.NamespacedResourcesDeleterInterface, queue workqueue.TypedRateLimitingInterface[string]) {
	for {
		name, shutdown := queue.Get()
		if shutdown {
			return
		}
		err := deleter.Delete(ctx, name)
		var remaining *deletion.ResourcesRemainingError
		switch {
		case err == nil:
			queue.Forget(name)
		case errors.As(err, &remaining):
			queue.AddAfter(name, namespaceRetry)
		default:
			klog.ErrorS(err, "Namespace", "name", name)
			queue.AddRateLimited(name)
		}
		queue.Done(name)
	}
}
