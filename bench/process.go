package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// build compiles the binary, as a person would run it, into a directory.
func build(ctx context.Context, dir string) (string, error) {
	binary := filepath.Join(dir, "zopday")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/zopday").CombinedOutput(); err != nil { //nolint:gosec // our own binary
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return binary, nil
}

// A process is a `zopday serve` beside this process, so that its memory is its own.
type process struct {
	cmd   *exec.Cmd
	url   string
	log   string
	ended chan error
}

var listening = regexp.MustCompile(`(?m)^Listening on (\S+)$`)

// How long a process may take to listen, and to end once it is asked to.
const (
	listensWithin = 30 * time.Second
	endsWithin    = 40 * time.Second
)

// start runs the binary with arguments and just that environment, and waits until it listens.
func start(ctx context.Context, log, binary string, env []string, args ...string) (*process, error) {
	f, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer f.Close()                                                                                                            // the process has its own handle
	p := &process{cmd: exec.CommandContext(context.WithoutCancel(ctx), binary, args...), log: log, ended: make(chan error, 1)} //nolint:gosec // our own binary
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Env = f, f, env
	// A Ctrl-C on the terminal is for this process, which ends the other.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { p.ended <- p.cmd.Wait() }()
	for deadline := time.Now().Add(listensWithin); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		said, err := os.ReadFile(log)
		if err != nil {
			return nil, errors.Join(err, p.end())
		}
		if m := listening.FindSubmatch(said); m != nil {
			p.url = string(m[1])
			return p, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(fmt.Errorf("zopday serve does not listen: %s", p.tail()), p.end())
}

// end asks the process to end, and kills it if it does not.
func (p *process) end() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // an error says that it has ended
	select {
	case err := <-p.ended:
		return err
	case <-time.After(endsWithin):
		return errors.Join(errors.New("zopday serve had to be killed"), p.cmd.Process.Kill(), <-p.ended)
	}
}

// tail is the last that the process said.
func (p *process) tail() string {
	said, _ := os.ReadFile(p.log) // it is told beside what went wrong
	return string(said[max(0, len(said)-4<<10):])
}

// memory is a field of the process's /proc/PID/status in MiB: VmRSS is what is
// resident, VmHWM the most that ever was (proc_pid_status(5)).
func (p *process) memory(field string) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range bytes.Lines(status) {
		if rest, ok := strings.CutPrefix(string(line), field+":"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no %s", p.cmd.Process.Pid, field)
}

// sockets counts the connections that the process holds.
func (p *process) sockets() (int, error) {
	dir := fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid)
	open, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, fd := range open {
		to, err := os.Readlink(filepath.Join(dir, fd.Name()))
		if err == nil && strings.HasPrefix(to, "socket:") { // one that is gone since is no longer held
			n++
		}
	}
	return n, nil
}
