package aws

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/bootstrap"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// inbound is what the job's network ACL says of packets that come in.
func (g vmRig) inbound() []string {
	g.Helper()
	out, err := g.p.ec2.DescribeNetworkAcls(g.Context(), &ec2.DescribeNetworkAclsInput{NetworkAclIds: []string{g.objects[kindNetworkACL+"/"+aclKey].ID}})
	if err != nil {
		g.Fatal(err)
	}
	var rules []string
	for _, x := range rulesOf(out.NetworkAcls[0]) {
		if !x.egress {
			rules = append(rules, fmt.Sprintf("%d %s", x.number, x))
		}
	}
	return rules
}

// What a network ACL admits is judged by the first rule that fits, as EC2 does it.
func TestAdmitted(t *testing.T) {
	t.Parallel()
	inside := append(slices.Clone(privateBlocks), netip.MustParsePrefix("198.51.100.0/24"))
	tcp := func(number, from, to int32, allow bool, cidr string) aclRule {
		return aclRule{number: number, allow: allow, proto: protoTCP, from: from, to: to, cidr: cidr}
	}
	for _, c := range []struct {
		name  string
		rules []aclRule
		want  []string
	}{
		{"nothing at all", nil, nil},
		{"the job's own", innerRules([]string{"10.40.0.0/16", "198.51.100.0/24"}, nil), nil},
		{"a public load balancer on 80", append(clientRules(job.LoadBalancer{Type: job.LBTCP, Scheme: job.SchemePublic, Port: 80}), innerRules(nil, nil)...), nil},
		{"a public load balancer on 22", append(clientRules(job.LoadBalancer{Type: job.LBTCP, Scheme: job.SchemePublic, Port: 22}), innerRules(nil, nil)...), []string{"22"}},
		{"the default of a VPC", []aclRule{allowAll(100, anywhere)}, []string{"20", "21", "22", "3389", "all ports from 0.0.0.0/0"}},
		{"of IPv6", []aclRule{allowAll(101, "::/0")}, []string{"20", "21", "22", "3389", "all ports from ::/0"}},
		{"a part of the internet", []aclRule{tcp(10, 21, 22, true, "203.0.113.0/24")}, []string{"21", "22"}},
		{"denied too late", []aclRule{tcp(10, 3000, 4000, true, anywhere), tcp(20, 3389, 3389, false, anywhere)}, []string{"3389"}},
		{"denied to a part", []aclRule{tcp(10, 22, 22, false, "203.0.113.0/24"), tcp(20, 22, 22, true, anywhere)}, []string{"22"}},
		{"denied of IPv4, open of IPv6", []aclRule{tcp(10, 22, 22, false, anywhere), tcp(20, 22, 22, true, "::/0")}, []string{"22"}},
	} {
		if d := cmp.Diff(c.want, admitted(c.rules, inside)); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}

// Ranges keep the rules that they have, and many peers do not need more rules than
// there is room for.
func TestRangesOfNetworkACL(t *testing.T) {
	t.Parallel()
	have := []aclRule{allowAll(200, "10.2.0.0/16"), {number: 201, proto: protoAll, cidr: "10.3.0.0/16"}, {number: 202, egress: true, allow: true, proto: protoAll, cidr: "10.4.0.0/16"}}
	var got []string
	for _, x := range placed(aclPeers, []string{"10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "10.2.0.0/16"}, have) {
		got = append(got, x.at()+" "+x.cidr)
	}
	want := []string{"inbound rule 202 10.1.0.0/16", "inbound rule 200 10.2.0.0/16", "inbound rule 203 10.3.0.0/16", "inbound rule 200 10.2.0.0/16"}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	ic := &job.InfraConfig{}
	for i := range 30 {
		ic.Peerings = append(ic.Peerings, job.PeeringInfo{CIDRs: []string{fmt.Sprintf("10.%d.0.0/16", 100+i), fmt.Sprintf("172.%d.0.0/16", 16+i%16), "203.0.113.0/24"}})
	}
	got = nil
	for _, x := range peerRules(ic, nil) {
		got = append(got, x.cidr)
	}
	if d := cmp.Diff([]string{"10.0.0.0/8", "172.16.0.0/12", "203.0.113.0/24"}, got); d != "" {
		t.Error(d)
	}
}

// What a person does to the network ACL is reported rule by rule and subnet by
// subnet; a run puts the job's own part right.
func TestNetworkACLDrift(t *testing.T) {
	t.Parallel()
	g := newNet(t, sim.Options{}, job.ModeCreate, hubSpec)
	before := g.world.Snapshot()
	g.create()
	asMade := []string{
		"100 allow all from " + g.infra().NetworkCIDR, "101 allow all from 100.64.0.0/20", "400 deny tcp 22 from 0.0.0.0/0", "401 deny tcp 3389 from 0.0.0.0/0",
		"500 allow tcp 1024-65535 from 0.0.0.0/0", "501 allow udp 1024-65535 from 0.0.0.0/0", "502 allow icmp type 3 code -1 from 0.0.0.0/0",
	}
	if d := cmp.Diff(asMade, g.inbound()); d != "" {
		t.Fatal(d)
	}
	id, subnet := g.objects[kindNetworkACL+"/"+aclKey].ID, g.infra().DatabaseSubnetIDs[0]
	out, err := g.p.ec2.DescribeNetworkAcls(t.Context(), &ec2.DescribeNetworkAclsInput{})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range out.NetworkAcls {
		if aws.ToBool(a.IsDefault) && aws.ToString(a.VpcId) == g.infra().NetworkID {
			g.invoke("ec2", "ReplaceNetworkAclAssociation", map[string]any{"AssociationId": associations(out.NetworkAcls...)[subnet], "NetworkAclId": *a.NetworkAclId})
		}
	}
	g.invoke("ec2", "DeleteNetworkAclEntry", map[string]any{"NetworkAclId": id, "RuleNumber": 401, "Egress": false})
	g.invoke("ec2", "ReplaceNetworkAclEntry", map[string]any{"NetworkAclId": id, "RuleNumber": 501, "Egress": false, "Protocol": "17", "RuleAction": "deny", "CidrBlock": anywhere, "PortRange": map[string]any{"From": 1024, "To": 65535}})
	g.invoke("ec2", "CreateNetworkAclEntry", map[string]any{"NetworkAclId": id, "RuleNumber": 50, "Egress": false, "Protocol": "6", "RuleAction": "allow", "CidrBlock": anywhere, "PortRange": map[string]any{"From": 20, "To": 25}})
	drift, _ := g.verify()
	var got []string
	for _, d := range drift {
		if d.Key == aclKey || d.Key == "NETA-07" {
			got = append(got, strings.NewReplacer(id, "ACL", subnet, "SUBNET").Replace(d.Attr+": "+d.Seen))
		}
	}
	slices.Sort(got)
	want := []string{
		"guards SUBNET: no", "inbound rule 401: none", "inbound rule 501: deny udp 1024-65535 from 0.0.0.0/0",
		"network ACLs of private subnets that admit 20, 21, 22, 3389 or all ports from the internet: SUBNET has another network ACL, ACL admits 20, ACL admits 21, ACL admits 22, ACL admits 3389",
		"other rules: inbound rule 50: allow tcp 20-25 from 0.0.0.0/0",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	g.another()
	g.create()
	if d := cmp.Diff(append([]string{"50 allow tcp 20-25 from 0.0.0.0/0"}, asMade...), g.inbound()); d != "" {
		t.Error(d) // what a person added stays, and stays reported
	}
	g.invoke("ec2", "DeleteNetworkAclEntry", map[string]any{"NetworkAclId": id, "RuleNumber": 50, "Egress": false})
	g.asAsked()
	g.teardown()
	g.equal(before)
}

// A peer is let in as soon as it is routed to.
func TestNetworkACLAdmitsPeers(t *testing.T) {
	t.Parallel()
	g := newNet(t, sim.Options{}, job.ModeCreate, plainNet)
	vpc := g.peerNet(ownAccount, "us-east-1", "172.20.0.0/16", "data")
	g.ask(`{"networkId":%q}`, vpc)
	before := g.world.Snapshot()
	g.fault(sim.Fault{Kind: sim.FaultSwallow, Operation: "CreateNetworkAclEntry", Count: 2})
	g.create()
	if got := g.inbound(); !slices.Contains(got, "200 allow all from 172.20.0.0/16") {
		t.Errorf("the peer is not let in: %v", got)
	}
	g.asAsked()
	g.another()
	since := g.mark()
	g.create()
	if _, changes := g.calls(since); sum(changes) > 0 {
		t.Errorf("a second run changed %v", changes)
	}
	g.teardown()
	g.equal(before)
}

// The clients of a public network load balancer reach the VMs with their own
// addresses: the VMs' port is open to them while it is attached, and no longer.
func TestNetworkACLAdmitsClients(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lb   string
		open bool
	}{
		{`{"type":"tcp","scheme":"public","plainHTTP":true}`, true},
		{`{"type":"tcp","scheme":"internal"}`, false},
		{`{"type":"http","plainHTTP":true}`, false},
	} {
		t.Run(c.lb, func(t *testing.T) {
			t.Parallel()
			const rule = "300 allow tcp 80 from 0.0.0.0/0"
			g := newVMs(t, sim.Options{}, fixedSpec)
			g.create()
			bare := g.inbound()
			for range 2 {
				g.job.Config.Spec = json.RawMessage(strings.TrimSuffix(fixedSpec, "}") + `,"loadBalancer":` + c.lb + `}`)
				g.another()
				g.must(job.PhaseUpdate, job.AttachLB)
				if got := g.inbound(); slices.Contains(got, rule) != c.open {
					t.Errorf("attached: %v", got)
				}
				for _, row := range g.infra().Report {
					if row.ID == "NETA-07" && !row.Met {
						t.Errorf("control %+v", row)
					}
				}
				g.asAsked()
				g.another()
				g.must(job.PhaseUpdate, job.DetachLB)
				if d := cmp.Diff(bare, g.inbound()); d != "" {
					t.Errorf("detached: %s", d)
				}
			}
			g.asAsked()
		})
	}
}

// In a network that exists the network ACLs are somebody else's: one that keeps a
// public network load balancer's clients out is named before anything is made.
func TestClientsThatANetworkACLKeepsOut(t *testing.T) {
	t.Parallel()
	g := freshRig(t, job.ModeCreateInExisting, existingPlaceholder)
	ctx := anything(t.Context())
	n := g.theirs(ctx)
	g.name(n, `{"type":"tcp","scheme":"public","plainHTTP":true}`, n.privateA, n.privateB, n.publicA, n.publicB)
	if got := g.checks(pipeline.Plan); has(got, cloud.CheckWarning, "load balancer's clients") {
		t.Errorf("the default network ACL lets everybody in:\n%s", show(got))
	}
	g.another()
	out, err := g.p.ec2.DescribeNetworkAcls(ctx, &ec2.DescribeNetworkAclsInput{})
	if err != nil {
		t.Fatal(err)
	}
	acl, err := g.p.ec2.CreateNetworkAcl(ctx, &ec2.CreateNetworkAclInput{VpcId: &n.vpc})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range innerRules([]string{"10.90.0.0/16"}, nil) {
		if err := g.p.setRule(ctx, acl.NetworkAcl.NetworkAclId, x, false); err != nil {
			t.Fatal(err)
		}
	}
	g.invoke("ec2", "ReplaceNetworkAclAssociation", map[string]any{"AssociationId": associations(out.NetworkAcls...)[n.privateB], "NetworkAclId": *acl.NetworkAcl.NetworkAclId})
	for _, c := range []struct {
		lb    string
		warns bool
	}{
		{`{"type":"tcp","scheme":"public","plainHTTP":true}`, true},
		{`{"type":"tcp","scheme":"public","plainHTTP":true,"port":8080}`, false},
		{`{"plainHTTP":true}`, false},
	} {
		g.name(n, c.lb, n.privateA, n.privateB, n.publicA, n.publicB)
		g.another()
		if got := g.checks(pipeline.Plan); has(got, cloud.CheckWarning, n.privateB, "TCP port 80") != c.warns {
			t.Errorf("%s: got\n%s", c.lb, show(got))
		}
	}
}

// A network ACL that is lost, or changes that are, are made again.
func TestNetworkACLFaults(t *testing.T) {
	t.Parallel()
	for _, f := range []sim.Fault{
		{Kind: sim.FaultSwallow, Operation: "CreateNetworkAclEntry", Count: 3},
		{Kind: sim.FaultSwallow, Operation: "ReplaceNetworkAclAssociation"},
		{Kind: sim.FaultLostReply, Operation: "CreateNetworkAcl"},
		{Kind: sim.FaultLostReply, Operation: "CreateNetworkAclEntry", Count: 2},
		{Kind: sim.FaultLostReply, Operation: "ReplaceNetworkAclAssociation", Count: 2},
	} {
		t.Run(fmt.Sprint(f.Kind, " ", f.Operation), func(t *testing.T) {
			t.Parallel()
			g := newNet(t, sim.Options{ConsistencyByID: 10 * time.Second, ConsistencyByList: 20 * time.Second}, job.ModeCreate, plainNet)
			before := g.world.Snapshot()
			g.fault(f)
			g.create()
			g.hit()
			g.asAsked()
			g.teardown()
			g.equal(before)
		})
	}
}

// User data is looked through as a VM reads it, packed or not.
func TestCredentialsInUserData(t *testing.T) {
	t.Parallel()
	const secret = "export DB_PASSWORD=hunter2hunter2\n"
	long := "#!/bin/sh\n" + strings.Repeat("# a line that says little, many times over\n", 600)
	clean, packed, err := bootstrap.UserData(bootstrap.Options{Cloud: bootstrap.CloudAWS, OS: bootstrap.OSUbuntu, Extra: long})
	if err != nil || !packed {
		t.Fatalf("packed %v, %v", packed, err)
	}
	for _, c := range []struct {
		name, data string
		met        bool
	}{
		{"packed", string(clean), true},
		{"plain", "#cloud-config\nwrite_files:\n- path: /x\n  content: |\n    " + secret, false},
		{"a file in base64", "#cloud-config\nwrite_files:\n- path: /x\n  encoding: b64\n  content: " + base64.StdEncoding.EncodeToString([]byte(secret)) + "\n", false},
	} {
		report := controls{}
		report.userData(aws.String(base64.StdEncoding.EncodeToString([]byte(c.data))))
		if len(report.rows) != 1 || report.rows[0].ID != "VMA-08" || report.rows[0].Met != c.met || strings.Contains(report.rows[0].Seen, "hunter2") {
			t.Errorf("%s: %+v", c.name, report.rows)
		}
	}
}
