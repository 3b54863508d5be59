package gcp

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// running begins an instance's run: it starts its system.
func (e *Compute) running(res *Resource) {
	res.Making = false
	res.Doc["status"] = "RUNNING"
	res.Doc["lastStartTimestamp"] = computeTime(e.cloud.World.Now())
	res.Doc["cpuPlatform"] = cpuPlatform(res.Doc)
	e.renewExternal(res)
	e.touchInstance(res)
	e.boot(res)
	e.instanceChanged(res.Path)
}

func cpuPlatform(doc Doc) string {
	if t, ok := machineTypes[lastPart(str(doc, "machineType"))]; ok {
		return t.family.cpu
	}
	return "Unknown CPU Platform"
}

// touchInstance renews an instance's fingerprint after a change.
func (e *Compute) touchInstance(res *Resource) {
	e.st.Seq++
	res.Doc["fingerprint"] = fingerprint([]any{res.ID, e.st.Seq})
}

// showInstance shows the states that only exist while an operation runs.
func (e *Compute) showInstance(res *Resource, doc Doc) {
	if str(doc, "status") != "RUNNING" {
		doc["cpuPlatform"] = "Unknown CPU Platform"
	}
}

// refuseInstanceDelete protects an instance with deletionProtection ("Prevent accidental VM deletion").
func (e *Compute) refuseInstanceDelete(_ *request, res *Resource) error {
	if truth(res.Doc, "deletionProtection") {
		return refuse(400, "invalidUsage", "Invalid resource usage: 'Resource cannot be deleted if it's protected against deletion.'.")
	}
	return nil
}

// stoppingInstance begins the end of an instance.
func (e *Compute) stoppingInstance(res *Resource) {
	if s := str(res.Doc, "status"); s == "RUNNING" || s == "SUSPENDED" {
		res.Doc["status"] = "STOPPING"
	}
	e.halt(res.Path)
	e.instanceChanged(res.Path)
}

// instanceGone frees what an instance had: disks that go with it, its place in groups, its inside.
func (e *Compute) instanceGone(res *Resource) {
	e.dropDisks(res)
	delete(e.st.VM.Guests, res.Path)
	e.forgetHealth(func(_, instance string) bool { return instance == res.Path })
	e.leaveGroups(res.Path)
	e.instanceChanged(res.Path)
}

// instanceKept puts an instance back into the state that it had before an operation that failed; if it ran, it runs anew.
func (e *Compute) instanceKept(op *Operation, res *Resource) {
	before := orText(op.Args["from"], "RUNNING")
	if s := str(res.Doc, "status"); s != "STOPPING" && s != "SUSPENDING" && s != "PROVISIONING" && s != "STAGING" {
		return
	}
	if before == "RUNNING" {
		e.running(res)
		return
	}
	res.Doc["status"] = before
}

// setInstanceState drives an instance to a state from outside.
func (e *Compute) setInstanceState(res *Resource, state, _, message string) error {
	switch state {
	case "":
		return fmt.Errorf("an instance has no state in which its creation fails: the insert operation fails")
	case "RUNNING":
		if str(res.Doc, "status") != "RUNNING" {
			e.running(res)
		}
		return nil
	case "PROVISIONING", "STAGING", "STOPPING", "STOPPED", "TERMINATED", "SUSPENDING", "SUSPENDED", "REPAIRING", "PENDING_STOP":
		e.stopped(res, state)
		if message != "" {
			res.Doc["statusMessage"] = message
		}
		return nil
	}
	return fmt.Errorf("an instance has no state %q", state)
}

// stopped takes an instance out of its run.
func (e *Compute) stopped(res *Resource, state string) {
	res.Doc["status"] = state
	now := computeTime(e.cloud.World.Now())
	switch state {
	case "TERMINATED":
		res.Doc["lastStopTimestamp"] = now
	case "SUSPENDED":
		res.Doc["lastSuspendedTimestamp"] = now
	}
	if state == "TERMINATED" || state == "SUSPENDED" {
		e.dropExternal(res)
	}
	e.touchInstance(res)
	e.halt(res.Path)
	e.instanceChanged(res.Path)
}

