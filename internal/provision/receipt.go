package provision

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/steps"
)

// A Receipt says what a job made, what of it is gone, what was kept and why, and
// that nothing is left. It stays after everything else is gone.
type Receipt struct {
	JobID       string           `json:"jobId"`
	Name        string           `json:"name"`
	Status      job.Status       `json:"status"`
	Phase       job.Phase        `json:"phase"`
	Final       bool             `json:"final" doc:"The job is over: these figures do not change any more"`
	Created     int              `json:"created" doc:"Objects that the job made"`
	Removed     int              `json:"removed" doc:"Of these, seen gone"`
	Kept        int              `json:"kept" doc:"Of these, left in place on purpose"`
	Left        *int             `json:"left" doc:"Objects of the job that still exist and are not kept on purpose; null if the cloud could not be asked, or not for every kind that the job had"`
	RequestedBy string           `json:"requestedBy,omitempty" doc:"Who asked for the teardown"`
	RequestedAt *time.Time       `json:"requestedAt,omitempty"`
	AuditID     string           `json:"auditId,omitempty" doc:"The entry of the audit log that this receipt belongs to"`
	FinishedAt  *time.Time       `json:"finishedAt,omitempty"`
	Scan        *ScanResult      `json:"scan,omitempty" doc:"The last look through the account by owner mark"`
	Objects     []job.Object     `json:"objects" doc:"Every object of the job, and when it was made and seen gone"`
	LeftAlone   []LeftAlone      `json:"leftAlone" doc:"What the job used and never touched"`
	Summary     string           `json:"summary"`
	Leftovers   []cloud.Leftover `json:"leftovers,omitempty" doc:"What still carries the job's mark"`
}

// A ScanResult is the outcome of a look through the account by owner mark.
type ScanResult struct {
	At    time.Time `json:"at"`
	Found int       `json:"found"`
	Note  string    `json:"note"`

	NotScanned []job.Unlisted `json:"notScanned,omitempty" doc:"Kinds that the credentials may not list: the scan says nothing of them"`
}

// Receipt returns a job's receipt, as far as it has come.
func (s *Service) Receipt(ctx context.Context, ref string) (*Receipt, error) {
	j, err := s.look(ctx, ref)
	if err != nil {
		return nil, err
	}
	objects, err := s.Ledger.Objects(ctx, j.OrgID, j.ID)
	if err != nil {
		return nil, err
	}
	rows, err := s.Ledger.Steps(ctx, j.OrgID, j.ID)
	if err != nil {
		return nil, err
	}
	r := &Receipt{JobID: j.ID, Name: j.Name, Status: j.Status, Phase: j.Phase, Final: j.State().Terminal(), Objects: []job.Object{}, LeftAlone: leftAlone(j)}
	open := 0
	for _, o := range objects {
		switch o.State {
		case job.ObjectAbsent:
			continue // the create was proved never to have happened
		case job.ObjectIntended:
			open++ // it may exist: the step that asked for it finds out
		case job.ObjectCreated:
			r.Created++
			open++
		case job.ObjectKept:
			r.Created++
			r.Kept++
		case job.ObjectRemoved:
			r.Created++
			r.Removed++
		}
		r.Objects = append(r.Objects, o)
	}
	r.Left = &open
	if r.Final {
		at := j.UpdatedAt
		r.FinishedAt = &at
	}
	if err := s.requested(ctx, j, r); err != nil {
		return nil, err
	}
	s.scan(ctx, j, rows, r)
	r.Summary = receiptSummary(r, j)
	return r, nil
}

// requested adds who asked for the teardown, from the audit log.
func (s *Service) requested(ctx context.Context, j *job.Job, r *Receipt) error {
	action := access.JobDelete
	if j.Kind == job.Remediation {
		action = access.VMOperate
	} else if j.ResourceType == job.Component {
		action = access.ComponentUninstall
	}
	entries, _, err := audit.List(ctx, s.Ledger.DB(), j.OrgID, audit.Filter{
		Action: string(action), ResourceID: j.ID, Outcome: audit.Allowed, Limit: 1,
	})
	if err != nil || len(entries) == 0 {
		return err
	}
	e := entries[0]
	r.RequestedBy, r.RequestedAt, r.AuditID = e.Actor, &e.Time, e.ID
	return nil
}

