package components

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim/charts"
)

const appTemplate = `apiVersion: v1
kind: ConfigMap
metadata: {name: {{ .Release.Name }}}
data: {text: {{ .Values.text | quote }}}
---
apiVersion: v1
kind: Secret
metadata: {name: {{ .Release.Name }}}
stringData: {password: {{ .Values.password | quote }}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  replicas: {{ .Values.replicas }}
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      containers:
      - {name: main, image: {{ .Values.image | quote }}, env: [{name: TEXT, value: {{ .Values.text | quote }}}]}
`

func hookTemplate(name, events, more string) string {
	return `apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .Release.Name }}-` + name + `
  annotations: {helm.sh/hook: "` + events + `"}
spec:
  backoffLimit: 0` + more + `
  template:
    metadata: {annotations: {sandbox/exit-code: {{ .Values.exit | quote }}}}
    spec:
      restartPolicy: Never
      containers: [{name: main, image: {{ .Values.hookImage | quote }}}]
`
}

// app is a chart with a workload, and other files on top of that.
func app(version string, more map[string]string) charts.Chart {
	files := map[string]string{
		"values.yaml":        "text: hello\npassword: unset\nreplicas: 1\nimage: example.com/app:1\nhookImage: example.com/hook:1\nexit: \"0\"\n",
		"templates/app.yaml": appTemplate,
	}
	maps.Copy(files, more)
	return charts.Chart{Name: "app", Version: version, AppVersion: version, Description: "for tests", Files: files}
}

func values(format string, args ...any) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(format, args...))
}

func TestLifecycle(t *testing.T) {
	t.Parallel()
	w := newWorld(t, app("1.0.0", map[string]string{"templates/before.yaml": hookTemplate("before", "pre-install,pre-upgrade", "")}), app("1.1.0", map[string]string{
		"templates/extra.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}-extra}\n",
	}))
	spec := job.ComponentSpec{Name: "app", Namespace: "lifecycle", Version: "1.0.0", Values: values(`{"password": "first-secret"}`)}
	x := w.resolve(spec)

	plan := w.run(pipeline.Plan)
	if _, err := w.e.Install(t.Context(), plan, w.access, spec, ""); err != nil || len(plan.Planned()) != 2 {
		t.Errorf("plan: %v, %+v", err, plan.Planned())
	}
	info := w.mustInstall(x)
	if info.Status != "ready" || info.Revision != 1 || info.Version != "1.0.0" {
		t.Errorf("%+v", info)
	}
	w.sound(x)
	ns, err := w.kube.CoreV1().Namespaces().Get(t.Context(), "lifecycle", metav1.GetOptions{})
	if err != nil || ns.Labels["pod-security.kubernetes.io/warn"] != "baseline" || ns.Labels[labelOwner] != w.job.ID {
		t.Errorf("namespace: %v, %v", ns.Labels, err)
	}

	// Again, by a worker that knows nothing: nothing changes.
	w.forget()
	if info := w.mustInstall(x); info.Revision != 1 {
		t.Errorf("installed again: %+v", info)
	}

	spec = w.upgradesAndBack(spec)
	was := w.resolve(spec)
	if info := w.mustInstall(was); info.Revision != 3 {
		t.Errorf("%+v", info)
	}
	w.sound(was)
	_, err = w.e.Rollback(open(t), w.run(pipeline.Apply), w.access, spec, 9)
	want(t, err, "revision")

	all, err := w.e.Installed(t.Context(), w.access)
	found := false
	for _, i := range all {
		found = found || i.Name == "app" && i.Namespace == "lifecycle" && i.Revision == 3 && i.Status == "deployed"
	}
	if err != nil || !found {
		t.Errorf("installed: %+v, %v", all, err)
	}

	if err := w.remove(x.Place); err != nil {
		t.Fatal(err)
	}
	w.nothingLeft(x)
	if err := w.remove(x.Place); err != nil {
		t.Errorf("removed twice: %v", err)
	}
	for _, e := range w.events {
		if strings.Contains(e, "secret") {
			t.Errorf("a value is told: %s", e)
		}
	}
}

