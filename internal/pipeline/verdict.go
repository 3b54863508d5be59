package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/zopday/provisioner/internal/job"
)

// A WaitError parks the job: what it waits for is not so yet.
type WaitError struct {
	After time.Duration // look again after this, in cloud time
	For   string        // what is waited for, for a person
}

func (e *WaitError) Error() string { return "waiting for " + e.For }

// Wait parks the job without holding a goroutine and without spending an attempt.
func Wait(after time.Duration, format string, args ...any) error {
	return &WaitError{After: after, For: fmt.Sprintf(format, args...)}
}

// IsWait reports whether err parks the job.
func IsWait(err error) bool {
	var w *WaitError
	return errors.As(err, &w)
}

// A FatalError stops the job until a person does something.
type FatalError struct {
	Problem job.Error
	Cause   error
}

func (e *FatalError) Error() string { return e.Problem.Message }
func (e *FatalError) Unwrap() error { return e.Cause }

// Fatal stops the job: code is stable, message says what happened to what, and
// hint what to do next.
func Fatal(code, message, hint string) *FatalError {
	return &FatalError{Problem: job.Error{Code: code, Message: message, Hint: hint}}
}

// On names the request field at fault.
func (e *FatalError) On(field string) *FatalError {
	e.Problem.Field = field
	return e
}

// From keeps the error that led here.
func (e *FatalError) From(cause error) *FatalError {
	e.Cause = cause
	var ce *CloudError
	if errors.As(cause, &ce) {
		e.Problem.Request = ce.RequestID
	}
	return e
}

// Class is what a cloud's error means, decided once at the client boundary.
type Class string

// The classes.
const (
	NotFound    Class = "not-found"   // the object does not exist, or is not visible yet
	Exists      Class = "exists"      // the name or the object is taken
	Busy        Class = "busy"        // something else is under way or still uses it: try again later
	Throttled   Class = "throttled"   // too many calls: nothing happened
	Denied      Class = "denied"      // the caller may not
	Expired     Class = "credentials" // the caller's credentials are missing, expired or wrong
	Quota       Class = "quota"       // a limit of the account
	Capacity    Class = "capacity"    // the cloud has none left of it now
	Invalid     Class = "invalid"     // the request is wrong and will stay wrong
	Mismatch    Class = "mismatch"    // the idempotency token was used with other arguments
	Unavailable Class = "unavailable" // the cloud failed, or the answer was lost: the outcome is unknown
	Registry    Class = "registry"    // the service that keeps the spaces does not answer, or fails
	Refused     Class = "refused"     // our own gate refused the call: it was never sent
	Unknown     Class = "unknown"     // none of these: tried again a few times
)

// A CloudError is an error of a cloud's API with its meaning.
type CloudError struct {
	Class      Class
	Service    string // such as "EC2"
	Op         string // such as "CreateVpc"
	Code       string // the cloud's own code
	Message    string // the cloud's own words
	RequestID  string
	Sent       bool          // false: it never left, so nothing can have happened
	RetryAfter time.Duration // what the cloud asked for; 0 if nothing
	Err        error
}

func (e *CloudError) Error() string {
	what := e.Service + " " + e.Op
	switch {
	case e.Code != "" && e.Message != "":
		return fmt.Sprintf("%s: %s (%s)", what, e.Message, e.Code)
	case e.Code != "":
		return fmt.Sprintf("%s: %s", what, e.Code)
	case e.Message != "":
		return fmt.Sprintf("%s: %s", what, e.Message)
	}
	// An empty reason is never passed on as one.
	return fmt.Sprintf("%s failed and the cloud gave no reason (request %s)", what, cmp.Or(e.RequestID, "unknown"))
}

func (e *CloudError) Unwrap() error { return e.Err }

// ClassOf is the class of an error, Unknown if it has none.
func ClassOf(err error) Class {
	var ce *CloudError
	if errors.As(err, &ce) {
		return ce.Class
	}
	return Unknown
}

// Is reports whether err has one of the classes.
func Is(err error, classes ...Class) bool {
	return err != nil && slices.Contains(classes, ClassOf(err))
}

// happened reports whether a mutating call that ended with err may have taken
// effect all the same.
func happened(err error) bool {
	var ce *CloudError
	if !errors.As(err, &ce) {
		return true // unknown: assume so
	}
	if !ce.Sent {
		return false
	}
	return ce.Class == Unavailable || ce.Class == Unknown || ce.Class == Exists || ce.Class == Mismatch
}

// All runs independent parts of a step side by side and waits for every one: a
// create in flight is never abandoned because a neighbour failed. The gravest
// verdict wins: fatal, then error, then the shortest wait. A part that panics
// makes All panic, where the engine turns it into the job's failure; left in its
// goroutine it would end the process, and every worker that takes the job up.
func All(ctx context.Context, parts ...func(context.Context) error) error {
	errs := make([]error, len(parts))
	panics := make([]any, len(parts))
	var wg sync.WaitGroup
	for i, part := range parts {
		wg.Go(func() {
			defer func() { panics[i] = recover() }()
			errs[i] = part(ctx)
		})
	}
	wg.Wait()
	for _, v := range panics {
		if v != nil {
			panic(v)
		}
	}
	return Gravest(errs...)
}

// Gravest picks the verdict that counts among several.
func Gravest(errs ...error) error {
	var worst error
	rank := func(err error) int {
		var w *WaitError
		var f *FatalError
		switch {
		case err == nil:
			return 0
		case errors.As(err, &w):
			return 1
		case errors.As(err, &f):
			return 3
		}
		return 2
	}
	for _, err := range errs {
		switch r, w := rank(err), rank(worst); {
		case r > w:
			worst = err
		case r == 1 && w == 1:
			var a, b *WaitError
			errors.As(err, &a)
			errors.As(worst, &b)
			if a.After < b.After {
				worst = err
			}
		}
	}
	return worst
}
