package gcp

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// cloudSQL is the simulated Cloud SQL Admin API: instances of PostgreSQL and MySQL with their databases, users and backups. The
// servers behind are those of [sim.Databases].
type cloudSQL struct {
	cloud *Cloud
	st    sqlState
	open  map[string]bool // serverIDs that were opened in this process
}

type sqlState struct {
	Seq        int
	Instances  map[string]*sqlInstance  // by path: projects/p/instances/i
	Operations map[string]*sqlOperation // by path: projects/p/operations/o
	Backups    map[string]*sqlBackup    // by name: projects/p/backups/b
	// Released says when an instance of a name was deleted, by path.
	Released map[string]time.Time
	// Lingering are the networks of deleted instances whose remains still use a private connection.
	Lingering []lingering
}

// A lingering is what is left of a deleted instance in the network of Google's services. "Underlying resources" of an instance go
// up to four days after it ("Delete instances", Cloud SQL), and until then its private connection cannot be deleted.
type lingering struct {
	Network, What, Block string
	Until                time.Time
}

// A sqlInstance is an instance, its databases and its users.
type sqlInstance struct {
	Path      string
	Doc       Doc
	Created   time.Time
	Seq       int
	Busy      string // path of the operation that runs
	Root      string // password of the administrator
	Databases []*sqlDatabase
	Users     []*sqlUser
	// Serial numbers the instances of the world, so that the server of a new instance is not that of a deleted one with its name.
	Serial int
	// Address is where the server answers, host and port.
	Address string
	Stopped bool
	// Block is the part of an allocated range that it is in.
	Block string
	// Dropped says when databases and users were dropped.
	Dropped map[string]time.Time
}

const (
	sqlRoot     = "https://sqladmin.googleapis.com/v1/"
	sqlRunnable = "RUNNABLE"
	sqlFailed   = "FAILED"
	sqlCreating = "PENDING_CREATE"
	sqlDeleting = "PENDING_DELETE"
	sqlStopped  = "SUSPENDED"
)

func newCloudSQL(c *Cloud) *cloudSQL {
	s := &cloudSQL{cloud: c, open: map[string]bool{}}
	c.World.DefineQuota(sim.Quota{Cloud: cloudName, Service: "sqladmin", Code: "instances", Name: "Instances per project", Default: 1000, Unit: "Count", Adjustable: true})
	c.World.Register(s)
	ops := map[string]operation{
		"instances.insert": s.insert, "instances.get": s.get, "instances.list": s.list, "instances.patch": s.patch, "instances.update": s.update, "instances.delete": s.delete,
		"instances.restart": s.restart, "instances.listServerCas": s.listServerCas, "instances.executeSql": s.executeSQL, "connect.get": s.connectSettings,
		"operations.get": s.getOperation, "operations.list": s.listOperations, "tiers.list": s.listTiers, "flags.list": s.listFlags,
		"databases.insert": s.insertDatabase, "databases.get": s.getDatabase, "databases.list": s.listDatabases, "databases.delete": s.deleteDatabase,
		"databases.patch": s.changeDatabase, "databases.update": s.changeDatabase,
		"users.insert": s.insertUser, "users.get": s.getUser, "users.list": s.listUsers, "users.update": s.updateUser, "users.delete": s.deleteUser,
		"Backups.CreateBackup": s.createBackup, "Backups.DeleteBackup": s.deleteBackup, "Backups.GetBackup": s.getBackup, "Backups.ListBackups": s.listBackups,
		"Backups.UpdateBackup": s.updateBackup,
		"backupRuns.insert":    s.insertRun, "backupRuns.get": s.getRun, "backupRuns.list": s.listRuns, "backupRuns.delete": s.deleteRun,
	}
	c.add("sqladmin/v1", &api{service: "sqladmin", noStatus: true, listErrors: true, denied: sqlDenied, reads: onlyQueries, ops: ops})
	c.hooks.producers = append(c.hooks.producers, s.producers)
	c.hooks.producerBlocks = append(c.hooks.producerBlocks, s.blocks)
	c.hooks.monitored = append(c.hooks.monitored, s.monitored)
	return s
}

// sqlDenied is the refusal of a project that the caller may not use.
func sqlDenied(*request, string) *Error {
	return refuse(403, "notAuthorized", "The client is not authorized to make this request.")
}

func (s *cloudSQL) Cloud() string { return cloudName }
func (s *cloudSQL) Name() string  { return "sqladmin" }
func (s *cloudSQL) State() any    { return &s.st }

