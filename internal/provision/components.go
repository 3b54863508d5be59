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
	"github.com/zopday/provisioner/internal/kube"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/pipeline"
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
// queues it.
func (s *Service) InstallComponent(ctx context.Context, r InstallRequest, key string) (v *JobView, created bool, err error) {
	spec, err := json.Marshal(job.ComponentJobSpec{SpaceID: r.SpaceID, Component: job.ComponentSpec{
		Name: r.Component, Version: r.Version, Namespace: r.Namespace, Release: r.Release, Values: r.Values,
	}})
	if err != nil {
		return nil, false, invalid(job.FieldError{Field: "values", Message: "is not JSON", Fix: "give Helm values as an object"})
	}
	return s.create(ctx, access.ComponentInstall, CreateRequest{
		ResourceType: job.Component, Name: r.Name, Labels: r.Labels, Config: ConfigRequest{Spec: spec}, Submit: true,
	}, key)
}

// bindSpace fills in of a component job's request what its space says: cloud,
// account, region, and a name if there is none. infra names the cluster.
func (s *Service) bindSpace(ctx context.Context, r *CreateRequest) (infra job.InfraConfig, err error) {
	p, err := access.Require(ctx, access.ComponentInstall)
	if err != nil {
		return infra, err
	}
	var spec job.ComponentJobSpec
	if fields := decodeAt(r.Config.Spec, "config.spec", &spec); len(fields) > 0 || spec.SpaceID == "" {
		return infra, nil // refused where the whole request is checked
	}
	space, err := s.space(ctx, p.OrgID, spec.SpaceID)
	if err != nil {
		return infra, err
	}
	if space.GetSpaceType() != job.SpaceKubernetes {
		return infra, invalid(job.FieldError{Field: "config.spec.spaceId", Message: fmt.Sprintf("the space %s is of type %s", space.GetName(), space.GetSpaceType()), Fix: "name one of type kubernetes: GET /spaces"})
	}
	var fields []job.FieldError
	for _, f := range []struct{ name, given, is string }{
		{"provider", string(r.Provider), space.GetProvider()}, {"region", r.Region, space.GetRegion()},
		{"cloudAccountId", r.CloudAccountID, cmp.Or(space.GetCloudAccountId(), "default")},
	} {
		if f.given != "" && f.given != f.is {
			fields = append(fields, job.FieldError{Field: f.name, Message: fmt.Sprintf("is %.40q, and the space is in %s", f.given, f.is), Fix: "leave it out: the space says it"})
		}
	}
	if len(fields) > 0 {
		return infra, invalid(fields...)
	}
	r.Provider, r.Region, r.CloudAccountID = job.Provider(space.GetProvider()), space.GetRegion(), cmp.Or(space.GetCloudAccountId(), "default")
	if r.Name == "" {
		r.Name = releaseJobName(cmp.Or(spec.Component.Release, spec.Component.Name), space.GetName())
	}
	spec.SpaceID = space.GetId()
	if r.Config.Spec, err = json.Marshal(spec); err != nil {
		return infra, fmt.Errorf("spec of %s: %w", r.Name, err)
	}
	infra.Cluster.Name, infra.ResourceGroup, infra.SpaceID = space.GetConfig()["cluster"], space.GetConfig()["resourceGroup"], space.GetId()
	return infra, nil
}

