package aws

import (
	"context"
	"fmt"
	"sort"
	"strings"

	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/zopday/provisioner/internal/sim"
)

// Annotations of Services and tags of subnets that the controllers go by.
const (
	annInternal  = "service.beta.kubernetes.io/aws-load-balancer-internal"
	annScheme    = "service.beta.kubernetes.io/aws-load-balancer-scheme"
	annLoadTags  = "service.beta.kubernetes.io/aws-load-balancer-additional-resource-tags"
	roleInternal = "kubernetes.io/role/internal-elb"
	rolePublic   = "kubernetes.io/role/elb"
)

// balancerName is what the load balancer of a Service is called: "a" and its UID, up to 32 characters.
func balancerName(uid string) string {
	name := "a" + strings.ReplaceAll(uid, "-", "")
	return name[:min(len(name), 32)]
}

// balancer finds the load balancer of a Service by its tags.
func (e *eksCloud) balancer(k *EKSCluster, svc sim.KubeService) *LoadBalancer {
	all := e.service.cloud.platform.elb.state.in(k.scope()).Balancers
	for _, ref := range sortedKeys(all) {
		tags := tagMap(all[ref].Tags)
		if tags["kubernetes.io/cluster/"+k.Name] == "owned" && tags[tagService] == svc.Namespace+"/"+svc.Name {
			return all[ref]
		}
	}
	return nil
}

// EnsureLoadBalancer implements sim.KubeCloud: a network load balancer and a security group of its own.
func (e *eksCloud) EnsureLoadBalancer(_ context.Context, svc sim.KubeService) (hostname, ip string, err error) {
	if svc.Class != "" {
		return "", "", nil // another controller's
	}
	err = e.locked(func(k *EKSCluster) error {
		if !e.service.cloud.platform.iam.permits(k.Account, k.RoleARN, "elasticloadbalancing:CreateLoadBalancer") {
			return fmt.Errorf("AccessDenied: the cluster role %s may not create load balancers", k.RoleARN)
		}
		b := e.balancer(k, svc)
		if b == nil {
			if b, err = e.makeBalancer(k, svc); err != nil {
				return err
			}
		}
		hostname = b.DNSName
		return nil
	})
	return hostname, "", err
}

func (e *eksCloud) makeBalancer(k *EKSCluster, svc sim.KubeService) (*LoadBalancer, error) {
	cloud := e.service.cloud
	internal := svc.Annotations[annInternal] == "true" || svc.Annotations[annScheme] == "internal"
	subnets := e.balancerSubnets(k, internal)
	if len(subnets) == 0 {
		return nil, fmt.Errorf("could not find any suitable subnets for creating the ELB")
	}
	tags := []Tag{k.ownerTag(), {tagService, svc.Namespace + "/" + svc.Name}}
	for pair := range strings.SplitSeq(svc.Annotations[annLoadTags], ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			tags = setTag(tags, strings.TrimSpace(key), strings.TrimSpace(value))
		}
	}
	name := balancerName(svc.UID)
	group := e.balancerGroup(k, "k8s-elb-"+name, fmt.Sprintf("Security group for Kubernetes ELB %s (%s/%s)", name, svc.Namespace, svc.Name), tags, svc.Ports)
	in := &elb.CreateLoadBalancerInput{Name: new(name), Type: elbtypes.LoadBalancerTypeEnumNetwork, Scheme: elbtypes.LoadBalancerSchemeEnumInternetFacing, Subnets: subnets, SecurityGroups: []string{group}}
	if internal {
		in.Scheme = elbtypes.LoadBalancerSchemeEnumInternal
	}
	for _, t := range tags {
		in.Tags = append(in.Tags, elbtypes.Tag{Key: new(t.Key), Value: new(t.Value)})
	}
	out, err := cloud.platform.elb.createLoadBalancer(cloud.onBehalf(k.scope(), elbName, "CreateLoadBalancer"), in)
	if err != nil {
		return nil, err
	}
	b := cloud.platform.elb.state.in(k.scope()).Balancers[*out.LoadBalancers[0].LoadBalancerArn]
	return b, e.listen(k, b, tags, svc.Ports)
}

// listen gives a load balancer a listener and a target group a port. The nodes are not registered: what runs in pods is not
// simulated, so that every health check would fail.
func (e *eksCloud) listen(k *EKSCluster, b *LoadBalancer, tags []Tag, ports []int) error {
	cloud := e.service.cloud
	balancers := cloud.platform.elb
	var marks []elbtypes.Tag
	for _, t := range tags {
		marks = append(marks, elbtypes.Tag{Key: new(t.Key), Value: new(t.Value)})
	}
	for _, port := range ports {
		nodePort := int32(30000 + cloud.World.Fraction("node port", b.ARN, fmt.Sprint(port))*2767) // the range of Services
		made, err := balancers.createTargetGroup(cloud.onBehalf(k.scope(), elbName, "CreateTargetGroup"), &elb.CreateTargetGroupInput{Name: new(targetName(b.Name, port)),
			Protocol: elbtypes.ProtocolEnumTcp, Port: new(nodePort), VpcId: new(k.VpcID), TargetType: elbtypes.TargetTypeEnumInstance, Tags: marks})
		if err != nil {
			return err
		}
		_, err = balancers.createListener(cloud.onBehalf(k.scope(), elbName, "CreateListener"), &elb.CreateListenerInput{LoadBalancerArn: new(b.ARN), Protocol: elbtypes.ProtocolEnumTcp,
			Port: new(int32(port)), Tags: marks, DefaultActions: []elbtypes.Action{{Type: elbtypes.ActionTypeEnumForward, TargetGroupArn: made.TargetGroups[0].TargetGroupArn}}})
		if err != nil {
			return err
		}
	}
	return nil
}

