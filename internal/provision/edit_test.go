package provision

import (
	"errors"
	"testing"

	"github.com/zopday/provisioner/internal/job"
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