// releaseJobName names the job of a release on a space.
func releaseJobName(release, space string) string {
	name := release + "-on-" + space
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

// operateComponent begins an upgrade or a rollback of a finished component job.
func (s *Service) operateComponent(j *job.Job, r PatchRequest) (string, map[string]any, error) {
	op := *r.ComponentOp
	switch {
	case op != job.UpgradeComponent && op != job.RollBackComponent:
		return "", nil, invalid(job.FieldError{Field: "componentOp", Message: fmt.Sprintf("%.40q is not an operation", string(op)), Fix: "use upgrade or rollback; DELETE uninstalls"})
	case r.Status != nil || r.Name != nil || r.Mode != nil || r.CloudAccountID != nil || r.Region != nil || r.Labels != nil:
		return "", nil, invalid(job.FieldError{Field: "componentOp", Message: "comes with other changes", Fix: "send the operation alone; upgrade brings config.spec.component"})
	case j.ResourceType != job.Component:
		return "", nil, invalid(job.FieldError{Field: "componentOp", Message: fmt.Sprintf("is for component jobs, and this is a %s job", j.ResourceType), Fix: "leave it out"})
	case op == job.UpgradeComponent && r.Revision != nil:
		return "", nil, invalid(job.FieldError{Field: "revision", Message: "is for rollback", Fix: "leave it out"})
	case op == job.RollBackComponent && r.Config != nil:
		return "", nil, invalid(job.FieldError{Field: "config", Message: "rollback takes no settings", Fix: "leave it out, and name the revision"})
	}
	if _, err := job.Next(j.State(), job.Operate); err != nil {
		return "", nil, err
	}
	var err error
	if op == job.UpgradeComponent {
		err = upgradeSpec(j, r)
	} else {
		err = rollBackSpec(j, r.Revision)
	}
	if err != nil {
		return "", nil, err
	}
	if err := s.check(j); err != nil {
		return "", nil, err
	}
	if err := move(j, job.Operate); err != nil {
		return "", nil, err
	}
	j.VMOp, j.Run, j.CurrentStep = op, j.Run+1, ""
	j.SpecRevision++
	return string(op) + " asked for", map[string]any{"componentOp": string(op)}, nil
}

// upgradeSpec merges the version and values that an upgrade brings into the spec.
func upgradeSpec(j *job.Job, r PatchRequest) error {
	if r.Config == nil || len(r.Config.Spec) == 0 {
		return invalid(job.FieldError{Field: "config.spec.component", Message: "is missing", Fix: "give the version or the values to go to"})
	}
	spec, err := merge(j.Config.Spec, r.Config.Spec)
	if err != nil {
		return err
	}
	paths, err := changedPaths(j.Config.Spec, spec)
	if err != nil {
		return err
	}
	if len(paths) == 0 && j.Status != job.Failed {
		return invalid(job.FieldError{Field: "config.spec.component", Message: "changes nothing", Fix: "give another version or other values"})
	}
	var fields []job.FieldError
	for _, p := range paths {
		if !within(p, "component.version") && !within(p, "component.values") {
			fields = append(fields, job.FieldError{Field: "config.spec." + p, Message: "cannot be changed by an upgrade", Fix: "install another release, and uninstall this one"})
		}
	}
	if len(fields) > 0 {
		return invalid(fields...)
	}
	j.Config.Spec = spec
	return nil
}

// rollBackSpec puts back the version and values of an earlier revision.
func rollBackSpec(j *job.Job, to *int) error {
	spec, err := j.ComponentJob()
	if err != nil {
		return err
	}
	info := j.Config.InfraConfig.Component(spec.Component.Release)
	if info == nil || len(info.History) == 0 {
		return refuse(WrongState, "Install it first.", "the release has no revision to go back to")
	}
	var had []string
	var target *job.ComponentRevision
	for i, h := range info.History {
		current := h.Revision == info.Revision
		if to != nil && h.Revision == *to || to == nil && !current {
			target = &info.History[i]
		}
		if !current {
			had = append(had, fmt.Sprint(h.Revision))
		}
	}
	switch {
	case target == nil && len(had) == 0:
		return refuse(WrongState, "Upgrade it to another version instead.", "the release has no revision before this one")
	case target == nil:
		return invalid(job.FieldError{Field: "revision", Message: "is not one that this job made", Fix: "use one of " + strings.Join(had, ", ")})
	case target.Revision == info.Revision && j.Status != job.Failed:
		return invalid(job.FieldError{Field: "revision", Message: "is the present one", Fix: "use one of " + strings.Join(had, ", ")})
	}
	spec.Component.Version, spec.Component.Values = target.Version, slices.Clone(target.Values)
	if j.Config.Spec, err = json.Marshal(spec); err != nil {
		return fmt.Errorf("spec of %s: %w", j.ID, err)
	}
	return nil
}

// deletePolicy is what a caller needs to delete a job: uninstalling a component
// is a policy of its own.
func (s *Service) deletePolicy(ctx context.Context, ref string) (access.Policy, error) {
	p, known := access.From(ctx)
	if !known {
		return access.JobDelete, nil // refused where the policy is asked for
	}
	j, err := s.find(ctx, p.OrgID, ref, false)
	var r *Refusal
	switch {
	case errors.As(refusalOf(err), &r):
		return access.JobDelete, nil // likewise
	case err != nil:
		return "", err
	case j.ResourceType == job.Component:
		return access.ComponentUninstall, nil
	}
	return access.JobDelete, nil
}

// deleteComponentsOf asks for the deletion of the component jobs of a cluster
// that is being deleted: they go with it.
func (s *Service) deleteComponentsOf(ctx context.Context, j *job.Job) error {
	space := j.Config.InfraConfig.SpaceID
	if j.ResourceType != job.Cluster || space == "" {
		return nil
	}
	all, err := s.componentJobs(ctx, j.OrgID, space)
	if err != nil {
		return err
	}
	for _, c := range all {
		if !c.State().Live() || c.Cancelling || c.Phase == job.PhaseTeardown && c.State().Active() {
			continue
		}
		if _, _, err := s.Delete(ctx, c.ID, "", nil); err != nil {
			return fmt.Errorf("component job %s: %w", c.ID, err)
		}
	}
	return nil
}

// componentJobs are the component jobs of a space that still stand for something.
func (s *Service) componentJobs(ctx context.Context, org, space string) ([]job.Job, error) {
	var out []job.Job
	f := ledger.Filter{ResourceType: job.Component, Limit: 200}
	for {
		page, next, err := s.Ledger.List(ctx, org, f)
		if err != nil {
			return nil, err
		}
		for _, j := range page {
			if spec, err := j.ComponentJob(); err == nil && spec.SpaceID == space && j.State().Live() {
				out = append(out, j)
			}
		}
		if f.Cursor = next; next == "" {
			return out, nil
		}
	}
}

// Diff is what an upgrade of a component job would change in its cluster.
func (s *Service) Diff(ctx context.Context, ref string, r ConfigRequest) ([]components.Change, error) {
	j, err := s.look(ctx, ref)
	if err != nil {
		return nil, err
	}
	if j.ResourceType != job.Component {
		return nil, refuse(WrongState, "Only component jobs have manifests.", "this is a %s job", j.ResourceType)
	}
	if len(r.Spec) > 0 {
		if err := upgradeSpec(j, PatchRequest{Config: &r}); err != nil {
			return nil, err
		}
		if err := s.check(j); err != nil {
			return nil, err
		}
	}
	spec, err := j.ComponentJob()
	if err != nil {
		return nil, err
	}
	reach, version, err := s.reach(ctx, j)
	if err != nil {
		return nil, err
	}
	changes, err := s.Components.Diff(ctx, reach, spec.Component, version, j.Provider)
	if err != nil {
		return nil, asked(componentPath(err))
	}
	if changes == nil {
		changes = []components.Change{}
	}
	return changes, nil
}

// componentPath puts the path of a component job's spec before fields.
func componentPath(err error) error {
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
	set, err := s.set(ctx, j)
	if err != nil {
		return cloud.KubeAccess{}, "", err
	}
	family, ok := set.Cloud.(cloud.ClusterFamily)
	if !ok {
		return cloud.KubeAccess{}, "", refuse(WrongState, "", "%s has no clusters here", j.Provider)
	}
	ctx = pipeline.WithGate(ctx, pipeline.ReadOnly)
	reach, err := family.KubeAccess(ctx, j.ClusterRef())
	if err != nil {
		return reach, "", asked(err)
	}
	client, err := kube.Client(ctx, reach)
	if err != nil {
		return reach, "", err
	}
	version, err := kube.Version(client)
	return reach, version, asked(err)
}

// A Component is one component of the catalogue in a list.
type Component struct{ components.Entry }

// Catalogue lists the components that a query asks for.
func (s *Service) Catalogue(ctx context.Context, q components.Query) ([]Component, error) {
	if _, err := s.viewer(ctx, access.ComponentView); err != nil {
		return nil, err
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

// space reads one space of an organisation, by its ID or its name.
func (s *Service) space(ctx context.Context, org, ref string) (*configv1.Space, error) {
	none := &Refusal{Kind: NotFound, Message: "there is no such space in your organisation", Hint: "GET /spaces lists what there is.",
		Fields: []job.FieldError{{Field: "spaceId", Message: "is not a space here", Fix: "use an ID from GET /spaces"}}}
	if s.Spaces == nil || !refRE.MatchString(ref) {
		return nil, none
	}
	got, err := s.Spaces.Get(ctx, org, ref)
	if err != nil {
		return nil, spaceService(err)
	}
	if got != nil {
		return got, nil
	}
	token := ""
	for {
		page, next, err := s.Spaces.List(ctx, org, 500, token)
		if err != nil {
			return nil, spaceService(err)
		}
		for _, sp := range page {
			if sp.GetName() == ref {
				return sp, nil
			}
		}
		if token = next; next == "" {
			return nil, none
		}
	}
}
