package provision

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
)

// subjectTypes says what a job of each family acts on, and the prefix of its ID.
var subjectTypes = map[job.ResourceType]struct{ name, prefix string }{
	job.Cluster:   {"cluster", "clu"},
	job.Datastore: {"datastore", "dst"},
	job.Cache:     {"cache", "cch"},
	job.Network:   {"network", "net"},
	job.VM:        {"vm_pool", "vmp"},
	job.Component: {"component_release", "rel"},
}

var (
	keyRE       = regexp.MustCompile(`^[!-~]{1,255}$`)
	spaceNameRE = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)
)

// errReplayed ends a create whose idempotency key stands for a job already.
var errReplayed = errors.New("the request was carried out before")

// Create makes a job: a draft, or queued at once. With an idempotency key, the
// same request again returns the same job, and another one with the same key is
// refused; created is false for a job that was there before.
func (s *Service) Create(ctx context.Context, r CreateRequest, key string) (v *JobView, created bool, err error) {
	policy := access.JobCreate
	switch {
	case r.Kind == job.Remediation:
		policy = access.VMOperate
	case r.ResourceType == job.Component:
		policy = access.ComponentInstall
	}
	return s.create(ctx, policy, r, key)
}

func (s *Service) create(ctx context.Context, policy access.Policy, r CreateRequest, key string) (v *JobView, created bool, err error) {
	if key != "" && !keyRE.MatchString(key) {
		return nil, false, s.refused(ctx, policy, "", invalid(job.FieldError{Field: "Idempotency-Key", Message: "is not a key", Fix: "use 1 to 255 printable characters without spaces"}))
	}
	digest, err := digestOf(r)
	if err != nil {
		return nil, false, err
	}
	to, v, err := s.bindRequest(ctx, policy, &r, key, digest)
	if v != nil || err != nil {
		return v, false, err
	}
	if err := s.place(ctx, policy, &r, to); err != nil {
		return nil, false, s.refused(ctx, policy, "", err)
	}
	var j *job.Job
	var before, org string
	err = s.mutate(ctx, policy, "", func(ctx context.Context, tx db.Q, p access.Principal) (audit.Entry, error) {
		var err error
		before, org = "", p.OrgID
		if j, err = s.newJob(r); err != nil {
			return audit.Entry{}, err
		}
		j.Config.InfraConfig = to.infra
		j.ID, j.OrgID, j.CreatedBy = job.NewID("job"), p.OrgID, p.Actor
		subject := subjectTypes[j.ResourceType]
		j.SubjectType, j.SubjectID = subject.name, job.NewID(subject.prefix)
		if to.subject != nil {
			j.SubjectID = to.subject.SubjectID
		}
		if key != "" {
			rec, err := s.Ledger.IdempotencyPut(ctx, tx, p.OrgID, key, digest, j.ID)
			if err != nil {
				return audit.Entry{}, err
			}
			if rec.JobID != j.ID {
				before = rec.JobID
				return audit.Entry{}, s.replay(ctx, p, rec, digest)
			}
		}
		return s.insert(ctx, tx, j, r.Submit)
	})
	switch {
	case errors.Is(err, errReplayed):
		if j, err = s.Ledger.Get(ctx, org, before); err != nil { // seen before, by replay
			return nil, false, err
		}
		v, err = s.view(ctx, j)
		return v, false, err
	case err != nil:
		return nil, false, err
	}
	s.wake(ctx, j)
	v, err = s.view(ctx, j)
	return v, true, err
}

// bindRequest fills in of a request what its space, or the job that it acts on,
// says. A request that was carried out is answered as it was then, whatever has
// become of that.
func (s *Service) bindRequest(ctx context.Context, policy access.Policy, r *CreateRequest, key, digest string) (to bound, before *JobView, err error) {
	if before, err = s.replayed(ctx, policy, key, digest); before != nil || err != nil {
		return to, before, err
	}
	switch {
	case r.Kind == job.Remediation:
		to, err = s.bindSubject(ctx, r)
	case r.ResourceType == job.Component:
		to, err = s.bindSpace(ctx, r)
	}
	if err != nil {
		err = s.refused(ctx, policy, "", err)
	}
	return to, nil, err
}

// replayed is the job that an idempotency key stands for with this same request;
// nil if there is none.
func (s *Service) replayed(ctx context.Context, policy access.Policy, key, digest string) (*JobView, error) {
	p, err := access.Require(ctx, policy)
	if err != nil || key == "" {
		return nil, nil //nolint:nilerr // refused where the policy is asked for
	}
	rec, err := s.Ledger.IdempotencyGet(ctx, s.Ledger.DB(), p.OrgID, key)
	if errors.Is(err, ledger.ErrNotFound) {
		return nil, nil
	}
	if err != nil || rec.BodyHash != digest {
		return nil, err
	}
	j, err := s.Ledger.Get(ctx, p.OrgID, rec.JobID)
	if err != nil {
		return nil, err
	}
	if !p.Over(access.JobView, policy).Covers(j.TeamID, j.ID) {
		return nil, keyTaken("")
	}
	return s.view(ctx, j)
}

// replay says what a request is told whose key another one has used.
func (s *Service) replay(ctx context.Context, p access.Principal, rec *ledger.IdempotencyRecord, digest string) error {
	j, err := s.Ledger.Get(ctx, p.OrgID, rec.JobID)
	switch {
	case err != nil:
		return err
	case !p.Over(access.JobView).Covers(j.TeamID, j.ID):
		return keyTaken("")
	case rec.BodyHash == digest:
		return errReplayed
	}
	return keyTaken(j.ID)
}

// keyTaken is an idempotency key that stands for another request; id is the job
// that this one made, where the caller may see it.
func keyTaken(id string) error {
	made := ""
	if id != "" {
		made = ", which made job " + id
	}
	return &Refusal{Kind: KeyReused, Job: id,
		Message: "the idempotency key stands for another request" + made,
		Hint:    "Use a new key for a new request. To have the same job again, send the same body.",
		Fields:  []job.FieldError{{Field: "Idempotency-Key", Message: "was used with another body", Fix: "use a new key"}}}
}

func (s *Service) insert(ctx context.Context, tx db.Q, j *job.Job, submit bool) (audit.Entry, error) {
	message := "created as a draft"
	if submit {
		to, err := job.Next(j.State(), job.Submit)
		if err != nil {
			return audit.Entry{}, err
		}
		j.Status, j.Phase = to.Status, to.Phase
		message = "created and queued"
	}
	if err := s.holdAccounts(ctx, tx, j, accountsOf(j)); err != nil {
		return audit.Entry{}, err
	}
	if err := s.Ledger.Insert(ctx, tx, j); err != nil {
		return audit.Entry{}, err
	}
	err := s.Ledger.AddEvents(ctx, tx, j.OrgID, j.ID, job.Event{Type: "job.status", Run: j.Run, Message: message + " by " + j.CreatedBy})
	return audit.Entry{ResourceID: j.ID, Detail: map[string]any{
		"name": j.Name, "resourceType": string(j.ResourceType), "provider": string(j.Provider), "mode": string(j.Mode), "submitted": submit,
	}}, err
}

// digestOf is a hash of what a request says: spacing, order of keys and spelled
// out defaults of the encoding do not make it another one.
func digestOf(r CreateRequest) (string, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("request: %w", err)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), nil
}