// Reset starts afresh.
func (s *cloudSQL) Reset() {
	for id := range s.open {
		s.cloud.opt.Databases.Close(id)
	}
	s.open = map[string]bool{}
	s.st = sqlState{Instances: map[string]*sqlInstance{}, Operations: map[string]*sqlOperation{}, Backups: map[string]*sqlBackup{}, Released: map[string]time.Time{}}
}

// Event carries on with an operation, ends a backup or what lingers of an instance.
func (s *cloudSQL) Event(kind, key string) {
	switch kind {
	case "run", "done":
		if op := s.st.Operations[key]; op != nil && op.Status != opDone && !op.Held {
			s.advance(op, kind)
		}
	case "forget":
		delete(s.st.Operations, key)
	case "expire":
		if b := s.st.Backups[key]; b != nil && !b.Expires.IsZero() && !s.cloud.World.Now().Before(b.Expires) {
			delete(s.st.Backups, key)
		}
	case "backup":
		s.dailyBackup(key)
	case "linger":
		now := s.cloud.World.Now()
		s.st.Lingering = slices.DeleteFunc(s.st.Lingering, func(l lingering) bool { return !now.Before(l.Until) })
	}
}

// Objects lists instances, their databases and users, backups, and operations that run.
func (s *cloudSQL) Objects() []sim.Object {
	var out []sim.Object
	for _, in := range s.inOrder("") {
		project := in.project()
		out = append(out, sim.Object{Account: project, Region: in.region(), Kind: "sql-instance", ID: in.Path, Name: in.name(), State: in.state(), Tags: in.labels(),
			Parents: in.parents(), Data: &in.Doc})
		for _, d := range in.Databases {
			out = append(out, sim.Object{Account: project, Region: in.region(), Kind: "sql-database", ID: in.Path + "/databases/" + str(d.Doc, "name"), Name: str(d.Doc, "name"),
				Parents: []string{in.Path}, Default: true, Data: &d.Doc})
		}
		for _, u := range in.Users {
			out = append(out, sim.Object{Account: project, Region: in.region(), Kind: "sql-user", ID: in.Path + "/users/" + str(u.Doc, "name"), Name: str(u.Doc, "name"),
				Parents: []string{in.Path}, Default: true, Data: &u.Doc})
		}
	}
	for _, name := range keysOf(s.st.Backups) {
		b := s.st.Backups[name]
		out = append(out, sim.Object{Account: segmentAfter(name, "projects"), Region: b.Region, Kind: "sql-backup", ID: name, Name: lastPart(name), State: str(b.Doc, "state"),
			Tags: b.Labels, Description: str(b.Doc, "description"), Default: b.Instance != "" && s.st.Instances[b.Instance] != nil, Data: &b.Doc})
	}
	for _, path := range keysOf(s.st.Operations) {
		if op := s.st.Operations[path]; op.Status != opDone {
			out = append(out, sim.Object{Account: op.Project, Kind: "sql-operation", ID: path, Name: lastPart(path), State: op.Status, Default: true})
		}
	}
	return out
}

// SetState drives an operation, or puts an instance into a state.
func (s *cloudSQL) SetState(id, state, code, message string) error {
	if op := s.st.Operations[id]; op != nil {
		return s.drive(op, state, code, message)
	}
	in := s.st.Instances[id]
	if in == nil {
		return fmt.Errorf("%s has no states; instances and operations have", id)
	}
	known := []string{sqlRunnable, sqlStopped, sqlDeleting, sqlCreating, "MAINTENANCE", "ONLINE_MAINTENANCE", "REPAIRING", sqlFailed}
	if state == "" {
		state = sqlFailed
	}
	if !slices.Contains(known, state) {
		return fmt.Errorf("an instance is %s, not %q", strings.Join(known, ", "), state)
	}
	in.Doc["state"] = state
	s.serve(in)
	return nil
}

// Remove takes an instance, a database, a user or a backup away.
func (s *cloudSQL) Remove(id string) error {
	if in := s.st.Instances[id]; in != nil {
		s.drop(in)
		return nil
	}
	if s.st.Backups[id] != nil {
		delete(s.st.Backups, id)
		return nil
	}
	for _, in := range s.st.Instances {
		if name, ok := strings.CutPrefix(id, in.Path+"/databases/"); ok && in.database(name) != nil {
			s.dropDatabase(in, name)
			return nil
		}
		if name, ok := strings.CutPrefix(id, in.Path+"/users/"); ok && in.user(name, "") != nil {
			s.dropUser(in, in.user(name, ""))
			return nil
		}
	}
	return fmt.Errorf("no object %s", id)
}

