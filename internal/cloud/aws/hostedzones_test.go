package aws

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

const zonesSpec = `{"dnsZones":[{"name":"shop.example.com","visibility":"public"},{"name":"shop.example.com"}]}`

// The public zone is compared with what the internet says, and whatever that is,
// the job goes on.
func TestDelegation(t *testing.T) {
	t.Parallel()
	g := newNet(t, sim.Options{}, job.ModeCreate, zonesSpec)
	before := g.world.Snapshot()
	g.create()
	zone := g.infra().DNSZones[0]
	if len(zone.NameServers) != 4 || g.infra().DNSZones[1].Delegation != "" {
		t.Fatalf("zones %+v", g.infra().DNSZones)
	}
	if !strings.HasPrefix(zone.Delegation, "not delegated: nobody is sent to it; set these NS records for shop.example.com in the zone example.com") || !strings.Contains(zone.Delegation, zone.NameServers[3]) {
		t.Errorf("delegation %q", zone.Delegation)
	}
	for _, c := range []struct {
		resolver Resolver
		want     string
	}{
		{names{"shop.example.com": {zone.NameServers[1] + ".", strings.ToUpper(zone.NameServers[0]), zone.NameServers[2], zone.NameServers[3]}}, "delegated"},
		{names{"shop.example.com": {"ns1.elsewhere.test."}}, "not delegated: the internet is sent to ns1.elsewhere.test; set these NS records"},
		{broken{}, "not checked: the resolver is broken"},
		{nil, "not checked: the endpoint is not AWS's own"},
	} {
		g.p.resolver = c.resolver
		g.another()
		g.create()
		if got := g.infra().DNSZones[0].Delegation; !strings.HasPrefix(got, c.want) {
			t.Errorf("delegation %q, want %q", got, c.want)
		}
	}
	if got := parentOf("example.com"); got != "at the domain's registrar" {
		t.Errorf("example.com is delegated %s", got)
	}
	g.teardown()
	g.equal(before)
}

type broken struct{}

func (broken) LookupNS(context.Context, string) ([]*net.NS, error) {
	return nil, errors.New("the resolver is broken")
}

// Records that others made in the job's zone keep it, and are named; once they
// are gone the teardown goes on (L5).
func TestForeignRecords(t *testing.T) {
	t.Parallel()
	g := newNet(t, sim.Options{}, job.ModeCreate, zonesSpec)
	before := g.world.Snapshot()
	g.create()
	change := func(action r53types.ChangeAction) {
		t.Helper()
		_, err := g.p.r53.ChangeResourceRecordSets(anything(t.Context()), &route53.ChangeResourceRecordSetsInput{HostedZoneId: aws.String(g.infra().DNSZones[0].ID),
			ChangeBatch: &r53types.ChangeBatch{Changes: []r53types.Change{{Action: action, ResourceRecordSet: &r53types.ResourceRecordSet{
				Name: aws.String("byhand.shop.example.com"), Type: r53types.RRTypeTxt, TTL: aws.Int64(60), ResourceRecords: []r53types.ResourceRecord{{Value: aws.String(`"by hand"`)}},
			}}}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	change(r53types.ChangeActionCreate)
	g.another()
	r := g.run(pipeline.Apply)
	r.Down = true
	err := g.p.RemoveDNSZones(anything(t.Context()), r)
	if b := blockedBy(err); b == nil || !strings.Contains(b.Error(), "byhand.shop.example.com TXT") {
		t.Fatalf("got %v", err)
	}
	change(r53types.ChangeActionDelete)
	g.teardown()
	g.equal(before)
}

// A public zone of that name that somebody has is never taken over, up or down
// (B5, L1); a private one elsewhere is no matter (L2).
func TestZonesOfOneName(t *testing.T) {
	t.Parallel()
	g := newNet(t, sim.Options{}, job.ModeCreate, zonesSpec)
	theirs := g.zoned("shop.example.com")
	before := g.world.Snapshot()
	if got := g.checks(pipeline.Plan); !has(got, cloud.CheckFails, theirs, "shop.example.com") {
		t.Errorf("nothing names %s in\n%s", theirs, show(got))
	}
	g.job.Config.Spec = []byte(zonesSpec)
	if err := g.try(false, g.p.EnsureNetwork); err != nil {
		t.Fatal(err)
	}
	err := g.try(false, g.p.EnsureDNSZones)
	if f := fatal(err); f == nil || f.Problem.Code != "name-taken" || !strings.Contains(f.Problem.Message, theirs) {
		t.Fatalf("got %v", err)
	}
	g.world.Step(time.Minute)
	g.teardown()
	g.equal(before)
}
