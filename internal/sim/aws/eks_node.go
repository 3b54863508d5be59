package aws

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// joinTime is how long an instance takes from running to being a node.
const joinTime = 45 * time.Second

// joinPatience is how long the first boot of a node goes on trying to reach what it needs; one that has given up stays
// outside, whatever is put right later.
const joinPatience = 5 * time.Minute

func (n *EKSNodegroup) ready() (count int) {
	for _, node := range n.Nodes {
		if node.Ready {
			count++
		}
	}
	return count
}

// meetNodes looks at the instances of a node group: which have joined, and which are ready.
func (s *eksService) meetNodes(k *EKSCluster, n *EKSNodegroup) {
	before := asText(n.Nodes)
	defer func() {
		if asText(n.Nodes) != before {
			s.kube.kick()
		}
	}()
	g := s.cloud.platform.asg.state.in(k.scope()).Groups[n.Group]
	sc, now := s.cloud.ec2.in(k.scope()), s.cloud.World.Now()
	seen := map[string]bool{}
	if g != nil {
		for _, i := range g.Instances {
			inst := sc.Instances[i.ID]
			if inst == nil || inst.Status.Name != "running" || i.State == "Terminating" {
				continue
			}
			seen[i.ID] = true
			node := n.Nodes[i.ID]
			if node == nil {
				node = &EKSNode{}
				n.Nodes[i.ID] = node
			}
			up := now.Sub(inst.RunningSince)
			if node.Registered.IsZero() && !node.Missed && up >= joinTime {
				if s.joins(sc, k, n, inst) {
					node.Registered = now
				} else {
					node.Missed = up > joinPatience
				}
			}
			node.Ready = !node.Registered.IsZero() && s.networked(k, n)
		}
	}
	for id := range n.Nodes {
		if !seen[id] {
			delete(n.Nodes, id)
		}
	}
}

// joins says whether an instance can register with its cluster: its system is up, its role lets it describe itself and pull
// images, and it reaches the API server and the registries ("Troubleshoot problems with Amazon EKS clusters and nodes:
// nodes fail to join cluster").
func (s *eksService) joins(sc *ec2Scope, k *EKSCluster, n *EKSNodegroup, i *Instance) bool {
	if g := sc.Guests[i.InstanceID]; g != nil && g.Dead {
		return false
	}
	iam := s.cloud.platform.iam
	if !iam.permits(k.Account, n.RoleARN, "ec2:DescribeInstances") || !iam.permits(k.Account, n.RoleARN, "ecr:GetAuthorizationToken") {
		return false
	}
	if k.AuthMode == "API" && k.Entries[n.RoleARN] == nil {
		return false
	}
	var own []string
	for _, g := range i.Groups {
		own = append(own, g.GroupID)
	}
	out := s.cloud.ec2.egress(sc, i)
	if !out && !sc.reaches(i, "ec2", "ecr.api", "ecr.dkr", "sts") {
		return false
	}
	if k.Private {
		return k.admits(sc, own, []string{i.PrivateIP})
	}
	from, ok := s.publicAddress(sc, i)
	return out && ok && k.publicAdmits(from)
}

// instanceGone: a node goes with its instance.
func (s *eksService) instanceGone(in scope, id string) {
	for _, k := range s.in(in).Clusters {
		for _, n := range k.Nodegroups {
			if n.Nodes[id] != nil {
				delete(n.Nodes, id)
				s.kube.kick()
			}
		}
	}
}

// publicAddress is the address under which the internet sees an instance: its own, or that of its NAT gateway.
func (s *eksService) publicAddress(sc *ec2Scope, i *Instance) (netip.Addr, bool) {
	text := ""
	if sub := sc.Subnets[i.SubnetID]; sub != nil {
		if r := s.cloud.ec2.defaultRoute(sc, sub); r != nil && sc.Nats[r.NatGatewayID] != nil {
			for _, a := range sc.Nats[r.NatGatewayID].Addresses {
				text = orText(text, a.PublicIP)
			}
		}
	}
	if n := sc.primary(i); text == "" && n != nil && n.Association != nil {
		text = n.Association.PublicIP
	}
	ip, err := netip.ParseAddr(text)
	return ip, err == nil
}

// publicAdmits says whether the public endpoint lets an address in.
func (k *EKSCluster) publicAdmits(ip netip.Addr) bool {
	return k.Public && slices.ContainsFunc(k.PublicCIDRs, func(text string) bool {
		p, err := netip.ParsePrefix(text)
		return err == nil && p.Contains(ip.Unmap())
	})
}

// reaches says whether an instance reaches services of AWS by interface endpoints with private names in its VPC, whose
// groups let it in.
func (sc *ec2Scope) reaches(i *Instance, services ...string) bool {
	var own []string
	for _, g := range i.Groups {
		own = append(own, g.GroupID)
	}
	for _, short := range services {
		found := false
		for _, ep := range sc.Endpoints {
			var groups []string
			for _, g := range ep.Groups {
				groups = append(groups, g.GroupID)
			}
			found = found || ep.VpcID == i.VpcID && ep.Status == "available" && ep.PrivateDNS && strings.HasSuffix(ep.ServiceName, "."+short) &&
				sc.admits(groups, false, own, []string{i.PrivateIP}, 443)
		}
		if !found {
			return false
		}
	}
	return true
}

// networked says whether pods get addresses on the nodes of a group: there is a CNI plugin, the default one unmanaged or the
// add-on, and it has its permissions, from the node or of its own.
func (s *eksService) networked(k *EKSCluster, n *EKSNodegroup) bool {
	const action = "ec2:AssignPrivateIpAddresses"
	a := k.Addons["vpc-cni"]
	if a == nil {
		return k.SelfManaged && s.cloud.platform.iam.permits(k.Account, n.RoleARN, action)
	}
	return a.Status != "CREATE_FAILED" && (s.cloud.platform.iam.permits(k.Account, n.RoleARN, action) || s.addonPermits(k, a, action))
}
