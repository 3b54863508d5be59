package provision

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/cloud"
	cloudaws "github.com/zopday/provisioner/internal/cloud/aws"
	"github.com/zopday/provisioner/internal/db"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/ledger"
	"github.com/zopday/provisioner/internal/reconciler"
	"github.com/zopday/provisioner/internal/sim"
	simaws "github.com/zopday/provisioner/internal/sim/aws"
	simdatabases "github.com/zopday/provisioner/internal/sim/databases"
	"github.com/zopday/provisioner/internal/spaces"
)

// pace is how many simulated seconds pass in a real one.
const pace = 300

// A lab is the use cases with a worker and a simulated AWS.
type lab struct {
	*Service
	t     *testing.T
	ctx   context.Context
	world *sim.World
	file  string // the database
}

func newLab(t *testing.T) *lab {
	t.Helper()
	return newLabAt(t, "")
}

// newLabAt is a lab whose spaces are known to an external config service.
func newLabAt(t *testing.T, configService string) *lab {
	t.Helper()
	w := sim.New(sim.Options{Seed: 3, TimeScale: pace})
	databases, err := simdatabases.New(simdatabases.Options{Caller: sim.KubeCaller{Inside: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(databases.Shutdown)
	server := httptest.NewServer(simaws.New(w, simaws.Options{Databases: databases}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "zopday.db")
	d, err := db.Open(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	registrar, stop := spaces.BuiltIn(spaces.NewRegistry(d))
	t.Cleanup(func() { _ = stop() })
	if configService != "" {
		if registrar, err = spaces.Dial(configService); err != nil {
			t.Fatal(err)
		}
	}
	l := ledger.New(d, ledger.Options{})
	clouds := cloudaws.New(cloudaws.Options{
		Pace: pace, LoadConfig: cloudaws.Static(server.URL, "AKIAIOSFODNN7EXAMPLE", "secret"), Reach: job.Reach{Mode: job.ReachDirect}, DatabaseRoots: databases.CA(),
	})
	keep := openVault(t, l, d)
	rec := reconciler.New(reconciler.Config{
		Ledger: l, Clouds: clouds, Spaces: registrar, Poll: 20 * time.Millisecond, Observe: -1, Pace: pace, Logical: keep, SQL: openSQL, Places: registrar,
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- rec.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return &lab{
		Service: New(Config{Ledger: l, Clouds: clouds, Spaces: registrar, Pace: pace, Logical: keep, SQL: openSQL}), t: t, world: w, file: file,
		ctx: access.With(t.Context(), access.Of("org1", "ana", access.Admin)),
	}
}

func request(spec string) CreateRequest {
	return CreateRequest{ResourceType: job.VM, Provider: job.AWS, Name: "shop", Region: "us-east-1", Submit: true, Config: ConfigRequest{Spec: json.RawMessage(spec)}}
}

// await waits until a job has come to rest.
func (l *lab) await(id string, want job.Status) *JobView {
	l.t.Helper()
	for deadline := time.Now().Add(90 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		v, err := l.Get(l.ctx, id)
		if err != nil {
			l.t.Fatal(err)
		}
		if !v.State().Active() {
			if v.Status != want {
				l.t.Fatalf("the job is %s: %+v", v.State(), v.Error)
			}
			return v
		}
	}
	l.t.Fatalf("the job does not come to rest")
	return nil
}

func (l *lab) mutations() int {
	yes := true
	return len(l.world.Books(sim.BookFilter{Mutating: &yes}))
}

func TestPlanOfARequest(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	v, err := l.PlanRequest(l.ctx, request(`{"loadBalancer":{"plainHTTP":true}}`))
	if err != nil {
		t.Fatal(err)
	}
	if len(v.Steps) != 11 || v.JobID != "" || v.Changes != len(v.Objects) || len(v.Teardown) != len(v.Objects) || len(v.Objects) < 15 {
		t.Errorf("%d steps, %d objects, %d to make, %d to take", len(v.Steps), len(v.Objects), v.Changes, len(v.Teardown))
	}
	if !strings.HasPrefix(v.Summary, "Ready: ") || len(v.Checks) < 5 {
		t.Errorf("%s", v.Summary)
	}
	if v.Cost.Priced != v.Cost.Total || v.Cost.Items[0].Name != "VMs, t3.medium" {
		t.Errorf("cost %+v", v.Cost)
	}
	if first, last := v.Teardown[0], v.Teardown[len(v.Teardown)-1]; !strings.HasPrefix(first, "elbv2:") || !strings.HasPrefix(last, "ec2:") {
		t.Errorf("teardown from %s to %s", first, last)
	}
	again, err := l.PlanRequest(l.ctx, request(`{"loadBalancer":{"plainHTTP":true}}`))
	if err != nil {
		t.Fatal(err)
	}
	for i := range v.Objects {
		if v.Objects[i].Kind != again.Objects[i].Kind || v.Objects[i].Key != again.Objects[i].Key {
			t.Fatalf("two plans differ in their order: %+v, %+v", v.Objects[i], again.Objects[i])
		}
	}
	if n := l.mutations(); n != 0 {
		t.Errorf("planning made %d changes", n)
	}
	if jobs, _, err := l.List(l.ctx, ListQuery{}); err != nil || len(jobs) != 0 {
		t.Errorf("planning saved %d jobs, %v", len(jobs), err)
	}
}

func TestPlanSaysWhatFailsAndWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	if _, err := l.world.AddFault(sim.Fault{Service: "servicequotas", Kind: sim.FaultError, Code: "AccessDeniedException", Status: 400, Count: -1}); err != nil {
		t.Fatal(err)
	}
	v, err := l.PlanRequest(l.ctx, request(`{"pool":{"instanceType":"x9.mega"}}`))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[cloud.CheckStatus]int{}
	for _, c := range v.Checks {
		seen[c.Status]++
		if c.Status == cloud.CheckFails && (c.Field == "" || c.Fix == "") {
			t.Errorf("a failed check without field or fix: %+v", c)
		}
	}
	if seen[cloud.CheckFails] == 0 || !strings.Contains(v.Summary, "to fix") {
		t.Errorf("%s: %+v", v.Summary, v.Checks)
	}
	if v.Cost.Priced == v.Cost.Total || v.Cost.Items[0].From != nil {
		t.Errorf("a type that nobody knows has a price: %+v", v.Cost.Items[0])
	}
}

func TestPlanWithoutACloud(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	s := New(Config{Ledger: l.Ledger})
	var r *Refusal
	if _, err := s.PlanRequest(l.ctx, request(`{}`)); !errors.As(err, &r) || r.Kind != CloudNotAvailable {
		t.Errorf("%v", err)
	}
}

// TestWholeLife takes a job through create, verify, change at the cloud,
// teardown and receipt, as a person would.
func TestWholeLife(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	before := l.world.Snapshot()
	made, _, err := l.Create(l.ctx, request(`{"loadBalancer":{"plainHTTP":true}}`), "")
	if err != nil {
		t.Fatal(err)
	}
	v := l.await(made.ID, job.Completed)
	if v.Verdict.State != "ready" || v.Objects < 15 || v.Outputs["url"] == "" {
		t.Errorf("%+v with %d objects", v.Verdict, v.Objects)
	}
	mutations := l.mutations()
	check, err := l.Verify(l.ctx, v.ID)
	if err != nil || !check.AsAsked {
		t.Errorf("just made: %+v, %v", check, err)
	}
	plan, err := l.Plan(l.ctx, v.ID)
	if err != nil || plan.Changes != 0 || len(plan.Teardown) != v.Objects {
		t.Errorf("the plan of a finished job: %+v, %v", plan, err)
	}
	if n := l.mutations(); n != mutations {
		t.Errorf("looking made %d changes", n-mutations)
	}
	if _, err := l.world.RemoveObject(v.Config.InfraConfig.VMs[0].InstanceID); err != nil {
		t.Fatal(err)
	}
	if check, err = l.Verify(l.ctx, v.ID); err != nil || check.AsAsked || len(check.Drift) == 0 {
		t.Errorf("a VM is gone, and verify says %+v, %v", check, err)
	}
	var r *Refusal
	if _, _, err := l.Delete(l.ctx, v.ID, "", nil); !errors.As(err, &r) || r.Kind != ConfirmationNeeded {
		t.Fatalf("unconfirmed: %v", err)
	}
	if _, done, err := l.Delete(l.ctx, v.ID, "shop", nil); err != nil || done {
		t.Fatalf("delete: %v, %v", done, err)
	}
	l.await(v.ID, job.Cancelled)
	receipt, err := l.Receipt(l.ctx, v.ID)
	if err != nil {
		t.Fatal(err)
	}
	if !receipt.Final || receipt.Created != receipt.Removed+receipt.Kept || receipt.Created != v.Objects || receipt.Left == nil || *receipt.Left != 0 ||
		receipt.Scan == nil || receipt.RequestedBy != "ana" || receipt.AuditID == "" || receipt.FinishedAt == nil {
		t.Errorf("receipt %+v", receipt)
	}
	if diff := cmp.Diff(before, l.world.Snapshot()); diff != "" {
		t.Errorf("the account is not what it was (-before +after):\n%s", diff)
	}
}

// TestReceiptOfAStoppedRemoval asks the cloud what is left.
func TestReceiptOfAStoppedRemoval(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	made, _, err := l.Create(l.ctx, request(`{"pool":{"count":1}}`), "")
	if err != nil {
		t.Fatal(err)
	}
	l.await(made.ID, job.Completed)
	if _, err := l.world.AddFault(sim.Fault{Service: "ec2", Operation: "DeleteVpc", Kind: sim.FaultError, Code: "UnauthorizedOperation", Status: 403, Message: "not allowed", Count: -1}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.Delete(l.ctx, made.ID, "", nil); err != nil {
		t.Fatal(err)
	}
	v := l.await(made.ID, job.Failed)
	if v.Verdict.State != "removal-stopped" {
		t.Errorf("%+v", v.Verdict)
	}
	receipt, err := l.Receipt(l.ctx, made.ID)
	if err != nil {
		t.Fatal(err)
	}
	if receipt.Final || receipt.Left == nil || *receipt.Left == 0 || !strings.Contains(receipt.Summary, "ec2:vpc") {
		t.Errorf("receipt %+v", receipt)
	}
	x, err := l.Explain(l.ctx, made.ID)
	if err != nil {
		t.Fatal(err)
	}
	if x.Error == nil || x.Step == nil || x.Step.Status != job.StepFailed || len(x.Objects) == 0 || len(x.Events) == 0 || len(x.Events) > explainEvents || len(x.Next) == 0 || x.Next[0].What != "Retry from the step that failed" {
		t.Errorf("explanation %+v", x)
	}
	l.world.ClearFaults("")
	if _, err := l.Retry(l.ctx, made.ID); err != nil {
		t.Fatal(err)
	}
	l.await(made.ID, job.Cancelled)
}

// TestCancelWhileAtWork deletes a job in the middle of its building.
func TestCancelWhileAtWork(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	before := l.world.Snapshot()
	made, _, err := l.Create(l.ctx, request(`{}`), "")
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(time.Millisecond) {
		v, err := l.Get(l.ctx, made.ID)
		if err != nil {
			t.Fatal(err)
		}
		if v.Objects > 2 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing is being made")
		}
	}
	if _, done, err := l.Delete(l.ctx, made.ID, "", nil); err != nil || done {
		t.Fatalf("%v, %v", done, err)
	}
	l.await(made.ID, job.Cancelled)
	receipt, err := l.Receipt(l.ctx, made.ID)
	if err != nil || receipt.Created < 3 || receipt.Removed != receipt.Created || *receipt.Left != 0 {
		t.Errorf("receipt %+v, %v", receipt, err)
	}
	if diff := cmp.Diff(before, l.world.Snapshot()); diff != "" {
		t.Errorf("the account is not what it was (-before +after):\n%s", diff)
	}
}
