package provision

import (
	"errors"
	"strings"
	"testing"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/steps"
)

// A finished network is not changed by an edit, and the refusal says so: not that
// its own fields are none of a VM's.
func TestFinishedNetworkIsNotEdited(t *testing.T) {
	t.Parallel()
	j := &job.Job{ResourceType: job.Network, Status: job.Completed, Phase: job.PhaseProvision}
	j.Config.Spec = []byte(`{"dnsZones":[{"name":"shop.internal"}],"network":{"cidr":"10.50.0.0/16"}}`)
	if err := editFinished(j, nil); err != nil {
		t.Errorf("an edit that changes nothing: %v", err)
	}
	var refusal *Refusal
	if err := editFinished(j, []string{"network.cidr"}); !errors.As(err, &refusal) || refusal.Kind != WrongState {
		t.Errorf("got %v", err)
	}
}

// The values of a component that is installed change by an upgrade: a refused edit
// of a job whose upgrade failed points to it, not to a teardown.
func TestEditOfAnInstalledComponentPointsToTheUpgrade(t *testing.T) {
	t.Parallel()
	j := &job.Job{ResourceType: job.Component, Status: job.Failed, Phase: job.PhaseUpdate, Version: 3}
	past := &history{version: 3, rows: []job.StepState{{Name: steps.InstallRelease, Direction: job.Up, Status: job.StepDone}}}
	for path, way := range map[string]string{"component.values.replicas": `"componentOp":"upgrade"`, "component.version": `"componentOp":"upgrade"`, "component.namespace": "tear the job down"} {
		var refusal *Refusal
		if err := editFailed(j, nil, []string{path}, past); !errors.As(err, &refusal) || len(refusal.Fields) != 1 || !strings.Contains(refusal.Fields[0].Fix, way) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
