package provision

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/remediation"
)

// protectedRefusal is what everybody is told who names a customer's database or
// cache: there is no way to have it paused.
func protectedRefusal(field, what string) *Refusal {
	message := what + ": databases and caches are never paused, stopped or scaled by the provisioner, whoever made them"
	return &Refusal{Kind: CustomerDatabase, Message: message,
		Hint:   "If it has to stop, do that in the cloud's own console, with whoever depends on it. Pools of VMs and node pools of clusters can be paused here.",
		Fields: []job.FieldError{{Field: field, Message: message, Fix: "name a VM or cluster job"}}}
}

// protectedName refuses a name that is one of a database or a cache.
func protectedName(field, name string) error {
	if pattern, found := remediation.Protected(name); found {
		return protectedRefusal(field, fmt.Sprintf("%.80q names a database or a cache (%s*)", name, pattern))
	}
	return nil
}

// bound is what a remediation job's request is about.
type bound struct {
	subject *job.Job
	infra   job.InfraConfig
	bySpace bool   // it is a component job's
	team    string // then: the space's
}

// bindSubject fills in of a remediation job's request what its subject says:
// resource type, cloud, account, region, and a name if there is none. Everything
// that needs no cloud is refused here; the job's first step looks again.
func (s *Service) bindSubject(ctx context.Context, r *CreateRequest) (bound, error) {
	var b bound
	p, err := access.Require(ctx, access.VMOperate)
	if err != nil {
		return b, err
	}
	if r.ResourceType == job.Datastore || r.ResourceType == job.Cache {
		return b, protectedRefusal("resourceType", fmt.Sprintf("a remediation job names a %s", r.ResourceType))
	}
	if err := protectedName("resourceType", string(r.ResourceType)); err != nil {
		return b, err
	}
	var spec job.RemediationSpec
	if len(r.Config.Spec) > 0 {
		if fields := decodeSpec(r.Config.Spec, &spec); len(fields) > 0 {
			return b, invalid(fields...)
		}
	}
	if err := protectedName("config.spec.pool", spec.Pool); err != nil {
		return b, err
	}
	if spec.JobID == "" {
		return b, invalid(job.FieldError{Field: "config.spec.jobId", Message: "is missing", Fix: "name the VM or cluster job that has the pool"})
	}
	if b.subject, err = s.subjectOf(ctx, p, access.VMOperate, r.ResourceType, spec.JobID); err != nil {
		return b, err
	}
	if err := s.actable(b.subject, spec); err != nil {
		return b, err
	}
	if err := agreesWith(r, b.subject); err != nil {
		return b, err
	}
	if err := s.inTurn(ctx, b.subject, spec); err != nil {
		return b, err
	}
	r.ResourceType, r.Provider, r.Region, r.CloudAccountID = b.subject.ResourceType, b.subject.Provider, b.subject.Region, b.subject.CloudAccountID
	r.Name = cmp.Or(r.Name, remediationName(spec, b.subject.Name, job.NewID("job")))
	spec.JobID = b.subject.ID
	if r.Config.Spec, err = canonical(spec); err != nil {
		return b, fmt.Errorf("spec of %s: %w", r.Name, err)
	}
	b.infra.Remediation = &job.RemediationInfo{SubjectJob: b.subject.ID, SubjectName: b.subject.Name, Action: spec.Action}
	b.infra.Remediation.Schedule, _ = ctx.Value(scheduleKey{}).(string)
	return b, nil
}

