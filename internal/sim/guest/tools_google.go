package guest

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
)

// Google is what the metadata server of Compute Engine knows of the machine ("About VM metadata").
type Google struct {
	Project, ProjectNumber  string
	Zone, Name, ID, Type    string
	ServiceAccount          string // its e-mail address; empty: the machine has none
	Scopes                  []string
	Attributes              map[string]string // custom metadata, of the instance before that of the project
	InternalIP, Image, Tags string
	// GuestAttributes says that enable-guest-attributes is TRUE.
	GuestAttributes bool
}

// metadataHosts are the names of Compute Engine's metadata server.
var metadataHosts = []string{"metadata.google.internal", "metadata", "169.254.169.254"}

// googleMetadata answers a request to the metadata server.
func (c *command) googleMetadata(u *url.URL, flags map[string]string) (status int, body string) {
	g := c.session.env.Google
	if c.header("Metadata-Flavor") != "Google" {
		return http.StatusForbidden, "Missing Metadata-Flavor:Google header.\n"
	}
	name, ok := strings.CutPrefix(path.Clean(u.Path), "/computeMetadata/v1")
	if !ok {
		return http.StatusNotFound, ""
	}
	name = strings.Trim(name, "/")
	if key, ok := strings.CutPrefix(name, "instance/guest-attributes"); ok {
		if !g.GuestAttributes {
			return http.StatusForbidden, "Guest attributes endpoint access is disabled."
		}
		return c.guestAttributes(c.method(flags), strings.Trim(key, "/"), c.payload(flags))
	}
	if c.method(flags) != http.MethodGet {
		return http.StatusMethodNotAllowed, ""
	}
	values := g.values()
	if v, ok := values[name]; ok {
		return http.StatusOK, v
	}
	return listing(values, name)
}

// listing answers a directory of values, one entry a line.
func listing(values map[string]string, dir string) (int, string) {
	seen := map[string]bool{}
	for k := range values {
		if rest, ok := strings.CutPrefix(k, dir+"/"); ok || dir == "" {
			if dir == "" {
				rest = k
			}
			first, _, deeper := strings.Cut(rest, "/")
			if deeper {
				first += "/"
			}
			seen[first] = true
		}
	}
	if len(seen) == 0 {
		return http.StatusNotFound, ""
	}
	return http.StatusOK, strings.Join(slices.Sorted(maps.Keys(seen)), "\n") + "\n"
}

func (g *Google) values() map[string]string {
	v := map[string]string{
		"project/project-id": g.Project, "project/numeric-project-id": g.ProjectNumber,
		"instance/id": g.ID, "instance/name": g.Name, "instance/hostname": g.Name + "." + g.Zone + ".c." + g.Project + ".internal",
		"instance/zone":                             "projects/" + g.ProjectNumber + "/zones/" + g.Zone,
		"instance/machine-type":                     "projects/" + g.ProjectNumber + "/machineTypes/" + g.Type,
		"instance/network-interfaces/0/ip":          g.InternalIP,
		"instance/image":                            g.Image,
		"instance/tags":                             g.Tags,
		"instance/service-accounts/default/aliases": "default\n",
	}
	for k, a := range g.Attributes {
		v["instance/attributes/"+k] = a
	}
	if g.ServiceAccount == "" {
		delete(v, "instance/service-accounts/default/aliases")
		return v
	}
	for _, who := range []string{"default", g.ServiceAccount} {
		at := "instance/service-accounts/" + who + "/"
		v[at+"email"], v[at+"scopes"] = g.ServiceAccount, strings.Join(g.Scopes, "\n")+"\n"
		v[at+"token"] = `{"access_token":"simulated-token","expires_in":3599,"token_type":"Bearer"}`
	}
	return v
}

