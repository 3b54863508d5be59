package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

const (
	noReservations = `<DescribeInstancesResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><requestId>r</requestId><reservationSet/></DescribeInstancesResponse>`
	noTagsShown    = `<DescribeTagsResponse xmlns=\"http://elasticloadbalancing.amazonaws.com/doc/2015-12-01/\"><DescribeTagsResult><TagDescriptions/></DescribeTagsResult></DescribeTagsResponse>`
	badProfile     = `"code":"InvalidParameterValue","status":400,"message":"Value (x) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"`
	dns            = `{"pool":{"mode":"fixed","count":1},"loadBalancer":{"type":"http","plainHTTP":true,"dns":{"zone":"example.test","record":"shop"}}}`
)

// twoVMs demands that no VM was launched but the two that were asked for.
func twoVMs(r *rig, j *job.Job) {
	r.t.Helper()
	if n := r.live("instance"); n != 2 {
		r.t.Errorf("%d VMs carry the mark, not 2", n)
	}
	for _, vm := range j.Config.InfraConfig.VMs {
		if vm.InstanceID == "" || vm.State != job.VMReady {
			r.t.Errorf("VM %s has ID %q and is %s", vm.Name, vm.InstanceID, vm.State)
		}
	}
}

// launchedOnce demands besides that every instance that ever was still lives.
func launchedOnce(r *rig, j *job.Job) {
	r.t.Helper()
	twoVMs(r, j)
	launched(r, 2)
}

// launched demands that so many instances were ever launched, gone ones included.
func launched(r *rig, n int) {
	r.t.Helper()
	if all := r.world.Objects(sim.ObjectFilter{Owner: r.jobID, Kind: "instance", All: true}); len(all) != n {
		r.t.Errorf("%d instances were launched, not %d", len(all), n)
	}
}

func zoneOf(name string) func(*rig) {
	return func(r *rig) {
		r.theirs("route53", "CreateHostedZone", map[string]any{"Name": name, "CallerReference": "theirs-" + name})
	}
}

