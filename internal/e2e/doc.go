// Package e2e holds the lifecycle tests: whole jobs, from the ledger through
// the engine and the real cloud SDKs to the simulated clouds, crashed at every
// point.
package e2e
