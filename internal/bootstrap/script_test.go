package bootstrap

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const extraScript = "#!/bin/sh\nset -e\necho ran >>/standin/extra-runs\n"

// shapes are the kinds of VM that differ in what the script does.
var shapes = map[string]Options{
	"ubuntu aws":            {Cloud: CloudAWS, OS: OSUbuntu},
	"ubuntu aws bare metal": {Cloud: CloudAWS, OS: OSUbuntu, Mode: ModeBareMetal},
	"ubuntu aws extra":      {Cloud: CloudAWS, OS: OSUbuntu, Extra: extraScript},
	"al2023 aws":            {Cloud: CloudAWS, OS: OSAL2023, Extra: extraScript},
	"ubuntu gcp":            {Cloud: CloudGCP, OS: OSUbuntu},
	"debian gcp bare metal": {Cloud: CloudGCP, OS: OSDebian, Mode: ModeBareMetal},
	"debian azure":          {Cloud: CloudAzure, OS: OSDebian},
}

func (g *guest) wantComplete(code int, out string) {
	g.t.Helper()
	if code != 0 || !g.exists(SentinelPath) || g.exists(FailedPath) {
		g.t.Fatalf("exit %d, sentinel %t, failed file %t; want 0, true, false\n%s\n%s",
			code, g.exists(SentinelPath), g.exists(FailedPath), out, g.read(LogPath))
	}
}

func (g *guest) wantFailed(code int, out, step string) {
	g.t.Helper()
	failed := g.read(FailedPath)
	if code == 0 || g.exists(SentinelPath) ||
		!strings.Contains(failed, "step="+step+"\n") || !strings.Contains(failed, fmt.Sprintf("exit=%d\n", code)) {
		g.t.Fatalf("exit %d, sentinel %t, failed file %q; want a failure in step %s without a sentinel\n%s\n%s",
			code, g.exists(SentinelPath), failed, step, out, g.read(LogPath))
	}
	if !strings.Contains(out, "step "+step) {
		g.t.Errorf("the console got %q, which does not name step %s", out, step)
	}
}

func TestScriptCompletes(t *testing.T) {
	t.Parallel()
	for name, o := range shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuest(t, o.OS)
			g.wantComplete(g.firstBoot(o))
			if !g.exists("standin/docker/network-" + NetworkName) {
				t.Error("no bridge network")
			}
			if got, want := g.read("standin/docker/"+ContainerName) == "true\n", o.Mode != ModeBareMetal; got != want {
				t.Errorf("NGINX runs: %t, want %t", got, want)
			}
			agent := g.exists("standin/units/amazon-ssm-agent.active") || g.exists("standin/units/snap.amazon-ssm-agent.amazon-ssm-agent.active")
			if want := o.Cloud == CloudAWS; agent != want {
				t.Errorf("SSM agent runs: %t, want %t", agent, want)
			}
			if got, want := g.exists("standin/extra-runs"), o.Extra != ""; got != want {
				t.Errorf("the extra script ran: %t, want %t", got, want)
			}
		})
	}
}

func TestAptSource(t *testing.T) {
	t.Parallel()
	g := newGuest(t, OSUbuntu)
	g.wantComplete(g.firstBoot(Options{Cloud: CloudAWS, OS: OSUbuntu, DockerRepo: "https://mirror.example.test/docker"}))
	want := `Types: deb
URIs: https://mirror.example.test/docker/ubuntu
Suites: noble
Components: stable
Architectures: amd64
Signed-By: /etc/apt/keyrings/docker.asc
`
	if diff := cmp.Diff(want, g.read("etc/apt/sources.list.d/docker.sources")); diff != "" {
		t.Error(diff)
	}
}

