package cli

import (
	"context"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
)

func (a *app) jobsCmd() *cobra.Command {
	c := nounCmd("jobs", "Make, watch and tear down infrastructure",
		a.jobsCreate(), a.jobsSubmit(), a.jobsList(), a.jobsGet(), a.jobsPlan(), a.jobsWatch(), a.jobsExplain(),
		a.jobsUpdate(), a.jobsRetry(), a.jobsCancel(), a.jobsDelete(), a.jobsOutputs(), a.jobsObjects(), a.jobsEvents(), a.jobsReceipt(),
		a.jobsVerify(), a.jobsVMOp())
	c.Aliases = []string{"job"}
	c.Long = `Make, watch and tear down infrastructure.

Examples:
  zopday jobs create -f shop.yaml --wait
  zopday jobs explain shop-prod

A JOB is an ID, the beginning of one that fits one job only, or a name.`
	return c
}

// jobCmd is a command on one job: it resolves the job and hands it on.
func (a *app) jobCmd(use, short, example string, run func(ctx context.Context, c *client.Client, j client.Job, resp *client.Response) error) *cobra.Command {
	return &cobra.Command{
		Use: use + " JOB", Short: short, Long: withExamples(short, example), Args: args(1, 1, "a job: its ID, the beginning of it, or its name"),
		ValidArgsFunction: a.completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			rctx, cancel := a.request(cmd.Context())
			resp, j, err := a.resolve(rctx, c, args[0])
			cancel()
			if err != nil {
				return err
			}
			return run(cmd.Context(), c, j, resp)
		},
	}
}

func withExamples(short, example string) string {
	if example == "" {
		return short + "."
	}
	return short + ".\n\nExamples:\n" + example
}

// resolve finds the job that a person means.
func (a *app) resolve(ctx context.Context, c *client.Client, ref string) (*client.Response, client.Job, error) {
	if ref == "" {
		return nil, client.Job{}, usagef("a job's ID or name cannot be empty")
	}
	resp, j, err := c.GetJob(ctx, ref)
	if err != nil {
		return resp, j, err
	}
	return resp, j, nil
}

func (a *app) jobsList() *cobra.Command {
	var f struct {
		status, labels                                                          []string
		phase, kind, typ, provider, mode, name, subject, sort, cursor, from, to string
		limit                                                                   int
		all                                                                     bool
	}
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List jobs", Args: args(0, 0, ""),
		Long: withExamples("List jobs, newest first", "  zopday jobs list --status failed\n  zopday jobs list --label team=shop -o jsonl"),
	}
	fl := cmd.Flags()
	fl.StringSliceVar(&f.status, "status", nil, "draft, queued, running, completed, failed or cancelled; repeatable")
	fl.StringVar(&f.phase, "phase", "", "provision, update or teardown")
	fl.StringVar(&f.kind, "kind", "", "provisioning or remediation")
	fl.StringVar(&f.typ, "type", "", "resource `type`, such as vm")
	fl.StringVar(&f.provider, "provider", "", "aws, gcp or azure")
	fl.StringVar(&f.mode, "mode", "", "create, create_in_existing or adopt")
	fl.StringVar(&f.name, "name", "", "part of the name")
	fl.StringVar(&f.subject, "subject", "", "subject `ID`")
	fl.StringSliceVarP(&f.labels, "label", "l", nil, "`key=value`; repeatable")
	fl.StringVar(&f.from, "created-from", "", "RFC 3339 `time`, or how long ago such as 24h")
	fl.StringVar(&f.to, "created-to", "", "RFC 3339 `time`, or how long ago such as 1h")
	fl.StringVar(&f.sort, "sort", "", "createdAt, updatedAt or name; with a minus before it downwards, such as -createdAt (the default)")
	fl.IntVar(&f.limit, "limit", 0, "jobs a page, 50 by default")
	fl.StringVar(&f.cursor, "cursor", "", "go on where a page ended")
	fl.BoolVar(&f.all, "all", false, "every page")
	completeFixed(cmd, "status", "draft", "queued", "running", "completed", "failed", "cancelled")
	completeFixed(cmd, "phase", "provision", "update", "teardown")
	completeFixed(cmd, "provider", "aws", "gcp", "azure")
	completeFixed(cmd, "sort", "createdAt", "-createdAt", "updatedAt", "-updatedAt", "name", "-name")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		q := url.Values{}
		for k, v := range map[string]string{"phase": f.phase, "kind": f.kind, "resourceType": f.typ, "provider": f.provider, "mode": f.mode,
			"name": f.name, "subjectId": f.subject, "sort": f.sort, "cursor": f.cursor} {
			if v != "" {
				q.Set(k, v)
			}
		}
		for _, s := range f.status {
			q.Add("status", s)
		}
		for _, l := range f.labels {
			if !strings.Contains(l, "=") {
				return usagef("--label %s is not key=value", l)
			}
			q.Add("label", l)
		}
		for name, v := range map[string]string{"createdFrom": f.from, "createdTo": f.to} {
			if v == "" {
				continue
			}
			at, err := moment(v, a.now())
			if err != nil {
				return err
			}
			q.Set(name, at)
		}
		if f.limit > 0 {
			q.Set("limit", strconv.Itoa(f.limit))
		}
		return a.listJobs(cmd.Context(), q, f.all)
	}
	return cmd
}

