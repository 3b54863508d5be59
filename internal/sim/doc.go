// Package sim is the cloud-neutral core of the simulated clouds: the clock, the seed, the books, the faults, the
// quotas and the control API. The clouds themselves live in sub-packages (sim/aws, …), which speak the wire protocols
// of the real SDKs over HTTP and keep their state here, in a [World].
//
// # How a request is served
//
// A front end decodes a request into a [Call] and hands it to [World.Serve] with two functions: exec, which carries the
// operation out and renders its answer, and refuse, which renders a fault in the protocol of the service. Serve runs the
// hooks, waits out the latency, applies the faults that concern every service (error, throttle, raw, delay, hang,
// lost_reply, swallow, transition, op_failed), writes the books, and calls exec with the world's one lock held. So a
// service needs no locks of its own, and two runs with the same seed and the same requests give the same world.
//
// # How a service keeps state
//
// A service implements [Service] and is registered once with [World.Register]. Its State is a pointer to a plain struct
// of exported fields that survives a round trip through JSON: the core copies it to undo a swallowed call. Objects do not
// change by timers but by events: w.After(30*time.Second, "ec2", "nat-available", key) puts an event into the world's
// queue, and the core calls the service's Event when the simulated clock has reached it, before the next request is
// served. Events carry strings, never pointers, since the state may have been replaced in between; an event whose object
// is gone does nothing.
//
// What a service lists in Objects is what the control API shows, what [World.Residue] searches and what
// [World.Snapshot] dumps.
//
// # Faults that a service has to honour itself
//
// The kinds capacity, hidden, page and guest mean something only inside a service. It asks for them at the point where
// they matter: w.Take(call, FaultCapacity, "us-east-1a t3.medium") answers the fault that applies now, and counts it.
// Hidden objects are handled by [World.Visible], which also simulates eventual consistency.
package sim