// targetName is what the target group of a port is called, up to 32 characters.
func targetName(balancer string, port int) string {
	return fmt.Sprintf("k8s-%.20s-%d", strings.TrimPrefix(balancer, "a"), port)
}

// dropTargets removes the target groups of a Service.
func (e *eksCloud) dropTargets(k *EKSCluster, svc sim.KubeService) {
	groups := e.service.cloud.platform.elb.state.in(k.scope()).Groups
	for ref, g := range groups {
		tags := tagMap(g.Tags)
		if tags["kubernetes.io/cluster/"+k.Name] == "owned" && tags[tagService] == svc.Namespace+"/"+svc.Name {
			delete(groups, ref)
		}
	}
}

// balancerSubnets are the subnets for a load balancer, one a zone: those of the VPC that are tagged for it, else the cluster's
// own that lead to the internet, or for an internal one do not ("Network load balancing", Amazon EKS user guide).
func (e *eksCloud) balancerSubnets(k *EKSCluster, internal bool) []string {
	sc := e.service.cloud.ec2.in(k.scope())
	role := rolePublic
	if internal {
		role = roleInternal
	}
	byZone := map[string]string{}
	add := func(s *Subnet) {
		if byZone[s.Zone] == "" {
			byZone[s.Zone] = s.SubnetID
		}
	}
	for _, s := range inOrder(sc.Subnets) {
		if v, ok := tagMap(s.Tags)[role]; s.VpcID == k.VpcID && ok && (v == "1" || v == "") {
			add(s)
		}
	}
	if len(byZone) == 0 {
		for _, id := range k.Subnets {
			s := sc.Subnets[id]
			if s == nil {
				continue
			}
			r := e.service.cloud.ec2.defaultRoute(sc, s)
			if public := r != nil && sc.Gateways[r.GatewayID] != nil; public != internal {
				add(s)
			}
		}
	}
	out := make([]string, 0, len(byZone))
	for _, id := range byZone {
		out = append(out, id)
	}
	sort.Strings(out)
	return out
}

// balancerGroup makes, or finds, the security group of a load balancer: the Service's ports from everywhere, and into the
// nodes.
func (e *eksCloud) balancerGroup(k *EKSCluster, name, description string, tags []Tag, ports []int) string {
	ec2 := e.service.cloud.ec2
	sc := ec2.in(k.scope())
	for _, g := range inOrder(sc.Groups) {
		if g.VpcID == k.VpcID && g.GroupName == name {
			return g.GroupID
		}
	}
	g := &SecurityGroup{GroupID: ec2.cloud.hex17("sg-"), GroupName: name, Description: description, VpcID: k.VpcID, OwnerID: k.Account, meta: ec2.fresh(tags)}
	sc.Groups[g.GroupID] = g
	rule := func(group string, r SecurityGroupRule) {
		r.RuleID, r.GroupID, r.GroupOwnerID, r.meta = ec2.cloud.hex17("sgr-"), group, k.Account, ec2.fresh(nil)
		sc.Rules[r.RuleID] = &r
	}
	rule(g.GroupID, SecurityGroupRule{IsEgress: true, Protocol: "-1", FromPort: -1, ToPort: -1, CidrIpv4: "0.0.0.0/0"})
	for _, port := range ports {
		rule(g.GroupID, SecurityGroupRule{Protocol: "tcp", FromPort: port, ToPort: port, CidrIpv4: "0.0.0.0/0"})
	}
	// The cluster's group lets the load balancer in, and so refers to its group until it is taken back.
	rule(k.ClusterGroup, SecurityGroupRule{Protocol: "-1", FromPort: -1, ToPort: -1, Referenced: &referencedGroup{GroupID: g.GroupID, UserID: k.Account, VpcID: k.VpcID},
		Description: "kubernetes.io/rule/nlb/" + name})
	return g.GroupID
}

// DeleteLoadBalancer implements sim.KubeCloud. The load balancer goes at once; its interfaces linger, and its security group
// can only go after them (https://github.com/kubernetes/cloud-provider-aws/issues/566).
func (e *eksCloud) DeleteLoadBalancer(_ context.Context, svc sim.KubeService) (done bool, err error) {
	err = e.locked(func(k *EKSCluster) error {
		cloud := e.service.cloud
		sc := cloud.ec2.in(k.scope())
		if !cloud.platform.iam.permits(k.Account, k.RoleARN, "elasticloadbalancing:DeleteLoadBalancer") {
			return fmt.Errorf("AccessDenied: the cluster role %s may not delete load balancers", k.RoleARN)
		}
		name := "k8s-elb-" + balancerName(svc.UID)
		if b := e.balancer(k, svc); b != nil {
			if b.Attributes["deletion_protection.enabled"] == "true" {
				return fmt.Errorf("OperationNotPermitted: load balancer '%s' cannot be deleted because deletion protection is enabled", b.ARN)
			}
			cloud.platform.elb.drop(k.scope(), cloud.platform.elb.state.in(k.scope()), b)
			name = "k8s-elb-" + b.Name
		}
		e.dropTargets(k, svc)
		done = true
		for _, g := range inOrder(sc.Groups) {
			if g.VpcID != k.VpcID || g.GroupName != name {
				continue
			}
			for id, r := range sc.Rules {
				if r.GroupID == k.ClusterGroup && r.Referenced != nil && r.Referenced.GroupID == g.GroupID {
					delete(sc.Rules, id)
				}
			}
			if done = !sc.groupInUse(g.GroupID); done {
				sc.dropGroup(g.GroupID)
			}
		}
		return nil
	})
	return done, err
}
