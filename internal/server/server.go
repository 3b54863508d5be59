// Package server puts one process of the provisioner together: the database
// and its ledger, the workers, the spaces, the clouds and the API. It knows
// everything that runs and nothing of simulated clouds, flags or terminals.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/access/oidc"
	"github.com/zopday/provisioner/internal/api"
	"github.com/zopday/provisioner/internal/cloud/aws"
	"github.com/zopday/provisioner/internal/components"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/observe"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/provision"
	"github.com/zopday/provisioner/internal/reconciler"
	"github.com/zopday/provisioner/internal/remediation"
	"github.com/zopday/provisioner/internal/secrets"
	"github.com/zopday/provisioner/internal/spaces"
)

// Config is how a process is to run.
type Config struct {
	Listen        string                            // address, port 0 is any free one; or unix: and a path
	Edges         Edges                             // TLS and what else meets the network
	DB            string                            // path of an SQLite file, or a postgres:// DSN
	SecretKey     string                            // key file or URI of a key in a KMS; "": the environment, or a file beside an SQLite file
	Migrate       string                            // MigrateAuto or MigrateNever; "" is MigrateAuto
	Workers       int                               // jobs carried out side by side; 0: none, the API alone
	DeadAfter     time.Duration                     // silence after which a worker's jobs are taken over
	TimeScale     float64                           // simulated clouds: how many of their seconds pass in a real one; 0 and 1 are real time
	Token         string                            // the bootstrap token; "" keeps the one there is, or makes one
	ConfigService string                            // address of an external config service; "" is the built-in one
	SignIn        SignIn                            // issuers of people and machines
	Gates         job.Gates                         // the feature gates that are on
	Reach         job.Reach                         // how private endpoints are reached in cloud accounts that do not say
	TokenDir      string                            // where token files of cloud accounts may be; "": nowhere
	AmbientOrgs   []string                          // organisations, beside the first, whose jobs may work with the process's own identity; "*": all
	Catalogue     []byte                            // components of the user's own, YAML; nil: none
	ChartMirror   string                            // where all charts are taken from; "": their own sources
	AWS           *AWS                              // nil: configured by the environment, as for every SDK of AWS
	GCP           *GCP                              // likewise
	Azure         *Azure                            // likewise
	Pausers       func(*remediation.Registry) error // registers further kinds; nil: those of the clouds alone
	Version       api.Version
	Log           *slog.Logger
}

// AWS is a fixed endpoint with fixed credentials.
type AWS struct {
	Endpoint, AccessKey, SecretKey string
	Others                         []aws.Account // further cloud accounts, which hold peers
	DatabaseRoots                  []byte        // sign the certificates of datastores, PEM; nil: those of AWS
}

// GCP is a fixed endpoint of all services, with a fixed token.
type GCP struct {
	Endpoint, Project, Token string
	Roots                    []byte // trusted besides the system's for the DNS endpoints of clusters, PEM
}

// Azure is a fixed Resource Manager that is its own authority, with a fixed
// service principal.
type Azure struct {
	Endpoint                                     string
	CA                                           []byte // its root certificate, PEM
	Tenant, Subscription, ClientID, ClientSecret string
}

// A Server is one process that runs.
type Server struct {
	url     string
	fresh   string
	log     *slog.Logger
	secrets *secrets.Store // nil while the store is closed
	signIn  *oidc.SignIn   // nil: nobody signs in

	http     *http.Server
	listener *bounded
	keys     *keyPair // nil without TLS
	stopWork context.CancelFunc
	stopping chan struct{}
	work     sync.WaitGroup
	done     chan struct{}
	closeAll []func() error

	mu      sync.Mutex
	err     error
	ended   bool
	closing sync.Once
	closed  error
}

// Start opens the database, brings its schema up to date, and begins to answer
// and to work. It returns once requests are answered.
func Start(ctx context.Context, c Config) (*Server, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{log: c.Log, stopping: make(chan struct{}), done: make(chan struct{})}
	if err := s.start(ctx, c); err != nil {
		return nil, errors.Join(err, s.release())
	}
	return s, nil
}

