package steps

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// Past is what the ledger knows of a subject: the job that has it, and what
// remediation jobs did to it before. Nobody else acts on a subject while a
// remediation job is active, so what it says holds as long as the job runs.
type Past interface {
	Get(ctx context.Context, org, id string) (*job.Job, error)
	// LastChanges are the last changes of a subject's pools, by remediation jobs
	// other than except.
	LastChanges(ctx context.Context, org, subjectID, except string, pools []string) (job.LastChanges, error)
}

// How long a pool may take to come to its size, and its machines to end or to run.
const (
	resizePatience   = 30 * time.Minute
	machinesPatience = 45 * time.Minute
)

func (s Set) remediation() pipeline.Pipeline {
	return pipeline.Pipeline{
		{Name: Validate, Title: "Check the pool and what was done to it before", Ensure: s.validateRemediation},
		{Name: ApplyRemediation, Title: "Stop or start the pool", Ensure: s.applyRemediation},
		{Name: VerifyRemediation, Title: "Read the pool back", Ensure: s.verifyRemediation},
		{Name: Finalize, Title: "Report", Ensure: s.finalizeRemediation},
	}
}

// validateRemediation refuses what cannot be done before anything is changed.
func (s Set) validateRemediation(ctx context.Context, r *pipeline.Run) error {
	if err := s.SameCaller(ctx, r.Job); err != nil || r.Mode != pipeline.Apply {
		return err
	}
	if info := r.Job.Config.InfraConfig.Remediation; info != nil && info.BeganAt != nil {
		if err := s.newest(ctx, r, info); err != nil {
			return err
		}
		return r.Save(ctx) // decided already, and maybe half done
	}
	pools, _, err := s.decide(ctx, r)
	if err != nil {
		return err
	}
	for _, p := range pools {
		r.Note("%s: %d machines, to be %d", p.Name, p.Before.Machines(), p.After.Machines())
	}
	return r.Save(ctx)
}

// remediationChecks are what a plan asks.
func (s Set) remediationChecks(ctx context.Context, r *pipeline.Run) []cloud.Check {
	pools, _, err := s.decide(ctx, r)
	if err != nil {
		return []cloud.Check{{Name: "pool", Status: cloud.CheckFails, Field: "config.spec", Message: err.Error()}}
	}
	var out []cloud.Check
	for _, p := range pools {
		out = append(out, cloud.Check{Name: "pool " + p.Name, Status: cloud.CheckOK, Message: fmt.Sprintf("%s: %d machines, to be %d", p.Kind, p.Before.Machines(), p.After.Machines())})
	}
	return out
}

func (s Set) info(r *pipeline.Run) *job.RemediationInfo {
	infra := &r.Job.Config.InfraConfig
	if infra.Remediation == nil {
		infra.Remediation = &job.RemediationInfo{}
	}
	return infra.Remediation
}

// applyRemediation records how every pool stands, and then brings it where it is to
// be. Each call to the cloud says absolute values, so a pass after a crash, or
// after a lost answer, asks for the same again: as long as no other job has acted on
// the same pools since, for a retry may come long after.
func (s Set) applyRemediation(ctx context.Context, r *pipeline.Run) error {
	if r.Mode != pipeline.Apply { // a plan's checks have said what it would do
		return nil
	}
	info := s.info(r)
	if info.BeganAt != nil {
		if err := s.newest(ctx, r, info); err != nil {
			return err
		}
	} else {
		pools, after, err := s.decide(ctx, r)
		if err != nil {
			return err
		}
		spec, err := r.Job.Remediation()
		if err != nil {
			return err
		}
		now := r.Now()
		if !now.After(after) { // another worker's clock was ahead of this one's
			now = after.Add(time.Microsecond)
		}
		info.Pools, info.Action, info.BeganAt = pools, spec.Action, &now
		if err := r.Save(ctx); err != nil {
			info.BeganAt = nil
			return err
		}
	}
	var errs []error
	for i := range info.Pools {
		errs = append(errs, s.applyPool(ctx, r, &info.Pools[i]))
	}
	return pipeline.Gravest(errs...)
}

// newest refuses to go on with a decision that another job has overtaken: what it
// says of a pool is true no more, and carrying it out would undo the other's work.
func (s Set) newest(ctx context.Context, r *pipeline.Run, info *job.RemediationInfo) error {
	if s.Past == nil {
		return pipeline.Fatal("not-pausable", "this server pauses nothing", "Run the job on one that does.")
	}
	var names []string
	for _, p := range info.Pools {
		names = append(names, p.Name)
	}
	last, err := s.Past.LastChanges(ctx, r.Job.OrgID, r.Job.SubjectID, r.Job.ID, names)
	if err != nil {
		return err
	}
	for _, name := range names {
		since, ok := last[name]
		if !ok || !since.BeganAt.After(*info.BeganAt) {
			continue
		}
		did, hint := "began", "Retry that job, or make a new one: zopday remediate resume "
		if since.Finished {
			did, hint = "carried out", "This job stays as it is: delete it. If the pool is to change again, make a new job: zopday remediate "+string(info.Action)+" "
		}
		return pipeline.Fatal("overtaken", fmt.Sprintf("since this job began, at %s, job %s (%s) %s a %s of pool %s: what this one has decided holds no more",
			info.BeganAt.UTC().Format(time.RFC3339), since.Job.Name, since.Job.ID, did, since.Action, name), hint+info.SubjectName)
	}
	return nil
}

