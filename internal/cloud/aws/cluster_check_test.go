package aws

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// look is what the check says of a spec, without anything made.
func (g clusterRig) look(spec string) []cloud.Check {
	g.Helper()
	g.job.Config = job.Config{Spec: []byte(spec), InfraConfig: job.InfraConfig{Account: "123456789012"}}
	if err := g.job.Validate(); err != nil {
		g.Fatal(err)
	}
	g.another()
	got, err := g.p.Check(pipeline.WithGate(g.Context(), pipeline.ReadOnly), g.run(pipeline.Apply))
	if err != nil {
		g.Fatalf("check: %v\n%s", err, g.books(10))
	}
	return got
}

// named switches DNS host names on in a network of others, as a cluster wants them.
func (g clusterRig) named(n theirs) {
	g.Helper()
	_, err := g.p.ec2.ModifyVpcAttribute(anything(g.Context()), &ec2.ModifyVpcAttributeInput{VpcId: &n.vpc, EnableDnsHostnames: &ec2types.AttributeBooleanValue{Value: aws.Bool(true)}})
	if err != nil {
		g.Fatal(err)
	}
}

func (g clusterRig) fails(checks []cloud.Check) (out []string) {
	for _, c := range checks {
		if c.Status == cloud.CheckFails {
			out = append(out, c.Field+": "+c.Message)
			if c.Fix == "" {
				g.Errorf("%s fails without a way out", c.Name)
			}
		}
	}
	return out
}

// An ordinary job passes every check, and leaves everything resolved.
func TestChecksOfACluster(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, mixedSpec)
	got := g.look(mixedSpec)
	for _, c := range got {
		if c.Status == cloud.CheckFails || c.Message == "" {
			t.Errorf("%s", show([]cloud.Check{c}))
		}
	}
	for _, name := range []string{"account", "reach of the API server", "node pools", "overlap with other networks", "addresses for nodes and pods", "range of the Services", "VPC quota", "elastic IP quota", "cluster quota", "vCPU quota", "spot vCPU quota", "derived names"} {
		if !slices.ContainsFunc(got, func(c cloud.Check) bool { return c.Name == name && c.Status == cloud.CheckOK }) {
			t.Errorf("no check of the %s in\n%s", name, show(got))
		}
	}
	c := g.info()
	if c.Version == "" || c.SupportUntil == "" || c.Extended || !c.Public || fmt.Sprint(c.PublicCIDRs) != "[203.0.113.0/24]" || c.ServiceCIDR != "172.20.0.0/16" {
		t.Errorf("the cluster is %+v", c)
	}
	if len(g.infra().Zones) != 3 || g.infra().NetworkPlan == nil {
		t.Errorf("zones %v, plan %v", g.infra().Zones, g.infra().NetworkPlan)
	}
	workers, arm := c.Pool("workers"), c.Pool("arm")
	if workers == nil || workers.InstanceType != "t3.large" || workers.Arch != "amd64" || len(workers.Zones) != 3 || workers.Min != 2 || workers.Desired != 3 || workers.Max != 6 || workers.Spot {
		t.Errorf("workers are %+v", workers)
	}
	if arm == nil || arm.InstanceType != "t4g.large" || arm.Arch != "arm64" || !arm.Spot {
		t.Errorf("arm is %+v", arm)
	}
}

