package main

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/cli"
)

// background runs a command until the test ends it, and waits for its output
// to match.
func background(t *testing.T, env map[string]string, ready *regexp.Regexp, args ...string) (out func() string, stop func() int) {
	t.Helper()
	var o, e output
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan int, 1)
	home := t.TempDir()
	go func() {
		done <- cli.Main(ctx, args, cli.Streams{In: strings.NewReader(""), Out: &o, Err: &e}, func(k string) string {
			if k == "HOME" {
				return home
			}
			return env[k]
		}, backends())
	}()
	all := func() string { return o.String() + e.String() }
	for deadline := time.Now().Add(20 * time.Second); !ready.MatchString(all()); time.Sleep(20 * time.Millisecond) {
		select {
		case code := <-done:
			t.Fatalf("zopday %v ended with %d: %s", args, code, all())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("zopday %v did not get ready: %s", args, all())
		}
	}
	return all, func() int {
		cancel()
		select {
		case code := <-done:
			return code
		case <-time.After(30 * time.Second):
			t.Fatalf("zopday %v did not end: %s", args, all())
			return -1
		}
	}
}

func grab(t *testing.T, text, pattern string) string {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("%s is not in %s", pattern, text)
	}
	return m[1]
}

// TestSandbox: product and simulation together, used by the command line as a
// person would, and ended in order.
func TestSandbox(t *testing.T) {
	out, stop := background(t, nil, regexp.MustCompile(`Ctrl-C ends it`), "sandbox", "--listen", "127.0.0.1:0", "--aws", "127.0.0.1:0", "--gcp", "127.0.0.1:0", "--azure", "127.0.0.1:0", "--control", "127.0.0.1:0", "--charts", "127.0.0.1:0", "--time-scale", "120")
	text := out()
	env := map[string]string{"ZOPDAY_SERVER": grab(t, text, `Server +(\S+)`), "ZOPDAY_TOKEN": grab(t, text, `Token +(\S+)`)}
	if code, o, e := zopday(t.Context(), t, env, "doctor"); code != 0 {
		t.Errorf("doctor: exit code %d: %s%s", code, o, e)
	}
	code, o, e := zopday(t.Context(), t, env, "jobs", "create", "-f", "../../examples/vm-aws-fixed.yaml", "--wait")
	if code != 0 || !strings.Contains(o, "aws ssm start-session") {
		t.Fatalf("create: exit code %d: %s%s", code, o, e)
	}
	if code, _, e := zopday(t.Context(), t, env, "jobs", "create", "-f", "../../examples/vm-aws-fixed.yaml"); code != 6 {
		t.Errorf("a second job of the name: exit code %d: %s", code, e)
	}
	if code, o, e := zopday(t.Context(), t, env, "jobs", "verify", "docker-host"); code != 0 {
		t.Errorf("verify: exit code %d: %s%s", code, o, e)
	}
	if code, o, e := zopday(t.Context(), t, env, "jobs", "delete", "docker-host", "--confirm", "docker-host", "--wait"); code != 0 || !strings.Contains(o, "nothing left") {
		t.Errorf("delete: exit code %d: %s%s", code, o, e)
	}
	if code, o, e := zopday(t.Context(), t, env, "audit", "verify"); code != 0 || !strings.HasPrefix(o, "Whole: ") {
		t.Errorf("audit verify: exit code %d: %s%s", code, o, e)
	}
	if code := stop(); code != 0 {
		t.Errorf("sandbox ended with %d: %s", code, out())
	}
}

