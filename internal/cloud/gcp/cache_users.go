package gcp

import (
	"context"
	"fmt"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// defaultUser is the one user of caches that have no others.
const defaultUser = "default"

// EnsureCacheUser gives the credential of a cache: Memorystore has no users of its
// own, so every connection shares one, which may do everything. For Redis it is the
// AUTH string, which the service made ("About Redis AUTH"): nobody gets it as a
// credential that only reads. For Valkey there is nothing to hand out: without IAM
// (MS-04 off) the network alone decides who connects, and with it clients bring tokens
// of their own ("About IAM authentication").
func (p *Provider) EnsureCacheUser(ctx context.Context, j *job.Job, _, _ string, mode job.AccessMode) (cloud.CacheCredential, error) {
	d := j.Config.InfraConfig.Datastore
	switch {
	case d.ID == "":
		return cloud.CacheCredential{}, pipeline.Fatal("not-finished", "the cache is not there yet", "Wait until its job is done, then ask again.")
	case d.Engine == job.Valkey:
		return cloud.CacheCredential{}, p.noValkeyUsers(ctx, d)
	case mode == job.ReadOnly:
		return cloud.CacheCredential{}, pipeline.Fatal("not-offered", "Memorystore for Redis has no users: cache "+d.Name+" has one AUTH string for everybody, with all rights, and none that only reads",
			"Ask for a connection with access read_write; to keep a client from writing, give it the read endpoint of a cache with read replicas, or another cache.").On("access")
	}
	shared := cloud.CacheCredential{User: defaultUser, Shared: true}
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

// noValkeyUsers says why there is no credential for an instance of Valkey, and how
// clients connect.
func (p *Provider) noValkeyUsers(ctx context.Context, d job.DatastoreInfo) error {
	x, err := p.readValkey(ctx, d.ID)
	if err != nil {
		return err
	}
	if x.AuthorizationMode == "IAM_AUTH" {
		return pipeline.Fatal("not-offered", "Memorystore for Valkey has no users or passwords: cache "+d.Name+" lets in principals of IAM, with tokens of an hour",
			"Grant the client's service account roles/memorystore.dbConnectionUser and let the client fetch tokens; delete this connection.")
	}
	return pipeline.Fatal("not-offered", "Memorystore for Valkey has no users or passwords: IAM authentication of cache "+d.Name+" is off (MS-04), so whoever reaches its endpoint in the network has all rights",
		fmt.Sprintf("Connect to %s:%d over TLS without a password, and delete this connection; or take Redis, which has an AUTH string.", d.Host, d.Port))
}

// RemoveCacheUser: the credential is shared by all, so it stays.
func (p *Provider) RemoveCacheUser(context.Context, *job.Job, string) error { return nil }
