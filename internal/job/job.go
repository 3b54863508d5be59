// Package job is the domain of the provisioner: what a job is, which states it
// can be in, what a request may ask for, and what every derived name and mark
// looks like. It knows no cloud SDK, no database and no HTTP.
package job

import (
	"encoding/json"
	"time"
)

// Kind says what a job does to its subject.
type Kind string

// The two job kinds, in one table.
const (
	Provisioning Kind = "provisioning" // creates, adopts, changes or tears down a resource of one family
	Remediation  Kind = "remediation"  // acts on something that exists
)

// ResourceType names a resource family.
type ResourceType string

// The resource families.
const (
	Cluster   ResourceType = "cluster"
	Datastore ResourceType = "datastore"
	Cache     ResourceType = "cache"
	Network   ResourceType = "network"
	VM        ResourceType = "vm"
	Component ResourceType = "component"
)

// Provider names a cloud.
type Provider string

// The clouds.
const (
	AWS   Provider = "aws"
	GCP   Provider = "gcp"
	Azure Provider = "azure"
)

// Mode says what a job creates, and therefore what it owns and may delete.
type Mode string

// The modes.
const (
	ModeCreate           Mode = "create"             // everything is made, and all of it is deleted again
	ModeCreateInExisting Mode = "create_in_existing" // the resource is made inside a network that the user names
	ModeAdopt            Mode = "adopt"              // nothing is made: a pointer to something that exists
)

// A Job is one row of provisioning_jobs.
type Job struct {
	ID             string            `json:"id"`
	OrgID          string            `json:"orgId"`
	TeamID         string            `json:"teamId,omitempty"` // the team that it belongs to; "": the organisation alone
	Kind           Kind              `json:"kind"`
	ResourceType   ResourceType      `json:"resourceType"`
	Provider       Provider          `json:"provider"`
	Mode           Mode              `json:"mode"`
	Name           string            `json:"name"`
	CloudAccountID string            `json:"cloudAccountId"`
	Region         string            `json:"region"`
	Labels         map[string]string `json:"labels,omitempty"`
	SubjectType    string            `json:"subjectType"`
	SubjectID      string            `json:"subjectId"`

	Status      Status     `json:"status"`
	Phase       Phase      `json:"phase"`
	Run         int        `json:"run"` // 1 for the first provision; raised by every vmOp and by teardown
	VMOp        VMOp       `json:"vmOp,omitempty"`
	CurrentStep string     `json:"currentStep,omitempty"`
	WaitingFor  string     `json:"waitingFor,omitempty"`
	NextRunAt   *time.Time `json:"nextRunAt,omitempty"`
	Attempts    int        `json:"attempts"` // failed tries of the current step in this run
	Cancelling  bool       `json:"cancelling,omitempty"`

	Config  Config            `json:"config"`
	Outputs map[string]string `json:"outputs,omitempty"`
	Error   *Error            `json:"error,omitempty"`

	CreatedBy    string    `json:"createdBy"`
	CreatedAt    time.Time `json:"createdAt"`
	UpdatedAt    time.Time `json:"updatedAt"`
	Version      int64     `json:"version"`      // raised by every write of the row
	SpecRevision int64     `json:"specRevision"` // raised by every change a person makes; the ETag
}

// Config is what the user asked for and what the steps learned.
type Config struct {
	Spec        json.RawMessage `json:"spec"`
	InfraConfig InfraConfig     `json:"infraConfig"`
}

// State is where a job stands in the state machine.
func (j *Job) State() State { return State{Status: j.Status, Phase: j.Phase} }

// Owns reports whether what the job works on was made by it, so that teardown
// may delete it.
func (j *Job) Owns() bool { return j.Mode != ModeAdopt }

// An Error is why a job is where it is, in words for a person.
type Error struct {
	Code    string `json:"code"`              // stable, lower-case with hyphens, such as "quota-exceeded"
	Message string `json:"message"`           // what happened, to what
	Step    string `json:"step,omitempty"`    // the step in which it happened
	Hint    string `json:"hint,omitempty"`    // what to do next
	Field   string `json:"field,omitempty"`   // the request field at fault, if one is
	Request string `json:"request,omitempty"` // the cloud's own request ID
}

func (e *Error) Error() string { return e.Message }

// A StepState is one row of a job's steps: one step of one run in one direction.
type StepState struct {
	Run        int        `json:"run"`
	Name       string     `json:"name"`
	Direction  Direction  `json:"direction"`
	Status     StepStatus `json:"status"`
	Attempts   int        `json:"attempts"`
	WaitingFor string     `json:"waitingFor,omitempty"`
	Note       string     `json:"note,omitempty"` // such as "skipped: no DNS zone"
	StartedAt  *time.Time `json:"startedAt,omitempty"`
	FinishedAt *time.Time `json:"finishedAt,omitempty"`
}

// Direction is up (ensure) or down (remove).
type Direction string

// The directions of a pipeline.
const (
	Up   Direction = "up"
	Down Direction = "down"
)

// StepStatus is where one step of a run stands.
type StepStatus string

// The states of a step. Pending is never stored: it is a step without a row.
const (
	StepPending StepStatus = "pending"
	StepRunning StepStatus = "running"
	StepWaiting StepStatus = "waiting"
	StepDone    StepStatus = "done"
	StepFailed  StepStatus = "failed"
)

// An Object is one thing that a job made at a cloud, or is about to make: a row
// of the inventory. Its identity at the cloud (cloud, account, region, kind, ID)
// is unique, so no two jobs can own one thing.
type Object struct {
	JobID      string       `json:"jobId"`
	Cloud      Provider     `json:"cloud"`
	Account    string       `json:"account"`
	Region     string       `json:"region"`
	Kind       string       `json:"kind"` // such as "ec2:subnet"
	Key        string       `json:"key"`  // its place in the job, such as "private-a"; unique with Kind in the job
	ID         string       `json:"id,omitempty"`
	Name       string       `json:"name"`
	Step       string       `json:"step"`
	State      ObjectStatus `json:"state"`
	Generation int          `json:"generation"` // raised when a token was used up or the object is gone
	Reason     string       `json:"reason,omitempty"`
	CreatedAt  *time.Time   `json:"createdAt,omitempty"` // when its ID became known
	IntentAt   *time.Time   `json:"intentAt,omitempty"`  // when the create was about to be sent
	RemovedAt  *time.Time   `json:"removedAt,omitempty"`
}

// ObjectStatus is where an inventory row stands.
type ObjectStatus string

// The states of an inventory row.
const (
	ObjectIntended ObjectStatus = "intended" // a create may have been sent; the ID is not known
	ObjectCreated  ObjectStatus = "created"
	ObjectKept     ObjectStatus = "kept" // left in place on purpose; Reason says why
	ObjectRemoved  ObjectStatus = "removed"
	ObjectAbsent   ObjectStatus = "absent" // the create was proved never to have happened
)

// An Event is one line of a job's history.
type Event struct {
	Seq     int64     `json:"seq"`
	JobID   string    `json:"jobId"`
	Time    time.Time `json:"time"`
	Type    string    `json:"type"` // job.status, step.started, step.waiting, step.done, step.failed, object.created, object.removed, note
	Step    string    `json:"step,omitempty"`
	Run     int       `json:"run"`
	Attempt int       `json:"attempt,omitempty"`
	Message string    `json:"message"`
}

// Clone is a deep copy.
func (j *Job) Clone() (*Job, error) {
	b, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	var c Job
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, err
	}
	return &c, nil
}
