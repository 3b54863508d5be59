package azure

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
	"github.com/zopday/provisioner/internal/sim/guest"
)

// guestsName is the service that keeps what is inside virtual machines: no API, no objects of its own, but state and events.
const guestsName = "guests"

// A Guest is the running side of a virtual machine or of an instance of a scale set.
type Guest struct {
	// Power is empty until the machine has a host, then starting, running, stopping, stopped, deallocating or deallocated.
	Power string
	// Since is when it has come to run.
	Since time.Time
	Boots int
	// Machine is its inside, nil before the first boot; Next is the inside as it will be when the boot under way has ended.
	Machine, Next *guest.Machine `json:",omitempty"`
	Host          string
	CustomData    string
	// Admin is the administrator, Keys are those who may log in as such.
	Admin string
	Keys  []string
	Image string // publisher:offer:sku of the catalogue
	// Registered says that the agent has reported once.
	Registered bool
	// What faults of kind guest have done to it.
	Dead, NoAgent, NoHealth bool
	AgentLate               time.Duration
	// Busy is the run command that the agent is at work on.
	Busy string `json:",omitempty"`
	// Doom is how the allocation or the start ends, if it fails; Launch counts the allocations.
	Doom   *Error `json:",omitempty"`
	Launch int
}

// A Reservation keeps an interface for a machine for a while.
type Reservation struct {
	Machine string
	Until   time.Time
}

// How long the parts of a boot take, from the state running on.
const (
	initStart  = 10 * time.Second // until cloud-init has the custom data
	readyAfter = 30 * time.Second // until the machine has reported to the platform that it is provisioned
	agentStart = 45 * time.Second // until the agent has sent its first status
	// A boot that goes wrong may hang in its downloads for long; nobody waits longer than this for it here.
	longestBoot = 20 * time.Minute
)

// guests is the service of that name.
type guests struct {
	cloud *Cloud
	state guestsState
}

type guestsState struct {
	Guests map[string]*Guest // by key of the machine's ID
	Runs   map[string]*Run
	Sets   map[string]*ScaleSet // by key of the set's ID
	// Ends says how the scripts that are running will end.
	Ends map[string]string
	// Reserved are interfaces of machines that got no host, by key of their ID.
	Reserved map[string]Reservation
	// Features are the states of preview features that somebody has registered, by subscription and name.
	Features map[string]string
}

func newGuests(c *Cloud) *guests {
	g := &guests{cloud: c}
	c.World.Register(g)
	return g
}

// Cloud implements sim.Service.
func (g *guests) Cloud() string { return "azure" }

// Name implements sim.Service.
func (g *guests) Name() string { return guestsName }

// State implements sim.Service.
func (g *guests) State() any { return &g.state }

// Reset implements sim.Service.
func (g *guests) Reset() {
	g.state = guestsState{Guests: map[string]*Guest{}, Runs: map[string]*Run{}, Sets: map[string]*ScaleSet{}, Ends: map[string]string{}, Reserved: map[string]Reservation{}, Features: map[string]string{}}
}

// Objects implements sim.Service: the machines themselves are objects of Compute.
func (g *guests) Objects() []sim.Object { return nil }

// SetState implements sim.Service.
func (g *guests) SetState(id, _, _, _ string) error { return fmt.Errorf("no object %s", id) }

// Remove implements sim.Service.
func (g *guests) Remove(id string) error { return fmt.Errorf("no object %s", id) }

// of is the guest of a machine, or nil.
func (g *guests) of(id string) *Guest { return g.state.Guests[key(id)] }

// Event implements sim.Service. Keys are the machine's ID, what is due, and the number of the boot.
func (g *guests) Event(_, key string) {
	parts := strings.Split(key, "|")
	if len(parts) != 3 {
		return
	}
	m, vm := g.of(parts[0]), g.cloud.find(parts[0])
	if m == nil || vm == nil || strconv.Itoa(m.Boots) != parts[2] || m.Power != "running" {
		return
	}
	if parts[1] == "begin" {
		g.begin(vm, m)
	} else if m.Next != nil {
		m.Machine, m.Next = m.Next, nil
	}
}

// boot lets a machine run from now on.
func (g *guests) boot(vm *Resource, m *Guest) {
	m.Power, m.Since = "running", g.cloud.World.Now()
	m.Boots++
	m.Next, m.Busy = nil, ""
	if m.Machine == nil {
		m.Machine = g.install(m)
	}
	g.cloud.World.After(initStart, "azure", guestsName, "boot", vm.ID+"|begin|"+strconv.Itoa(m.Boots))
}

// install makes the inside of a machine from its image. Images of the marketplace come with the Linux agent of Azure, not
// with the agents of other clouds.
func (g *guests) install(m *Guest) *guest.Machine {
	distro, release, arch := "ubuntu", "24.04", "x86_64"
	for _, i := range imageSKUs {
		if i.Publisher+":"+i.Offer+":"+i.SKU == m.Image {
			distro, release = i.Distro, i.Release
			if i.Arch == "Arm64" {
				arch = "arm64"
			}
		}
	}
	in := guest.New(distro, release, arch, m.Host)
	clear(in.Snaps)
	for name := range in.Units {
		if strings.Contains(name, "amazon-ssm-agent") {
			delete(in.Units, name)
		}
	}
	admit(in, m)
	in.Packages["walinuxagent"] = true
	in.Units["walinuxagent"] = &guest.Unit{Active: true, Enabled: true}
	return in
}

