package aws

import (
	"testing"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"

	"github.com/zopday/provisioner/internal/sim"
)

func TestKeyLife(t *testing.T) {
	r := newRig(t, immediate)
	c := kms.NewFromConfig(r.cfg)
	k := must(c.CreateKey(r.ctx(), &kms.CreateKeyInput{Description: awssdk.String("secrets"), Tags: []types.Tag{{TagKey: awssdk.String("owner"), TagValue: awssdk.String("job-1")}}}))(t).KeyMetadata
	if k.KeyState != types.KeyStateEnabled || !k.Enabled || k.KeyManager != types.KeyManagerTypeCustomer {
		t.Fatalf("key %+v", k)
	}
	if st := must(c.GetKeyRotationStatus(r.ctx(), &kms.GetKeyRotationStatusInput{KeyId: k.KeyId}))(t); st.KeyRotationEnabled {
		t.Error("a new key rotates")
	}
	must(c.EnableKeyRotation(r.ctx(), &kms.EnableKeyRotationInput{KeyId: k.KeyId}))(t)
	if st := must(c.GetKeyRotationStatus(r.ctx(), &kms.GetKeyRotationStatusInput{KeyId: k.KeyId}))(t); !st.KeyRotationEnabled || *st.RotationPeriodInDays != 365 {
		t.Errorf("rotation %+v", st)
	}
	alias := awssdk.String("alias/zopday/job-1")
	must(c.CreateAlias(r.ctx(), &kms.CreateAliasInput{AliasName: alias, TargetKeyId: k.KeyId}))(t)
	_, err := c.CreateAlias(r.ctx(), &kms.CreateAliasInput{AliasName: alias, TargetKeyId: k.KeyId})
	wantCode(t, err, "AlreadyExistsException")
	if got := must(c.DescribeKey(r.ctx(), &kms.DescribeKeyInput{KeyId: alias}))(t).KeyMetadata; *got.Arn != *k.Arn {
		t.Errorf("by alias: %+v", got)
	}
	if all := must(c.ListAliases(r.ctx(), &kms.ListAliasesInput{KeyId: k.KeyId}))(t).Aliases; len(all) != 1 || *all[0].AliasName != *alias {
		t.Errorf("aliases %+v", all)
	}
	if left := r.w.Residue("job-1"); len(left) != 2 { // the key, and the alias on it
		t.Errorf("residue %+v", left)
	}
	_, err = c.ScheduleKeyDeletion(r.ctx(), &kms.ScheduleKeyDeletionInput{KeyId: k.KeyId, PendingWindowInDays: awssdk.Int32(3)})
	wantCode(t, err, "ValidationException")
	out := must(c.ScheduleKeyDeletion(r.ctx(), &kms.ScheduleKeyDeletionInput{KeyId: k.KeyId, PendingWindowInDays: awssdk.Int32(7)}))(t)
	if out.KeyState != types.KeyStatePendingDeletion || out.DeletionDate.Sub(r.w.Now()) > 7*24*time.Hour {
		t.Errorf("scheduled %+v", out)
	}
	_, err = c.ScheduleKeyDeletion(r.ctx(), &kms.ScheduleKeyDeletionInput{KeyId: k.KeyId})
	wantCode(t, err, "KMSInvalidStateException")
	_, err = c.EnableKeyRotation(r.ctx(), &kms.EnableKeyRotationInput{KeyId: k.KeyId})
	wantCode(t, err, "KMSInvalidStateException")
	must(c.CancelKeyDeletion(r.ctx(), &kms.CancelKeyDeletionInput{KeyId: k.KeyId}))(t)
	if got := must(c.DescribeKey(r.ctx(), &kms.DescribeKeyInput{KeyId: k.KeyId}))(t).KeyMetadata; got.KeyState != types.KeyStateDisabled || got.DeletionDate != nil {
		t.Errorf("after the cancellation: %+v", got)
	}
	must(c.ScheduleKeyDeletion(r.ctx(), &kms.ScheduleKeyDeletionInput{KeyId: k.KeyId, PendingWindowInDays: awssdk.Int32(7)}))(t)
	must(c.DeleteAlias(r.ctx(), &kms.DeleteAliasInput{AliasName: alias}))(t)
	if left := r.w.Residue("job-1"); len(left) != 0 {
		t.Errorf("a key that waits for its deletion is residue: %+v", left)
	}
	if all := r.w.Objects(sim.ObjectFilter{Service: "kms", All: true}); len(all) != 1 || all[0].State != "PendingDeletion" {
		t.Errorf("objects %+v", all)
	}
	r.w.Step(8 * 24 * time.Hour)
	_, err = c.DescribeKey(r.ctx(), &kms.DescribeKeyInput{KeyId: k.KeyId})
	wantCode(t, err, "NotFoundException")
}

