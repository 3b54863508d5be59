package components

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/action"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	helmkube "helm.sh/helm/v4/pkg/kube"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/zopday/provisioner/internal/kube"
	"github.com/zopday/provisioner/internal/pipeline"
)

// longest is Helm's own time limit, which must not end anything before ours does.
const longest = time.Hour

func notFoundIsFine(err error) error { return pipeline.Unless(err, pipeline.NotFound) }

// labels are the marks of a release.
func labelsOf(jobID string, x *Resolved) map[string]string {
	return map[string]string{labelOwner: jobID, labelComponent: x.Entry.Name}
}

// install installs a release that is not there. done are hooks that an earlier
// try has run already.
func (o *operation) install(jobID string, x *Resolved, done map[string]bool) error {
	maps.Copy(o.done, done)
	ch, err := x.chart()
	if err != nil {
		return err
	}
	if err := o.applyCRDs(ch, false); err != nil {
		return err
	}
	if o.config.Capabilities, err = o.cluster.capabilities(); err != nil {
		return err
	}
	if err := o.inherit(x); err != nil {
		return err
	}
	in := action.NewInstall(o.config)
	in.ReleaseName, in.Namespace, in.Labels = o.at.Release, o.at.Namespace, labelsOf(jobID, x)
	in.Timeout, in.WaitStrategy = longest, helmkube.HookOnlyStrategy
	in.SkipCRDs, in.DisableOpenAPIValidation, in.SkipSchemaValidation = true, true, true
	// Without a context: Helm would leave its work to go on unseen when one ends.
	// The calls themselves end with the operation.
	_, err = in.RunWithContext(context.Background(), ch, clone(x.values))
	if err != nil && strings.Contains(err.Error(), "name that is still in use") {
		return &pipeline.CloudError{Class: pipeline.Exists, Service: "Helm", Op: "install the release " + o.at.ID(), Message: "there is a release of this name", Sent: true, Err: err}
	}
	return o.settled(ch, o.verdict("install", err))
}

