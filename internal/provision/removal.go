package provision

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
)

// A removal is what a DELETE of a job needs, and takes along.
type removal struct {
	policy access.Policy
	along  []job.Job // component jobs on the cluster that goes
}

// removal looks at a job that is to be deleted. Uninstalling a component is a
// policy of its own, and the components of a cluster go with it. A cluster that
// is only disconnected runs on: its components have to be uninstalled before.
func (s *Service) removal(ctx context.Context, ref string) (removal, error) {
	out := removal{policy: access.JobDelete}
	p, known := access.From(ctx)
	if !known {
		return out, nil // refused where the policy is asked for
	}
	j, err := s.resolve(ctx, p, access.JobDelete, ref, false)
	var r *Refusal
	switch {
	case errors.As(refusalOf(err), &r):
		return out, nil // likewise
	case err != nil:
		return out, err
	case j.Kind == job.Remediation:
		out.policy = access.VMOperate
		return out, nil
	case j.ResourceType == job.Component:
		out.policy = access.ComponentUninstall
		return out, nil
	case j.ResourceType != job.Cluster:
		return out, nil
	}
	if out.along, err = s.componentsOf(ctx, j); err != nil || len(out.along) == 0 {
		return out, err
	}
	if err := requireOver(ctx, access.JobDelete, j); err != nil {
		return out, nil //nolint:nilerr // refused where the policy is asked for
	}
	for i := range out.along {
		if err := requireOver(ctx, access.ComponentUninstall, &out.along[i]); err != nil {
			return out, s.refused(ctx, access.ComponentUninstall, j.ID, err)
		}
	}
	if !j.Owns() && !j.State().Terminal() {
		return out, s.refused(ctx, out.policy, j.ID, refuse(WrongState, "Delete these jobs first: they uninstall what they installed.",
			"the cluster is only disconnected, and would keep what these jobs installed: %s", jobNames(out.along)))
	}
	return out, nil
}

// componentsOf are the component jobs that stand on a cluster job's cluster: for
// one that it owns, whatever space they were installed through.
func (s *Service) componentsOf(ctx context.Context, c *job.Job) ([]job.Job, error) {
	at, space := c.ClusterRef(), c.Config.InfraConfig.SpaceID
	if !c.Owns() {
		return s.componentJobs(ctx, c.OrgID, func(j *job.Job) bool { return space != "" && j.Config.InfraConfig.SpaceID == space })
	}
	return s.componentJobs(ctx, c.OrgID, func(j *job.Job) bool {
		on := j.ClusterRef()
		return at.Name != "" && on.Name == at.Name && on.Region == at.Region && sameGroup(on.ResourceGroup, at.ResourceGroup) &&
			j.Provider == c.Provider && j.CloudAccountID == c.CloudAccountID
	})
}

// sameGroup reports whether two resource groups can be one: where one is not
// named, the cluster's name was all that was needed to find it.
func sameGroup(a, b string) bool { return a == "" || b == "" || strings.EqualFold(a, b) }

// componentJobs are the component jobs of an organisation that still stand for
// something, as far as they are wanted.
func (s *Service) componentJobs(ctx context.Context, org string, wanted func(*job.Job) bool) ([]job.Job, error) {
	var out []job.Job
	f := ledger.Filter{ResourceType: job.Component, Limit: 200}
	for {
		page, next, err := s.Ledger.List(ctx, org, job.Everything, f)
		if err != nil {
			return nil, err
		}
		for _, j := range page {
			if j.State().Live() && wanted(&j) {
				out = append(out, j)
			}
		}
		if f.Cursor = next; next == "" {
			return out, nil
		}
	}
}

// deleteAlong asks for the deletion of component jobs whose cluster goes.
func (s *Service) deleteAlong(ctx context.Context, along []job.Job) error {
	for _, c := range along {
		if c.Cancelling || c.Phase == job.PhaseTeardown && c.State().Active() {
			continue
		}
		_, _, err := s.Delete(ctx, c.ID, "", nil)
		var r *Refusal
		if errors.As(err, &r) && (r.Kind == WrongState || r.Kind == NotFound) {
			continue // it came to its end meanwhile
		}
		if err != nil {
			return fmt.Errorf("component job %s: %w", c.ID, err)
		}
	}
	return nil
}

// jobNames are the names of jobs, for a person.
func jobNames(jobs []job.Job) string {
	names := make([]string, len(jobs))
	for i, j := range jobs {
		names[i] = j.Name
	}
	return strings.Join(names, ", ")
}
