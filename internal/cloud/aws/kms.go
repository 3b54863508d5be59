package aws

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	keyKey   = "secrets-key"
	aliasKey = "secrets-key-alias"

	// aliasPrefix is what the aliases of all jobs begin with.
	aliasPrefix = "alias/zopday/"

	// keyWindow is for how many days a key that is to be deleted can be had back, the
	// longest that KMS offers; nothing is billed for it meanwhile ("Deleting AWS KMS keys").
	keyWindow = 30
)

func aliasName(r *pipeline.Run) string { return aliasPrefix + clusterNameOf(r.Job) }

// ensureKey makes the key that encrypts a cluster's secrets, and its alias.
func (p *Provider) ensureKey(ctx context.Context, r *pipeline.Run) error {
	id, err := r.Ensure(ctx, p.kmsKey(r))
	learn(r, &r.Job.Config.InfraConfig.Cluster.KMSKeyID, id)
	if err != nil {
		return err
	}
	_, err = r.Ensure(ctx, p.keyAlias(r, id))
	return err
}

// removeKey takes the alias away and schedules the key's deletion: KMS deletes no
// key at once.
func (p *Provider) removeKey(ctx context.Context, r *pipeline.Run) error {
	if err := r.Remove(ctx, p.keyAlias(r, madeID(r, kindKey, keyKey))); err != nil {
		return err
	}
	return r.Remove(ctx, p.kmsKey(r))
}

// readKey reads a key by its ID, its ARN or an alias.
func (p *Provider) readKey(ctx context.Context, id string) (kmstypes.KeyMetadata, error) {
	return lookup.Once(ctx, kindKey+" "+id, func(ctx context.Context) (kmstypes.KeyMetadata, error) {
		out, err := p.kms.DescribeKey(ctx, &kms.DescribeKeyInput{KeyId: aws.String(id)})
		if err != nil {
			return kmstypes.KeyMetadata{}, err
		}
		if out.KeyMetadata == nil {
			return kmstypes.KeyMetadata{}, absent("KMS", "DescribeKey", "key "+id)
		}
		return *out.KeyMetadata, nil
	})
}

func (p *Provider) keyTags(ctx context.Context, id string) (map[string]string, error) {
	return lookup.Once(ctx, "tags of "+kindKey+" "+id, func(ctx context.Context) (map[string]string, error) {
		all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]kmstypes.Tag, *string, error) {
			out, err := p.kms.ListResourceTags(ctx, &kms.ListResourceTagsInput{KeyId: aws.String(id), Marker: token})
			if err != nil {
				return nil, nil, err
			}
			return out.Tags, out.NextMarker, nil
		})
		marks := map[string]string{}
		for _, t := range all {
			marks[aws.ToString(t.TagKey)] = aws.ToString(t.TagValue)
		}
		return marks, err
	})
}

