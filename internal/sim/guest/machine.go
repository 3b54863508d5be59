package guest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A File is an entry of the machine's file system.
type File struct {
	Content string `json:",omitempty"`
	Mode    uint32
	Dir     bool   `json:",omitempty"`
	Link    string `json:",omitempty"` // target of a symbolic link
}

// A Container is a Docker container.
type Container struct {
	Name, Image, Network string
	Running              bool
	Ports                map[int]int       // host port to container port
	Mounts               map[string]string // container path to host path
}

// Docker is the state of a machine's Docker.
type Docker struct {
	Networks   map[string]bool
	Images     map[string]bool
	Containers map[string]*Container
}

// A Unit is a service of systemd.
type Unit struct{ Active, Enabled bool }

// A Machine is the inside of a virtual machine.
type Machine struct {
	Distro, Release, Arch, Hostname string
	Files                           map[string]*File
	Packages                        map[string]bool
	Snaps                           map[string]bool
	Units                           map[string]*Unit
	Docker                          Docker
	// CloudInit is what "cloud-init status" says: "not started", "running", "done" or "error".
	CloudInit string
	// CloudInitError is the reason of an error.
	CloudInitError string
	// Degraded lets cloud-init end with recoverable errors, as which "cloud-init status" exits with 2.
	Degraded bool
	// LockedUntil is how long something else holds the lock of the package manager.
	LockedUntil time.Time
	// GuestAttributes are those of Compute Engine, namespace/key to value; they outlive a reboot.
	GuestAttributes map[string]string `json:",omitempty"`
}

// Env is what surrounds a machine while something runs in it.
type Env struct {
	Now        time.Time
	Egress     bool // whether packets to the internet find their way
	InstanceID string
	Region     string
	// Google is set on Compute Engine; its metadata server then answers in place of that of EC2.
	Google *Google
}

// datasource is where cloud-init says that it has its user data from.
func (e Env) datasource() string {
	if e.Google != nil {
		return "DataSourceGCELocal"
	}
	return "DataSourceEc2Local"
}

// paths of what cloud-init leaves behind
const (
	outputLog  = "/var/log/cloud-init-output.log"
	initLog    = "/var/log/cloud-init.log"
	resultFile = "/run/cloud-init/result.json"
)

// New makes a machine of a distribution ("ubuntu", "debian", "al2023") and release ("24.04"), before its first boot.
func New(distro, release, arch, hostname string) *Machine {
	m := &Machine{Distro: distro, Release: release, Arch: arch, Hostname: hostname, Files: map[string]*File{}, Packages: map[string]bool{}, Snaps: map[string]bool{},
		Units: map[string]*Unit{}, CloudInit: "not started",
		Docker: Docker{Networks: map[string]bool{"bridge": true, "host": true, "none": true}, Images: map[string]bool{}, Containers: map[string]*Container{}}}
	for _, d := range []string{"/etc/apt/sources.list.d", "/etc/systemd/system", "/etc/default", "/home", "/opt", "/root", "/run/cloud-init", "/srv", "/tmp",
		"/usr/local/bin", "/usr/local/sbin", "/usr/local/lib", "/usr/share", "/var/lib/cloud/scripts/per-boot", "/var/lib/cloud/instance", "/var/log", "/var/tmp", "/var/run",
		"/proc", "/sys", "/dev"} {
		m.mkdir(d, 0o755)
	}
	m.write("/etc/hostname", hostname+"\n", 0o644)
	m.write("/etc/os-release", osRelease(distro, release), 0o644)
	m.write("/proc/uptime", "42.17 80.02\n", 0o444)
	switch distro {
	case "al2023":
		m.Packages["curl-minimal"], m.Packages["dnf"] = true, true
		// Amazon Linux comes with the agent ("Find AMIs with the SSM Agent preinstalled", Systems Manager user guide).
		m.Packages["amazon-ssm-agent"] = true
		m.Units["amazon-ssm-agent"] = &Unit{true, true}
	case "ubuntu":
		for _, p := range []string{"curl", "ca-certificates", "snapd", "gnupg"} {
			m.Packages[p] = true
		}
		// So do Ubuntu images up to 25.04, as a snap; later ones are not on that list.
		if release < "25.10" {
			m.Snaps["amazon-ssm-agent"] = true
			m.Units["snap.amazon-ssm-agent.amazon-ssm-agent"] = &Unit{true, true}
		}
	default:
		m.Packages["ca-certificates"] = true
	}
	return m
}