// moment is a time as the API takes it, given as one or as how long ago.
func moment(s string, now time.Time) (string, error) {
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d).UTC().Format(time.RFC3339), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return "", usagef("%q is neither a time such as 2026-11-30T10:00:00Z nor how long ago such as 24h", s)
	}
	return t.UTC().Format(time.RFC3339Nano), nil
}

func (a *app) listJobs(ctx context.Context, q url.Values, all bool) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	var jobs []client.Job
	var next string
	var pages []*client.Response
	for {
		rctx, cancel := a.request(ctx)
		resp, got, cur, err := c.ListJobs(rctx, q)
		cancel()
		if err != nil {
			return err
		}
		pages, jobs, next = append(pages, resp), append(jobs, got...), cur
		if !all || next == "" {
			break
		}
		q.Set("cursor", next)
	}
	resp := pages[0]
	if len(pages) > 1 {
		if resp, err = client.Join(pages); err != nil {
			return err
		}
	}
	err = a.print(resp, func(w io.Writer) { a.jobTable(w, jobs) })
	if err != nil || a.machine() {
		return err
	}
	switch {
	case len(jobs) == 0 && filtered(q):
		a.say("No job matches.")
	case len(jobs) == 0:
		a.say("No jobs yet. Make one: zopday jobs create -f FILE, such as one of examples/.")
	case next != "":
		a.say("There are more: --all, or --cursor %s", next)
	}
	return nil
}

func filtered(q url.Values) bool {
	for k := range q {
		if !slices.Contains([]string{"sort", "limit", "cursor"}, k) {
			return true
		}
	}
	return false
}

func (a *app) jobTable(w io.Writer, jobs []client.Job) {
	if len(jobs) == 0 {
		return
	}
	now := a.now()
	t := table{head: []string{"STATE", "NAME", "TYPE", "CLOUD", "REGION", "STEP", "AGE", "ID", "REASON"}}
	if a.wide() {
		t.head = []string{"STATE", "NAME", "TYPE", "CLOUD", "ACCOUNT", "REGION", "MODE", "STEP", "AGE", "BY", "ID", "REASON"}
	}
	for i := range jobs {
		j := &jobs[i]
		sign, word, _ := a.outTerm.badge(j)
		state, step := sign+" "+word, strings.TrimPrefix(j.CurrentStep, "step")
		if a.wide() {
			t.add(state, j.Name, string(j.ResourceType), string(j.Provider), j.CloudAccountID, j.Region, string(j.Mode), step, age(j.CreatedAt, now), j.CreatedBy, j.ID, j.Verdict.Sentence)
		} else {
			t.add(state, j.Name, string(j.ResourceType), string(j.Provider), j.Region, step, age(j.CreatedAt, now), j.ID, j.Verdict.Sentence)
		}
	}
	t.write(w, a.tableTerm())
}

// completeJobs offers the jobs there are.
func (a *app) completeJobs(cmd *cobra.Command, args []string, part string) ([]string, cobra.ShellCompDirective) {
	return a.completeAt(a.jobNames)(cmd, args, part)
}

func (a *app) jobNames(ctx context.Context, c *client.Client) ([]string, error) {
	_, jobs, _, err := c.ListJobs(ctx, url.Values{"limit": {"200"}})
	var out []string
	for i := range jobs {
		_, word, _ := a.outTerm.badge(&jobs[i])
		out = append(out, jobs[i].Name+"\t"+word, jobs[i].ID+"\t"+jobs[i].Name+", "+word)
	}
	return out, err
}
