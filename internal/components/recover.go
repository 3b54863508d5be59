package components

import (
	"errors"
	"fmt"
	"slices"
	"time"

	rcommon "helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/zopday/provisioner/internal/kube"
	"github.com/zopday/provisioner/internal/pipeline"
)

// recover brings a release of this job out of a state that an operation left
// which did not come to its end: this worker holds the job, so nobody else is at
// work on it. In the order of what loses least (failures N1, N2, N4, N10):
//
//   - a hook that still works is waited for,
//   - what is complete but for the record is recorded,
//   - a revision that was once in place is put back, from where the upgrade
//     starts again,
//   - a first install is removed, kinds and kept objects aside, and starts again.
func (k *keeper) recover(o *operation, s *standing) error {
	last := s.rec.last
	if last.Info.Status == rcommon.StatusDeployed {
		return o.keepNewest(s.rec) // several are called deployed
	}
	recovered := func() error {
		return k.r.Event(o.ctx, "release.recovered", "%s was left %s; it is recovered", k.id, last.Info.Status)
	}
	if last.Info.Status == rcommon.StatusUninstalling || last.Info.Status == rcommon.StatusUninstalled {
		if err := recovered(); err != nil {
			return err
		}
		return k.startAgain(o, s.rec, nil)
	}
	hooks, err := o.cluster.hooksOf(o.ctx, last)
	if err != nil {
		return err
	}
	if hooks.active != "" {
		return &hookRuns{hooks.active}
	}
	if err := recovered(); err != nil {
		return err
	}
	whole, err := o.whole(s.rec, hooks)
	if err != nil {
		return err
	}
	if whole {
		return o.recordDeployed(s.rec)
	}
	// A Job that came first and has done its work need not do it again, if it was
	// for the same: one that takes longer than an operation would never be over.
	var done map[string]bool
	if s.same {
		done = hooks.first(last)
	}
	base := s.rec.good()
	if base == 0 {
		return k.startAgain(o, s.rec, done)
	}
	if err := o.store(last, rcommon.StatusFailed, "interrupted"); err != nil {
		return err
	}
	if err := o.rollback(base, false); err != nil || !s.same || len(done) == 0 {
		return err
	}
	return o.upgrade(k.r.Job.ID, k.x, done)
}

// startAgain removes what there is of a first install and installs again.
func (k *keeper) startAgain(o *operation, rec *record, done map[string]bool) error {
	started := afterObjects(rec.last)
	left, err := o.uninstall(rec, false)
	if err != nil {
		return err
	}
	if left != "" {
		return pipeline.Wait(kube.Pause(k.e.pace, 2*time.Second), "what was there of %s to be deleted (%s)", k.id, left)
	}
	if started || len(done) == 0 {
		// What the hooks prepared went with the rest.
		done = nil
		if err := o.cluster.removeHooks(o.ctx, rec.last); err != nil {
			return err
		}
	}
	if err := o.purge(k.x.Place); err != nil {
		return err
	}
	return o.install(k.r.Job.ID, k.x, done)
}

// whole reports whether a release lacks nothing but its record: its last
// operation did everything, or everything but to say so.
func (o *operation) whole(rec *record, hooks *hookStates) (bool, error) {
	if hooks.failed != "" {
		return false, nil
	}
	after := false // a hook has run that runs once all objects are applied
	for _, h := range rec.last.Hooks {
		if !slices.ContainsFunc(h.Events, func(e release.HookEvent) bool { return e == eventAfter(rec) }) {
			continue
		}
		if !hooks.done[h.Kind+"/"+h.Name] {
			return false, nil
		}
		after = true
	}
	if rec.good() != 0 && !after {
		return false, nil // that the objects are there does not say of which revision
	}
	objects, err := objectsOf(rec, o.at)
	if err != nil {
		return false, err
	}
	live, err := o.cluster.readAll(o.ctx, objects)
	if err != nil {
		return false, err
	}
	for i, l := range live {
		if l == nil && !endsByItself(objects[i]) || l != nil && !ofRelease(l, o.at) {
			return false, nil
		}
	}
	return true, nil
}

func eventAfter(rec *record) release.HookEvent {
	if rec.good() != 0 {
		return release.HookPostUpgrade
	}
	return release.HookPostInstall
}

