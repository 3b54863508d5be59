package steps

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/kube"
	"github.com/zopday/provisioner/internal/pipeline"
)

// Components installs what the catalogue has, as Helm releases.
type Components interface {
	// Order puts components into levels, each after what it depends on, with
	// namespace, release and version as the catalogue has them where the spec
	// says nothing. A component that there is not is an *job.Invalid.
	Order(specs []job.ComponentSpec) ([][]job.ComponentSpec, error)

	// Filled is a component with the values that it takes from the job's cluster:
	// what is installed then, so what is examined and compared.
	Filled(j *job.Job, spec job.ComponentSpec) (job.ComponentSpec, error)

	// Examine fetches a chart and checks it and the values against the cluster's
	// version and the chart's schema. What is wrong is an *job.Invalid, whose
	// fields are relative to the component. It touches no cluster.
	Examine(ctx context.Context, spec job.ComponentSpec, kubeVersion string, p job.Provider) error

	// Install makes a release so, through the run's protocol, and says where it
	// stands. A plan lists it and asks nothing; a verify changes nothing.
	Install(ctx context.Context, r *pipeline.Run, access cloud.KubeAccess, spec job.ComponentSpec, kubeVersion string) (job.ComponentInfo, error)

	// Uninstall removes a release, and is done when nothing of it is left.
	Uninstall(ctx context.Context, r *pipeline.Run, access cloud.KubeAccess, spec job.ComponentSpec) error
}

// The kinds of objects that components are in the inventory.
const (
	KindRelease   = "helm:release"
	KindNamespace = "k8s:namespace"
)

func (s Set) component() pipeline.Pipeline {
	return pipeline.Pipeline{
		{Name: Validate, Title: "Check cluster, chart and values", Ensure: s.validateComponent},
		{Name: InstallRelease, Title: "Helm release", Ensure: s.installRelease, Remove: s.uninstallRelease},
		{Name: Finalize, Title: "Report", Ensure: s.reportRelease},
	}
}

// validateComponent asks everything that an install depends on before anything
// happens in the cluster.
func (s Set) validateComponent(ctx context.Context, r *pipeline.Run) error {
	if err := s.SameCaller(ctx, r.Job); err != nil {
		return err
	}
	if r.Mode == pipeline.Plan {
		return nil
	}
	spec, err := r.Job.ComponentJob()
	if err != nil {
		return err
	}
	version, err := s.componentCluster(ctx, r, spec)
	if err != nil {
		return err
	}
	if err := s.examine(ctx, r, spec.Component, version); err != nil {
		return err
	}
	return r.Save(ctx)
}

// kubeVersion is the version of a cluster's API server.
func (s Set) kubeVersion(ctx context.Context, r *pipeline.Run, access cloud.KubeAccess) (string, error) {
	if version, ok := r.Recall("kube version").(string); ok {
		return version, nil
	}
	client, err := kube.Client(ctx, access)
	if err != nil {
		return "", err
	}
	version, err := kube.Version(client)
	if err != nil {
		return "", err
	}
	r.Remember("kube version", version)
	return version, nil
}

func (s Set) installRelease(ctx context.Context, r *pipeline.Run) error {
	spec, err := r.Job.ComponentJob()
	if err != nil {
		return err
	}
	if r.Mode == pipeline.Plan {
		return s.install(ctx, r, cloud.KubeAccess{}, []job.ComponentSpec{spec.Component})
	}
	access, err := s.access(ctx, r)
	if err != nil {
		return err
	}
	return s.install(ctx, r, access, []job.ComponentSpec{spec.Component})
}

// uninstallRelease takes the release off its cluster; one that is gone has taken
// it along.
func (s Set) uninstallRelease(ctx context.Context, r *pipeline.Run) error {
	spec, err := r.Job.ComponentJob()
	if err != nil {
		return err
	}
	access, err := s.access(ctx, r)
	if pipeline.Is(err, pipeline.NotFound) {
		r.Note("the cluster is gone, and its releases with it")
		return s.forgetReleases(ctx, r)
	}
	if err != nil {
		return err
	}
	return s.uninstall(ctx, r, access, []job.ComponentSpec{spec.Component})
}

// reportRelease ends the job: what was installed has been read back already.
func (s Set) reportRelease(ctx context.Context, r *pipeline.Run) error { return r.Save(ctx) }

