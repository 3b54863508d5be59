package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/zopday/provisioner/internal/cli"
	"github.com/zopday/provisioner/internal/sim"
	simaws "github.com/zopday/provisioner/internal/sim/aws"
	simazure "github.com/zopday/provisioner/internal/sim/azure"
	"github.com/zopday/provisioner/internal/sim/charts"
	simdatabases "github.com/zopday/provisioner/internal/sim/databases"
	simgcp "github.com/zopday/provisioner/internal/sim/gcp"
	simkube "github.com/zopday/provisioner/internal/sim/kube"
)

// The credentials that are handed out for the simulated clouds, each for the
// first of its accounts. AWS takes any secret.
const (
	simAccessKey  = "AKIAIOSFODNN7EXAMPLE" //nolint:gosec // the example keys of AWS's own documentation
	simPartnerKey = "AKIAI44QH8DHBEXAMPLE" //nolint:gosec // of the second account
	simSecretKey  = "simulated-secret"
	simToken      = "ya29.example" // opens nothing but a simulation
)

// simulation is the simulated clouds, served over HTTP.
type simulation struct {
	world     *sim.World
	clouds    []cli.CloudEndpoint
	control   string
	servers   []*http.Server
	kube      *simkube.Kube
	databases *simdatabases.Databases
	charts    string       // address of the stand-in charts
	temp      string       // directory of what lives as long as the simulation; "" for none
	save      func() error // ends the keeping on disk, after a last save; nil: in memory

	mu     sync.Mutex
	inside bool // callers stand in the networks
}

