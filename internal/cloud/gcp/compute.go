package gcp

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/cloud/vmpool"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// EnsureVMs makes the pool, and is done when every VM runs.
func (p *Provider) EnsureVMs(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	spec, err := r.Job.VMSpec()
	if err != nil {
		return err
	}
	if r.Mode != pipeline.Verify {
		r.Job.Config.InfraConfig.ExecMode = job.ExecOSConfig
	}
	if spec.Pool.Mode == job.PoolASG {
		return p.ensureGroup(ctx, r, spec)
	}
	return p.ensureFixed(ctx, r, spec)
}

// RemoveVMs deletes the VMs of a fixed pool, or empties and deletes the managed
// group, whichever the job has made, and waits until they are gone.
func (p *Provider) RemoveVMs(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	err := pipeline.All(ctx,
		func(ctx context.Context) error { return p.removeFixed(ctx, r, vmpool.Keys(r, kindInstance)) },
		func(ctx context.Context) error { return p.removeGroup(ctx, r) })
	for i := range r.Job.Config.InfraConfig.VMs {
		vm := &r.Job.Config.InfraConfig.VMs[i]
		if r.Mode == pipeline.Apply && vm.State != job.VMTerminated {
			vm.State, vm.BootstrapNginxReady = job.VMTerminating, false
		}
	}
	return err
}

func (p *Provider) removeFixed(ctx context.Context, r *pipeline.Run, keys []string) error {
	var parts []func(context.Context) error
	for _, key := range keys {
		parts = append(parts, func(ctx context.Context) error { return r.Remove(ctx, p.instance(r, key, launch{leaving: true})) })
	}
	return pipeline.All(ctx, parts...)
}

// launch is where a VM is started, and who wants to hear of it.
type launch struct {
	fleet   *fleet
	zone    string
	leaving bool // the VM is to be removed
}

// instance is one VM of a fixed pool.
func (p *Provider) instance(r *pipeline.Run, key string, at launch) pipeline.Resource {
	id := p.zonal(at.zone, "instances", name(r, key))
	o := object[*compute.Instance]{kind: p.instances(at.zone), key: key, id: id}
	o.see = func(_ context.Context, i *compute.Instance) (pipeline.Seen, error) {
		at.fleet.note(i)
		s := instanceSeen(i, at.leaving)
		if s.Status == pipeline.Ready && !at.leaving {
			s.Aspects = p.instanceAspects(r, i)
		}
		return s, nil
	}
	var bad error
	if !at.leaving {
		o.want, bad = vmBody(r.Job, key, base(id), at.zone)
	}
	x := o.resource(p, r)
	x.Patience = 15 * time.Minute
	if bad != nil {
		x.Create = func(context.Context, string) (pipeline.Seen, error) { return pipeline.Seen{}, bad }
	}
	remove := x.Delete
	x.Delete = func(ctx context.Context, id string) error {
		if err := p.unprotect(ctx, r, id); err != nil {
			return err
		}
		return remove(ctx, id)
	}
	return x
}

// vmBody is a VM as the call that makes it says it: the template's properties,
// spelt out once more, so that a cloud which reads only the request gives a VM no
// less protection than the job promises.
func vmBody(j *job.Job, key, name, zone string) (*compute.Instance, error) {
	spec, err := j.VMSpec()
	if err != nil {
		return nil, err
	}
	x, err := vmProperties(j, spec)
	if err != nil {
		return nil, err
	}
	labels := labelsFor(j, key)
	for _, d := range x.Disks {
		d.InitializeParams.DiskType = "zones/" + zone + "/diskTypes/" + d.InitializeParams.DiskType
		d.InitializeParams.Labels = labels
	}
	return &compute.Instance{
		Name: name, Description: j.MarkText(key), MachineType: "zones/" + zone + "/machineTypes/" + x.MachineType, Labels: labels,
		DeletionProtection: true,
		CanIpForward:       x.CanIpForward, Metadata: x.Metadata, Disks: x.Disks, NetworkInterfaces: x.NetworkInterfaces,
		ServiceAccounts: x.ServiceAccounts, Scheduling: x.Scheduling, ShieldedInstanceConfig: x.ShieldedInstanceConfig,
		ForceSendFields: []string{"CanIpForward"},
	}, nil
}

