package gcp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/cloud/vmpool"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// ensureGroup makes the managed group and its autoscaler, and is done when as
// many VMs as the group wants are there and run.
func (p *Provider) ensureGroup(ctx context.Context, r *pipeline.Run, spec job.VMSpec) error {
	if vmpool.LastSight(r) == vmpool.Fresh {
		return nil
	}
	if r.Mode == pipeline.Apply {
		if err := p.removeFixed(ctx, r, vmpool.Surplus(r, kindInstance, 0)); err != nil {
			return err
		}
	}
	infra := &r.Job.Config.InfraConfig
	id, err := p.ensure(ctx, r, p.managedGroup(r, spec.Pool))
	learn(r, &infra.ScalingGroupID, id)
	if err != nil {
		return visible(r, "the managed group", err)
	}
	if _, err := p.ensure(ctx, r, p.autoscaler(r, spec.Pool)); err != nil {
		return visible(r, "the autoscaler", err)
	}
	if r.Mode == pipeline.Plan || infra.ScalingGroupID == "" {
		return nil
	}
	g, err := p.readGroup(ctx, infra.ScalingGroupID)
	if err != nil {
		if r.Mode == pipeline.Verify && pipeline.Is(err, pipeline.NotFound) {
			return nil // reported as drift already
		}
		return visible(r, "the managed group", err)
	}
	members, err := p.membersOf(ctx, infra.ScalingGroupID)
	if err != nil {
		return err
	}
	vms, err := p.groupVMs(ctx, infra.VMs, members)
	if err != nil {
		return err
	}
	now := r.Now()
	for i := range vms {
		if vms[i].LaunchedAt == nil && r.Mode == pipeline.Apply {
			vms[i].LaunchedAt = &now
		}
	}
	infra.VMs = vms
	if r.Mode == pipeline.Verify {
		return nil
	}
	if n := serving(members); n < int(g.TargetSize) {
		return p.awaitMembers(r, members, n, int(g.TargetSize))
	}
	r.WaitOver("group")
	r.WaitOver("capacity")
	vmpool.Saw(r)
	return nil
}

// membersOf is the VMs of a managed group as the group sees them.
func (p *Provider) membersOf(ctx context.Context, id string) ([]*compute.ManagedInstance, error) {
	return lookup.Once(ctx, "members of "+id, func(ctx context.Context) ([]*compute.ManagedInstance, error) {
		return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]*compute.ManagedInstance, *string, error) {
			if zone := zoneOf(id); zone != "" {
				out, err := send(ctx, p.compute.InstanceGroupManagers.ListManagedInstances(projectOf(id), zone, base(id)).PageToken(text(token)))
				if err != nil {
					return nil, nil, err
				}
				return out.ManagedInstances, &out.NextPageToken, nil
			}
			out, err := send(ctx, p.compute.RegionInstanceGroupManagers.ListManagedInstances(projectOf(id), regionOf(id), base(id)).PageToken(text(token)))
			if err != nil {
				return nil, nil, err
			}
			return out.ManagedInstances, &out.NextPageToken, nil
		})
	})
}

// serving counts the members that run and that the group has nothing left to do with.
func serving(members []*compute.ManagedInstance) int {
	n := 0
	for _, m := range members {
		if m.InstanceStatus == "RUNNING" && (m.CurrentAction == "NONE" || m.CurrentAction == "VERIFYING") {
			n++
		}
	}
	return n
}

// groupVMs is the VMs of a group: those that are known keep what is known of
// them. A member that does not exist yet has no record.
func (p *Provider) groupVMs(ctx context.Context, known []job.VMInfo, members []*compute.ManagedInstance) ([]job.VMInfo, error) {
	var ids []string
	for _, m := range members {
		if m.InstanceStatus != "" && m.CurrentAction != "DELETING" && m.CurrentAction != "ABANDONING" {
			ids = append(ids, rel(m.Instance))
		}
	}
	slices.Sort(ids)
	found, err := p.byID(ctx, ids)
	if err != nil {
		return nil, err
	}
	vms := make([]job.VMInfo, 0, len(ids))
	for _, id := range ids {
		vm := job.VMInfo{Name: base(id), InstanceID: id, Zone: zoneOf(id), State: job.VMPending, ExecMode: job.ExecOSConfig}
		if i := slices.IndexFunc(known, func(v job.VMInfo) bool { return v.InstanceID == id }); i >= 0 {
			vm = known[i]
		}
		if i := found[id]; i != nil {
			takeIn(&vm, i, false)
		}
		vms = append(vms, vm)
	}
	return vms, nil
}

