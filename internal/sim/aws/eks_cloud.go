package aws

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"

	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/zopday/provisioner/internal/sim"
)

// eksCloud is the cloud controllers of a cluster: what they make in the account stays there when the cluster is deleted.
type eksCloud struct {
	service *eksService
	arn, id string
}

var _ sim.KubeCloud = (*eksCloud)(nil)

// The tags by which the controllers know their own, and people what a cluster has left behind.
const (
	tagService   = "kubernetes.io/service-name"
	tagClaim     = "kubernetes.io/created-for/pvc/name"
	tagClaimSpc  = "kubernetes.io/created-for/pvc/namespace"
	annInternal  = "service.beta.kubernetes.io/aws-load-balancer-internal"
	annScheme    = "service.beta.kubernetes.io/aws-load-balancer-scheme"
	annLoadTags  = "service.beta.kubernetes.io/aws-load-balancer-additional-resource-tags"
	roleInternal = "kubernetes.io/role/internal-elb"
	rolePublic   = "kubernetes.io/role/elb"
)

// locked runs f with the world locked and the cluster found.
func (e *eksCloud) locked(f func(k *EKSCluster) error) error {
	w := e.service.cloud.World
	w.Lock()
	defer w.Unlock()
	k := e.service.byID(e.arn, e.id)
	if k == nil || k.Status == "DELETING" {
		return fmt.Errorf("the cluster %s is gone", e.arn)
	}
	return f(k)
}

// name is what the load balancer of a Service is called: "a" and its UID, up to 32 characters.
func balancerName(uid string) string {
	name := "a" + strings.ReplaceAll(uid, "-", "")
	return name[:min(len(name), 32)]
}

func (k *EKSCluster) ownerTag() Tag { return Tag{"kubernetes.io/cluster/" + k.Name, "owned"} }

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
	return cloud.platform.elb.state.in(k.scope()).Balancers[*out.LoadBalancers[0].LoadBalancerArn], nil
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
			name = orText("k8s-elb-"+b.Name, name)
		}
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

// EnsureDisk implements sim.KubeCloud: a volume of EBS, by the add-on's driver, which must be there and be permitted to.
func (e *eksCloud) EnsureDisk(_ context.Context, v sim.KubeVolume) (handle string, err error) {
	err = e.locked(func(k *EKSCluster) error {
		if err := e.driver(k, "ec2:CreateVolume"); err != nil {
			return err
		}
		if old := e.disk(k, v); old != nil {
			handle = old.VolumeID
			return nil
		}
		ec2 := e.service.cloud.ec2
		sc := ec2.in(k.scope())
		name := v.Zone
		if name == "" {
			name = e.someZone(k)
		}
		z, err := ec2.zoneFor(k.Region, name, "", k.ARN+v.UID)
		if err != nil {
			return err
		}
		size, encrypted := max(v.GiB, 1), v.StorageClass["encrypted"] == "true"
		made := ec2.newVolume(sc, &launchEbs{Size: &size, Type: orText(v.StorageClass["type"], "gp3"), Encrypted: &encrypted, KmsKeyID: v.StorageClass["kmsKeyId"]},
			&Subnet{Zone: z.Name, ZoneID: z.ID}, []Tag{k.ownerTag(), {tagClaim, v.Name}, {tagClaimSpc, v.Namespace}, {"kubernetes.io/created-for/pv/name", "pvc-" + v.UID},
				{"CSIVolumeName", "pvc-" + v.UID}, {"ebs.csi.aws.com/cluster", "true"}, {"KubernetesCluster", k.Name}, {"Name", k.Name + "-dynamic-pvc-" + v.UID}})
		made.Status = "available"
		handle = made.VolumeID
		return nil
	})
	return handle, err
}

// driver refuses work for which the storage driver or its permission is missing.
func (e *eksCloud) driver(k *EKSCluster, action string) error {
	a := k.Addons["aws-ebs-csi-driver"]
	switch {
	case a == nil || a.Status == "DELETING" || a.Status == "CREATE_FAILED":
		return fmt.Errorf("waiting for a volume to be created either by the external provisioner 'ebs.csi.aws.com' or manually by the system administrator")
	case !e.service.addonPermits(k, a, action) && !e.service.nodesPermit(k, action):
		return fmt.Errorf("UnauthorizedOperation: the role of ebs-csi-controller-sa may not perform %s", action)
	}
	return nil
}

// disk finds the volume of a claim.
func (e *eksCloud) disk(k *EKSCluster, v sim.KubeVolume) *Volume {
	for _, d := range inOrder(e.service.cloud.ec2.in(k.scope()).Volumes) {
		if tags := tagMap(d.Tags); d.VolumeID == v.Handle || v.Handle == "" && tags["CSIVolumeName"] == "pvc-"+v.UID {
			return d
		}
	}
	return nil
}

// someZone is the zone of the first node, else that of the first subnet.
func (e *eksCloud) someZone(k *EKSCluster) string {
	if nodes := e.service.kubeNodes(k); len(nodes) > 0 {
		return nodes[0].Zone
	}
	i := slices.IndexFunc(k.Subnets, func(id string) bool { return e.service.cloud.ec2.in(k.scope()).Subnets[id] != nil })
	if i < 0 {
		return ""
	}
	return e.service.cloud.ec2.in(k.scope()).Subnets[k.Subnets[i]].Zone
}

// DeleteDisk implements sim.KubeCloud.
func (e *eksCloud) DeleteDisk(_ context.Context, v sim.KubeVolume) (done bool, err error) {
	err = e.locked(func(k *EKSCluster) error {
		d := e.disk(k, v)
		if d == nil {
			done = true
			return nil
		}
		if err := e.driver(k, "ec2:DeleteVolume"); err != nil {
			return err
		}
		delete(e.service.cloud.ec2.in(k.scope()).Volumes, d.VolumeID)
		done = true
		return nil
	})
	return done, err
}
