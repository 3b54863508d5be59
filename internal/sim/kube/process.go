package kube

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A process is one run of the control plane's binary.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	ready chan struct{} // closed when client is set
	done  chan struct{} // closed when the process is gone

	client *client // once ready
	err    error   // why it is gone; once done

	stopOnce sync.Once
}

// How long a process may take to end by itself, and how much of what it says of a failure is kept.
const (
	endsWithin = 10 * time.Second
	maxWords   = 4 << 10
)

// announcement is the line that the binary prints when its API server answers.
type announcement struct {
	Server string `json:"server"`
	CA     string `json:"ca"`
	Token  string `json:"token"`
}

// startProcess starts a control plane on a folder, which it removes when it ends by itself unless
// it is to be kept.
func startProcess(binary, dir string, bare, keep bool) (*process, error) {
	args := []string{"-dir", dir}
	if bare {
		args = append(args, "-bare")
	}
	if !keep {
		args = append(args, "-remove")
	}
	cmd := exec.CommandContext(context.Background(), binary, args...) //nolint:gosec // the binary that we were told to run
	// A Ctrl-C on the terminal is for us: it ends after us, when its standard input closes.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	words := &tail{}
	cmd.Stderr = words
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the Kubernetes control plane: %w", err)
	}
	p := &process{cmd: cmd, stdin: stdin, ready: make(chan struct{}), done: make(chan struct{})}
	go p.follow(stdout, words)
	return p, nil
}

// follow waits for the line that says that the process is ready, and then for its end.
func (p *process) follow(stdout io.Reader, words *tail) {
	defer close(p.done)
	lines := bufio.NewReader(stdout)
	line, err := lines.ReadBytes('\n')
	var a announcement
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	if err == nil {
		p.client, err = newClient(a)
	}
	if err == nil {
		close(p.ready)
	}
	_, _ = io.Copy(io.Discard, lines)
	ended := p.cmd.Wait()
	if said := strings.TrimSpace(words.String()); said != "" {
		ended = errors.Join(ended, errors.New(said))
	}
	p.err = fmt.Errorf("the Kubernetes control plane ended: %w", errors.Join(ended, err))
}

// await waits until the process is ready.
func (p *process) await(ctx context.Context) (*client, error) {
	select {
	case <-p.ready:
		return p.client, nil
	default:
	}
	select {
	case <-p.ready:
		return p.client, nil
	case <-p.done:
		return nil, p.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// end lets the process end by itself, and kills it if it does not.
func (p *process) end() {
	p.stopOnce.Do(func() { _ = p.stdin.Close() })
	select {
	case <-p.done:
	case <-time.After(endsWithin):
		p.kill()
	}
}

// kill ends the process at once; its folder stays.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
	p.stopOnce.Do(func() { _ = p.stdin.Close() })
}

// A tail keeps the last that was written to it.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf.Write(b)
	if extra := t.buf.Len() - maxWords; extra > 0 {
		t.buf.Next(extra)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf.String()
}
