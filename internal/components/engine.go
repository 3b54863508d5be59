package components

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// Options says how an Engine gets its charts.
type Options struct {
	Catalogue *Catalogue // the built-in one by default

	// Mirror replaces the source of every chart: an https:// address that has
	// NAME-VERSION.tgz or an index.yaml, or an oci:// address below which every
	// chart is by its name. Empty: each entry's own source.
	Mirror string

	// CacheDir keeps fetched charts, by digest; empty keeps them in memory alone.
	CacheDir string

	// Roots are trusted besides the system's for chart sources, PEM.
	Roots []byte

	// PlainHTTP speaks HTTP to OCI registries: those of tests and simulations.
	PlainHTTP bool

	// Login says who to be at a chart source's host; nil, or an empty user: nobody.
	Login func(host string) (user, password string)

	Pace pipeline.Pace // how fast cloud time passes beside that of clusters
	Log  *slog.Logger  // what Helm says, at debug level; nil: nowhere
}

// An Engine installs components. It holds no state of any cluster, and may be
// used by any number of jobs at once.
type Engine struct {
	catalogue *Catalogue
	mirror    string
	plain     bool
	login     func(host string) (user, password string)
	pace      pipeline.Pace
	log       slog.Handler
	http      *http.Client
	charts    *chartCache
	resolved  *memo
	kinds     kinds
	operation time.Duration // how long one may take
	rendering chan struct{} // charts are large: a few are rendered at a time
	operating chan struct{} // and some more are installed
}

// New is an engine.
func New(o Options) (*Engine, error) {
	e := &Engine{
		catalogue: o.Catalogue, mirror: strings.TrimSuffix(o.Mirror, "/"), plain: o.PlainHTTP, login: o.Login, pace: o.Pace,
		operation: operationTime, log: slog.DiscardHandler, resolved: newMemo(), rendering: make(chan struct{}, 4), operating: make(chan struct{}, 16),
	}
	if o.Log != nil {
		e.log = quieter{o.Log.Handler()}
	}
	if e.catalogue == nil {
		var err error
		if e.catalogue, err = Load(); err != nil {
			return nil, err
		}
	}
	if e.login == nil {
		e.login = func(string) (string, string) { return "", "" }
	}
	if e.mirror != "" {
		u, err := url.Parse(e.mirror)
		if err != nil || u.Host == "" || !slices.Contains([]string{"https", "http", "oci"}, u.Scheme) || u.User != nil {
			return nil, errors.New("the chart mirror is not an https:// or oci:// address without credentials")
		}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if o.Roots != nil {
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool()
		}
		if !roots.AppendCertsFromPEM(o.Roots) {
			return nil, errors.New("the roots of the chart sources are not PEM")
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	transport.ResponseHeaderTimeout = 30 * time.Second
	e.http = &http.Client{Transport: transport, Timeout: 2 * time.Minute}
	var err error
	e.charts, err = newChartCache(o.CacheDir)
	return e, err
}

// Catalogue is what the engine installs from.
func (e *Engine) Catalogue() *Catalogue { return e.catalogue }

// ValuesSchema is the JSON schema of a component's values, as a version of its
// chart brings it; an empty version is the pinned one. It is nil if the chart has
// none.
func (e *Engine) ValuesSchema(ctx context.Context, name, version string) (json.RawMessage, error) {
	entry, ok := e.catalogue.Get(name)
	if !ok {
		return nil, &job.Invalid{Fields: []job.FieldError{unknownComponent("name", name, e.catalogue)}}
	}
	archive, err := e.fetch(ctx, entry, cmp.Or(version, entry.Version))
	if err != nil {
		return nil, err
	}
	ch, err := loadChart(archive.bytes)
	if err != nil || len(ch.Schema) == 0 {
		return nil, err
	}
	if !json.Valid(ch.Schema) {
		return nil, fmt.Errorf("the schema of %s %s is not JSON", entry.Chart.Name, entry.Version)
	}
	return json.RawMessage(ch.Schema), nil
}

// quieter lowers whatever is logged to debug level: Helm warns of what is an
// ordinary part of a recovery.
type quieter struct{ slog.Handler }

func (q quieter) Enabled(ctx context.Context, _ slog.Level) bool {
	return q.Handler.Enabled(ctx, slog.LevelDebug)
}

func (q quieter) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, slog.LevelDebug, r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool { out.AddAttrs(a); return true })
	return q.Handler.Handle(ctx, out)
}

func (q quieter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quieter{q.Handler.WithAttrs(attrs)}
}
func (q quieter) WithGroup(name string) slog.Handler { return quieter{q.Handler.WithGroup(name)} }
