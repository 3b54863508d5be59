package bootstrap

import (
	"strings"
	"testing"
)

// A VM of Compute Engine tells how far it is, and what went wrong; those of other clouds do not.
func TestReport(t *testing.T) {
	t.Parallel()
	attribute := func(g *guest, key string) string { return g.read("standin/attributes/" + key) }

	t.Run("complete", func(t *testing.T) {
		t.Parallel()
		g := newGuest(t, OSUbuntu)
		g.wantComplete(g.firstBoot(shapes["ubuntu gcp"]))
		if got := attribute(g, AttributeState); got != ReportedComplete+"\n" {
			t.Errorf("state %q", got)
		}
		if g.exists("standin/attributes/" + AttributeLog) {
			t.Error("a bootstrap that worked published its log")
		}
	})
	t.Run("failed", func(t *testing.T) {
		t.Parallel()
		g := newGuest(t, OSUbuntu)
		g.fault("docker pull*", "41", -1)
		code, out := g.firstBoot(shapes["ubuntu gcp"])
		g.wantFailed(code, out, "nginx-pull")
		if got, want := attribute(g, AttributeState), ReportedFailed+" step nginx-pull, exit 41\n"; got != want {
			t.Errorf("state %q, want %q", got, want)
		}
		if got := attribute(g, AttributeLog); !strings.Contains(got, "failed: step nginx-pull, exit 41") {
			t.Errorf("log %q", got)
		}
		g.noFaults()
		g.wantComplete(g.laterBoot())
		if got := attribute(g, AttributeState); got != ReportedComplete+"\n" {
			t.Errorf("state %q after the next boot", got)
		}
	})
	t.Run("running", func(t *testing.T) {
		t.Parallel()
		g := newGuest(t, OSUbuntu)
		g.fault("curl*bootstrap", "41", 1) // of the step before the one that hangs
		g.env = append(g.env, "ZOP_WORK=4")
		g.fault("docker pull*", "hang", -1)
		done := make(chan struct{})
		go func() {
			defer close(done)
			g.firstBoot(shapes["ubuntu gcp"])
		}()
		g.waitForCall("docker pull")
		if got := attribute(g, AttributeState); got != ReportedRunning+" nginx-pull\n" {
			t.Errorf("state %q", got)
		}
		<-done
	})
	t.Run("another cloud", func(t *testing.T) {
		t.Parallel()
		g := newGuest(t, OSDebian)
		g.wantComplete(g.firstBoot(shapes["debian azure"]))
		if g.exists("standin/attributes") {
			t.Error("it published guest attributes")
		}
	})
}

// What is published can be read by whoever may look at the VM: secrets in the log are masked.
func TestReportMasksSecrets(t *testing.T) {
	t.Parallel()
	const secret = "hunter2hunter2"
	g := newGuest(t, OSUbuntu)
	o := shapes["ubuntu gcp"]
	o.Extra = "#!/bin/sh\nprintf 'pass%s=%s\\n' word " + secret + "\nprintf 'https:/''/%s:%s''@host/\\n' me " + secret + "\nexit 3\n"
	code, out := g.firstBoot(o)
	g.wantFailed(code, out, "extra")
	log := g.read("standin/attributes/" + AttributeLog)
	if strings.Contains(log, secret) || !strings.Contains(log, "https://me:***@host/") || !strings.Contains(log, "password=***") {
		t.Errorf("log %q", log)
	}
}
