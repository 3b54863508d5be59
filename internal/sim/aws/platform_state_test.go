package aws

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/acm"
	acmtypes "github.com/aws/aws-sdk-go-v2/service/acm/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/zopday/provisioner/internal/sim"
)

// populate fills every service with something.
func populate(t *testing.T) *fleet {
	t.Helper()
	f := newFleet(t, immediate)
	f.openToLB(t)
	_, group := f.balancer(t, "/healthz")
	if err := f.create(nil); err != nil {
		t.Fatal(err)
	}
	f.w.Step(3 * time.Minute)
	f.register(t, group, f.inService(t)[0])
	dns := route53.NewFromConfig(f.cfg)
	zone := newZone(t, f.rig, dns, "example.com", "ref").HostedZone.Id
	must(dns.ChangeResourceRecordSets(f.ctx(), &route53.ChangeResourceRecordSetsInput{HostedZoneId: zone, ChangeBatch: &r53types.ChangeBatch{Changes: []r53types.Change{address(r53types.ChangeActionCreate, "a.example.com", 60, "192.0.2.1")}}}))(t)
	c := ssm.NewFromConfig(f.cfg)
	must(c.PutParameter(f.ctx(), &ssm.PutParameterInput{Name: awssdk.String("/site/x"), Value: awssdk.String("y"), Type: ssmtypes.ParameterTypeString}))(t)
	f.command(t, c, f.inService(t)[0], "echo hello", nil)
	must(acm.NewFromConfig(f.cfg).RequestCertificate(f.ctx(), &acm.RequestCertificateInput{DomainName: awssdk.String("example.com")}))(t)
	return f
}

// The states must survive a round trip through JSON, since the core undoes swallowed calls that way.
func TestStatesSurviveJSON(t *testing.T) {
	f := populate(t)
	f.w.Lock()
	defer f.w.Unlock()
	p := f.cloud.platform
	for _, s := range []sim.Service{p.iam, p.sts, p.ssm, p.elb, p.r53, p.acm, p.asg} {
		before, err := json.Marshal(s.State())
		if err != nil {
			t.Fatalf("%s: %v", s.Name(), err)
		}
		copied := reflect.New(reflect.TypeOf(s.State()).Elem()).Interface()
		if err := json.Unmarshal(before, copied); err != nil {
			t.Fatalf("%s: %v", s.Name(), err)
		}
		after, err := json.Marshal(copied)
		if err != nil || !bytes.Equal(before, after) {
			t.Errorf("%s: the state changes in a round trip: %v", s.Name(), err)
		}
		if s != p.sts && len(before) < 100 {
			t.Errorf("%s: nothing in the state: %s", s.Name(), before)
		}
	}
}

// A swallowed call is answered as if it had been carried out, and changes nothing.
func TestSwallowedCallsChangeNothing(t *testing.T) {
	f := populate(t)
	for _, tc := range []struct {
		service, operation string
		call               func() error
	}{
		{"iam", "CreateRole", func() error {
			_, err := iam.NewFromConfig(f.cfg).CreateRole(f.ctx(), &iam.CreateRoleInput{RoleName: awssdk.String("gone"), AssumeRolePolicyDocument: awssdk.String(ec2Trust)})
			return err
		}},
		{"elasticloadbalancing", "CreateTargetGroup", func() error {
			_, err := f.elb.CreateTargetGroup(f.ctx(), &elb.CreateTargetGroupInput{Name: awssdk.String("gone"), Protocol: types.ProtocolEnumHttp, Port: awssdk.Int32(80), VpcId: awssdk.String(f.vars["vpc"])})
			return err
		}},
		{"route53", "CreateHostedZone", func() error {
			_, err := route53.NewFromConfig(f.cfg).CreateHostedZone(f.ctx(), &route53.CreateHostedZoneInput{Name: awssdk.String("gone.example"), CallerReference: awssdk.String("gone")})
			return err
		}},
		{"autoscaling", "CreateAutoScalingGroup", func() error {
			return f.createNamed("gone", f.vars["subnetA"])
		}},
	} {
		t.Run(tc.operation, func(t *testing.T) {
			before := f.w.Snapshot()
			if _, err := f.w.AddFault(sim.Fault{Service: tc.service, Operation: tc.operation, Kind: sim.FaultSwallow}); err != nil {
				t.Fatal(err)
			}
			if err := tc.call(); err != nil {
				t.Fatal(err)
			}
			if after := f.w.Snapshot(); !reflect.DeepEqual(before, after) {
				for k := range after {
					if before[k] != after[k] {
						t.Errorf("%s has changed", k)
					}
				}
			}
		})
	}
}

