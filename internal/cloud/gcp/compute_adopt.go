package gcp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

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
		return pipeline.Fatal("invalid", "the job does not say what to adopt", "Name VMs in spec.adopt.ids, or a managed instance group in spec.adopt.name.").On("config.spec.adopt")
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
	var machines []*compute.Instance
	for _, id := range ids {
		i := found[id]
		if i == nil {
			if group != "" {
				continue // the group is replacing it
			}
			return notThere("VM "+id, "config.spec.adopt.ids")
		}
		if owner, _ := labelMark(i.Labels); owner != "" && owner != r.Job.ID {
			return ownedByJob("VM "+i.Name, owner)
		}
		vm := job.VMInfo{Name: i.Name, InstanceID: id}
		if slices.ContainsFunc(vms, func(v job.VMInfo) bool { return v.Name == vm.Name }) {
			vm.Name = zoneOf(id) + "/" + i.Name
		}
		if at, err := time.Parse(time.RFC3339, i.CreationTimestamp); err == nil {
			vm.LaunchedAt = &at
		}
		takeIn(&vm, i, true)
		vms, machines = append(vms, vm), append(machines, i)
		infra.InstanceType = base(i.MachineType)
		if len(i.NetworkInterfaces) > 0 {
			infra.NetworkID = rel(i.NetworkInterfaces[0].Network)
		}
	}
	infra.VMs, infra.ScalingGroupID, infra.ExecMode = vms, group, job.ExecOSConfig
	for _, note := range p.vmRisks(ctx, machines) {
		if !slices.Contains(infra.Warnings, note) {
			infra.Warnings = append(infra.Warnings, note)
		}
	}
	return nil
}

func notThere(what, field string) error {
	return pipeline.Fatal("not-found", what+" does not exist", "Name something of the job's project and region.").On(field)
}

func ownedByJob(what, owner string) error {
	return pipeline.Fatal("owned-by-another-job", fmt.Sprintf("%s carries the mark of job %s", what, owner),
		"What a job has made is not adopted by another: use that job, or tear it down.").On("config.spec.adopt")
}

// adopted is the IDs of the VMs that the job names, by themselves or by their
// managed group.
func (p *Provider) adopted(ctx context.Context, r *pipeline.Run, a job.Adopt) (ids []string, group string, err error) {
	for _, named := range a.IDs {
		id, err := p.adoptedVM(ctx, named)
		if err != nil {
			return nil, "", err
		}
		ids = append(ids, id)
	}
	if a.Name == "" {
		return ids, "", nil
	}
	if group, err = p.adoptedGroup(ctx, r, a.Name); err != nil {
		return nil, "", err
	}
	members, err := p.membersOf(ctx, group)
	for _, m := range members {
		ids = append(ids, rel(m.Instance))
	}
	slices.Sort(ids)
	return ids, group, err
}

// adoptedVM is the ID of a VM that is named by its link, its zone and name, or
// its name alone.
func (p *Provider) adoptedVM(ctx context.Context, named string) (string, error) {
	const field = "config.spec.adopt.ids"
	id := rel(named)
	if zone, vm, ok := strings.Cut(named, "/"); ok && !strings.Contains(vm, "/") {
		id = p.zonal(zone, "instances", vm)
	}
	if strings.Contains(id, "/") {
		if err := p.within(id, field); err != nil {
			return "", err
		}
		_, err := p.instances("").lookup().Get(ctx, id)
		if pipeline.Is(err, pipeline.NotFound) {
			return "", notThere("VM "+id, field)
		}
		return id, err
	}
	all, err := p.instances("").all(ctx, fmt.Sprintf("name = %q", named))
	if err != nil {
		return "", err
	}
	var fit []string
	for _, i := range all {
		if id := rel(i.SelfLink); i.Name == named && strings.HasPrefix(zoneOf(id), p.region+"-") {
			fit = append(fit, id)
		}
	}
	switch len(fit) {
	case 0:
		return "", notThere("VM "+named+" in "+p.region, field)
	case 1:
		return fit[0], nil
	}
	return "", pipeline.Fatal("ambiguous", fmt.Sprintf("%d VMs are named %s: %s", len(fit), named, sorted(fit)), "Give its zone too, as in ZONE/NAME.").On(field)
}

