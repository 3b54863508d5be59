package provision

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/databases"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/secrets"
	"github.com/zopday/provisioner/internal/sim"
	"github.com/zopday/provisioner/internal/steps"
)

func openSQL(ctx context.Context, a cloud.SQLAccess) (steps.SQLServer, error) {
	s, err := databases.Open(ctx, a)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// vault keeps secrets as the server does.
type vault struct {
	l *ledger.Ledger
	d *db.DB
	s *secrets.Store
}

func openVault(t *testing.T, l *ledger.Ledger, d *db.DB) vault {
	t.Helper()
	s, err := secrets.Open(t.Context(), d, secrets.Source{Text: strings.Repeat("0123456789abcdef", 4)})
	if err != nil {
		t.Fatal(err)
	}
	return vault{l, d, s}
}

func (v vault) Rows(ctx context.Context, org, id string) ([]job.LogicalDatabase, []job.Connection, error) {
	ds, err := v.l.Databases(ctx, org, id)
	if err != nil {
		return nil, nil, err
	}
	cs, err := v.l.Connections(ctx, org, id)
	return ds, cs, err
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

func (v vault) Secret(ctx context.Context, org, id string) (string, error) {
	got, err := v.s.Get(ctx, v.d, org, id)
	return string(got), err
}

func datastoreRequest(mode job.Mode, spec string) CreateRequest {
	return CreateRequest{ResourceType: job.Datastore, Provider: job.AWS, Mode: mode, Name: "shop-db", Region: "us-east-1", Submit: true, Config: ConfigRequest{Spec: json.RawMessage(spec)}}
}

// refusedAs demands that something was refused, and how.
func refusedAs(t *testing.T, err error, kind Kind, says string) {
	t.Helper()
	var r *Refusal
	if !errors.As(err, &r) || r.Kind != kind || !strings.Contains(r.Error()+" "+r.Hint, says) {
		t.Errorf("wanted %s that says %q, got %v", kind, says, err)
	} else if r.Hint == "" {
		t.Errorf("%q has no hint", r.Error())
	}
}

// settle waits until a connection is ready.
func (l *lab) settle(id, connection string) *job.Connection {
	l.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		c, err := l.Connection(l.ctx, id, "", connection)
		if err != nil {
			l.t.Fatal(err)
		}
		if !c.Status.Due() {
			return c
		}
	}
	l.t.Fatalf("the connection %s does not come to rest", connection)
	return nil
}

// TestDatabasesAndConnections is the life of a datastore's databases as its users see
// it: who is refused what, that races end as one, and that a secret is shown once.
func TestDatabasesAndConnections(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	l := newLab(t)
	l.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	v, _, err := l.Create(l.ctx, datastoreRequest(job.ModeCreate, `{"engine":"postgres","databases":[{"name":"orders"}]}`), "")
	if err != nil {
		t.Fatal(err)
	}
	l.await(v.ID, job.Completed)

	_, _, err = l.CreateDatabase(l.ctx, v.ID, DatabaseRequest{Name: "postgres"})
	refusedAs(t, err, Invalid, "keeps for itself")
	_, _, err = l.CreateDatabase(l.ctx, v.ID, DatabaseRequest{Name: `a"; DROP`})
	refusedAs(t, err, Invalid, "is not a database name")
	_, _, err = l.CreateConnection(l.ctx, v.ID, "", ConnectionRequest{Service: "checkout"})
	refusedAs(t, err, Invalid, "databaseId")
	_, _, err = l.CreateConnection(l.ctx, v.ID, "nothing", ConnectionRequest{Service: "checkout"})
	refusedAs(t, err, NotFound, "no such database")
	_, _, err = l.CreateConnection(l.ctx, v.ID, "orders", ConnectionRequest{Service: "checkout", Variable: "URL"})
	refusedAs(t, err, Invalid, "no space is named")

	// Many ask for the same at once: one row, one role.
	var wg sync.WaitGroup
	ids := make([]string, 6)
	for i := range ids {
		wg.Go(func() {
			c, _, err := l.CreateConnection(l.ctx, v.ID, "orders", ConnectionRequest{Service: "checkout"})
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = c.ID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Errorf("a race made %v", ids)
			break
		}
	}
	c := l.settle(v.ID, ids[0])
	if c.Status != job.LogicalReady || c.Role == "" {
		t.Fatalf("%+v", c)
	}
	_, _, err = l.CreateConnection(l.ctx, v.ID, "orders", ConnectionRequest{Service: "checkout", Access: job.ReadOnly})
	refusedAs(t, err, NameTaken, "asks for something else")
	_, err = l.DeleteDatabase(l.ctx, v.ID, "orders", "")
	refusedAs(t, err, ConfirmationNeeded, "?confirm=orders")
	_, err = l.DeleteDatabase(l.ctx, v.ID, "orders", "orders")
	refusedAs(t, err, WrongState, "attached")

	shown := l.revealed(v.ID, c)
	l.rotated(v.ID, c, shown)
	l.changesNothing(v.ID)

	if _, err := l.DeleteConnection(l.ctx, v.ID, "", c.ID); err != nil {
		t.Fatal(err)
	}
	l.await(v.ID, job.Completed)
	if _, err := l.DeleteDatabase(l.ctx, v.ID, "orders", "orders"); err != nil {
		t.Fatal(err)
	}
	l.await(v.ID, job.Completed)
	if all, err := l.Databases(l.ctx, v.ID); err != nil || len(all) != 0 {
		t.Errorf("left: %+v, error %v", all, err)
	}
	l.hasNo(&log, shown, v.ID)
}

// revealed shows a connection's secret, once: of many who ask, one gets it.
func (l *lab) revealed(id string, c *job.Connection) string {
	l.t.Helper()
	viewer := access.With(l.t.Context(), access.Of("org1", "eve", access.Viewer))
	_, err := l.Reveal(viewer, id, "", c.ID)
	refusedAs(l.t, err, Forbidden, "connection:reveal")
	var mu sync.Mutex
	var passwords []string
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			r, err := l.Reveal(l.ctx, id, "", c.ID)
			if err != nil {
				refusedAs(l.t, err, WrongState, "is shown once")
				return
			}
			mu.Lock()
			defer mu.Unlock()
			passwords = append(passwords, r.Credentials["password"])
			if r.Credentials["username"] != c.Role || r.Credentials["database"] != "orders" || !strings.HasPrefix(r.Credentials["url"], "postgresql://"+c.Role+":") {
				l.t.Errorf("credentials %v", r.Credentials)
			}
		})
	}
	wg.Wait()
	if len(passwords) != 1 || len(passwords[0]) != 32 {
		l.t.Fatalf("%d were shown the secret", len(passwords))
	}
	entries, _, err := audit.List(l.t.Context(), l.Ledger.DB(), "org1", audit.Filter{Action: string(access.ConnectionReveal), Limit: 100})
	outcomes := map[audit.Outcome]int{}
	for _, e := range entries {
		outcomes[e.Outcome]++
	}
	if err != nil || outcomes[audit.Allowed] != 1 || outcomes[audit.Refused] != 5 {
		l.t.Errorf("audited: %v, error %v", outcomes, err)
	}
	return passwords[0]
}

