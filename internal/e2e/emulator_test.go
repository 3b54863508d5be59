package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
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

// The ways in which emulators say that they do not have a call.
func refuseHTML(w http.ResponseWriter, _, _ string) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(http.StatusInternalServerError)
	_, _ = io.WriteString(w, "<!doctype html>\n<html lang=en>\n<title>500 Internal Server Error</title>\n<h1>Internal Server Error</h1>")
}

func refuseEmpty(w http.ResponseWriter, _, _ string) { w.WriteHeader(http.StatusNotFound) }

func refuseCode(status int, code, text string) func(http.ResponseWriter, string, string) {
	return func(w http.ResponseWriter, service, op string) {
		message := strings.ReplaceAll(strings.ReplaceAll(text, "SERVICE", service), "ACTION", op)
		switch service {
		case "ssm", "acm", "servicequotas":
			w.Header().Set("Content-Type", "application/x-amz-json-1.1")
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(map[string]string{"__type": code, "message": message})
		case "ec2":
			w.Header().Set("Content-Type", "text/xml")
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, "<Response><Errors><Error><Code>%s</Code><Message>%s</Message></Error></Errors><RequestID>0</RequestID></Response>", code, message)
		default:
			w.Header().Set("Content-Type", "text/xml")
			w.WriteHeader(status)
			_, _ = fmt.Fprintf(w, "<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error><RequestId>0</RequestId></ErrorResponse>", code, message)
		}
	}
}

// noTokens takes the idempotency tokens away.
func noTokens(_ string, form url.Values) { form.Del("ClientToken") }

// noFilters takes the filters of all lists away, but for those of images and
// offers, which are too long to be read.
func noFilters(op string, form url.Values) {
	noTokens(op, form)
	if !strings.HasPrefix(op, "Describe") || op == "DescribeImages" || op == "DescribeInstanceTypeOfferings" {
		return
	}
	for k := range form {
		if strings.HasPrefix(k, "Filter.") || strings.HasPrefix(k, "Filters.") {
			form.Del(k)
		}
	}
}

// launchesHeedLittle starts VMs without what protects them, and shows none that
// has ended.
func launchesHeedLittle(op string, form url.Values) {
	noTokens(op, form)
	switch op {
	case "RunInstances", "CreateLaunchTemplate", "CreateLaunchTemplateVersion":
		for k := range form {
			if strings.Contains(k, "MetadataOptions.") || strings.HasSuffix(k, "EbsOptimized") {
				form.Del(k)
			}
		}
	case "DescribeInstances":
		n := 1
		for form.Has(fmt.Sprintf("Filter.%d.Name", n)) {
			n++
		}
		form.Set(fmt.Sprintf("Filter.%d.Name", n), "instance-state-name")
		for i, state := range []string{"pending", "running", "stopping", "stopped"} {
			form.Set(fmt.Sprintf("Filter.%d.Value.%d", n, i+1), state)
		}
	}
}

// Run Command as a success without a machine: at once, and with empty output.
func commandSent(_ *emulation, w http.ResponseWriter, body []byte) {
	var in struct{ InstanceIds []string }
	_ = json.Unmarshal(body, &in)
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	_ = json.NewEncoder(w).Encode(map[string]any{"Command": map[string]any{"CommandId": "11111111-2222-3333-4444-555555555555", "Status": "Success", "InstanceIds": in.InstanceIds}})
}

func commandDone(_ *emulation, w http.ResponseWriter, body []byte) {
	var in struct{ CommandId, InstanceId string }
	_ = json.Unmarshal(body, &in)
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	_ = json.NewEncoder(w).Encode(map[string]any{"CommandId": in.CommandId, "InstanceId": in.InstanceId, "Status": "Success", "StatusDetails": "Success", "ResponseCode": 0, "StandardOutputContent": ""})
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

// An emulation is an emulator at work.
type emulation struct {
	emulator
	target string

	mu    sync.Mutex
	calls map[string]int // by service:Operation
}

var scope = regexp.MustCompile(`Credential=[^/]+/\d+/[^/]+/([^/]+)/`)

// what names a request's service and operation.
func what(r *http.Request, body []byte) (service, op string, form url.Values) {
	if m := scope.FindStringSubmatch(r.Header.Get("Authorization")); m != nil {
		service = m[1]
	}
	switch target := r.Header.Get("X-Amz-Target"); {
	case target != "":
		op = target[strings.LastIndexByte(target, '.')+1:]
	case strings.Contains(r.Header.Get("Content-Type"), "form-urlencoded"):
		if form, _ = url.ParseQuery(string(body)); form != nil {
			op = form.Get("Action")
		}
	case strings.Contains(r.URL.Path, "/change/"):
		op = "GetChange"
	}
	return service, op, form
}

func (e *emulation) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	service, op, form := what(r, body)
	key := service + ":" + op
	e.mu.Lock()
	e.calls[key]++
	first := e.calls[key] == 1
	e.mu.Unlock()
	if slices.Contains(e.lacks, key) || slices.Contains(e.lacks, service+":*") {
		e.refuse(w, service, op)
		return
	}
	if answer := e.answers[key]; answer != nil {
		answer(e, w, body)
		return
	}
	if form != nil && e.heeds != nil {
		e.heeds(op, form)
		body = []byte(form.Encode())
	}
	if key == e.cut && first {
		e.forward(httptest.NewRecorder(), r, op, body)
		panic(http.ErrAbortHandler)
	}
	e.forward(w, r, op, body)
}

// forward asks the simulated AWS and takes out of its answer what this
// emulator's would not carry.
func (e *emulation) forward(w http.ResponseWriter, r *http.Request, op string, body []byte) {
	req, err := http.NewRequestWithContext(r.Context(), r.Method, e.target+r.URL.RequestURI(), bytes.NewReader(body))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	req.Header = r.Header.Clone()
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return // as if the connection were cut
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return
	}
	for _, name := range e.drops[op] {
		text = regexp.MustCompile(`(?s)<`+name+`>.*?</`+name+`>|<`+name+`\s*/>`).ReplaceAll(text, nil)
	}
	h := w.Header()
	maps.Copy(h, resp.Header)
	h.Del("Content-Length")
	h.Del("X-Amz-Crc32")
	w.WriteHeader(resp.StatusCode)
	_, _ = w.Write(text)
}

// emulate puts an emulator between the rig's workers and the simulated AWS.
func (r *rig) emulate(e emulator) *emulation {
	em := &emulation{emulator: e, target: r.url, calls: map[string]int{}}
	server := httptest.NewServer(em)
	r.t.Cleanup(server.Close)
	r.url = server.URL
	return em
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
