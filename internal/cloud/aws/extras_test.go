package aws

import (
	"testing"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

// Where the cloud does not have what makes a network safer, the job says so and
// goes on; teardown does not trip over it.
func TestWhatIsNotOfferedIsLeftOut(t *testing.T) {
	t.Parallel()
	for name, operations := range map[string][]string{
		"flow logs":       {"CreateFlowLogs", "DescribeFlowLogs", "DeleteFlowLogs"},
		"CloudWatch Logs": {"CreateLogGroup", "DescribeLogGroups", "ListTagsForResource"},
		"network ACLs":    {"CreateNetworkAcl", "DescribeNetworkAcls", "DeleteNetworkAcl"},
		"endpoints":       {"CreateVpcEndpoint", "DescribeVpcEndpoints", "DeleteVpcEndpoints"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newNet(t, sim.Options{}, job.ModeCreate, plainNet)
			before := g.world.Snapshot()
			for _, op := range operations {
				g.fault(sim.Fault{Kind: sim.FaultRaw, Operation: op, Status: 501, Body: "not here", ContentType: "text/plain", Count: -1})
			}
			g.all(false, g.netSteps()...)
			if _, changes := g.calls(0); changes["CreateNatGateway"] != 2 {
				t.Errorf("the network was not made: %v", changes)
			}
			g.all(true, g.netGone()...)
			g.equal(before)
		})
	}
}
