package aws

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
	"github.com/zopday/provisioner/internal/sim/guest"
)

// guestState is what is known of the inside of an instance.
type guestState struct {
	Machine *guest.Machine
	// Next is the machine as it will be when the boot under way has ended.
	Next  *guest.Machine
	Boots int
	// Registered says that the Systems Manager agent has been online once.
	Registered bool
	// What faults of kind guest have done to it.
	Dead, NoAgent, NoHealth bool
	AgentLate               time.Duration
}

// How long the parts of a boot take, from the state running on.
const (
	initStart  = 10 * time.Second // until cloud-init has the user data
	agentStart = 20 * time.Second // until the Systems Manager agent has registered
	// A boot that goes wrong may hang in its downloads for long; nobody waits longer than this for it here.
	longestBoot = 20 * time.Minute
)

// agentPolicies are the managed policies that let the Systems Manager agent register.
var agentPolicies = []string{"AmazonSSMManagedInstanceCore", "AmazonSSMFullAccess", "AmazonEC2RoleforSSM"}

// bootCall is what faults of kind guest are matched with: the service ec2, the operation Boot, and the instance's ID,
// type, zone and tags.
func bootCall(sc *ec2Scope, i *Instance) *sim.Call {
	text := []string{i.InstanceID, i.InstanceType, i.Placement.Zone, i.SubnetID, i.ImageID}
	for _, t := range i.Tags {
		text = append(text, t.Value)
	}
	return &sim.Call{Cloud: "aws", Service: "ec2", Operation: "Boot", Account: sc.Account, Region: sc.Region, Params: strings.Join(text, " ")}
}

// boot starts an instance's system.
func (e *EC2) boot(sc *ec2Scope, i *Instance) {
	i.RunningSince = e.cloud.World.Now()
	g := sc.Guests[i.InstanceID]
	if g == nil {
		g = &guestState{}
		sc.Guests[i.InstanceID] = g
		distro, release := "ubuntu", "24.04"
		if img := e.publicImages(sc.Region)[i.ImageID]; img != nil {
			distro, release = img.Distro, img.Release
		}
		g.Machine = guest.New(distro, release, i.Architecture, strings.SplitN(i.PrivateDNSName, ".", 2)[0])
	}
	g.Boots++
	g.Next = nil
	e.after(sc, initStart, "guest", i.InstanceID+"|begin|"+strconv.Itoa(g.Boots))
}

func (e *EC2) guestEvent(sc *ec2Scope, key string) {
	id, rest, _ := strings.Cut(key, "|")
	what, boots, _ := strings.Cut(rest, "|")
	i, g := sc.Instances[id], sc.Guests[id]
	if i == nil || g == nil || strconv.Itoa(g.Boots) != boots || i.Status.Name != "running" {
		return
	}
	if what == "begin" {
		e.beginBoot(sc, i, g)
	} else if g.Next != nil {
		g.Machine, g.Next = g.Next, nil
	}
}

// beginBoot works out what this boot will do. The outcome is decided by what surrounds the instance now (a route that
// comes too late does not help), and shows when the boot has taken its time.
func (e *EC2) beginBoot(sc *ec2Scope, i *Instance, g *guestState) {
	env := e.guestEnv(sc, i)
	took := e.cloud.opt.BootTime - initStart
	f := e.cloud.World.Take(bootCall(sc, i), sim.FaultGuest, "")
	mode := ""
	if f != nil {
		mode = f.Mode
	}
	switch mode {
	case "boot":
		g.Dead = true
		return
	case "agent": // with seconds it registers that much later, without it never does
		g.NoAgent, g.AgentLate = f.Seconds == 0, f.Duration()
	case "no_egress":
		env.Egress = false
	case "apt_lock":
		g.Machine.LockedUntil = env.Now.Add(f.Duration())
	case "degraded":
		g.Machine.Degraded = true
	case "health":
		g.NoHealth = true
	}
	g.Machine.Begin(env)
	if mode == "sentinel" {
		return // cloud-init hangs for ever
	}
	next := g.Machine.Clone()
	if mode == "cloud_init" {
		message := f.Message
		if message == "" {
			message = "Failed to run runcmd [exit code " + strconv.Itoa(max(f.ExitCode, 1)) + "]"
		}
		next.Fail(message, f.Log)
	} else {
		raw, err := base64.StdEncoding.DecodeString(i.UserData)
		if err != nil {
			raw = nil
		}
		if spent := next.Boot(raw, env); next.CloudInit == "error" || spent > took {
			took = min(max(spent, 15*time.Second), longestBoot)
		}
	}
	if mode == "slow" {
		took += f.Duration()
	}
	g.Next = next
	e.after(sc, max(took, time.Second), "guest", i.InstanceID+"|done|"+strconv.Itoa(g.Boots))
}

