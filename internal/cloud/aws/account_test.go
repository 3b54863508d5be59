package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// registry are cloud accounts by organisation and ID.
type registry map[string]cloud.Account

func (r registry) Account(_ context.Context, org, id string, at job.Provider) (cloud.Account, error) {
	a, ok := r[org+"/"+id]
	if !ok || at != job.AWS {
		return cloud.Account{}, cloud.ErrNoAccount
	}
	a.OrgID, a.ID, a.Provider = org, id, at
	return a, nil
}

// accountsOf opens accounts at the rig's cloud.
func (g *rig) accountsOf(r registry) *Clouds {
	return New(Options{Pace: quick, Accounts: r, Reach: publicReach, LoadConfig: Static(g.url, "AKIAIOSFODNN7EXAMPLE", "secret")})
}

func openAs(t testing.TB, c *Clouds, org, id string) (*Provider, error) {
	t.Helper()
	p, err := c.Open(t.Context(), &job.Job{OrgID: org, CloudAccountID: id, Region: "us-east-1"})
	if err != nil {
		return nil, err
	}
	return p.(*Provider), nil
}

// role makes a role in an account that lets one account in, with an external ID.
func (g *rig) role(account, name, trusted, externalID string) string {
	g.Helper()
	trust := fmt.Sprintf(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::%s:root"},"Action":"sts:AssumeRole","Condition":{"StringEquals":{"sts:ExternalId":%q}}}]}`, trusted, externalID)
	if _, err := g.world.Invoke("aws", "iam", "CreateRole", account, "us-east-1", map[string]any{"RoleName": name, "AssumeRolePolicyDocument": trust}); err != nil {
		g.Fatal(err)
	}
	g.world.Step(time.Minute) // until it has spread
	return "arn:aws:iam::" + account + ":role/" + name
}

func assuming(role, externalID string) cloud.Account {
	return cloud.Account{Name: "partner", Method: cloud.MethodAssumeRole, Settings: cloud.Settings{RoleARN: role, ExternalID: externalID}}
}

// Each method comes by the credentials it names, and the books show whose they are.
func TestAccountMethods(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreate, fixedSpec)
	role := g.role(partnerAccount, "zopday", ownAccount, "xid-1")
	keys := cloud.Account{Name: "keys", Method: cloud.MethodStaticKeys, Secret: cloud.Secret{AccessKeyID: "AKIAI44QH8DHBEXAMPLE", SecretAccessKey: "secret"}}
	clouds := g.accountsOf(registry{
		"org_1/default": {Method: cloud.MethodAmbient}, "org_1/ca_ambient": {Method: cloud.MethodAmbient},
		"org_1/ca_keys": keys, "org_1/ca_role": assuming(role, "xid-1"),
	})
	for _, c := range []struct{ id, account, caller string }{
		{"default", ownAccount, "AKIAIOSFODNN7EXAMPLE"},
		{"ca_ambient", ownAccount, "AKIAIOSFODNN7EXAMPLE"},
		{"ca_keys", partnerAccount, "AKIAI44QH8DHBEXAMPLE"},
		{"ca_role", partnerAccount, role},
	} {
		p, err := openAs(t, clouds, "org_1", c.id)
		if err != nil {
			t.Fatalf("%s: %v", c.id, err)
		}
		got, err := p.Caller(t.Context())
		if err != nil || got != c.account {
			t.Errorf("%s is account %q, %v, want %s", c.id, got, err, c.account)
		}
		last := g.world.Books(sim.BookFilter{Operation: "GetCallerIdentity", Limit: 1})
		if len(last) != 1 || last[0].Caller != c.caller {
			t.Errorf("%s: the books name %+v, want %s", c.id, last, c.caller)
		}
	}
	// The session says for whom it is, and asked once for its credentials.
	p, _ := openAs(t, clouds, "org_1", "ca_role")
	if _, err := p.ec2.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{}); err != nil {
		t.Error(err)
	}
	who, err := p.sts.GetCallerIdentity(t.Context(), nil)
	if err != nil || !strings.HasSuffix(*who.Arn, "assumed-role/zopday/org_1.ca_role") {
		t.Errorf("the caller is %+v, %v", who, err)
	}
	if n := len(g.world.Books(sim.BookFilter{Operation: "AssumeRole"})); n != 1 {
		t.Errorf("the role was assumed %d times", n)
	}
}

