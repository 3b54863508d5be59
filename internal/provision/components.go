package provision

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/components"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/spaces/configv1"
	"github.com/zopday/provisioner/internal/steps"
)

// Components is the catalogue and what installs from it.
type Components interface {
	steps.Components
	Catalogue() *components.Catalogue

	// Check says what is wrong with a component by the catalogue alone, with
	// fields relative to the component.
	Check(spec job.ComponentSpec, p job.Provider) []job.FieldError

	// ValuesSchema is the JSON schema that a chart has for its values; nil if it
	// has none. An empty version is the pinned one.
	ValuesSchema(ctx context.Context, name, version string) (json.RawMessage, error)

	// Diff is what an upgrade would change in the cluster; it changes nothing.
	Diff(ctx context.Context, access cloud.KubeAccess, spec job.ComponentSpec, kubeVersion string, p job.Provider) ([]components.Change, error)

	// Installed lists the Helm releases of a cluster, whoever made them.
	Installed(ctx context.Context, access cloud.KubeAccess) ([]job.ComponentInfo, error)
}

// An InstallRequest asks for one component on a space.
type InstallRequest struct {
	SpaceID   string            `json:"spaceId" doc:"The space to install onto, of type kubernetes: its ID, or its name"`
	Component string            `json:"component" doc:"Its name in the catalogue"`
	Version   string            `json:"version,omitempty" doc:"Chart version; the catalogue's pinned one by default"`
	Namespace string            `json:"namespace,omitempty" doc:"The catalogue's by default; made if it is not there"`
	Release   string            `json:"release,omitempty" doc:"The Helm release's name; the component's by default"`
	Values    json.RawMessage   `json:"values,omitempty" doc:"Helm values, an object. They are stored and shown: name Secrets that exist instead of writing their contents"`
	Name      string            `json:"name,omitempty" doc:"The job's name; made of release and space by default"`
	Labels    map[string]string `json:"labels,omitempty" doc:"Labels of the job"`
}

// InstallComponent makes a job that installs a component onto a space, and
// queues it. It is the same as Create of that job; errors name this request's
// own fields.
func (s *Service) InstallComponent(ctx context.Context, r InstallRequest, key string) (v *JobView, created bool, err error) {
	spec, err := canonical(job.ComponentJobSpec{SpaceID: r.SpaceID, Component: job.ComponentSpec{
		Name: r.Component, Version: r.Version, Namespace: r.Namespace, Release: r.Release, Values: r.Values,
	}})
	if err != nil {
		return nil, false, s.refused(ctx, access.ComponentInstall, "", invalid(job.FieldError{Field: "values", Message: "is not JSON", Fix: "give Helm values as an object"}))
	}
	v, created, err = s.create(ctx, access.ComponentInstall, CreateRequest{
		ResourceType: job.Component, Name: r.Name, Labels: r.Labels, Config: ConfigRequest{Spec: spec}, Submit: true,
	}, key)
	return v, created, installFields(err)
}

// canonical is a document as one that came in a request is kept.
func canonical(v any) (json.RawMessage, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	doc, err := parse(b)
	if err != nil {
		return nil, err
	}
	return json.Marshal(doc)
}

// installFields names the fields of a component job as an InstallRequest has them.
func installFields(err error) error {
	var r *Refusal
	if !errors.As(err, &r) || len(r.Fields) == 0 {
		return err
	}
	out := *r
	out.Fields = slices.Clone(r.Fields)
	for i, f := range out.Fields {
		switch f.Field {
		case "config.spec.spaceId":
			f.Field = "spaceId"
		case "config.spec.component.name":
			f.Field = "component"
		default:
			f.Field = strings.TrimPrefix(f.Field, "config.spec.component.")
		}
		out.Fields[i] = f
	}
	if r.Kind == Invalid {
		again := invalid(out.Fields...)
		out.Message, out.Hint = again.Message, again.Hint
	}
	return &out
}

// bindSpace fills in of a component job's request what its space says: cloud,
// account, region, team, and a name if there is none.
func (s *Service) bindSpace(ctx context.Context, r *CreateRequest) (to bound, err error) {
	p, err := access.Require(ctx, access.ComponentInstall)
	if err != nil {
		return to, err
	}
	var spec job.ComponentJobSpec
	if len(r.Config.Spec) > 0 {
		if fields := decodeSpec(r.Config.Spec, &spec); len(fields) > 0 {
			return to, invalid(fields...)
		}
	}
	if spec.SpaceID == "" {
		return to, invalid(job.FieldError{Field: "config.spec.spaceId", Message: "is missing", Fix: "name a space of type kubernetes: GET /spaces"})
	}
	space, err := s.installable(ctx, p, spec.SpaceID)
	if err != nil {
		return to, err
	}
	if _, err := s.overSpace(ctx, p, access.ComponentInstall, space.GetId()); err != nil {
		return to, err
	}
	if err := agrees(r, space); err != nil {
		return to, err
	}
	r.Provider, r.Region, r.CloudAccountID = job.Provider(space.GetProvider()), space.GetRegion(), accountOf(space)
	if r.Name == "" {
		r.Name = releaseJobName(cmp.Or(spec.Component.Release, spec.Component.Name), space.GetName())
	}
	spec.SpaceID = space.GetId()
	if r.Config.Spec, err = canonical(spec); err != nil {
		return to, fmt.Errorf("spec of %s: %w", r.Name, err)
	}
	to.bySpace = true
	if to.team, err = s.teamOfSpace(ctx, p.OrgID, space); err != nil {
		return to, err
	}
	infra := &to.infra
	infra.Cluster.Name, infra.ResourceGroup, infra.SpaceID = space.GetConfig()["cluster"], space.GetConfig()["resourceGroup"], space.GetId()
	return to, s.bindCluster(ctx, p.OrgID, space, infra)
}

