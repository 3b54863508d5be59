package guest

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

func docker(c *command) int {
	up := c.locked(func(m *Machine) int {
		if u := m.Units["docker"]; u != nil && u.Active {
			return 1
		}
		return 0
	})
	args := c.args[1:]
	if len(args) == 0 {
		return 0
	}
	if args[0] == "--version" || args[0] == "-v" {
		c.print("Docker version 29.1.2, build 890dcca\n")
		return 0
	}
	if up == 0 {
		return c.fail(1, "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?")
	}
	sub := args[0]
	rest := args[1:]
	if (sub == "network" || sub == "image" || sub == "container" || sub == "volume" || sub == "compose" || sub == "system") && len(rest) > 0 {
		sub, rest = sub+" "+rest[0], rest[1:]
	}
	next := *c
	next.args = append([]string{"docker"}, rest...)
	switch sub {
	case "info", "version", "system info", "ps", "container ls", "volume create", "login", "logs", "network ls", "image ls", "images", "exec", "system prune":
		return next.dockerShow(sub)
	case "network create", "network inspect", "network rm":
		return next.dockerNetwork(strings.TrimPrefix(sub, "network "))
	case "pull", "image pull", "image inspect":
		return next.dockerImage(sub)
	case "inspect", "container inspect":
		return next.dockerInspect()
	case "run", "container run", "create":
		return next.dockerRun(sub == "create")
	case "start", "stop", "restart", "rm", "kill", "container rm", "container start", "container stop":
		return next.dockerControl(strings.TrimPrefix(sub, "container "))
	}
	return c.fail(1, "docker: '%s' is not a docker command.", sub)
}

func (c *command) dockerShow(sub string) int {
	if sub == "ps" || sub == "container ls" {
		_, _ = c.options("-f --filter --format")
		var names []string
		c.locked(func(m *Machine) int {
			for n, ct := range m.Docker.Containers {
				if ct.Running {
					names = append(names, n)
				}
			}
			return 0
		})
		for _, n := range names {
			c.print("%s\n", n)
		}
	}
	return 0
}

func (c *command) dockerNetwork(verb string) int {
	_, args := c.options("-d --driver -f --format --subnet --opt -o --label")
	if len(args) == 0 {
		return c.fail(1, "\"docker network %s\" requires an argument.", verb)
	}
	name := args[len(args)-1]
	known := false
	c.locked(func(m *Machine) int {
		known = m.Docker.Networks[name]
		switch verb {
		case "create":
			m.Docker.Networks[name] = true
		case "rm":
			delete(m.Docker.Networks, name)
		}
		return 0
	})
	switch {
	case verb == "create" && known:
		return c.fail(1, "Error response from daemon: network with name %s already exists", name)
	case verb == "create":
		c.print("%064x\n", len(name))
	case !known:
		return c.fail(1, "Error response from daemon: network %s not found", name)
	default:
		c.print("%s\n", name)
	}
	return 0
}

func (c *command) dockerImage(sub string) int {
	_, args := c.options("-f --format --platform")
	if len(args) == 0 {
		return c.fail(1, "\"docker %s\" requires an argument.", sub)
	}
	image := args[0]
	have := c.locked(func(m *Machine) int {
		if m.Docker.Images[image] {
			return 1
		}
		return 0
	})
	if sub == "image inspect" {
		if have == 0 {
			return c.fail(1, "Error response from daemon: No such image: %s", image)
		}
		return 0
	}
	return c.pull(image)
}

func (c *command) pull(image string) int {
	if strings.Contains(image, "no-such-image") {
		return c.fail(1, "Error response from daemon: manifest for %s not found: manifest unknown", image)
	}
	if !c.network(6*time.Second, 60*time.Second) {
		return c.fail(1, "Error response from daemon: failed to resolve reference \"%s\": dial tcp: i/o timeout", image)
	}
	c.locked(func(m *Machine) int { m.Docker.Images[image] = true; return 0 })
	c.print("%s\n", image)
	return 0
}

func (c *command) dockerInspect() int {
	flags, args := c.options("-f --format --type")
	if len(args) == 0 {
		return c.fail(1, "\"docker inspect\" requires an argument.")
	}
	text := ""
	c.locked(func(m *Machine) int {
		if ct := m.Docker.Containers[args[0]]; ct != nil {
			text = fmt.Sprintf(`[{"Name": "/%s", "State": {"Running": %t}}]`, ct.Name, ct.Running)
			if f := flags["-f"] + flags["--format"]; f != "" {
				status := map[bool]string{true: "running", false: "exited"}[ct.Running]
				text = strings.NewReplacer("{{.State.Running}}", strconv.FormatBool(ct.Running), "{{.State.Status}}", status, "{{.Config.Image}}", ct.Image,
					"{{.Name}}", "/"+ct.Name).Replace(f)
			}
		}
		return 0
	})
	if text == "" {
		return c.fail(1, "Error: No such object: %s", args[0])
	}
	c.print("%s\n", text)
	return 0
}

