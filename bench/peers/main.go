// Peers measures durable steps per second of the provisioner's ledger against a
// bare UPDATE, River and DBOS Transact, on one PostgreSQL with fsync on, in one
// run, at the same concurrency and with the same payload a step. It is a module
// of its own, so that the peers' dependencies stay out of the product.
//
// Every figure is a line: BENCH <name> <value> <unit>.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/pgtest"
)

const (
	concurrent = 50
	stepsEach  = 7
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func main() {
	jobs := flag.Int("jobs", 2000, "jobs of 7 steps in each measurement")
	rounds := flag.Int("rounds", 3, "rounds; the median of each is printed")
	flag.Parse()
	if err := measure(context.Background(), *jobs, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// A contender runs jobs of 7 steps with a payload on a fresh database and says
// how long they took.
type contender struct {
	name string
	run  func(ctx context.Context, dsn string, jobs int, payload string) (time.Duration, error)
}

func measure(ctx context.Context, jobs, rounds int) error {
	server, err := pgtest.New(pgtest.Options{Fsync: true, Settings: map[string]string{"max_connections": "200", "shared_buffers": "256MB"}})
	if err != nil {
		return err
	}
	defer server.Close()
	contenders := []contender{{"bare_update", bare}, {"zopday", ours}, {"river", riverPeer}, {"dbos", dbosPeer}}
	for _, size := range []int{270, 2048} {
		seen := map[string][]float64{}
		for round := range rounds {
			for _, c := range contenders {
				name := fmt.Sprintf("%s_%d_%d", c.name, size, round)
				dsn, err := server.CreateDatabase(ctx, name)
				if err != nil {
					return err
				}
				took, err := c.run(ctx, dsn, jobs, filler(size))
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				seen[c.name] = append(seen[c.name], float64(jobs*stepsEach)/took.Seconds())
				if err := server.DropDatabase(ctx, name); err != nil {
					return err
				}
			}
		}
		value := map[string]float64{}
		for _, c := range contenders {
			value[c.name] = median(seen[c.name])
			fmt.Printf("BENCH steps_%s_%dB %.0f steps/s\n", c.name, size, value[c.name])
		}
		fmt.Printf("BENCH ratio_to_bare_update_%dB %.2f x\n", size, value["zopday"]/value["bare_update"])
		fmt.Printf("BENCH ratio_to_better_peer_%dB %.2f x\n", size, value["zopday"]/max(value["river"], value["dbos"]))
	}
	return nil
}

func median(v []float64) float64 {
	for i := range v {
		for k := i; k > 0 && v[k] < v[k-1]; k-- {
			v[k], v[k-1] = v[k-1], v[k]
		}
	}
	return v[len(v)/2]
}

// filler is text that compression makes nothing of.
func filler(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		b.WriteString(job.Token(fmt.Sprint(i)))
	}
	return b.String()[:n]
}

// share lets 50 goroutines take numbers below n.
func share(n int, each func(i int) error) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, concurrent)
	for w := range concurrent {
		wg.Go(func() {
			for errs[w] == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				errs[w] = each(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// bare is the yardstick: one UPDATE … RETURNING a step, and nothing else.
func bare(ctx context.Context, dsn string, jobs int, payload string) (time.Duration, error) {
	pool, err := pgxpool.New(ctx, withConns(dsn))
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, `CREATE TABLE bare (id int PRIMARY KEY, step int NOT NULL, payload json NOT NULL) WITH (fillfactor = 60)`); err != nil {
		return 0, err
	}
	if _, err := pool.Exec(ctx, `INSERT INTO bare SELECT i, 0, '{}' FROM generate_series(0, $1::int - 1) AS i`, jobs); err != nil {
		return 0, err
	}
	doc := `{"account":"` + payload + `"}`
	start := time.Now()
	err = share(jobs, func(i int) error {
		for s := range stepsEach {
			var step int
			if err := pool.QueryRow(ctx, `UPDATE bare SET step = $2, payload = $3 WHERE id = $1 RETURNING step`, i, s+1, doc).Scan(&step); err != nil {
				return err
			}
		}
		return nil
	})
	return time.Since(start), err
}

// ours claims the jobs and commits each step as the reconciler does: the job's
// row with its config, the step's row and an event, fenced by the lease; the
// last step completes the job.
func ours(ctx context.Context, dsn string, jobs int, payload string) (time.Duration, error) {
	d, err := db.Open(ctx, dsn)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	if err := d.Migrate(ctx); err != nil {
		return 0, err
	}
	l := ledger.New(d, ledger.Options{})
	for i := range jobs {
		j := &job.Job{ID: job.NewID("job"), OrgID: "org", Kind: job.Provisioning, ResourceType: job.VM, Provider: job.AWS, Mode: job.ModeCreate,
			Name: fmt.Sprintf("bench-%d", i), Region: "us-east-1", SubjectType: "vm_pool", SubjectID: job.NewID("vmp"), Status: job.Queued, Phase: job.PhaseProvision, CreatedBy: "bench"}
		if err := l.Insert(ctx, d, j); err != nil {
			return 0, err
		}
	}
	if err := l.Register(ctx, ledger.Worker{ID: "bench"}); err != nil {
		return 0, err
	}
	start := time.Now()
	claims := make(chan ledger.Claimed, 2*concurrent)
	var claimErr error
	go func() {
		defer close(claims)
		for got := 0; got < jobs; {
			if len(claims) > concurrent {
				time.Sleep(time.Millisecond)
				continue
			}
			cs, err := l.Claim(ctx, "bench", concurrent, ledger.ClaimOptions{DefaultTTL: time.Hour, DeadAfter: time.Hour})
			if err != nil || len(cs) == 0 {
				claimErr = fmt.Errorf("claimed %d of %d: %w", got, jobs, err)
				return
			}
			got += len(cs)
			for _, c := range cs {
				claims <- c
			}
		}
	}()
	err = share(jobs, func(int) error {
		c, ok := <-claims
		if !ok {
			return claimErr
		}
		c.Job.Config.InfraConfig.Account = payload
		for s := range stepsEach {
			now := time.Now()
			name := fmt.Sprintf("step%d", s)
			c.Job.CurrentStep = name
			cp := ledger.Checkpoint{Job: c.Job, Config: true,
				Steps:  []job.StepState{{Run: 1, Name: name, Direction: job.Up, Status: job.StepDone, StartedAt: &now, FinishedAt: &now}},
				Events: []job.Event{{Type: "step.done", Step: name, Run: 1, Message: name + " done"}}}
			if s == stepsEach-1 {
				c.Job.Status = job.Completed
			}
			if _, err := l.Checkpoint(ctx, c.Lease, cp); err != nil {
				return err
			}
		}
		return nil
	})
	return time.Since(start), err
}

type benchArgs struct {
	Payload string `json:"payload"`
}

func (benchArgs) Kind() string { return "bench" }

// benchWorker is a River job of 7 resumable steps, each made durable with the
// payload as its cursor before the next begins.
type benchWorker struct {
	river.WorkerDefaults[benchArgs]
	pool *pgxpool.Pool
	left *atomic.Int64
	done chan struct{}
}

func (w *benchWorker) Work(ctx context.Context, j *river.Job[benchArgs]) error {
	for s := range stepsEach {
		river.ResumableStepCursor(ctx, fmt.Sprintf("step%d", s), nil, func(ctx context.Context, _ string) error {
			return pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
				_, err := river.ResumableSetStepCursorTx[*riverpgxv5.Driver](ctx, tx, j, j.Args.Payload)
				return err
			})
		})
	}
	if w.left.Add(-1) == 0 {
		close(w.done)
	}
	return nil
}

func riverPeer(ctx context.Context, dsn string, jobs int, payload string) (time.Duration, error) {
	pool, err := pgxpool.New(ctx, withConns(dsn))
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: quiet})
	if err != nil {
		return 0, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return 0, err
	}
	w := &benchWorker{pool: pool, left: &atomic.Int64{}, done: make(chan struct{})}
	w.left.Store(int64(jobs))
	workers := river.NewWorkers()
	river.AddWorker(workers, w)
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Logger: quiet, Workers: workers, FetchCooldown: time.Millisecond, FetchPollInterval: 5 * time.Millisecond,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: concurrent}},
	})
	if err != nil {
		return 0, err
	}
	var many []river.InsertManyParams
	for range jobs {
		many = append(many, river.InsertManyParams{Args: benchArgs{payload}})
	}
	if _, err := client.InsertManyFast(ctx, many); err != nil {
		return 0, err
	}
	start := time.Now()
	if err := client.Start(ctx); err != nil {
		return 0, err
	}
	select {
	case <-w.done:
	case <-time.After(5 * time.Minute):
		return 0, errors.New("not done after 5 minutes")
	}
	took := time.Since(start)
	return took, client.Stop(ctx)
}

