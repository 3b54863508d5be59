// Package pipeline is what a family of resources is built from: steps that can
// be run again after any crash, and the one protocol by which every object at
// every cloud is made, checked and removed.
//
// # A step
//
// A Step has an Ensure and a Remove. Ensure does nothing if what it makes is
// already so, Remove does nothing if it is already gone; both ask the cloud,
// never only the ledger, what exists. The error they return is the verdict:
//
//	nil                    done
//	Wait(30s, "NAT …")     not yet: the job is parked, no goroutine and no attempt is spent
//	Fatal(code, …)         stop: a person has to do something
//	anything else          try again with back-off, up to a limit
//
// Teardown is the same list backwards through Remove. It removes every step,
// finished or not, since a step that died midway may have made something that
// the ledger never heard of.
//
// # An object
//
// A step makes its objects through Run.Ensure and removes them through
// Run.Remove, which hold the rules that keep a crash from doubling or losing
// anything (see ensure.go and remove.go).
package pipeline

import (
	"context"

	"github.com/zopday/provisioner/internal/job"
)

// A Func makes a step so, or undoes it. It may be called again after any crash.
type Func func(ctx context.Context, r *Run) error

// A Step is one named part of a pipeline.
type Step struct {
	Name   string              // stored in the ledger: never renamed, never reused
	Title  string              // what it does, for a person
	When   func(*job.Job) bool // nil: always
	Ensure Func                // does nothing if it is already so
	Remove Func                // does nothing if it is already gone; nil: there is nothing to remove
}

// A Pipeline is the ordered list of a family's steps.
type Pipeline []Step

// For is the part of the pipeline that applies to a job.
func (p Pipeline) For(j *job.Job) Pipeline {
	var out Pipeline
	for _, s := range p {
		if s.When == nil || s.When(j) {
			out = append(out, s)
		}
	}
	return out
}

// Reversed is the pipeline in teardown's order.
func (p Pipeline) Reversed() Pipeline {
	out := make(Pipeline, len(p))
	for i, s := range p {
		out[len(p)-1-i] = s
	}
	return out
}

// Index is the place of a named step, or -1.
func (p Pipeline) Index(name string) int {
	for i, s := range p {
		if s.Name == name {
			return i
		}
	}
	return -1
}
