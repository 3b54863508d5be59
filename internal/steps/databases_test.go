package steps

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// errCrash is the end of the process, as far as a step can tell.
var errCrash = fmt.Errorf("the process ends here: %w", pipeline.ErrLeaseLost)

// store is the ledger and the secret store of one job; every write counts as one
// point at which the process may end, before it or after it.
type store struct {
	databases   map[string]job.LogicalDatabase
	connections map[string]job.Connection
	secrets     map[string]string
	made        int
	rival       *job.LogicalDatabase
	step        func() error
}

func (s *store) taken(name string) bool {
	for _, d := range s.databases {
		if d.Name == name && d.Status != job.LogicalDeleted {
			return true
		}
	}
	return false
}

func (s *store) Rows(context.Context, string, string) ([]job.LogicalDatabase, []job.Connection, error) {
	var ds []job.LogicalDatabase
	var cs []job.Connection
	for _, k := range slices.Sorted(maps.Keys(s.databases)) {
		if d := s.databases[k]; d.Status != job.LogicalDeleted {
			ds = append(ds, d)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(s.connections)) {
		if c := s.connections[k]; c.Status != job.LogicalDeleted {
			cs = append(cs, c)
		}
	}
	return ds, cs, nil
}

func (s *store) Password(_ context.Context, _, id string) (string, error) {
	if s.secrets[id] == "" {
		if err := s.step(); err != nil {
			return "", err
		}
		s.made++
		s.secrets[id] = fmt.Sprintf("secret-%d", s.made)
	}
	return s.secrets[id], nil
}

func (s *store) Keep(_ context.Context, _, id, secret string) error {
	s.secrets[id] = secret
	return nil
}

func (s *store) Forget(_ context.Context, _, id string) error {
	delete(s.secrets, id)
	return s.step()
}

func (s *store) Record(_ context.Context, d pipeline.Delta) error {
	if err := s.step(); err != nil {
		return err
	}
	if s.rival != nil { // somebody asks for it at the same moment, and is first
		s.databases[s.rival.ID] = *s.rival
		s.rival = nil
	}
	for _, x := range d.Databases {
		if _, known := s.databases[x.ID]; known || !s.taken(x.Name) { // as the ledger's unique index has it
			s.databases[x.ID] = x
		}
	}
	for _, x := range d.Connections {
		s.connections[x.ID] = x
	}
	return nil
}

// sqlServer is a datastore in memory. It refuses what a real one would.
type sqlServer struct {
	owners map[string]string // role by database
	roles  map[string]string // password by role
	grants map[string]string
	step   func() error
	calls  []string
}

func (s *sqlServer) call(what string) error {
	s.calls = append(s.calls, what)
	return s.step()
}

func (s *sqlServer) Database(_ context.Context, name, owner string) (exists, ours bool, err error) {
	by, exists := s.owners[name]
	return exists, by == owner, nil
}

func (s *sqlServer) CreateDatabase(_ context.Context, name, owner string) error {
	if err := s.call("create " + name); err != nil {
		return err
	}
	if by, there := s.owners[name]; there && by != owner {
		return &pipeline.CloudError{Class: pipeline.Exists, Service: "SQL", Message: "exists", Sent: true}
	}
	if s.roles[owner] == "" {
		return &pipeline.CloudError{Class: pipeline.Invalid, Service: "SQL", Message: "no such role", Sent: true}
	}
	s.owners[name] = owner
	return s.step()
}

func (s *sqlServer) DropDatabase(_ context.Context, name string) error {
	if err := s.call("drop " + name); err != nil {
		return err
	}
	delete(s.owners, name)
	return s.step()
}

func (s *sqlServer) SetRole(_ context.Context, role, password string) error {
	if err := s.call("role " + role); err != nil {
		return err
	}
	s.roles[role] = password
	return s.step()
}

func (s *sqlServer) Grant(_ context.Context, role, database, _ string, mode job.AccessMode) error {
	if err := s.call("grant " + role); err != nil {
		return err
	}
	s.grants[role] = database + " " + string(mode)
	return s.step()
}

func (s *sqlServer) DropRole(_ context.Context, role, _, _ string) error {
	if err := s.call("drop role " + role); err != nil {
		return err
	}
	delete(s.roles, role)
	delete(s.grants, role)
	return s.step()
}

func (s *sqlServer) Close(context.Context) error { return nil }

// datastoreCloud is a cloud that does nothing but lead to a datastore.
type datastoreCloud struct {
	cloud.Provider
	cloud.DatastoreFamily
}

func (datastoreCloud) SQLAccess(context.Context, *job.Job) (cloud.SQLAccess, error) {
	return cloud.SQLAccess{Engine: job.Postgres}, nil
}

// bench is a datastore job with what its databases stand on.
type bench struct {
	store  *store
	sql    *sqlServer
	job    *job.Job
	set    Set
	points int // at which the process might have ended so far
	end    int // the point at which it does; 0: never
}

func newBench(spec string) *bench {
	b := &bench{
		store: &store{databases: map[string]job.LogicalDatabase{}, connections: map[string]job.Connection{}, secrets: map[string]string{}},
		sql:   &sqlServer{owners: map[string]string{"postgres": "admin", "theirs": "somebody"}, roles: map[string]string{}, grants: map[string]string{}},
		job: &job.Job{ID: "job_1", OrgID: "org_1", Kind: job.Provisioning, ResourceType: job.Datastore, Provider: job.AWS, Mode: job.ModeCreate, Name: "shop-db",
			Status: job.Running, Phase: job.PhaseProvision, Config: job.Config{Spec: json.RawMessage(spec)}},
	}
	step := func() error {
		if b.points++; b.points == b.end {
			return errCrash
		}
		return nil
	}
	b.store.step, b.sql.step = step, step
	b.set = Set{Cloud: datastoreCloud{}, Logical: b.store, SQL: func(context.Context, cloud.SQLAccess) (SQLServer, error) { return b.sql, nil }}
	return b
}

// pass is one worker's go; it comes back with what a wait would lead to.
func (b *bench) pass(t *testing.T) error {
	t.Helper()
	for range 50 {
		r := pipeline.NewRun(b.job, pipeline.Apply, nil, b.store, nil, time.Now, 1)
		err := b.set.syncDatabases(t.Context(), r)
		if !pipeline.IsWait(err) {
			return err
		}
	}
	return errors.New("it waits for ever")
}

// update asks for the operation on a finished job.
func (b *bench) update() { b.job.Phase = job.PhaseUpdate }

func (b *bench) connection(service string, database job.LogicalDatabase) job.Connection {
	id := job.NewID("con")
	c := job.Connection{ID: id, JobID: b.job.ID, DatabaseID: database.ID, Service: service, Access: job.ReadWrite, Role: job.RoleName(service, id), Status: job.LogicalPending, Wanted: 1}
	b.store.connections[id] = c
	return c
}

func (b *bench) database(t *testing.T, name string) job.LogicalDatabase {
	t.Helper()
	for _, d := range b.store.databases {
		if d.Name == name && d.Status != job.LogicalDeleted {
			return d
		}
	}
	t.Fatalf("there is no row of the database %s", name)
	return job.LogicalDatabase{}
}

// life is the whole life of a database and a connection: made, rotated, dropped.
// Each part is repeated until it goes through.
func (b *bench) life(t *testing.T) {
	t.Helper()
	run := func(done func() bool) {
		t.Helper()
		for range 4 {
			if err := b.pass(t); err != nil && !errors.Is(err, pipeline.ErrLeaseLost) {
				t.Fatalf("after %v: %v", b.sql.calls, err)
			}
			if done() {
				return
			}
		}
		t.Fatalf("not done after %v: %+v %+v", b.sql.calls, b.store.databases, b.store.connections)
	}
	run(func() bool {
		for _, d := range b.store.databases {
			return d.Status == job.LogicalReady
		}
		return false
	})
	orders := b.database(t, "orders")
	if b.sql.owners["orders"] != orders.OwnerRole || b.sql.roles[orders.OwnerRole] != b.store.secrets[job.SecretID(orders.ID, 1)] {
		t.Fatalf("the owner %s has %q and the store %v", orders.OwnerRole, b.sql.roles[orders.OwnerRole], b.store.secrets)
	}
	b.update()
	c := b.connection("checkout", orders)
	ready := func() bool {
		now := b.store.connections[c.ID]
		return now.Status == job.LogicalReady && now.Secret == now.Wanted
	}
	run(ready)
	c = b.store.connections[c.ID]
	c.Wanted, c.Status = 2, job.LogicalRotating
	b.store.connections[c.ID] = c
	run(ready)
	if got := b.sql.roles[c.Role]; got == "" || got != b.store.secrets[job.SecretID(c.ID, 2)] {
		t.Fatalf("the role has %q and the store %v", got, b.store.secrets)
	}
	c = b.store.connections[c.ID]
	c.Status = job.LogicalDeleting
	b.store.connections[c.ID] = c
	orders.Status = job.LogicalDeleting
	orders.Secret = b.store.databases[orders.ID].Secret
	b.store.databases[orders.ID] = orders
	run(func() bool {
		return b.store.connections[c.ID].Status == job.LogicalDeleted && b.store.databases[orders.ID].Status == job.LogicalDeleted
	})
	if len(b.sql.owners) != 2 || len(b.sql.roles) != 0 || len(b.sql.grants) != 0 {
		t.Fatalf("left at the server: %v %v %v", b.sql.owners, b.sql.roles, b.sql.grants)
	}
	if len(b.store.secrets) != 0 {
		t.Fatalf("left in the secret store: %v", b.store.secrets)
	}
}

// TestDatabasesSurviveACrashAnywhere ends the process before and after every write,
// to the ledger, to the secret store and to the server, and lets the next one go on.
func TestDatabasesSurviveACrashAnywhere(t *testing.T) {
	t.Parallel()
	whole := newBench(`{"engine":"postgres","databases":[{"name":"orders"}]}`)
	whole.life(t)
	if whole.points < 20 {
		t.Fatalf("only %d points at which the process could end", whole.points)
	}
	for end := 1; end <= whole.points; end++ {
		t.Run(fmt.Sprint(end), func(t *testing.T) {
			t.Parallel()
			b := newBench(`{"engine":"postgres","databases":[{"name":"orders"}]}`)
			b.end = end
			b.life(t)
		})
	}
}

// TestForeignDatabaseIsNotTakenOver stops the job that asks for it, and touches
// nothing; taken out of the spec, the job goes on.
func TestForeignDatabaseIsNotTakenOver(t *testing.T) {
	t.Parallel()
	b := newBench(`{"engine":"postgres","databases":[{"name":"theirs"}]}`)
	err := b.pass(t)
	var fatal *pipeline.FatalError
	if !errors.As(err, &fatal) || fatal.Problem.Field != "config.spec.databases" || b.sql.owners["theirs"] != "somebody" {
		t.Fatalf("%v; owners %v", err, b.sql.owners)
	}
	if slices.ContainsFunc(b.sql.calls, func(c string) bool { return strings.Contains(c, "theirs") }) {
		t.Errorf("calls: %v", b.sql.calls)
	}
	if d := b.database(t, "theirs"); d.Status != job.LogicalFailed || d.Error.Code != "database-exists" {
		t.Errorf("the row is %s: %+v", d.Status, d.Error)
	}
	// One that is asked for later fails alone.
	b.update()
	row := NewDatabase(b.job, "theirs2", "ada")
	b.sql.owners["theirs2"] = "somebody"
	b.store.databases[row.ID] = row
	if err := b.pass(t); err != nil {
		t.Errorf("a later request fails the job: %v", err)
	}
	if d := b.store.databases[row.ID]; d.Status != job.LogicalFailed {
		t.Errorf("the row is %s", d.Status)
	}
}

// TestUnreachableDatabaseEnds gives up with a reason that a person can read.
func TestUnreachableDatabaseEnds(t *testing.T) {
	t.Parallel()
	b := newBench(`{"engine":"postgres"}`)
	b.update()
	row := NewDatabase(b.job, "orders", "ada")
	b.store.databases[row.ID] = row
	down := &pipeline.CloudError{Class: pipeline.Unavailable, Service: "SQL", Op: "connect", Message: "connection refused"}
	b.set.SQL = func(context.Context, cloud.SQLAccess) (SQLServer, error) { return nil, down }
	if err := b.pass(t); err != nil {
		t.Fatal(err)
	}
	if d := b.store.databases[row.ID]; d.Status != job.LogicalFailed || d.Error.Code != "gave-up" || !strings.Contains(d.Error.Message, "connection refused") {
		t.Errorf("the row is %s: %+v", d.Status, d.Error)
	}
}

// TestTeardownDropsNoDatabase takes the secrets and leaves the server as it is: the
// final snapshot is of the whole.
func TestTeardownDropsNoDatabase(t *testing.T) {
	t.Parallel()
	b := newBench(`{"engine":"postgres","databases":[{"name":"orders"}]}`)
	if err := b.pass(t); err != nil {
		t.Fatal(err)
	}
	b.update()
	b.connection("checkout", b.database(t, "orders"))
	if err := b.pass(t); err != nil {
		t.Fatal(err)
	}
	b.sql.calls = nil
	b.job.Phase = job.PhaseTeardown
	r := pipeline.NewRun(b.job, pipeline.Apply, nil, b.store, nil, time.Now, 1)
	if err := b.set.removeConnections(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if len(b.sql.calls) != 0 || len(b.store.secrets) != 0 || b.sql.owners["orders"] == "" {
		t.Errorf("calls %v, secrets %v, owners %v", b.sql.calls, b.store.secrets, b.sql.owners)
	}
	ds, cs, _ := b.store.Rows(t.Context(), "", "")
	if len(ds)+len(cs) != 0 {
		t.Errorf("rows left: %v %v", ds, cs)
	}
}

// TestRequestThatIsFirstCounts ends a race between the spec's database and somebody's
// request for one of that name as one: the row that was first.
func TestRequestThatIsFirstCounts(t *testing.T) {
	t.Parallel()
	b := newBench(`{"engine":"postgres","databases":[{"name":"orders"}]}`)
	row := NewDatabase(b.job, "orders", "bob")
	b.store.rival = &row
	if err := b.pass(t); err != nil {
		t.Fatal(err)
	}
	if d := b.database(t, "orders"); d.ID != row.ID || d.Status != job.LogicalReady || b.sql.owners["orders"] != row.OwnerRole || len(b.sql.roles) != 1 || len(b.store.secrets) != 1 {
		t.Errorf("%+v; owners %v, roles %d, secrets %d", d, b.sql.owners, len(b.sql.roles), len(b.store.secrets))
	}
}

// TestDeletedDatabaseIsNotMadeAgain leaves a database of the spec deleted that
// somebody has deleted while the job was still at work.
func TestDeletedDatabaseIsNotMadeAgain(t *testing.T) {
	t.Parallel()
	b := newBench(`{"engine":"postgres","databases":[{"name":"orders"}]}`)
	if err := b.pass(t); err != nil {
		t.Fatal(err)
	}
	d := b.database(t, "orders")
	d.Status = job.LogicalDeleting
	b.store.databases[d.ID] = d
	for range 2 {
		if err := b.pass(t); err != nil {
			t.Fatal(err)
		}
	}
	if ds, _, _ := b.store.Rows(t.Context(), "", ""); len(ds) != 0 || b.sql.owners["orders"] != "" {
		t.Errorf("made again: %+v, owners %v", ds, b.sql.owners)
	}
}