// admit makes the administrator of a machine and lets the keys in, as cloud-init does before it runs anything of the custom
// data. In root's file the keys are there too, but open nothing (disable_root of cloud-init).
func admit(in *guest.Machine, m *Guest) {
	if m.Admin == "" {
		return
	}
	home := "/home/" + m.Admin
	for _, dir := range []string{home, home + "/.ssh", "/root/.ssh"} {
		in.Files[dir] = &guest.File{Dir: true, Mode: 0o700}
	}
	keys := strings.Join(m.Keys, "\n")
	if keys == "" {
		return
	}
	in.Files[home+"/.ssh/authorized_keys"] = &guest.File{Content: keys + "\n", Mode: 0o600}
	in.Files["/root/.ssh/authorized_keys"] = &guest.File{Mode: 0o600, Content: "no-port-forwarding,no-agent-forwarding,no-X11-forwarding,command=\"echo 'Please login as the user \\\"" + m.Admin +
		"\\\" rather than the user \\\"root\\\".';echo;sleep 10;exit 142\" " + keys + "\n"}
}

// newGuest is the guest of a machine with an osProfile.
func newGuest(os doc, host, customData string, image *imageSKU, doom *Error) *Guest {
	m := &Guest{Host: host, CustomData: customData, Image: image.Publisher + ":" + image.Offer + ":" + image.SKU, Doom: doom, Admin: os.str("adminUsername")}
	for _, k := range os.docs("linuxConfiguration.ssh.publicKeys") {
		m.Keys = append(m.Keys, strings.TrimSpace(k.str("keyData")))
	}
	return m
}

// stop switches a machine off; events of the boot under way no longer count.
func (g *guests) stop(m *Guest, power string) {
	m.Power, m.Next, m.Busy = power, nil, ""
	m.Boots++
}

// bootCall is what faults of kind guest are matched with: the service compute, the operation Boot, and the machine's ID,
// size, zone, subnet and tags.
func (g *guests) bootCall(vm *Resource) *sim.Call {
	text := []string{vm.ID, vm.Name, sizeOf(vm), vm.Location}
	for _, z := range vm.Top.strs("zones") {
		text = append(text, vm.Location+"-"+z)
	}
	for _, n := range g.cloud.nicsOf(vm) {
		for _, cfg := range n.Properties.docs("ipConfigurations") {
			text = append(text, cfg.ref("properties.subnet"))
		}
	}
	for _, k := range sortedKeys(vm.Tags) {
		text = append(text, vm.Tags[k])
	}
	return &sim.Call{Cloud: "azure", Service: computeService, Operation: "Boot", Account: subscriptionOf(vm.ID), Region: vm.Location, Params: strings.Join(text, " ")}
}

// begin works out what this boot will do. The outcome is decided by what surrounds the machine now (a NAT gateway that
// comes too late does not help), and shows when the boot has taken its time.
func (g *guests) begin(vm *Resource, m *Guest) {
	env := g.env(vm)
	took := g.cloud.opt.BootTime - initStart
	f := g.cloud.World.Take(g.bootCall(vm), sim.FaultGuest, "")
	mode := ""
	if f != nil {
		mode = f.Mode
	}
	switch mode {
	case "boot":
		m.Dead = true
		return
	case "agent": // with seconds it reports that much later, without it never does
		m.NoAgent, m.AgentLate = f.Seconds == 0, f.Duration()
	case "no_egress":
		env.Egress = false
	case "apt_lock":
		m.Machine.LockedUntil = env.Now.Add(f.Duration())
	case "degraded":
		m.Machine.Degraded = true
	case "health":
		m.NoHealth = true
	}
	m.Machine.Begin(env)
	if mode == "sentinel" {
		return // cloud-init hangs for ever
	}
	next := m.Machine.Clone()
	if mode == "cloud_init" {
		message := f.Message
		if message == "" {
			message = "Failed to run runcmd [exit code " + strconv.Itoa(max(f.ExitCode, 1)) + "]"
		}
		next.Fail(message, f.Log)
	} else {
		raw, err := base64.StdEncoding.DecodeString(m.CustomData)
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
	m.Next = next
	g.cloud.World.After(max(took, time.Second), "azure", guestsName, "boot", vm.ID+"|done|"+strconv.Itoa(m.Boots))
}

func (g *guests) env(vm *Resource) guest.Env {
	return guest.Env{Now: g.cloud.World.Now(), Egress: g.cloud.machineEgress(vm), InstanceID: vm.Properties.str("vmId"), Region: vm.Location}
}

// agentReady says whether the Linux agent has reported to the platform and still does. It needs no way to the internet, only
// the platform's own address.
func (g *guests) agentReady(m *Guest) bool {
	up := m.Power == "running" && !m.Dead && !m.NoAgent && m.Machine != nil && !g.cloud.World.Now().Before(m.Since.Add(agentStart+m.AgentLate))
	if up && m.Machine.Units["walinuxagent"] != nil && m.Machine.Units["walinuxagent"].Active {
		m.Registered = true
		return true
	}
	return false
}

// answers says whether something listens on a port of a machine, and the status that it answers to an HTTP GET.
func (g *guests) answers(m *Guest, port int, path string) (listening bool, status int) {
	if m == nil || m.Dead || m.NoHealth || m.Power != "running" || m.Machine == nil {
		return false, 0
	}
	status, listening = m.Machine.Get(port, path)
	return listening, status
}

// run runs a shell script in a machine, as the run command extension does.
func (g *guests) run(vm *Resource, m *Guest, script string) guest.Result {
	if m.Machine == nil {
		return guest.Result{Exit: 255}
	}
	return m.Machine.Run(script, g.env(vm))
}