// kmsKey is the customer managed key of the secrets, rotated every year (controls
// EKS-08, EKS-09). Its policy is KMS's own: the account's IAM decides.
func (p *Provider) kmsKey(r *pipeline.Run) pipeline.Resource {
	x := pipeline.Resource{Kind: kindKey, Key: keyKey, Name: clusterNameOf(r.Job)}
	x.Get = func(ctx context.Context, id string) (pipeline.Seen, error) {
		k, err := p.readKey(ctx, id)
		if err != nil {
			return pipeline.Seen{}, err
		}
		s := pipeline.Seen{ID: aws.ToString(k.Arn), Status: pipeline.Ready, Reason: string(k.KeyState)}
		switch k.KeyState {
		case kmstypes.KeyStatePendingDeletion, kmstypes.KeyStatePendingReplicaDeletion:
			s.Status, s.Reason = pipeline.Gone, "its deletion is scheduled"
			return s, nil
		case kmstypes.KeyStateCreating, kmstypes.KeyStateUpdating:
			s.Status = pipeline.Pending
		}
		marks, err := p.keyTags(ctx, aws.ToString(k.Arn))
		if err != nil {
			return s, pipeline.Unseen(plain(err), "the tags of key "+id)
		}
		s.Owner = marks[job.MarkOwner]
		if !r.Down && s.Status == pipeline.Ready {
			s.Aspects, err = p.keyAspects(ctx, k)
		}
		return s, err
	}
	x.Find = func(ctx context.Context) ([]pipeline.Seen, error) { return p.findKey(ctx, r, x) }
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		out, err := p.kms.CreateKey(ctx, &kms.CreateKeyInput{
			Description: aws.String("Kubernetes secrets of " + x.Name), KeySpec: kmstypes.KeySpecSymmetricDefault, KeyUsage: kmstypes.KeyUsageTypeEncryptDecrypt,
			Tags: tagList(tags(r, x.Key, x.Name), func(k, v *string) kmstypes.Tag { return kmstypes.Tag{TagKey: k, TagValue: v} }),
		})
		if err != nil || out.KeyMetadata == nil {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: aws.ToString(out.KeyMetadata.Arn), Status: pipeline.Ready, Aspects: []pipeline.Aspect{p.rotation(aws.ToString(out.KeyMetadata.Arn), false)}}, nil
	}
	x.Delete = func(ctx context.Context, id string) error {
		out, err := p.kms.ScheduleKeyDeletion(ctx, &kms.ScheduleKeyDeletionInput{KeyId: aws.String(id), PendingWindowInDays: aws.Int32(keyWindow)})
		if err != nil {
			return err
		}
		until := "for " + fmt.Sprint(keyWindow) + " days"
		if out.DeletionDate != nil {
			until = "until " + out.DeletionDate.UTC().Format(time.DateOnly)
		}
		return r.Event(ctx, "key.scheduled", "%s is to be deleted and can be had back %s", id, until)
	}
	return tidy(x)
}

func (p *Provider) keyAspects(ctx context.Context, k kmstypes.KeyMetadata) ([]pipeline.Aspect, error) {
	id := aws.ToString(k.Arn)
	rotates, err := p.rotates(ctx, id)
	if err != nil {
		return nil, pipeline.Unseen(plain(err), "the rotation of key "+id)
	}
	return []pipeline.Aspect{
		{Name: "state", Wanted: string(kmstypes.KeyStateEnabled), Seen: string(k.KeyState), Set: func(ctx context.Context) error {
			_, err := p.kms.EnableKey(ctx, &kms.EnableKeyInput{KeyId: aws.String(id)})
			return err
		}},
		p.rotation(id, rotates),
	}, nil
}

func (p *Provider) rotates(ctx context.Context, id string) (bool, error) {
	return lookup.Once(ctx, "rotation of "+id, func(ctx context.Context) (bool, error) {
		out, err := p.kms.GetKeyRotationStatus(ctx, &kms.GetKeyRotationStatusInput{KeyId: aws.String(id)})
		return err == nil && out.KeyRotationEnabled, err
	})
}

func (p *Provider) rotation(id string, on bool) pipeline.Aspect {
	return pipeline.Aspect{Name: "rotation", Wanted: "on", Seen: onOff(on), Set: func(ctx context.Context) error {
		_, err := p.kms.EnableKeyRotation(ctx, &kms.EnableKeyRotationInput{KeyId: aws.String(id)})
		return err
	}}
}

