package steps

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/remediation"
)

// Past is what the ledger knows of a subject: the job that has it, and what
// remediation jobs did to it before. Nobody else acts on a subject while a
// remediation job is active, so what it says holds as long as the job runs.
type Past interface {
	Get(ctx context.Context, org, id string) (*job.Job, error)
	// Remediations are the remediation jobs of a subject, the newest first.
	Remediations(ctx context.Context, org, subjectID string) ([]job.Job, error)
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
		return r.Save(ctx) // decided already, and maybe half done
	}
	pools, err := s.decide(ctx, r)
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
	pools, err := s.decide(ctx, r)
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

// subject is the job that has what is acted on.
func (s Set) subject(ctx context.Context, r *pipeline.Run, spec job.RemediationSpec) (*job.Job, error) {
	if s.Past == nil {
		return nil, pipeline.Fatal("not-pausable", "this server pauses nothing", "Run the job on one that does.")
	}
	subject, err := s.Past.Get(ctx, r.Job.OrgID, s.info(r).SubjectJob)
	if err != nil {
		return nil, err
	}
	switch {
	case subject.Kind != job.Provisioning || subject.SubjectID != r.Job.SubjectID || subject.ResourceType != job.VM && subject.ResourceType != job.Cluster:
		return nil, pipeline.Fatal("not-pausable", fmt.Sprintf("job %s has no pool of VMs or nodes", subject.Name), "Name a VM or cluster job.").On("config.spec.jobId")
	case subject.Status == job.Cancelled || subject.Phase == job.PhaseTeardown:
		return nil, pipeline.Fatal("subject-gone", fmt.Sprintf("%s job %s is torn down, or about to be", subject.ResourceType, subject.Name), "There is nothing left to act on.").On("config.spec.jobId")
	case subject.Status != job.Completed && (subject.Status != job.Failed || subject.Phase != job.PhaseUpdate):
		return nil, pipeline.Fatal("subject-not-ready", fmt.Sprintf("%s job %s is %s and was never finished", subject.ResourceType, subject.Name, subject.Status), "Finish it (retry it), then retry this job.").On("config.spec.jobId")
	case !subject.Owns() && !spec.AllowAdopted:
		return nil, pipeline.Fatal("adopted", fmt.Sprintf("%s job %s only adopted what it shows: the provisioner changes nothing of it unasked", subject.ResourceType, subject.Name),
			"If it is yours to stop, say allowAdopted: true in a new job.").On("config.spec.allowAdopted")
	}
	return subject, nil
}

// decide reads every pool and says what becomes of it. Nothing is changed.
func (s Set) decide(ctx context.Context, r *pipeline.Run) ([]job.PoolChange, error) {
	spec, err := r.Job.Remediation()
	if err != nil {
		return nil, err
	}
	subject, err := s.subject(ctx, r, spec)
	if err != nil {
		return nil, err
	}
	past, err := s.Past.Remediations(ctx, r.Job.OrgID, r.Job.SubjectID)
	if err != nil {
		return nil, err
	}
	past = slices.DeleteFunc(past, func(j job.Job) bool { return j.ID == r.Job.ID })
	d := decision{Set: s, r: r, spec: spec, subject: subject, last: job.LastChanges(past)}
	refs, err := d.pools()
	if err != nil {
		return nil, err
	}
	var out []job.PoolChange
	for _, ref := range refs {
		change, why, err := d.pool(ctx, ref)
		if err != nil {
			return nil, err
		}
		if change == nil {
			d.passed = append(d.passed, why)
			continue
		}
		out = append(out, *change)
	}
	if len(out) == 0 {
		return nil, d.nothing()
	}
	for _, why := range d.passed {
		r.Note("%s", why.text)
	}
	return out, nil
}

// A decision is one job's look at its subject.
type decision struct {
	Set
	r       *pipeline.Run
	spec    job.RemediationSpec
	subject *job.Job
	last    map[string]job.LastChange
	passed  []passedOver
}

