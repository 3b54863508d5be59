package provision

import (
	"slices"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/sim"
)

// A teardown whose scan may not list a kind that the job had fails, names what is
// missing and ends once that is granted. One that may not list what the job never had
// ends, and its receipt says what was not looked at.
func TestTeardownWithoutLeaveToScan(t *testing.T) {
	t.Parallel()
	const caller = "AKIAIOSFODNN7EXAMPLE"
	l := newLab(t)
	make := func(name string) string {
		t.Helper()
		v, _, err := l.Create(l.ctx, CreateRequest{ResourceType: job.Network, Provider: job.AWS, Name: name, Region: "us-east-1", Submit: true, Config: ConfigRequest{Spec: []byte(`{"network":{"nat":"none"}}`)}}, "")
		if err != nil {
			t.Fatal(err)
		}
		l.await(v.ID, job.Completed)
		return v.ID
	}
	remove := func(id string, want job.Status) *Receipt {
		t.Helper()
		if _, _, err := l.Delete(l.ctx, id, "", nil); err != nil {
			t.Fatal(err)
		}
		l.await(id, want)
		r, err := l.Receipt(l.ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first, second, third := make("first"), make("second"), make("third")
	whole := remove(first, job.Cancelled)
	if whole.Scan == nil || len(whole.Scan.NotScanned) > 0 || strings.Contains(whole.Summary+whole.Scan.Note, "not scanned") || whole.Left == nil || *whole.Left != 0 {
		t.Errorf("with every permission: %+v, %+v", whole, whole.Scan)
	}
	used := l.world.ActionsUsed(sim.BookFilter{Cloud: "aws", Caller: caller})
	without := func(action string) {
		t.Helper()
		if !slices.Contains(used, action) {
			t.Fatalf("nobody asks for %s: %v", action, used)
		}
		l.world.SetGrants("aws", caller, slices.DeleteFunc(slices.Clone(used), func(a string) bool { return a == action }))
	}

	without("iam:ListRoles") // the role of its flow log is one
	r := remove(second, job.Failed)
	v, err := l.Get(l.ctx, second)
	if err != nil || v.Error == nil || v.Error.Code != "not-scanned" || !strings.Contains(v.Error.Message, "iam:role") || !strings.Contains(v.Error.Hint, "iam:ListRoles") {
		t.Errorf("the job failed with %+v, %v", v.Error, err)
	}
	if r.Left != nil || r.Scan == nil || len(r.Scan.NotScanned) != 1 || r.Scan.NotScanned[0].Permission != "iam:ListRoles" || !strings.Contains(r.Summary, "iam:ListRoles") {
		t.Errorf("the receipt says %+v, %+v", r, r.Scan)
	}
	l.world.SetGrants("aws", caller, nil)
	if _, err := l.Retry(l.ctx, second); err != nil {
		t.Fatal(err)
	}
	l.await(second, job.Cancelled)
	if r, err = l.Receipt(l.ctx, second); err != nil || r.Left == nil || *r.Left != 0 || r.Scan == nil || len(r.Scan.NotScanned) > 0 || strings.Contains(r.Summary, "not scanned") {
		t.Errorf("after the retry: %+v, %v", r, err)
	}

	without("eks:ListClusters")
	r = remove(third, job.Cancelled)
	for where, text := range map[string]string{"summary": r.Summary, "note": r.Scan.Note} {
		if !strings.Contains(text, "not scanned: eks:cluster (without eks:ListClusters)") {
			t.Errorf("the %s does not say what was not scanned: %s", where, text)
		}
	}
	if r.Left == nil || *r.Left != 0 || len(r.Scan.NotScanned) != 1 {
		t.Errorf("the receipt says %+v, %+v", r, r.Scan)
	}
	if v, err := l.Get(l.ctx, third); err != nil || !strings.Contains(v.Verdict.Sentence, "eks:ListClusters") {
		t.Errorf("the verdict is %+v, %v", v, err)
	}
}
