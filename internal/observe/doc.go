// Package observe is how the provisioner shows what it does: structured logs,
// Prometheus metrics and OpenTelemetry traces. It knows nothing of jobs beyond
// their words, so that every other package may use it.
package observe
