// Package cli is the command line: the commands, what they print and with
// which code they end. Results go to the standard output and everything else
// to the standard error; the exit codes are a table (exit.go); a terminal gets
// a step list redrawn in place, a pipe one line a change.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/zopday/provisioner/internal/client"
)

// Streams are what a command reads from and writes to.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// An app is one run of the command line.
type app struct {
	in     io.Reader
	stdout io.Writer
	stderr io.Writer
	getenv func(string) string
	dir    string // the working directory
	back   Backends
	now    func() time.Time

	flags   flagValues
	settled bool
	cfg     settings
	outTerm terminal
	errTerm terminal
	inTTY   bool // a person can be asked

	api *client.Client
}

// Main runs the command line and returns the exit code. The end of ctx is
// Ctrl-C.
func Main(ctx context.Context, args []string, s Streams, getenv func(string) string, back Backends) int {
	dir, err := os.Getwd()
	if err != nil {
		dir = "."
	}
	a := &app{in: s.In, stdout: s.Out, stderr: s.Err, getenv: getenv, dir: dir, back: back, now: time.Now}
	a.outTerm, a.errTerm = probe(s.Out, "auto", getenv), probe(s.Err, "auto", getenv)
	root := a.root()
	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	err = root.ExecuteContext(ctx)
	a.report(err)
	return exitCode(err)
}

// settle resolves the configuration, once.
func (a *app) settle(cmd *cobra.Command) error {
	if a.settled {
		return nil
	}
	a.flags.set = func(name string) bool {
		f := cmd.Flag(name)
		return f != nil && f.Changed
	}
	var err error
	if a.cfg, err = a.resolveSettings(a.flags); err != nil {
		return err
	}
	a.settled = true
	a.outTerm = probe(a.stdout, a.cfg.Color.Value, a.getenv)
	a.errTerm = probe(a.stderr, a.cfg.Color.Value, a.getenv)
	if f, ok := a.in.(*os.File); ok && !a.cfg.NoInput.yes() {
		a.inTTY = term.IsTerminal(int(f.Fd()))
	}
	return nil
}

// connect makes the client of the configured server.
func (a *app) connect() (*client.Client, error) {
	if a.api != nil {
		return a.api, nil
	}
	if a.cfg.tokenErr != nil {
		return nil, a.cfg.tokenErr
	}
	opt := client.Options{Server: a.cfg.Server.Value, Token: a.cfg.Token.Value, UserAgent: "zopday/" + Version()}
	if a.cfg.Verbose.yes() {
		opt.Trace = func(method, path string, status int, took time.Duration) {
			fmt.Fprintf(a.stderr, "%s %s -> %d in %s\n", method, path, status, took.Round(time.Millisecond))
		}
	}
	c, err := client.New(opt)
	if err != nil {
		return nil, &usageError{msg: err.Error(), hint: "The address comes from " + a.cfg.Server.Origin}
	}
	a.api = c
	return c, nil
}

// timeout is --timeout; 0 if none was asked for.
func (a *app) timeout() time.Duration {
	d, err := time.ParseDuration(a.cfg.Timeout.Value)
	if err != nil {
		return 0 // settings.check has refused it before
	}
	return d
}

// request bounds a command that only asks and answers.
func (a *app) request(ctx context.Context) (context.Context, context.CancelFunc) {
	return a.within(ctx, time.Minute)
}

// slowRequest bounds one for which the server asks a cloud.
func (a *app) slowRequest(ctx context.Context) (context.Context, context.CancelFunc) {
	return a.within(ctx, 4*time.Minute)
}

func (a *app) within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if asked := a.timeout(); asked > 0 {
		d = asked
	}
	return context.WithTimeout(ctx, d)
}

// say writes a line for the person at the terminal; -q silences it.
func (a *app) say(format string, args ...any) {
	if a.cfg.Quiet.yes() {
		return
	}
	fmt.Fprintln(a.stderr, a.errTerm.text(fmt.Sprintf(format, args...)))
}

// warn is said even with -q.
func (a *app) warn(format string, args ...any) {
	fmt.Fprintf(a.stderr, "%s %s\n", a.errTerm.paint(yellow, "Warning:"), a.errTerm.text(fmt.Sprintf(format, args...)))
}

// again is the command line with which a person comes back to this server:
// the command, and --server when it was not found by configuration.
func (a *app) again(parts ...string) string {
	cmd := "zopday " + strings.Join(parts, " ")
	switch {
	case strings.HasPrefix(a.cfg.Server.Origin, "flag"):
		cmd += " --server " + a.cfg.Server.Value
	case strings.HasPrefix(a.cfg.Context.Origin, "flag"):
		cmd += " --context " + a.cfg.Context.Value
	}
	return cmd
}
