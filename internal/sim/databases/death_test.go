package databases

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

func TestMain(m *testing.M) {
	if os.Getenv("DATABASES_CHILD") != "" {
		child()
	}
	os.Exit(m.Run())
}

// child opens one datastore of each engine, says where they live, and waits for its end.
func child() {
	d, err := New(Options{})
	if err != nil {
		panic(err)
	}
	for _, engine := range []string{"postgres", "mysql", "redis"} {
		d.Open(sim.DatabaseServer{ID: engine, Engine: engine, Admin: "zopadmin", Password: adminPassword})
		for ready := false; !ready; time.Sleep(20 * time.Millisecond) {
			if ready, err = d.Ready(engine); err != nil {
				panic(err)
			}
		}
	}
	fmt.Fprintln(os.Stdout, d.temp)
	time.Sleep(time.Minute)
}

// A simulation that is killed leaves no server, and the next one deletes its folder.
func TestKilledProcessLeavesNothing(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self)
	c.Env = append(os.Environ(), "DATABASES_CHILD=1")
	c.Stderr = t.Output()
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	dir, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	dir = strings.TrimSpace(dir)
	if n := len(processes(t, dir)); n < 3 {
		t.Errorf("%d processes while it lives", n)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // killed
	for deadline := time.Now().Add(20 * time.Second); len(processes(t, dir)) > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("outlived: %q", processes(t, dir))
		}
	}
	removeLeftovers()
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is left", dir)
	}
}
