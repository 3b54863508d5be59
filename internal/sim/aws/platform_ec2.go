package aws

import (
	"net/netip"
	"slices"
	"strings"
	"time"
)

// This file is how the other services see EC2.

// machine is an EC2 instance as the other services see it.
type machine struct {
	ID, Name, Type, State, AZ, SubnetID, VpcID, PrivateIP, Hostname string
	Tags                                                            []Tag
	Launched                                                        time.Time
	// Agent is the ping status of the Systems Manager agent, empty until it has registered.
	Agent      string
	AgentSince time.Time
	ImageID    string
}

func (m machine) agentOnline() bool { return m.Agent == "Online" && m.State == "running" }

func (m machine) gone() bool { return m.State == "terminated" || m.State == "shutting-down" }

// targeted says whether a target expression of Systems Manager means the machine.
func (m machine) targeted(key string, values []string) bool {
	if strings.EqualFold(key, "InstanceIds") {
		return slices.Contains(values, m.ID)
	}
	for _, t := range m.Tags {
		if key == "tag-key" && slices.Contains(values, t.Key) || key == "tag:"+t.Key && slices.Contains(values, t.Value) {
			return true
		}
	}
	return false
}

// scriptRun is what a shell script did on a machine.
type scriptRun struct {
	stdout, stderr string
	exit           int
	took           time.Duration
}

func (c *Cloud) machineOf(sc *ec2Scope, i *Instance) machine {
	m := machine{ID: i.InstanceID, Name: i.tag("Name"), Type: i.InstanceType, State: i.Status.Name, AZ: i.Placement.Zone, SubnetID: i.SubnetID, VpcID: i.VpcID,
		PrivateIP: i.PrivateIP, Hostname: i.PrivateDNSName, Tags: i.Tags, Launched: i.LaunchTime, ImageID: i.ImageID}
	m.Agent, m.AgentSince = c.ec2.guestAgent(sc, i)
	return m
}

// system names what a machine runs, after its image.
func (c *Cloud) system(in scope, m machine) (name, version string) {
	img := c.ec2.publicImages(in.Region)[m.ImageID]
	switch {
	case img == nil:
		return "Linux", ""
	case img.Distro == "al2023":
		return "Amazon Linux", img.Release
	}
	return "Ubuntu", img.Release
}

// machine finds an instance.
func (c *Cloud) machine(in scope, id string) (machine, bool) {
	sc := c.ec2.in(in)
	i := sc.Instances[id]
	if i == nil {
		return machine{}, false
	}
	return c.machineOf(sc, i), true
}

// machines lists all instances, oldest first.
func (c *Cloud) machines(in scope) []machine {
	sc := c.ec2.in(in)
	var out []machine
	for _, i := range inOrder(sc.Instances) {
		out = append(out, c.machineOf(sc, i))
	}
	return out
}

// runScript runs a shell script on an instance.
func (c *Cloud) runScript(in scope, id, script string) scriptRun {
	sc := c.ec2.in(in)
	var out scriptRun
	if i := sc.Instances[id]; i != nil {
		out.stdout, out.stderr, out.exit, out.took = c.ec2.guestRun(sc, i, script)
	}
	return out
}

// booting says whether an instance's system is still starting up.
func (c *Cloud) booting(in scope, id string) bool {
	g := c.ec2.in(in).Guests[id]
	return g != nil && g.Next != nil
}

// rehearse runs a shell script on a copy of an instance, which shows how long it would take as things stand. A script that
// has waited for minutes on one machine waits as long on the next one of its image: that is remembered, since thousands
// of rounds of a loop take real time.
func (c *Cloud) rehearse(in scope, id, script string) time.Duration {
	sc := c.ec2.in(in)
	i, g := sc.Instances[id], sc.Guests[id]
	if i == nil || g == nil {
		return 0
	}
	key := i.ImageID + "\n" + script
	if took, ok := c.rehearsed[key]; ok {
		return took
	}
	took := g.Machine.Clone().Run(script, c.ec2.guestEnv(sc, i)).Took
	if took >= time.Minute {
		if c.rehearsed == nil {
			c.rehearsed = map[string]time.Duration{}
		}
		c.rehearsed[key] = took
	}
	return took
}

// probe sends a health check from a load balancer, with its security groups and addresses, to an instance.
func (c *Cloud) probe(in scope, groups, from []string, id string, port int, path string) probeAnswer {
	sc := c.ec2.in(in)
	i := sc.Instances[id]
	if i == nil || i.Status.Name != "running" {
		return probeAnswer{}
	}
	own := make([]string, 0, len(i.Groups))
	for _, g := range i.Groups {
		own = append(own, g.GroupID)
	}
	// A network load balancer without security groups lets everything out.
	if len(groups) > 0 && !sc.admits(groups, true, own, []string{i.PrivateIP}, port) {
		return probeAnswer{}
	}
	if !sc.admits(own, false, groups, from, port) {
		return probeAnswer{}
	}
	listening, status := c.ec2.guestAnswers(sc, i, port, path)
	return probeAnswer{reached: true, refused: !listening, status: status}
}

