package bootstrap

import (
	"bytes"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// A guest is a throw-away root directory with a shell and the core utilities copied from this
// machine, and stand-ins for what changes a real one: the package tools, systemd, snap, curl and
// docker. The script runs in it by chroot, so it uses its real paths.
type guest struct {
	t    *testing.T
	root string
	env  []string
}

// The whole of what a guest has besides the stand-ins. A command that the script uses and that is
// not here fails the tests, which is how its needs stay known.
var guestTools = []string{
	"bash", "dash", "cat", "chmod", "cp", "date", "env", "flock", "grep", "head", "install", "ln",
	"mkdir", "mv", "rm", "sed", "sha256sum", "sleep", "tail", "timeout", "touch", "tr", "true",
}

var workDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "bootstrap-guests-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	workDir = dir
	flag.Parse()
	// These tests mostly wait, so more of them than there are processors may run side by side.
	if err := flag.Set("test.parallel", "12"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// base is the part that all guests share by hard links.
var base = sync.OnceValues(func() (string, error) {
	root := filepath.Join(workDir, "base")
	for _, dir := range []string{"usr/bin", "usr/sbin", "usr/lib", "usr/lib64"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return "", err
		}
	}
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+dir, filepath.Join(root, dir)); err != nil {
			return "", err
		}
	}
	for _, tool := range guestTools {
		path, err := exec.LookPath(tool)
		if err != nil {
			return "", fmt.Errorf("the guest needs %s: %w", tool, err)
		}
		if err := copyFile(path, filepath.Join(root, "usr/bin", tool)); err != nil {
			return "", err
		}
		libs, err := exec.Command("ldd", path).Output()
		if err != nil {
			return "", fmt.Errorf("ldd %s: %w", path, err)
		}
		for word := range strings.FieldsSeq(string(libs)) {
			if !strings.HasPrefix(word, "/") {
				continue
			}
			if err := copyFile(word, filepath.Join(root, word)); err != nil {
				return "", err
			}
		}
	}
	return root, nil
})

func copyFile(from, to string) error {
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o755)
}

var guestCount struct {
	sync.Mutex
	n int
}

// newGuest boots nothing yet: it lays out a machine image of the wanted OS.
func newGuest(t *testing.T, osName string) *guest {
	t.Helper()
	from, err := base()
	if err != nil {
		t.Fatal(err)
	}
	guestCount.Lock()
	guestCount.n++
	root := filepath.Join(workDir, fmt.Sprintf("guest%d", guestCount.n))
	guestCount.Unlock()
	if out, err := exec.Command("cp", "-al", from, root).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v: %s", err, out)
	}
	t.Cleanup(func() {
		g := guest{t: t, root: root}
		g.signalAll(syscall.SIGKILL)
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	g := &guest{t: t, root: root, env: []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin",
		// Limits that a run on a busy machine keeps; a test of a limit sets its own.
		"ZOP_TRIES=2", "ZOP_PAUSE=0", "ZOP_QUICK=6", "ZOP_FETCH=60", "ZOP_WORK=60", "ZOP_LOCK_WAIT=60", "ZOP_DEADLINE=150",
	}}
	for _, dir := range []string{
		"dev", "etc/apt/sources.list.d", "run", "tmp", "var/log", "var/lib",
		"standin/faults", "standin/units", "standin/docker", "standin/packages",
	} {
		g.must(os.MkdirAll(g.path(dir), 0o755))
	}
	// Without the right to make a device an ordinary file does, as nothing reads from it.
	if err := syscall.Mknod(g.path("dev/null"), syscall.S_IFCHR|0o666, 1<<8|3); err != nil {
		g.write("dev/null", "", 0o666)
	} else {
		g.must(os.Chmod(g.path("dev/null"), 0o666))
	}
	g.install(osName)
	return g
}

