// Package observe is how the provisioner shows what it does: structured logs,
// Prometheus metrics and OpenTelemetry traces. Other packages bring their
// numbers to it through plain functions; of ours it reads the ledger alone, whose
// counts are taken when they are asked for.
package observe
