package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/job"
)

func (a *app) jobsGet() *cobra.Command {
	return a.jobCmd("get", "Show a job", "  zopday jobs get shop-prod\n  zopday jobs get shop-prod -o json | jq .data.status",
		func(_ context.Context, _ *client.Client, j client.Job, resp *client.Response) error {
			return a.print(resp, func(w io.Writer) { a.showJob(w, &j) })
		})
}

// showJob is one job for a person.
func (a *app) showJob(w io.Writer, j *client.Job) {
	t, now := a.outTerm, a.now()
	sign, word, p := t.badge(j)
	fmt.Fprintf(w, "%s  %s\n", t.paint(bold, clean(j.Name)), t.paint(p, sign+" "+word))
	fmt.Fprintln(w, clean(j.Verdict.Sentence))
	fmt.Fprintln(w)
	fields(w,
		"ID", j.ID, "Kind", string(j.Kind), "Type", string(j.ResourceType), "Cloud", string(j.Provider)+" "+j.CloudAccountID+" "+j.Config.InfraConfig.Account,
		"Region", j.Region, "Mode", string(j.Mode), "Phase", string(j.Phase), "Labels", labels(j.Labels),
		"Created", stampOf(j.CreatedAt, now)+" by "+j.CreatedBy, "Changed", stampOf(j.UpdatedAt, now))
	if j.Error != nil {
		fmt.Fprintf(w, "\n%s %s   [%s]\n", t.paint(red, "Error:"), clean(j.Error.Message), clean(j.Error.Code))
		if j.Error.Hint != "" {
			fmt.Fprintf(w, "  Do  %s\n", asCommands.Replace(clean(j.Error.Hint)))
		}
	}
	a.showSteps(w, j)
	a.showNetwork(w, j)
	a.showVMs(w, j)
	a.showControls(w, j)
	for _, s := range j.Config.InfraConfig.Warnings {
		fmt.Fprintf(w, "\n%s %s\n", t.paint(yellow, "Warning:"), clean(s))
	}
	if len(j.Outputs) > 0 {
		fmt.Fprintln(w, "\nOutputs")
		a.showOutputs(w, j.Outputs, "  ")
	}
}