// TestServeAgainstSim: the simulation on its own, and a server that finds it by
// the variables that every SDK of AWS reads, stopped and started again in the
// middle of a job.
func TestServeAgainstSim(t *testing.T) {
	sim, stopSim := background(t, nil, regexp.MustCompile(`Ctrl-C ends it`), "sim", "--aws", "0", "--gcp", "0", "--azure", "0", "--control", "0", "--charts", "0", "--time-scale", "60")
	t.Setenv("AWS_ENDPOINT_URL", grab(t, sim(), `AWS +(\S+)`))
	t.Setenv("AWS_ACCESS_KEY_ID", grab(t, sim(), `AWS_ACCESS_KEY_ID=(\S+)`))
	t.Setenv("AWS_SECRET_ACCESS_KEY", grab(t, sim(), `AWS_SECRET_ACCESS_KEY=(\S+)`))
	token := "zop_a-token-from-the-environment"
	db := filepath.Join(t.TempDir(), "zopday.db")
	env := map[string]string{"ZOPDAY_BOOTSTRAP_TOKEN": token, "ZOPDAY_DB": db, "ZOPDAY_TIME_SCALE": "60", "ZOPDAY_LISTEN": "127.0.0.1:0"}
	listening := regexp.MustCompile(`Listening on (\S+)`)
	serve, stop := background(t, env, listening, "serve")
	if strings.Contains(serve(), token) {
		t.Error("the token from the environment is shown")
	}
	user := map[string]string{"ZOPDAY_SERVER": grab(t, serve(), `Listening on (\S+)`), "ZOPDAY_TOKEN": token}
	if code, o, e := zopday(t.Context(), t, user, "jobs", "create", "-f", "../../examples/vm-aws-fixed.yaml", "-q"); code != 0 {
		t.Fatalf("create: exit code %d: %s%s", code, o, e)
	}
	for range 3 {
		time.Sleep(500 * time.Millisecond)
		if code := stop(); code != 0 {
			t.Fatalf("serve ended with %d: %s", code, serve())
		}
		serve, stop = background(t, env, listening, "serve")
	}
	user["ZOPDAY_SERVER"] = grab(t, serve(), `Listening on (\S+)`)
	if code, o, e := zopday(t.Context(), t, user, "jobs", "watch", "docker-host"); code != 0 {
		t.Errorf("watch: exit code %d: %s%s", code, o, e)
	}
	resp, err := http.Get(grab(t, sim(), `Control +(\S+)`) + "/_sim/requests?operation=CreateVpc")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("the control API answers %d", resp.StatusCode)
	}
	if code, o, e := zopday(t.Context(), t, user, "jobs", "delete", "docker-host", "--confirm", "docker-host", "--wait"); code != 0 {
		t.Errorf("delete: exit code %d: %s%s", code, o, e)
	}
	if code := stop(); code != 0 {
		t.Errorf("serve ended with %d", code)
	}
	if code := stopSim(); code != 0 {
		t.Errorf("sim ended with %d", code)
	}
}

// TestSimKeepsItsState across restarts, when it is told where.
func TestSimKeepsItsState(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	args := []string{"sim", "--aws", "0", "--gcp", "0", "--azure", "0", "--control", "0", "--charts", "0", "--state", dir}
	objects := func(out string) string {
		resp, err := http.Get(grab(t, out, `Control +(\S+)`) + "/_sim/objects?kind=hosted-zone")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	out, stop := background(t, nil, regexp.MustCompile(`Ctrl-C ends it`), args...)
	body := `{"cloud":"aws","service":"route53","operation":"CreateHostedZone","params":{"Name":"example.test","CallerReference":"x"}}`
	resp, err := http.Post(grab(t, out(), `Control +(\S+)`)+"/_sim/objects", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := objects(out()); !strings.Contains(got, "example.test") {
		t.Fatalf("the zone is not there: %s", got)
	}
	if code := stop(); code != 0 {
		t.Errorf("sim ended with %d: %s", code, out())
	}
	out, stop = background(t, nil, regexp.MustCompile(`Ctrl-C ends it`), args...)
	if got := objects(out()); !strings.Contains(got, "example.test") {
		t.Errorf("the zone is lost: %s", got)
	}
	if code := stop(); code != 0 {
		t.Errorf("sim ended with %d", code)
	}
}

// TestServeRefusesNonsense before anything is opened.
func TestServeRefusesNonsense(t *testing.T) {
	for _, args := range [][]string{
		{"serve", "--workers", "-1"}, {"serve", "--worker-dead-after", "1ms"}, {"serve", "--time-scale", "0"}, {"serve", "--log-level", "loud"},
		{"serve", "--log-format", "xml"}, {"sim", "--latency", "soon"}, {"sim", "--latency", "1ms/-2ms"}, {"sandbox", "--time-scale", "-1"}, {"demo"}, {"demo", "--all", "-f", "x"},
	} {
		if code, o, e := zopday(t.Context(), t, nil, args...); code != 2 || o != "" || e == "" {
			t.Errorf("%v: exit code %d: %s%s", args, code, o, e)
		}
	}
	if code, _, e := zopday(t.Context(), t, map[string]string{"ZOPDAY_WORKERS": "many"}, "serve"); code != 2 || !strings.Contains(e, "ZOPDAY_WORKERS") {
		t.Errorf("exit code %d: %s", code, e)
	}
}
