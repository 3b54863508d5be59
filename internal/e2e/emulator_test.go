package e2e

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/route53"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

// An emulator is the simulated AWS with the manners of other people's
// emulators: calls that they do not have, parameters that they do not heed, and
// fields that their answers do not carry.
type emulator struct {
	name string

	// lacks are the calls that it does not have, as service:Operation with * for
	// all of a service; refuse is how it says so.
	lacks  []string
	refuse func(w http.ResponseWriter, service, op string)

	// heeds takes what is not heeded out of a request's parameters.
	heeds func(op string, form url.Values)

	// drops are the elements, by operation or * for all, that its answers do
	// not carry.
	drops map[string][]string

	// answers are calls that it answers in its own way.
	answers map[string]func(e *emulation, w http.ResponseWriter, body []byte)

	// cut is a call whose first answer is lost.
	cut string

	asked []string // calls that must have been made, so that the profile is one
}

// auxiliary is what is only read to check, to report or to explain.
var auxiliary = []string{
	"servicequotas:*", "acm:*", "ssm:DescribeInstanceInformation", "ssm:ListCommandInvocations",
	"ec2:DescribeVpcPeeringConnections", "ec2:DescribeVpcEndpoints", "ec2:DescribeVpcAttribute", "ec2:DescribeVolumes",
	"ec2:DescribeInstanceTypes", "ec2:DescribeInstanceTypeOfferings", "ec2:DescribeNetworkInterfaces",
	"autoscaling:DescribeScalingActivities", "elasticloadbalancing:DescribeLoadBalancerAttributes", "elasticloadbalancing:ModifyLoadBalancerAttributes",
	"route53:GetChange",
}

var emulators = []emulator{
	{
		name:  "calls that are not there are a web page, commands always succeed, tokens are not heeded",
		lacks: []string{"ssm:DescribeInstanceInformation", "ssm:ListCommandInvocations", "servicequotas:GetAWSDefaultServiceQuota", "servicequotas:GetServiceQuota"}, refuse: refuseHTML,
		heeds:   noTokens,
		answers: map[string]func(*emulation, http.ResponseWriter, []byte){"ssm:SendCommand": commandSent, "ssm:GetCommandInvocation": commandDone},
		asked:   []string{"ssm:SendCommand", "ssm:GetCommandInvocation", "servicequotas:GetServiceQuota"},
	},
	{
		name:  "nothing but the calls that make and show objects, status 501",
		lacks: append([]string{"ssm:GetParameter"}, auxiliary...), refuse: refuseCode(http.StatusNotImplemented, "InternalFailure", "The API for service SERVICE is either not included in your current license plan or has not yet been emulated."),
		asked: []string{"ssm:GetParameter", "ec2:DescribeVpcAttribute", "elasticloadbalancing:ModifyLoadBalancerAttributes"},
	},
	{
		name:  "nothing but the calls that make and show objects, InvalidAction",
		lacks: auxiliary, refuse: refuseCode(http.StatusBadRequest, "InvalidAction", "The action ACTION is not valid for this web service."),
		heeds: noTokens, asked: []string{"ec2:DescribeInstanceTypeOfferings", "ssm:ListCommandInvocations"},
	},
	{
		name:  "nothing but the calls that make and show objects, UnsupportedOperation",
		lacks: auxiliary, refuse: refuseCode(http.StatusBadRequest, "UnsupportedOperation", "Action ACTION is not supported."),
		asked: []string{"ec2:DescribeVolumes"},
	},
	{
		name:  "nothing but the calls that make and show objects, an empty 404",
		lacks: auxiliary, refuse: refuseEmpty,
		asked: []string{"ec2:DescribeNetworkInterfaces"},
	},
	{
		name:  "no Systems Manager at all",
		lacks: []string{"ssm:*"}, refuse: refuseCode(http.StatusBadRequest, "UnknownOperationException", "Unknown action: ACTION"),
		asked: []string{"ssm:SendCommand"},
	},
	{
		name:   "groups that cannot be attached to a load balancer",
		lacks:  []string{"autoscaling:AttachLoadBalancerTargetGroups", "autoscaling:DetachLoadBalancerTargetGroups", "autoscaling:DescribeScalingActivities"},
		refuse: refuseCode(http.StatusBadRequest, "InvalidAction", "Unknown action: ACTION"),
		asked:  []string{"elasticloadbalancing:RegisterTargets"},
	},
	{
		name:  "lists that heed no filter",
		heeds: noFilters, asked: []string{"ec2:DescribeSecurityGroups"},
	},
	{
		name:  "ended VMs that are not shown, launches that heed little",
		heeds: launchesHeedLittle, asked: []string{"ec2:CreateLaunchTemplate"},
	},
	{
		name: "templates of which little is shown",
		drops: map[string][]string{"DescribeLaunchTemplateVersions": {
			"metadataOptions", "blockDeviceMappingSet", "ebsOptimized", "iamInstanceProfile", "networkInterfaceSet", "tagSpecificationSet", "versionDescription", "userData",
		}},
		asked: []string{"ec2:DescribeLaunchTemplateVersions"},
	},
	{
		name: "answers that carry little",
		drops: map[string][]string{
			"DescribeInstances":              {"metadataOptions", "stateReason", "reason", "iamInstanceProfile", "networkInterfaceSet", "blockDeviceMapping", "ebsOptimized", "groupSet", "cpuOptions"},
			"RunInstances":                   {"metadataOptions", "iamInstanceProfile", "networkInterfaceSet", "blockDeviceMapping", "groupSet", "privateIpAddress"},
			"DescribeAvailabilityZones":      {"zoneId", "zoneType", "optInStatus", "regionName", "groupName"},
			"DescribeVpcAttribute":           {"enableDnsHostnames", "enableDnsSupport"},
			"DescribeNatGateways":            {"failureCode", "failureMessage", "connectivityType"},
			"DescribeVolumes":                {"kmsKeyId"},
			"DescribeLoadBalancers":          {"AvailabilityZones", "SecurityGroups", "Scheme", "Type", "IpAddressType"},
			"DescribeTargetGroups":           {"HealthCheckPath", "HealthCheckPort", "HealthCheckProtocol", "Matcher"},
			"DescribeListeners":              {"SslPolicy", "Certificates"},
			"DescribeAutoScalingGroups":      {"VPCZoneIdentifier", "LaunchTemplate", "HealthCheckType", "TrafficSources", "Status"},
			"DescribeImages":                 {"rootDeviceName", "creationDate", "imageOwnerAlias"},
			"DescribeLoadBalancerAttributes": {"Attributes"},
			"GetRole":                        {"Tags", "RoleLastUsed", "Description"},
			"GetInstanceProfile":             {"Tags"},
		},
		asked: []string{"elasticloadbalancing:DescribeLoadBalancerAttributes", "iam:GetRole"},
	},
}