// Who reaches the API server follows from how the provisioner does, and is never everybody.
func TestReachOfAClusterIsChecked(t *testing.T) {
	t.Parallel()
	const named = `{"endpoint":{"publicCidrs":["198.51.100.0/24"]}}`
	for name, c := range map[string]struct {
		reach  job.Reach
		spec   string
		fails  bool
		public string
	}{
		"direct":                     {job.Reach{Mode: job.ReachDirect}, `{}`, false, "[]"},
		"direct, ranges named":       {job.Reach{Mode: job.ReachDirect}, named, false, "[198.51.100.0/24]"},
		"public":                     {publicReach, `{}`, false, "[203.0.113.0/24]"},
		"public, ranges named":       {publicReach, named, false, "[198.51.100.0/24 203.0.113.0/24]"},
		"public without ranges":      {job.Reach{Mode: job.ReachPublic}, `{}`, true, "[]"},
		"nothing said":               {job.Reach{}, named, true, "[]"},
		"tunnel, which AWS has none": {job.Reach{Mode: job.ReachTunnel}, `{}`, true, "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newCluster(t, sim.Options{}, job.ModeCreate, c.spec)
			g.p = at(t, g.url, Options{Pace: quick, Reach: c.reach})
			got := g.look(c.spec)
			if has(got, cloud.CheckFails, "config.spec.endpoint", "--reach direct", "--reach public:") != c.fails {
				t.Errorf("got\n%s", show(got))
			}
			if info := g.info(); fmt.Sprint(info.PublicCIDRs) != c.public || info.Public != (c.public != "[]") {
				t.Errorf("public %v, from %v", info.Public, info.PublicCIDRs)
			}
		})
	}
}

// A version is the default, or the one asked for; extended support is taken on an
// explicit word alone.
func TestVersionsAreChecked(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
	offered, err := g.p.clusterVersions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var preset, extended string
	for _, v := range offered {
		if v.preset {
			preset = v.version
		}
		if !v.standard {
			extended = v.version
		}
	}
	if preset == "" || extended == "" {
		t.Fatalf("offered: %+v", offered)
	}
	if got := g.look(`{}`); has(got, cloud.CheckFails, "version") || g.info().Version != preset || g.info().Extended {
		t.Errorf("default: %+v\n%s", g.info(), show(got))
	}
	if got := g.look(fmt.Sprintf(`{"version":%q}`, offered[0].version)); has(got, cloud.CheckFails, "version") || g.info().Version != offered[0].version || g.info().SupportUntil != offered[0].until {
		t.Errorf("newest: %+v\n%s", g.info(), show(got))
	}
	if got := g.look(fmt.Sprintf(`{"version":%q}`, extended)); !has(got, cloud.CheckFails, "config.spec.version", "billed extra", "extendedSupport") {
		t.Errorf("extended, unasked:\n%s", show(got))
	}
	if got := g.look(fmt.Sprintf(`{"version":%q,"extendedSupport":true}`, extended)); !has(got, cloud.CheckWarning, "billed extra") || !g.info().Extended || g.info().Version != extended {
		t.Errorf("extended, asked for: %+v\n%s", g.info(), show(got))
	}
	if got := g.look(`{"version":"1.19"}`); !has(got, cloud.CheckFails, "config.spec.version", "does not offer Kubernetes 1.19", offered[0].version) {
		t.Errorf("never heard of:\n%s", show(got))
	}
	// A version whose standard support is about to end is told of.
	until, err := time.Parse(time.DateOnly, offered[0].until)
	if err != nil {
		t.Fatal(err)
	}
	g.world.Step(until.AddDate(0, 0, -30).Sub(g.world.Clock.Now()))
	if got := g.look(fmt.Sprintf(`{"version":%q}`, offered[0].version)); !has(got, cloud.CheckWarning, "ends on "+offered[0].until) {
		t.Errorf("at its end:\n%s", show(got))
	}
	g.fault(sim.Fault{Kind: sim.FaultError, Operation: "DescribeClusterVersions", Code: "AccessDeniedException", Status: 403})
	if got := g.look(`{"version":"1.35"}`); !has(got, cloud.CheckUnchecked, "Kubernetes version") || g.info().Version != "1.35" {
		t.Errorf("not told: %+v\n%s", g.info(), show(got))
	}
}

