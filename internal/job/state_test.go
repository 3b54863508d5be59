package job

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

var (
	allStatuses = []Status{Draft, Queued, Running, Completed, Failed, Cancelled}
	allPhases   = []Phase{PhaseProvision, PhaseUpdate, PhaseTeardown}
	allSignals  = []Signal{Submit, Claim, Finish, Fail, Retry, Operate, Delete, Yield}
)

// want is the state machine written down a second time, by signal instead of
// by state, as the documentation tells it.
func want(s State, sig Signal) (State, bool) {
	switch sig {
	case Submit: // draft → queued
		return State{Queued, PhaseProvision}, s == State{Draft, PhaseProvision}
	case Claim: // queued → running; a job that runs is claimed again after a wait or a crash
		return State{Running, s.Phase}, s.Status == Queued || s.Status == Running
	case Finish: // running → completed, a teardown → cancelled
		if s.Phase == PhaseTeardown {
			return State{Cancelled, PhaseTeardown}, s.Status == Running
		}
		return State{Completed, s.Phase}, s.Status == Running
	case Fail: // running → failed
		return State{Failed, s.Phase}, s.Status == Running
	case Retry: // failed → queued, in the same phase
		return State{Queued, s.Phase}, s.Status == Failed
	case Operate: // completed → queued for an update; a failed update can be reversed
		return State{Queued, PhaseUpdate}, s.Status == Completed || s == State{Failed, PhaseUpdate}
	case Yield: // a running job whose deletion was asked for
		return State{Queued, PhaseTeardown}, s.Status == Running && s.Phase != PhaseTeardown
	case Delete: // everything that lives can be deleted
		switch {
		case s.Status == Draft:
			return State{Cancelled, PhaseProvision}, true
		case s == State{Running, PhaseTeardown}:
			return s, true
		}
		return State{Queued, PhaseTeardown}, s.Status != Cancelled
	}
	return s, false
}

func defined(s State) bool {
	switch s.Status {
	case Draft:
		return s.Phase == PhaseProvision
	case Completed:
		return s.Phase != PhaseTeardown
	case Cancelled:
		return s.Phase != PhaseUpdate
	}
	return true
}

func TestTransitionTableExhaustively(t *testing.T) {
	for _, status := range allStatuses {
		for _, phase := range allPhases {
			s := State{status, phase}
			for _, sig := range allSignals {
				got, err := Next(s, sig)
				if !defined(s) {
					if err == nil {
						t.Errorf("%s --%s--> %s, but %s is not a state", s, sig, got, s)
					}
					continue
				}
				to, ok := want(s, sig)
				var refused *TransitionError
				switch {
				case ok && (err != nil || got != to):
					t.Errorf("%s --%s--> %s, %v; want %s", s, sig, got, err, to)
				case !ok && (!errors.As(err, &refused) || got != s):
					t.Errorf("%s --%s--> %s, %v; want a refusal that leaves it", s, sig, got, err)
				case !ok && refused.Error() == "":
					t.Errorf("%s --%s--> is refused without words", s, sig)
				}
			}
		}
	}
}

func TestNoSequenceLeavesTheTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := State{Draft, PhaseProvision}
		wasCancelled := false
		for range rapid.IntRange(1, 60).Draw(t, "length") {
			sig := rapid.SampledFrom(allSignals).Draw(t, "signal")
			next, err := Next(s, sig)
			if err != nil && next != s {
				t.Fatalf("a refused %s moved %s to %s", sig, s, next)
			}
			if !defined(next) {
				t.Fatalf("%s --%s--> %s, which is no state", s, sig, next)
			}
			if wasCancelled && next != s {
				t.Fatalf("%s left cancelled by %s", s, sig)
			}
			if s.Phase == PhaseTeardown && next.Phase != PhaseTeardown {
				t.Fatalf("a teardown turned into %s by %s", next, sig)
			}
			s, wasCancelled = next, next.Terminal()
		}
	})
}

func TestEveryLiveStateCanEnd(t *testing.T) {
	for s := range transitions {
		if s.Terminal() {
			continue
		}
		at := s
		for _, sig := range []Signal{Delete, Claim, Finish} {
			if next, err := Next(at, sig); err == nil {
				at = next
			}
		}
		if !at.Terminal() {
			t.Errorf("%s cannot be torn down: it stays at %s", s, at)
		}
	}
}
