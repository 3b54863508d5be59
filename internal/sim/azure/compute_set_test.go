package azure

import (
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v10"

	"github.com/zopday/provisioner/internal/sim"
)

// setModel is a scale set in subnet a of the network "net"; pool may be empty.
func setModel(mode armcompute.OrchestrationMode, capacity int64, pool, script string) armcompute.VirtualMachineScaleSet {
	ip := &armcompute.VirtualMachineScaleSetIPConfigurationProperties{Subnet: &armcompute.APIEntityReference{ID: new(groupPath("rg") + "virtualNetworks/net/subnets/a")}}
	if pool != "" {
		ip.LoadBalancerBackendAddressPools = []*armcompute.SubResource{{ID: &pool}}
	}
	s := armcompute.VirtualMachineScaleSet{Location: new("westus2"), SKU: &armcompute.SKU{Name: new("Standard_D2s_v5"), Capacity: &capacity}, Tags: map[string]*string{"owner": new("job_2")},
		Zones: []*string{new("1"), new("2"), new("3")},
		Properties: &armcompute.VirtualMachineScaleSetProperties{OrchestrationMode: &mode, Overprovision: new(false),
			UpgradePolicy: &armcompute.UpgradePolicy{Mode: new(armcompute.UpgradeModeManual)},
			VirtualMachineProfile: &armcompute.VirtualMachineScaleSetVMProfile{
				OSProfile: &armcompute.VirtualMachineScaleSetOSProfile{ComputerNamePrefix: new("web"), AdminUsername: new("cloud"), LinuxConfiguration: linux(),
					CustomData: new(base64.StdEncoding.EncodeToString([]byte(script)))},
				StorageProfile: &armcompute.VirtualMachineScaleSetStorageProfile{ImageReference: ubuntu()},
				NetworkProfile: &armcompute.VirtualMachineScaleSetNetworkProfile{NetworkInterfaceConfigurations: []*armcompute.VirtualMachineScaleSetNetworkConfiguration{{Name: new("nic"),
					Properties: &armcompute.VirtualMachineScaleSetNetworkConfigurationProperties{Primary: new(true),
						IPConfigurations: []*armcompute.VirtualMachineScaleSetIPConfiguration{{Name: new("ip"), Properties: ip}}}}}}}}}
	if mode == armcompute.OrchestrationModeFlexible {
		s.Properties.UpgradePolicy, s.Properties.Overprovision, s.Properties.PlatformFaultDomainCount = nil, nil, new(int32(1))
		s.Properties.VirtualMachineProfile.NetworkProfile.NetworkAPIVersion = new(armcompute.NetworkAPIVersionTwoThousandTwenty1101)
	}
	return s
}

func (g *rig) instances(set string) []*armcompute.VirtualMachineScaleSetVM {
	g.t.Helper()
	var out []*armcompute.VirtualMachineScaleSetVM
	pager := g.compute().NewVirtualMachineScaleSetVMsClient().NewListPager("rg", set, &armcompute.VirtualMachineScaleSetVMsClientListOptions{Expand: new("instanceView")})
	for pager.More() {
		out = append(out, must(pager.NextPage(g.ctx))(g.t).Value...)
	}
	return out
}

// balancer makes an internal load balancer in subnet a with a pool, an HTTP probe of /healthz and a rule for port 80.
func (g *rig) balancer() string {
	g.t.Helper()
	id := groupPath("rg") + "loadBalancers/lb/"
	ref := func(part string) *armnetwork.SubResource { return &armnetwork.SubResource{ID: new(id + part)} }
	p, err := g.networks().NewLoadBalancersClient().BeginCreateOrUpdate(g.ctx, "rg", "lb", armnetwork.LoadBalancer{Location: new("westus2"),
		SKU: &armnetwork.LoadBalancerSKU{Name: new(armnetwork.LoadBalancerSKUNameStandard)},
		Properties: &armnetwork.LoadBalancerPropertiesFormat{
			FrontendIPConfigurations: []*armnetwork.FrontendIPConfiguration{{Name: new("front"), Properties: &armnetwork.FrontendIPConfigurationPropertiesFormat{
				Subnet: &armnetwork.Subnet{ID: new(groupPath("rg") + "virtualNetworks/net/subnets/a")}}}},
			BackendAddressPools: []*armnetwork.BackendAddressPool{{Name: new("pool")}},
			Probes: []*armnetwork.Probe{{Name: new("http"), Properties: &armnetwork.ProbePropertiesFormat{Protocol: new(armnetwork.ProbeProtocolHTTP), Port: new(int32(80)),
				RequestPath: new("/healthz"), IntervalInSeconds: new(int32(5)), NumberOfProbes: new(int32(2))}}},
			LoadBalancingRules: []*armnetwork.LoadBalancingRule{{Name: new("web"), Properties: &armnetwork.LoadBalancingRulePropertiesFormat{Protocol: new(armnetwork.TransportProtocolTCP),
				FrontendPort: new(int32(80)), BackendPort: new(int32(80)), DisableOutboundSnat: new(true), FrontendIPConfiguration: ref("frontendIPConfigurations/front"),
				BackendAddressPool: ref("backendAddressPools/pool"), Probe: ref("probes/http")}}}}}, nil)
	done(g, p, err)
	return id + "backendAddressPools/pool"
}

