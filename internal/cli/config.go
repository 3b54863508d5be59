package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// defaultServer is where `zopday serve` listens when nothing else is said.
const defaultServer = "http://127.0.0.1:5087"

// A setting is a value with where it came from.
type setting struct {
	Value  string `json:"value"`
	Origin string `json:"origin"`
}

// settings are all that is configured, resolved by precedence: flag, then
// environment, then ./.zopday.yaml, then the current context, then default.
type settings struct {
	Server  setting `json:"server"`
	Token   setting `json:"token"` // Value is never shown
	Context setting `json:"context"`
	Output  setting `json:"output"`
	Color   setting `json:"color"`
	Timeout setting `json:"timeout"`
	Quiet   setting `json:"quiet"`
	Verbose setting `json:"verbose"`
	NoInput setting `json:"noInput"`

	tokenErr error // why there is no token, told when one is needed
}

// userConfig is the XDG config.yaml.
type userConfig struct {
	CurrentContext string                   `json:"currentContext,omitempty"`
	Contexts       map[string]serverContext `json:"contexts,omitempty"`
	Defaults       projectConfig            `json:"defaults,omitzero"`
}

// serverContext is one server with its token's file. The token itself is never
// in the configuration.
type serverContext struct {
	Server    string `json:"server"`
	TokenFile string `json:"tokenFile,omitempty"`
}

// projectConfig is ./.zopday.yaml: defaults for flags and nothing else. A
// directory that somebody checked out must not be able to say where a token is
// sent.
type projectConfig struct {
	Output  string `json:"output,omitempty"`
	Color   string `json:"color,omitempty"`
	Timeout string `json:"timeout,omitempty"`
	Quiet   *bool  `json:"quiet,omitempty"`
	Verbose *bool  `json:"verbose,omitempty"`
	NoInput *bool  `json:"noInput,omitempty"`
}

// flagValues are the global flags as given; an entry in set says that a flag
// was on the command line.
type flagValues struct {
	server, context, tokenFile, output, color string
	timeout                                   time.Duration
	quiet, verbose, noInput                   bool
	set                                       func(name string) bool
}

// configDir is where the user's configuration is; "" if no home is known.
func (a *app) configDir() string {
	if d := a.getenv("ZOPDAY_CONFIG_DIR"); d != "" {
		return d
	}
	if d := a.getenv("XDG_CONFIG_HOME"); d != "" && filepath.IsAbs(d) {
		return filepath.Join(d, "zopday")
	}
	home := a.getenv("HOME")
	if runtime.GOOS == "windows" {
		if d := a.getenv("APPDATA"); d != "" {
			return filepath.Join(d, "zopday")
		}
		home = a.getenv("USERPROFILE")
	}
	if home == "" {
		return ""
	}
	return filepath.Join(home, ".config", "zopday")
}

