package components

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	rcommon "helm.sh/helm/v4/pkg/release/common"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim/charts"
)

// until passes until a wait says something.
func (w *world) until(says string, once func(ctx context.Context, r *pipeline.Run) error) {
	w.t.Helper()
	last := error(nil)
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		last = once(open(w.t), w.run(pipeline.Apply))
		if !pipeline.IsWait(last) {
			w.t.Fatalf("no wait: %v", last)
		}
		if strings.Contains(last.Error(), says) {
			return
		}
	}
	w.t.Fatalf("never said %q, but: %v", says, last)
}

func (w *world) ensuring(x *Resolved) func(context.Context, *pipeline.Run) error {
	return func(ctx context.Context, r *pipeline.Run) error {
		_, err := w.e.Ensure(ctx, r, w.access, x)
		return err
	}
}

// stopped is the code of the reason for which a job stops.
func stopped(err error) string {
	var fatal *pipeline.FatalError
	if errors.As(err, &fatal) {
		return fatal.Problem.Code
	}
	return string(pipeline.ClassOf(err))
}

func (w *world) gone(x *Resolved) {
	w.t.Helper()
	if err := w.remove(x.Place); err != nil {
		w.t.Error(err)
	}
	w.nothingLeft(x)
}

// N1: several revisions are called deployed, which a killed upgrade leaves.
func TestSeveralDeployedRevisions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, app("1.0.0", nil))
	spec := job.ComponentSpec{Name: "app", Namespace: "n1"}
	w.mustInstall(w.resolve(spec))
	spec.Values = values(`{"text": "two"}`)
	x := w.resolve(spec)
	w.mustInstall(x)
	o, end, err := w.e.begin(open(t), w.access, x.Place, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	first, err := o.cluster.revision(o.ctx, x.Place, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.store(first, rcommon.StatusDeployed, "left by a crash"); err != nil {
		t.Fatal(err)
	}
	w.forget()
	if info := w.mustInstall(x); info.Revision != 2 {
		t.Errorf("%+v", info)
	}
	w.sound(x)
	w.gone(x)
}

// N4: a first install that the API server refuses, then good values; and the same
// with an upgrade.
func TestBadValuesThenGoodOnes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, app("1.0.0", map[string]string{
		"templates/named.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Values.other | default \"other\" | quote }}}\n",
	}))
	spec := job.ComponentSpec{Name: "app", Namespace: "n4", Values: values(`{"other": "Not_A_Name", "password": "Not_A_Name"}`)}
	bad := w.resolve(spec)
	_, err := w.install(bad)
	if stopped(err) != string(pipeline.Invalid) || strings.Contains(err.Error(), "Not_A_Name") {
		t.Fatalf("%v", err)
	}
	if _, err := w.install(bad); stopped(err) != string(pipeline.Invalid) {
		t.Errorf("retried: %v", err)
	}
	spec.Values = nil
	good := w.resolve(spec)
	w.mustInstall(good)
	w.sound(good)
	spec.Values = values(`{"other": "Not_A_Name", "text": "two"}`)
	if _, err := w.install(w.resolve(spec)); stopped(err) != string(pipeline.Invalid) {
		t.Errorf("upgraded: %v", err)
	}
	spec.Values = values(`{"other": "third", "text": "three"}`)
	third := w.resolve(spec)
	w.mustInstall(third)
	w.sound(third)
	w.gone(third)
}

// N5: storage that lists a release and cannot read it, once.
func TestStorageInTrouble(t *testing.T) {
	t.Parallel()
	w := newWorld(t, app("1.0.0", nil))
	x := w.resolve(job.ComponentSpec{Name: "app", Namespace: "n5"})
	w.mustInstall(x)
	wire := newWire(t)
	wire.spoil = func(r *http.Request) bool {
		return r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/secrets/sh.helm")
	}
	alive := w.access
	w.access = wire.access
	w.forget()
	if _, err := w.install(x); !pipeline.Is(err, pipeline.Unavailable) {
		t.Errorf("ensured: %v", err)
	}
	if err := w.remove(x.Place); !pipeline.Is(err, pipeline.Unavailable) {
		t.Errorf("removed: %v", err)
	}
	w.access = alive
	w.mustInstall(x)
	w.sound(x)
	w.gone(x)
}

const ttlJob = `apiVersion: batch/v1
kind: Job
metadata: {name: {{ .Release.Name }}}
spec:
  ttlSecondsAfterFinished: 0
  backoffLimit: 0
  template:
    metadata: {annotations: {sandbox/exit-code: {{ .Values.exit | quote }}}}
    spec: {restartPolicy: Never, containers: [{name: main, image: example.com/x:1}]}
`

