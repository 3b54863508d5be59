package guest

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

func init() {
	commands = systemTools()
	maps.Copy(commands, fileTools())
	maps.Copy(commands, textTools())
	maps.Copy(commands, packageTools())
	commands["docker"] = docker
}

func systemTools() map[string]func(*command) int {
	t := map[string]func(*command) int{
		"sh": shell, "bash": shell, "dash": shell,
		"env": environment, "nice": wrap("-n"), "nohup": wrap(""), "sudo": wrap("-u -g"), "ionice": wrap("-c -n"), "setsid": wrap(""), "stdbuf": wrap("-o -e -i"),
		"timeout": timeout, "flock": flock, "sleep": sleep, "date": date,
		"systemctl": systemctl, "service": service, "cloud-init": cloudInit,
		"curl": fetch, "wget": fetch,
		"id": func(c *command) int {
			if slices.Contains(c.args, "-u") {
				c.print("0\n")
			} else {
				c.print("uid=0(root) gid=0(root) groups=0(root)\n")
			}
			return 0
		},
		"whoami":   func(c *command) int { c.print("root\n"); return 0 },
		"hostname": func(c *command) int { c.print("%s\n", c.session.machine.Hostname); return 0 },
		"nproc":    func(c *command) int { c.print("2\n"); return 0 },
		"uname":    uname,
		"gpg":      gpg,
		"which": func(c *command) int {
			code := 0
			for _, n := range c.args[1:] {
				c.session.mu.Lock()
				p := c.session.which(n)
				c.session.mu.Unlock()
				if p == "" {
					code = 1
				} else {
					c.print("%s\n", p)
				}
			}
			return code
		},
	}
	// Programs whose effects nothing here depends on.
	for _, n := range []string{"useradd", "usermod", "userdel", "groupadd", "gpasswd", "adduser", "addgroup", "passwd", "chpasswd", "sysctl", "modprobe", "logger",
		"ufw", "iptables", "ip6tables", "iptables-save", "ip", "mount", "umount", "swapoff", "swapon", "ldconfig", "update-ca-certificates", "timedatectl", "hostnamectl",
		"localectl", "setenforce", "restorecon", "journalctl", "dockerd", "kill", "pkill", "loginctl", "systemd-tmpfiles", "apt-mark", "needrestart", "fallocate"} {
		t[n] = succeed
	}
	return t
}

func shell(c *command) int {
	args := c.args[1:]
	for len(args) > 0 && strings.HasPrefix(args[0], "-") && !strings.Contains(args[0], "c") {
		args = args[1:]
	}
	s := c.session
	switch {
	case len(args) > 1 && strings.HasPrefix(args[0], "-"): // -c, -ec, -xc
		text := args[1]
		if strings.Contains(args[0], "e") {
			text = "set -e\n" + text
		}
		if c.args[0] == "bash" {
			text = "#!/bin/bash\n" + text
		}
		return s.script(text, args[min(2, len(args)):], c.stdout, c.stderr)
	case len(args) > 0:
		s.mu.Lock()
		f := s.machine.lookup(c.path(args[0]))
		s.mu.Unlock()
		if f == nil {
			return c.fail(127, "%s: %s: No such file or directory", c.args[0], args[0])
		}
		return s.script(f.Content, args[1:], c.stdout, c.stderr)
	case c.stdin != nil:
		b, _ := io.ReadAll(c.stdin)
		return s.script(string(b), nil, c.stdout, c.stderr)
	}
	return 0
}

// wrap is a program that runs another one, after its own flags.
func wrap(withValue string) func(*command) int {
	return func(c *command) int {
		args := c.args[1:]
		for len(args) > 0 && strings.HasPrefix(args[0], "-") {
			if strings.Contains(" "+withValue+" ", " "+args[0]+" ") && len(args) > 1 {
				args = args[1:]
			}
			args = args[1:]
		}
		for len(args) > 0 && strings.Contains(args[0], "=") {
			args = args[1:]
		}
		return c.again(args)
	}
}

func environment(c *command) int {
	args := c.args[1:]
	for len(args) > 0 && (strings.HasPrefix(args[0], "-") || strings.Contains(args[0], "=")) {
		args = args[1:]
	}
	return c.again(args)
}

