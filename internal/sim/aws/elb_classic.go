package aws

import (
	"fmt"
	"slices"
	"strings"
	"time"

	classic "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"

	"github.com/zopday/provisioner/internal/sim"
)

// classicVersion is the version of the API of Classic Load Balancers, which shares its name in signatures with the newer one.
const classicVersion = "2012-06-01"

// ClassicBalancer is a Classic Load Balancer, as far as what a cluster's controllers leave behind needs it: it stands in
// subnets and holds security groups. Requests and health are not simulated.
type ClassicBalancer struct {
	Name, ARN, Scheme, VpcID, DNSName string
	Subnets, Groups, Interfaces       []string
	Listeners                         []ClassicListener
	Created                           time.Time
	Tags                              []Tag
}

// ClassicListener is a listener of a Classic Load Balancer.
type ClassicListener struct {
	Protocol           string
	Port, InstancePort int32
}

// classicOperations is the API of Classic Load Balancers.
func (s *elbService) classicOperations() map[string]typedOp {
	return map[string]typedOp{
		"CreateLoadBalancer": op(s.createClassic), "DescribeLoadBalancers": op(s.describeClassic), "DeleteLoadBalancer": op(s.deleteClassic),
		"DescribeTags": op(s.describeClassicTags), "AddTags": op(s.addClassicTags),
	}
}

// classics are the Classic Load Balancers of a scope, by name.
func (s *ELBScope) classics() map[string]*ClassicBalancer {
	if s.Classic == nil { // a state kept by an earlier version
		s.Classic = map[string]*ClassicBalancer{}
	}
	return s.Classic
}

func noClassic(name string) error {
	return fail(400, "LoadBalancerNotFound", "There is no ACTIVE Load Balancer named '%s'", name)
}

func (s *elbService) createClassic(c *reqCtx, in *classic.CreateLoadBalancerInput) (*classic.CreateLoadBalancerOutput, error) {
	name, scheme := deref(in.LoadBalancerName), orDefault(in.Scheme, "internet-facing")
	if err := checkELBName("LoadBalancer name", name); err != nil {
		return nil, err
	}
	sc := s.state.in(c.scope())
	switch {
	case sc.classics()[name] != nil:
		return nil, fail(400, "DuplicateLoadBalancerName", "Load Balancer named '%s' already exists and it is configured with different parameters.", name)
	case len(in.Listeners) == 0:
		return nil, failValidation("Listeners must be specified")
	case len(in.Subnets) == 0:
		return nil, failValidation("Either AvailabilityZones or SubnetIds must be specified")
	}
	b := &ClassicBalancer{Name: name, ARN: c.regionalARN(elbName, "loadbalancer/"+name), Scheme: scheme, Subnets: slices.Clone(in.Subnets), Groups: slices.Clone(in.SecurityGroups), Created: c.now}
	for _, t := range in.Tags {
		b.Tags = setTag(b.Tags, deref(t.Key), deref(t.Value))
	}
	for _, l := range in.Listeners {
		b.Listeners = append(b.Listeners, ClassicListener{Protocol: strings.ToUpper(deref(l.Protocol)), Port: l.LoadBalancerPort, InstancePort: deref(l.InstancePort)})
	}
	b.DNSName = fmt.Sprintf("%s-%s.%s.elb.amazonaws.com", name, c.w.ID("", 10, "0123456789"), c.region)
	if err := s.placeClassic(c, b); err != nil {
		return nil, err
	}
	sc.classics()[name] = b
	c.Make(b.ARN)
	return &classic.CreateLoadBalancerOutput{DNSName: new(b.DNSName)}, nil
}

// placeClassic puts an interface into each of the subnets.
func (s *elbService) placeClassic(c *reqCtx, b *ClassicBalancer) error {
	ec2 := s.cloud.ec2
	sc := ec2.in(c.scope())
	undo := func(err error) error {
		for _, id := range b.Interfaces {
			ec2.dropInterface(sc, id)
		}
		return err
	}
	for _, id := range b.Subnets {
		sub := sc.Subnets[id]
		if sub == nil {
			return undo(fail(400, "SubnetNotFound", "The requested configuration is not valid: subnet %s does not exist", id))
		}
		b.VpcID = sub.VpcID
		refs, err := sc.groupRefs(sub.VpcID, b.Groups)
		if err != nil {
			return undo(fail(400, "InvalidSecurityGroup", "One or more of the specified security groups do not exist"))
		}
		n, err := ec2.newInterface(sc, sub, refs, "ELB "+b.Name, "interface")
		if err != nil {
			return undo(fail(400, "InvalidSubnet", "Not enough IP space available in %s", id))
		}
		n.Status, n.RequesterManaged, n.RequesterID, n.Holder, n.Default = "in-use", true, "amazon-elb", b.ARN, true
		n.Attachment = &attachment{ID: s.cloud.hex17("eni-attach-"), InstanceOwnerID: "amazon-elb", DeviceIndex: 1, Status: "attached", AttachTime: c.now}
		b.Interfaces = append(b.Interfaces, n.InterfaceID)
		if len(b.Groups) == 0 {
			b.Groups = []string{refs[0].GroupID} // the VPC's default
		}
	}
	return nil
}

