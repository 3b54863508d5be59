package aws

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/acm"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/cloud/vmpool"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// checks asks in the given mode, through clients that cannot change anything.
func (g *rig) checks(mode pipeline.Mode) []cloud.Check {
	g.Helper()
	got, err := g.p.Check(pipeline.WithGate(g.Context(), pipeline.ReadOnly), g.run(mode))
	if err != nil {
		g.Fatalf("check: %v\n%s", err, g.books(10))
	}
	return got
}

// has finds a check of a status that says something.
func has(checks []cloud.Check, status cloud.CheckStatus, words ...string) bool {
	for _, c := range checks {
		text := c.Name + " " + c.Field + " " + c.Message + " " + c.Fix
		if c.Status == status && !strings.Contains(text, "%!") && containsAll(text, words) {
			return true
		}
	}
	return false
}

func containsAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

func show(checks []cloud.Check) string {
	var b strings.Builder
	for _, c := range checks {
		fmt.Fprintf(&b, "%s: %s [%s] %s / %s\n", c.Name, c.Status, c.Field, c.Message, c.Fix)
	}
	return b.String()
}

func freshRig(t testing.TB, mode job.Mode, spec string) *rig {
	g := newRig(t, sim.Options{ConsistencyByID: -1, ConsistencyByList: -1}, mode, spec)
	g.job.Config.InfraConfig = job.InfraConfig{}
	return g
}

func TestChecksOfAnOrdinaryJob(t *testing.T) {
	for _, c := range []struct{ spec, instanceType, image string }{
		{plainSpec, "t3.medium", "ubuntu"},
		{`{"pool":{"size":{"vcpus":2,"memoryGiB":4,"arch":"arm64"}}}`, "t4g.medium", "arm64"},
		{`{"pool":{"image":"al2023"}}`, "t3.medium", "al2023"},
		{`{"pool":{"instanceType":"m7i.large"}}`, "m7i.large", "ubuntu"},
	} {
		t.Run(c.instanceType+" "+c.image, func(t *testing.T) {
			g := freshRig(t, job.ModeCreate, c.spec)
			got := g.checks(pipeline.Apply)
			for _, ch := range got {
				if ch.Status != cloud.CheckOK || ch.Message == "" {
					t.Errorf("%s", show([]cloud.Check{ch}))
				}
			}
			for _, name := range []string{"account", "instance type", "image", "overlap with other networks", "VPC quota", "elastic IP quota", "vCPU quota", "derived names", "bootstrap script"} {
				if !has(got, cloud.CheckOK, name) {
					t.Errorf("no check of the %s in\n%s", name, show(got))
				}
			}
			ic := g.job.Config.InfraConfig
			if ic.InstanceType != c.instanceType || !strings.Contains(ic.ImageName, c.image) || ic.ImageID == "" || ic.RootDevice == "" || len(ic.Zones) != 2 {
				t.Errorf("resolved %+v", ic)
			}
			reads, changes := g.calls(0)
			if sum(changes) > 0 || sum(reads) > 20 {
				t.Errorf("%d changes, %d reads %v", sum(changes), sum(reads), reads)
			}
		})
	}
}

// Once things are made, what was resolved stays, and little is read.
func TestChecksAreNotRepeatedForWhatIsMade(t *testing.T) {
	g := freshRig(t, job.ModeCreate, plainSpec)
	g.checks(pipeline.Apply)
	resolved := g.job.Config.InfraConfig
	g.up()
	g.objects[kindLaunchTemplate+"/vm"] = job.Object{Kind: kindLaunchTemplate, Key: "vm", State: job.ObjectCreated, ID: "lt-1"}
	g.objects[kindInstance+"/"+vmpool.Key(1)] = job.Object{Kind: kindInstance, Key: vmpool.Key(1), State: job.ObjectCreated, ID: "i-1"}
	since := g.mark()
	for _, mode := range []pipeline.Mode{pipeline.Apply, pipeline.Verify} {
		g.checks(mode)
	}
	ic := g.job.Config.InfraConfig
	if ic.ImageID != resolved.ImageID || ic.InstanceType != resolved.InstanceType || ic.Zones[0] != resolved.Zones[0] {
		t.Errorf("resolved again: %+v", ic)
	}
	if reads, _ := g.calls(since); sum(reads) > 2 {
		t.Errorf("read %v", reads)
	}
}

