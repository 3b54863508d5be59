package cloud

import (
	"context"
	"crypto/tls"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// DatastoreFamily is what datastore and cache jobs ask of a cloud, beside Checker,
// Network, Identity and Auditor, which branch on the job's resource type.
//
// Identity makes, for a datastore, where the administrator's password is kept,
// unless the cloud keeps it by itself (RDS with Secrets Manager).
//
// Nothing outside of EnsureDatastore and RemoveDatastore, and of what SQLAccess and
// CacheUsers do to users and logical databases of a datastore that the job made,
// makes a mutating call to a datastore service.
type DatastoreFamily interface {
	// EnsureSubnetGroup makes where the datastore sits and what it needs before it
	// can be made: subnet group, parameter group and security group at AWS, the
	// private zone at Azure, the private services connection at Google Cloud.
	EnsureSubnetGroup(ctx context.Context, r *pipeline.Run) error
	RemoveSubnetGroup(ctx context.Context, r *pipeline.Run) error

	// EnsureDatastore makes the datastore, as hardened as hardening asks by default,
	// and fills InfraConfig.Datastore. Done when it takes connections.
	EnsureDatastore(ctx context.Context, r *pipeline.Run) error

	// RemoveDatastore takes the final snapshot, unless the spec says
	// skipFinalSnapshot, and keeps it (Run.Keep…); then it deletes the datastore.
	// Protection that this job set was lifted by DELETE …?confirm; protection that
	// somebody else set is a named blocker. It never drops a logical database.
	RemoveDatastore(ctx context.Context, r *pipeline.Run) error

	// AdoptDatastore reads the datastore that an adopt job points at, by ID, name or
	// endpoint, into InfraConfig.Datastore, with risk notes. It only reads.
	AdoptDatastore(ctx context.Context, r *pipeline.Run) error

	// Recommend reads the metrics of the last 14 days (CPU, memory, connections,
	// storage) and says which size would do. It only reads.
	Recommend(ctx context.Context, r *pipeline.Run) ([]job.Recommendation, error)

	// SQLAccess is how logical databases and roles are made on the datastore of a
	// finished job. The error is fatal, with the choices, where the account's reach
	// does not get there; CheckReach says so beforehand.
	SQLAccess(ctx context.Context, j *job.Job) (SQLAccess, error)

	// CheckReach is the check that stepValidate makes when logical databases are
	// asked for, and the API before it takes a request for one.
	CheckReach(j *job.Job) Check
}

// SQLAccess is how statements and users get to a datastore: over TLS from here,
// or over the cloud's control plane where it offers that. Every function asks the
// context's gates (pipeline.Allow) before it changes anything.
type SQLAccess struct {
	Engine job.Engine
	Admin  string // the administrator, as SQL knows it

	// Server is where to connect; nil if Query is given.
	Server *SQLServer

	// Query runs statements over the control plane, in one database, and returns
	// the rows of the last one as text; nil: connect to Server.
	Query func(ctx context.Context, database, statements string) ([][]string, error)

	// These go over the control plane where it has a way of its own; nil: by SQL.
	CreateDatabase func(ctx context.Context, name string) error
	DropDatabase   func(ctx context.Context, name string) error
	// SetUser makes a user that may log in, or gives it another password.
	SetUser  func(ctx context.Context, name, password string) error
	DropUser func(ctx context.Context, name string) error
}

// A SQLServer is where to connect. The connection is always over TLS, verified.
type SQLServer struct {
	Host string
	Port int
	TLS  *tls.Config // the cloud's roots, and the name to verify
	// Password reads the administrator's password from the cloud's secret store. It
	// is asked for each connection, so that a rotation in between does no harm, and
	// never stored.
	Password func(ctx context.Context) (string, error)
}

// CacheUsers is what connections to caches ask of a cloud.
type CacheUsers interface {
	// EnsureCacheUser makes a user of the cache with a password, or gives it another
	// one, or admits a principal. Where the cloud has no users of its own it returns
	// the credential that all share, and shared is true; password is not used then.
	EnsureCacheUser(ctx context.Context, j *job.Job, user, password string, mode job.AccessMode) (credential CacheCredential, err error)
	RemoveCacheUser(ctx context.Context, j *job.Job, user string) error
}

// A CacheCredential is what a client of a cache authenticates with.
type CacheCredential struct {
	User     string
	Password string
	Shared   bool // every connection to this cache has the same one
}