// dockerRun makes a container, and starts it unless it is only to be created.
func (c *command) dockerRun(created bool) int {
	ct, remove := parseRun(c.args[1:])
	if ct.Image == "" {
		return c.fail(125, "docker: 'docker run' requires at least 1 argument")
	}
	ct.Running = !created
	var taken, known, have bool
	c.locked(func(m *Machine) int {
		taken, known, have = ct.Name != "" && m.Docker.Containers[ct.Name] != nil, m.Docker.Networks[ct.Network], m.Docker.Images[ct.Image]
		return 0
	})
	switch {
	case taken:
		return c.fail(125, "docker: Error response from daemon: Conflict. The container name \"/%s\" is already in use.", ct.Name)
	case !known:
		return c.fail(125, "docker: Error response from daemon: network %s not found", ct.Network)
	}
	if !have {
		if code := c.pull(ct.Image); code != 0 {
			return 125
		}
	}
	if remove {
		return 0 // it ran, and is gone
	}
	c.locked(func(m *Machine) int {
		if ct.Name == "" {
			ct.Name = fmt.Sprintf("container-%d", len(m.Docker.Containers)+1)
		}
		if ct.Network == "host" {
			ct.Ports[80] = 80
		}
		m.Docker.Containers[ct.Name] = ct
		c.session.spend(time.Second)
		return 0
	})
	c.print("%064x\n", len(ct.Name)*7919)
	return 0
}

// parseRun reads the arguments of docker run. remove says that the container is to go when it ends.
func parseRun(args []string) (ct *Container, remove bool) {
	ct = &Container{Network: "bridge", Ports: map[int]int{}, Mounts: map[string]string{}}
	i := 0
	for i < len(args) && strings.HasPrefix(args[i], "-") {
		flag, value, inline := strings.Cut(args[i], "=")
		switch flag {
		case "-d", "--detach", "--rm", "--init", "--privileged", "--read-only", "-it", "-i", "-t", "-q", "--quiet":
			remove = remove || flag == "--rm"
			i++
			continue
		}
		if i++; !inline && i < len(args) {
			value = args[i]
			i++
		}
		switch flag {
		case "--name":
			ct.Name = value
		case "--network", "--net":
			ct.Network = value
		case "-p", "--publish":
			parts := strings.Split(strings.TrimSuffix(value, "/tcp"), ":")
			inner, _ := strconv.Atoi(parts[len(parts)-1])
			outer := inner
			if len(parts) > 1 {
				outer, _ = strconv.Atoi(parts[len(parts)-2])
			}
			ct.Ports[outer] = inner
		case "-v", "--volume":
			if parts := strings.Split(value, ":"); len(parts) > 1 {
				ct.Mounts[parts[1]] = parts[0]
			}
		case "--mount":
			var src, dst string
			for part := range strings.SplitSeq(value, ",") {
				k, v, _ := strings.Cut(part, "=")
				switch k {
				case "source", "src":
					src = v
				case "target", "dst", "destination":
					dst = v
				}
			}
			ct.Mounts[dst] = src
		}
	}
	if i < len(args) {
		ct.Image = args[i]
	}
	return ct, remove
}

func (c *command) dockerControl(verb string) int {
	flags, names := c.options("-t --time -s")
	code := 0
	for _, n := range names {
		var found, running bool
		c.locked(func(m *Machine) int {
			ct := m.Docker.Containers[n]
			if ct == nil {
				return 0
			}
			found = true
			switch verb {
			case "start", "restart":
				ct.Running = true
			case "stop", "kill":
				ct.Running = false
			case "rm":
				if running = ct.Running && !has(flags, "-f", "--force"); !running {
					delete(m.Docker.Containers, n)
				}
			}
			return 0
		})
		switch {
		case !found && (verb != "rm" || !has(flags, "-f", "--force")):
			code = c.fail(1, "Error response from daemon: No such container: %s", n)
		case running:
			code = c.fail(1, "Error response from daemon: cannot remove container \"/%s\": container is running: stop the container before removing or force remove", n)
		case found:
			c.print("%s\n", n)
		}
	}
	return code
}
