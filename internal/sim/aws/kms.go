package aws

import (
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/kms/types"

	"github.com/zopday/provisioner/internal/sim"
)

// quotaKeys is the limit of customer managed keys, those that wait for their deletion included ("Resource quotas", AWS KMS
// developer guide).
const quotaKeys = "L-C2F1777E"

func newKMS(c *Cloud) *kmsService {
	s := &kmsService{cloud: c, state: &KMSState{}}
	c.World.DefineQuota(sim.Quota{Cloud: "aws", Service: "kms", Code: quotaKeys, Name: "Customer Master Keys (CMKs)", Default: 100000, Unit: "None", Adjustable: true})
	c.World.Register(s)
	c.add(&api{
		service: "kms", sdkPrefix: "TrentService", protocol: jsonProtocol, version: "2014-11-01",
		ops: overJSON(map[string]typedOp{
			"CreateKey": op(s.createKey), "DescribeKey": op(s.describeKey), "ListKeys": op(s.listKeys), "EnableKey": op(s.enableKey),
			"DisableKey": op(s.disableKey), "UpdateKeyDescription": op(s.updateDescription),
			"ScheduleKeyDeletion": op(s.scheduleDeletion), "CancelKeyDeletion": op(s.cancelDeletion),
			"EnableKeyRotation": op(s.enableRotation), "DisableKeyRotation": op(s.disableRotation), "GetKeyRotationStatus": op(s.rotationStatus),
			"CreateAlias": op(s.createAlias), "UpdateAlias": op(s.updateAlias), "DeleteAlias": op(s.deleteAlias), "ListAliases": op(s.listAliases),
			"GetKeyPolicy": op(s.getPolicy), "PutKeyPolicy": op(s.putPolicy), "ListKeyPolicies": op(s.listPolicies),
			"TagResource": op(s.tag), "UntagResource": op(s.untag), "ListResourceTags": op(s.listTags),
			"CreateGrant": op(s.createGrant), "ListGrants": op(s.listGrants), "RevokeGrant": op(s.revokeGrant),
		}),
		encode: encodeJSON, hollow: true,
	})
	return s
}

func (s *kmsService) createKey(c *reqCtx, in *kms.CreateKeyInput) (*kms.CreateKeyOutput, error) {
	if in.KeySpec != "" && in.KeySpec != types.KeySpecSymmetricDefault || in.KeyUsage != "" && in.KeyUsage != types.KeyUsageTypeEncryptDecrypt {
		return nil, refuse("UnsupportedOperationException", "Only symmetric encryption keys are simulated.")
	}
	if in.Origin != "" && in.Origin != types.OriginTypeAwsKms {
		return nil, refuse("UnsupportedOperationException", "Only keys of the origin AWS_KMS are simulated.")
	}
	if len(deref(in.Description)) > 8192 {
		return nil, refuse("ValidationException", "1 validation error detected: Value at 'description' failed to satisfy constraint: Member must have length less than or equal to 8192")
	}
	tags, err := checkKMSTags(nil, in.Tags)
	if err != nil {
		return nil, err
	}
	policy := deref(in.Policy)
	if policy == "" {
		policy = defaultKeyPolicy(c.account)
	}
	if err := s.checkPolicy(c, policy, in.BypassPolicyLockoutSafetyCheck); err != nil {
		return nil, err
	}
	keys := s.keys(c.scope())
	if float64(len(keys)) >= s.cloud.quota(c.scope(), "kms", quotaKeys) {
		return nil, refuse("LimitExceededException", "You have exceeded your limit of %d customer master keys.", len(keys))
	}
	id := c.w.UUID()
	k := &KMSKey{ID: id, ARN: c.regionalARN("kms", "key/"+id), Created: c.now, State: keyEnabled, Description: deref(in.Description), Policy: policy, Tags: tags,
		Material: c.w.Hex("", 64), Grants: []*KMSGrant{}}
	if deref(in.MultiRegion) {
		k.ID = "mrk-" + c.w.Hex("", 32)
		k.ARN, k.MultiRegion = c.regionalARN("kms", "key/"+k.ID), true
	}
	keys[k.ID] = k
	c.Make(k.ARN)
	return &kms.CreateKeyOutput{KeyMetadata: k.metadata(c.account)}, nil
}

