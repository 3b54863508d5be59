package aws

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	sm "github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"

	"github.com/zopday/provisioner/internal/sim"
)

// quotaSecrets is the limit of secrets ("AWS Secrets Manager quotas").
const quotaSecrets = "L-2F66C23C" //nolint:gosec // a quota code

func newSecrets(c *Cloud) *secretsService {
	s := &secretsService{cloud: c, state: &SecretsState{}}
	c.World.DefineQuota(sim.Quota{Cloud: "aws", Service: "secretsmanager", Code: quotaSecrets, Name: "Secrets", Default: 500000, Unit: "None"})
	c.World.Register(s)
	c.add(&api{
		service: "secretsmanager", sdkPrefix: "secretsmanager", protocol: jsonProtocol, version: "2017-10-17",
		ops: overJSON(map[string]typedOp{
			"CreateSecret": op(s.create), "DescribeSecret": op(s.describe), "GetSecretValue": op(s.getValue), "PutSecretValue": op(s.putValue), "UpdateSecret": op(s.update),
			"DeleteSecret": op(s.delete), "RestoreSecret": op(s.restore), "ListSecrets": op(s.list), "RotateSecret": op(s.rotate), "ListSecretVersionIds": op(s.listVersions),
			"UpdateSecretVersionStage": op(s.updateStage), "GetResourcePolicy": op(s.getPolicy), "TagResource": op(s.tag), "UntagResource": op(s.untag),
		}),
		encode: encodeJSON, hollow: true, secrets: []string{"SecretString", "SecretBinary"},
		messageKey: func(string) string { return "Message" },
	})
	return s
}

func noSecret() error {
	return refuse("ResourceNotFoundException", "Secrets Manager can't find the specified secret.")
}

func markedForDeletion() error {
	return refuse("InvalidRequestException", "You can't perform this operation on the secret because it was marked for deletion.")
}

// secret finds a secret by name, ARN, or ARN without its random end.
func (s *secretsService) secret(c *reqCtx, id *string) (*Secret, error) {
	all := s.in(c.scope())
	x := all[deref(id)]
	if x == nil && strings.HasPrefix(deref(id), "arn:") {
		for _, y := range all {
			if y.ARN == *id || y.ARN[:len(y.ARN)-7] == *id {
				x = y
			}
		}
	}
	if x == nil || !c.visible(x.ARN, x.Created, false, "secret", x.Name, tagValues(x.Tags)) {
		return nil, noSecret()
	}
	c.Touch(x.ARN)
	return x, nil
}

// live finds a secret that does not wait for its deletion.
func (s *secretsService) live(c *reqCtx, id *string) (*Secret, error) {
	x, err := s.secret(c, id)
	if err == nil && !x.Deleted.IsZero() {
		err = markedForDeletion()
	}
	return x, err
}

// own finds a secret that no service manages: those are changed by their service alone ("Secrets managed by other AWS services").
func (s *secretsService) own(c *reqCtx, id *string) (*Secret, error) {
	x, err := s.live(c, id)
	if err == nil && x.Owner != "" {
		err = refuse("InvalidRequestException", "You can't perform this operation on the secret because it is managed by %s.", x.Owner)
	}
	return x, err
}

var secretName = regexp.MustCompile(`^[A-Za-z0-9/_+=.@!-]{1,512}$`)

func (s *secretsService) create(c *reqCtx, in *sm.CreateSecretInput) (*sm.CreateSecretOutput, error) {
	name, token := deref(in.Name), deref(in.ClientRequestToken)
	if !secretName.MatchString(name) {
		return nil, refuse("ValidationException", "Invalid name. Must be a valid name containing alphanumeric characters, or any of the following: -/_+=.@!")
	}
	hash := inputHash(in)
	if x := s.in(c.scope())[name]; x != nil {
		switch {
		case !x.Deleted.IsZero():
			return nil, refuse("InvalidRequestException", "You can't create this secret because a secret with this name is already scheduled for deletion.")
		case token != "" && x.Token == token && x.TokenHash == hash:
			c.Make(x.ARN)
			return &sm.CreateSecretOutput{ARN: &x.ARN, Name: &x.Name, VersionId: versionOf(in.SecretString, in.SecretBinary, token)}, nil
		}
		return nil, refuse("ResourceExistsException", "The operation failed because the secret %s already exists.", name)
	}
	if err := s.checkSecret(c, in); err != nil {
		return nil, err
	}
	x := &Secret{Account: c.account, Region: c.region, Name: name, Description: deref(in.Description), KmsKeyID: deref(in.KmsKeyId), Created: c.now, Changed: c.now, Token: token, TokenHash: hash,
		ARN: c.regionalARN("secretsmanager", "secret:"+name+"-"+c.w.ID("", 6, secretLetters))}
	for _, t := range in.Tags {
		x.Tags = setTag(x.Tags, deref(t.Key), deref(t.Value))
	}
	s.in(c.scope())[name] = x
	out := &sm.CreateSecretOutput{ARN: &x.ARN, Name: &x.Name}
	if in.SecretString != nil || in.SecretBinary != nil {
		if token == "" {
			token = c.w.UUID()
		}
		s.putVersion(x, &SecretVersion{ID: token, Stages: []string{stageCurrent}, Created: c.now, Text: in.SecretString, Binary: in.SecretBinary})
		out.VersionId = &token
	}
	c.Make(x.ARN)
	return out, nil
}

