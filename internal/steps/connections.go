package steps

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/kube"
	"github.com/zopday/provisioner/internal/pipeline"
	configv1 "github.com/zopday/provisioner/internal/spaces/configv1"
)

// Places says where a space is; nil if there is none of that ID.
type Places interface {
	Get(ctx context.Context, org, id string) (*configv1.Space, error)
}

// secretPatience is how long, in cloud time, a teardown waits for a cluster whose
// Secret is to be removed, before it goes on and says so.
const secretPatience = 10 * time.Minute

// connection carries one connection's work out and saves how it ended.
func (w *logicalWork) connection(ctx context.Context, c *job.Connection, do func(context.Context, *job.Connection) error) error {
	done := job.LogicalReady
	if c.Dropping = c.Status == job.LogicalDeleting; c.Dropping {
		done = job.LogicalDeleted
	}
	problem, again, stop := w.settled("connection "+c.Service, &c.Attempts, do(ctx, c))
	if stop != nil {
		return stop
	}
	switch {
	case problem != nil:
		c.Status, c.Error = job.LogicalFailed, problem
	case !again:
		c.Status, c.Error, c.Attempts = done, nil, 0
	}
	if err := w.r.SaveLogical(ctx, nil, []job.Connection{*c}); err != nil {
		return err
	}
	return w.tell(ctx, "connection of "+c.Service, c.Status, problem)
}

// databaseOf is the row of a connection's database; nil if it has none.
func (w *logicalWork) databaseOf(c *job.Connection) *job.LogicalDatabase {
	for i := range w.databases {
		if w.databases[i].ID == c.DatabaseID {
			return &w.databases[i]
		}
	}
	return nil
}

// createConnection makes a role with its secret, or gives it the next password,
// and brings the Secret of its space up to date.
func (w *logicalWork) createConnection(ctx context.Context, c *job.Connection) error {
	version := max(c.Wanted, 1)
	password, err := w.Logical.Password(ctx, w.r.Job.OrgID, job.SecretID(c.ID, version))
	if err != nil {
		return err
	}
	// Whether its Secret can be kept current is known before the role gets a password
	// that nobody would learn of.
	if c.SpaceID != "" {
		access, err := w.spaceAccess(ctx, c.SpaceID)
		if err != nil {
			return err
		}
		if err := kube.CheckSecret(ctx, access, c.Namespace, c.SecretName, c.ID); err != nil {
			return err
		}
	}
	if c.Status == job.LogicalPending {
		c.Status = job.LogicalCreating
	}
	c.Begun, c.Wanted = true, version
	if err := w.r.SaveLogical(ctx, nil, []job.Connection{*c}); err != nil {
		return err
	}
	credential := cloud.CacheCredential{User: c.Role, Password: password}
	if w.r.Job.ResourceType == job.Cache {
		credential, err = w.cacheUser(ctx, c, password)
	} else {
		err = w.role(ctx, c, password)
	}
	if err != nil {
		return err
	}
	if c.SpaceID != "" {
		if err := w.putSecret(ctx, c, credential); err != nil {
			return err
		}
	}
	if old := c.Secret; old > 0 && old != version {
		if err := w.Logical.Forget(ctx, w.r.Job.OrgID, job.SecretID(c.ID, old)); err != nil {
			return err
		}
	}
	c.Secret = version
	return nil
}

func (w *logicalWork) role(ctx context.Context, c *job.Connection, password string) error {
	d := w.databaseOf(c)
	switch {
	case d == nil || d.Status == job.LogicalDeleting || d.Status == job.LogicalDeleted:
		return pipeline.Fatal("no-database", "the database of this connection is gone", "Delete the connection.")
	case d.Status == job.LogicalFailed:
		return pipeline.Fatal("no-database", fmt.Sprintf("the database %s could not be made: %s", d.Name, d.Error.Message), "Ask for the database again, then for this connection.")
	case d.Status != job.LogicalReady:
		return pipeline.Wait(2*time.Second, "database %s to be ready", d.Name)
	}
	sql, err := w.server(ctx)
	if err != nil {
		return err
	}
	if err := sql.SetRole(ctx, c.Role, password); err != nil {
		return err
	}
	return sql.Grant(ctx, c.Role, d.Name, d.OwnerRole, c.Access)
}