// metadata is how every answer shows a key.
func (k *KMSKey) metadata(account string) *types.KeyMetadata {
	//nolint:staticcheck // CustomerMasterKeySpec is deprecated in the model, but the service still answers it
	out := &types.KeyMetadata{AWSAccountId: new(account), KeyId: new(k.ID), Arn: new(k.ARN), CreationDate: new(k.Created), Enabled: k.State == keyEnabled,
		Description: new(k.Description), KeyUsage: types.KeyUsageTypeEncryptDecrypt, KeyState: types.KeyState(k.State), Origin: types.OriginTypeAwsKms,
		KeyManager: types.KeyManagerTypeCustomer, CustomerMasterKeySpec: types.CustomerMasterKeySpecSymmetricDefault, KeySpec: types.KeySpecSymmetricDefault,
		EncryptionAlgorithms: []types.EncryptionAlgorithmSpec{types.EncryptionAlgorithmSpecSymmetricDefault}, MultiRegion: new(k.MultiRegion),
		CurrentKeyMaterialId: new(k.Material)}
	if k.State == keyPendingDeletion {
		out.DeletionDate = new(k.Deletion)
	}
	return out
}

func (s *kmsService) describeKey(c *reqCtx, in *kms.DescribeKeyInput) (*kms.DescribeKeyOutput, error) {
	k, err := s.find(c, in.KeyId, true)
	if err != nil {
		return nil, err
	}
	return &kms.DescribeKeyOutput{KeyMetadata: k.metadata(c.account)}, nil
}

func (s *kmsService) listKeys(c *reqCtx, in *kms.ListKeysInput) (*kms.ListKeysOutput, error) {
	keys, all := s.keys(c.scope()), []types.KeyListEntry{}
	for _, id := range sortedKeys(keys) {
		if k := keys[id]; c.visible(k.ARN, k.Created, true, "key", tagValues(k.Tags)) {
			all = append(all, types.KeyListEntry{KeyId: new(k.ID), KeyArn: new(k.ARN)})
		}
	}
	page, next, err := kmsPage(c, all, in.Marker, in.Limit, 100, 1000)
	return &kms.ListKeysOutput{Keys: page, NextMarker: next, Truncated: next != nil}, err
}

// kmsPage cuts a page.
func kmsPage[T any](c *reqCtx, all []T, marker *string, limit *int32, def, most int) ([]T, *string, error) {
	n := int(orDefault(limit, int32(def)))
	if n < 1 || n > most {
		return nil, nil, refuse("ValidationException", "1 validation error detected: Value '%d' at 'limit' failed to satisfy constraint: Member must have value less than or equal to %d", n, most)
	}
	page, next, err := pageOf(c, all, marker, n)
	if err != nil {
		return nil, nil, refuse("InvalidMarkerException", "Could not deserialize marker")
	}
	return page, next, nil
}

// usable finds a key for an operation that a key must be enabled for, or at least not on its way out.
func (s *kmsService) usable(c *reqCtx, id *string, disabledToo bool) (*KMSKey, error) {
	k, err := s.find(c, id, false)
	if err != nil {
		return nil, err
	}
	switch {
	case k.State == keyPendingDeletion:
		return nil, refuse("KMSInvalidStateException", "%s is pending deletion.", k.ARN)
	case k.State == keyDisabled && !disabledToo:
		return nil, refuse("DisabledException", "%s is disabled.", k.ARN)
	case k.State != keyEnabled && k.State != keyDisabled:
		return nil, refuse("KMSInvalidStateException", "%s is in the state %s.", k.ARN, k.State)
	}
	return k, nil
}

func (s *kmsService) enableKey(c *reqCtx, in *kms.EnableKeyInput) (*kms.EnableKeyOutput, error) {
	k, err := s.usable(c, in.KeyId, true)
	if err != nil {
		return nil, err
	}
	k.State = keyEnabled
	return &kms.EnableKeyOutput{}, nil
}

