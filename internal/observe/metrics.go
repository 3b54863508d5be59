package observe

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/zopday/provisioner/internal/ledger"
)

// Metrics are the provisioner's numbers, in a registry of their own.
type Metrics struct {
	registry   *prometheus.Registry
	steps      *prometheus.HistogramVec
	claims     *prometheus.CounterVec
	leaseLost  *prometheus.CounterVec
	cloudCalls *prometheus.CounterVec
	cloudTime  *prometheus.HistogramVec
	requests   *prometheus.CounterVec
	requestDur *prometheus.HistogramVec
	streams    prometheus.Gauge
	refusals   *prometheus.CounterVec
	edges      edges
}

// stepBuckets span a step that only looks (milliseconds) to one that waits for
// a cloud (half an hour).
var stepBuckets = []float64{.005, .025, .1, .5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1200, 1800}

// NewMetrics makes the registry, with the Go runtime's own numbers in it.
func NewMetrics() *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.steps = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "zopday_step_duration_seconds", Help: "Time from the first try of a step to its end, waits included.", Buckets: stepBuckets,
	}, []string{"family", "step", "direction", "outcome"})
	m.claims = counter("zopday_claims_total", "Jobs that a worker of this process took.", "family")
	m.leaseLost = counter("zopday_lease_losses_total", "Jobs that a worker of this process lost while at work on them.", "family")
	m.cloudCalls = counter("zopday_cloud_calls_total", "Calls to cloud APIs.", "service", "operation", "outcome")
	m.cloudTime = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "zopday_cloud_call_duration_seconds", Help: "Time that a call to a cloud API took.", Buckets: prometheus.DefBuckets,
	}, []string{"service"})
	m.requests = counter("zopday_http_requests_total", "Requests answered, by route and status.", "method", "route", "status")
	m.requestDur = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "zopday_http_request_duration_seconds", Help: "Time to answer a request; event streams are left out.", Buckets: prometheus.DefBuckets,
	}, []string{"route"})
	m.streams = prometheus.NewGauge(prometheus.GaugeOpts{Name: "zopday_event_streams", Help: "Event streams that are open."})
	m.refusals = counter("zopday_unauthenticated_requests_total", "Requests refused for want of a valid token.")
	m.registry.MustRegister(m.steps, m.claims, m.leaseLost, m.cloudCalls, m.cloudTime, m.requests, m.requestDur, m.streams, m.refusals,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.edges = newEdges(m.registry)
	return m
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

// Handler serves the numbers in Prometheus' text format.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// StepEnded notes the end of a step: outcome is done, failed or cancelled.
func (m *Metrics) StepEnded(family, step, direction, outcome string, took time.Duration) {
	m.steps.WithLabelValues(family, step, direction, outcome).Observe(took.Seconds())
}

// Claimed notes that a worker took a job.
func (m *Metrics) Claimed(family string) { m.claims.WithLabelValues(family).Inc() }

// LeaseLost notes that a worker lost a job while at work on it.
func (m *Metrics) LeaseLost(family string) { m.leaseLost.WithLabelValues(family).Inc() }

// CloudCall notes one call to a cloud: outcome is "ok" or the error's class.
func (m *Metrics) CloudCall(service, operation, outcome string, took time.Duration) {
	m.cloudCalls.WithLabelValues(service, operation, outcome).Inc()
	m.cloudTime.WithLabelValues(service).Observe(took.Seconds())
}

// Request notes one answered request. route is the pattern, never the path, so
// that IDs do not become labels.
func (m *Metrics) Request(method, route, status string, took time.Duration) {
	m.requests.WithLabelValues(method, route, status).Inc()
	m.requestDur.WithLabelValues(route).Observe(took.Seconds())
}

// Unauthenticated notes a request without a valid token.
func (m *Metrics) Unauthenticated() { m.refusals.WithLabelValues().Inc() }

// StreamOpened notes an event stream; the function it returns notes its end.
func (m *Metrics) StreamOpened() (closed func()) {
	m.streams.Inc()
	return m.streams.Dec
}

// WatchLedger adds the numbers that only the ledger knows; it is asked at every
// scrape.
func (m *Metrics) WatchLedger(l *ledger.Ledger) {
	m.registry.MustRegister(&ledgerCollector{
		stats:   l.Stats,
		jobs:    prometheus.NewDesc("zopday_jobs", "Jobs by family, state and phase.", []string{"family", "status", "phase"}, nil),
		age:     prometheus.NewDesc("zopday_queue_age_seconds", "How long the job that has been due longest waits for a worker.", nil, nil),
		parked:  prometheus.NewDesc("zopday_parked_jobs", "Active jobs that wait for their time.", nil, nil),
		leased:  prometheus.NewDesc("zopday_leased_jobs", "Jobs that a worker holds.", nil, nil),
		workers: prometheus.NewDesc("zopday_workers", "Workers that were heard within the last minute.", nil, nil),
	})
}

type ledgerCollector struct {
	stats                              func(context.Context) (ledger.Stats, error)
	jobs, age, parked, leased, workers *prometheus.Desc
}

func (c *ledgerCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.jobs, c.age, c.parked, c.leased, c.workers} {
		ch <- d
	}
}

// scrapeLimit keeps a database that does not answer from holding up a scrape.
const scrapeLimit = 3 * time.Second

func (c *ledgerCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeLimit)
	defer cancel()
	s, err := c.stats(ctx)
	if err != nil {
		ch <- prometheus.NewInvalidMetric(c.jobs, err)
		return
	}
	for _, n := range s.Counts {
		ch <- prometheus.MustNewConstMetric(c.jobs, prometheus.GaugeValue, float64(n.Jobs), string(n.ResourceType), string(n.Status), string(n.Phase))
	}
	for _, g := range []struct {
		desc  *prometheus.Desc
		value float64
	}{{c.age, s.QueueAge.Seconds()}, {c.parked, float64(s.Parked)}, {c.leased, float64(s.Leased)}, {c.workers, float64(s.Workers)}} {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.value)
	}
}
