package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
)

// A Match is the revision that a caller expects, from an If-Match header; nil
// expects none in particular.
type Match *int64

// change runs one change of one job: fn edits the job and says what the history
// and the audit log are told.
func (s *Service) change(ctx context.Context, policy access.Policy, ref string, match Match, fn func(j *job.Job, st ledger.Standing) (note string, detail map[string]any, err error)) (*job.Job, error) {
	caller, err := access.Require(ctx, policy)
	if err != nil {
		return nil, s.refused(ctx, policy, ref, err)
	}
	// Looked up before the transaction, which holds one connection as it is.
	found, err := s.find(ctx, caller, policy, ref, false)
	if err != nil {
		return nil, s.refused(ctx, policy, ref, err)
	}
	held, err := s.barred(ctx, found)
	if err != nil {
		return nil, s.refused(ctx, policy, found.ID, err)
	}
	var out *job.Job
	err = s.mutate(ctx, policy, found.ID, func(ctx context.Context, tx db.Q, p access.Principal) (audit.Entry, error) {
		var note string
		var detail map[string]any
		var err error
		var before []string
		out, err = s.Ledger.Change(ctx, tx, p.OrgID, found.ID, func(j *job.Job, st ledger.Standing) error {
			if match != nil && *match != j.SpecRevision {
				return &Refusal{Kind: PreconditionFailed, Job: j.ID,
					Message: fmt.Sprintf("the job is at revision %d, and If-Match names %d", j.SpecRevision, *match),
					Hint:    "GET the job, look at what changed, and send the change again with its ETag."}
			}
			if err := operates(ctx, j); err != nil {
				return err
			}
			before = accountsOf(j)
			was := *j
			var err error
			if note, detail, err = fn(j, st); err == nil && held != nil {
				err = held.stops(&was, j)
			}
			return err
		})
		if err != nil {
			return audit.Entry{}, err
		}
		if now := accountsOf(out); !slices.Equal(before, now) {
			if err := s.holdAccounts(ctx, tx, out, now); err != nil {
				return audit.Entry{}, err
			}
		}
		if note != "" {
			ev := job.Event{Type: "job.status", Run: out.Run, Message: note + " by " + p.Actor}
			if err := s.Ledger.AddEvents(ctx, tx, p.OrgID, out.ID, ev); err != nil {
				return audit.Entry{}, err
			}
		}
		return audit.Entry{ResourceID: out.ID, Detail: detail}, nil
	})
	if err != nil {
		return nil, err
	}
	s.wake(ctx, out)
	return out, nil
}

// wake tells the workers that there is work. It is a courtesy: they poll too.
func (s *Service) wake(ctx context.Context, j *job.Job) {
	if !j.State().Active() && !j.Cancelling {
		return
	}
	if err := s.Ledger.Notify(context.WithoutCancel(ctx)); err != nil {
		s.Log.WarnContext(ctx, "workers could not be told; they find the job when they poll", "job", j.ID, "error", err)
	}
}

// move takes a job to where a signal leads, with the counters of a fresh start.
func move(j *job.Job, sig job.Signal) error {
	to, err := job.Next(j.State(), sig)
	if err != nil {
		return err
	}
	j.Status, j.Phase = to.Status, to.Phase
	j.Attempts, j.Error, j.WaitingFor, j.NextRunAt = 0, nil, "", nil
	return nil
}