// A request that EKS would refuse, or that could never work, is refused before
// anything is made (failure kinds J1, J7, J8, G2).
func TestClusterChecksThatFail(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec  string
		quota map[string]float64 // by code of Service Quotas
		says  []string
	}{
		"network too small":     {`{"network":{"cidr":"10.70.0.0/24"},"nodePools":[{"name":"workers","desired":20,"max":20}]}`, nil, []string{"config.spec.network.cidr", "addresses"}},
		"type unknown":          {`{"nodePools":[{"name":"workers","instanceType":"t3.gigantic"}]}`, nil, []string{"config.spec.nodePools[0].instanceType", "t3.gigantic"}},
		"vCPUs":                 {clusterSpec, map[string]float64{"ec2/L-1216C47A": 5}, []string{"config.spec.nodePools", "vCPU quota", "L-1216C47A"}},
		"spot vCPUs":            {mixedSpec, map[string]float64{"ec2/L-34B43A08": 1}, []string{"config.spec.nodePools", "spot vCPU quota"}},
		"clusters":              {clusterSpec, map[string]float64{"eks/L-1194D53C": 0}, []string{"cluster quota", "L-1194D53C"}},
		"administrator unknown": {`{"admins":["arn:aws:iam::123456789012:role/nobody"]}`, nil, []string{"config.spec.admins[0]", "nobody"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
			for code, value := range c.quota {
				service, code, _ := strings.Cut(code, "/")
				if !g.world.SetQuota("aws", service, code, "123456789012", "us-east-1", value) {
					t.Fatalf("there is no quota %s", code)
				}
			}
			got := g.look(c.spec)
			if !has(got, cloud.CheckFails, c.says...) {
				t.Errorf("got\n%s", show(got))
			}
		})
	}
}

// Zones without room for a control plane are left out before anything is made, and the
// Services' range keeps clear of the network's (failure kinds J1, J8).
func TestClusterPlacement(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreate, clusterSpec)
	out, err := g.p.ec2.DescribeAvailabilityZones(t.Context(), &ec2.DescribeAvailabilityZonesInput{})
	if err != nil {
		t.Fatal(err)
	}
	refused := ""
	for _, z := range out.AvailabilityZones {
		if aws.ToString(z.ZoneId) == "use1-az3" {
			refused = aws.ToString(z.ZoneName)
		}
	}
	if g.look(clusterSpec); refused == "" || slices.Contains(g.infra().Zones, refused) || len(g.infra().Zones) != 3 {
		t.Errorf("zones %v, and EKS refuses %q", g.infra().Zones, refused)
	}
	if got := g.look(`{"network":{"cidr":"172.20.0.0/16"}}`); len(g.fails(got)) > 0 || g.info().ServiceCIDR != "10.100.0.0/16" {
		t.Errorf("Services at %s\n%s", g.info().ServiceCIDR, show(got))
	}
}

