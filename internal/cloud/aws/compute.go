package aws

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/cloud/vmpool"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const kindInstance = "ec2:instance"

// EnsureVMs makes the pool, and is done when every VM runs.
func (p *Provider) EnsureVMs(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	spec, err := r.Job.VMSpec()
	if err != nil {
		return err
	}
	if r.Mode != pipeline.Verify {
		r.Job.Config.InfraConfig.ExecMode = job.ExecSSM
	}
	if spec.Pool.Mode == job.PoolASG {
		return p.ensureScalingGroup(ctx, r, spec)
	}
	return p.ensureFixed(ctx, r, spec)
}

// RemoveVMs terminates the VMs of a fixed pool, or empties and deletes the
// scaling group, whichever the job has made, and waits until they are gone.
func (p *Provider) RemoveVMs(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	err := pipeline.All(ctx,
		func(ctx context.Context) error { return p.removeFixed(ctx, r, vmpool.Keys(r, kindInstance)) },
		func(ctx context.Context) error { return p.removeScalingGroup(ctx, r) })
	infra := &r.Job.Config.InfraConfig
	for i := range infra.VMs {
		vm := &infra.VMs[i]
		if r.Mode == pipeline.Apply && vm.State != job.VMTerminated {
			vm.State, vm.BootstrapNginxReady = job.VMTerminating, false
		}
	}
	if err == nil && r.Mode == pipeline.Apply {
		err = pipeline.Gravest(p.removeDisksLeftBehind(ctx, r), p.removeLeftBehind(ctx, r, infra.NetworkID))
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

func (p *Provider) instancePage(ctx context.Context, f []ec2types.Filter, ids []string, token *string) ([]ec2types.Instance, *string, error) {
	out, err := p.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: f, InstanceIds: ids, NextToken: token})
	if err != nil {
		return nil, nil, err
	}
	var all []ec2types.Instance
	for _, r := range out.Reservations {
		all = append(all, r.Instances...)
	}
	return all, out.NextToken, nil
}

func (p *Provider) instances() lookup.Kind[ec2types.Instance] {
	return ec2Kind(kindInstance, p.instancePage,
		func(x ec2types.Instance) *string { return x.InstanceId },
		func(x ec2types.Instance) []ec2types.Tag { return x.Tags })
}

// launch is where a VM is started, and who wants to hear of it.
type launch struct {
	fleet   *fleet
	subnet  string
	leaving bool // the VM is to be removed
}

// instance is one VM of a fixed pool.
func (p *Provider) instance(r *pipeline.Run, key string, at launch) pipeline.Resource {
	vmName := name(r, key, 63)
	x := object[ec2types.Instance]{kind: p.instances(), key: key, name: vmName,
		see: func(_ context.Context, i ec2types.Instance) (pipeline.Seen, error) {
			at.fleet.note(i, false)
			return instanceSeen(r, i, at.leaving), nil
		}}.resource()
	x.Tokened, x.Slow, x.Patience = true, true, 15*time.Minute
	marks := tags(r, key, vmName)
	var in *ec2.RunInstancesInput
	var bad error
	if !at.leaving {
		in, bad = launchInput(r.Job, at.subnet, marks)
		x.Args = in
	}
	rec, known := r.Object(kindInstance, key)
	repeated := known && rec.State == job.ObjectIntended
	get := x.Get
	x.Get = func(ctx context.Context, id string) (pipeline.Seen, error) {
		// The launch's own answer is as fresh as it gets; the next pass asks.
		if i, ok := at.fleet.justLaunched(id); ok {
			s := instanceSeen(r, i, at.leaving)
			s.ID, s.Owner = id, r.Job.ID
			return s, nil
		}
		return get(ctx, id)
	}
	x.Create = func(ctx context.Context, token string) (pipeline.Seen, error) {
		if repeated {
			// The token alone keeps EC2 from launching a second VM. The look at
			// the marks is for clouds that only speak EC2's language.
			if i, ok := p.launchedBefore(ctx, key); ok {
				at.fleet.note(i, true)
				return pipeline.Seen{ID: aws.ToString(i.InstanceId), Owner: r.Job.ID, Status: pipeline.Pending}, nil
			}
		}
		if bad != nil {
			return pipeline.Seen{}, bad
		}
		in.ClientToken = aws.String(token)
		i, err := p.runInstance(ctx, in)
		if err != nil {
			return pipeline.Seen{}, err
		}
		at.fleet.note(i, true)
		s := instanceSeen(r, i, false)
		s.ID, s.Owner = aws.ToString(i.InstanceId), r.Job.ID
		return s, nil
	}
	x.Delete = func(ctx context.Context, id string) error {
		_, err := p.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{id}})
		var ce *pipeline.CloudError
		if errors.As(err, &ce) && ce.Code == "OperationNotPermitted" {
			return pipeline.Fatal("protected", fmt.Sprintf("%s (%s) cannot be terminated: %s", x, id, ce.Message),
				"This job sets no termination protection, so somebody else did. Lift it there, then retry.").From(err)
		}
		return err
	}
	return tidy(x)
}

func (p *Provider) launchedBefore(ctx context.Context, key string) (ec2types.Instance, bool) {
	found, err := p.instances().Find(ctx, key)
	if err != nil {
		return ec2types.Instance{}, false // the token answers as well
	}
	for _, i := range found {
		if s := stateOf(i); s != ec2types.InstanceStateNameTerminated && s != ec2types.InstanceStateNameShuttingDown {
			return i, true
		}
	}
	return ec2types.Instance{}, false
}