// Patch carries one change out; warnings say what a caller may not have meant.
func (s *Service) Patch(ctx context.Context, ref string, r PatchRequest, match Match) (v *JobView, warnings []string, err error) {
	policy := access.JobUpdate
	switch {
	case r.VMOp != nil:
		policy = access.VMOperate
	case r.ComponentOp != nil:
		policy = access.ComponentInstall
	}
	var past *history
	if r.edits() && r.VMOp == nil && r.ComponentOp == nil {
		if past, err = s.history(ctx, policy, ref); err != nil {
			return nil, nil, err
		}
		if err := s.movedDraft(ctx, past.job, &r); err != nil {
			return nil, nil, s.refused(ctx, policy, past.job.ID, err)
		}
		if err := s.movedPeerings(ctx, past.job, &r); err != nil {
			return nil, nil, s.refused(ctx, policy, past.job.ID, err)
		}
	}
	j, err := s.change(ctx, policy, ref, match, func(j *job.Job, _ ledger.Standing) (string, map[string]any, error) {
		warnings = nil
		switch {
		case r.VMOp != nil:
			return s.operate(j, r, &warnings)
		case r.ComponentOp != nil:
			return s.operateComponent(j, r)
		case r.Revision != nil:
			return "", nil, invalid(job.FieldError{Field: "revision", Message: "is for componentOp rollback", Fix: "leave it out"})
		case r.Status == nil && !r.edits():
			return "", nil, invalid(job.FieldError{Field: "body", Message: "changes nothing", Fix: `give status: "queued", a vmOp, or the fields to change`})
		}
		return s.editOrSubmit(j, r, past)
	})
	if err != nil {
		return nil, nil, err
	}
	v, err = s.view(ctx, j)
	return v, warnings, err
}

func (s *Service) editOrSubmit(j *job.Job, r PatchRequest, past *history) (string, map[string]any, error) {
	var notes []string
	detail := map[string]any{}
	if r.Status != nil && *r.Status != job.Queued {
		return "", nil, invalid(job.FieldError{Field: "status", Message: fmt.Sprintf("%.40q cannot be set", string(*r.Status)), Fix: `use "queued" to submit a draft; DELETE cancels, POST …/retry retries`})
	}
	if r.edits() {
		note, paths, err := s.edit(j, r, past)
		if err != nil {
			return "", nil, err
		}
		if note != "" {
			notes = append(notes, note)
		}
		detail["changed"] = paths
	}
	if r.Status != nil {
		if err := s.check(j); err != nil {
			return "", nil, err
		}
		if err := move(j, job.Submit); err != nil {
			return "", nil, err
		}
		notes = append(notes, "submitted")
		detail["status"] = string(job.Queued)
	}
	return strings.Join(notes, " and "), detail, nil
}

// operate begins a vmOp on a finished job.
func (s *Service) operate(j *job.Job, r PatchRequest, warnings *[]string) (string, map[string]any, error) {
	op := *r.VMOp
	switch {
	case op != job.AttachLB && op != job.DetachLB:
		return "", nil, invalid(job.FieldError{Field: "vmOp", Message: fmt.Sprintf("%.40q is not an operation", string(op)), Fix: "use attach_lb or detach_lb"})
	case r.Status != nil || r.ComponentOp != nil || r.Revision != nil || r.Name != nil || r.Mode != nil || r.CloudAccountID != nil || r.Region != nil || r.Labels != nil:
		return "", nil, invalid(job.FieldError{Field: "vmOp", Message: "comes with other changes", Fix: "send the operation alone; attach_lb may bring config.spec.loadBalancer"})
	case j.ResourceType != job.VM || j.Kind == job.Remediation:
		return "", nil, invalid(job.FieldError{Field: "vmOp", Message: fmt.Sprintf("is for VM jobs, and this is a %s job", j.ResourceType), Fix: "leave it out"})
	case !j.Owns():
		return "", nil, invalid(job.FieldError{Field: "vmOp", Message: "this job adopted its VMs: it only reads them", Fix: "change the load balancer where it is managed"})
	case op == job.DetachLB && r.Config != nil:
		return "", nil, invalid(job.FieldError{Field: "config", Message: "detach_lb takes no settings", Fix: "leave it out"})
	}
	// The state is asked first: on a busy job nothing else that is said of it holds.
	state := j.State()
	if _, err := job.Next(state, job.Operate); err != nil {
		return "", nil, err
	}
	if state == (job.State{Status: job.Failed, Phase: job.PhaseUpdate}) && j.VMOp == op {
		return "", nil, refuse(WrongState, "Retry it with POST …/retry, or undo it with the opposite vmOp.", "the last %s failed and was not finished", op)
	}
	lb, err := j.LoadBalancer()
	if err != nil {
		return "", nil, err
	}
	undoing := state.Status == job.Failed
	switch {
	case op == job.AttachLB && lb != nil && !undoing:
		return "", nil, refuse(WrongState, "Detach it first, or change its health check with PATCH config.spec.loadBalancer.healthCheck.",
			"the job has a load balancer already%s", named(j.Config.InfraConfig.LoadBalancerHost))
	case op == job.DetachLB && lb == nil && !undoing:
		return "", nil, refuse(WrongState, "There is nothing to detach.", "the job has no load balancer")
	}
	if op == job.AttachLB {
		if err := s.attachSpec(j, r, warnings); err != nil {
			return "", nil, err
		}
	}
	if err := move(j, job.Operate); err != nil {
		return "", nil, err
	}
	j.VMOp, j.Run, j.CurrentStep = op, j.Run+1, ""
	return string(op) + " asked for", map[string]any{"vmOp": string(op)}, nil
}

