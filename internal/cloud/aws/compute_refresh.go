package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	asgtypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// RefreshVMs brings InfraConfig.VMs up to date; it only reads.
func (p *Provider) RefreshVMs(ctx context.Context, j *job.Job) error {
	ctx = lookup.For(ctx, j.ID)
	infra := &j.Config.InfraConfig
	if infra.ScalingGroupID != "" {
		g, err := p.readScalingGroup(ctx, infra.ScalingGroupID)
		switch {
		case err == nil:
			return p.refreshMembers(ctx, j, g)
		case !pipeline.Is(err, pipeline.NotFound):
			return plain(err)
		}
		// Without its group, what is left of it are VMs as any others.
	}
	return p.refreshFixed(ctx, j)
}

func (p *Provider) refreshMembers(ctx context.Context, j *job.Job, g asgtypes.AutoScalingGroup) error {
	vms, _, err := p.groupVMs(ctx, j.Config.InfraConfig.VMs, g)
	if err != nil {
		return err
	}
	for i := range vms {
		judgeMember(&vms[i], g, !j.Owns())
	}
	j.Config.InfraConfig.VMs = vms
	return nil
}

func (p *Provider) refreshFixed(ctx context.Context, j *job.Job) error {
	infra := &j.Config.InfraConfig
	var ids []string
	for _, vm := range infra.VMs {
		if vm.InstanceID != "" {
			ids = append(ids, vm.InstanceID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	found, err := p.byID(ctx, ids)
	if err != nil {
		return err
	}
	for i := range infra.VMs {
		vm := &infra.VMs[i]
		switch inst, ok := found[vm.InstanceID]; {
		case ok:
			takeIn(vm, inst, !j.Owns())
		case vm.InstanceID != "":
			// EC2 shows an ended instance for about an hour, then no more.
			vm.State, vm.LastError = job.VMTerminated, "the cloud no longer shows it"
		}
	}
	return nil
}

// judgeMember says of a VM that the group has launched since the job was done
// whether it is ready: nobody looks for its sentinel, but the load balancer's
// health check is only passed by what the bootstrap has started.
func judgeMember(vm *job.VMInfo, g asgtypes.AutoScalingGroup, adopted bool) {
	if vm.State != job.VMBootstrapping {
		return
	}
	for _, m := range g.Instances {
		if aws.ToString(m.InstanceId) == vm.InstanceID && m.LifecycleState == asgtypes.LifecycleStateInService &&
			(adopted || aws.ToString(g.HealthCheckType) == "ELB" && aws.ToString(m.HealthStatus) == "Healthy") {
			vm.State, vm.LastError = job.VMReady, ""
		}
	}
}

// AdoptVMs reads what an adopt job points at. It calls nothing that changes
// anything, and notes what is risky about what it finds.
func (p *Provider) AdoptVMs(ctx context.Context, r *pipeline.Run) error {
	if r.Mode == pipeline.Plan {
		return nil
	}
	ctx = view(ctx, r)
	spec, err := r.Job.VMSpec()
	if err != nil {
		return err
	}
	if spec.Adopt == nil {
		return pipeline.Fatal("invalid", "the job does not say what to adopt", "Name instances in spec.adopt.ids, or a scaling group in spec.adopt.name.").On("config.spec.adopt")
	}
	infra := &r.Job.Config.InfraConfig
	ids, group, err := p.adopted(ctx, r, *spec.Adopt)
	if err != nil {
		return err
	}
	found, err := p.byID(ctx, ids)
	if err != nil {
		return err
	}
	vms := make([]job.VMInfo, 0, len(ids))
	for _, id := range ids {
		i, ok := found[id]
		if !ok || stateOf(i) == ec2types.InstanceStateNameTerminated {
			if group != "" {
				continue // the group is replacing it
			}
			return pipeline.Fatal("not-found", fmt.Sprintf("instance %s does not exist in %s", id, r.Job.Region), "Give the ID of an instance of this account and region.").On("config.spec.adopt.ids")
		}
		if owner, _ := ec2Mark(i.Tags); owner != "" && owner != r.Job.ID {
			return ownedByJob("instance "+id, owner)
		}
		vm := job.VMInfo{Name: nameTag(i.Tags), InstanceID: id, LaunchedAt: i.LaunchTime}
		if vm.Name == "" || slices.ContainsFunc(vms, func(v job.VMInfo) bool { return v.Name == vm.Name }) {
			vm.Name = id
		}
		takeIn(&vm, i, true)
		vms = append(vms, vm)
		infra.NetworkID, infra.InstanceType, infra.ImageID = aws.ToString(i.VpcId), string(i.InstanceType), aws.ToString(i.ImageId)
	}
	infra.VMs, infra.ScalingGroupID, infra.ExecMode = vms, group, job.ExecSSM
	for _, note := range p.risks(ctx, found) {
		if !slices.Contains(infra.Warnings, note) {
			infra.Warnings = append(infra.Warnings, note)
		}
	}
	return nil
}

func ownedByJob(what, owner string) error {
	return pipeline.Fatal("owned-by-another-job", fmt.Sprintf("%s carries the mark of job %s", what, owner),
		"What a job has made is not adopted by another: use that job, or tear it down.").On("config.spec.adopt")
}

// adopted is the instance IDs that the job names, by themselves or by their
// scaling group.
func (p *Provider) adopted(ctx context.Context, r *pipeline.Run, a job.Adopt) (ids []string, group string, err error) {
	for _, id := range a.IDs {
		plainID, err := fromARN(r, id, "instance/")
		if err != nil {
			return nil, "", err
		}
		ids = append(ids, plainID)
	}
	if a.Name == "" {
		return ids, "", nil
	}
	group, err = fromARN(r, a.Name, "autoScalingGroupName/")
	if err != nil {
		return nil, "", err
	}
	g, err := p.readScalingGroup(ctx, group)
	if pipeline.Is(err, pipeline.NotFound) {
		return nil, "", pipeline.Fatal("not-found", fmt.Sprintf("there is no scaling group %s in %s", group, r.Job.Region), "Give the name of a scaling group of this account and region.").On("config.spec.adopt.name")
	}
	if err != nil {
		return nil, "", plain(err)
	}
	if owner, _ := p.scalingGroups().Mark(g); owner != "" && owner != r.Job.ID {
		return nil, "", ownedByJob("scaling group "+group, owner)
	}
	for _, m := range g.Instances {
		ids = append(ids, aws.ToString(m.InstanceId))
	}
	slices.Sort(ids)
	return ids, group, nil
}

// fromARN is the plain ID in an ARN of the job's own account; what is no ARN is
// returned as it is.
func fromARN(r *pipeline.Run, id, before string) (string, error) {
	parts := strings.SplitN(id, ":", 6)
	if len(parts) < 6 || parts[0] != "arn" {
		return id, nil
	}
	if account := r.Job.Config.InfraConfig.Account; account != "" && parts[4] != "" && parts[4] != account {
		return "", pipeline.Fatal("wrong-account", fmt.Sprintf("%s belongs to account %s, and the job's credentials to %s", id, parts[4], account), "Name something of this account.").On("config.spec.adopt")
	}
	_, after, ok := strings.Cut(parts[5], before)
	if !ok {
		return id, nil
	}
	return after, nil
}

func nameTag(tags []ec2types.Tag) string {
	for _, t := range tags {
		if aws.ToString(t.Key) == "Name" {
			return aws.ToString(t.Value)
		}
	}
	return ""
}

// risks is what is less than safe about adopted VMs. What cannot be read is
// said, and is no reason to refuse.
func (p *Provider) risks(ctx context.Context, found map[string]ec2types.Instance) []string {
	var out []string
	var ids, groups []string
	for id, i := range found {
		ids = append(ids, id)
		if ip := aws.ToString(i.PublicIpAddress); ip != "" {
			out = append(out, fmt.Sprintf("%s has a public address, %s", id, ip))
		}
		if m := i.MetadataOptions; m != nil && m.HttpTokens == ec2types.HttpTokensStateOptional {
			out = append(out, id+" answers metadata requests without a session token (IMDSv1)")
		}
		for _, g := range i.SecurityGroups {
			groups = append(groups, aws.ToString(g.GroupId))
		}
	}
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	slices.Sort(groups)
	unread := func(what string, err error) {
		out = append(out, fmt.Sprintf("%s could not be read: %v", what, plain(err)))
	}

	volumes, err := p.volumesOf(ctx, ids)
	if err != nil {
		unread("the disks", err)
	}
	for _, v := range volumes {
		if !aws.ToBool(v.Encrypted) {
			at := ""
			if len(v.Attachments) > 0 {
				at = " of " + aws.ToString(v.Attachments[0].InstanceId)
			}
			out = append(out, fmt.Sprintf("disk %s%s is not encrypted", aws.ToString(v.VolumeId), at))
		}
	}
	all, err := ec2Page[ec2types.SecurityGroup](p.groupPage).all(ctx, filter("group-id", slices.Compact(groups)...))
	if err != nil {
		unread("the security groups", err)
	}
	for _, g := range all {
		for _, l := range linesOf(g.IpPermissions) {
			if l.opens(22) {
				out = append(out, fmt.Sprintf("security group %s opens port 22 to %s", aws.ToString(g.GroupId), l.peer))
			}
		}
	}
	online, err := p.agents(ctx, ids)
	if err != nil {
		unread("the Systems Manager agents", err)
	} else {
		for _, id := range ids {
			if !online[id] {
				out = append(out, id+" is not registered with Systems Manager: there is no exec channel to it")
			}
		}
	}
	slices.Sort(out)
	return out
}

// opens reports whether a line lets the world in on a port.
func (l line) opens(port int32) bool {
	world := l.peer == "0.0.0.0/0" || l.peer == "::/0"
	return world && (l.proto == "-1" || (l.proto == "tcp" || l.proto == "6") && l.from <= port && port <= l.to)
}

func (p *Provider) volumePage(ctx context.Context, f []ec2types.Filter, ids []string, token *string) ([]ec2types.Volume, *string, error) {
	out, err := p.ec2.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{Filters: f, VolumeIds: ids, NextToken: token})
	if err != nil {
		return nil, nil, err
	}
	return out.Volumes, out.NextToken, nil
}

func (p *Provider) volumesOf(ctx context.Context, instances []string) ([]ec2types.Volume, error) {
	var out []ec2types.Volume
	for part := range slices.Chunk(instances, 100) {
		found, err := ec2Page[ec2types.Volume](p.volumePage).all(ctx, filter("attachment.instance-id", part...))
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}
