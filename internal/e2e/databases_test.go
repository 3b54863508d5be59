package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	sqldriver "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/databases"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/kube"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/secrets"
	"github.com/zopday/provisioner/internal/sim"
	simdatabases "github.com/zopday/provisioner/internal/sim/databases"
	"github.com/zopday/provisioner/internal/steps"
)

// insider is where a worker stands that runs in the network of what it makes.
var insider = sim.KubeCaller{Inside: true}

// startDatabases is what stands behind the datastores of one world: nothing is
// started before one is made.
func startDatabases(t testing.TB) *simdatabases.Databases {
	t.Helper()
	d, err := simdatabases.New(simdatabases.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Shutdown)
	return d
}

// standInside puts the workers into the network of what they make.
func (r *rig) standInside() {
	r.inside = true
	r.databases.SetCaller(insider)
}

func (r *rig) reach() job.Reach {
	if r.inside {
		return job.Reach{Mode: job.ReachDirect}
	}
	return outside
}

func openSQL(ctx context.Context, access cloud.SQLAccess) (steps.SQLServer, error) {
	s, err := databases.Open(ctx, access)
	if err != nil {
		return nil, err // not a nil pointer in an interface
	}
	return s, nil
}

// masterKey is the key of every rig's secrets.
var masterKey = sync.OnceValue(func() secrets.Source {
	return secrets.Source{Text: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
})

// vault keeps secrets as the server does.
type vault struct {
	*ledger.Ledger
	d *db.DB
	s *secrets.Store
}

func (r *rig) logical() vault {
	r.t.Helper()
	s, err := secrets.Open(r.t.Context(), r.d, masterKey())
	if err != nil {
		r.t.Fatal(err)
	}
	return vault{r.ledger, r.d, s}
}

func (v vault) Rows(ctx context.Context, org, jobID string) ([]job.LogicalDatabase, []job.Connection, error) {
	d, err := v.Databases(ctx, org, jobID)
	if err != nil {
		return nil, nil, err
	}
	c, err := v.Connections(ctx, org, jobID)
	return d, c, err
}

func (v vault) Password(ctx context.Context, org, id string) (string, error) {
	got, err := v.s.Once(ctx, v.d, org, id, []byte(job.NewPassword()))
	return string(got), err
}

func (v vault) Keep(ctx context.Context, org, id, secret string) error {
	return v.d.InTx(ctx, func(ctx context.Context, tx db.Q) error { return v.s.Put(ctx, tx, org, id, []byte(secret)) })
}

func (v vault) Forget(ctx context.Context, org, id string) error {
	return v.d.InTx(ctx, func(ctx context.Context, tx db.Q) error { return v.s.Delete(ctx, tx, org, id) })
}

// checkDatabases uses a finished datastore as its job's user does: a connection to
// the database of the spec, and one to a database that is asked for later; both are
// rotated, and dropped.
func (r *rig) checkDatabases(t *testing.T) {
	t.Helper()
	j := r.get()
	rows, err := r.ledger.Databases(t.Context(), org, j.ID)
	if err != nil || len(rows) != 1 || rows[0].Status != job.LogicalReady {
		t.Fatalf("databases after the job: %+v, error %v", rows, err)
	}
	orders := rows[0]
	stock := steps.NewDatabase(j, "stock", "ada")
	r.logicalChange(func(ctx context.Context, tx db.Q) error {
		_, _, err := r.ledger.AddDatabase(ctx, tx, org, stock)
		return err
	})
	var cons []job.Connection
	for _, d := range []job.LogicalDatabase{orders, stock} {
		for _, mode := range []job.AccessMode{job.ReadWrite, job.ReadOnly, job.OwnerMode} {
			id := job.NewID("con")
			service := strings.ReplaceAll("svc-"+string(mode)+"-"+d.Name, "_", "-")
			cons = append(cons, job.Connection{ID: id, JobID: j.ID, DatabaseID: d.ID, Service: service, Access: mode, Role: job.RoleName(service, id), Status: job.LogicalPending, CreatedBy: "ada"})
		}
	}
	r.logicalChange(func(ctx context.Context, tx db.Q) error {
		for _, c := range cons {
			if _, _, err := r.ledger.AddConnection(ctx, tx, org, c); err != nil {
				return err
			}
		}
		return nil
	})
	for _, c := range cons {
		r.checkConnection(t, c, "orders", "stock", map[string]string{orders.ID: "orders", stock.ID: "stock"}[c.DatabaseID])
	}
	r.logicalChange(func(ctx context.Context, tx db.Q) error {
		return r.ledger.AskConnection(ctx, tx, org, cons[0].ID, "ada", ledger.AskRotate)
	})
	r.checkConnection(t, cons[0], "orders", "stock", "orders")
	r.logicalChange(func(ctx context.Context, tx db.Q) error {
		for _, c := range cons {
			if c.DatabaseID == stock.ID {
				if err := r.ledger.AskConnection(ctx, tx, org, c.ID, "ada", ledger.AskDelete); err != nil {
					return err
				}
			}
		}
		return r.ledger.AskDatabase(ctx, tx, org, stock.ID, ledger.AskDelete)
	})
	rows, err = r.ledger.Databases(t.Context(), org, j.ID)
	left, cerr := r.ledger.Connections(t.Context(), org, j.ID)
	if err != nil || cerr != nil || len(rows) != 1 || len(left) != 3 {
		t.Errorf("after the deletions: %+v, %+v, errors %v, %v", rows, left, err, cerr)
	}
}

// logicalChange asks for something and waits until it is carried out.
func (r *rig) logicalChange(ask func(ctx context.Context, tx db.Q) error) {
	r.t.Helper()
	if err := r.d.InTx(r.t.Context(), ask); err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.ledger.Change(r.t.Context(), nil, org, r.jobID, func(j *job.Job, _ ledger.Standing) error { return ledger.BeginLogical(j) }); err != nil {
		r.t.Fatal(err)
	}
	r.await(job.Completed)
}

// checkConnection logs in as a connection's role, over TLS that is verified, and
// tries what it may and what it may not.
func (r *rig) checkConnection(t *testing.T, c job.Connection, one, other, own string) {
	t.Helper()
	rows, err := r.ledger.Connections(t.Context(), org, r.jobID)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(rows, func(x job.Connection) bool { return x.ID == c.ID })
	if i < 0 || rows[i].Status != job.LogicalReady {
		t.Fatalf("connection of %s: %+v", c.Service, rows)
	}
	c = rows[i]
	password, err := r.logical().Password(t.Context(), org, job.SecretID(c.ID, c.Secret))
	if err != nil {
		t.Fatal(err)
	}
	d := r.get().Config.InfraConfig.Datastore
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(r.databases.CA())
	login := login{engine: d.Engine, host: d.Host, port: d.Port, user: c.Role, password: password, tls: &tls.Config{RootCAs: roots, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}}
	may := func(database, statement string, want bool) {
		t.Helper()
		err := login.run(t.Context(), database, statement)
		if (err == nil) != want {
			t.Errorf("%s (%s) in %s: %s: allowed %v, error %v", c.Service, c.Access, database, statement, err == nil, err)
		}
	}
	table := "t_" + strings.ReplaceAll(string(c.Access), "_", "")
	may(own, "SELECT 1", true)
	may(own, "CREATE TABLE "+table+" (id int)", c.Access == job.OwnerMode)
	may(other, "SELECT 1", own == other)
	may(one, "SELECT 1", own == one)
}

// A login is a client of a datastore, as a service is one.
type login struct {
	engine         job.Engine
	host           string
	port           int
	user, password string
	tls            *tls.Config
}

func (l login) run(ctx context.Context, database, statement string) error {
	address := net.JoinHostPort(l.host, strconv.Itoa(l.port))
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if l.engine == job.Postgres {
		conf, err := pgx.ParseConfig("postgres://" + l.user + "@" + address + "/" + database + "?sslmode=require")
		if err != nil {
			return err
		}
		conf.Password, conf.TLSConfig = l.password, l.tls
		conn, err := pgx.ConnectConfig(ctx, conf)
		if err != nil {
			return err
		}
		defer conn.Close(ctx)
		_, err = conn.Exec(ctx, statement)
		return err
	}
	conf := sqldriver.NewConfig()
	conf.User, conf.Passwd, conf.Net, conf.Addr, conf.DBName, conf.TLS = l.user, l.password, "tcp", address, database, l.tls
	connector, err := sqldriver.NewConnector(conf)
	if err != nil {
		return err
	}
	conn := sql.OpenDB(connector)
	defer conn.Close()
	_, err = conn.ExecContext(ctx, statement)
	return err
}

// TestConnectionInASpace keeps the credentials of a connection in a Secret of a
// cluster: made with it, current after a rotation, gone with it; one of somebody else
// by that name is not touched.
func TestConnectionInASpace(t *testing.T) {
	t.Parallel()
	r := newRigAt(t, job.AWS, sim.Options{Seed: 11})
	r.standInside()
	r.kube.SetCaller(insider)
	before := r.world.Snapshot()
	r.start()
	cluster := r.job(job.Cluster, "platform", `{"nodePools":[{"name":"workers","min":1,"desired":1,"max":1}]}`)
	space := r.await(job.Completed).Config.InfraConfig.SpaceID
	r.job(job.Datastore, "shop-db", `{"engine":"postgres","databases":[{"name":"orders"}]}`)
	r.await(job.Completed)
	rows, err := r.ledger.Databases(t.Context(), org, r.jobID)
	if err != nil || len(rows) != 1 {
		t.Fatalf("%+v, error %v", rows, err)
	}
	id := job.NewID("con")
	con := job.Connection{
		ID: id, JobID: r.jobID, DatabaseID: rows[0].ID, Service: "checkout", Access: job.ReadWrite, Role: job.RoleName("checkout", id), Status: job.LogicalPending, CreatedBy: "ada",
		SpaceID: space, Namespace: "shop", SecretName: "checkout-orders", Variable: "DATABASE_URL",
	}
	r.logicalChange(func(ctx context.Context, tx db.Q) error {
		_, _, err := r.ledger.AddConnection(ctx, tx, org, con)
		return err
	})
	first := r.secret(cluster, "shop", "checkout-orders")
	if string(first["username"]) != con.Role || !strings.HasPrefix(string(first["DATABASE_URL"]), "postgresql://"+con.Role+":"+string(first["password"])+"@") || string(first["database"]) != "orders" {
		t.Errorf("the Secret has %v", slices.Sorted(maps.Keys(first)))
	}
	r.logicalChange(func(ctx context.Context, tx db.Q) error {
		return r.ledger.AskConnection(ctx, tx, org, id, "ada", ledger.AskRotate)
	})
	if second := r.secret(cluster, "shop", "checkout-orders"); string(second["password"]) == string(first["password"]) || len(second["password"]) != 32 {
		t.Error("after the rotation the Secret is not current")
	}

	// A second one that wants the first one's Secret is refused, and alone fails.
	other := con
	other.ID = job.NewID("con")
	other.Service, other.Role = "stock", job.RoleName("stock", other.ID)
	r.logicalChange(func(ctx context.Context, tx db.Q) error {
		_, _, err := r.ledger.AddConnection(ctx, tx, org, other)
		return err
	})
	all, err := r.ledger.Connections(t.Context(), org, r.jobID)
	if err != nil || len(all) != 2 || all[1].Status != job.LogicalFailed || all[1].Error.Code != "name-taken" {
		t.Errorf("%+v, error %v", all, err)
	}
	r.logicalChange(func(ctx context.Context, tx db.Q) error {
		if err := r.ledger.AskConnection(ctx, tx, org, other.ID, "ada", ledger.AskDelete); err != nil {
			return err
		}
		return r.ledger.AskConnection(ctx, tx, org, id, "ada", ledger.AskDelete)
	})
	if left := r.secret(cluster, "shop", "checkout-orders"); left != nil {
		t.Errorf("the Secret is still there: %v", slices.Sorted(maps.Keys(left)))
	}
	for _, id := range []string{r.jobID, cluster.ID} {
		r.jobID = id
		r.move(job.Delete, "")
		r.await(job.Cancelled)
	}
	r.jobID = rows[0].JobID // its snapshot stays
	r.checkGone(t, before)
}

// secret is what a Secret in a cluster holds; nil if there is none.
func (r *rig) secret(cluster *job.Job, namespace, name string) map[string][]byte {
	r.t.Helper()
	j, err := r.ledger.Get(r.t.Context(), org, cluster.ID)
	if err != nil {
		r.t.Fatal(err)
	}
	provider, err := r.clouds(&worker{r: r}).Open(r.t.Context(), j)
	if err != nil {
		r.t.Fatal(err)
	}
	way, err := provider.(cloud.ClusterFamily).KubeAccess(r.t.Context(), j.ClusterRef())
	if err != nil {
		r.t.Fatal(err)
	}
	c, err := kube.Client(r.t.Context(), way)
	if err != nil {
		r.t.Fatal(err)
	}
	s, err := c.CoreV1().Secrets(namespace).Get(r.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return s.Data
}

// datastoreServices are the simulated services that make and change datastores and
// caches.
var datastoreServices = []string{"rds", "elasticache", "sqladmin", "redis", "memorystore", "postgresql", "mysql", "cache"}

// checkCustomerDatabases demands of every test of this package that no job but one
// that makes a datastore has changed one. The books leave out what a test itself has
// placed.
func (r *rig) checkCustomerDatabases(t testing.TB) {
	if r.makesDatastores {
		return
	}
	yes := true
	for _, e := range r.world.Books(sim.BookFilter{Mutating: &yes}) {
		if slices.Contains(datastoreServices, e.Service) {
			t.Errorf("a datastore was changed without a job that makes one: %s %s %v", e.Service, e.Operation, e.Resources)
		}
	}
}
