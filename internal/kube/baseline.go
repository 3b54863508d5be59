package kube

import (
	"context"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// managedBy marks what the provisioner puts into a cluster.
const managedBy = "app.kubernetes.io/managed-by"

// PodSecurity are the labels that every namespace of ours and the default one
// carry: what breaks the baseline profile is warned of and audited, not refused,
// because charts that were not written for it would stop working ("Pod Security
// Admission").
var PodSecurity = map[string]string{
	"pod-security.kubernetes.io/warn":  "baseline",
	"pod-security.kubernetes.io/audit": "baseline",
}

const defaultClass = "storageclass.kubernetes.io/is-default-class"

// classes are the encrypted default storage classes. EKS has none that is
// default since 1.30; the one of GKE and that of AKS are encrypted by the
// platform, and stay what they are.
var classes = map[job.Provider]storagev1.StorageClass{
	job.AWS: {
		ObjectMeta:  metav1.ObjectMeta{Name: "gp3-encrypted"},
		Provisioner: "ebs.csi.aws.com",
		Parameters:  map[string]string{"type": "gp3", "encrypted": "true"},
	},
	job.GCP: {
		ObjectMeta:  metav1.ObjectMeta{Name: "standard-rwo"},
		Provisioner: "pd.csi.storage.gke.io",
		Parameters:  map[string]string{"type": "pd-balanced"},
	},
	job.Azure: {
		ObjectMeta:  metav1.ObjectMeta{Name: "default"},
		Provisioner: "disk.csi.azure.com",
		Parameters:  map[string]string{"skuname": "StandardSSD_LRS"},
	},
}

// Baseline makes what every cluster of ours has from the start: a default
// storage class whose disks are encrypted, and pod security labels on its
// namespaces. In a verify it reports what differs.
func Baseline(ctx context.Context, r *pipeline.Run, c Interface) error {
	if err := ensureClass(ctx, r, c); err != nil {
		return err
	}
	return LabelNamespaces(ctx, r, c)
}

// LabelNamespaces puts pod security labels on every namespace that has none, the
// cluster's own left out: charts make namespaces of their own, too.
func LabelNamespaces(ctx context.Context, r *pipeline.Run, c Interface) error {
	all, err := Namespaces(ctx, c)
	if err != nil {
		return err
	}
	for _, ns := range all {
		if systemNamespace(ns.Name) || ns.Status != string(corev1.NamespaceActive) {
			continue
		}
		if err := labelNamespace(ctx, r, c, ns.Name); err != nil && !pipeline.Is(err, pipeline.NotFound) {
			return err
		}
	}
	return nil
}

func ensureClass(ctx context.Context, r *pipeline.Run, c Interface) error {
	want := classes[r.Job.Provider]
	have, err := c.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return Classify("list storage classes", err)
	}
	var named *storagev1.StorageClass
	for i, s := range have.Items {
		if s.Annotations[defaultClass] == "true" && encrypted(r.Job.Provider, s) {
			return nil // somebody's own default that is encrypted is as good
		}
		if s.Name == want.Name {
			named = &have.Items[i]
		}
	}
	if r.Mode == pipeline.Verify {
		r.AddDrift(pipeline.Drift{Kind: "k8s:storageclass", Key: want.Name, Attr: "default and encrypted", Wanted: "yes", Seen: "no"})
		return nil
	}
	for _, s := range have.Items {
		if s.Annotations[defaultClass] != "true" || s.Name == want.Name {
			continue
		}
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"false"}}}`, defaultClass)
		if _, err := c.StorageV1().StorageClasses().Patch(ctx, s.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return Classify("patch storage class "+s.Name, err)
		}
	}
	if named != nil {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, defaultClass)
		_, err := c.StorageV1().StorageClasses().Patch(ctx, want.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		return Classify("patch storage class "+want.Name, err)
	}
	class := want.DeepCopy()
	class.Annotations = map[string]string{defaultClass: "true"}
	class.Labels = map[string]string{managedBy: "zopday"}
	class.VolumeBindingMode = new(storagev1.VolumeBindingWaitForFirstConsumer)
	class.ReclaimPolicy = new(corev1.PersistentVolumeReclaimDelete)
	class.AllowVolumeExpansion = new(true)
	if _, err := c.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return Classify("create storage class "+want.Name, err)
	}
	return nil
}

// encrypted reports whether the disks of a class are encrypted at rest: at AWS
// when it says so, elsewhere always.
func encrypted(p job.Provider, s storagev1.StorageClass) bool {
	return p != job.AWS || s.Parameters["encrypted"] == "true"
}

func labelNamespace(ctx context.Context, r *pipeline.Run, c Interface, name string) error {
	ns, err := c.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return Classify("get namespace "+name, err)
	}
	var missing []string
	for k := range PodSecurity {
		if ns.Labels[k] == "" { // one that is set to something else is somebody's choice
			missing = append(missing, fmt.Sprintf("%q:%q", k, PodSecurity[k]))
		}
	}
	switch {
	case len(missing) == 0:
		return nil
	case r.Mode == pipeline.Verify:
		r.AddDrift(pipeline.Drift{Kind: "k8s:namespace", Key: name, Attr: "pod security labels", Wanted: "baseline", Seen: "none"})
		return nil
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%s}}}`, strings.Join(missing, ","))
	_, err = c.CoreV1().Namespaces().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return Classify("patch namespace "+name, err)
}

// A Namespace is a namespace of a cluster.
type Namespace struct {
	Name        string            `json:"name"`
	Status      string            `json:"status"`
	Labels      map[string]string `json:"labels,omitempty"`
	PodSecurity string            `json:"podSecurity,omitempty" doc:"The profile that is enforced, or else warned of"`
	CreatedAt   metav1.Time       `json:"createdAt"`
}

// Namespaces lists the namespaces of a cluster.
func Namespaces(ctx context.Context, c Interface) ([]Namespace, error) {
	var out []Namespace
	opts := metav1.ListOptions{Limit: 250}
	for {
		page, err := c.CoreV1().Namespaces().List(ctx, opts)
		if err != nil {
			return nil, Classify("list namespaces", err)
		}
		for _, ns := range page.Items {
			out = append(out, describe(ns))
		}
		if opts.Continue = page.Continue; opts.Continue == "" {
			return out, nil
		}
	}
}

// CreateNamespace makes a namespace with our pod security labels; one that is
// there already is an error of class Exists.
func CreateNamespace(ctx context.Context, c Interface, name string, labels map[string]string) (Namespace, error) {
	all := maps.Clone(PodSecurity)
	maps.Copy(all, labels)
	all[managedBy] = "zopday"
	ns, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all}}, metav1.CreateOptions{})
	if err != nil {
		return Namespace{}, Classify("create namespace "+name, err)
	}
	return describe(*ns), nil
}

func describe(ns corev1.Namespace) Namespace {
	profile := ns.Labels["pod-security.kubernetes.io/enforce"]
	if profile == "" {
		profile = ns.Labels["pod-security.kubernetes.io/warn"]
	}
	return Namespace{Name: ns.Name, Status: string(ns.Status.Phase), Labels: ns.Labels, PodSecurity: profile, CreatedAt: ns.CreationTimestamp}
}
