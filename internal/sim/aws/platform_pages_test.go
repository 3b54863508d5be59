package aws

import (
	"fmt"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/zopday/provisioner/internal/sim"
)

// pager is any paginator of the SDK.
type pager[O any] interface {
	HasMorePages() bool
}

// all counts what a paginator answers, page by page, and fails if it does not end.
func all[O any](t *testing.T, p pager[O], next func() (*O, error), count func(*O) int) (n, empty int) {
	t.Helper()
	for range 200 {
		if !p.HasMorePages() {
			return n, empty
		}
		k := count(must(next())(t))
		if n += k; k == 0 {
			empty++
		}
	}
	t.Fatal("the list does not end")
	return 0, 0
}

// Small pages, many of them empty, hide nothing and end.
func TestSmallAndEmptyPages(t *testing.T) {
	opt := immediate
	opt.PageSize, opt.EmptyPages = 2, 0.5
	r := newRig(t, opt)
	ids, dns, balancers := iam.NewFromConfig(r.cfg), route53.NewFromConfig(r.cfg), elb.NewFromConfig(r.cfg)
	vars := layNetwork(t, r)
	for i := range 9 {
		name := fmt.Sprint("n-", i)
		must(ids.CreateRole(r.ctx(), &iam.CreateRoleInput{RoleName: &name, Path: awssdk.String("/x/"), AssumeRolePolicyDocument: awssdk.String(ec2Trust)}))(t)
		must(balancers.CreateTargetGroup(r.ctx(), &elb.CreateTargetGroupInput{Name: &name, Protocol: types.ProtocolEnumHttp, Port: awssdk.Int32(80), VpcId: awssdk.String(vars["vpc"])}))(t)
		newZone(t, r, dns, fmt.Sprintf("z%d.example", i), name)
		must(ssm.NewFromConfig(r.cfg).PutParameter(r.ctx(), &ssm.PutParameterInput{Name: awssdk.String("/p/" + name), Value: &name, Type: ssmtypes.ParameterTypeString}))(t)
	}
	roles := iam.NewListRolesPaginator(ids, &iam.ListRolesInput{PathPrefix: awssdk.String("/x/")})
	groups := elb.NewDescribeTargetGroupsPaginator(balancers, &elb.DescribeTargetGroupsInput{})
	zones := route53.NewListHostedZonesPaginator(dns, &route53.ListHostedZonesInput{})
	params := ssm.NewGetParametersByPathPaginator(ssm.NewFromConfig(r.cfg), &ssm.GetParametersByPathInput{Path: awssdk.String("/p")})
	quotas := servicequotas.NewListServiceQuotasPaginator(servicequotas.NewFromConfig(r.cfg), &servicequotas.ListServiceQuotasInput{ServiceCode: awssdk.String("elasticloadbalancing")})
	empties := 0
	check := func(what string, want int) func(n, empty int) {
		return func(n, empty int) {
			t.Helper()
			if empties += empty; n != want {
				t.Errorf("%d %s, want %d", n, what, want)
			}
		}
	}
	check("roles", 9)(all(t, roles, func() (*iam.ListRolesOutput, error) { return roles.NextPage(r.ctx()) }, func(o *iam.ListRolesOutput) int { return len(o.Roles) }))
	check("target groups", 9)(all(t, groups, func() (*elb.DescribeTargetGroupsOutput, error) { return groups.NextPage(r.ctx()) }, func(o *elb.DescribeTargetGroupsOutput) int { return len(o.TargetGroups) }))
	check("zones", 9)(all(t, zones, func() (*route53.ListHostedZonesOutput, error) { return zones.NextPage(r.ctx()) }, func(o *route53.ListHostedZonesOutput) int { return len(o.HostedZones) }))
	check("parameters", 9)(all(t, params, func() (*ssm.GetParametersByPathOutput, error) { return params.NextPage(r.ctx()) }, func(o *ssm.GetParametersByPathOutput) int { return len(o.Parameters) }))
	check("quotas", 5)(all(t, quotas, func() (*servicequotas.ListServiceQuotasOutput, error) { return quotas.NextPage(r.ctx()) }, func(o *servicequotas.ListServiceQuotasOutput) int { return len(o.Quotas) }))
	if empties == 0 {
		t.Error("no page was empty")
	}
}

// The control API makes other people's objects in every service.
func TestObjectsPlacedFromOutside(t *testing.T) {
	f := newFleet(t, immediate)
	place := func(service, operation string, params map[string]any) {
		t.Helper()
		if _, err := f.w.Invoke("aws", service, operation, testAccount, "us-east-1", params); err != nil {
			t.Errorf("%s %s: %v", service, operation, err)
		}
	}
	place("iam", "CreateRole", map[string]any{"RoleName": "theirs", "AssumeRolePolicyDocument": ec2Trust, "Tags": []any{map[string]any{"Key": "owner", "Value": "them"}}})
	place("elasticloadbalancing", "CreateLoadBalancer", map[string]any{"Name": "theirs", "Subnets": []any{f.vars["subnetA"], f.vars["subnetB"]}})
	place("route53", "CreateHostedZone", map[string]any{"Name": "theirs.example", "CallerReference": "x"})
	place("autoscaling", "CreateAutoScalingGroup", map[string]any{"AutoScalingGroupName": "theirs", "MinSize": 1, "MaxSize": 2, "VPCZoneIdentifier": f.vars["subnetA"],
		"LaunchTemplate": map[string]any{"LaunchTemplateId": f.template, "Version": "1"}, "Tags": []any{map[string]any{"Key": "owner", "Value": "them", "PropagateAtLaunch": true}}})
	place("ssm", "PutParameter", map[string]any{"Name": "/theirs", "Value": "x", "Type": "String"})
	place("acm", "RequestCertificate", map[string]any{"DomainName": "theirs.example"})
	for kind, want := range map[string]int{"role": 2, "load-balancer": 1, "hosted-zone": 1, "auto-scaling-group": 1, "parameter": 1, "certificate": 1} {
		if n := len(f.w.Objects(sim.ObjectFilter{Kind: kind})); n != want {
			t.Errorf("%d objects of kind %s, want %d", n, kind, want)
		}
	}
	f.w.Step(time.Minute)
	kinds := map[string]bool{}
	for _, o := range f.w.Residue("them") {
		kinds[o.Kind] = true
	}
	if !kinds["role"] || !kinds["auto-scaling-group"] || !kinds["instance"] {
		t.Errorf("residue of the owner: %v", kinds)
	}
	if _, err := f.w.Invoke("aws", "iam", "CreateRole", "", "", map[string]any{"RoleName": "theirs", "AssumeRolePolicyDocument": ec2Trust}); err == nil {
		t.Error("the same role was made twice")
	}
}

