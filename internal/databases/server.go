package databases

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A Server makes logical databases and roles on one datastore. Its methods may be called from
// several goroutines; they take turns.
type Server struct {
	mu     sync.Mutex
	engine engine
	kind   job.Engine
	admin  string
	link   *link
}

// engine is what differs between PostgreSQL and MySQL. Names were checked by the Server.
type engine interface {
	database(ctx context.Context, name, owner string) (exists, ours bool, err error)
	createDatabase(ctx context.Context, name, owner string) error
	dropDatabase(ctx context.Context, name string) error
	setRole(ctx context.Context, role, password string) error
	grant(ctx context.Context, role, database, owner string, mode job.AccessMode) error
	dropRole(ctx context.Context, role, database, owner string) error
}

// Open opens the way to a datastore. It connects when the first method is called.
func Open(_ context.Context, access cloud.SQLAccess) (*Server, error) {
	l := &link{access: access, conns: map[string]conn{}}
	s := &Server{kind: access.Engine, admin: access.Admin, link: l}
	switch access.Engine {
	case job.Postgres:
		s.engine = &postgres{link: l}
	case job.MySQL:
		s.engine = &mysqlEngine{link: l}
	default:
		return nil, pipeline.Fatal("no-sql", fmt.Sprintf("a datastore of engine %q has no logical databases", access.Engine), "Make a datastore of engine postgres or mysql.")
	}
	if access.Query == nil && (access.Server == nil || access.Server.TLS == nil || access.Server.Password == nil) {
		return nil, pipeline.Fatal("no-way", "there is no way to run SQL on this datastore: neither an address with its certificates and password, nor a control plane that runs statements",
			"Retry once the datastore is ready.")
	}
	return s, nil
}

// Close ends its connections.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link.close(ctx)
	return nil
}

// Database says whether a database exists, and whether it belongs to the role.
func (s *Server) Database(ctx context.Context, name, owner string) (exists, ours bool, err error) {
	if err := s.check("Database", &name, owner); err != nil {
		return false, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.engine.database(ctx, name, owner)
}

// CreateDatabase makes a database for a role that exists, and lets nobody else in; one that exists
// and is the role's is brought into line.
func (s *Server) CreateDatabase(ctx context.Context, name, owner string) error {
	if err := s.check("CreateDatabase", &name, owner); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.engine.createDatabase(ctx, name, owner)
}

// DropDatabase ends what is connected to a database and drops it.
func (s *Server) DropDatabase(ctx context.Context, name string) error {
	if err := s.check("DropDatabase", &name); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.engine.dropDatabase(ctx, name)
}

// SetRole makes a role that may log in and nothing else, or gives it another password.
func (s *Server) SetRole(ctx context.Context, role, password string) error {
	if err := s.check("SetRole", nil, role); err != nil {
		return err
	}
	if len(password) < 8 || strings.ContainsAny(password, "'\"`\\\x00") || !printable(password) {
		return invalid("SetRole", "the password of "+role+" is too short, or has letters that a database may refuse; let one be made")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.link.secrets = append(s.link.secrets, password)
	return s.engine.setRole(ctx, role, password)
}

// Grant lets a role use a database, as far as mode says and no further.
func (s *Server) Grant(ctx context.Context, role, database, owner string, mode job.AccessMode) error {
	if err := s.check("Grant", &database, role, owner); err != nil {
		return err
	}
	if !slices.Contains([]job.AccessMode{job.ReadWrite, job.ReadOnly, job.OwnerMode}, mode) {
		return invalid("Grant", fmt.Sprintf("%q is no access mode", mode))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.engine.grant(ctx, role, database, owner, mode)
}

// DropRole ends a role's sessions and drops it; what it made in the database goes to the owner.
// owner is "" when the role is the owner itself, whose database is gone.
func (s *Server) DropRole(ctx context.Context, role, database, owner string) error {
	roles := []string{role}
	if owner != "" {
		roles = append(roles, owner)
	}
	name := &database
	if database == "" {
		name = nil
	}
	if err := s.check("DropRole", name, roles...); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.engine.dropRole(ctx, role, database, owner)
}

var roleRE = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// check refuses names that no row of ours has: what is not ours is never touched, whatever led here.
func (s *Server) check(op string, database *string, roles ...string) error {
	if database != nil {
		if fault, fix := job.DatabaseNameFault(s.kind, *database); fault != "" {
			return invalid(op, fmt.Sprintf("%q %s; %s", *database, fault, fix))
		}
	}
	longest := 63
	if s.kind == job.MySQL {
		longest = 32
	}
	for _, role := range roles {
		switch {
		case !roleRE.MatchString(role) || len(role) > longest:
			return invalid(op, fmt.Sprintf("%q is no role's name: it takes a-z, 0-9 and underscore, and %d of them at most", role, longest))
		case role == s.admin, reserved(role):
			return invalid(op, fmt.Sprintf("%s is the administrator, or a role that the engine or a cloud keeps for itself", role))
		}
	}
	return nil
}

// reserved are the roles of engines and clouds.
func reserved(role string) bool {
	for _, prefix := range []string{"pg_", "rds", "cloudsql", "azure", "mysql", "mariadb"} {
		if strings.HasPrefix(role, prefix) {
			return true
		}
	}
	return slices.Contains([]string{"postgres", "root", "public", "none", "current_user", "session_user", "current_role"}, role)
}

func printable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}
