package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

// made takes a job through its create and returns the rig and the account as
// it was before.
func made(t *testing.T, spec string, setup ...func(*rig)) (*rig, sim.Snapshot) {
	t.Helper()
	t.Parallel()
	r := newRig(t, sim.Options{Seed: 31})
	for _, f := range setup {
		f(r)
	}
	r.world.Step(3 * time.Minute)
	before := r.world.Snapshot()
	r.start()
	r.vm("shop-prod", spec)
	r.await(job.Completed)
	return r, before
}

// What somebody else put in the way of a teardown is named and not touched; once
// it is gone, the teardown goes on by itself.
func TestForeignBlockers(t *testing.T) {
	for _, c := range []struct {
		name   string
		place  func(r *rig, j *job.Job) (id string, also []string)
		remove string // the operation
		param  string
	}{
		{"E7 a group of theirs refers to ours", func(r *rig, j *job.Job) (string, []string) {
			id := pick(r.theirs("ec2", "CreateSecurityGroup", map[string]any{"GroupName": "theirs", "GroupDescription": "theirs", "VpcId": j.Config.InfraConfig.NetworkID}), "groupId")
			r.theirs("ec2", "AuthorizeSecurityGroupIngress", map[string]any{"GroupId": id, "IpPermissions": []any{map[string]any{
				"IpProtocol": "tcp", "FromPort": 80, "ToPort": 80, "Groups": []any{map[string]any{"GroupId": j.Config.InfraConfig.VMSecurityGroupID}}}}})
			return id, []string{"theirs"}
		}, "DeleteSecurityGroup", "GroupId"},
		{"E a subnet of theirs in our VPC", func(r *rig, j *job.Job) (string, []string) {
			return pick(r.theirs("ec2", "CreateSubnet", map[string]any{"VpcId": j.Config.InfraConfig.NetworkID, "CidrBlock": "10.40.250.0/24"}), "subnet", "subnetId"), nil
		}, "DeleteSubnet", "SubnetId"},
		{"E an interface of theirs in our subnet", func(r *rig, j *job.Job) (string, []string) {
			return pick(r.theirs("ec2", "CreateNetworkInterface", map[string]any{"SubnetId": j.Config.InfraConfig.PrivateSubnetIDs[0], "Description": "their appliance"}), "networkInterface", "networkInterfaceId"), []string{"their appliance"}
		}, "DeleteNetworkInterface", "NetworkInterfaceId"},
		{"E a route table of theirs", func(r *rig, j *job.Job) (string, []string) {
			return pick(r.theirs("ec2", "CreateRouteTable", map[string]any{"VpcId": j.Config.InfraConfig.NetworkID}), "routeTable", "routeTableId"), nil
		}, "DeleteRouteTable", "RouteTableId"},
		{"E an instance of theirs in our subnet", func(r *rig, j *job.Job) (string, []string) {
			return pick(r.theirs("ec2", "RunInstances", map[string]any{"SubnetId": j.Config.InfraConfig.PrivateSubnetIDs[0], "ImageId": j.Config.InfraConfig.ImageID,
				"InstanceType": "t3.micro", "MinCount": 1, "MaxCount": 1}), "instancesSet", "instanceId"), []string{"move or terminate that instance"}
		}, "TerminateInstances", "InstanceId"},
		{"E an endpoint of theirs in our VPC", func(r *rig, j *job.Job) (string, []string) {
			return pick(r.theirs("ec2", "CreateVpcEndpoint", map[string]any{"VpcId": j.Config.InfraConfig.NetworkID, "ServiceName": "com.amazonaws.us-east-1.s3"}), "vpcEndpoint", "vpcEndpointId"), []string{"s3"}
		}, "DeleteVpcEndpoints", "VpcEndpointId"},
		{"E a policy of theirs in our role", func(r *rig, j *job.Job) (string, []string) {
			r.theirs("iam", "PutRolePolicy", map[string]any{"RoleName": j.Config.InfraConfig.RoleName, "PolicyName": "theirs-by-hand", "PolicyDocument": `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"s3:ListAllMyBuckets","Resource":"*"}]}`})
			return "theirs-by-hand", nil
		}, "DeleteRolePolicy", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, before := made(t, plain)
			j := r.get()
			id, also := c.place(r, j)
			if id == "" {
				t.Fatal("nothing was placed")
			}
			since := r.lastEntry()
			r.move(job.Delete, "")
			if c.param == "" { // what hangs on an object of ours goes with it
				r.await(job.Cancelled)
				r.checkGone(t, before)
				return
			}
			r.waitsFor(append(also, id)...)
			r.untouched(since, id)
			var named any = id
			if strings.HasSuffix(c.remove, "s") {
				named = []any{id}
			}
			r.theirs("ec2", c.remove, map[string]any{c.param: named})
			r.await(job.Cancelled)
			r.checkGone(t, before)
		})
	}
}

