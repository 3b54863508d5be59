package components

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	rcommon "helm.sh/helm/v4/pkg/release/common"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/kube"
	"github.com/zopday/provisioner/internal/pipeline"
)

// Order puts components into levels by their dependencies, with namespace,
// release and version filled in as the catalogue has them. See [Order].
func (e *Engine) Order(specs []job.ComponentSpec) ([][]job.ComponentSpec, error) {
	out, err := Order(specs, e.catalogue)
	if err != nil {
		return nil, err
	}
	for _, level := range out {
		for i, s := range level {
			at, entry := e.catalogue.Place(s), e.catalogue.entries[s.Name]
			level[i].Namespace, level[i].Release = at.Namespace, at.Release
			if s.Version == "" {
				level[i].Version = entry.Version
			}
		}
	}
	return out, nil
}

// Examine finds out whether a component can be installed, as far as that can be
// known without its cluster. See [Engine.Resolve].
func (e *Engine) Examine(ctx context.Context, spec job.ComponentSpec, kubeVersion string, p job.Provider) error {
	_, err := e.Resolve(ctx, spec, kubeVersion, p)
	return err
}

// Check says what is wrong with a component by the catalogue alone, with fields
// relative to the component.
func (e *Engine) Check(spec job.ComponentSpec, p job.Provider) []job.FieldError {
	_, err := e.choose(spec, "", p)
	if inv := asInvalid(err); inv != nil {
		return inv.Fields
	}
	return nil
}

// Install makes a component so: resolves it and ensures it. A plan lists it and
// asks neither its source nor its cluster.
func (e *Engine) Install(ctx context.Context, r *pipeline.Run, access cloud.KubeAccess, spec job.ComponentSpec, kubeVersion string) (job.ComponentInfo, error) {
	at := e.catalogue.Place(spec)
	info := job.ComponentInfo{Name: spec.Name, Release: at.Release, Namespace: at.Namespace, Version: spec.Version, Status: "waiting"}
	if r.Mode == pipeline.Plan {
		x := &Resolved{Entry: e.catalogue.entries[spec.Name], Place: at}
		return e.Ensure(ctx, r, access, x)
	}
	spec, err := e.catalogue.Fill(spec, factsOf(r.Job))
	if err != nil {
		return info, err
	}
	x, err := e.Resolve(ctx, spec, kubeVersion, r.Job.Provider)
	if err != nil {
		return info, err
	}
	return e.Ensure(ctx, r, access, x)
}

func factsOf(j *job.Job) Facts {
	infra := j.Config.InfraConfig
	return Facts{Name: infra.Cluster.Name, Region: j.Region, Network: infra.NetworkID, Account: infra.Account}
}

// Uninstall removes a component, and is done when nothing of it is left. See [Engine.Remove].
func (e *Engine) Uninstall(ctx context.Context, r *pipeline.Run, access cloud.KubeAccess, spec job.ComponentSpec) error {
	return e.Remove(ctx, r, access, e.catalogue.Place(spec))
}

// A Revision is one revision of a release, as its cluster has it stored.
type Revision struct {
	Number     int    `json:"number"`
	Status     string `json:"status"` // Helm's word, such as deployed or superseded
	Version    string `json:"version"`
	AppVersion string `json:"appVersion,omitempty"`
	Values     string `json:"values"` // their digest
}

// History lists the revisions of a release, the newest first; none is no error.
func (e *Engine) History(ctx context.Context, access cloud.KubeAccess, at Place) ([]Revision, error) {
	c, err := e.open(ctx, access, at.Namespace)
	if err != nil {
		return nil, err
	}
	all, err := c.history(ctx, at)
	if err != nil {
		return nil, err
	}
	var out []Revision
	for i := range all {
		r, err := c.revision(ctx, at, number(all[len(all)-1-i]))
		if err != nil {
			return nil, err
		}
		out = append(out, Revision{
			Number: r.Version, Status: string(r.Info.Status), Version: r.Chart.Metadata.Version, AppVersion: r.Chart.AppVersion(), Values: valuesDigest(r.Config),
		})
	}
	return out, nil
}

