package sim

import (
	"context"
	"slices"
	"strings"
	"time"
)

// A Call is a request, as far as the core needs to understand it.
type Call struct {
	Cloud, Service, Operation string
	Account, Caller, Region   string
	Mutating                  bool
	// Params is the request's parameters as text; faults look for their Match in it.
	Params string
	// Resources are the IDs of the objects that the request named, made or changed. Services add to it with Touch; the
	// faults transition and op_failed act on those that were touched as Made.
	Resources []string
	Made      []string

	// Actions are what the caller needs to be allowed, in the words of the cloud's
	// own access control (see World.Denied). The books keep them.
	Actions []string

	fault *Fault
	memo  map[string]bool
}

// Touch notes objects that the call is about.
func (c *Call) Touch(ids ...string) {
	for _, id := range ids {
		if id != "" && !slices.Contains(c.Resources, id) {
			c.Resources = append(c.Resources, id)
		}
	}
}

// Make notes objects that the call has made, or whose state it has set in motion.
func (c *Call) Make(ids ...string) {
	c.Touch(ids...)
	c.Made = append(c.Made, ids...)
}

func (c *Call) noteFault(f *Fault) {
	if c.fault == nil {
		c.fault = f
	}
}

// A Reply is what the books keep of an answer.
type Reply struct {
	Status int
	Code   string // error code; empty on success
}

// A Phase is a point in the life of a request at which a hook is called.
type Phase int

// Before: nothing has happened yet. After: the operation is done, the answer has not been sent.
const (
	Before Phase = iota
	After
)

// A Hook is called for every request, before and after, without the world's lock. If it answers an error the connection
// is cut: that is how a test crashes the caller at call N.
type Hook func(p Phase, c *Call) error

// OnCall sets the hook; nil removes it.
func (w *World) OnCall(h Hook) {
	w.hookMu.Lock()
	defer w.hookMu.Unlock()
	w.hook = h
}

func (w *World) callHook(p Phase, c *Call) error {
	w.hookMu.RLock()
	h := w.hook
	w.hookMu.RUnlock()
	if h == nil {
		return nil
	}
	return h(p, c)
}

// verdict is what the faults have decided about a call before it is carried out.
type verdict struct {
	refuse  *Fault // error, throttle, raw
	hang    *Fault
	delay   *Fault
	lost    *Fault
	swallow *Fault
	change  *Fault // transition, op_failed
}

func (w *World) judge(c *Call) verdict {
	w.mu.Lock()
	defer w.mu.Unlock()
	var v verdict
	for _, f := range w.faults {
		var slot **Fault
		switch f.Kind {
		case FaultError, FaultThrottle, FaultRaw:
			slot = &v.refuse
		case FaultHang:
			slot = &v.hang
		case FaultDelay:
			slot = &v.delay
		case FaultLostReply:
			slot = &v.lost
		case FaultSwallow:
			slot = &v.swallow
		case FaultTransition, FaultOpFailed:
			slot = &v.change
		default:
			continue
		}
		// Only what changes something can be swallowed or fail later.
		if (slot == &v.swallow || slot == &v.change) && !c.Mutating {
			continue
		}
		if *slot == nil && f.concerns(c, c.Params+" "+strings.Join(c.Resources, " ")) && w.use(f) {
			*slot = f
			c.noteFault(f)
		}
	}
	return v
}

// Serve takes a request through hooks, latency, faults and books. exec carries the operation out (with the world locked)
// and renders its answer; refuse renders a fault of kind error, throttle or raw. If cut is true, no answer must be sent
// and the connection must be closed.
func (w *World) Serve(ctx context.Context, c *Call, exec func() Reply, refuse func(*Fault) Reply) (cut bool) {
	e := Entry{WallTime: time.Now().UTC(), Time: w.Clock.Now(), Cloud: c.Cloud, Service: c.Service, Operation: c.Operation,
		Mutating: c.Mutating, Account: c.Account, Caller: c.Caller, Region: c.Region}
	finish := func(r Reply, done, isCut bool) bool {
		e.Status, e.Code, e.Done, e.Resources, e.Actions = r.Status, r.Code, done, c.Resources, c.Actions
		if isCut {
			e.Status = 0
		}
		if c.fault != nil {
			e.Fault, e.FaultID = string(c.fault.Kind), c.fault.ID
		}
		w.record(e)
		return isCut
	}
	if err := w.callHook(Before, c); err != nil {
		return finish(Reply{}, false, true)
	}
	v := w.judge(c)
	opt := w.Options()
	latency := opt.ReadLatency
	if c.Mutating {
		latency = opt.WriteLatency
	}
	sleep(ctx, latency)
	if v.delay != nil && v.delay.Mode == "" {
		sleep(ctx, v.delay.Duration())
	}
	if v.hang != nil && v.hang.Mode == "" {
		hang(ctx, v.hang)
		return finish(Reply{}, false, true)
	}
	if v.refuse != nil {
		return finish(refuse(v.refuse), false, false)
	}
	reply := w.execute(c, v, exec)
	done := reply.Code == "" && v.swallow == nil
	if err := w.callHook(After, c); err != nil {
		return finish(reply, done, true)
	}
	if v.delay != nil && v.delay.Mode == "after" {
		sleep(ctx, v.delay.Duration())
	}
	if v.hang != nil {
		hang(ctx, v.hang)
		return finish(reply, done, true)
	}
	return finish(reply, done, v.lost != nil)
}

func (w *World) execute(c *Call, v verdict, exec func() Reply) Reply {
	w.Lock()
	defer w.Unlock()
	if v.swallow != nil {
		restore, err := w.cloneStates(c.Cloud)
		if err != nil {
			panic(err) // a service whose state is not plain data: a mistake in that service
		}
		defer restore()
	}
	reply := exec()
	if f := v.change; f != nil && reply.Code == "" {
		delay := f.Duration()
		if f.Kind == FaultOpFailed && delay == 0 {
			delay = 5 * time.Second
		}
		for _, id := range c.Made {
			w.schedule(event{At: w.Now().Add(delay), Cloud: c.Cloud, Service: c.Service, Kind: kindTransition, Key: id,
				State: f.State, Code: f.Code, Message: f.Message})
		}
		w.settle()
	}
	return reply
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func hang(ctx context.Context, f *Fault) {
	if f.Seconds > 0 {
		sleep(ctx, f.Duration())
		return
	}
	<-ctx.Done()
}
