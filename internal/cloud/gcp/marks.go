package gcp

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"strings"

	"github.com/zopday/provisioner/internal/job"
)

// Labels take no colon, so the marks are spelt with a hyphen there.
const (
	labelOwner  = "zopday-owner"
	labelObject = "zopday-object"
	labelOrg    = "zopday-org"
)

// labelsFor are the labels of one of a job's objects: the user's, and our marks.
// They ride in the call that makes the object (failure kinds D7, R4).
func labelsFor(j *job.Job, key string) map[string]string {
	labels := userLabels(j.Labels)
	maps.Copy(labels, map[string]string{labelOwner: j.ID, labelObject: labelText(key), labelOrg: labelText(j.OrgID)})
	return labels
}

// userLabels are the user's labels as Google Cloud takes them ("Requirements for
// labels"): lower case, and a hyphen for what is not allowed. What is too long is
// cut, and ends in a hash of the whole (failure kinds R1, R2).
func userLabels(in map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range in {
		key := labelText(k)
		if key == "" || key[0] < 'a' || key[0] > 'z' {
			key = labelText("l-" + k)
		}
		if strings.HasPrefix(key, "zopday-") || strings.HasPrefix(key, "goog") {
			key = labelText("user-" + k)
		}
		out[key] = labelText(v)
	}
	return out
}

func labelText(s string) string {
	const most = 63
	text := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		}
		return '-'
	}, strings.ToLower(s))
	if len(text) > most {
		sum := sha256.Sum256([]byte(s))
		text = text[:most-9] + "-" + hex.EncodeToString(sum[:4])
	}
	return text
}

// labelMark is what labels say: whose an object is, and what it is there.
func labelMark(labels map[string]string) (owner, object string) {
	return labels[labelOwner], labels[labelObject]
}

// textMark is what a description says.
func textMark(description string) (owner, object string) {
	marks := job.ParseMarks(description)
	return marks[job.MarkOwner], marks[job.MarkObject]
}

// byLabel is the list filter for a job's objects of a kind that takes labels
// when it is made.
func byLabel(owner string) string { return fmt.Sprintf("labels.%s = %q", labelOwner, owner) }

// byText is the list filter for a job's objects of a kind that is marked by its
// description: a regular expression for the whole field ("Filtering API requests").
func byText(owner string) string {
	return fmt.Sprintf("description eq %q", job.MarkOwner+"="+owner+" .*")
}
