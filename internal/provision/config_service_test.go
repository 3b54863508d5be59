package provision

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/spaces"
	"github.com/zopday/provisioner/internal/spaces/configv1/configv1connect"
)

// troubled is an external config service that fails as often as it is told to:
// replies are lost, after it has done its work.
type troubled struct {
	mu    sync.Mutex
	lose  map[string]int // by procedure
	calls map[string]int
	url   string
}

func newTroubled(t *testing.T) *troubled {
	t.Helper()
	d, err := db.Open(t.Context(), filepath.Join(t.TempDir(), "other.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle(configv1connect.NewConfigServiceHandler(spaces.NewRegistry(d)))
	mux.Handle(configv1connect.NewDiscoveryServiceHandler(spaces.NewRegistry(d)))
	s := &troubled{lose: map[string]int{"RegisterSpace": 2, "Sync": 1, "DeregisterSpace": 2}, calls: map[string]int{}}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		procedure := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		s.mu.Lock()
		s.calls[procedure]++
		lost := s.lose[procedure] > 0
		s.lose[procedure]--
		s.mu.Unlock()
		if lost {
			mux.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		mux.ServeHTTP(w, r)
	}))
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

func (s *troubled) called(procedure string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[procedure]
}

// TestJobSurvivesItsConfigService: a job ends as it should with a config service
// that loses replies, and its space is registered once and forgotten.
func TestJobSurvivesItsConfigService(t *testing.T) {
	t.Parallel()
	service := newTroubled(t)
	l := newLabAt(t, service.url)
	made, _, err := l.Create(l.ctx, request(`{"pool":{"count":1}}`), "")
	if err != nil {
		t.Fatal(err)
	}
	v := l.await(made.ID, job.Completed)
	all, _, err := l.ListSpaces(l.ctx, 100, "")
	if err != nil || len(all) != 1 || all[0].ID != v.Config.InfraConfig.SpaceID || all[0].JobID != v.ID || all[0].SpaceType != job.SpaceVM || all[0].Status != "synced" {
		t.Errorf("%+v, %v; the job has %q", all, err, v.Config.InfraConfig.SpaceID)
	}
	if n := service.called("RegisterSpace"); n != 4 {
		t.Errorf("asked %d times to register: twice for lost replies, once for that of the discoverer", n)
	}
	x, err := l.Explain(l.ctx, v.ID)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range x.Attempts {
		if row.Name == "stepRegisterSpace" && row.Status != job.StepDone {
			t.Errorf("%+v", row)
		}
	}
	if _, err := l.GetSpace(l.as("org2"), all[0].ID); err == nil {
		t.Error("another organisation sees the space")
	}
	if _, _, err := l.Delete(l.ctx, v.ID, "", nil); err != nil {
		t.Fatal(err)
	}
	l.await(v.ID, job.Cancelled)
	if all, _, err := l.ListSpaces(l.ctx, 100, ""); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

func (l *lab) as(org string) context.Context {
	return access.With(l.t.Context(), access.Of(org, "otto", access.Admin))
}