// afterObjects reports whether a hook has run that runs after the objects are made.
func afterObjects(r *release.Release) bool {
	return slices.ContainsFunc(r.Hooks, func(h *release.Hook) bool {
		return !h.LastRun.StartedAt.IsZero() && slices.ContainsFunc(h.Events, func(e release.HookEvent) bool {
			return e == release.HookPostInstall || e == release.HookPostUpgrade
		})
	})
}

// ofRelease reports whether an object says that it belongs to a release.
func ofRelease(o *unstructured.Unstructured, at Place) bool {
	a := o.GetAnnotations()
	return a["meta.helm.sh/release-name"] == at.Release && a["meta.helm.sh/release-namespace"] == at.Namespace
}

// recordDeployed stores that the newest revision is in place.
func (o *operation) recordDeployed(rec *record) error {
	if err := o.keepNewest(rec); err != nil {
		return err
	}
	return o.store(rec.last, rcommon.StatusDeployed, "complete; recorded afterwards")
}

// keepNewest stores that no other revision than the newest is in place.
func (o *operation) keepNewest(rec *record) error {
	for _, n := range rec.deployed() {
		if n == rec.last.Version {
			continue
		}
		old, err := o.cluster.revision(o.ctx, o.at, n)
		if err != nil {
			return err
		}
		if err := o.store(old, rcommon.StatusSuperseded, old.Info.Description); err != nil {
			return err
		}
	}
	return nil
}

// store writes a revision's state.
func (o *operation) store(r *release.Release, status rcommon.Status, description string) error {
	r.SetStatus(status, description)
	return o.verdict("record", o.config.Releases.Update(r))
}

// uninstall removes the objects of a release and keeps its record, so that what
// is left can be looked for; left is the first object that is still there.
func (o *operation) uninstall(rec *record, hooks bool) (left string, err error) {
	o.removing = true
	if rec.last.Info.Status != rcommon.StatusUninstalled {
		err := o.helmUninstall(hooks)
		var fatal *pipeline.FatalError
		if errors.As(err, &fatal) && fatal.Problem.Code == "kind-missing" {
			err = o.uninstallByHand(rec)
		}
		if err != nil {
			return "", err
		}
	}
	objects, err := objectsOf(rec, o.at)
	if err != nil {
		return "", err
	}
	for first := true; ; first = false {
		rest, err := o.cluster.remaining(o.ctx, objects, o.at)
		if err != nil {
			return "", err
		}
		if len(rest) == 0 {
			return "", nil
		}
		// One whose deletion was refused, or cut off, is asked for again.
		for _, r := range rest {
			if first && r.GetDeletionTimestamp() == nil {
				if err := o.cluster.delete(o.ctx, r, r.GetUID()); err != nil {
					return "", err
				}
			}
		}
		if !o.pauseForGone() {
			return describeLeft(rest), nil
		}
	}
}

// purge removes every record of a release.
func (o *operation) purge(at Place) error {
	all, err := o.cluster.history(o.ctx, at)
	if err != nil {
		return err
	}
	// The newest last: as long as there is one, it says what the release is.
	for _, m := range all {
		uid := m.UID
		err := o.cluster.core.Secrets(at.Namespace).Delete(o.ctx, m.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err := notFoundIsFine(kube.Classify("delete the record "+m.Name, err)); err != nil {
			return err
		}
	}
	return nil
}

var errHooks = errors.New("a hook did not do its work")

// helmUninstall runs Helm's uninstall. A hook that fails, or takes too long, is
// no reason to keep a release: where its pods no longer get a node it never ends.
func (o *operation) helmUninstall(hooks bool) error {
	err := o.runUninstall(hooks)
	if errors.Is(err, errHooks) {
		err = o.runUninstall(false)
	}
	return err
}

// uninstallByHand removes the objects of a release of which Helm cannot make
// sense: their kinds are gone.
func (o *operation) uninstallByHand(rec *record) error {
	objects, err := objectsOf(rec, o.at)
	if err != nil {
		return err
	}
	rest, err := o.cluster.remaining(o.ctx, objects, o.at)
	if err != nil {
		return err
	}
	for _, r := range rest {
		if err := o.cluster.delete(o.ctx, r, r.GetUID()); err != nil {
			return err
		}
	}
	return o.store(rec.last, rcommon.StatusUninstalled, "uninstalled without kinds that are gone")
}

func (o *operation) describe(err error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.failures) > 0 {
		return fmt.Errorf("%w: %w", err, o.failures[0])
	}
	return err
}