// zone makes a hosted zone, as somebody who has the account does.
func (r *rig) zone(name string) {
	r.t.Helper()
	client := route53.New(route53.Options{
		Region: region, BaseEndpoint: aws.String(r.url), Credentials: credentials.NewStaticCredentialsProvider("AKIAIOSFODNN7EXAMPLE", "secret", ""),
	})
	if _, err := client.CreateHostedZone(context.Background(), &route53.CreateHostedZoneInput{Name: aws.String(name), CallerReference: aws.String(name)}); err != nil {
		r.t.Fatal(err)
	}
}

// TestOtherEmulators takes environments through their life at emulators that
// have less than AWS: made, compared without a difference, the load balancer
// taken off and put on, and torn down to nothing.
func TestOtherEmulators(t *testing.T) {
	for _, e := range emulators {
		for mode, pool := range map[string]string{
			"fixed": `{"mode":"fixed","count":2}`,
			"asg":   `{"mode":"asg","min":1,"desired":2,"max":3}`,
		} {
			t.Run(e.name+"/"+mode, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, sim.Options{Seed: 11, ConsistencyByID: -1, ConsistencyByList: -1})
				r.zone("example.test")
				before := r.world.Snapshot()
				em := r.emulate(e)
				r.start()
				r.vm("shop-prod", `{"pool":`+pool+`,"loadBalancer":{"type":"http","plainHTTP":true,"dns":{"zone":"example.test","record":"shop"}}}`)
				j := r.await(job.Completed)
				if j.Outputs["url"] != "http://shop.example.test/" || len(j.Config.InfraConfig.VMs) != 2 {
					t.Errorf("made %+v, outputs %v", j.Config.InfraConfig.VMs, j.Outputs)
				}
				if e.answers["ssm:SendCommand"] != nil && strings.Contains(r.history(), "the exec agent to register") {
					t.Errorf("a list that is not there was waited for\n%s", r.history())
				}
				r.unchanged(t)
				r.move(job.Operate, job.DetachLB)
				r.await(job.Completed)
				r.unchanged(t)
				r.move(job.Operate, job.AttachLB)
				r.await(job.Completed)
				r.unchanged(t)
				r.move(job.Delete, "")
				r.await(job.Cancelled)
				r.checkGone(t, before)
				for _, call := range e.asked {
					if em.calls[call] == 0 {
						t.Errorf("%s was never asked for, so nothing was tested", call)
					}
				}
			})
		}
	}
}

