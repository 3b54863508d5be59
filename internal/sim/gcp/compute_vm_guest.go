package gcp

import (
	"fmt"
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
	// Since is when the system began to start, Ended when its boot was over.
	Since, Ended time.Time
	// What faults of kind guest have done to it.
	Dead, NoAgent, NoHealth bool
	AgentLate               time.Duration
	Image                   systemImage
}

// How long the parts of a boot take, from the state RUNNING on.
const (
	initStart  = 10 * time.Second // until cloud-init has the user data
	agentStart = 30 * time.Second // until the OS Config agent has reported
	bootTime   = 40 * time.Second // until cloud-init has ended, as a rule
	// A boot that goes wrong may hang in its downloads for long; nobody waits longer than this for it here.
	longestBoot = 20 * time.Minute
)

// bootCall is what faults of kind guest are matched with: the service compute, the operation Boot, and the instance's path, machine
// type, subnetwork, labels and tags.
func bootCall(res *Resource) *sim.Call {
	text := []string{res.Path, str(res.Doc, "machineType"), str(res.Doc, "description")}
	for _, n := range docs(res.Doc, "networkInterfaces") {
		text = append(text, str(n, "subnetwork"))
	}
	for _, v := range labelsOf(res.Doc) {
		text = append(text, v)
	}
	text = append(text, texts(sub(res.Doc, "tags"), "items")...)
	slices.Sort(text)
	return &sim.Call{Cloud: cloudName, Service: "compute", Operation: "Boot", Account: res.project(), Region: res.region(), Params: strings.Join(text, " ")}
}

// boot starts an instance's system.
func (e *Compute) boot(res *Resource) {
	g := e.st.VM.Guests[res.Path]
	if g == nil {
		g = &guestState{Image: e.systemOf(res)}
		g.Machine = newMachine(g.Image, res.name())
		e.st.VM.Guests[res.Path] = g
	}
	g.Boots++
	g.Next, g.Since = nil, e.cloud.World.Now()
	g.Dead, g.NoAgent, g.NoHealth, g.AgentLate = false, false, false, 0
	e.later(initStart, "vm-guest", res.Path+"|begin|"+strconv.Itoa(g.Boots))
}

// newMachine makes the inside of an instance: the image's system with the guest environment of Compute Engine in place of
// what other clouds put into their images.
func newMachine(image systemImage, name string) *guest.Machine {
	arch := "x86_64"
	if image.Arm {
		arch = "aarch64"
	}
	m := guest.New(image.Distro, image.Release, arch, name)
	delete(m.Snaps, "amazon-ssm-agent")
	delete(m.Units, "snap.amazon-ssm-agent.amazon-ssm-agent")
	for _, p := range []string{"curl", "google-guest-agent", "google-osconfig-agent"} {
		m.Packages[p] = true
	}
	for _, u := range []string{"google-guest-agent", "google-osconfig-agent"} {
		m.Units[u] = &guest.Unit{Active: true, Enabled: true}
	}
	return m
}

// guestEvent carries on with a boot: its start, its end.
func (e *Compute) guestEvent(key string) {
	path, rest, _ := strings.Cut(key, "|")
	what, boots, _ := strings.Cut(rest, "|")
	res, g := e.st.Resources[path], e.st.VM.Guests[path]
	if res == nil || g == nil || strconv.Itoa(g.Boots) != boots || str(res.Doc, "status") != "RUNNING" {
		return
	}
	switch {
	case what == "begin":
		e.beginBoot(res, g)
	case g.Next != nil:
		g.Machine, g.Next, g.Ended = g.Next, nil, e.cloud.World.Now()
	}
}

