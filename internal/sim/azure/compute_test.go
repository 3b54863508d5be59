package azure

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/sim"
)

// testKey is a public key without a private half.
const testKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA nobody"

const webServer = `#!/bin/sh
set -e
apt-get update
apt-get install -y nginx
mkdir -p /var/www/html
echo ok > /var/www/html/healthz
mkdir -p /var/lib/app
touch /var/lib/app/ready
`

// compute are the clients of Microsoft.Compute.
func (g *rig) compute() *armcompute.ClientFactory {
	cred, opt := g.arm()
	return must(armcompute.NewClientFactory(DefaultSubscription, cred, opt))(g.t)
}

// outbound gives subnet a of a network a NAT gateway.
func (g *rig) outbound(network string) {
	g.t.Helper()
	ip := g.publicIP("natip", armnetwork.PublicIPAddressSKUNameStandard)
	p, err := g.networks().NewNatGatewaysClient().BeginCreateOrUpdate(g.ctx, "rg", "nat", armnetwork.NatGateway{Location: new("westus2"),
		SKU:        &armnetwork.NatGatewaySKU{Name: new(armnetwork.NatGatewaySKUNameStandard)},
		Properties: &armnetwork.NatGatewayPropertiesFormat{PublicIPAddresses: []*armnetwork.SubResource{{ID: ip.ID}}}}, nil)
	nat := done(g, p, err)
	subnets := g.networks().NewSubnetsClient()
	s := must(subnets.Get(g.ctx, "rg", network, "a", nil))(g.t).Subnet
	s.Properties.NatGateway = &armnetwork.SubResource{ID: nat.ID}
	q, err := subnets.BeginCreateOrUpdate(g.ctx, "rg", network, "a", s, nil)
	done(g, q, err)
}

// nic makes a network interface in subnet a of the network "net".
func (g *rig) nic(name string) string {
	g.t.Helper()
	p, err := g.networks().NewInterfacesClient().BeginCreateOrUpdate(g.ctx, "rg", name, armnetwork.Interface{Location: new("westus2"),
		Properties: &armnetwork.InterfacePropertiesFormat{IPConfigurations: []*armnetwork.InterfaceIPConfiguration{{Name: new("ip"),
			Properties: &armnetwork.InterfaceIPConfigurationPropertiesFormat{Subnet: &armnetwork.Subnet{ID: new(groupPath("rg") + "virtualNetworks/net/subnets/a")}}}}}}, nil)
	return *done(g, p, err).ID
}

func linux() *armcompute.LinuxConfiguration {
	return &armcompute.LinuxConfiguration{DisablePasswordAuthentication: new(true),
		SSH: &armcompute.SSHConfiguration{PublicKeys: []*armcompute.SSHPublicKey{{Path: new("/home/cloud/.ssh/authorized_keys"), KeyData: new(testKey)}}}}
}

func ubuntu() *armcompute.ImageReference {
	return &armcompute.ImageReference{Publisher: new("Canonical"), Offer: new("ubuntu-24_04-lts"), SKU: new("server"), Version: new("latest")}
}

func vmModel(nic, script string) armcompute.VirtualMachine {
	return armcompute.VirtualMachine{Location: new("westus2"), Zones: []*string{new("1")}, Tags: map[string]*string{"owner": new("job_1")}, Properties: &armcompute.VirtualMachineProperties{
		HardwareProfile: &armcompute.HardwareProfile{VMSize: new(armcompute.VirtualMachineSizeTypes("Standard_D2s_v5"))},
		StorageProfile: &armcompute.StorageProfile{ImageReference: ubuntu(), OSDisk: &armcompute.OSDisk{CreateOption: new(armcompute.DiskCreateOptionTypesFromImage),
			DeleteOption: new(armcompute.DiskDeleteOptionTypesDelete)}},
		OSProfile: &armcompute.OSProfile{ComputerName: new("web"), AdminUsername: new("cloud"), LinuxConfiguration: linux(),
			CustomData: new(base64.StdEncoding.EncodeToString([]byte(script)))},
		NetworkProfile: &armcompute.NetworkProfile{NetworkInterfaces: []*armcompute.NetworkInterfaceReference{{ID: &nic,
			Properties: &armcompute.NetworkInterfaceReferenceProperties{DeleteOption: new(armcompute.DeleteOptionsDelete)}}}}}}
}

