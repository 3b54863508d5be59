package components

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/kube"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim/charts"
)

// crashChart has what Helm does one after another: a kind of its own, a hook
// before, objects, a hook after, and one before it goes.
func crashChart(version string) charts.Chart {
	return charts.Chart{Name: "app", Version: version, Description: "for tests", Files: map[string]string{
		"values.yaml": "text: hello\nhooks: false\nends: false\nexit: \"0\"\nhookImage: example.com/hook:1\n",
		"crds/kind.yaml": `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: crashes.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: crashes, singular: crash, kind: Crash, listKind: CrashList}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`,
		"templates/objects.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata: {text: {{ .Values.text | quote }}}\n---\n" +
			"apiVersion: example.com/v1\nkind: Crash\nmetadata: {name: {{ .Release.Name }}}\nspec: {text: {{ .Values.text | quote }}}\n",
		"templates/" + version + ".yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-" + strings.ReplaceAll(version, ".", "-") + "}\n",
		"templates/before.yaml":          "{{ if .Values.hooks }}" + hookTemplate("before", "pre-install,pre-upgrade", "") + "{{ end }}",
		"templates/after.yaml": "{{ if .Values.hooks }}apiVersion: v1\nkind: Pod\nmetadata: {name: {{ .Release.Name }}-after, annotations: {helm.sh/hook: \"post-install,post-upgrade\"}}\n" +
			"spec: {restartPolicy: Never, containers: [{name: main, image: example.com/hook:1}]}\n{{ end }}",
		"templates/end.yaml": "{{ if .Values.ends }}" + hookTemplate("end", "pre-delete", "") + "{{ end }}",
	}}
}

// die lets a worker die at the nth mutating call of something, before the call or
// with its reply lost; at none if n is 0.
func (w *world) die(wire *wire, n int, after bool, once func(ctx context.Context, r *pipeline.Run) error) {
	w.t.Helper()
	wire.mu.Lock()
	wire.n, wire.dieAt, wire.after = 0, n, after
	wire.mu.Unlock()
	alive := w.access
	w.access = wire.access
	err := w.pass("until death", func(ctx context.Context, r *pipeline.Run) error {
		err := once(ctx, r)
		if wire.isDead() && (err == nil || pipeline.IsWait(err)) {
			return errors.New("dead") // nobody comes back to wait
		}
		return err
	})
	w.access = alive
	w.forget()
	if died := wire.isDead(); died != (n > 0) || !died && err != nil {
		w.t.Errorf("died: %v, after %d calls, %v", died, wire.n, err)
	}
}

func (w *wire) isDead() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dead
}

// A worker dies at every call that changes something, of an install, an upgrade
// and a removal; the next one ends with one sound release, or with nothing left.
func TestCrashAtEveryPhase(t *testing.T) {
	t.Parallel()
	base := newWorld(t, crashChart("1.0.0"), crashChart("2.0.0"))
	// The kind is there from now on, whoever installs first.
	if _, err := kube.CreateNamespace(t.Context(), base.kube, "crash", nil); err != nil {
		t.Fatal(err)
	}
	first := base.resolve(job.ComponentSpec{Name: "app", Namespace: "crash", Version: "1.0.0", Release: "first"})
	base.mustInstall(first)
	if err := base.remove(first.Place); err != nil {
		t.Fatal(err)
	}
	base.noObjects(first)
	// A hook takes seconds, most of them waiting: the cases run side by side.
	slots := make(chan struct{}, 10)
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, phase := range []string{"install", "upgrade", "remove"} {
		calls := crashOnce(t, base, phase, 0, false)
		if least := map[string]int{"install": 10, "upgrade": 12, "remove": 7}[phase]; calls < least {
			t.Errorf("%s makes %d calls only", phase, calls)
		}
		for n := range 2 * calls {
			wg.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				t.Run(fmt.Sprintf("%s at %d, lost reply %v", phase, n/2+1, n%2 == 1), func(t *testing.T) {
					crashOnce(t, base, phase, n/2+1, n%2 == 1)
				})
			})
		}
	}
}