func (e *EC2) guestEnv(sc *ec2Scope, i *Instance) guest.Env {
	return guest.Env{Now: e.cloud.World.Now(), Egress: e.egress(sc, i), InstanceID: i.InstanceID, Region: sc.Region}
}

// egress says whether packets from an instance find their way to the internet and back: its security groups let them out,
// and its subnet's default route leads to an internet gateway (with a public address) or to a NAT gateway that is up and
// itself has that way.
func (e *EC2) egress(sc *ec2Scope, i *Instance) bool {
	n := sc.primary(i)
	s := sc.Subnets[i.SubnetID]
	if n == nil || s == nil {
		return false
	}
	open := false
	for _, g := range n.Groups {
		for _, r := range sc.rulesOf(g.GroupID) {
			open = open || r.IsEgress && r.CidrIpv4 == "0.0.0.0/0" && (r.Protocol == "-1" || r.Protocol == "tcp" && r.FromPort <= 443 && r.ToPort >= 443)
		}
	}
	if !open {
		return false
	}
	r := e.defaultRoute(sc, s)
	if r == nil {
		return false
	}
	if nat := sc.Nats[r.NatGatewayID]; nat != nil {
		home := sc.Subnets[nat.SubnetID]
		if nat.Status != "available" || home == nil {
			return false
		}
		out := e.defaultRoute(sc, home)
		return out != nil && sc.Gateways[out.GatewayID] != nil
	}
	return sc.Gateways[r.GatewayID] != nil && n.Association != nil
}

// defaultRoute is the route to everywhere of a subnet, if its target is alive.
func (e *EC2) defaultRoute(sc *ec2Scope, s *Subnet) *Route {
	t := sc.tableOf(s)
	if t == nil {
		return nil
	}
	i := slices.IndexFunc(t.Routes, func(r Route) bool { return r.DestinationCidrBlock == "0.0.0.0/0" })
	if i < 0 || e.routeStatus(sc, t.Routes[i]) != "active" {
		return nil
	}
	return &t.Routes[i]
}

// guestAgent is the ping status of the Systems Manager agent ("Online", "ConnectionLost"), empty until it has registered,
// and since when. To register it must be installed, and have a way out and the permission of an instance profile.
func (e *EC2) guestAgent(sc *ec2Scope, i *Instance) (ping string, since time.Time) {
	g := sc.Guests[i.InstanceID]
	if g == nil {
		return "", time.Time{}
	}
	since = i.RunningSince.Add(agentStart + g.AgentLate)
	up := i.Status.Name == "running" && !g.Dead && !g.NoAgent && !e.cloud.World.Now().Before(since) &&
		g.Machine.SSMAgent() && e.agentAllowed(sc, i) && (e.egress(sc, i) || sc.reachesManager(i))
	switch {
	case up:
		g.Registered = true
		return "Online", since
	case g.Registered:
		return "ConnectionLost", since
	}
	return "", time.Time{}
}

// reachesManager says whether an instance reaches Systems Manager without the internet: by interface endpoints with private
// names, whose groups let it in ("Improve the security of EC2 instances by using VPC endpoints", Systems Manager user guide).
func (sc *ec2Scope) reachesManager(i *Instance) bool {
	return sc.reaches(i, "ssm", "ssmmessages", "ec2messages")
}

func (e *EC2) agentAllowed(sc *ec2Scope, i *Instance) bool {
	if i.Profile == nil || e.cloud.hooks.instanceProfile == nil {
		return false
	}
	p, ok := e.cloud.hooks.instanceProfile(sc.Account, i.Profile.Arn)
	return ok && slices.ContainsFunc(p.Policies, func(arn string) bool {
		return slices.Contains(agentPolicies, arn[strings.LastIndex(arn, "/")+1:])
	})
}

// guestAnswers says whether something listens on a port of an instance, and the status that it answers to an HTTP GET.
func (e *EC2) guestAnswers(sc *ec2Scope, i *Instance, port int, path string) (listening bool, status int) {
	g := sc.Guests[i.InstanceID]
	if g == nil || g.Dead || g.NoHealth || i.Status.Name != "running" {
		return false, 0
	}
	status, listening = g.Machine.Get(port, path)
	return listening, status
}

// guestRun runs a shell script in an instance, as the Systems Manager agent would.
func (e *EC2) guestRun(sc *ec2Scope, i *Instance, script string) (stdout, stderr string, exit int, took time.Duration) {
	g := sc.Guests[i.InstanceID]
	if g == nil || g.Dead || i.Status.Name != "running" {
		return "", "", 255, 0
	}
	r := g.Machine.Run(script, e.guestEnv(sc, i))
	return r.Stdout, r.Stderr, r.Exit, r.Took
}

// stopGuest switches an instance's system off: containers stop, and a boot under way is lost.
func (sc *ec2Scope) stopGuest(i *Instance) {
	if g := sc.Guests[i.InstanceID]; g != nil {
		g.Next = nil
		g.Boots++ // events of the old boot no longer count
	}
}
