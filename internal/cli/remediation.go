package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
	"github.com/zopday/provisioner/internal/job"
)

func (a *app) remediateCmd() *cobra.Command {
	return nounCmd("remediate", "Stop the pools of a VM or cluster job, and give them back",
		a.remediateOne(job.ActionPause, "pause", "Stop a pool and keep it stopped until it is resumed"),
		a.remediateOne(job.ActionResume, "resume", "Give a paused pool back exactly as it was"),
		a.remediateOne(job.ActionScaleToZero, "scale-to-zero", "Empty a pool; where its own scaling can, it grows again by load"),
		a.remediateOne(job.ActionRestore, "restore", "Give a pool that was scaled to zero back exactly as it was"))
}

func (a *app) remediateOne(action job.RemediationAction, verb, short string) *cobra.Command {
	var f struct {
		pool, reason, name, kind, key string
		force, adopted, wait          bool
	}
	cmd := &cobra.Command{
		Use: verb + " JOB", Short: short, Args: args(1, 1, "a VM or cluster job: its ID or its name"), ValidArgsFunction: a.completeAt(a.jobNames),
		Long: withExamples(short, fmt.Sprintf("  zopday remediate %s shop-prod --follow\n  zopday remediate %s platform --pool workers", verb, verb)),
		RunE: func(cmd *cobra.Command, args []string) error {
			spec := map[string]any{"action": action, "jobId": args[0]}
			for k, v := range map[string]string{"pool": f.pool, "reason": f.reason} {
				if v != "" {
					spec[k] = v
				}
			}
			for k, v := range map[string]bool{"force": f.force, "allowAdopted": f.adopted} {
				if v {
					spec[k] = v
				}
			}
			doc := map[string]any{"kind": job.Remediation, "config": map[string]any{"spec": spec}, "submit": true}
			for k, v := range map[string]string{"name": f.name, "resourceType": f.kind} {
				if v != "" {
					doc[k] = v
				}
			}
			return a.remediate(cmd.Context(), doc, f.key, f.wait)
		},
	}
	fl := cmd.Flags()
	fl.BoolVar(&f.wait, "follow", false, "watch the job to its end")
	fl.StringVar(&f.pool, "pool", "", "the node `pool` of a cluster; all but Azure's system pool if left out")
	fl.StringVar(&f.reason, "reason", "", "`why`, for the history")
	fl.StringVar(&f.name, "name", "", "`name` of the job; made of what it does to whom if left out")
	fl.StringVar(&f.kind, "type", "", "vm or cluster, where jobs of both have the name")
	fl.BoolVar(&f.adopted, "allow-adopted", false, "act on a pool that its job only adopted")
	fl.StringVar(&f.key, "idempotency-key", "", "the same `key` with the same request makes no second job")
	if !action.Stops() {
		fl.BoolVar(&f.force, "force", false, "overwrite what was changed since the pool was paused")
	}
	completeFixed(cmd, "type", "vm", "cluster")
	return cmd
}