func (s *Server) start(ctx context.Context, c Config) error {
	// The address comes first: a port that is taken is the likeliest mistake.
	if err := s.openEdges(ctx, c); err != nil {
		return err
	}
	stopTracing, err := observe.StartTracing(ctx, c.Version.Version)
	if err != nil {
		return err
	}
	s.closeAll = append(s.closeAll, func() error { return flush(stopTracing) })
	d, err := db.Open(ctx, c.DB)
	if err != nil {
		return err
	}
	s.closeAll = append(s.closeAll, d.Close)
	ctx = db.System(ctx)
	if err := prepareSchema(ctx, d, c.Migrate, c.Log); err != nil {
		return err
	}
	if s.secrets, err = openSecrets(ctx, d, c); err != nil {
		return err
	}
	if err := access.FirstEntries(ctx, d); err != nil {
		return err
	}
	if s.fresh, err = access.Bootstrap(ctx, d, c.Token); err != nil {
		return err
	}
	if err := s.openSignIn(ctx, c, d); err != nil {
		return err
	}
	p, err := s.parts(c, d)
	if err != nil {
		return err
	}
	s.http = api.Server("", api.New(api.Deps{
		Service: p.service, Access: s.callers(d, c.Log), SignIn: s.signIn, PublicURL: strings.TrimSuffix(c.SignIn.PublicURL, "/"), Pages: s.pages(c, p.service), Metrics: p.metrics, Log: c.Log, Ready: d.Current, Version: c.Version, Stop: s.stopping, Limits: c.Edges.limits(),
	}))
	s.http.ErrorLog = slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug)
	wctx, stop := context.WithCancel(db.System(context.WithoutCancel(ctx)))
	s.stopWork = stop
	if p.reconciler != nil {
		s.work.Go(func() {
			if err := p.reconciler.Run(wctx); err != nil {
				s.fail(fmt.Errorf("workers: %w", err))
			}
		})
	}
	if s.secrets != nil {
		s.work.Go(func() { refreshSecrets(wctx, d, s.secrets, c.Log) })
	}
	seal := &sealer{db: d, log: c.Log}
	p.metrics.WatchAudit(seal.age)
	s.work.Go(func() { seal.run(wctx) })
	s.work.Go(func() { s.sweep(wctx, sweepTick) })
	if p.reconciler != nil {
		s.work.Go(func() { schedules(wctx, p.service, c.Log) })
	}
	s.work.Go(func() { deliver(wctx, p.service, p.metrics, c.Log) })
	s.serve(wctx, p.metrics)
	c.Log.InfoContext(ctx, "started", "address", s.url, "database", string(d.Dialect()), "workers", c.Workers, "version", c.Version.Version)
	return nil
}

// scheduleTick is how often a process looks for schedules that are due.
const scheduleTick = time.Second

// schedules acts on what is due until the context ends. Every process with workers
// does so; a due time is acted on once.
func schedules(ctx context.Context, s *provision.Service, log *slog.Logger) {
	tick := time.NewTicker(scheduleTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.RunSchedules(ctx); err != nil && ctx.Err() == nil {
			log.WarnContext(ctx, "schedules", "error", err)
		}
	}
}

// parts are what a process is made of, beside database and network.
type parts struct {
	metrics    *observe.Metrics
	service    *provision.Service
	reconciler *reconciler.Reconciler // nil without workers
}