// vmStateEvent is what happens to an instance between the begin and the end of its operation.
func (e *Compute) vmStateEvent(key string) {
	path, rest, _ := strings.Cut(key, "|")
	state, id, _ := strings.Cut(rest, "|")
	if res := e.st.Resources[path]; res != nil && res.ID == id && res.Busy != "" && str(res.Doc, "status") == "PROVISIONING" {
		res.Doc["status"] = state
	}
}

// A power is one of the methods that switch an instance on and off.
type power struct {
	from    []string // states in which it does something; in its final state it does nothing, and that works
	through string   // the state while the operation runs
	to      string
	takes   time.Duration
	refusal string // in any other state
}

var powers = map[string]power{
	"stop":    {[]string{"RUNNING", "SUSPENDED", "PROVISIONING", "STAGING"}, "STOPPING", "TERMINATED", stopTakes, ""},
	"start":   {[]string{"TERMINATED"}, "PROVISIONING", "RUNNING", runningAfter, "Instance is suspended. To resume it, use the resume method."},
	"suspend": {[]string{"RUNNING"}, "SUSPENDING", "SUSPENDED", suspendTakes, "Instance is not running."},
	"resume":  {[]string{"SUSPENDED"}, "PROVISIONING", "RUNNING", runningAfter, "Instance is not suspended."},
	"reset":   {[]string{"RUNNING"}, "RUNNING", "RUNNING", setTakes, "Instance is not running."},
}

// switchInstance carries one of the powers out.
func (e *Compute) switchInstance(verb string) operation {
	p := powers[verb]
	return func(r *request) (any, error) {
		res, err := e.change(r, e.kinds["instances"])
		if err != nil {
			return nil, err
		}
		state := str(res.Doc, "status")
		if state == p.to && verb != "reset" {
			return e.start(r, change{Type: verb, Target: res, Takes: time.Second, Action: actNothing}), nil
		}
		if !slices.Contains(p.from, state) {
			return nil, refuse(400, "resourceNotReady", "The resource '%s' is not ready. %s", res.Path, p.refusal)
		}
		ch := change{Type: verb, Target: res, Takes: p.takes, Action: "vm-power", Args: map[string]string{"to": p.to, "from": state}}
		if p.to == "RUNNING" && state != "RUNNING" {
			if err := e.chargeStart(res); err != nil {
				return nil, err
			}
			if failed := e.placement(r.Call, res); failed != nil {
				ch.Args["code"], ch.Args["message"] = failed.Reason, failed.Message
			}
			e.later(stagingAfter, "vm-state", res.Path+"|STAGING|"+res.ID)
		}
		res.Doc["status"] = p.through
		if p.through == "STOPPING" || p.through == "SUSPENDING" {
			e.halt(res.Path)
			e.instanceChanged(res.Path)
		}
		return e.start(r, ch), nil
	}
}

// chargeStart checks the quotas that a stopped instance counts towards again.
func (e *Compute) chargeStart(res *Resource) error {
	before := res.Doc["status"]
	res.Doc["status"] = "PROVISIONING"
	err := e.checkQuota(e.kinds["instances"], res)
	res.Doc["status"] = before
	return err
}

// donePower ends a switch: the instance is in its new state, or back in the old one.
func (e *Compute) donePower(op *Operation, res *Resource) error {
	if code := op.Args["code"]; code != "" {
		res.Doc["status"] = op.Args["from"]
		return refuse(0, code, "%s", op.Args["message"])
	}
	if to := op.Args["to"]; to == "RUNNING" {
		e.running(res)
	} else {
		e.stopped(res, to)
	}
	return nil
}
