package aws

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/sim"
)

// An account says who it is, and what a family's jobs would lack, by the same
// grants that its calls are held to; also as a role whose ARN has a path.
func TestAccountIsVerified(t *testing.T) {
	t.Parallel()
	g := newRig(t, sim.Options{}, job.ModeCreate, fixedSpec)
	role := g.role(partnerAccount, "zopday", ownAccount, "xid-1")
	clouds := g.accountsOf(registry{"org_1/default": {Method: cloud.MethodAmbient}, "org_1/ca_1": assuming(role, "xid-1")})
	policy, ok := PolicyOf(job.VM, false)
	if !ok {
		t.Fatal("there is no policy")
	}
	for _, c := range []struct{ id, caller, account, principal string }{
		{"default", ownKey, ownAccount, "arn:aws:iam::" + ownAccount + ":user/operator"},
		{"ca_1", role, partnerAccount, "arn:aws:sts::" + partnerAccount + ":assumed-role/zopday/org_1.ca_1"},
	} {
		p, err := openAs(t, clouds, "org_1", c.id)
		if err != nil {
			t.Fatal(err)
		}
		who, err := p.CallerIdentity(t.Context())
		if err != nil || who.Holder != c.account || who.Principal != c.principal || !slices.Contains(who.Regions, "us-east-1") || !slices.IsSorted(who.Regions) {
			t.Errorf("%s is %+v, %v", c.id, who, err)
		}
		all := slices.Concat(policy.Required, policy.Checks)
		g.world.SetGrants("aws", c.caller, allBut(allBut(all, "ec2:RunInstances"), "kms:ListKeys"))
		got, err := p.Permissions(t.Context(), job.VM, false)
		want := cloud.PermissionReport{Family: job.VM, Missing: []string{"ec2:RunInstances"}, Checks: []string{"kms:ListKeys"}}
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%s lacks (%v):\n%s", c.id, err, d)
		}
		g.world.SetGrants("aws", c.caller, allBut(all, "iam:SimulatePrincipalPolicy"))
		got, err = p.Permissions(t.Context(), job.VM, false)
		if err != nil || !strings.Contains(got.Unknown, "iam:SimulatePrincipalPolicy") || len(got.Missing)+len(got.Checks) > 0 {
			t.Errorf("%s may not ask: %+v, %v", c.id, got, err)
		}
		g.world.SetGrants("aws", c.caller, nil)
	}
	p, _ := openAs(t, clouds, "org_1", "default")
	if got, err := p.Permissions(t.Context(), job.Component, false); err != nil || got.Unknown == "" {
		t.Errorf("of a family without a policy: %+v, %v", got, err)
	}
}

// What Auto Scaling and EKS do not name in a refusal is named.
func TestRefusalsOfLaunchTemplatesNameActions(t *testing.T) {
	for _, c := range []struct{ op, code, message string }{
		{"CreateAutoScalingGroup", "AccessDenied", "You are not authorized to use launch template: lt-0123"},
		{"CreateNodegroup", "InvalidRequestException", "You are not authorized to launch instances with this launch template. Encoded authorization failure message: abc"},
	} {
		if class := classOf(c.op, c.code, c.message, 400); class != pipeline.Denied {
			t.Errorf("%s: class %s", c.op, class)
		}
		ce := &pipeline.CloudError{Class: pipeline.Denied, Message: c.message}
		explainDenied(ce)
		if !strings.Contains(ce.Message, "ec2:RunInstances") || !strings.Contains(ce.Message, "iam:PassRole") {
			t.Errorf("%s: %s", c.op, ce.Message)
		}
	}
}