func simulate(ctx context.Context, o cli.SimOptions) (cli.Simulation, error) {
	s := &simulation{world: sim.New(sim.Options{Seed: o.Seed, TimeScale: o.TimeScale, ReadLatency: o.ReadLatency, WriteLatency: o.WriteLatency})}
	if err := s.serve(ctx, o); err != nil {
		return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func (s *simulation) serve(ctx context.Context, o cli.SimOptions) error {
	s.inside = o.Inside
	if err := s.kubernetes(o); err != nil {
		return err
	}
	var err error
	if s.databases, err = simdatabases.New(simdatabases.Options{StateDir: o.State, Caller: s.caller()}); err != nil {
		return err
	}
	aws := simaws.New(s.world, simaws.Options{Kubernetes: s.kube, Databases: s.databases})
	gcp := simgcp.New(s.world, simgcp.Options{Kubernetes: s.kube, Databases: s.databases})
	azure := simazure.New(s.world, simazure.Options{Kubernetes: s.kube, Databases: s.databases})
	if o.State != "" {
		// Kept up to Close, which comes after the end of ctx.
		save, err := s.world.Persist(context.WithoutCancel(ctx), o.State)
		if err != nil {
			return err
		}
		s.save = save
	}
	dir, err := s.directory(o.State)
	if err != nil {
		return err
	}
	cert, err := simazure.KeepCertificate(dir)
	if err != nil {
		return err
	}
	roots, err := s.roots(dir)
	if err != nil {
		return err
	}
	for _, c := range []struct {
		listener
		env func(url string) []cli.EnvVar
		cli.CloudEndpoint
	}{
		{listener{"the simulated AWS", o.AWS, aws, nil}, awsEnv(roots.databases), cli.CloudEndpoint{Provider: "aws", Title: "AWS", Account: simaws.DefaultKeys()[simAccessKey]}},
		{listener{"the simulated Google Cloud", o.GCP, gcp, nil}, gcpEnv(roots.clusters), cli.CloudEndpoint{Provider: "gcp", Title: "Google Cloud", Account: simgcp.DefaultProjects()[0].ID}},
		{listener{"the simulated Azure", o.Azure, azure, cert.Config}, azureEnv(roots.azure), cli.CloudEndpoint{Provider: "azure", Title: "Azure", Account: simazure.DefaultSubscription}},
	} {
		if c.URL, err = s.listen(ctx, c.listener); err != nil {
			return err
		}
		c.Env = c.env(c.URL)
		s.clouds = append(s.clouds, c.CloudEndpoint)
	}
	if s.charts, err = s.listen(ctx, listener{"the stand-in charts", o.Charts, charts.New(charts.StandIns()...), nil}); err != nil {
		return err
	}
	s.control, err = s.listen(ctx, listener{"the control API", o.Control, s.controls(), nil})
	return err
}

// kubernetes prepares the API servers of the simulated clusters; without its
// binary, or without o.Kube, they answer that there are none.
func (s *simulation) kubernetes(o cli.SimOptions) error {
	opt := simkube.Options{StateDir: o.State, Caller: s.caller()}
	if o.Kube {
		var err error
		if opt.Binary, err = simkube.Binary(); err != nil {
			return err
		}
	}
	var err error
	s.kube, err = simkube.New(opt)
	return err
}

func awsEnv(databaseCA string) func(url string) []cli.EnvVar {
	return func(url string) []cli.EnvVar {
		return []cli.EnvVar{
			{Name: "AWS_ENDPOINT_URL", Value: url}, {Name: "AWS_ACCESS_KEY_ID", Value: simAccessKey}, {Name: "AWS_SECRET_ACCESS_KEY", Value: simSecretKey},
			{Name: "ZOPDAY_AWS_RDS_CA_FILE", Value: databaseCA},
		}
	}
}

func gcpEnv(kubeCA string) func(url string) []cli.EnvVar {
	return func(url string) []cli.EnvVar {
		return []cli.EnvVar{
			{Name: "ZOPDAY_GCP_ENDPOINT", Value: url}, {Name: "GOOGLE_CLOUD_PROJECT", Value: simgcp.DefaultProjects()[0].ID},
			{Name: "ZOPDAY_GCP_ACCESS_TOKEN", Value: simToken}, {Name: "ZOPDAY_GCP_CA_FILE", Value: kubeCA},
		}
	}
}

func azureEnv(caFile string) func(url string) []cli.EnvVar {
	return func(url string) []cli.EnvVar {
		return []cli.EnvVar{
			{Name: "ZOPDAY_AZURE_RESOURCE_MANAGER_ENDPOINT", Value: url}, {Name: "AZURE_AUTHORITY_HOST", Value: url}, {Name: "ZOPDAY_AZURE_CA_FILE", Value: caFile},
			{Name: "ZOPDAY_AZURE_KEY_VAULT_ENDPOINT", Value: url + "/keyvault"},
			{Name: "AZURE_SUBSCRIPTION_ID", Value: simazure.DefaultSubscription}, {Name: "AZURE_TENANT_ID", Value: simazure.DefaultTenant},
			{Name: "AZURE_CLIENT_ID", Value: simazure.DefaultClientID}, {Name: "AZURE_CLIENT_SECRET", Value: simazure.DefaultClientSecret},
		}
	}
}

// directory is where the simulation keeps its certificates: with the state, or in
// one that goes with the simulation.
func (s *simulation) directory(state string) (string, error) {
	if state != "" {
		return state, nil
	}
	var err error
	if s.temp, err = os.MkdirTemp("", "zopday-sim-"); err != nil {
		return "", fmt.Errorf("certificates of the simulation: %w", err)
	}
	return s.temp, nil
}

// A listener is one server of the simulation; an address may be a bare port.
type listener struct {
	what, addr string
	handler    http.Handler
	secure     *tls.Config // nil: plain HTTP
}

func (s *simulation) listen(ctx context.Context, l listener) (url string, err error) {
	if !strings.Contains(l.addr, ":") {
		l.addr = "127.0.0.1:" + l.addr
	}
	var lc net.ListenConfig
	at, err := lc.Listen(ctx, "tcp", l.addr)
	if err != nil {
		return "", fmt.Errorf("%s: %w", l.what, err)
	}
	srv := &http.Server{Handler: l.handler, ReadHeaderTimeout: 10 * time.Second, TLSConfig: l.secure, ErrorLog: log.New(io.Discard, "", 0)}
	s.servers = append(s.servers, srv)
	if l.secure != nil {
		go func() { _ = srv.ServeTLS(at, "", "") }() // ends with ErrServerClosed when closed below
		return "https://" + at.Addr().String(), nil
	}
	go func() { _ = srv.Serve(at) }() // likewise
	return "http://" + at.Addr().String(), nil
}

func (s *simulation) ControlURL() string          { return s.control }
func (s *simulation) Clouds() []cli.CloudEndpoint { return s.clouds }
func (s *simulation) ChartMirror() string         { return s.charts }

// Reach is where the simulated internet sees the product stand.
func (s *simulation) Reach() string {
	if s.caller().Inside {
		return "direct"
	}
	return "public:203.0.113.7/32"
}

func (s *simulation) Call(cloud, service, operation, account, region string, params map[string]any) (json.RawMessage, error) {
	if params == nil {
		params = map[string]any{}
	}
	for _, c := range s.clouds {
		if c.Provider == cloud && account == "" {
			account = c.Account
		}
	}
	answer, err := s.world.Invoke(cloud, service, operation, account, region, params)
	if err != nil {
		return nil, err
	}
	return json.Marshal(answer)
}

func (s *simulation) Step(d time.Duration) { s.world.Step(d) }

func (s *simulation) Mark() int {
	entries := s.world.Books(sim.BookFilter{Limit: 1})
	if len(entries) == 0 {
		return 0
	}
	return entries[0].Seq
}

func (s *simulation) Since(mark int) cli.Traffic {
	var t cli.Traffic
	for _, e := range s.world.Books(sim.BookFilter{Since: mark}) {
		if e.Mutating {
			t.Mutating = append(t.Mutating, e.Service+":"+e.Operation)
		} else {
			t.Reads++
		}
	}
	return t
}

func (s *simulation) Snapshot() map[string]string { return s.world.Snapshot() }

func (s *simulation) Residue(owner string) []string {
	var out []string
	for _, o := range s.world.Residue(owner) {
		out = append(out, o.Service+" "+o.Kind+" "+o.ID)
	}
	return out
}

func (s *simulation) Close(ctx context.Context) error {
	var errs []error
	for _, srv := range s.servers {
		if err := srv.Shutdown(ctx); err != nil {
			errs = append(errs, srv.Close())
		}
	}
	if s.kube != nil {
		s.kube.Shutdown()
	}
	if s.databases != nil {
		s.databases.Shutdown()
	}
	if s.save != nil {
		errs = append(errs, s.save())
		s.save = nil
	}
	if s.temp != "" {
		errs = append(errs, os.RemoveAll(s.temp))
	}
	return errors.Join(errs...)
}
