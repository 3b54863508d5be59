package cli

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/job"
)

// badge is a job's state in a word with its sign: never by colour alone. The
// verdict is the server's, so that page, list and command line say the same.
func (t terminal) badge(j *client.Job) (sign, word string, p paint) {
	word = j.Verdict.State
	if word == "" {
		word = string(j.Status)
	}
	word = strings.ReplaceAll(clean(word), "-", " ")
	g, p := glyphRunning, blue
	switch j.Verdict.State {
	case "draft":
		g, p = glyphDraft, dim
	case "queued":
		g = glyphPending
	case "retrying":
		g, p = glyphRetry, yellow
	case "removing", "cancelling":
		g, p = glyphDown, yellow
	case "ready":
		g, p = glyphDone, green
	case "failed", "removal-stopped":
		g, p = glyphFailed, red
	case "cancelled", "torn-down", "disconnected":
		g, p = glyphGone, dim
	}
	return t.glyph(g), word, p
}

// counts is "4/7": the step at work among all of this run.
func counts(j *client.Job) string {
	if len(j.Steps) == 0 {
		return ""
	}
	done := 0
	for _, s := range j.Steps {
		if s.Status == job.StepDone {
			done++
		}
	}
	if j.Status == job.Completed || j.Status == job.Cancelled {
		return fmt.Sprintf("%d/%d", done, len(j.Steps))
	}
	return fmt.Sprintf("%d/%d", min(done+1, len(j.Steps)), len(j.Steps))
}

// title makes words of a step's name: stepCreateVMs is "Create VMs", and
// downwards "Remove VMs".
func title(step string, d job.Direction) string {
	name := strings.TrimPrefix(step, "step")
	var words []string
	start := 0
	rs := []rune(name)
	for i := 1; i <= len(rs); i++ {
		// A word ends before an upper-case letter that follows a lower-case
		// one, or that begins a lower-case run (DNSRecord: DNS, Record); the
		// plural of an abbreviation stays with it (VMs).
		if i == len(rs) ||
			unicode.IsUpper(rs[i]) && unicode.IsLower(rs[i-1]) ||
			i+1 < len(rs) && unicode.IsUpper(rs[i]) && unicode.IsLower(rs[i+1]) && !plural(rs[i+1:]) {
			words = append(words, string(rs[start:i]))
			start = i
		}
	}
	for i, w := range words {
		if i > 0 && (len(w) < 2 || !unicode.IsUpper([]rune(w)[1])) {
			words[i] = strings.ToLower(w)
		}
	}
	if len(words) > 0 && d == job.Down {
		switch words[0] {
		case "Create", "Install":
			words[0] = "Remove"
		case "Register":
			words[0] = "Unregister"
		case "Validate":
			words[0] = "Check"
		}
	}
	return strings.Join(words, " ")
}

func plural(rest []rune) bool {
	return rest[0] == 's' && (len(rest) == 1 || unicode.IsUpper(rest[1]))
}

// span writes a duration as a person would say it.
func span(d time.Duration) string {
	switch {
	case d < 50*time.Millisecond:
		return "0 s"
	case d < time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min %02d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %02d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

func ago(t, now time.Time) string {
	if t.IsZero() {
		return "at an unknown time"
	}
	d := now.Sub(t)
	if d < 2*time.Second {
		return "just now"
	}
	return span(d) + " ago"
}

// age is the short form for tables.
func age(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case t.IsZero():
		return ""
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(int(d.Seconds()), 0))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func plurals(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// ended reports whether a job has come to rest.
func ended(s job.Status) bool {
	return s == job.Completed || s == job.Failed || s == job.Cancelled
}