func (in *sqlInstance) project() string { return segmentAfter(in.Path, "projects") }
func (in *sqlInstance) name() string    { return lastPart(in.Path) }
func (in *sqlInstance) region() string  { return str(in.Doc, "region") }
func (in *sqlInstance) state() string   { return str(in.Doc, "state") }
func (in *sqlInstance) settings() Doc   { return sub(in.Doc, "settings") }
func (in *sqlInstance) ip() Doc         { return sub(in.settings(), "ipConfiguration") }
func (in *sqlInstance) version() string { return str(in.Doc, "databaseVersion") }
func (in *sqlInstance) postgres() bool  { return strings.HasPrefix(in.version(), "POSTGRES_") }

// admin is the user that an instance has from the start.
func (in *sqlInstance) admin() string {
	if in.postgres() {
		return "postgres"
	}
	return "root"
}

func (in *sqlInstance) labels() map[string]string {
	out := map[string]string{}
	for k, v := range sub(in.settings(), "userLabels") {
		out[k] = text(v)
	}
	return out
}

// parents are what an instance is in: the network that it has an address for, and its primary.
func (in *sqlInstance) parents() []string {
	var out []string
	if n := str(in.ip(), "privateNetwork"); n != "" {
		out = append(out, n)
	}
	if m := str(in.Doc, "masterInstanceName"); m != "" {
		out = append(out, "projects/"+in.project()+"/instances/"+m)
	}
	return out
}

// inOrder are the instances of a project, or of all, in the order in which they were made.
func (s *cloudSQL) inOrder(project string) []*sqlInstance {
	var out []*sqlInstance
	for _, path := range keysOf(s.st.Instances) {
		if in := s.st.Instances[path]; project == "" || in.project() == project {
			out = append(out, in)
		}
	}
	slices.SortStableFunc(out, func(a, b *sqlInstance) int { return a.Seq - b.Seq })
	return out
}

// instance finds the one that a path names.
func (s *cloudSQL) instance(r *request) (*sqlInstance, error) {
	path := "projects/" + r.Project.ID + "/instances/" + r.Path["instance"]
	in := s.st.Instances[path]
	if in == nil || (!r.Mutating && r.HTTP != nil && !s.cloud.World.Visible(r.Call, path, in.Created, sim.ByID, "sql-instance "+in.name())) {
		return nil, refuse(404, "instanceDoesNotExist", "The Cloud SQL instance does not exist.")
	}
	r.Touch(path)
	r.Region = in.region()
	return in, nil
}

// running is instance, for calls that need its server.
func (s *cloudSQL) running(r *request) (*sqlInstance, error) {
	in, err := s.instance(r)
	if err != nil {
		return nil, err
	}
	if in.state() != sqlRunnable {
		return nil, sqlInvalid("Invalid request since instance is not running.")
	}
	return in, nil
}

// free is instance, for changes: one at a time.
func (s *cloudSQL) free(r *request) (*sqlInstance, error) {
	in, err := s.instance(r)
	if err != nil {
		return nil, err
	}
	return in, s.idle(in)
}

// idle refuses a change while another operation runs on the instance.
func (s *cloudSQL) idle(in *sqlInstance) error {
	if op := s.st.Operations[in.Busy]; op != nil && op.Status != opDone {
		return refuse(409, "operationInProgress", "Operation failed because another operation was already in progress.")
	}
	return nil
}

// sqlInvalid is how Cloud SQL refuses what a request says.
func sqlInvalid(format string, args ...any) *Error {
	return refuse(400, "invalid", "Invalid request: "+format, args...)
}

// producers are the instances that use the private connection of a network, and what is left of those that did.
func (s *cloudSQL) producers(network string) []string {
	var out []string
	for _, in := range s.inOrder("") {
		if str(in.ip(), "privateNetwork") == network {
			out = append(out, in.Path)
		}
	}
	for _, l := range s.st.Lingering {
		if l.Network == network && s.cloud.World.Now().Before(l.Until) {
			out = append(out, l.What)
		}
	}
	return out
}

// lingers is how long the remains of something that used a private connection keep it busy: between ten and thirty minutes.
func (c *Cloud) lingers(what string) time.Duration {
	return 10*time.Minute + time.Duration(c.World.Fraction("lingers", what)*float64(20*time.Minute))
}