func TestChecksThatFail(t *testing.T) {
	const failing = cloud.CheckFails
	for _, c := range []struct {
		name, spec string
		prepare    func(context.Context, *rig)
		status     cloud.CheckStatus
		says       []string
	}{
		{"no VPC left", plainSpec, quotaOf("vpc", "L-F678F1CE", 1), failing, []string{"VPC quota", "is 1", "1 are in use", "1 more"}},
		{"no address left", `{"network":{"nat":"per_zone"}}`, quotaOf("ec2", "L-0263D0A3", 1), failing, []string{"elastic IP quota", "config.spec.network.nat", "wants 2 more"}},
		{"too few vCPUs", `{"pool":{"count":3}}`, quotaOf("ec2", "L-1216C47A", 5), failing, []string{"vCPU quota", "is 5", "wants 6 more"}},
		{"no such type", `{"pool":{"instanceType":"t3.gigantic"}}`, nil, failing, []string{"config.spec.pool.instanceType", "t3.gigantic", "no zone"}},
		{"no such image", `{"pool":{"image":"ami-0123456789abcdef0"}}`, nil, failing, []string{"config.spec.pool.image", "ami-0123456789abcdef0"}},
		{"more VMs than addresses", `{"pool":{"mode":"asg","max":500},"network":{"cidr":"10.9.0.0/24"}}`, nil, failing, []string{"config.spec.network.cidr", "hold 118 VMs", "500"}},
		{"another account now", plainSpec, func(_ context.Context, g *rig) { g.job.Config.InfraConfig.Account = "999999999999" }, failing, []string{"account", "999999999999", "123456789012"}},
		{"overlap with a VPC", `{"network":{"cidr":"10.77.0.0/18"}}`, func(ctx context.Context, g *rig) { g.vpc(ctx, "10.77.0.0/16") }, cloud.CheckWarning, []string{"10.77.0.0/16", "config.spec.network.cidr"}},
		{"overlap with a peered VPC", `{"network":{"cidr":"10.77.128.0/17"}}`, func(ctx context.Context, g *rig) {
			g.peer(ctx, g.vpc(ctx, "10.77.0.0/16"), g.vpc(ctx, "10.78.0.0/16"))
		}, failing, []string{"10.77.0.0/16", "pcx-"}},
		{"a script that is too long", `{"startupScript":"` + noise(40000) + `"}`, nil, failing, []string{"config.spec.startupScript", "16384"}},
		{"a certificate of another region", balancerSpec(`"certificate":"arn:aws:acm:eu-west-1:123456789012:certificate/x"`), nil, failing, []string{"eu-west-1", "us-east-1", "certificate"}},
		{"a certificate that is not there", balancerSpec(`"certificate":"arn:aws:acm:us-east-1:123456789012:certificate/12345678-1234-1234-1234-123456789012"`), nil, failing, []string{"does not exist", "certificate"}},
		{"no such zone", balancerSpec(`"plainHTTP":true,"dns":{"zone":"nowhere.test","record":"shop"}`), nil, failing, []string{"nowhere.test", "config.spec.loadBalancer.dns.zone"}},
		{"no such zone ID", balancerSpec(`"plainHTTP":true,"dns":{"zone":"Z0123456789","record":"shop"}`), nil, failing, []string{"Z0123456789"}},
		{"two zones of one name", balancerSpec(`"plainHTTP":true,"dns":{"zone":"example.test","record":"shop"}`), func(ctx context.Context, g *rig) {
			g.zone(ctx, "example.test", "")
			g.zone(ctx, "example.test", "")
		}, failing, []string{"2 hosted zones", "example.test", "Give the ID"}},
		{"only a private zone", balancerSpec(`"plainHTTP":true,"dns":{"zone":"example.test","record":"shop"}`), func(ctx context.Context, g *rig) {
			g.zone(ctx, "example.test", g.vpc(ctx, "10.80.0.0/16"))
		}, failing, []string{"private", "example.test"}},
		{"somebody's record", balancerSpec(`"plainHTTP":true,"dns":{"zone":"example.test","record":"shop"}`), func(ctx context.Context, g *rig) {
			g.record(ctx, g.zone(ctx, "example.test", ""), "shop.example.test")
		}, failing, []string{"shop.example.test", "not taken over"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := freshRig(t, job.ModeCreate, c.spec)
			if c.prepare != nil {
				c.prepare(anything(t.Context()), g)
			}
			got := g.checks(pipeline.Plan)
			if !has(got, c.status, c.says...) {
				t.Errorf("nothing says %q in\n%s", c.says, show(got))
			}
			for _, ch := range got {
				if ch.Status == failing && (ch.Field == "" || ch.Fix == "") {
					t.Errorf("a failure without field or fix: %s", show([]cloud.Check{ch}))
				}
				if ch.Status == failing && c.status != failing {
					t.Errorf("fails: %s", show([]cloud.Check{ch}))
				}
			}
		})
	}
}

