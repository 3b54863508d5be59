package steps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// componentCluster is the version of the cluster that a component job installs
// onto; one that is gone stops the job.
func (s Set) componentCluster(ctx context.Context, r *pipeline.Run, spec job.ComponentJobSpec) (version string, err error) {
	access, err := s.access(ctx, r)
	if pipeline.Is(err, pipeline.NotFound) {
		return "", pipeline.Fatal("no-such-cluster", fmt.Sprintf("the cluster %s of the space %s is gone", r.Job.ClusterRef().Name, spec.SpaceID),
			"Delete this job, and the space if nothing else is behind it.").From(err)
	}
	if err != nil {
		return "", err
	}
	return s.kubeVersion(ctx, r, access)
}

// examine finds out whether a component can be installed, as it will be.
func (s Set) examine(ctx context.Context, r *pipeline.Run, spec job.ComponentSpec, version string) error {
	at := componentPath(r.Job, spec)
	if s.Components == nil {
		return noCatalogue()
	}
	filled, err := s.Components.Filled(r.Job, spec)
	if err == nil {
		err = s.Components.Examine(ctx, filled, version, r.Job.Provider)
	}
	return invalidComponent(err, at)
}

// componentPath is where a component stands in its job's spec.
func componentPath(j *job.Job, spec job.ComponentSpec) string {
	if j.ResourceType != job.Cluster {
		return "config.spec.component."
	}
	if all, err := j.ClusterSpec(); err == nil {
		for i, c := range all.Components {
			if c.Name == spec.Name && (c.Release == spec.Release || c.Release == c.Name) && (c.Namespace == "" || c.Namespace == spec.Namespace) {
				return fmt.Sprintf("config.spec.components[%d].", i)
			}
		}
	}
	return "config.spec.components."
}

func noCatalogue() error {
	return pipeline.Fatal("no-components", "this server has no component catalogue", "Leave the components out, or start a server that has one.")
}

// componentChecks asks about the components of a cluster job's spec, or about the
// one of a component job and the cluster it is for. open is why something could
// not be asked, if so.
func (s Set) componentChecks(ctx context.Context, r *pipeline.Run) (out []cloud.Check, open error) {
	version := r.Job.Config.InfraConfig.Cluster.Version
	var specs []job.ComponentSpec
	note := func(name, field, fine string, err error) {
		c := componentCheck(name, field, fine, err)
		if c.Status == cloud.CheckUnchecked && open == nil {
			open = err
		}
		out = append(out, c)
	}
	switch r.Job.ResourceType {
	case job.Cluster:
		spec, err := r.Job.ClusterSpec()
		if err != nil {
			return nil, err
		}
		specs = spec.Components // none of a cluster that is adopted
	case job.Component:
		spec, err := r.Job.ComponentJob()
		if err != nil {
			return nil, err
		}
		specs = append(specs, spec.Component)
		version, err = s.componentCluster(ctx, r, spec)
		note("cluster", "config.spec.spaceId", fmt.Sprintf("%s answers and is %s", r.Job.ClusterRef().Name, version), err)
	}
	for _, c := range specs {
		note("component "+c.Name, componentPath(r.Job, c)+"name", "the chart is there and takes the values", s.examine(ctx, r, c, version))
	}
	return out, open
}

// componentCheck is the outcome of a question whose answer is an error or none.
func componentCheck(name, field, fine string, err error) cloud.Check {
	var fatal *pipeline.FatalError
	switch {
	case err == nil:
		return cloud.Check{Name: name, Status: cloud.CheckOK, Message: fine}
	case errors.As(err, &fatal):
		// The check's name says which component is meant; the message, where in it.
		return cloud.Check{Name: name, Status: cloud.CheckFails, Field: cmp.Or(fatal.Problem.Field, field),
			Message: strings.ReplaceAll(fatal.Problem.Message, strings.TrimSuffix(field, "name"), ""), Fix: strings.TrimSuffix(fatal.Problem.Hint, " Then retry.")}
	}
	return cloud.Check{Name: name, Status: cloud.CheckUnchecked, Field: field, Message: err.Error(), Fix: "Everything is checked again before anything is made."}
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
		if fix := sentence(f.Fix); fix != "" && !slices.Contains(fixes, fix) {
			fixes = append(fixes, fix)
		}
	}
	return pipeline.Fatal("invalid", strings.Join(messages, "; "), strings.Join(append(fixes, "Then retry."), " ")).On(at + inv.Fields[0].Field)
}

// relative takes the place in a list of one from fields, such as [0].name.
func relative(inv *job.Invalid) *job.Invalid {
	out := &job.Invalid{Fields: slices.Clone(inv.Fields)}
	for i, f := range out.Fields {
		out.Fields[i].Field = strings.TrimPrefix(f.Field, "[0]")
	}
	return out
}
