package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const secret = "zop_secret-that-is-never-shown"

func write(t *testing.T, path, text string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPrecedence: flag, environment, project file, context, default; each
// layer taken away shows the one beneath.
func TestPrecedence(t *testing.T) {
	dir, home := t.TempDir(), t.TempDir()
	t.Chdir(dir)
	env := map[string]string{"XDG_CONFIG_HOME": home, "ZOPDAY_OUTPUT": "wide", "ZOPDAY_SERVER": "http://env:1"}
	token := write(t, filepath.Join(home, "zopday", "tokens", "prod"), secret, 0o600)
	write(t, filepath.Join(home, "zopday", "config.yaml"), "currentContext: prod\ncontexts:\n  prod: {server: 'http://context:1', tokenFile: "+token+"}\n  other: {server: 'http://other:1'}\ndefaults: {output: yaml, timeout: 5m}\n", 0o600)
	write(t, filepath.Join(dir, ".zopday.yaml"), "output: jsonl\n", 0o644)
	view := func(args ...string) map[string]setting {
		r := run(t, nil)
		r.env = env
		got := r.do(append([]string{"config", "view", "--show-origin", "-o", "json"}, args...)...)
		if got.code != exitDone {
			t.Fatalf("exit code %d: %s", got.code, got.err)
		}
		if strings.Contains(got.out+got.err, secret) {
			t.Error("the token is shown")
		}
		var doc struct{ Data map[string]setting }
		if err := json.Unmarshal([]byte(got.out), &doc); err != nil {
			t.Fatal(err)
		}
		return doc.Data
	}
	check := func(got setting, value, origin string) {
		t.Helper()
		if got.Value != value || !strings.Contains(got.Origin, origin) {
			t.Errorf("%q from %q, want %q from %q", got.Value, got.Origin, value, origin)
		}
	}
	check(view("--server", "http://flag:1")["server"], "http://flag:1", "flag --server")
	check(view()["server"], "http://env:1", "environment ZOPDAY_SERVER")
	delete(env, "ZOPDAY_SERVER")
	check(view()["server"], "http://context:1", "context prod")
	check(view("--context", "other")["server"], "http://other:1", "context other")
	check(view()["token"], shownToken, "tokens/prod")
	check(view()["timeout"], "5m", "config.yaml")
	check(view("--timeout", "3s")["timeout"], "3s", "flag")
	delete(env, "XDG_CONFIG_HOME")
	env["HOME"] = t.TempDir()
	check(view()["server"], defaultServer, "default")

	plain := func() string {
		r := run(t, nil)
		r.env = env
		return r.do("config", "view", "--show-origin").out
	}
	if out := plain(); !strings.Contains(out, "wide") || !strings.Contains(out, "environment ZOPDAY_OUTPUT") {
		t.Errorf("the environment does not win over the project file:\n%s", out)
	}
	delete(env, "ZOPDAY_OUTPUT")
	if out := plain(); !strings.Contains(out, `"origin":"./.zopday.yaml"`) {
		t.Errorf("the project file does not win over the default:\n%s", out)
	}
}

// TestProjectFileCannotRedirect: a checked-out directory cannot say where a
// token is sent.
func TestProjectFileCannotRedirect(t *testing.T) {
	for _, text := range []string{"server: http://evil:1\n", "tokenFile: /tmp/x\n", "currentContext: evil\n", "contexts: {}\n", "nonsense: 1\n", "output: 'xml'\n"} {
		f := newFake(t)
		dir := t.TempDir()
		t.Chdir(dir)
		write(t, filepath.Join(dir, ".zopday.yaml"), text, 0o644)
		got := run(t, f).do("jobs", "list")
		if got.code != exitUsage || len(f.requests) > 0 {
			t.Errorf("%q: exit code %d, %d requests: %s", text, got.code, len(f.requests), got.err)
		}
	}
}

// TestTokenFile: refused when others can read it, and never shown.
func TestTokenFile(t *testing.T) {
	f := newFake(t)
	dir := t.TempDir()
	good := write(t, filepath.Join(dir, "good"), f.token+"\n", 0o600)
	open := write(t, filepath.Join(dir, "open"), f.token, 0o640)
	empty := write(t, filepath.Join(dir, "empty"), "\n", 0o600)
	for _, c := range []struct {
		file string
		code int
		says string
	}{
		{good, exitDone, ""}, {open, exitUsage, "can be read by others (mode 0640)"}, {empty, exitUsage, "is empty"},
		{filepath.Join(dir, "none"), exitUsage, "cannot be read"}, {dir, exitUsage, "not a regular file"},
	} {
		r := run(t, f)
		delete(r.env, "ZOPDAY_TOKEN")
		got := r.do("jobs", "list", "--token-file", c.file)
		if got.code != c.code || !strings.Contains(got.err, c.says) {
			t.Errorf("%s: exit code %d, want %d, saying %q: %s", c.file, got.code, c.code, c.says, got.err)
		}
		if strings.Contains(got.out+got.err, f.token) {
			t.Errorf("%s: the token is shown", c.file)
		}
	}
	garbled := run(t, f)
	garbled.env["ZOPDAY_TOKEN"] = "two words"
	if got := garbled.do("jobs", "list"); got.code != exitUsage || strings.Contains(got.err, "two words") {
		t.Errorf("a garbled token: exit code %d: %s", got.code, got.err)
	}
	// What needs no token does not mind.
	r := run(t, f)
	r.env["ZOPDAY_TOKEN_FILE"], r.env["ZOPDAY_TOKEN"] = open, ""
	if got := r.do("version"); got.code != exitDone {
		t.Errorf("version: exit code %d: %s", got.code, got.err)
	}
}

// TestNoFlagTakesASecret walks all commands.
func TestNoFlagTakesASecret(t *testing.T) {
	a := &app{getenv: func(string) string { return "" }}
	for _, name := range flagNames(a.root()) {
		if name == secretKeyFlag {
			continue // it takes where a key is, and refuses the key itself: below
		}
		if (strings.Contains(name, "password") || strings.Contains(name, "secret") || name == "token") && !strings.HasSuffix(name, "-file") {
			t.Errorf("--%s takes a secret as its value, where every user of the machine can read it", name)
		}
	}
}

// TestNoKeyAsAnArgument: whoever puts a key where the place of one belongs is told
// what to do with it, before anything else is done.
func TestNoKeyAsAnArgument(t *testing.T) {
	key := strings.Repeat("0f", 32)
	for _, args := range []string{
		"serve --secret-key " + key, "secrets rotate --db zopday.db --secret-key " + key, "secrets rekey --db zopday.db --new-key new.key --secret-key " + key,
		"secrets rekey --db zopday.db --new-key " + key, "restore --in a.db --db b.db --secret-key " + key,
	} {
		got := run(t, nil).do(strings.Fields(args)...)
		if got.code != exitUsage || !strings.Contains(got.err, "this looks like a key") || strings.Contains(got.err, key) {
			t.Errorf("%s: exit code %d: %s", args, got.code, got.err)
		}
	}
}

// TestLogin keeps a checked token in a file that only its owner can read.
func TestLogin(t *testing.T) {
	f := newFake(t)
	r := run(t, f)
	delete(r.env, "ZOPDAY_TOKEN")
	r.in = "wrong-token\n"
	if got := r.do("login", "--name", "test"); got.code != exitNotAllowed {
		t.Errorf("a wrong token: exit code %d: %s", got.code, got.err)
	}
	r.in = f.token + "\n"
	got := r.do("login", "--name", "test")
	if got.code != exitDone || strings.Contains(got.out+got.err, f.token) {
		t.Fatalf("exit code %d: %s%s", got.code, got.out, got.err)
	}
	fi, err := os.Stat(filepath.Join(r.env["HOME"], ".config", "zopday", "tokens", "test"))
	if err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatalf("token file: %v, %v", fi, err)
	}
	delete(r.env, "ZOPDAY_SERVER")
	if got := r.do("jobs", "list"); got.code != exitDone {
		t.Errorf("the kept context does not work: exit code %d: %s", got.code, got.err)
	}
}