// systemPool is why Azure's pool of the cluster itself stays.
const systemPool = "system-pool"

// passedOver is why a pool is left as it is.
type passedOver struct{ code, text string }

func (d *decision) nothing() error {
	code, texts := "nothing-to-do", []string{}
	for _, p := range d.passed {
		if code == "nothing-to-do" || code == systemPool {
			code = p.code
		}
		texts = append(texts, p.text)
	}
	hint := "GET the subject's remediation jobs to see what was done to it."
	switch code {
	case "already-paused":
		hint = "Resume it first: zopday remediate resume " + d.subject.Name
	case "not-paused":
		hint = "Only what a remediation job has paused can be resumed: there is no record of how it was before."
	}
	return pipeline.Fatal(code, strings.Join(texts, "; "), hint)
}

// pools are those that the job is about.
func (d *decision) pools() ([]job.PoolRef, error) {
	all := d.subject.Pools()
	if len(all) == 0 {
		return nil, pipeline.Fatal("no-pool", fmt.Sprintf("job %s has no machines that are known", d.subject.Name), "Verify it, then retry.")
	}
	if d.spec.Action == job.ActionScaleToZero && all[0].Instances != nil {
		return nil, pipeline.Fatal("not-scalable", "a fixed pool's VMs have names of their own: they are stopped, and not taken away", "Use pause.").On("config.spec.action")
	}
	var out []job.PoolRef
	var names []string
	for _, ref := range all {
		names = append(names, ref.Name)
		if d.spec.Pool != "" && ref.Name != d.spec.Pool {
			continue
		}
		if pattern, found := remediation.Protected(ref.Name); found && d.subject.ResourceType == job.Cluster {
			return nil, pipeline.Fatal("customer-database", fmt.Sprintf("node pool %s is named like a customer's database or cache (%s*), and what runs there is never stopped", ref.Name, pattern),
				"Name another pool.").On("config.spec.pool")
		}
		out = append(out, ref)
	}
	if len(out) == 0 {
		return nil, pipeline.Fatal("no-such-pool", fmt.Sprintf("%s has no node pool %q", d.subject.Name, d.spec.Pool), "It has: "+strings.Join(names, ", ")+".").On("config.spec.pool")
	}
	return out, nil
}

// pool decides about one pool; nil with a reason: it stays as it is.
func (d *decision) pool(ctx context.Context, ref job.PoolRef) (*job.PoolChange, passedOver, error) {
	pauser, err := d.Pausers.Pauser(d.Cloud, d.r.Job.Provider, ref)
	if err != nil {
		return nil, passedOver{}, err
	}
	have, err := pauser.Pool(ctx, ref)
	if pipeline.Is(err, pipeline.NotFound) {
		return nil, passedOver{}, pipeline.Fatal("pool-gone", fmt.Sprintf("pool %s of %s is not at the cloud: %v", ref.Name, d.subject.Name, err), "Verify the job that made it.").From(err)
	}
	if err != nil {
		return nil, passedOver{}, err
	}
	if have.System || d.subject.Provider == job.Azure && ref.Kind == job.PoolAKSNodes && ref.Name == job.SystemPool {
		const why = "the cluster itself runs on it, and Azure takes no system pool without nodes"
		if d.spec.Pool == ref.Name {
			return nil, passedOver{}, pipeline.Fatal(systemPool, fmt.Sprintf("pool %s cannot go to 0: %s", ref.Name, why), "Name another pool, or none for all others.").On("config.spec.pool")
		}
		return nil, passedOver{systemPool, fmt.Sprintf("pool %s stays: %s", ref.Name, why)}, nil
	}
	if have.Busy != "" {
		return nil, passedOver{}, pipeline.Wait(10*time.Second, "another change of pool %s to end: %s", ref.Name, have.Busy)
	}
	if d.spec.Action.Stops() {
		return d.stop(ref, have)
	}
	return d.start(ref, have)
}