// within refuses what is in another project or region than the job (failure kind
// F4): an adopt that reads one place and later acts in another is how things get
// lost.
func (p *Provider) within(id, field string) error {
	region := or(regionOf(id), strings.TrimRight(strings.TrimRight(zoneOf(id), "abcdefghijklmnopqrstuvwxyz"), "-"))
	switch {
	case projectOf(id) != p.project:
		return pipeline.Fatal("wrong-account", fmt.Sprintf("%s is in project %s, and the job is in %s", id, projectOf(id), p.project), "Name something of this project.").On(field)
	case region != "" && region != p.region:
		return pipeline.Fatal("wrong-region", fmt.Sprintf("%s is in %s, and the job is in %s", id, region, p.region), "Make the job in the region of what it adopts.").On(field)
	}
	return nil
}

// adoptedGroup is the ID of a managed group, of the region or of a zone in it.
func (p *Provider) adoptedGroup(ctx context.Context, r *pipeline.Run, named string) (string, error) {
	const field = "config.spec.adopt.name"
	id := rel(named)
	if !strings.Contains(id, "/") {
		all, err := p.groupsNamed(ctx, named)
		if err != nil {
			return "", err
		}
		switch len(all) {
		case 0:
			return "", notThere("managed instance group "+named+" in "+p.region, field)
		case 1:
			id = all[0]
		default:
			return "", pipeline.Fatal("ambiguous", fmt.Sprintf("%d managed groups are named %s: %s", len(all), named, sorted(all)), "Give the link of the one that is meant.").On(field)
		}
	}
	if err := p.within(id, field); err != nil {
		return "", err
	}
	g, err := p.readGroup(ctx, id)
	if pipeline.Is(err, pipeline.NotFound) {
		return "", notThere("managed instance group "+id, field)
	}
	if err != nil {
		return "", err
	}
	if owner, _ := textMark(g.Description); owner != "" && owner != r.Job.ID {
		return "", ownedByJob("managed group "+g.Name, owner)
	}
	return id, nil
}

