package components

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim/charts"
)

// Ten components of the catalogue go through their lives side by side: kinds,
// hooks, load balancers, volumes, workloads of every kind.
func TestStandInsLive(t *testing.T) {
	t.Parallel()
	w := newWorld(t, charts.StandIns()...)
	var specs []job.ComponentSpec
	for name := range strings.FieldsSeq("cert-manager envoy-gateway traefik kube-prometheus-stack grafana fluent-bit valkey tempo kyverno redis-operator") {
		specs = append(specs, job.ComponentSpec{Name: name})
	}
	levels, err := w.e.Order(specs)
	if err != nil || len(levels) != 2 || len(levels[1]) != 2 {
		t.Fatalf("%v, %v", levels, err)
	}
	for _, level := range levels {
		var wg sync.WaitGroup
		for _, spec := range level {
			wg.Go(func() {
				err := w.pass(spec.Name, func(ctx context.Context, r *pipeline.Run) error {
					info, err := w.e.Install(ctx, r, w.access, spec, "v1.37.2")
					if err == nil && (info.Status != "ready" || info.Revision != 1 || info.Version != spec.Version) {
						err = fmt.Errorf("%+v", info)
					}
					return err
				})
				if err != nil {
					t.Errorf("%s: %v", spec.Name, err)
				}
			})
		}
		wg.Wait()
	}
	svc, err := w.kube.CoreV1().Services("traefik").Get(t.Context(), "traefik", metav1.GetOptions{})
	if err != nil || len(svc.Status.LoadBalancer.Ingress) == 0 {
		t.Errorf("load balancer: %+v, %v", svc.Status, err)
	}
	claim, err := w.kube.CoreV1().PersistentVolumeClaims("valkey").Get(t.Context(), "valkey", metav1.GetOptions{})
	if err != nil || claim.Status.Phase != corev1.ClaimBound {
		t.Errorf("claim: %+v, %v", claim.Status, err)
	}
	var wg sync.WaitGroup
	for _, level := range levels {
		for _, spec := range level {
			wg.Go(func() {
				if err := w.pass(spec.Name, func(ctx context.Context, r *pipeline.Run) error { return w.e.Uninstall(ctx, r, w.access, spec) }); err != nil {
					t.Errorf("%s: %v", spec.Name, err)
				}
			})
		}
	}
	wg.Wait()
	for _, o := range w.rows {
		// The claims of a StatefulSet hold data and stay, and the namespace with them.
		stays := o.Kind == KindNamespace && (o.ID == "tempo" || o.ID == "monitoring")
		if !stays && o.State != job.ObjectRemoved || stays && (o.State != job.ObjectKept || !strings.Contains(o.Reason, "PersistentVolumeClaim data-")) {
			t.Errorf("%+v", o)
		}
	}
	// Kinds stay, and whatever people have made of them.
	if crd := w.crd("certificates.cert-manager.io"); crd == nil {
		t.Error("the kinds of cert-manager are gone")
	}
}

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// crd is a kind's definition; nil if there is none.
func (w *world) crd(name string) map[string]any {
	w.t.Helper()
	c, err := w.e.open(w.t.Context(), w.access, "default")
	if err != nil {
		w.t.Fatal(err)
	}
	o, err := c.dyn.Resource(crdResource).Get(w.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return o.Object
}

func kindChart(version, more string) charts.Chart {
	return charts.Chart{Name: "kinds", Version: version, Files: map[string]string{
		"values.yaml": "{}\n",
		"crds/kind.yaml": `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.test.example.com}
spec:
  group: test.example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}` + more + `}}}}}
`,
		"templates/widget.yaml": "apiVersion: test.example.com/v1\nkind: Widget\nmetadata: {name: {{ .Release.Name }}}\nspec: {size: 1{{ if eq .Chart.Version \"2.0.0\" }}, colour: red{{ end }}}\n",
	}}
}

// Kinds that a removed release left are the next one's, wherever that goes; those
// of a release that is there are not.
func TestKindsAreInherited(t *testing.T) {
	t.Parallel()
	w := newWorld(t, charts.StandIns()...)
	first := w.resolve(job.ComponentSpec{Name: "keda", Namespace: "keda-one"})
	w.mustInstall(first)
	second := w.resolve(job.ComponentSpec{Name: "keda", Namespace: "keda-two"})
	other := w.other()
	if _, err := other.install(second); stopped(err) != "name-taken" || !strings.Contains(err.Error(), "keda.sh") {
		t.Errorf("%v", err)
	}
	w.gone(first)
	other.mustInstall(second)
	other.sound(second)
	other.gone(second)
}

// Kinds come before what is made of them, an upgrade brings their new version,
// and a release of which the kinds are gone can still be removed.
func TestKinds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, kindChart("1.0.0", ""), kindChart("2.0.0", ", colour: {type: string}"))
	spec := job.ComponentSpec{Name: "kinds", Namespace: "kinds", Version: "1.0.0"}
	w.mustInstall(w.resolve(spec))
	spec.Version = "2.0.0"
	x := w.resolve(spec)
	w.mustInstall(x)
	w.sound(x)
	if text := fmt.Sprint(w.crd("widgets.test.example.com")); !strings.Contains(text, "colour") {
		t.Errorf("the kind is the old one: %s", text)
	}
	c, err := w.e.open(open(t), w.access, "kinds")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.dyn.Resource(crdResource).Delete(t.Context(), "widgets.test.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for w.crd("widgets.test.example.com") != nil {
		if t.Context().Err() != nil {
			t.Fatal("the kind does not go")
		}
	}
	w.gone(x)

	// A chart that needs what nobody has brought.
	missing := charts.Chart{Name: "kinds", Version: "3.0.0", Files: map[string]string{"templates/x.yaml": "apiVersion: nobody.example.com/v1\nkind: Unheard\nmetadata: {name: x}\n"}}
	w = newWorld(t, missing)
	lacking := w.resolve(job.ComponentSpec{Name: "kinds", Namespace: "lacking", Version: "3.0.0"})
	if _, err := w.install(lacking); stopped(err) != "kind-missing" || !strings.Contains(err.Error(), "Unheard") {
		t.Errorf("%v", err)
	}
	w.gone(lacking)
}
