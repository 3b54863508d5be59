package gcp

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/api/compute/v1"
	"google.golang.org/api/servicenetworking/v1"
	"google.golang.org/api/sqladmin/v1"

	"github.com/zopday/provisioner/internal/sim"
)

// fakeDatabases notes what it is told.
type fakeDatabases struct {
	mu      sync.Mutex
	servers map[string]sim.DatabaseServer
	stopped map[string]bool
	notYet  bool
	calls   []string
	answer  func(user, password, statement string) ([][]string, error)
}

func (f *fakeDatabases) note(format string, args ...any) {
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
}

func (f *fakeDatabases) Open(d sim.DatabaseServer) sim.DatabaseEndpoint {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.servers[d.ID] = d
	return sim.DatabaseEndpoint{Host: "127.0.0.1", Port: 20000 + len(f.servers)}
}

func (f *fakeDatabases) Close(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.servers, id)
}

func (f *fakeDatabases) Stop(id string)                { f.stopped[id] = true }
func (f *fakeDatabases) Start(id string)               { delete(f.stopped, id) }
func (f *fakeDatabases) CreateDatabase(_, name string) { f.note("create database %s", name) }
func (f *fakeDatabases) DropDatabase(_, name string)   { f.note("drop database %s", name) }
func (f *fakeDatabases) DropUser(_, name string)       { f.note("drop user %s", name) }
func (f *fakeDatabases) CA() []byte                    { return []byte("the authority") }
func (f *fakeDatabases) Ready(string) (bool, error)    { return !f.notYet, nil }
func (f *fakeDatabases) SetUser(_ string, u sim.DatabaseUser) {
	f.note("set user %s %s %v", u.Name, u.Password, u.Roles)
}

func (f *fakeDatabases) Names(string) (databases, users []string, ok bool) { return nil, nil, false }

func (f *fakeDatabases) Query(_ context.Context, _, _, user, password, statement string) ([]string, [][]string, error) {
	if strings.Contains(statement, "FROM pg_roles WHERE") && !strings.Contains(statement, "nobody") {
		return []string{"a"}, [][]string{{"1"}}, nil
	}
	if f.answer == nil {
		return nil, nil, nil
	}
	rows, err := f.answer(user, password, statement)
	return []string{"a"}, rows, err
}

// only is the one server that is open.
func (f *fakeDatabases) only(t *testing.T) sim.DatabaseServer {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.servers {
		if len(f.servers) == 1 {
			return d
		}
	}
	t.Fatalf("%d servers are open", len(f.servers))
	return sim.DatabaseServer{}
}

// sqlRig is a rig with clients of Cloud SQL and servers behind it.
type sqlRig struct {
	*rig
	db *fakeDatabases
	*sqladmin.Service
}

func newSQL(t *testing.T, opt ...func(*sim.Options)) *sqlRig {
	t.Helper()
	db := &fakeDatabases{servers: map[string]sim.DatabaseServer{}, stopped: map[string]bool{}}
	g := &sqlRig{rig: newRigWith(t, Options{Databases: db}, opt...), db: db}
	g.Service = client(g.rig, sqladmin.NewService)
	return g
}

// newRigWith is newRig with options of the cloud.
func newRigWith(t *testing.T, c Options, opt ...func(*sim.Options)) *rig {
	t.Helper()
	o := sim.Options{Seed: 1, ConsistencyByID: -1, ConsistencyByList: -1, EmptyPages: -1}
	for _, f := range opt {
		f(&o)
	}
	w := sim.New(o)
	w.Clock.Stop()
	cloud := New(w, c)
	srv := httptest.NewServer(cloud)
	t.Cleanup(srv.Close)
	return &rig{t: t, world: w, cloud: cloud, url: srv.URL, token: "ya29.example"}
}

// ends steps the clock until an operation of Cloud SQL is done, and answers it.
func (g *sqlRig) ends(op *sqladmin.Operation, err error) *sqladmin.Operation {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
	for range 200 {
		if op.Status == "DONE" {
			return op
		}
		g.world.Step(10 * time.Second)
		if op, err = g.Operations.Get(testProject, op.Name).Do(); err != nil {
			g.t.Fatal(err)
		}
	}
	g.t.Fatalf("operation %s never ends: %+v", op.Name, op)
	return nil
}

// well is ends, for an operation without error.
func (g *sqlRig) well(op *sqladmin.Operation, err error) *sqladmin.Operation {
	g.t.Helper()
	op = g.ends(op, err)
	if op.Error != nil {
		g.t.Fatalf("operation %s: %+v", op.OperationType, op.Error.Errors[0])
	}
	return op
}

