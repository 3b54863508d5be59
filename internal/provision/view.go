package provision

import (
	"context"
	"slices"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/steps"
)

// A JobView is a job as it is shown: with the steps of its present run, pending
// ones included, and one verdict that page, list, command line and API share.
type JobView struct {
	job.Job
	Verdict Verdict    `json:"verdict" doc:"Where the job stands, in words"`
	Steps   []StepView `json:"steps" doc:"The steps of the present run, in order"`
	Objects int        `json:"objects" doc:"How many objects of the job exist at the cloud now"`
}

// A JobSummary is a job in a list.
type JobSummary struct {
	job.Job
	Verdict Verdict `json:"verdict" doc:"Where the job stands, in words"`
}

// A StepView is one step of a run.
type StepView struct {
	job.StepState
	Title string `json:"title,omitempty" doc:"What the step does"`
}

// Get returns one job by its ID, its name, or the beginning of its ID.
func (s *Service) Get(ctx context.Context, ref string) (*JobView, error) {
	j, err := s.look(ctx, ref)
	if err != nil {
		return nil, err
	}
	return s.view(ctx, j)
}

// look finds a job for a caller who may view jobs.
func (s *Service) look(ctx context.Context, ref string) (*job.Job, error) {
	p, err := s.viewer(ctx, access.JobView)
	if err != nil {
		return nil, err
	}
	j, err := s.find(ctx, p, access.JobView, ref, true)
	if err != nil {
		return nil, refusalOf(err)
	}
	return j, nil
}

func (s *Service) view(ctx context.Context, j *job.Job) (*JobView, error) {
	rows, err := s.Ledger.Steps(ctx, j.OrgID, j.ID)
	if err != nil {
		return nil, err
	}
	objects, err := s.Ledger.Objects(ctx, j.OrgID, j.ID)
	if err != nil {
		return nil, err
	}
	v := &JobView{Job: *j, Verdict: VerdictOf(j, s.Now()), Steps: stepsOf(j, rows)}
	for _, o := range objects {
		if standing(o) {
			v.Objects++
		}
	}
	return v, nil
}

// standing reports whether an object exists at the cloud, as far as is known.
func standing(o job.Object) bool {
	return o.State == job.ObjectCreated || o.State == job.ObjectKept
}

// stepsOf puts the rows of a job's present run in the order of its pipeline; a
// step without a row is pending.
func stepsOf(j *job.Job, rows []job.StepState) []StepView {
	list, dir, err := steps.Set{}.Current(j)
	var out []StepView
	if err != nil {
		// A family or an operation that this version does not know: what the
		// ledger has is shown as it is.
		for _, row := range rows {
			if row.Run == j.Run {
				out = append(out, StepView{StepState: row})
			}
		}
		return out
	}
	for _, step := range list {
		v := StepView{Title: step.Title, StepState: job.StepState{Run: j.Run, Name: step.Name, Direction: dir, Status: job.StepPending}}
		i := slices.IndexFunc(rows, func(r job.StepState) bool { return r.Run == j.Run && r.Name == step.Name && r.Direction == dir })
		if i >= 0 {
			v.StepState = rows[i]
		}
		out = append(out, v)
	}
	return out
}

// A ListQuery chooses and sorts jobs.
type ListQuery struct {
	ledger.Filter
	SubjectType string
}

// List returns a page of jobs and the cursor of the next, "" at the end.
func (s *Service) List(ctx context.Context, q ListQuery) (items []JobSummary, next string, err error) {
	p, err := s.viewer(ctx, access.JobView)
	if err != nil {
		return nil, "", err
	}
	items = []JobSummary{}
	if q.SubjectType != "" {
		rt, ok := familyOf(q.SubjectType)
		switch {
		case !ok:
			return nil, "", invalid(job.FieldError{Field: "subjectType", Message: "is not a subject type", Fix: "use cluster, datastore, cache, network, vm_pool or component_release"})
		case q.ResourceType != "" && q.ResourceType != rt:
			return items, "", nil // nothing is both
		}
		q.ResourceType = rt
	}
	jobs, next, err := s.Ledger.List(ctx, p.OrgID, p.Over(access.JobView), q.Filter)
	if err != nil {
		return nil, "", refusalOf(err)
	}
	now := s.Now()
	for i := range jobs {
		items = append(items, JobSummary{Job: jobs[i], Verdict: VerdictOf(&jobs[i], now)})
	}
	return items, next, nil
}

// familyOf is the resource type whose jobs act on a subject type.
func familyOf(subjectType string) (job.ResourceType, bool) {
	for rt, s := range subjectTypes {
		if s.name == subjectType {
			return rt, true
		}
	}
	return "", false
}

// Events returns a job's history after a sequence number, oldest first, and the
// job as it was read just before: a job at rest writes no events after them.
func (s *Service) Events(ctx context.Context, ref string, after int64, limit int) (*job.Job, []job.Event, error) {
	j, err := s.look(ctx, ref)
	if err != nil {
		return nil, nil, err
	}
	events, err := s.Ledger.Events(ctx, j.OrgID, j.ID, after, limit)
	if err != nil {
		return nil, nil, err
	}
	if events == nil {
		events = []job.Event{}
	}
	return j, events, nil
}

// A Verdict says where a job stands: one word for a badge, and one sentence.
type Verdict struct {
	State    string     `json:"state" doc:"draft, queued, running, waiting, retrying, cancelling, ready, removing, failed, removal-stopped, cancelled, torn-down or disconnected"`
	Word     string     `json:"word" doc:"The state as a person reads it"`
	Sentence string     `json:"sentence" doc:"Why, and what comes next"`
	Next     *time.Time `json:"next,omitempty" doc:"When a worker looks again"`
}
