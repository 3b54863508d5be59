package observe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// edges are the numbers of what comes in from outside and goes out to receivers.
type edges struct {
	connRefused *prometheus.CounterVec
	limited     *prometheus.CounterVec
	deliveries  *prometheus.CounterVec
}

func newEdges(r *prometheus.Registry) edges {
	e := edges{
		connRefused: counter("zopday_connections_refused_total", "Connections closed at once, because there were too many: of all, or of one address.", "bound"),
		limited:     counter("zopday_rate_limited_requests_total", "Requests answered with 429: over the bound of a token, of an address, or of failed sign-ins.", "bound"),
		deliveries:  counter("zopday_webhook_deliveries_total", "Attempts to deliver a message to a webhook: delivered, retried or failed.", "outcome"),
	}
	r.MustRegister(e.connRefused, e.limited, e.deliveries)
	return e
}

// ConnectionRefused notes a connection that was closed at once: bound is "all" or
// "address".
func (m *Metrics) ConnectionRefused(bound string) { m.edges.connRefused.WithLabelValues(bound).Inc() }

// RateLimited notes a request that was answered with 429: bound is "token",
// "address", "sign-in" or "streams".
func (m *Metrics) RateLimited(bound string) { m.edges.limited.WithLabelValues(bound).Inc() }

// WebhookAttempt notes one attempt to deliver a message: outcome is "delivered",
// "retried" or "failed".
func (m *Metrics) WebhookAttempt(outcome string) { m.edges.deliveries.WithLabelValues(outcome).Inc() }

// WatchCertificate adds when the certificate in use ends, in seconds since the epoch;
// it is asked at every scrape.
func (m *Metrics) WatchCertificate(notAfter func() time.Time) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "zopday_tls_certificate_not_after_seconds", Help: "When the certificate that the API is served with ends, in seconds since the epoch.",
	}, func() float64 { return float64(notAfter().Unix()) }))
}