func (g *guest) install(osName string) {
	g.t.Helper()
	shell, tools := "dash", []string{"apt-get", "dpkg"}
	switch osName {
	case OSUbuntu:
		g.write("etc/os-release", "ID=ubuntu\nVERSION_ID=\"24.04\"\nVERSION_CODENAME=noble\nUBUNTU_CODENAME=noble\n", 0o644)
		tools = append(tools, "snap")
	case OSDebian:
		g.write("etc/os-release", "ID=debian\nVERSION_ID=\"13\"\nVERSION_CODENAME=trixie\n", 0o644)
	case OSAL2023:
		shell, tools = "bash", []string{"dnf"}
		g.write("etc/os-release", "ID=\"amzn\"\nVERSION_ID=\"2023\"\n", 0o644)
	}
	g.must(os.Symlink(shell, g.path("usr/bin/sh")))
	for _, tool := range append(tools, "systemctl", "curl", "cloud-init") {
		g.standin(tool, "usr/bin")
	}
	for _, tool := range []string{"docker", "dockerd", "curl"} {
		g.standin(tool, "standin/packages")
	}
	g.standin("common", "standin")
}

func (g *guest) standin(name, dir string) {
	g.t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata/standins", name))
	g.must(err)
	g.write(filepath.Join(dir, name), string(data), 0o755)
}

func (g *guest) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *guest) path(p string) string { return filepath.Join(g.root, p) }

func (g *guest) write(path, content string, mode fs.FileMode) {
	g.t.Helper()
	g.must(os.MkdirAll(filepath.Dir(g.path(path)), 0o755))
	g.must(os.WriteFile(g.path(path), []byte(content), mode))
	g.must(os.Chmod(g.path(path), mode)) // past the umask
}

func (g *guest) remove(path string) {
	g.t.Helper()
	g.must(os.RemoveAll(g.path(path)))
}

func (g *guest) exists(path string) bool {
	g.t.Helper()
	_, err := os.Stat(g.path(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		g.t.Fatal(err)
	}
	return err == nil
}

// read returns a file's content, empty if there is none.
func (g *guest) read(path string) string {
	g.t.Helper()
	data, err := os.ReadFile(g.path(path))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		g.t.Fatal(err)
	}
	return string(data)
}

// cloudConfig is what the tests, like cloud-init, read out of the user data.
type cloudConfig struct {
	WriteFiles []struct {
		Path        string `json:"path"`
		Permissions string `json:"permissions"`
		Encoding    string `json:"encoding"`
		Content     string `json:"content"`
	} `json:"write_files"`
	RunCmd [][]string `json:"runcmd"`
}

func parse(t *testing.T, data []byte) cloudConfig {
	t.Helper()
	if !bytes.HasPrefix(data, []byte("#cloud-config\n")) {
		t.Fatalf("user data starts with %.20q, not with #cloud-config", data)
	}
	var c cloudConfig
	if err := yaml.UnmarshalStrict(data, &c); err != nil {
		t.Fatal(err)
	}
	for i, f := range c.WriteFiles {
		if f.Encoding == "b64" {
			plain, err := base64.StdEncoding.DecodeString(f.Content)
			if err != nil {
				t.Fatal(err)
			}
			c.WriteFiles[i].Content = string(plain)
		}
	}
	return c
}

// firstBoot does what cloud-init does with the user data: the files, then runcmd as one script
// whose code is that of its last command.
func (g *guest) firstBoot(o Options) (int, string) {
	g.t.Helper()
	return g.sh(g.lay(o))
}

// lay writes the files and returns the script made of runcmd.
func (g *guest) lay(o Options) string {
	g.t.Helper()
	data, _, err := UserData(o)
	g.must(err)
	c := parse(g.t, data)
	for _, f := range c.WriteFiles {
		var mode uint32
		_, err := fmt.Sscanf(f.Permissions, "%o", &mode)
		g.must(err)
		g.write(f.Path, f.Content, fs.FileMode(mode))
	}
	var script strings.Builder
	for _, words := range c.RunCmd {
		for _, w := range words {
			script.WriteString("'" + w + "' ")
		}
		script.WriteString("\n")
	}
	return script.String()
}

// laterBoot does what cloud-init does on any later boot: the per-boot scripts, with /run emptied.
func (g *guest) laterBoot() (int, string) {
	g.t.Helper()
	g.remove("run")
	g.must(os.Mkdir(g.path("run"), 0o755))
	return g.sh("exec " + perBoot)
}

