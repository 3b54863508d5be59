package vmpool

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/cloud"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// Words are how a cloud speaks of what is behind a load balancer.
type Words struct {
	Plural string                 // such as "targets"
	Absent string                 // what a VM is "not yet", such as "registered"
	Short  func(id string) string // of an instance's ID; nil for the ID itself
}

func (w Words) of(h job.TargetInfo) string {
	s := w.short(h.InstanceID) + " is " + cmp.Or(h.Health, "in no state")
	if h.Reason != "" {
		s += " (" + h.Reason + ")"
	}
	return s
}

func (w Words) short(id string) string {
	if w.Short == nil {
		return id
	}
	return w.Short(id)
}

// Unhealthy names the VMs that do not take traffic, and why. Of a scaling group
// only the number counts, since its members come and go.
func (w Words) Unhealthy(vms []job.VMInfo, health []job.TargetInfo, group bool) []string {
	var sick []string
	healthy := 0
	of := map[string]job.TargetInfo{}
	for _, h := range health {
		of[h.InstanceID] = h
		if h.Health == cloud.HealthyTarget {
			healthy++
		} else {
			sick = append(sick, w.of(h))
		}
	}
	if group {
		if healthy >= len(vms) {
			return nil
		}
		for range max(len(vms)-healthy-len(sick), 0) {
			sick = append(sick, "one not "+w.Absent+" yet")
		}
		return sick
	}
	sick = nil
	for _, vm := range vms {
		h, ok := of[vm.InstanceID]
		switch {
		case !ok:
			sick = append(sick, w.short(vm.InstanceID)+" is not "+w.Absent+" yet")
		case h.Health != cloud.HealthyTarget:
			sick = append(sick, w.of(h))
		}
	}
	return sick
}

// healthyTargets is for what AwaitHealthy waits.
const healthyTargets = "healthy targets"

// A HealthWait says how long VMs may take to become healthy, in cloud time.
type HealthWait struct {
	Words
	Patience time.Duration // then the job fails
	Bare     time.Duration // then a job without a bootstrap of ours goes on, with a warning
	Poll     time.Duration // the longest between two looks
	Hint     string        // where the cause is to be seen; "" if nowhere but in the check
}

// Since is for how long they have been waited for.
func (HealthWait) Since(r *pipeline.Run) time.Duration { return r.WaitedFor(healthyTargets) }

// Over ends the wait: all of them are healthy.
func (HealthWait) Over(r *pipeline.Run) { r.WaitOver(healthyTargets) }

// Await waits for the sick, and returns nil when there are none.
func (w HealthWait) Await(r *pipeline.Run, check job.HealthCheck, bootstrap string, sick []string) error {
	if len(sick) == 0 {
		w.Over(r)
		return nil
	}
	infra := &r.Job.Config.InfraConfig
	why := fmt.Sprintf("%s; the check is GET %s on port %d", strings.Join(sick, "; "), check.Path, check.Port)
	text := fmt.Sprintf("%d of %d %s are not healthy: %s", len(sick), max(len(infra.VMs), len(sick)), w.Plural, why)
	since := w.Since(r)
	switch {
	case bootstrap == job.BootstrapBare && since >= w.Bare:
		// Nothing of ours answers there: that is for the user's own service.
		if !slices.Contains(infra.Warnings, text) {
			infra.Warnings = append(infra.Warnings, text)
		}
		r.Note("%s", text)
		return nil
	case since >= w.Patience:
		return pipeline.Fatal("targets-unhealthy", text,
			"A path or port on which the service does not answer is the most common cause"+w.Hint+": PATCH config.spec.loadBalancer.healthCheck, or put the service right, then retry.").On("config.spec.loadBalancer.healthCheck")
	}
	return pipeline.Wait(min(max(since/4, 5*time.Second), w.Poll), "%d more %s to become healthy: %s", len(sick), w.Plural, why)
}
