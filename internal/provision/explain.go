package provision

import (
	"context"
	"slices"
	"time"

	"github.com/zopday/provisioner/internal/job"
)

// An Explanation says in one bounded answer why a job is where it is.
type Explanation struct {
	JobID    string          `json:"jobId"`
	Name     string          `json:"name"`
	Status   job.Status      `json:"status"`
	Phase    job.Phase       `json:"phase"`
	Verdict  Verdict         `json:"verdict"`
	Error    *job.Error      `json:"error,omitempty" doc:"What happened, and what to do"`
	Step     *StepView       `json:"step,omitempty" doc:"The step at work, waiting or failed"`
	Steps    []StepView      `json:"steps" doc:"The steps of the present run"`
	Attempts []job.StepState `json:"attempts" doc:"Every step of every run so far"`
	Events   []job.Event     `json:"events" doc:"The last 20 lines of the history"`
	Objects  []job.Object    `json:"objects" doc:"What exists now, or may exist"`
	Worker   *WorkerView     `json:"worker,omitempty" doc:"Who holds the job"`
	Warnings []string        `json:"warnings" doc:"What the steps warned of"`
	Next     []NextAct       `json:"next" doc:"What can be done now, the likeliest first"`
}

// A WorkerView says who holds a job.
type WorkerView struct {
	ID        string     `json:"id"`
	Until     time.Time  `json:"until" doc:"When its lease ends if it is not renewed"`
	LastSign  *time.Time `json:"lastSign,omitempty" doc:"When it was heard last"`
	TakenFrom string     `json:"takenFrom,omitempty" doc:"The worker that fell silent with the job"`
}

// A NextAct is something that can be done with a job, as a command and as a call.
type NextAct struct {
	What    string `json:"what"`
	Command string `json:"command"`
	Call    string `json:"call"`
}

// explainEvents is how many lines of the history an explanation carries.
const explainEvents = 20

// Explain returns the explanation of a job.
func (s *Service) Explain(ctx context.Context, ref string) (*Explanation, error) {
	j, err := s.look(ctx, ref)
	if err != nil {
		return nil, err
	}
	rows, err := s.Ledger.Steps(ctx, j.OrgID, j.ID)
	if err != nil {
		return nil, err
	}
	objects, err := s.Ledger.Objects(ctx, j.OrgID, j.ID)
	if err != nil {
		return nil, err
	}
	x := &Explanation{
		JobID: j.ID, Name: j.Name, Status: j.Status, Phase: j.Phase, Verdict: VerdictOf(j, s.Now()), Error: j.Error,
		Steps: stepsOf(j, rows), Attempts: rows, Objects: []job.Object{}, Warnings: j.Config.InfraConfig.Warnings, Next: nextActs(j),
	}
	if x.Attempts == nil {
		x.Attempts = []job.StepState{}
	}
	if x.Warnings == nil {
		x.Warnings = []string{}
	}
	for _, o := range objects {
		if standing(o) || o.State == job.ObjectIntended {
			x.Objects = append(x.Objects, o)
		}
	}
	i := slices.IndexFunc(x.Steps, func(v StepView) bool { return v.Status != job.StepDone && v.Status != job.StepPending })
	if i >= 0 {
		x.Step = &x.Steps[i]
	}
	if x.Events, err = s.tail(ctx, j); err != nil {
		return nil, err
	}
	x.Worker, err = s.worker(ctx, j)
	return x, err
}

// tail is the end of a job's history.
func (s *Service) tail(ctx context.Context, j *job.Job) ([]job.Event, error) {
	last := []job.Event{}
	after := int64(0)
	for {
		page, err := s.Ledger.Events(ctx, j.OrgID, j.ID, after, 1000)
		if err != nil {
			return nil, err
		}
		last = append(last, page...)
		if len(last) > explainEvents {
			last = slices.Clone(last[len(last)-explainEvents:])
		}
		if len(page) < 1000 {
			return last, nil
		}
		after = page[len(page)-1].Seq
	}
}

