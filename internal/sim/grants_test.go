package sim_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/zopday/provisioner/internal/sim"
)

func TestGrants(t *testing.T) {
	t.Parallel()
	w := sim.New(sim.Options{})
	call := &sim.Call{Cloud: "aws", Service: "ec2", Operation: "RunInstances", Caller: "KEY", Actions: []string{"ec2:RunInstances", "iam:PassRole"}}
	if a := w.Denied(call); a != "" {
		t.Errorf("a caller without a limit is denied %s", a)
	}
	w.SetGrants("aws", "KEY", []string{"ec2:*"})
	if a := w.Denied(call); a != "iam:PassRole" {
		t.Errorf("denied %q", a)
	}
	if w.Granted("aws", "KEY", "rds:CreateDBInstance") || !w.Granted("aws", "OTHER", "rds:CreateDBInstance") || !w.Granted("gcp", "KEY", "x") {
		t.Error("the limit is of another caller, or of none")
	}
	w.SetGrants("aws", "KEY", []string{})
	if w.Granted("aws", "KEY", "ec2:RunInstances") {
		t.Error("an empty list grants")
	}
	w.SetGrants("aws", "KEY", nil)
	if !w.Granted("aws", "KEY", "ec2:RunInstances") || len(w.Grants("aws")) != 0 {
		t.Error("the limit stays")
	}
	w.Serve(context.Background(), call, func() sim.Reply { return sim.Reply{Status: 200} }, nil)
	if diff := cmp.Diff([]string{"ec2:RunInstances", "iam:PassRole"}, w.ActionsUsed(sim.BookFilter{Cloud: "aws"})); diff != "" {
		t.Error(diff)
	}
}