// resolveSettings reads everything once.
func (a *app) resolveSettings(f flagValues) (settings, error) {
	var s settings
	project, err := a.readProject()
	if err != nil {
		return s, err
	}
	user, userPath, err := a.readUser()
	if err != nil {
		return s, err
	}
	s.Context = pick(
		flagged(f, "context", f.context),
		a.fromEnv("ZOPDAY_CONTEXT"),
		setting{user.CurrentContext, userPath},
	)
	cur, known := user.Contexts[s.Context.Value]
	if s.Context.Value != "" && !known {
		return s, &usageError{
			msg:  fmt.Sprintf("context %q (from %s) is not in %s", s.Context.Value, s.Context.Origin, userPath),
			hint: "Contexts: " + strings.Join(sortedKeys(user.Contexts), ", "),
		}
	}
	inContext := fmt.Sprintf("context %s in %s", s.Context.Value, userPath)
	s.Server = pick(flagged(f, "server", f.server), a.fromEnv("ZOPDAY_SERVER"), setting{cur.Server, inContext}, setting{defaultServer, "default"})
	s.Output = pick(flagged(f, "output", f.output), a.fromEnv("ZOPDAY_OUTPUT"), setting{project.Output, projectPath}, setting{user.Defaults.Output, userPath}, setting{"table", "default"})
	s.Color = pick(flagged(f, "color", f.color), a.fromEnv("ZOPDAY_COLOR"), setting{project.Color, projectPath}, setting{user.Defaults.Color, userPath}, setting{"auto", "default"})
	s.Timeout = pick(flagged(f, "timeout", f.timeout.String()), a.fromEnv("ZOPDAY_TIMEOUT"), setting{project.Timeout, projectPath}, setting{user.Defaults.Timeout, userPath}, setting{"0s", "default"})
	s.Quiet = pick(flagged(f, "quiet", fmt.Sprint(f.quiet)), a.fromEnv("ZOPDAY_QUIET"), fromBool(project.Quiet, projectPath), fromBool(user.Defaults.Quiet, userPath), setting{"false", "default"})
	s.Verbose = pick(flagged(f, "verbose", fmt.Sprint(f.verbose)), a.fromEnv("ZOPDAY_VERBOSE"), fromBool(project.Verbose, projectPath), fromBool(user.Defaults.Verbose, userPath), setting{"false", "default"})
	s.NoInput = pick(flagged(f, "no-input", fmt.Sprint(f.noInput)), a.fromEnv("ZOPDAY_NO_INPUT"), fromBool(project.NoInput, projectPath), fromBool(user.Defaults.NoInput, userPath), setting{"false", "default"})
	s.Token, s.tokenErr = a.findToken(f, cur, inContext)
	return s, s.check()
}

func (s settings) check() error {
	if !slices.Contains(outputs, s.Output.Value) {
		return &usageError{msg: fmt.Sprintf("output %q (from %s) is not known", s.Output.Value, s.Output.Origin), hint: "Use one of " + strings.Join(outputs, ", ")}
	}
	if !slices.Contains([]string{"auto", "always", "never"}, s.Color.Value) {
		return &usageError{msg: fmt.Sprintf("color %q (from %s) is not known", s.Color.Value, s.Color.Origin), hint: "Use auto, always or never"}
	}
	if d, err := time.ParseDuration(s.Timeout.Value); err != nil || d < 0 {
		return &usageError{msg: fmt.Sprintf("timeout %q (from %s) is not a duration", s.Timeout.Value, s.Timeout.Origin), hint: "Use one such as 30s or 20m"}
	}
	for name, v := range map[string]setting{"quiet": s.Quiet, "verbose": s.Verbose, "no-input": s.NoInput} {
		if v.Value != "true" && v.Value != "false" && v.Value != "1" && v.Value != "0" {
			return usagef("%s %q (from %s) is neither true nor false", name, v.Value, v.Origin)
		}
	}
	return nil
}

func (s setting) yes() bool { return s.Value == "true" || s.Value == "1" }

func pick(from ...setting) setting {
	for _, s := range from {
		if s.Value != "" {
			return s
		}
	}
	return setting{}
}

func flagged(f flagValues, name, value string) setting {
	if f.set == nil || !f.set(name) {
		return setting{}
	}
	return setting{value, "flag --" + name}
}

func (a *app) fromEnv(name string) setting { return setting{a.getenv(name), "environment " + name} }

func fromBool(b *bool, origin string) setting {
	if b == nil {
		return setting{}
	}
	return setting{fmt.Sprint(*b), origin}
}

// projectPath is the project file, in the working directory.
const projectPath = "./.zopday.yaml"

