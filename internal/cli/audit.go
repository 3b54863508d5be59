package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
)

func (a *app) auditCmd() *cobra.Command {
	return nounCmd("audit", "Read, export and check the audit log", a.auditList(), a.auditExport(), a.auditVerify())
}

// auditFilter is what chooses entries of the audit log.
type auditFilter struct {
	scope, action, actor, typ, resource, request, outcome, from, to string
}

func (f *auditFilter) flags(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.scope, "scope", "", "`scope` of the actor's role")
	fl.StringVar(&f.action, "action", "", "such as provisioning-job:create")
	fl.StringVar(&f.actor, "actor", "", "who")
	fl.StringVar(&f.typ, "type", "", "resource `type`, such as provisioning-job")
	fl.StringVar(&f.resource, "resource", "", "resource `ID`, such as a job's")
	fl.StringVar(&f.request, "request", "", "`ID` of the request, as errors and the server's log name it")
	fl.StringVar(&f.outcome, "outcome", "", "allowed, refused or failed")
	fl.StringVar(&f.from, "from", "", "RFC 3339 `time`, or how long ago such as 24h")
	fl.StringVar(&f.to, "to", "", "RFC 3339 `time`, or how long ago such as 1h")
	completeFixed(cmd, "outcome", "allowed", "refused", "failed")
}

func (f *auditFilter) query(now time.Time) (url.Values, error) {
	q := url.Values{}
	for k, v := range map[string]string{
		"scope": f.scope, "action": f.action, "actor": f.actor, "resourceType": f.typ, "resourceId": f.resource, "requestId": f.request, "outcome": f.outcome,
	} {
		if v != "" {
			q.Set(k, v)
		}
	}
	for k, v := range map[string]string{"from": f.from, "to": f.to} {
		if v == "" {
			continue
		}
		at, err := moment(v, now)
		if err != nil {
			return nil, err
		}
		q.Set(k, at)
	}
	return q, nil
}

func (a *app) auditList() *cobra.Command {
	var (
		f      auditFilter
		cursor string
		limit  int
		all    bool
	)
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List who did what, newest first", Args: args(0, 0, ""),
		Long: withExamples("List who did what, newest first: allowed and refused", "  zopday audit list --action provisioning-job:delete --from 24h\n  zopday audit list --outcome refused --all -o jsonl"),
	}
	f.flags(cmd)
	fl := cmd.Flags()
	fl.IntVar(&limit, "limit", 0, "entries a page")
	fl.StringVar(&cursor, "cursor", "", "go on where a page ended")
	fl.BoolVar(&all, "all", false, "every page")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		q, err := f.query(a.now())
		if err != nil {
			return err
		}
		if cursor != "" {
			q.Set("cursor", cursor)
		}
		if limit > 0 {
			q.Set("limit", strconv.Itoa(limit))
		}
		return a.listAudit(cmd.Context(), q, all)
	}
	return cmd
}

func (a *app) auditExport() *cobra.Command {
	var (
		f           auditFilter
		format, out string
	)
	cmd := &cobra.Command{
		Use: "export", Short: "Export entries as JSON lines or CSV", Args: args(0, 0, ""),
		Long: withExamples("Export every entry that the filters choose, newest first, as JSON lines or CSV",
			"  zopday audit export --from 720h --out audit.jsonl\n  zopday audit export --format csv --outcome refused > refused.csv"),
	}
	f.flags(cmd)
	cmd.Flags().StringVar(&format, "format", "jsonl", "jsonl or csv")
	cmd.Flags().StringVar(&out, "out", "-", "`file` to write, which must not exist; - is the standard output")
	completeFixed(cmd, "format", "jsonl", "csv")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if format != "jsonl" && format != "csv" {
			return usagef("--format %s: use jsonl or csv", format)
		}
		q, err := f.query(a.now())
		if err != nil {
			return err
		}
		q.Set("format", format)
		return a.exportAudit(cmd.Context(), q, out)
	}
	return cmd
}

func (a *app) exportAudit(ctx context.Context, q url.Values, out string) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	ctx, cancel := a.within(ctx, 31*time.Minute)
	defer cancel()
	if out == "-" {
		_, err := c.ExportAudit(ctx, q, a.stdout)
		return err
	}
	n, err := writeNew(out, func(w io.Writer) (int64, error) { return c.ExportAudit(ctx, q, w) })
	if err != nil {
		return err
	}
	a.say("Wrote %s (%d bytes).", out, n)
	return nil
}

// writeNew writes a file that must not exist, for its owner only, whole or not at
// all.
func writeNew(path string, write func(io.Writer) (int64, error)) (n int64, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return 0, usagef("%s exists already; name another file, or remove it first", path)
	}
	if err != nil {
		return 0, err
	}
	n, err = write(f)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return n, errors.Join(err, os.Remove(path))
	}
	return n, nil
}

