package guest

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/textproto"
	"path"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// booting says whether the session is cloud-init itself, which holds the locks that others wait for.
func (s *session) booting() bool {
	return s.machine.CloudInit == "running" && s.limits != nil && s.limits[0] == bootMark
}

// bootMark is a limit that no run reaches: it marks the sessions of cloud-init.
const bootMark = 1000 * time.Hour

// Begin is the start of a boot: cloud-init runs from now on, and its output file appears.
func (m *Machine) Begin(env Env) {
	m.CloudInit, m.CloudInitError = "running", ""
	m.remove(resultFile)
	m.append(initLog, "Cloud-init v. 25.3 running 'init' at "+env.Now.UTC().Format(time.RFC1123)+"\n")
	m.append(outputLog, "Cloud-init v. 25.3 running 'modules:final' at "+env.Now.UTC().Format(time.RFC1123)+"\n")
}

// Boot carries a boot out: on the first one all of the user data, on later ones what is to run at every boot. It answers
// how long that takes. A machine whose Begin has not been called begins now.
func (m *Machine) Boot(userData []byte, env Env) time.Duration {
	first := !m.Exists("/var/lib/cloud/instance/boot-finished")
	if m.CloudInit != "running" {
		m.Begin(env)
	}
	s := &session{machine: m, env: env, limits: []time.Duration{bootMark}}
	b := &bootRun{session: s, out: &handle{session: s, name: outputLog, appending: true}}
	b.scripts("/var/lib/cloud/scripts/per-boot")
	if first {
		b.userData(userData, 0)
	}
	m.write("/var/lib/cloud/instance/boot-finished", "", 0o644)
	if len(b.errs) > 0 {
		m.CloudInit, m.CloudInitError = "error", b.errs[0]
		for _, e := range b.errs {
			m.append(initLog, "[WARNING]: "+e+"\n")
			m.append(outputLog, "[WARNING]: "+e+"\n")
		}
	} else {
		m.CloudInit = "done"
	}
	result, _ := json.Marshal(map[string]any{"v1": map[string]any{"datasource": env.datasource(), "errors": b.errs}}) // plain text always encodes
	m.write(resultFile, string(result)+"\n", 0o644)
	m.append(outputLog, FinalMessage(env, s.spent))
	return s.spent
}

// FinalMessage is what cloud-init says last, however it ended ("final_message", cloud-init documentation).
func FinalMessage(env Env, took time.Duration) string {
	return fmt.Sprintf("Cloud-init v. 25.3 finished at %s. Datasource %s.  Up %.2f seconds\n", env.Now.Add(took).UTC().Format(time.RFC1123Z), env.datasource(), took.Seconds())
}

type bootRun struct {
	session *session
	out     io.Writer
	errs    []string
}

func (b *bootRun) fail(format string, args ...any) {
	b.errs = append(b.errs, fmt.Sprintf(format, args...))
}

// scripts runs the executable files of a directory, as run-parts does.
func (b *bootRun) scripts(dir string) {
	m := b.session.machine
	names := m.list(dir)
	slices.Sort(names)
	for _, n := range names {
		f := m.lookup(path.Join(dir, n))
		if f == nil || f.Dir || f.Mode&0o111 == 0 {
			continue
		}
		if code := b.session.script(f.Content, nil, b.out, b.out); code != 0 {
			b.fail("Failed to run %s [exit code %d]", path.Join(dir, n), code)
		}
	}
}

// maxParts bounds how deep user data may be nested.
const maxParts = 4

// userData handles one part of the user data by its first line ("User data formats", cloud-init documentation).
func (b *bootRun) userData(data []byte, depth int) {
	if depth > maxParts {
		b.fail("user data is nested too deeply")
		return
	}
	if bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		r, err := gzip.NewReader(bytes.NewReader(data))
		if err == nil {
			data, err = io.ReadAll(io.LimitReader(r, 4<<20))
		}
		if err != nil {
			b.fail("Failed to decompress user data: %v", err)
			return
		}
	}
	line, _, _ := strings.Cut(string(data), "\n")
	line = strings.TrimRight(line, " \r")
	switch {
	case len(bytes.TrimSpace(data)) == 0:
	case strings.HasPrefix(line, "#cloud-config"):
		b.config(data)
	case strings.HasPrefix(line, "#cloud-boothook"):
		b.script("boothook", strings.TrimPrefix(string(data), line))
	case strings.HasPrefix(line, "#!"):
		b.script("part-001", string(data))
	case strings.HasPrefix(strings.ToLower(line), "content-type: multipart/") || strings.HasPrefix(strings.ToLower(line), "mime-version:"):
		b.parts(data, depth)
	default:
		b.fail("Unhandled non-multipart (text/x-not-multipart) userdata: '%.40q...'", line)
	}
}

func (b *bootRun) script(name, text string) {
	m := b.session.machine
	m.write("/var/lib/cloud/instance/scripts/"+name, text, 0o700)
	if code := b.session.script(text, nil, b.out, b.out); code != 0 {
		b.fail("Failed to run %s [exit code %d]", name, code)
	}
}

