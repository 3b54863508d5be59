package azure

import (
	"fmt"
	"maps"
	"net/http"
)

// An Error is a refusal as ARM or a resource provider words it.
type Error struct {
	Status  int               `json:"status"`
	Code    string            `json:"code"`
	Message string            `json:"message"`
	Target  string            `json:"target,omitempty"`
	Details []*Error          `json:"details,omitempty"`
	Header  map[string]string `json:"header,omitempty"`
	// Gateway: ARM itself refused, before any resource provider saw the request; it marks that with a header.
	Gateway bool `json:"gateway,omitempty"`
	// Bare: the body has no `error` around code and message, as with DNS zones.
	Bare bool `json:"bare,omitempty"`
	// Extra are members beside code and message that only this provider has; null ones are shown.
	Extra map[string]any `json:"extra,omitempty"`
	// List: details are shown even when there are none, as Microsoft.Network does.
	List bool `json:"list,omitempty"`
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// refuse makes the refusal of a resource provider.
func refuse(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// refuseARM makes a refusal of ARM's front end.
func refuseARM(status int, code, format string, args ...any) *Error {
	return &Error{Status: status, Code: code, Message: fmt.Sprintf(format, args...), Gateway: true}
}

// with adds a detail to a refusal.
func (e *Error) with(d *Error) *Error {
	e.Details = append(e.Details, d)
	return e
}

// header adds a header to the answer.
func (e *Error) header(name, value string) *Error {
	h := map[string]string{name: value}
	maps.Copy(h, e.Header)
	e.Header = h
	return e
}

// inner is the error object itself, as it stands in bodies and in failed operations.
func (e *Error) inner() map[string]any {
	body := map[string]any{"code": e.Code, "message": e.Message}
	maps.Copy(body, e.Extra)
	if e.Target != "" {
		body["target"] = e.Target
	}
	if len(e.Details) > 0 || e.List {
		details := []any{}
		for _, d := range e.Details {
			details = append(details, d.inner())
		}
		body["details"] = details
	}
	return body
}

// answer renders the refusal.
func (e *Error) answer() answer {
	a := answer{status: e.Status, code: e.Code, header: http.Header{}, body: map[string]any{"error": e.inner()}}
	if e.Bare {
		a.body = e.inner()
	}
	if e.Gateway {
		a.header.Set("X-Ms-Failure-Cause", "gateway")
	}
	for k, v := range e.Header {
		a.header.Set(k, v)
	}
	return a
}
