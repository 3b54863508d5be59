package aws

import (
	"slices"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// The faults that real clouds show while a network and an identity are made
// and removed; each ends by itself, with the right objects once.
func TestFaultsThatPass(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		name   string
		fault  sim.Fault
		world  sim.Options
		inDown bool
	}{
		{name: "J11 an association is acknowledged and lost", fault: sim.Fault{Kind: sim.FaultSwallow, Operation: "AssociateRouteTable"}},
		{name: "J11 a route is acknowledged and lost", fault: sim.Fault{Kind: sim.FaultSwallow, Operation: "CreateRoute", After: 1}},
		{name: "D4 a policy is acknowledged and lost", fault: sim.Fault{Kind: sim.FaultSwallow, Operation: "AttachRolePolicy"}},
		{name: "D4 a role in a profile is acknowledged and lost", fault: sim.Fault{Kind: sim.FaultSwallow, Operation: "AddRoleToInstanceProfile"}},
		{name: "D1 objects show late", world: sim.Options{ConsistencyByID: 20e9, ConsistencyByList: 40e9}},
		{name: "D2 a live VPC vanishes from a read", fault: sim.Fault{Kind: sim.FaultRaw, Operation: "DescribeVpcs", Status: 200, Count: 2, After: 1,
			Body: `<DescribeVpcsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>r</requestId><vpcSet/></DescribeVpcsResponse>`}},
		{name: "H1 throttled", fault: sim.Fault{Kind: sim.FaultThrottle, Count: 40}},
		{name: "H5 reads fail", fault: sim.Fault{Kind: sim.FaultError, Mutating: &no, Count: 30, Code: "InternalError", Status: 503}, inDown: true},
		{name: "F8 empty answers", fault: sim.Fault{Kind: sim.FaultRaw, Status: 200, Body: "", Count: 20, Mutating: &no}},
		{name: "F8 a web page", fault: sim.Fault{Kind: sim.FaultRaw, Status: 403, Body: "<html><body>Forbidden</body></html>", ContentType: "text/html", Count: 2}},
		{name: "F8 an empty answer to a create", fault: sim.Fault{Kind: sim.FaultRaw, Status: 200, Body: "", Operation: "CreateSubnet"}},
		{name: "E8 releasing an address", fault: sim.Fault{Kind: sim.FaultError, Operation: "ReleaseAddress", Code: "AuthFailure", Status: 403, Message: "You do not have permission to access the specified resource.", Count: 2}, inDown: true},
		{name: "I1 expired credentials", fault: sim.Fault{Kind: sim.FaultError, Code: "ExpiredToken", Status: 403, Count: 3, After: 5}},
		{name: "Q2 empty pages", world: sim.Options{EmptyPages: 0.5, PageSize: 2}},
		{name: "a conflict on the second try", fault: sim.Fault{Kind: sim.FaultLostReply, Operation: "CreateSubnet", Count: 3, Mutating: &yes}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, c.world, job.ModeCreate, plainSpec)
			before := g.world.Snapshot()
			place := func() {
				if c.fault.Kind != "" {
					g.fault(c.fault)
				}
			}
			if !c.inDown {
				place()
			}
			g.up()
			if n := len(g.ours()); n < 13 {
				t.Errorf("only %d objects carry the mark: %v", n, g.ours())
			}
			if d := g.drift(); len(d) > 0 {
				t.Errorf("drift: %v", d)
			}
			if c.inDown {
				place()
			}
			g.down()
			g.hit()
			g.equal(before)
		})
	}
}

// The same page token for ever is an error, not an endless loop (Q4).
func TestRepeatedPageToken(t *testing.T) {
	g := newRig(t, sim.Options{PageSize: 1}, job.ModeCreate, plainSpec)
	g.up()
	g.fault(sim.Fault{Kind: sim.FaultPage, Mode: "repeat", Operation: "DescribeSubnets", Count: -1})
	g.another()
	r := g.run(pipeline.Apply)
	err := g.p.EnsureNetwork(anything(t.Context()), r)
	if err == nil || !strings.Contains(err.Error(), "same page token") {
		t.Errorf("got %v", err)
	}
}

// A NAT gateway that comes up failed is kept, with the cloud's own reason, and
// teardown takes it away (A8).
func TestFailedNATGateway(t *testing.T) {
	g := newRig(t, sim.Options{}, job.ModeCreate, plainSpec)
	before := g.world.Snapshot()
	g.fault(sim.Fault{Kind: sim.FaultOpFailed, Operation: "CreateNatGateway", Code: "InternalError", Message: "Network vpc-1 has no Internet gateway attached"})
	err := g.try(false, g.p.EnsureNetwork)
	f := fatal(err)
	if f == nil || f.Problem.Code != "object-failed" || !strings.Contains(f.Problem.Message, "has no Internet gateway attached") {
		t.Fatalf("got %v", err)
	}
	g.hit()

	// It is kept until somebody retries, and then replaced.
	failed := g.objects[kindNATGateway+"/nat-a"].ID
	if _, changes := g.calls(0); changes["DeleteNatGateway"] > 0 {
		t.Error("the failed gateway was deleted without being asked")
	}
	g.another()
	g.up()
	if now := g.objects[kindNATGateway+"/nat-a"].ID; now == failed {
		t.Error("the failed gateway was not replaced")
	}
	g.down()
	g.equal(before)
	if left, _, err := g.p.Scan(t.Context(), g.job.ID); err != nil || len(left) > 0 {
		t.Errorf("a scan finds %v, %v", left, err)
	}
}

