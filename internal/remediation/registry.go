// Package remediation knows what may be paused, and that nothing else ever is: an
// allowlist of the kinds of pools that hold machines and no data, and the rule that
// keeps databases and caches out of it.
//
// A kind is paused by the Pauser that is registered for it. Register refuses a
// kind that is not on the list, and, before it looks there, one whose name has
// anything of a database or a cache in it. A server that cannot register its own
// kinds does not start.
package remediation

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// A Pauser stops and starts the machines of one kind of pool.
type Pauser interface {
	Pool(ctx context.Context, ref job.PoolRef) (job.PoolState, error)
	SetPool(ctx context.Context, r *pipeline.Run, ref job.PoolRef, have, want job.PoolState) error
}

// An Open gives the Pauser of a kind at the cloud that a job runs at.
type Open func(cloud.Provider) (Pauser, error)

// allowed are the kinds that may be registered, with the cloud that has them.
var allowed = map[job.PoolKind]job.Provider{
	job.PoolEC2Instances: job.AWS, job.PoolScalingGroup: job.AWS, job.PoolEKSNodes: job.AWS,
	job.PoolGCEInstances: job.GCP, job.PoolManagedGroup: job.GCP, job.PoolGKENodes: job.GCP,
	job.PoolScaleSet: job.Azure, job.PoolAKSNodes: job.Azure,
}

// A ProtectedError is a name that names a customer's database or cache.
type ProtectedError struct{ Name, Pattern string }

func (e *ProtectedError) Error() string {
	return fmt.Sprintf("%q names a customer's database or cache (%s*), which is never paused, stopped or scaled", e.Name, e.Pattern)
}

// A Registry is the kinds of pools that can be paused.
type Registry struct{ open map[job.PoolKind]Open }

// NewRegistry is a registry without any.
func NewRegistry() *Registry { return &Registry{open: map[job.PoolKind]Open{}} }

// Register adds a kind. It refuses what is not on the list of kinds that hold no
// data, and, with a *ProtectedError, every name of a database or a cache.
func (r *Registry) Register(kind string, open Open) error {
	if p, found := holds(kind); found {
		return &ProtectedError{Name: kind, Pattern: p}
	}
	if p, found := Protected(kind); found {
		return &ProtectedError{Name: kind, Pattern: p}
	}
	k := job.PoolKind(kind)
	switch _, ok := allowed[k]; {
	case !ok:
		return fmt.Errorf("%.80q is not a kind that may be paused; there are %s", kind, strings.Join(Kinds(), ", "))
	case open == nil:
		return fmt.Errorf("kind %s has no Pauser", kind)
	case r.open[k] != nil:
		return fmt.Errorf("kind %s is registered already", kind)
	}
	r.open[k] = open
	return nil
}

// Kinds are the kinds that may be paused, sorted.
func Kinds() []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(allowed)) {
		out = append(out, string(k))
	}
	return out
}

// Pauser is the one for a pool of a job's cloud.
func (r *Registry) Pauser(p cloud.Provider, at job.Provider, ref job.PoolRef) (Pauser, error) {
	if r == nil {
		return nil, pipeline.Fatal("not-pausable", "this server pauses nothing", "Run the job on one that does.")
	}
	open := r.open[ref.Kind]
	if open == nil || allowed[ref.Kind] != at {
		return nil, pipeline.Fatal("not-pausable", fmt.Sprintf("a %.40s at %s is nothing that can be paused", string(ref.Kind), at), "What can be: "+strings.Join(Kinds(), ", ")+".")
	}
	return open(p)
}

// Default is the registry with every kind that the clouds can pause.
func Default() (*Registry, error) {
	r := NewRegistry()
	for _, kind := range Kinds() {
		if err := r.Register(kind, ofCloud); err != nil {
			return nil, fmt.Errorf("pausers: %w", err)
		}
	}
	return r, nil
}

// ofCloud is the cloud's own way to pause.
func ofCloud(p cloud.Provider) (Pauser, error) {
	pausable, ok := p.(cloud.Pausable)
	if !ok {
		return nil, pipeline.Fatal("not-pausable", "this cloud cannot pause anything", "Use another version of the server.")
	}
	return pausable, nil
}
