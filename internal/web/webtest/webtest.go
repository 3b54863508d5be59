// Package webtest drives the pages as a person does: the real server with simulated
// clouds beside it, and a real Chromium before it.
package webtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Admin is the token of the server's first admin.
const Admin = "zop_web_tests_0123456789abcdefghijklmno"

// A Site is a server that runs for the tests of one package.
type Site struct {
	URL     string // of the server
	Control string // of the simulated clouds' control API

	dir string
	cmd *exec.Cmd
	out *tail
}

var site *Site

// Main starts the site, runs the tests, and ends it.
func Main(m *testing.M) int {
	s, err := start()
	if err != nil {
		fmt.Fprintln(os.Stderr, "webtest:", err)
		return 1
	}
	site = s
	code := m.Run()
	s.stop()
	return code
}

// The is the site of this package's tests.
func The(t testing.TB) *Site {
	t.Helper()
	if site == nil {
		t.Fatal("webtest: TestMain does not call webtest.Main")
	}
	return site
}

// Root is the root of the source tree.
func Root() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("there is no go.mod above the tests")
		}
	}
	return "", err
}

// tail keeps the end of what a process says.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (b *tail) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p...)
	if len(b.text) > 64<<10 {
		b.text = b.text[len(b.text)-32<<10:]
	}
	return len(p), nil
}

func (b *tail) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.text)
}

var serverLine, controlLine = regexp.MustCompile(`(?m)^Server +(http\S+)`), regexp.MustCompile(`(?m)^\S*[Cc]ontrol\S* +(http\S+)`)

func start() (*Site, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "zopday-web-")
	if err != nil {
		return nil, err
	}
	s := &Site{dir: dir, out: &tail{}}
	bin := filepath.Join(dir, "zopday")
	build := exec.Command("go", "build", "-o", bin, "./cmd/zopday") //nolint:noctx,gosec // the path is this function's own; it ends with the tests
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("go build: %w: %s", err, out), os.RemoveAll(dir))
	}
	any := "127.0.0.1:0"
	s.cmd = exec.Command(bin, "sandbox", "--listen", any, "--control", any, "--aws", any, "--gcp", any, "--azure", any, "--charts", any, //nolint:noctx,gosec // it is what was built above; stop ends it
		"--time-scale", "120", "--feature-gates", "AzureVMSS=true", "--rate-limit", "0", "--rate-limit-address", "0")
	s.cmd.Dir = root
	s.cmd.Env = append(os.Environ(), "ZOPDAY_BOOTSTRAP_TOKEN="+Admin)
	s.cmd.Stdout, s.cmd.Stderr = s.out, s.out
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	for range 600 {
		server, control := serverLine.FindStringSubmatch(s.out.String()), controlLine.FindStringSubmatch(s.out.String())
		if server != nil && control != nil {
			s.URL, s.Control = server[1], control[1]
			return s, nil
		}
		if s.cmd.ProcessState != nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	s.stop()
	return nil, fmt.Errorf("the server does not come up:\n%s", s.out)
}

func (s *Site) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	done := make(chan struct{})
	go func() { _ = s.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		_ = s.cmd.Process.Kill()
		<-done
	}
	_ = os.RemoveAll(s.dir)
}

// Log is the end of what the server said.
func (s *Site) Log() string { return s.out.String() }

// Call sends a request to the API with a token and reads data of its answer into
// into, if that is not nil; it returns the status.
func (s *Site) Call(t testing.TB, token, method, path, body string, into any) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if into == nil {
		return resp.StatusCode
	}
	if resp.StatusCode >= 300 {
		t.Fatalf("%s %s: %d %s", method, path, resp.StatusCode, text)
	}
	var a struct {
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(text, &a); err == nil {
		err = json.Unmarshal(a.Data, into)
		if err != nil {
			t.Fatalf("%s %s: %v: %s", method, path, err, text)
		}
	}
	return resp.StatusCode
}

// Token makes a token with a role over the whole organisation.
func (s *Site) Token(t testing.TB, name, role string) string {
	t.Helper()
	var made struct {
		Token string `json:"token"`
	}
	s.Call(t, Admin, http.MethodPost, "/tokens", fmt.Sprintf(`{"name":%q,"role":%q,"scope":{"kind":"org"}}`, name, role), &made)
	return made.Token
}

// A JobState is where a job stands.
type JobState struct {
	ID, Name, Status, Phase, CurrentStep string
	Error                                *struct{ Code, Message string }
}

// Job makes a job of a document, JSON, and queues it.
func (s *Site) Job(t testing.TB, doc string) JobState {
	t.Helper()
	var j JobState
	s.Call(t, Admin, http.MethodPost, "/provisioning-jobs", doc, &j)
	return j
}

// Await waits until a job has come to rest.
func (s *Site) Await(t testing.TB, id, status string) JobState {
	t.Helper()
	var j JobState
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		s.Call(t, Admin, http.MethodGet, "/provisioning-jobs/"+id, "", &j)
		if j.Status == status {
			return j
		}
		if j.Status == "failed" || j.Status == "cancelled" || j.Status == "completed" {
			break
		}
	}
	t.Fatalf("job %s is %s in %s, not %s: %+v", j.Name, j.Status, j.CurrentStep, status, j.Error)
	return j
}

// Fault adds a fault to the simulated clouds, JSON as docs/simulation.md has it.
func (s *Site) Fault(t testing.TB, doc string) {
	t.Helper()
	resp, err := http.Post(s.Control+"/_sim/faults", "application/json", bytes.NewReader([]byte(doc))) //nolint:noctx // on this machine
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if text, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("fault: %d %s %v", resp.StatusCode, text, err)
	}
}
