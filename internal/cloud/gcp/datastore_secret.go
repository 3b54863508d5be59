package gcp

import (
	"cmp"
	"context"
	"encoding/base64"
	"hash/crc32"
	"slices"
	"strconv"

	"google.golang.org/api/secretmanager/v1"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	kindSecret        = "secretmanager:secret"
	kindSecretVersion = "secretmanager:version"

	adminKey = "admin"
)

// secretID is the regional secret with the administrator's password. Cloud SQL
// takes the password of a statement from a secret of its own region alone
// ("Execute SQL statements using the Cloud SQL Data API").
func (p *Provider) secretID(r *pipeline.Run) string {
	return p.clusterParent() + "/secrets/" + name(r, adminKey)
}

// adminSecrets are the job's regional secrets.
func (p *Provider) adminSecrets() lookup.Kind[*secretmanager.Secret] {
	api := p.data.secrets.Projects.Locations.Secrets
	mark := func(s *secretmanager.Secret) (string, string) { return labelMark(s.Labels) }
	return lookup.Kind[*secretmanager.Secret]{
		Name: kindSecret, Mark: mark,
		ID: func(s *secretmanager.Secret) string { return p.clusterParent() + "/secrets/" + base(s.Name) },
		One: func(ctx context.Context, id string) (*secretmanager.Secret, error) {
			return lookup.Once(ctx, kindSecret+" "+id, func(ctx context.Context) (*secretmanager.Secret, error) { return send(ctx, api.Get(id)) })
		},
		List: func(ctx context.Context, owner string) ([]*secretmanager.Secret, error) {
			all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]*secretmanager.Secret, *string, error) {
				out, err := send(ctx, api.List(p.clusterParent()).Filter("labels."+labelOwner+"="+owner).PageToken(text(token)))
				if err != nil {
					return nil, nil, err
				}
				return out.Secrets, &out.NextPageToken, nil
			})
			return slices.DeleteFunc(all, func(s *secretmanager.Secret) bool {
				who, _ := mark(s)
				return who != owner
			}), err
		},
	}
}

// adminSecret is the secret, without its value.
func (p *Provider) adminSecret(r *pipeline.Run) pipeline.Resource {
	id := p.secretID(r)
	x := pipeline.Resource{Kind: kindSecret, Key: adminKey, Name: base(id)}
	x.Get = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		got, err := p.adminSecrets().One(ctx, id)
		if err != nil {
			return pipeline.Seen{}, err
		}
		owner, _ := labelMark(got.Labels)
		return pipeline.Seen{ID: id, Owner: cmp.Or(owner, pipeline.Unmarked)}, nil
	}
	x.Find = func(ctx context.Context) ([]pipeline.Seen, error) { return found(x.Get(ctx, id)) }
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		_, err := send(ctx, p.data.secrets.Projects.Locations.Secrets.Create(p.clusterParent(), &secretmanager.Secret{
			Labels: labelsFor(r.Job, adminKey),
		}).SecretId(base(id)))
		return pipeline.Seen{ID: id, Owner: r.Job.ID}, err
	}
	x.Delete = func(ctx context.Context, _ string) error {
		_, err := send(ctx, p.data.secrets.Projects.Locations.Secrets.Delete(id))
		return err
	}
	return x
}