func (b *ClassicBalancer) sdk() types.LoadBalancerDescription {
	out := types.LoadBalancerDescription{LoadBalancerName: new(b.Name), DNSName: new(b.DNSName), CanonicalHostedZoneName: new(b.DNSName), CreatedTime: new(b.Created), Scheme: new(b.Scheme),
		VPCId: new(b.VpcID), Subnets: slices.Clone(b.Subnets), SecurityGroups: slices.Clone(b.Groups), Instances: []types.Instance{}, BackendServerDescriptions: []types.BackendServerDescription{}}
	for _, l := range b.Listeners {
		out.ListenerDescriptions = append(out.ListenerDescriptions, types.ListenerDescription{PolicyNames: []string{}, Listener: &types.Listener{Protocol: new(l.Protocol), InstanceProtocol: new(l.Protocol),
			LoadBalancerPort: l.Port, InstancePort: new(l.InstancePort)}})
	}
	return out
}

func (s *elbService) describeClassic(c *reqCtx, in *classic.DescribeLoadBalancersInput) (*classic.DescribeLoadBalancersOutput, error) {
	all, out := s.state.in(c.scope()).classics(), []types.LoadBalancerDescription{}
	for _, name := range in.LoadBalancerNames {
		if all[name] == nil {
			return nil, noClassic(name)
		}
	}
	for _, name := range sortedKeys(all) {
		b := all[name]
		if len(in.LoadBalancerNames) == 0 && c.visible(b.ARN, b.Created, true, "classic-load-balancer", name, tagValues(b.Tags)) || slices.Contains(in.LoadBalancerNames, name) {
			out = append(out, b.sdk())
		}
	}
	page, next, err := elbPage(c, out, in.Marker, in.PageSize)
	return &classic.DescribeLoadBalancersOutput{LoadBalancerDescriptions: page, NextMarker: next}, err
}

// deleteClassic succeeds for what is not there, as the API does. The interfaces linger.
func (s *elbService) deleteClassic(c *reqCtx, in *classic.DeleteLoadBalancerInput) (*classic.DeleteLoadBalancerOutput, error) {
	sc := s.state.in(c.scope())
	if b := sc.classics()[deref(in.LoadBalancerName)]; b != nil {
		c.Touch(b.ARN)
		s.dropClassic(c.scope(), sc, b)
	}
	return &classic.DeleteLoadBalancerOutput{}, nil
}

func (s *elbService) dropClassic(in scope, sc *ELBScope, b *ClassicBalancer) {
	delete(sc.classics(), b.Name)
	for _, id := range b.Interfaces {
		sc.Lingering[id] = b.Name
		s.cloud.after(30*time.Second, elbName, "interface-gone", in.key()+"|"+id)
	}
}

func (s *elbService) describeClassicTags(c *reqCtx, in *classic.DescribeTagsInput) (*classic.DescribeTagsOutput, error) {
	if len(in.LoadBalancerNames) == 0 || len(in.LoadBalancerNames) > 20 {
		return nil, failValidation("The number of load balancer names must be between 1 and 20")
	}
	out := &classic.DescribeTagsOutput{}
	for _, name := range in.LoadBalancerNames {
		b := s.state.in(c.scope()).classics()[name]
		if b == nil {
			return nil, noClassic(name)
		}
		d := types.TagDescription{LoadBalancerName: new(name), Tags: []types.Tag{}}
		for _, t := range b.Tags {
			d.Tags = append(d.Tags, types.Tag{Key: new(t.Key), Value: new(t.Value)})
		}
		out.TagDescriptions = append(out.TagDescriptions, d)
	}
	return out, nil
}

func (s *elbService) addClassicTags(c *reqCtx, in *classic.AddTagsInput) (*classic.AddTagsOutput, error) {
	for _, name := range in.LoadBalancerNames {
		b := s.state.in(c.scope()).classics()[name]
		if b == nil {
			return nil, noClassic(name)
		}
		for _, t := range in.Tags {
			b.Tags = setTag(b.Tags, deref(t.Key), deref(t.Value))
		}
	}
	return &classic.AddTagsOutput{}, nil
}

// classicObjects lists the Classic Load Balancers of a scope.
func (s *ELBScope) classicObjects() (out []sim.Object) {
	for _, name := range sortedKeys(s.classics()) {
		b := s.classics()[name]
		out = append(out, sim.Object{Kind: "classic-load-balancer", ID: b.ARN, ARN: b.ARN, Name: name, Tags: tagMap(b.Tags), Parents: append([]string{b.VpcID}, b.Subnets...), Data: b})
	}
	return out
}
