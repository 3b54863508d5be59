package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"time"
)

// saved is a whole world as it is kept on disk.
type saved struct {
	Version  int
	Time     time.Time // simulated
	Random   []byte
	Services map[string]json.RawMessage
	Events   []event
	EventSeq int
	Faults   []*Fault
	FaultSeq int
	Quotas   map[string]float64
	Metrics  []Metric
	Books    []Entry
	Seq      int
}

const (
	stateFile    = "world.json"
	stateVersion = 1
	// saveEvery bounds what a killed simulation loses.
	saveEvery = 250 * time.Millisecond
)

// Persist keeps the world in a directory: it takes up what an earlier run has left there, and from then on saves every
// change shortly after it was made. The function that it answers stops that, after a last save; it must be called once.
func (w *World) Persist(ctx context.Context, dir string) (stop func() error, err error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("simulation state: %w", err)
	}
	path := filepath.Join(dir, stateFile)
	if err := w.load(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("simulation state %s: %w", path, err)
	}
	quit, done := make(chan struct{}), make(chan error, 1)
	go func() {
		t := time.NewTicker(saveEvery)
		defer t.Stop()
		last := -1
		for {
			select {
			case <-t.C:
				if now := w.changes.Load(); int(now) != last {
					last = int(now)
					if err := w.save(path); err != nil {
						done <- err
						return
					}
				}
			case <-quit:
				done <- w.save(path)
				return
			case <-ctx.Done():
				done <- w.save(path)
				return
			}
		}
	}()
	return func() error { close(quit); return <-done }, nil
}

func (w *World) save(path string) error {
	w.Lock()
	s := saved{Version: stateVersion, Time: w.Clock.Now(), Services: map[string]json.RawMessage{}, Events: w.events, EventSeq: w.eventSeq,
		Faults: w.faults, FaultSeq: w.faultSeq, Quotas: w.quotas.overrides, Metrics: w.metrics}
	var err error
	if s.Random, err = w.pcg.MarshalBinary(); err != nil {
		w.Unlock()
		return fmt.Errorf("save random state: %w", err)
	}
	for _, svc := range w.services {
		b, err := json.Marshal(svc.State())
		if err != nil {
			w.Unlock()
			return fmt.Errorf("save state of %s: %w", svc.Name(), err)
		}
		s.Services[svc.Cloud()+"/"+svc.Name()] = b
	}
	w.bookMu.Lock()
	s.Books, s.Seq = w.books, w.seq
	b, err := json.Marshal(s)
	w.bookMu.Unlock()
	w.mu.Unlock() // saving is no change
	if err != nil {
		return fmt.Errorf("save: %w", err)
	}
	// A rename replaces the file as a whole, so that a kill in between leaves the old one.
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		return fmt.Errorf("save: %w", err)
	}
	return os.Rename(path+".new", path)
}

func (w *World) load(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var s saved
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	if s.Version != stateVersion {
		return fmt.Errorf("version %d, want %d: it was written by another release; remove the file to start afresh", s.Version, stateVersion)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, svc := range w.services {
		if raw, ok := s.Services[svc.Cloud()+"/"+svc.Name()]; ok {
			live := reflect.ValueOf(svc.State()).Elem()
			kept := reflect.New(live.Type())
			if err := json.Unmarshal(raw, kept.Interface()); err != nil {
				return fmt.Errorf("%s: %w", svc.Name(), err)
			}
			live.Set(kept.Elem())
		}
	}
	pcg := &rand.PCG{}
	if err := pcg.UnmarshalBinary(s.Random); err != nil {
		return fmt.Errorf("random state: %w", err)
	}
	w.pcg, w.rng = pcg, rand.New(pcg)
	w.events, w.eventSeq, w.faults, w.faultSeq = s.Events, s.EventSeq, s.Faults, s.FaultSeq
	if s.Quotas != nil {
		w.quotas.overrides = s.Quotas
	}
	w.metrics = s.Metrics
	// Simulated time goes on where it stood, unless the wall clock is ahead by now.
	if d := s.Time.Sub(w.Clock.Now()); d > 0 {
		w.Clock.Step(d)
	}
	w.bookMu.Lock()
	w.books, w.seq = s.Books, s.Seq
	w.bookMu.Unlock()
	for _, svc := range w.services {
		if r, ok := svc.(Restored); ok {
			r.Restored()
		}
	}
	return nil
}