// health is what the load balancer says of the members of its pool.
func (g *rig) health() armnetwork.LoadBalancerHealthPerRule {
	g.t.Helper()
	p, err := g.networks().NewLoadBalancerLoadBalancingRulesClient().BeginHealth(g.ctx, "rg", "lb", "web", nil)
	return done(g, p, err).LoadBalancerHealthPerRule
}

func TestUniformScaleSet(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	g.vnet("net", "10.0.0.0/16", "10.0.0.0/24")
	g.outbound("net")
	pool := g.balancer()
	sets := g.compute().NewVirtualMachineScaleSetsClient()
	p, err := sets.BeginCreateOrUpdate(g.ctx, "rg", "web", setModel(armcompute.OrchestrationModeUniform, 3, pool, webServer), nil)
	set := done(g, p, err)
	if *set.Properties.ProvisioningState != "Succeeded" || set.Properties.VirtualMachineProfile.OSProfile.CustomData != nil {
		t.Errorf("made %s", text(set.VirtualMachineScaleSet))
	}
	members := g.instances("web")
	zones := map[string]int{}
	for _, m := range members {
		zones[*m.Zones[0]]++
		if *m.Properties.ProvisioningState != "Succeeded" || !*m.Properties.LatestModelApplied || m.Properties.StorageProfile.OSDisk.ManagedDisk.ID == nil {
			t.Errorf("instance %s", text(m))
		}
	}
	if len(members) != 3 || len(zones) != 3 || *members[0].Properties.OSProfile.ComputerName != "web000000" {
		t.Fatalf("instances %s", text(members))
	}
	if used := usage(g, "cores"); used != 6 {
		t.Errorf("%d cores in use", used)
	}
	if h := g.health(); *h.Up != 0 || *h.Down != 3 || *h.LoadBalancerBackendAddresses[0].Reason != "Down_Probe_HttpEndpointUnreachable" {
		t.Errorf("health before anything listens: %s", text(h))
	}
	g.world.Step(5 * time.Minute)
	if h := g.health(); *h.Up != 3 || *h.Down != 0 || *h.LoadBalancerBackendAddresses[0].Reason != "Up_Probe_Success" {
		t.Errorf("health %s", text(h))
	}

	vms := g.compute().NewVirtualMachineScaleSetVMsClient()
	q, err := vms.BeginRunCommand(g.ctx, "rg", "web", "1", armcompute.RunCommandInput{CommandID: new("RunShellScript"), Script: []*string{new("hostname; test -f /var/lib/app/ready && echo there")}}, nil)
	if out := *done(g, q, err).Value[0].Message; !strings.Contains(out, "web000001\nthere") {
		t.Errorf("run command: %q", out)
	}

	// The pool cannot go while the set uses it, nor the subnet.
	l, err := g.networks().NewLoadBalancersClient().BeginDelete(g.ctx, "rg", "lb", nil)
	_, err = wait(g, l, err)
	refused(t, err, 400, "LoadBalancerInUseByVirtualMachineScaleSet")
	s, err := g.networks().NewSubnetsClient().BeginDelete(g.ctx, "rg", "net", "a", nil)
	_, err = wait(g, s, err)
	refused(t, err, 400, "InUseSubnetCannotBeDeleted")

	// Smaller, then larger.
	scale := func(n int64) {
		t.Helper()
		u, err := sets.BeginUpdate(g.ctx, "rg", "web", armcompute.VirtualMachineScaleSetUpdate{SKU: &armcompute.SKU{Capacity: &n}}, nil)
		if got := done(g, u, err); *got.SKU.Capacity != n || *got.SKU.Name != "Standard_D2s_v5" || len(g.instances("web")) != int(n) {
			t.Errorf("capacity %d: %s, %d instances", n, text(got.SKU), len(g.instances("web")))
		}
	}
	scale(1)
	scale(2)
	// A deleted instance makes the set smaller.
	d, err := vms.BeginDelete(g.ctx, "rg", "web", *g.instances("web")[0].InstanceID, nil)
	done(g, d, err)
	if got := must(sets.Get(g.ctx, "rg", "web", nil))(t); *got.SKU.Capacity != 1 || len(g.instances("web")) != 1 {
		t.Errorf("capacity %d with %d instances", *got.SKU.Capacity, len(g.instances("web")))
	}
	view := must(sets.GetInstanceView(g.ctx, "rg", "web", nil))(t)
	if len(view.VirtualMachine.StatusesSummary) != 1 || *view.VirtualMachine.StatusesSummary[0].Count != 1 {
		t.Errorf("view %s", text(view))
	}
	del, err := sets.BeginDelete(g.ctx, "rg", "web", nil)
	done(g, del, err)
	l, err = g.networks().NewLoadBalancersClient().BeginDelete(g.ctx, "rg", "lb", nil)
	done(g, l, err)
	if left := g.world.Objects(sim.ObjectFilter{Owner: "job_2"}); len(left) > 0 {
		t.Errorf("left: %s", text(left))
	}
}

