package gcp

import (
	"context"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// defaultUser is the one user of caches that have no others.
const defaultUser = "default"

// EnsureCacheUser gives the credential of a cache: Memorystore has no users of its
// own, so every connection shares one. For Redis it is the AUTH string, which the
// service made ("About Redis AUTH"); for Valkey there is none: the network is the
// gate, or IAM where somebody has turned that on.
func (p *Provider) EnsureCacheUser(ctx context.Context, j *job.Job, _, _ string, _ job.AccessMode) (cloud.CacheCredential, error) {
	d := j.Config.InfraConfig.Datastore
	if d.ID == "" {
		return cloud.CacheCredential{}, pipeline.Fatal("not-finished", "the cache is not there yet", "Wait until its job is done, then ask again.")
	}
	shared := cloud.CacheCredential{User: defaultUser, Shared: true}
	if d.Engine == job.Valkey {
		return shared, nil
	}
	out, err := send(ctx, p.data.redis.Projects.Locations.Instances.GetAuthString(d.ID))
	if err != nil {
		return cloud.CacheCredential{}, err
	}
	if out.AuthString == "" {
		return cloud.CacheCredential{}, pipeline.Fatal("auth-off", "AUTH of the cache "+d.Name+" is off, so there is no credential to hand out",
			"Turn it on (gcloud redis instances update "+d.Name+" --enable-auth), then ask again.")
	}
	shared.Password = out.AuthString
	return shared, nil
}

// RemoveCacheUser: the credential is shared by all, so it stays.
func (p *Provider) RemoveCacheUser(context.Context, *job.Job, string) error { return nil }