func (s Set) applyPool(ctx context.Context, r *pipeline.Run, c *job.PoolChange) error {
	pauser, err := s.Pausers.Pauser(s.Cloud, r.Job.Provider, c.PoolRef)
	if err != nil {
		return err
	}
	have, err := pauser.Pool(ctx, c.PoolRef)
	if err != nil {
		return err
	}
	key := "pool " + c.Name
	if have.Busy != "" {
		return s.patiently(r, key, resizePatience, fmt.Sprintf("a change of pool %s to be carried out: %s", c.Name, have.Busy))
	}
	diffs := have.Differs(c.Kind, c.After, !c.Reached && !c.Sent)
	if len(diffs) == 0 {
		r.WaitOver(key)
		if c.Reached {
			return nil
		}
		c.Reached = true
		return r.Save(ctx)
	}
	if err := pauser.SetPool(ctx, r, c.PoolRef, have, c.After); err != nil {
		return err
	}
	if !c.Sent {
		c.Sent = true
		if err := r.Save(ctx); err != nil {
			return err
		}
	}
	return s.patiently(r, key, resizePatience, fmt.Sprintf("pool %s: %s", c.Name, differences(diffs)))
}

func (s Set) patiently(r *pipeline.Run, key string, most time.Duration, text string) error {
	if r.WaitedFor(key) > most {
		return pipeline.Fatal("timed-out", fmt.Sprintf("waited %s for %s", most, text), "Look at the pool in the cloud's console; retry goes on where it was.")
	}
	return pipeline.Wait(5*time.Second, "%s", text)
}

func differences(diffs []job.PoolDifference) string {
	var texts []string
	for _, d := range diffs {
		texts = append(texts, d.String())
	}
	return strings.Join(texts, "; ")
}

// verifyRemediation reads every pool back, until it is as wanted and its machines
// have ended or run. A verify tells what has changed since.
func (s Set) verifyRemediation(ctx context.Context, r *pipeline.Run) error {
	info := r.Job.Config.InfraConfig.Remediation
	if r.Mode == pipeline.Plan || info == nil || info.BeganAt == nil {
		return nil
	}
	if r.Mode == pipeline.Apply {
		if err := s.newest(ctx, r, info); err != nil {
			return err
		}
	}
	var errs []error
	for _, c := range info.Pools {
		errs = append(errs, s.verifyPool(ctx, r, c, info.Action))
	}
	if err := pipeline.Gravest(errs...); err != nil || r.Mode == pipeline.Verify {
		return err
	}
	now := r.Now()
	info.VerifiedAt = &now
	return r.Save(ctx)
}

func (s Set) verifyPool(ctx context.Context, r *pipeline.Run, c job.PoolChange, action job.RemediationAction) error {
	pauser, err := s.Pausers.Pauser(s.Cloud, r.Job.Provider, c.PoolRef)
	if err != nil {
		return err
	}
	have, err := pauser.Pool(ctx, c.PoolRef)
	if err != nil {
		return err
	}
	diffs := have.Differs(c.Kind, c.After, action == job.ActionPause)
	if r.Mode == pipeline.Verify {
		for _, d := range diffs {
			r.AddDrift(pipeline.Drift{Kind: string(c.Kind), Key: c.Name, ID: c.ID, Attr: d.Attr, Wanted: d.Wanted, Seen: d.Seen})
		}
		return nil
	}
	key := "machines of " + c.Name
	switch {
	case have.Busy != "":
		return s.patiently(r, key, machinesPatience, fmt.Sprintf("pool %s to settle: %s", c.Name, have.Busy))
	case len(diffs) > 0:
		return pipeline.Fatal("changed-meanwhile", fmt.Sprintf("pool %s was changed while this job ran: %s", c.Name, differences(diffs)), "Find out who or what changes it (the cloud's audit log says), then retry.")
	case action.Stops() && have.Running > c.After.Machines():
		return s.patiently(r, key, machinesPatience, fmt.Sprintf("%d machines of pool %s to end", have.Running, c.Name))
	case !action.Stops() && have.Settling != "":
		return s.patiently(r, key, machinesPatience, fmt.Sprintf("the machines of pool %s: %s", c.Name, have.Settling))
	}
	r.WaitOver(key)
	return nil
}

// finalizeRemediation says in words what was done.
func (s Set) finalizeRemediation(_ context.Context, r *pipeline.Run) error {
	info := r.Job.Config.InfraConfig.Remediation
	if r.Mode != pipeline.Apply || info == nil {
		return nil
	}
	for _, p := range info.Pools {
		r.Note("%s: %d machines were running, %d are to", p.Name, p.Before.Machines(), p.After.Machines())
	}
	return nil
}

// remediationOutputs is what a finished remediation job tells its user.
func remediationOutputs(j *job.Job, set func(k, v string)) {
	info := j.Config.InfraConfig.Remediation
	if info == nil {
		return
	}
	set("subject", info.SubjectName)
	for _, p := range info.Pools {
		set("pool."+p.Name, fmt.Sprintf("%s: %d to %d machines", info.Action, p.Before.Machines(), p.After.Machines()))
	}
}
