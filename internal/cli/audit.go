package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/zopday/provisioner/internal/client"
)

func (a *app) auditCmd() *cobra.Command {
	return nounCmd("audit", "Read and check the audit log", a.auditList(), a.auditVerify())
}

func (a *app) auditList() *cobra.Command {
	var f struct {
		scope, action, actor, typ, resource, from, to, cursor string
		limit                                                 int
		all                                                   bool
	}
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List who did what, newest first", Args: args(0, 0, ""),
		Long: withExamples("List who did what, newest first: allowed and refused", "  zopday audit list --action provisioning-job:delete --from 24h\n  zopday audit list --all -o jsonl > audit.jsonl"),
	}
	fl := cmd.Flags()
	fl.StringVar(&f.scope, "scope", "", "`scope` of the actor's role")
	fl.StringVar(&f.action, "action", "", "such as provisioning-job:create")
	fl.StringVar(&f.actor, "actor", "", "who")
	fl.StringVar(&f.typ, "type", "", "resource `type`, such as provisioning-job")
	fl.StringVar(&f.resource, "resource", "", "resource `ID`, such as a job's")
	fl.StringVar(&f.from, "from", "", "RFC 3339 `time`, or how long ago such as 24h")
	fl.StringVar(&f.to, "to", "", "RFC 3339 `time`, or how long ago such as 1h")
	fl.IntVar(&f.limit, "limit", 0, "entries a page")
	fl.StringVar(&f.cursor, "cursor", "", "go on where a page ended")
	fl.BoolVar(&f.all, "all", false, "every page")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		q := url.Values{}
		for k, v := range map[string]string{"scope": f.scope, "action": f.action, "actor": f.actor, "resourceType": f.typ, "resourceId": f.resource, "cursor": f.cursor} {
			if v != "" {
				q.Set(k, v)
			}
		}
		for k, v := range map[string]string{"from": f.from, "to": f.to} {
			if v == "" {
				continue
			}
			at, err := moment(v, a.now())
			if err != nil {
				return err
			}
			q.Set(k, at)
		}
		if f.limit > 0 {
			q.Set("limit", strconv.Itoa(f.limit))
		}
		return a.listAudit(cmd.Context(), q, f.all)
	}
	return cmd
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
		t := table{head: []string{"SEQ", "TIME", "OUTCOME", "ACTOR", "ACTION", "RESOURCE", "DETAIL"}}
		if a.wide() {
			t.head = []string{"SEQ", "TIME", "OUTCOME", "ACTOR", "ACTION", "RESOURCE", "REQUEST", "HASH", "DETAIL"}
		}
		for _, e := range entries {
			sign := a.outTerm.glyph(glyphDone)
			if e.Outcome != "allowed" {
				sign = a.outTerm.glyph(glyphFailed)
			}
			row := []string{strconv.FormatInt(e.Seq, 10), e.Time.UTC().Format(time.RFC3339), sign + " " + e.Outcome, e.Actor, e.Action, e.ResourceID}
			if a.wide() {
				row = append(row, e.RequestID, e.Hash)
			}
			t.add(append(row, detail(e.Detail))...)
		}
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
		Long: withExamples("Check that no entry of the audit log was changed, removed or added: each holds the hash of the one before it",
			"  zopday audit verify\n  zopday audit verify --db zopday.db        without a server, on the database itself") + `

Exits with 1 when the log is broken.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dsn == "" {
				dsn = a.getenv("ZOPDAY_AUDIT_DB")
			}
			if dsn != "" {
				head, err := a.back.VerifyAudit(cmd.Context(), dsn)
				if err != nil {
					return err
				}
				return a.showAuditHead(head.Seq, head)
			}
			return a.verifyAuditByAPI(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&dsn, "db", "", "`path` of the SQLite file or postgres:// DSN to check directly; ZOPDAY_AUDIT_DB keeps a password out of the arguments")
	return cmd
}

func (a *app) showAuditHead(n int64, doc any) error {
	resp, err := client.Wrap(doc)
	if err != nil {
		return err
	}
	return a.print(resp, func(w io.Writer) {
		fmt.Fprintf(w, "Whole: %s, each with the hash that its content and the one before it give.\n", plurals(int(n), "entry", "entries"))
	})
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
	if err := a.print(resp, func(w io.Writer) {
		if v.Whole {
			fmt.Fprintf(w, "Whole: %s, each with the hash that its content and the one before it give.\n", plurals(int(v.Seq), "entry", "entries"))
			return
		}
		fmt.Fprintf(w, "Broken: %s\n", clean(v.Reason))
	}); err != nil {
		return err
	}
	if !v.Whole {
		return quietExit(exitUnexpected)
	}
	return nil
}
