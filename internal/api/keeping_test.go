package api

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/pgtest"
	"github.com/zopday/provisioner/internal/provision"
	"github.com/zopday/provisioner/internal/secrets"
)

// Who asks in the tests of what concerns the whole installation.
const (
	operatorToken  = "zop_operator0000000000000000000000000000000"
	opTeamToken    = "zop_operatorsteam00000000000000000000000000"
	opEditorToken  = "zop_operatorseditor000000000000000000000000"
	opManagerToken = "zop_operatorsmanager00000000000000000000000"
)

// keep is the installation's keys and database as the server has them; rotations wait
// while hold is locked, and tell how long they have.
type keep struct {
	d     *db.DB
	store *secrets.Store
	dir   string
	hold  sync.RWMutex
	begun chan time.Duration
}

func (k *keep) Rotate(ctx context.Context) (secrets.Rotation, error) {
	end, _ := ctx.Deadline()
	k.begun <- time.Until(end)
	k.hold.RLock()
	defer k.hold.RUnlock()
	return k.store.Rotate(ctx, k.d)
}

func (k *keep) Status(ctx context.Context) (secrets.Status, error) { return secrets.StatusOf(ctx, k.d) }

func (k *keep) Backup(ctx context.Context) (io.ReadCloser, int64, error) {
	f, err := os.CreateTemp(k.dir, "copy-")
	if err != nil {
		return nil, 0, err
	}
	path := f.Name() + ".db"
	if err := k.d.Copy(ctx, path); err != nil {
		return nil, 0, err
	}
	text, err := os.ReadFile(path)
	return io.NopCloser(bytes.NewReader(text)), int64(len(text)), err
}

