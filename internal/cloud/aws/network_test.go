package aws

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

const plainSpec = `{"pool":{"count":2}}`

func TestNetworkAndIdentity(t *testing.T) {
	for _, c := range []struct {
		name, spec string
		changes    map[string]int
	}{
		{"single NAT", plainSpec, map[string]int{
			"CreateVpc": 1, "ModifyVpcAttribute": 1, "RevokeSecurityGroupIngress": 1, "RevokeSecurityGroupEgress": 1,
			"AllocateAddress": 1, "CreateSubnet": 4, "CreateInternetGateway": 1, "AttachInternetGateway": 1,
			"CreateNatGateway": 1, "CreateRouteTable": 2, "CreateRoute": 2, "AssociateRouteTable": 4,
			"CreateRole": 2, "AttachRolePolicy": 1, "CreateInstanceProfile": 1, "AddRoleToInstanceProfile": 1,
			"CreateLogGroup": 1, "PutRetentionPolicy": 1, "PutRolePolicy": 1, "CreateFlowLogs": 1, "CreateVpcEndpoint": 2,
			"CreateNetworkAcl": 1, "CreateNetworkAclEntry": 7, "ReplaceNetworkAclAssociation": 2,
		}},
		{"a NAT in each zone", `{"pool":{"count":2},"network":{"nat":"per_zone","cidr":"10.50.0.0/20"}}`, map[string]int{
			"CreateVpc": 1, "ModifyVpcAttribute": 1, "RevokeSecurityGroupIngress": 1, "RevokeSecurityGroupEgress": 1,
			"AllocateAddress": 2, "CreateSubnet": 4, "CreateInternetGateway": 1, "AttachInternetGateway": 1,
			"CreateNatGateway": 2, "CreateRouteTable": 3, "CreateRoute": 3, "AssociateRouteTable": 4,
			"CreateRole": 2, "AttachRolePolicy": 1, "CreateInstanceProfile": 1, "AddRoleToInstanceProfile": 1,
			"CreateLogGroup": 1, "PutRetentionPolicy": 1, "PutRolePolicy": 1, "CreateFlowLogs": 1, "CreateVpcEndpoint": 2,
			"CreateNetworkAcl": 1, "CreateNetworkAclEntry": 7, "ReplaceNetworkAclAssociation": 2,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := newRig(t, sim.Options{}, job.ModeCreate, c.spec)
			before := g.world.Snapshot()
			g.up()
			reads, changes := g.calls(0)
			if d := cmp.Diff(c.changes, changes); d != "" {
				t.Errorf("more or less was changed than needed:\n%s", d)
			}
			t.Logf("create: %d changes, %d reads %v", sum(changes), sum(reads), reads)
			if n := sum(reads); n > 80 {
				t.Errorf("%d reads: %v", n, reads)
			}
			ic := g.job.Config.InfraConfig
			if len(ic.PrivateSubnetIDs) != 2 || len(ic.PublicSubnetIDs) != 2 || len(ic.EgressIPs) != len(ic.NATGatewayIDs) || ic.InstanceProfileARN == "" || ic.EgressIPs[0] == "" {
				t.Errorf("what was learned: %+v", ic)
			}
			if d := g.drift(); len(d) > 0 {
				t.Errorf("drift at once: %v", d)
			}

			// Another worker, from the start: nothing is changed, and little is read.
			since := g.mark()
			g.another()
			g.up()
			reads, changes = g.calls(since)
			if sum(changes) > 0 {
				t.Errorf("a second run changed %v", changes)
			}
			t.Logf("again: %d reads %v", sum(reads), reads)
			if n := sum(reads); n > 22 {
				t.Errorf("a second run read %d times: %v", n, reads)
			}
			since = g.mark()
			g.down()
			reads, changes = g.calls(since)
			t.Logf("down: %d changes, %d reads %v", sum(changes), sum(reads), reads)
			g.equal(before)
		})
	}
}
