package guest

import (
	"strings"
	"time"
)

func packageTools() map[string]func(*command) int {
	return map[string]func(*command) int{
		"apt-get": apt, "apt": apt, "dnf": dnf, "yum": dnf, "dpkg": dpkg, "dpkg-query": dpkg, "snap": snap, "rpm": rpm,
		"apt-key": succeed, "add-apt-repository": succeed,
	}
}

// dockerPackages are those that only Docker's own repository has.
var dockerPackages = []string{"docker-ce", "docker-ce-cli", "containerd.io", "docker-buildx-plugin", "docker-compose-plugin"}

func apt(c *command) int {
	_, args := c.options("-o -t -c --option")
	if len(args) == 0 {
		return 0
	}
	if c.session.now().Before(c.session.machine.LockedUntil) {
		return c.fail(100, "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 1187 (unattended-upgr)")
	}
	switch args[0] {
	case "update":
		if !c.network(4*time.Second, 90*time.Second) {
			_ = c.fail(0, "W: Failed to fetch http://archive.ubuntu.com/ubuntu/dists/InRelease  Connection timed out")
			return c.fail(100, "E: Some index files failed to download.")
		}
		c.print("Reading package lists...\n")
		return 0
	case "install":
		return c.installPackages(args[1:], 12*time.Second, "E: Unable to locate package %s", 100)
	case "remove", "purge", "autoremove":
		c.locked(func(m *Machine) int {
			for _, p := range args[1:] {
				delete(m.Packages, p)
			}
			return 0
		})
	case "upgrade", "dist-upgrade", "full-upgrade":
		if !c.network(20*time.Second, 90*time.Second) {
			return c.fail(100, "E: Unable to fetch some archives")
		}
	}
	return 0
}

// installPackages installs what is asked for, if the network is there and somebody has it.
func (c *command) installPackages(names []string, work time.Duration, unknown string, code int) int {
	var todo []string
	lacking := ""
	c.locked(func(m *Machine) int {
		repo := m.Distro == "al2023" || strings.Contains(m.repositories(), "docker")
		for _, n := range names {
			n, _, _ = strings.Cut(n, "=")
			for _, d := range dockerPackages {
				if n == d && !repo {
					lacking = n
				}
			}
			if strings.Contains(n, "no-such-package") {
				lacking = n
			}
			if !m.Packages[n] {
				todo = append(todo, n)
			}
		}
		return 0
	})
	if lacking != "" {
		return c.fail(code, unknown, lacking)
	}
	if len(todo) == 0 {
		return 0
	}
	if !c.network(work, 90*time.Second) {
		return c.fail(code, "E: Failed to fetch packages: Connection timed out")
	}
	c.locked(func(m *Machine) int {
		for _, n := range todo {
			m.Packages[n] = true
			m.provide(n)
		}
		return 0
	})
	for _, n := range todo {
		c.print("Setting up %s ...\n", n)
	}
	return 0
}

// repositories is the text of all package sources.
func (m *Machine) repositories() string {
	var b strings.Builder
	for name, f := range m.Files {
		if strings.HasPrefix(name, "/etc/apt/sources.list") && !f.Dir {
			b.WriteString(name + "\n" + f.Content)
		}
	}
	return b.String()
}

func dnf(c *command) int {
	_, args := c.options("-c --setopt")
	if len(args) == 0 {
		return 0
	}
	switch args[0] {
	case "install":
		return c.installPackages(args[1:], 10*time.Second, "Error: Unable to find a match: %s", 1)
	case "update", "upgrade", "makecache":
		if !c.network(10*time.Second, 90*time.Second) {
			return c.fail(1, "Error: Failed to download metadata for repo 'amazonlinux'")
		}
	case "remove":
		c.locked(func(m *Machine) int {
			for _, p := range args[1:] {
				delete(m.Packages, p)
			}
			return 0
		})
	}
	return 0
}

func dpkg(c *command) int {
	flags, args := c.options("-f")
	switch {
	case has(flags, "--print-architecture"):
		arch := "amd64"
		if c.session.machine.Arch == "arm64" {
			arch = "arm64"
		}
		c.print("%s\n", arch)
	case has(flags, "-s", "-W", "-l", "--status"):
		for _, p := range args {
			ok := c.locked(func(m *Machine) int {
				if m.Packages[p] {
					return 1
				}
				return 0
			})
			if ok == 0 {
				return c.fail(1, "dpkg-query: package '%s' is not installed", p)
			}
			c.print("Package: %s\nStatus: install ok installed\n", p)
		}
	}
	return 0
}

func rpm(c *command) int {
	_, args := c.options("")
	for _, p := range args {
		if c.locked(func(m *Machine) int {
			if m.Packages[p] {
				return 0
			}
			return 1
		}) != 0 {
			c.print("package %s is not installed\n", p)
			return 1
		}
		c.print("%s\n", p)
	}
	return 0
}

func snap(c *command) int {
	_, args := c.options("--channel")
	if len(args) == 0 {
		return 0
	}
	names := args[1:]
	unit := func(n string) string { return "snap." + n + "." + n }
	switch args[0] {
	case "list", "info":
		for _, n := range names {
			if c.locked(func(m *Machine) int {
				if m.Snaps[n] {
					return 0
				}
				return 1
			}) != 0 {
				return c.fail(1, "error: no matching snaps installed")
			}
		}
	case "install", "refresh":
		for _, n := range names {
			if c.locked(func(m *Machine) int {
				if m.Snaps[n] {
					return 0
				}
				return 1
			}) == 0 {
				continue
			}
			if !c.network(15*time.Second, 120*time.Second) {
				return c.fail(1, "error: cannot install \"%s\": Post https://api.snapcraft.io/v2/snaps/refresh: dial tcp: i/o timeout", n)
			}
			c.locked(func(m *Machine) int {
				m.Snaps[n] = true
				m.Units[unit(n)] = &Unit{true, true}
				return 0
			})
		}
	case "start", "restart", "stop", "enable", "disable":
		for _, n := range names {
			c.locked(func(m *Machine) int {
				if u := m.Units[unit(n)]; u != nil {
					u.Active = args[0] != "stop" && args[0] != "disable"
				}
				return 0
			})
		}
	}
	return 0
}
