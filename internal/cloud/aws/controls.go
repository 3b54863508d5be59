package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// Controls reads the hardening controls of a job's objects back from the cloud.
// A control that does not apply to the job has no row, and neither has one that
// the cloud or the caller's permissions do not let be read: a note says so, and
// nothing is taken for not met that was not seen.
func (p *Provider) Controls(ctx context.Context, r *pipeline.Run) ([]job.Control, error) {
	if r.Mode == pipeline.Plan {
		return nil, nil
	}
	ctx = view(ctx, r)
	net, err := r.Job.Network()
	if err != nil {
		return nil, err
	}
	var spec job.VMSpec
	parts := []controlPart{
		{"the network", (*controls).network}, {"the flow log", (*controls).flowLog}, {"the endpoints", (*controls).endpoints}, {"the network ACL", (*controls).networkACL},
		{"the security groups", (*controls).groups}, {"the peerings", (*controls).peerings},
	}
	if r.Job.ResourceType == job.VM {
		if spec, err = r.Job.VMSpec(); err != nil {
			return nil, err
		}
		parts = append(parts, vmControls...)
	}
	reports := make([]controls, len(parts))
	var reads []func(context.Context) error
	for i, part := range parts {
		reports[i] = controls{p: p, r: r, spec: spec, net: net, infra: &r.Job.Config.InfraConfig}
		reads = append(reads, func(ctx context.Context) error {
			err := plain(part.read(&reports[i], ctx))
			switch {
			case pipeline.Is(err, pipeline.Invalid, pipeline.Denied, pipeline.NotFound):
				r.Note("the controls of %s were not read: %v", part.about, err)
			case err != nil:
				return fmt.Errorf("read back %s: %w", part.about, err)
			}
			return nil
		})
	}
	var rows []job.Control
	if isCluster(r.Job) {
		reads = append(reads, func(ctx context.Context) (err error) {
			rows, err = p.clusterControls(ctx, r)
			return err
		})
	}
	if isDatastore(r.Job) {
		reads = append(reads, func(ctx context.Context) (err error) {
			rows, err = p.datastoreControls(ctx, r)
			return err
		})
	}
	if err := pipeline.All(ctx, reads...); err != nil {
		return nil, err
	}
	for _, c := range reports {
		rows = append(rows, c.rows...)
	}
	slices.SortStableFunc(rows, func(a, b job.Control) int { return strings.Compare(a.ID, b.ID) })
	return rows, nil
}

// A controlPart reads the controls of one thing back.
type controlPart struct {
	about string
	read  func(*controls, context.Context) error
}

// vmControls are what only VM jobs have.
var vmControls = []controlPart{
	{"the launch template", (*controls).template}, {"the VMs", (*controls).vms}, {"the disks", (*controls).disks},
	{"the Systems Manager agents", (*controls).agents}, {"the scaling group", (*controls).scalingGroup}, {"the image", (*controls).image},
	{"the load balancer", (*controls).loadBalancer}, {"the listeners", (*controls).listeners}, {"the target group", (*controls).targetGroup},
}

// controls is one part of the report as it is put together.
type controls struct {
	p     *Provider
	r     *pipeline.Run
	spec  job.VMSpec
	net   job.NetworkSpec
	infra *job.InfraConfig
	rows  []job.Control
}

// same adds a control that is met if what is seen is what is wanted.
func (c *controls) same(id, name, wanted, seen, source string) {
	c.add(id, name, wanted, seen, seen == wanted, source)
}

func (c *controls) add(id, name, wanted, seen string, met bool, source string) {
	c.rows = append(c.rows, job.Control{ID: id, Name: name, Wanted: wanted, Seen: or(seen, "nothing"), Met: met, Source: source})
}

// agreed is the one value of a list, or all that differ.
func agreed(values []string) string {
	values = slices.Compact(slices.Sorted(slices.Values(values)))
	return strings.Join(values, ", ")
}

