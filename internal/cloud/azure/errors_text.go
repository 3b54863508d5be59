package azure

import (
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/zopday/provisioner/internal/pipeline"
)

// lacking finds the action that the caller was not given in the cloud's words: that
// on a linked resource, such as a subnet that a VM is put in, the action itself, or
// the one on data in a vault ("Troubleshoot Azure RBAC").
var lacking = regexp.MustCompile(`does not have (?:authorization|permission) to perform action(?:\(s\))? '([^']+)'|Action: '([^']+)'`)

// missingAction is what the caller would need, by the cloud's own answer; the call
// itself, if that does not say.
func missingAction(ce *pipeline.CloudError) string {
	if m := lacking.FindStringSubmatch(ce.Message); m != nil {
		return m[1] + m[2]
	}
	return ce.Service + "/" + ce.Op
}

// retryAfter is what the cloud asked for, in any of the headers it uses.
func retryAfter(h http.Header) time.Duration {
	for _, name := range []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if ms, err := strconv.ParseInt(h.Get(name), 10, 64); err == nil && ms > 0 {
			return time.Duration(ms) * time.Millisecond
		}
	}
	if s, err := strconv.ParseInt(h.Get("Retry-After"), 10, 64); err == nil && s > 0 {
		return time.Duration(s) * time.Second
	}
	if at, err := http.ParseTime(h.Get("Retry-After")); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}