// keepingRig has secrets of two organisations, and everybody who may ask.
func keepingRig(t *testing.T, dsn string) (*rig, *keep) {
	t.Helper()
	k := &keep{dir: t.TempDir(), begun: make(chan time.Duration, 100)}
	r := newRigWith(t, dsn, func(r *rig, c *provision.Config) {
		store, err := secrets.Open(db.System(t.Context()), r.db, secrets.Source{Text: strings.Repeat("0123456789abcdef", 4)})
		if err != nil {
			t.Fatal(err)
		}
		k.d, k.store, c.Keeper = r.db, store, k
	})
	const org = access.DefaultOrg
	grants := func(kind access.ScopeKind, id string, policies ...access.Policy) access.Principal {
		return access.Principal{OrgID: org, Actor: "tina", Grants: []access.Grant{{Policies: policies, Scope: access.Scope{Kind: kind, ID: id}}}}
	}
	who := r.api.Access.(people)
	who[operatorToken] = access.Of(org, "root", access.Admin)
	who[opEditorToken] = access.Of(org, "ed", access.Editor)
	who[opTeamToken] = grants(access.TeamScope, "team_x", access.BuiltIn(access.Admin)...)
	who[opManagerToken] = grants(access.OrgScope, "", access.TokenManage)
	for _, of := range []string{"org1", "org2"} {
		for i := range 120 {
			err := r.db.InTx(db.WithOrg(t.Context(), of), func(ctx context.Context, tx db.Q) error {
				return k.store.Put(ctx, tx, of, fmt.Sprintf("s%d", i), []byte(of+" keeps this"))
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return r, k
}

func (k *keep) readable(t *testing.T) {
	t.Helper()
	for _, of := range []string{"org1", "org2"} {
		for i := range 120 {
			if got, err := k.store.Get(db.WithOrg(t.Context(), of), k.d, of, fmt.Sprintf("s%d", i)); err != nil || string(got) != of+" keeps this" {
				t.Fatalf("secret %d of %s: %q, %v", i, of, got, err)
			}
		}
	}
}

// TestKeeping: what concerns the whole installation is for whoever is an admin of all
// of its first organisation, and for nobody else.
func TestKeeping(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		testKeeping(t, filepath.Join(t.TempDir(), "ledger.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		testKeeping(t, pgtest.ServiceDatabase(t))
	})
}

func testKeeping(t *testing.T, dsn string) {
	r, k := keepingRig(t, dsn)
	ops := []string{"GET /secrets", "POST /secrets/rotate", "POST /backup"}
	var before secrets.Status
	r.do(operatorToken, "GET", "/secrets", "").into(t, &before)
	if before.Key == "" {
		t.Fatalf("%+v", before)
	}
	for name, token := range map[string]string{
		"an admin of a team": opTeamToken, "an editor": opEditorToken, "whoever manages tokens alone": opManagerToken,
		"another organisation's admin": adminToken, "its viewer": viewerToken, "nobody's role": noneToken,
	} {
		for _, op := range ops {
			method, path, _ := strings.Cut(op, " ")
			a := r.do(token, method, path, "")
			a.fails(t, op+" by "+name, http.StatusForbidden, "forbidden", "")
			if strings.Contains(string(a.body), before.Key) {
				t.Errorf("%s by %s names the key", op, name)
			}
		}
	}
	for _, op := range ops {
		method, path, _ := strings.Cut(op, " ")
		r.do("", method, path, "").fails(t, op+" by nobody", http.StatusUnauthorized, "unauthenticated", "")
	}
	if len(k.begun) > 0 {
		t.Fatal("somebody rotated the keys who may not")
	}

	var did secrets.Rotation
	if a := r.do(operatorToken, "POST", "/secrets/rotate", ""); a.status != 200 {
		t.Fatalf("rotation: %d %s", a.status, a.body)
	} else if a.into(t, &did); did.Key == before.Key || did.Rewritten != 240 {
		t.Errorf("%+v", did)
	}
	if left := <-k.begun; left <= answerWithin {
		t.Errorf("a rotation has %s", left)
	}
	k.readable(t)
	backup := r.do(operatorToken, "POST", "/backup", "")
	if r.db.Dialect() == db.Postgres {
		backup.fails(t, "a copy of PostgreSQL", http.StatusConflict, "wrong-state", "")
	} else if backup.status != 200 || !strings.HasPrefix(string(backup.body), "SQLite format 3\x00") || backup.header.Get("Content-Type") != "application/vnd.sqlite3" {
		t.Errorf("backup: %d %q %.100q", backup.status, backup.header, backup.body)
	} else if strings.Contains(string(backup.body), "keeps this") {
		t.Error("the backup holds a secret in the clear")
	}
	var entries []struct{ Action, Actor, Outcome string }
	r.do(operatorToken, "GET", "/audit-logs", "").into(t, &entries)
	text := fmt.Sprint(entries)
	for _, want := range []string{"{secrets:rotate root allowed}", "{backup:create root allowed}", "{token:manage tina refused}"} {
		if !strings.Contains(text, want) {
			t.Errorf("the audit log has no %s: %s", want, text)
		}
	}
}

// TestKeepingWhileARotationRuns: others wait for nothing, and several rotations at
// once lose no secret.
func TestKeepingWhileARotationRuns(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		testKeepingMeanwhile(t, filepath.Join(t.TempDir(), "ledger.db"))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		testKeepingMeanwhile(t, pgtest.ServiceDatabase(t))
	})
}

func testKeepingMeanwhile(t *testing.T, dsn string) {
	r, k := keepingRig(t, dsn)
	const rotations = 3
	k.hold.Lock()
	var wg sync.WaitGroup
	for range rotations {
		wg.Go(func() {
			if a := r.do(operatorToken, "POST", "/secrets/rotate", ""); a.status != 200 {
				t.Errorf("rotation: %d %s", a.status, a.body)
			}
		})
	}
	for range rotations {
		<-k.begun
	}
	look := func() {
		if a := r.do(operatorToken, "GET", "/secrets", ""); a.status != 200 {
			t.Errorf("meanwhile: %d %s", a.status, a.body)
		}
		if a := r.do(operatorToken, "POST", "/backup", ""); a.status != 200 && r.db.Dialect() == db.SQLite {
			t.Errorf("backup meanwhile: %d %s", a.status, a.body)
		}
		r.do(opTeamToken, "POST", "/secrets/rotate", "").fails(t, "an admin of a team meanwhile", http.StatusForbidden, "forbidden", "")
		k.readable(t)
	}
	look()
	k.hold.Unlock()
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for ended := false; !ended; {
		select {
		case <-done:
			ended = true
		default:
			look()
		}
	}
	k.readable(t)
	var after secrets.Status
	if r.do(operatorToken, "GET", "/secrets", "").into(t, &after); after.Rotating || len(after.Keys) != 1 {
		t.Errorf("%+v", after)
	}
}
