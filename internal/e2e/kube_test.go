package e2e

import (
	"net/http/httptest"
	"os"
	"sync"
	"testing"

	"github.com/zopday/provisioner/internal/components"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim/charts"
	simkube "github.com/zopday/provisioner/internal/sim/kube"
)

// reach is where the simulated internet sees the workers of these tests.
var reach = job.Reach{Mode: job.ReachPublic, EgressCIDRs: []string{"203.0.113.7/32"}}

// startKubernetes is the Kubernetes of one world's clusters, each with a control
// plane of its own; nothing is started before a cluster is made. dir keeps what
// is in them.
func startKubernetes(t testing.TB, dir string) *simkube.Kube {
	t.Helper()
	binary, err := simkube.Binary()
	if err != nil {
		t.Fatal(err)
	}
	k, err := simkube.New(simkube.Options{Binary: binary, StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Shutdown)
	return k
}

// copyOf is a directory with what another one has; "" has nothing.
func copyOf(t testing.TB, from string) string {
	t.Helper()
	dir := t.TempDir()
	if from == "" {
		return dir
	}
	if err := os.CopyFS(dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// engine is what installs components, once for all tests.
func (r *rig) engine() *components.Engine {
	r.t.Helper()
	e, err := engine()
	if err != nil {
		r.t.Fatal(err)
	}
	return e
}

// engine installs stand-ins of the catalogue's charts.
var engine = sync.OnceValues(func() (*components.Engine, error) {
	s := httptest.NewServer(charts.New(charts.StandIns()...)) // as long as the tests run
	return components.New(components.Options{Mirror: s.URL, PlainHTTP: true})
})
