package gcp

import (
	"maps"
	"time"
)

// A longOperation is an operation as google.longrunning has it.
type longOperation struct {
	Name    string
	Project string
	Target  string // the object that it changes
	Kind    string // what happens when it is done; the service knows it
	Args    Doc
	Begun   time.Time
	Doc     Doc
	Held    bool
}

func (op *longOperation) done() bool { return truth(op.Doc, "done") }

// finish ends an operation with its answer; typeName is its type, such as google.cloud.servicenetworking.v1.Connection.
func (op *longOperation) finish(typeName string, response Doc) {
	answer := Doc{"@type": "type.googleapis.com/" + typeName}
	maps.Copy(answer, response)
	op.Doc["done"], op.Doc["response"] = true, answer
}

// fail ends an operation with an error of google.rpc.Code.
func (op *longOperation) fail(code int, message string) {
	op.Doc["done"], op.Doc["error"] = true, Doc{"code": float64(code), "message": message}
}

// The codes of google.rpc.Code that operations end with.
const (
	rpcInvalidArgument    = 3
	rpcNotFound           = 5
	rpcFailedPrecondition = 9
	rpcInternal           = 13
)

// rpcCodes are the numbers of google.rpc.Code by name.
var rpcCodes = map[string]int{"CANCELLED": 1, "INVALID_ARGUMENT": rpcInvalidArgument, "DEADLINE_EXCEEDED": 4, "NOT_FOUND": rpcNotFound, "ALREADY_EXISTS": 6,
	"PERMISSION_DENIED": 7, "RESOURCE_EXHAUSTED": 8, "FAILED_PRECONDITION": rpcFailedPrecondition, "ABORTED": 10, "INTERNAL": rpcInternal, "UNAVAILABLE": 14}

// drive does to an operation what a transition or op_failed asks: the empty state makes it fail, RUNNING holds it, DONE lets
// it end. It answers whether it is to be carried out now.
func (op *longOperation) drive(state, code, message string) (carryOut bool) {
	switch {
	case op.done():
	case state == "":
		n := rpcCodes[code]
		if n == 0 {
			n = rpcInternal
		}
		op.fail(n, orText(message, "An internal error occurred."))
	case state == "DONE":
		return true
	default:
		op.Held = true
	}
	return false
}
