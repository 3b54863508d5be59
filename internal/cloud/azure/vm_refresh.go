package azure

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// RefreshVMs brings InfraConfig.VMs up to date; it only reads.
func (p *Provider) RefreshVMs(ctx context.Context, j *job.Job) error {
	ctx = lookup.For(ctx, j.ID)
	infra := &j.Config.InfraConfig
	if infra.ScalingGroupID != "" {
		members, err := p.members(ctx, infra.ScalingGroupID)
		switch {
		case err == nil:
			return p.takeMembers(ctx, j, members)
		case !pipeline.Is(err, pipeline.NotFound):
			return err
		}
	}
	for i := range infra.VMs {
		vm := &infra.VMs[i]
		if vm.InstanceID == "" {
			continue
		}
		x, err := read[armcompute.VirtualMachine](ctx, p, vm.InstanceID+withView)
		switch {
		case pipeline.Is(err, pipeline.NotFound):
			vm.State, vm.LastError = job.VMTerminated, "the cloud no longer shows it"
		case err != nil:
			return err
		default:
			if err := p.takeIn(ctx, vm, x, !j.Owns()); err != nil {
				return err
			}
		}
	}
	return nil
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
		return pipeline.Fatal("invalid", "the job does not say what to adopt", "Name VMs in spec.adopt.ids, or a scale set in spec.adopt.name.").On("config.spec.adopt")
	}
	infra := &r.Job.Config.InfraConfig
	infra.ExecMode = job.ExecAzureRunCmd
	if spec.Adopt.Name != "" {
		return p.adoptSet(ctx, r, spec.Adopt.Name)
	}
	vms := make([]job.VMInfo, 0, len(spec.Adopt.IDs))
	for _, named := range spec.Adopt.IDs {
		x, err := p.vmNamed(ctx, named)
		if err != nil {
			return err
		}
		if owner := x.Tags[job.MarkOwner]; owner != "" && owner != r.Job.ID {
			return ownedByJob("VM "+x.Name, owner)
		}
		vm := job.VMInfo{Name: x.Name, InstanceID: x.ID, LaunchedAt: value(x.is.Properties).TimeCreated}
		if err := p.takeIn(ctx, &vm, x, true); err != nil {
			return err
		}
		vms = append(vms, vm)
		for _, note := range p.risksOfVM(ctx, x) {
			warnOnce(infra, note)
		}
		if f := value(x.is.Properties); f.HardwareProfile != nil {
			infra.InstanceType = string(value(f.HardwareProfile.VMSize))
		}
	}
	infra.VMs = vms
	return nil
}

func warnOnce(infra *job.InfraConfig, text string) {
	if !slices.Contains(infra.Warnings, text) {
		infra.Warnings = append(infra.Warnings, text)
	}
}

func ownedByJob(what, owner string) error {
	return pipeline.Fatal("owned-by-another-job", fmt.Sprintf("%s carries the mark of job %s", what, owner),
		"What a job has made is not adopted by another: use that job, or tear it down.").On("config.spec.adopt")
}

// vmNamed reads a VM by its ID, or by its name wherever in the subscription it is.
func (p *Provider) vmNamed(ctx context.Context, named string) (resource[armcompute.VirtualMachine], error) {
	id, err := p.find(ctx, typeVM, named)
	var x resource[armcompute.VirtualMachine]
	if err == nil {
		x, err = read[armcompute.VirtualMachine](ctx, p, id+withView)
	}
	return x, notThere(err, "VM "+named, "config.spec.adopt.ids")
}

func notThere(err error, what, field string) error {
	if !pipeline.Is(err, pipeline.NotFound) {
		return err
	}
	return pipeline.Fatal("not-found", "there is no "+what+" that these credentials can see", "Give the resource ID or the name of one of this subscription.").On(field).From(err)
}

