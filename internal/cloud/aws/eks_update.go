package aws

import (
	"context"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	ekstypes "github.com/aws/aws-sdk-go-v2/service/eks/types"

	"github.com/zopday/provisioner/internal/pipeline"
)

// updates are the changes of a cluster, its node groups and add-ons. EKS carries
// out one at a time, and may let one fail long after it was accepted: each is waited
// for, and one that failed says why.
type updates struct {
	*Provider
	r                *pipeline.Run
	cluster          string
	nodegroup, addon string // what of the cluster is changed, if not the cluster itself
}

// mostChanges is how often a run changes one thing before somebody else must be
// changing it back.
const mostChanges = 4

// set is a change of the cluster's configuration as an aspect sets it.
func (u updates) set(what string, in *eks.UpdateClusterConfigInput) func(context.Context) error {
	in.Name = aws.String(u.cluster)
	return u.change(what, func(ctx context.Context) (*ekstypes.Update, error) {
		out, err := u.eks.UpdateClusterConfig(ctx, in)
		if err != nil {
			return nil, err
		}
		return out.Update, nil
	})
}

// change begins a change, or looks how the one stands that this worker has begun.
func (u updates) change(what string, begin func(context.Context) (*ekstypes.Update, error)) func(context.Context) error {
	key := fmt.Sprintf("update of %s %s%s: %s", u.cluster, u.nodegroup, u.addon, what)
	return func(ctx context.Context) error {
		if id, ok := u.r.Recall(key).(string); ok {
			u.r.Remember(key, nil)
			if err := u.judge(ctx, key, what, id); err != nil {
				return err
			}
		}
		n, _ := u.r.Recall(key + " begun").(int)
		if n >= mostChanges {
			return pipeline.Fatal("change-lost", fmt.Sprintf("the %s of cluster %s was changed %d times, and each time EKS did not keep it", what, u.cluster, n),
				"Find out who or what changes it back (the audit log of the account says), then retry.")
		}
		u.r.Remember(key+" begun", n+1)
		got, err := begin(ctx)
		if err != nil {
			return plain(err)
		}
		if got != nil && got.Id != nil {
			u.r.Remember(key, *got.Id)
		}
		return pipeline.Wait(3*time.Second, "the change of the %s of cluster %s to be carried out", what, u.cluster)
	}
}

// judge is nil for an update that is over and has to be begun again.
func (u updates) judge(ctx context.Context, key, what, id string) error {
	in := &eks.DescribeUpdateInput{Name: aws.String(u.cluster), UpdateId: aws.String(id)}
	if u.nodegroup != "" {
		in.NodegroupName = aws.String(u.nodegroup)
	}
	if u.addon != "" {
		in.AddonName = aws.String(u.addon)
	}
	out, err := u.eks.DescribeUpdate(ctx, in)
	if err != nil {
		return pipeline.Unless(plain(err), pipeline.NotFound)
	}
	if out.Update == nil {
		return nil
	}
	var why []string
	for _, e := range out.Update.Errors {
		why = append(why, string(e.ErrorCode)+": "+aws.ToString(e.ErrorMessage))
	}
	switch out.Update.Status {
	case ekstypes.UpdateStatusInProgress:
		u.r.Remember(key, id)
		return pipeline.Wait(5*time.Second, "the change of the %s of cluster %s to be carried out", what, u.cluster)
	case ekstypes.UpdateStatusSuccessful:
		return nil // and undone since
	}
	return pipeline.Fatal("update-failed", fmt.Sprintf("the change of the %s of cluster %s ended as %s", what, u.cluster, issueText(string(out.Update.Status), why...)),
		"Put right what the reason names, then retry.")
}