// What passes by itself ends well, with every object once.
func TestFailuresThatPass(t *testing.T) {
	runAll(t, []failure{
		{id: "A14 the first zone has no room, tokens hold", faults: []string{`RunInstances: {"kind":"capacity","match":"us-east-1b","count":-1}`}, spec: plain, done: launchedOnceOutside("us-east-1b")},
		{id: "D1 fresh instances do not exist", faults: []string{`{"kind":"error","operation":"DescribeInstances","code":"InvalidInstanceID.NotFound","status":400,"message":"The instance ID does not exist","count":3}`}, done: launchedOnce},
		{id: "D1 fresh instances are not listed", faults: []string{`RunInstances: {"kind":"hidden","match":"instance","seconds":40}`}, done: launchedOnce},
		{id: "D2 running VMs vanish from reads", faults: []string{`{"kind":"raw","operation":"DescribeInstances","status":200,"contentType":"text/xml","body":"` + noReservations + `","count":3,"after":2}`}, done: launchedOnce},
		{id: "D4 policies show late", world: sim.Options{ConsistencyByID: 15e9, ConsistencyByList: 15e9}, done: launchedOnce},
		{id: "D4 a policy is swallowed", faults: []string{`{"kind":"swallow","operation":"AttachRolePolicy"}`}, done: launchedOnce},
		{id: "D4 a role is not put into its profile", faults: []string{`{"kind":"swallow","operation":"AddRoleToInstanceProfile"}`}, done: launchedOnce},
		{id: "D5 the profile is invalid for 100 s", faults: []string{`RunInstances: {"kind":"error","operation":"RunInstances","seconds":100,` + badProfile + `}`}, done: launchedOnce},
		{id: "D5 the profile is invalid for a group", spec: asgLB, faults: []string{`CreateAutoScalingGroup: {"kind":"error","operation":"CreateAutoScalingGroup","code":"ValidationError","status":400,"message":"Invalid IamInstanceProfile: x","seconds":100}`}, done: twoVMs},
		{id: "D7 CreateTags finds nothing", faults: []string{`{"kind":"error","operation":"CreateTags","code":"InvalidVpcID.NotFound","status":400,"count":-1}`}, spare: true},
		{id: "E4 a load balancer lingers", down: []string{`DeleteSecurityGroup: {"kind":"error","operation":"DeleteSecurityGroup","code":"DependencyViolation","status":400,"message":"resource has a dependent object","seconds":90}`}},
		{id: "E8 releasing an address", down: []string{`{"kind":"error","operation":"ReleaseAddress","code":"AuthFailure","status":400,"message":"You do not have permission to access the specified resource.","count":2}`}},
		{id: "E11 a group refuses its deletion", spec: asgLB, down: []string{`DeleteAutoScalingGroup: {"kind":"error","operation":"DeleteAutoScalingGroup","code":"ScalingActivityInProgress","status":400,"message":"activities in progress","seconds":180}`}},
		{id: "E11 a delete is swallowed", down: []string{`{"kind":"swallow","operation":"TerminateInstances"}`, `{"kind":"swallow","operation":"DeleteLoadBalancer"}`, `{"kind":"swallow","operation":"DeleteNatGateway"}`}},
		{id: "E the replies of deletes are lost", down: []string{`{"kind":"lost_reply","operation":"Delete*","count":12}`, `{"kind":"lost_reply","operation":"ReleaseAddress"}`, `{"kind":"lost_reply","operation":"TerminateInstances","count":2}`}},
		{id: "F7 tags show late", faults: []string{`{"kind":"raw","service":"elasticloadbalancing","operation":"DescribeTags","status":200,"contentType":"text/xml","body":"` + noTagsShown + `","seconds":20}`,
			`{"kind":"lost_reply","operation":"CreateLoadBalancer"}`, `{"kind":"lost_reply","operation":"CreateTargetGroup"}`}, spare: true},
		{id: "F8 empty answers", faults: []string{`{"kind":"raw","status":200,"body":"","mutating":false,"count":12}`, `{"kind":"raw","status":200,"body":"","operation":"RunInstances"}`}, done: twoVMs},
		{id: "F8 web pages", faults: []string{`{"kind":"raw","status":403,"body":"<html>blocked by proxy</html>","contentType":"text/html","count":3,"after":10}`, `{"kind":"raw","status":502,"body":"<html>bad gateway</html>","contentType":"text/html","operation":"Create*","count":3}`}},
		{id: "G4 one zone has no room for two minutes", faults: []string{`RunInstances: {"kind":"capacity","service":"ec2","match":"us-east-1b","seconds":120}`}, done: launchedOnce},
		{id: "G4 no zone has room for two minutes", faults: []string{`RunInstances: {"kind":"capacity","service":"ec2","seconds":120}`}, done: launchedOnce},
		{id: "G4 a group finds room later", spec: asgLB, faults: []string{`CreateAutoScalingGroup: {"kind":"capacity","seconds":120}`}, done: twoVMs},
		{id: "H1 throttled, eight of ten", faults: []string{`{"kind":"throttle","percent":80,"seconds":300}`}, done: launchedOnce},
		{id: "H1 throttled, come again in two seconds", faults: []string{`{"kind":"throttle","service":"ec2","operation":"Create*","count":3,"retryAfter":"1"}`}},
		{id: "H2 a third of all calls fails", faults: []string{`{"kind":"error","code":"InternalError","status":500,"percent":30,"count":-1}`}, down: []string{`{"kind":"error","code":"InternalError","status":500,"percent":30,"count":-1}`}, done: launchedOnce},
		{id: "H 503 for half a minute", faults: []string{`{"kind":"error","code":"ServiceUnavailable","status":503,"seconds":30}`}, down: []string{`{"kind":"error","code":"ServiceUnavailable","status":503,"seconds":30}`}},
		{id: "H5 reads fail while deletes are waited for", down: []string{`{"kind":"error","mutating":false,"code":"ServiceUnavailable","status":503,"count":40}`}},
		{id: "H5 throttled reads are no absence", down: []string{`{"kind":"throttle","mutating":false,"percent":60,"count":120}`}},
		{id: "I1 credentials expire for a while", faults: []string{`{"kind":"error","code":"ExpiredToken","status":403,"message":"The security token included in the request is expired","after":30,"count":6}`}, down: []string{`{"kind":"error","code":"RequestExpired","status":400,"message":"Request has expired.","after":5,"count":4}`}, done: launchedOnce},
		{id: "I2 credentials are gone for ten minutes", faults: []string{`{"kind":"error","code":"ExpiredTokenException","status":400,"message":"expired","seconds":600}`}, done: launchedOnce},
		{id: "I7 creates time out and happen", faults: []string{`{"kind":"hang","mode":"after","seconds":0.2,"operation":"CreateLoadBalancer"}`, `{"kind":"hang","mode":"after","seconds":0.2,"operation":"CreateVpc"}`, `{"kind":"hang","mode":"after","seconds":0.2,"operation":"RunInstances"}`}, done: launchedOnce},
		{id: "I7 creates time out and do not happen", faults: []string{`{"kind":"hang","seconds":0.2,"operation":"CreateNatGateway"}`, `{"kind":"hang","seconds":0.2,"operation":"CreateRole"}`, `{"kind":"hang","seconds":0.2,"operation":"RunInstances"}`}, done: launchedOnce},
		{id: "I7 what was made shows half a minute later", world: sim.Options{ConsistencyByID: 30e9, ConsistencyByList: 30e9}, faults: []string{`{"kind":"lost_reply","operation":"Create*","count":14}`}},
		{id: "I7 launches are lost and shown late", world: sim.Options{ConsistencyByID: 30e9, ConsistencyByList: 45e9}, faults: []string{`{"kind":"lost_reply","operation":"RunInstances","count":2}`}, done: launchedOnce},
		{id: "J11 an association is swallowed", faults: []string{`{"kind":"swallow","operation":"AssociateRouteTable"}`, `{"kind":"swallow","operation":"CreateRoute"}`}},
		{id: "J an ingress rule is swallowed", faults: []string{`{"kind":"swallow","operation":"AuthorizeSecurityGroupIngress"}`}},
		{id: "J creates are swallowed", faults: []string{`{"kind":"swallow","operation":"CreateSubnet"}`, `{"kind":"swallow","operation":"AllocateAddress"}`, `{"kind":"swallow","operation":"CreateLaunchTemplate"}`}},
		{id: "J creates at the balancer are swallowed", faults: []string{`{"kind":"swallow","operation":"CreateTargetGroup"}`, `{"kind":"swallow","operation":"RegisterTargets"}`, `{"kind":"swallow","operation":"CreateListener"}`}},
		{id: "K1 the group's list lags", spec: asgLB, faults: []string{`{"kind":"hidden","match":"group-instance","seconds":60}`}, done: twoVMs},
		{id: "M4 cloud-init ends with recoverable errors", spec: plain, faults: []string{`{"kind":"guest","mode":"degraded","count":-1}`}, done: launchedOnce},
		{id: "M1 the package lock is held for two minutes", spec: plain, faults: []string{`{"kind":"guest","mode":"apt_lock","seconds":120,"count":-1}`}, done: launchedOnce},
		{id: "M10 agents register after 90 s", spec: plain, faults: []string{`{"kind":"guest","mode":"agent","seconds":90,"count":-1}`}, done: launchedOnce},
		{id: "P14 six minutes of refusals", faults: []string{`CreateRole: {"kind":"throttle","service":"iam","seconds":360}`}},
		{id: "Q1 ours is on a later page", world: sim.Options{PageSize: 2, EmptyPages: -1}, setup: crowd, done: launchedOnce},
		{id: "Q2 empty pages", world: sim.Options{PageSize: 2, EmptyPages: 0.6}, setup: crowd, done: launchedOnce},
		{id: "S4 errors while a load balancer is waited for", faults: []string{`{"kind":"error","operation":"DescribeLoadBalancers","code":"InternalFailure","status":500,"count":6,"after":2}`}},
		{id: "S5 every create loses its reply", faults: []string{`{"kind":"lost_reply","operation":"Create*","count":30}`, `{"kind":"lost_reply","operation":"RunInstances","count":2}`, `{"kind":"lost_reply","operation":"A*","count":20}`}, done: launchedOnce},
		{id: "L2 a public and a private zone of one name", spec: dns, setup: func(r *rig) {
			zoneOf("example.test")(r)
			vpc := pick(r.theirs("ec2", "CreateVpc", map[string]any{"CidrBlock": "10.90.0.0/16"}), "vpc", "vpcId")
			r.theirs("route53", "CreateHostedZone", map[string]any{"Name": "example.test", "CallerReference": "private", "VPC": map[string]any{"VPCId": vpc, "VPCRegion": region}})
		}, done: recordIn("example.test", false)},
		{id: "L4 a parent and a child zone", spec: strings.Replace(dns, `"shop"`, `"shop.int"`, 1), setup: func(r *rig) {
			zoneOf("example.test")(r)
			zoneOf("int.example.test")(r)
		}, done: recordIn("int.example.test", false)},
		{id: "K5 a group asks its load balancer", spec: asgLB, done: func(r *rig, _ *job.Job) {
			r.t.Helper()
			for _, o := range r.world.Objects(sim.ObjectFilter{Owner: r.jobID, Kind: "auto-scaling-group"}) {
				if data := fmt.Sprintf("%s", o.Data); !strings.Contains(data, `"ELB"`) {
					r.t.Errorf("the group does not ask the load balancer: %s", data)
				}
			}
		}},
		{id: "L a record's reply is lost", spec: dns, setup: zoneOf("example.test"), faults: []string{`{"kind":"lost_reply","operation":"ChangeResourceRecordSets"}`}, down: []string{`{"kind":"lost_reply","operation":"ChangeResourceRecordSets"}`}},
		{id: "L a record is swallowed", spec: dns, setup: zoneOf("example.test"), faults: []string{`{"kind":"swallow","operation":"ChangeResourceRecordSets"}`}, down: []string{`{"kind":"error","operation":"ChangeResourceRecordSets","code":"PriorRequestNotComplete","status":400,"count":4}`}},
	})
}

