package job

import "fmt"

// Status is the state of a job that a person sees.
type Status string

// The job states.
const (
	Draft     Status = "draft"
	Queued    Status = "queued"
	Running   Status = "running"
	Completed Status = "completed"
	Failed    Status = "failed"
	Cancelled Status = "cancelled"
)

// Phase says what a job that runs is doing.
type Phase string

// The phases.
const (
	PhaseProvision Phase = "provision"
	PhaseUpdate    Phase = "update" // a vmOp
	PhaseTeardown  Phase = "teardown"
)

// State is a job's place in the state machine.
type State struct {
	Status Status
	Phase  Phase
}

func (s State) String() string { return string(s.Status) + "/" + string(s.Phase) }

// Signal is something that moves a job from one state to another.
type Signal string

// The signals. Submit, Delete, Retry and Operate come from people; Claim,
// Finish and Fail from the worker that holds the job's lease; Yield from the
// worker too, when it has reached a safe point of a job whose deletion was
// asked for while a step was at work.
const (
	Submit  Signal = "submit"
	Claim   Signal = "claim"
	Finish  Signal = "finish"
	Fail    Signal = "fail"
	Retry   Signal = "retry"
	Operate Signal = "operate" // a vmOp
	Delete  Signal = "delete"
	Yield   Signal = "yield"
)

// transitions is the whole state machine. What is not in it is refused.
// A Delete of a job that never started is cancelled at once; the ledger tells
// that apart by Unstarted, since draft is the only state that says so by itself.
var transitions = map[State]map[Signal]State{
	{Draft, PhaseProvision}: {
		Submit: {Queued, PhaseProvision},
		Delete: {Cancelled, PhaseProvision},
	},
	{Queued, PhaseProvision}: {
		Claim:  {Running, PhaseProvision},
		Delete: {Queued, PhaseTeardown},
	},
	{Running, PhaseProvision}: {
		Claim:  {Running, PhaseProvision},
		Finish: {Completed, PhaseProvision},
		Fail:   {Failed, PhaseProvision},
		Delete: {Queued, PhaseTeardown},
		Yield:  {Queued, PhaseTeardown},
	},
	{Failed, PhaseProvision}: {
		Retry:  {Queued, PhaseProvision},
		Delete: {Queued, PhaseTeardown},
	},
	{Completed, PhaseProvision}: {
		Operate: {Queued, PhaseUpdate},
		Delete:  {Queued, PhaseTeardown},
	},
	{Queued, PhaseUpdate}: {
		Claim:  {Running, PhaseUpdate},
		Delete: {Queued, PhaseTeardown},
	},
	{Running, PhaseUpdate}: {
		Claim:  {Running, PhaseUpdate},
		Finish: {Completed, PhaseUpdate},
		Fail:   {Failed, PhaseUpdate},
		Delete: {Queued, PhaseTeardown},
		Yield:  {Queued, PhaseTeardown},
	},
	{Failed, PhaseUpdate}: {
		Retry:   {Queued, PhaseUpdate},
		Operate: {Queued, PhaseUpdate},
		Delete:  {Queued, PhaseTeardown},
	},
	{Completed, PhaseUpdate}: {
		Operate: {Queued, PhaseUpdate},
		Delete:  {Queued, PhaseTeardown},
	},
	{Queued, PhaseTeardown}: {
		Claim:  {Running, PhaseTeardown},
		Delete: {Queued, PhaseTeardown},
	},
	{Running, PhaseTeardown}: {
		Claim:  {Running, PhaseTeardown},
		Finish: {Cancelled, PhaseTeardown},
		Fail:   {Failed, PhaseTeardown},
		Delete: {Running, PhaseTeardown},
	},
	{Failed, PhaseTeardown}: {
		Retry:  {Queued, PhaseTeardown},
		Delete: {Queued, PhaseTeardown},
	},
	{Cancelled, PhaseProvision}: {},
	{Cancelled, PhaseTeardown}:  {},
}

// Next says where a signal takes a job. The error of a refused signal is a
// *TransitionError.
func Next(from State, sig Signal) (State, error) {
	row, known := transitions[from]
	if !known {
		return from, fmt.Errorf("job state %s is not one that the state machine knows", from)
	}
	to, ok := row[sig]
	if !ok {
		return from, &TransitionError{From: from, Signal: sig}
	}
	return to, nil
}

// Unstarted reports whether no worker ever claimed the job, so that nothing can
// exist at the cloud and a Delete ends it at once.
func Unstarted(s State, everClaimed bool) bool {
	return s.Status == Draft || (s == State{Queued, PhaseProvision} && !everClaimed)
}

// Terminal reports whether no signal moves the job any more.
func (s State) Terminal() bool { return s.Status == Cancelled }

// Live reports whether a job in this state still stands for something: its name
// is taken, and its subject is its own.
func (s State) Live() bool { return s.Status != Cancelled }

// Active reports whether a worker has or will have work on the job.
func (s State) Active() bool { return s.Status == Queued || s.Status == Running }

// A TransitionError is a signal that the job's state does not take.
type TransitionError struct {
	From   State
	Signal Signal
}

func (e *TransitionError) Error() string {
	switch e.Signal {
	case Submit:
		return fmt.Sprintf("the job is %s; only a draft can be submitted", e.From.Status)
	case Retry:
		return fmt.Sprintf("the job is %s; only a failed job can be retried", e.From.Status)
	case Operate:
		return fmt.Sprintf("the job is %s (phase %s); a vmOp needs a completed job", e.From.Status, e.From.Phase)
	case Delete:
		return fmt.Sprintf("the job is %s already", e.From.Status)
	}
	return fmt.Sprintf("a job that is %s does not take %q", e.From, string(e.Signal))
}

// VMOp is an operation on the VMs of a finished job.
type VMOp string

// The VM operations, as the PATCH discriminator spells them.
const (
	AttachLB VMOp = "attach_lb"
	DetachLB VMOp = "detach_lb"

	// The component operations, by the discriminator componentOp.
	UpgradeComponent  VMOp = "upgrade"
	RollBackComponent VMOp = "rollback"
)
