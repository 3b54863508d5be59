package guest

import (
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"
)

// command is one simulated process.
type command struct {
	session        *session
	args           []string
	dir            string
	stdin          io.Reader
	stdout, stderr io.Writer
}

// commands are the programs that exist in a machine, if their package is installed.
var commands map[string]func(*command) int

// packageOf names the packages, any of which brings a command; commands that are not named are part of every image.
var packageOf = map[string][]string{
	"docker": {"docker-ce-cli", "docker-ce", "docker.io", "docker"}, "dockerd": {"docker-ce", "docker.io", "docker"},
	"curl": {"curl", "curl-minimal"}, "wget": {"wget"}, "gpg": {"gnupg"}, "nginx": {"nginx"}, "jq": {"jq"},
}

func (s *session) installed(name string) bool {
	m := s.machine
	switch name {
	case "apt-get", "apt", "dpkg", "apt-key", "add-apt-repository":
		return m.Distro != "al2023"
	case "dnf", "yum", "rpm":
		return m.Distro == "al2023"
	case "snap":
		return m.Distro == "ubuntu" || m.Packages["snapd"]
	}
	pkgs, ok := packageOf[name]
	if !ok {
		return true
	}
	for _, p := range pkgs {
		if m.Packages[p] {
			return true
		}
	}
	return false
}

// run finds and runs the program. The session's lock is held except while input is read from a pipe.
func (c *command) run() int {
	s := c.session
	name := c.args[0]
	s.mu.Lock()
	found := s.which(name)
	f := s.machine.lookup(name)
	if !strings.Contains(name, "/") && found != "" {
		f = s.machine.lookup(found)
	}
	s.mu.Unlock()
	if f != nil && !f.Dir && strings.Contains(found+name, "/") && f.Content != "" {
		if f.Mode&0o111 == 0 {
			return c.fail(126, "sh: %s: Permission denied", name)
		}
		return s.script(f.Content, c.args[1:], c.stdout, c.stderr)
	}
	prog := commands[path.Base(name)]
	if prog == nil || found == "" {
		return c.fail(127, "sh: 1: %s: not found", name)
	}
	return prog(c)
}

// locked runs f with the machine locked.
func (c *command) locked(f func(m *Machine) int) int {
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	return f(c.session.machine)
}

func (c *command) fail(code int, format string, args ...any) int {
	_, _ = fmt.Fprintf(c.stderr, format+"\n", args...)
	return code
}

func (c *command) print(format string, args ...any) {
	_, _ = fmt.Fprintf(c.stdout, format, args...)
}

// input is the text of the files that a filter is given, or of its standard input.
func (c *command) input(files []string) (string, int) {
	if len(files) == 0 {
		if c.stdin == nil {
			return "", 0
		}
		b, _ := io.ReadAll(c.stdin)
		return string(b), 0
	}
	var b strings.Builder
	code := 0
	for _, name := range files {
		if name == "-" {
			if c.stdin != nil {
				data, _ := io.ReadAll(c.stdin)
				b.Write(data)
			}
			continue
		}
		c.session.mu.Lock()
		f := c.session.machine.lookup(c.path(name))
		text := ""
		if f != nil {
			text = f.Content
		}
		c.session.mu.Unlock()
		switch {
		case name == "/dev/null":
		case f == nil:
			code = c.fail(1, "%s: %s: No such file or directory", c.args[0], name)
		case f.Dir:
			code = c.fail(1, "%s: %s: Is a directory", c.args[0], name)
		default:
			b.WriteString(text)
		}
	}
	return b.String(), code
}

func (c *command) path(name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join(c.dir, name)
}

// options splits arguments into flags and operands. withValue names the flags that take a value.
func (c *command) options(withValue string) (flags map[string]string, operands []string) {
	flags = map[string]string{}
	args := c.args[1:]
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--":
			return flags, append(operands, args[i+1:]...)
		case strings.HasPrefix(a, "--"):
			name, value, has := strings.Cut(a, "=")
			if !has && strings.Contains(" "+withValue+" ", " "+name+" ") && i+1 < len(args) {
				i++
				value = args[i]
			}
			flags[name] = value
		case len(a) > 1 && a[0] == '-':
			for j := 1; j < len(a); j++ {
				flag := "-" + a[j:j+1]
				if !strings.Contains(" "+withValue+" ", " "+flag+" ") {
					flags[flag] = ""
					continue
				}
				if j+1 < len(a) {
					flags[flag] = a[j+1:]
				} else if i+1 < len(args) {
					i++
					flags[flag] = args[i]
				}
				break
			}
		default:
			operands = append(operands, a)
		}
	}
	return flags, operands
}

func has(flags map[string]string, names ...string) bool {
	for _, n := range names {
		if _, ok := flags[n]; ok {
			return true
		}
	}
	return false
}

// network is the time that a command spends on the network. Without a way out it hangs until its own limit.
func (c *command) network(work, patience time.Duration) (ok bool) {
	c.session.mu.Lock()
	defer c.session.mu.Unlock()
	if c.session.env.Egress {
		return c.session.spend(work)
	}
	c.session.spend(patience)
	return false
}

// again runs another command in place of this one (env, nice, sudo, timeout).
func (c *command) again(args []string) int {
	if len(args) == 0 {
		return 0
	}
	next := *c
	next.args = args
	if args[0] == "sh" || args[0] == "bash" {
		return commands["sh"](&next)
	}
	// What the shell has as a builtin exists as a program too.
	switch args[0] {
	case "true":
		return 0
	case "false":
		return 1
	case "echo":
		c.print("%s\n", strings.Join(args[1:], " "))
		return 0
	case "test", "[":
		var quoted []string
		for _, a := range args {
			quoted = append(quoted, "'"+strings.ReplaceAll(a, "'", `'\''`)+"'")
		}
		return c.session.script(strings.Join(quoted, " "), nil, c.stdout, c.stderr)
	}
	return next.run()
}

func seconds(text string) (time.Duration, bool) {
	unit := time.Second
	switch {
	case strings.HasSuffix(text, "s"):
		text = text[:len(text)-1]
	case strings.HasSuffix(text, "m"):
		text, unit = text[:len(text)-1], time.Minute
	case strings.HasSuffix(text, "h"):
		text, unit = text[:len(text)-1], time.Hour
	}
	f, err := strconv.ParseFloat(text, 64)
	return time.Duration(f * float64(unit)), err == nil && f >= 0
}
