package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/zopday/provisioner/internal/job"
)

// TestOutputs: one command in every format; json and yaml are the API's body,
// jsonl a job a line, name an ID a line.
func TestOutputs(t *testing.T) {
	f := newFake(t)
	f.addJob(aJob(job.Completed, job.PhaseProvision))
	other := aJob(job.Failed, job.PhaseProvision)
	other.ID, other.Name = "job_two", "shop-test"
	f.addJob(other)
	out := func(format string) string {
		got := run(t, f).do("jobs", "list", "-o", format)
		if got.code != exitDone || got.err != "" {
			t.Fatalf("-o %s: exit code %d: %s", format, got.code, got.err)
		}
		return got.out
	}
	var body struct {
		Data []struct{ ID, Name string }
		Meta map[string]any
	}
	check := func(format string) {
		t.Helper()
		if len(body.Data) != 2 || body.Data[1].Name != "shop-test" || body.Meta == nil {
			t.Errorf("-o %s: %+v", format, body)
		}
	}
	if err := json.Unmarshal([]byte(out("json")), &body); err != nil {
		t.Fatal(err)
	}
	check("json")
	body.Data, body.Meta = nil, nil
	if err := yaml.Unmarshal([]byte(out("yaml")), &body); err != nil {
		t.Fatal(err)
	}
	check("yaml")
	lines := strings.Split(strings.TrimSpace(out("jsonl")), "\n")
	var one struct{ Name string }
	if len(lines) != 2 || json.Unmarshal([]byte(lines[1]), &one) != nil || one.Name != "shop-test" {
		t.Errorf("-o jsonl: %q", lines)
	}
	if got := out("name"); got != "job_one\njob_two\n" {
		t.Errorf("-o name: %q", got)
	}
	if got := out("table"); !strings.HasPrefix(got, "STATE") || strings.Count(got, "\n") != 3 || !strings.Contains(got, "✗ failed") {
		t.Errorf("-o table:\n%s", got)
	}
	if got := out("wide"); !strings.Contains(got, "ACCOUNT") || !strings.Contains(got, "token:bootstrap") {
		t.Errorf("-o wide:\n%s", got)
	}
}

// TestEmptyListsAreTwo: nothing there yet is not the same as nothing that matches.
func TestEmptyListsAreTwo(t *testing.T) {
	f := newFake(t)
	if got := run(t, f).do("jobs", "list"); got.out != "" || !strings.Contains(got.err, "jobs create -f") {
		t.Errorf("first use: %q %q", got.out, got.err)
	}
	if got := run(t, f).do("jobs", "list", "--status", "failed"); got.out != "" || !strings.Contains(got.err, "No job matches") {
		t.Errorf("no match: %q %q", got.out, got.err)
	}
	if got := run(t, f).do("jobs", "list", "-q"); got.err != "" {
		t.Errorf("-q says %q", got.err)
	}
}

// TestNothingFromElsewhereControlsTheTerminal: names and messages come from
// users and clouds.
func TestNothingFromElsewhereControlsTheTerminal(t *testing.T) {
	f := newFake(t)
	j := aJob(job.Failed, job.PhaseProvision)
	j.Error.Message = "boom\x1b]0;owned\x07\x1b[2J\u202e\rgone"
	j.Verdict.Sentence = j.Error.Message
	j.Labels = map[string]string{"a": "\x1b[31m"}
	f.addJob(j)
	f.explain.Error, f.explain.Verdict = j.Error, j.Verdict
	for _, args := range [][]string{{"get", "shop-prod"}, {"list"}, {"explain", "shop-prod"}, {"watch", "shop-prod"}} {
		got := run(t, f).do(append([]string{"jobs"}, args...)...)
		if strings.ContainsAny(got.out+got.err, "\x1b\x07\r\u202e") {
			t.Errorf("jobs %s lets control characters through: %q %q", args[0], got.out, got.err)
		}
	}
}

// TestTablesFitTheTerminal: wide columns give way, narrow ones do not.
func TestTablesFitTheTerminal(t *testing.T) {
	tab := table{head: []string{"KIND", "ID", "NOTE"}}
	tab.add("elbv2:listener", "arn:aws:elasticloadbalancing:us-east-1:123456789012:listener/app/shop/50dc6c495c0c9188/f2f7dc8efc522ab2", "fine")
	var b strings.Builder
	tab.write(&b, terminal{tty: true, unicode: true, size: func() (int, int) { return 70, 24 }})
	for l := range strings.Lines(b.String()) {
		if w := width(strings.TrimRight(l, "\n")); w > 70 {
			t.Errorf("%d columns: %s", w, l)
		}
	}
	if !strings.Contains(b.String(), "elbv2:listener  arn:aws:") || !strings.Contains(b.String(), "…") {
		t.Errorf("the wrong column gave way:\n%s", b.String())
	}
	b.Reset()
	tab.write(&b, terminal{size: func() (int, int) { return 70, 24 }})
	if !strings.Contains(b.String(), "f2f7dc8efc522ab2  fine") {
		t.Errorf("a pipe gets less than everything:\n%s", b.String())
	}
}
