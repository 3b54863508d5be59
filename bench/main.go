// Bench measures the product on this machine: what one VM environment costs in
// cloud calls and time, how soon a submitted job is picked up, what ten thousand
// parked jobs cost, and the memory that many cluster jobs in parallel take. Every
// figure is a line: BENCH <name> <value> <unit>, or BENCH <name> <field>=<value> ….
// Names of parts as arguments run those alone, such as clusters.
//
// Durable steps per second, against other engines, are measured in bench/peers.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/pgtest"
	"github.com/zopday/provisioner/internal/server"
	"github.com/zopday/provisioner/internal/sim"
	simaws "github.com/zopday/provisioner/internal/sim/aws"
)

// pace is how fast the simulated cloud's clock runs, so that what is measured is
// the product's time and not the cloud's.
const pace = 600

const environment = `{"kind":"provisioning","resourceType":"vm","provider":"aws","mode":"create","name":"bench","region":"us-east-1","cloudAccountId":"default","submit":true,
"config":{"spec":{"pool":{"mode":"fixed","count":2},"loadBalancer":{"type":"http","plainHTTP":true}}}}`

type part struct {
	name string
	run  func(context.Context) error
}

// parts are what is measured, in this order.
var parts = []part{
	{"calls", func(ctx context.Context) error { return calls(ctx, "0ms", 0, 0) }},
	{"latency", func(ctx context.Context) error {
		return calls(ctx, "80ms_250ms", 80*time.Millisecond, 250*time.Millisecond)
	}},
	{"environments", environments},
	{"pickup", pickup},
	{"parked", parked},
	{"clusters", clusters},
}

