package gcp

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/zopday/provisioner/internal/sim"
)

// The states of an operation.
const (
	opPending = "PENDING"
	opRunning = "RUNNING"
	opDone    = "DONE"
)

// An Operation is a change that Compute Engine carries out. What it does happens when it is done.
type Operation struct {
	Path, Name, ID string
	Project        string
	Type           string
	Target         string // path of the object
	TargetID       string
	User           string
	Inserted       time.Time
	Started, Ended time.Time
	Status         string
	// Action is what happens when the operation is done; Doc and Args are what it works with.
	Action string
	Doc    Doc
	Args   map[string]string
	// Held: a transition keeps the operation in its state.
	Held       bool
	ErrorCode  string
	ErrorText  string
	HTTPStatus int
	HTTPText   string
	// ErrorDetails are the errorDetails of the error.
	ErrorDetails []any
}

// An action is what an operation does when it is done. A *Error makes it end with an error, its Reason as the code.
type action func(op *Operation, target *Resource) error

// The actions that every kind has.
const (
	actInsert  = "insert"
	actReplace = "replace"
	actDelete  = "delete"
	actNothing = "nothing"
)

// A change describes an operation to start.
type change struct {
	Type   string // operationType: insert, patch, delete, setLabels
	Target *Resource
	Takes  time.Duration // simulated; zero means 8 s; atOnce answers an operation that is done
	Action string
	Doc    Doc // of replace: the document that the object will have
	Args   map[string]string
	Scope  string // empty means the target's
}

// atOnce is how long operations take that come back done, such as setLabels of addresses.
const atOnce = -1

// start begins an operation and answers it.
func (e *Compute) start(r *request, ch change) Doc {
	w := e.cloud.World
	now := w.Now()
	if ch.Takes == 0 {
		ch.Takes = 8 * time.Second
	}
	if ch.Scope == "" {
		ch.Scope = ch.Target.scope()
	}
	name := "operation-" + strconv.FormatInt(now.UnixMilli(), 10) + "-" + w.Hex("", 13) + "-" + w.Hex("", 8) + "-" + w.Hex("", 8)
	op := &Operation{Name: name, ID: e.cloud.numericID(), Project: r.Project.ID, Type: ch.Type, Target: ch.Target.Path, TargetID: ch.Target.ID, User: r.Who.Email,
		Inserted: now, Started: now, Status: opRunning, Action: ch.Action, Doc: ch.Doc, Args: ch.Args}
	op.Path = "projects/" + r.Project.ID + "/" + ch.Scope + "/operations/" + name
	e.st.Operations[op.Path] = op
	ch.Target.Busy = op.Path
	if ch.Scope != "global" && w.Fraction("pending", op.ID) < 0.15 {
		op.Status = opPending
		e.later(time.Second, "operation-running", op.Path)
	}
	e.later(ch.Takes, "operation-done", op.Path)
	r.Touch(ch.Target.Path)
	r.Make(op.Path)
	if r.HTTP == nil || ch.Takes == atOnce { // the control API does not wait
		e.finish(op)
	}
	return op.shown()
}

// shown is an operation as GET answers it.
func (op *Operation) shown() Doc {
	d := Doc{"kind": "compute#operation", "id": op.ID, "name": op.Name, "operationType": op.Type, "targetLink": selfLink(op.Target), "targetId": op.TargetID,
		"status": op.Status, "user": op.User, "progress": 0, "insertTime": computeTime(op.Inserted), "selfLink": selfLink(op.Path)}
	place := "projects/" + op.Project + "/"
	if z := segmentAfter(op.Path, "zones"); z != "" {
		d["zone"] = selfLink(place + "zones/" + z)
	}
	if reg := segmentAfter(op.Path, "regions"); reg != "" {
		d["region"] = selfLink(place + "regions/" + reg)
	}
	if op.Status != opPending {
		d["startTime"] = computeTime(op.Started)
	}
	if op.Status == opDone {
		d["progress"], d["endTime"] = 100, computeTime(op.Ended)
	}
	if op.ErrorCode != "" {
		item := Doc{"code": op.ErrorCode, "message": op.ErrorText}
		if len(op.ErrorDetails) > 0 {
			item["errorDetails"] = op.ErrorDetails
		}
		d["error"] = Doc{"errors": []any{item}}
		d["httpErrorStatusCode"], d["httpErrorMessage"] = op.HTTPStatus, op.HTTPText
	}
	return normal(d).(map[string]any)
}