// N7: a chart that is only a Job, which is removed as soon as it is done. N8: a
// hook that is removed as soon as it is done.
func TestJobsThatVanish(t *testing.T) {
	t.Parallel()
	only := charts.Chart{Name: "app", Version: "1.0.0", Files: map[string]string{"values.yaml": "exit: \"0\"\n", "templates/job.yaml": ttlJob}}
	hook := app("2.0.0", map[string]string{"templates/hook.yaml": hookTemplate("before", "pre-install", "\n  ttlSecondsAfterFinished: 0")})
	w := newWorld(t, only, hook)
	x := w.resolve(job.ComponentSpec{Name: "app", Namespace: "n7", Version: "1.0.0"})
	w.mustInstall(x)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		if _, err := w.kube.BatchV1().Jobs("n7").Get(t.Context(), "app", metav1.GetOptions{}); err != nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the Job does not go")
		}
	}
	w.forget()
	if info := w.mustInstall(x); info.Revision != 1 {
		t.Errorf("%+v", info)
	}
	w.sound(x)
	w.gone(x)

	w = w.other()
	x = w.resolve(job.ComponentSpec{Name: "app", Namespace: "n8", Version: "2.0.0"})
	if info := w.mustInstall(x); info.Revision != 1 {
		t.Errorf("%+v", info)
	}
	w.sound(x)
	w.gone(x)

	w = w.other()
	x = w.resolve(job.ComponentSpec{Name: "app", Namespace: "n8-failed", Version: "2.0.0", Values: values(`{"exit": "3"}`)})
	if _, err := w.install(x); stopped(err) != "hook-failed" {
		t.Errorf("a hook that failed and vanished: %v", err)
	}
	w.gone(x)
}

// N10: what becomes ready late is taken as it is.
func TestReadyAfterTheTimeIsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t, app("1.0.0", map[string]string{"templates/late.yaml": `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: late}
spec:
  serviceName: late
  selector: {matchLabels: {app: late}}
  template:
    metadata: {labels: {app: late}}
    spec: {containers: [{name: main, image: example.com/late:1, envFrom: [{secretRef: {name: later}}]}]}
`}))
	x := w.resolve(job.ComponentSpec{Name: "app", Namespace: "n10"})
	w.until(`StatefulSet n10/late: 0 of 1 replicas are ready; pod late-0: container main: CreateContainerConfigError: secret "later" not found`, w.ensuring(x))
	k := &keeper{e: w.e, r: w.run(pipeline.Apply), x: x, id: x.Place.ID()}
	long := time.Now().Add(-time.Hour)
	k.r.Remember("since ready "+k.id, long)
	if _, err := w.install(x); stopped(err) != "timed-out" || !strings.Contains(err.Error(), "StatefulSet n10/late") {
		t.Errorf("%v", err)
	}
	if _, err := w.kube.CoreV1().Secrets("n10").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "later"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.forget()
	if info := w.mustInstall(x); info.Revision != 1 {
		t.Errorf("installed anew: %+v", info)
	}
	w.sound(x)
}

// A hook that takes longer than an operation may is waited for, and done once.
func TestSlowHooks(t *testing.T) {
	t.Parallel()
	waits := func(name, events string) string {
		return strings.Replace(hookTemplate(name, events, ""), "image: {{ .Values.hookImage | quote }}}", "image: example.com/x:1, envFrom: [{configMapRef: {name: go-on}}]}", 1)
	}
	for name, chart := range map[string]charts.Chart{
		"before": app("1.0.0", map[string]string{"templates/hook.yaml": waits("slow", "pre-install,pre-upgrade")}),
		"after":  app("1.0.0", map[string]string{"templates/hook.yaml": waits("slow", "post-install,post-upgrade")}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, chart)
			w.e.operation = 4 * time.Second
			ns := "slow-" + name
			goOn := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "go-on"}}
			spec := job.ComponentSpec{Name: "app", Namespace: ns}
			x := w.resolve(spec)
			for revision := 1; revision <= 2; revision++ {
				w.until("Job "+ns+"/app-slow", w.ensuring(x))
				w.forget() // and the worker dies
				hook, err := w.kube.BatchV1().Jobs(ns).Get(t.Context(), "app-slow", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := w.kube.CoreV1().ConfigMaps(ns).Create(t.Context(), goOn, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				w.mustInstall(x)
				w.sound(x)
				again, err := w.kube.BatchV1().Jobs(ns).Get(t.Context(), "app-slow", metav1.GetOptions{})
				if err != nil || again.UID != hook.UID {
					t.Errorf("revision %d: the hook ran twice: %v", revision, err)
				}
				if err := w.kube.CoreV1().ConfigMaps(ns).Delete(t.Context(), "go-on", metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				spec.Values = values(`{"text": "next"}`)
				x = w.resolve(spec)
			}
			w.gone(x)
		})
	}
}