// beginBoot works out what this boot will do. The outcome is decided by what surrounds the instance now (a NAT that comes too
// late does not help), and shows when the boot has taken its time.
func (e *Compute) beginBoot(res *Resource, g *guestState) {
	env := e.guestEnv(res)
	took := bootTime - initStart
	f := e.cloud.World.Take(bootCall(res), sim.FaultGuest, "")
	mode := ""
	if f != nil {
		mode = f.Mode
	}
	switch mode {
	case "boot":
		g.Dead = true
		return
	case "agent": // with seconds it reports that much later, without it never does
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
	spent := time.Duration(0)
	if mode == "cloud_init" {
		message := f.Message
		if message == "" {
			message = "Failed to run runcmd [exit code " + strconv.Itoa(max(f.ExitCode, 1)) + "]"
		}
		next.Fail(message, f.Log)
	} else {
		spent = runBoot(next, g.Image, env)
	}
	if next.CloudInit == "error" || spent > took {
		took = min(max(spent, 15*time.Second), longestBoot)
	}
	if mode == "slow" {
		took += f.Duration()
	}
	g.Next = next
	e.later(max(took, time.Second), "vm-guest", res.Path+"|done|"+strconv.Itoa(g.Boots))
}

// runBoot does what the images do with metadata: Ubuntu's cloud-init reads user-data, Debian's images come without cloud-init
// ("Google-provided operating system details"); both run startup-script.
func runBoot(m *guest.Machine, image systemImage, env guest.Env) time.Duration {
	var data []byte
	if image.Distro == "ubuntu" {
		data = []byte(env.Google.Attributes["user-data"])
	}
	spent := m.Boot(data, env)
	if script := env.Google.Attributes["startup-script"]; script != "" {
		env.Now = env.Now.Add(spent)
		spent += m.RunStartup(script, env).Took
	}
	return spent
}

// attributes are the custom metadata of an instance. Projects have none here.
func attributes(res *Resource) map[string]string {
	out := map[string]string{}
	for _, item := range docs(sub(res.Doc, "metadata"), "items") {
		out[str(item, "key")] = str(item, "value")
	}
	return out
}

// enabledBy says whether a metadata key is set to true: TRUE, true, 1, y ("Set and remove custom metadata", boolean values).
func enabledBy(attributes map[string]string, key string) bool {
	return slices.Contains([]string{"true", "1", "y", "yes"}, strings.ToLower(attributes[key]))
}

func (e *Compute) guestEnv(res *Resource) guest.Env {
	i, project := res.Doc, res.project()
	g := &guest.Google{Project: project, ProjectNumber: e.cloud.number(project), Zone: segmentAfter(res.Path, "zones"), Name: res.name(), ID: res.ID,
		Type: lastPart(str(i, "machineType")), Attributes: attributes(res)}
	g.GuestAttributes = enabledBy(g.Attributes, "enable-guest-attributes")
	for _, sa := range docs(i, "serviceAccounts") {
		g.ServiceAccount, g.Scopes = str(sa, "email"), texts(sa, "scopes")
	}
	for _, n := range docs(i, "networkInterfaces") {
		if g.InternalIP == "" {
			g.InternalIP = str(n, "networkIP")
		}
	}
	return guest.Env{Now: e.cloud.World.Now(), Egress: e.hasEgress(res), InstanceID: res.ID, Region: res.region(), Google: g}
}

// agentUp says whether the OS Config agent has reported, and since when. It must be installed and running, enabled by metadata,
// and have a service account and a way to Google's APIs ("Set up VM Manager").
func (e *Compute) agentUp(res *Resource) (since time.Time, up bool) {
	g := e.st.VM.Guests[res.Path]
	if g == nil || g.Dead || g.NoAgent || str(res.Doc, "status") != "RUNNING" {
		return time.Time{}, false
	}
	u := g.Machine.Units["google-osconfig-agent"]
	since = g.Since.Add(agentStart + g.AgentLate)
	return since, u != nil && u.Active && !e.cloud.World.Now().Before(since) && len(docs(res.Doc, "serviceAccounts")) > 0 &&
		enabledBy(attributes(res), "enable-osconfig") && e.reachesGoogle(res)
}

// listens says whether something listens on a port of an instance, and the status that it answers to an HTTP GET.
func (e *Compute) listens(res *Resource, port int, url string) (status int, listening bool) {
	g := e.st.VM.Guests[res.Path]
	if g == nil || g.Dead || g.NoHealth || str(res.Doc, "status") != "RUNNING" {
		return 0, false
	}
	return g.Machine.Get(port, url)
}

// halt switches an instance's system off: a boot under way is lost.
func (e *Compute) halt(path string) {
	if g := e.st.VM.Guests[path]; g != nil {
		g.Next = nil
		g.Boots++ // events of the old boot no longer count
	}
}

// console is what the serial port has shown: the system's start, cloud-init's log and that of the start-up script.
func (e *Compute) console(res *Resource) string {
	g := e.st.VM.Guests[res.Path]
	if g == nil {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "SeaBIOS (version 1.8.2-google)\nBooting from Hard Disk 0...\n[    0.000000] Linux version %s\n", g.Image.Kernel)
	if g.Dead {
		b.WriteString("[    2.113804] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)\n")
		return b.String()
	}
	if e.cloud.World.Now().Before(g.Since.Add(initStart)) {
		return b.String()
	}
	output := g.Machine.Tail("/var/log/cloud-init-output.log", 4000)
	b.WriteString(output)
	if g.Machine.CloudInit == "error" {
		if strings.LastIndex(output, " finished at ") < strings.LastIndex(output, " running '") { // a fault has cut the log short
			env := e.guestEnv(res)
			env.Now = g.Since
			b.WriteString(guest.FinalMessage(env, g.Ended.Sub(g.Since)))
		}
		b.WriteString("[FAILED] Failed to start cloud-final.service - Cloud-init: Final Stage.\n")
	}
	b.WriteString(g.Machine.Tail(guest.StartupLog, 4000))
	fmt.Fprintf(&b, "\n%s %s ttyS0\n\n%s login: ", g.Image.system(), res.name(), res.name())
	return b.String()
}