// instanceSeen is where a VM stands. TERMINATED is Compute Engine's word for a
// VM that is stopped ("VM instance lifecycle").
func instanceSeen(i *compute.Instance, leaving bool) pipeline.Seen {
	s := pipeline.Seen{Reason: strings.ToLower(i.Status)}
	if i.StatusMessage != "" && i.Status != "RUNNING" {
		s.Reason += ": " + i.StatusMessage
	}
	switch i.Status {
	case "RUNNING":
		s.Status = pipeline.Ready
	case "DEPROVISIONING":
		s.Status = pipeline.Gone
		if leaving {
			s.Status = pipeline.Pending
		}
	case "STOPPING", "PENDING_STOP", "STOPPED", "TERMINATED", "SUSPENDING", "SUSPENDED":
		s.Status = pipeline.Pending
		if leaving && i.Status != "STOPPING" {
			s.Status = pipeline.Ready
		}
	default:
		s.Status = pipeline.Pending
		s.Reason = or(s.Reason, "pending")
	}
	return s
}

// instanceAspects compares a running VM. What can be put right while it runs is;
// the rest was given when it was made, and only a verify shows it.
func (p *Provider) instanceAspects(r *pipeline.Run, i *compute.Instance) []pipeline.Aspect {
	id := rel(i.SelfLink)
	project, zone, vm := projectOf(id), zoneOf(id), base(id)
	out := []pipeline.Aspect{
		{Name: "deletion protection", Wanted: "yes", Seen: yesNo(i.DeletionProtection), Set: p.set(r, id, func(ctx context.Context) (*compute.Operation, error) {
			return send(ctx, p.compute.Instances.SetDeletionProtection(project, zone, vm).DeletionProtection(true))
		})},
		p.metadataAspect(r, id, i.Metadata),
	}
	if r.Mode != pipeline.Verify {
		return out
	}
	spec, err := r.Job.VMSpec()
	if err != nil {
		return out
	}
	want, err := vmProperties(r.Job, spec)
	if err != nil {
		return out
	}
	wanted := traitsOf(want)
	for _, once := range []string{"image", "boot disk", "metadata"} { // of the disk, or compared already
		delete(wanted, once)
	}
	return append(out, wanted.compare(instanceTraits(i))...)
}

func instanceTraits(i *compute.Instance) traits {
	t := traits{
		"machine type": base(i.MachineType), "IP forwarding": yesNo(i.CanIpForward),
		"shielded VM": shieldedText(i.ShieldedInstanceConfig), "scheduling": schedulingText(i.Scheduling),
	}
	t.addMetadata(i.Metadata)
	t.addAccount(i.ServiceAccounts)
	t.addNetwork(i.NetworkInterfaces)
	return t
}

// metadataAspect wants the settings that guard a VM. What else somebody has put
// into its metadata is left there.
func (p *Provider) metadataAspect(r *pipeline.Run, id string, have *compute.Metadata) pipeline.Aspect {
	want, seen := traits{}, traits{}
	want.addMetadata(guards())
	seen.addMetadata(have)
	return pipeline.Aspect{Name: "metadata", Wanted: want["metadata"], Seen: seen["metadata"], Set: p.set(r, id, func(ctx context.Context) (*compute.Operation, error) {
		change := &compute.Metadata{}
		if have != nil {
			change.Fingerprint = have.Fingerprint
			for _, i := range have.Items {
				if _, ours := vmMetadata[i.Key]; !ours {
					change.Items = append(change.Items, i)
				}
			}
		}
		change.Items = append(change.Items, guards().Items...)
		return send(ctx, p.compute.Instances.SetMetadata(projectOf(id), zoneOf(id), base(id), change))
	})}
}

// guards is vmMetadata as the API takes it.
func guards() *compute.Metadata {
	m := &compute.Metadata{}
	for _, k := range slices.Sorted(maps.Keys(vmMetadata)) {
		m.Items = append(m.Items, &compute.MetadataItems{Key: k, Value: new(vmMetadata[k])})
	}
	return m
}

// unprotect lifts the deletion protection that every VM of a fixed pool is made
// with. The engine only comes here when the deletion was confirmed by name, or to
// replace a VM that a person has been told of.
func (p *Provider) unprotect(ctx context.Context, r *pipeline.Run, id string) error {
	if err := p.pending(ctx, r, id); err != nil {
		return err
	}
	i, err := p.instances("").lookup().Get(ctx, id)
	if err != nil {
		return pipeline.Unless(err, pipeline.NotFound) // whose deletion says what that means
	}
	if !i.DeletionProtection {
		return nil
	}
	op, err := send(ctx, p.compute.Instances.SetDeletionProtection(projectOf(id), zoneOf(id), base(id)).DeletionProtection(false))
	if err != nil {
		return err
	}
	p.await(r, id, op)
	return pipeline.Wait(time.Second, "the deletion protection of %s to be lifted", base(id))
}
