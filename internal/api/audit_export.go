package api

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/zopday/provisioner/internal/access"
	"github.com/zopday/provisioner/internal/audit"
)

const (
	// maxExports bounds the exports that run at once: each reads the whole log.
	maxExports = 4
	// exportWithin bounds an export, and exportStall the time for which whoever
	// reads it may take nothing.
	exportWithin = 30 * time.Minute
	exportStall  = 30 * time.Second
	// exportFlush is after how many entries the deadline moves on.
	exportFlush = 1000
)

// AuditExportIn asks for all entries that a filter chooses.
type AuditExportIn struct {
	AuditFilter
	Format string `query:"format" enum:"jsonl,csv" default:"jsonl" doc:"One JSON object a line, or comma-separated values with a header"`
}

// auditExportRoute streams the log: an export has no page and no bound but time.
func (s *server) auditExportRoute() {
	type out struct{ Body func(huma.Context) }
	slots := make(chan struct{}, maxExports)
	text := &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	route(s, huma.Operation{
		OperationID: "export-audit-logs", Method: http.MethodGet, Path: "/audit-logs/export", Tags: []string{"Audit"},
		Summary: "Export the audit log", Errors: []int{422},
		Description: "Every entry that the filters choose, newest first, streamed. In CSV a cell that a spreadsheet would take for a formula (it begins with =, +, -, @, a tab or a line break) begins with an apostrophe instead. An export that fails on its way ends without its last chunk, so that a client sees that it is not whole.",
		Responses:   map[string]*huma.Response{"200": {Description: "The entries", Content: map[string]*huma.MediaType{"application/x-ndjson": text, "text/csv": text}}},
	}, []access.Policy{access.AuditView}, func(_ context.Context, in *AuditExportIn) (*out, error) {
		f, err := in.filter()
		if err != nil {
			return nil, err
		}
		select {
		case slots <- struct{}{}:
		default:
			return nil, busyExporting()
		}
		return &out{func(hc huma.Context) {
			defer func() { <-slots }()
			s.export(hc, f, in.Format)
		}}, nil
	})
}

func busyExporting() *Problem {
	p := newProblem(tooManyStreams, "the audit log is being exported several times already", "Try again when one of these has ended.")
	p.header = http.Header{"Retry-After": {"30"}}
	return p
}

// export writes the entries. What fails after the first of them cannot be told by
// a status any more: the connection is cut.
func (s *server) export(hc huma.Context, f audit.Filter, format string) {
	_, w := humago.Unwrap(hc)
	// The deadline of other answers is not for this one. A caller who hangs up shows
	// when something is written.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(hc.Context()), exportWithin)
	defer cancel()
	media := "application/x-ndjson"
	if format == "csv" {
		media = "text/csv; charset=utf-8"
	}
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Disposition", `attachment; filename="audit.`+format+`"`)
	sink := newAuditSink(format, w)
	rc := http.NewResponseController(w)
	n := 0
	err := sink.begin()
	if err == nil {
		err = s.Service.ExportAudit(ctx, f, func(e audit.Entry) error {
			if n%exportFlush == 0 {
				// Not every writer has deadlines (a test's recorder has none).
				_ = rc.SetWriteDeadline(time.Now().Add(exportStall))
				if s.stopping() {
					return errStopping
				}
			}
			n++
			return sink.write(e)
		})
	}
	if err == nil {
		err = sink.end()
	}
	if err != nil {
		s.Log.WarnContext(ctx, "an export of the audit log was cut off", "entries", n, "error", err)
		panic(http.ErrAbortHandler)
	}
}

var errStopping = errors.New("the server is stopping")

// stopping reports whether the server is shutting down.
func (s *server) stopping() bool {
	select {
	case <-s.Stop:
		return true
	default:
		return false
	}
}

// An auditSink writes entries in one format.
type auditSink struct {
	json *json.Encoder // nil for CSV
	csv  *csv.Writer
}

func newAuditSink(format string, w io.Writer) *auditSink {
	if format == "csv" {
		return &auditSink{csv: csv.NewWriter(w)}
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return &auditSink{json: e}
}

// auditColumns is the header of the CSV.
var auditColumns = []string{"id", "seq", "time", "orgId", "scope", "actor", "action", "resourceType", "resourceId", "outcome", "requestId", "detail", "hash"}

func (s *auditSink) begin() error {
	if s.json != nil {
		return nil
	}
	return s.csv.Write(auditColumns)
}

func (s *auditSink) write(e audit.Entry) error {
	if s.json != nil {
		return s.json.Encode(e)
	}
	seq, detail := "", ""
	if e.Seq > 0 {
		seq = strconv.FormatInt(e.Seq, 10)
	}
	if len(e.Detail) > 0 {
		var b strings.Builder
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(e.Detail); err != nil {
			return err
		}
		detail = strings.TrimSuffix(b.String(), "\n")
	}
	row := []string{e.ID, seq, e.Time.UTC().Format(time.RFC3339Nano), e.Org, e.Scope, e.Actor, e.Action, e.ResourceType, e.ResourceID, string(e.Outcome), e.RequestID, detail, e.Hash}
	for i, cell := range row {
		row[i] = inertCell(cell)
	}
	return s.csv.Write(row)
}

func (s *auditSink) end() error {
	if s.json != nil {
		return nil
	}
	s.csv.Flush()
	return s.csv.Error()
}

// inertCell keeps a spreadsheet from taking a text that somebody else chose for a
// formula (OWASP: CSV Injection).
func inertCell(cell string) string {
	if cell != "" && strings.ContainsRune("=+-@\t\r\n", rune(cell[0])) {
		return "'" + cell
	}
	return cell
}
