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
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/cloud/vmpool"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// ensureScalingGroup makes the group, and is done when as many VMs as it wants
// are in service.
func (p *Provider) ensureScalingGroup(ctx context.Context, r *pipeline.Run, spec job.VMSpec) error {
	if vmpool.LastSight(r) == vmpool.Fresh {
		return nil
	}
	if r.Mode == pipeline.Apply {
		if err := p.removeFixed(ctx, r, vmpool.Surplus(r, kindInstance, 0)); err != nil {
			return err
		}
	}
	infra := &r.Job.Config.InfraConfig
	id, err := r.Ensure(ctx, p.scalingGroup(r, spec.Pool, false))
	learn(r, &infra.ScalingGroupID, id)
	if err != nil {
		return visible(r, "the scaling group", err)
	}
	if r.Mode == pipeline.Plan || infra.ScalingGroupID == "" {
		return nil
	}
	g, err := p.readScalingGroup(ctx, infra.ScalingGroupID)
	if err != nil {
		if r.Mode == pipeline.Verify && pipeline.Is(err, pipeline.NotFound) {
			return nil // reported as drift already
		}
		return visible(r, "the scaling group", plain(err))
	}
	inService, err := p.members(ctx, r, g)
	if err != nil || r.Mode == pipeline.Verify {
		return err
	}
	if want := int(aws.ToInt32(g.DesiredCapacity)); inService < want {
		return p.awaitMembers(ctx, r, g, inService, want)
	}
	r.WaitOver("group")
	r.WaitOver("capacity")
	vmpool.Saw(r)
	return nil
}

// members brings InfraConfig.VMs up to the group's list, and counts those that
// are in service and run.
func (p *Provider) members(ctx context.Context, r *pipeline.Run, g asgtypes.AutoScalingGroup) (inService int, err error) {
	infra := &r.Job.Config.InfraConfig
	vms, instances, err := p.groupVMs(ctx, infra.VMs, g)
	if err != nil {
		return 0, err
	}
	now := r.Now()
	for i := range vms {
		if vms[i].LaunchedAt == nil && r.Mode == pipeline.Apply {
			vms[i].LaunchedAt = &now
		}
	}
	infra.VMs = vms
	for _, m := range g.Instances {
		if m.LifecycleState == asgtypes.LifecycleStateInService && stateOf(instances[aws.ToString(m.InstanceId)]) == ec2types.InstanceStateNameRunning {
			inService++
		}
	}
	return inService, nil
}