// dbosWorkflow is 7 steps that return the payload.
func dbosWorkflow(ctx dbos.Context, payload string) (string, error) {
	for range stepsEach {
		if _, err := dbos.RunAsStep(ctx, func(context.Context) (string, error) { return payload, nil }); err != nil {
			return "", err
		}
	}
	return "", nil
}

func dbosPeer(ctx context.Context, dsn string, jobs int, payload string) (time.Duration, error) {
	pool, err := pgxpool.New(ctx, withConns(dsn))
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	dc, err := dbos.NewContext(ctx, dbos.Config{AppName: "bench", SystemDBPool: pool, Logger: quiet})
	if err != nil {
		return 0, err
	}
	dbos.RegisterWorkflow(dc, dbosWorkflow)
	if err := dbos.Launch(dc); err != nil {
		return 0, err
	}
	defer dbos.Shutdown(dc, 10*time.Second)
	start := time.Now()
	err = share(jobs, func(int) error {
		h, err := dbos.RunWorkflow(dc, dbosWorkflow, payload)
		if err != nil {
			return err
		}
		_, err = h.GetResult()
		return err
	})
	return time.Since(start), err
}

func withConns(dsn string) string {
	sep := "?"
	if strings.Contains(dsn, "?") {
		sep = "&"
	}
	return fmt.Sprintf("%s%spool_max_conns=%d", dsn, sep, concurrent)
}