func main() {
	// Ended by a signal, it still ends what it started.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, names []string) error {
	for _, name := range names {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return fmt.Errorf("there is no part %q", name)
		}
	}
	for _, p := range parts {
		if len(names) > 0 && !slices.Contains(names, p.name) {
			continue
		}
		if err := p.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

func report(name string, value float64, unit string) {
	fmt.Printf("BENCH %s %.4g %s\n", name, value, unit)
}

// A rig is the product and a simulated AWS in this process.
type rig struct {
	world *sim.World
	c     *client.Client
	close func()
}

func newRig(ctx context.Context, dsn string, o sim.Options, workers int) (*rig, error) {
	o.TimeScale = pace
	w := sim.New(o)
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	cloud := &http.Server{Handler: simaws.New(w, simaws.Options{}), ReadHeaderTimeout: time.Minute}
	go func() { _ = cloud.Serve(l) }() // ends when it is closed
	const token = "zop_bench_0123456789abcdefghijklmnopqrstu"
	s, err := server.Start(ctx, server.Config{
		Listen: "127.0.0.1:0", DB: dsn, Workers: workers, DeadAfter: 10 * time.Second, TimeScale: pace, Token: token,
		AWS: &server.AWS{Endpoint: "http://" + l.Addr().String(), AccessKey: "AKIAIOSFODNN7EXAMPLE", SecretKey: "simulated"},
	})
	if err != nil {
		return nil, errors.Join(err, cloud.Close())
	}
	c, err := client.New(client.Options{Server: s.URL(), Token: token})
	if err != nil {
		return nil, err
	}
	return &rig{w, c, func() {
		_ = s.Close(ctx) // the figures are taken
		_ = cloud.Close()
	}}, nil
}

// until polls a job until it has the status.
func (r *rig) until(ctx context.Context, id string, want job.Status) error {
	for {
		_, j, err := r.c.GetJob(ctx, id)
		if err != nil {
			return err
		}
		switch {
		case j.Status == want:
			return nil
		case j.Status != job.Queued && j.Status != job.Running:
			return fmt.Errorf("the job is %s: %w", j.Status, j.Error)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// calls measures one VM environment with a load balancer: created, verified, torn down.
func calls(ctx context.Context, name string, read, write time.Duration) error {
	dir, err := os.MkdirTemp("", "zopday-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	r, err := newRig(ctx, filepath.Join(dir, "zopday.db"), sim.Options{Seed: 1, ReadLatency: read, WriteLatency: write}, 16)
	if err != nil {
		return err
	}
	defer r.close()
	since := 0
	stretch := func(what string, do func() error) error {
		start := time.Now()
		if err := do(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		took := time.Since(start)
		all, mutating := 0, 0
		for _, e := range r.world.Books(sim.BookFilter{Since: since}) {
			all++
			if e.Mutating {
				mutating++
			}
			since = e.Seq
		}
		if read == 0 {
			report("vm_env_"+what+"_calls", float64(all), "calls")
			report("vm_env_"+what+"_mutating_calls", float64(mutating), "calls")
		}
		report("vm_env_"+what+"_wall_"+name, took.Seconds(), "s")
		return nil
	}
	var id string
	return errors.Join(
		stretch("create", func() error {
			_, j, err := r.c.CreateJob(ctx, []byte(environment), client.NewKey())
			if err != nil {
				return err
			}
			id = j.ID
			return r.until(ctx, id, job.Completed)
		}),
		stretch("rerun", func() error {
			_, v, err := r.c.Verify(ctx, id)
			if err == nil && len(v.Drift) > 0 {
				err = fmt.Errorf("drift: %+v", v.Drift)
			}
			return err
		}),
		stretch("teardown", func() error {
			if _, _, err := r.c.DeleteJob(ctx, id, "bench"); err != nil {
				return err
			}
			return r.until(ctx, id, job.Cancelled)
		}),
	)
}

// pickup measures the time from the answer to a submission until a worker has
// begun the job's first step, by the database's clock.
func pickup(ctx context.Context) error {
	pg, err := pgtest.New(pgtest.Options{Fsync: true})
	if err != nil {
		return err
	}
	defer pg.Close()
	dsn, err := pg.CreateDatabase(ctx, "pickup")
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "zopday-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for name, at := range map[string]string{"postgres": dsn, "sqlite": filepath.Join(dir, "zopday.db")} {
		r, err := newRig(ctx, at, sim.Options{Seed: 1}, 16)
		if err != nil {
			return err
		}
		var waits []time.Duration
		for i := range 200 {
			// Adopting what does not exist ends at the first step and makes nothing.
			doc := map[string]any{"kind": "provisioning", "resourceType": "vm", "provider": "aws", "mode": "adopt", "name": fmt.Sprintf("pickup-%d", i), "region": "us-east-1",
				"cloudAccountId": "default", "submit": true, "config": map[string]any{"spec": map[string]any{"adopt": map[string]any{"ids": []string{"i-0123456789abcdef0"}}}}}
			b, err := json.Marshal(doc)
			if err != nil {
				return err
			}
			_, j, err := r.c.CreateJob(ctx, b, client.NewKey())
			if err != nil {
				return err
			}
			wait, err := r.firstStep(ctx, j.ID, j.CreatedAt)
			if err != nil {
				return err
			}
			waits = append(waits, wait)
		}
		r.close()
		slices.Sort(waits)
		report("pickup_p50_"+name, float64(waits[len(waits)/2].Microseconds())/1000, "ms")
		report("pickup_p99_"+name, float64(waits[len(waits)*99/100].Microseconds())/1000, "ms")
	}
	return nil
}

func (r *rig) firstStep(ctx context.Context, id string, created time.Time) (time.Duration, error) {
	for range 2000 {
		_, events, err := r.c.Events(ctx, id, 0)
		if err != nil {
			return 0, err
		}
		for _, e := range events {
			if e.Type == "step.started" {
				return e.Time.Sub(created), nil
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
	return 0, fmt.Errorf("job %s was never picked up", id)
}

// parked measures what ten thousand jobs cost that wait for their clouds.
func parked(ctx context.Context) error {
	pg, err := pgtest.New(pgtest.Options{Fsync: true})
	if err != nil {
		return err
	}
	defer pg.Close()
	dsn, err := pg.CreateDatabase(ctx, "parked")
	if err != nil {
		return err
	}
	if err := park(ctx, dsn, 10_000); err != nil {
		return err
	}
	r, err := newRig(ctx, dsn, sim.Options{Seed: 1}, 16)
	if err != nil {
		return err
	}
	defer r.close()
	time.Sleep(2 * time.Second)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	cpu := cpuTime()
	const window = 10 * time.Second
	time.Sleep(window)
	report("parked_10000_heap", float64(m.HeapAlloc)/(1<<20), "MiB")
	report("parked_10000_goroutines", float64(runtime.NumGoroutine()), "goroutines")
	report("parked_10000_cpu", 100*(cpuTime()-cpu).Seconds()/window.Seconds(), "%_of_one_core")
	return nil
}

// park puts jobs into the ledger as a worker leaves them that waits an hour.
func park(ctx context.Context, dsn string, n int) error {
	d, err := db.Open(ctx, dsn)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Migrate(ctx); err != nil {
		return err
	}
	l := ledger.New(d, ledger.Options{})
	const worker = "parker"
	if err := l.Register(ctx, ledger.Worker{ID: worker}); err != nil {
		return err
	}
	for i := range n {
		j := &job.Job{ID: job.NewID("job"), OrgID: "org_default", Kind: job.Provisioning, ResourceType: job.VM, Provider: job.AWS, Mode: job.ModeCreate,
			Name: fmt.Sprintf("parked-%d", i), CloudAccountID: "default", Region: "us-east-1", SubjectType: "vm_pool", SubjectID: job.NewID("vmp"),
			Status: job.Queued, Phase: job.PhaseProvision, CreatedBy: "bench"}
		if err := l.Insert(ctx, d, j); err != nil {
			return err
		}
	}
	for left := n; left > 0; {
		claims, err := l.Claim(ctx, worker, 200, ledger.ClaimOptions{DeadAfter: time.Hour})
		if err != nil {
			return err
		}
		if len(claims) == 0 {
			return fmt.Errorf("%d jobs could not be claimed", left)
		}
		for _, c := range claims {
			c.Job.WaitingFor = "the control plane"
			if _, err := l.Checkpoint(ctx, c.Lease, ledger.Checkpoint{Job: c.Job, Release: true, NextIn: time.Hour}); err != nil {
				return err
			}
		}
		left -= len(claims)
	}
	return nil
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
