package bootstrap

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// cloudInit sets what "cloud-init status --long" answers in the guest.
func (g *guest) cloudInit(answer string, code int) {
	g.t.Helper()
	g.write("standin/cloud-init", answer, 0o644)
	g.write("standin/cloud-init.code", fmt.Sprint(code), 0o644)
}

func TestProbe(t *testing.T) {
	t.Parallel()
	const secret = "hunter2hunter2"
	longLog := strings.Repeat("a line of the log that is not short at all, with \xe2\x9c\x93 and \x1b[31mcolour\n", 200) +
		"password=" + secret + " https://me:" + secret + "@host/\nthe last line\n"
	for _, tc := range []struct {
		name string
		set  func(g *guest)
		code int
		says []string
	}{
		{"nothing yet", func(*guest) {}, ProbeRunning, []string{"not started"}},
		{"cloud-init runs, code 0", func(g *guest) { g.cloudInit("status: running\n", 0) }, ProbeRunning, nil},
		{"cloud-init runs, code 2", func(g *guest) {
			g.cloudInit("status: running\nextended_status: degraded running\n", 2)
		}, ProbeRunning, nil},
		{"an early stage failed, the last one still runs", func(g *guest) {
			g.cloudInit("status: error\nextended_status: error - running\n", 1)
			g.write("run/cloud-init/result.json", "{}", 0o644)
		}, ProbeRunning, nil},
		{"an early stage failed, no extended status", func(g *guest) { g.cloudInit("status: error\n", 1) }, ProbeRunning, nil},
		{"cloud-init failed", func(g *guest) {
			g.cloudInit("status: error\nextended_status: error - done\n", 1)
			g.write("run/cloud-init/result.json", "{}", 0o644)
			g.write("var/log/cloud-init-output.log", "could not write the files\n", 0o644)
		}, ProbeFailed, []string{"cloud-init ended in error", "could not write the files"}},
		{"cloud-init done without a result", func(g *guest) { g.cloudInit("status: done\n", 0) }, ProbeFailed, []string{"left no result"}},
		{"cloud-init done with warnings, without a result", func(g *guest) {
			g.cloudInit("status: done\nextended_status: degraded done\n", 2)
		}, ProbeFailed, []string{"exit 2"}},
		{"cloud-init disabled", func(g *guest) { g.cloudInit("status: disabled\n", 0) }, ProbeFailed, []string{"disabled"}},
		{"complete", func(g *guest) {
			g.write(SentinelPath, "", 0o644)
			g.cloudInit("status: done\n", 0)
		}, ProbeComplete, []string{"bootstrap complete\n"}},
		{"complete with warnings", func(g *guest) {
			g.write(SentinelPath, "", 0o644)
			g.cloudInit("status: done\nextended_status: degraded done\n", 2)
		}, ProbeComplete, []string{"warning", "exit 2"}},
		{"complete without cloud-init", func(g *guest) { g.write(SentinelPath, "", 0o644) }, ProbeComplete, nil},
		{"failed", func(g *guest) {
			g.write(FailedPath, "step=nginx-pull\nexit=124\nreason=\n", 0o644)
			g.write(LogPath, longLog, 0o600)
		}, ProbeFailed, []string{"step=nginx-pull exit=124", "the last line\n", "***"}},
		{"running after an earlier failure", func(g *guest) {
			g.write(FailedPath, "step=nginx-pull\nexit=124\nreason=\n", 0o644)
			g.write("run/zopday/step", "docker-start\n", 0o644)
			g.write("run/zopday/lock", "", 0o644)
			holder := g.command("exec flock /run/zopday/lock sleep 30")
			g.must(holder.Start())
			g.t.Cleanup(func() {
				g.signalAll(9)
				_ = holder.Wait()
			})
			for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				if code, _ := g.sh("flock -n /run/zopday/lock true"); code != 0 {
					break
				}
				if time.Now().After(deadline) {
					g.t.Fatal("the lock was never taken")
				}
			}
		}, ProbeRunning, []string{"step docker-start"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			g := newGuest(t, OSUbuntu)
			tc.set(g)
			code, out := g.sh(ProbeScript(0))
			if code != tc.code {
				t.Errorf("exit %d, want %d: %s", code, tc.code, out)
			}
			for _, want := range tc.says {
				if !strings.Contains(out, want) {
					t.Errorf("%q is not in: %s", want, out)
				}
			}
			if len(out) > ProbeOutputLimit || len(out) == 0 {
				t.Errorf("%d bytes of output", len(out))
			}
			if strings.Contains(out, secret) || strings.Contains(out, "\x1b") || strings.Contains(out, "\xe2") {
				t.Errorf("output is not clean: %q", out)
			}
		})
	}
}

