package kube

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/pipeline"
)

// drainPatience is for how long, in cloud time, a drain waits for the cluster's
// controllers to let go of what they made. What is left then is removed at the
// cloud, by the cluster's mark.
const drainPatience = 15 * time.Minute

// gateways and the routes of ingress are what load balancers are made for
// beside Services.
var exposing = []schema.GroupVersionResource{
	{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"},
	{Group: "gateway.networking.k8s.io", Version: "v1", Resource: "gateways"},
}

// Drain removes from a cluster that is about to be deleted everything that
// holds something outside of it: Services of type LoadBalancer, Ingresses,
// Gateways, and claims whose volumes are deleted with them; first it bars new
// ones. It is done when the controllers have let go of all of them, and waits
// until then, within a bound. Volumes with the policy Retain are not touched: see
// [Retained].
func Drain(ctx context.Context, r *pipeline.Run, access cloud.KubeAccess) error {
	cfg, err := RESTConfig(ctx, access)
	if err != nil {
		return err
	}
	typed, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("client of %s: %w", access.Server, err)
	}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("client of %s: %w", access.Server, err)
	}
	d := &drain{run: r, typed: typed, dyn: dyn}
	var left []string
	for _, part := range []func(context.Context) ([]string, error){d.bar, d.services, d.exposed, d.claims} {
		names, err := part(ctx)
		if err != nil {
			return err
		}
		left = append(left, names...)
	}
	if len(left) == 0 {
		r.WaitOver("drain")
		return nil
	}
	// The clock runs on: what follows may need more passes, and each begins here.
	if Overdue(r, "drain", drainPatience) {
		r.Note("the cluster's controllers did not let go of %s within %s; what they made is removed at the cloud", summary(left), drainPatience)
		return nil
	}
	return pipeline.Wait(Pause(r.Pace, 5*time.Second), "the cluster's controllers to let go of %s", summary(left))
}

// summary names some of many.
func summary(names []string) string {
	if len(names) <= 5 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:5], ", "), len(names)-5)
}

// A Volume is a PersistentVolume with its disk at the cloud.
type Volume struct {
	Name   string // of the PersistentVolume
	Handle string // the cloud's ID of the disk, as its CSI driver has it; GCP: also its name alone
}

// Retained are the volumes of a cluster with the policy Retain: somebody's data,
// which is to outlive the cluster. It only reads.
func Retained(ctx context.Context, c Interface) ([]Volume, error) {
	all, err := c.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, Classify("list volumes", err)
	}
	var out []Volume
	for _, v := range all.Items {
		if handle := diskOf(v.Spec.PersistentVolumeSource); handle != "" && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
			out = append(out, Volume{v.Name, handle})
		}
	}
	return out, nil
}

// diskOf is the cloud's ID of a volume's disk; "" if it has none. Volumes that were
// written before the CSI drivers, or as if, name it in fields of each cloud's own.
func diskOf(s corev1.PersistentVolumeSource) string {
	switch {
	case s.CSI != nil:
		return s.CSI.VolumeHandle
	case s.AWSElasticBlockStore != nil:
		return path.Base(s.AWSElasticBlockStore.VolumeID) // aws://us-east-1a/vol-… or vol-…
	case s.AzureDisk != nil:
		return s.AzureDisk.DataDiskURI
	case s.GCEPersistentDisk != nil:
		return s.GCEPersistentDisk.PDName // without its zone and project
	}
	return ""
}

type drain struct {
	run   *pipeline.Run
	typed Interface
	dyn   dynamic.Interface
}

// TeardownQuota is the name of the ResourceQuota that bars new load balancers and
// volumes in every namespace of a cluster that goes.
const TeardownQuota = "zopday-teardown"

// bar keeps automation in the cluster from making anew what a drain takes away.
func (d *drain) bar(ctx context.Context) ([]string, error) {
	all, err := Namespaces(ctx, d.typed)
	if err != nil {
		return nil, err
	}
	none := resource.MustParse("0")
	for _, ns := range all {
		if ns.Status != string(corev1.NamespaceActive) {
			continue
		}
		q := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: TeardownQuota, Labels: map[string]string{managedBy: "zopday"}},
			Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
				corev1.ResourceServicesLoadBalancers: none, corev1.ResourcePersistentVolumeClaims: none,
			}},
		}
		_, err := d.typed.CoreV1().ResourceQuotas(ns.Name).Create(ctx, q, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			return nil, Classify("create resource quota in "+ns.Name, err)
		}
	}
	return nil, nil
}

func (d *drain) services(ctx context.Context) ([]string, error) {
	list, err := d.typed.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, Classify("list services", err)
	}
	var left []string
	for _, s := range list.Items {
		if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
			continue
		}
		left = append(left, "Service "+s.Namespace+"/"+s.Name)
		if s.DeletionTimestamp != nil {
			continue
		}
		if err := d.typed.CoreV1().Services(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return nil, Classify("delete service "+s.Namespace+"/"+s.Name, err)
		}
	}
	return left, nil
}