// subjectOf finds the job that a remediation job is to act on. A name may be that
// of jobs of several families: those of VMs and clusters are meant.
func (s *Service) subjectOf(ctx context.Context, p access.Principal, policy access.Policy, rt job.ResourceType, ref string) (*job.Job, error) {
	const field = "config.spec.jobId"
	missing := func(message string) error {
		return &Refusal{Kind: NotFound, Message: message, Hint: "GET /provisioning-jobs lists what there is.", Fields: []job.FieldError{{Field: field, Message: message, Fix: "use the ID or the name of a VM or cluster job"}}}
	}
	if !refRE.MatchString(ref) {
		return nil, cmp.Or(protectedName(field, ref), missing("there is no such job in your organisation"))
	}
	jobs, err := s.Ledger.Resolve(ctx, p.OrgID, p.Over(access.JobView, policy), ref)
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		return nil, err
	}
	jobs = slices.DeleteFunc(jobs, func(j job.Job) bool { return j.Kind != job.Provisioning || j.ID != ref && j.Name != ref })
	var fit []job.Job
	for _, j := range jobs {
		if (j.ResourceType == job.VM || j.ResourceType == job.Cluster) && (rt == "" || rt == j.ResourceType) {
			fit = append(fit, j)
		}
	}
	switch {
	case len(fit) == 1:
		if err := protectedName(field, fit[0].Name); err != nil {
			return nil, err
		}
		return &fit[0], overJob(p, policy, &fit[0])
	case len(fit) > 1:
		var ids []string
		for _, j := range fit {
			ids = append(ids, fmt.Sprintf("%s (%s)", j.ID, j.ResourceType))
		}
		return nil, &Refusal{Kind: Ambiguous, Message: "several jobs are named " + ref + ": " + strings.Join(ids, ", "), Hint: "Use the ID, or say resourceType."}
	}
	for _, j := range jobs {
		if j.ResourceType == job.Datastore || j.ResourceType == job.Cache {
			return nil, protectedRefusal(field, fmt.Sprintf("job %s is a %s", j.Name, j.ResourceType))
		}
	}
	if err := protectedName(field, ref); err != nil {
		return nil, err
	}
	if len(jobs) > 0 {
		return nil, invalid(job.FieldError{Field: field, Message: fmt.Sprintf("job %s is a %s job, which has no pool of machines", jobs[0].Name, jobs[0].ResourceType), Fix: "use the ID or the name of a VM or cluster job"})
	}
	return nil, missing("there is no such job in your organisation")
}

// actable refuses a subject that cannot be acted on as it stands.
func (s *Service) actable(subject *job.Job, spec job.RemediationSpec) error {
	state := subject.State()
	if subject.ResourceType == job.VM && subject.Provider == job.Azure && !s.Gates[job.AzureVMSS] {
		return invalid(previewAzure)
	}
	switch {
	case subject.Status == job.Cancelled || subject.Phase == job.PhaseTeardown || subject.Cancelling:
		return &Refusal{Kind: WrongState, Job: subject.ID, Message: fmt.Sprintf("job %s is torn down, or about to be", subject.Name), Hint: "There is nothing left to act on."}
	case !state.Active() && subject.Status != job.Completed && (subject.Status != job.Failed || subject.Phase != job.PhaseUpdate):
		return &Refusal{Kind: WrongState, Job: subject.ID, Message: fmt.Sprintf("job %s is %s and was never finished", subject.Name, subject.Status), Hint: "Finish it first."}
	case !subject.Owns() && !spec.AllowAdopted:
		return invalid(job.FieldError{Field: "config.spec.allowAdopted", Message: fmt.Sprintf("job %s only adopted its machines: nothing of them is changed unasked", subject.Name), Fix: "say true if they are yours to stop"})
	}
	refs := subject.Pools()
	if state.Active() || len(refs) == 0 {
		return nil // the subject is busy, or its first step says what there is
	}
	if spec.Action == job.ActionScaleToZero && refs[0].Instances != nil {
		return invalid(job.FieldError{Field: "config.spec.action", Message: "a fixed pool's VMs have names of their own: they are stopped, and not taken away", Fix: "use pause"})
	}
	if spec.Pool == "" {
		return nil
	}
	if subject.Provider == job.Azure && subject.ResourceType == job.Cluster && spec.Pool == job.SystemPool {
		return invalid(job.FieldError{Field: "config.spec.pool", Message: "the system pool cannot go to 0: the cluster itself runs on it, and Azure takes no system pool without nodes", Fix: "name another pool, or none for all others"})
	}
	var names []string
	for _, ref := range refs {
		names = append(names, ref.Name)
	}
	if !slices.Contains(names, spec.Pool) {
		return invalid(job.FieldError{Field: "config.spec.pool", Message: fmt.Sprintf("%s has no pool %.40q", subject.Name, spec.Pool), Fix: "use " + strings.Join(names, ", ")})
	}
	return nil
}

// agreesWith refuses a request that names another place than its subject is in.
func agreesWith(r *CreateRequest, subject *job.Job) error {
	var fields []job.FieldError
	for _, f := range []struct{ name, given, is string }{
		{"resourceType", string(r.ResourceType), string(subject.ResourceType)}, {"provider", string(r.Provider), string(subject.Provider)},
		{"region", r.Region, subject.Region}, {"cloudAccountId", r.CloudAccountID, subject.CloudAccountID},
	} {
		if f.given != "" && f.given != f.is {
			fields = append(fields, job.FieldError{Field: f.name, Message: fmt.Sprintf("is %.40q, and job %s is in %s", f.given, subject.Name, f.is), Fix: "leave it out: the job that is acted on says it"})
		}
	}
	if len(fields) > 0 {
		return invalid(fields...)
	}
	return nil
}

