package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/zopday/provisioner/internal/cloud/lookup"
	"github.com/zopday/provisioner/internal/job"
	"github.com/zopday/provisioner/internal/pipeline"
)

const (
	kindLoadBalancer = "elbv2:load-balancer"
	kindTargetGroup  = "elbv2:target-group"
	kindListener     = "elbv2:listener"

	lbKey = "lb" // of the load balancer and of its security group

	lbLook = 10 * time.Second // between two looks at one that is being provisioned
)

// lbSpec is the load balancer that the job asks for; the defaults if an attach
// asked for one without saying which.
func lbSpec(j *job.Job) (job.LoadBalancer, error) {
	spec, err := j.VMSpec()
	if err != nil {
		return job.LoadBalancer{}, err
	}
	if spec.LoadBalancer == nil {
		return job.LoadBalancer{PlainHTTP: true}.WithDefaults(), nil
	}
	return *spec.LoadBalancer, nil
}

// EnsureLoadBalancer makes the load balancer's security group, opens the VMs'
// group to it and to nothing else and, if it hands its clients' addresses on, their
// network ACL to those, and makes the load balancer.
func (p *Provider) EnsureLoadBalancer(ctx context.Context, r *pipeline.Run) error {
	ctx = view(ctx, r)
	lb, err := lbSpec(r.Job)
	if err != nil {
		return err
	}
	infra := &r.Job.Config.InfraConfig
	group := p.lbGroup(r, lb)
	err = pipeline.All(ctx,
		func(ctx context.Context) error {
			id, err := r.Ensure(ctx, group)
			learn(r, &infra.LoadBalancerSecurityGroupID, id)
			return visible(r, "the load balancer's security group", err)
		},
		func(ctx context.Context) error { return p.admitClients(ctx, r, lb) },
		func(ctx context.Context) error { return p.ensureLogBucket(ctx, r, lb) })
	if err != nil {
		return err
	}
	x, err := p.loadBalancer(r, lb, false)
	if err != nil {
		return err
	}
	var made string
	err = pipeline.All(ctx,
		func(ctx context.Context) error { return confirmOnce(ctx, r, group) },
		func(ctx context.Context) (err error) {
			made, err = r.Ensure(ctx, x)
			return err
		})
	learn(r, &infra.LoadBalancerID, made)
	if err != nil {
		return visible(r, "the load balancer", err)
	}
	return p.learnHost(ctx, r)
}

// confirmOnce is confirm for a step that is run again while something takes
// minutes: what this worker has seen once is not read at every pass.
func confirmOnce(ctx context.Context, r *pipeline.Run, x pipeline.Resource) error {
	key := "confirmed " + x.Kind + " " + x.Key
	if r.Recall(key) != nil {
		return nil
	}
	if err := confirm(ctx, r, x); err != nil {
		return err
	}
	r.Remember(key, true)
	return nil
}

// learnHost records where the load balancer answers.
func (p *Provider) learnHost(ctx context.Context, r *pipeline.Run) error {
	infra := &r.Job.Config.InfraConfig
	if r.Mode != pipeline.Apply || infra.LoadBalancerHost != "" && infra.LoadBalancerZoneID != "" {
		return nil
	}
	l, err := p.readLoadBalancer(ctx, infra.LoadBalancerID)
	if err != nil {
		return pipeline.Unseen(plain(err), "the load balancer")
	}
	infra.LoadBalancerHost, infra.LoadBalancerZoneID = aws.ToString(l.DNSName), aws.ToString(l.CanonicalHostedZoneId)
	return nil
}

// lbGroup is the load balancer's security group: in from its clients on the
// listeners' ports, out to the VMs on the service's and the check's port alone.
func (p *Provider) lbGroup(r *pipeline.Run, lb job.LoadBalancer) pipeline.Resource {
	return p.securityGroup(r, lbKey, "Load balancer of "+r.Job.Name, func(ctx context.Context, g ec2types.SecurityGroup) (pipeline.Seen, error) {
		s := pipeline.Seen{Status: pipeline.Ready}
		if r.Down {
			return s, nil
		}
		id, vmGroup := aws.ToString(g.GroupId), r.Job.Config.InfraConfig.VMSecurityGroupID
		s.Aspects = []pipeline.Aspect{
			p.lineAspect(r.Mode, ingress, id, ingress, lbIngress(lb, r.Job.Config.InfraConfig.NetworkCIDR), linesOf(g.IpPermissions)),
			p.lineAspect(r.Mode, egress, id, egress, lbEgress(lb, vmGroup), linesOf(g.IpPermissionsEgress)),
		}
		if r.Mode != pipeline.Apply {
			return s, nil // a verify shows the VMs' side at their own group
		}
		vms, err := p.securityGroups().Get(ctx, vmGroup)
		if err != nil {
			return s, err
		}
		s.Aspects = append(s.Aspects, p.lineAspect(r.Mode, "ingress of the VMs' group", vmGroup, ingress, vmIngress(lb, id), linesOf(vms.IpPermissions)))
		return s, nil
	})
}