func (s *Server) parts(c Config, d *db.DB) (parts, error) {
	p := parts{metrics: observe.NewMetrics()}
	l := ledger.New(d, ledger.Options{})
	p.metrics.WatchLedger(l)
	pace := pipeline.Pace(c.TimeScale)
	keeps := openAccounts(c, d, s.secrets)
	clouds := openClouds(c, pace, keeps, observed(p.metrics))
	registry, err := s.registry(c, d)
	if err != nil {
		return p, err
	}
	engine, err := openComponents(c)
	if err != nil {
		return p, err
	}
	pausers, err := pausable(c)
	if err != nil {
		return p, err
	}
	use := provision.Config{Ledger: l, Clouds: clouds, Spaces: registry, Components: engine, Pausers: pausers, Pace: pace, Gates: c.Gates, SignIn: s.peopleSignIn(), Log: c.Log,
		Accounts: keeps, TokenDir: c.TokenDir, CloudPolicies: cloudPolicies, Keeper: keeper{db: d, secrets: s.secrets}}
	work := reconciler.Config{
		Ledger: l, Clouds: clouds, Spaces: registry, Components: engine, Pausers: pausers, Past: l, Log: c.Log, Hooks: hooks(p.metrics), Version: c.Version.Version,
		Slots: c.Workers, DeadAfter: c.DeadAfter, Pace: pace,
	}
	keep := logical{ledger: l, db: d, secrets: s.secrets}
	work.Logical, work.Places, work.SQL = keep, registry, openSQL
	if s.secrets != nil {
		use.Logical, use.SQL = keep, openSQL
	}

	if use.Webhooks, err = s.openWebhooks(c); err != nil {
		return p, err
	}
	p.service = provision.New(use)
	if c.Workers > 0 {
		p.reconciler = reconciler.New(work)
	}
	return p, nil
}

// pausable is what may be paused. A kind that must not be ends the start.
func pausable(c Config) (*remediation.Registry, error) {
	r, err := remediation.Default()
	if err == nil && c.Pausers != nil {
		err = c.Pausers(r)
	}
	return r, err
}

// openComponents is the catalogue, with the user's own entries, and the engine
// that installs from it.
func openComponents(c Config) (*components.Engine, error) {
	catalogue, err := components.Load()
	if err == nil && c.Catalogue != nil {
		catalogue, err = catalogue.With(c.Catalogue)
	}
	if err != nil {
		return nil, err
	}
	return components.New(components.Options{
		Catalogue: catalogue, Mirror: c.ChartMirror, PlainHTTP: strings.HasPrefix(c.ChartMirror, "http://"), Log: c.Log,
	})
}

func (s *Server) registry(c Config, d *db.DB) (*spaces.Client, error) {
	if c.ConfigService != "" {
		return spaces.Dial(c.ConfigService)
	}
	client, stop := spaces.BuiltIn(spaces.NewRegistry(d))
	s.closeAll = append(s.closeAll, stop)
	return client, nil
}

func hooks(m *observe.Metrics) reconciler.Hooks {
	return reconciler.Hooks{
		Claimed: func(rt job.ResourceType, _ bool) { m.Claimed(string(rt)) },
		StepDone: func(rt job.ResourceType, step string, dir job.Direction, outcome string, took time.Duration) {
			m.StepEnded(string(rt), step, string(dir), outcome, took)
		},
		LeaseLost: func(rt job.ResourceType) { m.LeaseLost(string(rt)) },
	}
}

// URL is where the server answers.
func (s *Server) URL() string { return s.url }

// FreshToken is the bootstrap token if it has just been made. Only its hash is
// kept, so it cannot be had again.
func (s *Server) FreshToken() string { return s.fresh }

// Done is closed when the server has ended, by itself or by Close.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err is why the server ended by itself; nil if it did not.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *Server) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
	if !s.ended {
		s.ended = true
		close(s.done)
	}
}

// Close ends the server: no new request is taken, steps come to a safe point,
// leases are handed back. After ctx it no longer waits for that: the leases
// then end by themselves, and another worker goes on.
func (s *Server) Close(ctx context.Context) error {
	s.closing.Do(func() { s.closed = s.shut(ctx) })
	return s.closed
}

func (s *Server) shut(ctx context.Context) error {
	close(s.stopping) // event streams end
	s.stopWork()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("requests: %w", err), s.http.Close())
	}
	finished := make(chan struct{})
	go func() { s.work.Wait(); close(finished) }()
	select {
	case <-finished:
		err = errors.Join(err, s.release())
	case <-ctx.Done():
		err = errors.Join(err, fmt.Errorf("workers: %w", ctx.Err()))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.ended = true
		close(s.done)
	}
	return err
}

// release closes what was opened, the last first.
func (s *Server) release() error {
	var errs []error
	for _, end := range slices.Backward(s.closeAll) {
		errs = append(errs, end())
	}
	s.closeAll = nil
	return errors.Join(errs...)
}

func flush(stop func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	return stop(ctx)
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// reachable is an address that a client on this machine can use.
func reachable(a net.Addr) string {
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}