// peered makes a network with a private connection, and answers its path.
func (g *rig) peered(name string, prefix int64) string {
	g.t.Helper()
	c := g.compute()
	g.fine(c.Networks.Insert(testProject, &compute.Network{Name: name, AutoCreateSubnetworks: false, ForceSendFields: []string{"AutoCreateSubnetworks"}}).Do())
	network := "projects/" + testProject + "/global/networks/" + name
	g.fine(c.GlobalAddresses.Insert(testProject, &compute.Address{Name: name + "-range", Purpose: "VPC_PEERING", AddressType: "INTERNAL", PrefixLength: prefix, Network: network}).Do())
	sn := client(g, servicenetworking.NewService)
	op, err := sn.Services.Connections.Create("services/servicenetworking.googleapis.com", &servicenetworking.Connection{Network: g.byNumber(network),
		ReservedPeeringRanges: []string{name + "-range"}}).Do()
	if err != nil {
		g.t.Fatal(err)
	}
	g.connected(sn, op)
	return network
}

func (g *rig) byNumber(network string) string {
	return strings.Replace(network, testProject, g.cloud.number(testProject), 1)
}

// connected steps the clock until an operation of Service Networking is done.
func (g *rig) connected(sn *servicenetworking.APIService, op *servicenetworking.Operation) *servicenetworking.Operation {
	g.t.Helper()
	for range 20 {
		if op.Done {
			return op
		}
		g.world.Step(10 * time.Second)
		var err error
		if op, err = sn.Operations.Get(op.Name).Do(); err != nil {
			g.t.Fatal(err)
		}
	}
	g.t.Fatal("the operation never ends")
	return nil
}

func postgresInstance(network string) *sqladmin.DatabaseInstance {
	return &sqladmin.DatabaseInstance{Name: "shop-db", DatabaseVersion: "POSTGRES_17", Region: "europe-west1", RootPassword: "s3cret-root", Settings: &sqladmin.Settings{
		Edition: "ENTERPRISE", Tier: "db-custom-2-7680", DeletionProtectionEnabled: true, DataApiAccess: "ALLOW_DATA_API", UserLabels: map[string]string{"zopday-job": "j1"},
		IpConfiguration:     &sqladmin.IpConfiguration{PrivateNetwork: network, SslMode: "ENCRYPTED_ONLY", ForceSendFields: []string{"Ipv4Enabled"}},
		BackupConfiguration: &sqladmin.BackupConfiguration{Enabled: true, PointInTimeRecoveryEnabled: true},
		DatabaseFlags:       []*sqladmin.DatabaseFlags{{Name: "log_statement", Value: "ddl"}, {Name: "cloudsql.iam_authentication", Value: "on"}},
	}}
}

