package provision

import (
	"fmt"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/job"
)

// VerdictOf says where a job stands, the same wherever it is shown.
func VerdictOf(j *job.Job, now time.Time) Verdict {
	switch j.Status {
	case job.Draft:
		return Verdict{State: "draft", Word: "Draft", Sentence: "Not started. Last changed " + ago(j.UpdatedAt, now) + "."}
	case job.Queued, job.Running:
		return activeVerdict(j, now)
	case job.Completed:
		return completedVerdict(j, now)
	case job.Failed:
		return failedVerdict(j)
	case job.Cancelled:
		switch {
		case j.Phase != job.PhaseTeardown:
			return Verdict{State: "cancelled", Word: "Cancelled", Sentence: "Stopped before anything was made."}
		case j.Kind == job.Remediation:
			return Verdict{State: "cancelled", Word: "Ended", Sentence: "The job has ended; what it did to the pool stands until it is resumed."}
		case !j.Owns():
			return Verdict{State: "disconnected", Word: "Disconnected", Sentence: "We forgot it. It runs on untouched at " + cloudName(j.Provider) + "."}
		}
		if j.ResourceType == job.Component {
			return Verdict{State: "torn-down", Word: "Uninstalled", Sentence: "The release is gone, and each of its objects was seen gone."}
		}
		v := Verdict{State: "torn-down", Word: "Torn down", Sentence: "Everything that it made is gone; a scan by owner mark found nothing left."}
		if skipped := j.Config.InfraConfig.NotScanned; len(skipped) > 0 {
			v.Sentence += " Not scanned, and never made by it: " + job.NameUnlisted(skipped) + "."
		}
		return v
	}
	return Verdict{State: string(j.Status), Word: string(j.Status), Sentence: "This version does not know this state."}
}

func activeVerdict(j *job.Job, now time.Time) Verdict {
	v := Verdict{State: "running", Word: "Running", Next: j.NextRunAt}
	removing := j.Phase == job.PhaseTeardown
	switch {
	case j.Cancelling:
		return Verdict{State: "cancelling", Word: "Cancelling", Sentence: "Asked to stop: the step at work comes to a safe point, then what was made is torn down."}
	case j.Attempts > 0:
		v.State, v.Word = "retrying", fmt.Sprintf("Retrying, try %d", j.Attempts+1)
		v.Sentence = strings.TrimPrefix(firstLine(j.WaitingFor), "another try: ")
		if v.Sentence == "" {
			v.Sentence = "The last try did not work"
		}
		v.Sentence += ". Trying again" + in(j.NextRunAt, now) + ". Nothing to do unless it fails."
	case j.WaitingFor != "":
		v.State, v.Word = "waiting", "Running, waiting"
		v.Sentence = "Waiting for " + firstLine(j.WaitingFor) + "."
		if j.NextRunAt != nil && j.NextRunAt.After(now) {
			v.Sentence += " Next look" + in(j.NextRunAt, now) + "."
		}
	case j.Status == job.Queued:
		v.State, v.Word = "queued", "Queued"
		v.Sentence = "Waiting for a worker; the next free one takes it."
	case j.CurrentStep != "":
		v.Sentence = "At work on " + j.CurrentStep + "."
	default:
		v.Sentence = "A worker has just taken it."
	}
	if removing && v.State != "retrying" {
		v.State, v.Word = "removing", "Removing"
	}
	return v
}

func completedVerdict(j *job.Job, now time.Time) Verdict {
	v := Verdict{State: "ready", Word: "Ready"}
	switch url := j.Outputs["url"]; {
	case j.Kind == job.Remediation:
		return remediationVerdict(j, now)
	case !j.Owns():
		v.Sentence = "Connected, read only: nothing is changed or deleted by us."
	case url != "":
		v.Sentence = "Done " + ago(j.UpdatedAt, now) + "; it answers at " + url
	default:
		v.Sentence = "Done " + ago(j.UpdatedAt, now) + "."
	}
	return v
}

func failedVerdict(j *job.Job) Verdict {
	v := Verdict{State: "failed", Word: "Failed", Sentence: "It failed without a recorded reason."}
	if j.Phase == job.PhaseTeardown {
		v.State, v.Word = "removal-stopped", "Removal stopped"
	}
	if j.Error != nil && j.Error.Message != "" {
		v.Sentence = firstLine(j.Error.Message)
		if step := j.Error.Step; step != "" {
			v.Word += " at " + step
		}
	}
	return v
}

func cloudName(p job.Provider) string {
	switch p {
	case job.AWS:
		return "AWS"
	case job.GCP:
		return "Google Cloud"
	case job.Azure:
		return "Azure"
	}
	return string(p)
}

// in is " in 30 s" for a time ahead, and " now" for one that has come.
func in(t *time.Time, now time.Time) string {
	if t == nil || !t.After(now) {
		return " now"
	}
	return " in " + span(t.Sub(now))
}

func ago(t, now time.Time) string {
	if d := now.Sub(t); d >= 2*time.Second {
		return span(d) + " ago"
	}
	return "just now"
}

// span writes a duration as a person would say it.
func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", max(int(d.Round(time.Second).Seconds()), 1))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}