// inherit makes kinds this release's that a removed release has left behind, as
// every removal does: Helm takes them for somebody else's.
func (o *operation) inherit(x *Resolved) error {
	for _, crd := range x.crds {
		c := &unstructured.Unstructured{}
		c.SetAPIVersion("apiextensions.k8s.io/v1")
		c.SetKind("CustomResourceDefinition")
		c.SetName(crd)
		live, err := o.cluster.get(o.ctx, c)
		if err != nil {
			return err
		}
		if live == nil || ofRelease(live, o.at) {
			continue
		}
		a := live.GetAnnotations()
		before := Place{Namespace: a["meta.helm.sh/release-namespace"], Release: a["meta.helm.sh/release-name"]}
		if before.Namespace == "" || before.Release == "" {
			continue // somebody's, and no release's
		}
		all, err := o.cluster.history(o.ctx, before)
		if err != nil {
			return err
		}
		if len(all) > 0 {
			continue // it is there, and its kinds with it: the install is refused by name
		}
		client, err := o.cluster.at(live)
		if err != nil || client == nil {
			return err
		}
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"meta.helm.sh/release-namespace":%q,"meta.helm.sh/release-name":%q}}}`, o.at.Namespace, o.at.Release)
		if _, err := client.Patch(o.ctx, crd, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager}); err != nil {
			return kube.Classify("patch "+name(live), err)
		}
	}
	return nil
}

// upgrade makes a release that is in place what it should be.
func (o *operation) upgrade(jobID string, x *Resolved, done map[string]bool) error {
	maps.Copy(o.done, done)
	ch, err := x.chart()
	if err != nil {
		return err
	}
	// Helm never touches kinds after an install; a new version of a component may
	// not work with the old ones.
	if err := o.applyCRDs(ch, true); err != nil {
		return err
	}
	if o.config.Capabilities, err = o.cluster.capabilities(); err != nil {
		return err
	}
	up := action.NewUpgrade(o.config)
	up.Namespace, up.Labels, up.MaxHistory = o.at.Namespace, labelsOf(jobID, x), revisionsKept
	up.Timeout, up.WaitStrategy = longest, helmkube.HookOnlyStrategy
	up.ResetValues, up.DisableOpenAPIValidation, up.SkipSchemaValidation = true, true, true
	up.ServerSideApply, up.ForceConflicts = "true", true // a field that somebody set by hand becomes ours again
	_, err = up.RunWithContext(context.Background(), o.at.Release, ch, clone(x.values))
	return o.settled(ch, o.verdict("upgrade", err))
}

// rollback goes back to a revision that was in place once.
func (o *operation) rollback(to int, hooks bool) error {
	back := action.NewRollback(o.config)
	back.Version, back.MaxHistory, back.DisableHooks = to, revisionsKept, !hooks
	back.Timeout, back.WaitStrategy = longest, helmkube.HookOnlyStrategy
	back.ServerSideApply, back.ForceConflicts = "true", true
	return o.verdict("roll back", back.Run(o.at.Release))
}

// settled turns a lack of kinds that the chart itself has just brought along into
// something to be tried again: API servers take a moment to serve them.
func (o *operation) settled(ch *chart.Chart, err error) error {
	var fatal *pipeline.FatalError
	if !errors.As(err, &fatal) || fatal.Problem.Code != "kind-missing" {
		return err
	}
	for _, crd := range ch.CRDObjects() {
		objects, perr := parseManifest(string(crd.File.Data), "")
		if perr != nil {
			continue
		}
		for _, c := range objects {
			kind, _, _ := nested(c.Object, "spec", "names", "kind")
			if strings.Contains(fatal.Problem.Message, `"`+kind+`"`) {
				return &pipeline.CloudError{
					Class: pipeline.Busy, Service: kube.Service, Op: "install the release " + o.at.ID(), Sent: true,
					Message: "the kind " + kind + " is not served yet", Err: fatal.Cause,
				}
			}
		}
	}
	return err
}

// applyCRDs makes the kinds that a chart brings along outside of its templates,
// before anything else, and waits until they are served. Those that are there
// are somebody's, and stay as they are unless the chart's upgrade brings others.
func (o *operation) applyCRDs(ch *chart.Chart, upgrade bool) error {
	for _, crd := range ch.CRDObjects() {
		objects, err := parseManifest(string(crd.File.Data), "")
		if err != nil {
			return pipeline.Fatal("chart-unusable", fmt.Sprintf("%s of the chart %s is no object: %v", crd.Filename, ch.Name(), err), "Choose another version of the chart.")
		}
		for _, c := range objects {
			live, err := o.cluster.get(o.ctx, c)
			if err != nil {
				return err
			}
			if live != nil && !upgrade {
				continue
			}
			client, err := o.cluster.at(c)
			if err != nil {
				return err
			}
			if client == nil {
				return pipeline.Fatal("kind-missing", fmt.Sprintf("the cluster does not serve %s, which the chart %s needs", c.GroupVersionKind(), ch.Name()), "Choose another version of the chart.")
			}
			if _, err := client.Apply(o.ctx, c.GetName(), c, metav1.ApplyOptions{FieldManager: fieldManager, Force: true}); err != nil {
				return kube.Classify("apply "+name(c), err)
			}
		}
	}
	return o.awaitCRDs(ch)
}

// awaitCRDs waits until the chart's kinds are established and listed: a template
// that makes one of them is refused before.
func (o *operation) awaitCRDs(ch *chart.Chart) error {
	for _, crd := range ch.CRDObjects() {
		objects, err := parseManifest(string(crd.File.Data), "")
		if err != nil {
			return err
		}
		for _, c := range objects {
			why := ""
			err := o.poll(func() (bool, error) {
				live, err := o.cluster.get(o.ctx, c)
				if err != nil || live == nil {
					return false, err
				}
				v, err := o.cluster.judge(o.ctx, live)
				why = v.why
				if !v.ready || err != nil {
					return false, err
				}
				return o.cluster.lists(live.Object)
			})
			if errors.Is(err, context.DeadlineExceeded) {
				return &pipeline.CloudError{Class: pipeline.Busy, Service: kube.Service, Op: "apply " + name(c), Message: why, Sent: true}
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// lists reports whether the API server lists a CustomResourceDefinition's kind
// where Helm looks for it.
func (c *cluster) lists(crd map[string]any) (bool, error) {
	group, _, _ := nested(crd, "spec", "group")
	kind, isCRD, _ := nested(crd, "spec", "names", "kind")
	versions, _, _ := nestedSlice(crd, "spec", "versions")
	if !isCRD {
		return true, nil
	}
	for _, v := range versions {
		m, ok := v.(map[string]any)
		if !ok || m["served"] != true {
			continue
		}
		list, err := c.disco.ServerResourcesForGroupVersion(fmt.Sprintf("%s/%s", group, m["name"]))
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, kube.Classify("list kinds", err)
		}
		if !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind }) {
			return false, nil
		}
	}
	return true, nil
}