func versionOf(text *string, binary []byte, token string) *string {
	if text == nil && binary == nil {
		return nil
	}
	return &token
}

func (s *secretsService) checkSecret(c *reqCtx, in *sm.CreateSecretInput) error {
	if err := checkSecretValue(in.SecretString, in.SecretBinary); err != nil {
		return err
	}
	if len(in.Tags) > 50 {
		return refuse("InvalidParameterException", "You can't have more than 50 tags on a secret.")
	}
	for _, t := range in.Tags {
		if strings.HasPrefix(strings.ToLower(deref(t.Key)), "aws:") {
			return refuse("InvalidParameterException", "Tag keys can't start with aws:.")
		}
	}
	if float64(len(s.in(c.scope()))) >= s.cloud.quota(c.scope(), "secretsmanager", quotaSecrets) {
		return refuse("LimitExceededException", "You've exceeded the limit of secrets in this account.")
	}
	if in.KmsKeyId != nil && !strings.HasPrefix(*in.KmsKeyId, "alias/aws/") {
		if k := s.cloud.findKey(c.scope(), *in.KmsKeyId); k == nil || k.State != keyEnabled {
			return refuse("EncryptionFailure", "Secrets Manager can't encrypt the protected secret text using the provided KMS key.")
		}
	}
	return nil
}

func checkSecretValue(text *string, binary []byte) error {
	switch {
	case text != nil && binary != nil:
		return refuse("InvalidParameterException", "You can't specify both a binary secret value and a string secret value in the same secret.")
	case len(deref(text)) > 65536 || len(binary) > 65536:
		return refuse("ValidationException", "1 validation error detected: Value at 'secretString' failed to satisfy constraint: Member must have length less than or equal to 65536")
	}
	return nil
}

func (s *secretsService) getValue(c *reqCtx, in *sm.GetSecretValueInput) (*sm.GetSecretValueOutput, error) {
	x, err := s.secret(c, in.SecretId)
	if err != nil {
		return nil, err
	}
	if !x.Deleted.IsZero() {
		return nil, refuse("InvalidRequestException", "You can't perform this operation on the secret because it was marked for deletion.")
	}
	stage := deref(in.VersionStage)
	var v *SecretVersion
	if in.VersionId != nil {
		if v = s.values(x)[*in.VersionId]; v == nil {
			return nil, refuse("ResourceNotFoundException", "Secrets Manager can't find the specified secret value for VersionId: %s", *in.VersionId)
		}
		if stage != "" && !slices.Contains(v.Stages, stage) {
			return nil, refuse("InvalidRequestException", "You provided a VersionStage that is not associated to the provided VersionId.")
		}
	} else if v = s.staged(x, orText(stage, stageCurrent)); v == nil {
		return nil, refuse("ResourceNotFoundException", "Secrets Manager can't find the specified secret value for staging label: %s", orText(stage, stageCurrent))
	}
	x.Accessed, v.Accessed = c.now.Truncate(24*time.Hour), c.now.Truncate(24*time.Hour)
	return &sm.GetSecretValueOutput{ARN: &x.ARN, Name: &x.Name, VersionId: &v.ID, VersionStages: v.Stages, CreatedDate: &v.Created, SecretString: v.Text, SecretBinary: v.Binary}, nil
}

func (s *secretsService) putValue(c *reqCtx, in *sm.PutSecretValueInput) (*sm.PutSecretValueOutput, error) {
	x, err := s.own(c, in.SecretId)
	if err != nil {
		return nil, err
	}
	if in.SecretString == nil && in.SecretBinary == nil {
		return nil, refuse("InvalidRequestException", "You must provide either SecretString or SecretBinary.")
	}
	if err := checkSecretValue(in.SecretString, in.SecretBinary); err != nil {
		return nil, err
	}
	stages := slices.Sorted(slices.Values(in.VersionStages))
	if len(stages) == 0 {
		stages = []string{stageCurrent}
	}
	v, err := s.newValue(c, x, in.ClientRequestToken, in.SecretString, in.SecretBinary, stages)
	if err != nil {
		return nil, err
	}
	return &sm.PutSecretValueOutput{ARN: &x.ARN, Name: &x.Name, VersionId: &v.ID, VersionStages: slices.Clone(v.Stages)}, nil
}

