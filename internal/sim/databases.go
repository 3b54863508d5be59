package sim

import (
	"context"
	"errors"
)

// Databases gives simulated datastores and caches servers that are real:
// PostgreSQL, MariaDB and Redis processes of this machine. The package
// sim/databases implements it; a cloud that has none (nil), or whose machine lacks
// the server's binary, serves its own API all the same, and the endpoint refuses
// connections; Down says why.
//
// Open, Close and the changes return at once and are carried out in their order
// behind the caller's back, so they may be called with the world locked. Query
// waits for them; a statement takes milliseconds.
type Databases interface {
	// Open makes a datastore's endpoint answer: the server behind it may take
	// seconds to be ready. Opening one that is open changes whom it lets in, its
	// settings and the administrator's password; nothing is lost.
	Open(d DatabaseServer) DatabaseEndpoint

	// Close ends a server: its endpoint refuses connections, and its data is gone.
	Close(id string)

	// Stop and Start end the process and keep its data, as a stopped instance does.
	Stop(id string)
	Start(id string)

	// CreateDatabase, DropDatabase, SetUser and DropUser are what a cloud's control
	// plane does. SetUser makes a user, or gives it another password; roles are what
	// it is made a member of (PostgreSQL, MySQL), or its ACL rules (Redis).
	CreateDatabase(id, name string)
	DropDatabase(id, name string)
	SetUser(id string, u DatabaseUser)
	DropUser(id, name string)

	// Query runs statements as the administrator, as Cloud SQL's executeSql does,
	// and returns the rows of the last one.
	Query(ctx context.Context, id, database, user, password, statements string) (columns []string, rows [][]string, err error)

	// Names lists what is in a server now: a view at most a second old. ok is false
	// while it is not ready.
	Names(id string) (databases, users []string, ok bool)

	// Ready reports whether the server answers and every change asked for so far has
	// been carried out; err says why it never will.
	Ready(id string) (ready bool, err error)

	// CA signs every server's certificate, PEM.
	CA() []byte
}

// ErrNoServer is the Ready error of an engine whose binary this machine lacks.
var ErrNoServer = errors.New("this machine has no server of that kind")

// A DatabaseServer is what a cloud says of one of its datastores.
type DatabaseServer struct {
	ID     string // unique in the world: ARN, self link, resource ID
	Engine string // postgres, mysql or redis (Valkey too)

	// Admits reports whether a connection from a caller gets through: a private
	// endpoint lets in those inside the network alone. One that is not admitted is
	// closed without a word.
	Admits func(from KubeCaller) bool

	// Names are what the certificate is for, besides the address that Open returns.
	Names []string

	// RequireTLS refuses connections without TLS, as rds.force_ssl,
	// require_secure_transport and sslMode do.
	RequireTLS bool

	// Admin is the administrator: no superuser, but what the cloud makes of one
	// (member of AdminRole, CREATEDB and CREATEROLE). Redis: the default user, off if
	// Password is "" and Open is false.
	Admin     string
	Password  string
	AdminRole string // rds_superuser, cloudsqlsuperuser, azure_pg_admin
	// OpenDefault lets Redis clients in without a password.
	OpenDefault bool
}

// A DatabaseUser is a user that a control plane makes.
type DatabaseUser struct {
	Name     string
	Password string   // "" keeps the one there is
	Roles    []string // PostgreSQL and MySQL: roles that it is a member of; Redis: ACL rules, such as ~* +@all
}

// A DatabaseEndpoint is where a datastore answers.
type DatabaseEndpoint struct {
	Host string // on loopback
	Port int
}