func (s *kmsService) disableKey(c *reqCtx, in *kms.DisableKeyInput) (*kms.DisableKeyOutput, error) {
	k, err := s.usable(c, in.KeyId, true)
	if err != nil {
		return nil, err
	}
	k.State = keyDisabled
	return &kms.DisableKeyOutput{}, nil
}

func (s *kmsService) updateDescription(c *reqCtx, in *kms.UpdateKeyDescriptionInput) (*kms.UpdateKeyDescriptionOutput, error) {
	k, err := s.usable(c, in.KeyId, true)
	if err != nil {
		return nil, err
	}
	k.Description = deref(in.Description)
	return &kms.UpdateKeyDescriptionOutput{}, nil
}

// scheduleDeletion begins a key's waiting period, 7 to 30 days, 30 unless said otherwise ("ScheduleKeyDeletion", AWS KMS API
// reference). Nothing removes a key at once, and one that waits costs nothing.
func (s *kmsService) scheduleDeletion(c *reqCtx, in *kms.ScheduleKeyDeletionInput) (*kms.ScheduleKeyDeletionOutput, error) {
	days := orDefault(in.PendingWindowInDays, 30)
	k, err := s.usable(c, in.KeyId, true)
	if err != nil {
		return nil, err
	}
	if days < 7 || days > 30 {
		return nil, refuse("ValidationException", "1 validation error detected: Value '%d' at 'pendingWindowInDays' failed to satisfy constraint: Member must have value between 7 and 30, inclusive", days)
	}
	wait := time.Duration(days) * 24 * time.Hour
	k.State, k.Deletion, k.Window = keyPendingDeletion, c.second().Add(wait), days
	c.Make(k.ARN)
	s.cloud.after(wait, "kms", "delete", c.scope().key()+"|"+k.ID)
	return &kms.ScheduleKeyDeletionOutput{KeyId: new(k.ARN), DeletionDate: new(k.Deletion), KeyState: types.KeyStatePendingDeletion, PendingWindowInDays: new(days)}, nil
}

// cancelDeletion leaves the key disabled ("CancelKeyDeletion").
func (s *kmsService) cancelDeletion(c *reqCtx, in *kms.CancelKeyDeletionInput) (*kms.CancelKeyDeletionOutput, error) {
	k, err := s.find(c, in.KeyId, false)
	if err != nil {
		return nil, err
	}
	if k.State != keyPendingDeletion {
		return nil, refuse("KMSInvalidStateException", "%s is not pending deletion.", k.ARN)
	}
	k.State, k.Deletion, k.Window = keyDisabled, time.Time{}, 0
	return &kms.CancelKeyDeletionOutput{KeyId: new(k.ARN)}, nil
}

func (s *kmsService) enableRotation(c *reqCtx, in *kms.EnableKeyRotationInput) (*kms.EnableKeyRotationOutput, error) {
	k, err := s.usable(c, in.KeyId, false)
	if err != nil {
		return nil, err
	}
	period := orDefault(in.RotationPeriodInDays, 365)
	if period < 90 || period > 2560 {
		return nil, refuse("ValidationException", "1 validation error detected: Value '%d' at 'rotationPeriodInDays' failed to satisfy constraint: Member must have value between 90 and 2560, inclusive", period)
	}
	k.Rotation, k.RotationSince = period, c.now
	return &kms.EnableKeyRotationOutput{}, nil
}

func (s *kmsService) disableRotation(c *reqCtx, in *kms.DisableKeyRotationInput) (*kms.DisableKeyRotationOutput, error) {
	k, err := s.usable(c, in.KeyId, false)
	if err != nil {
		return nil, err
	}
	k.Rotation = 0
	return &kms.DisableKeyRotationOutput{}, nil
}

