package azure

import (
	"context"
	"slices"
	"strconv"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/bootstrap"
	"github.com/zopday/provisioner/internal/job"
)

// A machine is a VM of either kind of pool, as the controls see it.
type machine struct {
	name     string
	os       *armcompute.OSProfile
	security *armcompute.SecurityProfile
	storage  *armcompute.StorageProfile
	nics     []armnetwork.Interface
}

// machinesOf are the job's VMs.
func (c *controls) machinesOf(ctx context.Context) ([]machine, error) {
	var out []machine
	if set := c.infra.ScalingGroupID; set != "" {
		members, err := c.p.members(ctx, set)
		if err != nil {
			return nil, err
		}
		nics, err := c.p.interfaces(ctx, set)
		if err != nil {
			return nil, err
		}
		for _, m := range members {
			f := value(m.is.Properties)
			x := machine{name: m.Name, os: f.OSProfile, security: f.SecurityProfile, storage: f.StorageProfile}
			for vm, nic := range nics {
				if same(vm, m.ID) {
					x.nics = append(x.nics, nic)
				}
			}
			out = append(out, x)
		}
		return out, nil
	}
	for _, id := range c.own(kindVM) {
		vm, err := read[armcompute.VirtualMachine](ctx, c.p, id+withView)
		if err != nil {
			return nil, err
		}
		f := value(vm.is.Properties)
		x := machine{name: vm.Name, os: f.OSProfile, security: f.SecurityProfile, storage: f.StorageProfile}
		if nic := nicOf(f.NetworkProfile); nic != "" {
			n, err := read[armnetwork.Interface](ctx, c.p, nic)
			if err != nil {
				return nil, err
			}
			x.nics = append(x.nics, n.is)
		}
		out = append(out, x)
	}
	return out, nil
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// vms reads the VMs, their interfaces and their disks.
func (c *controls) vms(ctx context.Context) error {
	all, err := c.machinesOf(ctx)
	if err != nil || len(all) == 0 {
		return err
	}
	var passwords, encrypted, trusted, agents, patching, public, forwarding, closed, managed, grouped, fast []string
	for _, m := range all {
		linux := value(value(m.os).LinuxConfiguration)
		passwords = append(passwords, yesNo(!value(linux.DisablePasswordAuthentication)))
		agents = append(agents, yesNo(value(linux.ProvisionVMAgent)))
		mode := "none"
		if linux.PatchSettings != nil {
			mode = string(value(linux.PatchSettings.PatchMode))
		}
		patching = append(patching, mode)
		sec := value(m.security)
		encrypted = append(encrypted, yesNo(value(sec.EncryptionAtHost)))
		uefi := value(sec.UefiSettings)
		trusted = append(trusted, yesNo(value(sec.SecurityType) == armcompute.SecurityTypesTrustedLaunch && value(uefi.SecureBootEnabled) && value(uefi.VTpmEnabled)))
		for _, n := range m.nics {
			f := value(n.Properties)
			forwarding = append(forwarding, yesNo(value(f.EnableIPForwarding)))
			fast = append(fast, yesNo(value(f.EnableAcceleratedNetworking)))
			grouped = append(grouped, yesNo(f.NetworkSecurityGroup != nil))
			address := "none"
			for _, cfg := range f.IPConfigurations {
				if cfg.Properties != nil && cfg.Properties.PublicIPAddress != nil {
					address = value(cfg.Properties.PublicIPAddress.ID)
				}
			}
			public = append(public, address)
		}
		disk := value(value(m.storage).OSDisk).ManagedDisk
		managed = append(managed, yesNo(disk != nil))
		access, err := c.diskAccess(ctx, disk)
		if err != nil {
			return err
		}
		closed = append(closed, access)
	}
	allowed, err := c.p.traits(ctx, c.r)
	if err != nil {
		return err
	}
	c.same("VMZ-01", "VMs let people in by password", "no", agreed(passwords), "CKV_AZURE_1, CKV_AZURE_178")
	c.same("VMZ-02", "VMs encrypted on the host (where size and subscription allow)", yesNo(allowed.encrypted), agreed(encrypted), "CKV_AZURE_97, CKV_AZURE_151")
	c.same("VMZ-03", "VMs boot by trusted launch (where size and image allow)", yesNo(allowed.trusted), agreed(trusted), "vm_trusted_launch_enabled")
	c.same("VMZ-04", "VMs have managed disks", "yes", agreed(managed), "CKV_AZURE_92")
	c.same("VMZ-07", "network access to the disks", "DenyAll, Disabled", agreed(closed), "CKV_AZURE_251")
	c.same("VMZ-08", "VMs' public addresses", "none", agreed(public), "CKV_AZURE_119")
	c.same("VMZ-09", "VMs forward packets", "no", agreed(forwarding), "CKV_AZURE_118")
	c.same("VMZ-12", "VMs have the VM agent", "yes", agreed(agents), "CKV_AZURE_179")
	if c.infra.ScalingGroupID == "" {
		c.same("VMZ-13", "guest patching", string(armcompute.LinuxVMGuestPatchModeAutomaticByPlatform), agreed(patching), "CKV_AZURE_177")
	}
	c.same("VMZ-18", "VMs' interfaces have a security group", "yes", agreed(grouped), "AZU-0068")
	c.same("VMZ-19", "accelerated networking (where the size allows)", yesNo(allowed.accelerated), agreed(fast), "Azure.VM.AcceleratedNetworking")
	return nil
}

func (c *controls) diskAccess(ctx context.Context, disk *armcompute.ManagedDiskParameters) (string, error) {
	if disk == nil || value(disk.ID) == "" {
		return "not managed", nil
	}
	x, err := read[armcompute.Disk](ctx, c.p, *disk.ID)
	f := value(x.is.Properties)
	return string(value(f.NetworkAccessPolicy)) + ", " + string(value(f.PublicNetworkAccess)), err
}

// scaleSet reads the set that the VMs are in.
func (c *controls) scaleSet(ctx context.Context) error {
	ids := c.own(kindScaleSet)
	if len(ids) == 0 {
		return nil
	}
	x, err := read[armcompute.VirtualMachineScaleSet](ctx, c.p, ids[0])
	if err != nil {
		return err
	}
	if zonal(c.r) {
		c.add("VMZ-16", "scale set spans zones", "2 or more", sorted(x.Zones), len(x.Zones) >= 2, "Azure.VMSS.AvailabilityZone")
	}
	if policy := value(x.is.Properties).UpgradePolicy; c.infra.ScalingGroupID != "" && policy != nil {
		// A new image means new VMs, and those come only when a person asks.
		c.add("VMZ-14", "scale set replaces its VMs by itself when a new image comes", "no: a person rolls them", string(value(policy.Mode)), true, "CKV_AZURE_95")
	}
	if profile := value(x.is.Properties).VirtualMachineProfile; c.infra.TargetGroupID != "" && profile != nil && profile.NetworkProfile != nil {
		c.same("VMZ-17", "scale set serves the load balancer", "yes", yesNo(setIn(profile.NetworkProfile, c.infra.TargetGroupID)), "vm_scaleset_associated_with_load_balancer")
	}
	c.add("VMZ-17", "scale set holds at least one VM", "1 or more", strconv.Itoa(len(c.infra.VMs)), len(c.infra.VMs) > 0, "vm_scaleset_not_empty")
	return nil
}

// customData tells what the cloud does not show of a VM: that the script it was
// given holds no credentials, and that its bootstrap, which ends with no key left,
// has come through.
func (c *controls) customData(context.Context) error {
	spec, err := c.r.Job.VMSpec()
	if err != nil {
		return err
	}
	err = bootstrap.CheckCredentials(spec.StartupScript)
	c.same("VMZ-10", "custom data holds credentials", "no", yesNo(err != nil), "CKV_AZURE_45")
	ready := !slices.ContainsFunc(c.infra.VMs, func(vm job.VMInfo) bool { return vm.SentinelSeenAt == nil && vm.State != job.VMReady })
	c.same("VMZ-01", "SSH keys authorized in the VMs", "none", map[bool]string{true: "none", false: "not read on every VM"}[ready], "CKV_AZURE_178, read back by Run Command")
	return nil
}

// balancer reads the load balancer.
func (c *controls) balancer(ctx context.Context) error {
	lb, err := c.r.Job.LoadBalancer()
	if err != nil || lb == nil || c.infra.LoadBalancerID == "" {
		return err
	}
	x, err := read[armnetwork.LoadBalancer](ctx, c.p, c.infra.LoadBalancerID)
	if err != nil {
		return err
	}
	f := value(x.is.Properties)
	sku := ""
	if x.is.SKU != nil {
		sku = string(value(x.is.SKU.Name))
	}
	c.same("LBZ-01", "load balancer's SKU", "Standard", sku, "Azure.LB.StandardSKU")
	if zonal(c.r) {
		zones, err := c.frontZones(ctx, f)
		if err != nil {
			return err
		}
		c.same("LBZ-02", "zones of the frontend", sorted(allZones), zones, "Azure.LB.AvailabilityZone")
	}
	var probes, snat, admin []string
	for _, p := range f.Probes {
		probes = append(probes, string(value(value(p.Properties).Protocol))+" "+value(value(p.Properties).RequestPath))
	}
	for _, rule := range f.LoadBalancingRules {
		snat = append(snat, yesNo(!value(value(rule.Properties).DisableOutboundSnat)))
	}
	for _, rule := range f.InboundNatRules {
		if n := value(value(rule.Properties).BackendPort); n == 22 || n == 3389 {
			admin = append(admin, value(rule.Name))
		}
	}
	c.same("LBZ-03", "probe", "Http "+lb.HealthCheck.Path, agreed(probes), "Azure.LB.Probe")
	c.same("LBZ-04", "load balancer's scheme is the one asked for", lb.Scheme, schemeOf(x.is), "AWS-0053")
	c.same("LBZ-05", "inbound NAT rules to 22 or 3389", "none", agreed(admin), "CKV_AZURE_10")
	c.same("LBZ-06", "rules translate the VMs' outbound addresses", "no", agreed(snat), "Azure.VNET.PrivateSubnet")
	return nil
}

func (c *controls) frontZones(ctx context.Context, f armnetwork.LoadBalancerPropertiesFormat) (string, error) {
	front := value(first(f.FrontendIPConfigurations))
	if front.Properties == nil || front.Properties.PublicIPAddress == nil {
		return sorted(values(front.Zones)), nil
	}
	x, err := read[armnetwork.PublicIPAddress](ctx, c.p, value(front.Properties.PublicIPAddress.ID))
	return sorted(x.Zones), err
}
