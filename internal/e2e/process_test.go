package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/zopday/provisioner/internal/pgtest"
)

// The tests of this file run the real binary: N processes of `zopday serve` on
// one PostgreSQL, against one `zopday sim`, killed and stopped by signals.

const (
	processPace = 60
	adminToken  = "zop_e2e_0123456789abcdefghijklmnopqrstuv"
)

var buildOnce = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "zopday-e2e-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "zopday")
	cmd := exec.Command("go", "build", "-o", bin, "github.com/zopday/provisioner/cmd/zopday")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return bin, nil
})

// A process is one running binary of the product.
type process struct {
	t    testing.TB
	name string
	args []string
	env  []string
	cmd  *exec.Cmd
	log  *os.File
	done chan struct{}
}

func (p *process) start() {
	p.t.Helper()
	bin, err := buildOnce()
	if err != nil {
		p.t.Fatal(err)
	}
	p.cmd = exec.Command(bin, p.args...)
	p.cmd.Env = append(os.Environ(), p.env...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait() // killed is what it is
		close(done)
	}(p.cmd, p.done)
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%s: %s: %v", p.name, s, err)
	}
}

func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

func (p *process) tail() string {
	b, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(string(b), "\n")
	return strings.Join(lines[max(0, len(lines)-25):], "\n")
}

// A site is a simulated cloud, a database, and the processes between them.
type site struct {
	t        testing.TB
	dir, dsn string
	control  string
	aws      string
	serves   []*process
	jobID    string
}

func newSite(t testing.TB) *site {
	t.Helper()
	s := &site{t: t, dir: t.TempDir(), dsn: pgtest.Database(t)}
	s.control, s.aws = freeAddress(t), freeAddress(t)
	p := s.run("sim", nil, "sim", "--control", s.control, "--aws", s.aws, "--gcp", "127.0.0.1:0", "--azure", "127.0.0.1:0", "--charts", "127.0.0.1:0", "--time-scale", fmt.Sprint(processPace))
	s.up("http://" + s.control + "/_sim/requests?limit=1")
	t.Cleanup(func() {
		if t.Failed() {
			for _, x := range append(s.serves, p) {
				t.Logf("the end of %s:\n%s", x.name, x.tail())
			}
		}
	})
	return s
}

func (s *site) run(name string, env []string, args ...string) *process {
	s.t.Helper()
	log, err := os.Create(filepath.Join(s.dir, name+".log"))
	if err != nil {
		s.t.Fatal(err)
	}
	p := &process{t: s.t, name: name, args: args, env: env, log: log}
	p.start()
	s.t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may be gone already
		<-p.done
		_ = log.Close()
	})
	return p
}

// serve starts one more `zopday serve`, whose cloud credentials are key.
func (s *site) serve(key string, flags ...string) *process {
	s.t.Helper()
	address := freeAddress(s.t)
	env := []string{"ZOPDAY_DB=" + s.dsn, "ZOPDAY_BOOTSTRAP_TOKEN=" + adminToken, "AWS_ENDPOINT_URL=http://" + s.aws,
		"ZOPDAY_SECRET_KEY=MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
		"AWS_ACCESS_KEY_ID=" + key, "AWS_SECRET_ACCESS_KEY=secret", "AWS_REGION=" + region, "HOME=" + s.dir}
	args := append([]string{"serve", "--listen", address, "--time-scale", fmt.Sprint(processPace)}, flags...)
	p := s.run(fmt.Sprintf("serve-%d", len(s.serves)+1), env, args...)
	s.serves = append(s.serves, p)
	s.up("http://" + address + "/readyz")
	return p
}