// A second run, on a later boot, changes no file and makes no call that changes anything.
func TestSecondRunChangesNothing(t *testing.T) {
	t.Parallel()
	for name, o := range shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGuest(t, o.OS)
			g.wantComplete(g.firstBoot(o))
			before, calls := g.tree(), len(g.calls())
			if len(mutating(g.calls())) == 0 {
				t.Fatal("the first run made no mutating call: the books are wrong")
			}
			g.wantComplete(g.laterBoot())
			if diff := cmp.Diff(before, g.tree()); diff != "" {
				t.Errorf("files changed:\n%s", diff)
			}
			again := g.calls()[calls:]
			if len(again) == 0 {
				t.Error("the second run looked at nothing")
			}
			if m := mutating(again); len(m) > 0 {
				t.Errorf("mutating calls: %q", m)
			}
		})
	}
}

// tolerated reports whether the failure of a look means no more than "not there yet", or whether
// something later makes up for it.
func tolerated(o Options, line string) bool {
	if strings.Contains(line, "/guest-attributes/") { // the sentinel counts, not who was told of it
		return true
	}
	switch line {
	case "systemctl is-enabled --quiet docker", "systemctl is-active --quiet docker", // only whether to start it
		"docker network inspect " + NetworkName,
		"docker image inspect " + DefaultNginxImage,
		"docker inspect -f {{.State.Running}} " + ContainerName,
		"snap list amazon-ssm-agent",
		"dpkg --audit": // its words count, not its code
		return true
	case "systemctl is-active --quiet amazon-ssm-agent": // on Ubuntu the snap's unit has another name
		return o.OS == OSUbuntu
	case "systemctl is-active --quiet snap.amazon-ssm-agent.amazon-ssm-agent":
		return o.OS == OSAL2023
	}
	return false
}

// Every call that a run makes is made to fail for good, one in each guest: there must be no
// sentinel, and the failure must name the step. With the fault gone the next boot completes.
func TestEachFailureLeavesNoSentinel(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ubuntu aws extra", "al2023 aws", "debian gcp bare metal"} {
		o := shapes[name]
		model := newGuest(t, o.OS)
		model.wantComplete(model.firstBoot(o))
		seen := map[string]bool{}
		for _, c := range model.calls() {
			if seen[c.line] {
				continue
			}
			seen[c.line] = true
			t.Run(name+"/"+c.line, func(t *testing.T) {
				t.Parallel()
				g := newGuest(t, o.OS)
				// Of the line's own characters only these mean something in a pattern.
				g.fault(strings.NewReplacer("[", "[[]", "*", "[*]", "?", "[?]").Replace(c.line), "41", -1)
				code, out := g.firstBoot(o)
				if tolerated(o, c.line) {
					g.wantComplete(code, out)
					return
				}
				g.wantFailed(code, out, c.step)
				g.noFaults()
				g.wantComplete(g.laterBoot())
			})
		}
	}
}

// A fault that passes within the tries is not seen from outside.
func TestPassingFaultsAreRetried(t *testing.T) {
	t.Parallel()
	for _, pattern := range []string{
		"snap install*", "curl -fsSL*", "apt-get*update", "apt-get*install*", "docker network create*", "docker pull*",
	} {
		t.Run(pattern, func(t *testing.T) {
			t.Parallel()
			g := newGuest(t, OSUbuntu)
			g.fault(pattern, "41", 1)
			g.wantComplete(g.firstBoot(shapes["ubuntu aws"]))
		})
	}
}

// Whatever hangs is ended: no step waits for ever on a network without a way out.
func TestHangingCommandsAreEnded(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ shape, pattern, step string }{
		{"ubuntu aws", "snap wait*", "ssm-agent"},
		{"ubuntu aws", "snap install*", "ssm-agent"},
		{"ubuntu aws", "curl -fsSL*", "docker-install"},
		{"ubuntu aws", "apt-get*update", "docker-install"},
		{"ubuntu aws", "apt-get*install*", "docker-install"},
		{"ubuntu aws", "docker info*", "docker-start"},
		{"ubuntu aws", "docker network create*", "docker-network"},
		{"ubuntu aws", "docker pull*", "nginx-pull"},
		{"ubuntu aws", "docker run*", "nginx-run"},
		{"ubuntu aws", "curl*healthz", "nginx-health"},
		{"al2023 aws", "dnf*install docker", "docker-install"},
	} {
		t.Run(tc.pattern, func(t *testing.T) {
			t.Parallel()
			o := shapes[tc.shape]
			g := newGuest(t, o.OS)
			g.env = append(g.env, "ZOP_FETCH=3", "ZOP_WORK=3", "ZOP_QUICK=3", "ZOP_LOCK_WAIT=1")
			g.fault(tc.pattern, "hang", -1)
			code, out := g.firstBoot(o)
			g.wantFailed(code, out, tc.step)
		})
	}
}