func TestNetworkLoadBalancer(t *testing.T) {
	s := newSite(t, immediate)
	id := s.machine(t, "subnetA")
	eip := must(s.ec2.AllocateAddress(s.ctx(), &ec2.AllocateAddressInput{}))(t)
	out := must(s.elb.CreateLoadBalancer(s.ctx(), &elb.CreateLoadBalancerInput{Name: awssdk.String("front"), Type: types.LoadBalancerTypeEnumNetwork,
		SubnetMappings: []types.SubnetMapping{{SubnetId: awssdk.String(s.vars["subnetA"]), AllocationId: eip.AllocationId}}}))(t).LoadBalancers[0]
	if out.SecurityGroups != nil || *out.AvailabilityZones[0].LoadBalancerAddresses[0].AllocationId != *eip.AllocationId {
		t.Errorf("load balancer: %+v", out)
	}
	_, err := s.ec2.ReleaseAddress(s.ctx(), &ec2.ReleaseAddressInput{AllocationId: eip.AllocationId})
	wantCode(t, err, "AuthFailure") // the address is the load balancer's now
	g := must(s.elb.CreateTargetGroup(s.ctx(), &elb.CreateTargetGroupInput{Name: awssdk.String("front"), Protocol: types.ProtocolEnumTcp, Port: awssdk.Int32(80), VpcId: awssdk.String(s.vars["vpc"])}))(t).TargetGroups[0]
	if g.HealthCheckProtocol != types.ProtocolEnumTcp || g.Matcher != nil || g.HealthCheckPath != nil {
		t.Errorf("target group: %+v", g)
	}
	_, err = s.elb.CreateListener(s.ctx(), &elb.CreateListenerInput{LoadBalancerArn: out.LoadBalancerArn, Port: awssdk.Int32(80), Protocol: types.ProtocolEnumHttp, DefaultActions: []types.Action{{Type: types.ActionTypeEnumForward, TargetGroupArn: g.TargetGroupArn}}})
	wantCode(t, err, "ValidationError")
	must(s.elb.CreateListener(s.ctx(), &elb.CreateListenerInput{LoadBalancerArn: out.LoadBalancerArn, Port: awssdk.Int32(80), Protocol: types.ProtocolEnumTcp, DefaultActions: []types.Action{{Type: types.ActionTypeEnumForward, TargetGroupArn: g.TargetGroupArn}}}))(t)
	s.register(t, *g.TargetGroupArn, id)
	s.w.Step(5 * time.Minute)
	if state, reason := s.health(t, *g.TargetGroupArn, id); state != "unhealthy" || reason != "Target.Timeout" {
		t.Errorf("without a rule: %s (%s)", state, reason)
	}
	// Health checks come from the load balancer's own addresses.
	s.openFrom(t, "10.0.0.0/16")
	s.w.Step(5 * time.Minute)
	if state, reason := s.health(t, *g.TargetGroupArn, id); state != "healthy" {
		t.Errorf("with a rule: %s (%s)", state, reason)
	}
	must(s.elb.DeleteLoadBalancer(s.ctx(), &elb.DeleteLoadBalancerInput{LoadBalancerArn: out.LoadBalancerArn}))(t)
	s.w.Step(time.Minute)
	must(s.ec2.ReleaseAddress(s.ctx(), &ec2.ReleaseAddressInput{AllocationId: eip.AllocationId}))(t)
}

func TestCertificateIsIssuedThroughDNS(t *testing.T) {
	r := newRig(t, immediate)
	c, dns := acm.NewFromConfig(r.cfg), route53.NewFromConfig(r.cfg)
	zone := newZone(t, r, dns, "example.com", "ref").HostedZone.Id
	made := must(c.RequestCertificate(r.ctx(), &acm.RequestCertificateInput{DomainName: awssdk.String("www.example.com"), ValidationMethod: acmtypes.ValidationMethodDns, IdempotencyToken: awssdk.String("t1")}))(t)
	again := must(c.RequestCertificate(r.ctx(), &acm.RequestCertificateInput{DomainName: awssdk.String("www.example.com"), ValidationMethod: acmtypes.ValidationMethodDns, IdempotencyToken: awssdk.String("t1")}))(t)
	if *made.CertificateArn != *again.CertificateArn {
		t.Error("the same token made two certificates")
	}
	describe := func() *acmtypes.CertificateDetail {
		return must(c.DescribeCertificate(r.ctx(), &acm.DescribeCertificateInput{CertificateArn: made.CertificateArn}))(t).Certificate
	}
	r.w.Step(10 * time.Minute)
	d := describe()
	if d.Status != acmtypes.CertificateStatusPendingValidation {
		t.Fatalf("status %s without a record", d.Status)
	}
	rec := d.DomainValidationOptions[0].ResourceRecord
	must(dns.ChangeResourceRecordSets(r.ctx(), &route53.ChangeResourceRecordSetsInput{HostedZoneId: zone, ChangeBatch: &r53types.ChangeBatch{Changes: []r53types.Change{{Action: r53types.ChangeActionCreate,
		ResourceRecordSet: &r53types.ResourceRecordSet{Name: rec.Name, Type: r53types.RRTypeCname, TTL: awssdk.Int64(300), ResourceRecords: []r53types.ResourceRecord{{Value: rec.Value}}}}}}}))(t)
	r.w.Step(2 * time.Minute)
	if d := describe(); d.Status != acmtypes.CertificateStatusIssued || d.NotAfter == nil {
		t.Errorf("status %s with the record", d.Status)
	}
	_, err := c.DescribeCertificate(r.ctx(), &acm.DescribeCertificateInput{CertificateArn: awssdk.String("arn:aws:acm:us-east-1:123456789012:certificate/none")})
	wantCode(t, err, "ResourceNotFoundException")
}
