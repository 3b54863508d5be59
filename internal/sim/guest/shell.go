package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/interp"
	"mvdan.cc/sh/v3/syntax"
)

// Result is what a script did.
type Result struct {
	Stdout, Stderr string
	Exit           int
	Took           time.Duration // virtual
}

// Bounds on one run: virtual time, commands, and real time, so that an endless script ends.
const (
	maxVirtual  = 2 * time.Hour
	maxCommands = 50000
	maxReal     = 3 * time.Second
)

// session is one run of something in a machine.
type session struct {
	mu       sync.Mutex
	machine  *Machine
	env      Env
	spent    time.Duration
	commands int
	limits   []time.Duration // deadlines set by timeout, as points of spent
	cancel   context.CancelFunc
	depth    int
	onExit   string // what the script has set for its exit
}

// errTooLong ends a run that passed its bounds.
var errTooLong = errors.New("the script runs too long")

func (s *session) now() time.Time { return s.env.Now.Add(s.spent) }

// spend lets virtual time pass. It answers false if a surrounding timeout ran out first.
func (s *session) spend(d time.Duration) bool {
	for _, l := range s.limits {
		if s.spent+d > l {
			s.spent = max(s.spent, l)
			return false
		}
	}
	s.spent += d
	if s.spent > maxVirtual && s.cancel != nil {
		s.cancel()
	}
	return true
}

// Run interprets a shell script in the machine, as a remote command does.
func (m *Machine) Run(script string, env Env) Result {
	s := &session{machine: m, env: env}
	var out, errs bytes.Buffer
	exit := s.script(script, nil, &out, &errs)
	return Result{Stdout: out.String(), Stderr: errs.String(), Exit: exit, Took: s.spent}
}

// variantOf says which shell a script is for, and false if it is none.
func variantOf(script string) (syntax.LangVariant, bool) {
	line, _, _ := strings.Cut(script, "\n")
	if !strings.HasPrefix(line, "#!") {
		return syntax.LangPOSIX, true
	}
	for f := range strings.FieldsSeq(strings.TrimPrefix(line, "#!")) {
		switch path.Base(f) {
		case "env":
		case "bash":
			return syntax.LangBash, true
		case "sh", "dash":
			return syntax.LangPOSIX, true
		default:
			if !strings.HasPrefix(f, "-") {
				return syntax.LangPOSIX, false
			}
		}
	}
	return syntax.LangPOSIX, true
}

// script interprets text and answers its exit code.
func (s *session) script(text string, args []string, stdout, stderr io.Writer) int {
	variant, ok := variantOf(text)
	if !ok {
		_, _ = fmt.Fprintln(stderr, "sh: cannot execute: required file not found")
		return 127
	}
	// The syntax must be sound for the shell that the script is for; the interpreter itself only understands what the parser
	// for Bash makes of export, local and the like.
	file, err := syntax.NewParser(syntax.Variant(variant)).Parse(strings.NewReader(text), "")
	if err == nil && variant != syntax.LangBash {
		file, err = syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(text), "")
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "sh: %v: Syntax error\n", err)
		return 2
	}
	dropHighFiles(file)
	if s.depth++; s.depth > 8 {
		return 1
	}
	defer func() { s.depth-- }()
	ctx, cancel := context.WithTimeout(context.Background(), maxReal)
	defer cancel()
	outer := s.cancel
	s.cancel = cancel
	defer func() { s.cancel = outer }()
	runner, err := interp.New(
		interp.Env(expand.ListEnviron("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/snap/bin", "HOME=/root", "USER=root", "LOGNAME=root",
			"HOSTNAME="+s.machine.Hostname)),
		interp.StdIO(nil, stdout, stderr),
		interp.Params(append([]string{"--"}, args...)...),
		interp.CallHandler(s.call),
		interp.ExecHandlers(func(interp.ExecHandlerFunc) interp.ExecHandlerFunc { return s.exec }),
		interp.OpenHandler(func(ctx context.Context, name string, flag int, _ fs.FileMode) (io.ReadWriteCloser, error) {
			return s.open(at(ctx, name), flag)
		}),
		interp.StatHandler(func(ctx context.Context, name string, follow bool) (fs.FileInfo, error) {
			return s.stat(at(ctx, name), follow)
		}),
		interp.AccessHandler(func(ctx context.Context, name string, _ interp.AccessMode) error {
			i, err := s.stat(at(ctx, name), true)
			if err == nil && i.Mode()&0o111 == 0 && !i.IsDir() {
				return nil // everything is root's here; execution is checked when it happens
			}
			return err
		}),
		interp.ReadDirHandler2(func(ctx context.Context, name string) ([]fs.DirEntry, error) {
			return s.readDir(at(ctx, name))
		}),
	)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		return 1
	}
	runner.Dir = "/"
	outerTrap := s.onExit
	s.onExit = ""
	defer func() { s.onExit = outerTrap }()
	code := exitCode(runner.Run(ctx, file), stderr)
	return s.runTrap(ctx, runner, code, stderr)
}

