package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/zopday/provisioner/internal/job"
)

// An Action is what the engine does after a step has returned.
type Action int

// The actions.
const (
	Advance Action = iota // the step is done
	Park                  // look again later; no attempt is spent
	Again                 // try again later; an attempt is spent
	Stop                  // the job fails with Decision.Problem
)

// A Decision is what follows from a step's verdict.
type Decision struct {
	Action  Action
	After   time.Duration // in cloud time
	For     string        // what is waited for, for a person
	Problem job.Error
}

// budget bounds how often one class of error is tried again: limit attempts,
// waiting base, doubled each time up to most. The limits are chosen by how
// long the condition lasts at real clouds, not by patience alone: a lingering
// network interface can hold a subnet for 45 minutes, a fresh instance profile
// can be invisible for minutes, and a throttled account recovers in its own time.
type budget struct {
	limit      int
	base, most time.Duration
	code, hint string
}

var budgets = map[Class]budget{
	NotFound:    {60, 2 * time.Second, 15 * time.Second, "not-visible", "The cloud does not show something that was just made, or that the job names. Check that it exists, then retry."},
	Busy:        {130, 5 * time.Second, 30 * time.Second, "busy", "Something else at the cloud holds it. Free it, then retry."},
	Throttled:   {90, time.Second, 30 * time.Second, "throttled", "The cloud account makes too many calls. Lower the load on it, then retry."},
	Unavailable: {60, time.Second, 30 * time.Second, "cloud-unavailable", "The cloud's API fails. Look at its status page, then retry."},
	Expired:     {120, 5 * time.Second, 30 * time.Second, "credentials", "The cloud credentials are missing, wrong or expired. Renew them, then retry; the job goes on where it was."},
	Capacity:    {10, 15 * time.Second, 45 * time.Second, "no-capacity", "The cloud has none left of this type in these zones now. Retry later, or ask for another instanceType or zone."},
	Exists:      {6, 5 * time.Second, 30 * time.Second, "name-taken", "The name is held by something that cannot be seen from this account, or was deleted a moment ago. Retry later, or choose another name."},
	Mismatch:    {3, time.Second, time.Second, "token-mismatch", "The cloud remembers this request with other arguments. Retry; a new request token is used."},
	Registry:    {60, time.Second, 30 * time.Second, "config-service-unavailable", "The config service does not answer, or fails. Check that it runs and that this server reaches it (zopday serve --config-service), then retry; the job goes on where it was."},
	Unknown:     {6, 2 * time.Second, time.Minute, "unexpected", "This error is not one that is known. Read its text, then retry, or report it."},
}

// Judge decides what follows from a step's error. attempts is how many tries
// of this step have failed without progress before this one.
func Judge(err error, attempts int) Decision {
	var wait *WaitError
	var fatal *FatalError
	var blocked *BlockedError
	var ce *CloudError
	switch {
	case err == nil:
		return Decision{Action: Advance}
	case errors.As(err, &wait):
		return Decision{Action: Park, After: wait.After, For: wait.For}
	case errors.As(err, &fatal):
		return Decision{Action: Stop, Problem: fatal.Problem}
	case errors.As(err, &blocked):
		b := budgets[Busy]
		if attempts >= b.limit {
			return Decision{Action: Stop, Problem: job.Error{Code: codeBlocked, Message: blocked.Error(), Hint: hintBlocked}}
		}
		return Decision{Action: Again, After: b.after(attempts), For: blocked.Error()}
	case errors.As(err, &ce):
		return judgeCloud(ce, attempts)
	case errors.Is(err, context.DeadlineExceeded):
		return judgeCloud(&CloudError{Class: Unavailable, Message: err.Error(), Sent: true}, attempts)
	}
	return judgeCloud(&CloudError{Class: Unknown, Message: err.Error(), Sent: true}, attempts)
}

func judgeCloud(ce *CloudError, attempts int) Decision {
	stop := func(code, hint string) Decision {
		return Decision{Action: Stop, Problem: job.Error{Code: code, Message: ce.Error(), Hint: hint, Request: ce.RequestID}}
	}
	switch ce.Class {
	case Denied:
		return stop("permission-denied", fmt.Sprintf("Allow %s:%s for the credentials of this cloud account, then retry.", lower(ce.Service), ce.Op))
	case Quota:
		return stop("quota-exceeded", "Ask the cloud for a higher quota, or free some of it, then retry.")
	case Invalid:
		return stop("refused-by-cloud", "The cloud will not take this request. Change what the message names (PATCH the job), then retry.")
	case Refused:
		return stop("refused", "This job may not change anything at the cloud.")
	}
	b, ok := budgets[ce.Class]
	if !ok {
		b = budgets[Unknown]
	}
	if attempts >= b.limit {
		d := stop(b.code, b.hint)
		d.Problem.Message = fmt.Sprintf("%s; tried %d times", d.Problem.Message, attempts+1)
		return d
	}
	return Decision{Action: Again, After: max(b.after(attempts), ce.RetryAfter), For: ce.Error()}
}

// after is the back-off with jitter: between half and all of the doubled base.
func (b budget) after(attempts int) time.Duration {
	d := b.base << min(attempts, 10)
	d = min(d, b.most)
	return d/2 + rand.N(d/2+1)
}

func lower(s string) string {
	out := []rune(s)
	for i, r := range out {
		if r >= 'A' && r <= 'Z' {
			out[i] = r + 'a' - 'A'
		}
	}
	return string(out)
}
