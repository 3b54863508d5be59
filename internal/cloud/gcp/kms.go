package gcp

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"google.golang.org/api/cloudkms/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	kindKey        = "cloudkms:key"
	kindKeyBinding = "cloudkms:key-binding"

	secretsKeyKey = "secrets"
	keyRole       = "roles/cloudkms.cryptoKeyEncrypterDecrypter"

	// rotation is how often a key gets new material: 90 days ("Key rotation").
	rotation = 90 * 24 * time.Hour
)

// keyRing is the ring of the product's keys in the region. A ring cannot be
// deleted and costs nothing ("Cloud KMS resources"): all jobs share it, and none
// counts it as its own.
func (p *Provider) keyRing() string { return p.clusterParent() + "/keyRings/zopday" }

// ensureKeyRing makes the ring if there is none.
func (p *Provider) ensureKeyRing(ctx context.Context, r *pipeline.Run) error {
	if r.Mode != pipeline.Apply || made(r, kindKey, secretsKeyKey) {
		return nil
	}
	rings := p.kms.Projects.Locations.KeyRings
	_, err := send(ctx, rings.Get(p.keyRing()))
	if !pipeline.Is(err, pipeline.NotFound) {
		return explained(err)
	}
	if err := ctx.Err(); err != nil {
		return err // a safe point: nothing new is begun once the job is being cancelled
	}
	if _, err = send(ctx, rings.Create(p.clusterParent(), &cloudkms.KeyRing{}).KeyRingId(base(p.keyRing()))); err == nil {
		err = r.Event(ctx, "keyring.created", "key ring %s is there for the keys of this region; it stays, as a ring can never be deleted", p.keyRing())
	}
	return explained(pipeline.Unless(err, pipeline.Exists))
}

// A cryptoKey is a key of the job in the product's ring.
type cryptoKey struct {
	p  *Provider
	r  *pipeline.Run
	id string
}

// secretsKey encrypts the cluster's secrets.
func (p *Provider) secretsKey(r *pipeline.Run) cryptoKey {
	return cryptoKey{p, r, p.keyRing() + "/cryptoKeys/" + name(r, secretsKeyKey)}
}

// keys are the keys in the product's ring that still have material.
func (p *Provider) keys() lookup.Kind[*cloudkms.CryptoKey] {
	api := p.kms.Projects.Locations.KeyRings.CryptoKeys
	mark := func(k *cloudkms.CryptoKey) (string, string) { return labelMark(k.Labels) }
	return lookup.Kind[*cloudkms.CryptoKey]{
		Name: kindKey, Mark: mark,
		ID:  func(k *cloudkms.CryptoKey) string { return k.Name },
		One: func(ctx context.Context, id string) (*cloudkms.CryptoKey, error) { return send(ctx, api.Get(id)) },
		List: func(ctx context.Context, owner string) ([]*cloudkms.CryptoKey, error) {
			all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]*cloudkms.CryptoKey, *string, error) {
				out, err := send(ctx, api.List(p.keyRing()).PageToken(text(token)))
				if err != nil {
					return nil, nil, err
				}
				return out.CryptoKeys, &out.NextPageToken, nil
			})
			if pipeline.Is(err, pipeline.NotFound) {
				return nil, nil // no ring, so no key
			}
			var live []*cloudkms.CryptoKey
			for _, k := range all {
				if who, _ := mark(k); who != owner {
					continue
				}
				left, err := p.material(ctx, k)
				if err != nil {
					return nil, err
				}
				if len(left) > 0 {
					live = append(live, k)
				}
			}
			return live, err
		},
	}
}

// material are the versions of a key that are not destroyed nor about to be.
func (p *Provider) material(ctx context.Context, k *cloudkms.CryptoKey) ([]*cloudkms.CryptoKeyVersion, error) {
	all, err := lookup.Once(ctx, "versions of "+k.Name, func(ctx context.Context) ([]*cloudkms.CryptoKeyVersion, error) {
		return lookup.Pages(ctx, func(ctx context.Context, token *string) ([]*cloudkms.CryptoKeyVersion, *string, error) {
			out, err := send(ctx, p.kms.Projects.Locations.KeyRings.CryptoKeys.CryptoKeyVersions.List(k.Name).PageToken(text(token)))
			if err != nil {
				return nil, nil, err
			}
			return out.CryptoKeyVersions, &out.NextPageToken, nil
		})
	})
	return slices.DeleteFunc(slices.Clone(all), func(v *cloudkms.CryptoKeyVersion) bool {
		return v.State == "DESTROYED" || v.State == "DESTROY_SCHEDULED" || v.State == "DESTROY_FAILED"
	}), err
}

// read is the key without lists: it is asked for by its name.
func (k cryptoKey) read(ctx context.Context) (*cloudkms.CryptoKey, error) {
	return lookup.Once(ctx, kindKey+" "+k.id, func(ctx context.Context) (*cloudkms.CryptoKey, error) {
		return send(ctx, k.p.kms.Projects.Locations.KeyRings.CryptoKeys.Get(k.id))
	})
}

