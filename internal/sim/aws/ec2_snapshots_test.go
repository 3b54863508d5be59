package aws

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// Sequences recorded at the real EC2 (testdata, see the provenance fields), repeated step by step. The names of the steps are
// those of the recording.
func TestRecordedSequences(t *testing.T) {
	var rec struct {
		Snapshots []struct {
			Test    string
			Content map[string]any
		}
	}
	readRecording(t, "ec2/localstack.json", &rec)
	play := map[string]func(ctx context.Context, l *lab) map[string]any{
		"test_create_route_table_association":      playRouteTable,
		"test_vcp_peering_difference_regions":      playPeering,
		"test_get_security_groups_for_vpc":         playGroupsForVpc,
		"test_describe_availability_zones_filters": playZones,
	}
	for _, snap := range rec.Snapshots {
		name := snap.Test[strings.LastIndex(snap.Test, ":")+1:]
		t.Run(name, func(t *testing.T) {
			f := play[name]
			if f == nil {
				t.Fatal("nobody plays this recording")
			}
			for step, answer := range f(context.Background(), newLab(t, atOnce)) {
				want, got := map[string]bool{}, map[string]bool{}
				recorded, ok := snap.Content[step]
				if !ok {
					t.Fatalf("the recording has no step %s", step)
				}
				paths(recorded, "", want)
				var doc any = document(t, answer)
				if step == "route_tables" { // recorded without the answer around it
					doc = doc.(map[string]any)["RouteTables"]
				}
				paths(doc, "", got)
				if len(want) == 0 {
					t.Fatalf("step %s has nothing to compare", step)
				}
				for _, p := range sortedKeys(want) {
					if !got[p] {
						t.Errorf("step %s: the real answer has%s, the simulated one has not", step, p)
					}
				}
			}
		})
	}
}

func playRouteTable(ctx context.Context, l *lab) map[string]any {
	v := ok(l.newVpc(ctx))
	s := *ok(l.client.CreateSubnet(ctx, &ec2.CreateSubnetInput{VpcId: &v, CidrBlock: new("10.0.1.0/24")})).Subnet.SubnetId
	table := *ok(l.client.CreateRouteTable(ctx, &ec2.CreateRouteTableInput{VpcId: &v})).RouteTable.RouteTableId
	a := *ok(l.client.AssociateRouteTable(ctx, &ec2.AssociateRouteTableInput{RouteTableId: &table, SubnetId: &s})).AssociationId
	return map[string]any{"route_tables": ok(l.client.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{
		Filters: []types.Filter{{Name: new("association.route-table-association-id"), Values: []string{a}}}}))}
}

func playPeering(ctx context.Context, l *lab) map[string]any {
	far := l.as("test", "eu-west-1")
	one := *ok(l.client.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: new("192.168.1.0/24")})).Vpc.VpcId
	two := *ok(far.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: new("192.168.2.0/24")})).Vpc.VpcId
	id := *ok(l.client.CreateVpcPeeringConnection(ctx, &ec2.CreateVpcPeeringConnectionInput{VpcId: &one, PeerVpcId: &two, PeerRegion: new("eu-west-1")})).VpcPeeringConnection.VpcPeeringConnectionId
	l.step(5 * time.Second)
	look := &ec2.DescribeVpcPeeringConnectionsInput{VpcPeeringConnectionIds: []string{id}}
	out := map[string]any{"pending-acceptance": ok(far.DescribeVpcPeeringConnections(ctx, look))}
	ok(far.AcceptVpcPeeringConnection(ctx, &ec2.AcceptVpcPeeringConnectionInput{VpcPeeringConnectionId: &id}))
	l.step(5 * time.Second)
	out["requester-peer"] = ok(l.client.DescribeVpcPeeringConnections(ctx, look))
	out["accepter-peer"] = ok(far.DescribeVpcPeeringConnections(ctx, look))
	return out
}

func playGroupsForVpc(ctx context.Context, l *lab) map[string]any {
	out := map[string]any{}
	made := ok(l.client.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: new("10.0.0.0/16"), TagSpecifications: tagSpecs("vpc", "test-key", "test-value")}))
	out["create_vpc_response"] = made
	in := &ec2.GetSecurityGroupsForVpcInput{VpcId: made.Vpc.VpcId}
	out["get_security_groups_for_vpc"] = ok(l.client.GetSecurityGroupsForVpc(ctx, in))
	out["create_security_group"] = ok(l.client.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{VpcId: made.Vpc.VpcId, GroupName: new("g"), Description: new("d")}))
	out["get_security_groups_for_vpc_after_addition"] = ok(l.client.GetSecurityGroupsForVpc(ctx, in))
	return out
}

func playZones(ctx context.Context, l *lab) map[string]any {
	return map[string]any{"availability_zones": ok(l.client.DescribeAvailabilityZones(ctx, &ec2.DescribeAvailabilityZonesInput{
		Filters: []types.Filter{{Name: new("zone-name"), Values: []string{"us-east-1a"}}}}))}
}
