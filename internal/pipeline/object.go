package pipeline

import (
	"context"
	"time"
)

// Status is where an object at a cloud stands.
type Status int

// The states of an object at a cloud.
const (
	Ready   Status = iota // usable
	Pending               // on its way, or on its way out
	Broken                // it came up failed and will not recover: Seen.Reason says why
	Gone                  // it still answers, but it is deleted (such as a terminated instance)
)

// Seen is what a cloud says of an object.
type Seen struct {
	ID      string
	Owner   string // the owner mark on it; [Unmarked] if it carries none; "" if its kind takes none
	Status  Status
	Reason  string // the cloud's word for its state
	Aspects []Aspect
}

// Unmarked is the owner of what could carry a mark and carries none. Where IDs
// are names, it is what somebody has made under a name of ours.
const Unmarked = "somebody who left no mark"

// An Aspect is one attribute of an object that is set after creation, or can
// drift: wanted and seen, in words that compare equal when it is right.
type Aspect struct {
	Name         string
	Wanted, Seen string
	Set          func(context.Context) error // nil: it cannot be changed on a live object

	// Lane is set side by side with the object's other lanes; within one, and
	// in the nameless one, aspects are set one after another.
	Lane string
}

// A Resource says how one object at a cloud is found, made, kept right and removed.
type Resource struct {
	Kind string // such as "ec2:vpc"
	Key  string // its place in the job, such as "private-a"; unique with Kind
	Name string // its name at the cloud

	// Args is what the create says. It is hashed into the token, so that other
	// arguments never ride on a used token.
	Args any

	// Get reads the object by its ID; the error has class NotFound if there is none.
	Get func(ctx context.Context, id string) (Seen, error)

	// Find looks for the object by its mark or natural key, on every page. It
	// returns what carries the name, ours or not.
	Find func(ctx context.Context) ([]Seen, error)

	// Create makes it. What it returns may already say Ready; otherwise Get is asked.
	Create func(ctx context.Context, token string) (Seen, error)

	// Tokened says that the API honours the token: a create whose reply was
	// lost is repeated instead of looked up.
	Tokened bool

	// Delete removes it. Class NotFound counts as done.
	Delete func(ctx context.Context, id string) error

	// Slow says that a delete is only accepted by the call and takes its time:
	// Get is asked until the object is gone.
	Slow bool

	// Blockers names what keeps a delete from going through, such as somebody
	// else's interface in a subnet, and how to free it; nil if not known.
	Blockers func(ctx context.Context, id string) (string, error)

	// Precious says that it holds data: one that the cloud does not show is looked for
	// for long, and never made again by itself.
	Precious bool

	// Patience is how long the object may stay Pending, in cloud time, before
	// the job stops with a reason; 0 is 30 minutes.
	Patience time.Duration
}

func (x Resource) String() string { return x.Kind + " " + x.Name }