func TestFaultsOfThePlatform(t *testing.T) {
	r := newRig(t, immediate)
	ids, dns := iam.NewFromConfig(r.cfg), route53.NewFromConfig(r.cfg)
	fault := func(f sim.Fault) {
		t.Helper()
		if _, err := r.w.AddFault(f); err != nil {
			t.Fatal(err)
		}
	}
	must(ids.CreateRole(r.ctx(), &iam.CreateRoleInput{RoleName: awssdk.String("r"), AssumeRolePolicyDocument: awssdk.String(ec2Trust)}))(t)
	must(ids.CreateInstanceProfile(r.ctx(), &iam.CreateInstanceProfileInput{InstanceProfileName: awssdk.String("p")}))(t)
	must(ids.AttachRolePolicy(r.ctx(), &iam.AttachRolePolicyInput{RoleName: awssdk.String("r"), PolicyArn: awssdk.String(ssmCore)}))(t)

	// A role that reads do not see twice; an attachment that is listed a quarter of a minute late.
	fault(sim.Fault{Service: "iam", Operation: "GetRole", Kind: sim.FaultHidden, Match: "role", Count: 2})
	for range 2 {
		_, err := ids.GetRole(r.ctx(), &iam.GetRoleInput{RoleName: awssdk.String("r")})
		wantCode(t, err, "NoSuchEntity")
	}
	must(ids.GetRole(r.ctx(), &iam.GetRoleInput{RoleName: awssdk.String("r")}))(t)
	fault(sim.Fault{Service: "iam", Kind: sim.FaultHidden, Match: "attachment", Seconds: 15})
	attached := func() int {
		return len(must(ids.ListAttachedRolePolicies(r.ctx(), &iam.ListAttachedRolePoliciesInput{RoleName: awssdk.String("r")}))(t).AttachedPolicies)
	}
	if attached() != 0 {
		t.Error("the attachment is listed at once")
	}
	r.w.Step(16 * time.Second)
	if attached() != 1 {
		t.Error("the attachment is not listed after 16 s")
	}

	// A profile that EC2 does not know for 100 s.
	fault(sim.Fault{Service: "iam", Operation: "ResolveInstanceProfile", Kind: sim.FaultHidden, Match: "p", Seconds: 100})
	known := func() bool {
		r.w.Lock()
		defer r.w.Unlock()
		_, ok := r.cloud.hooks.instanceProfile(testAccount, "p")
		return ok
	}
	if known() {
		t.Error("EC2 knows the hidden profile")
	}
	r.w.Step(101 * time.Second)
	if !known() {
		t.Error("EC2 does not know the profile after 101 s")
	}

	zone := newZone(t, r, dns, "example.com", "ref").HostedZone.Id
	change := func() (*route53.ChangeResourceRecordSetsOutput, error) {
		return dns.ChangeResourceRecordSets(r.ctx(), &route53.ChangeResourceRecordSetsInput{HostedZoneId: zone, ChangeBatch: &r53types.ChangeBatch{Changes: []r53types.Change{address(r53types.ChangeActionUpsert, "a.example.com", 60, "192.0.2.1")}}})
	}
	fault(sim.Fault{Service: "route53", Kind: sim.FaultThrottle})
	_, err := change()
	wantCode(t, err, "Throttling")
	fault(sim.Fault{Service: "route53", Kind: sim.FaultError, Code: "PriorRequestNotComplete", Message: "The request was rejected because Route 53 was still processing a prior request."})
	_, err = change()
	wantCode(t, err, "PriorRequestNotComplete")
	fault(sim.Fault{Service: "route53", Operation: "ChangeResourceRecordSets", Kind: sim.FaultTransition, State: "PENDING"})
	ch := must(change())(t).ChangeInfo
	r.w.Step(time.Hour)
	if got := must(dns.GetChange(r.ctx(), &route53.GetChangeInput{Id: ch.Id}))(t).ChangeInfo.Status; got != r53types.ChangeStatusPending {
		t.Errorf("a change that is held at PENDING is %s", got)
	}
	fault(sim.Fault{Service: "autoscaling", Kind: sim.FaultThrottle})
	_, err = autoscaling.NewFromConfig(r.cfg).DescribeAutoScalingGroups(r.ctx(), nil)
	wantCode(t, err, "Throttling")
}