// admits says whether one of the security groups lets TCP through on a port: in from (or, with egress, out to) peers that
// have one of the peer groups or one of the addresses.
func (sc *ec2Scope) admits(groups []string, egress bool, peerGroups, addresses []string, port int) bool {
	for _, g := range groups {
		for _, r := range sc.rulesOf(g) {
			if r.IsEgress != egress || r.Protocol != "-1" && (r.Protocol != "tcp" || port < r.FromPort || port > r.ToPort) {
				continue
			}
			if r.Referenced != nil && slices.Contains(peerGroups, r.Referenced.GroupID) {
				return true
			}
			block, err := netip.ParsePrefix(r.CidrIpv4)
			if err != nil {
				continue
			}
			for _, a := range addresses {
				if ip, err := netip.ParseAddr(a); err == nil && block.Contains(ip) {
					return true
				}
			}
		}
	}
	return false
}

// zoneSubnet is a subnet as the other services see it.
type zoneSubnet struct {
	ID, AZ, VpcID string
	Free          int
}

func (c *Cloud) subnet(in scope, id string) (zoneSubnet, bool) {
	sc := c.ec2.in(in)
	s := sc.Subnets[id]
	if s == nil {
		return zoneSubnet{}, false
	}
	return zoneSubnet{s.SubnetID, s.Zone, s.VpcID, sc.freeAddresses(s)}, true
}

func (c *Cloud) vpcExists(in scope, id string) bool {
	_, known := regions[in.Region]
	return known && c.ec2.in(in).Vpcs[id] != nil
}

func (c *Cloud) vpcHasGateway(in scope, id string) bool { return c.ec2.in(in).gatewayOf(id) != nil }

// defaultGroup is the default security group of a VPC.
func (c *Cloud) defaultGroup(in scope, vpc string) string {
	for _, g := range c.ec2.in(in).Groups {
		if g.VpcID == vpc && g.GroupName == "default" {
			return g.GroupID
		}
	}
	return ""
}

// groupVPC is the VPC of a security group.
func (c *Cloud) groupVPC(in scope, id string) (string, bool) {
	g := c.ec2.in(in).Groups[id]
	if g == nil {
		return "", false
	}
	return g.VpcID, true
}

// serviceInterface puts a network interface of a load balancer into a subnet. It is requester-managed: the customer sees
// it and cannot delete it, and it is in the way of deleting the subnet and, with a public address, of detaching the
// internet gateway.
func (c *Cloud) serviceInterface(in scope, subnet string, b *LoadBalancer, allocation string) (id, ip string, err error) {
	sc := c.ec2.in(in)
	s := sc.Subnets[subnet]
	if s == nil {
		return "", "", noSubnet(subnet)
	}
	var refs []groupRef
	if len(b.Groups) > 0 {
		if refs, err = sc.groupRefs(s.VpcID, b.Groups); err != nil {
			return "", "", err
		}
	}
	shown := "interface"
	if b.Type == "network" {
		shown = "network_load_balancer"
	}
	// The description has the name by which people search for what blocks a subnet.
	n, err := c.ec2.newInterface(sc, s, refs, "ELB "+strings.SplitN(b.ARN, "loadbalancer/", 2)[1], shown)
	if err != nil {
		return "", "", err
	}
	n.Status, n.RequesterManaged, n.RequesterID, n.Holder, n.Default = "in-use", true, "amazon-elb", b.ARN, true
	n.Attachment = &attachment{ID: "ela-attach-" + c.World.Hex("", 17), InstanceOwnerID: "amazon-aws", DeviceIndex: 1, Status: "attached", AttachTime: c.World.Now(), DeleteOnTermination: false}
	switch a := sc.Addresses[allocation]; {
	case allocation != "" && a == nil:
		c.ec2.dropInterface(sc, n.InterfaceID)
		return "", "", refuse("AllocationIdNotFound", "The allocation IDs '%s' do not exist", allocation)
	case allocation != "":
		c.ec2.bind(a, n)
	case b.Scheme == "internet-facing":
		n.Association = &association{PublicIP: c.ec2.publicIP(), IPOwnerID: "amazon-elb"}
		n.Association.PublicDNSName = "ec2-" + strings.ReplaceAll(n.Association.PublicIP, ".", "-") + ".compute-1.amazonaws.com"
	}
	return n.InterfaceID, n.PrivateIP, nil
}

// dropServiceInterface removes the interface of a load balancer.
func (c *Cloud) dropServiceInterface(in scope, id string) {
	c.ec2.dropInterface(c.ec2.in(in), id)
}

// setInterfaceGroups changes the security groups of a load balancer's interface.
func (c *Cloud) setInterfaceGroups(in scope, id string, groups []string) {
	sc := c.ec2.in(in)
	n := sc.Interfaces[id]
	if n == nil {
		return
	}
	if refs, err := sc.groupRefs(n.VpcID, groups); err == nil {
		n.Groups = refs
	}
}

// newestImage is the newest public image of a distribution ("ubuntu", "al2023"), release and architecture ("amd64",
// "x86_64", "arm64").
func (c *Cloud) newestImage(in scope, distro, release, arch string) (image, bool) {
	if arch == "amd64" {
		arch = "x86_64"
	}
	id, ok := c.ec2.publicImage(in.Region, distro, release, arch)
	if !ok {
		return image{}, false
	}
	img := c.ec2.publicImages(in.Region)[id]
	return image{ID: id, Name: img.ImageName, Created: img.Created}, true
}