func (d *drain) exposed(ctx context.Context) ([]string, error) {
	var left []string
	for _, kind := range exposing {
		list, err := d.dyn.Resource(kind).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue // the cluster does not serve this kind
		}
		if err != nil {
			return nil, Classify("list "+kind.Resource, err)
		}
		for _, o := range list.Items {
			left = append(left, o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName())
			if o.GetDeletionTimestamp() != nil {
				continue
			}
			if err := d.dyn.Resource(kind).Namespace(o.GetNamespace()).Delete(ctx, o.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return nil, Classify("delete "+kind.Resource+" "+o.GetName(), err)
			}
		}
	}
	return left, nil
}

// claims removes the claims whose volumes go with them, and what uses them: a
// claim in use is kept by its finalizer. Volumes with the policy Retain are
// somebody's data and stay.
func (d *drain) claims(ctx context.Context) ([]string, error) {
	volumes, err := d.typed.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, Classify("list volumes", err)
	}
	claims, err := d.typed.CoreV1().PersistentVolumeClaims(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, Classify("list claims", err)
	}
	kept := map[string]bool{}
	var left []string
	for _, v := range volumes.Items {
		if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRetain {
			kept[v.Name] = true
			continue
		}
		if v.Spec.ClaimRef == nil || !claimed(claims.Items, v.Spec.ClaimRef) {
			left = append(left, "PersistentVolume "+v.Name) // on its way out with its disk
		}
	}
	var busy []corev1.PersistentVolumeClaim
	for _, c := range claims.Items {
		if kept[c.Spec.VolumeName] {
			continue
		}
		left = append(left, "PersistentVolumeClaim "+c.Namespace+"/"+c.Name)
		busy = append(busy, c)
		if c.DeletionTimestamp != nil {
			continue
		}
		if err := d.typed.CoreV1().PersistentVolumeClaims(c.Namespace).Delete(ctx, c.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return nil, Classify("delete claim "+c.Namespace+"/"+c.Name, err)
		}
	}
	return left, d.stopUsers(ctx, busy)
}

func claimed(claims []corev1.PersistentVolumeClaim, ref *corev1.ObjectReference) bool {
	return slices.ContainsFunc(claims, func(c corev1.PersistentVolumeClaim) bool {
		return c.Namespace == ref.Namespace && c.Name == ref.Name
	})
}

// stopUsers deletes the pods that use claims, and what would start them again.
// A budget for disruptions does not stand in the way (failure E14): nothing is
// evicted, the cluster is going.
func (d *drain) stopUsers(ctx context.Context, claims []corev1.PersistentVolumeClaim) error {
	if len(claims) == 0 {
		return nil
	}
	used := map[string]bool{}
	for _, c := range claims {
		used[c.Namespace+"/"+c.Name] = true
	}
	pods, err := d.typed.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return Classify("list pods", err)
	}
	for _, p := range pods.Items {
		if !slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && used[p.Namespace+"/"+v.PersistentVolumeClaim.ClaimName]
		}) {
			continue
		}
		if err := d.stop(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// stop deletes a pod and the workload that it belongs to.
func (d *drain) stop(ctx context.Context, p corev1.Pod) error {
	apps, background := d.typed.AppsV1(), metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}
	owner := metav1.GetControllerOf(&p)
	if owner != nil && owner.Kind == "ReplicaSet" {
		set, err := apps.ReplicaSets(p.Namespace).Get(ctx, owner.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return Classify("get replica set "+owner.Name, err)
		}
		if above := metav1.GetControllerOf(set); err == nil && above != nil {
			owner = above
		}
	}
	var err error
	if owner != nil {
		switch owner.Kind {
		case "StatefulSet":
			err = apps.StatefulSets(p.Namespace).Delete(ctx, owner.Name, background)
		case "Deployment":
			err = apps.Deployments(p.Namespace).Delete(ctx, owner.Name, background)
		case "ReplicaSet":
			err = apps.ReplicaSets(p.Namespace).Delete(ctx, owner.Name, background)
		case "DaemonSet":
			err = apps.DaemonSets(p.Namespace).Delete(ctx, owner.Name, background)
		case "Job":
			err = d.typed.BatchV1().Jobs(p.Namespace).Delete(ctx, owner.Name, background)
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return Classify("delete "+strings.ToLower(owner.Kind)+" "+p.Namespace+"/"+owner.Name, err)
		}
	}
	if err := d.typed.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return Classify("delete pod "+p.Namespace+"/"+p.Name, err)
	}
	return nil
}
