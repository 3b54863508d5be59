// Package cloud holds the narrow interfaces that a step needs of a cloud. One
// package a cloud implements them with that cloud's own SDK; a step never knows
// which one it talks to.
//
// A method that ensures or removes takes the pipeline.Run: it makes its objects
// through Run.Ensure and Run.Remove, reads what earlier steps learned from
// Run.Job's InfraConfig, and writes there what later steps need. Its error is
// the step's verdict.
package cloud

import (
	"context"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// An Opener gives access to the cloud account that a job names, in the job's
// region. Clients are shared between jobs of one account and region.
type Opener interface {
	Open(ctx context.Context, j *job.Job) (Provider, error)
}

// A Provider is one cloud account in one region.
type Provider interface {
	Checker
	Network
	Identity
	Compute
	Bootstrapper
	LoadBalancing
	DNS
	Auditor
}

// A Checker answers what only the cloud can say before anything is made.
type Checker interface {
	// Caller says whose credentials these are: the account's ID. It asks the
	// cloud again whenever the credentials have changed.
	Caller(ctx context.Context) (account string, err error)

	// Check asks the cloud everything that a job's later steps depend on, and
	// records what it resolved (zones, image, instance type) in the InfraConfig.
	// The job's own objects are left out of what it counts and compares. A call
	// that is denied or not offered makes a check Unchecked, never OK; the error
	// is only for a cloud that does not answer at all.
	Check(ctx context.Context, r *pipeline.Run) ([]Check, error)
}

// A Check is the answer to one question asked before anything is made.
type Check struct {
	Name    string      `json:"name"` // such as "vCPU quota"
	Status  CheckStatus `json:"status"`
	Field   string      `json:"field,omitempty"` // the request field at fault
	Message string      `json:"message"`         // what was found
	Fix     string      `json:"fix,omitempty"`   // what to do
}

// CheckStatus is the outcome of a check.
type CheckStatus string

// The outcomes.
const (
	CheckOK        CheckStatus = "ok"
	CheckFails     CheckStatus = "fails"
	CheckWarning   CheckStatus = "warning"
	CheckUnchecked CheckStatus = "not checked"
)

// Network makes the network of a job (mode create) by the plan that Check left
// in the InfraConfig. For create_in_existing, a VM job reads the network that it
// names and leaves it alone; a network job adds its own subnets to it.
type Network interface {
	EnsureNetwork(ctx context.Context, r *pipeline.Run) error
	RemoveNetwork(ctx context.Context, r *pipeline.Run) error
}

// NetworkFamily is what only network jobs ask of a cloud.
type NetworkFamily interface {
	// AdoptNetwork reads the network that an adopt job points at into the
	// InfraConfig, and records risk notes (open groups, public subnets, no flow
	// logs, …) as warnings.
	AdoptNetwork(ctx context.Context, r *pipeline.Run) error

	// EnsurePeerings makes the job's peerings on both sides, with what routes
	// and names need to pass, and waits until they are in force. Where the other
	// side belongs to somebody else, the wait says who has to do what.
	EnsurePeerings(ctx context.Context, r *pipeline.Run) error
	RemovePeerings(ctx context.Context, r *pipeline.Run) error

	// EnsureDNSZones makes the job's zones, and records for each public one
	// whether its parent delegates to it: information, never a failure.
	EnsureDNSZones(ctx context.Context, r *pipeline.Run) error
	RemoveDNSZones(ctx context.Context, r *pipeline.Run) error
}

// Identity makes what the VMs run as: only what the exec channel needs.
type Identity interface {
	EnsureIdentity(ctx context.Context, r *pipeline.Run) error
	RemoveIdentity(ctx context.Context, r *pipeline.Run) error
}

// Compute makes the VMs.
type Compute interface {
	// EnsureLaunchTemplate makes the VMs' security group and the template that
	// they start from. Teardown removes the template before the group, as two
	// steps of one Remove.
	EnsureLaunchTemplate(ctx context.Context, r *pipeline.Run) error
	RemoveLaunchTemplate(ctx context.Context, r *pipeline.Run) error

	// EnsureVMs makes the pool and fills InfraConfig.VMs; done when every VM runs.
	EnsureVMs(ctx context.Context, r *pipeline.Run) error
	RemoveVMs(ctx context.Context, r *pipeline.Run) error

	// AdoptVMs reads what an adopt job points at into InfraConfig, and records
	// risk notes (public address, unencrypted disk, …) as warnings.
	AdoptVMs(ctx context.Context, r *pipeline.Run) error

	// RefreshVMs brings InfraConfig.VMs up to date; it only reads.
	RefreshVMs(ctx context.Context, j *job.Job) error
}

// A Bootstrapper looks into VMs through the cloud's IAM-gated exec channel.
type Bootstrapper interface {
	// Probe says of each instance how far its bootstrap is. It may start a
	// command on one pass and collect it on a later one; State Unknown means
	// that there is no answer yet.
	Probe(ctx context.Context, r *pipeline.Run, vms []job.VMInfo) (map[string]Probe, error)

	// ExecCommand is what a person types to get a shell on a VM.
	ExecCommand(j *job.Job, vm job.VMInfo) string
}

// A Probe is how far the bootstrap of one VM is.
type Probe struct {
	State  ProbeState
	Detail string // what it waits for, or the end of its log when it failed
}

// ProbeState is how far a bootstrap is.
type ProbeState string

// The states of a bootstrap.
const (
	ProbeUnknown ProbeState = "unknown"  // no answer yet
	ProbeNoAgent ProbeState = "no-agent" // the exec channel does not reach it yet
	ProbeRunning ProbeState = "running"
	ProbeReady   ProbeState = "ready" // the sentinel is there
	ProbeFailed  ProbeState = "failed"

	// ProbeNone says that the cloud has no exec channel to look with, not that
	// the VM has none: how far the bootstrap is cannot be known.
	ProbeNone ProbeState = "none"
)

// LoadBalancing makes a load balancer in three sub-steps, and takes it off
// again without touching the VMs.
type LoadBalancing interface {
	EnsureLoadBalancer(ctx context.Context, r *pipeline.Run) error
	RemoveLoadBalancer(ctx context.Context, r *pipeline.Run) error
	EnsureTargetGroup(ctx context.Context, r *pipeline.Run) error
	RemoveTargetGroup(ctx context.Context, r *pipeline.Run) error
	EnsureListener(ctx context.Context, r *pipeline.Run) error
	RemoveListener(ctx context.Context, r *pipeline.Run) error

	// TargetHealth says what the load balancer thinks of each VM; it only reads.
	TargetHealth(ctx context.Context, j *job.Job) ([]job.TargetInfo, error)
}

// DNS makes the load balancer's record in a zone that the user has.
type DNS interface {
	EnsureRecord(ctx context.Context, r *pipeline.Run) error
	RemoveRecord(ctx context.Context, r *pipeline.Run) error
}

// An Auditor reads back what was made.
type Auditor interface {
	// Controls reads the hardening controls of a job's objects back.
	Controls(ctx context.Context, r *pipeline.Run) ([]job.Control, error)

	// Scan lists everything in the account and region that carries a job's
	// owner mark, what is on its way out left away. Of the kinds that the
	// credentials may not list, each named in unlisted, it says nothing; any
	// other failure is an error.
	Scan(ctx context.Context, owner string) (left []Leftover, unlisted []job.Unlisted, err error)
}

// A Leftover is something that still carries a job's mark.
type Leftover struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
}

// HealthyTarget is the word in TargetInfo.Health for a target that takes traffic.
const HealthyTarget = "healthy"
