package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
)

// placePeerings settles the cloud accounts that the spec of a network job names for
// the other sides of its peerings, by the same rules as the job's own account: each
// has to be one that the job's team may use, and names become IDs. What is wrong
// with the spec besides is said where the whole job is checked.
func (s *Service) placePeerings(ctx context.Context, org string, r *CreateRequest) error {
	if r.ResourceType != job.Network || len(r.Config.Spec) == 0 {
		return nil
	}
	doc, err := parse(r.Config.Spec)
	if err != nil {
		return nil //nolint:nilerr // refused where the job is checked
	}
	var fields []job.FieldError
	ids := map[string]string{}
	for i, peer := range peeringsIn(doc) {
		ref, _ := peer["cloudAccountId"].(string)
		if ref == "" || len(fields) >= maxFieldErrors {
			continue
		}
		if ids[ref] == "" {
			a, err := s.workAccount(ctx, org, r, ref)
			var unfit *Refusal
			switch {
			case errors.As(err, &unfit):
				for _, f := range unfit.Fields {
					f.Field = fmt.Sprintf("config.spec.peerings[%d].%s", i, f.Field)
					fields = append(fields, f)
				}
				continue
			case err != nil:
				return err
			}
			ids[ref] = a.ID
		}
		peer["cloudAccountId"] = ids[ref]
	}
	switch {
	case len(fields) > 0:
		return invalid(fields...)
	case len(ids) == 0:
		return nil
	}
	spec, err := json.Marshal(doc)
	if err != nil {
		return fmt.Errorf("spec: %w", err)
	}
	r.Config.Spec = spec
	return nil
}

// peeringsIn are the peerings of a spec that was parsed; nil stands for one that is
// no object.
func peeringsIn(doc any) []map[string]any {
	spec, _ := doc.(map[string]any)
	list, _ := spec["peerings"].([]any)
	out := make([]map[string]any, len(list))
	for i, p := range list {
		out[i], _ = p.(map[string]any)
	}
	return out
}

// movedPeerings settles the accounts of the peerings that a change of a network job
// brings. A merge patch replaces a list as a whole, so these are all that it will have.
func (s *Service) movedPeerings(ctx context.Context, j *job.Job, r *PatchRequest) error {
	if j.ResourceType != job.Network || r.Config == nil {
		return nil
	}
	ask := CreateRequest{ResourceType: j.ResourceType, Provider: j.Provider, Mode: j.Mode, Team: j.TeamID, Config: *r.Config}
	if r.Mode != nil {
		ask.Mode = *r.Mode
	}
	if err := s.placePeerings(ctx, j.OrgID, &ask); err != nil {
		return err
	}
	r.Config = &ask.Config
	return nil
}

// accountsOf are the IDs of the cloud accounts that a job works with: its own, and
// those of the other sides of its peerings.
func accountsOf(j *job.Job) []string {
	ids := []string{j.CloudAccountID}
	if j.ResourceType == job.Network {
		if spec, err := j.NetworkJob(); err == nil {
			for _, p := range spec.Peerings {
				if p.CloudAccountID != "" {
					ids = append(ids, p.CloudAccountID)
				}
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// holdAccounts keeps the accounts that a job is about to stand on until the
// transaction ends, so that none of them is deleted at the same moment.
func (s *Service) holdAccounts(ctx context.Context, tx db.Q, j *job.Job, ids []string) error {
	if s.Accounts == nil {
		return nil
	}
	for _, id := range ids {
		err := s.Accounts.Hold(ctx, tx, j.OrgID, id)
		switch {
		case errors.Is(err, cloud.ErrNoAccount) && id == j.CloudAccountID:
			return invalid(job.FieldError{Field: "cloudAccountId", Message: "the cloud account " + id + " has just been deleted", Fix: "use another one"})
		case errors.Is(err, cloud.ErrNoAccount):
			return invalid(job.FieldError{Field: "config.spec.peerings", Message: "the cloud account " + id + " has just been deleted", Fix: "use another one"})
		case err != nil:
			return err
		}
	}
	return nil
}
