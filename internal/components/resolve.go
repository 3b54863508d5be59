package components

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/Masterminds/semver/v3"
	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	rcommon "helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// Resolved is a component that is ready to be installed: its chart is here, its
// values meet the chart's schema, and its templates render. It is not changed
// after it is made, and may be used by several jobs.
type Resolved struct {
	Entry      Entry
	Place      Place
	Version    string // of the chart
	AppVersion string
	Digest     string // sha256: digest of the chart's archive
	Values     string // digest of the values, to tell them from others
	Notes      []string
	Objects    []string // what is made, such as "Deployment keda/keda-operator", hooks aside
	Size       int      // of the stored release, in bytes

	values  map[string]any
	archive *archive
	crds    []string // names of kinds among Objects
}

// Info is the component as the job's document shows it, before it is there.
func (x *Resolved) Info() job.ComponentInfo {
	return job.ComponentInfo{
		Name: x.Entry.Name, Release: x.Place.Release, Namespace: x.Place.Namespace,
		Version: x.Version, AppVersion: x.AppVersion, Status: "waiting",
	}
}

// mostRelease is how large a stored release may be, in bytes: a Secret holds
// 1 MiB, and hooks and status add to what is known before (failure N11).
const mostRelease = 1<<20 - 16<<10

// Resolve finds out everything about a component that can be known before
// anything happens: fetches its chart, checks the values against the schema,
// renders the templates and measures the release. kubeVersion may be empty while
// it is not known.
//
// What is wrong with the request is a *job.Invalid whose fields are relative to
// the component, such as values.replicas ([At] says where that is). A chart
// source that cannot be reached has class Unavailable: try again.
func (e *Engine) Resolve(ctx context.Context, spec job.ComponentSpec, kubeVersion string, provider job.Provider) (*Resolved, error) {
	key := memoKey(spec, kubeVersion, provider)
	if x := e.resolved.get(key); x != nil {
		return x, nil
	}
	entry, err := e.choose(spec, kubeVersion, provider)
	if err != nil {
		return nil, err
	}
	values, err := parseValues(spec.Values)
	if err != nil {
		return nil, err
	}
	x := &Resolved{Entry: entry, Place: e.catalogue.Place(spec), Version: entry.Version, values: mergeValues(entry.Defaults, values)}
	if spec.Version != "" {
		x.Version = spec.Version
	}
	if x.archive, err = e.fetch(ctx, entry, x.Version); err != nil {
		return nil, err
	}
	x.Digest, x.Values = x.archive.digest, valuesDigest(x.values)
	if err := e.rendered(ctx, func() error { return x.prove(ctx, kubeVersion) }); err != nil {
		return nil, err
	}
	e.resolved.put(key, x)
	return x, nil
}

