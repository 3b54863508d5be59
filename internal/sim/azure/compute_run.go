package azure

import (
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// The limits of run commands ("Run scripts in your Linux VM by using action Run Commands", "… managed Run Commands").
const (
	maxRunOutput = 4096
	maxRunTime   = 90 * time.Minute
	// agentPatience is how long the platform waits for an agent that does not report.
	agentPatience = 20 * time.Minute
)

const (
	vmRunType       = vmType + "/runCommands"
	instanceRunType = instanceType + "/runCommands"
)

// A Run is a script on its way through a machine.
type Run struct {
	Machine string // ID
	// Operation is that of an action, Resource the ID of a managed run command.
	Operation, Resource string
	Script              string
	Requested, Started  time.Time
	// Patience is when the script would give up waiting for a system that is still starting up.
	Patience                 time.Time
	Limit                    time.Duration
	Async, Strict, Cancelled bool
	// What it has come to.
	State, Message string
	Exit           int
	Stdout, Stderr string
	Ended          time.Time
}

func (c *Cloud) addRunCommands() {
	for _, typ := range []string{vmRunType, instanceRunType} {
		model, patch := func() any { return &armcompute.VirtualMachineRunCommand{} }, func() any { return &armcompute.VirtualMachineRunCommandUpdate{} }
		title := "VirtualMachineRunCommands"
		if typ == instanceRunType {
			title = "VirtualMachineScaleSetVMRunCommands"
		}
		c.addKind(&kind{typ: typ, service: computeService, title: title, versions: computeVersions, tracked: true, noEtag: true, says: computeDialect,
			model: model, patchModel: patch, put: c.putRunCommand, mergePatch: true, show: c.showRun, polling: computePolling, stamped: true,
			remove: func(_ *request, res *Resource) (outcome, error) {
				if run := c.guests.state.Runs[res.Properties.str("run")]; run != nil {
					run.Cancelled = true
				}
				return outcome{status: http.StatusAccepted, takes: 10 * time.Second, state: stateDeleting, style: asyncLocation, empty: true}, nil
			}})
	}
	c.handle(
		route{method: "GET", pattern: "/subscriptions/{subscription}/providers/Microsoft.Compute/locations/{location}/runCommands", service: computeService,
			operation: "RunCommands_List", versions: computeVersions, serve: func(r *request) (answer, error) {
				return r.page([]any{shellDocument(false)}, "$skiptoken")
			}},
		route{method: "GET", pattern: "/subscriptions/{subscription}/providers/Microsoft.Compute/locations/{location}/runCommands/{command}", service: computeService,
			operation: "RunCommands_Get", versions: computeVersions, serve: func(r *request) (answer, error) {
				if !strings.EqualFold(r.vars["command"], "RunShellScript") {
					return answer{}, entityNotFound()
				}
				return plain(shellDocument(true)), nil
			}})
}

func shellDocument(whole bool) map[string]any {
	d := map[string]any{"$schema": "http://schema.management.azure.com/schemas/2016-11-17/runcommands.json", "id": "RunShellScript", "osType": "Linux",
		"label": "Executes a Linux shell script", "description": "Executes a Linux shell script"}
	if whole {
		d["script"], d["parameters"] = []any{"echo This is a sample script"}, []any{}
	}
	return d
}

// runnable refuses scripts for machines that cannot take any.
func (c *Cloud) runnable(vm *Resource, m *Guest) *Error {
	switch {
	case m == nil || m.Power != "running":
		return refuse(http.StatusConflict, "OperationNotAllowed", "The operation requires the VM to be running (or set to run).")
	case !c.profileOf(vm).flag("allowExtensionOperations"):
		return refuse(http.StatusConflict, "OperationNotAllowed", "This operation cannot be performed when extension operations are disallowed. To allow, please ensure VM Agent is installed on the VM and the osProfile.allowExtensionOperations property is true.")
	}
	return nil
}

// profileOf is the osProfile of a machine; an instance that has just been made may not have one yet.
func (c *Cloud) profileOf(vm *Resource) doc {
	if p := vm.Properties.sub("osProfile"); p != nil {
		return p
	}
	return doc{"allowExtensionOperations": true}
}

// runCommand runs a script as an action. One machine runs one of them at a time, and how the script ended shows in its
// output only: a failed one ends just as well (issue 14425 of Azure/azure-cli).
func (c *Cloud) runCommand(r *request, vm *Resource) (answer, error) {
	if err := c.vmGuard(r, vm.ID); err != nil {
		return answer{}, err
	}
	body, err := r.input(computeDialect, func() any { return &armcompute.RunCommandInput{} })
	if err != nil {
		return answer{}, err
	}
	if body.str("commandId") == "" {
		return answer{}, missingParameter("commandId")
	}
	if !strings.EqualFold(body.str("commandId"), "RunShellScript") {
		return answer{}, entityNotFound()
	}
	m := c.guests.of(vm.ID)
	if e := c.runnable(vm, m); e != nil {
		return answer{}, e
	}
	if m.Busy != "" {
		return answer{}, refuse(http.StatusConflict, "Conflict", "Run command extension execution is in progress. Please wait for completion before invoking a run command.")
	}
	script := strings.Join(body.strs("script"), "\n")
	if script == "" {
		script = "echo This is a sample script"
	}
	r.Make(vm.ID)
	h := c.begin(r, vm, "runCommand", outcome{takes: agentPatience + maxRunTime + time.Minute, style: asyncLocation, retryAfter: 10})
	m.Busy = c.startRun(&Run{Machine: vm.ID, Operation: vm.Operation, Script: exports(body) + script, Limit: maxRunTime})
	return answer{status: http.StatusAccepted, header: h}, nil
}

// exports hands the parameters of a run command to its script.
func exports(body doc) string {
	var b strings.Builder
	for _, list := range []string{"parameters", "protectedParameters"} {
		for _, p := range body.docs(list) {
			b.WriteString("export " + p.str("name") + "='" + strings.ReplaceAll(p.str("value"), "'", `'\''`) + "'\n")
		}
	}
	return b.String()
}

// putRunCommand makes a managed run command, or runs one again.
func (c *Cloud) putRunCommand(_ *request, now, old *Resource) (outcome, error) {
	vm := c.find(parentOf(now.ID))
	m := c.guests.of(vm.ID)
	if e := c.runnable(vm, m); e != nil {
		return outcome{}, e
	}
	p := now.Properties
	if old != nil {
		inherit(now, old, "source", "timeoutInSeconds", "parameters", "asyncExecution", "treatFailureAsDeploymentFailure")
	}
	script := p.str("source.script")
	switch {
	case p.sub("source") == nil:
		return outcome{}, missingParameter("source")
	case script == "" && p.str("source.commandId") == "":
		return outcome{}, invalidParameter("source", "Run command source must have one of script, scriptUri, commandId or galleryScriptReferenceId; only script can be fetched here.")
	}
	limit := time.Duration(p.num("timeoutInSeconds")) * time.Second
	if limit == 0 {
		limit = maxRunTime
	}
	run := &Run{Machine: vm.ID, Resource: now.ID, Script: exports(p) + script, Limit: limit, Async: p.flag("asyncExecution"), Strict: p.flag("treatFailureAsDeploymentFailure")}
	p["run"] = c.startRun(run)
	p.def("asyncExecution", false)
	p.def("timeoutInSeconds", limit.Seconds())
	p.def("treatFailureAsDeploymentFailure", false)
	delete(p, "protectedParameters")
	delete(p, "runAsPassword")
	out := outcome{state: stateCreating, takes: agentPatience + limit + time.Minute, style: asyncHeader, retryAfter: 10}
	if old != nil {
		out.state = stateUpdating
	}
	return out, nil
}

// showRun hides the bookkeeping of a managed run command, and shows its instance view to whoever asks for it.
func (c *Cloud) showRun(r *request, _ *Resource, body doc) {
	p := body.sub("properties")
	run := c.guests.state.Runs[p.str("run")]
	delete(p, "run")
	if run == nil || !strings.Contains(strings.ToLower(r.query.Get("$expand")), "instanceview") {
		return
	}
	v := map[string]any{"executionState": run.State, "executionMessage": run.Message, "exitCode": run.Exit, "output": tail(run.Stdout), "error": tail(run.Stderr), "statuses": []any{}}
	if !run.Started.IsZero() {
		v["startTime"] = stamp(run.Started)
	}
	if !run.Ended.IsZero() {
		v["endTime"] = stamp(run.Ended)
	}
	p["instanceView"] = v
}

// tail is what is kept of an output: its end.
func tail(s string) string {
	if len(s) > maxRunOutput {
		return s[len(s)-maxRunOutput:]
	}
	return s
}

// startRun lets a script set off to its machine.
func (c *Cloud) startRun(run *Run) string {
	id := c.World.UUID()
	run.State, run.Requested = "Pending", c.World.Now()
	c.guests.state.Runs[id] = run
	c.after(c.pace(time.Second, 4*time.Second, "run"+id), computeService, "run", id+"|deliver")
	return id
}

// runEvent takes a script one part further on its way.
func (c *Cloud) runEvent(key string) {
	id, step, _ := strings.Cut(key, "|")
	run := c.guests.state.Runs[id]
	if run == nil || !run.Ended.IsZero() && step != "forget" {
		return
	}
	vm, m := c.find(run.Machine), c.guests.of(run.Machine)
	switch {
	case step == "forget":
		delete(c.guests.state.Runs, id)
	case vm == nil || m == nil || run.Cancelled:
		c.endRun(id, run, m)
	case step == "deliver":
		c.deliver(id, run, vm, m)
	case step == "finish":
		if m.Power != "running" {
			run.State, run.Message, run.Exit = "Failed", "The VM has been stopped while the script ran", -1
		}
		c.endRun(id, run, m)
	}
}

// deliver runs a script when the agent is there to take it. A script that waits for something while the system is still
// starting up goes on waiting until it is up, and then sees what the start has brought.
func (c *Cloud) deliver(id string, run *Run, vm *Resource, m *Guest) {
	now := c.World.Now()
	if !c.guests.agentReady(m) {
		if now.Sub(run.Requested) > agentPatience {
			c.abandonRun(id, run, vm, m)
			return
		}
		c.after(5*time.Second, computeService, "run", id+"|deliver")
		return
	}
	if run.Started.IsZero() {
		run.Started, run.State, run.Message = now, "Running", "Execution in progress"
		if res := c.find(run.Resource); res != nil && run.Async {
			c.endRunOperation(res.Operation)
		}
	}
	if m.Machine.CloudInit == "running" {
		if run.Patience.IsZero() {
			run.Patience = now.Add(min(m.Machine.Clone().Run(run.Script, c.guests.env(vm)).Took, run.Limit))
		}
		if run.Patience.Sub(now) > time.Second {
			c.after(time.Second, computeService, "run", id+"|deliver")
			return
		}
	}
	spent := now.Sub(run.Started)
	result := c.guests.run(vm, m, run.Script)
	run.Stdout, run.Stderr, run.Exit = result.Stdout, result.Stderr, result.Exit
	took := max(result.Took-spent, 0)
	run.State, run.Message = "Succeeded", "Execution completed"
	switch {
	case took > run.Limit-spent:
		took = run.Limit - spent
		run.State, run.Message, run.Exit = "TimedOut", "Execution timed out", -1
	case result.Exit != 0:
		run.State, run.Message = "Failed", "Execution completed"
	}
	// Until it has taken its time, nobody sees how it ends.
	end := run.State
	run.State = "Running"
	c.guests.state.Ends[id] = end
	c.after(took+time.Second, computeService, "run", id+"|finish")
}

// abandonRun gives up on a machine whose agent does not report.
func (c *Cloud) abandonRun(id string, run *Run, vm *Resource, m *Guest) {
	e := refuse(http.StatusConflict, "VMAgentStatusCommunicationError", "VM '%s' has not reported status for VM agent or extensions. Verify that the OS is up and healthy, the VM has a running VM agent, and that it can establish outbound connections to Azure storage. Please refer to https://aka.ms/vmextensionlinuxtroubleshoot for additional VM agent troubleshooting information.", vm.Name)
	run.State, run.Message, run.Ended = "Failed", e.Message, c.World.Now()
	if m.Busy == id {
		m.Busy = ""
	}
	s := c.shelves[computeService]
	if run.Resource != "" {
		_ = s.SetState(run.Resource, stateFailed, e.Code, e.Message) // it may have been deleted meanwhile
		return
	}
	if op := s.state.Operations[run.Operation]; op != nil && op.Status == statusInProgress {
		op.Status, op.Error, op.Ends = statusFailed, e, c.World.Now()
		if vm.Operation == op.ID {
			vm.Operation = ""
		}
	}
}

// endRun makes known how a script has ended.
func (c *Cloud) endRun(id string, run *Run, m *Guest) {
	run.Ended = c.World.Now()
	if end := c.guests.state.Ends[id]; end != "" && run.State == "Running" {
		run.State = end
	}
	delete(c.guests.state.Ends, id)
	if run.Cancelled {
		run.State, run.Message = "Canceled", "Execution was cancelled"
	}
	if m != nil && m.Busy == id {
		m.Busy = ""
	}
	c.after(24*time.Hour, computeService, "run", id+"|forget")
	if res := c.find(run.Resource); res != nil {
		if run.Strict && run.State != "Succeeded" {
			_ = c.shelves[computeService].SetState(res.ID, stateFailed, "VMExtensionProvisioningError", "VM has reported a failure when processing run command '"+res.Name+"'. Error message: '"+run.Message+"'.") // it was just found
			return
		}
		c.endRunOperation(res.Operation)
		return
	}
	op := c.shelves[computeService].state.Operations[run.Operation]
	if op == nil {
		return
	}
	value := map[string]any{"value": []any{map[string]any{"code": "ProvisioningState/succeeded", "level": "Info", "displayStatus": "Provisioning succeeded",
		"message": "Enable succeeded: \n[stdout]\n" + tail(run.Stdout) + "\n[stderr]\n" + tail(run.Stderr)}}}
	op.Properties, op.Result = map[string]any{"output": value}, value
	c.endRunOperation(op.ID)
}

func (c *Cloud) endRunOperation(id string) {
	s := c.shelves[computeService]
	if op := s.state.Operations[id]; op != nil && op.Status == statusInProgress {
		op.Ends = c.World.Now()
		c.finish(s, id)
	}
}