func exitCode(err error, stderr io.Writer) int {
	var status interp.ExitStatus
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	}
	_, _ = fmt.Fprintln(stderr, "sh:", err)
	return 1
}

// runTrap runs what the script has set for its exit. The interpreter's own trap goes on after an exit in it, so that it is
// done here, in the same shell, with the script's exit code put in for $?.
func (s *session) runTrap(ctx context.Context, runner *interp.Runner, code int, stderr io.Writer) int {
	s.mu.Lock()
	text := s.onExit
	s.onExit = ""
	s.mu.Unlock()
	if text == "" || text == "-" {
		return code
	}
	file, err := syntax.NewParser().Parse(strings.NewReader("set +e\n"+strings.ReplaceAll(text, "$?", strconv.Itoa(code))), "")
	if err != nil {
		return code
	}
	dropHighFiles(file)
	last := exitCode(runner.Run(ctx, file), stderr)
	if runner.Exited() {
		return last
	}
	return code
}

// at makes a path absolute, from where the shell stands.
func at(ctx context.Context, name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join(interp.HandlerCtx(ctx).Dir, name)
}

func (s *session) readDir(name string) ([]fs.DirEntry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.machine.lookup(name)
	if f == nil || !f.Dir {
		return nil, noEntry("open", name, fs.ErrNotExist)
	}
	names := s.machine.list(name)
	slices.Sort(names)
	var out []fs.DirEntry
	for _, n := range names {
		out = append(out, info{n, s.machine.Files[path.Join(s.machine.resolve(name), n)]})
	}
	return out, nil
}

// dropHighFiles takes redirections of file descriptors above 2 out of a script: the interpreter knows only three. What
// goes to them is not lost: it goes where the command's output goes.
func dropHighFiles(file *syntax.File) {
	high := func(n string) bool {
		fd, err := strconv.Atoi(n)
		return err == nil && fd > 2
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		st, ok := node.(*syntax.Stmt)
		if !ok {
			return true
		}
		st.Redirs = slices.DeleteFunc(st.Redirs, func(r *syntax.Redirect) bool {
			if r.N != nil && high(r.N.Value) {
				return true
			}
			return (r.Op == syntax.DplOut || r.Op == syntax.DplIn) && r.Word != nil && high(r.Word.Lit())
		})
		return true
	})
}

// call changes what the interpreter's builtins cannot do: signals never come here, so that traps on them are dropped, and
// commands are looked up in the machine, not in the host's PATH.
func (s *session) call(_ context.Context, args []string) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.commands++; s.commands > maxCommands {
		return nil, errTooLong
	}
	switch args[0] {
	case "trap":
		if len(args) < 3 {
			return []string{"true"}, nil
		}
		for _, sig := range args[2:] {
			if sig == "EXIT" || sig == "0" {
				s.onExit = args[1]
			}
		}
		if slices.Contains(args[2:], "ERR") {
			return []string{"trap", args[1], "ERR"}, nil
		}
		return []string{"true"}, nil
	case "umask", "ulimit":
		return []string{"true"}, nil
	case "command", "type", "hash":
		if len(args) >= 3 && args[1] == "-v" || args[0] != "command" && len(args) == 2 {
			name := args[len(args)-1]
			if p := s.which(name); p != "" {
				return []string{"echo", p}, nil
			}
			if interp.IsBuiltin(name) {
				return []string{"echo", name}, nil
			}
			return []string{"false"}, nil
		}
	}
	return args, nil
}

// which finds a command as the shell would: a simulated one that is installed, or an executable file.
func (s *session) which(name string) string {
	if strings.Contains(name, "/") {
		if f := s.machine.lookup(name); f != nil && !f.Dir && f.Mode&0o111 != 0 {
			return name
		}
		name = path.Base(name)
		if commands[name] != nil && s.installed(name) {
			return "/usr/bin/" + name
		}
		return ""
	}
	for _, dir := range []string{"/usr/local/sbin/", "/usr/local/bin/"} {
		if f := s.machine.lookup(dir + name); f != nil && !f.Dir && f.Mode&0o111 != 0 {
			return dir + name
		}
	}
	if commands[name] != nil && s.installed(name) {
		return "/usr/bin/" + name
	}
	return ""
}

// exec runs a command that is not a builtin of the shell.
func (s *session) exec(ctx context.Context, args []string) error {
	hc := interp.HandlerCtx(ctx)
	c := &command{session: s, args: args, dir: hc.Dir, stdout: hc.Stdout, stderr: hc.Stderr}
	if hc.Stdin != nil {
		c.stdin = hc.Stdin
	}
	if code := c.run(); code != 0 {
		return interp.ExitStatus(uint8(code))
	}
	return nil
}
