package steps

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
	"github.com/zopday/provisioner/internal/spaces"
	configv1 "github.com/zopday/provisioner/internal/spaces/configv1"
	"github.com/zopday/provisioner/internal/spaces/configv1/configv1connect"
)

// registryServer is an external config service, whose trouble is chosen by the
// number of the call. It returns its address and its registry.
func registryServer(t *testing.T, trouble func(n int, w http.ResponseWriter, r *http.Request, next http.Handler) bool) (string, *spaces.Registry) {
	t.Helper()
	d, err := db.Open(t.Context(), filepath.Join(t.TempDir(), "other.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	reg := spaces.NewRegistry(d)
	mux := http.NewServeMux()
	mux.Handle(configv1connect.NewConfigServiceHandler(reg))
	mux.Handle(configv1connect.NewDiscoveryServiceHandler(reg))
	var calls atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n := int(calls.Add(1)); trouble == nil || !trouble(n, w, r, mux) {
			mux.ServeHTTP(w, r)
		}
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.URL, reg
}

func known(t *testing.T, reg *spaces.Registry) []*configv1.Space {
	t.Helper()
	res, err := reg.ListSpaces(t.Context(), connect.NewRequest(&configv1.ListSpacesRequest{OrgId: "org_1"}))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.GetSpaces()
}

// finishedCluster is a cluster job that has come to its stepRegisterSpace.
func finishedCluster() *job.Job {
	j := &job.Job{ID: "job_1", OrgID: "org_1", Name: "platform", Kind: job.Provisioning, ResourceType: job.Cluster, Mode: job.ModeCreate, Provider: job.Azure,
		CloudAccountID: "default", Region: "westeurope", SubjectType: "cluster", SubjectID: "clu_1", Phase: job.PhaseProvision}
	j.Config.InfraConfig.Cluster.Name, j.Config.InfraConfig.ResourceGroup = "zopday-platform", "zopday-rg"
	return j
}

// run carries one function of a step out as the engine does, and counts the tries.
func run(t *testing.T, j *job.Job, f pipeline.Func) (tries int, d pipeline.Decision) {
	t.Helper()
	for tries = 1; ; tries++ {
		r := pipeline.NewRun(j, pipeline.Apply, nil, nobody{}, nil, time.Now, 1)
		d = pipeline.Judge(f(t.Context(), r), tries-1)
		if d.Action != pipeline.Again {
			return tries, d
		}
	}
}

func TestRegisterSpaceSurvivesTheConfigService(t *testing.T) {
	t.Parallel()
	url, reg := registryServer(t, func(n int, w http.ResponseWriter, r *http.Request, next http.Handler) bool {
		switch n {
		case 1, 4: // the reply of a register and of a sync is lost
			next.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		return false
	})
	client, err := spaces.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	s := Set{Spaces: client}
	j := finishedCluster()
	tries, d := run(t, j, s.registerSpace)
	if d.Action != pipeline.Advance || tries != 4 {
		t.Fatalf("%d tries, %+v", tries, d)
	}
	all := known(t, reg)
	if len(all) != 1 || all[0].GetId() != j.Config.InfraConfig.SpaceID {
		t.Fatalf("registered %d times; the job has %q", len(all), j.Config.InfraConfig.SpaceID)
	}
	got := all[0]
	if got.GetName() != "platform" || got.GetSpaceType() != job.SpaceKubernetes || got.GetStatus() != "synced" || got.GetCloudAccountId() != "default" || got.GetJobId() != "job_1" ||
		got.GetConfig()["cluster"] != "zopday-platform" || got.GetConfig()["resourceGroup"] != "zopday-rg" || got.GetConfig()["region"] != "westeurope" {
		t.Errorf("the space is %v", got)
	}
	// Once more, as after a crash: the same space.
	had := j.Config.InfraConfig.SpaceID
	if _, d := run(t, j, s.registerSpace); d.Action != pipeline.Advance || j.Config.InfraConfig.SpaceID != had || len(known(t, reg)) != 1 {
		t.Errorf("again: %+v, %q", d, j.Config.InfraConfig.SpaceID)
	}
	for range 2 {
		if _, d := run(t, j, s.deregisterSpace); d.Action != pipeline.Advance || j.Config.InfraConfig.SpaceID != "" || len(known(t, reg)) != 0 {
			t.Errorf("deregister: %+v, %q", d, j.Config.InfraConfig.SpaceID)
		}
	}
}

// A config service that is away is waited for with a budget of its own, and the
// job that gives up names it, and not the cloud. One that refuses ends the job at once.
func TestRegisterSpaceSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	url, reg := registryServer(t, func(_ int, w http.ResponseWriter, r *http.Request, _ http.Handler) bool {
		_ = connect.NewErrorWriter().Write(w, r, connect.NewError(connect.CodePermissionDenied, context.Canceled))
		return true
	})
	for _, tc := range []struct {
		name, address, code, hint string
		tries                     func(int) bool
	}{
		{"nobody there", "http://127.0.0.1:1", "config-service-unavailable", "--config-service", func(n int) bool { return n > 50 }},
		{"refused", url, "config-service-refused", "--config-service", func(n int) bool { return n == 1 }},
	} {
		client, err := spaces.Dial(tc.address)
		if err != nil {
			t.Fatal(err)
		}
		s, j := Set{Spaces: client}, finishedCluster()
		tries, d := run(t, j, s.registerSpace)
		if d.Action != pipeline.Stop || d.Problem.Code != tc.code || !strings.Contains(d.Problem.Hint, tc.hint) || !strings.Contains(d.Problem.Message, "config service RegisterSpace") || !tc.tries(tries) {
			t.Errorf("%s: %d tries, %+v", tc.name, tries, d)
		}
		j.Config.InfraConfig.SpaceID = "spc_1"
		if _, d := run(t, j, s.deregisterSpace); d.Action != pipeline.Stop || d.Problem.Code != tc.code || j.Config.InfraConfig.SpaceID != "spc_1" {
			t.Errorf("%s, forgetting: %+v", tc.name, d)
		}
	}
	if n := len(known(t, reg)); n != 0 {
		t.Errorf("%d spaces", n)
	}
}