// E: a blocker that stays ends the teardown with its name, and a retry goes on.
func TestBlockerThatStays(t *testing.T) {
	r, before := made(t, plain)
	j := r.get()
	subnet := pick(r.theirs("ec2", "CreateSubnet", map[string]any{"VpcId": j.Config.InfraConfig.NetworkID, "CidrBlock": "10.40.250.0/24"}), "subnet", "subnetId")
	r.move(job.Delete, "")
	r.stopped("blocked", "stepCreateNetwork", subnet, j.Config.InfraConfig.NetworkID)
	if n := len(r.objects()); n != 1 {
		t.Errorf("%d objects are left in the ledger, not the VPC alone", n)
	}
	r.theirs("ec2", "DeleteSubnet", map[string]any{"SubnetId": subnet})
	r.move(job.Retry, "")
	r.await(job.Cancelled)
	r.checkGone(t, before)
}

// K7: somebody protects a VM of ours: it is named, nothing protected is forced,
// and the teardown goes on once that is lifted.
func TestProtectedByOthers(t *testing.T) {
	r, before := made(t, plain)
	vm := r.object("ec2:instance", "vm-1")
	r.theirs("ec2", "ModifyInstanceAttribute", map[string]any{"InstanceId": vm, "DisableApiTermination": map[string]any{"Value": true}})
	r.move(job.Delete, "")
	r.stopped("protected", "stepCreateVMs", vm, "protection")
	r.object("ec2:instance", "vm-1")
	r.theirs("ec2", "ModifyInstanceAttribute", map[string]any{"InstanceId": vm, "DisableApiTermination": map[string]any{"Value": false}})
	r.move(job.Retry, "")
	r.await(job.Cancelled)
	r.checkGone(t, before)
}

// E1: an interface of ours that nothing uses any more goes with its subnet.
func TestDetachedInterfacesOfOurs(t *testing.T) {
	r, before := made(t, plain)
	subnet := r.get().Config.InfraConfig.PrivateSubnetIDs[0]
	for range 2 {
		r.theirs("ec2", "CreateNetworkInterface", map[string]any{"SubnetId": subnet, "TagSpecification": []any{map[string]any{
			"ResourceType": "network-interface", "Tag": []any{map[string]any{"Key": job.MarkOwner, "Value": r.jobID}}}}})
	}
	r.move(job.Delete, "")
	r.await(job.Cancelled)
	r.checkGone(t, before)
}

// E5: an interface that a service keeps for 45 minutes is waited for, named, and
// a restart of the worker does not end the wait.
func TestInterfaceThatLingers(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Seed: 32})
	before := r.world.Snapshot()
	w := r.start()
	r.vm("shop-prod", plain)
	j := r.await(job.Completed)
	eni := pick(r.theirs("ec2", "CreateNetworkInterface", map[string]any{"SubnetId": j.Config.InfraConfig.PrivateSubnetIDs[0]}), "networkInterface", "networkInterfaceId")
	r.meddle("set", eni, map[string]any{"set": map[string]any{"RequesterManaged": true, "Status": "in-use",
		"Attachment": map[string]any{"ID": "ela-attach-1", "InstanceOwnerID": "amazon-aws", "Status": "attached", "DeviceIndex": 1}}})
	r.fault(`{"kind":"transition","match":"` + eni + `","state":"deleted","seconds":2700}`)
	r.move(job.Delete, "")
	r.waitsFor(eni)
	time.Sleep(3 * time.Second) // a quarter of an hour of the cloud's
	_ = w.kill()                // the error is for calls of the worker's own
	r.start()
	r.waitsFor(eni)
	r.await(job.Cancelled)
	r.checkGone(t, before)
}

