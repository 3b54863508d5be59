package bootstrap

import (
	_ "embed"
	"strconv"
	"strings"
	"time"
)

// Exit codes of ProbeScript. Any other code says that the probe itself could not run.
const (
	ProbeComplete = 0  // the sentinel exists
	ProbeFailed   = 10 // the bootstrap, or cloud-init before it, failed; why is on stdout
	ProbeRunning  = 11 // still at it; the step is on stdout
)

// ProbeOutputLimit bounds what the probe prints, in bytes: Run Command's answer holds 2,500
// characters for each plug-in ("CommandPlugin" in the Systems Manager API reference).
const ProbeOutputLimit = 2400

//go:embed probe.sh
var probe string

// ProbeScript returns the POSIX shell command that looks at a VM's bootstrap through the exec
// channel. It waits inside the VM, up to wait, for an end of either kind: one call in place of a
// poll every few seconds. The exit code alone tells the outcome; stdout is for people.
func ProbeScript(wait time.Duration) string {
	seconds := max(0, int64((wait+time.Second-1)/time.Second))
	return strings.Replace(probe, "WAIT=0", "WAIT="+strconv.FormatInt(seconds, 10), 1)
}