// adminPassword is the secret's version with the password: made if there is none,
// and found again, whoever has written it. It goes with the secret.
func (p *Provider) adminPassword(r *pipeline.Run) pipeline.Resource {
	secret := p.secretID(r)
	api := p.data.secrets.Projects.Locations.Secrets
	x := pipeline.Resource{Kind: kindSecretVersion, Key: adminKey, Name: base(secret)}
	x.Get = func(ctx context.Context, id string) (pipeline.Seen, error) {
		got, err := send(ctx, api.Versions.Get(id))
		if err != nil {
			return pipeline.Seen{}, err
		}
		s := pipeline.Seen{ID: id, Owner: r.Job.ID}
		if got.State != "ENABLED" {
			s.Status, s.Reason = pipeline.Broken, "the version is "+got.State+", so nobody can read the administrator's password"
		}
		return s, nil
	}
	x.Find = func(ctx context.Context) ([]pipeline.Seen, error) {
		newest, err := p.newestVersion(ctx, secret)
		if err != nil || newest == "" {
			return nil, pipeline.Unless(err, pipeline.NotFound)
		}
		return []pipeline.Seen{{ID: newest, Owner: r.Job.ID}}, nil
	}
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		password := job.NewPassword()
		out, err := send(ctx, api.AddVersion(secret, &secretmanager.AddSecretVersionRequest{Payload: &secretmanager.SecretPayload{
			Data:       base64.StdEncoding.EncodeToString([]byte(password)),
			DataCrc32c: int64(crc32.Checksum([]byte(password), crc32.MakeTable(crc32.Castagnoli))),
		}}))
		if err != nil {
			return pipeline.Seen{}, err
		}
		return pipeline.Seen{ID: secret + "/versions/" + base(out.Name), Owner: r.Job.ID}, nil
	}
	x.Delete = func(ctx context.Context, id string) error {
		_, err := send(ctx, api.Versions.Destroy(id, &secretmanager.DestroySecretVersionRequest{}))
		return err
	}
	return x
}

// newestVersion is the newest version that can be read; "" if there is none.
func (p *Provider) newestVersion(ctx context.Context, secret string) (string, error) {
	all, err := lookup.Pages(ctx, func(ctx context.Context, token *string) ([]*secretmanager.SecretVersion, *string, error) {
		out, err := send(ctx, p.data.secrets.Projects.Locations.Secrets.Versions.List(secret).PageToken(text(token)))
		if err != nil {
			return nil, nil, err
		}
		return out.Versions, &out.NextPageToken, nil
	})
	newest := 0
	for _, v := range all {
		if n, bad := strconv.Atoi(base(v.Name)); bad == nil && v.State == "ENABLED" {
			newest = max(newest, n)
		}
	}
	if err != nil || newest == 0 {
		return "", err
	}
	return secret + "/versions/" + strconv.Itoa(newest), nil
}

// readSecret is the value of a secret's version.
func (p *Provider) readSecret(ctx context.Context, version string) (string, error) {
	out, err := send(ctx, p.data.secrets.Projects.Locations.Secrets.Versions.Access(version))
	if err != nil {
		return "", err
	}
	if out.Payload == nil {
		return "", &pipeline.CloudError{Class: pipeline.Unknown, Service: serviceSecrets, Op: "versions.access", Message: "the answer holds no value", Sent: true}
	}
	value, err := base64.StdEncoding.DecodeString(out.Payload.Data)
	if err != nil {
		return "", &pipeline.CloudError{Class: pipeline.Unknown, Service: serviceSecrets, Op: "versions.access", Message: "the value is not in base64", Sent: true}
	}
	return string(value), nil
}

// ensureDatastoreIdentity makes where the administrator's password is kept, and
// puts it there before any server has it. Memorystore makes its credentials by
// itself.
func (p *Provider) ensureDatastoreIdentity(ctx context.Context, r *pipeline.Run) error {
	if r.Job.ResourceType == job.Cache {
		r.Note("Memorystore keeps its credentials by itself: nothing to make")
		return nil
	}
	if _, err := p.ensure(ctx, r, p.adminSecret(r)); err != nil {
		return err
	}
	version, err := p.ensure(ctx, r, p.adminPassword(r))
	if err != nil {
		return visible(r, "the administrator's secret", err)
	}
	learn(r, &r.Job.Config.InfraConfig.Datastore.SecretID, version)
	return r.Save(ctx)
}

// removeDatastoreIdentity deletes the secret with all its versions.
func (p *Provider) removeDatastoreIdentity(ctx context.Context, r *pipeline.Run) error {
	if r.Job.ResourceType == job.Cache {
		return nil
	}
	if err := r.Remove(ctx, p.adminSecret(r)); err != nil {
		return err
	}
	return r.Forget(ctx, kindSecretVersion, adminKey, "went with its secret")
}