// inTurn refuses to pause what is paused, and to resume what is not.
func (s *Service) inTurn(ctx context.Context, subject *job.Job, spec job.RemediationSpec) error {
	names, refused := meant(subject, spec)
	if len(names) == 0 {
		return refused // or its first step says what there is
	}
	last, err := s.Ledger.LastChanges(ctx, subject.OrgID, subject.SubjectID, "", names)
	if err != nil {
		return err
	}
	all, open := len(names), 0
	var by *job.Job
	for _, name := range names {
		if c := last[name]; c.Open() {
			open, by = open+1, c.Job
		}
	}
	switch {
	case by != nil && by.State().Active():
		return nil // the ledger refuses a subject that is busy
	case spec.Action.Stops() && open == all:
		return &Refusal{Kind: WrongState, Job: by.ID, Message: fmt.Sprintf("%s is paused already, by job %s", subject.Name, by.Name), Hint: "Resume it first: zopday remediate resume " + subject.Name}
	case !spec.Action.Stops() && spec.Action != "" && open == 0:
		return &Refusal{Kind: WrongState, Message: subject.Name + " is not paused", Hint: "Only what a remediation job has paused can be resumed: there is no record of how it was before."}
	}
	return nil
}

// meant are the pools that a request is about. Without a pool, one that is named like
// a database or a cache is passed over: refused says so, if there is one.
func meant(subject *job.Job, spec job.RemediationSpec) (names []string, refused error) {
	for _, ref := range subject.Pools() {
		if spec.Pool != "" && ref.Name != spec.Pool || subject.Provider == job.Azure && subject.ResourceType == job.Cluster && ref.Name == job.SystemPool {
			continue
		}
		if err := protectedName("config.spec.jobId", ref.Name); err != nil && subject.ResourceType == job.Cluster {
			refused = err
			continue
		}
		names = append(names, ref.Name)
	}
	return names, refused
}

// remediationName names a remediation job after what it does to whom.
func remediationName(spec job.RemediationSpec, subject, id string) string {
	sum := sha256.Sum256([]byte(id))
	name := strings.ReplaceAll(string(spec.Action), "_", "-") + "-" + subject
	if spec.Pool != "" && spec.Pool != job.VMPoolName {
		name += "-" + spec.Pool
	}
	return strings.Trim(name[:min(len(name), 56)], "-") + "-" + hex.EncodeToString(sum[:3])
}

// planRemediation says what a remediation request would do, asked of the cloud now.
func (s *Service) planRemediation(ctx context.Context, r CreateRequest, to bound, p access.Principal) (*PlanView, error) {
	j, err := s.newJob(r)
	if err != nil {
		return nil, refusalOf(err)
	}
	j.Config.InfraConfig = to.infra
	j.ID, j.OrgID, j.TeamID, j.CreatedBy = job.NewID("job"), p.OrgID, to.subject.TeamID, p.Actor
	j.SubjectType, j.SubjectID = to.subject.SubjectType, to.subject.SubjectID
	v, err := s.plan(ctx, j, nil)
	if err != nil {
		return nil, err
	}
	v.JobID = ""
	return v, nil
}

// operates asks for the policy of those who may act on pools, where a change of a
// job is one of a remediation job.
func operates(ctx context.Context, j *job.Job) error {
	if j.Kind != job.Remediation {
		return nil
	}
	return requireOver(ctx, access.VMOperate, j)
}

// remediationVerdict says what a finished remediation job has done.
func remediationVerdict(j *job.Job, now time.Time) Verdict {
	v := Verdict{State: "ready", Word: "Done", Sentence: "Done " + ago(j.UpdatedAt, now) + "."}
	info := j.Config.InfraConfig.Remediation
	if info == nil {
		return v
	}
	was, is := 0, 0
	for _, p := range info.Pools {
		was, is = was+p.Before.Machines(), is+p.After.Machines()
	}
	v.Word = map[job.RemediationAction]string{job.ActionPause: "Paused", job.ActionScaleToZero: "Scaled to zero", job.ActionResume: "Resumed", job.ActionRestore: "Restored"}[info.Action]
	v.Sentence = fmt.Sprintf("%s %s: %d machines ran before, and %d after; each pool was read back.", info.SubjectName, ago(j.UpdatedAt, now), was, is)
	return v
}