// A quota in the middle is named, and what was made until then goes again (G1).
func TestAddressQuota(t *testing.T) {
	g := newRig(t, sim.Options{}, job.ModeCreate, plainSpec)
	before := g.world.Snapshot()
	g.fault(sim.Fault{Kind: sim.FaultError, Operation: "AllocateAddress", Code: "AddressLimitExceeded", Status: 400, Message: "The maximum number of addresses has been reached."})
	err := g.try(false, g.p.EnsureNetwork)
	if !pipeline.Is(err, pipeline.Quota) {
		t.Fatalf("got %v", err)
	}
	g.down()
	g.equal(before)
}

// What somebody else put into our VPC is named and not touched; once it is
// gone, the teardown goes on (E-class, F).
func TestForeignBlockers(t *testing.T) {
	g := newRig(t, sim.Options{}, job.ModeCreate, plainSpec)
	before := g.world.Snapshot()
	g.up()
	ic := g.job.Config.InfraConfig
	group := g.invoke("ec2", "CreateSecurityGroup", map[string]any{"GroupName": "theirs", "GroupDescription": "not ours", "VpcId": ic.NetworkID})
	nic := g.invoke("ec2", "CreateNetworkInterface", map[string]any{"SubnetId": ic.PrivateSubnetIDs[0], "Description": "their appliance"})

	says := func(what ...string) {
		t.Helper()
		var blocked *pipeline.BlockedError
		for range 200 {
			r := g.run(pipeline.Apply)
			r.Down = true
			err := g.p.RemoveNetwork(anything(t.Context()), r)
			if blocked = blockedBy(err); blocked != nil {
				break
			}
			d := pipeline.Judge(err, 0)
			if d.Action == pipeline.Stop || err == nil {
				t.Fatalf("got %v", err)
			}
			pause(r, d)
		}
		if blocked == nil {
			t.Fatal("nothing is named")
		}
		for _, w := range what {
			if !strings.Contains(blocked.Error(), w) {
				t.Errorf("%q does not name %q", blocked, w)
			}
		}
	}
	says(nic, "their appliance", ic.PrivateSubnetIDs[0])
	if !g.exists(nic) || !g.exists(group) {
		t.Fatal("something of somebody else's was taken away")
	}
	g.invoke("ec2", "DeleteNetworkInterface", map[string]any{"NetworkInterfaceId": nic})
	says(group, "theirs", "VPC")
	if !g.exists(group) {
		t.Fatal("the group of somebody else was taken away")
	}
	g.invoke("ec2", "DeleteSecurityGroup", map[string]any{"GroupId": group})
	g.down()
	g.equal(before)
}

// An interface with our mark that nothing uses any more is ours to delete (E1).
func TestDetachedInterfaceOfOurs(t *testing.T) {
	g := newRig(t, sim.Options{}, job.ModeCreate, plainSpec)
	before := g.world.Snapshot()
	g.up()
	g.invoke("ec2", "CreateNetworkInterface", map[string]any{
		"SubnetId":          g.job.Config.InfraConfig.PrivateSubnetIDs[1],
		"TagSpecifications": []any{map[string]any{"ResourceType": "network-interface", "Tags": []any{map[string]any{"Key": job.MarkOwner, "Value": g.job.ID}}}},
	})
	g.down()
	g.equal(before)
}

// A role of our name that is not ours is never touched, up or down (B5).
func TestNamesake(t *testing.T) {
	g := newRig(t, sim.Options{}, job.ModeCreate, plainSpec)
	name := g.job.ResourceName("vm", 64)
	g.invoke("iam", "CreateRole", map[string]any{"RoleName": name, "AssumeRolePolicyDocument": trustPolicy})
	before := g.world.Snapshot()
	err := g.try(false, g.p.EnsureIdentity)
	if f := fatal(err); f == nil || f.Problem.Code != "name-taken" {
		t.Fatalf("got %v", err)
	}
	g.another()
	g.down()
	g.equal(before)
}

// Every attribute that somebody changes by hand is reported, by name.
func TestDrift(t *testing.T) {
	g := newRig(t, sim.Options{}, job.ModeCreate, plainSpec)
	g.up()
	ic := g.job.Config.InfraConfig
	g.invoke("iam", "PutRolePolicy", map[string]any{"RoleName": ic.RoleName, "PolicyName": "more", "PolicyDocument": `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:*","Resource":"*"}]}`})
	g.invoke("ec2", "ModifySubnetAttribute", map[string]any{"SubnetId": ic.PrivateSubnetIDs[0], "MapPublicIpOnLaunch": map[string]any{"Value": true}})
	g.invoke("ec2", "ModifyVpcAttribute", map[string]any{"VpcId": ic.NetworkID, "EnableDnsHostnames": map[string]any{"Value": false}})
	var got []string
	for _, d := range g.drift() {
		got = append(got, d.Key+" "+d.Attr)
	}
	want := []string{"private-a public address on launch", "vpc DNS host names", "role policies"}
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("%q is not reported; got %v", w, got)
		}
	}
	if len(got) != len(want) {
		t.Errorf("got %v", got)
	}
}
