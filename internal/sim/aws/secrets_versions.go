package aws

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	sm "github.com/aws/aws-sdk-go-v2/service/secretsmanager"
	"github.com/aws/aws-sdk-go-v2/service/secretsmanager/types"
)

func secretTags(x *Secret) []types.Tag {
	var out []types.Tag
	for _, t := range x.Tags {
		out = append(out, types.Tag{Key: new(t.Key), Value: new(t.Value)})
	}
	return out
}

// when is a time of an answer, absent while it has not come.
func when(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func textOrNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func (s *secretsService) stagesOf(x *Secret) map[string][]string {
	var out map[string][]string
	for _, v := range s.versions(x) {
		if out == nil {
			out = map[string][]string{}
		}
		out[v.ID] = slices.Clone(v.Stages)
	}
	return out
}

// nextRotation is when a secret that rotates does so again.
func (x *Secret) nextRotation() *time.Time {
	if x.Rotation == nil || x.Rotation.AutomaticallyAfterDays == nil {
		return nil
	}
	return new(x.Rotated.AddDate(0, 0, int(*x.Rotation.AutomaticallyAfterDays)).Truncate(24 * time.Hour).Add(24*time.Hour - time.Second))
}

func (s *secretsService) describe(c *reqCtx, in *sm.DescribeSecretInput) (*sm.DescribeSecretOutput, error) {
	x, err := s.secret(c, in.SecretId)
	if err != nil {
		return nil, err
	}
	out := &sm.DescribeSecretOutput{ARN: &x.ARN, Name: &x.Name, Description: textOrNil(x.Description), KmsKeyId: textOrNil(x.KmsKeyID), OwningService: textOrNil(x.Owner),
		CreatedDate: when(x.Created), LastChangedDate: when(x.Changed), LastAccessedDate: when(x.Accessed), DeletedDate: when(x.Deleted), Tags: secretTags(x),
		VersionIdsToStages: s.stagesOf(x)}
	if x.Rotation != nil {
		out.RotationEnabled, out.RotationRules, out.RotationLambdaARN, out.LastRotatedDate, out.NextRotationDate = new(true), x.Rotation, textOrNil(x.Lambda), when(x.Rotated), x.nextRotation()
	}
	return out, nil
}

func (s *secretsService) entry(x *Secret) types.SecretListEntry {
	out := types.SecretListEntry{ARN: &x.ARN, Name: &x.Name, Description: textOrNil(x.Description), KmsKeyId: textOrNil(x.KmsKeyID), OwningService: textOrNil(x.Owner),
		CreatedDate: when(x.Created), LastChangedDate: when(x.Changed), LastAccessedDate: when(x.Accessed), DeletedDate: when(x.Deleted), Tags: secretTags(x),
		SecretVersionsToStages: s.stagesOf(x)}
	if x.Rotation != nil {
		out.RotationEnabled, out.RotationRules, out.RotationLambdaARN, out.LastRotatedDate, out.NextRotationDate = new(true), x.Rotation, textOrNil(x.Lambda), when(x.Rotated), x.nextRotation()
	}
	return out
}

func (s *secretsService) listVersions(c *reqCtx, in *sm.ListSecretVersionIdsInput) (*sm.ListSecretVersionIdsOutput, error) {
	x, err := s.secret(c, in.SecretId)
	if err != nil {
		return nil, err
	}
	all := []types.SecretVersionsListEntry{}
	for _, v := range s.versions(x) {
		all = append(all, types.SecretVersionsListEntry{VersionId: &v.ID, VersionStages: slices.Clone(v.Stages), CreatedDate: when(v.Created), LastAccessedDate: when(v.Accessed),
			KmsKeyIds: []string{orText(x.KmsKeyID, "DefaultEncryptionKey")}})
	}
	page, next, err := pageOf(c, all, in.NextToken, int(orDefault(in.MaxResults, 100)))
	if err != nil {
		return nil, refuse("InvalidNextTokenException", "Invalid NextToken.")
	}
	return &sm.ListSecretVersionIdsOutput{ARN: &x.ARN, Name: &x.Name, Versions: page, NextToken: next}, nil
}

func (s *secretsService) updateStage(c *reqCtx, in *sm.UpdateSecretVersionStageInput) (*sm.UpdateSecretVersionStageOutput, error) {
	x, err := s.own(c, in.SecretId)
	if err != nil {
		return nil, err
	}
	stage, holder := deref(in.VersionStage), s.staged(x, deref(in.VersionStage))
	if holder != nil && in.MoveToVersionId != nil && deref(in.RemoveFromVersionId) != holder.ID && *in.MoveToVersionId != holder.ID {
		return nil, refuse("InvalidParameterException", "The parameter RemoveFromVersionId can't be empty. Staging label %s is currently attached to version %s, so you must explicitly reference that version in RemoveFromVersionId.", stage, holder.ID)
	}
	var to *SecretVersion
	if in.MoveToVersionId != nil {
		if to = s.values(x)[*in.MoveToVersionId]; to == nil {
			return nil, refuse("ResourceNotFoundException", "Secrets Manager can't find the specified secret value for VersionId: %s", *in.MoveToVersionId)
		}
	} else if stage == stageCurrent {
		return nil, refuse("InvalidParameterException", "You can only move staging label AWSCURRENT to a different secret version. It can't be completely removed.")
	}
	s.moveStage(x, stage, to)
	x.Changed = c.now
	return &sm.UpdateSecretVersionStageOutput{ARN: &x.ARN, Name: &x.Name}, nil
}

// rotateTime is how long a managed rotation takes.
const rotateTime = 20 * time.Second

func (s *secretsService) rotate(c *reqCtx, in *sm.RotateSecretInput) (*sm.RotateSecretOutput, error) {
	x, err := s.live(c, in.SecretId)
	if err != nil {
		return nil, err
	}
	if x.Owner == "" {
		return nil, s.refuseRotation(x, in)
	}
	if in.RotationLambdaARN != nil {
		return nil, refuse("InvalidRequestException", "You can't specify a rotation function for a secret that is managed by %s.", x.Owner)
	}
	if in.RotationRules != nil {
		x.Rotation = in.RotationRules
	}
	id := deref(in.ClientRequestToken)
	if id == "" {
		id = c.w.UUID()
	}
	out := &sm.RotateSecretOutput{ARN: &x.ARN, Name: &x.Name, VersionId: &id}
	if !orDefault(in.RotateImmediately, true) || s.values(x)[id] != nil {
		return out, nil
	}
	if s.staged(x, stagePending) != nil {
		return nil, refuse("InvalidRequestException", "A previous rotation isn't complete. That rotation will be reattempted.")
	}
	s.beginRotation(x, id)
	return out, nil
}

// beginRotation draws the new password of a managed secret; it becomes current when its owner has taken it.
func (s *secretsService) beginRotation(x *Secret, id string) {
	var value map[string]string
	current := s.staged(x, stageCurrent)
	if current == nil || json.Unmarshal([]byte(deref(current.Text)), &value) != nil || s.staged(x, stagePending) != nil {
		return
	}
	w := s.cloud.World
	value["password"] = w.ID("", 28, passwordLetters)
	s.putVersion(x, &SecretVersion{ID: id, Stages: []string{stagePending}, Created: w.Now(), Text: jsonText(value)})
	s.cloud.platform.rds.rotating(x.ARN)
	s.cloud.after(rotateTime, "secretsmanager", "rotate", x.ARN)
}

// refuseRotation: only rotation that a service manages is simulated; functions there are none.
func (s *secretsService) refuseRotation(x *Secret, in *sm.RotateSecretInput) error {
	if in.RotationLambdaARN == nil && x.Lambda == "" {
		return refuse("InvalidRequestException", "No Lambda rotation function ARN is associated with this secret.")
	}
	return refuse("AccessDeniedException", "Secrets Manager cannot invoke the specified Lambda function. Ensure that the function policy grants access to the principal secretsmanager.amazonaws.com.")
}

func (s *secretsService) getPolicy(c *reqCtx, in *sm.GetResourcePolicyInput) (*sm.GetResourcePolicyOutput, error) {
	x, err := s.live(c, in.SecretId)
	if err != nil {
		return nil, err
	}
	return &sm.GetResourcePolicyOutput{ARN: &x.ARN, Name: &x.Name, ResourcePolicy: textOrNil(x.Policy)}, nil
}

func (s *secretsService) tag(c *reqCtx, in *sm.TagResourceInput) (*sm.TagResourceOutput, error) {
	x, err := s.live(c, in.SecretId)
	if err != nil {
		return nil, err
	}
	for _, t := range in.Tags {
		if strings.HasPrefix(strings.ToLower(deref(t.Key)), "aws:") {
			return nil, refuse("InvalidParameterException", "Tag keys can't start with aws:.")
		}
		x.Tags = setTag(x.Tags, deref(t.Key), deref(t.Value))
	}
	return &sm.TagResourceOutput{}, nil
}

func (s *secretsService) untag(c *reqCtx, in *sm.UntagResourceInput) (*sm.UntagResourceOutput, error) {
	x, err := s.live(c, in.SecretId)
	if err != nil {
		return nil, err
	}
	x.Tags = dropTags(x.Tags, in.TagKeys)
	return &sm.UntagResourceOutput{}, nil
}
