package azure

import (
	"context"
	"fmt"
	"net/http"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// EnsureCacheUser hands out what clients of a cache authenticate with. Managed Redis
// has no users of its own: principals of the directory are let in when the cache is
// made, and with access keys everybody has the same one ("Use Microsoft Entra for
// cache authentication with Azure Managed Redis"). That key may do everything, so
// nobody gets it as a credential that only reads.
func (p *Provider) EnsureCacheUser(ctx context.Context, j *job.Job, _, _ string, mode job.AccessMode) (cloud.CacheCredential, error) {
	spec, err := j.DatastoreSpec()
	if err != nil {
		return cloud.CacheCredential{}, err
	}
	info := j.Config.InfraConfig.Datastore
	if !spec.AccessKeys {
		return cloud.CacheCredential{}, pipeline.Fatal("no-cache-users", fmt.Sprintf("cache %s lets in principals of the directory alone, and has no users or passwords to hand out", info.Name),
			"Name the identity that is to use it in principals when the cache is made and let the client take Entra tokens; or make the cache with accessKeys: true, for clients that cannot.").On("config.spec.accessKeys")
	}
	if mode == job.ReadOnly {
		return cloud.CacheCredential{}, pipeline.Fatal("not-offered", fmt.Sprintf("Azure Managed Redis has no users: cache %s has one access key for everybody, with all rights, and none that only reads", info.Name),
			"Ask for a connection with access read_write, or give those who only read a cache of their own.").On("access")
	}
	answer, err := p.request(ctx, http.MethodPost, databaseOf(info.ID)+"/listKeys", nil, nil)
	if err != nil {
		return cloud.CacheCredential{}, err
	}
	var keys struct {
		Primary string `json:"primaryKey"`
	}
	if err := answer.into(&keys); err != nil {
		return cloud.CacheCredential{}, err
	}
	if keys.Primary == "" {
		return cloud.CacheCredential{}, absent("Microsoft.Cache", "redisEnterprise/databases/listKeys/action", "the access key of cache "+info.Name)
	}
	return cloud.CacheCredential{User: "default", Password: keys.Primary, Shared: true}, nil
}

// RemoveCacheUser has nothing to remove: the key is everybody's, and stays.
func (p *Provider) RemoveCacheUser(context.Context, *job.Job, string) error { return nil }