func (c *controls) template(ctx context.Context) error {
	if c.infra.LaunchTemplateID == "" {
		return nil
	}
	version, err := c.p.defaultVersion(ctx, c.infra.LaunchTemplateID)
	if err != nil {
		return err
	}
	data := version.LaunchTemplateData
	tokens, hops := "optional", "not set"
	if m := data.MetadataOptions; m != nil {
		tokens, hops = string(m.HttpTokens), fmt.Sprint(aws.ToInt32(m.HttpPutResponseHopLimit))
	}
	c.same("VMA-01", "template requires metadata tokens (IMDSv2)", "required", tokens, "AWS-0130, EC2.170")
	c.same("VMA-02", "template's metadata hop limit", "1", hops, "CKV_AWS_341")
	var disks []string
	for _, b := range data.BlockDeviceMappings {
		if b.Ebs != nil {
			disks = append(disks, yesNo(aws.ToBool(b.Ebs.Encrypted)))
		}
	}
	c.same("VMA-03", "template's disks are encrypted", "yes", agreed(disks), "EC2.181, CKV_AWS_8")
	profile := ""
	if data.IamInstanceProfile != nil {
		profile = or(aws.ToString(data.IamInstanceProfile.Name), aws.ToString(data.IamInstanceProfile.Arn))
	}
	c.add("VMA-06", "template has an instance profile", c.infra.InstanceProfileName, profile, profile != "", "CKV2_AWS_41, CIS AWS 2.16")
	c.same("VMA-14", "template is EBS-optimized", yesNo(ebsOptimized(string(data.InstanceType))), yesNo(aws.ToBool(data.EbsOptimized)), "CKV_AWS_135")
	public := "as the subnet says"
	for _, n := range data.NetworkInterfaces {
		if n.AssociatePublicIpAddress != nil {
			public = yesNo(*n.AssociatePublicIpAddress)
		}
	}
	c.same("VMA-05", "template gives a public address", "no", public, "EC2.25")
	c.userData(data.UserData)
	var tagged []string
	for _, s := range data.TagSpecifications {
		if owner, _ := ec2Mark(s.Tags); owner == c.r.Job.ID && (s.ResourceType == ec2types.ResourceTypeInstance || s.ResourceType == ec2types.ResourceTypeVolume) {
			tagged = append(tagged, string(s.ResourceType))
		}
	}
	c.same("VMA-13", "template's tags reach", "instance, volume", agreed(tagged), "CKV_AWS_153")
	return nil
}