func usage(g *rig, name string) int {
	g.t.Helper()
	pager := g.compute().NewUsageClient().NewListPager("westus2", nil)
	for pager.More() {
		for _, u := range must(pager.NextPage(g.ctx))(g.t).Value {
			if *u.Name.Value == name {
				return int(*u.CurrentValue)
			}
		}
	}
	return -1
}

func TestFlexibleScaleSet(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	g.vnet("net", "10.0.0.0/16", "10.0.0.0/24")
	g.outbound("net")
	pool := g.balancer()
	sets, vms := g.compute().NewVirtualMachineScaleSetsClient(), g.compute().NewVirtualMachinesClient()
	p, err := sets.BeginCreateOrUpdate(g.ctx, "rg", "web", setModel(armcompute.OrchestrationModeFlexible, 2, pool, webServer), nil)
	set := done(g, p, err)
	members := func() []*armcompute.VirtualMachine {
		t.Helper()
		var out []*armcompute.VirtualMachine
		pager := vms.NewListPager("rg", &armcompute.VirtualMachinesClientListOptions{Filter: new("'virtualMachineScaleSet/id' eq '" + *set.ID + "'")})
		for pager.More() {
			out = append(out, must(pager.NextPage(g.ctx))(t).Value...)
		}
		return out
	}
	all := members()
	if len(all) != 2 || !strings.HasPrefix(*all[0].Name, "web_") || !strings.EqualFold(*all[0].Properties.VirtualMachineScaleSet.ID, *set.ID) ||
		*all[0].Properties.NetworkProfile.NetworkInterfaces[0].Properties.DeleteOption != armcompute.DeleteOptionsDelete {
		t.Fatalf("members %s", text(all))
	}
	if len(g.instances("web")) != 2 {
		t.Errorf("instances %s", text(g.instances("web")))
	}
	g.world.Step(5 * time.Minute)
	if h := g.health(); *h.Up != 2 {
		t.Errorf("health %s", text(h))
	}
	if out, err := g.run(*all[0].Name, "test -f /var/lib/app/ready && echo there"); err != nil || !strings.Contains(out, "there") {
		t.Errorf("%q, %v", out, err)
	}
	d, err := vms.BeginDelete(g.ctx, "rg", *all[0].Name, nil)
	done(g, d, err)
	if got := must(sets.Get(g.ctx, "rg", "web", nil))(t); *got.SKU.Capacity != 1 || len(members()) != 1 {
		t.Errorf("capacity %d with %d members", *got.SKU.Capacity, len(members()))
	}
	u, err := sets.BeginUpdate(g.ctx, "rg", "web", armcompute.VirtualMachineScaleSetUpdate{SKU: &armcompute.SKU{Capacity: new(int64(3))}}, nil)
	done(g, u, err)
	if len(members()) != 3 {
		t.Errorf("%d members", len(members()))
	}
	u, err = sets.BeginUpdate(g.ctx, "rg", "web", armcompute.VirtualMachineScaleSetUpdate{SKU: &armcompute.SKU{Capacity: new(int64(0))}}, nil)
	done(g, u, err)
	del, err := sets.BeginDelete(g.ctx, "rg", "web", nil)
	done(g, del, err)
	if left := g.world.Objects(sim.ObjectFilter{Owner: "job_2"}); len(left) > 0 {
		t.Errorf("left: %s", text(left))
	}
}