func (a *app) showSteps(w io.Writer, j *client.Job) {
	if len(j.Steps) == 0 {
		return
	}
	fmt.Fprintln(w, "\nSteps")
	s := liveSink{screen: screen{term: a.outTerm}, now: a.now, job: j}
	for i := range j.Steps {
		l := s.step(i, &j.Steps[i])
		if st := j.Steps[i]; st.Status == job.StepRunning || st.Status == job.StepWaiting {
			l[0].text = " " + a.outTerm.glyph(glyphRunning) + " "
			if st.WaitingFor != "" {
				l = append(l, piece{plain, "  waiting for " + st.WaitingFor})
			}
		}
		var b strings.Builder
		for _, p := range l {
			b.WriteString(a.outTerm.paint(p.paint, clean(p.text)))
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// showNetwork is how a job's network is laid out and what it is tied to.
func (a *app) showNetwork(w io.Writer, j *client.Job) {
	infra := j.Config.InfraConfig
	if infra.NetworkPlan != nil {
		fmt.Fprintf(w, "\nNetwork %s  %s\n", clean(infra.NetworkPlan.CIDR), clean(infra.NetworkID))
		a.showLayout(w, infra.NetworkPlan)
	} else if len(infra.Subnets) > 0 {
		fmt.Fprintf(w, "\nNetwork %s  %s\n", clean(infra.NetworkCIDR), clean(infra.NetworkID))
		t := table{head: []string{"  SUBNET", "RANGE", "ZONE", "ID"}}
		for _, s := range infra.Subnets {
			t.add("  "+s.Name, s.CIDR, s.Zone, s.ID)
		}
		t.write(w, a.tableTerm())
	}
	for _, p := range infra.Peerings {
		fmt.Fprintf(w, "  Peering with %s: %s", clean(p.NetworkID), clean(p.State))
		if p.Waiting != "" {
			fmt.Fprintf(w, "; %s", clean(p.Waiting))
		}
		fmt.Fprintln(w)
	}
	for _, z := range infra.DNSZones {
		fmt.Fprintf(w, "  Zone %s, %s", clean(z.Name), clean(z.Visibility))
		if z.Delegation != "" {
			fmt.Fprintf(w, ": %s", clean(z.Delegation))
		}
		fmt.Fprintln(w)
	}
}

// showLayout is the address plan of a network.
func (a *app) showLayout(w io.Writer, p *job.NetworkPlan) {
	t := table{head: []string{"  SUBNET", "RANGE", "ZONE"}}
	for _, s := range p.Subnets {
		t.add("  "+s.Key, s.CIDR, s.Zone)
	}
	for _, c := range p.SecondaryCIDRs {
		t.add("  (further range)", c, "")
	}
	for _, r := range p.SecondaryRanges {
		t.add("  (secondary range "+r.Name+")", r.CIDR, "")
	}
	if p.PrivateServices != "" {
		t.add("  (private services)", p.PrivateServices, "")
	}
	t.write(w, a.tableTerm())
	for _, n := range p.Notes {
		fmt.Fprintf(w, "  %s\n", clean(n))
	}
}

func (a *app) showVMs(w io.Writer, j *client.Job) {
	infra := j.Config.InfraConfig
	if len(infra.VMs) == 0 {
		return
	}
	health := map[string]string{}
	for _, t := range infra.Targets {
		health[t.InstanceID] = t.Health
	}
	fmt.Fprintln(w, "\nVMs")
	t := table{head: []string{"  NAME", "STATE", "INSTANCE", "ZONE", "PRIVATE IP", "TARGET", "NOTE"}}
	for _, vm := range infra.VMs {
		t.add("  "+vm.Name, string(vm.State), vm.InstanceID, vm.Zone, vm.PrivateIP, health[vm.InstanceID], vm.LastError)
	}
	t.write(w, a.tableTerm())
}

// showControls is the hardening report: how many controls the cloud confirms,
// and with -o wide or where one is not met, which.
func (a *app) showControls(w io.Writer, j *client.Job) {
	report := j.Config.InfraConfig.Report
	if len(report) == 0 {
		return
	}
	met, unread, waived := 0, 0, 0
	t := table{head: []string{"", "CONTROL", "NAME", "WANTED", "SEEN"}}
	for _, c := range report {
		sign, seen := glyphFailed, c.Seen
		switch {
		case c.Met:
			met++
			sign = glyphDone
		case c.Unchecked:
			unread++
			sign = glyphPending
		case c.Waived != "":
			waived++
			sign, seen = glyphPending, c.Seen+"; waived: "+c.Waived
		}
		if !c.Met || a.wide() {
			t.add("  "+a.outTerm.glyph(sign), c.ID, c.Name, c.Wanted, seen)
		}
	}
	fmt.Fprintf(w, "\nHardening: %d of %s read back from the cloud as wanted", met, plurals(len(report), "control", "controls"))
	if unread > 0 {
		fmt.Fprintf(w, ", %d could not be read", unread)
	}
	if waived > 0 {
		fmt.Fprintf(w, ", %d waived", waived)
	}
	fmt.Fprintln(w)
	if len(t.rows) > 0 {
		t.write(w, a.tableTerm())
	}
}

func (a *app) showOutputs(w io.Writer, out map[string]string, indent string) {
	t := table{}
	for _, k := range sortedKeys(out) {
		t.add(indent+k, out[k])
	}
	// A command that is meant to be copied is never cut.
	t.write(w, terminal{size: a.outTerm.size})
}

func labels(m map[string]string) string {
	var parts []string
	for _, k := range sortedKeys(m) {
		parts = append(parts, k+"="+m[k])
	}
	return strings.Join(parts, " ")
}

func stampOf(t, now time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format(time.RFC3339) + " (" + ago(t, now) + ")"
}

func (a *app) jobsOutputs() *cobra.Command {
	var only string
	cmd := a.jobCmd("outputs", "Show what a job tells its user: addresses, names, commands",
		"  zopday jobs outputs shop-prod\n  curl \"$(zopday jobs outputs shop-prod --get url)\"",
		func(_ context.Context, _ *client.Client, j client.Job, _ *client.Response) error {
			if only != "" {
				v, ok := j.Outputs[only]
				if !ok {
					return &notThere{what: fmt.Sprintf("%s has no output %q", j.Name, only), hint: "Outputs: " + cmp.Or(strings.Join(sortedKeys(j.Outputs), ", "), "none yet")}
				}
				return a.write([]byte(clean(v) + "\n"))
			}
			if len(j.Outputs) == 0 {
				a.say("No outputs yet. %s", j.Verdict.Sentence)
			}
			out := j.Outputs
			if out == nil {
				out = map[string]string{}
			}
			resp, err := client.Wrap(out)
			if err != nil {
				return err
			}
			return a.print(resp, func(w io.Writer) { a.showOutputs(w, out, "") })
		})
	cmd.Flags().StringVar(&only, "get", "", "print the value of this one `output` alone")
	return cmd
}

// notThere is something that does not exist.
type notThere struct{ what, hint string }

func (e *notThere) Error() string { return e.what }

func (e *notThere) exitCode() int { return exitNotFound }

func (e *notThere) layout(*app) failure {
	return failure{what: e.what, code: "not-found", rows: []row{{"Do", e.hint}}}
}

func (a *app) jobsObjects() *cobra.Command {
	cmd := a.jobCmd("objects", "List what a job made at the cloud", "  zopday jobs objects shop-prod\n  zopday jobs objects shop-prod -o jsonl",
		func(ctx context.Context, c *client.Client, j client.Job, _ *client.Response) error {
			rctx, cancel := a.request(ctx)
			defer cancel()
			objs, err := c.Objects(rctx, j.ID)
			if err != nil {
				return err
			}
			resp, err := client.Wrap(objs)
			if err != nil {
				return err
			}
			if len(objs) == 0 {
				a.say("Nothing has been made.")
			}
			return a.print(resp, func(w io.Writer) { a.objectTable(w, objs) })
		})
	cmd.Aliases = []string{"resources"}
	return cmd
}

func (a *app) objectTable(w io.Writer, objs []job.Object) {
	if len(objs) == 0 {
		return
	}
	t := table{head: []string{"STATE", "KIND", "NAME", "ID", "STEP", "NOTE"}}
	for _, o := range objs {
		t.add(string(o.State), o.Kind, o.Name, o.ID, o.Step, o.Reason)
	}
	t.write(w, a.tableTerm())
}
