package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/kube"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/steps"
)

// A PlanView is what a job would do, what it would cost, and what a teardown
// would take; asked now, and changing nothing.
type PlanView struct {
	JobID     string              `json:"jobId,omitempty" doc:"Absent for a request that was not saved"`
	Name      string              `json:"name"`
	Mode      job.Mode            `json:"mode"`
	At        time.Time           `json:"at" doc:"When the cloud was asked"`
	Summary   string              `json:"summary" doc:"The outcome of the checks in one line"`
	Steps     []steps.PlannedStep `json:"steps"`
	Objects   []PlannedObject     `json:"objects" doc:"What the job makes, under the names that it will have"`
	Changes   int                 `json:"changes" doc:"How many of the objects do not exist yet"`
	Checks    []cloud.Check       `json:"checks" doc:"What was asked of the cloud: ok, fails, warning or not checked"`
	Network   *job.NetworkPlan    `json:"network,omitempty" doc:"How the ranges of the network are laid out"`
	LeftAlone []LeftAlone         `json:"leftAlone" doc:"What the job uses and never touches"`
	Teardown  []string            `json:"teardown" doc:"What a teardown takes, in its order"`
	Cost      Cost                `json:"cost"`
}

// A PlannedObject is one object of a plan.
type PlannedObject struct {
	pipeline.Planned
	State job.ObjectStatus `json:"state,omitempty" doc:"Where the object stands in the ledger; absent: it is still to be made"`
	ID    string           `json:"id,omitempty" doc:"Its ID at the cloud, if it exists"`
}

// LeftAlone is something that a job uses or points at, and leaves as it is.
type LeftAlone struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// Plan says what a saved job would do.
func (s *Service) Plan(ctx context.Context, ref string) (*PlanView, error) {
	j, err := s.look(ctx, ref)
	if err != nil {
		return nil, err
	}
	objects, err := s.Ledger.Objects(ctx, j.OrgID, j.ID)
	if err != nil {
		return nil, err
	}
	return s.plan(ctx, j, objects)
}

// PlanRequest says what a request would do if it were sent; nothing is saved.
func (s *Service) PlanRequest(ctx context.Context, r CreateRequest) (*PlanView, error) {
	p, err := access.Require(ctx, access.JobCreate)
	if err != nil {
		return nil, refusalOf(err)
	}
	var to bound
	if r.Kind == job.Remediation {
		if to, err = s.bindSubject(ctx, &r); err != nil {
			return nil, refusalOf(err)
		}
		return s.planRemediation(ctx, r, to, p)
	}
	if r.ResourceType == job.Component {
		if to, err = s.bindSpace(ctx, &r); err != nil {
			return nil, refusalOf(err)
		}
	}
	if err := s.place(ctx, access.JobCreate, &r, to); err != nil {
		return nil, refusalOf(err)
	}
	j, err := s.newJob(r)
	if err != nil {
		return nil, refusalOf(err)
	}
	j.Config.InfraConfig = to.infra
	// Names hang on the ID: these are of the shape that the job's own will have.
	j.ID, j.OrgID, j.CreatedBy = job.NewID("job"), p.OrgID, p.Actor
	v, err := s.plan(ctx, j, nil)
	if err != nil {
		return nil, err
	}
	v.JobID = ""
	return v, nil
}

func (s *Service) plan(ctx context.Context, j *job.Job, objects []job.Object) (*PlanView, error) {
	set, err := s.set(ctx, j)
	if err != nil {
		return nil, err
	}
	planned, err := set.Plan(ctx, j, s.Pace)
	if err != nil {
		return nil, asked(err)
	}
	v := &PlanView{
		JobID: j.ID, Name: j.Name, Mode: j.Mode, At: s.Now().UTC(), Steps: planned.Steps, Checks: planned.Checks,
		Objects: []PlannedObject{}, Network: planned.Resolved.NetworkPlan, LeftAlone: leftAlone(j), Teardown: []string{}, Summary: checkSummary(planned.Checks),
	}
	have := map[string]job.Object{}
	for _, o := range objects {
		have[o.Kind+"/"+o.Key] = o
	}
	for _, p := range planned.Objects {
		o := PlannedObject{Planned: p}
		if h, ok := have[p.Kind+"/"+p.Key]; ok && standing(h) {
			o.State, o.ID = h.State, h.ID
		} else {
			v.Changes++
		}
		v.Objects = append(v.Objects, o)
	}
	v.order(objects)
	return v, v.price(j, planned.Resolved)
}

