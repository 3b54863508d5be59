package aws

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// Credentials that have expired are renewed by themselves: a read is repeated at
// once, a change comes up as one that waits for credentials, and is made once.
func TestExpiredCredentialsAreRenewed(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreate, fixedSpec)
	g.world.Clock.Stop()
	role := g.role(partnerAccount, "zopday", ownAccount, "xid-1")
	a := assuming(role, "xid-1")
	a.Holder = partnerAccount
	p, err := openAs(t, g.accountsOf(registry{"org_1/ca_1": a}), "org_1", "ca_1")
	if err != nil {
		t.Fatal(err)
	}
	ctx := anything(t.Context())
	list := func() {
		t.Helper()
		if _, err := p.ec2.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{}); err != nil {
			t.Errorf("a read: %v", err)
		}
	}
	assumed := func(want int) {
		t.Helper()
		if n := len(g.world.Books(sim.BookFilter{Operation: "AssumeRole"})); n != want {
			t.Errorf("the role was assumed %d times, want %d", n, want)
		}
	}
	list()
	assumed(1)
	g.world.Step(2 * time.Hour)
	list()
	assumed(2)
	g.world.Step(2 * time.Hour)
	_, err = p.ec2.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})
	if !pipeline.Is(err, pipeline.Expired) {
		t.Errorf("a change with expired credentials: %v", err)
	}
	if d := pipeline.Judge(plain(err), 0); d.Action != pipeline.Again {
		t.Errorf("the job does not wait for credentials: %+v", d)
	}
	if _, err = p.ec2.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")}); err != nil {
		t.Error(err)
	}
	assumed(3)
	made := 0
	for _, e := range g.world.Books(sim.BookFilter{Operation: "CreateVpc"}) {
		if e.Done {
			made++
		}
		if e.Account != partnerAccount {
			t.Errorf("made in %s", e.Account)
		}
	}
	if made != 1 {
		t.Errorf("%d VPCs were made", made)
	}
}

// A whole job lives with credentials that end in its middle.
func TestJobOutlivesItsCredentials(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, fixedSpec)
	role := g.role(ownAccount, "zopday", ownAccount, "xid-1")
	a := assuming(role, "xid-1")
	a.Holder = ownAccount
	var err error
	if g.p, err = openAs(t, g.accountsOf(registry{"org_1/ca_1": a}), "org_1", "ca_1"); err != nil {
		t.Fatal(err)
	}
	before := g.world.Snapshot()
	for _, f := range g.built()[:4] {
		if err := g.try(false, f); err != nil {
			t.Fatal(err)
		}
		g.world.Step(2 * time.Hour)
	}
	g.create()
	g.world.Step(2 * time.Hour)
	g.teardown()
	g.equal(before)
	if n := len(g.world.Books(sim.BookFilter{Operation: "AssumeRole"})); n < 5 {
		t.Errorf("the role was assumed %d times", n)
	}
}

// Credentials that belong to another AWS account between two steps change nothing
// there (failure kind F5).
func TestSwappedCredentialsChangeNothing(t *testing.T) {
	t.Parallel()
	g := newVMs(t, sim.Options{}, fixedSpec)
	var swapped atomic.Bool
	clouds := New(Options{Pace: quick, Accounts: registry{"org_1/default": {Name: "prod", Method: cloud.MethodAmbient, Holder: ownAccount}}, LoadConfig: func(context.Context, string, string) (aws.Config, error) {
		return aws.Config{BaseEndpoint: aws.String(g.url), Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			c := aws.Credentials{AccessKeyID: ownKey, SecretAccessKey: "secret"}
			if swapped.Load() {
				c.AccessKeyID = partnerKey
			}
			return c, nil
		})}, nil
	}})
	var err error
	if g.p, err = openAs(t, clouds, "org_1", "default"); err != nil {
		t.Fatal(err)
	}
	if err := g.try(false, g.check, g.p.EnsureNetwork); err != nil {
		t.Fatal(err)
	}
	swapped.Store(true)
	err = g.try(false, g.p.EnsureIdentity)
	f := asFatal(err)
	if f == nil || f.Problem.Code != "wrong-account" || !strings.Contains(f.Problem.Message, ownAccount) || !strings.Contains(f.Problem.Message, partnerAccount) || !strings.Contains(f.Problem.Message, "prod (default)") {
		t.Errorf("the verdict is %v", err)
	}
	for _, e := range g.world.Books(sim.BookFilter{Account: partnerAccount}) {
		if e.Mutating {
			t.Errorf("%s %s was sent to the other account", e.Service, e.Operation)
		}
	}
	swapped.Store(false)
	g.create()
}