func TestKeyPolicies(t *testing.T) {
	r := newRig(t, sim.Options{EmptyPages: -1})
	c := kms.NewFromConfig(r.cfg)
	policy := func(principal, action string) *string {
		return awssdk.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"` + principal + `"},"Action":"` + action + `","Resource":"*"}]}`)
	}
	_, err := c.CreateKey(r.ctx(), &kms.CreateKeyInput{Policy: awssdk.String(`{"Version"`)})
	wantCode(t, err, "MalformedPolicyDocumentException")
	_, err = c.CreateKey(r.ctx(), &kms.CreateKeyInput{Policy: policy("arn:aws:iam::"+testAccount+":root", "kms:Encrypt")})
	refusalText(t, "lockout", err, "MalformedPolicyDocumentException", "will not allow you to update the key policy")
	role := "arn:aws:iam::" + testAccount + ":role/late"
	_, err = c.CreateKey(r.ctx(), &kms.CreateKeyInput{Policy: policy(role, "kms:*")})
	refusalText(t, "nobody", err, "MalformedPolicyDocumentException", "invalid principals")
	trust := `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`
	must(iam.NewFromConfig(r.cfg).CreateRole(r.ctx(), &iam.CreateRoleInput{RoleName: awssdk.String("late"), AssumeRolePolicyDocument: &trust}))(t)
	two := awssdk.String(`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":"arn:aws:iam::` + testAccount + `:root"},"Action":"kms:*","Resource":"*"},{"Effect":"Allow","Principal":{"AWS":"` + role + `"},"Action":"kms:Decrypt","Resource":"*"}]}`)
	_, err = c.CreateKey(r.ctx(), &kms.CreateKeyInput{Policy: two})
	refusalText(t, "fresh role", err, "MalformedPolicyDocumentException", "invalid principals")
	r.w.Step(15 * time.Second)
	k := must(c.CreateKey(r.ctx(), &kms.CreateKeyInput{Policy: two}))(t).KeyMetadata
	r.w.Step(5 * time.Second)
	if got := must(c.GetKeyPolicy(r.ctx(), &kms.GetKeyPolicyInput{KeyId: k.KeyId}))(t); *got.Policy != *two {
		t.Errorf("policy %s", *got.Policy)
	}
	_, err = c.PutKeyPolicy(r.ctx(), &kms.PutKeyPolicyInput{KeyId: k.KeyId, Policy: policy("arn:aws:iam::"+testAccount+":root", "kms:Get*")})
	wantCode(t, err, "MalformedPolicyDocumentException")
	must(c.PutKeyPolicy(r.ctx(), &kms.PutKeyPolicyInput{KeyId: k.KeyId, Policy: policy("arn:aws:iam::"+testAccount+":root", "kms:*")}))(t)
}

func TestKeysOfOtherRegionsAndNames(t *testing.T) {
	r := newRig(t, immediate)
	c := kms.NewFromConfig(r.cfg)
	k := must(c.CreateKey(r.ctx(), &kms.CreateKeyInput{}))(t).KeyMetadata
	west := r.cfg.Copy()
	west.Region = "us-west-2"
	_, err := kms.NewFromConfig(west).DescribeKey(r.ctx(), &kms.DescribeKeyInput{KeyId: k.Arn})
	refusalText(t, "other region", err, "NotFoundException", "Invalid arn us-east-1")
	_, err = kms.NewFromConfig(west).DescribeKey(r.ctx(), &kms.DescribeKeyInput{KeyId: k.KeyId})
	refusalText(t, "other region by ID", err, "NotFoundException", "does not exist")
	_, err = c.DescribeKey(r.ctx(), &kms.DescribeKeyInput{KeyId: awssdk.String("what")})
	refusalText(t, "no ID", err, "NotFoundException", "Invalid keyId 'what'")
	_, err = c.CreateAlias(r.ctx(), &kms.CreateAliasInput{AliasName: awssdk.String("alias/aws/eks"), TargetKeyId: k.KeyId})
	wantCode(t, err, "NotAuthorizedException")
	must(c.DisableKey(r.ctx(), &kms.DisableKeyInput{KeyId: k.KeyId}))(t)
	_, err = c.EnableKeyRotation(r.ctx(), &kms.EnableKeyRotationInput{KeyId: k.KeyId})
	wantCode(t, err, "DisabledException")
	must(c.EnableKey(r.ctx(), &kms.EnableKeyInput{KeyId: k.KeyId}))(t)
	g := must(c.CreateGrant(r.ctx(), &kms.CreateGrantInput{KeyId: k.KeyId, GranteePrincipal: awssdk.String("arn:aws:iam::" + testAccount + ":role/x"), Operations: []types.GrantOperation{"Decrypt"}}))(t)
	if got := must(c.ListGrants(r.ctx(), &kms.ListGrantsInput{KeyId: k.KeyId}))(t).Grants; len(got) != 1 || *got[0].GrantId != *g.GrantId {
		t.Errorf("grants %+v", got)
	}
	must(c.RevokeGrant(r.ctx(), &kms.RevokeGrantInput{KeyId: k.KeyId, GrantId: g.GrantId}))(t)
}
