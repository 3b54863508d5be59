package guest

import (
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// fetch is curl and wget.
func fetch(c *command) int {
	flags, args := c.options("-o -O -m -H -X -d -u -A -T --output --max-time --connect-timeout --retry --retry-delay --retry-max-time -w --write-out --header " +
		"--data --data-raw --data-binary --body-data --post-data --upload-file --request --method --noproxy --proto --user --tries --timeout")
	if c.args[0] == "curl" && has(flags, "-O") && flags["-O"] != "" { // curl's -O takes no value
		args = append(args, flags["-O"])
	}
	if len(args) == 0 {
		return c.fail(2, "%s: no URL specified", c.args[0])
	}
	target := args[len(args)-1]
	if !strings.Contains(target, "://") {
		target = "http://" + target
	}
	u, err := url.Parse(target)
	if err != nil {
		return c.fail(3, "%s: URL rejected", c.args[0])
	}
	status, body, code := c.get(u, flags)
	if code != 0 {
		return code
	}
	out := flags["-o"] + flags["--output"]
	if c.args[0] == "wget" {
		if out = flags["-O"]; out == "" {
			out = path.Base(u.Path)
		}
	} else if has(flags, "-O") {
		out = path.Base(u.Path)
	}
	if status >= 400 && (has(flags, "-f", "--fail") || c.args[0] == "wget") {
		return c.fail(22, "%s: (22) The requested URL returned error: %d", c.args[0], status)
	}
	switch out {
	case "", "-":
		c.print("%s", body)
	case "/dev/null":
	default:
		c.locked(func(m *Machine) int { m.write(c.path(out), body, 0o644); return 0 })
	}
	if w := flags["-w"] + flags["--write-out"]; w != "" {
		c.print("%s", strings.NewReplacer("%{http_code}", strconv.Itoa(status), `\n`, "\n").Replace(w))
	}
	return 0
}

// get answers a request: from the machine itself, the metadata service, or the internet, where everything exists.
func (c *command) get(u *url.URL, flags map[string]string) (status int, body string, code int) {
	switch u.Hostname() {
	case "127.0.0.1", "localhost":
		port := 80
		if p := u.Port(); p != "" {
			port, _ = strconv.Atoi(p)
		}
		listens := false
		c.locked(func(m *Machine) int { status, listens = m.Get(port, u.Path); return 0 })
		if !listens {
			return 0, "", c.fail(7, "%s: (7) Failed to connect to %s port %d: Connection refused", c.args[0], u.Hostname(), port)
		}
		return status, "ok\n", 0
	}
	if slices.Contains(metadataHosts, u.Hostname()) {
		switch {
		case c.session.env.Google != nil:
			status, body = c.googleMetadata(u, flags)
			return status, body, 0
		case u.Hostname() != "169.254.169.254":
			return 0, "", c.unresolved(u.Hostname())
		}
		return 200, c.metadata(u.Path), 0
	}
	patience := 130 * time.Second // TCP's own patience
	for _, f := range []string{"--connect-timeout", "-m", "--max-time"} {
		if d, ok := seconds(flags[f]); ok && flags[f] != "" && d < patience {
			patience = d
		}
	}
	if !c.network(500*time.Millisecond, patience) {
		return 0, "", c.fail(28, "%s: (28) Failed to connect to %s port 443 after %d ms: Timeout was reached", c.args[0], u.Hostname(), patience.Milliseconds())
	}
	if strings.HasSuffix(u.Path, "gpg") || strings.HasSuffix(u.Path, ".asc") || strings.HasSuffix(u.Path, ".key") {
		return 200, "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nsimulated\n-----END PGP PUBLIC KEY BLOCK-----\n", 0
	}
	if u.Hostname() == "get.docker.com" {
		return 200, "#!/bin/sh\nset -e\napt-get update\napt-get install -y docker-ce docker-ce-cli containerd.io\n", 0
	}
	return 200, "simulated content of " + u.String() + "\n", 0
}

func (c *command) metadata(p string) string {
	switch path.Base(p) {
	case "token":
		return "simulated-token"
	case "instance-id":
		return c.session.env.InstanceID
	case "region":
		return c.session.env.Region
	case "hostname", "local-hostname":
		return c.session.machine.Hostname
	}
	return ""
}

func gpg(c *command) int {
	flags, args := c.options("-o --output")
	text, code := c.input(args)
	if out := flags["-o"] + flags["--output"]; out != "" && code == 0 {
		c.locked(func(m *Machine) int { m.write(c.path(out), text, 0o644); return 0 })
	}
	return code
}