func (g *guest) command(script string) *exec.Cmd {
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Dir = "/"
	cmd.Env = g.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: g.root, Setpgid: true}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return cmd
}

// sh runs a script in the guest and returns its exit code and output. A run over three
// minutes is ended with its whole process group and fails the test.
func (g *guest) sh(script string) (int, string) {
	g.t.Helper()
	const limit = 3 * time.Minute
	cmd := g.command(script)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = 5 * time.Second
	g.must(cmd.Start())
	timer := time.AfterFunc(limit, func() {
		g.t.Errorf("still running after %s", limit)
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	})
	err := cmd.Wait()
	timer.Stop()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		g.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

// fault makes calls whose command line matches the shell pattern fail with a code, or hang, for
// the given number of times; -1 means always.
func (g *guest) fault(pattern, action string, times int) {
	g.t.Helper()
	entries, err := os.ReadDir(g.path("standin/faults"))
	g.must(err)
	g.write(fmt.Sprintf("standin/faults/%03d", len(entries)), fmt.Sprintf("%s\n%s\n%d\n", pattern, action, times), 0o644)
}

func (g *guest) noFaults() {
	g.t.Helper()
	g.remove("standin/faults")
	g.must(os.Mkdir(g.path("standin/faults"), 0o755))
}

type call struct{ step, line string }

// calls returns every call of a stand-in, with the step it was made in.
func (g *guest) calls() []call {
	g.t.Helper()
	var calls []call
	for line := range strings.Lines(g.read("standin/calls")) {
		step, rest, _ := strings.Cut(strings.TrimSpace(line), "|")
		calls = append(calls, call{step, rest})
	}
	return calls
}

// mutating are the calls that change a machine; the rest only look.
func mutating(calls []call) []string {
	var found []string
	for _, c := range calls {
		for _, part := range []string{
			"apt-get ", "dnf ", "snap install", "snap start", "systemctl enable", "dpkg --configure", "curl -fsSL",
			"docker network create", "docker pull", "docker run", "docker start", "docker rm",
		} {
			if strings.HasPrefix(c.line, part) {
				found = append(found, c.line)
			}
		}
	}
	return found
}

// tree is every file of the guest with its mode, time and content, but for the logs, /run and
// the stand-ins' books.
func (g *guest) tree() map[string]string {
	g.t.Helper()
	tree := map[string]string{}
	g.must(filepath.WalkDir(g.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(g.root, path)
		switch rel {
		case "run", "var/log", "standin/faults", "standin/attributes", "dev":
			return fs.SkipDir
		case "standin/calls":
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		entry := info.Mode().String()
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			entry += fmt.Sprintf(" %s %d bytes", info.ModTime().Format(time.RFC3339Nano), len(data))
			if len(data) < 1<<16 {
				entry += " " + string(data)
			}
		}
		tree[rel] = entry
		return nil
	}))
	return tree
}

// waitForCall waits until a stand-in was called with all the words in its command line.
func (g *guest) waitForCall(words ...string) {
	g.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
	next:
		for _, c := range g.calls() {
			for _, w := range words {
				if !strings.Contains(c.line, w) {
					continue next
				}
			}
			return
		}
	}
	g.t.Fatalf("no call with %q; got %v", words, g.calls())
}

// waitForEnd waits until no process of the guest is left.
func (g *guest) waitForEnd() {
	g.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if len(g.processes()) == 0 {
			return
		}
	}
	g.t.Fatalf("processes left: %v", g.processes())
}

// processes are those that have this guest as their root directory.
func (g *guest) processes() []int {
	g.t.Helper()
	roots, err := filepath.Glob("/proc/[0-9]*/root")
	g.must(err)
	var pids []int
	for _, link := range roots {
		if to, err := os.Readlink(link); err != nil || to != g.root {
			continue
		}
		pid, err := strconv.Atoi(strings.Split(link, "/")[2])
		g.must(err)
		pids = append(pids, pid)
	}
	return pids
}

func (g *guest) signalAll(sig syscall.Signal) {
	g.t.Helper()
	for _, pid := range g.processes() {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			g.t.Error(err)
		}
	}
}
