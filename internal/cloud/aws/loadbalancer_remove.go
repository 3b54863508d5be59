package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"

	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

// RemoveLoadBalancer removes the load balancer, waits until its interfaces are
// gone, closes the VMs' group to it and the network ACL to its clients again, and
// removes its group.
func (p *Provider) RemoveLoadBalancer(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	lb, err := lbSpec(r.Job)
	if err != nil {
		return err
	}
	x, err := p.loadBalancer(r, lb, true)
	if err != nil {
		return err
	}
	if err := r.Remove(ctx, x); err != nil {
		return err
	}
	if rec, ok := r.Object(kindSecurityGroup, lbKey); ok && rec.State == job.ObjectCreated {
		if err := p.releaseGroup(ctx, r, rec.ID); err != nil {
			return err
		}
	}
	return pipeline.All(ctx,
		func(ctx context.Context) error { return r.Remove(ctx, p.lbGroup(r, lb)) },
		func(ctx context.Context) error { return p.shutClients(ctx, r) },
		func(ctx context.Context) error { return p.removeLogBucket(ctx, r, lb) })
}

// releaseGroup waits for the interfaces that a deleted load balancer leaves for
// a while, then revokes the lines by which the VMs' group lets it in.
func (p *Provider) releaseGroup(ctx context.Context, r *pipeline.Run, id string) error {
	left, err := ec2Page[ec2types.NetworkInterface](p.interfacePage).all(ctx, filter("group-id", id))
	// Not every endpoint heeds the filter.
	left = slices.DeleteFunc(left, func(n ec2types.NetworkInterface) bool {
		return !slices.ContainsFunc(n.Groups, func(g ec2types.GroupIdentifier) bool { return aws.ToString(g.GroupId) == id })
	})
	switch {
	case lacksCall(err):
		// A cloud without interfaces: the group's deletion tells.
	case err != nil:
		return plain(err)
	case len(left) > 0 && r.WaitedFor("interfaces of "+id) < lingering:
		var names []string
		for _, n := range left {
			names = append(names, describeInterface(n))
		}
		return pipeline.Wait(10*time.Second, "the load balancer's interfaces to go: %s", strings.Join(names, ", "))
	}
	vms, ok := r.Object(kindSecurityGroup, "vm")
	if !ok || vms.State != job.ObjectCreated {
		return nil
	}
	g, err := p.securityGroups().Get(ctx, vms.ID)
	if pipeline.Is(err, pipeline.NotFound) {
		return nil
	}
	if err != nil {
		return plain(err)
	}
	return plain(p.disallow(ctx, vms.ID, ingress, linesTo(linesOf(g.IpPermissions), id)))
}

// deleteLoadBalancer lifts the deletion protection that every load balancer of
// a job is made with, then deletes it. The engine only comes here when the
// deletion was confirmed by name.
func (p *Provider) deleteLoadBalancer(ctx context.Context, x pipeline.Resource, arn string) error {
	attrs, err := p.lbAttributes(ctx, arn)
	if err != nil {
		return err
	}
	if v, listed := attrs[deletionProtection]; v == "true" || !listed {
		if err := p.setAttributes(ctx, arn, map[string]string{deletionProtection: "false"}); err != nil {
			return err
		}
	}
	_, err = p.elb.DeleteLoadBalancer(ctx, &elb.DeleteLoadBalancerInput{LoadBalancerArn: aws.String(arn)})
	var ce *pipeline.CloudError
	if errors.As(err, &ce) && strings.HasPrefix(ce.Code, "OperationNotPermitted") {
		return pipeline.Fatal("protected", fmt.Sprintf("%s (%s) cannot be deleted: %s", x, arn, ce.Message), "Somebody has protected it again. Lift that protection there, then retry.").From(err)
	}
	return err
}