// rotated gives the connection another secret, which can be shown once again.
func (l *lab) rotated(id string, c *job.Connection, before string) {
	l.t.Helper()
	if _, err := l.RotateConnection(l.ctx, id, "", c.ID); err != nil {
		l.t.Fatal(err)
	}
	if got := l.settle(id, c.ID); got.Status != job.LogicalReady || got.RevealedAt != nil {
		l.t.Fatalf("%+v", got)
	}
	r, err := l.Reveal(l.ctx, id, "", c.ID)
	if err != nil || r.Credentials["password"] == before {
		l.t.Errorf("after the rotation: %v", err)
	}
}

// changesNothing demands that no PATCH gets through to a datastore.
func (l *lab) changesNothing(id string) {
	l.t.Helper()
	n := l.mutations()
	for _, spec := range []string{`{"size":{"vcpus":8,"memoryGiB":32}}`, `{"storageGiB":200}`, `{"version":"18"}`, `{"highAvailability":true}`, `{"preset":"production"}`, `{"deletionProtection":false}`} {
		_, _, err := l.Patch(l.ctx, id, PatchRequest{Config: &ConfigRequest{Spec: json.RawMessage(spec)}}, nil)
		refusedAs(l.t, err, CustomerDatabase, "aws rds modify-db-instance --db-instance-identifier shop-db-")
	}
	if _, _, err := l.Patch(l.ctx, id, PatchRequest{Config: &ConfigRequest{Spec: json.RawMessage(`{"skipFinalSnapshot":true}`)}}, nil); err != nil {
		l.t.Errorf("what is only on paper: %v", err)
	}
	if l.mutations() != n {
		l.t.Errorf("a refused PATCH changed something at the cloud")
	}
}

