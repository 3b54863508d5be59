package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
)

// What whoever makes a Node or a Pod may say of it to these kubelets, as annotations.
const (
	// On a Node, "true": its kubelet says that it is not ready.
	notReadyAnnotation = "sandbox/not-ready"
	// On a Pod: what its containers end with. One that is to run on and ends so crashes in a loop.
	exitCodeAnnotation = "sandbox/exit-code"
)

// A kubelet renews its node's lease every 10 s by default, and the lease is for 40 s
// (Kubernetes documentation, "Node heartbeats").
const (
	renewEvery   = 10 * time.Second
	leaseSeconds = 40
)

// kubelets stand for the kubelets of all nodes.
type kubelets struct {
	client kubernetes.Interface
	nodes  listers.NodeLister
	pods   listers.PodLister
	queue  workqueue.TypedRateLimitingInterface[item]
	ips    atomic.Uint32
}

// An item is a pod to look at, or a node if it has no namespace.
type item = cache.ObjectName

// podWorkers is how many pods are looked at at a time.
const podWorkers = 4

// startKubelets begins to look after every Node there is and every Pod that is bound to one.
func startKubelets(ctx context.Context, client kubernetes.Interface) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	nodes, pods := factory.Core().V1().Nodes(), factory.Core().V1().Pods()
	k := &kubelets{
		client: client, nodes: nodes.Lister(), pods: pods.Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[item](20*time.Millisecond, 2*time.Second)),
	}
	look := func(o any) {
		if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		if name, err := cache.ObjectToName(o); err == nil {
			k.queue.Add(name)
		}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, o any) { look(o) }, DeleteFunc: look}
	if _, err := pods.Informer().AddEventHandler(handler); err != nil {
		return err
	}
	if _, err := nodes.Informer().AddEventHandler(handler); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	go func() {
		factory.WaitForCacheSync(ctx.Done())
		for range podWorkers {
			go k.work(ctx)
		}
		k.renewLeases(ctx)
		k.queue.ShutDown()
	}()
	return nil
}

func (k *kubelets) work(ctx context.Context) {
	for {
		name, shutdown := k.queue.Get()
		if shutdown {
			return
		}
		again, err := k.sync(ctx, name)
		switch {
		case err != nil:
			if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				klog.ErrorS(err, "Kubelet", "object", name)
			}
			k.queue.AddRateLimited(name)
		default:
			k.queue.Forget(name)
			if again > 0 {
				k.queue.AddAfter(name, again)
			}
		}
		k.queue.Done(name)
	}
}

// sync brings one object a step further, and says after what time it wants to be looked at again.
func (k *kubelets) sync(ctx context.Context, name item) (again time.Duration, err error) {
	if name.Namespace == "" {
		return 0, k.syncNode(ctx, name.Name)
	}
	pod, err := k.pods.Pods(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) || err == nil && pod.Spec.NodeName == "" {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return k.syncPod(ctx, pod)
}

// syncNode says of a node what its kubelet would; the pods of one that is gone are to be looked at.
func (k *kubelets) syncNode(ctx context.Context, name string) error {
	node, err := k.nodes.Get(name)
	if apierrors.IsNotFound(err) {
		pods, err := k.pods.List(labels.Everything())
		for _, pod := range pods {
			if pod.Spec.NodeName == name {
				k.queue.Add(cache.MetaObjectToName(pod))
			}
		}
		return err
	}
	if err != nil {
		return err
	}
	want := core.ConditionTrue
	if node.Annotations[notReadyAnnotation] == "true" {
		want = core.ConditionFalse
	}
	if readiness(node) == want {
		return nil
	}
	if err := k.renewLease(ctx, node); err != nil {
		return err
	}
	node = node.DeepCopy()
	node.Status.Conditions = nodeConditions(want)
	if len(node.Status.Addresses) == 0 {
		node.Status.Addresses = []core.NodeAddress{
			{Type: core.NodeInternalIP, Address: k.address(hostNet)},
			{Type: core.NodeHostName, Address: node.Name},
		}
	}
	if len(node.Status.Capacity) == 0 {
		node.Status.Capacity = core.ResourceList{
			core.ResourceCPU:              resource.MustParse("4"),
			core.ResourceMemory:           resource.MustParse("16Gi"),
			core.ResourcePods:             resource.MustParse("110"),
			core.ResourceEphemeralStorage: resource.MustParse("100Gi"),
		}
	}
	if len(node.Status.Allocatable) == 0 {
		node.Status.Allocatable = node.Status.Capacity
	}
	if node.Status.NodeInfo.KubeletVersion == "" {
		node.Status.NodeInfo.KubeletVersion = version.Get().GitVersion
	}
	_, err = k.client.CoreV1().Nodes().UpdateStatus(ctx, node, meta.UpdateOptions{})
	return err
}

func readiness(node *core.Node) core.ConditionStatus {
	for _, c := range node.Status.Conditions {
		if c.Type == core.NodeReady {
			return c.Status
		}
	}
	return core.ConditionUnknown
}

func nodeConditions(ready core.ConditionStatus) []core.NodeCondition {
	now := meta.Now()
	reason, message := "KubeletReady", "kubelet is posting ready status"
	if ready != core.ConditionTrue {
		reason, message = "KubeletNotReady", "container runtime network not ready: cni plugin not initialized"
	}
	of := func(kind core.NodeConditionType, status core.ConditionStatus, reason, message string) core.NodeCondition {
		return core.NodeCondition{Type: kind, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now}
	}
	return []core.NodeCondition{
		of(core.NodeMemoryPressure, core.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
		of(core.NodeDiskPressure, core.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		of(core.NodePIDPressure, core.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
		of(core.NodeReady, ready, reason, message),
	}
}

func (k *kubelets) renewLeases(ctx context.Context) {
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		nodes, err := k.nodes.List(labels.Everything())
		for _, node := range nodes {
			if err = k.renewLease(ctx, node); err != nil {
				klog.ErrorS(err, "Lease", "node", node.Name)
			}
		}
		if err != nil {
			klog.ErrorS(err, "Leases")
		}
	}
}

// renewLease writes the lease of a node that says that its kubelet lives.
func (k *kubelets) renewLease(ctx context.Context, node *core.Node) error {
	leases := k.client.CoordinationV1().Leases(core.NamespaceNodeLease)
	now, holds, holder := meta.NowMicro(), int32(leaseSeconds), node.Name
	lease, err := leases.Get(ctx, node.Name, meta.GetOptions{})
	if err == nil {
		lease.Spec.RenewTime = &now
		_, err = leases.Update(ctx, lease, meta.UpdateOptions{})
		return err
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = leases.Create(ctx, &coordination.Lease{
		ObjectMeta: meta.ObjectMeta{Name: node.Name, OwnerReferences: []meta.OwnerReference{
			{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID},
		}},
		Spec: coordination.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &holds, RenewTime: &now},
	}, meta.CreateOptions{})
	return err
}

// The first halves of the addresses of pods, and of nodes that nobody gave one.
const (
	podNet  = "10.244"
	hostNet = "10.250"
)

func (k *kubelets) address(net string) string {
	n := k.ips.Add(1)
	return fmt.Sprintf("%s.%d.%d", net, n/250%250, n%250+1)
}
