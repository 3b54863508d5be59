package e2e

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/job"
)

// lb is a pool of one VM behind a load balancer with more fields.
func lb(fields string) string {
	return `{"pool":{"mode":"fixed","count":1},"loadBalancer":{"type":"http","plainHTTP":true` + fields + `}}`
}

// still demands that an object of a kind is there and recorded.
func still(kind string) func(*rig) {
	return func(r *rig) {
		r.t.Helper()
		for _, o := range r.objects() {
			if o.Kind == kind {
				return
			}
		}
		r.t.Errorf("the broken %s was not kept", kind)
	}
}

// noise is text that no compression makes small.
func noise(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	rng := rand.New(rand.NewPCG(1, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = letters[rng.IntN(len(letters))]
	}
	return string(b)
}

// What does not pass by itself stops the job in bounded time with a reason that
// names it; put right, the same job comes through, and either way it leaves
// nothing.
func TestFailuresThatStop(t *testing.T) {
	const (
		network  = "stepCreateNetwork"
		vms      = "stepCreateVMs"
		validate = "stepValidate"
	)
	natFailed := `{"kind":"op_failed","operation":"CreateNatGateway","code":"InternalError","message":"Network interface could not be made"}`
	runAll(t, []failure{
		{id: "A8 a NAT gateway fails, is kept, and replaced by a retry", spec: plain, faults: []string{natFailed}, code: "object-failed", step: network, says: []string{"nat-", "Network interface could not be made"}, then: still("ec2:nat-gateway")},
		{id: "A7 a NAT gateway fails and is torn down", spec: plain, faults: []string{natFailed}, code: "object-failed", step: network, final: true, then: still("ec2:nat-gateway")},
		{id: "A10 a load balancer fails and is replaced", faults: []string{`{"kind":"op_failed","operation":"CreateLoadBalancer"}`}, code: "object-failed", step: "stepCreateLoadBalancer", says: []string{"shop-prod-lb"}, then: still("elbv2:load-balancer")},
		{id: "D5 the profile is invalid for ever", spec: plain, faults: []string{`{"kind":"error","operation":"RunInstances","count":-1,` + badProfile + `}`}, code: "not-visible", step: vms, says: []string{"Invalid IAM Instance Profile"}},
		{id: "E13 a create that failed at its identity", spec: `{"pool":{"count":2},"network":{"flowLogs":"none"}}`, faults: []string{`{"kind":"error","operation":"CreateRole","code":"LimitExceeded","status":409,"message":"Cannot exceed quota for RolesPerAccount: 1000","count":-1}`}, code: "quota-exceeded", step: "stepCreateIAM", says: []string{"RolesPerAccount"}, final: true},
		{id: "F8 a proxy answers for ever", spec: plain, faults: []string{`{"kind":"raw","operation":"CreateVpc","status":403,"body":"<html>blocked by proxy</html>","contentType":"text/html","count":-1}`}, code: "unexpected", step: network, says: []string{"CreateVpc", "403"}, final: true},
		{id: "G1 no elastic IP is left", spec: plain, setup: func(r *rig) { r.quota("ec2", "L-0263D0A3", 0) }, spare: true, code: "invalid", step: validate, says: []string{"elastic IP", "0", "L-0263D0A3"}, then: func(r *rig) { r.quota("ec2", "L-0263D0A3", 5) }},
		{id: "G1 the last elastic IP goes midway", spec: plain, faults: []string{`{"kind":"error","operation":"AllocateAddress","code":"AddressLimitExceeded","status":400,"message":"The maximum number of addresses has been reached.","count":-1}`}, code: "quota-exceeded", step: network, says: []string{"AllocateAddress", "maximum number of addresses"}, final: true},
		{id: "G an account at its VPC quota", spec: plain, setup: func(r *rig) { r.quota("vpc", "L-F678F1CE", 1) }, spare: true, code: "invalid", step: validate, says: []string{"VPC quota", "L-F678F1CE"}, then: func(r *rig) { r.quota("vpc", "L-F678F1CE", 5) }},
		{id: "G no vCPU is left", spec: plain, setup: func(r *rig) { r.quota("ec2", "L-1216C47A", 3) }, spare: true, code: "invalid", step: validate, says: []string{"vCPU", "L-1216C47A"}, final: true},
		{id: "G5 no zone ever has room", spec: plain, faults: []string{`{"kind":"capacity","count":-1}`}, code: "no-capacity", step: vms, says: []string{"us-east-1b, us-east-1c"}},
		{id: "G5 a group never finds room", spec: asgLB, faults: []string{`{"kind":"capacity","count":-1}`}, code: "no-capacity", step: vms, says: []string{"shop-prod-asg"}},
		{id: "H a denied call is not tried again", spec: plain, faults: []string{`{"kind":"error","operation":"CreateVpc","code":"UnauthorizedOperation","status":403,"message":"You are not authorized to perform this operation."}`}, code: "permission-denied", step: network, says: []string{"ec2:CreateVpc"}},
		{id: "H 503 for ever", spec: plain, faults: []string{`{"kind":"error","operation":"DescribeSubnets","code":"ServiceUnavailable","status":503,"count":-1}`}, code: "cloud-unavailable", step: network, says: []string{"DescribeSubnets"}, final: true},
		{id: "I10 a launch ends at once", spec: plain, faults: []string{`{"kind":"transition","operation":"RunInstances","count":-1,"state":"terminated","code":"Client.VolumeLimitExceeded","message":"Client.VolumeLimitExceeded: Volume limit exceeded"}`}, code: "object-ended", step: vms, says: []string{"VolumeLimitExceeded", "shop-prod-vm-"}},
		{id: "I11 an error without words", spec: plain, faults: []string{`{"kind":"error","operation":"CreateVpc","code":"Weird","status":400,"count":-1}`}, code: "unexpected", step: network, says: []string{"CreateVpc", "Weird"}, final: true},
		{id: "J11 an association is swallowed for ever", spec: plain, faults: []string{`{"kind":"swallow","operation":"AssociateRouteTable","count":-1}`}, code: "change-lost", step: network, says: []string{"shop-prod-routes"}},
		{id: "J a create is swallowed for ever", spec: plain, faults: []string{`{"kind":"swallow","operation":"CreateVpc","count":-1}`}, code: "object-lost", step: network, says: []string{"ec2:vpc"}},
		{id: "J1 an instance type that no zone has", spec: `{"pool":{"count":1,"instanceType":"x9.colossal"}}`, spare: true, code: "invalid", step: validate, says: []string{"x9.colossal", "instanceType"}, final: true},
		{id: "C13 user data of 40 000 random bytes", spec: `{"pool":{"count":1},"startupScript":"#!/bin/sh\n# ` + noise(40000) + `\n"}`, spare: true, code: "invalid", step: validate, says: []string{"startupScript", "16"}, final: true},
		{id: "K2 nothing ever answers, in a group", spec: asgLB, faults: []string{`{"kind":"guest","mode":"health","count":-1}`}, code: "targets-unhealthy", step: "stepCreateListener", says: []string{"/healthz", "port 80", "i-"}, final: true},
		{id: "K a health check of a wrong path", spec: lb(`,"healthCheck":{"path":"/nowhere"}`), spare: true, code: "targets-unhealthy", step: "stepCreateListener", says: []string{"/nowhere", "port 80", "404", "healthCheck"}, final: true},
		{id: "L1 two zones of one name", spec: dns, setup: func(r *rig) {
			zoneOf("example.test")(r)
			r.theirs("route53", "CreateHostedZone", map[string]any{"Name": "example.test", "CallerReference": "again"})
		}, spare: true, code: "invalid", step: validate, says: []string{"2 hosted zones are named example.test: Z", "dns.zone"}, final: true},
		{id: "L no such zone", spec: dns, spare: true, code: "invalid", step: validate, says: []string{"no hosted zone example.test"}, final: true},
		{id: "M7 one VM of two has no way out", spec: plain, faults: []string{`{"kind":"guest","mode":"no_egress","match":"shop-prod-vm-1"}`}, code: "bootstrap-failed", step: vms, says: []string{"shop-prod-vm-1-", "zopday-bootstrap.log", "step"}},
		{id: "M8 no VM has a way out", spec: plain, faults: []string{`{"kind":"guest","mode":"no_egress","count":-1}`}, code: "bootstrap-failed", step: vms, says: []string{"shop-prod-vm-1-", "shop-prod-vm-2-"}, final: true},
		{id: "M10 an agent never registers", spec: plain, faults: []string{`{"kind":"guest","mode":"agent","count":-1}`}, code: "bootstrap-timeout", step: vms, says: []string{"agent", "shop-prod-vm-2-"}},
		{id: "M11 a script of the user's ends with 99", spec: `{"pool":{"count":1},"startupScript":"echo from-the-user\nexit 99\n"}`, spare: true, code: "bootstrap-failed", step: vms, says: []string{"shop-prod-vm-1-", "99"}, final: true},
		{id: "M cloud-init hangs", spec: plain, faults: []string{`{"kind":"guest","mode":"sentinel","match":"shop-prod-vm-2"}`}, code: "bootstrap-timeout", step: vms, says: []string{"shop-prod-vm-2-"}, final: true},
		{id: "M cloud-init fails", spec: plain, faults: []string{`{"kind":"guest","mode":"cloud_init","match":"shop-prod-vm-1","exitCode":1,"log":"E: Unable to locate package docker-ce"}`}, code: "bootstrap-failed", step: vms, says: []string{"shop-prod-vm-1-", "Unable to locate package docker-ce"}},
		{id: "Q4 the same page for ever", world: paged, spec: plain, faults: []string{`{"kind":"page","mode":"repeat","operation":"DescribeSubnets","count":-1}`}, step: network, code: "unexpected", says: []string{"same page token"}, final: true},
	})
}

// G5, I7: what a person asked for is the bound of a wait, and the job says so
// while it waits.
func TestFailuresAreShownWhileTheyLast(t *testing.T) {
	t.Parallel()
	r := newRig(t, paged)
	r.start()
	r.vm("shop-prod", plain)
	id := r.fault(`{"kind":"capacity","count":-1}`)
	j := r.waitsFor("no room for", "us-east-1b, us-east-1c")
	if j.CurrentStep != "stepCreateVMs" {
		t.Errorf("it waits in %s", j.CurrentStep)
	}
	r.control("DELETE", "/_sim/faults?id="+id, nil, nil)
	twoVMs(r, r.await(job.Completed))
	if events, err := r.ledger.Events(t.Context(), org, r.jobID, 0, 1000); err != nil || !strings.Contains(eventText(events), "no room for") {
		t.Errorf("the history does not tell of the wait: %v", err)
	}
}

func eventText(events []job.Event) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString(e.Message + "\n")
	}
	return b.String()
}
