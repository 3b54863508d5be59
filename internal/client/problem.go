package client

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"
)

// A Problem is an RFC 9457 document: why the server refused a request.
type Problem struct {
	Type      string       `json:"type,omitempty"`
	Title     string       `json:"title,omitempty"`
	Status    int          `json:"status,omitempty"`
	Detail    string       `json:"detail,omitempty"`
	Instance  string       `json:"instance,omitempty"`
	Code      string       `json:"code,omitempty"`
	Hint      string       `json:"hint,omitempty"`
	RequestID string       `json:"requestId,omitempty"`
	Errors    []FieldError `json:"errors,omitempty"`

	// Raw is the document as it came, on one line.
	Raw json.RawMessage `json:"-"`
}

// A FieldError is one thing wrong with a request.
type FieldError struct {
	Field    string `json:"field,omitempty"`
	Location string `json:"location,omitempty"` // the same, as some servers spell it
	Message  string `json:"message,omitempty"`
	Fix      string `json:"fix,omitempty"`
}

// Where is the field at fault.
func (f FieldError) Where() string {
	if f.Field != "" {
		return f.Field
	}
	return strings.TrimPrefix(f.Location, "body.")
}

func (p *Problem) Error() string {
	switch {
	case p.Detail != "":
		return p.Detail
	case p.Title != "":
		return p.Title
	}
	return fmt.Sprintf("the server answered %d %s", p.Status, http.StatusText(p.Status))
}

// Kind is the stable last part of the problem's type, such as "invalid".
func (p *Problem) Kind() string {
	if p.Code != "" {
		return p.Code
	}
	t := strings.TrimRight(p.Type, "/")
	if i := strings.LastIndexAny(t, "/:#"); i >= 0 {
		t = t[i+1:]
	}
	if t == "blank" {
		return ""
	}
	return t
}

// parseProblem reads an error answer. What is no problem document (a proxy's
// page, say) becomes one that says so.
func parseProblem(r *Response) *Problem {
	p := &Problem{}
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if strings.HasSuffix(media, "json") && json.Unmarshal(r.Body, p) == nil && (p.Title != "" || p.Detail != "") {
		var compact json.RawMessage
		if json.Unmarshal(r.Body, &compact) == nil {
			p.Raw = oneLine(compact)
		}
	}
	p.Status = r.Status
	if p.Title == "" {
		p.Title = http.StatusText(r.Status)
	}
	if p.Detail == "" && p.Raw == nil {
		p.Detail = fmt.Sprintf("the server answered %d %s, and not with a problem document; is something else in between?", r.Status, http.StatusText(r.Status))
	}
	if p.RequestID == "" {
		p.RequestID = r.RequestID()
	}
	return p
}

func oneLine(b json.RawMessage) json.RawMessage {
	var v any
	if json.Unmarshal(b, &v) != nil {
		return b
	}
	out, err := json.Marshal(v)
	if err != nil {
		return b
	}
	return out
}