// addOperations adds the methods and events of operations, and the actions that every kind has.
func (e *Compute) addOperations(a *api) {
	for _, resource := range []string{"globalOperations", "regionOperations", "zoneOperations"} {
		a.ops[resource+".get"] = e.getOperation
		a.ops[resource+".wait"] = e.waitOperation
		a.ops[resource+".list"] = e.listOperations
	}
	a.ops["globalOperations.aggregatedList"] = e.aggregatedOperations
	e.events["operation-running"] = func(path string) {
		if op := e.st.Operations[path]; op != nil && op.Status == opPending && !op.Held {
			op.Status, op.Started = opRunning, e.cloud.World.Now()
		}
	}
	e.events["operation-done"] = func(path string) {
		if op := e.st.Operations[path]; op != nil && !op.Held {
			e.finish(op)
		}
	}
	e.events["operation-forgotten"] = func(path string) { delete(e.st.Operations, path) }
	e.actions[actNothing] = func(*Operation, *Resource) error { return nil }
	e.actions[actInsert] = func(_ *Operation, res *Resource) error {
		if k := e.kinds[res.Collection]; k.ready != nil {
			k.ready(res)
		}
		return nil
	}
	e.actions[actReplace] = func(op *Operation, res *Resource) error {
		res.Doc = op.Doc
		if k := e.kinds[res.Collection]; k.changed != nil {
			k.changed(res)
		}
		return nil
	}
	e.actions[actDelete] = func(_ *Operation, res *Resource) error {
		if k := e.kinds[res.Collection]; k.lateInUse {
			if user := e.userOf(res); user != "" {
				return inUse(k, res.Path, user)
			}
		}
		e.drop(res)
		return nil
	}
}

// operationLife is how long an operation can be looked up ("Handling API responses", Compute Engine: at least 14 days).
const operationLife = 14 * 24 * time.Hour

// finish carries out what an operation is for.
func (e *Compute) finish(op *Operation) {
	if op.Status == opDone {
		return
	}
	target := e.st.Resources[op.Target]
	if target != nil && target.Busy != op.Path {
		target = nil // another object of the same name by now
	}
	var err error
	if target != nil {
		e.release(target)
		err = e.actions[op.Action](op, target)
	}
	e.end(op)
	if err != nil {
		var refused *Error
		if !errors.As(err, &refused) {
			refused = refuse(500, "INTERNAL_ERROR", "%s", err)
		}
		op.fails(refused)
	}
}

// fail ends an operation with an error: nothing of it is done, and what it was making is gone.
func (e *Compute) fail(op *Operation, code, message string) {
	if op.Status == opDone {
		return
	}
	if code == "" {
		code, message = "INTERNAL_ERROR", orText(message, "Internal error. Please try again or contact Google Support. (Code: '-')")
	}
	if target := e.st.Resources[op.Target]; target != nil && target.Busy == op.Path {
		making := target.Making
		e.release(target)
		if k := e.kinds[target.Collection]; making {
			e.drop(target)
		} else if k.failed != nil {
			k.failed(op, target)
		}
	}
	e.end(op)
	op.fails(refuse(0, code, "%s", message))
}

func (e *Compute) release(res *Resource) { res.Busy, res.Making, res.Dropping = "", false, false }

func (e *Compute) end(op *Operation) {
	op.Status, op.Ended, op.Held = opDone, e.cloud.World.Now(), false
	e.later(operationLife, "operation-forgotten", op.Path)
}

// operationStatus are the HTTP status and text that go with the codes of failed operations.
var operationStatus = map[string]struct {
	status int
	text   string
}{
	"QUOTA_EXCEEDED":                            {403, "FORBIDDEN"},
	"ZONE_RESOURCE_POOL_EXHAUSTED":              {503, "SERVICE UNAVAILABLE"},
	"INTERNAL_ERROR":                            {500, "INTERNAL SERVER ERROR"},
	"RESOURCE_NOT_FOUND":                        {404, "NOT FOUND"},
	"RESOURCE_ALREADY_EXISTS":                   {409, "CONFLICT"},
	"RESOURCE_IN_USE_BY_ANOTHER_RESOURCE":       {400, "BAD REQUEST"},
	"PERMISSIONS_ERROR":                         {403, "FORBIDDEN"},
	"RESOURCE_OPERATION_RATE_EXCEEDED":          {403, "FORBIDDEN"},
	"ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS": {503, "SERVICE UNAVAILABLE"},
}

