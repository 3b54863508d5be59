package aws

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	asgtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// speechless reports whether an answer is an internal error that says nothing
// at all, which is how some emulators answer calls that they do not have. AWS
// gives a code with its own; what stands before it answers with 502 to 504.
func speechless(err error) bool {
	var ce *pipeline.CloudError
	return errors.As(err, &ce) && ce.Code == "" && statusOf(ce.Err) == http.StatusInternalServerError
}

// lookFirst has a create whose answer was lost look for the object before it is
// sent again. AWS makes nothing twice that has a unique name or a token; the
// look is for endpoints that speak its language and do.
func lookFirst(r *pipeline.Run, x pipeline.Resource) pipeline.Resource {
	if rec, known := r.Object(x.Kind, x.Key); !known || rec.State != job.ObjectIntended {
		return x
	}
	create, find := x.Create, x.Find
	x.Create = func(ctx context.Context, token string) (pipeline.Seen, error) {
		found, err := find(ctx)
		var wait *pipeline.WaitError
		if errors.As(err, &wait) {
			return pipeline.Seen{}, err
		}
		// Any other error is the create's to have: its outcome is what counts.
		for _, s := range found {
			if s.Owner == r.Job.ID && s.Status != pipeline.Gone {
				s.Status = pipeline.Pending // whoever takes it reads it
				return s, nil
			}
		}
		return create(ctx, token)
	}
	return x
}

// registerMembers puts a scaling group's VMs into a target group one by one, for
// endpoints whose groups cannot be attached to one.
func (p *Provider) registerMembers(ctx context.Context, g asgtypes.AutoScalingGroup, arn string) error {
	in := &elb.RegisterTargetsInput{TargetGroupArn: aws.String(arn)}
	for _, m := range g.Instances {
		in.Targets = append(in.Targets, elbtypes.TargetDescription{Id: m.InstanceId})
	}
	if len(in.Targets) == 0 {
		return nil
	}
	_, err := p.elb.RegisterTargets(ctx, in)
	return err
}

// membersAreTargets reports whether every VM of a scaling group is in the target
// group, by whatever way.
func (p *Provider) membersAreTargets(ctx context.Context, g asgtypes.AutoScalingGroup, arn string) (bool, error) {
	health, err := p.health(ctx, arn)
	if err != nil || len(g.Instances) == 0 {
		return false, err
	}
	return !slices.ContainsFunc(g.Instances, func(m asgtypes.Instance) bool {
		return !slices.ContainsFunc(health, func(t job.TargetInfo) bool {
			return t.InstanceID == aws.ToString(m.InstanceId) && t.Health != string(elbtypes.TargetHealthStateEnumDraining)
		})
	}), nil
}

// removeLeftBehind removes the network interfaces that an emulator keeps when
// it deletes what they belong to. EC2 itself takes them away, and does not
// delete a subnet before; so nothing is asked there. Only what nobody else can
// have made is touched: the interface that one of the job's NAT gateways says
// is its own, and the primary interfaces of the job's VMs. It is tried and not
// insisted on: what is in the way makes the VPC's deletion say so.
func (p *Provider) removeLeftBehind(ctx context.Context, r *pipeline.Run, vpcID string) error {
	if !p.foreignEndpoint() || vpcID == "" {
		return nil
	}
	found, err := ec2Page[ec2types.NetworkInterface](p.interfacePage).all(ctx, filter("vpc-id", vpcID))
	if err != nil || len(found) == 0 {
		return ctx.Err()
	}
	gateways, err := p.natGateways().Owned(ctx)
	if err != nil {
		return ctx.Err()
	}
	gone := map[string]bool{} // the job's own that are gone, by ID
	ended, err := p.endedVMs(ctx, r)
	if err != nil {
		return ctx.Err()
	}
	for _, id := range ended {
		gone[id] = true
	}
	for _, g := range gateways {
		for _, a := range g.NatGatewayAddresses {
			gone[aws.ToString(a.NetworkInterfaceId)] = g.State == ec2types.NatGatewayStateDeleted
		}
	}
	delete(gone, "") // an interface of no instance is not one of the job's
	for _, n := range found {
		if aws.ToString(n.VpcId) != vpcID || aws.ToBool(n.RequesterManaged) {
			continue
		}
		at := n.Attachment
		if at != nil && (!gone[aws.ToString(at.InstanceId)] || aws.ToInt32(at.DeviceIndex) != 0) || at == nil && !gone[aws.ToString(n.NetworkInterfaceId)] {
			continue
		}
		err := p.deleteInterface(ctx, n)
		if err != nil && at != nil {
			_, _ = p.ec2.DetachNetworkInterface(ctx, &ec2.DetachNetworkInterfaceInput{AttachmentId: at.AttachmentId, Force: aws.Bool(true)})
			err = p.deleteInterface(ctx, n)
		}
		if err != nil {
			p.log.WarnContext(ctx, "an interface was left behind", "interface", aws.ToString(n.NetworkInterfaceId), "error", err)
		}
	}
	return ctx.Err()
}

func (p *Provider) deleteInterface(ctx context.Context, n ec2types.NetworkInterface) error {
	_, err := p.ec2.DeleteNetworkInterface(ctx, &ec2.DeleteNetworkInterfaceInput{NetworkInterfaceId: n.NetworkInterfaceId})
	return pipeline.Unless(err, pipeline.NotFound)
}

// removeDisksLeftBehind removes the root disks that an emulator keeps on
// instances that have ended. At EC2 a disk is on no ended instance.
func (p *Provider) removeDisksLeftBehind(ctx context.Context, r *pipeline.Run) error {
	if !p.foreignEndpoint() {
		return nil
	}
	ids, err := p.endedVMs(ctx, r)
	if err != nil || len(ids) == 0 {
		return ctx.Err()
	}
	volumes, err := p.volumesOf(ctx, ids)
	if err != nil {
		return ctx.Err() // a kind that cannot be listed; the scan at the end tells
	}
	for _, v := range volumes {
		if len(v.Attachments) != 1 {
			continue
		}
		at := v.Attachments[0]
		root := aws.ToBool(at.DeleteOnTermination) || at.DeleteOnTermination == nil && aws.ToString(at.Device) == r.Job.Config.InfraConfig.RootDevice
		if !root || !slices.Contains(ids, aws.ToString(at.InstanceId)) {
			continue
		}
		remove := func() error {
			_, err := p.ec2.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: v.VolumeId})
			return pipeline.Unless(err, pipeline.NotFound)
		}
		err := remove()
		if err != nil {
			_, _ = p.ec2.DetachVolume(ctx, &ec2.DetachVolumeInput{VolumeId: v.VolumeId, InstanceId: at.InstanceId, Device: at.Device, Force: aws.Bool(true)})
			err = remove()
		}
		if err != nil {
			p.log.WarnContext(ctx, "a disk was left behind", "volume", aws.ToString(v.VolumeId), "error", err)
		}
	}
	return ctx.Err()
}
