package job

import "time"

// A Window is when a pool runs: on the days, from one time of day to another. A To
// that is not after From is on the day after.
type Window struct {
	Days []string `json:"days" doc:"mon, tue, wed, thu, fri, sat, sun"`
	From string   `json:"from" doc:"Time of day at which the pool is resumed, such as 08:00"`
	To   string   `json:"to" doc:"Time of day at which it is paused, such as 20:00; 24:00 is midnight"`
}

// ScheduleSpec is when what is paused and resumed.
type ScheduleSpec struct {
	JobID        string  `json:"jobId" doc:"ID or name of the VM or cluster job that has the pool"`
	Pool         string  `json:"pool,omitempty" doc:"Clusters: the node pool's name; by default all but Azure's system pool"`
	PauseCron    string  `json:"pauseCron,omitempty" doc:"When to pause: minute, hour, day of month, month, day of week"`
	ResumeCron   string  `json:"resumeCron,omitempty" doc:"When to resume"`
	Window       *Window `json:"window,omitempty" doc:"When the pool runs, instead of the two crons"`
	TimeZone     string  `json:"timeZone" doc:"IANA name, such as Europe/Berlin"`
	AllowAdopted bool    `json:"allowAdopted,omitempty" doc:"Act on a pool that its job only adopted"`
}

// A Schedule pauses and resumes the pools of one job at set times.
type Schedule struct {
	ID    string `json:"id"`
	OrgID string `json:"orgId"`
	ScheduleSpec
	SubjectName string            `json:"subjectName" doc:"The job's name when the schedule was made"`
	Enabled     bool              `json:"enabled"`
	NextAt      *time.Time        `json:"nextAt,omitempty" doc:"When it acts next; absent while it is not enabled"`
	NextAction  RemediationAction `json:"nextAction,omitempty"`
	CreatedBy   string            `json:"createdBy"`
	CreatedAt   time.Time         `json:"createdAt"`
	UpdatedAt   time.Time         `json:"updatedAt"`
	SubjectID   string            `json:"-"`
}

// A ScheduleRun is what became of one due time.
type ScheduleRun struct {
	DueAt   time.Time         `json:"dueAt"`
	Action  RemediationAction `json:"action"`
	Outcome string            `json:"outcome" enum:"created,skipped" doc:"created: a remediation job was made; skipped: it was not safe, and reason says why"`
	Reason  string            `json:"reason,omitempty"`
	JobID   string            `json:"jobId,omitempty"`
	Missed  int               `json:"missed,omitempty" doc:"Due times before this one that passed while no process ran: only the latest counts"`
	At      time.Time         `json:"at"`
}

// The outcomes of a due time.
const (
	RunCreated = "created"
	RunSkipped = "skipped"
)
