package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

const (
	ourID   = "job_0198a5c2d3e47f10a1b2c3d4e5f60718"
	trusted = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`
)

// named gives the job a known ID, so that the names it will derive are known before.
func named(j *job.Job) { j.ID = ourID }

func ourName(use string, max int) string {
	return (&job.Job{ID: ourID, Name: "shop-prod"}).ResourceName(use, max)
}

// theirNetwork is a network of somebody else's: a VPC with two private subnets
// behind a NAT gateway and two public ones.
func (r *rig) theirNetwork() (vpc string, private, public []string) {
	r.t.Helper()
	vpc = pick(r.theirs("ec2", "CreateVpc", map[string]any{"CidrBlock": "10.90.0.0/16"}), "vpc", "vpcId")
	gateway := pick(r.theirs("ec2", "CreateInternetGateway", nil), "internetGateway", "internetGatewayId")
	r.theirs("ec2", "AttachInternetGateway", map[string]any{"InternetGatewayId": gateway, "VpcId": vpc})
	for i, zone := range []string{"b", "c"} {
		for k, to := range []*[]string{&private, &public} {
			out := r.theirs("ec2", "CreateSubnet", map[string]any{"VpcId": vpc, "CidrBlock": fmt.Sprintf("10.90.%d.0/24", 10*k+i), "AvailabilityZone": region + zone})
			*to = append(*to, pick(out, "subnet", "subnetId"))
		}
	}
	ip := pick(r.theirs("ec2", "AllocateAddress", map[string]any{"Domain": "vpc"}), "allocationId")
	nat := pick(r.theirs("ec2", "CreateNatGateway", map[string]any{"SubnetId": public[0], "AllocationId": ip}), "natGateway", "natGatewayId")
	for i, subnets := range [][]string{private, public} {
		table := pick(r.theirs("ec2", "CreateRouteTable", map[string]any{"VpcId": vpc}), "routeTable", "routeTableId")
		route := map[string]any{"RouteTableId": table, "DestinationCidrBlock": "0.0.0.0/0", "NatGatewayId": nat}
		if i == 1 {
			delete(route, "NatGatewayId")
			route["GatewayId"] = gateway
		}
		r.theirs("ec2", "CreateRoute", route)
		for _, s := range subnets {
			r.theirs("ec2", "AssociateRouteTable", map[string]any{"RouteTableId": table, "SubnetId": s})
		}
	}
	r.world.Step(3 * time.Minute)
	return vpc, private, public
}

// A namesake that does not carry our mark is somebody else's: it is named, and
// neither the create nor the teardown touches it (B5).
func TestForeignNamesakes(t *testing.T) {
	role := func(r *rig) {
		r.theirs("iam", "CreateRole", map[string]any{"RoleName": ourName("vm", 64), "AssumeRolePolicyDocument": trusted})
	}
	runAll(t, []failure{
		{id: "B5 a role", job: named, setup: role, code: "name-taken", step: "stepCreateIAM", says: []string{ourName("vm", 64)}},
		{id: "B5 a launch template", job: named, setup: func(r *rig) {
			r.theirs("ec2", "CreateLaunchTemplate", map[string]any{"LaunchTemplateName": ourName("vm", 128), "LaunchTemplateData": map[string]any{"InstanceType": "t3.micro"}})
		}, code: "name-taken", step: "stepCreateLaunchTemplate", says: []string{ourName("vm", 128)}},
		{id: "B5 a target group", job: named, setup: func(r *rig) {
			vpc, _, _ := r.theirNetwork()
			r.theirs("elasticloadbalancing", "CreateTargetGroup", map[string]any{"Name": ourName("tg", 32), "Protocol": "HTTP", "Port": 80, "VpcId": vpc})
		}, code: "name-taken", step: "stepCreateTargetGroup", says: []string{ourName("tg", 32)}},
		{id: "B5 a load balancer", job: named, setup: func(r *rig) {
			_, private, _ := r.theirNetwork()
			r.theirs("elasticloadbalancing", "CreateLoadBalancer", map[string]any{"Name": ourName("lb", 32), "Type": "network", "Scheme": "internal", "Subnets": private})
		}, code: "name-taken", step: "stepCreateLoadBalancer", says: []string{ourName("lb", 32)}},
		{id: "B5 a record", spec: dns, setup: func(r *rig) { r.theirRecord("shop.example.test", "203.0.113.7") }, code: "invalid", step: "stepValidate", says: []string{"shop.example.test", "dns"}},
		{id: "B5 a scaling group", spec: asgLB, job: named, setup: func(r *rig) {
			_, private, _ := r.theirNetwork()
			t := pick(r.theirs("ec2", "CreateLaunchTemplate", map[string]any{"LaunchTemplateName": "theirs", "LaunchTemplateData": map[string]any{"InstanceType": "t3.micro", "ImageId": "ami-000174248b1774876"}}), "launchTemplate", "launchTemplateId")
			r.theirs("autoscaling", "CreateAutoScalingGroup", map[string]any{"AutoScalingGroupName": ourName("asg", 255), "MinSize": 0, "MaxSize": 0, "VPCZoneIdentifier": private[0],
				"LaunchTemplate": map[string]any{"LaunchTemplateId": t, "Version": "1"}})
		}, code: "name-taken", step: "stepCreateVMs", says: []string{ourName("asg", 255)}},
	}, func(f *failure) { f.final, f.spare = true, true })
}

// theirRecord makes a zone example.test with a record in it.
func (r *rig) theirRecord(name, value string) (zone string) {
	r.t.Helper()
	zone = strings.TrimPrefix(pick(r.theirs("route53", "CreateHostedZone", map[string]any{"Name": "example.test", "CallerReference": "theirs"}), "HostedZone", "Id"), "/hostedzone/")
	r.changeRecord(zone, "UPSERT", name, value)
	return zone
}

func (r *rig) changeRecord(zone, action, name, value string) {
	r.t.Helper()
	r.theirs("route53", "ChangeResourceRecordSets", map[string]any{"HostedZoneId": zone, "ChangeBatch": map[string]any{"Changes": []any{map[string]any{
		"Action": action, "ResourceRecordSet": map[string]any{"Name": name, "Type": "A", "TTL": 60, "ResourceRecords": []any{map[string]any{"Value": value}}}}}}})
}

// F1, F2, F10: what a job is told to build in is a reference. Nothing of it is
// changed, up or down.
func TestNamedNetworkIsOnlyUsed(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Seed: 21})
	vpc, private, public := r.theirNetwork()
	before := r.world.Snapshot()
	since := r.lastEntry()
	r.start()
	spec := fmt.Sprintf(`{"pool":{"count":2},"loadBalancer":{"plainHTTP":true},"existing":{"networkId":%q,"subnetIds":["%s","%s"]}}`, vpc, strings.Join(private, `","`), strings.Join(public, `","`))
	r.vm("shop-prod", spec, func(j *job.Job) { j.Mode = job.ModeCreateInExisting })
	r.await(job.Completed)
	r.asAsked(t)
	r.move(job.Delete, "")
	r.await(job.Cancelled)
	r.checkGone(t, before)
	for _, e := range r.mutating(since) {
		for _, id := range append(append([]string{vpc}, private...), public...) {
			for _, res := range e.Resources {
				if res == id && !strings.HasPrefix(e.Operation, "Create") && e.Operation != "RunInstances" {
					t.Errorf("%s of theirs was named by %s", id, e.Operation)
				}
			}
		}
	}
}

// M13: private subnets without a way out are refused before anything is made.
func TestNamedSubnetsWithoutAWayOut(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Seed: 22})
	vpc := pick(r.theirs("ec2", "CreateVpc", map[string]any{"CidrBlock": "10.90.0.0/16"}), "vpc", "vpcId")
	subnet := pick(r.theirs("ec2", "CreateSubnet", map[string]any{"VpcId": vpc, "CidrBlock": "10.90.1.0/24", "AvailabilityZone": "us-east-1b"}), "subnet", "subnetId")
	r.world.Step(time.Minute)
	before := r.world.Snapshot()
	since := r.lastEntry()
	r.start()
	r.vm("shop-prod", fmt.Sprintf(`{"pool":{"count":1},"existing":{"networkId":%q,"subnetIds":[%q]}}`, vpc, subnet), func(j *job.Job) { j.Mode = job.ModeCreateInExisting })
	r.stopped("invalid", "stepValidate", subnet, "NAT gateway", "ssmmessages", "subnetIds")
	if m := r.mutating(since); len(m) > 0 {
		t.Errorf("something was made: %+v", m)
	}
	r.move(job.Delete, "")
	r.await(job.Cancelled)
	r.checkGone(t, before)
}

// F5: credentials that now belong to another account are refused before any
// call goes there.
func TestCredentialsOfAnotherAccount(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Seed: 23})
	before := r.world.Snapshot()
	w := r.start()
	r.vm("shop-prod", plain)
	r.until(func(j *job.Job) bool { return j.CurrentStep == "stepCreateIAM" }, "it never came to its identity")
	w.stop()
	<-w.done
	const other = "AKIAI44QH8DHBEXAMPLE"
	r.keys.Store(other)
	r.start()
	r.stopped("wrong-account", "", "111122223333", "123456789012")
	for _, e := range r.world.Books(sim.BookFilter{Caller: other}) {
		if e.Mutating || e.Operation != "GetCallerIdentity" {
			t.Errorf("%s went to the other account", e.Operation)
		}
	}
	r.keys.Store("AKIAIOSFODNN7EXAMPLE")
	for _, w := range []*worker{r.start()} { // with clients of its own
		defer w.stop()
	}
	r.move(job.Retry, "")
	twoVMs(r, r.await(job.Completed))
	r.asAsked(t)
	r.move(job.Delete, "")
	r.await(job.Cancelled)
	r.checkGone(t, before)
}