func (c *controls) vms(ctx context.Context) error {
	var tokens, hops, public, profile, optimized, cards []string
	read := 0
	for _, vm := range c.infra.VMs {
		if vm.InstanceID == "" {
			continue
		}
		i, err := c.p.instances().Get(ctx, vm.InstanceID)
		if pipeline.Is(err, pipeline.NotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if s := stateOf(i); s == ec2types.InstanceStateNameTerminated || s == ec2types.InstanceStateNameShuttingDown {
			continue
		}
		read++
		if m := i.MetadataOptions; m != nil && m.HttpTokens != "" {
			tokens = append(tokens, string(m.HttpTokens))
			hops = append(hops, fmt.Sprint(aws.ToInt32(m.HttpPutResponseHopLimit)))
		}
		public = append(public, or(aws.ToString(i.PublicIpAddress), "none"))
		if n := len(i.NetworkInterfaces); n > 0 {
			cards = append(cards, fmt.Sprintf("%d, %s", n, or(string(i.VirtualizationType), "hvm")))
		}
		arn := "none"
		if i.IamInstanceProfile != nil {
			arn = aws.ToString(i.IamInstanceProfile.Arn)
		}
		profile = append(profile, arn)
		if ebsOptimized(string(i.InstanceType)) {
			optimized = append(optimized, yesNo(aws.ToBool(i.EbsOptimized)))
		}
	}
	if read == 0 {
		return nil
	}
	if len(tokens) > 0 {
		c.same("VMA-01", "VMs require metadata tokens (IMDSv2)", "required", agreed(tokens), "EC2.8, CIS AWS 6.7")
		c.same("VMA-02", "VMs' metadata hop limit", "1", agreed(hops), "CKV_AWS_341")
	}
	if len(cards) > 0 {
		c.same("VMA-16", "VMs' network interfaces and virtualization", "1, hvm", agreed(cards), "EC2.17, EC2.24")
	}
	c.same("VMA-05", "VMs' public addresses", "none", agreed(public), "EC2.9, CKV_AWS_88")
	c.add("VMA-06", "VMs have an instance profile", "one each", agreed(profile), !slices.Contains(profile, "none"), "CKV2_AWS_41, CIS AWS 2.16")
	if len(optimized) > 0 {
		c.same("VMA-14", "VMs are EBS-optimized", "yes", agreed(optimized), "CKV_AWS_135")
	}
	return nil
}

func (c *controls) ids() []string {
	var out []string
	for _, vm := range c.infra.VMs {
		if vm.InstanceID != "" {
			out = append(out, vm.InstanceID)
		}
	}
	return out
}

func (c *controls) disks(ctx context.Context) error {
	ids := c.ids()
	if len(ids) == 0 {
		return nil
	}
	volumes, err := c.p.volumesOf(ctx, ids)
	if err != nil || len(volumes) == 0 {
		return err
	}
	var encrypted, keys, marked []string
	for _, v := range volumes {
		encrypted = append(encrypted, yesNo(aws.ToBool(v.Encrypted)))
		keys = append(keys, or(aws.ToString(v.KmsKeyId), "the account's default key"))
		owner, _ := ec2Mark(v.Tags)
		marked = append(marked, yesNo(owner == c.r.Job.ID))
	}
	c.same("VMA-03", "VMs' disks are encrypted", "yes", agreed(encrypted), "EC2.3, CKV_AWS_3")
	c.add("VMA-04", "VMs' disks use a customer's key", "not asked for (opt-in)", agreed(keys), true, "CKV_AWS_189")
	c.same("VMA-13", "VMs' disks carry the job's tags", "yes", agreed(marked), "CKV_AWS_153")
	return nil
}

func (c *controls) agents(ctx context.Context) error {
	ids := c.ids()
	if len(ids) == 0 {
		return nil
	}
	online, err := c.p.agents(ctx, ids)
	if err != nil {
		if pipeline.Is(err, pipeline.Unavailable, pipeline.Unknown) {
			c.r.Note("the Systems Manager agents were not read: %v", err)
			return nil
		}
		return err
	}
	seen := fmt.Sprintf("%d of %d online", len(online), len(ids))
	// The bootstrap's sentinel was read through the agent: a list that shows
	// nobody at all is one that the cloud does not keep.
	if len(online) == 0 && slices.ContainsFunc(c.infra.VMs, func(vm job.VMInfo) bool { return vm.SentinelSeenAt != nil }) {
		c.r.Note("the cloud's list of agents shows nobody, though commands were answered")
		return nil
	}
	c.add("VMA-07", "reachable through Systems Manager, not SSH", "all online", seen, len(online) == len(ids), "SSM.1")
	return nil
}

func (c *controls) scalingGroup(ctx context.Context) error {
	if c.infra.ScalingGroupID == "" {
		return nil
	}
	g, err := c.p.readScalingGroup(ctx, c.infra.ScalingGroupID)
	if err != nil {
		return err
	}
	template := "none"
	if g.LaunchTemplate != nil {
		template = aws.ToString(g.LaunchTemplate.LaunchTemplateId)
	}
	c.same("VMA-09", "scaling group uses the launch template", c.infra.LaunchTemplateID, template, "AutoScaling.9, CKV_AWS_315")
	zones := g.AvailabilityZones
	c.add("VMA-10", "scaling group spans zones", "2 or more", sortedList(zones), len(zones) >= 2, "AutoScaling.2")
	if len(attachedGroups(g)) > 0 && c.spec.Bootstrap != job.BootstrapBare {
		c.same("VMA-11", "scaling group asks the load balancer for health", "ELB", aws.ToString(g.HealthCheckType), "AutoScaling.1, CKV2_AWS_15")
	}
	propagate := "yes"
	for _, t := range g.Tags {
		if !aws.ToBool(t.PropagateAtLaunch) {
			propagate = "not " + aws.ToString(t.Key)
		}
	}
	c.same("VMA-13", "scaling group's tags reach its VMs", "yes", propagate, "CKV_AWS_153")
	return nil
}

// image looks whether the image is still one to start from. Which image it is
// was fixed by its ID when the job began.
func (c *controls) image(ctx context.Context) error {
	if c.infra.ImageID == "" {
		return nil
	}
	out, err := c.p.ec2.DescribeImages(ctx, &ec2.DescribeImagesInput{ImageIds: []string{c.infra.ImageID}, IncludeDeprecated: aws.Bool(true)})
	if err != nil {
		return err
	}
	if len(out.Images) == 0 {
		return nil
	}
	i := out.Images[0]
	seen := fmt.Sprintf("%s of %s", aws.ToString(i.ImageId), or(aws.ToString(i.OwnerId), "an owner that is not said"))
	deprecated := false
	if at := aws.ToString(i.DeprecationTime); at != "" {
		deprecated = at < c.r.Now().UTC().Format("2006-01-02T15:04:05")
		seen += ", deprecated from " + at
	}
	c.add("VMA-17", "image is fixed by its ID and not deprecated", "not deprecated", seen, !deprecated, "CKV_AWS_386, ec2_instance_with_outdated_ami")
	return nil
}
