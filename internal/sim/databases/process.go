package databases

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// A process is one run of a server.
type process struct {
	cmd    *exec.Cmd
	gentle syscall.Signal // ends it in good order
	rough  syscall.Signal // ends it, and what it started, at once
	words  *tail
	done   chan struct{} // closed when it is gone
}

// endsWithin is how long a process may take to end by itself.
const endsWithin = 20 * time.Second

// startProcess starts a server that dies with this process.
func startProcess(cmd *exec.Cmd, gentle, rough syscall.Signal) (*process, error) {
	p := &process{cmd: cmd, gentle: gentle, rough: rough, words: &tail{}, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.words, p.words
	// A child of the server that outlives it must not keep Wait from returning.
	cmd.WaitDelay = 2 * time.Second
	diesWithUs(cmd.SysProcAttr, rough)
	started := make(chan error)
	go func() {
		// The parent whose death counts is the thread, and Go may end an idle one; a locked
		// thread lives as long as its goroutine.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended shows in its words
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// until waits for the server's first answer.
func (p *process) until(ctx context.Context, answers func(context.Context) error) error {
	for {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := answers(try)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended at its start: %s", p.cmd.Path, p.said())
		case <-ctx.Done():
			p.end(false)
			return errors.Join(fmt.Errorf("%s does not answer: %s", p.cmd.Path, p.said()), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *process) said() string { return p.words.String() }

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// end ends the process and waits until it is gone.
func (p *process) end(gently bool) {
	signal := p.rough
	if gently {
		signal = p.gentle
	}
	_ = p.cmd.Process.Signal(signal) // one that is gone needs none
	select {
	case <-p.done:
	case <-time.After(endsWithin):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// command is a program that runs as the server's user, in a group of its own, so that a Ctrl-C at
// the terminal is for us alone.
func command(ctx context.Context, who *syscall.Credential, dir, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // binaries of this machine's packages
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/sbin:/usr/local/bin:/opt/homebrew/bin", "LC_ALL=C", "TZ=UTC", "HOME=" + dir, "TMPDIR=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: who}
	return cmd
}

// freePort is a port of loopback that was free a moment ago.
func freePort() (int, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// A tail keeps the last that was written to it.
type tail struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const maxWords = 4 << 10

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

// writeFor writes a file that is the server's own.
func writeFor(who *syscall.Credential, path string, content []byte) error {
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return err
	}
	return giveTo(who, path)
}

func giveTo(who *syscall.Credential, path string) error {
	if who == nil {
		return nil
	}
	return os.Lchown(path, int(who.Uid), int(who.Gid))
}