// K2: a boot that takes five minutes is no reason for a group to replace its VM.
func TestSlowBootIsNoLoop(t *testing.T) {
	failure{alone: true, id: "K2 a boot of five minutes", spec: strings.Replace(asgLB, `"desired":2`, `"desired":1`, 1), faults: []string{`{"kind":"guest","mode":"slow","seconds":300,"count":-1}`}, done: func(r *rig, _ *job.Job) { launched(r, 1) }}.run(t)
}

func launchedOnceOutside(zone string) func(*rig, *job.Job) {
	return func(r *rig, j *job.Job) {
		r.t.Helper()
		launchedOnce(r, j)
		for _, vm := range j.Config.InfraConfig.VMs {
			if vm.Zone == zone {
				r.t.Errorf("VM %s is said to be in %s, which had no room", vm.Name, zone)
			}
		}
	}
}

// recordIn demands that the job's record is in the zone of a name and kind.
func recordIn(name string, private bool) func(*rig, *job.Job) {
	return func(r *rig, j *job.Job) {
		r.t.Helper()
		var zone struct{ HostedZone map[string]any }
		b, err := json.Marshal(r.theirs("route53", "GetHostedZone", map[string]any{"Id": j.Config.InfraConfig.DNSZoneID}))
		if err != nil || json.Unmarshal(b, &zone) != nil {
			r.t.Fatalf("no zone: %s %v", b, err)
		}
		config, _ := zone.HostedZone["Config"].(map[string]any)
		if zone.HostedZone["Name"] != name+"." || config["PrivateZone"] == true != private {
			r.t.Errorf("the record went into %s", b)
		}
	}
}