func timeout(c *command) int {
	args := c.args[1:]
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		if (args[0] == "-k" || args[0] == "-s") && len(args) > 1 {
			args = args[1:]
		}
		args = args[1:]
	}
	if len(args) < 2 {
		return c.fail(125, "timeout: missing operand")
	}
	d, ok := seconds(args[0])
	if !ok {
		return c.fail(125, "timeout: invalid time interval '%s'", args[0])
	}
	s := c.session
	s.mu.Lock()
	limit := s.spent + d
	s.limits = append(s.limits, limit)
	s.mu.Unlock()
	code := c.again(args[1:])
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limits = s.limits[:len(s.limits)-1]
	if d > 0 && s.spent >= limit {
		return 124
	}
	return code
}

// flock takes a lock, which nobody else wants in this machine, but for the time that cloud-init holds every lock.
func flock(c *command) int {
	flags, args := c.options("-w -E --timeout")
	if len(args) == 0 {
		return c.fail(64, "flock: requires file descriptor, file or directory")
	}
	busy := c.locked(func(m *Machine) int {
		if m.CloudInit == "running" && !c.session.booting() {
			return 1
		}
		return 0
	})
	if busy == 1 {
		if !has(flags, "-n", "--nonblock") {
			wait, _ := seconds(flags["-w"] + flags["--timeout"])
			c.locked(func(*Machine) int { c.session.spend(wait); return 0 })
		}
		return 1
	}
	if len(args) > 1 {
		return c.again(args[1:])
	}
	return 0
}

func sleep(c *command) int {
	var total time.Duration
	for _, a := range c.args[1:] {
		d, ok := seconds(a)
		if !ok {
			return c.fail(1, "sleep: invalid time interval '%s'", a)
		}
		total += d
	}
	return c.locked(func(*Machine) int {
		if !c.session.spend(total) {
			return 124
		}
		return 0
	})
}

func date(c *command) int {
	flags, args := c.options("-d --date")
	now := c.session.now().UTC()
	if d := flags["-d"] + flags["--date"]; strings.HasPrefix(d, "@") {
		n, _ := strconv.ParseInt(d[1:], 10, 64)
		now = time.Unix(n, 0).UTC()
	}
	format := "+%a %b %e %H:%M:%S UTC %Y"
	if has(flags, "-I") {
		format = "+%Y-%m-%d"
	}
	if len(args) > 0 {
		format = args[0]
	}
	r := strings.NewReplacer("%s", strconv.FormatInt(now.Unix(), 10), "%Y", now.Format("2006"), "%m", now.Format("01"), "%d", now.Format("02"), "%H", now.Format("15"),
		"%M", now.Format("04"), "%S", now.Format("05"), "%F", now.Format("2006-01-02"), "%T", now.Format("15:04:05"), "%a", now.Format("Mon"), "%b", now.Format("Jan"),
		"%e", now.Format("_2"), "%Z", "UTC", "%z", "+0000", "%N", "000000000", "%%", "%")
	c.print("%s\n", r.Replace(strings.TrimPrefix(format, "+")))
	return 0
}

func uname(c *command) int {
	arch := c.session.machine.Arch
	if arch == "arm64" {
		arch = "aarch64"
	}
	switch {
	case slices.Contains(c.args, "-m"):
		c.print("%s\n", arch)
	case slices.Contains(c.args, "-r"):
		c.print("6.14.0-1018-aws\n")
	case slices.Contains(c.args, "-a"):
		c.print("Linux %s 6.14.0-1018-aws #18 SMP %s GNU/Linux\n", c.session.machine.Hostname, arch)
	default:
		c.print("Linux\n")
	}
	return 0
}

func (m *Machine) unit(name string) *Unit {
	return m.Units[strings.TrimSuffix(name, ".service")]
}