// rendered runs what holds a whole chart in memory, a few at a time.
func (e *Engine) rendered(ctx context.Context, f func() error) error {
	select {
	case e.rendering <- struct{}{}:
		defer func() { <-e.rendering }()
		return f()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// choose finds a component in the catalogue and checks that it may be installed.
func (e *Engine) choose(spec job.ComponentSpec, kubeVersion string, provider job.Provider) (Entry, error) {
	entry, ok := e.catalogue.Get(spec.Name)
	if !ok {
		return entry, &job.Invalid{Fields: []job.FieldError{unknownComponent("name", spec.Name, e.catalogue)}}
	}
	inv := &job.Invalid{}
	bad := func(field, message, fix string) {
		inv.Fields = append(inv.Fields, job.FieldError{Field: field, Message: message, Fix: fix})
	}
	if entry.AdoptOnly {
		bad("name", entry.Name+" is not installed any more", entry.Reason)
	}
	if provider != "" && !entry.For(provider) {
		bad("name", fmt.Sprintf("%s is for %s, and the cluster is at %s", entry.Name, providers(entry.Providers), provider), "leave it out")
	}
	if kubeVersion != "" && !entry.Supports(kubeVersion) {
		bad("name", fmt.Sprintf("%s supports Kubernetes %s, and the cluster has %s", entry.Name, entry.KubeVersion, kubeVersion), "choose another version of the cluster, or leave it out")
	}
	if _, err := semver.NewVersion(spec.Version); spec.Version != "" && err != nil {
		bad("version", fmt.Sprintf("%.60q is not a version of a chart", spec.Version), "use one such as "+entry.Version+", or leave it out")
	}
	if len(inv.Fields) > 0 {
		return entry, inv
	}
	return entry, nil
}

func providers(all []job.Provider) string {
	var names []string
	for _, p := range all {
		names = append(names, string(p))
	}
	return strings.Join(names, " and ")
}

// prove renders the chart with the values, and fills in what is known then.
func (x *Resolved) prove(ctx context.Context, kubeVersion string) error {
	ch, err := x.chart()
	if err != nil {
		return err
	}
	x.AppVersion = ch.AppVersion()
	if ch.Metadata.Deprecated {
		x.Notes = append(x.Notes, "the chart "+ch.Name()+" is deprecated by its makers")
	}
	caps, err := offline(kubeVersion)
	if err != nil {
		return invalid("name", err.Error(), "report this")
	}
	if err := checkKubeRange(ch, caps); kubeVersion != "" && err != nil {
		return invalid("version", err.Error()+"; the cluster has "+kubeVersion, "choose another version of the chart")
	}
	opts := common.ReleaseOptions{Name: x.Place.Release, Namespace: x.Place.Namespace, Revision: 1, IsInstall: true}
	top, err := coalesce(ch, clone(x.values), opts, caps)
	if err != nil {
		return invalid("values", hide(err.Error(), x.values), "put them right")
	}
	all, _ := top["Values"].(common.Values)
	if all == nil {
		all, _ = top["Values"].(map[string]any)
	}
	faults, err := checkSchema(ch, all, "values")
	if err != nil {
		return err
	}
	if len(faults) > 0 {
		return &job.Invalid{Fields: faults}
	}
	r, err := render(ctx, ch, top, nil)
	if err != nil {
		return invalid("values", "the chart's templates do not take them: "+hide(err.Error(), x.values), "put right what the message names; GET /catalog/components has what the component needs")
	}
	objects, err := parseManifest(r.manifest, x.Place.Namespace)
	if err != nil {
		return invalid("values", "the chart's templates make no valid objects of them: "+hide(err.Error(), x.values), "put right what the message names")
	}
	for _, o := range objects {
		x.Objects = append(x.Objects, name(o))
		if isCRD(o) {
			x.crds = append(x.crds, o.GetName())
		}
	}
	return x.measure(ch, r)
}

// measure refuses a release that Helm could not store.
func (x *Resolved) measure(ch *chart.Chart, r *rendering) error {
	now := time.Now()
	size, err := storedSize(&release.Release{
		Name: x.Place.Release, Namespace: x.Place.Namespace, Version: 1, Chart: ch, Config: x.values, Manifest: r.manifest, Hooks: r.hooks,
		Info: &release.Info{FirstDeployed: now, LastDeployed: now, Status: rcommon.StatusPendingInstall, Notes: r.notes},
	})
	if err != nil {
		return err
	}
	if x.Size = size; size > mostRelease {
		return invalid("values", fmt.Sprintf("the release would take %d KiB, and Helm can store %d KiB of one", size>>10, mostRelease>>10),
			"make the values smaller (dashboards, rules and certificates belong into ConfigMaps and Secrets of their own), or use a smaller chart")
	}
	return nil
}

// storedSize is how many bytes of a Secret a release takes: Helm stores it as
// JSON, compressed, in base64.
func storedSize(r *release.Release) (int, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return 0, err
	}
	if _, err := z.Write(raw); err != nil {
		return 0, err
	}
	if err := z.Close(); err != nil {
		return 0, err
	}
	return base64.StdEncoding.EncodedLen(b.Len()), nil
}

// chart is the chart, freshly read.
func (x *Resolved) chart() (*chart.Chart, error) {
	ch, err := loadChart(x.archive.bytes)
	if err == nil && (ch.Name() != x.Entry.Chart.Name || !sameVersion(ch.Metadata.Version, x.Version)) {
		err = fmt.Errorf("the archive is %s %s", ch.Name(), ch.Metadata.Version)
	}
	if err != nil {
		return nil, pipeline.Fatal("chart-unusable", fmt.Sprintf("the chart %s %s cannot be used: %v", x.Entry.Chart.Name, x.Version, err),
			"Check the chart's source in the catalogue, or choose another version.").From(err)
	}
	return ch, nil
}

func sameVersion(a, b string) bool {
	va, erra := semver.NewVersion(a)
	vb, errb := semver.NewVersion(b)
	return erra == nil && errb == nil && va.Equal(vb)
}

func invalid(field, message, fix string) error {
	return &job.Invalid{Fields: []job.FieldError{{Field: field, Message: message, Fix: fix}}}
}

// memo keeps what was resolved lately: a parked step resolves again and again.
type memo struct {
	mu  sync.Mutex
	has map[[sha256.Size]byte]*Resolved
}

const mostRemembered = 256

func newMemo() *memo { return &memo{has: map[[sha256.Size]byte]*Resolved{}} }

func memoKey(spec job.ComponentSpec, kubeVersion string, provider job.Provider) [sha256.Size]byte {
	raw, err := json.Marshal(spec)
	if err != nil {
		raw = fmt.Appendf(nil, "%+v", spec)
	}
	return sha256.Sum256(fmt.Appendf(raw, "\x00%s\x00%s", kubeVersion, provider))
}

func (m *memo) get(key [sha256.Size]byte) *Resolved {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.has[key]
}

func (m *memo) put(key [sha256.Size]byte, x *Resolved) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.has) >= mostRemembered {
		clear(m.has)
	}
	m.has[key] = x
}

// asInvalid is the error as a refused request; nil if it is another one.
func asInvalid(err error) *job.Invalid {
	var inv *job.Invalid
	if errors.As(err, &inv) {
		return inv
	}
	return nil
}
