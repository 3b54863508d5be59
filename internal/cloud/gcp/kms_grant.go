package gcp

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/api/cloudkms/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/pipeline"
)

// grant is that the key's own policy lets a member encrypt and decrypt with it,
// and nothing else.
func (k cryptoKey) grant(member string) pipeline.Resource {
	id := k.id + "/iamBindings/" + keyRole + "/" + member
	x := pipeline.Resource{Kind: kindKeyBinding, Key: secretsKeyKey, Name: keyRole + " of " + member}
	x.Get = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		policy, err := lookup.Once(ctx, "policy of "+k.id, k.policy)
		if err != nil {
			return pipeline.Seen{}, err
		}
		if !slices.ContainsFunc(policy.Bindings, func(b *cloudkms.Binding) bool {
			return b.Role == keyRole && b.Condition == nil && slices.ContainsFunc(b.Members, isMember(member))
		}) {
			return pipeline.Seen{}, absent(serviceKMS, "cryptoKeys.getIamPolicy", x.Name)
		}
		return pipeline.Seen{ID: id, Owner: k.r.Job.ID, Status: pipeline.Ready}, nil
	}
	x.Find = func(ctx context.Context) ([]pipeline.Seen, error) { return found(x.Get(ctx, id)) }
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		err := k.changePolicy(ctx, func(policy *cloudkms.Policy) bool {
			policy.Bindings = append(policy.Bindings, &cloudkms.Binding{Role: keyRole, Members: []string{member}})
			return true
		})
		return pipeline.Seen{ID: id, Owner: k.r.Job.ID, Status: pipeline.Ready}, err
	}
	x.Delete = func(ctx context.Context, _ string) error {
		return k.changePolicy(ctx, func(policy *cloudkms.Policy) bool {
			changed := false
			for _, b := range policy.Bindings {
				if b.Role == keyRole && b.Condition == nil {
					had := len(b.Members)
					b.Members = slices.DeleteFunc(b.Members, isMember(member))
					changed = changed || len(b.Members) < had
				}
			}
			policy.Bindings = slices.DeleteFunc(policy.Bindings, func(b *cloudkms.Binding) bool { return len(b.Members) == 0 })
			return changed
		})
	}
	return x
}

func (k cryptoKey) policy(ctx context.Context) (*cloudkms.Policy, error) {
	return send(ctx, k.p.kms.Projects.Locations.KeyRings.CryptoKeys.GetIamPolicy(k.id).OptionsRequestedPolicyVersion(policyVersion))
}

// changePolicy reads the key's policy, changes it and writes it back. The etag
// makes Google refuse if somebody else has changed it meanwhile; the next pass
// begins again then.
func (k cryptoKey) changePolicy(ctx context.Context, edit func(*cloudkms.Policy) bool) error {
	policy, err := k.policy(ctx)
	switch {
	case err != nil:
		return err
	case policy.Etag == "":
		return fmt.Errorf("the policy of key %s came without an etag, so it cannot be changed safely", k.id)
	case !edit(policy):
		return nil
	}
	_, err = send(ctx, k.p.kms.Projects.Locations.KeyRings.CryptoKeys.SetIamPolicy(k.id, &cloudkms.SetIamPolicyRequest{Policy: policy}))
	return err
}
