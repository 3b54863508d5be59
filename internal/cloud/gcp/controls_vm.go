package gcp

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/api/compute/v1"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// vmControls reads the hardening controls of the VMs and the load balancer back.
func (p *Provider) vmControls(ctx context.Context, r *pipeline.Run) ([]job.Control, error) {
	spec, err := r.Job.VMSpec()
	if err != nil {
		return nil, err
	}
	parts := []struct {
		about string
		read  func(vmReport, context.Context) error
	}{
		{"the instance template", vmReport.template}, {"the VMs", vmReport.vms}, {"the managed group", vmReport.group}, {"the project's metadata", vmReport.project},
		{"the backend service", vmReport.backend}, {"the listeners", vmReport.fronts}, {"the certificate", vmReport.certificate}, {"the VMs' firewall rules", vmReport.rules},
	}
	reports := make([]controls, len(parts))
	var reads []func(context.Context) error
	for i, part := range parts {
		reports[i] = controls{p: p, r: r, infra: &r.Job.Config.InfraConfig}
		reads = append(reads, func(ctx context.Context) error {
			err := part.read(vmReport{&reports[i], spec}, ctx)
			switch {
			case pipeline.Is(err, pipeline.Invalid, pipeline.Denied, pipeline.NotFound):
				r.Note("the controls of %s were not read: %v", part.about, err)
			case err != nil:
				return fmt.Errorf("read back %s: %w", part.about, err)
			}
			return nil
		})
	}
	err = pipeline.All(ctx, reads...)
	var rows []job.Control
	for _, c := range reports {
		rows = append(rows, c.rows...)
	}
	return rows, err
}

// vmReport is one part of the report on a VM job.
type vmReport struct {
	*controls
	vm job.VMSpec
}

// optIn is a control that costs money or breaks common use, so that nobody gets
// it without asking: it is only told.
func (c vmReport) optIn(id, name, seen, source string) {
	c.add(id, name, "not asked for (opt-in)", seen, true, source)
}

// guarded are the controls that a template and a VM have in common, of one or of
// all: what has no word in seen was not read.
func (c vmReport) guarded(who string, seen map[string][]string) {
	row := func(id, name, wanted, trait, source string) {
		if len(seen[trait]) > 0 {
			c.same(id, who+" "+name, wanted, agreed(seen[trait]), source)
		}
	}
	row("VMG-01", "run as a dedicated account", c.infra.ServiceAccount, "service account", "CKV_GCP_30, GCP-0044, CIS GCP 4.1")
	row("VMG-02", "use the default account with access to everything", "no", "default account", "CKV_GCP_31, CIS GCP 4.2")
	row("VMG-03", "block SSH keys of the project", "TRUE", "block-project-ssh-keys", "CKV_GCP_32, GCP-0030, CIS GCP 4.3")
	row("VMG-04", "take log-ins by OS Login", "TRUE", "enable-oslogin", "CKV_GCP_34, GCP-0036, CIS GCP 4.4")
	row("VMG-06", "allow the interactive serial port", "FALSE", "serial-port-enable", "CKV_GCP_35, GCP-0032, CIS GCP 4.5")
	row("VMG-07", "may forward packets of others", "no", "IP forwarding", "CKV_GCP_36, GCP-0043, CIS GCP 4.6")
	row("VMG-08", "are shielded", shieldedText(&compute.ShieldedInstanceConfig{EnableSecureBoot: true, EnableVtpm: true, EnableIntegrityMonitoring: true}), "shielded VM", "CKV_GCP_39, GCP-0041, GCP-0045, GCP-0067, CIS GCP 4.8")
	row("VMG-09", "have an external address", "none", "external address", "CKV_GCP_40, GCP-0031, CIS GCP 4.9")
	row("VMG-12", "carry a raw disk key", "no", "raw key", "GCP-0037")
	row("VMG-17", "start again by themselves", schedulingText(&compute.Scheduling{OnHostMaintenance: maintenanceOf(c.infra.InstanceType)}), "scheduling", "compute_instance_automatic_restart_enabled, compute_instance_preemptible_vm_disabled")
	row("VMG-20", "have network interfaces", "1", "interfaces", "compute_instance_single_network_interface")
}

// readings puts down what one VM or template says.
func readings(seen map[string][]string, t traits, m *compute.Metadata, accounts []*compute.ServiceAccount, disks []*compute.AttachedDisk, interfaces int) {
	for name, word := range t {
		seen[name] = append(seen[name], word)
	}
	values := metadataOf(m)
	for _, k := range []string{"block-project-ssh-keys", "enable-oslogin", "serial-port-enable"} {
		seen[k] = append(seen[k], strings.ToUpper(or(values[k], "not set")))
	}
	open := slices.ContainsFunc(accounts, func(a *compute.ServiceAccount) bool {
		return strings.HasSuffix(a.Email, "-compute@developer.gserviceaccount.com") && slices.Contains(a.Scopes, scopeAll)
	})
	raw := slices.ContainsFunc(disks, func(d *compute.AttachedDisk) bool {
		return d.DiskEncryptionKey != nil && d.DiskEncryptionKey.RawKey != ""
	})
	seen["default account"] = append(seen["default account"], yesNo(open))
	seen["raw key"] = append(seen["raw key"], yesNo(raw))
	seen["interfaces"] = append(seen["interfaces"], fmt.Sprint(interfaces))
	for _, d := range disks {
		key := "Google's own"
		if k := d.DiskEncryptionKey; k != nil && k.KmsKeyName != "" {
			key = base(k.KmsKeyName)
		}
		seen["disk key"] = append(seen["disk key"], key)
		seen["disk goes with the VM"] = append(seen["disk goes with the VM"], yesNo(d.AutoDelete))
	}
}

