package provision

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/zopday/provisioner/internal/job"
)

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
		return "", nil, notOperable(j)
	}
	detail := map[string]any{"componentOp": string(op)}
	var err error
	if op == job.UpgradeComponent {
		detail["changed"], err = s.upgradeSpec(j, r)
	} else {
		detail["revision"], err = s.rollBackSpec(j, r.Revision)
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
	return string(op) + " asked for", detail, nil
}

// notOperable says why a component job takes no operation now.
func notOperable(j *job.Job) error {
	hint := "GET the job to see where it stands."
	switch {
	case j.Status == job.Cancelled:
		hint = "A cancelled job is over; install the component anew."
	case j.State().Active():
		hint = "Wait until it has come to rest, or cancel it with DELETE."
	case j.Status == job.Draft:
		hint = `Change it with PATCH config.spec.component, and submit it with PATCH {"status":"queued"}.`
	case j.Phase == job.PhaseTeardown:
		hint = "Retry the teardown; nothing else is left to do with this job."
	case j.Status == job.Failed:
		hint = "The install has not finished: change version or values with PATCH config.spec.component if need be, then retry."
	}
	return refuse(WrongState, hint, "the job is %s (phase %s); an upgrade or a rollback needs a component that is installed", j.Status, j.Phase)
}

// upgradeSpec merges the version and values that an upgrade brings into the spec,
// and returns the paths that differ.
func (s *Service) upgradeSpec(j *job.Job, r PatchRequest) ([]string, error) {
	if r.Config == nil || len(r.Config.Spec) == 0 {
		return nil, invalid(job.FieldError{Field: "config.spec.component", Message: "is missing", Fix: "give the version or the values to go to"})
	}
	paths, err := mergeUpgrade(j, r.Config.Spec)
	if err == nil && len(paths) == 0 && j.Status != job.Failed {
		err = invalid(job.FieldError{Field: "config.spec.component", Message: "changes nothing", Fix: "give another version or other values"})
	}
	return paths, err
}

// mergeUpgrade merges a patch into a component job's spec. It returns the paths
// that differ, and refuses what no upgrade changes.
func mergeUpgrade(j *job.Job, patch json.RawMessage) ([]string, error) {
	spec, err := merge(j.Config.Spec, patch)
	if err != nil {
		return nil, err
	}
	paths, err := changedPaths(j.Config.Spec, spec)
	if err != nil {
		return nil, err
	}
	var fields []job.FieldError
	for i, p := range paths {
		paths[i] = "config.spec." + p
		if !within(p, "component.version") && !within(p, "component.values") {
			fields = append(fields, job.FieldError{Field: clip(paths[i]), Message: "cannot be changed by an upgrade", Fix: "install another release, and uninstall this one"})
		}
	}
	if len(fields) > 0 {
		return nil, invalid(fields...)
	}
	j.Config.Spec = spec
	return paths, nil
}

// rollBackSpec puts back the version and values of an earlier revision: the
// newest that differs from what is asked for now, if none is named.
func (s *Service) rollBackSpec(j *job.Job, to *int) (revision int, err error) {
	spec, err := j.ComponentJob()
	if err != nil {
		return 0, err
	}
	info := j.Config.InfraConfig.Component(s.release(spec.Component))
	if info == nil || len(info.History) == 0 {
		return 0, refuse(WrongState, "Upgrade it to the version and values that it should have.", "this job has recorded no revision of the release to go back to")
	}
	now := job.ComponentRevision{Version: cmp.Or(spec.Component.Version, s.pinned(spec.Component.Name)), Values: spec.Component.Values}
	var others []string
	var target *job.ComponentRevision
	for i, h := range info.History {
		differs, err := differ(now, h)
		if err != nil {
			return 0, err
		}
		if differs {
			others = append(others, strconv.Itoa(h.Revision))
		}
		if to != nil && h.Revision == *to || to == nil && differs {
			target = &info.History[i]
		}
	}
	use := "upgrade it instead: every revision that this job made is what is installed"
	if len(others) > 0 {
		use = "use one of " + strings.Join(others, ", ")
	}
	switch {
	case target == nil && to == nil:
		return 0, refuse(WrongState, "Upgrade it to another version or other values instead.", "the release has no revision that differs from what is installed")
	case target == nil:
		return 0, invalid(job.FieldError{Field: "revision", Message: "is not one that this job made and remembers", Fix: use})
	}
	differs, err := differ(now, *target)
	if err != nil {
		return 0, err
	}
	if !differs && j.Status != job.Failed {
		return 0, invalid(job.FieldError{Field: "revision", Message: "is what is installed now", Fix: use})
	}
	spec.Component.Version, spec.Component.Values = target.Version, target.Values
	j.Config.Spec, err = specWith(j.Config.Spec, spec.Component)
	return target.Revision, err
}

// specWith is a component job's spec with other version and values, and all else
// as it was written.
func specWith(raw json.RawMessage, c job.ComponentSpec) (json.RawMessage, error) {
	var spec job.ComponentJobSpec
	if err := json.Unmarshal(raw, &spec); err != nil {
		return nil, fmt.Errorf("spec: %w", err)
	}
	spec.Component.Version, spec.Component.Values = c.Version, c.Values
	return canonical(spec)
}

// differ reports whether two revisions are of another version or other values.
func differ(a, b job.ComponentRevision) (bool, error) {
	a.Revision = b.Revision
	x, err := json.Marshal(a)
	if err != nil {
		return false, err
	}
	y, err := json.Marshal(b)
	if err != nil {
		return false, err
	}
	paths, err := changedPaths(x, y)
	return len(paths) > 0, err
}

// release is the name of a component's Helm release, as the catalogue has it where
// the spec does not say.
func (s *Service) release(c job.ComponentSpec) string {
	if s.Components == nil {
		return c.Release
	}
	return s.Components.Catalogue().Place(c).Release
}

// pinned is the version of a component that is installed if none is named.
func (s *Service) pinned(name string) string {
	if s.Components == nil {
		return ""
	}
	e, _ := s.Components.Catalogue().Get(name)
	return e.Version
}