func (b *bootRun) parts(data []byte, depth int) {
	head, body, ok := bytes.Cut(bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")), []byte("\n\n"))
	header := textproto.MIMEHeader{}
	for l := range strings.SplitSeq(string(head), "\n") {
		k, v, _ := strings.Cut(l, ":")
		header.Add(strings.TrimSpace(k), strings.TrimSpace(v))
	}
	_, params, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil || !ok || params["boundary"] == "" {
		b.fail("Failed to read multipart user data")
		return
	}
	r := multipart.NewReader(bytes.NewReader(body), params["boundary"])
	for {
		p, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			b.fail("Failed to read multipart user data: %v", err)
			return
		}
		text, err := io.ReadAll(io.LimitReader(p, 4<<20))
		if err == nil && strings.EqualFold(p.Header.Get("Content-Transfer-Encoding"), "base64") {
			text, err = base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(text)), ""))
		}
		if err != nil {
			b.fail("Failed to read a part of the user data: %v", err)
			continue
		}
		b.userData(text, depth+1)
	}
}

// cloudConfig is what of a #cloud-config document is carried out here. The other known keys are accepted.
type cloudConfig struct {
	Bootcmd    []any      `json:"bootcmd"`
	Runcmd     []any      `json:"runcmd"`
	WriteFiles []writeOne `json:"write_files"`
	Packages   []any      `json:"packages"`
	Update     bool       `json:"package_update"`
	Upgrade    bool       `json:"package_upgrade"`
	Hostname   string     `json:"hostname"`
}

type writeOne struct {
	Path        string `json:"path"`
	Content     string `json:"content"`
	Encoding    string `json:"encoding"`
	Permissions any    `json:"permissions"`
	Owner       string `json:"owner"`
	Append      bool   `json:"append"`
	Defer       bool   `json:"defer"`
}

func (b *bootRun) config(data []byte) {
	var doc cloudConfig
	if err := yaml.Unmarshal(data, &doc); err != nil {
		b.fail("Failed loading yaml blob. Invalid format: %v", err)
		return
	}
	m := b.session.machine
	if doc.Hostname != "" {
		m.Hostname = doc.Hostname
	}
	b.commands("bootcmd", doc.Bootcmd)
	for _, deferred := range []bool{false, true} {
		for _, f := range doc.WriteFiles {
			if f.Defer == deferred {
				b.writeFile(f)
			}
		}
		if !deferred {
			b.packages(doc)
		}
	}
	b.commands("runcmd", doc.Runcmd)
}

func (b *bootRun) writeFile(f writeOne) {
	if f.Path == "" {
		b.fail("write_files: an entry has no path")
		return
	}
	content := []byte(f.Content)
	enc := strings.ToLower(f.Encoding)
	if strings.Contains(enc, "b64") || strings.Contains(enc, "base64") {
		raw, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(f.Content), ""))
		if err != nil {
			b.fail("write_files: %s: %v", f.Path, err)
			return
		}
		content = raw
	}
	if strings.Contains(enc, "gz") {
		r, err := gzip.NewReader(bytes.NewReader(content))
		if err == nil {
			content, err = io.ReadAll(io.LimitReader(r, 4<<20))
		}
		if err != nil {
			b.fail("write_files: %s: %v", f.Path, err)
			return
		}
	}
	mode := uint32(0o644)
	switch p := f.Permissions.(type) {
	case string:
		mode = parseMode(p, mode)
	case float64: // a YAML number, already read as octal
		mode = uint32(p)
	}
	m := b.session.machine
	if f.Append {
		m.append(f.Path, string(content))
		return
	}
	m.remove(m.resolve(f.Path))
	m.write(f.Path, string(content), mode)
}

func (b *bootRun) packages(doc cloudConfig) {
	m := b.session.machine
	tool, ok := "apt-get", true
	if m.Distro == "al2023" {
		tool = "dnf"
	}
	run := func(args ...string) {
		c := &command{session: b.session, args: append([]string{tool}, args...), dir: "/", stdout: b.out, stderr: b.out}
		ok = c.run() == 0 && ok
	}
	if (doc.Update || len(doc.Packages) > 0) && tool == "apt-get" {
		run("update")
	}
	if doc.Upgrade {
		run("-y", "upgrade")
	}
	if len(doc.Packages) > 0 {
		args := []string{"-y", "install"}
		for _, p := range doc.Packages {
			switch v := p.(type) {
			case string:
				args = append(args, v)
			case []any:
				if len(v) > 0 {
					args = append(args, fmt.Sprint(v[0]))
				}
			}
		}
		run(args...)
	}
	if !ok {
		b.fail("Failed to install packages: one or more package commands failed")
	}
}

// commands runs a list of commands as one script, as cloud-init does: a failing one does not stop those after it, and the
// last one's code is the script's.
func (b *bootRun) commands(name string, list []any) {
	if len(list) == 0 {
		return
	}
	var text strings.Builder
	text.WriteString("#!/bin/sh\n")
	for _, item := range list {
		switch v := item.(type) {
		case string:
			text.WriteString(v + "\n")
		case []any:
			var words []string
			for _, w := range v {
				words = append(words, "'"+strings.ReplaceAll(fmt.Sprint(w), "'", `'\''`)+"'")
			}
			text.WriteString(strings.Join(words, " ") + "\n")
		default:
			b.fail("Failed to shellify %s: unable to shellify type %T", name, item)
			return
		}
	}
	b.script(name, text.String())
}

// Clone copies a machine.
func (m *Machine) Clone() *Machine {
	var c Machine
	data, err := json.Marshal(m)
	if err == nil {
		err = json.Unmarshal(data, &c)
	}
	if err != nil {
		panic(err) // plain data always makes the round trip
	}
	return &c
}

// Names lists the containers, for tests.
func (d Docker) Names() []string { return slices.Sorted(maps.Keys(d.Containers)) }
