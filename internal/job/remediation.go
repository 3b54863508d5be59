package job

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
)

// RemediationAction is what a remediation job does to its subject.
type RemediationAction string

// The actions. Pause holds a pool at nothing; scale_to_zero empties it, and lets
// its own scaling bring machines back where the cloud can; resume and restore
// put back exactly what the last of either found.
const (
	ActionPause       RemediationAction = "pause"
	ActionResume      RemediationAction = "resume"
	ActionScaleToZero RemediationAction = "scale_to_zero"
	ActionRestore     RemediationAction = "restore"
)

// RemediationActions are all of them.
var RemediationActions = []RemediationAction{ActionPause, ActionResume, ActionScaleToZero, ActionRestore}

// Stops reports whether the action takes machines away, rather than giving them back.
func (a RemediationAction) Stops() bool { return a == ActionPause || a == ActionScaleToZero }

// RemediationSpec is what a user asks for in a remediation job.
type RemediationSpec struct {
	Action       RemediationAction `json:"action" enum:"pause,resume,scale_to_zero,restore" doc:"What to do"`
	JobID        string            `json:"jobId" doc:"ID or name of the VM or cluster job that has the pool"`
	Pool         string            `json:"pool,omitempty" doc:"Clusters: the node pool's name; by default all but Azure's system pool"`
	Reason       string            `json:"reason,omitempty" doc:"Why, for the history"`
	Force        bool              `json:"force,omitempty" doc:"resume and restore: go on although the pool was changed since it was paused; what differs is overwritten"`
	AllowAdopted bool              `json:"allowAdopted,omitempty" doc:"Act on a pool that its job only adopted"`
}

// Remediation decodes the spec of a remediation job. A field that the schema does
// not have is an *Invalid that names it.
func (j *Job) Remediation() (RemediationSpec, error) {
	var s RemediationSpec
	return s, strictly(j.Config.Spec, &s)
}

// PoolKind is what a pool is at its cloud. Only these are ever paused.
type PoolKind string

// The kinds of pools.
const (
	PoolEC2Instances PoolKind = "ec2-instance"
	PoolScalingGroup PoolKind = "asg"
	PoolGCEInstances PoolKind = "gce-instance"
	PoolManagedGroup PoolKind = "mig"
	PoolScaleSet     PoolKind = "vmss"
	PoolEKSNodes     PoolKind = "eks-node-pool"
	PoolGKENodes     PoolKind = "gke-node-pool"
	PoolAKSNodes     PoolKind = "aks-node-pool"
)

// A PoolRef names a pool at a cloud.
type PoolRef struct {
	Kind      PoolKind    `json:"kind"`
	Name      string      `json:"name"`                // "vms", or the node pool's
	ID        string      `json:"id,omitempty"`        // the group's or set's
	Cluster   *ClusterRef `json:"cluster,omitempty"`   // node pools
	Instances []string    `json:"instances,omitempty"` // IDs, where the VMs have names of their own
}

// VMPoolName is the name of the one pool of a VM job.
const VMPoolName = "vms"

// Power says whether a VM runs.
type Power string

// The powers. What is between two of them is told by PoolState.Busy.
const (
	PowerRunning Power = "running"
	PowerStopped Power = "stopped"
	PowerGone    Power = "gone"
)

// A PoolState is how a pool stands at its cloud.
type PoolState struct {
	Min         int              `json:"min"`
	Max         int              `json:"max"`
	Desired     int              `json:"desired"`
	Autoscaling string           `json:"autoscaling,omitempty"` // the cloud's own word for the autoscaler's mode; "": it has none
	Suspended   []string         `json:"suspended,omitempty"`   // AWS: suspended processes, sorted
	Instances   map[string]Power `json:"instances,omitempty"`   // by ID, where the VMs have names of their own

	// Step is in what multiples the cloud sets the size: GKE by zone. 0 is 1.
	Step int `json:"step,omitempty"`
	// System marks Azure's pool that the cluster itself runs on.
	System bool `json:"system,omitempty"`

	// None of these is compared. Running counts the machines that are there, Busy
	// is why the cloud takes no change now, Settling what its machines are doing.
	Running  int    `json:"running"`
	Busy     string `json:"busy,omitempty"`
	Settling string `json:"settling,omitempty"`
}

// Scales reports whether something at the cloud chooses the size between Min and
// Max, so that Desired moves by itself.
func (s PoolState) Scales(kind PoolKind) bool {
	switch kind {
	case PoolScalingGroup, PoolEKSNodes:
		return s.Min < s.Max && !slices.Contains(s.Suspended, "AlarmNotification")
	case PoolManagedGroup, PoolScaleSet, PoolGKENodes, PoolAKSNodes:
		return s.Autoscaling != "" && !strings.EqualFold(s.Autoscaling, "off")
	}
	return false
}