func named(host string) string {
	if host == "" {
		return ""
	}
	return " (" + host + ")"
}

// attachSpec settles which load balancer attach_lb makes: the one that the
// request brings, else the one that the job had before, else a plain default.
func (s *Service) attachSpec(j *job.Job, r PatchRequest, warnings *[]string) error {
	var spec map[string]json.RawMessage
	if err := json.Unmarshal(j.Config.Spec, &spec); err != nil {
		return fmt.Errorf("spec of %s: %w", j.ID, err)
	}
	had := spec["loadBalancer"]
	if r.Config != nil && len(r.Config.Spec) > 0 {
		lb, err := onlyLoadBalancer(r.Config.Spec)
		if err != nil {
			return err
		}
		spec["loadBalancer"] = lb
	}
	if len(spec["loadBalancer"]) == 0 || string(spec["loadBalancer"]) == "null" {
		spec["loadBalancer"] = json.RawMessage(`{"plainHTTP":true}`)
		*warnings = append(*warnings, "No load balancer was described, so a public one is made that serves plain HTTP on port 80, without TLS. "+
			"Name a certificate in config.spec.loadBalancer.certificate to have HTTPS.")
	}
	out, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("spec of %s: %w", j.ID, err)
	}
	j.Config.Spec = out
	if string(had) != string(spec["loadBalancer"]) {
		j.SpecRevision++
	}
	j.Config.InfraConfig.LoadBalancerDetached = false
	return s.check(j)
}

// onlyLoadBalancer takes the load balancer out of the settings of an attach_lb.
func onlyLoadBalancer(raw json.RawMessage) (json.RawMessage, error) {
	var settings struct {
		LoadBalancer json.RawMessage `json:"loadBalancer"`
	}
	if fields := decodeSpec(raw, &settings); len(fields) > 0 {
		return nil, invalid(fields...)
	}
	return settings.LoadBalancer, nil
}

// Delete cancels a job: at once if nothing can have been made, else by a
// teardown, which done = false says is still to come.
func (s *Service) Delete(ctx context.Context, ref, confirm string, match Match) (v *JobView, done bool, err error) {
	goes, err := s.removal(ctx, ref)
	if err != nil {
		return nil, false, err
	}
	j, err := s.change(ctx, goes.policy, ref, match, func(j *job.Job, st ledger.Standing) (string, map[string]any, error) {
		done = false
		to, err := job.Next(j.State(), job.Delete)
		if err != nil {
			return "", nil, err
		}
		if job.Unstarted(j.State(), st.EverClaimed) {
			j.Status, j.Phase, j.Error, j.WaitingFor, done = job.Cancelled, job.PhaseProvision, nil, "", true
			return "cancelled before anything was made", map[string]any{"result": "cancelled"}, nil
		}
		detail := map[string]any{"result": "teardown", "confirmed": confirm != ""}
		if j.State().Active() && j.Phase == job.PhaseTeardown || j.Cancelling {
			return "", detail, nil // it is on its way
		}
		if err := confirmed(j, confirm); err != nil {
			return "", nil, withAlong(err, goes.along)
		}
		if st.Leased {
			// A worker is in the middle of a step: it comes to a safe point first.
			j.Cancelling = true
			return "cancel and clean-up asked for", detail, nil
		}
		if to.Phase != j.Phase {
			j.Run++ // a teardown that failed goes on in its own run
			j.CurrentStep = ""
		}
		return "teardown asked for", detail, move(j, job.Delete)
	})
	if err != nil {
		return nil, false, err
	}
	if err := s.deleteAlong(ctx, goes.along); err != nil {
		return nil, false, err
	}
	v, err = s.view(ctx, j)
	return v, done, err
}