// run runs a script in a machine as an action.
func (g *rig) run(vm, script string) (string, error) {
	g.t.Helper()
	p, err := g.compute().NewVirtualMachinesClient().BeginRunCommand(g.ctx, "rg", vm, armcompute.RunCommandInput{CommandID: new("RunShellScript"), Script: []*string{&script}}, nil)
	r, err := wait(g, p, err)
	if err != nil {
		return "", err
	}
	return *r.Value[0].Message, nil
}

func TestVMLife(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	g.vnet("net", "10.0.0.0/16", "10.0.0.0/24")
	g.outbound("net")
	nic := g.nic("nic1")
	vms := g.compute().NewVirtualMachinesClient()
	p, err := vms.BeginCreateOrUpdate(g.ctx, "rg", "web", vmModel(nic, webServer), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := must(vms.Get(g.ctx, "rg", "web", nil))(t); *got.Properties.ProvisioningState != "Creating" {
		t.Errorf("state %s while it is made", *got.Properties.ProvisioningState)
	}
	vm := done(g, p, nil).VirtualMachine
	if *vm.Properties.ProvisioningState != "Succeeded" || vm.Properties.StorageProfile.OSDisk.ManagedDisk.ID == nil || vm.Properties.OSProfile.CustomData != nil {
		t.Fatalf("made %s", text(vm))
	}
	if n := must(g.networks().NewInterfacesClient().Get(g.ctx, "rg", "nic1", nil))(t); n.Properties.VirtualMachine == nil || *n.Properties.VirtualMachine.ID != *vm.ID {
		t.Errorf("the interface does not know its machine: %s", text(n.Interface))
	}

	// The machine is provisioned before its agent has reported, and long before cloud-init is done.
	view := must(vms.InstanceView(g.ctx, "rg", "web", nil))(t)
	if got := *view.VMAgent.Statuses[0].DisplayStatus; got != "Not Ready" {
		t.Errorf("agent %s right after the machine was made", got)
	}
	if len(view.Statuses) != 2 || *view.Statuses[1].Code != "PowerState/running" {
		t.Errorf("statuses %s", text(view.Statuses))
	}
	g.world.Step(3 * time.Minute)
	if got := *must(vms.InstanceView(g.ctx, "rg", "web", nil))(t).VMAgent.Statuses[0].DisplayStatus; got != "Ready" {
		t.Errorf("agent %s", got)
	}
	out, err := g.run("web", "cloud-init status; test -f /var/lib/app/ready && echo there")
	if err != nil || !strings.Contains(out, "[stdout]\nstatus: done\nthere\n") {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := g.run("web", "cat /home/cloud/.ssh/authorized_keys; grep -c root /root/.ssh/authorized_keys"); err != nil || !strings.Contains(out, testKey+"\n1\n") {
		t.Errorf("keys: %q, %v", out, err)
	}
	if out, err := g.run("web", "echo oops >&2; exit 3"); err != nil || !strings.Contains(out, "Enable succeeded") || !strings.Contains(out, "oops") {
		t.Errorf("a failed script: %q, %v", out, err)
	}

	// What the machine uses cannot go.
	np, err := g.networks().NewInterfacesClient().BeginDelete(g.ctx, "rg", "nic1", nil)
	_, err = wait(g, np, err)
	refused(t, err, 400, "NicInUse")
	dp, err := g.compute().NewDisksClient().BeginDelete(g.ctx, "rg", *vm.Properties.StorageProfile.OSDisk.Name, nil)
	_, err = wait(g, dp, err)
	refused(t, err, 409, "OperationNotAllowed")

	// Its disk can be closed to export.
	dsk, err := g.compute().NewDisksClient().BeginUpdate(g.ctx, "rg", *vm.Properties.StorageProfile.OSDisk.Name, armcompute.DiskUpdate{Properties: &armcompute.DiskUpdateProperties{
		NetworkAccessPolicy: new(armcompute.NetworkAccessPolicyDenyAll), PublicNetworkAccess: new(armcompute.PublicNetworkAccessDisabled)}}, nil)
	if d := done(g, dsk, err); *d.Properties.NetworkAccessPolicy != armcompute.NetworkAccessPolicyDenyAll || d.ManagedBy == nil || *d.Properties.DiskState != armcompute.DiskStateAttached {
		t.Errorf("disk %s", text(d.Disk))
	}

	sp, err := vms.BeginDeallocate(g.ctx, "rg", "web", nil)
	done(g, sp, err)
	_, err = g.run("web", "true")
	refused(t, err, 409, "OperationNotAllowed")
	tp, err := vms.BeginStart(g.ctx, "rg", "web", nil)
	done(g, tp, err)

	del, err := vms.BeginDelete(g.ctx, "rg", "web", nil)
	done(g, del, err)
	_, err = vms.Get(g.ctx, "rg", "web", nil)
	refused(t, err, 404, "ResourceNotFound")
	if left := g.world.Objects(sim.ObjectFilter{Owner: "job_1"}); len(left) > 0 {
		t.Errorf("left: %s", text(left))
	}
}

func TestVMRefusals(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	g.vnet("net", "10.0.0.0/16", "10.0.0.0/24")
	nic := g.nic("nic1")
	g.world.SetQuota("azure", "features", hostEncryption, "", "", 0)
	vms := g.compute().NewVirtualMachinesClient()
	for name, c := range map[string]struct {
		change func(*armcompute.VirtualMachine)
		status int
		code   string
	}{
		"no key":      {func(v *armcompute.VirtualMachine) { v.Properties.OSProfile.LinuxConfiguration.SSH = nil }, 400, "InvalidParameter"},
		"no password": {func(v *armcompute.VirtualMachine) { v.Properties.OSProfile.LinuxConfiguration = nil }, 400, "InvalidParameter"},
		"weak password": {func(v *armcompute.VirtualMachine) {
			v.Properties.OSProfile.LinuxConfiguration, v.Properties.OSProfile.AdminPassword = nil, new("password")
		}, 400, "InvalidParameter"},
		"reserved name": {func(v *armcompute.VirtualMachine) { v.Properties.OSProfile.AdminUsername = new("admin") }, 400, "InvalidParameter"},
		"custom data too long": {func(v *armcompute.VirtualMachine) {
			v.Properties.OSProfile.CustomData = new(base64.StdEncoding.EncodeToString(make([]byte, 66000)))
		}, 400, "InvalidParameter"},
		"custom data no base64": {func(v *armcompute.VirtualMachine) { v.Properties.OSProfile.CustomData = new("#cloud-config") }, 400, "InvalidParameter"},
		"no such size":          {func(v *armcompute.VirtualMachine) { *v.Properties.HardwareProfile.VMSize = "Standard_Z9" }, 400, "InvalidParameter"},
		"size not for us":       {func(v *armcompute.VirtualMachine) { *v.Properties.HardwareProfile.VMSize = "Standard_M64s" }, 409, "SkuNotAvailable"},
		"no quota":              {func(v *armcompute.VirtualMachine) { *v.Properties.HardwareProfile.VMSize = "Standard_NC4as_T4_v3" }, 409, "OperationNotAllowed"},
		"wrong architecture":    {func(v *armcompute.VirtualMachine) { *v.Properties.HardwareProfile.VMSize = "Standard_D2ps_v5" }, 400, "BadRequest"},
		"wrong generation": {func(v *armcompute.VirtualMachine) {
			v.Properties.StorageProfile.ImageReference.SKU = new("server-gen1")
			*v.Properties.HardwareProfile.VMSize = "Standard_D2s_v6"
		}, 400, "BadRequest"},
		"no such image":     {func(v *armcompute.VirtualMachine) { v.Properties.StorageProfile.ImageReference.SKU = new("nosuch") }, 404, "PlatformImageNotFound"},
		"no such zone":      {func(v *armcompute.VirtualMachine) { v.Zones = []*string{new("4")} }, 400, "AvailabilityZoneNotSupported"},
		"no such interface": {func(v *armcompute.VirtualMachine) { *v.Properties.NetworkProfile.NetworkInterfaces[0].ID += "x" }, 400, "InvalidResourceReference"},
		"small disk":        {func(v *armcompute.VirtualMachine) { v.Properties.StorageProfile.OSDisk.DiskSizeGB = new(int32(10)) }, 409, "OperationNotAllowed"},
		"trusted launch on gen1": {func(v *armcompute.VirtualMachine) {
			v.Properties.StorageProfile.ImageReference.SKU = new("server-gen1")
			v.Properties.SecurityProfile = &armcompute.SecurityProfile{SecurityType: new(armcompute.SecurityTypesTrustedLaunch)}
		}, 400, "BadRequest"},
		"feature not registered": {func(v *armcompute.VirtualMachine) {
			v.Properties.SecurityProfile = &armcompute.SecurityProfile{EncryptionAtHost: new(true)}
		}, 400, "InvalidParameter"},
		"no such identity": {func(v *armcompute.VirtualMachine) {
			v.Identity = &armcompute.VirtualMachineIdentity{Type: new(armcompute.ResourceIdentityTypeUserAssigned), UserAssignedIdentities: map[string]*armcompute.UserAssignedIdentitiesValue{
				"/subscriptions/" + DefaultSubscription + "/resourceGroups/rg/providers/Microsoft.ManagedIdentity/userAssignedIdentities/none": {}}}
		}, 400, "FailedIdentityOperation"},
	} {
		v := vmModel(nic, "#!/bin/sh\n")
		size := *v.Properties.HardwareProfile.VMSize
		v.Properties.HardwareProfile.VMSize = &size
		c.change(&v)
		t.Run(name, func(t *testing.T) {
			_, err := vms.BeginCreateOrUpdate(context.Background(), "rg", "web", v, nil)
			refused(t, err, c.status, c.code)
		})
	}
}

func TestVMFailures(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	g.vnet("net", "10.0.0.0/16", "10.0.0.0/24")
	vms := g.compute().NewVirtualMachinesClient()
	fault := func(f sim.Fault) {
		t.Helper()
		if _, err := g.world.AddFault(f); err != nil {
			t.Fatal(err)
		}
	}
	// No room: the machine stays in the state Failed, and may be asked for again.
	fault(sim.Fault{Kind: sim.FaultCapacity, Service: "compute", Match: "westus2-1"})
	model := vmModel(g.nic("nic1"), "#!/bin/sh\n")
	p, err := vms.BeginCreateOrUpdate(g.ctx, "rg", "vm1", model, nil)
	_, err = wait(g, p, err)
	if err == nil || !strings.Contains(err.Error(), "ZonalAllocationFailed") {
		t.Errorf("no room: %v", err)
	}
	if got := must(vms.Get(g.ctx, "rg", "vm1", nil))(t); *got.Properties.ProvisioningState != "Failed" {
		t.Errorf("state %s", *got.Properties.ProvisioningState)
	}
	p, err = vms.BeginCreateOrUpdate(g.ctx, "rg", "vm1", model, nil)
	if got := done(g, p, err); *got.Properties.ProvisioningState != "Succeeded" {
		t.Errorf("state %s after another try", *got.Properties.ProvisioningState)
	}

	// An interface that was to be kept stays reserved for three minutes, even when the machine is gone.
	fault(sim.Fault{Kind: sim.FaultCapacity, Service: "compute", Match: "vm0"})
	keeping := vmModel(g.nic("nic0"), "")
	keeping.Properties.NetworkProfile.NetworkInterfaces[0].Properties = nil
	p, err = vms.BeginCreateOrUpdate(g.ctx, "rg", "vm0", keeping, nil)
	if _, err = wait(g, p, err); err == nil {
		t.Error("there was room")
	}
	del, err := vms.BeginDelete(g.ctx, "rg", "vm0", nil)
	done(g, del, err)
	_, err = vms.BeginCreateOrUpdate(g.ctx, "rg", "other", keeping, nil)
	refused(t, err, 400, "NicReservedForAnotherVm")
	nics := g.networks().NewInterfacesClient()
	_, err = nics.BeginDelete(g.ctx, "rg", "nic0", nil)
	refused(t, err, 400, "NicReservedForAnotherVm")
	g.world.Step(3 * time.Minute)
	nd, err := nics.BeginDelete(g.ctx, "rg", "nic0", nil)
	done(g, nd, err)

	// A system that does not come up is given up after twenty minutes.
	fault(sim.Fault{Kind: sim.FaultGuest, Mode: "boot", Match: "vm2"})
	start := g.world.Clock.Now()
	p, err = vms.BeginCreateOrUpdate(g.ctx, "rg", "vm2", vmModel(g.nic("nic2"), "#!/bin/sh\n"), nil)
	g.world.Step(10 * time.Minute)
	_, err = wait(g, p, err)
	if took := g.world.Clock.Now().Sub(start); err == nil || !strings.Contains(err.Error(), "OSProvisioningTimedOut") || took < 19*time.Minute {
		t.Errorf("after %v: %v", took, err)
	}

	// An agent that never reports: the command is given up.
	fault(sim.Fault{Kind: sim.FaultGuest, Mode: "agent", Match: "vm3"})
	p, err = vms.BeginCreateOrUpdate(g.ctx, "rg", "vm3", vmModel(g.nic("nic3"), "#!/bin/sh\n"), nil)
	done(g, p, err)
	g.world.Step(5 * time.Minute)
	q, err := vms.BeginRunCommand(g.ctx, "rg", "vm3", armcompute.RunCommandInput{CommandID: new("RunShellScript"), Script: []*string{new("true")}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = g.run("vm3", "true")
	refused(t, err, 409, "Conflict")
	g.world.Step(10 * time.Minute)
	_, err = wait(g, q, nil)
	if err == nil || !strings.Contains(err.Error(), "VMAgentStatusCommunicationError") {
		t.Errorf("without an agent: %v", err)
	}

	// Without a way out nothing can be installed.
	p, err = vms.BeginCreateOrUpdate(g.ctx, "rg", "vm4", vmModel(g.nic("nic4"), webServer), nil)
	done(g, p, err)
	g.world.Step(30 * time.Minute)
	if out, err := g.run("vm4", "cloud-init status; ls /var/lib/app"); err != nil || !strings.Contains(out, "status: error") {
		t.Errorf("without a way out: %q, %v", out, err)
	}
}

func TestManagedRunCommand(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	g.vnet("net", "10.0.0.0/16", "10.0.0.0/24")
	p, err := g.compute().NewVirtualMachinesClient().BeginCreateOrUpdate(g.ctx, "rg", "vm", vmModel(g.nic("nic1"), "#!/bin/sh\nsleep 20\ntouch /tmp/sentinel\n"), nil)
	done(g, p, err)
	runs := g.compute().NewVirtualMachineRunCommandsClient()
	put := func(name, script string, strict bool) error {
		q, err := runs.BeginCreateOrUpdate(g.ctx, "rg", "vm", name, armcompute.VirtualMachineRunCommand{Location: new("westus2"), Properties: &armcompute.VirtualMachineRunCommandProperties{
			Source: &armcompute.VirtualMachineRunCommandScriptSource{Script: &script}, TreatFailureAsDeploymentFailure: &strict}}, nil)
		_, err = wait(g, q, err)
		return err
	}
	get := func(name string) *armcompute.VirtualMachineRunCommandInstanceView {
		v := must(runs.GetByVirtualMachine(g.ctx, "rg", "vm", name, &armcompute.VirtualMachineRunCommandsClientGetByVirtualMachineOptions{Expand: new("instanceView")}))(t)
		return v.Properties.InstanceView
	}
	// Waits for the sentinel, which appears when the boot has ended.
	if err := put("wait", "until test -f /tmp/sentinel; do sleep 1; done; echo seen", false); err != nil {
		t.Fatal(err)
	}
	if v := get("wait"); *v.ExecutionState != "Succeeded" || *v.Output != "seen\n" || *v.ExitCode != 0 {
		t.Errorf("view %s", text(v))
	}
	if err := put("bad", "exit 7", false); err != nil {
		t.Fatal(err)
	}
	if v := get("bad"); *v.ExecutionState != "Failed" || *v.ExitCode != 7 {
		t.Errorf("view %s", text(v))
	}
	if err := put("strict", "exit 7", true); err == nil || !strings.Contains(err.Error(), "VMExtensionProvisioningError") {
		t.Errorf("a strict one: %v", err)
	}
	if v := must(runs.GetByVirtualMachine(g.ctx, "rg", "vm", "bad", nil))(t); v.Properties.InstanceView != nil || *v.Properties.ProvisioningState != "Succeeded" {
		t.Errorf("unasked: %s", text(v))
	}
	d, err := runs.BeginDelete(g.ctx, "rg", "vm", "bad", nil)
	done(g, d, err)
	_, err = runs.GetByVirtualMachine(g.ctx, "rg", "vm", "bad", nil)
	refused(t, err, 404, "NotFound")
}

func TestComputeCatalog(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	sizes := map[string]*armcompute.ResourceSKU{}
	pager := g.compute().NewResourceSKUsClient().NewListPager(&armcompute.ResourceSKUsClientListOptions{Filter: new("location eq 'westus2'")})
	for pager.More() {
		page := must(pager.NextPage(g.ctx))(t)
		for _, s := range page.Value {
			sizes[*s.Name] = s
		}
	}
	has := func(s *armcompute.ResourceSKU, name string) string {
		for _, c := range s.Capabilities {
			if *c.Name == name {
				return *c.Value
			}
		}
		return ""
	}
	d2 := sizes["Standard_D2s_v5"]
	if d2 == nil || has(d2, "vCPUs") != "2" || has(d2, "MemoryGB") != "8" || has(d2, "CpuArchitectureType") != "x64" || len(d2.Restrictions) != 0 || len(d2.LocationInfo[0].Zones) != 3 {
		t.Errorf("D2s_v5: %s", text(d2))
	}
	if m := sizes["Standard_M64s"]; m == nil || len(m.Restrictions) != 2 || *m.Restrictions[0].ReasonCode != "NotAvailableForSubscription" {
		t.Errorf("M64s: %s", text(m))
	}
	images := g.compute().NewVirtualMachineImagesClient()
	vs := must(images.List(g.ctx, "westus2", "Canonical", "ubuntu-24_04-lts", "server-arm64", &armcompute.VirtualMachineImagesClientListOptions{Orderby: new("name desc"), Top: new(int32(1))}))(t)
	if len(vs.VirtualMachineImageResourceArray) != 1 {
		t.Fatalf("versions %s", text(vs))
	}
	img := must(images.Get(g.ctx, "westus2", "Canonical", "ubuntu-24_04-lts", "server-arm64", *vs.VirtualMachineImageResourceArray[0].Name, nil))(t)
	if *img.Properties.Architecture != "Arm64" || *img.Properties.HyperVGeneration != "V2" {
		t.Errorf("image %s", text(img))
	}
	_, err := images.Get(g.ctx, "westus2", "Canonical", "ubuntu-24_04-lts", "server-arm64", "1.0", nil)
	refused(t, err, 404, "NotFound")
	used := map[string]*armcompute.Usage{}
	up := g.compute().NewUsageClient().NewListPager("westus2", nil)
	for up.More() {
		for _, u := range must(up.NextPage(g.ctx))(t).Value {
			used[*u.Name.Value] = u
		}
	}
	if u := used["cores"]; u == nil || *u.Limit != 100 || *u.CurrentValue != 0 {
		t.Errorf("cores %s", text(u))
	}
	if u := used["Standard NCASv3_T4 Family"]; u == nil || *u.Limit != 0 {
		t.Errorf("GPUs %s", text(u))
	}
}