// installable finds the space that a component is to be installed onto.
func (s *Service) installable(ctx context.Context, p access.Principal, ref string) (*configv1.Space, error) {
	const field = "config.spec.spaceId"
	space, err := s.space(ctx, p, ref, job.SpaceKubernetes)
	var r *Refusal
	if errors.As(err, &r) && (r.Kind == NotFound || r.Kind == Ambiguous) {
		r.Fields = []job.FieldError{{Field: field, Message: r.Message, Fix: "use the ID of one from GET /spaces"}}
	}
	switch {
	case err != nil:
		return nil, err
	case space.GetSpaceType() != job.SpaceKubernetes:
		return nil, invalid(job.FieldError{Field: field, Message: fmt.Sprintf("the space %s is of type %s", space.GetName(), space.GetSpaceType()), Fix: "name one of type kubernetes: GET /spaces"})
	case space.GetConfig()["cluster"] == "":
		return nil, invalid(job.FieldError{Field: field, Message: fmt.Sprintf("the space %s does not say which cluster it is", space.GetName()), Fix: "register the cluster as a space: POST /spaces"})
	}
	return space, nil
}

// agrees refuses a request that names another place than its space is in.
func agrees(r *CreateRequest, space *configv1.Space) error {
	var fields []job.FieldError
	for _, f := range []struct{ name, given, is string }{
		{"provider", string(r.Provider), space.GetProvider()}, {"region", r.Region, space.GetRegion()}, {"cloudAccountId", r.CloudAccountID, accountOf(space)},
	} {
		if f.given != "" && f.given != f.is {
			fields = append(fields, job.FieldError{Field: f.name, Message: fmt.Sprintf("is %.40q, and the space is in %s", f.given, f.is), Fix: "leave it out: the space says it"})
		}
	}
	if len(fields) > 0 {
		return invalid(fields...)
	}
	return nil
}

func accountOf(space *configv1.Space) string { return cmp.Or(space.GetCloudAccountId(), "default") }

// bindCluster adds what the job that made the space's cluster knows of it; a
// cluster that is on its way out takes nothing more.
func (s *Service) bindCluster(ctx context.Context, org string, space *configv1.Space, infra *job.InfraConfig) error {
	if space.GetJobId() == "" {
		return nil
	}
	c, err := s.Ledger.Get(ctx, org, space.GetJobId())
	switch {
	case errors.Is(err, ledger.ErrNotFound):
		return nil // another installation's
	case err != nil:
		return err
	case c.Cancelling || c.Phase == job.PhaseTeardown:
		return &Refusal{Kind: WrongState, Job: c.ID, Message: fmt.Sprintf("the cluster of the space %s is being deleted", space.GetName()), Hint: "Choose another space."}
	}
	infra.NetworkID = c.Config.InfraConfig.NetworkID
	return nil
}

// releaseJobName names the job of a release on a space.
func releaseJobName(release, space string) string {
	name := release + "-on-" + space
	if !spaceNameRE.MatchString(release) { // it begins with a digit, or is refused elsewhere
		name = "release-on-" + space
	}
	return strings.TrimRight(name[:min(len(name), 63)], "-")
}

// checkComponents says what is wrong with the components of a spec by the
// catalogue.
func (s *Service) checkComponents(j *job.Job) []job.FieldError {
	var fields []job.FieldError
	add := func(at string, spec job.ComponentSpec) {
		if s.Components == nil {
			fields = append(fields, job.FieldError{Field: at + "name", Message: "this server has no component catalogue", Fix: "leave components out"})
			return
		}
		for _, f := range s.Components.Check(spec, j.Provider) {
			f.Field = at + f.Field
			fields = append(fields, f)
		}
	}
	switch j.ResourceType {
	case job.Cluster:
		spec, err := j.ClusterSpec()
		if err != nil {
			return nil // said before
		}
		for i, c := range spec.Components {
			add(fmt.Sprintf("config.spec.components[%d].", i), c)
		}
	case job.Component:
		spec, err := j.ComponentJob()
		if err != nil {
			return nil
		}
		add("config.spec.component.", spec.Component)
	}
	return fields
}