func TestOverallDeadline(t *testing.T) {
	t.Parallel()
	g := newGuest(t, OSUbuntu)
	g.env = append(g.env, "ZOP_DEADLINE=4", "ZOP_TRIES=1000", "ZOP_WORK=600")
	g.fault("snap wait*", "hang", -1)
	begin := time.Now()
	code, out := g.firstBoot(shapes["ubuntu aws"])
	g.wantFailed(code, out, "ssm-agent")
	if took := time.Since(begin); took > 60*time.Second {
		t.Errorf("took %s", took)
	}
	if !strings.Contains(g.read(FailedPath), "reason=out of time") {
		t.Errorf("failed file: %s", g.read(FailedPath))
	}
}

// Both package locks, held by somebody else for a while, are waited out; held for ever, they are
// named.
func TestPackageLock(t *testing.T) {
	t.Parallel()
	for _, lock := range []string{"lists-lock", "dpkg-lock"} {
		t.Run(lock+" for a while", func(t *testing.T) {
			t.Parallel()
			g := newGuest(t, OSUbuntu)
			g.env = append(g.env, "ZOP_PAUSE=1", "ZOP_LOCK_WAIT=30")
			g.write("standin/"+lock, "", 0o644)
			var wg sync.WaitGroup
			wg.Go(func() {
				time.Sleep(3 * time.Second)
				g.remove("standin/" + lock)
			})
			begin := time.Now()
			code, out := g.firstBoot(shapes["ubuntu aws"])
			wg.Wait()
			g.wantComplete(code, out)
			if took := time.Since(begin); took < 2*time.Second {
				t.Errorf("done after %s: the lock was not waited for", took)
			}
		})
		t.Run(lock+" for ever", func(t *testing.T) {
			t.Parallel()
			g := newGuest(t, OSUbuntu)
			g.env = append(g.env, "ZOP_PAUSE=1", "ZOP_LOCK_WAIT=2")
			g.write("standin/"+lock, "", 0o644)
			code, out := g.firstBoot(shapes["ubuntu aws"])
			g.wantFailed(code, out, "docker-install")
			if !strings.Contains(g.read(FailedPath), "package lock still held") {
				t.Errorf("failed file: %s", g.read(FailedPath))
			}
		})
	}
}