// Rollback goes back to a revision of a release of this job, 0 being the one that
// was in place before, hooks included. It returns what is installed then, which
// has to become the job's spec: what is asked for otherwise is installed again by
// the next Ensure. It may be called again after a crash.
func (e *Engine) Rollback(ctx context.Context, r *pipeline.Run, access cloud.KubeAccess, spec job.ComponentSpec, revision int) (job.ComponentSpec, error) {
	at := e.catalogue.Place(spec)
	o, end, err := e.begin(ctx, access, at, nil)
	if err != nil {
		return spec, err
	}
	defer end()
	rec, err := o.cluster.record(o.ctx, at)
	switch {
	case err != nil:
		return spec, err
	case rec == nil:
		return spec, noRelease(at)
	case rec.owner != r.Job.ID:
		return spec, pipeline.Fatal("not-ours", fmt.Sprintf("the release %s carries the mark of %s, so it was not touched", at.ID(), rec.owner), "Roll it back where it came from.")
	}
	o.values = rec.last.Config
	if revision == 0 {
		revision = rec.good()
	}
	known := false
	for _, v := range rec.revisions {
		known = known || v.number == revision && v.number != rec.last.Version
	}
	back := rec.last.Info.RollbackRevision
	switch {
	case rec.last.Info.Status == rcommon.StatusDeployed && (rec.last.Version == revision || back == revision && revision != 0):
		// It is there already: an earlier call has done it.
	case !known:
		return spec, &job.Invalid{Fields: []job.FieldError{{
			Field: "revision", Message: fmt.Sprintf("the release %s has no earlier revision %d", at.ID(), revision), Fix: "see its history",
		}}}
	default:
		if err := o.rollback(revision, true); err != nil {
			return spec, err
		}
		if err := r.Event(ctx, "release.rolledback", "%s is back at revision %d", at.ID(), revision); err != nil {
			return spec, err
		}
	}
	r.Unsettle()
	return o.specOf(spec, revision)
}

// specOf is what asks for a revision.
func (o *operation) specOf(spec job.ComponentSpec, revision int) (job.ComponentSpec, error) {
	was, err := o.cluster.revision(o.ctx, o.at, revision)
	if err != nil {
		return spec, err
	}
	values, err := json.Marshal(was.Config)
	if err != nil {
		return spec, err
	}
	if was.Config == nil {
		values = nil
	}
	spec.Namespace, spec.Release, spec.Version, spec.Values = o.at.Namespace, o.at.Release, was.Chart.Metadata.Version, values
	return spec, nil
}

// Installed lists the Helm releases of a cluster, whoever installed them. Those
// of the catalogue have its name of them, others that of their chart.
func (e *Engine) Installed(ctx context.Context, access cloud.KubeAccess) ([]job.ComponentInfo, error) {
	c, err := e.open(ctx, access, metav1.NamespaceAll)
	if err != nil {
		return nil, err
	}
	newest := map[Place]metav1.PartialObjectMetadata{}
	var order []Place
	opts := metav1.ListOptions{LabelSelector: "owner=helm", Limit: 500}
	for {
		page, err := c.meta.Resource(secretsResource).Namespace(metav1.NamespaceAll).List(ctx, opts)
		if err != nil {
			return nil, kube.Classify("list releases", err)
		}
		for _, m := range page.Items {
			at := Place{Namespace: m.Namespace, Release: m.Labels["name"]}
			had, ok := newest[at]
			if !ok {
				order = append(order, at)
			}
			if !ok || number(m) > number(had) {
				newest[at] = m
			}
		}
		if opts.Continue = page.Continue; opts.Continue == "" {
			break
		}
	}
	var out []job.ComponentInfo
	for _, at := range order {
		r, err := c.revision(ctx, at, number(newest[at]))
		if errors.Is(err, errVanished) {
			continue // removed, or upgraded, since it was listed
		}
		if err != nil {
			return nil, err
		}
		info := job.ComponentInfo{
			Name: newest[at].Labels[labelComponent], Release: at.Release, Namespace: at.Namespace,
			Version: r.Chart.Metadata.Version, AppVersion: r.Chart.AppVersion(), Revision: r.Version, Status: string(r.Info.Status),
		}
		if info.Name == "" {
			info.Name = r.Chart.Name()
		}
		out = append(out, info)
	}
	return out, nil
}