// provide makes the units that packages bring.
func (m *Machine) provide(name string) {
	units := map[string]string{"docker-ce": "docker", "docker.io": "docker", "docker": "docker", "nginx": "nginx", "amazon-ssm-agent": "amazon-ssm-agent",
		"containerd.io": "containerd", "containerd": "containerd"}
	u, ok := units[name]
	if !ok || m.Units[u] != nil {
		return
	}
	// Debian and Ubuntu start a service when its package is installed; Amazon Linux does not.
	m.Units[u] = &Unit{Active: m.Distro != "al2023", Enabled: m.Distro != "al2023"}
}

func systemctl(c *command) int {
	flags, args := c.options("")
	if len(args) == 0 {
		return 0
	}
	verb, names := args[0], args[1:]
	switch verb {
	case "daemon-reload", "daemon-reexec", "reset-failed", "is-system-running", "list-units", "show", "preset":
		return 0
	}
	code, message := 0, ""
	for _, n := range names {
		c.locked(func(m *Machine) int {
			u := m.unit(n)
			if u == nil {
				if f := m.lookup("/etc/systemd/system/" + strings.TrimSuffix(n, ".service") + ".service"); f != nil {
					u = &Unit{}
					m.Units[strings.TrimSuffix(n, ".service")] = u
				}
			}
			switch {
			case verb == "is-active":
				if u == nil || !u.Active {
					code, message = 3, "inactive"
				} else {
					message = "active"
				}
			case verb == "is-enabled":
				if u == nil || !u.Enabled {
					code, message = 1, "disabled"
				} else {
					message = "enabled"
				}
			case verb == "status":
				if u == nil || !u.Active {
					code = 3
				}
			case u == nil && (strings.HasSuffix(n, ".timer") || strings.HasSuffix(n, ".socket") || verb == "mask" || verb == "unmask"):
			case u == nil:
				code, message = 5, fmt.Sprintf("Failed to %s %s.service: Unit %s.service not found.", verb, n, strings.TrimSuffix(n, ".service"))
			default:
				c.session.spend(time.Second)
				u.apply(verb, has(flags, "--now"))
				if n == "docker" || n == "docker.service" {
					m.restartContainers(verb)
				}
			}
			return 0
		})
		switch {
		case message == "" || has(flags, "-q", "--quiet"):
		case code == 5:
			_ = c.fail(code, "%s", message)
		case strings.HasPrefix(verb, "is-"):
			c.print("%s\n", message)
		}
	}
	return code
}

func (u *Unit) apply(verb string, now bool) {
	switch verb {
	case "start", "restart", "reload", "reload-or-restart", "try-restart":
		u.Active = true
	case "stop", "kill":
		u.Active = false
	case "enable":
		u.Enabled = true
		u.Active = u.Active || now
	case "disable", "mask":
		u.Enabled = false
		u.Active = u.Active && !now
	}
}

// restartContainers lets containers follow the Docker daemon.
func (m *Machine) restartContainers(verb string) {
	for _, ct := range m.Docker.Containers {
		switch verb {
		case "stop":
			ct.Running = false
		case "start", "restart":
			ct.Running = true
		}
	}
}

func service(c *command) int {
	if len(c.args) < 3 {
		return 0
	}
	next := *c
	next.args = []string{"systemctl", c.args[2], c.args[1]}
	return systemctl(&next)
}

func cloudInit(c *command) int {
	if len(c.args) < 2 || c.args[1] != "status" {
		return 0
	}
	flags, _ := c.options("")
	var state, why, prefix string
	c.locked(func(m *Machine) int {
		state, why = m.CloudInit, m.CloudInitError
		if m.Degraded {
			prefix = "degraded "
		}
		return 0
	})
	if has(flags, "--wait") && state == "running" {
		// Waiting inside a command would mean waiting for what comes after it; a caller should ask again later.
		c.locked(func(*Machine) int { c.session.spend(30 * time.Second); return 0 })
	}
	c.print("status: %s\n", state)
	if has(flags, "--long", "-l") {
		c.print("extended_status: %s\nboot_status_code: enabled-by-generator\ndetail: %s\nerrors: [%s]\nrecoverable_errors: {}\n", prefix+state, "DataSourceEc2Local", why)
	}
	switch {
	case state == "error":
		return 1
	case prefix != "":
		return 2
	}
	return 0
}