// What cannot be asked is not checked, never passed and never in the way.
func TestUncheckedNeverBlocks(t *testing.T) {
	denied := sim.Fault{Kind: sim.FaultError, Code: "AccessDeniedException", Status: 400, Message: "not allowed", Count: -1}
	unknown := sim.Fault{Kind: sim.FaultRaw, Status: 501, Body: "<html>not implemented</html>", Count: -1}
	for _, c := range []struct {
		name    string
		service string
		op      string
		fault   sim.Fault
		check   string
	}{
		{"quotas denied", "servicequotas", "", denied, "VPC quota"},
		{"quotas unknown", "servicequotas", "", unknown, "vCPU quota"},
		{"offerings unknown", "ec2", "DescribeInstanceTypeOfferings", unknown, "instance type"},
		{"types denied", "ec2", "DescribeInstanceTypes", sim.Fault{Kind: sim.FaultError, Code: "UnauthorizedOperation", Status: 403, Count: -1}, "instance type"},
		{"peerings unknown", "ec2", "DescribeVpcPeeringConnections", unknown, "peering"},
		{"certificates unknown", "acm", "", unknown, "certificate"},
		{"zones denied", "route53", "", sim.Fault{Kind: sim.FaultError, Code: "AccessDenied", Status: 403, Count: -1}, "DNS zone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			g := freshRig(t, job.ModeCreate, balancerSpec(`"certificate":"arn:aws:acm:us-east-1:123456789012:certificate/12345678-1234-1234-1234-123456789012","dns":{"zone":"example.test","record":"shop"}`))
			ctx := anything(t.Context())
			g.zone(ctx, "example.test", "")
			f := c.fault
			f.Service, f.Operation = c.service, c.op
			g.fault(f)
			got := g.checks(pipeline.Apply)
			g.hit()
			if !has(got, cloud.CheckUnchecked, c.check) || has(got, cloud.CheckFails, c.check) {
				t.Errorf("the check of the %s is not left open in\n%s", c.check, show(got))
			}
			if ic := g.job.Config.InfraConfig; ic.InstanceType == "" || len(ic.Zones) != 2 || ic.ImageID == "" {
				t.Errorf("resolved %+v", ic)
			}
		})
	}
}

// Without the public parameter, the image is found by owner and name.
func TestImageWithoutParameter(t *testing.T) {
	for _, image := range []string{"ubuntu-24.04", "al2023"} {
		g := freshRig(t, job.ModeCreate, `{"pool":{"image":"`+image+`"}}`)
		g.checks(pipeline.Apply)
		want := g.job.Config.InfraConfig.ImageID
		g.fault(sim.Fault{Kind: sim.FaultError, Service: "ssm", Code: "ParameterNotFound", Status: 400, Count: -1})
		g.job.Config.InfraConfig = job.InfraConfig{}
		got := g.checks(pipeline.Apply)
		g.hit()
		if ic := g.job.Config.InfraConfig; ic.ImageID != want || ic.RootDevice == "" {
			t.Errorf("%s: got %+v, want image %s\n%s", image, ic, want, show(got))
		}
	}
}

// Credentials that do not work are an error, not a list of checks.
func TestChecksWithoutCredentials(t *testing.T) {
	g := freshRig(t, job.ModeCreate, plainSpec)
	g.fault(sim.Fault{Kind: sim.FaultError, Code: "ExpiredToken", Status: 403, Count: -1})
	_, err := g.p.Check(t.Context(), g.run(pipeline.Apply))
	if !pipeline.Is(err, pipeline.Expired) {
		t.Errorf("got %v", err)
	}
}

func TestCertificateStates(t *testing.T) {
	g := freshRig(t, job.ModeCreate, plainSpec)
	ctx := anything(t.Context())
	out, err := g.p.acm.RequestCertificate(ctx, &acm.RequestCertificateInput{DomainName: aws.String("shop.example.test"), ValidationMethod: "DNS"})
	if err != nil {
		t.Fatal(err)
	}
	g.job.Config.Spec = []byte(balancerSpec(`"certificate":"` + *out.CertificateArn + `"`))
	if got := g.checks(pipeline.Apply); !has(got, cloud.CheckFails, "certificate", "PENDING_VALIDATION") {
		t.Errorf("got\n%s", show(got))
	}
}

