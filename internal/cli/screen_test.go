package cli

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/job"
)

// vt is as much of a terminal as the screen uses: text that breaks at the
// right edge, carriage return, line feed, cursor up, erase.
type vt struct {
	cols     int
	rows     [][]rune
	row, col int
}

func (v *vt) at(row int) {
	for len(v.rows) <= row {
		v.rows = append(v.rows, nil)
	}
}

func (v *vt) Write(p []byte) (int, error) {
	rs := []rune(string(p))
	for i := 0; i < len(rs); i++ {
		switch r := rs[i]; r {
		case '\r':
			v.col = 0
		case '\n':
			v.row, v.col = v.row+1, 0
			v.at(v.row)
		case '\x1b':
			var n int
			i += 2 // skip the bracket
			for ; rs[i] >= '0' && rs[i] <= '9' || rs[i] == ';'; i++ {
				if rs[i] != ';' {
					n = n*10 + int(rs[i]-'0')
				}
			}
			v.at(v.row)
			switch rs[i] {
			case 'A':
				v.row = max(0, v.row-n)
			case 'K':
				v.rows[v.row] = v.rows[v.row][:min(v.col, len(v.rows[v.row]))]
			case 'J':
				v.rows[v.row] = v.rows[v.row][:min(v.col, len(v.rows[v.row]))]
				v.rows = v.rows[:v.row+1]
			case 'm':
			default:
				return 0, fmt.Errorf("the screen uses %q, which this terminal does not know", string(rs[i]))
			}
		default:
			if v.col >= v.cols {
				v.row, v.col = v.row+1, 0
			}
			v.at(v.row)
			for len(v.rows[v.row]) <= v.col {
				v.rows[v.row] = append(v.rows[v.row], ' ')
			}
			v.rows[v.row][v.col] = r
			v.col++
		}
	}
	return len(p), nil
}

// narrow is what a terminal does with its lines when it is made narrower.
func (v *vt) narrow(cols int) {
	var rows [][]rune
	row := 0
	for i, l := range v.rows {
		if i == v.row {
			row = len(rows)
		}
		for len(l) > cols {
			rows, l = append(rows, l[:cols]), l[cols:]
		}
		rows = append(rows, l)
	}
	v.rows, v.row, v.cols = rows, row, cols
}

