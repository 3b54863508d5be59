package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// A consent is asked for before something is destroyed: level 2 is a yes,
// level 3 the thing's name, typed.
type consent struct {
	verb    string // what is about to happen: verb + thing
	effect  []string
	level   int
	name    string // level 3: what has to be typed
	yes     bool   // --yes
	confirm string // --confirm
}

// errDeclined is a person who said no.
var errDeclined = errors.New("nothing was changed")

// confirm shows what is about to happen and gets a person's consent: by the
// flag, or on a terminal by asking. Without a terminal the flag is needed, and
// the refusal says which.
func (a *app) confirm(ctx context.Context, c consent) error {
	if c.level >= 2 && !a.cfg.Quiet.yes() && len(c.effect) > 0 {
		fmt.Fprintf(a.stderr, "This will %s:\n", a.errTerm.text(clean(c.verb)))
		for _, e := range c.effect {
			fmt.Fprintf(a.stderr, "  %s\n", a.errTerm.text(clean(e)))
		}
	}
	switch {
	case c.level < 2:
		return nil
	case c.level == 2 && c.yes:
		return nil
	case c.level == 3 && c.confirm == c.name:
		return nil
	case c.level == 3 && c.confirm != "":
		return &usageError{msg: fmt.Sprintf("--confirm %s is not the name of what is to go, which is %s; nothing was changed", c.confirm, c.name)}
	case !a.inTTY && c.level == 3:
		return &usageError{msg: fmt.Sprintf("to %s, its name has to be given as a flag; nothing was changed", c.verb), hint: "add --confirm " + c.name}
	case !a.inTTY:
		return &usageError{msg: fmt.Sprintf("to %s, consent has to be given as a flag; nothing was changed", c.verb), hint: "add --yes"}
	}
	want := "yes"
	if c.level == 3 {
		want = c.name
		fmt.Fprintf(a.stderr, "Type %s to go on: ", c.name)
	} else {
		fmt.Fprint(a.stderr, "Type yes to go on: ")
	}
	got, err := a.readLine(ctx)
	if err != nil {
		return err
	}
	if got != want {
		return &declined{}
	}
	return nil
}

type declined struct{}

func (*declined) Error() string       { return errDeclined.Error() }
func (*declined) Unwrap() error       { return errDeclined }
func (*declined) exitCode() int       { return exitUsage }
func (*declined) layout(*app) failure { return failure{what: "not confirmed; nothing was changed"} }

// readLine reads what a person types; Ctrl-C ends the wait.
func (a *app) readLine(ctx context.Context) (string, error) {
	type answer struct {
		text string
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		s, err := bufio.NewReader(a.in).ReadString('\n')
		got <- answer{s, err}
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(a.stderr)
		return "", errInterrupted
	case g := <-got:
		if g.err != nil && !(errors.Is(g.err, io.EOF) && g.text != "") {
			fmt.Fprintln(a.stderr)
			return "", errInterrupted
		}
		return strings.TrimSpace(g.text), nil
	}
}