func (a *app) listAudit(ctx context.Context, q url.Values, all bool) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	var entries []client.AuditEntry
	var pages []*client.Response
	var next string
	for {
		rctx, cancel := a.request(ctx)
		resp, got, cur, err := c.Audit(rctx, q)
		cancel()
		if err != nil {
			return err
		}
		pages, entries, next = append(pages, resp), append(entries, got...), cur
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
	err = a.print(resp, func(w io.Writer) {
		if len(entries) == 0 {
			return
		}
		t := a.auditTable(entries)
		t.write(w, a.tableTerm())
	})
	if err == nil && !a.machine() {
		switch {
		case len(entries) == 0:
			a.say("No entry matches.")
		case next != "":
			a.say("There are more: --all, or --cursor %s", next)
		}
	}
	return err
}

// auditTable shows a line for each entry.
func (a *app) auditTable(entries []client.AuditEntry) table {
	t := table{head: []string{"SEQ", "TIME", "OUTCOME", "ACTOR", "ACTION", "RESOURCE", "DETAIL"}}
	if a.wide() {
		t.head = []string{"SEQ", "TIME", "OUTCOME", "ACTOR", "ACTION", "RESOURCE", "REQUEST", "HASH", "DETAIL"}
	}
	for _, e := range entries {
		sign := a.outTerm.glyph(glyphDone)
		if e.Outcome != "allowed" {
			sign = a.outTerm.glyph(glyphFailed)
		}
		seq := "-" // not sealed yet
		if e.Seq > 0 {
			seq = strconv.FormatInt(e.Seq, 10)
		}
		row := []string{seq, e.Time.UTC().Format(time.RFC3339), sign + " " + e.Outcome, e.Actor, e.Action, e.ResourceID}
		if a.wide() {
			row = append(row, e.RequestID, e.Hash)
		}
		t.add(append(row, detail(e.Detail))...)
	}
	return t
}

func detail(m map[string]any) string {
	out := ""
	for _, k := range sortedKeys(m) {
		if out != "" {
			out += " "
		}
		out += fmt.Sprintf("%s=%v", k, m[k])
	}
	return out
}

func (a *app) auditVerify() *cobra.Command {
	var dsn string
	cmd := &cobra.Command{
		Use: "verify", Short: "Check that no entry of the audit log was changed, removed or added", Args: args(0, 0, ""),
		Long: withExamples("Check that no entry of the audit log was changed, removed, moved or added: each holds the hash of the one before it",
			"  zopday audit verify\n  zopday audit verify --db zopday.db        without a server, on the database itself: every organisation") + `

Entries are sealed about a second after they were written; what is not sealed yet is counted,
and its age said, since no hash holds it.

Exits with 1 when the log is broken.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dsn == "" {
				dsn = a.getenv("ZOPDAY_AUDIT_DB")
			}
			if dsn != "" {
				chains, err := a.back.VerifyAudit(cmd.Context(), dsn)
				if err != nil {
					return err
				}
				return a.showAudit(chains)
			}
			return a.verifyAuditByAPI(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&dsn, "db", "", "`path` of the SQLite file or postgres:// DSN to check directly; ZOPDAY_AUDIT_DB keeps a password out of the arguments")
	return cmd
}

// showAudit shows the chains of a database.
func (a *app) showAudit(chains []AuditChain) error {
	resp, err := client.Wrap(chains)
	if err != nil {
		return err
	}
	whole := true
	err = a.print(resp, func(w io.Writer) {
		if len(chains) == 0 {
			fmt.Fprintln(w, "Whole: the audit log is empty.")
		}
		for _, c := range chains {
			fmt.Fprintf(w, "%s: ", clean(c.Org))
			showChain(w, c.AuditCheck)
		}
	})
	for _, c := range chains {
		whole = whole && c.Whole
		if c.Warning != "" {
			a.warn("%s: %s", c.Org, c.Warning)
		}
	}
	if err == nil && !whole {
		return quietExit(exitUnexpected)
	}
	return err
}

// showChain says what a walk through a chain found.
func showChain(w io.Writer, v client.AuditCheck) {
	if !v.Whole {
		fmt.Fprintf(w, "Broken: %s\n", clean(v.Reason))
		return
	}
	fmt.Fprintf(w, "Whole: %s, each with the hash that its content and the one before it give.", plurals(int(v.Seq), "entry", "entries"))
	if v.Unsealed > 0 {
		fmt.Fprintf(w, " Not sealed yet: %d, the oldest for %s.", v.Unsealed, time.Duration(v.UnsealedSeconds*float64(time.Second)).Round(time.Millisecond))
	}
	fmt.Fprintln(w)
}

// verifyAuditByAPI asks the server to walk its own log.
func (a *app) verifyAuditByAPI(ctx context.Context) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	rctx, cancel := a.slowRequest(ctx)
	defer cancel()
	resp, v, err := c.VerifyAudit(rctx)
	if err != nil {
		return err
	}
	if err := a.print(resp, func(w io.Writer) { showChain(w, v) }); err != nil {
		return err
	}
	if v.Warning != "" {
		a.warn("%s", v.Warning)
	}
	if !v.Whole {
		return quietExit(exitUnexpected)
	}
	return nil
}
