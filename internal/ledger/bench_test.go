package ledger_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/pgtest"
)

// benchWorkers is how many goroutines write at once, and how many connections
// the bare statement has.
const benchWorkers = 50

// run shares b.N calls of step between benchWorkers goroutines, each with a
// number of its own, and reports how many a second there were.
func run(b *testing.B, step func(worker, i int) error) {
	b.Helper()
	var (
		next   atomic.Int64
		wg     sync.WaitGroup
		failed = make(chan error, benchWorkers)
	)
	b.ResetTimer()
	start := time.Now()
	for w := range benchWorkers {
		wg.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				if err := step(w, int(i)); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	select {
	case err := <-failed:
		b.Fatal(err)
	default:
	}
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "steps/s")
}

// payloads are infra_config documents of about the sizes that are compared.
var payloads = []struct {
	name string
	size int
}{{"270B", 270}, {"2KB", 2048}}

// filler is text that PostgreSQL's compression makes nothing of.
func filler(n, seed int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		b.WriteString(job.Token(fmt.Sprint(seed), fmt.Sprint(i)))
	}
	return b.String()[:n]
}

// BenchmarkBare is the yardstick: one UPDATE … RETURNING a step and nothing else.
func BenchmarkBare(b *testing.B) {
	for _, p := range payloads {
		b.Run(p.name, func(b *testing.B) {
			s := pgtest.Start(b, pgtest.Options{Fsync: true})
			ctx := context.Background()
			pool, err := pgxpool.New(ctx, s.Database(b)+"&pool_max_conns="+fmt.Sprint(benchWorkers))
			if err != nil {
				b.Fatal(err)
			}
			defer pool.Close()
			if _, err := pool.Exec(ctx, `CREATE TABLE bare (id text PRIMARY KEY, step bigint NOT NULL, payload json NOT NULL) WITH (fillfactor = 60)`); err != nil {
				b.Fatal(err)
			}
			for w := range benchWorkers {
				if _, err := pool.Exec(ctx, `INSERT INTO bare VALUES ($1, 0, '{}')`, fmt.Sprint(w)); err != nil {
					b.Fatal(err)
				}
			}
			text := `{"account":"` + filler(p.size-14, 1) + `"}`
			run(b, func(w, i int) error {
				var step int64
				return pool.QueryRow(ctx, `UPDATE bare SET step = $2, payload = $3 WHERE id = $1 RETURNING step`, fmt.Sprint(w), i, text).Scan(&step)
			})
		})
	}
}

// BenchmarkCheckpoint is a fenced checkpoint a step: job row with its
// infraConfig, step row, event row.
func BenchmarkCheckpoint(b *testing.B) {
	for _, p := range payloads {
		b.Run("postgres/"+p.name, func(b *testing.B) {
			s := pgtest.Start(b, pgtest.Options{Fsync: true})
			benchCheckpoint(b, s.ServiceDatabase(b), p.size)
		})
		b.Run("sqlite/"+p.name, func(b *testing.B) {
			benchCheckpoint(b, b.TempDir()+"/zopday.db", p.size)
		})
	}
}

func benchCheckpoint(b *testing.B, dsn string, size int) {
	e := open(b, dsn)
	e.register(b, "w")
	var claims []ledger.Claimed
	for range benchWorkers {
		e.insert(b)
		claims = append(claims, e.claim(b, "w"))
	}
	for i := range claims {
		claims[i].Job.Config.InfraConfig.Account = filler(size-40, i)
	}
	at := time.Now()
	run(b, func(w, i int) error {
		c := claims[w]
		step := fmt.Sprintf("step%d", i%7)
		c.Job.CurrentStep = step
		_, err := e.Checkpoint(context.Background(), c.Lease, ledger.Checkpoint{
			Job: c.Job, Config: true,
			Steps:  []job.StepState{{Run: i / 7, Name: step, Direction: job.Up, Status: job.StepDone, StartedAt: &at, FinishedAt: &at}},
			Events: []job.Event{{Type: "step.done", Step: step, Run: 1, Message: step + " done"}},
		})
		return err
	})
}

// BenchmarkClaim takes and gives back one due job among ten thousand that wait
// for their time and fifty thousand that are finished.
func BenchmarkClaim(b *testing.B) {
	for _, dialect := range []db.Dialect{db.SQLite, db.Postgres} {
		b.Run(string(dialect), func(b *testing.B) {
			dsn := dialects[dialect](b)
			e := open(b, dsn)
			e.register(b, "w")
			model := e.insert(b)
			const fill = `INSERT INTO provisioning_jobs (id, org_id, kind, resource_type, provider, mode, name, cloud_account_id, region, subject_type, subject_id,
				status, phase, run, spec, created_by, created_at, updated_at, next_run_at)
				SELECT 'x' || %[1]s || n, org_id, kind, resource_type, provider, mode, 'x' || %[1]s || n, cloud_account_id, region, subject_type, 'x' || %[1]s || n,
				%[1]s, phase, run, spec, created_by, created_at, updated_at, %[3]s
				FROM provisioning_jobs, (WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < %[2]d) SELECT n FROM c) AS c WHERE id = $1`
			e.sql(b, fmt.Sprintf(fill, "'running'", 10_000, e.d.Now()+" + 3600000000 + n"), model.ID)
			e.sql(b, fmt.Sprintf(fill, "'completed'", 50_000, "NULL"), model.ID)
			owner := e
			if dialect == db.Postgres {
				owner = open(b, pgtest.Superuser(b, dsn)) // the service must not
			}
			owner.sql(b, "ANALYZE")
			b.ResetTimer()
			for b.Loop() {
				c := e.claim(b, "w")
				if err := e.ReleaseAll(e.ctx, "w", c.Lease); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