// find is the ID of something that is named by its ID or by its name.
func (p *Provider) find(ctx context.Context, typ, named string) (string, error) {
	if strings.HasPrefix(named, managementPrefix) {
		return named, nil
	}
	all, err := lookup.Once(ctx, "all "+typ, func(ctx context.Context) ([]meta, error) {
		return list[meta](ctx, p, managementPrefix+p.subscription+"/resources?$filter="+strings.ReplaceAll("resourceType eq '"+typ+"'", " ", "%20"))
	})
	if err != nil {
		return "", err
	}
	var ids []string
	for _, x := range all {
		if same(x.Name, named) {
			ids = append(ids, x.ID)
		}
	}
	switch len(ids) {
	case 1:
		return ids[0], nil
	case 0:
		return "", absent(strings.SplitN(typ, "/", 2)[0], "read", named)
	}
	return "", pipeline.Fatal("ambiguous", fmt.Sprintf("there are %d resources of type %s named %s: %s", len(ids), typ, named, strings.Join(ids, ", ")),
		"Name one by its resource ID, then retry.")
}

func (p *Provider) adoptSet(ctx context.Context, r *pipeline.Run, named string) error {
	infra := &r.Job.Config.InfraConfig
	id, err := p.find(ctx, typeScaleSet, named)
	var set resource[armcompute.VirtualMachineScaleSet]
	if err == nil {
		set, err = read[armcompute.VirtualMachineScaleSet](ctx, p, id)
	}
	if err != nil {
		return notThere(err, "scale set "+named, "config.spec.adopt.name")
	}
	if owner := set.Tags[job.MarkOwner]; owner != "" && owner != r.Job.ID {
		return ownedByJob("scale set "+set.Name, owner)
	}
	members, err := p.members(ctx, set.ID)
	if err != nil {
		return err
	}
	infra.ScalingGroupID = set.ID
	if set.is.SKU != nil {
		infra.InstanceType = value(set.is.SKU.Name)
	}
	if mode := value(value(set.is.Properties).UpgradePolicy); value(mode.Mode) == armcompute.UpgradeModeAutomatic {
		warnOnce(infra, "scale set "+set.Name+" replaces its VMs by itself when its model changes (upgrade policy Automatic)")
	}
	return p.takeMembers(ctx, r.Job, members)
}

// risksOfVM is what is less than safe about an adopted VM. What cannot be read is
// said, and is no reason to refuse.
func (p *Provider) risksOfVM(ctx context.Context, x resource[armcompute.VirtualMachine]) []string {
	var out []string
	f := value(x.is.Properties)
	if sec := f.SecurityProfile; sec == nil || value(sec.SecurityType) != armcompute.SecurityTypesTrustedLaunch {
		out = append(out, fmt.Sprintf("VMZ-03: %s does not boot by trusted launch", x.Name))
	}
	if os := f.OSProfile; os != nil && os.LinuxConfiguration != nil && !value(os.LinuxConfiguration.DisablePasswordAuthentication) {
		out = append(out, fmt.Sprintf("VMZ-01: %s lets people in by password", x.Name))
	}
	nic := nicOf(f.NetworkProfile)
	if nic == "" {
		return out
	}
	n, err := read[armnetwork.Interface](ctx, p, nic)
	if err != nil {
		return append(out, fmt.Sprintf("the interface of %s could not be read: %v", x.Name, err))
	}
	props := value(n.is.Properties)
	for _, c := range props.IPConfigurations {
		if c.Properties != nil && c.Properties.PublicIPAddress != nil {
			out = append(out, fmt.Sprintf("VMZ-08: %s has a public address", x.Name))
		}
	}
	if props.NetworkSecurityGroup == nil {
		return out
	}
	group, err := read[armnetwork.SecurityGroup](ctx, p, value(props.NetworkSecurityGroup.ID))
	if err != nil {
		return append(out, fmt.Sprintf("the security group of %s could not be read: %v", x.Name, err))
	}
	for _, rule := range openRules(group.is) {
		out = append(out, fmt.Sprintf("%s: %s: rule %s", rule.control, x.Name, rule.text))
	}
	return out
}