func (p *process) address() string {
	for i, a := range p.args {
		if a == "--listen" {
			return p.args[i+1]
		}
	}
	return ""
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (s *site) up(url string) {
	s.t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for {
		res, err := http.Get(url)
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return
			}
			err = fmt.Errorf("status %d", res.StatusCode)
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s never answered: %v", url, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// call asks any process that answers, for a minute at most.
func (s *site) call(method, path string, body any) (int, map[string]any) {
	s.t.Helper()
	var b []byte
	if body != nil {
		var err error
		if b, err = json.Marshal(body); err != nil {
			s.t.Fatal(err)
		}
	}
	deadline := time.Now().Add(time.Minute)
	for i := 0; ; i++ {
		p := s.serves[i%len(s.serves)]
		status, doc, err := once(method, "http://"+p.address()+path, b)
		if err == nil && status < 500 {
			return status, doc
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s %s: no process answers: status %d, %v", method, path, status, err)
		}
		time.Sleep(30 * time.Millisecond)
	}
}

func once(method, url string, body []byte) (int, map[string]any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	if method == http.MethodPost {
		req.Header.Set("Idempotency-Key", "e2e")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	all, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, nil, err
	}
	var doc map[string]any
	if len(all) > 0 {
		if err := json.Unmarshal(all, &doc); err != nil {
			return res.StatusCode, nil, fmt.Errorf("%s: %w", all, err)
		}
	}
	return res.StatusCode, doc, nil
}

func (s *site) create() {
	s.t.Helper()
	status, doc := s.call("POST", "/provisioning-jobs", map[string]any{
		"kind": "provisioning", "resourceType": "vm", "provider": "aws", "mode": "create", "name": "shop-prod", "region": region, "submit": true,
		"cloudAccountId": "default", "config": map[string]any{"spec": json.RawMessage(fixedLB)},
	})
	if status != http.StatusCreated && status != http.StatusOK && status != http.StatusAccepted {
		s.t.Fatalf("create: %d %v", status, doc)
	}
	s.jobID = doc["data"].(map[string]any)["id"].(string)
}

func (s *site) job() map[string]any {
	s.t.Helper()
	status, doc := s.call("GET", "/provisioning-jobs/"+s.jobID, nil)
	if status != http.StatusOK {
		s.t.Fatalf("get: %d %v", status, doc)
	}
	return doc["data"].(map[string]any)
}

// awaiting calls between until the job has come to rest in the wanted status.
func (s *site) awaiting(want string, within time.Duration, between func()) {
	s.t.Helper()
	deadline := time.Now().Add(within)
	for {
		j := s.job()
		switch status := j["status"].(string); {
		case status == want:
			return
		case status != "queued" && status != "running":
			s.t.Fatalf("the job is %s: %v", status, j["error"])
		case time.Now().After(deadline):
			s.t.Fatalf("the job is still %s in %v after %s, waiting for %v", status, j["currentStep"], within, j["waitingFor"])
		}
		between()
	}
}

// sim asks the simulation's control API.
func (s *site) sim(path string, into any) {
	s.t.Helper()
	res, err := http.Get("http://" + s.control + path)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	if err := json.NewDecoder(res.Body).Decode(into); err != nil || res.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: status %d, %v", path, res.StatusCode, err)
	}
}

type entry struct {
	Seq       int    `json:"seq"`
	Operation string `json:"operation"`
	Mutating  bool   `json:"mutating"`
	Caller    string `json:"caller"`
	Status    int    `json:"status"`
}

func (s *site) books() []entry {
	s.t.Helper()
	var answer struct{ Requests []entry }
	s.sim("/_sim/requests?mutating=true", &answer)
	return answer.Requests
}

func (s *site) residue() []map[string]any {
	s.t.Helper()
	var answer struct{ Objects []map[string]any }
	s.sim("/_sim/residue?owner="+s.jobID, &answer)
	return answer.Objects
}

// asAsked demands that a re-run finds everything as asked and changes nothing.
func (s *site) asAsked() {
	s.t.Helper()
	before := len(s.books())
	status, doc := s.call("POST", "/provisioning-jobs/"+s.jobID+"/verify", nil)
	if status != http.StatusOK {
		s.t.Fatalf("verify: %d %v", status, doc)
	}
	if d, _ := doc["data"].(map[string]any)["drift"].([]any); len(d) > 0 {
		s.t.Errorf("not as asked: %v", d)
	}
	if after := len(s.books()); after != before {
		s.t.Errorf("the same again made %d mutating calls", after-before)
	}
}

func (s *site) destroy(within time.Duration, between func()) {
	s.t.Helper()
	if status, doc := s.call("DELETE", "/provisioning-jobs/"+s.jobID+"?confirm=shop-prod", nil); status != http.StatusAccepted {
		s.t.Fatalf("delete: %d %v", status, doc)
	}
	s.awaiting("cancelled", within, between)
	if left := s.residue(); len(left) > 0 {
		s.t.Errorf("left: %v", left)
	}
}

func TestProcessesKilledAtRandom(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for range 3 {
		s.serve("AKIAIOSFODNN7EXAMPLE", "--worker-dead-after", "2s")
	}
	rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	kills := 0
	chaos := func() {
		time.Sleep(time.Duration(200+rng.IntN(1500)) * time.Millisecond)
		if kills >= 12 {
			return
		}
		kills++
		p := s.serves[rng.IntN(len(s.serves))]
		p.kill()
		p.start()
	}
	s.create()
	s.awaiting("completed", 4*time.Minute, chaos)
	s.asAsked()
	s.destroy(4*time.Minute, chaos)
	t.Logf("%d kills", kills)
}

func TestKilledWorkersJobIsTakenOverWithin15Seconds(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	// The first worker is held up in the midst of a step, so that it has the lease.
	s.fault(map[string]any{"cloud": "aws", "service": "ec2", "operation": "CreateLaunchTemplate", "kind": "hang", "count": 1, "seconds": 60 * processPace})
	a := s.serve("AKIAIOSFODNN7EXAMPLE")
	s.create()
	for s.job()["currentStep"] != "stepCreateLaunchTemplate" {
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(time.Second)
	s.serve("test")
	if n := s.callsOf("test"); n > 0 {
		t.Fatalf("the second worker made %d calls for a job that another holds", n)
	}
	a.kill()
	killed := time.Now()
	s.serves = s.serves[1:]
	for s.callsOf("test") == 0 {
		if took := time.Since(killed); took > 15*time.Second {
			t.Fatalf("nobody went on within %s", took)
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Logf("taken over after %s", time.Since(killed).Round(10*time.Millisecond))
	s.awaiting("completed", 2*time.Minute, func() { time.Sleep(50 * time.Millisecond) })
	s.asAsked()
	s.destroy(2*time.Minute, func() { time.Sleep(50 * time.Millisecond) })
}

// fault orders a fault from the simulation.
func (s *site) fault(f map[string]any) {
	s.t.Helper()
	b, err := json.Marshal(f)
	if err != nil {
		s.t.Fatal(err)
	}
	res, err := http.Post("http://"+s.control+"/_sim/faults", "application/json", bytes.NewReader(b))
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 {
		all, _ := io.ReadAll(res.Body) // for the message alone
		s.t.Fatalf("fault %s: status %d: %s", b, res.StatusCode, all)
	}
}

// callsOf is how many requests a caller has made.
func (s *site) callsOf(key string) int {
	s.t.Helper()
	var answer struct{ Requests []entry }
	s.sim("/_sim/requests?caller="+key, &answer)
	return len(answer.Requests)
}

func TestStoppedWorkerIsRefusedWhenItWakes(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.serve("test", "--worker-dead-after", "2s")
	s.create()
	for len(s.books()) < 4 {
		time.Sleep(5 * time.Millisecond)
	}
	a.signal(syscall.SIGSTOP)
	stopped := len(s.books())
	b := s.serve("AKIAIOSFODNN7EXAMPLE", "--worker-dead-after", "2s")
	s.serves = []*process{b}
	s.awaiting("completed", 2*time.Minute, func() { time.Sleep(50 * time.Millisecond) })
	a.signal(syscall.SIGCONT)
	time.Sleep(4 * time.Second) // time enough for whatever it still wanted to do
	var late []entry
	for _, e := range s.books()[stopped:] {
		// A request that had left before the stop may have been counted after it.
		if e.Caller == "test" && e.Seq > stopped+20 {
			late = append(late, e)
		}
	}
	// One call may have passed the gate in the instant before the stop, and leave with the
	// wake: nothing can fence that. A step makes its calls one after another, so a second one
	// would have asked the gate; that the one did no harm is what asAsked finds out.
	if len(late) > 1 {
		t.Errorf("the worker that woke up still changed the cloud: %+v", late)
	}
	s.asAsked()
	s.destroy(2*time.Minute, func() { time.Sleep(50 * time.Millisecond) })
}