// upgradesAndBack takes the release to another version with other values, looked
// at first, and back again; it returns what is installed then.
func (w *world) upgradesAndBack(spec job.ComponentSpec) job.ComponentSpec {
	t := w.t
	t.Helper()
	spec.Version, spec.Values = "1.1.0", values(`{"password": "second-secret", "text": "changed"}`)
	next := w.resolve(spec)
	changes, err := w.e.Diff(t.Context(), w.access, spec, "1.37", w.job.Provider)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%+v", changes)
	if strings.Contains(text, "second-secret") || strings.Contains(text, "first-secret") || len(changes) != 4 ||
		!strings.Contains(text, "+  text: changed") || !strings.Contains(text, "hidden, as it will be") {
		t.Errorf("diff: %s", text)
	}
	drift := w.run(pipeline.Verify)
	w.forget()
	if _, err := w.e.Ensure(open(t), drift, w.access, next); err != nil || len(drift.Drift()) != 2 {
		t.Errorf("drift: %v, %+v", err, drift.Drift())
	}
	for _, d := range drift.Drift() {
		if strings.Contains(d.Wanted+d.Seen, "secret") {
			t.Errorf("a value is told: %+v", d)
		}
	}
	if info := w.mustInstall(next); info.Revision != 2 || info.Version != "1.1.0" {
		t.Errorf("%+v", info)
	}
	w.sound(next)
	if again, err := w.e.Diff(t.Context(), w.access, spec, "1.37", w.job.Provider); err != nil || len(again) != 0 {
		t.Errorf("diff of what is installed: %v, %+v", err, again)
	}

	// Back.
	r := w.run(pipeline.Apply)
	back, err := w.e.Rollback(open(t), r, w.access, spec, 0)
	if err != nil || back.Version != "1.0.0" || !strings.Contains(string(back.Values), "first-secret") {
		t.Fatalf("%+v, %v", back, err)
	}
	if _, err := w.e.Rollback(open(t), w.run(pipeline.Apply), w.access, spec, 1); err != nil {
		t.Errorf("rolled back twice: %v", err)
	}
	return back
}

// What is not ready says which object, and why.
func TestWaitsNameTheReason(t *testing.T) {
	t.Parallel()
	w := newWorld(t, app("1.0.0", nil))
	for name, tc := range map[string]struct {
		values json.RawMessage
		says   []string
	}{
		"image":    {values(`{"image": "registry.invalid/app:1"}`), []string{"Deployment reason-image/app", "0 of 1 replicas", "ImagePullBackOff"}},
		"replicas": {values(`{"replicas": 2, "image": "registry.invalid/app:1"}`), []string{"0 of 2 replicas"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := w.other()
			w.t = t
			x := w.resolve(job.ComponentSpec{Name: "app", Namespace: "reason-" + name, Values: tc.values})
			said := ""
			for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
				info, err := w.e.Ensure(open(t), w.run(pipeline.Apply), w.access, x)
				if !pipeline.IsWait(err) {
					t.Fatalf("not waiting: %v", err)
				}
				said = err.Error()
				all := true
				for _, s := range tc.says {
					all = all && strings.Contains(said, s)
				}
				if all {
					if info.Status != "installing" || info.Waiting != said || info.Revision != 1 {
						t.Errorf("%+v", info)
					}
					break
				}
			}
			for _, s := range tc.says {
				if !strings.Contains(said, s) {
					t.Errorf("%q does not say %q", said, s)
				}
			}
			// A fix of the values gets it going, whatever it waited for (N10: nothing is undone).
			good := w.resolve(job.ComponentSpec{Name: "app", Namespace: "reason-" + name})
			w.mustInstall(good)
			w.sound(good)
			if err := w.remove(x.Place); err != nil {
				t.Error(err)
			}
			w.nothingLeft(x)
		})
	}
}