func (c vmReport) template(ctx context.Context) error {
	if c.infra.LaunchTemplateID == "" {
		return nil
	}
	t, err := c.p.instanceTemplates().lookup().Get(ctx, c.infra.LaunchTemplateID)
	if err != nil || t.Properties == nil {
		return err
	}
	x, seen := t.Properties, map[string][]string{}
	readings(seen, traitsOf(x), x.Metadata, x.ServiceAccounts, x.Disks, len(x.NetworkInterfaces))
	c.guarded("VMs of the template", seen)
	return nil
}

func (c vmReport) vms(ctx context.Context) error {
	var ids []string
	for _, vm := range c.infra.VMs {
		if vm.InstanceID != "" {
			ids = append(ids, vm.InstanceID)
		}
	}
	found, err := c.p.byID(ctx, ids)
	if err != nil || len(found) == 0 {
		return err
	}
	seen := map[string][]string{}
	var protected, confidential, marked []string
	for _, i := range found {
		readings(seen, instanceTraits(i), i.Metadata, i.ServiceAccounts, i.Disks, len(i.NetworkInterfaces))
		protected = append(protected, yesNo(i.DeletionProtection))
		confidential = append(confidential, yesNo(i.ConfidentialInstanceConfig != nil && i.ConfidentialInstanceConfig.EnableConfidentialCompute))
		owner, _ := labelMark(i.Labels)
		marked = append(marked, yesNo(owner == c.r.Job.ID))
	}
	if c.r.Job.Owns() {
		c.guarded("VMs", seen)
		if c.vm.Pool.Mode == job.PoolFixed {
			c.same("VMG-18", "VMs are protected from deletion", "yes", agreed(protected), "compute_instance_deletion_protection_enabled")
		}
		c.same("VMG-20", "VMs carry the job's labels", "yes", agreed(marked), "")
	}
	c.optIn("VMG-10", "VMs' disks use a customer's key", agreed(seen["disk key"]), "GCP-0033, GCP-0034")
	c.optIn("VMG-13", "VMs are confidential", agreed(confidential), "compute_instance_confidential_computing_enabled, CIS GCP 4.11")
	c.optIn("VMG-19", "VMs' disks are deleted with them", agreed(seen["disk goes with the VM"]), "compute_instance_disk_auto_delete_disabled")
	return nil
}

func (c vmReport) group(ctx context.Context) error {
	if c.infra.ScalingGroupID == "" {
		return nil
	}
	g, err := c.p.readGroup(ctx, c.infra.ScalingGroupID)
	if err != nil {
		return err
	}
	zones := 0
	if g.DistributionPolicy != nil {
		zones = len(g.DistributionPolicy.Zones)
	}
	c.add("VMG-15", "managed group spans zones", "2 or more", zonesText(g.DistributionPolicy), zones >= 2, "compute_instance_group_multiple_zones")
	if c.infra.TargetGroupID == "" {
		return nil
	}
	if c.vm.Bootstrap != job.BootstrapBare {
		c.add("VMG-14", "managed group heals by a health check", "one", base(healingText(g)), len(g.AutoHealingPolicies) > 0, "compute_instance_group_autohealing_enabled")
	}
	service, err := c.p.backendServices(regionOf(c.infra.TargetGroupID)).lookup().Get(ctx, c.infra.TargetGroupID)
	if err != nil {
		return err
	}
	want := strings.Replace(c.infra.ScalingGroupID, "/instanceGroupManagers/", "/instanceGroups/", 1)
	c.add("VMG-16", "managed group serves the load balancer", base(want), sorted(groupsOf(service.Backends)), slices.Contains(groupsOf(service.Backends), want), "compute_instance_group_load_balancer_attached")
	return nil
}

// project tells what the project's metadata says where a VM says nothing. The
// VMs of the job say it themselves.
func (c vmReport) project(ctx context.Context) error {
	got, err := send(ctx, c.p.compute.Projects.Get(c.p.project))
	if err != nil {
		return err
	}
	seen := metadataOf(got.CommonInstanceMetadata)["enable-oslogin"]
	c.add("VMG-04", "OS Login is the project's default", "reported only", strings.ToUpper(or(seen, "not set")), true, "CKV_GCP_33, GCP-0042, compute_project_os_login_enabled")
	return nil
}