// What somebody did to our objects by hand is shown by a verify, and is no
// hindrance to a teardown.
func TestMeddledWith(t *testing.T) {
	shown := func(parts ...string) func(*rig) {
		return func(r *rig) {
			r.t.Helper()
			var all strings.Builder
			for _, d := range r.drift() {
				all.WriteString(d.Kind + " " + d.Key + " " + d.Attr + " " + d.Seen + "\n")
			}
			for _, p := range parts {
				if !strings.Contains(all.String(), p) {
					r.t.Errorf("verify does not show %q: %s", p, all.String())
				}
			}
		}
	}
	remove := func(kind, key string) func(*rig) {
		return func(r *rig) { r.meddle("delete", r.object(kind, key), nil) }
	}
	for _, c := range []struct {
		name  string
		spec  string
		setup func(*rig)
		do    func(*rig)
		drift func(*rig)
	}{
		{"a load balancer is deleted", fixedLB, nil, remove("elbv2:load-balancer", "lb"), shown("elbv2:load-balancer lb exists no")},
		{"a launch template is deleted", plain, nil, remove("ec2:launch-template", "vm"), shown("ec2:launch-template vm exists no")},
		{"a VM is deleted", plain, nil, remove("ec2:instance", "vm-2"), shown("ec2:instance vm-2 exists no")},
		{"a VM is stopped", plain, nil, func(r *rig) { r.meddle("state", r.object("ec2:instance", "vm-1"), map[string]any{"state": "stopped"}) }, shown("vm-1", "stopped")},
		{"a scaling group is deleted", asgLB, nil, remove("autoscaling:group", "asg"), shown("autoscaling:group asg exists no")},
		{"a target group and its listener are deleted", fixedLB, nil, func(r *rig) {
			remove("elbv2:listener", "http")(r)
			remove("elbv2:target-group", "tg")(r)
		}, shown("elbv2:target-group tg exists no", "elbv2:listener http exists no")},
		{"a NAT gateway and its route are deleted", plain, nil, remove("ec2:nat-gateway", "nat-a"), shown("ec2:nat-gateway nat-a exists no")},
		{"a NAT gateway goes failed", plain, nil, func(r *rig) {
			r.meddle("state", r.object("ec2:nat-gateway", "nat-a"), map[string]any{"state": "failed", "code": "Resource.Gone", "message": "it went"})
		}, shown("nat-a")},
		{"the DNS zone is deleted", dns, zoneOf("example.test"), func(r *rig) { r.meddle("delete", r.get().Config.InfraConfig.DNSZoneID, nil) }, nil},
		{"the record is deleted", dns, zoneOf("example.test"), func(r *rig) {
			for _, o := range r.world.Objects(sim.ObjectFilter{Kind: "record"}) {
				if strings.HasPrefix(o.Name, "shop.example.test") {
					r.meddle("delete", o.ID, nil)
				}
			}
		}, shown("route53:record alias exists no")},
		{"the role is emptied", plain, nil, func(r *rig) {
			role := r.get().Config.InfraConfig.RoleName
			r.theirs("iam", "DetachRolePolicy", map[string]any{"RoleName": role, "PolicyArn": "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"})
		}, shown("iam:role")},
		{"the whole VPC is deleted", plain, nil, func(r *rig) {
			for _, o := range r.objects() {
				if strings.HasPrefix(o.Kind, "ec2:") && o.Kind != "ec2:vpc" {
					r.meddle("delete", o.ID, nil)
				}
			}
			remove("ec2:vpc", "vpc")(r)
		}, shown("ec2:vpc vpc exists no")},
		{"the marks are taken off", plain, nil, func(r *rig) {
			var ids []any
			for _, o := range r.objects() {
				if strings.HasPrefix(o.Kind, "ec2:") {
					ids = append(ids, o.ID)
				}
			}
			r.theirs("ec2", "DeleteTags", map[string]any{"ResourceId": ids})
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var setup []func(*rig)
			if c.setup != nil {
				setup = append(setup, c.setup)
			}
			r, before := made(t, c.spec, setup...)
			c.do(r)
			r.world.Step(time.Minute)
			if c.drift != nil {
				since := r.lastEntry()
				c.drift(r)
				if m := r.mutating(since); len(m) > 0 {
					t.Errorf("verify changed something: %+v", m)
				}
			}
			r.move(job.Delete, "")
			r.await(job.Cancelled)
			if c.name == "the DNS zone is deleted" {
				for k := range before {
					if strings.Contains(k, "/route53/") {
						delete(before, k)
					}
				}
			}
			r.checkGone(t, before)
		})
	}
}
