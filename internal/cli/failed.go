package cli

import (
	"fmt"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/job"
)

// A jobFailed is a job that ended failed: the command that waited for it ends
// with that.
type jobFailed struct{ job client.Job }

func (e *jobFailed) exitCode() int { return exitJobFailed }

func (e *jobFailed) Error() string {
	p := e.job.Error
	switch {
	case p == nil || p.Message == "":
		return e.job.Name + " failed without a recorded reason"
	case p.Step != "":
		return p.Step + " failed: " + p.Message
	}
	return e.job.Name + " failed: " + p.Message
}

func (e *jobFailed) layout(a *app) failure {
	f := failure{what: clean(e.Error())}
	p := e.job.Error
	if p == nil {
		p = &job.Error{}
	}
	f.code = p.Code
	if p.Field != "" {
		f.rows = append(f.rows, row{"Field", clean(p.Field)})
	}
	exists := "nothing that this job made"
	if e.job.Objects > 0 {
		exists = plurals(e.job.Objects, "object", "objects") + ", kept until you decide"
	}
	f.rows = append(f.rows, row{"Exists", exists})
	if p.Hint != "" {
		f.rows = append(f.rows, row{"Do", asCommands.Replace(clean(p.Hint))})
	}
	f.rows = append(f.rows, row{"Then", a.again("jobs", "retry", e.job.ID)})
	f.foot = append(f.foot, "More: "+a.again("jobs", "explain", e.job.ID))
	if p.Request != "" {
		f.foot = append(f.foot, "Request "+clean(p.Request))
	}
	return f
}

func (e *jobFailed) problemMembers() map[string]any {
	m := map[string]any{"jobId": e.job.ID, "jobStatus": e.job.Status, "jobPhase": e.job.Phase, "objects": e.job.Objects}
	if p := e.job.Error; p != nil {
		m["code"], m["step"], m["hint"], m["field"], m["cloudRequestId"] = p.Code, p.Step, p.Hint, p.Field, p.Request
	}
	for k, v := range m {
		if v == "" {
			delete(m, k)
		}
	}
	return m
}

// An unstarted job was waited for and is a draft: it would never end.
type unstarted struct{ job client.Job }

func (e *unstarted) Error() string {
	return fmt.Sprintf("%s is a draft, and a draft never ends by itself", e.job.Name)
}
func (e *unstarted) exitCode() int { return exitConflict }

func (e *unstarted) layout(a *app) failure {
	return failure{what: e.Error(), code: "draft", rows: []row{{"Do", a.again("jobs", "submit", e.job.ID)}}}
}