// findKey looks for the job's key by its alias. Only if a create may have left one
// without an alias is every key of the region asked for its tags: KMS takes no
// token, and lists no keys by tag.
func (p *Provider) findKey(ctx context.Context, r *pipeline.Run, x pipeline.Resource) ([]pipeline.Seen, error) {
	s, err := x.Get(ctx, aliasName(r))
	if err == nil && s.Status != pipeline.Gone {
		return []pipeline.Seen{s}, nil
	}
	if err := pipeline.Unless(plain(err), pipeline.NotFound); err != nil {
		return nil, err
	}
	if rec, ok := r.Object(x.Kind, x.Key); !ok || rec.State != job.ObjectIntended {
		return nil, nil
	}
	ours, err := p.ownedKeys(ctx, r.Job.ID)
	if err != nil {
		return nil, err
	}
	var out []pipeline.Seen
	for _, k := range ours {
		s, err := x.Get(ctx, aws.ToString(k.Arn))
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// ownedKeys are the keys of the region that carry an owner's mark and are not on
// their way out. A key whose tags may not be read is not one of ours: the policy of
// ours lets the account in.
func (p *Provider) ownedKeys(ctx context.Context, owner string) ([]kmstypes.KeyMetadata, error) {
	managed, err := p.managedKeys(ctx)
	if err != nil {
		return nil, err
	}
	ids, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]string, *string, error) {
		out, err := p.kms.ListKeys(ctx, &kms.ListKeysInput{Marker: token})
		if err != nil {
			return nil, nil, err
		}
		var ids []string
		for _, k := range out.Keys {
			ids = append(ids, aws.ToString(k.KeyId))
		}
		return ids, out.NextMarker, nil
	})
	if err != nil {
		return nil, err
	}
	var ours []kmstypes.KeyMetadata
	for _, id := range subtract(ids, managed) {
		marks, err := p.keyTags(ctx, id)
		if err := pipeline.Unless(plain(err), pipeline.NotFound, pipeline.Denied); err != nil {
			return nil, err
		}
		if marks[job.MarkOwner] != owner {
			continue
		}
		k, err := p.readKey(ctx, id)
		if err != nil {
			return nil, err
		}
		if k.KeyState != kmstypes.KeyStatePendingDeletion && k.KeyState != kmstypes.KeyStatePendingReplicaDeletion {
			ours = append(ours, k)
		}
	}
	return ours, nil
}

// managedKeys are the keys that AWS keeps for its services: their aliases say so.
func (p *Provider) managedKeys(ctx context.Context) ([]string, error) {
	aliases, err := p.aliases(ctx)
	var ids []string
	for _, a := range aliases {
		if strings.HasPrefix(aws.ToString(a.AliasName), "alias/aws/") && a.TargetKeyId != nil {
			ids = append(ids, aws.ToString(a.TargetKeyId))
		}
	}
	return ids, err
}

func (p *Provider) aliases(ctx context.Context) ([]kmstypes.AliasListEntry, error) {
	return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]kmstypes.AliasListEntry, *string, error) {
		out, err := p.kms.ListAliases(ctx, &kms.ListAliasesInput{Marker: token})
		if err != nil {
			return nil, nil, err
		}
		return out.Aliases, out.NextMarker, nil
	})
}

// keyAlias is the key's name in the console. An alias carries no mark: it is whose
// the key behind it is.
func (p *Provider) keyAlias(r *pipeline.Run, key string) pipeline.Resource {
	x := pipeline.Resource{Kind: kindAlias, Key: aliasKey, Name: aliasName(r)}
	x.Get = func(ctx context.Context, id string) (pipeline.Seen, error) {
		k, err := p.readKey(ctx, or(id, x.Name))
		if err != nil {
			return pipeline.Seen{}, err
		}
		s := pipeline.Seen{ID: x.Name, Owner: pipeline.Unmarked, Status: pipeline.Ready}
		marks, err := p.keyTags(ctx, aws.ToString(k.Arn))
		if err != nil {
			return s, err
		}
		s.Owner = or(marks[job.MarkOwner], s.Owner)
		if !r.Down {
			s.Aspects = []pipeline.Aspect{{Name: "key", Wanted: key, Seen: aws.ToString(k.Arn), Set: func(ctx context.Context) error {
				_, err := p.kms.UpdateAlias(ctx, &kms.UpdateAliasInput{AliasName: aws.String(x.Name), TargetKeyId: aws.String(key)})
				return err
			}}}
		}
		return s, nil
	}
	x.Find = func(ctx context.Context) ([]pipeline.Seen, error) {
		s, err := x.Get(ctx, x.Name)
		if err != nil {
			return nil, pipeline.Unless(plain(err), pipeline.NotFound)
		}
		return []pipeline.Seen{s}, nil
	}
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		_, err := p.kms.CreateAlias(ctx, &kms.CreateAliasInput{AliasName: aws.String(x.Name), TargetKeyId: aws.String(key)})
		if err != nil {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: x.Name, Status: pipeline.Ready}, nil
	}
	x.Delete = func(ctx context.Context, _ string) error {
		_, err := p.kms.DeleteAlias(ctx, &kms.DeleteAliasInput{AliasName: aws.String(x.Name)})
		return err
	}
	return tidy(x)
}
