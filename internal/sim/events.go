package sim

import (
	"container/heap"
	"time"
)

// An event is something that happens to an object at a simulated time. It is data, not a closure, so that the queue can
// be copied together with the state.
type event struct {
	At            time.Time
	Seq           int
	Service       string
	Cloud         string
	Kind, Key     string
	State         string // of a transition
	Code, Message string
}

type eventQueue []event

func (q eventQueue) Len() int { return len(q) }
func (q eventQueue) Less(i, j int) bool {
	if q[i].At.Equal(q[j].At) {
		return q[i].Seq < q[j].Seq
	}
	return q[i].At.Before(q[j].At)
}
func (q eventQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *eventQueue) Push(x any)   { *q = append(*q, x.(event)) }
func (q *eventQueue) Pop() any {
	old := *q
	e := old[len(old)-1]
	*q = old[:len(old)-1]
	return e
}

// kindTransition marks the events of the faults transition and op_failed, which the core carries out itself.
const kindTransition = "\x00transition"

// After schedules Event(kind, key) of a service in d simulated time. The world must be locked, as it is in operations
// and events.
func (w *World) After(d time.Duration, cloud, service, kind, key string) {
	w.schedule(event{At: w.Now().Add(d), Cloud: cloud, Service: service, Kind: kind, Key: key})
}

func (w *World) schedule(e event) {
	w.eventSeq++
	e.Seq = w.eventSeq
	heap.Push(&w.events, e)
}

// settle carries out every event that is due, each at its own time.
func (w *World) settle() {
	now := w.Clock.Now()
	for len(w.events) > 0 && !w.events[0].At.After(now) {
		e := heap.Pop(&w.events).(event)
		s := w.service(e.Cloud, e.Service)
		if s == nil {
			continue
		}
		w.eventNow = e.At
		if e.Kind == kindTransition {
			// The object may be gone by now; then there is nothing to change.
			_ = s.SetState(e.Key, e.State, e.Code, e.Message)
		} else {
			s.Event(e.Kind, e.Key)
		}
		w.eventNow = time.Time{}
	}
}

// NextEvent is the time of the next thing that will happen by itself, if any: a test steps the clock to it.
func (w *World) NextEvent() (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.events) == 0 {
		return time.Time{}, false
	}
	return w.events[0].At, true
}