// byID reads VMs by their IDs: from the list of the job's own, and those that do
// not carry its mark one by one. One that is not there is left out.
func (p *Provider) byID(ctx context.Context, ids []string) (map[string]*compute.Instance, error) {
	found := make([]*compute.Instance, len(ids))
	var parts []func(context.Context) error
	for i, id := range ids {
		parts = append(parts, func(ctx context.Context) (err error) {
			found[i], err = p.instances("").lookup().Get(ctx, id)
			return pipeline.Unless(err, pipeline.NotFound)
		})
	}
	if err := pipeline.All(ctx, parts...); err != nil {
		return nil, err
	}
	out := map[string]*compute.Instance{}
	for i, id := range ids {
		if found[i] != nil {
			out[id] = found[i]
		}
	}
	return out, nil
}

// awaitMembers says why the group is not complete. What it says of its last try
// for each VM is the only place where a lack of capacity or quota shows.
func (p *Provider) awaitMembers(r *pipeline.Run, members []*compute.ManagedInstance, have, want int) error {
	group := base(r.Job.Config.InfraConfig.ScalingGroupID)
	text := fmt.Sprintf("%d of %d VMs of managed group %s run", have, want, group)
	failed := lastFailure(members)
	if failed != nil {
		text += ": " + failed.Error()
	}
	waitedFor := r.WaitedFor("group")
	switch {
	case pipeline.Is(errorOf(failed), pipeline.Quota, pipeline.Denied):
		d := pipeline.Judge(failed, 1000) // what such an error stops with
		d.Problem.Message = text
		return (&pipeline.FatalError{Problem: d.Problem}).From(failed)
	case pipeline.Is(errorOf(failed), pipeline.Capacity) && r.WaitedFor("capacity") > vmpool.CapacityPatience:
		return pipeline.Fatal("no-capacity", text, "Retry later, or tear the job down and make it with another instanceType or in another region.").From(failed)
	case waitedFor > groupPatience:
		return pipeline.Fatal("timed-out", fmt.Sprintf("%s after %s", text, groupPatience), "Look at the group's errors in the console, then retry.")
	}
	if failed == nil || failed.Class != pipeline.Capacity {
		r.WaitOver("capacity")
	}
	return pipeline.Wait(min(max(waitedFor/4, 5*time.Second), 20*time.Second), "%s", text)
}

func errorOf(e *pipeline.CloudError) error {
	if e == nil {
		return nil
	}
	return e
}

// lastFailure is why the group could not make, or bring into shape, a VM.
func lastFailure(members []*compute.ManagedInstance) *pipeline.CloudError {
	for _, m := range members {
		if m.LastAttempt == nil || m.LastAttempt.Errors == nil || m.CurrentAction == "NONE" {
			continue
		}
		for _, e := range m.LastAttempt.Errors.Errors {
			ce := &pipeline.CloudError{Service: serviceCompute, Op: "instances.insert", Message: e.Message, Sent: true}
			ce.Class, ce.Code = classOf(ce.Op, 0, e.Message, []string{e.Code})
			return ce
		}
	}
	return nil
}

// RefreshVMs brings InfraConfig.VMs up to date; it only reads.
func (p *Provider) RefreshVMs(ctx context.Context, j *job.Job) error {
	ctx = lookup.For(ctx, j.ID)
	infra := &j.Config.InfraConfig
	if infra.ScalingGroupID != "" {
		members, err := p.membersOf(ctx, infra.ScalingGroupID)
		switch {
		case err == nil:
			vms, err := p.groupVMs(ctx, infra.VMs, members)
			if err != nil {
				return err
			}
			for i := range vms {
				judgeMember(&vms[i], members, !j.Owns())
			}
			infra.VMs = vms
			return nil
		case !pipeline.Is(err, pipeline.NotFound):
			return err
		}
		// Without its group, what is left of it are VMs as any others.
	}
	var ids []string
	for _, vm := range infra.VMs {
		if vm.InstanceID != "" {
			ids = append(ids, vm.InstanceID)
		}
	}
	found, err := p.byID(ctx, ids)
	if err != nil {
		return err
	}
	for i := range infra.VMs {
		vm := &infra.VMs[i]
		switch inst := found[vm.InstanceID]; {
		case inst != nil:
			takeIn(vm, inst, !j.Owns())
		case vm.InstanceID != "":
			vm.State, vm.LastError = job.VMTerminated, "the cloud no longer shows it"
		}
	}
	return nil
}

// judgeMember says of a VM that the group has made since the job was done whether
// it is ready: nobody looks for its report, but the health check is only passed by
// what the bootstrap has started.
func judgeMember(vm *job.VMInfo, members []*compute.ManagedInstance, adopted bool) {
	if vm.State != job.VMBootstrapping {
		return
	}
	for _, m := range members {
		healthy := slices.ContainsFunc(m.InstanceHealth, func(h *compute.ManagedInstanceInstanceHealth) bool {
			return strings.EqualFold(h.DetailedHealthState, "HEALTHY")
		})
		if rel(m.Instance) == vm.InstanceID && m.CurrentAction == "NONE" && (adopted || healthy) {
			vm.State, vm.LastError = job.VMReady, ""
		}
	}
}