// groupVMs is the VMs of a group: those that are known keep what is known of
// them. A member is named by its instance ID, since the group gives no names.
func (p *Provider) groupVMs(ctx context.Context, known []job.VMInfo, g asgtypes.AutoScalingGroup) ([]job.VMInfo, map[string]ec2types.Instance, error) {
	var ids []string
	for _, m := range g.Instances {
		ids = append(ids, aws.ToString(m.InstanceId))
	}
	instances, err := p.byID(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	slices.Sort(ids)
	vms := make([]job.VMInfo, 0, len(ids))
	for _, id := range ids {
		vm := job.VMInfo{Name: id, InstanceID: id, State: job.VMPending, ExecMode: job.ExecSSM}
		if i := slices.IndexFunc(known, func(v job.VMInfo) bool { return v.InstanceID == id }); i >= 0 {
			vm = known[i]
		}
		if i, ok := instances[id]; ok {
			takeIn(&vm, i, false)
		}
		vms = append(vms, vm)
	}
	return vms, instances, nil
}

// byID reads instances by their IDs with one list. A filter answers with those
// that exist, where the ID parameter fails for all if one is not visible yet.
func (p *Provider) byID(ctx context.Context, ids []string) (map[string]ec2types.Instance, error) {
	out := map[string]ec2types.Instance{}
	for part := range slices.Chunk(ids, 100) { // a filter takes 200 values
		found, err := ec2Page[ec2types.Instance](p.instancePage).all(ctx, filter("instance-id", part...))
		if err != nil {
			return nil, plain(err)
		}
		for _, i := range found {
			out[aws.ToString(i.InstanceId)] = i
		}
	}
	return out, nil
}

// awaitMembers says why the group is not complete. What the group itself says
// of its last try is the only place where a lack of capacity or quota shows.
func (p *Provider) awaitMembers(ctx context.Context, r *pipeline.Run, g asgtypes.AutoScalingGroup, have, want int) error {
	acts, err := p.activities(ctx, aws.ToString(g.AutoScalingGroupName))
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%d of %d VMs of scaling group %s in service", have, want, aws.ToString(g.AutoScalingGroupName))
	if n := replacements(acts); n >= max(3, 2*want) {
		return pipeline.Fatal("replace-loop", fmt.Sprintf("%s, and it has replaced %d VMs that failed their health check: %s", text, n, lastCause(acts)),
			"The VMs do not pass the health check in time. Look at one of them, put right what it runs or the health check, then retry.")
	}
	why, code := failure(acts)
	if why != "" {
		text += ": " + why
	}
	waitedFor := r.WaitedFor("group")
	switch {
	case code == "quota-exceeded" || code == "permission-denied":
		return pipeline.Fatal(code, text, "Put right what the message names, then retry.")
	case code == "no-capacity" && r.WaitedFor("capacity") > vmpool.CapacityPatience:
		return pipeline.Fatal(code, text, "Retry later, or tear the job down and make it with another instanceType or in another region.")
	case len(acts) == 0 && len(g.Instances) == 0 && waitedFor > idlePatience && p.foreignEndpoint():
		return pipeline.Fatal("group-idle", fmt.Sprintf("%s after %s, and the group has not tried to start any: this endpoint keeps scaling groups and starts nothing for them", text, idlePatience), "Use pool.mode fixed at this endpoint.")
	case waitedFor > groupPatience:
		return pipeline.Fatal("timed-out", fmt.Sprintf("%s after %s", text, groupPatience), "Look at the group's activity history in the console, then retry.")
	}
	return pipeline.Wait(min(max(waitedFor/4, 5*time.Second), 20*time.Second), "%s", text)
}

// activities is the group's recent history, newest first.
func (p *Provider) activities(ctx context.Context, group string) ([]asgtypes.Activity, error) {
	out, err := p.asg.DescribeScalingActivities(ctx, &autoscaling.DescribeScalingActivitiesInput{AutoScalingGroupName: aws.String(group), MaxRecords: aws.Int32(50)})
	if err != nil {
		if lacksCall(err) || pipeline.Is(err, pipeline.Unavailable) {
			return nil, nil // less is said, and nothing else depends on it
		}
		return nil, plain(err)
	}
	return out.Activities, nil
}

// failure is the group's last failed try, unless one since then has worked.
func failure(acts []asgtypes.Activity) (why, code string) {
	for _, a := range acts {
		switch a.StatusCode {
		case asgtypes.ScalingActivityStatusCodeSuccessful:
			return "", ""
		case asgtypes.ScalingActivityStatusCodeFailed:
			why = aws.ToString(a.StatusMessage)
			if why == "" {
				why = strings.Trim(aws.ToString(a.Description)+" failed, and the group gives no reason", " ")
			}
			return why, failureCode(why)
		}
	}
	return "", ""
}

// failureCode reads the group's sentence, which is all there is.
func failureCode(message string) string {
	m := strings.ToLower(message)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(m, w) })
	}
	switch {
	case has("invalid iam instance profile"):
		return "" // not visible yet
	case has("vcpu limit", "vcpulimitexceeded", "instance limit", "limitexceeded", "quota"):
		return "quota-exceeded"
	case has("do not have sufficient", "insufficientinstancecapacity", "no capacity", "not supported in your requested availability zone"):
		return "no-capacity"
	case has("not authorized", "unauthorizedoperation", "access denied"):
		return "permission-denied"
	}
	return ""
}

// replacements counts VMs that the group took away because they were unwell.
func replacements(acts []asgtypes.Activity) int {
	n := 0
	for _, a := range acts {
		if unwell(a) {
			n++
		}
	}
	return n
}

func unwell(a asgtypes.Activity) bool {
	return strings.HasPrefix(aws.ToString(a.Description), "Terminating") && strings.Contains(strings.ToLower(aws.ToString(a.Cause)), "health check")
}

func lastCause(acts []asgtypes.Activity) string {
	for _, a := range acts {
		if unwell(a) {
			return aws.ToString(a.Cause)
		}
	}
	return "no cause given"
}