// operationCode is how an operation's error calls what a refusal calls reason.
func operationCode(reason string) string {
	switch reason {
	case "resourceInUseByAnotherResource":
		return "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE"
	case "quotaExceeded":
		return "QUOTA_EXCEEDED"
	case "notFound":
		return "RESOURCE_NOT_FOUND"
	case "alreadyExists":
		return "RESOURCE_ALREADY_EXISTS"
	case "invalid", "badRequest":
		return "INVALID_USAGE"
	}
	return reason
}

func (op *Operation) fails(e *Error) {
	op.ErrorCode, op.ErrorText, op.ErrorDetails = operationCode(e.Reason), e.Message, e.Details
	st, known := operationStatus[op.ErrorCode]
	if !known {
		st.status, st.text = 400, "BAD REQUEST"
	}
	op.HTTPStatus, op.HTTPText = st.status, st.text
}

func orText(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// operation finds the operation that a path names.
func (e *Compute) operation(r *request) (*Operation, error) {
	path := "projects/" + r.Project.ID + "/" + scopeIn(r) + "/operations/" + r.Path["operation"]
	op := e.st.Operations[path]
	if op == nil {
		for _, other := range e.st.Operations {
			if other.ID == r.Path["operation"] && other.Project == r.Project.ID {
				op = other
			}
		}
	}
	if op == nil || !e.cloud.World.Visible(r.Call, op.Path, op.Inserted.Add(-time.Hour), sim.ByID, "operation") {
		return nil, refuse(404, "notFound", "The resource '%s' was not found", path)
	}
	return op, nil
}

func (e *Compute) getOperation(r *request) (any, error) {
	op, err := e.operation(r)
	if err != nil {
		return nil, err
	}
	return op.shown(), nil
}

// maxWait is how long wait holds an answer back ("Method: globalOperations.wait": two minutes at most, perhaps less). The
// simulation answers sooner, with the operation as it is then, so that a stopped clock stops nobody.
const maxWait = 2 * time.Second

// waitOperation answers at once when the operation is done; else the caller is made to wait a little, outside of the lock.
func (e *Compute) waitOperation(r *request) (any, error) {
	op, err := e.operation(r)
	if err != nil {
		return nil, err
	}
	if op.Status == opDone || r.HTTP == nil {
		return op.shown(), nil
	}
	path := op.Path
	deadline := time.Now().Add(maxWait)
	for op != nil && op.Status != opDone && time.Now().Before(deadline) && r.HTTP.Context().Err() == nil {
		e.cloud.World.Unlock()
		time.Sleep(10 * time.Millisecond)
		e.cloud.World.Lock()
		op = e.st.Operations[path]
	}
	if op == nil {
		return nil, refuse(404, "notFound", "The resource '%s' was not found", path)
	}
	return op.shown(), nil
}

// requestID remembers what a request ID began and with which arguments.
type requestID struct {
	Args, Operation string
}

// idempotent gives requestId its meaning: the same again answers the operation that the first one began.
func (e *Compute) idempotent(op operation) operation {
	return func(r *request) (any, error) {
		id := r.Query.Get("requestId")
		if id == "" {
			return op(r)
		}
		if !isUUID(id) {
			return nil, invalidField("requestId", id, "Must be a match of regex '[a-fA-F0-9]{8}-[a-fA-F0-9]{4}-[a-fA-F0-9]{4}-[a-fA-F0-9]{4}-[a-fA-F0-9]{12}'")
		}
		key := r.Project.ID + "/" + strings.ToLower(id)
		args := fingerprint([]any{r.method.ID, r.Path, r.Body})
		if before := e.st.Requests[key]; before != nil {
			if before.Args != args {
				return nil, invalidField("requestId", id, "The request ID was used before with a different request.")
			}
			if known := e.st.Operations[before.Operation]; known != nil {
				r.Touch(known.Target, known.Path)
				return known.shown(), nil
			}
		}
		out, err := op(r)
		if err == nil && len(r.Made) > 0 {
			e.st.Requests[key] = &requestID{Args: args, Operation: r.Made[len(r.Made)-1]}
		}
		return out, err
	}
}

// isUUID says whether a text is a UUID other than the zero one, which requestId excludes.
func isUUID(s string) bool {
	if len(s) != 36 || strings.Trim(s, "0-") == "" {
		return false
	}
	for i, r := range strings.ToLower(s) {
		switch {
		case i == 8 || i == 13 || i == 18 || i == 23:
			if r != '-' {
				return false
			}
		case !strings.ContainsRune("0123456789abcdef", r):
			return false
		}
	}
	return true
}

func (op *Operation) String() string { return fmt.Sprintf("%s %s: %s", op.Type, op.Target, op.Status) }
