package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func flagNames(c *cobra.Command) []string {
	var names []string
	each := func(f *pflag.Flag) { names = append(names, f.Name) }
	c.Flags().VisitAll(each)
	c.PersistentFlags().VisitAll(each)
	for _, sub := range c.Commands() {
		names = append(names, flagNames(sub)...)
	}
	return names
}

// TestSameFlagSameMeaning: a flag that several commands have says the same of
// itself everywhere, and every command says what it is.
func TestSameFlagSameMeaning(t *testing.T) {
	a := &app{getenv: func(string) string { return "" }}
	type seen struct{ typ, path string }
	flags := map[string]seen{}
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Short == "" {
			t.Errorf("%s does not say what it does", c.CommandPath())
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s does not say what it does", c.CommandPath(), f.Name)
			}
			if was, ok := flags[f.Name]; ok && was.typ != f.Value.Type() {
				t.Errorf("--%s is a %s of %s and a %s of %s", f.Name, was.typ, was.path, f.Value.Type(), c.CommandPath())
			}
			flags[f.Name] = seen{f.Value.Type(), c.CommandPath()}
		})
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(a.root())
}

// TestCompletionIsSilent: a server that does not answer says nothing into a
// person's command line.
func TestCompletionIsSilent(t *testing.T) {
	f := newFake(t)
	f.addJob(aJob("completed", "provision"))
	if got := run(t, f).do("__complete", "jobs", "get", ""); !strings.Contains(got.out, "shop-prod") || !strings.Contains(got.out, "job_one") {
		t.Errorf("no jobs are offered: %s", got.out)
	}
	r := run(t, nil)
	r.env["ZOPDAY_SERVER"] = "http://127.0.0.1:1"
	got := r.do("__complete", "jobs", "get", "")
	if got.code != exitDone || strings.Contains(got.out+got.err, "refused") {
		t.Errorf("exit code %d: %s%s", got.code, got.out, got.err)
	}
	if got := run(t, f).do("__complete", "jobs", "list", "-o", ""); !strings.Contains(got.out, "jsonl") {
		t.Errorf("formats are not offered: %s", got.out)
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if got := run(t, nil).do("completion", shell); got.code != exitDone || got.out == "" {
			t.Errorf("completion %s: exit code %d", shell, got.code)
		}
	}
}
