package aws

import (
	"strings"
	"time"
)

type instancesIn struct {
	InstanceID []string `q:"InstanceId"`
	Force      bool
}

type stateChange struct {
	InstanceID string    `ec2:"instanceId"`
	Current    stateCode `ec2:"currentState"`
	Previous   stateCode `ec2:"previousState"`
}

type stateChanges struct {
	Changes []stateChange `ec2:"instancesSet"`
}

// instances finds the instances of a request; one that is missing fails the whole request.
func (sc *ec2Scope) instances(ids []string) ([]*Instance, error) {
	if len(ids) == 0 {
		return nil, missing("InstanceId")
	}
	if err := malformed(ids); err != nil {
		return nil, err
	}
	var out []*Instance
	var lacking []string
	for _, id := range ids {
		if i := sc.Instances[id]; i != nil {
			out = append(out, i)
		} else {
			lacking = append(lacking, id)
		}
	}
	if len(lacking) == 1 {
		return nil, noInstance(lacking[0])
	}
	if len(lacking) > 1 {
		return nil, refuse("InvalidInstanceID.NotFound", "The instance IDs '%s' do not exist", strings.Join(lacking, ", "))
	}
	return out, nil
}

// How long instances take to change state, as a rule.
const (
	startTime    = 6 * time.Second
	stopTime     = 20 * time.Second
	shutdownTime = 25 * time.Second
	checksTime   = 90 * time.Second // until the status checks have passed
)

func (e *EC2) terminateInstances(r *request, in instancesIn) (any, error) {
	sc := e.in(r.scope())
	found, err := sc.instances(in.InstanceID)
	if err != nil {
		return nil, err
	}
	for _, i := range found {
		if i.DisableApiTermination {
			return nil, refuse("OperationNotPermitted", "The instance '%s' may not be terminated. Modify its 'disableApiTermination' instance attribute and try again.", i.InstanceID)
		}
	}
	var out stateChanges
	for _, i := range found {
		before := i.Status
		e.terminate(sc, i, "Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown")
		r.Make(i.InstanceID)
		out.Changes = append(out.Changes, stateChange{i.InstanceID, i.Status, before})
	}
	return out, nil
}

// terminate begins to take an instance down.
func (e *EC2) terminate(sc *ec2Scope, i *Instance, code, message string) {
	if i.Status.Name == "terminated" || i.Status.Name == "shutting-down" {
		return
	}
	i.Status = codeOf("shutting-down")
	i.StateReason = &reason{code, message}
	i.TransitionReason = "User initiated (" + e.cloud.World.Now().UTC().Format("2006-01-02 15:04:05") + " GMT)"
	e.left(sc, i)
	e.later(sc, shutdownTime, i.InstanceID, "terminated")
}

// left tells the services that watch instances that one no longer runs.
func (e *EC2) left(sc *ec2Scope, i *Instance) {
	sc.stopGuest(i)
	for _, f := range e.cloud.hooks.instanceGone {
		f(sc.scope(), i.InstanceID)
	}
}

// terminated ends an instance: its interfaces and volumes go, and its network attributes with them.
func (e *EC2) terminated(sc *ec2Scope, i *Instance) {
	i.Status = codeOf("terminated")
	for _, n := range inOrder(sc.Interfaces) {
		if n.Attachment == nil || n.Attachment.InstanceID != i.InstanceID {
			continue
		}
		if n.Attachment.DeleteOnTermination {
			e.dropInterface(sc, n.InterfaceID)
		} else {
			n.Attachment, n.Status, n.Holder = nil, "available", ""
		}
	}
	for _, d := range i.Devices {
		v := sc.Volumes[d.Ebs.VolumeID]
		if v == nil {
			continue
		}
		v.Attachments = nil
		if d.Ebs.Delete {
			delete(sc.Volumes, v.VolumeID)
		} else {
			v.Status = "available"
		}
	}
	i.Devices, i.Groups = nil, nil
	i.SubnetID, i.VpcID, i.PrivateIP, i.PublicIP, i.PrivateDNSName, i.SourceDestCheck = "", "", "", "", "", nil
	delete(sc.Guests, i.InstanceID)
	// "A terminated instance remains visible for a short while", about an hour (Amazon EC2 user guide).
	e.after(sc, goneVisible, "forget", i.InstanceID)
}

func (e *EC2) removeInstance(sc *ec2Scope, i *Instance) {
	if i.Status.Name != "terminated" && i.Status.Name != "shutting-down" {
		e.left(sc, i)
	}
	e.terminated(sc, i)
	delete(sc.Instances, i.InstanceID)
}

