package e2e

import (
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/zopday/provisioner/internal/components"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim/charts"
	simkube "github.com/zopday/provisioner/internal/sim/kube"
)

// outside is where the simulated internet sees the workers of these tests.
var outside = job.Reach{Mode: job.ReachPublic, EgressCIDRs: []string{"203.0.113.7/32"}}

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

// copyOf is a directory with the files that another one has; "" has none. What
// else is in it, such as sockets, belongs to processes that have ended.
func copyOf(t testing.TB, from string) string {
	t.Helper()
	dir := t.TempDir()
	if from == "" {
		return dir
	}
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, rel)
		switch {
		case d.IsDir():
			return os.MkdirAll(to, 0o700)
		case !d.Type().IsRegular():
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, b, 0o600)
	})
	if err != nil {
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
