// Package ledger keeps provisioning_jobs and its companions (steps, events,
// inventory, workers, idempotency keys) on SQLite or PostgreSQL.
//
// # Who writes what
//
// A job's row has two owners. People own the request: spec, labels, name,
// whether deletion was asked for. The engine owns the progress: status, phase,
// run, step, infra_config, outputs, error. A person's write ([Ledger.Change])
// locks the row and touches the engine's columns only while no worker holds the
// job; a worker's write ([Ledger.Checkpoint]) never touches a person's. So
// neither can overwrite the other, in whatever order they come.
//
// # The lease
//
//	         Claim                    Checkpoint, PutObjects, Renew
//	free ───────────────▶ leased ─────────────────────────────────▶ leased
//	 ▲                      │ │                                        │
//	 │   Release: parked,   │ │ TTL over, or the worker silent         │
//	 │   finished, failed,  │ ▼                                        │
//	 └──── shutting down ───┘ claimable: Claim gives it a new token ◀──┘
//
// A lease is an owner, an expiry and a random token, all in the job's row, and
// the expiry is in the database's clock. Every write of a worker says
// WHERE id = … AND lease_token = … AND lease_expires_at > now. A worker that was
// stopped and wakes after its job was taken over finds its token replaced, and
// nothing of what it writes arrives: ErrLeaseLost. A token is random, not a
// counter, because a counter may run backwards after a failover.
//
// A lease's TTL is longer than the family's worst step; what frees the jobs of a
// killed worker in seconds is its heartbeat: a lease whose worker is silent for
// DeadAfter, or unknown, is as claimable as an expired one. Being claimable takes
// nothing away yet: a worker that missed a few beats and was not overtaken goes on.
//
// # A request to delete
//
// Change cannot move a job that a worker holds; it sets Cancelling, and every
// Checkpoint and Renew reports it. A checkpoint that would end the run instead
// is refused with ErrCancelRequested, so that the request is never lost between
// the worker's last look and its last write.
//
// # A reply that is lost
//
// Each checkpoint has a random name, which the job's row keeps. When the database
// goes away in the midst of one (a restart, a failover), the ledger sends it again
// for some seconds; if it had been written and only the reply was lost, the name
// shows it, and it is not written twice.
//
// # Speed
//
// Concurrent checkpoints of one process share transactions ([gatherer]). On
// PostgreSQL a group is one statement over unnest: the job rows whose fence
// holds are updated, and the steps, events and inventory rows of those jobs
// alone are written. In the midst of a pass no indexed column changes, so the
// update is heap-only. There is no NOTIFY in it.
package ledger