// What cannot be used is refused with its reason, and never falls back to the
// process's own credentials.
func TestAccountsThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreate, fixedSpec)
	role := g.role(partnerAccount, "zopday", ownAccount, "xid-1")
	clouds := g.accountsOf(registry{
		"org_1/ca_1": assuming(role, "another's"), "org_1/ca_2": assuming(role, ""), "org_1/ca_3": {Method: cloud.MethodStaticKeys},
		"org_1/ca_4": {Method: cloud.MethodServicePrincipal}, "org_1/ca_5": assuming(role, "xid-1"),
	})
	for _, c := range []struct{ org, id, code, says string }{
		{"org_1", "ca_2", "account-unusable", "external ID"},
		{"org_1", "ca_3", "account-unusable", "access key"},
		{"org_1", "ca_4", "account-unusable", "service_principal"},
		{"org_1", "ca_6", "no-such-account", "ca_6"},
		{"org_2", "ca_5", "no-such-account", "ca_5"}, // another organisation's
	} {
		_, err := openAs(t, clouds, c.org, c.id)
		if f := asFatal(err); f == nil || f.Problem.Code != c.code || !strings.Contains(f.Problem.Message, c.says) {
			t.Errorf("%s %s: %v", c.org, c.id, err)
		}
	}
	p, err := openAs(t, clouds, "org_1", "ca_1")
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Caller(t.Context())
	if !pipeline.Is(err, pipeline.Denied) || !strings.Contains(err.Error(), "external ID") || !strings.Contains(err.Error(), role) || strings.Contains(err.Error(), "another's") {
		t.Errorf("a wrong external ID: %v", err)
	}
	for _, e := range g.world.Books(sim.BookFilter{Cloud: "aws"}) {
		if e.Operation != "AssumeRole" {
			t.Errorf("%s was called", e.Operation)
		}
	}
}

// Clients are used only as long as the account is what they were made of.
func TestAccountRevision(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreate, fixedSpec)
	accounts := registry{"org_1/ca_1": {Method: cloud.MethodStaticKeys, Secret: cloud.Secret{AccessKeyID: "AKIAI44QH8DHBEXAMPLE", SecretAccessKey: "x"}, Revision: 1}}
	clouds := g.accountsOf(accounts)
	first, err := openAs(t, clouds, "org_1", "ca_1")
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := openAs(t, clouds, "org_1", "ca_1"); again != first {
		t.Error("the clients of an account that is as it was are made anew")
	}
	if first.reachBy.Mode != job.ReachPublic || !slices.Equal(first.reachBy.EgressCIDRs, publicReach.EgressCIDRs) {
		t.Errorf("an account without a reach of its own has %+v", first.reachBy)
	}
	a := accounts["org_1/ca_1"]
	a.Revision, a.Secret.AccessKeyID, a.Egress = 2, "AKIAIOSFODNN7EXAMPLE", []string{"198.51.100.0/24"}
	accounts["org_1/ca_1"] = a
	second, err := openAs(t, clouds, "org_1", "ca_1")
	if err != nil || second == first {
		t.Fatalf("the clients of an earlier revision are used: %v", err)
	}
	if got, _ := second.Caller(t.Context()); got != ownAccount {
		t.Errorf("the new key belongs to %s", got)
	}
	if second.reachBy.Mode != job.ReachPublic || !slices.Equal(second.reachBy.EgressCIDRs, a.Egress) {
		t.Errorf("the account's own egress is not used: %+v", second.reachBy)
	}
	a.Revision, a.Reach = 3, job.Reach{Mode: job.ReachDirect}
	accounts["org_1/ca_1"] = a
	if third, _ := openAs(t, clouds, "org_1", "ca_1"); third.reachBy.Mode != job.ReachDirect {
		t.Errorf("the account's own reach is not used: %+v", third.reachBy)
	}
	if len(clouds.lims) != 1 {
		t.Errorf("an account has %d sets of rate limits", len(clouds.lims))
	}
}

// The other side of a peering is an account of the same organisation.
func TestPeeringStaysInTheOrganisation(t *testing.T) {
	t.Parallel()
	g := newNet(t, sim.Options{}, job.ModeCreate, plainNet)
	vpc := g.peerNet(partnerAccount, "us-east-1", "10.90.0.0/16", "data")
	partner := cloud.Account{Method: cloud.MethodStaticKeys, Secret: cloud.Secret{AccessKeyID: "AKIAI44QH8DHBEXAMPLE", SecretAccessKey: "x"}}
	accounts := registry{"org_1/default": {Method: cloud.MethodAmbient}, "org_2/ca_theirs": partner}
	var err error
	if g.p, err = openAs(t, g.accountsOf(accounts), "org_1", "default"); err != nil {
		t.Fatal(err)
	}
	g.ask(`{"networkId":%q,"cloudAccountId":"ca_theirs"}`, vpc)
	_, err = g.play(job.PhaseProvision, "")
	if f := asFatal(err); f == nil || !strings.Contains(f.Problem.Message, "ca_theirs") {
		t.Errorf("the other organisation's account: %v", err)
	}
	accounts["org_1/ca_theirs"] = partner
	g.create()
	if info := g.infra().Peerings; len(info) != 1 || info[0].State != "active" {
		t.Errorf("peerings %+v", info)
	}
}