// Differs names what of the pool is not as wanted. exactly: also a size that
// moves by itself.
func (s PoolState) Differs(kind PoolKind, want PoolState, exactly bool) []PoolDifference {
	var out []PoolDifference
	add := func(attr, wanted, seen string) {
		if wanted != seen {
			out = append(out, PoolDifference{attr, wanted, seen})
		}
	}
	add("autoscaling", cmp.Or(want.Autoscaling, "none"), cmp.Or(s.Autoscaling, "none"))
	add("suspended processes", cmp.Or(strings.Join(want.Suspended, ", "), "none"), cmp.Or(strings.Join(s.Suspended, ", "), "none"))
	add("min", fmt.Sprint(want.Min), fmt.Sprint(s.Min))
	add("max", fmt.Sprint(want.Max), fmt.Sprint(s.Max))
	if exactly || !want.Scales(kind) || s.Desired < s.Min || s.Desired > s.Max {
		add("size", fmt.Sprint(want.Desired), fmt.Sprint(s.Desired))
	}
	for _, id := range sortedIDs(want.Instances) {
		add("instance "+id, string(want.Instances[id]), string(cmp.Or(s.Instances[id], PowerGone)))
	}
	return out
}

// A PoolDifference is one attribute of a pool that is not as wanted.
type PoolDifference struct{ Attr, Wanted, Seen string }

func (d PoolDifference) String() string {
	return fmt.Sprintf("%s is %s and not %s", d.Attr, d.Seen, d.Wanted)
}

// Foreign names what is neither as before a change nor as after it: somebody else
// has changed it.
func (s PoolState) Foreign(kind PoolKind, before, after PoolState) []PoolDifference {
	var out []PoolDifference
	was := s.Differs(kind, before, true)
	for _, d := range s.Differs(kind, after, false) {
		if slices.ContainsFunc(was, func(b PoolDifference) bool { return b.Attr == d.Attr }) {
			out = append(out, d)
		}
	}
	return out
}

// Stopped is the state in which an action leaves a pool that is in state s.
func (s PoolState) Stopped(kind PoolKind, action RemediationAction) PoolState {
	after := PoolState{Min: s.Min, Max: s.Max, Autoscaling: s.Autoscaling, Suspended: s.Suspended, Step: s.Step, System: s.System}
	switch kind {
	case PoolEC2Instances, PoolGCEInstances:
		after.Instances = stopped(s.Instances)
	case PoolScalingGroup:
		after.Min = 0
		if action == ActionPause {
			after.Max, after.Suspended = 0, union(s.Suspended, SuspendWhilePaused)
		}
	case PoolManagedGroup, PoolScaleSet:
		// An autoscaler of Compute Engine keeps one VM at least, and one of Azure's
		// scale sets the least of its profile: it is off, or the pool is not empty.
		if s.Instances != nil {
			after.Instances = stopped(s.Instances)
		}
		if s.Autoscaling != "" {
			after.Autoscaling = AutoscalingOff
		}
	case PoolEKSNodes:
		after.Min, after.Max = 0, max(s.Max, 1) // EKS takes no maximum of 0
	case PoolGKENodes, PoolAKSNodes:
		after.Min, after.Max = 0, 0
		if s.Autoscaling != "" {
			after.Autoscaling = AutoscalingOff
		}
	}
	return after
}

// AutoscalingOff and AutoscalingOn are the modes of an autoscaler that every cloud has.
const (
	AutoscalingOff = "OFF"
	AutoscalingOn  = "ON"
)

// SuspendWhilePaused are the processes that would change a paused scaling group's
// size, or its VMs. Launch and Terminate stay: the group ends its VMs itself
// ("Suspend and resume Amazon EC2 Auto Scaling processes").
var SuspendWhilePaused = []string{"AZRebalance", "AlarmNotification", "ScheduledActions"}

// Machines is how many machines a pool in this state has.
func (s PoolState) Machines() int {
	if s.Instances == nil {
		return s.Desired
	}
	n := 0
	for _, p := range s.Instances {
		if p == PowerRunning {
			n++
		}
	}
	return n
}

// A PoolChange is what a remediation job does to one pool. Before is stored
// before anything is changed.
type PoolChange struct {
	PoolRef
	Before PoolState `json:"before"`
	After  PoolState `json:"after"`
	Undoes string    `json:"undoes,omitempty"` // the job whose change is taken back
	// Reached: the pool was seen as After says. From then on its own scaling may
	// choose another size.
	Reached bool `json:"reached,omitempty"`
	// Sent: the cloud was told, and the answer may have been lost.
	Sent bool `json:"sent,omitempty"`
}

// RemediationInfo is what the steps of a remediation job learned.
type RemediationInfo struct {
	SubjectJob  string            `json:"subjectJob,omitempty"`
	SubjectName string            `json:"subjectName,omitempty"`
	Action      RemediationAction `json:"action,omitempty"`
	Schedule    string            `json:"schedule,omitempty"` // the schedule that made the job
	Pools       []PoolChange      `json:"pools,omitempty"`
	// BeganAt: Pools is complete and may be acted on. VerifiedAt: every pool was
	// read back as wanted.
	BeganAt    *time.Time `json:"beganAt,omitempty"`
	VerifiedAt *time.Time `json:"verifiedAt,omitempty"`
}