// A release of somebody else's is not touched, neither installed over nor removed.
func TestForeignReleases(t *testing.T) {
	t.Parallel()
	w := newWorld(t, app("1.0.0", nil))
	x := w.resolve(job.ComponentSpec{Name: "app", Namespace: "foreign"})
	w.mustInstall(x)
	other := w.other()
	var fatal *pipeline.FatalError
	if _, err := other.install(x); !errors.As(err, &fatal) || fatal.Problem.Code != "name-taken" {
		t.Errorf("installed over: %v", err)
	}
	if err := other.remove(x.Place); err != nil {
		t.Errorf("removal of what was never ours: %v", err)
	}
	w.sound(x)

	// A release under the same name, by hand, without any mark.
	secret, err := w.kube.CoreV1().Secrets("foreign").Get(t.Context(), secretName("app", 1), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	delete(secret.Labels, labelOwner)
	if _, err := w.kube.CoreV1().Secrets("foreign").Update(t.Context(), secret, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.forget()
	if _, err := w.install(x); !errors.As(err, &fatal) || fatal.Problem.Code != "not-ours" {
		t.Errorf("kept: %v", err)
	}
	if err := w.remove(x.Place); !errors.As(err, &fatal) || fatal.Problem.Code != "not-ours" {
		t.Errorf("removed: %v", err)
	}

	// An object that a chart wants to make and somebody else has.
	if _, err := w.kube.CoreV1().ConfigMaps("foreign").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "second"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	second := w.resolve(job.ComponentSpec{Name: "app", Namespace: "foreign", Release: "second"})
	if _, err := w.other().install(second); !errors.As(err, &fatal) || fatal.Problem.Code != "name-taken" || !strings.Contains(err.Error(), "second") {
		t.Errorf("object of somebody else's: %v", err)
	}
}

// Objects that somebody deletes come back.
func TestMissingObjectsAreAppliedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, app("1.0.0", nil))
	x := w.resolve(job.ComponentSpec{Name: "app", Namespace: "missing"})
	w.mustInstall(x)
	if err := w.kube.CoreV1().ConfigMaps("missing").Delete(t.Context(), "app", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.forget()
	r := w.run(pipeline.Verify)
	if _, err := w.e.Ensure(open(t), r, w.access, x); err != nil || len(r.Drift()) != 1 || !strings.Contains(r.Drift()[0].Seen, "ConfigMap missing/app") {
		t.Errorf("%v, %+v", err, r.Drift())
	}
	w.mustInstall(x)
	w.sound(x)
	if !w.happened("release.repaired") {
		t.Errorf("events: %q", w.events)
	}
}

// A namespace of the job stays as long as somebody has something in it.
func TestNamespaceStaysForOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, app("1.0.0", nil))
	x := w.resolve(job.ComponentSpec{Name: "app", Namespace: "with-others"})
	second := w.resolve(job.ComponentSpec{Name: "app", Namespace: "with-others", Release: "second"})
	w.mustInstall(x)
	w.mustInstall(second)
	if _, err := w.kube.CoreV1().ConfigMaps("with-others").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "somebodys"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, at := range []Place{x.Place, second.Place} {
		if err := w.remove(at); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.kube.CoreV1().ConfigMaps("with-others").Get(t.Context(), "somebodys", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if o := w.rows[KindNamespace+"/with-others"]; o.State != job.ObjectKept || !strings.Contains(o.Reason, "ConfigMap somebodys") {
		t.Errorf("%+v", o)
	}
	// One that was there before is used, and left.
	other := w.other()
	third := other.resolve(job.ComponentSpec{Name: "app", Namespace: "with-others", Release: "third"})
	other.mustInstall(third)
	if _, known := other.rows[KindNamespace+"/with-others"]; known {
		t.Error("a namespace that was there is claimed")
	}
	if err := other.remove(third.Place); err != nil {
		t.Error(err)
	}
}

// Without a gate nothing is changed.
func TestGate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, app("1.0.0", nil))
	x := w.resolve(job.ComponentSpec{Name: "app", Namespace: "gated"})
	_, err := w.e.Ensure(t.Context(), w.run(pipeline.Apply), w.access, x)
	if !pipeline.Is(err, pipeline.Refused) {
		t.Errorf("let through: %v", err)
	}
	shut := pipeline.WithGate(t.Context(), func(_ context.Context, c pipeline.Call) error {
		if c.Mutating && strings.Contains(c.Op, "secrets") {
			return pipeline.ErrLeaseLost
		}
		return nil
	})
	if _, err := w.e.Ensure(shut, w.run(pipeline.Apply), w.access, x); !pipeline.Is(err, pipeline.Refused) {
		t.Errorf("let through: %v", err)
	}
	if history, err := w.e.History(t.Context(), w.access, x.Place); err != nil || len(history) != 0 {
		t.Errorf("%+v, %v", history, err)
	}
}