// cacheUser makes a user of the cache, where the cloud has such a thing.
func (w *logicalWork) cacheUser(ctx context.Context, c *job.Connection, password string) (cloud.CacheCredential, error) {
	users, ok := w.Cloud.(cloud.CacheUsers)
	if !ok {
		return cloud.CacheCredential{}, pipeline.Fatal("not-offered", "connections to caches are not offered at "+string(w.r.Job.Provider), "Delete the connection.")
	}
	credential, err := users.EnsureCacheUser(ctx, w.r.Job, c.Role, password, c.Access)
	if err != nil {
		return credential, err
	}
	c.Shared, c.Role = credential.Shared, cmp.Or(credential.User, c.Role)
	if credential.Password != password {
		err = w.Logical.Keep(ctx, w.r.Job.OrgID, job.SecretID(c.ID, c.Wanted), credential.Password)
	}
	return credential, err
}

// dropConnection drops the role, then removes the Secret and the password.
func (w *logicalWork) dropConnection(ctx context.Context, c *job.Connection) error {
	if c.Begun {
		if err := w.dropUser(ctx, c); err != nil {
			return err
		}
	}
	if err := w.removeSecret(ctx, c); err != nil {
		return err
	}
	return w.forget(ctx, c)
}

func (w *logicalWork) dropUser(ctx context.Context, c *job.Connection) error {
	if w.r.Job.ResourceType == job.Cache {
		if users, ok := w.Cloud.(cloud.CacheUsers); ok && !c.Shared {
			return users.RemoveCacheUser(ctx, w.r.Job, c.Role)
		}
		return nil
	}
	sql, err := w.server(ctx)
	if err != nil {
		return err
	}
	database, owner := "", ""
	if d := w.databaseOf(c); d != nil {
		database, owner = d.Name, d.OwnerRole
	}
	return sql.DropRole(ctx, c.Role, database, owner)
}

func (w *logicalWork) forget(ctx context.Context, c *job.Connection) error {
	for _, version := range []int{c.Secret, c.Wanted} {
		if version == 0 {
			continue
		}
		if err := w.Logical.Forget(ctx, w.r.Job.OrgID, job.SecretID(c.ID, version)); err != nil {
			return err
		}
	}
	return nil
}

// removeConnections is what a teardown does to databases and connections: the
// secrets go, here and in the spaces; no database is dropped and no role, since
// the final snapshot is of the whole datastore.
func (s Set) removeConnections(ctx context.Context, r *pipeline.Run) error {
	if r.Mode != pipeline.Apply {
		return nil
	}
	if guard, ok := s.Cloud.(cloud.RemovalGuard); ok {
		if err := guard.Removable(ctx, r); err != nil {
			return err
		}
	}
	if s.Logical == nil {
		return nil
	}
	w := &logicalWork{Set: s, r: r}
	var err error
	if w.databases, w.connections, err = s.Logical.Rows(ctx, r.Job.OrgID, r.Job.ID); err != nil {
		return err
	}
	for i := range w.connections {
		c := &w.connections[i]
		if err := w.removeSecret(ctx, c); err != nil {
			if !pipeline.Is(err, pipeline.Unavailable, pipeline.Denied, pipeline.Expired, pipeline.Registry) {
				return err
			}
			if !kube.Overdue(r, "secret of "+c.ID, secretPatience) {
				return pipeline.Wait(kube.Pause(r.Pace, 5*time.Second), "the Secret %s/%s in its space to be removed (%v)", c.Namespace, c.SecretName, err)
			}
			r.Note("the Secret %s/%s stays in its space, which has not answered for %s: %v", c.Namespace, c.SecretName, secretPatience, err)
		}
		if err := w.forget(ctx, c); err != nil {
			return err
		}
		c.Status, c.Dropping = job.LogicalDeleted, true
	}
	for i := range w.databases {
		d := &w.databases[i]
		if err := s.Logical.Forget(ctx, r.Job.OrgID, job.SecretID(d.ID, max(d.Secret, 1))); err != nil {
			return err
		}
		d.Status, d.Dropping = job.LogicalDeleted, true
	}
	if len(w.databases)+len(w.connections) == 0 {
		return nil
	}
	return r.SaveLogical(ctx, w.databases, w.connections)
}