// withAlong says in a request for confirmation what goes besides.
func withAlong(err error, along []job.Job) error {
	var r *Refusal
	if errors.As(err, &r) && len(along) > 0 {
		r.Message += "; these component jobs go with it: " + jobNames(along)
	}
	return err
}

// confirmed asks for the job's name, typed, where a teardown lifts a deletion
// protection that the job set itself.
func confirmed(j *job.Job, confirm string) error {
	protected := protectedParts(j)
	switch {
	case confirm == j.Name, confirm == "" && protected == "":
		return nil
	case confirm != "":
		return &Refusal{Kind: ConfirmationNeeded, Job: j.ID, Message: fmt.Sprintf("confirm names %.80q, and the job's name is %s", confirm, j.Name),
			Hint:   "Check that this is the job you mean, then repeat the request with ?confirm=" + j.Name,
			Fields: []job.FieldError{{Field: "confirm", Message: "is not the job's name", Fix: "use " + j.Name}}}
	case j.Phase == job.PhaseTeardown:
		return nil // it was confirmed when the teardown began
	}
	return &Refusal{Kind: ConfirmationNeeded, Job: j.ID,
		Message: fmt.Sprintf("%s of %s cannot be deleted by accident: a deletion protection stands, and a teardown lifts it", protected, j.Name),
		Hint:    "GET …/plan lists what the teardown takes. Repeat the request with ?confirm=" + j.Name,
		Fields:  []job.FieldError{{Field: "confirm", Message: "is missing", Fix: "add ?confirm=" + j.Name}}}
}

// protectedParts is what of a job carries a deletion protection that it set
// itself; "" if nothing does. AWS protects load balancers and clusters, Google
// Cloud VMs that belong to no group; Azure's form of it is a lock, which is the
// user's to set. Where a cloud's clusters have no such field, the name is asked
// for all the same.
func protectedParts(j *job.Job) string {
	infra := j.Config.InfraConfig
	switch {
	case !j.Owns() || j.Kind == job.Remediation:
		return ""
	case j.ResourceType == job.Cluster && infra.Cluster.ID != "":
		return "the cluster"
	case j.ResourceType == job.Datastore && infra.Datastore.ID != "":
		return "the datastore"
	case j.ResourceType == job.Cache && infra.Datastore.ID != "":
		return "the cache"
	case j.ResourceType != job.VM:
		return ""
	case j.Provider == job.AWS && infra.LoadBalancerID != "":
		return "the load balancer"
	case j.Provider == job.GCP && infra.ScalingGroupID == "" && slices.ContainsFunc(infra.VMs, func(v job.VMInfo) bool { return v.InstanceID != "" }):
		return "the VMs"
	}
	return ""
}

// Retry takes a failed job up again at the first step that is not done.
func (s *Service) Retry(ctx context.Context, ref string) (*JobView, error) {
	j, err := s.change(ctx, access.JobRetry, ref, nil, func(j *job.Job, _ ledger.Standing) (string, map[string]any, error) {
		step := j.CurrentStep
		if j.Error != nil && j.Error.Step != "" {
			step = j.Error.Step
		}
		if err := move(j, job.Retry); err != nil {
			return "", nil, err
		}
		note := "retry asked for"
		if step != "" {
			note = "retry from " + step + " asked for"
		}
		return note, map[string]any{"step": step, "phase": string(j.Phase)}, nil
	})
	if err != nil {
		return nil, err
	}
	return s.view(ctx, j)
}