func TestSQLInstance(t *testing.T) {
	t.Parallel()
	g := newSQL(t)
	network := g.peered("shop", 20)
	_, err := g.Instances.Get(testProject, "shop-db").Do()
	refused(t, err, 404, "instanceDoesNotExist")
	op, err := g.Instances.Insert(testProject, postgresInstance(network)).Do()
	if err != nil || op.Status != "PENDING" || op.OperationType != "CREATE" {
		t.Fatalf("insert: %+v, %v", op, err)
	}
	_, err = g.Instances.Insert(testProject, postgresInstance(network)).Do()
	refused(t, err, 409, "instanceAlreadyExists")
	_, err = g.Instances.Delete(testProject, "shop-db").Do()
	refused(t, err, 409, "operationInProgress")
	_, err = g.Users.Insert(testProject, "shop-db", &sqladmin.User{Name: "app", Password: "x"}).Do()
	refused(t, err, 400, "invalid")
	g.well(op, nil)
	in, err := g.Instances.Get(testProject, "shop-db").Do()
	if err != nil || in.State != "RUNNABLE" || len(in.IpAddresses) != 1 || in.IpAddresses[0].Type != "PRIVATE" || in.IpAddresses[0].IpAddress != "127.0.0.1:20001" {
		t.Fatalf("instance: %+v, %v", in, err)
	}
	if in.ServerCaCert.Cert != "the authority" || in.ConnectionName != testProject+":europe-west1:shop-db" || in.RootPassword != "" {
		t.Errorf("instance: %+v", in)
	}
	server := g.db.only(t)
	if server.Engine != "postgres" || server.Admin != "postgres" || server.Password != "s3cret-root" || server.AdminRole != "cloudsqlsuperuser" || !server.RequireTLS {
		t.Errorf("server: %+v", server)
	}
	if !server.Admits(sim.KubeCaller{Inside: true}) || server.Admits(sim.KubeCaller{}) {
		t.Error("an instance with a private address alone lets in those that are inside, and nobody else")
	}
	_, err = g.Instances.Delete(testProject, "shop-db").Do()
	refused(t, err, 400, "deletionProtectionEnabled")
	g.well(g.Instances.Patch(testProject, "shop-db", &sqladmin.DatabaseInstance{Settings: &sqladmin.Settings{ForceSendFields: []string{"DeletionProtectionEnabled"}}}).Do())
	g.well(g.Instances.Delete(testProject, "shop-db").EnableFinalBackup(true).FinalBackupTtlDays(7).FinalBackupDescription("of job j1").Do())
	_, err = g.Instances.Get(testProject, "shop-db").Do()
	refused(t, err, 404, "instanceDoesNotExist")
	if len(g.db.servers) != 0 {
		t.Error("the server of a deleted instance is still open")
	}
	list, err := g.Backups.ListBackups("projects/" + testProject).Filter("instance:shop-db").Do()
	if err != nil || len(list.Backups) != 1 || list.Backups[0].Type != "FINAL" || list.Backups[0].Description != "of job j1" || list.Backups[0].InstanceDeletionTime == "" {
		t.Fatalf("backups: %+v, %v", list, err)
	}
	op, err = g.Backups.DeleteBackup(list.Backups[0].Name).Do()
	g.well(op, err)
	if _, err := g.Backups.GetBackup(list.Backups[0].Name).Do(); err == nil {
		t.Error("a deleted backup is still there")
	}
	g.well(g.Instances.Insert(testProject, postgresInstance(network)).Do()) // the name is free at once
}

func TestSQLUsersAndDatabases(t *testing.T) {
	t.Parallel()
	g := newSQL(t)
	g.well(g.Instances.Insert(testProject, postgresInstance(g.peered("shop", 20))).Do())
	g.well(g.Databases.Insert(testProject, "shop-db", &sqladmin.Database{Name: "orders"}).Do())
	_, err := g.Databases.Insert(testProject, "shop-db", &sqladmin.Database{Name: "orders"}).Do()
	refused(t, err, 400, "invalid")
	if d, err := g.Databases.Get(testProject, "shop-db", "orders").Do(); err != nil || d.Charset != "UTF8" {
		t.Errorf("database: %+v, %v", d, err)
	}
	g.well(g.Users.Insert(testProject, "shop-db", &sqladmin.User{Name: "app", Password: "p1"}).Do())
	g.well(g.Users.Insert(testProject, "shop-db", &sqladmin.User{Name: "reader", Password: "p2", DatabaseRoles: []string{"pg_read_all_data"}}).Do())
	g.db.answer = func(_, _, statement string) ([][]string, error) {
		if strings.Contains(statement, "pg_shdepend") && strings.Contains(statement, "'app'") {
			return [][]string{{"orders", "3"}}, nil
		}
		return nil, nil
	}
	_, err = g.Users.Delete(testProject, "shop-db").Name("app").Do()
	refused(t, err, 400, "invalid")
	if err == nil || !strings.Contains(err.Error(), "3 objects in database orders") {
		t.Errorf("user with objects: %v", err)
	}
	g.well(g.Users.Delete(testProject, "shop-db").Name("reader").Do())
	g.well(g.Users.Update(testProject, "shop-db", &sqladmin.User{Password: "p3"}).Name("app").Do())
	g.well(g.Databases.Delete(testProject, "shop-db", "orders").Do())
	_, err = g.Databases.Get(testProject, "shop-db", "orders").Do()
	refused(t, err, 404, "notFound")
	want := []string{"create database orders", "set user app p1 [cloudsqlsuperuser]", "set user reader p2 [pg_read_all_data]", "drop user reader", "set user app p3 [cloudsqlsuperuser]", "drop database orders"}
	if !slices.Equal(g.db.calls, want) {
		t.Errorf("the server was told %q, want %q", g.db.calls, want)
	}
	list, err := g.Users.List(testProject, "shop-db").Do()
	if err != nil || len(list.Items) != 2 || list.Items[1].Name != "app" {
		t.Errorf("users: %+v, %v", list, err)
	}
}