// putSecret writes what a service needs into the Secret of its space.
func (w *logicalWork) putSecret(ctx context.Context, c *job.Connection, credential cloud.CacheCredential) error {
	access, err := w.spaceAccess(ctx, c.SpaceID)
	if err != nil {
		return err
	}
	d := w.databaseOf(c)
	name := ""
	if d != nil {
		name = d.Name
	}
	data := Credentials(w.r.Job, name, credential)
	if c.Variable != "" {
		data[c.Variable] = data["url"]
	}
	return kube.EnsureSecret(ctx, access, kube.Secret{Namespace: c.Namespace, Name: c.SecretName, Owner: c.ID, Data: data})
}

// removeSecret removes the Secret of a connection; a space that is gone took it along.
func (w *logicalWork) removeSecret(ctx context.Context, c *job.Connection) error {
	if c.SpaceID == "" || !c.Begun {
		return nil
	}
	access, err := w.spaceAccess(ctx, c.SpaceID)
	if pipeline.Is(err, pipeline.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return kube.RemoveSecret(ctx, access, c.Namespace, c.SecretName, c.ID)
}

// spaceAccess is how the API server of a space is reached, at whichever cloud it is.
func (w *logicalWork) spaceAccess(ctx context.Context, id string) (cloud.KubeAccess, error) {
	if w.Places == nil || w.Clouds == nil {
		return cloud.KubeAccess{}, pipeline.Fatal("no-spaces", "this server has no config service", "Run one that has, or delete the connection.")
	}
	space, err := w.Places.Get(ctx, w.r.Job.OrgID, id)
	if err != nil {
		return cloud.KubeAccess{}, err
	}
	if space == nil {
		return cloud.KubeAccess{}, &pipeline.CloudError{Class: pipeline.NotFound, Service: "spaces", Op: "Get", Message: "the space " + id + " is gone"}
	}
	at := &job.Job{Provider: job.Provider(space.GetProvider()), Region: space.GetRegion(), CloudAccountID: cmp.Or(space.GetCloudAccountId(), "default"), OrgID: w.r.Job.OrgID}
	provider, err := w.Clouds.Open(ctx, at)
	if err != nil {
		return cloud.KubeAccess{}, err
	}
	clusters, ok := provider.(cloud.ClusterFamily)
	if !ok {
		return cloud.KubeAccess{}, pipeline.Fatal("not-offered", "clusters are not offered at "+space.GetProvider(), "Delete the connection.")
	}
	return clusters.KubeAccess(ctx, job.ClusterRef{Region: space.GetRegion(), Name: space.GetConfig()["cluster"], ResourceGroup: space.GetConfig()["resourceGroup"]})
}

// rdsAuthorities is where AWS publishes the authorities of RDS ("Using SSL/TLS to
// encrypt a connection to a DB instance or cluster").
const rdsAuthorities = "https://truststore.pki.rds.amazonaws.com/global/global-bundle.pem"

// Credentials are what a client needs to use a datastore or cache, as the keys of
// a Secret: host, port, database, username, password, url, and the certificate
// authority where the cloud has one for each datastore.
func Credentials(j *job.Job, database string, c cloud.CacheCredential) map[string]string {
	d := j.Config.InfraConfig.Datastore
	port := strconv.Itoa(d.Port)
	u := url.URL{Host: net.JoinHostPort(d.Host, port), User: url.UserPassword(c.User, c.Password), Path: "/" + database}
	switch d.Engine {
	case job.Postgres:
		u.Scheme, u.RawQuery = "postgresql", "sslmode=verify-full"
		if d.CACert != "" {
			u.RawQuery = "sslmode=verify-ca" // the certificate is for the instance's name, not for its address
		}
	case job.MySQL:
		u.Scheme, u.RawQuery = "mysql", "ssl-mode=VERIFY_IDENTITY"
		if d.CACert != "" {
			u.RawQuery = "ssl-mode=VERIFY_CA"
		}
	default:
		u.Scheme, u.Path = "rediss", "/0"
	}
	data := map[string]string{"host": d.Host, "port": port, "username": c.User, "password": c.Password, "url": u.String()}
	if database != "" {
		data["database"] = database
	}
	switch {
	case d.CACert != "":
		data["ca.crt"] = d.CACert
	case j.Provider == job.AWS && !d.Engine.Cache():
		data["ca.url"] = rdsAuthorities
	}
	return data
}
