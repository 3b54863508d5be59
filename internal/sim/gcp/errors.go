package gcp

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode"

	"github.com/zopday/provisioner/internal/sim"
	"github.com/zopday/provisioner/internal/sim/gcp/schema"
)

// An Error is a refusal as Google words it.
type Error struct {
	HTTP    int    // HTTP status and error.code
	Reason  string // errors[].reason, such as notFound
	Status  string // error.status, such as NOT_FOUND; empty means the one that belongs to HTTP
	Message string
	Details []any // error.details
	// Plain: the envelope has code, message and status alone, whatever the API's habit.
	Plain bool
}

func (e *Error) Error() string { return e.Reason + ": " + e.Message }

// refuse makes an Error.
func refuse(status int, reason, format string, args ...any) *Error {
	return &Error{HTTP: status, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// invalidField is how Compute Engine refuses a value.
func invalidField(field string, value any, why string) *Error {
	if why != "" {
		why = " " + why
	}
	return refuse(400, "invalid", "Invalid value for field '%s': '%v'.%s", field, value, why)
}

// canonical are the status names of google.rpc.Code by HTTP status.
var canonical = map[int]string{400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 409: "ALREADY_EXISTS",
	412: "FAILED_PRECONDITION", 429: "RESOURCE_EXHAUSTED", 499: "CANCELLED", 500: "INTERNAL", 501: "UNIMPLEMENTED", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}

func (e *Error) status() string {
	if e.Status != "" {
		return e.Status
	}
	return canonical[e.HTTP]
}

// envelope writes a refusal: Compute Engine, DNS and IAM list errors[] besides, Compute Engine leaves status out.
func (a *api) envelope(e *Error) []byte {
	doc := Doc{"code": e.HTTP, "message": e.Message}
	plain := e.Plain || a == nil
	if plain || !a.noStatus || e.Status != "" || e.HTTP == http.StatusUnauthorized {
		doc["status"] = e.status()
	}
	if !plain && a.listErrors {
		item := Doc{"message": e.Message, "domain": "global", "reason": e.Reason}
		if e.HTTP == http.StatusUnauthorized {
			item["location"], item["locationType"] = "Authorization", "header"
		}
		doc["errors"] = []any{item}
	}
	if len(e.Details) > 0 {
		doc["details"] = e.Details
	}
	b, err := json.MarshalIndent(Doc{"error": doc}, "", "  ")
	if err != nil {
		panic(err) // a document of texts and numbers
	}
	return append(b, '\n')
}

// violated words what is wrong with a request. Fields that do not exist and values of another type are refused by the front
// end that all of Google's APIs share, everything else by the service.
func (a *api) violated(m *schema.Method, bad []schema.Violation) *Error {
	var texts []string
	var details []any
	for _, v := range bad {
		if v.Fault != schema.Unknown && v.Fault != schema.BadType && (v.Fault != schema.BadEnum || a.ownTexts) {
			continue
		}
		text, where := payloadText(a, m, v)
		texts = append(texts, text)
		d := Doc{"description": text}
		if where != "" {
			d["field"] = where
		}
		details = append(details, d)
	}
	if len(texts) > 0 {
		return &Error{HTTP: 400, Reason: "badRequest", Message: strings.Join(texts, "\n"),
			Status: "INVALID_ARGUMENT", Details: []any{Doc{"@type": "type.googleapis.com/google.rpc.BadRequest", "fieldViolations": details}}}
	}
	v := bad[0]
	switch v.Fault {
	case schema.Missing:
		return refuse(400, "required", "Required field '%s' not specified", v.Field)
	case schema.BadEnum:
		return invalidField(v.Field, v.Value, "")
	}
	return invalidField(v.Field, v.Value, fmt.Sprintf("Must be a match of regex '%s'", v.Type.Pattern))
}

func payloadText(a *api, m *schema.Method, v schema.Violation) (text, where string) {
	if v.Fault == schema.Unknown && v.Field == "" {
		return fmt.Sprintf("Invalid JSON payload received. Unknown name %q: Cannot bind query parameter. Field '%s' could not be found in request message.", v.Name, v.Name), ""
	}
	where = protoPath(a, m, v.Field)
	if v.Fault == schema.Unknown {
		if where == "" {
			return fmt.Sprintf("Invalid JSON payload received. Unknown name %q: Cannot find field.", v.Name), ""
		}
		return fmt.Sprintf("Invalid JSON payload received. Unknown name %q at '%s': Cannot find field.", v.Name, where), where
	}
	value, err := json.Marshal(v.Value)
	if err != nil {
		value = []byte(fmt.Sprint(v.Value))
	}
	return fmt.Sprintf("Invalid value at '%s' (%s), %s", where, protoType(m, v.Type), value), where
}

// protoPath names a field as the protocol buffer behind the API does: resource.routingConfig of Compute Engine's Network is
// network_resource.routing_config.
func protoPath(a *api, m *schema.Method, field string) string {
	rest, inBody := strings.CutPrefix(field, "resource")
	if !inBody {
		return snake(field)
	}
	root := ""
	if a.bodyField != nil {
		root = a.bodyField(m.Request)
	}
	return strings.TrimPrefix(root+snake(rest), ".")
}

func snake(s string) string {
	var b strings.Builder
	for i, r := range s {
		if unicode.IsUpper(r) {
			if i > 0 && s[i-1] != '.' && !unicode.IsUpper(rune(s[i-1])) {
				b.WriteByte('_')
			}
			r = unicode.ToLower(r)
		}
		b.WriteRune(r)
	}
	return b.String()
}

func protoType(m *schema.Method, t *schema.Type) string {
	if t == nil {
		return "TYPE_STRING"
	}
	switch {
	case t.Name != "":
		return "type.googleapis.com/google." + m.API.Name + "." + m.API.Version + "." + t.Name
	case t.Type == "boolean":
		return "TYPE_BOOL"
	case t.Type == "integer" || t.Format == "int64" || t.Format == "uint64":
		return "TYPE_" + strings.ToUpper(t.Format)
	case t.Type == "number":
		return "TYPE_DOUBLE"
	case len(t.Enum) > 0:
		return "TYPE_ENUM"
	}
	return "TYPE_STRING"
}

// faultError is what a fault of kind error or throttle says.
func (a *api) faultError(f *sim.Fault) *Error {
	e := &Error{HTTP: 503, Reason: "backendError", Message: "Internal error encountered."}
	if f.Kind == sim.FaultThrottle {
		e = &Error{HTTP: 429, Reason: "rateLimitExceeded", Message: "Quota exceeded for quota metric 'Queries' and limit 'Queries per minute' of service '" + a.host + "'."}
		if a.noStatus { // Compute Engine ("Rate quotas") answers 403
			e.HTTP, e.Message = 403, "Rate Limit Exceeded"
		}
	} else if f.Code != "" {
		e.HTTP = 400
	}
	if f.Code != "" {
		e.Reason = f.Code
		if strings.ToUpper(f.Code) == f.Code {
			e.Status = f.Code
		}
	}
	if f.Message != "" {
		e.Message = f.Message
	}
	if f.Status != 0 {
		e.HTTP = f.Status
	}
	return e
}