// install makes the releases of components, those that depend on nothing first
// and independent ones side by side. Each is an object of the job, so that a
// crash or a retry goes on with those that are missing.
func (s Set) install(ctx context.Context, r *pipeline.Run, access cloud.KubeAccess, specs []job.ComponentSpec) error {
	levels, err := s.order(r.Job, specs)
	if err != nil {
		return err
	}
	infra := &r.Job.Config.InfraConfig
	for _, level := range levels {
		infos := make([]job.ComponentInfo, len(level))
		var parts []func(context.Context) error
		for i, spec := range level {
			parts = append(parts, func(ctx context.Context) error {
				var err error
				infos[i], err = s.installOne(ctx, r, access, spec)
				return err
			})
		}
		err := pipeline.All(ctx, parts...)
		if r.Mode == pipeline.Plan {
			if err != nil {
				return err
			}
			continue
		}
		for i, info := range infos {
			learnComponent(infra, info, level[i].Values)
		}
		if serr := r.Save(ctx); serr != nil {
			return serr
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// order puts components into levels; what is wrong with one stops the job.
func (s Set) order(j *job.Job, specs []job.ComponentSpec) ([][]job.ComponentSpec, error) {
	switch {
	case len(specs) == 0:
		return nil, nil
	case s.Components == nil:
		return nil, noCatalogue()
	}
	levels, err := s.Components.Order(specs)
	var inv *job.Invalid
	if errors.As(err, &inv) {
		at := "config.spec.components"
		if j.ResourceType != job.Cluster {
			at, inv = "config.spec.component", relative(inv)
		}
		return nil, invalidComponent(inv, at)
	}
	return levels, err
}

// learnComponent records where a component stands, and once it is ready what its
// revision was made of.
func learnComponent(infra *job.InfraConfig, info job.ComponentInfo, values json.RawMessage) {
	had := infra.Component(info.Release)
	if had != nil {
		info.History = slices.Clone(had.History)
	}
	if info.Status == "ready" {
		info.Remember(values)
	}
	if had != nil {
		*had = info
		return
	}
	infra.Components = append(infra.Components, info)
}

// installOne makes one release so, and says where it stands.
func (s Set) installOne(ctx context.Context, r *pipeline.Run, access cloud.KubeAccess, spec job.ComponentSpec) (job.ComponentInfo, error) {
	info := job.ComponentInfo{Name: spec.Name, Release: spec.Release, Namespace: spec.Namespace, Version: spec.Version, Status: "installing"}
	version := ""
	if r.Mode != pipeline.Plan {
		var err error
		if version, err = s.kubeVersion(ctx, r, access); err != nil {
			return info, err
		}
	}
	got, err := s.Components.Install(ctx, r, access, spec, version)
	if got.Release != "" {
		info = got
	}
	switch {
	case err == nil:
		info.Status = "ready"
	case pipeline.IsWait(err):
		info.Status, info.Waiting = "installing", err.Error()
	default:
		info.Status, info.LastError = "failed", err.Error()
	}
	return info, invalidComponent(err, componentPath(r.Job, spec))
}

// uninstall takes releases off, in the opposite order. Where a release is stands
// in the inventory: the catalogue may have changed since, or lost the component.
func (s Set) uninstall(ctx context.Context, r *pipeline.Run, access cloud.KubeAccess, specs []job.ComponentSpec) error {
	return s.uninstallLevels(ctx, r, access, s.teardownLevels(r, specs))
}

// uninstallDropped takes off what an earlier run installed and the spec, changed
// since, names no more, or in another namespace.
func (s Set) uninstallDropped(ctx context.Context, r *pipeline.Run, access cloud.KubeAccess, specs []job.ComponentSpec) error {
	if r.Mode != pipeline.Apply {
		return nil
	}
	levels, err := s.order(r.Job, specs)
	if err != nil {
		return err
	}
	place := map[string]string{}
	for _, level := range levels {
		for _, spec := range level {
			place[spec.Release] = spec.Namespace
		}
	}
	var dropped [][]job.ComponentSpec
	for _, spec := range installed(r) {
		if namespace, named := place[spec.Release]; !named || namespace != spec.Namespace {
			dropped = append(dropped, []job.ComponentSpec{spec})
		}
	}
	if len(dropped) == 0 {
		return nil
	}
	return s.uninstallLevels(ctx, r, access, dropped)
}

// installed are the releases that the inventory has, by name.
func installed(r *pipeline.Run) []job.ComponentSpec {
	var out []job.ComponentSpec
	for _, o := range r.Objects() {
		if o.Kind != KindRelease || o.State == job.ObjectRemoved || o.State == job.ObjectAbsent {
			continue
		}
		namespace, _, _ := strings.Cut(o.Name, "/")
		out = append(out, job.ComponentSpec{Name: o.Key, Release: o.Key, Namespace: namespace})
	}
	return out
}

// uninstallLevels takes releases off, the last level first.
func (s Set) uninstallLevels(ctx context.Context, r *pipeline.Run, access cloud.KubeAccess, levels [][]job.ComponentSpec) error {
	if len(levels) > 0 && s.Components == nil {
		return noCatalogue()
	}
	for _, level := range slices.Backward(levels) {
		var parts []func(context.Context) error
		for _, spec := range level {
			parts = append(parts, func(ctx context.Context) error { return s.Components.Uninstall(ctx, r, access, spec) })
		}
		if err := pipeline.All(ctx, parts...); err != nil {
			return err
		}
		for _, spec := range level {
			if info := r.Job.Config.InfraConfig.Component(spec.Release); info != nil {
				info.Status, info.Waiting, info.LastError = "removed", "", ""
			}
		}
	}
	return r.Save(ctx)
}

// teardownLevels are the components of a job by what they depend on, and after
// them what the inventory has besides: what the spec does not name any more, or
// the catalogue does not know any more.
func (s Set) teardownLevels(r *pipeline.Run, specs []job.ComponentSpec) [][]job.ComponentSpec {
	levels, err := s.order(r.Job, specs)
	if err != nil {
		levels = nil
	}
	listed := map[string]bool{}
	for _, level := range levels {
		for i, spec := range level {
			if o, ok := r.Object(KindRelease, spec.Release); ok {
				level[i].Namespace, _, _ = strings.Cut(o.Name, "/")
			}
			listed[spec.Release] = true
		}
	}
	for _, spec := range installed(r) {
		if !listed[spec.Release] {
			levels = append(levels, []job.ComponentSpec{spec})
		}
	}
	return levels
}

// forgetReleases records what went with its cluster as gone.
func (s Set) forgetReleases(ctx context.Context, r *pipeline.Run) error {
	for _, o := range r.Objects() {
		if o.Kind != KindRelease && o.Kind != KindNamespace {
			continue
		}
		if err := r.Forget(ctx, o.Kind, o.Key, "went with its cluster"); err != nil {
			return err
		}
	}
	for i := range r.Job.Config.InfraConfig.Components {
		r.Job.Config.InfraConfig.Components[i].Status = "removed"
	}
	return r.Save(ctx)
}
