package observe

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// WatchAudit adds how long the oldest entry of the audit log has been waiting to
// be sealed, 0 if all are, which age is asked for at every scrape. Above a minute
// nothing is sealing them.
func (m *Metrics) WatchAudit(age func() time.Duration) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "zopday_audit_unsealed_age_seconds", Help: "How long the oldest entry of the audit log waits to be sealed; above 60 nothing seals them.",
	}, func() float64 { return age().Seconds() }))
}