func TestScaleSetRefusals(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	g.vnet("net", "10.0.0.0/16", "10.0.0.0/28")
	sets := g.compute().NewVirtualMachineScaleSetsClient()
	uniform, flexible := armcompute.OrchestrationModeUniform, armcompute.OrchestrationModeFlexible
	for name, c := range map[string]struct {
		model  armcompute.VirtualMachineScaleSet
		change func(*armcompute.VirtualMachineScaleSet)
		status int
		code   string
	}{
		"no upgrade policy": {setModel(uniform, 1, "", ""), func(s *armcompute.VirtualMachineScaleSet) { s.Properties.UpgradePolicy = nil }, 400, "InvalidParameter"},
		"no fault domains":  {setModel(flexible, 1, "", ""), func(s *armcompute.VirtualMachineScaleSet) { s.Properties.PlatformFaultDomainCount = nil }, 400, "InvalidParameter"},
		"no network version": {setModel(flexible, 1, "", ""), func(s *armcompute.VirtualMachineScaleSet) {
			s.Properties.VirtualMachineProfile.NetworkProfile.NetworkAPIVersion = nil
		}, 400, "InvalidParameter"},
		"quota":        {setModel(uniform, 51, "", ""), func(*armcompute.VirtualMachineScaleSet) {}, 409, "OperationNotAllowed"},
		"no such pool": {setModel(uniform, 1, groupPath("rg")+"loadBalancers/none/backendAddressPools/pool", ""), func(*armcompute.VirtualMachineScaleSet) {}, 400, "InvalidResourceReference"},
		"repairs without health": {setModel(uniform, 1, "", ""), func(s *armcompute.VirtualMachineScaleSet) {
			s.Properties.AutomaticRepairsPolicy = &armcompute.AutomaticRepairsPolicy{Enabled: new(true)}
		}, 400, "BadRequest"},
	} {
		c.change(&c.model)
		_, err := sets.BeginCreateOrUpdate(g.ctx, "rg", "web", c.model, nil)
		t.Log(name)
		refused(t, err, c.status, c.code)
	}
	// A subnet of eleven addresses does not hold twelve machines.
	p, err := sets.BeginCreateOrUpdate(g.ctx, "rg", "full", setModel(uniform, 12, "", ""), nil)
	_, err = wait(g, p, err)
	if err == nil || !strings.Contains(err.Error(), "SubnetIsFull") {
		t.Errorf("a full subnet: %v", err)
	}
}

func TestScaleSetCapacity(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	g.vnet("net", "10.0.0.0/16", "10.0.0.0/24")
	sets := g.compute().NewVirtualMachineScaleSetsClient()
	if _, err := g.world.AddFault(sim.Fault{Kind: sim.FaultCapacity, Match: "westus2-2", Count: -1}); err != nil {
		t.Fatal(err)
	}
	model := setModel(armcompute.OrchestrationModeUniform, 3, "", "")
	p, err := sets.BeginCreateOrUpdate(g.ctx, "rg", "web", model, nil)
	_, err = wait(g, p, err)
	if err == nil || !strings.Contains(err.Error(), "ZonalAllocationFailed") {
		t.Fatalf("no room in a zone: %v", err)
	}
	if got := must(sets.Get(g.ctx, "rg", "web", nil))(t); *got.Properties.ProvisioningState != "Failed" || len(g.instances("web")) != 2 {
		t.Errorf("%s with %d instances", *got.Properties.ProvisioningState, len(g.instances("web")))
	}
	g.world.ClearFaults("")
	p, err = sets.BeginCreateOrUpdate(g.ctx, "rg", "web", model, nil)
	done(g, p, err)
	if len(g.instances("web")) != 3 {
		t.Errorf("%d instances", len(g.instances("web")))
	}
}

func TestOverprovision(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	g.vnet("net", "10.0.0.0/16", "10.0.0.0/24")
	model := setModel(armcompute.OrchestrationModeUniform, 5, "", "")
	model.Properties.Overprovision = nil
	p, err := g.compute().NewVirtualMachineScaleSetsClient().BeginCreateOrUpdate(g.ctx, "rg", "web", model, nil)
	if err != nil {
		t.Fatal(err)
	}
	g.world.Step(20 * time.Second)
	if n := len(g.instances("web")); n != 7 {
		t.Errorf("%d instances on the way to 5", n)
	}
	done(g, p, nil)
	if n := len(g.instances("web")); n != 5 {
		t.Errorf("%d instances", n)
	}
}