// newValue makes a version, or finds the one that the same request made before.
func (s *secretsService) newValue(c *reqCtx, x *Secret, token, text *string, binary []byte, stages []string) (*SecretVersion, error) {
	id := deref(token)
	if id == "" {
		id = c.w.UUID()
	}
	if v := s.values(x)[id]; v != nil {
		if deref(v.Text) != deref(text) || string(v.Binary) != string(binary) {
			return nil, refuse("ResourceExistsException", "You can't use ClientRequestToken %s because that value is already in use for a version of secret %s.", id, x.ARN)
		}
		return v, nil
	}
	if s.staged(x, stageCurrent) == nil && !slices.Contains(stages, stageCurrent) {
		stages = append(stages, stageCurrent)
	}
	v := &SecretVersion{ID: id, Stages: stages, Created: c.now, Text: text, Binary: binary}
	s.putVersion(x, v)
	return v, nil
}

func (s *secretsService) update(c *reqCtx, in *sm.UpdateSecretInput) (*sm.UpdateSecretOutput, error) {
	x, err := s.own(c, in.SecretId)
	if err != nil {
		return nil, err
	}
	if err := checkSecretValue(in.SecretString, in.SecretBinary); err != nil {
		return nil, err
	}
	if in.Description != nil {
		x.Description = *in.Description
	}
	if in.KmsKeyId != nil {
		x.KmsKeyID = *in.KmsKeyId
	}
	x.Changed = c.now
	out := &sm.UpdateSecretOutput{ARN: &x.ARN, Name: &x.Name}
	if in.SecretString != nil || in.SecretBinary != nil {
		v, err := s.newValue(c, x, in.ClientRequestToken, in.SecretString, in.SecretBinary, []string{stageCurrent})
		if err != nil {
			return nil, err
		}
		out.VersionId = &v.ID
	}
	return out, nil
}

func (s *secretsService) delete(c *reqCtx, in *sm.DeleteSecretInput) (*sm.DeleteSecretOutput, error) {
	force, days := deref(in.ForceDeleteWithoutRecovery), orDefault(in.RecoveryWindowInDays, 30)
	switch {
	case force && in.RecoveryWindowInDays != nil:
		return nil, refuse("InvalidParameterException", "You can't use ForceDeleteWithoutRecovery in conjunction with RecoveryWindowInDays.")
	case days < 7 || days > 30:
		return nil, refuse("InvalidParameterException", "The RecoveryWindowInDays value must be between 7 and 30 days (inclusive).")
	}
	x, err := s.secret(c, in.SecretId)
	if err != nil {
		return nil, err
	}
	if x.Owner != "" {
		return nil, refuse("InvalidRequestException", "You can't delete the secret because it is managed by %s.", x.Owner)
	}
	if !x.Deleted.IsZero() && !force {
		return nil, markedForDeletion()
	}
	at := c.now.AddDate(0, 0, int(days))
	if force {
		at = c.now
		s.drop(x)
	} else {
		x.Deleted, x.Gone = c.now, at
		s.cloud.after(at.Sub(c.now), "secretsmanager", "gone", x.ARN)
	}
	return &sm.DeleteSecretOutput{ARN: &x.ARN, Name: &x.Name, DeletionDate: &at}, nil
}

func (s *secretsService) restore(c *reqCtx, in *sm.RestoreSecretInput) (*sm.RestoreSecretOutput, error) {
	x, err := s.secret(c, in.SecretId)
	if err != nil {
		return nil, err
	}
	x.Deleted, x.Gone = time.Time{}, time.Time{}
	return &sm.RestoreSecretOutput{ARN: &x.ARN, Name: &x.Name}, nil
}

func (s *secretsService) list(c *reqCtx, in *sm.ListSecretsInput) (*sm.ListSecretsOutput, error) {
	n := int(orDefault(in.MaxResults, 100))
	if n < 1 || n > 100 {
		return nil, refuse("ValidationException", "1 validation error detected: Value '%d' at 'maxResults' failed to satisfy constraint: Member must have value less than or equal to 100", n)
	}
	var found []*Secret
	for _, name := range sortedKeys(s.in(c.scope())) {
		x := s.in(c.scope())[name]
		if !x.Deleted.IsZero() && !deref(in.IncludePlannedDeletion) || !c.visible(x.ARN, x.Created, true, "secret", name, tagValues(x.Tags)) ||
			slices.ContainsFunc(in.Filters, func(f types.Filter) bool { return !secretMatches(f, x) }) {
			continue
		}
		found = append(found, x)
	}
	slices.SortStableFunc(found, func(a, b *Secret) int { return cmp.Compare(a.Created.UnixMilli(), b.Created.UnixMilli()) })
	if in.SortOrder != types.SortOrderTypeAsc {
		slices.Reverse(found) // the newest come first
	}
	all := []types.SecretListEntry{}
	for _, x := range found {
		all = append(all, s.entry(x))
	}
	page, next, err := pageOf(c, all, in.NextToken, n)
	if err != nil {
		return nil, refuse("InvalidNextTokenException", "Invalid NextToken.")
	}
	return &sm.ListSecretsOutput{SecretList: page, NextToken: next}, nil
}
