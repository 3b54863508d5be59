package steps

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/remediation"
)

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

// decide reads every pool and says what becomes of it, and after when the last
// change of any of them began. Nothing is changed.
func (s Set) decide(ctx context.Context, r *pipeline.Run) (out []job.PoolChange, after time.Time, err error) {
	spec, err := r.Job.Remediation()
	if err != nil {
		return nil, after, err
	}
	subject, err := s.subject(ctx, r, spec)
	if err != nil {
		return nil, after, err
	}
	d := decision{Set: s, r: r, spec: spec, subject: subject}
	refs, err := d.pools()
	if err != nil {
		return nil, after, err
	}
	var names []string
	for _, ref := range refs {
		names = append(names, ref.Name)
	}
	if d.last, err = s.Past.LastChanges(ctx, r.Job.OrgID, r.Job.SubjectID, r.Job.ID, names); err != nil {
		return nil, after, err
	}
	for _, ref := range refs {
		if began := d.last[ref.Name].BeganAt; began.After(after) {
			after = began
		}
		change, why, err := d.pool(ctx, ref)
		if err != nil {
			return nil, after, err
		}
		if change == nil {
			d.passed = append(d.passed, why)
			continue
		}
		out = append(out, *change)
	}
	if len(out) == 0 {
		return nil, after, d.nothing()
	}
	for _, why := range d.passed {
		r.Note("%s", why.text)
	}
	return out, after, nil
}

// A decision is one job's look at its subject.
type decision struct {
	Set
	r       *pipeline.Run
	spec    job.RemediationSpec
	subject *job.Job
	last    job.LastChanges
	passed  []passedOver
}

// Why a pool stays that no request could have changed: Azure's, of the cluster
// itself, and one that is named like a customer's database or cache.
const (
	systemPool    = "system-pool"
	protectedPool = "customer-database"
)

// passedOver is why a pool is left as it is.
type passedOver struct{ code, text string }

func (d *decision) nothing() error {
	code, texts := "nothing-to-do", []string{}
	for _, p := range d.passed {
		if code == "nothing-to-do" || code == systemPool || code == protectedPool {
			code = p.code
		}
		texts = append(texts, p.text)
	}
	hint := "GET the subject's remediation jobs to see what was done to it."
	switch code {
	case "already-paused":
		hint = "Resume it first: zopday remediate resume " + d.subject.Name
	case protectedPool:
		hint = "If it has to stop, do that in the cloud's own console, with whoever depends on it."
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
			why := fmt.Sprintf("node pool %s is named like a customer's database or cache (%s*), and what runs there is never stopped", ref.Name, pattern)
			if d.spec.Pool != "" {
				return nil, pipeline.Fatal(protectedPool, why, "Name another pool, or none for all others.").On("config.spec.pool")
			}
			d.passed = append(d.passed, passedOver{protectedPool, why})
			continue
		}
		out = append(out, ref)
	}
	if len(out) == 0 && len(d.passed) == 0 {
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
