package aws

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

const (
	ownAccount     = "123456789012"
	partnerAccount = "111122223333"
)

// names is a public DNS of the test's own.
type names map[string][]string

func (n names) LookupNS(_ context.Context, zone string) ([]*net.NS, error) {
	hosts, ok := n[strings.TrimSuffix(zone, ".")]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: zone, IsNotFound: true}
	}
	var out []*net.NS
	for _, h := range hosts {
		out = append(out, &net.NS{Host: h})
	}
	return out, nil
}

// newNet is a rig for a network job, with a second cloud account, partner, and a
// public DNS that knows nothing.
func newNet(t testing.TB, o sim.Options, mode job.Mode, spec string) vmRig {
	t.Helper()
	g := newRigOf(t, o, job.Network, mode, spec)
	g.job.Name = "hub"
	g.world.Clock.Stop()
	clouds := New(Options{
		Pace: quick, Resolver: names{},
		LoadConfig: Static(g.url, "AKIAIOSFODNN7EXAMPLE", "secret", Account{Name: "partner", AccessKey: "AKIAI44QH8DHBEXAMPLE", SecretKey: "secret"}),
	})
	var err error
	if g.p, err = clouds.provider(t.Context(), "org_1", "default", "us-east-1"); err != nil {
		t.Fatal(err)
	}
	g.job.Config.InfraConfig = job.InfraConfig{Account: ownAccount}
	return vmRig{g}
}

// in is a provider of another account or region, to do what its owner does.
func (g vmRig) in(account, region string) *Provider {
	g.Helper()
	name := map[string]string{ownAccount: "default", partnerAccount: "partner"}[account]
	p, err := g.p.elsewhere(g.Context(), name, region)
	if err != nil {
		g.Fatal(err)
	}
	return p
}

// peerNet is a network of somebody's, with a subnet and a route table of its own.
func (g vmRig) peerNet(account, region, block, name string) string {
	g.Helper()
	p, ctx := g.in(account, region), anything(g.Context())
	out, err := p.ec2.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: aws.String(block), TagSpecifications: ec2Specs(map[string]string{"Name": name}, ec2types.ResourceTypeVpc)})
	if err != nil {
		g.Fatal(err)
	}
	if _, err := p.ec2.CreateRouteTable(ctx, &ec2.CreateRouteTableInput{VpcId: out.Vpc.VpcId}); err != nil {
		g.Fatal(err)
	}
	g.world.Step(30 * time.Second)
	return *out.Vpc.VpcId
}

// routesTo are the targets of the routes to a range in a network's tables.
func (g vmRig) routesTo(p *Provider, vpc, block string) (targets []string) {
	g.Helper()
	out, err := p.ec2.DescribeRouteTables(g.Context(), &ec2.DescribeRouteTablesInput{Filters: []ec2types.Filter{filter("vpc-id", vpc)}})
	if err != nil {
		g.Fatal(err)
	}
	for _, t := range out.RouteTables {
		for _, rt := range t.Routes {
			if aws.ToString(rt.DestinationCidrBlock) == block {
				targets = append(targets, routeTarget(rt))
			}
		}
	}
	return targets
}

// ledger is the ID of everything that the job has made.
func (g vmRig) ledger() []string {
	var ids []string
	for _, o := range g.objects {
		if o.State == job.ObjectCreated {
			ids = append(ids, o.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// netSteps is the network pipeline's cloud part, and its way back.
func (g vmRig) netSteps() []step {
	return []step{g.check, g.p.EnsureNetwork, g.p.EnsurePeerings, g.p.EnsureDNSZones}
}

func (g vmRig) netGone() []step {
	return []step{g.p.RemoveDNSZones, g.p.RemovePeerings, g.p.RemoveNetwork}
}

// stuck runs a step until it stops or waits for longer than a while, and returns
// its verdict.
func (g vmRig) stuck(f step, while time.Duration) error {
	g.Helper()
	ctx := anything(g.Context())
	var err error
	for waitedFor := time.Duration(0); waitedFor < while; {
		r := g.run(pipeline.Apply)
		if err = f(ctx, r); err == nil {
			return nil
		}
		d := pipeline.Judge(err, 0)
		if d.Action != pipeline.Park {
			return err
		}
		g.world.Step(d.After)
		waitedFor += d.After
	}
	return err
}
