package gcp

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/api/compute/v1"
)

const netRegion = "us-central1"

// network makes a custom network and answers its link.
func (g *rig) network(name string) string {
	g.t.Helper()
	g.fine(g.compute().Networks.Insert(testProject, &compute.Network{Name: name, ForceSendFields: []string{"AutoCreateSubnetworks"}}).Do())
	return "projects/" + testProject + "/global/networks/" + name
}

// subnet makes a subnetwork and answers its link.
func (g *rig) subnet(network, name, cidr string) string {
	g.t.Helper()
	g.fine(g.compute().Subnetworks.Insert(testProject, netRegion, &compute.Subnetwork{Name: name, Network: network, IpCidrRange: cidr}).Do())
	return "projects/" + testProject + "/regions/" + netRegion + "/subnetworks/" + name
}

// failed fails the test unless an operation ends with the code.
func (g *rig) failed(op *compute.Operation, err error, code string) string {
	g.t.Helper()
	op = g.done(op, err)
	if op.Error == nil || op.Error.Errors[0].Code != code {
		g.t.Fatalf("want the operation to fail with %s, got %+v", code, op.Error)
	}
	return op.Error.Errors[0].Message
}

func TestNothingMayBeBuiltOnAnUnfinishedNetwork(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s := g.compute()
	op, err := s.Networks.Insert(testProject, &compute.Network{Name: "shop", ForceSendFields: []string{"AutoCreateSubnetworks"}}).Do()
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Subnetworks.Insert(testProject, netRegion, &compute.Subnetwork{Name: "a", Network: "global/networks/shop", IpCidrRange: "10.0.0.0/24"}).Do()
	e := refused(t, err, 400, "resourceNotReady")
	if want := "The resource 'projects/example-project/global/networks/shop' is not ready"; e.Message != want {
		t.Errorf("%q, want %q", e.Message, want)
	}
	g.fine(op, nil)
	g.subnet("global/networks/shop", "a", "10.0.0.0/24")
}

func TestSubnetworks(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s := g.compute()
	network := g.network("shop")
	g.subnet(network, "a", "10.0.0.0/24")
	for _, c := range []struct {
		name, cidr, second, status, want string
	}{
		{"the same range", "10.0.0.0/24", "", "invalid", "conflicts with existing subnetwork 'a' in region 'us-central1'"},
		{"a wider range", "10.0.0.0/16", "", "invalid", "conflicts with existing subnetwork 'a'"},
		{"a second range that overlaps", "10.1.0.0/24", "10.0.0.128/25", "invalid", "secondaryIpRanges[0]"},
		{"ranges that overlap each other", "10.1.0.0/24", "10.1.0.0/26", "invalid", "of the same subnetwork"},
		{"host bits", "10.1.0.1/24", "", "invalid", "Did you mean 10.1.0.0/24?"},
		{"too small", "10.1.0.0/30", "", "invalid", "between 4 and 29"},
		{"prohibited", "169.254.0.0/24", "", "invalid", "reserved IP range"},
		{"nonsense", "ten", "", "invalid", "ipCidrRange"},
	} {
		in := &compute.Subnetwork{Name: "b", Network: network, IpCidrRange: c.cidr}
		if c.second != "" {
			in.SecondaryIpRanges = []*compute.SubnetworkSecondaryRange{{RangeName: "pods", IpCidrRange: c.second}}
		}
		_, err := s.Subnetworks.Insert(testProject, netRegion, in).Do()
		if e := refused(t, err, 400, c.status); !strings.Contains(e.Message, c.want) {
			t.Errorf("%s: %s", c.name, e.Message)
		}
	}
	_, err := s.Subnetworks.Insert(testProject, "mars-north1", &compute.Subnetwork{Name: "b", Network: network, IpCidrRange: "10.1.0.0/24"}).Do()
	refused(t, err, 400, "invalid")

	sub, err := s.Subnetworks.Get(testProject, netRegion, "a").Do()
	if err != nil || sub.GatewayAddress != "10.0.0.1" || sub.State != "" || sub.Purpose != "PRIVATE" || sub.Network != apiRoot+network {
		t.Fatalf("subnetwork: %+v, %v", sub, err)
	}
	_, err = s.Subnetworks.Patch(testProject, netRegion, "a", &compute.Subnetwork{LogConfig: &compute.SubnetworkLogConfig{Enable: true}}).Do()
	refused(t, err, 400, "required")
	_, err = s.Subnetworks.Patch(testProject, netRegion, "a", &compute.Subnetwork{Fingerprint: "AAAAAAAAAAA=", LogConfig: &compute.SubnetworkLogConfig{Enable: true}}).Do()
	refused(t, err, 412, "conditionNotMet")
	g.fine(s.Subnetworks.Patch(testProject, netRegion, "a", &compute.Subnetwork{Fingerprint: sub.Fingerprint, LogConfig: &compute.SubnetworkLogConfig{Enable: true}}).Do())
	g.fine(s.Subnetworks.SetPrivateIpGoogleAccess(testProject, netRegion, "a", &compute.SubnetworksSetPrivateIpGoogleAccessRequest{PrivateIpGoogleAccess: true}).Do())
	g.fine(s.Subnetworks.ExpandIpCidrRange(testProject, netRegion, "a", &compute.SubnetworksExpandIpCidrRangeRequest{IpCidrRange: "10.0.0.0/22"}).Do())
	_, err = s.Subnetworks.ExpandIpCidrRange(testProject, netRegion, "a", &compute.SubnetworksExpandIpCidrRangeRequest{IpCidrRange: "10.0.0.0/24"}).Do()
	refused(t, err, 400, "invalid")
	after, err := s.Subnetworks.Get(testProject, netRegion, "a").Do()
	if err != nil || !after.PrivateIpGoogleAccess || !after.LogConfig.Enable || after.LogConfig.AggregationInterval != "INTERVAL_5_SEC" ||
		after.IpCidrRange != "10.0.0.0/22" || after.Fingerprint == sub.Fingerprint {
		t.Fatalf("after the changes: %+v, %v", after, err)
	}
	routes, err := s.Routes.List(testProject).Filter(`nextHopNetwork = "` + apiRoot + network + `"`).Do()
	if err != nil || len(routes.Items) != 1 || routes.Items[0].DestRange != "10.0.0.0/22" {
		t.Fatalf("routes after the changes: %v, %v", routes, err)
	}
	all, err := s.Subnetworks.AggregatedList(testProject).Filter("network = " + apiRoot + network).Do()
	if err != nil || len(all.Items["regions/us-central1"].Subnetworks) != 1 || all.Items["regions/us-west1"].Warning.Code != "NO_RESULTS_ON_PAGE" {
		t.Fatalf("aggregated: %v", err)
	}
}