// crowd fills the account with what others have.
func crowd(r *rig) {
	r.quota("vpc", "L-F678F1CE", 20)
	r.quota("vpc", "L-A4707A72", 20)
	r.quota("ec2", "L-0263D0A3", 20)
	for i := range 4 {
		vpc := pick(r.theirs("ec2", "CreateVpc", map[string]any{"CidrBlock": "10.9" + string(rune('0'+i)) + ".0.0/16"}), "vpc", "vpcId")
		if !strings.HasPrefix(vpc, "vpc-") {
			r.t.Fatalf("no VPC: %q", vpc)
		}
		r.theirs("ec2", "CreateSecurityGroup", map[string]any{"GroupName": "theirs", "GroupDescription": "theirs", "VpcId": vpc})
		r.theirs("ec2", "CreateInternetGateway", map[string]any{})
		r.theirs("ec2", "AllocateAddress", map[string]any{"Domain": "vpc"})
		r.theirs("ec2", "CreateRouteTable", map[string]any{"VpcId": vpc})
		r.theirs("elasticloadbalancing", "CreateTargetGroup", map[string]any{"Name": "theirs-" + string(rune('a'+i)), "Protocol": "HTTP", "Port": 80, "VpcId": vpc})
		r.theirs("route53", "CreateHostedZone", map[string]any{"Name": "theirs" + string(rune('a'+i)) + ".test", "CallerReference": "c" + string(rune('a'+i))})
	}
}
