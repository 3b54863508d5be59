package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/cli"
	"github.com/zopday/provisioner/internal/sim"
	simaws "github.com/zopday/provisioner/internal/sim/aws"
)

// The credentials that are handed out for the simulated AWS: the first of its
// two accounts. Any secret is accepted.
const (
	simAccessKey = "AKIAIOSFODNN7EXAMPLE" //nolint:gosec // the example key of AWS's own documentation
	simSecretKey = "simulated-secret"
)

// simulation is the simulated clouds, served over HTTP.
type simulation struct {
	world        *sim.World
	account      string
	control, aws string
	servers      []*http.Server
	save         func() error // ends the keeping on disk, after a last save; nil: in memory
}

func simulate(ctx context.Context, o cli.SimOptions) (cli.Simulation, error) {
	w := sim.New(sim.Options{Seed: o.Seed, TimeScale: o.TimeScale, ReadLatency: o.ReadLatency, WriteLatency: o.WriteLatency})
	cloud := simaws.New(w, simaws.Options{})
	s := &simulation{world: w, account: simaws.DefaultKeys()[simAccessKey]}
	if o.State != "" {
		// Kept up to Close, which comes after the end of ctx.
		save, err := w.Persist(context.WithoutCancel(ctx), o.State)
		if err != nil {
			return nil, err
		}
		s.save = save
	}
	var err error
	if s.aws, err = s.listen(ctx, "the simulated AWS", o.AWS, cloud); err == nil {
		s.control, err = s.listen(ctx, "the control API", o.Control, w.Control())
	}
	if err != nil {
		return nil, errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	}
	return s, nil
}

// listen serves a handler; an address may be a bare port.
func (s *simulation) listen(ctx context.Context, what, addr string, h http.Handler) (string, error) {
	if !strings.Contains(addr, ":") {
		addr = "127.0.0.1:" + addr
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	s.servers = append(s.servers, srv)
	go func() { _ = srv.Serve(l) }() // ends with ErrServerClosed when closed below
	return "http://" + l.Addr().String(), nil
}

func (s *simulation) ControlURL() string { return s.control }
func (s *simulation) Account() string    { return s.account }

func (s *simulation) AWS() cli.CloudEndpoint {
	return cli.CloudEndpoint{URL: s.aws, AccessKey: simAccessKey, SecretKey: simSecretKey}
}

func (s *simulation) Call(cloud, service, operation, region string, params map[string]any) (json.RawMessage, error) {
	if params == nil {
		params = map[string]any{}
	}
	answer, err := s.world.Invoke(cloud, service, operation, s.account, region, params)
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
	if s.save != nil {
		errs = append(errs, s.save())
		s.save = nil
	}
	return errors.Join(errs...)
}