func (a *app) remediate(ctx context.Context, request map[string]any, key string, wait bool) error {
	doc, err := json.Marshal(request)
	if err != nil {
		return err
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	if key == "" {
		key = client.NewKey()
	}
	rctx, cancel := a.request(ctx)
	resp, j, err := c.CreateJob(rctx, doc, key)
	cancel()
	if err != nil {
		return err
	}
	if !wait {
		return a.printMade(resp, &j)
	}
	return a.waitAndPrint(ctx, c, j, 0, resp)
}

func (a *app) schedulesCmd() *cobra.Command {
	return nounCmd("schedules", "Pause and resume pools at set times",
		a.schedulesCreate(), a.schedulesList(), a.schedulesGet(), a.schedulesSwitch("pause", "Turn a schedule off; what it paused stays so", false),
		a.schedulesSwitch("resume", "Turn a schedule on again", true), a.schedulesDelete())
}

func (a *app) schedulesCreate() *cobra.Command {
	var f struct {
		pool, days, from, to, pause, resume, zone string
		adopted, off, dry                         bool
	}
	const short = "Pause and resume the pools of a VM or cluster job at set times"
	cmd := &cobra.Command{
		Use: "create JOB", Short: short, Args: args(1, 1, "a VM or cluster job: its ID or its name"), ValidArgsFunction: a.completeAt(a.jobNames),
		Long: withExamples(short, "  zopday schedules create shop-prod --days mon,tue,wed,thu,fri --from 08:00 --to 20:00 --time-zone Europe/Berlin\n"+
			"  zopday schedules create platform --pool workers --pause-cron '0 20 * * *' --resume-cron '0 7 * * 1-5' --time-zone UTC --dry-run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			request := map[string]any{"jobId": args[0]}
			for k, v := range map[string]string{"pool": f.pool, "pauseCron": f.pause, "resumeCron": f.resume, "timeZone": f.zone} {
				if v != "" {
					request[k] = v
				}
			}
			if f.days != "" || f.from != "" || f.to != "" {
				request["window"] = map[string]any{"days": strings.FieldsFunc(f.days, func(r rune) bool { return r == ',' || r == ' ' }), "from": f.from, "to": f.to}
			}
			if f.adopted {
				request["allowAdopted"] = true
			}
			if f.off {
				request["enabled"] = false
			}
			return a.withSchedule(cmd.Context(), func(ctx context.Context, c *client.Client) (*client.Response, client.Schedule, error) {
				return c.CreateSchedule(ctx, request, f.dry)
			})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.pool, "pool", "", "the node `pool` of a cluster; all but Azure's system pool if left out")
	fl.StringVar(&f.days, "days", "", "`days` on which the pool runs, such as mon,tue,wed,thu,fri")
	fl.StringVar(&f.from, "from", "", "`time` of day from which it runs, such as 08:00")
	fl.StringVar(&f.to, "to", "", "`time` of day until which it runs, such as 20:00")
	fl.StringVar(&f.pause, "pause-cron", "", "instead: cron `line` of when it is paused")
	fl.StringVar(&f.resume, "resume-cron", "", "cron `line` of when it is resumed")
	fl.StringVar(&f.zone, "time-zone", "", "IANA `name` of the time zone, such as Europe/Berlin")
	fl.BoolVar(&f.adopted, "allow-adopted", false, "act on a pool that its job only adopted")
	fl.BoolVar(&f.off, "disabled", false, "make it turned off")
	fl.BoolVar(&f.dry, "dry-run", false, "show it and what it would save; save nothing")
	return cmd
}

// withSchedule does something with a schedule and shows it.
func (a *app) withSchedule(ctx context.Context, do func(context.Context, *client.Client) (*client.Response, client.Schedule, error)) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	rctx, cancel := a.request(ctx)
	defer cancel()
	resp, s, err := do(rctx, c)
	if err != nil {
		return err
	}
	return a.print(resp, func(w io.Writer) { a.showSchedule(w, s) })
}

func (a *app) showSchedule(w io.Writer, s client.Schedule) {
	on := "on"
	if !s.Enabled {
		on = "off"
	}
	saves := s.Estimate.Price
	if s.Estimate.SavedPerMonth != nil {
		saves = fmt.Sprintf("%.2f %s a month (%s)", *s.Estimate.SavedPerMonth, s.Estimate.Currency, s.Estimate.Price)
	}
	fields(w, "Schedule", s.ID, "Of", s.SubjectName+" ("+s.JobID+")", "Pool", s.Pool, "Runs", whenText(s.ScheduleSpec), "Time zone", s.TimeZone, "Is", on, "Next", nextText(s.Schedule),
		"Saves", s.Estimate.Arithmetic, "Money", saves, "Note", s.Estimate.Note)
	if len(s.Runs) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := table{head: []string{"DUE", "ACTION", "OUTCOME", "JOB", "REASON"}}
	for _, r := range s.Runs {
		t.add(r.DueAt.Format(time.RFC3339), string(r.Action), r.Outcome, r.JobID, r.Reason)
	}
	t.write(w, a.tableTerm())
}

// whenText says when a scheduled pool runs.
func whenText(s job.ScheduleSpec) string {
	if s.Window != nil {
		return fmt.Sprintf("%s, %s to %s", strings.Join(s.Window.Days, " "), s.Window.From, s.Window.To)
	}
	var parts []string
	if s.PauseCron != "" {
		parts = append(parts, "paused at "+s.PauseCron)
	}
	if s.ResumeCron != "" {
		parts = append(parts, "resumed at "+s.ResumeCron)
	}
	return strings.Join(parts, ", ")
}

func nextText(s job.Schedule) string {
	if s.NextAt == nil {
		return "never: it is turned off"
	}
	at := *s.NextAt
	if zone, err := time.LoadLocation(s.TimeZone); err == nil {
		at = at.In(zone)
	}
	return fmt.Sprintf("%s at %s", s.NextAction, at.Format("Mon 2006-01-02 15:04 MST"))
}

func (a *app) schedulesList() *cobra.Command {
	var f struct {
		job, cursor string
		limit       int
	}
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List schedules, the newest first", Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			q := url.Values{}
			if cmd.Flags().Changed("limit") {
				q.Set("limit", strconv.Itoa(f.limit))
			}
			for k, v := range map[string]string{"jobId": f.job, "cursor": f.cursor} {
				if v != "" {
					q.Set(k, v)
				}
			}
			ctx, cancel := a.request(cmd.Context())
			defer cancel()
			resp, all, next, err := c.ListSchedules(ctx, q)
			if err != nil {
				return err
			}
			err = a.print(resp, func(w io.Writer) { a.scheduleTable(w, all) })
			switch {
			case err != nil || a.machine():
			case len(all) == 0:
				a.say("No schedules yet: zopday schedules create makes one.")
			case next != "":
				a.say("There are more: --cursor %s", next)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&f.job, "job", "", "of one VM or cluster `job` alone")
	cmd.Flags().IntVar(&f.limit, "limit", 100, "schedules a page, 1 to 500")
	cmd.Flags().StringVar(&f.cursor, "cursor", "", "where the next page begins")
	return cmd
}

func (a *app) scheduleTable(w io.Writer, all []job.Schedule) {
	if len(all) == 0 {
		return
	}
	t := table{head: []string{"ID", "OF", "POOL", "RUNS", "NEXT"}}
	for _, s := range all {
		t.add(s.ID, s.SubjectName, s.Pool, whenText(s.ScheduleSpec), nextText(s))
	}
	t.write(w, a.tableTerm())
}

func (a *app) schedulesGet() *cobra.Command {
	return &cobra.Command{
		Use: "get SCHEDULE", Short: "Show one schedule: what it saves, and what became of its last due times", Args: args(1, 1, "a schedule's ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSchedule(cmd.Context(), func(ctx context.Context, c *client.Client) (*client.Response, client.Schedule, error) {
				return c.GetSchedule(ctx, args[0])
			})
		},
	}
}

func (a *app) schedulesSwitch(verb, short string, enabled bool) *cobra.Command {
	return &cobra.Command{
		Use: verb + " SCHEDULE", Short: short, Args: args(1, 1, "a schedule's ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withSchedule(cmd.Context(), func(ctx context.Context, c *client.Client) (*client.Response, client.Schedule, error) {
				return c.PatchSchedule(ctx, args[0], map[string]any{"enabled": enabled})
			})
		},
	}
}

func (a *app) schedulesDelete() *cobra.Command {
	return &cobra.Command{
		Use: "delete SCHEDULE", Short: "Delete a schedule; what it paused stays paused until it is resumed", Args: args(1, 1, "a schedule's ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			ctx, cancel := a.request(cmd.Context())
			defer cancel()
			if _, err := c.DeleteSchedule(ctx, args[0]); err != nil {
				return err
			}
			if !a.machine() {
				a.say("Deleted. What it paused stays paused: zopday remediate resume gives it back.")
			}
			return nil
		},
	}
}
