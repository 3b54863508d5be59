package api

import (
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// TestRequestIDEverywhere: one ID leads from the answer to the error body, the log,
// the audit log and the trace, which goes on from the caller's.
func TestRequestIDEverywhere(t *testing.T) {
	spans, before := tracetest.NewInMemoryExporter(), otel.GetTracerProvider()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)))
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	r := newRig(t)
	const id, trace = "trail-of-one-request", "4bf92f3577b34da6a3ce929d0e0e4736"
	a := r.do(adminToken, "POST", "/provisioning-jobs", `{"name":3}`, "X-Request-Id", id, "Traceparent", "00-"+trace+"-00f067aa0ba902b7-01")
	if p := a.problem(t); p.RequestID != id || a.header.Get("X-Request-Id") != id {
		t.Errorf("the answer has %q and %q", p.RequestID, a.header.Get("X-Request-Id"))
	}
	// The log's line and the span come after the answer.
	for tries := 0; !strings.Contains(r.log.String(), `"request":"`+id+`","method":"POST"`); tries++ {
		if tries > 1000 {
			t.Fatal("the log does not name it")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !strings.Contains(r.log.String(), `"trace":"`+trace+`"`) {
		t.Error("the log does not name the caller's trace")
	}
	var entries []struct{ RequestID string }
	r.do(adminToken, "GET", "/audit-logs", "").into(t, &entries)
	if len(entries) == 0 || entries[0].RequestID != id {
		t.Errorf("the audit log has %+v", entries)
	}
	found := false
	for _, s := range spans.GetSpans() {
		for _, kv := range s.Attributes {
			found = found || string(kv.Key) == "zopday.request" && kv.Value.AsString() == id && s.SpanContext.TraceID().String() == trace
		}
	}
	if !found {
		t.Error("no span has it")
	}
	for _, bad := range []string{"short", "with a blank", strings.Repeat("a", 65), "line%0abreak", "<script>alert(1)</script>"} {
		if got := r.do("", "GET", "/healthz", "", "X-Request-Id", bad, "Traceparent", bad).header.Get("X-Request-Id"); got == bad {
			t.Errorf("%q is taken over", bad)
		}
	}
}