func TestNetworkIsKeptByWhatUsesIt(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s := g.compute()
	network := g.network("shop")
	g.subnet(network, "a", "10.0.0.0/24")
	g.fine(s.Firewalls.Insert(testProject, &compute.Firewall{Name: "web", Network: network, Allowed: []*compute.FirewallAllowed{{IPProtocol: "tcp", Ports: []string{"80"}}}}).Do())
	g.fine(s.Routers.Insert(testProject, netRegion, &compute.Router{Name: "r", Network: network}).Do())
	for _, c := range []struct {
		by     string
		remove func() (*compute.Operation, error)
	}{
		{"regions/us-central1/subnetworks/a", func() (*compute.Operation, error) { return s.Subnetworks.Delete(testProject, netRegion, "a").Do() }},
		{"global/firewalls/web", func() (*compute.Operation, error) { return s.Firewalls.Delete(testProject, "web").Do() }},
		{"regions/us-central1/routers/r", func() (*compute.Operation, error) { return s.Routers.Delete(testProject, netRegion, "r").Do() }},
	} {
		op, err := s.Networks.Delete(testProject, "shop").Do()
		message := g.failed(op, err, "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE")
		want := "The network resource 'projects/example-project/global/networks/shop' is already being used by 'projects/example-project/" + c.by + "'"
		if message != want {
			t.Errorf("%q, want %q", message, want)
		}
		g.fine(c.remove())
	}
	g.fine(s.Networks.Delete(testProject, "shop").Do())
	if left := g.world.Snapshot(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestAutoModeAndTheDefaultNetwork(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s := g.compute()
	n, err := s.Networks.Get(testProject, "default").Do()
	if err != nil || !n.AutoCreateSubnetworks || len(n.Subnetworks) != len(regionNames()) {
		t.Fatalf("default network: %+v, %v", n, err)
	}
	rules, err := s.Firewalls.List(testProject).Filter("network:default").Do()
	if err != nil || len(rules.Items) != 4 {
		t.Fatalf("default firewall rules: %v, %v", rules, err)
	}
	g.fine(s.Networks.Insert(testProject, &compute.Network{Name: "auto", AutoCreateSubnetworks: true}).Do())
	g.fine(s.Networks.Delete(testProject, "auto").Do())
	routes, err := s.Routes.List(testProject).Do()
	if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(routes.Items, func(r *compute.Route) bool { return strings.HasSuffix(r.Network, "/auto") }) {
		t.Error("routes of the deleted network are left")
	}
	if len(g.world.Snapshot()) != 0 {
		t.Errorf("left: %v", g.world.Snapshot())
	}
	_, err = s.Networks.Insert(testProject, &compute.Network{Name: "legacy", IPv4Range: "10.0.0.0/8"}).Do()
	refused(t, err, 400, "invalid")
}

func TestFirewallRules(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s := g.compute()
	network := g.network("shop")
	tcp := []*compute.FirewallAllowed{{IPProtocol: "tcp", Ports: []string{"443"}}}
	for name, in := range map[string]*compute.Firewall{
		"no rule":             {},
		"both":                {Allowed: tcp, Denied: []*compute.FirewallDenied{{IPProtocol: "all"}}},
		"ports of icmp":       {Allowed: []*compute.FirewallAllowed{{IPProtocol: "icmp", Ports: []string{"1"}}}},
		"a port too high":     {Allowed: []*compute.FirewallAllowed{{IPProtocol: "tcp", Ports: []string{"70000"}}}},
		"ports upside down":   {Allowed: []*compute.FirewallAllowed{{IPProtocol: "tcp", Ports: []string{"90-80"}}}},
		"an unknown protocol": {Allowed: []*compute.FirewallAllowed{{IPProtocol: "quic"}}},
		"host bits":           {Allowed: tcp, SourceRanges: []string{"10.0.0.1/8"}},
		"a bad tag":           {Allowed: tcp, TargetTags: []string{"Web"}},
		"tags and accounts":   {Allowed: tcp, TargetTags: []string{"web"}, SourceServiceAccounts: []string{"a@b.iam.gserviceaccount.com"}},
		"egress from tags":    {Allowed: tcp, Direction: "EGRESS", SourceTags: []string{"web"}},
		"priority":            {Allowed: tcp, Priority: 70000},
		"an unknown network":  {Allowed: tcp, Network: "global/networks/nowhere"},
	} {
		in.Name = "rule"
		if in.Network == "" {
			in.Network = network
		}
		if _, err := s.Firewalls.Insert(testProject, in).Do(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	g.fine(s.Firewalls.Insert(testProject, &compute.Firewall{Name: "rule", Network: network, Description: "kept", Allowed: tcp, SourceRanges: []string{"35.235.240.0/20"}}).Do())
	g.fine(s.Firewalls.Patch(testProject, "rule", &compute.Firewall{SourceRanges: []string{"130.211.0.0/22"}, Disabled: true}).Do())
	f, err := s.Firewalls.Get(testProject, "rule").Do()
	if err != nil || f.Description != "kept" || !f.Disabled || f.Priority != 1000 || f.Direction != "INGRESS" || !slices.Equal(f.SourceRanges, []string{"130.211.0.0/22"}) {
		t.Errorf("after the patch: %+v, %v", f, err)
	}
	_, err = s.Firewalls.Patch(testProject, "rule", &compute.Firewall{Network: "global/networks/default"}).Do()
	refused(t, err, 400, "invalid")
}

func TestRouterNatAndAddresses(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s := g.compute()
	network := g.network("shop")
	subnet := g.subnet(network, "a", "10.0.0.0/24")
	g.fine(s.Addresses.Insert(testProject, netRegion, &compute.Address{Name: "egress", Labels: map[string]string{"owner": "job_1"}}).Do())
	nat := &compute.RouterNat{Name: "nat", NatIpAllocateOption: "MANUAL_ONLY", NatIps: []string{"projects/example-project/regions/us-central1/addresses/egress"},
		SourceSubnetworkIpRangesToNat: "LIST_OF_SUBNETWORKS", Subnetworks: []*compute.RouterNatSubnetworkToNat{{Name: subnet, SourceIpRangesToNat: []string{"ALL_IP_RANGES"}}},
		LogConfig: &compute.RouterNatLogConfig{Enable: true}}
	g.fine(s.Routers.Insert(testProject, netRegion, &compute.Router{Name: "r", Network: network, Nats: []*compute.RouterNat{nat}}).Do())
	router, err := s.Routers.Get(testProject, netRegion, "r").Do()
	if err != nil || router.Network != apiRoot+network || router.Nats[0].Type != "PUBLIC" || router.Nats[0].LogConfig.Filter != "ALL" {
		t.Fatalf("router: %+v, %v", router, err)
	}
	a, err := s.Addresses.Get(testProject, netRegion, "egress").Do()
	if err != nil || len(a.Labels) != 0 || a.Status != "IN_USE" || !slices.Equal(a.Users, []string{router.SelfLink}) || a.NetworkTier != "PREMIUM" {
		t.Fatalf("address: %+v, %v", a, err)
	}
	_, err = s.Addresses.Delete(testProject, netRegion, "egress").Do()
	e := refused(t, err, 400, "resourceInUseByAnotherResource")
	if want := "The address resource 'projects/example-project/regions/us-central1/addresses/egress' is already being used by 'projects/example-project/regions/us-central1/routers/r'"; e.Message != want {
		t.Errorf("%q, want %q", e.Message, want)
	}
	_, err = s.Subnetworks.Delete(testProject, netRegion, "a").Do()
	refused(t, err, 400, "resourceInUseByAnotherResource")
	_, err = s.Routers.Insert(testProject, netRegion, &compute.Router{Name: "second", Network: network, Nats: []*compute.RouterNat{{Name: "all"}}}).Do()
	refused(t, err, 400, "invalid")
	_, err = s.Routers.Patch(testProject, netRegion, "r", &compute.Router{Nats: []*compute.RouterNat{{Name: "nat", NatIpAllocateOption: "MANUAL_ONLY"}}}).Do()
	refused(t, err, 400, "invalid")

	// A patch keeps the network as it was written, even a part of the link.
	g.fine(s.Routers.Patch(testProject, netRegion, "r", &compute.Router{Network: network, Description: "changed"}).Do())
	if router, err = s.Routers.Get(testProject, netRegion, "r").Do(); err != nil || router.Network != network || len(router.Nats) != 1 {
		t.Fatalf("after the patch: %+v, %v", router, err)
	}
	status, err := s.Routers.GetRouterStatus(testProject, netRegion, "r").Do()
	if err != nil || len(status.Result.NatStatus) != 1 || status.Result.NatStatus[0].UserAllocatedNatIps[0] != a.Address {
		t.Fatalf("status: %+v, %v", status, err)
	}
	g.fine(s.Routers.Patch(testProject, netRegion, "r", &compute.Router{ForceSendFields: []string{"Nats"}}).Do())
	if a, err = s.Addresses.Get(testProject, netRegion, "egress").Do(); err != nil || a.Status != "RESERVED" || len(a.Users) != 0 {
		t.Fatalf("address without NAT: %+v, %v", a, err)
	}
}

// With automatic addresses the gateway takes one, and gives it back.
func TestAutomaticNatAddresses(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s := g.compute()
	g.fine(s.Routers.Insert(testProject, netRegion, &compute.Router{Name: "r", Network: g.network("shop"), Nats: []*compute.RouterNat{{Name: "auto"}}}).Do())
	auto, err := s.Addresses.List(testProject, netRegion).Filter("purpose = NAT_AUTO").Do()
	if err != nil || len(auto.Items) != 1 || auto.Items[0].Status != "IN_USE" {
		t.Fatalf("automatic addresses: %+v, %v", auto, err)
	}
	_, err = s.Addresses.Delete(testProject, netRegion, auto.Items[0].Name).Do()
	refused(t, err, 400, "resourceInUseByAnotherResource")
	if status, err := s.Routers.GetRouterStatus(testProject, netRegion, "r").Do(); err != nil || status.Result.NatStatus[0].AutoAllocatedNatIps[0] != auto.Items[0].Address {
		t.Fatalf("status: %+v, %v", status, err)
	}
	g.fine(s.Routers.Delete(testProject, netRegion, "r").Do())
	if auto, err = s.Addresses.List(testProject, netRegion).Filter("purpose = NAT_AUTO").Do(); err != nil || len(auto.Items) != 0 {
		t.Fatalf("automatic addresses without the router: %+v, %v", auto, err)
	}
}

func TestLabelsOfAddresses(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s := g.compute()
	g.fine(s.Addresses.Insert(testProject, netRegion, &compute.Address{Name: "egress"}).Do())
	a, err := s.Addresses.Get(testProject, netRegion, "egress").Do()
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Addresses.SetLabels(testProject, netRegion, "egress", &compute.RegionSetLabelsRequest{LabelFingerprint: "AAAAAAAAAAA=", Labels: map[string]string{"a": "b"}}).Do()
	refused(t, err, 412, "conditionNotMet")
	_, err = s.Addresses.SetLabels(testProject, netRegion, "egress", &compute.RegionSetLabelsRequest{LabelFingerprint: a.LabelFingerprint, Labels: map[string]string{"Env": "Prod"}}).Do()
	refused(t, err, 400, "invalid")
	op, err := s.Addresses.SetLabels(testProject, netRegion, "egress", &compute.RegionSetLabelsRequest{LabelFingerprint: a.LabelFingerprint, Labels: map[string]string{"env": "prod"}}).Do()
	if err != nil || op.Status != "DONE" {
		t.Fatalf("set labels: %+v, %v", op, err)
	}
}

func TestAllocatedRanges(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s := g.compute()
	network := g.network("shop")
	g.subnet(network, "a", "10.0.0.0/24")
	in := compute.Address{Name: "services", AddressType: "INTERNAL", Purpose: "VPC_PEERING", PrefixLength: 16, Network: network}
	overlapping := in
	overlapping.Address = "10.0.0.0"
	_, err := s.GlobalAddresses.Insert(testProject, &overlapping).Do()
	refused(t, err, 400, "invalid")
	g.fine(s.GlobalAddresses.Insert(testProject, &in).Do())
	a, err := s.GlobalAddresses.Get(testProject, "services").Do()
	if err != nil || a.Address == "" || a.PrefixLength != 16 || a.Status != "RESERVED" {
		t.Fatalf("range: %+v, %v", a, err)
	}
	_, err = s.Subnetworks.Insert(testProject, netRegion, &compute.Subnetwork{Name: "b", Network: network, IpCidrRange: strings.TrimSuffix(a.Address, ".0") + ".0/24"}).Do()
	refused(t, err, 400, "invalid")
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s := g.compute()
	network := g.network("shop")
	g.subnet(network, "a", "10.0.0.0/24")
	list, err := s.Routes.List(testProject).Filter(`network = "` + apiRoot + network + `"`).Do()
	if err != nil || len(list.Items) != 2 {
		t.Fatalf("system routes: %v, %v", list, err)
	}
	var local, internet *compute.Route
	for _, r := range list.Items {
		if r.NextHopGateway != "" {
			internet = r
		} else {
			local = r
		}
	}
	_, err = s.Routes.Delete(testProject, local.Name).Do()
	refused(t, err, 400, "invalid")
	g.fine(s.Routes.Delete(testProject, internet.Name).Do())
	gateway := "projects/example-project/global/gateways/default-internet-gateway"
	_, err = s.Routes.Insert(testProject, &compute.Route{Name: "r", Network: network, DestRange: "10.0.0.0/25", NextHopGateway: gateway}).Do()
	refused(t, err, 400, "invalid")
	_, err = s.Routes.Insert(testProject, &compute.Route{Name: "r", Network: network, DestRange: "0.0.0.0/0"}).Do()
	refused(t, err, 400, "invalid")
	g.fine(s.Routes.Insert(testProject, &compute.Route{Name: "r", Network: network, DestRange: "0.0.0.0/0", NextHopGateway: gateway}).Do())
	r, err := s.Routes.Get(testProject, "r").Do()
	if err != nil || r.Priority != 1000 || r.NextHopGateway != apiRoot+gateway {
		t.Fatalf("route: %+v, %v", r, err)
	}
}

func TestQuotas(t *testing.T) {
	t.Parallel()
	g := newRig(t)
	s := g.compute()
	if !g.world.SetQuota("gcp", "compute", "NETWORKS-per-project", testProject, "", 1) {
		t.Fatal("no such quota")
	}
	_, err := s.Networks.Insert(testProject, &compute.Network{Name: "shop", ForceSendFields: []string{"AutoCreateSubnetworks"}}).Do()
	e := refused(t, err, 403, "quotaExceeded")
	if e.Message != "Quota 'NETWORKS' exceeded.  Limit: 1.0 globally." {
		t.Error(e.Message)
	}
	p, err := s.Projects.Get(testProject).Do()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(p.Quotas, func(q *compute.Quota) bool { return q.Metric == "NETWORKS" })
	if i < 0 || p.Quotas[i].Limit != 1 || p.Quotas[i].Usage != 1 {
		t.Errorf("quotas: %+v", p.Quotas)
	}
	region, err := s.Regions.Get(testProject, netRegion).Do()
	if err != nil || len(region.Zones) != 4 || len(region.Quotas) == 0 {
		t.Errorf("region: %+v, %v", region, err)
	}
	_, err = s.Regions.Get(testProject, "mars-north1").Do()
	refused(t, err, 404, "notFound")
}