// lbIngress is open to the world on the listeners' ports of a public load
// balancer, and to the network on those of an internal one.
func lbIngress(lb job.LoadBalancer, network string) []line {
	from := "0.0.0.0/0"
	if lb.Scheme == job.SchemeInternal {
		from = network
	}
	var out []line
	for _, l := range listenersOf(lb) {
		out = append(out, line{proto: "tcp", from: l.port, to: l.port, peer: from, about: "clients of the load balancer"})
	}
	return out
}

func lbEgress(lb job.LoadBalancer, vmGroup string) []line {
	out := []line{{proto: "tcp", from: int32(lb.Port), to: int32(lb.Port), peer: vmGroup, about: "traffic to the VMs"}}
	if lb.HealthCheck.Port != lb.Port {
		out = append(out, line{proto: "tcp", from: int32(lb.HealthCheck.Port), to: int32(lb.HealthCheck.Port), peer: vmGroup, about: "health checks of the VMs"})
	}
	return out
}

func (p *Provider) readLoadBalancer(ctx context.Context, arn string) (elbtypes.LoadBalancer, error) {
	return lookup.Once(ctx, kindLoadBalancer+" "+arn, func(ctx context.Context) (elbtypes.LoadBalancer, error) {
		out, err := p.elb.DescribeLoadBalancers(ctx, &elb.DescribeLoadBalancersInput{LoadBalancerArns: []string{arn}})
		if err != nil {
			return elbtypes.LoadBalancer{}, err
		}
		for _, l := range out.LoadBalancers {
			if aws.ToString(l.LoadBalancerArn) == arn {
				return l, nil
			}
		}
		return elbtypes.LoadBalancer{}, absent("Elastic Load Balancing v2", "DescribeLoadBalancers", arn)
	})
}

// elbOwners is whose each of some load balancing objects is, by their tags.
func (p *Provider) elbOwners(ctx context.Context, arns ...string) (map[string]string, error) {
	owners := map[string]string{}
	for part := range slices.Chunk(arns, 20) { // DescribeTags takes 20
		out, err := lookup.Once(ctx, "elbv2 tags "+strings.Join(part, " "), func(ctx context.Context) (*elb.DescribeTagsOutput, error) {
			out, err := p.elb.DescribeTags(ctx, &elb.DescribeTagsInput{ResourceArns: part})
			if lacksCall(err) {
				return &elb.DescribeTagsOutput{}, nil // then nobody's mark is known
			}
			return out, err
		})
		if err != nil {
			return nil, err
		}
		for _, d := range out.TagDescriptions {
			for _, t := range d.Tags {
				if aws.ToString(t.Key) == job.MarkOwner {
					owners[aws.ToString(d.ResourceArn)] = aws.ToString(t.Value)
				}
			}
		}
	}
	return owners, nil
}

// intendedTagsLate is tagsLate for what a lookup finds while a create of this
// job is unresolved.
func intendedTagsLate(r *pipeline.Run, kind, key, owner string) error {
	if rec, ok := r.Object(kind, key); !ok || rec.State != job.ObjectIntended {
		return nil
	}
	return tagsLate(r, kind, key, owner)
}

func elbTags(marks map[string]string) []elbtypes.Tag {
	return tagList(marks, func(k, v *string) elbtypes.Tag { return elbtypes.Tag{Key: k, Value: v} })
}

// lbSubnets are the subnets that the load balancer stands in.
func lbSubnets(r *pipeline.Run, lb job.LoadBalancer) ([]string, error) {
	infra := r.Job.Config.InfraConfig
	subnets, kind := infra.PublicSubnetIDs, "public"
	if lb.Scheme == job.SchemeInternal {
		subnets, kind = infra.PrivateSubnetIDs, "private"
	}
	if len(subnets) < 2 && r.Mode == pipeline.Apply && !r.Down {
		return nil, pipeline.Fatal("too-few-subnets", fmt.Sprintf("the network has %d %s subnets, and a load balancer needs them in 2 zones", len(subnets), kind),
			"Name "+kind+" subnets in two zones in spec.existing.subnetIds, or choose another scheme.").On("config.spec.existing.subnetIds")
	}
	return subnets, nil
}