// The probe waits inside the guest and answers as soon as there is something to say.
func TestProbeWaits(t *testing.T) {
	t.Parallel()
	t.Run("until the sentinel", func(t *testing.T) {
		t.Parallel()
		g := newGuest(t, OSUbuntu)
		time.AfterFunc(1500*time.Millisecond, func() { g.write(SentinelPath, "", 0o644) })
		begin := time.Now()
		code, out := g.sh(ProbeScript(40 * time.Second))
		if took := time.Since(begin); code != ProbeComplete || took < time.Second || took > 20*time.Second {
			t.Errorf("exit %d after %s: %s", code, took, out)
		}
	})
	t.Run("until the failure", func(t *testing.T) {
		t.Parallel()
		g := newGuest(t, OSUbuntu)
		time.AfterFunc(1500*time.Millisecond, func() { g.write(FailedPath, "step=extra\nexit=1\n", 0o644) })
		code, out := g.sh(ProbeScript(40 * time.Second))
		if code != ProbeFailed {
			t.Errorf("exit %d: %s", code, out)
		}
	})
	t.Run("no longer than told", func(t *testing.T) {
		t.Parallel()
		g := newGuest(t, OSUbuntu)
		begin := time.Now()
		code, out := g.sh(ProbeScript(1500 * time.Millisecond))
		if took := time.Since(begin); code != ProbeRunning || took < time.Second || took > 20*time.Second {
			t.Errorf("exit %d after %s: %s", code, took, out)
		}
	})
}

// The probe against the script itself, from before its start to its end.
func TestProbeFollowsTheScript(t *testing.T) {
	t.Parallel()
	g := newGuest(t, OSUbuntu)
	g.fault("docker pull*", "hang", 1)
	runcmd := g.lay(shapes["ubuntu aws"])
	g.cloudInit("status: running\n", 0)
	code, out := g.sh(ProbeScript(0))
	if code != ProbeRunning {
		t.Errorf("before: exit %d: %s", code, out)
	}
	cmd := g.command(runcmd)
	g.must(cmd.Start())
	g.waitForCall("docker pull")
	code, out = g.sh(ProbeScript(0))
	if code != ProbeRunning || !strings.Contains(out, "step nginx-pull") {
		t.Errorf("during: exit %d: %s", code, out)
	}
	g.signalAll(9) // power off
	_ = cmd.Wait()
	g.waitForEnd()
	g.cloudInit("status: error\nextended_status: error - done\n", 1)
	g.write("run/cloud-init/result.json", "{}", 0o644)
	if code, out = g.sh(ProbeScript(0)); code != ProbeFailed || !strings.Contains(out, "step nginx-pull") {
		t.Errorf("killed: exit %d: %s", code, out)
	}
	g.noFaults()
	g.wantComplete(g.laterBoot())
	g.cloudInit("status: done\n", 0)
	if code, out = g.sh(ProbeScript(0)); code != ProbeComplete {
		t.Errorf("after: exit %d: %s", code, out)
	}
}

func TestProbeScriptSeconds(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]string{
		-time.Second: "WAIT=0\n", 0: "WAIT=0\n", time.Millisecond: "WAIT=1\n", 25 * time.Second: "WAIT=25\n", 1500 * time.Millisecond: "WAIT=2\n",
	} {
		if got := ProbeScript(wait); !strings.Contains(got, "\n"+want) {
			t.Errorf("%s: no %q", wait, want)
		}
	}
}