// Pool finds the change of a pool by its name; nil if there is none.
func (r *RemediationInfo) Pool(name string) *PoolChange {
	for i := range r.Pools {
		if r.Pools[i].Name == name {
			return &r.Pools[i]
		}
	}
	return nil
}

// Pools are the pools of a VM or cluster job that can be acted on.
func (j *Job) Pools() []PoolRef {
	infra := &j.Config.InfraConfig
	switch j.ResourceType {
	case VM:
		ref := PoolRef{Name: VMPoolName, ID: infra.ScalingGroupID}
		kinds := map[Provider][2]PoolKind{AWS: {PoolEC2Instances, PoolScalingGroup}, GCP: {PoolGCEInstances, PoolManagedGroup}, Azure: {PoolScaleSet, PoolScaleSet}}[j.Provider]
		ref.Kind = kinds[1]
		if ref.ID == "" {
			ref.Kind = kinds[0]
			for _, vm := range infra.VMs {
				if vm.InstanceID != "" {
					ref.Instances = append(ref.Instances, vm.InstanceID)
				}
			}
			if len(ref.Instances) == 0 {
				return nil
			}
		}
		return []PoolRef{ref}
	case Cluster:
		cluster := j.ClusterRef()
		kind := map[Provider]PoolKind{AWS: PoolEKSNodes, GCP: PoolGKENodes, Azure: PoolAKSNodes}[j.Provider]
		var out []PoolRef
		for _, n := range infra.Cluster.NodePools {
			out = append(out, PoolRef{Kind: kind, Name: n.Name, ID: n.ID, Cluster: &cluster})
		}
		return out
	}
	return nil
}

// LastChanges is, for each pool of a subject by its name, the change that a
// remediation job has begun last. One that was cancelled or failed counts as soon as
// it began: it may have changed something.
type LastChanges map[string]LastChange

// Add takes a remediation job in, in whatever order they come: what counts is when
// a job began, and not when it was made.
func (l LastChanges) Add(j *Job) {
	info := j.Config.InfraConfig.Remediation
	if info == nil || info.BeganAt == nil {
		return
	}
	for _, p := range info.Pools {
		if last, known := l[p.Name]; !known || last.BeganAt.Before(*info.BeganAt) {
			l[p.Name] = LastChange{Job: j, Action: info.Action, PoolChange: p, BeganAt: *info.BeganAt, Finished: info.VerifiedAt != nil}
		}
	}
}

// Since is when the longest ago of the pools' last changes began; false if one of
// them has none.
func (l LastChanges) Since(pools []string) (oldest time.Time, ok bool) {
	for i, name := range pools {
		last, known := l[name]
		if !known {
			return time.Time{}, false
		}
		if i == 0 || last.BeganAt.Before(oldest) {
			oldest = last.BeganAt
		}
	}
	return oldest, len(pools) > 0
}

// A LastChange is the last thing that was done to a pool.
type LastChange struct {
	PoolChange
	Job      *Job
	Action   RemediationAction
	BeganAt  time.Time
	Finished bool // it was seen through and read back
}

// Open reports whether there is something to take back: a pause or a scale to
// zero, or a resume that did not end.
func (c LastChange) Open() bool { return c.Job != nil && (c.Action.Stops() || !c.Finished) }

// validateRemediation checks what needs no cloud and no other job.
func (j *Job) validateRemediation(inv *Invalid) {
	spec, err := j.Remediation()
	if bad, ok := err.(*Invalid); ok { //nolint:errorlint // strictly returns nothing else
		inv.Fields = append(inv.Fields, bad.Fields...)
		return
	}
	if !slices.Contains(RemediationActions, spec.Action) {
		inv.add("config.spec.action", fmt.Sprintf("%.40q is not an action", string(spec.Action)), "use pause, resume, scale_to_zero or restore")
	}
	if spec.JobID == "" {
		inv.add("config.spec.jobId", "is missing", "name the VM or cluster job that has the pool")
	}
	if len(spec.Reason) > 500 || strings.ContainsFunc(spec.Reason, unicode.IsControl) {
		inv.add("config.spec.reason", "is too long, or has control characters", "use 500 printable characters at most")
	}
	if spec.Force && spec.Action.Stops() {
		inv.add("config.spec.force", "is for resume and restore", "leave it out")
	}
	if spec.Pool != "" && j.ResourceType == VM && spec.Pool != VMPoolName {
		inv.add("config.spec.pool", "is for clusters: a VM job has one pool", "leave it out")
	}
	if j.Mode != ModeCreate {
		inv.add("mode", "is for provisioning jobs", "leave it out")
	}
}

func stopped(instances map[string]Power) map[string]Power {
	out := map[string]Power{}
	for id, p := range instances {
		if out[id] = p; p == PowerRunning {
			out[id] = PowerStopped
		}
	}
	return out
}

func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return out
}

func sortedIDs(m map[string]Power) []string {
	ids := make([]string, 0, len(m))
	for id := range m {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}
