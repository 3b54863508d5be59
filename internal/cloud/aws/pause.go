package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	asgtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

var _ cloud.Pausable = (*Provider)(nil)

// Pool reads how a pool of VMs or nodes stands.
func (p *Provider) Pool(ctx context.Context, ref job.PoolRef) (job.PoolState, error) {
	switch ref.Kind {
	case job.PoolEC2Instances:
		return p.instancePool(ctx, ref)
	case job.PoolScalingGroup:
		return p.groupPool(ctx, ref)
	case job.PoolEKSNodes:
		return p.nodePool(ctx, ref)
	}
	return job.PoolState{}, notPausable(ref)
}

// SetPool takes a pool one step towards the wanted state.
func (p *Provider) SetPool(ctx context.Context, _ *pipeline.Run, ref job.PoolRef, have, want job.PoolState) error {
	switch ref.Kind {
	case job.PoolEC2Instances:
		return p.setInstances(ctx, have, want)
	case job.PoolScalingGroup:
		return p.setGroup(ctx, ref, have, want)
	case job.PoolEKSNodes:
		return p.setNodes(ctx, ref, want)
	}
	return notPausable(ref)
}

func notPausable(ref job.PoolRef) error {
	return pipeline.Fatal("not-pausable", fmt.Sprintf("a %s is nothing that can be paused at AWS", ref.Kind), "Name a VM or cluster job.")
}

// instancePool is VMs with names of their own. Stopped ones keep their disks and
// addresses ("Stop and start Amazon EC2 instances").
func (p *Provider) instancePool(ctx context.Context, ref job.PoolRef) (job.PoolState, error) {
	found, err := p.byID(ctx, ref.Instances)
	if err != nil {
		return job.PoolState{}, plain(err)
	}
	s := job.PoolState{Instances: map[string]job.Power{}}
	var moving []string
	for _, id := range ref.Instances {
		i, ok := found[id]
		state := stateOf(i)
		switch {
		case !ok || state == ec2types.InstanceStateNameTerminated || state == ec2types.InstanceStateNameShuttingDown:
			s.Instances[id] = job.PowerGone
			continue
		case state == ec2types.InstanceStateNameStopped:
			s.Instances[id] = job.PowerStopped
			continue
		case state == ec2types.InstanceStateNameStopping:
			s.Instances[id] = job.PowerStopped
			moving = append(moving, id+" is "+string(state))
		default:
			s.Instances[id] = job.PowerRunning
			if state != ec2types.InstanceStateNameRunning {
				moving = append(moving, id+" is "+string(state))
			}
		}
		s.Running++
	}
	s.Busy = strings.Join(moving, ", ")
	return s, nil
}

func (p *Provider) setInstances(ctx context.Context, have, want job.PoolState) error {
	stop, start := powerChanges(have, want)
	if len(stop) > 0 {
		if _, err := p.ec2.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: stop}); err != nil {
			return plain(err)
		}
	}
	if len(start) > 0 {
		if _, err := p.ec2.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: start}); err != nil {
			return plain(err)
		}
	}
	return nil
}

// powerChanges are the VMs to stop and to start. One that is gone is neither.
func powerChanges(have, want job.PoolState) (stop, start []string) {
	for id, power := range want.Instances {
		switch {
		case power == job.PowerStopped && have.Instances[id] == job.PowerRunning:
			stop = append(stop, id)
		case power == job.PowerRunning && have.Instances[id] == job.PowerStopped:
			start = append(start, id)
		}
	}
	slices.Sort(stop)
	slices.Sort(start)
	return stop, start
}

func (p *Provider) groupPool(ctx context.Context, ref job.PoolRef) (job.PoolState, error) {
	g, err := p.readScalingGroup(ctx, ref.ID)
	if err != nil {
		return job.PoolState{}, plain(err)
	}
	s := job.PoolState{Min: int(aws.ToInt32(g.MinSize)), Max: int(aws.ToInt32(g.MaxSize)), Desired: int(aws.ToInt32(g.DesiredCapacity)), Busy: aws.ToString(g.Status)}
	for _, x := range g.SuspendedProcesses {
		s.Suspended = append(s.Suspended, aws.ToString(x.ProcessName))
	}
	slices.Sort(s.Suspended)
	s.Running, s.Settling = groupMachines(g)
	return s, nil
}