// scan adds the last look through the account. A job ends cancelled after a
// teardown only when that look found nothing, so its time is that of the step
// which looked. A teardown that stopped is looked at now: what the ledger never
// heard of may be left too.
func (s *Service) scan(ctx context.Context, j *job.Job, rows []job.StepState, r *Receipt) {
	if j.Phase != job.PhaseTeardown || !j.Owns() || j.ResourceType == job.Component || j.Kind == job.Remediation {
		return // a component leaves nothing at the cloud: its objects are listed one by one
	}
	switch j.Status {
	case job.Cancelled:
		for _, row := range rows {
			if row.Run == j.Run && row.Name == steps.Validate && row.Direction == job.Down && row.FinishedAt != nil {
				r.Scan = &ScanResult{At: *row.FinishedAt, Note: cmp.Or(row.Note, "a scan by owner mark found nothing left"), NotScanned: j.Config.InfraConfig.NotScanned}
			}
		}
	case job.Failed:
		var unlisted []job.Unlisted
		set, err := s.set(ctx, j)
		if err == nil {
			r.Leftovers, unlisted, err = set.Cloud.Scan(pipeline.WithGate(ctx, pipeline.ReadOnly), j.ID)
		}
		if err != nil {
			r.Left = nil
			r.Scan = &ScanResult{At: s.Now().UTC(), Note: "the account could not be looked through: " + refusalOf(asked(err)).Error()}
			return
		}
		r.Leftovers = slices.DeleteFunc(r.Leftovers, func(l cloud.Leftover) bool { return steps.KeptOnPurpose(r.Objects, l) })
		n := len(r.Leftovers)
		r.Left = &n
		r.Scan = &ScanResult{At: s.Now().UTC(), Found: n, Note: "looked through the account just now", NotScanned: unlisted}
		if len(unlisted) > 0 {
			r.Scan.Note += "; not scanned: " + job.NameUnlisted(unlisted)
		}
		if had, _ := job.Unproved(r.Objects, unlisted); len(had) > 0 {
			r.Left = nil // of what the job had, not everything could be listed
		}
	}
}

func receiptSummary(r *Receipt, j *job.Job) string {
	switch {
	case j.Status == job.Cancelled && !j.Owns():
		return "Disconnected: nothing had been made, and nothing was touched."
	case j.Status == job.Cancelled && r.Created == 0:
		return "Nothing had been made."
	case j.Status == job.Cancelled:
		s := count(r.Removed, "object") + " removed"
		if r.Kept > 0 {
			s += ", " + count(r.Kept, "object") + " kept on purpose"
		}
		if r.Scan != nil && len(r.Scan.NotScanned) > 0 {
			return s + ", nothing left of what the scan could list; not scanned: " + job.NameUnlisted(r.Scan.NotScanned) + "."
		}
		return s + ", nothing left."
	case r.Left == nil && (r.Scan == nil || len(r.Scan.NotScanned) == 0):
		return "How much is left is not known: the cloud could not be asked."
	case j.Phase == job.PhaseTeardown && j.Status == job.Failed && r.Scan != nil:
		names := make([]string, 0, len(r.Leftovers))
		for _, l := range r.Leftovers {
			names = append(names, l.Kind+" "+l.ID)
		}
		open := ""
		if len(r.Scan.NotScanned) > 0 {
			open = " Not scanned, so not known: " + job.NameUnlisted(r.Scan.NotScanned) + "."
		}
		switch {
		case len(names) > 0:
			return "The removal stopped; left: " + strings.Join(names, ", ") + "." + open
		case open != "":
			return "The removal stopped; of what the account lets be listed, nothing is left." + open + " Grant what is missing and retry to finish the job."
		}
		return "The removal stopped; a look through the account finds nothing left. Retry it to finish the job."
	}
	return count(*r.Left, "object") + " of the job exist now."
}