// hasNo demands that a secret stands nowhere that somebody without the right to see
// it looks: the log, the ledger and its files, the events, the answers of the API, the
// cloud's books.
func (l *lab) hasNo(log *bytes.Buffer, secret, id string) {
	l.t.Helper()
	var texts bytes.Buffer
	add := func(v any, err error) {
		l.t.Helper()
		if err != nil {
			l.t.Fatal(err)
		}
		b, err := json.Marshal(v)
		if err != nil {
			l.t.Fatal(err)
		}
		texts.Write(b)
	}
	v, err := l.Get(l.ctx, id)
	add(v, err)
	cs, err := l.Connections(l.ctx, id, "")
	add(cs, err)
	events, err := l.Ledger.Events(l.ctx, "org1", id, 0, 10_000)
	add(events, err)
	entries, _, err := audit.List(l.t.Context(), l.Ledger.DB(), "org1", audit.Filter{Limit: 1000})
	add(entries, err)
	add(l.world.Books(sim.BookFilter{}), nil)
	files, err := filepath.Glob(l.file + "*")
	if err != nil || len(files) == 0 {
		l.t.Fatalf("files %v, error %v", files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			l.t.Fatal(err)
		}
		texts.Write(b)
	}
	if bytes.Contains(texts.Bytes(), []byte(secret)) || bytes.Contains(log.Bytes(), []byte(secret)) {
		l.t.Error("the secret stands somewhere in the clear")
	}
}

// TestAdoptedDatastoreIsOnlyRead refuses everything that would change one.
func TestAdoptedDatastoreIsOnlyRead(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	if _, err := l.world.Invoke("aws", "rds", "CreateDBInstance", "123456789012", "us-east-1", map[string]any{
		"DBInstanceIdentifier": "legacy", "Engine": "postgres", "DBInstanceClass": "db.t4g.medium", "AllocatedStorage": 20, "MasterUsername": "dba",
		"MasterUserPassword": "somebody-elses-1", "PubliclyAccessible": true, "BackupRetentionPeriod": 0,
	}); err != nil {
		t.Fatal(err)
	}
	l.world.Step(30 * time.Minute)
	n := l.mutations()
	v, _, err := l.Create(l.ctx, datastoreRequest(job.ModeAdopt, `{"engine":"postgres","adopt":{"name":"legacy"},"monitorOnly":true}`), "")
	if err != nil {
		t.Fatal(err)
	}
	v = l.await(v.ID, job.Completed)
	d := v.Config.InfraConfig.Datastore
	if d.Name != "legacy" || d.Class != "db.t4g.medium" || len(d.RiskNotes) < 3 || len(d.Recommendations) == 0 {
		t.Errorf("adopted as %+v", d)
	}
	_, _, err = l.CreateDatabase(l.ctx, v.ID, DatabaseRequest{Name: "orders"})
	refusedAs(t, err, CustomerDatabase, "was adopted")
	_, _, err = l.CreateConnection(l.ctx, v.ID, "", ConnectionRequest{Service: "checkout"})
	refusedAs(t, err, CustomerDatabase, "was adopted")
	_, _, err = l.Patch(l.ctx, v.ID, PatchRequest{Config: &ConfigRequest{Spec: json.RawMessage(`{"storageGiB":200}`)}}, nil)
	refusedAs(t, err, CustomerDatabase, "aws rds modify-db-instance --db-instance-identifier legacy")
	if _, err := l.Recommendations(l.ctx, v.ID); err != nil {
		t.Error(err)
	}
	if _, _, err := l.Delete(l.ctx, v.ID, "", nil); err != nil {
		t.Fatal(err)
	}
	l.await(v.ID, job.Cancelled)
	if l.mutations() != n {
		t.Error("a job that adopted a datastore changed something at the cloud")
	}
}

// TestDeletionOfADatastoreIsConfirmed asks for the name, since its protection is lifted.
func TestDeletionOfADatastoreIsConfirmed(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	v, _, err := l.Create(l.ctx, datastoreRequest(job.ModeCreate, `{"engine":"mysql","preset":"dev"}`), "")
	if err != nil {
		t.Fatal(err)
	}
	l.await(v.ID, job.Completed)
	_, _, err = l.Delete(l.ctx, v.ID, "", nil)
	refusedAs(t, err, ConfirmationNeeded, "?confirm=shop-db")
	if _, _, err := l.Delete(l.ctx, v.ID, "shop-db", nil); err != nil {
		t.Fatal(err)
	}
	l.await(v.ID, job.Cancelled)
	r, err := l.Receipt(l.ctx, v.ID)
	if err != nil || r.Kept != 1 || r.Left == nil || *r.Left != 0 || r.Created != r.Removed+r.Kept {
		t.Errorf("receipt %+v, error %v", r, err)
	}
	_, _, err = l.CreateDatabase(l.ctx, v.ID, DatabaseRequest{Name: "orders"})
	refusedAs(t, err, WrongState, "torn down")
}