func osRelease(distro, release string) string {
	if distro == "al2023" {
		return "NAME=\"Amazon Linux\"\nVERSION=\"2023\"\nID=\"amzn\"\nID_LIKE=\"fedora\"\nVERSION_ID=\"2023\"\nPLATFORM_ID=\"platform:al2023\"\nPRETTY_NAME=\"Amazon Linux 2023\"\n"
	}
	code := map[string]string{"22.04": "jammy", "24.04": "noble", "26.04": "resolute", "12": "bookworm", "13": "trixie"}[release]
	if distro == "debian" {
		return fmt.Sprintf("PRETTY_NAME=\"Debian GNU/Linux %s (%s)\"\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"%s\"\nVERSION_CODENAME=%s\nID=debian\n", release, code, release, code)
	}
	return fmt.Sprintf("PRETTY_NAME=\"Ubuntu %s LTS\"\nNAME=\"Ubuntu\"\nVERSION_ID=\"%s\"\nVERSION_CODENAME=%s\nID=ubuntu\nID_LIKE=debian\nUBUNTU_CODENAME=%s\n", release, release, code, code)
}

// SSMAgent says whether the Systems Manager agent runs.
func (m *Machine) SSMAgent() bool {
	for name, u := range m.Units {
		if strings.Contains(name, "amazon-ssm-agent") && u.Active {
			return true
		}
	}
	return false
}

// Get answers an HTTP GET on a port of the machine: the status, or false when nothing listens there.
func (m *Machine) Get(port int, path string) (status int, ok bool) {
	for _, name := range slices.Sorted(maps.Keys(m.Docker.Containers)) {
		c := m.Docker.Containers[name]
		if inner, published := c.Ports[port]; published && c.Running {
			return m.serve(c, inner, path), true
		}
	}
	if u := m.Units["nginx"]; u != nil && u.Active && port == 80 {
		return m.pages("/etc/nginx", "/var/www/html", path), true
	}
	return 0, false
}

func (m *Machine) serve(c *Container, port int, path string) int {
	if !strings.Contains(c.Image, "nginx") || port != 80 {
		return 200
	}
	return m.pages(c.Mounts["/etc/nginx/conf.d"], c.Mounts["/usr/share/nginx/html"], path)
}

var returnLine = regexp.MustCompile(`(?s)location\s+(=\s*|\^~\s*)?(\S+)\s*\{[^}]*?return\s+(\d{3})`)

// pages is what NGINX answers for a path: a return of its configuration, a file of its document root, else 404.
func (m *Machine) pages(conf, root, path string) int {
	path, _, _ = strings.Cut(path, "?")
	if conf != "" {
		for _, name := range slices.Sorted(maps.Keys(m.Files)) {
			if !strings.HasPrefix(name, strings.TrimSuffix(conf, "/")+"/") && name != conf {
				continue
			}
			for _, l := range returnLine.FindAllStringSubmatch(m.Files[name].Content, -1) {
				if l[2] == path || (l[1] == "" && strings.HasPrefix(path, l[2])) {
					var status int
					_, _ = fmt.Sscanf(l[3], "%d", &status) // three digits
					return status
				}
			}
		}
	}
	if path == "/" && root == "" {
		return 200
	}
	if root != "" {
		for _, name := range []string{root + path, root + strings.TrimSuffix(path, "/") + "/index.html"} {
			if f := m.lookup(name); f != nil && !f.Dir {
				return 200
			}
		}
	}
	return 404
}

// Exists says whether a path exists.
func (m *Machine) Exists(path string) bool { return m.lookup(path) != nil }

// Tail is the end of a file, at most n lines.
func (m *Machine) Tail(path string, n int) string {
	f := m.lookup(path)
	if f == nil {
		return ""
	}
	lines := strings.SplitAfter(f.Content, "\n")
	if len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return strings.Join(lines[max(0, len(lines)-n):], "")
}

// Fail lets cloud-init end in error, as if the image or the user data were broken.
func (m *Machine) Fail(reason, log string) {
	m.CloudInit, m.CloudInitError = "error", reason
	m.write(resultFile, fmt.Sprintf("{\"v1\": {\"datasource\": \"DataSourceEc2Local\", \"errors\": [%q]}}\n", reason), 0o644)
	m.append(outputLog, log)
	if log != "" && !strings.HasSuffix(log, "\n") {
		m.append(outputLog, "\n")
	}
}
