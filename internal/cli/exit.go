package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/zopday/provisioner/internal/client"
)

// The exit codes of every command. They are part of the interface: scripts
// depend on them, and a new meaning gets a new number.
const (
	exitDone        = 0
	exitUnexpected  = 1
	exitUsage       = 2
	exitJobFailed   = 3
	exitNotAllowed  = 4
	exitNotFound    = 5
	exitConflict    = 6
	exitGaveUp      = 7
	exitCancelled   = 8
	exitUnreachable = 9
	exitChanges     = 10
	exitInterrupted = 130
)

// exitTable is what --help shows.
var exitTable = []struct {
	code    int
	meaning string
}{
	{exitDone, "done"},
	{exitUnexpected, "something unexpected went wrong"},
	{exitUsage, "wrong usage, an input that the server refused (400, 422), or a plan with a check that fails"},
	{exitJobFailed, "the job ended failed"},
	{exitNotAllowed, "not signed in, or not allowed (401, 403)"},
	{exitNotFound, "not found (404)"},
	{exitConflict, "conflict with what is there (409, 412)"},
	{exitGaveUp, "gave up waiting; the job goes on"},
	{exitCancelled, "somebody cancelled the job while it was waited for"},
	{exitUnreachable, "the server could not be reached"},
	{exitChanges, "plan --detailed-exit-code: there are changes; verify: there is drift"},
	{exitInterrupted, "interrupted (Ctrl-C); the job goes on"},
}

func exitTableText() string {
	var b strings.Builder
	for _, e := range exitTable {
		fmt.Fprintf(&b, "  %3d  %s\n", e.code, e.meaning)
	}
	return b.String()
}

// A usageError is a command that cannot be understood or lacks something.
type usageError struct {
	msg  string
	hint string // what to type instead
}

func (e *usageError) Error() string { return e.msg }

func usagef(format string, args ...any) error {
	return &usageError{msg: fmt.Sprintf(format, args...)}
}

// A quietExit ends the command with a code after everything has been said.
type quietExit int

func (e quietExit) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// errInterrupted is Ctrl-C.
var errInterrupted = errors.New("interrupted")

// exitCode says with which code an error ends the process.
func exitCode(err error) int {
	var (
		quiet quietExit
		coded interface{ exitCode() int }
		use   *usageError
		prob  *client.Problem
		gone  *client.Unreachable
	)
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &quiet):
		return int(quiet)
	case errors.As(err, &coded):
		return coded.exitCode()
	case errors.As(err, &use):
		return exitUsage
	case errors.As(err, &prob):
		return statusExit(prob.Status)
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &gone), errors.Is(err, context.DeadlineExceeded):
		return exitUnreachable
	}
	return exitUnexpected
}

func statusExit(status int) int {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return exitNotAllowed
	case http.StatusNotFound, http.StatusGone:
		return exitNotFound
	case http.StatusConflict, http.StatusPreconditionFailed:
		return exitConflict
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge,
		http.StatusUnsupportedMediaType, http.StatusRequestURITooLong:
		return exitUsage
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return exitUnreachable
	}
	return exitUnexpected
}