// A zone that EKS refuses is left out of the control plane, where two others are left;
// otherwise the check says so (failure kind J1).
func TestZoneRefusedAtCreation(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreateInExisting, existingClusterPlaceholder)
	ctx := anything(t.Context())
	n := g.theirs(ctx)
	g.named(n)
	zones, err := g.p.ec2.DescribeAvailabilityZones(ctx, &ec2.DescribeAvailabilityZonesInput{})
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(zones.AvailabilityZones, func(z ec2types.AvailabilityZone) bool { return aws.ToString(z.ZoneId) == noControlPlane[0] })
	refused := zones.AvailabilityZones[at].ZoneName
	made, err := g.p.ec2.CreateSubnet(ctx, &ec2.CreateSubnetInput{VpcId: &n.vpc, CidrBlock: aws.String("10.90.9.0/24"), AvailabilityZone: refused})
	if err != nil {
		t.Fatal(err)
	}
	third := aws.ToString(made.Subnet.SubnetId)
	table, err := g.p.ec2.CreateRouteTable(ctx, &ec2.CreateRouteTableInput{VpcId: &n.vpc})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.p.ec2.CreateRoute(ctx, &ec2.CreateRouteInput{RouteTableId: table.RouteTable.RouteTableId, DestinationCidrBlock: aws.String(anywhere), NatGatewayId: &n.nat}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.p.ec2.AssociateRouteTable(ctx, &ec2.AssociateRouteTableInput{RouteTableId: table.RouteTable.RouteTableId, SubnetId: &third}); err != nil {
		t.Fatal(err)
	}
	g.world.Step(5 * time.Minute)
	in := func(subnets ...string) string {
		return fmt.Sprintf(`{"existing":{"networkId":%q,"subnetIds":["%s"]}}`, n.vpc, strings.Join(subnets, `","`))
	}
	if got := g.look(in(n.privateA, third)); !has(got, cloud.CheckFails, "two zones", aws.ToString(refused)) {
		t.Errorf("got\n%s", show(got))
	}
	before := g.world.Snapshot()
	if f := g.fails(g.look(in(n.privateA, third, n.privateB))); len(f) > 0 {
		t.Fatal(f)
	}
	g.create()
	c, err := g.p.readCluster(t.Context(), g.info().Name)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.ResourcesVpcConfig.SubnetIds; len(got) != 2 || slices.Contains(got, third) {
		t.Errorf("the control plane stands in %v", got)
	}
	if !slices.ContainsFunc(g.history(), func(e job.Event) bool { return e.Type == "zone.left-out" }) {
		t.Error("the history does not tell of it")
	}
	g.teardown()
	g.equal(before)
}

// A network of others is checked before nodes wait in it for ever (failure kind J11).
func TestExistingNetworkOfAClusterIsChecked(t *testing.T) {
	t.Parallel()
	g := newCluster(t, sim.Options{}, job.ModeCreateInExisting, existingClusterPlaceholder)
	ctx := anything(t.Context())
	n := g.theirs(ctx)
	g.named(n)
	g.world.Step(5 * time.Minute)
	in := func(subnets ...string) string {
		return fmt.Sprintf(`{"existing":{"networkId":%q,"subnetIds":["%s"]}}`, n.vpc, strings.Join(subnets, `","`))
	}
	got := g.look(in(n.privateA, n.privateB))
	if f := g.fails(got); len(f) > 0 || !has(got, cloud.CheckWarning, "kubernetes.io/role/internal-elb", n.privateA) {
		t.Errorf("%v\n%s", f, show(got))
	}
	if g.info().ServiceCIDR != "172.20.0.0/16" {
		t.Errorf("Services at %s", g.info().ServiceCIDR)
	}
	if got := g.look(in(n.privateA)); !has(got, cloud.CheckFails, "two zones", "config.spec.existing.subnetIds") {
		t.Errorf("one zone:\n%s", show(got))
	}
	if got := g.look(in(n.privateA, n.publicB)); !has(got, cloud.CheckFails, "two zones") {
		t.Errorf("one private subnet:\n%s", show(got))
	}
	if got := g.look(in(n.lonely, n.privateB)); !has(got, cloud.CheckFails, n.lonely, "no default route", "ecr.api") {
		t.Errorf("no way out:\n%s", show(got))
	}
	if got := g.look(in(n.privateA, n.privateB)[:len(in(n.privateA, n.privateB))-1] + `,"serviceCidr":"10.90.128.0/20"}`); !has(got, cloud.CheckFails, "config.spec.serviceCidr", "overlaps 10.90.0.0/16") {
		t.Errorf("Services in the network:\n%s", show(got))
	}
	if _, err := g.p.ec2.ModifyVpcAttribute(ctx, &ec2.ModifyVpcAttributeInput{VpcId: &n.vpc, EnableDnsHostnames: &ec2types.AttributeBooleanValue{Value: aws.Bool(false)}}); err != nil {
		t.Fatal(err)
	}
	if got := g.look(in(n.privateA, n.privateB)); !has(got, cloud.CheckFails, "config.spec.existing.networkId", "DNS host names") {
		t.Errorf("no names:\n%s", show(got))
	}
}