// instanceAdvance carries out a state change that was begun, unless another one came in between.
func (e *EC2) instanceAdvance(sc *ec2Scope, i *Instance, state string) {
	switch {
	case state == "running" && i.Status.Name == "pending":
		e.running(sc, i)
	case state == "stopped" && i.Status.Name == "stopping":
		i.Status = codeOf("stopped")
	case state == "terminated" && i.Status.Name == "shutting-down":
		e.terminated(sc, i)
	}
}

func (e *EC2) running(sc *ec2Scope, i *Instance) {
	i.Status = codeOf("running")
	i.StateReason = nil
	e.boot(sc, i)
}

// instanceForce puts an instance into a state at once, as faults and the control API ask.
func (e *EC2) instanceForce(sc *ec2Scope, i *Instance, state, code, message string) error {
	if _, ok := stateCodes[state]; !ok {
		return refuse("state", "an instance has no state %q", state)
	}
	gone := i.Status.Name == "terminated"
	if gone && state != "terminated" {
		return refuse("state", "a terminated instance stays terminated")
	}
	if code != "" || state == "terminated" {
		i.StateReason = &reason{textOr(code, "Server.InternalError"), textOr(message, textOr(code, "Server.InternalError")+": Internal error on launch")}
	}
	switch state {
	case "running":
		if i.Status.Name != "running" {
			e.running(sc, i)
		}
	case "terminated":
		if !gone {
			e.left(sc, i)
			e.terminated(sc, i)
		}
	default:
		if state != "pending" {
			e.left(sc, i)
		}
		i.Status = codeOf(state)
	}
	return nil
}

func (e *EC2) stopInstances(r *request, in instancesIn) (any, error) {
	sc := e.in(r.scope())
	found, err := sc.instances(in.InstanceID)
	if err != nil {
		return nil, err
	}
	for _, i := range found {
		if i.Status.Name == "terminated" || i.Status.Name == "shutting-down" || i.Status.Name == "pending" {
			return nil, refuse("IncorrectInstanceState", "The instance '%s' is not in a state from which it can be stopped.", i.InstanceID)
		}
		if i.DisableApiStop {
			return nil, refuse("OperationNotPermitted", "The instance '%s' may not be stopped. Modify its 'disableApiStop' instance attribute and try again.", i.InstanceID)
		}
	}
	var out stateChanges
	for _, i := range found {
		before := i.Status
		if before.Name == "running" {
			i.Status = codeOf("stopping")
			i.StateReason = &reason{"Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown"}
			i.TransitionReason = "User initiated (" + e.cloud.World.Now().UTC().Format("2006-01-02 15:04:05") + " GMT)"
			e.left(sc, i)
			e.later(sc, stopTime, i.InstanceID, "stopped")
			r.Make(i.InstanceID)
		}
		out.Changes = append(out.Changes, stateChange{i.InstanceID, i.Status, before})
	}
	return out, nil
}

func (e *EC2) startInstances(r *request, in instancesIn) (any, error) {
	sc := e.in(r.scope())
	found, err := sc.instances(in.InstanceID)
	if err != nil {
		return nil, err
	}
	for _, i := range found {
		if i.Status.Name != "stopped" && i.Status.Name != "running" && i.Status.Name != "pending" {
			return nil, refuse("IncorrectInstanceState", "The instance '%s' is not in a state from which it can be started.", i.InstanceID)
		}
	}
	var out stateChanges
	for _, i := range found {
		before := i.Status
		if before.Name == "stopped" {
			i.Status = codeOf("pending")
			i.StateReason, i.TransitionReason = nil, ""
			i.LaunchTime = e.cloud.World.Now().Truncate(time.Second)
			e.later(sc, startTime, i.InstanceID, "running")
			r.Make(i.InstanceID)
		}
		out.Changes = append(out.Changes, stateChange{i.InstanceID, i.Status, before})
	}
	return out, nil
}

func (e *EC2) rebootInstances(r *request, in instancesIn) (any, error) {
	sc := e.in(r.scope())
	found, err := sc.instances(in.InstanceID)
	if err != nil {
		return nil, err
	}
	for _, i := range found {
		if i.Status.Name != "running" {
			return nil, refuse("IncorrectState", "The instance '%s' is not in the 'running' state.", i.InstanceID)
		}
		e.boot(sc, i)
	}
	return returned{true}, nil
}
