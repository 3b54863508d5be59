package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"

	"github.com/zopday/provisioner/internal/client"
)

// A failure is an error laid out for a person: what happened first, what to
// do last.
type failure struct {
	what string
	code string // stable reason code
	rows []row
	foot []string // short pointers on the last line
}

type row struct{ label, text string }

// report tells an error on the standard error: in words, or as one RFC 9457
// document on one line when the output is for programs.
func (a *app) report(err error) {
	var quiet quietExit
	if err == nil || errors.As(err, &quiet) {
		return
	}
	format := a.cfg.Output.Value
	if !a.settled {
		format = cmp.Or(a.flags.output, a.getenv("ZOPDAY_OUTPUT")) // as far as the command line was understood
	}
	if format == "json" || format == "jsonl" {
		fmt.Fprintf(a.stderr, "%s\n", problemDocument(err))
		return
	}
	f := a.explainError(err)
	t := a.errTerm
	line := t.paint(red, "Error:") + " " + t.text(f.what)
	if f.code != "" {
		line += "   [" + f.code + "]"
	}
	fmt.Fprintln(a.stderr, line)
	for _, r := range f.rows {
		fmt.Fprintf(a.stderr, "  %s %s\n", pad(r.label, 8), t.text(r.text))
	}
	if len(f.foot) > 0 {
		fmt.Fprintf(a.stderr, "  %s\n", t.text(strings.Join(f.foot, "     ")))
	}
}

// laidOut is implemented by errors that know their own layout.
type laidOut interface{ layout(a *app) failure }

func (a *app) explainError(err error) failure {
	var (
		lay  laidOut
		use  *usageError
		prob *client.Problem
		gone *client.Unreachable
	)
	switch {
	case errors.As(err, &lay):
		return lay.layout(a)
	case errors.As(err, &use):
		f := failure{what: use.msg}
		if use.hint != "" {
			f.rows = append(f.rows, row{"Do", use.hint})
		}
		return f
	case errors.As(err, &prob):
		return a.explainProblem(prob)
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled):
		return failure{what: "interrupted"}
	case errors.As(err, &gone), errors.Is(err, context.DeadlineExceeded):
		what := fmt.Sprintf("no answer from %s in time", a.cfg.Server.Value)
		if gone != nil && !errors.Is(err, context.DeadlineExceeded) {
			what = gone.Error()
		}
		return failure{what: what, code: "unreachable", rows: []row{
			{"Server", fmt.Sprintf("%s (from %s)", a.cfg.Server.Value, a.cfg.Server.Origin)},
			{"Do", whenUnreachable(err)},
		}, foot: []string{"More: zopday doctor"}}
	}
	return failure{what: err.Error()}
}

// whenUnreachable is what to do about a server that did not answer.
func whenUnreachable(err error) string {
	var (
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
		cert    *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &name):
		return "name the server with --server as its certificate does, or give it a certificate that names it so"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "give the server a certificate that is valid now (it reads its file again by itself), or set this machine's clock"
	case errors.As(err, &cert):
		return "if the certificate is of an authority of your own: export SSL_CERT_FILE=ca.pem, the file with that authority's certificate (on macOS and Windows the system has to trust it)"
	}
	return "start one with zopday serve or zopday sandbox, or name another with --server"
}

func (a *app) explainProblem(p *client.Problem) failure {
	f := failure{what: clean(p.Error()), code: p.Kind()}
	for _, e := range p.Errors {
		if len(p.Errors) == 1 && strings.Contains(p.Error(), e.Message) && (e.Fix == "" || p.Hint != "") {
			continue // it is all said already
		}
		text := clean(e.Message)
		if e.Fix != "" {
			text += "; " + asCommands.Replace(clean(e.Fix))
		}
		if w := e.Where(); w != "" {
			text = clean(w) + ": " + text
		}
		f.rows = append(f.rows, row{"Field", text})
	}
	switch hint := asCommands.Replace(clean(p.Hint)); {
	case p.Status == http.StatusUnauthorized && a.cfg.Token.Value == "":
		f.rows = append(f.rows, row{"Do", "give a token: zopday login, or the environment variable ZOPDAY_TOKEN, or --token-file"})
	case p.Status == http.StatusUnauthorized:
		f.rows = append(f.rows, row{"Do", "the token is from " + a.cfg.Token.Origin + "; give one of this server"})
	case hint != "":
		f.rows = append(f.rows, row{"Do", hint})
	case p.Status == http.StatusNotFound:
		f.rows = append(f.rows, row{"Do", a.again("jobs", "list") + " shows what there is"})
	}
	if p.RequestID != "" {
		f.foot = append(f.foot, "Request "+clean(p.RequestID))
	}
	return f
}

// problemDocument is an error as RFC 9457 says, on one line. The server's own
// document is passed on as it came.
func problemDocument(err error) []byte {
	var prob *client.Problem
	if errors.As(err, &prob) && prob.Raw != nil {
		return prob.Raw
	}
	doc := map[string]any{
		"type": "urn:zopday:problem:" + problemName(err), "title": problemTitle(err), "detail": err.Error(),
	}
	if prob != nil {
		doc["status"] = prob.Status
	}
	var more interface{ problemMembers() map[string]any }
	if errors.As(err, &more) {
		maps.Copy(doc, more.problemMembers())
	}
	var use *usageError
	if errors.As(err, &use) && use.hint != "" {
		doc["hint"] = use.hint
	}
	b, merr := json.Marshal(doc)
	if merr != nil {
		return fmt.Appendf(nil, `{"title":"unexpected error","detail":%q}`, err.Error())
	}
	return b
}

func problemName(err error) string {
	switch exitCode(err) {
	case exitUsage:
		return "usage"
	case exitJobFailed:
		return "job-failed"
	case exitNotAllowed:
		return "not-allowed"
	case exitNotFound:
		return "not-found"
	case exitConflict:
		return "conflict"
	case exitGaveUp:
		return "gave-up-waiting"
	case exitCancelled:
		return "job-cancelled"
	case exitUnreachable:
		return "unreachable"
	case exitInterrupted:
		return "interrupted"
	}
	return "unexpected"
}

func problemTitle(err error) string {
	code := exitCode(err)
	for _, e := range exitTable {
		if e.code == code {
			return e.meaning
		}
	}
	return "unexpected error"
}