// groupsNamed are the managed groups of a name in the region and its zones.
func (p *Provider) groupsNamed(ctx context.Context, named string) ([]string, error) {
	all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]*compute.InstanceGroupManager, *string, error) {
		out, err := send(ctx, p.compute.InstanceGroupManagers.AggregatedList(p.project).Filter(fmt.Sprintf("name = %q", named)).PageToken(text(token)))
		if err != nil {
			return nil, nil, err
		}
		var found []*compute.InstanceGroupManager
		for _, scope := range out.Items {
			found = append(found, scope.InstanceGroupManagers...)
		}
		return found, &out.NextPageToken, nil
	})
	var ids []string
	for _, g := range all {
		id := rel(g.SelfLink)
		if g.Name == named && (regionOf(id) == p.region || strings.HasPrefix(zoneOf(id), p.region+"-")) {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// vmRisks is what is less than safe about adopted VMs. What cannot be read is said,
// and is no reason to refuse.
func (p *Provider) vmRisks(ctx context.Context, machines []*compute.Instance) []string {
	var out []string
	for _, i := range machines {
		t, m := instanceTraits(i), metadataOf(i.Metadata)
		if at := t["external address"]; at != "none" {
			out = append(out, fmt.Sprintf("%s has an external address, %s", i.Name, at))
		}
		for _, a := range i.ServiceAccounts {
			if strings.HasSuffix(a.Email, "-compute@developer.gserviceaccount.com") && slices.Contains(a.Scopes, scopeAll) {
				out = append(out, i.Name+" runs as the project's default account with access to everything")
			}
		}
		if !strings.EqualFold(m["enable-oslogin"], "TRUE") {
			out = append(out, i.Name+" does not have OS Login switched on: who gets in is decided by keys in metadata")
		}
		if !strings.EqualFold(m["block-project-ssh-keys"], "TRUE") {
			out = append(out, i.Name+" takes SSH keys of the project")
		}
		if strings.EqualFold(m["serial-port-enable"], "TRUE") || m["serial-port-enable"] == "1" {
			out = append(out, i.Name+" lets people in through its serial port")
		}
		if c := i.ShieldedInstanceConfig; c == nil || !c.EnableSecureBoot {
			out = append(out, i.Name+" starts without secure boot")
		}
		if i.CanIpForward {
			out = append(out, i.Name+" may forward packets of others")
		}
		if s := i.Scheduling; s != nil && s.Preemptible {
			out = append(out, i.Name+" can be taken away at any time (preemptible)")
		}
	}
	open, err := p.openRules(ctx, machines)
	if err != nil {
		out = append(out, fmt.Sprintf("the firewall rules could not be read: %v", err))
	}
	out = append(out, open...)
	slices.Sort(out)
	return slices.Compact(out)
}

// openRules are the firewall rules that let the whole internet reach the VMs on
// port 22.
func (p *Provider) openRules(ctx context.Context, machines []*compute.Instance) ([]string, error) {
	all, err := p.firewalls().all(ctx, "")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, f := range all {
		if f.Disabled || f.Direction == "EGRESS" || !slices.Contains(f.SourceRanges, "0.0.0.0/0") || !allows(f, 22) {
			continue
		}
		for _, i := range machines {
			if reaches(f, i) {
				out = append(out, fmt.Sprintf("firewall rule %s opens port 22 of %s to everybody", f.Name, i.Name))
			}
		}
	}
	return out, nil
}

func allows(f *compute.Firewall, port int) bool {
	for _, a := range f.Allowed {
		if a.IPProtocol != "tcp" && a.IPProtocol != "6" && a.IPProtocol != "all" {
			continue
		}
		if len(a.Ports) == 0 {
			return true
		}
		for _, ports := range a.Ports {
			from, to := 0, 0
			if n, _ := fmt.Sscanf(ports, "%d-%d", &from, &to); n == 1 {
				to = from
			}
			if from <= port && port <= to {
				return true
			}
		}
	}
	return false
}

// reaches reports whether a rule holds for a VM.
func reaches(f *compute.Firewall, i *compute.Instance) bool {
	if !slices.ContainsFunc(i.NetworkInterfaces, func(n *compute.NetworkInterface) bool { return rel(n.Network) == rel(f.Network) }) {
		return false
	}
	if len(f.TargetTags) == 0 && len(f.TargetServiceAccounts) == 0 {
		return true
	}
	byTag := i.Tags != nil && slices.ContainsFunc(i.Tags.Items, func(tag string) bool { return slices.Contains(f.TargetTags, tag) })
	return byTag || slices.ContainsFunc(i.ServiceAccounts, func(a *compute.ServiceAccount) bool { return slices.Contains(f.TargetServiceAccounts, a.Email) })
}

// vmKinds are the kinds that a job's VMs and load balancer may leave behind.
func (p *Provider) vmKinds(s *scan) []func(context.Context) error {
	parts := []func(context.Context) error{
		sweep(s, p.instances("").lookup()), sweep(s, p.instanceTemplates().lookup()), sweep(s, p.instanceGroups("").lookup()),
		sweep(s, p.managedGroups().lookup()), sweep(s, p.autoscalers().lookup()), sweep(s, p.tcpProxies().lookup()), sweep(s, p.sslProxies().lookup()),
		sweep(s, p.accounts()),
	}
	for _, region := range []string{"", p.region} {
		parts = append(parts, sweep(s, p.healthChecks(region).lookup()), sweep(s, p.backendServices(region).lookup()), sweep(s, p.urlMaps(region).lookup()),
			sweep(s, p.httpProxies(region).lookup()), sweep(s, p.httpsProxies(region).lookup()), sweep(s, p.sslPolicies(region).lookup()), sweep(s, p.forwardingRules(region).lookup()))
	}
	return parts
}