// readProject reads it.
func (a *app) readProject() (projectConfig, error) {
	var p projectConfig
	b, err := os.ReadFile(filepath.Join(a.dir, ".zopday.yaml"))
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return p, fmt.Errorf("%s: %w", projectPath, err)
	}
	var keys map[string]any
	if err := yaml.Unmarshal(b, &keys); err != nil {
		return p, &usageError{msg: fmt.Sprintf("%s: %v", projectPath, yamlProblem(err))}
	}
	for k := range keys {
		if l := strings.ToLower(k); l == "server" || strings.HasPrefix(l, "token") || strings.HasPrefix(l, "context") || l == "currentcontext" {
			return p, &usageError{
				msg:  fmt.Sprintf("%s sets %q; a project file may only give defaults for flags, never a server or a token", projectPath, k),
				hint: "Put it into a context of your own configuration: zopday login",
			}
		}
	}
	if err := yaml.UnmarshalStrict(b, &p); err != nil {
		return p, &usageError{msg: fmt.Sprintf("%s: %v", projectPath, yamlProblem(err))}
	}
	return p, nil
}

func (a *app) readUser() (userConfig, string, error) {
	var u userConfig
	dir := a.configDir()
	if dir == "" {
		return u, "", nil
	}
	path := filepath.Join(dir, "config.yaml")
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return u, path, nil
	}
	if err != nil {
		return u, path, fmt.Errorf("%s: %w", path, err)
	}
	if err := yaml.UnmarshalStrict(b, &u); err != nil {
		return u, path, &usageError{msg: fmt.Sprintf("%s: %v", path, yamlProblem(err))}
	}
	return u, path, nil
}

// findToken looks for a token: the environment, a file named by flag or
// environment, the context's file. A token is never a flag's value, since
// every user of a machine can read the arguments of a process.
func (a *app) findToken(f flagValues, cur serverContext, inContext string) (setting, error) {
	file := flagged(f, "token-file", f.tokenFile)
	if file.Value == "" {
		if t := a.fromEnv("ZOPDAY_TOKEN"); t.Value != "" {
			t.Value = strings.TrimSpace(t.Value)
			return t, checkToken(t.Value, t.Origin)
		}
		file = pick(a.fromEnv("ZOPDAY_TOKEN_FILE"), setting{cur.TokenFile, inContext})
	}
	if file.Value == "" {
		return setting{}, nil
	}
	token, err := readTokenFile(file.Value)
	if err != nil {
		return setting{Origin: file.Origin}, err
	}
	origin := fmt.Sprintf("file %s (%s)", file.Value, file.Origin)
	return setting{token, origin}, checkToken(token, origin)
}

// checkToken refuses what a header cannot carry. The token itself is not shown.
func checkToken(token, origin string) error {
	for _, r := range token {
		if r <= ' ' || r > '~' {
			return usagef("the token (from %s) has characters that a token cannot have; is it something else?", origin)
		}
	}
	return nil
}

// readTokenFile reads a token; a file that others can read is refused.
func readTokenFile(path string) (string, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return "", &usageError{msg: fmt.Sprintf("token file %s cannot be read: %v", path, errors.Unwrap(err)), hint: "Sign in again: zopday login"}
	}
	if !fi.Mode().IsRegular() {
		return "", usagef("token file %s is not a regular file", path)
	}
	if perm := fi.Mode().Perm(); runtime.GOOS != "windows" && perm&0o077 != 0 {
		return "", &usageError{
			msg:  fmt.Sprintf("token file %s can be read by others (mode %04o)", path, perm),
			hint: "chmod 600 " + path + ", and have the token replaced if others may have seen it",
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", usagef("token file %s cannot be read: %v", path, errors.Unwrap(err))
	}
	token := string(bytes.TrimSpace(b))
	if token == "" {
		return "", usagef("token file %s is empty", path)
	}
	return token, nil
}

// yamlProblem drops the prefixes of the YAML and JSON packages, which say
// nothing to a person.
func yamlProblem(err error) string {
	s := err.Error()
	for _, p := range []string{"error unmarshaling JSON: ", "error converting YAML to JSON: ", "while decoding JSON: ", "json: ", "yaml: "} {
		s = strings.TrimPrefix(s, p)
	}
	return s
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