// rotationStatus answers for keys in every state; a key that waits for its deletion does not rotate ("GetKeyRotationStatus").
func (s *kmsService) rotationStatus(c *reqCtx, in *kms.GetKeyRotationStatusInput) (*kms.GetKeyRotationStatusOutput, error) {
	k, err := s.find(c, in.KeyId, false)
	if err != nil {
		return nil, err
	}
	out := &kms.GetKeyRotationStatusOutput{KeyId: new(k.ID), KeyRotationEnabled: k.Rotation > 0 && k.State != keyPendingDeletion}
	if strings.HasPrefix(deref(in.KeyId), "arn:") {
		out.KeyId = new(k.ARN)
	}
	if out.KeyRotationEnabled {
		out.RotationPeriodInDays = new(k.Rotation)
		out.NextRotationDate = new(k.RotationSince.Add(time.Duration(k.Rotation) * 24 * time.Hour))
	}
	return out, nil
}

func (s *kmsService) createGrant(c *reqCtx, in *kms.CreateGrantInput) (*kms.CreateGrantOutput, error) {
	k, err := s.usable(c, in.KeyId, false)
	if err != nil {
		return nil, err
	}
	if deref(in.GranteePrincipal) == "" || len(in.Operations) == 0 {
		return nil, refuse("ValidationException", "2 validation errors detected: Value null at 'granteePrincipal' failed to satisfy constraint: Member must not be null; Value null at 'operations' failed to satisfy constraint: Member must not be null")
	}
	if !arnPattern.MatchString(*in.GranteePrincipal) && !strings.HasSuffix(*in.GranteePrincipal, ".amazonaws.com") {
		return nil, refuse("InvalidArnException", "ARN is not valid: %s", *in.GranteePrincipal)
	}
	g := &KMSGrant{ID: c.w.Hex("", 64), Name: deref(in.Name), Grantee: *in.GranteePrincipal, Retiring: deref(in.RetiringPrincipal), Issuer: arn("iam", "", c.account, "root"), Created: c.now}
	for _, o := range in.Operations {
		g.Operations = append(g.Operations, string(o))
	}
	// The same grant by the same name is not made twice ("CreateGrant").
	for _, old := range k.Grants {
		if g.Name != "" && old.Name == g.Name && old.Grantee == g.Grantee && slices.Equal(old.Operations, g.Operations) {
			return &kms.CreateGrantOutput{GrantId: new(old.ID), GrantToken: new(old.token())}, nil
		}
	}
	k.Grants = append(k.Grants, g)
	return &kms.CreateGrantOutput{GrantId: new(g.ID), GrantToken: new(g.token())}, nil
}

func (s *kmsService) listGrants(c *reqCtx, in *kms.ListGrantsInput) (*kms.ListGrantsOutput, error) {
	k, err := s.find(c, in.KeyId, false)
	if err != nil {
		return nil, err
	}
	all := []types.GrantListEntry{}
	for _, g := range k.Grants {
		if in.GrantId != nil && *in.GrantId != g.ID || in.GranteePrincipal != nil && *in.GranteePrincipal != g.Grantee {
			continue
		}
		e := types.GrantListEntry{KeyId: new(k.ARN), GrantId: new(g.ID), Name: new(g.Name), CreationDate: new(g.Created), GranteePrincipal: new(g.Grantee), IssuingAccount: new(g.Issuer)}
		for _, o := range g.Operations {
			e.Operations = append(e.Operations, types.GrantOperation(o))
		}
		if g.Retiring != "" {
			e.RetiringPrincipal = new(g.Retiring)
		}
		all = append(all, e)
	}
	page, next, err := kmsPage(c, all, in.Marker, in.Limit, 50, 100)
	return &kms.ListGrantsOutput{Grants: page, NextMarker: next, Truncated: next != nil}, err
}

func (s *kmsService) revokeGrant(c *reqCtx, in *kms.RevokeGrantInput) (*kms.RevokeGrantOutput, error) {
	k, err := s.find(c, in.KeyId, false)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(k.Grants, func(g *KMSGrant) bool { return g.ID == deref(in.GrantId) })
	if i < 0 {
		return nil, refuse("NotFoundException", "Grant %s is not found.", deref(in.GrantId))
	}
	k.Grants = slices.Delete(k.Grants, i, i+1)
	return &kms.RevokeGrantOutput{}, nil
}