// order sorts the objects by step, kind and key: a step asks for several at
// once, so they come in any order. The teardown goes backwards through what
// exists, or, if nothing does yet, through what would.
func (v *PlanView) order(objects []job.Object) {
	rank := map[string]int{}
	for i, step := range v.Steps {
		rank[step.Name] = i + 1
	}
	slices.SortFunc(v.Objects, func(a, b PlannedObject) int {
		return cmp.Or(cmp.Compare(rank[a.Step], rank[b.Step]), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Key, b.Key))
	})
	have := slices.DeleteFunc(slices.Clone(objects), func(o job.Object) bool { return o.State != job.ObjectCreated })
	slices.SortStableFunc(have, func(a, b job.Object) int { return cmp.Compare(rank[a.Step], rank[b.Step]) })
	for _, o := range slices.Backward(have) {
		v.Teardown = append(v.Teardown, fmt.Sprintf("%s %s (%s)", o.Kind, o.Name, o.ID))
	}
	if len(have) > 0 {
		return
	}
	for _, o := range slices.Backward(v.Objects) {
		v.Teardown = append(v.Teardown, o.Kind+" "+o.Name)
	}
}

// price puts a price on what the plan makes; resolved is what the checks chose,
// nothing if they could not ask.
func (v *PlanView) price(j *job.Job, resolved job.InfraConfig) error {
	var err error
	if had := j.Config.InfraConfig.InstanceType; had != "" {
		resolved.InstanceType = had
	}
	v.Cost, err = costOf(j, resolved)
	return err
}

func leftAlone(j *job.Job) []LeftAlone {
	out := []LeftAlone{}
	if e, err := j.Existing(); err == nil && e != nil && j.Mode == job.ModeCreateInExisting {
		out = append(out, LeftAlone{What: e.NetworkID, Why: "the network that you named"})
		for _, id := range e.SubnetIDs {
			out = append(out, LeftAlone{What: id, Why: "a subnet that you named"})
		}
		if e.ResourceGroup != "" {
			out = append(out, LeftAlone{What: e.ResourceGroup, Why: "the resource group that you named"})
		}
	}
	if j.ResourceType == job.Network {
		spec, err := j.NetworkJob()
		if err != nil {
			return out
		}
		for _, p := range spec.Peerings {
			out = append(out, LeftAlone{What: p.NetworkID, Why: "the peer; only the peering and its routes are made in it, and removed again"})
		}
		return append(out, adopted(j, spec.Adopt)...)
	}
	switch j.ResourceType {
	case job.Cluster:
		spec, err := j.ClusterSpec()
		if err != nil {
			return out
		}
		return append(out, adopted(j, spec.Adopt)...)
	case job.Datastore, job.Cache:
		spec, err := j.DatastoreSpec()
		if err != nil {
			return out
		}
		return append(out, adopted(j, spec.Adopt)...)
	case job.Component:
		return append(out, LeftAlone{What: "cluster " + j.ClusterRef().Name, Why: "the space that it is installed onto"})
	}
	spec, err := j.VMSpec()
	if err != nil {
		return out
	}
	out = append(out, adopted(j, spec.Adopt)...)
	if lb := spec.LoadBalancer; lb != nil {
		if lb.DNS != nil {
			out = append(out, LeftAlone{What: "DNS zone " + lb.DNS.Zone, Why: "yours; one record is made in it and removed again"})
		}
		if lb.Certificate != "" {
			out = append(out, LeftAlone{What: lb.Certificate, Why: "the certificate that you named"})
		}
	}
	return out
}

func adopted(j *job.Job, a *job.Adopt) []LeftAlone {
	if a == nil || j.Owns() {
		return nil
	}
	var out []LeftAlone
	for _, id := range a.IDs {
		out = append(out, LeftAlone{What: id, Why: "adopted: only read"})
	}
	if a.Name != "" {
		out = append(out, LeftAlone{What: a.Name, Why: "adopted: only read"})
	}
	return out
}