// The stand-in speaks as apt-get does: the real one, meeting a held list lock, says words that the
// script takes for a lock, whatever DPkg::Lock::Timeout is.
func TestLockWordsOfRealApt(t *testing.T) {
	t.Parallel()
	tool := requireTool(t, "apt-get")
	lists := t.TempDir()
	held, err := os.Create(filepath.Join(lists, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := syscall.FcntlFlock(held.Fd(), syscall.F_SETLK, &syscall.Flock_t{Type: syscall.F_WRLCK}); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(tool, "-q", "-y", "-o", "DPkg::Lock::Timeout=1", "-o", "Dir::State::Lists="+lists, "update")
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("apt-get did not mind the lock: %s", out)
	}
	_, rest, found := strings.Cut(script, "grep -Eq '")
	pattern, _, _ := strings.Cut(rest, "'")
	if !found || !regexp.MustCompile(pattern).Match(out) {
		t.Errorf("%q does not match %q", out, pattern)
	}
}

func TestOddGuests(t *testing.T) {
	t.Parallel()
	o := shapes["ubuntu aws"]
	t.Run("another image than the job says", func(t *testing.T) {
		t.Parallel()
		g := newGuest(t, OSUbuntu)
		g.write("etc/os-release", "ID=fedora\n", 0o644)
		code, out := g.firstBoot(o)
		g.wantFailed(code, out, "preflight")
	})
	t.Run("no snap and no agent", func(t *testing.T) {
		t.Parallel()
		g := newGuest(t, OSUbuntu)
		g.remove("usr/bin/snap")
		code, out := g.firstBoot(o)
		g.wantFailed(code, out, "ssm-agent")
		if !strings.Contains(g.read(FailedPath), "reason=no snap here") {
			t.Errorf("failed file: %s", g.read(FailedPath))
		}
	})
	t.Run("agent runs already", func(t *testing.T) {
		t.Parallel()
		g := newGuest(t, OSUbuntu)
		g.write("standin/units/snap.amazon-ssm-agent.amazon-ssm-agent.active", "", 0o644)
		g.remove("usr/bin/snap")
		g.wantComplete(g.firstBoot(o))
	})
	t.Run("no curl", func(t *testing.T) {
		t.Parallel()
		g := newGuest(t, OSUbuntu)
		g.remove("usr/bin/curl")
		g.wantComplete(g.firstBoot(o))
	})
	t.Run("dpkg was cut short", func(t *testing.T) {
		t.Parallel()
		g := newGuest(t, OSUbuntu)
		g.write("standin/audit", "docker-ce is only half configured\n", 0o644)
		g.wantComplete(g.firstBoot(o))
	})
	t.Run("a sign-in page in place of the key", func(t *testing.T) {
		t.Parallel()
		g := newGuest(t, OSUbuntu)
		g.write("standin/portal", "", 0o644)
		code, out := g.firstBoot(o)
		g.wantFailed(code, out, "docker-install")
		if g.exists("etc/apt/keyrings/docker.asc") {
			t.Error("the page was taken as a key")
		}
	})
	t.Run("port 80 taken, then free", func(t *testing.T) {
		t.Parallel()
		g := newGuest(t, OSUbuntu)
		g.write("standin/port-80-taken", "", 0o644)
		code, out := g.firstBoot(o)
		g.wantFailed(code, out, "nginx-run")
		code, out = g.laterBoot()
		g.wantFailed(code, out, "nginx-run")
		g.remove("standin/port-80-taken")
		g.wantComplete(g.laterBoot())
	})
	t.Run("NGINX stopped by hand", func(t *testing.T) {
		t.Parallel()
		g := newGuest(t, OSUbuntu)
		g.wantComplete(g.firstBoot(o))
		g.write("standin/docker/"+ContainerName, "false\n", 0o644)
		g.wantComplete(g.laterBoot())
		if got := g.read("standin/docker/" + ContainerName); got != "true\n" {
			t.Errorf("running: %s", got)
		}
	})
	t.Run("broken after it was complete", func(t *testing.T) {
		t.Parallel()
		g := newGuest(t, OSUbuntu)
		g.wantComplete(g.firstBoot(o))
		g.fault("docker info*", "1", -1)
		code, out := g.laterBoot()
		g.wantFailed(code, out, "docker-start")
	})
}

func TestExtraScript(t *testing.T) {
	t.Parallel()
	boot := func(t *testing.T, extra string) (*guest, int, string) {
		g := newGuest(t, OSUbuntu)
		g.env = append(g.env, "ZOP_WORK=8")
		code, out := g.firstBoot(Options{Cloud: CloudAWS, OS: OSUbuntu, Extra: extra})
		return g, code, out
	}
	t.Run("fails", func(t *testing.T) {
		t.Parallel()
		g, code, out := boot(t, "exit 99\n")
		g.wantFailed(code, out, "extra")
		if code != 99 {
			t.Errorf("exit %d, want the script's own 99", code)
		}
	})
	t.Run("fails midway without a shebang", func(t *testing.T) {
		t.Parallel()
		g, code, out := boot(t, "grep -q nothing /etc/os-release\ntrue\n")
		g.wantFailed(code, out, "extra")
	})
	t.Run("hangs", func(t *testing.T) {
		t.Parallel()
		g, code, out := boot(t, "sleep 300\n")
		g.wantFailed(code, out, "extra")
	})
	t.Run("leaves a daemon behind", func(t *testing.T) {
		t.Parallel()
		g, code, out := boot(t, "sleep 100 &\n")
		g.wantComplete(code, out)
		begin := time.Now()
		g.wantComplete(g.sh("exec " + perBoot)) // on the same boot, so under the same lock file
		if took := time.Since(begin); took > 50*time.Second {
			t.Errorf("the next run waited %s for the daemon", took)
		}
	})
	t.Run("runs before the sentinel, once", func(t *testing.T) {
		t.Parallel()
		g, code, out := boot(t, "[ ! -e "+SentinelPath+" ]\n"+extraScript)
		g.wantComplete(code, out)
		g.wantComplete(g.laterBoot())
		if got := g.read("standin/extra-runs"); got != "ran\n" {
			t.Errorf("runs: %q", got)
		}
	})
	t.Run("arrives byte for byte", func(t *testing.T) {
		t.Parallel()
		extra := "#!/bin/sh\ncat >/tmp/out <<'END'\n  indented\n\ttab \xc3\xa9 'quote' \"two\" $HOME: {{x}} #\n   \n\nEND\n\n\n"
		g, code, out := boot(t, extra)
		g.wantComplete(code, out)
		if diff := cmp.Diff("  indented\n\ttab \xc3\xa9 'quote' \"two\" $HOME: {{x}} #\n   \n\n", g.read("tmp/out")); diff != "" {
			t.Error(diff)
		}
	})
}

// A VM that is switched off in the middle of any step goes on at its next boot; one that is only
// told to stop leaves a word.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		step  string
		words []string
	}{
		{"ssm-agent", []string{"snap install"}},
		{"docker-install", []string{"apt-get", " install "}},
		{"nginx-pull", []string{"docker pull"}},
		{"nginx-run", []string{"docker run"}},
	} {
		for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
			t.Run(fmt.Sprintf("%s %s", tc.step, sig), func(t *testing.T) {
				t.Parallel()
				g := newGuest(t, OSUbuntu)
				g.env = append(g.env, "ZOP_QUICK=60")
				g.fault("*"+strings.Join(tc.words, "*")+"*", "hang", -1)
				cmd := g.command(g.lay(shapes["ubuntu aws"]))
				g.must(cmd.Start())
				g.waitForCall(tc.words...)
				g.signalAll(sig) // as a machine that stops does
				if err := cmd.Wait(); err == nil {
					t.Fatal("the run ended well in spite of the signal")
				}
				g.waitForEnd()
				if g.exists(SentinelPath) {
					t.Fatal("a sentinel after an interrupted run")
				}
				if sig == syscall.SIGTERM && !strings.Contains(g.read(FailedPath), "step="+tc.step) {
					t.Errorf("failed file: %q", g.read(FailedPath))
				}
				g.noFaults()
				g.wantComplete(g.laterBoot())
			})
		}
	}
}

func TestRunsDoNotOverlap(t *testing.T) {
	t.Parallel()
	g := newGuest(t, OSUbuntu)
	runcmd := g.lay(shapes["ubuntu aws"])
	var wg sync.WaitGroup
	codes := make([]int, 3)
	for i := range codes {
		wg.Go(func() { codes[i], _ = g.sh(runcmd) })
	}
	wg.Wait()
	if diff := cmp.Diff([]int{0, 0, 0}, codes); diff != "" {
		t.Error(diff)
	}
	count := map[string]int{}
	for _, line := range mutating(g.calls()) {
		count[line]++
	}
	for line, n := range count {
		if n > 1 && !strings.HasSuffix(line, "update") {
			t.Errorf("%d times: %s", n, line)
		}
	}
}