// crashOnce is one life of a release in which the worker dies at the nth call of a
// phase; it returns how many calls were made until then, or in all of the phase.
func crashOnce(t *testing.T, base *world, phase string, n int, after bool) int {
	w := base.other()
	w.t = t
	wire := newWire(t)
	release := fmt.Sprintf("r%d-%s-%v", n, phase, after)
	one := w.resolve(job.ComponentSpec{Name: "app", Namespace: "crash", Release: release, Version: "1.0.0", Values: values(`{"hooks": %v, "ends": %v}`, phase == "install", phase == "remove")})
	two := w.resolve(job.ComponentSpec{Name: "app", Namespace: "crash", Release: release, Version: "2.0.0", Values: values(`{"text": "other", "hooks": true}`)})
	ensure := func(x *Resolved) func(context.Context, *pipeline.Run) error {
		return func(ctx context.Context, r *pipeline.Run) error {
			_, err := w.e.Ensure(ctx, r, w.access, x)
			return err
		}
	}
	final := one
	switch phase {
	case "install":
		w.die(wire, n, after, ensure(one))
		w.mustInstall(one)
	case "upgrade":
		w.mustInstall(one)
		w.forget()
		w.die(wire, n, after, ensure(two))
		w.mustInstall(two)
		final = two
	case "remove":
		w.mustInstall(one)
		w.forget()
		w.die(wire, n, after, func(ctx context.Context, r *pipeline.Run) error { return w.e.Remove(ctx, r, w.access, one.Place) })
	}
	if phase != "remove" {
		w.sound(final)
		w.onlyObjectsOf(final)
	}
	if err := w.remove(one.Place); err != nil {
		t.Errorf("remove: %v", err)
	}
	w.noObjects(one)
	if t.Failed() {
		t.Logf("calls: %q; events: %q", wire.seen, w.events)
	}
	return wire.n
}

// onlyObjectsOf checks that what a version of the chart makes is there, and what
// another makes is not.
func (w *world) onlyObjectsOf(x *Resolved) {
	w.t.Helper()
	own := "ConfigMap " + x.Place.Release + "-" + strings.ReplaceAll(x.Version, ".", "-")
	if got := w.objects(x); !slices.Contains(got, own) || slices.ContainsFunc(got, func(o string) bool {
		return strings.HasPrefix(o, "ConfigMap "+x.Place.Release+"-") && o != own
	}) {
		w.t.Errorf("objects: %q", got)
	}
}

// noObjects checks that nothing of a release is left, and that no row says so.
// The pod of a hook's Job goes a moment after the Job, when the cluster's garbage
// collector sees it.
func (w *world) noObjects(x *Resolved) {
	w.t.Helper()
	left := w.objects(x)
	for end := time.Now().Add(10 * time.Second); len(left) > 0 && time.Now().Before(end); left = w.objects(x) {
		time.Sleep(100 * time.Millisecond)
	}
	for _, o := range left {
		w.t.Errorf("left behind: %s", o)
	}
	for _, o := range w.rows {
		if o.State != job.ObjectRemoved && o.State != job.ObjectAbsent {
			w.t.Errorf("row: %+v", o)
		}
	}
}

// objects are those of the kinds of the chart that carry a release's name, its
// records among them.
func (w *world) objects(x *Resolved) (out []string) {
	w.t.Helper()
	c, err := w.e.open(w.t.Context(), w.access, x.Place.Namespace)
	if err != nil {
		w.t.Fatal(err)
	}
	for kind, resource := range map[string]schema.GroupVersionResource{
		"ConfigMap": {Version: "v1", Resource: "configmaps"}, "Secret": secretsResource, "Pod": {Version: "v1", Resource: "pods"}, "Job": {Group: "batch", Version: "v1", Resource: "jobs"},
		"Crash": {Group: "example.com", Version: "v1", Resource: "crashes"},
	} {
		list, err := c.meta.Resource(resource).Namespace(x.Place.Namespace).List(w.t.Context(), metav1.ListOptions{})
		if err != nil {
			w.t.Fatal(err)
		}
		for _, o := range list.Items {
			if o.DeletionTimestamp == nil && (o.Name == x.Place.Release || strings.HasPrefix(o.Name, x.Place.Release+"-") || strings.Contains(o.Name, "."+x.Place.Release+".")) {
				out = append(out, kind+" "+o.Name)
			}
		}
	}
	return out
}