func checkSummary(checks []cloud.Check) string {
	n := map[cloud.CheckStatus]int{}
	for _, c := range checks {
		n[c.Status]++
	}
	s := fmt.Sprintf("%s passed", count(n[cloud.CheckOK], "check"))
	if w := n[cloud.CheckWarning]; w > 0 {
		s += ", " + count(w, "warning")
	}
	if u := n[cloud.CheckUnchecked]; u > 0 {
		s += fmt.Sprintf(", %d not checked", u)
	}
	switch f := n[cloud.CheckFails]; {
	case f == 1:
		return "1 thing to fix: " + s + "."
	case f > 1:
		return fmt.Sprintf("%d things to fix: %s.", f, s)
	}
	if n[cloud.CheckOK] == 0 && n[cloud.CheckUnchecked] > 0 {
		return "Not known yet: nothing could be checked, " + fmt.Sprintf("%d not checked", n[cloud.CheckUnchecked]) + "."
	}
	return "Ready: " + s + "."
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// set opens the cloud account of a job.
func (s *Service) set(ctx context.Context, j *job.Job) (steps.Set, error) {
	if s.Clouds == nil {
		return steps.Set{}, &Refusal{Kind: CloudNotAvailable, Message: "this server has no cloud to ask", Hint: "Ask one that is set up with cloud credentials."}
	}
	provider, err := s.Clouds.Open(ctx, j)
	if err != nil {
		return steps.Set{}, asked(err)
	}
	set := steps.Set{Cloud: provider, Spaces: s.Spaces, Components: s.Components, SQL: s.SQL, Pausers: s.Pausers, Past: s.Ledger}
	if s.Logical != nil && s.SQL != nil {
		set.Logical = s.Logical
	}
	return set, nil
}

// asked puts an error of a cloud into words; anything else stays what it is.
func asked(err error) error {
	var fatal *pipeline.FatalError
	var ce *pipeline.CloudError
	switch {
	case errors.As(err, &fatal):
		r := &Refusal{Kind: CloudNotAvailable, Message: fatal.Problem.Message, Hint: fatal.Problem.Hint, Cause: err}
		if fatal.Problem.Field != "" {
			r.Fields = []job.FieldError{{Field: fatal.Problem.Field, Message: fatal.Problem.Message, Fix: fatal.Problem.Hint}}
		}
		return r
	case errors.As(err, &ce) && ce.Service == kube.Service:
		return &Refusal{Kind: CloudNotAvailable, Message: "the cluster could not be asked: " + ce.Error(), Hint: "Check that its API server is up, that this server reaches it and that the provisioner is let in, then ask again.", Cause: err}
	case errors.As(err, &ce) && ce.Service == chartSource:
		return &Refusal{Kind: CloudNotAvailable, Message: ce.Error(), Hint: "Check that this server reaches the chart source (zopday serve --chart-mirror), then ask again.", Cause: err}
	case errors.As(err, &ce):
		return &Refusal{Kind: CloudNotAvailable, Message: "the cloud could not be asked: " + ce.Error(), Hint: "Check the credentials of the cloud account and that this server reaches the cloud, then ask again.", Cause: err}
	}
	return err
}

// chartSource is how errors of the component engine call where charts come from.
const chartSource = "Charts"

// A Verification is the answer to "is everything still as asked?".
type Verification struct {
	JobID     string           `json:"jobId"`
	CheckedAt time.Time        `json:"checkedAt"`
	AsAsked   bool             `json:"asAsked"`
	Sentence  string           `json:"sentence"`
	Drift     []pipeline.Drift `json:"drift" doc:"What is not as asked, attribute by attribute"`
}

// Verify compares a job with the cloud through clients that refuse to change
// anything.
func (s *Service) Verify(ctx context.Context, ref string) (*Verification, error) {
	j, err := s.look(ctx, ref)
	if err != nil {
		return nil, err
	}
	switch {
	case j.State().Active():
		return nil, &Refusal{Kind: WrongState, Job: j.ID, Message: fmt.Sprintf("the job is %s: what is on its way cannot be compared", j.Status), Hint: "Wait until it has come to rest, then ask again."}
	case j.Status == job.Draft, j.Status == job.Cancelled, j.Phase == job.PhaseTeardown:
		return nil, &Refusal{Kind: WrongState, Job: j.ID, Message: fmt.Sprintf("the job is %s (phase %s): there is nothing that should exist", j.Status, j.Phase), Hint: "Only a job that was carried out can be compared with the cloud."}
	}
	objects, err := s.Ledger.Objects(ctx, j.OrgID, j.ID)
	if err != nil {
		return nil, err
	}
	set, err := s.set(ctx, j)
	if err != nil {
		return nil, err
	}
	drift, err := set.Drift(ctx, j, objects, s.Pace)
	if err != nil {
		return nil, asked(err)
	}
	v := &Verification{JobID: j.ID, CheckedAt: s.Now().UTC(), AsAsked: len(drift) == 0, Drift: drift, Sentence: "As asked: nothing has drifted."}
	if !v.AsAsked {
		v.Sentence = fmt.Sprintf("Not as asked: %s.", count(len(drift), "difference"))
	} else {
		v.Drift = []pipeline.Drift{}
	}
	return v, nil
}