// lbInput is what a load balancer is made with.
func lbInput(r *pipeline.Run, lb job.LoadBalancer, lbName string, subnets []string) *elb.CreateLoadBalancerInput {
	infra := r.Job.Config.InfraConfig
	in := &elb.CreateLoadBalancerInput{
		Name: aws.String(lbName), Type: elbtypes.LoadBalancerTypeEnumApplication, Scheme: elbtypes.LoadBalancerSchemeEnumInternetFacing,
		IpAddressType: elbtypes.IpAddressTypeIpv4, Subnets: subnets, SecurityGroups: []string{infra.LoadBalancerSecurityGroupID},
		Tags: elbTags(tags(r, lbKey, lbName)),
	}
	if lb.Type == job.LBTCP {
		in.Type = elbtypes.LoadBalancerTypeEnumNetwork
	}
	if lb.Scheme == job.SchemeInternal {
		in.Scheme = elbtypes.LoadBalancerSchemeEnumInternal
	}
	return in
}

// loadBalancer is the job's ALB or NLB. CreateLoadBalancer takes no token, but
// "is idempotent: if you attempt to create multiple load balancers with the
// same settings, each call succeeds" (its API reference); the name is unique.
func (p *Provider) loadBalancer(r *pipeline.Run, lb job.LoadBalancer, leaving bool) (pipeline.Resource, error) {
	subnets, err := lbSubnets(r, lb)
	if err != nil {
		return pipeline.Resource{}, err
	}
	lbName := name(r, lbKey, 32)
	in := lbInput(r, lb, lbName, subnets)
	see := func(ctx context.Context, l elbtypes.LoadBalancer, owner string) (pipeline.Seen, error) {
		s := lbSeen(l)
		s.Owner = owner
		if leaving || s.Status != pipeline.Ready {
			return s, nil
		}
		var err error
		s.Aspects, err = p.lbAspects(ctx, r, l, in)
		return s, err
	}
	x := pipeline.Resource{Kind: kindLoadBalancer, Key: lbKey, Name: lbName, Args: in, Tokened: true, Slow: true, Patience: 20 * time.Minute}
	x.Get = func(ctx context.Context, arn string) (pipeline.Seen, error) {
		// It takes minutes: looking every few seconds would be too often.
		const looked = "load balancer looked at"
		if last, ok := r.Recall(looked).(pipeline.Seen); ok && !leaving && r.WaitedFor(looked) < lbLook {
			return last, nil
		}
		l, err := p.readLoadBalancer(ctx, arn)
		if err != nil {
			return pipeline.Seen{}, err
		}
		if !leaving && lbSeen(l).Status == pipeline.Pending {
			r.WaitOver(looked)
			r.WaitedFor(looked)
			r.Remember(looked, lbSeen(l))
			return lbSeen(l), nil // the tags can wait
		}
		r.Remember(looked, nil)
		owners, err := p.elbOwners(ctx, arn)
		if err != nil {
			return pipeline.Seen{}, err
		}
		return see(ctx, l, owners[arn])
	}
	x.Find = func(ctx context.Context) ([]pipeline.Seen, error) {
		out, err := p.elb.DescribeLoadBalancers(ctx, &elb.DescribeLoadBalancersInput{Names: []string{lbName}})
		if err != nil || len(out.LoadBalancers) == 0 {
			return nil, err
		}
		l := out.LoadBalancers[0]
		owners, err := p.elbOwners(ctx, aws.ToString(l.LoadBalancerArn))
		if err != nil {
			return nil, err
		}
		s := lbSeen(l)
		s.Owner = owners[s.ID]
		if err := intendedTagsLate(r, kindLoadBalancer, lbKey, s.Owner); err != nil {
			return nil, err
		}
		if s.Status == pipeline.Ready {
			s.Status = pipeline.Pending // whoever takes it reads it with its attributes
		}
		return []pipeline.Seen{s}, nil
	}
	x.Create = func(ctx context.Context, _ string) (pipeline.Seen, error) {
		out, err := p.elb.CreateLoadBalancer(ctx, in)
		if err != nil || len(out.LoadBalancers) == 0 {
			return pipeline.Seen{}, err
		}
		s := lbSeen(out.LoadBalancers[0])
		s.Owner, s.Status = r.Job.ID, pipeline.Pending
		return s, nil
	}
	x.Delete = func(ctx context.Context, arn string) error { return p.deleteLoadBalancer(ctx, x, arn) }
	return tidy(lookFirst(r, x)), nil
}

func lbSeen(l elbtypes.LoadBalancer) pipeline.Seen {
	s := pipeline.Seen{ID: aws.ToString(l.LoadBalancerArn), Status: pipeline.Ready}
	if l.State == nil {
		return s
	}
	s.Reason = string(l.State.Code)
	if why := aws.ToString(l.State.Reason); why != "" {
		s.Reason += ": " + why
	}
	switch l.State.Code {
	case elbtypes.LoadBalancerStateEnumProvisioning:
		s.Status = pipeline.Pending
	case elbtypes.LoadBalancerStateEnumFailed:
		s.Status = pipeline.Broken
	}
	return s
}
