package azure

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/zopday/provisioner/internal/bootstrap"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	// probeWait is how long one command watches for the sentinel inside the VM.
	probeWait = 8 * time.Minute
	// probeTimeout is how long the agent lets the command run.
	probeTimeout = probeWait + 2*time.Minute
	// probeName is the command's name: one of its kind on each VM.
	probeName = "zopday-probe"
)

// ExecCommand is what a person types to run a command on a VM. It goes through
// Run Command, so Azure's roles decide who may.
func (p *Provider) ExecCommand(_ *job.Job, vm job.VMInfo) string {
	const what = "--command-id RunShellScript --scripts 'uptime'"
	if group, set := segment(vm.InstanceID, "resourceGroups"), segment(vm.InstanceID, "virtualMachineScaleSets"); set != "" {
		return fmt.Sprintf("az vmss run-command invoke --resource-group %s --name %s --instance-id %s %s", group, set, lastName(vm.InstanceID), what)
	}
	return fmt.Sprintf("az vm run-command invoke --ids %s %s", vm.InstanceID, what)
}

// probeScript looks at the bootstrap, and once it has come through also at the
// key that Azure put there: it has to be gone.
func probeScript() string {
	var left []string
	for _, file := range bootstrap.AuthorizedKeys {
		left = append(left, "[ ! -s "+file+" ]")
	}
	return "(\n" + bootstrap.ProbeScript(probeWait) + "\n)\ncode=$?\n" +
		"if [ \"$code\" -eq 0 ] && ! { " + strings.Join(left, " && ") + "; }; then\n" +
		"echo 'bootstrap failed: an SSH key is still authorized'\nexit 10\nfi\nexit \"$code\"\n"
}

// An asked is a command that this worker has sent to a VM, or found there.
type asked struct {
	since, looked time.Time
	last          cloud.Probe
}

// due reports whether a command is looked at again: less often the longer it
// takes (failure kind H4).
func (a asked) due(r *pipeline.Run) bool {
	if a.looked.IsZero() {
		return true
	}
	age := r.Pace.Cloud(r.Now().Sub(a.since))
	return r.Pace.Cloud(r.Now().Sub(a.looked)) >= min(max(age/4, 5*time.Second), 20*time.Second)
}

// Probe says how far each VM's bootstrap is. A managed run command is put on each
// VM, and waits inside it for the sentinel; it is a resource with a fixed name,
// so that a worker that takes over finds it. The outcome is the command's exit
// code alone: what it prints is for people (failure kinds M4, M5, M10).
func (p *Provider) Probe(ctx context.Context, r *pipeline.Run, vms []job.VMInfo) (map[string]cloud.Probe, error) {
	ctx = view(ctx, r)
	out := map[string]cloud.Probe{}
	var mu sync.Mutex
	var parts []func(context.Context) error
	for _, vm := range vms {
		out[vm.InstanceID] = cloud.Probe{State: cloud.ProbeUnknown}
		if vm.InstanceID == "" || r.Mode != pipeline.Apply {
			continue
		}
		parts = append(parts, func(ctx context.Context) error {
			probe, err := p.probe(ctx, r, vm.InstanceID)
			mu.Lock()
			defer mu.Unlock()
			out[vm.InstanceID] = probe
			return err
		})
	}
	return out, pipeline.All(ctx, parts...)
}

func (p *Provider) probe(ctx context.Context, r *pipeline.Run, vm string) (cloud.Probe, error) {
	key := "probe of " + vm
	a, _ := r.Recall(key).(asked)
	if !a.due(r) {
		return a.last, nil
	}
	id := vm + "/runCommands/" + probeName
	x, err := read[armcompute.VirtualMachineRunCommand](ctx, p, id+withView)
	a.looked = r.Now()
	if a.since.IsZero() {
		a.since = r.Now()
	}
	switch {
	case pipeline.Is(err, pipeline.NotFound):
		a.last, err = p.ask(ctx, id)
		a.since = r.Now()
	case err != nil:
		return a.last, err
	default:
		a.last, err = p.answer(ctx, id, x)
	}
	r.Remember(key, a)
	return a.last, err
}

var noAgent = cloud.Probe{State: cloud.ProbeNoAgent, Detail: "the VM agent does not take commands yet; it needs a way out of the subnet"}

// ask puts the command on a VM. One that does not run yet takes none.
func (p *Provider) ask(ctx context.Context, id string) (cloud.Probe, error) {
	_, _, err := put[armcompute.VirtualMachineRunCommand](ctx, p, id, armcompute.VirtualMachineRunCommand{
		Location: &p.region,
		Properties: &armcompute.VirtualMachineRunCommandProperties{
			AsyncExecution: new(true), TimeoutInSeconds: new(int32(probeTimeout.Seconds())),
			Source: &armcompute.VirtualMachineRunCommandScriptSource{Script: new(probeScript())},
		},
	}, nil)
	switch {
	case err == nil:
		return cloud.Probe{State: cloud.ProbeRunning, Detail: "asked a moment ago"}, nil
	case pipeline.Is(err, pipeline.NotFound, pipeline.Busy), pipeline.Is(err, pipeline.Invalid) && strings.Contains(err.Error(), "running"):
		return noAgent, nil
	}
	return cloud.Probe{State: cloud.ProbeUnknown}, err
}

// answer reads what a command has come to. One that has ended is taken away: it
// would be in the way of the next, and is of no use to anybody.
func (p *Provider) answer(ctx context.Context, id string, x resource[armcompute.VirtualMachineRunCommand]) (cloud.Probe, error) {
	if x.Properties.ProvisioningState == "Deleting" {
		return cloud.Probe{State: cloud.ProbeUnknown, Detail: "the last look has ended"}, nil
	}
	v := value(value(x.is.Properties).InstanceView)
	probe := cloud.Probe{State: cloud.ProbeRunning, Detail: strings.TrimSpace(value(v.Output))}
	switch state := value(v.ExecutionState); {
	case x.Properties.ProvisioningState == "Failed" && v.EndTime == nil:
		probe = noAgent
	case state == armcompute.ExecutionStateRunning:
		return probe, nil
	case state == armcompute.ExecutionStatePending, state == armcompute.ExecutionStateUnknown, state == "":
		return noAgent, nil
	case value(v.ExitCode) == bootstrap.ProbeFailed:
		probe.State = cloud.ProbeFailed
	case value(v.ExitCode) == bootstrap.ProbeComplete && state == armcompute.ExecutionStateSucceeded:
		probe.State = cloud.ProbeReady
	case value(v.ExitCode) == bootstrap.ProbeRunning:
	default:
		probe.State, probe.Detail = cloud.ProbeUnknown, strings.TrimSpace(string(state)+" "+value(v.ExecutionMessage))
	}
	if _, err := p.remove(ctx, id); err != nil && !pipeline.Is(err, pipeline.NotFound, pipeline.Busy) {
		return cloud.Probe{State: cloud.ProbeUnknown}, err
	}
	return probe, nil
}
