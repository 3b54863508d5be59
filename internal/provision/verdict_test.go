package provision

import (
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/job"
)

func TestVerdict(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	soon := now.Add(22 * time.Second)
	for _, tc := range []struct {
		name, state, says string
		j                 job.Job
	}{
		{"draft", "draft", "Last changed 2 h ago", job.Job{Status: job.Draft, Phase: job.PhaseProvision, UpdatedAt: now.Add(-2 * time.Hour)}},
		{"queued", "queued", "next free one", job.Job{Status: job.Queued, Phase: job.PhaseProvision}},
		{"at work", "running", "stepCreateVMs", job.Job{Status: job.Running, Phase: job.PhaseProvision, CurrentStep: "stepCreateVMs"}},
		{"waiting", "waiting", "Waiting for the NAT gateway (pending). Next look in 22 s.", job.Job{Status: job.Running, Phase: job.PhaseProvision, WaitingFor: "the NAT gateway (pending)", NextRunAt: &soon}},
		{"parked in the queue", "waiting", "Waiting for x", job.Job{Status: job.Queued, Phase: job.PhaseProvision, WaitingFor: "x"}},
		{"retrying", "retrying", "EC2 RunInstances: no capacity. Trying again in 22 s.", job.Job{Status: job.Running, Phase: job.PhaseProvision, Attempts: 2, WaitingFor: "another try: EC2 RunInstances: no capacity", NextRunAt: &soon}},
		{"cancelling", "cancelling", "safe point", job.Job{Status: job.Running, Phase: job.PhaseProvision, Cancelling: true}},
		{"removing", "removing", "Waiting for the subnet", job.Job{Status: job.Running, Phase: job.PhaseTeardown, WaitingFor: "the subnet"}},
		{"failed", "failed", "the account allows 5 vCPUs", job.Job{Status: job.Failed, Phase: job.PhaseProvision, Error: &job.Error{Message: "the account allows 5 vCPUs\nmore", Step: "stepCreateVMs"}}},
		{"failed and nobody knows why", "failed", "without a recorded reason", job.Job{Status: job.Failed, Phase: job.PhaseProvision}},
		{"removal stopped", "removal-stopped", "left", job.Job{Status: job.Failed, Phase: job.PhaseTeardown, Error: &job.Error{Message: "2 left"}}},
		{"ready", "ready", "http://x/", job.Job{Status: job.Completed, Phase: job.PhaseProvision, Mode: job.ModeCreate, Outputs: map[string]string{"url": "http://x/"}}},
		{"adopted", "ready", "read only", job.Job{Status: job.Completed, Phase: job.PhaseProvision, Mode: job.ModeAdopt}},
		{"cancelled early", "cancelled", "before anything was made", job.Job{Status: job.Cancelled, Phase: job.PhaseProvision}},
		{"torn down", "torn-down", "nothing left", job.Job{Status: job.Cancelled, Phase: job.PhaseTeardown, Mode: job.ModeCreate}},
		{"disconnected", "disconnected", "untouched at AWS", job.Job{Status: job.Cancelled, Phase: job.PhaseTeardown, Mode: job.ModeAdopt, Provider: job.AWS}},
	} {
		v := VerdictOf(&tc.j, now)
		if v.State != tc.state || v.Word == "" || !strings.Contains(v.Sentence, tc.says) {
			t.Errorf("%s: %+v", tc.name, v)
		}
	}
}

func TestNextActsAreTaken(t *testing.T) {
	t.Parallel()
	for state, want := range map[job.State]string{
		{Status: job.Draft, Phase: job.PhaseProvision}:     "jobs plan,jobs submit,jobs delete",
		{Status: job.Queued, Phase: job.PhaseProvision}:    "jobs watch,jobs delete",
		{Status: job.Running, Phase: job.PhaseTeardown}:    "jobs watch",
		{Status: job.Failed, Phase: job.PhaseProvision}:    "jobs retry,jobs delete",
		{Status: job.Failed, Phase: job.PhaseUpdate}:       "jobs retry,vm attach-lb,jobs delete",
		{Status: job.Completed, Phase: job.PhaseProvision}: "vm attach-lb,jobs verify,jobs delete",
		{Status: job.Cancelled, Phase: job.PhaseTeardown}:  "jobs receipt",
	} {
		j := &job.Job{ID: "job_1", Name: "shop", ResourceType: job.VM, Provider: job.AWS, Mode: job.ModeCreate, Status: state.Status, Phase: state.Phase}
		var got []string
		for _, a := range nextActs(j) {
			words := strings.Fields(a.Command)
			got = append(got, words[1]+" "+words[2])
		}
		if strings.Join(got, ",") != want {
			t.Errorf("%s: %v, want %s", state, got, want)
		}
	}
}