// guestAttributes reads and writes the machine's guest attributes. A key is namespace/key; a namespace alone can only be
// listed ("Setting and querying guest attributes").
func (c *command) guestAttributes(method, key, value string) (status int, body string) {
	c.locked(func(m *Machine) int {
		space, name, two := strings.Cut(key, "/")
		whole := two && space != "" && name != "" && !strings.Contains(name, "/")
		switch method {
		case http.MethodPut:
			if !whole {
				status = http.StatusBadRequest
				break
			}
			if m.GuestAttributes == nil {
				m.GuestAttributes = map[string]string{}
			}
			m.GuestAttributes[key], status = value, http.StatusOK
		case http.MethodDelete:
			status = http.StatusOK
			delete(m.GuestAttributes, key)
		case http.MethodGet:
			if v, ok := m.GuestAttributes[key]; ok {
				status, body = http.StatusOK, v
				break
			}
			status, body = listing(m.GuestAttributes, key)
		default:
			status = http.StatusMethodNotAllowed
		}
		return 0
	})
	return status, body
}

// method is that of a request of curl or wget.
func (c *command) method(flags map[string]string) string {
	for _, f := range []string{"-X", "--request", "--method"} {
		if m := flags[f]; m != "" {
			return strings.ToUpper(m)
		}
	}
	switch {
	case has(flags, "-T", "--upload-file"):
		return http.MethodPut
	case has(flags, "-d", "--data", "--data-raw", "--data-binary", "--post-data"):
		return http.MethodPost
	}
	return http.MethodGet
}

// payload is what curl or wget sends.
func (c *command) payload(flags map[string]string) string {
	for _, f := range []string{"--data-raw", "--body-data", "--post-data"} {
		if has(flags, f) {
			return flags[f]
		}
	}
	for _, f := range []string{"-d", "--data", "--data-binary"} {
		v, ok := flags[f]
		if !ok {
			continue
		}
		file, isFile := strings.CutPrefix(v, "@")
		if !isFile {
			return v
		}
		text := c.contents(file)
		if f != "--data-binary" {
			text = strings.NewReplacer("\r", "", "\n", "").Replace(text)
		}
		return text
	}
	return c.contents(flags["-T"] + flags["--upload-file"])
}

func (c *command) contents(name string) (text string) {
	if name == "-" && c.stdin != nil {
		b, _ := io.ReadAll(c.stdin)
		return string(b)
	}
	if name != "" {
		c.locked(func(m *Machine) int {
			if f := m.lookup(c.path(name)); f != nil {
				text = f.Content
			}
			return 0
		})
	}
	return text
}

// header finds a header among the arguments, which may name several.
func (c *command) header(name string) string {
	for i, a := range c.args {
		var text string
		switch {
		case strings.HasPrefix(a, "--header="):
			text = strings.TrimPrefix(a, "--header=")
		case (a == "--header" || len(a) > 1 && a[0] == '-' && a[1] != '-' && a[len(a)-1] == 'H') && i+1 < len(c.args):
			text = c.args[i+1]
		case strings.HasPrefix(a, "-H"):
			text = strings.TrimPrefix(a, "-H")
		default:
			continue
		}
		if k, v, ok := strings.Cut(text, ":"); ok && strings.EqualFold(strings.TrimSpace(k), name) {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// unresolved is what curl says when nobody knows a name.
func (c *command) unresolved(host string) int {
	return c.fail(6, "%s: (6) Could not resolve host: %s", c.args[0], host)
}

// RunStartup runs a start-up script as the guest environment of Compute Engine does, at every boot after cloud-init. Its
// exit code goes to the log alone ("Use startup scripts on Linux VMs").
func (m *Machine) RunStartup(script string, env Env) Result {
	r := m.Run(script, env)
	const tag = "google_metadata_script_runner: startup-script"
	m.append(StartupLog, tag+" found in metadata.\n")
	for line := range strings.SplitSeq(strings.TrimRight(r.Stdout+r.Stderr, "\n"), "\n") {
		if line != "" {
			m.append(StartupLog, tag+": "+line+"\n")
		}
	}
	m.append(StartupLog, fmt.Sprintf("%s exit status %d\n", tag, r.Exit))
	return r
}

// StartupLog is where the output of start-up scripts goes: the system log, of which nothing else is kept.
const StartupLog = "/var/log/syslog"