// The zone with the longest name that the record falls under is the one that
// resolvers ask (L4), and a public load balancer passes private zones over (L2).
func TestZoneChoice(t *testing.T) {
	g := freshRig(t, job.ModeCreate, plainSpec)
	ctx := anything(t.Context())
	outer := g.zone(ctx, "x.test", "")
	inner := g.zone(ctx, "int.x.test", "")
	inside := g.zone(ctx, "x.test", g.vpc(ctx, "10.81.0.0/16"))
	for _, c := range []struct {
		zone, record, scheme, want, fqdn string
	}{
		{"x.test", "shop", job.SchemePublic, outer, "shop.x.test"},
		{"X.test.", "@", job.SchemePublic, outer, "x.test"},
		{"x.test", "shop.int", job.SchemePublic, inner, "shop.int.x.test"},
		{"x.test", "*.int", job.SchemePublic, inner, "*.int.x.test"},
		{"x.test", "print", job.SchemePublic, outer, "print.x.test"},
		{"x.test", "shop", job.SchemeInternal, inside, "shop.x.test"},
		{inner, "shop", job.SchemePublic, inner, "shop.int.x.test"},
		{"/hostedzone/" + inner, "shop", job.SchemePublic, inner, "shop.int.x.test"},
	} {
		z, err := g.p.hostedZone(ctx, job.DNS{Zone: c.zone, Record: c.record}, c.scheme)
		if err != nil || z.id != c.want || z.record != c.fqdn {
			t.Errorf("%s in %s (%s): got %+v, %v; want %s %s", c.record, c.zone, c.scheme, z, err, c.want, c.fqdn)
		}
	}
	if _, err := g.p.hostedZone(ctx, job.DNS{Zone: inside, Record: "shop"}, job.SchemePublic); fatal(err) == nil {
		t.Errorf("a private zone was taken for a public load balancer: %v", err)
	}
}

func quotaOf(service, code string, value float64) func(context.Context, *rig) {
	return func(_ context.Context, g *rig) {
		if !g.world.SetQuota("aws", service, code, "123456789012", "us-east-1", value) {
			g.Fatalf("the simulation has no quota %s %s", service, code)
		}
	}
}

func balancerSpec(fields string) string {
	return `{"pool":{"count":2},"loadBalancer":{` + fields + `}}`
}

// noise is text that does not compress.
func noise(n int) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	var b strings.Builder
	x := uint64(88172645463325252)
	for range n {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b.WriteByte(letters[x%64])
	}
	return b.String()
}

func (g *rig) vpc(ctx context.Context, cidr string) string {
	g.Helper()
	out, err := g.p.ec2.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: aws.String(cidr)})
	if err != nil {
		g.Fatal(err)
	}
	return *out.Vpc.VpcId
}

func (g *rig) peer(ctx context.Context, a, b string) {
	g.Helper()
	_, err := g.p.ec2.CreateVpcPeeringConnection(ctx, &ec2.CreateVpcPeeringConnectionInput{VpcId: aws.String(a), PeerVpcId: aws.String(b)})
	if err != nil {
		g.Fatal(err)
	}
}

func (g *rig) zone(ctx context.Context, name, vpcID string) string {
	g.Helper()
	in := &route53.CreateHostedZoneInput{Name: aws.String(name), CallerReference: aws.String(job.NewID("ref"))}
	if vpcID != "" {
		in.VPC = &r53types.VPC{VPCId: aws.String(vpcID), VPCRegion: r53types.VPCRegionUsEast1}
		in.HostedZoneConfig = &r53types.HostedZoneConfig{PrivateZone: true}
	}
	out, err := g.p.r53.CreateHostedZone(ctx, in)
	if err != nil {
		g.Fatal(err)
	}
	return strings.TrimPrefix(*out.HostedZone.Id, "/hostedzone/")
}

func (g *rig) record(ctx context.Context, zone, name string) {
	g.Helper()
	_, err := g.p.r53.ChangeResourceRecordSets(ctx, &route53.ChangeResourceRecordSetsInput{HostedZoneId: aws.String(zone), ChangeBatch: &r53types.ChangeBatch{Changes: []r53types.Change{{
		Action: r53types.ChangeActionCreate,
		ResourceRecordSet: &r53types.ResourceRecordSet{
			Name: aws.String(name), Type: r53types.RRTypeA, TTL: aws.Int64(60), ResourceRecords: []r53types.ResourceRecord{{Value: aws.String("192.0.2.1")}},
		},
	}}}})
	if err != nil {
		g.Fatal(err)
	}
}