func (s *Service) worker(ctx context.Context, j *job.Job) (*WorkerView, error) {
	st, err := s.Ledger.Standing(ctx, j.OrgID, j.ID)
	if err != nil || !st.Leased {
		return nil, err
	}
	w := &WorkerView{ID: st.Worker, Until: st.Expires, TakenFrom: st.TakenFrom}
	workers, err := s.Ledger.Workers(ctx)
	if err != nil {
		return nil, err
	}
	for _, known := range workers {
		if known.ID == st.Worker {
			w.LastSign = &known.BeatAt
		}
	}
	return w, nil
}

// nextActs lists what a job's state takes, the likeliest first. It asks the
// state machine, so that it never offers what would be refused.
func nextActs(j *job.Job) []NextAct {
	acts := []NextAct{}
	can := func(sig job.Signal) bool {
		_, err := job.Next(j.State(), sig)
		return err == nil
	}
	path := "/provisioning-jobs/" + j.ID
	add := func(what, command, call string) {
		acts = append(acts, NextAct{What: what, Command: "zopday " + command, Call: call})
	}
	if can(job.Submit) {
		add("Look at what it would do", "jobs plan "+j.ID, "GET "+path+"/plan")
		add("Submit it", "jobs submit "+j.ID, "PATCH "+path+` {"status":"queued"}`)
	}
	if can(job.Retry) {
		add("Retry from the step that failed", "jobs retry "+j.ID, "POST "+path+"/retry")
	}
	if j.State().Active() {
		add("Watch it", "jobs watch "+j.ID, "GET "+path+"/events")
	}
	if can(job.Operate) && j.ResourceType == job.VM && j.Owns() && j.Kind != job.Remediation {
		lb, err := j.LoadBalancer()
		switch {
		case err == nil && lb == nil:
			add("Attach a load balancer", "vm attach-lb "+j.ID, "PATCH "+path+` {"vmOp":"attach_lb"}`)
		case err == nil:
			add("Detach its load balancer", "vm detach-lb "+j.ID, "PATCH "+path+` {"vmOp":"detach_lb"}`)
		}
	}
	if can(job.Operate) && j.ResourceType == job.Component {
		add("Upgrade it", "components upgrade "+j.ID+" --version VERSION", "PATCH "+path+` {"componentOp":"upgrade","config":{"spec":{"component":{"version":"VERSION"}}}}`)
		if canRollBack(j) {
			add("Roll it back", "components rollback "+j.ID, "PATCH "+path+` {"componentOp":"rollback"}`)
		}
	}
	if j.Status == job.Completed {
		add("Compare it with the cloud", "jobs verify "+j.ID, "POST "+path+"/verify")
	}
	if j.State().Terminal() {
		add("Read the receipt", "jobs receipt "+j.ID, "GET "+path+"/receipt")
	} else if can(job.Delete) && !(j.State().Active() && j.Phase == job.PhaseTeardown) {
		what := "Cancel it and clean up"
		if j.Status == job.Completed {
			what = "Tear it down"
			if j.ResourceType == job.Component {
				what = "Uninstall it"
			}
			if !j.Owns() {
				what = "Disconnect it"
			}
			if j.Kind == job.Remediation {
				what = "End it; nothing is changed"
			}
		}
		command, call := "jobs delete "+j.ID, "DELETE "+path
		if confirmed(j, "") != nil {
			command, call = command+" --confirm "+j.Name, call+"?confirm="+j.Name
		}
		add(what, command, call)
	}
	return acts
}

// canRollBack reports whether a component job remembers a revision besides the
// one that it stands at.
func canRollBack(j *job.Job) bool {
	return slices.ContainsFunc(j.Config.InfraConfig.Components, func(c job.ComponentInfo) bool {
		return len(c.History) > 1 || len(c.History) == 1 && j.Status == job.Failed
	})
}