func (d *decision) stop(ref job.PoolRef, have job.PoolState) (*job.PoolChange, passedOver, error) {
	if last := d.last[ref.Name]; last.Open() {
		if !last.Finished {
			return nil, passedOver{}, pipeline.Fatal("half-done", fmt.Sprintf("job %s (%s) began on pool %s and did not end: how it was before stands only there", last.Job.Name, last.Action, ref.Name),
				"Retry that job, or resume the pool, then retry this one.")
		}
		return nil, passedOver{"already-paused", fmt.Sprintf("pool %s is paused already, by job %s (%s)", ref.Name, last.Job.Name, last.Job.ID)}, nil
	}
	after := have.Stopped(ref.Kind, d.spec.Action)
	if len(have.Differs(ref.Kind, after, true)) == 0 {
		return nil, passedOver{"already-stopped", fmt.Sprintf("pool %s has no machines that run", ref.Name)}, nil
	}
	return &job.PoolChange{PoolRef: ref, Before: have, After: after}, passedOver{}, nil
}

// start takes the last pause of a pool back. A pool that is not as that left it
// was changed by somebody, whose change is not overwritten unasked.
func (d *decision) start(ref job.PoolRef, have job.PoolState) (*job.PoolChange, passedOver, error) {
	last := d.last[ref.Name]
	if !last.Open() {
		return nil, passedOver{"not-paused", fmt.Sprintf("pool %s is not paused", ref.Name)}, nil
	}
	want := last.Before
	if !last.Action.Stops() {
		want = last.After // a resume that did not end
	}
	want.Running, want.Busy, want.Settling = 0, "", ""
	if have.Step > 1 { // sizes are set by zone
		want.Desired, want.Step = (want.Desired+have.Step-1)/have.Step*have.Step, have.Step
	}
	var foreign []job.PoolDifference
	switch {
	case len(have.Differs(ref.Kind, want, true)) == 0: // as it was already
	case last.Finished:
		foreign = have.Differs(ref.Kind, last.After, last.Action == job.ActionPause)
	default:
		foreign = have.Foreign(ref.Kind, last.Before, last.After)
	}
	if len(foreign) > 0 && !d.spec.Force {
		var texts []string
		for _, f := range foreign {
			texts = append(texts, f.String())
		}
		return nil, passedOver{}, pipeline.Fatal("changed-meanwhile", fmt.Sprintf("pool %s was changed since job %s left it: %s", ref.Name, last.Job.Name, strings.Join(texts, "; ")),
			"Put it back as it was left and retry, or make a new job with force: true, which overwrites these with what the pool was before it was paused.").On("config.spec.force")
	}
	if want.Instances != nil {
		kept := map[string]job.Power{}
		for id, power := range want.Instances {
			if power != job.PowerGone && have.Instances[id] == job.PowerGone {
				d.r.Note("instance %s is gone, and is not started", id)
				continue
			}
			kept[id] = power
		}
		want.Instances = kept
		ref.Instances = slices.DeleteFunc(slices.Clone(ref.Instances), func(id string) bool { _, ok := kept[id]; return !ok })
	}
	return &job.PoolChange{PoolRef: ref, Before: have, After: want, Undoes: last.Job.ID}, passedOver{}, nil
}

// applyRemediation records how every pool stands, and then brings it where it is to
// be. Each call to the cloud says absolute values, so a pass after a crash, or
// after a lost answer, asks for the same again.
func (s Set) applyRemediation(ctx context.Context, r *pipeline.Run) error {
	if r.Mode != pipeline.Apply { // a plan's checks have said what it would do
		return nil
	}
	info := s.info(r)
	if info.BeganAt == nil {
		pools, err := s.decide(ctx, r)
		if err != nil {
			return err
		}
		spec, err := r.Job.Remediation()
		if err != nil {
			return err
		}
		now := r.Now()
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
