package job

import (
	"strings"
)

// A NameRule is what one kind of object at one cloud allows as a name.
type NameRule struct {
	Max int // characters
}

// Name derives the name of an object: the user's name for the job, what the
// object is for, and a suffix from a hash of the whole job ID, in at most max
// characters of [a-z0-9-], starting with a letter and ending with a letter or a
// digit. What does not fit is cut from the user's part alone; the suffix keeps
// two long names apart (failure kinds C1, C2, C4, C5, C7).
func (j *Job) ResourceName(use string, max int) string {
	return deriveName(j.Name, use, j.ID, max)
}

func deriveName(name, use, id string, max int) string {
	const suffixLen = 6
	tail := "-" + shortHash(id, suffixLen)
	if use != "" {
		tail = "-" + use + tail
	}
	base := slug(name)
	if room := max - len(tail); len(base) > room {
		base = base[:room]
	}
	base = strings.Trim(base, "-")
	// AWS refuses load balancer names that start with "internal-", and
	// generated prefixes must start with a letter everywhere.
	if base == "" || !isLetter(base[0]) || strings.HasPrefix(base+tail, "internal-") {
		base = "z-" + base
		if room := max - len(tail); len(base) > room {
			base = base[:room]
		}
		base = strings.Trim(base, "-")
	}
	return base + tail
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' }

// slug maps a name to [a-z0-9-], runs of anything else becoming one hyphen.
func slug(s string) string {
	var b strings.Builder
	hyphen := false
	for _, r := range strings.ToLower(s) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
			hyphen = false
		} else if !hyphen && b.Len() > 0 {
			b.WriteByte('-')
			hyphen = true
		}
	}
	return strings.Trim(b.String(), "-")
}

// Marks carried by everything a job makes, as tags or labels. They are
// reserved: user labels cannot set a key with MarkPrefix.
const (
	MarkPrefix = "zopday:"
	MarkOwner  = "zopday:owner"  // the job's ID
	MarkObject = "zopday:object" // the object's key in the job
	MarkOrg    = "zopday:org"    // the organisation's ID
)

// MarkText is the marks of an object as one line, for a kind that has a
// description and no labels.
func (j *Job) MarkText(key string) string {
	return MarkOwner + "=" + j.ID + " " + MarkObject + "=" + key + " " + MarkOrg + "=" + j.OrgID
}

// ParseMarks reads marks out of a description; what is not a mark is passed over.
func ParseMarks(text string) map[string]string {
	marks := map[string]string{}
	for word := range strings.FieldsSeq(text) {
		if k, v, ok := strings.Cut(word, "="); ok && strings.HasPrefix(k, MarkPrefix) {
			marks[k] = v
		}
	}
	return marks
}
