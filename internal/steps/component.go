package steps

import (
	"context"
	"errors"
	"fmt"
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
		{Name: Validate, Title: "Check space, chart and values", Ensure: s.validateComponent},
		{Name: InstallRelease, Title: "Helm release", Ensure: s.installRelease, Remove: s.uninstallRelease},
		{Name: Finalize, Title: "Read back", Ensure: s.readRelease},
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
	access, err := s.access(ctx, r)
	if pipeline.Is(err, pipeline.NotFound) {
		return pipeline.Fatal("no-such-cluster", fmt.Sprintf("the cluster %s of the space %s is gone", r.Job.ClusterRef().Name, spec.SpaceID),
			"Delete this job, and the space if nothing else is behind it.").From(err)
	}
	if err != nil {
		return err
	}
	version, err := s.kubeVersion(ctx, r, access)
	if err != nil {
		return err
	}
	if err := s.Components.Examine(ctx, spec.Component, version, r.Job.Provider); err != nil {
		return invalidComponent(err, "config.spec.component.")
	}
	return r.Save(ctx)
}

// invalidComponent stops the job for what is wrong with a component.
func invalidComponent(err error, at string) error {
	var inv *job.Invalid
	if !errors.As(err, &inv) {
		return err
	}
	var messages, fixes []string
	for _, f := range inv.Fields {
		messages = append(messages, at+f.Field+": "+f.Message)
		fixes = append(fixes, sentence(f.Fix))
	}
	return pipeline.Fatal("invalid", strings.Join(messages, "; "), strings.Join(append(fixes, "Then retry."), " ")).On(at + inv.Fields[0].Field)
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

func (s Set) readRelease(ctx context.Context, r *pipeline.Run) error {
	return r.Save(ctx)
}

// install makes the releases of components, those that depend on nothing first
// and independent ones side by side. Each is an object of the job, so that a
// crash or a retry goes on with those that are missing.
func (s Set) install(ctx context.Context, r *pipeline.Run, access cloud.KubeAccess, specs []job.ComponentSpec) error {
	levels, err := s.order(specs)
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
		for _, info := range infos {
			learnComponent(infra, info)
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
func (s Set) order(specs []job.ComponentSpec) ([][]job.ComponentSpec, error) {
	switch {
	case len(specs) == 0:
		return nil, nil
	case s.Components == nil:
		return nil, pipeline.Fatal("no-components", "this server has no component catalogue", "Leave the components out, or start a server that has one.")
	}
	levels, err := s.Components.Order(specs)
	return levels, invalidComponent(err, "")
}

// learnComponent records where a component stands.
func learnComponent(infra *job.InfraConfig, info job.ComponentInfo) {
	if had := infra.Component(info.Release); had != nil {
		info.History = append(had.History, info.History...)
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
		if had := r.Job.Config.InfraConfig.Component(spec.Release); had == nil || had.Revision != info.Revision {
			info.Remember(spec.Values)
		}
	case pipeline.IsWait(err):
		info.Status, info.Waiting = "installing", err.Error()
	default:
		info.Status, info.LastError = "failed", err.Error()
	}
	return info, invalidComponent(err, "component "+spec.Name+": ")
}

// uninstall takes releases off, in the opposite order.
func (s Set) uninstall(ctx context.Context, r *pipeline.Run, access cloud.KubeAccess, specs []job.ComponentSpec) error {
	levels, err := s.order(specs)
	if err != nil {
		return err
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