// launchInput is one launch, but for its token. Image, type, disk, profile and metadata options are
// the template's, and are said again: "parameters that you specify in
// RunInstances override the same parameters in the launch template", so that
// no other version of the template, and no cloud that reads only the request,
// gives a VM less protection than the job promises.
func launchInput(j *job.Job, subnet string, marks map[string]string) (*ec2.RunInstancesInput, error) {
	infra := j.Config.InfraConfig
	spec, err := j.VMSpec()
	if err != nil {
		return nil, err
	}
	data, err := templateData(j, spec)
	if err != nil {
		return nil, err
	}
	in := &ec2.RunInstancesInput{
		MinCount: aws.Int32(1), MaxCount: aws.Int32(1),
		LaunchTemplate: &ec2types.LaunchTemplateSpecification{LaunchTemplateId: aws.String(infra.LaunchTemplateID), Version: aws.String(templateVersion)},
		ImageId:        data.ImageId, InstanceType: data.InstanceType, EbsOptimized: data.EbsOptimized,
		MetadataOptions: &ec2types.InstanceMetadataOptionsRequest{
			HttpEndpoint:            ec2types.InstanceMetadataEndpointState(data.MetadataOptions.HttpEndpoint),
			HttpTokens:              ec2types.HttpTokensState(data.MetadataOptions.HttpTokens),
			HttpPutResponseHopLimit: data.MetadataOptions.HttpPutResponseHopLimit,
		},
		// The template's interface without a subnet is overridden by one with:
		// EC2 takes no subnet on the instance when the template has an interface.
		NetworkInterfaces: []ec2types.InstanceNetworkInterfaceSpecification{{
			DeviceIndex: aws.Int32(0), SubnetId: aws.String(subnet), Groups: []string{infra.VMSecurityGroupID},
			AssociatePublicIpAddress: aws.Bool(false), DeleteOnTermination: aws.Bool(true),
		}},
		TagSpecifications: ec2Specs(marks, ec2types.ResourceTypeInstance, ec2types.ResourceTypeVolume),
	}
	if profile := data.IamInstanceProfile; profile != nil {
		in.IamInstanceProfile = &ec2types.IamInstanceProfileSpecification{Name: profile.Name}
	}
	for _, b := range data.BlockDeviceMappings {
		in.BlockDeviceMappings = append(in.BlockDeviceMappings, ec2types.BlockDeviceMapping{DeviceName: b.DeviceName, Ebs: &ec2types.EbsBlockDevice{
			VolumeType: b.Ebs.VolumeType, VolumeSize: b.Ebs.VolumeSize, Encrypted: b.Ebs.Encrypted, DeleteOnTermination: b.Ebs.DeleteOnTermination,
		}})
	}
	return in, nil
}

func (p *Provider) runInstance(ctx context.Context, in *ec2.RunInstancesInput) (ec2types.Instance, error) {
	out, err := p.ec2.RunInstances(ctx, in)
	if err != nil {
		return ec2types.Instance{}, err
	}
	if len(out.Instances) == 0 {
		return ec2types.Instance{}, nil // no ID: the protocol treats the outcome as unknown
	}
	return out.Instances[0], nil
}

func stateOf(i ec2types.Instance) ec2types.InstanceStateName {
	if i.State == nil {
		return ""
	}
	return i.State.Name
}

// instanceSeen is where an instance stands. One that goes straight from pending
// to terminated says why in its state reason (failure kind I10).
func instanceSeen(r *pipeline.Run, i ec2types.Instance, leaving bool) pipeline.Seen {
	state := stateOf(i)
	s := pipeline.Seen{Reason: string(state)}
	if why := endReason(i); why != "" && why != string(state) && state != ec2types.InstanceStateNameRunning {
		s.Reason += ": " + why
	}
	switch state {
	case ec2types.InstanceStateNameRunning:
		s.Status, s.Aspects = pipeline.Ready, instanceAspects(r, i)
	case ec2types.InstanceStateNameTerminated:
		s.Status = pipeline.Gone
	case ec2types.InstanceStateNameShuttingDown:
		s.Status = pipeline.Gone
		if leaving {
			s.Status = pipeline.Pending
		}
	case ec2types.InstanceStateNameStopped, ec2types.InstanceStateNameStopping:
		s.Status = pipeline.Pending
		if leaving {
			s.Status = pipeline.Ready
		}
	default:
		s.Status = pipeline.Pending
		if s.Reason == "" {
			s.Reason = "pending"
		}
	}
	return s
}

// instanceAspects is what a verify compares on a running VM. All of it was
// given by the template, and none of it is changed in place.
func instanceAspects(r *pipeline.Run, i ec2types.Instance) []pipeline.Aspect {
	if r.Mode != pipeline.Verify || i.InstanceType == "" {
		return nil
	}
	// Metadata options and public addresses are compared by the controls.
	return []pipeline.Aspect{{Name: "instance type", Wanted: r.Job.Config.InfraConfig.InstanceType, Seen: string(i.InstanceType)}}
}

// endReason is the cloud's own reason for a state, never an empty one.
func endReason(i ec2types.Instance) string {
	if s := i.StateReason; s != nil && (aws.ToString(s.Code) != "" || aws.ToString(s.Message) != "") {
		code, message := aws.ToString(s.Code), aws.ToString(s.Message)
		if strings.HasPrefix(message, code) { // it often repeats the code
			return message
		}
		return strings.Trim(code+": "+message, ": ")
	}
	return aws.ToString(i.StateTransitionReason)
}