// groupMachines counts a group's VMs, and says what is under way with them.
func groupMachines(g asgtypes.AutoScalingGroup) (n int, settling string) {
	served := 0
	for _, i := range g.Instances {
		if i.LifecycleState == asgtypes.LifecycleStateInService {
			served++
		}
	}
	n = len(g.Instances)
	if want := int(aws.ToInt32(g.DesiredCapacity)); served != want || n != want {
		settling = fmt.Sprintf("%d VMs, %d of them in service, on the way to %d", n, served, want)
	}
	return n, settling
}

// setGroup suspends before it empties, and resumes after it fills: an alarm or a
// scheduled action would change the size in between.
func (p *Provider) setGroup(ctx context.Context, ref job.PoolRef, have, want job.PoolState) error {
	group := aws.String(ref.ID)
	if add := missingFrom(want.Suspended, have.Suspended); len(add) > 0 {
		if _, err := p.asg.SuspendProcesses(ctx, &autoscaling.SuspendProcessesInput{AutoScalingGroupName: group, ScalingProcesses: add}); err != nil {
			return inTurnHere(err, "scaling group "+ref.ID)
		}
	}
	if have.Min != want.Min || have.Max != want.Max || have.Desired != want.Desired {
		_, err := p.asg.UpdateAutoScalingGroup(ctx, &autoscaling.UpdateAutoScalingGroupInput{
			AutoScalingGroupName: group, MinSize: aws.Int32(int32(want.Min)), MaxSize: aws.Int32(int32(want.Max)), DesiredCapacity: aws.Int32(int32(want.Desired)),
		})
		if err != nil {
			return inTurnHere(err, "scaling group "+ref.ID)
		}
	}
	if lift := missingFrom(have.Suspended, want.Suspended); len(lift) > 0 {
		if _, err := p.asg.ResumeProcesses(ctx, &autoscaling.ResumeProcessesInput{AutoScalingGroupName: group, ScalingProcesses: lift}); err != nil {
			return inTurnHere(err, "scaling group "+ref.ID)
		}
	}
	return nil
}

// missingFrom is what of a is not in b.
func missingFrom(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}

// inTurnHere waits where something else is under way.
func inTurnHere(err error, what string) error {
	if err = plain(err); pipeline.Is(err, pipeline.Busy) {
		return pipeline.Wait(10*time.Second, "%s to take a change (%v)", what, err)
	}
	return err
}

// nodePool is a managed node group. Its size stands in its scaling configuration,
// and its machines in the scaling group behind it.
func (p *Provider) nodePool(ctx context.Context, ref job.PoolRef) (job.PoolState, error) {
	if ref.Cluster == nil {
		return job.PoolState{}, notPausable(ref)
	}
	g, err := p.readNodegroup(ctx, ref.Cluster.Name, ref.Name)
	if err != nil {
		return job.PoolState{}, plain(err)
	}
	var s job.PoolState
	if c := g.ScalingConfig; c != nil {
		s.Min, s.Max, s.Desired = int(aws.ToInt32(c.MinSize)), int(aws.ToInt32(c.MaxSize)), int(aws.ToInt32(c.DesiredSize))
	}
	if g.Status != ekstypes.NodegroupStatusActive && g.Status != ekstypes.NodegroupStatusDegraded {
		s.Busy = fmt.Sprintf("node group %s is %s", ref.Name, nodegroupIssues(g))
	}
	s.Running = s.Desired
	if g.Resources == nil {
		return s, nil
	}
	s.Running = 0
	for _, x := range g.Resources.AutoScalingGroups {
		behind, err := p.readScalingGroup(ctx, aws.ToString(x.Name))
		if pipeline.Is(err, pipeline.NotFound) {
			continue
		}
		if err != nil {
			return s, plain(err)
		}
		n, settling := groupMachines(behind)
		s.Running += n
		if settling != "" {
			s.Settling = settling
		}
	}
	return s, nil
}

// setNodes changes a node group's scaling configuration. "maxSize: minimum value
// of 1" (NodegroupScalingConfig): a pool of none keeps its most.
func (p *Provider) setNodes(ctx context.Context, ref job.PoolRef, want job.PoolState) error {
	_, err := p.eks.UpdateNodegroupConfig(ctx, &eks.UpdateNodegroupConfigInput{
		ClusterName: aws.String(ref.Cluster.Name), NodegroupName: aws.String(ref.Name),
		ScalingConfig: &ekstypes.NodegroupScalingConfig{MinSize: aws.Int32(int32(want.Min)), MaxSize: aws.Int32(int32(max(want.Max, 1))), DesiredSize: aws.Int32(int32(want.Desired))},
	})
	return inTurnHere(err, "node group "+ref.Name)
}
