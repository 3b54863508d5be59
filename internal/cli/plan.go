package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
)

func (a *app) jobsPlan() *cobra.Command {
	var f struct {
		files, sets []string
		detailed    bool
	}
	cmd := &cobra.Command{
		Use: "plan JOB | -f FILE", Short: "Show what a job would do: steps, objects, checks, cost; nothing is made", Args: args(0, 1, ""),
		Long: withExamples("Show what a job would do: steps, objects with their names, checks made now, cost, and what a teardown will take; nothing is made",
			"  zopday jobs plan shop-prod\n  zopday jobs plan -f shop.yaml --set pool.count=4"),
		ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			switch {
			case len(args) == 1 && len(f.files) > 0:
				return usagef("give a job or -f FILE, not both")
			case len(args) == 0 && len(f.files) == 0:
				return &usageError{msg: cmd.CommandPath() + " needs a job or -f FILE", hint: cmd.CommandPath() + " --help"}
			case len(args) == 1 && len(f.sets) > 0:
				return usagef("--set goes with -f FILE")
			case len(args) == 0:
				docs, err := a.readDocuments(f.files, f.sets)
				if err != nil {
					return err
				}
				return a.planDocuments(cmd.Context(), c, docs, f.detailed)
			}
			rctx, cancel := a.slowRequest(cmd.Context())
			defer cancel()
			resp, p, err := c.PlanOf(rctx, args[0])
			if err != nil {
				return err
			}
			if err := a.print(resp, func(w io.Writer) { a.showPlan(w, p) }); err != nil {
				return err
			}
			return planExit(p, f.detailed)
		},
	}
	cmd.Flags().StringArrayVarP(&f.files, "file", "f", nil, "job `file`, - for the standard input; repeatable")
	cmd.Flags().StringArrayVar(&f.sets, "set", nil, "`key=value` to put into every job; repeatable")
	cmd.Flags().BoolVar(&f.detailed, "detailed-exit-code", false, "exit with 10 when there is something to make")
	return cmd
}

// planDocuments plans jobs that do not exist.
func (a *app) planDocuments(ctx context.Context, c *client.Client, docs []document, detailed bool) error {
	var last client.Plan
	for i, d := range docs {
		body, err := d.json(nil)
		if err != nil {
			return err
		}
		rctx, cancel := a.slowRequest(ctx)
		resp, p, err := c.PlanDocument(rctx, body)
		cancel()
		if err != nil {
			return err
		}
		if i > 0 && !a.machine() {
			if err := a.write([]byte("\n")); err != nil {
				return err
			}
		}
		show := func(w io.Writer) {
			a.showPlan(w, p)
			if len(p.Objects) > 0 {
				fmt.Fprintln(w, "\nNames end in letters of the job's ID; the job made of this file has its own.")
			}
		}
		if err := a.print(resp, show); err != nil {
			return err
		}
		last.Changes += p.Changes
		last.Checks = append(last.Checks, p.Checks...)
	}
	return planExit(last, detailed)
}

// planExit is how a plan ends: what would fail is wrong input, as it would be for
// the job itself.
func planExit(p client.Plan, detailed bool) error {
	for _, c := range p.Checks {
		if c.Status == "fails" {
			return quietExit(exitUsage)
		}
	}
	if detailed && p.Changes > 0 {
		return quietExit(exitChanges)
	}
	return nil
}

// checkSigns are the signs of a check's outcomes.
var checkSigns = map[string]glyph{"ok": glyphDone, "fails": glyphFailed, "warning": {"!", "!"}, "not checked": glyphPending}

func (a *app) showPlan(w io.Writer, p client.Plan) {
	t := a.outTerm
	head := func(format string, args ...any) {
		fmt.Fprintf(w, "\n%s\n", t.paint(bold, fmt.Sprintf(format, args...)))
	}
	fmt.Fprintf(w, "%s  %s\n", t.paint(bold, clean(p.Name)), clean(p.Summary))
	if len(p.Checks) > 0 {
		head("Checks")
		tab := table{}
		for _, c := range p.Checks {
			msg := c.Message
			if c.Fix != "" && c.Status != "ok" {
				msg = strings.TrimSuffix(msg, ".") + ". " + sentenceCase(c.Fix)
			}
			tab.add("  "+t.glyph(checkSigns[c.Status])+" "+c.Status, c.Name, msg)
		}
		tab.write(w, terminal{size: t.size})
	}
	head("Steps (%d)", len(p.Steps))
	for i, s := range p.Steps {
		fmt.Fprintf(w, "  %2d %s  %s\n", i+1, pad(s.Name, 24), clean(s.Title))
	}
	if p.Network != nil {
		head("Network %s", clean(p.Network.CIDR))
		a.showLayout(w, p.Network)
	}
	a.showPlannedObjects(w, p, head)
	if len(p.LeftAlone) > 0 {
		head("Leaves alone")
		for _, l := range p.LeftAlone {
			fmt.Fprintf(w, "    %s  (%s)\n", clean(l.What), clean(l.Why))
		}
	}
	switch n := len(p.Teardown); {
	case n > 0 && n == len(p.Objects) && !a.wide():
		head("Tearing it down later deletes all of them")
	case n > 0:
		head("Tearing it down later deletes")
		for _, o := range p.Teardown {
			fmt.Fprintf(w, "  - %s\n", clean(o))
		}
	}
	if p.Cost.Summary != "" {
		head("Cost")
		fmt.Fprintf(w, "  %s\n", clean(p.Cost.Summary))
		tab := table{}
		listed := map[string]bool{}
		for _, i := range p.Cost.Items {
			listed[i.Name] = true
			tab.add("  "+i.Name, i.Arithmetic)
		}
		tab.write(w, a.tableTerm())
		for _, s := range p.Cost.Assumptions {
			fmt.Fprintf(w, "  Assumed: %s\n", clean(s))
		}
		for _, s := range p.Cost.NotPriced {
			if !listed[s] { // an item's own line says so
				fmt.Fprintf(w, "  Not priced: %s\n", clean(s))
			}
		}
	}
}

// sentenceCase begins a sentence.
func sentenceCase(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func (a *app) showPlannedObjects(w io.Writer, p client.Plan, head func(string, ...any)) {
	if len(p.Objects) == 0 {
		head("Makes nothing")
		return
	}
	head("Makes %s, %d of them still to be made", plurals(len(p.Objects), "object", "objects"), p.Changes)
	tab := table{}
	for _, o := range p.Objects {
		sign := "  + "
		if o.ID != "" {
			sign = "    "
		}
		tab.add(sign+o.Kind, o.Name, o.ID)
	}
	tab.write(w, a.tableTerm())
}