func (v *vt) String() string {
	var lines []string
	for _, r := range v.rows {
		lines = append(lines, strings.TrimRight(string(r), " "))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

func liveJob(now time.Time, done int) client.Job {
	j := aJob(job.Running, job.PhaseProvision)
	j.Steps = nil
	for i, name := range []string{"stepValidate", "stepCreateNetwork", "stepCreateVMs"} {
		s := client.Step{StepState: job.StepState{Run: 1, Name: name, Direction: job.Up, Status: job.StepPending}}
		at := t0.Add(time.Duration(i) * 10 * time.Second)
		end := at.Add(3 * time.Second)
		switch {
		case i < done:
			s.Status, s.StartedAt, s.FinishedAt = job.StepDone, &at, &end
		case i == done:
			s.Status, s.StartedAt, s.Attempts = job.StepWaiting, &at, 2
		}
		j.Steps = append(j.Steps, s)
	}
	j.Verdict.Sentence = "Waiting for the NAT gateway."
	return j
}

// TestLiveView draws a job step by step: nothing is left over from an earlier
// drawing, finished steps stay above, the end stands there for good.
func TestLiveView(t *testing.T) {
	screenOf := &vt{cols: 60}
	now := t0
	term := terminal{tty: true, unicode: true, size: func() (int, int) { return screenOf.cols, 24 }}
	s := &liveSink{screen: screen{w: screenOf, term: term}, now: func() time.Time { return now }, ctrlC: "Ctrl-C detaches"}
	j := liveJob(now, 0)
	now = t0.Add(2 * time.Second)
	s.state(&j)
	want := strings.Join([]string{
		"shop-prod  vm · aws · us-east-1  job_one",
		" ⠋  1 Validate              2 s          1 retry",
		" ○  2 Create network",
		" ○  3 Create VMs",
		"",
		" → Waiting for the NAT gateway.",
		"   step 1 of 3 · 2 s · Ctrl-C detaches",
	}, "\n")
	if diff := cmp.Diff(want, screenOf.String()); diff != "" {
		t.Fatal(diff)
	}
	j = liveJob(now, 1)
	now = t0.Add(15 * time.Second)
	s.event(job.Event{Type: "object.created", Message: "ec2:vpc shop is vpc-1"})
	s.state(&j)
	s.tick()
	want = strings.Join([]string{
		"shop-prod  vm · aws · us-east-1  job_one",
		" ✓  1 Validate              3 s",
		" ⠙  2 Create network        5 s          1 retry",
		" ○  3 Create VMs",
		"",
		" → Waiting for the NAT gateway.",
		"   + ec2:vpc shop is vpc-1",
		"   step 2 of 3 · 15 s · 1 object · Ctrl-C detaches",
	}, "\n")
	if diff := cmp.Diff(want, screenOf.String()); diff != "" {
		t.Fatal(diff)
	}
	// Narrower by half: what was drawn breaks, and is still replaced as a whole.
	screenOf.narrow(30)
	s.tick()
	got := screenOf.String()
	if n := strings.Count(got, "Waiting for"); n != 1 {
		t.Errorf("%d Now sentences after a resize:\n%s", n, got)
	}
	if n := strings.Count(got, "Create VMs"); n != 1 {
		t.Errorf("%d lines of one step after a resize:\n%s", n, got)
	}
	j = liveJob(now, 3)
	j.Status, j.Verdict = job.Completed, client.Verdict{State: "ready", Sentence: "Done just now."}
	s.end(&j)
	got = screenOf.String()
	for _, l := range []string{"✓  1 Validate", "✓  2 Create network", "✓  3 Create VMs", "✓ ready  Done just now."} {
		if strings.Count(got, l) != 1 {
			t.Errorf("%q is not there once:\n%s", l, got)
		}
	}
	if strings.Contains(got, "Ctrl-C") || strings.Contains(got, "Waiting") {
		t.Errorf("something of the live lines stayed:\n%s", got)
	}
}

// TestLiveViewWithoutUnicode: nothing but ASCII reaches such a terminal.
func TestLiveViewWithoutUnicode(t *testing.T) {
	var out strings.Builder
	term := terminal{tty: true, size: func() (int, int) { return 80, 24 }}
	now := t0
	s := &liveSink{screen: screen{w: &out, term: term}, now: func() time.Time { return now }}
	j := liveJob(now, 1)
	j.Name = "schön"
	s.event(job.Event{Type: "object.created", Message: "größer – …"})
	s.state(&j)
	s.tick()
	s.end(&j)
	for i, r := range out.String() {
		if r > 126 {
			t.Fatalf("%q at %d is not ASCII", r, i)
		}
	}
}

func TestTitle(t *testing.T) {
	for name, want := range map[string]string{
		"stepValidate": "Validate", "stepCreateNetwork": "Create network", "stepCreateIAM": "Create IAM", "stepCreateVMs": "Create VMs",
		"stepCreateDNSRecord": "Create DNS record", "stepCreateLoadBalancer": "Create load balancer", "stepRegisterSpace": "Register space",
	} {
		if got := title(name, job.Up); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := title("stepCreateVMs", job.Down); got != "Remove VMs" {
		t.Errorf("downwards it is %q", got)
	}
}

func TestWidths(t *testing.T) {
	u := terminal{unicode: true}
	for _, c := range []struct {
		text string
		wide int
		cut  string // to 5 columns
	}{{"abc", 3, "abc"}, {"abcdef", 6, "abcd…"}, {"日本語", 6, "日本…"}, {"e\u0301a", 2, "e\u0301a"}, {"", 0, ""}} {
		if got := width(c.text); got != c.wide {
			t.Errorf("%q is %d wide, want %d", c.text, got, c.wide)
		}
		if got := u.cut(c.text, 5); got != c.cut || width(got) > 5 {
			t.Errorf("%q cut to 5 is %q, want %q", c.text, got, c.cut)
		}
	}
}

// TestColours: by flag, NO_COLOR and TERM, and never the only signal.
func TestColours(t *testing.T) {
	f := newFake(t)
	f.addJob(aJob(job.Failed, job.PhaseProvision))
	esc := "\x1b["
	r := run(t, f)
	if got := r.do("jobs", "get", "shop-prod"); strings.Contains(got.out+got.err, esc) {
		t.Error("a pipe gets colours without being asked")
	}
	if got := r.do("jobs", "get", "shop-prod", "--color", "always"); !strings.Contains(got.out, esc) {
		t.Error("--color always gives none")
	}
	if got := r.do("jobs", "get", "shop-prod", "--color", "never"); strings.Contains(got.out, esc) || !strings.Contains(got.out, "✗ failed") {
		t.Errorf("without colour the state is not told: %s", got.out)
	}
	if got := r.do("jobs", "get", "shop-prod", "--color", "blue"); got.code != exitUsage {
		t.Errorf("--color blue: exit code %d", got.code)
	}
}