// resource is the key as the pipeline makes, checks and removes it. A key without
// material is gone: its name stays for ever, and what it encrypted cannot be read
// any more once the waiting time is over ("Destroy and restore key versions").
func (k cryptoKey) resource() pipeline.Resource {
	x := pipeline.Resource{Kind: kindKey, Key: secretsKeyKey, Name: base(k.id)}
	x.Get = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		got, err := k.read(ctx)
		if err != nil {
			return pipeline.Seen{}, err
		}
		return k.seen(ctx, got)
	}
	x.Find = func(ctx context.Context) ([]pipeline.Seen, error) { return found(x.Get(ctx, k.id)) }
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		_, err := send(ctx, k.p.kms.Projects.Locations.KeyRings.CryptoKeys.Create(k.p.keyRing(), &cloudkms.CryptoKey{
			Purpose: "ENCRYPT_DECRYPT", Labels: labelsFor(k.r.Job, secretsKeyKey),
			RotationPeriod: secondsText(rotation), NextRotationTime: k.nextRotation(),
			VersionTemplate: &cloudkms.CryptoKeyVersionTemplate{Algorithm: "GOOGLE_SYMMETRIC_ENCRYPTION", ProtectionLevel: "SOFTWARE"},
		}).CryptoKeyId(base(k.id)))
		if pipeline.Is(err, pipeline.Exists) {
			err = k.revive(ctx, err)
		}
		return pipeline.Seen{ID: k.id, Owner: k.r.Job.ID, Status: pipeline.Pending}, err
	}
	x.Delete = func(ctx context.Context, _ string) error { return k.destroy(ctx) }
	return x
}

func (k cryptoKey) seen(ctx context.Context, got *cloudkms.CryptoKey) (pipeline.Seen, error) {
	owner, _ := labelMark(got.Labels)
	s := pipeline.Seen{ID: k.id, Owner: cmp.Or(owner, pipeline.Unmarked)}
	left, err := k.p.material(ctx, got)
	switch {
	case err != nil:
		return s, err
	case len(left) == 0:
		s.Status, s.Reason = pipeline.Gone, "all its versions are destroyed, or about to be"
		return s, nil
	case k.r.Down:
		return s, nil
	}
	state := ""
	if got.Primary != nil {
		state = got.Primary.State
	}
	if state == "PENDING_GENERATION" {
		s.Status, s.Reason = pipeline.Pending, state
		return s, nil
	}
	s.Aspects = []pipeline.Aspect{
		{Name: "primary version", Wanted: "ENABLED", Seen: state, Set: func(ctx context.Context) error { return k.enable(ctx, got) }},
		{Name: "rotation", Wanted: secondsText(rotation), Seen: got.RotationPeriod, Set: func(ctx context.Context) error {
			return k.rotate(ctx, &cloudkms.CryptoKey{RotationPeriod: secondsText(rotation), NextRotationTime: k.nextRotation()})
		}},
	}
	return s, nil
}

func (k cryptoKey) nextRotation() string {
	return k.r.Now().Add(rotation).UTC().Format(time.RFC3339)
}

// secondsText is a duration as the services write it in JSON.
func secondsText(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) + "s" }

// rotate sets the key's schedule; an empty one ends it.
func (k cryptoKey) rotate(ctx context.Context, schedule *cloudkms.CryptoKey) error {
	_, err := send(ctx, k.p.kms.Projects.Locations.KeyRings.CryptoKeys.Patch(k.id, schedule).UpdateMask("rotationPeriod,nextRotationTime"))
	return err
}

// enable makes a usable version the primary one.
func (k cryptoKey) enable(ctx context.Context, got *cloudkms.CryptoKey) error {
	if got.Primary == nil || got.Primary.State != "DISABLED" {
		return k.renew(ctx)
	}
	_, err := send(ctx, k.p.kms.Projects.Locations.KeyRings.CryptoKeys.CryptoKeyVersions.Patch(got.Primary.Name,
		&cloudkms.CryptoKeyVersion{State: "ENABLED"}).UpdateMask("state"))
	return err
}

// renew gives the key new material.
func (k cryptoKey) renew(ctx context.Context) error {
	v, err := send(ctx, k.p.kms.Projects.Locations.KeyRings.CryptoKeys.CryptoKeyVersions.Create(k.id, &cloudkms.CryptoKeyVersion{}))
	if err != nil {
		return err
	}
	_, err = send(ctx, k.p.kms.Projects.Locations.KeyRings.CryptoKeys.UpdatePrimaryVersion(k.id,
		&cloudkms.UpdateCryptoKeyPrimaryVersionRequest{CryptoKeyVersionId: base(v.Name)}))
	return err
}

// revive gives a key of the job that an earlier run has destroyed new material,
// since its name can never be used for another one.
func (k cryptoKey) revive(ctx context.Context, exists error) error {
	got, err := k.read(ctx)
	if err != nil {
		return err
	}
	left, err := k.p.material(ctx, got)
	if err != nil {
		return err
	}
	if owner, _ := labelMark(got.Labels); owner != k.r.Job.ID || len(left) > 0 {
		return exists
	}
	return k.renew(ctx)
}

// destroy ends the key's rotation, which would make new versions, and schedules
// the destruction of all its versions: for 30 days they can be restored.
func (k cryptoKey) destroy(ctx context.Context) error {
	got, err := k.read(ctx)
	if err != nil {
		return err
	}
	if got.RotationPeriod != "" {
		if err := k.rotate(ctx, &cloudkms.CryptoKey{}); err != nil {
			return err
		}
	}
	left, err := k.p.material(ctx, got)
	if err != nil {
		return err
	}
	for _, v := range left {
		if _, err := send(ctx, k.p.kms.Projects.Locations.KeyRings.CryptoKeys.CryptoKeyVersions.Destroy(v.Name, &cloudkms.DestroyCryptoKeyVersionRequest{})); err != nil {
			return err
		}
	}
	return nil
}
