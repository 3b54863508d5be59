package observe

import (
	"context"
	"io"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// NewLogger writes one JSON object a line, or plain text for a person, from the
// given level up. A record that is made within a trace carries its IDs.
func NewLogger(w io.Writer, level slog.Leveler, asJSON bool) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if asJSON {
		return slog.New(traced{slog.NewJSONHandler(w, opts)})
	}
	return slog.New(traced{slog.NewTextHandler(w, opts)})
}

// traced adds the trace and span IDs of the context to a record.
type traced struct{ slog.Handler }

func (h traced) Handle(ctx context.Context, r slog.Record) error {
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		r.AddAttrs(slog.String("trace", sc.TraceID().String()), slog.String("span", sc.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h traced) WithAttrs(attrs []slog.Attr) slog.Handler {
	return traced{h.Handler.WithAttrs(attrs)}
}

func (h traced) WithGroup(name string) slog.Handler { return traced{h.Handler.WithGroup(name)} }
