// Package reconciler carries jobs out: it claims them from the ledger, runs
// their steps one after another, and commits what happened.
//
// # The lease
//
// A worker claims a job with one statement, which gives it a lease: the
// worker's name, an expiry in the database's clock, and a random token. Every
// write names the token; once another worker has claimed the job, the token no
// longer matches and nothing of the old worker is written any more.
//
//	claim ──► run a step ──► checkpoint ──► run the next … ──► finish
//	  ▲            │ Wait                                         │
//	  └── parked ◄─┘ (lease given back, next_run_at set)          ▼
//	                                                     completed, failed, cancelled
//
// A lease ends by itself after the family's TTL, which is longer than the
// family's worst step. A worker also beats its heart; when it has been silent
// for DeadAfter, its jobs are claimed by others at once.
//
// # Fencing
//
// The database refuses late writes by itself. Cloud calls cannot be fenced
// there, so a worker fences itself: before every call to a cloud the gate asks
// whether the lease is still good by the monotonic clock, that is, whether the
// last heartbeat that the database confirmed was sent less than DeadAfter ago
// and the lease has not run out. A worker that was stopped and wakes up later
// finds the gate shut, whatever the wall clock says.
//
// # Cancelling
//
// DELETE of a job that a worker holds only raises a flag. The worker sees it at
// its next heartbeat or checkpoint and cancels the step's context. A create
// that is in flight is not cut off: it ends and is recorded (pipeline.Ensure
// detaches it), nothing new is begun, and the job goes back to the queue in
// phase teardown.
package reconciler
