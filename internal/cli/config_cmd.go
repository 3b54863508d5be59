package cli

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"

	"github.com/zopday/provisioner/internal/client"
)

func (a *app) configCmd() *cobra.Command {
	var origin bool
	view := &cobra.Command{
		Use: "view", Short: "Show what is configured; tokens are never shown", Args: args(0, 0, ""),
		Long: withExamples("Show what is configured; tokens are never shown", "  zopday config view\n  zopday config view --show-origin"),
		RunE: func(*cobra.Command, []string) error { return a.viewConfig(origin) },
	}
	view.Flags().BoolVar(&origin, "show-origin", false, "tell where each value comes from")
	contexts := &cobra.Command{
		Use: "contexts", Short: "List the configured servers", Args: args(0, 0, ""),
		RunE: func(*cobra.Command, []string) error { return a.listContexts() },
	}
	use := &cobra.Command{
		Use: "use CONTEXT", Short: "Make a configured server the current one", Args: args(1, 1, "a context's name"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			u, _, err := a.readUser()
			if err != nil || len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return sortedKeys(u.Contexts), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			u, path, err := a.readUser()
			if err != nil {
				return err
			}
			if _, ok := u.Contexts[args[0]]; !ok {
				return &notThere{what: fmt.Sprintf("there is no context %q in %s", args[0], path), hint: "Contexts: " + strings.Join(sortedKeys(u.Contexts), ", ")}
			}
			u.CurrentContext = args[0]
			if err := writeUser(path, u); err != nil {
				return err
			}
			a.say("The current context is %s.", args[0])
			return nil
		},
	}
	return nounCmd("config", "Look at the configuration", view, contexts, use)
}

// shownToken is what stands for a token wherever configuration is shown.
const shownToken = "(set, not shown)" //nolint:gosec // it is what is shown instead of one

func (a *app) viewConfig(origin bool) error {
	token := a.cfg.Token
	switch {
	case a.cfg.tokenErr != nil:
		token.Value = a.cfg.tokenErr.Error()
	case token.Value != "":
		token.Value = shownToken
	default:
		token = setting{"(none)", "default"}
	}
	rows := []struct {
		name string
		s    setting
	}{
		{"server", a.cfg.Server}, {"token", token}, {"context", a.cfg.Context}, {"output", a.cfg.Output}, {"color", a.cfg.Color},
		{"timeout", a.cfg.Timeout}, {"quiet", a.cfg.Quiet}, {"verbose", a.cfg.Verbose}, {"noInput", a.cfg.NoInput},
	}
	doc := map[string]any{}
	for _, r := range rows {
		if origin {
			doc[r.name] = r.s
		} else {
			doc[r.name] = r.s.Value
		}
	}
	resp, err := client.Wrap(doc)
	if err != nil {
		return err
	}
	return a.print(resp, func(w io.Writer) {
		t := table{}
		for _, r := range rows {
			cells := []string{r.name, r.s.Value}
			if origin {
				cells = append(cells, cmp.Or(r.s.Origin, "default"))
			}
			t.add(cells...)
		}
		t.write(w, a.tableTerm())
	})
}

func (a *app) listContexts() error {
	u, path, err := a.readUser()
	if err != nil {
		return err
	}
	list := []map[string]any{}
	t := table{head: []string{"", "NAME", "SERVER", "TOKEN FILE"}}
	for _, name := range sortedKeys(u.Contexts) {
		c := u.Contexts[name]
		mark := ""
		if name == a.cfg.Context.Value {
			mark = "*"
		}
		list = append(list, map[string]any{"name": name, "server": c.Server, "tokenFile": c.TokenFile, "current": mark != ""})
		t.add(mark, name, c.Server, c.TokenFile)
	}
	if len(list) == 0 {
		a.say("No servers are configured in %s yet. Add one: zopday login", path)
		t.head = nil
	}
	resp, err := client.Wrap(list)
	if err != nil {
		return err
	}
	return a.print(resp, func(w io.Writer) { t.write(w, a.tableTerm()) })
}

var contextRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

func (a *app) loginCmd() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use: "login", Short: "Keep a server and its token as a context", Args: args(0, 0, ""),
		Long: withExamples("Keep a server and its token as a context. The token is read from the terminal without being shown, or from the standard input; it is checked, and kept in a file of its own with mode 0600",
			"  zopday login --server https://zopday.example.com\n  zopday login --name local < token.txt"),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.login(cmd, name) },
	}
	cmd.Flags().StringVar(&name, "name", "default", "the context's `name`")
	return cmd
}

func (a *app) login(cmd *cobra.Command, name string) error {
	if !contextRE.MatchString(name) {
		return usagef("--name %q is not a context's name; use letters, digits, dot, hyphen and underscore", name)
	}
	token, err := a.askToken()
	if err != nil {
		return err
	}
	if err := checkToken(token, "what was typed"); err != nil {
		return err
	}
	a.cfg.Token, a.cfg.tokenErr = setting{token, "what was typed"}, nil
	c, err := a.connect()
	if err != nil {
		return err
	}
	rctx, cancel := a.request(cmd.Context())
	defer cancel()
	if _, _, _, err := c.ListJobs(rctx, nil); err != nil {
		return err
	}
	dir := a.configDir()
	if dir == "" {
		return usagef("no home directory is known; set ZOPDAY_CONFIG_DIR")
	}
	u, path, err := a.readUser()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "tokens"), 0o700); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	file := filepath.Join(dir, "tokens", name)
	if err := writePrivate(file, []byte(token+"\n")); err != nil {
		return err
	}
	if u.Contexts == nil {
		u.Contexts = map[string]serverContext{}
	}
	u.Contexts[name], u.CurrentContext = serverContext{Server: c.Server(), TokenFile: file}, name
	if err := writeUser(path, u); err != nil {
		return err
	}
	a.say("Signed in to %s; the context is %s, the token is in %s.", c.Server(), name, file)
	return nil
}

func (a *app) askToken() (string, error) {
	var token string
	if f, ok := a.in.(*os.File); ok && a.inTTY {
		fmt.Fprintf(a.stderr, "Token for %s: ", a.cfg.Server.Value)
		b, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(a.stderr)
		if err != nil {
			return "", errInterrupted
		}
		token = string(b)
	} else {
		s, err := bufio.NewReader(io.LimitReader(a.in, 4096)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("standard input: %w", err)
		}
		token = s
	}
	token = strings.TrimSpace(token)
	if token == "" {
		return "", &usageError{msg: "no token was given", hint: "type it, or: zopday login < token.txt"}
	}
	return token, nil
}

func writeUser(path string, u userConfig) error {
	b, err := yaml.Marshal(u)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	return writePrivate(path, b)
}

// writePrivate replaces a file as a whole by one that only its owner can read.
func writePrivate(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // made with mode 0600
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	defer os.Remove(f.Name())
	_, werr := f.Write(b)
	if err := errors.Join(werr, f.Close()); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	return nil
}
