package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

const rootHelp = `zopday makes production-shape infrastructure through one resumable ledger.

Examples:
  zopday demo -f examples/vm-aws-fixed-lb.yaml      the whole life of an environment, on a simulated AWS
  zopday jobs create -f shop.yaml --wait            make one, and watch

Results go to the standard output, everything else to the standard error.

Exit codes:
%s
Configuration: a flag wins over a ZOPDAY_* variable, that over ./.zopday.yaml (defaults for
flags only), that over the contexts in the configuration directory, that over the default.
zopday config view --show-origin tells which won.`

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "zopday",
		Short:         "Makes production-shape infrastructure through one resumable ledger",
		Long:          fmt.Sprintf(rootHelp, exitTableText()),
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return a.settle(cmd)
		},
	}
	p := root.PersistentFlags()
	p.StringVarP(&a.flags.output, "output", "o", "table", "`format`: table, wide, json, yaml, jsonl (the API's bodies) or name (the IDs)")
	p.StringVar(&a.flags.context, "context", "", "`name` of a configured server")
	p.StringVar(&a.flags.server, "server", "", "`address` of the server (default "+defaultServer+")")
	p.StringVar(&a.flags.tokenFile, "token-file", "", "`file` that holds the token, mode 0600; ZOPDAY_TOKEN works too")
	p.DurationVar(&a.flags.timeout, "timeout", 0, "how long to wait for an answer, or with --wait for the end of the job")
	p.BoolVarP(&a.flags.quiet, "quiet", "q", false, "results and errors only")
	p.BoolVarP(&a.flags.verbose, "verbose", "v", false, "show every request")
	p.StringVar(&a.flags.color, "color", "auto", "auto, always or never")
	p.BoolVar(&a.flags.noInput, "no-input", false, "never ask anything")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{msg: err.Error(), hint: cmd.CommandPath() + " --help"}
	})
	// Groups keep the help readable.
	root.AddGroup(&cobra.Group{ID: "use", Title: "Commands:"}, &cobra.Group{ID: "serve", Title: "Server and simulation:"}, &cobra.Group{ID: "more", Title: "More:"})
	root.SetHelpCommandGroupID("more")
	root.SetCompletionCommandGroupID("more")
	group := func(id string, cmds ...*cobra.Command) {
		for _, c := range cmds {
			c.GroupID = id
			root.AddCommand(c)
		}
	}
	group("use", a.jobsCmd(), a.vmCmd(), a.databasesCmd(), a.connectionsCmd(), a.componentsCmd(), a.spacesCmd(), a.accountsCmd(), a.remediateCmd(), a.schedulesCmd(), a.webhooksCmd(), a.auditCmd(),
		a.tokensCmd(), a.rolesCmd(), a.assignmentsCmd(), a.teamsCmd())
	group("serve", a.serveCmd(), a.sandboxCmd(), a.simCmd(), a.demoCmd(), a.migrateCmd(), a.orgsCmd(), a.secretsCmd(), a.backupCmd(), a.restoreCmd())
	group("more", a.configCmd(), a.loginCmd(), a.whoamiCmd(), a.doctorCmd(), a.versionCmd())
	root.RunE = noun
	root.Args = cobra.ArbitraryArgs
	completeFixed(root, "output", outputs...)
	completeFixed(root, "color", "auto", "always", "never")
	return root
}

// noun is what a command that only groups others does by itself: its help,
// or, after a typo, the likely ones. A typo never runs anything.
func noun(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	e := &usageError{msg: fmt.Sprintf("%q is not a command of %s", args[0], cmd.CommandPath())}
	if cmd.SuggestionsMinimumDistance <= 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		e.hint = cmd.CommandPath() + " " + strings.Join(near, ", or "+cmd.CommandPath()+" ")
	} else {
		e.hint = cmd.CommandPath() + " --help"
	}
	return e
}

// group makes a noun.
func nounCmd(use, short string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, RunE: noun, Args: cobra.ArbitraryArgs}
	c.AddCommand(subs...)
	return c
}

// args says how many arguments a command takes, in its own words.
func args(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, got []string) error {
		switch {
		case len(got) < least:
			return &usageError{msg: fmt.Sprintf("%s needs %s", cmd.CommandPath(), what), hint: cmd.CommandPath() + " --help"}
		case most >= 0 && len(got) > most:
			return &usageError{msg: fmt.Sprintf("%s takes no argument %q", cmd.CommandPath(), got[most]), hint: cmd.CommandPath() + " --help"}
		}
		return nil
	}
}

func completeFixed(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values, cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // a programming error: no such flag
	}
}
