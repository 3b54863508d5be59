package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/components"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/kube"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A Component is one component of the catalogue in a list.
type Component struct{ components.Entry }

// kubeVersionRE is what can be a version of Kubernetes, such as 1.36 or
// v1.35.2-eks-1a2b3c4.
var kubeVersionRE = regexp.MustCompile(`^v?[0-9]{1,3}\.[0-9]{1,3}([.+-][0-9A-Za-z.+-]*)?$`)

// Catalogue lists the components that a query asks for.
func (s *Service) Catalogue(ctx context.Context, q components.Query) ([]Component, error) {
	if _, err := s.viewer(ctx, access.ComponentView); err != nil {
		return nil, err
	}
	if q.KubeVersion != "" && !kubeVersionRE.MatchString(q.KubeVersion) {
		return nil, invalid(job.FieldError{Field: "kubeVersion", Message: fmt.Sprintf("%.40q is not a Kubernetes version", q.KubeVersion), Fix: "use one such as 1.36"})
	}
	out := []Component{}
	if s.Components == nil {
		return out, nil
	}
	for _, e := range s.Components.Catalogue().List(q) {
		out = append(out, Component{e})
	}
	return out, nil
}

// A ComponentView is one component of the catalogue, with the schema of its values.
type ComponentView struct {
	components.Entry
	ValuesSchema json.RawMessage `json:"valuesSchema,omitempty" doc:"JSON schema of the chart's values, as the chart brings it"`
	SchemaNote   string          `json:"schemaNote,omitempty" doc:"Why there is no schema"`
}

// CatalogueEntry reads one component. Its schema is in the chart: a chart that
// cannot be fetched is said to be so, and is no failure.
func (s *Service) CatalogueEntry(ctx context.Context, name string) (*ComponentView, error) {
	if _, err := s.viewer(ctx, access.ComponentView); err != nil {
		return nil, err
	}
	var e components.Entry
	known := false
	if s.Components != nil {
		e, known = s.Components.Catalogue().Get(name)
	}
	if !known {
		return nil, &Refusal{Kind: NotFound, Message: fmt.Sprintf("there is no component %.60q in the catalogue", name), Hint: "GET /catalog/components lists what there is."}
	}
	v := &ComponentView{Entry: e}
	schema, err := s.Components.ValuesSchema(ctx, name, "")
	switch {
	case err != nil:
		v.SchemaNote = "the chart could not be read: " + err.Error()
	case schema == nil:
		v.SchemaNote = "the chart has no schema for its values"
	}
	v.ValuesSchema = schema
	return v, nil
}

// Diff is what an upgrade of a component job would change in its cluster. An
// empty request compares with the spec as it is.
func (s *Service) Diff(ctx context.Context, ref string, r ConfigRequest) ([]components.Change, error) {
	p, err := s.viewer(ctx, access.ComponentView)
	if err != nil {
		return nil, err
	}
	j, err := s.find(ctx, p, access.ComponentView, ref, true)
	if err != nil {
		return nil, refusalOf(err)
	}
	switch {
	case j.ResourceType != job.Component:
		return nil, refuse(WrongState, "Only component jobs have manifests.", "this is a %s job", j.ResourceType)
	case j.State().Terminal() || j.Phase == job.PhaseTeardown:
		return nil, refuse(WrongState, "Install the component anew.", "the job is %s (phase %s): its release goes, or is gone", j.Status, j.Phase)
	case s.Components == nil:
		return nil, refuse(WrongState, "Ask a server that has one.", "this server has no component catalogue")
	}
	if len(r.Spec) > 0 {
		if _, err := mergeUpgrade(j, r.Spec); err != nil {
			return nil, err
		}
	}
	if err := s.check(j); err != nil {
		return nil, err
	}
	spec, err := j.ComponentJob()
	if err != nil {
		return nil, err
	}
	if spec.Component, err = s.Components.Filled(j, spec.Component); err != nil {
		return nil, componentFields(err)
	}
	reach, version, err := s.reach(ctx, j)
	if err != nil {
		return nil, err
	}
	changes, err := s.Components.Diff(pipeline.WithGate(ctx, pipeline.ReadOnly), reach, spec.Component, version, j.Provider)
	if err != nil {
		return nil, stopped(componentFields(err))
	}
	if changes == nil {
		changes = []components.Change{}
	}
	return changes, nil
}

// componentFields puts the path of a component job's spec before fields.
func componentFields(err error) error {
	var inv *job.Invalid
	if !errors.As(err, &inv) {
		return err
	}
	out := make([]job.FieldError, len(inv.Fields))
	for i, f := range inv.Fields {
		f.Field = "config.spec.component." + f.Field
		out[i] = f
	}
	return invalid(out...)
}

// reach is the way to a job's cluster, through a client that changes nothing,
// and its version.
func (s *Service) reach(ctx context.Context, j *job.Job) (cloud.KubeAccess, string, error) {
	reach, err := s.kubeAccess(ctx, j)
	if err != nil {
		return reach, "", err
	}
	client, err := kube.Client(pipeline.WithGate(ctx, pipeline.ReadOnly), reach)
	if err != nil {
		return reach, "", err
	}
	version, err := kube.Version(client)
	return reach, version, asked(err)
}

// stopped puts an error into words that only a person can do something about;
// others are those of a cloud.
func stopped(err error) error {
	var fatal *pipeline.FatalError
	if !errors.As(err, &fatal) {
		return asked(err)
	}
	r := &Refusal{Kind: WrongState, Message: fatal.Problem.Message, Hint: fatal.Problem.Hint, Cause: err}
	if fatal.Problem.Field != "" {
		r.Fields = []job.FieldError{{Field: fatal.Problem.Field, Message: fatal.Problem.Message, Fix: fatal.Problem.Hint}}
	}
	return r
}