// TestLostAnswerIsLookedUpFirst loses the answer of creates that AWS makes once
// however often they are sent, and that emulators make twice.
func TestLostAnswerIsLookedUpFirst(t *testing.T) {
	for _, call := range []string{"elasticloadbalancing:CreateLoadBalancer", "elasticloadbalancing:CreateListener", "elasticloadbalancing:CreateTargetGroup", "ec2:RunInstances"} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{Seed: 14, ConsistencyByID: -1, ConsistencyByList: -1})
			before := r.world.Snapshot()
			em := r.emulate(emulator{cut: call, heeds: noTokens})
			r.start()
			r.vm("shop-prod", fixedLB)
			j := r.await(job.Completed)
			once := 1
			if call == "ec2:RunInstances" {
				once = len(j.Config.InfraConfig.VMs)
			}
			if n := em.calls[call]; n != once {
				t.Errorf("%s was sent %d times", call, n)
			}
			r.checkBooks(t)
			r.unchanged(t)
			r.move(job.Delete, "")
			r.await(job.Cancelled)
			r.checkGone(t, before)
		})
	}
}

// TestGroupThatStartsNothing has an endpoint that keeps a scaling group as a
// record and starts no VM for it.
func TestGroupThatStartsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Seed: 13, ConsistencyByID: -1, ConsistencyByList: -1})
	before := r.world.Snapshot()
	r.emulate(emulator{drops: map[string][]string{"DescribeAutoScalingGroups": {"Instances"}, "DescribeScalingActivities": {"Activities"}}})
	r.start()
	r.vm("shop-prod", asgLB)
	if j := r.await(job.Failed); j.Error == nil || j.Error.Code != "group-idle" {
		t.Errorf("got %+v", j.Error)
	}
	r.move(job.Delete, "")
	r.await(job.Cancelled)
	r.checkGone(t, before)
}

// unchanged demands that a verify finds nothing and touches nothing.
func (r *rig) unchanged(t *testing.T) {
	t.Helper()
	since := r.lastEntry()
	if d := r.drift(); len(d) > 0 {
		t.Errorf("drift: %+v", d)
	}
	if m := r.mutating(since); len(m) > 0 {
		t.Errorf("verify changed something: %+v", m)
	}
}

// TestMissingCallIsFatalAtOnce takes away what a job cannot do without: it must
// say which call that is, and not try for minutes.
func TestMissingCallIsFatalAtOnce(t *testing.T) {
	for name, refuse := range map[string]func(http.ResponseWriter, string, string){
		"501":                  refuseCode(http.StatusNotImplemented, "InternalFailure", "The API for service SERVICE is not implemented."),
		"InvalidAction":        refuseCode(http.StatusBadRequest, "InvalidAction", "The action ACTION is not valid for this web service."),
		"UnsupportedOperation": refuseCode(http.StatusBadRequest, "UnsupportedOperation", "Action ACTION is not supported."),
		"empty 404":            refuseEmpty,
	} {
		for _, call := range []string{"ec2:CreateNatGateway", "ec2:CreateLaunchTemplate", "elasticloadbalancing:CreateLoadBalancer"} {
			t.Run(name+"/"+call, func(t *testing.T) {
				t.Parallel()
				r := newRig(t, sim.Options{Seed: 12, ConsistencyByID: -1, ConsistencyByList: -1})
				before := r.world.Snapshot()
				em := r.emulate(emulator{lacks: []string{call}, refuse: refuse})
				r.start()
				begun := time.Now()
				r.vm("shop-prod", fixedLB)
				j := r.await(job.Failed)
				_, op, _ := strings.Cut(call, ":")
				if j.Error == nil || !strings.Contains(j.Error.Message, op) {
					t.Errorf("the error does not name %s: %+v", op, j.Error)
				}
				if n := em.calls[call]; n == 0 || n > 4 {
					t.Errorf("%s was tried %d times in %s", call, n, time.Since(begun))
				}
				r.move(job.Delete, "")
				r.await(job.Cancelled)
				r.checkGone(t, before)
			})
		}
	}
}