// A hook that fails stops the job by name; good values then go through.
func TestFailedHook(t *testing.T) {
	t.Parallel()
	w := newWorld(t, app("1.0.0", map[string]string{"templates/hook.yaml": hookTemplate("after", "post-install,post-upgrade", "")}))
	spec := job.ComponentSpec{Name: "app", Namespace: "failed-hook", Values: values(`{"exit": "7"}`)}
	x := w.resolve(spec)
	for range 2 {
		if _, err := w.install(x); stopped(err) != "hook-failed" || !strings.Contains(err.Error(), "Job failed-hook/app-after failed: BackoffLimitExceeded") {
			t.Fatalf("%v", err)
		}
	}
	spec.Values = nil
	good := w.resolve(spec)
	w.mustInstall(good)
	w.sound(good)
	spec.Values = values(`{"exit": "7"}`)
	if _, err := w.install(w.resolve(spec)); stopped(err) != "hook-failed" {
		t.Errorf("upgraded: %v", err)
	}
	w.mustInstall(good)
	w.sound(good)
	w.gone(good)
}

// A Job among the objects that fails is named.
func TestFailedJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t, app("1.0.0", map[string]string{"templates/job.yaml": strings.Replace(strings.Replace(ttlJob, "  ttlSecondsAfterFinished: 0\n", "", 1), "{{ .Release.Name }}", "work", 1)}))
	spec := job.ComponentSpec{Name: "app", Namespace: "failed-job", Values: values(`{"exit": "7"}`)}
	if _, err := w.install(w.resolve(spec)); stopped(err) != "component-failed" || !strings.Contains(err.Error(), "Job failed-job/work: failed: BackoffLimitExceeded") {
		t.Errorf("%v", err)
	}
	if err := w.kube.BatchV1().Jobs("failed-job").Delete(t.Context(), "work", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
		t.Fatal(err)
	}
	spec.Values = nil
	good := w.resolve(spec)
	w.mustInstall(good)
	w.sound(good)
}

// A removal is done when nothing is left; what holds an object is named, and what
// is to be kept is kept.
func TestRemovalIsReadBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, app("1.0.0", map[string]string{
		"templates/keep.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept, annotations: {helm.sh/resource-policy: keep}}\n",
		"templates/hook.yaml": hookTemplate("end", "pre-delete", ""),
	}))
	x := w.resolve(job.ComponentSpec{Name: "app", Namespace: "readback", Values: values(`{"exit": "1"}`)}) // the hook fails
	w.mustInstall(x)
	cm, err := w.kube.CoreV1().ConfigMaps("readback").Get(t.Context(), "app", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cm.Finalizers = []string{"example.com/holds"}
	if _, err = w.kube.CoreV1().ConfigMaps("readback").Update(t.Context(), cm, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.until("ConfigMap readback/app (held by the finalizer example.com/holds)", func(ctx context.Context, r *pipeline.Run) error {
		return w.e.Remove(ctx, r, w.access, x.Place)
	})
	if who, err := w.e.blockers(t.Context(), w.access, x.Place); err != nil || !strings.Contains(who, "take the finalizer off") {
		t.Errorf("%q, %v", who, err)
	}
	if cm, err = w.kube.CoreV1().ConfigMaps("readback").Get(t.Context(), "app", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	cm.Finalizers = nil
	if _, err := w.kube.CoreV1().ConfigMaps("readback").Update(t.Context(), cm, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.forget()
	if err := w.remove(x.Place); err != nil {
		t.Fatal(err)
	}
	left, err := w.e.contents(t.Context(), w.access, "readback")
	if err != nil || strings.Join(left, ", ") != "ConfigMap kept" {
		t.Errorf("left: %q, %v", left, err)
	}
	if o := w.rows[KindNamespace+"/readback"]; o.State != job.ObjectKept {
		t.Errorf("%+v", o)
	}
}

// A release whose record somebody deleted is installed over what is there.
func TestLostRecord(t *testing.T) {
	t.Parallel()
	w := newWorld(t, app("1.0.0", nil))
	x := w.resolve(job.ComponentSpec{Name: "app", Namespace: "lost"})
	w.mustInstall(x)
	before, err := w.kube.CoreV1().ConfigMaps("lost").Get(t.Context(), "app", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.kube.CoreV1().Secrets("lost").Delete(t.Context(), secretName("app", 1), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.forget()
	w.mustInstall(x)
	w.sound(x)
	after, err := w.kube.CoreV1().ConfigMaps("lost").Get(t.Context(), "app", metav1.GetOptions{})
	if err != nil || after.UID != before.UID {
		t.Errorf("made anew: %v", err)
	}
	w.gone(x)
}