func TestAutomaticRepairs(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	g.vnet("net", "10.0.0.0/16", "10.0.0.0/24")
	g.outbound("net")
	model := setModel(armcompute.OrchestrationModeUniform, 2, "", webServer)
	model.Properties.AutomaticRepairsPolicy = &armcompute.AutomaticRepairsPolicy{Enabled: new(true), GracePeriod: new("PT10M")}
	model.Properties.VirtualMachineProfile.ExtensionProfile = &armcompute.VirtualMachineScaleSetExtensionProfile{Extensions: []*armcompute.VirtualMachineScaleSetExtension{{Name: new("health"),
		Properties: &armcompute.VirtualMachineScaleSetExtensionProperties{Publisher: new("Microsoft.ManagedServices"), Type: new("ApplicationHealthLinux"), TypeHandlerVersion: new("1.0"),
			Settings: map[string]any{"protocol": "http", "port": 80, "requestPath": "/healthz"}}}}}
	p, err := g.compute().NewVirtualMachineScaleSetsClient().BeginCreateOrUpdate(g.ctx, "rg", "web", model, nil)
	done(g, p, err)
	g.world.Step(15 * time.Minute)
	before := g.instances("web")
	if len(before) != 2 || *before[0].Properties.InstanceView.VMHealth.Status.Code != "HealthState/healthy" {
		t.Fatalf("instances %s", text(before))
	}
	sick := *before[0].ID
	if _, err := g.world.SetObjectState(sick, "Unhealthy", "", ""); err != nil {
		t.Fatal(err)
	}
	g.world.Step(20 * time.Minute)
	after := g.instances("web")
	if len(after) != 2 || *after[0].ID == sick || *after[1].Properties.InstanceView.VMHealth.Status.Code != "HealthState/healthy" {
		t.Errorf("instances %s", text(after))
	}
}

// TestAttachToPool: a load balancer is attached through the model; instances of a uniform set follow when they are upgraded, and
// go on running.
func TestAttachToPool(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	g.group("rg")
	g.vnet("net", "10.0.0.0/16", "10.0.0.0/24")
	g.outbound("net")
	pool := g.balancer()
	sets := g.compute().NewVirtualMachineScaleSetsClient()
	model := setModel(armcompute.OrchestrationModeUniform, 2, "", webServer)
	p, err := sets.BeginCreateOrUpdate(g.ctx, "rg", "web", model, nil)
	done(g, p, err)
	g.world.Step(5 * time.Minute)
	set := must(sets.Get(g.ctx, "rg", "web", nil))(t).VirtualMachineScaleSet
	ip := set.Properties.VirtualMachineProfile.NetworkProfile.NetworkInterfaceConfigurations[0].Properties.IPConfigurations[0]
	ip.Properties.LoadBalancerBackendAddressPools = []*armcompute.SubResource{{ID: &pool}}
	p, err = sets.BeginCreateOrUpdate(g.ctx, "rg", "web", set, nil)
	done(g, p, err)
	if h := g.health(); *h.Up+*h.Down != 0 {
		t.Errorf("attached before the instances were upgraded: %s", text(h))
	}
	for _, m := range g.instances("web") {
		if *m.Properties.LatestModelApplied {
			t.Errorf("instance %s has the latest model", *m.InstanceID)
		}
	}
	u, err := sets.BeginUpdateInstances(g.ctx, "rg", "web", armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{InstanceIDs: []*string{new("*")}}, nil)
	done(g, u, err)
	if h := g.health(); *h.Up != 2 {
		t.Errorf("health %s", text(h))
	}
	if !*g.instances("web")[0].Properties.LatestModelApplied {
		t.Error("the latest model is not applied")
	}
	nics := g.networks().NewInterfacesClient().NewListVirtualMachineScaleSetNetworkInterfacesPager("rg", "web", nil)
	if page := must(nics.NextPage(g.ctx))(t); len(page.Value) != 2 || len(page.Value[0].Properties.IPConfigurations[0].Properties.LoadBalancerBackendAddressPools) != 1 {
		t.Errorf("interfaces %s", text(page))
	}
	// A plain GET and PUT changes nothing, and asks for no password or custom data again.
	again := must(sets.Get(g.ctx, "rg", "web", nil))(t).VirtualMachineScaleSet
	p, err = sets.BeginCreateOrUpdate(g.ctx, "rg", "web", again, nil)
	done(g, p, err)
	if !*g.instances("web")[0].Properties.LatestModelApplied {
		t.Error("written as it was read, the model is another")
	}
	q, err := g.compute().NewVirtualMachineScaleSetVMsClient().BeginReimage(g.ctx, "rg", "web", "0", nil)
	done(g, q, err)
	if h := g.health(); *h.Up != 1 || *h.Down != 1 {
		t.Errorf("health right after an instance was installed anew: %s", text(h))
	}
	g.world.Step(5 * time.Minute)
	if h := g.health(); *h.Up != 2 {
		t.Errorf("health %s", text(h))
	}
}
